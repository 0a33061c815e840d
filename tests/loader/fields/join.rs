//! Fields that a second source adds to the samples of a first one, by key.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

use super::{I64, batches, folder, sample_error, shared, texts, with_field};
use crate::common::jpegs;
use feedwater::error::{Error, Reason};
use feedwater::loader::Batch;
use feedwater::plan::{ColumnSettings, DefaultValue};
use feedwater::source::custom::HostPage;
use feedwater::source::settings::{JoinSettings, MissingPartner};
use feedwater::source::{ExclusionReason, FileList, Joined};
use feedwater::{Pipeline, Source};

/// Writes an archive of these files.
fn tar(path: &Path, files: impl IntoIterator<Item = (String, Vec<u8>)>) {
    let mut archive = tar::Builder::new(File::create(path).unwrap());
    for (name, bytes) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, name, &bytes[..]).unwrap();
    }
    archive.finish().unwrap();
}

/// Images in an archive, with the keys `set/0`, `set/1` and so on, and the numbers as labels.
fn archive(path: &Path, images: usize) {
    let files = jpegs(images as u64).into_iter().enumerate().flat_map(|(number, (image, _))| {
        let label = number.to_string().into_bytes();
        [(format!("set/{number}.jpg"), image), (format!("set/{number}.cls"), label)]
    });
    tar(path, files);
}

/// Opens the section `[source]` of a pipeline file in this folder.
pub fn open(root: &Path, text: &str) -> Result<Arc<dyn Source>, Error> {
    let pipeline = Pipeline::from_toml(&format!("[source]\n{text}"), root)?;
    let again = Pipeline::from_toml(&pipeline.to_toml()?, root)?;
    assert_eq!(again.source, pipeline.source, "{text}");
    pipeline.open()
}

pub fn config_error(root: &Path, text: &str) -> String {
    match open(root, text) {
        Err(Error::Config(error)) => format!("{}: {}", error.key, error.problem),
        other => panic!("{text}: {:?}", other.map(|it| it.describe())),
    }
}

pub fn captions(source: Arc<dyn Source>, field: &str) -> Vec<(u64, String)> {
    let column = ColumnSettings {
        default: Some(DefaultValue::Text("none".into())),
        ..with_field(field, ColumnSettings::text("column"))
    };
    let found = batches(shared(source, vec![column]).num_workers(3)).unwrap();
    texts(&found, "column")
}

pub fn expected<const N: usize>(texts: [&str; N]) -> Vec<(u64, String)> {
    (0..).zip(texts.map(String::from)).collect()
}

#[test]
fn a_table_adds_captions_to_a_folder() {
    let root = folder(3);
    let write = |name: &str, text: &str| fs::write(root.path().join(name), text).unwrap();
    // No column of paths, or paths of files that do not exist, and labels of no kind.
    write("plain.csv", "id,caption,label\n2,two,x\n0,\"zero, é\",7\n1,one,1.5\n9,nine,\n");
    write("paths.csv", "path,caption\nb/2.png,two\nb/0.png,\"zero, é\"\nb/1.png,one\n");
    write(
        "lines.jsonl",
        "{\"meta\": {\"ids\": [\"\", 2]}, \"caption\": \"two\"}\n\
         {\"meta\": {\"ids\": [null, \"0\"]}, \"caption\": \"zero, é\", \"image\": {\"bytes\": 1}}\n\
         {\"caption\": \"one\", \"meta\": {\"ids\": [[], 1, {}]}}\n",
    );
    for join in [
        "list = \"plain.csv\"\nother_key = \"id\"",
        "list = \"paths.csv\"",
        "list = \"paths.csv\"\nkey = \"__key__\"",
        "list = \"lines.jsonl\"\nother_key = \"meta:ids[1]\"",
    ] {
        let source =
            open(root.path(), &format!("directory = \".\"\n[source.join]\n{join}")).unwrap();
        assert_eq!(source.len(), 3);
        assert_eq!(captions(source.clone(), "caption"), expected(["zero, é", "one", "two"]));
        assert!(source.warnings().is_empty(), "{:?}", source.warnings());
    }
    // An array of joins, and a join within a join.
    write("more.csv", "caption,stars\ntwo,**\none,*\n\"zero, é\",-\n");
    for join in [
        "[[source.join]]\nlist = \"paths.csv\"\n[[source.join]]\nlist = \"more.csv\"\nkey = \"caption\"",
        "[source.join]\nlist = \"paths.csv\"\n[source.join.join]\nlist = \"more.csv\"\nkey = \"caption\"",
    ] {
        let source = open(root.path(), &format!("directory = \".\"\n{join}")).unwrap();
        assert_eq!(captions(source.clone(), "stars"), expected(["-", "*", "**"]));
        assert_eq!(captions(source, "caption"), expected(["zero, é", "one", "two"]));
    }
}

#[test]
fn two_archives_are_joined_by_their_keys() {
    let root = tempfile::tempdir().unwrap();
    archive(&root.path().join("images.tar"), 5);
    let long = format!("set/{}", "d".repeat(140));
    // Captions without images, in another order.
    let files = (0..5).rev().flat_map(|number| {
        let key = if number == 3 { "other/3".into() } else { format!("set/{number}") };
        let json = format!("{{\"n\": {number}}}").into_bytes();
        [
            (format!("{key}.txt"), format!("caption {number}").into_bytes()),
            (format!("{key}.json"), json),
        ]
    });
    tar(&root.path().join("texts.tar"), files.chain([(format!("{long}.txt"), b"long".to_vec())]));
    let text =
        "webdataset = \"images.tar\"\n[source.join]\nwebdataset = \"texts.tar\"\nprefix = \"b.\"";
    let source = open(root.path(), text).unwrap();
    let expected = expected(["caption 0", "caption 1", "caption 2", "none", "caption 4"]);
    assert_eq!(captions(source.clone(), "b.txt"), expected);
    let mut numbers = Vec::new();
    let column = ColumnSettings {
        default: Some(DefaultValue::Integer(-1)),
        ..with_field("b.json:n", ColumnSettings::array("n", I64, &[]))
    };
    for batch in batches(shared(source.clone(), vec![column])).unwrap() {
        let n = batch.column("n").unwrap().as_slice::<i64>().unwrap();
        numbers.extend(batch.labels().iter().copied().zip(n.to_vec()));
    }
    assert_eq!(numbers, [(0, 0), (1, 1), (2, 2), (3, -1), (4, 4)]);

    let (index, reason, problem) =
        sample_error(shared(source, vec![with_field("b.txt", ColumnSettings::text("b"))]));
    assert_eq!((index, reason), (3, Reason::Field));
    for word in ["\"set/3\"", "texts.tar", "default", "missing = \"drop\""] {
        assert!(problem.contains(word), "{word}: {problem}");
    }

    let dropped = open(root.path(), &format!("{text}\nmissing = \"drop\"")).unwrap();
    assert_eq!(dropped.len(), 4);
    let excluded = dropped.excluded();
    assert_eq!(excluded.len(), 1, "{excluded:?}");
    assert_eq!((excluded[0].why, excluded[0].count), (ExclusionReason::NoPartner, 1));
    assert!(excluded[0].example.contains("set/3.jpg"), "{excluded:?}");
    assert_eq!(dropped.file_ends(), [4]);
    let found = captions(dropped, "b.txt");
    assert_eq!(found[3].1, "caption 4");
}

/// With a hard link, the name before the contents of a sample is that of another one.
#[test]
fn an_archive_with_hard_links_has_no_keys() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("links.tar");
    let mut archive = tar::Builder::new(File::create(&path).unwrap());
    let image = &jpegs(1)[0].0;
    let mut header = tar::Header::new_gnu();
    header.set_size(image.len() as u64);
    archive.append_data(&mut header, "a.jpg", &image[..]).unwrap();
    let mut link = tar::Header::new_gnu();
    link.set_entry_type(tar::EntryType::Link);
    link.set_size(0);
    archive.append_link(&mut link, "b.jpg", "a.jpg").unwrap();
    archive.finish().unwrap();
    fs::write(root.path().join("t.csv"), "path,caption\na,of a\nb,of b\n").unwrap();
    let error = config_error(
        root.path(),
        "webdataset = \"links.tar\"\nlabel = \"\"\n[source.join]\nlist = \"t.csv\"",
    );
    assert!(error.contains("hard links"), "{error}");
}

/// Names of samples of compressed archives are stored, at most 254 bytes of each.
#[test]
fn keys_of_a_compressed_archive_are_those_of_its_names() {
    let root = tempfile::tempdir().unwrap();
    let long = "e".repeat(300);
    let images = jpegs(3);
    let names = ["a/0.jpg".to_string(), "a/1.x.jpg".into(), format!("a/{long}.jpg")];
    tar(&root.path().join("i.tar"), names.into_iter().zip(images.into_iter().map(|it| it.0)));
    let plain = fs::read(root.path().join("i.tar")).unwrap();
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut packed, &plain).unwrap();
    fs::write(root.path().join("i.tar.gz"), packed.finish().unwrap()).unwrap();
    let rows = format!("id,caption\na/{long},long\na/1,one\na/0,zero\n");
    fs::write(root.path().join("t.csv"), rows).unwrap();
    for (name, last) in [("i.tar", "long"), ("i.tar.gz", "none")] {
        let image = "image = \"jpg;x.jpg\"\nlabel = \"\"";
        let join = "[source.join]\nlist = \"t.csv\"\nother_key = \"id\"";
        let source =
            open(root.path(), &format!("webdataset = \"{name}\"\n{image}\n{join}")).unwrap();
        assert_eq!(captions(source, "caption"), expected(["zero", "one", last]), "{name}");
    }
}

#[test]
fn two_tables_are_joined_by_a_field() {
    let root = folder(4);
    let write = |name: &str, text: &str| fs::write(root.path().join(name), text).unwrap();
    write("a.csv", "path,person\n0.jpg,7\n1.jpg,07\n2.jpg,7\n3.jpg,8\n");
    write("b.csv", "person,name\n8,eight\n7,seven\n");
    // An integer of JSON equals the text with its digits, but no other text.
    write(
        "b.jsonl",
        "{\"person\": 8, \"name\": \"eight\"}\n{\"person\": 7, \"name\": \"seven\"}\n",
    );
    for other in ["b.csv", "b.jsonl"] {
        let text = format!("list = \"a.csv\"\n[source.join]\nlist = \"{other}\"\nkey = \"person\"");
        let source = open(root.path(), &text).unwrap();
        assert_eq!(
            captions(source.clone(), "name"),
            expected(["seven", "none", "seven", "eight"]),
            "{other}"
        );
        let names: Vec<String> = source.schema().into_iter().map(|it| it.name).collect();
        assert_eq!(names, ["path", "person", "name"]);
        let dropped = open(root.path(), &format!("{text}\nmissing = \"drop\"")).unwrap();
        assert_eq!(captions(dropped, "name"), expected(["seven", "seven", "eight"]));
    }
    // Keys are exact.
    write("spaces.csv", "person,name\n8 ,eight\n7,seven\n");
    let text = "list = \"a.csv\"\n[source.join]\nlist = \"spaces.csv\"\nkey = \"person\"";
    let source = open(root.path(), text).unwrap();
    assert_eq!(captions(source, "name"), expected(["seven", "none", "seven", "none"]));
}

#[test]
fn a_parquet_file_needs_no_images_in_a_join() {
    let root = folder(3);
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/parquet/fields-v2.parquet");
    // Texts from 000 to 023.
    fs::write(root.path().join("a.csv"), "path,id\n0.jpg,002\n1.jpg,023\n2.jpg,024\n").unwrap();
    let join = |more: &str| {
        format!(
            "list = \"a.csv\"\n[source.join]\nparquet = \"{}\"\nimage = \"no column\"\nkey = \"id\"\n\
             other_key = \"fixed\"\n{more}",
            golden.display()
        )
    };
    let column = ColumnSettings {
        default: Some(DefaultValue::Integer(99)),
        ..ColumnSettings::array("i8", I64, &[])
    };
    let values = |source| -> Vec<i64> {
        let found = batches(shared(source, vec![column.clone()])).unwrap();
        let of_batch = |it: &Batch| it.column("i8").unwrap().as_slice::<i64>().unwrap().to_vec();
        found.iter().flat_map(of_batch).collect()
    };
    assert_eq!(values(open(root.path(), &join("")).unwrap()), [-2, -23, 99]);
    assert_eq!(values(open(root.path(), &join("missing = \"drop\"")).unwrap()), [-2, -23]);
    let error = config_error(
        root.path(),
        &join("other_key = \"f32\"").replace("other_key = \"fixed\"\n", ""),
    );
    assert!(error.contains("float") && error.contains("fields-v2.parquet["), "{error}");
}

#[test]
fn errors_at_opening_name_the_keys_and_the_samples() {
    let root = folder(2);
    let write = |name: &str, text: &str| fs::write(root.path().join(name), text).unwrap();
    write("twice.csv", "id,caption\n0,a\n1,b\n0,c\n");
    write("none.csv", "id,caption\nx0,a\nx1,b\n");
    write("empty.csv", "id,caption\n0,a\n,b\n");
    write("clash.csv", "path,caption,score\n0.jpg,a,1\n1.jpg,b,2\n");
    write("header.csv", "id,caption\n");
    write("a.txt", "0.jpg\n");
    write("float.jsonl", "{\"id\": 0.5, \"caption\": \"a\"}\n");
    for (first, join, words) in [
        (
            "directory = \".\"",
            "list = \"twice.csv\"\nother_key = \"id\"",
            &["source.join: ", "\"0\"", "twice.csv[0]", "twice.csv[2]"][..],
        ),
        (
            "directory = \".\"",
            "list = \"none.csv\"\nother_key = \"id\"",
            &["source.join: ", "\"0\"", "\"x0\"", "none.csv", "other_key"],
        ),
        (
            "directory = \".\"",
            "list = \"none.csv\"\nother_key = \"id\"\nmissing = \"drop\"",
            &["source.join: ", "\"0\"", "\"x0\"", "none.csv"],
        ),
        (
            "directory = \".\"",
            "list = \"empty.csv\"\nother_key = \"id\"",
            &["source.join: ", "empty.csv[1]", "\"id\""],
        ),
        ("directory = \".\"", "list = \"twice.csv\"", &["source.join.other_key: ", "id, caption"]),
        (
            "directory = \".\"",
            "list = \"twice.csv\"\nother_key = \"uid\"",
            &["source.join.other_key: ", "\"uid\"", "id, caption"],
        ),
        (
            "directory = \".\"",
            "list = \"twice.csv\"\nother_key = \"id:[*]\"",
            &["source.join.other_key: ", "[*]"],
        ),
        (
            "directory = \".\"",
            "list = \"twice.csv\"\nkey = \"id\"",
            &["source.join.key: ", "\"id\"", "none"],
        ),
        (
            "list = \"clash.csv\"",
            "list = \"clash.csv\"",
            &["source.join.prefix: ", "path, caption, score", "prefix = "],
        ),
        ("directory = \".\"", "list = \"header.csv\"", &["source.join.list", "header.csv"]),
        ("directory = \".\"", "list = \"a.txt\"", &["source.join.list", "a.txt", "no fields"]),
        (
            "directory = \".\"",
            "list = \"float.jsonl\"\nother_key = \"id\"",
            &["source.join: ", "float.jsonl[0]", "0.5"],
        ),
        ("directory = \".\"", "list = \"a.txt\"\nmissin = 1", &["source.join.missin", "missing"]),
        ("directory = \".\"", "missing = \"skip\"", &["source.join.missing", "skip", "drop"]),
        ("directory = \".\"", "key = \"id\"", &["source.join: ", "empty"]),
    ] {
        let error = config_error(root.path(), &format!("{first}\n[source.join]\n{join}"));
        for word in words {
            assert!(error.contains(word), "{join}: {word:?} is not in {error}");
        }
    }
    let error = config_error(root.path(), "directory = \".\"\njoin = 3");
    assert!(error.starts_with("source.join: ") && error.contains("table"), "{error}");
    // With the key of both tables, only the other fields clash, and a prefix renames them.
    let text = "list = \"clash.csv\"\n[source.join]\nlist = \"clash.csv\"\nkey = \"path\"";
    let error = config_error(root.path(), text);
    assert!(error.contains("caption, score") && !error.contains("path, "), "{error}");
    let source = open(root.path(), &format!("{text}\nprefix = \"b.\"")).unwrap();
    assert_eq!(captions(source, "b.caption"), expected(["a", "b"]));
}

/// A value of the second source that does not fit names its row.
#[test]
fn errors_of_joined_values_name_both_samples() {
    let root = folder(2);
    let table = root.path().join("b.csv");
    fs::write(&table, "id,score\n1,x\n0,3\n").unwrap();
    let text = "directory = \".\"\n[source.join]\nlist = \"b.csv\"\nother_key = \"id\"";
    let source = open(root.path(), text).unwrap();
    let score = || vec![ColumnSettings::array("score", I64, &[])];
    let (index, reason, problem) = sample_error(shared(source.clone(), score()));
    assert_eq!((index, reason), (1, Reason::Field));
    assert!(problem.contains("\"x\"") && problem.contains("b.csv[0]"), "{problem}");

    // The index of the keys does not fit a file that has changed.
    fs::write(&table, "id,score\n0,1\n1,2\n2,4\n").unwrap();
    let (_, reason, problem) = sample_error(shared(source, score()));
    assert_eq!(reason, Reason::Unreadable);
    assert!(problem.contains("b.csv") && problem.contains("was changed"), "{problem}");

    // A value that is missing in the row of the partner.
    fs::write(&table, "id,score\n0,1\n1,\n").unwrap();
    let (index, _, problem) = sample_error(shared(open(root.path(), text).unwrap(), score()));
    assert_eq!(index, 1);
    assert!(problem.contains("missing") && problem.contains("b.csv[1]"), "{problem}");
}

#[test]
fn joined_sources_are_parts_of_others() {
    let root = folder(4);
    let write = |name: &str, text: &str| fs::write(root.path().join(name), text).unwrap();
    write("b.csv", "id,caption\n3,three\n2,two\n1,one\n");
    let join = "join = { list = \"b.csv\", other_key = \"id\", missing = \"drop\" }";
    // A selection applies to the joined samples.
    let source = open(root.path(), &format!("directory = \".\"\n{join}\ntake = 2")).unwrap();
    assert_eq!(captions(source, "caption"), expected(["one", "two"]));
    let mixed = format!(
        "[[source.mixture]]\ndirectory = \".\"\n{join}\n[[source.mixture]]\ndirectory = \".\"\n\
         {}\nskip = 3",
        join.replace("drop", "keep")
    );
    let source = open(root.path(), &mixed).unwrap();
    let found: Vec<String> = captions(source, "caption").into_iter().map(|it| it.1).collect();
    assert_eq!(found, ["one", "three", "two", "three", "three"]);
    // A combination is the first source, and one is the second.
    let all = "[[source.concat]]\ndirectory = \".\"\ntake = 1\n[[source.concat]]\ndirectory = \".\"\nskip = 3\n";
    let second = "[[source.join.concat]]\nlist = \"b.csv\"\ntake = 1\n[[source.join.concat]]\nlist = \"b.csv\"\nskip = 2";
    let source = open(root.path(), &format!("{all}[source.join]\nother_key = \"id\"\n{second}"));
    assert_eq!(captions(source.unwrap(), "caption"), expected(["none", "three"]));
    // In Rust, a join of a selected source applies to the selected samples.
    let pipeline =
        |text: &str| Pipeline::from_toml(&format!("[source]\n{text}"), root.path()).unwrap().source;
    let settings = JoinSettings {
        other_key: Some("id".into()),
        missing: MissingPartner::Drop,
        ..JoinSettings::default()
    };
    let joined =
        pipeline("directory = \".\"\ntake = 2").join(pipeline("list = \"b.csv\""), settings);
    assert_eq!(joined.open().unwrap().len(), 1);
}

#[test]
fn every_shard_and_order_has_the_same_partners() {
    let root = folder(9);
    let rows: String = (0..9).rev().map(|number| format!("{number},caption {number}\n")).collect();
    fs::write(root.path().join("b.csv"), format!("id,caption\n{rows}")).unwrap();
    let first = Arc::new(feedwater::source::Directory::open(root.path()).unwrap());
    let table =
        FileList::table(root.path().join("b.csv"), &Default::default(), &Default::default());
    let table = table.unwrap();
    let error = table.read(0, &mut HostPage::default(), 1000).unwrap_err();
    assert_eq!(error.reason, Reason::Unsupported);
    let settings = JoinSettings { other_key: Some("id".into()), ..JoinSettings::default() };
    let source = Arc::new(Joined::new(first, Arc::new(table), &settings).unwrap());
    let mut seen = Vec::new();
    for rank in 0..2 {
        let builder = shared(source.clone(), vec![ColumnSettings::text("caption")]);
        let builder = builder.shuffle(true).num_workers(2).configure(|it| {
            it.loader.rank = Some(rank);
            it.loader.world_size = Some(2);
        });
        for (index, text) in texts(&batches(builder).unwrap(), "caption") {
            assert_eq!(text, format!("caption {index}"));
            seen.push(index);
        }
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen, (0..9).collect::<Vec<_>>());
}

#[test]
fn equal_names_in_several_folders_are_a_warning() {
    let root = tempfile::tempdir().unwrap();
    for path in ["cat/1.jpg", "dog/1.jpg", "dog/2.jpg"] {
        fs::create_dir_all(root.path().join(path).parent().unwrap()).unwrap();
        fs::write(root.path().join(path), &jpegs(1)[0].0).unwrap();
    }
    fs::write(root.path().join("b.csv"), "id,caption\n1,one\n2,two\n").unwrap();
    let text = "directory = \".\"\n[source.join]\nlist = \"b.csv\"\nother_key = \"id\"";
    let source = open(root.path(), text).unwrap();
    let warnings = source.warnings().join("\n");
    assert!(warnings.contains("cat/1.jpg") && warnings.contains("dog/1.jpg"), "{warnings}");
}
