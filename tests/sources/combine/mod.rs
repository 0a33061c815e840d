//! Tests what the documentation of combined sources promises: `Combined`, `Weighted`, `Chosen` and
//! `Repeated`, in Rust and in TOML.

mod loading;
mod mixture;
mod own;
mod pipeline_file;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::Arc;

use crate::common::words::has_words;
use crate::common::{Wrapping, config_error, jpeg, jpegs, refused, training};
use feedwater::error::{DataError, Error};
use feedwater::internals::config::Pipeline;
use feedwater::loader::{DeviceChoice, Loader, LoaderBuilder};
use feedwater::plan::LastBatch;
use feedwater::source::custom::{Arrangement, Combined, Hints, HostPage, Identity, Page};
use feedwater::source::{
    Concat, Directory, ExclusionReason, Memory, Mixture, Repeat, Source, Subset,
};
use proptest::prelude::*;

/// A source for tests. Its sample `i` has the label `base + i`, the bytes of this number as text,
/// and the location `name/i`.
struct Numbered {
    name: &'static str,
    base: i64,
    len: u64,
    classes: Vec<String>,
}

impl Source for Numbered {
    fn len(&self) -> u64 {
        self.len
    }
    fn label(&self, index: u64) -> i64 {
        self.base + index as i64
    }
    fn location(&self, index: u64) -> String {
        format!("{}/{index}.jpg", self.name)
    }
    fn read(&self, index: u64, page: &mut dyn Page, _: u64) -> Result<(), DataError> {
        page.space(8)?.copy_from_slice(&self.label(index).to_le_bytes());
        Ok(())
    }
    fn classes(&self) -> &[String] {
        &self.classes
    }
    fn describe(&self) -> String {
        format!("{} of {}", self.len, self.name)
    }
    fn hints(&self) -> Option<&dyn Hints> {
        Some(self)
    }
}

impl Hints for Numbered {
    fn largest_bytes(&self) -> Option<u64> {
        Some(8 + self.len)
    }
    fn memory_bytes(&self) -> u64 {
        1000
    }
}

fn numbered(name: &'static str, base: i64, len: u64) -> Arc<dyn Source> {
    Arc::new(Numbered { name, base, len, classes: Vec::new() })
}

fn classed(base: i64, len: u64, classes: &[&str]) -> Arc<dyn Source> {
    let classes = classes.iter().map(ToString::to_string).collect();
    Arc::new(Numbered { name: "classed", base, len, classes })
}

/// A combined source has the skipped files and the warnings of its parts, in every combination.
#[test]
fn skipped_files_and_warnings_of_parts_are_those_of_the_whole() {
    let root = tempfile::tempdir().unwrap();
    for name in ["train/cat/1.jpg", "train/cat/readme.txt", "val/cat/2.jpg", "val/cat/readme.txt"] {
        let path = root.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, name).unwrap();
    }
    let part = || -> Arc<dyn Source> { Arc::new(Directory::open(root.path()).unwrap()) };
    let counts = |source: &dyn Source| {
        let [excluded] = &source.excluded()[..] else { panic!("{:?}", source.excluded()) };
        (excluded.why, excluded.count, source.warnings().len())
    };
    let other = ExclusionReason::OtherExtension;
    assert_eq!(counts(&Concat::new(vec![part(), part()]).unwrap()), (other, 4, 2));
    let mixture = Mixture::new(vec![(part(), 1.0), (part(), 2.0)], None).unwrap();
    assert_eq!(counts(&mixture), (other, 4, 2));
    assert_eq!(counts(&Subset::take(part(), 1).unwrap()), (other, 2, 1));
    assert_eq!(counts(&Repeat::new(part(), 3).unwrap()), (other, 2, 1));
}

fn labels(source: &dyn Source) -> Vec<i64> {
    (0..source.len()).map(|index| source.label(index)).collect()
}

/// Checks that the bytes, the label and the location of every sample belong together.
fn consistent(source: &dyn Source) {
    let mut page = HostPage::default();
    for index in 0..source.len() {
        source.read(index, &mut page, 100).unwrap();
        let label = i64::from_le_bytes(page.bytes().try_into().unwrap());
        assert_eq!(source.label(index), label);
        let location = source.location(index);
        assert!(location.ends_with(&format!("/{}.jpg", label % 100)), "{location} {label}");
        assert!(source.original(index) < source.originals());
    }
}

#[test]
fn parts_are_concatenated() {
    let parts = vec![numbered("a", 100, 3), numbered("b", 200, 2), numbered("c", 300, 4)];
    let source = Concat::new(parts).unwrap();
    assert_eq!(labels(&source), [100, 101, 102, 200, 201, 300, 301, 302, 303]);
    assert_eq!(source.location(4), "b/1.jpg");
    assert_eq!((source.largest_bytes(), source.len()), (Some(12), 9));
    assert!(source.memory_bytes() >= 3000 && source.memory_bytes() < 3200);
    let described = source.describe();
    assert!(has_words(&described, &["9", "3 of a", "2 of b", "4 of c"]), "{described}");
    consistent(&source);
    refused(Concat::new(Vec::new()), "source.concat", &[]);
}

#[test]
fn classes_are_shared_joined_by_name_or_errors() {
    let whole = Concat::new(vec![classed(0, 2, &["a", "b"]), classed(0, 2, &["a", "b"])]).unwrap();
    assert_eq!((whole.classes().len(), labels(&whole)), (2, vec![0, 1, 0, 1]));

    let parts = vec![classed(0, 2, &["b", "a"]), classed(-1, 4, &["c", "b", "d"])];
    let whole = Concat::new(parts).unwrap();
    assert_eq!(whole.classes(), ["b", "a", "c", "d"]);
    assert_eq!(labels(&whole), [0, 1, -1, 2, 0, 3]);

    // The message must contain the positions of the two sources that conflict.
    let mixed = Concat::new(vec![numbered("a", 0, 1), classed(0, 1, &["a"])]);
    refused(mixed, "source.concat", &["1", "0"]);
}

#[test]
fn a_subset_is_a_list_a_range_the_first_or_all_but_the_first() {
    let source = || numbered("a", 100, 10);
    assert_eq!(labels(&Subset::of(source(), &[7, 0, 7, 3]).unwrap()), [107, 100, 107, 103]);
    assert_eq!(labels(&Subset::range(source(), 4..6).unwrap()), [104, 105]);
    assert_eq!(labels(&Subset::take(source(), 2).unwrap()), [100, 101]);
    assert_eq!(Subset::take(source(), 20).unwrap().len(), 10);
    assert_eq!(labels(&Subset::skip(source(), 8).unwrap()), [108, 109]);
    consistent(&Subset::of(source(), &[7, 0, 7, 3]).unwrap());
    for (subset, key, values) in [
        (Subset::of(source(), &[1, 10]), "source.subset[1]", &["10"][..]),
        (Subset::of(source(), &[]), "source.subset", &[]),
        (Subset::range(source(), 8..11), "source.subset", &["8", "11", "10"]),
        (Subset::take(source(), 0), "source.take", &["1", "0"]),
        (Subset::skip(source(), 10), "source.skip", &["10"]),
    ] {
        refused(subset, key, values);
    }
}

#[test]
fn a_filter_calls_each_sample_once_and_reads_nothing() {
    let mut asked = Vec::new();
    let source = Subset::filter(numbered("a", 100, 6), |index, label, location| {
        asked.push((index, label, location.to_string()));
        label % 2 == 1
    })
    .unwrap();
    assert_eq!(asked.len(), 6);
    assert_eq!(asked[3], (3, 103, "a/3.jpg".to_string()));
    assert_eq!(labels(&source), [101, 103, 105]);
    consistent(&source);
    assert_eq!(source.memory_bytes(), 1000 + 3 * 4);
    let none = Subset::filter(numbered("a", 100, 6), |_, _, _| false);
    refused(none, "source.filter", &["6"]);
}

#[test]
fn repetitions_of_a_sample_have_one_original() {
    let source = Repeat::new(numbered("a", 100, 3), 3).unwrap();
    assert_eq!(labels(&source), [100, 101, 102, 100, 101, 102, 100, 101, 102]);
    assert_eq!((source.originals(), source.original(7)), (Some(3), 1));
    consistent(&source);
    let whole = Concat::new(vec![numbered("b", 200, 5), Arc::new(source)]).unwrap();
    assert_eq!((whole.originals(), whole.original(5), whole.original(8)), (Some(8), 5, 5));
    consistent(&whole);
    assert!(Repeat::new(numbered("a", 0, 3), 0).is_err());
    assert!(Repeat::new(numbered("a", 0, 3), u64::MAX).is_err());
}

fn mixture(parts: &[(f64, u64)], samples: Option<u64>) -> Mixture {
    let parts = parts.iter().enumerate();
    let parts =
        parts.map(|(number, &(weight, len))| (numbered("m", 1000 * number as i64, len), weight));
    Mixture::new(parts.collect(), samples).unwrap()
}

/// Returns the part and the number within the part for each index of a mixture of [`Numbered`]
/// sources.
fn draws(source: &Mixture) -> Vec<(usize, u64)> {
    let split = |label: i64| ((label / 1000) as usize, (label % 1000) as u64);
    labels(source).into_iter().map(split).collect()
}

fn loader(mixture: Mixture) -> LoaderBuilder {
    Loader::builder(mixture, training())
        .device(DeviceChoice::Cpu)
        .num_workers(2)
        .batch_size(3)
        .last_batch(LastBatch::Partial)
}

fn images(from: u64, count: u64) -> Arc<dyn Source> {
    let jpegs = jpegs(from + count).split_off(from as usize);
    Arc::new(Memory::new(jpegs).unwrap())
}

fn mixed() -> Mixture {
    Mixture::new(vec![(images(0, 5), 2.0), (images(5, 9), 3.0)], Some(31)).unwrap()
}

/// Returns the index, label and bytes of every sample of the next epoch.
fn epoch(loader: &mut Loader) -> Vec<(u64, i64, Vec<u8>)> {
    let mut all = Vec::new();
    for batch in loader {
        let batch = batch.unwrap();
        let bytes = batch.shape().sample_bytes();
        let samples = batch.host().unwrap().chunks_exact(bytes);
        let both = batch.indices().zip(batch.labels().to_vec()).zip(samples);
        all.extend(both.map(|((index, label), bytes)| (index, label, bytes.to_vec())));
    }
    all
}

/// An arrangement that reverses the samples of a single part.
struct Backwards(u64);

impl Arrangement for Backwards {
    fn samples(&self) -> u64 {
        self.0
    }
    fn at(&self, index: u64) -> (usize, u64) {
        (0, self.0 - 1 - index)
    }
}

#[test]
fn a_custom_arrangement_only_maps_positions_to_samples() {
    let source = Combined::arranged(vec![numbered("a", 0, 5)], Backwards(5)).unwrap();
    let source: &dyn Source = &source;
    assert_eq!((source.len(), labels(source)), (5, vec![4, 3, 2, 1, 0]));
    assert_eq!((source.originals(), source.original(0)), (5, 4));
    assert_eq!((source.largest_bytes(), source.memory_bytes()), (Some(13), 1000));
    // The description must contain the number of samples of the combined source and that of its
    // part.
    let described = source.describe();
    assert!(has_words(&described, &["5 of a"]), "{described}");
    assert_eq!(described.matches('5').count(), 2, "{described}");
    assert!(Combined::arranged(Vec::new(), Backwards(5)).is_err());
    assert!(Combined::arranged(vec![numbered("a", 0, 5)], Backwards(0)).is_err());
}
