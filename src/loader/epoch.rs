//! Iterating over a loader: one epoch that borrows it, or all epochs that are left with the loader inside.

use std::iter::FusedIterator;
use std::ops::Deref;
use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::error::{Error, Result};

use super::{Batch, Loader};

impl Loader {
    /// The next epoch, as `for batch in &mut loader` iterates over it. The loader's other methods stay usable through it:
    ///
    /// ```no_run
    /// # fn main() -> feedwater::Result<()> {
    /// # let mut loader = feedwater::config::Pipeline::from_file("pipeline.toml")?.builder()?.build()?;
    /// let mut epoch = loader.epoch();
    /// while let Some(batch) = epoch.next() {
    ///     let batch = batch?;
    ///     println!("batch {}, {} images so far", batch.number(), epoch.stats().images);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// A second epoch while one is under way does not compile:
    ///
    /// ```compile_fail,E0499
    /// # fn main() -> feedwater::Result<()> {
    /// # let mut loader = feedwater::config::Pipeline::from_file("pipeline.toml")?.builder()?.build()?;
    /// let mut first = loader.epoch();
    /// let mut second = loader.epoch(); // cannot borrow `loader` as mutable more than once at a time
    /// first.next();
    /// # Ok(())
    /// # }
    /// ```
    pub fn epoch(&mut self) -> Epoch<'_> {
        Epoch::begin(self)
    }

    /// The batches of this and all following epochs, in an iterator that owns the loader: for a consumer on another thread.
    /// [`Batch::epoch`] says which epoch a batch belongs to. It ends after the epochs that the builder was given, and after an
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

impl<'a> IntoIterator for &'a Loader {
    type Item = Result<Batch>;
    type IntoIter = Epoch<'a>;

    /// The next epoch of a loader that is shared. Prefer `&mut loader`: there the compiler refuses a second epoch at the same time,
    /// which here is an error of its first [`next`](Iterator::next).
    fn into_iter(self) -> Epoch<'a> {
        Epoch::begin(self)
    }
}

/// The batches of one epoch. It derefs to the loader, so that `epoch.stats()`, `epoch.state()` and the like work while it is
/// under way. A batch does not borrow it.
pub struct Epoch<'a> {
    loader: &'a Loader,
    cursor: Cursor,
}

impl<'a> Epoch<'a> {
    fn begin(loader: &'a Loader) -> Self {
        Self { loader, cursor: Cursor::begin(loader) }
    }

    /// The epoch's number, from 0.
    pub fn number(&self) -> u32 {
        self.cursor.epoch
    }

    /// The loader, which may be asked for everything but another epoch.
    pub fn loader(&self) -> &Loader {
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

impl Drop for Epoch<'_> {
    fn drop(&mut self) {
        self.cursor.end(self.loader);
    }
}

/// The batches of all epochs that were left, with the loader inside: [`Loader::into_batches`].
pub struct Batches {
    loader: Loader,
    /// The epoch under way.
    cursor: Option<Cursor>,
    finished: bool,
}

impl Batches {
    /// The loader, for [`Loader::stats`], [`Loader::state`] and the like.
    pub fn loader(&self) -> &Loader {
        &self.loader
    }

    /// The loader back. An epoch that is under way ends, as when a loop is left early.
    pub fn into_loader(self) -> Loader {
        if let Some(mut cursor) = self.cursor {
            cursor.end(&self.loader);
        }
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
            cursor.end(&self.loader);
            self.cursor = None;
        }
        None
    }
}

impl FusedIterator for Batches {}

/// Where a consumer is in an epoch.
struct Cursor {
    epoch: u32,
    remaining: u64,
    turn: Turn,
    /// The epochs that the builder was given are over.
    over: bool,
}

#[derive(PartialEq)]
enum Turn {
    Running,
    /// Another loop has the loader; this one has still to say so.
    Refused,
    Over,
}

impl Cursor {
    /// Takes the loader for its next epoch, where no other loop has it.
    fn begin(loader: &Loader) -> Self {
        if loader.check_process().is_err() || loader.iterating.swap(true, Ordering::AcqRel) {
            return Self { epoch: 0, remaining: 0, turn: Turn::Refused, over: false };
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
        Self { epoch, remaining, turn: Turn::Running, over }
    }

    /// Lets the loader go; an epoch that was refused never had it.
    fn end(&mut self, loader: &Loader) {
        if self.turn == Turn::Running {
            loader.iterating.store(false, Ordering::Release);
        }
        self.turn = Turn::Over;
    }

    fn next(&mut self, loader: &Loader) -> Option<Result<Batch>> {
        if self.turn != Turn::Over
            && let Err(error) = loader.check_process()
        {
            self.turn = Turn::Over;
            return Some(Err(error));
        }
        match self.turn {
            Turn::Running => {}
            Turn::Over => return None,
            Turn::Refused => {
                self.turn = Turn::Over;
                let problem =
                    "another loop over this loader is running; make one loader for each".into();
                return Some(Err(Error::Internal { problem }));
            }
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
                // What was ready when the epoch before was left early.
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
                if let Some(ahead) = &loader.ahead {
                    ahead.batch_taken(loader, batch.len(), waited);
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
