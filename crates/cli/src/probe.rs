//! `probe`: reports what a folder, an archive, a list or any other source contains.

mod fields;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use clap::Args;
use feedwater::internals::config::Pipeline;
use feedwater::internals::error::beginning;
use feedwater::internals::footprint::{bytes, counted};
use feedwater::internals::source::exclusion_lines;
use feedwater::plan::{DecodeSettings, Limits};
use feedwater::source::{self, Source};
use feedwater::storage::Storage;
use feedwater_tools::probe::{self, Report, Settings};
use serde_json::json;

use super::requests::shown;
use super::{CommandError, print, print_json, progress, tell, threads};

/// Shows what a source contains: formats, sizes, labels, unusable samples, and the routes on which
/// a GPU would decode its images
#[derive(Args)]
#[command(
    after_help = "Example:\n  feedwater probe data/train\n  feedwater probe shards/ --samples 1000 --json"
)]
pub struct Options {
    /// A folder, a file in any source format, or a pipeline file (.toml)
    path: PathBuf,
    /// Inspect only this many samples, evenly spaced over the source
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    samples: Option<u64>,
    /// Also decode every image, to find corrupt pixel data
    #[arg(long)]
    decode: bool,
    /// Accept damaged images that Pillow accepts too, like a pipeline with `decode.strict = false`
    #[arg(long)]
    tolerant: bool,
    /// Number of threads [default: one per core]
    #[arg(long, alias = "num-workers", value_parser = threads)]
    workers: Option<u16>,
    /// Print the result as one line of JSON
    #[arg(long)]
    json: bool,
}

/// Largest number of labels that are listed one by one.
const MAX_ROWS: usize = 20;

/// A source that was opened, and the `[source]` table of a pipeline file that describes it.
pub struct Opened {
    pub source: Arc<dyn Source>,
    pub limits: Limits,
    pub decode: DecodeSettings,
    pub table: toml::Table,
}

/// Opens the source of a pipeline file, or the source that is detected at a path.
pub fn open(path: &Path) -> Result<Opened, CommandError> {
    if path.extension().is_some_and(|it| it == "toml") {
        let pipeline = Pipeline::from_file(path)?;
        let storage = shown(pipeline.storage()?);
        let (source, table) = (pipeline.open_with(&storage)?, pipeline.source.to_table()?);
        let (decode, limits) = (pipeline.settings.decode, pipeline.settings.limits);
        return Ok(Opened { source, limits, decode, table });
    }
    let storage = shown(Storage::default());
    let (settings, limits) = (source::detect(path, &storage)?, Limits::default());
    let (source, table) = (settings.open_with(&storage)?, settings.to_table()?);
    Ok(Opened { source, limits, decode: DecodeSettings::default(), table })
}

pub fn main(options: &Options) -> Result<(), CommandError> {
    let Opened { source, limits, decode, table } = open(&options.path)?;
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let settings = Settings {
        samples: options.samples.unwrap_or(0),
        threads: options.workers.map_or(cores, usize::from),
        decode: options.decode,
        limits,
        strict: decode.strict && !options.tolerant,
        pixels: decode.pixels,
    };
    let inspected = options.samples.map_or(source.len(), |samples| samples.min(source.len()));
    for warning in source.warnings() {
        tell(format!("warning: {warning}"));
    }
    let bar = progress(inspected, "samples");
    let report = probe::run(&*source, &settings, |_| bar.inc(1));
    bar.finish_and_clear();
    if options.json {
        return print_json(&json!({
            "path": options.path,
            "source": table,
            "description": source.describe(),
            "memory_bytes": source.memory_bytes(),
            "warnings": source.warnings(),
            "fields": fields::of(&*source),
            "report": report,
        }));
    }
    print(format!("source    {}", source.describe()))?;
    for (key, value) in &table {
        print(format!("          {key} = {value}"))?;
    }
    for line in fields::lines(&fields::of(&*source)) {
        print(line)?;
    }
    print_report(&report)
}

fn print_report(report: &Report) -> Result<(), CommandError> {
    let (seen, usable) = (report.seen, report.usable());
    let mean = |sum: u64, count: u64| sum as f64 / count.max(1) as f64;
    let some = if seen < report.samples { format!(", {seen} inspected") } else { String::new() };
    print(format!(
        "samples   {}{some}; encoded size: {} in total, {} on average, at most {}",
        report.samples,
        bytes(report.bytes),
        bytes(mean(report.bytes, seen) as u64),
        bytes(report.largest_bytes),
    ))?;
    print(format!("formats   {}", shares(&report.formats, usable)))?;
    if let (Some(smallest), Some(largest)) = (report.smallest, report.largest) {
        print(format!(
            "jpeg      {}; {} progressive; {} rotated by EXIF",
            shares(&report.samplings, usable),
            report.progressive,
            report.turned,
        ))?;
        if !report.jpeg_by.is_empty() {
            print(format!("          decoded on the CPU by {}", shares(&report.jpeg_by, usable)))?;
        }
        print(format!(
            "size      {} to {}; {:.2} megapixels on average, {:.2} bytes per pixel",
            sides(smallest),
            sides(largest),
            mean(report.pixels, usable) / 1e6,
            mean(report.bytes, report.pixels),
        ))?;
    }
    for bucket in report.sizes.iter().filter(|it| it.images > 0) {
        let name = match bucket.below_megapixels {
            Some(bound) => format!("< {bound} MP"),
            None => "larger".into(),
        };
        let share = mean(bucket.images, usable);
        let bar = "#".repeat((share * 40.0).ceil() as usize);
        print(format!("          {name:>10}  {:>8}  {bar}", bucket.images))?;
    }
    print(format!("labels    {}", labels(report)))?;
    class_table(report).iter().try_for_each(print)?;
    print(format!("routes    {} (on a GPU with all routes)", shares(&report.routes, usable)))?;
    for (why, count) in &report.cpu_because {
        print(format!("          {count} on the CPU: {why}"))?;
    }
    for line in exclusion_lines(&report.excluded) {
        print(format!("excluded  {line}"))?;
    }
    if !report.tolerated.is_empty() {
        print(format!("tolerated {}", shares(&report.tolerated, seen)))?;
    }
    if report.errors.is_empty() {
        return print("unusable  none");
    }
    print(format!("unusable  {}", shares(&report.errors, seen)))?;
    for example in &report.examples {
        print(format!("          {}: {}: {}", example.location, example.reason, example.problem))?;
    }
    Ok(())
}

/// Formats counts with shares, largest first: `JPEG 190 (95.0 %), PNG 10 (5.0 %)`.
fn shares(counts: &BTreeMap<&'static str, u64>, of: u64) -> String {
    let mut counts: Vec<_> = counts.iter().collect();
    counts.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
    let share = |count: u64| 100.0 * count as f64 / of.max(1) as f64;
    let text = counts.iter().map(|&(name, &n)| format!("{name} {n} ({:.1} %)", share(n)));
    let text = text.collect::<Vec<_>>().join(", ");
    if text.is_empty() { "none".into() } else { text }
}

fn labels(report: &Report) -> String {
    let labelled: Vec<u64> =
        report.labels.iter().filter(|&(&label, _)| label != -1).map(|(_, &count)| count).collect();
    let without = report.labels.get(&-1).copied().unwrap_or(0);
    let Some((least, most)) = labelled.iter().min().zip(labelled.iter().max()) else {
        let objects = if report.classes.is_empty() { "" } else { "; classes of objects:" };
        return format!("none{objects}");
    };
    let more = if report.other_labels > 0 { " or more" } else { "" };
    let without = if without > 0 { format!("; {without} without a label") } else { String::new() };
    let most = counted(*most, "sample");
    format!("{}{more}, with {least} to {most} per label{without}", labelled.len())
}

/// Formats one row per label with the label, the number of samples and the class. Lists the first
/// [`MAX_ROWS`] labels in order, and then the number of other labels.
fn class_table(report: &Report) -> Vec<String> {
    let mut table: BTreeMap<i64, u64> = report.labels.clone();
    table.remove(&-1);
    // Classes without samples get a row too, unless their name is empty.
    for (label, name) in (0..).zip(&report.classes) {
        if !name.is_empty() && report.other_labels == 0 {
            table.entry(label).or_default();
        }
    }
    let labelled = report.labels.keys().any(|label| *label != -1);
    let row = |(label, count): (&i64, &u64)| {
        let count = if labelled { count.to_string() } else { String::new() };
        let name = usize::try_from(*label).ok().and_then(|label| report.classes.get(label));
        let name = name.map_or("", |name| beginning(name, 60));
        format!("          {label:>10}  {count:>8}  {name}").trim_end().to_string()
    };
    let mut rows: Vec<String> = table.iter().take(MAX_ROWS).map(row).collect();
    if table.len() > MAX_ROWS {
        rows.push(format!(
            "          and {} (--json lists them)",
            counted(table.len() - MAX_ROWS, "more label")
        ));
    }
    rows
}

fn sides([width, height]: [u32; 2]) -> String {
    format!("{width}x{height}")
}
