//! Operators with their resolved placement.

use std::sync::Arc;

use serde::Serialize;

use crate::error::{Error, Result};
use crate::geometry::Size;
use crate::image::{PixelFormat, PixelType};
use crate::op::{Chain, FieldError, Kinds, Operator};
use crate::tensor::CHANNELS;

/// Place where an operator or the decoder runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    /// On the CPU.
    Cpu,
    /// On the GPU.
    Gpu,
}

impl Place {
    /// Name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Place::Cpu => "cpu",
            Place::Gpu => "gpu",
        }
    }
}

/// Operator with its resolved placement.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PlannedStep {
    /// The operator.
    pub operator: Arc<dyn Operator>,
    /// Kinds of actions that the operator draws.
    pub kinds: Kinds,
    /// Whether the operator's output depends on random numbers.
    pub is_random: bool,
    /// Where the operator runs.
    pub place: Place,
    /// Pixel type of the operator's output.
    pub pixels: PixelType,
}

/// Checks the operators of a chain for images of this format, and plans them at these places.
/// `list` is the key of the chain. Returns also the size of the chain's output, `None` if samples
/// have different sizes, and the number of its channels.
pub(super) fn planned_steps(
    chain: &Chain,
    places: Vec<Place>,
    format: PixelFormat,
    list: &str,
) -> Result<(Vec<PlannedStep>, Option<Size>, usize)> {
    let (mut pixels, mut channels) = (format.pixel_type(), format.channels());
    // Whether pixels are floats to which `normalize` has not been applied yet.
    let mut before_normalize = format.is_floats();
    let mut size = None;
    let mut steps: Vec<PlannedStep> = Vec::new();
    for (number, (step, place)) in chain.steps().iter().zip(places).enumerate() {
        let key = format!("{list}[{number}]");
        let mut operator = step.operator.clone();
        let field_error =
            |error: FieldError| Error::config(format!("{key}.{}", error.field), error.problem);
        operator.check().map_err(field_error)?;
        let checked_for = match before_normalize || !format.is_floats() {
            true => Some(format),
            // Normalized floats are no decoded floats, but still have an alpha channel.
            false => format.has_alpha().then_some(PixelFormat::U8x4),
        };
        if let Some(format) = checked_for
            && let Some(other) = operator.for_format(format).map_err(field_error)?
        {
            (operator, before_normalize) = (other, false);
        }
        let earlier = steps.iter().find(|it| it.operator.outputs() > 1);
        if let (Some(earlier), true) = (earlier, operator.outputs() > 1) {
            let problem = format!(
                "{} follows {}, but only one operator of a chain may make several outputs; remove \
                 one of them",
                operator.name(),
                earlier.operator.name()
            );
            return Err(Error::config(key, problem));
        }
        if !before_normalize {
            pixels = operator.pixels(pixels).map_err(|problem| Error::config(&key, problem))?;
        }
        channels = operator.channels(channels).map_err(|problem| Error::config(&key, problem))?;
        if channels != 1 && channels != CHANNELS && !format.has_alpha() {
            let problem = format!(
                "Operator::channels of {} returns {channels}, but an image has 1 or {CHANNELS} \
                 channels",
                operator.name()
            );
            return Err(Error::config(key, problem));
        }
        size = operator.fixed_output(size);
        let (kinds, is_random) = (operator.kinds(), operator.is_random());
        steps.push(PlannedStep { operator, kinds, is_random, place, pixels });
    }
    Ok((steps, size, channels))
}

/// Checks that no operator of the main chain makes several outputs.
pub(super) fn refuse_several_outputs(steps: &[PlannedStep]) -> Result<()> {
    let several = steps.iter().position(|step| step.operator.outputs() > 1);
    several.map_or(Ok(()), |number| {
        let operator = &steps[number].operator;
        let problem = format!(
            "{} makes {} outputs of each image, but the main chain has one per sample; move the \
             chain to a view (fw.view in Python, [[view]] in TOML), or set crop if the operator \
             has this setting",
            operator.name(),
            operator.outputs()
        );
        Err(Error::config(format!("chain[{number}]"), problem))
    })
}

/// Error for a chain whose outputs have different sizes. `list` is the key of the chain.
pub(super) fn unequal_sizes(list: &str) -> Error {
    Error::config(
        list,
        "the chain outputs samples of different sizes, which cannot form a batch; add an operator with a fixed \
         output size, such as random_resized_crop, center_crop, or resize with width and height",
    )
}
