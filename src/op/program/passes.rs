//! Groups the actions of a sample into passes.

use std::ops::Range;

use crate::geometry::{Roi, Size};
use crate::image::PixelType;
use crate::op::kind::{Execution, Kind};
use crate::op::{Action, Actions};
use crate::tensor::CHANNELS;

/// An image in memory, or a window of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Image {
    /// Window that is in memory.
    pub window: Roi,
    /// Size of the whole image.
    pub whole: Size,
    /// Pixel type.
    pub pixels: PixelType,
}

/// How a pass reads its input image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// Reads the pixels of the input image.
    Source,
    /// Computes the horizontal sums of a resampling. The field is the number of the resampling in
    /// the list of actions.
    Across(usize),
    /// Computes the vertical sums of a resampling from an image of horizontal sums. The field is
    /// the number of the resampling in the list of actions.
    Down(usize),
    /// Executes the action with this number. Its kind has the execution `Execution::Rows` or
    /// `Execution::Whole`.
    Action(usize),
}

/// A pass of the program kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Pass {
    pub source: Image,
    pub reader: Reader,
    /// Window that is read, and its pixel type.
    pub readable: Roi,
    pub read: PixelType,
    /// Pointwise actions of the pass. The first action may also be one that needs statistics of the
    /// image that the pass reads.
    pub actions: Range<usize>,
    pub output: Image,
    /// Whether the output of the pass is the output of the sample's last action.
    pub is_last: bool,
}

/// Iterator over the passes of a sample's actions, in order. There is always at least one pass.
#[derive(Debug)]
pub struct Passes<'a> {
    actions: &'a Actions,
    place: usize,
    source: Image,
    summed: bool,
    ended: bool,
}

impl<'a> Passes<'a> {
    /// Passes of the actions from number `first` on. `source` is the input of the first action.
    pub fn new(actions: &'a Actions, first: usize, source: Image) -> Self {
        Self { actions, place: first, source, summed: false, ended: false }
    }

    /// Maximum number of passes that an action of this kind adds. All actions of a sample together
    /// need one pass more than the sum of these numbers.
    pub fn most(kind: Kind) -> usize {
        match kind.facts().execution {
            Execution::Pointwise => 0,
            Execution::Resample => 2,
            _ => 1,
        }
    }
}

impl Iterator for Passes<'_> {
    type Item = Pass;

    fn next(&mut self) -> Option<Pass> {
        if self.ended {
            return None;
        }
        let (list, source) = (&self.actions.list, self.source);
        let mut first = self.place;
        let (reader, mut output) = match list.get(first) {
            Some(action) if is(action, Execution::Resample) && !self.summed => {
                self.summed = true;
                let Roi { x, width, .. } = action.output;
                let window = Roi::new(x, action.input.y, width, action.input.height);
                let whole = Size::new(action.whole.width, source.whole.height);
                (Reader::Across(first), Image { window, whole, ..source })
            }
            Some(action) if reads(action) => {
                first += 1;
                let pixels = action.pixels(source.pixels);
                let reader =
                    if self.summed { Reader::Down(self.place) } else { Reader::Action(self.place) };
                self.summed = false;
                (reader, Image { window: action.output, whole: action.whole, pixels })
            }
            _ => (Reader::Source, source),
        };
        let (readable, read) = (output.window, output.pixels);
        let mut end = first;
        if !matches!(reader, Reader::Across(_)) {
            let statistics = reader == Reader::Source
                && list.get(first).is_some_and(|it| is(it, Execution::Statistics));
            end = self.actions.pointwise_end(first + usize::from(statistics), list.len());
            self.ended = end == list.len();
        }
        for action in &list[first..end] {
            let pixels = action.pixels(output.pixels);
            output = Image { window: action.output, whole: action.whole, pixels };
        }
        (self.place, self.source) = (end, output);
        let is_last = self.ended;
        Some(Pass { source, reader, readable, read, actions: first..end, output, is_last })
    }
}

impl Image {
    /// Size in bytes of the window's pixels in scratch memory.
    pub fn bytes(&self) -> u64 {
        let value = match self.pixels {
            PixelType::U8 => 1,
            PixelType::F32 => size_of::<f32>(),
        };
        self.window.size().pixels().saturating_mul((CHANNELS * value) as u64)
    }
}

/// Whether a new pass begins with this action, and reads its input image through this action.
fn reads(action: &Action) -> bool {
    [Execution::Resample, Execution::Rows, Execution::Whole].iter().any(|how| is(action, *how))
}

fn is(action: &Action, how: Execution) -> bool {
    action.params.kind().is_executed(how)
}
