//! Compares libwebp (through [`Decoders`]) with `image-webp` on the same files, in alternating
//! rounds with one thread.
#![allow(
    unsafe_code,
    reason = "libwebp's encoder has no safe interface, and image-webp writes no lossy files"
)]

use std::hint::black_box;
use std::io::Cursor;
use std::{env, ptr, slice};

use criterion::Criterion;
use feedwater::internals::decode::{Decoders, Rows};
use feedwater::internals::geometry::Size;
use feedwater::internals::header::Header;
use image_webp::WebPDecoder;
use libwebp_sys as sys;
use rustix::time::{ClockId, clock_gettime};

use super::{LARGE, PHOTO, pixels};

const NAME: &str = "webp-decoders";
/// Number of rounds. It is odd, so that one round is the median.
const ROUNDS: usize = 21;
/// Number of stored pixels that each decoder outputs per round.
const ROUND_PIXELS: u64 = 12_000_000;
/// libwebp's default.
const QUALITY: f32 = 75.0;

/// Prints a table. Criterion measures the decoders one after the other, so its ratios would include
/// changes of the machine's load.
pub fn decoders(_: &mut Criterion) {
    let mut filters = env::args().skip(1).filter(|it| !it.starts_with('-'));
    if env::args().any(|it| it == "--test") || !filters.all(|filter| NAME.contains(&*filter)) {
        return;
    }
    println!(
        "{NAME}, one thread, in turns: ms of processor time per image, medians of {ROUNDS} rounds; \
         ratios of the rounds: median, min, max"
    );
    println!(
        "{:<28}{:>10}{:>14}{:>9}{:>9}{:>9}",
        "", "libwebp", "image-webp", "ratio", "least", "most"
    );
    for size in [PHOTO, LARGE] {
        let pixels = pixels(size);
        for (coding, file) in
            [("lossy", lossy(size, &pixels)), ("lossless", lossless_of(size, &pixels))]
        {
            let name =
                format!("{coding} {size}, {:.2} B/px", file.len() as f64 / size.pixels() as f64);
            compare(&name, size, &file);
        }
    }
}

fn compare(name: &str, size: Size, file: &[u8]) {
    let header = Header::parse(file).expect("the file was just made");
    let mut decoder = Decoders::new();
    let mut libwebp = || {
        let sink = &mut |rows: Rows<'_>| {
            black_box(rows);
        };
        decoder
            .decode(black_box(file), &header, size.window(), 1, sink)
            .expect("the file is intact");
    };
    let mut buffer = vec![0; 3 * size.pixels() as usize];
    let mut image_webp = || {
        let mut decoder =
            WebPDecoder::new(Cursor::new(black_box(file))).expect("the file is intact");
        decoder.read_image(black_box(&mut buffer)).expect("the file is intact");
    };
    let images = (ROUND_PIXELS / size.pixels()).max(1);
    let of = |decode: &mut dyn FnMut()| {
        let start = processor_seconds();
        (0..images).for_each(|_| decode());
        1e3 * (processor_seconds() - start) / images as f64
    };
    let _warm = [of(&mut libwebp), of(&mut image_webp)];
    // The decoder that runs first in a round alternates too.
    let rounds: Vec<[f64; 2]> = (0..ROUNDS)
        .map(|round| {
            if round % 2 == 0 {
                let first = of(&mut libwebp);
                [first, of(&mut image_webp)]
            } else {
                let first = of(&mut image_webp);
                [of(&mut libwebp), first]
            }
        })
        .collect();
    let sorted = |value: &dyn Fn(&[f64; 2]) -> f64| {
        let mut values: Vec<f64> = rounds.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        values
    };
    let median = |values: &[f64]| values[ROUNDS / 2];
    let ratios = sorted(&|[libwebp, image_webp]| image_webp / libwebp);
    println!(
        "{name:<28}{:>10.3}{:>14.3}{:>9.2}{:>9.2}{:>9.2}",
        median(&sorted(&|round| round[0])),
        median(&sorted(&|round| round[1])),
        median(&ratios),
        ratios[0],
        ratios[ROUNDS - 1],
    );
}

/// Returns the processor time of this thread in seconds. It depends less on other load than wall
/// time.
fn processor_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + 1e-9 * time.tv_nsec as f64
}

/// Encodes a lossless WebP with `image-webp`.
pub fn lossless(size: Size) -> Vec<u8> {
    let mut bytes = Vec::new();
    image_webp::WebPEncoder::new(&mut bytes)
        .encode(&pixels(size), size.width, size.height, image_webp::ColorType::Rgb8)
        .expect("the pixels fill the size");
    bytes
}

fn lossy(size: Size, pixels: &[u8]) -> Vec<u8> {
    encoded(size, pixels, |rgb, width, height, stride, output| {
        // SAFETY: see `encoded`.
        unsafe { sys::WebPEncodeRGB(rgb, width, height, stride, QUALITY, output) }
    })
}

fn lossless_of(size: Size, pixels: &[u8]) -> Vec<u8> {
    encoded(size, pixels, |rgb, width, height, stride, output| {
        // SAFETY: see `encoded`.
        unsafe { sys::WebPEncodeLosslessRGB(rgb, width, height, stride, output) }
    })
}

/// Calls `encode` with `height` rows of `stride` bytes, and a pointer that receives libwebp's
/// memory. `encode` returns the length.
fn encoded(
    size: Size,
    pixels: &[u8],
    encode: impl FnOnce(*const u8, i32, i32, i32, *mut *mut u8) -> usize,
) -> Vec<u8> {
    let [width, height] = [size.width, size.height].map(|side| side as i32);
    assert_eq!(pixels.len() as u64, 3 * size.pixels());
    let mut output = ptr::null_mut();
    let length = encode(pixels.as_ptr(), width, height, 3 * width, &mut output);
    assert!(length > 0 && !output.is_null(), "libwebp encodes any RGB of {size}");
    // SAFETY: libwebp allocated `length` bytes, which no other code uses.
    let bytes = unsafe { slice::from_raw_parts(output, length) }.to_vec();
    // SAFETY: frees libwebp's memory once.
    unsafe { sys::WebPFree(output.cast()) };
    bytes
}
