//! Images of 16 bits and of floats: decoding, and the operators that change their pixels.

use std::sync::Arc;

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::common::{self, picture};
use feedwater::error::{DataError, Reason};
use feedwater::internals::geometry::Size;
use feedwater::internals::image::{HostImage, Image};
use feedwater::internals::op::Actions;
use feedwater::internals::random::SampleKey;
use feedwater::op::{
    CenterCrop, Chain, Crop, Filter, Flip, Interpolation, Invert, Normalize, Operator, Pad,
    PadMode, RandomApply, Resize, Rotate,
};
use feedwater::{PixelFormat, Preprocessor};

/// Numbers with one or three channels, row by row.
struct Numbers {
    size: Size,
    channels: usize,
    values: Vec<f32>,
}

impl Numbers {
    /// 256 times the red of [`picture`] plus its green, as in tests/golden/operators/floats.py.
    fn of_picture(size: Size, seed: u64) -> Self {
        let image = picture(size, seed);
        let values = image.data().as_chunks::<3>().0.iter();
        let values = values.map(|&[r, g, _]| f32::from(r) * 256.0 + f32::from(g)).collect();
        Self { size, channels: 1, values }
    }

    /// Numbers in three channels.
    fn of_colours(size: Size, seed: u64) -> Self {
        let [a, b, c] = [0, 1, 2].map(|channel| Self::of_picture(size, seed + channel).values);
        let values = a.iter().zip(b).zip(c).flat_map(|((a, b), c)| [*a, b, c]).collect();
        Self { size, channels: 3, values }
    }

    fn words(&self) -> Vec<u8> {
        self.values.iter().flat_map(|it| (*it as u16).to_be_bytes()).collect()
    }

    /// PNG of 16 bits. With `alpha`, it has an alpha channel.
    fn png(&self, alpha: bool) -> Vec<u8> {
        let samples = if alpha { self.with_alpha() } else { self.words() };
        let channels = self.channels + usize::from(alpha);
        common::png_of_channels(&samples, (self.size.width, self.size.height), channels, 16)
    }

    fn with_alpha(&self) -> Vec<u8> {
        let words = self.words();
        words.chunks(2 * self.channels).flat_map(|pixel| [pixel, &[1, 2]].concat()).collect()
    }

    fn pnm(&self, white: u16) -> Vec<u8> {
        let (Size { width, height }, kind) = (self.size, if self.channels == 1 { 5 } else { 6 });
        [format!("P{kind} {width} {height} {white}\n").into_bytes(), self.words()].concat()
    }

    fn pfm(&self, little_endian: bool) -> Vec<u8> {
        let Size { width, height } = self.size;
        let kind = if self.channels == 1 { 'f' } else { 'F' };
        let scale = if little_endian { "-1.0" } else { "2.5" };
        let bytes = |it: &f32| if little_endian { it.to_le_bytes() } else { it.to_be_bytes() };
        let rows = self.values.chunks(self.channels * width as usize).rev();
        let pixels = rows.flat_map(|row| row.iter().flat_map(bytes));
        let head = format!("P{kind}\n{width}  {height}\n{scale}\n").into_bytes();
        head.into_iter().chain(pixels).collect()
    }
}

/// Tensor of the image, interleaved, after these operators.
fn run(file: &[u8], pixels: PixelFormat, chain: Chain) -> Result<Vec<f32>, DataError> {
    let preprocessor = Preprocessor::builder(chain).configure(|it| {
        it.decode.pixels = pixels;
        it.output.layout = feedwater::Layout::Nhwc;
    });
    preprocessor.build().unwrap().run(file).map(|tensor| tensor.into_f32().unwrap())
}

fn whole(size: Size) -> Chain {
    Chain::new().then(CenterCrop::to(size.width, size.height))
}

fn golden(key: &str) -> Vec<Value> {
    let text = include_str!("../golden/operators/floats.json");
    let all: Value = serde_json::from_str(text).unwrap();
    let cases = all[key].as_array().unwrap().clone();
    assert!(!cases.is_empty());
    cases
}

fn sha256(values: &[f32]) -> String {
    let digest = Sha256::digest(bytemuck::cast_slice::<_, u8>(values));
    digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

fn size(value: &Value) -> Size {
    let [width, height] = [0, 1].map(|at| value[at].as_u64().unwrap() as u32);
    Size::new(width, height)
}

fn source(case: &Value) -> Numbers {
    Numbers::of_picture(size(&case["source"]), case["seed"].as_u64().unwrap())
}

#[test]
fn floats_are_resized_as_pillow_resizes_mode_f() {
    for case in golden("resizes") {
        let filter: Filter = serde_json::from_value(case["filter"].clone()).unwrap();
        let Size { width, height } = size(&case["to"]);
        let chain = || Chain::new().then(Resize { filter, ..Resize::to(width, height) });
        let image = source(&case);
        for (file, pixels) in [
            (image.png(false), PixelFormat::U16),
            (image.pnm(u16::MAX), PixelFormat::F32),
            (image.pfm(true), PixelFormat::F32),
        ] {
            assert_eq!(sha256(&run(&file, pixels, chain()).unwrap()), case["sha256"], "{case}");
        }
    }
}

#[test]
fn floats_are_rotated_as_pillow_rotates_mode_f() {
    for case in golden("rotations") {
        let interpolation: Interpolation = serde_json::from_value(case["filter"].clone()).unwrap();
        let angle: f64 = case["angle"].as_str().unwrap().parse().unwrap();
        let image = source(&case);
        let rotate = Rotate { interpolation, fill: [7; 3], ..Rotate::by(angle) };
        let made = run(&image.png(false), PixelFormat::U16, whole(image.size).then(rotate));
        assert_eq!(sha256(&made.unwrap()), case["sha256"], "{case}");
    }
}

#[test]
fn sixteen_bits_are_normalized_as_torch_normalizes() {
    let image = Numbers::of_picture(Size::new(31, 22), 3);
    for case in golden("normalized") {
        let [mean, std] = ["mean", "std"].map(|key| [case[key].as_f64().unwrap() as f32; 3]);
        let chain = whole(image.size).then(Normalize { mean, std });
        let made = run(&image.png(false), PixelFormat::U16, chain).unwrap();
        assert_eq!(sha256(&made), case["sha256"], "{case}");
    }
    let stored = Normalize { mean: [30000.0; 3], std: [9.0; 3] };
    let made = run(&image.png(false), PixelFormat::F32, whole(image.size).then(stored)).unwrap();
    let expected = image.values.iter().map(|it| (it - 30000.0) / 9.0);
    assert!(made.iter().copied().eq(expected));
}

#[test]
fn numbers_of_every_file_are_exact() {
    for size in [Size::new(1, 1), Size::new(301, 7), Size::new(5, 40)] {
        for image in [Numbers::of_picture(size, 5), Numbers::of_colours(size, 5)] {
            let formats = match image.channels {
                1 => [PixelFormat::U16, PixelFormat::F32],
                _ => [PixelFormat::U16x3, PixelFormat::F32x3],
            };
            for format in formats {
                let mut files = vec![image.png(false), image.png(true), image.pnm(u16::MAX)];
                if format.is_as_stored() {
                    files.extend([image.pfm(true), image.pfm(false)]);
                }
                for file in files {
                    assert_eq!(
                        run(&file, format, whole(size)).unwrap(),
                        image.values,
                        "{format:?}"
                    );
                }
            }
        }
        // Gray has three equal channels.
        let gray = Numbers::of_picture(size, 5);
        let three: Vec<f32> = gray.values.iter().flat_map(|it| [*it; 3]).collect();
        assert_eq!(run(&gray.png(false), PixelFormat::U16x3, whole(size)).unwrap(), three);
    }
    let bytes: Vec<u8> = (0..=255).collect();
    let file = common::png_of_samples(&bytes, (16, 16), 8, None);
    let made = run(&file, PixelFormat::F32, whole(Size::new(16, 16))).unwrap();
    assert!(made.iter().copied().eq(bytes.iter().map(|it| f32::from(*it))));
    let odd = [f32::NAN, f32::INFINITY, -0.0, 1e-40, -3.4e38, f32::MAX];
    let odd = Numbers { size: Size::new(3, 2), channels: 1, values: odd.into() };
    let made = run(&odd.pfm(false), PixelFormat::F32, whole(odd.size)).unwrap();
    assert!(made.iter().zip(&odd.values).all(|(a, b)| a.to_bits() == b.to_bits()));
    for bits in [1, 2, 4, 8] {
        let level = |x: u32, y: u32| ((x * 5 + y * 3) % (1 << bits)) as u8;
        let interlaced = common::interlaced_png((9, 7), bits, level);
        let made = run(&interlaced, PixelFormat::F32, whole(Size::new(9, 7))).unwrap();
        let expected = (0..7).flat_map(|y| (0..9).map(move |x| f32::from(level(x, y))));
        assert!(made.into_iter().eq(expected), "{bits}");
    }
}

/// TIFF files of Pillow. Those of 16 bits are compared with the bytes that the decoder makes of
/// them: gray is clipped to 255, and of RGB the high byte is used.
#[test]
fn numbers_of_tiff_files_are_exact() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/decode");
    let golden = |name: &str| std::fs::read(folder.join(name)).unwrap();
    let decoded = |name: &str, format, clip: &dyn Fn(f32) -> f32| {
        let file = golden(&format!("{name}.tif"));
        let size = feedwater::internals::header::Header::parse(&file).unwrap().size;
        let made = run(&file, format, whole(size)).unwrap();
        let expected = golden(&format!("{name}.rgb"));
        let expected: Vec<f32> = match format.channels() {
            1 => expected.iter().step_by(3).map(|it| f32::from(*it)).collect(),
            _ => expected.iter().map(|it| f32::from(*it)).collect(),
        };
        assert!(made.iter().any(|it| *it > 255.0) || name.ends_with("rgb"), "{name}");
        assert!(made.iter().map(|it| clip(*it)).eq(expected), "{name}");
    };
    decoded("tiff-gray-16", PixelFormat::U16, &|it| it.min(255.0));
    decoded("tiff-gray-16", PixelFormat::F32, &|it| it.min(255.0));
    decoded("tiff-tiles-16", PixelFormat::U16x3, &|it| (it / 256.0).floor());
    decoded("tiff-rgb", PixelFormat::F32x3, &|it| it);
    for (name, format, words) in [
        ("tiff-rgb", PixelFormat::U16x3, "8 bits per sample"),
        ("tiff-tiles-16", PixelFormat::U16, "3 channels"),
        ("tiff-cmyk", PixelFormat::F32x3, "only from RGB TIFFs"),
        ("tiff-palette", PixelFormat::F32x3, "only from RGB TIFFs"),
    ] {
        let error = run(&golden(&format!("{name}.tif")), format, whole(Size::new(1, 1)));
        let error = error.unwrap_err();
        assert!(error.to_string().contains(words), "{words}: {error}");
    }
    // A file of floats, in both byte orders.
    for big in [false, true] {
        let values = [1.5, -2.0, 3e30, 0.25, 7.0, 9.5];
        let file = tiff_of_floats((3, 2), &values, big);
        assert_eq!(run(&file, PixelFormat::F32, whole(Size::new(3, 2))).unwrap(), values);
        for (format, words) in [
            (PixelFormat::U16, "the file is a TIFF with floats, but the pixels are u16; use f32"),
            (PixelFormat::U8x3, "TIFF with floats; set pixels to f32"),
        ] {
            let error = run(&file, format, whole(Size::new(3, 2))).unwrap_err();
            assert!(error.to_string().contains(words), "{error}");
        }
    }
}

/// Without the tag for their format, samples of 32 bits are integers, which are not supported.
#[test]
fn integers_of_a_tiff_are_not_read_as_floats() {
    let mut file = tiff_of_floats((2, 1), &[1.0, 2.0], false);
    let tag = file.windows(2).rposition(|it| it == 339u16.to_le_bytes()).unwrap();
    for value in [1, 2] {
        file[tag + 8] = value;
        let error = run(&file, PixelFormat::F32, whole(Size::new(2, 1))).unwrap_err();
        assert!(error.to_string().contains(&format!("sample format {value}")), "{error}");
    }
    // Another tag in its place.
    file[tag..tag + 2].copy_from_slice(&340u16.to_le_bytes());
    let error = run(&file, PixelFormat::F32, whole(Size::new(2, 1))).unwrap_err();
    assert!(error.to_string().contains("32 bits per pixel, sample format 1"), "{error}");
}

/// Which operators support decoded floats, before and after `normalize`.
#[test]
fn only_operators_that_move_or_interpolate_pixels_support_decoded_floats() {
    let mut supported = std::collections::BTreeSet::new();
    for operator in feedwater::internals::op::examples() {
        // An example may do nothing.
        if operator.kinds().list().is_empty() {
            continue;
        }
        match operator.for_format(PixelFormat::U16x3) {
            Ok(_) => _ = supported.insert(operator.name()),
            Err(error) => assert!(error.problem.contains("u16x3"), "{}", error.problem),
        }
    }
    let expected = [
        "affine",
        "center_crop",
        "crop",
        "elastic",
        "five_crop",
        "flip",
        "gaussian_blur",
        "letterbox",
        "normalize",
        "pad",
        "perspective",
        "random_affine",
        "random_crop",
        "random_iou_crop",
        "random_perspective",
        "random_resize",
        "random_resized_crop",
        "random_rotation",
        "random_shortest_size",
        "random_zoom_out",
        "resize",
        "resize_keep_ratio",
        "rotate",
        "scale_jitter",
        "ten_crop",
        "thumbnail",
    ];
    assert!(supported.iter().eq(&expected), "{supported:?}");
    let inner = RandomApply::new(0.5).then(Flip::default()).then(Invert {});
    let error = inner.for_format(PixelFormat::U16).unwrap_err();
    assert_eq!(error.field, "operators[1].op");
    assert!(error.problem.starts_with("is invert, which does not support"), "{error:?}");
}

/// `pad` repeats the border of an image of floats.
#[test]
fn borders_of_floats_are_repeated() {
    let image = Numbers { size: Size::new(3, 1), channels: 1, values: vec![1.0, 300.0, 70.0] };
    let pad = Pad { mode: PadMode::Reflect, ..Pad::constant([2, 0, 1, 0], [0.0; 3]) };
    let made = run(&image.pnm(u16::MAX), PixelFormat::U16, whole(image.size).then(pad)).unwrap();
    assert_eq!(made, [70.0, 300.0, 1.0, 300.0, 70.0, 300.0]);
}

/// TIFF of gray floats in one strip without compression.
fn tiff_of_floats((width, height): (u32, u32), values: &[f32], big: bool) -> Vec<u8> {
    let short = |it: u16| if big { it.to_be_bytes() } else { it.to_le_bytes() };
    let long = |it: u32| if big { it.to_be_bytes() } else { it.to_le_bytes() };
    let number = |it: &f32| if big { it.to_be_bytes() } else { it.to_le_bytes() };
    let bytes = 4 * values.len() as u32;
    let tags = [
        (256, width),
        (257, height),
        (258, 32),
        (259, 1),
        (262, 1),
        (273, 8),
        (277, 1),
        (278, height),
        (279, bytes),
        (339, 3),
    ];
    let mut file = if big { b"MM\0*".to_vec() } else { b"II*\0".to_vec() };
    file.extend(long(8 + bytes));
    file.extend(values.iter().flat_map(number));
    file.extend(short(tags.len() as u16));
    for (tag, value) in tags {
        file.extend([short(tag), short(4)].concat());
        file.extend([long(1), long(value)].concat());
    }
    file.extend(long(0));
    file
}

/// Netpbm's maximum value is white, whatever its number.
#[test]
fn sixteen_bits_of_a_pnm_are_scaled_to_its_maximum() {
    let values = vec![0.0, 1.0, 500.0, 1023.0, 4000.0];
    let image = Numbers { size: Size::new(5, 1), channels: 1, values };
    let made = run(&image.pnm(1023), PixelFormat::U16, whole(image.size)).unwrap();
    assert_eq!(made, [0.0, 64.0, 32031.0, 65535.0, 65535.0]);
    assert_eq!(run(&image.pnm(1023), PixelFormat::F32, whole(image.size)).unwrap(), image.values);
}

/// A crop decodes a window only. The result is that of the reference implementation on the whole
/// image.
#[test]
fn windows_of_floats_are_those_of_the_whole_image() {
    let rotate =
        |angle, interpolation, expand| Rotate { interpolation, expand, ..Rotate::by(angle) };
    let crop = |x, y| Crop { x, y, width: 19, height: 14 };
    for seed in 0..12 {
        let image = Numbers::of_picture(Size::new(40 + 3 * seed, 70 - 2 * seed), seed.into());
        let filter = [Filter::Bilinear, Filter::Lanczos, Filter::Nearest][seed as usize % 3];
        let warp = [Interpolation::Bilinear, Interpolation::Bicubic, Interpolation::Nearest];
        let resize = |width, height| Resize { filter, ..Resize::to(width, height) };
        let angle = f64::from(seed) * 37.0 - 200.0;
        let operators: Vec<Arc<dyn Operator>> = vec![
            Arc::new(crop(5 + seed, 9)),
            Arc::new(resize(33, 21)),
            Arc::new(Flip { horizontal: f64::from(seed % 2), vertical: 0.0 }),
            Arc::new(rotate(angle, warp[seed as usize % 3], seed % 4 == 0)),
            Arc::new(resize(20, 23)),
            Arc::new(crop(1, 4)),
        ];
        let operators = &operators[seed as usize % 3..];
        let mut actions = Actions::default();
        actions.format = PixelFormat::U16;
        let all = operators.iter().map(|it| &**it);
        let output = actions.draw(all, SampleKey::default(), image.size, &mut Default::default());
        actions.demand(output.window());
        let pixels = image.values.iter().flat_map(|it| [*it; 3]).collect();
        let whole = HostImage::F32(Image::from_data(image.size.window(), pixels));
        let HostImage::F32(expected) = actions.reference(&whole) else { panic!("bytes") };
        let any =
            |chain: Chain, it: &Arc<dyn Operator>| chain.then_any(Default::default(), it.clone());
        let chain = operators.iter().fold(Chain::new(), any);
        let made = run(&image.png(false), PixelFormat::U16, chain).unwrap();
        assert!(made.into_iter().eq(expected.data().iter().step_by(3).copied()), "{seed}");
    }
}

/// NaN spreads only to pixels that are computed from it.
#[test]
fn nan_spreads_only_where_pixels_are_resampled() {
    let mut image = Numbers::of_picture(Size::new(12, 10), 1);
    image.values[12 * 4 + 6] = f32::NAN;
    let nans = |chain| {
        let made = run(&image.pfm(true), PixelFormat::F32, chain).unwrap();
        made.iter().filter(|it| it.is_nan()).count()
    };
    assert_eq!(nans(whole(image.size)), 1);
    assert_eq!(nans(Chain::new().then(Resize::to(12, 10))), 1);
    assert_eq!(
        nans(Chain::new().then(Resize { filter: Filter::Nearest, ..Resize::to(24, 20) })),
        4
    );
    assert_eq!(nans(Chain::new().then(Resize::to(6, 10))), 2);
}

#[test]
fn files_that_do_not_have_the_pixels_are_errors() {
    let size = Size::new(4, 3);
    let (gray, colours) = (Numbers::of_picture(size, 1), Numbers::of_colours(size, 1));
    let bytes = common::png_of_samples(&[9; 12], (4, 3), 8, None);
    let palette = common::png_of_samples(&[0; 12], (4, 3), 8, Some(&[1, 2, 3]));
    let cut = |file: Vec<u8>| file[..file.len() - 9].to_vec();
    let cases: [(Vec<u8>, PixelFormat, Reason, &str); 14] = [
        (
            colours.png(false),
            PixelFormat::U16,
            Reason::Unsupported,
            "has 3 channels, but u16 pixels have one; use u16x3",
        ),
        (colours.pfm(true), PixelFormat::F32, Reason::Unsupported, "use f32x3"),
        (bytes.clone(), PixelFormat::U16, Reason::Unsupported, "has 8 bits per sample"),
        (b"P5 4 3 255\n123456789012".to_vec(), PixelFormat::U16, Reason::Unsupported, "8 bits"),
        (palette, PixelFormat::F32, Reason::Unsupported, "with a palette"),
        (gray.pfm(true), PixelFormat::U16, Reason::Unsupported, "use f32"),
        (gray.pfm(true), PixelFormat::U8x3, Reason::Unsupported, "set pixels to f32"),
        (
            common::jpeg(1, 9, 9),
            PixelFormat::F32x3,
            Reason::Unsupported,
            "a JPEG, but f32x3 pixels are read from PNG, TIFF, .npy, PFM and binary PNM only",
        ),
        (b"P2 1 1 65535\n7\n".to_vec(), PixelFormat::U16, Reason::Unsupported, "save it as binary"),
        (cut(gray.png(false)), PixelFormat::U16, Reason::Truncated, "PNG"),
        (cut(gray.pnm(u16::MAX)), PixelFormat::F32, Reason::Truncated, "needs a file of at least"),
        (cut(gray.pfm(true)), PixelFormat::F32, Reason::Truncated, "of at least 61 bytes"),
        (b"Pf\n4 x\n-1\n".to_vec(), PixelFormat::F32, Reason::Corrupt, "height \"x\""),
        (b"Pf\n4 3\n0\n".to_vec(), PixelFormat::F32, Reason::Corrupt, "scale factor \"0\""),
    ];
    for (file, pixels, reason, words) in cases {
        let error = run(&file, pixels, Chain::new().then(Resize::to(2, 2))).unwrap_err();
        assert_eq!(error.reason, reason, "{words}: {error}");
        assert!(error.to_string().contains(words), "{words}: {error}");
    }
    // The checksum after the last row is wrong. A crop above it does not read it.
    let mut damaged = gray.png(false);
    let len = damaged.len();
    damaged[len - 14] ^= 1;
    let error = run(&damaged, PixelFormat::U16, whole(size)).unwrap_err();
    assert_eq!(error.reason, Reason::Corrupt, "{error}");
    let top = Chain::new().then(Crop { x: 0, y: 0, width: 4, height: 1 });
    assert_eq!(run(&damaged, PixelFormat::U16, top).unwrap(), gray.values[..4]);
}
