//! Sizes of the images between the passes of the CPU transform (`transform/host.rs`), exactly for a planned sample and
//! at most for samples of a header.

use crate::geometry::Size;
use crate::image::PixelType;
use crate::op::kind::mix::Mix;
use crate::op::{Action, Actions, Kind, Trace, What};
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
    /// Index of the operator.
    pub operator: usize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Passes {
    /// A crop inside the image.
    Crop,
    /// Another pointwise action.
    Pointwise,
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

impl Stage {
    /// Puts the stages of any sample with an upright image of size `image` into `stages`. `actions` is overwritten.
    pub fn put_bounding(
        steps: &[PlannedStep],
        image: Size,
        actions: &mut Actions,
        stages: &mut Vec<Self>,
    ) {
        stages.clear();
        // Without samples no size is known, and operators expect a pixel.
        let mut size = Size::new(image.width.max(1), image.height.max(1));
        for (operator, step) in steps.iter().enumerate() {
            let output = step.operator.largest_output(size);
            if step.kinds.is_exact() {
                let first = stages.len();
                let (key, trace) = (SampleKey::default(), &mut Trace::default());
                actions.draw([&*step.operator], key, size, trace);
                stages.extend(actions.list.iter().map(|action| {
                    let mut stage = Self::exact(operator, step, action);
                    if step.is_random && stage.what == Passes::Crop {
                        stage.what = Passes::Pointwise;
                    }
                    stage
                }));
                if let Some(last) = stages[first..].last_mut() {
                    last.output = output;
                }
            } else {
                let mixes = step.kinds.list().iter().any(|kind| kind.is(Kind::Mix));
                let what = match step.kinds.are_pointwise() {
                    true => Passes::Pointwise,
                    false => Passes::Any { mixes },
                };
                stages.push(Self { what, pixels: step.pixels, input: size, output, operator });
            }
            size = output;
        }
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
        Self { what, pixels: step.pixels, input, output, operator }
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
            Passes::Any { .. } => self.input.width.max(self.output.width),
            _ => self.output.width,
        }
    }

    /// Whether a pixel of the output depends on one pixel of the input.
    pub fn is_pointwise(&self) -> bool {
        matches!(self.what, Passes::Crop | Passes::Pointwise)
    }
}

/// Images of the CPU transform: two of bytes and two of floats, one of which is written at a time, and what a mix
/// keeps: an image of bytes and one of floats.
pub struct Windows {
    bytes: [[u64; 2]; 2],
    mixes: [u64; 2],
    at: (usize, usize),
}

impl Windows {
    /// Bytes of each image for these stages of an image whose decoded window has the size `decoded`. `turned` says
    /// whether it is rotated or mirrored, `tensor` whether the last pass stores the tensor.
    pub fn of(stages: &[Stage], decoded: Size, turned: bool, tensor: bool) -> [u64; 6] {
        let mut images = Self { bytes: [[0; 2]; 2], mixes: [0; 2], at: (0, 1) };
        let last = |place: usize| match place.checked_sub(1) {
            Some(last) => (stages[last].pixels, stages[last].output),
            None => (PixelType::U8, decoded),
        };
        let end = stages.len();
        let mut place = 0;
        if turned {
            images.put((PixelType::U8, decoded));
        } else {
            place = pass_end(stages, 0, false);
            if tensor && place == end {
                return [0; 6];
            }
            images.put(last(place));
        }
        while place < end {
            match stages[place].what {
                Passes::Whole | Passes::Mix(_) => {
                    if let Passes::Mix(sum) = stages[place].what {
                        images.put_mix(stages[place].output, sum);
                    }
                    place += 1;
                    images.put(last(place));
                }
                Passes::Any { mixes } => {
                    place += 1;
                    let (pixels, output) = last(place);
                    let Size { width, height } = stages[place - 1].input;
                    let size = Size::new(width.max(output.width), height.max(output.height));
                    images.put((pixels, size));
                    images.put((pixels, size));
                    if mixes {
                        images.put_mix(size, size);
                    }
                }
                _ => {
                    place = pass_end(stages, place, true);
                    if !tensor || place < end {
                        images.put(last(place));
                    }
                }
            }
        }
        let ([[a, b], [c, d]], [e, f]) = (images.bytes, images.mixes);
        [a, b, c, d, e, f]
    }

    /// What a mix keeps: the image at its begin, and the sum.
    fn put_mix(&mut self, image: Size, sum: Size) {
        let bytes = [bytes_of(PixelType::U8, image), bytes_of(PixelType::F32, sum)];
        self.mixes = std::array::from_fn(|at| self.mixes[at].max(bytes[at]));
    }

    /// Next image: the other one of the same type, or the first one of the other type.
    fn put(&mut self, (pixels, size): (PixelType, Size)) {
        let sort = usize::from(pixels == PixelType::F32);
        self.at = (sort, if self.at.0 == sort { 1 - self.at.1 } else { 0 });
        let bytes = &mut self.bytes[sort][self.at.1];
        *bytes = (*bytes).max(bytes_of(pixels, size));
    }
}

/// First stage after a pass that begins at `place`: an optional resampling, or stencil, warp or statistics of a stored
/// image, and pointwise actions.
fn pass_end(stages: &[Stage], place: usize, stored: bool) -> usize {
    let crops = stages[place..].iter().take_while(|it| it.what == Passes::Crop).count();
    let resamples = stages.get(place + crops).is_some_and(|it| it.what == Passes::Resample);
    let reads = stored
        && stages
            .get(place)
            .is_some_and(|it| matches!(it.what, Passes::Reader | Passes::Statistics));
    let first = if resamples { place + crops + 1 } else { place + usize::from(reads) };
    first + stages[first..].iter().take_while(|it| it.is_pointwise()).count()
}

/// Size of a window, in bytes.
pub fn bytes_of(pixels: PixelType, size: Size) -> u64 {
    let value = match pixels {
        PixelType::U8 => 1,
        PixelType::F32 => size_of::<f32>() as u64,
    };
    size.pixels().saturating_mul(CHANNELS as u64 * value)
}
