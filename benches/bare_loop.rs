//! The loader against a bare loop, in one run: do exactness, order and bounded memory cost speed?
//!
//! `cargo bench --bench bare_loop`. The bare loop is the code that one would write without a loader and without Pillow's exact
//! results: threads that read a file, decode the crop's window with libjpeg-turbo, resize it with `fast_image_resize` (u8x4,
//! SIMD), mirror and normalize into a batch of their own. It has the same number of threads, the same images, windows and
//! mirrorings, and an advantage: headers are parsed and windows drawn before the clock starts. Both sides allocate before the
//! clock starts. The loader also runs with row indexes of JPEGs from an earlier epoch, and with `decode.prescale`.
//!
//! Rounds alternate, and the median of their ratios counts. On a machine with other load, images per second of processor time are
//! more reliable than images per second of wall time: they exclude waiting.

mod common;

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use clap::Parser;
use fast_image_resize::images::{Image, ImageRef};
use fast_image_resize::{FilterType, PixelType, ResizeAlg, ResizeOptions, Resizer};
use feedwater::decode::{Decoders, JpegDecoder, Rows, simd};
use feedwater::geometry::Roi;
use feedwater::header::Header;
use feedwater::loader::{DeviceChoice, Loader, LoaderBuilder};
use feedwater::op::Normalize;
use feedwater::plan::{Plan, SamplePlan};
use feedwater::random::SampleKey;
use feedwater::source::{Directory, Source};
use serde_json::{Value, json};

/// Smallest ratio of the loader to the bare loop, and with row indexes.
const LOADER_BAR: f64 = 1.8;
const INDEXED_BAR: f64 = 2.3;
/// Smallest gain of `decode.prescale` on large images.
const PRESCALE_BAR: f64 = 1.2;

const SEED: u64 = 1;
const SIDE: usize = 224;

#[derive(Parser)]
struct Arguments {
    /// Threads of each side
    #[arg(long, default_value_t = common::cores())]
    threads: usize,
    /// Rounds per size
    #[arg(long, default_value_t = 7)]
    rounds: u32,
    /// Ends the output with one JSON object
    #[arg(long)]
    json: bool,
    /// Fails if a bar is missed
    #[arg(long)]
    check: bool,
    /// Passed by cargo
    #[arg(long, hide = true)]
    bench: bool,
}

/// Input of a round.
struct Work {
    size: (u32, u32),
    images: u64,
    batch: usize,
    epochs: u32,
}

const SMALL: Work = Work { size: (500, 375), images: 512, batch: 64, epochs: 3 };
const LARGE: Work = Work { size: (2048, 1536), images: 64, batch: 16, epochs: 3 };

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let threads = arguments.threads;
    println!("{}, {threads} threads; SIMD of libjpeg-turbo: {}", common::cpu(), simd());
    let mut reports = Vec::new();
    let mut met = true;
    for Work { size, images, batch, epochs } in [SMALL, LARGE] {
        let set = Set { dir: common::set(images, size), batch, threads, epochs };
        let mut rounds = Vec::new();
        let density = common::bytes_per_pixel(&set.dir, images, size);
        println!(
            "\n{}x{}, {density:.2} bytes per pixel: images per second, and per second of one processor",
            size.0, size.1
        );
        println!(
            "round      bare loop          feedwater   ratio        row indexes   ratio           prescale   ratio"
        );
        for round in 0..arguments.rounds {
            let rates = set.round(round);
            let [bare, plain, indexed, prescaled] = rates;
            println!(
                "{round:>5}{bare:>15}{plain:>19}{:>8.3}{indexed:>19}{:>8.3}{prescaled:>19}{:>8.3}",
                plain.wall / bare.wall,
                indexed.wall / bare.wall,
                prescaled.wall / plain.wall
            );
            rounds.push(rates);
        }
        let ratio = |of: usize, to: usize, rate: fn(&Rate) -> f64| {
            let ratios = rounds.iter().map(|rates| rate(&rates[of]) / rate(&rates[to]));
            common::median(&ratios.collect::<Vec<_>>())
        };
        let pairs = [(1, 0), (2, 0), (3, 1)];
        let by_wall = pairs.map(|(of, to)| ratio(of, to, |rate| rate.wall));
        let by_processor = pairs.map(|(of, to)| ratio(of, to, |rate| rate.processor));
        let [loader, indexed, prescale] = by_wall;
        // Images hardly larger than the crop cannot be reduced.
        let prescale_bar = (size.0 > 1000).then_some(PRESCALE_BAR);
        met &= loader >= LOADER_BAR && indexed >= INDEXED_BAR;
        met &= prescale_bar.is_none_or(|bar| prescale >= bar);
        println!("median ratio to the bare loop {loader:.3} (bar {LOADER_BAR})");
        println!("median ratio with row indexes {indexed:.3} (bar {INDEXED_BAR})");
        match prescale_bar {
            Some(bar) => println!("median gain of prescale {prescale:.3} (bar {bar})"),
            None => println!("median gain of prescale {prescale:.3}"),
        }
        println!("by processor time {by_processor:.3?}");
        reports.push(report(size, density, &rounds, by_wall, by_processor));
    }
    if arguments.json {
        let cpu = common::cpu();
        println!("{}", json!({ "cpu": cpu, "threads": threads, "met": met, "sizes": reports }));
    }
    if met || !arguments.check { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn report(
    size: (u32, u32),
    density: f64,
    rounds: &[[Rate; 4]],
    wall: [f64; 3],
    processor: [f64; 3],
) -> Value {
    let column = |at: usize| rounds.iter().map(|rates| rates[at].wall).collect::<Vec<_>>();
    json!({
        "width": size.0, "height": size.1, "bytes_per_pixel": density,
        "bare_loop": column(0), "feedwater": column(1),
        "feedwater_row_index": column(2), "feedwater_prescale": column(3),
        "ratio": wall[0], "row_index_ratio": wall[1], "prescale_ratio": wall[2],
        "processor_ratio": processor[0], "processor_row_index_ratio": processor[1],
        "processor_prescale_ratio": processor[2],
    })
}

/// Images per second.
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

/// Start times of the wall clock and the processor clock.
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

/// Processor seconds of this process, in user and kernel mode.
fn processor_seconds() -> f64 {
    /// `USER_HZ`, the unit of the times in `/proc`.
    const TICKS_PER_SECOND: f64 = 100.0;
    let text = std::fs::read_to_string("/proc/self/stat").expect("/proc is readable");
    // The program's name, in parentheses, may contain spaces; after it user time is field 12 and system time 13.
    let (_, fields) = text.rsplit_once(')').expect("the name is in parentheses");
    let ticks = fields.split_whitespace().skip(11).take(2);
    ticks.map(|ticks| ticks.parse::<f64>().expect("ticks are a number")).sum::<f64>()
        / TICKS_PER_SECOND
}

struct Set {
    dir: PathBuf,
    batch: usize,
    threads: usize,
    epochs: u32,
}

impl Set {
    /// Images per second of the bare loop, the loader, and the loader with row indexes and with prescale. The order rotates.
    fn round(&self, round: u32) -> [Rate; 4] {
        let first_epoch = round * self.epochs;
        let mut rates = [Rate { wall: 0.0, processor: 0.0 }; 4];
        for turn in 0..4 {
            let at = (round as usize + turn) % 4;
            rates[at] = match at {
                0 => self.bare_loop(first_epoch),
                1 => self.loader(self.builder(false), first_epoch),
                2 => {
                    let builder = || self.builder(false).cache_row_index(Some(64 << 20));
                    // An epoch that makes them, unless they are stored.
                    let mut first = builder().epochs(Some(1)).build().expect("it is valid");
                    first.epoch().for_each(drop);
                    drop(first);
                    self.loader(builder(), first_epoch)
                }
                _ => self.loader(self.builder(true), first_epoch),
            };
        }
        rates
    }

    fn builder(&self, prescale: bool) -> LoaderBuilder {
        let source = Directory::open(&self.dir).expect("the set exists");
        Loader::builder(source, common::training())
            .device(DeviceChoice::Cpu)
            .batch(self.batch)
            .workers(self.threads)
            .seed(SEED)
            .prescale(prescale)
    }

    fn loader(&self, builder: LoaderBuilder, first_epoch: u32) -> Rate {
        let builder = builder.start_epoch(first_epoch).epochs(Some(self.epochs));
        let mut loader = builder.build().expect("the settings are valid");
        let clocks = Clocks::start();
        let mut images = 0;
        for _ in 0..self.epochs {
            for batch in &mut loader {
                images += batch.expect("the images are intact").len();
            }
        }
        clocks.rate(images)
    }

    fn bare_loop(&self, first_epoch: u32) -> Rate {
        let source = Directory::open(&self.dir).expect("the set exists");
        let plan = self.builder(false).plan().expect("the settings are valid");
        let jobs: Vec<Job> = (first_epoch..first_epoch + self.epochs)
            .flat_map(|epoch| (0..source.len()).map(move |index| (epoch, index)))
            .map(|(epoch, index)| Job::new(source.path(index), &plan, epoch, index))
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

/// Sample of the bare loop, with all random decisions made.
struct Job {
    path: PathBuf,
    header: Header,
    window: Roi,
    mirrored: bool,
}

impl Job {
    fn new(path: PathBuf, plan: &Plan, epoch: u32, index: u64) -> Self {
        let bytes = std::fs::read(&path).expect("the set exists");
        let header = Header::parse(&bytes).expect("the images are intact");
        let mut sample = SamplePlan::default();
        let key = SampleKey { seed: SEED, epoch, index };
        plan.sample(key, &header, &mut sample).expect("the images are of ordinary size");
        let mirrored = sample.trace.flipped_horizontally;
        Self { path, header, window: sample.stored_window, mirrored }
    }
}

/// Thread of the bare loop with its memory.
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
            // Not zero, so that the memory is allocated now.
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
        self.decoder.decode(&self.file, &job.header, job.window, 1, sink).expect("it decodes");
        let pixels = bytemuck::cast_slice(&self.window);
        let window = ImageRef::new(width, height, pixels, PixelType::U8x4).expect("it is filled");
        let options = ResizeOptions::new()
            .resize_alg(ResizeAlg::Convolution(FilterType::Bilinear))
            .use_alpha(false);
        self.resizer.resize(&window, &mut self.resized, &options).expect("both have pixels");
        self.store(job.mirrored);
    }

    /// Mirrors and normalizes the resized image into the next slot of the batch, plane by plane.
    fn store(&mut self, mirrored: bool) {
        let len = 3 * SIDE * SIDE;
        let out = &mut self.batch[self.place * len..][..len];
        let pixels = self.resized.buffer().as_chunks::<4>().0;
        for (channel, plane) in out.chunks_exact_mut(SIDE * SIDE).enumerate() {
            let (scale, offset) = (self.scale[channel], self.offset[channel]);
            let value = |pixel: &[u8; 4]| f32::from(pixel[channel]) * scale + offset;
            for (line, row) in plane.chunks_exact_mut(SIDE).zip(pixels.chunks_exact(SIDE)) {
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

/// Expands pixels to red, green, blue, and an unused byte.
fn expand(row: &[u8], out: &mut [u32]) {
    let (last, all) = out.split_last_mut().expect("a window has columns");
    for (pixel, bytes) in all.iter_mut().zip(row.windows(4).step_by(3)) {
        *pixel = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    }
    let bytes = &row[row.len() - 3..];
    *last = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], 255]);
}
