//! Breakdown of the workers' time.

use serde::{Deserialize, Serialize};

use crate::profile::{Profile, Stage, Waits};

use super::percent;

/// Breakdown of the workers' time into shares. The shares add up to 1, or to more if the estimated
/// waits for a processor are too long.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spent {
    /// Share of the workers' time in each stage, without waits for a processor if they were
    /// measured.
    pub stages: Vec<(Stage, f64)>,
    /// Shares of the workers' time in which they waited for a processor, by cause. If `None`, these
    /// waits were not measured and are part of the other shares.
    pub processor: Option<ProcessorShares>,
    /// Share of the workers' time in which they waited for input.
    pub input: f64,
    /// Share of the workers' time in which they waited for space for their output.
    pub room: f64,
    /// Share of the workers' time before the worker threads had started, while the loader was being
    /// built.
    #[serde(default)]
    pub starting: f64,
    /// Share of the workers' time after the worker threads had finished all their work.
    #[serde(default)]
    pub finished: f64,
    /// Remaining share of the workers' time: work between the stages, and waits that had not ended.
    pub between: f64,
}

/// Shares of the workers' time in which they waited for a processor, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessorShares {
    /// Total.
    pub all: f64,
    /// Share of the workers' time in which they waited because other programs used the processor.
    pub others: f64,
    /// Share of the workers' time in which they waited because other threads of this process used
    /// the processor.
    pub own: f64,
    /// Share of the workers' time in which they waited because the container's quota was exhausted.
    pub quota: f64,
    /// Share of the workers' time in which they waited because the hypervisor used the processor.
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
        // `starting` and `finished` are measured, but waits for a processor are estimated. So the
        // sum of all shares may exceed 1.
        let (starting, finished) = (sum(|it| it.starting), sum(|it| it.finished));
        let mut left = 1.0 - starting - finished - stages.iter().map(|it| it.1).sum::<f64>();
        left = (left - processor.map_or(0.0, |it| it.all)).max(0.0);
        // When a wait for input or space ends, the thread may have to wait for a processor. This
        // time is already counted, so take at most the share that is left.
        let mut take = |share: f64| {
            let share = share.min(left);
            left -= share;
            share
        };
        let room = take(sum(|it| it.waited_for_room));
        let input = take(sum(|it| it.waited_for_input));
        Self { stages, processor, input, room, starting, finished, between: left }
    }

    /// Formats all shares except those of the stages, one per line.
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
