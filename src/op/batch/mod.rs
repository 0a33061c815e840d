//! Batch operators, which change the samples of a finished batch and their targets.
//!
//! **A batch operator only draws blends of pairs. Other code executes the blends.** A pair is the
//! two samples at the places 2k and 2k + 1 of a batch. A [`Blend`] replaces each of these samples,
//! inside a window, by a weighted sum of both samples. It also replaces each target by a weighted
//! sum of both targets. The CPU and the kernel `mix` execute blends, whatever operator drew them,
//! and produce the same bits.
//!
//! To add a batch operator, add a file to this folder and one line to `batch_operators!`.

use std::fmt;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};

use super::FieldError;

pub use blend::{Blend, Blends, PairDraw};
pub use kernel::{MaskPairParams, PairParams, mix_kernel_text, mix_masks_kernel_text};
pub use target::{TargetCoding, TargetRow, plain_row, target_rows};

pub mod beta;
mod blend;
mod kernel;
mod target;

/// An operator on pairs of samples of a finished batch.
/// [`Chain::then_batch`](super::Chain::then_batch) appends it to a chain.
///
/// Only `name` and `draw` must be implemented.
///
/// ```
/// use feedwater::op::{BatchOperator, PairDraw};
/// use feedwater::{Roi, Size};
///
/// /// Exchanges the lower halves of the two images of every second pair.
/// #[derive(Debug)]
/// struct SwapHalves;
///
/// impl BatchOperator for SwapHalves {
///     fn name(&self) -> &'static str {
///         "swap_halves"
///     }
///
///     fn draw(&self, draw: &mut PairDraw<'_>) {
///         let Size { width, height } = draw.size();
///         if draw.rng().chance(0.5) {
///             draw.blend(Roi::new(0, height / 2, width, height - height / 2), 0.0, 0.5);
///         }
///     }
/// }
/// ```
pub trait BatchOperator: fmt::Debug + Send + Sync + 'static {
    /// Name of the operator in TOML, error messages and reports.
    fn name(&self) -> &'static str;

    /// Draws the random numbers of one pair, and adds the pair's blends.
    fn draw(&self, draw: &mut PairDraw<'_>);

    /// Maximum number of blends that the operator draws for a pair. Default 1.
    fn most_blends(&self) -> usize {
        1
    }

    /// Whether all blends have the weight 0, so that they exchange elements of the two samples. If
    /// so, they also exchange elements of masks, which cannot be summed. Default false.
    fn only_exchanges(&self) -> bool {
        false
    }

    /// Validates the settings. The error names the field and the problem.
    fn check(&self) -> Result<(), FieldError> {
        Ok(())
    }
}

/// A built-in batch operator.
trait BuiltIn: BatchOperator + Sized + DeserializeOwned {
    /// Name that [`BatchOperator::name`] returns.
    const NAME: &'static str;
}

/// List of the built-in batch operators. The TOML names are derived from this list.
macro_rules! batch_operators {
    ($($module:ident :: $type:ident,)+) => {
        $(
            mod $module;
            pub use $module::$type;
        )+

        /// Names of the built-in batch operators, as in TOML.
        pub const NAMES: &[&str] = &[$(<$type as BuiltIn>::NAME),+];

        /// Reads the settings of the built-in batch operator `name`. Returns `None` if there is no
        /// such operator.
        pub fn read<'de, D: Deserializer<'de>>(
            name: &str,
            settings: D,
        ) -> Option<Result<Arc<dyn BatchOperator>, D::Error>> {
            match name {
                $(<$type as BuiltIn>::NAME => {
                    Some($type::deserialize(settings).map(|it| Arc::new(it) as _))
                })+
                _ => None,
            }
        }
    };
}

batch_operators! {
    mixup::Mixup,
    cutmix::CutMix,
    mixup_or_cutmix::MixupOrCutMix,
}

/// Checks `alpha`, the parameter of a symmetric Beta distribution.
fn check_alpha(field: &str, alpha: f64) -> Result<(), FieldError> {
    super::settings::check_number(field, alpha, beta::ALPHAS.0, beta::ALPHAS.1)
}

/// Checks a probability.
fn check_probability(field: &str, probability: f64) -> Result<(), FieldError> {
    super::settings::check_number(field, probability, 0.0, 1.0)
}
