//! Samples of a chain on a device, ready to be launched: decoded windows, parameters, and room for the outputs.
#![allow(dead_code, reason = "each bench uses a part")]

use std::sync::Arc;

use feedwater::footprint::{Footprint, Memory};
use feedwater::geometry::{Orientation, Size};
use feedwater::gpu::kernel::LaunchGoal;
use feedwater::gpu::{
    Device, DeviceBuffer, DevicePool, Kernel, PinnedPool, Staged, Stream, Upload,
};
use feedwater::image::{HostImage, Image};
use feedwater::op::custom::Trace;
use feedwater::op::kernel_text::{Leaf, RoiParams, kernel_text, write_sample};
use feedwater::op::{Actions, Operator};
use feedwater::random::SampleKey;
use feedwater::tensor::{DType, Layout, TensorShape};

/// Samples that differ in their random choices only.
pub struct DeviceSamples {
    pub stream: Stream,
    pub count: usize,
    /// Bytes that a launch for all samples reads and writes, each once.
    pub bytes: usize,
    /// Text of the kernel.
    pub source: String,
    kernel: Kernel,
    samples: Staged,
    sample_bytes: usize,
    /// Size of the outputs.
    size: Size,
    _pixels: DeviceBuffer,
    _out: DeviceBuffer,
}

/// Image of varied bytes.
pub fn image(size: Size) -> Image<u8> {
    let data =
        (0..3 * size.pixels()).map(|at| (at.wrapping_mul(0x9e37_79b9) >> 13) as u8).collect();
    Image::from_data(size.window(), data)
}

impl DeviceSamples {
    /// Prepares `count` samples of upright images of one size, and compiles the kernel of the chain.
    pub fn new(
        device: &Arc<Device>,
        chain: &[Arc<dyn Operator>],
        (dtype, layout): (DType, Layout),
        size: Size,
        count: usize,
    ) -> feedwater::Result<Self> {
        const ALIGN: usize = 256;
        let kinds: Vec<_> = chain.iter().flat_map(|op| op.kinds().list().to_vec()).collect();
        let text = kernel_text(Leaf::Roi, &kinds, dtype, layout);
        let (mut plans, mut tables, mut pixel_bytes, mut read) = (Vec::new(), Vec::new(), 0, 0);
        let mut output = size;
        for index in 0..count {
            let key = SampleKey { seed: 1, epoch: 0, index: index as u64 };
            let mut actions = Actions::default();
            let operators = chain.iter().map(|op| &**op);
            output = actions.draw(operators, key, size, &mut Trace::new(size));
            let window = actions.demand(1, output.window());
            plans.push((actions, window, pixel_bytes, tables.len()));
            tables.extend_from_slice(&plans[index].0.table);
            read += 3 * window.size().pixels() as usize;
            pixel_bytes += window.pitched_bytes().next_multiple_of(ALIGN);
        }
        let Size { width, height } = output;
        let out_bytes = TensorShape { batch: 1, width, height, dtype, layout }.bytes();
        let described = (count * text.sample_bytes).next_multiple_of(8);
        let rows = [
            ("image", size.window().pitched_bytes()),
            ("samples", described + size_of_val(&tables[..])),
            ("pixels", pixel_bytes),
            ("out", count * out_bytes),
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
        let (pixels, out) = (buffer(2)?, buffer(3)?);
        let mut samples = Staged::new(pinned.buffer(rows[1].0, rows[1].1)?, buffer(1)?)?;

        let stream = Stream::new(device)?;
        let mut upload = Upload::new(pinned.buffer(rows[0].0, rows[0].1)?)?;
        let table_address = samples.device().address() + described as u64;
        let block = samples.bytes()?;
        block[described..].copy_from_slice(bytemuck::cast_slice(&tables));
        for (place, sample) in block[..described].chunks_exact_mut(text.sample_bytes).enumerate() {
            let (actions, window, offset, table) = &plans[place];
            let decoded = Image::from_data(*window, image(window.size()).data().to_vec());
            HostImage::U8(decoded).write_for_device(upload.bytes()?);
            upload.copy(&stream, 0..window.pitched_bytes(), &pixels, *offset)?;
            let (address, pitch) = (pixels.address() + *offset as u64, window.pitch_bytes());
            let leaf = RoiParams::new(address, pitch, *window, size, Orientation::UPRIGHT);
            let to = out.address() + (place * out_bytes) as u64;
            let params = actions.params(0, table_address + 4 * *table as u64);
            write_sample(sample, to, bytemuck::bytes_of(&leaf), params);
        }
        samples.upload(&stream, 0..rows[1].1)?;
        stream.synchronize()?;
        let kernel = Kernel::load(device, &text.source, text.entry(), text.sample_bytes)?;
        let (bytes, sample_bytes) = (read + count * out_bytes, text.sample_bytes);
        let source = text.source;
        let (_pixels, _out) = (pixels, out);
        Ok(Self {
            stream,
            count,
            bytes,
            source,
            kernel,
            samples,
            sample_bytes,
            size: output,
            _pixels,
            _out,
        })
    }

    /// Enqueues a launch for `count` samples from number `first` on.
    pub fn launch(&self, goal: LaunchGoal, first: usize, count: usize) -> feedwater::Result<()> {
        let (samples, offset) = (self.samples.device(), first * self.sample_bytes);
        self.kernel.launch_for(goal, &self.stream, samples, offset, count as u32, self.size)
    }
}
