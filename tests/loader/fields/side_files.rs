//! Fields from files beside the images of a directory or a list.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::{I64, batches, builder, sample_error, shared, texts, with_field};
use crate::common::{jpegs, refused};
use feedwater::error::Reason;
use feedwater::loader::LoaderBuilder;
use feedwater::plan::{ColumnSettings, DefaultValue, OnError};
use feedwater::source::custom::{Fields, Notes};
use feedwater::source::settings::{DirectorySettings, FileListSettings};
use feedwater::source::{Concat, Directory, Field, FieldKind, FieldValue, FileList, Source};
use feedwater::storage::{Storage, StorageSettings};
use feedwater::{Pipeline, Result};

/// Writes a file and the folders above it.
fn write(root: &Path, path: &str, bytes: impl AsRef<[u8]>) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

/// Writes images with these paths.
fn images(root: &Path, paths: &[&str]) {
    for (path, (image, _)) in paths.iter().zip(jpegs(paths.len() as u64)) {
        write(root, path, image);
    }
}

fn templates(files: &[(&str, &str)]) -> BTreeMap<String, String> {
    files.iter().map(|(name, template)| (name.to_string(), template.to_string())).collect()
}

fn directory(root: &Path, files: &[(&str, &str)]) -> Result<Directory> {
    let settings = DirectorySettings { side_files: templates(files), ..Default::default() };
    Directory::with(root, &settings)
}

fn list(path: &Path, files: &[(&str, &str)], storage: &StorageSettings) -> Result<FileList> {
    let settings = FileListSettings { side_files: templates(files), ..Default::default() };
    FileList::open_with(path, &settings, &Storage::new(storage).unwrap())
}

fn or_none(column: ColumnSettings) -> ColumnSettings {
    ColumnSettings { default: Some(DefaultValue::Text("none".into())), ..column }
}

/// The text of a field of each sample, with `none` for a missing value, or the error.
fn all(source: &dyn Source, field: &str) -> Vec<String> {
    let read = |index| {
        let mut found = "none".to_string();
        let fields = source.fields().unwrap();
        let result = fields.read_fields(index, &[field], &mut Vec::new(), 100, &mut |_, value| {
            found = match value {
                FieldValue::Text(text) => text.into(),
                FieldValue::Json(text) => format!("json {}", String::from_utf8_lossy(text)),
                FieldValue::Bytes(bytes) => format!("bytes {bytes:?}"),
                other => panic!("{other:?}"),
            };
            Ok(())
        });
        result.map_or_else(|error| format!("{:?}: {}", error.reason, error.problem), |()| found)
    };
    (0..source.len()).map(read).collect()
}

#[test]
fn files_beside_the_images_of_a_directory_are_fields() {
    let root = tempfile::tempdir().unwrap();
    let set = root.path().join("images");
    images(&set, &["a/1.jpg", "a/b/2.x.jpg", "c/3.jpg"]);
    for (path, text) in [
        ("images/a/1.txt", "first é"),
        ("images/a/b/2.x.txt", "second"),
        ("masks/a/1.png", "\u{89}PNG"),
        ("masks/c/3.png", "not read as an image"),
        ("meta/1.jpg.JSON", "{\"n\": 1}"),
        ("meta/2.x.jpg.JSON", "{\"n\": 2}"),
        ("meta/3.jpg.JSON", "{\"n\": 3}"),
        ("images/a/folder.md", "of a"),
        ("images/c/folder.md", "of c"),
    ] {
        write(root.path(), path, text);
    }
    write(root.path(), "masks/a/b/2.x.png", [0x89, b'P', 0xff]);
    let absolute = format!("{}/{{folder}}/{{stem}}.txt", set.display());
    let files = [
        ("caption", "{folder}/{stem}.txt"),
        ("absolute", &*absolute),
        ("mask", "../masks/{folder}/{stem}.png"),
        ("meta", "../meta/{name}.JSON"),
        ("of_folder", "{folder}/folder.md"),
    ];
    let source = directory(&set, &files).unwrap();
    let kinds = [
        ("absolute", FieldKind::Text),
        ("caption", FieldKind::Text),
        ("mask", FieldKind::Bytes),
        ("meta", FieldKind::Json),
        ("of_folder", FieldKind::Bytes),
    ];
    let expected = kinds.map(|(name, kind)| Field { name: name.into(), kind });
    assert_eq!(source.schema(), expected);
    assert_eq!(all(&source, "caption"), ["first é", "second", "none"]);
    assert_eq!(all(&source, "absolute"), ["first é", "second", "none"]);
    assert_eq!(all(&source, "mask"), ["\u{89}PNG", "bytes [137, 80, 255]", "not read as an image"]);
    assert_eq!(all(&source, "meta"), [1, 2, 3].map(|n| format!("json {{\"n\": {n}}}")));
    assert_eq!(all(&source, "of_folder"), ["of a", "none", "of c"]);
    assert_eq!(Notes::warnings(&source), Vec::<String>::new());

    let columns = vec![
        or_none(ColumnSettings::text("caption")),
        with_field("meta:n", ColumnSettings::array("n", I64, &[])),
    ];
    let parts: Vec<std::sync::Arc<dyn Source>> =
        vec![std::sync::Arc::new(source), std::sync::Arc::new(directory(&set, &files).unwrap())];
    let source = std::sync::Arc::new(Concat::new(parts).unwrap());
    for workers in [1, 3] {
        let found = batches(shared(source.clone(), columns.clone()).num_workers(workers)).unwrap();
        let mut captions = texts(&found, "caption");
        captions.sort();
        let captions: Vec<&str> = captions.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!(captions, ["first é", "second", "none", "first é", "second", "none"]);
        let n: Vec<i64> = found
            .iter()
            .flat_map(|it| it.column("n").unwrap().as_slice::<i64>().unwrap().to_vec())
            .collect();
        assert_eq!(n, [1, 2, 3, 1, 2, 3]);
    }
}

/// Images directly in the root folder have no `{folder}`, so the slash after it is left out.
#[test]
fn templates_replace_parts_of_names_and_folders() {
    let root = tempfile::tempdir().unwrap();
    images(root.path(), &["1_rgb.jpg", "2_rgb_rgb.jpg", "3.jpg", ".hidden.jpg"]);
    for path in ["1_depth.txt", "2_rgb_depth.txt", "1_rgb.txt", "{1_rgb}.txt"] {
        write(root.path(), path, path);
    }
    let files = [
        ("beside", "{folder}/{stem}.txt"),
        ("depth", "{stem:_rgb=_depth}.txt"),
        ("in_folder", "./d/{folder}/{name}.txt"),
        ("braces", "{{{stem}}}.txt"),
        ("without", "{folder}/{name:.jpg=}.txt"),
    ];
    let source = directory(root.path(), &files).unwrap();
    assert_eq!(all(&source, "beside"), ["1_rgb.txt", "none", "none"]);
    assert_eq!(all(&source, "depth"), ["1_depth.txt", "2_rgb_depth.txt", "none"]);
    assert_eq!(all(&source, "braces"), ["{1_rgb}.txt", "none", "none"]);
    assert_eq!(all(&source, "without"), ["1_rgb.txt", "none", "none"]);
    assert_eq!(all(&source, "in_folder"), ["none", "none", "none"]);
    let warnings = Notes::warnings(&source);
    assert!(warnings.len() == 1 && warnings[0].contains("side_files.in_folder"), "{warnings:?}");
    assert!(warnings[0].contains("d/1_rgb.jpg.txt does not exist"), "{warnings:?}");

    let root = tempfile::tempdir().unwrap();
    let names = ["images/a/1.jpg", "x/images/2.jpg", "images/images/3.jpg", "my_images/4.jpg"];
    images(root.path(), &names);
    for path in ["masks/a/1.txt", "x/masks/2.txt", "masks/images/3.txt", "my_masks/4.txt"] {
        write(root.path(), path, path);
    }
    write(root.path(), "l.txt", names.join("\n"));
    let path = root.path().join("l.txt");
    let files = [
        ("mask", "{folder:images=masks}/{stem}.txt"),
        ("deep", "{folder:images/a=masks/a}/{stem}.txt"),
        ("up", "{folder:images=}/masks/{stem}.txt"),
    ];
    let source = list(&path, &files, &StorageSettings::default()).unwrap();
    assert_eq!(
        all(&source, "mask"),
        ["masks/a/1.txt", "x/masks/2.txt", "masks/images/3.txt", "none"]
    );
    assert_eq!(all(&source, "deep"), ["masks/a/1.txt", "none", "none", "none"]);
    assert_eq!(all(&source, "up"), ["none", "x/masks/2.txt", "none", "none"]);
}

#[test]
fn side_files_complete_the_columns_of_a_list() {
    let root = tempfile::tempdir().unwrap();
    images(root.path(), &["a/1.jpg", "2.jpg"]);
    write(root.path(), "a/1.txt", "one");
    write(root.path(), "2.txt", "two");
    let files = [("caption", "{folder}/{stem}.txt")];
    let open = |name: &str, text: &str| {
        write(root.path(), name, text);
        list(&root.path().join(name), &files, &StorageSettings::default())
    };
    let tables = [
        ("l.csv", "path,n\na/1.jpg,7\n2.jpg,8\n"),
        ("l.jsonl", "{\"path\": \"a/1.jpg\", \"n\": 7}\n{\"path\": \"2.jpg\", \"n\": 8}\n"),
    ];
    for (name, text) in tables {
        let source = open(name, text).unwrap();
        assert_eq!(all(&source, "caption"), ["one", "two"]);
        let columns = vec![
            ColumnSettings::text("caption"),
            ColumnSettings::array("n", I64, &[]),
            with_field("caption", ColumnSettings::text("again")),
        ];
        let found = batches(builder(source, columns)).unwrap();
        assert_eq!(texts(&found, "caption"), [(0, "one".into()), (1, "two".into())]);
        assert_eq!(texts(&found, "again"), [(0, "one".into()), (1, "two".into())]);
        assert_eq!(found[0].column("n").unwrap().as_slice::<i64>().unwrap(), [7, 8]);
        let clash = text.replace("\"n\"", "\"caption\"").replace(",n\n", ",caption\n");
        refused(open(name, &clash), "source.side_files.caption", &["has a column"]);
    }
    // A list with only paths has no other fields.
    let source = open("l.txt", "a/1.jpg\n2.jpg\n").unwrap();
    assert_eq!(all(&source, "caption"), ["one", "two"]);
}

/// Only the settings may lead out of the folder of a list. The paths in the list are data.
#[test]
fn paths_of_images_may_not_lead_out_of_the_allowed_folders() {
    let root = tempfile::tempdir().unwrap();
    let set = root.path().join("set");
    images(root.path(), &["set/a/1.jpg", "other/2.jpg"]);
    for path in ["set/a/1.txt", "other/2.txt", "masks/a/1.txt", "set/masks/a/1.txt", "a/1.txt"] {
        write(root.path(), path, path);
    }
    let outside = root.path().join("other/2.jpg");
    let lines = format!("a/1.jpg\na/x/../1.jpg\n{}\n", outside.display());
    fs::create_dir(set.join("a/x")).unwrap();
    fs::create_dir_all(set.join("masks/a/x")).unwrap();
    write(&set, "l.txt", lines);
    let path = set.join("l.txt");
    let files = [
        ("beside", "{folder}/{stem}.txt"),
        ("mask", "masks/{folder}/{stem}.txt"),
        ("up", "../masks/{folder}/{stem}.txt"),
        ("escape", "{folder}/../../a/{stem}.txt"),
    ];
    let allowed =
        StorageSettings { allow_folders: vec![root.path().join("other")], ..Default::default() };
    let source = list(&path, &files, &allowed).unwrap();
    assert_eq!(all(&source, "beside"), ["set/a/1.txt", "set/a/1.txt", "other/2.txt"]);
    let masks = all(&source, "mask");
    assert_eq!(masks[..2], ["set/masks/a/1.txt", "set/masks/a/1.txt"]);
    assert!(
        masks[2].starts_with("Field: the field \"mask\": {folder} is an absolute"),
        "{masks:?}"
    );
    let up = all(&source, "up");
    assert_eq!(up[0], "masks/a/1.txt");
    assert!(up[1].starts_with("Unreadable: the field \"up\": names the file"), "{up:?}");
    let escape = all(&source, "escape");
    assert_eq!(escape[0], "a/1.txt");
    assert!(
        escape[2].starts_with("Unreadable") && escape[2].contains("allow_folders"),
        "{escape:?}"
    );
}

#[test]
fn files_that_cannot_be_read_fail_their_sample() {
    let root = tempfile::tempdir().unwrap();
    images(root.path(), &["0.jpg", "1.jpg", "2.jpg", "3.jpg", "4.jpg"]);
    write(root.path(), "0.txt", "");
    write(root.path(), "1.txt", vec![b'a'; 101]);
    symlink("missing", root.path().join("2.txt")).unwrap();
    symlink(root.path(), root.path().join("3.txt")).unwrap();
    write(root.path(), "4.txt", vec![b'a'; 100]);
    // A link to a folder would be a class.
    let lines = "0.jpg\n1.jpg\n2.jpg\n3.jpg\n4.jpg\n";
    write(root.path(), "l.lst", lines);
    let files = [("caption", "{stem}.txt")];
    let source = list(&root.path().join("l.lst"), &files, &StorageSettings::default()).unwrap();
    let found = all(&source, "caption");
    assert_eq!((found[0].as_str(), found[4].len()), ("", 100));
    for (index, words) in [
        (1, "Oversized: the field \"caption\" in "),
        (1, "1.txt: has 101 bytes; limits.max_field_bytes is 100"),
        (2, "2.txt: is a link to a file that does not exist"),
        (3, "3.txt: not a regular file but a folder"),
    ] {
        assert!(found[index].contains(words), "{words}: {found:?}");
    }
    let column = || vec![or_none(ColumnSettings::text("caption"))];
    let limited = |source| -> LoaderBuilder {
        builder(source, column()).configure(|it| it.limits.max_field_bytes = 4096)
    };
    write(root.path(), "1.txt", vec![b'a'; 5000]);
    let (index, reason, problem) = sample_error(limited(source));
    assert_eq!((index, reason), (1, Reason::Oversized), "{problem}");
    let source = list(&root.path().join("l.lst"), &files, &StorageSettings::default()).unwrap();
    let found = batches(limited(source).on_error(OnError::Drop)).unwrap();
    assert_eq!(texts(&found, "caption"), [(0, "none".into()), (4, "a".repeat(100))]);
}

#[test]
fn wrong_settings_name_the_field() {
    let root = tempfile::tempdir().unwrap();
    images(root.path(), &["a/1.jpg", "a/2.jpeg"]);
    for (name, template, words) in [
        ("x", "{folder}/{name}", &["a/1.jpg", "the image itself"][..]),
        ("x", "./{folder}/{stem}.jpeg", &["a/2.jpeg", "the image itself"]),
        ("x", "{folder}/{stm}.txt", &["{stm}", "{folder}, {stem} and {name}"]),
        ("x", "{folder}/{stem", &["single brace"]),
        ("x", "caption.txt", &["the same file for every image"]),
        ("x", "", &["the same file for every image"]),
        ("image", "{folder}/{stem}.txt", &["choose another name"]),
        ("label", "{folder}/{stem}.txt", &["choose another name"]),
    ] {
        let opened = directory(root.path(), &[(name, template)]);
        refused(opened, &format!("source.side_files.{name}"), words);
    }
    refused(directory(root.path(), &[("", "{stem}.txt")]), "source.side_files", &["empty name"]);
}

/// An image that is not among the first ones may be its own side file.
#[test]
fn a_sample_whose_side_file_is_its_image_fails() {
    let root = tempfile::tempdir().unwrap();
    let names: Vec<String> =
        (0..101).map(|it| format!("a/{it:03}.{}", if it < 100 { "jpg" } else { "jpeg" })).collect();
    images(root.path(), &names.iter().map(String::as_str).collect::<Vec<_>>());
    let source = directory(root.path(), &[("mask", "{folder}/{stem}.jpeg")]).unwrap();
    let last = all(&source, "mask").pop().unwrap();
    assert!(last.starts_with("Field: ") && last.contains("the path of the image itself"), "{last}");
}

#[test]
fn a_pipeline_file_names_side_files() {
    let root = tempfile::tempdir().unwrap();
    images(&root.path().join("set"), &["a/1.jpg"]);
    write(root.path(), "captions/a/1.txt", "hello");
    let text = r#"
        [source]
        directory = "set"
        [source.side_files]
        caption = "../captions/{folder}/{stem}.txt"
        [[column]]
        name = "caption"
        kind = "text"
        [[chain]]
        op = "resize"
        width = 8
        height = 8
    "#;
    let pipeline = Pipeline::from_toml(text, root.path()).unwrap();
    let written = pipeline.to_toml().unwrap();
    let again = Pipeline::from_toml(&written, "").unwrap();
    assert_eq!(again.to_toml().unwrap(), written);
    let source = again.open().unwrap();
    assert_eq!(all(&*source, "caption"), ["hello"]);
    let wrong = Pipeline::from_toml(&text.replace("{stem}", "{stam}"), root.path()).unwrap();
    let error = crate::common::config_error(wrong.open());
    assert_eq!(error.key, "source.side_files.caption");
    assert_eq!(error.at.unwrap().line, 5);
}
