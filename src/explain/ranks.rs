//! Reports of several ranks together: who is slow, and why.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Cause, Report};
use crate::error::{Error, Result};
use crate::measure::Stage;

/// What several ranks of one training did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ranks {
    /// One sentence.
    pub verdict: String,
    /// The rank that all wait for, where there is one.
    pub slowest: Option<u64>,
    /// Each rank, the slowest first.
    pub ranks: Vec<RankLine>,
}

/// One rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankLine {
    /// Its number.
    pub rank: u64,
    /// What its loader could give: samples a second, by its model without the consumer.
    pub loader_images_per_second: f64,
    /// What it did.
    pub images_per_second: f64,
    /// The share of its time in which its consumer waited for batches.
    pub consumer_waits: f64,
    /// What limits it.
    pub cause: Cause,
    /// Milliseconds of each stage for a sample.
    pub stages: Vec<(Stage, f64)>,
}

/// A rank whose loader gives so much less than the usual one is a straggler.
const SLOW: f64 = 0.9;

impl Ranks {
    /// Merges reports, in any order.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] where there is none, or two are of the same rank.
    pub fn merge(reports: &[Report]) -> Result<Self> {
        let mut ranks: Vec<RankLine> = reports.iter().map(line).collect();
        ranks.sort_by_key(|it| it.rank);
        if let Some(pair) = ranks.windows(2).find(|pair| pair[0].rank == pair[1].rank) {
            let problem = format!("two reports are of rank {}; give one of each", pair[0].rank);
            return Err(Error::config("reports", problem));
        }
        ranks.sort_by(|a, b| a.loader_images_per_second.total_cmp(&b.loader_images_per_second));
        let usual = match ranks.get(ranks.len() / 2) {
            Some(usual) => usual.clone(),
            None => return Err(Error::config("reports", "there is none")),
        };
        let first = ranks[0].clone();
        let (had, has) = (usual.loader_images_per_second, first.loader_images_per_second);
        let slow = ranks.len() > 1 && has < SLOW * had;
        let verdict = if slow {
            format!(
                "rank {} is the slowest: its loader could give {has:.0} images/s, the usual rank's {had:.0}; {}",
                first.rank,
                why(&first, &usual)
            )
        } else {
            format!(
                "{} ranks, and none is slower than the others: loaders could give about {had:.0} images/s",
                ranks.len()
            )
        };
        Ok(Self { verdict, slowest: slow.then_some(first.rank), ranks })
    }
}

fn line(report: &Report) -> RankLine {
    let profile = &report.profile;
    let bounds = report.model.capacity();
    let loader = bounds.into_iter().find(|(it, _)| *it != crate::model::Limit::Consumer);
    let stages = profile.stages.iter().filter(|it| it.stage != Stage::List);
    RankLine {
        rank: profile.setup.rank,
        loader_images_per_second: loader.map_or(0.0, |(_, most)| most),
        images_per_second: report.images_per_second,
        consumer_waits: report.consumer_waits,
        cause: report.cause,
        stages: stages.map(|it| (it.stage, 1e3 * it.latency.mean)).collect(),
    }
}

/// The stage that takes most more than it does elsewhere.
fn why(slow: &RankLine, usual: &RankLine) -> String {
    let of =
        |line: &RankLine, stage| line.stages.iter().find(|it| it.0 == stage).map_or(0.0, |it| it.1);
    let more = slow.stages.iter().map(|&(stage, ms)| (stage, ms, of(usual, stage)));
    match more.max_by(|a, b| (a.1 - a.2).total_cmp(&(b.1 - b.2))) {
        Some((stage, here, there)) if here > 1.1 * there => {
            format!(
                "its {} takes {here:.2} ms a sample, the usual rank's {there:.2} ms",
                stage.name()
            )
        }
        _ => "its stages take as long as elsewhere: it has fewer workers or processors".into(),
    }
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
        Ok(())
    }
}
