//! Columns of several texts per sample, and columns that pick one of several texts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{batches, builder, listed, sample_error, shared, with_field};
use crate::common::jpegs;
use crate::with_fields::{Values, WithFields};
use feedwater::Source;
use feedwater::error::Reason;
use feedwater::internals::random::SampleKey;
use feedwater::loader::Batch;
use feedwater::plan::{CellKind, ColumnSettings, DefaultValue, OnError, Pick, TooLong};
use feedwater::source::Memory;
use proptest::prelude::*;
use serde_json::json;

/// Texts of a sample in a batch.
fn texts(batch: &Batch, column: &str, place: usize) -> Vec<String> {
    let texts = batch.column(column).unwrap().texts(place).unwrap();
    texts.map(String::from).collect()
}

fn most(max_len: usize, max_texts: usize, too_long: TooLong) -> ColumnSettings {
    let (max_len, max_texts) = (Some(max_len), Some(max_texts));
    ColumnSettings { max_len, max_texts, too_long, ..ColumnSettings::texts("t") }
}

fn picking(pick: Pick) -> ColumnSettings {
    ColumnSettings { pick: Some(pick), ..ColumnSettings::text("t") }
}

/// Texts in cells of tables, keys of JSON, entries of objects, and single texts.
#[test]
fn every_form_of_texts_is_read() {
    let table = "path,t\n0.jpg,\"[\"\"a, b\"\", \"\"é\"\"]\"\n1.jpg,plain\n2.jpg,[]\n\
                 3.jpg, [\"\"]\n";
    let lines = "{\"path\": \"0.jpg\", \"t\": [\"a, b\", \"é\"]}\n\
                 {\"path\": \"1.jpg\", \"t\": \"plain\"}\n\
                 {\"path\": \"2.jpg\", \"t\": []}\n\
                 {\"path\": \"3.jpg\", \"t\": [\"\"]}\n";
    let nested = "{\"path\": \"0.jpg\", \"m\": {\"all\": [{\"c\": \"a, b\"}, {\"c\": \"é\"}]}}\n\
                  {\"path\": \"1.jpg\", \"m\": {\"all\": [{\"c\": \"plain\"}]}}\n\
                  {\"path\": \"2.jpg\", \"m\": {\"all\": []}}\n\
                  {\"path\": \"3.jpg\", \"m\": {\"all\": [{\"c\": \"\"}]}}\n";
    for (name, content, field) in
        [("list.csv", table, "t"), ("list.jsonl", lines, "t"), ("list.jsonl", nested, "m:all[*].c")]
    {
        let (_folder, list) = listed(name, 4, content);
        let column = with_field(field, ColumnSettings::texts("t"));
        let batch = &batches(builder(list, vec![column])).unwrap()[0];
        let found: Vec<_> = (0..4).map(|place| texts(batch, "t", place)).collect();
        assert_eq!(found, [vec!["a, b", "é"], vec!["plain"], vec![], vec![""]], "{content}");
        let column = batch.column("t").unwrap();
        assert_eq!(column.kind(), CellKind::Texts);
        // Arrow's layout: offsets of the samples into the texts, and of the texts into the bytes.
        assert_eq!(column.offsets().unwrap(), [0, 2, 3, 3, 4]);
        assert_eq!(column.text_offsets().unwrap(), [0, 4, 6, 11, 11]);
        assert_eq!(column.as_slice::<u8>().unwrap(), "a, béplain".as_bytes());
        assert_eq!((column.shape(), column.len_bytes()), (vec![11], 11));
        assert_eq!(column.sample::<u8>(0), Some("a, bé".as_bytes()));
        assert!(column.texts(4).is_none() && column.texts(usize::MAX).is_none());
        assert_eq!((column.text(0), column.sample::<u8>(4)), (None, None));
        assert!(batch.column("image").unwrap().texts(0).is_none());
    }
}

#[test]
fn too_many_or_too_long_texts_are_errors_or_cut_or_skipped() {
    let lines = "{\"path\": \"0.jpg\", \"t\": [\"abé\", \"éé\", \"x\"]}\n\
                 {\"path\": \"1.jpg\", \"t\": [\"a\", \"\", \"b\", \"c\"]}\n\
                 {\"path\": \"2.jpg\", \"t\": [\"abcdefg\"]}\n\
                 {\"path\": \"3.jpg\", \"t\": [\"éabcé\", \"\", \"d\"]}\n";
    let open = || listed("list.jsonl", 4, lines);
    for (max_len, max_texts, words) in [
        (8, 3, "the value has 9 bytes, and the column's max_len is 8 bytes; raise max_len, or"),
        (9, 2, "the value has 3 texts, and the column's max_texts is 2 texts; raise max_texts, or"),
    ] {
        let (_folder, list) = open();
        let column = most(max_len, max_texts, TooLong::Error);
        let (index, reason, problem) = sample_error(builder(list, vec![column]));
        assert_eq!((index, reason), (0, Reason::TooLong));
        assert!(problem.contains(words), "{problem}");
    }

    let (_folder, list) = open();
    let builder_of = |list, column| builder(list, vec![column]);
    let mut loader = builder_of(list, most(7, 3, TooLong::Truncate)).build().unwrap();
    let batch = loader.epoch().next().unwrap().unwrap();
    let found: Vec<_> = (0..4).map(|place| texts(&batch, "t", place)).collect();
    // The text that does not fit is cut between two characters, and later texts are left out, even
    // if they would fit. A text of which nothing fits is left out.
    assert_eq!(found, [vec!["abé", "é"], vec!["a", "", "b"], vec!["abcdefg"], vec!["éabcé", ""]]);
    assert_eq!(batch.samples().iter().map(|it| it.truncated).collect::<Vec<_>>(), [1, 1, 0, 1]);
    drop(batch);
    assert_eq!(loader.stats().truncated["t"], 3);

    let (_folder, list) = open();
    let batch = batches(builder_of(list, most(7, 3, TooLong::Skip))).unwrap().remove(0);
    assert!(batch.indices().all(|index| index == 2));
    let (_folder, list) = open();
    let batch = batches(builder_of(list, most(9, 4, TooLong::Error))).unwrap().remove(0);
    assert_eq!(texts(&batch, "t", 0), ["abé", "éé", "x"]);
    assert_eq!(texts(&batch, "t", 1), ["a", "", "b", "c"]);
}

/// Values of another type, and damaged text, fail their sample with an error that names the field
/// and the value, for all texts as for one of them.
#[test]
fn other_values_are_errors_that_name_them() {
    for (value, words) in [
        ("1", "the value is the number 1, but the column takes "),
        ("true", "the value is the number 1, but the column takes "),
        ("[\"a\", 2]", "the value is a list with the number 2 in it, but the column takes "),
        ("[[\"a\"]]", "the value is a list of lists, but the column takes "),
        ("[\"a\", null]", "entry 1 of the list is null"),
        ("[\"a\", {}]", "the value is an object"),
        ("{\"a\": 1}", "the value is an object"),
    ] {
        for column in [ColumnSettings::texts("t"), picking(Pick::First), picking(Pick::Random)] {
            let lines = format!("{{\"path\": \"0.jpg\", \"t\": {value}}}\n");
            let (_folder, list) = listed("list.jsonl", 1, &lines);
            let (_, reason, problem) = sample_error(builder(list, vec![column.clone()]));
            assert_eq!(reason, Reason::Field, "{value}");
            assert!(problem.contains("\"t\"") && problem.contains(words), "{value}: {problem}");
            let taken = match column.pick {
                Some(_) => "a text or a list of texts",
                None => "a list of texts",
            };
            assert!(!words.ends_with("takes ") || problem.ends_with(taken), "{problem}");
        }
    }
    for (cell, words) in [
        ("[\"\"a\"\"", "is not JSON"),
        ("['a', 'b']", "json.dumps"),
        ("[\"\"a\"\"] b", "write such a text as [\"…\"]"),
        ("[ 'sic' ] a", "is not JSON"),
        ("[1]", "a list with the number 1 in it"),
    ] {
        for column in [ColumnSettings::texts("t"), picking(Pick::Random)] {
            let table = format!("path,t\n0.jpg,\"{cell}\"\n");
            let (_folder, list) = listed("list.csv", 1, &table);
            let (_, reason, problem) = sample_error(builder(list, vec![column]));
            assert_eq!(reason, Reason::Field, "{cell}");
            assert!(problem.contains(words), "{cell}: {problem}");
        }
    }
    let files = [b"\xff\xfe".to_vec(), b"[\"\xff\"]".to_vec()];
    for (file, column) in [
        (0, ColumnSettings::texts("t")),
        (1, ColumnSettings::texts("t")),
        (1, picking(Pick::First)),
    ] {
        let fields = vec![("t", Values::Files(vec![files[file].clone()]))];
        let source = WithFields { images: Memory::new(jpegs(1)).unwrap(), fields };
        let (_, reason, _) = sample_error(builder(source, vec![column]));
        assert_eq!(reason, Reason::Field);
    }
    let fields = vec![("t", Values::Lists(vec![vec![1.0]]))];
    let source = WithFields { images: Memory::new(jpegs(1)).unwrap(), fields };
    let (_, _, problem) = sample_error(builder(source, vec![ColumnSettings::texts("t")]));
    assert!(
        problem.contains("a list of 1 number, but the column takes a list of texts"),
        "{problem}"
    );
}

/// Null and an empty text are missing values. An empty list is missing only for `pick`.
#[test]
fn missing_texts_have_the_default() {
    let lines = "{\"path\": \"0.jpg\"}\n{\"path\": \"1.jpg\", \"t\": null}\n\
                 {\"path\": \"2.jpg\", \"t\": \"\"}\n{\"path\": \"3.jpg\", \"t\": []}\n\
                 {\"path\": \"4.jpg\", \"t\": [\"\"]}\n{\"path\": \"5.jpg\", \"t\": [\"a\"]}\n";
    let word = |text: &str| DefaultValue::Text(text.into());
    let default = DefaultValue::List(vec![word("x"), word("yz")]);
    let all = ColumnSettings { default: Some(default), ..ColumnSettings::texts("t") };
    let (_folder, list) = listed("list.jsonl", 6, lines);
    let mut loader = builder(list, vec![all]).batch_size(6).build().unwrap();
    let batch = loader.epoch().next().unwrap().unwrap();
    let found: Vec<_> = (0..6).map(|place| texts(&batch, "t", place)).collect();
    let missing = || vec!["x", "yz"];
    assert_eq!(found, [missing(), missing(), missing(), vec![], vec![""], vec!["a"]]);
    drop(batch);
    assert_eq!(loader.stats().defaulted["t"], 3);

    for pick in [Pick::First, Pick::Random] {
        let column = ColumnSettings { default: Some(word("none")), ..picking(pick) };
        let (_folder, list) = listed("list.jsonl", 6, lines);
        let batch = batches(builder(list, vec![column]).batch_size(6)).unwrap().remove(0);
        let found: Vec<_> = (0..6).map(|it| batch.column("t").unwrap().text(it).unwrap()).collect();
        assert_eq!(found, ["none", "none", "none", "none", "none", "a"]);
        let (_folder, list) = listed("list.jsonl", 6, lines);
        let (index, reason, problem) = sample_error(builder(list, vec![picking(pick)]));
        assert_eq!((index, reason), (0, Reason::Field));
        assert!(problem.contains("is missing"), "{problem}");
    }
    let (_folder, list) = listed("list.jsonl", 6, lines);
    let builder = builder(list, vec![ColumnSettings::texts("t")]).on_error(OnError::Substitute);
    let batch = batches(builder.batch_size(6)).unwrap().remove(0);
    let found: Vec<_> = (0..6).map(|place| texts(&batch, "t", place)).collect();
    assert_eq!(found, [vec![], vec![], vec![], vec![], vec![""], vec!["a"]]);
}

/// Only the text that is picked has a maximum length.
#[test]
fn the_length_of_the_picked_text_counts() {
    let lines = "{\"path\": \"0.jpg\", \"t\": [\"ab\", \"long é\"]}\n";
    let column = |pick| ColumnSettings { max_len: Some(3), ..picking(pick) };
    let (_folder, list) = listed("list.jsonl", 1, lines);
    let batch = &batches(builder(list, vec![column(Pick::First)])).unwrap()[0];
    assert_eq!(batch.column("t").unwrap().text(0), Some("ab"));
    let (_folder, list) = listed("list.jsonl", 1, lines);
    let column = ColumnSettings { too_long: TooLong::Truncate, ..column(Pick::Random) };
    let mut seen = BTreeSet::new();
    for batch in batches(builder(list, vec![column]).epochs(Some(30))).unwrap() {
        let text = batch.column("t").unwrap().text(0).unwrap().to_string();
        seen.insert((text, batch.samples()[0].truncated));
    }
    assert_eq!(seen, [("ab".into(), 0), ("lon".into(), 1)].into());
}

/// Ten samples with 1 to 10 texts.
fn several() -> (tempfile::TempDir, Arc<dyn Source>) {
    let lines = (0..10).map(|number| {
        let texts: Vec<_> = (0..=number).map(|text| format!("{number} {text}")).collect();
        format!("{}\n", json!({"path": format!("{number}.jpg"), "t": texts}))
    });
    let (folder, list) = listed("list.jsonl", 10, &lines.collect::<String>());
    (folder, Arc::new(list))
}

/// The picked text of each sample, by epoch, sample and number of its occurrence in the epoch.
fn picked(builder: feedwater::loader::LoaderBuilder) -> BTreeMap<(u32, u64, usize), String> {
    let (mut picked, mut seen) = (BTreeMap::new(), BTreeMap::new());
    for batch in batches(builder).unwrap() {
        for (place, index) in batch.indices().enumerate() {
            let count = seen.entry((batch.epoch(), index)).or_insert(0);
            let text = batch.column("t").unwrap().text(place).unwrap().to_string();
            picked.insert((batch.epoch(), index, *count), text);
            *count += 1;
        }
    }
    picked
}

/// The text depends on the seed, the epoch, the sample and the name of the column, as the key says.
/// It depends neither on workers and batch sizes nor on the place where the epoch begins.
#[test]
fn a_random_text_is_drawn_by_the_key_of_the_sample() {
    let (_folder, source) = several();
    let random = || picking(Pick::Random);
    let open = |seed, columns| shared(source.clone(), columns).seed(seed).epochs(Some(4));
    let found = picked(open(7, vec![random()]));
    assert_eq!(found.len(), 40);
    for ((epoch, index, _), text) in &found {
        let draw = SampleKey { seed: 7, epoch: *epoch, index: *index }.draw_of_column("t");
        let chosen = (u128::from(draw) * u128::from(index + 1)) >> 64;
        assert_eq!(*text, format!("{index} {chosen}"));
    }
    let of_epoch = |epoch| {
        let texts = found.iter().filter(move |(key, _)| key.0 == epoch);
        texts.map(|(_, text)| text.clone()).collect::<Vec<_>>()
    };
    assert!(of_epoch(0) != of_epoch(1) && of_epoch(1) != of_epoch(2));
    for (workers, batch_size, shuffle) in [(1, 1, true), (3, 4, true), (2, 7, false)] {
        let builder = open(7, vec![ColumnSettings::array("path", super::F32, &[]), random()]);
        let builder = builder.configure(|it| {
            it.columns.remove(0);
        });
        let builder = builder.num_workers(workers).batch_size(batch_size).shuffle(shuffle);
        assert_eq!(picked(builder), found, "{workers} {batch_size}");
    }
    assert_ne!(picked(open(8, vec![random()])), found);
    let other = ColumnSettings { name: "other".into(), ..with_field("t", random()) };
    let both = batches(open(7, vec![random(), other]).batch_size(10)).unwrap();
    let differ = both.iter().any(|batch| {
        let [a, b] = ["t", "other"].map(|name| batch.column(name).unwrap());
        (0..10).any(|place| a.text(place) != b.text(place))
    });
    assert!(differ);
    let texts = |batch: &Batch| {
        (0..batch.len())
            .map(|it| batch.column("t").unwrap().text(it).unwrap().to_string())
            .collect()
    };
    let of_t: Vec<String> = both.iter().flat_map(|batch| -> Vec<String> { texts(batch) }).collect();
    assert_eq!(of_t, found.values().cloned().collect::<Vec<_>>());
}

/// Repeats of a sample within an epoch draw other texts.
#[test]
fn repeats_of_a_sample_draw_other_texts() {
    let (_folder, source) = several();
    let open = |workers| {
        let builder = shared(source.clone(), vec![picking(Pick::Random)]).num_workers(workers);
        builder.shuffle(true).epochs(Some(3)).configure(|it| it.loader.repeats = 5)
    };
    let found = picked(open(1));
    assert_eq!(found, picked(open(3)));
    let mut texts = BTreeMap::new();
    for ((epoch, index, _), text) in found {
        texts.entry((epoch, index)).or_insert_with(BTreeSet::new).insert(text);
    }
    assert!(texts.values().any(|texts| texts.len() > 1), "{texts:?}");
}

/// All texts of a sample occur equally often.
#[test]
fn random_texts_are_uniform() {
    let mut counts = [0_u32; 5];
    for index in 0..5000 {
        let draw = SampleKey { seed: 3, epoch: 1, index }.draw_of_column("t");
        counts[((u128::from(draw) * 5) >> 64) as usize] += 1;
    }
    // 1000 of each are expected, with a standard deviation of 28.
    assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..Default::default() })]
    /// Random texts arrive whole, for any batch size, number of workers and place of failing
    /// images.
    #[test]
    fn the_texts_of_every_sample_arrive(
        lists in prop::collection::vec(prop::collection::vec("[aé日]{0,6}", 0..9), 1..24),
        failing in any::<u32>(),
        (batch_size, workers, seed) in (1_usize..9, 1_usize..4, any::<u8>()),
    ) {
        let mut samples = jpegs(lists.len() as u64);
        for (number, sample) in samples.iter_mut().enumerate() {
            if failing >> number & 7 == 7 {
                sample.0 = b"no image".to_vec();
            }
        }
        let cells = lists.iter().map(|list| json!(list).to_string()).collect();
        let fields = vec![("t", Values::Texts(cells))];
        let source = WithFields { images: Memory::new(samples).unwrap(), fields };
        let builder = builder(source, vec![most(8 * 18, 8, TooLong::Error)]);
        let builder = builder.batch_size(batch_size).num_workers(workers).shuffle(true);
        let builder = builder.seed(seed.into()).on_error(OnError::Drop).epochs(Some(2));
        let mut compared = 0;
        for batch in batches(builder).unwrap() {
            let column = batch.column("t").unwrap();
            prop_assert_eq!(column.offsets().unwrap().len(), batch.len() + 1);
            for (place, index) in batch.indices().enumerate() {
                prop_assert_eq!(texts(&batch, "t", place), lists[index as usize].clone());
                compared += 1;
            }
        }
        let failing = (0..lists.len()).filter(|number| failing >> number & 7 == 7).count();
        prop_assert_eq!(compared, 2 * (lists.len() - failing));
    }
}

/// A caption may begin with a bracket. A value of JSON is what it is there.
#[test]
fn a_text_that_begins_with_a_bracket_and_is_not_json_is_one_text() {
    let cells = ["[sic] a dog", " [1] a cat", "[", "[a, b]", "[1, 2", "[é]"];
    let rows: String =
        (0..).zip(cells).map(|(row, cell)| format!("{row}.jpg,\"{cell}\"\n")).collect();
    let (_folder, list) = listed("list.csv", cells.len(), &format!("path,t\n{rows}"));
    let columns = vec![
        ColumnSettings::texts("t"),
        ColumnSettings { name: "p".into(), field: Some("t".into()), ..picking(Pick::Random) },
    ];
    let found = batches(builder(list, columns).batch_size(cells.len())).unwrap();
    for (place, cell) in cells.into_iter().enumerate() {
        assert_eq!(texts(&found[0], "t", place), [cell]);
        assert_eq!(found[0].column("p").unwrap().text(place), Some(cell));
    }
    // The bytes of a file, also if they are not a text.
    let files = [b"[sic]".to_vec(), b"[\xff".to_vec()];
    let source = |file: &Vec<u8>| {
        let fields = vec![("t", Values::Files(vec![file.clone()]))];
        WithFields { images: Memory::new(jpegs(1)).unwrap(), fields }
    };
    let found = batches(builder(source(&files[0]), vec![ColumnSettings::texts("t")])).unwrap();
    assert_eq!(texts(&found[0], "t", 0), ["[sic]"]);
    let (_, _, problem) =
        sample_error(builder(source(&files[1]), vec![ColumnSettings::texts("t")]));
    assert!(problem.contains("UTF-8"), "{problem}");
    // A field of JSON.
    let lines = "{\"path\": \"0.jpg\", \"t\": \"[sic]\"}\n";
    let (_folder, list) = listed("list.jsonl", 1, lines);
    let found = batches(builder(list, vec![ColumnSettings::texts("t")])).unwrap();
    assert_eq!(texts(&found[0], "t", 0), ["[sic]"]);
    let (_folder, list) = listed("list.csv", 1, "path,t\n0.jpg,[sic]\n");
    let (_, reason, problem) =
        sample_error(builder(list, vec![with_field("t:[0]", ColumnSettings::text("c"))]));
    assert_eq!(reason, Reason::Field);
    assert!(problem.contains("is not JSON"), "{problem}");
}
