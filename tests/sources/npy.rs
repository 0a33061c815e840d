//! The documented behaviour of `Npy`, on files written by NumPy (tests/golden/npy.py) and on invalid files built here.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread;

use feedwater::config::Pipeline;
use feedwater::decode::{Decoders, Rows};
use feedwater::error::{Error, Reason};
use feedwater::geometry::Size;
use feedwater::header::Header;
use feedwater::source::custom::{Hints, HostPage};
use feedwater::source::settings::{Configured, NpySettings};
use feedwater::source::{Npy, Source};
use proptest::prelude::*;
use tempfile::TempDir;

fn golden_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/npy")
}

fn golden(name: &str) -> Vec<u8> {
    fs::read(golden_folder().join(name)).unwrap()
}

/// Creates a folder with these files.
fn folder(files: &[(&str, &[u8])]) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for (name, bytes) in files {
        fs::write(root.path().join(name), bytes).unwrap();
    }
    root
}

fn open(path: impl Into<PathBuf>) -> Result<Npy, Error> {
    Npy::open(&[path.into()], &NpySettings::default())
}

fn open_with(path: impl Into<PathBuf>, labels: &str) -> Result<Npy, Error> {
    Npy::open(&[path.into()], &NpySettings { labels: labels.into() })
}

/// Returns the error's text for a file with these bytes.
fn refused(bytes: &[u8]) -> String {
    let root = folder(&[("x.npy", bytes)]);
    let error = open(root.path().join("x.npy")).err().unwrap().to_string();
    let (place, words) = error.split_once("x.npy, ").unwrap();
    assert!(place.starts_with("source.npy: "), "{error}");
    words.into()
}

/// Returns the size of a sample and its pixels; the first channel of grey ones.
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

/// Builds a file of version 1.0 with this header, followed by these bytes.
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
        assert_eq!(source.describe(), format!("{}: {samples} samples", path.display()));
        let bytes = expected.len() as u64 / samples + "P6\n7 5\n255\n".len() as u64;
        assert_eq!(source.largest_bytes(), Some(bytes));
        assert!(source.memory_bytes() < 1000, "no table: {}", source.memory_bytes());
        let mut page = HostPage::default();
        assert!(source.read(0, &mut page, bytes).is_ok());
        let fault = source.read(0, &mut page, bytes - 1).unwrap_err();
        let words = format!("oversized: {bytes} bytes, limits.max_file_bytes is {}", bytes - 1);
        assert_eq!(fault.to_string(), words);
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
            // Relative to the folder of the first stack, or absolute; the label file is not a stack.
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
    assert_eq!(source.describe(), format!("{} and 1 more: 7 samples", at("a.npy").display()));
    assert_eq!(source.largest_bytes(), Some(11 + 105));
    let source = Npy::open(&[at("b.npy"), at("a*.npy")], &NpySettings::default()).unwrap();
    assert_eq!((source.len(), read(&source, 0).unwrap().0), (7, Size::new(9, 6)));
}

#[test]
fn labels_that_do_not_fit_are_errors() {
    let words = |labels: &[u8]| {
        let root = folder(&[("x.npy", &golden("rgb-1.npy")), ("y.npy", labels)]);
        open_with(root.path().join("x.npy"), "y.npy").err().unwrap().to_string()
    };
    let three = words(&file(&header("|i1", "(3,)"), &[1, 2, 3]));
    assert!(three.starts_with("source.labels: y.npy has 3 labels for 4 samples"), "{three}");
    let column = words(&file(&header("|i1", "(4, 1)"), &[0; 4]));
    assert!(
        column.contains("y.npy, byte 0: the labels have shape (4, 1), must have one"),
        "{column}"
    );
    let float = words(&file(&header("<f4", "(4,)"), &[0; 16]));
    assert!(
        float.ends_with("have type <f4, must be integers; write y.astype(np.int64)"),
        "{float}"
    );
    let large = [&[0; 16][..], &[0xff; 8], &[0; 8]].concat();
    let head = header("<u8", "(4,)");
    let place = 10 + head.len() + 16;
    let large = words(&file(&head, &large));
    assert!(large.contains(&format!("byte {place}: label 2 is 18446744073709551615")), "{large}");
    let root = folder(&[("x.npy", &golden("rgb-1.npy"))]);
    let missing = open_with(root.path(), "y.npy");
    assert!(matches!(missing, Err(Error::Io { path, .. }) if path == root.path().join("y.npy")));
    let none = open_with(root.path(), "y-*.npy").err().unwrap().to_string();
    assert!(none.starts_with("source.labels: no files match "), "{none}");
}

#[test]
fn unsupported_arrays_are_errors_with_advice() {
    for (name, words) in [
        ("refused-fortran.npy", "is in Fortran order; convert it with np.ascontiguousarray"),
        ("refused-float.npy", "have type <f4, must be |u1: write the pixels as np.uint8, 0 to 255"),
        ("refused-bool.npy", "have type |b1, must be |u1: write the pixels as np.uint8, 0 to 255"),
        ("refused-fields.npy", "the elements are structures; write one field of them"),
        ("refused-alpha.npy", "shape (2, 5, 6, 4) has an alpha channel: write x[..., :3]"),
        (
            "refused-one.npy",
            "shape (5, 7, 3) may be one image or a stack of gray ones: write x[None]",
        ),
        ("refused-one-gray.npy", "shape (6, 9) is one gray image: write x[None]"),
        (
            "refused-scalar.npy",
            "shape () is no stack of images: supported are (samples, height, width, 3)",
        ),
        ("refused.npz", "byte 0: the file is an .npz archive: write its arrays with np.save"),
    ] {
        let found = refused(&golden(name));
        assert!(found.contains(words), "{name}: {found}");
    }
    assert!(refused(b"not an array").starts_with("byte 0: the file is no .npy"));
    let root = folder(&[("x.npy", &golden("refused-empty.npy"))]);
    let words = open(root.path()).err().unwrap().to_string();
    assert!(words.starts_with("source.npy: no samples in 1 files"), "{words}");
    let words = open(root.path().join("z*")).err().unwrap().to_string();
    assert!(words.starts_with("source.npy: no files match"), "{words}");
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
    for (header, words) in [
        ("", "byte 10: no '{'"),
        ("{}", "byte 10: a dictionary without descr, fortran_order or shape"),
        ("{'descr': '|u1', 'shape': (2, 1, 5)}", "byte 10: a dictionary without"),
        ("{'descr': '|u1', 'descr': '|u1'}", "byte 27: a duplicate key"),
        ("{'desc': '|u1'}", "byte 11: an unknown key"),
        ("{'descr': '|u1', 'fortran_order': 0", "byte 44: neither True nor False"),
        ("{'descr': '=u1'", "byte 20: an unknown type"),
        ("{'descr': '|u'", "byte 20: an unknown type"),
        ("{'descr': '|u+1'", "byte 20: an unknown type"),
        ("{'descr': '", "byte 20: a string without an end"),
        ("{'descr': u1", "byte 20: no string"),
        ("{'descr' '|u1'", "byte 19: no ':'"),
        ("{'shape': (2 1)", "byte 23: no ')'"),
        ("{'shape': (-2,)", "byte 21: an invalid axis length"),
        ("{'shape': (18446744073709551616,)", "byte 21: an invalid axis length"),
        ("{'shape': [2]", "byte 20: no '('"),
        (
            "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 1, 5)} {",
            "byte 71: more than one",
        ),
    ] {
        let found = refused(&file(header, b"0123456789"));
        assert!(found.starts_with(words), "{header}: {found}");
    }
    let many = format!("{{'shape': ({}", "1,".repeat(65));
    assert!(refused(&file(&many, b"")).contains("too many axes"));
}

#[test]
fn absurd_shapes_are_errors_and_allocate_nothing() {
    for (shape, words) in [
        ("(3, 1, 5)", "expected 15 bytes, but the file ends at 83"),
        (
            "(1, 1, 5)",
            "byte 78: 5 bytes after an array of shape (1, 1, 5): only one array per file",
        ),
        ("(18446744073709551615, 3, 5, 3)", "expected 18446744073709551615 bytes"),
        ("(4294967296, 4294967296, 5, 3)", "expected 18446744073709551615 bytes"),
        ("(18446744073709551615, 1, 1, 1)", "expected 18446744073709551615 bytes"),
    ] {
        let found = refused(&file(&header("|u1", shape), b"0123456789"));
        assert!(found.contains(words), "{shape}: {found}");
    }
    for shape in ["(9999999999, 0, 5, 3)", "(9999999999, 4, 0, 3)"] {
        let found = refused(&file(&header("|u1", shape), b""));
        assert!(found.contains("pixels, sides must be from 1 to 2147483647"), "{shape}: {found}");
    }
    let mut long = golden("rgb-2.npy");
    long[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(
        refused(&long).starts_with("byte 8: a header of 4294967295 bytes; the maximum is 65536")
    );
    let mut newer = golden("rgb-2.npy");
    newer[6] = 4;
    assert!(
        refused(&newer).starts_with("byte 6: version 4.0 of .npy; supported are 1.0, 2.0 and 3.0")
    );
}

/// One read if the planes fit into the buffer, and three reads for each piece of them otherwise.
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
            // If the shape is ambiguous, the channels are last: grey images of one column.
            assert_eq!(found.unwrap(), (Size::new(1, 3), planes[3..].to_vec()));
        }
    }
}

#[test]
fn a_truncated_file_is_an_error_at_any_length() {
    for name in ["rgb-1.npy", "rgb-3.npy", "planes.npy"] {
        let whole = golden(name);
        for len in 0..whole.len() {
            let words = refused(&whole[..len]);
            assert!(words.starts_with("byte "), "{len}: {words}");
        }
        assert!(refused(&[&whole[..], b"x"].concat()).contains("1 bytes after an array"));
    }
}

/// A flipped byte in the header is an error, or gives another array of the same size; in the pixels it changes a pixel.
#[test]
fn a_flipped_byte_never_panics_and_never_reads_beyond_the_file() {
    let whole = golden("rgb-1.npy");
    let root = tempfile::tempdir().unwrap();
    let mut errors = 0;
    for position in 0..whole.len() {
        // One bit per byte suffices for pixels.
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
    let words = Pipeline::from_toml(text, "base").unwrap_err().to_string();
    assert!(words.contains("source.label: unknown key, did you mean labels?"), "{words}");
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
