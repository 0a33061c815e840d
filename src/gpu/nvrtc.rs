//! NVRTC, CUDA's run-time compiler. It compiles C++ source to machine code for one architecture, or
//! to PTX, which the driver compiles for newer architectures.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::PathBuf;
use std::ptr;

use super::library::{self, Found};
use super::library_name::LibraryName as Name;
use super::runtime::Runtime;
use crate::error::{Error, Result};

type Program = *mut c_void;
type Status = c_int;

/// Functions of NVRTC that this crate uses. They are declared here because cudarc's bindings panic
/// if the library is missing. In addition, cudarc compiles only to PTX, which an older driver may
/// not be able to read.
#[derive(Debug)]
pub(super) struct Nvrtc {
    found: &'static Found,
    version: (u32, u32),
    /// Architectures that this NVRTC supports, ascending: 90 for sm_90.
    architectures: Vec<u32>,
    create: CreateProgram,
    destroy: unsafe extern "C" fn(*mut Program) -> Status,
    compile: unsafe extern "C" fn(Program, c_int, *const *const c_char) -> Status,
    cubin_size: GetSize,
    cubin: GetBytes,
    ptx_size: GetSize,
    ptx: GetBytes,
    log_size: GetSize,
    log: GetBytes,
    words: unsafe extern "C" fn(Status) -> *const c_char,
}

type CreateProgram = unsafe extern "C" fn(
    *mut Program,
    *const c_char,
    *const c_char,
    c_int,
    *const *const c_char,
    *const *const c_char,
) -> Status;
type GetSize = unsafe extern "C" fn(Program, *mut usize) -> Status;
type GetBytes = unsafe extern "C" fn(Program, *mut c_char) -> Status;

/// Architecture to compile for, as 10 * major + minor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// Machine code (a cubin) for this architecture.
    Exact(u32),
    /// Intermediate code (PTX) for this architecture. The driver compiles it for newer
    /// architectures.
    Virtual(u32),
}

impl Target {
    /// Returns the target for a device: the device's architecture if it is in `known`, otherwise
    /// the newest older architecture. Returns `None` if all known architectures are newer.
    fn of(device: u32, known: &[u32]) -> Option<Self> {
        let newest = known.iter().copied().filter(|it| *it <= device).max()?;
        Some(if newest == device { Target::Exact(device) } else { Target::Virtual(newest) })
    }

    fn option(self) -> String {
        match self {
            Target::Exact(architecture) => format!("--gpu-architecture=sm_{architecture}"),
            Target::Virtual(architecture) => format!("--gpu-architecture=compute_{architecture}"),
        }
    }
}

/// NVRTC's status for success.
const SUCCESS: Status = 0;
/// NVRTC's status for a source with errors.
const COMPILATION: Status = 6;

impl Nvrtc {
    /// Opens the library. `cuda_major` is the driver's CUDA version.
    pub fn open(runtime: &Runtime, cuda_major: Option<u32>) -> Result<Self> {
        let found = library::open(runtime, Name::Nvrtc, cuda_major)?;
        let mut version = (0, 0);
        // SAFETY: the types are those of nvrtc.h, unchanged since CUDA 11.2. The buffer has the
        // number of architectures that NVRTC reports.
        let nvrtc = unsafe {
            let get_version: unsafe extern "C" fn(*mut c_int, *mut c_int) -> Status =
                found.function("nvrtcVersion")?;
            let status = get_version(&mut version.0, &mut version.1);
            let count_architectures: unsafe extern "C" fn(*mut c_int) -> Status =
                found.function("nvrtcGetNumSupportedArchs")?;
            let get_architectures: unsafe extern "C" fn(*mut c_int) -> Status =
                found.function("nvrtcGetSupportedArchs")?;
            let mut nvrtc = Self {
                found,
                version: (version.0 as u32, version.1 as u32),
                architectures: Vec::new(),
                create: found.function("nvrtcCreateProgram")?,
                destroy: found.function("nvrtcDestroyProgram")?,
                compile: found.function("nvrtcCompileProgram")?,
                cubin_size: found.function("nvrtcGetCUBINSize")?,
                cubin: found.function("nvrtcGetCUBIN")?,
                ptx_size: found.function("nvrtcGetPTXSize")?,
                ptx: found.function("nvrtcGetPTX")?,
                log_size: found.function("nvrtcGetProgramLogSize")?,
                log: found.function("nvrtcGetProgramLog")?,
                words: found.function("nvrtcGetErrorString")?,
            };
            nvrtc.check("nvrtcVersion", status)?;
            let mut count: c_int = 0;
            nvrtc.check("nvrtcGetNumSupportedArchs", count_architectures(&mut count))?;
            let mut known: Vec<c_int> = vec![0; usize::try_from(count).unwrap_or(0)];
            nvrtc.check("nvrtcGetSupportedArchs", get_architectures(known.as_mut_ptr()))?;
            nvrtc.architectures = known.into_iter().filter_map(|it| it.try_into().ok()).collect();
            nvrtc
        };
        Ok(nvrtc)
    }

    /// Major and minor version, such as (13, 0).
    pub fn version(&self) -> (u32, u32) {
        self.version
    }

    /// Returns the path or name by which the library was opened.
    pub fn path(&self) -> &'static str {
        self.found.path()
    }

    /// Returns the file from which the library was loaded, if the system reports it. A library that
    /// was opened by name may lie in any directory, so only the system knows its file.
    pub fn file(&self) -> Option<PathBuf> {
        library::file_at(self.compile as usize)
    }

    /// Returns the target for a device of this compute capability.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the device is older than every architecture that this compiler
    /// supports.
    pub fn target(&self, (major, minor): (u32, u32)) -> Result<Target> {
        let device = 10 * major + minor;
        Target::of(device, &self.architectures).ok_or_else(|| {
            let oldest = self.architectures.iter().min().copied().unwrap_or_default();
            let ((major, minor), path) = (self.version, self.path());
            let reason = format!(
                "NVRTC {major}.{minor} ({path}) compiles only for GPUs of sm_{oldest} and newer; \
                 install the NVRTC of an older CUDA version, or use the CPU"
            );
            Error::unavailable("a kernel compiler for this GPU", format!("sm_{device}: {reason}"))
        })
    }

    /// Compiles a source to machine code (a cubin) or, for a virtual architecture, to PTX, which
    /// ends with a NUL byte.
    ///
    /// # Errors
    /// [`Error::Compile`] with the compiler's log if the source has errors.
    pub fn compile(&self, source: &str, target: Target, options: &[&str]) -> Result<Vec<u8>> {
        let text = |text: &str| {
            CString::new(text)
                .map_err(|_| Error::Compile { log: "the kernel text holds a NUL byte".into() })
        };
        let source = text(source)?;
        let target_option = target.option();
        let options = options.iter().copied().chain([&*target_option]);
        let options = options.map(text).collect::<Result<Vec<_>>>()?;
        let pointers: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();

        let mut raw = ptr::null_mut();
        // SAFETY: the call writes one handle. The strings are NUL-terminated. No headers are given.
        let status = unsafe {
            (self.create)(
                &mut raw,
                source.as_ptr(),
                c"feedwater.cu".as_ptr(),
                0,
                ptr::null(),
                ptr::null(),
            )
        };
        self.check("nvrtcCreateProgram", status)?;
        let program = Guard { nvrtc: self, raw };

        // SAFETY: the program is alive. The count is the number of options.
        let status =
            unsafe { (self.compile)(program.raw, pointers.len() as c_int, pointers.as_ptr()) };
        if status == COMPILATION {
            let log = self.fetch(&program, "nvrtcGetProgramLog", self.log_size, self.log)?;
            let log = String::from_utf8_lossy(&log).trim_end_matches(['\0', '\n']).to_owned();
            return Err(Error::Compile { log });
        }
        self.check("nvrtcCompileProgram", status)?;
        match target {
            Target::Exact(_) => self.fetch(&program, "nvrtcGetCUBIN", self.cubin_size, self.cubin),
            Target::Virtual(_) => self.fetch(&program, "nvrtcGetPTX", self.ptx_size, self.ptx),
        }
    }

    fn fetch(
        &self,
        program: &Guard<'_>,
        call: &'static str,
        size: GetSize,
        get: GetBytes,
    ) -> Result<Vec<u8>> {
        let mut bytes = 0usize;
        // SAFETY: the program is alive. The call writes one number.
        self.check(call, unsafe { size(program.raw, &mut bytes) })?;
        let mut content = vec![0u8; bytes];
        // SAFETY: the program is alive. The buffer has the size that NVRTC reported.
        self.check(call, unsafe { get(program.raw, content.as_mut_ptr().cast()) })?;
        Ok(content)
    }

    fn check(&self, call: &'static str, status: Status) -> Result<()> {
        if status == SUCCESS {
            return Ok(());
        }
        // SAFETY: the call returns a static string, or null, for every number.
        let words = unsafe { (self.words)(status) };
        let problem = if words.is_null() {
            format!("status {status}")
        } else {
            // SAFETY: the pointer is not null. The string is static and ends with a NUL byte.
            unsafe { CStr::from_ptr(words) }.to_string_lossy().into_owned()
        };
        Err(Error::Device { call, problem })
    }
}

/// NVRTC program that is destroyed on every return path.
struct Guard<'a> {
    nvrtc: &'a Nvrtc,
    raw: Program,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        // SAFETY: the program was created once and is destroyed once.
        unsafe { (self.nvrtc.destroy)(&mut self.raw) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_architecture_is_compiled_for_the_newest_older_one() {
        // Architectures of NVRTC 12.9, which does not support sm_110.
        let known = [50, 75, 80, 86, 89, 90, 100, 103, 120, 121];
        assert_eq!(Target::of(90, &known), Some(Target::Exact(90)));
        assert_eq!(Target::of(110, &known), Some(Target::Virtual(103)));
        assert_eq!(Target::of(130, &known), Some(Target::Virtual(121)));
        assert_eq!(Target::of(37, &known), None);
        assert_eq!(Target::of(90, &[]), None);
        assert_eq!(Target::Exact(90).option(), "--gpu-architecture=sm_90");
        assert_eq!(Target::Virtual(103).option(), "--gpu-architecture=compute_103");
    }
}
