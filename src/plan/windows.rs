//! Sizes of the images between the passes of the CPU transform (`transform/host.rs`). They are
//! exact for a planned sample, and upper bounds for all samples with the same header.

use crate::geometry::Size;
use crate::image::PixelType;
use crate::op::kind::mix::Mix;
use crate::op::kind::{Execution, Executor};
use crate::op::{Action, Actions, Trace};
use crate::random::SampleKey;
use crate::tensor::CHANNELS;

use super::PlannedStep;

/// Stage of the CPU transform, with only those properties that determine which intermediate images
/// are stored.
#[derive(Clone, Debug)]
pub struct Stage {
    what: Passes,
    /// Pixel type of the output.
    pixels: PixelType,
    /// Sizes of the input window and the output window, or bounds on these sizes.
    pub input: Size,
    pub output: Size,
    /// Bound on the whole output. For [`Passes::Any`] it also bounds the images between the passes,
    /// which can be larger than the windows of later crops.
    pub largest: Size,
    /// Index of the operator in the chain.
    pub operator: usize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Passes {
    /// Crop whose window lies inside the image.
    Crop,
    /// Pointwise action other than a crop.
    Pointwise,
    /// Pointwise actions or crops inside the image. If `none`, a sample may have no such action.
    Maybe { none: bool },
    /// Resampling.
    Resample,
    /// Stencil or warp.
    Reader,
    /// Statistics.
    Statistics,
    /// Action that needs the whole input image and is none of the other variants.
    Whole,
    /// Begin of a mix, with the size of the window of the weighted sum.
    Mix(Size),
    /// Any number of passes. If `mixes`, they may include a mix.
    Any { mixes: bool },
}

/// Bound on the size of an image between two operators, over all samples with one header.
#[derive(Clone, Copy, Debug)]
struct Bound {
    /// Maximum width and height over all samples.
    size: Size,
    /// Whether every sample with this header has exactly this size.
    exact: bool,
    /// Whether `size` is proven to be an upper bound, so no sample can be larger.
    certain: bool,
}

/// Height of a probe image that is one pixel wide. If an operator's output for an image of twice
/// this height is wider by more than 1/256 of it, the operator may turn images by 90 degrees.
const LINE: u32 = 1 << 16;

impl Bound {
    /// Bound for an upright image, at least 1x1. Without scanned samples the size is 0x0, but
    /// operators need one pixel.
    fn of(image: Size) -> Self {
        let size = Size::new(image.width.max(1), image.height.max(1));
        Self { size, exact: true, certain: true }
    }

    /// Bound on the image after an operator, and bound on the images between the operator's
    /// actions.
    ///
    /// If the size of the input varies, a smaller input may have a larger output. For example,
    /// `resize` with `shorter` enlarges the longer side of an image that was cropped to fewer rows.
    /// The bound covers inputs that were cropped to half of one side. If an even thinner input
    /// would have a larger output, the bound is not certain. For a combinator the bound is then not
    /// certain even if the size of the input is fixed, because its operators read each other's
    /// outputs.
    fn behind(self, PlannedStep { operator, kinds, .. }: &PlannedStep) -> (Self, Size) {
        let Self { size, exact, certain } = self;
        let of_one = |width: u32, height: u32| operator.largest_output(Size::new(width, height));
        // An operator inside a combinator may run after another one that turned the image, for
        // example by an expanding rotation. So the bound covers the image and the image turned by
        // 90 degrees.
        let turns = !kinds.is_exact()
            && operator.fixed_output(None).is_none()
            && of_one(1, 2 * LINE).width.saturating_sub(of_one(1, LINE).width) > LINE / 256;
        let of = |width, height| match turns {
            true => larger(of_one(width, height), of_one(height, width)),
            false => of_one(width, height),
        };
        let Size { width, height } = size;
        let mut largest = of(width, height);
        let [halves, lines] = [[width.div_ceil(2), height.div_ceil(2)], [1, 1]];
        let around = |output, [w, h]: [u32; 2]| larger(larger(output, of(w, height)), of(width, h));
        if exact {
            let fixed = operator.fixed_output(Some(size));
            let certain = certain && (kinds.is_exact() || around(largest, lines) == largest);
            let output = fixed.unwrap_or(largest);
            return (Self { size: output, exact: fixed.is_some(), certain }, larger(size, largest));
        }
        largest = around(largest, halves);
        let certain = certain && around(largest, lines) == largest;
        let fixed = operator.fixed_output(None);
        let output = fixed.unwrap_or(largest);
        (Self { size: output, exact: fixed.is_some(), certain }, larger(size, largest))
    }
}

impl Stage {
    /// Replaces `stages` by stages that bound every sample with an upright image of size `image`.
    /// Overwrites `actions`.
    pub fn put_bounding(
        steps: &[PlannedStep],
        image: Size,
        actions: &mut Actions,
        stages: &mut Vec<Self>,
    ) {
        stages.clear();
        let mut bound = Bound::of(image);
        for (operator, step) in steps.iter().enumerate() {
            let before = bound;
            let largest;
            (bound, largest) = before.behind(step);
            let (input, output) = (before.size, bound.size);
            if step.kinds.is_exact() {
                let first = stages.len();
                let (key, trace) = (SampleKey::default(), &mut Trace::default());
                actions.draw([&*step.operator], key, input, trace);
                stages.extend(actions.list.iter().map(|it| Self::exact(operator, step, it)));
                if !before.exact || step.is_random {
                    // The actions were drawn for one size and one sample. Other samples may have
                    // larger images between these actions, so every image gets the bound `largest`.
                    for stage in &mut stages[first..] {
                        (stage.output, stage.largest) = (largest, largest);
                        if stage.what == Passes::Crop {
                            stage.what = Passes::Maybe { none: false };
                        }
                    }
                    stages[first..].iter_mut().skip(1).for_each(|stage| stage.input = largest);
                }
                if let Some(last) = stages[first..].last_mut() {
                    (last.output, last.largest) = (output, output);
                }
            } else {
                let mixes = step.kinds.list().iter().any(|it| it.is_executed(Execution::Mix));
                let (what, largest) = match step.kinds.are_pointwise() {
                    true => (Passes::Maybe { none: true }, output),
                    false => (Passes::Any { mixes }, largest),
                };
                let pixels = step.pixels;
                stages.push(Self { what, pixels, input, output, largest, operator });
            }
        }
    }

    /// Whether the stages of [`put_bounding`](Self::put_bounding) bound every sample with an
    /// upright image of this size.
    pub fn are_certain(steps: &[PlannedStep], image: Size) -> bool {
        let behind = |bound: Bound, step: &PlannedStep| bound.behind(step).0;
        steps.iter().fold(Bound::of(image), behind).certain
    }

    /// Replaces `stages` by the stages of a planned sample.
    pub fn put(steps: &[PlannedStep], actions: &Actions, stages: &mut Vec<Self>) {
        stages.clear();
        for (operator, step) in steps.iter().enumerate() {
            let its = actions.end(operator)..actions.end(operator + 1);
            stages.extend(actions.list[its].iter().map(|it| Self::exact(operator, step, it)));
        }
    }

    fn exact(operator: usize, step: &PlannedStep, action: &Action) -> Self {
        let executor = action.params.executor();
        let what = match executor {
            Executor::Pointwise(_) if executor.inside_window().is_some() => Passes::Crop,
            Executor::Pointwise(_) => Passes::Pointwise,
            Executor::Resample(_) => Passes::Resample,
            Executor::Rows(_) => Passes::Reader,
            Executor::Statistics(_) => Passes::Statistics,
            Executor::Mix(Mix::Begin { window, .. }) => Passes::Mix(window.size()),
            Executor::Mix(Mix::Add { .. }) | Executor::Whole(_) => Passes::Whole,
        };
        let (input, output) = (action.input.size(), action.output.size());
        Self { what, pixels: step.pixels, input, output, largest: output, operator }
    }

    /// Maximum size of an image that the program kernel keeps in scratch memory for these stages,
    /// in bytes. If `in_scratch`, the first stage's input is in scratch memory too.
    pub fn scratch(stages: &[Self], in_scratch: bool) -> u64 {
        let mut most = 0;
        for (place, stage) in stages.iter().enumerate() {
            let Self { input, output, .. } = *stage;
            let before = match place.checked_sub(1) {
                Some(before) => stages[before].pixels,
                None => PixelType::U8,
            };
            if in_scratch && place == 0 || place > 0 && !stage.is_pointwise() {
                most = most.max(bytes_of(before, input));
            }
            if matches!(stage.what, Passes::Resample | Passes::Any { .. }) {
                most = most.max(bytes_of(PixelType::U8, Size::new(output.width, input.height)));
            }
            if matches!(stage.what, Passes::Any { .. }) {
                most = most.max(bytes_of(before, input)).max(bytes_of(stage.pixels, output));
            }
        }
        most
    }

    /// Whether the output has float pixels.
    pub fn is_floats(&self) -> bool {
        self.pixels == PixelType::F32
    }

    /// Whether the transform may store a row of pixels between pointwise actions of this stage.
    pub fn has_rows(&self) -> bool {
        self.is_pointwise() || matches!(self.what, Passes::Statistics | Passes::Any { .. })
    }

    /// Whether a stencil or a warp of this stage may read stored rows of pixels.
    pub fn reads_rows(&self) -> bool {
        matches!(self.what, Passes::Reader | Passes::Any { .. })
    }

    /// Width of the stage's longest row, in pixels.
    pub fn width(&self) -> u32 {
        match self.what {
            Passes::Any { .. } => self.largest.width,
            _ => self.output.width,
        }
    }

    /// Whether each output pixel depends on a single input pixel.
    pub fn is_pointwise(&self) -> bool {
        matches!(self.what, Passes::Crop | Passes::Pointwise | Passes::Maybe { .. })
    }

    /// Whether this stage represents any number of passes.
    pub fn is_any(&self) -> bool {
        matches!(self.what, Passes::Any { .. })
    }
}

/// Sizes of the images that the CPU transform stores, in bytes. Passes write alternately into two
/// byte images and two float images. A mix also keeps a byte image and a float image.
///
/// The passes of a sample depend on random numbers, because an operator may leave a sample
/// unchanged. So different samples may store their images in different buffers. Before a stage, the
/// transform is in one of the states below. For each state, this type tracks the buffers that may
/// hold the current image.
pub struct Windows {
    bytes: [[u64; 2]; 2],
    mixes: [u64; 2],
    /// State: there was no action yet, and rows come from the decoder.
    decoder: Buffers,
    /// State: only crops inside the image so far, and rows come from the decoder.
    decoder_crops: Buffers,
    /// State: between two passes. The image is stored.
    stored: Buffers,
    /// State: in a pass over the stored image that so far has only crops inside the image.
    crops: Buffers,
    /// State: in a pass to which only pointwise actions can be added.
    pass: Buffers,
}

/// What the first pass reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// Rows of the decoder.
    Rows,
    /// Rows of the decoder, which are stored first, because the image is rotated or mirrored, or
    /// its pixel format is not `u8x3`.
    Stored,
    /// An image that several chains share.
    Image,
}

/// Where passes end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// Passes consist of several actions, and the last one writes the tensor.
    Tensor,
    /// Passes consist of several actions, and the last one stores an image.
    Image,
    /// Each action is a pass that stores an image.
    EachAction,
}

/// Set of buffers that may hold the current image, one bit each: two of bytes, then two of floats.
type Buffers = u8;

/// Initial set: only the second byte buffer, so the first byte image is stored in the first buffer.
const BEGIN: Buffers = 0b0010;

impl Windows {
    /// Size of each stored image for these stages, in bytes. `decoded` is the pixel type and the
    /// size of the decoded window.
    pub fn of(stages: &[Stage], decoded: (PixelType, Size), input: Input, ends: Ends) -> [u64; 6] {
        let mut windows = Self {
            bytes: [[0; 2]; 2],
            mixes: [0; 2],
            decoder: if input == Input::Image { 0 } else { BEGIN },
            decoder_crops: 0,
            stored: if input == Input::Image { BEGIN } else { 0 },
            crops: 0,
            pass: 0,
        };
        let mut last = decoded;
        if input == Input::Stored {
            windows.end_pass(last);
        }
        for stage in stages {
            windows.take(stage, last);
            last = (stage.pixels, stage.output);
            if ends == Ends::EachAction {
                windows.end_pass(last);
            }
        }
        if ends == Ends::Image {
            windows.end_pass(last);
        }
        let ([[a, b], [c, d]], [e, f]) = (windows.bytes, windows.mixes);
        [a, b, c, d, e, f]
    }

    /// Advances by one stage. `last` is the image before the stage.
    fn take(&mut self, stage: &Stage, last: (PixelType, Size)) {
        let Self { decoder, decoder_crops, stored, crops, pass, .. } = *self;
        let ready = decoder | decoder_crops | stored | crops;
        match stage.what {
            Passes::Crop => {
                self.decoder_crops |= std::mem::take(&mut self.decoder);
                self.crops |= std::mem::take(&mut self.stored);
            }
            Passes::Pointwise => self.only_pass(ready | pass),
            Passes::Maybe { none } => {
                self.decoder_crops |= decoder;
                self.crops |= stored;
                self.pass |= ready;
                if !none {
                    (self.decoder, self.stored) = (0, 0);
                }
            }
            Passes::Resample | Passes::Reader if last.0 == PixelType::F32 => {
                self.end_pass(last);
                if stage.what == Passes::Resample {
                    let between = Size::new(stage.output.width, stage.input.height);
                    self.stored = self.put(self.stored, (stage.pixels, between));
                }
                self.stored = self.put(self.stored, (stage.pixels, stage.output));
            }
            Passes::Resample => {
                let after = self.put(pass, last);
                self.only_pass(ready | after);
            }
            Passes::Reader | Passes::Statistics => {
                self.end_pass(last);
                self.only_pass(self.stored);
            }
            Passes::Whole | Passes::Mix(_) => {
                if let Passes::Mix(sum) = stage.what {
                    self.put_mix(stage.output, sum);
                }
                self.end_pass(last);
                self.stored = self.put(self.stored, (stage.pixels, stage.output));
            }
            Passes::Any { mixes } => {
                self.end_pass(last);
                // Consecutive passes write alternately into the two buffers.
                let image = (stage.pixels, stage.largest);
                let one = self.put(self.stored, image);
                let any = one | self.put(one, image);
                if mixes {
                    self.put_mix(stage.largest, stage.largest);
                }
                self.decoder = decoder;
                self.decoder_crops = decoder_crops | decoder;
                self.stored = stored | any;
                self.crops = crops | self.stored;
                self.pass = pass | ready | any;
            }
        }
    }

    /// Ends the current pass, if there is one, and stores its image. Required before actions that
    /// are not pointwise.
    fn end_pass(&mut self, last: (PixelType, Size)) {
        let open = self.decoder | self.decoder_crops | self.crops | self.pass;
        let stored = self.stored | self.put(open, last);
        self.only_pass(0);
        self.stored = stored;
    }

    /// Enters a pass to which only pointwise actions can be added. `buffers` is the set of buffers
    /// that may hold the input of the pass.
    fn only_pass(&mut self, buffers: Buffers) {
        (self.decoder, self.decoder_crops, self.stored, self.crops) = (0, 0, 0, 0);
        self.pass = buffers;
    }

    /// Records the images that a mix keeps: the image at the begin of the mix, and the weighted
    /// sum.
    fn put_mix(&mut self, image: Size, sum: Size) {
        let bytes = [bytes_of(PixelType::U8, image), bytes_of(PixelType::F32, sum)];
        self.mixes = std::array::from_fn(|at| self.mixes[at].max(bytes[at]));
    }

    /// Records that an image is stored. From each buffer that may hold the current image, the new
    /// image goes into the other buffer of the same pixel type, or into the first buffer of the
    /// other type. Returns the buffers that may hold the new image.
    fn put(&mut self, buffers: Buffers, (pixels, size): (PixelType, Size)) -> Buffers {
        let sort = usize::from(pixels == PixelType::F32);
        let (same, other) = (buffers >> (2 * sort) & 0b11, buffers >> (2 - 2 * sort) & 0b11);
        let next = same >> 1 | (same & 1) << 1 | u8::from(other != 0);
        for (place, bytes) in self.bytes[sort].iter_mut().enumerate() {
            if next >> place & 1 == 1 {
                *bytes = (*bytes).max(bytes_of(pixels, size));
            }
        }
        next << (2 * sort)
    }
}

/// Smallest size that covers both sizes.
fn larger(a: Size, b: Size) -> Size {
    Size::new(a.width.max(b.width), a.height.max(b.height))
}

/// Size of an image, in bytes.
pub fn bytes_of(pixels: PixelType, size: Size) -> u64 {
    let value = match pixels {
        PixelType::U8 => 1,
        PixelType::F32 => size_of::<f32>() as u64,
    };
    size.pixels().saturating_mul(CHANNELS as u64 * value)
}
