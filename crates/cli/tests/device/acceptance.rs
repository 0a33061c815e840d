//! Tests `scripts/acceptance` on a simulated device.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use super::{repository, simulated};

/// Creates a folder as `scripts/acceptance --pack` does. It contains only the program `feedwater`.
fn packed() -> tempfile::TempDir {
    let packed = tempfile::tempdir().unwrap();
    fs::create_dir(packed.path().join("bin")).unwrap();
    symlink(env!("CARGO_BIN_EXE_feedwater"), packed.path().join("bin/feedwater")).unwrap();
    fs::copy(repository().join("scripts/acceptance"), packed.path().join("acceptance")).unwrap();
    fs::write(packed.path().join("commit"), "a \"commit\"\n").unwrap();
    packed
}

fn acceptance(packed: &Path, arguments: &[&str]) -> Output {
    Command::new("bash")
        .arg(packed.join("acceptance"))
        .args(arguments)
        .current_dir(packed)
        .envs(simulated::environment())
        .env("ACCEPTANCE_STORE", packed.join("store"))
        .env("ACCEPTANCE_IMAGES", "12")
        .output()
        .unwrap()
}

/// Returns the names of the steps that one call of the script ran, with their results.
fn ran(output: &Output) -> Vec<(String, String)> {
    let text = String::from_utf8_lossy(&output.stdout);
    // Leave out the last line, which contains totals.
    let rows: Vec<_> = text.lines().filter(|line| !line.starts_with('/')).collect();
    let words = rows.iter().map(|line| line.split_whitespace().take(2).map(str::to_owned));
    words.map(|mut it| (it.next().unwrap(), it.next().unwrap())).collect()
}

fn passed(names: &[&str]) -> Vec<(String, String)> {
    names.iter().map(|&name| (name.to_owned(), "pass".to_owned())).collect()
}

#[test]
fn a_call_goes_on_where_the_last_one_ended_on_another_machine_too() {
    let packed = packed();
    let dir = packed.path();
    let first = acceptance(dir, &["results", "--steps", "doctor,images"]);
    assert_eq!(ran(&first), passed(&["doctor", "images"]), "{first:?}");
    assert!(first.status.success());

    let second = acceptance(dir, &["results", "--steps", "doctor,images,run"]);
    assert_eq!(ran(&second), passed(&["run"]), "{second:?}");
    let results = fs::read_to_string(dir.join("results/results.json")).unwrap();
    let results: Value = serde_json::from_str(&results).unwrap();
    assert_eq!(results["commit"], "a \"commit\"");
    let steps = results["steps"].as_array().unwrap();
    let done: Vec<_> = steps.iter().filter(|it| it["result"] == "pass").collect();
    assert_eq!(done.iter().map(|it| &it["name"]).collect::<Vec<_>>(), ["doctor", "images", "run"]);
    assert_eq!(done[2]["output"]["images"], 24, "{results:#}");
    assert!(
        steps.iter().all(|it| it["result"] == "pass" || it["result"] == "not run"),
        "{results:#}"
    );
    let report = fs::read_to_string(dir.join("results/report.txt")).unwrap();
    assert!(report.contains("===== doctor ====="), "{report}");
    assert!(fs::read_dir(dir.join("results")).unwrap().count() <= 4);

    // A new machine has the results of the earlier machine, but not the images. They are created
    // again as soon as a step needs them.
    fs::remove_dir_all(dir.join("store")).unwrap();
    let third = acceptance(dir, &["results", "--steps", "doctor,run"]);
    assert_eq!(ran(&third), [], "{third:?}");
    let again = acceptance(dir, &["results", "--steps", "run", "--again"]);
    assert_eq!(ran(&again), passed(&["images", "run"]), "{again:?}");
    // If photographs are provided later, they replace the generated images.
    fs::rename(dir.join("store/data"), dir.join("data")).unwrap();
    let photographs = acceptance(dir, &["results", "--steps", "run", "--again"]);
    assert_eq!(ran(&photographs), passed(&["images", "run"]), "{photographs:?}");
}

#[test]
fn a_failing_step_fails_the_call_and_wrong_arguments_are_usage_errors() {
    let packed = packed();
    // The programs for the steps `gpu_hardware` and `memory` are missing.
    let call = acceptance(packed.path(), &["results", "--steps", "gpu_hardware,memory,doctor"]);
    assert_eq!(call.status.code(), Some(1), "{call:?}");
    let results: Vec<_> = ran(&call).into_iter().map(|(_, result)| result).collect();
    assert_eq!(results, ["pass", "FAIL", "FAIL"]);
    for wrong in [&["results", "--steps", "speed"][..], &["results", "--minutes", "0"], &[]] {
        let call = acceptance(packed.path(), wrong);
        assert_eq!(call.status.code(), Some(2), "{call:?}");
        assert!(!call.stderr.is_empty());
    }
}

/// The parts of a Python wheel may arrive in any order. The wheel is unpacked when all parts are
/// present.
#[test]
fn parts_of_a_wheel_are_joined() {
    if Command::new("python3").arg("--version").output().is_err() {
        eprintln!("skipped: there is no python3");
        return;
    }
    let packed = packed();
    let dir = packed.path();
    let script = "
set -e
mkdir wheel && echo 'VALUE = 5' > wheel/thing.py && (cd wheel && python3 -m zipfile -c ../thing.whl thing.py)
split -n 2 -d -a 2 thing.whl thing.whl.
mkdir parts-0 parts-1 && mv thing.whl.00 parts-0/ && mv thing.whl.01 parts-1/
sha256sum thing.whl | tee parts-0/thing.whl.sha256 > parts-1/thing.whl.sha256
mv parts-0 later";
    let made = Command::new("bash").args(["-c", script]).current_dir(dir).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let note = || {
        let call = acceptance(dir, &["results", "--steps", "receive"]);
        String::from_utf8(call.stdout).unwrap()
    };
    assert!(note().contains("thing.whl is incomplete, parts here: 1"));
    fs::rename(dir.join("later"), dir.join("parts-0")).unwrap();
    fs::rename(dir.join("parts-1"), dir.join("gone")).unwrap();
    assert!(note().contains("thing.whl: unpacked"));
    assert!(dir.join("store/lib/python3/site-packages/thing.py").exists());
}
