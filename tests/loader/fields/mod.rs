//! Columns that are made from fields of the source.

mod beton;
mod coco;
mod image_headers;
mod join;
mod join_sources;
mod npy;
mod npy_files;
mod npz_files;
mod parquet;
mod parquet_pages;
mod ragged;
mod reading;
mod schemas;
mod side_files;
mod texts;
mod tfrecord;
mod values;
mod webdataset;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use crate::common::{jpegs, training};
use feedwater::error::{Error, Reason, Result};
use feedwater::loader::{Batch, DeviceChoice, LoaderBuilder};
use feedwater::plan::{ColumnSettings, DefaultValue, LastBatch};
use feedwater::source::{Concat, FileList, Memory};
use feedwater::{ElementType, Pipeline, Source};

pub const F32: ElementType = ElementType::F32;
pub const I64: ElementType = ElementType::I64;

/// Images in a folder, with a list that has these lines.
pub fn listed(name: &str, images: usize, lines: &str) -> (tempfile::TempDir, FileList) {
    let folder = folder(images);
    let list = folder.path().join(name);
    fs::write(&list, lines).unwrap();
    let opened = FileList::open(&list).unwrap();
    (folder, opened)
}

/// Folder with the images `0.jpg`, `1.jpg` and so on.
pub fn folder(images: usize) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (number, (bytes, _)) in jpegs(images as u64).into_iter().enumerate() {
        fs::write(folder.path().join(format!("{number}.jpg")), bytes).unwrap();
    }
    folder
}

pub fn builder(source: impl Source + 'static, columns: Vec<ColumnSettings>) -> LoaderBuilder {
    shared(Arc::new(source), columns)
}

pub fn shared(source: Arc<dyn Source>, columns: Vec<ColumnSettings>) -> LoaderBuilder {
    let builder = LoaderBuilder::new(source, training()).batch_size(4).device(DeviceChoice::Cpu);
    builder.epochs(Some(1)).configure(|it| {
        it.loader.last_batch = LastBatch::Partial;
        it.columns = columns;
    })
}

pub fn batches(builder: LoaderBuilder) -> Result<Vec<Batch>> {
    builder.add_batches(true).build()?.into_batches().collect()
}

/// Texts of a column, with the index of the sample.
fn texts(batches: &[Batch], column: &str) -> Vec<(u64, String)> {
    let of_batch = |batch: &Batch| {
        let text = |place| batch.column(column).unwrap().text(place).unwrap().to_string();
        batch.indices().enumerate().map(|(place, index)| (index, text(place))).collect::<Vec<_>>()
    };
    batches.iter().flat_map(of_batch).collect()
}

/// The error of the first sample that fails.
pub fn sample_error(builder: LoaderBuilder) -> (u64, Reason, String) {
    match batches(builder) {
        Err(Error::Sample(error)) => (error.index, error.reason, error.problem),
        other => panic!("{:?}", other.map(|it| it.len())),
    }
}

pub fn with_field(field: &str, column: ColumnSettings) -> ColumnSettings {
    ColumnSettings { field: Some(field.into()), ..column }
}

#[test]
fn columns_of_a_table_have_the_values_of_the_sample() {
    let mut lines = "\u{feff}path,caption,score,box,tags,label\r\n".to_string();
    for number in 0..10 {
        let tags: Vec<i64> = (0..number).collect();
        // Quotes, commas and line ends in fields, and blank lines.
        lines += &format!(
            "{number}.jpg,\"no. {number}, \"\"é\"\"\nnext line\",{number}.25,\"[{number}, 1, 2.5, -1]\",\"{tags:?}\",{number}\r\n"
        );
        lines += if number % 3 == 0 { "\r\n" } else { "" };
    }
    let (_folder, list) = listed("list.csv", 10, &lines);
    let columns = vec![
        ColumnSettings::text("caption"),
        ColumnSettings::array("score", F32, &[]),
        ColumnSettings::array("box", F32, &[4]),
        ColumnSettings::list("tags", I64, &[]),
        with_field("label", ColumnSettings::bytes("written")),
    ];
    for (workers, batch_size) in [(1, 4), (3, 3), (2, 16)] {
        let builder = builder(FileList::open(list_path(&list)).unwrap(), columns.clone());
        let builder = builder.num_workers(workers).batch_size(batch_size).shuffle(true);
        let batches = batches(builder).unwrap();
        assert_eq!(batches.iter().map(Batch::len).sum::<usize>(), 10);
        for batch in &batches {
            let column = |name| batch.column(name).unwrap();
            let names: Vec<_> = batch.columns().map(|it| it.name().to_string()).collect();
            assert_eq!(names, ["image", "label", "caption", "score", "box", "tags", "written"]);
            let scores = column("score").as_slice::<f32>().unwrap();
            assert_eq!(column("box").shape(), [batch.len(), 4]);
            let offsets = column("tags").offsets().unwrap();
            assert_eq!(column("tags").shape(), [offsets[batch.len()] as usize]);
            for (place, index) in batch.indices().enumerate() {
                let number = index as f32;
                let caption = format!("no. {index}, \"é\"\nnext line");
                assert_eq!(column("caption").text(place), Some(&*caption));
                assert_eq!(scores[place], number + 0.25);
                assert_eq!(column("box").sample(place), Some(&[number, 1.0, 2.5, -1.0][..]));
                let tags: Vec<i64> = (0..index as i64).collect();
                assert_eq!(column("tags").sample(place), Some(&tags[..]));
                assert_eq!(column("written").sample(place), Some(index.to_string().as_bytes()));
                assert_eq!(batch.labels()[place], index as i64);
            }
        }
    }
}

fn list_path(list: &FileList) -> std::path::PathBuf {
    list.path(0).parent().unwrap().join("list.csv")
}

#[test]
fn columns_of_json_lines_follow_paths() {
    let mut lines = String::new();
    for number in 0..6 {
        let boxes: Vec<String> =
            (0..number).map(|it| format!("{{\"x\": [{it}, {number}], \"y\": null}}")).collect();
        lines += &format!(
            "{{\"image\": \"{number}.jpg\", \"meta\": {{\"score\": {number}, \"a.b\": [true, {{\"deep\": \"t{number}\"}}]}}, \
             \"boxes\": [{}], \"text\": \"{{\\\"inner\\\": {number}}}\"}}\n\n",
            boxes.join(", ")
        );
    }
    let (_folder, list) = listed("list.jsonl", 6, &lines);
    let columns = vec![
        with_field("meta:score", ColumnSettings::array("score", I64, &[])),
        with_field("meta:[\"a.b\"][1].deep", ColumnSettings::text("deep")),
        with_field("meta:[\"a.b\"][0]", ColumnSettings::array("flag", ElementType::U8, &[])),
        with_field("boxes:[*].x", ColumnSettings::list("x", F32, &[2])),
        ColumnSettings {
            default: Some(DefaultValue::Integer(-1)),
            ..with_field("meta:none", ColumnSettings::array("none", I64, &[]))
        },
    ];
    let batches = batches(builder(list, columns)).unwrap();
    assert_eq!(batches.len(), 2);
    for batch in &batches {
        let column = |name| batch.column(name).unwrap();
        for (place, index) in batch.indices().enumerate() {
            assert_eq!(column("score").sample(place), Some(&[index as i64][..]));
            assert_eq!(column("deep").text(place), Some(&*format!("t{index}")));
            assert_eq!(column("flag").sample(place), Some(&[1_u8][..]));
            assert_eq!(column("none").sample(place), Some(&[-1_i64][..]));
            let x: Vec<f32> = (0..index).flat_map(|it| [it as f32, index as f32]).collect();
            assert_eq!(column("x").sample(place), Some(&x[..]));
        }
    }
}

#[test]
fn values_that_do_not_fit_are_errors_that_name_field_and_value() {
    let good = "0.jpg,1,a,\"[1, 2]\"\n";
    for (row, column, words) in [
        ("1.jpg,,b,\"[1, 2]\"", ColumnSettings::array("n", F32, &[]), "the field \"n\" is missing"),
        (
            "1.jpg,x,b,\"[1, 2]\"",
            ColumnSettings::array("n", F32, &[]),
            "the text \"x\", but the column takes f32",
        ),
        (
            "1.jpg,1.5,b,\"[1, 2]\"",
            ColumnSettings::array("n", I64, &[]),
            "1.5 is not a whole number",
        ),
        (
            "1.jpg,nan,b,\"[1, 2]\"",
            ColumnSettings::array("n", I64, &[]),
            "NaN is not a whole number",
        ),
        (
            "1.jpg,256,b,\"[1, 2]\"",
            ColumnSettings::array("n", ElementType::U8, &[]),
            "256 is not between 0 and 255",
        ),
        (
            "1.jpg,9007199254740993,b,\"[1, 2]\"",
            ColumnSettings::array("n", F32, &[]),
            "beyond 2^53",
        ),
        ("1.jpg,1e39,b,\"[1, 2]\"", ColumnSettings::array("n", F32, &[]), "is not between"),
        ("1.jpg,1,,\"[1, 2]\"", ColumnSettings::text("t"), "the field \"t\" is missing"),
        (
            "1.jpg,1,b,\"[1, 2, 3]\"",
            ColumnSettings::array("l", F32, &[2]),
            "a list of 3 entries in place of 2",
        ),
        (
            "1.jpg,1,b,\"[1]\"",
            ColumnSettings::array("l", F32, &[2]),
            "a list of 1 entry in place of 2",
        ),
        ("1.jpg,1,b,\"[1, [2]]\"", ColumnSettings::array("l", F32, &[2]), "a list of lists"),
        ("1.jpg,1,b,\"[1, \"\"x\"\"]\"", ColumnSettings::array("l", F32, &[2]), "the text \"x\""),
        (
            "1.jpg,1,b,\"[1, null]\"",
            ColumnSettings::array("l", F32, &[2]),
            "entry 1 of the list is null",
        ),
        ("1.jpg,1,b,\"[1, 2\"", ColumnSettings::array("l", F32, &[2]), "is not JSON"),
        ("1.jpg,1,b,7", ColumnSettings::array("l", F32, &[2]), "the number 7"),
        ("1.jpg,1,b,\"[1, 2] 3\"", ColumnSettings::array("l", F32, &[2]), "is not JSON"),
    ] {
        let (_folder, list) = listed("list.csv", 2, &format!("path,n,t,l\n{good}{row}\n"));
        let (index, reason, problem) = sample_error(builder(list, vec![column.clone()]));
        assert_eq!((index, reason), (1, Reason::Field), "{row}");
        assert!(problem.contains(words) && problem.contains(&column.name), "{row}: {problem}");
    }
}

#[test]
fn a_field_that_the_source_lacks_is_an_error_before_the_start() {
    let (_folder, list) = listed("list.csv", 1, "path,caption,label\n0.jpg,a,0\n");
    let config = |builder: LoaderBuilder| match builder.build() {
        Err(Error::Config(error)) => (error.key, error.problem),
        other => panic!("{:?}", other.err()),
    };
    let list = Arc::new(list);
    let (key, problem) = config(shared(list.clone(), vec![ColumnSettings::text("captoin")]));
    assert_eq!(key, "column[0].name");
    assert!(problem.contains("path, caption, label; did you mean caption?"), "{problem}");
    let (_, problem) = config(shared(list.clone(), vec![ColumnSettings::text("depth")]));
    assert!(problem.ends_with("path, caption, label"), "{problem}");
    let of_field = with_field("meta:a", ColumnSettings::text("a"));
    let (key, _) = config(shared(list.clone(), vec![ColumnSettings::text("caption"), of_field]));
    assert_eq!(key, "column[1].field");
    let (_, problem) =
        config(builder(Memory::new(jpegs(2)).unwrap(), vec![ColumnSettings::text("a")]));
    assert!(problem.contains("no fields besides image and label"), "{problem}");
    let parts: Vec<Arc<dyn Source>> = vec![list, Arc::new(Memory::new(jpegs(2)).unwrap())];
    let (_, problem) =
        config(builder(Concat::new(parts).unwrap(), vec![ColumnSettings::text("caption")]));
    assert!(problem.contains("one of the combined sources lacks: memory: 2 samples"), "{problem}");
}

/// The targets of a model may be columns, so the list needs no labels then.
#[test]
fn a_list_without_labels_causes_a_warning_only_without_columns() {
    for (columns, is_warned) in [(vec![], true), (vec![ColumnSettings::text("caption")], false)] {
        let (_folder, list) = listed("list.csv", 1, "path,caption\n0.jpg,a\n");
        let loader = builder(list, columns).build().unwrap();
        let warned = loader.warnings().iter().any(|it| it.contains("no column is named"));
        assert_eq!(warned, is_warned);
    }
}

#[test]
fn combined_sources_read_the_fields_of_their_parts() {
    let (_one, one) = listed("list.csv", 2, "path,caption\n0.jpg,a\n1.jpg,b\n");
    let (_two, two) = listed("list.tsv", 2, "path\tother\tcaption\n1.jpg\t\tc\n0.jpg\t\td\n");
    let parts: Vec<Arc<dyn Source>> = vec![Arc::new(one), Arc::new(two)];
    let all = Concat::new(parts).unwrap();
    assert_eq!(
        all.fields().unwrap().schema().iter().map(|it| it.name.clone()).collect::<Vec<_>>(),
        ["path", "caption"]
    );
    let batches = batches(builder(all, vec![ColumnSettings::text("caption")])).unwrap();
    let expected =
        [(0, "a"), (1, "b"), (2, "c"), (3, "d")].map(|(index, text)| (index, text.to_string()));
    assert_eq!(texts(&batches, "caption"), expected);
}

#[test]
fn names_of_fields_are_unique_and_paths_begin_with_a_colon() {
    let problem = |name: &str, content: &str, column: ColumnSettings| {
        let (_folder, list) = listed(name, 1, content);
        match builder(list, vec![column]).build() {
            Err(Error::Config(error)) => error.problem,
            other => panic!("{:?}", other.err()),
        }
    };
    let twice = problem("list.csv", "path,v, v\n0.jpg,a,b\n", ColumnSettings::text("v"));
    assert!(twice.contains("more than once"), "{twice}");
    let line = "{\"path\": \"0.jpg\", \"meta\": {\"a\": 1}, \"label\": 1}\n";
    let dotted = problem("list.jsonl", line, with_field("meta.a[0]", ColumnSettings::text("a")));
    assert!(dotted.ends_with("a path begins with a colon: meta:a[0]"), "{dotted}");
    let unquoted = problem("list.jsonl", line, with_field("meta:a b", ColumnSettings::text("a")));
    assert!(unquoted.contains("write [\"a b\"]"), "{unquoted}");
}

/// A byte-order mark at the beginning of a row is a part of its first field, as when the list is
/// opened.
#[test]
fn rows_that_begin_with_a_byte_order_mark_have_the_same_fields() {
    let rows = "x,path,y\n\u{feff}ab,0.jpg,c\n\u{feff}d,1.jpg,e\n";
    let (_folder, list) = listed("list.csv", 2, rows);
    let batches =
        batches(builder(list, vec![ColumnSettings::text("x"), ColumnSettings::text("y")]));
    let batches = batches.unwrap();
    assert_eq!(texts(&batches, "x"), [(0, "\u{feff}ab".into()), (1, "\u{feff}d".into())]);
    assert_eq!(texts(&batches, "y"), [(0, "c".into()), (1, "e".into())]);
}

#[test]
fn a_list_that_changed_and_a_row_that_is_too_long_are_errors() {
    let (folder, list) = listed("list.csv", 2, "path,text\n0.jpg,a\n1.jpg,b\n");
    fs::write(folder.path().join("list.csv"), "path,text\n1.jpg,c\n0.jpg,d\n0.jpg,e\n").unwrap();
    let (index, reason, problem) = sample_error(builder(list, vec![ColumnSettings::text("text")]));
    assert_eq!((index, reason), (0, Reason::Unreadable));
    assert!(problem.contains("list.csv") && problem.contains("was changed"), "{problem}");

    let (_folder, list) =
        listed("list.csv", 2, &format!("path,text\n0.jpg,a\n1.jpg,{}\n", "b".repeat(5000)));
    let column = ColumnSettings { max_len: Some(10_000), ..ColumnSettings::text("text") };
    let limited = builder(list, vec![column]).configure(|it| it.limits.max_field_bytes = 4096);
    let (index, reason, problem) = sample_error(limited);
    assert_eq!((index, reason), (1, Reason::Oversized));
    assert!(problem.contains("5007 bytes; limits.max_field_bytes is 4096"), "{problem}");
}

#[test]
fn the_plan_counts_the_memory_of_columns() {
    let (_folder, list) =
        listed("list.csv", 6, "path,text\n0.jpg,a\n1.jpg,b\n2.jpg,c\n3.jpg,c\n4.jpg,c\n5.jpg,c\n");
    let list = Arc::new(list);
    let plan = |columns| shared(list.clone(), columns).num_workers(3).plan().unwrap();
    let bytes = |columns| plan(columns).footprint.total_bytes(feedwater::footprint::Memory::Host);
    let column = ColumnSettings { max_len: Some(1000), ..ColumnSettings::text("text") };
    let plain = plan(Vec::new());
    let slots = plain.footprint.row("labels").unwrap().count;
    let parts = 4 * 32 * slots;
    let expected = slots * (4 * 1000 + 5 * 40) + 3 * 3 * (1 << 20) + parts;
    assert_eq!(bytes(vec![column]) - bytes(Vec::new()), expected);
    // Several texts also have 4 bytes for the length of each, and offsets of 8 bytes.
    let several =
        ColumnSettings { max_len: Some(1000), max_texts: Some(5), ..ColumnSettings::texts("text") };
    let expected = expected + slots * (4 * 5 * 4 + (4 * 5 + 1) * 8);
    assert_eq!(bytes(vec![several]) - bytes(Vec::new()), expected);
}

#[test]
fn a_pipeline_file_describes_columns() {
    let folder = folder(2);
    fs::write(
        folder.path().join("l.csv"),
        "path,text,n,box\n0.jpg,a,1,\"[1, 2]\"\n1.jpg,b,,\"[3, 4]\"\n",
    )
    .unwrap();
    let text = r#"
        [source]
        list = "l.csv"
        [loader]
        batch_size = 2
        [[column]]
        name = "text"
        kind = "text"
        max_len = 20
        too_long = "truncate"
        [[column]]
        name = "number"
        field = "n"
        dtype = "i64"
        default = -1
        [[column]]
        name = "box"
        shape = [2]
        default = [0, 0.5]
        [[chain]]
        op = "resize"
        width = 8
        height = 8
    "#;
    let read = |text: &str| Pipeline::from_toml(text, folder.path());
    let pipeline = read(text).unwrap();
    let again = Pipeline::from_toml(&pipeline.to_toml().unwrap(), Path::new("")).unwrap();
    assert_eq!(again.settings.columns, pipeline.settings.columns);
    let batches =
        batches(again.builder().unwrap().device(DeviceChoice::Cpu).epochs(Some(1))).unwrap();
    let column = |name| batches[0].column(name).unwrap();
    assert_eq!(column("number").as_slice::<i64>().unwrap(), [1, -1]);
    assert_eq!(column("box").as_slice::<f32>().unwrap(), [1.0, 2.0, 3.0, 4.0]);
    assert_eq!([0, 1].map(|it| column("text").text(it).unwrap()), ["a", "b"]);

    for (from, to, key, words) in [
        ("kind = \"text\"", "kind = \"txt\"", "column[0].kind", "did you mean text?"),
        ("max_len = 20", "max_length = 20", "column[0].max_length", "did you mean max_len?"),
        ("max_len = 20", "max_len = 0", "column[0].max_len", "at least 1"),
        ("dtype = \"i64\"", "dtype = \"int\"", "column[1].dtype", "i64"),
        ("shape = [2]", "shape = [3]", "column[2].default", "2 entries in place of 3"),
        ("default = -1", "default = 0.5", "column[1].default", "0.5 is not a whole number"),
        ("field = \"n\"", "field = \"n[\"", "column[1].field", "lacks"),
    ] {
        let changed = text.replacen(from, to, 1);
        assert_ne!(changed, text);
        let problem =
            match read(&changed).and_then(|it| it.builder()?.device(DeviceChoice::Cpu).build()) {
                Err(Error::Config(error)) => error,
                other => panic!("{to}: {:?}", other.err()),
            };
        if words != "lacks" {
            assert!(problem.problem.contains(words), "{to}: {}", problem.problem);
        }
        assert_eq!((problem.key.as_str(), problem.at.is_some()), (key, true), "{to}");
    }
}
