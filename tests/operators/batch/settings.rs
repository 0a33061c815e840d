//! Settings of batch operators in TOML and in Rust, and how a plan prints them.

use std::sync::Arc;

use feedwater::footprint::Memory;
use feedwater::internals::plan::Facts;
use feedwater::op::{BatchOperator, Chain, CutMix, Mixup, PairDraw};
use feedwater::plan::{Plan, Settings};
use feedwater::{Pipeline, Preprocessor, Roi};

use super::{SAMPLES, builder, epoch};
use crate::common::{config_error, jpegs, refused, training};

const FILE: &str = r#"
[source]
directory = "."
[loader]
batch_size = 8
[targets]
classes = 10
smoothing = 0.1
[[chain]]
op = "resize"
width = 8
height = 6
[[batch_operators]]
op = "mixup_or_cutmix"
mixup_alpha = 0.2
probability = 0.5
[[batch_operators]]
op = "cutmix"
"#;

#[test]
fn a_file_has_targets_and_batch_operators() {
    let pipeline = Pipeline::from_toml(FILE, ".").unwrap();
    assert_eq!(pipeline.settings.targets.classes, Some(10));
    let operators = pipeline.chain.batch_operators();
    let names: Vec<&str> = operators.iter().map(|it| it.name()).collect();
    assert_eq!(names, ["mixup_or_cutmix", "cutmix"]);
    let again = Pipeline::from_toml(&pipeline.to_toml().unwrap(), ".").unwrap();
    assert_eq!(again.settings, pipeline.settings);
    assert_eq!(format!("{:?}", again.chain), format!("{:?}", pipeline.chain));
}

#[test]
fn invalid_settings_are_named_with_key_value_and_range() {
    let with = |from: &str, to: &str| {
        assert!(FILE.contains(from));
        let pipeline = Pipeline::from_toml(&FILE.replace(from, to), ".")?;
        Plan::new(&pipeline.chain, &pipeline.settings, &Facts::default())
    };
    for (from, to, key, values) in [
        ("mixup_alpha = 0.2", "mixup_alpha = 0", "batch_operators[0].mixup_alpha", &["0.001"][..]),
        ("mixup_alpha = 0.2", "mixup_alpha = nan", "batch_operators[0].mixup_alpha", &["NaN"]),
        ("mixup_alpha = 0.2", "cutmix_alpha = 1e9", "batch_operators[0].cutmix_alpha", &["1000"]),
        ("probability = 0.5", "probability = 1.2", "batch_operators[0].probability", &["1.2"]),
        ("probability = 0.5", "prob = 0.5", "batch_operators[0].prob", &["unknown"]),
        ("\"cutmix\"", "\"cutmixx\"", "batch_operators[1].op", &["cutmix"]),
        ("\"cutmix\"", "\"flip\"", "batch_operators[1].op", &["flip"]),
        ("op = \"cutmix\"", "", "batch_operators[1].op", &["missing"]),
        ("smoothing = 0.1", "smoothing = -0.1", "targets.smoothing", &["-0.1"]),
        ("classes = 10", "classes = 0", "targets.classes", &["0", "16777216"]),
        ("classes = 10\nsmoothing = 0.1", "", "targets.classes", &["mixup_or_cutmix"]),
        ("classes = 10", "", "targets.smoothing", &["targets.classes"]),
        ("batch_size = 8", "batch_size = 9", "loader.batch_size", &["9", "even"]),
    ] {
        let error = config_error(with(from, to));
        assert!(error.key.starts_with(key), "{to}: {error}");
        for value in values {
            assert!(error.to_string().contains(value), "{to}: {value} in {error}");
        }
    }
}

#[test]
fn a_source_with_more_named_classes_is_refused() {
    let mut settings = Settings::default();
    settings.targets.classes = Some(9);
    let plan = |classes| Plan::new(&training(), &settings, &Facts { classes, ..Facts::default() });
    plan(9).unwrap();
    refused(plan(10), "targets.classes", &["9", "10"]);
}

/// Without class names, the samples may have no labels.
#[test]
fn missing_classes_are_an_error_that_tells_what_samples_without_labels_need() {
    let settings = Settings::default();
    let chain = || training().then_batch(Mixup::default());
    let plan = |classes| Plan::new(&chain(), &settings, &Facts { classes, ..Facts::default() });
    let words = "for samples without labels, remove mixup, or add a column of one-hot masks";
    refused(plan(0), "targets.classes", &["is missing", words]);
    assert!(!config_error(plan(3)).problem.contains(words));
}

#[test]
fn an_odd_batch_is_possible_without_batch_operators() {
    let made = epoch(builder(training()).batch_size(5));
    assert_eq!(made.len(), 60);
    let row = |place: usize| &made[place].target;
    let smooth = 0.1 / SAMPLES as f32;
    for made in &made {
        let expected =
            |class: usize| if class as u64 == made.index { 0.9 + smooth } else { smooth };
        let near = |(class, it): (usize, &f32)| (it - expected(class)).abs() < 1e-6;
        assert!(made.target.iter().enumerate().all(near));
    }
    assert_eq!(row(0).len(), SAMPLES as usize);
}

#[test]
fn a_plan_prints_the_stage_and_has_a_row_for_its_targets() {
    let mut settings = Settings::default();
    (settings.loader.batch_size, settings.targets.classes) = (32, Some(1000));
    let chain = training().then_batch(Mixup::alpha(0.25));
    let plan = Plan::new(&chain, &settings, &Facts::default()).unwrap();
    let text = plan.to_string();
    for line in
        ["cpu     batch Mixup { alpha: 0.25, probability: 1.0 }", "cpu     targets 32x1000 f32"]
    {
        assert!(text.lines().any(|it| it == line), "{line} in\n{text}");
    }
    let row = plan.footprint.row("soft targets").unwrap();
    assert_eq!((row.memory, row.each_bytes, row.count), (Memory::Host, 128_000, 3));
    let plain = Plan::new(&training(), &Settings::default(), &Facts::default()).unwrap();
    assert!(plain.footprint.row("soft targets").is_none());
}

/// A batch operator of a user. It exchanges the lower halves of the two samples of a pair.
#[derive(Debug)]
struct SwapHalves;

impl BatchOperator for SwapHalves {
    fn name(&self) -> &'static str {
        "swap_halves"
    }

    fn draw(&self, draw: &mut PairDraw<'_>) {
        let size = draw.size();
        let rows = size.height / 2;
        // The box is larger than the image and is clipped to it.
        draw.blend(Roi::new(0, rows, 10 * size.width, 10 * size.height), 0.0, 0.5);
    }
}

#[test]
fn a_users_operator_takes_part() {
    let plain = epoch(builder(training()));
    let made = epoch(builder(training().then_any_batch(Arc::new(SwapHalves))));
    // A plane has one third of a sample's values, in 20 rows.
    let halves = |pixels: &[u8], lower: bool| -> Vec<u8> {
        let planes = pixels.chunks(pixels.len() / 3);
        planes
            .flat_map(|it| if lower { &it[it.len() / 2..] } else { &it[..it.len() / 2] })
            .copied()
            .collect()
    };
    for (plain, made) in plain.chunks(2).zip(made.chunks(2)) {
        assert_eq!(halves(&made[0].pixels, false), halves(&plain[0].pixels, false));
        assert_eq!(halves(&made[0].pixels, true), halves(&plain[1].pixels, true));
        assert_eq!(halves(&made[1].pixels, true), halves(&plain[0].pixels, true));
        assert_eq!(made[0].target, made[1].target);
    }
}

#[test]
fn too_many_blends_are_refused() {
    let mut settings = Settings::default();
    settings.targets.classes = Some(2);
    let chain =
        |count| (0..count).fold(training(), |chain: Chain, _| chain.then_batch(CutMix::default()));
    Plan::new(&chain(4), &settings, &Facts::default()).unwrap();
    refused(Plan::new(&chain(5), &settings, &Facts::default()), "batch_operators[4]", &["5", "4"]);
}

#[test]
fn a_preprocessor_runs_no_batch_operator() {
    let (bytes, _) = &jpegs(1)[0];
    let chain = crate::common::evaluation();
    let run = |chain: Chain| Preprocessor::builder(chain).build().unwrap().run(bytes).unwrap();
    assert_eq!(run(chain.clone()), run(chain.then_batch(Mixup::default())));
}
