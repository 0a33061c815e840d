//! Kinds of the actions that an operator draws.

use crate::image::PixelType;

use super::Kind;

/// Kinds of the actions that an operator draws.
#[derive(Clone, Debug)]
pub struct Kinds {
    kinds: Vec<Kind>,
    most: Option<usize>,
}

impl Kinds {
    /// One action of each kind, in this order, for every sample.
    pub fn exactly(kinds: impl Into<Vec<Kind>>) -> Self {
        Self { kinds: kinds.into(), most: None }
    }

    /// At most `most` actions, each of one of these kinds, in any order.
    pub fn up_to(most: usize, kinds: impl Into<Vec<Kind>>) -> Self {
        Self { kinds: kinds.into(), most: Some(most) }
    }

    /// The kinds.
    pub fn list(&self) -> &[Kind] {
        &self.kinds
    }

    /// Whether every sample has exactly these actions, in this order.
    pub fn is_exact(&self) -> bool {
        self.most.is_none()
    }

    /// Maximum number of actions.
    pub fn most(&self) -> usize {
        self.most.unwrap_or(self.kinds.len())
    }

    /// Why a kernel cannot execute these actions. `None` if it can.
    pub fn not_on_device(&self) -> Option<&'static str> {
        let host_only = self.kinds.iter().any(|kind| kind.cuda().is_none());
        host_only.then_some("has no CUDA text")
    }

    /// Whether a fused kernel can execute these actions, whose order is fixed.
    #[doc(hidden)]
    pub fn fuses(&self) -> bool {
        self.is_exact() && self.kinds.iter().all(|kind| kind.facts().nests)
    }

    /// Whether all kinds are [pointwise](Kind::is_pointwise).
    pub fn are_pointwise(&self) -> bool {
        self.kinds.iter().all(|kind| kind.is_pointwise())
    }

    /// Output pixel type for an input pixel type. `None` if one of the kinds does not accept its input.
    pub fn pixels(&self, input: PixelType) -> Option<PixelType> {
        if self.is_exact() {
            return self.kinds.iter().try_fold(input, |pixels, kind| kind.pixels(pixels));
        }
        let keeps = |kind: &Kind| kind.pixels(input) == Some(input);
        self.kinds.iter().all(keeps).then_some(input)
    }

    /// Maximum number of table entries (of 32 bits) of all actions, except for coefficients.
    pub(crate) fn entries(&self) -> usize {
        let entries = self.kinds.iter().map(|kind| kind.facts().entries);
        match self.most {
            None => entries.sum(),
            Some(most) => most * entries.max().unwrap_or(0),
        }
    }
}
