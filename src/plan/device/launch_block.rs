//! Layout of a block of launch parameters.

use crate::error::{Error, Result};
use crate::op::device_chain::{Block, DeviceChain};

use super::DevicePlan;

/// Alignment of the parts of a block, in bytes.
const ALIGN_BYTES: usize = 8;

/// Layout of a block of launch parameters, which describes the samples of a group of pages. There
/// is a launch for the main chain, and one for all outputs of each view on the device.
///
/// ```text
/// for each chain: parameters for the fused kernel, then programs, of all samples of its launch
/// for each page:  for each chain, passes of the page's samples; then the tables of all of them
/// ```
///
/// So the parameters of a group that is not full are the beginning of a block.
#[derive(Clone, Debug)]
pub struct LaunchBlock {
    /// The main chain, then the views on the device, in order.
    chains: Vec<ChainPart>,
    /// Offset of the part of the first page.
    pages: usize,
    /// Size of the part of a page.
    page_bytes: usize,
    /// Offset of the tables in the part of a page.
    tables: usize,
}

/// Parameters of the launch of one chain. Offsets are in bytes.
#[derive(Clone, Debug)]
struct ChainPart {
    /// Number of samples of a page in the launch.
    outputs: usize,
    /// Offset of the parameters of all samples for the fused kernel.
    fused: usize,
    /// Offset of the programs of all samples.
    program: usize,
    /// Offset of the passes in the part of a page.
    passes: usize,
    /// Size of the passes of one sample.
    passes_bytes: usize,
    /// Size of all parameters of one sample.
    sample_bytes: usize,
}

impl LaunchBlock {
    pub(super) fn new(device: &DevicePlan) -> Self {
        let most = |property: fn(&DeviceChain) -> usize| {
            device.splits.iter().map(|split| property(&split.chain)).max().unwrap_or(0)
        };
        let main = [
            most(DeviceChain::fused_bytes),
            most(DeviceChain::program_bytes),
            most(DeviceChain::passes_bytes),
        ];
        let views = device.views.iter().map(|view| {
            let chain = &view.split.chain;
            (view.outputs, [chain.fused_bytes(), chain.program_bytes(), chain.passes_bytes()])
        });
        let (mut chains, mut pages, mut tables) = (Vec::new(), 0, 0);
        for (outputs, [fused_bytes, program_bytes, passes_bytes]) in
            std::iter::once((1, main)).chain(views)
        {
            let (samples, fused) = (device.group * outputs, pages);
            let program = fused + (samples * fused_bytes).next_multiple_of(ALIGN_BYTES);
            pages = program + (samples * program_bytes).next_multiple_of(ALIGN_BYTES);
            let sample_bytes = fused_bytes + program_bytes + passes_bytes;
            let passes_bytes = passes_bytes.next_multiple_of(ALIGN_BYTES);
            let passes = tables;
            tables += outputs * passes_bytes;
            chains.push(ChainPart { outputs, fused, program, passes, passes_bytes, sample_bytes });
        }
        Self { chains, pages, page_bytes: tables + device.table_bytes, tables }
    }

    /// Size of the parameters of the first `pages` pages, in bytes.
    pub fn bytes(&self, pages: usize) -> usize {
        self.pages + pages * self.page_bytes
    }

    /// Offsets of the parameters for the fused kernel and of the programs of chain number `chain`,
    /// in bytes. The main chain has number 0, and the views on the device follow.
    pub fn kernels(&self, chain: usize) -> [usize; 2] {
        let ChainPart { fused, program, .. } = self.chains[chain];
        [fused, program]
    }

    /// Offset of the passes of output number `output` of page number `page`, in bytes.
    pub fn passes_of(&self, chain: usize, page: usize, output: usize) -> usize {
        let ChainPart { passes, passes_bytes, .. } = self.chains[chain];
        self.bytes(page) + passes + output * passes_bytes
    }

    /// Offset of the tables of page number `page`, in bytes.
    pub fn tables_of(&self, page: usize) -> usize {
        self.bytes(page) + self.tables
    }

    /// Parts of a block with the bytes `block` for output number `output` of page number `page`.
    /// `kernels` are those of the chain.
    ///
    /// # Errors
    /// [`Error::Internal`] if the block has fewer pages.
    pub fn parts<'a>(
        &self,
        block: &'a mut [u8],
        (chain, kernels): (usize, &DeviceChain),
        (page, output): (usize, usize),
    ) -> Result<Block<'a>> {
        let ChainPart { outputs, fused, program, .. } = self.chains[chain];
        let (sample, passes) = (page * outputs + output, self.passes_of(chain, page, output));
        let part = |begin: usize, each: usize| begin + sample * each..begin + (sample + 1) * each;
        let parts = block.get_disjoint_mut([
            part(fused, kernels.fused_bytes()),
            part(program, kernels.program_bytes()),
            passes..passes + kernels.passes_bytes(),
        ]);
        let [fused, program, passes] = parts.map_err(|error| Error::Internal {
            problem: format!("page {page} is not in a block of launch parameters: {error}"),
        })?;
        Ok(Block { fused, program, passes })
    }

    /// Size of the parameters of one page, without its tables, in bytes.
    pub fn sample_bytes(&self) -> usize {
        self.chains.iter().map(|chain| chain.outputs * chain.sample_bytes).sum()
    }
}
