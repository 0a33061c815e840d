//! Measures the device time of spans of work in streams, without blocking.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{Device, Event, Stream};
use crate::error::Result;
use crate::measure::DeviceMeter;

/// Pause after a measurement, as a multiple of the host time that the measurement took. A thread
/// therefore spends at most 0.5 % of its time on measuring. Recording an event with a time stamp
/// usually takes a few microseconds, but took 0.7 ms on average on one GPU (B200).
const REST: u32 = 200;

/// Maximum pause. It limits the effect of a measurement that took long only because the operating
/// system interrupted the thread.
const LONGEST_REST: Duration = Duration::from_secs(1);

/// Measures, by the device's clock, how long spans of work in a stream take. Two events mark the
/// beginning and the end of a span.
///
/// * All events are created when the stopwatch is created.
/// * The stopwatch never blocks. When a span begins, and at the end of a run, it checks whether
///   earlier spans have ended.
/// * A span is measured if the pause after the last measurement is over and a pair of events is
///   free. Otherwise the span is only counted.
/// * A span that is dropped before its end has no effect.
#[derive(Debug)]
pub struct Stopwatch {
    state: Mutex<StopwatchState>,
    meter: Arc<DeviceMeter>,
}

#[derive(Debug)]
struct StopwatchState {
    free: Vec<Pair>,
    /// Spans whose times are not read yet, in the order of the stream. Each has a pair of events
    /// and a number of samples.
    pending: VecDeque<(Pair, u64)>,
    rests_until: Option<Instant>,
}

#[derive(Debug)]
struct Pair {
    begin: Event,
    end: Event,
}

/// Span of work in a stream. A span that is dropped before its end is not counted.
#[derive(Debug)]
#[must_use = "a span that is dropped before its end is not counted"]
pub struct Lap<'a> {
    watch: &'a Stopwatch,
    /// The two events of the span. `None` if the span is not measured.
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
        let state = Mutex::new(StopwatchState { free, pending, rests_until: None });
        Ok(Self { state, meter })
    }

    /// Creates a span that is about to begin.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) if a driver call fails or if earlier work in a
    /// stream has failed.
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
    /// [`Error::Device`](crate::Error::Device) if a driver call fails or if earlier work in a
    /// stream has failed.
    pub fn harvest(&self) -> Result<()> {
        self.lock().harvest(&self.meter)
    }

    fn lock(&self) -> MutexGuard<'_, StopwatchState> {
        // The state is consistent after every statement, so a panic of another thread leaves it
        // valid.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StopwatchState {
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
    /// Begins the span after the work that is in the stream now. A second call moves the beginning.
    pub fn start(&mut self, stream: &Stream) -> Result<()> {
        if let Some(pair) = &self.pair {
            let begin = Instant::now();
            pair.begin.record(stream)?;
            self.cost += begin.elapsed();
            self.started = true;
        }
        Ok(())
    }

    /// Ends the span of `items` samples. `stream` must be the stream in which the span was started.
    /// A span that was not started is counted but not measured.
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
