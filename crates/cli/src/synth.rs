//! `synth`: generates a reproducible set of photo-like JPEGs.

use std::path::PathBuf;

use clap::Args;
use feedwater::internals::footprint::{bytes, counted};
use feedwater_tools::synth::{self, Files, Settings, Uniform};
use serde_json::json;

use super::{CommandError, print, print_json, progress};

/// Generates a reproducible set of photo-like JPEGs, with the same bytes on every machine
///
/// Sizes, chroma samplings, qualities and Huffman tables occur in the proportions of 1,000 files of
/// ImageNet.
#[derive(Args)]
#[command(after_help = "Example:\n  feedwater synth data/train --images 200 --classes 5")]
pub struct Options {
    /// Directory to write to. It gets a sub-folder for each class
    dir: PathBuf,
    /// Number of images
    #[arg(long, default_value_t = Settings::default().images)]
    images: u64,
    /// Number of classes
    #[arg(long, default_value_t = Settings::default().classes)]
    classes: u64,
    /// Seed of the images
    #[arg(long, default_value_t = Settings::default().seed)]
    seed: u64,
    /// Write files that all have one size, quality and chroma sampling (4:2:0). The options below
    /// imply this one
    #[arg(long)]
    uniform: bool,
    /// Width of a uniform set in pixels [default: 500]
    #[arg(long)]
    width: Option<u32>,
    /// Height of a uniform set in pixels [default: 375]
    #[arg(long)]
    height: Option<u32>,
    /// JPEG quality of a uniform set, 1 to 100 [default: 92]
    #[arg(long)]
    quality: Option<u8>,
    /// Write progressive JPEGs instead of baseline ones. The set is then uniform
    #[arg(long)]
    progressive: bool,
    /// Print the result as one line of JSON
    #[arg(long)]
    json: bool,
}

impl Options {
    fn files(&self) -> Files {
        let Self { uniform, width, height, quality, progressive, .. } = *self;
        let sides = width.is_some() || height.is_some();
        if !(uniform || sides || quality.is_some() || progressive) {
            return Files::LikeImageNet;
        }
        let default = Uniform::default();
        Files::Uniform(Uniform {
            width: width.unwrap_or(default.width),
            height: height.unwrap_or(default.height),
            quality: quality.unwrap_or(default.quality),
            progressive,
        })
    }
}

pub fn main(options: &Options) -> Result<(), CommandError> {
    let Options { images, classes, seed, .. } = *options;
    let settings = Settings { images, classes, seed, files: options.files() };
    let bar = progress(images, "images");
    let summary = synth::write(&options.dir, &settings, |_| bar.inc(1))?;
    bar.finish_and_clear();
    let census = summary.census;
    if options.json {
        return print_json(&json!({
            "directory": options.dir,
            "images": images,
            "bytes": census.bytes,
            "bytes_per_pixel": census.bytes_per_pixel(),
            "settings": settings,
            "census": census,
        }));
    }
    print(format!(
        "{}: {} in {}, {}",
        options.dir.display(),
        counted(images, "image"),
        counted(classes.min(images), "class"),
        bytes(census.bytes),
    ))?;
    census.to_string().lines().try_for_each(print)
}
