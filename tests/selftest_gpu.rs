//! The built program on a GPU, which is the simulated one: a driver, a run-time compiler and an nvJPEG that stand
//! for the API and the order of events, and an nvJPEG that gives a pattern instead of a picture.

mod simulated;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

/// Runs the program in `dir` on the simulated machine.
fn feedwater(dir: &Path, args: &[&str], environment: &[(&str, &Path)]) -> Output {
    let libraries = simulated::exclusive().directory().to_path_buf();
    Command::new(env!("CARGO_BIN_EXE_feedwater"))
        .args(args)
        .current_dir(dir)
        .env("FEEDWATER_LIBCUDA", libraries.join("libcuda.so"))
        .env("FEEDWATER_LIBNVRTC", libraries.join("libnvrtc.so"))
        .env("FEEDWATER_LIBNVJPEG", libraries.join("libnvjpeg.so"))
        .env("FEEDWATER_CACHE", libraries.join("kernels"))
        .envs(environment.iter().copied())
        .output()
        .unwrap()
}

/// The last line of standard output of a call that ends with `code`, as JSON.
fn json(output: &Output, code: i32) -> Value {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    let stdout = std::str::from_utf8(&output.stdout).unwrap();
    serde_json::from_str(stdout.lines().next_back().unwrap()).unwrap()
}

/// Name and result of every check, and what it says.
fn checks(result: &Value) -> Vec<(String, String, String)> {
    let all = result["checks"].as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    all.map(|it| (text(&it["name"]), text(&it["result"]), text(&it["detail"]))).collect()
}

#[test]
fn kernels_pass_bit_for_bit_and_a_pattern_is_no_picture() {
    let dir = tempfile::tempdir().unwrap();
    let output = feedwater(dir.path(), &["selftest", "--require-gpu", "--json"], &[]);
    let result = json(&output, 1);
    let checks = checks(&result);
    let mut expected: Vec<String> =
        feedwater::op::NAMES.iter().map(|name| format!("gpu/operator/{name}")).collect();
    expected.extend(
        ["device", "compiler", "chain/training", "chain/evaluation", "chain/composed-1", "ring"]
            .map(|name| format!("gpu/{name}")),
    );
    expected.push("gpu/footprint".into());
    for name in &expected {
        let check = checks.iter().find(|check| check.0 == *name);
        let (_, result, detail) = check.unwrap_or_else(|| panic!("{name} is not there"));
        assert_eq!(result, "pass", "{name}: {detail}");
    }
    // Everything but decoding is well, and decoding is seen not to be.
    for (name, result, detail) in checks {
        let decode = name.starts_with("gpu/decode/");
        assert_eq!(result == "fail", decode, "{name}: {detail}");
        assert!(!decode || detail.contains("levels"), "{name}: {detail}");
    }
    assert_eq!(result["failed"], 4);
}
