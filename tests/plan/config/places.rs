//! Lines and columns of errors in the pipeline file. Some errors are found only after the file was
//! parsed.

use std::fs;
use std::path::Path;

use crate::common::words::has_words;
use feedwater::Error;
use feedwater::error::{ConfigError, Result};
use feedwater::internals::config::Pipeline;
use feedwater::loader::DeviceChoice;
use feedwater::op::Placement;
use feedwater_tools::synth;

const CHAIN: &str = "[[chain]]\nop = \"center_crop\"\nwidth = 8\nheight = 8\n";

/// Returns the key, line and column of an error.
fn place(error: &Error) -> (String, usize, usize) {
    match error {
        Error::Config(ConfigError { key, at: Some(at), .. }) => (key.clone(), at.line, at.column),
        other => panic!("{other:?}"),
    }
}

fn problem(error: &Error) -> &str {
    match error {
        Error::Config(ConfigError { problem, .. }) | Error::Io { problem, .. } => problem,
        other => panic!("{other:?}"),
    }
}

/// Returns the error of parsing or planning this text.
fn planned(text: &str, base: &Path) -> Error {
    let plan = || -> Result<_> {
        Pipeline::from_toml(text, base)?.builder()?.device(DeviceChoice::Cpu).plan()
    };
    plan().err().unwrap_or_else(|| panic!("{text}"))
}

/// Creates a temporary folder with images in its subfolder `data`.
fn folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let settings = synth::Settings { classes: 2, ..synth::Settings::uniform(6, 16, 16) };
    synth::write(&dir.path().join("data"), &settings, |_| ()).unwrap();
    dir
}

#[test]
fn errors_in_the_text_have_line_and_column() {
    let source = "[source]\ndirectory = \"data\"\n";
    for (text, key, line, column) in [
        ("[loader]\nbatch_size = 0", "loader.batch_size", 4, 1),
        // These texts use former names of settings. In some of them a check of values finds the
        // error, in others serde does.
        ("[loader]\nseed = 1\nbatch = 0", "loader.batch", 5, 1),
        ("loader = { seed = 1, world = 0 }", "loader.world", 3, 22),
        ("[loader]\nlast = 3", "loader.last", 4, 1),
        ("[[transform]]\nop = \"flip\"\n[[transform]]\nop = \"flap\"", "transform[1].op", 6, 1),
        ("[loader]\n\n  batchs = 4", "loader.batchs", 5, 3),
        ("[loader]\nseed = 1\nnum_workers = \"many\"", "loader.num_workers", 5, 1),
        ("[laoder]\nbatch_size = 4", "laoder", 3, 2),
        ("loader = { seed = 1, batch_size = 0 }", "loader.batch_size", 3, 22),
        ("loader.batch_size = 0", "loader.batch_size", 3, 8),
        ("[decode]\nroutes = [\"cpu\", \"host\",\n  \"cpu\"]", "decode.routes[2]", 5, 3),
        ("[[chain]]\nop = \"flip\"\n[[chain]]\nop = \"flap\"", "chain[1].op", 6, 1),
        (
            "[[chain]]\nop = \"normalize\"\nmean = [0, 0, 0]\nstd = [1, 0, 1]",
            "chain[0].std[1]",
            6,
            11,
        ),
        (
            "chain = [{ op = \"flip\" }, { op = \"flip\", vertical = 2 }]",
            "chain[1].vertical",
            3,
            42,
        ),
        // The location of a missing key is that of its table.
        ("[[chain]]\nop = \"flip\"\n[[chain]]\nwidth = 3", "chain[1].op", 5, 1),
        ("[[chain]]\nop = \"center_crop\"\nwidth = 3", "chain[0].height", 3, 1),
    ] {
        // In TOML, keys outside of sections must precede the first section.
        let (text, moved) = match text.starts_with('[') {
            true => (format!("{source}{text}"), 0),
            false => (format!("{text}\n{source}"), 2),
        };
        let error = Pipeline::from_toml(&text, "").unwrap_err();
        assert_eq!(place(&error), (key.into(), line - moved, column), "{text}\n{error}");
    }
}

#[test]
fn nested_sources_have_locations_too() {
    for (text, key, line, column) in [
        ("[source]", "source", 1, 2),
        ("[loader]\nbatch_size = 3", "source", 1, 1),
        ("[source]\ndirectory = \"a\"\nlist = \"b\"", "source", 1, 2),
        ("[source]\ntfrecord = [\"a\", 3]", "source.tfrecord", 2, 1),
        (
            "[[source.mixture]]\ndirectory = \"a\"\n[[source.mixture]]\ndirectory = \"b\"\nweight = \"x\"",
            "source.mixture[1].weight",
            5,
            1,
        ),
        (
            "[source]\nconcat = [{ directory = \"a\" }, { directory = \"b\", wieght = 1 }]",
            "source.concat[1].wieght",
            2,
            51,
        ),
        (
            "[source]\ndirectory = \"a\"\n[source.join]\nlist = \"b\"\nprefx = \"x\"",
            "source.join.prefx",
            5,
            1,
        ),
        (
            "[source]\nlist = \"a\"\njoin = [{ list = \"b\" }, { list = \"b\", missing = \"x\" }]",
            "source.join[1].missing",
            3,
            39,
        ),
    ] {
        let error = Pipeline::from_toml(text, "").unwrap_err();
        assert_eq!(place(&error), (key.into(), line, column), "{text}\n{error}");
    }
}

/// Errors of the source, the plan and the loader are found after the file was parsed. They have a
/// line and column nevertheless.
#[test]
fn later_errors_have_locations_too() {
    let dir = folder();
    let source = "[source]\ndirectory = \"data\"\n";
    for (text, key, line, column) in [
        (format!("{source}filter = {{ classes = [\"none\"] }}\n"), "source.filter.classes[0]", 3, 23),
        (format!("{source}skip = 100\n"), "source.skip", 3, 1),
        (source.to_string(), "chain", 1, 1),
        (
            format!("{source}{CHAIN}[[chain]]\nop = \"normalize\"\nmean = [0, 0, 0]\nstd = [1, 1, 1]\n[output]\ndtype = \"u8\""),
            "output.dtype",
            12,
            1,
        ),
        (
            format!("[loader]\nshuffle = true\nshuffle_window = 3\n{source}{CHAIN}"),
            "loader.shuffle_window",
            3,
            1,
        ),
        (
            format!("[limits]\ncpu_threads = 2\n[loader]\nnum_workers = 3\n{source}{CHAIN}"),
            "limits.cpu_threads",
            2,
            1,
        ),
        (
            "[[source.mixture]]\ndirectory = \"data\"\n[[source.mixture]]\ndirectory = \"data\"\nweight = -1.0\n".into(),
            "source.mixture[1].weight",
            5,
            1,
        ),
        (
            "[[source.concat]]\ndirectory = \"data\"\n[[source.concat]]\ndirectory = \"data\"\nsubset = [0, 99]\n".into(),
            "source.concat[1].subset[1]",
            5,
            14,
        ),
    ] {
        let error = planned(&text, dir.path());
        assert_eq!(place(&error), (key.into(), line, column), "{text}\n{error}");
    }
    // An error about a default that the file does not mention has the location of its section.
    let text = format!("{source}[loader]\nseed = 1\n{CHAIN}");
    let pipeline = Pipeline::from_toml(&text, dir.path()).unwrap();
    let built = pipeline.builder().unwrap().device(DeviceChoice::Cpu).build();
    assert_eq!(place(&built.err().unwrap()), ("loader.batch_size".into(), 3, 2));
}

/// A setting that needs missing hardware is an environment error (`Error::Unavailable`). It has a
/// location too.
#[test]
fn a_placement_on_a_missing_gpu_has_a_location() {
    let dir = folder();
    let source = "[source]\ndirectory = \"data\"\n";
    for (text, key, line, column) in [
        (format!("{source}{CHAIN}  placement = \"gpu\"\n"), "chain[0].placement", 7, 3),
        (
            format!("{source}{CHAIN}[[chain]]\nplacement = \"gpu\"\nop = \"flip\"\n"),
            "chain[1].placement",
            8,
            1,
        ),
        (format!("decode = {{ placement = \"gpu\" }}\n{source}{CHAIN}"), "decode.placement", 1, 12),
    ] {
        let file = dir.path().join("p.toml");
        fs::write(&file, &text).unwrap();
        let pipeline = Pipeline::from_file(&file).unwrap();
        let builder = || pipeline.builder().unwrap().device(DeviceChoice::Cpu);
        for error in [builder().plan().err().unwrap(), builder().build().err().unwrap()] {
            let Error::Unavailable { what: "a gpu", asked: Some(asked), reason } = &error else {
                panic!("{error:?}")
            };
            let at = error.location().unwrap_or_else(|| panic!("{text}\n{error}"));
            assert_eq!((&*asked.key, at.line, at.column), (key, line, column), "{text}\n{error}");
            let start = format!("{}:{line}:{column}: ", file.display());
            assert!(error.to_string().starts_with(&start), "{error}");
            assert!(has_words(reason, &[key]), "{error}");
            assert!(at.excerpt().contains("placement"), "{}", at.excerpt());
        }
        // If the program set the placement, and not the file, the error has no location.
        if key.starts_with("chain") {
            let changed =
                builder().configure(|it| it.decode.placement = Placement::Gpu).plan().unwrap_err();
            assert!(changed.location().is_none(), "{changed}");
            assert!(matches!(changed, Error::Unavailable { what: "a gpu", .. }), "{changed}");
            assert!(changed.to_string().starts_with("a gpu"), "{changed}");
        }
    }
}

#[test]
fn settings_changed_by_the_program_have_no_location() {
    let dir = folder();
    let text = format!("[source]\ndirectory = \"data\"\n[loader]\nbatch_size = 4\n{CHAIN}");
    let mut pipeline = Pipeline::from_toml(&text, dir.path()).unwrap();
    let builder = || pipeline.builder().unwrap().device(DeviceChoice::Cpu);
    let error = builder().batch_size(0).plan().unwrap_err();
    assert!(
        matches!(&error, Error::Config(ConfigError { key, at: None, .. }) if key == "loader.batch_size"),
        "{error}"
    );
    let error = builder().batch_size(64).build().err().unwrap();
    assert!(
        matches!(&error, Error::Config(ConfigError { key, at: None, .. }) if key == "loader.batch_size"),
        "{error}"
    );
    pipeline.settings.loader.num_workers = 0.into();
    let error = pipeline.builder().unwrap().plan().unwrap_err();
    assert!(matches!(&error, Error::Config(ConfigError { at: None, .. })), "{error}");
}

#[test]
fn a_toml_syntax_error_has_a_location() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("p.toml");
    for (bytes, key, line, column) in [
        (&b"[source]\ndirectory = \"a\"\ndirectory = \"b\"\n"[..], "source.directory", 3, 1),
        (b"[source]\ndirectory = \"a\"\nbatch = = 3\n", "", 3, 9),
        (b"[source]\n[source]\n", "source", 2, 2),
        (b"[source]\ndirectory = \"caf\xe9\"\n", "", 2, 17),
        (b"\xff\xfe[\0s\0", "", 1, 1),
        (b"[source]\nseed = 99999999999999999999\n", "source.seed", 2, 1),
    ] {
        fs::write(&file, bytes).unwrap();
        let error = Pipeline::from_file(&file).unwrap_err();
        assert_eq!(place(&error), (key.into(), line, column), "{error}");
        let start = format!("{}:{line}:{column}: ", file.display());
        assert!(error.to_string().starts_with(&start), "{error}");
    }
    fs::write(&file, b"[source]\ndirectory = \"caf\xe9\"\n").unwrap();
    let error = Pipeline::from_file(&file).unwrap_err();
    for words in ["0xe9", "25", "UTF-8"] {
        assert!(problem(&error).contains(words), "{words}: {error}");
    }
}

#[test]
fn an_endless_pipeline_file_is_not_read_to_its_end() {
    let error = Pipeline::from_file("/dev/zero").unwrap_err();
    assert!(matches!(&error, Error::Io { path, .. } if path == Path::new("/dev/zero")), "{error}");
}

/// The message contains the key, the path as the file has it, the full path, and the folder to
/// which the path is relative.
#[test]
fn a_missing_folder_is_an_error_of_its_key() {
    let dir = folder();
    let file = dir.path().join("p.toml");
    for (text, key, line, written, looked_at) in [
        ("[source]\ndirectory = \"dat\"", "source.directory", 2, "dat", "dat"),
        ("[source]\nlist = \"sub/a.tsv\"", "source.list", 2, "sub/a.tsv", "sub/a.tsv"),
        ("[source]\ntfrecord = [\"a\", \"b\"]", "source.tfrecord[0]", 2, "a", "a"),
        ("[source]\ntfrecord = \"none/a-*\"", "source.tfrecord", 2, "none/a-*", "none"),
        (
            "[[source.concat]]\ndirectory = \"data\"\n[[source.concat]]\ndirectory = \"more\"",
            "source.concat[1].directory",
            4,
            "more",
            "more",
        ),
    ] {
        fs::write(&file, format!("{text}\n{CHAIN}")).unwrap();
        let error = Pipeline::from_file(&file).unwrap().builder().err().unwrap();
        let (found, at, _) = place(&error);
        assert_eq!((found.as_str(), at), (key, line), "{error}");
        let looked_at = dir.path().join(looked_at);
        for value in [&format!("{written:?}"), &*looked_at.to_string_lossy()] {
            assert!(problem(&error).contains(value), "{value}: {error}");
        }
        assert!(names_folder(problem(&error), dir.path()), "{error}");
    }
    let text = format!("[source]\ndirectory = \"/none/of it\"\n{CHAIN}");
    let error = planned(&text, dir.path());
    assert_eq!(place(&error), ("source.directory".into(), 2, 1));
    assert!(!problem(&error).contains(dir.path().to_str().unwrap()), "{error}");
}

/// Whether a text contains the path of this folder itself. Paths inside the folder do not count.
fn names_folder(text: &str, folder: &Path) -> bool {
    let folder = folder.to_str().unwrap();
    text.match_indices(folder).any(|(at, _)| !text[at + folder.len()..].starts_with('/'))
}

/// The error is still an environment error (`Error::Io`), and it names the key.
#[test]
fn an_unreadable_folder_is_an_error_that_names_its_key() {
    let dir = folder();
    fs::write(dir.path().join("plain"), "").unwrap();
    let error = planned(&format!("[source]\ndirectory = \"plain\"\n{CHAIN}"), dir.path());
    assert!(
        matches!(&error, Error::Io { path, .. } if *path == dir.path().join("plain")),
        "{error}"
    );
    // The message contains the key with its line and column.
    assert!(has_words(problem(&error), &["source.directory", "2", "1"]), "{error}");
}
