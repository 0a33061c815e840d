//! Images of one and of four channels of 8 bits, compared with Pillow's modes L and RGBA.

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::common::{self, picture};
use feedwater::error::DataError;
use feedwater::internals::geometry::Size;
use feedwater::op::{CenterCrop, Chain};
use feedwater::source::Memory;
use feedwater::{DType, DeviceChoice, Layout, Loader, Pipeline, PixelFormat, Preprocessor};

/// RGBA pixels of the image with this seed, as in tests/golden/operators/alpha.py.
fn source(size: Size, seed: u64) -> Vec<u8> {
    let (colours, alpha) = (picture(size, seed), picture(size, seed + 100));
    let pixels = colours.data().as_chunks::<3>().0.iter().zip(alpha.data().as_chunks::<3>().0);
    let alpha_of = |value: u8| (2 * i32::from(value) - 128).clamp(0, 255) as u8;
    pixels.flat_map(|([r, g, b], alpha)| [*r, *g, *b, alpha_of(alpha[0])]).collect()
}

fn png(size: Size, seed: u64) -> Vec<u8> {
    common::png_of_channels(&source(size, seed), (size.width, size.height), 4, 8)
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

fn size(value: &Value) -> Size {
    let [width, height] = [0, 1].map(|at| value[at].as_u64().unwrap() as u32);
    Size::new(width, height)
}

/// Chain of operators in TOML for images of this size.
fn chain<'a>(size: Size, operators: impl IntoIterator<Item = &'a str>) -> Chain {
    let operators = operators.into_iter().map(|it| format!("{{ {it} }}"));
    let operators = operators.collect::<Vec<_>>().join(", ");
    let text = format!("chain = [{operators}]\n[source]\ndirectory = \"d\"\n");
    let chain = Pipeline::from_toml(&text, "").unwrap().chain;
    // The crop of the whole image makes the size of the output known.
    let steps = chain.steps().iter();
    steps.fold(whole(size), |all, step| all.then_any(step.placement, step.operator.clone()))
}

fn whole(size: Size) -> Chain {
    Chain::new().then(CenterCrop::to(size.width, size.height))
}

/// File and chain of a golden case.
fn golden_case(case: &Value) -> (Vec<u8>, Chain) {
    let (size, seed) = (size(&case["source"]), case["seed"].as_u64().unwrap());
    let operators = case["chain"].as_array().unwrap().iter().map(|it| it.as_str().unwrap());
    (png(size, seed), chain(size, operators))
}

/// Bytes of the tensor of an image, interleaved, in the orientation in which it is stored.
fn run(
    file: &[u8],
    pixels: PixelFormat,
    background: Option<[u8; 3]>,
    (chain, dtype): (Chain, DType),
) -> Result<Vec<u8>, DataError> {
    let preprocessor = Preprocessor::builder(chain).output(dtype, Layout::Nhwc).configure(|it| {
        (it.decode.pixels, it.decode.background) = (pixels, background);
        it.decode.orientation = false;
    });
    preprocessor.build().unwrap().run(file).map(|tensor| tensor.bytes().to_vec())
}

fn golden(key: &str) -> Vec<Value> {
    let text = include_str!("../golden/operators/alpha.json");
    let all: Value = serde_json::from_str(text).unwrap();
    let cases = all[key].as_array().unwrap().clone();
    assert!(!cases.is_empty());
    cases
}

#[test]
fn files_are_decoded_and_composed_as_by_pillow() {
    let all: Value = serde_json::from_str(include_str!("../golden/alpha.json")).unwrap();
    let (mut transparent, mut wrong) = (0, Vec::new());
    for (name, case) in all.as_object().unwrap() {
        let file = std::fs::read(format!("{}/golden/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap();
        let header = feedwater::internals::header::Header::parse(&file).unwrap();
        transparent += usize::from(case["transparent"].as_bool().unwrap());
        let mut compare = |pixels, background, expected: &Value| {
            let chain = whole(header.size);
            let found = run(&file, pixels, background, (chain, DType::U8)).unwrap();
            if sha256(&found) != expected.as_str().unwrap() {
                wrong.push(format!("{name} {pixels:?} {background:?}"));
            }
        };
        compare(PixelFormat::U8, None, &case["L"]);
        compare(PixelFormat::U8x4, None, &case["RGBA"]);
        for (at, background) in [[255; 3], [10, 200, 77]].into_iter().enumerate() {
            compare(PixelFormat::U8x3, Some(background), &case["over"][at]);
            compare(PixelFormat::U8, Some(background), &case["L_over"][at]);
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(transparent >= 40, "{transparent}");
}

#[test]
fn operators_equal_pillow_for_the_modes_l_and_rgba() {
    let mut count = 0;
    for key in ["resizes", "warps", "chains", "fills"] {
        for case in golden(key) {
            let (file, chain) = golden_case(&case);
            for (pixels, mode) in [(PixelFormat::U8, "L"), (PixelFormat::U8x4, "RGBA")] {
                let Some(expected) = case[mode].as_str() else { continue };
                let found = run(&file, pixels, None, (chain.clone(), DType::U8)).unwrap();
                assert_eq!(sha256(&found), expected, "{pixels:?} {case}");
                count += 1;
            }
        }
    }
    assert!(count > 600, "{count}");
}

#[test]
fn normalize_takes_four_values() {
    for case in golden("normalized") {
        let (file, chain) = golden_case(&case);
        let found = run(&file, PixelFormat::U8x4, None, (chain, DType::F32)).unwrap();
        // The golden tensor has planes.
        let pixels: Vec<[f32; 4]> = bytemuck::pod_collect_to_vec(&found);
        let planes = (0..4).flat_map(|channel| pixels.iter().map(move |it| it[channel]));
        let planes: Vec<f32> = planes.collect();
        assert_eq!(sha256(bytemuck::cast_slice(&planes)), case["RGBA"], "{case}");
    }
}

/// Every element type and layout has the bytes of the tensor of bytes, and EXIF turns alpha too.
#[test]
fn element_types_layouts_and_orientation() {
    let size = Size::new(9, 6);
    let (file, pixels) = (png(size, 3), source(size, 3));
    for layout in Layout::ALL {
        for dtype in DType::ALL {
            let preprocessor = Preprocessor::builder(whole(size)).output(dtype, layout);
            let preprocessor = preprocessor.configure(|it| it.decode.pixels = PixelFormat::U8x4);
            let tensor = preprocessor.build().unwrap().run(&file).unwrap();
            let found: Vec<f32> = match dtype {
                DType::U8 => tensor.as_u8().unwrap().iter().map(|it| (*it).into()).collect(),
                DType::F16 => tensor.as_f16().unwrap().iter().map(|it| it.to_f32()).collect(),
                DType::BF16 => tensor.as_bf16().unwrap().iter().map(|it| it.to_f32()).collect(),
                _ => tensor.as_f32().unwrap().to_vec(),
            };
            let count = pixels.len() / 4;
            for (at, value) in pixels.iter().enumerate() {
                let place = match layout {
                    Layout::Nchw => at % 4 * count + at / 4,
                    Layout::Nhwc => at,
                };
                assert_eq!(found[place], f32::from(*value), "{dtype} {layout} {at}");
            }
        }
    }
    // The file is a WebP whose EXIF data turns it by 90 degrees.
    let file = include_bytes!("../golden/decode/webp-orientation-8.webp");
    let size = feedwater::internals::header::Header::parse(file).unwrap().size;
    let turned = |pixels| {
        let chain = whole(Size::new(size.height, size.width));
        let preprocessor = Preprocessor::builder(chain).output(DType::U8, Layout::Nhwc);
        let preprocessor = preprocessor.configure(|it| it.decode.pixels = pixels);
        preprocessor.build().unwrap().run(file).unwrap().into_u8().unwrap()
    };
    let (rgb, rgba) = (turned(PixelFormat::U8x3), turned(PixelFormat::U8x4));
    let opaque: Vec<u8> =
        rgb.as_chunks::<3>().0.iter().flat_map(|&[r, g, b]| [r, g, b, 255]).collect();
    assert_eq!(rgba, opaque);
}

/// Operators that have no meaning for a format are errors of the build, which name both.
#[test]
fn operators_without_a_meaning_are_errors_of_the_build() {
    let size = Size::new(8, 8);
    let problem = |pixels, operators: &[&str]| {
        let chain = chain(size, operators.iter().copied());
        let preprocessor = Preprocessor::builder(chain).configure(|it| it.decode.pixels = pixels);
        preprocessor.build().unwrap_err().to_string()
    };
    for (operator, name) in [
        ("op = \"grayscale\"", "grayscale"),
        ("op = \"invert\"", "invert"),
        ("op = \"color_twist\", brightness = 1.2", "color_twist"),
        ("op = \"solarize\", threshold = 9", "solarize"),
        ("op = \"sharpen\", amount = 0.5", "sharpen"),
        (
            "op = \"random_apply\", probability = 1.0, operators = [{ op = \"equalize\" }]",
            "equalize",
        ),
    ] {
        let error = problem(PixelFormat::U8x4, &[operator]);
        assert!(error.contains(name) && error.contains("u8x4"), "{error}");
    }
    let three = "op = \"pad\", padding = 1, fill = [1, 2, 3]";
    let error = problem(PixelFormat::U8x4, &[three]);
    assert!(error.contains("four channels") && error.contains("fill"), "{error}");
    let error = problem(PixelFormat::U8, &[three]);
    assert!(error.contains("only one channel"), "{error}");
    let four = "op = \"pad\", padding = 1, fill = [1, 2, 3, 4]";
    let error = problem(PixelFormat::U8x3, &[four]);
    assert!(error.contains("four values") && error.contains("u8x3"), "{error}");
    let error = problem(PixelFormat::U8x4, &["op = \"pad\", padding = 1, fill = [1, 2, 3, 999]"]);
    assert!(error.contains("999"), "{error}");
    let error = problem(PixelFormat::U8, &["op = \"hue\", shift = [0.25, 0.25]"]);
    assert!(error.contains("hue") && error.contains("one channel"), "{error}");
    let resize = "op = \"resize\", width = 4, height = 4";
    let error = problem(PixelFormat::U8x4, &["op = \"normalize\", mean = 0.5, std = 0.5", resize]);
    assert!(error.contains("before normalize"), "{error}");
    let mixed = "[source]\ndirectory = \"d\"\n[[chain]]\nop = \"normalize\"\nmean = [0, 0, 0, 0]\nstd = [1, 1, 1]\n";
    let error = Pipeline::from_toml(mixed, "").unwrap_err().to_string();
    assert!(error.contains("mean") && error.contains("std has 3"), "{error}");
}

/// A background without effect is an error that names the key.
#[test]
fn a_background_needs_a_format_without_alpha() {
    for pixels in [PixelFormat::U8x4, PixelFormat::U16, PixelFormat::F32x3] {
        let preprocessor = Preprocessor::builder(whole(Size::new(8, 8)))
            .configure(|it| (it.decode.pixels, it.decode.background) = (pixels, Some([0; 3])));
        let error = preprocessor.build().unwrap_err().to_string();
        assert!(error.contains("decode.background") && error.contains(pixels.name()), "{error}");
    }
}

/// Operators that overwrite pixels overwrite alpha too, and draw the same rectangle for it.
#[test]
fn erasing_fills_alpha() {
    let size = Size::new(12, 10);
    let (file, pixels) = (png(size, 5), source(size, 5));
    let erase = "op = \"random_erasing\", probability = 1.0, value = [1, 2, 3, 4]";
    let source = Memory::new(vec![(file, 0)]).unwrap();
    let builder = Loader::builder(source, chain(size, [erase])).batch_size(1).configure(|it| {
        it.decode.pixels = PixelFormat::U8x4;
        (it.output.dtype, it.output.layout) = (DType::F32, Layout::Nhwc);
    });
    let mut loader = builder.device(DeviceChoice::Cpu).build().unwrap();
    let batch = loader.epoch().next().unwrap().unwrap();
    let bytes = batch.to_host().unwrap();
    let found: &[f32] = bytemuck::cast_slice(&bytes);
    let mut erased = 0;
    for (found, pixel) in found.as_chunks::<4>().0.iter().zip(pixels.as_chunks::<4>().0) {
        if *found == [1.0, 2.0, 3.0, 4.0] {
            erased += 1;
        } else {
            assert_eq!(*found, pixel.map(f32::from));
        }
    }
    assert!((1..120).contains(&erased), "{erased}");
}

/// Loader of one epoch over these files, with one sample per batch, on the CPU.
fn loader(files: Vec<Vec<u8>>, pixels: PixelFormat, size: Size) -> Loader {
    let source = Memory::new(files.into_iter().map(|file| (file, 0)).collect()).unwrap();
    let builder = Loader::builder(source, whole(size)).batch_size(1).epochs(Some(1));
    let builder = builder.configure(|it| it.decode.pixels = pixels);
    builder.device(DeviceChoice::Cpu).build().unwrap()
}

/// Gray images of 16 bits that are clipped to 8 bits are counted, and cause one warning.
#[test]
fn clipped_gray_of_16_bits_is_counted_and_warned_of_once() {
    let png = |high: u8| common::png_of_channels(&[0, 7, high, 255], (2, 1), 1, 16);
    // A gray TIFF of 16 bits.
    let tiff = include_bytes!("../golden/decode/tiff-gray-16.tif").to_vec();
    let of_tiff = feedwater::internals::header::Header::parse(&tiff).unwrap().size;
    let two = Size::new(2, 1);
    let run = |files, pixels, size| {
        let mut loader = loader(files, pixels, size);
        let count = loader.epoch().map(Result::unwrap).count();
        let warnings = loader.warnings();
        let about = warnings.iter().filter(|it| it.contains("set pixels to u16")).count();
        (count, loader.stats().clipped, about)
    };
    assert_eq!(run(vec![png(0), png(1), png(2)], PixelFormat::U8x3, two), (3, 2, 1));
    assert_eq!(run(vec![png(0), png(1)], PixelFormat::U8x4, two), (2, 1, 1));
    assert_eq!(run(vec![tiff], PixelFormat::U8, of_tiff), (1, 1, 1));
    assert_eq!(run(vec![png(0)], PixelFormat::U8x3, two), (1, 0, 0));
    assert_eq!(run(vec![png(1), png(2)], PixelFormat::U16, two), (2, 0, 0));
}

/// Settings that have no effect for a pixel format are errors that name their keys.
#[test]
fn settings_without_effect_are_refused() {
    let refused = |pixels, change: fn(&mut feedwater::plan::DecodeSettings)| {
        let preprocessor = Preprocessor::builder(whole(Size::new(8, 8))).configure(|it| {
            it.decode.pixels = pixels;
            change(&mut it.decode);
        });
        preprocessor.build().err().map(|error| error.to_string())
    };
    for (key, change) in [
        ("decode.routes", (|it| it.routes.truncate(1)) as fn(&mut feedwater::plan::DecodeSettings)),
        ("decode.max_cpu_threads", |it| it.max_cpu_threads = Some(2)),
        ("decode.hardware_group", |it| it.hardware_group = Some(9)),
    ] {
        assert_eq!(refused(PixelFormat::U8x3, change), None);
        for pixels in [PixelFormat::U8, PixelFormat::U8x4, PixelFormat::U16] {
            let error = refused(pixels, change).unwrap();
            assert!(error.contains(key) && error.contains(pixels.name()), "{error}");
        }
    }
    for (key, change) in [
        ("decode.prescale", (|it| it.prescale = true) as fn(&mut feedwater::plan::DecodeSettings)),
        ("decode.jpeg", |it| it.jpeg = feedwater::internals::decode::JpegDecoder::Libjpeg),
    ] {
        for pixels in [PixelFormat::U8x3, PixelFormat::U8, PixelFormat::U8x4] {
            assert_eq!(refused(pixels, change), None);
        }
        let error = refused(PixelFormat::F32x3, change).unwrap();
        assert!(error.contains(key) && error.contains("f32x3"), "{error}");
    }
}

/// An uncompressed TIFF whose strips have too few bytes is refused. Lengths of 0 are unknown, and
/// longer ones are padding.
#[test]
fn strips_with_too_few_bytes_are_refused() {
    let file = include_bytes!("../golden/alpha/tiff-rgba-alpha.tif");
    let size = feedwater::internals::header::Header::parse(file).unwrap().size;
    let entry = file.windows(4).position(|it| it == [0x17, 1, 4, 0]).unwrap();
    let decode = |change: i64| {
        let mut file = file.to_vec();
        let bytes: &mut [u8; 4] = file[entry + 8..].first_chunk_mut().unwrap();
        *bytes = ((i64::from(u32::from_le_bytes(*bytes)) + change) as u32).to_le_bytes();
        run(&file, PixelFormat::U8x4, None, (whole(size), DType::U8))
    };
    let expected = decode(0).unwrap();
    assert_eq!(decode(-4 * size.pixels() as i64).unwrap(), expected);
    assert_eq!(decode(100).unwrap(), expected);
    let error = decode(-1).unwrap_err();
    assert_eq!(error.reason, feedwater::error::Reason::Truncated);
    assert!(error.to_string().contains("strip or tile 0"), "{error}");
}

/// `probe` checks images for the pixel format of the pipeline.
#[test]
fn probe_respects_the_pixel_format() {
    use feedwater_tools::probe;

    let files = [
        png(Size::new(4, 3), 1),
        common::jpeg(1, 8, 8),
        common::png_of_channels(&[0, 7, 1, 255], (2, 1), 1, 16),
    ];
    let source = Memory::new(files.into_iter().map(|file| (file, 0)).collect()).unwrap();
    for (pixels, usable) in [
        (PixelFormat::U8x3, 3),
        (PixelFormat::U8, 3),
        (PixelFormat::U8x4, 3),
        (PixelFormat::U16, 1),
        (PixelFormat::U16x3, 1),
        (PixelFormat::F32x3, 2),
    ] {
        for decode in [false, true] {
            let (limits, strict) = (Default::default(), true);
            let settings =
                probe::Settings { samples: 0, threads: 1, decode, limits, strict, pixels };
            let report = probe::run(&source, &settings, |_| {});
            assert_eq!(report.usable(), usable, "{pixels:?} {decode}: {:?}", report.errors);
        }
    }
}

/// A `.npy` file with this type and shape.
fn npy(descr: &str, shape: &str, elements: &[u8]) -> Vec<u8> {
    let head = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
    let len = (head.len() as u16).to_le_bytes();
    [b"\x93NUMPY\x01\x00", &len[..], head.as_bytes(), elements].concat()
}

/// An array of NumPy is an image with the same results as a PNG with its pixels.
#[test]
fn arrays_are_images() {
    let size = Size::new(11, 6);
    let rgba = source(size, 2);
    let planes: Vec<u8> = (0..4).flat_map(|at| rgba.iter().skip(at).step_by(4)).copied().collect();
    let (interleaved, planar) =
        (npy("|u1", "(6, 11, 4)", &rgba), npy("|u1", "(4, 6, 11)", &planes));
    let small = || chain(size, ["op = \"resize\", width = 5, height = 4"]);
    for pixels in [PixelFormat::U8, PixelFormat::U8x3, PixelFormat::U8x4] {
        for background in [None, Some([1, 99, 200])] {
            if background.is_some() && pixels == PixelFormat::U8x4 {
                continue;
            }
            let run = |file: &[u8]| run(file, pixels, background, (small(), DType::U8)).unwrap();
            let expected = run(&png(size, 2));
            assert_eq!(run(&interleaved), expected, "{pixels:?}");
            assert_eq!(run(&planar), expected, "{pixels:?}");
        }
    }
    let words: Vec<u8> = (0..66u16).flat_map(|at| (at * 911).to_be_bytes()).collect();
    let png = common::png_of_channels(&words, (11, 6), 1, 16);
    for shape in ["(6, 11)", "(6, 11, 1)", "(1, 6, 11)"] {
        for pixels in [PixelFormat::U16, PixelFormat::U16x3, PixelFormat::F32] {
            let run = |file: &[u8]| run(file, pixels, None, (small(), DType::F32)).unwrap();
            assert_eq!(run(&npy(">u2", shape, &words)), run(&png), "{pixels:?}");
        }
    }
    let error = |file: &[u8], pixels| {
        run(file, pixels, None, (small(), DType::F32)).unwrap_err().to_string()
    };
    let of_floats = npy("<f4", "(6, 11)", &[0; 4 * 66]);
    assert!(error(&of_floats, PixelFormat::U8).contains("f32 or f32x3"));
    assert!(error(&of_floats, PixelFormat::U16).contains("use f32"));
    assert!(error(&npy("<u2", "(6, 11)", &words), PixelFormat::U8x3).contains("u16"));
    assert!(error(&interleaved, PixelFormat::U16x3).contains("8 bits per sample"));
    assert!(error(&npy("<c8", "(6, 11)", &[0; 8 * 66]), PixelFormat::F32).contains("astype"));
    let flat = npy("|u1", "(66,)", &[0; 66]);
    assert!(error(&flat, PixelFormat::U8).contains("(66,)"), "{}", error(&flat, PixelFormat::U8));
    let damaged =
        run(&npy("|u1", "(6, 11)", &[0; 65]), PixelFormat::U8, None, (small(), DType::U8));
    assert_eq!(damaged.unwrap_err().reason, feedwater::error::Reason::Corrupt);
}

/// A PNG of palette indices, whose chunks before and after the pixels are given.
fn palette_png(
    before: &[(&[u8; 4], &[u8])],
    after: &[(&[u8; 4], &[u8])],
    indices: [u8; 3],
) -> Vec<u8> {
    let chunk = |kind: &[u8; 4], data: &[u8]| {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(kind);
        hasher.update(data);
        let crc = hasher.finalize().to_be_bytes();
        [&(data.len() as u32).to_be_bytes()[..], kind, data, &crc].concat()
    };
    let head = [0, 0, 0, 3, 0, 0, 0, 1, 8, 3, 0, 0, 0];
    let pixels = [&[0][..], &indices].concat();
    let pixels = miniz_oxide::deflate::compress_to_vec_zlib(&pixels, 6);
    let mut file = [b"\x89PNG\r\n\x1a\n".to_vec(), chunk(b"IHDR", &head)].concat();
    before.iter().for_each(|(kind, data)| file.extend(chunk(kind, data)));
    file.extend(chunk(b"IDAT", &pixels));
    after.iter().for_each(|(kind, data)| file.extend(chunk(kind, data)));
    [file, chunk(b"IEND", b"")].concat()
}

/// Pillow refuses more than 256 alphas, and applies a tRNS chunk after the pixels. It takes a line
/// feed behind the alphas of a single transparent colour for the end of a line.
#[test]
fn alphas_of_palettes_are_those_of_pillow_or_errors() {
    let palette = (0..30).collect::<Vec<u8>>();
    let colours = (b"PLTE", &palette[..]);
    let alpha = |before: &[_], after: &[_]| {
        let file = palette_png(before, after, [0, 1, 2]);
        let size = Size::new(3, 1);
        let colours = run(&file, PixelFormat::U8x3, None, (whole(size), DType::U8)).unwrap();
        assert_eq!(colours, (0..9).collect::<Vec<u8>>());
        let made = run(&file, PixelFormat::U8x4, None, (whole(size), DType::U8));
        made.map(|made| made.iter().skip(3).step_by(4).copied().collect::<Vec<_>>())
    };
    assert_eq!(alpha(&[colours], &[]).unwrap(), [255; 3]);
    assert_eq!(alpha(&[colours, (b"tRNS", &[3, 200])], &[]).unwrap(), [3, 200, 255]);
    assert_eq!(alpha(&[colours, (b"tRNS", &[7; 256])], &[]).unwrap(), [7; 3]);
    assert_eq!(alpha(&[colours, (b"tRNS", &[255, 0, 10])], &[]).unwrap(), [255, 0, 255]);
    assert_eq!(alpha(&[colours, (b"tRNS", &[255, 1, 10])], &[]).unwrap(), [255, 1, 10]);
    let error = alpha(&[colours, (b"tRNS", &[7; 257])], &[]).unwrap_err();
    assert!(error.to_string().contains("has 257 alphas"), "{error}");
    let error = alpha(&[colours], &[(b"tRNS", &[3])]).unwrap_err();
    assert!(error.to_string().contains("tRNS chunk of the PNG is after its pixels"), "{error}");
}
