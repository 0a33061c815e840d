//! Tests that compare the decoder and its reference decoder with libjpeg-turbo.

mod alone;
mod tables;

use jpeg_encoder::{ColorType, Encoder, SamplingFactor};

use super::kernels::{Kernels, Line, NO_SUMS};
use super::{Feedwater, JpegRefusal, reference};
use crate::decode::{Buffers, Decoders, EncodedImage, RowLayout, Rows};
use crate::geometry::{Roi, Size};
use crate::header::Header;
use crate::image::Image;

/// Parameters of a test file.
#[derive(Clone, Copy, Debug)]
struct Form {
    size: Size,
    is_gray: bool,
    sampling: SamplingFactor,
    quality: u8,
    restart_interval: u16,
    own_tables: bool,
    /// Whether the pixels are noise instead of a gradient.
    is_noise: bool,
}

fn file(form: &Form) -> Vec<u8> {
    let Size { width, height } = form.size;
    let channels = if form.is_gray { 1 } else { 3 };
    let value = |at: u32| {
        let (x, y) = (at / channels % width, at / channels / width);
        let noise = at.wrapping_mul(0x9e37_79b9) >> 24;
        let smooth = (3 * x + 5 * y + 40 * (at % channels)) & 255;
        if form.is_noise { noise } else { smooth / 2 + noise / 8 }
    };
    let pixels: Vec<u8> = (0..channels * width * height).map(|at| value(at) as u8).collect();
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&mut bytes, form.quality);
    encoder.set_sampling_factor(form.sampling);
    if form.restart_interval > 0 {
        encoder.set_restart_interval(form.restart_interval);
    }
    let color = if form.is_gray { ColorType::Luma } else { ColorType::Rgb };
    encoder.encode(&pixels, width as u16, height as u16, color).expect("the file is made");
    match form.own_tables {
        true => feedwater_tools::synth::optimized(&bytes).expect("the file is baseline"),
        false => bytes,
    }
}

/// Decodes a window with libjpeg-turbo.
fn by_libjpeg(bytes: &[u8], window: Roi) -> Image<u8> {
    let header = Header::parse(bytes).expect("the file is a JPEG");
    let mut decoder = Decoders::only("libjpeg-turbo").expect("there is such a decoder");
    let mut image = Image::new(window);
    let sink = &mut |rows: Rows<'_>| put(&mut image, rows);
    decoder.decode(bytes, &header, window, 1, sink).expect("the file is intact");
    image
}

/// Decodes a window with feedwater's decoder, which may refuse the file.
fn by_us(kernels: Kernels, bytes: &[u8], window: Roi) -> Result<Image<u8>, JpegRefusal> {
    let header = Header::parse(bytes).expect("the file is a JPEG");
    let mut decoder = Feedwater { kernels, ..Feedwater::default() };
    let file = EncodedImage {
        bytes,
        header: &header,
        window,
        reduction: 1,
        strict: true,
        layout: RowLayout::Rgb,
        may_fall_back: true,
    };
    // The second decode uses tables with several symbols per entry.
    let [first, second] = [(); 2].map(|()| {
        let mut image = Image::new(window);
        let sink = &mut |rows: Rows<'_>| put(&mut image, rows);
        let refusal = decoder.decode_own(&file, &mut Buffers::default(), sink);
        refusal.expect("there is memory").map_or(Ok(image), Err)
    });
    assert!(first == second);
    second
}

fn put(image: &mut Image<u8>, rows: Rows<'_>) {
    for (y, row) in rows.iter() {
        image.row_mut(y).copy_from_slice(row);
    }
}

/// Tests files of all forms, with sides just below and above multiples of blocks and MCUs.
#[test]
fn images_are_equal_to_those_of_libjpeg_turbo() {
    let samplings = [
        SamplingFactor::F_1_1,
        SamplingFactor::F_2_1,
        SamplingFactor::F_1_2,
        SamplingFactor::F_2_2,
    ];
    let mut number = 0;
    let mut accepted = 0;
    for (at, side) in (1..=70).chain([127, 200]).enumerate() {
        for sampling in samplings {
            number += 1;
            let form = Form {
                size: Size::new(side, 1 + at as u32 * 29 % 70),
                is_gray: number % 7 == 0,
                sampling,
                quality: [1, 30, 50, 75, 90, 97, 100][number / 7 % 7],
                restart_interval: [0, 0, 1, 3][number % 4],
                own_tables: number % 3 > 0,
                is_noise: number % 5 < 2,
            };
            let bytes = file(&form);
            // feedwater's decoder and the reference decoder refuse images whose chroma has at most
            // two columns. They must refuse the same images.
            let expected = by_libjpeg(&bytes, form.size.window());
            let found = reference::decode(&bytes);
            for (name, kernels) in Kernels::all() {
                let ours = by_us(kernels, &bytes, form.size.window());
                assert_eq!(ours.is_ok(), found.is_some(), "{form:?} {name}");
                if let Ok(ours) = ours {
                    assert!(ours == expected, "{form:?} {name} {}", difference(&ours, &expected));
                }
            }
            if let Some(found) = found {
                assert!(found == expected, "{form:?}");
                accepted += 1;
            }
        }
    }
    assert!(accepted > number - 15, "{accepted} of {number}");
}

/// Tests 4:1:1 with a stored file, because the encoder of these tests does not write 4:1:1 in one
/// scan.
#[test]
fn the_reference_has_every_sampling() {
    let bytes = include_bytes!("../../../tests/golden/encoders/turbojpeg-411.jpg");
    let window = Header::parse(bytes).expect("the file is a JPEG").size.window();
    let found = reference::decode(bytes).expect("it is accepted");
    assert!(found == by_libjpeg(bytes, window));
}

#[test]
fn anomalies_are_refused() {
    let form = Form {
        size: Size::new(40, 30),
        is_gray: false,
        sampling: SamplingFactor::F_2_2,
        quality: 75,
        restart_interval: 2,
        own_tables: false,
        is_noise: true,
    };
    let bytes = file(&form);
    assert!(reference::decode(&bytes).is_some());
    for len in 0..bytes.len() - 4 {
        assert_eq!(reference::decode(&bytes[..len]), None, "{len}");
    }
    // Two changed files are refused: one has a restart marker with a wrong number, the other has a
    // progressive frame header.
    let changed = |from: [u8; 2], to: [u8; 2]| {
        let at = bytes.windows(2).rposition(|it| it == from).expect("the file has it");
        let mut bytes = bytes.clone();
        bytes[at..at + 2].copy_from_slice(&to);
        reference::decode(&bytes)
    };
    assert_eq!(changed([0xff, 0xd1], [0xff, 0xd3]), None);
    assert_eq!(changed([0xff, 0xc0], [0xff, 0xc2]), None);
}

/// Tests windows at many positions of small images.
#[test]
fn windows_are_equal_to_those_of_libjpeg_turbo() {
    let form = Form {
        size: Size::new(40, 37),
        is_gray: false,
        sampling: SamplingFactor::F_2_2,
        quality: 80,
        restart_interval: 0,
        own_tables: false,
        is_noise: true,
    };
    let kernels = Kernels::here();
    for (sampling, restart_interval, own_tables) in [
        (SamplingFactor::F_2_2, 0, true),
        (SamplingFactor::F_2_1, 2, false),
        (SamplingFactor::F_1_2, 3, true),
        (SamplingFactor::F_1_1, 7, true),
        (SamplingFactor::F_2_2, 5, false),
    ] {
        let bytes = file(&Form { sampling, restart_interval, own_tables, ..form });
        let whole = by_libjpeg(&bytes, form.size.window());
        for x in (0..40).step_by(3) {
            for y in (0..37).step_by(2) {
                for right in (x + 1..=40).step_by(5) {
                    for bottom in (y + 1..=37).step_by(3) {
                        let window = Roi::new(x, y, right - x, bottom - y);
                        let found = by_us(kernels, &bytes, window).expect("it is accepted");
                        for y in y..bottom {
                            let expected = &whole.row(y)[3 * x as usize..3 * right as usize];
                            assert_eq!(found.row(y), expected, "{sampling:?} {window} {y}");
                        }
                    }
                }
            }
        }
    }
}

/// Every chroma value at dark, middle and bright luma has the color that JFIF's factors with 16
/// fractional bits give (`jdcolor.c`).
#[test]
fn every_chroma_has_its_color() {
    let chroma: [Vec<u8>; 2] =
        [8, 0].map(|shift| (0..1 << 16).map(|at| (at >> shift) as u8).collect());
    for luma in [0, 127, 255] {
        let mut expected = Vec::new();
        for (blue, red) in chroma[0].iter().zip(&chroma[1]) {
            let [cb, cr] = [blue, red].map(|it| i32::from(*it) - 128);
            let [r, g, b] = [91881 * cr, -22554 * cb - 46802 * cr, 116130 * cb];
            let color = [r, g, b].map(|it| (luma + ((it + 32768) >> 16)).clamp(0, 255) as u8);
            expected.extend(color);
        }
        for (name, kernels) in Kernels::all() {
            let mut found = vec![0; expected.len()];
            let lumas = vec![luma as u8; 1 << 16];
            let line = Line::Whole(&lumas, [&chroma[0], &chroma[1]]);
            kernels.pixels(line, &mut NO_SUMS.clone(), &mut found);
            assert!(found == expected, "{name} {luma}");
        }
    }
}

/// Describes the first pixel in which two images differ.
fn difference(a: &Image<u8>, b: &Image<u8>) -> String {
    let window = a.window();
    let rows = window.y..window.bottom();
    let at = rows.flat_map(|y| (0..a.row(y).len()).map(move |x| (x, y)));
    let mut differing = at.filter(|(x, y)| a.row(*y)[*x] != b.row(*y)[*x]);
    let count = differing.clone().count();
    match differing.next() {
        Some((x, y)) => format!("{count} bytes, first {x} {y}: {} {}", a.row(y)[x], b.row(y)[x]),
        None => "none".into(),
    }
}
