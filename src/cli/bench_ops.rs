//! `bench-ops`: what each step of a sample costs alone, on the samples that a pipeline file really has.
//!
//! * One thread, on the CPU, whatever the placements are. On a device the chain is one kernel, which is not measured here; the
//!   result says so, and what to run.
//! * Samples are evenly spread over the source, with the random choices of epoch 0.
//! * Reading and parsing are timed once, as they come; everything after that three times, and the better of the last two
//!   counts, so that no step pays for memory that the system gives it for the first time, nor for another program's turn.
//! * Each operator gets the window that really reaches it in this chain. `decode, whole` is for comparison and not in the sum;
//!   so is `decode to tensor`, which is what the loader runs: rows go from the decoder through the operators without a
//!   picture between them, so it may cost less than its steps alone.
//! * Megapixels are those of a step's input: of the picture for reading, parsing and planning; of the decoded window; of an
//!   operator's window; of the sample for the output conversion.
//! * A sample that cannot be used is left out and counted.

use std::hint::black_box;
use std::time::Instant;

use clap::Args;
use feedwater::Error;
use feedwater::config::Pipeline;
use feedwater::decode::HostDecoder;
use feedwater::error::{Fault, SampleError};
use feedwater::geometry::{Orientation, Size};
use feedwater::gpu::Device;
use feedwater::header::{Format, Header};
use feedwater::image::{HostImage, PixelType};
use feedwater::loader::DeviceChoice;
use feedwater::output;
use feedwater::plan::{Plan, SamplePlan};
use feedwater::random::SampleKey;
use feedwater::source::{HostPage, Source};
use feedwater::transform::{HostTransform, Picture, Whole};
use serde::Serialize;

use super::{Failure, print, print_json, progress};

/// Measures what each step and each operator costs alone: per image of this set, and per megapixel
#[derive(Args)]
#[command(after_help = "Example:\n  feedwater bench-ops pipeline.toml --samples 200 --json")]
pub struct Options {
    /// The pipeline file (TOML)
    file: std::path::PathBuf,
    /// How many samples, evenly spread over the source
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    samples: u64,
    /// Print the result as one line of JSON
    #[arg(long)]
    json: bool,
}

pub fn main(options: &Options) -> Result<(), Failure> {
    let pipeline = Pipeline::from_file(&options.file)?;
    let source = pipeline.source.open()?;
    let plan = plan(&pipeline)?;
    let all = source.len();
    let samples = options.samples.min(all);
    let bar = progress(samples, "samples");
    let mut bench = Bench::new(&plan, &*source);
    for look in 0..samples {
        // Exact also where the product does not fit into 64 bits.
        let index = (u128::from(look) * u128::from(all) / u128::from(samples)) as u64;
        if let Err(fault) = bench.sample(index) {
            bench.left_out += 1;
            bench.first_fault.get_or_insert_with(|| {
                let Fault { reason, problem } = fault;
                let location = source.location(index);
                SampleError { index, location, reason, problem }.to_string()
            });
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    let result = bench.result(source.describe())?;
    match options.json {
        true => print_json(&result),
        false => print(result.table()),
    }
}

/// The plan; where placements ask for a GPU, that of a machine which has one: the steps are the same.
fn plan(pipeline: &Pipeline) -> Result<Plan, Failure> {
    let on_cpu = pipeline.builder()?.device(DeviceChoice::Cpu).plan();
    match on_cpu {
        Err(Error::Unavailable { .. }) => {
            Ok(pipeline.builder()?.device(DeviceChoice::Gpu(0)).plan()?)
        }
        other => Ok(other?),
    }
}

/// What a step is to the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Part {
    /// Bringing the pixels: what ends with the decoded window.
    Load,
    /// Making a tensor of them.
    Encode,
    /// Another way to do what other steps do: not in the sum.
    Comparison,
}

/// What was measured of a step, sample by sample.
struct Step {
    name: String,
    part: Part,
    seconds: Vec<f64>,
    megapixels: f64,
}

struct Bench<'a> {
    plan: &'a Plan,
    source: &'a dyn Source,
    page: HostPage,
    decoder: HostDecoder,
    transform: HostTransform,
    whole: Whole,
    tensor: Vec<u8>,
    steps: Vec<Step>,
    picture_megapixels: f64,
    left_out: u64,
    first_fault: Option<String>,
}

const READ: usize = 0;
const HEADER: usize = 1;
const PRESIZE: usize = 2;
const PLAN: usize = 3;
const DECODE: usize = 4;
const FIRST_OPERATOR: usize = 5;

impl<'a> Bench<'a> {
    fn new(plan: &'a Plan, source: &'a dyn Source) -> Self {
        let load =
            ["read", "header", "presize", "plan", "decode"].map(|it| (it.to_string(), Part::Load));
        let operators = plan.steps.iter().enumerate().map(|(number, step)| {
            (format!("chain[{number}] {}", step.operator.name()), Part::Encode)
        });
        let rest = [
            ("output", Part::Encode),
            ("decode, whole", Part::Comparison),
            ("decode to tensor", Part::Comparison),
        ];
        let rest = rest.map(|(name, part)| (name.to_string(), part));
        let steps = load.into_iter().chain(operators).chain(rest).map(|(name, part)| Step {
            name,
            part,
            seconds: Vec::new(),
            megapixels: 0.0,
        });
        Self {
            plan,
            source,
            page: HostPage::default(),
            decoder: HostDecoder::new(),
            transform: HostTransform::new(plan),
            whole: Whole::new(plan.settings.cache.presize, plan.settings.decode.orientation),
            tensor: vec![0; plan.shape.sample_bytes()],
            steps: steps.collect(),
            picture_megapixels: 0.0,
            left_out: 0,
            first_fault: None,
        }
    }

    /// Times every step of a sample, and keeps the times where it can be used.
    fn sample(&mut self, index: u64) -> Result<(), Fault> {
        let mut times = Vec::with_capacity(self.steps.len());
        let settings = &self.plan.settings;
        let key = SampleKey { seed: settings.loader.seed, epoch: 0, index };
        let begin = Instant::now();
        self.source.read(index, &mut self.page, settings.limits.max_file_bytes)?;
        let read = begin.elapsed().as_secs_f64();
        let begin = Instant::now();
        let header = Header::parse(self.page.bytes())?;
        let parsed = begin.elapsed().as_secs_f64();
        let stored = header.size;
        times.push((READ, read, stored));
        times.push((HEADER, parsed, stored));

        self.plan.check_pixels(&header)?;
        let (header, smaller) =
            match settings.cache.decoded.is_some() && self.whole.resizes(&header) {
                true => {
                    let ((orientation, pixels), took) =
                        best(|| self.whole.decode(self.page.bytes(), &header, &mut self.decoder))?;
                    times.push((PRESIZE, took, stored));
                    (decoded(self.whole.size(&header), orientation), Some(pixels))
                }
                false => (header, None),
            };
        let bytes = smaller.as_deref().unwrap_or(self.page.bytes());
        let turned = settings.decode.orientation;
        self.source.canvas(index).check(header.size, header.orientation, turned)?;
        let mut sample = SamplePlan::default();
        let ((), took) = best(|| self.plan.sample(key, &header, &mut sample))?;
        times.push((PLAN, took, header.size));

        let picture = Picture { bytes, header: &header, plan: self.plan, sample: &sample };
        let Self { decoder, transform, tensor, .. } = self;
        let ((), took) = best(|| transform.run_prefix(picture, decoder, 0))?;
        times.push((DECODE, took, sample.stored_window.size()));
        let mut image = transform.image().clone();
        for (place, (op, step)) in self.plan.steps.iter().zip(&sample.steps).enumerate() {
            let mut next = HostImage::new(op.pixels, step.output);
            let table = &sample.table[step.table.clone()];
            let ((), took) = best(|| {
                op.operator.apply(&step.params, table, black_box(&image), &mut next);
                Ok(())
            })?;
            times.push((FIRST_OPERATOR + place, took, step.input.size()));
            image = next;
        }
        let last = FIRST_OPERATOR + self.plan.steps.len();
        let (dtype, layout) = (self.plan.shape.dtype, self.plan.shape.layout);
        let ((), took) = best(|| {
            output::store(black_box(&image), dtype, layout, tensor);
            Ok(())
        })?;
        times.push((last, took, image.window().size()));
        let mut rows = HostImage::new(PixelType::U8, header.size.window());
        let ((), took) = best(|| {
            let HostImage::U8(rows) = &mut rows else { return Ok(()) };
            let mut row = |y, row: &[u8]| rows.row_mut(y).copy_from_slice(row);
            decoder.decode(bytes, &header, header.size.window(), 1, &mut row)
        })?;
        times.push((last + 1, took, header.size));
        let ((), took) = best(|| transform.run(picture, decoder, tensor))?;
        times.push((last + 2, took, sample.stored_window.size()));

        for (step, seconds, size) in times {
            let step = &mut self.steps[step];
            step.seconds.push(seconds);
            step.megapixels += megapixels(size);
        }
        self.picture_megapixels += megapixels(stored);
        Ok(())
    }

    fn result(self, source: String) -> Result<Measured, Failure> {
        let samples = self.steps[READ].seconds.len();
        if samples == 0 {
            let why = self.first_fault.unwrap_or_else(|| "the source has no samples".into());
            return Err(Failure::Failed(format!("no sample could be measured; the first: {why}")));
        }
        let mean = |step: &Step| step.seconds.iter().sum::<f64>() / samples as f64;
        let sum = |part| self.steps.iter().filter(|it| it.part == part).map(mean).sum::<f64>();
        let (load_seconds, encode_seconds) = (sum(Part::Load), sum(Part::Encode));
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
                share: (step.part != Part::Comparison).then(|| seconds / all),
            }
        });
        Ok(Measured {
            source,
            samples,
            left_out: self.left_out,
            first_fault: self.first_fault.clone(),
            picture_megapixels: self.picture_megapixels / samples as f64,
            load_seconds,
            encode_seconds,
            loader_seconds: without_decode + tensor,
            images_per_second_per_core: 1.0 / (without_decode + tensor),
            gpu: gpu(),
            rows: rows.collect(),
        })
    }
}

/// The result.
#[derive(Serialize)]
struct Measured {
    source: String,
    /// Samples that were measured.
    samples: usize,
    /// Samples that cannot be used.
    left_out: u64,
    /// Why the first of them cannot.
    first_fault: Option<String>,
    /// Of the mean picture.
    picture_megapixels: f64,
    /// The steps up to the decoded window, alone, for a mean image.
    load_seconds: f64,
    /// The operators and the output conversion, alone.
    encode_seconds: f64,
    /// The same as the loader runs them.
    loader_seconds: f64,
    /// Its inverse.
    images_per_second_per_core: f64,
    /// Why no kernel was measured.
    gpu: String,
    rows: Vec<Row>,
}

/// A step. Means are over all samples, those that did not need the step included.
#[derive(Serialize)]
struct Row {
    name: String,
    part: Part,
    /// Mean of an image.
    seconds: f64,
    p50_seconds: f64,
    p99_seconds: f64,
    /// Mean of its input.
    megapixels: f64,
    seconds_per_megapixel: Option<f64>,
    /// Of the sum of all steps; none for a comparison.
    share: Option<f64>,
}

impl Measured {
    fn table(&self) -> String {
        let milli = |seconds: f64| format!("{:.3}", 1e3 * seconds);
        let mut text = format!("source    {}\n", self.source);
        text += &format!(
            "samples   {}, {:.2} megapixels each in the mean; one thread of the CPU\n",
            self.samples, self.picture_megapixels
        );
        if let Some(fault) = &self.first_fault {
            text += &format!("left out  {}; the first: {fault}\n", self.left_out);
        }
        let heads = ["ms/image", "p50", "p99", "megapixels", "ms/megapixel", "share"];
        text += &line("step", heads.map(String::from));
        for row in &self.rows {
            text += &line(
                &row.name,
                [
                    milli(row.seconds),
                    milli(row.p50_seconds),
                    milli(row.p99_seconds),
                    format!("{:.3}", row.megapixels),
                    row.seconds_per_megapixel.map_or("-".into(), milli),
                    row.share.map_or("-".into(), |it| format!("{:.1} %", 100.0 * it)),
                ],
            );
        }
        let Self { load_seconds: load, encode_seconds: encode, .. } = *self;
        text += &format!(
            "alone     load {} ms (up to the decoded window), encode {} ms (operators, output): {:.0} % and {:.0} %\n",
            milli(load),
            milli(encode),
            100.0 * load / (load + encode),
            100.0 * encode / (load + encode)
        );
        text += &format!(
            "together  {} ms as the loader runs them: {:.0} images/s per core\ngpu       {}",
            milli(self.loader_seconds),
            self.images_per_second_per_core,
            self.gpu
        );
        text
    }
}

/// The device's side.
fn gpu() -> String {
    match Device::open(0) {
        Ok(device) => format!(
            "not measured: on {} the chain is one kernel; `feedwater run --device gpu --profile` has it as stage kernel",
            device.name()
        ),
        Err(error) => format!("not measured: {error}"),
    }
}

fn line(name: &str, cells: [String; 6]) -> String {
    let cells: String = cells.iter().map(|it| format!("{it:>14}")).collect();
    format!("{name:<30}{cells}\n")
}

/// The value that this part of all do not exceed; `sorted` is not empty.
fn quantile(sorted: &[f64], part: f64) -> f64 {
    let place = (part * sorted.len() as f64).ceil() as usize;
    sorted[place.clamp(1, sorted.len()) - 1]
}

/// What the work makes, and the better of its times after the first.
fn best<T>(mut work: impl FnMut() -> Result<T, Fault>) -> Result<(T, f64), Fault> {
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

fn megapixels(size: Size) -> f64 {
    size.pixels() as f64 * 1e-6
}
