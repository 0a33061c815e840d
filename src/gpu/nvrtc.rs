//! The run-time compiler: C++ text in, machine code for one architecture out.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fs;
use std::path::PathBuf;
use std::ptr;

use super::library::{self, Found};
use super::library_name::LibraryName as Name;
use super::runtime::Runtime;
use crate::error::{Error, Result};

type Program = *mut c_void;
type Status = c_int;

/// The nine NVRTC functions that are needed. They are declared here because cudarc panics if the library is missing
/// and offers only PTX, which an older driver may not be able to read.
#[derive(Debug)]
pub(super) struct Nvrtc {
    found: &'static Found,
    version: (u32, u32),
    create: CreateProgram,
    destroy: unsafe extern "C" fn(*mut Program) -> Status,
    compile: unsafe extern "C" fn(Program, c_int, *const *const c_char) -> Status,
    cubin_size: GetSize,
    cubin: GetBytes,
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

/// NVRTC's statuses for success and for a text with errors.
const SUCCESS: Status = 0;
const COMPILATION: Status = 6;

impl Nvrtc {
    /// Opens the library. `cuda_major` is the driver's CUDA version.
    pub fn open(runtime: &Runtime, cuda_major: Option<u32>) -> Result<Self> {
        let found = library::open(runtime, Name::Nvrtc, cuda_major)?;
        let mut version = (0, 0);
        // SAFETY: the types are those of nvrtc.h, unchanged since CUDA 11.1.
        let nvrtc = unsafe {
            let get_version: unsafe extern "C" fn(*mut c_int, *mut c_int) -> Status =
                found.function("nvrtcVersion")?;
            let status = get_version(&mut version.0, &mut version.1);
            let nvrtc = Self {
                found,
                version: (version.0 as u32, version.1 as u32),
                create: found.function("nvrtcCreateProgram")?,
                destroy: found.function("nvrtcDestroyProgram")?,
                compile: found.function("nvrtcCompileProgram")?,
                cubin_size: found.function("nvrtcGetCUBINSize")?,
                cubin: found.function("nvrtcGetCUBIN")?,
                log_size: found.function("nvrtcGetProgramLogSize")?,
                log: found.function("nvrtcGetProgramLog")?,
                words: found.function("nvrtcGetErrorString")?,
            };
            nvrtc.check("nvrtcVersion", status)?;
            nvrtc
        };
        Ok(nvrtc)
    }

    /// Major and minor version, such as (13, 0).
    pub fn version(&self) -> (u32, u32) {
        self.version
    }

    /// Path or name by which it was opened.
    pub fn path(&self) -> &'static str {
        self.found.path()
    }

    /// File that it was loaded from, if the system reports it: by name the linker may have found it anywhere.
    pub fn file(&self) -> Option<PathBuf> {
        let address = self.compile as usize;
        let maps = fs::read_to_string("/proc/self/maps").ok()?;
        // "from-to rwxp offset device inode   path", addresses in hex.
        let line = maps.lines().find(|line| {
            let range = line.split_once(' ').and_then(|(range, _)| range.split_once('-'));
            let hex = |text| usize::from_str_radix(text, 16);
            range.is_some_and(|(from, to)| {
                matches!((hex(from), hex(to)), (Ok(from), Ok(to)) if (from..to).contains(&address))
            })
        })?;
        line.find('/').map(|start| PathBuf::from(&line[start..]))
    }

    /// Compiles a text to machine code (a cubin).
    ///
    /// # Errors
    /// [`Error::Compile`] with the log if the text has errors.
    pub fn compile(&self, source: &str, options: &[String]) -> Result<Vec<u8>> {
        let text = |text: &str| {
            CString::new(text)
                .map_err(|_| Error::Compile { log: "the kernel text holds a NUL byte".into() })
        };
        let source = text(source)?;
        let options = options.iter().map(|option| text(option)).collect::<Result<Vec<_>>>()?;
        let pointers: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();

        let mut raw = ptr::null_mut();
        // SAFETY: writes one handle; the strings are NUL-terminated; no headers are given.
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

        // SAFETY: the program is alive; there are as many options as is said.
        let status =
            unsafe { (self.compile)(program.raw, pointers.len() as c_int, pointers.as_ptr()) };
        if status == COMPILATION {
            let log = self.fetch(&program, "nvrtcGetProgramLog", self.log_size, self.log)?;
            let log = String::from_utf8_lossy(&log).trim_end_matches(['\0', '\n']).to_owned();
            return Err(Error::Compile { log });
        }
        self.check("nvrtcCompileProgram", status)?;
        self.fetch(&program, "nvrtcGetCUBIN", self.cubin_size, self.cubin)
    }

    fn fetch(
        &self,
        program: &Guard<'_>,
        call: &'static str,
        size: GetSize,
        get: GetBytes,
    ) -> Result<Vec<u8>> {
        let mut bytes = 0usize;
        // SAFETY: the program is alive; writes one number.
        self.check(call, unsafe { size(program.raw, &mut bytes) })?;
        let mut content = vec![0u8; bytes];
        // SAFETY: as above; writes as many bytes as it has just said.
        self.check(call, unsafe { get(program.raw, content.as_mut_ptr().cast()) })?;
        Ok(content)
    }

    fn check(&self, call: &'static str, status: Status) -> Result<()> {
        if status == SUCCESS {
            return Ok(());
        }
        // SAFETY: gives a static string for every number.
        let words = unsafe { (self.words)(status) };
        let problem = if words.is_null() {
            format!("status {status}")
        } else {
            // SAFETY: not null, NUL-terminated, static.
            unsafe { CStr::from_ptr(words) }.to_string_lossy().into_owned()
        };
        Err(Error::Device { call, problem })
    }
}

/// Program that is destroyed on every return path.
struct Guard<'a> {
    nvrtc: &'a Nvrtc,
    raw: Program,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        // SAFETY: created once, destroyed once.
        unsafe { (self.nvrtc.destroy)(&mut self.raw) };
    }
}
