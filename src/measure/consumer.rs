//! Measurements of the consumer: its waiting times and its steps.

use std::collections::BTreeMap;
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use super::device::DeviceCounts;
use super::histogram::{Counts, Histogram};
use super::processor::{ThreadClock, ThreadTime};
use super::thread_meter::thread_time;

/// Maximum number of span names that are counted separately. Spans with further names are counted
/// together as `other`.
const SPANS: usize = 32;

/// Meter of the consumer between batches. By default, a step is the time from receiving a batch to
/// asking for the next one of the same epoch, or to learning that the epoch has ended. The consumer
/// may instead report the begin and the end of each step.
#[derive(Debug, Default)]
pub struct Consumer {
    /// Receipt of the last batch: its time, the receiving thread, and the CPU time of this thread.
    has_since: Option<(Instant, ThreadId, u64)>,
    /// Epoch of the last request.
    epoch: Option<u32>,
    /// Time when the consumer learned that its epoch has ended.
    ended: Option<Instant>,
    /// Begin of the current reported step.
    in_step: Option<Instant>,
    /// Whether the consumer reports its steps.
    says: bool,
    step: Histogram,
    wait: Histogram,
    steps: Steps,
    thread: Thread,
}

/// Thread that takes the batches.
#[derive(Debug, Default)]
enum Thread {
    #[default]
    Unknown,
    One(ThreadId, ThreadClock),
    /// Several threads take batches, so no thread's times describe the consumer.
    Several,
}

/// Counts of a [`Consumer`] at one moment. Times are in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Steps {
    /// Batches received.
    pub batches: u64,
    /// Number of samples in the received batches.
    pub samples: u64,
    /// Number of batches that were ready when the consumer asked for them.
    pub ready: u64,
    /// Time that the consumer waited for batches.
    pub waited: u64,
    /// Time that the consumer's stream waited for batches, by the device's clock. Empty for batches
    /// on the host.
    pub waited_on_device: DeviceCounts,
    /// Time in the consumer's steps.
    pub stepped: u64,
    /// CPU time of the consumer's thread in the clocked steps.
    pub cpu: u64,
    /// Time in the clocked steps, which are those that began and ended on the same thread.
    pub clocked: u64,
    /// Time between epochs: from learning that an epoch has ended to asking for the first batch of
    /// the next. If the consumer stopped asking before it learned of the end, the time begins with
    /// its last batch.
    pub between_epochs: u64,
    /// Count and time of each named part of the steps.
    pub spans: BTreeMap<String, (u64, u64)>,
    /// Time that the consumer's thread ran, and time that it waited for a processor, since its
    /// first batch. `None` if several threads take batches or the kernel does not report these
    /// times.
    pub thread: Option<ThreadTime>,
    /// Histogram of the waiting times for batches.
    pub wait: Counts,
    /// Histogram of the durations of steps.
    pub step: Counts,
}

impl Consumer {
    /// Returns the counts since the loader was built.
    pub fn steps(&self) -> &Steps {
        &self.steps
    }

    /// Records a request for a batch. Returns the begin of the step that the request ends, if any.
    pub(super) fn asks(&mut self, epoch: u32, now: Instant) -> Option<Instant> {
        if let Some(ended) = self.ended.take() {
            self.steps.between_epochs += (now - ended).as_nanos() as u64;
        }
        let Some((since, thread, cpu)) = self.has_since.take() else {
            self.epoch = Some(epoch);
            return None;
        };
        let took = (now - since).as_nanos() as u64;
        if self.epoch.replace(epoch) != Some(epoch) {
            self.steps.between_epochs += took;
        } else if !self.says {
            self.add_step(took);
            if thread == std::thread::current().id() {
                self.steps.clocked += took;
                self.steps.cpu += thread_time().saturating_sub(cpu);
            }
            return Some(since);
        }
        None
    }

    /// Records that the consumer asks for a batch after the last one of its epoch. Returns the
    /// begin of the step that the request ends, if any.
    pub(super) fn ends(&mut self, epoch: u32, now: Instant) -> Option<Instant> {
        if self.has_since.is_none() || self.epoch != Some(epoch) {
            return None;
        }
        let since = self.asks(epoch, now);
        self.ended = Some(now);
        since
    }

    pub(super) fn has(&mut self, asked: Instant, now: Instant, ready: bool, samples: u64) {
        let waited = (now - asked).as_nanos() as u64;
        self.steps.batches += 1;
        self.steps.samples += samples;
        self.steps.ready += u64::from(ready);
        self.steps.waited += waited;
        self.wait.add(waited);
        let id = std::thread::current().id();
        self.has_since = Some((now, id, thread_time()));
        match &self.thread {
            Thread::Unknown => {
                let clock = ThreadClock::default();
                clock.start();
                self.thread = Thread::One(id, clock);
            }
            Thread::One(known, _) if *known != id => self.thread = Thread::Several,
            _ => {}
        }
    }

    /// Records a part of a step that has ended. Returns the name under which it is counted.
    pub(super) fn span<'a>(&mut self, name: &'a str, took: Duration) -> &'a str {
        let spans = &mut self.steps.spans;
        let known = spans.contains_key(name) || spans.len() < SPANS;
        let name = if known { name } else { "other" };
        let span = spans.entry(name.to_string()).or_default();
        span.0 += 1;
        span.1 += took.as_nanos() as u64;
        name
    }

    /// Records that a step begins or ends. At an end, returns the begin of the step.
    pub(super) fn step(&mut self, begins: bool, now: Instant) -> Option<Instant> {
        self.says = true;
        let since = self.in_step.take();
        if begins {
            self.in_step = Some(now);
            return None;
        }
        self.add_step((now - since?).as_nanos() as u64);
        since
    }

    /// Returns the counts since the loader was built, with their histograms.
    pub(super) fn all(&self) -> Steps {
        let thread = match &self.thread {
            Thread::One(_, clock) => clock.read(),
            _ => None,
        };
        let (wait, step) = (self.wait.counts(), self.step.counts());
        Steps { thread, wait, step, ..self.steps.clone() }
    }

    fn add_step(&mut self, took: u64) {
        self.steps.stepped += took;
        self.step.add(took);
    }
}

impl Steps {
    /// Returns the counts since `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        let spans = self.spans.iter().map(|(name, &(count, took))| {
            let (before, taken) = earlier.spans.get(name).copied().unwrap_or_default();
            (name.clone(), (count - before, took - taken))
        });
        Self {
            batches: self.batches - earlier.batches,
            samples: self.samples - earlier.samples,
            ready: self.ready - earlier.ready,
            waited: self.waited - earlier.waited,
            waited_on_device: self.waited_on_device.since(&earlier.waited_on_device),
            stepped: self.stepped - earlier.stepped,
            cpu: self.cpu - earlier.cpu,
            clocked: self.clocked - earlier.clocked,
            between_epochs: self.between_epochs - earlier.between_epochs,
            spans: spans.collect(),
            thread: self.thread.map(|it| it.since(earlier.thread.unwrap_or_default())),
            wait: self.wait.since(&earlier.wait),
            step: self.step.since(&earlier.step),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(many: u64) -> u64 {
        many * 1_000_000
    }

    #[test]
    fn a_step_lasts_from_receiving_a_batch_to_the_next_request() {
        let start = Instant::now();
        let at = |many| start + Duration::from_millis(many);
        let mut consumer = Consumer::default();
        consumer.asks(0, at(0));
        consumer.has(at(0), at(10), false, 4);
        consumer.asks(0, at(30));
        consumer.has(at(30), at(31), true, 4);
        consumer.asks(1, at(131));
        consumer.has(at(131), at(132), true, 2);
        let steps = consumer.all();
        assert_eq!((steps.batches, steps.samples, steps.ready), (3, 10, 2));
        assert_eq!((steps.waited, steps.stepped), (millis(12), millis(20)));
        assert_eq!(
            (steps.between_epochs, steps.step.count(), steps.wait.count()),
            (millis(100), 1, 3)
        );
    }

    #[test]
    fn the_step_after_the_last_batch_of_an_epoch_is_a_step() {
        let start = Instant::now();
        let at = |many| start + Duration::from_millis(many);
        let mut consumer = Consumer::default();
        for epoch in 0..3 {
            let turn = 1000 * u64::from(epoch);
            consumer.asks(epoch, at(turn));
            consumer.has(at(turn), at(turn + 10), false, 4);
            assert_eq!(consumer.ends(epoch, at(turn + 410)), Some(at(turn + 10)));
            // A second request, and a request for another epoch, end no step.
            assert_eq!(consumer.ends(epoch, at(turn + 500)), None);
            assert_eq!(consumer.ends(epoch + 1, at(turn + 500)), None);
        }
        let steps = consumer.all();
        assert_eq!((steps.stepped, steps.step.count()), (millis(3 * 400), 3));
        assert_eq!((steps.waited, steps.between_epochs), (millis(30), millis(2 * 590)));
    }

    #[test]
    fn reported_steps_replace_the_default_ones() {
        let start = Instant::now();
        let at = |many| start + Duration::from_millis(many);
        let mut consumer = Consumer::default();
        for turn in [0, 100] {
            consumer.asks(0, at(turn));
            consumer.has(at(turn), at(turn + 1), true, 1);
            consumer.step(true, at(turn + 10));
            consumer.step(false, at(turn + 40));
        }
        consumer.step(false, at(190));
        assert_eq!((consumer.all().stepped, consumer.all().step.count()), (millis(60), 2));
    }

    #[test]
    fn spans_have_names_and_their_number_is_bounded() {
        let mut consumer = Consumer::default();
        consumer.span("logging", Duration::from_millis(3));
        let before = consumer.all();
        consumer.span("logging", Duration::from_millis(4));
        assert_eq!(consumer.all().since(&before).spans["logging"], (1, millis(4)));
        for number in 0..100 {
            consumer.span(&number.to_string(), Duration::from_millis(1));
        }
        let spans = consumer.all().spans;
        assert_eq!((spans.len(), spans["other"].0), (SPANS + 1, 100 - (SPANS as u64 - 1)));
    }
}
