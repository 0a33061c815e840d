//! Tests of the built program on the simulated GPU. The driver, the run-time compiler and nvJPEG
//! simulate the API and the order of events. nvJPEG returns a pattern instead of the image.

use crate::common::{TRAINING, some_of, tests_all_cases};
use crate::simulated;
use crate::words::has_words;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use feedwater_tools::synth;
use serde_json::Value;
use tempfile::TempDir;

/// Runs the program in `dir` with the simulated driver.
fn feedwater(dir: &Path, args: &[&str], environment: &[(&str, &Path)]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_feedwater"))
        .args(args)
        .current_dir(dir)
        .envs(simulated::environment())
        .envs(environment.iter().copied())
        .output()
        .unwrap()
}

/// Checks that a command exited with `code`. Returns the last line of its standard output as JSON.
fn json(output: &Output, code: i32) -> Value {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    let stdout = std::str::from_utf8(&output.stdout).unwrap();
    serde_json::from_str(stdout.lines().next_back().unwrap()).unwrap()
}

/// Returns the name, the result and the description of every check.
fn checks(result: &Value) -> Vec<(String, String, String)> {
    let all = result["checks"].as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    all.map(|it| (text(&it["name"]), text(&it["result"]), text(&it["detail"]))).collect()
}

/// Creates images, and a pipeline file whose chain needs only one kernel.
fn workplace(chain: &str) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let settings = synth::Settings { classes: 3, ..synth::Settings::uniform(10, 80, 60) };
    synth::write(&dir.path().join("data"), &settings, |_| ()).unwrap();
    let text = format!(
        "[source]\ndirectory = \"data\"\n[loader]\nbatch_size = 4\nshuffle = true\nlast_batch = \"partial\"\n{chain}"
    );
    fs::write(dir.path().join("pipeline.toml"), text).unwrap();
    dir
}

/// The same chain as in the check `gpu/operator/normalize`. It needs only one kernel.
const NORMALIZE: &str = r#"
tune = false
[decode]
placement = "cpu"
[[chain]]
op = "normalize"
mean = [0.5, 0.5, 0.5]
std = [0.5, 0.5, 0.5]
[[chain]]
op = "center_crop"
width = 37
height = 29
"#;

#[test]
fn kernels_pass_bit_for_bit_and_a_pattern_fails_the_decode_checks() {
    let dir = workplace(NORMALIZE);
    // Compiling the kernels of all operators takes most of a minute.
    let names = feedwater::internals::op::NAMES;
    let names: Vec<_> = match tests_all_cases() {
        true => names.to_vec(),
        false => {
            let some = some_of(names.iter().copied(), 0).filter(|name| *name != "normalize");
            some.chain(["normalize"]).collect()
        }
    };
    let named = format!("--operators={}", names.join(","));
    let usual = ["selftest", "--require-gpu", "--brief", "--json"];
    let mut args = usual.to_vec();
    if !tests_all_cases() {
        args.extend([&*named, "--only=decode,files,kernels"]);
    }
    let result = json(&feedwater(dir.path(), &args, &[]), 1);
    let all = checks(&result);
    let operators = names.iter().map(|name| format!("gpu/operator/{name}"));
    let others = ["device", "compiler"].map(|name| format!("gpu/{name}")).into_iter();
    // These are checked only if no operators are named.
    let unnamed = [
        "divisions",
        "batch-operators",
        "views",
        "chain/training",
        "chain/evaluation",
        "chain/composed-1",
    ];
    let unnamed = unnamed.iter().filter(|_| tests_all_cases()).map(|name| format!("gpu/{name}"));
    for name in operators.chain(others).chain(unnamed) {
        assert!(all.iter().any(|check| check.0 == name), "{name} is missing");
    }
    // The simulated nvJPEG writes a pattern instead of the image. So checks that compare nvJPEG's
    // pixels must fail, and all others must pass.
    for (name, result, detail) in &all {
        let by_any_route = is_balanced(name);
        assert!(by_any_route || (result == "fail") == shows_a_pattern(name), "{name}: {detail}");
        assert!(result == "pass" || detail.contains("levels"), "{name}: {detail}");
    }
    // The program ran the check for windows in a separate process, which must use the simulated
    // libraries too.
    let windows = all.iter().find(|check| check.0 == "gpu/engines/windows").unwrap();
    assert_eq!((&*windows.1, &*windows.2), ("pass", "the JPEG engines decode windows"));
    assert_eq!(result["failed"], all.iter().filter(|check| check.1 == "fail").count());

    // Run the checks again with one kernel that was compiled wrongly. They must detect it.
    let broken = dir.path().join("broken");
    let compiler = dir.path().join("wrong-compiler");
    let text = r#"#!/bin/sh
for file; do
    case "$file" in
        *.cpp) sed -i 's/p.table\[pixel.r\]/p.table[255 - pixel.r]/' "$file" ;;
    esac
done
exec c++ "$@"
"#;
    fs::write(&compiler, text).unwrap();
    fs::set_permissions(&compiler, fs::Permissions::from_mode(0o755)).unwrap();
    // A cached kernel is used only if the key in its folder has signed it, so copy the key.
    let stored = simulated::directory().join("kernels");
    fs::create_dir(&broken).unwrap();
    fs::set_permissions(&broken, fs::Permissions::from_mode(0o700)).unwrap();
    fs::copy(stored.join("cubin.key"), broken.join("cubin.key")).unwrap();
    let wrong = [("CXX", &*compiler), ("FEEDWATER_CACHE", &*broken)];
    let run = ["run", "pipeline.toml", "--device", "gpu", "--json"];
    json(&feedwater(dir.path(), &run, &wrong), 0);
    let kernels = fs::read_dir(&broken).unwrap().map(|entry| entry.unwrap().path());
    let is_kernel = |path: &PathBuf| path.extension().is_some_and(|it| it == "cubin");
    assert_eq!(kernels.filter(is_kernel).count(), 1);
    // Copy only kernels, because other tests may be writing temporary files into the same folder.
    let stored = fs::read_dir(stored).unwrap().map(|entry| entry.unwrap().path());
    for kernel in stored.filter(is_kernel) {
        let copy = broken.join(kernel.file_name().unwrap());
        if !copy.exists() {
            fs::copy(kernel, copy).unwrap();
        }
    }
    let args = [&usual[..], &[&named, "--only=kernels"]].concat();
    let result = json(&feedwater(dir.path(), &args, &[("FEEDWATER_CACHE", &broken)]), 1);
    let failed: Vec<_> = checks(&result).into_iter().filter(|check| check.1 == "fail").collect();
    assert_eq!(failed.len(), 1, "{failed:?}");
    assert_eq!(failed[0].0, "gpu/operator/normalize");
    // The message contains the element type and the layout, and then the first byte that differs
    // and its sample.
    let (_, difference) = failed[0].2.split_once(" f32 nchw").unwrap();
    assert!(difference.contains(": byte ") && has_words(difference, &["sample 0"]), "{failed:?}");
}

#[test]
#[ignore = "needs device code: tests/device_code/run.sh"]
fn the_kernels_checks_pass_with_device_code() {
    assert!(simulated::device_code::executes_device_code(), "run tests/device_code/run.sh");
    let dir = workplace(NORMALIZE);
    let args = ["selftest", "--require-gpu", "--only", "kernels", "--brief", "--json"];
    let result = json(&feedwater(dir.path(), &args, &[]), 0);
    let passed = checks(&result).into_iter().filter(|check| check.1 == "pass").count();
    assert!(passed > feedwater::internals::op::NAMES.len(), "{result}");
}

/// Whether a check compares the output of nvJPEG, which is only a pattern, with the image.
fn shows_a_pattern(name: &str) -> bool {
    // The route `feedwater` does not use nvJPEG.
    if name.contains("/route=feedwater/") {
        return false;
    }
    // Some of the checks that compare pixels of nvJPEG pass although it writes a pattern: the CPU
    // decodes their images, or the checks ignore pixels.
    let well = ["route=cpu/", "route=nvjpeg-hardware/progressive", "route=nvjpeg-gpu/progressive"];
    ["gpu/decode/", "gpu/files/"].iter().any(|it| name.starts_with(it))
        && !well.iter().any(|it| name.contains(it))
}

/// Whether the loader of a check may use all routes. Such a loader may decode some images on the
/// CPU.
fn is_balanced(name: &str) -> bool {
    ["gpu/policy/skip", "gpu/policy/substitute", "gpu/two-at-once"].contains(&name)
}

/// Returns the number of samples that were made on the device.
fn decoded(result: &Value) -> u64 {
    let count = |route: &str| result["outcomes"][route].as_u64().unwrap();
    ["nvjpeg-hardware", "feedwater", "nvjpeg-gpu", "nvjpeg-hybrid", "cpu"].map(count).iter().sum()
}

#[test]
fn run_names_the_device_and_its_memory() {
    let dir = workplace(TRAINING);
    let args = ["run", "pipeline.toml", "--device", "gpu", "--epochs", "2", "--json"];
    let result = json(&feedwater(dir.path(), &args, &[]), 0);
    assert_eq!(result["device"], "gpu");
    assert_eq!(result["device_reason"], "gpu 0: Simulated device (sm_90), the only visible GPU");
    assert_eq!(result["images"], 20);
    assert_eq!(decoded(&result), 20);
    assert_eq!(result["cpu_fallback"], serde_json::json!({}));
    let [predicted, peak] =
        ["predicted", "peak"].map(|it| result[format!("device_bytes_{it}")].as_u64().unwrap());
    // The peak may be lower than planned, because nvJPEG does not use all memory that is planned
    // for it.
    assert!(peak > 10 * 3 * 80 * 60 && peak <= predicted, "{result}");

    let plan = ["plan", "pipeline.toml", "--device", "gpu", "--json"];
    let plan = json(&feedwater(dir.path(), &plan, &[]), 0);
    assert_eq!(plan["device_bytes"], result["device_bytes_predicted"]);
}

#[test]
fn auto_uses_the_gpu_and_demo_runs_on_it() {
    let dir = tempfile::tempdir().unwrap();
    let cache = dir.path().join("cache");
    let args = ["demo", "--images", "6", "--json"];
    let result = json(&feedwater(dir.path(), &args, &[("FEEDWATER_CACHE", &cache)]), 0);
    assert_eq!(result["device"], "gpu");
    assert_eq!(decoded(&result), 6);
    let sheet = fs::read(result["sheet"].as_str().unwrap()).unwrap();
    assert_eq!(sheet[..4], *b"\x89PNG");
}

#[test]
fn a_dump_on_the_gpu_equals_that_on_the_cpu() {
    let dir = workplace(&format!("[decode]\nplacement = \"cpu\"\n{TRAINING}"));
    for device in ["cpu", "gpu"] {
        let args = [
            "dump",
            "pipeline.toml",
            "--device",
            device,
            "--out",
            device,
            "--batches",
            "3",
            "--json",
        ];
        assert_eq!(json(&feedwater(dir.path(), &args, &[]), 0)["device"], device);
    }
    for file in ["images.npy", "samples.json", "sheet.png"] {
        let [cpu, gpu] = ["cpu", "gpu"].map(|it| fs::read(dir.path().join(it).join(file)).unwrap());
        assert!(cpu == gpu, "{file}");
    }
}

/// Runs a command on a machine without a driver. Checks its exit code, and returns standard output
/// and standard error.
fn without_gpu(dir: &Path, args: &[&str], code: i32) -> (String, String) {
    let nowhere = dir.join("no-driver.so");
    let cache = dir.join("cache");
    let output =
        feedwater(dir, args, &[("FEEDWATER_LIBCUDA", &nowhere), ("FEEDWATER_CACHE", &cache)]);
    let [stdout, stderr] =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    assert_eq!(output.status.code(), Some(code), "{args:?}: {stderr}");
    (stdout, stderr)
}

/// Name of the driver's library in error messages.
const DRIVER: &str = "libcuda.so.1";

#[test]
fn a_missing_gpu_is_an_error_if_required() {
    let dir = workplace(TRAINING);
    for args in [
        &["run", "pipeline.toml", "--device", "gpu"][..],
        &["dump", "pipeline.toml", "--out", "out", "--device", "gpu"],
        &["demo", "--device", "gpu"],
    ] {
        let (stdout, stderr) = without_gpu(dir.path(), args, 1);
        assert!(stderr.starts_with("feedwater: ") && stderr.lines().count() == 1, "{stderr}");
        assert!(has_words(&stderr, &[DRIVER, "no-driver.so"]), "{stderr}");
        assert_eq!(stdout, "", "{args:?} must print nothing before the error");
    }
    assert!(!dir.path().join("cache").exists(), "no images must be generated");

    let (stdout, _) = without_gpu(dir.path(), &["run", "pipeline.toml"], 0);
    let device = stdout.lines().next().unwrap();
    assert!(device.starts_with("device    cpu "), "{device}");
    assert!(has_words(device, &[DRIVER, "feedwater doctor"]), "{device}");
}

#[test]
fn selftest_requires_a_gpu_only_with_the_option() {
    let dir = tempfile::tempdir().unwrap();
    for (args, outcome, code) in [
        (&["selftest", "--json", "--only", "kernels"][..], "skip", 0),
        (&["selftest", "--json", "--only", "kernels", "--require-gpu"], "fail", 1),
    ] {
        let (stdout, _) = without_gpu(dir.path(), args, code);
        let result: Value = serde_json::from_str(stdout.lines().next_back().unwrap()).unwrap();
        let all = checks(&result);
        let of_gpu: Vec<_> = all.iter().filter(|check| check.0.starts_with("gpu/")).collect();
        assert_eq!(of_gpu.len(), 1, "{of_gpu:?}");
        assert_eq!((of_gpu[0].0.as_str(), of_gpu[0].1.as_str()), ("gpu/device", outcome));
        assert!(has_words(&of_gpu[0].2, &[DRIVER]), "{of_gpu:?}");
    }
}

#[test]
fn plan_shows_the_gpu_of_another_machine() {
    let dir = workplace(TRAINING);
    const KERNEL: &str = "FloatTable<Flip<Resample<Roi>>> f32 nchw";
    let args = ["plan", "pipeline.toml", "--device", "gpu"];
    let (text, _) = without_gpu(dir.path(), &args, 0);
    assert!(text.contains(&format!("kernel  {KERNEL}")), "{text}");
    assert!(text.contains("gpu     decode"), "{text}");
    let args = ["plan", "pipeline.toml", "--device", "gpu", "--json"];
    let (here, _) = without_gpu(dir.path(), &args, 0);
    let there = String::from_utf8(feedwater(dir.path(), &args, &[]).stdout).unwrap();
    let [plan, there] = [here, there].map(|text| {
        let mut plan: Value = serde_json::from_str(&text).unwrap();
        // Leave out the available memory, which changes all the time.
        assert!(plan.as_object_mut().unwrap().remove("available").is_some());
        // Leave out the reason why this device was chosen. Only a machine with one GPU reports that
        // this is the only GPU.
        assert!(plan.as_object_mut().unwrap().remove("runs_on").is_some());
        plan
    });
    // Only on a machine with a GPU, the memory that nvJPEG needs is measured and not estimated.
    let rows = |plan: &Value, known: &str| -> usize {
        let rows = plan["footprint"].as_array().unwrap().iter();
        rows.filter(|row| row["note"].as_str().unwrap().contains(known)).count()
    };
    // Without a GPU, 6 notes contain "estimated". With a GPU, the same 6 notes contain "measured",
    // and so does the note of the row `process`.
    assert_eq!([rows(&plan, "estimated"), rows(&there, "measured")], [6, 7]);

    let without = |plan: &Value| {
        let mut plan = plan.clone();
        for key in ["footprint", "device_bytes", "pinned_bytes", "host_bytes_to_take"] {
            assert!(plan.as_object_mut().unwrap().remove(key).is_some(), "{key}");
        }
        for route in plan["device"]["routes"].as_array_mut().unwrap() {
            *route = route["route"].clone();
        }
        plan
    };
    assert_eq!(without(&plan), without(&there), "the plan must equal that of a machine with a GPU");
    assert_eq!(plan["device"]["kernels"], serde_json::json!([KERNEL]));
    assert!(plan["device"]["pages"].as_u64().unwrap() > 8);

    // The command prints the whole kernel, on any machine and with any `--device`.
    for device in ["auto", "cpu"] {
        let args = ["plan", "pipeline.toml", "--cuda", "--device", device];
        let (text, _) = without_gpu(dir.path(), &args, 0);
        for part in ["struct Flip", "typedef FloatTable<Flip<Resample<Roi>>> Pixels;", "__global__"]
        {
            assert!(text.contains(part), "{part}");
        }
    }
    let on_cpu = TRAINING.replace("op =", "placement = \"cpu\"\nop =");
    let text = format!("[source]\ndirectory = \"data\"\n[decode]\nplacement = \"cpu\"\n{on_cpu}");
    fs::write(dir.path().join("cpu.toml"), text).unwrap();
    let (_, stderr) = without_gpu(dir.path(), &["plan", "cpu.toml", "--cuda"], 1);
    assert!(stderr.starts_with("feedwater: "), "{stderr}");
    assert!(has_words(&stderr, &["cpu", "auto", "gpu"]), "{stderr}");
    let json = ["plan", "pipeline.toml", "--device", "cpu", "--json"];
    let (json, _) = without_gpu(dir.path(), &json, 0);
    let plan: Value = serde_json::from_str(&json).unwrap();
    assert!(plan["device"].is_null());
}

/// Runs the examples of the help in the order of a new user. The first one is `synth`, which
/// creates the images that the pipeline file reads.
#[test]
fn every_example_of_the_help_works_when_pasted() {
    let dir = tempfile::tempdir().unwrap();
    let text =
        format!("[source]\ndirectory = \"data/train\"\n[loader]\nbatch_size = 8\n{TRAINING}");
    fs::write(dir.path().join("pipeline.toml"), text).unwrap();
    for command in ["synth", "doctor", "plan", "run", "dump", "selftest", "demo"] {
        let (help, _) = without_gpu(dir.path(), &[command, "--help"], 0);
        let (_, example) = help.split_once("Example:\n  feedwater ").unwrap();
        let mut args: Vec<_> = example.split_whitespace().collect();
        assert_eq!(args[0], command);
        // Creating an image takes a twentieth of a second.
        if let Some(at) = args.iter().position(|arg| *arg == "--images")
            && !tests_all_cases()
        {
            args[at + 1] = "20";
        }
        let (stdout, stderr) = without_gpu(dir.path(), &args, 0);
        assert!(!stdout.is_empty() && stderr.is_empty(), "{example}: {stderr}");
    }
}
