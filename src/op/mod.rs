//! Operators: the steps between decoding and the tensor.
//!
//! **An image is a function `at(x, y)` that returns a pixel. An operator wraps an image and is itself an image.** On
//! the GPU a chain is therefore a nested C++ type (`Normalize<Flip<Resize<Roi>>>`) that is evaluated once per output
//! pixel. On the CPU the same operators run one after another on stored windows. Both read the same parameter bytes,
//! which [`Operator::prepare`] and [`Spatial::demand`] compute on the host, and both produce the same bits.
//!
//! To add an operator, add a file here, a file of the same name in `kernels/` and one line in `operators!`.

use std::fmt;
use std::sync::Arc;

use bytemuck::Pod;
use serde::{Deserialize, Deserializer};

use crate::geometry::Size;
use crate::image::{HostImage, PixelType};
use crate::random::{SampleKey, SampleRng};

pub(crate) use abilities::{Cuda, FastPath, Spatial};
#[doc(hidden)]
pub use abilities::{Fusion, Tiling};
pub use chain::{Chain, Placement};
pub(crate) use custom::{Bounds, FieldError, MAX_PARAMS_BYTES, Trace, Wanted};
pub use resample::Filter;

#[doc(hidden)]
pub use chain::{AnyOperator, ChainStep, ParamBytes};

mod abilities;
mod chain;
pub mod custom;
#[doc(hidden)]
pub mod formula;
#[doc(hidden)]
pub mod kernel_text;
mod params;
#[doc(hidden)]
pub mod resample;
mod settings;

/// List of the built-in operators. TOML names, parity tests, self-test and benches are derived from it.
macro_rules! operators {
    ($($module:ident :: $type:ident),+ $(,)?) => {
        $(
            #[doc(hidden)]
            pub mod $module;
            pub use $module::$type;
        )+

        /// Names of the built-in operators, as in TOML.
        #[doc(hidden)]
        pub const NAMES: &[&str] = &[$($type::NAME),+];

        /// Reads the settings of the built-in operator `name`. Returns `None` if there is no such operator.
        #[doc(hidden)]
        pub fn read<'de, D: Deserializer<'de>>(
            name: &str,
            settings: D,
        ) -> Option<Result<Arc<dyn AnyOperator>, D::Error>> {
            match name {
                $($type::NAME => Some($type::deserialize(settings).map(|it| Arc::new(it) as _)),)+
                _ => None,
            }
        }

        /// Examples of all built-in operators.
        #[doc(hidden)]
        pub fn examples() -> Vec<Arc<dyn AnyOperator>> {
            let mut all: Vec<Arc<dyn AnyOperator>> = Vec::new();
            $(all.extend(<$type as Examples>::examples().into_iter().map(|it| Arc::new(it) as _));)+
            all
        }
    };
}

operators! {
    crop::Crop,
    center_crop::CenterCrop,
    random_crop::RandomCrop,
    random_resized_crop::RandomResizedCrop,
    resize::Resize,
    flip::Flip,
    normalize::Normalize,
}

/// One step of a chain.
///
/// The operators of a chain run in two passes per sample. The forward pass calls [`prepare`](Self::prepare), which
/// draws random numbers and returns the output size. The backward pass calls [`Spatial::demand`], which returns the
/// input window that a given output window needs. Only the window that the first operator needs is decoded, so crops
/// become partial decodes.
///
/// `NAME`, `Params`, `prepare` and `reference` are required. An operator that moves pixels also implements
/// [`Spatial`]. An operator with a GPU implementation sets [`CUDA`](Self::CUDA). Any other operator runs on the CPU,
/// and so do decoding and all operators before it.
pub trait Operator: Clone + fmt::Debug + Send + Sync + 'static {
    /// Name in TOML, error messages and reports.
    const NAME: &'static str;
    /// Parameters of one sample as plain bytes, identical on CPU and GPU. At most [`MAX_PARAMS_BYTES`] bytes, a
    /// multiple of 8.
    type Params: Pod;
    /// CUDA implementation. `None`, the default, means that the operator runs only on the CPU.
    const CUDA: Option<Cuda> = None;

    /// Draws the random numbers of one sample and computes its parameters. Returns the output size, which is never
    /// empty, and the parameters.
    fn prepare(&self, input: Size, rng: &mut SampleRng) -> (Size, Self::Params);

    /// Reference implementation: short and simple. The CUDA text and every fast path are compared with it.
    ///
    /// `out` has its pixel type and window set. `src` holds at least the window that `demand` returned. `table` holds
    /// what [`Spatial::demand`] appended and is empty for operators without `Spatial`.
    fn reference(params: &Self::Params, table: &[i32], src: &HostImage, out: &mut HostImage);

    /// Validates the settings. The error names the field and the problem.
    fn check(&self) -> Result<(), FieldError> {
        Ok(())
    }

    /// Output pixel type for an input pixel type. The error says what to do instead.
    fn pixels(&self, input: PixelType) -> Result<PixelType, String> {
        Ok(input)
    }

    /// Output size if it is the same for all samples. `input` is the input size if that is the same for all samples.
    fn fixed_output(&self, input: Option<Size>) -> Option<Size> {
        input
    }

    /// Whether the output depends on the random numbers that [`prepare`](Self::prepare) draws.
    /// [`Preprocessor`](crate::Preprocessor) refuses such operators. The default checks whether `prepare` draws a
    /// number for a 500x375 image.
    fn is_random(&self) -> bool {
        let mut rng = SampleRng::new(SampleKey { seed: 0, epoch: 0, index: 0 }, 0);
        self.prepare(Size::new(500, 375), &mut rng);
        rng.has_drawn()
    }

    /// How the operator moves pixels. `None`, the default, means that each pixel keeps its position.
    fn spatial(&self) -> Option<&dyn Spatial<Self::Params>> {
        None
    }

    /// Faster CPU implementation. Default `None`: the CPU runs the reference.
    fn fast_path(&self) -> Option<&dyn FastPath<Self::Params>> {
        None
    }
}

/// Instances of a built-in operator for the parity tests, the self-test and the benches.
trait Examples: Sized {
    fn examples() -> Vec<Self>;
}
