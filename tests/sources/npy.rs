//! Tests what the documentation of `Npy` promises, on files written by NumPy (tests/golden/npy.py)
//! and on invalid files built here.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread;

use crate::common::words::has_words;
use crate::common::{self, config_error, position, refused_at};
use crate::folder;

use feedwater::error::{Error, Reason};
use feedwater::internals::config::Pipeline;
use feedwater::internals::decode::{Decoders, Rows};
use feedwater::internals::geometry::Size;
use feedwater::internals::header::Header;
use feedwater::internals::source::Configured;
use feedwater::source::custom::{Hints, HostPage};
use feedwater::source::settings::NpySettings;
use feedwater::source::{Npy, Source};
use proptest::prelude::*;

mod types;

fn golden_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/npy")
}

fn golden(name: &str) -> Vec<u8> {
    fs::read(golden_folder().join(name)).unwrap()
}

fn open(path: impl Into<PathBuf>) -> Result<Npy, Error> {
    Npy::open(&[path.into()], &NpySettings::default())
}

fn open_with(path: impl Into<PathBuf>, labels: &str) -> Result<Npy, Error> {
    Npy::open(&[path.into()], &NpySettings { labels: labels.into(), ..Default::default() })
}

/// Opens a file with these bytes.
fn opened(bytes: &[u8]) -> Result<Npy, Error> {
    let root = folder(&[("x.npy", bytes)]);
    open(root.path().join("x.npy"))
}

/// Checks that opening a file with these bytes is an error at byte `byte`, whose message contains
/// `values`.
#[track_caller]
fn refused(bytes: &[u8], byte: u64, values: &[&str]) {
    refused_at(opened(bytes), "source.npy", byte, values);
}

/// Returns the size and the pixels of a sample. For grey samples, returns only the first channel.
fn read(source: &Npy, index: u64) -> Result<(Size, Vec<u8>), Reason> {
    let mut page = HostPage::default();
    source.read(index, &mut page, 1 << 30).map_err(|fault| fault.reason)?;
    let bytes = page.bytes();
    let header = Header::parse(bytes).map_err(|fault| fault.reason)?;
    let mut pixels = Vec::new();
    let sink = &mut |rows: Rows<'_>| {
        rows.iter().for_each(|(_, row)| pixels.extend_from_slice(row));
    };
    Decoders::new().decode(bytes, &header, header.size.window(), 1, sink).unwrap();
    if bytes.starts_with(b"P5") {
        assert!(pixels.chunks_exact(3).all(|it| it[0] == it[1] && it[1] == it[2]));
        pixels = pixels.into_iter().step_by(3).collect();
    }
    Ok((header.size, pixels))
}

/// Returns a `.npy` file of version 1.0 with this header and these elements.
fn file(header: &str, elements: &[u8]) -> Vec<u8> {
    let len = (header.len() as u16).to_le_bytes();
    [b"\x93NUMPY\x01\x00", &len[..], header.as_bytes(), elements].concat()
}

fn header(descr: &str, shape: &str) -> String {
    format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n")
}

#[test]
fn labels_are_relative_to_the_pipeline_file_or_else_to_the_stacks() {
    let stack = file(&header("|u1", "(2, 1, 5)"), &[7; 10]);
    let labels = |values: [u8; 2]| file(&header("|u1", "(2,)"), &values);
    let root = folder(&[]);
    fs::create_dir(root.path().join("data")).unwrap();
    fs::write(root.path().join("data/x.npy"), stack).unwrap();
    fs::write(root.path().join("data/y.npy"), labels([1, 2])).unwrap();
    let text = "[source]\nnpy = \"data/x.npy\"\nlabels = \"y.npy\"\n";
    let first = || {
        let pipeline = Pipeline::from_toml(text, root.path()).unwrap();
        let again = Pipeline::from_toml(&pipeline.to_toml().unwrap(), "").unwrap();
        let label = |pipeline: Pipeline| pipeline.source.open().unwrap().label(0);
        (label(pipeline), label(again))
    };
    assert_eq!(first(), (1, 1));
    fs::write(root.path().join("y.npy"), labels([3, 4])).unwrap();
    assert_eq!(first(), (3, 3));
}

#[test]
fn files_written_by_numpy_are_read_sample_by_sample() {
    for (name, size, samples) in [
        ("rgb-1", Size::new(7, 5), 4),
        ("rgb-2", Size::new(7, 5), 4),
        ("rgb-3", Size::new(7, 5), 4),
        ("planes", Size::new(7, 5), 4),
        ("gray", Size::new(9, 6), 3),
        ("gray-last", Size::new(9, 6), 3),
        ("gray-first", Size::new(9, 6), 3),
    ] {
        let path = golden_folder().join(format!("{name}.npy"));
        let source = open(&path).unwrap();
        let expected = golden(&format!("{name}.raw"));
        assert_eq!(source.len(), samples, "{name}");
        for (index, pixels) in expected.chunks(expected.len() / samples as usize).enumerate() {
            assert_eq!(read(&source, index as u64).unwrap(), (size, pixels.to_vec()), "{name}");
            assert_eq!(source.label(index as u64), -1);
        }
        assert_eq!(source.location(2), format!("{}[2]", path.display()));
        let (described, count) = (source.describe(), samples.to_string());
        assert!(has_words(&described, &[path.to_str().unwrap(), &count]), "{described}");
        let bytes = expected.len() as u64 / samples + "P6\n7 5\n255\n".len() as u64;
        assert_eq!(source.largest_bytes(), Some(bytes));
        assert!(
            source.memory_bytes() < 1000,
            "the source must have no table: {}",
            source.memory_bytes()
        );
        let mut page = HostPage::default();
        assert!(source.read(0, &mut page, bytes).is_ok());
        let fault = source.read(0, &mut page, bytes - 1).unwrap_err();
        assert_eq!(fault.reason, Reason::Oversized);
        let [size, limit] = [bytes, bytes - 1].map(|it| it.to_string());
        assert!(has_words(&fault.problem, &[&size, "limits.max_file_bytes", &limit]), "{fault}");
    }
}

#[test]
fn labels_are_integers_of_any_size_and_byte_order() {
    let rgb = golden("rgb-1.npy");
    for (names, expected) in [
        (vec!["i8-big", "i8-little"], [7, 0, -3, 1 << 40]),
        (vec!["i1-little", "i2-big", "i2-little", "i4-big", "i4-little"], [7, 0, -3, 100]),
        (
            vec!["u1-little", "u2-big", "u2-little", "u4-big", "u4-little", "u8-big", "u8-little"],
            [7, 0, 3, 200],
        ),
    ] {
        for name in names {
            let labels = golden(&format!("labels-{name}.npy"));
            let root = folder(&[("x.npy", &rgb), ("y.npy", &labels)]);
            // The path of the labels is absolute, or relative to the folder of the first stack. The
            // file of labels is not used as a stack of images.
            for labels in [Path::new("y.npy"), &root.path().join("y.npy")] {
                let source = open_with(root.path(), labels.to_str().unwrap()).unwrap();
                assert_eq!(source.len(), 4);
                assert_eq!([0, 1, 2, 3].map(|index| source.label(index)), expected, "{name}");
            }
        }
    }
}

#[test]
fn several_stacks_and_label_files_are_concatenated() {
    let root = folder(&[
        ("b.npy", &golden("gray.npy")),
        ("a.npy", &golden("rgb-1.npy")),
        ("y-0.npy", &golden("labels-i4-big.npy")),
        ("y-1.npy", &file(&header("|i1", "(3,)"), &[1, 2, 0xff])),
        ("notes.txt", b"no stack"),
    ]);
    let at = |name: &str| root.path().join(name);
    let source = open_with(root.path(), "y-*.npy").unwrap();
    assert_eq!(source.len(), 7);
    let labels: Vec<i64> = (0..7).map(|index| source.label(index)).collect();
    assert_eq!(labels, [7, 0, -3, 100, 1, 2, -1]);
    assert_eq!(read(&source, 6).unwrap().1, golden("gray.raw")[108..]);
    assert_eq!(read(&source, 3).unwrap().1, golden("rgb-1.raw")[315..]);
    assert!(source.location(4).ends_with("b.npy[0]"), "{}", source.location(4));
    // The description must contain a file, the number of other files, and the number of samples.
    let (described, first) = (source.describe(), at("a.npy"));
    assert!(has_words(&described, &[first.to_str().unwrap(), "1", "7"]), "{described}");
    assert_eq!(source.largest_bytes(), Some(11 + 105));
    let source = Npy::open(&[at("b.npy"), at("a*.npy")], &NpySettings::default()).unwrap();
    assert_eq!((source.len(), read(&source, 0).unwrap().0), (7, Size::new(9, 6)));
}

#[test]
fn labels_that_do_not_fit_are_errors() {
    let with = |labels: &[u8]| {
        let root = folder(&[("x.npy", &golden("rgb-1.npy")), ("y.npy", labels)]);
        open_with(root.path().join("x.npy"), "y.npy")
    };
    // The message must contain the file, the number of its labels, and the number of samples.
    let three = with(&file(&header("|i1", "(3,)"), &[1, 2, 3]));
    common::refused(three, "source.labels", &["y.npy", "3", "4"]);
    let head = header("<u8", "(4,)");
    let large = [&[0; 16][..], &[0xff; 8], &[0; 8]].concat();
    // The message must contain the shape. For a wrong type it must contain the type, and how to
    // write a supported one. For a wrong label it must contain its position and value.
    for (labels, byte, values) in [
        (file(&header("|i1", "(4, 1)"), &[0; 4]), 0, &["(4, 1)"][..]),
        (file(&header("<f4", "(4,)"), &[0; 16]), 0, &["<f4", "y.astype(np.int64)"]),
        (file(&head, &large), 10 + head.len() as u64 + 16, &["2", "18446744073709551615"]),
    ] {
        let error = config_error(with(&labels));
        assert!(error.key.contains("y.npy"), "{error}");
        refused_at(Err::<Npy, _>(error.into()), "source.labels", byte, values);
    }
    let root = folder(&[("x.npy", &golden("rgb-1.npy"))]);
    let missing = open_with(root.path(), "y.npy");
    assert!(matches!(missing, Err(Error::Io { path, .. }) if path == root.path().join("y.npy")));
    let none = config_error(open_with(root.path(), "y-*.npy"));
    assert_eq!(none.key, "source.labels");
    assert!(none.problem.contains("y-*.npy"), "{none}");
}

#[test]
fn unsupported_arrays_are_errors_with_advice() {
    for (name, byte, values) in [
        ("refused-fortran.npy", 10, &["np.ascontiguousarray"][..]),
        ("refused-bool.npy", 0, &["|b1", "|u1", "np.uint8"]),
        // In this file, the type of the elements is a list of fields.
        ("refused-fields.npy", 20, &[]),
        ("refused-one.npy", 0, &["(5, 7, 3)", "x[None]"]),
        ("refused-one-gray.npy", 0, &["(6, 9)", "x[None]"]),
        ("refused-scalar.npy", 0, &["()", "(samples, height, width, 3)"]),
        ("refused.npz", 0, &[".npz", "np.save"]),
    ] {
        refused(&golden(name), byte, values);
    }
    refused(b"not an array", 0, &[".npy", "np.save"]);
    let root = folder(&[("x.npy", &golden("refused-empty.npy"))]);
    common::refused(open(root.path()), "source.npy", &["1", root.path().to_str().unwrap()]);
    let none = root.path().join("z*");
    common::refused(open(&none), "source.npy", &[none.to_str().unwrap()]);
    assert!(matches!(open(root.path().join("z")), Err(Error::Io { .. })));
}

#[test]
fn headers_are_parsed_like_in_python_and_others_are_errors_with_the_byte() {
    for header in [
        "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 1, 5)}",
        "{\"shape\" :(2,1,5,),'fortran_order':False ,\"descr\":\"|u1\"}  \n\n",
        "{ 'fortran_order': False, 'shape': (2L, 1L, 5L), 'descr': '<u1', }",
        "{'descr': '>u1', 'fortran_order': False, 'shape': (02, 1, 5), }",
    ] {
        let root = folder(&[("x.npy", &file(header, b"0123456789"))]);
        let source = open(root.path()).unwrap_or_else(|error| panic!("{header}: {error}"));
        assert_eq!(read(&source, 1).unwrap(), (Size::new(5, 1), b"56789".to_vec()));
    }
    let keys = ["descr", "fortran_order", "shape"];
    // The message must contain what is expected at this byte.
    for (header, byte, values) in [
        ("", 10, &["'{'"][..]),
        ("{}", 10, &keys),
        ("{'descr': '|u1', 'shape': (2, 1, 5)}", 10, &keys),
        ("{'descr': '|u1', 'descr': '|u1'}", 27, &[]),
        ("{'desc': '|u1'}", 11, &[]),
        ("{'descr': '|u1', 'fortran_order': 0", 44, &["True", "False"]),
        ("{'descr': '=u1'", 20, &[]),
        ("{'descr': '|u'", 20, &[]),
        ("{'descr': '|u+1'", 20, &[]),
        ("{'descr': '", 20, &[]),
        ("{'descr': u1", 20, &[]),
        ("{'descr' '|u1'", 19, &["':'"]),
        ("{'shape': (2 1)", 23, &["')'"]),
        ("{'shape': (-2,)", 21, &[]),
        ("{'shape': (18446744073709551616,)", 21, &[]),
        ("{'shape': [2]", 20, &["'('"]),
        ("{'descr': '|u1', 'fortran_order': False, 'shape': (2, 1, 5)} {", 71, &[]),
    ] {
        refused(&file(header, b"0123456789"), byte, values);
    }
    let start = "{'shape': (";
    let many = format!("{start}{}", "1,".repeat(65));
    refused(&file(&many, b""), 10 + start.len() as u64 + 2 * 64, &[]);
}

#[test]
fn absurd_shapes_are_errors_and_allocate_nothing() {
    let most = "18446744073709551615";
    // Each case has the shape, the offset of the error after the header, and values that the
    // message must contain.
    for (shape, place, values) in [
        // The message must contain the number of elements, and the offset at which the file ends.
        ("(3, 1, 5)", 0, &["15", "83"][..]),
        // The message must contain the number of bytes after the array, and its shape.
        ("(1, 1, 5)", 5, &["5", "(1, 1, 5)"]),
        ("(18446744073709551615, 3, 5, 3)", 0, &[most]),
        ("(4294967296, 4294967296, 5, 3)", 0, &[most]),
        ("(18446744073709551615, 1, 1, 1)", 0, &[most]),
    ] {
        let head = header("|u1", shape);
        refused(&file(&head, b"0123456789"), 10 + head.len() as u64 + place, values);
    }
    for (shape, size) in [("(9999999999, 0, 5, 3)", "5x0"), ("(9999999999, 4, 0, 3)", "0x4")] {
        refused(&file(&header("|u1", shape), b""), 0, &[size, "1", "2147483647"]);
    }
    let mut long = golden("rgb-2.npy");
    long[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
    refused(&long, 8, &["4294967295", "65536"]);
    let mut newer = golden("rgb-2.npy");
    newer[6] = 4;
    refused(&newer, 6, &["4.0", "1.0", "2.0", "3.0"]);
}

/// Stacks may store an image as three planes. If the planes fit into the buffer, a sample needs one
/// read. Otherwise each piece of the image needs three reads.
#[test]
fn planes_of_any_size_become_pixels() {
    for (width, height) in [(1, 1), (128, 128), (127, 129), (129, 127), (300, 200), (40_000, 1)] {
        let plane = width * height;
        let planes: Vec<u8> =
            (0..2 * 3 * plane).map(|it: usize| (it * 7 + it / 253) as u8).collect();
        let shape = format!("(2, 3, {height}, {width})");
        let root = folder(&[("x.npy", &file(&header("|u1", &shape), &planes))]);
        let found = read(&open(root.path()).map_err(|it| it.to_string()).unwrap(), 1);
        let of_channel = |pixel: usize, channel: usize| planes[3 * plane + channel * plane + pixel];
        let expected: Vec<u8> =
            (0..3 * plane).map(|place| of_channel(place / 3, place % 3)).collect();
        if (width, height) != (1, 1) {
            assert!(found.unwrap().1 == expected, "{width}x{height}");
        } else {
            // The shape (2, 3, 1, 1) can be three planes of one pixel, or grey pixels. The last
            // dimension is then taken for the channels, so these are grey images with one column.
            assert_eq!(found.unwrap(), (Size::new(1, 3), planes[3..].to_vec()));
        }
    }
}

#[test]
fn a_truncated_file_is_an_error_at_any_length() {
    for name in ["rgb-1.npy", "rgb-3.npy", "planes.npy"] {
        let whole = golden(name);
        for len in 0..whole.len() {
            let error = config_error(opened(&whole[..len]));
            assert!(error.key.starts_with("source.npy: "), "{len}: {error}");
            assert!(position(&error) <= len as u64, "{len}: {error}");
        }
        refused(&[&whole[..], b"x"].concat(), whole.len() as u64, &["1"]);
    }
}

/// Flips bits. In the header, the result is an error or an array of the same size. In the pixels,
/// one pixel changes.
#[test]
fn a_flipped_byte_never_panics_and_never_reads_beyond_the_file() {
    let whole = golden("rgb-1.npy");
    let root = tempfile::tempdir().unwrap();
    let mut errors = 0;
    for position in 0..whole.len() {
        // The header has 128 bytes. In the pixels behind it, one bit per byte suffices.
        for bit in 0..if position < 128 { 8 } else { 1 } {
            let mut damaged = whole.clone();
            damaged[position] ^= 1 << bit;
            let path = root.path().join("x.npy");
            fs::write(&path, &damaged).unwrap();
            match open(&path) {
                Ok(source) => {
                    (0..source.len()).for_each(|index| drop(read(&source, index).unwrap()));
                    assert!(position >= 10, "byte {position}");
                }
                Err(error) => {
                    assert!(error.to_string().starts_with("source.npy: "), "{error}");
                    assert!(position < 128, "byte {position}");
                    errors += 1;
                }
            }
        }
    }
    assert!(errors > 400, "{errors}");
}

#[test]
fn a_file_changed_after_opening_is_an_error() {
    let root = folder(&[("x.npy", &golden("rgb-1.npy")), ("p.npy", &golden("planes.npy"))]);
    for name in ["x.npy", "p.npy"] {
        let path = root.path().join(name);
        let source = open(&path).unwrap();
        assert!(read(&source, 3).is_ok());
        let file = File::options().write(true).open(&path).unwrap();
        file.write_all_at(b"x", 300).unwrap();
        file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
        assert_eq!(read(&source, 3), Err(Reason::Unreadable), "{name}");
        file.set_len(500).unwrap();
        assert_eq!(read(&source, 3), Err(Reason::Truncated), "{name}");
    }
}

#[test]
fn many_threads_read_more_files_than_can_be_open() {
    let root = tempfile::tempdir().unwrap();
    for number in 0..300u32 {
        let pixels = [&number.to_le_bytes()[..], b"."].concat();
        let bytes = file(&header("|u1", "(1, 1, 5)"), &pixels);
        fs::write(root.path().join(format!("{number:03}.npy")), bytes).unwrap();
    }
    let source = open(root.path()).unwrap();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for index in 0..300 {
                    let (_, pixels) = read(&source, index).unwrap();
                    assert_eq!(pixels[..4], (index as u32).to_le_bytes());
                }
            });
        }
    });
}

#[test]
fn a_pipeline_file_names_stacks_and_labels() {
    let root = folder(&[
        ("x.npy", &golden("rgb-1.npy")),
        ("y.npy", &golden("labels-i8-little.npy")),
        ("p.toml", b"[source]\nnpy = \"x.npy\"\nlabels = \"y.npy\"\n"),
    ]);
    let pipeline = Pipeline::from_file(root.path().join("p.toml")).unwrap();
    let source = pipeline.source.open().unwrap();
    assert_eq!((source.len(), source.label(3)), (4, 1 << 40));
    let text = "[source]\nnpy = [\"a.npy\", \"b.npy\"]\nlabel = \"y\"\n";
    common::refused(Pipeline::from_toml(text, "base"), "source.label", &["labels"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_header_gives_a_source_or_an_error(
        version in prop_oneof![Just([1, 0]), Just([2, 0]), Just([3, 0]), any::<[u8; 2]>()],
        pieces in prop::collection::vec(
            prop_oneof![
                Just("{".to_string()), Just("}".into()), Just("'descr': '|u1', ".into()),
                Just("'fortran_order': False, ".into()), Just("'shape': ".into()), Just("(1, 1, 5)".into()),
                any::<[u64; 3]>().prop_map(|it| format!("({}, {}, {})", it[0], it[1], it[2])),
                (0u64..3, 0u64..3, 0u64..7).prop_map(|it| format!("{it:?}")),
                "[ -~]{0,4}", ".{0,3}",
            ],
            0..9,
        ),
        elements in prop::collection::vec(any::<u8>(), 0..20),
    ) {
        let header = pieces.concat();
        let mut bytes = file(&header, &elements);
        bytes[6..8].copy_from_slice(&version);
        if version[0] > 1 {
            bytes.splice(10..10, [0, 0]);
        }
        let root = folder(&[("x.npy", &bytes)]);
        match open(root.path()) {
            Ok(source) => prop_assert!((0..source.len()).all(|index| read(&source, index).is_ok())),
            Err(error) => prop_assert!(error.to_string().starts_with("source.npy: "), "{}", error),
        }
    }
}
