//! Loops over pixels that are compiled twice: for the instructions that every CPU of the target has, and for AVX2.
//!
//! The source is the same, and the compiler keeps the order of floating-point operations and does not join them, so the
//! bits are the same too.

#![cfg_attr(target_arch = "x86_64", allow(unsafe_code))]

/// A loop whose results do not depend on the instructions.
pub trait Loop {
    /// Runs it. To be `#[inline(always)]`, as everything that it calls: only what is inlined uses the instructions.
    fn run(self);
}

/// Instructions that loops may use. Each value is one that this CPU has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instructions {
    #[cfg(target_arch = "x86_64")]
    avx2: bool,
}

impl Instructions {
    /// Those of every CPU of the target.
    pub const PLAIN: Self = Self {
        #[cfg(target_arch = "x86_64")]
        avx2: false,
    };

    /// Those of this CPU.
    #[inline]
    pub fn here() -> Self {
        Self {
            #[cfg(target_arch = "x86_64")]
            avx2: std::arch::is_x86_feature_detected!("avx2"),
        }
    }

    /// Runs a loop with these instructions.
    #[inline]
    pub fn run(self, it: impl Loop) {
        #[cfg(target_arch = "x86_64")]
        if self.avx2 {
            // SAFETY: only `here` sets it, where the CPU has AVX2.
            return unsafe { with_avx2(it) };
        }
        it.run();
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn with_avx2(it: impl Loop) {
    it.run();
}

#[cfg(test)]
mod tests {
    use super::Instructions;
    use crate::geometry::Size;
    use crate::op::kind::RowPosition;
    use crate::op::{self, Actions, What};
    use crate::random::SampleKey;

    /// Rows longer than a block of pixels, with every byte in every channel.
    #[test]
    fn all_instructions_give_the_same_pixels() {
        let bytes: Vec<u8> = (0..3 * 333u32).map(|at| (at * at / 7 + at) as u8).collect();
        let row: &[[u8; 3]] = bytes.as_chunks().0;
        let mut compared = 0;
        for operator in op::examples() {
            let actions = Actions::of([&*operator], SampleKey::default(), Size::new(333, 3));
            for action in &actions.list {
                let What::Pixel(form, params) = &action.what else { continue };
                let Some(change) = form.bytes else { continue };
                let at = RowPosition { x: 332, step: -1, y: 1 };
                let [plain, wide] = [Instructions::PLAIN, Instructions::here()].map(|set| {
                    let mut row = row.to_vec();
                    change(params, at, &mut row, set);
                    row
                });
                assert_eq!(plain, wide, "{operator:?}");
                compared += 1;
            }
        }
        assert!(compared > 20, "{compared}");
    }
}
