//! Conversion of single images to tensors, for inference without a loader.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use crate::decode::Decoders;
use crate::error::{DataError, Error, Reason, Result};
use crate::op::Chain;
use crate::plan::{
    CacheSettings, DeviceFacts, Facts, Limits, LoaderSettings, Plan, SampleMemory, SamplePlan,
    SampleRoom, Settings, ShardFrom, TargetSettings,
};
use crate::random::SampleKey;
use crate::source::check_size;
use crate::tensor::{DType, Layout, Tensor, TensorShape};
use crate::transform::{HostTransform, PlannedImage};

/// Maximum size of a set of buffers that is kept for reuse, in bytes.
const KEPT_BYTES: usize = 32 << 20;

/// Key for random numbers. It is never used, because random operators are rejected.
const NO_DRAWS: SampleKey = SampleKey { seed: 0, epoch: 0, index: 0 };

/// Turns one encoded image into a tensor on the CPU, for inference with the same pixels as in
/// training.
///
/// For the same bytes, chain and settings, a [`Loader`](crate::loader::Loader) on the CPU returns
/// the same tensor, bit for bit. An invalid image gives the same [`DataError`] with the same
/// reason.
///
/// Batch operators and views of the chain are ignored.
///
/// All methods take `&self`, and many threads may call them at once. Each call takes a set of
/// buffers from a pool. The pool grows to the largest number of concurrent calls. If the buffers of
/// a call exceed 32 MiB, they are freed after the call, so large images do not increase memory
/// permanently.
///
/// ```
/// use feedwater::Preprocessor;
/// use feedwater::op::{CenterCrop, Chain, Normalize, Resize};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let bytes = [b"P6 300 300 255\n".as_slice(), &[255; 3 * 300 * 300]].concat();
/// let chain = Chain::new().then(Resize::shorter(256)).then(CenterCrop::to(224, 224)).then(Normalize::IMAGENET);
/// let preprocessor = Preprocessor::builder(chain).build()?;
/// let tensor = preprocessor.run(&bytes)?; // of a JPEG, PNG, WebP or PNM
/// assert_eq!(tensor.array_shape(), [1, 3, 224, 224]);
/// assert_eq!(tensor.as_f32().unwrap().len(), 3 * 224 * 224);
/// # Ok(())
/// # }
/// ```
pub struct Preprocessor {
    plan: Plan,
    room: SampleRoom,
    /// Buffers that no call is using.
    pool: Mutex<Vec<Scratch>>,
}

/// Buffers of one call.
struct Scratch {
    sample: SamplePlan,
    decoder: Decoders,
    transform: HostTransform,
}

impl Preprocessor {
    /// Returns a builder for a preprocessor of this chain, with default settings.
    pub fn builder(chain: Chain) -> PreprocessorBuilder {
        PreprocessorBuilder { chain, settings: Settings::default() }
    }

    /// Shape, element type and layout of every tensor. The batch size is 1.
    pub fn shape(&self) -> TensorShape {
        self.plan.shape
    }

    /// Decodes and transforms one encoded image.
    ///
    /// # Errors
    /// [`DataError`] if the bytes are corrupt or unsupported, or if the image exceeds a limit. A
    /// loader counts the same error.
    pub fn run(&self, bytes: &[u8]) -> Result<Tensor, DataError> {
        let refused = |error| DataError::new(Reason::OutOfMemory, format!("the tensor: {error}"));
        let mut tensor = Tensor::zeros(self.shape()).map_err(refused)?;
        self.make(bytes, tensor.bytes_mut())?;
        Ok(tensor)
    }

    /// Writes the tensor of one encoded image into `out`, in native byte order.
    ///
    /// Buffers are reused between calls. Later calls allocate only two kinds of memory: a few
    /// hundred bytes of bookkeeping, and temporary memory of the decoder of the image format. If
    /// `out` is not aligned for the element type, the tensor is copied once more.
    ///
    /// # Errors
    /// The errors of [`run`](Self::run). After an error, the content of `out` is unspecified.
    ///
    /// # Panics
    /// Panics if `out` does not have exactly [`shape().bytes()`](TensorShape::bytes) bytes.
    pub fn run_into(&self, bytes: &[u8], out: &mut [u8]) -> Result<(), DataError> {
        let shape = self.shape();
        assert_eq!(out.len(), shape.bytes(), "the length of `out` for a tensor of {shape}");
        if out.as_ptr().align_offset(shape.dtype.bytes()) != 0 {
            out.copy_from_slice(self.run(bytes)?.bytes());
            return Ok(());
        }
        self.make(bytes, out)
    }

    fn make(&self, bytes: &[u8], out: &mut [u8]) -> Result<(), DataError> {
        check_size(bytes.len() as u64, self.plan.settings.limits.max_file_bytes)?;
        let kept = self.pool.lock().unwrap_or_else(PoisonError::into_inner).pop();
        // If an operator panics, these buffers are dropped and not put back into the pool.
        let mut scratch = kept.unwrap_or_else(|| Scratch::new(&self.plan));
        let made = scratch.make(&self.plan, self.room, bytes, out);
        scratch.trim();
        self.pool.lock().unwrap_or_else(PoisonError::into_inner).push(scratch);
        made
    }
}

impl fmt::Debug for Preprocessor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Preprocessor").field("shape", &self.shape()).finish_non_exhaustive()
    }
}

impl Scratch {
    fn new(plan: &Plan) -> Self {
        let mut transform = HostTransform::new(plan);
        transform.set_timed(false);
        let settings = &plan.settings.decode;
        let decoder = Decoders::new()
            .strict(settings.strict)
            .jpeg(settings.jpeg)
            .background(settings.background);
        Self { sample: SamplePlan::default(), decoder, transform }
    }

    /// Runs the same checks in the same order as a loader's worker, so the first error is the same.
    fn make(
        &mut self,
        plan: &Plan,
        room: SampleRoom,
        bytes: &[u8],
        out: &mut [u8],
    ) -> Result<(), DataError> {
        let header = plan.header(bytes)?;
        let decode = self.decoder.memory(&header, bytes, bytes.len() as u64);
        // The file is in the caller's memory, so it needs 0 bytes here.
        let need = plan.sample_memory(&header, 0, decode, &mut self.sample);
        room.beyond(header.size, &need)?;
        let Self { sample, decoder, transform } = self;
        plan.sample(NO_DRAWS, &header, sample)?;
        let windows = sample.windows;
        let drawn = SampleMemory { windows, ..SampleMemory::default() };
        room.beyond(header.size, &need.max(&drawn))?;
        transform.run(PlannedImage { bytes, header: &header, plan, sample }, decoder, out)
    }

    /// Frees the buffers if they exceed [`KEPT_BYTES`].
    fn trim(&mut self) {
        let table = self.sample.table_bytes() as usize;
        let held = table + self.decoder.capacity_bytes() + self.transform.capacity_bytes();
        if held > KEPT_BYTES {
            self.sample.actions.release();
            self.decoder.release();
            self.transform.release();
        }
    }
}

/// Builder of a [`Preprocessor`]. Defaults are those of [`Settings`]: `f32`, `nchw`, EXIF
/// orientation applied, strict decoding.
#[derive(Clone, Debug)]
#[must_use = "methods return the changed builder, and `build` creates the preprocessor"]
pub struct PreprocessorBuilder {
    chain: Chain,
    settings: Settings,
}

impl PreprocessorBuilder {
    /// Uses these settings of a pipeline: `[decode]`, `[output]`, and the limits of one image
    /// (`max_pixels`, `max_side`, `max_file_bytes`, `large_image_memory`). Other settings are
    /// ignored, except `cache.presize`, which [`build`](Self::build) rejects.
    pub fn settings(mut self, settings: &Settings) -> Self {
        self.settings = settings.clone();
        self
    }

    /// Changes `[decode]`, `[output]` or the limits of one image (`max_pixels`, `max_side`,
    /// `max_file_bytes`, and `large_image_memory` for the buffers of one call), for example
    /// `.configure(|settings| settings.decode.strict = false)`. Other settings are ignored, such as
    /// `limits.host_memory`.
    pub fn configure(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(&mut self.settings);
        self
    }

    /// Element type and axis order of the tensors.
    pub fn output(mut self, dtype: DType, layout: Layout) -> Self {
        self.settings.output.dtype = dtype;
        self.settings.output.layout = layout;
        self
    }

    /// Checks the chain and the settings, and builds the preprocessor.
    ///
    /// # Errors
    /// [`Error::Config`] for an invalid setting, for a random operator, or if the output size
    /// depends on the image. [`Error::Unavailable`] if decoding or an operator is placed on a GPU.
    pub fn build(self) -> Result<Preprocessor> {
        let Self { chain, mut settings } = self;
        for (number, step) in chain.steps().iter().enumerate() {
            if step.operator.is_random() {
                let problem = format!(
                    "{} draws random numbers, but the same image must always give the same \
                     tensor; use the chain for validation, with resize and center_crop",
                    step.operator.name()
                );
                return Err(Error::config(format!("chain[{number}]"), problem));
            }
        }
        if let Some(shorter) = settings.cache.presize {
            let problem = format!(
                "is {shorter}, but a preprocessor of single images has no cache; remove \
                 cache.presize and begin the chain with resize"
            );
            return Err(Error::config("cache.presize", problem));
        }
        // Settings for batches, shards and the whole process must not cause errors for a single
        // image.
        settings.loader =
            LoaderSettings { batch_size: 1, shard: ShardFrom::None, ..LoaderSettings::default() };
        settings.cache = CacheSettings::default();
        settings.targets = TargetSettings::default();
        let Limits { max_pixels, max_side, max_file_bytes, large_image_memory, .. } =
            settings.limits;
        settings.limits = Limits {
            max_pixels,
            max_side,
            max_file_bytes,
            large_image_memory,
            ..Limits::default()
        };
        let device = DeviceFacts::None("a preprocessor works on the CPU".into());
        let facts = Facts { samples: 1, cores: 1, device, ..Facts::default() };
        let plan = Plan::new(&chain.of_one_image(), &settings, &facts)?;
        let large = large_image_memory;
        let room = SampleRoom { share: SampleMemory::default(), large, unplanned: 0 };
        Ok(Preprocessor { plan, room, pool: Mutex::default() })
    }
}
