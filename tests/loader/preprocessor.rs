//! Single images for inference, on many threads. Pixels, errors and limits equal those of the
//! loader.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::words::has_words;
use crate::common::{self, evaluation, jpeg, jpegs, png, progressive, refused};
use feedwater::error::{DataError, Error, Reason};
use feedwater::internals::config::Pipeline;
use feedwater::internals::decode::Decoders;
use feedwater::internals::header::Header;
use feedwater::internals::tensor::{DType, Layout};
use feedwater::loader::{DeviceChoice, Loader};
use feedwater::op::custom::{Draw, Kinds};
use feedwater::op::{CenterCrop, Chain, Flip, Normalize, Operator, RandomCrop, Resize};
use feedwater::plan::{OnError, Settings, ShardFrom};
use feedwater::source::Memory;
use feedwater::{Preprocessor, PreprocessorBuilder};

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden")
}

/// Returns every image of a folder of golden files, including damaged ones.
fn files(folder: &str) -> Vec<Vec<u8>> {
    let mut paths: Vec<_> =
        fs::read_dir(golden().join(folder)).unwrap().map(|it| it.unwrap().path()).collect();
    paths.retain(|path| {
        let is = |it: &str| ["jpg", "png", "webp", "ppm", "pgm", "pbm"].contains(&it);
        path.extension().is_some_and(|it| is(it.to_str().unwrap()))
    });
    paths.sort();
    assert!(!paths.is_empty(), "{folder}");
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

/// Returns images of each format, rotated images, and unusable ones.
fn images() -> Vec<Vec<u8>> {
    let sound = jpeg(3, 60, 44);
    let mut all: Vec<Vec<u8>> = jpegs(4).into_iter().map(|(bytes, _)| bytes).collect();
    all.extend([progressive(5, 70, 90), png(6, 31, 47), Vec::new(), b"GIF89a".to_vec()]);
    all.extend([sound[..sound.len() / 2].to_vec(), sound[..12].to_vec(), sound]);
    all.extend(files("decode"));
    all.extend(files("tolerated"));
    all
}

/// Returns the loader's result for each image with these settings.
fn loaded(
    images: &[Vec<u8>],
    chain: Chain,
    settings: &Settings,
) -> Vec<Result<Vec<u8>, DataError>> {
    let source = Memory::new(images.iter().map(|bytes| (bytes.clone(), 0)).collect()).unwrap();
    let builder = Loader::builder(source, chain).settings(settings.clone());
    let builder = builder
        .batch_size(images.len())
        .configure(|it| it.loader.shard = ShardFrom::None)
        .num_workers(2);
    let builder = builder.on_error(OnError::Substitute).device(DeviceChoice::Cpu).epochs(Some(1));
    let mut loader = builder.build().unwrap();
    let batch = loader.epoch().next().unwrap().unwrap();
    let bytes = batch.shape().sample_bytes();
    let tensors = batch.host().unwrap().chunks_exact(bytes);
    let made = tensors.zip(batch.indices()).map(|(tensor, index)| {
        let error = batch.errors().iter().find(|error| error.index == index);
        error.map_or(Ok(tensor.to_vec()), |it| Err(DataError::new(it.reason, it.problem.clone())))
    });
    made.collect()
}

/// Processes the images with the loader and with a preprocessor, and compares every byte and
/// message. Returns the number of errors.
fn check(images: &[Vec<u8>], chain: Chain, settings: &Settings) -> usize {
    let expected = loaded(images, chain.clone(), settings);
    let preprocessor = Preprocessor::builder(chain).settings(settings).build().unwrap();
    let shape = preprocessor.shape();
    assert_eq!((shape.batch, shape.layout), (1, settings.output.layout));
    for (number, (bytes, expected)) in images.iter().zip(&expected).enumerate() {
        let made = preprocessor.run(bytes).map(|tensor| tensor.bytes().to_vec());
        assert!(
            made == *expected,
            "image {number}: {:?} {:?}",
            made.err(),
            expected.as_ref().err()
        );
    }
    expected.iter().filter(|it| it.is_err()).count()
}

#[test]
fn every_image_has_the_loaders_bits_or_error() {
    let images = images();
    let mut settings = Settings::default();
    for dtype in DType::ALL {
        for layout in Layout::ALL {
            settings.output.dtype = dtype;
            settings.output.layout = layout;
            let chain = match dtype {
                DType::U8 => Chain::new().then(Resize::shorter(26)).then(CenterCrop::to(22, 20)),
                _ => evaluation(),
            };
            let errors = check(&images, chain, &settings);
            assert!(errors >= 4 && errors < images.len() / 2, "{errors} of {}", images.len());
        }
    }
}

#[test]
fn decoder_settings_mean_the_same_as_in_the_loader() {
    let images = images();
    let chain = || Chain::new().then(Resize::to(24, 20)).then(Normalize::IMAGENET);
    let plain = Settings::default();
    let base = loaded(&images, chain(), &plain);
    let strict = check(&images, chain(), &plain);
    let [mut tolerant, mut turned, mut prescaled] = [(); 3].map(|()| plain.clone());
    tolerant.decode.strict = false;
    assert!(check(&images, chain(), &tolerant) < strict, "damage must be tolerated");
    turned.decode.orientation = false;
    prescaled.decode.prescale = true;
    for settings in [turned, prescaled] {
        check(&images, chain(), &settings);
        assert!(loaded(&images, chain(), &settings) != base, "the setting must change pixels");
    }
}

#[test]
fn limits_are_those_of_the_loader() {
    let images: Vec<_> = [jpeg(1, 64, 40), png(2, 40, 64), jpeg(3, 32, 32)].into();
    let largest = images.iter().map(Vec::len).max().unwrap() as u64;
    let with = |change: fn(&mut Settings, u64), value| {
        let mut settings = Settings::default();
        change(&mut settings, value);
        check(&images, evaluation(), &settings)
    };
    assert_eq!(with(|it, value| it.limits.max_pixels = value, 64 * 40), 0);
    assert_eq!(with(|it, value| it.limits.max_pixels = value, 64 * 40 - 1), 2);
    assert_eq!(with(|it, value| it.limits.max_side = value as u32, 63), 2);
    assert_eq!(with(|it, value| it.limits.max_file_bytes = value, largest), 0);
    assert_eq!(with(|it, value| it.limits.max_file_bytes = value, largest - 1), 1);
    let by_builder = |builder: PreprocessorBuilder| {
        builder.build().unwrap().run(&images[0]).map(drop).map_err(|error| error.reason)
    };
    let builder = || Preprocessor::builder(evaluation());
    assert_eq!(by_builder(builder()), Ok(()));
    for limited in [
        builder().configure(|it| it.limits.max_pixels = 100),
        builder().configure(|it| it.limits.max_side = 63),
        builder().configure(|it| it.limits.max_file_bytes = 100),
        builder().configure(|it| it.limits.large_image_memory = 100),
    ] {
        assert_eq!(by_builder(limited), Err(Reason::Oversized));
    }
}

#[test]
fn many_threads_share_one_preprocessor() {
    let images = images();
    let expected = loaded(&images, evaluation(), &Settings::default());
    let preprocessor = Preprocessor::builder(evaluation()).build().unwrap();
    let (next, made) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                let mut out = vec![0f32; preprocessor.shape().sample_len()];
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= 10 * images.len() {
                        break;
                    }
                    let number = number % images.len();
                    let out = bytemuck::cast_slice_mut(&mut out);
                    let result = preprocessor.run_into(&images[number], out);
                    assert!(result.map(|()| out.to_vec()) == expected[number], "image {number}");
                    made.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(made.into_inner(), 10 * images.len());
}

#[test]
fn an_unaligned_buffer_gets_the_same_bytes() {
    let preprocessor = Preprocessor::builder(evaluation()).build().unwrap();
    let image = jpeg(1, 50, 40);
    let bytes = preprocessor.shape().bytes();
    let mut buffer = vec![0u64; bytes / 8 + 2];
    let out = &mut bytemuck::cast_slice_mut::<_, u8>(&mut buffer)[1..][..bytes];
    preprocessor.run_into(&image, out).unwrap();
    assert!(out == preprocessor.run(&image).unwrap().bytes());
}

#[test]
#[should_panic(expected = "1x3x22x22 f32 nchw")]
fn a_buffer_of_another_length_panics() {
    let preprocessor = Preprocessor::builder(evaluation()).build().unwrap();
    let _ = preprocessor.run_into(&jpeg(1, 50, 40), &mut [0; 7]);
}

/// An operator that draws random numbers only for images that are wider than high. The default
/// implementation of `Operator::is_random` must detect that it is random.
#[derive(Clone, Copy, Debug)]
struct Drawing;

impl Operator for Drawing {
    fn name(&self) -> &'static str {
        "drawing"
    }

    fn kinds(&self) -> Kinds {
        Kinds::exactly([])
    }

    fn draw(&self, draw: &mut Draw<'_>) {
        if draw.size().width > draw.size().height {
            draw.rng().bits();
        }
    }
}

#[test]
fn a_random_operator_is_an_error_that_names_it() {
    let resize = || Chain::new().then(Resize::to(32, 32));
    let refused = |chain: Chain| match Preprocessor::builder(chain).build().unwrap_err() {
        Error::Config(error) => (error.key, error.problem),
        other => panic!("{other:?}"),
    };
    let flip = |horizontal, vertical| Flip { horizontal, vertical };
    for (chain, name) in [
        (resize().then(RandomCrop::to(32, 32)), "random_crop"),
        (resize().then(flip(0.5, 0.0)), "flip"),
        (resize().then(flip(1.0, 1e-9)), "flip"),
        (resize().then(Drawing), "drawing"),
    ] {
        let (key, problem) = refused(chain);
        assert_eq!(key, "chain[1]");
        assert!(has_words(&problem, &[name]), "{problem}");
    }
    assert_eq!(refused(common::training()).0, "chain[0]");
    // The operators have probabilities of 0 and 1, so the chain is not random.
    let images = [jpeg(1, 50, 40)];
    let chain = resize().then(flip(1.0, 0.0)).then(Normalize::IMAGENET);
    assert_eq!(check(&images, chain, &Settings::default()), 0);
}

#[test]
fn settings_impossible_for_single_images_are_errors_and_batch_settings_are_not() {
    let text = "[source]\ndirectory = \".\"\n[loader]\nbatch_size = 512\nshuffle = true\nrank = 3\nworld_size = 8\n\
                [output]\ndtype = \"bf16\"\nlayout = \"nhwc\"\n\
                [[chain]]\nop = \"resize\"\nwidth = 24\nheight = 20\n";
    let Pipeline { settings, chain, .. } = Pipeline::from_toml(text, Path::new(".")).unwrap();
    let preprocessor = Preprocessor::builder(chain.clone()).settings(&settings).build().unwrap();
    let tensor = preprocessor.run(&jpeg(1, 50, 40)).unwrap();
    assert_eq!(tensor.array_shape(), [1, 20, 24, 3]);
    assert_eq!(tensor.as_bf16().unwrap().len(), 20 * 24 * 3);
    assert!(tensor.as_f32().is_none() && tensor.clone().into_f32().is_none());
    assert_eq!(bytemuck::cast_slice::<_, u8>(&tensor.clone().into_bf16().unwrap()), tensor.bytes());
    let built =
        |settings: &Settings| Preprocessor::builder(chain.clone()).settings(settings).build();
    let mut presized = settings.clone();
    (presized.cache.decoded, presized.cache.presize) = (Some(1 << 30), Some(64));
    refused(built(&presized), "cache.presize", &["64"]);
    let mut placed = settings.clone();
    placed.decode.placement = feedwater::op::Placement::Gpu;
    let Err(Error::Unavailable { what: "a gpu", asked: Some(asked), .. }) = built(&placed) else {
        panic!("expected an error")
    };
    assert_eq!(asked.key, "decode.placement");
}

/// The buffers of a very large image are freed after the image. The result of the next image must
/// not depend on whether the large image was processed before, even if the next image is damaged.
#[test]
fn an_image_whose_buffers_are_freed_does_not_affect_the_next() {
    let mut settings = Settings::default();
    settings.decode.strict = false;
    settings.limits.large_image_memory = 1 << 30;
    let damaged = files("tolerated");
    let large = png(1, 4000, 3200);
    let chain =
        || Chain::new().then(Flip { vertical: 1.0, horizontal: 0.0 }).then(Resize::to(24, 20));
    let expected = loaded(&damaged, chain(), &settings);
    let preprocessor = Preprocessor::builder(chain()).settings(&settings).build().unwrap();
    preprocessor.run(&large).unwrap();
    for (bytes, expected) in damaged.iter().zip(&expected) {
        assert!(expected.is_ok());
        assert!(preprocessor.run(bytes).map(|it| it.bytes().to_vec()) == *expected);
    }
}

#[test]
fn a_decoder_that_freed_its_memory_is_as_strict_as_before() {
    let file = fs::read(golden().join("tolerated/jpeg-data-baseline.jpg")).unwrap();
    for strict in [true, false] {
        let mut decoder = Decoders::new().strict(strict);
        decoder.release();
        let header = Header::parse_as(&file, false).unwrap();
        let decoded = decoder.decode(&file, &header, header.size.window(), 1, &mut |_| ());
        assert_eq!(decoded.is_err(), strict);
    }
}
