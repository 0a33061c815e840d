//! Breakdown of the workers' time.

use serde::{Deserialize, Serialize};

use crate::profile::{Profile, Stage, Waits};

use super::percent;

/// Breakdown of the workers' time in shares that add up to 1, or to more if waits for a processor are overestimated.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spent {
    /// Stages, without waiting for a processor where that is known.
    pub stages: Vec<(Stage, f64)>,
    /// Waiting for a processor, by cause. If `None`, it is unknown and included in the other shares.
    pub processor: Option<ProcessorShares>,
    /// Waiting for input.
    pub input: f64,
    /// Waiting for room for the output.
    pub room: f64,
    /// Before the thread started, while the loader was being built.
    #[serde(default)]
    pub starting: f64,
    /// After the thread had finished all its work.
    #[serde(default)]
    pub finished: f64,
    /// The rest: work between the stages, and unfinished waits.
    pub between: f64,
}

/// Waiting for a processor, as shares of the workers' time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessorShares {
    /// Total.
    pub all: f64,
    /// Share in which other programs used the processor.
    pub others: f64,
    /// Share in which other threads of this process used the processor.
    pub own: f64,
    /// Share in which the container's quota was exhausted.
    pub quota: f64,
    /// Share in which the hypervisor used the processor.
    pub stolen: f64,
}

impl Spent {
    /// Computes the breakdown of a profile.
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
        let sum = |wait: fn(&crate::profile::ThreadProfile) -> f64| {
            profile.workers().map(wait).sum::<f64>() / all
        };
        // `starting` and `finished` are measured; waiting for a processor is estimated. So the shares may add up to more than 1.
        let (starting, finished) = (sum(|it| it.starting), sum(|it| it.finished));
        let mut left = 1.0 - starting - finished - stages.iter().map(|it| it.1).sum::<f64>();
        left = (left - processor.map_or(0.0, |it| it.all)).max(0.0);
        // A wait may end with a wait for a processor, which is already counted above.
        let mut take = |share: f64| {
            let share = share.min(left);
            left -= share;
            share
        };
        let room = take(sum(|it| it.waited_for_room));
        let input = take(sum(|it| it.waited_for_input));
        Self { stages, processor, input, room, starting, finished, between: left }
    }

    /// Lines of text for everything except the stages.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        match &self.processor {
            Some(it) if it.all >= 0.005 => {
                let parts = [
                    ("used by other programs", it.others),
                    ("withheld by the container's CPU quota", it.quota),
                    ("used by the hypervisor", it.stolen),
                    ("used by other threads of this process", it.own),
                ];
                let parts = parts.into_iter().filter(|it| it.1 >= 0.0005);
                let parts: Vec<String> =
                    parts.map(|(who, share)| format!("{} {who}", percent(share))).collect();
                lines.push(format!(
                    "waiting for a processor: {} of the workers' time ({})",
                    percent(it.all),
                    parts.join(", ")
                ));
            }
            Some(_) => {}
            None => lines.push(
                "waiting for a processor: not known, because this system does not report it".into(),
            ),
        }
        let rest = [
            ("waiting for room", self.room),
            ("waiting for input", self.input),
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
