//! Reports of several ranks together: who is slow, and why.
//!
//! * A rank is slow by its loader, or by its own steps. By its loader where that could give a tenth less, by its model without
//!   the consumer, than the usual one's, the median.
//! * By its own steps where its consumer could use a tenth less than the usual one, and less by more than chance, and the rank
//!   would do a tenth less than the usual one if it waited for no other: by its waits for batches and its own steps, without
//!   what they have named [`SYNC`](super::SYNC). Ranks of a training whose steps have the waiting for others in them, and do
//!   not say so, do the same whoever is slow: by their steps nobody is named there.
//! * The slowest of the slow is the one whose loader or steps, by which it is slow, allow least.
//! * Why: the stage that takes a sample most longer than on the usual rank, or its waiting for a processor where that does; or
//!   workers or processors, where the rank has so many fewer that it explains more; or its steps, and what it has named of them, where that is most of it.
//! * What it costs: all ranks of a training do as many steps as the slowest. What they would do is what the models do of
//!   the ranks as they are, with the slow ones' loaders or steps replaced by the usual one's. Where loaders are slow, loaders of
//!   ranks that wait for them are taken with the slowest one's steps, since their own have that waiting in them. Ranks that do
//!   a tenth more than the slowest by themselves do not wait for it, as where each was measured alone: what they do is what
//!   they can.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::fit::samples;
use super::own::{Own, longest};
use super::{Cause, Report, forecast, percent};
use crate::model::Model;
use crate::profile::{DeviceTime, Profile, Stage};
use crate::{Error, Result};

/// What several ranks of one training did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ranks {
    /// One sentence.
    pub verdict: String,
    /// The rank that all wait for, where there is one.
    pub slowest: Option<u64>,
    /// Ranks of the training, as the reports say: more than there are reports where some are missing.
    pub world: u64,
    /// What the slow ranks cost all; `None` where none is slow.
    pub cost: Option<Straggling>,
    /// What loaders could usually give, samples a second: the median.
    pub usual_images_per_second: f64,
    /// What consumers could usually use, samples a second: the median.
    pub usual_consumer_images_per_second: f64,
    /// Milliseconds that each stage usually takes for a sample: the median of the ranks that have it.
    pub usual_stages: Vec<(Stage, f64)>,
    /// The settings that the reports name: first what slow ranks ask for, then what gains most.
    pub knobs: Vec<RanksKnob>,
    /// Each rank, the slowest first.
    pub ranks: Vec<RankLine>,
}

/// One rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankLine {
    /// Its number.
    pub rank: u64,
    /// Whether it is slower than the others: by its loader, or by its own steps.
    pub slow: bool,
    /// Whether its own steps are.
    pub slow_steps: bool,
    /// What its loader could give: samples a second, by its model without the consumer.
    pub loader_images_per_second: f64,
    /// What its consumer could use: samples a second, by its own steps. Less than the truth where these have waiting for
    /// other ranks in them that is not named.
    pub consumer_images_per_second: f64,
    /// What it did.
    pub images_per_second: f64,
    /// The share of its time in which its consumer waited for batches.
    pub consumer_waits: f64,
    /// What limits it.
    pub cause: Cause,
    /// Its threads that make samples.
    pub workers: u32,
    /// Its processors.
    pub cores: u32,
    /// Milliseconds of each stage for a sample, without its waiting for a processor; of what a device does, by its clock.
    pub stages: Vec<(Stage, f64)>,
    /// Milliseconds that its workers waited for a processor for each sample; `None` where that is not known.
    #[serde(default)]
    pub waits_for_processor: Option<f64>,
    /// The stages among them that take clearly longer than usual.
    pub deviates: Vec<Stage>,
    /// What its report says, in a sentence.
    pub verdict: String,
    /// What that rests on, line by line.
    pub evidence: Vec<String>,
}

/// What ranks that are slow cost all others.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Straggling {
    /// Samples a second that each rank does: those of the slowest.
    pub images_per_second: f64,
    /// What each would do if the slow ranks' loaders and steps were like the usual ones, by the models.
    pub without: f64,
    /// What an epoch of all ranks costs more for it, where the price of an hour was given.
    pub lost_per_epoch: Option<f64>,
}

/// A setting that reports of ranks name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RanksKnob {
    /// What to write: `loader.workers = 4`.
    pub setting: String,
    /// The ranks, each with what it gains there: 0.61 is 61 % more. Slow ranks first, then the largest gain.
    pub ranks: Vec<(u64, f64)>,
    /// What it costs the first of them, for people.
    pub cost: String,
    /// What would limit the first of them then.
    pub then: Cause,
}

/// A rank whose loader gives, or whose consumer uses, so much less than the usual one is a straggler.
const SLOW: f64 = 0.9;
/// A stage that takes so many times as long as usual is named.
const LONGER: f64 = 1.1;
/// It must be so much of what a sample usually takes.
const MATTERS: f64 = 0.03;
/// So many of the ranks that are left are simulated: those whose loaders could give least of them.
const NEXT: usize = 8;
/// Settings that are printed.
const PRINTED: usize = 3;

impl Ranks {
    /// Merges reports, in any order.
    ///
    /// # Errors
    ///
    /// [`Error`] where there is none, or two are of the same rank.
    pub fn merge(reports: &[Report]) -> Result<Self> {
        let mut sorted: Vec<Rank> = reports.iter().map(Rank::new).collect();
        sorted.sort_by_key(|it| it.line.rank);
        if let Some(pair) = sorted.windows(2).find(|pair| pair[0].line.rank == pair[1].line.rank) {
            let problem =
                format!("two reports are of rank {}; give one of each", pair[0].line.rank);
            return Err(Error::new("reports", problem));
        }
        let Some(usual) = Usual::of(&mut sorted) else {
            return Err(Error::new("reports", "there is none"));
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
                "{} ranks, and none is slower than the others: loaders could give about {loader:.0} images/s",
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
    /// What all would gain: 0.61 is 61 % more.
    pub fn gain(&self) -> f64 {
        (self.without / self.images_per_second.max(1e-9) - 1.0).max(0.0)
    }

    fn words(&self, ranks: usize, slow: usize) -> String {
        let (now, then, gain) = (self.images_per_second, self.without, self.gain());
        if gain < 0.005 {
            return format!(
                "it costs nothing: no rank would do more than {now:.0} images/s without"
            );
        }
        let (them, they) = if slow == 1 { ("it", "it") } else { ("them", "they") };
        let all = if ranks == 2 { "both".into() } else { format!("all {ranks}") };
        format!(
            "{all} ranks wait for {them}: each does {now:.0} images/s, and would do {then:.0} (+{}) if {they} were \
             like the others",
            percent(gain)
        )
    }
}

fn who(rank: u64, slow: usize) -> String {
    match slow {
        1 => format!("rank {rank} is the slowest"),
        _ => format!("rank {rank} is the slowest of {slow} that are slow"),
    }
}

/// A rank while it is judged.
#[derive(Clone)]
struct Rank<'a> {
    line: RankLine,
    report: &'a Report,
    own: Own,
    slow_loader: bool,
}

/// The usual ranks: the medians; of two the faster one.
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

    /// Samples a second that it allows by what it is slow by; of others, by their loaders, and these come after the slow ones.
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

    /// Whether it is slow by its steps, and not as much by its loader.
    fn steps_first(&self) -> bool {
        let RankLine { slow_steps, loader_images_per_second: loader, .. } = self.line;
        slow_steps && (!self.slow_loader || self.line.consumer_images_per_second < loader)
    }
}

fn line(report: &Report, own: &Own) -> RankLine {
    let profile = &report.profile;
    // A consumer that takes no time: one that holds a slot for long is not the loader's.
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

/// Milliseconds for a sample: items of a stage may be batches or groups.
fn stages(profile: &Profile) -> Vec<(Stage, f64)> {
    let samples = samples(profile);
    let each = profile.stages.iter().filter(|it| it.stage != Stage::List).map(|it| {
        let device = it.device.as_ref().filter(|device| device.items > 0);
        let seconds = device.map_or(it.without_waiting(), DeviceTime::all_seconds);
        (it.stage, 1e3 * seconds / samples)
    });
    each.collect()
}

/// The median of each stage; of two ranks the faster one's.
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

/// What is most different from the usual rank.
fn why(slow: &Rank, usual: &Usual, usual_stages: &[(Stage, f64)]) -> String {
    if slow.steps_first() {
        let (here, there) = (1e3 * slow.own.step, 1e3 * usual.steps.own.step);
        let part = longest(&slow.report.profile, &usual.steps.report.profile);
        let part = part.map_or(String::new(), |name| format!(", and most of that is {name}"));
        return format!(
            "its own steps take {here:.2} ms a sample, the usual rank's {there:.2} ms{part}"
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
            "its workers wait {here:.2} ms a sample for a processor, the usual rank's {there:.2} ms; {}",
            slow.cause.words()
        );
    }
    match most {
        _ if fewer(slow.workers, usual.workers) > longer.max(1.0) => {
            let many = counted(slow.workers, "worker");
            format!("it has {many}, the usual rank {}", usual.workers)
        }
        Some((stage, here, there)) => format!(
            "its {} takes {here:.2} ms a sample, the usual rank's {there:.2} ms",
            stage.name()
        ),
        None if fewer(slow.cores, usual.cores) > 1.0 => {
            let many = counted(slow.cores, "processor");
            format!("it has {many}, the usual rank {}", usual.cores)
        }
        None => format!("its stages take as long as elsewhere; {}", slow.cause.words()),
    }
}

fn counted(many: u32, of: &str) -> String {
    format!("{many} {of}{}", if many == 1 { "" } else { "s" })
}

/// What the slow ones of these ranks cost; they come first.
fn straggling(ranks: &[Rank], usual: &Usual) -> Result<Straggling> {
    let least = |paces: &mut dyn Iterator<Item = f64>| paces.fold(f64::INFINITY, f64::min);
    let now = least(&mut ranks.iter().map(|it| it.line.images_per_second));
    let price: Option<f64> =
        ranks.iter().map(|it| it.report.cost.map(|cost| cost.price_per_hour)).sum();
    let does = |loader: &Report, consumer| -> Result<f64> {
        Ok(forecast(&Model { consumer, ..loader.model.clone() })?.samples_per_second)
    };
    let mut without = f64::INFINITY;
    // With the usual steps.
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

/// What these ranks would do if slow loaders, of which `slowest` is the slowest, were like the usual one; `now` is what the
/// slowest of them does.
fn with_other_loaders(ranks: &[&Rank], slowest: &Rank, now: f64, usual: &Usual) -> Result<f64> {
    let mut without = f64::INFINITY;
    // Where the slow ranks do more than another, that one's consumer is what all wait for.
    if SLOW * slowest.own.alone > now {
        without = now;
    }
    // What a loader does with the slowest rank's steps, by what that rank did: where others did a little less, their own
    // consumers are why.
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
        writeln!(f, "{}\n", self.verdict)?;
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
            write!(f, "\n  {setting:<32} rank {rank}: +{}", percent(gain))?;
            if ranks.len() > 1 {
                write!(f, ", and {}", counted(ranks.len() as u32 - 1, "other rank"))?;
            }
        }
        if let Some(lost) = self.cost.and_then(|cost| cost.lost_per_epoch) {
            write!(f, "\n\ncost: the waiting for slow ranks costs {lost:.4} an epoch")?;
        }
        Ok(())
    }
}
