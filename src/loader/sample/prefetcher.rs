//! Prefetches samples from a source before workers read them, so that enough network requests are
//! in flight.
//!
//! * Requests follow the order of the epochs and do not depend on timing. The next positions to
//!   request are those after the last one that was handed out to a worker, across the end of an
//!   epoch too.
//! * The worker that reads a sample gets its prefetched data. A request that no worker takes is
//!   cancelled: if its position is skipped with the rest of an epoch, or if the worker of its
//!   position has continued with another position. The request of a late worker is not cancelled,
//!   however late it is. Otherwise the sample would be fetched twice, and the server might still be
//!   sending the first response while all connections are in use.
//! * Cached samples are not requested, and neither are cached fields. Some samples have several
//!   upcoming positions, such as one at the end of an epoch and one at the start of the next. Such
//!   a sample is requested for each position, or only once if a cache may hold the sample by the
//!   time of its second position.
//! * At most `window` samples are in flight or waiting to be read, within the memory of the plan.
//!   The window is tuned while the loader runs ([`PrefetchDepth`]), or is the maximum if
//!   `loader.tune` is false. If the window shrinks, running requests continue, and new ones are
//!   sent only after old ones are handed out.
//! * When the loader stops, all requests are cancelled, including those that a worker waits for.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Instant;

use serde::Serialize;

use super::cache::Caches;
use crate::error::DataError;
use crate::loader::order::{EpochOrder, Order};
use crate::measure::{DECISIONS, push_latest};
use crate::source::{Expected, Fields, Heads, Page, RemoteReads, Source};
use crate::storage::{self, Arrival};
use crate::tune::{PrefetchDecision, PrefetchDepth, TakenBatch};

mod fields;
#[cfg(test)]
mod tests;

/// Position: epoch, number of the batch in the epoch, index in the batch.
type SamplePosition = (u32, u64, usize);

/// A source that prefetches its samples.
pub(in crate::loader) struct Prefetcher {
    source: Arc<dyn Source>,
    order: Order,
    end_epoch: Option<u32>,
    /// Current number of positions to prefetch, and the maximum.
    window: AtomicUsize,
    most: usize,
    /// The tuner of `window`, and its decisions. `None` if `window` is not tuned.
    chosen: Option<Mutex<(PrefetchDepth, Vec<PrefetchDecision>)>>,
    began: Instant,
    /// Maximum size of a prefetched sample, in bytes.
    limit: u64,
    /// Whether the fields of samples are read too.
    reads_fields: bool,
    caches: Arc<Caches>,
    given_up: Arc<AtomicBool>,
    state: Mutex<PrefetcherState>,
}

#[derive(Default)]
struct PrefetcherState {
    /// Next position to request, with its epoch's order. `None` before the first position.
    next: Option<(SamplePosition, Arc<EpochOrder>)>,
    /// Positions that were requested but not handed out, with the indices of their samples.
    ahead: VecDeque<(SamplePosition, u64)>,
    /// For each worker, the position that was handed out last and that the worker may not have read
    /// yet.
    handed_out: HashMap<ThreadId, (SamplePosition, u64)>,
    /// Requests by sample index. For a sample at several positions, in the order of the positions.
    expected: HashMap<u64, VecDeque<Request>>,
}

/// A request for a sample.
struct Request {
    place: SamplePosition,
    sample: Expected,
    /// Whether the image was requested, and not only the fields.
    image: bool,
    arrival: Arc<Arrival>,
    /// Time at which a worker began to read the fields of the sample.
    began: Option<Instant>,
}

/// Number of samples that are prefetched over a network: see
/// [`Loader::read_ahead`](crate::loader::Loader::read_ahead).
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct PrefetcherReport {
    /// Current maximum of samples in flight or waiting to be read.
    pub window: usize,
    /// Maximum of `window`, for which memory is allocated.
    pub most: usize,
    /// Tuning decisions with their reasons, in order, at most the latest 100; empty if `window` is
    /// not tuned.
    pub decisions: Vec<PrefetchDecision>,
}

impl Prefetcher {
    /// Creates a prefetcher for at most `most` positions ahead of the workers, and for samples of
    /// at most `limit` bytes, with their fields if `reads_fields`. If `chooses`, the number of
    /// positions is tuned. If not, it is always `most`.
    pub fn new(
        source: Arc<dyn Source>,
        order: Order,
        end_epoch: Option<u32>,
        (most, chooses): (usize, bool),
        (limit, reads_fields): (u64, bool),
        caches: Arc<Caches>,
    ) -> Self {
        let chooser = || Mutex::new((PrefetchDepth::new(most), Vec::new()));
        Self {
            source,
            order,
            end_epoch,
            window: AtomicUsize::new(most),
            most,
            chosen: chooses.then(chooser),
            began: Instant::now(),
            limit,
            reads_fields,
            caches,
            given_up: Arc::default(),
            state: Mutex::default(),
        }
    }

    /// Current number of positions to prefetch.
    pub fn window(&self) -> usize {
        self.window.load(Relaxed)
    }

    /// The current number of positions to prefetch, and the decisions about it.
    pub fn report(&self) -> PrefetcherReport {
        let decisions = self.chosen.as_ref().map(|it| lock(it).1.clone()).unwrap_or_default();
        PrefetcherReport { window: self.window(), most: self.most, decisions }
    }

    /// Records that the consumer received a batch. If the number of positions to prefetch is tuned,
    /// calls `batch` with the time at which the prefetcher was created.
    pub fn batch_taken(&self, batch: impl FnOnce(Instant) -> TakenBatch) {
        let Some(chosen) = &self.chosen else { return };
        let batch = batch(self.began);
        let (chooser, decisions) = &mut *lock(chosen);
        if let Some(decision) = chooser.batch(&batch) {
            #[cfg(feature = "tracing")]
            tracing::info!(target: "feedwater::tune", "{decision}");
            self.window.store(decision.window, Relaxed);
            push_latest(decisions, DECISIONS, decision);
        }
    }

    /// Records that this position was handed out to the calling thread. Requests the samples at the
    /// next positions.
    pub fn follow(&self, place: SamplePosition) {
        let mut state = self.state();
        if self.given_up.load(Acquire) {
            return;
        }
        if let Some(chosen) = &self.chosen {
            lock(chosen).0.handed_out();
        }
        let worker = thread::current().id();
        if let Some((read, index)) = state.handed_out.remove(&worker) {
            state.forget(read, index);
        }
        while let Some((first, index)) = state.ahead.front().copied()
            && first <= place
        {
            state.ahead.pop_front();
            if first < place {
                state.forget(first, index);
            } else {
                state.handed_out.insert(worker, (first, index));
            }
        }
        let after = (place.0, place.1, place.2 + 1);
        if state.next.as_ref().is_none_or(|(next, _)| *next < after) {
            state.next = Some((after, Arc::new(self.order.epoch(place.0))));
        }
        while state.ahead.len() < self.window()
            && let Some((next, order)) = state.next.clone()
            && let Some(((epoch, number, place), order)) = self.existing(next, order)
        {
            let index = order.at(number, place).index;
            let at = (epoch, number, place);
            state.next = Some(((epoch, number, place + 1), order));
            state.ahead.push_back((at, index));
            let once = self.caches.are_there() && state.expected.contains_key(&index);
            let image = !once && !self.caches.hold(self.source.original(index));
            let are_held = || self.caches.hold_fields(self.source.field_original(index));
            let fields = self.reads_fields && !once && !are_held();
            if image || fields {
                let arrival = Arc::new(Arrival::new());
                let expect = || match fields {
                    true => self.source.expect_with_fields(index, image, self.limit),
                    false => self.source.expect(index, self.limit),
                };
                if let Some(sample) = storage::telling(&arrival, expect) {
                    let request = Request { place: at, sample, image, arrival, began: None };
                    state.expected.entry(index).or_default().push_back(request);
                }
            }
        }
    }

    /// Cancels all requests.
    pub fn stop(&self) {
        self.given_up.store(true, Release);
        *self.state() = PrefetcherState::default();
    }

    /// Returns the position. If it is beyond its batch or its epoch, returns the next valid
    /// position. `None` after the last epoch.
    fn existing(
        &self,
        mut place: SamplePosition,
        mut order: Arc<EpochOrder>,
    ) -> Option<(SamplePosition, Arc<EpochOrder>)> {
        loop {
            if self.end_epoch.is_some_and(|end| place.0 >= end) {
                return None;
            }
            if place.1 >= order.batches() {
                place = (place.0.checked_add(1)?, 0, 0);
                order = Arc::new(self.order.epoch(place.0));
            } else if place.2 >= order.batch_len(place.1) {
                place = (place.0, place.1 + 1, 0);
            } else {
                return Some((place, order));
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, PrefetcherState> {
        lock(&self.state)
    }

    /// Records that a worker has read a prefetched sample. `began` is the time at which the worker
    /// requested the sample.
    fn was_read(&self, arrival: &Arrival, began: Instant) {
        if let Some(chosen) = &self.chosen {
            let waited = match arrival.after() {
                Some(after) => (arrival.asked() + after).saturating_duration_since(began),
                None => began.elapsed(),
            };
            let request = arrival.after().map(|it| it.as_secs_f64());
            lock(chosen).0.read(request, waited.as_secs_f64());
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl PrefetcherState {
    /// Cancels the request for this position.
    fn forget(&mut self, place: SamplePosition, index: u64) {
        if let Some(requests) = self.expected.get_mut(&index) {
            requests.retain(|request| request.place != place);
            if requests.is_empty() {
                self.expected.remove(&index);
            }
        }
    }

    /// Records that a worker begins to read the fields of this sample. If only the fields were
    /// requested, returns the arrival of their bytes.
    fn begin_fields(&mut self, index: u64, now: Instant) -> Option<Arc<Arrival>> {
        let request = self.expected.get_mut(&index)?.front_mut()?;
        request.began.get_or_insert(now);
        (!request.image).then(|| request.arrival.clone())
    }

    /// Takes the first request for this sample.
    fn take(&mut self, index: u64) -> Option<Request> {
        let requests = self.expected.get_mut(&index)?;
        let request = requests.pop_front();
        if requests.is_empty() {
            self.expected.remove(&index);
        }
        request
    }
}

impl Source for Prefetcher {
    fn len(&self) -> u64 {
        self.source.len()
    }

    fn label(&self, index: u64) -> i64 {
        self.source.label(index)
    }

    fn location(&self, index: u64) -> String {
        self.source.location(index)
    }

    fn read(&self, index: u64, page: &mut dyn Page, limit: u64) -> Result<(), DataError> {
        let expected = self.state().take(index);
        storage::cancellable(&self.given_up, || match expected {
            Some(Request { sample, arrival, began, .. }) => {
                let began = began.unwrap_or_else(Instant::now);
                let read = sample(page, limit);
                self.was_read(&arrival, began);
                read
            }
            None => self.source.read(index, page, limit),
        })
    }

    fn inner(&self) -> Option<&dyn Source> {
        Some(&*self.source)
    }

    fn fields(&self) -> Option<&dyn Fields> {
        self.source.fields().map(|_| self as &dyn Fields)
    }

    /// `None`, because the prefetcher sends the requests itself.
    fn remote(&self) -> Option<&dyn RemoteReads> {
        None
    }

    fn heads(&self) -> Option<&dyn Heads> {
        None
    }
}
