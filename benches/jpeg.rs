//! Compares JPEG decoders on one core: feedwater's decoder with each instruction set, libjpeg-turbo
//! and zune-jpeg. In every round, each decoder decodes the whole set once.
//!
//! Run it with `cargo bench --bench jpeg`. The time of an image is the minimum over all rounds. The
//! printed time is the mean over the images of the set. Before the measurement, the program checks
//! that feedwater's decoder and libjpeg-turbo produce the same pixels. These environment variables
//! change what is measured:
//!
//! * `FEEDWATER_PHOTOS=DIR:DIR` adds the user's own sets (docs/benchmarks.md). For each of them, it
//!   also adds a set of its sequential JPEGs converted to progressive ones.
//! * `FEEDWATER_BENCH_ONLY` runs only the sets whose printed names contain this text. An example is
//!   `thumbnails 64x64, quality 75, whole`.
//! * `FEEDWATER_BENCH_WAY` runs only the decoders whose names contain this text, for example to
//!   profile one of them.
//! * `FEEDWATER_BENCH_ROUNDS` sets the number of rounds (default 9).

#[path = "common/mod.rs"]
mod common;
#[path = "common/progressive.rs"]
mod progressive;

use std::env;
use std::fs;
use std::hint::black_box;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use bytes::Bytes;
use common::photos::PhotoSet;
use feedwater::internals::decode::{
    Decoders, Fingerprint, RowIndex, RowIndexOutcome, RowIndexTask, Rows, refusal, simd,
};
use feedwater::internals::geometry::{Roi, Size};
use feedwater::internals::header::Header;
use feedwater_tools::synth;
use jpeg_encoder::{ColorType, Encoder, SamplingFactor};
use zune_jpeg::JpegDecoder;
use zune_jpeg::zune_core::bytestream::ZCursor;

/// Number of synthetic images like ImageNet's.
const IMAGENET_LIKE: u64 = 60;

/// An image with the window to decode.
struct Job {
    bytes: Vec<u8>,
    header: Header,
    window: Roi,
    index: Option<RowIndex>,
}

/// A decoder with a name.
struct Way {
    name: String,
    run: Box<dyn FnMut(&Job)>,
}

fn main() {
    let value = |name: &str| env::var(name).ok();
    let only = value("FEEDWATER_BENCH_ONLY").unwrap_or_default();
    let rounds = value("FEEDWATER_BENCH_ROUNDS").and_then(|it| it.parse().ok()).unwrap_or(9);
    println!("{}, libjpeg-turbo with SIMD: {}", common::cpu(), simd());
    for (name, files) in sets(&only) {
        for (windows, kind) in [(false, "whole"), (true, "windows")] {
            let name = format!("{name}, {kind}");
            if !name.contains(&only) {
                continue;
            }
            let jobs: Vec<Job> = jobs(&files, windows);
            if jobs.is_empty() {
                continue;
            }
            let mean = jobs.iter().map(|job| job.bytes.len()).sum::<usize>() / jobs.len();
            println!("\n{name}: {} images, {mean} bytes on average", jobs.len());
            report(&jobs, rounds, windows);
        }
    }
}

/// Returns the name of each set, and the contents of its files.
fn sets(only: &str) -> Vec<(String, Vec<Vec<u8>>)> {
    let read = |files: Vec<PathBuf>| -> Vec<Vec<u8>> {
        files.iter().map(|file| fs::read(file).expect("the file is there")).collect()
    };
    let mut sets = Vec::new();
    let mut add = |name: &str, files: &dyn Fn() -> Vec<Vec<u8>>| {
        if ["whole", "windows"].iter().any(|kind| format!("{name}, {kind}").contains(only)) {
            sets.push((name.to_string(), files()));
        }
    };
    let like_imagenet = PhotoSet::like_imagenet(IMAGENET_LIKE);
    add("synthetic like ImageNet", &|| {
        println!("{}", like_imagenet.composition());
        read(like_imagenet.files.clone())
    });
    add("synthetic 500x375", &|| read(common::images(40, common::SIZES[0])));
    add("synthetic 2048x1536", &|| read(common::images(4, common::SIZES[1])));
    for quality in [30, 75, 90] {
        for (kind, tables) in [
            ("", Tables::Standard),
            (", own tables", Tables::Own),
            (", gray, own tables", Tables::OwnGray),
        ] {
            let name = format!("thumbnails 64x64, quality {quality}{kind}");
            add(&name, &|| thumbnails(quality, tables));
        }
    }
    add("synthetic 500x375, made progressive", &|| {
        made_progressive(read(common::images(40, common::SIZES[0])))
    });
    for PhotoSet { name, files, census } in common::photos::own_photos() {
        println!("{name}: {} files\n{census}", files.len());
        add(&name, &|| read(files.clone()));
        add(&format!("{name}, made progressive"), &|| made_progressive(read(files.clone())));
    }
    sets
}

/// Converts the intact sequential JPEGs that feedwater's decoder supports to progressive ones.
fn made_progressive(files: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let is_sequential = |bytes: &&Vec<u8>| {
        Header::parse(bytes).is_ok_and(|header| {
            let jpeg = header.jpeg.as_ref();
            jpeg.is_some_and(|jpeg| !jpeg.is_progressive())
                && refusal(&header).is_none()
                && pixels(&mut libjpeg(), bytes, &header, header.size.window()).is_some()
        })
    };
    files.iter().filter(is_sequential).map(|bytes| progressive::progressive(bytes)).collect()
}

/// Colours and Huffman tables of thumbnails.
#[derive(Clone, Copy)]
enum Tables {
    /// The standard Huffman tables of T.81, annex K, in color.
    Standard,
    /// Huffman tables optimized for the file, in color, as in nearly all files of ImageNet.
    Own,
    /// Huffman tables optimized for the file, in gray.
    OwnGray,
}

/// Returns parts of synthetic images, encoded as JPEGs of 64x64 pixels.
fn thumbnails(quality: u8, tables: Tables) -> Vec<Vec<u8>> {
    let side = 64usize;
    let mut thumbnails = Vec::new();
    for file in common::images(40, common::SIZES[0]) {
        let bytes = fs::read(file).expect("the set is complete");
        let header = Header::parse(&bytes).expect("the file is a JPEG");
        let mut pixels = Vec::new();
        let window = Roi::new(200, 150, side as u32, side as u32);
        let sink = &mut |rows: Rows<'_>| {
            rows.iter().for_each(|(_, row)| pixels.extend_from_slice(row));
        };
        Decoders::new().decode(&bytes, &header, window, 1, sink).expect("the file is intact");
        let mut bytes = Vec::new();
        let mut encoder = Encoder::new(&mut bytes, quality);
        let encoded = match tables {
            Tables::OwnGray => {
                let luma: Vec<u8> = pixels.iter().skip(1).step_by(3).copied().collect();
                encoder.encode(&luma, side as u16, side as u16, ColorType::Luma)
            }
            Tables::Standard | Tables::Own => {
                encoder.set_sampling_factor(SamplingFactor::F_2_2);
                encoder.encode(&pixels, side as u16, side as u16, ColorType::Rgb)
            }
        };
        encoded.expect("the pixels fill the size");
        if !matches!(tables, Tables::Standard) {
            bytes = synth::optimized(&bytes).expect("the file is baseline");
        }
        thumbnails.push(bytes);
    }
    thumbnails
}

/// Returns a job for each intact JPEG, which decodes the whole image or a random window like that
/// of RandomResizedCrop. Checks that feedwater's decoder and libjpeg-turbo produce the same pixels.
fn jobs(files: &[Vec<u8>], windows: bool) -> Vec<Job> {
    let mut state = 0x1234_5678_9abc_def1_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1u64 << 53) as f64
    };
    let mut jobs = Vec::new();
    for bytes in files {
        let Ok(header) = Header::parse(bytes) else { continue };
        let whole = header.size.window();
        let window = if windows { crop(header.size, &mut random) } else { whole };
        let expected = pixels(&mut libjpeg(), bytes, &header, window);
        if expected.is_none() {
            continue;
        }
        for name in Decoders::jpeg_instructions() {
            let found = pixels(&mut ours(name), bytes, &header, window);
            assert!(found == expected, "{name} differs from libjpeg-turbo in {window}");
        }
        let index = row_index(bytes, &header).filter(|_| windows);
        if let Some(index) = &index {
            let mut decoders = Decoders::new();
            decoders.set_row_index(RowIndexTask::Use(index.clone()));
            let found = pixels(&mut decoders, bytes, &header, window);
            assert!(found == expected, "with a row index, pixels differ in {window}");
        }
        jobs.push(Job { bytes: bytes.clone(), header, window, index });
    }
    jobs
}

fn row_index(bytes: &[u8], header: &Header) -> Option<RowIndex> {
    let mut decoders = Decoders::new();
    decoders.set_row_index(RowIndexTask::Make(Fingerprint::of(bytes, 1)));
    pixels(&mut decoders, bytes, header, header.size.window())?;
    match decoders.row_index() {
        RowIndexOutcome::Made(_, index) => RowIndex::read(Bytes::copy_from_slice(index)),
        _ => None,
    }
}

fn pixels(decoders: &mut Decoders, bytes: &[u8], header: &Header, window: Roi) -> Option<Vec<u8>> {
    let mut pixels = Vec::new();
    let sink = &mut |rows: Rows<'_>| {
        rows.iter().for_each(|(_, row)| pixels.extend_from_slice(row));
    };
    decoders.decode(bytes, header, window, 1, sink).ok()?;
    Some(pixels)
}

/// Returns a random window with 8 to 100 % of the area and an aspect ratio of 3:4 to 4:3.
fn crop(size: Size, random: &mut impl FnMut() -> f64) -> Roi {
    let Size { width, height } = size;
    for _ in 0..10 {
        let area = size.pixels() as f64 * (0.08 + 0.92 * random());
        let ratio = (0.75f64.ln() * (1.0 - 2.0 * random())).exp();
        let [w, h] = [(area * ratio).sqrt(), (area / ratio).sqrt()].map(|side| side.round() as u32);
        if w > 0 && h > 0 && w <= width && h <= height {
            let x = (random() * f64::from(width - w + 1)) as u32;
            let y = (random() * f64::from(height - h + 1)) as u32;
            return Roi::new(x, y, w, h);
        }
    }
    size.window()
}

fn libjpeg() -> Decoders {
    Decoders::only("libjpeg-turbo").expect("the decoder libjpeg-turbo exists")
}

fn ours(instructions: &str) -> Decoders {
    Decoders::new()
        .with_jpeg_instructions(instructions)
        .expect("the CPU supports these instructions")
}

fn report(jobs: &[Job], rounds: usize, windows: bool) {
    let mut ways = vec![way("libjpeg-turbo".into(), libjpeg(), |_| RowIndexTask::None)];
    for name in Decoders::jpeg_instructions() {
        ways.push(way(format!("feedwater, {name}"), ours(name), |_| RowIndexTask::None));
        if windows {
            ways.push(way(format!("makes an index, {name}"), ours(name), make_index));
            ways.push(way(format!("has an index, {name}"), ours(name), use_index));
        }
    }
    if !windows {
        let run = |job: &Job| {
            let mut decoder = JpegDecoder::new(ZCursor::new(&job.bytes));
            // Ignores errors, because zune-jpeg does not support some of the images.
            let _ = black_box(decoder.decode());
        };
        ways.push(Way { name: "zune-jpeg".into(), run: Box::new(run) });
    }
    let way = env::var("FEEDWATER_BENCH_WAY").unwrap_or_default();
    ways.retain(|it| it.name.contains(&way));
    let mut least = vec![vec![Duration::MAX; jobs.len()]; ways.len()];
    for _ in 0..rounds {
        // Each decoder decodes all images before the next decoder starts. If the decoders
        // alternated on each image, the branch predictor would learn an image from one decoder and
        // help the next decoder that shares its code.
        for (way, least) in ways.iter_mut().zip(&mut least) {
            for (job, least) in jobs.iter().zip(least) {
                let begin = Instant::now();
                (way.run)(black_box(job));
                *least = (*least).min(begin.elapsed());
            }
        }
    }
    let mean = |times: &[Duration]| {
        times.iter().map(Duration::as_secs_f64).sum::<f64>() / times.len() as f64 * 1e6
    };
    let base = mean(&least[0]);
    for (way, least) in ways.iter().zip(&least) {
        println!("| {:22} | {:9.1} us | {:5.2} |", way.name, mean(least), base / mean(least));
    }
}

fn make_index(job: &Job) -> RowIndexTask {
    RowIndexTask::Make(Fingerprint::of(&job.bytes, 1))
}

/// Returns the task of decoding with the job's row index. Computes the file's fingerprint too,
/// because a loader uses the fingerprint to find the index.
fn use_index(job: &Job) -> RowIndexTask {
    black_box(Fingerprint::of(&job.bytes, 1));
    job.index.clone().map_or(RowIndexTask::None, RowIndexTask::Use)
}

fn way(name: String, mut decoders: Decoders, task: fn(&Job) -> RowIndexTask) -> Way {
    let run = move |job: &Job| {
        let sink = &mut |rows: Rows<'_>| {
            black_box(rows);
        };
        decoders.set_row_index(task(job));
        let result = decoders.decode(&job.bytes, &job.header, job.window, 1, sink);
        result.expect("the image is intact");
    };
    Way { name, run: Box::new(run) }
}
