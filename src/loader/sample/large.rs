//! Memory for samples that need more host memory than their worker's share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::error::{DataError, Reason, reserve};
use crate::footprint;
use crate::geometry::Size;
use crate::plan::{SampleMemory, SampleRoom};

/// Pool of memory that all workers share. A worker takes a part for one sample. Requests are served
/// in their order, so a request for a large part does not starve.
#[derive(Debug)]
pub struct LargeImages {
    bytes: u64,
    /// Whether the footprint contains this pool.
    planned: bool,
    /// Largest part that was taken, in bytes.
    most: AtomicU64,
    /// Whether the loader is ending. Can be read without the lock.
    is_closed: AtomicBool,
    state: Mutex<LargeImagesState>,
    changed: Condvar,
}

#[derive(Debug)]
struct LargeImagesState {
    free: u64,
    /// Ticket of the next new request, and ticket of the request that is served next.
    next: u64,
    served: u64,
    closed: bool,
}

/// Part of the pool. Dropping it returns the memory.
#[derive(Debug)]
pub struct Reservation {
    of: Arc<LargeImages>,
    bytes: u64,
}

impl LargeImages {
    /// Creates a pool of `bytes` bytes.
    pub fn new(bytes: u64) -> Self {
        let state = LargeImagesState { free: bytes, next: 0, served: 0, closed: false };
        let (state, changed) = (Mutex::new(state), Condvar::new());
        let (most, is_closed) = (AtomicU64::new(0), AtomicBool::new(false));
        Self { bytes, planned: true, most, is_closed, state, changed }
    }

    /// Creates the pool of a plan.
    pub fn of(room: &SampleRoom) -> Self {
        Self { planned: room.large > 0, ..Self::new(room.beyond_shares()) }
    }

    /// Warning if samples needed memory that is not in the footprint.
    pub fn warning(&self) -> Option<String> {
        let most = self.most.load(Ordering::Relaxed);
        (!self.planned && most > 0).then(|| {
            format!(
                "a sample took up to {} more memory than the plan predicts: the sample has \
                 changed since the plan was made, or largest_output of one of your operators \
                 returns too small a size; build the loader again, or correct largest_output",
                footprint::bytes(most)
            )
        })
    }

    /// Takes a part, at most the whole pool. Waits until enough memory is free. `None` after the
    /// pool is closed.
    pub fn take(self: &Arc<Self>, bytes: u64) -> Option<Reservation> {
        let bytes = bytes.min(self.bytes);
        let mut state = self.lock();
        let turn = state.next;
        state.next += 1;
        while !state.closed && (state.served != turn || state.free < bytes) {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.closed {
            return None;
        }
        state.served += 1;
        state.free -= bytes;
        drop(state);
        self.most.fetch_max(bytes, Ordering::Relaxed);
        self.changed.notify_all();
        Some(Reservation { of: self.clone(), bytes })
    }

    /// Wakes all waiting threads at the end of the loader.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
        self.lock().closed = true;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, LargeImagesState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.of.lock().free += self.bytes;
        self.of.changed.notify_all();
    }
}

/// What a sample takes from the pool if it needs more than its worker's share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Take {
    /// The bytes beyond the share.
    Needed,
    /// The whole pool, for a sample that may need more later.
    WholePool,
}

/// Memory budget of a worker: its share, and the part of the pool for the current sample.
pub struct Room {
    room: SampleRoom,
    large: Arc<LargeImages>,
    /// Maximum size of each buffer since all buffers were freed.
    held: SampleMemory,
    part: Option<Reservation>,
}

impl Room {
    /// Budget of a thread without a plan: 32 MiB besides its file, and the shared pool.
    pub fn of_thread(large: Arc<LargeImages>) -> Self {
        let share = SampleMemory { library: 32 << 20, ..SampleMemory::default() };
        Self::new(SampleRoom { share, large: large.bytes, unplanned: 0 }, large)
    }

    /// Budget of a worker of a plan.
    pub fn new(room: SampleRoom, large: Arc<LargeImages>) -> Self {
        Self { room, large, held: SampleMemory::default(), part: None }
    }

    /// Whether the worker's share covers this memory.
    pub fn covers(&self, need: &SampleMemory) -> bool {
        need.total() <= self.room.share.total()
    }

    /// Memory for a sample whose chains need `drawn` for the drawn actions. `need` is its memory
    /// before that. If `is_bound`, it contains the bounds on the images and rows of all chains. It
    /// is then kept, or raised if an operator's bound was too small, as long as the share covers
    /// it.
    pub fn need_of_drawn(
        &self,
        need: SampleMemory,
        is_bound: bool,
        drawn: impl Iterator<Item = SampleMemory>,
    ) -> SampleMemory {
        let start = (need, SampleMemory::default());
        let (raised, largest) =
            drawn.fold(start, |(raised, largest), it| (raised.with_drawn(&it), largest.max(&it)));
        match is_bound && self.covers(&raised) {
            true => raised,
            false => need.with_passes_of(&largest),
        }
    }

    /// Maximum size in bytes of a file that the worker's share covers, unless the budget is
    /// [crowded](Self::is_crowded).
    pub fn file_bytes(&self) -> u64 {
        self.room.share.file
    }

    /// Bytes of the worker's share for coefficient tables.
    pub fn table_bytes(&self) -> u64 {
        self.room.share.tables.saturating_add(self.room.share.views[0])
    }

    /// Whether the loader is ending, so that nobody will receive the current sample.
    pub fn is_ending(&self) -> bool {
        self.large.is_closed.load(Ordering::Relaxed)
    }

    /// Whether the buffers besides the file's are so large that a file of
    /// [`file_bytes`](Self::file_bytes) bytes may not fit into the share. These buffers must then
    /// be freed before a file is read.
    pub fn is_crowded(&self) -> bool {
        let (held, share) = (self.held, self.room.share);
        held.total() - held.file > share.total() - share.file
    }

    /// Records that all buffers except `kept` were freed.
    pub fn released(&mut self, kept: SampleMemory) {
        self.held = kept;
    }

    /// Maximum size of a file that share and pool allow together, in bytes, at most `limit`.
    pub fn most_file_bytes(&self, limit: u64) -> u64 {
        limit.min(self.room.share.total().saturating_add(self.room.beyond_shares()))
    }

    /// Whether the current sample exceeds the worker's share. If so, its buffers must be freed when
    /// it is finished.
    pub fn is_beyond(&self) -> bool {
        self.part.is_some()
    }

    /// Reserves memory for a sample before its buffers grow. If buffers of earlier samples must be
    /// freed first, calls `release`, which frees all buffers except `kept`. If the sample needs
    /// more than its worker's share of the memory, takes `take` from the pool, and waits until the
    /// pool has it.
    pub fn admit(
        &mut self,
        (size, take): (Size, Take),
        need: &SampleMemory,
        kept: &SampleMemory,
        release: impl FnOnce(),
    ) -> Result<(), DataError> {
        let share = self.room.share.total();
        let all = self.held.max(need);
        if self.part.is_none() && all.total() <= share {
            self.held = all;
            return Ok(());
        }
        let need = need.max(kept);
        let beyond = self.room.beyond(size, &need)?;
        if let Some(part) = &self.part {
            let (all, has) = (self.held.max(&need), share.saturating_add(part.bytes));
            if all.total() <= has {
                self.held = all;
                return Ok(());
            }
            // A worker that holds a part of the pool must not wait for a second part. Otherwise two
            // workers could wait for each other.
            let stays = SampleMemory { whole: need.whole, ..*kept };
            if stays.total() > share {
                return Err(no_room(size, &need, has));
            }
            release();
            self.give_back();
        } else {
            release();
        }
        self.held = need;
        if beyond > 0 {
            let bytes = match take {
                Take::Needed => beyond,
                Take::WholePool => self.room.beyond_shares(),
            };
            self.part = Some(self.large.take(bytes).ok_or_else(ends)?);
        }
        Ok(())
    }

    /// Takes the whole pool, for a file that exceeds the worker's share. The caller must have freed
    /// all its buffers.
    pub fn take_all(&mut self) -> Result<(), DataError> {
        self.held = SampleMemory::default();
        self.part = Some(self.large.take(self.room.beyond_shares()).ok_or_else(ends)?);
        Ok(())
    }

    /// Returns the part of the current sample. The caller must have freed its buffers.
    pub fn give_back(&mut self) {
        self.held = SampleMemory::default();
        if self.part.is_some() {
            reserve::trim();
        }
        self.part = None;
    }
}

fn no_room(size: Size, need: &SampleMemory, has: u64) -> DataError {
    let needed = need.total();
    let problem = format!(
        "an image of {size} and the buffers that cannot be freed meanwhile need {needed} bytes of \
         host memory, but a worker has only {has} bytes; raise limits.large_image_memory"
    );
    DataError::new(Reason::Oversized, problem)
}

fn ends() -> DataError {
    DataError::new(Reason::Unreadable, "the loader is ending")
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn parts_never_exceed_the_pool_and_every_request_is_served() {
        let large = Arc::new(LargeImages::new(100));
        let (taken, most) = (AtomicU64::new(0), AtomicU64::new(0));
        thread::scope(|scope| {
            for thread in 0..8u64 {
                let (large, taken, most) = (&large, &taken, &most);
                scope.spawn(move || {
                    for step in 0..200 {
                        let bytes = 1 + (thread * 37 + step * 11) % 100;
                        let part = large.take(bytes).unwrap();
                        let now = taken.fetch_add(bytes, Ordering::SeqCst) + bytes;
                        most.fetch_max(now, Ordering::SeqCst);
                        taken.fetch_sub(bytes, Ordering::SeqCst);
                        drop(part);
                    }
                });
            }
        });
        assert!(most.into_inner() <= 100);
        assert_eq!(large.lock().free, 100);
    }

    #[test]
    fn closing_ends_every_wait() {
        let large = Arc::new(LargeImages::new(10));
        let all = large.take(10).unwrap();
        thread::scope(|scope| {
            let waits: Vec<_> = (0..3).map(|_| scope.spawn(|| large.take(1).is_none())).collect();
            while large.lock().next < 4 {
                thread::yield_now();
            }
            large.close();
            assert!(waits.into_iter().all(|it| it.join().unwrap()));
        });
        drop(all);
    }

    #[test]
    fn buffers_are_freed_before_their_sum_exceeds_the_share() {
        let need = |file, library| SampleMemory { file, library, ..SampleMemory::default() };
        let room = SampleRoom { share: need(50, 50), large: 30, unplanned: 0 };
        let large = Arc::new(LargeImages::new(30));
        let mut worker = Room::new(room, large.clone());
        let image = (Size::new(1, 1), Take::Needed);
        let mut admit = |file, library| {
            let mut released = false;
            let admitted =
                worker.admit(image, &need(file, library), &need(0, 0), || released = true);
            let beyond = worker.is_beyond();
            if beyond {
                worker.give_back();
            }
            (admitted.map_err(|error| error.reason), released, beyond)
        };
        assert_eq!(admit(80, 10), (Ok(()), false, false));
        // Without a release, a file buffer of 80 bytes and a library buffer of 90 bytes would exist
        // at the same time, which exceeds the share of 100 bytes. So the buffers are released
        // first.
        assert_eq!(admit(10, 90), (Ok(()), true, false));
        assert_eq!(admit(10, 20), (Ok(()), false, false));
        assert_eq!(admit(60, 70), (Ok(()), true, true));
        assert_eq!(admit(60, 71), (Err(Reason::Oversized), false, false));
        assert_eq!(large.lock().free, 30);
    }

    /// A sample that already has a part may need more memory than expected.
    #[test]
    fn a_larger_part_is_taken_after_the_first_one_was_returned() {
        let need = |file, library| SampleMemory { file, library, ..SampleMemory::default() };
        let large = Arc::new(LargeImages::new(40));
        let room = SampleRoom { share: need(50, 50), large: 40, unplanned: 0 };
        let mut worker = Room::new(room, large.clone());
        let (image, mut released) = ((Size::new(1, 1), Take::Needed), 0);
        let mut admit = |worker: &mut Room, library, file| {
            let admitted =
                worker.admit(image, &need(file, library), &need(file, 0), || released += 1);
            (admitted.map_err(|error| error.reason), worker.part.as_ref().map(|part| part.bytes))
        };
        assert_eq!(admit(&mut worker, 60, 50), (Ok(()), Some(10)));
        assert_eq!(admit(&mut worker, 80, 50), (Ok(()), Some(30)));
        assert_eq!(large.lock().free, 10);
        worker.give_back();
        // The file alone has 110 bytes and exceeds the share of 100 bytes.
        assert_eq!(admit(&mut worker, 0, 110), (Ok(()), Some(10)));
        assert_eq!(admit(&mut worker, 20, 110).0, Err(Reason::Oversized));
        assert_eq!(released, 3);
        worker.give_back();
        assert_eq!(large.lock().free, 40);
    }

    #[test]
    fn other_buffers_that_use_the_files_part_of_the_share_crowd_it() {
        let need = |file, library| SampleMemory { file, library, ..SampleMemory::default() };
        let large = Arc::new(LargeImages::new(0));
        let room = SampleRoom { share: need(50, 50), ..SampleRoom::default() };
        let mut worker = Room::new(room, large);
        let image = (Size::new(1, 1), Take::Needed);
        worker.admit(image, &need(50, 50), &need(0, 0), || ()).unwrap();
        assert!(!worker.is_crowded());
        worker.admit(image, &need(10, 90), &need(0, 0), || ()).unwrap();
        assert!(worker.is_crowded());
        worker.released(need(10, 0));
        assert!(!worker.is_crowded());
    }
}
