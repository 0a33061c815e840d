//! Merges the reports of several ranks and finds slow ones.
//!
//! * A rank has a slow loader if the model of its loader, with a consumer that takes no time,
//!   predicts at least 10 % less throughput than for the median rank.
//! * A rank has slow steps if its steps take at least 11 % more time per sample than the median
//!   rank's, and if random variation does not explain this. In addition, the rank alone must be at
//!   least 10 % slower than the median rank. Waits for other ranks are excluded if they are named
//!   [`SYNC`](super::SYNC). If steps contain unnamed waits, all ranks look equally slow, and none
//!   has slow steps.
//! * The slowest rank is the slow rank whose loader or steps allow the least throughput.
//! * The verdict on a slow loader names the stage, or the wait for a processor, that exceeds the
//!   median rank's most. If a lower number of workers or processors explains more, it names that.
//!   The verdict on slow steps names the part of the step that causes most of the difference.
//! * All ranks of a training run at the pace of the slowest rank. The cost of slow ranks is the
//!   simulated gain if the median rank's loader and steps replace slow loaders and steps.
//! * If some ranks have slow loaders, the steps of the other ranks contain waits for them. So the
//!   other ranks are simulated with the steps of the slowest rank. Ranks that are over 10 % faster
//!   did not wait, so they keep their own steps.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::fit::samples;
use super::own::{Own, longest};
use super::{Cause, Report, forecast, percent};
use crate::model::Model;
use crate::profile::{DeviceTime, Profile, Stage};
use crate::text::{counted, escaped};
use crate::{Error, Result};

/// Merged reports of the ranks of one training.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ranks {
    /// Summary in one sentence.
    pub verdict: String,
    /// Slowest rank, which all other ranks wait for. `None` if no rank is slow.
    pub slowest: Option<u64>,
    /// World size according to the reports. Larger than the number of reports if some are missing.
    pub world: u64,
    /// Cost of the slow ranks. `None` if no rank is slow.
    pub cost: Option<Straggling>,
    /// Throughput of the median rank's loader, in samples per second.
    pub usual_images_per_second: f64,
    /// Throughput of the median rank's consumer, in samples per second.
    pub usual_consumer_images_per_second: f64,
    /// Milliseconds per sample of each stage: the median of the ranks that have this stage.
    pub usual_stages: Vec<(Stage, f64)>,
    /// Recommended settings: first those for slow ranks, then those with the largest gains.
    pub knobs: Vec<RanksKnob>,
    /// All ranks, the slowest first.
    pub ranks: Vec<RankLine>,
}

/// Summary of one rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankLine {
    /// Rank number.
    pub rank: u64,
    /// Whether the rank has a slow loader or slow steps.
    pub slow: bool,
    /// Whether the rank has slow steps.
    pub slow_steps: bool,
    /// Throughput of the rank's loader in samples per second, with a consumer that takes no time.
    pub loader_images_per_second: f64,
    /// Throughput of the rank's consumer in samples per second, computed from its steps. The value
    /// is too low if the steps contain unnamed waits for other ranks.
    pub consumer_images_per_second: f64,
    /// Measured throughput of the rank in samples per second.
    pub images_per_second: f64,
    /// Share of the time in which the rank's consumer waited for batches.
    pub consumer_waits: f64,
    /// Bottleneck.
    pub cause: Cause,
    /// Number of worker threads.
    pub workers: u32,
    /// Number of processors.
    pub cores: u32,
    /// Milliseconds per sample of each stage, without waiting for a processor. Device time for
    /// stages on a device.
    pub stages: Vec<(Stage, f64)>,
    /// Milliseconds per sample that the rank's workers waited for a processor. `None` if this was
    /// not measured.
    #[serde(default)]
    pub waits_for_processor: Option<f64>,
    /// Stages that take clearly longer than on the median rank.
    pub deviates: Vec<Stage>,
    /// Verdict of the rank's report.
    pub verdict: String,
    /// Evidence of the rank's report, one measurement per line.
    pub evidence: Vec<String>,
}

/// What slow ranks cost all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Straggling {
    /// Samples per second of each rank, as limited by the slowest rank.
    pub images_per_second: f64,
    /// Predicted samples per second of each rank if median loaders and steps replace slow ones.
    pub without: f64,
    /// Cost per epoch, summed over all ranks, if a price per hour was given.
    pub lost_per_epoch: Option<f64>,
}

/// A setting that the report on several ranks recommends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RanksKnob {
    /// Setting with its new value, such as `loader.num_workers = 4`, or a command to run.
    pub setting: String,
    /// Ranks to change with their gains (0.61 is 61 % more): slow ranks first, then by gain.
    pub ranks: Vec<(u64, f64)>,
    /// Cost of the change on the first rank of `ranks`.
    pub cost: String,
    /// Bottleneck of the first rank of `ranks` after the change.
    pub then: Cause,
}

/// A rank is slow if its throughput is below this share of the median rank's throughput.
const SLOW: f64 = 0.9;
/// A stage deviates only if it takes more than this many times the median rank's time.
const LONGER: f64 = 1.1;
/// A stage deviates only if its excess over the median rank's time is more than this share of the
/// median time of a whole sample.
const MATTERS: f64 = 0.03;
/// At most this many ranks with slow steps are simulated, and at most this many of the other ranks.
const NEXT: usize = 8;
/// Largest number of settings that the text of the report contains.
const PRINTED: usize = 3;

impl Ranks {
    /// Merges the reports of all ranks, which may be in any order.
    ///
    /// # Errors
    ///
    /// Fails with [`Error`] if there are no reports, or two reports of the same rank.
    pub fn merge(reports: &[Report]) -> Result<Self> {
        let mut sorted: Vec<Rank> = reports.iter().map(Rank::new).collect();
        sorted.sort_by_key(|it| it.line.rank);
        if let Some(pair) = sorted.windows(2).find(|pair| pair[0].line.rank == pair[1].line.rank) {
            let problem = format!(
                "two reports are from rank {}; give one report per rank",
                pair[0].line.rank
            );
            return Err(Error::new("reports", problem));
        }
        let Some(usual) = Usual::of(&mut sorted) else {
            return Err(Error::new("reports", "no report given"));
        };
        let usual_stages = medians(&sorted);
        for rank in &mut sorted {
            rank.judge(&usual);
            rank.line.deviates = deviating(&rank.line.stages, &usual_stages);
        }
        sorted.sort_by(|a, b| {
            let (a, b) = (a.allows(), b.allows());
            a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
        });
        let slow = sorted.iter().filter(|it| it.line.slow).count();
        let cost = match slow {
            0 => None,
            _ => Some(straggling(&sorted, &usual)?),
        };
        let first = sorted.iter().find(|it| it.line.slow);
        let loader = usual.loader.line.loader_images_per_second;
        let verdict = match (&cost, first) {
            (Some(cost), Some(first)) => {
                let why = why(first, &usual, &usual_stages);
                format!("{}: {why}; {}", who(first.line.rank, slow), cost.words(sorted.len(), slow))
            }
            _ => format!(
                "{} ranks, none slower than the others: loaders could deliver about {loader:.0} images/s",
                sorted.len(),
            ),
        };
        Ok(Self {
            verdict,
            slowest: first.map(|it| it.line.rank),
            world: reports.iter().map(|it| it.profile.setup.world).fold(0, u64::max),
            cost,
            usual_images_per_second: loader,
            usual_consumer_images_per_second: 1.0 / usual.steps.own.step,
            usual_stages,
            knobs: knobs(&sorted),
            ranks: sorted.into_iter().map(|it| it.line).collect(),
        })
    }
}

impl Straggling {
    /// Relative gain of every rank if no rank were slow: 0.61 means 61 % more samples per second.
    pub fn gain(&self) -> f64 {
        (self.without / self.images_per_second.max(1e-9) - 1.0).max(0.0)
    }

    fn words(&self, ranks: usize, slow: usize) -> String {
        let (now, then, gain) = (self.images_per_second, self.without, self.gain());
        if gain < 0.005 {
            return format!(
                "the slow ranks cost nothing: without them, no rank would exceed {now:.0} images/s"
            );
        }
        let (them, they) = if slow == 1 { ("it", "it") } else { ("them", "they") };
        let all = if ranks == 2 { "both".into() } else { format!("all {ranks}") };
        format!(
            "{all} ranks wait for {them}: each rank runs at {now:.0} images/s, and would run at {then:.0} \
             images/s (+{}) if {they} were like the others",
            percent(gain)
        )
    }
}

fn who(rank: u64, slow: usize) -> String {
    match slow {
        1 => format!("rank {rank} is the slowest"),
        _ => format!("rank {rank} is the slowest of {slow} slow ranks"),
    }
}

/// Report of a rank, with intermediate results of the merge.
#[derive(Clone)]
struct Rank<'a> {
    line: RankLine,
    report: &'a Report,
    own: Own,
    slow_loader: bool,
}

/// Ranks with the median loader and the median steps. Of two ranks, the faster one is the median.
struct Usual<'a> {
    loader: Rank<'a>,
    steps: Rank<'a>,
    alone: f64,
}

impl<'a> Usual<'a> {
    fn of(ranks: &mut [Rank<'a>]) -> Option<Self> {
        let mut median = |of: fn(&Rank) -> f64| {
            ranks.sort_by(|a, b| of(a).total_cmp(&of(b)));
            ranks.get(ranks.len() / 2).cloned()
        };
        let alone = median(|it| it.own.alone)?.own.alone;
        let steps = median(|it| 1.0 / it.own.step)?;
        Some(Self { alone, steps, loader: median(|it| it.line.loader_images_per_second)? })
    }
}

impl<'a> Rank<'a> {
    fn new(report: &'a Report) -> Self {
        let own = Own::of(&report.profile);
        Self { line: line(report, &own), report, own, slow_loader: false }
    }

    fn judge(&mut self, usual: &Usual) {
        let loader = usual.loader.line.loader_images_per_second;
        self.slow_loader = self.line.loader_images_per_second < SLOW * loader;
        let longer = self.own.step / usual.steps.own.step;
        self.line.slow_steps =
            longer > self.own.chance.max(1.0 / SLOW) && self.own.alone < SLOW * usual.alone;
        self.line.slow = self.slow_loader || self.line.slow_steps;
    }

    /// Key to sort ranks, the slowest first: slow ranks by the throughput that their slow loader or
    /// steps allow, then the others by the throughput of their loader.
    fn allows(&self) -> (bool, f64) {
        let loader = self.line.loader_images_per_second;
        let steps = self.line.consumer_images_per_second;
        let allows = match (self.slow_loader, self.line.slow_steps) {
            (_, false) => loader,
            (false, true) => steps,
            (true, true) => loader.min(steps),
        };
        (!self.line.slow, allows)
    }

    /// Whether the rank is slow mainly because of its steps.
    fn steps_first(&self) -> bool {
        let RankLine { slow_steps, loader_images_per_second: loader, .. } = self.line;
        slow_steps && (!self.slow_loader || self.line.consumer_images_per_second < loader)
    }
}

fn line(report: &Report, own: &Own) -> RankLine {
    let profile = &report.profile;
    // Set the consumer's time to 0. A consumer that keeps its slots for long does not make the
    // loader slow.
    let mut model = report.model.clone();
    model.consumer.step.mean = 0.0;
    let loader = model.limit();
    RankLine {
        rank: profile.setup.rank,
        slow: false,
        slow_steps: false,
        loader_images_per_second: loader.map_or(0.0, |(_, most)| most),
        consumer_images_per_second: 1.0 / own.step,
        images_per_second: report.images_per_second,
        consumer_waits: report.consumer_waits,
        cause: report.cause,
        workers: profile.setup.workers,
        cores: profile.setup.cores,
        stages: stages(profile),
        waits_for_processor: profile.processors.waits.map(|it| 1e3 * it.seconds / samples(profile)),
        deviates: Vec::new(),
        verdict: report.verdict.clone(),
        evidence: report.evidence.clone(),
    }
}

/// Returns the milliseconds per sample of each stage. The measured time per item cannot be used,
/// because an item may be a batch or a group of samples.
fn stages(profile: &Profile) -> Vec<(Stage, f64)> {
    let samples = samples(profile);
    let each = profile.stages.iter().filter(|it| it.stage != Stage::List).map(|it| {
        let device = it.device.as_ref().filter(|device| device.items > 0);
        let seconds = device.map_or(it.without_waiting(), DeviceTime::all_seconds);
        (it.stage, 1e3 * seconds / samples)
    });
    each.collect()
}

/// Returns the median time of each stage over the ranks. Of two ranks, the faster one counts as the
/// median.
fn medians(ranks: &[Rank]) -> Vec<(Stage, f64)> {
    let all = Stage::ALL.into_iter().filter_map(|stage| {
        let times = ranks.iter().filter_map(|it| of(&it.line.stages, stage));
        let mut times: Vec<f64> = times.collect();
        times.sort_by(f64::total_cmp);
        Some((stage, *times.get(times.len().checked_sub(1)? / 2)?))
    });
    all.collect()
}

fn of(stages: &[(Stage, f64)], stage: Stage) -> Option<f64> {
    stages.iter().find(|it| it.0 == stage).map(|it| it.1)
}

fn deviating(stages: &[(Stage, f64)], usual: &[(Stage, f64)]) -> Vec<Stage> {
    let sample: f64 = usual.iter().map(|it| it.1).sum();
    let longer = stages.iter().filter(|&&(stage, here)| {
        let there = of(usual, stage).unwrap_or(0.0);
        here > LONGER * there && here - there > MATTERS * sample
    });
    longer.map(|it| it.0).collect()
}

/// Describes the largest difference of a slow rank from the median rank.
fn why(slow: &Rank, usual: &Usual, usual_stages: &[(Stage, f64)]) -> String {
    if slow.steps_first() {
        let (here, there) = (1e3 * slow.own.step, 1e3 * usual.steps.own.step);
        let part = longest(&slow.report.profile, &usual.steps.report.profile);
        let part =
            part.map_or(String::new(), |name| format!(", and most of the difference is {name}"));
        return format!(
            "its own steps take {here:.2} ms a sample, those of the median rank {there:.2} ms{part}"
        );
    }
    let (slow, usual) = (&slow.line, &usual.loader.line);
    let sum = |stages: &[(Stage, f64)]| stages.iter().map(|it| it.1).sum::<f64>();
    let longer = sum(&slow.stages) / sum(usual_stages).max(1e-9);
    let more = slow.deviates.iter().filter_map(|&stage| {
        let there = of(usual_stages, stage).unwrap_or(0.0);
        Some((stage, of(&slow.stages, stage)?, there))
    });
    let most = more.max_by(|a, b| (a.1 - a.2).total_cmp(&(b.1 - b.2)));
    let fewer = |has: u32, had: u32| f64::from(had) / f64::from(has.max(1));
    let [here, there] = [slow, usual].map(|it| it.waits_for_processor.unwrap_or(0.0));
    let longest = most.map_or(0.0, |it| it.1 - it.2).max(MATTERS * sum(usual_stages));
    if slow.cause.is_contention() && here - there > longest {
        return format!(
            "its workers wait {here:.2} ms a sample for a processor, those of the median rank {there:.2} ms; {}",
            slow.cause.words()
        );
    }
    match most {
        _ if fewer(slow.workers, usual.workers) > longer.max(1.0) => {
            let many = counted(slow.workers, "worker");
            format!("it has {many}, but the median rank has {}", usual.workers)
        }
        Some((stage, here, there)) => format!(
            "its {} takes {here:.2} ms a sample, that of the median rank {there:.2} ms",
            stage.name()
        ),
        None if fewer(slow.cores, usual.cores) > 1.0 => {
            let many = counted(slow.cores, "processor");
            format!("it has {many}, but the median rank has {}", usual.cores)
        }
        None => format!("its stages take as long as on other ranks; {}", slow.cause.words()),
    }
}

/// Computes the cost of the slow ranks, which come first in `ranks`.
fn straggling(ranks: &[Rank], usual: &Usual) -> Result<Straggling> {
    let least = |paces: &mut dyn Iterator<Item = f64>| paces.fold(f64::INFINITY, f64::min);
    let now = least(&mut ranks.iter().map(|it| it.line.images_per_second));
    let price: Option<f64> =
        ranks.iter().map(|it| it.report.cost.map(|cost| cost.price_per_hour)).sum();
    let does = |loader: &Report, consumer| -> Result<f64> {
        Ok(forecast(&Model { consumer, ..loader.model.clone() })?.samples_per_second)
    };
    let mut without = f64::INFINITY;
    // Simulate each rank that has slow steps with the median rank's steps instead.
    for rank in ranks.iter().filter(|it| it.line.slow_steps).take(NEXT) {
        let loader = if rank.slow_loader { usual.loader.report } else { rank.report };
        without = without.min(does(loader, usual.steps.own.consumer(&usual.steps.report.model))?);
    }
    let others: Vec<&Rank> = ranks.iter().filter(|it| !it.line.slow_steps).collect();
    let pace = least(&mut others.iter().map(|it| it.own.alone));
    match others.iter().find(|it| it.slow_loader) {
        Some(slowest) => without = without.min(with_other_loaders(&others, slowest, pace, usual)?),
        None => {
            without = without.min(pace);
            for rank in others.iter().take(NEXT) {
                without = without.min(does(rank.report, rank.own.consumer(&rank.report.model))?);
            }
        }
    }
    let without = without.max(now);
    let data = ranks.first().map_or(0, |it| it.report.profile.data.epoch_samples);
    let epoch = data as f64 / now.max(1e-9);
    let lost = price.map(|price| price * epoch * (1.0 - now / without.max(1e-9)) / 3600.0);
    Ok(Straggling { images_per_second: now, without, lost_per_epoch: lost })
}

/// Returns the lowest throughput of these ranks if the median rank's loader replaces slow loaders.
/// `slowest` has the slowest loader. `now` is the lowest throughput without the change.
fn with_other_loaders(ranks: &[&Rank], slowest: &Rank, now: f64, usual: &Usual) -> Result<f64> {
    let mut without = f64::INFINITY;
    // If another rank is over 10 % slower because of its consumer, a faster loader gains nothing.
    if SLOW * slowest.own.alone > now {
        without = now;
    }
    // Predicted throughput of a loader with the slowest rank's steps. The gain is applied to `now`,
    // because a rank that is a little slower than `slowest` is limited by its own consumer.
    let paced = |loader: &Report| -> Result<f64> {
        let consumer = slowest.own.consumer(&slowest.report.model);
        let model = Model { consumer, ..loader.model.clone() };
        let gain = forecast(&model)?.samples_per_second / slowest.own.alone.max(1e-9);
        Ok(gain * now)
    };
    without = without.min(paced(usual.loader.report)?);
    let fast = ranks.iter().filter(|it| !it.slow_loader);
    let (own, waiting): (Vec<&Rank>, Vec<&Rank>) = fast.partition(|it| SLOW * it.own.alone > now);
    without = own.into_iter().map(|it| it.own.alone).fold(without, f64::min);
    for rank in waiting.into_iter().take(NEXT) {
        without = without.min(paced(rank.report)?);
    }
    Ok(without)
}

fn knobs(ranks: &[Rank]) -> Vec<RanksKnob> {
    let mut named: Vec<(f64, u64, bool, &super::Knob)> = Vec::new();
    for Rank { line, report, .. } in ranks {
        named.extend(report.knobs.iter().map(|knob| (knob.gain, line.rank, line.slow, knob)));
    }
    named.sort_by(|a, b| b.2.cmp(&a.2).then(b.0.total_cmp(&a.0)));
    let mut found: Vec<RanksKnob> = Vec::new();
    let mut places = std::collections::HashMap::new();
    for (gain, rank, _, knob) in named {
        let place = *places.entry(knob.setting.as_str()).or_insert_with(|| {
            let (setting, cost, then) = (knob.setting.clone(), knob.cost.clone(), knob.then);
            found.push(RanksKnob { setting, ranks: Vec::new(), cost, then });
            found.len() - 1
        });
        found[place].ranks.push((rank, gain));
    }
    found
}

impl fmt::Display for Ranks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n", escaped(&self.verdict))?;
        let heads = ["loader img/s", "steps img/s", "did img/s"];
        write!(
            f,
            "{:>5}{:>14}{:>14}{:>14}{:>10}  limits",
            "rank", heads[0], heads[1], heads[2], "waits"
        )?;
        for line in &self.ranks {
            let RankLine { rank, loader_images_per_second: loader, images_per_second: did, .. } =
                line;
            let (steps, waits) = (line.consumer_images_per_second, 100.0 * line.consumer_waits);
            let limits =
                if line.slow_steps { "its own steps are slow" } else { line.cause.words() };
            write!(f, "\n{rank:>5}{loader:>14.0}{steps:>14.0}{did:>14.0}{waits:>8.1} %  {limits}")?;
        }
        if !self.knobs.is_empty() {
            write!(f, "\n\nwhat to change")?;
        }
        for RanksKnob { setting, ranks, .. } in self.knobs.iter().take(PRINTED) {
            let (rank, gain) = ranks.first().map_or((0, 0.0), |it| *it);
            write!(f, "\n  {:<32} rank {rank}: +{}", escaped(setting), percent(gain))?;
            if ranks.len() > 1 {
                write!(f, ", and {}", counted(ranks.len() - 1, "other rank"))?;
            }
        }
        if let Some(lost) = self.cost.and_then(|cost| cost.lost_per_epoch) {
            write!(f, "\n\ncost: the waiting for slow ranks costs {lost:.4} an epoch")?;
        }
        Ok(())
    }
}
