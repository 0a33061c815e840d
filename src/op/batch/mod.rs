//! Batch operators: what happens to the samples of a finished batch, and to their targets.
//!
//! **A batch operator draws blends of pairs; the frame executes blends.** A pair is the two samples at the places 2k
//! and 2k + 1 of a batch. A [`Blend`] replaces each of them, inside of a window, by a weighted sum of both, and their
//! targets by a weighted sum of both targets. The CPU and the kernel `mix` execute blends and know no operators, so
//! both produce the same bits.
//!
//! To add an operator, add a file here and one line in `batch_operators!`.

use std::fmt;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};

use super::FieldError;

pub use blend::{Blend, Blends, PairDraw};
pub use kernel::{PairParams, mix_kernel_text};
pub use target::{TargetCoding, TargetRow, plain_row, target_rows};

pub mod beta;
mod blend;
mod kernel;
mod target;

/// One step of a loader's batch stage: see [`Chain::then_batch`](super::Chain::then_batch).
///
/// `name` and `draw` are required.
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
    /// Name in TOML, error messages and reports.
    fn name(&self) -> &'static str;

    /// Draws the random numbers of one pair, and adds its blends.
    fn draw(&self, draw: &mut PairDraw<'_>);

    /// Maximum number of blends of a pair. Default 1.
    fn most_blends(&self) -> usize {
        1
    }

    /// Validates the settings. The error names the field and the problem.
    fn check(&self) -> Result<(), FieldError> {
        Ok(())
    }
}

/// A built-in batch operator.
trait BuiltIn: BatchOperator + Sized + DeserializeOwned {
    /// [`BatchOperator::name`].
    const NAME: &'static str;
}

/// List of the built-in batch operators. TOML names are derived from it.
macro_rules! batch_operators {
    ($($module:ident :: $type:ident,)+) => {
        $(
            mod $module;
            pub use $module::$type;
        )+

        /// Names of the built-in batch operators, as in TOML.
        pub const NAMES: &[&str] = &[$(<$type as BuiltIn>::NAME),+];

        /// Reads the settings of the built-in batch operator `name`. Returns `None` if there is no such operator.
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

/// Checks the parameter of a symmetric Beta distribution.
fn check_alpha(field: &str, alpha: f64) -> Result<(), FieldError> {
    super::settings::check_number(field, alpha, beta::ALPHAS.0, beta::ALPHAS.1)
}

/// Checks a probability.
fn check_probability(field: &str, probability: f64) -> Result<(), FieldError> {
    super::settings::check_number(field, probability, 0.0, 1.0)
}
