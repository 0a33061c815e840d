//! `resize`: resizes to a fixed size, or to a fixed shorter or longer side.

use serde::{Deserialize, Serialize};

use crate::geometry::Size;

use super::resample::{self, Filter};
use super::settings::check_side;
use super::{Bounds, BuiltIn, Draw, FieldError, Kind, Kinds, Operator};

/// Resizes the whole image: torchvision's `Resize` on PIL images.
///
/// The settings have exactly one of three forms. With `width` and `height`, the output has this
/// size. With `shorter`, the other side becomes `int(shorter * long / short)`. With `longer`, the
/// other side becomes `int(longer * short / long)`, but at least 1. `max_size` limits the longer
/// side if `shorter` is given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Resize {
    /// Output width, in pixels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub width: Option<u32>,
    /// Output height, in pixels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub height: Option<u32>,
    /// Shorter side of the output, in pixels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shorter: Option<u32>,
    /// Maximum length of the longer side, in pixels. It must be above `shorter`. If the longer side
    /// would exceed it, both sides are reduced in proportion. Only with `shorter`. Default: no
    /// maximum.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_size: Option<u32>,
    /// Longer side of the output, in pixels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub longer: Option<u32>,
    /// Resampling filter. Default bilinear.
    pub filter: Filter,
}

/// Which sides the settings give.
#[derive(Clone, Copy)]
enum Sides {
    Exact(Size),
    Shorter(u32),
    Longer(u32),
}

impl Resize {
    /// Resizes to `width` columns and `height` rows.
    pub fn to(width: u32, height: u32) -> Self {
        Self { width: Some(width), height: Some(height), ..Self::default() }
    }

    /// Resizes the shorter side to `pixels` and preserves the aspect ratio.
    pub fn shorter(pixels: u32) -> Self {
        Self { shorter: Some(pixels), ..Self::default() }
    }

    /// Resizes the longer side to `pixels` and preserves the aspect ratio.
    pub fn longer(pixels: u32) -> Self {
        Self { longer: Some(pixels), ..Self::default() }
    }

    fn sides(&self) -> Option<Sides> {
        match (self.width, self.height, self.shorter, self.longer) {
            (Some(width), Some(height), None, None) => Some(Sides::Exact(Size::new(width, height))),
            (None, None, Some(pixels), None) => Some(Sides::Shorter(pixels)),
            (None, None, None, Some(pixels)) => Some(Sides::Longer(pixels)),
            _ => None,
        }
    }

    fn check_max_size(&self) -> Result<(), FieldError> {
        let Some(most) = self.max_size else { return Ok(()) };
        check_side("max_size", most)?;
        let problem = match self.sides() {
            Some(Sides::Shorter(pixels)) if most > pixels => return Ok(()),
            Some(Sides::Shorter(pixels)) => {
                format!("is {most}, but must be above shorter, which is {pixels}")
            }
            _ => format!("is {most}, but max_size can only be used together with shorter"),
        };
        Err(FieldError::new("max_size", problem))
    }

    /// Output size for an input of size `input`.
    pub(crate) fn output(&self, input: Size) -> Size {
        let sides = self.sides().expect("check() refuses settings that give no output size");
        let (short, long) = (input.width.min(input.height), input.width.max(input.height));
        let (short, long) = match sides {
            Sides::Exact(size) => return size,
            Sides::Shorter(pixels) => match (scaled(pixels, long, short), self.max_size) {
                // torchvision computes the shorter side from the longer side after truncating the
                // latter.
                (longer, Some(most)) if longer > most => (scaled(most, pixels, longer), most),
                (longer, _) => (pixels, longer),
            },
            Sides::Longer(pixels) => (scaled(pixels, short, long), pixels),
        };
        if input.width <= input.height { Size::new(short, long) } else { Size::new(long, short) }
    }
}

/// Python's `int(pixels * numerator / denominator)`, clamped to 1..=i32::MAX.
fn scaled(pixels: u32, numerator: u32, denominator: u32) -> u32 {
    let product = (u64::from(pixels) * u64::from(numerator)) as f64;
    ((product / f64::from(denominator)) as u32).clamp(1, i32::MAX as u32)
}

impl Operator for Resize {
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
        let input = draw.size();
        draw.resample(input.window(), self.output(input), self.filter);
    }

    fn check(&self) -> Result<(), FieldError> {
        let sides = [
            ("width", self.width),
            ("height", self.height),
            ("shorter", self.shorter),
            ("longer", self.longer),
        ];
        for (field, side) in sides {
            if let Some(pixels) = side {
                check_side(field, pixels)?;
            }
        }
        if self.sides().is_some() {
            return self.check_max_size();
        }
        let given = sides.iter().filter(|(_, side)| side.is_some());
        let given: Vec<String> =
            given.map(|(field, side)| format!("{field} = {}", side.unwrap_or_default())).collect();
        let given = if given.is_empty() { "nothing".into() } else { given.join(", ") };
        let field = if self.width.is_some() { "width" } else { "shorter" };
        let problem = format!(
            "needs exactly one of these: width and height, shorter, longer; {given} is set"
        );
        Err(FieldError::new(field, problem))
    }

    fn fixed_output(&self, input: Option<Size>) -> Option<Size> {
        match (self.sides(), input) {
            (Some(Sides::Exact(size)), _) => Some(size),
            (_, input) => input.map(|input| self.output(input)),
        }
    }

    fn coefficients(&self, bounds: Bounds) -> usize {
        if let (Some(Sides::Shorter(pixels)), Some(most)) = (self.sides(), self.max_size) {
            let largest = Size::new(most, most);
            return resample::shortest_len(self.filter, pixels, largest, self.max_size, bounds);
        }
        let side = u64::from(bounds.side);
        let inputs = resample::longest_inputs(bounds);
        let (output, scales) = match self.sides() {
            None => return 0,
            Some(Sides::Exact(Size { width, height })) => (
                (u64::from(width), u64::from(height)),
                inputs.map(|(w, h)| (w / f64::from(width), h / f64::from(height))),
            ),
            Some(Sides::Shorter(pixels)) => {
                // The longer side is truncated to an integer of at least `pixels`. This increases
                // the scale by at most one part in `pixels`.
                let pixels_f = f64::from(pixels);
                let shorter = (bounds.pixels as f64).sqrt().min(f64::from(bounds.side));
                let scale = shorter / pixels_f * (pixels_f + 1.0) / pixels_f;
                ((u64::from(pixels) * side, u64::from(pixels) * side), [(scale, scale); 2])
            }
            Some(Sides::Longer(pixels)) => {
                // The shorter side is truncated to an integer of at least 1, so less than half of
                // it is lost, and the scale at most doubles.
                let scales = inputs.map(|(w, h)| {
                    let scale = 2.0 * w.max(h) / f64::from(pixels);
                    (scale, scale)
                });
                ((pixels.into(), pixels.into()), scales)
            }
        };
        resample::table_len(self.filter, output, bounds, scales)
    }
}

impl BuiltIn for Resize {
    const NAME: &'static str = "resize";

    fn examples() -> Vec<Self> {
        let filters = [
            Filter::Nearest,
            Filter::Box,
            Filter::Bilinear,
            Filter::Hamming,
            Filter::Bicubic,
            Filter::Lanczos,
        ];
        let mut all: Vec<Self> = filters.map(|filter| Self { filter, ..Self::to(20, 15) }).to_vec();
        all.extend([Self::to(1, 1), Self::to(61, 67), Self::shorter(16), Self::longer(16)]);
        all.push(Self { max_size: Some(20), ..Self::shorter(16) });
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longer_side_is_limited() {
        let op = Resize { max_size: Some(40), ..Resize::shorter(30) };
        assert_eq!(op.check(), Ok(()));
        assert_eq!(op.output(Size::new(100, 50)), Size::new(40, 20));
        assert_eq!(op.output(Size::new(50, 100)), Size::new(20, 40));
        assert_eq!(op.output(Size::new(50, 60)), Size::new(30, 36));
        assert_eq!(op.output(Size::new(4000, 1)), Size::new(40, 1));
    }

    #[test]
    fn a_maximum_that_limits_nothing_is_refused() {
        for op in [Resize::shorter(40), Resize::shorter(50), Resize::longer(10), Resize::to(3, 4)] {
            let error = Resize { max_size: Some(40), ..op }.check().unwrap_err();
            assert_eq!(error.field, "max_size");
        }
    }
}
