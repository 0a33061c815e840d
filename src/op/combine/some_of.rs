//! `some_of`: runs some of several operators for each sample.

use std::sync::Arc;

use crate::geometry::Size;
use crate::image::PixelType;
use crate::op::{Bounds, Draw, FieldError, Kinds, Operator};

use super::Inner;

/// Runs a fixed number of its operators for each sample, all different, in a random order. All
/// choices and orders are equally likely: Albumentations' `SomeOf` with `replace = false`.
#[derive(Clone, Debug)]
pub struct SomeOf {
    count: usize,
    operators: Inner,
}

impl SomeOf {
    pub(crate) const NAME: &'static str = "some_of";

    /// Runs `count` of the operators that are added by [`or`](Self::or).
    pub fn new(count: usize) -> Self {
        Self { count, operators: Vec::new() }
    }

    /// Adds an operator.
    pub fn or(self, operator: impl Operator) -> Self {
        self.or_any(Arc::new(operator))
    }

    /// Adds an operator of unknown type.
    pub fn or_any(mut self, operator: Arc<dyn Operator>) -> Self {
        self.operators.push(operator);
        self
    }
}

impl Operator for SomeOf {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn kinds(&self) -> Kinds {
        super::kinds(&self.operators)
    }

    fn draw(&self, draw: &mut Draw<'_>) {
        let chosen = super::shuffled(self.operators.len(), self.count, draw.rng());
        draw.inner(&self.operators, chosen);
    }

    fn check(&self) -> Result<(), FieldError> {
        super::check(&self.operators)?;
        let most = self.operators.len();
        if (1..=most).contains(&self.count) {
            return Ok(());
        }
        let problem =
            format!("is {}, but must be from 1 to {most}, the number of operators", self.count);
        Err(FieldError::new("count", problem))
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
