//! Kernels for the part of a chain that runs on the device. There are at most two.
//!
//! The **fused** kernel evaluates a fixed order of actions for each pixel, and resamples on the
//! tensor cores. It executes the whole chain if each operator draws the same kinds of actions for
//! every sample and at most one operator resamples. Otherwise it ends after the resampling and
//! stores bytes in scratch memory, and the **program** kernel executes the other actions. If the
//! chain cannot begin with a fused resampling, there is only the program kernel.

use crate::geometry::{Roi, Size};
use crate::image::PixelType;
use crate::tensor::{CHANNELS, DType, Layout, TensorShape};

use super::kernel_text::{KernelText, Leaf, kernel_text, write_sample};
use super::kind::{Execution, crop};
use super::program::{Addresses, Extent, Image, ProgramText};
use super::{Actions, Kind, Kinds, ParamBytes};

/// Kernels of a chain: a fused kernel, a program kernel, or both.
#[derive(Clone, Debug)]
pub struct DeviceChain {
    /// Image that the first kernel reads.
    pub leaf: Leaf,
    /// The fused kernel.
    pub fused: Option<KernelText>,
    /// Number of operators that the fused kernel executes. `fused_kinds` are the kinds of their
    /// actions.
    fused_operators: usize,
    fused_kinds: Vec<Kind>,
    /// The program kernel.
    pub program: Option<ProgramText>,
    /// First operator that the fused kernel cannot execute, and the reason. Operators are counted
    /// from the first one on the device.
    pub unfused: Option<(usize, &'static str)>,
}

/// Actions of a sample that run on the device, and their input.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a> {
    /// All actions of the sample.
    pub actions: &'a Actions,
    /// Number of the first action on the device.
    pub first: usize,
    /// Window and size of the first device action's input. The input has the pixel type of the
    /// leaf.
    pub input: (Roi, Size),
    /// Parameters of the leaf, the image that the first kernel reads.
    pub leaf: &'a [u8],
}

/// Memory to which the parameters of one sample are written.
#[derive(Debug)]
pub struct Block<'a> {
    /// Parameters for the fused kernel, of size [`DeviceChain::fused_bytes`].
    pub fused: &'a mut [u8],
    /// Parameters for the program kernel, of size [`DeviceChain::program_bytes`].
    pub program: &'a mut [u8],
    /// Passes, steps and statistics of the program kernel, of size [`DeviceChain::passes_bytes`].
    /// Their address is [`Addresses::passes`].
    pub passes: &'a mut [u8],
}

impl DeviceChain {
    /// Kernels for operators with these kinds. The first kernel reads the image `leaf`. Without
    /// operators there are no kernels.
    pub fn new(leaf: Leaf, operators: &[&Kinds], shape: TensorShape) -> Self {
        let input = leaf.pixels();
        if operators.is_empty() {
            let (fused, program, unfused) = (None, None, None);
            return Self {
                leaf,
                fused,
                fused_operators: 0,
                fused_kinds: Vec::new(),
                program,
                unfused,
            };
        }
        let pixels = |operators: &[&Kinds]| {
            operators.iter().fold(input, |pixels, it| it.pixels(pixels).unwrap_or(pixels))
        };
        let flat = |operators: &[&Kinds]| -> Vec<Kind> {
            operators.iter().flat_map(|it| it.list()).copied().collect()
        };
        let end = fused_end(operators);
        if end == operators.len() {
            return Self { fused_operators: end, ..Self::fused(leaf, flat(operators), shape) };
        }
        let unfused = Some((end, unfused(operators[end])));
        let ends = (1..=end).rev().find(|&end| pixels(&operators[..end]) == PixelType::U8);
        let resamples = |kinds: &[Kind]| kinds.iter().any(|it| it.is_executed(Execution::Resample));
        let end = ends.filter(|&end| resamples(&flat(&operators[..end]))).unwrap_or(0);
        let fused_kinds = flat(&operators[..end]);
        let fused = (end > 0).then(|| {
            // The fused kernel ends with a crop. So the image in scratch memory begins at the first
            // pixel that the other operators need.
            let kinds = [&fused_kinds[..], &[Kind::Crop]].concat();
            let (channels, dtype, layout) = (CHANNELS, DType::U8, Layout::Nhwc);
            kernel_text(leaf, &kinds, TensorShape { channels, dtype, layout, ..shape })
        });
        let rest = Self::program(leaf, &operators[end..], pixels(operators), shape);
        Self { fused, fused_operators: end, fused_kinds, unfused, ..rest }
    }

    /// A fused kernel without a program kernel, for actions of these kinds in this order.
    pub fn fused(leaf: Leaf, kinds: Vec<Kind>, shape: TensorShape) -> Self {
        let fused = Some(kernel_text(leaf, &kinds, shape));
        Self { leaf, fused, fused_operators: 0, fused_kinds: kinds, program: None, unfused: None }
    }

    /// A program kernel without a fused kernel, for operators with these kinds. The last operator
    /// makes pixels of type `pixels`.
    pub fn program(
        leaf: Leaf,
        operators: &[&Kinds],
        pixels: PixelType,
        shape: TensorShape,
    ) -> Self {
        let operators = operators.iter().copied();
        let program = Some(ProgramText::new(operators, pixels, shape));
        let (fused_operators, fused_kinds) = (0, Vec::new());
        Self { leaf, fused: None, fused_operators, fused_kinds, program, unfused: None }
    }

    /// Number of operators that the fused kernel executes.
    pub fn fused_operators(&self) -> usize {
        self.fused_operators
    }

    /// Names of the kernels, in the order in which they run.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let fused = self.fused.iter().map(|it| &*it.name);
        fused.chain(self.program.iter().map(|it| &*it.name))
    }

    /// Source texts of the kernels, in the order in which they run.
    pub fn sources(&self) -> impl Iterator<Item = &str> {
        let fused = self.fused.iter().map(|it| &*it.source);
        fused.chain(self.program.iter().map(|it| &*it.source))
    }

    /// Size of one sample's parameters for the fused kernel, in bytes.
    pub fn fused_bytes(&self) -> usize {
        self.fused.as_ref().map_or(0, |it| it.sample_bytes)
    }

    /// Size of one sample's parameters for the program kernel, in bytes.
    pub fn program_bytes(&self) -> usize {
        self.program.as_ref().map_or(0, ProgramText::sample_bytes)
    }

    /// Maximum size of one sample's passes, steps and statistics for the program kernel, in bytes.
    pub fn passes_bytes(&self) -> usize {
        self.program.as_ref().map_or(0, ProgramText::passes_bytes)
    }

    /// Checks that the kernels can execute a sample. The error is that an operator drew actions
    /// that it does not declare in `kinds`.
    pub fn takes(&self, sample: &Sample<'_>) -> Result<(), &'static str> {
        let (list, end) = (&sample.actions.list, self.fused_end(sample));
        let fused = list[sample.first..].iter().map(|it| it.params.kind());
        let mut both = self.fused_kinds.iter().zip(fused);
        if end > list.len() || !both.all(|(kind, drawn)| kind.is(drawn)) {
            return Err("an operator drew actions that it does not declare");
        }
        match &self.program {
            Some(program) => program.takes(sample.actions, end),
            None if end == list.len() => Ok(()),
            None => Err("an operator drew more actions than it declares"),
        }
    }

    /// Size in bytes of the larger of the two scratch images of a sample.
    pub fn scratch_bytes(&self, sample: &Sample<'_>) -> u64 {
        match &self.program {
            Some(_) => {
                let source = self.program_source(sample);
                let end = self.fused_end(sample);
                ProgramText::scratch_bytes(sample.actions, end, source, self.fused.is_some())
            }
            None => 0,
        }
    }

    /// Writes the parameters of a sample, and enlarges the launches in `extent` so that they cover
    /// the sample.
    ///
    /// # Panics
    ///
    /// Panics if the kernels do not [take](Self::takes) the sample, or if a part of the block has a
    /// wrong size.
    pub fn write(
        &self,
        sample: &Sample<'_>,
        at: &Addresses,
        block: Block<'_>,
        extent: &mut Extent,
    ) {
        let tensor = sample.actions.list.last().map_or(sample.input.0, |last| last.output).size();
        let source = self.program_source(sample);
        if let Some(program) = &self.program {
            let leaf = self.fused.is_none().then_some(sample.leaf);
            let actions = (sample.actions, self.fused_end(sample));
            let parts = (block.program, block.passes);
            program.write(actions, (source, leaf), at, parts, extent);
        }
        if self.fused.is_none() {
            return;
        }
        let (out, size, cut) = match self.program {
            None => (at.out, tensor, None),
            Some(_) => {
                let Roi { x, y, .. } = source.window;
                let size = source.window.size();
                let crop = crop::Params::new((x.into(), y.into()), size, source.whole, [0.0; 3]);
                (at.scratch[0], size, Some(ParamBytes::new(&crop)))
            }
        };
        let params = sample.actions.params(sample.first, at.tables);
        let params = params.take(self.fused_kinds.len()).chain(cut);
        write_sample(block.fused, out, size, sample.leaf, params);
        extent.add_fused(size);
    }

    /// Index of the first action that the fused kernel does not execute.
    fn fused_end(&self, sample: &Sample<'_>) -> usize {
        sample.first + self.fused_kinds.len()
    }

    /// Image that the program kernel reads first: the output of the fused kernel, or the input of
    /// the device.
    fn program_source(&self, sample: &Sample<'_>) -> Image {
        let (window, whole) = sample.input;
        match self.fused_kinds.len().checked_sub(1) {
            None => Image { window, whole, pixels: self.leaf.pixels() },
            Some(last) => {
                let last = &sample.actions.list[sample.first + last];
                Image { window: last.output, whole: last.whole, pixels: PixelType::U8 }
            }
        }
    }
}

/// Reason why a fused kernel does not execute an operator with these kinds.
fn unfused(kinds: &Kinds) -> &'static str {
    match kinds.list().iter().all(|kind| kind.facts().nests) {
        _ if !kinds.is_exact() => "draws different actions for different samples",
        true => "resamples a second time",
        false => "is of a kind that only the second kernel has",
    }
}

/// Number of operators at the beginning of the list that one fused kernel can execute.
fn fused_end(operators: &[&Kinds]) -> usize {
    let mut resampled = 0;
    let fused = operators.iter().take_while(|kinds| {
        let resamples = |kind: &&Kind| kind.is_executed(Execution::Resample);
        resampled += kinds.list().iter().filter(resamples).count();
        kinds.fuses() && resampled <= 1
    });
    fused.count()
}
