//! What a user can set, with defaults, and the checks that need nothing but the values.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::footprint::{byte_size, some_byte_size};
use crate::op::Placement;
use crate::storage::StorageSettings;
use crate::tensor::{DType, Layout};

use super::Route;

/// Everything that a user can set besides source and chain. Field names are the keys in TOML.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// `[loader]`.
    pub loader: LoaderSettings,
    /// `[decode]`.
    pub decode: DecodeSettings,
    /// `[output]`.
    pub output: OutputSettings,
    /// `[limits]`.
    pub limits: Limits,
    /// `[storage]`.
    pub storage: StorageSettings,
}

/// `[loader]`: batches, order and policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LoaderSettings {
    /// Samples in a batch. Default 64.
    pub batch: usize,
    /// Threads that read, and decode and transform what runs on the CPU. Default: the machine's cores.
    pub workers: usize,
    /// Batches ahead of the consumer, the one that is being filled among them. Default 2.
    pub prefetch: usize,
    /// Key of all randomness. Default 0.
    pub seed: u64,
    /// Whether each epoch has its own order. Default false.
    pub shuffle: bool,
    /// What happens to the samples that do not fill the last batch of an epoch. Default `drop`.
    pub last: Last,
    /// Which of `world` shards this loader reads. Default 0.
    pub rank: u64,
    /// How many loaders share an epoch. Default 1.
    pub world: u64,
    /// What happens when a sample cannot be used. Default `stop`.
    pub on_error: OnError,
}

impl Default for LoaderSettings {
    fn default() -> Self {
        Self {
            batch: 64,
            workers: std::thread::available_parallelism().map_or(1, usize::from),
            prefetch: 2,
            seed: 0,
            shuffle: false,
            last: Last::Drop,
            rank: 0,
            world: 1,
            on_error: OnError::Stop,
        }
    }
}

/// What happens to the samples that do not fill the last batch of an epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
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
    /// Where pictures are decoded. Default `auto`: on the GPU where it offers one of `routes`.
    pub placement: Placement,
    /// The routes that pictures may take where decoding is on the GPU, in any order. Default all.
    ///
    /// Without `cpu` no picture is given to the CPU that one of the others takes. What none of them takes, or
    /// what nvJPEG refuses, is made on the CPU all the same: it is the judge of last resort, and each such
    /// sample is counted.
    pub routes: Vec<Route>,
    /// Most workers that decode on the CPU (routes `host` and `cpu`) at one time where anything runs on the
    /// GPU. Default: all workers, or all but one where the routes `hardware` or `cuda` are there to be read for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_cpu_threads: Option<usize>,
    /// Whether the decoder may halve a JPEG up to three times before it is resized, never below the size that
    /// is wanted. Faster; changes pixels slightly. Default false.
    pub prescale: bool,
    /// Whether pictures are turned upright as their EXIF orientation says. Default true.
    pub orientation: bool,
}

impl Default for DecodeSettings {
    fn default() -> Self {
        Self {
            placement: Placement::Auto,
            routes: Route::ALL.to_vec(),
            max_cpu_threads: None,
            prescale: false,
            orientation: true,
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

/// `[limits]`: of a sample, checked on its header before memory is taken for it, and of the whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Most pixels of a picture. Default 178956970, where Pillow suspects a bomb.
    pub max_pixels: u64,
    /// Most bytes of an encoded sample. Default 64 MiB.
    #[serde(deserialize_with = "byte_size")]
    pub max_file_bytes: u64,
    /// Most bytes of device memory, the driver's and its libraries' own apart. The plan fits itself into it, as
    /// [`Counts`](super::Counts) says, or is refused with the smallest that would do. Default: no limit.
    #[serde(deserialize_with = "some_byte_size", skip_serializing_if = "Option::is_none")]
    pub device_memory: Option<u64>,
    /// Most bytes of page-locked host memory; as `device_memory`.
    #[serde(deserialize_with = "some_byte_size", skip_serializing_if = "Option::is_none")]
    pub pinned_memory: Option<u64>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_pixels: 178_956_970,
            max_file_bytes: 64 << 20,
            device_memory: None,
            pinned_memory: None,
        }
    }
}

impl Settings {
    /// Whether the values can be.
    pub fn check(&self) -> Result<()> {
        let LoaderSettings { batch, workers, prefetch, rank, world, .. } = self.loader;
        let at_least_one = [
            ("loader.batch", batch as u64),
            ("loader.workers", workers as u64),
            ("loader.prefetch", prefetch as u64),
            ("loader.world", world),
            ("limits.max_pixels", self.limits.max_pixels),
            ("limits.max_file_bytes", self.limits.max_file_bytes),
        ];
        for (key, value) in at_least_one {
            if value == 0 {
                return Err(Error::config(key, "must be at least 1, is 0"));
            }
        }
        for (key, value, most) in
            [("loader.workers", workers, 1024), ("loader.prefetch", prefetch, 1024)]
        {
            if value > most {
                return Err(Error::config(key, format!("must be at most {most}, is {value}")));
            }
        }
        if batch > 1 << 20 {
            let problem = format!("must be at most {}, is {batch}", 1 << 20);
            return Err(Error::config("loader.batch", problem));
        }
        if rank >= world {
            let problem = format!("must be below loader.world, which is {world}, is {rank}");
            return Err(Error::config("loader.rank", problem));
        }
        self.storage.check()?;
        self.decode.check()
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

    #[test]
    fn defaults_pass_and_impossible_values_are_named() {
        let mut settings = Settings::default();
        settings.check().unwrap();
        settings.loader.rank = 2;
        settings.loader.world = 2;
        let text = settings.check().unwrap_err().to_string();
        assert_eq!(text, "loader.rank: must be below loader.world, which is 2, is 2");
        settings.loader = LoaderSettings { batch: 0, ..Default::default() };
        assert_eq!(
            settings.check().unwrap_err().to_string(),
            "loader.batch: must be at least 1, is 0"
        );
    }
}
