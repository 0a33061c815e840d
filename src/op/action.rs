//! Actions: the steps that operators draw for one sample.

use std::ops::Range;

use crate::geometry::{Roi, Size};
use crate::image::PixelType;

use super::kind::mix::Inside;
use super::resample::Weights;
use super::{ActionParams, Filter, Interpolation, Trace};

/// One step on the image of one sample.
#[derive(Clone, Debug)]
pub struct Action {
    /// Kind and parameters of the action.
    pub params: ActionParams,
    /// Range of the action's entries in [`Actions::table`](super::Actions::table).
    pub table: Range<usize>,
    /// Size of the action's whole output.
    pub whole: Size,
    /// Window of the input that the action reads.
    pub input: Roi,
    /// Window of the output that the next action or the tensor needs.
    pub output: Roi,
}

impl Action {
    /// An action on an image of size `input`. Its windows are not known yet, so they are those of
    /// the whole images.
    pub(super) fn new(params: ActionParams, input: Size, output: Size) -> Self {
        let (input, whole) = (input.window(), output);
        Self { params, table: 0..0, whole, input, output: whole.window() }
    }

    /// Records in `trace`, in order, how the actions move the pixels. Skips the actions of a mix:
    /// the mix also contains the image from before these actions, so boxes stay where they are.
    pub(super) fn trace_all(actions: &[Self], trace: &mut Trace) {
        let mut mixes = Inside::default();
        for action in actions {
            if !mixes.pass(&action.params) {
                action.params.trace(action.whole, trace);
            }
        }
    }

    /// Whether Pillow multiplies colours by alpha before this action on an image with alpha, and
    /// divides them by it afterwards: for resizing and for warps that interpolate. Like
    /// `Image.resize`, resampling to the same size only copies.
    pub fn premultiplies(&self) -> bool {
        match &self.params {
            ActionParams::Resample(params) => match params.weights {
                Weights::Filter(Filter::Nearest) | Weights::Blur(_) => false,
                Weights::Filter(_) => params.axes.of().size() != params.axes.output(),
            },
            ActionParams::Warp(params) => {
                params.field.is_none() && params.warp.interpolation() != Interpolation::Nearest
            }
            _ => false,
        }
    }

    /// Output pixel type for an input pixel type that the action accepts.
    pub fn pixels(&self, input: PixelType) -> PixelType {
        self.params.kind().pixels(input).unwrap_or(input)
    }
}
