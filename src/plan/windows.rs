//! Sizes of the images between the passes of the CPU transform (`transform/host.rs`), exactly for a planned sample and
//! at most for samples of a header.

use crate::geometry::Size;
use crate::image::PixelType;
use crate::op::kind::mix::Mix;
use crate::op::kind::{Execution, Executor};
use crate::op::{Action, Actions, Trace};
use crate::random::SampleKey;
use crate::tensor::CHANNELS;

use super::PlannedStep;

/// What the passes do, as far as it decides which images are stored.
#[derive(Clone, Debug)]
pub struct Stage {
    what: Passes,
    /// Pixel type of the output.
    pixels: PixelType,
    /// Windows of input and output, or bounds on them.
    pub input: Size,
    pub output: Size,
    /// Bound on the whole output. For [`Passes::Any`] it also bounds the images between the passes, which can be larger than the
    /// windows of later crops.
    pub largest: Size,
    /// Index of the operator.
    pub operator: usize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Passes {
    /// A crop inside the image.
    Crop,
    /// Another pointwise action.
    Pointwise,
    /// Pointwise actions or crops inside the image. `none`: a sample may have none of them.
    Maybe { none: bool },
    /// A resampling.
    Resample,
    /// A stencil or a warp.
    Reader,
    /// Statistics.
    Statistics,
    /// An action on whole images.
    Whole,
    /// Begin of a mix, with the window of the sum.
    Mix(Size),
    /// Any number of passes, which may mix.
    Any { mixes: bool },
}

/// Size of an image between operators.
#[derive(Clone, Copy, Debug)]
struct Bound {
    /// Largest columns and rows of any sample.
    size: Size,
    /// Whether every sample with the image has this size.
    exact: bool,
    /// Whether no sample can have a larger one.
    certain: bool,
}

/// Height of a probe image that is one pixel wide. An operator whose output for it is wider than 1/256 of this height may turn
/// images by 90 degrees.
const LINE: u32 = 1 << 16;

impl Bound {
    /// Size of an upright image, at least 1x1: if no sample was inspected, the size is 0x0, and operators need one pixel.
    fn of(image: Size) -> Self {
        let size = Size::new(image.width.max(1), image.height.max(1));
        Self { size, exact: true, certain: true }
    }

    /// Bound behind an operator, and on the images between its actions.
    ///
    /// If the input has no fixed size, a smaller one may have the larger output: `resize` with `shorter` enlarges the
    /// longer side of an image that was cropped to fewer rows. Crops change the ratio of the sides by up to 2, which is
    /// bounded. If a thinner image has a larger output still, the bound is not certain. Neither is that of a combinator then,
    /// whose operators see the outputs of each other.
    fn behind(self, PlannedStep { operator, kinds, .. }: &PlannedStep) -> (Self, Size) {
        let Self { size, exact, certain } = self;
        let of_one = |width: u32, height: u32| operator.largest_output(Size::new(width, height));
        // An operator inside of a combinator may run after another one that turned the image, for example by an expanding
        // rotation. So the bound is taken over the image and the image turned by 90 degrees.
        let turns = !kinds.is_exact()
            && operator.fixed_output(None).is_none()
            && of_one(1, LINE).width > LINE / 256;
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
    /// Puts the stages of any sample with an upright image of size `image` into `stages`. `actions` is overwritten.
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
                    // Drawn for one size and one sample: other samples have other images between the actions.
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

    /// Whether the stages of [`put_bounding`](Self::put_bounding) bound every sample with an upright image of this
    /// size.
    pub fn are_certain(steps: &[PlannedStep], image: Size) -> bool {
        let behind = |bound: Bound, step: &PlannedStep| bound.behind(step).0;
        steps.iter().fold(Bound::of(image), behind).certain
    }

    /// Puts the stages of a planned sample into `stages`.
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

    /// Maximum size of an image that the program kernel keeps in scratch memory for these stages, in bytes. The first
    /// stage's input is there if `in_scratch`.
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

    /// Whether the output has floats.
    pub fn is_floats(&self) -> bool {
        self.pixels == PixelType::F32
    }

    /// Whether rows may be kept between pointwise actions.
    pub fn has_rows(&self) -> bool {
        self.is_pointwise() || matches!(self.what, Passes::Statistics | Passes::Any { .. })
    }

    /// Whether rows may be read by a stencil or a warp.
    pub fn reads_rows(&self) -> bool {
        matches!(self.what, Passes::Reader | Passes::Any { .. })
    }

    /// Columns of its longest row.
    pub fn width(&self) -> u32 {
        match self.what {
            Passes::Any { .. } => self.largest.width,
            _ => self.output.width,
        }
    }

    /// Whether a pixel of the output depends on one pixel of the input.
    pub fn is_pointwise(&self) -> bool {
        matches!(self.what, Passes::Crop | Passes::Pointwise | Passes::Maybe { .. })
    }

    /// Whether the stage is any number of passes.
    pub fn is_any(&self) -> bool {
        matches!(self.what, Passes::Any { .. })
    }
}

/// Images of the CPU transform: two of bytes and two of floats, one of which is written at a time, and what a mix
/// keeps: an image of bytes and one of floats.
///
/// The passes of a sample depend on random numbers, because an operator may leave a sample unchanged. So the buffer of an image
/// differs between samples. For each state in which the transform may be before a stage, the possible buffers are tracked.
pub struct Windows {
    bytes: [[u64; 2]; 2],
    mixes: [u64; 2],
    /// No action yet, and rows come from the decoder.
    decoder: Buffers,
    /// Only crops inside the image since then.
    decoder_crops: Buffers,
    /// Between two passes.
    stored: Buffers,
    /// In a pass over the stored image, with only crops inside the image.
    crops: Buffers,
    /// In a pass to which only pointwise actions can be added.
    pass: Buffers,
}

/// Buffers that may hold the current image, as bits: two of bytes, then two of floats.
type Buffers = u8;

/// Buffer before the first image.
const BEGIN: Buffers = 0b0010;

impl Windows {
    /// Bytes of each image for these stages of an image whose decoded window has the size `decoded`. `turned` says
    /// whether it is rotated or mirrored, `tensor` whether the last pass stores the tensor.
    pub fn of(stages: &[Stage], decoded: Size, turned: bool, tensor: bool) -> [u64; 6] {
        let mut windows = Self {
            bytes: [[0; 2]; 2],
            mixes: [0; 2],
            decoder: BEGIN,
            decoder_crops: 0,
            stored: 0,
            crops: 0,
            pass: 0,
        };
        let mut last = (PixelType::U8, decoded);
        if turned {
            windows.end_pass(last);
        }
        for stage in stages {
            windows.take(stage, last);
            last = (stage.pixels, stage.output);
        }
        if !tensor {
            windows.end_pass(last);
        }
        let ([[a, b], [c, d]], [e, f]) = (windows.bytes, windows.mixes);
        [a, b, c, d, e, f]
    }

    /// Passes a stage; `last` is the image before it.
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
                // Each pass goes on to the other buffer.
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

    /// Ends a pass, if there is one, before anything but a pointwise action: it stores its image.
    fn end_pass(&mut self, last: (PixelType, Size)) {
        let open = self.decoder | self.decoder_crops | self.crops | self.pass;
        let stored = self.stored | self.put(open, last);
        self.only_pass(0);
        self.stored = stored;
    }

    /// Goes to a pass to which only pointwise actions can be added, from any of these buffers.
    fn only_pass(&mut self, buffers: Buffers) {
        (self.decoder, self.decoder_crops, self.stored, self.crops) = (0, 0, 0, 0);
        self.pass = buffers;
    }

    /// What a mix keeps: the image at its begin, and the sum.
    fn put_mix(&mut self, image: Size, sum: Size) {
        let bytes = [bytes_of(PixelType::U8, image), bytes_of(PixelType::F32, sum)];
        self.mixes = std::array::from_fn(|at| self.mixes[at].max(bytes[at]));
    }

    /// Stores an image next to each of these buffers: in the other one of the same type, or the first one of the other
    /// type. Returns the buffers that may hold it.
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

/// Size that covers both.
fn larger(a: Size, b: Size) -> Size {
    Size::new(a.width.max(b.width), a.height.max(b.height))
}

/// Size of a window, in bytes.
pub fn bytes_of(pixels: PixelType, size: Size) -> u64 {
    let value = match pixels {
        PixelType::U8 => 1,
        PixelType::F32 => size_of::<f32>() as u64,
    };
    size.pixels().saturating_mul(CHANNELS as u64 * value)
}
