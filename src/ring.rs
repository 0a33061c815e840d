//! A ring of slots that circulate between the threads that fill them and the consumer.
//!
//! Behaviour, with tests in this file or in `tests/loader/ring.rs`:
//!
//! * A slot is in exactly one state: free, being filled, ready, or in use. Backpressure is the lack
//!   of a free slot.
//! * Slots become ready in the order in which they are published. The consumer gets them in the
//!   same order.
//! * A slot becomes free when it is dropped, either before it is published or after use.
//! * After the last producer is dropped, the consumer gets the ready slots and then the end.
//! * After `fail`, the consumer gets the slots that were ready before, then the error once, then
//!   the end.
//! * After the consumer is dropped, or after `close`, waiting producers wake up and get nothing.
//! * Leaking a slot (`mem::forget`) removes it from the ring and has no other effect.
//! * If all slots are in use, no slot can become ready until one is dropped. The consumer may pass
//!   a callback for this case, which is called once per wait. The consumer keeps waiting, because
//!   another thread may drop a slot.
//! * A producer can query whether a slot is ready. If no slot is ready, the consumer waits or would
//!   wait.
//! * Free slots can be withheld. The number of withheld slots can change at any time. Withheld
//!   slots stay free, as if the ring had fewer slots.
//! * A consumer may add slots. A returned slot is freed if the ring has more than twice its initial
//!   number of slots.
//! * After the producers, the consumer and all slots are dropped, the memory of every slot is
//!   freed.
//!
//! The ring is independent of CUDA. The slots implement four hooks, which the ring calls before and
//! after a slot is filled and used. The ring consists of a mutex and two condition variables
//! instead of channels, for two reasons. A model checker can cover all of it (`crates/ring-loom`).
//! A producer that waits for a free slot must also notice that the consumer was dropped, which one
//! bounded channel cannot report.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::task::Poll;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};

#[cfg(feature = "loom")]
use loom::sync::{Arc, Condvar, Mutex, MutexGuard};
#[cfg(not(feature = "loom"))]
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

/// Hooks before and after filling and using a slot. On a device, the hooks record CUDA events and
/// wait for them.
pub trait Slot: Send {
    /// Called before the first write. Makes the filling thread or stream wait until the last use
    /// has ended.
    fn begin_fill(&mut self) -> Result<()>;
    /// Called after the last write. Marks the point after which the slot may be used.
    fn end_fill(&mut self) -> Result<()>;
    /// Called before the first read. Makes the using thread or stream wait until the slot is
    /// filled.
    fn begin_use(&mut self) -> Result<()>;
    /// Called after the last read. Marks the point after which the slot may be filled again.
    fn end_use(&mut self) -> Result<()>;
}

/// Interval at which a waiting consumer checks whether all slots are in use. The consumer must
/// check this from time to time, because `withhold` does not wake it.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// Shortest interval at which a waiting consumer checks whether all slots are in use, for consumers
/// that pass a short `patience`.
const SHORTEST_LOOK: Duration = Duration::from_millis(10);

/// Creates a ring with these slots.
pub fn ring<S: Slot>(slots: Vec<S>) -> (Producer<S>, Consumer<S>) {
    let shared = Arc::new(Shared {
        state: Mutex::new(RingState {
            begun_with: slots.len(),
            slots: slots.len(),
            in_use: 0,
            returned: true,
            free: slots.into(),
            ready: VecDeque::new(),
            withheld: 0,
            producers: 1,
            closed: false,
            failure: None,
            held_since: None,
        }),
        freed: Condvar::new(),
        published: Condvar::new(),
    });
    (Producer { shared: shared.clone() }, Consumer { shared })
}

struct Shared<S> {
    state: Mutex<RingState<S>>,
    /// Signals that a slot is free or the ring is closed.
    freed: Condvar,
    /// Signals that a slot is ready or that no more slots will become ready.
    published: Condvar,
}

struct RingState<S> {
    /// Number of slots when the ring was created.
    begun_with: usize,
    /// Number of slots now.
    slots: usize,
    /// Number of slots that are in use or were leaked while in use.
    in_use: usize,
    /// Whether a slot was returned after use since the last slot was added.
    returned: bool,
    free: VecDeque<S>,
    ready: VecDeque<S>,
    /// Number of free slots that are withheld.
    withheld: usize,
    producers: usize,
    closed: bool,
    failure: Option<Error>,
    /// Time when a waiting consumer first found all slots in use. `None` if not all are in use.
    held_since: Option<Instant>,
}

impl<S> RingState<S> {
    /// Whether every slot that is not withheld is in use. In this case, no slot can become ready
    /// until a slot is dropped.
    fn is_held(&self) -> bool {
        self.free.len() <= self.withheld && self.free.len() + self.in_use == self.slots
    }
}

impl<S> Shared<S> {
    /// Locks the state. A poisoned lock is safe to use: no other code runs while the lock is held,
    /// so a panic cannot leave the state inconsistent.
    fn lock(&self) -> MutexGuard<'_, RingState<S>> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn release(&self, slot: S, was_in_use: bool) {
        let mut state = self.lock();
        state.in_use -= usize::from(was_in_use);
        state.returned |= was_in_use;
        let is_spare = state.slots > 2 * state.begun_with;
        if state.closed || is_spare {
            state.slots -= usize::from(is_spare);
            // Release the lock first, because freeing the memory may take long.
            drop(state);
            drop(slot);
        } else {
            state.free.push_back(slot);
            drop(state);
            self.freed.notify_one();
        }
    }

    fn close(&self) {
        let (free, ready) = {
            let mut state = self.lock();
            state.closed = true;
            (std::mem::take(&mut state.free), std::mem::take(&mut state.ready))
        };
        drop((free, ready));
        self.freed.notify_all();
        self.published.notify_all();
    }
}

/// The filling side of the ring. Each filling thread has a clone.
pub struct Producer<S: Slot> {
    shared: Arc<Shared<S>>,
}

impl<S: Slot> Producer<S> {
    /// Waits for a free slot. Returns `None` if the consumer is dropped or the ring is closed.
    pub fn acquire(&self) -> Option<Filling<S>> {
        let mut state = self.shared.lock();
        loop {
            if state.closed || state.failure.is_some() {
                return None;
            }
            if state.free.len() > state.withheld
                && let Some(slot) = state.free.pop_front()
            {
                return Some(Filling { slot: Some(slot), shared: self.shared.clone() });
            }
            state = self.shared.freed.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
    }

    /// Sets the number of withheld slots. If fewer slots are free, slots in use are withheld when
    /// they are returned.
    pub fn withhold(&self, slots: usize) {
        self.shared.lock().withheld = slots;
        self.shared.freed.notify_all();
    }

    /// Whether at least one slot is ready for the consumer.
    pub fn any_ready(&self) -> bool {
        !self.shared.lock().ready.is_empty()
    }

    /// Ends the ring with an error, which the consumer gets after the ready slots. Only the first
    /// error is reported.
    pub fn fail(&self, error: Error) {
        let mut state = self.shared.lock();
        state.failure.get_or_insert(error);
        drop(state);
        self.shared.published.notify_all();
        self.shared.freed.notify_all();
    }
}

impl<S: Slot> Clone for Producer<S> {
    fn clone(&self) -> Self {
        self.shared.lock().producers += 1;
        Self { shared: self.shared.clone() }
    }
}

impl<S: Slot> Drop for Producer<S> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.producers -= 1;
        let last = state.producers == 0;
        drop(state);
        if last {
            self.shared.published.notify_all();
        }
    }
}

/// A slot that is being filled. Dropping it returns the slot unfilled.
pub struct Filling<S: Slot> {
    slot: Option<S>,
    shared: Arc<Shared<S>>,
}

impl<S: Slot> Filling<S> {
    /// Makes the slot ready. The consumer gets it after all slots that were published earlier.
    pub fn publish(mut self) -> Result<()> {
        let Some(mut slot) = self.slot.take() else { return Ok(()) };
        if let Err(error) = slot.end_fill() {
            self.shared.release(slot, false);
            return Err(error);
        }
        let mut state = self.shared.lock();
        if state.closed || state.failure.is_some() {
            drop(state);
            drop(slot);
        } else {
            state.ready.push_back(slot);
            drop(state);
            self.shared.published.notify_one();
        }
        Ok(())
    }
}

impl<S: Slot> Deref for Filling<S> {
    type Target = S;
    fn deref(&self) -> &S {
        self.slot.as_ref().expect("the slot is present until it is published or dropped")
    }
}

impl<S: Slot> DerefMut for Filling<S> {
    fn deref_mut(&mut self) -> &mut S {
        self.slot.as_mut().expect("the slot is present until it is published or dropped")
    }
}

impl<S: Slot> Drop for Filling<S> {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            self.shared.release(slot, false);
        }
    }
}

/// The consuming side of the ring. Dropping it closes the ring.
pub struct Consumer<S: Slot> {
    shared: Arc<Shared<S>>,
}

impl<S: Slot> Consumer<S> {
    /// Waits for the next ready slot. Returns `None` at the end of the ring.
    pub fn next(&self) -> Option<Result<Using<S>>> {
        self.next_or_tell(Duration::MAX, |_| ())
    }

    /// Waits like [`next`](Self::next). If all slots have been in use for `patience`, calls `held`
    /// with the number of slots in use, because no slot can become ready until one is dropped.
    /// Calls `held` at most once per wait.
    pub fn next_or_tell(
        &self,
        patience: Duration,
        held: impl FnOnce(usize),
    ) -> Option<Result<Using<S>>> {
        match self.next_until(None, patience, held) {
            Poll::Ready(next) => next,
            Poll::Pending => None,
        }
    }

    /// Waits like [`next_or_tell`](Self::next_or_tell), but at most until `deadline`. The time of
    /// this wait counts towards the `patience` of the next call.
    pub fn next_until(
        &self,
        deadline: Option<Instant>,
        patience: Duration,
        held: impl FnOnce(usize),
    ) -> Poll<Option<Result<Using<S>>>> {
        let mut held = Some(held);
        let mut state = self.shared.lock();
        let slot = loop {
            if let Some(slot) = state.ready.pop_front() {
                state.in_use += 1;
                state.held_since = None;
                break slot;
            }
            if state.failure.is_some() {
                state.closed = true;
                let error = state.failure.take();
                drop(state);
                self.shared.close();
                return Poll::Ready(error.map(Err));
            }
            if state.closed || state.producers == 0 {
                return Poll::Ready(None);
            }
            let time = deadline.map(|it| it.saturating_duration_since(Instant::now()));
            if time.is_some_and(|time| time.is_zero()) {
                return Poll::Pending;
            }
            if !state.is_held() {
                state.held_since = None;
            } else if state.held_since.get_or_insert_with(Instant::now).elapsed() >= patience
                && let Some(held) = held.take()
            {
                let count = state.in_use;
                // Unlock the ring, because the callback may drop a slot, and that locks the ring.
                drop(state);
                held(count);
                state = self.shared.lock();
                continue;
            }
            let look_again = LOOK_AGAIN.min(patience.max(SHORTEST_LOOK));
            let time = time.unwrap_or(look_again).min(look_again);
            let waited = self.shared.published.wait_timeout(state, time);
            state = waited.unwrap_or_else(|poisoned| poisoned.into_inner()).0;
        };
        drop(state);
        Poll::Ready(self.begin_use(slot))
    }

    /// Returns the next slot if one is ready. Does not wait, and does not return errors or the end
    /// of the ring.
    pub fn try_next(&self) -> Option<Result<Using<S>>> {
        let mut state = self.shared.lock();
        let slot = state.ready.pop_front()?;
        state.in_use += 1;
        drop(state);
        self.begin_use(slot)
    }

    /// Wakes all producers and frees all slots that are not in use.
    pub fn close(&self) {
        self.shared.close();
    }

    /// Adds a free slot.
    pub fn add(&self, slot: S) {
        let mut state = self.shared.lock();
        state.returned = false;
        // A closed ring has already freed its slots, so the new slot is freed too.
        if !state.closed {
            state.slots += 1;
            state.free.push_back(slot);
        }
        drop(state);
        self.shared.freed.notify_one();
    }

    /// Stops withholding one of the free slots. Returns false if no free slot is withheld.
    pub fn lend_withheld(&self) -> bool {
        let mut state = self.shared.lock();
        let lent = state.withheld > 0 && !state.free.is_empty();
        state.withheld = state.withheld.min(state.free.len()) - usize::from(lent);
        drop(state);
        self.shared.freed.notify_one();
        lent
    }

    /// Number of slots that were added and are not freed yet.
    pub fn added(&self) -> usize {
        let state = self.shared.lock();
        state.slots.saturating_sub(state.begun_with)
    }

    /// Whether a slot was returned after use since the last slot was added. True before the first
    /// slot is added.
    pub fn any_returned(&self) -> bool {
        self.shared.lock().returned
    }

    /// Number of ready slots.
    pub fn ready(&self) -> usize {
        self.shared.lock().ready.len()
    }

    fn begin_use(&self, mut slot: S) -> Option<Result<Using<S>>> {
        if let Err(error) = slot.begin_use() {
            self.shared.release(slot, true);
            return Some(Err(error));
        }
        Some(Ok(Using { slot: Some(slot), shared: self.shared.clone() }))
    }
}

impl<S: Slot> Drop for Consumer<S> {
    fn drop(&mut self) {
        self.shared.close();
    }
}

/// A slot in use. Dropping it frees the slot, also on another thread and after the consumer is
/// dropped.
pub struct Using<S: Slot> {
    slot: Option<S>,
    shared: Arc<Shared<S>>,
}

impl<S: Slot> Using<S> {
    /// Wraps a slot that belongs to no ring. Its memory is freed when it is dropped.
    pub fn of_no_ring(slot: S) -> Self {
        let (_, consumer) = ring(Vec::new());
        consumer.shared.lock().in_use = 1;
        let shared = consumer.shared.clone();
        // Dropping the consumer closes the ring, so the ring keeps no slot.
        drop(consumer);
        Self { slot: Some(slot), shared }
    }

    /// Leaks the slot without locking the ring. It is meant for a child process after `fork`, where
    /// the ring's lock may be held forever.
    pub fn abandon(&mut self) {
        std::mem::forget(self.slot.take());
        std::mem::forget(self.shared.clone());
    }
}

impl<S: Slot> Deref for Using<S> {
    type Target = S;
    fn deref(&self) -> &S {
        self.slot.as_ref().expect("present until drop")
    }
}

impl<S: Slot> DerefMut for Using<S> {
    fn deref_mut(&mut self) -> &mut S {
        self.slot.as_mut().expect("present until drop")
    }
}

impl<S: Slot> Drop for Using<S> {
    fn drop(&mut self) {
        if let Some(mut slot) = self.slot.take() {
            // A drop cannot return an error, so the ring stores the error. Producers stop, and the
            // consumer gets the error instead of a batch.
            if let Err(error) = slot.end_use() {
                self.shared.lock().failure.get_or_insert(error);
                self.shared.published.notify_all();
                self.shared.freed.notify_all();
            }
            self.shared.release(slot, true);
        }
    }
}
