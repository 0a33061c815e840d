//! Ranges of the counts that the loader chooses.

use std::fmt;
use std::thread;

use serde::Serialize;

use crate::error::{Error, Result};

use super::values::MOST;
use super::{AutoCount, DevicePlan, Facts, Settings};

/// Range of a count that the loader chooses, such as the number of workers. For a fixed count all
/// three fields are equal.
///
/// * `loader.num_workers = "auto"`: minimum 1, initial value the number of cores. The maximum is
///   two workers per core, but at least 16. If samples are read over a network, the maximum is at
///   least 64, because waiting threads use no core.
/// * `limits.cpu_threads` also counts the thread that launches kernels and the thread that feeds
///   the GPU's JPEG engines. Workers get the remaining threads.
/// * `loader.prefetch = "auto"`: minimum 1, initial value 2. The maximum is the number of batches
///   that fit into 1 GiB, but at least 2 and at most 8.
/// * Threads are started and memory is allocated for the maximum. A memory limit may reduce the
///   number of batches, see [`Counts`](super::Counts).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Bounds {
    /// Minimum.
    pub least: usize,
    /// Initial value.
    pub start: usize,
    /// Maximum. Threads are started and memory is allocated for this number.
    pub most: usize,
}

/// Number of workers that is always allowed, even with few cores, because workers may wait for a
/// disk or a slow file system.
const LOCAL_WORKERS: usize = 16;
/// Number of workers that is always allowed if samples are read over a network.
const WAITING_WORKERS: usize = 64;

/// Memory for prefetched batches if `prefetch` is `auto`, in bytes.
const AHEAD_BYTES: usize = 1 << 30;
/// Minimum and maximum number of prefetched batches if `prefetch` is `auto`.
const AHEAD_BATCHES: (usize, usize) = (2, 8);

impl Bounds {
    /// Range of a fixed number.
    pub fn fixed(number: usize) -> Self {
        Self { least: number, start: number, most: number }
    }

    /// Range from 1 to `most`. Its initial value is `start`, or `most` if `most` is less.
    fn from_one(start: usize, most: usize) -> Self {
        Self { least: 1, start: start.min(most), most }
    }

    /// Limits the range to `most`.
    pub(super) fn at_most(self, most: usize) -> Self {
        Self { least: self.least.min(most), start: self.start.min(most), most: self.most.min(most) }
    }

    /// Range of the number of workers. `device` is the GPU part of the plan, if any.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if `limits.cpu_threads` is too small for the workers.
    pub(super) fn workers(
        settings: &Settings,
        facts: &Facts,
        device: Option<&DevicePlan>,
    ) -> Result<Self> {
        let room = settings.limits.cpu_threads.map(|limit| room(limit, device)).transpose()?;
        if let AutoCount::Fixed(number) = settings.loader.num_workers {
            return match room {
                Some(room) if number > room.workers => {
                    let problem = format!(
                        "is {}, but loader.num_workers is {number}{}; lower loader.num_workers to \
                         {}, or set it to \"auto\"",
                        room.limit, room.besides, room.workers
                    );
                    Err(Error::config("limits.cpu_threads", problem))
                }
                _ => Ok(Self::fixed(number)),
            };
        }
        let cores = match facts.cores {
            0 => thread::available_parallelism().map_or(1, usize::from),
            cores => cores,
        };
        let least_of_most = if facts.remote { WAITING_WORKERS } else { LOCAL_WORKERS };
        let most = cores.saturating_mul(2).clamp(least_of_most, MOST);
        Ok(Self::from_one(cores, room.map_or(most, |room| most.min(room.workers))))
    }

    /// Range of prefetched batches. Memory is planned for `most` batches.
    pub(super) fn ahead(prefetch: AutoCount, most: usize) -> Self {
        match prefetch {
            AutoCount::Auto => Self::from_one(2, most),
            AutoCount::Fixed(_) => Self::fixed(most),
        }
    }
}

/// Maximum number of prefetched batches of `batch_bytes` bytes each, without memory limits.
pub(super) fn most_ahead(prefetch: AutoCount, batch_bytes: usize) -> usize {
    let (least, most) = AHEAD_BATCHES;
    prefetch.fixed().unwrap_or_else(|| (AHEAD_BYTES / batch_bytes.max(1)).clamp(least, most))
}

/// Threads that `limits.cpu_threads` leaves for workers.
struct Room {
    limit: usize,
    workers: usize,
    /// Names of the loader's other threads for messages, if any.
    besides: &'static str,
}

/// Subtracts the loader's other threads from `limit`.
fn room(limit: usize, device: Option<&DevicePlan>) -> Result<Room> {
    let (others, besides) = match device {
        None => (0, ""),
        Some(device) => match device.gatherers() {
            0 => (1, " besides the launcher"),
            gatherers => (
                1 + gatherers,
                " besides the launcher and the threads that gather images for nvjpeg-hardware and feedwater",
            ),
        },
    };
    match limit.checked_sub(others) {
        None | Some(0) => {
            let least = others + 1;
            let problem = format!(
                "is {limit}, but a loader needs a worker{besides}; write at least {least}, or \
                 leave this setting out for no limit"
            );
            Err(Error::config("limits.cpu_threads", problem))
        }
        Some(workers) => Ok(Room { limit, workers, besides }),
    }
}

impl fmt::Display for Bounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { least, start, most } = self;
        match least == most {
            true => most.fmt(f),
            false => write!(f, "{least} to {most}, initially {start}"),
        }
    }
}
