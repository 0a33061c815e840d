//! `random_shortest_size`: resizes the shorter side to one of several lengths.

use serde::{Deserialize, Serialize};

use crate::geometry::Size;
use crate::op::resample::{self, Filter};
use crate::op::settings::check_side;
use crate::op::{Bounds, BuiltIn, Draw, FieldError, Kind, Kinds, Operator};
use crate::random::SampleRng;

/// Resizes the shorter side to a length that is drawn from a list, or to less if the longer side
/// would exceed `max_size`: torchvision's `RandomShortestSize` (DETR). Sides have at least one
/// pixel. torchvision fails if a side would have none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomShortestSize {
    /// Lengths of the shorter side, in pixels. All have the same probability.
    pub min_size: Vec<u32>,
    /// Maximum length of the longer side, in pixels. Default: no maximum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_size: Option<u32>,
    /// Resampling filter. Default bilinear.
    #[serde(default)]
    pub filter: Filter,
}

impl Operator for RandomShortestSize {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn interpolation(&self) -> Option<(&'static str, bool)> {
        Some(("filter", self.filter == Filter::Nearest))
    }

    fn kinds(&self) -> Kinds {
        Kinds::exactly([Kind::Resample])
    }

    fn draw(&self, draw: &mut Draw<'_>) {
        let shorter = draw_shortest_size(&self.min_size, draw.rng());
        let input = draw.size();
        let output = shortest_size(input, shorter, self.max_size);
        draw.resample(input.window(), output, self.filter);
    }

    fn check(&self) -> Result<(), FieldError> {
        if self.min_size.is_empty() {
            return Err(FieldError::new("min_size", "must have at least one length, is []"));
        }
        for (number, pixels) in self.min_size.iter().enumerate() {
            check_side(&format!("min_size[{number}]"), *pixels)?;
        }
        self.max_size.map_or(Ok(()), |pixels| check_side("max_size", pixels))
    }

    fn fixed_output(&self, input: Option<Size>) -> Option<Size> {
        match self.min_size[..] {
            [shorter] => input.map(|input| shortest_size(input, shorter, self.max_size)),
            _ => None,
        }
    }

    fn largest_output(&self, input: Size) -> Size {
        let sizes = self.min_size.iter();
        let sizes = sizes.map(|&it| shortest_size(input, it, self.max_size));
        sizes.max_by_key(|size| size.pixels()).unwrap_or(input)
    }

    fn coefficients(&self, bounds: Bounds) -> usize {
        let ends = (self.min_size.iter().min(), self.min_size.iter().max());
        let (Some(&least), Some(&most)) = ends else { return 0 };
        let longest = self.max_size.unwrap_or(u32::MAX);
        let most = u64::from(most).saturating_mul(bounds.side.into()).min(longest.into()) as u32;
        resample::shortest_len(self.filter, least, Size::new(most, most), self.max_size, bounds)
    }
}

impl BuiltIn for RandomShortestSize {
    const NAME: &'static str = "random_shortest_size";

    fn examples() -> Vec<Self> {
        let filter = Filter::default();
        vec![
            Self { min_size: vec![10, 16, 24], max_size: Some(40), filter },
            Self { min_size: vec![13], max_size: Some(20), filter: Filter::Lanczos },
        ]
    }
}

/// Draws one of the lengths `shorter` of torchvision's `RandomShortestSize`, all with the same
/// probability.
pub fn draw_shortest_size(shorter: &[u32], rng: &mut SampleRng) -> u32 {
    shorter[rng.below(shorter.len() as u64) as usize]
}

/// Output size of `random_shortest_size`. The shorter side gets `shorter` pixels, or less if the
/// longer side would exceed `longest` pixels. Each side has at least one pixel. torchvision fails
/// if a side would have none.
pub fn shortest_size(input: Size, shorter: u32, longest: Option<u32>) -> Size {
    let (short, long) = (input.width.min(input.height), input.width.max(input.height));
    let by_short = f64::from(shorter) / f64::from(short);
    let factor = longest.map_or(by_short, |most| by_short.min(f64::from(most) / f64::from(long)));
    let side = |len: u32| ((f64::from(len) * factor) as u32).max(1);
    Size::new(side(input.width), side(input.height))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_checked() {
        let op = |min_size: &[u32], max_size| {
            let min_size = min_size.to_vec();
            RandomShortestSize { min_size, max_size, filter: Filter::default() }
        };
        assert_eq!(op(&[], None).check().unwrap_err().field, "min_size");
        assert_eq!(op(&[5, 0], None).check().unwrap_err().field, "min_size[1]");
        assert_eq!(op(&[5], Some(0)).check().unwrap_err().field, "max_size");
        assert_eq!(op(&[5], None).check(), Ok(()));
    }

    #[test]
    fn the_size_is_fixed_if_nothing_is_drawn() {
        let op = |min_size: &[u32]| {
            let (min_size, filter) = (min_size.to_vec(), Filter::default());
            RandomShortestSize { min_size, max_size: Some(30), filter }
        };
        let input = Some(Size::new(80, 40));
        assert_eq!(op(&[10]).fixed_output(input), Some(Size::new(20, 10)));
        assert_eq!(op(&[10, 12]).fixed_output(input), None);
        assert_eq!(op(&[10, 20]).largest_output(Size::new(80, 40)), Size::new(30, 15));
    }
}
