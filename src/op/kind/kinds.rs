//! Kinds of the actions that an operator may draw for a sample.

use crate::image::PixelType;

use super::{Execution, Kind};

/// Kinds of the actions that an operator may draw for a sample.
#[derive(Clone, Debug)]
pub struct Kinds {
    kinds: Vec<Kind>,
    most: Option<usize>,
}

impl Kinds {
    /// For every sample, the operator draws one action of each kind, in this order.
    pub fn exactly(kinds: impl Into<Vec<Kind>>) -> Self {
        Self { kinds: kinds.into(), most: None }
    }

    /// For each sample, the operator draws at most `most` actions, each of one of these kinds, in
    /// any order.
    pub fn up_to(most: usize, kinds: impl Into<Vec<Kind>>) -> Self {
        Self { kinds: kinds.into(), most: Some(most) }
    }

    /// The kinds.
    pub fn list(&self) -> &[Kind] {
        &self.kinds
    }

    /// Whether the operator draws one action of each kind for every sample, in this order.
    pub fn is_exact(&self) -> bool {
        self.most.is_none()
    }

    /// Maximum number of actions for one sample.
    pub fn most(&self) -> usize {
        self.most.unwrap_or(self.kinds.len())
    }

    /// Reason why no kernel can execute these actions. `None` if a kernel can.
    pub fn not_on_device(&self) -> Option<&'static str> {
        let host_only = self.kinds.iter().any(|kind| kind.cuda().is_none());
        host_only.then_some("has no CUDA text")
    }

    /// Whether a fused kernel can execute these actions. Their order must be fixed, because the
    /// kernel's text has that order.
    #[doc(hidden)]
    pub fn fuses(&self) -> bool {
        self.is_exact() && self.kinds.iter().all(|kind| kind.facts().nests)
    }

    /// Whether all kinds are [pointwise](Kind::is_pointwise).
    pub fn are_pointwise(&self) -> bool {
        self.kinds.iter().all(|kind| kind.is_pointwise())
    }

    /// Output pixel type for an input pixel type. `None` if a kind does not accept its input.
    pub fn pixels(&self, input: PixelType) -> Option<PixelType> {
        if self.is_exact() {
            return self.kinds.iter().try_fold(input, |pixels, kind| kind.pixels(pixels));
        }
        let keeps = |kind: &Kind| kind.pixels(input) == Some(input);
        self.kinds.iter().all(keeps).then_some(input)
    }

    /// Whether the CPU executes all kinds on decoded floats.
    pub(crate) fn take_decoded_floats(&self) -> bool {
        self.kinds.iter().all(|kind| kind.facts().takes_decoded_floats)
    }

    /// Whether a kind computes pixels from several pixels, or from positions between pixels.
    pub(crate) fn read_neighbours(&self) -> bool {
        let reads = |kind: &Kind| {
            kind.is_executed(Execution::Resample) || kind.is_executed(Execution::Rows)
        };
        self.kinds.iter().any(reads)
    }

    /// Maximum number of 32-bit entries in the tables of all actions of a sample, without those
    /// that `Operator::coefficients` counts.
    pub(crate) fn entries(&self) -> usize {
        let entries = self.kinds.iter().map(|kind| kind.facts().entries);
        match self.most {
            None => entries.sum(),
            Some(most) => most * entries.max().unwrap_or(0),
        }
    }
}
