//! Tests what the documentation of `WebDataset` and its tar headers promises, on archives written
//! by webdataset and Python's tarfile (tests/golden/records.py) and on archives built here.
//! tests/sources/tfrecord.rs tests indices, patterns and reads.

use std::fs;
use std::ops::Range;
use std::path::PathBuf;

use crate::common::words::has_words;
use crate::common::{self, config_error, position, refused_at};
use crate::{folder, golden_record as golden};

use feedwater::error::{Error, Reason};
use feedwater::source::custom::{Hints, HostPage, Notes};
use feedwater::source::settings::WebDatasetSettings;
use feedwater::source::{ExclusionReason, Source, WebDataset};
use proptest::prelude::*;

mod joined;

const LABELS: [i64; 4] = [7, 0, -3, 1 << 40];

fn open_with(bytes: &[u8], image: &str, label: &str, key: &str) -> Result<Vec<Sample>, Error> {
    let root = folder(&[("a.tar", bytes)]);
    let settings =
        WebDatasetSettings { image: image.into(), label: label.into(), label_key: key.into() };
    WebDataset::open(&[root.path().into()], &settings).map(|source| samples(&source))
}

fn open(bytes: &[u8]) -> Result<Vec<Sample>, Error> {
    open_with(bytes, "jpg;png", "cls", "")
}

/// Checks that opening a file with these bytes is an error at byte `byte`, whose message contains
/// `values`.
#[track_caller]
fn refused(bytes: &[u8], byte: u64, values: &[&str]) {
    refused_at(open(bytes), "source.webdataset", byte, values);
}

type Sample = (i64, Vec<u8>);

fn samples(source: &WebDataset) -> Vec<Sample> {
    let read = |index| {
        let mut page = HostPage::default();
        source.read(index, &mut page, 1 << 20).unwrap();
        (source.label(index), page.bytes().to_vec())
    };
    (0..source.len()).map(read).collect()
}

/// Returns the samples with these numbers as they are in the golden archives.
fn written(numbers: Range<usize>) -> Vec<Sample> {
    numbers.map(|number| (LABELS[number], golden(&format!("{number}.jpg")))).collect()
}

/// Encodes a tar header with this size field, type and a correct checksum.
fn header(name: &str, size: &[u8], kind: u8) -> Vec<u8> {
    let mut header = vec![0; 512];
    header[..name.len()].copy_from_slice(name.as_bytes());
    header[124..124 + size.len()].copy_from_slice(size);
    header[148..156].fill(b' ');
    header[156] = kind;
    let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
    header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    header
}

fn member(name: &str, content: &[u8], kind: u8) -> Vec<u8> {
    let mut bytes = header(name, format!("{:011o}", content.len()).as_bytes(), kind);
    bytes.extend_from_slice(content);
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

/// Returns a tar archive of these files.
fn archive(files: &[(&str, &[u8])]) -> Vec<u8> {
    let members = files.iter().map(|(name, content)| member(name, content, b'0'));
    members.chain([vec![0; 1024]]).collect::<Vec<_>>().concat()
}

#[test]
fn files_written_by_webdataset_are_read_sample_by_sample() {
    let names = ["train-000000.tar", "train-000001.tar"];
    let files = names.map(golden);
    let root = folder(&[(names[0], &files[0]), (names[1], &files[1]), ("readme.txt", b"text")]);
    for path in [root.path().to_path_buf(), root.path().join("train-*.tar")] {
        let source = WebDataset::open(&[path], &WebDatasetSettings::default()).unwrap();
        assert_eq!(samples(&source), written(0..4));
        assert!(source.location(2).ends_with("train-000000.tar[2]"), "{}", source.location(2));
        let named = (&source as &dyn Source).named_location(2);
        assert!(named.ends_with("train-000000.tar[2] train/sample-0002.jpg"), "{named}");
        // The description must contain the number of other files, and the number of samples.
        assert!(has_words(&source.describe(), &["1", "4"]), "{}", source.describe());
        assert_eq!(source.largest_bytes(), Some(golden("3.jpg").len() as u64));
        let fault = source.read(3, &mut HostPage::default(), 700).unwrap_err();
        assert_eq!(fault.reason, Reason::Oversized);
    }
    let by_json = open_with(&files[0], "jpg", "json", "label").unwrap();
    assert_eq!(by_json.iter().map(|it| it.0).collect::<Vec<_>>(), [8, 1, -2]);
    let without = open_with(&files[0], "jpg", "", "").unwrap();
    assert!(without.iter().all(|it| it.0 == -1));
}

#[test]
fn braces_in_a_path_are_expanded_unless_a_file_has_that_name() {
    let names = ["train-000000.tar", "train-000001.tar"];
    let files = names.map(golden);
    let literal = "{b,c}.tar";
    let root = folder(&[(names[0], &files[0]), (names[1], &files[1]), (literal, &files[1])]);
    let open =
        |path: &str| WebDataset::open(&[root.path().join(path)], &WebDatasetSettings::default());
    assert_eq!(samples(&open("train-{000000..000001}.tar").unwrap()), written(0..4));
    assert_eq!(samples(&open("{train-000001,train-*}.tar").unwrap()).len(), 5);
    assert_eq!(samples(&open(literal).unwrap()), written(3..4));
    let words = open("train-{000000..000002}.tar").err().unwrap().to_string();
    assert!(words.contains("train-000002.tar"), "{words}");
    let error = config_error(open("train-{0.tar"));
    assert_eq!(error.key, "source.webdataset");
    // The message must contain the path and the missing brace.
    assert!(error.problem.contains("train-{0.tar") && error.problem.contains('}'), "{error}");
}

#[test]
fn long_names_are_read_in_all_three_forms_of_tar() {
    let long = format!("folder.with.dots/{}", "0123456789".repeat(10));
    for (name, times) in [("ustar.tar", 1), ("gnu.tar", 2), ("pax.tar", 2)] {
        let root = folder(&[(name, &golden(name))]);
        let source =
            WebDataset::open(&[root.path().into()], &WebDatasetSettings::default()).unwrap();
        assert_eq!(samples(&source), written(0..1), "{name}");
        let named = (&source as &dyn Source).named_location(0);
        let member = format!("{name}[0] {}/sample.jpg", long.repeat(times));
        assert!(named.ends_with(&member), "{named}");
    }
}

#[test]
fn the_key_ends_at_the_first_dot_of_the_last_part_and_extensions_are_in_lower_case() {
    let bytes = archive(&[
        ("./a.b/c.JPG", b"one"),
        ("./a.b/c.cls", b" 1\n"),
        ("./a.b/c.left.jpg", b"of another extension"),
        ("./a.d/c.jpg", b"two"),
        ("./a.d/c.cls", b"2"),
    ]);
    assert_eq!(open(&bytes).unwrap(), [(1, b"one".to_vec()), (2, b"two".to_vec())]);
}

#[test]
fn the_first_configured_extension_counts_and_samples_without_an_image_are_skipped() {
    let files: [(&str, &[u8]); 6] = [
        ("a.png", b"png"),
        ("a.jpg", b"jpg"),
        ("a.cls", b"1"),
        ("b.cls", b"2"),
        ("c.png", b"alone"),
        ("c.cls", b"3"),
    ];
    let with = |image| open_with(&archive(&files), image, "cls", "").unwrap();
    assert_eq!(with("jpg;png"), [(1, b"jpg".to_vec()), (3, b"alone".to_vec())]);
    assert_eq!(with("PNG; jpg"), [(1, b"png".to_vec()), (3, b"alone".to_vec())]);
    assert_eq!(with("jpg"), [(1, b"jpg".to_vec())]);
}

/// Returns a member `name` that is a hard link to the member `target`.
fn hard_link(name: &str, target: &str) -> Vec<u8> {
    let mut link = header(name, b"00000000000", b'1');
    link[157..157 + target.len()].copy_from_slice(target.as_bytes());
    link[148..156].fill(b' ');
    let sum: u32 = link.iter().map(|&byte| u32::from(byte)).sum();
    link[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    link
}

fn excluded(bytes: &[u8]) -> Vec<(ExclusionReason, String, u64)> {
    let root = folder(&[("a.tar", bytes)]);
    let settings = WebDatasetSettings { image: "jpg;png".into(), ..Default::default() };
    let counts = |_| {
        let source = WebDataset::open(&[root.path().into()], &settings).unwrap();
        let all = source.excluded();
        assert!(all.iter().all(|it| it.example.contains("a.tar: ")), "{all:?}");
        all.into_iter().map(|it| (it.why, it.kind, it.count)).collect::<Vec<_>>()
    };
    // Opens the archive twice: first it is scanned, then the stored index is read.
    let both = [1, 2].map(counts);
    assert_eq!(both[0], both[1]);
    both[1].clone()
}

#[test]
fn hard_links_are_the_files_before_them() {
    let bytes = [
        member("./a.jpg", b"one", b'0'),
        member("./a.cls", b"1", b'0'),
        hard_link("./b.jpg", "a.jpg"),
        hard_link("./b.cls", "./a.cls"),
        hard_link("./c.jpg", "./b.jpg"),
        member("./c.cls", b"3", b'0'),
        member("x", b"27 linkpath=./a.b/long.jpg\n", b'x'),
        hard_link("d.jpg", "short"),
        member("d.cls", b"4", b'0'),
        vec![0; 1024],
    ];
    let one = |label| (label, b"one".to_vec());
    assert_eq!(open(&bytes.concat()).unwrap(), [one(1), one(1), one(3)]);
    let counts = excluded(&bytes.concat());
    let expected = [
        (ExclusionReason::NoImage, "cls".to_string(), 1),
        (ExclusionReason::LostLink, String::new(), 1),
    ];
    assert_eq!(counts, expected);
}

/// If a file has two names, GNU tar writes it once, and a hard link for the second name. Compressed
/// archives are tested too.
#[test]
fn hard_links_of_gnu_tar_are_read() {
    let root = folder(&[("a.jpg", b"one"), ("a.cls", b"1"), ("b.cls", b"2")]);
    fs::hard_link(root.path().join("a.jpg"), root.path().join("b.jpg")).unwrap();
    let long = format!("{}.jpg", "l".repeat(150));
    fs::hard_link(root.path().join("a.jpg"), root.path().join(&long)).unwrap();
    fs::write(root.path().join(&long).with_extension("cls"), "3").unwrap();
    let tar = |options: &str, format: &str| {
        let path = root.path().join("made");
        let done = std::process::Command::new("tar")
            .arg(options)
            .arg(&path)
            .args([format, "--sort=name", "--exclude=made", "-C"])
            .arg(root.path())
            .arg(".")
            .status();
        assert!(done.unwrap().success());
        fs::read(path).unwrap()
    };
    for (options, format) in
        [("-cf", "--format=gnu"), ("-cf", "--format=pax"), ("-czf", "--format=gnu")]
    {
        let samples = open(&tar(options, format)).unwrap();
        let expected = [1, 2, 3].map(|label| (label, b"one".to_vec()));
        assert_eq!(samples, expected, "{options} {format}");
    }
}

#[test]
fn keys_without_an_image_are_counted_by_their_extensions() {
    let bytes = archive(&[
        ("d.cls", b"1"),
        ("d.tiff", b"x"),
        ("e.tiff", b"x"),
        ("f.seg.jpg", b"x"),
        ("g.cls", b"1"),
        ("readme", b"x"),
        ("h.jpg", b"x"),
        ("h.cls", b"1"),
    ]);
    let kind = |why, kind: &str, count| (why, kind.to_string(), count);
    let expected = [
        kind(ExclusionReason::NoImage, "cls", 1),
        kind(ExclusionReason::NoImage, "seg.jpg", 1),
        kind(ExclusionReason::NoImage, "tiff", 2),
        kind(ExclusionReason::NoKey, "no extension", 1),
    ];
    assert_eq!(excluded(&bytes), expected);
    let none = open(&archive(&[("d.tiff", b"x")]));
    common::refused(none, "source.webdataset", &["a.tar", "tiff", "1"]);
}

#[test]
fn a_label_is_an_integer_in_any_notation() {
    for (text, expected) in [("3.0", 3), (" 12\n", 12)] {
        let samples = open(&archive(&[("a.jpg", b"x"), ("a.cls", text.as_bytes())])).unwrap();
        assert_eq!(samples[0].0, expected);
    }
    for json in ["{\"label\": 3}", "{\"label\": 3.0}", "{\"label\": \"3\"}"] {
        let bytes = archive(&[("a.jpg", b"x"), ("a.json", json.as_bytes())]);
        assert_eq!(open_with(&bytes, "jpg", "json", "label").unwrap()[0].0, 3, "{json}");
    }
    for label in ["1.5", "18446744073709551615"] {
        refused(&archive(&[("a.jpg", b"x"), ("a.cls", label.as_bytes())]), 1536, &[label]);
        let json = format!("{{\"label\": {label}}}");
        let bytes = archive(&[("a.jpg", b"x"), ("a.json", json.as_bytes())]);
        let read = open_with(&bytes, "jpg", "json", "label");
        refused_at(read, "source.webdataset", 1536, &[label]);
    }
}

#[test]
fn other_members_are_ignored() {
    let bytes = [
        member("a.jpg", b"one", b'0'),
        member("Makefile", b"x", b'0'),
        member(".a.jpg", b"x", b'0'),
        member("__meta__/a.jpg", b"x", b'0'),
        member("__meta__", b"x", b'0'),
        header("folder.jpg", b"00000000000", b'5'),
        header("link.jpg", b"00000001000", b'2'),
        member("pax_global_header", b"18 comment=abcdef\n", b'g'),
        member("volume.jpg", b"x", b'V'),
        member("a.cls", b"1", 0),
        vec![0; 512],
        b"what follows the end mark".to_vec(),
    ];
    assert_eq!(open(&bytes.concat()).unwrap(), [(1, b"one".to_vec())]);
    let after = b"what follows the end mark".len() as u64;
    assert_eq!(
        excluded(&bytes.concat()).pop(),
        Some((ExclusionReason::AfterEnd, String::new(), after))
    );
}

#[test]
fn sizes_are_octal_or_binary_or_in_an_extended_header() {
    let mut content = vec![0; 512];
    content[..5].copy_from_slice(b"12345");
    let label = member("a.cls", b"1", b'0');
    let with = |headers: &[Vec<u8>]| {
        let bytes = [headers.concat(), content.clone(), label.clone(), vec![0; 1024]].concat();
        open(&bytes)
    };
    let binary = header("a.jpg", b"\x80\0\0\0\0\0\0\0\0\0\0\x05", b'0');
    let extended = [member("x", b"10 size=5\n", b'x'), header("a.jpg", b"00000000000", b'0')];
    let blanks = header("a.jpg", b"         5 \0", b'0');
    for headers in [vec![binary], extended.to_vec(), vec![blanks]] {
        assert_eq!(with(&headers).unwrap(), [(1, b"12345".to_vec())]);
    }
    for size in [&b"\x80\x01\0\0\0\0\0\0\0\0\0\x05"[..], b"\xff\xff\xff\xff", b"9", b""] {
        refused_at(with(&[header("a.jpg", size, b'0')]), "source.webdataset", 0, &[]);
    }
    let huge = header("a.jpg", b"\x80\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff", b'0');
    refused_at(with(&[huge]), "source.webdataset", 512, &["18446744073709551615"]);
}

#[test]
fn damaged_extended_headers_and_sparse_files_are_errors() {
    let damaged: [&[u8]; 6] =
        [b"x", b"99 path=a\n", b"0 path=a\n", b"8 path=a\n", b"7 path\n", b"10 size=x\n"];
    for text in damaged {
        refused(&[member("x", text, b'x'), vec![0; 512]].concat(), 512, &[]);
    }
    let by_key = member("x", b"22 GNU.sparse.major=1\n", b'x');
    for bytes in [by_key, member("a.jpg", b"", b'S')] {
        let error = config_error(open(&bytes));
        assert!(error.key.starts_with("source.webdataset: "), "{error}");
        assert!(has_words(&error.problem, &["--sparse"]), "{error}");
    }
}

#[test]
fn names_in_extended_headers_may_contain_newlines_and_are_bounded() {
    let bytes = [
        member("x", b"16 path=a\nb.jpg\n", b'x'),
        member("other", b"one", b'0'),
        member("x", b"16 path=a\nb.cls\n", b'x'),
        member("other", b"1", b'0'),
        vec![0; 1024],
    ];
    assert_eq!(open(&bytes.concat()).unwrap(), [(1, b"one".to_vec())]);
    for kind in [b'L', b'K', b'x'] {
        let long = [member("x", &vec![b'a'; 2 << 20], kind), member("a.jpg", b"one", b'0')];
        refused(&long.concat(), 512, &["2097152"]);
    }
}

#[test]
fn invalid_samples_are_errors_with_the_byte_and_advice() {
    for (label, shown) in [("cat", "\"cat\""), ("", "\"\"")] {
        refused(&archive(&[("a.jpg", b"x"), ("a.cls", label.as_bytes())]), 1536, &[shown]);
    }
    // The message must contain the sample, its missing file, and the key of the setting.
    let none = archive(&[("a.cls", b"1"), ("a.jpg", b"x"), ("b.jpg", b"x")]);
    refused(&none, 2048, &["\"b\"", "\"cls\"", "source.label", "\"\""]);
    for name in ["a.jpg", "a.cls"] {
        let twice = archive(&[("a.jpg", b"x"), ("a.cls", b"1"), (name, b"1")]);
        refused(&twice, 2048, &[&format!("{name:?}")]);
    }
    for json in ["{\"other\": 1}", "{\"label\": true}", "[1]", "{"] {
        let bytes = archive(&[("a.jpg", b"x"), ("a.json", json.as_bytes())]);
        let values = ["\"label\"", "JSON", &format!("{json:?}")];
        let read = open_with(&bytes, "jpg", "json", "label");
        refused_at(read, "source.webdataset", 1536, &values);
    }
    // The message must contain the number of files, and the path of the first file.
    let none = open(&archive(&[("a.txt", b"x")]));
    common::refused(none, "source.webdataset", &["1", "a.tar"]);
}

#[test]
fn other_files_are_errors_with_advice() {
    // The message must contain a tool that decompresses the file, and the supported compressions.
    refused(b"BZh and so on", 0, &["bunzip2", "gzip", "zstd"]);
    refused(&[b'x'; 600], 0, &["tar"]);
    let root = folder(&[("a.txt", b"x")]);
    let paths: [PathBuf; 1] = [root.path().into()];
    let none = WebDataset::open(&paths, &WebDatasetSettings::default());
    common::refused(none, "source.webdataset", &[root.path().to_str().unwrap()]);
}

/// Returns where each file's content is in an archive with octal sizes, and the offset of the end
/// mark.
fn contents(bytes: &[u8]) -> (Vec<Range<usize>>, usize) {
    let (mut at, mut ranges) = (0, Vec::new());
    while bytes[at] != 0 {
        let size = str::from_utf8(&bytes[at + 124..at + 135]).unwrap();
        let size = usize::from_str_radix(size, 8).unwrap();
        ranges.push(at + 512..at + 512 + size);
        at += 512 + size.next_multiple_of(512);
    }
    (ranges, at)
}

#[test]
fn an_archive_truncated_before_its_end_mark_is_an_error() {
    let whole = golden("train-000000.tar");
    let (_, end) = contents(&whole);
    // Truncates the archive at every length near a header, and at some lengths in between.
    for len in (0..end + 512).filter(|len| len % 512 < 3 || len % 97 == 0) {
        assert!(open(&whole[..len]).is_err(), "{len} bytes");
    }
    assert_eq!(open(&whole[..end + 512]).unwrap(), written(0..3));
}

#[test]
fn a_flipped_byte_of_a_header_is_an_error_or_changes_nothing() {
    let whole = golden("train-000000.tar");
    let (ranges, end) = contents(&whole);
    let mut errors = 0;
    // Only every fifth byte is tested, because each test writes an archive and a stored index.
    for position in (0..end + 512).step_by(5) {
        if ranges.iter().any(|range| range.contains(&position)) {
            continue;
        }
        let mut damaged = whole.clone();
        damaged[position] ^= 1 << (position % 8);
        match open(&damaged) {
            Ok(samples) => assert_eq!(samples, written(0..3), "byte {position}"),
            Err(_) => errors += 1,
        }
    }
    // Not all changes are detected: the padding of a file's last block and the bytes after a
    // checksum's digits are not checked.
    assert!(errors > (ranges.len() + 1) * 100, "{errors}");
}

/// If a number does not fit into the octal digits of a tar header, GNU tar writes it in binary.
#[test]
fn numbers_are_octal_digits_or_binary() {
    let mut bytes = archive(&[("a.jpg", b"one"), ("a.cls", b"1")]);
    let sum = u32::from_str_radix(str::from_utf8(&bytes[148..154]).unwrap(), 8).unwrap();
    bytes[148..156].copy_from_slice(&(1 << 63 | u64::from(sum)).to_be_bytes());
    assert_eq!(open(&bytes).unwrap(), [(1, b"one".to_vec())]);
    // The first size is larger than the file, the second one larger than an integer.
    for place in [5, 1] {
        let mut size = [0; 12];
        (size[0], size[place]) = (0x80, 1);
        let mut bytes = header("a.jpg", &size, b'0');
        bytes.resize(4096, 0);
        assert!(position(&config_error(open(&bytes))) < 4096);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// In a generated archive, either all checksums are correct or only that of the first header.
    #[test]
    fn any_archive_gives_a_source_or_an_error(
        blocks in prop::collection::vec(
            prop_oneof![
                ("[ab]\\.(jpg|cls)", prop::collection::vec(any::<u8>(), 0..13), any::<u8>())
                    .prop_map(|(name, size, kind)| header(&name, &size[..size.len().min(12)], kind)),
                ("[ab]\\.(jpg|cls)", "[0-9]{0,3}")
                    .prop_map(|(name, text)| member(&name, text.as_bytes(), b'0')),
                ("[0-9]{1,3} ?(path|size)?=?[0-9a.]{0,4}\n?")
                    .prop_map(|text| member("x", text.as_bytes(), b'x')),
                prop::collection::vec(any::<u8>(), 1..700),
            ],
            0..6,
        ),
    ) {
        let bytes = [blocks.concat(), vec![0; 1024]].concat();
        if let Err(error) = open(&bytes) {
            prop_assert!(error.to_string().starts_with("source.webdataset: "), "{}", error);
        }
    }
}
