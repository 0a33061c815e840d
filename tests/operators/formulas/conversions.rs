//! Compares the transforms that `from_torchvision` converts with torchvision and timm: sizes and
//! pixels. `tests/golden/operators/conversions.py` writes the expected results.

use serde_json::{Value, json};

use feedwater::internals::geometry::Size;
use feedwater::internals::image::HostImage;
use feedwater::internals::op::Actions;
use feedwater::internals::op::policy::steps::PolicyStep;
use feedwater::internals::op::policy::timm::{Operation, Strength};
use feedwater::internals::op::policy::timm_aug_mix::formula::OPERATIONS;
use feedwater::internals::op::policy::timm_auto_augment::formula::{AutoAugment, Entry, Policy};
use feedwater::internals::op::spatial::resize_keep_ratio::formula::{KeepRatio, Range};
use feedwater::internals::random::{SampleKey, SampleRng};
use feedwater::op::{CenterCrop, Operator, PadMode, RandomCrop, Resize};

use crate::golden::{digest, numbers, picture, size};

fn rows(table: &str) -> Vec<Value> {
    crate::golden::rows(include_str!("../../golden/operators/conversions.json"), table)
}

#[test]
fn the_longer_side_of_resize_is_limited_as_by_torchvision() {
    for row in rows("resizes") {
        let length = |key: &str| row[key].as_u64().unwrap() as u32;
        let op =
            Resize { max_size: Some(length("max_size")), ..Resize::shorter(length("shorter")) };
        assert_eq!(op.fixed_output(Some(size(&row["source"]))), Some(size(&row["size"])), "{row}");
    }
}

#[test]
fn ratios_are_kept_as_by_timm() {
    for row in rows("keep_ratios") {
        let range = Range { probability: 1.0, low: 0.5, high: 1.5 };
        let formula = KeepRatio {
            target: size(&row["target"]),
            longest: row["longest"].as_f64().unwrap(),
            scale: range,
            scale_is_area: row["area"].as_bool().unwrap(),
            aspect: range,
        };
        let [[scale], [log_aspect]] = [&row["scale"], &row["log_aspect"]].map(numbers::<1>);
        let factors = formula.factors(scale, libm::exp(log_aspect));
        let input = size(&row["source"]);
        assert_eq!(formula.output(input, factors), size(&row["size"]), "{row}");
        assert_eq!(formula.output(input, [1.0; 2]), size(&row["plain"]), "{row}");
    }
}

#[test]
fn padded_crops_are_those_of_the_libraries() {
    for row in rows("crops") {
        let mode: PadMode = serde_json::from_value(row["mode"].clone()).unwrap();
        let Size { width, height } = size(&row["output"]);
        let fill = |given: [f32; 3]| if mode == PadMode::Constant { given } else { [0.0; 3] };
        let op: Box<dyn Operator> = match row["operator"].as_str().unwrap() {
            "center_crop" => Box::new(CenterCrop {
                mode,
                fill: fill([9.0, 8.0, 7.0]),
                ..CenterCrop::to(width, height)
            }),
            // The crop has the size of the padded image, so its position is not random.
            _ => Box::new(RandomCrop {
                mode,
                padding: [4, 3, 2, 1],
                fill: fill([9.0, 8.0, 7.0]),
                ..RandomCrop::to(width, height)
            }),
        };
        let source = HostImage::U8(picture(size(&row["source"]), 25));
        let actions = Actions::of([&*op], SampleKey::default(), source.window().size());
        let HostImage::U8(out) = actions.reference(&source) else {
            panic!("the result must be bytes")
        };
        assert_eq!(row["sha256"], digest(out.data()), "{row}");
    }
}

#[test]
fn policies_are_timms() {
    let written = |name: &str| {
        let policy = AutoAugment::parse(name).unwrap().policy;
        let entry = |(operation, probability, magnitude): Entry| {
            json!([format!("{operation:?}"), probability, magnitude])
        };
        let increasing = |(operation, probability, magnitude): Entry| {
            let operation = match operation {
                Operation::Posterize | Operation::PosterizeOriginal => {
                    Operation::PosterizeIncreasing
                }
                other => other,
            };
            entry((operation, probability, magnitude))
        };
        let entries: Vec<Value> = match policy {
            Policy::Pairs(pairs) => pairs.iter().map(|pair| json!(pair.map(entry))).collect(),
            Policy::PairsIncreasing(pairs) => {
                pairs.iter().map(|pair| json!(pair.map(increasing))).collect()
            }
            Policy::Single(entries) => entries.iter().map(|it| json!([entry(*it)])).collect(),
        };
        entries.into_iter().map(move |entry| json!({ "policy": name, "entry": entry })).collect()
    };
    let names = ["v0", "v0r", "original", "originalr", "3a"];
    let ours: Vec<Value> =
        names.into_iter().flat_map(|name| -> Vec<Value> { written(name) }).collect();
    assert_eq!(ours, rows("policies"));
}

#[test]
fn operations_of_timm_have_its_levels() {
    let size = Size::new(8, 8);
    let (augmix, levels): (Vec<Value>, Vec<Value>) =
        rows("levels").into_iter().partition(|row| row["augmix"].as_bool().is_some());
    for row in levels {
        let [magnitude] = numbers(&row["magnitude"]);
        let step = Operation::PosterizeOriginal.step(magnitude, size, 0.45, false);
        assert_eq!(json!(step_bits(step)), row["bits"], "{row}");
    }
    let ours: Vec<String> = OPERATIONS.iter().map(|it| format!("{it:?}")).collect();
    let theirs: Vec<&str> = augmix.iter().map(|row| row["operation"].as_str().unwrap()).collect();
    assert_eq!(ours, theirs);
}

fn step_bits(step: PolicyStep) -> u32 {
    match step {
        PolicyStep::Posterize(bits) => bits,
        other => panic!("{other:?} is not a posterize step"),
    }
}

/// timm draws the radius of its Gaussian blur as `random.uniform(0.1, 2.0 * factor)`, so the radius
/// must be uniform here too.
#[test]
fn the_radius_of_3a_is_uniform() {
    let strength = Strength { probability: 1.0, ..Strength::default() };
    let radii: Vec<f64> = (0..2000)
        .map(|index| {
            let key = SampleKey { index, ..SampleKey::default() };
            let rng = &mut SampleRng::new(key, 0);
            match strength.draw(Operation::GaussianBlurRand, Size::new(8, 8), rng) {
                PolicyStep::GaussianBlur(radius) => radius,
                other => panic!("{other:?} is not a blur step"),
            }
        })
        .collect();
    let mean = radii.iter().sum::<f64>() / radii.len() as f64;
    assert!(radii.iter().all(|radius| (0.1..2.0).contains(radius)));
    assert!((mean - 1.05).abs() < 0.05, "{mean}");
}
