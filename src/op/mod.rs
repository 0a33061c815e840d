//! Operators: the steps between decoding and the tensor.
//!
//! **An operator draws actions. Each action has a kind. The CPU transform and the kernels execute
//! kinds, and contain no code for single operators.** For every sample an operator turns its
//! settings and random numbers into actions ([`Operator::draw`]), such as crops, resamplings and
//! look-up tables ([`custom::Kind`]). The parameters of the actions are computed once, on the CPU.
//! The CPU transform and the kernels use the same parameters and produce the same bits.
//!
//! A **kind** is the way in which an action is executed. A **formula** is the arithmetic of an
//! operator: a pure function in Rust, and the same function in CUDA if the operator runs on the
//! GPU.
//!
//! | folder | holds |
//! |---|---|
//! | `colour`, `erase`, `filter`, `noise`, `policy`, `spatial` | operators, one file or folder each |
//! | `shared` | formulas that several operators use |
//! | `combine` | operators that run other operators |
//! | `batch` | operators on pairs of samples |
//! | `kind` | kinds of actions, one file each |
//! | `resample`, `warp` | the arithmetic of resamplings and warps |
//! | `program` | the program kernel, which reads the actions of each sample as data |
//! | `wide` | loops that are compiled for several instruction sets |
//!
//! To add an operator, add a file here and one line in `operators!`. Code elsewhere changes only if
//! the operator needs a new kind (`kind/`).

use std::fmt;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};

use crate::geometry::Size;
use crate::image::{PixelFormat, PixelType};
use crate::random::{OperatorPath, SampleKey, SampleRng};
use crate::tensor::CHANNELS;

pub use batch::{BatchOperator, Blend, Blends, CutMix, Mixup, MixupOrCutMix, PairDraw};
pub use chain::{Chain, Placement, View};
pub use combine::{OneOf, RandomApply, RandomOrder, SomeOf, WithAlpha};
pub(crate) use custom::{Bounds, FieldError, MAX_PARAMS_BYTES, Trace, Wanted};
pub use draw::Draw;
pub use erase::random_erasing::ErasingMode;
pub(crate) use kind::Cuda;
pub use kind::{Kind, Kinds};
pub use policy::auto_augment::AutoAugmentPolicy;
pub use policy::steps::TransformsVersion;
pub use resample::Filter;
pub use shared::padding::PadMode;
pub use warp::Interpolation;
pub(crate) use warp::{OriginMap, OriginRows};

pub(crate) use action::Action;
pub(crate) use actions::Actions;
pub(crate) use chain::ChainStep;
pub(crate) use kind::ActionParams;
pub(crate) use list_of_operators::{NAMES, read};
pub(crate) use param_bytes::ParamBytes;
pub use record::{DrawnAction, DrawnOperator};

pub(crate) mod action;
pub(crate) mod actions;
pub(crate) mod batch;
pub(crate) mod chain;
pub(crate) mod combine;
pub mod custom;
pub(crate) mod device_chain;
mod draw;
pub(crate) mod kernel_text;
pub(crate) mod kind;
pub(crate) mod mask;
mod param_bytes;
pub(crate) mod program;
mod record;
pub(crate) mod resample;
mod settings;
pub(crate) mod shared;
pub(crate) mod warp;
pub(crate) mod wide;

/// List of the built-in operators: first those of this folder, then those of each subfolder. Files
/// that several operators of a subfolder share are in brackets. TOML names, parity tests, self-test
/// and benches are derived from this list.
macro_rules! operators {
    (
        $($module:ident :: $type:ident),+;
        $($folder:ident $([$($beside:ident),+])? { $($inner:ident :: $inner_type:ident,)+ })*
    ) => {
        $(
            pub(crate) mod $module;
            pub use $module::$type;
        )+
        $(
            pub(crate) mod $folder {
                $($(pub mod $beside;)+)?
                $(pub mod $inner;)+
            }
            $(pub use $folder::$inner::$inner_type;)+
        )*

        operators!(@all $($type)+ $($($inner_type)+)*);
    };
    (@all $($type:ident)+) => {
        pub(crate) mod list_of_operators {
            use crate::op::*;

            /// Names of the built-in operators, as in TOML.
            pub const NAMES: &[&str] = &[$(<$type as BuiltIn>::NAME),+];

            /// Reads the settings of the built-in operator `name`. Returns `None` if there is no
            /// such operator.
            pub fn read<'de, D: Deserializer<'de>>(
                name: &str,
                settings: D,
            ) -> Option<Result<Arc<dyn Operator>, D::Error>> {
                match name {
                    $(<$type as BuiltIn>::NAME => {
                        Some($type::deserialize(settings).map(|it| Arc::new(it) as _))
                    })+
                    _ => None,
                }
            }

            /// Settings of the examples of the built-in operator `name`, as serde serializes them.
            pub fn example_settings(name: &str) -> Vec<serde_json::Value> {
                match name {
                    $(<$type as BuiltIn>::NAME => {
                        let examples = <$type as BuiltIn>::examples();
                        examples.iter().filter_map(|it| serde_json::to_value(it).ok()).collect()
                    })+
                    _ => Vec::new(),
                }
            }

            /// Examples of all built-in operators.
            pub fn examples() -> Vec<Arc<dyn Operator>> {
                let mut all: Vec<Arc<dyn Operator>> = Vec::new();
                $(all.extend(<$type as BuiltIn>::examples().into_iter().map(|it| Arc::new(it) as _));)+
                all
            }
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
    normalize::Normalize;
    colour {
        autocontrast::Autocontrast,
        brightness::Brightness,
        channel_permutation::ChannelPermutation,
        color_jitter::ColorJitter,
        color_twist::ColorTwist,
        contrast::Contrast,
        equalize::Equalize,
        gamma::Gamma,
        grayscale::Grayscale,
        hue::Hue,
        invert::Invert,
        lighting::Lighting,
        normalize_image::NormalizeImage,
        photometric_distort::PhotometricDistort,
        pointwise::Pointwise,
        posterize::Posterize,
        random_grayscale::RandomGrayscale,
        saturation::Saturation,
        solarize::Solarize,
        to_ycbcr::ToYcbcr,
    }
    erase {
        cutout::Cutout,
        grid_mask::GridMask,
        random_erasing::RandomErasing,
    }
    filter [box_blur] {
        gaussian_blur::GaussianBlur,
        jpeg_distortion::JpegDistortion,
        sharpen::Sharpen,
        sharpness::Sharpness,
    }
    noise {
        gaussian_noise::GaussianNoise,
        salt_and_pepper::SaltAndPepper,
    }
    spatial [border] {
        affine::Affine,
        elastic::Elastic,
        five_crop::FiveCrop,
        letterbox::Letterbox,
        pad::Pad,
        perspective::Perspective,
        random_affine::RandomAffine,
        random_iou_crop::RandomIouCrop,
        random_perspective::RandomPerspective,
        random_resize::RandomResize,
        random_rotation::RandomRotation,
        random_shortest_size::RandomShortestSize,
        random_zoom_out::RandomZoomOut,
        resize_keep_ratio::ResizeKeepRatio,
        rotate::Rotate,
        scale_jitter::ScaleJitter,
        ten_crop::TenCrop,
        thumbnail::Thumbnail,
    }
    policy [apply, steps, timm] {
        aug_mix::AugMix,
        auto_augment::AutoAugment,
        rand_augment::RandAugment,
        three_augment::ThreeAugment,
        timm_aug_mix::TimmAugMix,
        timm_auto_augment::TimmAutoAugment,
        timm_rand_augment::TimmRandAugment,
        trivial_augment_wide::TrivialAugmentWide,
    }
}

/// One operator of a chain.
///
/// For every sample, [`draw`](Self::draw) turns settings and random numbers into actions. A
/// backward pass over all actions then computes the window that each action needs of its input. The
/// decoder decodes only the window that the first action needs, so a crop makes decoding cheaper.
///
/// Only `name`, `kinds` and `draw` must be implemented.
pub trait Operator: fmt::Debug + Send + Sync + 'static {
    /// Name of the operator in TOML, error messages and reports.
    fn name(&self) -> &'static str;

    /// Kinds of the actions that [`draw`](Self::draw) adds. If one of them has no CUDA
    /// implementation, this operator, all operators before it and the decoder run on the CPU.
    fn kinds(&self) -> Kinds;

    /// Draws the random numbers of one sample and adds the sample's actions.
    fn draw(&self, draw: &mut Draw<'_>);

    /// Validates the settings. The error names the field and the problem.
    fn check(&self) -> Result<(), FieldError> {
        Ok(())
    }

    /// Output pixel type for an input pixel type. The error tells the user what to do instead.
    /// Default: the pixel type that follows from [`kinds`](Self::kinds).
    fn pixels(&self, input: PixelType) -> Result<PixelType, String> {
        pixels(self.name(), &self.kinds(), input)
    }

    /// Number of channels of the output, 4, 3 or 1, for an input with `input` channels. An image
    /// with one channel is gray: its red, green and blue are equal, an implementation must keep
    /// them equal, and the tensor has only one of them. Four channels are red, green, blue and
    /// alpha; the operator then also runs on an image with alpha as red, green and blue. The error
    /// tells the user what to do instead if the operator has no meaning for `input`. Default:
    /// `input`.
    fn channels(&self, input: usize) -> Result<usize, String> {
        Ok(input)
    }

    /// The operator that a chain runs instead of this one on images of this format. `None` means
    /// this operator. The error tells the user what to do instead if there is none. Default: this
    /// operator, if the format is `u8` or `u8x3` or all kinds of the operator move pixels.
    #[doc(hidden)]
    fn for_format(&self, format: PixelFormat) -> Result<Option<Arc<dyn Operator>>, FieldError> {
        supports(self, format).map(|()| None)
    }

    /// Ways to use this operator although its settings have no meaning for an alpha channel, for
    /// an error. Default: none.
    #[doc(hidden)]
    fn for_alpha(&self) -> &'static str {
        ""
    }

    /// Name of the setting that selects how the operator computes values between pixels, and
    /// whether it selects the nearest pixel. `None`, the default, for operators without this
    /// setting.
    #[doc(hidden)]
    fn interpolation(&self) -> Option<(&'static str, bool)> {
        None
    }

    /// Whether the operator only overwrites pixels with one value per channel, so it also has a
    /// meaning for an alpha channel. Default false.
    #[doc(hidden)]
    fn fills_channels(&self) -> bool {
        false
    }

    /// Output size if it is the same for all samples, else `None`. `input` is the input size if it
    /// is the same for all samples.
    fn fixed_output(&self, input: Option<Size>) -> Option<Size> {
        input
    }

    /// Maximum number of columns and of rows of the output for an input of this size. Default:
    /// [`fixed_output`](Self::fixed_output), or the size of the input if this is `None`.
    fn largest_output(&self, input: Size) -> Size {
        self.fixed_output(Some(input)).unwrap_or(input)
    }

    /// Upper bound for the output size if only one operator runs. For a combinator, this is the
    /// maximum over its operators, each applied to `input` alone. Default:
    /// [`largest_output`](Self::largest_output).
    #[doc(hidden)]
    fn largest_alone(&self, input: Size) -> Size {
        self.largest_output(input)
    }

    /// Operators of a combinator, which may run in any order, each at most once. Default: none.
    #[doc(hidden)]
    fn inner(&self) -> &[Arc<dyn Operator>] {
        &[]
    }

    /// Whether the output depends on random numbers. [`Preprocessor`](crate::Preprocessor) refuses
    /// such operators. Default: whether `draw` draws a random number for an image of 500x375
    /// pixels.
    fn is_random(&self) -> bool {
        let (sample, path) = (SampleKey::default(), OperatorPath::CHAIN);
        let rng = SampleRng::of_operator(sample, path);
        let (size, actions, tables) = (Size::new(500, 375), &mut Vec::new(), &mut Vec::new());
        let (trace, present) = (&Trace::new(size), &mut Vec::new());
        let boxes = draw::Boxes { upright: &[], trace, first: 0, present };
        let (channels, floats, output, record) = (CHANNELS, false, 0, None);
        let mut draw = Draw {
            size,
            channels,
            floats,
            is_alpha: false,
            sample,
            output,
            path,
            rng,
            actions,
            tables,
            boxes,
            record,
        };
        self.draw(&mut draw);
        draw.rng.has_drawn()
    }

    /// Number of different outputs that the operator makes of one image. Default 1. An operator
    /// with several outputs must be in the chain of a [`View`], whose column has an axis for them.
    /// [`Draw::output`] returns the number of the output.
    fn outputs(&self) -> u32 {
        1
    }

    /// Whether [`draw`](Self::draw) reads the boxes of the sample's objects ([`Draw::by_boxes`]).
    /// Default false.
    fn reads_boxes(&self) -> bool {
        false
    }

    /// Maximum number of 32-bit table entries whose number depends on the image size: coefficients
    /// of the resamplings and fields of displacements that [`draw`](Self::draw) adds. Inputs have
    /// at most `bounds.pixels` pixels and at most `bounds.side` columns or rows. Default: 0, for
    /// operators that add neither.
    fn coefficients(&self, bounds: Bounds) -> usize {
        let _ = bounds;
        0
    }
}

/// A built-in operator.
trait BuiltIn: Operator + Sized + DeserializeOwned + Serialize {
    /// Name that [`Operator::name`] returns.
    const NAME: &'static str;

    /// Examples of the operator for the parity tests, the self-test and the benches.
    fn examples() -> Vec<Self>;
}

/// Checks that an operator supports decoded images of this format without a change: the default of
/// [`Operator::for_format`].
fn supports<O: Operator + ?Sized>(operator: &O, format: PixelFormat) -> Result<(), FieldError> {
    let takes_all = match format {
        PixelFormat::Indices | PixelFormat::U8x4 => operator.fills_channels(),
        _ => !format.is_floats(),
    };
    let is_between = format == PixelFormat::Indices && operator.kinds().read_neighbours();
    match operator.interpolation() {
        Some((setting, false)) if is_between => {
            let problem = format!(
                "of {} is not nearest, but the pixels are indices, which have no mean; set it \
                 to nearest",
                operator.name()
            );
            return Err(FieldError::new(setting, problem));
        }
        None if is_between => {}
        _ if takes_all || operator.kinds().take_decoded_floats() => return Ok(()),
        _ => {}
    }
    let mixes = operator.kinds().list().iter().any(|it| it.is_executed(kind::Execution::Mix));
    let takes_parts = format.has_alpha() || format == PixelFormat::Indices && !mixes;
    let inner = operator.inner().iter().enumerate();
    let mut inner = inner.filter_map(|(number, it)| Some((number, it.for_format(format).err()?)));
    Err(match inner.next() {
        Some((number, error)) => {
            FieldError::new(format!("operators[{number}].{}", error.field), error.problem)
        }
        None if takes_parts && !operator.inner().is_empty() => return Ok(()),
        None => FieldError::new("op", unsupported(operator.name(), format, operator.for_alpha())),
    })
}

/// Problem of an operator that does not support decoded pixels of this format.
fn unsupported(name: &str, format: PixelFormat, for_alpha: &str) -> String {
    if format.has_alpha() && !format.is_floats() {
        return format!(
            "is {name}, which has no meaning for the alpha channel of u8x4, u16x4 and f32x4 pixels; \
             {for_alpha}remove it, or decode to three channels"
        );
    }
    if format == PixelFormat::Indices {
        return format!(
            "is {name}, which has no meaning for palette indices; remove it, or decode to u8x3"
        );
    }
    let format = format.name();
    format!(
        "is {name}, which does not support decoded {format} pixels: before normalize, only \
         geometric operators and gaussian_blur do; move it behind normalize if it accepts floats, \
         or remove it"
    )
}

/// Output pixel type of an operator with these kinds.
fn pixels(name: &str, kinds: &Kinds, input: PixelType) -> Result<PixelType, String> {
    kinds.pixels(input).ok_or_else(|| match input {
        PixelType::F32 => {
            format!("{name} needs bytes but its input is floats: put {name} before normalize")
        }
        PixelType::U8 => {
            format!("{name} needs floats but its input is bytes: put {name} after normalize")
        }
    })
}
