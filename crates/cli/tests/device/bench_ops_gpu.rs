//! Tests of `feedwater bench-ops` on the simulated GPU: which kernels it launches, what they
//! compute, and that nothing leaks. Its times have no meaning.

use crate::common::TRAINING;
use crate::simulated;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use feedwater_tools::synth;
use serde_json::Value;
use tempfile::TempDir;

/// A chain that resizes, crops the centre, flips, and crops floats. The centre crop needs only a
/// part of the resized image.
const EVALUATION: &str = r#"
[[chain]]
op = "resize"
shorter = 40
[[chain]]
op = "center_crop"
width = 36
height = 30
[[chain]]
op = "normalize"
mean = [0.485, 0.456, 0.406]
std = [0.229, 0.224, 0.225]
[[chain]]
op = "flip"
horizontal = 0.5
[[chain]]
op = "crop"
x = 3
y = 2
width = 20
height = 16
"#;

/// Creates images of 80x60 and 60x80 pixels, alternately, and a `pipeline.toml` that ends with
/// `chain`.
fn workplace(images: u64, chain: &str) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (class, (width, height)) in [(80, 60), (60, 80)].into_iter().enumerate() {
        let settings =
            synth::Settings { classes: 1, ..synth::Settings::uniform(images / 2, width, height) };
        synth::write(&dir.path().join(format!("data/{class}")), &settings, |_| ()).unwrap();
    }
    let text = format!("[source]\ndirectory = \"data\"\n[loader]\nbatch_size = 4\n{chain}");
    fs::write(dir.path().join("pipeline.toml"), text).unwrap();
    dir
}

/// Runs `bench-ops` with the simulated driver.
fn bench_ops(dir: &Path, args: &[&str], environment: &[(&str, &str)]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_feedwater"))
        .args(["bench-ops", "pipeline.toml"])
        .args(args)
        .current_dir(dir)
        .envs(simulated::environment())
        .env("SIM_COUNTS", dir.join("counts.json"))
        .envs(environment.iter().copied())
        .output()
        .unwrap()
}

/// Returns the counters that the simulated driver has written.
fn counts(dir: &Path) -> Value {
    serde_json::from_slice(&fs::read(dir.join("counts.json")).unwrap()).unwrap()
}

/// Runs `bench-ops`. Returns its result as JSON, and the counters of the simulated driver.
fn measured(dir: &Path, args: &[&str]) -> (Value, Value) {
    let args: Vec<&str> = ["--json", "--device", "gpu"].iter().chain(args).copied().collect();
    let output = bench_ops(dir, &args, &[]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && stderr.is_empty(), "{stderr}");
    (serde_json::from_slice(&output.stdout).unwrap(), counts(dir))
}

fn number(value: &Value, key: &str) -> f64 {
    value[key].as_f64().unwrap_or_else(|| panic!("{key} in {value}"))
}

fn kernels(result: &Value) -> &[Value] {
    result["device"]["kernels"].as_array().unwrap()
}

fn names(rows: &[Value]) -> Vec<&str> {
    rows.iter().map(|it| it["name"].as_str().unwrap()).collect()
}

/// Returns the total number of kernel launches in a result.
fn launched(result: &Value) -> u64 {
    kernels(result).iter().map(|it| it["launched"].as_u64().unwrap()).sum()
}

#[test]
fn every_operator_is_a_separate_kernel_with_the_cpus_pixels() {
    let dir = workplace(10, TRAINING);
    let (result, counts) = measured(dir.path(), &[]);
    let expected = [
        "chain[0] random_resized_crop",
        "chain[1] flip",
        "chain[2] normalize",
        "output",
        "chain, one kernel",
    ];
    assert_eq!(names(kernels(&result)), expected);
    for row in kernels(&result) {
        assert_eq!((number(row, "images"), number(row, "equal")), (10.0, 10.0), "{row}");
        assert_eq!(number(row, "launches"), 1.0, "all outputs must have one size: {row}");
        // A kernel is launched once to compare its output. Then it is timed at least three times,
        // with ten launches each.
        assert!(number(row, "launched") >= 31.0 && number(row, "launched") % 10.0 == 1.0, "{row}");
        assert!(number(row, "seconds") > 0.0, "{row}");
        let per_megapixel = number(row, "seconds_per_megapixel");
        let seconds = per_megapixel * number(row, "megapixels");
        assert!((seconds - number(row, "seconds")).abs() < 1e-9 * seconds, "{row}");
        let on_cpu = result["rows"].as_array().unwrap().iter().find(|it| it["name"] == row["name"]);
        if let Some(on_cpu) = on_cpu {
            assert_eq!(on_cpu["part"], row["part"]);
            assert!((number(on_cpu, "megapixels") - number(row, "megapixels")).abs() < 1e-12);
        }
    }
    assert_eq!(counts["launches"].as_u64().unwrap(), launched(&result));
    assert_eq!((&counts["live"], &counts["faults"]), (&0.into(), &0.into()), "{counts}");
    assert_eq!(result["device"]["name"], "Simulated device");
    assert!(result["gpu"].as_str().unwrap().starts_with("0: Simulated device"));
}

#[test]
fn partial_outputs_floats_and_many_sizes_have_the_cpus_pixels_too() {
    let dir = workplace(80, EVALUATION);
    let (result, counts) = measured(dir.path(), &["--samples", "70"]);
    let rows = kernels(&result);
    let expected = [
        "chain[0] resize",
        "chain[1] center_crop",
        "chain[2] normalize",
        "chain[3] flip",
        "chain[4] crop",
        "output",
        "chain, one kernel",
    ];
    assert_eq!(names(rows), expected);
    for row in rows {
        assert_eq!((number(row, "images"), number(row, "equal")), (70.0, 70.0), "{row}");
    }
    // A launch processes at most 32 samples, so 70 samples need three launches. Operators that
    // output windows of several sizes need more.
    assert_eq!(number(&rows[6], "launches"), 3.0);
    assert_eq!(counts["launches"].as_u64().unwrap(), launched(&result));
    assert_eq!((&counts["live"], &counts["faults"]), (&0.into(), &0.into()), "{counts}");
}

#[test]
fn the_table_names_the_device_and_every_kernel() {
    let dir = workplace(10, TRAINING);
    let output = bench_ops(dir.path(), &["--samples", "4"], &[]);
    let text = String::from_utf8(output.stdout).unwrap();
    let (cpu, device) = text.split_once("\ngpu       0: Simulated device").unwrap();
    assert!(cpu.contains("chain[1] flip"), "{text}");
    for words in ["chain[1] flip", "chain, one kernel", "4 of 4"] {
        assert!(device.contains(words), "{words}\n{text}");
    }
    let doctor = Command::new(env!("CARGO_BIN_EXE_feedwater"))
        .arg("doctor")
        .env("FEEDWATER_LIBCUDA", simulated::directory().join("libcuda.so"))
        .output()
        .unwrap();
    let doctor = String::from_utf8(doctor.stdout).unwrap();
    let named = |text: &str| {
        let line = text.lines().find(|it| it.starts_with("gpu       ")).unwrap();
        // Leave out the free memory after the last comma, which may change between the two calls.
        line.rsplit_once(", ").unwrap().0.to_string()
    };
    assert_eq!(named(&text), named(&doctor));
}

#[test]
fn a_missing_device_part_is_a_line_or_an_error_if_required() {
    let dir = workplace(4, TRAINING);
    let nowhere = [("FEEDWATER_LIBNVRTC", "/nowhere/libnvrtc.so")];
    let output = bench_ops(dir.path(), &["--json"], &nowhere);
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    let why = result["gpu"].as_str().unwrap();
    assert!(why.contains("/nowhere/libnvrtc.so"), "{why}");
    assert!(result["device"].is_null());
    let output = bench_ops(dir.path(), &["--device", "gpu"], &nowhere);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("/nowhere/libnvrtc.so"));
    let output = bench_ops(dir.path(), &["--device", "cpu", "--json"], &[]);
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    let why = result["gpu"].as_str().unwrap();
    assert!(why.contains("cpu") && result["device"].is_null(), "{why}");
}

#[test]
fn a_failing_device_loses_only_its_results_and_leaves_nothing() {
    let dir = workplace(4, TRAINING);
    for failure in [
        "cuMemHostAlloc 1 2",
        "cuEventCreate 2 2",
        "cuMemAlloc 3 2",
        "cuModuleLoadData 2 200",
        "cuLaunchKernel 7 719",
        "cuEventElapsedTime 4 719",
    ] {
        let call = failure.split(' ').next().unwrap();
        let environment = [("SIM_FAIL", failure)];
        let output = bench_ops(dir.path(), &["--json"], &environment);
        let result: Value = serde_json::from_slice(&output.stdout).unwrap();
        let why = result["gpu"].as_str().unwrap();
        assert!(why.contains(call), "{failure}: {why}");
        assert!(result["device"].is_null(), "{failure}");
        assert_eq!(result["rows"].as_array().unwrap().len(), 10, "{failure}");
        let left = counts(dir.path());
        for (count, expected) in [("injected", 1), ("live", 0), ("faults", 0)] {
            assert_eq!(left[count], expected, "{failure}: {left}");
        }

        let output = bench_ops(dir.path(), &["--json", "--device", "gpu"], &environment);
        assert_eq!(output.status.code(), Some(1), "{failure}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(call), "{failure}");
        assert_eq!(counts(dir.path())["live"], 0, "{failure}");
    }
}
