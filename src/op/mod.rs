//! Operators: what is done to an image between decoding and the tensor.
//!
//! **An image is a function `at(x, y)` that gives a pixel; an operator wraps an image and is an image.**
//! On the device a chain is therefore a nested C++ type (`Normalize<Flip<Resize<Roi>>>`) that is evaluated
//! once per output pixel. On the CPU the same operators run one after another on stored windows. Both work
//! on the same parameter bytes, which [`Operator::prepare`] and [`Spatial::demand`] fold on the host, and
//! both give the same bits.
//!
//! To add an operator: a file here, a file of the same name in `kernels/`, one word in `operators!`.

use std::fmt;
use std::sync::Arc;

use bytemuck::Pod;
use serde::{Deserialize, Deserializer};

use crate::geometry::{Roi, Size, View};
use crate::image::{HostImage, PixelType};
use crate::random::{SampleKey, SampleRng};

pub use abilities::{Cuda, FastPath, Spatial};
#[doc(hidden)]
pub use abilities::{Fusion, Tiling};
pub use chain::{Chain, Placement};
pub use resample::Filter;

#[doc(hidden)]
pub use chain::{AnyOperator, ChainStep, ParamBytes};

mod abilities;
mod chain;
#[doc(hidden)]
pub mod kernel_text;
#[doc(hidden)]
pub mod resample;
mod settings;

/// The built-in operators: the one list from which TOML names, parity tests, self-test and benches follow.
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

        /// Reads the settings of the built-in operator of that name; `None` where there is none.
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

        /// The examples of every built-in operator.
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
/// For every sample the operators of a chain are asked twice: forwards, [`prepare`](Self::prepare) draws
/// what is random and says which size leaves; backwards, [`Spatial::demand`] says which window of the
/// input the wanted window of the output needs. What the first operator demands is what is decoded: that
/// is how crops sink into the decoder.
///
/// A name, the parameters, `prepare` and `reference` are required. An operator that moves pixels also implements [`Spatial`]; one that
/// has a form on the GPU says [`CUDA`](Self::CUDA), and others run on the CPU, with decoding and all operators before them.
pub trait Operator: Clone + fmt::Debug + Send + Sync + 'static {
    /// Name in TOML, in errors and in reports.
    const NAME: &'static str;
    /// Everything that one sample needs, as plain bytes, the same on CPU and GPU: at most
    /// [`MAX_PARAMS_BYTES`], a multiple of 8.
    type Params: Pod;
    /// The form on a GPU; `None`, the default, for the CPU alone.
    const CUDA: Option<Cuda> = None;

    /// Draws this sample's random choices and folds settings and size into numbers; gives the size that
    /// leaves, which is never empty.
    fn prepare(&self, input: Size, rng: &mut SampleRng) -> (Size, Self::Params);

    /// The reference: short, plain, and what the CUDA text and every fast path are compared with.
    ///
    /// `out` has its pixel type and window; `src` holds at least the window that was demanded for it. `table` is what
    /// [`Spatial::demand`] has appended, empty without that.
    fn reference(params: &Self::Params, table: &[i32], src: &HostImage, out: &mut HostImage);

    /// Whether the settings can be: on failure the field and what is wrong with it.
    fn check(&self) -> Result<(), FieldError> {
        Ok(())
    }

    /// The pixel type that leaves for one that enters; an error says what to do instead.
    fn pixels(&self, input: PixelType) -> Result<PixelType, String> {
        Ok(input)
    }

    /// The size with which every sample leaves, where it is the same for all; `input` is that of the
    /// samples that enter, where that is the same for all.
    fn fixed_output(&self, input: Option<Size>) -> Option<Size> {
        input
    }

    /// Whether samples differ by what [`prepare`](Self::prepare) draws. [`Preprocessor`](crate::Preprocessor) refuses such operators.
    /// The default looks whether anything is drawn for an image of 500x375.
    fn is_random(&self) -> bool {
        let mut rng = SampleRng::new(SampleKey { seed: 0, epoch: 0, index: 0 }, 0);
        self.prepare(Size::new(500, 375), &mut rng);
        rng.has_drawn()
    }

    /// How it moves pixels; `None`, the default, where each pixel stays in its place.
    fn spatial(&self) -> Option<&dyn Spatial<Self::Params>> {
        None
    }

    /// How the CPU runs it faster than by the reference, where it can.
    fn fast_path(&self) -> Option<&dyn FastPath<Self::Params>> {
        None
    }
}

/// Instances of a built-in operator that the parity tests, the self-test and the benches run.
trait Examples: Sized {
    fn examples() -> Vec<Self>;
}

/// Most bytes of an operator's parameters.
pub const MAX_PARAMS_BYTES: usize = 96;

/// A field of an operator that cannot be: its name (`std[1]`) and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FieldError {
    /// The field, as in TOML.
    pub field: String,
    /// What is wrong, with the value.
    pub problem: String,
}

impl FieldError {
    /// A field with its problem.
    pub fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { field: field.into(), problem: problem.into() }
    }
}

/// Which part of an operator's output is wanted.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Size of the whole input as it is there: after the decoder's reduction, where there was one.
    pub input: Size,
    /// The decoder reduced both sides by this factor (1, 2, 4 or 8) after [`Operator::prepare`] saw the full
    /// size. More than 1 only for the first operator of a chain, and only where that resamples.
    pub reduction: u32,
    /// The window of the output.
    pub output: Roi,
}

/// Bounds on the size of any image, and on the window of it that is wanted.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Most pixels.
    pub pixels: u64,
    /// Most columns, and most rows.
    pub side: u32,
    /// The largest window of the operator's output that is ever wanted, where that is known: the size at
    /// which a following crop leaves. `resize` with `shorter` has no bound without it, as an image of one
    /// row would become as many columns as there are pixels.
    pub wanted: Option<Size>,
}

/// What happened to one sample, in coordinates of the upright image.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Trace {
    /// The part of the image that is left after the crops with which the chain begins.
    pub roi: Roi,
    /// Whether a following crop still cuts the image itself (nothing but crops came before it).
    pub cropping: bool,
    /// Mirrored left to right.
    pub flipped_horizontally: bool,
    /// Mirrored top to bottom.
    pub flipped_vertically: bool,
    /// Where the image is in what leaves the chain.
    pub view: View,
}

impl Trace {
    /// Nothing has happened yet to an image of this size.
    pub fn new(size: Size) -> Self {
        Self { roi: size.window(), cropping: true, view: View::new(size), ..Self::default() }
    }

    /// Cuts a window, in coordinates of what is left, clipped to it.
    pub fn crop(&mut self, window: Roi) {
        if self.cropping {
            let left = Roi { x: 0, y: 0, ..self.roi };
            let cut = window.intersection(left);
            self.roi = Roi { x: self.roi.x + cut.x, y: self.roi.y + cut.y, ..cut };
        }
    }
}
