//! Tests what the documentation of `FileList` promises, for tables and JSON lines.
//! tests/sources/source.rs tests lists in plain text.

use crate::common::words::has_words;
use crate::common::{self, config_error, position};
use std::fs;

use feedwater::error::{ConfigError, Error};
use feedwater::internals::config::Pipeline;
use feedwater::source::custom::{Hints, HostPage};
use feedwater::source::settings::{FileListSettings, LabelSort, ListFormat};
use feedwater::source::{FileList, Source};
use feedwater::storage::{Storage, StorageSettings};
use tempfile::TempDir;

/// Opens a list with this text. Makes sure that at least one of the listed files exists.
fn with(name: &str, text: &str, settings: &FileListSettings) -> Result<FileList, Error> {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join(name);
    fs::write(&path, text).unwrap();
    common::with_a_file(&path, || FileList::with(&path, settings))
}

fn open(name: &str, text: &str) -> Result<FileList, Error> {
    with(name, text, &FileListSettings::default())
}

/// Returns the file name and the label of each sample, in order.
fn samples(list: &FileList) -> Vec<(String, i64)> {
    let name = |index| list.path(index).file_name().unwrap().to_str().unwrap().to_string();
    (0..list.len()).map(|index| (name(index), list.label(index))).collect()
}

fn expect(list: &FileList, expected: &[(&str, i64)]) {
    let expected: Vec<_> =
        expected.iter().map(|&(name, label)| (name.to_string(), label)).collect();
    assert_eq!(samples(list), expected);
}

/// Checks that the error is at this line, and that its message contains `values`.
#[track_caller]
fn check(error: &ConfigError, line: u64, values: &[&str]) {
    assert!(error.key.starts_with("source.list: "), "{error}");
    assert_eq!(position(error), line, "{error}");
    assert!(has_words(&error.problem, values), "{values:?}: {error}");
}

#[track_caller]
fn refused(name: &str, text: &str, line: u64, values: &[&str]) {
    let error = config_error(open(name, text));
    assert!(error.key.contains(name), "{error}");
    check(&error, line, values);
}

/// Checks that the error has this key without a line, and that its message contains `values`.
#[track_caller]
fn check_key(error: &ConfigError, key: &str, values: &[&str]) {
    assert_eq!(error.key, key, "{error}");
    assert!(has_words(&error.problem, values), "{values:?}: {error}");
}

#[test]
fn a_table_names_its_columns_in_the_first_line() {
    let list = open("a.csv", "width,label,path\n3,7,b.jpg\n4,-2,a.jpg\n").unwrap();
    expect(&list, &[("b.jpg", 7), ("a.jpg", -2)]);
    assert!(list.classes().is_empty());
    let list = open("a.TSV", "file_name\tlabel\r\nmy photo.jpg\t1\r\n\r\nb,c.jpg\t2\r\n").unwrap();
    expect(&list, &[("my photo.jpg", 1), ("b,c.jpg", 2)]);
    let list = open("a.csv", "\u{feff}path\na.jpg\n").unwrap();
    expect(&list, &[("a.jpg", -1)]);
    assert!(has_words(&list.describe(), &["a.csv", "1"]), "{}", list.describe());
}

#[test]
fn fields_may_be_quoted() {
    let text = "path,label\n\"a, \"\"b\"\".jpg\",\"1\"\n\"two\nlines.jpg\",2\nc.jpg,3\n";
    expect(
        &open("a.csv", text).unwrap(),
        &[("a, \"b\".jpg", 1), ("two\nlines.jpg", 2), ("c.jpg", 3)],
    );
}

#[test]
fn columns_and_separator_can_be_set() {
    let text = "path;where;class;label\nx;a.jpg;dog;1\ny;b.jpg;cat;2\n";
    let settings = FileListSettings {
        image: Some("where".into()),
        label: Some("class".into()),
        separator: Some(';'),
        ..Default::default()
    };
    let list = with("a.csv", text, &settings).unwrap();
    expect(&list, &[("a.jpg", 1), ("b.jpg", 0)]);
    let unlabelled = FileListSettings { label: Some(String::new()), ..settings.clone() };
    expect(&with("a.csv", text, &unlabelled).unwrap(), &[("a.jpg", -1), ("b.jpg", -1)]);
    let missing = FileListSettings { label: Some("breed".into()), ..settings.clone() };
    let error = config_error(with("a.csv", text, &missing));
    check(&error, 1, &["source.label", "\"breed\"", "path", "where", "class", "label"]);
    let wide = FileListSettings { separator: Some('→'), ..settings };
    check_key(&config_error(with("a.csv", text, &wide)), "source.separator", &["ASCII", "'→'"]);
}

#[test]
fn a_table_with_another_separator_is_an_error_that_names_the_setting() {
    let (csv, tsv) = (ListFormat::Csv, ListFormat::Tsv);
    for (format, separator) in [(csv, ";"), (csv, "\t"), (csv, "|"), (tsv, ",")] {
        let text = ["path", "weight\na.jpg", "2\n"].join(separator);
        let table = FileListSettings { format, ..Default::default() };
        let error = config_error(with("a", &text, &table));
        check(&error, 1, &["paths"]);
        assert!(error.problem.contains(&format!("set separator = {separator:?}")), "{error}");
        let separator = separator.chars().next();
        expect(
            &with("a", &text, &FileListSettings { separator, ..table }).unwrap(),
            &[("a.jpg", -1)],
        );
    }
    let error = config_error(with("a.csv", "a;b,c\n1,2\n", &FileListSettings::default()));
    assert!(error.problem.contains("a;b, c; name the column of paths with image"), "{error}");
}

#[test]
fn a_tsv_without_a_header_is_text() {
    expect(&open("a.tsv", "a.jpg\t1\nb.jpg\t2\n").unwrap(), &[("a.jpg", 1), ("b.jpg", 2)]);
    let settings = FileListSettings { format: ListFormat::Tsv, ..Default::default() };
    let error = config_error(with("a.tsv", "a.jpg\t1\n", &settings));
    check(&error, 1, &["path", "image", "file_name", "a.jpg"]);
    let settings = FileListSettings { format: ListFormat::Text, ..Default::default() };
    expect(&with("a.csv", "path 3\n", &settings).unwrap(), &[("path", 3)]);
}

#[test]
fn table_settings_make_a_tsv_a_table_and_are_errors_for_plain_text() {
    let image = FileListSettings { image: Some("img".into()), ..Default::default() };
    expect(&with("a.tsv", "img\tlabel\na.jpg\t1\n", &image).unwrap(), &[("a.jpg", 1)]);
    let error = config_error(with("a.tsv", "b.jpg\t2\na.jpg\t1\n", &image));
    check(&error, 1, &["img", "b.jpg"]);
    let error = config_error(with("a.txt", "a.jpg\t1\n", &image));
    check_key(&error, "source.image", &["a.txt", "text", "source.format"]);
    let separator = FileListSettings { separator: Some(';'), ..Default::default() };
    let error = config_error(with("a.jsonl", "{\"path\": \"a\"}", &separator));
    check_key(&error, "source.separator", &["a.jsonl", "JSON", "source.format"]);
}

#[test]
fn text_labels_are_classes_in_byte_order() {
    let list = open("a.csv", "path,label\n1,dog\n2,Zebra\n3,cat\n4,dog\n").unwrap();
    expect(&list, &[("1", 2), ("2", 0), ("3", 1), ("4", 2)]);
    assert_eq!(list.classes(), ["Zebra", "cat", "dog"]);
    assert!(has_words(&list.describe(), &["a.csv", "4", "3"]), "{}", list.describe());
    let lines = "{\"path\": \"1\", \"label\": \"up\"}\n{\"path\": \"2\", \"label\": \"down\"}\n";
    let list = open("a.jsonl", lines).unwrap();
    expect(&list, &[("1", 1), ("2", 0)]);
    let text = FileListSettings { labels: LabelSort::Text, ..Default::default() };
    let list = with("a.csv", "path,label\n1,7\n2,up\n3,007\n", &text).unwrap();
    assert_eq!(list.classes(), ["007", "7", "up"]);
    expect(&list, &[("1", 1), ("2", 2), ("3", 0)]);
    let list = with("a.txt", "a.jpg\tdog\nb.jpg\tcat\nc.jpg\n", &text).unwrap();
    expect(&list, &[("a.jpg", 1), ("b.jpg", 0), ("c.jpg", -1)]);
}

/// Integers may be written as floats, because pandas does so if a column has missing values.
#[test]
fn integers_are_labels_in_any_notation() {
    let labels = [0, 1, 2, 9, 10, 11, -3];
    let expected: Vec<_> = labels.iter().map(|label| ("a.jpg", *label)).collect();
    for write in
        [|it: i64| format!("{it}.0"), |it: i64| format!(" {it}"), |it: i64| format!("{it}.")]
    {
        let rows: String = labels.iter().map(|it| format!("a.jpg,{}\n", write(*it))).collect();
        let list = open("a.csv", &format!("path,label\n{rows}")).unwrap();
        expect(&list, &expected);
        assert_eq!(list.classes(), [""; 0], "numbers must not become class names");
        let lines: String = labels.iter().map(|it| format!("a.jpg\t{}\n", write(*it))).collect();
        expect(&open("a.txt", &lines).unwrap(), &expected);
    }
    let blanks: String = labels.iter().map(|it| format!("a.jpg {it}.0\n")).collect();
    expect(&open("a.txt", &blanks).unwrap(), &expected);
    let object = |label: String| format!("{{\"path\": \"a.jpg\", \"label\": {label}}}\n");
    for quote in ["", "\""] {
        let lines: String =
            labels.iter().map(|it| object(format!("{quote}{it}.0{quote}"))).collect();
        expect(&open("a.jsonl", &lines).unwrap(), &expected);
    }
}

#[test]
fn an_invalid_label_is_an_error_with_line_and_value() {
    for value in ["1.5", "9223372036854775808", "1e300"] {
        for (name, text) in [
            ("a.csv", format!("path,label\na,1\nb,{value}\n")),
            ("a.txt", format!("\na\t1\nb\t{value}\n")),
            ("a.txt", format!("\na 1\nb {value}\n")),
            (
                "a.jsonl",
                format!(
                    "\n{{\"path\": \"a\", \"label\": 1}}\n{{\"path\": \"b\", \"label\": {value}}}"
                ),
            ),
        ] {
            let error = config_error(open(name, &text));
            let shown = if name == "a.jsonl" { &value[..1] } else { value };
            check(&error, 3, &[]);
            assert!(error.problem.contains(shown), "{name}: {error}");
        }
    }
    let names = FileListSettings { labels: LabelSort::Text, ..Default::default() };
    let list = with("a.csv", "path,label\na,1.5\nb,0.5\nc,10\nd,9\n", &names).unwrap();
    assert_eq!(list.classes(), ["0.5", "1.5", "10", "9"], "labels must be texts on request");
    let list = with("a.csv", "path,label\na,10\nb,9\n", &names).unwrap();
    assert_eq!(list.classes(), ["9", "10"], "numbers must be in numeric order");
}

#[test]
fn lines_rows_paths_and_names_are_bounded() {
    let long = "x".repeat(5 << 20);
    let name = "n".repeat(5000);
    let path = "p".repeat(9000);
    for (file, text, byte) in [
        ("a.txt", format!("a\t1\n{long}\t2\n"), "4"),
        ("a.csv", format!("path,label\na,1\n{long},2\n"), "15"),
        ("a.jsonl", format!("{{\"path\": \"a\"}}\n{{\"path\": \"{long}\"}}\n"), "14"),
    ] {
        let error = config_error(open(file, &text));
        check_key(&error, "source.list", &[file, "4194304", byte]);
        assert!(error.to_string().len() < 5000, "{error}");
    }
    for (file, text, line, values) in [
        ("a.csv", format!("path,label\na,1\n\"b,{}", "c,1\n".repeat(2 << 20)), 3, &["4194304"][..]),
        ("a.csv", format!("path,label\na,{name}\n"), 2, &["5000", "4096"]),
        ("a.txt", format!("a\t1\n{path}\t1\n"), 2, &["9000", "8192"]),
    ] {
        let error = config_error(open(file, &text));
        check(&error, line, values);
        assert!(error.to_string().len() < 5000, "{error}");
    }
}

#[test]
fn integer_and_text_labels_do_not_mix() {
    // The message must contain the class name, and the line and value of the first integer.
    refused("a.csv", "path,label\n1,3\n2,4\n3,cat\n", 4, &["\"cat\"", "2", "3"]);
    refused("a.csv", "path,label\n1,cat\n2,5\n", 2, &["\"cat\"", "3", "5"]);
    let lines = "{\"path\": \"1\", \"label\": \"x\"}\n{\"path\": \"2\", \"label\": 9}\n";
    refused("a.jsonl", lines, 1, &["\"x\"", "2", "9", "labels", "\"text\""]);
    let text = FileListSettings { labels: LabelSort::Text, ..Default::default() };
    expect(&with("a.jsonl", lines, &text).unwrap(), &[("1", 1), ("2", 0)]);
    let integers = FileListSettings { labels: LabelSort::Integer, ..Default::default() };
    check(&config_error(with("a.csv", "path,label\n1,cat\n", &integers)), 2, &["\"cat\""]);
}

#[test]
fn each_json_line_is_an_object() {
    let lines = "{\"image\": \"a\\u0020b.jpg\", \"label\": 3, \"more\": [{}]}\n\n{\"label\": -1, \"image\": \"c\"}\r\n";
    expect(&open("a.ndjson", lines).unwrap(), &[("a b.jpg", 3), ("c", -1)]);
    let settings = FileListSettings {
        format: ListFormat::Jsonl,
        image: Some("url".into()),
        label: Some("y".into()),
        ..Default::default()
    };
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("a.txt");
    fs::write(&path, "{\"url\": \"s3://b/k.jpg\", \"y\": 1}").unwrap();
    let allowed = StorageSettings { allow_urls: vec!["s3://b".into()], ..Default::default() };
    let list = FileList::open_with(&path, &settings, &Storage::new(&allowed).unwrap()).unwrap();
    assert_eq!(list.location(0), "s3://b/k.jpg");
    expect(
        &open("a.jsonl", "{\"path\": \"a\"}\n{\"path\": \"b\"}").unwrap(),
        &[("a", -1), ("b", -1)],
    );
}

#[test]
fn invalid_lines_are_errors_with_the_line() {
    for text in ["", "path,label\n"] {
        check_key(&config_error(open("a.csv", text)), "source.list", &["a.csv"]);
    }
    for (name, text, line, values) in [
        ("a.csv", "name,label\na,1\n", 1, &["path", "image", "file_name", "name", "label"][..]),
        ("a.csv", "path,label,label\na,1,2\n", 1, &["\"label\""]),
        ("a.csv", "path,label\na,1\nb\n", 3, &["1", "2"]),
        ("a.csv", "path,label\na,1\nb,1,2\n", 3, &["3", "2"]),
        ("a.csv", "path,label\na,1\n\"b,2\nc,3\n", 3, &["1", "2"]),
        ("a.csv", "path,label\n,1\n", 2, &["path"]),
        ("a.csv", "path,label\na,\n", 2, &["label"]),
        ("a.csv", "path,label\na,1\nb,1.5\n", 3, &["\"1.5\"", "labels", "\"text\""]),
        // The message must contain the column in the line.
        ("a.jsonl", "{\"path\": \"a\"}\n{\"path\": ", 2, &["9"]),
        ("a.jsonl", "[]", 1, &[]),
        ("a.jsonl", "{\"path\": 3}", 1, &["\"path\"", "3"]),
        ("a.jsonl", "{\"label\": 3}", 1, &["path", "image", "file_name", "label"]),
        ("a.jsonl", "{\"path\": \"a\", \"label\": 1.5}", 1, &["1.5"]),
        ("a.jsonl", "{\"path\": \"a\", \"label\": null}", 1, &["null"]),
        ("a.jsonl", "{\"path\": \"a\", \"label\": \"\"}", 1, &["label"]),
        ("a.jsonl", "{\"path\": \"a\", \"label\": 1}\n{\"path\": \"b\"}", 2, &["\"label\""]),
        ("a.jsonl", "{\"path\": \"a\"}\n{\"path\": \"b\", \"label\": 1}", 2, &["\"label\""]),
    ] {
        refused(name, text, line, values);
    }
    // Parsing stops at the maximum depth, long before the line ends.
    let deep = format!("{{\"path\": \"a\"}}\n{{\"x\": {}", "[".repeat(1 << 16));
    let error = config_error(open("a.jsonl", &deep));
    check(&error, 2, &[]);
    let column = error.problem.rsplit(|it: char| !it.is_ascii_digit()).next().unwrap();
    assert!(column.parse::<usize>().unwrap() < 1000, "{error}");
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("a.csv"), b"path\na\xff.jpg\n").unwrap();
    let error = config_error(FileList::open(root.path().join("a.csv")));
    check_key(&error, "source.list", &["a.csv", "UTF-8", "6"]);
}

/// The lists have several MiB, so some lines span two of the blocks in which the file is read.
#[test]
fn long_lists_keep_their_order_and_the_numbers_of_their_lines() {
    const LINES: usize = 60_000;
    const WRONG: usize = 50_000;
    let name = |it: usize| format!("{}{it}.jpg", "日本é".repeat(it % 9));
    let text = |it, label: &str| format!("{}\t{label}\r\n", name(it));
    let row = |it, label: &str| format!("\"{}\",{label}\n", name(it));
    let object = |it, label: &str| format!("{{\"path\": \"{}\", \"label\": {label}}}\n", name(it));
    type Line<'a> = &'a dyn Fn(usize, &str) -> String;
    let formats: [(&str, &str, Line<'_>, u64, &str); 3] = [
        ("a.txt", "", &text, 50_001, "\"\\\"x\\\"\""),
        ("a.csv", "path,label\n", &row, 50_002, "\"x\""),
        ("a.jsonl", "", &object, 50_001, "\"x\""),
    ];
    for (file, header, line, number, label) in formats {
        let lines: Vec<_> = (0..LINES).map(|it| line(it, &it.to_string())).collect();
        let content = format!("{header}{}", lines.concat());
        assert!(content.len() > 2 << 20, "{file} has {} bytes", content.len());
        let list = open(file, &content).unwrap();
        let expected_samples: Vec<_> = (0..LINES).map(|it| (name(it), it as i64)).collect();
        assert!(samples(&list) == expected_samples, "{file}");

        let wrong = lines[..WRONG].concat() + &line(WRONG, "\"x\"") + &lines[WRONG..].concat();
        refused(file, &format!("{header}{wrong}"), number, &[label]);
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join(file);
        fs::write(&path, [header.as_bytes(), wrong.as_bytes(), b"\xe2\x82"].concat()).unwrap();
        let byte = (header.len() + wrong.len()).to_string();
        check_key(&config_error(FileList::open(path)), "source.list", &[file, "UTF-8", &byte]);
    }
}

/// Opens a list whose files do not exist, and returns the error. The list is written into `root`.
fn none_there(root: &TempDir, name: &str, text: &str) -> ConfigError {
    fs::write(root.path().join(name), text).unwrap();
    config_error(FileList::open(root.path().join(name)))
}

#[test]
fn a_list_without_any_existing_file_is_an_error_on_opening() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("lists");
    fs::create_dir(&folder).unwrap();
    let base = folder.display();
    let many: String = (0..1000).map(|it| format!("train/{it}.jpg\n")).collect();
    let table = format!("path\n{many}");
    let objects: String =
        (0..1000).map(|it| format!("{{\"path\": \"train/{it}.jpg\"}}\n")).collect();
    for (name, text) in [("a.txt", &many), ("a.csv", &table), ("a.jsonl", &objects)] {
        let error = none_there(&root, &format!("lists/{name}"), text);
        let (list, first) = (format!("{base}/{name}"), format!("{base}/train/0.jpg"));
        // The message must contain the list, the number of its files, the number of checked files,
        // and the first file.
        check_key(&error, "source.list", &[&list, "1000", "16", "\"train/0.jpg\"", &first]);
    }
    let of_it = root.path().join("none/of it.jpg");
    let error = none_there(&root, "one.txt", &format!("{}\t3\n", of_it.display()));
    check_key(&error, "source.list", &["one.txt", "1", &format!("{of_it:?}")]);

    // One existing file among the checked ones suffices to open a list, even if it is empty. A path
    // below a file, such as `a.csv/1.jpg`, does not exist.
    fs::create_dir(folder.join("train")).unwrap();
    fs::write(folder.join("train/0.jpg"), "").unwrap();
    assert!(FileList::open(folder.join("a.csv")).is_ok());
    let error = none_there(&root, "b.txt", "lists/a.csv/1.jpg\n");
    check_key(&error, "source.list", &["b.txt", "1", &format!("{base}/a.csv/1.jpg")]);
    // Sixteen files are checked. The last one is number 937.
    fs::rename(folder.join("train/0.jpg"), folder.join("train/937.jpg")).unwrap();
    assert!(FileList::open(folder.join("a.jsonl")).is_ok());
    // When the plan searches for the largest file, it checks up to 4096 entries. One file with
    // bytes among them suffices to open the list.
    fs::rename(folder.join("train/937.jpg"), folder.join("train/938.jpg")).unwrap();
    assert!(FileList::open(folder.join("a.txt")).is_err());
    fs::write(folder.join("train/938.jpg"), "bytes").unwrap();
    assert!(FileList::open(folder.join("a.txt")).is_ok());
}

/// Whether a file at a URL exists is known only to the server. A list with URLs is therefore not
/// checked.
#[test]
fn a_list_with_urls_is_not_checked_for_existing_files() {
    let root = tempfile::tempdir().unwrap();
    let text = "gone.jpg\nhttp://127.0.0.1:1/a.jpg\n";
    fs::write(root.path().join("a.txt"), text).unwrap();
    let allow_urls = vec!["127.0.0.1:1".into()];
    let allowed = StorageSettings { allow_urls, retries: 0, ..Default::default() };
    let storage = Storage::new(&allowed).unwrap();
    // Without the feature `remote`, the URL is an error. The error must never be about the missing
    // file.
    match FileList::open_with(root.path().join("a.txt"), &Default::default(), &storage) {
        Ok(list) => assert_eq!(list.len(), 2),
        Err(error) => assert!(!error.to_string().contains("gone.jpg"), "{error}"),
    }
}

/// A list may come from other people. By default, its rows may name only files below the folder of
/// the list.
#[test]
fn rows_stay_below_the_folder_of_the_list_unless_the_settings_allow_more() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("set");
    fs::create_dir_all(folder.join("x")).unwrap();
    for name in ["set/a.jpg", "b.jpg"] {
        fs::write(root.path().join(name), name).unwrap();
    }
    let open = |row: &str, settings: StorageSettings| {
        fs::write(folder.join("list.txt"), format!("a.jpg\t1\n{row}\t2\n")).unwrap();
        let storage = Storage::new(&settings).unwrap();
        FileList::open_with(folder.join("list.txt"), &Default::default(), &storage)
    };
    let outside = root.path().join("b.jpg").to_str().unwrap().to_owned();
    for row in ["../b.jpg", "x/../../b.jpg", &outside] {
        let error = config_error(open(row, StorageSettings::default()));
        assert!(
            error.key.starts_with("source.list: ") && error.key.ends_with("entry 2"),
            "{error}"
        );
        for words in [row, "allow_folders", root.path().to_str().unwrap()] {
            assert!(error.problem.contains(words), "{words}: {error}");
        }
        let allow_folders = vec![root.path().to_path_buf()];
        let list = open(row, StorageSettings { allow_folders, ..Default::default() }).unwrap();
        let mut page = HostPage::default();
        list.read(1, &mut page, 100).unwrap();
        assert_eq!(page.bytes(), b"b.jpg");
    }
    // As a text, the path is inside the folder. But it leaves the folder, because `l` is a link to
    // another folder.
    fs::create_dir(root.path().join("elsewhere")).unwrap();
    std::os::unix::fs::symlink("../elsewhere", folder.join("l")).unwrap();
    let error = config_error(open("l/../b.jpg", StorageSettings::default()));
    assert!(error.problem.contains("allow_folders"), "{error}");
    let inside = folder.join("a.jpg").to_str().unwrap().to_owned();
    for row in ["x/../a.jpg", "./a.jpg", &inside] {
        assert!(open(row, StorageSettings::default()).is_ok(), "{row}");
    }
    for (url, host) in [
        ("http://169.254.169.254/latest/meta-data", "169.254.169.254"),
        ("s3://bucket/a.jpg", "s3://bucket"),
    ] {
        let error = config_error(open(url, StorageSettings::default()));
        assert!(error.problem.contains(&format!("allow_urls = [{host:?}]")), "{error}");
    }
    // The folder in `allow_folders` is relative to the pipeline file.
    fs::write(folder.join("list.txt"), "../b.jpg\t1\n").unwrap();
    let text = "[source]\nlist = \"set/list.txt\"\n[storage]\nallow_folders = [\".\"]\n";
    Pipeline::from_toml(text, root.path()).unwrap().open().unwrap();
    let text = "[source]\nlist = \"set/list.txt\"\n[storage]\nallow_urls = [\"a/b\"]\n";
    assert_eq!(config_error(Pipeline::from_toml(text, root.path())).key, "storage.allow_urls");
}

#[test]
fn memory_is_the_paths_and_two_numbers_each() {
    let rows: String = (0..10_000).map(|it| format!("{it:010}.jpg,class {}\n", it % 7)).collect();
    let list = open("a.csv", &format!("path,label\n{rows}")).unwrap();
    let bytes = list.memory_bytes();
    assert!((10_000 * 30..10_000 * 31).contains(&bytes), "{bytes}");
}

#[test]
fn a_pipeline_file_has_the_settings() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("a"), "where|what\nb.jpg|x\n").unwrap();
    fs::write(root.path().join("b.jpg"), "").unwrap();
    let text = "[source]\nlist = \"a\"\nformat = \"csv\"\nimage = \"where\"\nlabel = \"what\"\n\
                separator = \"|\"\nlabels = \"text\"\n";
    let pipeline = Pipeline::from_toml(text, root.path()).unwrap();
    let source = pipeline.source.open().unwrap();
    assert_eq!(source.location(0), root.path().join("b.jpg").to_str().unwrap());
    assert_eq!(source.classes(), ["x"]);
    let written = pipeline.to_toml().unwrap();
    assert_eq!(Pipeline::from_toml(&written, "").unwrap().source, pipeline.source);
    let wrong = Pipeline::from_toml("[source]\nlist = \"a\"\nformat = \"xml\"", "");
    check_key(&config_error(wrong), "source.format", &["xml"]);
}
