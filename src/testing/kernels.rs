//! Runs the kernels of a comparison on the host or on a GPU.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::footprint::{Footprint, Memory};
use crate::geometry::Size;
use crate::gpu::host_kernel::{CompileError, Guarded, HostCompiler, HostKernel, Tiles};
use crate::gpu::{
    self, BLOCK, Device, DeviceBuffer, DevicePool, Kernel, PROGRAM_THREADS, PinnedPool, Shape,
    Staged, Stream,
};
use crate::op::device_chain::DeviceChain;
use crate::op::kernel_text::KernelText;
use crate::op::program::{Extent, ProgramLaunch, ProgramText};

use super::error::{Implementation, ParityError};

/// Where the kernels of a comparison run.
#[derive(Clone, Copy, Default)]
pub enum Kernels<'a> {
    /// Kernels are not compared.
    #[default]
    None,
    /// Kernels run on the host, compiled by this C++ compiler.
    Host(&'a HostCompiler),
    /// Kernels run on the host, and only the program kernel is compared. One compiled program
    /// kernel can serve all chains, which saves compile time.
    HostPrograms(&'a HostCompiler),
    /// On a GPU.
    Device(&'a Arc<Device>),
}

/// Allocates memory for kernels and launches them, on the host or on a GPU.
pub(super) trait Executor {
    /// Copies bytes to memory that kernels can read, and returns the address. The memory is freed
    /// when this value is dropped.
    fn put(&mut self, bytes: &[u8]) -> Result<u64>;

    /// Allocates memory that kernels can write, and returns its address. The memory is freed when
    /// this value is dropped.
    fn room(&mut self, bytes: usize) -> Result<u64>;

    /// Launches the fused kernel for two samples. `samples` contains the parameters of both, and
    /// `size` is the size of each output.
    fn launch(&mut self, entry: &Entry<'_>, samples: &[u8], size: Size) -> Result<(), ParityError>;

    /// Launches the program kernel for two samples. `samples` contains the parameters of both.
    fn launch_program(
        &mut self,
        text: &ProgramText,
        samples: &[u8],
        extent: &Extent,
    ) -> Result<(), ParityError>;

    /// Reads memory that was allocated by [`room`](Self::room).
    fn read(&mut self, address: u64, bytes: usize) -> Result<Vec<u8>>;

    /// Implementation that a launch of `chain` tests.
    fn form(&self, chain: &DeviceChain, tiled: bool) -> Implementation;
}

/// Fused kernel, and how its launch divides the output among blocks of threads.
pub(super) struct Entry<'a> {
    name: &'a str,
    source: &'a str,
    sample_bytes: usize,
    blocks: Blocks,
}

#[derive(Clone, Copy)]
enum Blocks {
    Pixels,
    Tiles(Tiles),
}

impl<'a> Entry<'a> {
    /// Creates the launch of a fused kernel. Without tiles, each thread computes one pixel.
    pub fn fused(text: &'a KernelText, tiles: Option<Tiles>) -> Self {
        let KernelText { name, source, sample_bytes, .. } = text;
        let blocks = tiles.map_or(Blocks::Pixels, Blocks::Tiles);
        Self { name, source, sample_bytes: *sample_bytes, blocks }
    }
}

/// Number of samples per launch.
const SAMPLES: usize = 2;

impl Kernels<'_> {
    /// Creates an executor that has not allocated memory yet. Returns `None` if kernels are not
    /// compared.
    pub(super) fn executor(&self) -> Result<Option<Box<dyn Executor + '_>>> {
        Ok(match self {
            Kernels::None => None,
            Kernels::Host(compiler) | Kernels::HostPrograms(compiler) => {
                Some(Box::new(OnHost { compiler, buffers: Vec::new() }))
            }
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

impl OnHost<'_> {
    fn compile(&self, name: &str, source: &str) -> Result<Arc<HostKernel>, ParityError> {
        self.compiler.compile(name, source).map_err(|error| match error {
            CompileError::Refused(log) => ParityError::Compile { log },
            CompileError::Unusable(problem) => Error::Internal { problem }.into(),
        })
    }
}

/// Copies kernel parameters into 64-bit words, because they must begin at a multiple of 8 bytes.
fn words(bytes: &[u8]) -> Vec<u64> {
    let mut words = vec![0u64; bytes.len().div_ceil(8)];
    bytemuck::cast_slice_mut(&mut words)[..bytes.len()].copy_from_slice(bytes);
    words
}

impl Executor for OnHost<'_> {
    /// Places the bytes directly before a page boundary, so that reading beyond them crashes.
    fn put(&mut self, bytes: &[u8]) -> Result<u64> {
        let address = self.room(bytes.len())?;
        if let Some(buffer) = self.buffers.last_mut() {
            buffer.bytes_mut().copy_from_slice(bytes);
        }
        Ok(address)
    }

    /// Allocates memory that ends at a page boundary, so that writing beyond it crashes too.
    fn room(&mut self, bytes: usize) -> Result<u64> {
        let mut buffer = Guarded::new(bytes);
        buffer.bytes_mut().fill(0xaa);
        let address = buffer.as_ptr() as u64;
        self.buffers.push(buffer);
        Ok(address)
    }

    fn launch(&mut self, entry: &Entry<'_>, samples: &[u8], size: Size) -> Result<(), ParityError> {
        let kernel = self.compile(entry.name, entry.source)?;
        let words = words(samples);
        let samples = &bytemuck::cast_slice(&words)[..samples.len()];
        match entry.blocks {
            Blocks::Pixels => kernel.launch(samples, SAMPLES, size, BLOCK),
            Blocks::Tiles(tiles) => kernel.launch_tiled(samples, SAMPLES, size, tiles),
        }
        Ok(())
    }

    fn launch_program(
        &mut self,
        text: &ProgramText,
        samples: &[u8],
        extent: &Extent,
    ) -> Result<(), ParityError> {
        let kernel = self.compile(&text.name, &text.source)?;
        let words = words(samples);
        let samples = &bytemuck::cast_slice(&words)[..samples.len()];
        for ProgramLaunch { pass, stage, blocks } in extent.launches() {
            let numbers = [pass as i32, stage as i32];
            kernel.launch_program(samples, (SAMPLES, blocks), numbers, PROGRAM_THREADS);
        }
        Ok(())
    }

    fn read(&mut self, address: u64, bytes: usize) -> Result<Vec<u8>> {
        let mut rooms = self.buffers.iter_mut().filter(|it| it.as_ptr() as u64 == address);
        Ok(rooms.next().map_or(Vec::new(), |room| room.bytes_mut()[..bytes].to_vec()))
    }

    fn form(&self, chain: &DeviceChain, tiled: bool) -> Implementation {
        match &chain.program {
            Some(_) => Implementation::HostProgram,
            None if tiled => Implementation::HostTiles,
            None => Implementation::HostKernel,
        }
    }
}

struct OnDevice<'a> {
    device: &'a Arc<Device>,
    stream: Stream,
    buffers: Vec<DeviceBuffer>,
}

impl OnDevice<'_> {
    /// Makes a separate allocation, so that an access beyond it can be detected.
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
        if bytes.is_empty() {
            return Ok(0);
        }
        let buffer = self.upload(bytes)?;
        let address = buffer.address();
        self.buffers.push(buffer);
        Ok(address)
    }

    fn room(&mut self, bytes: usize) -> Result<u64> {
        if bytes == 0 {
            return Ok(0);
        }
        let buffer = self.allocate(bytes)?;
        let address = buffer.address();
        self.buffers.push(buffer);
        Ok(address)
    }

    fn launch(&mut self, entry: &Entry<'_>, samples: &[u8], size: Size) -> Result<(), ParityError> {
        let function = match entry.blocks {
            Blocks::Pixels => gpu::kernel::FUSED,
            Blocks::Tiles(_) => gpu::kernel::TILED,
        };
        let kernel = Kernel::load(self.device, entry.source, function, entry.sample_bytes)?;
        let count = SAMPLES as u32;
        let shape = match entry.blocks {
            Blocks::Pixels => Shape::pixels(count, size.width, size.height),
            Blocks::Tiles(Tiles { columns, rows, threads, shared_bytes }) => {
                Shape { grid: (columns, rows, count), block: (threads, 1), shared_bytes }
            }
        };
        let samples = self.upload(samples)?;
        kernel.launch_shape(&self.stream, &samples, 0, count, size, shape)?;
        self.buffers.push(samples);
        Ok(())
    }

    fn launch_program(
        &mut self,
        text: &ProgramText,
        samples: &[u8],
        extent: &Extent,
    ) -> Result<(), ParityError> {
        let name = gpu::kernel::PROGRAM;
        let kernel = Kernel::load(self.device, &text.source, name, text.sample_bytes())?;
        let samples = self.upload(samples)?;
        for ProgramLaunch { pass, stage, blocks } in extent.launches() {
            let (count, numbers) = (SAMPLES as u32, [pass as i32, stage as i32]);
            kernel.launch_program(&self.stream, &samples, 0, (count, blocks), numbers)?;
        }
        self.buffers.push(samples);
        Ok(())
    }

    fn read(&mut self, address: u64, bytes: usize) -> Result<Vec<u8>> {
        let mut out = vec![0; bytes];
        if let Some(room) = self.buffers.iter().find(|it| it.address() == address) {
            gpu::read_back(&self.stream, room, 0, &mut out)?;
        }
        Ok(out)
    }

    fn form(&self, _chain: &DeviceChain, _tiled: bool) -> Implementation {
        Implementation::Device
    }
}

/// Name of the only footprint entry of a pool.
const ROW: &str = "comparison";

fn one(memory: Memory, bytes: usize) -> Footprint {
    let mut footprint = Footprint::default();
    footprint.add(memory, ROW, bytes as u64, 1, "");
    footprint
}
