//! Whether the JPEG engines decode windows.
//!
//! In other projects, windows with interpolated chroma failed on A100 and GB200, and crashed the process on H100 and B200
//! (nvImageCodec, issue 55). So whole images are decoded unless a check has passed. It runs in a process of its own, because of the
//! crash, at the first use of the engines, and its result is kept for this card, driver and nvJPEG. The check itself is in
//! `window_check.rs`.

use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use super::Library;
use crate::error::Result;
use crate::gpu::library::mapped_files;
use crate::gpu::library_name::LibraryName;
use crate::gpu::{Device, cache};

/// Program that is started for the check, with its first arguments. See [`set_checking_program`].
static PROGRAM: Mutex<Vec<OsString>> = Mutex::new(Vec::new());

/// Results of this process, by [`key`].
static KNOWN: Mutex<Vec<(String, Option<bool>)>> = Mutex::new(Vec::new());

/// Held while a check runs, so that loaders that start together run one.
static RUNNING: Mutex<()> = Mutex::new(());

/// Lines that the checking program prints: before the engines get a window, and at the end.
pub(super) const BEGUN: &str = "windows: begun";
pub(super) const EQUAL: &str = "windows: equal";
pub(super) const DIFFERENT: &str = "windows: different";

/// Command of the checking program; the number of the GPU follows.
const COMMAND: &str = "check-windows";

/// Environment variable that the checking program has. A process that has it starts no check: it may be another program than expected.
const CHECKING: &str = "FEEDWATER_CHECKING_WINDOWS";

/// Changes when the check changes, so that results of former checks are not used.
const CHECK_VERSION: &[u8] = b"1";

/// Far more than starting CUDA and decoding a few small images should take.
const MOST_TIME: Duration = Duration::from_secs(30);

/// How long a killed program may take to end. One that waits in the driver may never end.
const MOST_DYING: Duration = Duration::from_secs(1);

/// Sets the program that checks whether the JPEG engines decode windows: the command line tool `feedwater`, and the arguments that it
/// needs before a command. Without one, nothing is started, and the engines decode whole images unless the tool has checked this
/// machine (`feedwater selftest --only decode`). The tool itself and the Python package set it.
pub fn set_checking_program(program: impl IntoIterator<Item = OsString>) {
    *PROGRAM.lock().unwrap_or_else(PoisonError::into_inner) = program.into_iter().collect();
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner).retain(|(_, found)| found.is_some());
}

/// Whether the engines of this GPU decode windows. Runs the check if there is no result yet, or if `again` is set. `None` if the check
/// cannot be run.
///
/// # Errors
/// [`Error::Unavailable`](crate::Error::Unavailable) without nvJPEG.
pub fn window_verdict(device: &Arc<Device>, again: bool) -> Result<Option<bool>> {
    let library = Library::open(device.runtime(), Some(device.driver_version() / 1000))?;
    Ok(verdict(device, &library, again))
}

pub(super) fn work(device: &Arc<Device>, library: &Library) -> bool {
    verdict(device, library, false) == Some(true)
}

/// Clears this process's results.
pub(super) fn forget() {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner).clear();
}

fn verdict(device: &Arc<Device>, library: &Library, again: bool) -> Option<bool> {
    let _running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    let known = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let key = key(device, library);
    known().retain(|(it, _)| !again || *it != key);
    if let Some((_, found)) = known().iter().find(|(it, _)| *it == key) {
        return *found;
    }
    let directory = device.runtime().cache_directory();
    let kept = directory.as_deref().filter(|_| !again).and_then(|it| cache::read(it, &key));
    let found = match kept.as_deref() {
        Some(b"yes") => Some(true),
        Some(b"no") => Some(false),
        _ => {
            let Found { windows, is_final } = ask_program(device, library);
            let file = library.file().and_then(|file| cache::Compiler::at(&file));
            if let (Some(windows), true, Some(directory), Some(file)) =
                (windows, is_final, directory, file)
            {
                let text: &[u8] = if windows { b"yes" } else { b"no" };
                cache::write(&directory, &key, &file, text);
            }
            windows
        }
    };
    known().push((key, found));
    found
}

/// File name of a result: a hash of the check, the card, the driver, and the driver's libraries. The file itself names nvJPEG.
fn key(device: &Device, library: &Library) -> String {
    // The driver's own version; CUDA's stays the same over many.
    let driver = fs::read("/proc/driver/nvidia/version").unwrap_or_default();
    let (major, minor) = device.capability();
    let card = format!(
        "{} {major}.{minor} {} {} {}",
        device.name(),
        device.driver_version(),
        library.version(),
        library.path()
    );
    let of_driver = mapped_files(&["libcuda.so", "libnvcuvid.so"]);
    let of_driver = of_driver.iter().map(|it| format!("{:?}", cache::Compiler::at(it)));
    let of_driver = of_driver.collect::<String>();
    let parts = [CHECK_VERSION, card.as_bytes(), &driver, of_driver.as_bytes()];
    format!("{}.windows", cache::digits(&parts))
}

/// What a check has found.
struct Found {
    /// `None` if there is no program, or it ended before the engines got a window, or for a reason that has nothing to do with it.
    windows: Option<bool>,
    /// Whether the next process would find the same.
    is_final: bool,
}

fn ask_program(device: &Device, library: &Library) -> Found {
    const UNKNOWN: Found = Found { windows: None, is_final: false };
    let program = PROGRAM.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let Some((file, first)) = program.split_first() else { return UNKNOWN };
    if std::env::var_os(CHECKING).is_some() {
        return UNKNOWN;
    }
    let mut command = Command::new(file);
    command.args(first).arg(COMMAND).arg(device.ordinal().to_string()).env(CHECKING, "1");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    // Signals of the terminal are for this process.
    command.process_group(0);
    // The library that is in use here, wherever it was found.
    let of_nvjpeg = library.file().or_else(|| device.runtime().file_of(LibraryName::NvJpeg));
    let of_driver = device.runtime().file_of(LibraryName::Driver);
    for (name, file) in [(LibraryName::NvJpeg, of_nvjpeg), (LibraryName::Driver, of_driver)] {
        if let Some(file) = file {
            command.env(name.variable(), file);
        }
    }
    let Ok(mut child) = command.spawn() else { return UNKNOWN };
    let output = child.stdout.take().map(read_aside);
    let ended = end_of(&mut child);
    let said = output.map(|parts| text_of(&parts)).unwrap_or_default();
    let has = |line| said.contains(line);
    match ended {
        _ if !has(BEGUN) => UNKNOWN,
        _ if has(DIFFERENT) => Found { windows: Some(false), is_final: true },
        Ended::Alone(status) if has(EQUAL) && status.is_none_or(|it| it.success()) => {
            Found { windows: Some(true), is_final: true }
        }
        Ended::Alone(Some(status)) if is_crash(status) => {
            Found { windows: Some(false), is_final: true }
        }
        Ended::Killed => Found { windows: Some(false), is_final: false },
        Ended::Alone(_) => UNKNOWN,
    }
}

/// Whether a process ended by a fault of its own code, and not because another process ended it.
fn is_crash(status: ExitStatus) -> bool {
    let faults = [Signal::SEGV, Signal::BUS, Signal::ABORT, Signal::ILL, Signal::FPE];
    status.signal().is_some_and(|signal| faults.iter().any(|it| it.as_raw() == signal))
}

enum Ended {
    /// By itself, with its status if that is known: a program may have made the system drop it.
    Alone(Option<ExitStatus>),
    /// After [`MOST_TIME`].
    Killed,
}

/// Waits for the end of a process, and ends it with its children if it takes too long.
fn end_of(child: &mut Child) -> Ended {
    let begin = Instant::now();
    let ended = |child: &mut Child, most: Duration| {
        loop {
            match child.try_wait() {
                Ok(Some(status)) => return Some(Some(status)),
                Err(_) => return Some(None),
                Ok(None) if begin.elapsed() < most => thread::sleep(Duration::from_millis(5)),
                Ok(None) => return None,
            }
        }
    };
    if let Some(status) = ended(child, MOST_TIME) {
        return Ended::Alone(status);
    }
    let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
    let _ = ended(child, MOST_TIME + MOST_DYING);
    Ended::Killed
}

/// Reads the output of a process in a thread, because a child of it may keep the pipe open. Sends the first parts.
fn read_aside(mut output: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    const MOST: usize = 4096;
    let (sender, receiver) = mpsc::channel();
    let read = move || {
        let (mut buffer, mut sent) = ([0; 512], 0);
        while let Ok(count @ 1..) = output.read(&mut buffer) {
            // The rest is read so that it does not block the process.
            if sent < MOST {
                sent += count;
                let _ = sender.send(buffer[..count].to_vec());
            }
        }
    };
    let _ = thread::Builder::new().name("feedwater-check".into()).spawn(read);
    receiver
}

/// What a process that has ended has printed.
fn text_of(parts: &Receiver<Vec<u8>>) -> String {
    let (begin, mut all) = (Instant::now(), Vec::new());
    while let Ok(part) = parts.recv_timeout(MOST_DYING.saturating_sub(begin.elapsed())) {
        all.extend(part);
    }
    String::from_utf8_lossy(&all).into_owned()
}
