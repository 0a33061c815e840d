//! Floating-point formats and exact rounding.
//!
//! Sums and products of narrow formats are computed in double precision with rounding to odd. A
//! second rounding then gives the correctly rounded result (Boldo and Melquiond, "When double
//! rounding is odd", 2005).

use crate::isa::{Rounding, Type};

/// Binary format of IEEE 754.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Format {
    /// Number of digits of the significand, including the leading one.
    digits: u32,
    /// Number of bits of the exponent.
    exponent: u32,
}

pub(crate) const F16: Format = Format { digits: 11, exponent: 5 };
pub(crate) const BF16: Format = Format { digits: 8, exponent: 8 };
pub(crate) const F32: Format = Format { digits: 24, exponent: 8 };
pub(crate) const F64: Format = Format { digits: 53, exponent: 11 };

/// NaN that f32 operations return (PTX ISA, "Floating Point Data Type", "NaN payloads").
pub(crate) const NAN_F32: u32 = 0x7fff_ffff;

impl Format {
    /// Returns the format of a type, or of the halves of a packed type.
    pub fn of(ty: Type) -> Option<Self> {
        Some(match ty {
            Type::F16 | Type::F16x2 => F16,
            Type::Bf16 | Type::Bf16x2 => BF16,
            Type::F32 => F32,
            Type::F64 => F64,
            _ => return None,
        })
    }

    fn bits(self) -> u32 {
        self.digits + self.exponent
    }

    fn bias(self) -> i32 {
        (1 << (self.exponent - 1)) - 1
    }

    fn infinity(self) -> u64 {
        ((1 << self.exponent) - 1) << (self.digits - 1)
    }

    /// Returns the NaN that operations of this format return.
    pub fn nan(self) -> u64 {
        if self == F64 { f64::NAN.to_bits() } else { (1 << (self.bits() - 1)) - 1 }
    }

    /// Returns the value of a number. Double precision represents it exactly.
    pub fn decode(self, bits: u64) -> f64 {
        match (self.digits, self.exponent) {
            (53, _) => return f64::from_bits(bits),
            (24, _) => return f64::from(f32::from_bits(bits as u32)),
            (8, _) => return f64::from(f32::from_bits((bits as u32) << 16)),
            _ => {}
        }
        let negative = bits >> (self.bits() - 1) & 1 == 1;
        let exponent = (bits >> (self.digits - 1) & ((1 << self.exponent) - 1)) as i32;
        let fraction = bits & ((1 << (self.digits - 1)) - 1);
        let value = if exponent == (1 << self.exponent) - 1 {
            if fraction == 0 { f64::INFINITY } else { f64::NAN }
        } else {
            let leading = if exponent == 0 { 0 } else { 1 << (self.digits - 1) };
            let scale = exponent.max(1) - self.bias() - (self.digits as i32 - 1);
            (fraction | leading) as f64 * f64::powi(2.0, scale)
        };
        if negative { -value } else { value }
    }

    /// Rounds a double to this format.
    pub fn encode(self, value: f64, rounding: Rounding) -> u64 {
        let bits = value.to_bits();
        let negative = value.is_sign_negative();
        if value.is_nan() {
            return self.nan();
        }
        let sign = u64::from(negative) << (self.bits() - 1);
        if value.is_infinite() {
            return sign | self.infinity();
        }
        let exponent = (bits >> 52 & 0x7ff) as i32;
        let fraction = bits & ((1 << 52) - 1);
        let significand = if exponent == 0 { fraction } else { fraction | 1 << 52 };
        self.encode_parts(negative, significand, exponent.max(1) - 1075, rounding)
    }

    /// Rounds an integer to this format.
    pub fn encode_integer(self, value: i128, rounding: Rounding) -> u64 {
        self.encode_parts(value < 0, value.unsigned_abs() as u64, 0, rounding)
    }

    /// Rounds `significand` times 2 to the power of `exponent`.
    fn encode_parts(
        self,
        negative: bool,
        significand: u64,
        exponent: i32,
        rounding: Rounding,
    ) -> u64 {
        let sign = u64::from(negative) << (self.bits() - 1);
        if significand == 0 {
            return sign;
        }
        let highest = exponent + 63 - significand.leading_zeros() as i32;
        let below = self.digits as i32 - 1;
        let mut unit = highest.max(1 - self.bias()) - below;
        let shift = unit - exponent;
        let mut rounded = if shift <= 0 {
            significand << -shift
        } else {
            let wide = u128::from(significand);
            let shift = shift.min(127) as u32;
            let (whole, rest) = ((wide >> shift) as u64, wide & ((1 << shift) - 1));
            let half = 1u128 << (shift - 1);
            let up = match rounding {
                Rounding::Nearest => rest > half || rest == half && whole & 1 == 1,
                Rounding::NearestAway => rest >= half,
                Rounding::Zero => false,
                Rounding::Down => negative && rest > 0,
                Rounding::Up => !negative && rest > 0,
            };
            whole + u64::from(up)
        };
        if rounded >> self.digits != 0 {
            rounded >>= 1;
            unit += 1;
        }
        if rounded >> below == 0 {
            return sign | rounded;
        }
        let biased = unit + below + self.bias();
        if biased >= (1 << self.exponent) - 1 {
            let to_infinity = match rounding {
                Rounding::Nearest | Rounding::NearestAway => true,
                Rounding::Zero => false,
                Rounding::Down => negative,
                Rounding::Up => !negative,
            };
            return sign | (self.infinity() - u64::from(!to_infinity));
        }
        sign | (biased as u64) << below | rounded & ((1 << below) - 1)
    }
}

/// Returns `a + b`, rounded to odd.
pub(crate) fn add_odd(a: f64, b: f64) -> f64 {
    let sum = a + b;
    let part = sum - a;
    let error = (a - (sum - part)) + (b - part);
    to_odd(sum, error)
}

/// Returns `a / b`, rounded to odd.
pub(crate) fn div_odd(a: f64, b: f64) -> f64 {
    let quotient = a / b;
    let rest = (-quotient).mul_add(b, a);
    to_odd(quotient, if b < 0.0 { -rest } else { rest })
}

/// Returns the square root, rounded to odd.
pub(crate) fn sqrt_odd(a: f64) -> f64 {
    let root = a.sqrt();
    to_odd(root, (-root).mul_add(root, a))
}

/// Returns the odd neighbour of an inexact result. `error` has the sign of the part that was
/// rounded away.
fn to_odd(value: f64, error: f64) -> f64 {
    if !value.is_finite() || error == 0.0 || error.is_nan() || value.to_bits() & 1 == 1 {
        value
    } else if error > 0.0 {
        value.next_up()
    } else {
        value.next_down()
    }
}

/// Rounds to an integer.
pub(crate) fn integral(value: f64, rounding: Rounding) -> f64 {
    match rounding {
        Rounding::Nearest => value.round_ties_even(),
        Rounding::NearestAway => value.round(),
        Rounding::Zero => value.trunc(),
        Rounding::Down => value.floor(),
        Rounding::Up => value.ceil(),
    }
}

/// Flushes a subnormal number to zero.
pub(crate) fn flush(value: f32) -> f32 {
    if value.is_subnormal() { 0f32.copysign(value) } else { value }
}

/// Replaces a NaN by the NaN that a device returns for f32.
pub(crate) fn canonical(value: f32) -> f32 {
    if value.is_nan() { f32::from_bits(NAN_F32) } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_survives_decoding_and_encoding() {
        for format in [F16, BF16] {
            for bits in 0..1 << 16 {
                let value = format.decode(bits);
                if !value.is_nan() {
                    assert_eq!(format.encode(value, Rounding::Nearest), bits);
                }
            }
        }
    }

    #[test]
    fn rounding_to_f32_equals_the_conversion_of_the_host() {
        let mut state = 1u64;
        for _ in 0..100_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let exponent = 870 + (state >> 33) % 300;
            let value = f64::from_bits(state & !(0x7ff << 52) | exponent << 52);
            let expected = u64::from((value as f32).to_bits());
            assert_eq!(F32.encode(value, Rounding::Nearest), expected, "{value:e}");
            let down = f32::from_bits(F32.encode(value, Rounding::Down) as u32);
            let up = f32::from_bits(F32.encode(value, Rounding::Up) as u32);
            assert!(f64::from(down) <= value && value <= f64::from(up));
            assert!(f64::from(down) == value || down.next_up() == up);
        }
    }

    #[test]
    fn halves_round_to_nearest_even() {
        let round = |value: f64| F16.encode(value, Rounding::Nearest);
        // Tests three ranges: numbers between 1 and the next number, numbers between the largest
        // number and infinity, and subnormals.
        assert_eq!(round(1.0 + 1.0 / 2048.0), 0x3c00);
        assert_eq!(round(1.0 + 3.0 / 2048.0), 0x3c02);
        assert_eq!((round(65519.0), round(65520.0)), (0x7bff, 0x7c00));
        assert_eq!((round(2f64.powi(-25)), round(1.5 * 2f64.powi(-25))), (0, 1));
        assert_eq!(F16.encode(-70000.0, Rounding::Zero), 0xfbff);
        assert_eq!(F16.encode_integer(-2049, Rounding::Down), 0xe801);
    }
}
