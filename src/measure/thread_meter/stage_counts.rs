//! Counts of one thread in one stage.

use crate::measure::histogram::Counts;

/// Counts of one thread in one stage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StageCounts {
    /// Number of samples, or of groups for a thread that works on groups.
    pub count: u64,
    /// Number of input bytes.
    pub bytes: u64,
    /// Nanoseconds that the thread spent in the stage.
    pub busy: u64,
    /// CPU nanoseconds of the clocked items, which are those whose CPU time was read.
    pub cpu: u64,
    /// Nanoseconds that the clocked items spent in the stage.
    pub clocked: u64,
    /// Nanoseconds that the thread waited for input.
    pub input: u64,
    /// Nanoseconds that the thread waited for space for its output.
    pub output: u64,
    /// Histogram of the durations of items.
    pub latency: Counts,
}

impl StageCounts {
    pub(in crate::measure) fn since(&self, then: &Self) -> Self {
        Self {
            count: self.count - then.count,
            bytes: self.bytes - then.bytes,
            busy: self.busy - then.busy,
            cpu: self.cpu - then.cpu,
            clocked: self.clocked - then.clocked,
            input: self.input - then.input,
            output: self.output - then.output,
            latency: self.latency.since(&then.latency),
        }
    }

    /// Adds the counts of another thread.
    pub fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.bytes += other.bytes;
        self.busy += other.busy;
        self.cpu += other.cpu;
        self.clocked += other.clocked;
        self.input += other.input;
        self.output += other.output;
        self.latency.add(&other.latency);
    }

    /// CPU time as a share of the time in the stage, from 0 to 1; 1 if no item was clocked.
    pub fn cpu_share(&self) -> f64 {
        match self.clocked {
            0 => 1.0,
            clocked => (self.cpu as f64 / clocked as f64).min(1.0),
        }
    }
}
