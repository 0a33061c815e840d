//! One-hot masks.

use super::{annotated, batches, builder, chain, problem};
use crate::common::png_of_samples;
use feedwater::loader::{Batch, LoaderBuilder, PairOutcome};
use feedwater::op::{self, Chain};
use feedwater::plan::{ColumnSettings, DefaultValue, OnError};
use feedwater::{DType, ElementType, Layout};

const CLASSES: u32 = 5;

const MOVES: [&str; 3] = [
    "op = \"random_rotation\"\ndegrees = 30\ninterpolation = \"nearest\"",
    "op = \"flip\"\nhorizontal = 0.5",
    "op = \"random_resized_crop\"\nwidth = 19\nheight = 21",
];

/// Image and mask of the classes 0 to 4, and 255 for some pixels.
fn sample(seed: u32, (width, height): (u32, u32)) -> (Vec<u8>, Vec<u8>) {
    let pixels = (0..width * height).map(|at| (at.wrapping_mul(2_654_435_761) ^ seed) >> 7);
    let classes: Vec<u8> =
        pixels.map(|it| if it % 7 == 6 { 255 } else { (it % CLASSES) as u8 }).collect();
    let image = crate::common::jpeg(seed.into(), width, height);
    (image, png_of_samples(&classes, (width, height), 8, None))
}

fn one_hot() -> ColumnSettings {
    ColumnSettings { one_hot: Some(CLASSES), ..ColumnSettings::mask("mask") }
}

fn loader(columns: Vec<ColumnSettings>, chain: Chain) -> LoaderBuilder {
    let samples = (0..14).map(|seed| {
        let (image, mask) = sample(seed, (40 + seed % 3, 30));
        (image, mask, Vec::new())
    });
    builder(annotated(samples), chain, columns)
}

/// The numbers of a column, whatever its element type is.
fn numbers(batch: &Batch, name: &str) -> Vec<f32> {
    let column = batch.column(name).unwrap();
    let bytes = column.bytes().unwrap();
    match column.element_type() {
        ElementType::U8 => bytes.iter().map(|&it| it.into()).collect(),
        ElementType::F16 => {
            let halves = bytes.as_chunks().0.iter();
            halves.map(|it| half::f16::from_ne_bytes(*it).to_f32()).collect()
        }
        ElementType::BF16 => {
            let halves = bytes.as_chunks().0.iter();
            halves.map(|it| half::bf16::from_ne_bytes(*it).to_f32()).collect()
        }
        _ => column.as_slice::<f32>().unwrap().to_vec(),
    }
}

/// One-hot masks made from masks of numbers, pixel by pixel.
fn expected(masks: &[f32], pixels: usize, layout: Layout) -> Vec<f32> {
    let classes = CLASSES as usize;
    let mut made = vec![0.0; masks.len() * classes];
    for (at, &class) in masks.iter().enumerate() {
        if class < CLASSES as f32 {
            let (sample, at) = (at / pixels, at % pixels);
            let place = match layout {
                Layout::Nchw => class as usize * pixels + at,
                Layout::Nhwc => at * classes + class as usize,
            };
            made[sample * pixels * classes + place] = 1.0;
        }
    }
    made
}

#[test]
fn a_one_hot_mask_has_a_one_at_the_class_of_each_pixel() {
    for layout in [Layout::Nchw, Layout::Nhwc] {
        for dtype in [None, Some(ElementType::U8), Some(ElementType::F16), Some(ElementType::BF16)]
        {
            let column = ColumnSettings { dtype, ..one_hot() };
            let plain = ColumnSettings {
                name: "plain".into(),
                field: Some("mask".into()),
                ..ColumnSettings::mask("plain")
            };
            let builder = loader(vec![column, plain], chain(&MOVES));
            let mut seen = [0; 2];
            for batch in batches(builder.configure(|it| it.output.layout = layout)).unwrap() {
                let column = batch.column("mask").unwrap();
                assert_eq!(column.element_type(), dtype.unwrap_or(ElementType::F32));
                let shape = match layout {
                    Layout::Nchw => [batch.len(), 5, 21, 19],
                    Layout::Nhwc => [batch.len(), 21, 19, 5],
                };
                assert_eq!(column.shape(), shape);
                let made = numbers(&batch, "mask");
                assert!(made == expected(&numbers(&batch, "plain"), 19 * 21, layout));
                let ones = made.iter().filter(|&&it| it == 1.0).count();
                seen[0] += ones;
                seen[1] += batch.len() * 19 * 21 - ones;
            }
            // Pixels without a class exist, too.
            assert!(seen[0] > 1000 && seen[1] > 100, "{seen:?}");
        }
    }
}

/// MixUp blends masks with the weights of the images, as it blends soft targets.
#[test]
fn mixup_blends_one_hot_masks_like_images_and_targets() {
    let last = || chain(&["op = \"resize\"\nwidth = 20\nheight = 16"]);
    for layout in [Layout::Nchw, Layout::Nhwc] {
        let with = |chain: Chain| {
            loader(vec![one_hot()], chain).configure(|it| {
                it.output.layout = layout;
                it.output.dtype = DType::F32;
                it.targets.classes = Some(3);
            })
        };
        let plain = batches(with(last())).unwrap();
        let mixed = batches(with(last().then_batch(op::Mixup::default()))).unwrap();
        let each = 20 * 16 * CLASSES as usize;
        let mut fractions = 0;
        for (plain, mixed) in plain.iter().zip(&mixed) {
            let (before, after) = (numbers(plain, "mask"), numbers(mixed, "mask"));
            for (pair, record) in mixed.pairs().iter().enumerate() {
                let of = |masks: &[f32], place: usize| masks[place * each..][..each].to_vec();
                let (first, second) = (of(&before, 2 * pair), of(&before, 2 * pair + 1));
                let weight = match record.outcome() {
                    PairOutcome::Mixed => record.blends()[0].weight,
                    _ => 1.0,
                };
                let blended = |own: &[f32], other: &[f32]| -> Vec<f32> {
                    own.iter().zip(other).map(|(a, b)| weight * a + (1.0 - weight) * b).collect()
                };
                assert!(of(&after, 2 * pair) == blended(&first, &second), "{weight}");
                assert!(of(&after, 2 * pair + 1) == blended(&second, &first), "{weight}");
                let is_fraction = |it: &&f32| 0.0 < **it && **it < 1.0;
                fractions += of(&after, 2 * pair).iter().filter(is_fraction).count();
            }
        }
        assert!(fractions > 100, "{fractions}");
    }
}

/// CutMix exchanges the same box of one-hot masks and of masks of numbers.
#[test]
fn cutmix_exchanges_parts_of_one_hot_masks() {
    let with = |column: ColumnSettings| {
        let chain = chain(&["op = \"resize\"\nwidth = 20\nheight = 16"]);
        let builder = loader(vec![column], chain.then_batch(op::CutMix::default()));
        batches(builder.configure(|it| it.targets.classes = Some(3))).unwrap()
    };
    let plain = with(ColumnSettings::mask("mask"));
    for dtype in [ElementType::F32, ElementType::U8] {
        let made = with(ColumnSettings { dtype: Some(dtype), ..one_hot() });
        let is_mixed = |batch: &Batch| {
            batch.pairs().iter().filter(|it| it.outcome() == PairOutcome::Mixed).count()
        };
        assert!(made.iter().map(is_mixed).sum::<usize>() > 3);
        for (plain, made) in plain.iter().zip(&made) {
            let expected = expected(&numbers(plain, "mask"), 20 * 16, Layout::Nhwc);
            assert!(numbers(made, "mask") == expected, "{dtype}");
        }
    }
}

#[test]
fn a_number_that_is_no_class_fails_its_sample() {
    let whole = || chain(&["op = \"resize\"\nwidth = 6\nheight = 4"]);
    let image = crate::common::jpeg(1, 6, 4);
    let mask = png_of_samples(&[2; 24], (6, 4), 8, None);
    let build = |one_hot, fill| {
        let source = annotated([(image.clone(), mask.clone(), Vec::new())]);
        let column =
            ColumnSettings { one_hot: Some(one_hot), fill, ..ColumnSettings::mask("mask") };
        builder(source, whole(), vec![column])
    };
    assert!(batches(build(3, None)).is_ok());
    let words = "has the number 2, but one_hot = 2 allows the classes 0 to 1, and 255 for pixels";
    let problem = problem(build(2, None));
    assert!(problem.starts_with("the field \"mask\"") && problem.contains(words), "{problem}");
    // The crop does not show the number, but the file always has it.
    let mut classes = [1; 24];
    classes[0] = 2;
    let mask = png_of_samples(&classes, (6, 4), 8, None);
    let source = annotated([(image.clone(), mask, Vec::new())]);
    let crop = chain(&["op = \"center_crop\"\nwidth = 2\nheight = 2"]);
    let column = ColumnSettings { one_hot: Some(2), ..ColumnSettings::mask("mask") };
    let hidden = super::problem(builder(source, crop, vec![column]));
    assert!(hidden.contains(words), "{hidden}");
    // As the number of pixels without a class, 2 is no error.
    let batch = batches(build(2, Some(2.0))).unwrap().remove(0);
    assert_eq!(numbers(&batch, "mask"), [0.0; 48]);
}

#[test]
fn batch_operators_that_make_fractions_need_floats() {
    for operator in ["mixup", "mixup_or_cutmix"] {
        let chain = || {
            let chain = chain(&["op = \"resize\"\nwidth = 20\nheight = 16"]);
            match operator {
                "mixup" => chain.then_batch(op::Mixup::default()),
                _ => chain.then_batch(op::MixupOrCutMix::default()),
            }
        };
        let build = |column| {
            loader(vec![column], chain()).configure(|it| it.targets.classes = Some(3)).build()
        };
        let bytes = ColumnSettings { dtype: Some(ElementType::U8), ..one_hot() };
        let error = crate::common::config_error(build(bytes));
        assert_eq!(error.key, "column[0].dtype");
        assert!(error.problem.contains("set dtype = \"f32\""), "{error}");
        assert!(build(one_hot()).is_ok());
        let error = crate::common::config_error(build(ColumnSettings::mask("mask")));
        assert!(error.problem.contains("or set one_hot to the number of classes"), "{error}");
    }
}

#[test]
fn a_failed_sample_has_no_class_and_a_default_is_a_class() {
    let (image, mask) = sample(3, (6, 4));
    let samples = [
        (b"no image".to_vec(), mask.clone(), Vec::new()),
        (image.clone(), Vec::new(), Vec::new()),
        (image, mask, Vec::new()),
    ];
    let whole = || chain(&["op = \"resize\"\nwidth = 6\nheight = 4"]);
    for (default, class) in [(None, None), (Some(3), Some(3)), (Some(255), None)] {
        let column = ColumnSettings { default: default.map(DefaultValue::Integer), ..one_hot() };
        let builder = builder(annotated(samples.clone()), whole(), vec![column]);
        let batch = batches(builder.on_error(OnError::Substitute)).unwrap().remove(0);
        let made = numbers(&batch, "mask");
        for at in 0..2 * 24 {
            for of in 0..CLASSES {
                let found = made[at * CLASSES as usize + of as usize];
                assert_eq!(found, f32::from(u8::from(class == Some(of))), "{default:?}");
            }
        }
        assert!(made[48 * CLASSES as usize..].contains(&1.0));
    }
}
