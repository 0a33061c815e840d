//! Reports of several ranks together: who is slow, and why.
//!
//! * The slowest rank is the one whose loader could give least, by its model without the consumer. Ranks are slow whose
//!   loaders could give a tenth less than the usual one's, the median.
//! * Why: the stage that takes a sample most longer than on the usual rank; or workers or processors, where the rank has
//!   so many fewer that it explains more.
//! * What it costs: all ranks of a training do as many steps as the slowest. What they would do is what the models do of
//!   the ranks as they are, with the slow ones' replaced by the usual one's and with the slow rank's steps, since those
//!   of ranks that wait for it have that waiting in them. Ranks that do a tenth more than the slowest do not wait for
//!   it, as where each was measured alone: what they do is what they can.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::fit::samples;
use super::{Cause, Report, forecast, percent};
use crate::error::{Error, Result};
use crate::measure::{DeviceTime, Profile, Stage};
use crate::model::{Limit, Model};

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
    /// Whether its loader is slower than the others'.
    pub slow: bool,
    /// What its loader could give: samples a second, by its model without the consumer.
    pub loader_images_per_second: f64,
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
    /// Milliseconds of each stage for a sample; of what a device does, by its clock.
    pub stages: Vec<(Stage, f64)>,
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
    /// What each would do if the slow ranks' loaders were like the usual one, by the models.
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

/// A rank whose loader gives so much less than the usual one is a straggler.
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
    /// [`Error::Config`] where there is none, or two are of the same rank.
    pub fn merge(reports: &[Report]) -> Result<Self> {
        let mut sorted: Vec<(RankLine, &Report)> =
            reports.iter().map(|it| (line(it), it)).collect();
        sorted.sort_by_key(|it| it.0.rank);
        if let Some(pair) = sorted.windows(2).find(|pair| pair[0].0.rank == pair[1].0.rank) {
            let problem = format!("two reports are of rank {}; give one of each", pair[0].0.rank);
            return Err(Error::config("reports", problem));
        }
        let could = |it: &(RankLine, &Report)| it.0.loader_images_per_second;
        sorted.sort_by(|a, b| could(a).total_cmp(&could(b)));
        let Some(middle) = sorted.get(sorted.len() / 2) else {
            return Err(Error::config("reports", "there is none"));
        };
        let (usual, like) = (middle.0.clone(), middle.1);
        let usual_stages = medians(&sorted);
        for (line, _) in &mut sorted {
            line.slow = line.loader_images_per_second < SLOW * usual.loader_images_per_second;
            line.deviates = deviating(&line.stages, &usual_stages);
        }
        let slow = sorted.iter().filter(|it| it.0.slow).count();
        let cost = match slow {
            0 => None,
            _ => Some(straggling(&sorted, like)?),
        };
        let first = &sorted[0].0;
        let verdict = match &cost {
            Some(cost) => {
                let why = why(first, &usual, &usual_stages);
                format!("{}: {why}; {}", who(first.rank, slow), cost.words(sorted.len(), slow))
            }
            None => format!(
                "{} ranks, and none is slower than the others: loaders could give about {:.0} images/s",
                sorted.len(),
                usual.loader_images_per_second
            ),
        };
        Ok(Self {
            verdict,
            slowest: (slow > 0).then_some(first.rank),
            world: reports.iter().map(|it| it.profile.setup.world).fold(0, u64::max),
            cost,
            usual_images_per_second: usual.loader_images_per_second,
            usual_stages,
            knobs: knobs(&sorted),
            ranks: sorted.into_iter().map(|it| it.0).collect(),
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

fn line(report: &Report) -> RankLine {
    let profile = &report.profile;
    let bounds = report.model.capacity();
    let loader = bounds.into_iter().find(|(it, _)| *it != Limit::Consumer);
    RankLine {
        rank: profile.setup.rank,
        slow: false,
        loader_images_per_second: loader.map_or(0.0, |(_, most)| most),
        images_per_second: report.images_per_second,
        consumer_waits: report.consumer_waits,
        cause: report.cause,
        workers: profile.setup.workers,
        cores: profile.setup.cores,
        stages: stages(profile),
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
        let seconds = device.map_or(it.busy, DeviceTime::all_seconds);
        (it.stage, 1e3 * seconds / samples)
    });
    each.collect()
}

/// The median of each stage; of two ranks the faster one's.
fn medians(ranks: &[(RankLine, &Report)]) -> Vec<(Stage, f64)> {
    let all = Stage::ALL.into_iter().filter_map(|stage| {
        let times = ranks.iter().filter_map(|it| of(&it.0.stages, stage));
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
fn why(slow: &RankLine, usual: &RankLine, usual_stages: &[(Stage, f64)]) -> String {
    let sum = |stages: &[(Stage, f64)]| stages.iter().map(|it| it.1).sum::<f64>();
    let longer = sum(&slow.stages) / sum(usual_stages).max(1e-9);
    let more = slow.deviates.iter().filter_map(|&stage| {
        let there = of(usual_stages, stage).unwrap_or(0.0);
        Some((stage, of(&slow.stages, stage)?, there))
    });
    let most = more.max_by(|a, b| (a.1 - a.2).total_cmp(&(b.1 - b.2)));
    let fewer = |has: u32, had: u32| f64::from(had) / f64::from(has.max(1));
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

/// What the slow ones of these ranks cost, of which the first is the slowest and `usual` is like the others.
fn straggling(ranks: &[(RankLine, &Report)], usual: &Report) -> Result<Straggling> {
    let pace = |it: &(RankLine, &Report)| it.0.images_per_second;
    let now = ranks.iter().map(pace).fold(f64::INFINITY, f64::min);
    let price: Option<f64> = ranks.iter().map(|it| it.1.cost.map(|cost| cost.price_per_hour)).sum();
    let (slowest, report) = (&ranks[0].0, ranks[0].1);
    let mut without = f64::INFINITY;
    // Where the slow ranks do more than another, that one's consumer is what all wait for.
    if SLOW * slowest.images_per_second > now {
        without = now;
    }
    // What a loader does with the slowest rank's steps, by what that rank did: where others did a little less, their own
    // consumers are why.
    let paced = |loader: &Report| -> Result<f64> {
        let model = Model { consumer: report.model.consumer.clone(), ..loader.model.clone() };
        let gain = forecast(&model)?.samples_per_second / slowest.images_per_second.max(1e-9);
        Ok(gain * now)
    };
    without = without.min(paced(usual)?);
    let (own, waiting): (Vec<_>, Vec<_>) =
        ranks.iter().filter(|it| !it.0.slow).partition(|it| SLOW * pace(it) > now);
    without = own.into_iter().map(pace).fold(without, f64::min);
    for (_, report) in waiting.into_iter().take(NEXT) {
        without = without.min(paced(report)?);
    }
    let without = without.max(now);
    let epoch = report.profile.data.epoch_samples as f64 / now.max(1e-9);
    let lost = price.map(|price| price * epoch * (1.0 - now / without.max(1e-9)) / 3600.0);
    Ok(Straggling { images_per_second: now, without, lost_per_epoch: lost })
}

fn knobs(ranks: &[(RankLine, &Report)]) -> Vec<RanksKnob> {
    let mut named: Vec<(f64, u64, bool, &super::Knob)> = Vec::new();
    for (line, report) in ranks {
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
        write!(f, "{:>5}{:>14}{:>14}{:>10}  limits", "rank", "loader img/s", "did img/s", "waits")?;
        for line in &self.ranks {
            let RankLine { rank, loader_images_per_second: could, images_per_second: did, .. } =
                line;
            let waits = 100.0 * line.consumer_waits;
            write!(f, "\n{rank:>5}{could:>14.0}{did:>14.0}{waits:>8.1} %  {}", line.cause.words())?;
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
