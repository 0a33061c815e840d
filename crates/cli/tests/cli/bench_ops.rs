//! Tests of `feedwater bench-ops`: the fields of the result, its sums and its errors. Times are not
//! checked.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::common::TRAINING;
use crate::words::{self, has_words};
use feedwater_tools::synth;
use serde_json::Value;
use tempfile::TempDir;

/// Creates ten images of 80x60 pixels, and a `pipeline.toml` that consists of `head` and `chain`.
fn workplace(head: &str, chain: &str) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let settings = synth::Settings { classes: 2, ..synth::Settings::uniform(10, 80, 60) };
    synth::write(&dir.path().join("data"), &settings, |_| ()).unwrap();
    let text = format!("[source]\ndirectory = \"data\"\n{head}{chain}");
    fs::write(dir.path().join("pipeline.toml"), text).unwrap();
    dir
}

fn bench_ops(dir: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_feedwater"));
    // Hide the driver, so that the command finds no GPU even if this machine has one.
    command.env("FEEDWATER_LIBCUDA", "/nowhere/libcuda.so");
    command.arg("bench-ops").args(args).current_dir(dir).output().unwrap()
}

fn measured(dir: &Path, args: &[&str]) -> Value {
    let args: Vec<&str> = ["pipeline.toml", "--json"].iter().chain(args).copied().collect();
    let output = bench_ops(dir, &args);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert_eq!(stderr, "");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn number(value: &Value, key: &str) -> f64 {
    value[key].as_f64().unwrap_or_else(|| panic!("{key} in {value}"))
}

fn names(result: &Value) -> Vec<&str> {
    result["rows"].as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap()).collect()
}

fn row<'a>(result: &'a Value, name: &str) -> &'a Value {
    result["rows"].as_array().unwrap().iter().find(|it| it["name"] == name).unwrap()
}

fn near(a: f64, b: f64) {
    assert!((a - b).abs() <= 1e-9 * a.abs().max(b.abs()), "{a} {b}");
}

#[test]
fn every_step_of_the_chain_is_measured_alone_and_shares_add_up() {
    let dir = workplace("", TRAINING);
    let result = measured(dir.path(), &[]);
    let expected = [
        "read",
        "header",
        "plan",
        "decode",
        "chain[0] random_resized_crop",
        "chain[1] flip",
        "chain[2] normalize",
        "output",
        "decode, whole",
        "decode to tensor",
    ];
    assert_eq!(names(&result), expected);
    assert_eq!((number(&result, "samples"), number(&result, "skipped")), (10.0, 0.0));
    near(number(&result, "image_megapixels"), 0.0048);
    let why = result["gpu"].as_str().unwrap();
    assert!(why.contains("/nowhere/libcuda.so"), "{why}");
    assert!(result["device"].is_null());

    let rows = result["rows"].as_array().unwrap();
    let sum = |part: &str| -> f64 {
        rows.iter().filter(|it| it["part"] == part).map(|it| number(it, "seconds")).sum()
    };
    let (load, encode) = (number(&result, "load_seconds"), number(&result, "encode_seconds"));
    near(load, sum("load"));
    near(encode, sum("encode"));
    assert!(load > 0.0 && encode > 0.0);
    let mut shares = 0.0;
    for row in rows {
        assert!(number(row, "p50_seconds") <= number(row, "p99_seconds"), "{row}");
        assert!(number(row, "p99_seconds") > 0.0, "{row}");
        near(
            number(row, "seconds_per_megapixel") * number(row, "megapixels"),
            number(row, "seconds"),
        );
        match row["part"].as_str() {
            Some("comparison") => assert!(row["share"].is_null()),
            _ => {
                near(number(row, "share"), number(row, "seconds") / (load + encode));
                shares += number(row, "share");
            }
        }
    }
    near(shares, 1.0);
    let together = number(&result, "loader_seconds");
    let before: f64 =
        ["read", "header", "plan"].map(|it| number(row(&result, it), "seconds")).iter().sum();
    near(together, before + number(row(&result, "decode to tensor"), "seconds"));
    near(number(&result, "images_per_second_per_core") * together, 1.0);

    // The megapixels of a step are those of the image that the step receives in this chain.
    let of = |name: &str| number(row(&result, name), "megapixels");
    near(of("read"), 0.0048);
    near(of("decode, whole"), 0.0048);
    near(of("chain[1] flip"), 32.0 * 24.0 * 1e-6);
    near(of("output"), 32.0 * 24.0 * 1e-6);
    assert!(of("decode") < of("decode, whole"), "a random crop must be fused into the decoder");
    near(of("decode"), of("chain[0] random_resized_crop"));
}

#[test]
fn presizing_is_a_separate_step() {
    let head = "[cache]\ndecoded = \"1 MiB\"\npresize = 30\n";
    let dir = workplace(head, TRAINING);
    let result = measured(dir.path(), &["--samples", "3"]);
    assert_eq!(names(&result)[..4], ["read", "header", "presize", "plan"]);
    assert_eq!(number(&result, "samples"), 3.0);
    near(number(row(&result, "presize"), "megapixels"), 0.0048);
    near(number(row(&result, "decode, whole"), "megapixels"), 40.0 * 30.0 * 1e-6);
}

#[test]
fn placements_on_a_gpu_do_not_matter() {
    let dir = workplace(
        "",
        &TRAINING.replace("horizontal = 0.5", "horizontal = 0.5\nplacement = \"gpu\""),
    );
    let result = measured(dir.path(), &["--samples", "2"]);
    assert_eq!(names(&result).len(), 10);
}

#[test]
fn unusable_samples_are_skipped_and_counted() {
    let dir = workplace("", TRAINING);
    let images = |dir: &Path| {
        let mut files: Vec<_> = fs::read_dir(dir.join("data"))
            .unwrap()
            .filter_map(|it| fs::read_dir(it.unwrap().path()).ok())
            .flatten()
            .map(|it| it.unwrap().path())
            .filter(|it| it.extension().is_some_and(|it| it == "jpg"))
            .collect();
        files.sort();
        files
    };
    let files = images(dir.path());
    assert_eq!(files.len(), 10);
    fs::write(&files[3], b"no image").unwrap();
    let result = measured(dir.path(), &[]);
    assert_eq!((number(&result, "samples"), number(&result, "skipped")), (9.0, 1.0));
    let name = files[3].file_name().unwrap().to_str().unwrap();
    assert!(result["first_error"].as_str().unwrap().contains(name), "{result}");

    for file in &files {
        fs::write(file, b"no image").unwrap();
    }
    let output = bench_ops(dir.path(), &["pipeline.toml"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains(files[0].file_name().unwrap().to_str().unwrap()), "{stderr}");
}

#[test]
fn the_table_names_every_step_and_wrong_arguments_are_errors() {
    let dir = workplace("", TRAINING);
    let output = bench_ops(dir.path(), &["pipeline.toml", "--samples", "2"]);
    let text = String::from_utf8(output.stdout).unwrap();
    for (label, values) in [
        ("samples ", &["2"][..]),
        ("chain[0] random_resized_crop ", &[]),
        ("alone ", &["decode", "output", "ms"]),
        ("together ", &["ms", "images/s"]),
        ("gpu ", &["/nowhere/libcuda.so"]),
    ] {
        assert!(has_words(words::row(&text, label), values), "{label}\n{text}");
    }
    let misuses = [
        (["pipeline.toml", "--samples=0"], 2),
        (["missing.toml", "--json"], 1),
        (["pipeline.toml", "--device=gpu"], 1),
        (["pipeline.toml", "--device=tpu"], 2),
    ];
    for (args, code) in misuses {
        assert_eq!(bench_ops(dir.path(), &args).status.code(), Some(code), "{args:?}");
    }
}

#[test]
fn other_pixel_formats_state_what_was_measured() {
    let resize = "[[chain]]\nop = \"resize\"\nwidth = 24\nheight = 24\n";
    for (pixels, note) in
        [("u8x3", None), ("u8", Some("CPU only")), ("u8x4", Some("without alpha"))]
    {
        let dir = workplace(&format!("[decode]\npixels = \"{pixels}\"\n"), resize);
        let result = measured(dir.path(), &[]);
        assert_eq!(result["pixels"], pixels);
        assert_eq!(names(&result).contains(&"decode, whole"), note.is_none(), "{pixels}");
        let stated = result["pixels_note"].as_str();
        assert_eq!(stated.is_some(), note.is_some(), "{pixels}");
        assert!(note.is_none_or(|it| stated.unwrap().contains(it)), "{stated:?}");
        let table = String::from_utf8(bench_ops(dir.path(), &["pipeline.toml"]).stdout).unwrap();
        let line = table.lines().find(|line| line.starts_with("pixels "));
        assert_eq!(line.is_some(), note.is_some(), "{table}");
    }
}
