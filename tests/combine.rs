//! Sources made of sources: each sentence above `Combined`, `Weighted`, `Chosen` and `Repeated`, in Rust and in TOML.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::Arc;

use common::{jpeg, jpegs, training};
use feedwater::config::Pipeline;
use feedwater::error::{Error, Fault};
use feedwater::loader::{DeviceChoice, Loader, LoaderBuilder};
use feedwater::plan::Last;
use feedwater::source::{Concat, HostPage, Memory, Mixture, Page, Repeat, Source, Subset};
use proptest::prelude::*;

/// A source of which sample `i` has the label `base + i`, the bytes of that number and the location `name/i`.
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
    fn read(&self, index: u64, page: &mut dyn Page, _: u64) -> Result<(), Fault> {
        page.space(8).copy_from_slice(&self.label(index).to_le_bytes());
        Ok(())
    }
    fn classes(&self) -> &[String] {
        &self.classes
    }
    fn largest_bytes(&self) -> u64 {
        8 + self.len
    }
    fn memory_bytes(&self) -> u64 {
        1000
    }
    fn describe(&self) -> String {
        format!("{} of {}", self.len, self.name)
    }
}

fn numbered(name: &'static str, base: i64, len: u64) -> Arc<dyn Source> {
    Arc::new(Numbered { name, base, len, classes: Vec::new() })
}

fn classed(base: i64, len: u64, classes: &[&str]) -> Arc<dyn Source> {
    let classes = classes.iter().map(ToString::to_string).collect();
    Arc::new(Numbered { name: "classed", base, len, classes })
}

fn labels(source: &dyn Source) -> Vec<i64> {
    (0..source.len()).map(|index| source.label(index)).collect()
}

/// What is read, said and located of every sample belongs together.
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

fn refusal<T>(result: Result<T, Error>) -> String {
    result.map(|_| ()).unwrap_err().to_string()
}

#[test]
fn parts_stand_one_after_another() {
    let parts = vec![numbered("a", 100, 3), numbered("b", 200, 2), numbered("c", 300, 4)];
    let source = Concat::new(parts).unwrap();
    assert_eq!(labels(&source), [100, 101, 102, 200, 201, 300, 301, 302, 303]);
    assert_eq!(source.location(4), "b/1.jpg");
    assert_eq!((source.largest_bytes(), source.len()), (12, 9));
    assert!(source.memory_bytes() >= 3000 && source.memory_bytes() < 3200);
    assert_eq!(source.describe(), "9 samples, one after another: 3 of a; 2 of b; 4 of c");
    consistent(&source);
    assert_eq!(
        refusal(Concat::new(Vec::new())),
        "source.concat: has no samples; name at least one source"
    );
}

#[test]
fn classes_are_shared_joined_by_name_or_refused() {
    let whole = Concat::new(vec![classed(0, 2, &["a", "b"]), classed(0, 2, &["a", "b"])]).unwrap();
    assert_eq!((whole.classes().len(), labels(&whole)), (2, vec![0, 1, 0, 1]));

    let parts = vec![classed(0, 2, &["b", "a"]), classed(-1, 4, &["c", "b", "d"])];
    let whole = Concat::new(parts).unwrap();
    assert_eq!(whole.classes(), ["b", "a", "c", "d"]);
    assert_eq!(labels(&whole), [0, 1, -1, 2, 0, 3]);

    let refused = Concat::new(vec![numbered("a", 0, 1), classed(0, 1, &["a"])]);
    let text = refusal(refused);
    assert!(
        text.starts_with(
            "source.concat: source 1 has names of classes and source 0 has none, so their labels"
        ),
        "{text}"
    );
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
    for (refused, words) in [
        (Subset::of(source(), &[1, 10]), "source.subset[1]: is 10, the source has 10 samples"),
        (Subset::of(source(), &[]), "source.subset: is empty; name at least one index"),
        (
            Subset::range(source(), 8..11),
            "source.subset: samples 8 to 11 are asked for, the source has 10",
        ),
        (Subset::take(source(), 0), "source.take: must be at least 1, is 0"),
        (Subset::skip(source(), 10), "source.skip: is 10, the source has 10 samples: none is left"),
    ] {
        assert_eq!(refusal(refused), words);
    }
}

#[test]
fn a_filter_asks_for_each_sample_once_and_reads_nothing() {
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
    assert_eq!(refusal(none), "source.filter: leaves none of 6 samples");
}

#[test]
fn a_source_is_repeated_and_its_samples_are_one_original() {
    let source = Repeat::new(numbered("a", 100, 3), 3).unwrap();
    assert_eq!(labels(&source), [100, 101, 102, 100, 101, 102, 100, 101, 102]);
    assert_eq!((source.originals(), source.original(7)), (3, 1));
    consistent(&source);
    let whole = Concat::new(vec![numbered("b", 200, 5), Arc::new(source)]).unwrap();
    assert_eq!((whole.originals(), whole.original(5), whole.original(8)), (8, 5, 5));
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

/// For each index the part and the sample in it.
fn draws(source: &Mixture) -> Vec<(usize, u64)> {
    let split = |label: i64| ((label / 1000) as usize, (label % 1000) as u64);
    labels(source).into_iter().map(split).collect()
}

#[test]
fn two_to_one_is_spread_evenly() {
    let drawn: Vec<_> = draws(&mixture(&[(2.0, 4), (1.0, 2)], None));
    let parts: Vec<_> = drawn.iter().map(|it| it.0).collect();
    assert_eq!(parts, [0, 1, 0, 0, 1, 0]);
    assert_eq!(drawn, [(0, 0), (1, 0), (0, 1), (0, 2), (1, 1), (0, 3)]);
}

#[test]
fn the_length_is_the_shortest_with_which_every_sample_comes() {
    // Of equal weights, the longer part decides; the shorter one repeats, and what is left over is spread over it.
    let source = mixture(&[(1.0, 4), (1.0, 10)], None);
    assert_eq!(source.len(), 20);
    let drawn = draws(&source);
    let of = |part| drawn.iter().filter(|it| it.0 == part).map(|it| it.1).collect::<Vec<_>>();
    assert_eq!(of(1), (0..10).collect::<Vec<_>>());
    assert_eq!(of(0), [0, 1, 2, 3, 0, 1, 2, 3, 0, 2]);
    // One sample less would not do.
    let shorter = mixture(&[(1.0, 4), (1.0, 10)], Some(19));
    assert!(draws(&shorter).iter().filter(|it| it.0 == 1).count() < 10);
    // A part that is not drawn in full is spread over its whole length.
    let drawn = draws(&mixture(&[(1.0, 100), (1.0, 2)], Some(20)));
    let first: Vec<_> = drawn.iter().filter(|it| it.0 == 0).map(|it| it.1).collect();
    assert_eq!(first, (0..10).map(|it| 10 * it).collect::<Vec<_>>());
}

#[test]
fn weights_that_cannot_be_are_refused() {
    let mix = |weights: &[f64]| {
        let parts = weights.iter().map(|&weight| (numbered("a", 0, 5), weight));
        refusal(Mixture::new(parts.collect(), None))
    };
    assert_eq!(mix(&[]), "source.mixture: has no sources; name at least one");
    for weight in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let words =
            format!("source.mixture[1].weight: must be above 0 and at most 1e9, is {weight}");
        assert_eq!(mix(&[1.0, weight]), words);
    }
    let text = mix(&[1.0 / 3.0, 2.0 / 3.0]);
    assert!(text.contains("at most 6 decimal places") && text.contains("write whole numbers"));
    let text = mix(&[1.0, 2e6]);
    assert!(text.contains("begin anew after 2000001 samples, at most 1048576"), "{text}");
    let empty = Mixture::new(vec![(numbered("a", 0, 0), 1.0)], None);
    assert_eq!(refusal(empty), "source.mixture[0]: has no samples");
    let none = Mixture::new(vec![(numbered("a", 0, 1), 1.0)], Some(0));
    assert_eq!(refusal(none), "source.samples: must be at least 1, is 0");
}

/// Weights and lengths of parts, and a length of the whole that is not a multiple of anything.
fn mixtures() -> impl Strategy<Value = (Vec<(f64, u64)>, Option<u64>)> {
    let weight = prop_oneof![
        (1..20u32).prop_map(f64::from),
        (1..300u32).prop_map(|it| f64::from(it) / 100.0)
    ];
    let part = (weight, 1..60u64);
    (prop::collection::vec(part, 1..9), prop::option::of(1..3000u64))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// The bound of Tijdeman's chairman assignment, for every prefix; equality after a period.
    #[test]
    fn counts_are_less_than_one_away_from_their_share((parts, _) in mixtures()) {
        let weights: Vec<u64> = parts.iter().map(|it| (it.0 * 100.0).round() as u64).collect();
        let total: u64 = weights.iter().sum();
        let source = mixture(&parts, Some(total + 500));
        let mut counts = vec![0u64; parts.len()];
        for (place, (part, _)) in draws(&source).into_iter().enumerate() {
            counts[part] += 1;
            let n = place as u64 + 1;
            for (count, weight) in counts.iter().zip(&weights) {
                // |count - n * weight / total| < 1, in whole numbers.
                prop_assert!((count * total).abs_diff(n * weight) < total, "{counts:?} {n}");
            }
            if n == total {
                prop_assert_eq!(&counts, &weights);
            }
        }
    }

    /// Every sample of a part comes once before any comes again; and the default length reaches all of them.
    #[test]
    fn parts_are_walked_without_repetition((parts, samples) in mixtures()) {
        let source = mixture(&parts, samples);
        let mut walked = vec![BTreeSet::new(); parts.len()];
        let mut all = vec![BTreeSet::new(); parts.len()];
        for (part, sample) in draws(&source) {
            prop_assert!(sample < parts[part].1);
            prop_assert!(walked[part].insert(sample), "sample {sample} of part {part} came too early");
            all[part].insert(sample);
            if walked[part].len() as u64 == parts[part].1 {
                walked[part].clear();
            }
        }
        if samples.is_none() {
            for (part, &(_, len)) in parts.iter().enumerate() {
                prop_assert_eq!(all[part].len() as u64, len);
            }
        }
    }
}

/// Each part's count is exact wherever in a mixture of any length, and found at once.
#[test]
fn a_mixture_of_billions_takes_no_memory_and_no_time() {
    let parts: Vec<_> = [(0.7, 3u64 << 32), (0.2, 1 << 31), (0.1, 5)]
        .map(|(weight, len)| (numbered("large", 0, len), weight))
        .into();
    let source = Mixture::new(parts, None).unwrap();
    // Of 10 draws the first part has 7, so its last sample comes in the last round.
    assert!(source.len().abs_diff((3u64 << 32) / 7 * 10) < 20);
    assert!(source.memory_bytes() < 3000 + 1000);
    let begin = std::time::Instant::now();
    for step in 0..10_000 {
        source.location(source.len() / 10_000 * step);
    }
    assert!(begin.elapsed().as_secs() < 5);
}

fn loader(mixture: Mixture) -> LoaderBuilder {
    Loader::builder(mixture, training())
        .device(DeviceChoice::Cpu)
        .workers(2)
        .batch(3)
        .last(Last::Partial)
}

fn pictures(from: u64, count: u64) -> Arc<dyn Source> {
    let jpegs = jpegs(from + count).split_off(from as usize);
    Arc::new(Memory::new(jpegs).unwrap())
}

fn mixed() -> Mixture {
    Mixture::new(vec![(pictures(0, 5), 2.0), (pictures(5, 9), 3.0)], Some(31)).unwrap()
}

/// Index, label and bytes of every sample of the next epoch.
fn epoch(loader: &Loader) -> Vec<(u64, i64, Vec<u8>)> {
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

/// With a global shuffle, every shard of every world size and a resumed loader together give each index once, with the
/// same label and the same bytes.
#[test]
fn shuffled_sharded_and_resumed_a_mixture_is_exact() {
    let source = mixed();
    let expected: BTreeMap<_, _> = (0..31).map(|it| (it, source.label(it))).collect();
    let whole = loader(mixed()).shuffle(true).seed(4).build().unwrap();
    let all = epoch(&whole);
    let seen: BTreeMap<_, _> = all.iter().map(|it| (it.0, it.1)).collect();
    assert_eq!((seen, all.len()), (expected, 31));
    let counts = all.iter().filter(|it| it.1 < 5).count();
    assert_eq!(counts, draws_of_first(&source), "the share of each part is exact over an epoch");

    let by_index: BTreeMap<_, _> = all.iter().map(|it| (it.0, it.clone())).collect();
    for world in [2, 3] {
        let shards = (0..world).flat_map(|rank| {
            epoch(&loader(mixed()).shuffle(true).seed(4).shard(rank, world).build().unwrap())
        });
        let shards: Vec<_> = shards.collect();
        assert_eq!(shards.len(), 31, "{world} shards");
        assert!(shards.iter().all(|it| by_index[&it.0] == *it), "{world} shards");
    }

    let first = loader(mixed()).shuffle(true).seed(4).build().unwrap();
    let begun: Vec<_> =
        (&first).into_iter().take(4).map(|it| it.unwrap().indices().collect::<Vec<_>>()).collect();
    let rest = epoch(&loader(mixed()).resume(first.state()).build().unwrap());
    assert_eq!(begun.concat(), all[..12].iter().map(|it| it.0).collect::<Vec<_>>());
    assert!(rest == all[12..]);
}

fn draws_of_first(source: &Mixture) -> usize {
    (0..source.len()).filter(|&index| source.label(index) < 5).count()
}

/// A folder with two classes of pictures, and one with three files without classes.
fn folders() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for (folder, count) in
        [("animals/cat", 3), ("animals/dog", 2), ("more/cow", 2), ("more/dog", 1)]
    {
        fs::create_dir_all(root.path().join(folder)).unwrap();
        for number in 0..count {
            let path = root.path().join(folder).join(format!("{number}.jpg"));
            fs::write(path, jpeg(number, 40, 30)).unwrap();
        }
    }
    root
}

const CHAIN: &str = "[[chain]]\nop = \"random_resized_crop\"\nwidth = 8\nheight = 8\n";

fn opened(text: &str, root: &tempfile::TempDir) -> Result<Arc<dyn Source>, Error> {
    Pipeline::from_toml(&format!("{text}\n{CHAIN}"), root.path())?.source.open()
}

/// Classes and file names, in order.
fn names(source: &dyn Source) -> Vec<String> {
    let name = |index| {
        let path = source.location(index);
        path.rsplit('/').take(2).collect::<Vec<_>>().into_iter().rev().collect::<Vec<_>>().join("/")
    };
    (0..source.len()).map(name).collect()
}

#[test]
fn a_pipeline_file_names_what_is_taken_of_a_source() {
    let root = folders();
    for (keys, expected) in [
        ("take = 2", vec!["cat/0.jpg", "cat/1.jpg"]),
        ("skip = 4", vec!["dog/1.jpg"]),
        ("subset = [4, 0]", vec!["dog/1.jpg", "cat/0.jpg"]),
        ("filter = { labels = [1] }", vec!["dog/0.jpg", "dog/1.jpg"]),
        ("filter = { classes = [\"dog\"], location = \"*/1.jpg\" }", vec!["dog/1.jpg"]),
        ("filter = { location = \"*cat/?.jpg\" }", vec!["cat/0.jpg", "cat/1.jpg", "cat/2.jpg"]),
        // Whatever the order in the file: filter, subset, skip, take, repeat.
        (
            "repeat = 2\ntake = 1\nskip = 1\nfilter = { classes = [\"cat\"] }",
            vec!["cat/1.jpg", "cat/1.jpg"],
        ),
    ] {
        let source = opened(&format!("[source]\ndirectory = \"animals\"\n{keys}"), &root).unwrap();
        assert_eq!(names(&*source), expected, "{keys}");
        assert_eq!(source.classes(), ["cat", "dog"]);
    }
}

const MIXED: &str = r#"
[source]
samples = 12
skip = 2
[[source.mixture]]
weight = 0.5
directory = "animals"
filter = { classes = ["cat"] }
[[source.mixture]]
weight = 0.25
directory = "more"
[[source.mixture]]
weight = 0.25
[[source.mixture.concat]]
directory = "more"
[[source.mixture.concat]]
directory = "animals"
take = 1
"#;

#[test]
fn a_pipeline_file_mixes_sources_and_is_written_again() {
    let root = folders();
    let source = opened(MIXED, &root).unwrap();
    assert_eq!(source.len(), 10);
    assert_eq!(source.classes(), ["cat", "dog", "cow"]);
    let all = names(&*source);
    for index in 0..source.len() {
        let class = &source.classes()[source.label(index) as usize];
        assert!(all[index as usize].starts_with(class.as_str()), "{all:?}");
    }
    let cats = all.iter().filter(|name| name.starts_with("cat")).count();
    assert!((5..=6).contains(&cats), "half of the samples, and one of the third source: {all:?}");

    let pipeline = Pipeline::from_toml(&format!("{MIXED}{CHAIN}"), root.path()).unwrap();
    let text = pipeline.to_toml().unwrap();
    assert!(text.contains("[[source.mixture]]\n") && text.contains("weight = 0.25"), "{text}");
    let again = Pipeline::from_toml(&text, "").unwrap();
    assert_eq!(again.source, pipeline.source);
    assert_eq!(again.to_toml().unwrap(), text);
    assert_eq!(names(&*again.source.open().unwrap()), all);
}

#[test]
fn what_is_wrong_is_told_with_its_key() {
    let root = folders();
    for (text, words) in [
        ("[source]\ntake = 3", "source: says nothing; write directory"),
        (
            "[source]\ndirectory = \"animals\"\ntake = -1",
            "source.take: must be an integer from 0 up",
        ),
        ("[source]\ndirectory = \"animals\"\ntake = 0", "source.take: must be at least 1, is 0"),
        (
            "[source]\ndirectory = \"animals\"\ntak = 3",
            "source.tak: unknown key, did you mean take?",
        ),
        (
            "[source]\ndirectory = \"animals\"\nfilter = { label = [1] }",
            "source.filter.label: unknown key, did you mean labels?",
        ),
        (
            "[source]\ndirectory = \"animals\"\nfilter = {}",
            "source.filter: says nothing; write labels, classes or location",
        ),
        (
            "[source]\ndirectory = \"animals\"\nfilter = { classes = [\"cat\", \"cow\"] }",
            "source.filter.classes[1]: is cow, which is none of the 2 classes of the source",
        ),
        ("[source]\nmixture = 3", "source.mixture: must be a list: [[source.mixture]], is integer"),
        ("[source]\nmixture = []", "source.mixture: has no sources; name at least one"),
        (
            "[source]\nmixture = [{ directory = \"animals\", weight = 0 }]",
            "source.mixture[0].weight: must be above 0 and at most 1e9, is 0",
        ),
        (
            "[source]\nmixture = [{ directory = \"animals\", weight = \"a\" }]",
            "source.mixture[0].weight: must be a number",
        ),
        (
            "[source]\nconcat = [{ directory = \"animals\" }, { directory = \"more\", skip = 3 }]",
            "source.concat[1].skip: is 3, the source has 3 samples: none is left",
        ),
        (
            "[source]\nconcat = [{ directory = \"animals\", weight = 1 }]",
            "source.concat[0].weight: only the sources of a mixture have one; leave it out",
        ),
        (
            "[source]\nsample = 3\nmixture = [{ directory = \"animals\" }]",
            "source.sample: unknown key, did you mean samples?",
        ),
        (
            "[source]\ndirectory = \"a\"\nconcat = [{ directory = \"animals\" }]",
            "source: has both directory and concat; leave one of them out",
        ),
        (
            "[source]\nmixture = [{ concat = [{ direktory = \"animals\" }] }]",
            "source.mixture[0].concat[0].direktory: unknown key, did you mean directory?",
        ),
    ] {
        let found = refusal(opened(text, &root));
        assert!(found.starts_with(words), "{text}\n{found}");
    }
    let deep = (0..18)
        .fold("{ directory = \"a\" }".to_string(), |inner, _| format!("{{ concat = [{inner}] }}"));
    let found = refusal(opened(&format!("source = {deep}"), &root));
    assert!(found.contains("more than 16 levels deep"), "{found}");
}
