//! What the workers' time went into.

use serde::{Deserialize, Serialize};

use crate::profile::{Profile, Stage, Waits};

use super::percent;

/// What the workers' time went into: shares of all of it, which add up to 1.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spent {
    /// Each stage, without its waiting for a processor where that is known.
    pub stages: Vec<(Stage, f64)>,
    /// Waiting for a processor, and for whom; `None` where that is not known: then it is within all others.
    pub processor: Option<ProcessorShares>,
    /// Waiting for something to do.
    pub input: f64,
    /// Waiting for room.
    pub room: f64,
    /// Before they began: the loader was still being built.
    #[serde(default)]
    pub starting: f64,
    /// After they were over: nothing was left to do.
    #[serde(default)]
    pub finished: f64,
    /// What is in none of these: work between the stages, and waits that had not ended.
    pub between: f64,
}

/// Shares of the workers' time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessorShares {
    /// Waiting for a processor.
    pub all: f64,
    /// That other programs had.
    pub others: f64,
    /// That other threads of this process had.
    pub own: f64,
    /// That was withheld since the container's quota was used up.
    pub quota: f64,
    /// That the hypervisor had.
    pub stolen: f64,
}

impl Spent {
    /// Of what was measured.
    pub fn of(profile: &Profile) -> Self {
        let all = (f64::from(profile.setup.workers) * profile.seconds).max(1e-9);
        let processor =
            profile.processors.waits.map(|Waits { seconds, others, own, quota, stolen }| {
                let [all, others, own, quota, stolen] =
                    [seconds, others, own, quota, stolen].map(|it| it / all);
                ProcessorShares { all, others, own, quota, stolen }
            });
        let stages =
            profile.stages.iter().filter(|it| ![Stage::List, Stage::Kernel].contains(&it.stage));
        let stages: Vec<(Stage, f64)> =
            stages.map(|it| (it.stage, it.without_waiting() / all)).collect();
        let mut left = 1.0 - stages.iter().map(|it| it.1).sum::<f64>();
        left = (left - processor.map_or(0.0, |it| it.all)).max(0.0);
        // Who wakes up from a wait may have waited for a processor at its end: that is counted above.
        let mut take = |wait: fn(&crate::profile::ThreadProfile) -> f64| {
            let share = (profile.workers().map(wait).sum::<f64>() / all).min(left);
            left -= share;
            share
        };
        let (starting, finished) = (take(|it| it.starting), take(|it| it.finished));
        let (room, input) = (take(|it| it.waited_for_room), take(|it| it.waited_for_input));
        Self { stages, processor, input, room, starting, finished, between: left }
    }

    /// What is not of a single stage, line by line.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        match &self.processor {
            Some(it) if it.all >= 0.005 => {
                let parts = [
                    ("other programs on this machine had it", it.others),
                    ("the container's CPU quota was used up", it.quota),
                    ("the hypervisor had it", it.stolen),
                    ("other threads of this process had it", it.own),
                ];
                let parts = parts.into_iter().filter(|it| it.1 >= 0.0005);
                let parts: Vec<String> =
                    parts.map(|(who, share)| format!("{} {who}", percent(share))).collect();
                lines.push(format!(
                    "waiting for a processor: {} of the workers' time: {}",
                    percent(it.all),
                    parts.join(", ")
                ));
            }
            Some(_) => {}
            None => lines.push(
                "waiting for a processor: not known: this system does not tell how long threads wait for one".into(),
            ),
        }
        let rest = [
            ("waiting for room", self.room),
            ("waiting for something to do", self.input),
            ("before they began", self.starting),
            ("after the last sample", self.finished),
            ("between the stages", self.between),
        ];
        let rest = rest.into_iter().filter(|it| it.1 >= 0.005);
        lines.extend(
            rest.map(|(name, share)| format!("{name}: {} of the workers' time", percent(share))),
        );
        lines
    }
}
