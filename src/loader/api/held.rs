//! Handling of consumers that hold every batch of the ring, and peeking at the next batch.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{MutexGuard, OnceLock, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

use super::Loader;
use crate::error::Result;
use crate::loader::batch::Batch;

/// State that is used if the consumer holds every batch.
pub(in crate::loader) struct Held {
    /// Whether to allocate memory for more batches while the consumer holds every batch.
    adds: bool,
    /// Number of additional batches for which memory was allocated.
    added: AtomicU64,
    /// The warning about a consumer that holds every batch, once it was given.
    warning: OnceLock<String>,
}

impl Held {
    pub fn new(adds: bool) -> Self {
        Self { adds, added: AtomicU64::new(0), warning: OnceLock::new() }
    }

    pub fn added(&self) -> u64 {
        self.added.load(Ordering::Relaxed)
    }

    pub fn warning(&self) -> Option<String> {
        self.warning.get().cloned()
    }
}

impl Loader {
    /// Returns a copy of the next batch in host memory, and waits at most for `time`. The position
    /// does not change: several calls return the same batch, and a loop gets that batch next.
    /// `None` after the last epoch.
    pub fn peek_within(&self, time: Duration) -> Poll<Option<Result<Batch>>> {
        if let Err(error) = self.check_process() {
            return Poll::Ready(Some(Err(error)));
        }
        if let Some(error) = &self.lock().ended {
            return Poll::Ready(Some(Err(error.clone())));
        }
        if self.batches_of_this_epoch() == 0 {
            return Poll::Ready(None);
        }
        let deadline = Instant::now().checked_add(time);
        let mut peeked = self.peeked();
        let batch = loop {
            let epoch = self.lock().at.0;
            match self.next_batch(&mut peeked, deadline) {
                Poll::Ready(Some(Ok(batch))) if batch.epoch() < epoch => {
                    self.meters.batch_dropped();
                }
                Poll::Ready(Some(Ok(batch))) => break batch,
                Poll::Ready(Some(Err(error))) => {
                    self.end(&error);
                    return Poll::Ready(Some(Err(error)));
                }
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => return Poll::Pending,
            }
        };
        let copied = batch.copied_to_host();
        *peeked = Some(batch);
        Poll::Ready(Some(copied))
    }

    /// Takes the next batch: the batch that was peeked at, or else the next one of the ring.
    pub(in crate::loader) fn next_batch(
        &self,
        peeked: &mut Option<Batch>,
        deadline: Option<Instant>,
    ) -> Poll<Option<Result<Batch>>> {
        if let Some(batch) = peeked.take() {
            return Poll::Ready(Some(Ok(batch)));
        }
        let held = |batches| self.all_are_held(batches);
        let next = self.engine.next_until(deadline, self.held.adds, held);
        let batch = |slot| Batch::new(slot, self.source.clone(), self.plan.clone(), self.process);
        next.map(|next| next.map(|slot| slot.map(batch)))
    }

    pub(in crate::loader) fn peeked(&self) -> MutexGuard<'_, Option<Batch>> {
        self.peeked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Handles a consumer that waits for a batch while it holds all batches: allocates memory for
    /// another batch, or gives a warning.
    fn all_are_held(&self, batches: usize) {
        let Held { adds, added, warning } = &self.held;
        if !adds {
            let text = format!(
                "next() waits, because the consumer holds {batches} batches, which are all that \
                 exist; drop a batch, or set loader.prefetch to at least {batches}"
            );
            if warning.set(text.clone()).is_ok() {
                eprintln!("feedwater: {text}");
            }
            return;
        }
        match self.engine.add_slot(&self.plan) {
            Ok(0) => {}
            Ok(_) => {
                added.fetch_add(1, Ordering::Relaxed);
                warning.get_or_init(|| {
                    format!(
                        "the consumer held all {batches} batches, so memory for more batches is \
                         allocated beyond the plan (stats.batches_added counts them); clone data \
                         that you keep longer and drop the batches, or set loader.prefetch to at \
                         least {batches}"
                    )
                });
            }
            Err(error) => self.engine.fail(error),
        }
    }
}
