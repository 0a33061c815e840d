//! Runs the CUDA source of formulas, compiled for the host.

use std::sync::{Arc, LazyLock};

use bytemuck::{Pod, Zeroable};

use feedwater::internals::geometry::Size;
use feedwater::internals::gpu::host_kernel::{HostCompiler, HostKernel};
use feedwater::internals::image::Image;
use feedwater::internals::op::warp::Warp;

/// Parameters of a sample for the kernel of the chain `Warp<Roi>`, which writes bytes in
/// interleaved order (NHWC).
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Sample {
    out: u64,
    out_width: i32,
    out_height: i32,
    pixels: u64,
    pitch: i32,
    x: i32,
    y: i32,
    width: i32,
    height: i32,
    stored_width: i32,
    stored_height: i32,
    orientation: i32,
    /// Chroma planes, which the image does not have.
    chroma: [i32; 10],
    warp: Warp,
}

const CHAIN: &str = "typedef Warp<Roi> Pixels;\ntypedef U8 Out;\ntypedef Nhwc Order;\n";

static KERNEL: LazyLock<Arc<HostKernel>> = LazyLock::new(|| {
    let bytes = format!("enum {{ SAMPLE_BYTES = {} }};\n", size_of::<Sample>());
    let texts = [
        include_str!("../../../kernels/image.cu"),
        include_str!("../../../kernels/warp.cu"),
        include_str!("../../../kernels/store.cu"),
        CHAIN,
        &bytes,
        include_str!("../../../kernels/fused.cu"),
    ];
    let compiler = HostCompiler::of_process();
    compiler.compile("warp", &texts.concat()).unwrap_or_else(|error| panic!("{error:?}"))
});

/// Returns the image that the kernel computes for a warp. For an elastic transform, `table` has the
/// displacements.
pub fn warped(warp: &Warp, table: &[i32], src: &Image<u8>, input: Size, output: Size) -> Vec<u8> {
    let mut out = vec![0u8; 3 * output.pixels() as usize];
    let mut warp = *warp;
    warp.set_table(table.as_ptr() as u64);
    let window = src.window();
    let sample = Sample {
        out: out.as_mut_ptr() as u64,
        out_width: output.width as i32,
        out_height: output.height as i32,
        pixels: src.data().as_ptr() as u64,
        pitch: 3 * window.width as i32,
        x: window.x as i32,
        y: window.y as i32,
        width: window.width as i32,
        height: window.height as i32,
        stored_width: input.width as i32,
        stored_height: input.height as i32,
        orientation: 0,
        chroma: [0; 10],
        warp,
    };
    KERNEL.launch(bytemuck::bytes_of(&sample), 1, output, (32, 8));
    out
}
