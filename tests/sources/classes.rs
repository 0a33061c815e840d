//! Class numbers. Every kind of source supports the same class tables, and warns about unusual
//! class names.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use crate::common::words::has_words;
use crate::common::{jpeg, refused, training};
use feedwater::error::Error;
use feedwater::internals::config::Pipeline;
use feedwater::internals::source::Configured;
use feedwater::loader::{DeviceChoice, Loader};
use feedwater::source::custom::{Annotations, Hints, Identity};
use feedwater::source::settings::{CocoSettings, ParquetSettings};
use feedwater::source::{
    ClassTable, Classed, Coco, Directory, ExclusionReason, FileList, Parquet, Source, WebDataset,
};
use feedwater_tools::pack::{self, ShardFormat};
use serde_json::json;
use tempfile::TempDir;

/// Creates a training set with folders of three classes. Also creates validation sets in several
/// formats, in which the second class is missing.
fn sets() -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for (number, class) in ["ant", "bee", "cat"].into_iter().enumerate() {
        let folder = root.path().join("train").join(class);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("1.jpg"), jpeg(number as u64, 40, 30)).unwrap();
    }
    for class in ["ant", "cat"] {
        let folder = root.path().join("val").join(class);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("1.jpg"), jpeg(9, 40, 30)).unwrap();
    }
    let write = |name: &str, text: &str| fs::write(root.path().join(name), text).unwrap();
    write("val.csv", "path,label\nval/cat/1.jpg,cat\nval/ant/1.jpg,ant\n");
    write("more.csv", "path,label\nval/cat/1.jpg,cat\nval/ant/1.jpg,dog\nval/ant/1.jpg,ant\n");
    write("numbers.csv", "path,label\nval/cat/1.jpg,2\nval/ant/1.jpg,0\n");
    let annotation = |id: i64, category: i64| json!({"id": id, "image_id": 1, "category_id": category, "bbox": [1, 1, 9, 9]});
    let coco = json!({
        "images": [{"id": 1, "file_name": "val/cat/1.jpg", "width": 40, "height": 30}],
        "categories": [{"id": 7, "name": "cat"}, {"id": 9, "name": "dog"}, {"id": 12, "name": "ant"}],
        "annotations": [annotation(1, 7), annotation(2, 12), annotation(3, 9)],
    });
    write("val.json", &coco.to_string());
    write("classes.txt", "\u{feff}ant\r\nbee\r\ncat\r\n");
    write("names.json", r#"["ant", "bee", "cat"]"#);
    write("class_to_idx.json", r#"{"ant": 0, "cat": 2, "bee": 1}"#);
    write("id2label.json", r#"{"0": "ant", "2": "cat", "1": "bee"}"#);
    root
}

fn opened(source: &str, root: &Path) -> Result<Arc<dyn Source>, Error> {
    Pipeline::from_toml(&format!("[source]\n{source}\n"), root)?.source.open()
}

fn labels(source: &dyn Source) -> Vec<i64> {
    (0..source.len()).map(|index| source.label(index)).collect()
}

const CLASSES: &str = "classes = [\"ant\", \"bee\", \"cat\"]";

#[test]
fn every_source_has_the_numbers_of_the_table() {
    let root = sets();
    // Without a class table, "cat" has different numbers in the sets.
    let own = |source: &str| labels(&*opened(source, root.path()).unwrap());
    assert_eq!(own("directory = \"train\""), [0, 1, 2]);
    assert_eq!((own("directory = \"val\""), own("list = \"val.csv\"")), (vec![0, 1], vec![1, 0]));
    for table in [
        CLASSES,
        "classes = \"classes.txt\"",
        "classes = \"names.json\"",
        "classes = \"class_to_idx.json\"",
        "classes = \"id2label.json\"",
    ] {
        for (source, expected) in [
            ("directory = \"train\"", vec![0, 1, 2]),
            ("directory = \"val\"", vec![0, 2]),
            ("list = \"val.csv\"", vec![2, 0]),
            // Numeric labels stay the same. The classes get their names from the setting `classes`.
            ("list = \"numbers.csv\"", vec![2, 0]),
            ("concat = [{ directory = \"val\" }, { list = \"val.csv\" }]", vec![0, 2, 2, 0]),
            ("mixture = [{ list = \"val.csv\" }, { directory = \"val\" }]", vec![2, 0, 0, 2]),
        ] {
            let text = format!("{source}\n{table}");
            let source = opened(&text, root.path()).unwrap();
            assert_eq!(labels(&*source), expected, "{text}");
            assert_eq!(source.classes(), ["ant", "bee", "cat"], "{text}");
            assert!(source.warnings().is_empty(), "{text}: {:?}", source.warnings());
        }
    }
    // The class table is applied before the filter, so the filter contains numbers of the table.
    let text = format!("list = \"val.csv\"\n{CLASSES}\nfilter = {{ labels = [2] }}");
    assert_eq!(own(&text), [2]);
    let pipeline = Pipeline::from_toml(&format!("[source]\n{text}\n"), root.path()).unwrap();
    let again = Pipeline::from_toml(&pipeline.to_toml().unwrap(), root.path()).unwrap();
    assert_eq!(again.source, pipeline.source);
}

#[test]
fn class_to_index_numbers_the_classes_of_any_source() {
    let root = sets();
    for key in ["list = \"val.csv\"", "directory = \"val\"", "coco = \"val.json\""] {
        let text = format!(
            "{key}\nclass_to_index = {{ ant = 4, cat = 1, kitten = 1 }}\nallow_empty = true"
        );
        let text =
            if key.starts_with('d') { text } else { text.replace("\nallow_empty = true", "") };
        let source = opened(&text, root.path()).unwrap();
        assert_eq!(source.classes(), ["", "cat|kitten", "", "", "ant"], "{key}");
    }
    // The class table that a loader or a state contains can be used for other sets too. A joined
    // name such as `a|b` stands for several names. A name that belongs to two joined names has no
    // number.
    let table = ClassTable::new(["", "cat|kitten", "a|b", "a|c", "ant"]).unwrap();
    let numbers = ["cat", "kitten", "cat|kitten", "a", "b", "ant"].map(|name| table.number(name));
    assert_eq!(numbers, [Some(1), Some(1), Some(1), None, Some(2), Some(4)]);
    let list = opened("list = \"val.csv\"\nclass_to_index = { ant = 4, cat = 1 }", root.path());
    assert_eq!(labels(&*list.unwrap()), [1, 4]);
    let wrong = |keys: &str| opened(&format!("list = \"val.csv\"\n{keys}"), root.path());
    refused(wrong("class_to_index = { ant = -1 }"), "source.class_to_index.ant", &["-1"]);
    refused(wrong("class_to_index = {}"), "source.class_to_index", &[]);
    let both = format!("{CLASSES}\nclass_to_index = {{ ant = 0 }}");
    refused(wrong(&both), "source.classes", &["source.class_to_index"]);
}

#[test]
fn samples_and_objects_of_other_classes_are_left_out_and_counted() {
    let root = sets();
    let source = opened(&format!("list = \"more.csv\"\n{CLASSES}"), root.path()).unwrap();
    assert_eq!(labels(&*source), [2, 0]);
    let [warning] = &source.warnings()[..] else { panic!("{:?}", source.warnings()) };
    assert!(has_words(warning, &["more.csv", "\"dog\"", "1", "ant", "bee", "cat"]), "{warning}");
    let [excluded] = &source.excluded()[..] else { panic!("{:?}", source.excluded()) };
    assert_eq!(
        (excluded.why, &excluded.kind[..], excluded.count),
        (ExclusionReason::UnknownClass, "dog", 1)
    );
    // The second row of the list is excluded. The sample after it still has the number 2 in the
    // list.
    assert_eq!(source.part(1).1, 2);

    let coco = opened(&format!("coco = \"val.json\"\n{CLASSES}"), root.path()).unwrap();
    let objects: Vec<_> = coco.objects(0).iter().map(|it| (it.id, it.category)).collect();
    assert_eq!(objects, [(1, 2), (2, 0)]);
    let [excluded] = &coco.excluded()[..] else { panic!("{:?}", coco.excluded()) };
    assert_eq!((excluded.why, &excluded.kind[..]), (ExclusionReason::UnknownCategory, "dog"));
    assert_eq!(coco.warnings().len(), 1);
    // Without a class table, categories are numbered in the order of their IDs.
    assert_eq!(
        Coco::open(root.path().join("val.json"), &CocoSettings::default()).unwrap().objects(0)[1]
            .category,
        2
    );
}

#[test]
fn a_table_that_does_not_fit_is_an_error() {
    let root = sets();
    let with =
        |classes: &str| opened(&format!("list = \"val.csv\"\nclasses = {classes}"), root.path());
    refused(with("[\"x\", \"y\"]"), "source.classes", &["val.csv", "x", "y", "\"cat\"", "\"ant\""]);
    refused(with("[\"ant\", \"ant\"]"), "source.classes[1]", &["\"ant\"", "0"]);
    refused(with("[]"), "source.classes", &[]);
    assert!(matches!(with("\"none.txt\""), Err(Error::Io { .. })));
    let numbers = opened("list = \"numbers.csv\"\nclasses = [\"ant\", \"bee\"]", root.path());
    refused(numbers, "source.classes", &["2", "cat/1.jpg", "0"]);
    // "cat " with a blank at the end is not a class of the table. The warning suggests the similar
    // class "cat".
    fs::write(root.path().join("blank.csv"), "path,label\nval/cat/1.jpg,cat \nval/ant/1.jpg,ant\n")
        .unwrap();
    let blank = opened(&format!("list = \"blank.csv\"\n{CLASSES}"), root.path()).unwrap();
    let of_names = |it: &String| has_words(it, &["1 = \"cat \""]);
    let of_table = |it: &String| has_words(it, &["\"cat \"", "\"cat\"", "ant, bee, cat"]);
    let warnings = blank.warnings();
    assert!(warnings.iter().any(of_names) && warnings.iter().any(of_table), "{warnings:?}");
}

#[test]
fn a_loader_has_the_numbers_of_another_one_and_its_state_knows_them() {
    let root = sets();
    let train = Directory::open(root.path().join("train")).unwrap();
    let loader = |source: Arc<dyn Source>| {
        feedwater::LoaderBuilder::new(source, training()).batch_size(2).device(DeviceChoice::Cpu)
    };
    let train = loader(Arc::new(train)).build().unwrap();
    assert_eq!(train.classes(), ["ant", "bee", "cat"]);
    let list = || Arc::new(FileList::open(root.path().join("val.csv")).unwrap()) as Arc<dyn Source>;
    let mut val = loader(list()).classes_of(&train).unwrap().build().unwrap();
    assert_eq!(val.classes(), train.classes());
    let batch = val.epoch().next().unwrap().unwrap();
    assert_eq!(batch.labels(), [2, 0]);
    drop(batch);
    let state = val.state();
    assert_eq!(state.classes, train.state().classes);
    let without = |state| loader(list()).resume(state).build();
    refused(without(state), "state.classes", &["source.classes"]);
    // A state that was saved before class tables existed has no classes. It can be resumed without
    // a class table.
    let older = feedwater::LoaderState { classes: None, ..state };
    assert!(without(older).is_ok());
    let nameless = Loader::builder(crate::common::memory(4), training())
        .batch_size(2)
        .device(DeviceChoice::Cpu);
    let nameless = nameless.build().unwrap();
    assert!(matches!(loader(list()).classes_of(&nameless), Err(Error::Config(_))));
}

#[test]
fn packed_shards_have_the_names_of_the_classes() {
    let root = sets();
    let source = Directory::open(root.path().join("train")).unwrap();
    for format in [ShardFormat::WebDataset, ShardFormat::TfRecord] {
        let out = root.path().join(format.key());
        let settings = pack::Settings { format, shard_bytes: 1, ..Default::default() };
        let manifest = pack::pack(&source, &out, &settings, |_| {}).unwrap();
        assert_eq!(manifest.shards.len(), 3, "the names must not count as samples");
        assert_eq!(pack::verify(&out, |_| {}).unwrap(), 3);
        let key = format.key();
        // Opens the shards twice: first they are scanned, then their stored tables are read.
        for _ in 0..2 {
            let packed = opened(&format!("{key} = \"{key}\""), root.path()).unwrap();
            assert_eq!(packed.classes(), ["ant", "bee", "cat"], "{key}");
            assert_eq!(labels(&*packed), [0, 1, 2]);
            assert!(packed.excluded().is_empty(), "{:?}", packed.excluded());
        }
        // One shard can be used alone, in another folder.
        let name = &manifest.shards[1].name;
        fs::copy(out.join(name), root.path().join(name)).unwrap();
        let alone = opened(&format!("{key} = \"{name}\""), root.path()).unwrap();
        assert_eq!((alone.classes().len(), labels(&*alone)), (3, vec![1]));
        // Shards of another set, in which "cat" has another number, must not be mixed with these.
        let val = Directory::open(root.path().join("val")).unwrap();
        let other = root.path().join(format!("{key}-val"));
        pack::pack(&val, &other, &settings, |_| {}).unwrap();
        let both = format!("{key} = [\"{key}\", \"{key}-val\"]");
        refused(opened(&both, root.path()), &format!("source.{key}"), &["source.concat"]);
        let joined = format!("concat = [{{ {key} = \"{key}\" }}, {{ {key} = \"{key}-val\" }}]");
        assert_eq!(labels(&*opened(&joined, root.path()).unwrap()), [0, 1, 2, 0, 2]);
    }
    // If a set has no class names, its shards contain no file with names.
    let flat = FileList::open(root.path().join("numbers.csv")).unwrap();
    let out = root.path().join("flat");
    pack::pack(&flat, &out, &pack::Settings::default(), |_| {}).unwrap();
    let shard = fs::read(out.join("train-000000.tar")).unwrap();
    assert!(!shard.windows(9).any(|it| it == b"feedwater"));
    assert!(WebDataset::open(&[out], &Default::default()).unwrap().classes().is_empty());
}

#[test]
fn a_table_keeps_the_files_and_the_originals_of_its_source() {
    let root = sets();
    let source = Directory::open(root.path().join("train")).unwrap();
    let out = root.path().join("shards");
    let settings = pack::Settings { shard_bytes: 1, ..Default::default() };
    pack::pack(&source, &out, &settings, |_| {}).unwrap();
    let shards: Arc<dyn Source> = Arc::new(WebDataset::open(&[out], &Default::default()).unwrap());
    let table = ClassTable::new(["cat", "dog", "ant"]).unwrap();
    let classed = Classed::new(shards.clone(), &table).unwrap();
    assert_eq!(labels(&classed), [2, 0]);
    assert_eq!(classed.file_ends(), [1, 1, 2], "\"bee\" must be left out");
    assert_eq!((classed.original(1), classed.files().len()), (2, 3));
    let all =
        Classed::new(shards.clone(), &ClassTable::new(["cat", "bee", "ant"]).unwrap()).unwrap();
    assert_eq!((labels(&all), all.file_ends()), (vec![2, 1, 0], vec![1, 2, 3]));
    assert_eq!(all.describe(), shards.describe());
}

#[test]
fn names_that_look_the_same_are_a_warning_with_the_table() {
    let root = sets();
    let list = |name: &str, text: &str| {
        fs::write(root.path().join(name), text).unwrap();
        opened(&format!("list = {name:?}"), root.path()).unwrap()
    };
    let warned = |source: &dyn Source, values: &[&str]| {
        let warnings = source.warnings();
        let [warning] = &warnings[..] else { panic!("{warnings:?}") };
        assert!(has_words(warning, values), "{values:?}: {warning}");
    };
    let at = "val/cat/1.jpg";
    let blanks = list("a.csv", &format!("path,label\n{at},cat\n{at},dog \n{at}, cat\n"));
    warned(&*blanks, &["0 = \" cat\"", "1 = \"cat\"", "2 = \"dog \""]);
    let quotes = list("b.csv", &format!("path,label\n{at},\"cat\"\n{at}, \"dog\"\n"));
    warned(&*quotes, &["0 = \" \\\"dog\\\"\""]);
    let forms = list("c.csv", &format!("path,label\n{at},caf\u{e9}\n{at},cafe\u{301}\n"));
    warned(&*forms, &["0 = \"cafe\\u{301}\"", "1 = \"caf\u{e9}\""]);
    let fine = list("d.csv", &format!("path,label\n{at},caf\u{e9}\n{at},Caf\u{e9}\n{at},a cat\n"));
    assert!(fine.warnings().is_empty(), "{:?}", fine.warnings());
    // Neither of the two parts has similar class names, but their combination does.
    fs::write(root.path().join("e.csv"), format!("path,label\n{at},cat\u{a0}s\n")).unwrap();
    fs::write(root.path().join("f.csv"), format!("path,label\n{at},cat s\n")).unwrap();
    let joined = opened("concat = [{ list = \"e.csv\" }, { list = \"f.csv\" }]", root.path());
    warned(&*joined.unwrap(), &["cat s"]);
    let taken = opened("list = \"a.csv\"\ntake = 1", root.path()).unwrap();
    assert_eq!(taken.warnings().len(), 1, "the list and its part must give a single warning");
}

#[test]
fn folders_that_are_numbers_in_another_order_are_a_warning_with_the_table() {
    let root = tempfile::tempdir().unwrap();
    for class in 0..12 {
        let folder = root.path().join(class.to_string());
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("a.jpg"), b"a").unwrap();
    }
    let source = Directory::open(root.path()).unwrap();
    assert_eq!(source.classes()[2], "10");
    let warnings = (&source as &dyn Source).warnings();
    let [warning] = &warnings[..] else { panic!("{warnings:?}") };
    assert!(has_words(warning, &["2 = \"10\"", "4 = \"2\""]), "{warning}");
    let indices: BTreeMap<String, i64> = (0..12).map(|it| (it.to_string(), it)).collect();
    let table = ClassTable::of_indices(&indices).unwrap();
    let numbered = Classed::new(Arc::new(source), &table).unwrap();
    assert_eq!(labels(&numbered)[2], 10);
    for class in 10..12 {
        fs::remove_dir_all(root.path().join(class.to_string())).unwrap();
    }
    let source = Directory::open(root.path()).unwrap();
    assert!((&source as &dyn Source).warnings().is_empty());
}

#[test]
fn a_table_without_a_column_of_labels_is_a_warning() {
    let root = sets();
    let list = |name: &str, text: &str, keys: &str| {
        fs::write(root.path().join(name), text).unwrap();
        opened(&format!("list = {name:?}\n{keys}"), root.path()).unwrap()
    };
    let table = "path,class\nval/cat/1.jpg,cat\n";
    let lines = "{\"path\": \"val/cat/1.jpg\", \"class\": \"cat\"}\n";
    for (name, text) in [("g.csv", table), ("g.jsonl", lines)] {
        let source = list(name, text, "");
        assert_eq!(labels(&*source), [-1]);
        let [warning] = &source.warnings()[..] else { panic!("{:?}", source.warnings()) };
        assert!(
            has_words(warning, &[name, "path", "label = \"class\"", "label = \"\""]),
            "{warning}"
        );
        assert!(list(name, text, "label = \"\"").warnings().is_empty());
        assert_eq!(labels(&*list(name, text, "label = \"class\"")), [0]);
    }
    assert!(list("h.csv", "path\nval/cat/1.jpg\n", "").warnings().is_empty());
}

#[test]
fn text_labels_of_parquet_are_numbered_by_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/parquet/texts.parquet");
    let settings =
        ParquetSettings { image: "pixels".into(), label: "kind".into(), ..Default::default() };
    let texts: Arc<dyn Source> = Arc::new(Parquet::open(&[path], &settings).unwrap());
    assert_eq!(texts.classes(), ["cat", "dog", "eel"]);
    let classed =
        Classed::new(texts.clone(), &ClassTable::new(["eel", "dog", "cat"]).unwrap()).unwrap();
    for index in 0..texts.len() {
        let (own, new) = (texts.label(index), classed.label(index));
        assert_eq!(new, if own < 0 { -1 } else { 2 - own });
    }
}
