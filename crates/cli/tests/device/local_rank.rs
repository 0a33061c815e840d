//! Tests that each process uses the GPU of its local rank, on a simulated machine with several
//! GPUs.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use feedwater_tools::synth;
use serde_json::Value;
use tempfile::TempDir;

use crate::simulated;

/// Runs the program on a machine with `gpus` GPUs and these environment variables.
fn feedwater(dir: &Path, gpus: u32, variables: &[(&str, &str)], args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_feedwater"));
    command.args(args).current_dir(dir);
    command.envs(simulated::environment());
    command.env("SIM_DEVICES", gpus.to_string()).env("SIM_COUNTS", dir.join("counts.json"));
    command.envs(variables.iter().copied()).output().unwrap()
}

/// Returns the last line of standard output as JSON.
fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let stdout = std::str::from_utf8(&output.stdout).unwrap();
    serde_json::from_str(stdout.lines().next_back().unwrap()).unwrap()
}

/// Creates images, and a pipeline file whose first line is `device`.
fn workplace(device: &str) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let settings = synth::Settings::uniform(8, 80, 60);
    synth::write(&dir.path().join("data"), &settings, |_| ()).unwrap();
    let text = format!(
        "{device}\n[source]\ndirectory = \"data\"\n[loader]\nbatch_size = 4\nshard = \"none\"\n\
         [[chain]]\nop = \"random_resized_crop\"\nwidth = 32\nheight = 24\n[[chain]]\nop = \"normalize\"\n\
         mean = [0.485, 0.456, 0.406]\nstd = [0.229, 0.224, 0.225]\n"
    );
    fs::write(dir.path().join("pipeline.toml"), text).unwrap();
    dir
}

const SLURM: [(&str, &str); 3] =
    [("SLURM_STEP_ID", "0"), ("SLURM_PROCID", "11"), ("SLURM_LOCALID", "3")];

#[test]
fn each_local_rank_has_a_gpu_of_its_own() {
    let dir = workplace("");
    for (gpus, variables, gpu, why) in [
        (4, &[][..], 0, "no launcher sets a local rank"),
        (4, &[("LOCAL_RANK", "2")], 2, "LOCAL_RANK is 2"),
        (4, &SLURM, 3, "SLURM_LOCALID is 3"),
        (1, &[("LOCAL_RANK", "3")], 0, "the only visible GPU"),
    ] {
        for device in [&[][..], &["--device", "cuda"], &["--device", "gpu"]] {
            let args = [&["plan", "pipeline.toml", "--json"], device].concat();
            let plan = json(&feedwater(dir.path(), gpus, variables, &args));
            assert_eq!(
                (&plan["runs_on"]["gpu"], &plan["runs_on"]["why"]),
                (&gpu.into(), &why.into())
            );
        }
        let run = feedwater(dir.path(), gpus, variables, &["run", "pipeline.toml", "--json"]);
        let run = json(&run);
        assert_eq!((&run["runs_on"]["gpu"], &run["runs_on"]["why"]), (&gpu.into(), &why.into()));
        assert!(run["device_reason"].as_str().unwrap().starts_with(&format!("gpu {gpu}: ")));
        let counts = fs::read_to_string(dir.path().join("counts.json")).unwrap();
        let counts: Value = serde_json::from_str(&counts).unwrap();
        for device in 0..gpus {
            let launches = counts["launches_by_device"][device as usize].as_u64().unwrap();
            assert_eq!(launches > 0, device == gpu, "gpu {device}: {counts}");
        }
        assert_eq!((&counts["live"], &counts["faults"]), (&0.into(), &0.into()), "{counts}");
    }
}

#[test]
fn the_file_names_a_device_and_the_command_line_another() {
    let dir = workplace("device = \"cuda:1\"");
    let rank = [("LOCAL_RANK", "3")];
    let gpu = |args: &[&str]| {
        let args = [&["plan", "pipeline.toml", "--json"], args].concat();
        json(&feedwater(dir.path(), 4, &rank, &args))["runs_on"]["gpu"].clone()
    };
    assert_eq!(gpu(&[]), 1);
    assert_eq!(gpu(&["--device", "cuda:2"]), 2);
    assert_eq!(gpu(&["--device", "cuda"]), 3);
    assert_eq!(gpu(&["--device", "cpu"]), Value::Null);
    let text = feedwater(dir.path(), 4, &rank, &["plan", "pipeline.toml"]).stdout;
    let text = String::from_utf8(text).unwrap();
    assert!(text.lines().any(|line| line == "device  gpu 1 (device is cuda:1)"), "{text}");
    let all = feedwater(dir.path(), 4, &rank, &["plan", "pipeline.toml", "--settings"]).stdout;
    assert!(String::from_utf8(all).unwrap().starts_with("device = \"cuda:1\"\n"));
}

#[test]
fn a_local_rank_without_a_gpu_is_an_error_and_never_shares_one() {
    let dir = workplace("");
    for device in ["auto", "cuda"] {
        for command in ["plan", "run"] {
            let args = [command, "pipeline.toml", "--device", device];
            let output = feedwater(dir.path(), 2, &[("LOCAL_RANK", "2")], &args);
            let stderr = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(2), "{stderr}");
            assert!(stderr.contains("LOCAL_RANK") && stderr.contains("2 GPUs"), "{stderr}");
        }
    }
    let output = feedwater(dir.path(), 2, &[], &["run", "pipeline.toml", "--device", "cuda:2"]);
    assert_eq!(output.status.code(), Some(1));
    let output = feedwater(dir.path(), 2, &[], &["run", "pipeline.toml", "--device", "tpu"]);
    assert_eq!(output.status.code(), Some(2));
}
