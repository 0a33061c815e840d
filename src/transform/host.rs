//! CPU transform: computes the tensor of a sample from the rows that the decoder emits.
//!
//! Actions are executed in passes. A pass reads rows, applies the next pointwise actions to each
//! row while the row is in the CPU's cache, and stores the row. The first pass reads rows directly
//! from the decoder, or from a resampler that reads from the decoder. So the decoded image is
//! stored only if it is rotated. The last pass stores the tensor. All other passes store an image,
//! which the next pass reads. The result equals that of the actions' reference implementations, bit
//! for bit.

use std::ops::Range;
use std::time::{Duration, Instant};

use crate::decode::Decoders;
use crate::error::DataError;
use crate::header::Header;
use crate::image::{HostImage, Image, PixelType};
use crate::op::Actions;
use crate::op::kind::Executor;
use crate::op::resample;
use crate::plan::{Plan, SamplePlan};
use crate::tensor::{CHANNELS, TensorShape};

use super::images::Images;
use super::pass::{Passes, ResamplingAt, Source, resampling_at};
use super::resampling::Resampling;
use super::run::Pixels;
use super::upright::Upright;

/// Minimum total size of all batches, in bytes, for which tensors are written with non-temporal
/// stores, which bypass the CPU caches.
const PAST_CACHES_BYTES: usize = 32 << 20;

/// CPU transform of one thread. Its buffers grow to the size that the largest sample needs, and are
/// reused until they are released.
pub struct HostTransform {
    pub(super) passes: Passes,
    resampling: Resampling,
    pub(super) images: Images,
    /// Transform of the alpha channel, for images that have one.
    pub(super) alpha: Option<Box<HostTransform>>,
    busy: Duration,
    /// Whether time measurement is off.
    untimed: bool,
}

/// Image to decode, with its plan.
#[derive(Clone, Copy)]
pub struct PlannedImage<'a> {
    /// Bytes of the file.
    pub bytes: &'a [u8],
    /// Header of the file.
    pub header: &'a Header,
    /// Plan of the chain.
    pub plan: &'a Plan,
    /// Plan of the sample.
    pub sample: &'a SamplePlan,
}

/// Actions of a sample that have not been executed yet.
#[derive(Clone, Copy)]
pub(super) struct Rest<'a> {
    pub actions: &'a Actions,
    pub place: usize,
    pub end: usize,
    /// Whether the horizontal pass of the resampling of floats at `place` has been executed.
    pub is_across: bool,
}

impl HostTransform {
    /// Creates a transform for a plan.
    pub fn new(plan: &Plan) -> Self {
        let mut transform = Self::of_shape(plan.shape);
        let all_batches = plan.slots().saturating_mul(plan.output_bytes());
        transform.set_past_caches(all_batches >= PAST_CACHES_BYTES);
        transform
    }

    /// Creates a transform for tensors of this shape.
    pub fn of_shape(shape: TensorShape) -> Self {
        Self {
            passes: Passes::new(shape),
            resampling: Resampling::default(),
            images: Images::default(),
            alpha: None,
            busy: Duration::ZERO,
            untimed: false,
        }
    }

    /// Sets the shape of the tensors.
    pub fn set_shape(&mut self, shape: TensorShape) {
        self.passes.set_shape(shape);
    }

    /// Sets whether tensors are written with non-temporal stores, which bypass the CPU caches.
    /// [`new`](Self::new) enables them if all batches together have 32 MiB or more.
    pub fn set_past_caches(&mut self, is_past: bool) {
        self.passes.set_past_caches(is_past);
    }

    /// Sets whether time is measured. Default: true.
    pub fn set_timed(&mut self, timed: bool) {
        self.untimed = !timed;
    }

    /// Returns the time that the last [`run`](Self::run) spent in operators and output, without the
    /// decoder. Zero if time was not measured.
    pub fn busy(&self) -> Duration {
        self.busy
    }

    /// Returns the memory of the buffers, in bytes. The tables of the last conversion are not
    /// counted.
    pub fn capacity_bytes(&self) -> usize {
        self.images.capacity_bytes()
            + self.resampling.capacity_bytes()
            + self.passes.capacity_bytes()
            + self.alpha.as_ref().map_or(0, |alpha| alpha.capacity_bytes())
    }

    /// Frees all memory.
    pub fn release(&mut self) {
        self.images = Images::default();
        self.resampling = Resampling::default();
        self.passes.release();
        self.alpha = None;
    }

    /// Decodes an image and runs all operators. `out` is the sample's part of the batch.
    pub fn run(
        &mut self,
        encoded: PlannedImage<'_>,
        decoder: &mut Decoders,
        out: &mut [u8],
    ) -> Result<(), DataError> {
        self.execute(encoded, decoder, encoded.plan.steps.len(), Some(out))
    }

    /// Decodes an image and runs only the first `operators` operators. [`image`](Self::image) then
    /// returns the upright image to upload to the GPU.
    pub fn run_prefix(
        &mut self,
        encoded: PlannedImage<'_>,
        decoder: &mut Decoders,
        operators: usize,
    ) -> Result<(), DataError> {
        self.execute(encoded, decoder, operators, None)
    }

    /// Returns the result of [`run_prefix`](Self::run_prefix).
    pub fn image(&self) -> &HostImage {
        self.images.current()
    }

    /// Runs the operators of `plan` on the image that `from` [decoded](Self::run_prefix), and
    /// stores the sample's tensor in `out`.
    pub fn run_decoded(
        &mut self,
        plan: &Plan,
        actions: &Actions,
        from: &HostTransform,
        out: &mut [u8],
    ) -> Result<(), DataError> {
        let operators = plan.steps.len();
        self.set_shape(plan.shape);
        match plan.pixel_format().has_alpha() {
            true => self.run_with_alpha(actions, operators, from, out),
            false => self.run_image(actions, 0..operators, from.image(), Some(out)),
        }
    }

    /// Runs one operator on an image, which must contain all pixels that the operator reads.
    /// [`image`](Self::image) then returns the result.
    pub fn run_operator(
        &mut self,
        actions: &Actions,
        operator: usize,
        image: &HostImage,
    ) -> Result<(), DataError> {
        self.run_image(actions, operator..operator + 1, image, None)
    }

    /// Runs operators on an image, which must contain all pixels that the operators read, and
    /// stores the sample's tensor in `out`. Without `out`, [`image`](Self::image) then returns the
    /// result.
    pub fn run_image(
        &mut self,
        actions: &Actions,
        operators: Range<usize>,
        image: &HostImage,
        mut out: Option<&mut [u8]>,
    ) -> Result<(), DataError> {
        self.images.begin();
        let [place, end] = [operators.start, operators.end].map(|at| actions.end(at));
        let mut rest = Rest { actions, place, end, is_across: false };
        match self.next_pass(image, &mut rest, out.as_deref_mut())? {
            Some(made) => self.images.advance(made),
            None => return Ok(()),
        }
        self.finish(rest, out)
    }

    /// Runs the first `operators` operators, and stores the tensor if `out` is given.
    fn execute(
        &mut self,
        encoded: PlannedImage<'_>,
        decoder: &mut Decoders,
        operators: usize,
        mut out: Option<&mut [u8]>,
    ) -> Result<(), DataError> {
        self.busy = Duration::ZERO;
        self.images.begin();
        if encoded.plan.pixel_format().has_alpha() {
            return self.execute_with_alpha(encoded, decoder, operators, out);
        }
        let actions = &encoded.sample.actions;
        let end = actions.end(operators);
        let mut rest = Rest { actions, place: 0, end, is_across: false };
        let mut stored = false;
        if encoded.plan.pixel_format().is_floats() {
            self.decode_floats(encoded, decoder)?;
        } else if encoded.sample.orientation.is_upright() {
            stored = self.first_pass(encoded, decoder, &mut rest, out.as_deref_mut())?;
        } else {
            self.decode_turned(encoded, decoder)?;
        }
        self.timed(|this| this.finish(rest, out.filter(|_| !stored)))
    }

    /// Adds the time of `work` to the [busy](Self::busy) time if it succeeds.
    pub(super) fn timed(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<(), DataError>,
    ) -> Result<(), DataError> {
        let begin = (!self.untimed).then(Instant::now);
        work(self)?;
        self.busy += begin.map_or(Duration::ZERO, |begin| begin.elapsed());
        Ok(())
    }

    /// Runs the remaining actions on the current image, and stores the tensor if `out` is given.
    pub(super) fn finish(
        &mut self,
        mut rest: Rest<'_>,
        mut out: Option<&mut [u8]>,
    ) -> Result<(), DataError> {
        while rest.place < rest.end || out.is_some() {
            let image = self.images.take();
            let made = self.next_pass(&image, &mut rest, out.as_deref_mut());
            self.images.put_back(image);
            match made? {
                Some(image) => self.images.advance(image),
                None => return Ok(()),
            }
        }
        Ok(())
    }

    /// Decodes the window of a rotated or mirrored image and stores it upright.
    fn decode_turned(
        &mut self,
        PlannedImage { bytes, header, plan, sample }: PlannedImage<'_>,
        decoder: &mut Decoders,
    ) -> Result<(), DataError> {
        let SamplePlan { orientation, stored, stored_window, reduction, .. } = *sample;
        let mut upright = self.images.next(PixelType::U8, sample.window)?;
        let turn = Upright { orientation, stored, first_column: stored_window.x };
        let decoded = match &mut upright {
            HostImage::U8(upright) => {
                let (format, part) = (plan.pixel_format(), (stored_window, reduction));
                decoder.decode_format(format, bytes, header, part, &mut |rows| {
                    turn.store(rows, upright);
                })
            }
            HostImage::F32(_) => unreachable!("decoders give bytes"),
        };
        self.images.advance(upright);
        decoded
    }

    /// Decodes the window of an image of floats and stores it upright.
    fn decode_floats(
        &mut self,
        PlannedImage { bytes, header, plan, sample }: PlannedImage<'_>,
        decoder: &mut Decoders,
    ) -> Result<(), DataError> {
        let SamplePlan { orientation, stored, stored_window, .. } = *sample;
        let mut upright = self.images.next(PixelType::F32, sample.window)?;
        let turn = Upright { orientation, stored, first_column: stored_window.x };
        let decoded = match &mut upright {
            HostImage::F32(upright) => decoder.decode_floats(
                bytes,
                header,
                plan.pixel_format(),
                stored_window,
                &mut |part| {
                    turn.store_floats(part, upright);
                },
            ),
            HostImage::U8(_) => unreachable!("the image has floats"),
        };
        self.images.advance(upright);
        decoded
    }

    /// Runs a warp or one of the two passes of a resampling on an image of floats. Returns `None`
    /// if the next action is another one.
    fn pass_of_floats(
        &mut self,
        image: &Image<f32>,
        rest: &mut Rest<'_>,
    ) -> Result<Option<HostImage>, DataError> {
        let Rest { actions, place, end, is_across } = *rest;
        let Some(action) = actions.list[..end].get(place) else { return Ok(None) };
        let table = actions.table_of(place);
        let executor = action.params.executor();
        let window = match executor {
            Executor::Resample(params) if !is_across => resample::between(&params.axes, table),
            Executor::Resample(_) | Executor::Rows(_) => action.output,
            _ => return Ok(None),
        };
        let HostImage::F32(mut made) = self.images.next(PixelType::F32, window)? else {
            unreachable!("the image has floats")
        };
        rest.is_across = false;
        match executor {
            Executor::Resample(params) if !is_across => {
                resample::across(&params.axes, table, image, &mut made);
                rest.is_across = true;
            }
            Executor::Resample(params) => resample::down(&params.axes, table, image, &mut made),
            Executor::Rows(rows) => rows.floats(table, image, &mut made),
            _ => unreachable!("the action resamples or warps"),
        }
        rest.place += usize::from(!rest.is_across);
        Ok(Some(HostImage::F32(made)))
    }

    /// Runs the first pass, which reads rows from the decoder. Returns whether it stored the
    /// tensor.
    fn first_pass(
        &mut self,
        PlannedImage { bytes, header, plan, sample }: PlannedImage<'_>,
        decoder: &mut Decoders,
        rest: &mut Rest<'_>,
        out: Option<&mut [u8]>,
    ) -> Result<bool, DataError> {
        let Rest { actions, end, .. } = *rest;
        let resample = resampling_at(actions, 0, end);
        let (first, window) = match resample {
            Some(ResamplingAt { place, params, .. }) => {
                let action = &actions.list[place];
                self.resampling.begin(params, actions.table_of(place), action.input)?;
                (place + 1, action.output)
            }
            None => (0, sample.window),
        };
        rest.place = actions.pointwise_end(first, end);
        let source = Source { window, pixels: PixelType::U8, made: None };
        let out = out.filter(|_| rest.place == end);
        let stores = out.is_some();
        let Self { passes, resampling, images, .. } = self;
        let mut pass = passes.begin(actions, first..rest.place, source, out, images)?;
        let (mut busy, untimed) = (Duration::ZERO, self.untimed);
        let (format, part) = (plan.pixel_format(), (sample.stored_window, sample.reduction));
        let decoded = decoder.decode_format(format, bytes, header, part, &mut |rows| {
            let begin = (!untimed).then(Instant::now);
            for (y, row) in rows.iter() {
                match resample {
                    Some(ResamplingAt { cut: (_, top), .. }) => {
                        resampling.push(y - top, row, &mut pass);
                    }
                    None => pass.put_bytes(y, row),
                }
            }
            busy += begin.map_or(Duration::ZERO, |begin| begin.elapsed());
        });
        if let Some(image) = pass.end() {
            self.images.advance(image);
        }
        self.busy = busy;
        decoded.map(|()| stores)
    }

    /// Runs a pass over an image. Returns the image that it stored, or `None` if it stored the
    /// tensor.
    fn next_pass(
        &mut self,
        image: &HostImage,
        rest: &mut Rest<'_>,
        out: Option<&mut [u8]>,
    ) -> Result<Option<HostImage>, DataError> {
        let Rest { actions, place, end, .. } = *rest;
        let action = actions.list[..end].get(place);
        let executor = action.map(|it| it.params.executor());
        if let (Some(action), Some(Executor::Whole(whole))) = (action, executor) {
            let mut made = self.images.next(action.pixels(image.pixels()), action.output)?;
            whole.image(image, &mut made);
            rest.place += 1;
            return Ok(Some(made));
        }
        if let (Some(action), Some(Executor::Mix(mix))) = (action, executor) {
            rest.place += 1;
            return self.images.mix(mix, image, action.output).map(Some);
        }
        if let HostImage::F32(image) = image
            && let Some(made) = self.pass_of_floats(image, rest)?
        {
            return Ok(Some(made));
        }
        let resample = match image {
            HostImage::U8(_) => resampling_at(actions, place, end),
            HostImage::F32(_) => None,
        };
        let made = match executor {
            Some(Executor::Statistics(statistics)) => Some(statistics.table(image)),
            _ => None,
        };
        let (first, window) = match (resample, executor) {
            (Some(ResamplingAt { place, .. }), _) => (place + 1, actions.list[place].output),
            (_, Some(Executor::Rows(_))) => (place + 1, actions.list[place].output),
            _ => (place, image.window()),
        };
        let after = first.max(place + usize::from(made.is_some()));
        rest.place = actions.pointwise_end(after, end);
        let source = Source { window, pixels: image.pixels(), made: made.as_ref() };
        let out = out.filter(|_| rest.place == end);
        let Self { passes, resampling, images, .. } = self;
        let mut pass = passes.begin(actions, first..rest.place, source, out, images)?;
        match image {
            HostImage::U8(image) => {
                let window = image.window();
                match (resample, executor) {
                    (Some(ResamplingAt { place, params, cut: (left, top) }), _) => {
                        // The image may be larger than the window that is resampled.
                        let input = actions.list[place].input;
                        resampling.begin(params, actions.table_of(place), input)?;
                        let first = CHANNELS * (input.x + left - window.x) as usize;
                        let len = CHANNELS * input.width as usize;
                        for y in input.y..input.bottom() {
                            resampling.push(y, &image.row(y + top)[first..][..len], &mut pass);
                        }
                    }
                    (_, Some(Executor::Rows(rows))) => {
                        let line = resampling.line(actions.list[place].output.width)?;
                        let (output, table) = (actions.list[place].output, actions.table_of(place));
                        for y in output.y..output.bottom() {
                            pass.make(y, line, |out| {
                                rows.row(table, image, (output.x, y), out.as_chunks_mut().0);
                            });
                        }
                    }
                    _ => pass.put_image(image),
                }
            }
            HostImage::F32(image) => {
                let window = image.window();
                for y in window.y..window.bottom() {
                    pass.put(y, Pixels::Floats(image.row(y)));
                }
            }
        }
        Ok(pass.end())
    }
}
