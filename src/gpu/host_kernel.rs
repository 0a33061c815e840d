//! Kernels compiled and run on the host, as the reference for the bits that a GPU must produce.
//!
//! A compiled kernel source is a shared object with one entry per kernel: `fused__host`,
//! `tiled__host` and `program__host`. The entry `extern "C" void fused__host(void** params,
//! unsigned gx, gy, gz, bx, by, bz)` launches the kernel with a grid of gx x gy x gz blocks of bx x
//! by x bz threads. `params` are the parameters that `cuLaunchKernel` takes.

use std::cell::RefCell;
use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::ffi::c_void;
use std::fs::{self, DirBuilder};
use std::hash::{Hash, Hasher};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use crate::geometry::Size;

/// Compiler flags that give host code CUDA's semantics: no contraction to fused multiply-add.
/// Kernels read bytes as words, so type-based aliasing is off.
const OPTIONS: [&str; 9] = [
    "-x",
    "c++",
    "-std=c++17",
    "-O1",
    "-ffp-contract=off",
    "-fno-strict-aliasing",
    "-fPIC",
    "-shared",
    "-Wall",
];

/// C++ compiler of this machine: `$CXX`, or `c++`.
pub struct HostCompiler {
    command: String,
    /// Folder that keeps compiled shared objects for other processes.
    folder: Option<PathBuf>,
    kernels: Mutex<HashMap<u64, Arc<Compiled>>>,
}

/// Kernel that one thread compiles while others wait for it. `None` if it is not compiled yet.
type Compiled = Mutex<Option<Arc<HostKernel>>>;

/// Reason why a kernel was not compiled.
#[derive(Debug)]
pub enum CompileError {
    /// The compiler rejects the source. Contains the compiler's log.
    Refused(String),
    /// The compiler does not run, a file cannot be written, or the shared object cannot be loaded.
    Unusable(String),
}

impl HostCompiler {
    /// Keeps shared objects in this folder for later processes. Only this user must be able to
    /// write to the folder, because its contents are executed.
    pub fn keeping_in(folder: impl Into<PathBuf>) -> io::Result<Self> {
        let folder = folder.into();
        fs::create_dir_all(&folder)?;
        Ok(Self::new(Some(folder)))
    }

    /// The compiler that all callers in this process share. Its kernels stay loaded until the
    /// process ends, and no files remain.
    pub fn of_process() -> &'static Self {
        static COMPILER: LazyLock<HostCompiler> = LazyLock::new(|| HostCompiler::new(None));
        &COMPILER
    }

    /// Returns `self` if the compiler runs and has a folder for its files.
    pub fn runs(&self) -> io::Result<&Self> {
        if self.folder.is_none() {
            Temporary::new()?;
        }
        match Command::new(&self.command).arg("--version").output() {
            Ok(_) => Ok(self),
            Err(error) => Err(io::Error::new(error.kind(), no_compiler(&self.command, &error))),
        }
    }

    fn new(folder: Option<PathBuf>) -> Self {
        let command = std::env::var("CXX").unwrap_or_else(|_| "c++".into());
        Self { command, folder, kernels: Mutex::default() }
    }

    /// Compiles the kernel source `text`, or returns a kernel that was compiled before. `name` is
    /// used in error messages.
    ///
    /// # Errors
    ///
    /// [`CompileError`]. Compiler warnings count as errors.
    pub fn compile(&self, name: &str, text: &str) -> Result<Arc<HostKernel>, CompileError> {
        let mut hasher = DefaultHasher::new();
        (text, &self.command, OPTIONS).hash(&mut hasher);
        let hash = hasher.finish();
        let compiled = lock(&self.kernels).entry(hash).or_default().clone();
        let mut compiled = lock(&compiled);
        if let Some(kernel) = &*compiled {
            return Ok(kernel.clone());
        }
        let kernel = Arc::new(match &self.folder {
            Some(folder) => self.load_or_write(folder, hash, name, text)?,
            None => {
                let folder = Temporary::new().map_err(unusable)?;
                let object = folder.0.join("kernel.so");
                self.write(&folder.0, name, text, &object)?;
                // A loaded shared object still works after its file is deleted.
                HostKernel::load(&object)?
            }
        });
        *compiled = Some(kernel.clone());
        Ok(kernel)
    }

    fn load_or_write(
        &self,
        folder: &Path,
        hash: u64,
        name: &str,
        text: &str,
    ) -> Result<HostKernel, CompileError> {
        let object = folder.join(format!("{hash:016x}.so"));
        if !object.exists() {
            self.write(folder, name, text, &object)?;
        }
        HostKernel::load(&object)
    }

    /// Compiles to a temporary name in `folder` and renames the file, because other processes may
    /// compile the same kernel at the same time.
    fn write(
        &self,
        folder: &Path,
        name: &str,
        text: &str,
        done: &Path,
    ) -> Result<(), CompileError> {
        let unique = unique_name();
        let source = folder.join(format!("{unique}.cu"));
        let object = folder.join(format!("{unique}.so"));
        fs::write(&source, text).map_err(unusable)?;
        let mut command = Command::new(&self.command);
        let output = command.args(OPTIONS).arg(&source).arg("-o").arg(&object).output();
        let output =
            output.map_err(|error| CompileError::Unusable(no_compiler(&self.command, &error)))?;
        let log = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() || !log.is_empty() {
            return Err(CompileError::Refused(format!("{} on {name}:\n{log}", self.command)));
        }
        fs::rename(&object, done).map_err(unusable)?;
        fs::remove_file(&source).map_err(unusable)
    }
}

/// Temporary folder, which only this user can read. Dropping it deletes it.
struct Temporary(PathBuf);

impl Temporary {
    fn new() -> io::Result<Self> {
        let folder = std::env::temp_dir().join(format!("feedwater-kernels-{}", unique_name()));
        // An earlier process with this process number may have left the folder. If the folder
        // belongs to another user, it cannot be removed, and `create` fails.
        let _ = fs::remove_dir_all(&folder);
        DirBuilder::new().mode(0o700).create(&folder)?;
        Ok(Self(folder))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns a name that no other process and no earlier call uses.
fn unique_name() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn unusable(error: io::Error) -> CompileError {
    CompileError::Unusable(error.to_string())
}

fn no_compiler(command: &str, error: &io::Error) -> String {
    format!(
        "the C++ compiler {command:?} does not run: {error}; install g++ or clang, or set CXX to a compiler"
    )
}

/// Launch configuration of a tiled kernel.
#[derive(Clone, Copy, Debug)]
pub struct Tiles {
    /// Number of tiles in a row.
    pub columns: u32,
    /// Number of rows of tiles.
    pub rows: u32,
    /// Number of threads per block.
    pub threads: u32,
    /// Shared memory per block in bytes, at most 48 KiB.
    pub shared_bytes: u32,
}

type Launch = unsafe extern "C" fn(*mut *mut c_void, u32, u32, u32, u32, u32, u32);

/// Compiled kernel, loaded into this process.
pub struct HostKernel {
    library: libloading::Library,
}

impl HostKernel {
    fn load(path: &Path) -> Result<Self, CompileError> {
        // SAFETY: the object was compiled from a kernel source, which has no initialisers and no
        // destructors.
        let library = unsafe { libloading::Library::new(path) };
        let library = library.map_err(|error| CompileError::Unusable(error.to_string()))?;
        Ok(Self { library })
    }

    /// Launches the kernel `fused` for `count` samples with outputs of `size`, in blocks of `block`
    /// threads. `samples` holds the samples' parameters. A launch is only as safe as the kernel's
    /// source and the addresses in these parameters.
    pub fn launch(&self, samples: &[u8], count: usize, size: Size, block: (u32, u32)) {
        self.launch_named("fused", samples, count, size, block);
    }

    /// Launches the kernel `name` like [`launch`](Self::launch).
    ///
    /// # Panics
    /// Panics if the source has no kernel of this name.
    pub fn launch_named(
        &self,
        name: &str,
        samples: &[u8],
        count: usize,
        size: Size,
        block: (u32, u32),
    ) {
        let (gx, gy) = (size.width.div_ceil(block.0), size.height.div_ceil(block.1));
        let grid = [gx, gy, count as u32];
        self.run(name, (samples, count), size, 0, grid, block);
    }

    /// Launches the kernel `tiled`.
    ///
    /// # Panics
    /// Panics if the source has no kernel `tiled`.
    pub fn launch_tiled(&self, samples: &[u8], count: usize, size: Size, tiles: Tiles) {
        let Tiles { columns, rows, threads, shared_bytes } = tiles;
        let grid = [columns, rows, count as u32];
        self.run("tiled", (samples, count), size, shared_bytes, grid, (threads, 1));
    }

    /// Launches the kernel `program` with `blocks` blocks for each of `count` samples. `numbers`
    /// are the kernel's last two arguments: the pass and the stage.
    ///
    /// # Panics
    /// Panics if the source has no kernel `program`.
    pub fn launch_program(
        &self,
        samples: &[u8],
        (count, blocks): (usize, u32),
        numbers: [i32; 2],
        threads: u32,
    ) {
        let [pass, stage] = numbers.map(|number| number as u32);
        let grid = [blocks, 1, count as u32];
        self.run("program", (samples, count), Size::new(pass, stage), 0, grid, (threads, 1));
    }

    /// Launches the kernel `name` with `blocks` blocks of `threads` threads for each of `count`
    /// images.
    ///
    /// # Panics
    /// Panics if the source has no kernel of this name.
    pub fn launch_blocks(
        &self,
        name: &str,
        images: &[u8],
        (count, blocks): (usize, u32),
        threads: u32,
    ) {
        let grid = [blocks, 1, count as u32];
        self.run(name, (images, count), Size::default(), 0, grid, (threads, 1));
    }

    fn run(
        &self,
        name: &str,
        (samples, count): (&[u8], usize),
        size: Size,
        shared_bytes: u32,
        [gx, gy, gz]: [u32; 3],
        (bx, by): (u32, u32),
    ) {
        let mut pointer = samples.as_ptr();
        let (mut count, mut width, mut height, mut shared_bytes) =
            (count as i32, size.width as i32, size.height as i32, shared_bytes as i32);
        // Only the tiled kernel reads the last parameter.
        let mut params: [*mut c_void; 5] = [
            (&raw mut pointer).cast(),
            (&raw mut count).cast(),
            (&raw mut width).cast(),
            (&raw mut height).cast(),
            (&raw mut shared_bytes).cast(),
        ];
        // SAFETY: the entry has the signature in the module's documentation. The files in kernels/
        // declare it.
        let launch = unsafe { self.library.get::<Launch>(format!("{name}__host\0").as_bytes()) };
        let launch = launch.expect("a compiled kernel has the entry");
        // SAFETY: the arguments have the kernel's types. The caller is responsible for the source
        // and its parameters, as on a device.
        unsafe { launch(params.as_mut_ptr(), gx, gy, gz, bx, by, 1) };
    }
}

/// Buffer that ends directly before an unreadable memory page. Tests use it to detect reads past
/// the end. A buffer whose length is a multiple of 16 also begins at a multiple of 16.
pub struct Guarded {
    mapping: *mut u8,
    /// Number of readable bytes of the mapping. One unreadable memory page follows.
    readable: usize,
    page: usize,
    len: usize,
}

impl Guarded {
    /// Allocates `len` zeroed bytes.
    ///
    /// # Panics
    /// Panics if the system does not have enough memory.
    pub fn new(len: usize) -> Self {
        // SAFETY: `sysconf` only returns a constant of the system.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        let readable = len.next_multiple_of(page);
        let unused = UNUSED.with_borrow_mut(|unused| {
            let at = unused.iter().position(|it| it.readable == readable)?;
            Some(unused.swap_remove(at))
        });
        if let Some(mut guarded) = unused {
            guarded.len = len;
            guarded.bytes_mut().fill(0);
            return guarded;
        }
        let (access, kind) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: creates a new mapping, to which no other pointers exist.
        let mapping =
            unsafe { libc::mmap(std::ptr::null_mut(), readable + page, access, kind, -1, 0) };
        assert_ne!(mapping, libc::MAP_FAILED, "{}", io::Error::last_os_error());
        let mapping = mapping.cast::<u8>();
        // SAFETY: this is the last page of the mapping.
        let guarded =
            unsafe { libc::mprotect(mapping.add(readable).cast(), page, libc::PROT_NONE) };
        assert_eq!(guarded, 0, "{}", io::Error::last_os_error());
        Self { mapping, readable, page, len }
    }

    /// Address of the first byte.
    pub fn as_ptr(&self) -> *const u8 {
        // SAFETY: within the mapping, whose readable part has at least `len` bytes.
        unsafe { self.mapping.add(self.readable - self.len) }
    }

    /// Returns the bytes.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: this is the end of the readable part. The mapping belongs to this value alone.
        unsafe { std::slice::from_raw_parts_mut(self.as_ptr().cast_mut(), self.len) }
    }
}

/// Maximum number of unused mappings that a thread keeps, and their largest size in bytes. A test
/// that makes thousands of small buffers per second would else spend half of its time in the
/// system.
const MOST_UNUSED: usize = 64;
const MOST_UNUSED_BYTES: usize = 1 << 16;

thread_local! {
    /// Unused mappings of the thread.
    static UNUSED: RefCell<Vec<Guarded>> = const { RefCell::new(Vec::new()) };
}

impl Drop for Guarded {
    fn drop(&mut self) {
        let Self { mapping, readable, page, len } = *self;
        let is_kept = readable <= MOST_UNUSED_BYTES
            && UNUSED.try_with(|unused| match unused.try_borrow_mut() {
                Ok(mut unused) => {
                    if unused.len() == MOST_UNUSED {
                        // Cannot come back, because `unused` is borrowed.
                        drop(unused.remove(0));
                    }
                    unused.push(Self { mapping, readable, page, len });
                    true
                }
                Err(_) => false,
            }) == Ok(true);
        if !is_kept {
            // SAFETY: `new` mapped the readable part and one more page, and no other value has the
            // mapping.
            unsafe { libc::munmap(mapping.cast(), readable + page) };
        }
    }
}
