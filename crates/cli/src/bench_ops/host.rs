//! The part of `bench-ops` that measures the time of each step on the CPU.

use std::hint::black_box;
use std::time::Instant;

use feedwater::PixelFormat;
use feedwater::error::DataError;
use feedwater::internals::decode::Decoders;
use feedwater::internals::geometry::{Orientation, Size};
use feedwater::internals::header::{Format, Header};
use feedwater::internals::image::{HostImage, PixelType};
use feedwater::internals::output;
use feedwater::internals::plan::SamplePlan;
use feedwater::internals::random::SampleKey;
use feedwater::internals::transform::{FullDecoder, HostTransform, PlannedImage};
use feedwater::plan::Plan;
use feedwater::source::Source;
use feedwater::source::custom::HostPage;

use super::super::CommandError;
use super::made::{Made, megapixels, operator_name};
use super::measured::{Measured, Row};
use super::table::WorkPart;

/// Measured times of one step in seconds, one per sample.
struct MeasuredStep {
    name: String,
    part: WorkPart,
    seconds: Vec<f64>,
    megapixels: f64,
}

/// Measures the steps of samples on the CPU, one sample after the other.
pub struct Bench<'a> {
    plan: &'a Plan,
    source: &'a dyn Source,
    page: HostPage,
    decoder: Decoders,
    transform: HostTransform,
    full_decoder: FullDecoder,
    tensor: Vec<u8>,
    steps: Vec<MeasuredStep>,
    image_megapixels: f64,
    skipped: u64,
    first_error: Option<String>,
}

const READ: usize = 0;
const HEADER: usize = 1;
const PRESIZE: usize = 2;
const PLAN: usize = 3;
const DECODE: usize = 4;
const FIRST_OPERATOR: usize = 5;

impl<'a> Bench<'a> {
    /// Creates a benchmark without measurements.
    pub fn new(plan: &'a Plan, source: &'a dyn Source) -> Self {
        let load = ["read", "header", "presize", "plan", "decode"]
            .map(|it| (it.to_string(), WorkPart::Load));
        let operators =
            plan.steps.iter().enumerate().map(|(number, step)| {
                (operator_name(number, step.operator.name()), WorkPart::Encode)
            });
        let rest = [
            ("output", WorkPart::Encode),
            ("decode, whole", WorkPart::Comparison),
            ("decode to tensor", WorkPart::Comparison),
        ];
        let rest = rest.map(|(name, part)| (name.to_string(), part));
        let steps = load
            .into_iter()
            .chain(operators)
            .chain(rest)
            .map(|(name, part)| MeasuredStep { name, part, seconds: Vec::new(), megapixels: 0.0 });
        Self {
            plan,
            source,
            page: HostPage::default(),
            decoder: Decoders::new()
                .strict(plan.settings.decode.strict)
                .jpeg(plan.settings.decode.jpeg)
                .background(plan.settings.decode.background),
            transform: HostTransform::new(plan),
            full_decoder: FullDecoder::new(
                plan.settings.cache.presize,
                plan.settings.decode.orientation,
            ),
            tensor: vec![0; plan.shape.sample_bytes()],
            steps: steps.collect(),
            image_megapixels: 0.0,
            skipped: 0,
            first_error: None,
        }
    }

    /// Measures every step of a sample. The times are recorded only if the sample is usable.
    pub fn sample(&mut self, index: u64) -> Result<Made, DataError> {
        let mut times = Vec::with_capacity(self.steps.len());
        let settings = &self.plan.settings;
        let key = SampleKey { seed: settings.loader.seed, epoch: 0, index };
        let begin = Instant::now();
        self.source.read(index, &mut self.page, settings.limits.max_file_bytes)?;
        let read = begin.elapsed().as_secs_f64();
        let begin = Instant::now();
        let header = self.plan.header(self.page.bytes())?;
        let parsed = begin.elapsed().as_secs_f64();
        let stored = header.size;
        times.push((READ, read, stored));
        times.push((HEADER, parsed, stored));

        let (header, smaller) =
            match settings.cache.decoded.is_some() && self.full_decoder.resizes(&header) {
                true => {
                    let ((orientation, pixels), took) = best(|| {
                        self.full_decoder.decode(self.page.bytes(), &header, &mut self.decoder)
                    })?;
                    times.push((PRESIZE, took, stored));
                    (decoded(self.full_decoder.size(&header), orientation), Some(pixels))
                }
                false => (header, None),
            };
        let bytes = smaller.as_deref().unwrap_or(self.page.bytes());
        let turned = settings.decode.orientation;
        self.source.canvas(index).check(header.size, header.orientation, turned)?;
        let mut sample = SamplePlan::default();
        let ((), took) = best(|| self.plan.sample(key, &header, &mut sample))?;
        times.push((PLAN, took, header.size));

        let encoded = PlannedImage { bytes, header: &header, plan: self.plan, sample: &sample };
        let Self { decoder, transform, tensor, .. } = self;
        let ((), took) = best(|| transform.run_prefix(encoded, decoder, 0))?;
        times.push((DECODE, took, sample.stored_window.size()));
        let mut images = vec![transform.image().clone()];
        for place in 0..self.plan.steps.len() {
            let image = &images[place];
            let actions = &sample.actions;
            let ((), took) = best(|| transform.run_operator(actions, place, black_box(image)))?;
            times.push((FIRST_OPERATOR + place, took, image.window().size()));
            let made = transform.image().clone();
            images.push(made);
        }
        let image = &images[self.plan.steps.len()];
        let last = FIRST_OPERATOR + self.plan.steps.len();
        let ((), took) = best(|| {
            output::store(black_box(image), self.plan.shape, tensor);
            Ok(())
        })?;
        times.push((last, took, image.window().size()));
        if self.plan.settings.decode.pixels == PixelFormat::U8x3 {
            let mut rows = HostImage::new(PixelType::U8, header.size.window());
            let ((), took) = best(|| {
                let HostImage::U8(rows) = &mut rows else { return Ok(()) };
                decoder.decode(bytes, &header, header.size.window(), 1, &mut |group| {
                    group.iter().for_each(|(y, row)| rows.row_mut(y).copy_from_slice(row));
                })
            })?;
            times.push((last + 1, took, header.size));
        }
        let ((), took) = best(|| transform.run(encoded, decoder, tensor))?;
        times.push((last + 2, took, sample.stored_window.size()));

        for (step, seconds, size) in times {
            let step = &mut self.steps[step];
            step.seconds.push(seconds);
            step.megapixels += megapixels(size);
        }
        self.image_megapixels += megapixels(stored);
        Ok(Made { sample, images, tensor: self.tensor.clone() })
    }

    /// Counts an unusable sample and records the first reason.
    pub fn skip(&mut self, reason: impl FnOnce() -> String) {
        self.skipped += 1;
        self.first_error.get_or_insert_with(reason);
    }

    /// Returns all measurements except those of the device.
    ///
    /// # Errors
    /// Fails if no sample was usable.
    pub fn result(self, source: String) -> Result<Measured, CommandError> {
        let samples = self.steps[READ].seconds.len();
        if samples == 0 {
            let why = self.first_error.unwrap_or_else(|| "the source has no samples".into());
            return Err(CommandError::Failed(format!(
                "no sample could be measured; first error: {why}"
            )));
        }
        let mean = |step: &MeasuredStep| step.seconds.iter().sum::<f64>() / samples as f64;
        let sum = |part| self.steps.iter().filter(|it| it.part == part).map(mean).sum::<f64>();
        let (load_seconds, encode_seconds) = (sum(WorkPart::Load), sum(WorkPart::Encode));
        let tensor = self.steps.last().map_or(0.0, mean);
        let without_decode = self.steps[..DECODE].iter().map(mean).sum::<f64>();
        let all = load_seconds + encode_seconds;
        let rows = self.steps.iter().filter(|it| !it.seconds.is_empty()).map(|step| {
            let mut sorted = step.seconds.clone();
            sorted.sort_by(f64::total_cmp);
            let seconds = mean(step);
            let megapixels = step.megapixels / samples as f64;
            Row {
                name: step.name.clone(),
                part: step.part,
                seconds,
                p50_seconds: quantile(&sorted, 0.5),
                p99_seconds: quantile(&sorted, 0.99),
                megapixels,
                seconds_per_megapixel: (megapixels > 0.0).then(|| seconds / megapixels),
                share: (step.part != WorkPart::Comparison).then(|| seconds / all),
            }
        });
        let format = self.plan.settings.decode.pixels;
        Ok(Measured {
            source,
            pixels: format.name(),
            pixels_note: note(format),
            samples,
            skipped: self.skipped,
            first_error: self.first_error.clone(),
            image_megapixels: self.image_megapixels / samples as f64,
            load_seconds,
            encode_seconds,
            loader_seconds: without_decode + tensor,
            images_per_second_per_core: 1.0 / (without_decode + tensor),
            gpu: String::new(),
            device: None,
            rows: rows.collect(),
        })
    }
}

/// Returns what a pixel format means for the measurements, if it is not RGB of 8 bits.
fn note(format: PixelFormat) -> Option<String> {
    let parts = [
        (format != PixelFormat::U8x3, "on the CPU only"),
        (format.is_floats(), "operators run on the reference path of f32"),
        (format.has_alpha(), "operators are measured without alpha, `decode to tensor` with it"),
    ];
    let parts: Vec<&str> =
        parts.iter().filter(|(holds, _)| *holds).map(|(_, part)| *part).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// Returns the quantile `part` (0 to 1) of `sorted`, which must not be empty.
fn quantile(sorted: &[f64], part: f64) -> f64 {
    let place = (part * sorted.len() as f64).ceil() as usize;
    sorted[place.clamp(1, sorted.len()) - 1]
}

/// Runs some work three times. Returns the last result, and the shorter time of the last two runs
/// in seconds.
fn best<T>(mut work: impl FnMut() -> Result<T, DataError>) -> Result<(T, f64), DataError> {
    work()?;
    let mut timed = || {
        let begin = Instant::now();
        work().map(|made| (made, begin.elapsed().as_secs_f64()))
    };
    let ((_, second), (made, third)) = (timed()?, timed()?);
    Ok((made, second.min(third)))
}

fn decoded(size: Size, orientation: Orientation) -> Header {
    Header { format: Format::Pixels, size, orientation, jpeg: None }
}
