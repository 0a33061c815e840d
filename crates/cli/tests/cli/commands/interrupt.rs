//! Tests of signals: the progress is reported, each output file is complete or absent, and started
//! processes end.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::*;

/// Timeout of a test. Tests that do not hang take far less time.
const FOR_EVER: Duration = Duration::from_secs(300);

/// Returns a command that signals can end. A shell starts its background jobs with SIGINT ignored,
/// and `env` restores the default.
fn signalled(program: &str) -> Command {
    let mut command = Command::new("env");
    command.args(["--default-signal=INT,TERM,HUP", program]);
    command
}

fn start(dir: &Path, args: &[&str]) -> Child {
    let mut command = signalled(env!("CARGO_BIN_EXE_feedwater"));
    command.args(args).current_dir(dir).env("FEEDWATER_CACHE", dir.join("cache"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn send(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < FOR_EVER, "{what}");
        sleep(Duration::from_millis(5));
    }
}

/// Waits until a command that received a signal has ended. Returns its exit code, standard output
/// and standard error.
fn ended(mut child: Child) -> (Option<i32>, String, String) {
    let begin = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begin.elapsed() > FOR_EVER {
            child.kill().unwrap();
            panic!("the command does not exit");
        }
        sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output().unwrap();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// Whether a process exists and is not a zombie.
fn lives(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with(['Z', 'X']))
}

/// Starts a run with endless epochs. Waits until its loader has begun, which is when it prints the
/// warning that no profiler is attached.
fn endless_run(dir: &Path, more: &[&str]) -> Child {
    let args = ["run", "pipeline.toml", "--epochs", "4000000000", "--nvtx"];
    let mut child = start(dir, &[&args[..], more].concat());
    let mut line = String::new();
    let mut stderr = BufReader::with_capacity(1, child.stderr.take().unwrap());
    stderr.read_line(&mut line).unwrap();
    assert!(line.contains("NVTX"), "{line}");
    child.stderr = Some(stderr.into_inner());
    child
}

#[test]
fn an_interrupted_run_reports_its_progress_and_writes_its_files() {
    let dir = workplace();
    for (signal, name, code) in [(Signal::INT, "SIGINT", 130), (Signal::TERM, "SIGTERM", 143)] {
        let files = ["--trace", "trace.json", "--profile", "profile.json", "--json"];
        let child = endless_run(dir.path(), &files);
        send(&child, signal);
        let (status, stdout, stderr) = ended(child);
        assert_eq!(status, Some(code), "{stderr}");
        let report: Value = serde_json::from_str(stdout.trim()).unwrap();
        assert_eq!(report["interrupted"], name);
        assert!(report["images"].is_u64());
        // The message contains the name of the signal, and the number of batches of the complete
        // run.
        assert!(has_words(&stderr, &[name, "8000000000"]), "{stderr}");
        for file in ["trace.json", "profile.json"] {
            let text = fs::read(dir.path().join(file)).unwrap();
            assert!(serde_json::from_slice::<Value>(&text).is_ok(), "{file}");
            fs::remove_file(dir.path().join(file)).unwrap();
        }
    }
    let report = json(dir.path(), &["run", "pipeline.toml", "--json"]);
    assert_eq!(report["interrupted"], Value::Null);
}

#[test]
fn a_signal_that_was_ignored_stays_ignored() {
    let dir = workplace();
    let mut command = signalled("sh");
    let script = "trap '' HUP; exec \"$0\" run pipeline.toml --epochs 4000000000 --nvtx";
    command.args(["-c", script, env!("CARGO_BIN_EXE_feedwater")]).current_dir(dir.path());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut byte = [0];
    child.stderr.as_mut().unwrap().read_exact(&mut byte).unwrap();
    send(&child, Signal::HUP);
    send(&child, Signal::INT);
    let (status, stdout, stderr) = ended(child);
    assert_eq!(status, Some(130), "{stderr}");
    assert!(stdout.contains("SIGINT"), "{stdout}");
}

#[test]
fn files_being_written_at_a_signal_are_complete_or_absent() {
    let dir = tempfile::tempdir().unwrap();
    let child = start(dir.path(), &["synth", "set", "--images", "1000000", "--classes", "1"]);
    let folder = dir.path().join("set/class000");
    let files = || fs::read_dir(&folder).map_or(0, |entries| entries.count());
    wait_until("images are made", || files() > 2);
    send(&child, Signal::TERM);
    let (status, _, stderr) = ended(child);
    assert_eq!(status, Some(143));
    assert!(has_words(&stderr, &["SIGTERM", "1000000"]), "{stderr}");
    for entry in fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(path.extension().unwrap(), "jpg", "{path:?}");
        assert!(fs::read(&path).unwrap().ends_with(&[0xff, 0xd9]), "{path:?} is half a file");
    }
}

/// Shell commands that start another process, and write the IDs of both processes to files.
const STARTS_ANOTHER: &str =
    "sleep 1000 & echo $! > grandchild.new; echo $$ > child; mv grandchild.new grandchild";

#[test]
fn a_consumer_that_reads_nothing_does_not_block_explain_and_leaves_no_process() {
    let dir = workplace();
    let consumer = format!("{STARTS_ANOTHER}; sleep 1000");
    let args = ["explain", "pipeline.toml", "--seconds", "0.2", "--consumer-cmd", &consumer];
    let words = refused(dir.path(), &args, 1);
    // The message must be the one about a slow command. Messages of other errors do not contain
    // these words.
    assert!(has_words(&words, &["--consumer-cmd", "--seconds", "0.2"]), "{words}");
    for process in ["child", "grandchild"] {
        let pid = fs::read_to_string(dir.path().join(process)).unwrap();
        wait_until("every process of the group is gone", || !lives(&pid));
    }
}

#[test]
fn a_consumer_that_never_ends_is_ended_after_the_measurement() {
    let dir = workplace();
    // This consumer reads everything, ignores SIGTERM, and continues after the end of its input.
    let consumer = format!("trap '' TERM; {STARTS_ANOTHER}; cat > /dev/null; sleep 1000");
    let args = ["explain", "pipeline.toml", "--seconds", "0.2", "--consumer-cmd", &consumer];
    done(dir.path(), &args);
    for process in ["child", "grandchild"] {
        let pid = fs::read_to_string(dir.path().join(process)).unwrap();
        wait_until("every process of the group is gone", || !lives(&pid));
    }
}

#[test]
fn an_interrupted_explain_ends_its_consumer() {
    let dir = workplace();
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let consumer = format!("{STARTS_ANOTHER}; exec cat > /dev/null");
        let args = ["explain", "pipeline.toml", "--seconds", "100000", "--consumer-cmd", &consumer];
        let child = start(dir.path(), &args);
        let grandchild = dir.path().join("grandchild");
        wait_until("the consumer runs", || grandchild.exists());
        send(&child, signal);
        let (status, _, stderr) = ended(child);
        assert_eq!(status, Some(code), "{stderr}");
        for process in ["child", "grandchild"] {
            let pid = fs::read_to_string(dir.path().join(process)).unwrap();
            wait_until("every process of the group is gone", || !lives(&pid));
        }
        fs::remove_file(grandchild).unwrap();
    }
}

/// The server never answers. So there is no progress to report yet, and no loader that could be
/// stopped.
#[test]
fn a_command_that_waits_for_a_server_ends_with_the_signal() {
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/a.tar", server.local_addr().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let text = format!("[source]\nwebdataset = \"{url}\"\n[storage]\nretries = 100\n{TRAINING}");
    write(&dir, "pipeline.toml", &text);
    for (signal, name, code) in [(Signal::INT, "SIGINT", 130), (Signal::TERM, "SIGTERM", 143)] {
        let child = start(dir.path(), &["plan", "pipeline.toml"]);
        let _connection = server.accept().unwrap();
        send(&child, signal);
        let (status, stdout, stderr) = ended(child);
        assert_eq!((status, stdout.as_str()), (Some(code), ""));
        assert!(has_words(&stderr, &[name]), "{stderr}");
    }
}

/// Starts a server with an archive and a row index of 3 GiB. The server sends only the beginning of
/// the row index. Returns the address of the server, and whether the row index was requested.
fn server_with_an_endless_row_index(archive: Vec<u8>) -> (SocketAddr, Arc<AtomicBool>) {
    const ENDLESS: u64 = 3 << 30;
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, archive) = (server.local_addr().unwrap(), Arc::new(archive));
    let read = Arc::new(AtomicBool::new(false));
    let is_read = read.clone();
    thread::spawn(move || {
        for connection in server.incoming() {
            let (archive, read, mut to) = (archive.clone(), read.clone(), connection.unwrap());
            thread::spawn(move || {
                let mut from = BufReader::new(to.try_clone().unwrap());
                loop {
                    let lines = (&mut from).lines().map_while(Result::ok);
                    let head: Vec<String> = lines.take_while(|it| !it.is_empty()).collect();
                    let Some(request) = head.first() else { return };
                    let is_index = request.contains(".rows ");
                    let len = if is_index { ENDLESS } else { archive.len() as u64 };
                    let range = head.iter().find_map(|line| {
                        let line = line.to_ascii_lowercase();
                        let (first, last) = line.strip_prefix("range: bytes=")?.split_once('-')?;
                        let first: u64 = first.parse().ok()?;
                        Some((first, last.parse().unwrap_or(len - 1).min(len - 1)))
                    });
                    let (first, last) = range.unwrap_or((0, len - 1));
                    let status = if range.is_some() { "206 Partial Content" } else { "200 OK" };
                    let count = last + 1 - first;
                    let reply = format!(
                        "HTTP/1.1 {status}\r\nAccept-Ranges: bytes\r\nETag: \"1\"\r\nContent-Length: {count}\r\n\
                         Content-Range: bytes {first}-{last}/{len}\r\n\r\n"
                    );
                    to.write_all(reply.as_bytes()).unwrap();
                    match (request.starts_with("HEAD"), is_index) {
                        (true, _) => {}
                        (false, false) => {
                            let _ = to.write_all(&archive[first as usize..last as usize + 1]);
                        }
                        (false, true) => {
                            let _ = to.write_all(b"feedwater rows 2");
                            read.store(true, Ordering::Relaxed);
                        }
                    }
                }
            });
        }
    });
    (address, is_read)
}

#[test]
fn a_signal_ends_a_command_that_reads_an_endless_row_index() {
    let dir = workplace();
    done(dir.path(), &["pack", "data", "packed"]);
    let (address, is_read) = server_with_an_endless_row_index(shard(dir.path()));
    let url = format!("http://{address}/a.tar");
    let cache = "[loader]\nbatch_size = 2\n[cache]\nrow_index = \"64 MiB\"";
    let storage = "[storage]\nretries = 100";
    let text = format!("[source]\nwebdataset = \"{url}\"\n{storage}\n{cache}\n{TRAINING}");
    write(&dir, "remote.toml", &text);
    for (signal, name, code) in [(Signal::INT, "SIGINT", 130), (Signal::TERM, "SIGTERM", 143)] {
        is_read.store(false, Ordering::Relaxed);
        let mut child = start(dir.path(), &["run", "remote.toml"]);
        let ended_early = |child: &mut Child| child.try_wait().unwrap().is_some();
        while !is_read.load(Ordering::Relaxed) && !ended_early(&mut child) {
            sleep(Duration::from_millis(5));
        }
        if is_read.load(Ordering::Relaxed) {
            send(&child, signal);
        }
        let (status, _, stderr) = ended(child);
        assert_eq!(status, Some(code), "{stderr}");
        assert!(has_words(&stderr, &[name]), "{stderr}");
    }
}

/// Returns the bytes of the only packed shard.
fn shard(dir: &Path) -> Vec<u8> {
    let files = fs::read_dir(dir.join("packed")).unwrap().map(|it| it.unwrap().path());
    let shards: Vec<_> = files.filter(|it| it.extension().is_some_and(|it| it == "tar")).collect();
    assert_eq!(shards.len(), 1, "{shards:?}");
    fs::read(&shards[0]).unwrap()
}
