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
//! * Placement, operator by operator ([`Offload`]): where the consumer does not wait, the least on the device is looked for with
//!   which it still does not, by halves. Where it waits, all, none and all operators alone are tried, and then what lies
//!   beside the best of them: less where the device is scarce, else more.
//! * No choice is outside the bounds.
//! * It is settled within [`WITHIN`] batches, those that are not measured among them; within a second where batches take less than
//!   a twentieth of one.
//! * Afterwards nothing changes as long as the loop does not, and the choice is as good as in its trial. Another loop is another speed, or more waiting, by a
//!   seventh and by more than chance, in two windows that follow one another; then all begins anew, each time after twice as many windows.

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

/// Most choices that are tried before one is taken.
pub const TRIALS: usize = 7;
/// Batches that are measured for a choice.
pub const WINDOW: u64 = 5;
/// Batches until all is settled.
pub const WITHIN: u64 = 50;
/// Seconds in which it may be settled, whatever number of batches that is.
const SECONDS: f64 = 1.0;
/// What is slower by less is as fast.
const AS_FAST: f64 = 0.98;
/// A consumer that waits for less of its time does not wait.
const NEGLIGIBLE_WAIT_SHARE: f64 = 0.02;
/// A speed with such an error says little.
const MAX_RELATIVE_ERROR: f64 = 0.1;
/// Another speed by so much is another loop, where batches do not vary by more.
const MIN_SPEED_CHANGE: f64 = 1.0 / 7.0;
/// Windows until the first new beginning.
const PATIENCE: u32 = 4;

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
    /// What may be on the device, the least first; the first choice is the last of them. At least one.
    pub offload: Vec<Offload>,
}

/// A choice with its reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// Batches that the consumer had before.
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
    /// Batches that the consumer had.
    batches: u64,
    /// Batches, and seconds, for the trials so far.
    spent: (u64, f64),
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

    /// # Errors
    ///
    /// [`Error::Config`] where a choice is outside.
    pub fn check(&self, choice: Choice) -> Result<()> {
        let numbers = [
            ("loader.workers", choice.workers, self.workers),
            ("loader.prefetch", choice.prefetch, self.prefetch),
        ];
        for (key, number, Bounds { least, most, .. }) in numbers {
            if !(least..=most).contains(&number) {
                let problem =
                    format!("{number} is not from {least} to {most}, which there is room for here");
                return Err(Error::config(key, problem));
            }
        }
        if !self.offload.contains(&choice.offload) {
            let may: Vec<_> = self.offload.iter().map(Offload::to_string).collect();
            let problem =
                format!("{} cannot be on the device here, but {}", choice.offload, may.join(", "));
            return Err(Error::config("chain", problem));
        }
        Ok(())
    }

    /// The first choice alone.
    pub fn of_one(&self) -> Self {
        let Choice { workers, prefetch, offload } = self.first();
        let (workers, prefetch) = (Bounds::fixed(workers), Bounds::fixed(prefetch));
        Self { workers, prefetch, offload: vec![offload] }
    }

    /// What is chosen before anything is measured: of numbers the first, and all that may be on the device.
    pub fn first(&self) -> Choice {
        Choice {
            workers: self.workers.start,
            prefetch: self.prefetch.start,
            offload: self.offload.last().copied().unwrap_or(Offload::NOTHING),
        }
    }
}

impl Tuner {
    /// Begins with the space's first choice.
    pub fn new(space: Space) -> Self {
        let now = space.first();
        let (trials, watch, spent) = (Vec::new(), None, (0, 0.0));
        Self { space, now, trials, watch, patience: PATIENCE, batches: 0, spent }
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

    /// What was measured of the present choice, in a window in which there was no other, when the consumer had had so many
    /// `batches`. Gives the next choice, where it is another one or is to stay from now on.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Config`] where nothing was measured.
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

    /// Whether another choice can be tried, where a batch takes so many seconds. Before it is measured those batches pass
    /// that are ready or begun.
    fn has_time(&self, each: f64) -> bool {
        let (batches, seconds) = self.spent;
        let next = WINDOW + self.now.slots() as u64;
        let in_time = batches + next <= WITHIN || seconds + each * next as f64 <= SECONDS;
        in_time && self.trials.len() < TRIALS
    }

    /// Whether all trials together say little.
    fn is_vague(&self) -> bool {
        self.error() > MAX_RELATIVE_ERROR
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
        Ok(device_split::next(&self.trials, &self.space.offload).map(|(offload, question)| {
            // What the CPU can do is seen with all of it.
            let workers = last.choice.workers.max(self.space.workers.start);
            let why = format!("{}; {question}", last.words());
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
            _ if taken.error > MAX_RELATIVE_ERROR => {
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
        let other = change > MIN_SPEED_CHANGE.max(error);
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
            Some((limit, _)) if self.waits >= NEGLIGIBLE_WAIT_SHARE => {
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

impl Choice {
    /// Slots in use in the ring of batches: those ahead of the consumer, and the one that it has.
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
