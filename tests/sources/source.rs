//! Tests what the documentation of `Directory`, `FileList` and `Memory` promises, on folders in the
//! file system.

use crate::common::words::has_words;
use crate::common::{self, Wrapping, config_error, position};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;

use feedwater::error::{DataError, Error, Reason};
use feedwater::loader::{DeviceChoice, Loader};
use feedwater::source::custom::{Hints, HostPage, Notes, Page};
use feedwater::source::settings::DirectorySettings;
use feedwater::source::{Directory, Exclusion, ExclusionReason, FileList, Memory, Repeat, Source};
use tempfile::TempDir;

/// Creates a temporary folder with these files. Each file contains its own name.
fn tree(files: &[&str]) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for file in files {
        let path = root.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, file).unwrap();
    }
    root
}

/// Returns the label and the path below `root` of each sample, in order.
fn samples(source: &dyn Source, root: &Path) -> Vec<(i64, String)> {
    (0..source.len())
        .map(|index| {
            let path = source.location(index);
            let path = Path::new(&path).strip_prefix(root).unwrap();
            (source.label(index), path.to_str().unwrap().to_string())
        })
        .collect()
}

fn expect(source: &dyn Source, root: &TempDir, expected: &[(i64, &str)]) {
    let expected: Vec<_> =
        expected.iter().map(|(label, path)| (*label, path.to_string())).collect();
    assert_eq!(samples(source, root.path()), expected);
}

fn read(source: &dyn Source, index: u64) -> Vec<u8> {
    let mut page = HostPage::default();
    source.read(index, &mut page, 1 << 20).unwrap();
    page.bytes().to_vec()
}

/// Writes a list into `root` and opens it. If no listed file exists, creates the first one as an
/// empty file.
fn list(root: &TempDir, text: impl AsRef<[u8]>) -> Result<FileList, Error> {
    let path = root.path().join("list.tsv");
    fs::write(&path, text).unwrap();
    common::with_a_file(&path, || FileList::open(&path))
}

#[test]
fn every_folder_is_a_class_in_the_byte_order_of_names() {
    let root = tree(&["b/1.jpg", "a/1.jpg", "B/1.jpg", "a.b/1.jpg", "10/1.jpg", "9/1.jpg"]);
    let source = Directory::open(root.path()).unwrap();
    assert_eq!(source.classes(), ["10", "9", "B", "a", "a.b", "b"]);
    let expected = ["10/1.jpg", "9/1.jpg", "B/1.jpg", "a/1.jpg", "a.b/1.jpg", "b/1.jpg"];
    let expected: Vec<_> = expected.into_iter().enumerate().map(|(i, it)| (i as i64, it)).collect();
    expect(&source, &root, &expected);
}

/// Returns the key and the message of the error that opening the folder gives.
fn refused(root: &TempDir, settings: &DirectorySettings) -> (String, String) {
    match Directory::with(root.path(), settings) {
        Err(Error::Config(error)) => (error.key, error.problem),
        other => panic!("{:?}", other.err()),
    }
}

fn counts(source: &dyn Source) -> Vec<(ExclusionReason, String, u64)> {
    let one = |Exclusion { why, kind, count, .. }| (why, kind, count);
    source.excluded().into_iter().map(one).collect()
}

#[test]
fn a_class_without_images_is_an_error_unless_allowed_and_keeps_its_label() {
    let root = tree(&["bee/1.jpg", "cow/readme.txt"]);
    fs::create_dir(root.path().join("ant")).unwrap();
    let (key, problem) = refused(&root, &DirectorySettings::default());
    assert_eq!(key, "source.directory");
    assert!(has_words(&problem, &["ant", "cow", "source.allow_empty"]), "{problem}");
    assert!(!has_words(&problem, &["bee"]), "{problem}");
    let settings = DirectorySettings { allow_empty: true, ..Default::default() };
    let source = Directory::with(root.path(), &settings).unwrap();
    assert_eq!(source.classes(), ["ant", "bee", "cow"]);
    expect(&source, &root, &[(1, "bee/1.jpg")]);
}

#[test]
fn class_to_index_sets_the_labels_and_skips_other_folders() {
    let root = tree(&["cat/1.jpg", "dog/2.jpg", "kitten/3.jpg", "eel/4.jpg"]);
    let with = |indices: &[(&str, i64)]| {
        let indices = indices.iter().map(|(name, index)| (name.to_string(), *index)).collect();
        DirectorySettings { class_to_index: Some(indices), ..Default::default() }
    };
    let settings = with(&[("cat", 2), ("kitten", 2), ("dog", 0)]);
    let source = Directory::with(root.path(), &settings).unwrap();
    expect(&source, &root, &[(2, "cat/1.jpg"), (0, "dog/2.jpg"), (2, "kitten/3.jpg")]);
    assert_eq!(source.classes(), ["dog", "", "cat|kitten"]);
    assert_eq!(counts(&source), [(ExclusionReason::OtherClass, String::new(), 1)]);
    let missing = refused(&root, &with(&[("cat", 0), ("horse", 1)]));
    assert!(missing.0 == "source.directory" && missing.1.contains("horse"), "{missing:?}");
    let negative = refused(&root, &with(&[("cat", -1)]));
    assert_eq!(negative.0, "source.class_to_index.cat");
    assert_eq!(refused(&root, &with(&[("cat", 1 << 20)])).0, "source.class_to_index.cat");
    assert_eq!(refused(&root, &with(&[])).0, "source.class_to_index");
}

#[test]
fn files_without_an_image_extension_are_skipped_and_counted_by_extension() {
    let root = tree(&["a/1.JPG", "a/readme.txt", "a/b.heic", "a/c.HEIC", "a/noext", "b/x.y.tiff"]);
    let source = Directory::open(root.path()).unwrap();
    expect(&source, &root, &[(0, "a/1.JPG"), (1, "b/x.y.tiff")]);
    let other = |kind: &str, count| (ExclusionReason::OtherExtension, kind.to_string(), count);
    assert_eq!(counts(&source), [other(".heic", 2), other(".txt", 1), other("no extension", 1)]);
    let example = &source.excluded()[0].example;
    assert_eq!(*example, root.path().join("a/b.heic").to_str().unwrap());
    let any = DirectorySettings { extensions: vec!["*".into()], ..Default::default() };
    assert_eq!(Directory::with(root.path(), &any).unwrap().len(), 6);
    let some = DirectorySettings { extensions: vec![".heic".into()], allow_empty: true, ..any };
    assert_eq!(Directory::with(root.path(), &some).unwrap().len(), 2);
    let none = DirectorySettings { extensions: vec![], ..Default::default() };
    assert_eq!(refused(&root, &none).0, "source.extensions");
}

#[test]
fn class_folders_that_contain_class_folders_are_a_warning() {
    let root = tree(&["train/cat/1.jpg", "train/dog/2.jpg", "val/cat/3.jpg"]);
    let source = Directory::open(root.path()).unwrap();
    let [warning] = &source.warnings()[..] else { panic!("{:?}", source.warnings()) };
    // The message must contain the class folders with their numbers of images, and the line to
    // write instead.
    assert!(has_words(warning, &["train", "2", "val", "1"]), "{warning}");
    let line = format!("directory = {:?}", root.path().join("train"));
    assert!(warning.contains(&line), "{warning}");
    let flat = tree(&["train/cat/1.jpg", "val/3.jpg"]);
    assert_eq!(
        Directory::open(flat.path()).unwrap().warnings().len(),
        1,
        "the folders must be recognized by their names"
    );
    let fine = tree(&["cat/1.jpg", "cat/more/2.jpg", "train/3.jpg"]);
    assert!(Directory::open(fine.path()).unwrap().warnings().is_empty());
}

#[test]
fn without_folders_the_files_themselves_are_samples_without_a_label() {
    let root = tree(&["2.jpg", "10.jpg", "1.jpg"]);
    let source = Directory::open(root.path()).unwrap();
    assert!(source.classes().is_empty());
    expect(&source, &root, &[(-1, "1.jpg"), (-1, "10.jpg"), (-1, "2.jpg")]);
}

#[test]
fn files_of_a_folder_come_first_and_then_its_sub_folders() {
    let root = tree(&["a/b/3.jpg", "a/z.jpg", "a/b/1/2.jpg", "a/c.jpg", "a/b-/4.jpg"]);
    let source = Directory::open(root.path()).unwrap();
    // `-` sorts before `/`.
    let paths = ["a/c.jpg", "a/z.jpg", "a/b/3.jpg", "a/b-/4.jpg", "a/b/1/2.jpg"];
    expect(&source, &root, &paths.map(|path| (0, path)));
    assert_eq!(read(&source, 4), b"a/b/1/2.jpg");
}

/// The order must equal that of torchvision's `make_dataset`. For each class in order, it uses
/// `sorted(os.walk(folder))`, which sorts folders by their whole path as a text. The files of each
/// folder are sorted by name.
#[test]
fn nested_folders_are_in_the_order_of_image_folder() {
    let names = ["a", "a-b", "a.b", "a b", "b", "A", "a0", "~", "é", "1"];
    let mut files = Vec::new();
    for class in ["c", "c-d"] {
        for (number, first) in names.into_iter().enumerate() {
            files.push(format!("{class}/{first}/2.jpg"));
            files.push(format!("{class}/{first}/10.jpg"));
            for second in &names[number % 3..] {
                files.push(format!("{class}/{first}/{second}/x.jpg"));
                files.push(format!("{class}/{first}/{second}/{first}/y.jpg"));
            }
        }
        files.push(format!("{class}/0.jpg"));
    }
    let root = tree(&files.iter().map(String::as_str).collect::<Vec<_>>());
    let source = Directory::open(root.path()).unwrap();
    files.sort_by_key(|path| {
        let (class, _) = path.split_once('/').unwrap();
        let (folder, name) = path.rsplit_once('/').unwrap();
        (class.to_string(), folder.to_string(), name.to_string())
    });
    let paths: Vec<_> = samples(&source, root.path()).into_iter().map(|it| it.1).collect();
    assert_eq!(paths, files);
    let nested = tree(&["c/a/x.jpg", "c/a/b/x.jpg", "c/a-b/x.jpg"]);
    let source = Directory::open(nested.path()).unwrap();
    expect(&source, &nested, &["c/a/x.jpg", "c/a-b/x.jpg", "c/a/b/x.jpg"].map(|it| (0, it)));
}

#[test]
fn links_to_files_and_folders_are_followed() {
    let far = tree(&["deep/far.jpg"]);
    let root = tree(&["a/1.jpg"]);
    symlink(far.path().join("deep"), root.path().join("b")).unwrap();
    symlink(far.path().join("deep/far.jpg"), root.path().join("a/2.jpg")).unwrap();
    let source = Directory::open(root.path()).unwrap();
    expect(&source, &root, &[(0, "a/1.jpg"), (0, "a/2.jpg"), (1, "b/far.jpg")]);
    assert_eq!(read(&source, 1), b"deep/far.jpg");
}

#[test]
fn a_link_to_a_folder_above_itself_is_not_followed() {
    let root = tree(&["a/1.jpg", "a/sub/2.jpg", "b/3.jpg"]);
    symlink(root.path().join("a"), root.path().join("a/sub/up")).unwrap();
    symlink(root.path(), root.path().join("a/sub/top")).unwrap();
    symlink(".", root.path().join("a/self")).unwrap();
    let source = Directory::open(root.path()).unwrap();
    expect(&source, &root, &[(0, "a/1.jpg"), (0, "a/sub/2.jpg"), (1, "b/3.jpg")]);
}

#[test]
fn a_dangling_link_is_an_unreadable_sample() {
    let root = tree(&["a/1.jpg"]);
    symlink("nowhere.jpg", root.path().join("a/2.jpg")).unwrap();
    let source = Directory::open(root.path()).unwrap();
    assert_eq!(source.len(), 2);
    let fault = source.read(1, &mut HostPage::default(), 1000).unwrap_err();
    assert_eq!(fault.reason, Reason::Unreadable);
}

#[test]
fn hidden_names_are_ignored() {
    let root = tree(&["a/.hidden.jpg", "a/.git/1.jpg", ".cache/1.jpg", "a/1.jpg", ".x"]);
    let source = Directory::open(root.path()).unwrap();
    assert_eq!(source.classes(), ["a"]);
    expect(&source, &root, &[(0, "a/1.jpg")]);
    assert_eq!(counts(&source), []);
}

#[test]
fn only_files_are_samples() {
    let root = tree(&["a/1.jpg"]);
    let _socket = UnixListener::bind(root.path().join("a/2.jpg")).unwrap();
    let source = Directory::open(root.path()).unwrap();
    expect(&source, &root, &[(0, "a/1.jpg")]);
    assert_eq!(counts(&source), [(ExclusionReason::Special, String::new(), 1)]);
}

#[test]
fn files_beside_the_class_folders_are_skipped_and_counted() {
    let root = tree(&["a/1.jpg", "a/2.jpg", "readme.txt", "labels.csv"]);
    let source = Directory::open(root.path()).unwrap();
    expect(&source, &root, &[(0, "a/1.jpg"), (0, "a/2.jpg")]);
    // The description must contain the number of files and the number of classes.
    assert!(has_words(&source.describe(), &["2", "1"]), "{}", source.describe());
    assert_eq!(counts(&source), [(ExclusionReason::BesideClasses, String::new(), 2)]);
    assert!(source.warnings().is_empty());
    ["3.JPG", "4.png"].iter().for_each(|it| fs::write(root.path().join(it), it).unwrap());
    let source = Directory::open(root.path()).unwrap();
    let [warning] = &source.warnings()[..] else { panic!("{:?}", source.warnings()) };
    assert!(has_words(warning, &["2 images", "3.JPG", "list"]), "{warning}");
    assert!(warning.contains(root.path().to_str().unwrap()), "{warning}");
}

#[test]
fn names_that_are_not_utf_8_can_be_read() {
    let root = tempfile::tempdir().unwrap();
    let class = root.path().join(OsStr::from_bytes(b"caf\xe9"));
    fs::create_dir(&class).unwrap();
    fs::write(class.join(OsStr::from_bytes(b"\xff.jpg")), "bytes").unwrap();
    let source = Directory::open(root.path()).unwrap();
    assert_eq!(source.classes(), ["caf\u{fffd}"]);
    assert_eq!(source.path(0), class.join(OsStr::from_bytes(b"\xff.jpg")));
    assert_eq!(read(&source, 0), b"bytes");
}

#[test]
fn an_empty_or_missing_directory_is_an_error_with_its_path() {
    let root = tree(&["a/.hidden"]);
    let error = config_error(Directory::open(root.path()));
    assert_eq!(error.key, "source.directory");
    assert!(has_words(&error.problem, &[root.path().to_str().unwrap(), "jpg"]), "{error}");
    let missing = root.path().join("missing");
    let error = Directory::open(&missing).err().unwrap();
    assert!(matches!(&error, Error::Io { path, .. } if *path == missing), "{error}");
    let source = std::error::Error::source(&error).unwrap();
    let kind = source.downcast_ref::<std::io::Error>().unwrap().kind();
    assert_eq!(kind, std::io::ErrorKind::NotFound);
}

#[test]
fn twenty_thousand_files_in_a_hundred_folders_are_in_order_and_need_little_memory() {
    let root = tempfile::tempdir().unwrap();
    for class in 0..100 {
        let folder = root.path().join(format!("{class:03}"));
        fs::create_dir(&folder).unwrap();
        for file in (0..200).rev() {
            fs::write(folder.join(format!("{file:03}.jpg")), "x").unwrap();
        }
    }
    let source = Directory::open(root.path()).unwrap();
    assert_eq!(source.len(), 20_000);
    for (index, (label, path)) in samples(&source, root.path()).into_iter().enumerate() {
        let (class, file) = (index / 200, index % 200);
        assert_eq!((label, path), (class as i64, format!("{class:03}/{file:03}.jpg")));
    }
    let bytes = source.memory_bytes();
    assert!((20_000 * 15..20_000 * 32).contains(&bytes), "{bytes} bytes");
    assert_eq!(source.largest_bytes(), Some(1));
}

#[test]
fn a_sample_has_index_location_and_label() {
    let root = tree(&["a/1.jpg", "b/2.jpg"]);
    let source = Directory::open(root.path()).unwrap();
    let sample = (&source as &dyn Source).sample(1);
    assert_eq!((sample.index, sample.label), (1, Some(1)));
    assert_eq!(sample.location, root.path().join("b/2.jpg").to_str().unwrap());
}

#[test]
fn the_largest_file_is_known_and_an_oversized_one_is_an_error_before_it_is_read() {
    let root = tree(&["a/1.jpg"]);
    fs::write(root.path().join("a/2.jpg"), vec![7; 1001]).unwrap();
    let source = Directory::open(root.path()).unwrap();
    assert_eq!(source.largest_bytes(), Some(1001));
    let mut page = HostPage::default();
    source.read(1, &mut page, 1001).unwrap();
    assert_eq!(page.bytes(), vec![7; 1001]);
    let fault = source.read(1, &mut page, 1000).unwrap_err();
    assert_eq!(fault.reason, Reason::Oversized);
    assert!(has_words(&fault.problem, &["1001", "limits.max_file_bytes", "1000"]), "{fault}");
}

#[test]
fn a_page_holds_the_last_sample_only() {
    let source = Memory::new(vec![(vec![1; 9], 0), (vec![2; 3], 1), (Vec::new(), 2)]).unwrap();
    let mut page = HostPage::default();
    for (index, expected) in [(0, vec![1; 9]), (1, vec![2; 3]), (2, Vec::new())] {
        source.read(index, &mut page, 9).unwrap();
        assert_eq!(page.bytes(), expected);
    }
}

#[test]
fn a_list_has_paths_and_labels_in_the_order_of_its_lines() {
    let root = tree(&["images/b.jpg", "a b.jpg"]);
    let absolute = root.path().join("a b.jpg").to_str().unwrap().to_string();
    let text = format!("images/b.jpg\t7\n\n   \na b.jpg\t-3\n{absolute}\t 5 \n");
    let source = list(&root, text).unwrap();
    expect(&source, &root, &[(7, "images/b.jpg"), (-3, "a b.jpg"), (5, "a b.jpg")]);
    assert_eq!(read(&source, 0), b"images/b.jpg");
    assert_eq!(read(&source, 2), b"a b.jpg");
    assert_eq!(source.largest_bytes(), Some("images/b.jpg".len() as u64));
    assert!(has_words(&source.describe(), &["list.tsv", "3"]), "{}", source.describe());
}

#[test]
fn without_a_tab_the_label_follows_the_last_space_if_it_is_an_integer() {
    let root = tree(&["a.jpg"]);
    let source = list(&root, "a.jpg 12\nmy photo.jpg 3\nmy photo.jpg\nalone.jpg").unwrap();
    let expected = [(12, "a.jpg"), (3, "my photo.jpg"), (-1, "my photo.jpg"), (-1, "alone.jpg")];
    expect(&source, &root, &expected);
}

#[test]
fn line_ends_of_windows_are_line_ends() {
    let root = tree(&[]);
    let source = list(&root, "a.jpg\t1\r\n\r\nb.jpg\r\nc.jpg 2\r\n").unwrap();
    expect(&source, &root, &[(1, "a.jpg"), (-1, "b.jpg"), (2, "c.jpg")]);
}

#[test]
fn a_label_that_is_not_an_integer_is_an_error_with_its_line() {
    let root = tree(&[]);
    for (label, shown) in
        [("cat", "\"cat\""), ("1.5", "\"1.5\""), ("", "\"\""), ("1\t2", "\"1\\t2\"")]
    {
        let error = config_error(list(&root, format!("a.jpg\t1\n\nb.jpg\t{label}\n")));
        assert!(error.key.starts_with("source.list: "), "{error}");
        assert!(error.key.contains("list.tsv"), "{error}");
        assert_eq!(position(&error), 3, "{error}");
        assert!(has_words(&error.problem, &[shown]), "{error}");
    }
}

#[test]
fn a_missing_file_of_a_list_is_an_unreadable_sample() {
    let root = tree(&["here.jpg"]);
    let source = list(&root, "gone.jpg\t1\nhere.jpg\t2\n").unwrap();
    let fault = source.read(0, &mut HostPage::default(), 1000).unwrap_err();
    assert_eq!(fault.reason, Reason::Unreadable);
    assert_eq!(fault.source.unwrap().kind(), std::io::ErrorKind::NotFound);
    assert_eq!(read(&source, 1), b"here.jpg");
}

#[test]
fn a_folder_in_a_list_cannot_be_read() {
    let root = tree(&["folder/1.jpg"]);
    let source = list(&root, "folder\t1\n").unwrap();
    let fault = source.read(0, &mut HostPage::default(), 1 << 20).unwrap_err();
    assert_eq!(fault.reason, Reason::Unreadable);
    assert!(has_words(&fault.problem, &["folder"]), "{fault}");
}

#[test]
fn an_empty_or_unreadable_list_is_an_error() {
    let root = tree(&[]);
    let error = config_error(list(&root, "\n  \n"));
    assert_eq!(error.key, "source.list");
    assert!(has_words(&error.problem, &["list.tsv"]), "{error}");
    let missing = root.path().join("missing.tsv");
    assert!(matches!(FileList::open(&missing), Err(Error::Io { path, .. }) if path == missing));
    let error = config_error(list(&root, b"caf\xe9.jpg\t1\n"));
    assert_eq!(error.key, "source.list");
    assert!(has_words(&error.problem, &["list.tsv", "UTF-8", "3"]), "{error}");
}

#[test]
fn images_in_memory_are_samples_with_their_labels() {
    let source = Memory::new(vec![(b"one".to_vec(), 4), (b"three".to_vec(), -1)]).unwrap();
    assert_eq!((source.len(), source.label(0), source.label(1)), (2, 4, -1));
    assert_eq!(source.location(1), "memory[1]");
    assert_eq!(read(&source, 1), b"three");
    assert_eq!((source.largest_bytes(), source.memory_bytes() >= 8), (Some(5), true));
    assert!(has_words(&source.describe(), &["memory", "2"]), "{}", source.describe());
    let fault = source.read(1, &mut HostPage::default(), 4).unwrap_err();
    assert_eq!(fault.reason, Reason::Oversized);
}

#[test]
fn memory_without_samples_is_an_error() {
    assert_eq!(config_error(Memory::new(Vec::new())).key, "source");
}

#[test]
fn a_wrapper_forwards_all_abilities_of_its_source() {
    let root = tree(&["a/1.jpg", "a/notes.txt", "b/2.jpg"]);
    let directory: Arc<dyn Source> = Arc::new(Directory::open(root.path()).unwrap());
    let twice: Arc<dyn Source> = Arc::new(Repeat::new(directory, 2).unwrap());
    let wrapper = Wrapping(twice.clone());
    let (wrapper, twice): (&dyn Source, &dyn Source) = (&wrapper, &*twice);
    assert_eq!(wrapper.describe(), twice.describe());
    assert_eq!(wrapper.classes(), ["a", "b"]);
    assert!(wrapper.has_heads() && !wrapper.is_remote());
    assert_eq!(wrapper.largest_bytes(), twice.largest_bytes());
    assert_eq!(wrapper.memory_bytes(), twice.memory_bytes());
    assert_eq!((wrapper.originals(), wrapper.original(2)), (twice.originals(), twice.original(2)));
    assert_eq!((wrapper.excluded(), wrapper.excluded().len()), (twice.excluded(), 1));
    assert_eq!(wrapper.version(0), twice.version(0));
    let ((part, place), (other, other_place)) = (wrapper.part(3), twice.part(3));
    assert!(std::ptr::addr_eq(part, other) && (place, other_place) == (1, 1));
    let mut page = HostPage::default();
    assert_eq!(wrapper.read_head(1, &mut page, 3, 100).unwrap(), 7);
    assert_eq!(page.bytes(), b"b/2");
}

/// A source that implements only the four required methods of the trait.
struct Bare(Vec<Vec<u8>>);

impl Source for Bare {
    fn len(&self) -> u64 {
        self.0.len() as u64
    }
    fn label(&self, _: u64) -> i64 {
        -1
    }
    fn location(&self, index: u64) -> String {
        format!("row {index}")
    }
    fn read(&self, index: u64, page: &mut dyn Page, limit: u64) -> Result<(), DataError> {
        page.fill(&self.0[index as usize], limit)
    }
}

#[test]
fn four_methods_make_a_source() {
    let images = vec![common::jpeg(1, 40, 30), common::jpeg(2, 80, 60), common::jpeg(3, 20, 20)];
    let largest = images[1].len();
    let bare = Bare(images);
    let source: &dyn Source = &bare;
    assert_eq!((source.largest_bytes(), source.memory_bytes(), source.originals()), (None, 0, 3));
    assert!(has_words(&source.describe(), &["3"]), "{}", source.describe());
    assert!(!source.has_heads());
    let fault = source.read(1, &mut HostPage::default(), 4).unwrap_err();
    assert_eq!(fault.reason, Reason::Oversized);
    let builder = Loader::builder(bare, common::training()).device(DeviceChoice::Cpu).batch_size(3);
    let plan = builder.plan().unwrap();
    let row = plan.footprint.row("encoded pages").unwrap();
    assert!(has_words(&row.note, &[&largest.to_string()]), "{plan}");
    let mut loader = builder.epochs(Some(1)).build().unwrap();
    assert_eq!(loader.into_iter().map(|batch| batch.unwrap().len()).sum::<usize>(), 3);
}
