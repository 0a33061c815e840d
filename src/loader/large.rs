//! Room for samples that need more host memory than their worker's share.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::error::{DataError, Reason};
use crate::geometry::Size;
use crate::plan::{SampleMemory, SampleRoom};

/// What all workers of a loader have together, of which a worker takes a part for one sample. First come, first served, so
/// that a large part is not waited for for ever.
#[derive(Debug)]
pub struct LargeImages {
    bytes: u64,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    free: u64,
    /// The next to come, and the next to be served.
    next: u64,
    served: u64,
    closed: bool,
}

/// A part that was taken; dropping it gives it back.
#[derive(Debug)]
pub struct Part {
    of: Arc<LargeImages>,
    bytes: u64,
}

impl LargeImages {
    /// A pool of `bytes` bytes.
    pub fn new(bytes: u64) -> Self {
        let state = State { free: bytes, next: 0, served: 0, closed: false };
        Self { bytes, state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Takes a part, at most all of it; waits for others to give theirs back. `None` once it is closed.
    pub fn take(self: &Arc<Self>, bytes: u64) -> Option<Part> {
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
        self.changed.notify_all();
        Some(Part { of: self.clone(), bytes })
    }

    /// Lets nobody wait any more: the loader ends.
    pub fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.of.lock().free += self.bytes;
        self.of.changed.notify_all();
    }
}

/// A worker's room: its share, and the part that it has taken for the sample at hand.
pub struct Room {
    room: SampleRoom,
    large: Arc<LargeImages>,
    /// The most of each buffer since all were given back.
    held: SampleMemory,
    part: Option<Part>,
}

impl Room {
    /// Room of a thread that works without a plan: 32 MiB beside its file, and what all threads have together.
    pub fn of_thread(large: Arc<LargeImages>) -> Self {
        let share = SampleMemory { library: 32 << 20, ..SampleMemory::default() };
        Self::new(SampleRoom { share, large: large.bytes }, large)
    }

    /// A worker's room of a plan.
    pub fn new(room: SampleRoom, large: Arc<LargeImages>) -> Self {
        Self { room, large, held: SampleMemory::default(), part: None }
    }

    /// Most bytes of a file that the share has room for, once it is not [crowded](Self::is_crowded).
    pub fn file_bytes(&self) -> u64 {
        self.room.share.file
    }

    /// Whether other buffers hold so much that a file of the share's size may be too much: they are to be given back before
    /// one is read.
    pub fn is_crowded(&self) -> bool {
        let (held, share) = (self.held, self.room.share);
        held.total() - held.file > share.total() - share.file
    }

    /// Buffers were given back; `kept` are those that were not.
    pub fn released(&mut self, kept: SampleMemory) {
        self.held = kept;
    }

    /// Most bytes of a file that there is room for at all, where it is within `limit`.
    pub fn most_file_bytes(&self, limit: u64) -> u64 {
        limit.min(self.room.share.total().saturating_add(self.room.large))
    }

    /// Whether the sample at hand takes more than the share: its buffers are not kept.
    pub fn is_beyond(&self) -> bool {
        self.part.is_some()
    }

    /// Makes room for a sample before its buffers grow. Calls `release` where buffers of samples before it must be given back
    /// first; `kept` are those that it leaves. Waits for room where the sample needs more than the share.
    pub fn admit(
        &mut self,
        size: Size,
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
            self.held = self.held.max(&need);
            // More than was taken is not waited for, since others may wait for what is held.
            let has = share.saturating_add(part.bytes);
            return if self.held.total() <= has {
                Ok(())
            } else {
                Err(no_room(size, &self.held, has))
            };
        }
        release();
        self.held = need;
        if beyond > 0 {
            self.part = Some(self.large.take(beyond).ok_or_else(ends)?);
        }
        Ok(())
    }

    /// Takes all of the room for large samples, for a file that is larger than the share has room for. The caller has given
    /// all its buffers back.
    pub fn take_all(&mut self) -> Result<(), DataError> {
        self.held = SampleMemory::default();
        self.part = Some(self.large.take(self.room.large).ok_or_else(ends)?);
        Ok(())
    }

    /// Gives back what was taken for the sample, after its buffers.
    pub fn give_back(&mut self) {
        self.held = SampleMemory::default();
        if self.part.is_some() {
            trim();
        }
        self.part = None;
    }
}

fn no_room(size: Size, need: &SampleMemory, has: u64) -> DataError {
    let needed = need.total();
    let problem =
        format!("{size} needs {needed} bytes of host memory beside its file, there are {has}");
    DataError::new(Reason::Oversized, problem)
}

fn ends() -> DataError {
    DataError::new(Reason::Unreadable, "the loader ends")
}

/// Lets the allocator give free memory back to the system: the GNU library's keeps blocks of up to 32 MiB for each thread.
#[allow(unsafe_code)]
fn trim() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it takes a number and may be called at any time, from any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::thread;

    use super::*;

    #[test]
    fn parts_are_never_more_than_all_and_everyone_gets_one() {
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
    fn buffers_are_given_back_before_a_sum_of_largest_ones_passes_the_share() {
        let need = |file, library| SampleMemory { file, library, ..SampleMemory::default() };
        let room = SampleRoom { share: need(50, 50), large: 30 };
        let large = Arc::new(LargeImages::new(30));
        let mut worker = Room::new(room, large.clone());
        let size = Size::new(1, 1);
        let mut admit = |file, library| {
            let mut released = false;
            let admitted =
                worker.admit(size, &need(file, library), &need(0, 0), || released = true);
            let beyond = worker.is_beyond();
            if beyond {
                worker.give_back();
            }
            (admitted.map_err(|fault| fault.reason), released, beyond)
        };
        assert_eq!(admit(80, 10), (Ok(()), false, false));
        // 80 and 90 would be held together.
        assert_eq!(admit(10, 90), (Ok(()), true, false));
        assert_eq!(admit(10, 20), (Ok(()), false, false));
        assert_eq!(admit(60, 70), (Ok(()), true, true));
        assert_eq!(admit(60, 71), (Err(Reason::Oversized), false, false));
        assert_eq!(large.lock().free, 30);
    }

    #[test]
    fn a_file_finds_room_beside_buffers_that_took_its_part_of_the_share() {
        let need = |file, library| SampleMemory { file, library, ..SampleMemory::default() };
        let large = Arc::new(LargeImages::new(0));
        let mut worker = Room::new(SampleRoom { share: need(50, 50), large: 0 }, large);
        let size = Size::new(1, 1);
        worker.admit(size, &need(50, 50), &need(0, 0), || ()).unwrap();
        assert!(!worker.is_crowded());
        worker.admit(size, &need(10, 90), &need(0, 0), || ()).unwrap();
        assert!(worker.is_crowded());
        worker.released(need(10, 0));
        assert!(!worker.is_crowded());
    }
}
