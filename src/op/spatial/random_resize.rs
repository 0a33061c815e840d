//! `random_resize`: resizes the shorter side to a random length.

use serde::{Deserialize, Serialize};

use crate::geometry::Size;
use crate::op::resample::{self, Filter};
use crate::op::settings::check_side;
use crate::op::{Bounds, BuiltIn, Draw, FieldError, Kind, Kinds, Operator, Resize};

/// Resizes the shorter side to a length that is drawn from a range: torchvision's `RandomResize`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomResize {
    /// Smallest length of the shorter side, in pixels.
    pub min_size: u32,
    /// End of the range of lengths, above `min_size`. As in torchvision, the end is excluded: at
    /// most `max_size - 1` is drawn.
    pub max_size: u32,
    /// Resampling filter. Default bilinear.
    #[serde(default)]
    pub filter: Filter,
}

impl RandomResize {
    /// Resizes the shorter side to at least `min_size` and less than `max_size` pixels.
    pub fn between(min_size: u32, max_size: u32) -> Self {
        Self { min_size, max_size, filter: Filter::default() }
    }

    /// Largest length of the shorter side that can be drawn, in pixels.
    fn last(&self) -> u32 {
        self.max_size.saturating_sub(1)
    }
}

impl Operator for RandomResize {
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
        let choices = u64::from(self.max_size - self.min_size);
        let shorter = self.min_size + draw.rng().below(choices) as u32;
        let input = draw.size();
        draw.resample(input.window(), Resize::shorter(shorter).output(input), self.filter);
    }

    fn check(&self) -> Result<(), FieldError> {
        check_side("min_size", self.min_size)?;
        check_side("max_size", self.max_size)?;
        if self.max_size <= self.min_size {
            let Self { min_size, max_size, .. } = self;
            let problem = format!("is {max_size}, but must be above min_size, which is {min_size}");
            return Err(FieldError::new("max_size", problem));
        }
        Ok(())
    }

    fn fixed_output(&self, input: Option<Size>) -> Option<Size> {
        let is_fixed = self.last() == self.min_size;
        input.filter(|_| is_fixed).map(|input| Resize::shorter(self.min_size).output(input))
    }

    fn largest_output(&self, input: Size) -> Size {
        Resize::shorter(self.last()).output(input)
    }

    fn coefficients(&self, bounds: Bounds) -> usize {
        let most = u64::from(self.last()).saturating_mul(bounds.side.into());
        let most = most.min(i32::MAX as u64) as u32;
        resample::shortest_len(self.filter, self.min_size, Size::new(most, most), None, bounds)
    }
}

impl BuiltIn for RandomResize {
    const NAME: &'static str = "random_resize";

    fn examples() -> Vec<Self> {
        vec![Self::between(10, 25), Self { filter: Filter::Bicubic, ..Self::between(13, 14) }]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Actions;
    use crate::random::SampleKey;

    #[test]
    fn every_length_is_drawn_but_the_end() {
        let op = RandomResize::between(10, 13);
        let size = Size::new(40, 20);
        let mut seen: Vec<Size> = (0..200)
            .map(|index| {
                let key = SampleKey { index, ..SampleKey::default() };
                Actions::of([&op as &dyn Operator], key, size).list[0].whole
            })
            .collect();
        seen.sort_by_key(|size| size.pixels());
        seen.dedup();
        assert_eq!(seen, [Size::new(20, 10), Size::new(22, 11), Size::new(24, 12)]);
        assert_eq!(op.largest_output(size), Size::new(24, 12));
        assert_eq!(op.fixed_output(Some(size)), None);
        assert_eq!(RandomResize::between(9, 10).fixed_output(Some(size)), Some(Size::new(18, 9)));
    }

    #[test]
    fn an_empty_range_is_refused() {
        assert_eq!(RandomResize::between(10, 10).check().unwrap_err().field, "max_size");
        assert_eq!(RandomResize::between(0, 10).check().unwrap_err().field, "min_size");
        assert_eq!(RandomResize::between(10, 11).check(), Ok(()));
    }
}
