//! Tests of `feedwater bench` on the CPU and on the simulated GPU, and of the scripts in
//! `benches/peers`.

use crate::simulated;
use crate::words::{has_words, row};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use feedwater_tools::synth;
use serde_json::Value;
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_feedwater");

const PIPELINE: &str = r#"
[source]
directory = "data"
[loader]
batch_size = 4
last_batch = "partial"
[[chain]]
op = "center_crop"
width = 32
height = 24
[[chain]]
op = "normalize"
mean = [0.485, 0.456, 0.406]
std = [0.229, 0.224, 0.225]
"#;

/// Creates ten small images, and a `pipeline.toml` that begins with `head`.
fn workplace(head: &str) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let settings = synth::Settings { classes: 3, ..synth::Settings::uniform(10, 80, 60) };
    synth::write(&dir.path().join("data"), &settings, |_| ()).unwrap();
    fs::write(dir.path().join("pipeline.toml"), format!("{head}{PIPELINE}")).unwrap();
    dir
}

fn bench(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.arg("bench").args(args).current_dir(dir).env("FEEDWATER_CACHE", dir.join("cache"));
    command
}

/// Checks that a command exited with `code`. Returns its standard output, and the last line as
/// JSON.
fn told(output: &Output, code: i32) -> (String, Value) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    let stdout = String::from_utf8(output.stdout.clone()).unwrap();
    let last = serde_json::from_str(stdout.lines().next_back().unwrap()).unwrap();
    (stdout, last)
}

fn cases(result: &Value) -> &[Value] {
    result["cases"].as_array().unwrap()
}

fn number(case: &Value, key: &str) -> f64 {
    case[key].as_f64().unwrap_or_else(|| panic!("{key} is not a number: {case}"))
}

#[test]
fn a_file_is_measured_on_the_cpu_and_the_routes_are_skipped_with_a_reason() {
    let dir = workplace("");
    let args = ["pipeline.toml", "--device", "cpu", "--epochs", "3", "--workers", "1", "--json"];
    let (stdout, result) = told(&bench(dir.path(), &args).output().unwrap(), 0);
    assert_eq!((&result["measured"], &result["failed"]), (&1.into(), &0.into()));
    assert_eq!(result["skipped"], 5);
    for case in cases(&result) {
        assert_eq!(case["set"], "pipeline.toml");
        if case["route"] != "cpu" {
            assert_eq!(case["result"], "skipped");
            let reason = case["reason"].as_str().unwrap();
            assert!(has_words(reason, &["GPU"]), "{case}");
            let (skipped, route) = (row(&stdout, "skipped "), case["route"].as_str().unwrap());
            assert!(skipped.contains(reason) && has_words(skipped, &[route]), "{stdout}");
            continue;
        }
        assert_eq!(case["result"], "measured");
        assert_eq!((number(case, "epochs"), number(case, "images")), (3.0, 30.0));
        assert_eq!((number(case, "batch"), number(case, "workers")), (4.0, 1.0));
        assert_eq!(case["outcomes"]["cpu"], 30, "the warm-up epoch must not be counted");
        let rate = number(case, "images_per_second");
        assert!((rate * number(case, "seconds") - 30.0).abs() < 1e-6);
        let waited = number(case, "consumer_waited");
        assert!((0.0..=1.0).contains(&waited), "{waited}");
        assert!(number(case, "first_batch_seconds") > 0.0);
        assert!(number(case, "peak_rss_bytes") > 1e6);
        let cpu = number(case, "cpu_seconds_per_1000_images");
        assert!((cpu * 1e3 - number(case, "host_microseconds_per_image")).abs() <= 1e-6 * cpu);
        assert_eq!(case["device_bytes_predicted"], 0);
    }
    for words in ["images/s", "CPU s/1000", "first batch", "cpu 100.0 %"] {
        assert!(stdout.contains(words), "{words}: {stdout}");
    }
}

#[test]
fn without_epochs_a_case_takes_three_seconds_even_with_one_batch_per_epoch() {
    let dir = workplace("");
    let args = ["pipeline.toml", "--device", "cpu", "--batch", "64", "--routes", "cpu", "--json"];
    let (_, result) = told(&bench(dir.path(), &args).output().unwrap(), 0);
    let case = &cases(&result)[0];
    // The set is smaller than a batch, so an epoch has a single batch of 10 samples.
    assert_eq!(case["batch"], 10);
    assert!(number(case, "seconds") >= 3.0);
    assert_eq!(number(case, "images"), 10.0 * number(case, "epochs"));
}

#[test]
fn the_sets_are_generated_once_with_pipeline_files_beside_them() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["--images", "16", "--device", "cpu", "--routes", "cpu", "--epochs", "1", "--json"];
    let (_, result) = told(&bench(dir.path(), &args).output().unwrap(), 0);
    let found: Vec<_> = cases(&result)
        .iter()
        .map(|case| (case["set"].as_str().unwrap(), number(case, "images")))
        .collect();
    let expected = [
        ("imagenet-like", 16.0),
        ("500x375", 16.0),
        ("2048x1536", 2.0),
        ("500x375-progressive", 4.0),
        ("500x375-mixed", 16.0),
    ];
    assert_eq!(found, expected);
    let batches = cases(&result).iter().map(|case| number(case, "batch"));
    assert!(batches.eq(expected.map(|(_, images)| images)), "no batch must be larger than its set");

    let cache = dir.path().join("cache");
    let image = cache.join("uniform-4-500x375-progressive/class000/0000000.jpg");
    assert!(is_progressive(&fs::read(&image).unwrap()));
    let list = fs::read_to_string(cache.join("uniform-16-500x375-mixed.tsv")).unwrap();
    let progressive = list.lines().filter(|line| {
        let path = line.split('\t').next().unwrap();
        is_progressive(&fs::read(cache.join(path)).unwrap())
    });
    assert_eq!(progressive.count(), 2, "an eighth");

    let made = fs::metadata(&image).unwrap().modified().unwrap();
    told(&bench(dir.path(), &args).output().unwrap(), 0);
    assert_eq!(fs::metadata(&image).unwrap().modified().unwrap(), made);
    let file = cache.join("imagenet-like-16.toml");
    let run =
        Command::new(PROGRAM).arg("run").arg(file).args(["--device", "cpu"]).output().unwrap();
    assert!(run.status.success(), "the pipeline files must work with other commands too");
}

#[test]
fn a_failed_case_is_reported_with_its_reason_and_the_others_continue() {
    let dir = workplace("");
    let bad = dir.path().join("data/class001/0000004.jpg");
    let whole = fs::read(&bad).unwrap();
    fs::write(&bad, &whole[..whole.len() / 3]).unwrap();
    let args = ["pipeline.toml", "--device", "cpu", "--epochs", "1", "--json"];
    let output = bench(dir.path(), &args).output().unwrap();
    let (stdout, result) = told(&output, 1);
    let case = cases(&result).iter().find(|case| case["route"] == "cpu").unwrap();
    assert_eq!(case["result"], "failed");
    let reason = case["reason"].as_str().unwrap();
    assert!(reason.contains("class001/0000004.jpg: truncated"), "{reason}");
    assert!(stdout.contains("FAILED"), "{stdout}");
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(words.starts_with("feedwater: ") && has_words(&words, &["1", "6"]), "{words}");
    assert_eq!(words.lines().count(), 1, "{words}");
}

#[test]
fn wrong_arguments_are_usage_errors_and_unmeasurable_cases_are_failures() {
    let dir = workplace("");
    for (args, code) in [
        (&["pipeline.toml", "--routes", "wires"][..], 2),
        (&["pipeline.toml", "--epochs", "0"], 2),
        (&["pipeline.toml", "--images", "5"], 2),
        (&["pipeline.toml", "--batch", "0"], 2),
        (&["--case", "cpu"], 2),
        (&["none.toml", "--device", "cpu"], 1),
        (&["pipeline.toml", "--device", "cpu", "--routes", "hardware,cuda"], 1),
    ] {
        let output = bench(dir.path(), args).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{args:?}");
    }
    fs::write(dir.path().join("wrong.toml"), PIPELINE.replace("batch", "batsch")).unwrap();
    let output = bench(dir.path(), &["wrong.toml"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));

    // The missing GPU must be reported before any images are generated.
    let mut command = bench(dir.path(), &["--device", "gpu"]);
    let output = command.env("FEEDWATER_LIBCUDA", "/nowhere/libcuda.so").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(!dir.path().join("cache").exists());
}

#[test]
fn on_a_gpu_a_route_missing_from_the_file_is_skipped_and_memory_is_reported() {
    let dir = workplace("[decode]\nroutes = [\"host\", \"cpu\"]\n");
    let args = [
        "pipeline.toml",
        "--device",
        "gpu",
        "--routes",
        "hardware,host,balanced",
        "--epochs",
        "2",
        "--json",
    ];
    let output = bench(dir.path(), &args).envs(simulated::environment()).output().unwrap();
    let (stdout, result) = told(&output, 0);
    assert_eq!((&result["measured"], &result["skipped"]), (&2.into(), &1.into()));
    let [hardware, alone, balanced] = cases(&result) else { panic!("{result}") };
    let reason = hardware["reason"].as_str().unwrap();
    assert!(has_words(reason, &["decode.routes", "nvjpeg-hardware"]), "{hardware}");
    let (_, names) = row(&stdout, "skipped ").split_once(reason).unwrap();
    assert!(has_words(names, &["nvjpeg-hardware"]), "{stdout}");
    for case in [alone, balanced] {
        assert!(case["device"].as_str().unwrap().starts_with("gpu 0"), "{case}");
        assert_eq!(number(case, "images"), 20.0);
        let all: u64 =
            case["outcomes"].as_object().unwrap().values().filter_map(Value::as_u64).sum();
        assert_eq!(all, 20);
        let predicted = number(case, "device_bytes_predicted");
        let peak = number(case, "device_bytes_peak");
        assert!(0.0 < peak && peak <= predicted, "{peak} of {predicted}");
        assert!(number(case, "pinned_bytes_peak") <= number(case, "pinned_bytes_predicted"));
    }
    assert_eq!(alone["outcomes"]["nvjpeg-hybrid"], 20, "{alone}");
}

#[test]
fn cases_with_engines_are_measured_with_each_hardware_group() {
    let dir = workplace("");
    let mut command = bench(
        dir.path(),
        &[
            "pipeline.toml",
            "--device",
            "gpu",
            "--epochs",
            "1",
            "--hardware-group",
            "3,16",
            "--json",
        ],
    );
    command.args(["--routes", "nvjpeg-hardware,nvjpeg-gpu,balanced"]);
    command.envs(simulated::environment());
    let (stdout, result) = told(&command.output().unwrap(), 0);
    let told: Vec<_> = cases(&result)
        .iter()
        .map(|case| (&case["route"], &case["hardware_group"], &case["images_per_hardware_call"]))
        .map(|(route, asked, planned)| (route.as_str(), asked.as_u64(), planned.as_u64()))
        .collect();
    let expected = [
        (Some("nvjpeg-hardware"), Some(3), Some(3)),
        (Some("nvjpeg-hardware"), Some(16), Some(16)),
        (Some("nvjpeg-gpu"), None, Some(0)),
        (Some("balanced"), Some(3), Some(3)),
        (Some("balanced"), Some(16), Some(16)),
    ];
    assert_eq!(told, expected);
    assert!(stdout.contains("nvjpeg-hardware x16 "), "{stdout}");
    assert!(cases(&result).iter().all(|case| number(case, "images") == 10.0), "{result}");
}

#[test]
fn the_peer_scripts_parse_and_name_a_missing_peer() {
    let scripts = crate::repository().join("benches/peers");
    let python = |args: &[&str]| {
        let mut command = Command::new("python3");
        command.args(args).env("PYTHONDONTWRITEBYTECODE", "1");
        command.output()
    };
    let current = "import sys; sys.exit(sys.version_info < (3, 9))";
    if !python(&["-c", current]).is_ok_and(|it| it.status.success()) {
        eprintln!("skipped: python3 is missing or older than 3.9");
        return;
    }
    let files = fs::read_dir(&scripts).unwrap().map(|entry| entry.unwrap().path());
    let files: Vec<PathBuf> =
        files.filter(|path| path.extension().is_some_and(|it| it == "py")).collect();
    assert!(files.len() >= 5, "{files:?}");
    for file in &files {
        let parse = "import ast, sys; ast.parse(open(sys.argv[1]).read())";
        let output = python(&["-c", parse, file.to_str().unwrap()]).unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    // Compare feedwater with a peer whose import fails here, even if the peer is installed.
    let dir = workplace("");
    let (data, json) = (dir.path().join("data"), dir.path().join("result.json"));
    let modules = dir.path().join("modules");
    fs::create_dir_all(modules.join("nvidia")).unwrap();
    fs::write(modules.join("nvidia/__init__.py"), "raise ImportError('hidden')\n").unwrap();
    let output = Command::new("python3")
        .arg(scripts.join("run.py"))
        .args(["--peers", "feedwater,dali", "--device", "cpu", "--rounds", "1", "--epochs", "1"])
        .args(["--feedwater", PROGRAM, "--data", data.to_str().unwrap(), "--json"])
        .arg(&json)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("PYTHONPATH", &modules)
        .output()
        .unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let result: Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    let run = &result[0]["rounds"][0]["feedwater"];
    assert_eq!(number(run, "images"), 10.0, "{stdout}");
    assert!(number(run, "host_bytes") > 1e6);
    assert_eq!(result[0]["absent"]["dali"], "ImportError: hidden");
    assert!(stdout.lines().any(|it| it == "dali: skipped: ImportError: hidden"), "{stdout}");
}

fn is_progressive(jpeg: &[u8]) -> bool {
    jpeg.windows(2).any(|marker| marker == [0xff, 0xc2])
}
