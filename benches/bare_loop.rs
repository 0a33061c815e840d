//! Compares the loader with a bare loop in one run: do exactness, order and bounded memory cost
//! speed?
//!
//! Run it with `cargo bench --bench bare_loop`. The bare loop is the code that one would write
//! without a loader and without Pillow's exact results. Each of its threads reads a file, decodes
//! it with libjpeg-turbo, resizes the image with `fast_image_resize` (u8x4, SIMD), and mirrors and
//! normalizes it into the thread's own batch. The loop decodes and resizes only the window that the
//! crop needs. For evaluation, this window is the centre of the image.
//!
//! The loader and the bare loop have the same number of threads and the same images, windows and
//! mirrorings. Both allocate their memory before the clock starts. The bare loop has an advantage:
//! it parses headers and chooses windows before the clock starts. For training, the loader is also
//! measured in two variants: with row indexes, which store where each row of blocks of a JPEG
//! begins, and with `decode.prescale`, which decodes large images at a reduced size.
//!
//! The image sets are a synthetic set like ImageNet, two synthetic sets with one image size each,
//! and the folders in `FEEDWATER_PHOTOS` (docs/benchmarks.md). In every round, the loader and the
//! bare loop take turns. The result is the median of the rounds' throughput ratios. On a machine
//! with other load, images per second of processor time are more reliable than images per second of
//! wall time, because processor time excludes waiting.

mod common;

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use clap::Parser;
use common::photos::PhotoSet;
use fast_image_resize::images::{Image, ImageRef};
use fast_image_resize::{FilterType, PixelType, ResizeAlg, ResizeOptions, Resizer};
use feedwater::internals::decode::{Decoders, JpegDecoder, Rows, simd};
use feedwater::internals::geometry::Roi;
use feedwater::internals::header::Header;
use feedwater::internals::plan::SamplePlan;
use feedwater::internals::random::SampleKey;
use feedwater::loader::{DeviceChoice, Loader, LoaderBuilder};
use feedwater::op::Normalize;
use feedwater::plan::{LastBatch, Plan};
use serde_json::{Value, json};

/// Minimum ratios of the loader's throughput to the bare loop's throughput: for training, for
/// training with row indexes, and for evaluation.
const TRAINING_BAR: f64 = 1.8;
const INDEXED_BAR: f64 = 2.2;
const EVALUATION_BAR: f64 = 1.9;
/// Minimum ratio of the throughput with `decode.prescale` to the throughput without it, on large
/// images.
const PRESCALE_BAR: f64 = 1.2;

/// Number of epochs per round.
const EPOCHS: u32 = 3;

const SEED: u64 = 1;
const SIDE: usize = 224;
/// Shorter side of the resized image in the evaluation chain, in pixels.
const SHORTER: u32 = 256;

#[derive(Parser)]
struct Arguments {
    /// Number of threads of the loader, and of the bare loop
    #[arg(long, default_value_t = common::cores())]
    threads: usize,
    /// Number of rounds per image set and chain
    #[arg(long, default_value_t = 7)]
    rounds: u32,
    /// Ends the output with one JSON object
    #[arg(long)]
    json: bool,
    /// Exits with an error if a throughput ratio is below its minimum
    #[arg(long)]
    check: bool,
    /// Ignored. `cargo bench` passes this flag
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let threads = arguments.threads;
    println!("{}, {threads} threads; SIMD of libjpeg-turbo: {}", common::cpu(), simd());
    let [small, large] = common::SIZES;
    let synthetic =
        [PhotoSet::like_imagenet(512), PhotoSet::uniform(512, small), PhotoSet::uniform(64, large)];
    let mut reports = Vec::new();
    let mut met = true;
    for (number, photos) in synthetic.into_iter().chain(common::photos::own_photos()).enumerate() {
        println!("\n{}", photos.composition());
        let batch = if photos.is_large() { 16 } else { 64 };
        let is_large = photos.is_large();
        let mut report = json!({ "set": photos.name, "census": photos.census });
        let list = format!("bare-loop-{number}.tsv");
        let mut set = Set { photos, list, batch, threads, chain: ChainKind::Training };
        for chain in [ChainKind::Training, ChainKind::Evaluation] {
            set.chain = chain;
            let (found, all_met) = compare(&set, arguments.rounds, is_large);
            report[chain.name()] = found;
            met &= all_met;
        }
        reports.push(report);
    }
    if arguments.json {
        let cpu = common::cpu();
        println!("{}", json!({ "cpu": cpu, "threads": threads, "met": met, "sets": reports }));
    }
    if met || !arguments.check { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs all rounds of a chain and prints them. Returns the results, and whether all throughput
/// ratios reach their minimum.
fn compare(set: &Set, rounds: u32, is_large: bool) -> (Value, bool) {
    let ways = set.chain.ways();
    println!("{}: images per second, and per second of one processor", set.chain.name());
    let titles = ways.iter().map(|way| format!("{:>24}", way.name()));
    println!("round{}", titles.collect::<String>());
    let mut all = Vec::new();
    for round in 0..rounds {
        let rates = set.round(round, ways);
        let cells = rates.iter().map(|rate| format!("{:>24}", rate.to_string()));
        println!("{round:>5}{}", cells.collect::<String>());
        all.push(rates);
    }
    let ratio = |of: usize, to: usize, rate: fn(&Rate) -> f64| {
        let ratios = all.iter().map(|rates| rate(&rates[of]) / rate(&rates[to]));
        common::median(&ratios.collect::<Vec<_>>())
    };
    let mut report = json!({});
    let mut met = true;
    for (at, way) in ways.iter().enumerate() {
        report[way.name()] = all.iter().map(|rates| rates[at].wall).collect();
        let (to, bar) = match (way, set.chain) {
            (Way::Bare, _) => continue,
            (Way::Loader, ChainKind::Training) => (0, Some(TRAINING_BAR)),
            (Way::Loader, ChainKind::Evaluation) => (0, Some(EVALUATION_BAR)),
            (Way::Indexed, _) => (0, Some(INDEXED_BAR)),
            // Small images have no minimum ratio, because images that are hardly larger than the
            // crop cannot be decoded at a reduced size.
            (Way::Prescaled, _) => (1, is_large.then_some(PRESCALE_BAR)),
        };
        let (wall, processor) = (ratio(at, to, |it| it.wall), ratio(at, to, |it| it.processor));
        met &= bar.is_none_or(|bar| wall >= bar);
        let bar = bar.map_or(String::new(), |bar| format!(" (bar {bar})"));
        let (name, other) = (way.name(), ways[to].name());
        println!("{name} / {other}: median {wall:.3}{bar}, by processor time {processor:.3}");
        report[format!("{name} ratio")] = json!({ "wall": wall, "processor": processor });
    }
    (report, met)
}

/// The chain of operators that the loader and the bare loop run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ChainKind {
    /// Random resized crop of 224x224, flip, normalization.
    Training,
    /// Resize of the shorter side to 256, crop of the central 224x224, normalization.
    Evaluation,
}

impl ChainKind {
    fn name(self) -> &'static str {
        match self {
            Self::Training => "training",
            Self::Evaluation => "evaluation",
        }
    }

    fn ways(self) -> &'static [Way] {
        match self {
            Self::Training => &[Way::Bare, Way::Loader, Way::Indexed, Way::Prescaled],
            Self::Evaluation => &[Way::Bare, Way::Loader],
        }
    }
}

/// A way to run a chain. [`ChainKind::ways`] lists [`Way::Bare`] first and [`Way::Loader`] second.
#[derive(Clone, Copy)]
enum Way {
    Bare,
    Loader,
    /// The loader with row indexes that an earlier epoch created.
    Indexed,
    /// The loader with `decode.prescale`.
    Prescaled,
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Self::Bare => "bare loop",
            Self::Loader => "feedwater",
            Self::Indexed => "row indexes",
            Self::Prescaled => "prescale",
        }
    }
}

/// Throughput in images per second.
#[derive(Clone, Copy)]
struct Rate {
    wall: f64,
    /// Images per second of processor time.
    processor: f64,
}

impl std::fmt::Display for Rate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(&format!("{:.1} {:>7.1}", self.wall, self.processor))
    }
}

/// Start times on the wall clock and on the processor clock.
struct Clocks {
    wall: Instant,
    processor: f64,
}

impl Clocks {
    fn start() -> Self {
        Self { wall: Instant::now(), processor: processor_seconds() }
    }

    fn rate(&self, images: usize) -> Rate {
        let images = images as f64;
        let processor = images / (processor_seconds() - self.processor);
        Rate { wall: images / self.wall.elapsed().as_secs_f64(), processor }
    }
}

/// Returns the processor time of this process in seconds, in user and kernel mode.
fn processor_seconds() -> f64 {
    /// `USER_HZ`, the unit of the times in `/proc`.
    const TICKS_PER_SECOND: f64 = 100.0;
    let text = std::fs::read_to_string("/proc/self/stat").expect("/proc is readable");
    // The program's name in parentheses may contain spaces. After it, user time is field 12 and
    // system time field 13.
    let (_, fields) = text.rsplit_once(')').expect("the name is in parentheses");
    let ticks = fields.split_whitespace().skip(11).take(2);
    ticks.map(|ticks| ticks.parse::<f64>().expect("ticks are a number")).sum::<f64>()
        / TICKS_PER_SECOND
}

struct Set {
    photos: PhotoSet,
    /// Name of the list file for the loader.
    list: String,
    batch: usize,
    threads: usize,
    chain: ChainKind,
}

impl Set {
    /// Returns the throughput of each way. The order of the ways rotates between rounds.
    fn round(&self, round: u32, ways: &[Way]) -> Vec<Rate> {
        let first_epoch = round * EPOCHS;
        let mut rates = vec![Rate { wall: 0.0, processor: 0.0 }; ways.len()];
        for turn in 0..ways.len() {
            let at = (round as usize + turn) % ways.len();
            rates[at] = match ways[at] {
                Way::Bare => self.bare_loop(first_epoch),
                Way::Loader => self.loader(self.builder(false), first_epoch),
                Way::Indexed => {
                    let builder =
                        || self.builder(false).configure(|it| it.cache.row_index = Some(64 << 20));
                    // Runs an epoch that is not measured and that creates the row indexes. They are
                    // stored on disk, so later rounds only load them.
                    let mut first =
                        builder().epochs(Some(1)).build().expect("the settings are valid");
                    first.epoch().for_each(drop);
                    drop(first);
                    self.loader(builder(), first_epoch)
                }
                Way::Prescaled => self.loader(self.builder(true), first_epoch),
            };
        }
        rates
    }

    fn builder(&self, prescale: bool) -> LoaderBuilder {
        let chain = match self.chain {
            ChainKind::Training => common::training(),
            ChainKind::Evaluation => common::evaluation(),
        };
        Loader::builder(self.photos.source(&self.list), chain)
            .device(DeviceChoice::Cpu)
            .batch_size(self.batch)
            .last_batch(LastBatch::Partial)
            .num_workers(self.threads)
            .seed(SEED)
            .configure(|it| it.decode.prescale = prescale)
            // Turns off row indexes. Only `Way::Indexed` turns them on again.
            .configure(|it| it.cache.row_index = Some(0))
    }

    fn loader(&self, builder: LoaderBuilder, first_epoch: u32) -> Rate {
        let builder = builder.start_epoch(first_epoch).epochs(Some(EPOCHS));
        let mut loader = builder.build().expect("the settings are valid");
        let clocks = Clocks::start();
        let mut images = 0;
        for _ in 0..EPOCHS {
            for batch in &mut loader {
                images += batch.expect("the images are intact").len();
            }
        }
        clocks.rate(images)
    }

    fn bare_loop(&self, first_epoch: u32) -> Rate {
        let plan = self.builder(false).plan().expect("the settings are valid");
        let job = |(epoch, index): (u32, usize)| {
            let file = self.photos.files[index].clone();
            Job::new(file, self.chain, &plan, SampleKey { seed: SEED, epoch, index: index as u64 })
        };
        let jobs: Vec<Job> = (first_epoch..first_epoch + EPOCHS)
            .flat_map(|epoch| (0..self.photos.files.len()).map(move |index| (epoch, index)))
            .map(job)
            .collect();
        let mut workers: Vec<Bare> = (0..self.threads).map(|_| Bare::new(self.batch)).collect();
        let next = AtomicUsize::new(0);
        let clocks = Clocks::start();
        std::thread::scope(|scope| {
            for worker in &mut workers {
                scope.spawn(|| {
                    while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                        worker.sample(job);
                    }
                });
            }
        });
        clocks.rate(jobs.len())
    }
}

/// A sample of the bare loop. All random decisions are already made.
struct Job {
    path: PathBuf,
    header: Header,
    /// Window that is decoded and resized.
    window: Roi,
    mirrored: bool,
}

impl Job {
    fn new(path: PathBuf, chain: ChainKind, plan: &Plan, key: SampleKey) -> Self {
        let bytes = std::fs::read(&path).expect("the set exists");
        let header = Header::parse(&bytes).expect("the images are intact");
        let side = SIDE as u32;
        if chain == ChainKind::Evaluation {
            let whole = header.size.window();
            // Number of stored pixels per resized pixel along one axis.
            let scale = f64::from(whole.width.min(whole.height)) / f64::from(SHORTER);
            let cropped = (f64::from(side) * scale).round() as u32;
            let [x, y] = [whole.width, whole.height].map(|side| (side - cropped) / 2);
            let window = Roi::new(x, y, cropped, cropped);
            return Self { path, header, window, mirrored: false };
        }
        let mut sample = SamplePlan::default();
        plan.sample(key, &header, &mut sample).expect("the images are of ordinary size");
        let (window, mirrored) = (sample.stored_window, sample.trace.flipped_horizontally);
        Self { path, header, window, mirrored }
    }
}

/// Buffers of a thread of the bare loop.
struct Bare {
    file: Vec<u8>,
    decoder: Decoders,
    window: Vec<u32>,
    resizer: Resizer,
    resized: Image<'static>,
    batch: Vec<f32>,
    place: usize,
    scale: [f32; 3],
    offset: [f32; 3],
}

impl Bare {
    fn new(batch: usize) -> Self {
        let Normalize { mean, std } = Normalize::IMAGENET;
        Self {
            file: Vec::new(),
            decoder: Decoders::new().jpeg(JpegDecoder::Libjpeg),
            window: Vec::new(),
            resizer: Resizer::new(),
            resized: Image::new(SIDE as u32, SIDE as u32, PixelType::U8x4),
            // A vector of zeros would get its memory only when it is written. A vector of ones gets
            // it now.
            batch: vec![1.0; batch * 3 * SIDE * SIDE],
            place: 0,
            scale: std.map(|std| 1.0 / (255.0 * std)),
            offset: [0, 1, 2].map(|c| -mean[c] / std[c]),
        }
    }

    fn sample(&mut self, job: &Job) {
        read(&job.path, &mut self.file);
        let Roi { width, height, y: top, .. } = job.window;
        self.window.resize(width as usize * height as usize, 0);
        let pixels = &mut self.window;
        let sink = &mut |rows: Rows<'_>| {
            for (y, row) in rows.iter() {
                let start = (y - top) as usize * width as usize;
                expand(row, &mut pixels[start..][..width as usize]);
            }
        };
        self.decoder
            .decode(&self.file, &job.header, job.window, 1, sink)
            .expect("the image decodes");
        let pixels = bytemuck::cast_slice(&self.window);
        let window = ImageRef::new(width, height, pixels, PixelType::U8x4)
            .expect("the buffer has the size of the window");
        let options = ResizeOptions::new()
            .resize_alg(ResizeAlg::Convolution(FilterType::Bilinear))
            .use_alpha(false);
        self.resizer.resize(&window, &mut self.resized, &options).expect("both images have pixels");
        self.store(job.mirrored);
    }

    /// Mirrors and normalizes the resized image into the next place of the batch, plane by plane.
    fn store(&mut self, mirrored: bool) {
        let len = 3 * SIDE * SIDE;
        let out = &mut self.batch[self.place * len..][..len];
        let pixels = self.resized.buffer().as_chunks::<4>().0;
        for (channel, plane) in out.chunks_exact_mut(SIDE * SIDE).enumerate() {
            let (scale, offset) = (self.scale[channel], self.offset[channel]);
            let value = |pixel: &[u8; 4]| f32::from(pixel[channel]) * scale + offset;
            let rows = pixels.chunks_exact(SIDE);
            for (line, row) in plane.chunks_exact_mut(SIDE).zip(rows) {
                if mirrored {
                    line.iter_mut().rev().zip(row).for_each(|(out, pixel)| *out = value(pixel));
                } else {
                    line.iter_mut().zip(row).for_each(|(out, pixel)| *out = value(pixel));
                }
            }
        }
        self.place = (self.place + 1) % (self.batch.len() / len);
    }
}

fn read(path: &Path, into: &mut Vec<u8>) {
    into.clear();
    let mut file = File::open(path).expect("the set exists");
    file.read_to_end(into).expect("the set exists");
}

/// Expands RGB pixels to four bytes: red, green, blue, and an unused byte.
fn expand(row: &[u8], out: &mut [u32]) {
    let (last, all) = out.split_last_mut().expect("a window has columns");
    for (pixel, bytes) in all.iter_mut().zip(row.windows(4).step_by(3)) {
        *pixel = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    }
    let bytes = &row[row.len() - 3..];
    *last = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], 255]);
}
