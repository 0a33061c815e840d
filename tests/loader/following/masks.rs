//! Masks. With nearest interpolation, a chain moves the pixels of an image and of its mask alike.

use super::{annotated, batches, builder, chain, problem};
use crate::common::{interlaced_png, png_of_samples, with_orientation};
use feedwater::internals::geometry::Orientation;
use feedwater::loader::{Pair, PairOutcome};
use feedwater::op::{self, Chain};
use feedwater::plan::{ColumnSettings, DefaultValue, OnError};
use feedwater::{ElementType, Size};
use proptest::prelude::*;

/// Operators that move pixels. `NEAREST` stands for the interpolation or the filter.
const MOVES: [&str; 17] = [
    "op = \"center_crop\"\nwidth = 41\nheight = 19\nfill = [255, 255, 255]",
    "op = \"random_crop\"\nwidth = 22\nheight = 18\npadding = 4\nfill = [255, 255, 255]\npad_if_needed = true",
    "op = \"random_crop\"\nwidth = 22\nheight = 18\npadding = 4\nmode = \"reflect\"\npad_if_needed = true",
    "op = \"flip\"\nhorizontal = 0.5\nvertical = 0.5",
    "op = \"random_resized_crop\"\nwidth = 23\nheight = 21\nfilter = \"NEAREST\"",
    "op = \"resize\"\nshorter = 30\nfilter = \"NEAREST\"",
    "op = \"random_rotation\"\ndegrees = 30\ninterpolation = \"NEAREST\"\nfill = [255, 255, 255]",
    "op = \"random_rotation\"\ndegrees = 180\nexpand = true\ninterpolation = \"NEAREST\"\nfill = [255, 255, 255]",
    "op = \"rotate\"\nangle = 90\nexpand = true\ninterpolation = \"NEAREST\"",
    "op = \"random_affine\"\ndegrees = 20\ntranslate = [0.2, 0.1]\nscale = [0.6, 1.4]\nshear_x = [-10, 10]\ninterpolation = \"NEAREST\"\nfill = [255, 255, 255]",
    "op = \"affine\"\nangle = 0\ntranslate = [2, -3]\nscale = 1.3\ninterpolation = \"NEAREST\"\nfill = [255, 255, 255]",
    "op = \"random_perspective\"\nprobability = 1.0\ninterpolation = \"NEAREST\"\nfill = [255, 255, 255]",
    "op = \"elastic\"\nalpha = 40\nsigma = 3\ninterpolation = \"NEAREST\"\nfill = [255, 255, 255]",
    "op = \"pad\"\npadding = [3, 5, 1, 2]\nmode = \"symmetric\"",
    "op = \"random_zoom_out\"\nprobability = 1.0\nfill = [255, 255, 255]",
    "op = \"letterbox\"\nwidth = 40\nheight = 33\nfilter = \"NEAREST\"\nfill = [255, 255, 255]",
    "op = \"random_apply\"\n[[chain.operators]]\nop = \"flip\"\nhorizontal = 1.0",
];

/// Operators that move no pixels, and change all of them.
const COLOURS: [&str; 5] = [
    "op = \"gaussian_blur\"\nkernel_size = 5",
    "op = \"color_jitter\"\nbrightness = 0.4",
    "op = \"random_erasing\"\nprobability = 1.0",
    "op = \"aug_mix\"",
    "op = \"equalize\"",
];

const SMALL: &str = "op = \"resize\"\nwidth = 25\nheight = 20";
const LAST: &str = "op = \"resize\"\nwidth = 25\nheight = 20\nfilter = \"NEAREST\"";

/// Gray noise with the levels 0 to 249, as an RGB image and as a mask of the same size.
fn sample(seed: u64, width: u32, height: u32) -> (Vec<u8>, Vec<u8>, Vec<u32>) {
    let levels: Vec<u32> = (0..u64::from(width * height))
        .map(|at| ((seed ^ at).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u32 % 250)
        .collect();
    let bytes: Vec<u8> = levels.iter().map(|&it| it as u8).collect();
    let pnm = format!("P6 {width} {height} 255\n").into_bytes();
    let rgb: Vec<u8> = bytes.iter().flat_map(|&it| [it; 3]).collect();
    ([pnm, rgb].concat(), png_of_samples(&bytes, (width, height), 8, None), levels)
}

/// Masks of all samples, after each other.
fn masks(
    samples: &[(Vec<u8>, Vec<u8>)],
    chain: Chain,
    column: ColumnSettings,
) -> (Vec<u8>, Vec<u8>) {
    let source = annotated(samples.iter().map(|it| (it.0.clone(), it.1.clone(), Vec::new())));
    let (mut images, mut masks) = (Vec::new(), Vec::new());
    for batch in batches(builder(source, chain, vec![column])).unwrap() {
        images.extend(batch.images().as_slice::<u8>().unwrap().iter().step_by(3));
        masks.extend(batch.column("mask").unwrap().as_slice::<u8>().unwrap());
    }
    (images, masks)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..Default::default() })]
    /// A mask with the values of its image has the values of the chain's result. With another
    /// filter, and with operators that change colours, the mask stays the same.
    #[test]
    fn masks_move_like_their_images(
        moves in prop::collection::vec(prop::sample::select(&MOVES[..]), 0..4),
        colours in prop::collection::vec((0..5_usize, prop::sample::select(&COLOURS[..])), 0..3),
        (width, height, seed) in (1_u32..70, 1_u32..60, any::<u64>()),
    ) {
        let samples: Vec<_> = (0..3).map(|number| {
            let (image, mask, _) = sample(seed ^ number, width + 9 * number as u32, height);
            (image, mask)
        }).collect();
        let with = |name: &str, operators: &[&str]| {
            let operators: Vec<_> = operators.iter().map(|it| it.replace("NEAREST", name)).collect();
            chain(&operators.iter().map(String::as_str).collect::<Vec<_>>())
        };
        let nearest: Vec<&str> = moves.iter().copied().chain([LAST]).collect();
        let column = ColumnSettings::mask("mask");
        let (images, masks) = super::masks::masks(&samples, with("nearest", &nearest), column.clone());
        prop_assert!(images == masks, "{:?}", images.iter().zip(&masks).position(|it| it.0 != it.1));
        let mut changed = nearest.clone();
        for (place, colour) in colours {
            changed.insert(place.min(changed.len()), colour);
        }
        let (_, same) = super::masks::masks(&samples, with("bilinear", &changed), column);
        prop_assert!(masks == same, "{:?}", masks.iter().zip(&same).position(|it| it.0 != it.1));
    }
}

#[test]
fn a_mask_has_the_stored_numbers() {
    let levels: Vec<u8> = (0..16).collect();
    let image = sample(1, 4, 4).0;
    let packed: Vec<u8> = (0..8).map(|it| (2 * it) << 4 | (2 * it + 1)).collect();
    let wide: Vec<u8> = (0..16_u16).flat_map(|it| (it * 4000).to_be_bytes()).collect();
    let colors: Vec<u8> = (0..48).map(|it| it * 5).collect();
    let pgm = [b"P5 4 4 15\n".to_vec(), levels.clone()].concat();
    let pgm16 = [b"P5 4 4 60000\n".to_vec(), wide.clone()].concat();
    let size = (4, 4);
    let scaled = |by: i64| (0..16).map(|it| it * by).collect::<Vec<i64>>();
    let bits = [0b1010_0000, 0b0101_0000, 0b1111_0000, 0b0000_0000];
    let checks = vec![1, 0, 1, 0, 0, 1, 0, 1, 1, 1, 1, 1, 0, 0, 0, 0];
    for (file, expected) in [
        (png_of_samples(&levels, size, 8, None), scaled(1)),
        (png_of_samples(&levels, size, 8, Some(&colors)), scaled(1)),
        (png_of_samples(&packed, (4, 4), 4, Some(&colors)), scaled(1)),
        (png_of_samples(&packed, (4, 4), 4, None), scaled(17)),
        (png_of_samples(&wide, size, 16, None), scaled(4000)),
        (png_of_samples(&bits, size, 1, None), checks),
        (pgm, scaled(1)),
        (pgm16, scaled(4000)),
    ] {
        for element in [ElementType::U8, ElementType::I64, ElementType::F32] {
            let column = ColumnSettings { dtype: Some(element), ..ColumnSettings::mask("mask") };
            let source = annotated([(image.clone(), file.clone(), Vec::new())]);
            let whole = chain(&["op = \"resize\"\nwidth = 4\nheight = 4"]);
            let builder = builder(source, whole, vec![column]);
            if element == ElementType::U8 && expected.iter().any(|&it| it > 255) {
                let problem = problem(builder);
                assert!(problem.contains("has the number 4000; a mask of u8"), "{problem}");
                continue;
            }
            let batch = batches(builder).unwrap().remove(0);
            let mask = batch.column("mask").unwrap();
            assert_eq!((mask.shape(), mask.is_ragged()), (vec![1, 4, 4], false));
            let found: Vec<i64> = match element {
                ElementType::U8 => {
                    mask.as_slice::<u8>().unwrap().iter().map(|&it| it.into()).collect()
                }
                ElementType::I64 => mask.as_slice::<i64>().unwrap().to_vec(),
                _ => mask.as_slice::<f32>().unwrap().iter().map(|&it| it as i64).collect(),
            };
            assert_eq!(found, expected);
        }
    }
}

#[test]
fn a_mask_is_turned_or_scaled_if_the_settings_say_so() {
    let (width, height) = (6, 4);
    let levels: Vec<u8> = (0..24).collect();
    let mask = png_of_samples(&levels, (width, height), 8, None);
    let whole = || chain(&["op = \"resize\"\nwidth = 4\nheight = 6"]);
    let jpeg = crate::common::jpeg(3, width, height);
    for value in 1..=8 {
        let source = || annotated([(with_orientation(&jpeg, value), mask.clone(), Vec::new())]);
        let column = |turn, scale| ColumnSettings { turn, scale, ..ColumnSettings::mask("mask") };
        let turned = batches(builder(source(), whole(), vec![column(true, false)])).unwrap();
        let turned = turned[0].column("mask").unwrap().as_slice::<u8>().unwrap();
        // The upright image of the orientations 5 to 8 has the size of the result, 4x6.
        let orientation = Orientation::from_exif(value);
        if value >= 5 {
            for (at, &level) in (0..).zip(turned) {
                let stored = Size::new(width, height);
                let (x, y) = orientation.stored_position(stored, at % 4, at / 4);
                assert_eq!(u32::from(level), y * width + x, "orientation {value}");
            }
            let problem = problem(builder(source(), whole(), vec![column(false, false)]));
            assert!(problem.contains("has 6x4 pixels, and its image has 4x6"), "{problem}");
            assert!(problem.contains("turn = true"), "{problem}");
        }
        // A mask of the turned sides is not scaled.
        let scaled = batches(builder(source(), whole(), vec![column(false, true)]));
        assert_eq!(scaled.is_ok(), value < 5);
    }
    // Each pixel of a mask of half the size covers four pixels of the image.
    let (image, ..) = sample(2, 12, 8);
    let column = ColumnSettings { scale: true, ..ColumnSettings::mask("mask") };
    let source = annotated([(image, mask.clone(), Vec::new())]);
    let scaled = chain(&["op = \"resize\"\nwidth = 12\nheight = 8"]);
    let batch = batches(builder(source, scaled, vec![column.clone()])).unwrap().remove(0);
    let scaled = batch.column("mask").unwrap();
    for (at, &level) in scaled.as_slice::<u8>().unwrap().iter().enumerate() {
        assert_eq!(usize::from(level), at / 12 / 2 * 6 + at % 12 / 2);
    }
    let (image, ..) = sample(2, 5, 4);
    let source = annotated([(image, mask, Vec::new())]);
    let problem = problem(builder(source, whole(), vec![column]));
    assert!(problem.contains("may not be larger than its image"), "{problem}");
}

#[test]
fn a_wrong_mask_fails_its_sample_and_says_why() {
    let (image, mask, _) = sample(5, 8, 6);
    let rgb = crate::common::png(1, 8, 6);
    let jpeg = crate::common::jpeg(1, 8, 6);
    let cut = mask[..mask.len() - 20].to_vec();
    let mut flipped = mask.clone();
    flipped[60] ^= 1;
    for (file, words) in [
        (rgb, "has 3 channels; save it as a gray PNG"),
        (jpeg, "is a JPEG file; a mask must be a PNG or PGM file"),
        (cut, "the PNG"),
        (flipped, "the PNG cannot be decoded"),
        (
            b"P6 8 6 255\n".iter().copied().chain([0; 144]).collect(),
            "save it as a gray PNG or a binary PGM",
        ),
        (b"nothing".to_vec(), "neither"),
        (Vec::new(), "is missing; set a default"),
        (png_of_samples(&[0; 30], (5, 6), 8, None), "has 5x6 pixels, and its image has 8x6"),
        (png_of_samples(&[0; 8000 * 4], (8000, 4), 8, None), "has 8000x4 pixels"),
        (
            b"P5 8 6 65535\n".iter().copied().chain([1; 96]).collect(),
            "has the number 257; a mask of u8 holds 0 to 255, so set dtype = \"i64\", or \"f32\"",
        ),
    ] {
        let source = annotated([(image.clone(), file, Vec::new())]);
        let problem = problem(builder(source, chain(&[SMALL]), vec![ColumnSettings::mask("mask")]));
        assert!(problem.starts_with("the field \"mask\""), "{problem}");
        assert!(words == "neither" || problem.contains(words), "{words}: {problem}");
    }
}

#[test]
fn a_failed_or_missing_mask_has_the_fill_or_the_default() {
    let (image, mask, _) = sample(5, 8, 6);
    let samples = || {
        [
            (image.clone(), mask.clone(), Vec::new()),
            (b"no image".to_vec(), mask.clone(), Vec::new()),
            (image.clone(), Vec::new(), Vec::new()),
        ]
    };
    let column = ColumnSettings {
        fill: Some(7.0),
        default: Some(DefaultValue::Integer(9)),
        ..ColumnSettings::mask("mask")
    };
    let without = ColumnSettings { default: None, ..column.clone() };
    for (column, failed) in [(column, 9), (without, 7)] {
        let builder = builder(annotated(samples()), chain(&[SMALL]), vec![column]);
        let batch = batches(builder.on_error(OnError::Substitute)).unwrap().remove(0);
        let mask = batch.column("mask").unwrap();
        assert_ne!(mask.sample::<u8>(0).unwrap(), [failed; 500]);
        assert_eq!(mask.sample::<u8>(1).unwrap(), [failed; 500]);
        assert_eq!(mask.sample::<u8>(2).unwrap(), [failed; 500]);
    }
}

/// CutMix exchanges the same box of two images and of their masks.
#[test]
fn cutmix_exchanges_parts_of_masks() {
    let samples: Vec<_> = (0..14).map(|seed| sample(seed, 40, 30)).collect();
    let source = || {
        let samples = samples.iter().map(|it| (it.0.clone(), it.1.clone(), Vec::new()));
        annotated(samples)
    };
    let chain = || chain(&["op = \"resize\"\nwidth = 25\nheight = 20\nfilter = \"nearest\""]);
    let with = |dtype, operator: &str| {
        let chain = match operator {
            "cutmix" => chain().then_batch(op::CutMix::default()),
            "mixup" => chain().then_batch(op::Mixup::default()),
            _ => chain().then_batch(op::MixupOrCutMix::default()),
        };
        let column = ColumnSettings { dtype: Some(dtype), ..ColumnSettings::mask("mask") };
        builder(source(), chain, vec![column]).configure(|it| it.targets.classes = Some(3))
    };
    let mut mixed = 0;
    for batch in batches(with(ElementType::U8, "cutmix")).unwrap() {
        let images: Vec<u8> =
            batch.images().as_slice::<u8>().unwrap().iter().step_by(3).copied().collect();
        assert_eq!(images, batch.column("mask").unwrap().as_slice::<u8>().unwrap());
        let is_mixed = |pair: &&Pair| pair.outcome() == PairOutcome::Mixed;
        mixed += batch.pairs().iter().filter(is_mixed).count();
    }
    assert!(mixed > 3);
    for batch in batches(with(ElementType::I64, "cutmix")).unwrap() {
        let images = batch.images().as_slice::<u8>().unwrap().iter().step_by(3);
        let masks = batch.column("mask").unwrap().as_slice::<i64>().unwrap();
        assert!(images.map(|&it| i64::from(it)).eq(masks.iter().copied()));
    }
    for operator in ["mixup", "mixup_or_cutmix"] {
        let error = crate::common::config_error(with(ElementType::U8, operator).build());
        assert_eq!(error.key, "column[0].kind");
        assert!(error.problem.contains("or use cutmix"), "{error}");
    }
}

/// The decoder's buffer has the pixels of the image before it.
#[test]
fn interlaced_images_and_masks_have_no_bits_of_others() {
    for bits in [1, 2, 4] {
        let most = (1_u32 << bits) - 1;
        let level = |number: u32, x: u32, y: u32| (x * 7 + y * 3 + number * 5) % (most + 1);
        let file = |number| interlaced_png((13, 11), bits, |x, y| level(number, x, y) as u8);
        let source = annotated((0..6).map(|it| (file(it), file(it), Vec::new())));
        let whole = chain(&["op = \"resize\"\nwidth = 13\nheight = 11"]);
        let builder = builder(source, whole, vec![ColumnSettings::mask("mask")]).num_workers(1);
        for batch in batches(builder).unwrap() {
            let mask = batch.column("mask").unwrap();
            let images = batch.images().as_slice::<u8>().unwrap();
            for (place, index) in batch.indices().enumerate() {
                let mask = mask.sample::<u8>(place).unwrap();
                for (at, number) in (0..).zip(mask) {
                    let expected = level(index as u32, at % 13, at / 13);
                    let scaled = if bits == 1 { expected } else { expected * 255 / most };
                    assert_eq!(u32::from(*number), scaled, "{bits} bits, sample {index}");
                    let pixel = images[3 * (place * 143 + at as usize)];
                    assert_eq!(u32::from(pixel), expected * 255 / most, "{bits} bits");
                }
            }
        }
    }
}
