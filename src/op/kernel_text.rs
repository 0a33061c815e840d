//! Source text of a chain's fused kernel: the CUDA texts of the operators, and three lines that
//! compose their types.
//!
//! The text compiles with NVRTC (`--std=c++17 --fmad=false`) for the GPU and with any C++17
//! compiler for the host (`-ffp-contract=off`). On the host, `fused__host` and `tiled__host` run
//! the threads one after another.
//!
//! Every text has the kernel `fused`, with one thread per pixel. This kernel is short and serves as
//! the reference on the GPU. If the operators allow it (`Tiling`), the text also has the kernel
//! `tiled`, with one thread block per tile, and `tiled` is launched instead of `fused`.

use std::fmt::Write;
use std::ops::Range;

use bytemuck::{Pod, Zeroable};

use crate::geometry::{Orientation, Roi, Size};
use crate::image::{PixelType, Planes};
use crate::tensor::{DType, Layout, TensorShape};

use super::kind::Tiling;
use super::{Cuda, Kind, ParamBytes};

/// Image that a kernel reads. In the kernel's nested C++ types, it is the innermost type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Leaf {
    /// A decoded window of bytes, with an orientation: [`RoiParams`].
    Roi,
    /// A window of floats: [`FloatsParams`].
    Floats,
}

impl Leaf {
    /// Leaf for this pixel type.
    pub const fn of(pixels: PixelType) -> Self {
        match pixels {
            PixelType::U8 => Leaf::Roi,
            PixelType::F32 => Leaf::Floats,
        }
    }

    /// Pixel type of the image.
    pub const fn pixels(self) -> PixelType {
        match self {
            Leaf::Roi => PixelType::U8,
            Leaf::Floats => PixelType::F32,
        }
    }

    /// Size of the parameters that describe the image, in bytes.
    pub const fn params_bytes(self) -> usize {
        match self {
            Leaf::Roi => size_of::<RoiParams>(),
            Leaf::Floats => size_of::<FloatsParams>(),
        }
    }

    const fn cuda_type(self) -> &'static str {
        match self {
            Leaf::Roi => "Roi",
            Leaf::Floats => "Floats",
        }
    }
}

/// A window of a decoded image in memory that the kernel can read. It has the layout of `Roi` in
/// `kernels/image.cu`.
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct RoiParams {
    pixels: u64,
    pitch: i32,
    x: i32,
    y: i32,
    width: i32,
    height: i32,
    stored_width: i32,
    stored_height: i32,
    orientation: i32,
    chroma: [u64; 2],
    format: i32,
    /// Binary logarithms of the number of luma samples per chroma sample.
    ratio: [i32; 2],
    chroma_pitch: i32,
    chroma_size: [i32; 2],
}

/// Values of `RoiParams::format`: those of `RoiFormat` in `kernels/image.cu`.
mod format {
    pub const INTERLEAVED: i32 = 0;
    pub const GRAY: i32 = 1;
    pub const CHROMA: i32 = 2;
}

impl RoiParams {
    /// The window `window` of an image of size `stored`. Its pixels are interleaved RGB from
    /// address `pixels` on, with `pitch` bytes per row. `pitch` times the number of rows must be
    /// readable, so padding after the last row must be readable too. Bytes of the padding may have
    /// any value.
    pub fn new(pixels: u64, pitch: u32, window: Roi, stored: Size, turn: Orientation) -> Self {
        Self {
            pixels,
            pitch: pitch as i32,
            x: window.x as i32,
            y: window.y as i32,
            width: window.width as i32,
            height: window.height as i32,
            stored_width: stored.width as i32,
            stored_height: stored.height as i32,
            orientation: i32::from(turn.transpose)
                | i32::from(turn.mirror_x) << 1
                | i32::from(turn.mirror_y) << 2,
            format: format::INTERLEAVED,
            ..Self::zeroed()
        }
    }

    /// The part of an image of size `stored` that `planes` cover. `addresses` are those of luma,
    /// blue chroma and red chroma ([`Planes::addresses`]), multiples of 16. Kernels read whole
    /// rows with their padding, whose bytes may have any value. A kernel may read only the pixels
    /// of the window for which the planes were decoded: other pixels of the part may need chroma
    /// outside of it.
    pub fn planes(addresses: [u64; 3], planes: &Planes, stored: Size, turn: Orientation) -> Self {
        let [luma, blue, red] = addresses;
        let [pitch, chroma_pitch] = planes.pitches.map(|pitch| pitch as i32);
        let interleaved = Self::new(luma, pitch as u32, planes.part, stored, turn);
        if planes.is_gray {
            return Self { format: format::GRAY, ..interleaved };
        }
        Self {
            chroma: [blue, red],
            format: format::CHROMA,
            ratio: planes.ratio.map(|samples| samples.ilog2() as i32),
            chroma_pitch,
            chroma_size: planes.chroma_in_part().map(|len| len as i32),
            ..interleaved
        }
    }

    /// Whether the parameters with these bytes describe planes.
    pub(super) fn has_planes(bytes: &[u8]) -> bool {
        bytemuck::pod_read_unaligned::<Self>(bytes).format != format::INTERLEAVED
    }
}

/// A window of floats in memory that the kernel can read. It has the layout of `Floats` in
/// `kernels/image.cu`.
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct FloatsParams {
    pixels: u64,
    pitch: i32,
    x: i32,
    y: i32,
    unused: i32,
}

impl FloatsParams {
    /// The window `window` of an image. Its pixels are interleaved RGB from address `pixels` on,
    /// with `pitch` floats per row.
    pub fn new(pixels: u64, pitch: u32, window: Roi) -> Self {
        Self { pixels, pitch: pitch as i32, x: window.x as i32, y: window.y as i32, unused: 0 }
    }
}

/// Source text of a kernel, and what the host must know to launch it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelText {
    /// Complete text. The kernel `fused(const Sample* samples, int count, int width, int height)`
    /// needs a grid that covers `width` x `height` x `count` threads. The kernel `tiled(const
    /// Sample* samples, int count, int width, int height, int shared_bytes)` works with any number
    /// of blocks, which divide the tensor among themselves.
    pub source: String,
    /// C++ type of the chain, element type, and layout or `gray`, such as
    /// `FloatTable<Flip<Resample<Roi>>> f16 nchw`.
    pub name: String,
    /// Size in bytes of one sample's parameters, which [`write_sample`] writes.
    pub sample_bytes: usize,
    /// Whether the text has the kernel `tiled`.
    pub tiled: bool,
}

impl KernelText {
    /// Name of the kernel to launch: `tiled` if the text has it, else `fused`.
    pub const fn entry(&self) -> &'static str {
        if self.tiled { "tiled" } else { "fused" }
    }
}

/// Text of the kernel that evaluates actions of these kinds in this order on the image `leaf`, and
/// stores the tensor. The size in `shape` does not matter.
pub fn kernel_text(leaf: Leaf, kinds: &[Kind], shape: TensorShape) -> KernelText {
    let wrappers: Vec<Cuda> = kinds
        .iter()
        .map(|kind| kind.cuda().expect("the plan places operators without CUDA source on the CPU"))
        .collect();
    let chain = wrappers
        .iter()
        .fold(leaf.cuda_type().to_string(), |src, cuda| format!("{}<{src}>", cuda.type_name));
    let sample_bytes = SAMPLE_HEAD
        + leaf.params_bytes()
        + kinds.iter().map(|kind| kind.params_bytes()).sum::<usize>();

    let mut text = Text::default();
    text.add("image", include_str!("../../kernels/image.cu"));
    for cuda in &wrappers {
        text.add_once(&cuda.type_name.to_lowercase(), cuda.text);
    }
    text.add("store", include_str!("../../kernels/store.cu"));
    let (out, order) = (out_type(shape.dtype), order_type(shape));
    let types = format!(
        "typedef {chain} Pixels;\ntypedef {out} Out;\ntypedef {order} Order;\n\
         #define SAMPLE_BYTES {sample_bytes}"
    );
    text.add("chain", &types);
    text.add("fused", include_str!("../../kernels/fused.cu"));
    let tiled = is_tiled(&wrappers);
    if tiled {
        text.source.push_str(TILES_SINCE);
        text.add("pieces", include_str!("../../kernels/pieces.cu"));
        text.add("planes", include_str!("../../kernels/planes.cu"));
        text.add("matrix", include_str!("../../kernels/matrix.cu"));
        text.add("tile_axis", include_str!("../../kernels/tile_axis.cu"));
        text.add("tile", include_str!("../../kernels/tile.cu"));
        text.source.push_str("#endif\n");
    }
    KernelText {
        source: text.source,
        name: format!("{chain} {} {}", shape.dtype, order.to_lowercase()),
        sample_bytes,
        tiled,
    }
}

/// Writes one sample's parameters in the layout of the kernel: address and size of the tensor, the
/// parameters of the leaf ([`RoiParams`] or [`FloatsParams`]) and the parameters of the actions in
/// order. `buffer` must be [`KernelText::sample_bytes`] long.
pub fn write_sample(
    buffer: &mut [u8],
    out_address: u64,
    size: Size,
    leaf: &[u8],
    params: impl IntoIterator<Item = ParamBytes>,
) {
    let mut rest = buffer;
    let mut write = |bytes: &[u8]| {
        let (part, after) = std::mem::take(&mut rest).split_at_mut(bytes.len());
        part.copy_from_slice(bytes);
        rest = after;
    };
    write(&out_address.to_ne_bytes());
    write(&size.width.to_ne_bytes());
    write(&size.height.to_ne_bytes());
    write(leaf);
    params.into_iter().for_each(|params| write(params.as_bytes()));
    assert!(
        rest.is_empty(),
        "{} bytes of the buffer for the sample's parameters were not written",
        rest.len()
    );
}

/// Size in bytes of the address and the size of the tensor, which precede the parameters of the
/// leaf.
const SAMPLE_HEAD: usize = size_of::<u64>() + 2 * size_of::<i32>();

/// Condition under which the tiled kernel is compiled: compute capability 7.5 or newer. Older
/// devices launch `fused` (`gpu::Kernel::load`). Compilers for the host do not define
/// `__CUDA_ARCH__`.
const TILES_SINCE: &str = "#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 750\n";

/// Source text of a kernel while it is composed.
#[derive(Default)]
pub(super) struct Text {
    pub source: String,
    /// Position of each file in `source`.
    files: Vec<Range<usize>>,
}

impl Text {
    /// Appends a file with a `#line` directive for its name.
    pub fn add(&mut self, file: &str, text: &str) {
        let text = text.trim_end();
        // Writing into a String cannot fail.
        let _ = writeln!(self.source, "#line 1 \"{file}.cu\"\n{text}");
        let end = self.source.len() - 1;
        self.files.push(end - text.len()..end);
    }

    /// Appends a file, unless a file with the same text was appended before.
    pub fn add_once(&mut self, file: &str, text: &str) {
        if self.files.iter().all(|it| self.source[it.clone()] != *text.trim_end()) {
            self.add(file, text);
        }
    }
}

/// Whether an operator resamples, and all operators after the last operator that resamples have the
/// role [`Tiling::Follows`].
fn is_tiled(wrappers: &[Cuda]) -> bool {
    let last = wrappers.iter().rposition(|cuda| cuda.tiling == Tiling::Resamples);
    last.is_some_and(|last| wrappers[last + 1..].iter().all(|cuda| cuda.tiling == Tiling::Follows))
}

pub(crate) const fn out_type(dtype: DType) -> &'static str {
    match dtype {
        DType::U8 => "U8",
        DType::F16 => "F16",
        DType::BF16 => "BF16",
        DType::F32 => "F32",
    }
}

pub(crate) const fn order_type(shape: TensorShape) -> &'static str {
    match shape.layout {
        _ if shape.channels == 1 => "Gray",
        Layout::Nchw => "Nchw",
        Layout::Nhwc => "Nhwc",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(channels: usize, layout: Layout) -> TensorShape {
        TensorShape { batch: 1, width: 1, height: 1, channels, dtype: DType::F16, layout }
    }

    #[test]
    fn types_nest_in_order_and_each_text_occurs_once() {
        let kinds = [Kind::Resample, Kind::Crop, Kind::Flip, Kind::Crop, Kind::FloatTable];
        let text = kernel_text(Leaf::Roi, &kinds, shape(3, Layout::Nhwc));
        let gray = kernel_text(Leaf::Roi, &kinds, shape(1, Layout::Nhwc));
        assert_eq!(gray.name, "FloatTable<Crop<Flip<Crop<Resample<Roi>>>>> f16 gray");
        assert_eq!(text.name, "FloatTable<Crop<Flip<Crop<Resample<Roi>>>>> f16 nhwc");
        assert_eq!(text.source.matches("struct CropParams").count(), 1);
        assert_eq!(text.source.matches("#line 1 \"crop.cu\"").count(), 1);
    }

    #[test]
    fn the_tiled_kernel_needs_a_resampling_and_only_followers_after_it() {
        use Kind::{Crop, Flip, FloatTable, Resample};
        let entry = |kinds: &[Kind]| kernel_text(Leaf::Roi, kinds, shape(3, Layout::Nchw)).entry();
        assert_eq!(entry(&[Crop, Resample, Flip, Crop, FloatTable]), "tiled");
        assert_eq!(entry(&[Resample, Resample]), "tiled");
        assert_eq!(entry(&[Crop, Flip, FloatTable]), "fused");
        assert_eq!(entry(&[]), "fused");
    }

    #[test]
    fn a_sample_is_the_address_the_leaf_and_the_parameters_in_chain_order() {
        let mut buffer = [0; 16 + 24 + 8 + 8];
        let leaf = FloatsParams::new(2, 3, Roi::new(4, 5, 6, 7));
        let params = [ParamBytes::new(&8u64), ParamBytes::new(&9u64)];
        write_sample(&mut buffer, 1, Size::new(2, 3), bytemuck::bytes_of(&leaf), params);
        assert_eq!((buffer[0], buffer[8], buffer[12]), (1, 2, 3));
        assert_eq!(buffer[16..40], *bytemuck::bytes_of(&leaf));
        assert_eq!((buffer[40], buffer[48]), (8, 9));
    }
}
