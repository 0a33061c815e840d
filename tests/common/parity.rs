//! Parity check: for one image and one chain, the reference, the fast path and the kernel text compiled for the host must give
//! the same bits. Works for any operators, including custom ones.

#![allow(unsafe_code, dead_code)]

use std::sync::Arc;

use feedwater::geometry::{Orientation, Roi, Size};
use feedwater::image::{HostImage, Image, PixelType};
use feedwater::op::kernel_text::{FloatsParams, KernelText, Leaf, RoiParams};
use feedwater::op::kernel_text::{kernel_text, write_sample};
use feedwater::op::{AnyOperator, ParamBytes, Wanted};
use feedwater::output;
use feedwater::random::{SampleKey, SampleRng};
use feedwater::tensor::{DType, Layout, TensorShape};

use super::host_kernel::{HostKernel, Tiles};

/// Comparison of one image and one chain.
#[derive(Clone)]
pub struct Case<'a> {
    /// Operators of the chain, in order.
    pub operators: &'a [Arc<dyn AnyOperator>],
    /// Number of operators that run on the host before the kernel.
    pub on_host: usize,
    /// Stored image.
    pub stored: &'a Image<u8>,
    /// Orientation of the stored image.
    pub orientation: Orientation,
    /// Reduction by the decoder, after the operators saw the full size.
    pub reduction: u32,
    /// Element type of the tensor.
    pub dtype: DType,
    /// Memory order of the tensor.
    pub layout: Layout,
    /// Seed of the sample's random choices.
    pub key: SampleKey,
}

/// Launches of a kernel: one thread per pixel; tiles as on a device; and small tiles with too little shared memory for one strip
/// of columns, or for the widest rows.
const LAUNCHES: [Option<Tiles>; 4] = [
    None,
    Some(Tiles { columns: 2, rows: 1, threads: 224, shared_bytes: PITCHED }),
    Some(Tiles { columns: 2, rows: 3, threads: 96, shared_bytes: 20 << 10 }),
    Some(Tiles { columns: 1, rows: 6, threads: 64, shared_bytes: 10 << 10 }),
];

/// Shared memory, in bytes, of the launch whose pixels are stored as in a loader's pages: rows begin at multiples of 16 bytes.
const PITCHED: u32 = 56 << 10;

/// Part of one operator in a sample.
struct Step {
    params: ParamBytes,
    table: Vec<i32>,
    /// Output window.
    output: Roi,
    pixels: PixelType,
}

impl Case<'_> {
    /// Panics with the case if the three disagree, or if the chain does not accept bytes.
    pub fn check(&self) {
        let (first, mut steps) = self.plan();
        let upright = self.upright();
        let images = self.run(&steps, &upright, first);
        let last = images.last().expect("the first image exists");
        let expected = self.store(last);
        let size = last.window().size();

        let leaf = Leaf::of(images[self.on_host].pixels());
        let on_device: Vec<&dyn AnyOperator> =
            self.operators[self.on_host..].iter().map(|op| &**op).collect();
        let text = kernel_text(leaf, &on_device, self.dtype, self.layout);
        for (op, step) in self.operators.iter().zip(&mut steps) {
            op.set_table(&mut step.params, step.table.as_ptr() as u64);
        }
        let params: Vec<ParamBytes> =
            steps[self.on_host..].iter().map(|step| step.params).collect();
        let launches: &[Option<Tiles>] = if text.tiled { &LAUNCHES } else { &LAUNCHES[..1] };
        for launch in launches {
            let given = self.launch(&text, &images[self.on_host], &params, size, *launch);
            for (sample, given) in given.iter().enumerate() {
                if let Some(at) = given.iter().zip(&expected).position(|(a, b)| a != b) {
                    panic!(
                        "kernel and reference differ at byte {at} ({} and {}) of sample {sample}: {}, {launch:?}",
                        given[at],
                        expected[at],
                        self.describe()
                    );
                }
            }
        }
    }

    /// Plans the operators forwards and backwards, as the loader does; also returns the window to decode.
    fn plan(&self) -> (Roi, Vec<Step>) {
        let stored = self.stored.window().size();
        let decoded = self.orientation.upright_size(stored);
        let full = Size::new(decoded.width * self.reduction, decoded.height * self.reduction);
        let (mut size, mut pixels, mut sizes) = (full, PixelType::U8, vec![decoded]);
        let mut steps = Vec::new();
        for (place, op) in self.operators.iter().enumerate() {
            op.check().unwrap_or_else(|error| panic!("{error:?}: {}", self.describe()));
            pixels =
                op.pixels(pixels).unwrap_or_else(|error| panic!("{error}: {}", self.describe()));
            let (output, params) = op.prepare(size, &mut SampleRng::new(self.key, place as u16));
            if let Some(fixed) = op.fixed_output(Some(size)) {
                assert_eq!(output, fixed, "{}", self.describe());
            }
            (size, sizes) = (output, [sizes, vec![output]].concat());
            steps.push(Step { params, table: Vec::new(), output: output.window(), pixels });
        }
        let mut output = size.window();
        for (place, op) in self.operators.iter().enumerate().rev() {
            let reduction = if place == 0 { self.reduction } else { 1 };
            let step = &mut steps[place];
            step.output = output;
            // An operator's table begins where it appends, whatever precedes it.
            let wanted = Wanted { input: sizes[place], reduction, output };
            let mut table = vec![i32::MIN; 5];
            output = op.demand(&mut step.params, wanted, &mut table);
            step.table = table.split_off(5);
            assert!(!output.is_empty(), "{}", self.describe());
            assert!(sizes[place].window().contains(output), "{output}: {}", self.describe());
        }
        (output, steps)
    }

    fn upright(&self) -> Image<u8> {
        let size = self.stored.window().size();
        let mut upright = Image::new(self.orientation.upright_size(size).window());
        let window = upright.window();
        for y in 0..window.height {
            for x in 0..window.width {
                let (sx, sy) = self.orientation.stored_position(size, x, y);
                upright.set_pixel(x, y, self.stored.pixel(sx, sy));
            }
        }
        upright
    }

    /// Returns the image's window and the reference result of every operator. Also compares the fast path, on exactly that window
    /// and on a larger one.
    fn run(&self, steps: &[Step], upright: &Image<u8>, first: Roi) -> Vec<HostImage> {
        let mut images = vec![HostImage::U8(cut(upright, first))];
        for (place, (op, step)) in self.operators.iter().zip(steps).enumerate() {
            let src = &images[place];
            let mut out = HostImage::new(step.pixels, step.output);
            op.reference(&step.params, &step.table, src, &mut out);
            let mut fast = HostImage::new(step.pixels, step.output);
            op.apply(&step.params, &step.table, src, &mut fast);
            assert!(fast == out, "apply and reference of {op:?} differ: {}", self.describe());
            if place == 0 {
                let whole = HostImage::U8(upright.clone());
                op.apply(&step.params, &step.table, &whole, &mut fast);
                assert!(fast == out, "apply of {op:?} depends on the window: {}", self.describe());
            }
            images.push(out);
        }
        images
    }

    fn shape(&self, Size { width, height }: Size) -> TensorShape {
        TensorShape { batch: 1, width, height, dtype: self.dtype, layout: self.layout }
    }

    fn store(&self, image: &HostImage) -> Vec<u8> {
        let bytes = self.shape(image.window().size()).bytes();
        let mut out = vec![0u32; bytes.div_ceil(4)];
        let out = &mut bytemuck::cast_slice_mut::<_, u8>(&mut out)[..bytes];
        output::store(image, self.dtype, self.layout, out);
        out.to_vec()
    }

    /// Launches two samples that differ only in how they are stored.
    fn launch(
        &self,
        text: &KernelText,
        leaf: &HostImage,
        params: &[ParamBytes],
        size: Size,
        tiles: Option<Tiles>,
    ) -> [Vec<u8>; 2] {
        let bytes = self.shape(size).bytes();
        let mut tensors = vec![0xaaaa_aaaa_u32; 2 * bytes.div_ceil(4)];
        let half = tensors.len() / 2;
        let mut samples = vec![0u64; 2 * text.sample_bytes.div_ceil(8)];
        let samples = bytemuck::cast_slice_mut::<_, u8>(&mut samples);

        // Gap between rows in memory.
        const GAP: usize = 5;
        let pitched = tiles.is_some_and(|tiles| tiles.shared_bytes == PITCHED);
        let window = leaf.window();
        let pitch = 3 * window.width as usize + GAP;
        let (bytes_at, floats_at);
        let pitch_of = |window: Roi| match pitched {
            true => window.pitch_bytes(),
            false => 3 * window.width + GAP as u32,
        };
        let leaf = match leaf {
            HostImage::U8(_) if self.on_host == 0 => {
                let stored = self.stored.window().size();
                let window = self.orientation.stored_window(stored, window);
                bytes_at = in_rows(&cut(self.stored, window), pitch_of(window));
                let address = bytes_at.as_ptr() as u64;
                let pitch = pitch_of(window);
                let leaf = RoiParams::new(address, pitch, window, stored, self.orientation);
                bytemuck::bytes_of(&leaf).to_vec()
            }
            HostImage::U8(image) => {
                bytes_at = in_rows(image, pitch_of(window));
                let whole = Size::new(window.right(), window.bottom());
                let address = bytes_at.as_ptr() as u64;
                let upright = Orientation::UPRIGHT;
                let leaf = RoiParams::new(address, pitch_of(window), window, whole, upright);
                bytemuck::bytes_of(&leaf).to_vec()
            }
            HostImage::F32(image) => {
                floats_at = spread(image, GAP);
                let leaf = FloatsParams::new(floats_at.as_ptr() as u64, pitch as u32, window);
                bytemuck::bytes_of(&leaf).to_vec()
            }
        };
        for (sample, buffer) in samples.chunks_exact_mut(text.sample_bytes).enumerate() {
            let out = tensors[sample * half..].as_mut_ptr() as u64;
            write_sample(buffer, out, &leaf, params);
        }
        let kernel = HostKernel::new(text);
        match tiles {
            // SAFETY: the parameters were just written for this text; pixels, tables and tensors outlive the call.
            None => unsafe { kernel.launch(samples, 2, size) },
            // SAFETY: as above; the text has the tiled kernel if tiles are given.
            Some(tiles) => unsafe { kernel.launch_tiled(samples, 2, size, tiles) },
        }
        let tensors = bytemuck::cast_slice::<_, u8>(&tensors);
        [0, 1].map(|sample| tensors[4 * sample * half..][..bytes].to_vec())
    }

    fn describe(&self) -> String {
        format!(
            "{:?}, {} on the host, of {} {:?} reduced by {}, as {} {}, {:?}",
            self.operators,
            self.on_host,
            self.stored.window().size(),
            self.orientation,
            self.reduction,
            self.dtype,
            self.layout,
            self.key
        )
    }
}

fn cut(image: &Image<u8>, window: Roi) -> Image<u8> {
    let mut out = Image::new(window);
    for y in window.y..window.bottom() {
        for x in window.x..window.right() {
            out.set_pixel(x, y, image.pixel(x, y));
        }
    }
    out
}

/// Rows that begin `pitch` bytes apart. They end at a page boundary, and reading beyond it crashes.
fn in_rows(image: &Image<u8>, pitch: u32) -> Guarded {
    let window = image.window();
    let mut rows = Guarded::new(pitch as usize * window.height as usize);
    for (row, y) in rows.bytes_mut().chunks_exact_mut(pitch as usize).zip(window.y..) {
        row[..image.row(y).len()].copy_from_slice(image.row(y));
    }
    rows
}

/// Bytes before an unreadable page. If their number is a multiple of 16, so is their address.
struct Guarded {
    mapping: *mut u8,
    mapped: usize,
    len: usize,
}

impl Guarded {
    fn new(len: usize) -> Self {
        const PAGE: usize = 4096;
        let mapped = len.next_multiple_of(PAGE) + PAGE;
        let (access, kind) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping without other users.
        let mapping = unsafe { libc::mmap(std::ptr::null_mut(), mapped, access, kind, -1, 0) };
        assert_ne!(mapping, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
        let mapping = mapping.cast::<u8>();
        // SAFETY: the last page of the mapping.
        let guarded =
            unsafe { libc::mprotect(mapping.add(mapped - PAGE).cast(), PAGE, libc::PROT_NONE) };
        assert_eq!(guarded, 0, "{}", std::io::Error::last_os_error());
        Self { mapping, mapped: mapped - PAGE, len }
    }

    fn as_ptr(&self) -> *const u8 {
        // SAFETY: within the mapping, whose readable part is at least this long.
        unsafe { self.mapping.add(self.mapped - self.len) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the end of the readable part; this value owns the mapping.
        unsafe { std::slice::from_raw_parts_mut(self.as_ptr().cast_mut(), self.len) }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, with one more page, and unmapped once.
        unsafe { libc::munmap(self.mapping.cast(), self.mapped + 4096) };
    }
}

fn spread<T: Copy + Default>(image: &Image<T>, gap: usize) -> Vec<T> {
    let window = image.window();
    let gap = vec![T::default(); gap];
    (window.y..window.bottom()).flat_map(|y| [image.row(y), &gap].concat()).collect()
}
