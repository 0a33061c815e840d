//! GPU kernels: compiled from source for the device, cached on disk, and launched with checked
//! arguments.

use std::ffi::{CString, c_int, c_void};
use std::sync::Arc;

use cudarc::driver::{result, sys};

use super::library;
use super::library_name::LibraryName as Name;
use super::nvrtc::{Nvrtc, Target};
use super::pool::DeviceBuffer;
use super::shape::{LaunchGoal, Multiprocessors, Shape};
use super::stream::LastUses;
use super::{Device, Stream, cache, driver};
use crate::error::{Error, Result};
use crate::footprint::counted;
use crate::geometry::Size;

/// Name of the kernel whose blocks compute tiles.
pub const TILED: &str = "tiled";

/// Name of the kernel whose threads compute one pixel each. Every source contains this kernel.
pub const FUSED: &str = "fused";

/// Name of the kernel that executes the chain in passes, which consist of stages. Each stage is one
/// launch.
pub const PROGRAM: &str = "program";

/// Loaded kernel with the signature `extern "C" __global__ void name(const Sample* samples, int
/// count, int width, int height)`. Each thread computes one pixel of the output. `blockIdx.z` is
/// the sample. The last two arguments of the kernel [`PROGRAM`] are the pass and the stage.
///
/// The kernel [`TILED`] has one more parameter, `int shared_bytes`. Each of its blocks computes a
/// tile of the output. The sides of a tile are multiples of 16 pixels. On devices that have no
/// instructions for matrix products of bytes, the kernel `fused` of the same source is loaded
/// instead.
#[derive(Debug)]
pub struct Kernel {
    module: sys::CUmodule,
    function: sys::CUfunction,
    sample_bytes: usize,
    blocks: Blocks,
    /// Events after the last launches of this kernel. The code must not be unloaded before these
    /// launches have ended.
    launches: LastUses,
    device: Arc<Device>,
}

/// Part of the output that one block of the kernel computes.
#[derive(Clone, Copy, Debug)]
enum Blocks {
    Pixels,
    /// A tile, whose size depends on these properties of the GPU.
    Tile(Multiprocessors),
    Program,
}

/// First compute capability (Turing) with matrix products of bytes, which tiled kernels use. For
/// older devices, sources omit the tiled kernel.
const PRODUCTS_SINCE: (u32, u32) = (7, 5);

// SAFETY: with the context bound, every thread may use module and function handles (CUDA driver
// API, "Module Management").
unsafe impl Send for Kernel {}
// SAFETY: every thread may use module and function handles with the context bound. A lock protects
// the list of launches.
unsafe impl Sync for Kernel {}

impl Kernel {
    /// Compiles a source for this device, or reads the compiled code of an earlier run from the
    /// cache. Loads the function `function_name`. `sample_bytes` is the size of the source's
    /// `Sample`.
    ///
    /// # Errors
    /// [`Error::Compile`] with the compiler's log. [`Error::Unavailable`] if there is neither NVRTC
    /// nor a cached result. [`Error::Device`] if the driver rejects the code.
    pub fn load(
        device: &Arc<Device>,
        source: &str,
        function_name: &str,
        sample_bytes: usize,
    ) -> Result<Self> {
        Self::from_code(device, &compile(device, source)?, function_name, sample_bytes)
    }

    /// Compiles a source like [`load`](Self::load), once for all these functions.
    ///
    /// # Errors
    /// Returns the same errors as [`load`](Self::load).
    pub fn load_all(
        device: &Arc<Device>,
        source: &str,
        function_names: impl IntoIterator<Item = &'static str>,
        sample_bytes: usize,
    ) -> Result<Vec<Self>> {
        let code = compile(device, source)?;
        let load = |name| Self::from_code(device, &code, name, sample_bytes);
        function_names.into_iter().map(load).collect()
    }

    fn from_code(
        device: &Arc<Device>,
        code: &[u8],
        function_name: &str,
        sample_bytes: usize,
    ) -> Result<Self> {
        let (function_name, blocks) = match function_name {
            TILED if device.capability() < PRODUCTS_SINCE => (FUSED, Blocks::Pixels),
            TILED => (TILED, Blocks::Tile(device.multiprocessors()?)),
            PROGRAM => (PROGRAM, Blocks::Program),
            other => (other, Blocks::Pixels),
        };
        let _entered = device.enter()?;
        // SAFETY: NVRTC produced a complete cubin, or PTX with its final NUL. The cache's digest
        // excludes damaged code. The driver copies it.
        let module = unsafe { result::module::load_data(code.as_ptr().cast::<c_void>()) };
        let module = driver("cuModuleLoadData", module)?;
        // From here on, `drop` unloads the module.
        let function = std::ptr::null_mut();
        let launches = LastUses::default();
        let mut kernel =
            Self { module, function, sample_bytes, blocks, launches, device: device.clone() };
        let name = CString::new(function_name).map_err(|_| Error::Internal {
            problem: format!("the function name {function_name:?} contains a NUL byte"),
        })?;
        // SAFETY: the module is loaded.
        let function = unsafe { result::module::get_function(module, name) };
        kernel.function = driver("cuModuleGetFunction", function)?;
        if let Blocks::Tile(on) = blocks {
            use sys::CUfunction_attribute::{
                CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES as MOST,
                CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT as CARVEOUT,
            };
            kernel.set(MOST, Shape::smallest(on).shared_bytes)?;
            kernel.set(CARVEOUT, Shape::carveout(on))?;
        }
        Ok(kernel)
    }

    /// Enqueues an empty launch. The driver loads a kernel's code lazily: the first launch may
    /// allocate device memory and wait for the context (CUDA programming guide, "Lazy Loading").
    ///
    /// # Errors
    /// [`Error::Device`] if the driver refuses the launch.
    pub fn warm_up(&self, stream: &Stream) -> Result<()> {
        self.enqueue(stream, 0, 0, [1; 2], self.shape(LaunchGoal::Latency, 1, 1, 1))
    }

    fn set(&self, attribute: sys::CUfunction_attribute, value: u32) -> Result<()> {
        // SAFETY: the function belongs to the loaded module.
        let set = unsafe {
            result::function::set_function_attribute(self.function, attribute, value as c_int)
        };
        driver("cuFuncSetAttribute", set)
    }

    /// Enqueues a launch for [`LaunchGoal::Latency`]. It computes outputs of `width` x `height`
    /// pixels for `count` samples, whose descriptions begin at byte `samples_offset` of `samples`.
    /// With 0 samples nothing is launched.
    ///
    /// The caller is responsible for the addresses in the samples' descriptions. Until the kernel
    /// has finished, these addresses must point to buffers that contain the kernel's input and are
    /// large enough for its output.
    ///
    /// # Errors
    /// [`Error::Internal`] if the descriptions exceed the buffer, or if the grid exceeds CUDA's
    /// limits (65535 samples, 524280 rows).
    pub fn launch(
        &self,
        stream: &Stream,
        samples: &DeviceBuffer,
        samples_offset: usize,
        count: u32,
        width: u32,
        height: u32,
    ) -> Result<()> {
        let (size, goal) = (Size::new(width, height), LaunchGoal::Latency);
        self.launch_for(goal, stream, samples, samples_offset, count, size)
    }

    /// Enqueues a launch like [`launch`](Self::launch), with tiles for the goal `goal`.
    ///
    /// # Errors
    /// Returns the same errors as [`launch`](Self::launch).
    pub fn launch_for(
        &self,
        goal: LaunchGoal,
        stream: &Stream,
        samples: &DeviceBuffer,
        samples_offset: usize,
        count: u32,
        size: Size,
    ) -> Result<()> {
        let shape = self.shape(goal, count, size.width, size.height);
        self.launch_shape(stream, samples, samples_offset, count, size, shape)
    }

    /// Enqueues a launch like [`launch`](Self::launch), with the given grid and block. The kernel
    /// must support their sizes.
    ///
    /// # Errors
    /// Returns the same errors as [`launch`](Self::launch).
    pub fn launch_shape(
        &self,
        stream: &Stream,
        samples: &DeviceBuffer,
        samples_offset: usize,
        count: u32,
        size: Size,
        shape: Shape,
    ) -> Result<()> {
        let Size { width, height } = size;
        if count == 0 || width == 0 || height == 0 {
            return Ok(());
        }
        let address = self.address_of(samples, samples_offset, count)?;
        let Shape { grid, .. } = shape;
        if grid.1 > MAX_GRID || grid.2 > MAX_GRID || width > i32::MAX as u32 {
            let count = counted(count, "sample");
            let problem =
                format!("a launch of {count}, {width}x{height} pixels each, exceeds CUDA's limits");
            return Err(Error::Internal { problem });
        }
        self.enqueue(stream, address, count, [width as c_int, height as c_int], shape)
    }

    /// Enqueues a launch of the kernel [`PROGRAM`] with `blocks` blocks for each of `count`
    /// samples. The samples are described as for [`launch`](Self::launch). `numbers` are the
    /// kernel's last two arguments: the pass and the stage.
    ///
    /// # Errors
    /// Returns the same errors as [`launch`](Self::launch).
    pub fn launch_program(
        &self,
        stream: &Stream,
        samples: &DeviceBuffer,
        samples_offset: usize,
        (count, blocks): (u32, u32),
        numbers: [c_int; 2],
    ) -> Result<()> {
        let shape = Shape::program(blocks, count);
        self.launch_grid(stream, (samples, samples_offset), count, numbers, shape)
    }

    /// Enqueues a launch of `blocks` blocks of `threads` threads for each of `count` samples, which
    /// are described as for [`launch`](Self::launch). The kernel's last two arguments are 0.
    ///
    /// # Errors
    /// Returns the same errors as [`launch`](Self::launch).
    pub fn launch_blocks(
        &self,
        stream: &Stream,
        samples: &DeviceBuffer,
        samples_offset: usize,
        (count, blocks): (u32, u32),
        threads: u32,
    ) -> Result<()> {
        let shape = Shape { grid: (blocks, 1, count), block: (threads, 1), shared_bytes: 0 };
        self.launch_grid(stream, (samples, samples_offset), count, [0; 2], shape)
    }

    /// Enqueues a launch whose grid has blocks in a row for each of `count` samples.
    fn launch_grid(
        &self,
        stream: &Stream,
        (samples, offset): (&DeviceBuffer, usize),
        count: u32,
        numbers: [c_int; 2],
        shape: Shape,
    ) -> Result<()> {
        let blocks = shape.grid.0;
        if count == 0 || blocks == 0 {
            return Ok(());
        }
        let address = self.address_of(samples, offset, count)?;
        if count > MAX_GRID || blocks > i32::MAX as u32 {
            let count = counted(count, "sample");
            let problem =
                format!("a launch of {count}, {blocks} blocks each, exceeds CUDA's limits");
            return Err(Error::Internal { problem });
        }
        self.enqueue(stream, address, count, numbers, shape)
    }

    /// Returns the address of the descriptions of `count` samples. Returns an error if the
    /// descriptions extend beyond the buffer.
    fn address_of(&self, samples: &DeviceBuffer, offset: usize, count: u32) -> Result<u64> {
        let end = (count as usize).checked_mul(self.sample_bytes);
        let end = end.and_then(|bytes| bytes.checked_add(offset));
        if end.is_none_or(|end| end > samples.len()) {
            let problem = format!(
                "the parameters of {} ({} bytes each, from offset {offset}) do not fit into a \
                 buffer of {} bytes",
                counted(count, "sample"),
                self.sample_bytes,
                samples.len()
            );
            return Err(Error::Internal { problem });
        }
        Ok(samples.address() + offset as u64)
    }

    fn shape(&self, goal: LaunchGoal, count: u32, width: u32, height: u32) -> Shape {
        match self.blocks {
            Blocks::Tile(on) => Shape::tiles(on, goal, count, width, height),
            Blocks::Pixels => Shape::pixels(count, width, height),
            Blocks::Program => Shape::program(1, count),
        }
    }

    /// Enqueues a launch whose sizes were checked against CUDA's limits.
    fn enqueue(
        &self,
        stream: &Stream,
        mut address: u64,
        count: u32,
        [mut width, mut height]: [c_int; 2],
        Shape { grid, block, shared_bytes }: Shape,
    ) -> Result<()> {
        let mut count = count as c_int;
        let mut shared = shared_bytes as c_int;
        let mut arguments: [*mut c_void; 5] = [
            (&raw mut address).cast(),
            (&raw mut count).cast(),
            (&raw mut width).cast(),
            (&raw mut height).cast(),
            (&raw mut shared).cast(),
        ];
        // Only the tiled kernel has the last parameter.
        let tiled = matches!(self.blocks, Blocks::Tile(_));
        let arguments = if tiled { &mut arguments[..] } else { &mut arguments[..4] };
        let _entered = self.device.enter()?;
        // SAFETY: the arguments have the types of the kernel's parameters, and the driver copies
        // them during the call. The handles are alive. The grid is within the limits. The shared
        // memory was requested when the kernel was loaded.
        let launched = unsafe {
            result::launch_kernel(
                self.function,
                grid,
                (block.0, block.1, 1),
                shared_bytes,
                stream.handle(),
                arguments,
            )
        };
        driver("cuLaunchKernel", launched)?;
        self.launches.record(stream)
    }
}

/// Returns the version of the compiler (NVRTC) for a device. Checks that the device can run the
/// compiler's code: if the compiler does not support the device's architecture, a small kernel is
/// compiled for an older architecture and loaded.
///
/// # Errors
/// [`Error::Unavailable`] if there is no compiler for this device; the message says what to
/// install. [`Error::Device`] if the driver rejects code for the older architecture.
pub fn compiler(device: &Arc<Device>) -> Result<(u32, u32)> {
    let nvrtc = Nvrtc::open(device.runtime(), Some(device.driver_version() / 1000))?;
    if let Target::Virtual(_) = nvrtc.target(device.capability())? {
        Kernel::load(device, TRIAL, FUSED, 1)?;
    }
    Ok(nvrtc.version())
}

/// Kernel that does nothing. It is compiled and loaded to check that the device can run the
/// compiler's code.
const TRIAL: &str = r#"
#ifdef __CUDACC__
extern "C" __global__ void fused(const void*, int, int, int) {}
#else
extern "C" void fused__host(void**, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned) {}
#endif
"#;

/// Maximum number of blocks in the second and in the third dimension of a grid (a limit of CUDA).
const MAX_GRID: u32 = 65535;

impl Drop for Kernel {
    fn drop(&mut self) {
        // Waits only for this kernel's launches, not for the whole context: a framework's queue may
        // be long, and `cuCtxSynchronize` fails while one of the context's streams is captured.
        let waited = self.launches.synchronize_in_drop();
        let Ok(_entered) = self.device.enter() else { return };
        if waited.is_err() {
            return self.device.unload_later(self.module);
        }
        // SAFETY: the module was loaded once, is unloaded once, and is not in use.
        let _ = unsafe { result::module::unload(self.module) };
    }
}

/// Compiler options besides the architecture. Contraction to fused multiply-add is off, because
/// results must equal the CPU's bit for bit.
const OPTIONS: [&str; 2] = ["--std=c++17", "--fmad=false"];

/// Compiles a source for this device with NVRTC, or reads the result from the cache. Kernels that
/// are launched by other means than [`Kernel`] use this function too. A cached result is read
/// without opening the compiler library, because opening it takes longer than all other steps.
///
/// The result is a cubin for the device's exact architecture, because a driver may reject the PTX
/// of a newer compiler. If the compiler does not support the architecture, the result is PTX for
/// the newest older architecture, and the driver compiles that PTX. `cuModuleLoadData` accepts
/// cubins and PTX.
///
/// # Errors
/// [`Error::Compile`] with the compiler's log. [`Error::Unavailable`] if NVRTC is missing, or if
/// the device is older than every architecture that NVRTC supports.
pub fn compile(device: &Device, source: &str) -> Result<Vec<u8>> {
    let (major, minor) = device.capability();
    let architecture = format!("sm_{major}{minor}");
    let cuda_major = device.driver_version() / 1000;
    let search = library::search_key(device.runtime(), Name::Nvrtc, cuda_major);
    let mut parts = vec![source.as_bytes(), search.as_bytes(), architecture.as_bytes()];
    parts.extend(OPTIONS.iter().map(|option| option.as_bytes()));
    let key = cache::key(&parts);
    let directory = device.runtime().cache_directory();
    if let Some(code) = directory.as_deref().and_then(|it| cache::read(it, &key)) {
        return Ok(code);
    }
    let nvrtc = Nvrtc::open(device.runtime(), Some(cuda_major))?;
    let code = nvrtc.compile(source, nvrtc.target(device.capability())?, &OPTIONS)?;
    let by = nvrtc.file().and_then(|file| cache::Compiler::at(&file));
    if let (Some(directory), Some(by)) = (directory, by) {
        cache::write(&directory, &key, &by, &code);
    }
    Ok(code)
}
