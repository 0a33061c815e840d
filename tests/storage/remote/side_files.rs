//! Fields from files beside images in a bucket.

use std::path::Path;

use super::{USUAL, buckets, storage};
use crate::common::refused;
use crate::servers::Fault;
use feedwater::source::custom::Fields;
use feedwater::source::settings::{DirectorySettings, FileListSettings};
use feedwater::source::{Directory, FieldValue, FileList};
use feedwater::storage::StorageSettings;

/// The text of the field `caption`, with `none` for a missing value, or the error.
fn caption(source: &dyn Fields, index: u64, limit: u64) -> String {
    let mut found = "none".to_string();
    let result =
        source.read_fields(index, &["caption"], &mut Vec::new(), limit, &mut |_, value| {
            let FieldValue::Text(text) = value else { panic!("{value:?}") };
            found = text.into();
            Ok(())
        });
    result.map_or_else(|error| format!("{:?}: {}", error.reason, error.problem), |()| found)
}

#[test]
fn objects_beside_the_images_are_fields() {
    let (server, _guard) = buckets();
    for name in ["a/1.jpg", "a/2.jpg", "b/c/3.jpg"] {
        server.put(&format!("/beside/set/images/{name}"), [1]);
    }
    for name in ["set/images/a/1.txt", "set/texts/a/1.txt", "b/c/3.txt"] {
        server.put(&format!("/beside/{name}"), name);
    }
    for url in ["s3://beside/set/images", "s3://beside/set/images/"] {
        for (template, expected) in [
            ("{folder}/{stem}.txt", ["set/images/a/1.txt", "none", "none"]),
            ("../texts/{folder}/{stem}.txt", ["set/texts/a/1.txt", "none", "none"]),
            ("../../{folder}/{stem}.txt", ["none", "none", "b/c/3.txt"]),
            ("s3://beside/set/texts/{folder}/{stem}.txt", ["set/texts/a/1.txt", "none", "none"]),
        ] {
            let side_files = [("caption".into(), template.into())].into();
            let settings = DirectorySettings { side_files, ..Default::default() };
            server.forget("/beside/set/texts");
            let source = Directory::open_with(url, &settings, &USUAL).unwrap();
            assert_eq!(server.log("/beside/set/texts").len(), 0, "opening reads no side file");
            assert_eq!([0, 1, 2].map(|index| caption(&source, index, 99)), expected, "{template}");
            if template.starts_with('{') {
                let large = caption(&source, 0, 10);
                assert!(large.starts_with("Oversized") && large.contains("18 bytes"), "{large}");
            }
        }
    }
    let side_files = [("caption".into(), "../../../{stem}.txt".into())].into();
    let settings = DirectorySettings { side_files, ..Default::default() };
    let opened = Directory::open_with("s3://beside/set/images", &settings, &USUAL);
    refused(opened, "source.side_files.caption", &["out of the bucket"]);
}

#[test]
fn side_files_of_urls_in_a_list_need_the_same_permission() {
    let (server, _guard) = buckets();
    server.put("/linked/a/1.jpg", [1]);
    server.put("/linked/a/1.txt", "one");
    server.put("/linked/a/2.jpg", [1]);
    let folder = tempfile::tempdir().unwrap();
    let list = folder.path().join("l.txt");
    std::fs::write(&list, "s3://linked/a/1.jpg\ns3://linked/a/2.jpg\n").unwrap();
    let allow_urls = vec!["s3://linked".into()];
    let storage = storage(&StorageSettings { allow_urls, retries: 0, ..super::settings() });
    let open = |template: &str| {
        let side_files = [("caption".into(), template.into())].into();
        let settings = FileListSettings { side_files, ..Default::default() };
        FileList::open_with(Path::new(&list), &settings, &storage).unwrap()
    };
    let source = open("{folder}/{stem}.txt");
    assert_eq!([0, 1].map(|index| caption(&source, index, 99)), ["one", "none"]);
    server.fail("/linked/a/1.txt", [Fault::Status(403)]);
    let error = caption(&source, 0, 99);
    assert!(error.starts_with("Unreadable: ") && error.contains("s3://linked/a/1.txt"), "{error}");
    let error = caption(&open("{folder:linked=secret}/{stem}.txt"), 0, 99);
    assert!(error.starts_with("Unreadable: ") && error.contains("allow_urls"), "{error}");
}
