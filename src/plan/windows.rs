//! Sizes of the images between the passes of the CPU transform (`transform/host.rs`), exactly for a planned sample and
//! at most for samples of a header.

use crate::geometry::Size;
use crate::image::PixelType;
use crate::op::kind::mix::Mix;
use crate::op::{Action, Actions, Kind, Trace, What};
use crate::random::SampleKey;

use super::PlannedStep;
use super::ways::{Way, Ways, bytes_of};

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
        let mut largest = operator.largest_output(size);
        let of = |width: u32, height: u32| operator.largest_output(Size::new(width, height));
        let Size { width, height } = size;
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
                let mixes = step.kinds.list().iter().any(|kind| kind.is(Kind::Mix));
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
        let what = match &action.what {
            What::Crop(crop) if crop.is_inside() => Passes::Crop,
            What::Resample(..) => Passes::Resample,
            What::Stencil(..) | What::Warp(..) => Passes::Reader,
            What::Statistics(..) => Passes::Statistics,
            What::Mix(Mix::Begin { window, .. }) => Passes::Mix(window.size()),
            other if other.kind().is_pointwise() => Passes::Pointwise,
            _ => Passes::Whole,
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
/// differs between samples. For each state in which the transform may be before a stage, the possible buffers are tracked. The
/// transform begins every sample such that the first buffer of a type gets the larger image ([`exchanged`](Self::exchanged)).
/// Otherwise both would grow to the largest image of a chain that may store it in either one.
pub struct Windows {
    mixes: [u64; 2],
    /// No action yet, and rows come from the decoder.
    decoder: Ways,
    /// Only crops inside the image since then.
    decoder_crops: Ways,
    /// Between two passes.
    stored: Ways,
    /// In a pass over the stored image, with only crops inside the image.
    crops: Ways,
    /// In a pass to which only pointwise actions can be added.
    pass: Ways,
}

impl Windows {
    /// The images for these stages of an image whose decoded window has the size `decoded`. `turned` says whether it is
    /// rotated or mirrored, `tensor` whether the last pass stores the tensor.
    pub fn of(stages: &[Stage], decoded: Size, turned: bool, tensor: bool) -> Self {
        let none = Ways::default();
        let decoder = Ways::begin();
        let (decoder_crops, stored, crops, pass) = (none, none, none, none);
        let mut windows = Self { mixes: [0; 2], decoder, decoder_crops, stored, crops, pass };
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
        windows
    }

    /// Bytes of each image, the larger one of each type first.
    pub fn bytes(&self) -> [u64; 6] {
        let mut most = [[0; 2]; 2];
        for way in self.ways() {
            for (most, [first, second]) in most.iter_mut().zip(way.bytes) {
                *most = [most[0].max(first.max(second)), most[1].max(first.min(second))];
            }
        }
        let ([[a, b], [c, d]], [e, f]) = (most, self.mixes);
        [a, b, c, d, e, f]
    }

    /// Whether the second buffer of bytes, and of floats, would get a larger image than the first one, so that the
    /// transform exchanges them. For the stages of a planned sample, which have one way.
    pub fn exchanged(&self) -> [bool; 2] {
        let way = self.ways().next();
        way.map_or([false; 2], |way| way.bytes.map(|[first, second]| second > first))
    }

    fn ways(&self) -> impl Iterator<Item = &Way> {
        let Self { mixes: _, decoder, decoder_crops, stored, crops, pass } = self;
        [decoder, decoder_crops, stored, crops, pass].into_iter().flat_map(Ways::iter)
    }

    /// Passes a stage; `last` is the image before it.
    fn take(&mut self, stage: &Stage, last: (PixelType, Size)) {
        let Self { decoder, decoder_crops, stored, crops, pass, .. } = *self;
        let ready = || decoder.or(&decoder_crops).or(&stored).or(&crops);
        match stage.what {
            Passes::Crop => {
                self.decoder_crops = decoder_crops.or(&decoder);
                self.crops = crops.or(&stored);
                (self.decoder, self.stored) = Default::default();
            }
            Passes::Pointwise => self.only_pass(ready().or(&pass)),
            Passes::Maybe { none } => {
                self.decoder_crops = decoder_crops.or(&decoder);
                self.crops = crops.or(&stored);
                self.pass = pass.or(&ready());
                if !none {
                    (self.decoder, self.stored) = Default::default();
                }
            }
            Passes::Resample => self.only_pass(ready().or(&pass.put(last))),
            Passes::Reader | Passes::Statistics => {
                self.end_pass(last);
                self.only_pass(self.stored);
            }
            Passes::Whole | Passes::Mix(_) => {
                if let Passes::Mix(sum) = stage.what {
                    self.put_mix(stage.output, sum);
                }
                self.end_pass(last);
                self.stored = self.stored.put((stage.pixels, stage.output));
            }
            Passes::Any { mixes } => {
                self.end_pass(last);
                // Each pass goes on to the other buffer. A fourth one is like the second.
                let image = (stage.pixels, stage.largest);
                let one = self.stored.put(image);
                let two = one.put(image);
                let any = one.or(&two).or(&two.put(image));
                if mixes {
                    self.put_mix(stage.largest, stage.largest);
                }
                self.decoder = decoder;
                self.decoder_crops = decoder_crops.or(&decoder);
                self.stored = stored.or(&any);
                self.crops = crops.or(&self.stored);
                self.pass = pass.or(&ready()).or(&any);
            }
        }
    }

    /// Ends a pass, if there is one, before anything but a pointwise action: it stores its image.
    fn end_pass(&mut self, last: (PixelType, Size)) {
        let open = self.decoder.or(&self.decoder_crops).or(&self.crops).or(&self.pass);
        let stored = self.stored.or(&open.put(last));
        self.only_pass(Ways::default());
        self.stored = stored;
    }

    /// Goes to a pass to which only pointwise actions can be added, in any of these ways.
    fn only_pass(&mut self, ways: Ways) {
        (self.decoder, self.decoder_crops, self.stored, self.crops) = Default::default();
        self.pass = ways;
    }

    /// What a mix keeps: the image at its begin, and the sum.
    fn put_mix(&mut self, image: Size, sum: Size) {
        let bytes = [bytes_of(PixelType::U8, image), bytes_of(PixelType::F32, sum)];
        self.mixes = std::array::from_fn(|at| self.mixes[at].max(bytes[at]));
    }
}

/// Size that covers both.
fn larger(a: Size, b: Size) -> Size {
    Size::new(a.width.max(b.width), a.height.max(b.height))
}
