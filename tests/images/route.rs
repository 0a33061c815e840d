//! Decode routes of real files. Tests every row of the table in the documentation of
//! `Route::takes`.

use std::fs;
use std::path::Path;

use crate::common::words::has_words;
use crate::jpeg::{Recipe, Scans};
use feedwater::internals::header::Header;
use feedwater::plan::Route;

const YES: Option<&str> = None;
/// Expects that a route refuses the file, for any reason.
const NO: Option<&str> = Some("");

fn takes(bytes: &[u8], reduction: u32) -> [Option<&'static str>; 4] {
    let header = Header::parse(bytes).unwrap();
    let routes = [Route::NvjpegHardware, Route::NvjpegGpu, Route::NvjpegHybrid, Route::Cpu];
    routes.map(|route| route.takes(&header, reduction).err())
}

/// Checks which of the routes `nvjpeg-hardware`, `nvjpeg-gpu` and `nvjpeg-hybrid` accept a file. If
/// a reason is expected, the route must refuse the file, and its reason must contain this text. The
/// route `cpu` accepts every file.
#[track_caller]
fn check(bytes: &[u8], expected: [Option<&str>; 3]) {
    let [hardware, cuda, host] = expected;
    check_reduced(bytes, 1, [hardware, cuda, host, YES]);
}

#[track_caller]
fn check_reduced(bytes: &[u8], reduction: u32, expected: [Option<&str>; 4]) {
    let found = takes(bytes, reduction);
    let same = found.iter().zip(expected).all(|(found, expected)| match (found, expected) {
        (None, None) => true,
        (Some(why), Some(word)) => word.is_empty() || has_words(why, &[word]),
        _ => false,
    });
    assert!(same, "{found:?}, expected {expected:?}");
}

fn recipe(sampling: &[(u8, u8)]) -> Recipe {
    Recipe::new(40, 30, sampling)
}

fn yes_to(sampling: &[(u8, u8)]) {
    check(&recipe(sampling).make(), [YES; 3]);
}

#[track_caller]
fn nowhere_but_on_the_cpu(bytes: &[u8], word: &str) {
    check(bytes, [Some(word); 3]);
}

/// Changes bytes of the frame header. Each change is an offset after the frame's marker and a
/// value.
fn with_frame(file: &[u8], changes: &[(usize, u8)]) -> Vec<u8> {
    let mut file = file.to_vec();
    let frame =
        file.windows(2).position(|pair| pair[0] == 0xFF && (0xC0..=0xC2).contains(&pair[1]));
    for (offset, value) in changes {
        file[frame.unwrap() + offset] = *value;
    }
    file
}

fn sized(width: u16, height: u16) -> Vec<u8> {
    let [w1, w0] = width.to_be_bytes();
    let [h1, h0] = height.to_be_bytes();
    let file = recipe(&[(2, 2), (1, 1), (1, 1)]).make();
    with_frame(&file, &[(5, h1), (6, h0), (7, w1), (8, w0)])
}

const S420: [(u8, u8); 3] = [(2, 2), (1, 1), (1, 1)];

#[test]
fn all_routes_support_common_samplings() {
    yes_to(&[(1, 1)]);
    yes_to(&[(1, 1), (1, 1), (1, 1)]);
    yes_to(&[(2, 1), (1, 1), (1, 1)]);
    yes_to(&[(1, 2), (1, 1), (1, 1)]);
    yes_to(&S420);
}

#[test]
fn multiples_of_the_common_factors_use_the_hybrid_and_cpu_routes() {
    let why = Some("factors");
    check(&recipe(&[(2, 2)]).make(), [why, why, YES]);
    check(&recipe(&[(2, 1), (2, 1), (2, 1)]).make(), [why, why, YES]);
}

#[test]
fn the_engines_do_not_support_quarter_width_chroma() {
    for v in [1, 2] {
        let file = recipe(&[(4, v), (1, 1), (1, 1)]).make();
        check(&file, [Some("4:1:1"), YES, YES]);
    }
}

#[test]
fn other_samplings_and_colours_use_the_cpu() {
    nowhere_but_on_the_cpu(&recipe(&[(2, 2), (2, 1), (1, 2)]).make(), "sampling");
    nowhere_but_on_the_cpu(&recipe(&[(1, 1); 2]).make(), "components");
    let three = recipe(&[(1, 1); 3]);
    nowhere_but_on_the_cpu(&Recipe { adobe: Some(0), ..three.clone() }.make(), "RGB");
    nowhere_but_on_the_cpu(&Recipe { ids: *b"RGBx", ..three.clone() }.make(), "RGB");
    check(&Recipe { adobe: Some(1), ..three }.make(), [YES; 3]);
    let (cmyk, ycck) = (recipe(&[(1, 1); 4]), Recipe { adobe: Some(2), ..recipe(&[(1, 1); 4]) });
    check(&cmyk.make(), [NO; 3]);
    assert_eq!(takes(&cmyk.make(), 1), takes(&ycck.make(), 1));
}

#[test]
fn the_coding_process_decides() {
    let file = recipe(&S420).make();
    check(&with_frame(&file, &[(1, 0xC1)]), [YES, Some("extended"), YES]);
    nowhere_but_on_the_cpu(&with_frame(&file, &[(1, 0xC3)]), "lossless");
    nowhere_but_on_the_cpu(&with_frame(&file, &[(1, 0xC5)]), "hierarchical");
    nowhere_but_on_the_cpu(&with_frame(&file, &[(1, 0xC9)]), "arithmetic");
    nowhere_but_on_the_cpu(&with_frame(&file, &[(4, 12)]), "8");
    let progressive = Recipe { scans: Scans::Progressive, ..recipe(&S420) }.make();
    check(&progressive, [Some("progressive"), Some("progressive"), YES]);
    let separate = Recipe { scans: Scans::Separate, ..recipe(&S420) }.make();
    nowhere_but_on_the_cpu(&separate, "scans");
}

#[test]
fn restart_markers_and_orientations_do_not_matter() {
    check(&Recipe { restart: 2, ..recipe(&S420) }.make(), [YES; 3]);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/decode");
    for value in 1..=8 {
        let file = fs::read(folder.join(format!("orientation-{value}.jpg"))).unwrap();
        let [small, ..] = takes(&file, 1);
        assert!(
            has_words(small.unwrap(), &["MCU"]),
            "the only reason must be the size 19x11: {small:?}"
        );
    }
}

#[test]
fn sizes_have_limits() {
    let (small, large) = (Some("MCU"), NO);
    assert_ne!(takes(&sized(1, 1), 1)[0], takes(&sized(16_001, 16), 1)[0]);
    check(&sized(16, 16), [YES; 3]);
    for (width, height) in [(1, 1), (15, 400), (400, 15)] {
        check(&sized(width, height), [small, small, YES]);
    }
    check(&sized(16_000, 16_000), [YES; 3]);
    for (width, height) in [(16_001, 16), (16, 16_001), (16_384, 16_384)] {
        check(&sized(width, height), [large, YES, YES]);
    }
    for (width, height) in [(16_385, 16), (16, 16_385), (65_535, 65_535)] {
        check(&sized(width, height), [large; 3]);
    }
}

#[test]
fn the_engines_and_the_cpu_downscale() {
    let file = recipe(&S420).make();
    for reduction in [2, 4, 8] {
        let why = Some("reduction");
        check_reduced(&file, reduction, [YES, why, why, YES]);
    }
}

#[test]
fn other_formats_use_the_cpu() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/decode");
    for name in ["png-orientation-6.png", "webp-orientation-8.webp", "pnm-rgb.ppm", "pnm-gray.pgm"]
    {
        nowhere_but_on_the_cpu(&fs::read(folder.join(name)).unwrap(), "JPEG");
    }
}

/// The route `feedwater` takes what the CPU's own decoder takes, except progressive images and very
/// large ones.
#[test]
fn feedwater_takes_sequential_images() {
    let takes = |file: &[u8]| Route::Feedwater.takes(&Header::parse(file).unwrap(), 1);
    let samplings: [&[(u8, u8)]; 7] = [
        &[(1, 1)],
        &[(2, 2)],
        &[(1, 1), (1, 1), (1, 1)],
        &[(2, 1), (1, 1), (1, 1)],
        &[(1, 2), (1, 1), (1, 1)],
        &[(4, 1), (1, 1), (1, 1)],
        &[(2, 2), (1, 1), (1, 1)],
    ];
    for sampling in samplings {
        for (width, height) in [(40, 30), (5, 1), (9000, 9), (9, 20_000)] {
            for restart in [0, 2] {
                let recipe = Recipe { restart, ..Recipe::new(width, height, sampling) };
                assert_eq!(takes(&recipe.make()), Ok(()), "{recipe:?}");
            }
        }
    }
    let colors = [(1, 1), (1, 1), (1, 1)];
    for (recipe, word) in [
        (Recipe { scans: Scans::Progressive, ..recipe(&colors) }, "progressive"),
        (Recipe { scans: Scans::Separate, ..recipe(&colors) }, "scans"),
        (Recipe { adobe: Some(0), ..recipe(&colors) }, "YCbCr"),
        (recipe(&[(2, 2), (2, 2), (2, 2)]), "sampling"),
        (Recipe::new(4, 30, &[(2, 1), (1, 1), (1, 1)]), "sampling"),
        (recipe(&[(1, 1); 4]), "YCbCr"),
    ] {
        let why = takes(&recipe.make()).unwrap_err();
        assert!(has_words(why, &[word]), "{why}: {recipe:?}");
    }
    assert!(takes(&crate::common::png(1, 20, 20)).is_err());
}
