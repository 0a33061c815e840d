//! Images of 16 bits and of floats with an alpha channel. Pillow has none, so operators are
//! compared with the formula in [`premultiplied`], on images without alpha.

use crate::common;
use feedwater::error::DataError;
use feedwater::internals::geometry::Size;
use feedwater::internals::header::Header;
use feedwater::op::{CenterCrop, Chain};
use feedwater::{Pipeline, PixelFormat, Preprocessor};

const ONE: f32 = 65_535.0;

/// Red, green, blue and alpha of 16 bits. Many pixels are transparent, and many opaque.
fn pixels(size: Size, seed: u32) -> Vec<[f32; 4]> {
    let mut state = seed.wrapping_mul(2_654_435_761) | 1;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        (state >> 8) as u16
    };
    let pixel = |_| {
        let alpha = match next() % 4 {
            0 => 0,
            1 => u16::MAX,
            _ => next(),
        };
        [next(), next(), next(), alpha].map(f32::from)
    };
    (0..size.pixels()).map(pixel).collect()
}

fn png(size: Size, channels: usize, samples: impl IntoIterator<Item = f32>) -> Vec<u8> {
    let words: Vec<u8> = samples.into_iter().flat_map(|it| (it as u16).to_be_bytes()).collect();
    common::png_of_channels(&words, (size.width, size.height), channels, 16)
}

/// Array of floats as a `.npy` file.
fn npy(size: Size, channels: usize, values: impl IntoIterator<Item = f32>) -> Vec<u8> {
    let Size { width, height } = size;
    let text = format!(
        "{{'descr': '<f4', 'fortran_order': False, 'shape': ({height}, {width}, {channels}), }}"
    );
    let head = [b"\x93NUMPY\x01\0", &(text.len() as u16).to_le_bytes()[..], text.as_bytes()];
    let values = values.into_iter().flat_map(f32::to_le_bytes);
    head.concat().into_iter().chain(values).collect()
}

fn chain(operators: &[&str]) -> Chain {
    let operators: Vec<_> = operators.iter().map(|it| format!("{{ {it} }}")).collect();
    let text = format!("chain = [{}]\n[source]\ndirectory = \"d\"\n", operators.join(", "));
    Pipeline::from_toml(&text, "").unwrap().chain
}

/// This chain on images whose output has a known size.
fn sized(size: Size, operators: &[&str]) -> Chain {
    let whole = Chain::new().then(CenterCrop::to(size.width, size.height));
    let steps = chain(operators);
    steps.steps().iter().fold(whole, |all, it| all.then_any(it.placement, it.operator.clone()))
}

fn run(file: &[u8], format: PixelFormat, chain: Chain) -> Result<Vec<f32>, DataError> {
    let preprocessor = Preprocessor::builder(chain).configure(|it| {
        it.decode.pixels = format;
        it.output.layout = feedwater::Layout::Nhwc;
    });
    preprocessor.build().unwrap().run(file).map(|tensor| tensor.into_f32().unwrap())
}

fn decoded(file: &[u8], format: PixelFormat) -> Vec<[f32; 4]> {
    let size = Header::parse(file).unwrap().size;
    run(file, format, sized(size, &[])).unwrap().as_chunks().0.to_vec()
}

/// The result of an operator that computes weighted sums: `image` maps an image of three channels
/// of floats. Colours are multiplied by alpha before, and divided by it afterwards.
fn premultiplied(
    pixels: &[[f32; 4]],
    format: PixelFormat,
    image: impl Fn(Vec<f32>) -> Vec<f32>,
) -> Vec<[f32; 4]> {
    let one = format.scale();
    let products = pixels.iter().flat_map(|&[r, g, b, a]| [r, g, b].map(|it| it * (a / one)));
    let colours = image(products.collect());
    let alpha = image(pixels.iter().flat_map(|it| [it[3]; 3]).collect());
    let pixels = colours.as_chunks::<3>().0.iter().zip(alpha.as_chunks::<3>().0);
    let divided = |value: f32, alpha: f32| match format {
        PixelFormat::U16x4 if alpha <= 0.0 || alpha >= ONE => value,
        PixelFormat::U16x4 => (value / (alpha / ONE)).clamp(0.0, ONE),
        _ if alpha == 0.0 => value,
        _ => value / alpha,
    };
    let pixel = |(colour, alpha): (&[f32; 3], &[f32; 3])| {
        let [r, g, b] = colour.map(|it| divided(it, alpha[0]));
        [r, g, b, alpha[0]]
    };
    pixels.map(pixel).collect()
}

/// The result of an operator that treats all four channels alike.
fn separate(pixels: &[[f32; 4]], image: impl Fn(Vec<f32>) -> Vec<f32>) -> Vec<[f32; 4]> {
    let colours = image(pixels.iter().flat_map(|&[r, g, b, _]| [r, g, b]).collect());
    let alpha = image(pixels.iter().flat_map(|it| [it[3]; 3]).collect());
    let pixels = colours.as_chunks::<3>().0.iter().zip(alpha.as_chunks::<3>().0);
    pixels.map(|(&[r, g, b], alpha)| [r, g, b, alpha[0]]).collect()
}

#[test]
fn alpha_of_every_file_is_exact() {
    for size in [Size::new(1, 1), Size::new(301, 5), Size::new(7, 31)] {
        let pixels = pixels(size, 3);
        let colours = |channels| pixels.iter().flat_map(move |it| it[..channels].to_vec());
        for format in [PixelFormat::U16x4, PixelFormat::F32x4] {
            assert_eq!(decoded(&png(size, 4, colours(4)), format), pixels);
            let opaque: Vec<_> = pixels.iter().map(|&[r, g, b, _]| [r, g, b, ONE]).collect();
            assert_eq!(decoded(&png(size, 3, colours(3)), format), opaque);
            let gray: Vec<_> = pixels.iter().map(|&[r, g, ..]| [r, r, r, g]).collect();
            assert_eq!(decoded(&png(size, 2, colours(2)), format), gray);
            let head = format!("P6 {} {} 65535\n", size.width, size.height).into_bytes();
            let words = colours(3).flat_map(|it| (it as u16).to_be_bytes());
            let pnm: Vec<u8> = head.into_iter().chain(words).collect();
            assert_eq!(decoded(&pnm, format), opaque);
        }
        let floats = |channels| pixels.iter().flat_map(move |it| it[..channels].to_vec());
        assert_eq!(decoded(&npy(size, 4, floats(4)), PixelFormat::F32x4), pixels);
        let opaque: Vec<_> = pixels.iter().map(|&[r, g, b, _]| [r, g, b, 1.0]).collect();
        assert_eq!(decoded(&npy(size, 3, floats(3)), PixelFormat::F32x4), opaque);
    }
    // The bytes of Pillow's mode RGBA are the high bytes.
    for name in ["png-rgba-16.png", "tiff-rgba-16-alpha.tif", "tiff-rgba-16-big.tif"] {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/golden/alpha");
        let file = std::fs::read(format!("{folder}/{name}")).unwrap();
        let high = decoded(&file, PixelFormat::U16x4);
        let high = high.iter().map(|it| it.map(|it| (it / 256.0).floor()));
        assert_eq!(high.collect::<Vec<_>>(), decoded(&file, PixelFormat::U8x4), "{name}");
    }
    let file = common::png_of_channels(&[1, 2, 3, 4], (1, 1), 4, 8);
    assert_eq!(decoded(&file, PixelFormat::F32x4), [[1.0, 2.0, 3.0, 4.0]]);
    let error = run(&file, PixelFormat::U16x4, sized(Size::new(1, 1), &[])).unwrap_err();
    assert!(error.to_string().contains("8 bits per sample") && error.to_string().contains("f32x4"));
    let file = common::png_of_channels(&[1, 2, 3], (1, 1), 3, 8);
    assert_eq!(decoded(&file, PixelFormat::F32x4), [[1.0, 2.0, 3.0, 255.0]]);
}

/// The colour of a tRNS chunk is compared with all 16 bits.
#[test]
fn a_transparent_colour_of_16_bits_has_no_alpha() {
    let size = Size::new(3, 1);
    let chunk = |data: &[u8]| {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(b"tRNS");
        hasher.update(data);
        let crc = hasher.finalize().to_be_bytes();
        [&(data.len() as u32).to_be_bytes()[..], b"tRNS", data, &crc].concat()
    };
    let with = |file: Vec<u8>, data: &[u8]| {
        let at = file.windows(4).position(|it| it == b"IDAT").unwrap() - 4;
        [&file[..at], &chunk(data), &file[at..]].concat()
    };
    let alpha = |file: &[u8]| {
        let pixels = decoded(file, PixelFormat::U16x4);
        pixels.iter().map(|it| it[3]).collect::<Vec<_>>()
    };
    let file = png(size, 3, [256.0, 2.0, 3.0, 256.0, 2.0, 4.0, 512.0, 2.0, 3.0]);
    assert_eq!(alpha(&with(file, &[1, 0, 0, 2, 0, 3])), [0.0, ONE, ONE]);
    let file = png(size, 1, [256.0, 0.0, 512.0]);
    assert_eq!(alpha(&with(file, &[1, 0])), [0.0, ONE, ONE]);
}

#[test]
fn operators_follow_the_formulas_of_alpha() {
    let (size, output) = (Size::new(37, 29), Size::new(23, 17));
    let resize =
        |filter: &str| format!("op = \"resize\", width = 23, height = 17, filter = \"{filter}\"");
    let rotate = |interpolation: &str| {
        format!("op = \"rotate\", angle = 23, interpolation = \"{interpolation}\"")
    };
    let mut sums: Vec<String> = ["bilinear", "bicubic", "lanczos", "box"].map(resize).into();
    sums.extend(["bilinear", "bicubic"].map(rotate));
    let mut moves: Vec<String> = vec![resize("nearest"), rotate("nearest")];
    moves.push("op = \"flip\", horizontal = 1.0".into());
    moves.push("op = \"crop\", x = 3, y = 4, width = 9, height = 8".into());
    moves.push("op = \"gaussian_blur\", sigma = [1.5, 1.5], kernel_size = 5".into());
    for seed in 0..3 {
        let pixels = pixels(size, seed);
        let values = || pixels.iter().flatten().copied();
        for format in [PixelFormat::U16x4, PixelFormat::F32x4] {
            let files = match format {
                PixelFormat::U16x4 => vec![png(size, 4, values())],
                _ => vec![png(size, 4, values()), npy(size, 4, values())],
            };
            for (operators, is_sum) in [(&sums, true), (&moves, false)] {
                for operator in operators {
                    let chain = || sized(size, &[operator]);
                    let image = |values: Vec<f32>| {
                        run(&npy(size, 3, values), PixelFormat::F32x3, chain()).unwrap()
                    };
                    let expected = match is_sum {
                        true => premultiplied(&pixels, format, image),
                        false => separate(&pixels, image),
                    };
                    for file in &files {
                        let made = run(file, format, chain()).unwrap();
                        let made = made.as_chunks::<4>().0;
                        assert_eq!(made, expected, "{format:?} {operator}");
                    }
                }
            }
        }
    }
    let (mean, std) = ([0.25, 0.5, 0.75, 0.0], [0.5, 2.0, 4.0, 1.0]);
    let normalize = format!("op = \"normalize\", mean = {mean:?}, std = {std:?}");
    let pixels = pixels(output, 9);
    let file = png(output, 4, pixels.iter().flatten().copied());
    for (format, one) in [(PixelFormat::U16x4, ONE), (PixelFormat::F32x4, 1.0)] {
        let made = run(&file, format, sized(output, &[&normalize])).unwrap();
        let expected = pixels
            .iter()
            .flat_map(|pixel| (0..4).map(move |at| (pixel[at] / one - mean[at]) / std[at]));
        assert!(made.iter().copied().eq(expected), "{format:?}");
    }
}

/// EXIF turns colours and alpha alike, and views of one image read the same alpha.
#[test]
fn views_of_an_image_with_alpha_have_its_alpha() {
    use feedwater::op::{Flip, View};
    use feedwater::source::Memory;

    let size = Size::new(9, 7);
    let pixels = pixels(size, 4);
    let file = png(size, 4, pixels.iter().flatten().copied());
    let flip = sized(size, &[]).then(Flip { horizontal: 1.0, ..Flip::default() });
    let chain = sized(size, &[]).view(View::new("turned", flip));
    let source = Memory::new(vec![(file, 0)]).unwrap();
    let builder = feedwater::Loader::builder(source, chain).batch_size(1).configure(|it| {
        it.decode.pixels = PixelFormat::U16x4;
        it.output.layout = feedwater::Layout::Nhwc;
    });
    let mut loader = builder.device(feedwater::DeviceChoice::Cpu).build().unwrap();
    let batch = loader.epoch().next().unwrap().unwrap();
    let bytes = batch.to_host().unwrap();
    let image: &[f32] = bytemuck::cast_slice(&bytes);
    assert_eq!(image.as_chunks::<4>().0, pixels);
    let column = batch.column("turned").unwrap();
    let turned = column.as_slice::<f32>().unwrap().as_chunks::<4>().0;
    let expected: Vec<_> = pixels.chunks(9).flat_map(|row| row.iter().rev().copied()).collect();
    assert_eq!(turned, expected);
}

/// Operators that change colours have no meaning for alpha, before and after `normalize`.
#[test]
fn operators_on_colours_are_errors_of_the_build() {
    let problem = |format, operators: &[&str]| {
        let size = Size::new(8, 8);
        let file = png(size, 4, vec![0.0; 4 * 64]);
        let source = feedwater::source::Memory::new(vec![(file, 0)]).unwrap();
        let builder = feedwater::Loader::builder(source, sized(size, operators)).batch_size(1);
        let builder = builder.configure(|it| it.decode.pixels = format);
        let built = builder.device(feedwater::DeviceChoice::Cpu).build();
        built.map(drop).map_err(|error| error.to_string())
    };
    for format in [PixelFormat::U16x4, PixelFormat::F32x4] {
        let normalize = "op = \"normalize\", mean = 0.5, std = 0.5";
        for operators in [
            &["op = \"invert\""][..],
            &["op = \"cutout\", length = 3"],
            &[normalize, "op = \"gaussian_noise\""],
        ] {
            let error = problem(format, operators).unwrap_err();
            let name = operators.last().unwrap().split('"').nth(1).unwrap();
            assert!(error.contains(name) && error.contains(format.name()), "{error}");
        }
        let erase = "op = \"random_erasing\", probability = 1.0, value = [1, 2, 3, 4]";
        problem(format, &[normalize, erase]).unwrap();
        let three = "op = \"normalize\", mean = [0.1, 0.2, 0.3], std = 0.5";
        assert!(problem(format, &[three]).unwrap_err().contains("mean"));
    }
}

/// Arrays in fields have the shape (height, width, 4), and any type whose numbers the format holds.
#[test]
fn arrays_of_fields_have_alpha() {
    use feedwater::op::View;
    use feedwater::source::Directory;
    use feedwater::source::settings::DirectorySettings;

    let size = Size::new(7, 5);
    let pixels = pixels(size, 6);
    let values = || pixels.iter().flatten().copied();
    let array = |descr: &str, bytes: Vec<u8>| {
        let text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': (5, 7, 4), }}");
        let len = (text.len() as u16).to_le_bytes();
        [b"\x93NUMPY\x01\0", &len[..], text.as_bytes(), &bytes].concat()
    };
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("0")).unwrap();
    std::fs::write(folder.path().join("0/1.png"), png(size, 4, values())).unwrap();
    let words = values().flat_map(|it| (it as u16).to_le_bytes()).collect();
    let doubles = values().flat_map(|it| (f64::from(it) + 0.5).to_le_bytes()).collect();
    for (file, formats, added) in [
        (array("<u2", words), &[PixelFormat::U16x4, PixelFormat::F32x4][..], 0.0),
        (npy(size, 4, values()), &[PixelFormat::F32x4], 0.0),
        (array("<f8", doubles), &[PixelFormat::F32x4], 0.5),
    ] {
        std::fs::write(folder.path().join("0/1.npy"), file).unwrap();
        for format in formats {
            let settings = DirectorySettings {
                side_files: [("array".into(), "{folder}/{stem}.npy".into())].into(),
                ..DirectorySettings::default()
            };
            let source = Directory::with(folder.path(), &settings).unwrap();
            let view = View::new("view", sized(size, &[])).field("array").pixels(*format);
            let chain = sized(size, &[]).view(view);
            let builder = feedwater::Loader::builder(source, chain).batch_size(1);
            let builder = builder.configure(|it| it.output.layout = feedwater::Layout::Nhwc);
            let mut loader = builder.device(feedwater::DeviceChoice::Cpu).build().unwrap();
            let batch = loader.epoch().next().unwrap().unwrap();
            let made = batch.column("view").unwrap().as_slice::<f32>().unwrap();
            let expected: Vec<f32> = values().map(|it| it + added).collect();
            assert_eq!(made, expected, "{format:?}");
        }
    }
}
