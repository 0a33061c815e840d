//! Kernels: compiled from text for the device, cached on disk, launched with checked arguments.

use std::ffi::{CString, c_int, c_void};
use std::sync::Arc;

use cudarc::driver::{result, sys};

use super::library;
use super::library_name::LibraryName as Name;
use super::nvrtc::{Nvrtc, Target};
use super::pool::DeviceBuffer;
use super::stream::LastUses;
use super::{Device, Stream, cache, driver};
use crate::error::{Error, Result};
use crate::footprint::counted;
use crate::geometry::Size;

/// Threads per block: columns and rows of the output. A warp covers 32 columns, so neighbouring threads write
/// neighbouring addresses.
pub const BLOCK: (u32, u32) = (32, 8);

/// Name of the kernel whose blocks compute tiles.
pub const TILED: &str = "tiled";

/// Name of the kernel whose threads compute one pixel each. Every text has it.
pub const FUSED: &str = "fused";

/// Name of the kernel whose blocks make one sample each.
pub const PROGRAM: &str = "program";

/// Threads per block of the kernel [`PROGRAM`].
pub const PROGRAM_THREADS: u32 = 512;

/// Loaded kernel `extern "C" __global__ void name(const Sample* samples, int count, int width, int height)`. Each
/// thread computes one pixel of the output; `blockIdx.z` is the sample. Of the kernel [`PROGRAM`], `blockIdx.x` is
/// the sample.
///
/// The kernel named [`TILED`] has one more parameter, `int shared_bytes`. Each of its blocks computes a tile of the
/// output, and the grid divides the output among its blocks in multiples of 16 columns and rows. On devices without
/// matrix products of bytes, `fused` of the same text is loaded instead.
#[derive(Debug)]
pub struct Kernel {
    module: sys::CUmodule,
    function: sys::CUfunction,
    sample_bytes: usize,
    blocks: Blocks,
    /// Launches, whose code must not be unloaded under them.
    launches: LastUses,
    device: Arc<Device>,
}

/// What a block computes.
#[derive(Clone, Copy, Debug)]
enum Blocks {
    Pixels,
    /// A tile, whose size depends on these properties.
    Tile(Multiprocessors),
    Sample,
}

/// Device properties that the launch of a tiled kernel depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Multiprocessors {
    /// Number of multiprocessors.
    pub count: u32,
    /// Shared memory per multiprocessor, in bytes.
    pub shared_bytes: u32,
}

/// Grid and block of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Blocks: columns, rows, samples.
    pub grid: (u32, u32, u32),
    /// Threads per block: columns, rows.
    pub block: (u32, u32),
    /// Shared memory per block, in bytes.
    pub shared_bytes: u32,
}

/// What the tiles of a launch are chosen for. The result is the same bit for bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaunchGoal {
    /// The launch ends soon: low tiles, enough of them for the whole device.
    Latency,
    /// The launch costs the device's other work little: the highest tiles, which need the fewest instructions.
    Throughput,
}

impl Shape {
    /// One thread per pixel of the output.
    pub fn pixels(count: u32, width: u32, height: u32) -> Self {
        let grid = (width.div_ceil(BLOCK.0), height.div_ceil(BLOCK.1), count);
        Self { grid, block: BLOCK, shared_bytes: 0 }
    }

    /// One block per sample.
    pub fn samples(count: u32) -> Self {
        Self { grid: (count, 1, 1), block: (PROGRAM_THREADS, 1), shared_bytes: 0 }
    }

    /// One block per tile.
    ///
    /// A thread's 64 registers let a multiprocessor hold four blocks, which hide each other's latency. So shared
    /// memory per block is a quarter of a multiprocessor's, but 32 to 56 KiB: with less, tiles become strips of few
    /// columns, and 56 KiB suffice for a tile of a photograph. A tile is at most 112 columns wide, 16 per warp, which
    /// is the width of its products. A tile is 16 to 112 rows high, in steps of the 16 rows of a product. The higher it
    /// is, the less work per sample, because the source rows at its edge are summed for its neighbour too. For
    /// [`LaunchGoal::Latency`] it is as high as possible as long as there are 1.5 times as many blocks as run at once.
    pub fn tiles(
        on: Multiprocessors,
        goal: LaunchGoal,
        count: u32,
        width: u32,
        height: u32,
    ) -> Self {
        let share = (on.shared_bytes / BLOCKS).saturating_sub(RESERVED_SHARED);
        let shared_bytes = (share / 1024 * 1024).clamp(32 << 10, MOST_SHARED);
        let columns = width.div_ceil(width.div_ceil(112).max(1)).next_multiple_of(16).max(16);
        let across = width.div_ceil(columns).max(1);
        let threads = 32 * (columns / 16).clamp(4, 8);
        let wanted = match goal {
            LaunchGoal::Latency => {
                (3 * BLOCKS / 2 * on.count.max(1)).div_ceil(count.max(1) * across)
            }
            LaunchGoal::Throughput => 1,
        };
        let rows = height.div_ceil(wanted).next_multiple_of(16).clamp(16, 112);
        let grid = (across, height.div_ceil(rows), count);
        Self { grid, block: (threads, 1), shared_bytes }
    }

    /// For one pixel. Every launch has its shared memory per block.
    fn smallest(on: Multiprocessors) -> Self {
        Self::tiles(on, LaunchGoal::Latency, 1, 1, 1)
    }

    /// Share of a multiprocessor's shared memory that the blocks of a tiled kernel need, in percent. Multiprocessors
    /// divide one memory into L1 cache and shared memory. The driver's own choice need not hold as many blocks as the
    /// registers allow.
    fn carveout(on: Multiprocessors) -> u32 {
        let block = Self::smallest(on).shared_bytes + RESERVED_SHARED;
        let blocks = (on.shared_bytes / block).clamp(1, BLOCKS);
        (100 * blocks * block).div_ceil(on.shared_bytes.max(1)).min(100)
    }
}

/// Blocks of a tiled kernel that a multiprocessor holds at a time.
const BLOCKS: u32 = 4;

/// Shared memory that CUDA reserves per block, in bytes.
const RESERVED_SHARED: u32 = 1 << 10;

/// Maximum shared memory per block of a tiled kernel, in bytes. More than 48 KiB must be requested. Devices whose
/// multiprocessors have four times this plus 4 KiB allow 227 KiB per block (CUDA programming guide, "Compute
/// Capabilities").
const MOST_SHARED: u32 = 56 << 10;

/// First compute capability with matrix products of bytes, which tiled kernels use: Turing. Texts leave the kernel out
/// before it.
const PRODUCTS_SINCE: (u32, u32) = (7, 5);

// SAFETY: module and function handles may be used from every thread with the context bound (CUDA driver API,
// "Module Management").
unsafe impl Send for Kernel {}
// SAFETY: as above; the list of launches is locked.
unsafe impl Sync for Kernel {}

impl Kernel {
    /// Compiles a text for this device, or reads the result of an earlier run from the cache, and loads the function
    /// `function_name`. `sample_bytes` is the size of the text's `Sample`.
    ///
    /// # Errors
    /// [`Error::Compile`] with the compiler's log, [`Error::Unavailable`] without both NVRTC and a cached result,
    /// [`Error::Device`] if the driver rejects the result.
    pub fn load(
        device: &Arc<Device>,
        source: &str,
        function_name: &str,
        sample_bytes: usize,
    ) -> Result<Self> {
        let code = compile(device, source)?;
        let (function_name, blocks) = match function_name {
            TILED if device.capability() < PRODUCTS_SINCE => (FUSED, Blocks::Pixels),
            TILED => (TILED, Blocks::Tile(device.multiprocessors()?)),
            PROGRAM => (PROGRAM, Blocks::Sample),
            other => (other, Blocks::Pixels),
        };
        let _entered = device.enter()?;
        // SAFETY: a whole cubin, or PTX with its final NUL, made by NVRTC; damaged code is refused by the cache's
        // hash. The driver copies it.
        let module = unsafe { result::module::load_data(code.as_ptr().cast::<c_void>()) };
        let module = driver("cuModuleLoadData", module)?;
        // From here on `drop` unloads it.
        let function = std::ptr::null_mut();
        let launches = LastUses::default();
        let mut kernel =
            Self { module, function, sample_bytes, blocks, launches, device: device.clone() };
        let name = CString::new(function_name).map_err(|_| Error::Internal {
            problem: format!("the function name {function_name:?} holds a NUL byte"),
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

    /// Enqueues a launch without samples, which does nothing. The driver loads a kernel's code lazily: the first launch
    /// may allocate device memory and wait for the context (CUDA programming guide, "Lazy Loading").
    ///
    /// # Errors
    /// [`Error::Device`] if the driver refuses.
    pub fn warm_up(&self, stream: &Stream) -> Result<()> {
        self.enqueue(stream, 0, 0, Size::new(1, 1), self.shape(LaunchGoal::Latency, 1, 1, 1))
    }

    fn set(&self, attribute: sys::CUfunction_attribute, value: u32) -> Result<()> {
        // SAFETY: the function was found in the loaded module.
        let set = unsafe {
            result::function::set_function_attribute(self.function, attribute, value as c_int)
        };
        driver("cuFuncSetAttribute", set)
    }

    /// Enqueues a launch for `count` samples, whose descriptions begin at byte `samples_offset` of `samples`, with
    /// outputs of `width` x `height` pixels, for [`LaunchGoal::Latency`]. With 0 samples nothing is launched.
    ///
    /// The caller is responsible for the addresses in the descriptions: until the kernel has finished, they must be of
    /// buffers that hold what it reads and have room for what it writes.
    ///
    /// # Errors
    /// [`Error::Internal`] if the descriptions are not within the buffer or the grid is larger than CUDA's limit
    /// (65535 samples, 524280 rows).
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

    /// Enqueues a launch like [`launch`](Self::launch), for any goal.
    ///
    /// # Errors
    /// As [`launch`](Self::launch).
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

    /// Enqueues a launch like [`launch`](Self::launch), with any grid and block that the kernel allows.
    ///
    /// # Errors
    /// As [`launch`](Self::launch).
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
        let end = (count as usize)
            .checked_mul(self.sample_bytes)
            .and_then(|bytes| bytes.checked_add(samples_offset));
        if end.is_none_or(|end| end > samples.len()) {
            let problem = format!(
                "{} of {} bytes from {samples_offset} on: not in a buffer of {} bytes",
                counted(count, "sample"),
                self.sample_bytes,
                samples.len()
            );
            return Err(Error::Internal { problem });
        }
        let Shape { grid, .. } = shape;
        if grid.1 > MAX_GRID || grid.2 > MAX_GRID || width > i32::MAX as u32 {
            let count = counted(count, "sample");
            let problem = format!("a launch of {count} of {width}x{height} is over CUDA's limits");
            return Err(Error::Internal { problem });
        }
        let address = samples.address() + samples_offset as u64;
        self.enqueue(stream, address, count, size, shape)
    }

    fn shape(&self, goal: LaunchGoal, count: u32, width: u32, height: u32) -> Shape {
        match self.blocks {
            Blocks::Tile(on) => Shape::tiles(on, goal, count, width, height),
            Blocks::Pixels => Shape::pixels(count, width, height),
            Blocks::Sample => Shape::samples(count),
        }
    }

    /// Enqueues a launch whose sizes are within CUDA's limits.
    fn enqueue(
        &self,
        stream: &Stream,
        mut address: u64,
        count: u32,
        size: Size,
        Shape { grid, block, shared_bytes }: Shape,
    ) -> Result<()> {
        let mut count = count as c_int;
        let (mut width, mut height) = (size.width as c_int, size.height as c_int);
        let mut shared = shared_bytes as c_int;
        let mut arguments: [*mut c_void; 5] = [
            (&raw mut address).cast(),
            (&raw mut count).cast(),
            (&raw mut width).cast(),
            (&raw mut height).cast(),
            (&raw mut shared).cast(),
        ];
        // Only a tiled kernel has the last argument.
        let tiled = matches!(self.blocks, Blocks::Tile(_));
        let arguments = if tiled { &mut arguments[..] } else { &mut arguments[..4] };
        let _entered = self.device.enter()?;
        // SAFETY: the arguments have the types of the kernel's parameters, which the driver copies during the call;
        // the handles are alive; the grid is within the limits, and the shared memory was asked for when it was loaded.
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

/// Version of the compiler that is found for a device, after checking that the device can run what it makes: if the
/// compiler does not know the device's architecture, a small kernel is compiled for an older one and loaded.
///
/// # Errors
/// [`Error::Unavailable`] if there is no compiler for this device, with what to install; [`Error::Device`] if the driver
/// rejects code for the older architecture.
pub fn compiler(device: &Arc<Device>) -> Result<(u32, u32)> {
    let nvrtc = Nvrtc::open(device.runtime(), Some(device.driver_version() / 1000))?;
    if let Target::Virtual(_) = nvrtc.target(device.capability())? {
        Kernel::load(device, TRIAL, FUSED, 1)?;
    }
    Ok(nvrtc.version())
}

/// Kernel that does nothing.
const TRIAL: &str = r#"
#ifdef __CUDACC__
extern "C" __global__ void fused(const void*, int, int, int) {}
#else
extern "C" void fused__host(void**, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned) {}
#endif
"#;

/// Maximum number of blocks in the second and third dimension.
const MAX_GRID: u32 = 65535;

impl Drop for Kernel {
    fn drop(&mut self) {
        // Not for the whole context: a framework's queue may be long, and `cuCtxSynchronize` fails while one of the
        // context's streams is captured.
        let waited = self.launches.synchronize_in_drop();
        let Ok(_entered) = self.device.enter() else { return };
        if waited.is_err() {
            return self.device.unload_later(self.module);
        }
        // SAFETY: loaded once, unloaded once, not in use.
        let _ = unsafe { result::module::unload(self.module) };
    }
}

/// Compiler options besides the architecture. Without contraction, because results must equal the CPU's bit for bit.
const OPTIONS: [&str; 2] = ["--std=c++17", "--fmad=false"];

/// Compiles a text for this device with NVRTC, or reads the result from the cache. Also for kernels launched by other
/// means than [`Kernel`]. A cached result is read without opening the compiler library, which alone takes longer than
/// everything else.
///
/// The result is a cubin for the device's exact architecture, because a driver may reject the intermediate code of a
/// newer compiler. If the compiler does not know the architecture, the result is PTX for the newest older one, which
/// the driver compiles. `cuModuleLoadData` takes either.
///
/// # Errors
/// [`Error::Compile`] with the compiler's log, [`Error::Unavailable`] without NVRTC or if the device is older than every
/// architecture that it knows.
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

#[cfg(test)]
mod tests {
    use super::LaunchGoal::{Latency, Throughput};
    use super::*;

    const H200: Multiprocessors = Multiprocessors { count: 132, shared_bytes: 228 << 10 };

    #[test]
    fn for_latency_tiles_are_as_high_as_the_number_of_blocks_allows() {
        let rows = |count| Shape::tiles(H200, Latency, count, 224, 224).grid.1;
        assert_eq!([rows(1), rows(8), rows(64), rows(256), rows(10_000)], [14, 14, 7, 2, 2]);
    }

    #[test]
    fn for_throughput_tiles_have_at_most_112_rows_whatever_the_number_of_samples() {
        let rows = |count, height| Shape::tiles(H200, Throughput, count, 224, height).grid.1;
        assert_eq!([rows(1, 224), rows(16, 224), rows(10_000, 224)], [2, 2, 2]);
        assert_eq!([1, 112, 113, 336, 337].map(|height| rows(16, height)), [1, 1, 2, 3, 4]);
    }

    /// A kernel is set up once for the shared memory and threads of all its launches.
    #[test]
    fn the_goal_changes_only_the_number_of_rows_of_tiles() {
        for (count, width, height) in [(1, 1, 1), (16, 224, 224), (16, 1000, 30)] {
            let [low, high] =
                [Latency, Throughput].map(|goal| Shape::tiles(H200, goal, count, width, height));
            let grid = (high.grid.0, low.grid.1, high.grid.2);
            assert_eq!(low, Shape { grid, ..high });
            assert!(low.grid.1 >= high.grid.1);
        }
    }

    #[test]
    fn a_warp_has_sixteen_columns_of_a_tile() {
        for (width, across, threads) in [
            (1, 1, 128),
            (112, 1, 224),
            (224, 2, 224),
            (256, 3, 192),
            (299, 3, 224),
            (384, 4, 192),
            (1000, 9, 224),
        ] {
            let shape = Shape::tiles(H200, Latency, 256, width, 224);
            assert_eq!((shape.grid.0, shape.block), (across, (threads, 1)), "{width}");
        }
    }

    #[test]
    fn shared_memory_is_within_every_devices_limit() {
        let shared = |kib: u32| {
            let on = Multiprocessors { count: 40, shared_bytes: kib << 10 };
            Shape::tiles(on, Latency, 8, 224, 224).shared_bytes >> 10
        };
        assert_eq!([shared(0), shared(64), shared(164), shared(228)], [32, 32, 40, 56]);
    }

    /// Turing, Ada, A100, Hopper, and a device with more shared memory than four blocks need.
    #[test]
    fn the_carveout_holds_as_many_blocks_as_fit() {
        let carveout =
            |kib: u32| Shape::carveout(Multiprocessors { count: 40, shared_bytes: kib << 10 });
        assert_eq!([64, 100, 164, 228, 456].map(carveout), [52, 99, 100, 100, 50]);
        assert_eq!(carveout(0), 100);
    }
}
