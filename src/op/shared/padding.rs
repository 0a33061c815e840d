//! Padding as in torchvision's `pad` on PIL images, which is `ImageOps.expand` of Pillow for a
//! constant and `numpy.pad` otherwise (`torchvision/transforms/_functional_pil.py`).

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::geometry::{Roi, Size};

/// Which pixels are added outside of the image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PadMode {
    /// The fill colour.
    #[default]
    Constant,
    /// The nearest pixel at the edge.
    Edge,
    /// The image, mirrored repeatedly at the centres of its edge pixels: `3 2 | 1 2 3 | 2 1`.
    Reflect,
    /// The image, mirrored repeatedly at its edges: `2 1 | 1 2 3 | 3 2`.
    Symmetric,
}

/// Number of pixels that are added at each side. Negative numbers crop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "sides of the image")]
pub struct Padding {
    pub left: i32,
    pub top: i32,
    pub right: i32,
    pub bottom: i32,
}

impl Padding {
    /// Size of the padded image. `None` if no pixels are left, or if a side exceeds the largest
    /// i32.
    pub fn output(&self, input: Size) -> Option<Size> {
        let side = |len: u32, before: i32, after: i32| {
            let len = i64::from(len) + i64::from(before) + i64::from(after);
            (1..=i64::from(i32::MAX)).contains(&len).then_some(len as u32)
        };
        let width = side(input.width, self.left, self.right)?;
        Some(Size::new(width, side(input.height, self.top, self.bottom)?))
    }

    /// Window of an input of size `input` that the window `wanted` of the padded image reads. If
    /// `wanted` reads no pixels, the result is a single pixel.
    pub fn demand(&self, mode: PadMode, input: Size, wanted: Roi) -> Roi {
        let (x, width) = self.columns(mode, input).demand(wanted.x, wanted.width);
        let (y, height) = self.rows(mode, input).demand(wanted.y, wanted.height);
        Roi::new(x, y, width, height)
    }

    /// Map from columns of the padded image to columns of an input of size `input`.
    pub fn columns(&self, mode: PadMode, input: Size) -> PaddedAxis {
        PaddedAxis::new(mode, input.width, self.left, self.right)
    }

    /// Map from rows of the padded image to rows of an input of size `input`.
    pub fn rows(&self, mode: PadMode, input: Size) -> PaddedAxis {
        PaddedAxis::new(mode, input.height, self.top, self.bottom)
    }
}

/// Map from columns or rows of the padded image to those of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PaddedAxis {
    mode: PadMode,
    /// First column or row of the input that is not cropped, and number of columns or rows that are
    /// not cropped.
    first: i64,
    len: i64,
    /// Position of output 0 relative to `first`, negative if pixels are added before the input.
    start: i64,
}

/// Adjacent columns or rows of the output that read adjacent columns or rows of the input, or that
/// all read the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Input of the first output.
    pub input: u32,
    /// Direction of the inputs from one output to the next.
    pub step: Direction,
    /// Number of outputs.
    pub count: u32,
}

/// Direction of the inputs from one output of a [`Run`] to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "directions")]
pub enum Direction {
    Up,
    Down,
    Stays,
}

impl PaddedAxis {
    fn new(mode: PadMode, len: u32, before: i32, after: i32) -> Self {
        let (before, after) = (i64::from(before), i64::from(after));
        let (first, end) = ((-before).max(0), i64::from(len) - (-after).max(0));
        Self { mode, first, len: (end - first).max(0), start: -before.max(0) }
    }

    /// Column or row of the input for a column or row of the output. `None` if the output has the
    /// fill colour there.
    #[inline(always)]
    pub fn at(&self, output: u32) -> Option<u32> {
        let (at, last) = (i64::from(output) + self.start, self.len - 1);
        let inside = (0..self.len).contains(&at);
        let at = match self.mode {
            _ if inside => at,
            _ if last < 0 => return None,
            PadMode::Constant => return None,
            PadMode::Edge => at.clamp(0, last),
            PadMode::Reflect if last == 0 => 0,
            PadMode::Reflect => {
                let at = at.rem_euclid(2 * last);
                at.min(2 * last - at)
            }
            PadMode::Symmetric => {
                let at = at.rem_euclid(2 * self.len);
                at.min(2 * self.len - 1 - at)
            }
        };
        Some((self.first + at) as u32)
    }

    /// Divides a range of columns or rows of the output into runs. The outputs of a run read
    /// adjacent inputs, or all read the same input.
    pub fn runs(self, outputs: Range<u32>) -> impl Iterator<Item = Run> {
        let mut first = outputs.start;
        std::iter::from_fn(move || {
            let run = (first < outputs.end).then(|| self.run(first..outputs.end))?;
            first += run.count;
            Some(run)
        })
    }

    /// First run of a range. In the mode `constant`, runs outside of the input repeat a pixel whose
    /// value is not used.
    fn run(&self, outputs: Range<u32>) -> Run {
        let at = i64::from(outputs.start) + self.start;
        let (len, last) = (self.len.max(1), (self.len - 1).max(0));
        let (input, step, count) = match self.mode {
            PadMode::Constant | PadMode::Edge => match at {
                ..0 => (0, Direction::Stays, -at),
                _ if at < self.len => (at, Direction::Up, len - at),
                _ => (last, Direction::Stays, i64::MAX),
            },
            PadMode::Reflect if last == 0 => (0, Direction::Stays, i64::MAX),
            PadMode::Reflect => match at.rem_euclid(2 * last) {
                at if at < last => (at, Direction::Up, last - at),
                at => (2 * last - at, Direction::Down, 2 * last - at),
            },
            PadMode::Symmetric => match at.rem_euclid(2 * len) {
                at if at < len => (at, Direction::Up, len - at),
                at => (2 * len - 1 - at, Direction::Down, 2 * len - at),
            },
        };
        let count = count.min(outputs.len() as i64) as u32;
        Run { input: (self.first + input) as u32, step, count }
    }

    /// First input and number of inputs that the outputs `first..first + count` read. If they read
    /// no input, the number is 1.
    fn demand(&self, first: u32, count: u32) -> (u32, u32) {
        let inputs = (first..first + count).filter_map(|output| self.at(output));
        let range = inputs.fold(None, |range, at| {
            let (low, high) = range.unwrap_or((at, at));
            Some((low.min(at), high.max(at)))
        });
        range.map_or((0, 1), |(low, high)| (low, high - low + 1))
    }
}

/// Places a centred window of `wanted` pixels on an axis of `side` pixels. Returns the padding
/// before and after the image, and the window's first pixel in the padded image.
pub fn centred(side: u32, wanted: u32) -> (i32, i32, i64) {
    if wanted > side {
        let missing = wanted - side;
        ((missing / 2) as i32, missing.div_ceil(2) as i32, 0)
    } else {
        (0, 0, (f64::from(side - wanted) / 2.0).round_ties_even() as i64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected numbers are those of Python's `int(round((side - wanted) / 2.0))`.
    #[test]
    fn half_pixels_round_to_even() {
        let firsts = [(10, 8), (11, 8), (13, 8), (15, 8), (9, 8)].map(|(s, w)| centred(s, w).2);
        assert_eq!(firsts, [1, 2, 2, 4, 0]);
    }

    #[test]
    fn odd_padding_puts_the_smaller_half_first() {
        let paddings = [(8, 11), (8, 12), (7, 8)].map(|(s, w)| centred(s, w));
        assert_eq!(paddings, [(1, 2, 0), (2, 2, 0), (0, 1, 0)]);
    }

    #[test]
    fn runs_are_the_inputs_of_their_outputs() {
        for mode in [PadMode::Edge, PadMode::Reflect, PadMode::Symmetric] {
            for len in 1..6 {
                for (before, after) in [(0, 0), (3, 2), (17, 20), (-1, 4), (5, -1)] {
                    let axis = PaddedAxis::new(mode, len, before, after);
                    if axis.len == 0 {
                        continue;
                    }
                    let outputs = (len as i32 + before + after) as u32;
                    for first in 0..outputs {
                        let found: Vec<_> = axis
                            .runs(first..outputs)
                            .flat_map(|run| {
                                (0..run.count).map(move |at| match run.step {
                                    Direction::Up => run.input + at,
                                    Direction::Down => run.input - at,
                                    Direction::Stays => run.input,
                                })
                            })
                            .collect();
                        let each: Vec<_> = (first..outputs).filter_map(|it| axis.at(it)).collect();
                        assert_eq!(found, each, "{mode:?} {len} {before} {after} {first}");
                    }
                }
            }
        }
    }
}
