//! Blends of pairs of samples, which batch operators draw.

use std::ops::Deref;
use std::sync::Arc;

use crate::geometry::{Roi, Size};
use crate::random::{OperatorPath, SampleKey, SampleRng};

use super::BatchOperator;

/// Replaces both samples of a pair by weighted sums of the two.
///
/// Inside `window`, each element becomes `weight * own + (1 - weight) * other`. `own` and `other`
/// are the elements of the two samples at this place before the blend. The sum is computed in f32.
/// Each product and the sum are rounded to nearest even, and never fused. The result is rounded to
/// nearest even in the element type, also for bytes. A weight of 0 exchanges the elements. For f32,
/// the result has the bits of torchvision's and timm's mixup.
///
/// The soft targets become `target_weight * own + (1 - target_weight) * other`, computed in f32 and
/// rounded like the elements.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Blend {
    /// Name of the operator that drew the blend.
    pub operator: &'static str,
    /// Window in which elements change, in pixels of the tensor.
    pub window: Roi,
    /// Weight of a sample's own elements inside the window, 0 to 1.
    pub weight: f32,
    /// Weight of a sample's own target, 0 to 1.
    pub target_weight: f32,
}

impl Blend {
    /// A blend that changes nothing, for unused elements of a list of blends.
    const NOTHING: Self =
        Self { operator: "", window: Roi::new(0, 0, 0, 0), weight: 1.0, target_weight: 1.0 };

    /// New value of an element or a target: the weighted sum of `own` and the value of the other
    /// sample.
    #[inline(always)]
    pub(crate) fn sum(weight: f32, own: f32, other: f32) -> f32 {
        weight * own + (1.0 - weight) * other
    }
}

/// Blends of one pair, in the order in which they are applied.
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

    /// Draws the blends of all operators for a pair of samples of size `size`. The index in `key`
    /// is the number of the pair.
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

/// Takes the blends that a batch operator draws for one pair, and provides the random numbers of
/// the pair.
///
/// The random numbers of a pair depend on the seed, the epoch, the position of the pair's first
/// sample in the epoch's order, the name of the operator, and the number of earlier batch operators
/// with the same name.
#[derive(Debug)]
pub struct PairDraw<'a> {
    operator: &'static str,
    size: Size,
    rng: SampleRng,
    blends: &'a mut Blends,
}

impl PairDraw<'_> {
    /// Size of each sample of the pair, in pixels.
    pub fn size(&self) -> Size {
        self.size
    }

    /// Random numbers of this operator for this pair.
    pub fn rng(&mut self) -> &mut SampleRng {
        &mut self.rng
    }

    /// Adds a [`Blend`] to the pair. The window is clipped to the samples.
    ///
    /// # Panics
    /// Panics if a weight is not a number from 0 to 1, or if the pair has more than
    /// [`Blends::MOST`] blends.
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
