//! Numbers that are set, or that the loader chooses while it runs, and between what.

use std::fmt;
use std::thread;

use serde::de::{self, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::{Error, Result};

use super::{DevicePlan, Facts, Route, Settings};

/// A number that is set, or that the loader chooses from what it measures. In a file it is an integer, or `"auto"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// The loader chooses, within the plan's [`Bounds`].
    Auto,
    /// This many.
    Fixed(usize),
}

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

/// The most that `loader.workers` and `loader.prefetch` may be set to.
pub(super) const MOST: usize = 1024;

/// The words for what a count may be.
const WANTED: &str = "an integer from 1 up or \"auto\"";

/// Workers that may wait for a disk, or for what only looks like one.
const LOCAL_WORKERS: usize = 16;
/// Workers that wait for a network.
const WAITING_WORKERS: usize = 64;

/// What is taken for batches ahead where their number is chosen, and how many there are at least and at most.
const AHEAD_BYTES: usize = 1 << 30;
const AHEAD_BATCHES: (usize, usize) = (2, 8);

impl Count {
    /// The number, where it is set.
    pub fn fixed(self) -> Option<usize> {
        match self {
            Count::Auto => None,
            Count::Fixed(number) => Some(number),
        }
    }
}

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
        Some(device) if device.has(Route::NvjpegHardware) => {
            (2, " besides the launcher and the thread that feeds the JPEG engines")
        }
        Some(_) => (1, " besides the launcher"),
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

impl From<usize> for Count {
    fn from(number: usize) -> Self {
        Count::Fixed(number)
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Count::Auto => f.write_str("auto"),
            Count::Fixed(number) => number.fmt(f),
        }
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

impl Serialize for Count {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Count::Auto => serializer.serialize_str("auto"),
            Count::Fixed(number) => number.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(CountVisitor)
    }
}

struct CountVisitor;

impl Visitor<'_> for CountVisitor {
    type Value = Count;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(WANTED)
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Count, E> {
        let number = usize::try_from(value);
        number.map(Count::Fixed).map_err(|_| E::invalid_value(Unexpected::Signed(value), &self))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Count, E> {
        let number = usize::try_from(value);
        number.map(Count::Fixed).map_err(|_| E::invalid_value(Unexpected::Unsigned(value), &self))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Count, E> {
        match value {
            "auto" => Ok(Count::Auto),
            other => Err(E::invalid_value(Unexpected::Str(other), &self)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_written_as_it_is_read() {
        for (count, text) in [(Count::Auto, "\"auto\""), (Count::Fixed(4), "4")] {
            assert_eq!(serde_json::to_string(&count).unwrap(), text);
            assert_eq!(serde_json::from_str::<Count>(text).unwrap(), count);
            assert_eq!(count.to_string(), text.trim_matches('"'));
        }
        for (text, found) in [("\"4\"", "string \"4\""), ("-4", "integer `-4`"), ("null", "null")] {
            let words = serde_json::from_str::<Count>(text).unwrap_err().to_string();
            assert!(words.contains(found) && words.contains(WANTED), "{words}");
        }
    }
}
