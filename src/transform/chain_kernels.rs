//! GPU kernels of a chain, and their launches.

use std::sync::Arc;

use crate::error::Result;
use crate::gpu::kernel::{FUSED, PROGRAM};
use crate::gpu::{Device, DeviceBuffer, Kernel, LaunchGoal, Stream};
use crate::op::device_chain::DeviceChain;
use crate::op::kernel_text::KernelText;
use crate::op::program::{Extent, ProgramLaunch};

/// Loaded kernels of a [`DeviceChain`].
#[derive(Debug)]
pub struct ChainKernels {
    fused: Option<Kernel>,
    program: Option<Kernel>,
}

impl ChainKernels {
    /// Compiles the kernels, or reads them from the cache.
    ///
    /// # Errors
    /// Errors of [`Kernel::load`].
    pub fn load(device: &Arc<Device>, chain: &DeviceChain) -> Result<Self> {
        Self::load_as(device, chain, KernelText::entry)
    }

    /// Like [`load`](Self::load), but the fused kernel has one thread per pixel instead of tiles.
    ///
    /// # Errors
    /// Errors of [`Kernel::load`].
    pub fn without_tiles(device: &Arc<Device>, chain: &DeviceChain) -> Result<Self> {
        Self::load_as(device, chain, |_| FUSED)
    }

    fn load_as(
        device: &Arc<Device>,
        chain: &DeviceChain,
        entry: fn(&KernelText) -> &'static str,
    ) -> Result<Self> {
        let fused = chain
            .fused
            .as_ref()
            .map(|text| Kernel::load(device, &text.source, entry(text), text.sample_bytes));
        let program = chain
            .program
            .as_ref()
            .map(|text| Kernel::load(device, &text.source, PROGRAM, text.sample_bytes()));
        Ok(Self { fused: fused.transpose()?, program: program.transpose()? })
    }

    /// Calls [`Kernel::warm_up`] for the fused kernel and the program kernel, if they exist.
    ///
    /// # Errors
    /// Errors of [`Kernel::warm_up`].
    pub fn warm_up(&self, stream: &Stream) -> Result<()> {
        self.fused.iter().chain(&self.program).try_for_each(|kernel| kernel.warm_up(stream))
    }

    /// Enqueues the launches for `count` samples. `block` holds the parameters of the samples:
    /// those of the fused kernel begin at offset `fused_at`, those of the program kernel at offset
    /// `program_at`. `extent` covers all samples whose parameters are in `block`.
    ///
    /// # Errors
    /// Errors of [`Kernel::launch`].
    pub fn launch(
        &self,
        goal: LaunchGoal,
        stream: &Stream,
        (block, [fused_at, program_at]): (&DeviceBuffer, [usize; 2]),
        count: u32,
        extent: &Extent,
    ) -> Result<()> {
        if let Some(fused) = &self.fused {
            fused.launch_for(goal, stream, block, fused_at, count, extent.fused)?;
        }
        let Some(program) = &self.program else { return Ok(()) };
        extent.launches().try_for_each(|ProgramLaunch { pass, stage, blocks }| {
            let numbers = [pass as i32, stage as i32];
            program.launch_program(stream, block, program_at, (count, blocks), numbers)
        })
    }
}
