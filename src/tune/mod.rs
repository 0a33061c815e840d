//! Autotuning of workers, prefetch and placement from measurements.
//!
//! Behaviour, each point with a test in `tests/insight/tune/` on simulated machines:
//!
//! * The performance model of [`explain`](crate::explain) is fitted to each measurement, which
//!   covers a few consecutive batches. The configuration that is best in the model is tried and
//!   measured, so a wrong prediction costs only one measurement.
//! * At most [`TRIALS`] configurations are tried, each at most once. The tuner then keeps the
//!   cheapest configuration whose speed is within 2 % of the fastest. The cheapest is the one with
//!   the least work on the device, because the trained model needs the device. Ties are resolved by
//!   the fewest workers, then by the shortest ring.
//! * If batch times vary too much for short measurements, the same configuration is measured again,
//!   up to [`TRIALS`] measurements in total. The model then chooses a configuration from all
//!   measurements.
//! * Placement is tuned operator by operator ([`Offload`]). If the consumer does not wait for
//!   batches, a binary search finds the least device work with which the consumer still does not
//!   wait. If the consumer waits, three placements are tried: everything on the device, nothing on
//!   the device, and all operators but not decoding. Then neighbours of the best placement are
//!   tried, with less device work if the device is the bottleneck and with more otherwise.
//! * Every configuration that is tried or chosen is within the bounds ([`Space`]).
//! * Tuning ends within [`WITHIN`] batches, counting those that are not measured, or within one
//!   second if that is later.
//! * After tuning has ended, the chosen configuration is kept while the training loop behaves as in
//!   the trial. Tuning restarts if the speed or the share of waiting differs by more than a
//!   seventh, and by more than chance, in two consecutive measurements. The minimum number of
//!   measurements before a restart doubles with each restart.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::measure::{DeviceTime, Profile};
use crate::plan::{Bounds, Offload};
use feedwater_insight::explain::fit;
use feedwater_insight::model::{Model, Service, slots};

use search::search;

pub use prefetch_depth::{PrefetchDecision, PrefetchDepth, TakenBatch};

mod device_split;
mod prefetch_depth;
mod search;

/// Maximum number of configurations that are tried.
pub const TRIALS: usize = 7;
/// Number of batches per trial.
pub const WINDOW: u64 = 5;
/// Maximum number of batches until tuning ends.
pub const WITHIN: u64 = 50;
/// Tuning may always take this time, in seconds, even if it then takes more than [`WITHIN`]
/// batches.
const SECONDS: f64 = 1.0;
/// Minimum speed, relative to the fastest trial, that counts as equally fast.
const AS_FAST: f64 = 0.98;
/// Maximum share of its time that the consumer may wait so that the waiting counts as negligible.
const NEGLIGIBLE_WAIT_SHARE: f64 = 0.02;
/// Maximum relative standard error of the measured speeds. Above it, trials cannot be compared.
const MAX_RELATIVE_ERROR: f64 = 0.1;
/// Minimum relative change of speed that counts as a change of the training loop. If batch times
/// vary much, a larger change is required.
const MIN_SPEED_CHANGE: f64 = 1.0 / 7.0;
/// Minimum number of measurements from the end of tuning to the first restart.
const PATIENCE: u32 = 4;

/// Configuration of a loader that tuning can change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice {
    /// Number of active workers.
    pub workers: usize,
    /// Number of prefetched batches.
    pub prefetch: usize,
    /// Part of the work that runs on the device.
    pub offload: Offload,
}

/// Configurations to choose from.
#[derive(Clone, Debug, PartialEq)]
pub struct Space {
    /// Range of the number of active workers.
    pub workers: Bounds,
    /// Range of the number of prefetched batches.
    pub prefetch: Bounds,
    /// Possible divisions of work between CPU and device, with at least one entry. The first entry
    /// has the least device work. Tuning starts with the last entry.
    pub offload: Vec<Offload>,
}

/// Configuration that the tuner chose, with its reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// Number of batches that the consumer had received before the decision.
    pub batch: u64,
    /// The chosen configuration.
    pub choice: Choice,
    /// Whether the choice is final.
    pub settled: bool,
    /// Reason for the choice, as text for users.
    pub why: String,
}

/// Autotuner, see the module documentation. It reads no clock and draws no random numbers.
#[derive(Debug)]
pub struct Tuner {
    space: Space,
    now: Choice,
    trials: Vec<Trial>,
    watch: Option<Settled>,
    /// Minimum number of measurements before the next restart.
    patience: u32,
    /// Number of batches that the consumer has received.
    batches: u64,
    /// Number of batches and seconds that all trials since the last restart took.
    spent: (u64, f64),
}

/// A measured configuration.
#[derive(Debug)]
struct Trial {
    choice: Choice,
    /// Samples per second.
    rate: f64,
    /// Share of the consumer's time spent waiting, from 0 to 1.
    waits: f64,
    /// Relative standard error of the rate.
    error: f64,
    model: Model,
}

/// Speed and waiting of the training loop when tuning ended, to detect later changes.
#[derive(Debug)]
struct Settled {
    rate: f64,
    waits: f64,
    windows: u32,
    /// Number of consecutive measurements with a different speed.
    others: u32,
}

impl Space {
    /// Whether there is more than one configuration.
    pub fn is_free(&self) -> bool {
        self.workers.least < self.workers.most
            || self.prefetch.least < self.prefetch.most
            || self.offload.len() > 1
    }

    /// Checks that a choice is within the space.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if the choice is outside the space.
    pub fn check(&self, choice: Choice) -> Result<()> {
        let numbers = [
            ("loader.num_workers", choice.workers, self.workers),
            ("loader.prefetch", choice.prefetch, self.prefetch),
        ];
        for (key, number, Bounds { least, most, .. }) in numbers {
            if !(least..=most).contains(&number) {
                let problem = format!(
                    "is {number}, which is outside the range {least} to {most} of this loader's \
                     plan"
                );
                return Err(Error::config(key, problem));
            }
        }
        if !self.offload.contains(&choice.offload) {
            let may: Vec<_> = self.offload.iter().map(Offload::to_string).collect();
            let problem = format!(
                "{} would run on the device, but the plan of this loader allows only one of \
                 these: {}",
                choice.offload,
                may.join(", ")
            );
            return Err(Error::config("chain", problem));
        }
        Ok(())
    }

    /// Space that contains only the first choice.
    pub fn of_one(&self) -> Self {
        let Choice { workers, prefetch, offload } = self.first();
        let (workers, prefetch) = (Bounds::fixed(workers), Bounds::fixed(prefetch));
        Self { workers, prefetch, offload: vec![offload] }
    }

    /// Choice before any measurement: the start values of workers and prefetch, and the most work
    /// on the device.
    pub fn first(&self) -> Choice {
        Choice {
            workers: self.workers.start,
            prefetch: self.prefetch.start,
            offload: self.offload.last().copied().unwrap_or(Offload::NOTHING),
        }
    }
}

impl Tuner {
    /// Creates a tuner that starts with the space's first choice.
    pub fn new(space: Space) -> Self {
        let now = space.first();
        let (trials, watch, spent) = (Vec::new(), None, (0, 0.0));
        Self { space, now, trials, watch, patience: PATIENCE, batches: 0, spent }
    }

    /// The current choice.
    pub fn choice(&self) -> Choice {
        self.now
    }

    /// Whether tuning has ended.
    pub fn is_settled(&self) -> bool {
        self.watch.is_some()
    }

    /// Number of batches to measure for the next [`observe`](Self::observe).
    pub fn window(&self) -> u64 {
        // After tuning there is no hurry, so each measurement covers more batches.
        if self.is_settled() { 4 * WINDOW } else { WINDOW }
    }

    /// Evaluates a measurement that was made with the current choice. `batches` is the total number
    /// of batches that the consumer has received. Returns the next choice if it differs from the
    /// current one or is final.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Config`] if nothing was measured.
    pub fn observe(&mut self, profile: &Profile, batches: u64) -> Result<Option<Decision>> {
        let passed = batches.saturating_sub(std::mem::replace(&mut self.batches, batches));
        let (rate, waits) = (profile.images_per_second(), waits(profile));
        if let Some(watch) = &mut self.watch {
            if watch.is_over(profile, self.patience) {
                self.watch = None;
                self.trials.clear();
                self.patience = self.patience.saturating_mul(2);
                self.spent = (0, 0.0);
            } else {
                return Ok(None);
            }
        }
        let each = profile.seconds / profile.batches.max(1) as f64;
        self.spent = (self.spent.0 + passed, self.spent.1 + each * passed as f64);
        let model = fit(profile, None)?.model;
        let error = error(profile);
        self.trials.push(Trial { choice: self.now, rate, waits, error, model });
        if !self.has_time(each) {
            return self.settle().map(Some);
        }
        if let Some((choice, why)) = self.next()? {
            return Ok(Some(self.decide(choice, why, false)));
        }
        if self.is_vague() {
            return Ok(None);
        }
        self.settle().map(Some)
    }

    /// Whether another trial fits the limits on batches and time, if a batch takes `each` seconds.
    /// The batches that are ready or have begun also count, because they pass before the trial is
    /// measured.
    fn has_time(&self, each: f64) -> bool {
        let (batches, seconds) = self.spent;
        let next = WINDOW + self.now.slots() as u64;
        let in_time = batches + next <= WITHIN || seconds + each * next as f64 <= SECONDS;
        in_time && self.trials.len() < TRIALS
    }

    /// Whether the measurements of all trials together are too inaccurate for a choice.
    fn is_vague(&self) -> bool {
        self.error() > MAX_RELATIVE_ERROR
    }

    /// Relative standard error of all trials together.
    fn error(&self) -> f64 {
        let largest = self.trials.iter().map(|it| it.error).fold(0.0, f64::max);
        largest / (self.trials.len().max(1) as f64).sqrt()
    }

    /// Next configuration to try, with the reason.
    fn next(&self) -> Result<Option<(Choice, String)>> {
        let Some(last) = self.trials.last() else { return Ok(None) };
        let found = search(&self.pooled(last), last.choice, &self.space)?;
        let tried = |choice: Choice| self.trials.iter().any(|it| it.choice == choice);
        if !tried(found.choice) && found.is_worth_a_trial(last.choice) {
            let why = format!("{}; {}", last.words(), found.words(last.choice));
            return Ok(Some((found.choice, why)));
        }
        Ok(device_split::next(&self.trials, &self.space.offload).map(|(offload, question)| {
            // Use at least the initial number of workers, so the trial shows what the CPU can do.
            let workers = last.choice.workers.max(self.space.workers.start);
            let why = format!("{}; {question}", last.words());
            (Choice { workers, offload, ..last.choice }, why)
        }))
    }

    /// Ends tuning with the cheapest of the fastest trials. If the trials are too inaccurate, takes
    /// the choice that the model derives from all of them.
    fn settle(&mut self) -> Result<Decision> {
        let best = self.trials.iter().map(|it| it.rate).fold(0.0, f64::max);
        let fast = self.trials.iter().filter(|it| it.rate >= AS_FAST * best);
        let cost = |it: &&Trial| (it.choice.offload, it.choice.workers, it.choice.prefetch);
        let Some(taken) = fast.min_by_key(cost) else {
            return Ok(self.decide(self.now, "nothing was measured".into(), true));
        };
        let Trial { choice, rate, waits, .. } = *taken;
        let tried = self.trials.len();
        let (choice, why) = match tried {
            _ if taken.error > MAX_RELATIVE_ERROR => {
                let found = search(&self.pooled(taken), choice, &self.space)?;
                (found.choice, "batches vary, so the model decides from all of them".to_string())
            }
            1 => (
                choice,
                format!("no other configuration is predicted to be faster; {}", taken.words()),
            ),
            _ => {
                let why = format!(
                    "this is the cheapest of {tried} tried configurations among those that \
                         are nearly as fast as the fastest"
                );
                (choice, format!("{why}; {}", taken.words()))
            }
        };
        self.watch = Some(Settled { rate, waits, windows: 0, others: 0 });
        Ok(self.decide(choice, why, true))
    }

    /// Model of a trial whose stage times are pooled over all trials with the same device work. The
    /// consumer's step is shortened by the measurement error, so the model rather demands too many
    /// workers than too few. One worker too many costs less than one too few.
    fn pooled(&self, trial: &Trial) -> Model {
        let same = self.trials.iter().filter(|it| it.choice.offload == trial.choice.offload);
        let models: Vec<&Model> = same.map(|it| &it.model).collect();
        let mut pooled = trial.model.clone();
        pooled.consumer.step = pool(models.iter().map(|it| &it.consumer.step));
        pooled.consumer.step.mean *= (1.0 - self.error()).max(0.5);
        for stage in &mut pooled.stages {
            let all = models.iter().flat_map(|it| &it.stages);
            let alike = all.filter(|it| it.name == stage.name && it.on == stage.on);
            stage.service = pool(alike.map(|it| &it.service));
        }
        pooled
    }

    fn decide(&mut self, choice: Choice, why: String, settled: bool) -> Decision {
        self.now = choice;
        Decision { batch: self.batches, choice, settled, why }
    }
}

/// Combines several distributions of durations into one, with equal weights.
fn pool<'a>(services: impl Iterator<Item = &'a Service>) -> Service {
    let mut values = Vec::new();
    for service in services {
        match service.quantiles.len() {
            0 => values.push((service.mean, Service::QUANTILES as u64)),
            many => {
                let each = (Service::QUANTILES / many).max(1) as u64;
                values.extend(service.quantiles.iter().map(|it| (service.mean * it, each)));
            }
        }
    }
    Service::from_histogram(&values)
}

impl Settled {
    /// Whether the training loop has changed, so that tuning must restart.
    fn is_over(&mut self, profile: &Profile, patience: u32) -> bool {
        let rate = profile.images_per_second();
        self.windows += 1;
        // A change counts only if it exceeds four standard errors of the difference between this
        // measurement and the trial.
        let error = error(profile);
        let of_trial = error * (profile.batches as f64 / WINDOW as f64).sqrt();
        let error = 4.0 * error.hypot(of_trial);
        // Compare the waiting as well: if the consumer becomes faster than the loader, it waits
        // more, but the speed may stay the same.
        let change = (rate / self.rate.max(1e-9) - 1.0).abs().max(waits(profile) - self.waits);
        let other = change > MIN_SPEED_CHANGE.max(error);
        // This measurement is longer and more accurate than the trial. So its values replace those
        // of the trial, unless the consumer's loop has changed.
        if self.windows == 1 && !other {
            (self.rate, self.waits) = (rate, waits(profile));
        }
        self.others = if other { self.others + 1 } else { 0 };
        self.others >= 2 && self.windows >= patience
    }
}

impl Trial {
    fn words(&self) -> String {
        let seen =
            format!("{:.0} images/s, the consumer waits {:.0} %", self.rate, 100.0 * self.waits);
        match self.model.capacity().first() {
            Some((limit, _)) if self.waits >= NEGLIGIBLE_WAIT_SHARE => {
                format!("{seen}, limited by {}", limit.name(&self.model))
            }
            _ => seen,
        }
    }
}

/// Relative standard error of the measured speed. It is large if the times of batches or samples
/// vary and the measurement covers few batches.
fn error(profile: &Profile) -> f64 {
    let consumer = &profile.consumer;
    let steps = consumer.step.cv.max(consumer.wait.cv * consumer.waiting_share);
    let stages = || profile.stages.iter();
    let deviation = stages().map(|it| (it.busy * it.latency.cv).powi(2)).sum::<f64>().sqrt();
    let samples = deviation / stages().map(|it| it.busy).sum::<f64>().max(1e-9);
    let of = |cv: f64, count: u64| cv / (count.max(1) as f64).sqrt();
    of(steps, profile.batches).hypot(of(samples, profile.images))
}

/// Share of the consumer's time spent waiting: the host waits for batches, or the consumer's stream
/// waits until batches are filled.
fn waits(profile: &Profile) -> f64 {
    let consumer = &profile.consumer;
    let seconds = consumer.waited + consumer.stepped;
    let on_device = consumer.waited_on_device.as_ref().map_or(0.0, DeviceTime::all_seconds);
    (consumer.waiting_share + on_device / seconds.max(1e-9)).min(1.0)
}

impl Choice {
    /// Number of slots in use: the prefetched batches, and the consumer's batch.
    pub fn slots(&self) -> usize {
        slots(self.prefetch)
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { workers, prefetch, offload } = self;
        write!(f, "workers {workers}, prefetch {prefetch}, on the device {offload}")
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { batch, choice, settled, why } = self;
        let word = if *settled { "chosen" } else { "tried" };
        write!(f, "batch {batch}: {choice} {word}: {why}")
    }
}
