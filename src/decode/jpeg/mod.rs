//! Our own decoder of JPEG. So far there is its reference, which the tests compare with libjpeg-turbo.

mod reference;

use jpeg_encoder::{ColorType, Encoder, SamplingFactor};

use crate::decode::{Decoders, Rows};
use crate::geometry::Size;
use crate::header::Header;
use crate::image::Image;

/// How a file is made.
#[derive(Clone, Copy, Debug)]
struct Form {
    size: Size,
    is_gray: bool,
    sampling: SamplingFactor,
    quality: u8,
    restart_interval: u16,
    own_tables: bool,
    /// Whether neighbours have nothing to do with each other.
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
    encoder.set_optimized_huffman_tables(form.own_tables);
    if form.restart_interval > 0 {
        encoder.set_restart_interval(form.restart_interval);
    }
    let color = if form.is_gray { ColorType::Luma } else { ColorType::Rgb };
    encoder.encode(&pixels, width as u16, height as u16, color).expect("the file is made");
    bytes
}

fn by_libjpeg(bytes: &[u8]) -> Image<u8> {
    let header = Header::parse(bytes).expect("the file is a JPEG");
    let mut image = Image::new(header.size.window());
    let sink = &mut |rows: Rows<'_>| {
        for (y, row) in rows.iter() {
            image.row_mut(y).copy_from_slice(row);
        }
    };
    let window = header.size.window();
    Decoders::new().decode(bytes, &header, window, 1, sink).expect("the file is intact");
    image
}

/// Files of all forms, with sides around those of blocks and units.
#[test]
fn the_reference_is_equal_to_libjpeg_turbo() {
    let samplings = [SamplingFactor::F_1_1, SamplingFactor::F_2_1, SamplingFactor::F_2_2];
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
                // The encoder makes tables of its own for one scan of gray without restart markers only.
                own_tables: number % 7 == 0 && number % 4 < 2,
                is_noise: number % 5 < 2,
            };
            let bytes = file(&form);
            // Chroma of at most two columns is refused.
            if let Some(found) = reference::decode(&bytes) {
                assert!(found == by_libjpeg(&bytes), "{form:?}");
                accepted += 1;
            }
        }
    }
    assert!(accepted > number - 15, "{accepted} of {number}");
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
    // Another number of a restart marker, and a progressive frame.
    let changed = |from: [u8; 2], to: [u8; 2]| {
        let at = bytes.windows(2).rposition(|it| it == from).expect("the file has it");
        let mut bytes = bytes.clone();
        bytes[at..at + 2].copy_from_slice(&to);
        reference::decode(&bytes)
    };
    assert_eq!(changed([0xff, 0xd1], [0xff, 0xd3]), None);
    assert_eq!(changed([0xff, 0xc0], [0xff, 0xc2]), None);
}
