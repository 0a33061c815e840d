//! Actions: what operators do to one sample.

use std::ops::Range;

use crate::geometry::{Roi, Size};
use crate::image::PixelType;

use super::kind::mix::Inside;
use super::{ActionParams, Trace};

/// One thing that is done to one sample's image.
#[derive(Clone, Debug)]
pub struct Action {
    /// What is done, by kind.
    pub params: ActionParams,
    /// Range of its part of [`Actions::table`](super::Actions::table).
    pub table: Range<usize>,
    /// Size of its whole output.
    pub whole: Size,
    /// Window of its input that it reads.
    pub input: Roi,
    /// Window of its output that is needed.
    pub output: Roi,
}

impl Action {
    /// An action on an image of this size, whose windows are not known yet: the whole image stands in for them.
    pub(super) fn new(params: ActionParams, input: Size, output: Size) -> Self {
        let (input, whole) = (input.window(), output);
        Self { params, table: 0..0, whole, input, output: whole.window() }
    }

    /// Records how actions move the pixels, one after another. Those of a mix are not recorded, because boxes stay
    /// where they are in one of the images.
    pub(super) fn trace_all(actions: &[Self], trace: &mut Trace) {
        let mut mixes = Inside::default();
        for action in actions {
            if !mixes.pass(&action.params) {
                action.params.trace(action.whole, trace);
            }
        }
    }

    /// Output pixel type for an input pixel type that the action accepts.
    pub fn pixels(&self, input: PixelType) -> PixelType {
        self.params.kind().pixels(input).unwrap_or(input)
    }
}
