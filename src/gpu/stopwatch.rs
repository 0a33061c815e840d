//! How long the device is at parts of streams, without anybody waiting for it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{Device, Event, Stream};
use crate::error::Result;
use crate::measure::DeviceMeter;

/// After a measurement a stopwatch rests for so many times as long as it kept the host busy. So a thread spends at most a
/// two-hundredth of its time on it, whatever a mark with a time stamp costs: mostly some microseconds, but on one GPU
/// (B200) 0.7 ms on the average were seen.
const REST: u32 = 200;

/// But no longer than this: what a measurement took may be that the thread had to leave its processor to another one.
const LONGEST_REST: Duration = Duration::from_secs(1);

/// Measures spans of streams: from a mark in the stream to the next, by the device's clock.
///
/// * All events are made at the beginning, and none later.
/// * Nobody ever waits: whether a span is over is asked when the next one begins, and at the end of a run.
/// * A span is measured where the one that was measured last is over for long enough (a two-hundredth of the time may go
///   into measuring) and a pair of events is free; else it is counted only.
/// * A span that is given up before its end leaves nothing behind.
#[derive(Debug)]
pub struct Stopwatch {
    state: Mutex<State>,
    meter: Arc<DeviceMeter>,
}

#[derive(Debug)]
struct State {
    free: Vec<Pair>,
    /// Pairs that are in a stream, with their samples, in the order in which they were put there.
    pending: VecDeque<(Pair, u64)>,
    rests_until: Option<Instant>,
}

#[derive(Debug)]
struct Pair {
    begin: Event,
    end: Event,
}

/// A span; dropped before its end it is not counted.
#[derive(Debug)]
#[must_use = "a span that is dropped before its end is not counted"]
pub struct Lap<'a> {
    watch: &'a Stopwatch,
    /// `None` where it is not measured.
    pair: Option<Pair>,
    /// What this has taken of the host's time.
    cost: Duration,
    started: bool,
}

impl Stopwatch {
    /// A stopwatch that can have so many spans under way at a time, for all of which the device has room.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) where the driver refuses.
    pub fn new(device: &Arc<Device>, spans: usize, meter: Arc<DeviceMeter>) -> Result<Self> {
        let pair = |_| Ok(Pair { begin: Event::timed(device)?, end: Event::timed(device)? });
        let free = (0..spans).map(pair).collect::<Result<Vec<_>>>()?;
        let pending = VecDeque::with_capacity(spans);
        let state = Mutex::new(State { free, pending, rests_until: None });
        Ok(Self { state, meter })
    }

    /// A span that is about to begin.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device): also for what went wrong in a stream before.
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

    /// Counts what is over by now. Does not wait.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device): also for what went wrong in a stream before.
    pub fn harvest(&self) -> Result<()> {
        self.lock().harvest(&self.meter)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Between two statements the state holds whole pairs, so a panic elsewhere leaves it consistent.
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
            let (pair, _) = self.pending.pop_front().expect("the first one was looked at");
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
    /// The span begins here in the stream. Called once more, it begins there instead.
    pub fn start(&mut self, stream: &Stream) -> Result<()> {
        if let Some(pair) = &self.pair {
            let begin = Instant::now();
            pair.begin.record(stream)?;
            self.cost += begin.elapsed();
            self.started = true;
        }
        Ok(())
    }

    /// The span of so many samples ends here in the same stream. One that was not started is counted and not measured.
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
