//! `random_apply`: runs operators for some of the samples.

use std::sync::Arc;

use crate::geometry::Size;
use crate::image::PixelType;
use crate::op::{Bounds, Draw, FieldError, Kinds, Operator};

use super::Inner;

/// Runs all of its operators in order with a given probability, and otherwise none of them:
/// torchvision's `RandomApply`.
#[derive(Clone, Debug)]
pub struct RandomApply {
    probability: f64,
    operators: Inner,
}

impl RandomApply {
    pub(crate) const NAME: &'static str = "random_apply";

    /// Runs the operators that are added by [`then`](Self::then) with this probability, 0 to 1.
    pub fn new(probability: f64) -> Self {
        Self { probability, operators: Vec::new() }
    }

    /// Adds an operator.
    pub fn then(self, operator: impl Operator) -> Self {
        self.then_any(Arc::new(operator))
    }

    /// Adds an operator of unknown type.
    pub fn then_any(mut self, operator: Arc<dyn Operator>) -> Self {
        self.operators.push(operator);
        self
    }
}

impl Operator for RandomApply {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn kinds(&self) -> Kinds {
        super::kinds(&self.operators)
    }

    fn draw(&self, draw: &mut Draw<'_>) {
        if draw.rng().chance(self.probability) {
            draw.inner(&self.operators, 0..self.operators.len());
        }
    }

    fn check(&self) -> Result<(), FieldError> {
        super::check_probability("probability", self.probability)?;
        super::check(&self.operators)
    }

    fn pixels(&self, input: PixelType) -> Result<PixelType, String> {
        super::kept_pixels(Self::NAME, &self.operators, input)
    }

    fn channels(&self, input: usize) -> Result<usize, String> {
        super::kept_channels(Self::NAME, &self.operators, input)
    }

    fn fixed_output(&self, input: Option<Size>) -> Option<Size> {
        let output = self.operators.iter().fold(input, |size, it| it.fixed_output(size));
        match self.probability {
            1.0 => output,
            0.0 => input,
            _ => input.filter(|_| input == output),
        }
    }

    fn largest_output(&self, input: Size) -> Size {
        super::largest_in_order(&self.operators, input)
    }

    fn largest_alone(&self, input: Size) -> Size {
        super::largest_alone(&self.operators, input)
    }

    fn inner(&self) -> &[Arc<dyn Operator>] {
        &self.operators
    }

    fn is_random(&self) -> bool {
        let decides = self.probability > 0.0 && self.probability < 1.0;
        decides || self.probability > 0.0 && self.operators.iter().any(|it| it.is_random())
    }

    fn reads_boxes(&self) -> bool {
        self.operators.iter().any(|it| it.reads_boxes())
    }

    fn coefficients(&self, bounds: Bounds) -> usize {
        super::coefficients(&self.operators, bounds)
    }
}
