//! CPU transform: decoder rows in, tensor out.
//!
//! The common chains (crop, resample, flip, normalize) run without a decoded image in memory: rows go from the decoder
//! into the resampler, and each output row is mirrored, normalised and converted as it is stored. All other chains run
//! operator by operator through stored windows. Both ways produce the bits of the operators' references.

use std::time::{Duration, Instant};

use crate::decode::Decoders;
use crate::error::{DataError, reserve};
use crate::geometry::Roi;
use crate::header::Header;
use crate::image::{HostImage, Image, PixelType};
use crate::op::resample::{self, Resampler};
use crate::op::{Fusion, normalize};
use crate::output::{self, Tail};
use crate::plan::{Plan, SamplePlan};
use crate::tensor::{DType, Layout, TensorShape};

use super::upright::Upright;

/// CPU transform of one thread. Its buffers grow to what the largest sample needs and are reused until released.
pub struct HostTransform {
    shape: TensorShape,
    stream: RowStream,
    tail: Option<(Option<normalize::Params>, Tail)>,
    images: Images,
    /// Index of the first operator that is applied while storing.
    stored: usize,
}

/// Image to be decoded, with its plan.
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

impl HostTransform {
    /// Creates a transform for a plan.
    pub fn new(plan: &Plan) -> Self {
        Self {
            shape: plan.shape,
            stream: RowStream::default(),
            tail: None,
            images: Images::default(),
            stored: 0,
        }
    }

    /// Whether time is measured. Default true.
    pub fn set_timed(&mut self, timed: bool) {
        self.stream.untimed = !timed;
    }

    /// Time that the last [`run`](Self::run) spent in operators and output, not in the decoder. Zero if it was not
    /// measured.
    pub fn busy(&self) -> Duration {
        self.stream.busy
    }

    /// Memory held, in bytes, except for the tables of the last normalization.
    pub fn capacity_bytes(&self) -> usize {
        self.images.capacity_bytes() + self.stream.capacity_bytes()
    }

    /// Frees all memory.
    pub fn release(&mut self) {
        self.images = Images::default();
        self.stream = RowStream { untimed: self.stream.untimed, ..RowStream::default() };
    }

    /// Decodes an image and runs all operators. `out` is its part of the batch.
    pub fn run(
        &mut self,
        encoded: PlannedImage<'_>,
        decoder: &mut Decoders,
        out: &mut [u8],
    ) -> Result<(), DataError> {
        self.stream.busy = Duration::ZERO;
        let PlannedImage { plan, sample, .. } = encoded;
        match resampling(plan, sample) {
            Some(job) => {
                if let Some(steps) = tail_of(plan, sample, job.place + 1) {
                    return self.stream(encoded, decoder, job, steps, out);
                }
                self.resample(encoded, decoder, job)?;
                self.finish(encoded, job.place + 1, out)?;
            }
            None => {
                self.decode_stored(encoded, decoder)?;
                self.finish(encoded, 0, out)?;
            }
        }
        Ok(())
    }

    /// Decodes an image and runs only the first `steps` operators. [`image`](Self::image) is then the upright image
    /// for the GPU.
    pub fn run_prefix(
        &mut self,
        encoded: PlannedImage<'_>,
        decoder: &mut Decoders,
        steps: usize,
    ) -> Result<(), DataError> {
        self.stream.busy = Duration::ZERO;
        let job = resampling(encoded.plan, encoded.sample).filter(|job| job.place < steps);
        let done = match job {
            Some(job) => {
                self.resample(encoded, decoder, job)?;
                job.place + 1
            }
            None => {
                self.decode_stored(encoded, decoder)?;
                0
            }
        };
        let begin = Instant::now();
        for place in done..steps {
            self.apply(encoded, place)?;
        }
        self.stream.busy += begin.elapsed();
        Ok(())
    }

    /// Result of [`run_prefix`](Self::run_prefix).
    pub fn image(&self) -> &HostImage {
        self.images.current()
    }

    /// Decodes, resamples and stores row by row, without storing the image.
    fn stream(
        &mut self,
        encoded: PlannedImage<'_>,
        decoder: &mut Decoders,
        job: Resampling,
        steps: TailSteps,
        out: &mut [u8],
    ) -> Result<(), DataError> {
        let TensorShape { width, height, dtype, layout, .. } = self.shape;
        let window = encoded.sample.steps[job.place].output;
        let tail = tail_for(&mut self.tail, steps.normalize, dtype, layout);
        self.stream.run(encoded, decoder, job, |y, row| {
            let y = y - window.y;
            let y = if steps.mirror_y { height - 1 - y } else { y };
            tail.store_row(row, y, (width, height), steps.mirror_x, out);
        })
    }

    /// Decodes and resamples into an image.
    fn resample(
        &mut self,
        encoded: PlannedImage<'_>,
        decoder: &mut Decoders,
        job: Resampling,
    ) -> Result<(), DataError> {
        let image = self.images.begin(encoded.sample.steps[job.place].output)?;
        self.stream.run(encoded, decoder, job, |y, row| image.row_mut(y).copy_from_slice(row))
    }

    /// Decodes the window into an upright image.
    fn decode_stored(
        &mut self,
        PlannedImage { bytes, header, sample, .. }: PlannedImage<'_>,
        decoder: &mut Decoders,
    ) -> Result<(), DataError> {
        let image = self.images.begin(sample.window)?;
        let SamplePlan { orientation, stored, stored_window, reduction, .. } = *sample;
        let upright = Upright { orientation, stored, first_column: stored_window.x };
        decoder.decode(bytes, header, stored_window, reduction, &mut |rows| {
            upright.store(rows, image);
        })
    }

    /// Runs the operators starting at index `place` on the image and stores the result.
    fn finish(
        &mut self,
        encoded: PlannedImage<'_>,
        place: usize,
        out: &mut [u8],
    ) -> Result<(), DataError> {
        let begin = (!self.stream.untimed).then(Instant::now);
        self.operate(encoded, place)?;
        self.store(encoded, out);
        self.stream.busy += begin.map_or(Duration::ZERO, |begin| begin.elapsed());
        Ok(())
    }

    /// Runs the operators starting at index `place` on the image, up to those that are applied while storing.
    fn operate(&mut self, encoded: PlannedImage<'_>, place: usize) -> Result<(), DataError> {
        let PlannedImage { plan, sample, .. } = encoded;
        self.stored = place;
        while self.stored < plan.steps.len() {
            if self.image().pixels() == PixelType::U8
                && tail_of(plan, sample, self.stored).is_some()
            {
                break;
            }
            self.apply(encoded, self.stored)?;
            self.stored += 1;
        }
        Ok(())
    }

    /// Runs operator number `place` on the image.
    fn apply(
        &mut self,
        PlannedImage { plan, sample, .. }: PlannedImage<'_>,
        place: usize,
    ) -> Result<(), DataError> {
        let (op, step) = (&plan.steps[place], &sample.steps[place]);
        let table = &sample.table[step.table.clone()];
        let stream = &mut self.stream;
        self.images.step(op.pixels, step.output, |image, next| {
            match (op.operator.fusion(&step.params), image, &mut *next) {
                // Reuses the memory that also resamples rows from the decoder.
                (Fusion::Resample(params), HostImage::U8(image), HostImage::U8(next)) => {
                    stream.resample(&params, table, image, next)
                }
                (_, image, _) => {
                    op.operator.apply(&step.params, table, image, next);
                    Ok(())
                }
            }
        })
    }

    /// Stores the result of [`operate`](Self::operate), applying operators that only move and map bytes.
    fn store(&mut self, PlannedImage { plan, sample, .. }: PlannedImage<'_>, out: &mut [u8]) {
        let TensorShape { width, height, dtype, layout, .. } = self.shape;
        let (HostImage::U8(image), Some(steps)) =
            (self.images.current(), tail_of(plan, sample, self.stored))
        else {
            return output::store(self.images.current(), dtype, layout, out);
        };
        let tail = tail_for(&mut self.tail, steps.normalize, dtype, layout);
        for y in 0..height {
            let from = if steps.mirror_y { height - 1 - y } else { y };
            let row = image.row(image.window().y + from);
            tail.store_row(row, y, (width, height), steps.mirror_x, out);
        }
    }
}

/// Resampling operator that consumes rows from the decoder.
#[derive(Clone, Copy)]
struct Resampling {
    params: resample::Params,
    /// Index of the operator.
    place: usize,
    /// Rows that preceding crops cut off.
    offset_y: u32,
}

/// Resampling operator that consumes rows from the decoder: only crops precede it, and the image is not rotated.
fn resampling(plan: &Plan, sample: &SamplePlan) -> Option<Resampling> {
    let mut offset_y = 0;
    for (place, (op, step)) in plan.steps.iter().zip(&sample.steps).enumerate() {
        match op.operator.fusion(&step.params) {
            Fusion::Crop { y, .. } => offset_y += y,
            Fusion::Resample(params) if sample.orientation.is_upright() => {
                return Some(Resampling { params, place, offset_y });
            }
            _ => return None,
        }
    }
    None
}

/// Stream of rows from the decoder through the resampler.
#[derive(Default)]
struct RowStream {
    resampler: Resampler,
    line: Vec<u8>,
    busy: Duration,
    /// Whether time is not measured.
    untimed: bool,
}

impl RowStream {
    fn capacity_bytes(&self) -> usize {
        self.resampler.scratch_bytes() + self.line.capacity()
    }

    /// Resamples an image.
    fn resample(
        &mut self,
        params: &resample::Params,
        table: &[i32],
        image: &Image<u8>,
        out: &mut Image<u8>,
    ) -> Result<(), DataError> {
        let Self { resampler, line, .. } = self;
        resampler.begin(params, table, image.window())?;
        lengthen(line, params.wanted().width)?;
        resample::run(resampler, params, table, image, line, out);
        Ok(())
    }

    /// Decodes an image and passes each row that the resampler completes to `sink`.
    fn run(
        &mut self,
        PlannedImage { bytes, header, sample, .. }: PlannedImage<'_>,
        decoder: &mut Decoders,
        job: Resampling,
        mut sink: impl FnMut(u32, &[u8]),
    ) -> Result<(), DataError> {
        let Self { resampler, line, busy, untimed } = self;
        let step = &sample.steps[job.place];
        resampler.begin(&job.params, &sample.table[step.table.clone()], step.input)?;
        lengthen(line, step.output.width)?;
        decoder.decode(bytes, header, sample.stored_window, sample.reduction, &mut |rows| {
            let begin = (!*untimed).then(Instant::now);
            for (y, row) in rows.iter() {
                resampler.push_row(y - job.offset_y, row);
                while let Some(y) = resampler.next_output() {
                    resampler.output_row(y, line);
                    sink(y, line);
                }
            }
            *busy += begin.map_or(Duration::ZERO, |begin| begin.elapsed());
        })
    }
}

/// Resizes `line` to `pixels` RGB pixels, without allocating more than that.
fn lengthen(line: &mut Vec<u8>, pixels: u32) -> Result<(), DataError> {
    reserve::renew(line, 3 * pixels as usize)
}

/// Table for this normalization, rebuilt only if it differs from the previous one.
fn tail_for(
    kept: &mut Option<(Option<normalize::Params>, Tail)>,
    normalize: Option<normalize::Params>,
    dtype: DType,
    layout: Layout,
) -> &Tail {
    let stale = kept.as_ref().is_none_or(|(of, _)| *of != normalize);
    if stale {
        *kept = None;
    }
    let make = || (normalize, Tail::new(normalize.as_ref(), dtype, layout));
    &kept.get_or_insert_with(make).1
}

/// Operators that only move and map pixels, combined.
#[derive(Clone, Copy, Default)]
struct TailSteps {
    mirror_x: bool,
    mirror_y: bool,
    normalize: Option<normalize::Params>,
}

/// Combines the operators starting at index `place`. `None` if one of them does more than move and map pixels. Crops
/// need no work: windows already say which pixels are left.
fn tail_of(plan: &Plan, sample: &SamplePlan, place: usize) -> Option<TailSteps> {
    let mut tail = TailSteps::default();
    for (op, step) in plan.steps.iter().zip(&sample.steps).skip(place) {
        match op.operator.fusion(&step.params) {
            Fusion::Flip { horizontal, vertical } => {
                tail.mirror_x ^= horizontal;
                tail.mirror_y ^= vertical;
            }
            Fusion::Normalize(params) if tail.normalize.is_none() => tail.normalize = Some(params),
            Fusion::Crop { .. } => {}
            _ => return None,
        }
    }
    Some(tail)
}

/// Images between operators, two of bytes and two of floats, so that a chain that changes the pixel type reuses the
/// previous sample's memory. `plan/need.rs` counts them.
struct Images {
    bytes: [HostImage; 2],
    floats: [HostImage; 2],
    /// Current image.
    at: (PixelType, usize),
}

impl Default for Images {
    fn default() -> Self {
        let empty = |pixels| [0; 2].map(|_| HostImage::new(pixels, Roi::default()));
        let [bytes, floats] = [PixelType::U8, PixelType::F32].map(empty);
        Self { bytes, floats, at: (PixelType::U8, 0) }
    }
}

impl Images {
    /// Current image.
    fn current(&self) -> &HostImage {
        let (pixels, place) = self.at;
        match pixels {
            PixelType::U8 => &self.bytes[place],
            PixelType::F32 => &self.floats[place],
        }
    }

    /// Begins a sample with a window of bytes, whose values are unspecified.
    fn begin(&mut self, window: Roi) -> Result<&mut Image<u8>, DataError> {
        self.at = (PixelType::U8, 0);
        match &mut self.bytes[0] {
            HostImage::U8(image) => {
                image.reset(window)?;
                Ok(image)
            }
            HostImage::F32(_) => unreachable!("these are images of bytes"),
        }
    }

    /// Advances to the next image: the other one of the same pixel type, or the first one of the other type.
    fn step(
        &mut self,
        pixels: PixelType,
        window: Roi,
        make: impl FnOnce(&HostImage, &mut HostImage) -> Result<(), DataError>,
    ) -> Result<(), DataError> {
        let next = (pixels, if pixels == self.at.0 { 1 - self.at.1 } else { 0 });
        let images = match pixels {
            PixelType::U8 => &mut self.bytes,
            PixelType::F32 => &mut self.floats,
        };
        let empty = HostImage::new(pixels, Roi::default());
        let mut image = std::mem::replace(&mut images[next.1], empty);
        let made = match &mut image {
            HostImage::U8(image) => image.reset(window),
            HostImage::F32(image) => image.reset(window),
        };
        let made = made.and_then(|()| make(self.current(), &mut image));
        self.at = next;
        match pixels {
            PixelType::U8 => self.bytes[next.1] = image,
            PixelType::F32 => self.floats[next.1] = image,
        }
        made
    }

    fn capacity_bytes(&self) -> usize {
        self.bytes.iter().chain(&self.floats).map(HostImage::capacity_bytes).sum()
    }
}
