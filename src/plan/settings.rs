//! What a user can set, with defaults, and the checks that need nothing but the values.

use serde::{Deserialize, Serialize};

use crate::error::{DataError, Error, Reason, Result};
use crate::footprint::{byte_size, some_byte_size};
use crate::geometry::Size;
use crate::header::Header;
use crate::op::{Operator, Placement, Resize};
use crate::storage::StorageSettings;
use crate::tensor::{DType, Layout};

use super::count::MOST;
use super::{Count, Route, ShardFrom};

/// Everything that a user can set besides source and chain. Field names are the keys in TOML.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// `[loader]`.
    pub loader: LoaderSettings,
    /// `[decode]`.
    pub decode: DecodeSettings,
    /// `[output]`.
    pub output: OutputSettings,
    /// `[cache]`.
    pub cache: CacheSettings,
    /// `[limits]`.
    pub limits: Limits,
    /// `[storage]`. A loader goes by those of the handle that its source was opened with, where it has one
    /// ([`Source::storages`](crate::source::Source::storages)).
    pub storage: StorageSettings,
}

/// `[loader]`: batches, order and policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LoaderSettings {
    /// Samples in a batch. Default 64.
    pub batch: usize,
    /// Threads that read, and decode and transform what runs on the CPU, or `auto`: see [`Bounds`](super::Bounds). Default:
    /// the machine's cores.
    pub workers: Count,
    /// Batches ahead of the consumer, the one that is being filled among them, or `auto`: see
    /// [`Bounds`](super::Bounds). Default 2.
    pub prefetch: Count,
    /// Whether what is `auto`, placements among it, and how many samples are fetched ahead, is chosen anew from what is measured
    /// while the loader runs; else the first choice stays. No byte depends on it. Default true.
    pub tune: bool,
    /// Key of all randomness. Default 0.
    pub seed: u64,
    /// Whether each epoch has its own order. Default false.
    pub shuffle: bool,
    /// For sources whose files hold many samples: the files come in a random order, and samples are shuffled within
    /// windows of so many, so that files are read nearly in sequence. Needs `shuffle`. Default: the whole set is shuffled,
    /// which is better wherever reads in any order are cheap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shuffle_window: Option<u64>,
    /// What happens to the samples that do not fill the last batch of an epoch. Default `drop`.
    pub last: Last,
    /// Who tells `rank` and `world` where they are not written. Default `environment`: the launcher.
    pub shard: ShardFrom,
    /// Which of `world` shards this loader reads, from 0. Default: what `shard` says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<u64>,
    /// How many loaders share an epoch. Default: what `shard` says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub world: Option<u64>,
    /// What happens when a sample cannot be used. Default `stop`.
    pub on_error: OnError,
}

impl Default for LoaderSettings {
    fn default() -> Self {
        Self {
            batch: 64,
            workers: Count::Fixed(std::thread::available_parallelism().map_or(1, usize::from)),
            prefetch: Count::Fixed(2),
            tune: true,
            seed: 0,
            shuffle: false,
            shuffle_window: None,
            last: Last::Drop,
            shard: ShardFrom::Environment,
            rank: None,
            world: None,
            on_error: OnError::Stop,
        }
    }
}

/// What happens to the samples that do not fill the last batch of an epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Last {
    /// They are left out; with several shards, so is what would give one shard more samples than another.
    #[default]
    Drop,
    /// The shard's last sample is repeated until the batch is full, marked as padding; with several shards
    /// all are padded to the same number of batches.
    Pad,
    /// They make a smaller batch.
    Partial,
}

/// What happens when a sample cannot be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum OnError {
    /// The loader ends with the sample's error.
    #[default]
    Stop,
    /// Another sample takes its place, chosen by a rule keyed on (seed, epoch, index): batches stay full and
    /// no other sample moves.
    Skip,
    /// Zeros take its place, marked as such.
    Substitute,
}

/// `[decode]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DecodeSettings {
    /// Where images are decoded. Default `auto`: on the GPU where it offers one of `routes`.
    pub placement: Placement,
    /// The routes that images may take where decoding is on the GPU, in any order. Default all.
    ///
    /// Without `cpu` no image is given to the CPU that one of the others takes. What none of them takes, or
    /// what nvJPEG refuses, is made on the CPU all the same: it is the judge of last resort, and each such
    /// sample is counted.
    pub routes: Vec<Route>,
    /// Most workers that decode on the CPU (routes `host` and `cpu`) at one time where anything runs on the
    /// GPU. Default: all workers, or all but one while the routes `hardware` or `cuda` decode and are to be read for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_cpu_threads: Option<usize>,
    /// Whether the decoder may halve a JPEG up to three times before it is resized, never below the size that
    /// is wanted. Faster; changes pixels slightly. Default false.
    pub prescale: bool,
    /// Whether images are turned upright as their EXIF orientation says. Default true.
    pub orientation: bool,
    /// Whether a damaged image is an error, as `loader.on_error` says. If not, the loader takes what Pillow 12 takes and gives
    /// Pillow's pixels, gray or black where they are lost: JPEGs of which libjpeg warns or that lack their end, PNGs with
    /// wrong checksums of pixels, without an end, or with too few rows or colors. Such samples are counted in
    /// [`Stats::tolerated`](crate::loader::Stats::tolerated). What Pillow refuses is an error in both cases. Default true.
    pub strict: bool,
}

impl Default for DecodeSettings {
    fn default() -> Self {
        Self {
            placement: Placement::Auto,
            routes: Route::ALL.to_vec(),
            max_cpu_threads: None,
            prescale: false,
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
    /// Order of the axes. Default `nchw`.
    pub layout: Layout,
}

/// `[cache]`: what is kept in host memory from epoch to epoch. What is in stays in: nothing is ever replaced, so a set that
/// is larger than the limit gives `limit / set` hits in every epoch, not none. No byte of a batch changes, but by
/// `presize`.
///
/// With several shards and `loader.shuffle` a shard meets other samples in each epoch, and what it keeps is a hit only
/// when it meets it again: every cache would have to hold the whole set, not a shard of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CacheSettings {
    /// Most bytes for files as they were read: the second epoch is bound by decoding. Default: none are kept.
    #[serde(deserialize_with = "some_byte_size", skip_serializing_if = "Option::is_none")]
    pub encoded: Option<u64>,
    /// Most bytes for whole decoded images, three bytes a pixel: the second epoch is bound by the operators. An image
    /// that is to be kept is decoded whole, on the CPU, which takes longer than its window alone would; so this pays
    /// after one epoch where windows are small, and at once where they are large. Not together with
    /// `decode.prescale`, whose pixels depend on the window. Default: none are kept.
    #[serde(deserialize_with = "some_byte_size", skip_serializing_if = "Option::is_none")]
    pub decoded: Option<u64>,
    /// Images whose shorter side has more pixels than this are turned upright and resized to it, bilinear, before
    /// anything else is done to them: the chain sees the smaller image, kept or not. That changes pixels, and lets the
    /// decoded cache hold more images. Every image that is not kept is decoded whole and resized in each epoch.
    /// At most 32767. Default: images are as they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub presize: Option<u32>,
}

/// `[limits]`: of a sample, checked on its header before memory is taken for it, and of the whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Most pixels of an image. Default 178956970, where Pillow suspects a bomb.
    pub max_pixels: u64,
    /// Most columns, and most rows, of an image: rows and resampling tables grow with the sides, whatever the pixels.
    /// Default 65535, the most that a JPEG can have.
    pub max_side: u32,
    /// Bytes of host memory for all samples together that need more than their worker's share, as large progressive JPEGs,
    /// interlaced PNGs and WebPs do. Such a sample takes from it what it needs beyond the share, waits where others have
    /// it, and gives it back. One that needs more is `oversized`. The footprint's row `large images`, which is there
    /// unless every sample was looked at and fits its share. Default 256 MiB: a progressive JPEG of 80 megapixels with
    /// halved chroma, or a WebP of 30.
    #[serde(deserialize_with = "byte_size")]
    pub large_image_memory: u64,
    /// Most bytes of an encoded sample. Default 64 MiB.
    #[serde(deserialize_with = "byte_size")]
    pub max_file_bytes: u64,
    /// Most bytes of host memory, page-locked memory included: of all rows of the footprint. The plan fits itself into it:
    /// batches ahead give way, then what goes round on a device, then workers that are chosen, as
    /// [`Counts`](super::Counts) says; or it is refused with the smallest that would do. Caches and
    /// `large_image_memory` never give way, so batches have the same bytes under any limit. Default: no limit.
    #[serde(deserialize_with = "some_byte_size", skip_serializing_if = "Option::is_none")]
    pub host_memory: Option<u64>,
    /// Most bytes of device memory, the driver's and its libraries' own apart. The plan fits itself into it, as
    /// [`Counts`](super::Counts) says, or is refused with the smallest that would do. Default: no limit.
    #[serde(deserialize_with = "some_byte_size", skip_serializing_if = "Option::is_none")]
    pub device_memory: Option<u64>,
    /// Most bytes of page-locked host memory; as `device_memory`.
    #[serde(deserialize_with = "some_byte_size", skip_serializing_if = "Option::is_none")]
    pub pinned_memory: Option<u64>,
    /// Most threads that the loader starts for samples: the workers, and on a device the launcher and the thread that feeds
    /// the JPEG engines. `loader.workers` must fit under it, or be `auto`. Default: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_threads: Option<usize>,
    /// Whether a loader may be built whose plan needs more host memory than is available: the machine may then swap, or kill
    /// the process. Default false: it is refused ([`Plan::check_memory`](super::Plan::check_memory)).
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
            device_memory: None,
            pinned_memory: None,
            cpu_threads: None,
            overcommit: false,
        }
    }
}

impl Limits {
    /// Reads the header of a whole file and checks the size of its image. No later step checks it again.
    ///
    /// # Errors
    /// Those of [`Header::parse_as`] and of [`check_size`](Self::check_size).
    pub fn header(&self, bytes: &[u8], strict: bool) -> Result<Header, DataError> {
        let header = Header::parse_as(bytes, strict)?;
        self.check_size(header.size)?;
        Ok(header)
    }

    /// Refuses an image of too many pixels, columns or rows.
    ///
    /// # Errors
    /// [`Reason::Oversized`], with the key.
    pub fn check_size(&self, size: Size) -> Result<(), DataError> {
        let oversized = |problem| Err(DataError::new(Reason::Oversized, problem));
        let (pixels, side) = (size.pixels(), size.width.max(size.height));
        if pixels > self.max_pixels {
            let limit = self.max_pixels;
            return oversized(format!("{size} is {pixels} pixels, limits.max_pixels is {limit}"));
        }
        if side > self.max_side {
            let limit = self.max_side;
            return oversized(format!("{size} has a side of {side}, limits.max_side is {limit}"));
        }
        Ok(())
    }
}

impl Settings {
    /// Whether the values can be.
    pub fn check(&self) -> Result<()> {
        let LoaderSettings {
            batch, workers, prefetch, shuffle, shuffle_window, rank, world, ..
        } = self.loader;
        // What is chosen is within its bounds.
        let [workers, prefetch] = [workers, prefetch].map(|count| count.fixed().unwrap_or(1));
        let at_least_one = [
            ("loader.batch", batch as u64),
            ("loader.workers", workers as u64),
            ("loader.prefetch", prefetch as u64),
            ("loader.world", world.unwrap_or(1)),
            ("loader.shuffle_window", shuffle_window.unwrap_or(1)),
            ("limits.max_pixels", self.limits.max_pixels),
            ("limits.max_side", self.limits.max_side.into()),
            ("limits.max_file_bytes", self.limits.max_file_bytes),
        ];
        for (key, value) in at_least_one {
            if value == 0 {
                return Err(Error::config(key, "must be at least 1, is 0"));
            }
        }
        for (key, value) in [("loader.workers", workers), ("loader.prefetch", prefetch)] {
            if value > MOST {
                return Err(Error::config(key, format!("must be at most {MOST}, is {value}")));
            }
        }
        if self.limits.cpu_threads == Some(0) {
            let problem = "must be at least 1, is 0; leave it out for no limit";
            return Err(Error::config("limits.cpu_threads", problem));
        }
        if batch > 1 << 20 {
            let problem = format!("must be at most {}, is {batch}", 1 << 20);
            return Err(Error::config("loader.batch", problem));
        }
        if shuffle_window.is_some() && !shuffle {
            let problem =
                "is for a set that is shuffled; write loader.shuffle = true, or leave it out";
            return Err(Error::config("loader.shuffle_window", problem));
        }
        if let (Some(rank), Some(world)) = (rank, world)
            && rank >= world
        {
            let problem = format!("must be below loader.world, which is {world}, is {rank}");
            return Err(Error::config("loader.rank", problem));
        }
        for (key, bytes) in
            [("storage.read_ahead", self.storage.read_ahead), ("storage.cache", self.storage.cache)]
        {
            check_bytes(key, bytes)?;
        }
        self.storage.check()?;
        self.decode.check()?;
        self.cache.check(&self.decode)
    }
}

/// More than any machine has, and little enough that sums of such numbers stay within 64 bits.
const MOST_BYTES: u64 = 1 << 60;

fn check_bytes(key: &str, bytes: u64) -> Result<()> {
    if bytes > MOST_BYTES {
        let problem = format!("must be at most {MOST_BYTES} bytes (1048576 TiB), is {bytes}");
        return Err(Error::config(key, problem));
    }
    Ok(())
}

impl CacheSettings {
    fn check(&self, decode: &DecodeSettings) -> Result<()> {
        for (key, bytes) in [("cache.encoded", self.encoded), ("cache.decoded", self.decoded)] {
            if bytes == Some(0) {
                let problem = "must be at least 1, is 0; leave it out for no cache";
                return Err(Error::config(key, problem));
            }
            check_bytes(key, bytes.unwrap_or(0))?;
        }
        if self.decoded.is_some() && decode.prescale {
            let problem = "keeps images at their full size, and decode.prescale asks for reduced ones; leave one out";
            return Err(Error::config("cache.decoded", problem));
        }
        match self.presize {
            Some(pixels) if self.decoded.is_some() => Resize::shorter(pixels)
                .check()
                .map_err(|error| Error::config("cache.presize", error.problem)),
            Some(_) => {
                let problem =
                    "sizes what the decoded cache holds, and there is none; set cache.decoded too";
                Err(Error::config("cache.presize", problem))
            }
            None => Ok(()),
        }
    }
}

impl DecodeSettings {
    fn check(&self) -> Result<()> {
        if self.routes.is_empty() {
            let names = Route::ALL.map(Route::name).join(", ");
            let problem = format!("is empty; name at least one of {names}");
            return Err(Error::config("decode.routes", problem));
        }
        for (number, route) in self.routes.iter().enumerate() {
            if self.routes[..number].contains(route) {
                let key = format!("decode.routes[{number}]");
                let problem = format!("{} is there already; leave it out here", route.name());
                return Err(Error::config(key, problem));
            }
        }
        if self.max_cpu_threads == Some(0) {
            let problem = "must be at least 1, is 0; leave it out for no limit";
            return Err(Error::config("decode.max_cpu_threads", problem));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sums of the footprint's rows must not pass 64 bits.
    #[test]
    fn more_bytes_and_pixels_than_there_can_be_are_refused() {
        let key = |settings: Settings| match settings.check() {
            Err(Error::Config(error)) => error.key,
            other => panic!("{other:?}"),
        };
        let cache = |cache| Settings { cache, ..Settings::default() };
        let storage = |storage| Settings { storage, ..Settings::default() };
        let most = Some(1 << 60);
        let fits = CacheSettings { encoded: most, decoded: most, presize: Some(32767) };
        cache(fits.clone()).check().unwrap();
        assert_eq!(
            key(cache(CacheSettings { encoded: Some((1 << 60) + 1), ..fits })),
            "cache.encoded"
        );
        assert_eq!(key(cache(CacheSettings { decoded: Some(u64::MAX), ..fits })), "cache.decoded");
        for presize in [0, 32768, u32::MAX] {
            let settings = cache(CacheSettings { presize: Some(presize), ..fits });
            assert_eq!(key(settings), "cache.presize");
        }
        let default = StorageSettings::default;
        let settings = storage(StorageSettings { read_ahead: u64::MAX, ..default() });
        assert_eq!(key(settings), "storage.read_ahead");
        let settings = storage(StorageSettings { cache: u64::MAX, ..default() });
        assert_eq!(key(settings), "storage.cache");
    }

    #[test]
    fn defaults_pass_and_impossible_values_are_named() {
        let mut settings = Settings::default();
        settings.check().unwrap();
        (settings.loader.rank, settings.loader.world) = (Some(2), Some(2));
        let text = settings.check().unwrap_err().to_string();
        assert_eq!(text, "loader.rank: must be below loader.world, which is 2, is 2");
        settings.loader = LoaderSettings { batch: 0, ..Default::default() };
        assert_eq!(
            settings.check().unwrap_err().to_string(),
            "loader.batch: must be at least 1, is 0"
        );
    }
}
