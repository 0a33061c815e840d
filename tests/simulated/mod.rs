//! Simulated versions of CUDA's libraries. They are built with the machine's C++ compiler and
//! loaded instead of the real ones.
//!
//! Each process has one simulated machine. [`exclusive`] gives a test a process of its own. The
//! machine simulates the API and the order of events, but not speed. A comment at the top of each
//! C++ file describes its behaviour.

#![allow(unsafe_code)]

mod counts;
pub mod device_code;
pub mod images;
pub mod launches;
mod libjpeg;
mod nvjpeg_settings;

use std::ffi::{CStr, CString, OsString, c_char, c_int, c_long, c_void};
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::{env, fs, thread};

pub use counts::{SimCounts, SimTotals};
use feedwater::gpu::{LibraryName, Runtime, Stream};
use feedwater::internals::gpu::nvjpeg::{self, Backend};
pub use libjpeg::{Decode, Window};
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use sha2::{Digest, Sha256};

/// The libraries, with the functions that tests call, and the lock that serializes tests.
struct Libraries {
    runtime: Runtime,
    directory: PathBuf,
    driver: Library,
    nvrtc: Library,
    nvjpeg: Library,
    nvml: Library,
    order: Mutex<()>,
}

/// The simulated machine. Only one test at a time has it.
pub struct Simulated {
    libraries: &'static Libraries,
    _order: MutexGuard<'static, ()>,
}

/// When the simulated machine runs the operations that are queued in streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// Operations run only when the host waits for them.
    Lazy,
    /// Immediately.
    Eager,
    /// After any call, operations of any stream may run. The seed decides which.
    Random(u64),
}

/// Readings of the simulated NVML. Their units are percent, bytes, or kilobytes per second.
#[derive(Clone, Copy, Debug)]
pub enum Reading {
    Gpu,
    Jpeg,
    Decoder,
    Used,
    Total,
    Sent,
    Received,
}

/// Simulated duration of an operation in its stream, in nanoseconds: `COPY_NS` for each byte that
/// is copied or set, `KERNEL_NS` for each layer (third dimension) of a kernel's grid, and
/// `DECODE_NS` for each operation of nvJPEG. The values equal those in machine.h.
pub const COPY_NS: u64 = 1;
pub const KERNEL_NS: u64 = 1000;
pub const DECODE_NS: u64 = 5000;

/// Error code of CUDA for [`Simulated::fail`].
pub const OUT_OF_MEMORY: c_int = 2;
pub const LAUNCH_FAILED: c_int = 719;

/// Runs the calling test again in a new process, which simulates a machine of its own, so that
/// tests run in parallel. Returns the machine in the new process. In the process of all tests,
/// returns `None` after the test has passed. Call this at the start of a test, on its thread:
/// `let Some(machine) = exclusive() else { return };`.
///
/// # Panics
///
/// Panics if the test fails in the new process. The message contains the output of that process.
pub fn exclusive() -> Option<Simulated> {
    const MARK: &str = "FEEDWATER_TEST_PROCESS";
    if env::var_os(MARK).is_some() {
        return Some(in_process());
    }
    // In libtest, the thread of a test has the name of the test.
    let thread = thread::current();
    let test = thread.name().expect("exclusive() is called on the thread of the test");
    let output = Command::new(env::current_exe().unwrap())
        .args([test, "--exact", "--include-ignored", "--nocapture", "--test-threads=1"])
        .env(MARK, "1")
        .output()
        .unwrap();
    let [text, problem] = [output.stdout, output.stderr].map(String::from_utf8);
    let (text, problem) = (text.unwrap(), problem.unwrap());
    // Also checks that one test has passed, because the program would succeed without any test too.
    let passed = output.status.success() && text.contains(" 1 passed");
    assert!(passed, "{test}, {}: {text}{problem}", output.status);
    print!("{text}{problem}");
    None
}

/// Returns the simulated machine of this process after a reset. Waits until another test has
/// dropped it.
pub fn in_process() -> Simulated {
    let libraries = install();
    let order = libraries.order.lock().unwrap_or_else(PoisonError::into_inner);
    let machine = Simulated { libraries, _order: order };
    machine.restart();
    machine
}

/// Returns a command that imitates a successful check of the engines' windows.
pub fn checking_program() -> [OsString; 2] {
    ["echo", "windows: begun windows: equal"].map(OsString::from)
}

/// Returns a runtime that uses the simulated libraries.
pub fn runtime() -> Runtime {
    install().runtime.clone()
}

/// Returns the folder of the simulated libraries, in which tests may store files. Later test runs
/// use the same folder.
pub fn directory() -> &'static Path {
    &install().directory
}

/// Returns the environment variables with which another program uses the simulated libraries and
/// their kernel cache. Each process simulates a machine of its own. So tests that only start
/// programs can run in parallel, and need no [`exclusive`] machine.
pub fn environment() -> [(&'static str, PathBuf); 4] {
    let files = [
        ("FEEDWATER_LIBCUDA", "libcuda.so"),
        ("FEEDWATER_LIBNVRTC", "libnvrtc.so"),
        ("FEEDWATER_LIBNVJPEG", "libnvjpeg.so"),
        ("FEEDWATER_CACHE", "kernels"),
    ];
    files.map(|(variable, file)| (variable, directory().join(file)))
}

impl Simulated {
    /// Resets the machine with its counters and injected failures.
    pub fn restart(&self) {
        nvjpeg::forget_backends();
        self.call(&self.libraries.driver, "sim_reset", |f: extern "C" fn()| f());
        self.capturing(false);
        self.compiler_knows(&[75, 80, 86, 89, 90, 100, 120]);
        self.nvjpeg_version(13, 3, 2);
        self.nvjpeg_scratch(false);
        self.hardware_engines(7);
        self.nvjpeg_own(0);
        self.nvjpeg_memory_factors(1, 1);
        self.hopper(true);
        self.lenient(false);
        self.skipping(0);
        self.refusing(0, false);
        self.set_decoder(None);
        self.stray(Backend::Hybrid, 0);
        self.call(&self.libraries.nvml, "sim_nvml_reset", |f: extern "C" fn()| f());
        self.call(&self.libraries.nvjpeg, "sim_nvjpeg_reset", |f: extern "C" fn()| f());
    }

    /// Sets when queued operations run.
    pub fn schedule(&self, schedule: Schedule) {
        let (mode, seed) = match schedule {
            Schedule::Lazy => (0, 0),
            Schedule::Eager => (1, 0),
            Schedule::Random(seed) => (2, seed),
        };
        self.call(&self.libraries.driver, "sim_schedule", |f: extern "C" fn(c_int, u64)| {
            f(mode, seed)
        });
    }

    /// Lets a call of the function `name` fail with `code`: the next call if `nth` is 1, the second
    /// one from now if `nth` is 2. An empty name counts calls of all functions. Names have no
    /// version suffix: `cuMemAlloc`. Functions of nvJPEG fail with "execution failed" instead of
    /// `code`.
    pub fn fail(&self, name: &str, nth: u64, code: c_int) {
        nvjpeg::forget_backends();
        let name = CString::new(name).unwrap();
        self.call(
            &self.libraries.driver,
            "sim_fail",
            |f: extern "C" fn(*const i8, c_long, c_int)| {
                f(name.as_ptr().cast(), nth as c_long, code);
            },
        );
    }

    /// Returns the number of calls of a function since the reset.
    pub fn calls(&self, name: &str) -> u64 {
        let name = CString::new(name).unwrap();
        self.call(&self.libraries.driver, "sim_calls", |f: extern "C" fn(*const i8) -> u64| {
            f(name.as_ptr().cast())
        })
    }

    /// Returns the counters of the machine.
    pub fn counts(&self) -> SimCounts {
        let mut counts = SimCounts::default();
        self.call(&self.libraries.driver, "sim_counts", |f: extern "C" fn(*mut SimCounts)| {
            f(&mut counts)
        });
        counts
    }

    /// Sets the number of GPUs. After the reset, there is 1.
    pub fn devices(&self, count: c_int) {
        self.call(&self.libraries.driver, "sim_devices", |f: extern "C" fn(c_int)| f(count));
    }

    /// Returns how many bytes of a GPU's memory are in use, and its number of launches since the
    /// reset.
    pub fn on_device(&self, ordinal: c_int) -> (u64, u64) {
        let (mut bytes, mut launches) = (0, 0);
        let get =
            |f: extern "C" fn(c_int, *mut u64, *mut u64)| f(ordinal, &mut bytes, &mut launches);
        self.call(&self.libraries.driver, "sim_on_device", get);
        (bytes, launches)
    }

    /// Limits the device memory and the page-locked memory to `bytes` bytes each. After the reset,
    /// they are unlimited.
    pub fn memory_limit(&self, bytes: u64) {
        self.call(&self.libraries.driver, "sim_memory_limit", |f: extern "C" fn(u64)| f(bytes));
    }

    /// Sets whether another thread is capturing a graph in CUDA's global mode. After the reset, no
    /// thread is. During a capture, threads that have not relaxed their capture mode cannot wait
    /// for events or query them: such calls fail and count as misuse.
    pub fn capturing(&self, wanted: bool) {
        self.call(
            &self.libraries.driver,
            "sim_capture",
            |f: extern "C" fn(c_int)| f(wanted.into()),
        );
    }

    /// From now on, every wait returns this error, as in CUDA after a kernel has caused the error.
    pub fn lose_device(&self, code: c_int) {
        self.call(&self.libraries.driver, "sim_lose_device", |f: extern "C" fn(c_int)| f(code));
    }

    /// Queues an operation that only takes time.
    pub fn work(&self, stream: &Stream, nanoseconds: u64) {
        let put = |f: extern "C" fn(*mut c_void, u64) -> c_int| f(stream.raw(), nanoseconds);
        assert_eq!(self.call(&self.libraries.driver, "sim_work", put), 0);
    }

    /// Sets the architecture of the GPUs (90 for sm_90), and whether the driver accepts PTX. After
    /// the reset, these are 90 and true.
    pub fn architecture(&self, capability: u32, accepts_ptx: bool) {
        self.call(&self.libraries.driver, "sim_architecture", |f: extern "C" fn(u32, c_int)| {
            f(capability, accepts_ptx.into());
        });
    }

    /// Sets the architectures that the run-time compiler supports, in ascending order.
    pub fn compiler_knows(&self, known: &[c_int]) {
        self.call(
            &self.libraries.nvrtc,
            "sim_nvrtc_set_architectures",
            |f: extern "C" fn(*const c_int, c_int)| f(known.as_ptr(), known.len() as c_int),
        );
    }

    /// Returns the architecture of the last compilation in this process, such as `sm_90` or
    /// `compute_90`.
    pub fn compiled_for(&self) -> String {
        self.call(
            &self.libraries.nvrtc,
            "sim_nvrtc_target",
            |f: extern "C" fn() -> *const c_char| {
                // SAFETY: `f` returns a static array with a NUL byte. No test writes to it
                // meanwhile.
                unsafe { CStr::from_ptr(f()) }.to_string_lossy().into_owned()
            },
        )
    }

    /// Queues work that does not end before [`end_work`](Self::end_work). A wait of the host for
    /// this work returns at once, and counts as misuse.
    pub fn endless_work(&self, stream: &Stream) {
        let put = |f: extern "C" fn(*mut c_void) -> c_int| f(stream.raw());
        assert_eq!(self.call(&self.libraries.driver, "sim_endless", put), 0);
    }

    /// Lets calls of the JPEG engines last until [`end_work`](Self::end_work). If the host waits
    /// for such a call, it waits until then.
    pub fn hold_engines(&self) {
        self.call(&self.libraries.driver, "sim_hold_engines", |f: extern "C" fn()| f());
    }

    /// Returns the number of samples that kernels have processed since the process began.
    pub fn samples_run(&self) -> u64 {
        self.call(&self.libraries.driver, "sim_samples_run", |f: extern "C" fn() -> u64| f())
    }

    /// Ends endless work and held calls of the engines.
    pub fn end_work(&self) {
        self.call(&self.libraries.driver, "sim_end_work", |f: extern "C" fn()| f());
    }

    /// Returns the number of launches since the reset whose parameters were uploaded in the
    /// kernel's own stream after a wait for an event. Such an upload is delayed by that wait.
    pub fn late_uploads(&self) -> u64 {
        self.call(&self.libraries.driver, "sim_late_uploads", |f: extern "C" fn() -> u64| f())
    }

    /// Returns how many blocks a multiprocessor could hold at the last launch that used dynamic
    /// shared memory, if only this memory limited the number. Returns 0 before the first such
    /// launch.
    pub fn resident_blocks(&self) -> c_int {
        self.call(&self.libraries.driver, "sim_resident_blocks", |f: extern "C" fn() -> c_int| f())
    }

    /// Returns the number of CUDA sources that were compiled in this process.
    pub fn compilations(&self) -> u64 {
        self.call(&self.libraries.nvrtc, "sim_compilations", |f: extern "C" fn() -> u64| f())
    }

    /// Returns how often the compiler's library was opened in this process.
    pub fn compiler_openings(&self) -> u64 {
        self.call(&self.libraries.nvrtc, "sim_compiler_openings", |f: extern "C" fn() -> u64| f())
    }

    /// Sets the value of a reading of NVML. After the reset, no reading is supported.
    pub fn nvml(&self, reading: Reading, value: i64) {
        self.call(&self.libraries.nvml, "sim_nvml_set", |f: extern "C" fn(c_int, i64)| {
            f(reading as c_int, value)
        });
    }

    /// Returns how many initializations of NVML have not been shut down yet.
    pub fn nvml_users(&self) -> i64 {
        self.call(&self.libraries.nvml, "sim_nvml_initialised", |f: extern "C" fn() -> c_long| f())
    }

    fn call<F: Copy, R>(&self, library: &Library, name: &str, call: impl FnOnce(F) -> R) -> R {
        // SAFETY: `F` is the type of this function in the C++ files of this folder. The library is
        // never closed, so the function stays valid.
        let function = unsafe { library.get::<F>(name.as_bytes()) }.unwrap();
        call(*function)
    }
}

/// Builds the simulated libraries, unless they have already been built from the same sources.
fn install() -> &'static Libraries {
    static LIBRARIES: OnceLock<Libraries> = OnceLock::new();
    LIBRARIES.get_or_init(|| {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("simulated");
        let files = [
            "simulated.h",
            "executor.h",
            "machine.h",
            "cuda.cpp",
            "nvrtc.cpp",
            "nvjpeg.cpp",
            "nvml.cpp",
        ];
        let mut hash = Sha256::new();
        files.iter().for_each(|file| hash.update(fs::read(sources.join(file)).unwrap()));
        hash.update(device_code::version());
        let version: String =
            hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        let directory = temporary_directory().join(format!("simulated-{version}"));
        if !directory.exists() {
            build(&sources, &directory);
        }

        // cudarc and the dynamic linker identify loaded libraries by the name that the library
        // contains (soname). cudarc tries `libcuda.so` first. It must find the simulated library
        // even if a real driver is installed.
        let path = |file: &str| directory.join(file);
        let (driver, nvrtc, nvjpeg) =
            (path("libcuda.so"), path("libnvrtc.so"), path("libnvjpeg.so"));
        let nvml = path("libnvidia-ml.so");
        let runtime = Runtime::default()
            .with_library(LibraryName::Driver, &driver)
            .with_library(LibraryName::Nvrtc, &nvrtc)
            .with_library(LibraryName::NvJpeg, &nvjpeg)
            .with_library(LibraryName::Nvml, &nvml)
            .with_cache_directory(directory.join("kernels"));
        // SAFETY: these libraries are our own, and loading them has no side effects.
        let open =
            |path: PathBuf| unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }.unwrap();
        let (driver, nvrtc, nvjpeg) = (open(driver), open(nvrtc), open(nvjpeg));
        let nvml = open(nvml);
        nvjpeg::set_checking_program(checking_program());
        Libraries { runtime, directory, driver, nvrtc, nvjpeg, nvml, order: Mutex::new(()) }
    })
}

fn build(sources: &Path, directory: &Path) {
    let building = directory.with_extension(process::id().to_string());
    fs::create_dir_all(&building).unwrap();
    for (source, library) in [
        ("cuda.cpp", "libcuda.so"),
        ("nvrtc.cpp", "libnvrtc.so"),
        ("nvjpeg.cpp", "libnvjpeg.so"),
        ("nvml.cpp", "libnvidia-ml.so"),
    ] {
        let mut command = Command::new(env::var_os("CXX").unwrap_or_else(|| "c++".into()));
        command.args([
            "-std=c++17",
            "-O1",
            "-g",
            "-Wall",
            "-fPIC",
            "-shared",
            "-fvisibility=hidden",
        ]);
        command.arg(format!("-Wl,-soname,{library}")).arg("-o").arg(building.join(library));
        command.arg(sources.join(source));
        if ["nvjpeg.cpp", "nvml.cpp"].contains(&source) {
            command.arg("-L").arg(&building).args(["-lcuda", "-Wl,-rpath,$ORIGIN"]);
        }
        let status = command.arg("-ldl").status().expect("a C++ compiler as c++ or in CXX");
        assert!(status.success(), "{source} does not compile");
    }
    if fs::rename(&building, directory).is_err() {
        // Another test process has built the libraries first, so its build is used.
        fs::remove_dir_all(&building).unwrap();
    }
}

/// Returns the folder that Cargo calls `CARGO_TARGET_TMPDIR`, which only programs of tests know
/// when they are compiled. Their place is known: `target/PROFILE/deps/NAME`.
fn temporary_directory() -> PathBuf {
    let program = env::current_exe().unwrap();
    program.ancestors().nth(3).expect("a program in Cargo's target directory").join("tmp")
}
