//! `hue`: turns the hue of each pixel.

use bytemuck::{Pod, Zeroable};

/// Parameters of one sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Params {
    /// Added to the hue byte, modulo 256.
    pub shift: u32,
    /// Always 0.
    pub padding: u32,
}

impl Params {
    /// Parameters for a turn by `hue` of a full circle, -0.5 to 0.5. The byte is `hue * 255`, truncated towards 0, as
    /// in torchvision.
    pub fn new(hue: f64) -> Self {
        Self { shift: u32::from((hue * 255.0) as i32 as u8), padding: 0 }
    }
}

/// Hue bytes that Pillow's f32 arithmetic reaches from below where the exact value is this integer, so that
/// truncation gives one less. One bit per byte.
const ROUNDED_DOWN: [u32; 8] =
    [0xffff_fffe, 0, 0x1100_0000, 0x0000_0111, 0x222a_aaaa, 0x2323_2222, 0x0002_2222, 0];

/// Converts to hue, saturation and value in bytes, adds to the hue and converts back: torchvision's `adjust_hue` on
/// PIL images (Pillow's `Convert.c`). A shift of 0 changes pixels too, by the rounding of both conversions.
///
/// In integers, where Pillow computes in f32 and f64:
///
/// * hue = floor(255 n / (6 d)) for the hue n / (6 d) of the exact colour with d = max - min, less 1 where that is an
///   integer in `ROUNDED_DOWN`; saturation = floor(255 d / max).
/// * Back, with s the saturation, v the value, and 2 hue = 85 sextant + part, Pillow's three levels are v (1 - s),
///   v (1 - s part / 85) and v (1 - s (85 - part) / 85), rounded. None is half-way between two integers.
#[inline(always)]
pub fn pixel(params: &Params, [r, g, b]: [u8; 3]) -> [u8; 3] {
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
    let rounded_down = (ROUNDED_DOWN[(floor >> 5) as usize & 7] >> (floor & 31)) as i32 & exact;
    let saturation = divide(255 * range, max.max(1));
    let hue = (floor - rounded_down + params.shift as i32) & 255;

    let sextant = 2 * hue / 85;
    let part = 2 * hue - 85 * sextant;
    let low = (2 * max * (255 - saturation) + 255) / 510;
    let falling = (2 * max * (21675 - saturation * part) + 21675) / 43350;
    let rising = (2 * max * (21675 - saturation * (85 - part)) + 21675) / 43350;
    let channels = match sextant {
        1 => [falling, max, low],
        2 => [low, max, rising],
        3 => [low, falling, max],
        4 => [rising, low, max],
        5 => [max, low, falling],
        _ => [max, rising, low],
    };
    channels.map(|channel| channel as u8)
}

/// Integer quotient of numbers below 2^18 and 2^9. The f32 quotient has the same integer part: it is exact or
/// farther from an integer than its error.
#[inline(always)]
fn divide(numerator: i32, denominator: i32) -> i32 {
    (numerator as f32 / denominator as f32) as i32
}
