//! The CPU's side: decoder rows in, tensor out.
//!
//! The common chains (crop, resample, flip, normalize) are run without a decoded picture in memory: each row
//! is resampled horizontally as the decoder gives it, and each row of the output is resampled
//! vertically, mirrored, normalised and converted as it is stored. Everything else goes operator by operator
//! through stored windows. Both ways give the bits of the operators' references.

use std::time::{Duration, Instant};

use super::plain::Resampler;
use crate::decode::HostDecoder;
use crate::error::Fault;
use crate::geometry::Roi;
use crate::header::Header;
use crate::image::{HostImage, Image, PixelType};
use crate::op::{Fusion, normalize};
use crate::output::{self, Tail};
use crate::plan::{Plan, SamplePlan, SampleStep};
use crate::tensor::TensorShape;

/// One thread's executor; its buffers grow to what the largest sample needs and stay.
pub struct HostTransform {
    shape: TensorShape,
    resampler: Resampler,
    tail: Option<(Option<normalize::Params>, Tail)>,
    /// The image that is being worked on, and the one that it is turned into.
    image: HostImage,
    next: HostImage,
    row: Vec<u8>,
    busy: Duration,
}

/// Rows whose resampling is timed: one in so many, since reading a clock costs as much as a short row.
const TIMED_ROWS: u32 = 8;

impl HostTransform {
    /// An executor for a plan.
    pub fn new(plan: &Plan) -> Self {
        let empty = || HostImage::new(PixelType::U8, Roi::default());
        Self {
            shape: plan.shape,
            resampler: Resampler::default(),
            tail: None,
            image: empty(),
            next: empty(),
            row: Vec::new(),
            busy: Duration::ZERO,
        }
    }

    /// Time that the last [`run`](Self::run) spent in operators and output, not in the decoder.
    pub fn busy(&self) -> Duration {
        self.busy
    }

    /// Decodes a sample and runs all operators; `out` is its part of the batch.
    pub fn run(
        &mut self,
        plan: &Plan,
        sample: &SamplePlan,
        decoder: &mut HostDecoder,
        bytes: &[u8],
        header: &Header,
        out: &mut [u8],
    ) -> Result<(), Fault> {
        self.busy = Duration::ZERO;
        let fusions = || {
            plan.steps.iter().zip(&sample.steps).map(|(op, step)| op.operator.fusion(&step.params))
        };
        let crops = fusions().take_while(|it| matches!(it, Fusion::Crop { .. })).count();
        let offset = fusions().take(crops).fold((0, 0), |(dx, dy), crop| match crop {
            Fusion::Crop { x, y } => (dx + x, dy + y),
            _ => (dx, dy),
        });
        let first = fusions().nth(crops);
        match first {
            Some(Fusion::Resample(params)) if sample.orientation.is_upright() => {
                let step = &sample.steps[crops];
                let table = &sample.table[step.table.clone()];
                self.decode_resampled(
                    sample,
                    decoder,
                    bytes,
                    header,
                    (&params, table, step),
                    offset,
                )?;
                let begin = Instant::now();
                if tail_of(plan, sample, crops + 1).is_some() {
                    self.store_tail(plan, sample, crops + 1, Some(step.output), out);
                } else {
                    self.materialize(step.output);
                    self.operate(plan, sample, crops + 1, out);
                }
                self.busy += begin.elapsed();
            }
            _ => {
                self.decode_stored(sample, decoder, bytes, header)?;
                let begin = Instant::now();
                self.operate(plan, sample, 0, out);
                self.busy += begin.elapsed();
            }
        }
        Ok(())
    }

    /// Decodes into the resampler's intermediate; `offset` is what leading crops cut off.
    fn decode_resampled(
        &mut self,
        sample: &SamplePlan,
        decoder: &mut HostDecoder,
        bytes: &[u8],
        header: &Header,
        (params, table, step): (&crate::op::resample::Params, &[i32], &SampleStep),
        offset: (u32, u32),
    ) -> Result<(), Fault> {
        let (resampler, busy) = (&mut self.resampler, &mut self.busy);
        resampler.begin(params, table, step.input);
        decoder.decode(bytes, header, sample.stored_window, sample.reduction, &mut |y, row| {
            let y = y - offset.1;
            if y % TIMED_ROWS == 0 {
                let begin = Instant::now();
                resampler.push_row(y, row);
                *busy += begin.elapsed() * TIMED_ROWS;
            } else {
                resampler.push_row(y, row);
            }
        })
    }

    /// Decodes the window upright into `self.image`.
    fn decode_stored(
        &mut self,
        sample: &SamplePlan,
        decoder: &mut HostDecoder,
        bytes: &[u8],
        header: &Header,
    ) -> Result<(), Fault> {
        let image = reset_u8(&mut self.image, sample.window);
        let SamplePlan { orientation, stored, stored_window, reduction, .. } = *sample;
        decoder.decode(bytes, header, stored_window, reduction, &mut |y, row| {
            if orientation.is_upright() {
                image.row_mut(y).copy_from_slice(row);
                return;
            }
            for (x, pixel) in (stored_window.x..).zip(row.as_chunks::<3>().0) {
                let (x, y) = orientation.upright_position(stored, x, y);
                image.set_pixel(x, y, *pixel);
            }
        })
    }

    /// Makes the resampled window an image.
    fn materialize(&mut self, window: Roi) {
        let image = reset_u8(&mut self.image, window);
        for y in window.y..window.bottom() {
            self.resampler.output_row(y, image.row_mut(y));
        }
    }

    /// Runs the operators from number `place` on, on `self.image`, and stores the result.
    fn operate(&mut self, plan: &Plan, sample: &SamplePlan, mut place: usize, out: &mut [u8]) {
        while place < plan.steps.len() {
            if self.image.pixels() == PixelType::U8 && tail_of(plan, sample, place).is_some() {
                break;
            }
            let (op, step) = (&plan.steps[place], &sample.steps[place]);
            reset(&mut self.next, op.pixels, step.output);
            let table = &sample.table[step.table.clone()];
            op.operator.apply(&step.params, table, &self.image, &mut self.next);
            std::mem::swap(&mut self.image, &mut self.next);
            place += 1;
        }
        if self.image.pixels() == PixelType::U8 {
            self.store_tail(plan, sample, place, None, out);
        } else {
            output::store(&self.image, self.shape.dtype, self.shape.layout, out);
        }
    }

    /// Stores byte pixels through the operators from number `place` on, which only move and map pixels. They
    /// come from the resampler's window, or from `self.image`.
    fn store_tail(
        &mut self,
        plan: &Plan,
        sample: &SamplePlan,
        place: usize,
        resampled: Option<Roi>,
        out: &mut [u8],
    ) {
        let Some(steps) = tail_of(plan, sample, place) else { return };
        let TensorShape { width, height, dtype, layout, .. } = self.shape;
        if self.tail.as_ref().is_none_or(|(normalize, _)| *normalize != steps.normalize) {
            let tail = Tail::new(steps.normalize.as_ref(), dtype, layout);
            self.tail = Some((steps.normalize, tail));
        }
        let Some((_, tail)) = &self.tail else { return };
        self.row.resize(3 * width as usize, 0);
        for y in 0..height {
            let from = if steps.mirror_y { height - 1 - y } else { y };
            let row = match (resampled, &self.image) {
                (Some(window), _) => {
                    self.resampler.output_row(window.y + from, &mut self.row);
                    &self.row[..]
                }
                (None, HostImage::U8(image)) => image.row(image.window().y + from),
                (None, HostImage::F32(_)) => return,
            };
            tail.store_row(row, y, (width, height), steps.mirror_x, out);
        }
    }
}

/// Operators that only move and map pixels, folded.
#[derive(Clone, Copy, Default)]
struct TailSteps {
    mirror_x: bool,
    mirror_y: bool,
    normalize: Option<normalize::Params>,
}

/// Folds the operators from number `place` on; `None` where one of them does more than move and map pixels.
/// Crops need no folding: windows already say which pixels are left.
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

fn reset_u8(image: &mut HostImage, window: Roi) -> &mut Image<u8> {
    reset(image, PixelType::U8, window);
    match image {
        HostImage::U8(image) => image,
        HostImage::F32(_) => unreachable!("reset made it bytes"),
    }
}

/// Makes `image` a window of that pixel type, keeping its memory where the type is the same.
fn reset(image: &mut HostImage, pixels: PixelType, window: Roi) {
    match (&mut *image, pixels) {
        (HostImage::U8(image), PixelType::U8) => image.reset(window),
        (HostImage::F32(image), PixelType::F32) => image.reset(window),
        _ => *image = HostImage::new(pixels, window),
    }
}
