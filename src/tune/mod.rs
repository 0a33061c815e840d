//! Chooses workers, prefetch and placement by itself, from what was measured.
//!
//! Behaviour, each sentence with a test in `tests/tune.rs`, where machines are simulated:
//!
//! * What was measured in a window of batches is fitted by the model of [`explain`](crate::explain); what the model says is
//!   best is tried, and measured. So a promise that is not kept costs one window.
//! * No choice is tried twice, and there are at most [`TRIALS`]; then the cheapest of those is taken that were nearly as
//!   fast as the fastest: of two that are, the one that leaves more to the CPU (the device belongs to the model), then
//!   the one with fewer workers, then the one with the shorter ring.
//! * Where batches vary so much that a few of them say little, more are measured, as many as for [`TRIALS`] choices, and the model
//!   decides from all of them.
//! * Placement: where the consumer does not wait, less is put on the device, for a trial; where it waits, every division
//!   of the work is tried. Work comes back to the device in the same way.
//! * No choice is outside the bounds.
//! * Afterwards nothing changes as long as the loop does not, and the choice is as good as in its trial. Another loop is another speed, or more waiting, by a
//!   seventh and by more than chance, in two windows that follow one another; then all begins anew, each time after twice as many windows.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::explain::fit;
use crate::measure::{DeviceTime, Profile};
use crate::model::{Model, Service};
use crate::plan::Bounds;

use search::search;

pub use ahead::{AheadDecision, ReadAhead, TakenBatch};

mod ahead;
mod search;

/// Most choices that are tried before one is taken.
pub const TRIALS: usize = 7;
/// Batches that are measured for a choice.
pub const WINDOW: u64 = 5;
/// What is slower by less is as fast.
const AS_FAST: f64 = 0.98;
/// A consumer that waits for less of its time does not wait.
const WAITS: f64 = 0.02;
/// A speed with such an error says little.
const VAGUE: f64 = 0.1;
/// Another speed by so much is another loop, where batches do not vary by more.
const OTHER: f64 = 1.0 / 7.0;
/// Windows until the first new beginning.
const PATIENCE: u32 = 4;

/// What is on the device: it changes while the loader runs, and no pixel with it, since operators give the same bits on
/// both. The one that asks least of the device comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Offload {
    /// Nothing: samples are finished on the CPU, and copied where batches are on a device.
    Nothing,
    /// The operators.
    Operators,
    /// Decoding, by the routes that the balancer finds best, and the operators.
    Everything,
}

/// What is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice {
    /// Threads that make samples.
    pub workers: usize,
    /// Batches ahead of the consumer.
    pub prefetch: usize,
    /// What is on the device.
    pub offload: Offload,
}

/// What there is to choose from.
#[derive(Clone, Debug, PartialEq)]
pub struct Space {
    /// Threads that make samples.
    pub workers: Bounds,
    /// Batches ahead of the consumer.
    pub prefetch: Bounds,
    /// What may be on the device; the first choice is the last of them. At least one.
    pub offload: Vec<Offload>,
}

/// A choice with its reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// Batches that were measured before.
    pub batch: u64,
    /// What is chosen.
    pub choice: Choice,
    /// Whether it is to stay.
    pub settled: bool,
    /// Why, for people.
    pub why: String,
}

/// Makes choices; see the module's text. There is no clock and no chance in it.
#[derive(Debug)]
pub struct Tuner {
    space: Space,
    now: Choice,
    trials: Vec<Trial>,
    watch: Option<Watch>,
    /// Windows until the next new beginning may come.
    patience: u32,
    batches: u64,
}

/// A choice that was measured.
#[derive(Debug)]
struct Trial {
    choice: Choice,
    /// Samples a second.
    rate: f64,
    /// The share of its time in which the consumer waited.
    waits: f64,
    /// The rate's standard error, by the rate.
    error: f64,
    model: Model,
}

/// The loop as it was when a choice was taken.
#[derive(Debug)]
struct Watch {
    rate: f64,
    waits: f64,
    windows: u32,
    /// Windows, one after another, with another speed.
    others: u32,
}

impl Space {
    /// Whether there is anything to choose.
    pub fn is_free(&self) -> bool {
        self.workers.least < self.workers.most
            || self.prefetch.least < self.prefetch.most
            || self.offload.len() > 1
    }

    /// The first choice alone, with this on the device.
    pub fn of_one(&self, offload: Offload) -> Self {
        let only = |bounds: Bounds| Bounds { least: bounds.start, most: bounds.start, ..bounds };
        let (workers, prefetch) = (only(self.workers), only(self.prefetch));
        Self { workers, prefetch, offload: vec![offload] }
    }

    /// What is chosen before anything is measured: of numbers the first, and all that may be on the device.
    pub fn first(&self) -> Choice {
        Choice {
            workers: self.workers.start,
            prefetch: self.prefetch.start,
            offload: self.offload.last().copied().unwrap_or(Offload::Nothing),
        }
    }
}

impl Tuner {
    /// Begins with the space's first choice.
    pub fn new(space: Space) -> Self {
        let now = space.first();
        Self { space, now, trials: Vec::new(), watch: None, patience: PATIENCE, batches: 0 }
    }

    /// What is chosen now.
    pub fn choice(&self) -> Choice {
        self.now
    }

    /// Whether the choice is to stay.
    pub fn is_settled(&self) -> bool {
        self.watch.is_some()
    }

    /// How many batches are to be measured for the next [`observe`](Self::observe).
    pub fn window(&self) -> u64 {
        // Where nothing presses, more tell more.
        if self.is_settled() { 4 * WINDOW } else { WINDOW }
    }

    /// What was measured of the present choice, in a window in which there was no other. Gives the next choice, where it is
    /// another one or is to stay from now on.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Config`] where nothing was measured.
    pub fn observe(&mut self, profile: &Profile) -> Result<Option<Decision>> {
        self.batches += profile.batches;
        let (rate, waits) = (profile.images_per_second(), waits(profile));
        if let Some(watch) = &mut self.watch {
            if watch.is_over(profile, self.patience) {
                self.watch = None;
                self.trials.clear();
                self.patience *= 2;
            } else {
                return Ok(None);
            }
        }
        let model = fit(profile, None)?.model;
        let error = error(profile);
        self.trials.push(Trial { choice: self.now, rate, waits, error, model });
        let next = if self.trials.len() < TRIALS { self.next()? } else { None };
        if let Some((choice, why)) = next {
            return Ok(Some(self.decide(choice, why, false)));
        }
        if self.is_vague() && self.trials.len() < TRIALS {
            return Ok(None);
        }
        self.settle().map(Some)
    }

    /// Whether all trials together say little.
    fn is_vague(&self) -> bool {
        self.error() > VAGUE
    }

    /// The standard error of what all trials together say.
    fn error(&self) -> f64 {
        let largest = self.trials.iter().map(|it| it.error).fold(0.0, f64::max);
        largest / (self.trials.len().max(1) as f64).sqrt()
    }

    /// What to try next, and why.
    fn next(&self) -> Result<Option<(Choice, String)>> {
        let Some(last) = self.trials.last() else { return Ok(None) };
        let found = search(&self.pooled(last), last.choice, &self.space)?;
        let tried = |choice: Choice| self.trials.iter().any(|it| it.choice == choice);
        if !tried(found.choice) && found.is_worth_a_trial(last.choice) {
            let why = format!("{}; {}", last.words(), found.words(last.choice));
            return Ok(Some((found.choice, why)));
        }
        let waits = self.trials.iter().all(|it| it.waits >= WAITS);
        let untried = self.space.offload.iter().copied().filter(|offload| {
            let here = last.choice.offload;
            (waits || *offload < here) && self.trials.iter().all(|it| it.choice.offload != *offload)
        });
        Ok(untried.max().map(|offload| {
            // What the CPU can do is seen with all of it.
            let workers = last.choice.workers.max(self.space.workers.start);
            let why = format!("{}; {}", last.words(), offload.question());
            (Choice { workers, offload, ..last.choice }, why)
        }))
    }

    /// Takes the cheapest of the fastest, or of trials that say little what the model makes of all of them.
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
            _ if taken.error > VAGUE => {
                let found = search(&self.pooled(taken), choice, &self.space)?;
                (found.choice, "batches vary: what the model makes of all of them".to_string())
            }
            1 => (choice, format!("nothing promises more; {}", taken.words())),
            _ => {
                let why = format!("the least of {tried} that were tried and nearly the fastest");
                (choice, format!("{why}; {}", taken.words()))
            }
        };
        self.watch = Some(Watch { rate, waits, windows: 0, others: 0 });
        Ok(self.decide(choice, why, true))
    }

    /// The model of a trial with the times of all trials that had the same on the device. The consumer is taken to be as fast
    /// as it may be by what is known of it: a worker too many costs less than one too few.
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

/// The times of all of them, each as often as the others.
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

impl Watch {
    /// Whether what was chosen for this loop must be chosen anew.
    fn is_over(&mut self, profile: &Profile, patience: u32) -> bool {
        let rate = profile.images_per_second();
        self.windows += 1;
        // Four standard errors, those of the trial among them.
        let error = error(profile);
        let of_trial = error * (profile.batches as f64 / WINDOW as f64).sqrt();
        let error = 4.0 * error.hypot(of_trial);
        // A consumer that has become faster than the loader changes its waiting, and maybe not the speed.
        let change = (rate / self.rate.max(1e-9) - 1.0).abs().max(waits(profile) - self.waits);
        let other = change > OTHER.max(error);
        // What was measured longer than the trial is the better figure, where it is of the same loop.
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
            Some((limit, _)) if self.waits >= WAITS => {
                format!("{seen}, scarce: {}", limit.name(&self.model))
            }
            _ => seen,
        }
    }
}

/// The standard error of a speed, by it: of batches, or samples, that take very different times a few say little.
fn error(profile: &Profile) -> f64 {
    let consumer = &profile.consumer;
    let steps = consumer.step.cv.max(consumer.wait.cv * consumer.waiting_share);
    let stages = || profile.stages.iter();
    let deviation = stages().map(|it| (it.busy * it.latency.cv).powi(2)).sum::<f64>().sqrt();
    let samples = deviation / stages().map(|it| it.busy).sum::<f64>().max(1e-9);
    let of = |cv: f64, count: u64| cv / (count.max(1) as f64).sqrt();
    of(steps, profile.batches).hypot(of(samples, profile.images))
}

/// The share of its time in which the consumer waits: its host for batches, or its stream for what is in them.
fn waits(profile: &Profile) -> f64 {
    let consumer = &profile.consumer;
    let seconds = consumer.waited + consumer.stepped;
    let on_device = consumer.waited_on_device.as_ref().map_or(0.0, DeviceTime::all_seconds);
    (consumer.waiting_share + on_device / seconds.max(1e-9)).min(1.0)
}

impl Offload {
    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Offload::Nothing => "nothing",
            Offload::Operators => "operators",
            Offload::Everything => "everything",
        }
    }

    const fn question(self) -> &'static str {
        match self {
            Offload::Nothing => "can the CPU do all of it?",
            Offload::Operators => "is it better to decode on the CPU?",
            Offload::Everything => "is it better to decode on the device?",
        }
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { workers, prefetch, offload } = self;
        write!(f, "workers {workers}, prefetch {prefetch}, on the device {}", offload.name())
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { batch, choice, settled, why } = self;
        let word = if *settled { "chosen" } else { "tried" };
        write!(f, "batch {batch}: {choice} {word}: {why}")
    }
}
