//! Measures decoding on the CPU with one thread: whole images, windows, and images at a half, a
//! quarter and an eighth of their size. Also measures the CPU's work for images that the GPU
//! decodes.
//!
//! Run it with `cargo bench --bench decode`. Throughput counts all pixels of the stored image, even
//! if only a window is decoded. So rates for the same image size can be compared like images per
//! second. `FEEDWATER_PHOTOS` adds the user's own sets (docs/benchmarks.md).

mod common;

use std::fs;
use std::hint::black_box;

use common::photos;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use feedwater::internals::decode::{Decoders, Rows, simd};
use feedwater::internals::geometry::{Roi, Size};
use feedwater::internals::header::Header;
use feedwater::internals::plan::{DeviceFacts, Facts, SamplePlan};
use feedwater::internals::random::SampleKey;
use feedwater::plan::{Plan, Route, Settings};
use feedwater::source::custom::{Hints, HostPage};
use feedwater::source::{Directory, Source};
use jpeg_encoder::{ColorType, Encoder, SamplingFactor};

criterion_group!(benches, decode, photographs, header, host);
criterion_main!(benches);

const PHOTO: Size = Size::new(500, 375);
const LARGE: Size = Size::new(2048, 1536);
/// Maximum number of photographs per set.
const PHOTOGRAPHS: usize = 64;

fn webp(size: Size) -> Vec<u8> {
    let mut bytes = Vec::new();
    image_webp::WebPEncoder::new(&mut bytes)
        .encode(&pixels(size), size.width, size.height, image_webp::ColorType::Rgb8)
        .expect("the pixels fill the size");
    bytes
}

fn decode(criterion: &mut Criterion) {
    eprintln!("SIMD of libjpeg-turbo built in: {}", if simd() { "yes" } else { "no" });
    let files = [
        ("jpeg", PHOTO, jpeg(PHOTO, false)),
        ("jpeg", LARGE, jpeg(LARGE, false)),
        ("jpeg-progressive", PHOTO, jpeg(PHOTO, true)),
        ("png", PHOTO, png(PHOTO)),
        ("webp", PHOTO, webp(PHOTO)),
    ];
    let mut group = criterion.benchmark_group("decode");
    for (format, size, bytes) in &files {
        let header = Header::parse(bytes).expect("the file was just made");
        group.throughput(Throughput::Elements(size.pixels()));
        let mut decoder = Decoders::new();
        let mut run = |name: String, window: Roi, reduction: u32| {
            group.bench_function(BenchmarkId::from_parameter(name), |bencher| {
                bencher.iter(|| {
                    let sink = &mut |rows: Rows<'_>| {
                        black_box(rows);
                    };
                    decoder.decode(black_box(bytes), &header, window, reduction, sink)
                });
            });
        };
        run(format!("format={format}/roi=full/size={size}"), size.window(), 1);
        run(format!("format={format}/roi=36%/size={size}"), middle(*size), 1);
        if *format == "jpeg" {
            for reduction in [2, 4, 8] {
                let window = size.reduced(reduction).window();
                run(
                    format!("format={format}/roi=full/size={size}/reduction={reduction}"),
                    window,
                    reduction,
                );
            }
        }
    }
    group.finish();
}

/// Decodes the user's photographs one after another: each whole image and its centre.
fn photographs(criterion: &mut Criterion) {
    for set in photos::own_photos() {
        eprintln!("{}", set.composition());
        let files = set.files.iter().take(PHOTOGRAPHS).map(|file| {
            let bytes = fs::read(file).expect("the file was just read");
            (Header::parse(&bytes).expect("the file is intact"), bytes)
        });
        let files: Vec<_> = files.collect();
        let mut group = criterion.benchmark_group(format!("decode {}", set.name));
        group.throughput(Throughput::Elements(files.iter().map(|it| it.0.size.pixels()).sum()));
        let mut decoder = Decoders::new();
        for (roi, window) in [("full", Size::window as fn(Size) -> Roi), ("36%", middle)] {
            group.bench_function(BenchmarkId::from_parameter(format!("roi={roi}")), |bencher| {
                bencher.iter(|| {
                    for (header, bytes) in &files {
                        let sink = &mut |rows: Rows<'_>| {
                            black_box(rows);
                        };
                        let decoded = decoder.decode(bytes, header, window(header.size), 1, sink);
                        decoded.expect("the file is intact");
                    }
                });
            });
        }
        group.finish();
    }
}

/// Returns the centre window with 36 % of an image's pixels.
fn middle(size: Size) -> Roi {
    let least = |side: u32| (side * 3 / 5).max(1);
    Roi::new(size.width / 5, size.height / 5, least(size.width), least(size.height))
}

fn header(criterion: &mut Criterion) {
    for size in [PHOTO, LARGE] {
        let bytes = jpeg(size, false);
        let header = Header::parse(&bytes).expect("the file was just made");
        criterion.bench_function(&format!("header/step=parse/size={size}"), |bencher| {
            bencher.iter(|| Header::parse(black_box(&bytes)));
        });
        criterion.bench_function(&format!("header/step=verify/size={size}"), |bencher| {
            bencher.iter(|| header.verify(black_box(&bytes)));
        });
    }
}

/// Measures the work of a CPU thread for an image that the GPU decodes, without CUDA calls. The
/// thread reads the file (from the page cache), parses its header, verifies its markers and plans
/// its sample. The budget is 60 us of processor time per image, summed over all threads.
fn host(criterion: &mut Criterion) {
    for (size, images) in [(PHOTO, 64u64), (LARGE, 16)] {
        let source = Directory::open(common::set(images, (size.width, size.height)))
            .expect("the set was just made");
        let facts = Facts {
            largest_bytes: source.largest_bytes().unwrap_or_default(),
            image: size,
            device: DeviceFacts::gpu(Ok(Route::ALL.into())),
            ..Facts::default()
        };
        let plan = Plan::new(&common::training(), &Settings::default(), &facts)
            .expect("the training chain can be planned");
        let (mut page, mut sample) = (HostPage::default(), SamplePlan::default());
        let mut number = 0;
        let group = &mut criterion.benchmark_group("host");
        group.throughput(Throughput::Elements(1));
        group.bench_function(BenchmarkId::from_parameter(format!("size={size}")), |bencher| {
            bencher.iter(|| {
                let index = number % images;
                number += 1;
                source.read(index, &mut page, u64::MAX).expect("the file exists");
                let header = Header::parse(page.bytes()).expect("the file is an image");
                header.verify(page.bytes()).expect("the file is complete");
                let key = SampleKey { seed: 1, epoch: number as u32, index };
                plan.sample(key, &header, &mut sample).expect("the image is within the limits");
                black_box(&sample);
            });
        });
    }
}

/// Returns the pixels of an image of waves with noise. Encoded as a JPEG, the image has about 0.6
/// bytes per pixel, close to ImageNet's 0.56.
fn pixels(size: Size) -> Vec<u8> {
    let mut state = 1u32;
    let mut noise = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as f32 / 16.0 - 8.0
    };
    let mut pixels = Vec::with_capacity(3 * size.pixels() as usize);
    for y in 0..size.height {
        for x in 0..size.width {
            let grain = noise();
            for channel in 0..3u8 {
                let scale = 17.0 + 6.0 * f32::from(channel);
                let wave = (x as f32 / scale).sin() * (y as f32 / (scale + 4.0)).cos();
                pixels.push((128.0 + 80.0 * wave + grain) as u8);
            }
        }
    }
    pixels
}

fn jpeg(size: Size, progressive: bool) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&mut bytes, 92);
    encoder.set_sampling_factor(SamplingFactor::F_2_2);
    encoder.set_progressive(progressive);
    encoder
        .encode(&pixels(size), size.width as u16, size.height as u16, ColorType::Rgb)
        .expect("the pixels fill the size");
    bytes
}

fn png(size: Size) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, size.width, size.height);
    encoder.set_color(png::ColorType::Rgb);
    let mut writer = encoder.write_header().expect("writing to memory succeeds");
    writer.write_image_data(&pixels(size)).expect("the pixels fill the size");
    writer.finish().expect("writing to memory succeeds");
    bytes
}
