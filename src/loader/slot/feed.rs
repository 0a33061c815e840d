//! Hands out cells to the threads that fill them, and publishes finished batches in order.
//!
//! * Cells are handed out in the order of the epoch. The first cell of a batch waits for a free
//!   slot. This wait is the only backpressure.
//! * Cells may be finished in any order, by any thread. A batch is published when all its cells are
//!   finished and all batches before it are published.
//! * If a cell fails, the ring ends with the cell's error after all previous batches. If several
//!   cells of a batch fail, the error of the first one counts. So the batches before an error do
//!   not depend on timing.
//! * If the plan has a batch stage (batch operators or soft targets), the thread that finishes the
//!   second sample of a pair also runs this stage on the pair.
//! * When the consumer has moved to a later epoch, the rest of the older epoch is skipped, and a
//!   partly filled batch returns its slot.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use super::BatchSlot;
use super::pair::{PairJob, Pairs};
use crate::error::{Error, Result, SampleError};
use crate::loader::order::{EpochOrder, Order};
use crate::loader::sample::prefetcher::Prefetcher;
use crate::loader::sample::record::{Outcome, SampleRecord};
use crate::measure::Meters;
use crate::plan::Plan;
use crate::random::SampleKey;
use crate::ring::{Filling, Producer};
use crate::source::NO_LABEL;

/// One cell to fill.
pub(in crate::loader) struct Job<C> {
    /// Sequence number of the batch over all epochs.
    pub batch: u64,
    /// Index of the sample in the batch.
    pub place: usize,
    /// Epoch.
    pub epoch: u32,
    /// Index of the sample in the source.
    pub index: u64,
    /// Number of earlier places of the epoch, over all shards, that have the same sample.
    pub repeat: u32,
    /// Whether the sample is padding of the last batch.
    pub padding: bool,
    /// Time that the thread waited for this job: for a free slot, or for another thread that waited
    /// for a free slot.
    pub waited: Duration,
    /// Memory of the sample in the batch.
    pub cell: C,
}

impl<C> Job<C> {
    /// Key of the sample's random numbers.
    pub fn key(&self, plan: &Plan) -> SampleKey {
        let seed = plan.settings.loader.seed;
        SampleKey { seed, epoch: self.epoch, index: self.index }.of_repeat(self.repeat)
    }

    /// Completes the record of a finished sample with the properties of its place in the batch:
    /// repeat and padding.
    pub fn placed(&self, record: SampleRecord) -> SampleRecord {
        SampleRecord { repeat: self.repeat, padding: self.padding, ..record }
    }
}

/// Result of a job, which is to fill one cell.
pub(in crate::loader) struct Done<C> {
    pub batch: u64,
    pub place: usize,
    pub cell: C,
    pub result: Result<SampleRecord>,
    /// Errors of the samples that were tried for this cell before `result`, and failed.
    pub errors: Vec<SampleError>,
}

pub(in crate::loader) struct Feed<S: BatchSlot> {
    order: Order,
    end_epoch: Option<u32>,
    producer: Producer<S>,
    cursor: Mutex<Cursor>,
    open: Mutex<VecDeque<Open<S>>>,
    /// The consumer's current epoch.
    wanted_epoch: AtomicU32,
    stopped: AtomicBool,
    /// Creates the jobs of the batch stage (batch operators and soft targets), if there is one.
    pairs: Option<Pairs>,
    /// Label of samples that are replaced by zeros.
    ignore_label: i64,
    /// Prefetcher that receives the position of each cell that is handed out.
    prefetcher: Option<Arc<Prefetcher>>,
    meters: Arc<Meters>,
}

/// Next cell to hand out.
struct Cursor {
    epoch: u32,
    order: EpochOrder,
    /// Number of the batch in the epoch.
    number: u64,
    /// Index of the sample in the batch.
    place: usize,
    /// Sequence number of the next batch, over all epochs.
    sequence: u64,
}

/// A batch that is being filled.
struct Open<S: BatchSlot> {
    sequence: u64,
    slot: Filling<S>,
    begun: bool,
    /// Number of unfinished cells.
    remaining: usize,
    abandoned: bool,
    /// Index of the first failed cell of the batch, and the cell's error.
    failure: Option<(usize, Error)>,
}

impl<S: BatchSlot> Feed<S> {
    pub fn new(
        order: Order,
        (start_epoch, epochs): (u32, Option<u32>),
        producer: Producer<S>,
        (pairs, ignore_label): (Option<Pairs>, i64),
        prefetcher: Option<Arc<Prefetcher>>,
        meters: Arc<Meters>,
    ) -> Self {
        let first = order.epoch(start_epoch);
        Self {
            order,
            end_epoch: epochs.map(|epochs| start_epoch.saturating_add(epochs)),
            producer,
            cursor: Mutex::new(Cursor {
                epoch: start_epoch,
                order: first,
                number: 0,
                place: 0,
                sequence: 0,
            }),
            open: Mutex::new(VecDeque::new()),
            wanted_epoch: AtomicU32::new(start_epoch),
            stopped: AtomicBool::new(false),
            pairs,
            ignore_label,
            prefetcher,
            meters,
        }
    }

    /// Takes the next cell. If it begins a batch, waits for a free slot. `None` if there are no
    /// more cells.
    pub fn take(&self) -> Option<Job<S::Cell>> {
        // The clock is read only if the lock is contended.
        let mut waited = Duration::ZERO;
        let mut cursor = match self.cursor.try_lock() {
            Ok(cursor) => cursor,
            Err(_) => {
                let begin = Instant::now();
                let cursor = lock(&self.cursor);
                waited += begin.elapsed();
                cursor
            }
        };
        loop {
            if self.stopped.load(Ordering::Acquire) {
                return None;
            }
            let wanted = self.wanted_epoch.load(Ordering::Acquire);
            if cursor.epoch < wanted {
                self.abandon(&cursor);
                cursor.start(wanted, &self.order);
            }
            if self.end_epoch.is_some_and(|end| cursor.epoch >= end) {
                return None;
            }
            if cursor.number == cursor.order.batches() {
                let next = cursor.epoch.checked_add(1)?;
                cursor.start(next, &self.order);
                continue;
            }
            if cursor.place > 0 {
                break;
            }
            let begin = Instant::now();
            let mut slot = self.producer.acquire()?;
            waited += begin.elapsed();
            if cursor.epoch < self.wanted_epoch.load(Ordering::Acquire) {
                continue;
            }
            let len = cursor.order.batch_len(cursor.number);
            slot.info_mut().start(cursor.epoch, cursor.number, len, self.pairs.is_some());
            slot.host_columns().split();
            let sequence = cursor.sequence;
            cursor.sequence += 1;
            let open = Open {
                sequence,
                slot,
                begun: false,
                remaining: len,
                abandoned: false,
                failure: None,
            };
            self.meters.batch_begun(sequence);
            lock(&self.open).push_back(open);
            if S::BEGIN_BEFORE_CELLS && !self.begin(sequence) {
                return None;
            }
            break;
        }
        if let Some(prefetcher) = &self.prefetcher {
            prefetcher.follow((cursor.epoch, cursor.number, cursor.place));
        }
        Some(self.hand_out(&mut cursor, waited))
    }

    /// Begins to fill a batch, unless it has already begun. Returns false if this fails.
    pub fn begin(&self, batch: u64) -> bool {
        let mut open = lock(&self.open);
        let Some(batch) = find(&mut open, batch) else { return false };
        if !std::mem::replace(&mut batch.begun, true)
            && let Err(error) = batch.slot.begin_fill()
        {
            drop(open);
            self.fail(error);
            return false;
        }
        true
    }

    /// Takes back a finished cell. If its pair is now finished, returns the job to run the batch
    /// stage (batch operators and soft targets) on this pair. The caller must do the job and then
    /// call [`complete_pair`](Self::complete_pair).
    pub fn complete(&self, done: Done<S::Cell>) -> Option<PairJob<S::Cell>> {
        let mut open = lock(&self.open);
        let batch = find(&mut open, done.batch)?;
        batch.slot.return_cell(done.place, done.cell);
        let info = batch.slot.info_mut();
        info.errors.extend(done.errors);
        match done.result {
            Ok(record) => {
                info.records[done.place] = record;
                let label = match record.outcome {
                    Outcome::Substituted => self.ignore_label,
                    _ => record.label.unwrap_or(NO_LABEL),
                };
                batch.slot.host_columns().set_label(done.place, label);
            }
            Err(error) => {
                if batch.failure.as_ref().is_none_or(|(place, _)| done.place < *place) {
                    batch.failure = Some((done.place, error));
                }
            }
        }
        if let Some(pairs) = &self.pairs {
            let extent = self.order.extent(batch.slot.info().epoch);
            let job = pairs.finish(done.batch, &mut *batch.slot, done.place, &extent);
            if job.is_some() {
                return job;
            }
        }
        batch.remaining -= 1;
        self.publish(&mut open);
        None
    }

    /// Takes back the cells of a pair after the batch stage (batch operators and soft targets) ran
    /// on the pair.
    pub fn complete_pair(&self, job: PairJob<S::Cell>) {
        let mut open = lock(&self.open);
        let Some(batch) = find(&mut open, job.batch) else { return };
        for (place, cell) in (job.place..).zip(job.cells.into_iter().flatten()) {
            batch.slot.return_cell(place, cell);
        }
        batch.remaining -= 1;
        self.publish(&mut open);
    }

    /// Whether no batch is ready, so the consumer waits, or would have to wait for its next batch.
    pub fn consumer_waits(&self) -> bool {
        !self.producer.any_ready()
    }

    /// Keeps `slots` slots of the ring empty.
    pub fn withhold(&self, slots: usize) {
        self.producer.withhold(slots);
    }

    /// Skips the rest of all epochs before epoch `epoch`.
    pub fn want_epoch(&self, epoch: u32) {
        self.wanted_epoch.fetch_max(epoch, Ordering::AcqRel);
    }

    /// Ends the ring with an error, immediately.
    pub fn fail(&self, error: Error) {
        self.producer.fail(error);
        self.stop();
    }

    /// Stops handing out cells.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        if let Some(prefetcher) = &self.prefetcher {
            prefetcher.stop();
        }
    }

    fn hand_out(&self, cursor: &mut Cursor, waited: Duration) -> Job<S::Cell> {
        let sequence = cursor.sequence - 1;
        let (number, place) = (cursor.number, cursor.place);
        let len = cursor.order.batch_len(number);
        let position = cursor.order.at(number, place);
        cursor.place += 1;
        if cursor.place == len {
            cursor.place = 0;
            cursor.number += 1;
        }
        let mut open = lock(&self.open);
        let batch = open
            .back_mut()
            .expect("the batch that the cursor points to stays open until it is handed out");
        Job {
            batch: sequence,
            place,
            epoch: cursor.epoch,
            index: position.index,
            repeat: position.repeat,
            padding: position.padding,
            waited,
            cell: batch.slot.take_cell(place),
        }
    }

    /// Discards the batch at the cursor.
    fn abandon(&self, cursor: &Cursor) {
        if cursor.place > 0 {
            let mut open = lock(&self.open);
            let batch = open.back_mut().expect("the batch that the cursor points to is open");
            batch.abandoned = true;
            batch.remaining -= cursor.order.batch_len(cursor.number) - cursor.place;
            self.publish(&mut open);
        }
    }

    fn publish(&self, open: &mut VecDeque<Open<S>>) {
        while open.front().is_some_and(|batch| batch.remaining == 0) {
            let Some(mut batch) = open.pop_front() else { return };
            let published = !batch.abandoned && batch.failure.is_none();
            self.meters.batch_done(batch.sequence, published);
            if batch.abandoned {
                continue;
            }
            if let Some((_, error)) = batch.failure {
                self.fail(error);
                continue;
            }
            batch.slot.info_mut().errors.sort_unstable_by_key(|error| error.index);
            if let Err(error) = batch.slot.publish() {
                self.fail(error);
            }
        }
    }
}

impl Cursor {
    fn start(&mut self, epoch: u32, order: &Order) {
        self.epoch = epoch;
        self.order = order.epoch(epoch);
        self.number = 0;
        self.place = 0;
    }
}

/// Finds an open batch by its sequence number. The sequence numbers of open batches are
/// consecutive, and a batch stays open until it is complete.
fn find<S: BatchSlot>(open: &mut VecDeque<Open<S>>, sequence: u64) -> Option<&mut Open<S>> {
    let first = open.front().map_or(0, |batch| batch.sequence);
    open.get_mut((sequence - first) as usize)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
