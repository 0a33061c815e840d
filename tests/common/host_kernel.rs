//! Compiles kernel texts for the host and runs them: the device must give the same bits.
//!
//! `compile` creates a shared object with an entry for each kernel of the text,
//! `extern "C" void fused__host(void** params, unsigned gx, gy, gz, bx, by, bz)`: a launch of the kernel with this grid and
//! block, whose `params` have the layout of `cuLaunchKernel`. `tiled__host` is similar.

#![allow(unsafe_code, dead_code)]

use std::collections::hash_map::DefaultHasher;
use std::ffi::c_void;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

use feedwater::geometry::Size;
use feedwater::op::kernel_text::{BLOCK, KernelText};

/// Guarantees of CUDA that a host compiler does not give by default: no contraction to fused multiply-add. The kernels read bytes
/// as words, so strict aliasing must be off.
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

/// Compiles the text to a shared object, unless an earlier run has.
///
/// The compiler is `$CXX`, or `c++`. Without one this panics with instructions: a test that cannot compare must fail.
pub fn compile(text: &KernelText) -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".into());
    let mut hasher = DefaultHasher::new();
    (&text.source, &compiler, OPTIONS).hash(&mut hasher);
    let directory = directory();
    let done = directory.join(format!("{:016x}.so", hasher.finish()));
    if done.exists() {
        return done;
    }
    // Written to a temporary name and renamed, because other tests may compile the same kernel at the same time.
    let unique = format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let source = directory.join(format!("{unique}.cu"));
    let object = directory.join(format!("{unique}.so"));
    std::fs::write(&source, &text.source).expect("the target directory is writable");
    let output = Command::new(&compiler).args(OPTIONS).arg(&source).arg("-o").arg(&object).output();
    let Output { status, stderr, .. } = output.unwrap_or_else(|error| {
        panic!(
            "cannot run the C++ compiler {compiler:?} that compiles kernels for the host: {error}; \
             install g++ or clang, or name one in CXX"
        )
    });
    let log = String::from_utf8_lossy(&stderr);
    assert!(status.success() && log.is_empty(), "{compiler} on {}:\n{log}", text.name);
    std::fs::rename(&object, &done).expect("the target directory is writable");
    std::fs::remove_file(&source).expect("the target directory is writable");
    done
}

fn directory() -> PathBuf {
    // Cargo sets a directory for integration tests and benches, but not for examples.
    let base = option_env!("CARGO_TARGET_TMPDIR").map_or_else(std::env::temp_dir, PathBuf::from);
    let directory = base.join("feedwater-host-kernels");
    std::fs::create_dir_all(&directory).expect("the target directory is writable");
    directory
}

/// Launch of a tiled kernel: its blocks and threads, and the shared memory per block.
#[derive(Clone, Copy, Debug)]
pub struct Tiles {
    /// Number of tiles side by side.
    pub columns: u32,
    /// Number of tiles one below the other.
    pub rows: u32,
    /// Threads per block.
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
    /// Compiles and loads a kernel.
    pub fn new(text: &KernelText) -> Self {
        Self::load(&compile(text))
    }

    /// Loads the result of [`compile`].
    pub fn load(path: &Path) -> Self {
        // SAFETY: the object was compiled from a kernel text, which has no initialisers and no destructors.
        let library = unsafe { libloading::Library::new(path) }.expect("a compiled kernel loads");
        Self { library }
    }

    /// Launches the kernel for `count` samples of `size`, whose parameters begin at `samples`.
    ///
    /// # Safety
    /// The parameters must be those of the kernel's text, and every address in them valid for the launch.
    pub unsafe fn launch(&self, samples: &[u8], count: usize, size: Size) {
        let mut pointer = samples.as_ptr();
        let (mut count, mut width, mut height) =
            (count as i32, size.width as i32, size.height as i32);
        let mut params: [*mut c_void; 4] = [
            (&raw mut pointer).cast(),
            (&raw mut count).cast(),
            (&raw mut width).cast(),
            (&raw mut height).cast(),
        ];
        // SAFETY: the entry's signature is the one above; kernels/fused.cu declares it.
        let launch = unsafe { self.library.get::<Launch>(b"fused__host\0") };
        let launch = launch.expect("a compiled kernel has the entry");
        let (gx, gy) = (size.width.div_ceil(BLOCK.width), size.height.div_ceil(BLOCK.height));
        // SAFETY: the four arguments have the kernel's types; the caller guarantees the rest.
        unsafe { launch(params.as_mut_ptr(), gx, gy, count as u32, BLOCK.width, BLOCK.height, 1) };
    }

    /// Launches the tiled kernel.
    ///
    /// # Safety
    /// As [`HostKernel::launch`]; the text must have that kernel.
    pub unsafe fn launch_tiled(&self, samples: &[u8], count: usize, size: Size, tiles: Tiles) {
        let mut pointer = samples.as_ptr();
        let (mut count, mut width, mut height, mut shared_bytes) =
            (count as i32, size.width as i32, size.height as i32, tiles.shared_bytes as i32);
        let mut params: [*mut c_void; 5] = [
            (&raw mut pointer).cast(),
            (&raw mut count).cast(),
            (&raw mut width).cast(),
            (&raw mut height).cast(),
            (&raw mut shared_bytes).cast(),
        ];
        let Tiles { columns, rows, threads, .. } = tiles;
        // SAFETY: the entry's signature is the one above; kernels/tile.cu declares it.
        let launch = unsafe { self.library.get::<Launch>(b"tiled__host\0") };
        let launch = launch.expect("a compiled kernel has the entry");
        // SAFETY: the five arguments have the kernel's types; the caller guarantees the rest.
        unsafe { launch(params.as_mut_ptr(), columns, rows, count as u32, threads, 1, 1) };
    }
}
