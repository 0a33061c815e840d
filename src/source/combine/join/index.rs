//! Index of the keys of a source.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::panic::resume_unwind;
use std::sync::{Mutex, PoisonError};
use std::thread;

use super::key::{Key, MOST_FIELD_BYTES};
use crate::error::{DataError, Error, Result, reserve};
use crate::source::Source;
use crate::storage::OpeningOf;
use crate::threads::in_parts;

/// Hashes of the keys of a source, in ascending order, with the numbers of the samples.
///
/// It has no keys, so a sample whose key has a wanted hash is only a candidate.
pub struct Index {
    entries: Vec<Entry>,
    /// Number of bits of a hash that are used.
    bits: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    hash: u64,
    number: u64,
}

/// Smallest number of samples per thread that reads keys.
const LEAST_PART: u64 = 256;

impl Index {
    /// Reads the keys of all samples, in parallel. With fewer than 64 `bits`, many keys have the
    /// same hash, as a test needs it.
    ///
    /// # Errors
    ///
    /// The first sample whose key is missing or cannot be read.
    pub fn new(source: &dyn Source, key: &Key, setting: &str, bits: u32) -> Result<Self> {
        let len = usize::try_from(source.len()).unwrap_or(usize::MAX);
        let mut entries: Vec<Entry> = Vec::new();
        let no_memory = |error: DataError| Error::config(setting, error.problem);
        reserve::resize(&mut entries, len).map_err(no_memory)?;
        let parts = parts(source.len());
        let mut rest = &mut entries[..];
        let mut places = Vec::new();
        for part in &parts {
            let (own, others) = rest.split_at_mut((part.end - part.start) as usize);
            places.push(Mutex::new(own));
            rest = others;
        }
        let filled = on_threads(parts.len(), |part| {
            let mut own = places[part].lock().unwrap_or_else(PoisonError::into_inner);
            let mut buffer = Vec::new();
            for (entry, number) in own.iter_mut().zip(parts[part].clone()) {
                let wrong = |problem: &str| {
                    let place = source.location(number);
                    Error::config(setting, format!("{place}: {problem}"))
                };
                let found = key.read(source, number, &mut buffer, MOST_FIELD_BYTES);
                let found = found.map_err(|error| wrong(&error.problem))?.ok_or_else(|| {
                    let within = key.within().map_or(String::new(), |it| format!(" {it:?}"));
                    wrong(&format!(
                        "the sample has no key{within}; every sample of the second source needs one"
                    ))
                })?;
                *entry = Entry { hash: hash(&found, bits), number };
            }
            Ok(())
        });
        filled.into_iter().collect::<Result<()>>()?;
        drop(places);
        entries.sort_unstable();
        Ok(Self { entries, bits })
    }

    /// Numbers of the samples whose keys may be equal to this one, in ascending order.
    pub fn candidates(&self, key: &str) -> impl Iterator<Item = u64> {
        let hash = hash(key, self.bits);
        let first = self.entries.partition_point(|entry| entry.hash < hash);
        let same = self.entries[first..].iter().take_while(move |entry| entry.hash == hash);
        same.map(|entry| entry.number)
    }

    /// Groups of at least two samples whose keys may be equal.
    pub fn groups(&self) -> impl Iterator<Item = Vec<u64>> {
        let groups = self.entries.chunk_by(|one, other| one.hash == other.hash);
        let groups = groups.filter(|group| group.len() > 1);
        groups.map(|group| group.iter().map(|entry| entry.number).collect())
    }

    /// Memory in bytes.
    pub fn memory_bytes(&self) -> u64 {
        (self.entries.capacity() * size_of::<Entry>()) as u64
    }
}

/// Hash of a key. It is the same in every process, so that errors do not depend on chance.
fn hash(key: &str, bits: u32) -> u64 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish() >> (u64::BITS - bits)
}

/// Ranges of samples that threads process at the same time.
pub fn parts(len: u64) -> Vec<Range<u64>> {
    let threads = thread::available_parallelism().map_or(1, usize::from) as u64;
    let parts = threads.min(len.div_ceil(LEAST_PART)).max(1);
    let bound = |part: u64| (u128::from(len) * u128::from(part) / u128::from(parts)) as u64;
    (0..parts).map(|part| bound(part)..bound(part + 1)).collect()
}

/// Runs `work` with each number below `parts`, in parallel, as part of opening a source.
pub fn on_threads<T: Send>(parts: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let opening = OpeningOf::current();
    let results = in_parts(parts, |part| opening.within(|| work(part)));
    results.into_iter().map(|it| it.unwrap_or_else(|panic| resume_unwind(panic))).collect()
}
