//! Tests of systems on which few or no threads can be started. Every command must either work with
//! fewer threads, or fail with an error that names the missing thread.
//!
//! The tests limit the address space and give each thread a large stack. Then the call that starts
//! a thread fails with EAGAIN, as with `pids.max` and `ulimit -u`. Those limits cannot be used
//! here, because they do not apply to administrators.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use feedwater_tools::synth;
use serde_json::Value;
use tempfile::TempDir;

const GIBIBYTE: u64 = 1 << 30;

/// Runs a command in a process that can start about `threads` threads.
fn feedwater(dir: &Path, threads: u64, args: &str) -> Output {
    let mut command = match threads {
        // With 0 threads, `RUST_MIN_STACK` is larger than any address space, so no thread can be
        // started.
        0 => Command::new(env!("CARGO_BIN_EXE_feedwater")),
        _ => {
            let mut shell = Command::new("sh");
            let kibibytes = (threads * GIBIBYTE + GIBIBYTE / 2) >> 10;
            shell.args(["-c", &format!("ulimit -v {kibibytes} && exec \"$0\" \"$@\"")]);
            shell.arg(env!("CARGO_BIN_EXE_feedwater"));
            shell
        }
    };
    let stack = if threads == 0 { 1 << 48 } else { GIBIBYTE };
    command.env("RUST_MIN_STACK", stack.to_string()).env("FEEDWATER_CACHE", dir.join("cache"));
    command.args(args.split(' ')).current_dir(dir).output().unwrap()
}

/// Checks that a command succeeded, or that its error message names a thread or memory. Returns
/// whether it succeeded.
fn is_done(args: &str, threads: u64, output: &Output) -> bool {
    let stderr = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = stderr.lines().filter(|line| !line.starts_with("warning: ")).collect();
    match output.status.code() {
        Some(0) => assert!(lines.is_empty(), "{args} with {threads}: {stderr}"),
        _ => {
            let [line] = lines[..] else { panic!("{args} with {threads}: {stderr}") };
            assert_eq!(output.status.code(), Some(1), "{args} with {threads}: {stderr}");
            // The error may be about memory, because the limit of the address space limits memory
            // too.
            let what = ["thread", "memory"].iter().any(|it| line.contains(it));
            let named = line.starts_with("feedwater: ") && what;
            assert!(named, "{args} with {threads}: {stderr}");
        }
    }
    output.status.success()
}

fn contents(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    // Leave out hidden files, whose names contain times and process IDs.
    let is_hidden = |it: &PathBuf| it.file_name().unwrap().to_string_lossy().starts_with('.');
    let entries = fs::read_dir(dir).unwrap().map(|it| it.unwrap().path());
    let named = entries
        .filter(|it| !is_hidden(it))
        .map(|it| (it.file_name().unwrap().to_string_lossy().into_owned(), fs::read(&it).unwrap()));
    named.collect()
}

#[test]
fn commands_use_fewer_threads_or_name_the_one_that_is_missing() {
    let dir = TempDir::new().unwrap();
    let dir = dir.path();
    let settings = synth::Settings { classes: 2, ..synth::Settings::uniform(20, 64, 48) };
    synth::write(&dir.join("data"), &settings, |_| ()).unwrap();
    let pipeline = "[source]\ndirectory = \"data\"\n[loader]\nbatch_size = 4\nnum_workers = 2\n[[chain]]\nop = \"center_crop\"\n\
                    width = 32\nheight = 32\n";
    fs::write(dir.join("p.toml"), pipeline).unwrap();
    let run = |threads: u64, args: &str| {
        let output = feedwater(dir, threads, args);
        is_done(args, threads, &output).then_some(output.stdout)
    };
    let mut packed = None;
    for threads in 0..5 {
        let probed = run(threads, "probe data --json --workers 4").expect("needs no threads");
        let probed: Value = serde_json::from_slice(&probed).unwrap();
        assert_eq!(
            (&probed["report"]["seen"], &probed["report"]["formats"]["JPEG"]),
            (&20.into(), &20.into())
        );
        run(threads, "plan p.toml --device cpu").expect("needs no threads");
        let out = format!("shards-{threads}");
        run(threads, &format!("pack data {out} --workers 4")).expect("needs no threads");
        let shards = contents(&dir.join(out));
        assert!(shards == *packed.get_or_insert_with(|| shards.clone()), "with {threads} threads");
        run(threads, &format!("synth images-{threads} --images 3")).expect("needs no threads");
        let ran = run(threads, "run p.toml --device cpu");
        assert!(threads > 0 || ran.is_none(), "a loader must not work without threads");
        run(threads, "explain p.toml --device cpu --seconds 0.1 --probe");
        run(threads, "demo --images 5 --device cpu");
    }
}
