//! Places where the kernels of a comparison run.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::footprint::{Footprint, Memory};
use crate::geometry::Size;
use crate::gpu::host_kernel::{CompileError, Guarded, HostCompiler, Tiles};
use crate::gpu::{
    self, BLOCK, Device, DeviceBuffer, DevicePool, Kernel, PinnedPool, Shape, Staged, Stream,
};
use crate::op::kernel_text::KernelText;

use super::error::{Form, ParityError};

/// Where kernels are compared.
#[derive(Clone, Copy, Default)]
pub enum Kernels<'a> {
    /// Nowhere.
    #[default]
    None,
    /// On the host, compiled by its C++ compiler.
    Host(&'a HostCompiler),
    /// On a GPU.
    Device(&'a Arc<Device>),
}

/// Memory of one launch, and the launch.
pub(super) trait Executor {
    /// Copies bytes to where the kernel can read them until this value is dropped, and returns their address.
    fn put(&mut self, bytes: &[u8]) -> Result<u64>;

    /// Launches the kernel for two samples that differ only in their destination, and returns their tensors of `bytes`
    /// bytes. `describe` gives the parameters of a sample with a tensor at an address. Without tiles there is one thread
    /// per pixel.
    fn launch(
        &mut self,
        text: &KernelText,
        describe: &dyn Fn(u64) -> Vec<u8>,
        bytes: usize,
        size: Size,
        tiles: Option<Tiles>,
    ) -> Result<[Vec<u8>; 2], ParityError>;

    /// Form that is compared.
    fn form(&self, tiled: bool) -> Form;
}

impl Kernels<'_> {
    /// Empty memory; `None` if kernels are not compared.
    pub(super) fn executor(&self) -> Result<Option<Box<dyn Executor + '_>>> {
        Ok(match self {
            Kernels::None => None,
            Kernels::Host(compiler) => Some(Box::new(OnHost { compiler, buffers: Vec::new() })),
            Kernels::Device(device) => {
                let stream = Stream::new(device)?;
                Some(Box::new(OnDevice { device, stream, buffers: Vec::new() }))
            }
        })
    }
}

struct OnHost<'a> {
    compiler: &'a HostCompiler,
    buffers: Vec<Guarded>,
}

impl Executor for OnHost<'_> {
    /// The bytes end at a page boundary, and reading beyond it crashes.
    fn put(&mut self, bytes: &[u8]) -> Result<u64> {
        let mut buffer = Guarded::new(bytes.len());
        buffer.bytes_mut().copy_from_slice(bytes);
        let address = buffer.as_ptr() as u64;
        self.buffers.push(buffer);
        Ok(address)
    }

    fn launch(
        &mut self,
        text: &KernelText,
        describe: &dyn Fn(u64) -> Vec<u8>,
        bytes: usize,
        size: Size,
        tiles: Option<Tiles>,
    ) -> Result<[Vec<u8>; 2], ParityError> {
        let kernel =
            self.compiler.compile(&text.name, &text.source).map_err(|error| match error {
                CompileError::Refused(log) => ParityError::Compile { log },
                CompileError::Unusable(problem) => Error::Internal { problem }.into(),
            })?;
        let mut tensors = vec![0xaaaa_aaaa_u32; 2 * bytes.div_ceil(4)];
        let half = tensors.len() / 2;
        let samples = [0, 1].map(|at| describe(tensors[at * half..].as_mut_ptr() as u64)).concat();
        let mut aligned = vec![0u64; samples.len().div_ceil(8)];
        let aligned = &mut bytemuck::cast_slice_mut::<_, u8>(&mut aligned)[..samples.len()];
        aligned.copy_from_slice(&samples);
        match tiles {
            None => kernel.launch(aligned, 2, size, BLOCK),
            Some(tiles) => kernel.launch_tiled(aligned, 2, size, tiles),
        }
        let tensors = bytemuck::cast_slice::<_, u8>(&tensors);
        Ok([0, 1].map(|sample| tensors[4 * sample * half..][..bytes].to_vec()))
    }

    fn form(&self, tiled: bool) -> Form {
        if tiled { Form::HostTiles } else { Form::HostKernel }
    }
}

struct OnDevice<'a> {
    device: &'a Arc<Device>,
    stream: Stream,
    buffers: Vec<DeviceBuffer>,
}

impl OnDevice<'_> {
    /// An allocation of its own, so that an access beyond it can be seen.
    fn allocate(&self, bytes: usize) -> Result<DeviceBuffer> {
        DevicePool::take(self.device, &one(Memory::Device, bytes))?.buffer(ROW, bytes)
    }

    fn upload(&self, bytes: &[u8]) -> Result<DeviceBuffer> {
        let host = PinnedPool::take(self.device, &one(Memory::Pinned, bytes.len()))?;
        let mut staged = Staged::new(host.buffer(ROW, bytes.len())?, self.allocate(bytes.len())?)?;
        staged.bytes()?.copy_from_slice(bytes);
        staged.upload(&self.stream, 0..bytes.len())?;
        staged.into_device()
    }
}

impl Executor for OnDevice<'_> {
    fn put(&mut self, bytes: &[u8]) -> Result<u64> {
        let buffer = self.upload(bytes)?;
        let address = buffer.address();
        self.buffers.push(buffer);
        Ok(address)
    }

    fn launch(
        &mut self,
        text: &KernelText,
        describe: &dyn Fn(u64) -> Vec<u8>,
        bytes: usize,
        size: Size,
        tiles: Option<Tiles>,
    ) -> Result<[Vec<u8>; 2], ParityError> {
        let entry = if tiles.is_some() { gpu::kernel::TILED } else { gpu::kernel::FUSED };
        let kernel = Kernel::load(self.device, &text.source, entry, text.sample_bytes)?;
        let half = bytes.next_multiple_of(4);
        let tensors = self.allocate(2 * half)?;
        let samples = [0, 1].map(|at| describe(tensors.address() + (at * half) as u64)).concat();
        let samples = self.upload(&samples)?;
        let shape = match tiles {
            None => Shape::pixels(2, size.width, size.height),
            Some(Tiles { columns, rows, threads, shared_bytes }) => {
                Shape { grid: (columns, rows, 2), block: (threads, 1), shared_bytes }
            }
        };
        kernel.launch_shape(&self.stream, &samples, 0, 2, size, shape)?;
        let mut out = [vec![0; bytes], vec![0; bytes]];
        for (at, tensor) in out.iter_mut().enumerate() {
            gpu::read_back(&self.stream, &tensors, at * half, tensor)?;
        }
        Ok(out)
    }

    fn form(&self, _tiled: bool) -> Form {
        Form::Device
    }
}

/// Name of the only row of a pool.
const ROW: &str = "comparison";

fn one(memory: Memory, bytes: usize) -> Footprint {
    let mut footprint = Footprint::default();
    footprint.add(memory, ROW, bytes as u64, 1, "");
    footprint
}
