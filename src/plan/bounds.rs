//! Between what the numbers that the loader chooses may move.

use std::fmt;
use std::thread;

use serde::Serialize;

use crate::error::{Error, Result};

use super::count::MOST;
use super::{Count, DevicePlan, Facts, Settings};

/// Between what a number may move; where it is set, all three are the same.
///
/// * `loader.workers = "auto"`: from 1, and from the machine's cores at first. At most two for each core, and 16 on any
///   machine; 64 at least where samples come over a network, since threads that wait take no core.
/// * Under `limits.cpu_threads` there are no more workers than the loader's other threads leave room for: the launcher of a
///   device, and the one that feeds its JPEG engines.
/// * `loader.prefetch = "auto"`: from 1, and from 2 at first. At most 8, as far as 1 GiB has room for so many batches, and
///   2 in any case.
/// * Memory is taken for the most of both. Where a limit of memory has no room for so many batches, there are fewer, as
///   [`Counts`](super::Counts) says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Bounds {
    /// Never fewer.
    pub least: usize,
    /// How many there are at first.
    pub start: usize,
    /// Never more: threads are started and memory is taken for so many.
    pub most: usize,
}

/// Workers that may wait for a disk, or for what only looks like one.
const LOCAL_WORKERS: usize = 16;
/// Workers that wait for a network.
const WAITING_WORKERS: usize = 64;

/// What is taken for batches ahead where their number is chosen, and how many there are at least and at most.
const AHEAD_BYTES: usize = 1 << 30;
const AHEAD_BATCHES: (usize, usize) = (2, 8);

impl Bounds {
    /// A number that does not move.
    pub fn fixed(number: usize) -> Self {
        Self { least: number, start: number, most: number }
    }

    /// From 1, and from `start` at first, or from `most` where that is less.
    fn from_one(start: usize, most: usize) -> Self {
        Self { least: 1, start: start.min(most), most }
    }

    /// The same, but never more than `most`.
    pub(super) fn at_most(self, most: usize) -> Self {
        Self { least: self.least.min(most), start: self.start.min(most), most: self.most.min(most) }
    }

    /// The workers; `device` is what runs on the device, where something does.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] where `limits.cpu_threads` has no room for them.
    pub(super) fn workers(
        settings: &Settings,
        facts: &Facts,
        device: Option<&DevicePlan>,
    ) -> Result<Self> {
        let room = settings.limits.cpu_threads.map(|limit| room(limit, device)).transpose()?;
        if let Count::Fixed(number) = settings.loader.workers {
            return match room {
                Some(room) if number > room.workers => {
                    let problem = format!(
                        "is {}, and loader.workers is {number}{}; lower loader.workers to {} or write \"auto\" there",
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

    /// Batches ahead where there is room for `most`.
    pub(super) fn ahead(prefetch: Count, most: usize) -> Self {
        match prefetch {
            Count::Auto => Self::from_one(2, most),
            Count::Fixed(_) => Self::fixed(most),
        }
    }
}

/// The most batches ahead, of so many bytes each, before any limit of memory.
pub(super) fn most_ahead(prefetch: Count, batch_bytes: usize) -> usize {
    let (least, most) = AHEAD_BATCHES;
    prefetch.fixed().unwrap_or_else(|| (AHEAD_BYTES / batch_bytes.max(1)).clamp(least, most))
}

/// What `limits.cpu_threads` leaves.
struct Room {
    limit: usize,
    workers: usize,
    /// The words for the loader's other threads, if there are any.
    besides: &'static str,
}

/// What a limit of threads leaves for workers.
fn room(limit: usize, device: Option<&DevicePlan>) -> Result<Room> {
    let (others, besides) = match device {
        None => (0, ""),
        Some(device) => match device.gatherers() {
            0 => (1, " besides the launcher"),
            gatherers => {
                (1 + gatherers, " besides the launcher and the thread that feeds the JPEG engines")
            }
        },
    };
    match limit.checked_sub(others) {
        None | Some(0) => {
            let least = others + 1;
            let problem = format!(
                "is {limit}, and there must be a worker{besides}; write at least {least}, or leave it out for no limit"
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
            false => write!(f, "{least} to {most}, {start} at first"),
        }
    }
}
