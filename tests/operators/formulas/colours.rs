//! Compares the pixels of operators with torchvision v2, Pillow and Albumentations. colour.py and
//! normalize_image.py of tests/golden/operators/ write the expected results.

use feedwater::internals::image::HostImage;

use super::pictures::{Applied, bytes, colours, golden, pictures, short_digest};
use crate::golden::{digest, picture, rows, size};

#[test]
fn operators_give_the_bytes_of_torchvision_and_pillow() {
    let pictures: Vec<HostImage> = pictures().into_iter().map(HostImage::U8).collect();
    for case in golden("cases") {
        let (name, params) = (case["operator"].as_str().unwrap(), &case["params"]);
        let results = case["results"].as_array().unwrap();
        assert_eq!(results.len(), pictures.len());
        for (picture, result) in pictures.iter().zip(results) {
            let applied = Applied::new(name, params, picture);
            let size = picture.window().size();
            let expected = result.as_str().unwrap();
            for ours in [applied.reference(), applied.transformed()] {
                assert_eq!(short_digest(&ours), expected, "{name} {params} {size:?}");
            }
        }
    }
}

#[test]
fn every_colour_has_the_bytes_of_torchvision_and_pillow() {
    let colours = HostImage::U8(colours());
    for case in golden("all_colours") {
        let (name, params) = (case["operator"].as_str().unwrap(), &case["params"]);
        let ours = Applied::new(name, params, &colours).transformed();
        assert_eq!(short_digest(&ours), case["result"].as_str().unwrap(), "{name} {params}");
    }
}

#[test]
fn a_gaussian_blur_is_within_one_level_of_torchvision() {
    for case in golden("blurs") {
        let picture = HostImage::U8(picture(size(&case["size"]), 11));
        let applied = Applied::new("gaussian_blur", &case["params"], &picture);
        let digits = case["bytes"].as_str().unwrap();
        let hex = digits.as_bytes().as_chunks::<2>().0;
        for ours in [applied.reference(), applied.transformed()] {
            assert_eq!(hex.len(), bytes(&ours).len());
            for (ours, digits) in bytes(&ours).iter().zip(hex) {
                let digits = std::str::from_utf8(digits).unwrap();
                let theirs = u8::from_str_radix(digits, 16).unwrap();
                assert!(ours.abs_diff(theirs) <= 1, "{} {}", case["size"], case["params"]);
            }
        }
    }
}

#[test]
fn an_image_normalized_by_itself_has_the_values_of_albumentations() {
    let pictures: Vec<HostImage> = pictures().into_iter().map(HostImage::U8).collect();
    for case in rows(include_str!("../../golden/operators/normalize_image.json"), "images") {
        let settings = serde_json::json!({"per_channel": case["per_channel"]});
        let results = case["results"].as_array().unwrap();
        assert_eq!(results.len(), pictures.len());
        for (picture, result) in pictures.iter().zip(results) {
            let applied = Applied::new("normalize_image", &settings, picture);
            for ours in [applied.reference(), applied.transformed()] {
                let HostImage::F32(ours) = ours else { panic!("an image of floats") };
                let bytes: Vec<u8> = ours.data().iter().flat_map(|it| it.to_le_bytes()).collect();
                let size = picture.window().size();
                assert_eq!(digest(&bytes)[..16], *result.as_str().unwrap(), "{settings} {size:?}");
            }
        }
    }
}
