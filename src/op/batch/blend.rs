//! Blends: what batch operators draw for pairs of samples.

use std::ops::Deref;
use std::sync::Arc;

use crate::geometry::{Roi, Size};
use crate::random::{OperatorPath, SampleKey, SampleRng};

use super::BatchOperator;

/// Replacement of both samples of a pair.
///
/// Inside of `window` each element becomes `weight * own + (1 - weight) * other`, from the elements at the same place
/// before: computed in f32, each product and the sum rounded to nearest even, never fused. The result is rounded to
/// nearest even in the element type, bytes too. A weight of 0 exchanges the elements. For f32 these are the bits of
/// torchvision's and timm's mixup.
///
/// The soft targets become `target_weight * own + (1 - target_weight) * other`, computed in the same way.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Blend {
    /// Name of the operator that drew it.
    pub operator: &'static str,
    /// Window in pixels of the tensor.
    pub window: Roi,
    /// Weight of a sample's own elements inside of the window, 0 to 1.
    pub weight: f32,
    /// Weight of a sample's own target, 0 to 1.
    pub target_weight: f32,
}

impl Blend {
    /// A blend of nothing.
    const NOTHING: Self =
        Self { operator: "", window: Roi::new(0, 0, 0, 0), weight: 1.0, target_weight: 1.0 };

    /// The value of an element or a target: `own`, blended with that of the other sample.
    #[inline(always)]
    pub(crate) fn sum(weight: f32, own: f32, other: f32) -> f32 {
        weight * own + (1.0 - weight) * other
    }
}

/// Blends of one pair, in order.
#[derive(Clone, Copy, Debug)]
pub struct Blends {
    all: [Blend; Blends::MOST],
    len: usize,
}

impl Blends {
    /// Maximum number of blends of a pair.
    pub const MOST: usize = 4;

    /// No blends.
    pub const NONE: Self = Self { all: [Blend::NOTHING; Self::MOST], len: 0 };

    /// Draws the blends of all operators for a pair of samples of this size. `key` has the pair's number as its index.
    pub fn draw(operators: &[Arc<dyn BatchOperator>], size: Size, key: SampleKey) -> Self {
        let mut blends = Self::NONE;
        for (place, operator) in operators.iter().enumerate() {
            let name = operator.name();
            let before = operators[..place].iter().filter(|it| it.name() == name).count();
            let rng = SampleRng::of_operator(key, OperatorPath::BATCH.child(name, before));
            operator.draw(&mut PairDraw { operator: name, size, rng, blends: &mut blends });
        }
        blends
    }
}

impl Deref for Blends {
    type Target = [Blend];

    fn deref(&self) -> &[Blend] {
        &self.all[..self.len]
    }
}

impl PartialEq for Blends {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

/// Where a batch operator puts the blends of one pair, with the pair's random numbers.
///
/// The random numbers depend on the seed, the epoch, the position of the pair's first sample in the epoch's order, and
/// the operator's name and how many of this name precede it.
#[derive(Debug)]
pub struct PairDraw<'a> {
    operator: &'static str,
    size: Size,
    rng: SampleRng,
    blends: &'a mut Blends,
}

impl PairDraw<'_> {
    /// Size of the samples.
    pub fn size(&self) -> Size {
        self.size
    }

    /// Random numbers of this operator for this pair.
    pub fn rng(&mut self) -> &mut SampleRng {
        &mut self.rng
    }

    /// Adds a [`Blend`]. The window is clipped to the samples.
    ///
    /// # Panics
    /// If a weight is not a number from 0 to 1, or the pair has more than [`Blends::MOST`] blends.
    pub fn blend(&mut self, window: Roi, weight: f32, target_weight: f32) {
        for weight in [weight, target_weight] {
            assert!((0.0..=1.0).contains(&weight), "{}: weight {weight}", self.operator);
        }
        let Blends { all, len } = &mut *self.blends;
        assert!(*len < all.len(), "{}: more than {} blends", self.operator, Blends::MOST);
        let window = window.intersection(self.size.window());
        all[*len] = Blend { operator: self.operator, window, weight, target_weight };
        *len += 1;
    }
}
