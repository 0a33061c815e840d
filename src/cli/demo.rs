//! `demo`: the main job on photographs that it makes itself.

use std::env;
use std::path::{Path, PathBuf};

use clap::Args;
use feedwater::footprint::bytes;
use feedwater::gpu::{self, Device};
use feedwater::loader::{DeviceChoice, Loader, LoaderBuilder};
use feedwater::op::{Chain, Flip, Normalize, RandomResizedCrop};
use feedwater::plan::Last;
use feedwater::source::Directory;
use feedwater::synth::{self, Settings};
use serde_json::json;

use super::report::Report;
use super::sheet::Sheet;
use super::{DeviceOption, Failure, io_failure, print, print_json, progress};

/// Loads an epoch of photo-like JPEGs that it makes itself, with the usual training chain
///
/// The pictures are made once and kept in $FEEDWATER_CACHE, else in feedwater under $XDG_CACHE_HOME or
/// ~/.cache.
#[derive(Args)]
#[command(after_help = "Example:\n  feedwater demo --images 256")]
pub struct Options {
    /// How many pictures
    #[arg(long, default_value_t = Settings::default().images, value_parser = clap::value_parser!(u64).range(1..))]
    images: u64,
    /// Where to run; auto is the GPU where there is one, else the CPU
    #[arg(long, value_enum, default_value_t)]
    device: DeviceOption,
    /// Print the result as one line of JSON
    #[arg(long)]
    json: bool,
}

pub fn main(options: &Options) -> Result<(), Failure> {
    if let DeviceChoice::Gpu(ordinal) = options.device.choice() {
        // Before the pictures are made for nothing.
        let device = Device::open(ordinal)?;
        gpu::compiler(&device)?;
    }
    let settings = Settings { images: options.images, ..Settings::default() };
    let cache = cache()?;
    let data = cache.join(format!("synth-{}", settings.images));
    let note = |text: String| if options.json { Ok(()) } else { print(text) };
    let summary = match synth::complete(&data, &settings) {
        Some(summary) => summary,
        None => {
            note(format!("making    {} pictures in {}", settings.images, data.display()))?;
            let bar = progress(settings.images, "images");
            let summary = synth::write(&data, &settings, |_| bar.inc(1))?;
            bar.finish_and_clear();
            summary
        }
    };
    note(format!("data      {} in {}", bytes(summary.bytes), data.display()))?;

    let loader = builder(&data, options)?.build()?;
    let bar = progress(loader.batches_per_epoch(), "batches");
    let mut sheet = None;
    for batch in &loader {
        let batch = batch?;
        if sheet.is_none() {
            sheet = Some(Sheet::new(loader.plan(), &batch)?);
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    let report = Report::new(&loader);
    let picture = cache.join("demo.png");
    if let Some(sheet) = sheet {
        sheet.write(&picture).map_err(|error| io_failure(&picture, &error))?;
    }

    if options.json {
        let mut result = serde_json::to_value(&report)
            .map_err(|error| Failure::Failed(format!("JSON: {error}")))?;
        result["data"] = json!(data);
        result["sheet"] = json!(picture);
        return print_json(&result);
    }
    print(&report)?;
    print(format!("sheet     {} (the first batch)", picture.display()))
}

/// The training chain with which most image models are trained.
fn builder(data: &Path, options: &Options) -> Result<LoaderBuilder, Failure> {
    let chain = Chain::new()
        .then(RandomResizedCrop::to(224, 224))
        .then(Flip { horizontal: 0.5, ..Flip::default() })
        .then(Normalize::IMAGENET);
    Ok(Loader::builder(Directory::open(data)?, chain)
        .batch(64)
        .shuffle(true)
        .last(Last::Partial)
        .epochs(Some(1))
        .device(options.device.choice()))
}

/// Where pictures are kept between runs.
fn cache() -> Result<PathBuf, Failure> {
    let var = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    var("FEEDWATER_CACHE")
        .or_else(|| var("XDG_CACHE_HOME").map(|path| path.join("feedwater")))
        .or_else(|| var("HOME").map(|path| path.join(".cache/feedwater")))
        .ok_or_else(|| {
            let text = "no cache directory: set FEEDWATER_CACHE, XDG_CACHE_HOME or HOME";
            Failure::Failed(text.into())
        })
}
