//! Measures what columns that are made from fields cost: the time of an epoch with a caption of 100
//! bytes and a float per sample, and the time without columns.
//!
//! ```text
//! cargo bench --bench fields -- [--images 512] [--rounds 5] [--threads 2]
//! ```
//!
//! The sources are a CSV list, JSON lines and a WebDataset archive, with the training chain. Each
//! round runs one epoch without columns and one with columns, in turn. The images are those of
//! `FEEDWATER_PHOTOS` (docs/benchmarks.md). Without this variable, they are synthetic images like
//! ImageNet's.

mod common;

use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use clap::Parser;
use common::photos;
use feedwater::loader::{DeviceChoice, LoaderBuilder};
use feedwater::plan::{ColumnSettings, LastBatch};
use feedwater::source::settings::WebDatasetSettings;
use feedwater::source::{Source, WebDataset};
use feedwater::{ElementType, Stats};

#[derive(Parser)]
struct Arguments {
    /// Number of synthetic images. Has no effect if `FEEDWATER_PHOTOS` names photographs.
    #[arg(long, default_value_t = 512)]
    images: u64,
    /// Number of epochs with and without columns. The medians are compared.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    #[arg(long, default_value_t = common::cores())]
    threads: usize,
    /// Ignored. `cargo bench` passes this flag.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() {
    let arguments = Arguments::parse();
    let set = photos::one_set(arguments.images);
    println!("{}", set.composition());
    println!("{}, {} threads; seconds per epoch\n", common::cpu(), arguments.threads);
    println!("{:<14}{:>10}{:>10}{:>10}", "source", "without", "with", "ratio");
    for (name, source) in sources(&set.files) {
        let mut seconds = [Vec::new(), Vec::new()];
        for round in 0..=arguments.rounds {
            for (with, seconds) in [false, true].into_iter().zip(&mut seconds) {
                let took = epoch(source.clone(), with, arguments.threads);
                // The first round fills the page cache.
                if round > 0 {
                    seconds.push(took);
                }
            }
        }
        let [without, with] = seconds.each_ref().map(|it| common::median(it));
        println!("{name:<14}{without:>10.3}{with:>10.3}{:>10.3}", with / without);
    }
}

/// Seconds of an epoch. Checks the length of all captions.
fn epoch(source: Arc<dyn Source>, with_columns: bool, threads: usize) -> f64 {
    let builder = LoaderBuilder::new(source, common::training()).num_workers(threads);
    let builder = builder.device(DeviceChoice::Cpu).epochs(Some(1)).configure(|settings| {
        settings.loader.last_batch = LastBatch::Partial;
        settings.loader.shuffle = true;
        settings.cache.row_index = Some(0);
        if with_columns {
            let field =
                |field: &str, column| ColumnSettings { field: Some(field.into()), ..column };
            settings.columns = vec![
                field("txt", ColumnSettings::text("caption")),
                field("score", ColumnSettings::array("score", ElementType::F32, &[])),
            ];
        }
    });
    let mut loader = builder.build().expect("the set is valid");
    let begin = Instant::now();
    let mut captions = 0;
    for batch in loader.epoch() {
        let batch = batch.expect("the set is valid");
        captions += batch.column("caption").map_or(0, |column| column.len_bytes());
    }
    let seconds = begin.elapsed().as_secs_f64();
    let Stats { images, .. } = loader.stats();
    assert_eq!(captions as u64, if with_columns { images * CAPTION as u64 } else { 0 });
    seconds
}

/// Size of a caption in bytes.
const CAPTION: usize = 100;

/// The same images with the same captions and scores, in different files.
fn sources(files: &[PathBuf]) -> Vec<(&'static str, Arc<dyn Source>)> {
    let folder = common::directory().join("fields");
    fs::create_dir_all(&folder).expect("the directory can be created");
    let (mut table, mut lines) = ("path,txt,score\n".to_string(), String::new());
    for (number, file) in files.iter().enumerate() {
        let (path, text) = (file.display(), caption(number));
        writeln!(table, "{path},\"{text}\",{number}.5").expect("a String grows");
        let line = serde_json::json!({"path": file, "txt": text, "score": number as f64 + 0.5});
        writeln!(lines, "{line}").expect("a String grows");
    }
    let list = |name: &str, text: String| -> Arc<dyn Source> {
        let path = folder.join(name);
        fs::write(&path, text).expect("the directory is writable");
        Arc::new(photos::open_list(&path))
    };
    let (csv, jsonl) = (list("list.csv", table), list("list.jsonl", lines));
    let archive = folder.join("train.tar");
    write_archive(&archive, files);
    let settings = WebDatasetSettings { label: String::new(), ..Default::default() };
    let archive = WebDataset::open(&[archive], &settings).expect("the archive is valid");
    vec![("CSV", csv), ("JSON lines", jsonl), ("WebDataset", Arc::new(archive))]
}

fn write_archive(path: &Path, files: &[PathBuf]) {
    let mut archive = tar::Builder::new(File::create(path).expect("the directory is writable"));
    for (number, file) in files.iter().enumerate() {
        let image = fs::read(file).expect("the set is complete");
        let score = format!("{number}.5").into_bytes();
        for (ending, bytes) in
            [("jpg", image), ("txt", caption(number).into_bytes()), ("score", score)]
        {
            let mut header = tar::Header::new_ustar();
            header.set_size(bytes.len() as u64);
            header.set_mode(0o644);
            let name = format!("{number:06}.{ending}");
            archive.append_data(&mut header, name, &bytes[..]).expect("the disk has space");
        }
    }
    archive.finish().expect("the disk has space");
}

fn caption(number: usize) -> String {
    format!("{:<CAPTION$}", format!("a photograph, number {number}, of something"))
}
