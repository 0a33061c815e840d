//! Combinators: which of their operators they draw, how often, and with which random numbers.

use std::sync::Arc;

use crate::common::{some_of, words::has_words};
use feedwater::error::Error;
use feedwater::internals::config::Pipeline;
use feedwater::internals::geometry::Size;
use feedwater::internals::image::{Image, PixelType};
use feedwater::internals::op::{ActionParams, Actions};
use feedwater::internals::random::SampleKey;
use feedwater::internals::testing::random_image;
use feedwater::op::custom::{Draw, Kind, Kinds};
use feedwater::op::{
    CenterCrop, Flip, Normalize, OneOf, Operator, RandomApply, RandomCrop, RandomOrder,
    RandomResizedCrop, Resize, SomeOf,
};
use feedwater::testing::Parity;

const SIZE: Size = Size::new(40, 30);

/// An operator that adds a number to each byte.
#[derive(Clone, Copy, Debug)]
struct Plus(u8);

impl Operator for Plus {
    fn name(&self) -> &'static str {
        "plus"
    }

    fn kinds(&self) -> Kinds {
        Kinds::exactly([Kind::Table])
    }

    fn draw(&self, draw: &mut Draw<'_>) {
        draw.table(|_, byte| byte.wrapping_add(self.0));
    }
}

/// Returns the numbers that the drawn [`Plus`] operators add to each byte, in order.
fn drawn(operator: &dyn Operator, index: u64) -> Vec<u8> {
    let key = SampleKey { seed: 4, epoch: 1, index };
    let actions = Actions::of([operator], key, SIZE);
    let first = |place: usize| actions.table_of(place)[0].to_ne_bytes()[0];
    (0..actions.list.len()).map(first).collect()
}

/// Returns how often each outcome is drawn in 6000 samples.
fn frequencies(operator: &dyn Operator) -> Vec<(Vec<u8>, u32)> {
    let mut counts = std::collections::BTreeMap::new();
    for index in 0..6000 {
        *counts.entry(drawn(operator, index)).or_insert(0) += 1;
    }
    counts.into_iter().collect()
}

/// Checks which outcomes are drawn, and the share of samples with each of them. Five standard
/// deviations of a share are at most 0.033.
#[track_caller]
fn assert_shares(operator: &dyn Operator, expected: &[(&[u8], f64)]) {
    let found = frequencies(operator);
    let outcomes: Vec<&[u8]> = found.iter().map(|(outcome, _)| &outcome[..]).collect();
    assert_eq!(outcomes, expected.iter().map(|(outcome, _)| *outcome).collect::<Vec<_>>());
    for ((outcome, count), (_, share)) in found.iter().zip(expected) {
        let found = f64::from(*count) / 6000.0;
        assert!((found - share).abs() < 0.033, "{outcome:?}: {found} instead of {share}");
    }
}

#[test]
fn choices_have_their_probabilities() {
    let apply = |probability| RandomApply::new(probability).then(Plus(1)).then(Plus(2));
    assert_shares(&apply(0.3), &[(&[], 0.7), (&[1, 2], 0.3)]);
    assert_shares(&apply(0.0), &[(&[], 1.0)]);
    assert_shares(&apply(1.0), &[(&[1, 2], 1.0)]);
    let one = OneOf::new().or(Plus(1)).or(Plus(2)).or(Plus(3));
    assert_shares(&one, &[(&[1], 1.0 / 3.0), (&[2], 1.0 / 3.0), (&[3], 1.0 / 3.0)]);
    let weighted = OneOf::new()
        .or_any(1.0, Arc::new(Plus(1)))
        .or_any(0.0, Arc::new(Plus(2)))
        .or_any(3.0, Arc::new(Plus(3)));
    assert_shares(&weighted, &[(&[1], 0.25), (&[3], 0.75)]);
    let some = SomeOf::new(2).or(Plus(1)).or(Plus(2)).or(Plus(3));
    let pairs: [&[u8]; 6] = [&[1, 2], &[1, 3], &[2, 1], &[2, 3], &[3, 1], &[3, 2]];
    assert_shares(&some, &pairs.map(|pair| (pair, 1.0 / 6.0)));
    let order = RandomOrder::new().and(Plus(1)).and(Plus(2)).and(Plus(3));
    let orders: [&[u8]; 6] =
        [&[1, 2, 3], &[1, 3, 2], &[2, 1, 3], &[2, 3, 1], &[3, 1, 2], &[3, 2, 1]];
    assert_shares(&order, &orders.map(|order| (order, 1.0 / 6.0)));
}

/// Returns the positions of the crops that the operators draw.
fn crops(operators: &[Arc<dyn Operator>], index: u64) -> Vec<(i64, i64)> {
    let key = SampleKey { seed: 4, epoch: 1, index };
    let actions = Actions::of(operators.iter().map(|it| &**it), key, SIZE);
    let crop = |action: &feedwater::internals::op::Action| match &action.params {
        ActionParams::Crop(crop) => Some(crop.position()),
        _ => None,
    };
    actions.list.iter().filter_map(crop).collect()
}

/// The random numbers of an operator do not change if another operator is inserted, or if another
/// operator draws more or fewer numbers.
#[test]
fn neighbours_do_not_change_an_operators_draws() {
    let crop = || -> Arc<dyn Operator> { Arc::new(RandomCrop::to(20, 20)) };
    let flip = || -> Arc<dyn Operator> { Arc::new(Flip { horizontal: 0.5, vertical: 0.0 }) };
    let apply = |operator: Arc<dyn Operator>| -> Arc<dyn Operator> {
        Arc::new(RandomApply::new(1.0).then_any(flip()).then_any(operator))
    };
    let mut differ = 0;
    for index in 0..20 {
        let alone = crops(&[crop()], index);
        assert_eq!(crops(&[flip(), crop()], index), alone);
        assert_eq!(crops(&[flip(), flip(), crop(), flip()], index), alone);
        assert_eq!(crops(&[apply(flip()), crop()], index), alone);
        let inside = crops(&[apply(crop())], index);
        assert_eq!(crops(&[flip(), apply(crop())], index), inside);
        differ += u32::from(inside != alone);
    }
    assert!(differ > 15, "the same operator elsewhere must draw other numbers");
}

#[test]
fn forms_give_the_bits_of_the_reference() {
    let apply = RandomApply::new(0.5).then(CenterCrop::to(17, 9)).then(Plus(9));
    let one = OneOf::new().or(Resize::to(19, 23)).or(RandomResizedCrop::to(19, 23));
    let some = SomeOf::new(1).or(Plus(200)).or(Flip { horizontal: 1.0, vertical: 0.0 });
    let order = RandomOrder::new().and(Resize::to(19, 23)).and(RandomCrop::to(21, 20));
    let order = Parity::new(order).then(Resize::to(8, 9)).samples(8);
    // Compiling the kernels of one form takes seconds. Random chains have all forms too.
    for form in some_of([Parity::new(apply), Parity::new(one), Parity::new(some), order], 0) {
        form.run().unwrap();
    }
}

#[test]
fn sizes_and_pixel_types_that_differ_between_samples_are_seen() {
    let size = Some(SIZE);
    let crop = || RandomApply::new(0.5).then(CenterCrop::to(8, 8));
    assert_eq!(
        (crop().fixed_output(size), crop().fixed_output(Some(Size::new(8, 8)))),
        (None, Some(Size::new(8, 8)))
    );
    assert_eq!(crop().largest_output(Size::new(4, 100)), Size::new(8, 100));
    let always = RandomApply::new(1.0).then(CenterCrop::to(8, 8));
    assert_eq!(always.fixed_output(None), Some(Size::new(8, 8)));
    let same = OneOf::new().or(CenterCrop::to(8, 8)).or(Resize::to(8, 8));
    assert_eq!(same.fixed_output(None), Some(Size::new(8, 8)));
    let other = OneOf::new().or(CenterCrop::to(8, 8)).or(Resize::to(8, 9));
    assert_eq!((other.fixed_output(size), other.largest_output(SIZE)), (None, SIZE));
    let problem =
        RandomApply::new(0.5).then(Normalize::IMAGENET).pixels(PixelType::U8).unwrap_err();
    assert!(has_words(&problem, &["operators[0]", "normalize", "random_apply"]), "{problem}");
    assert!(!RandomApply::new(1.0).then(Plus(1)).is_random());
    assert!(RandomApply::new(1.0).then(RandomCrop::to(2, 2)).is_random());
    let image: Image<u8> = random_image(SIZE, 1);
    assert_eq!(image.window().size(), SIZE);
}

const NESTED: &str = r#"
[source]
directory = "."

[[chain]]
op = "random_resized_crop"
width = 32
height = 32

[[chain]]
op = "random_apply"
probability = 0.8

[[chain.operators]]
op = "one_of"
weights = [1.0, 2.0]

[[chain.operators.operators]]
op = "flip"
horizontal = 1.0

[[chain.operators.operators]]
op = "flip"
vertical = 1.0

[[chain]]
op = "normalize"
mean = [0.5, 0.5, 0.5]
std = [0.5, 0.5, 0.5]
"#;

#[test]
fn files_nest_operators_and_are_written_as_they_were_read() {
    let pipeline = Pipeline::from_toml(NESTED, "").unwrap();
    let shown = format!("{:?}", pipeline.chain);
    assert!(has_words(&shown, &["RandomApply", "OneOf", "Flip", "2.0"]), "{shown}");
    let again = Pipeline::from_toml(&pipeline.to_toml().unwrap(), "").unwrap();
    assert_eq!(format!("{:?}", again.chain), shown);
}

#[test]
fn errors_name_the_key_inside() {
    for (from, to, key, words) in [
        (
            "horizontal = 1.0",
            "horizontal = 1.5",
            "chain[1].operators[0].operators[0].horizontal",
            &["1.5"][..],
        ),
        (
            "horizontal = 1.0",
            "sideways = 1.0",
            "chain[1].operators[0].operators[0].sideways",
            &["horizontal"],
        ),
        ("probability = 0.8", "probability = 80", "chain[1].probability", &["80"]),
        ("probability = 0.8", "probablity = 0.8", "chain[1].probablity", &["probability"]),
        ("weights = [1.0, 2.0]", "weights = [1.0]", "chain[1].operators[0].weights", &["1", "2"]),
        (
            "weights = [1.0, 2.0]",
            "weights = [0.0, -1.0]",
            "chain[1].operators[0].weights[1]",
            &["-1"],
        ),
        ("op = \"one_of\"", "op = \"one_off\"", "chain[1].operators[0].op", &["one_off"]),
        (
            "op = \"one_of\"",
            "op = \"some_of\"\ncount = 3",
            "chain[1].operators[0].weights",
            &["count"],
        ),
        (
            "horizontal = 1.0",
            "placement = \"cpu\"",
            "chain[1].operators[0].operators[0].placement",
            &["op"],
        ),
    ] {
        let Error::Config(error) = Pipeline::from_toml(&NESTED.replace(from, to), "").unwrap_err()
        else {
            panic!("{to}")
        };
        assert_eq!(error.key, key, "{to}: {error}");
        assert!(has_words(&error.problem, words), "{to}: {error}");
    }
}
