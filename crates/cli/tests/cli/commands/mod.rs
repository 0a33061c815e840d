//! Tests of every command of the built program.

mod dump;
mod interrupt;
mod options;
mod outputs;
mod plan;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::common::TRAINING;
use crate::words::{has_words, row};
use feedwater_tools::synth;
use serde_json::Value;
use tempfile::TempDir;

const COMMANDS: [&str; 13] = [
    "demo",
    "doctor",
    "plan",
    "run",
    "dump",
    "bench",
    "bench-ops",
    "explain",
    "simulate",
    "synth",
    "probe",
    "pack",
    "selftest",
];

/// Runs the program in `dir`, on the CPU even if the machine has a GPU.
fn feedwater(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_feedwater"))
        .args(args)
        .current_dir(dir)
        .env("FEEDWATER_CACHE", dir.join("cache"))
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Runs a command that must succeed without warnings. Returns its standard output.
fn done(dir: &Path, args: &[&str]) -> String {
    let (stdout, stderr) = done_with_warnings(dir, args);
    assert_eq!(stderr, "", "{args:?} must write nothing to standard error without a terminal");
    stdout
}

/// Runs a command that must succeed. Returns its standard output and its warnings.
fn done_with_warnings(dir: &Path, args: &[&str]) -> (String, String) {
    let output = feedwater(dir, args);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{args:?}: {stderr}");
    (text(&output.stdout), stderr)
}

/// Runs a command that must succeed. Returns the last line of its output as JSON.
fn json(dir: &Path, args: &[&str]) -> Value {
    let stdout = done(dir, args);
    serde_json::from_str(stdout.lines().next_back().unwrap()).unwrap()
}

/// Runs a command that must fail with the exit code `code`. Returns the message.
fn refused(dir: &Path, args: &[&str], code: i32) -> String {
    let output = feedwater(dir, args);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {stderr}");
    stderr
}

const PIPELINE: &str =
    "[source]\ndirectory = \"data\"\n[loader]\nbatch_size = 4\nshuffle = true\nseed = 5\n";

/// Creates ten small images in three classes, and `pipeline.toml`.
fn workplace() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let settings = synth::Settings { classes: 3, ..synth::Settings::uniform(10, 80, 60) };
    synth::write(&dir.path().join("data"), &settings, |_| ()).unwrap();
    write(&dir, "pipeline.toml", &format!("{PIPELINE}{TRAINING}"));
    dir
}

fn write(dir: &TempDir, name: &str, text: &str) {
    fs::write(dir.path().join(name), text).unwrap();
}

#[test]
fn every_help_text_has_an_example() {
    let dir = tempfile::tempdir().unwrap();
    for command in COMMANDS {
        let help = done(dir.path(), &[command, "--help"]);
        assert!(help.contains(&format!("Example:\n  feedwater {command}")), "{help}");
    }
    let help = done(dir.path(), &["--help"]);
    for command in COMMANDS {
        assert!(help.contains(command), "{help}");
    }
    let version = done(dir.path(), &["--version"]);
    assert_eq!(version, format!("feedwater {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn misuse_ends_with_2_and_failure_with_1() {
    let dir = workplace();
    let dir = dir.path();
    for args in [
        &[][..],
        &["paint"],
        &["run"],
        &["run", "pipeline.toml", "--wrokers", "2"],
        &["run", "pipeline.toml", "--workers", "0"],
        &["run", "pipeline.toml", "--epochs", "0"],
        &["dump", "pipeline.toml"],
        &["synth", "more", "--images", "0"],
        &["synth", "more", "--quality", "101"],
        &["demo", "--images", "0"],
    ] {
        refused(dir, args, 2);
    }
    let words = refused(dir, &["run", "none.toml"], 1);
    assert!(words.starts_with("feedwater: none.toml: "), "{words}");
}

#[test]
fn plan_and_run_print_what_the_source_skips() {
    let dir = workplace();
    let classes: Vec<_> = fs::read_dir(dir.path().join("data")).unwrap().flatten().collect();
    let class = classes.iter().find(|it| it.path().is_dir()).unwrap().path();
    fs::write(class.join("readme.heic"), "text").unwrap();
    let (plan, run) = (["plan", "pipeline.toml"], ["run", "pipeline.toml", "--device", "cpu"]);
    for args in [&plan[..], &run] {
        let stdout = done(dir.path(), args);
        let is_told = |line: &str| {
            line.starts_with("excluded ") && has_words(line, &["1", ".heic", "readme.heic"])
        };
        assert!(stdout.lines().any(is_told), "{stdout}");
        let object = json(dir.path(), &[args, &["--json"]].concat());
        let [.., excluded] = &object["excluded"].as_array().unwrap()[..] else { panic!() };
        assert_eq!((&excluded["kind"], &excluded["count"]), (&".heic".into(), &1.into()));
        assert_eq!(excluded["why"], "other_extension");
    }
}

#[test]
fn an_error_that_stops_a_run_names_the_setting_and_the_command_that_help() {
    let dir = workplace();
    let classes: Vec<_> = fs::read_dir(dir.path().join("data")).unwrap().flatten().collect();
    let class = classes.iter().find(|it| it.path().is_dir()).unwrap().path();
    fs::write(class.join("0.jpg"), "no image").unwrap();
    let words = refused(dir.path(), &["run", "pipeline.toml", "--device", "cpu"], 1);
    for expected in ["0.jpg: unsupported", "loader.on_error", "feedwater probe"] {
        assert!(words.contains(expected), "{words}");
    }
}

#[test]
fn an_endless_pipeline_file_is_an_error_at_once() {
    let words = refused(Path::new("/"), &["run", "/dev/zero"], 1);
    assert!(words.starts_with("feedwater: /dev/zero: "), "{words}");
}

#[test]
fn a_wrong_pipeline_file_is_a_usage_error_that_names_the_key() {
    let dir = workplace();
    for (text, key, values) in [
        (format!("{PIPELINE}batchs = 3\n{TRAINING}"), "loader.batchs: ", &["batch_size"][..]),
        (format!("{PIPELINE}[[chain]]\nop = \"resise\""), "chain[0].op: ", &["resise", "resize"]),
        (format!("{PIPELINE}{}", TRAINING.replace("0.224", "0")), "chain[2].std[1]: ", &["0"]),
        (TRAINING.to_string(), "source: ", &[]),
        // This text is not valid TOML, so the message names no key.
        ("[source".to_string(), "", &["]"]),
        // The source exists, but the chain outputs images of different sizes.
        (PIPELINE.to_string(), "chain: ", &[]),
    ] {
        write(&dir, "wrong.toml", &text);
        for command in [
            &["run", "wrong.toml"][..],
            &["plan", "wrong.toml"],
            &["dump", "wrong.toml", "--out", "out"],
        ] {
            let stderr = refused(dir.path(), command, 2);
            let (place, problem) = stderr.split_once(": ").unwrap().1.split_once(": ").unwrap();
            let position: Vec<_> = place.strip_prefix("wrong.toml:").unwrap().split(':').collect();
            assert!(
                matches!(position[..], [line, column] if line != "0" && column != "0"),
                "{stderr}"
            );
            let problem = problem.strip_prefix(key).unwrap_or_else(|| panic!("{stderr}"));
            assert!(has_words(problem, values), "{stderr}");
            assert_eq!(stderr.lines().count(), 1, "{stderr}");
        }
    }
}

/// A build without SIMD is reported only if libjpeg-turbo decoded, because only then it is slower.
#[test]
fn decoding_without_simd_is_reported_only_where_libjpeg_decodes() {
    let dir = workplace();
    let pipeline = fs::read_to_string(dir.path().join("pipeline.toml")).unwrap();
    write(&dir, "libjpeg.toml", &format!("decode.jpeg = \"libjpeg\"\n{pipeline}"));
    // `done` fails if there is a warning.
    for args in [&["run", "pipeline.toml", "--device", "cpu"][..], &["demo", "--images", "4"]] {
        done(dir.path(), args);
    }
    let output = feedwater(dir.path(), &["run", "libjpeg.toml", "--device", "cpu"]);
    let stderr = text(&output.stderr);
    let told = stderr.lines().filter(|it| it.starts_with("warning: ") && has_words(it, &["SIMD"]));
    assert_eq!(told.count(), usize::from(!feedwater::internals::decode::simd()), "{stderr}");
}

#[test]
fn a_missing_folder_is_a_usage_error_in_a_mixture_too() {
    let dir = workplace();
    let missing =
        "[[source.mixture]]\ndirectory = \"data\"\n[[source.mixture]]\ndirectory = \"dta\"\n";
    write(&dir, "missing.toml", &format!("{missing}{TRAINING}"));
    for command in ["run", "plan", "probe", "bench-ops", "bench", "explain"] {
        let words = refused(dir.path(), &[command, "missing.toml"], 2);
        let place = "missing.toml:4:1: source.mixture[1].directory: ";
        assert!(words.contains(place) && has_words(&words, &["\"dta\""]), "{command}: {words}");
        assert!(words.contains(&*dir.path().to_string_lossy()), "{command}: {words}");
    }
}

#[test]
fn run_reports_every_documented_field() {
    let dir = workplace();
    let args =
        ["run", "pipeline.toml", "--device", "cpu", "--workers", "2", "--epochs", "3", "--json"];
    let result = json(dir.path(), &args);
    assert_eq!((&result["images"], &result["left_over"]), (&(3 * 8).into(), &(3 * 2).into()));
    assert_eq!(result["device"], "cpu");
    assert_eq!(result["outcomes"]["cpu"], 24);
    assert_eq!(result["outcomes"]["skipped"], 0);
    assert!(result["seconds"].as_f64().unwrap() > 0.0);
    let rate = result["images_per_second"].as_f64().unwrap();
    assert!((rate * result["seconds"].as_f64().unwrap() - 24.0).abs() < 1e-6);
    let [peak, files] = ["peak_rss_bytes", "file_rss_bytes"].map(|it| result[it].as_u64().unwrap());
    assert!(files > 1 << 16 && peak > (1 << 20) + files, "{peak}, {files}");
    assert_eq!(result["device_bytes_predicted"], 0);
    assert_eq!(result["device_bytes_peak"], 0);

    let args =
        ["run", "pipeline.toml", "--device", "cpu", "--epochs", "3", "--batches", "3", "--json"];
    assert_eq!(json(dir.path(), &args)["images"], 12);

    let report = done(dir.path(), &["run", "pipeline.toml", "--device", "cpu"]);
    check_rows(&report, "8");
    // The first epoch uses no row indexes. The third epoch uses those of the second.
    assert!(!report.contains("row_index"), "{report}");
    let three = done(dir.path(), &["run", "pipeline.toml", "--device", "cpu", "--epochs", "3"]);
    assert!(has_words(row(&three, "cache "), &["row_index", "hits"]), "{three}");
    assert!(has_words(row(&report, "left over "), &["2", "4", "loader.last_batch"]), "{report}");
    // The row first contains the peak without pages of files, then the prediction for it, and then
    // the size of the pages of files.
    let memory = row(&report, "memory ");
    assert!(has_words(memory, &["peak", "predicted", "file", "pages"]), "{report}");
    assert!(memory.find("peak") < memory.find("predicted"), "{report}");
    write(&dir, "partial.toml", &format!("{PIPELINE}last_batch = \"partial\"\n{TRAINING}"));
    let report = done(dir.path(), &["run", "partial.toml", "--device", "cpu"]);
    assert!(!report.contains("left over"), "{report}");
    let three = PIPELINE.replace("batch_size = 4", "batch_size = 3");
    write(&dir, "three.toml", &format!("{three}{TRAINING}"));
    let report = done(dir.path(), &["run", "three.toml", "--device", "cpu"]);
    assert!(has_words(row(&report, "left over "), &["1 sample"]), "{report}");
}

/// Checks the rows that `run` and `demo` print on the CPU for this number of images.
#[track_caller]
fn check_rows(report: &str, images: &str) {
    for (label, values) in [
        ("device ", &["cpu"][..]),
        ("images ", &[images, "images/s"]),
        ("threads ", &["read", "decode", "transform", "consumer"]),
        ("outcomes ", &["cpu", images]),
        ("memory ", &["host", "device", "MiB"]),
    ] {
        assert!(has_words(row(report, label), values), "{label}: {report}");
    }
}

#[test]
fn each_policy_for_bad_files_works_as_documented() {
    let dir = workplace();
    let bad = dir.path().join("data/class001/0000004.jpg");
    let whole = fs::read(&bad).unwrap();
    fs::write(&bad, &whole[..whole.len() / 3]).unwrap();
    let run = |policy: &str| {
        let text =
            format!("{PIPELINE}last_batch = \"partial\"\non_error = \"{policy}\"\n{TRAINING}");
        write(&dir, "bad.toml", &text);
        ["run", "bad.toml", "--device", "cpu", "--json"]
    };
    let args = run("stop");
    let words = refused(dir.path(), &args, 1);
    assert!(words.contains("class001/0000004.jpg: truncated"), "{words}");

    // Runs a command that prints one warning with the number of bad samples and the first of them.
    let with_warning = |args: &[&str], what: &str| -> Value {
        let (stdout, warning) = done_with_warnings(dir.path(), args);
        assert_eq!(warning.lines().count(), 1, "{warning}");
        for word in ["warning: 1 sample ", what, "class001/0000004.jpg"] {
            assert!(warning.contains(word), "{word}: {warning}");
        }
        serde_json::from_str(stdout.lines().next_back().unwrap()).unwrap()
    };
    let result = with_warning(&run("skip"), "replaced by other samples");
    assert_eq!(result["images"], 10);
    assert_eq!(result["outcomes"]["cpu"], 10);
    assert_eq!(result["outcomes"]["skipped"], 1);
    assert_eq!(result["errors"]["truncated"], 1);

    let result = with_warning(&run("substitute"), "replaced by zeros");
    assert_eq!(result["outcomes"]["cpu"], 9);
    assert_eq!(result["outcomes"]["substituted"], 1);
    assert_eq!(result["outcomes"]["skipped"], 0);

    let dump =
        |out| ["dump", "bad.toml", "--device", "cpu", "--out", out, "--batches", "3", "--json"];
    with_warning(&dump("out"), "replaced by zeros");
    let samples = fs::read(dir.path().join("out/samples.json")).unwrap();
    let samples: Value = serde_json::from_slice(&samples).unwrap();
    let marked: Vec<_> =
        samples.as_array().unwrap().iter().filter(|it| it["outcome"] == "substituted").collect();
    assert_eq!(marked.len(), 1);
    assert!(marked[0]["path"].as_str().unwrap().ends_with("class001/0000004.jpg"));
    assert!(marked[0]["error"].as_str().unwrap().starts_with("truncated: "));

    run("skip");
    with_warning(&dump("skip"), "replaced by other samples");
    let samples = fs::read(dir.path().join("skip/samples.json")).unwrap();
    let samples: Value = serde_json::from_slice(&samples).unwrap();
    let replaced: Vec<_> =
        samples.as_array().unwrap().iter().filter_map(|it| it["replaces"].as_u64()).collect();
    assert_eq!(replaced, [marked[0]["index"].as_u64().unwrap()]);
}

#[test]
fn synth_makes_the_set_that_the_library_makes() {
    let dir = tempfile::tempdir().unwrap();
    let args = [
        "synth",
        "set",
        "--images",
        "5",
        "--width",
        "40",
        "--height",
        "30",
        "--quality",
        "80",
        "--classes",
        "2",
        "--seed",
        "9",
        "--progressive",
        "--json",
    ];
    let result = json(dir.path(), &args);
    assert_eq!(result["images"], 5);
    let file = fs::read(dir.path().join("set/class001/0000003.jpg")).unwrap();
    let image = synth::image(9, 3, 40, 30);
    assert_eq!(file, synth::encode(&image, 40, 30, 80, true).unwrap());
    assert_eq!(result["settings"]["files"]["uniform"]["quality"], 80);
    let words = done(dir.path(), &["synth", "set", "--images", "2", "--uniform"]);
    assert!(has_words(&words, &["2", "500x375", "4:2:0"]), "{words}");
    let result = json(dir.path(), &["synth", "mixed", "--images", "12", "--json"]);
    assert_eq!(result["settings"]["files"], "like-imagenet");
    let census = &result["census"];
    assert!(census["samplings"]["4:4:4"].as_u64().unwrap() > 6, "{census}");
    let file = fs::read(dir.path().join("mixed/class003/0000003.jpg")).unwrap();
    assert_eq!(file, synth::Settings::default().jpeg(3).unwrap());
}

#[test]
fn doctor_succeeds_without_a_gpu() {
    let dir = tempfile::tempdir().unwrap();
    let result = json(dir.path(), &["doctor", "--json"]);
    assert!(result["cpu"]["cores"].as_u64().unwrap() >= 1);
    assert!(result["libjpeg"]["simd"].is_boolean());
    for library in ["driver", "nvjpeg", "nvrtc", "nvml"] {
        let found = result[library]["found"].as_bool().unwrap();
        let key = if found { "version" } else { "missing" };
        assert!(!result[library][key].as_str().unwrap().is_empty(), "{library}");
    }
    assert!(result["devices"].is_array());
    let words = done(dir.path(), &["doctor"]);
    assert!(words.contains("verdict"), "{words}");
}

#[test]
fn selftest_names_its_checks_and_counts_them() {
    let dir = tempfile::tempdir().unwrap();
    let result = json(dir.path(), &["selftest", "--json"]);
    let checks = result["checks"].as_array().unwrap();
    let count = |outcome: &str| checks.iter().filter(|check| check["result"] == outcome).count();
    assert_eq!(result["passed"], count("pass"));
    assert_eq!(result["failed"], 0);
    assert_eq!(result["skipped"], count("skip"));
    for name in feedwater::internals::op::NAMES {
        let check = format!("operator/{name}");
        assert!(checks.iter().any(|it| it["name"] == *check), "{check}");
    }
    let gpu = json(dir.path(), &["doctor", "--json"])["devices"]
        .as_array()
        .unwrap()
        .iter()
        .any(|device| device["usable"] == true);
    if !gpu {
        let words = refused(dir.path(), &["selftest", "--require-gpu", "--only", "hazard"], 1);
        assert!(words.starts_with("feedwater: ") && has_words(&words, &["1"]), "{words}");
    }
}

#[test]
fn demo_caches_its_images_and_draws_the_first_batch() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["demo", "--images", "6", "--device", "cpu"];
    let first = done(dir.path(), &args);
    let data = dir.path().join("cache/imagenet-like-6");
    let (count, _) = row(&first, "generate ").split_once(data.to_str().unwrap()).unwrap();
    assert!(has_words(count, &["6"]), "{first}");
    check_rows(&first, "6");
    assert!(row(&first, "sheet ").contains(".png"), "{first}");
    let made = fs::metadata(data.join("class000/0000000.jpg")).unwrap().modified().unwrap();
    let second = json(dir.path(), &["demo", "--images", "6", "--device", "cpu", "--json"]);
    assert_eq!(second["images"], 6);
    let sheet = second["sheet"].as_str().unwrap();
    assert_eq!(fs::read(sheet).unwrap()[..4], *b"\x89PNG");
    let kept = fs::metadata(data.join("class000/0000000.jpg")).unwrap().modified().unwrap();
    assert_eq!(kept, made, "the images must be generated only once");
}

#[test]
fn a_missing_profiler_is_only_a_warning() {
    let dir = workplace();
    let run = |args: &[&str]| {
        let mut run = Command::new(env!("CARGO_BIN_EXE_feedwater"));
        run.args(["run", "pipeline.toml", "--json"]).args(args).current_dir(dir.path());
        run.env("FEEDWATER_CACHE", dir.path().join("cache"));
        run.env("NVTX_INJECTION64_PATH", "missing-profiler.so").output().unwrap()
    };
    let output = run(&["--nvtx"]);
    let words = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{words}");
    assert!(words.starts_with("warning: "), "{words}");
    assert!(has_words(&words, &["NVTX", "missing-profiler.so"]), "{words}");
    assert_eq!(text(&run(&[]).stderr), "", "without a request for ranges there must be no warning");
}

#[test]
fn closed_standard_output_ends_the_command_quietly() {
    let dir = workplace();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = Command::new(env!("CARGO_BIN_EXE_feedwater"))
        .args(["plan", "pipeline.toml"])
        .current_dir(dir.path())
        .stdout(writer)
        .output()
        .unwrap();
    assert_eq!(text(&output.stderr), "");
    assert_eq!(output.status.code(), Some(0));
}
