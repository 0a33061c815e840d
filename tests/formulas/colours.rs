//! Results of torchvision v2 and Pillow, written by tests/golden/operators/colour.py.

use std::array;

use feedwater::op::formula::{
    autocontrast, brightness, channel_permutation, contrast, equalize, gamma, gaussian_blur,
    grayscale, hue, invert, noise, posterize, saturation, sharpen, sharpness, solarize, to_ycbcr,
};
use serde_json::Value;

use super::pictures::{Picture, colours, golden, pictures};

fn number(params: &Value, name: &str) -> f64 {
    params[name].as_f64().unwrap()
}

/// Applies the formula of `operator`.
fn apply(operator: &str, params: &Value, picture: &Picture) -> Picture {
    let padding = 0;
    let factor = params["factor"].as_f64().unwrap_or(f64::NAN) as f32;
    let table =
        |of: &dyn Fn(u8) -> u8| picture.look_up(&[array::from_fn(|byte| of(byte as u8)); 3]);
    match operator {
        "brightness" => table(&|byte| brightness::byte(&brightness::Params { factor }, byte)),
        "contrast" => {
            let params = contrast::Params { factor, padding };
            picture.look_up(&contrast::tables(&params, &picture.histograms()))
        }
        "saturation" => {
            let params = saturation::Params { factor, padding };
            picture.map(|pixel| saturation::pixel(&params, pixel))
        }
        "sharpness" => {
            let params = sharpness::Params { factor, padding };
            picture.stencil(|around| sharpness::pixel(&params, around))
        }
        "sharpen" => {
            let params = sharpen::Params { amount: number(params, "amount") as f32, padding };
            picture.stencil(|around| sharpen::pixel(&params, around))
        }
        "hue" => {
            let params = hue::Params::new(number(params, "shift"));
            picture.map(|pixel| hue::pixel(&params, pixel))
        }
        "gamma" => {
            let (gamma, gain) = (number(params, "gamma"), number(params, "gain"));
            table(&|byte| gamma::byte(&gamma::Params { gamma, gain }, byte))
        }
        "posterize" => {
            let bits = params["bits"].as_u64().unwrap() as u32;
            table(&|byte| posterize::byte(bits, byte))
        }
        "solarize" => {
            let threshold = number(params, "threshold");
            table(&|byte| solarize::byte(threshold, byte))
        }
        "channel_permutation" => {
            let order = array::from_fn(|at| params["order"][at].as_u64().unwrap() as u32);
            let params = channel_permutation::Params { order, padding };
            picture.map(|pixel| channel_permutation::pixel(&params, pixel))
        }
        "grayscale" => picture.map(grayscale::pixel),
        "invert" => table(&invert::byte),
        "autocontrast" => picture.look_up(&autocontrast::tables(&picture.histograms())),
        "equalize" => picture.look_up(&equalize::tables(&picture.histograms())),
        "to_ycbcr" => picture.map(to_ycbcr::pixel),
        _ => panic!("{operator}"),
    }
}

#[test]
fn operators_give_the_bytes_of_torchvision_and_pillow() {
    let pictures = pictures();
    for case in golden("cases") {
        let operator = case["operator"].as_str().unwrap();
        let results = case["results"].as_array().unwrap();
        assert_eq!(results.len(), pictures.len());
        for (picture, result) in pictures.iter().zip(results) {
            let ours = apply(operator, &case["params"], picture).digest();
            let place = (picture.width, picture.height);
            assert_eq!(ours, result.as_str().unwrap(), "{operator} {} {place:?}", case["params"]);
        }
    }
}

#[test]
fn every_colour_has_the_bytes_of_torchvision_and_pillow() {
    let colours = colours();
    for case in golden("all_colours") {
        let operator = case["operator"].as_str().unwrap();
        let ours = apply(operator, &case["params"], &colours).digest();
        assert_eq!(ours, case["result"].as_str().unwrap(), "{operator} {}", case["params"]);
    }
}

/// Two integer passes, as the resampler makes them, against torchvision's bytes.
#[test]
fn a_gaussian_blur_is_within_one_level_of_torchvision() {
    for case in golden("blurs") {
        let pair = |key: &str| [0, 1].map(|at| case[key][at].as_f64().unwrap());
        let [width, height] = pair("size").map(|side| side as usize);
        let picture = Picture::waves(width, height, 11);
        let weights =
            |axis: usize| gaussian_blur::weights(pair("kernel")[axis] as u32, pair("sigma")[axis]);
        let [columns, rows] = [weights(0), weights(1)];
        let at = |picture: &Picture, x: usize, y: usize| picture.pixels[y * width + x];
        let mut half = picture.clone();
        let mut whole = picture.clone();
        for (y, x) in (0..height).flat_map(|y| (0..width).map(move |x| (y, x))) {
            half.pixels[y * width + x] = sum(x, width, &columns, |x| at(&picture, x, y));
        }
        for (y, x) in (0..height).flat_map(|y| (0..width).map(move |x| (y, x))) {
            whole.pixels[y * width + x] = sum(y, height, &rows, |y| at(&half, x, y));
        }
        let hex = case["bytes"].as_str().unwrap().as_bytes().as_chunks::<2>().0;
        assert_eq!(hex.len(), 3 * width * height);
        for (ours, digits) in whole.pixels.as_flattened().iter().zip(hex) {
            let digits = std::str::from_utf8(digits).unwrap();
            let theirs = u8::from_str_radix(digits, 16).unwrap();
            assert!(ours.abs_diff(theirs) <= 1, "{case}");
        }
    }
}

fn sum(index: usize, len: usize, kernel: &[i32], of: impl Fn(usize) -> [u8; 3]) -> [u8; 3] {
    let mut weights = vec![0; kernel.len()];
    let (first, count) = gaussian_blur::output(index as u32, len as u32, kernel, &mut weights);
    array::from_fn(|channel| {
        let taps = (first as usize..).zip(&weights[..count as usize]);
        let sum: i32 = taps.map(|(at, &weight)| weight * i32::from(of(at)[channel])).sum();
        ((sum + (1 << 21)) >> 22) as u8
    })
}

#[test]
fn normal_numbers_are_quantiles() {
    for case in golden("quantiles") {
        let (k, normal) = (case["k"].as_u64().unwrap() as u32, case["normal"].as_f64().unwrap());
        let ours = f64::from(noise::normal(k << 8));
        assert!((ours - normal).abs() < 2e-6, "{k}: {ours} {normal}");
    }
}
