//! Prepares samples on a device for benchmarks of kernels: the pixels of their windows, the
//! parameters of the kernels, and memory for the outputs.
#![allow(dead_code, reason = "each bench uses a part")]

use std::sync::Arc;

use feedwater::footprint::{Footprint, Memory};
use feedwater::gpu::{Device, Stream};
use feedwater::internals::geometry::{Orientation, Roi, Size};
use feedwater::internals::gpu::LaunchGoal;
use feedwater::internals::gpu::{DeviceBuffer, DevicePool, PinnedPool, Staged, Upload};
use feedwater::internals::image::{HostImage, Image, Planes};
use feedwater::internals::op::Actions;
use feedwater::internals::op::device_chain::{Block, DeviceChain, Sample};
use feedwater::internals::op::kernel_text::{Leaf, RoiParams};
use feedwater::internals::op::program::{Addresses, Extent};
use feedwater::internals::random::SampleKey;
use feedwater::internals::tensor::{DType, Layout, TensorShape};
use feedwater::internals::transform::ChainKernels;
use feedwater::op::Operator;
use feedwater::op::custom::Trace;

/// Samples of one chain that are ready for a launch of the chain's kernels. The samples differ only
/// in their random choices.
pub struct DeviceSamples {
    pub stream: Stream,
    pub count: usize,
    /// Number of bytes that a launch of all samples reads and writes. Every byte is counted once.
    pub bytes: usize,
    /// CUDA sources of the kernels.
    pub sources: Vec<String>,
    chain: DeviceChain,
    kernels: ChainKernels,
    samples: Staged,
    /// Offset in bytes of the program kernel's parameters in the buffer `samples`. `each` holds the
    /// size of one sample's parameters, for the fused kernel and for the program kernel.
    programs: usize,
    each: [usize; 2],
    /// Sizes of the launches, large enough for every sample.
    extent: Extent,
    _buffers: [DeviceBuffer; 3],
}

/// Returns an image with pseudo-random bytes.
pub fn image(size: Size) -> Image<u8> {
    let data =
        (0..3 * size.pixels()).map(|at| (at.wrapping_mul(0x9e37_79b9) >> 13) as u8).collect();
    Image::from_data(size.window(), data)
}

/// Returns the planes that a decoder makes for a window of an image of this size.
fn planes(window: Roi, size: Size, ratio: [usize; 2]) -> Planes {
    let axis = |first: u32, end: u32, image: u32, ratio: usize| {
        let unit = 8 * ratio as u32;
        let first = first.saturating_sub(1) / unit * unit;
        let end = (end + 1).min(image).next_multiple_of(unit);
        (first, end - first)
    };
    let (x, width) = axis(window.x, window.right(), size.width, ratio[0]);
    let (y, height) = axis(window.y, window.bottom(), size.height, ratio[1]);
    let wide = [width as usize, width as usize / ratio[0]];
    let high = [height as usize, height as usize / ratio[1]];
    let pitches = wide.map(|wide| wide.next_multiple_of(16));
    let [luma, chroma] = [0, 1].map(|plane| pitches[plane] * high[plane]);
    Planes {
        part: Roi::new(x, y, width, height),
        pitches,
        chroma: [luma, luma + chroma],
        ratio,
        is_gray: false,
        chroma_size: [
            (size.width as usize).div_ceil(ratio[0]),
            (size.height as usize).div_ceil(ratio[1]),
        ],
        bytes: luma + 2 * chroma,
    }
}

/// A sample whose actions are drawn, but whose kernel parameters are not yet written.
struct Drawn {
    actions: Actions,
    window: Roi,
    /// Byte offsets of the sample's data in the four buffers: its pixels, the passes and tables of
    /// the program kernel, its tensor, and its scratch images.
    at: [usize; 4],
    scratch_bytes: usize,
}

impl Drawn {
    fn sample<'a>(&'a self, size: Size, leaf: &'a [u8]) -> Sample<'a> {
        Sample { actions: &self.actions, first: 0, input: (self.window, size), leaf }
    }
}

impl DeviceSamples {
    /// Prepares `count` samples of upright images of one size, and compiles the kernels of the
    /// chain. With `ratio`, the images are planes of samples. `ratio` is the number of luma samples
    /// per chroma sample, horizontally and vertically.
    pub fn new(
        device: &Arc<Device>,
        chain: &[Arc<dyn Operator>],
        (dtype, layout): (DType, Layout),
        (size, ratio): (Size, Option<[usize; 2]>),
        count: usize,
    ) -> feedwater::Result<Self> {
        const ALIGN: usize = 256;
        let kinds: Vec<_> = chain.iter().map(|op| op.kinds()).collect();
        let shape = |Size { width, height }| TensorShape {
            batch: 1,
            width,
            height,
            dtype,
            layout,
            channels: 3,
        };
        let texts =
            DeviceChain::new(Leaf::Roi, &kinds.iter().collect::<Vec<_>>(), shape(Size::default()));
        let programs = (count * texts.fused_bytes()).next_multiple_of(ALIGN);
        // Number of bytes that the samples so far use in each of four buffers: pixels, parameters,
        // tensors and scratch images.
        let mut ends = [0, programs + count * texts.program_bytes(), 0, 0];
        let (mut drawn, mut read, mut written) = (Vec::new(), 0, 0);
        for index in 0..count {
            let key = SampleKey { seed: 1, epoch: 0, index: index as u64 };
            let mut actions = Actions::default();
            let operators = chain.iter().map(|op| &**op);
            let output = actions.draw(operators, key, size, &mut Trace::new(size));
            let window = actions.demand(output.window());
            let mut one = Drawn { actions, window, at: [0; 4], scratch_bytes: 0 };
            one.scratch_bytes = texts.scratch_bytes(&one.sample(size, &[])) as usize;
            let lens = [
                ratio.map_or(window.pitched_bytes(), |ratio| planes(window, size, ratio).bytes),
                texts.passes_bytes() + size_of_val(&one.actions.table[..]),
                shape(output).bytes(),
                2 * one.scratch_bytes.next_multiple_of(ALIGN),
            ];
            for (place, len) in lens.into_iter().enumerate() {
                one.at[place] = ends[place].next_multiple_of(ALIGN);
                ends[place] = one.at[place] + len;
            }
            read += 3 * window.size().pixels() as usize;
            written += shape(output).bytes();
            drawn.push(one);
        }
        let [pixel_bytes, sample_bytes, out_bytes, scratch_bytes] = ends.map(|end| end.max(ALIGN));
        let rows = [
            ("image", size.window().pitched_bytes().max(4 * size.pixels() as usize + 4096)),
            ("samples", sample_bytes),
            ("pixels", pixel_bytes),
            ("out", out_bytes),
            ("scratch", scratch_bytes),
        ];
        let (mut footprint, mut pinned) = (Footprint::default(), Footprint::default());
        for (name, bytes) in rows {
            footprint.add(Memory::Device, name, bytes as u64, 1, "");
        }
        for (name, bytes) in &rows[..2] {
            pinned.add(Memory::Pinned, *name, *bytes as u64, 1, "");
        }
        let (on_device, pinned) =
            (DevicePool::take(device, &footprint)?, PinnedPool::take(device, &pinned)?);
        let buffer = |row: usize| on_device.buffer(rows[row].0, rows[row].1);
        let (pixels, out, scratch) = (buffer(2)?, buffer(3)?, buffer(4)?);
        let mut samples = Staged::new(pinned.buffer(rows[1].0, rows[1].1)?, buffer(1)?)?;

        let stream = Stream::new(device)?;
        let mut upload = Upload::new(pinned.buffer(rows[0].0, rows[0].1)?)?;
        let start = samples.device().address();
        let block = samples.bytes()?;
        let each = [texts.fused_bytes(), texts.program_bytes()];
        let mut extent = Extent::default();
        for (place, one) in drawn.iter().enumerate() {
            let (window, [pixels_at, passes_at, out_at, scratch_at]) = (one.window, one.at);
            let address = pixels.address() + pixels_at as u64;
            let upright = Orientation::UPRIGHT;
            let leaf = match ratio {
                None => {
                    let decoded = Image::from_data(window, image(window.size()).data().to_vec());
                    HostImage::U8(decoded).write_for_device(upload.bytes()?);
                    upload.copy(&stream, 0..window.pitched_bytes(), &pixels, pixels_at)?;
                    RoiParams::new(address, window.pitch_bytes(), window, size, upright)
                }
                Some(ratio) => {
                    let planes = planes(window, size, ratio);
                    let samples = image(Size::new(planes.bytes as u32, 1));
                    upload.bytes()?[..planes.bytes]
                        .copy_from_slice(&samples.data()[..planes.bytes]);
                    upload.copy(&stream, 0..planes.bytes, &pixels, pixels_at)?;
                    RoiParams::planes(planes.addresses(address), &planes, size, upright)
                }
            };
            let tables_at = passes_at + texts.passes_bytes();
            let images = [0, one.scratch_bytes.next_multiple_of(ALIGN)];
            let at = Addresses {
                out: out.address() + out_at as u64,
                scratch: images.map(|image| scratch.address() + (scratch_at + image) as u64),
                tables: start + tables_at as u64,
                passes: start + passes_at as u64,
            };
            let table = bytemuck::cast_slice(&one.actions.table);
            block[tables_at..][..table.len()].copy_from_slice(table);
            let (fused, rest) = block.split_at_mut(programs);
            let (program, passes) = rest.split_at_mut(passes_at - programs);
            let parts = Block {
                fused: &mut fused[place * each[0]..][..each[0]],
                program: &mut program[place * each[1]..][..each[1]],
                passes: &mut passes[..texts.passes_bytes()],
            };
            let sample = one.sample(size, bytemuck::bytes_of(&leaf));
            texts.write(&sample, &at, parts, &mut extent);
        }
        samples.upload(&stream, 0..rows[1].1)?;
        stream.synchronize()?;
        let kernels = ChainKernels::load(device, &texts)?;
        let sources = texts.sources().map(String::from).collect();
        let (bytes, _buffers) = (read + written, [pixels, out, scratch]);
        Ok(Self {
            stream,
            count,
            bytes,
            sources,
            chain: texts,
            kernels,
            samples,
            programs,
            each,
            extent,
            _buffers,
        })
    }

    /// Enqueues a launch for `count` samples, starting with sample `first`.
    pub fn launch(&self, goal: LaunchGoal, first: usize, count: usize) -> feedwater::Result<()> {
        self.launch_of(&self.kernels, goal, first, count)
    }

    /// Loads the fused kernel and the program kernel of the chain one by one, if the chain has
    /// them. Returns each with its name, in the order of their launches.
    pub fn parts(
        &self,
        device: &Arc<Device>,
    ) -> feedwater::Result<Vec<(&'static str, ChainKernels)>> {
        let (mut fused, mut program) = (self.chain.clone(), self.chain.clone());
        (fused.program, program.fused) = (None, None);
        let parts = [("fused", fused), ("program", program)];
        let parts = parts.into_iter().filter(|(_, it)| it.fused.is_some() || it.program.is_some());
        parts.map(|(name, chain)| Ok((name, ChainKernels::load(device, &chain)?))).collect()
    }

    /// Enqueues a launch of one kernel, which [`parts`](Self::parts) returned, for all samples.
    pub fn launch_part(&self, part: &ChainKernels, goal: LaunchGoal) -> feedwater::Result<()> {
        self.launch_of(part, goal, 0, self.count)
    }

    fn launch_of(
        &self,
        kernels: &ChainKernels,
        goal: LaunchGoal,
        first: usize,
        count: usize,
    ) -> feedwater::Result<()> {
        let at = [first * self.each[0], self.programs + first * self.each[1]];
        let block = (self.samples.device(), at);
        kernels.launch(goal, &self.stream, block, count as u32, &self.extent)
    }
}
