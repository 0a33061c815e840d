//! `synth`: generates a reproducible set of photo-like JPEGs.

use std::path::PathBuf;

use clap::Args;
use feedwater::footprint::{bytes, counted};
use feedwater_tools::synth::{self, Settings};
use serde_json::json;

use super::{CommandError, print, print_json, progress};

/// Generates a reproducible set of photo-like JPEGs, the same bytes on every machine
#[derive(Args)]
#[command(after_help = "Example:\n  feedwater synth data/train --images 200 --classes 5")]
pub struct Options {
    /// Directory to write to; each class becomes a sub-folder
    dir: PathBuf,
    /// Number of images
    #[arg(long, default_value_t = Settings::default().images)]
    images: u64,
    /// Width in pixels
    #[arg(long, default_value_t = Settings::default().width)]
    width: u32,
    /// Height in pixels
    #[arg(long, default_value_t = Settings::default().height)]
    height: u32,
    /// JPEG quality, 1 to 100
    #[arg(long, default_value_t = Settings::default().quality)]
    quality: u8,
    /// Number of classes
    #[arg(long, default_value_t = Settings::default().classes)]
    classes: u64,
    /// Seed of the generator
    #[arg(long, default_value_t = Settings::default().seed)]
    seed: u64,
    /// Write progressive JPEGs instead of baseline ones
    #[arg(long)]
    progressive: bool,
    /// Print the result as one line of JSON
    #[arg(long)]
    json: bool,
}

pub fn main(options: &Options) -> Result<(), CommandError> {
    let Options { images, width, height, quality, classes, seed, progressive, .. } = *options;
    let settings = Settings { images, width, height, quality, classes, seed, progressive };
    let bar = progress(images, "images");
    let summary = synth::write(&options.dir, &settings, |_| bar.inc(1))?;
    bar.finish_and_clear();
    if options.json {
        return print_json(&json!({
            "directory": options.dir,
            "images": images,
            "bytes": summary.bytes,
            "bytes_per_pixel": summary.bytes_per_pixel(),
            "settings": settings,
        }));
    }
    print(format!(
        "{}: {} of {width}x{height} in {}, {} ({:.2} bytes per pixel)",
        options.dir.display(),
        counted(images, "image"),
        counted(classes.min(images), "class"),
        bytes(summary.bytes),
        summary.bytes_per_pixel(),
    ))
}
