//! The consumer: how long it waits, and what it does with its time.

use std::collections::BTreeMap;
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use super::device::DeviceCounts;
use super::histogram::{Counts, Histogram};
use super::processor::{ThreadClock, ThreadTime};
use super::thread_meter::thread_time;

/// Names of spans that are kept apart; further ones are counted as `other`.
const SPANS: usize = 32;

/// What the consumer does between batches. A step is the time from getting a batch to asking for the next one of the same
/// epoch, unless the consumer says itself where its steps begin and end.
#[derive(Debug, Default)]
pub struct Consumer {
    /// When it got a batch; the thread, and that thread's processor time.
    has_since: Option<(Instant, ThreadId, u64)>,
    /// Of which epoch.
    epoch: Option<u32>,
    /// The step that it says that it is in.
    in_step: Option<Instant>,
    /// It says where its steps are.
    says: bool,
    step: Histogram,
    wait: Histogram,
    steps: Steps,
    thread: Thread,
}

/// The thread that takes the batches.
#[derive(Debug, Default)]
enum Thread {
    #[default]
    Unknown,
    One(ThreadId, ThreadClock),
    /// More than one: none of them stands for all.
    Several,
}

/// The counts of a [`Consumer`] at one moment; times in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Steps {
    /// Batches that it got.
    pub batches: u64,
    /// Samples in them.
    pub samples: u64,
    /// Batches that were there when it asked.
    pub ready: u64,
    /// It waited for batches.
    pub waited: u64,
    /// Its stream waited for batches, by the device's clock; nothing where batches are made on the host.
    pub waited_on_device: DeviceCounts,
    /// It was in its steps.
    pub stepped: u64,
    /// Its thread's processor worked, in the steps that were clocked.
    pub cpu: u64,
    /// The steps that were clocked: those that began and ended on the same thread.
    pub clocked: u64,
    /// Between epochs: from its last batch of one to asking for the first of the next.
    pub between_epochs: u64,
    /// How many times, and how long, parts of its steps took that it has named.
    pub spans: BTreeMap<String, (u64, u64)>,
    /// How long its thread ran and waited for a processor, since it got its first batch; `None` where several threads take batches
    /// and where the kernel does not tell.
    pub thread: Option<ThreadTime>,
    /// How long it waited for each batch.
    pub wait: Counts,
    /// How long each step took.
    pub step: Counts,
}

impl Consumer {
    /// What was counted so far.
    pub fn steps(&self) -> &Steps {
        &self.steps
    }

    /// It asks for a batch; gives when the step began that ends with that.
    pub(super) fn asks(&mut self, epoch: u32, now: Instant) -> Option<Instant> {
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

    /// A part of a step is over; gives the name under which it is counted.
    pub(super) fn span<'a>(&mut self, name: &'a str, took: Duration) -> &'a str {
        let spans = &mut self.steps.spans;
        let known = spans.contains_key(name) || spans.len() < SPANS;
        let name = if known { name } else { "other" };
        let span = spans.entry(name.to_string()).or_default();
        span.0 += 1;
        span.1 += took.as_nanos() as u64;
        name
    }

    /// It says that a step begins, or ends; gives when that one began.
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

    /// The counts with their histograms.
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
    /// What was counted after `earlier`.
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
    fn a_step_is_the_time_between_having_and_asking_within_an_epoch() {
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
    fn a_consumer_that_says_its_steps_is_believed() {
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
