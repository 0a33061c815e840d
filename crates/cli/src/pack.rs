//! `pack`: any source as WebDataset or TFRecord shards, with smaller images where that is wanted.

use std::path::PathBuf;
use std::thread;

use clap::{Args, ValueEnum};
use feedwater::config::Pipeline;
use feedwater::footprint::bytes;
use feedwater::op::{Chain, Flip, Normalize, RandomResizedCrop};
use feedwater::source::left_out_lines;
use feedwater_tools::pack::{self, Gain, Manifest, Presize, Settings, ShardFormat};
use serde_json::json;

use super::probe::{Opened, open};
use super::{CommandError, interrupt, print, print_json, progress};

/// Packs a folder, or any source, into shards that read fast, and makes images smaller on the way if asked to
#[derive(Args)]
#[command(
    after_help = "Example:\n  feedwater pack data/train shards/train --shorter 400 --quality 90

Stopped, it goes on where it was when it is called again; where the source has changed meanwhile it refuses and says what.
Nothing half written is ever seen under a shard's name."
)]
pub struct Options {
    /// A folder, a file of any format that can be a source, or a pipeline file (.toml)
    src: PathBuf,
    /// The directory to write to; it is made where it is not there
    dst: PathBuf,
    /// The shards' format
    #[arg(long, value_enum, default_value_t)]
    format: FormatOption,
    /// What the shards' names begin with
    #[arg(long, default_value = "train")]
    name: String,
    /// A shard ends with the sample that brings it to so many MiB
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..))]
    shard_mib: u32,
    /// Make images whose shorter side is longer than so many pixels smaller; they become JPEGs
    #[arg(long)]
    shorter: Option<u32>,
    /// JPEG quality of what is made smaller, 1 to 100
    #[arg(long, default_value_t = 90, requires = "shorter")]
    quality: u8,
    /// Delete what an earlier pack has written into the directory, and pack everything again
    #[arg(long)]
    overwrite: bool,
    /// Leave out samples that cannot be used, and count them, instead of stopping
    #[arg(long)]
    skip: bool,
    /// Only show what smaller images would gain, and write nothing
    #[arg(long, requires = "shorter")]
    dry_run: bool,
    /// Threads; all cores by default
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: Option<u16>,
    /// Print the result as one line of JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum FormatOption {
    #[default]
    Webdataset,
    Tfrecord,
}

/// Images that are tried for the gain.
const LOOKS: u64 = 64;

pub fn main(options: &Options) -> Result<(), CommandError> {
    let Opened { source, limits, strict, .. } = open(&options.src)?;
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let settings = Settings {
        format: match options.format {
            FormatOption::Webdataset => ShardFormat::WebDataset,
            FormatOption::Tfrecord => ShardFormat::TfRecord,
        },
        name: options.name.clone(),
        shard_bytes: u64::from(options.shard_mib) << 20,
        presize: options.shorter.map(|shorter| Presize { shorter, quality: options.quality }),
        overwrite: options.overwrite,
        skip: options.skip,
        threads: options.workers.map_or(cores, usize::from),
        limits,
        strict,
    };
    settings.check()?;
    let say = |text: String| if options.json { Ok(()) } else { print(text) };
    say(format!("source    {}", source.describe()))?;
    // Before the work, which may take hours: what is missing there is missing in the shards.
    let left_out = source.left_out();
    for line in left_out_lines(&left_out) {
        say(format!("left out  {line}"))?;
    }
    let gain = match settings.presize {
        None => None,
        Some(_) => {
            let gain = pack::gain(&*source, &settings, &chain(options)?, LOOKS)?;
            say(words(&gain))?;
            Some(gain)
        }
    };
    if options.dry_run {
        let result = json!({ "gain": gain, "left_out": left_out });
        return if options.json { print_json(&result) } else { Ok(()) };
    }
    interrupt::advise(match options.overwrite {
        false => "the same command goes on after the last whole shard",
        true => "the same command without --overwrite goes on after the last whole shard",
    });
    let bar = progress(source.len(), "samples");
    let manifest = pack::pack(&*source, &options.dst, &settings, |done| bar.set_position(done))?;
    bar.finish_and_clear();
    let samples = manifest.shards.iter().map(|shard| shard.samples).sum();
    let bar = progress(samples, "samples verified");
    let verified = pack::verify(&options.dst, |done| bar.set_position(done))?;
    bar.finish_and_clear();
    if options.json {
        return print_json(&json!({
            "directory": options.dst,
            "gain": gain,
            "left_out": left_out,
            "shards": manifest.shards,
            "samples": samples,
            "skipped": manifest.skipped,
            "skipped_first": manifest.skipped_first,
            "verified": verified,
        }));
    }
    tell(options, &settings, &manifest, verified)
}

fn tell(
    options: &Options,
    settings: &Settings,
    made: &Manifest,
    verified: u64,
) -> Result<(), CommandError> {
    let total = made.shards.iter().map(|shard| shard.bytes).sum();
    let (directory, count) = (options.dst.display(), made.shards.len());
    print(format!(
        "packed    {verified} samples in {count} shards, {}, in {directory}",
        bytes(total)
    ))?;
    print(format!("verified  {verified} samples were read back and are what was written"))?;
    if made.skipped > 0 {
        print(format!("skipped   {} samples that cannot be used", made.skipped))?;
        for skipped in &made.skipped_first {
            print(format!("          {}: {}", skipped.location, skipped.problem))?;
        }
    }
    print(format!("use it    [source]\n          {} = \"{directory}\"", settings.format.key()))
}

/// The chain of the pipeline file, or the one that vision models are usually trained with.
fn chain(options: &Options) -> Result<Chain, CommandError> {
    if options.src.extension().is_some_and(|it| it == "toml") {
        return Ok(Pipeline::from_file(&options.src)?.chain);
    }
    Ok(Chain::new()
        .then(RandomResizedCrop::to(224, 224))
        .then(Flip { horizontal: 0.5, ..Flip::default() })
        .then(Normalize::IMAGENET))
}

fn words(gain: &Gain) -> String {
    let Gain { images, bytes_before, bytes_after, .. } = *gain;
    let (before, after) = (gain.images_per_second_before, gain.images_per_second_after);
    let each = |sum: u64| bytes(sum / images.max(1));
    format!(
        "presizing {images} images tried: {} become {} each ({:.0} %); one CPU thread decodes and transforms {before:.0} \
         images/s, then {after:.0} (x {:.2})",
        each(bytes_before),
        each(bytes_after),
        100.0 * bytes_after as f64 / bytes_before.max(1) as f64,
        after / before,
    )
}
