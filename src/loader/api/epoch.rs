//! Iterators over batches. [`Epoch`] and [`SharedEpoch`] iterate over one epoch, and borrow or
//! share the loader. [`Batches`] iterates over all remaining epochs, and owns the loader.

use std::iter::FusedIterator;
use std::ops::Deref;
use std::sync::{Arc, MutexGuard};
use std::task::Poll;
use std::time::{Duration, Instant};

use super::Loader;
use crate::error::{Error, Result};
use crate::loader::batch::Batch;
use crate::tune::TakenBatch;

impl Loader {
    /// Begins the next epoch, like `for batch in &mut loader`. The loader's other methods can be
    /// called on the epoch:
    ///
    /// ```no_run
    /// # fn main() -> feedwater::Result<()> {
    /// # let mut loader = feedwater::Pipeline::from_file("pipeline.toml")?.builder()?.build()?;
    /// let mut epoch = loader.epoch();
    /// while let Some(batch) = epoch.next() {
    ///     let batch = batch?;
    ///     println!("batch {}, {} images so far", batch.number(), epoch.stats().images);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Beginning a second epoch while one is running does not compile:
    ///
    /// ```compile_fail,E0499
    /// # fn main() -> feedwater::Result<()> {
    /// # let mut loader = feedwater::Pipeline::from_file("pipeline.toml")?.builder()?.build()?;
    /// let mut first = loader.epoch();
    /// let mut second = loader.epoch(); // cannot borrow `loader` as mutable more than once at a time
    /// first.next();
    /// # Ok(())
    /// # }
    /// ```
    pub fn epoch(&mut self) -> Epoch<'_> {
        Epoch::begin(self)
    }

    /// Begins the next epoch like [`epoch`](Self::epoch), but shares the loader: for bindings to
    /// other languages, and for several threads. If an epoch is still running, beginning another
    /// one ends it. A thread that already waits for a batch of the running epoch gets that batch
    /// first.
    pub fn shared_epoch(self: &Arc<Self>) -> SharedEpoch {
        let turn = self.turn();
        let cursor = Cursor::begin(self);
        drop(turn);
        SharedEpoch { loader: self.clone(), cursor }
    }

    /// Locks the loader for one of the consumers that share it, while this consumer takes a batch
    /// or begins an epoch. `None` in a child process, which must not lock.
    fn turn(&self) -> Option<MutexGuard<'_, ()>> {
        self.check_process().ok()?;
        Some(self.turn.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
    }

    /// Ends all epochs with an error.
    pub(in crate::loader) fn end(&self, error: &Error) {
        self.engine.stop();
        self.lock().ended = Some(error.clone());
    }

    /// Returns an iterator over the batches of the next and all following epochs. The iterator owns
    /// the loader, so another thread can consume it. [`Batch::epoch`] returns the epoch of a batch.
    /// The iterator ends after the builder's number of epochs, or after an error.
    pub fn into_batches(self) -> Batches {
        Batches { loader: self, cursor: None, finished: false }
    }
}

impl<'a> IntoIterator for &'a mut Loader {
    type Item = Result<Batch>;
    type IntoIter = Epoch<'a>;

    /// Begins the next epoch, like [`Loader::epoch`].
    fn into_iter(self) -> Epoch<'a> {
        self.epoch()
    }
}

/// Iterator over the batches of one epoch. It dereferences to the loader, so `epoch.stats()` and
/// `epoch.state()` work during the epoch. A batch does not borrow the iterator.
pub struct Epoch<'a> {
    loader: &'a Loader,
    cursor: Cursor,
}

impl<'a> Epoch<'a> {
    fn begin(loader: &'a Loader) -> Self {
        Self { loader, cursor: Cursor::begin(loader) }
    }

    /// Number of the epoch, from 0.
    pub fn number(&self) -> u32 {
        self.cursor.epoch
    }

    /// The loader, for every method except beginning a second epoch. Other threads may use it while
    /// this thread takes batches.
    pub fn loader(&self) -> &'a Loader {
        self.loader
    }

    /// Waits for the next batch, at most for `time`. Between two calls, the consumer can do other
    /// work or handle signals.
    pub fn next_within(&mut self, time: Duration) -> Poll<Option<Result<Batch>>> {
        self.cursor.next_until(self.loader, Instant::now().checked_add(time))
    }
}

impl Deref for Epoch<'_> {
    type Target = Loader;

    fn deref(&self) -> &Loader {
        self.loader
    }
}

impl Iterator for Epoch<'_> {
    type Item = Result<Batch>;

    fn next(&mut self) -> Option<Result<Batch>> {
        self.cursor.next(self.loader)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.cursor.remaining as usize + 1))
    }
}

/// Iterator over the batches of one epoch. It shares the loader, see [`Loader::shared_epoch`].
pub struct SharedEpoch {
    loader: Arc<Loader>,
    cursor: Cursor,
}

impl SharedEpoch {
    /// Number of the epoch, from 0.
    pub fn number(&self) -> u32 {
        self.cursor.epoch
    }

    /// Number of batches of the epoch that are not delivered yet. It stays above 0 if this epoch
    /// ended because another one was begun.
    pub fn remaining(&self) -> u64 {
        self.cursor.remaining
    }

    /// The loader.
    pub fn loader(&self) -> &Arc<Loader> {
        &self.loader
    }

    /// Waits for the next batch like [`Epoch::next_within`].
    pub fn next_within(&mut self, time: Duration) -> Poll<Option<Result<Batch>>> {
        let _turn = self.loader.turn();
        self.cursor.next_until(&self.loader, Instant::now().checked_add(time))
    }
}

impl Iterator for SharedEpoch {
    type Item = Result<Batch>;

    fn next(&mut self) -> Option<Result<Batch>> {
        let _turn = self.loader.turn();
        self.cursor.next(&self.loader)
    }
}

/// Iterator over the batches of all remaining epochs. It owns the loader, see
/// [`Loader::into_batches`].
pub struct Batches {
    loader: Loader,
    /// Current epoch, if one is running.
    cursor: Option<Cursor>,
    finished: bool,
}

impl Batches {
    /// The loader, for [`Loader::stats`], [`Loader::state`] and similar methods.
    pub fn loader(&self) -> &Loader {
        &self.loader
    }

    /// Returns the loader. A running epoch ends, as if a loop were left early.
    pub fn into_loader(self) -> Loader {
        self.loader
    }
}

impl Iterator for Batches {
    type Item = Result<Batch>;

    fn next(&mut self) -> Option<Result<Batch>> {
        while !self.finished {
            let cursor = self.cursor.get_or_insert_with(|| Cursor::begin(&self.loader));
            self.finished = cursor.over;
            if let Some(batch) = cursor.next(&self.loader) {
                self.finished |= batch.is_err();
                return Some(batch);
            }
            self.cursor = None;
        }
        None
    }
}

impl FusedIterator for Batches {}

/// Position of a consumer in an epoch.
struct Cursor {
    epoch: u32,
    remaining: u64,
    /// Whether the builder's number of epochs was reached before this epoch. If so, this epoch has
    /// no batches.
    over: bool,
    /// Whether [`Error::Forked`] was returned.
    forked: bool,
    /// Time at which the consumer began to wait, and whether a batch was ready at that time.
    asking: Option<(Instant, bool)>,
}

impl Cursor {
    /// Begins the loader's next epoch.
    fn begin(loader: &Loader) -> Self {
        // A child process must not lock: another thread may have held the lock at the fork.
        if loader.check_process().is_err() {
            return Self { epoch: 0, remaining: 0, over: false, forked: false, asking: None };
        }
        let mut state = loader.lock();
        let epoch = state.next_epoch;
        let over = state.end_epoch.is_some_and(|end| epoch >= end);
        if state.ended.is_some() && !over {
            // An error has ended the loader. This epoch has one step left, which returns that
            // error. The position does not change.
            let (epoch, _) = state.at;
            return Self { epoch, remaining: 1, over, forked: false, asking: None };
        }
        let remaining = if over { 0 } else { loader.order.extent(epoch).batches() };
        state.next_epoch = epoch.saturating_add(1);
        if !over {
            state.at = (epoch, 0);
        }
        drop(state);
        loader.engine.want_epoch(epoch);
        Self { epoch, remaining, over, forked: false, asking: None }
    }

    fn next(&mut self, loader: &Loader) -> Option<Result<Batch>> {
        match self.next_until(loader, None) {
            Poll::Ready(next) => next,
            Poll::Pending => None,
        }
    }

    /// Waits for the next batch until `deadline`, or without limit if there is no deadline.
    fn next_until(
        &mut self,
        loader: &Loader,
        deadline: Option<Instant>,
    ) -> Poll<Option<Result<Batch>>> {
        if let Err(error) = loader.check_process() {
            let first = !std::mem::replace(&mut self.forked, true);
            return Poll::Ready(first.then_some(Err(error)));
        }
        let state = loader.lock();
        if let Some(error) = &state.ended
            && self.remaining > 0
        {
            self.remaining = 0;
            return Poll::Ready(Some(Err(error.clone())));
        }
        let left_early = state.at.0 > self.epoch;
        drop(state);
        if left_early {
            return Poll::Ready(None);
        }
        if self.remaining == 0 {
            loader.meters.consumer_ends(self.epoch, Instant::now());
            return Poll::Ready(None);
        }
        let (asked, ready) = *self.asking.get_or_insert_with(|| {
            let now = Instant::now();
            loader.meters.consumer_asks(self.epoch, now);
            (now, loader.engine.ready() > 0)
        });
        let mut peeked = loader.peeked();
        let batch = loop {
            match loader.next_batch(&mut peeked, deadline) {
                // The consumer left an earlier epoch before its end, and this batch was prefetched
                // for that epoch.
                Poll::Ready(Some(Ok(batch))) if batch.epoch() < self.epoch => {
                    loader.meters.batch_dropped();
                    drop(batch);
                }
                // All samples of this batch failed and were dropped.
                Poll::Ready(Some(Ok(batch))) if batch.is_empty() => {
                    loader.meters.batch_dropped();
                    let extent = loader.order.extent(batch.info().epoch);
                    loader.counters.hand_out(batch.info(), extent);
                    drop(batch);
                    self.remaining -= 1;
                    loader.lock().at.1 += 1;
                    if self.remaining == 0 {
                        self.asking = None;
                        return Poll::Ready(None);
                    }
                }
                Poll::Ready(Some(Ok(batch))) => break Ok(batch),
                Poll::Ready(Some(Err(error))) => break Err(error),
                Poll::Ready(None) => {
                    // Another thread may have ended the loader meanwhile.
                    let ended = loader.lock().ended.clone();
                    let problem = "the loader has ended".into();
                    break Err(ended.unwrap_or(Error::Internal { problem }));
                }
                Poll::Pending => return Poll::Pending,
            }
        };
        drop(peeked);
        self.asking = None;
        Poll::Ready(match batch {
            Ok(batch) => {
                let waited = asked.elapsed();
                loader.meters.consumer_has(asked, ready, batch.len() as u64);
                loader.counters.hand_out(batch.info(), loader.order.extent(batch.info().epoch));
                self.remaining -= 1;
                loader.lock().at.1 += 1;
                if let Some(tuning) = &loader.tuning {
                    tuning.batch_taken(|| loader.measured(), |since| loader.profile_since(since));
                }
                if let Some(prefetcher) = &loader.prefetcher {
                    let (ready, filling) = loader.meters.batches_ahead();
                    prefetcher.batch_taken(|began| TakenBatch {
                        samples: batch.len() as u64,
                        now: began.elapsed().as_secs_f64(),
                        waited: waited.as_secs_f64(),
                        begun: (ready + filling) as u64,
                        workers: loader.controls.gate.open(),
                        alone: loader.is_settled(),
                    });
                }
                Some(Ok(batch))
            }
            Err(error) => {
                loader.end(&error);
                self.remaining = 0;
                Some(Err(error))
            }
        })
    }
}
