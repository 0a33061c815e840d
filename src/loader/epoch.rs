//! Iterators over a loader: one epoch that borrows it, or all remaining epochs that own it.

use std::iter::FusedIterator;
use std::ops::Deref;
use std::time::Instant;

use crate::error::{Error, Result};

use super::{Batch, Loader};

impl Loader {
    /// Begins the next epoch, as `for batch in &mut loader` does. The loader's other methods stay usable through it:
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

    /// Iterates over the batches of the next and all following epochs and owns the loader: for a consumer on another
    /// thread. [`Batch::epoch`] returns the epoch of a batch. Ends after the builder's number of epochs, and after an
    /// error.
    pub fn into_batches(self) -> Batches {
        Batches { loader: self, cursor: None, finished: false }
    }
}

impl<'a> IntoIterator for &'a mut Loader {
    type Item = Result<Batch>;
    type IntoIter = Epoch<'a>;

    /// The next epoch: [`Loader::epoch`].
    fn into_iter(self) -> Epoch<'a> {
        self.epoch()
    }
}

/// Iterator over the batches of one epoch. It derefs to the loader, so that `epoch.stats()` and `epoch.state()` work
/// while it runs. A batch does not borrow it.
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

    /// The loader, for everything but another epoch. Other threads may use it while this one takes batches.
    pub fn loader(&self) -> &'a Loader {
        self.loader
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

/// Iterator over the batches of all remaining epochs, which owns the loader: [`Loader::into_batches`].
pub struct Batches {
    loader: Loader,
    /// The running epoch.
    cursor: Option<Cursor>,
    finished: bool,
}

impl Batches {
    /// The loader, for [`Loader::stats`], [`Loader::state`] and similar methods.
    pub fn loader(&self) -> &Loader {
        &self.loader
    }

    /// Returns the loader. A running epoch ends, as when a loop is left early.
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
    /// Whether the builder's number of epochs is reached.
    over: bool,
    /// Whether [`Error::Forked`] was returned.
    forked: bool,
}

impl Cursor {
    /// Begins the loader's next epoch.
    fn begin(loader: &Loader) -> Self {
        // A child process must not lock: another thread may have held the lock at the fork.
        if loader.check_process().is_err() {
            return Self { epoch: 0, remaining: 0, over: false, forked: false };
        }
        let mut state = loader.lock();
        let epoch = state.next_epoch;
        let over = state.end_epoch.is_some_and(|end| epoch >= end);
        let remaining = if over { 0 } else { loader.order.extent(epoch).batches() };
        state.next_epoch = epoch.saturating_add(1);
        if !over {
            state.at = (epoch, 0);
        }
        drop(state);
        loader.engine.want_epoch(epoch);
        Self { epoch, remaining, over, forked: false }
    }

    fn next(&mut self, loader: &Loader) -> Option<Result<Batch>> {
        if let Err(error) = loader.check_process() {
            let first = !std::mem::replace(&mut self.forked, true);
            return first.then_some(Err(error));
        }
        if let Some(error) = &loader.lock().ended
            && self.remaining > 0
        {
            self.remaining = 0;
            return Some(Err(error.clone()));
        }
        if self.remaining == 0 {
            return None;
        }
        let asked = Instant::now();
        loader.meters.consumer_asks(self.epoch, asked);
        let ready = loader.engine.ready() > 0;
        let shape = loader.plan.shape;
        let batch = loop {
            match loader.engine.next(|batches| loader.tell_held(batches)) {
                // Prefetched batches of an earlier epoch that was left early.
                Some(Ok(slot)) if slot.info().epoch < self.epoch => {
                    loader.meters.batch_dropped();
                    drop(slot);
                }
                Some(Ok(slot)) => break Ok(Batch::new(slot, shape, loader)),
                Some(Err(error)) => break Err(error),
                None => break Err(Error::Internal { problem: "the loader has ended".into() }),
            }
        };
        match batch {
            Ok(batch) => {
                let waited = asked.elapsed();
                loader.meters.consumer_has(asked, ready, batch.len() as u64);
                loader.counters.hand_out(batch.info());
                self.remaining -= 1;
                loader.lock().at.1 += 1;
                if let Some(tuning) = &loader.tuning {
                    tuning.batch_taken(loader);
                }
                if let Some(prefetcher) = &loader.prefetcher {
                    prefetcher.batch_taken(loader, batch.len(), waited);
                }
                Some(Ok(batch))
            }
            Err(error) => {
                loader.engine.stop();
                loader.lock().ended = Some(error.clone());
                self.remaining = 0;
                Some(Err(error))
            }
        }
    }
}
