//! Tunes the number of samples to prefetch over a network, from measured requests and waits.
//!
//! Behaviour, each point with a test in `tests/read_ahead/` on simulated storage:
//!
//! * The window starts at the maximum, so that the start is not slowed down. It is never above the maximum or below the
//!   number of workers.
//! * Late samples have a cost only if workers wait for them and the consumer waits for workers. While they have none, the
//!   window is what requests need, by Little's law: the rate of samples times the necessary lead time. The lead time is
//!   chosen such that requests which take longer cost workers at most a hundredth of their time; so it is long if a few
//!   requests are very late.
//! * If late samples have a cost, other windows are tried, longer ones first, and the shortest that is nearly as fast as
//!   the fastest is kept. So there are no more requests in flight than the storage can serve.
//! * If rates vary too much for short measurements, longer ones are made. If those vary too much as well, the window is
//!   the maximum.
//! * Samples requested under another window or another number of workers are not measured, and neither are pauses of the
//!   consumer.
//! * While something else is being tuned, no shorter window is tried.
//! * If arrival times of samples are unknown, the window does not change.
//! * A window stays as long as the loop does not change. It is tuned again if late samples begin to have a cost, and, if
//!   they already have one, if the rate differs by a seventh in two consecutive measurements. From time to time a longer
//!   window is tried. A shorter window that was insufficient, and each restart, double the time until the next attempt.

use std::collections::VecDeque;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::footprint::counted;
use crate::measure::Counts;

use measured::{Measured, Seen, Watch};

mod measured;

/// Number of latest measurements whose requests are used.
const MEMORY: usize = 4;
/// Share of their time that workers may lose to late samples if the window follows from requests.
const LATE: f64 = 0.01;
/// Share of their time below which waits of workers or consumer are negligible.
const NEGLIGIBLE_WAIT_SHARE: f64 = 0.02;
/// Factor on the window beyond the mean rate, because rates vary.
const MARGIN: f64 = 1.25;
/// Largest relative length of a shorter window that is worth a change.
const SHORTER: f64 = 0.75;
/// Relative length of the first shorter window that is tried: if the limit is latency, the rate falls by as much.
const CAREFUL: f64 = 0.7;
/// Relative length of further shorter windows: the rate did not depend on the first.
const BOLD: f64 = 0.4;
/// Minimum rate, relative to the fastest, that counts as equally fast.
const AS_FAST: f64 = 0.97;
/// Minimum relative rate after the first shorter window: below what a storage serves, rates fall with the window.
const ABOUT_AS_FAST: f64 = 0.95;
/// Largest relative standard error of a meaningful rate.
const MAX_RELATIVE_ERROR: f64 = 0.05;
/// Measurements until a longer window is tried again.
const PATIENCE: u32 = 4;

/// A chosen window with its reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PrefetchDecision {
    /// Batches that the consumer had received.
    pub batch: u64,
    /// Samples to prefetch.
    pub window: usize,
    /// Whether it is final.
    pub settled: bool,
    /// The reason, as text for people.
    pub why: String,
}

/// Tuner of the window; see the module's documentation. Time is an argument, and there is no randomness.
#[derive(Debug)]
pub struct PrefetchDepth {
    most: usize,
    window: usize,
    /// Positions to hand out before anything is measured.
    skip: usize,
    /// Batches begun before that and not yet received by the consumer.
    begun: Option<u64>,
    batches: u64,
    seen: Option<Seen>,
    /// Durations of requests in earlier measurements, oldest first.
    requests: VecDeque<Counts>,
    /// Number of measurements so far.
    measurements: usize,
    /// Number of active workers.
    workers: usize,
    settled: bool,
    /// Windows tried since late samples have a cost.
    trials: Vec<Trial>,
    /// Shortest window to try in these trials.
    floor: usize,
    watch: Option<Watch>,
    /// Window of the last decision, and whether it was final.
    said: Option<(usize, bool)>,
    /// Measurements until a longer window is tried, or tuning restarts.
    patience: u32,
    /// Consecutive measurements in which a shorter window would suffice, and how many are required.
    calm: (u32, u32),
    /// Consecutive measurements in which late samples have a cost, and how many are required.
    late: (u32, u32),
    /// Whether the last change was to a shorter window that still seems sufficient.
    shortened: bool,
}

/// A batch that the consumer has received.
#[derive(Clone, Copy, Debug)]
pub struct TakenBatch {
    /// Number of samples.
    pub samples: u64,
    /// Time of receipt, in seconds from an arbitrary origin.
    pub now: f64,
    /// Seconds for which the consumer waited.
    pub waited: f64,
    /// Batches that are ready or being filled.
    pub begun: u64,
    /// Number of active workers.
    pub workers: usize,
    /// Whether nothing else is being tuned.
    pub alone: bool,
}

/// A measured window.
#[derive(Clone, Copy, Debug)]
struct Trial {
    window: usize,
    rate: f64,
}

impl PrefetchDepth {
    /// Creates a tuner that starts with the maximum, at least 1.
    pub fn new(most: usize) -> Self {
        let most = most.max(1);
        Self {
            most,
            window: most,
            skip: most,
            begun: None,
            batches: 0,
            seen: None,
            requests: VecDeque::new(),
            measurements: 0,
            workers: 1,
            settled: false,
            trials: Vec::new(),
            floor: 1,
            watch: None,
            said: None,
            patience: PATIENCE,
            calm: (0, 1),
            late: (0, 1),
            shortened: false,
        }
    }

    /// Current number of samples to prefetch.
    pub fn window(&self) -> usize {
        self.window
    }

    /// Records that a position was handed out to a worker.
    pub fn handed_out(&mut self) {
        self.skip = self.skip.saturating_sub(1);
    }

    /// Records that a worker has read a prefetched sample: the duration of the request, if known, and how long the worker
    /// waited; in seconds.
    pub fn read(&mut self, request: Option<f64>, waited: f64) {
        if let Some(seen) = &mut self.seen {
            seen.read(request, waited);
        }
    }

    /// Records that the consumer received a batch. Returns the next window, if it differs or becomes final.
    pub fn batch(&mut self, taken: &TakenBatch) -> Option<PrefetchDecision> {
        let TakenBatch { samples, now, waited, begun, workers, alone } = *taken;
        self.batches += 1;
        if self.workers != workers {
            // Measurements with another number of workers do not apply.
            (self.workers, self.seen, self.watch) = (workers, None, None);
            self.trials.clear();
            if self.window < self.least() {
                return self.change(
                    self.least(),
                    false,
                    format!("one for each of {}", counted(workers, "worker")),
                );
            }
        }
        if self.skip > 0 {
            return None;
        }
        let begun = self.begun.get_or_insert(begun);
        if *begun > 0 {
            *begun -= 1;
            return None;
        }
        let Some(seen) = &mut self.seen else {
            self.seen = Some(Seen::new(now));
            return None;
        };
        seen.batch(samples, now, waited);
        let measured = seen.measured(workers, self.settled, self.watch.is_some())?;
        let seen = self.seen.replace(Seen::new(now))?;
        if seen.is_of_a_pause() {
            return None;
        }
        self.measurements += 1;
        self.requests.push_back(seen.requests());
        if self.requests.len() > MEMORY {
            self.requests.pop_front();
        }
        self.decide(&measured, alone)
    }

    /// One sample per worker, up to the maximum.
    fn least(&self) -> usize {
        self.workers.clamp(1, self.most)
    }

    fn decide(&mut self, measured: &Measured, alone: bool) -> Option<PrefetchDecision> {
        let mut requests = Counts::default();
        self.requests.iter().for_each(|it| requests.add(it));
        if requests.count() == 0 {
            return None;
        }
        let Measured { rate, lost, .. } = *measured;
        let wanted = rate / (1.0 - lost.min(0.99));
        let age = self.age(&requests, wanted);
        let needed = (wanted * age * MARGIN).ceil() as usize;
        let needed = needed.clamp(self.least(), self.most);
        let seen = format!("{rate:.0} samples/s, requests take {}", times(&requests));
        if lost < NEGLIGIBLE_WAIT_SHARE {
            self.enough(needed, age, &seen)
        } else {
            self.late(measured, needed, &seen, alone)
        }
    }

    /// Handles a measurement in which late samples have no cost.
    fn enough(&mut self, needed: usize, age: f64, seen: &str) -> Option<PrefetchDecision> {
        self.trials.clear();
        (self.watch, self.late.0) = (None, 0);
        let shorter = (needed as f64) < SHORTER * self.window as f64;
        self.calm.0 = if shorter { self.calm.0 + 1 } else { 0 };
        if self.calm.0 >= self.calm.1 {
            let why = format!("sufficient: {seen}, and nearly all arrive within {}", time(age));
            self.shortened = true;
            return self.change(needed, true, why);
        }
        // The first requests, all at once, may have taken longer than later ones.
        if shorter || self.measurements <= MEMORY {
            return None;
        }
        // A tried window may have been fast by chance.
        let window = if self.settled { self.window } else { self.window.max(needed) };
        self.change(window, true, format!("as many as needed: {seen}"))
    }

    /// Handles a measurement in which late samples have a cost.
    fn late(
        &mut self,
        measured: &Measured,
        needed: usize,
        seen: &str,
        alone: bool,
    ) -> Option<PrefetchDecision> {
        self.calm.0 = 0;
        if std::mem::take(&mut self.shortened) {
            self.calm.1 = self.calm.1.saturating_mul(2);
        }
        let trial = Trial { window: self.window, rate: measured.rate };
        let seen = format!("{seen}, late samples cost {:.0} % of the time", 100.0 * measured.lost);
        if let Some(watch) = &mut self.watch {
            let other = watch.is_over(measured);
            let again = watch.measurements >= self.patience && self.window < self.most;
            if !other && !again {
                return None;
            }
            // A longer window has no cost, a shorter one may.
            self.floor = if other { self.least() } else { self.window };
            self.patience = self.patience.saturating_mul(2);
            self.watch = None;
        } else if self.settled {
            // The measurement is partly of the earlier loop.
            (self.settled, self.floor) = (false, self.least());
            let longer = needed.max(2 * self.window).min(self.most);
            let why = format!("{seen}; is a longer window sufficient?");
            return (longer > self.window).then(|| self.change(longer, false, why)).flatten();
        }
        self.late.0 += 1;
        if self.late.0 < self.late.1 && self.window == self.most {
            return None;
        }
        if measured.error > MAX_RELATIVE_ERROR {
            self.trials.clear();
            self.watch = Some(Watch::new(measured));
            return self.change(self.most, true, format!("{seen}; that varies, so the maximum"));
        }
        self.trials.push(trial);
        let tried = |window: usize| self.trials.iter().any(|it| it.window == window);
        if let Some((window, why)) = self.next(needed).filter(|next| !tried(next.0)) {
            if window < self.window && !alone {
                // Measured again until nothing else is being tuned.
                self.trials.clear();
                return None;
            }
            if window < self.window && self.trials.len() == 1 {
                self.late.1 = self.late.1.saturating_mul(2);
            }
            return self.change(window, false, format!("{seen}; {why}"));
        }
        let best = self.best();
        let taken = self.nearly_best(best);
        self.watch = Some(Watch::new(&Measured { rate: taken.rate, ..*measured }));
        let tried = self.trials.len();
        self.trials.clear();
        let why = format!(
            "the shortest of {} that is nearly as fast as the fastest: {:.0} samples/s",
            counted(tried, "trial"),
            taken.rate
        );
        self.change(taken.window, true, why)
    }

    /// The next window to try, and why.
    fn next(&self, needed: usize) -> Option<(usize, String)> {
        let by_window = |trial: &&Trial| trial.window;
        let longest = self.trials.iter().max_by_key(by_window)?;
        let shortest = self.trials.iter().min_by_key(by_window)?;
        let others = self.trials.iter().filter(|it| it.window < longest.window);
        let gains = others.map(|it| it.rate).fold(0.0, f64::max) < AS_FAST * longest.rate;
        if longest.window < self.most && gains {
            let window = needed.max(2 * longest.window).min(self.most);
            return Some((window, "is a longer window faster?".into()));
        }
        let best = self.best();
        let fast = shortest.rate >= self.as_fast() * best;
        if fast && shortest.window > self.floor.max(self.least()) {
            let share = if self.trials.len() == 1 { CAREFUL } else { BOLD };
            let window = (share * shortest.window as f64).ceil() as usize;
            return Some((
                window.max(self.floor).max(self.least()),
                "is a shorter window as fast?".into(),
            ));
        }
        // Below the knee the rate is the window divided by the duration of a request.
        let knee = MARGIN * shortest.window as f64 * best / shortest.rate.max(1e-9);
        let taken = self.nearly_best(best).window as f64;
        let between = !fast && knee < SHORTER * taken && knee > shortest.window as f64 / SHORTER;
        between.then(|| (knee.ceil() as usize, "is the number served at a time sufficient?".into()))
    }

    /// The minimum relative rate that counts as equally fast.
    fn as_fast(&self) -> f64 {
        if self.trials.len() > 2 { ABOUT_AS_FAST } else { AS_FAST }
    }

    /// The highest rate of all trials.
    fn best(&self) -> f64 {
        self.trials.iter().map(|it| it.rate).fold(0.0, f64::max)
    }

    /// The shortest window of the trials that is nearly as fast as the fastest.
    fn nearly_best(&self, best: f64) -> Trial {
        let fast = self.trials.iter().filter(|it| it.rate >= self.as_fast() * best);
        let now = Trial { window: self.window, rate: best };
        fast.copied().min_by_key(|it| it.window).unwrap_or(now)
    }

    /// Lead time in seconds such that samples that take longer cost workers together at most [`LATE`] of their time.
    fn age(&self, requests: &Counts, rate: f64) -> f64 {
        let allowed = LATE * self.workers.max(1) as f64 / rate.max(1e-9);
        // From a microsecond to over an hour.
        let times: Vec<f64> = (0..460).map(|step| 1e-6 * 1.05_f64.powi(step)).collect();
        let count = requests.count() as f64;
        let late = requests.below(&times);
        let mut after = 0.0;
        for step in (1..times.len()).rev() {
            // Mean time beyond the earlier of the two: the integral of the share that comes later.
            let share = 1.0 - (late[step - 1] + late[step]) as f64 / (2.0 * count);
            after += share * (times[step] - times[step - 1]);
            if after > allowed {
                return times[step];
            }
        }
        times[0]
    }

    fn change(&mut self, window: usize, settled: bool, why: String) -> Option<PrefetchDecision> {
        if window != self.window {
            // Requests under the old window are excluded.
            (self.skip, self.begun) = (window.max(self.window), None);
            self.seen = None;
            self.calm.0 = 0;
        }
        let said = self.said.replace((window, settled));
        (self.window, self.settled) = (window, settled);
        (said != self.said).then_some(PrefetchDecision {
            batch: self.batches,
            window,
            settled,
            why,
        })
    }
}

/// The median and the 99th percentile of durations, as text.
fn times(requests: &Counts) -> String {
    let latency = requests.latency(0.0);
    format!("{} (p50), {} (p99)", time(latency.p50), time(latency.p99))
}

fn time(seconds: f64) -> String {
    match 1e3 * seconds {
        milliseconds if milliseconds < 10.0 => format!("{milliseconds:.1} ms"),
        milliseconds => format!("{milliseconds:.0} ms"),
    }
}

impl fmt::Display for PrefetchDecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { batch, window, settled, why } = self;
        let word = if *settled { "chosen" } else { "tried" };
        let window = counted(*window, "sample");
        write!(f, "batch {batch}: prefetch of {window} {word}: {why}")
    }
}
