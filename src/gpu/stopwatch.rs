//! Measures the device time of parts of streams, without blocking.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{Device, Event, Stream};
use crate::error::Result;
use crate::measure::DeviceMeter;

/// Pause after a measurement, as a multiple of the host time that the measurement took. A thread
/// therefore spends at most 0.5 % of its time on measuring. An event with a time stamp usually
/// costs a few microseconds, but 0.7 ms on average were seen on one GPU (B200).
const REST: u32 = 200;

/// Maximum pause. A measurement may have taken long only because the thread was descheduled.
const LONGEST_REST: Duration = Duration::from_secs(1);

/// Measures spans of streams between two events, by the device's clock.
///
/// * All events are created at the beginning.
/// * The stopwatch never blocks. It checks whether a span has ended when the next one begins, and
///   at the end of a run.
/// * A span is measured if the pause after the last measured one is over and a pair of events is
///   free. Otherwise it is only counted.
/// * A span that is dropped before its end has no effect.
#[derive(Debug)]
pub struct Stopwatch {
    state: Mutex<State>,
    meter: Arc<DeviceMeter>,
}

#[derive(Debug)]
struct State {
    free: Vec<Pair>,
    /// Pairs of events in a stream, each with its number of samples, in the order in which they
    /// were enqueued.
    pending: VecDeque<(Pair, u64)>,
    rests_until: Option<Instant>,
}

#[derive(Debug)]
struct Pair {
    begin: Event,
    end: Event,
}

/// Span of a stream. Dropping it before its end means that it is not counted.
#[derive(Debug)]
#[must_use = "a span that is dropped before its end is not counted"]
pub struct Lap<'a> {
    watch: &'a Stopwatch,
    /// `None` if the span is not measured.
    pair: Option<Pair>,
    /// Host time that measuring has taken so far.
    cost: Duration,
    started: bool,
}

impl Stopwatch {
    /// Creates a stopwatch for up to `spans` concurrent spans. All events are created now.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) if a driver call fails.
    pub fn new(device: &Arc<Device>, spans: usize, meter: Arc<DeviceMeter>) -> Result<Self> {
        let pair = |_| Ok(Pair { begin: Event::timed(device)?, end: Event::timed(device)? });
        let free = (0..spans).map(pair).collect::<Result<Vec<_>>>()?;
        let pending = VecDeque::with_capacity(spans);
        let state = Mutex::new(State { free, pending, rests_until: None });
        Ok(Self { state, meter })
    }

    /// Creates a span that is about to begin.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device), also if earlier work in a stream has failed.
    pub fn lap(&self) -> Result<Lap<'_>> {
        let mut lap = Lap { watch: self, pair: None, cost: Duration::ZERO, started: false };
        let begin = Instant::now();
        let mut state = self.lock();
        if state.rests_until.is_some_and(|until| begin < until) {
            return Ok(lap);
        }
        state.harvest(&self.meter)?;
        lap.pair = state.free.pop();
        lap.cost = begin.elapsed();
        if lap.pair.is_none() {
            state.rest(lap.cost);
            self.meter.drop_one();
        }
        Ok(lap)
    }

    /// Records the times of spans that have ended. Does not block.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device), also if earlier work in a stream has failed.
    pub fn harvest(&self) -> Result<()> {
        self.lock().harvest(&self.meter)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is consistent between any two statements, so a panic elsewhere does not damage
        // it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn harvest(&mut self, meter: &DeviceMeter) -> Result<()> {
        while let Some((pair, items)) = self.pending.front() {
            if !pair.end.query()? {
                break;
            }
            let Some(took) = pair.end.elapsed_since(&pair.begin)? else { break };
            meter.add(*items, took);
            let (pair, _) = self
                .pending
                .pop_front()
                .expect("the queue is not empty, because its first pair was read above");
            self.free.push(pair);
        }
        Ok(())
    }

    fn rest(&mut self, cost: Duration) {
        self.rests_until =
            Instant::now().checked_add((cost.saturating_mul(REST)).min(LONGEST_REST));
    }
}

impl Lap<'_> {
    /// Begins the span at the current end of the stream. A second call moves the beginning.
    pub fn start(&mut self, stream: &Stream) -> Result<()> {
        if let Some(pair) = &self.pair {
            let begin = Instant::now();
            pair.begin.record(stream)?;
            self.cost += begin.elapsed();
            self.started = true;
        }
        Ok(())
    }

    /// Ends the span of `items` samples in the same stream. A span that was not started is counted
    /// but not measured.
    pub fn stop(mut self, stream: &Stream, items: u64) -> Result<()> {
        self.watch.meter.seen(items);
        if !self.started {
            return Ok(());
        }
        let begin = Instant::now();
        if let Some(pair) = &self.pair {
            pair.end.record(stream)?;
        }
        let mut state = self.watch.lock();
        state.pending.extend(self.pair.take().map(|pair| (pair, items)));
        state.rest(self.cost + begin.elapsed());
        Ok(())
    }
}

impl Drop for Lap<'_> {
    fn drop(&mut self) {
        if let Some(pair) = self.pair.take() {
            self.watch.lock().free.push(pair);
        }
    }
}
