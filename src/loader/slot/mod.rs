//! Slots of the ring of batches: the parts that host slots and device slots have in common.

pub mod column;
pub mod feed;
pub mod pair;

use crate::error::{Error, Result, SampleError, reserve};
use crate::footprint;
use crate::loader::sample::record::{Outcome, Pair, SampleRecord};
use crate::plan::{PAIR_BYTES, PART_BYTES, RECORD_BYTES};
use crate::ring::Slot;

use column::{HostCell, HostColumns, HostPart};

/// Data of a slot besides its columns: records, pairs and errors. The memory is reused for later
/// batches.
#[derive(Clone, Debug, Default)]
pub(super) struct BatchInfo {
    pub epoch: u32,
    pub number: u64,
    pub records: Vec<SampleRecord>,
    /// Pairs of samples at the places 2k and 2k + 1. Empty without batch operators and soft
    /// targets.
    pub pairs: Vec<Pair>,
    /// Number of finished samples of each pair.
    pub finished: Vec<u8>,
    pub errors: Vec<SampleError>,
    /// Number of samples that failed and were removed.
    pub dropped: u64,
}

/// Error for a slot whose memory cannot be allocated.
pub(super) fn no_slot(bytes: u64) -> Error {
    let problem = format!(
        "a batch needs {} of memory, which cannot be allocated; lower loader.batch_size or loader.prefetch",
        footprint::bytes(bytes)
    );
    Error::Memory { needed: bytes, available: None, problem }
}

/// Memory that the allocator adds to an allocation, in bytes.
const ALLOCATION_BYTES: usize = 16;

// The footprint's entries `records` and `pairs` must cover each sample and each pair of a slot.
const _: () = assert!(
    (size_of::<SampleRecord>() + size_of::<Option<HostCell>>() + ALLOCATION_BYTES) as u64
        <= RECORD_BYTES
);
const _: () = assert!(size_of::<HostPart>() as u64 <= PART_BYTES);
const _: () = assert!((size_of::<Pair>() + 1) as u64 <= PAIR_BYTES);

impl BatchInfo {
    /// Allocates memory for batches of at most `samples` samples. `paired` is whether the samples
    /// form pairs, for batch operators or soft targets.
    pub fn with_room(samples: usize, paired: bool) -> Result<Self> {
        let mut info = Self::default();
        let pairs = if paired { samples.div_ceil(2) } else { 0 };
        reserve::reserve(&mut info.records, samples)
            .and_then(|()| reserve::reserve(&mut info.pairs, pairs))
            .and_then(|()| reserve::reserve(&mut info.finished, pairs))
            .map_err(|_| no_slot((samples as u64).saturating_mul(RECORD_BYTES)))?;
        Ok(info)
    }

    /// Prepares for a batch of `len` samples. `paired` is whether the samples form pairs, for batch
    /// operators or soft targets.
    pub fn start(&mut self, epoch: u32, number: u64, len: usize, paired: bool) {
        self.epoch = epoch;
        self.number = number;
        self.records.clear();
        self.records.resize(len, SampleRecord::SUBSTITUTED);
        let pairs = if paired { len.div_ceil(2) } else { 0 };
        self.pairs.clear();
        self.pairs.resize(pairs, Pair::UNFINISHED);
        self.finished.clear();
        self.finished.resize(pairs, 0);
        self.errors.clear();
        self.dropped = 0;
    }

    /// Removes the samples that failed under the policy `drop`. Returns the moves that the columns
    /// need, in order: the new and the former place of a sample.
    pub fn drop_failed(&mut self) -> Vec<(usize, usize)> {
        let is_kept = |record: &SampleRecord| record.outcome != Outcome::Dropped;
        if self.records.iter().all(is_kept) {
            return Vec::new();
        }
        let kept = (0..self.records.len()).filter(|&place| is_kept(&self.records[place]));
        let kept: Vec<usize> = kept.collect();
        self.dropped += (self.records.len() - kept.len()) as u64;
        for (to, &from) in kept.iter().enumerate() {
            self.records[to] = self.records[from];
        }
        self.records.truncate(kept.len());
        // The policy `drop` cannot be combined with batch operators. So no pair of samples is
        // mixed, and pairs need no moves.
        self.pairs.truncate(kept.len().div_ceil(2));
        kept.into_iter().enumerate().filter(|(to, from)| to != from).collect()
    }
}

/// Slot of the ring that holds one batch, split into cells of one sample each while it is filled.
pub(super) trait BatchSlot: Slot {
    /// Memory of one sample, passed to the thread that fills it.
    type Cell: Send;
    /// Whether filling must begin before cells are handed out. On a device, filling begins as late
    /// as possible, because waiting for the slot's last use would delay previous batches.
    const BEGIN_BEFORE_CELLS: bool;
    /// Data of the batch besides its columns.
    fn info(&self) -> &BatchInfo;
    /// Data of the batch besides its columns.
    fn info_mut(&mut self) -> &mut BatchInfo;
    /// Columns in host memory.
    fn host_columns(&mut self) -> &mut HostColumns;
    /// Hands out the memory of a sample.
    fn take_cell(&mut self, place: usize) -> Self::Cell;
    /// Takes back a filled cell.
    fn return_cell(&mut self, place: usize, cell: Self::Cell);
}
