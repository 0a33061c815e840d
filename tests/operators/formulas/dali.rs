//! Compares operators with DALI's on the CPU. tests/golden/operators/dali.py writes the expected
//! results.

use feedwater::internals::geometry::Size;
use feedwater::internals::image::{HostImage, Image};
use feedwater::internals::op::colour::color_twist::Params;
use serde_json::Value;

use super::pictures::{Applied, bytes};
use crate::golden::picture;

fn rows(table: &str) -> Vec<Value> {
    crate::golden::rows(include_str!("../../golden/operators/dali.json"), table)
}

/// Decodes a text of hexadecimal digits.
fn unhex(digits: &Value) -> Vec<u8> {
    let pairs = digits.as_str().unwrap().as_bytes().as_chunks::<2>().0;
    let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    pairs.iter().map(|pair| byte(pair)).collect()
}

#[test]
fn a_color_twist_differs_from_dali_only_halfway_between_two_levels() {
    let picture = picture(Size::new(13, 11), 51);
    let image = HostImage::U8(picture.clone());
    for row in rows("twists") {
        let settings = &row["settings"];
        let theirs = unhex(&row["bytes"]);
        let applied = Applied::new("color_twist", settings, &image);
        for ours in [applied.reference(), applied.transformed()] {
            assert_eq!(bytes(&ours).len(), theirs.len());
            for (at, (ours, theirs)) in bytes(&ours).iter().zip(&theirs).enumerate() {
                let pixel = &picture.data()[at / 3 * 3..][..3];
                let fraction = twisted(settings, pixel, at % 3).rem_euclid(1.0);
                let halfway = (fraction - 0.5).abs() < 0.001;
                assert!(
                    ours == theirs || (ours.abs_diff(*theirs) == 1 && halfway),
                    "{settings} {pixel:?}: {ours} {theirs}"
                );
            }
        }
    }
}

/// Returns the exact value that color_twist gives for one channel of a pixel, before rounding.
fn twisted(settings: &Value, pixel: &[u8], channel: usize) -> f64 {
    let [brightness, contrast, saturation, hue] =
        ["brightness", "contrast", "saturation", "hue"].map(|key| settings[key].as_f64().unwrap());
    let Params { matrix, offset } = Params::new(brightness, contrast, saturation, hue);
    let weighted = matrix[channel].iter().zip(pixel).map(|(a, b)| f64::from(*a) * f64::from(*b));
    weighted.sum::<f64>() + f64::from(offset)
}

#[test]
fn a_grid_mask_has_the_squares_of_dali() {
    let size = Size::new(48, 35);
    let white = HostImage::U8(Image::from_data(size.window(), vec![255; 3 * 48 * 35]));
    let mut masked = 0;
    for row in rows("masks") {
        let theirs = unhex(&row["masked"]);
        let settings = &row["settings"];
        let applied = Applied::new("grid_mask", settings, &white);
        for ours in [applied.reference(), applied.transformed()] {
            assert_eq!(bytes(&ours).len(), 3 * 8 * theirs.len());
            for (at, pixel) in bytes(&ours).chunks(3).enumerate() {
                let black = (theirs[at / 8] >> (7 - at % 8)) & 1 == 1;
                let position = [at % 48, at / 48].map(|it| it as f64);
                assert!(
                    pixel == if black { [0; 3] } else { [255; 3] }
                        || distance_to_edge(settings, position) < 0.001,
                    "{settings} {position:?}"
                );
                masked += usize::from(black);
            }
        }
    }
    assert!(masked > 0);
}

/// Returns the distance in pixels from a pixel to the nearest edge of one of grid_mask's squares or
/// tiles.
fn distance_to_edge(settings: &Value, [x, y]: [f64; 2]) -> f64 {
    let number = |key: &str| settings[key].as_f64().unwrap();
    let (sin, cos) = number("angle").to_radians().sin_cos();
    let axes = [x * cos - y * sin - number("shift_x"), x * sin + y * cos - number("shift_y")];
    let tile = number("tile");
    let distance = |position: f64| {
        let inside = position.rem_euclid(tile);
        [0.0, number("ratio") * tile, tile].map(|edge| (inside - edge).abs())
    };
    axes.into_iter().flat_map(distance).fold(f64::INFINITY, f64::min)
}
