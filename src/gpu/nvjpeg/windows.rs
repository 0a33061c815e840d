//! Whether the JPEG engines decode windows.
//!
//! In other projects, windows with interpolated chroma failed on A100 and GB200, and crashed the process on H100 and B200
//! (nvImageCodec, issue 55). So whole images are decoded unless a check has passed. It runs in a process of its own, because of the
//! crash, at the first use of the engines, and its verdict is kept for this card, driver and nvJPEG. The check itself is in
//! `window_check.rs`.

use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::Library;
use crate::error::Result;
use crate::gpu::library_name::LibraryName;
use crate::gpu::{Device, cache};

/// Program that is started for the check, with its first arguments. See [`set_checking_program`].
static PROGRAM: Mutex<Vec<OsString>> = Mutex::new(Vec::new());

/// Verdicts of this process, by card.
static KNOWN: Mutex<Vec<(String, Option<bool>)>> = Mutex::new(Vec::new());

/// What the checking program prints before the engines get a window, and at the end.
pub(super) const BEGUN: &str = "windows: begun";
pub(super) const EQUAL: &str = "windows: equal";

/// Arguments of the checking program before the number of the GPU.
const ARGUMENTS: [&str; 1] = ["check-windows"];

/// Far more than starting CUDA and decoding a few small images should take.
const MOST_TIME: Duration = Duration::from_secs(60);

/// Sets the program that checks whether the JPEG engines decode windows: the command line tool `feedwater`, and the arguments that it
/// needs before a command. Without one, nothing is started, and the engines decode whole images unless the tool has checked this
/// machine (`feedwater selftest --only decode`). The tool itself and the Python package set it.
pub fn set_checking_program(program: impl IntoIterator<Item = OsString>) {
    *PROGRAM.lock().unwrap_or_else(PoisonError::into_inner) = program.into_iter().collect();
}

/// Whether the engines of this GPU decode windows. Runs the check if there is no verdict, or if it is to be `again`. `None` if it cannot
/// be run.
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

/// Clears this process's verdicts.
pub(super) fn forget() {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner).clear();
}

fn verdict(device: &Arc<Device>, library: &Library, again: bool) -> Option<bool> {
    let key = key(device, library);
    // Locked meanwhile, so that loaders that start together run one check.
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    known.retain(|(it, _)| !again || *it != key);
    if let Some((_, verdict)) = known.iter().find(|(it, _)| *it == key) {
        return *verdict;
    }
    let directory = device.runtime().cache_directory();
    let kept = directory.as_deref().filter(|_| !again).and_then(|it| cache::read(it, &key));
    let verdict = match kept.as_deref() {
        Some(b"yes") => Some(true),
        Some(b"no") => Some(false),
        _ => {
            let found = ask_program(device);
            let file = library.file().and_then(|file| cache::Compiler::at(&file));
            if let (Some(found), Some(directory), Some(file)) = (found, directory, file) {
                let text: &[u8] = if found { b"yes" } else { b"no" };
                cache::write(&directory, &key, &file, text);
            }
            found
        }
    };
    known.push((key, verdict));
    verdict
}

/// Everything that a verdict depends on, but for the file of nvJPEG, which is kept beside it.
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
    format!("{}.windows", cache::digits(&[card.as_bytes(), &driver]))
}

/// Runs the checking program. `None` if there is none, or it ended before the engines got a window.
fn ask_program(device: &Device) -> Option<bool> {
    let program = PROGRAM.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let (file, first) = program.split_first()?;
    let mut command = Command::new(file);
    command.args(first).args(ARGUMENTS).arg(device.ordinal().to_string());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    for name in [LibraryName::Driver, LibraryName::NvJpeg] {
        if let Some(file) = device.runtime().file_of(name) {
            command.env(name.variable(), file);
        }
    }
    let mut child = command.spawn().ok()?;
    let begin = Instant::now();
    let ended = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Some(status),
            Ok(None) if begin.elapsed() < MOST_TIME => thread::sleep(Duration::from_millis(5)),
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                break None;
            }
        }
    };
    let mut said = String::new();
    // Two lines, which fit into the pipe.
    child.stdout.take()?.read_to_string(&mut said).ok()?;
    match said.contains(BEGUN) {
        true => Some(ended.is_some_and(|status| status.success()) && said.contains(EQUAL)),
        false => None,
    }
}
