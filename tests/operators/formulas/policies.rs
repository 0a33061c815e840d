//! Compares augmentation policies with torchvision and timm. `tests/golden/operators/policies.py`
//! writes the expected results.

use std::collections::BTreeMap;

use serde_json::Value;

use feedwater::internals::geometry::Size;
use feedwater::internals::image::HostImage;
use feedwater::internals::op::Actions;
use feedwater::internals::op::policy::apply::{self, Warping};
use feedwater::internals::op::policy::aug_mix::formula as aug_mix;
use feedwater::internals::op::policy::auto_augment::formula as auto_augment;
use feedwater::internals::op::policy::steps::{
    Drawn, Magnitudes, Operation, PolicyStep, TransformsVersion, entry_of,
};
use feedwater::internals::op::policy::timm::{self, Operations, RandAugment};
use feedwater::internals::op::policy::{rand_augment, three_augment, trivial_augment_wide};
use feedwater::internals::op::spatial::affine::formula::Affine;
use feedwater::internals::random::{SampleKey, SampleRng};
use feedwater::op::{Draw, Kinds, Operator};

use super::samples::{assert_same_counts, assert_same_quantiles};
use crate::golden::{digest, numbers, picture, size};

fn rows(table: &str) -> Vec<Value> {
    crate::golden::rows(include_str!("../../golden/operators/policies.json"), table)
}

fn rng(index: u64) -> SampleRng {
    SampleRng::new(SampleKey { seed: 3, epoch: 0, index }, 0)
}

fn operation(name: &str) -> Operation {
    let all = rand_augment::SPACE.iter().map(|it| it.0).chain([Operation::Invert]);
    all.into_iter().find(|it| format!("{it:?}") == name).unwrap()
}

/// Returns the name and the numbers of a step in the form of the golden data.
fn described(step: PolicyStep) -> (&'static str, Vec<f64>) {
    match step {
        PolicyStep::Identity => ("", vec![]),
        PolicyStep::Affine(Affine { angle, translate: [x, y], scale, shear: [sx, sy], center }) => {
            let center = center.map_or(vec![], Vec::from);
            ("affine", [vec![angle, x, y, scale, sx, sy], center].concat())
        }
        PolicyStep::Matrix(matrix) => ("matrix", matrix.to_vec()),
        PolicyStep::Rotate(angle) => ("rotate", vec![angle]),
        PolicyStep::Brightness(factor) => ("brightness", vec![factor]),
        PolicyStep::Saturation(factor) => ("saturation", vec![factor]),
        PolicyStep::Contrast(factor) => ("contrast", vec![factor]),
        PolicyStep::Sharpness(factor) => ("sharpness", vec![factor]),
        PolicyStep::Posterize(bits) => ("posterize", vec![bits.into()]),
        PolicyStep::Solarize(threshold) => ("solarize", vec![threshold]),
        PolicyStep::SolarizeAdd(added) => ("solarize_add", vec![added.into()]),
        PolicyStep::AutoContrast => ("autocontrast", vec![]),
        PolicyStep::Equalize => ("equalize", vec![]),
        PolicyStep::Invert => ("invert", vec![]),
        PolicyStep::Grayscale => ("grayscale", vec![]),
        PolicyStep::GaussianBlur(radius) => ("blur", vec![radius]),
    }
}

#[track_caller]
fn check_step(row: &Value, step: PolicyStep) {
    let text = row["step"].as_str().unwrap();
    let mut words = text.split(' ');
    let name = words.next().unwrap();
    let expected: Vec<f64> = words.filter(|it| *it != "-").map(|it| it.parse().unwrap()).collect();
    assert_eq!(described(step), (name, expected), "{row}");
}

#[test]
fn magnitudes_are_torchvisions() {
    let both = [("magnitudes", TransformsVersion::V2), ("magnitudes_v1", TransformsVersion::V1)];
    for (version, row) in both
        .iter()
        .flat_map(|(table, version)| rows(table).into_iter().map(move |row| (version, row)))
    {
        let operation = operation(row["operation"].as_str().unwrap());
        let space = match row["policy"].as_str().unwrap() {
            "rand_augment" => rand_augment::SPACE,
            "trivial_augment_wide" => trivial_augment_wide::SPACE,
            "aug_mix" => aug_mix::SPACE,
            _ => &[(operation, auto_augment::magnitudes(operation))],
        };
        let entry = *space.iter().find(|it| it.0 == operation).unwrap();
        let magnitudes = entry_of(*version, entry).1;
        let signed = matches!(magnitudes, Magnitudes::Signed(_) | Magnitudes::Sides(_));
        assert_eq!(row["signed"], signed, "{row}");
        let bins = row["bins"].as_u64().unwrap() as u32;
        let Some(expected) = row["magnitudes"].as_str() else {
            assert!(matches!(magnitudes, Magnitudes::None), "{row}");
            continue;
        };
        let ours = (0..bins).map(|bin| magnitudes.at(bin, bins, size(&row["size"])));
        let expected = expected.split(' ').map(|it| it.parse::<f64>().unwrap());
        assert_eq!(ours.collect::<Vec<_>>(), expected.collect::<Vec<_>>(), "{row}");
    }
}

#[test]
fn spaces_have_torchvisions_operations_in_order() {
    for (policy, space) in [
        ("rand_augment", rand_augment::SPACE),
        ("trivial_augment_wide", trivial_augment_wide::SPACE),
        ("aug_mix", aug_mix::SPACE),
    ] {
        let mut names: Vec<String> = rows("magnitudes")
            .iter()
            .filter(|row| row["policy"] == policy)
            .map(|row| row["operation"].as_str().unwrap().to_string())
            .collect();
        names.dedup();
        assert_eq!(space.iter().map(|it| format!("{:?}", it.0)).collect::<Vec<_>>(), names);
    }
}

#[test]
fn pairs_are_torchvisions() {
    let ours = [
        ("imagenet", auto_augment::IMAGENET),
        ("cifar10", auto_augment::CIFAR10),
        ("svhn", auto_augment::SVHN),
    ];
    let ours = ours.iter().flat_map(|(name, pairs)| pairs.iter().map(move |pair| (*name, pair)));
    let rows = rows("pairs");
    assert_eq!(ours.clone().count(), rows.len());
    for ((name, pair), row) in ours.zip(rows) {
        assert_eq!(row["policy"], name);
        for ((operation, probability, bin), theirs) in
            pair.iter().zip(row["pair"].as_array().unwrap())
        {
            assert_eq!(theirs[0], format!("{operation:?}"));
            assert_eq!(numbers::<1>(&theirs[1]), [*probability]);
            assert_eq!(theirs[2].as_u64().unwrap_or(0), u64::from(*bin));
        }
    }
}

#[test]
fn steps_are_torchvisions() {
    for row in rows("steps") {
        let operation = operation(row["operation"].as_str().unwrap());
        check_step(&row, operation.step(numbers::<1>(&row["magnitude"])[0]));
    }
}

fn timm_operation(row: &Value) -> timm::Operation {
    let mut all = timm::PLAIN.iter().chain(timm::INCREASING).chain(timm::THREE_AUGMENT);
    *all.find(|it| row["operation"] == format!("{it:?}")).unwrap()
}

#[test]
fn steps_are_timms() {
    for row in rows("timm_steps") {
        let operation = timm_operation(&row);
        let [magnitude] = numbers(&row["magnitude"]);
        let negated = row["negated"].as_bool().unwrap();
        check_step(&row, operation.step(magnitude, Size::new(97, 64), 0.45, negated));
    }
}

/// An operator that always draws the given policy step.
#[derive(Clone, Copy, Debug)]
struct Single(PolicyStep, Warping);

impl Operator for Single {
    fn name(&self) -> &'static str {
        "single"
    }

    fn kinds(&self) -> Kinds {
        apply::kinds(1, true)
    }

    fn draw(&self, draw: &mut Draw<'_>) {
        apply::draw(draw, self.0, self.1);
    }
}

#[test]
fn pixels_of_steps_are_those_of_the_libraries() {
    for row in rows("pixels") {
        let source = HostImage::U8(picture(size(&row["source"]), 31));
        let input = source.window().size();
        let [magnitude] = numbers(&row["magnitude"]);
        let step = match row["library"].as_str().unwrap() {
            "torchvision" => operation(row["operation"].as_str().unwrap()).step(magnitude),
            _ => {
                let negated = row["negated"].as_bool().unwrap();
                timm_operation(&row).step(magnitude, input, 0.45, negated)
            }
        };
        let interpolation = serde_json::from_value(row["filter"].clone()).unwrap();
        let operator = Single(step, Warping { interpolation, fill: [9, 128, 255] });
        let key = SampleKey { seed: 0, epoch: 0, index: 0 };
        let actions = Actions::of([&operator as &dyn Operator], key, input);
        let HostImage::U8(out) = actions.reference(&source) else {
            panic!("the result must be bytes")
        };
        assert_eq!(row["sha256"], digest(out.data()), "{row}");
    }
}

#[test]
fn texts_are_read_as_timm_does() {
    for row in rows("timm_texts") {
        let read = RandAugment::parse(row["text"].as_str().unwrap()).unwrap();
        let number = |key: &str| numbers::<1>(&row[key])[0];
        assert_eq!(read.strength.magnitude, number("magnitude"), "{row}");
        assert_eq!(read.layers as u64, row["layers"].as_u64().unwrap(), "{row}");
        assert_eq!(read.strength.probability, number("probability"), "{row}");
        assert_eq!(read.strength.std.min(101.0), number("std").min(101.0), "{row}");
        assert_eq!(read.strength.max, number("max"), "{row}");
        let (operations, weights) = match read.operations {
            Operations::Even(all) => (all.to_vec(), None),
            Operations::Weighted(all) => {
                let sum: f64 = all.iter().map(|it| it.1).sum();
                let weights: Vec<f64> = all.iter().map(|it| it.1 / sum).collect();
                (all.iter().map(|it| it.0).collect(), Some(weights))
            }
        };
        let names: Vec<String> = operations.iter().map(|it| format!("{it:?}")).collect();
        assert_eq!(row["operations"], serde_json::json!(names), "{row}");
        let expected = row["weights"].as_str().map(|it| it.split(' '));
        let expected: Option<Vec<f64>> =
            expected.map(|all| all.map(|it| it.parse().unwrap()).collect());
        assert_eq!(weights.is_some(), expected.is_some());
        for (ours, theirs) in weights.iter().flatten().zip(expected.iter().flatten()) {
            assert!((ours - theirs).abs() < 1e-12, "{row}");
        }
    }
}

#[test]
fn unknown_texts_are_refused_with_their_section() {
    for (text, section) in [
        ("augmix-m3", "augmix-m3"),
        ("rand-m9-x3", "x3"),
        ("rand-mnine", "mnine"),
        ("rand-m9-tall", "tall"),
        ("rand-p1.5", "p1.5"),
        ("rand-n20-tweights", "n20"),
        ("rand-m9-mstd-inc1", "mstd"),
    ] {
        assert_eq!(RandAugment::parse(text), Err(section.to_string()));
    }
}

#[test]
fn operations_and_magnitudes_are_drawn_as_often_as_by_the_libraries() {
    let image = Size::new(64, 48);
    for row in rows("draws") {
        let policy = row["policy"].as_str().unwrap();
        let mut seen = BTreeMap::<String, u64>::new();
        let mut see = |name: String| *seen.entry(name).or_default() += 1;
        // Adding 0 turns -0 into 0, so that both get the same text.
        let name = |it: Drawn| format!("{:?} {}", it.0, (it.1 * 1000.0).round_ties_even() + 0.0);
        let pairs = match policy {
            "imagenet" => Some(auto_augment::IMAGENET),
            "cifar10" => Some(auto_augment::CIFAR10),
            "svhn" => Some(auto_augment::SVHN),
            _ => None,
        };
        for index in 0..row["times"].as_u64().unwrap() {
            let (version, rng) = (TransformsVersion::V2, &mut rng(index));
            match (policy, pairs) {
                ("rand_augment", _) => {
                    see(name(rand_augment::draw_step((9, 31), version, image, rng)))
                }
                ("trivial_augment_wide", _) => {
                    see(name(trivial_augment_wide::draw_step(5, version, image, rng)))
                }
                ("aug_mix", _) => see(name(aug_mix::draw(3, true, version, image, rng))),
                (_, Some(pairs)) => {
                    let drawn = auto_augment::draw(pairs, version, image, rng);
                    let drawn = drawn.into_iter().filter(|it| it.0 != Operation::Identity);
                    drawn.for_each(|it| see(name(it)));
                }
                (text, None) => {
                    let policy = RandAugment::parse(text).unwrap();
                    let mut taken = 0;
                    for place in 0..policy.layers {
                        let operation = policy.draw_operation(&mut taken, rng);
                        see(format!("{place} {operation:?}"));
                    }
                }
            }
        }
        assert_same_counts(policy, &seen, &row["seen"]);
    }
}

#[test]
fn numbers_are_distributed_as_in_the_libraries() {
    for row in rows("distributions") {
        let name = row["name"].as_str().unwrap();
        let count = row["count"].as_u64().unwrap();
        let last: f64 = name.rsplit(' ').next().unwrap().parse().unwrap_or(0.0);
        let timm = RandAugment::parse("rand-m9-mstd0.5-p1").unwrap();
        let draw = |index: u64| {
            let rng = &mut rng(index);
            match name {
                _ if name.contains("image") => mix_weights(last, rng)[0].into(),
                _ if name.contains("chain") => mix_weights(last, rng)[2].into(),
                _ => {
                    match timm.strength.draw(timm::Operation::GaussianBlur, Size::new(8, 8), rng) {
                        PolicyStep::GaussianBlur(radius) => (radius - 0.1) / 1.9 * 10.0,
                        _ => panic!("the step must be drawn, because the probability is 1"),
                    }
                }
            }
        };
        assert_same_quantiles(name, (0..count).map(draw).collect(), &row["quantiles"]);
    }
}

fn mix_weights(alpha: f64, rng: &mut SampleRng) -> [f32; 4] {
    let mut weights = [0.0; 4];
    aug_mix::put_weights(alpha, &mut weights, rng);
    weights
}

#[test]
fn weights_of_aug_mix_sum_to_one() {
    for index in 0..100 {
        let weights = mix_weights(1.0, &mut rng(index));
        assert!((weights.iter().sum::<f32>() - 1.0).abs() < 1e-6);
    }
    assert_eq!(aug_mix::mixed(&[0.5, 0.25, 0.25], [255, 255, 255]), 255);
    assert_eq!(aug_mix::mixed(&[0.5, 0.5], [3, 4]), 3);
}

#[test]
fn three_augment_draws_each_step_as_often() {
    let mut seen = [0; 3];
    for index in 0..3000 {
        match three_augment::draw_step(&mut rng(index)) {
            PolicyStep::Grayscale => seen[0] += 1,
            PolicyStep::Solarize(threshold) => seen[1] += i32::from(threshold == 128.0),
            PolicyStep::GaussianBlur(radius) => seen[2] += i32::from((0.1..2.0).contains(&radius)),
            step => panic!("{step:?}"),
        }
    }
    assert!(seen.iter().all(|it| (900..1100).contains(it)), "{seen:?}");
    assert_eq!(seen.iter().sum::<i32>(), 3000);
}
