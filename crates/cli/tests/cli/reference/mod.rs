//! Creates the images of `docs/reference/operators.md`. Each operator has a strip with the
//! unchanged image and up to three results.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use feedwater::internals::geometry::Size;
use feedwater::internals::header::Header;
use feedwater::internals::image::{HostImage, Image};
use feedwater::internals::op::Actions;
use feedwater::internals::random::SampleKey;
use feedwater::internals::tensor::{DType, Layout, TensorShape};
use feedwater::internals::transform::HostTransform;
use feedwater::op::{Operator, Resize};
use feedwater_tools::synth;
use jpeg_encoder::{ColorType, Encoder};
use serde_json::{Value, json};

/// Settings for each operator, as a TOML table of lists. For an operator that is not in the table,
/// the examples of `feedwater::internals::op::example_settings` are used.
const STRENGTHS: &str = include_str!("strengths.toml");
/// Size of the unchanged image.
const PHOTO: Size = Size::new(240, 180);
/// Number of samples with which an operator is applied if it draws random numbers.
const DRAWS: u64 = 4;
/// JPEG quality of a strip.
const QUALITY: u8 = 70;
/// Width of the unchanged image in a strip, in pixels.
const WIDTH: u32 = 96;
/// Gap between two images of a strip, in pixels.
const GAP: u32 = 4;
/// Largest number of results in a strip.
const MOST: usize = 3;

/// A result of an operator: the lines of its settings, the number of the sample for which random
/// numbers were drawn, and the image.
struct Shown {
    settings: Vec<String>,
    draw: u64,
    image: Image<u8>,
}

/// Writes the strips of all operators into a folder. Returns the operators and the alternative
/// texts of their strips.
fn write(folder: &Path) -> Value {
    let photo = Image::from_data(PHOTO.window(), synth::image(1, 4, PHOTO.width, PHOTO.height));
    let mut strips = Vec::new();
    for &name in feedwater::internals::op::NAMES {
        let mut shown: Vec<Shown> = Vec::new();
        for (operator, settings) in strengths(name) {
            for draw in 0..if operator.is_random() { DRAWS } else { 1 } {
                let image = visible(applied(&*operator, draw, &photo));
                shown.push(Shown { settings: settings.clone(), draw, image });
            }
        }
        // Each operator is shown with several settings (strengths). Choose one sample of each
        // strength first, and then further samples.
        let mut chosen: Vec<usize> = (0..shown.len()).collect();
        chosen.sort_by_key(|&at| shown[at].draw);
        chosen.truncate(MOST);
        chosen.sort_unstable();
        // Skip operators without any effect. For example, `random_iou_crop` changes nothing without
        // boxes.
        if chosen.iter().all(|&at| shown[at].image == photo) {
            continue;
        }
        let results = chosen.iter().map(|&at| &shown[at].image);
        let strip = strip(std::iter::once(&photo).chain(results));
        let Size { width, height } = strip.window().size();
        let mut jpeg = Vec::new();
        let encoder = Encoder::new(&mut jpeg, QUALITY);
        encoder.encode(strip.data(), width as u16, height as u16, ColorType::Rgb).unwrap();
        fs::write(folder.join(format!("{name}.jpg")), jpeg).unwrap();
        strips.push(json!({ "op": name, "alt": alt(chosen.iter().map(|&at| &shown[at])) }));
    }
    json!({ "strips": strips })
}

/// Returns an operator at several strengths, each with its settings as lines of a pipeline file.
fn strengths(name: &str) -> Vec<(Arc<dyn Operator>, Vec<String>)> {
    let listed: toml::Table = STRENGTHS.parse().unwrap();
    let all: Vec<toml::Table> = match listed.get(name).and_then(toml::Value::as_array) {
        Some(list) => list.iter().filter_map(|it| it.as_table().cloned()).collect(),
        None => {
            feedwater::internals::op::example_settings(name).iter().map(without_nulls).collect()
        }
    };
    let strengths = all.into_iter().map(|settings| {
        let lines = settings.to_string().trim_end().lines().map(String::from).collect();
        let operator = feedwater::internals::op::read(name, settings).unwrap().unwrap();
        assert!(operator.check().is_ok(), "{name}: {lines:?}");
        (operator, lines)
    });
    strengths.collect()
}

/// Converts settings to TOML. Settings without a value are omitted, because TOML has no null.
fn without_nulls(settings: &Value) -> toml::Table {
    let given = settings.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
    given
        .filter_map(|(key, value)| Some((key.clone(), toml::Value::try_from(value).ok()?)))
        .collect()
}

/// Returns the output image of an operator, with the random numbers of sample `draw`.
fn applied(operator: &dyn Operator, draw: u64, photo: &Image<u8>) -> HostImage {
    let key = SampleKey { seed: 1, epoch: 0, index: draw };
    let actions = Actions::of([operator], key, photo.window().size());
    // The shape does not matter, because no tensor is stored.
    let (dtype, layout) = (DType::F32, Layout::Nchw);
    let shape = TensorShape { batch: 1, width: 1, height: 1, dtype, layout, channels: 3 };
    let mut transform = HostTransform::of_shape(shape);
    transform.run_operator(&actions, 0, &HostImage::U8(photo.clone())).unwrap();
    transform.image().clone()
}

/// Converts an image to bytes. Floats from -2.5 to 2.5 become black to white.
fn visible(image: HostImage) -> Image<u8> {
    match image {
        HostImage::U8(image) => image,
        HostImage::F32(image) => {
            // `as` truncates to an integer, and clamps to 0..=255.
            let bytes = image.data().iter().map(|it| (127.5 + 51.0 * it) as u8).collect();
            Image::from_data(image.window(), bytes)
        }
    }
}

/// Draws images beside each other on white. Each image is reduced by the factor that reduces the
/// unchanged image to a width of [`WIDTH`]. An image that is larger than the unchanged one is
/// reduced until its longer side has [`WIDTH`] pixels.
fn strip<'a>(images: impl Iterator<Item = &'a Image<u8>>) -> Image<u8> {
    let small: Vec<Image<u8>> = images.map(reduced).collect();
    let sizes = small.iter().map(|it| it.window().size());
    let width = sizes.clone().map(|size| size.width + GAP).sum::<u32>() - GAP;
    let height = sizes.map(|size| size.height).max().unwrap();
    let mut strip = Image::new(Size::new(width, height).window());
    strip.data_mut().fill(u8::MAX);
    let mut left = 0;
    for image in &small {
        let Size { width, height } = image.window().size();
        for y in 0..height {
            for x in 0..width {
                strip.set_pixel(left + x, y, image.pixel(x, y));
            }
        }
        left += width + GAP;
    }
    strip
}

fn reduced(image: &Image<u8>) -> Image<u8> {
    let Size { width, height } = image.window().size();
    let longer = width.max(height).max(PHOTO.width);
    let side = |side: u32| (side * WIDTH).div_ceil(longer);
    visible(applied(&Resize::to(side(width), side(height)), 0, image))
}

/// Returns the alternative text of a strip, which describes its images.
fn alt<'a>(results: impl Iterator<Item = &'a Shown>) -> String {
    let mut text = String::from("The unchanged image");
    for Shown { settings, draw, .. } in results {
        text += "; ";
        text += &match (draw, settings.as_slice()) {
            // The first image of these settings (sample 0) precedes this image and lists the
            // settings.
            (1.., _) => format!("sample {draw}"),
            (0, []) => String::from("with its defaults"),
            (0, settings) => settings.join(", "),
        };
    }
    text
}

#[test]
fn strips_show_the_image_and_up_to_three_results() {
    let listed: toml::Table = STRENGTHS.parse().unwrap();
    assert!(listed.keys().all(|name| feedwater::internals::op::NAMES.contains(&name.as_str())));
    let dir = tempfile::tempdir().unwrap();
    let result = write(dir.path());
    let strips = result["strips"].as_array().unwrap();
    let written: Vec<&str> = strips.iter().map(|it| it["op"].as_str().unwrap()).collect();
    // `random_iou_crop` changes nothing without boxes, so it has no strip.
    let shown: Vec<&str> = feedwater::internals::op::NAMES
        .iter()
        .copied()
        .filter(|name| *name != "random_iou_crop")
        .collect();
    assert_eq!(written, shown);
    let mut bytes = 0;
    for strip in strips {
        let (name, alt) = (strip["op"].as_str().unwrap(), strip["alt"].as_str().unwrap());
        let jpeg = fs::read(dir.path().join(format!("{name}.jpg"))).unwrap();
        bytes += jpeg.len();
        let size = Header::parse(&jpeg).unwrap().size;
        let results = alt.matches("; ").count() as u32;
        assert!((1..=3).contains(&results), "{alt}");
        assert!(size.width > 96 && size.width <= (1 + results) * 100 - 4, "{name}: {size:?}");
        assert!((72..=96).contains(&size.height), "{name}: {size:?}");
    }
    assert!(bytes < 400_000, "{bytes} bytes");
}

/// Writes the images of `docs/reference/`.
#[test]
#[ignore = "scripts/operator-reference runs it, with FEEDWATER_STRIPS"]
fn write_strips_for_the_reference() {
    let folder = std::env::var_os("FEEDWATER_STRIPS").expect("FEEDWATER_STRIPS names a folder");
    let folder = Path::new(&folder);
    fs::write(folder.join("strips.json"), write(folder).to_string()).unwrap();
}
