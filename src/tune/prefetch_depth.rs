//! Chooses how many samples are fetched ahead over a network, from what was measured of requests and of those who wait
//! for them.
//!
//! Behaviour, each sentence with a test in `tests/read_ahead/`, where storages are simulated:
//!
//! * It begins with the most that there is room for, so that the start costs nothing. No window is longer than that, or shorter
//!   than the workers are many.
//! * Late samples cost something only where workers wait for them and the consumer waits for workers. As long as they
//!   cost nothing, the window is what requests need: by Little's law the rate at which samples are taken, times how long
//!   before it is taken a sample must be asked for. That is as long that what still comes later keeps workers from a
//!   hundredth of their work; so it is long where a few requests are very late.
//! * Where they cost something, other windows are tried, longer ones first, and the shortest is taken that was nearly as
//!   fast as the fastest. So where a storage serves no more than it does, more in flight is not kept.
//! * Where rates vary so much that a few batches say little, more are measured; where those say little too, the window is the
//!   most there is room for.
//! * What was asked for under another window, or while another number of workers worked, is not measured, nor is a pause
//!   of the consumer.
//! * While something else is being tried out no shorter window is tried.
//! * Where nothing tells when samples came, nothing changes.
//! * A window stays as long as the loop does. It is chosen anew where late samples begin to cost something, and where they
//!   cost something and the rate is another by a seventh in two measurements that follow one another. Now and then a longer window
//!   is tried. A shorter one that was not enough, and each new beginning, double the time until the next.

use std::collections::VecDeque;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::measure::Counts;

use measured::{Measured, Seen, Watch};

mod measured;

/// Measurements whose requests are remembered.
const MEMORY: usize = 4;
/// The share of their time that workers may lose where the window is what requests need.
const LATE: f64 = 0.01;
/// Less of their time that workers, or the consumer, wait is nothing.
const NEGLIGIBLE_WAIT_SHARE: f64 = 0.02;
/// By so much the window is longer than the mean rate asks for, since rates vary.
const MARGIN: f64 = 1.25;
/// A window that is shorter by less is not worth a change.
const SHORTER: f64 = 0.75;
/// The first shorter window that is tried: a storage that is merely far away is as much slower then.
const CAREFUL: f64 = 0.7;
/// Those that are tried after it: the rate did not depend on it then.
const BOLD: f64 = 0.4;
/// What is slower by less is as fast.
const AS_FAST: f64 = 0.97;
/// The same for those after the first shorter one: below what a storage serves, rates fall as windows do.
const ABOUT_AS_FAST: f64 = 0.95;
/// A rate with such a standard error says little.
const MAX_RELATIVE_ERROR: f64 = 0.05;
/// Measurements until a longer window is tried again.
const PATIENCE: u32 = 4;

/// A window with its reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PrefetchDecision {
    /// Batches that the consumer had taken.
    pub batch: u64,
    /// Samples that are fetched ahead.
    pub window: usize,
    /// Whether it is to stay.
    pub settled: bool,
    /// Why, for people.
    pub why: String,
}

/// Chooses the window; see the module's text. Time is an argument, and there is no chance in it.
#[derive(Debug)]
pub struct PrefetchDepth {
    most: usize,
    window: usize,
    /// Places that are handed out before anything is measured.
    skip: usize,
    /// Batches that were begun before then, as far as the consumer does not have them.
    begun: Option<u64>,
    batches: u64,
    seen: Option<Seen>,
    /// How long requests took in the measurements before, the oldest first.
    requests: VecDeque<Counts>,
    /// Measurements so far.
    measurements: usize,
    /// The workers that work.
    workers: usize,
    settled: bool,
    /// Windows that were tried since late samples have cost something.
    trials: Vec<Trial>,
    /// No shorter one is tried with these.
    floor: usize,
    watch: Option<Watch>,
    /// The last decision.
    said: Option<(usize, bool)>,
    /// Measurements until a longer window is tried, or all begins anew.
    patience: u32,
    /// Measurements, one after another, in which a shorter window would have done, and how many there must be.
    calm: (u32, u32),
    /// The same for those in which late samples cost something.
    late: (u32, u32),
    /// A shorter window was taken, and nothing has spoken against it.
    shortened: bool,
}

/// A batch that the consumer has taken.
#[derive(Clone, Copy, Debug)]
pub struct TakenBatch {
    /// Its samples.
    pub samples: u64,
    /// When, in seconds from any time on.
    pub now: f64,
    /// Seconds for which the consumer has waited for it.
    pub waited: f64,
    /// Batches that are ready or being made.
    pub begun: u64,
    /// Workers that may work.
    pub workers: usize,
    /// Whether nothing but the window is being tried out.
    pub alone: bool,
}

/// A window that was measured.
#[derive(Clone, Copy, Debug)]
struct Trial {
    window: usize,
    rate: f64,
}

impl PrefetchDepth {
    /// Begins with the most, of which there is at least one.
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

    /// Samples that are fetched ahead now.
    pub fn window(&self) -> usize {
        self.window
    }

    /// A further place was handed out to a worker.
    pub fn handed_out(&mut self) {
        self.skip = self.skip.saturating_sub(1);
    }

    /// A worker has a sample that was asked for: how long the request took, where that is known, and how long the worker
    /// waited for it; in seconds.
    pub fn read(&mut self, request: Option<f64>, waited: f64) {
        if let Some(seen) = &mut self.seen {
            seen.read(request, waited);
        }
    }

    /// The consumer has a further batch. Gives the next window, where it is another one or is to stay from now on.
    pub fn batch(&mut self, taken: &TakenBatch) -> Option<PrefetchDecision> {
        let TakenBatch { samples, now, waited, begun, workers, alone } = *taken;
        self.batches += 1;
        if self.workers != workers {
            // What was measured of others says nothing of these.
            (self.workers, self.seen, self.watch) = (workers, None, None);
            self.trials.clear();
            if self.window < self.least() {
                return self.change(
                    self.least(),
                    false,
                    format!("one for each of {workers} workers"),
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

    /// A sample for each worker, as far as there is room.
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

    /// Late samples cost nothing.
    fn enough(&mut self, needed: usize, age: f64, seen: &str) -> Option<PrefetchDecision> {
        self.trials.clear();
        (self.watch, self.late.0) = (None, 0);
        let shorter = (needed as f64) < SHORTER * self.window as f64;
        self.calm.0 = if shorter { self.calm.0 + 1 } else { 0 };
        if self.calm.0 >= self.calm.1 {
            let why = format!("enough: {seen}, and nearly all are there within {}", time(age));
            self.shortened = true;
            return self.change(needed, true, why);
        }
        // The first requests, all at once, may have taken longer than those that follow.
        if shorter || self.measurements <= MEMORY {
            return None;
        }
        // One that was tried may have been lucky.
        let window = if self.settled { self.window } else { self.window.max(needed) };
        self.change(window, true, format!("as many as are needed: {seen}"))
    }

    /// Late samples cost something.
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
        let seen = format!("{seen}, and cost {:.0} % of the time", 100.0 * measured.lost);
        if let Some(watch) = &mut self.watch {
            let other = watch.is_over(measured);
            let again = watch.measurements >= self.patience && self.window < self.most;
            if !other && !again {
                return None;
            }
            // A longer window costs nothing, a shorter one does.
            self.floor = if other { self.least() } else { self.window };
            self.patience = self.patience.saturating_mul(2);
            self.watch = None;
        } else if self.settled {
            // What was measured is partly of the loop as it was before.
            (self.settled, self.floor) = (false, self.least());
            let longer = needed.max(2 * self.window).min(self.most);
            let why = format!("{seen}; are more in flight enough?");
            return (longer > self.window).then(|| self.change(longer, false, why)).flatten();
        }
        self.late.0 += 1;
        if self.late.0 < self.late.1 && self.window == self.most {
            return None;
        }
        if measured.error > MAX_RELATIVE_ERROR {
            self.trials.clear();
            self.watch = Some(Watch::new(measured));
            return self.change(
                self.most,
                true,
                format!("{seen}; that varies, so as many as there is room for"),
            );
        }
        self.trials.push(trial);
        let tried = |window: usize| self.trials.iter().any(|it| it.window == window);
        if let Some((window, why)) = self.next(needed).filter(|next| !tried(next.0)) {
            if window < self.window && !alone {
                // Measured again, until it is known what it is measured with.
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
            "the shortest of {tried} that were tried and nearly the fastest: {:.0} samples/s",
            taken.rate
        );
        self.change(taken.window, true, why)
    }

    /// What to try next, and why.
    fn next(&self, needed: usize) -> Option<(usize, String)> {
        let by_window = |trial: &&Trial| trial.window;
        let longest = self.trials.iter().max_by_key(by_window)?;
        let shortest = self.trials.iter().min_by_key(by_window)?;
        let others = self.trials.iter().filter(|it| it.window < longest.window);
        let gains = others.map(|it| it.rate).fold(0.0, f64::max) < AS_FAST * longest.rate;
        if longest.window < self.most && gains {
            let window = needed.max(2 * longest.window).min(self.most);
            return Some((window, "are more in flight faster?".into()));
        }
        let best = self.best();
        let fast = shortest.rate >= self.as_fast() * best;
        if fast && shortest.window > self.floor.max(self.least()) {
            let share = if self.trials.len() == 1 { CAREFUL } else { BOLD };
            let window = (share * shortest.window as f64).ceil() as usize;
            return Some((
                window.max(self.floor).max(self.least()),
                "are fewer in flight as fast?".into(),
            ));
        }
        // Below the knee the rate is the window by the time of a request.
        let knee = MARGIN * shortest.window as f64 * best / shortest.rate.max(1e-9);
        let taken = self.nearly_best(best).window as f64;
        let between = !fast && knee < SHORTER * taken && knee > shortest.window as f64 / SHORTER;
        between.then(|| (knee.ceil() as usize, "as many as are served at a time?".into()))
    }

    /// What is slower by less than the rest is as fast.
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

    /// How long before it is taken a sample must be asked for, so that those that come later, together, cost workers no
    /// more than [`LATE`] of their time.
    fn age(&self, requests: &Counts, rate: f64) -> f64 {
        let allowed = LATE * self.workers.max(1) as f64 / rate.max(1e-9);
        // From a microsecond to an hour.
        let times: Vec<f64> = (0..460).map(|step| 1e-6 * 1.05_f64.powi(step)).collect();
        let count = requests.count() as f64;
        let late = requests.below(&times);
        let mut after = 0.0;
        for step in (1..times.len()).rev() {
            // The mean time after the earlier of the two: the integral of the share that comes later.
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
            // Whatever was asked for before is gone then.
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

/// The median of times, and what one in a hundred exceeds.
fn times(requests: &Counts) -> String {
    let latency = requests.latency(0.0);
    format!("{}, one in a hundred more than {}", time(latency.p50), time(latency.p99))
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
        write!(f, "batch {batch}: {window} samples ahead {word}: {why}")
    }
}
