//! Launches kernels directly, with one thread per pixel and one sample at a time.
//!
//! If a chain has a tiled kernel, a loader launches only that one. So the kernel with one thread
//! per pixel is tested only here.

use std::sync::Arc;

use feedwater::Result;
use feedwater::error::{DataError, Error};
use feedwater::footprint::{Footprint, Memory as Sort};
use feedwater::gpu::{Device, Stream};
use feedwater::internals::decode::Decoders;
use feedwater::internals::geometry::{Orientation, Size};
use feedwater::internals::gpu::{
    DeviceBuffer, DevicePool, LaunchGoal, PinnedPool, Upload, read_back,
};
use feedwater::internals::header::Header;
use feedwater::internals::image::HostImage;
use feedwater::internals::op::device_chain::Block;
use feedwater::internals::op::kernel_text::{FloatsParams, RoiParams};
use feedwater::internals::op::program::{Addresses, Extent};
use feedwater::internals::plan::{DevicePlan, SamplePlan};
use feedwater::internals::random::SampleKey;
use feedwater::internals::transform::{ChainKernels, HostTransform, PlannedImage};
use feedwater::plan::Plan;

use super::message;

/// Returns the tensors of all samples of epoch 0, in the order of the samples. The plan must decode
/// on the CPU.
pub fn tensors(
    device: &Arc<Device>,
    plan: &Plan,
    samples: &[(Vec<u8>, i64)],
    seed: u64,
) -> Result<Vec<u8>, String> {
    let Some(on_device) = &plan.device else { return Err("there is no kernel".into()) };
    let hand = Hand::new(device, plan, on_device).map_err(message)?;
    let keys = (0..).map(|index| SampleKey { seed, epoch: 0, index });
    let tensors = samples.iter().zip(keys).map(|((file, _), key)| hand.tensor(key, file));
    Ok(tensors.collect::<Result<Vec<_>>>().map_err(message)?.concat())
}

/// Kernels, memory and stream for the launches.
struct Hand<'a> {
    plan: &'a Plan,
    on_device: &'a DevicePlan,
    kernels: ChainKernels,
    memory: DevicePool,
    pinned: PinnedPool,
    stream: Stream,
}

/// Size in bytes of the buffers for a sample's pixels. `PARAMETERS` is the size for its parameters
/// and tables.
const PIXELS: usize = 12 * 160 * 128;
const PARAMETERS: usize = 64 << 10;

impl<'a> Hand<'a> {
    fn new(device: &Arc<Device>, plan: &'a Plan, on_device: &'a DevicePlan) -> Result<Self> {
        let mut rows = Footprint::default();
        for memory in [Sort::Device, Sort::Pinned] {
            rows.add(memory, "pixels", PIXELS as u64, 1, "");
            rows.add(memory, "parameters", PARAMETERS as u64, 1, "");
        }
        rows.add(Sort::Device, "tensor", plan.shape.sample_bytes() as u64, 1, "");
        rows.add(Sort::Device, "scratch", on_device.scratch_bytes.max(1) as u64, 2, "");
        Ok(Self {
            plan,
            on_device,
            kernels: ChainKernels::without_tiles(device, &on_device.planned().chain)?,
            memory: DevicePool::take(device, &rows)?,
            pinned: PinnedPool::take(device, &rows)?,
            stream: Stream::new(device)?,
        })
    }

    fn tensor(&self, key: SampleKey, file: &[u8]) -> Result<Vec<u8>> {
        let plan = self.plan;
        let mut sample = SamplePlan::default();
        let header = Header::parse(file).map_err(broken)?;
        plan.sample(key, &header, &mut sample).map_err(broken)?;
        let image = PlannedImage { plan, sample: &sample, header: &header, bytes: file };
        let mut transform = HostTransform::new(plan);
        let mut decoder = Decoders::new();
        transform.run_prefix(image, &mut decoder, plan.cpu_steps()).map_err(broken)?;

        let pixels = self.memory.buffer("pixels", PIXELS)?;
        let leaf = leaf(transform.image(), pixels.address());
        self.upload("pixels", &on_device(transform.image()), &pixels)?;
        let tensor = self.memory.buffer("tensor", plan.shape.sample_bytes())?;
        let block = self.memory.buffer("parameters", PARAMETERS)?;
        let scratch = self.memory.buffer("scratch", 2 * self.on_device.scratch_bytes.max(1))?;
        let (described, programs, extent) =
            self.describe(&sample, &leaf, [&tensor, &scratch, &block]);
        self.upload("parameters", &described, &block)?;
        let block = (&block, [0, programs]);
        self.kernels.launch(LaunchGoal::Latency, &self.stream, block, 1, &extent)?;
        let mut made = vec![0; tensor.len()];
        read_back(&self.stream, &tensor, 0, &mut made)?;
        Ok(made)
    }

    /// Returns the parameter block (parameters, passes, tables), the offset of the program kernel's
    /// parameters in this block, and how many pixels the launches compute.
    fn describe(
        &self,
        sample: &SamplePlan,
        leaf: &[u8],
        [tensor, scratch, block]: [&DeviceBuffer; 3],
    ) -> (Vec<u8>, usize, Extent) {
        let split = self.on_device.planned();
        let chain = &split.chain;
        let programs = chain.fused_bytes().next_multiple_of(8);
        let passes = programs + chain.program_bytes();
        let tables = passes + chain.passes_bytes();
        let at = Addresses {
            out: tensor.address(),
            scratch: [0, self.on_device.scratch_bytes as u64].map(|it| scratch.address() + it),
            tables: block.address() + tables as u64,
            passes: block.address() + passes as u64,
        };
        let mut described = vec![0; tables];
        let (fused, rest) = described.split_at_mut(programs);
        let (program, passes) = rest.split_at_mut(chain.program_bytes());
        let fused = &mut fused[..chain.fused_bytes()];
        let (parts, mut extent) = (Block { fused, program, passes }, Extent::default());
        chain.write(&split.sample(sample, leaf), &at, parts, &mut extent);
        described.extend_from_slice(bytemuck::cast_slice(&sample.actions.table));
        (described, programs, extent)
    }

    fn upload(&self, row: &str, bytes: &[u8], target: &DeviceBuffer) -> Result<()> {
        let mut upload = Upload::new(self.pinned.buffer(row, bytes.len())?)?;
        upload.bytes()?.copy_from_slice(bytes);
        upload.copy(&self.stream, 0..bytes.len(), target, 0)
    }
}

/// Returns the kernel parameters that describe an image. The values of the image begin at `address`
/// in device memory.
pub fn leaf(image: &HostImage, address: u64) -> Vec<u8> {
    let window = image.window();
    match image {
        HostImage::U8(_) => {
            let whole = Size::new(window.right(), window.bottom());
            let upright = Orientation::UPRIGHT;
            let leaf = RoiParams::new(address, window.pitch_bytes(), window, whole, upright);
            bytemuck::bytes_of(&leaf).to_vec()
        }
        HostImage::F32(_) => {
            bytemuck::bytes_of(&FloatsParams::new(address, 3 * window.width, window)).to_vec()
        }
    }
}

/// Returns the bytes of an image as they are laid out on the device.
pub fn on_device(image: &HostImage) -> Vec<u8> {
    let mut bytes = vec![0; image.bytes_on_device()];
    image.write_for_device(&mut bytes);
    bytes
}

/// Returns all values of an image as bytes.
pub fn values(image: &HostImage) -> &[u8] {
    match image {
        HostImage::U8(image) => image.data(),
        HostImage::F32(image) => bytemuck::cast_slice(image.data()),
    }
}

/// Converts a decode error to an internal error. The test images are valid, so a decode error would
/// be a bug.
fn broken(error: DataError) -> Error {
    Error::Internal { problem: error.to_string() }
}
