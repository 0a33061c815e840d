//! Counters and events of the simulation.

use std::cmp::Ordering;
use std::collections::VecDeque;

#[derive(Clone, Copy)]
pub(super) enum Kind {
    /// A worker starts.
    Start,
    /// Event: a stage of the sample `id` ends.
    Stage,
    /// Event: the `per_batch` time of a finished batch ends. The sample `id` of this batch was the
    /// last to finish.
    Batch,
    /// Event: the part of the consumer's step that uses a core ends.
    Host,
    /// Event: the consumer's step ends.
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
