//! Tunes the number of samples to prefetch over a network, from measured requests and waiting
//! times.
//!
//! Behaviour, each point with a test in `tests/insight/prefetch/` on simulated storage:
//!
//! * The prefetch depth, which is the number of samples to prefetch, starts at the maximum, so that
//!   the first batches are not delayed. It is never above the maximum or below the number of
//!   workers.
//! * A sample is late if a worker waits for it. Late samples have a cost only if the consumer also
//!   waits for the workers. Without a cost, the prefetch depth follows from Little's law: the rate
//!   of samples times the lead time. The lead time is the time from a sample's request to its use.
//!   Requests that take longer than the lead time make workers wait. The lead time is the shortest
//!   one with which this waiting costs the workers at most 1 % of their time. A few very late
//!   requests therefore make the lead time long.
//! * If late samples have a cost, other prefetch depths are tried, larger ones first. The smallest
//!   depth that is nearly as fast as the fastest is kept, so no more requests are in flight than
//!   the storage can serve.
//! * If rates vary too much for short measurements, longer measurements are made. If the rates of
//!   longer measurements vary too much as well, the prefetch depth is set to the maximum.
//! * Samples requested under another prefetch depth or another number of workers are not measured.
//!   Pauses of the consumer are not measured either.
//! * While workers, prefetched batches or placement are being tuned, no smaller prefetch depth is
//!   tried.
//! * If arrival times of samples are unknown, the prefetch depth does not change.
//! * A chosen prefetch depth is kept until the training loop changes. The depth is tuned again if
//!   late samples begin to have a cost. If late samples had a cost when the depth was chosen,
//!   tuning also restarts if the rate differs by a seventh in two consecutive measurements, and a
//!   larger depth is tried from time to time. The time until the next attempt doubles with each
//!   restart, and after a smaller depth was insufficient.

use std::collections::VecDeque;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::footprint::counted;
use crate::measure::Counts;

use measured::{Measured, Seen, SettledWindow};

mod measured;

/// Number of latest measurements whose request durations are used.
const MEMORY: usize = 4;
/// Share of their time that workers may lose to late samples, if the prefetch depth is computed
/// from the durations of requests.
const LATE: f64 = 0.01;
/// Maximum share of their time that workers or the consumer may wait so that the waiting counts as
/// negligible.
const NEGLIGIBLE_WAIT_SHARE: f64 = 0.02;
/// Factor by which the prefetch depth exceeds the computed one, because the rate of samples varies.
const MARGIN: f64 = 1.25;
/// A change to a smaller prefetch depth is worthwhile only if the ratio of the smaller depth to the
/// current depth is at most this.
const SHORTER: f64 = 0.75;
/// Ratio of the first smaller prefetch depth that is tried to the smallest depth so far. It is not
/// much below 1, because the rate falls by the same factor if the latency of requests is the limit.
const CAREFUL: f64 = 0.7;
/// Ratio of each further smaller prefetch depth that is tried to the smallest depth so far. It is
/// less than `CAREFUL`, because the first smaller depth did not lower the rate.
const BOLD: f64 = 0.4;
/// Minimum rate, relative to the fastest trial, that counts as equally fast in the first two
/// trials.
const AS_FAST: f64 = 0.97;
/// Minimum rate, relative to the fastest trial, that counts as equally fast from the third trial
/// on. The prefetch depths of these trials are much smaller. If the storage could serve more
/// requests at the same time, these depths would lower the rate by more than this limit allows.
const ABOUT_AS_FAST: f64 = 0.95;
/// Maximum relative standard error of a measured rate. Above it, rates cannot be compared.
const MAX_RELATIVE_ERROR: f64 = 0.05;
/// Number of measurements until a larger prefetch depth is tried again.
const PATIENCE: u32 = 4;

/// Number of samples to prefetch that the tuner chose, with its reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PrefetchDecision {
    /// Number of batches that the consumer had received before the decision.
    pub batch: u64,
    /// Number of samples to prefetch.
    pub window: usize,
    /// Whether the choice is final.
    pub settled: bool,
    /// Reason for the choice, as text for users.
    pub why: String,
}

/// Tuner of the prefetch depth (the number of samples to prefetch), see the module documentation.
/// It gets times as arguments and draws no random numbers.
#[derive(Debug)]
pub struct PrefetchDepth {
    most: usize,
    window: usize,
    /// Number of samples that workers must still take before measuring begins, so that samples
    /// requested under an earlier prefetch depth are not measured.
    skip: usize,
    /// Number of batches that had begun when `skip` reached 0 and that the consumer has not
    /// received yet. They are not measured.
    begun: Option<u64>,
    batches: u64,
    seen: Option<Seen>,
    /// Durations of requests in earlier measurements, oldest first.
    requests: VecDeque<Counts>,
    /// Number of measurements since the loader started.
    measurements: usize,
    /// Number of active workers.
    workers: usize,
    settled: bool,
    /// Prefetch depths tried since late samples began to have a cost.
    trials: Vec<Trial>,
    /// Minimum prefetch depth to try in the current `trials`.
    floor: usize,
    watch: Option<SettledWindow>,
    /// Prefetch depth of the last decision, and whether it was final.
    said: Option<(usize, bool)>,
    /// Number of measurements until a larger prefetch depth is tried or tuning restarts.
    patience: u32,
    /// Number of consecutive measurements in which a smaller prefetch depth would suffice, and the
    /// number that is required before the depth is reduced.
    calm: (u32, u32),
    /// Number of consecutive measurements in which late samples have a cost, and the number that is
    /// required before other prefetch depths are tried.
    late: (u32, u32),
    /// Whether the last change reduced the prefetch depth, and the smaller depth has been
    /// sufficient since then.
    shortened: bool,
}

/// Batch that the consumer has received.
#[derive(Clone, Copy, Debug)]
pub struct TakenBatch {
    /// Number of samples.
    pub samples: u64,
    /// Time of receipt, in seconds from an arbitrary origin.
    pub now: f64,
    /// Time for which the consumer waited, in seconds.
    pub waited: f64,
    /// Number of batches that are ready or being filled.
    pub begun: u64,
    /// Number of active workers.
    pub workers: usize,
    /// Whether workers, prefetched batches and placement are not being tuned at the moment.
    pub alone: bool,
}

/// Measured window.
#[derive(Clone, Copy, Debug)]
struct Trial {
    window: usize,
    rate: f64,
}

impl PrefetchDepth {
    /// Creates a tuner whose prefetch depth starts at the maximum `most`, which is raised to at
    /// least 1.
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

    /// Records that a worker took the next sample of the order.
    pub fn handed_out(&mut self) {
        self.skip = self.skip.saturating_sub(1);
    }

    /// Records that a worker has read a prefetched sample. `request` is the duration of the request
    /// in seconds, if known. `waited` is the time that the worker waited, in seconds.
    pub fn read(&mut self, request: Option<f64>, waited: f64) {
        if let Some(seen) = &mut self.seen {
            seen.read(request, waited);
        }
    }

    /// Records that the consumer received a batch. Returns the next prefetch depth if it differs
    /// from the current one or is final.
    pub fn batch(&mut self, taken: &TakenBatch) -> Option<PrefetchDecision> {
        let TakenBatch { samples, now, waited, begun, workers, alone } = *taken;
        self.batches += 1;
        if self.workers != workers {
            // The number of workers has changed, so earlier measurements do not apply.
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

    /// Minimum prefetch depth: one sample per worker, up to the maximum.
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
            let why = format!(
                "this number of samples is sufficient: {seen}, and nearly all requests are \
                 answered within {}",
                time(age)
            );
            self.shortened = true;
            return self.change(needed, true, why);
        }
        // Do not decide yet: the first requests were sent all at once, so they may have taken
        // longer than later ones.
        if shorter || self.measurements <= MEMORY {
            return None;
        }
        // A prefetch depth (`window`) that is only being tried may be sufficient by chance, so it
        // is raised to `needed`.
        let window = if self.settled { self.window } else { self.window.max(needed) };
        self.change(window, true, format!("this is the number of samples that is needed: {seen}"))
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
        let seen = format!(
            "{seen}; waiting for late samples costs {:.0} % of the time",
            100.0 * measured.lost
        );
        if let Some(watch) = &mut self.watch {
            let other = watch.is_over(measured);
            let again = watch.measurements >= self.patience && self.window < self.most;
            if !other && !again {
                return None;
            }
            // If the rate has not changed, try only larger prefetch depths. A larger depth does not
            // lower the speed, but a smaller one may.
            self.floor = if other { self.least() } else { self.window };
            self.patience = self.patience.saturating_mul(2);
            self.watch = None;
        } else if self.settled {
            // Trials start with the next measurement, because the current measurement partly covers
            // the time before late samples slowed down the loader.
            (self.settled, self.floor) = (false, self.least());
            let longer = needed.max(2 * self.window).min(self.most);
            let why = format!("{seen}; more prefetched samples may be sufficient");
            return (longer > self.window).then(|| self.change(longer, false, why)).flatten();
        }
        self.late.0 += 1;
        if self.late.0 < self.late.1 && self.window == self.most {
            return None;
        }
        if measured.error > MAX_RELATIVE_ERROR {
            self.trials.clear();
            self.watch = Some(SettledWindow::new(measured));
            return self.change(
                self.most,
                true,
                format!(
                    "{seen}; the times vary too much to compare numbers of prefetched samples, so \
                     the maximum is used"
                ),
            );
        }
        self.trials.push(trial);
        let tried = |window: usize| self.trials.iter().any(|it| it.window == window);
        if let Some((window, why)) = self.next(needed).filter(|next| !tried(next.0)) {
            if window < self.window && !alone {
                // While workers, prefetched batches or placement are being tuned, try no smaller
                // prefetch depth. Measure again later.
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
        self.watch = Some(SettledWindow::new(&Measured { rate: taken.rate, ..*measured }));
        let tried = self.trials.len();
        self.trials.clear();
        let why = format!(
            "of {}, this is the smallest number of prefetched samples that is nearly as fast as \
             the fastest: {:.0} samples/s",
            counted(tried, "trial"),
            taken.rate
        );
        self.change(taken.window, true, why)
    }

    /// Next prefetch depth to try, with the reason.
    fn next(&self, needed: usize) -> Option<(usize, String)> {
        let by_window = |trial: &&Trial| trial.window;
        let longest = self.trials.iter().max_by_key(by_window)?;
        let shortest = self.trials.iter().min_by_key(by_window)?;
        let others = self.trials.iter().filter(|it| it.window < longest.window);
        let gains = others.map(|it| it.rate).fold(0.0, f64::max) < AS_FAST * longest.rate;
        if longest.window < self.most && gains {
            let window = needed.max(2 * longest.window).min(self.most);
            return Some((window, "are more prefetched samples faster?".into()));
        }
        let best = self.best();
        let fast = shortest.rate >= self.as_fast() * best;
        if fast && shortest.window > self.floor.max(self.least()) {
            let share = if self.trials.len() == 1 { CAREFUL } else { BOLD };
            let window = (share * shortest.window as f64).ceil() as usize;
            return Some((
                window.max(self.floor).max(self.least()),
                "are fewer prefetched samples as fast?".into(),
            ));
        }
        // The knee is the smallest prefetch depth (`window`) with the full rate. Below the knee,
        // the rate is the depth divided by the duration of a request.
        let knee = MARGIN * shortest.window as f64 * best / shortest.rate.max(1e-9);
        let taken = self.nearly_best(best).window as f64;
        let between = !fast && knee < SHORTER * taken && knee > shortest.window as f64 / SHORTER;
        between.then(|| (knee.ceil() as usize, "is the number served at a time sufficient?".into()))
    }

    /// Minimum rate, relative to the fastest trial, that counts as equally fast.
    fn as_fast(&self) -> f64 {
        if self.trials.len() > 2 { ABOUT_AS_FAST } else { AS_FAST }
    }

    /// Highest rate of all trials.
    fn best(&self) -> f64 {
        self.trials.iter().map(|it| it.rate).fold(0.0, f64::max)
    }

    /// Smallest prefetch depth of the trials that is nearly as fast as the fastest.
    fn nearly_best(&self, best: f64) -> Trial {
        let fast = self.trials.iter().filter(|it| it.rate >= self.as_fast() * best);
        let now = Trial { window: self.window, rate: best };
        fast.copied().min_by_key(|it| it.window).unwrap_or(now)
    }

    /// Lead time in seconds: the time from the request of a sample to its use. Requests that take
    /// longer cost all workers together at most the share [`LATE`] of their time.
    fn age(&self, requests: &Counts, rate: f64) -> f64 {
        let allowed = LATE * self.workers.max(1) as f64 / rate.max(1e-9);
        // The times range from one microsecond to over an hour.
        let times: Vec<f64> = (0..460).map(|step| 1e-6 * 1.05_f64.powi(step)).collect();
        let count = requests.count() as f64;
        let late = requests.below(&times);
        let mut after = 0.0;
        for step in (1..times.len()).rev() {
            // `after` is the mean time by which requests exceed `times[step - 1]`: the integral of
            // the share of requests that take longer.
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
            // Requests sent under the old prefetch depth are not measured.
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

/// Median and 99th percentile of durations, as text.
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
