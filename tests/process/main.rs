//! Behaviour that concerns a whole process: `fork`, file descriptors, libraries of profilers, and
//! subscribers of `tracing`. Each test runs in its own process.

mod fork;
mod nvtx;
mod open_files;
mod tracing;

use feedwater_tests::common;

use std::env;
use std::process::Command;

/// Runs the named test again in a new process, after a shell command. Returns true in the new
/// process, and false in this one when the test has passed there.
fn in_own_process(test: &str, command: &str) -> bool {
    const MARK: &str = "FEEDWATER_TEST_PROCESS";
    if env::var_os(MARK).is_some() {
        return true;
    }
    let begin = if command.is_empty() { ":" } else { command };
    let output = Command::new("sh")
        .args(["-c", &format!("{begin} && exec \"$0\" \"$@\"")])
        .arg(env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(MARK, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let problem = String::from_utf8_lossy(&output.stderr);
    // Also checks that one test has passed, because the program would succeed without any test too.
    let passed = output.status.success() && text.contains(" 1 passed");
    assert!(passed, "{test} after `{command}`: {text}{problem}");
    false
}
