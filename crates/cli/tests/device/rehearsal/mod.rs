//! Runs `scripts/acceptance` on the simulated GPU from the first step to the last, as a user runs
//! it on a rented machine. The scripts are packed, run in several calls, killed, interrupted, and
//! moved to another machine. At the end, the results are sent back.
//!
//! The script runs the same programs as the tests. Two programs beside this file replace
//! `nvidia-smi` and `compute-sanitizer`, and a Python module replaces DALI. Measured numbers have
//! no meaning.

use std::env;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::{repository, simulated};

/// Largest number of bytes in one upload to a rented machine. The results have the same limit.
const UPLOAD_LIMIT: u64 = 64 << 20;
/// Largest number of files in the results.
const FILES_LIMIT: usize = 8;

/// Every step with its expected result. The third text is a part of the expected note, for steps
/// that cannot pass on the simulated GPU.
const EXPECTED: [(&str, &str, &str); 19] = [
    ("versions", "pass", ""),
    // The JPEG engines are simulated. Their real library, which is part of the driver, is missing.
    ("cuvid", "FAIL", "there is no libnvcuvid.so.1"),
    ("doctor", "pass", ""),
    ("receive", "pass", ""),
    ("decode", "pass", ""),
    ("nvjpeg-versions", "pass", ""),
    ("gpu_hardware", "pass", ""),
    ("memory", "pass", ""),
    ("images", "pass", ""),
    ("run", "pass", ""),
    ("routes", "pass", ""),
    ("groups", "pass", ""),
    // PyTorch is not installed, or finds no GPU because it loads the real driver.
    ("peers", "partly", "torchvision: skipped: "),
    ("loaders", "pass", ""),
    ("kernels", "pass", ""),
    ("bench-ops", "pass", ""),
    ("operators", "pass", ""),
    ("memcheck", "pass", ""),
    ("racecheck", "pass", ""),
];

/// The folders of the machine that builds, and the files that all machines share.
struct Rehearsal {
    directory: tempfile::TempDir,
    /// Environment variables that name the simulated libraries and their cache of kernels.
    environment: Vec<(&'static str, PathBuf)>,
}

impl Rehearsal {
    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Returns a command that calls the script on a machine. Each simulated machine has its own
    /// folder for the script's files (`ACCEPTANCE_STORE`).
    fn call(&self, machine: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("env");
        // A shell starts its background jobs with SIGINT ignored, and bash would keep ignoring it.
        // `env` restores the default.
        command.args(["--default-signal=INT,TERM,HUP", "bash"]);
        command.arg(self.path("packed/acceptance")).args(arguments).current_dir(self.path(""));
        let own = self.path("tools").display().to_string();
        let search = env::var("PATH").unwrap();
        command
            .envs(self.environment.iter().cloned())
            .env("PATH", format!("{own}:{search}"))
            .env("LD_LIBRARY_PATH", self.path("driver"))
            .env("ACCEPTANCE_STORE", self.path(machine))
            .env("ACCEPTANCE_IMAGES", "16")
            .env("ACCEPTANCE_SMALL", "1")
            // Allow more time for measurements, because other tests run at the same time.
            .env("ACCEPTANCE_PATIENCE", "5")
            .args(["--minutes", "40"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Interrupts a call with a signal as soon as the step `after` has ended. Sends the signal
    /// repeatedly, like a user who presses Ctrl-C again. Bash 5.2 loses a few signals that arrive
    /// during a command substitution.
    fn cut(&self, machine: &str, arguments: &[&str], after: &str, signal: Signal) -> Output {
        let mut child = self.call(machine, arguments).spawn().unwrap();
        let report = self.path(arguments[0]).join("report.txt");
        let begin = Instant::now();
        while result_of(&report, after).is_none_or(|it| it == "not run") {
            assert!(begin.elapsed() < Duration::from_secs(300), "step {after} does not end");
            thread::sleep(Duration::from_millis(20));
        }
        while child.try_wait().unwrap().is_none() {
            kill_process(Pid::from_child(&child), signal).unwrap();
            thread::sleep(Duration::from_millis(500));
        }
        child.wait_with_output().unwrap()
    }
}

/// Returns the result of a step from the table of a report.
fn result_of(report: &Path, step: &str) -> Option<String> {
    let text = fs::read_to_string(report).ok()?;
    let row = text.lines().find_map(|line| line.strip_prefix(step)?.strip_prefix(' '))?;
    Some(row.get(16 - step.len()..)?.split("  ").next()?.trim().to_owned())
}

/// Returns the names of the steps that one call of the script ran.
fn ran(output: &Output) -> Vec<String> {
    let text = String::from_utf8_lossy(&output.stdout);
    let rows = text.lines().filter_map(|line| line.split(' ').next());
    rows.filter(|name| EXPECTED.iter().any(|it| it.0 == *name)).map(str::to_owned).collect()
}

/// Builds the programs of the tests, and returns Cargo's messages about them.
fn messages() -> String {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let own = env::current_exe().unwrap();
    let profile = own.parent().and_then(Path::parent).and_then(Path::file_name).unwrap();
    let profile = profile.to_str().unwrap();
    let output = Command::new(env!("CARGO"))
        .args(["build", "--workspace", "--message-format=json-render-diagnostics"])
        .args(["--profile", if profile == "debug" { "dev" } else { profile }])
        .args(["--test", "gpu_hardware", "--bench", "operators", "--bench", "footprint"])
        .args(["--example", "simulated-decoder"])
        .current_dir(repository())
        .env("CARGO_TARGET_DIR", target)
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(output.status.success(), "the programs cannot be built");
    String::from_utf8(output.stdout).unwrap()
}

/// Links the programs of the tests into one folder. Returns the path of the decoder that the
/// simulated nvJPEG uses.
fn programs(folder: &Path) -> PathBuf {
    fs::create_dir(folder).unwrap();
    symlink(env!("CARGO_BIN_EXE_feedwater"), folder.join("feedwater")).unwrap();
    let mut decoder = None;
    for line in messages().lines() {
        let message: Value = serde_json::from_str(line).unwrap();
        let name = message["target"]["name"].as_str().unwrap_or_default();
        let wanted = ["gpu_hardware", "operators", "footprint"].contains(&name);
        if let Some(program) = message["executable"].as_str().filter(|_| wanted) {
            symlink(program, folder.join(name)).unwrap();
        } else if name == "simulated-decoder" {
            decoder = Some(message["filenames"][0].as_str().unwrap().into());
        }
    }
    decoder.expect("cargo names the decoder")
}

/// Packs the scripts with two versions of nvJPEG, with NVRTC, and with a wheel in two parts.
fn pack() -> Rehearsal {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let decoder = programs(&path("programs"));
    let simulated = simulated::environment();
    let libraries = simulated[0].1.parent().unwrap().to_owned();
    let library = |file: &str| libraries.join(file);
    let script = "
import pathlib, zipfile
with zipfile.ZipFile('dali-1-py3-none-any.whl', 'w') as wheel:
    wheel.write('dali.py', 'nvidia/dali/__init__.py')
    wheel.writestr('nvidia/dali/large', bytes(49 << 20))";
    let own = repository().join("crates/cli/tests/device/rehearsal");
    symlink(own.join("dali.py"), path("dali.py")).unwrap();
    let made =
        Command::new("python3").args(["-c", script]).current_dir(&directory).status().unwrap();
    assert!(made.success());
    let packed = Command::new("bash")
        .arg(repository().join("scripts/acceptance"))
        .arg("--pack")
        .args([path("packed"), path("dali-1-py3-none-any.whl")])
        .env("PACK_PROGRAMS", path("programs"))
        .output()
        .unwrap();
    assert!(packed.status.success(), "{packed:?}");
    for (folder, file) in
        [("packed/lib/12", "libnvjpeg.so.12"), ("packed/lib/13", "libnvjpeg.so.13")]
    {
        fs::create_dir_all(path(folder)).unwrap();
        fs::copy(library("libnvjpeg.so"), path(folder).join(file)).unwrap();
    }
    fs::copy(library("libnvrtc.so"), path("packed/lib/libnvrtc.so.13")).unwrap();
    fs::create_dir(path("driver")).unwrap();
    // The peers and the simulated NVML look up the driver under these names.
    for name in ["libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1"] {
        symlink(library(name.trim_end_matches(".1")), path("driver").join(name)).unwrap();
    }
    fs::create_dir(path("tools")).unwrap();
    for name in ["nvidia-smi", "compute-sanitizer"] {
        symlink(own.join(name), path("tools").join(name)).unwrap();
    }
    let of = |wanted: &str| simulated.iter().find(|it| it.0 == wanted).unwrap().1.clone();
    let environment = vec![
        ("FEEDWATER_LIBCUDA", of("FEEDWATER_LIBCUDA")),
        ("FEEDWATER_LIBNVJPEG", of("FEEDWATER_LIBNVJPEG")),
        ("FEEDWATER_LIBNVML", library("libnvidia-ml.so")),
        // Cache kernels in a folder of their own. Their file names depend on paths, so other tests
        // could not use them.
        ("FEEDWATER_CACHE", path("kernels")),
        ("SIM_NVJPEG_DECODER", decoder),
        ("SIM_NVML", format!("50,40,0,{},{},1000,2000", 1u64 << 30, 16u64 << 30).into()),
    ];
    Rehearsal { directory, environment }
}

/// Returns the files of a folder with their sizes.
fn files(folder: &Path) -> Vec<(PathBuf, u64)> {
    let list = Command::new("find").arg(folder).args(["-type", "f", "-printf", "%s %p\n"]).output();
    let list = String::from_utf8(list.unwrap().stdout).unwrap();
    let pair =
        |line: &str| line.split_once(' ').map(|(size, file)| (file.into(), size.parse().unwrap()));
    list.lines().filter_map(pair).collect()
}

fn bytes(folder: &Path) -> u64 {
    files(folder).iter().map(|(_, bytes)| bytes).sum()
}

#[test]
#[ignore = "takes minutes: .ci/full runs it"]
fn every_step_runs_to_its_end() {
    let rehearsal = pack();
    let path = |name: &str| rehearsal.path(name);
    // Each of the two parts of the wheel must fit into one upload.
    for part in ["packed/parts-0", "packed/parts-1"] {
        assert!((1..=UPLOAD_LIMIT).contains(&bytes(&path(part))), "{part}");
    }
    assert!(!path("packed/parts-2").exists());
    fs::rename(path("packed/parts-1"), path("later")).unwrap();

    // The machine is lost in the middle of a step.
    let cut = rehearsal.cut("first", &["results", "--steps", "libraries"], "receive", Signal::KILL);
    assert!(!cut.status.success());
    let report = path("results/report.txt");
    assert_eq!(result_of(&report, "receive").unwrap(), "partly");
    assert!(fs::read_to_string(&report).unwrap().contains("is incomplete, parts here: 1"));

    // The second call finds the other part of the wheel, and a renamed folder of results.
    // The step that was running when the first call was killed has ended by now.
    fs::rename(path("later"), path("packed/parts-1")).unwrap();
    fs::remove_dir_all(path("packed/parts-0")).unwrap();
    fs::rename(path("results"), path("moved")).unwrap();
    let second = rehearsal.call("first", &["moved", "--steps", "libraries"]).output().unwrap();
    let steps = ["cuvid", "receive", "decode", "nvjpeg-versions", "gpu_hardware", "memory"];
    assert_eq!(ran(&second), steps, "{second:?}");

    // The machine `second` has the results of the first machine, but no Python wheel. The wheel
    // arrives after the third call, when `lib` is moved to this machine.
    let third = rehearsal.cut("second", &["moved", "--steps", "rates"], "run", Signal::INT);
    assert_eq!(third.status.code(), Some(130), "{third:?}");
    fs::rename(path("first/lib"), path("second/lib")).unwrap();
    let fourth = rehearsal.call("second", &["moved", "--steps", "rates,peers"]).output().unwrap();
    assert_eq!(ran(&fourth), ["routes", "groups", "peers"], "{fourth:?}");
    let fifth = rehearsal.call("second", &["moved", "--steps", "kernels"]).output().unwrap();
    let steps = ["loaders", "kernels", "bench-ops", "operators", "memcheck", "racecheck"];
    assert_eq!(ran(&fifth), steps, "{fifth:?}");
    assert!(fifth.status.success(), "{fifth:?}");

    let report = fs::read_to_string(path("moved/report.txt")).unwrap();
    let results: Value =
        serde_json::from_str(&fs::read_to_string(path("moved/results.json")).unwrap()).unwrap();
    let steps = results["steps"].as_array().unwrap();
    assert_eq!(steps.len(), EXPECTED.len());
    for (step, (name, result, note)) in steps.iter().zip(EXPECTED) {
        println!("{name:16} {:8} {:>4} s  {}", step["result"], step["seconds"], step["note"]);
        assert_eq!(step["name"], name);
        assert_eq!(step["result"], result, "{step}\n{report}");
        assert!(step["note"].as_str().unwrap().contains(note), "{step}");
        assert!(report.contains(&format!("\n===== {name} =====\n")), "{name}");
    }
    let output = |name: &str| &steps.iter().find(|it| it["name"] == name).unwrap()["output"];
    assert_eq!(output("run")["images"], 32);
    assert_eq!(output("routes")["measured"], 5);
    assert_eq!(output("groups")["measured"], 6);
    assert_eq!(output("memory")["met"], true);
    let peers = &output("peers")[0];
    assert_eq!(peers["search"]["dali"].as_array().unwrap().len(), 3, "{peers:#}");
    assert!(peers["rounds"][0]["feedwater"]["images_per_second"].as_f64().unwrap() > 0.0);
    assert!(peers["rounds"][0]["dali"]["images_per_second"].as_f64().unwrap() > 0.0);
    for version in ["12", "13"] {
        assert!(report.contains(&format!("/lib/{version}/libnvjpeg.so.{version}\n")), "{report}");
    }
    let readings = fs::read_to_string(path("moved/gpu.csv")).unwrap();
    assert!(readings.lines().next().unwrap().ends_with(", utilization.jpeg"), "{readings}");
    assert!(readings.lines().filter(|line| line.starts_with("0, ")).count() > 5, "{readings}");

    // Check the number and the size of the results that are sent back.
    let back = files(&path("moved"));
    assert!(back.len() <= FILES_LIMIT && bytes(&path("moved")) <= UPLOAD_LIMIT, "{back:?}");
}
