//! `random_order`: runs operators in a random order.

use std::sync::Arc;

use crate::geometry::Size;
use crate::image::PixelType;
use crate::op::{Bounds, Draw, FieldError, Kinds, Operator};

use super::Inner;

/// Runs all of its operators for each sample in a random order, all orders equally likely:
/// torchvision's `RandomOrder`.
#[derive(Clone, Debug, Default)]
pub struct RandomOrder {
    operators: Inner,
}

impl RandomOrder {
    pub(crate) const NAME: &'static str = "random_order";

    /// A combinator without operators.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an operator.
    pub fn and(self, operator: impl Operator) -> Self {
        self.and_any(Arc::new(operator))
    }

    /// Adds an operator of unknown type.
    pub fn and_any(mut self, operator: Arc<dyn Operator>) -> Self {
        self.operators.push(operator);
        self
    }
}

impl Operator for RandomOrder {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn kinds(&self) -> Kinds {
        super::kinds(&self.operators)
    }

    fn draw(&self, draw: &mut Draw<'_>) {
        let order = super::shuffled(self.operators.len(), self.operators.len(), draw.rng());
        draw.inner(&self.operators, order);
    }

    fn check(&self) -> Result<(), FieldError> {
        super::check(&self.operators)
    }

    fn pixels(&self, input: PixelType) -> Result<PixelType, String> {
        super::kept_pixels(Self::NAME, &self.operators, input)
    }

    fn channels(&self, input: usize) -> Result<usize, String> {
        super::kept_channels(Self::NAME, &self.operators, input)
    }

    fn fixed_output(&self, input: Option<Size>) -> Option<Size> {
        super::kept_output(&self.operators, input)
    }

    fn largest_output(&self, input: Size) -> Size {
        super::largest_output(&self.operators, input)
    }

    fn largest_alone(&self, input: Size) -> Size {
        super::largest_alone(&self.operators, input)
    }

    fn inner(&self) -> &[Arc<dyn Operator>] {
        &self.operators
    }

    fn is_random(&self) -> bool {
        self.operators.len() > 1 || self.operators.iter().any(|it| it.is_random())
    }

    fn reads_boxes(&self) -> bool {
        self.operators.iter().any(|it| it.reads_boxes())
    }

    fn coefficients(&self, bounds: Bounds) -> usize {
        super::coefficients(&self.operators, bounds)
    }
}
