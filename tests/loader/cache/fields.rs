//! Fields of samples in the caches.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Counting, PLENTY, builder, cache, counts};
use crate::common::jpegs;
use feedwater::ElementType;
use feedwater::Pipeline;
use feedwater::error::DataError;
use feedwater::loader::{Batch, Loader, LoaderBuilder};
use feedwater::plan::{ColumnSettings, DefaultValue, OnError};
use feedwater::source::custom::{Fields, Identity, Page, PutField};
use feedwater::source::settings::JoinSettings;
use feedwater::source::{
    Concat, Field, FieldKind, FieldValue, Flat, Joined, Mixture, Repeat, Source,
};

const SAMPLES: usize = 24;
/// The sample whose caption has the wrong type, and the one without a caption.
const WRONG: u64 = 5;
const MISSING: u64 = 7;

/// Source whose fields count how often they were read.
#[derive(Clone)]
struct Fielded {
    images: Counting,
    reads: Arc<Vec<AtomicU64>>,
    /// Whether captions contain the count.
    changes: bool,
}

impl Fielded {
    fn new(changes: bool) -> Self {
        let reads = (0..SAMPLES).map(|_| AtomicU64::new(0)).collect();
        Self { images: Counting::new(jpegs(SAMPLES as u64)), reads: Arc::new(reads), changes }
    }

    fn field_reads(&self) -> Vec<u64> {
        self.reads.iter().map(|it| it.load(Ordering::Relaxed)).collect()
    }
}

impl Source for Fielded {
    fn len(&self) -> u64 {
        self.images.len()
    }
    fn label(&self, index: u64) -> i64 {
        self.images.label(index)
    }
    fn location(&self, index: u64) -> String {
        self.images.location(index)
    }
    fn read(&self, index: u64, page: &mut dyn Page, limit: u64) -> Result<(), DataError> {
        self.images.read(index, page, limit)
    }
    fn fields(&self) -> Option<&dyn Fields> {
        Some(self)
    }
    fn identity(&self) -> Option<&dyn Identity> {
        Some(self)
    }
}

/// Neighbours have the same image, but fields of their own.
impl Identity for Fielded {
    fn original(&self, index: u64) -> u64 {
        index / 2
    }
}

impl Fields for Fielded {
    fn schema(&self) -> Vec<Field> {
        let field = |name: &str, kind| Field { name: name.into(), kind };
        vec![
            field("caption", FieldKind::Text),
            field("boxes", FieldKind::List),
            field("meta", FieldKind::Json),
        ]
    }

    fn read_fields(
        &self,
        index: u64,
        wanted: &[&str],
        buffer: &mut Vec<u8>,
        _: u64,
        put: &mut PutField<'_>,
    ) -> Result<(), DataError> {
        let mut sorted = wanted.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), wanted.len(), "every field is read once");
        let read = self.reads[index as usize].fetch_add(1, Ordering::Relaxed);
        let read = if self.changes { read } else { 0 };
        for (number, name) in wanted.iter().enumerate() {
            match *name {
                "caption" if index == WRONG => put(number, FieldValue::Integer(7))?,
                "caption" if index == MISSING => {}
                "caption" => put(number, FieldValue::Text(&format!("{index} read {read}")))?,
                "boxes" => {
                    let boxes: Vec<f32> =
                        (0..index % 3 * 4).map(|it| (index + it) as f32).collect();
                    put(number, FieldValue::Entries(Flat::Floats(&boxes), &[4]))?;
                }
                "meta" => {
                    *buffer = format!("{{\"a\": {index}, \"b\": [{read}, 2]}}").into_bytes();
                    put(number, FieldValue::Json(buffer))?;
                }
                _ => {}
            }
        }
        Ok(())
    }
}

fn columns() -> Vec<ColumnSettings> {
    let i64 = ElementType::I64;
    let of = |field: &str, column| ColumnSettings { field: Some(field.into()), ..column };
    let default = Some(DefaultValue::Text("none".into()));
    vec![
        ColumnSettings { default, ..ColumnSettings::text("caption") },
        ColumnSettings::list("boxes", ElementType::F32, &[4]),
        ColumnSettings {
            default: Some(DefaultValue::Integer(-1)),
            ..of("meta:a", ColumnSettings::array("a", i64, &[]))
        },
        of("meta:b", ColumnSettings::list("b", i64, &[])),
    ]
}

/// Index of each sample of the next epoch, with the values of its columns.
fn epoch(loader: &mut Loader) -> Vec<(u64, String)> {
    let mut all = Vec::new();
    for batch in loader.into_iter() {
        let batch: Batch = batch.unwrap();
        let column = |name| batch.column(name).unwrap();
        for (place, sample) in batch.samples().iter().enumerate() {
            let values = (
                column("caption").text(place),
                column("boxes").sample::<f32>(place),
                column("a").sample::<i64>(place),
                column("b").sample::<i64>(place),
                sample.defaulted,
                sample.outcome,
            );
            all.push((sample.index, format!("{values:?}")));
        }
    }
    all
}

fn sorted(mut samples: Vec<(u64, String)>) -> Vec<(u64, String)> {
    samples.sort();
    samples
}

fn of(source: &Fielded) -> LoaderBuilder {
    builder(source.clone(), crate::common::training()).configure(|it| {
        it.columns = columns();
        it.loader.on_error = OnError::Substitute;
    })
}

#[test]
fn the_second_epoch_reads_neither_images_nor_fields_from_the_source() {
    for (encoded, decoded) in [(PLENTY, None), (None, PLENTY), (PLENTY, PLENTY)] {
        let source = Fielded::new(true);
        let configured = of(&source).configure(|it| {
            it.cache.encoded = encoded;
            it.cache.decoded = decoded;
        });
        let mut loader = configured.build().unwrap();
        let first = sorted(epoch(&mut loader));
        assert!(
            first[WRONG as usize].1.contains("None") || first[WRONG as usize].1.contains("none")
        );
        let reads = source.images.reads();
        for _ in 1..3 {
            // A file that changes between epochs stays the one that was read with its image.
            assert_eq!(sorted(epoch(&mut loader)), first);
        }
        assert_eq!(source.images.reads(), reads);
        // Only the sample that fails is read again.
        let mut fields = vec![1; SAMPLES];
        fields[WRONG as usize] = 3;
        assert_eq!(source.field_reads(), fields);
        let stats = loader.stats().caches;
        let stats = cache(&stats, "fields");
        let cached = SAMPLES as u64 - 1;
        assert_eq!(counts(&stats.epochs), [(0, 0, 24), (1, cached, 1), (2, cached, 1)]);
        assert_eq!((stats.samples, stats.hits, stats.misses), (cached, 2 * cached, 26));
        assert!(stats.kept_bytes > 0 && stats.limit_bytes == 0);
    }
    // Without a cache, fields are read in each epoch.
    let source = Fielded::new(true);
    let mut loader = of(&source).build().unwrap();
    let first = sorted(epoch(&mut loader));
    assert_ne!(sorted(epoch(&mut loader)), first);
}

#[test]
fn columns_have_the_same_values_with_any_cache_contents() {
    let run = |workers: usize, encoded: Option<u64>, decoded: Option<u64>, skipped: usize| {
        let source = Fielded::new(false);
        let mut loader = of(&source)
            .num_workers(workers)
            .configure(|it| {
                it.cache.encoded = encoded;
                it.cache.decoded = decoded;
            })
            .build()
            .unwrap();
        if skipped > 0 {
            for batch in (&mut loader).into_iter().take(skipped) {
                batch.unwrap();
            }
            let state = loader.state();
            drop(loader);
            loader = of(&source)
                .num_workers(workers)
                .configure(|it| {
                    it.cache.encoded = encoded;
                    it.cache.decoded = decoded;
                })
                .resume(state)
                .build()
                .unwrap();
        }
        let found: Vec<_> = (0..3).map(|_| epoch(&mut loader)).collect();
        let stats = loader.stats().caches;
        assert!(stats.iter().all(|it| it.taken_bytes <= it.limit_bytes || it.cache == "fields"));
        (found, stats)
    };
    let expected = run(1, None, None, 0).0;
    for (workers, encoded, decoded) in [
        (1, PLENTY, None),
        (3, PLENTY, None),
        (3, None, PLENTY),
        (2, Some(20_000), None),
        (2, Some(90_000), Some(40_000)),
    ] {
        let (found, stats) = run(workers, encoded, decoded, 0);
        assert!(found == expected, "{workers} workers, {encoded:?}, {decoded:?}");
        let fields = cache(&stats, "fields");
        assert!(fields.hits > 0 || encoded == Some(20_000), "{fields:?}");
    }
    let (resumed, _) = run(2, None, None, 3);
    assert!(run(2, PLENTY, None, 3).0 == resumed);
}

#[test]
fn side_files_and_joined_texts_that_change_stay_those_of_the_cached_image() {
    let root = tempfile::tempdir().unwrap();
    let path = |name: &str| root.path().join(name);
    fs::create_dir(path("images")).unwrap();
    fs::create_dir(path("texts")).unwrap();
    // A file is renamed, so a worker never reads an incomplete one.
    let write = |generation: &str| {
        for number in 0..SAMPLES {
            for folder in ["images", "texts"] {
                fs::write(path("new"), format!("{generation} {folder} {number}")).unwrap();
                fs::rename(path("new"), path(&format!("{folder}/{number}.txt"))).unwrap();
            }
        }
    };
    for (number, (bytes, _)) in jpegs(SAMPLES as u64).into_iter().enumerate() {
        fs::write(path(&format!("images/{number}.jpg")), bytes).unwrap();
    }
    for is_cached in [true, false] {
        write("old");
        let text = "[source]\ndirectory = \"images\"\n[source.side_files]\nside = \"{stem}.txt\"\n\
                    [source.join]\ndirectory = \"texts\"\nprefix = \"other.\"";
        let source = Pipeline::from_toml(text, root.path()).unwrap().open().unwrap();
        let columns = ["side", "other.value"].map(ColumnSettings::text);
        let mut loader = LoaderBuilder::new(source, crate::common::training())
            .device(feedwater::loader::DeviceChoice::Cpu)
            .batch_size(2)
            .num_workers(1)
            .prefetch(1)
            .epochs(Some(2))
            .configure(|it| {
                it.columns = columns.into();
                it.cache.encoded = if is_cached { PLENTY } else { None };
            })
            .build()
            .unwrap();
        let mut texts = || {
            let mut all = Vec::new();
            for batch in &mut loader {
                let batch = batch.unwrap();
                for column in ["side", "other.value"] {
                    let column = batch.column(column).unwrap();
                    all.extend((0..batch.len()).map(|it| column.text(it).unwrap().to_string()));
                }
            }
            all
        };
        let first = texts();
        assert!(first.iter().all(|text| text.starts_with("old")), "{first:?}");
        write("new");
        assert_eq!(texts() == first, is_cached);
    }
}

#[test]
fn fields_that_do_not_fit_are_read_again() {
    let source = Fielded::new(true);
    // Too small even for the table of the cache.
    let mut loader = of(&source).configure(|it| it.cache.encoded = Some(100)).build().unwrap();
    (0..3).for_each(|_| assert_eq!(epoch(&mut loader).len(), SAMPLES));
    assert_eq!(source.field_reads(), [3; SAMPLES]);
}

fn of_shared(source: Arc<dyn Source>, columns: Vec<ColumnSettings>) -> LoaderBuilder {
    let builder = LoaderBuilder::new(source, crate::common::training());
    let builder = builder.device(feedwater::loader::DeviceChoice::Cpu).num_workers(1);
    builder.batch_size(4).epochs(Some(2)).configure(|it| {
        it.columns = columns;
        it.cache.encoded = PLENTY;
        it.loader.on_error = OnError::Substitute;
        it.loader.last_batch = feedwater::plan::LastBatch::Partial;
    })
}

#[test]
fn a_sample_that_a_combination_has_several_times_is_stored_once() {
    let source = Fielded::new(true);
    let other = Fielded::new(true);
    let shared: Arc<dyn Source> = Arc::new(source.clone());
    let twice: Arc<dyn Source> = Arc::new(Repeat::new(shared.clone(), 2).unwrap());
    let mixture = vec![(twice.clone(), 1.0), (Arc::new(other.clone()) as Arc<dyn Source>, 3.0)];
    for combination in [
        Arc::new(Mixture::new(mixture, None).unwrap()) as Arc<dyn Source>,
        Arc::new(Concat::new(vec![twice, Arc::new(other.clone())]).unwrap()),
    ] {
        let len = combination.len();
        assert!(len >= 3 * SAMPLES as u64, "{len}");
        let counts = |it: &Fielded| -> Vec<u64> {
            let reads = it.reads.iter().enumerate().filter(|(at, _)| *at as u64 != WRONG);
            reads.map(|(_, it)| it.swap(0, Ordering::Relaxed)).collect()
        };
        for it in [&source, &other] {
            counts(it);
        }
        let mut loader = of_shared(combination, columns()).build().unwrap();
        for _ in 0..2 {
            assert_eq!(epoch(&mut loader).len() as u64, len);
        }
        for it in [&source, &other] {
            assert_eq!(counts(it), [1; SAMPLES - 1], "each sample is read once");
        }
        let stats = loader.stats().caches;
        assert_eq!(cache(&stats, "fields").samples, 2 * (SAMPLES as u64 - 1));
    }
}

/// A join by position gives each repetition of a sample other texts, and a join by a field gives
/// all of them the same ones.
#[test]
fn joined_fields_are_those_of_the_partner_at_each_position() {
    let source: Arc<dyn Source> = Arc::new(Fielded::new(false));
    let folder = tempfile::tempdir().unwrap();
    let list = folder.path().join("texts.csv");
    let rows: String = (0..2 * SAMPLES).map(|row| format!("{row},text {row}\n")).collect();
    fs::write(&list, format!("id,text\n{rows}")).unwrap();
    for (key, shared) in [("__index__", 2 * SAMPLES), ("meta:a", SAMPLES)] {
        let twice = Arc::new(Repeat::new(source.clone(), 2).unwrap());
        let key = Some(key.to_string());
        let settings = JoinSettings { key, other_key: Some("id".into()), ..Default::default() };
        let table =
            feedwater::source::FileList::table(&list, &Default::default(), &Default::default());
        let table = Arc::new(table.unwrap());
        let joined = Arc::new(Joined::new(twice, table, &settings).unwrap());
        let mut loader = of_shared(joined, vec![ColumnSettings::text("text")]).build().unwrap();
        for _ in 0..2 {
            let mut found = 0;
            for batch in loader.epoch() {
                let batch = batch.unwrap();
                for (place, sample) in batch.samples().iter().enumerate() {
                    let expected = format!("text {}", sample.index as usize % shared);
                    assert_eq!(batch.column("text").unwrap().text(place), Some(&*expected));
                    found += 1;
                }
            }
            assert_eq!(found, 2 * SAMPLES);
        }
        let stats = loader.stats().caches;
        assert_eq!(cache(&stats, "fields").samples, shared as u64);
    }
}
