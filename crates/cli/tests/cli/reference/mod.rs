//! The images of `docs/reference/operators.md`: one strip per operator, with the unchanged image and up to three results.

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

/// Settings per operator, as a table of lists. An operator that is missing has the examples of `feedwater::internals::op::example_settings`.
const STRENGTHS: &str = include_str!("strengths.toml");
/// Size of the unchanged image.
const PHOTO: Size = Size::new(240, 180);
/// Number of results of an operator that draws random numbers.
const DRAWS: u64 = 4;
/// JPEG quality of a strip.
const QUALITY: u8 = 70;
/// Columns of the unchanged image in a strip.
const WIDTH: u32 = 96;
/// Columns between two images.
const GAP: u32 = 4;
/// Most results in a strip.
const MOST: usize = 3;

/// A result of an operator: the lines of its settings, the number of the sample whose random numbers were drawn, and the image.
struct Shown {
    settings: Vec<String>,
    draw: u64,
    image: Image<u8>,
}

/// Writes a strip of each operator into a folder. Returns the operators with the alternative texts of their strips.
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
        // One sample of each strength, then further samples.
        let mut chosen: Vec<usize> = (0..shown.len()).collect();
        chosen.sort_by_key(|&at| shown[at].draw);
        chosen.truncate(MOST);
        chosen.sort_unstable();
        // Without boxes, random_iou_crop changes nothing.
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

/// An operator at several strengths, with the lines of its settings as in a pipeline file.
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

/// Settings as TOML, which has no null: a setting without a value is left out.
fn without_nulls(settings: &Value) -> toml::Table {
    let given = settings.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
    given
        .filter_map(|(key, value)| Some((key.clone(), toml::Value::try_from(value).ok()?)))
        .collect()
}

/// The image after an operator, with the random numbers of sample number `draw`.
fn applied(operator: &dyn Operator, draw: u64, photo: &Image<u8>) -> HostImage {
    let key = SampleKey { seed: 1, epoch: 0, index: draw };
    let actions = Actions::of([operator], key, photo.window().size());
    // No tensor is stored.
    let (dtype, layout) = (DType::F32, Layout::Nchw);
    let shape = TensorShape { batch: 1, width: 1, height: 1, dtype, layout };
    let mut transform = HostTransform::of_shape(shape);
    transform.run_operator(&actions, 0, &HostImage::U8(photo.clone())).unwrap();
    transform.image().clone()
}

/// Bytes of an image. Floats from -2.5 to 2.5 are shown as black to white.
fn visible(image: HostImage) -> Image<u8> {
    match image {
        HostImage::U8(image) => image,
        HostImage::F32(image) => {
            // `as` clamps to 0..=255.
            let bytes = image.data().iter().map(|it| (127.5 + 51.0 * it) as u8).collect();
            Image::from_data(image.window(), bytes)
        }
    }
}

/// Images beside each other on white, in the scale of the unchanged image. Larger images are reduced to its size.
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

/// Alternative text of a strip.
fn alt<'a>(results: impl Iterator<Item = &'a Shown>) -> String {
    let mut text = String::from("The unchanged image");
    for Shown { settings, draw, .. } in results {
        text += "; ";
        text += &match (draw, settings.as_slice()) {
            // The image before it has the same settings.
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
    // Without boxes it changes nothing.
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
