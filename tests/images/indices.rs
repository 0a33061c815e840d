//! Palette indices as images (`decode.pixels = "indices"`).

use crate::common;
use feedwater::error::DataError;
use feedwater::internals::decode::ValueImage;
use feedwater::internals::geometry::Size;
use feedwater::internals::plan::Facts;
use feedwater::op::{CenterCrop, Chain, CutMix, Mixup, MixupOrCutMix};
use feedwater::plan::{Plan, Settings};
use feedwater::{DType, Layout, Pipeline, PixelFormat, Preprocessor};

fn chain(size: Size, operators: &[&str]) -> Chain {
    let operators: Vec<_> = operators.iter().map(|it| format!("{{ {it} }}")).collect();
    let text = format!("chain = [{}]\n[source]\ndirectory = \"d\"\n", operators.join(", "));
    let steps = Pipeline::from_toml(&text, "").unwrap().chain;
    let whole = Chain::new().then(CenterCrop::to(size.width, size.height));
    steps.steps().iter().fold(whole, |all, it| all.then_any(it.placement, it.operator.clone()))
}

fn run(file: &[u8], pixels: PixelFormat, chain: Chain) -> Result<Vec<u8>, DataError> {
    let preprocessor = Preprocessor::builder(chain).output(DType::U8, Layout::Nhwc);
    let preprocessor = preprocessor.configure(|it| it.decode.pixels = pixels);
    preprocessor.build().unwrap().run(file).map(|tensor| tensor.bytes().to_vec())
}

/// Numbers below `2^bits`, and their bytes in rows of a PNG.
fn packed(size: Size, bits: u32) -> (Vec<u8>, Vec<u8>) {
    let number = |at: u64| (at * 7 + at / 5) as u8 & ((1u32 << bits) - 1) as u8;
    let numbers: Vec<u8> = (0..size.pixels()).map(number).collect();
    let rows = numbers.chunks(size.width as usize).flat_map(|row| {
        row.chunks(8 / bits as usize).map(|part| {
            (0..8 / bits).fold(0, |byte, at| {
                let number = part.get(at as usize).copied().unwrap_or(0);
                byte | number << (8 - bits - bits * at)
            })
        })
    });
    (rows.collect(), numbers)
}

#[test]
fn indices_are_the_numbers_of_the_file() {
    for size in [Size::new(1, 1), Size::new(37, 5), Size::new(9, 40)] {
        for bits in [1, 2, 4, 8] {
            let (samples, numbers) = packed(size, bits);
            let palette: Vec<u8> = (0..3 << bits).map(|at: u32| (at * 31) as u8).collect();
            let sides = (size.width, size.height);
            let file = common::png_of_samples(&samples, sides, bits as u8, Some(&palette));
            assert_eq!(run(&file, PixelFormat::Indices, chain(size, &[])).unwrap(), numbers);
            // Gray files have the numbers of a mask, also if they are interlaced.
            let level = |x: u32, y: u32| numbers[(y * size.width + x) as usize];
            for file in [
                common::png_of_samples(&samples, sides, bits as u8, None),
                common::interlaced_png(sides, bits, level),
            ] {
                let mut mask = ValueImage::default();
                mask.decode(&file, |_| Ok(())).unwrap();
                let mut expected = vec![0; numbers.len()];
                mask.write(false, &mut expected);
                assert_eq!(run(&file, PixelFormat::Indices, chain(size, &[])).unwrap(), expected);
            }
        }
        let (numbers, _) = packed(size, 8);
        let head = format!("P5 {} {} 255\n", size.width, size.height).into_bytes();
        let pgm = [head, numbers.clone()].concat();
        assert_eq!(run(&pgm, PixelFormat::Indices, chain(size, &[])).unwrap(), numbers);
        let text = format!(
            "{{'descr': '|u1', 'fortran_order': False, 'shape': ({}, {}), }}",
            size.height, size.width
        );
        let len = (text.len() as u16).to_le_bytes();
        let npy = [b"\x93NUMPY\x01\0", &len[..], text.as_bytes(), &numbers].concat();
        assert_eq!(run(&npy, PixelFormat::Indices, chain(size, &[])).unwrap(), numbers);
    }
}

/// Pixels are moved as those of a gray image with the same numbers, by a chain with nearest
/// interpolation.
#[test]
fn indices_move_like_gray() {
    let size = Size::new(41, 30);
    let (samples, _) = packed(size, 8);
    let palette: Vec<u8> = (0..768).map(|at: u32| (at * 77) as u8).collect();
    let indices = common::png_of_samples(&samples, (41, 30), 8, Some(&palette));
    let gray = common::png_of_samples(&samples, (41, 30), 8, None);
    for operators in [
        &["op = \"resize\", width = 23, height = 50, filter = \"nearest\""][..],
        &["op = \"rotate\", angle = 23, fill = 9, interpolation = \"nearest\""],
        &["op = \"rotate\", angle = 90, expand = true, interpolation = \"nearest\""],
        &["op = \"crop\", x = 5, y = 3, width = 20, height = 9", "op = \"flip\", vertical = 1.0"],
        &["op = \"pad\", padding = 3, fill = 255"],
        &["op = \"letterbox\", width = 20, height = 20, fill = 7, filter = \"nearest\""],
    ] {
        let made = run(&indices, PixelFormat::Indices, chain(size, operators)).unwrap();
        let expected = run(&gray, PixelFormat::U8, chain(size, operators)).unwrap();
        assert_eq!(made, expected, "{operators:?}");
    }
}

/// Means of indices have no meaning. The errors name the operator or the setting, and the format.
#[test]
fn operators_that_change_indices_are_errors_of_the_build() {
    let problem = |operators: &[&str]| {
        let file = common::png_of_samples(&[0], (1, 1), 8, None);
        let source = feedwater::source::Memory::new(vec![(file, 0)]).unwrap();
        let chain = chain(Size::new(8, 8), operators);
        let builder = feedwater::Loader::builder(source, chain).batch_size(1);
        let builder = builder.configure(|it| it.decode.pixels = PixelFormat::Indices);
        let built = builder.device(feedwater::DeviceChoice::Cpu).build();
        built.map(drop).map_err(|error| error.to_string())
    };
    for (operator, words) in [
        ("op = \"resize\", width = 4, height = 4", "filter: of resize is not nearest"),
        (
            "op = \"random_resized_crop\", width = 4, height = 4",
            "filter: of random_resized_crop is not",
        ),
        ("op = \"rotate\", angle = 9, interpolation = \"bilinear\"", "interpolation"),
        ("op = \"elastic\"", "interpolation: of elastic is not nearest"),
        (
            "op = \"letterbox\", width = 4, height = 4, filter = \"nearest\"",
            "fill: of letterbox is not set",
        ),
        (
            "op = \"random_apply\", probability = 0.1, operators = [{ op = \"letterbox\", width = 4, \
             height = 4, filter = \"nearest\" }]",
            "operators[0].fill: of letterbox is not set",
        ),
        (
            "op = \"gaussian_blur\", kernel_size = 5",
            "is gaussian_blur, which has no meaning for palette indices",
        ),
        ("op = \"normalize\", mean = 0.5, std = 0.5", "is normalize"),
        ("op = \"invert\"", "is invert"),
        ("op = \"grayscale\"", "is grayscale"),
        ("op = \"auto_augment\"", "is auto_augment"),
        (
            "op = \"random_apply\", probability = 0.1, operators = [{ op = \"resize\", width = 4, \
             height = 4 }]",
            "operators[0].filter",
        ),
    ] {
        let error = problem(&[operator]).unwrap_err();
        assert!(error.contains(words), "{words}: {error}");
        assert!(error.contains("indices"), "{error}");
    }
    let nearest = "op = \"resize\", width = 4, height = 4, filter = \"nearest\"";
    let apply = format!("op = \"random_apply\", probability = 0.1, operators = [{{ {nearest} }}]");
    for operators in [
        &[nearest][..],
        &[&apply, nearest],
        &["op = \"random_resized_crop\", width = 4, height = 4, filter = \"nearest\""],
        &["op = \"elastic\", interpolation = \"nearest\""],
        &["op = \"letterbox\", width = 4, height = 4, filter = \"nearest\", fill = 114"],
        &["op = \"cutout\", length = 3", "op = \"flip\", horizontal = 0.5"],
    ] {
        problem(operators).unwrap();
    }
}

/// A blend of two class numbers is a class that no file has. `cutmix` exchanges numbers.
#[test]
fn batch_operators_that_blend_indices_are_errors_of_the_plan() {
    let plan = |chain: Chain| {
        let mut settings = Settings::default();
        (settings.targets.classes, settings.decode.pixels) = (Some(2), PixelFormat::Indices);
        Plan::new(&chain, &settings, &Facts::default())
    };
    let exchanged = || chain(Size::new(8, 8), &[]).then_batch(CutMix::default());
    plan(exchanged()).unwrap();
    for (blends, name) in [
        (exchanged().then_batch(Mixup::default()), "mixup,"),
        (exchanged().then_batch(MixupOrCutMix::default()), "mixup_or_cutmix,"),
    ] {
        let error = common::config_error(plan(blends));
        assert_eq!(error.key, "batch_operators[1].op");
        for words in [name, "decode.pixels is indices", "use cutmix"] {
            assert!(error.problem.contains(words), "{words}: {error}");
        }
    }
}

#[test]
fn files_without_indices_are_errors() {
    for (file, words) in [
        (common::jpeg(1, 8, 8), "the image is a JPEG, but indices are read"),
        (common::png(1, 8, 8), "the PNG has 3 channels of 8 bits"),
        (common::png_of_samples(&[1; 128], (8, 8), 16, None), "the PNG has 1 channels of 16 bits"),
        ([&b"P6 8 8 255\n"[..], &[0; 192]].concat(), "another kind than a binary PGM"),
        ([&b"P5 8 8 999\n"[..], &[0; 128]].concat(), "another kind than a binary PGM"),
        (
            include_bytes!("../golden/decode/tiff-gray-16.tif").to_vec(),
            "the image is a TIFF without a palette",
        ),
    ] {
        let size = feedwater::internals::header::Header::parse(&file).unwrap().size;
        let error = run(&file, PixelFormat::Indices, chain(size, &[])).unwrap_err();
        assert!(error.to_string().contains(words), "{words}: {error}");
        assert!(error.to_string().contains("u8x3"), "{error}");
    }
}

/// Gray is computed from the colours that the decoded cache stores.
#[test]
fn the_decoded_cache_stores_images_that_become_gray() {
    let files: Vec<_> = (0..4).map(|seed| (common::jpeg(seed, 40, 30), 0)).collect();
    let batches = |cached: bool| {
        let source = feedwater::source::Memory::new(files.clone()).unwrap();
        let chain = chain(Size::new(20, 20), &[]);
        let builder =
            feedwater::Loader::builder(source, chain).batch_size(2).epochs(Some(2)).num_workers(1);
        let builder = builder.configure(|it| {
            it.decode.pixels = PixelFormat::U8;
            it.decode.background = Some([9, 8, 7]);
            it.cache.decoded = cached.then_some(1 << 20);
        });
        let mut loader = builder.device(feedwater::DeviceChoice::Cpu).build().unwrap();
        let mut all = Vec::new();
        for _epoch in 0..2 {
            for batch in &mut loader {
                all.push(batch.unwrap().to_host().unwrap().to_vec());
            }
        }
        assert_eq!(all.len(), 4);
        assert_eq!(loader.stats().caches.iter().any(|cache| cache.hits > 0), cached);
        all
    };
    assert_eq!(batches(true), batches(false));
}
