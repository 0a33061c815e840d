//! `one_of`: runs one of several operators for each sample.

use std::sync::Arc;

use crate::footprint::counted;
use crate::geometry::Size;
use crate::image::PixelType;
use crate::op::{Bounds, Draw, FieldError, Kinds, Operator};

use super::Inner;

/// Runs one of its operators for each sample: torchvision's `RandomChoice`.
///
/// Operator number `i` is chosen with probability `weight[i] / sum of weights`.
#[derive(Clone, Debug, Default)]
pub struct OneOf {
    weights: Vec<f64>,
    operators: Inner,
}

impl OneOf {
    pub(crate) const NAME: &'static str = "one_of";

    /// A combinator without operators.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an operator with weight 1.
    pub fn or(self, operator: impl Operator) -> Self {
        self.or_any(1.0, Arc::new(operator))
    }

    /// Adds an operator of unknown type with a weight of at least 0.
    pub fn or_any(mut self, weight: f64, operator: Arc<dyn Operator>) -> Self {
        self.weights.push(weight);
        self.operators.push(operator);
        self
    }

    /// Runs one of these operators. `weights` holds the weight of each operator. Without `weights`,
    /// all operators are equally likely.
    pub fn weighted(weights: Option<Vec<f64>>, operators: Vec<Arc<dyn Operator>>) -> Self {
        Self { weights: weights.unwrap_or_else(|| vec![1.0; operators.len()]), operators }
    }

    fn output(&self, input: Option<Size>) -> Option<Option<Size>> {
        let mut outputs = self.operators.iter().map(|it| it.fixed_output(input));
        let first = outputs.next()?;
        outputs.all(|it| it == first).then_some(first)
    }
}

impl Operator for OneOf {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn kinds(&self) -> Kinds {
        super::kinds(&self.operators)
    }

    fn draw(&self, draw: &mut Draw<'_>) {
        let mut left = draw.rng().uniform() * self.weights.iter().sum::<f64>();
        let chosen = self.weights.iter().position(|&weight| {
            left -= weight;
            left < 0.0
        });
        // Because of rounding, `left` may still be 0 or more after the last weight was subtracted.
        // In this case, the last operator with a weight above 0 runs.
        let last = self.weights.iter().rposition(|&weight| weight > 0.0);
        draw.inner(&self.operators, chosen.or(last));
    }

    fn check(&self) -> Result<(), FieldError> {
        for (place, &weight) in self.weights.iter().enumerate() {
            if !(weight >= 0.0 && weight.is_finite()) {
                let problem = format!("must be a finite number of at least 0, is {weight}");
                return Err(FieldError::new(format!("weights[{place}]"), problem));
            }
        }
        super::check(&self.operators)?;
        if self.weights.len() != self.operators.len() {
            let (weights, operators) = (self.weights.len(), self.operators.len());
            let operators = counted(operators, "operator");
            let problem =
                format!("has {weights} numbers for {operators}; give one weight for each operator");
            return Err(FieldError::new("weights", problem));
        }
        if self.weights.iter().sum::<f64>() > 0.0 {
            return Ok(());
        }
        Err(FieldError::new("weights", "are all 0, so no operator can be chosen"))
    }

    fn pixels(&self, input: PixelType) -> Result<PixelType, String> {
        super::kept_pixels(Self::NAME, &self.operators, input)
    }

    fn channels(&self, input: usize) -> Result<usize, String> {
        super::kept_channels(Self::NAME, &self.operators, input)
    }

    fn fixed_output(&self, input: Option<Size>) -> Option<Size> {
        self.output(input).flatten()
    }

    fn largest_output(&self, input: Size) -> Size {
        let outputs = self.operators.iter().map(|it| it.largest_output(input));
        outputs.fold(input, super::larger)
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
        self.operators.iter().map(|it| it.coefficients(bounds)).max().unwrap_or(0)
    }
}
