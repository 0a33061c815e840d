//! `demo`: loads generated images through the usual training chain.

use std::path::Path;

use clap::Args;
use feedwater::internals::file::AtomicFile;
use feedwater::loader::{DeviceChoice, Loader, LoaderBuilder};
use feedwater::op::{Chain, Flip, Normalize, RandomResizedCrop};
use feedwater::plan::LastBatch;
use feedwater::source::Directory;
use feedwater_tools::synth::Settings;
use serde_json::json;

use super::doctor::warn_without_simd;
use super::images::{self, cache};
use super::interrupt::{self, Polled};
use super::report::{Report, warn};
use super::sheet::Sheet;
use super::{CommandError, DEVICES, io_failure, print, print_json, print_lines, progress, require};

/// Loads one epoch of generated photo-like JPEGs with the usual training chain
///
/// The images are generated once and cached. The cache is the folder $FEEDWATER_CACHE, or else the
/// folder feedwater in $XDG_CACHE_HOME or ~/.cache.
#[derive(Args)]
#[command(after_help = "Example:\n  feedwater demo --images 256")]
pub struct Options {
    /// Number of images
    #[arg(long, default_value_t = Settings::default().images, value_parser = clap::value_parser!(u64).range(1..))]
    images: u64,
    /// Device to run on [default: auto]. cuda is the GPU that belongs to the launcher's local rank.
    /// auto is that GPU, or the CPU if there is none
    #[arg(long, value_name = DEVICES)]
    device: Option<DeviceChoice>,
    /// Print the result as one line of JSON
    #[arg(long)]
    json: bool,
}

pub fn main(options: &Options) -> Result<(), CommandError> {
    require(options.device)?;
    let settings = Settings { images: options.images, ..Settings::default() };
    let cache = cache()?;
    let data = images::make(&cache, &settings, options.json)?;

    let mut loader = builder(&data, options)?.build()?;
    warn(&loader);
    let bar = progress(loader.batches_per_epoch(), "batches");
    let image = cache.join("demo.png");
    let _polled = Polled::waiting_for(&loader);
    let mut epoch = loader.epoch();
    while let Some(batch) = epoch.next() {
        if interrupt::requested().is_some() {
            break;
        }
        let batch = batch?;
        if batch.number() == 0 {
            let sheet = Sheet::new(&epoch, &batch)?;
            let written = sheet.write(&image).and_then(AtomicFile::commit);
            written.map_err(|error| io_failure(&image, &error))?;
        }
        bar.inc(1);
    }
    match interrupt::requested() {
        None => bar.finish_and_clear(),
        // The run was interrupted. Keep the progress bar visible, because a cleared bar would mean
        // that the epoch is complete.
        Some(_) => bar.abandon(),
    }
    let report = Report::new(&loader);
    warn_without_simd(&report.jpeg);

    if options.json {
        let mut result = serde_json::to_value(&report)
            .map_err(|error| CommandError::Failed(format!("JSON: {error}")))?;
        result["data"] = json!(data);
        result["sheet"] = json!(image);
        return print_json(&result);
    }
    print_lines(&report)?;
    print(format!("sheet     {} (the first batch)", image.display()))
}

/// Builds a loader with the usual training chain of vision models.
fn builder(data: &Path, options: &Options) -> Result<LoaderBuilder, CommandError> {
    let chain = Chain::new()
        .then(RandomResizedCrop::to(224, 224))
        .then(Flip { horizontal: 0.5, ..Flip::default() })
        .then(Normalize::IMAGENET);
    Ok(Loader::builder(Directory::open(data)?, chain)
        .batch_size(64)
        .shuffle(true)
        .last_batch(LastBatch::Partial)
        .shard(0, 1)
        .epochs(Some(1))
        .device(options.device.unwrap_or_default()))
}
