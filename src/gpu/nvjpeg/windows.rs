//! Decision whether windows are passed to the JPEG engines.
//!
//! In other projects, windows with interpolated chroma failed on A100 and GB200, and crashed the
//! process on H100 and B200 (nvImageCodec, issue 55). So whole images are decoded unless a check
//! has passed. Because of the crashes, the check runs in its own process, when the engines are
//! first used. Its result is cached for this card, driver and nvJPEG. The check itself is in
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

/// Results of the window check in this process, by the text that [`key`] returns.
static KNOWN: Mutex<Vec<(String, Option<bool>)>> = Mutex::new(Vec::new());

/// Lock that is held while a check runs. Loaders that start at the same time therefore run one
/// check.
static RUNNING: Mutex<()> = Mutex::new(());

/// Line that the checking program prints before the engines decode a window.
pub(super) const BEGUN: &str = "windows: begun";
/// Line that the checking program prints at the end if all windows are correct.
pub(super) const EQUAL: &str = "windows: equal";
/// Line that the checking program prints at the end if a window is wrong.
pub(super) const DIFFERENT: &str = "windows: different";

/// Command of the checking program. The number of the GPU is the next argument.
const COMMAND: &str = "check-windows";

/// Environment variable that is set for the checking program. A process with this variable starts
/// no check. Without it, a checking program that builds loaders would start further checks.
const CHECKING: &str = "FEEDWATER_CHECKING_WINDOWS";

/// Version of the check. Results of other versions are not used.
const CHECK_VERSION: &[u8] = b"1";

/// Time limit of the check. Starting CUDA and decoding a few small images should take much less.
const MOST_TIME: Duration = Duration::from_secs(30);

/// Maximum time to wait for a killed program to end. A program that waits in the driver may never
/// end.
const MOST_DYING: Duration = Duration::from_secs(1);

/// Sets the program that checks whether the JPEG engines decode windows: the command line tool
/// `feedwater`, with the arguments that precede a command. Without a program, no check is started.
/// The engines then decode whole images, unless `feedwater selftest --only decode` has checked this
/// machine. The tool itself and the Python package set the program.
pub fn set_checking_program(program: impl IntoIterator<Item = OsString>) {
    *PROGRAM.lock().unwrap_or_else(PoisonError::into_inner) = program.into_iter().collect();
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner).retain(|(_, found)| found.is_some());
}

/// Whether the engines of this GPU decode windows correctly. Runs the check if there is no result
/// yet, or if `again` is set. Returns `None` if the check cannot run or gave no result.
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

/// Clears this process's results of the window check.
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

/// Returns the file name of a result: a hash of the check's version, the card, the driver, and the
/// driver's libraries. The nvJPEG library is recorded in the file itself.
fn key(device: &Device, library: &Library) -> String {
    // The display driver's version. It is needed because many driver versions have the same CUDA
    // version.
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

/// Result of a check.
struct Found {
    /// Whether windows are correct. `None` if no checking program is set, if the program ended
    /// before the engines received a window, or if it ended for an unrelated reason.
    windows: Option<bool>,
    /// Whether another process would get the same result. Only such results are stored in the cache
    /// on disk.
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
    // In a process group of its own, the program does not receive signals of the terminal, such as
    // that of Ctrl-C.
    command.process_group(0);
    // The program uses the libraries that this process uses, wherever they were found.
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

/// Whether a process ended because of a fault in its own code, and was not ended by another
/// process.
fn is_crash(status: ExitStatus) -> bool {
    let faults = [Signal::SEGV, Signal::BUS, Signal::ABORT, Signal::ILL, Signal::FPE];
    status.signal().is_some_and(|signal| faults.iter().any(|it| it.as_raw() == signal))
}

enum Ended {
    /// The process ended without being killed by us. The status is `None` if the system did not
    /// keep it.
    Alone(Option<ExitStatus>),
    /// The process was killed after [`MOST_TIME`].
    Killed,
}

/// Waits until a process ends. If that takes longer than [`MOST_TIME`], kills the process and its
/// children.
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

/// Reads the output of a process in a separate thread, because a child of the process may keep the
/// pipe open. Passes on only about the first 4096 bytes.
fn read_aside(mut output: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    const MOST: usize = 4096;
    let (sender, receiver) = mpsc::channel();
    let read = move || {
        let (mut buffer, mut sent) = ([0; 512], 0);
        while let Ok(count @ 1..) = output.read(&mut buffer) {
            // The rest of the output is read and discarded, because a full pipe would block the
            // process.
            if sent < MOST {
                sent += count;
                let _ = sender.send(buffer[..count].to_vec());
            }
        }
    };
    let _ = thread::Builder::new().name("feedwater-check".into()).spawn(read);
    receiver
}

/// Returns the output of a process that has ended.
fn text_of(parts: &Receiver<Vec<u8>>) -> String {
    let (begin, mut all) = (Instant::now(), Vec::new());
    while let Ok(part) = parts.recv_timeout(MOST_DYING.saturating_sub(begin.elapsed())) {
        all.extend(part);
    }
    String::from_utf8_lossy(&all).into_owned()
}
