//! `gallery`: writes a web page with example images of every operator, or one strip of them per
//! operator.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use feedwater::error::DataError;
use feedwater::internals::decode::Decoders;
use feedwater::internals::file;
use feedwater::internals::geometry::Size;
use feedwater::internals::header::Header;
use feedwater::internals::image::{HostImage, Image};
use feedwater::internals::op::Actions;
use feedwater::internals::random::SampleKey;
use feedwater::internals::tensor::{DType, Layout, TensorShape};
use feedwater::internals::transform::{FullDecoder, HostTransform};
use feedwater::op::Operator;
use feedwater::plan::Limits;
use feedwater_tools::synth;
use jpeg_encoder::{ColorType, Encoder};
use serde_json::json;

use super::{CommandError, io_failure, print, print_json};
use page::{Picture, Section};
use strengths::Strength;

mod page;
mod strengths;
mod strip;

/// Writes a page (index.html) with pictures of every operator at several strengths
#[derive(Args)]
#[command(after_help = "Example:\n  feedwater gallery pictures --image photo.jpg")]
pub struct Options {
    /// Directory to write to; created if missing
    dir: PathBuf,
    /// Image to show, instead of a generated one
    #[arg(long, value_name = "FILE")]
    image: Option<PathBuf>,
    /// Write one strip of small pictures per operator (NAME.jpg) instead of the page
    #[arg(long)]
    strips: bool,
    /// Print the result as one line of JSON
    #[arg(long)]
    json: bool,
}

/// Size of the generated image. A larger image of the user is reduced to this height as its shorter
/// side.
const PHOTO: Size = Size::new(240, 180);

/// Number of images shown for an operator that draws random numbers.
const DRAWS: u64 = 4;

/// JPEG quality of the page's images. From 90 on, the encoder does not subsample chroma.
const QUALITY: u8 = 92;

/// JPEG quality of strips, which are a part of the documentation and must be small.
const STRIP_QUALITY: u8 = 70;

pub fn main(options: &Options) -> Result<(), CommandError> {
    let dir = &options.dir;
    let photo = match &options.image {
        Some(path) => read(path)?,
        // Of the generated scenes, this one has the most colours and edges.
        None => Image::from_data(PHOTO.window(), synth::image(1, 4, PHOTO.width, PHOTO.height)),
    };
    fs::create_dir_all(dir).map_err(|error| io_failure(dir, &error))?;
    let operators = strengths::all()?;
    if options.strips {
        strips(options, &photo, &operators)
    } else {
        whole(options, &photo, &operators)
    }
}

/// Writes the page and its images.
fn whole(options: &Options, photo: &Image<u8>, operators: &Operators) -> Result<(), CommandError> {
    let dir = &options.dir;
    write_picture(&dir.join(page::PHOTO), photo, QUALITY)?;
    let mut sections = Vec::new();
    for (name, strengths) in operators {
        let (pictures, images) = shown(name, strengths, photo)?;
        for (picture, image) in pictures.iter().zip(&images) {
            write_picture(&dir.join(&picture.file), image, QUALITY)?;
        }
        sections.push(Section {
            name,
            text: page::section(name, &pictures),
            pictures: pictures.len(),
        });
    }
    let index = dir.join("index.html");
    file::write(&index, page::page(&sections)).map_err(|error| io_failure(&index, &error))?;
    let pictures: usize = sections.iter().map(|section| section.pictures).sum();
    if options.json {
        let operators = sections.len();
        return print_json(&json!({ "page": index, "operators": operators, "pictures": pictures }));
    }
    print(format!("{}: {} operators, {pictures} pictures", index.display(), sections.len()))
}

/// Writes one strip per operator.
fn strips(options: &Options, photo: &Image<u8>, operators: &Operators) -> Result<(), CommandError> {
    let mut entries = Vec::new();
    for (name, strengths) in operators {
        let (pictures, mut images) = shown(name, strengths, photo)?;
        let chosen = strip::chosen(&pictures);
        // Skip operators without an effect: random_iou_crop changes nothing without boxes.
        if chosen.iter().all(|&at| images[at] == *photo) {
            continue;
        }
        let results = chosen.iter().map(|&at| std::mem::take(&mut images[at]));
        let all: Vec<Image<u8>> = std::iter::once(photo.clone()).chain(results).collect();
        let strip = strip::strip(&all).map_err(|error| failed(name, &error))?;
        let file = options.dir.join(format!("{name}.jpg"));
        write_picture(&file, &strip, STRIP_QUALITY)?;
        entries.push(json!({ "op": name, "file": file, "alt": strip::alt(&pictures, &chosen) }));
    }
    if options.json {
        return print_json(&json!({ "strips": entries }));
    }
    print(format!("{}: {} strips", options.dir.display(), entries.len()))
}

/// All operators, each with the settings to show.
type Operators = [(&'static str, Vec<Strength>)];

/// Returns the images of an operator: their descriptions, and their pixels.
fn shown<'a>(
    name: &str,
    strengths: &'a [Strength],
    photo: &Image<u8>,
) -> Result<(Vec<Picture<'a>>, Vec<Image<u8>>), CommandError> {
    let photo = HostImage::U8(photo.clone());
    let (mut pictures, mut images) = (Vec::new(), Vec::new());
    for (number, strength) in strengths.iter().enumerate() {
        let operator = &*strength.operator;
        for draw in 0..if operator.is_random() { DRAWS } else { 1 } {
            let file = format!("{name}-{number}-{draw}.jpg");
            let image = applied(operator, draw, &photo).map_err(|error| failed(name, &error))?;
            pictures.push(Picture { file, settings: &strength.settings, draw });
            images.push(visible(image));
        }
    }
    Ok((pictures, images))
}

/// Reads an image file, upright and not much larger than a generated image.
fn read(path: &Path) -> Result<Image<u8>, CommandError> {
    let limits = Limits::default();
    let bytes =
        file::read(path, limits.max_file_bytes).map_err(|error| io_failure(path, &error))?;
    let failed = |error: DataError| failed(&path.display().to_string(), &error);
    let header: Header = limits.header(&bytes, true).map_err(failed)?;
    let mut decoder = FullDecoder::new(Some(PHOTO.height), true);
    let size = decoder.size(&header);
    let decoded = decoder.decode(&bytes, &header, &mut Decoders::new());
    let (orientation, pixels) = decoded.map_err(failed)?;
    let stored = Image::from_data(size.window(), pixels);
    let mut upright = Image::new(orientation.upright_size(size).window());
    for y in 0..upright.window().height {
        for x in 0..upright.window().width {
            let (from_x, from_y) = orientation.stored_position(size, x, y);
            upright.set_pixel(x, y, stored.pixel(from_x, from_y));
        }
    }
    Ok(upright)
}

/// Returns the image after an operator, with the random numbers of sample number `draw`.
fn applied(operator: &dyn Operator, draw: u64, photo: &HostImage) -> Result<HostImage, DataError> {
    let key = SampleKey { seed: 1, epoch: 0, index: draw };
    let actions = Actions::of([operator], key, photo.window().size());
    // Only the operator runs, so the tensor's type and size do not matter.
    let (dtype, layout) = (DType::F32, Layout::Nchw);
    let shape = TensorShape { batch: 1, width: 1, height: 1, dtype, layout };
    let mut transform = HostTransform::of_shape(shape);
    transform.run_operator(&actions, 0, photo)?;
    Ok(transform.image().clone())
}

/// Converts an image to bytes. Floats from -2.5 to 2.5 are shown as black to white.
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

/// Writes a picture as a JPEG.
fn write_picture(path: &Path, image: &Image<u8>, quality: u8) -> Result<(), CommandError> {
    let Size { width, height } = image.window().size();
    let mut jpeg = Vec::new();
    let side = |side: u32| u16::try_from(side).unwrap_or(u16::MAX);
    Encoder::new(&mut jpeg, quality)
        .encode(image.data(), side(width), side(height), ColorType::Rgb)
        .map_err(|error| CommandError::Failed(format!("{}: {error}", path.display())))?;
    file::write(path, jpeg).map_err(|error| io_failure(path, &error))
}

fn failed(what: &str, error: &DataError) -> CommandError {
    CommandError::Failed(format!("{what}: {}: {}", error.reason.name(), error.problem))
}
