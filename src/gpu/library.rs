//! Finds the CUDA driver, nvJPEG, NVRTC and NVML at run time.
//!
//! No CUDA library is linked at build time. Each library is searched for in the following places,
//! in this order. The first file that opens is used until the process ends. CUDA libraries must
//! never be closed, so the handles are leaked.
//!
//! 1. The path in the [`Runtime`], or else in `FEEDWATER_LIBCUDA`, `FEEDWATER_LIBNVJPEG`,
//!    `FEEDWATER_LIBNVRTC` or `FEEDWATER_LIBNVML`. If that file does not open, the result is an
//!    error.
//! 2. For nvJPEG and NVRTC: a library of that name that the process has already loaded, for example
//!    PyTorch's.
//! 3. The dynamic linker's search by name (`LD_LIBRARY_PATH`, `ldconfig`). For the driver and NVML,
//!    which is installed with the driver, the search ends here.
//! 4. `lib64` and `targets/x86_64-linux/lib` under `CUDA_HOME`, `CUDA_PATH`, `/usr/local/cuda`,
//!    `/usr/local/cuda-*` and `/opt/cuda`.
//! 5. The Python wheels `nvidia-nvjpeg`, `nvidia-cuda-nvrtc` and `torchvision` in the
//!    `site-packages` of `VIRTUAL_ENV`, `CONDA_PREFIX` and `/usr/local`, then `CONDA_PREFIX/lib`.
//!
//! A profiler's library for NVTX is not searched for. The profiler sets the library's path (see
//! `nvtx`).
//!
//! A missing library is an [`Error::Unavailable`]. Its message lists the searched places and says
//! what to install.

use std::env;
use std::ffi::{CString, OsStr, c_int};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use super::driver_symbols::DRIVER_SYMBOLS;
use super::library_name::{LibraryName as Name, NAMES};
use super::runtime::{Runtime, from_env};
use crate::error::{Error, Result};

/// `dlopen` flag of Linux and the BSDs: open only if already loaded.
const RTLD_NOLOAD: c_int = 4;

/// Newest CUDA major version whose library names are tried if the driver's version is unknown.
const NEWEST_MAJOR: u32 = 13;

/// Oldest supported CUDA major version.
const OLDEST_MAJOR: u32 = 12;

/// Open library. It stays open until the process ends.
#[derive(Debug)]
pub struct Found {
    library: Library,
    path: String,
}

impl Found {
    /// Returns the path or name by which the library was opened.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Whether the library exports a symbol.
    pub fn has(&self, symbol: &str) -> bool {
        // SAFETY: only looks up the address and never uses it, so the type does not matter.
        unsafe { self.library.get::<*const ()>(symbol.as_bytes()) }.is_ok()
    }

    /// Returns the function named `symbol`, or an error that names the missing function.
    ///
    /// # Safety
    /// `F` must be a function pointer type that fits the function of that name.
    pub(super) unsafe fn function<F: Copy>(&self, symbol: &'static str) -> Result<F> {
        // SAFETY: the caller guarantees the type. The library is never closed, so a copy stays
        // valid.
        unsafe { self.library.get::<F>(symbol.as_bytes()) }
            .map(|it| *it)
            .map_err(|_| missing(&self.path, symbol))
    }
}

/// Returns the file that contains a loaded function, if the system reports it. A library that was
/// opened by name may lie in any directory, so only the system knows its file.
pub(super) fn file_at(function: usize) -> Option<PathBuf> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    // Each line is "from-to rwxp offset device inode path", with addresses in hexadecimal.
    let line = maps.lines().find(|line| {
        let range = line.split_once(' ').and_then(|(range, _)| range.split_once('-'));
        let hex = |text| usize::from_str_radix(text, 16);
        range.is_some_and(|(from, to)| {
            matches!((hex(from), hex(to)), (Ok(from), Ok(to)) if (from..to).contains(&function))
        })
    })?;
    line.find('/').map(|start| PathBuf::from(&line[start..]))
}

/// Returns the files that are mapped into this process and whose names begin with one of `names`,
/// without duplicates.
pub(super) fn mapped_files(names: &[&str]) -> Vec<PathBuf> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let paths = maps.lines().filter_map(|line| Some(&line[line.find('/')?..]));
    let is_named = |path: &&str| {
        let name = path.rsplit('/').next().unwrap_or_default();
        names.iter().any(|it| name.starts_with(it))
    };
    let mut files: Vec<PathBuf> = paths.filter(is_named).map(PathBuf::from).collect();
    files.sort_unstable();
    files.dedup();
    files
}

/// Opens a library, or returns the reason why it cannot be opened. `cuda_major` is the driver's
/// CUDA version (13 for 13.0), if known. All runtimes that specify the same file share one open
/// library. All runtimes that specify no file share one open library too. After a failure, the next
/// call searches again.
pub fn open(runtime: &Runtime, name: Name, cuda_major: Option<u32>) -> Result<&'static Found> {
    let named = runtime.file_of(name);
    let mut open = lock(&FOUND[name as usize]);
    if let Some((_, found)) = open.iter().find(|(file, _)| *file == named) {
        return Ok(found);
    }
    let found = match &named {
        Some(path) => open_explicit(name, path, runtime.named_by(name))?,
        None if matches!(name, Name::Driver | Name::Nvml) => {
            search(name, &name.file_names(cuda_major), &[])?
        }
        None => search(name, &name.file_names(cuda_major), &directories())?,
    };
    let first = open.first().map(|(_, first)| *first).filter(|_| name == Name::Driver);
    let found: &'static Found = match first {
        Some(first) => {
            check_same_driver(first, &found, runtime.named_by(name))?;
            first
        }
        None => {
            if name == Name::Driver {
                check_driver(&found)?;
            }
            Box::leak(Box::new(found))
        }
    };
    open.push((named, found));
    Ok(found)
}

/// Returns a text of all settings that affect which library [`open`] finds. Different texts mean
/// different searches. The text does not list which files are installed.
pub(super) fn search_key(runtime: &Runtime, name: Name, cuda_major: u32) -> String {
    let explicit = runtime.file_of(name);
    let searched = ["LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "VIRTUAL_ENV", "CONDA_PREFIX"];
    format!("{cuda_major} {explicit:?} {:?}", searched.map(env::var_os))
}

/// Open libraries of one name. Each is stored with the file that a `Runtime` specified for it, or
/// `None` if the library was found by the search.
type Open = Vec<(Option<PathBuf>, &'static Found)>;

/// Open libraries of this process. Each library is opened once.
static FOUND: [Mutex<Open>; NAMES] = [const { Mutex::new(Vec::new()) }; NAMES];

impl Name {
    /// Environment variable with the path of this library.
    pub const fn variable(self) -> &'static str {
        match self {
            Name::Driver => "FEEDWATER_LIBCUDA",
            Name::NvJpeg => "FEEDWATER_LIBNVJPEG",
            Name::Nvrtc => "FEEDWATER_LIBNVRTC",
            Name::Nvml => "FEEDWATER_LIBNVML",
        }
    }

    /// Name of the library in error messages.
    pub const fn noun(self) -> &'static str {
        match self {
            Name::Driver => "the CUDA driver (libcuda.so.1)",
            Name::NvJpeg => "nvJPEG (libnvjpeg)",
            Name::Nvrtc => "the CUDA run-time compiler (libnvrtc)",
            Name::Nvml => "NVML (libnvidia-ml.so.1)",
        }
    }

    const fn remedy(self) -> &'static str {
        match self {
            Name::Driver => {
                "install NVIDIA's display driver, and run containers with `--gpus all`; \
                 or choose the CPU (`device = \"cpu\"`, `--device cpu`)"
            }
            Name::NvJpeg => {
                "install it with `pip install nvidia-nvjpeg` or with the CUDA toolkit, or name the file in \
                 FEEDWATER_LIBNVJPEG; or decode on the CPU with `decode.placement = \"cpu\"`"
            }
            Name::Nvrtc => {
                "install it with `pip install nvidia-cuda-nvrtc` or with the CUDA toolkit, or name the file \
                 in FEEDWATER_LIBNVRTC"
            }

            Name::Nvml => {
                "it comes with NVIDIA's display driver; containers need the capability `utility` \
                 (NVIDIA_DRIVER_CAPABILITIES)"
            }
        }
    }

    /// Stem of this library's file names.
    const fn stem(self) -> &'static str {
        match self {
            Name::Driver => "libcuda.so",
            Name::NvJpeg => "libnvjpeg.so",
            Name::Nvrtc => "libnvrtc.so",
            Name::Nvml => "libnvidia-ml.so",
        }
    }

    /// Returns the file names to try. Names with the driver's CUDA version come before names with
    /// older versions. Newer versions are left out, because a library does not run with an older
    /// driver.
    fn file_names(self, cuda_major: Option<u32>) -> Vec<String> {
        if self == Name::Driver {
            // Only the driver installs `libcuda.so.1`. A file `libcuda.so` may also be a stub of a
            // CUDA toolkit for linking. All functions of a stub return `CUDA_ERROR_STUB_LIBRARY`.
            return vec!["libcuda.so.1".into(), "libcuda.so".into()];
        }
        if self == Name::Nvml {
            return vec!["libnvidia-ml.so.1".into(), "libnvidia-ml.so".into()];
        }
        let newest = cuda_major.unwrap_or(NEWEST_MAJOR).max(OLDEST_MAJOR);
        let numbered =
            (OLDEST_MAJOR..=newest).rev().map(|major| format!("{}.{major}", self.stem()));
        numbered.chain([self.stem().to_owned()]).collect()
    }
}

fn open_explicit(name: Name, path: &Path, named_by: &str) -> Result<Found> {
    open_file(name, path).map_err(|problem| {
        let reason = format!("{named_by} names {}: {problem}", path.display());
        Error::unavailable(name.noun(), reason)
    })
}

fn search(name: Name, names: &[String], directories: &[PathBuf]) -> Result<Found> {
    let loaded = if name == Name::Driver { &[] } else { names };
    for file in loaded {
        if let Ok(library) = dlopen(file.as_ref(), RTLD_NOLOAD) {
            return Ok(Found { library, path: file.clone() });
        }
    }
    for file in names {
        if let Ok(library) = dlopen(file.as_ref(), 0) {
            return Ok(Found { library, path: file.clone() });
        }
    }
    let mut problems = Vec::new();
    for directory in directories {
        for path in files_in(directory, name, names) {
            match open_file(name, &path) {
                Ok(found) => return Ok(found),
                Err(problem) => problems.push(format!("{}: {problem}", path.display())),
            }
        }
    }
    let mut reason = format!("searched for {} with the dynamic linker", names.join(", "));
    if !directories.is_empty() {
        reason += &format!(
            " and in {} directories of CUDA toolkits and Python wheels",
            directories.len()
        );
    }
    for problem in problems {
        reason += &format!("; {problem}");
    }
    Err(Error::unavailable(name.noun(), format!("{reason}; {}", name.remedy())))
}

/// Opens a library file. For NVRTC, first loads the library of its built-in headers from the same
/// directory, because some NVRTC releases do not find that library themselves.
fn open_file(name: Name, path: &Path) -> Result<Found, String> {
    if name == Name::Nvrtc
        && let Some(directory) = path.parent()
    {
        for builtins in entries(directory, |file| file.starts_with("libnvrtc-builtins.so.")) {
            if let Ok(library) = dlopen(builtins.as_os_str(), 0) {
                std::mem::forget(library);
            }
        }
    }
    let library = dlopen(path.as_os_str(), 0)?;
    Ok(Found { library, path: path.display().to_string() })
}

fn dlopen(file: &OsStr, flags: c_int) -> Result<Library, String> {
    if CString::new(file.as_encoded_bytes()).is_err() {
        return Err("the name holds a NUL byte".into());
    }
    // SAFETY: runs the initialisers of a library that has the name of an NVIDIA library or that the
    // user specified.
    unsafe { Library::open(Some(file), RTLD_NOW | RTLD_LOCAL | flags) }
        .map_err(|error| error.to_string())
}

/// Returns the existing directories of CUDA toolkits and Python wheels.
fn directories() -> Vec<PathBuf> {
    let mut toolkits: Vec<PathBuf> =
        ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(from_env).collect();
    toolkits.push("/usr/local/cuda".into());
    toolkits.extend(entries(Path::new("/usr/local"), |file| file.starts_with("cuda-")));
    toolkits.push("/opt/cuda".into());
    let mut all: Vec<PathBuf> = toolkits
        .iter()
        .flat_map(|it| [it.join("lib64"), it.join("targets/x86_64-linux/lib")])
        .collect();

    let prefixes = [from_env("VIRTUAL_ENV"), from_env("CONDA_PREFIX"), Some("/usr/local".into())];
    for prefix in prefixes.into_iter().flatten() {
        for python in entries(&prefix.join("lib"), |file| file.starts_with("python3")) {
            for packages in [python.join("site-packages"), python.join("dist-packages")] {
                for inner in [
                    "nvidia/cu13/lib",
                    "nvidia/nvjpeg/lib",
                    "nvidia/cuda_nvrtc/lib",
                    "torchvision.libs",
                ] {
                    all.push(packages.join(inner));
                }
            }
        }
    }
    all.extend(from_env("CONDA_PREFIX").map(|prefix| prefix.join("lib")));
    all.retain(|directory| directory.is_dir());
    all
}

/// Returns the files of a directory that may be the library. Exact names come first, then copies
/// with a hash in the name, as in wheels (`libnvjpeg.36e11081.so.13`).
fn files_in(directory: &Path, name: Name, names: &[String]) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> =
        names.iter().map(|file| directory.join(file)).filter(|path| path.exists()).collect();
    let stem = name.stem().trim_end_matches("so");
    files.extend(entries(directory, |file| {
        let hashed = file.strip_prefix(stem).and_then(|rest| rest.split_once(".so"));
        hashed.is_some_and(|(_, version)| {
            names.iter().any(|known| *known == format!("{}{version}", name.stem()))
        })
    }));
    files
}

/// Returns the entries of a directory with matching names, sorted by name.
fn entries(directory: &Path, wanted: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let Ok(listing) = fs::read_dir(directory) else { return Vec::new() };
    let mut found: Vec<PathBuf> = listing
        .flatten()
        .filter(|entry| entry.file_name().to_str().is_some_and(&wanted))
        .map(|entry| entry.path())
        .collect();
    found.sort();
    found
}

/// Checks that cudarc will work. cudarc opens the driver by name itself, and panics if the driver
/// or a symbol is missing. So this function checks that all needed symbols exist and that cudarc
/// will find the library that was opened here.
fn check_driver(found: &Found) -> Result<()> {
    if let Some((symbol, _)) = DRIVER_SYMBOLS.iter().find(|(symbol, _)| !found.has(symbol)) {
        return Err(missing(&found.path, symbol));
    }
    let ours = address(&found.library);
    let theirs = CUDARC_NAMES.iter().find_map(|file| Some((file, dlopen(file.as_ref(), 0).ok()?)));
    match theirs {
        Some((_, library)) if address(&library) == ours => Ok(()),
        other => {
            let file = other.map_or(CUDARC_NAMES[0], |(file, _)| file);
            let reason = format!(
                "the dynamic linker finds another {file} than the driver {}, for example a stub of \
                 a CUDA toolkit; remove the directory of the other file from LD_LIBRARY_PATH, or \
                 put the driver's directory before it",
                found.path
            );
            Err(Error::unavailable(Name::Driver.noun(), reason))
        }
    }
}

/// Names by which cudarc opens the driver, in order.
const CUDARC_NAMES: [&str; 2] = ["libcuda.so", "libcuda.so.1"];

/// Checks that a second driver file is the same library as the open one, because cudarc opens one
/// driver per process.
fn check_same_driver(first: &Found, other: &Found, named_by: &str) -> Result<()> {
    if address(&first.library) == address(&other.library) {
        return Ok(());
    }
    let reason = format!(
        "{named_by} names the driver {}, but this process already uses the driver {}, and a \
         process can use only one driver; name the driver that is in use",
        other.path, first.path
    );
    Err(Error::unavailable(Name::Driver.noun(), reason))
}

/// Returns the address of a function that every driver has. Equal libraries have equal addresses.
fn address(library: &Library) -> Option<usize> {
    // SAFETY: only the address of the symbol is read.
    unsafe { library.get::<*const ()>(b"cuInit") }.ok().map(|symbol| symbol.as_raw_ptr() as usize)
}

fn missing(path: &str, symbol: &str) -> Error {
    let reason = format!(
        "{path} does not have the function {symbol}; install a newer driver, or CUDA 12.2 or later"
    );
    Error::unavailable("a function of CUDA", reason)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The contents of the mutexes are replaced as a whole, so a panic elsewhere leaves them
    // consistent.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_file_that_does_not_open_is_an_error_and_nothing_else_is_tried() {
        let error = open_explicit(
            Name::NvJpeg,
            Path::new("/nowhere/libnvjpeg.so.13"),
            Name::NvJpeg.variable(),
        )
        .unwrap_err();
        let Error::Unavailable { what, reason, .. } = error else { panic!("{error}") };
        assert_eq!(what, Name::NvJpeg.noun());
        for value in ["FEEDWATER_LIBNVJPEG", "/nowhere/libnvjpeg.so.13"] {
            assert!(reason.contains(value), "{value}: {reason}");
        }
    }

    #[test]
    fn names_start_with_the_drivers_version() {
        assert_eq!(Name::NvJpeg.file_names(Some(12)), ["libnvjpeg.so.12", "libnvjpeg.so"]);
        assert_eq!(
            Name::Nvrtc.file_names(None),
            ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"]
        );
    }

    /// The name `libcuda.so.1` is tried before `libcuda.so`, which may be a toolkit's stub on WSL
    /// and on build machines.
    #[test]
    fn the_drivers_own_name_is_tried_before_that_of_a_stub() {
        assert_eq!(Name::Driver.file_names(Some(12)), ["libcuda.so.1", "libcuda.so"]);
    }

    #[test]
    fn a_driver_without_a_function_that_is_called_is_refused() {
        let library = dlopen("libc.so.6".as_ref(), 0).unwrap();
        let error = check_driver(&Found { library, path: "libc.so.6".into() }).unwrap_err();
        let Error::Unavailable { reason, .. } = error else { panic!("{error}") };
        for value in ["libc.so.6", DRIVER_SYMBOLS[0].0] {
            assert!(reason.contains(value), "{value}: {reason}");
        }
    }

    #[test]
    fn copies_with_a_hash_in_the_name_are_found_after_the_plain_ones() {
        let directory = tempfile::tempdir().unwrap();
        for file in
            ["libnvjpeg.36e11081.so.13", "libnvjpeg.so.13", "libnvjpeg.so.11", "libnvjpeg2k.so.13"]
        {
            fs::write(directory.path().join(file), b"").unwrap();
        }
        let names = Name::NvJpeg.file_names(Some(13));
        let found = files_in(directory.path(), Name::NvJpeg, &names);
        let found: Vec<_> =
            found.iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect();
        assert_eq!(found, ["libnvjpeg.so.13", "libnvjpeg.36e11081.so.13"]);
    }

    #[test]
    fn errors_say_where_a_library_was_searched_for_and_what_to_install() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("libfeedwater-nowhere.so.13");
        fs::write(&file, b"not a library").unwrap();
        let names = ["libfeedwater-nowhere.so.13".to_owned()];
        let error = search(Name::Nvrtc, &names, &[directory.path().to_owned()]).unwrap_err();
        let text = error.to_string();
        let file = file.to_str().unwrap();
        // The message names the opened file, the linker's error, the package to install, and the
        // variable for the path.
        for value in [file, "file too short", "nvidia-cuda-nvrtc", "FEEDWATER_LIBNVRTC"] {
            assert!(text.contains(value), "{value}: {text}");
        }
        // The message also contains the name that the dynamic linker searched for.
        assert!(text.replace(file, "").contains("libfeedwater-nowhere.so.13"), "{text}");
    }
}
