//! User settings: fields and defaults.

use serde::{Deserialize, Serialize};

use crate::decode::JpegDecoder;
use crate::error::{DataError, Reason};
use crate::footprint::{byte_size, some_byte_size};
use crate::geometry::Size;
use crate::header::Header;
use crate::image::PixelFormat;
use crate::op::Placement;
use crate::storage::StorageSettings;
use crate::tensor::{DType, Layout};

use super::{AutoCount, DeviceChoice, LastBatch, OnError, Route, ShardFrom};

mod check;
mod columns;
mod targets;

pub(super) use columns::RESERVED_NAMES;
pub use columns::{BoxFormat, ColumnKind, ColumnSettings};
pub use targets::TargetSettings;

/// All user settings except source and chain. Field names are the TOML keys.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// Device that the loader uses. Default `auto`.
    pub device: DeviceChoice,
    /// `[loader]`.
    pub loader: LoaderSettings,
    /// `[decode]`.
    pub decode: DecodeSettings,
    /// `[output]`.
    pub output: OutputSettings,
    /// `[targets]`.
    pub targets: TargetSettings,
    /// `[[column]]`: columns that are made from fields of the source. Default: none.
    pub columns: Vec<ColumnSettings>,
    /// `[cache]`.
    pub cache: CacheSettings,
    /// `[limits]`.
    pub limits: Limits,
    /// `[storage]`. If the source was opened with a storage handle, the handle's settings apply
    /// instead ([`Hints::storages`](crate::source::Hints::storages)).
    pub storage: StorageSettings,
}

/// `[loader]`: batches, order and policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LoaderSettings {
    /// Samples per batch. Default 64.
    #[serde(alias = "batch")]
    pub batch_size: usize,
    /// Number of threads that read samples and run CPU decoding and CPU operators, or `auto`: see
    /// [`Bounds`](super::Bounds). Default: the number of cores.
    #[serde(alias = "workers")]
    pub num_workers: AutoCount,
    /// Batches ahead of the consumer, including the one being filled, or `auto`: see
    /// [`Bounds`](super::Bounds). Default 2.
    pub prefetch: AutoCount,
    /// Whether the loader keeps adjusting `auto` values, automatic placements and the number of
    /// prefetched samples while it runs. If false, the first choice is kept. Batches have the same
    /// bytes either way. Default true.
    pub tune: bool,
    /// Seed of all random numbers. Default 0.
    pub seed: u64,
    /// Whether each epoch has its own random order. Default false.
    pub shuffle: bool,
    /// Window size in samples, for sources whose files hold many samples. Files are read in random
    /// order, and samples are shuffled within windows of this size, so that files are read nearly
    /// sequentially. Needs `shuffle`. Default: a full shuffle, which is better if random reads are
    /// cheap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shuffle_window: Option<u64>,
    /// Repeated augmentation: number of consecutive occurrences of a sample in an epoch's order
    /// over all shards. Each occurrence has its own random numbers. 1 to 256; more than 1 needs
    /// `shuffle`. The length of an epoch does not change, so an epoch contains only `1 / repeats`
    /// of the samples. Default 1.
    pub repeats: u32,
    /// Handling of the samples that do not fill the last batch of an epoch. Default `drop`.
    #[serde(alias = "last")]
    pub last_batch: LastBatch,
    /// Where `rank` and `world_size` come from if they are not set. Default `environment`: the
    /// launcher.
    pub shard: ShardFrom,
    /// Index of the shard that this loader reads, from 0. Default: the rank that `shard` finds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<u64>,
    /// Number of loaders that share an epoch. Default: the world size that `shard` finds.
    #[serde(alias = "world", skip_serializing_if = "Option::is_none")]
    pub world_size: Option<u64>,
    /// Handling of unusable samples. Default `stop`.
    pub on_error: OnError,
    /// Label in [`Batch::labels`](crate::loader::Batch::labels) of a sample that `on_error =
    /// "substitute"` replaced by zeros. Default -100, which PyTorch's losses ignore.
    pub ignore_label: i64,
}

impl Default for LoaderSettings {
    fn default() -> Self {
        Self {
            batch_size: 64,
            num_workers: AutoCount::Fixed(
                std::thread::available_parallelism().map_or(1, usize::from),
            ),
            prefetch: AutoCount::Fixed(2),
            tune: true,
            seed: 0,
            shuffle: false,
            shuffle_window: None,
            repeats: 1,
            last_batch: LastBatch::Drop,
            shard: ShardFrom::Environment,
            rank: None,
            world_size: None,
            on_error: OnError::Stop,
            ignore_label: -100,
        }
    }
}

/// `[decode]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DecodeSettings {
    /// Where images are decoded. Default `auto`: on the GPU if it supports one of `routes`.
    pub placement: Placement,
    /// Decode routes allowed when decoding is on the GPU, in any order. Default: all except
    /// `feedwater`, which no GPU has run yet.
    ///
    /// Without `cpu`, images are decoded on the CPU only if no listed route supports them or nvJPEG
    /// rejects them. Each such fallback is counted.
    pub routes: Vec<Route>,
    /// Maximum number of workers that decode on the CPU at the same time (routes `nvjpeg-hybrid`
    /// and `cpu`) when anything runs on the GPU. Default: all workers, or all but one while
    /// `nvjpeg-hardware` or `nvjpeg-gpu` decode, because one worker must read images for these
    /// routes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_cpu_threads: Option<usize>,
    /// Maximum number of images per call of the JPEG engines (route `nvjpeg-hardware`) and of
    /// feedwater's own decoder (route `feedwater`), 1 to 1024. A memory limit may reduce it.
    /// Default: as many as fit into 64 MiB of device memory, at most half of the samples of all
    /// slots, but at least 7 and at most 32.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hardware_group: Option<usize>,
    /// Pixel format of the decoded images. Default `u8x3`. Other formats are decoded and
    /// transformed on the CPU. All image formats can be decoded to `u8` (gray) and `u8x4` (with
    /// alpha). `indices` needs files with one number of 8 bits per pixel, such as PNGs with a
    /// palette. `u16` and `f32` need gray files. `u16x3` and `f32x3` accept gray files too, as
    /// three equal channels, and so do `u16x4` and `f32x4`, which also have alpha. `u16`, `u16x3`
    /// and `u16x4` need PNG, TIFF, PGM, PPM or `.npy` files of 16 bits. `f32`, `f32x3` and `f32x4`
    /// also accept such files of 8 bits, PFM files, and TIFFs of floats.
    pub pixels: PixelFormat,
    /// Colour over which transparent images are composed: red, green and blue from 0 to 255. It
    /// applies to images that are decoded to `u8x3` and `u8`. Default: alpha is dropped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub background: Option<[u8; 3]>,
    /// Whether the decoder may scale a JPEG down by 2, 4 or 8 before it is resized, never below the
    /// required size. Pixels change slightly. Only libjpeg-turbo and the JPEG engines can scale
    /// down. On the CPU, our own decoder without `prescale` is at least as fast. Default false.
    pub prescale: bool,
    /// Decoder for JPEGs on the CPU: `auto`, `feedwater` or `libjpeg`. All give the same pixels.
    /// Default `auto`: our own decoder, and libjpeg-turbo for JPEGs that our own decoder does not
    /// support.
    pub jpeg: JpegDecoder,
    /// Whether images are rotated according to their EXIF orientation. Default true.
    pub orientation: bool,
    /// Whether a corrupt image is an error, handled by `loader.on_error`. If false, the loader
    /// accepts what Pillow 12 accepts and returns Pillow's pixels, with lost parts gray or black:
    /// JPEGs that are truncated or cause libjpeg warnings, and PNGs with wrong checksums of pixel
    /// data, without an end, or with too few rows or colors. Such samples are counted in
    /// [`Stats::tolerated`](crate::loader::Stats::tolerated). Images that Pillow refuses are errors
    /// in both cases. Default true.
    pub strict: bool,
}

impl Default for DecodeSettings {
    fn default() -> Self {
        Self {
            placement: Placement::Auto,
            routes: Route::ALL.to_vec(),
            max_cpu_threads: None,
            hardware_group: None,
            pixels: PixelFormat::U8x3,
            background: None,
            prescale: false,
            jpeg: JpegDecoder::Auto,
            orientation: true,
            strict: true,
        }
    }
}

/// `[output]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OutputSettings {
    /// Element type. Default `f32`.
    pub dtype: DType,
    /// Axis order. Default `nchw`.
    pub layout: Layout,
}

/// `[cache]`: what is cached in host memory across epochs. The cache never evicts, so a set larger
/// than the limit has a hit rate of `limit / set` in every epoch. Batches have the same bytes with
/// and without caches, except for `presize`.
///
/// With several shards and `loader.shuffle`, a shard reads different samples in each epoch, so a
/// cached sample is a hit only when the same shard reads it again. Each shard's cache would have to
/// hold the whole set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CacheSettings {
    /// Maximum size of the cache of encoded files and of values of fields, in bytes. Later epochs
    /// are bound by decoding. Default: no cache.
    #[serde(deserialize_with = "some_byte_size", skip_serializing_if = "Option::is_none")]
    pub encoded: Option<u64>,
    /// Maximum size of the cache of whole decoded images, in bytes (three per pixel). Later epochs
    /// are bound by the operators. Images to be cached are decoded whole on the CPU, which takes
    /// longer than decoding only their window. So the cache pays off after one epoch if windows are
    /// small, and at once if they are large. Not together with `decode.prescale`, whose pixels
    /// depend on the window, or with another `decode.pixels` than `u8x3`. Default: no cache.
    #[serde(deserialize_with = "some_byte_size", skip_serializing_if = "Option::is_none")]
    pub decoded: Option<u64>,
    /// Maximum shorter side, in pixels. Larger images are rotated upright and resized to it
    /// (bilinear) before the chain runs, whether they are cached or not. This changes pixels and
    /// lets the decoded cache hold more images. Images that are not cached are decoded whole and
    /// resized in each epoch. At most 32767. Default: no resizing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub presize: Option<u32>,
    /// Device memory for the files of JPEGs that the decode route `feedwater` decodes, in bytes. An
    /// image is kept when it is first decoded, until the memory is full. Later epochs decode it
    /// without reading or uploading its file. The host keeps about 1.4 KiB for each file, which is
    /// a row of the plan. Without a GPU, the setting has no effect. Default: no cache.
    #[serde(deserialize_with = "some_byte_size", skip_serializing_if = "Option::is_none")]
    pub device: Option<u64>,
    /// Maximum size of the cache of row indexes, in bytes; 0 for none. An index stores where the
    /// rows of blocks of a JPEG begin. With an index, the CPU decodes a window without the parts
    /// above and to the right of the window. An index takes 280 to 420 bytes for a JPEG of 500x375.
    ///
    /// An index is created when the image is first decoded. That decode also has to parse the part
    /// below the window. The index is then stored in feedwater's cache folder.
    ///
    /// Default: as much as the plan predicts for all images, at most 256 MiB and what
    /// `limits.host_memory` leaves; 0 if decoding would be less than 3 % faster. Default indexes
    /// are created from the loader's second epoch on, so a single epoch costs nothing. They are not
    /// stored in the folder.
    #[serde(deserialize_with = "some_byte_size", skip_serializing_if = "Option::is_none")]
    pub row_index: Option<u64>,
}

/// `[limits]`: limits of a sample, checked on its header before memory is allocated, and limits of
/// the loader.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Maximum number of pixels of an image. Default 178956970, above which Pillow warns of a
    /// decompression bomb.
    pub max_pixels: u64,
    /// Maximum width and height of an image, in pixels. Row buffers and resampling tables grow with
    /// the sides, not with the number of pixels. Default 65535, the maximum of JPEG.
    pub max_side: u32,
    /// Host memory, in bytes, shared by all samples that need more than their worker's share: large
    /// progressive JPEGs, interlaced PNGs and WebPs. Such a sample reserves its excess, after a
    /// wait if other samples hold too much, and releases it afterwards. A sample that needs more
    /// than this is `oversized`. Shown as `large images` in the footprint, unless every sample was
    /// scanned and fits its share. Default 256 MiB: a progressive JPEG of 80 megapixels with 4:2:0
    /// chroma, or a WebP of 30 megapixels.
    #[serde(deserialize_with = "byte_size")]
    pub large_image_memory: u64,
    /// Maximum size of an encoded sample, in bytes. Default 64 MiB.
    #[serde(deserialize_with = "byte_size")]
    pub max_file_bytes: u64,
    /// Maximum size of the text or bytes from which the fields of a sample are read, such as a row
    /// of a list, in bytes. Each worker needs this memory if there are `columns`. Default 1 MiB.
    #[serde(deserialize_with = "byte_size")]
    pub max_field_bytes: u64,
    /// Maximum number of points of the polygons of an object, for columns of masks of objects. A
    /// polygon takes time in proportion to its points and to the columns of the image that its
    /// edges cross. Default 65536.
    pub max_outline_points: u64,
    /// Maximum host memory, page-locked memory included, in bytes: the sum of the footprint's host
    /// rows. The plan reduces its counts to fit, see [`Counts`](super::Counts). If that is not
    /// enough, building the loader fails, and the error names the smallest sufficient limit. Caches
    /// and `large_image_memory` are not reduced, so batches have the same bytes under any limit.
    /// Default: no limit.
    #[serde(deserialize_with = "some_byte_size", skip_serializing_if = "Option::is_none")]
    pub host_memory: Option<u64>,
    /// Maximum device memory, in bytes, without the memory of the driver and its libraries. Handled
    /// like `host_memory`. Default: no limit.
    #[serde(deserialize_with = "some_byte_size", skip_serializing_if = "Option::is_none")]
    pub device_memory: Option<u64>,
    /// Maximum page-locked host memory, in bytes. Handled like `host_memory`. Default: no limit.
    #[serde(deserialize_with = "some_byte_size", skip_serializing_if = "Option::is_none")]
    pub pinned_memory: Option<u64>,
    /// Maximum number of threads that the loader starts for samples: workers and, with a GPU, the
    /// launcher and a thread for each of the routes `nvjpeg-hardware` and `feedwater`.
    /// `loader.num_workers` must fit, or be `auto`. Default: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_threads: Option<usize>,
    /// Whether to build a loader even if its plan needs more host memory than is available. The
    /// machine may then swap, or kill the process. Default false: building fails
    /// ([`Plan::check_memory`](super::Plan::check_memory)).
    pub overcommit: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_pixels: 178_956_970,
            max_side: 65_535,
            large_image_memory: 256 << 20,
            host_memory: None,
            max_file_bytes: 64 << 20,
            max_field_bytes: 1 << 20,
            max_outline_points: 1 << 16,
            device_memory: None,
            pinned_memory: None,
            cpu_threads: None,
            overcommit: false,
        }
    }
}

impl Limits {
    /// Parses the header of a whole file and checks the size of its image. No later step repeats
    /// this check.
    ///
    /// # Errors
    /// Errors of [`Header::parse_as`] and [`check_size`](Self::check_size).
    pub fn header(&self, bytes: &[u8], strict: bool) -> Result<Header, DataError> {
        let header = Header::parse_as(bytes, strict)?;
        self.check_size(header.size)?;
        Ok(header)
    }

    /// Rejects an image with too many pixels, columns or rows.
    ///
    /// # Errors
    /// [`Reason::Oversized`]; the message names the key.
    pub fn check_size(&self, size: Size) -> Result<(), DataError> {
        let oversized = |problem| Err(DataError::new(Reason::Oversized, problem));
        let (pixels, side) = (size.pixels(), size.width.max(size.height));
        if pixels > self.max_pixels {
            let limit = self.max_pixels;
            return oversized(format!(
                "the image has {size}, which is {pixels} pixels; limits.max_pixels is {limit}"
            ));
        }
        if side > self.max_side {
            let limit = self.max_side;
            return oversized(format!(
                "the image has {size}, so its longer side is {side}; limits.max_side is {limit}"
            ));
        }
        Ok(())
    }
}
