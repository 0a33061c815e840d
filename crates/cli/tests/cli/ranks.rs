//! Tests of the program as several launchers start it: in several processes, with the environment
//! variables of the launcher. All processes together must read every sample once, and have equal
//! numbers of batches. `tests/launchers/run.sh` tests the same with the real launchers.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::words::{has_words, row};
use feedwater::internals::plan::Shard;
use feedwater_tools::synth;
use serde_json::Value;
use tempfile::TempDir;

const SAMPLES: u64 = 23;
const BATCH: u64 = 3;

/// All environment variables of launchers that the program reads. Tests remove them before they set
/// their own.
const VARIABLES: [&str; 13] = [
    "RANK",
    "WORLD_SIZE",
    "TORCHELASTIC_RUN_ID",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "PMI_RANK",
    "PMI_SIZE",
    "SLURM_PROCID",
    "SLURM_NTASKS",
    "SLURM_STEP_NUM_TASKS",
    "SLURM_STEP_ID",
    "SLURM_PTY_PORT",
    "JOB_COMPLETION_INDEX",
];

/// Creates images, and one pipeline file for each value of `last_batch`. `more` contains additional
/// lines for `[loader]`.
fn workplace(more: &str) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let settings = synth::Settings { classes: 1, ..synth::Settings::uniform(SAMPLES, 40, 30) };
    synth::write(&dir.path().join("data"), &settings, |_| ()).unwrap();
    for last in ["drop", "pad", "partial"] {
        let text = format!(
            "[source]\ndirectory = \"data\"\n[loader]\nbatch_size = {BATCH}\nnum_workers = 1\nshuffle = true\n\
             last_batch = \"{last}\"\n{more}\n[[chain]]\nop = \"center_crop\"\nwidth = 8\nheight = 8\n"
        );
        fs::write(dir.path().join(format!("{last}.toml")), text).unwrap();
    }
    dir
}

fn command(dir: &Path, args: &[&str], variables: &[(&str, String)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_feedwater"));
    for name in VARIABLES {
        command.env_remove(name);
    }
    let variables = variables.iter().map(|(name, value)| (*name, value.as_str()));
    command.args(args).current_dir(dir).envs(variables).env("FEEDWATER_CACHE", dir.join("cache"));
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Returns the JSON result of a process, and its samples as pairs of the index and whether the
/// sample is padding.
fn result(dir: &Path, rank: u64, output: &Output) -> (Value, Vec<(u64, bool)>) {
    assert!(output.status.success(), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    let said = serde_json::from_str(said.lines().next_back().unwrap()).unwrap();
    let samples = fs::read(dir.join(format!("out{rank}/samples.json"))).unwrap();
    let samples: Vec<Value> = serde_json::from_slice(&samples).unwrap();
    let of = |it: &Value| (it["index"].as_u64().unwrap(), it["padding"] == Value::Bool(true));
    (said, samples.iter().map(of).collect())
}

/// Runs all processes at once, and checks which samples they read.
fn check(launcher: &str, world: u64, variables: impl Fn(u64) -> Vec<(&'static str, String)>) {
    let dir = workplace("");
    let dir = dir.path();
    for last in ["drop", "pad", "partial"] {
        let file = format!("{last}.toml");
        let start = |rank| {
            let out = format!("out{rank}");
            let args =
                ["dump", &file, "--device", "cpu", "--out", &out, "--batches", "99", "--json"];
            let mut command = command(dir, &args, &variables(rank));
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        };
        let processes: Vec<_> = (0..world).map(start).collect();
        let mut seen = Vec::new();
        let mut batches = Vec::new();
        for (rank, process) in (0..).zip(processes) {
            let (said, samples) = result(dir, rank, &process.wait_with_output().unwrap());
            let shard = serde_json::json!({ "rank": rank, "world": world, "from": launcher });
            assert_eq!(said["shard"], shard);
            batches.push(said["batches"].as_u64().unwrap());
            let own = samples.iter().filter(|it| !it.1).count() as u64;
            if last != "drop" {
                assert_eq!(own, (SAMPLES - rank).div_ceil(world), "{last}, rank {rank}");
            }
            seen.extend(samples.into_iter().filter(|it| !it.1).map(|it| it.0));
        }
        seen.sort_unstable();
        match last {
            "drop" => {
                assert_eq!(seen.len() as u64, SAMPLES / (BATCH * world) * BATCH * world);
                assert!(seen.windows(2).all(|pair| pair[0] != pair[1]), "{seen:?}");
            }
            _ => assert!(seen.iter().copied().eq(0..SAMPLES), "{last}: {seen:?}"),
        }
        if last != "partial" {
            assert!(batches.iter().all(|&it| it == batches[0]), "{last}: {batches:?}");
        }
    }
}

#[test]
fn under_torchrun() {
    for world in [1, 3] {
        check("torchrun", world, |rank| {
            vec![
                ("TORCHELASTIC_RUN_ID", "none".into()),
                ("RANK", rank.to_string()),
                ("WORLD_SIZE", world.to_string()),
                // Slurm starts only one task. This task is the agent of the launcher, which then
                // starts the ranks.
                ("SLURM_STEP_ID", "0".into()),
                ("SLURM_PROCID", "0".into()),
                ("SLURM_STEP_NUM_TASKS", "1".into()),
            ]
        });
    }
}

#[test]
fn under_slurm() {
    for world in [2, 4] {
        check("slurm", world, |rank| {
            vec![
                ("SLURM_STEP_ID", "0".into()),
                ("SLURM_PROCID", rank.to_string()),
                ("SLURM_STEP_NUM_TASKS", world.to_string()),
                ("SLURM_NTASKS", world.to_string()),
            ]
        });
    }
}

#[test]
fn under_mpi() {
    check("openmpi", 2, |rank| {
        vec![("OMPI_COMM_WORLD_RANK", rank.to_string()), ("OMPI_COMM_WORLD_SIZE", "2".into())]
    });
    check("mpich", 3, |rank| vec![("PMI_RANK", rank.to_string()), ("PMI_SIZE", "3".into())]);
}

#[test]
fn in_a_kubernetes_indexed_job() {
    check("kubernetes", 3, |rank| {
        vec![("JOB_COMPLETION_INDEX", rank.to_string()), ("WORLD_SIZE", "3".into())]
    });
}

#[test]
fn the_shard_is_printed_and_a_wrong_one_is_an_error() {
    let dir = workplace("");
    let run = |args: &[&str], variables: &[(&str, &str)]| {
        let variables: Vec<_> = variables.iter().map(|it| (it.0, it.1.to_string())).collect();
        command(dir.path(), args, &variables).output().unwrap()
    };
    let ranked = [("RANK", "1"), ("WORLD_SIZE", "2")];
    let second = Shard { rank: 1, world: 2, from: "torchrun" };
    for args in [["run", "drop.toml", "--device", "cpu"], ["plan", "drop.toml", "--device", "cpu"]]
    {
        for (variables, shard) in [(&ranked[..], second), (&[], Shard::WHOLE)] {
            let said = text(&run(&args, variables).stdout);
            assert_eq!(row(&said, "shard ").trim_start(), shard.to_string(), "{said}");
            let said = text(&run(&[&args[..], &["--json"]].concat(), variables).stdout);
            let said: Value = serde_json::from_str(&said).unwrap();
            assert_eq!(said["shard"], serde_json::to_value(shard).unwrap());
        }
        let refused = run(&args, &ranked[..1]);
        assert_eq!(refused.status.code(), Some(2));
        let words = text(&refused.stderr);
        let problem = words.split_once(": loader.shard: ").unwrap_or_else(|| panic!("{words}")).1;
        assert!(has_words(problem, &["RANK", "1", "WORLD_SIZE"]), "{words}");
    }
    let none = workplace("shard = \"none\"");
    let args = ["run", "partial.toml", "--device", "cpu", "--json"];
    let ranked = [("RANK", "1".to_string()), ("WORLD_SIZE", "2".to_string())];
    let said = text(&command(none.path(), &args, &ranked).output().unwrap().stdout);
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(said["images"], SAMPLES);
    assert_eq!(said["shard"]["from"], "none");
    assert_eq!(said["order"]["kind"], "whole");
}

#[test]
fn the_quality_of_windows_is_printed() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["train-000000.tar", "train-000001.tar"] {
        let golden = crate::repository().join("tests/golden/records");
        fs::copy(golden.join(name), dir.path().join(name)).unwrap();
    }
    let text_of = "[source]\nwebdataset = \".\"\n[loader]\nbatch_size = 2\nshuffle = true\nshuffle_window = 2\n\
         [[chain]]\nop = \"resize\"\nwidth = 8\nheight = 8\n";
    fs::write(dir.path().join("p.toml"), text_of).unwrap();
    for name in ["run", "plan"] {
        let output =
            command(dir.path(), &[name, "p.toml", "--device", "cpu"], &[]).output().unwrap();
        let (shown, words) = (text(&output.stdout), text(&output.stderr));
        let args = [name, "p.toml", "--device", "cpu", "--json"];
        let said = text(&command(dir.path(), &args, &[]).output().unwrap().stdout);
        let said: Value = serde_json::from_str(&said).unwrap();
        let order = &said["order"];
        assert_eq!((&order["files"], &order["window"]), (&2.into(), &2.into()), "{said}");
        let [bits, ideal] = ["bits", "ideal_bits"].map(|it| order[it].as_f64().unwrap());
        assert!(bits < ideal, "{said}");
        let values = ["2".into(), format!("{bits:.1}"), format!("{ideal:.1}")];
        let values = values.each_ref().map(String::as_str);
        assert!(has_words(row(&shown, "order "), &values), "{shown}{words}");
    }
}

/// A program that inherits a launcher's variables by mistake reads only one shard of the set. So it
/// prints a warning, unless the settings name the shard.
#[test]
fn a_shard_that_only_the_environment_names_is_a_warning() {
    let torchrun = [("RANK", "1".to_string()), ("WORLD_SIZE", "2".to_string())];
    let slurm = [("SLURM_PROCID", "1"), ("SLURM_STEP_NUM_TASKS", "2"), ("SLURM_STEP_ID", "0")];
    let slurm = slurm.map(|(name, value)| (name, value.to_string()));
    let warnings = |more: &str, variables: &[(&str, String)]| {
        let dir = workplace(more);
        let mut run = command(dir.path(), &["run", "drop.toml", "--epochs", "1"], variables);
        let output = run.output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        let lines = text(&output.stderr);
        let lines =
            lines.lines().filter(|line| line.starts_with("warning") && line.contains("part"));
        lines.map(ToString::to_string).collect::<Vec<_>>()
    };
    for (launcher, variables) in [("torchrun", &torchrun[..]), ("slurm", &slurm[..])] {
        let told = warnings("", variables);
        let [warning] = &told[..] else { panic!("{launcher}: {told:?}") };
        for expected in ["rank 1 of 2", "shard = \"none\"", &format!("shard = \"{launcher}\"")] {
            assert!(warning.contains(expected), "{warning}");
        }
        for decided in
            ["shard = \"none\"", &format!("shard = \"{launcher}\""), "rank = 0\nworld_size = 2"]
        {
            assert!(warnings(decided, variables).is_empty(), "{launcher}: {decided}");
        }
    }
    assert!(warnings("", &[]).is_empty());
}
