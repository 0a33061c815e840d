//! `hue`: rotates the hue of each pixel.

use bytemuck::{Pod, Zeroable};
use serde::ser::SerializeStruct;
use serde::{Deserialize, Serialize, Serializer};

use crate::op::kind::ColourFormula;
use crate::op::settings::{check_pair, drawn, needs_colours, one_or_each};
use crate::op::wide::truncated;
use crate::op::{BuiltIn, Cuda, Draw, FieldError, Kind, Kinds, Operator};

/// Rotates the hue of each pixel, like torchvision's `adjust_hue`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hue {
    /// Hue rotation as a fraction of a full circle, -0.5 to 0.5. One number, or a range
    /// `[low, high]` from which the rotation is drawn uniformly.
    #[serde(deserialize_with = "one_or_each")]
    pub shift: [f64; 2],
}

impl Operator for Hue {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn kinds(&self) -> Kinds {
        Kinds::exactly([Kind::colour::<Self>()])
    }

    fn draw(&self, draw: &mut Draw<'_>) {
        let shift = drawn(self.shift, draw.rng());
        self::draw(draw, shift);
    }

    fn check(&self) -> Result<(), FieldError> {
        check_pair("shift", self.shift, -0.5, 0.5)
    }

    fn channels(&self, input: usize) -> Result<usize, String> {
        needs_colours(Self::NAME, input)
    }
}

impl BuiltIn for Hue {
    const NAME: &'static str = "hue";

    fn examples() -> Vec<Self> {
        [[0.1; 2], [-0.5; 2], [-0.2, 0.3]].map(|shift| Self { shift }).to_vec()
    }
}

impl ColourFormula for Hue {
    type Params = Params;
    const CUDA: Option<Cuda> = Some(Cuda::new("Hue", include_str!("../../../kernels/hue.cu")));

    /// Converts to hue, saturation and value in bytes, adds `shift` to the hue byte, and converts
    /// back: torchvision's `adjust_hue` on PIL images (Pillow's `Convert.c`). A shift of 0 changes
    /// pixels too, because both conversions round.
    ///
    /// Pillow computes in f32 and f64. This implementation gives the same bytes without branches:
    ///
    /// * Forward: the hue of the exact colour is a fraction n / (6 d) of a circle, with d = max -
    ///   min. The hue byte is floor(255 n / (6 d)). If 255 n / (6 d) is an integer that is in
    ///   `ROUNDED_DOWN`, the hue byte is one less. The saturation byte is s = floor(255 d / max).
    /// * Back: a channel is max (1 - s w / (255 * 85)), rounded. This value is never halfway
    ///   between two integers. The weight w is a trapezoid function of the hue: 0 for a third of
    ///   the circle, and 85 for the opposite third.
    #[inline(always)]
    fn pixel(params: &Params, [r, g, b]: [u8; 3]) -> [u8; 3] {
        let [r, g, b] = [i32::from(r), i32::from(g), i32::from(b)];
        let max = r.max(g).max(b);
        let range = max - r.min(g).min(b);

        let turned = if r == max {
            g - b
        } else if g == max {
            2 * range + b - r
        } else {
            4 * range + r - g
        };
        let numerator = 85 * (if turned < 0 { turned + 6 * range } else { turned });
        let denominator = 2 * range.max(1);
        let floor = divide(numerator, denominator);
        let exact = i32::from(floor * denominator == numerator);
        let rounded_down = (rounded_down(floor >> 5) >> (floor & 31)) as i32 & exact;
        let saturation = divide(255 * range, max.max(1));
        // Hue in 510ths of the circle.
        let hue = 2 * ((floor - rounded_down + params.shift as i32) & 255);

        let channel = |offset: i32| {
            let at = if hue + offset < 510 { hue + offset } else { hue + offset - 510 };
            let weight = at.min(340 - at).clamp(0, 85);
            level(max * (21675 - saturation * weight))
        };
        [channel(425), channel(255), channel(85)]
    }
}

/// Adds an action that rotates the hue by `shift`, a fraction of a circle.
pub(in crate::op) fn draw(draw: &mut Draw<'_>, shift: f64) {
    draw.colour::<Hue>(&Params::new(shift));
}

/// Parameters of one sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Params {
    /// Number that is added to the hue byte, modulo 256.
    pub shift: u32,
    /// Always 0.
    pub padding: u32,
}

/// Writes `shift` in the unit of the setting, a fraction of a circle.
impl Serialize for Params {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut params = serializer.serialize_struct("Params", 1)?;
        params.serialize_field("shift", &self.circles())?;
        params.end()
    }
}

impl Params {
    /// Parameters for a rotation by `hue`, a fraction of a full circle, -0.5 to 0.5. The shift of
    /// the hue byte is `hue * 255`, truncated towards 0, as in torchvision.
    pub fn new(hue: f64) -> Self {
        Self { shift: u32::from((hue * 255.0) as i32 as u8), padding: 0 }
    }

    /// Rotation of these parameters as a fraction of a full circle.
    fn circles(&self) -> f64 {
        let circles = f64::from(self.shift as u8 as i8) / 255.0;
        // `circles * 255` may be slightly closer to 0 than the integer, and `new` would truncate it
        // to the wrong byte. The float farther from 0 avoids this.
        let larger = if circles < 0.0 { circles.next_down() } else { circles.next_up() };
        if Self::new(circles) == *self { circles } else { larger }
    }
}

/// Bit set of hue bytes. If the exact hue is an integer in this set, the f32 result of Pillow is
/// slightly smaller than the integer, so Pillow truncates it to one less.
const ROUNDED_DOWN: [u32; 8] =
    [0xffff_fffe, 0, 0x1100_0000, 0x0000_0111, 0x222a_aaaa, 0x2323_2222, 0x0002_2222, 0];

/// Word number `word` of `ROUNDED_DOWN`. Comparisons select the word, so vectorized loops need no
/// memory reads.
#[inline(always)]
fn rounded_down(word: i32) -> u32 {
    let mut found = 0;
    for at in 0..8 {
        found = if at == word { ROUNDED_DOWN[at as usize] } else { found };
    }
    found
}

/// Quotient, rounded down, of a numerator below 2^18 and a denominator below 2^9. The quotient must
/// be at most 255. The f32 quotient has the same integer part: it is exact, or farther from an
/// integer than its error.
#[inline(always)]
fn divide(numerator: i32, denominator: i32) -> i32 {
    truncated(numerator as f32 / denominator as f32)
}

/// `product / 21675`, rounded to nearest. `product` must be the product of a byte and a number up
/// to 21675. For all such products, multiplying by the reciprocal in f32 gives the same integer.
#[inline(always)]
fn level(product: i32) -> u8 {
    // f32 numbers as large as `ROUNDS` (1.5 * 2^23) have no fraction bits, so the addition rounds.
    const ROUNDS: f32 = 12_582_912.0;
    (product as f32 * (1.0 / 21675.0) + ROUNDS).to_bits() as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Converting parameters to a fraction of a circle, which is recorded, and back gives the same
    /// parameters.
    #[test]
    fn a_recorded_turn_is_the_turn() {
        for shift in (-127..=127).map(|it: i8| u32::from(it as u8)) {
            let params = Params { shift, padding: 0 };
            assert_eq!(Params::new(params.circles()), params, "{shift}");
            assert!(params.circles().abs() < 0.5);
        }
    }
}
