//! Counters and events of the simulation.

use std::cmp::Ordering;
use std::collections::VecDeque;

#[derive(Clone, Copy)]
pub(super) enum Kind {
    /// A worker starts.
    Start,
    /// A stage of a sample ends. `id` is the sample.
    Stage,
    /// The `per_batch` time of a finished batch ends. `id` is the sample that finished last.
    Batch,
    /// The consumer's step stops using a core.
    Host,
    /// The consumer's step ends.
    Step,
}

/// Planned event. Events at the same time happen in the order in which they were planned.
pub(super) struct Planned {
    pub time: f64,
    pub order: u32,
    pub kind: Kind,
    pub id: u32,
}

#[derive(Clone, Copy)]
pub(super) enum WorkerState {
    Busy,
    Queued,
    Page,
    Slot,
}

/// Current state of a worker, the time at which this state began, and the total time in each state.
#[derive(Clone, Copy)]
pub(super) struct Worker {
    pub state: WorkerState,
    pub since: f64,
    pub sums: [f64; 4],
}

/// A count that changes, such as the number of busy servers, and its integral over time.
#[derive(Clone, Copy, Default)]
pub(super) struct Level {
    pub count: u32,
    pub since: f64,
    pub area: f64,
}

/// The cores, or the servers of one resource, with a queue of samples.
pub(super) struct Pool {
    pub servers: u32,
    pub busy: Level,
    pub queue: VecDeque<u32>,
}

impl Level {
    pub fn up(&mut self, now: f64) {
        self.area = self.until(now);
        self.since = now;
        self.count += 1;
    }

    pub fn down(&mut self, now: f64) {
        self.area = self.until(now);
        self.since = now;
        self.count -= 1;
    }

    pub fn until(&self, now: f64) -> f64 {
        self.area + f64::from(self.count) * (now - self.since)
    }
}

impl Ord for Planned {
    /// The order is reversed. A `BinaryHeap` pops its greatest element, which must be the earliest
    /// event.
    fn cmp(&self, other: &Self) -> Ordering {
        other.time.total_cmp(&self.time).then(other.order.cmp(&self.order))
    }
}

impl PartialOrd for Planned {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Planned {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Planned {}
