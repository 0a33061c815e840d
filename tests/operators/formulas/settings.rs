//! Settings of the operators that change colours, filter, add noise and erase.

use serde_json::{Value, json};

/// Returns the name of the setting that the check of the operator `name` refuses.
fn refused(name: &str, settings: Value) -> String {
    let operator = feedwater::internals::op::read(name, settings).unwrap().unwrap();
    operator.check().unwrap_err().field
}

#[test]
fn invalid_settings_are_refused_with_their_field() {
    for (name, field, valid, invalid) in [
        ("brightness", "factor", json!([0.0, 2.0]), vec![json!(-0.1), json!([1.2, 0.8])]),
        ("contrast", "factor", json!(0), vec![json!(-1), json!(1e7)]),
        ("saturation", "factor", json!(1.5), vec![json!([-0.5, 1.0])]),
        ("sharpness", "factor", json!(2), vec![json!(-0.5)]),
        ("sharpen", "amount", json!([0.2, 0.5]), vec![json!(-0.5)]),
        ("hue", "shift", json!([-0.5, 0.5]), vec![json!(0.6), json!([-0.6, 0.0])]),
        ("posterize", "bits", json!(0), vec![json!(9)]),
        ("solarize", "threshold", json!(127.5), vec![json!(257), json!(-1)]),
        ("gamma", "gamma", json!([0.0, 3.0]), vec![json!(-1), json!(101)]),
        (
            "channel_permutation",
            "order",
            json!([2, 0, 1]),
            vec![json!([0, 0, 1]), json!([1, 2, 3])],
        ),
        ("color_twist", "hue", json!([-360, 360]), vec![json!(361)]),
        ("color_twist", "contrast", json!(0.5), vec![json!(-0.5)]),
        ("lighting", "std", json!(0), vec![json!(-0.1)]),
        ("random_grayscale", "probability", json!(1), vec![json!(1.2), json!(-0.1)]),
        ("photometric_distort", "probability", json!(0), vec![json!(1.2)]),
        ("photometric_distort", "contrast", json!([1.0, 1.0]), vec![json!([1.5, 0.5])]),
        ("gaussian_noise", "sigma", json!(0), vec![json!(-0.1), json!(11)]),
        ("gaussian_noise", "mean", json!(-1), vec![json!(1.5)]),
        ("salt_and_pepper", "probability", json!(1), vec![json!(1.1)]),
        ("salt_and_pepper", "salt_vs_pepper", json!(0), vec![json!(-1)]),
        ("random_erasing", "scale", json!([0.0, 1.0]), vec![json!([0.5, 0.1]), json!([0.0, 1.1])]),
        ("random_erasing", "ratio", json!([1.0, 1.0]), vec![json!([0.0, 1.0])]),
        ("cutout", "holes", json!(8), vec![json!(0), json!(9)]),
        ("cutout", "length", json!(65_535), vec![json!(0), json!(65_536)]),
        ("grid_mask", "tile", json!([1, 50]), vec![json!(0.5)]),
        ("grid_mask", "ratio", json!(1), vec![json!(1.1)]),
    ] {
        let with = |value: &Value| {
            let mut settings = serde_json::Map::new();
            settings.insert(field.into(), value.clone());
            Value::Object(settings)
        };
        feedwater::internals::op::read(name, with(&valid)).unwrap().unwrap().check().unwrap();
        for value in &invalid {
            assert_eq!(refused(name, with(value)), field, "{name} {value}");
        }
    }
}

#[test]
fn kernels_of_blurs_are_odd_and_their_deviations_positive() {
    let blur =
        |kernel_size: Value, sigma: Value| json!({"kernel_size": kernel_size, "sigma": sigma});
    feedwater::internals::op::read("gaussian_blur", json!({"kernel_size": 5}))
        .unwrap()
        .unwrap()
        .check()
        .unwrap();
    assert_eq!(refused("gaussian_blur", blur(json!([4, 5]), json!(1))), "kernel_size");
    assert_eq!(refused("gaussian_blur", blur(json!(1025), json!(1))), "kernel_size");
    assert_eq!(refused("gaussian_blur", blur(json!(5), json!(-1))), "sigma");
    assert_eq!(refused("gaussian_blur", blur(json!(5), json!([2, 1]))), "sigma");
}
