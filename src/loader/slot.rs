//! Slots of the ring of batches: the common part of those on the host and on a device.

use bytes::BytesMut;

use crate::error::{Error, Result, SampleError, reserve};
use crate::footprint;
use crate::plan::RECORD_BYTES;
use crate::ring::Slot;

use super::record::SampleRecord;

/// Data of a slot besides its tensor; the memory is reused.
#[derive(Debug, Default)]
pub(super) struct BatchInfo {
    pub epoch: u32,
    pub number: u64,
    pub records: Vec<SampleRecord>,
    pub labels: Vec<i64>,
    pub errors: Vec<SampleError>,
}

/// The error for a slot whose memory cannot be allocated.
pub(super) fn no_slot(bytes: u64) -> Error {
    let problem = format!(
        "a batch needs {} of memory, which cannot be allocated; lower loader.batch or loader.prefetch",
        footprint::bytes(bytes)
    );
    Error::Memory { needed: bytes, available: None, problem }
}

// The footprint's row `records` must cover each sample of a slot.
const _: () = assert!(
    (size_of::<SampleRecord>() + size_of::<i64>() + size_of::<Option<BytesMut>>()) as u64
        <= RECORD_BYTES
);

impl BatchInfo {
    /// Allocates memory for batches of at most `samples` samples.
    pub fn with_room(samples: usize) -> Result<Self> {
        let mut info = Self::default();
        let records = reserve::reserve(&mut info.records, samples);
        let refused = |_| no_slot((samples as u64).saturating_mul(RECORD_BYTES));
        records.and_then(|()| reserve::reserve(&mut info.labels, samples)).map_err(refused)?;
        Ok(info)
    }

    /// Prepares for a batch of `len` samples.
    pub fn start(&mut self, epoch: u32, number: u64, len: usize) {
        self.epoch = epoch;
        self.number = number;
        self.records.clear();
        self.records.resize(len, SampleRecord::SUBSTITUTED);
        self.labels.clear();
        self.labels.resize(len, -1);
        self.errors.clear();
    }
}

/// Slot of the ring that holds one batch, split into cells of one sample each while it is filled.
pub(super) trait BatchSlot: Slot {
    /// Memory of one sample, passed to the thread that fills it.
    type Cell: Send;
    /// Whether filling must begin before cells are handed out. On a device it begins as late as possible, because
    /// waiting for the slot's last use would delay the batches before it.
    const BEGIN_BEFORE_CELLS: bool;
    /// Data besides the tensor.
    fn info(&self) -> &BatchInfo;
    /// Data besides the tensor.
    fn info_mut(&mut self) -> &mut BatchInfo;
    /// Hands out the memory of a sample.
    fn take_cell(&mut self, place: usize) -> Self::Cell;
    /// Takes back a filled cell.
    fn return_cell(&mut self, place: usize, cell: Self::Cell);
}
