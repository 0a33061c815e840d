//! What the simulation counts and plans with.

use std::cmp::Ordering;
use std::collections::VecDeque;

#[derive(Clone, Copy)]
pub(super) enum Kind {
    /// A worker begins.
    Start,
    /// A sample's stage is over.
    Stage,
    /// What a finished batch costs besides is over; the sample finished last.
    Batch,
    /// The consumer's part on a core is over.
    Host,
    /// The step is over.
    Step,
}

/// Something that will happen; of two at one time the one that was planned first comes first.
pub(super) struct Planned {
    pub time: f64,
    pub order: u32,
    pub kind: Kind,
    pub id: u32,
}

#[derive(Clone, Copy)]
pub(super) enum State {
    Busy,
    Queued,
    Page,
    Slot,
}

/// A worker: what it does, since when, and how long it did what.
#[derive(Clone, Copy)]
pub(super) struct Worker {
    pub state: State,
    pub since: f64,
    pub sums: [f64; 4],
}

/// A count over time.
#[derive(Clone, Copy, Default)]
pub(super) struct Level {
    pub count: u32,
    pub since: f64,
    pub area: f64,
}

/// Cores, or the servers of a resource.
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
    /// The heap gives the greatest first: the earliest.
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
