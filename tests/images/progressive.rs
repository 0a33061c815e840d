//! feedwater's decoder gives the same rows of progressive JPEGs as libjpeg-turbo, with every
//! instruction set of this CPU.

use feedwater::internals::decode::JpegBy;
use feedwater::internals::geometry::Roi;

use crate::decoders::{GRAY, S420, SAMPLINGS, compare, damaged, is_vector_code};
use crate::jpeg::{Recipe, Scans};
use crate::scripts;

/// Tests random scan scripts (lists of the scans of a progressive JPEG) at random sizes, with
/// windows in every corner.
#[test]
fn any_script_has_the_same_pixels() {
    let mut seed = 0;
    for sampling in SAMPLINGS {
        for number in 0..60u16 {
            seed += 1;
            let (width, height) = (5 + number * 7 % 61, 1 + number * 13 % 59);
            let recipe = Recipe { seed, ..Recipe::new(width, height, sampling) };
            let bytes = scripts::make(&recipe, seed);
            let (width, height) = (u32::from(width), u32::from(height));
            let (x, y) = (width / 2, height / 2);
            for window in [
                Roi::new(0, 0, width, height),
                Roi::new(x, 0, width - x, height - y),
                Roi::new(0, y, x + 1, height - y),
                Roi::new(x, y, 1, 1),
                Roi::new(width - 1, height - 1, 1, 1),
            ] {
                assert_eq!(compare(&recipe, &bytes, window), JpegBy::Feedwater, "{recipe:?}");
            }
        }
    }
}

/// Tests coefficients of up to twelve bits in larger images with few restart markers.
#[test]
fn any_coefficients_have_the_same_pixels() {
    if !is_vector_code() {
        return;
    }
    let (mut seed, mut decoded) = (100, 0);
    for sampling in SAMPLINGS {
        for (step, most_bits) in [(1, 10), (4, 10), (2, 12), (255, 15)] {
            for (width, height) in [(170, 145), (333, 64)] {
                seed += 1;
                let recipe =
                    Recipe { step, most_bits, seed, ..Recipe::new(width, height, sampling) };
                let bytes = scripts::make(&recipe, seed);
                let whole = Roi::new(0, 0, width.into(), height.into());
                for window in [whole, Roi::new(u32::from(width) / 3, 20, 50, 30)] {
                    let by = compare(&recipe, &bytes, window);
                    decoded += u32::from(by == JpegBy::Feedwater);
                }
            }
        }
    }
    assert!(decoded > 30, "{decoded}");
}

/// Tests every width from 5 to 40, each with one height, with the scan script of another encoder.
#[test]
fn every_size_has_the_same_pixels() {
    for sampling in SAMPLINGS {
        for width in 5..=40 {
            let height = 1 + (width * 7) % 40;
            for restart in [0, 3] {
                let recipe = Recipe {
                    scans: Scans::Progressive,
                    restart,
                    ..Recipe::new(width, height, sampling)
                };
                let window = Roi::new(0, 0, width.into(), height.into());
                let by = compare(&recipe, &recipe.make(), window);
                assert_eq!(by, JpegBy::Feedwater, "{recipe:?}");
            }
        }
    }
}

/// Truncates a file after every byte, and changes each of its bytes. feedwater's decoder and
/// libjpeg-turbo give the same rows or the same error, and tolerate the same damage.
#[test]
fn damage_is_judged_by_libjpeg_turbo() {
    if !is_vector_code() {
        return;
    }
    let mut refused = 0;
    for (sampling, seed) in [(S420, 3), (GRAY, 4)] {
        let recipe = Recipe::new(20, 17, sampling);
        refused += damaged(&scripts::make(&recipe, seed), Roi::new(0, 0, 20, 17), 1);
    }
    assert!(refused > 100, "{refused}");
}
