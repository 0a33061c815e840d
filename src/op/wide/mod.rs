//! Loops over pixels that are compiled for several instruction sets: the instructions that every
//! CPU of the target has, AVX2, and AVX-512 with its permutations of bytes.
//!
//! All versions have the same source. The compiler neither reorders nor fuses floating-point
//! operations, so all versions give the same bits. The module `avx512` has code that compilers do
//! not generate from loops.

#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
mod avx512;
pub mod bytes;
pub mod elements;
pub mod pixels;
pub mod writer;

use crate::tensor::CHANNELS;

use pixels::{MapRow, PixelMap, Plain, Shuffles};

/// A loop whose results do not depend on the instruction set.
pub trait Loop {
    /// Runs the loop. This function and everything that it calls must be `#[inline(always)]`,
    /// because only inlined code is compiled for the instruction set.
    fn run(self, shuffles: impl Shuffles);
}

/// Instruction set that loops may use. A value exists only if this CPU has the instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instructions(Set);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Set {
    Plain,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Instructions {
    /// Instructions that every CPU of the target has.
    pub const PLAIN: Self = Self(Set::Plain);

    /// Largest instruction set that this CPU has.
    #[inline]
    pub fn here() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::is_x86_feature_detected as has;
            let bytes = has!("avx512bw") && has!("avx512vbmi");
            if bytes && has!("avx512f") && has!("avx512vl") && has!("avx512dq") && has!("avx2") {
                return Self(Set::Avx512);
            }
            if has!("avx2") {
                return Self(Set::Avx2);
            }
        }
        Self::PLAIN
    }

    /// All instruction sets that this CPU has.
    pub fn all() -> Vec<Self> {
        let all = [
            Set::Plain,
            #[cfg(target_arch = "x86_64")]
            Set::Avx2,
            #[cfg(target_arch = "x86_64")]
            Set::Avx512,
        ];
        let has = all.iter().position(|set| *set == Self::here().0).unwrap_or(0);
        all[..=has].iter().map(|set| Self(*set)).collect()
    }

    /// Runs a loop with this instruction set.
    #[inline]
    pub fn run(self, it: impl Loop) {
        match self.0 {
            Set::Plain => it.run(Plain),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: only `here` and `all` create this value, on a CPU with AVX2.
            Set::Avx2 => unsafe { with_avx2(it) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: only `here` and `all` create this value, on a CPU with all instructions that
            // `with_avx512` needs.
            Set::Avx512 => unsafe { with_avx512(it) },
        }
    }

    /// Applies the function `map` to every pixel of a row.
    pub fn map(self, row: &mut [[u8; CHANNELS]], map: &impl PixelMap) {
        self.run(MapRow { row, map });
    }

    /// Whether the set includes AVX-512's permutations of bytes.
    #[cfg(target_arch = "x86_64")]
    fn has_avx512(self) -> bool {
        self.0 == Set::Avx512
    }
}

/// Clamps a number to 0..=255 and truncates it, as a cast to `u8` does. Compilers vectorize this
/// code, but not the cast.
#[inline(always)]
#[expect(clippy::manual_clamp, reason = "unlike `max` and `min`, `clamp` returns NaN for NaN")]
pub fn truncated(value: f32) -> i32 {
    let cut = value.max(0.0).min(255.0);
    // SAFETY: the number is from 0 to 255, because `max` replaces NaN by 0.
    unsafe { cut.to_int_unchecked() }
}

/// Clamps a number to -2^30..=2^30 and truncates it. Compilers vectorize this code.
#[inline(always)]
pub fn truncated_double(value: f64) -> i32 {
    let cut = value.max(f64::from(-1 << 30)).min(f64::from(1 << 30));
    // SAFETY: the number is from -2^30 to 2^30, because `max` replaces NaN by -2^30.
    unsafe { cut.to_int_unchecked() }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn with_avx2(it: impl Loop) {
    it.run(Plain);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi")]
fn with_avx512(it: impl Loop) {
    // SAFETY: the caller guarantees that the CPU has AVX-512F, AVX-512BW and AVX-512VBMI.
    it.run(unsafe { avx512::Permutations::new() });
}

#[cfg(test)]
mod tests {
    use super::Instructions;
    use crate::geometry::Size;
    use crate::op::kind::RowPosition;
    use crate::op::{self, ActionParams, Actions};
    use crate::random::SampleKey;

    /// Compares rows that are longer than a block of pixels, with every byte value in every
    /// channel.
    #[test]
    fn all_instructions_give_the_same_pixels() {
        let bytes: Vec<u8> = (0..3 * 333u32).map(|at| (at * at / 7 + at) as u8).collect();
        let row: &[[u8; 3]] = bytes.as_chunks().0;
        let mut compared = 0;
        for operator in op::list_of_operators::examples() {
            let actions = Actions::of([&*operator], SampleKey::default(), Size::new(333, 3));
            for action in &actions.list {
                let ActionParams::Pixel(pixel) = &action.params else { continue };
                let Some(change) = pixel.formula.bytes else { continue };
                let at = RowPosition { x: 332, step: -1, y: 1 };
                let by = |set| {
                    let mut row = row.to_vec();
                    change(&pixel.params, at, &mut row, set);
                    row
                };
                let plain = by(Instructions::PLAIN);
                assert!(Instructions::all().into_iter().all(|it| by(it) == plain), "{operator:?}");
                compared += 1;
            }
        }
        assert!(compared > 20, "{compared}");
    }
}
