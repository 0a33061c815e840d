//! `pack`: converts any source to WebDataset or TFRecord shards, optionally with smaller images.

use std::path::PathBuf;
use std::thread;

use clap::{Args, ValueEnum};
use feedwater::PixelFormat;
use feedwater::internals::config::Pipeline;
use feedwater::internals::footprint::{bytes, counted};
use feedwater::internals::source::exclusion_lines;
use feedwater::op::{Chain, Flip, Normalize, RandomResizedCrop};
use feedwater::plan::DecodeSettings;
use feedwater_tools::pack::{
    self, ChosenFields, FieldChoice, Gain, Manifest, Presize, Settings, ShardFormat,
};
use serde_json::json;

use super::probe::{Opened, open};
use super::{CommandError, interrupt, print, print_json, progress, threads};

/// Packs a folder or any other source into shards that load faster, optionally with smaller images
#[derive(Args)]
#[command(
    after_help = "Example:\n  feedwater pack data/train shards/train --shorter 400 --quality 90

Run again after an interruption, it resumes. If the source has changed in between, it fails and names the change.
Shards appear under their names only when complete.
Fields such as captions are packed, too, so the same columns can be read from the shards."
)]
pub struct Options {
    /// A folder, a file in any source format, or a pipeline file (.toml)
    src: PathBuf,
    /// Directory to write to. It is created if it does not exist
    dst: PathBuf,
    /// Shard format
    #[arg(long, value_enum, default_value_t)]
    format: FormatOption,
    /// Prefix of the shards' file names
    #[arg(long, default_value = "train")]
    name: String,
    /// Shard size in MiB. A shard ends with the sample with which it reaches this size
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..))]
    shard_mib: u32,
    /// Downscale images whose shorter side is longer than this many pixels, and store them as JPEGs
    #[arg(long)]
    shorter: Option<u32>,
    /// JPEG quality of downscaled images, 1 to 100
    #[arg(long, default_value_t = 90, requires = "shorter")]
    quality: u8,
    /// Delete the files of an earlier pack from the directory, and pack everything again
    #[arg(long)]
    overwrite: bool,
    /// Before resuming, read those samples of the source again that are already packed, and compare
    /// their bytes with the shards. Otherwise a file counts as unchanged if its length, times and
    /// inode are unchanged
    #[arg(long, conflicts_with = "overwrite")]
    verify: bool,
    /// Skip and count unusable samples. Otherwise the first one is an error
    #[arg(long)]
    skip: bool,
    /// Fields to store besides images and labels: "all", "none", or names separated by commas. A
    /// field larger than limits.max_field_bytes is an error of its sample
    #[arg(long, default_value = "all", value_parser = fields)]
    fields: FieldChoice,
    /// Do not store row indexes of JPEGs beside the shards
    #[arg(long)]
    no_row_index: bool,
    /// Only print the fields and the predicted gain of smaller images, and write nothing
    #[arg(long, requires = "shorter")]
    dry_run: bool,
    /// Number of threads [default: one per core]
    #[arg(long, alias = "num-workers", value_parser = threads)]
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

/// Number of images that are sampled to estimate the gain.
const GAIN_SAMPLES: u64 = 64;

pub fn main(options: &Options) -> Result<(), CommandError> {
    let Opened { source, limits, decode, .. } = open(&options.src)?;
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
        verify: options.verify,
        skip: options.skip,
        threads: options.workers.map_or(cores, usize::from),
        limits,
        strict: decode.strict,
        row_index: !options.no_row_index,
        fields: options.fields.clone(),
    };
    settings.check()?;
    if settings.presize.is_some() {
        check_presize(&decode)?;
    }
    let ChosenFields { names: fields, warnings } = pack::chosen_fields(&*source, &settings)?;
    // The names of all fields may take a pass over the source, so it is not repeated.
    let settings = Settings { fields: FieldChoice::Named(fields.clone()), ..settings };
    let print_text = |text: String| if options.json { Ok(()) } else { print(text) };
    print_text(format!("source    {}", source.describe()))?;
    // List excluded files before packing. Packing may take hours, and the shards will not contain
    // these files.
    let excluded = source.excluded();
    for line in exclusion_lines(&excluded) {
        print_text(format!("excluded  {line}"))?;
    }
    if !fields.is_empty() {
        print_text(format!("fields    {}", fields.join(", ")))?;
    }
    for warning in &warnings {
        print_text(format!("warning   {warning}"))?;
    }
    let gain = match settings.presize {
        None => None,
        Some(_) => {
            let gain = pack::gain(&*source, &settings, &chain(options)?, GAIN_SAMPLES)?;
            print_text(gain_text(&gain))?;
            Some(gain)
        }
    };
    if options.dry_run {
        let result = json!({
            "gain": gain,
            "excluded": excluded,
            "fields": fields,
            "warnings": warnings,
        });
        return if options.json { print_json(&result) } else { Ok(()) };
    }
    interrupt::advise(match options.overwrite {
        false => "run the same command again to resume after the last complete shard",
        true => "run the same command without --overwrite to resume after the last complete shard",
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
            "excluded": excluded,
            "fields": fields,
            "warnings": warnings,
            "shards": manifest.shards,
            "samples": samples,
            "skipped": manifest.skipped,
            "skipped_first": manifest.skipped_first,
            "verified": verified,
        }));
    }
    print_result(options, &settings, &manifest, verified)
}

/// Checks that images which `--shorter` stores lose nothing that the pipeline reads.
fn check_presize(decode: &DecodeSettings) -> Result<(), CommandError> {
    let pixels = decode.pixels;
    if !matches!(pixels, PixelFormat::U8 | PixelFormat::U8x3) {
        let problem = format!(
            "is {}, but --shorter stores colours of 8 bits without alpha; leave --shorter out",
            pixels.name()
        );
        return Err(feedwater::Error::config("decode.pixels", problem).into());
    }
    if decode.background.is_some() {
        let problem = "is set, but --shorter stores images without alpha; leave --shorter out";
        return Err(feedwater::Error::config("decode.background", problem).into());
    }
    Ok(())
}

fn print_result(
    options: &Options,
    settings: &Settings,
    manifest: &Manifest,
    verified: u64,
) -> Result<(), CommandError> {
    let total = manifest.shards.iter().map(|shard| shard.bytes).sum();
    let (directory, shards) = (options.dst.display(), manifest.shards.len() as u64);
    let (samples, shards) = (counted(verified, "sample"), counted(shards, "shard"));
    print(format!("packed    {samples} in {shards} of {} in total, in {directory}", bytes(total)))?;
    print(format!("verified  {samples} read back; the bytes equal what was written"))?;
    if manifest.skipped > 0 {
        print(format!("skipped   {}", counted(manifest.skipped, "unusable sample")))?;
        for skipped in &manifest.skipped_first {
            print(format!("          {}: {}", skipped.location, skipped.problem))?;
        }
    }
    print("use it    [source]")?;
    print(format!("          {} = \"{directory}\"", settings.format.key()))
}

/// Parses the option `--fields`.
fn fields(text: &str) -> Result<FieldChoice, String> {
    match text {
        "all" => Ok(FieldChoice::All),
        "none" => Ok(FieldChoice::None),
        names if names.split(',').any(str::is_empty) => {
            Err(format!("{names:?} has an empty name; write NAME,NAME"))
        }
        names => Ok(FieldChoice::Named(names.split(',').map(Into::into).collect())),
    }
}

/// Returns the chain of the pipeline file, or the usual training chain of vision models.
fn chain(options: &Options) -> Result<Chain, CommandError> {
    if options.src.extension().is_some_and(|it| it == "toml") {
        return Ok(Pipeline::from_file(&options.src)?.chain);
    }
    Ok(Chain::new()
        .then(RandomResizedCrop::to(224, 224))
        .then(Flip { horizontal: 0.5, ..Flip::default() })
        .then(Normalize::IMAGENET))
}

fn gain_text(gain: &Gain) -> String {
    let Gain { images, bytes_before, bytes_after, .. } = *gain;
    let (before, after) = (gain.images_per_second_before, gain.images_per_second_after);
    let each = |sum: u64| bytes(sum / images.max(1));
    format!(
        "presizing {} measured: the mean size changes from {} to {} ({:.0} %); one CPU thread \
         decodes and transforms {before:.0} images/s before presizing and {after:.0} images/s after \
         it (x {:.2})",
        counted(images, "image"),
        each(bytes_before),
        each(bytes_after),
        100.0 * bytes_after as f64 / bytes_before.max(1) as f64,
        after / before,
    )
}
