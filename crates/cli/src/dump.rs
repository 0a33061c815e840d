//! `dump`: writes batches as files for other tools, and as a contact sheet.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use feedwater::annotation::PlacedObject;
use feedwater::internals::file::AtomicFile;
use feedwater::internals::footprint::bytes;
use feedwater::loader::{Batch, Loader};
use feedwater::op::{Blend, DrawnOperator};
use feedwater::source::NO_LABEL;
use serde::Serialize;
use serde::ser::{SerializeSeq, Serializer};
use serde_json::json;

use columns::{ColumnFiles, file_name};

use super::npy::NpyWriter;
use super::sheet::Sheet;
use super::{CommandError, PipelineOptions, io_failure, print, print_json};

mod columns;

/// Writes batches as images.npy, samples.json, files of other columns, and contact sheets
#[derive(Args)]
#[command(after_help = "Example:\n  feedwater dump pipeline.toml --out first-batch")]
pub struct Options {
    #[command(flatten)]
    pipeline: PipelineOptions,
    /// Directory to write to. It is created if it does not exist
    #[arg(long)]
    out: PathBuf,
    /// Number of batches to write. They are concatenated along the first axis
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    batches: u64,
    /// Number of the epoch to dump, from 0
    #[arg(long, default_value_t = 0)]
    epoch: u32,
    /// Print the result as one line of JSON
    #[arg(long)]
    json: bool,
}

/// Entry of `samples.json` that describes one sample.
#[derive(Serialize)]
struct SampleEntry {
    index: u64,
    path: String,
    label: i64,
    width: u32,
    height: u32,
    /// Factor by which the decoder reduced width and height.
    reduction: u32,
    roi: [u32; 4],
    flipped_horizontally: bool,
    flipped_vertically: bool,
    /// Operators with the random values that they drew. They suffice to reproduce the image.
    operators: Vec<DrawnOperator>,
    /// The same for each output of the views, by name of the view.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    views: BTreeMap<String, Vec<Vec<DrawnOperator>>>,
    outcome: &'static str,
    /// How often this sample has already occurred at earlier positions of the epoch.
    #[serde(skip_serializing_if = "is_first")]
    repeat: u32,
    /// Index of the unusable sample that this sample replaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    replaces: Option<u64>,
    /// Whether the sample is padding, which only fills the last batch.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    padding: bool,
    /// Reason why the replaced sample could not be used.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// Blends with another sample, if a batch operator mixed the two samples.
    #[serde(skip_serializing_if = "Option::is_none")]
    mixed: Option<MixedEntry>,
    /// Annotated objects that are visible in the tensor.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    objects: Vec<ObjectEntry>,
}

/// Blends of a sample with another sample, which a batch operator drew.
#[derive(Serialize)]
struct MixedEntry {
    /// Index of the other sample in the source.
    with: u64,
    /// Blends in the order of execution. They suffice to compute the pixels from both samples.
    blends: Vec<BlendEntry>,
}

/// A [`Blend`](feedwater::op::Blend).
#[derive(Serialize)]
struct BlendEntry {
    op: &'static str,
    /// Window of the blend in pixels of the tensor: left column, upper row, width, height.
    window: [u32; 4],
    /// Weight of the sample's own pixels inside the window.
    weight: f32,
    /// Weight of the sample's own target.
    target_weight: f32,
}

/// Annotated object of a sample.
#[derive(Serialize)]
struct ObjectEntry {
    id: i64,
    category: i64,
    /// Left, upper, right and lower edge of the box, in pixels of the tensor.
    bbox: [f32; 4],
    /// Share of the object's box that lies inside the tensor, 0 to 1.
    visible: f64,
    crowd: bool,
}

pub fn main(options: &Options) -> Result<(), CommandError> {
    let builder = options.pipeline.builder()?.start_epoch(options.epoch);
    let mut loader = builder.epochs(Some(1)).build()?;
    super::report::warn(&loader);
    let out = &options.out;
    fs::create_dir_all(out).map_err(|error| io_failure(out, &error))?;

    let images = out.join("images.npy");
    let images_failed = |error| io_failure(&images, &error);
    let has_images = loader.plan().has_images();
    let npy = has_images.then(|| NpyWriter::create(&images)).transpose();
    let mut npy = npy.map_err(images_failed)?;
    let mut columns = ColumnFiles::new(out.join("columns"));
    let samples = out.join("samples.json");
    let samples_failed = |error| io_failure(&samples, &error);
    let mut file = AtomicFile::create(&samples).map_err(samples_failed)?;
    // Write one entry at a time, so that the used memory does not grow with the number of batches.
    let mut json = serde_json::Serializer::pretty(&mut file);
    let mut entries = json.serialize_seq(None).map_err(|error| samples_failed(error.into()))?;
    let mut count = 0;
    let mut sheets = Vec::new();
    let mut epoch = loader.epoch();
    for _ in 0..options.batches {
        let Some(batch) = epoch.next().transpose()? else { break };
        if let Some(npy) = &mut npy {
            let (element, shape) = (batch.images().element_type(), batch.images().shape());
            let appended = match batch.host() {
                Some(data) => npy.append(element, &shape, data),
                None => npy.append(element, &shape, &batch.to_host()?),
            };
            appended.map_err(images_failed)?;
        }
        columns.append(&batch)?;
        if sheets.is_empty() {
            sheets = draw_sheets(&epoch, &batch, out)?;
        }
        for entry in describe(&epoch, &batch) {
            entries.serialize_element(&entry).map_err(|error| samples_failed(error.into()))?;
            count += 1;
        }
    }
    if sheets.is_empty() {
        let why = loader.failures().unwrap_or_default();
        return Err(CommandError::Failed(format!(
            "all samples failed, so there is no sample to write: {why}"
        )));
    }
    if let Some(failures) = loader.failures() {
        super::tell(format!("warning: {failures}"));
    }
    let npy = npy.map(NpyWriter::finish).transpose().map_err(images_failed)?;
    entries.end().map_err(|error| samples_failed(error.into()))?;
    file.flush().map_err(samples_failed)?;
    // Give the files their final names only after all of them are completely written.
    let mut files = Vec::new();
    if let Some(npy) = npy {
        npy.commit().map_err(images_failed)?;
        files.push(images);
    }
    file.commit().map_err(samples_failed)?;
    files.push(samples.clone());
    for (path, sheet) in sheets {
        sheet.commit().map_err(|error| io_failure(&path, &error))?;
        files.push(path);
    }
    files.extend(columns.commit()?);

    if options.json {
        return print_json(&json!({
            "images": count,
            "batches": loader.stats().batches,
            "shard": loader.plan().shard,
            "device": if loader.plan().uses_gpu() { "gpu" } else { "cpu" },
            "files": files,
        }));
    }
    for path in files {
        let len = fs::metadata(&path).map_err(|error| io_failure(&path, &error))?.len();
        print(format!("{} ({})", path.display(), bytes(len)))?;
    }
    Ok(())
}

/// Draws a contact sheet of the images (`sheet.png`), and one of each view (`sheet-NAME.png`).
fn draw_sheets(
    loader: &Loader,
    batch: &Batch,
    out: &Path,
) -> Result<Vec<(PathBuf, AtomicFile)>, CommandError> {
    let mut sheets = Vec::new();
    let mut draw = |name: String, sheet: Sheet| {
        let path = out.join(name);
        let drawn = sheet.write(&path).map_err(|error| io_failure(&path, &error))?;
        sheets.push((path, drawn));
        Ok::<_, CommandError>(())
    };
    if loader.plan().has_images() {
        draw("sheet.png".into(), Sheet::new(loader, batch)?)?;
    }
    for (number, view) in loader.plan().views.iter().enumerate() {
        draw(
            format!("sheet-{}.png", file_name(&view.name)),
            Sheet::of_view(loader, batch, number)?,
        )?;
    }
    Ok(sheets)
}

fn describe(loader: &Loader, batch: &Batch) -> Vec<SampleEntry> {
    let entry = |(place, sample): (usize, &feedwater::loader::SampleRecord)| {
        let roi = sample.trace.roi;
        let expected = sample.replaces.unwrap_or(sample.index);
        let error = batch.errors().iter().find(|error| error.index == expected);
        SampleEntry {
            index: sample.index,
            path: loader.source().named_location(sample.index),
            label: sample.label.unwrap_or(NO_LABEL),
            width: sample.size.width,
            height: sample.size.height,
            reduction: sample.reduction,
            roi: [roi.x, roi.y, roi.width, roi.height],
            flipped_horizontally: sample.trace.flipped_horizontally,
            flipped_vertically: sample.trace.flipped_vertically,
            operators: loader.plan().drawn(
                batch.epoch(),
                sample.index,
                sample.repeat,
                sample.size,
                batch.upright_boxes(place),
            ),
            views: loader.plan().drawn_views(
                batch.epoch(),
                sample.index,
                sample.repeat,
                sample.size,
                &batch.upright_boxes(place),
            ),
            outcome: sample.outcome.name(),
            repeat: sample.repeat,
            replaces: sample.replaces,
            padding: sample.padding,
            error: error.map(|it| format!("{}: {}", it.reason.name(), it.problem)),
            mixed: mixed_entry(batch, place),
            objects: batch.objects(place).iter().map(object_entry).collect(),
        }
    };
    batch.samples().iter().enumerate().map(entry).collect()
}

fn is_first(repeat: &u32) -> bool {
    *repeat == 0
}

fn mixed_entry(batch: &Batch, place: usize) -> Option<MixedEntry> {
    let blends = batch.pairs().get(place / 2)?.blends();
    let with = batch.samples().get(place ^ 1)?.index;
    let entry = |&Blend { operator, window, weight, target_weight, .. }: &Blend| {
        let window = [window.x, window.y, window.width, window.height];
        BlendEntry { op: operator, window, weight, target_weight }
    };
    let blends: Vec<_> = blends.iter().map(entry).collect();
    (!blends.is_empty()).then_some(MixedEntry { with, blends })
}

fn object_entry(object: &PlacedObject) -> ObjectEntry {
    let &PlacedObject { id, category, bbox, visible, crowd, .. } = object;
    ObjectEntry { id, category, bbox: bbox.xyxy(), visible, crowd }
}
