//! Tests of messages about remote files.

use std::fs;
use std::process::Command;

use crate::servers::{Fault, Server};

/// Whether a line contains these two numbers, one directly after the other, after the URL. An
/// example is the number of the attempt, followed by the number of all attempts.
fn has_pair(line: &str, first: &str, second: &str) -> bool {
    let after = line.rsplit("list.txt").next().unwrap();
    let numbers = after.split(|it: char| !it.is_ascii_digit()).filter(|it| !it.is_empty());
    let numbers: Vec<&str> = numbers.collect();
    numbers.windows(2).any(|it| it == [first, second])
}

#[test]
fn the_command_line_reports_attempts_while_it_waits() {
    let server = Server::start();
    server.fail("/silent/list.txt", [Fault::Hang; 3]);
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("pipeline.toml");
    let url = server.url("/silent/list.txt").replace("http://", "http://user:secret@");
    let toml = format!(
        "[source]\nlist = \"{url}\"\n[storage]\nretries = 2\ntimeout = 1\n[[chain]]\nop = \"normalize\"\nmean = [0.5, 0.5, 0.5]\nstd = [0.5, 0.5, 0.5]\n"
    );
    fs::write(&file, toml).unwrap();
    let ran = Command::new(env!("CARGO_BIN_EXE_feedwater"))
        .args(["plan", "--device", "cpu"])
        .arg(&file)
        .output()
        .unwrap();
    let told = String::from_utf8(ran.stderr).unwrap();
    let lines: Vec<&str> = told.lines().collect();
    assert!(!ran.status.success() && lines.len() >= 2, "{told}");
    assert!(lines[0].contains("/silent/list.txt") && has_pair(lines[0], "1", "3"), "{told}");
    let last = lines.last().unwrap();
    assert!(last.starts_with("feedwater: ") && has_pair(last, "3", "3"), "{told}");
    assert!(!told.contains("secret"), "{told}");
    let shown = Command::new(env!("CARGO_BIN_EXE_feedwater"))
        .args(["plan", "--settings"])
        .arg(&file)
        .output()
        .unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("/silent/list.txt") && !shown.contains("secret"), "{shown}");
}
