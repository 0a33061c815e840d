//! Separates the work of a rank's consumer from its waiting for other ranks.

use crate::model::{Consumer, Model};
use crate::profile::Profile;

/// Name of the part of a step in which the consumer waits for other ranks.
pub const SYNC: &str = "sync";

/// A rank's steps can count as slow only if at least this many of them were measured.
const MIN_STEPS_PER_RANK: f64 = 8.0;
/// A rank's steps are slow only if their mean time exceeds the median rank's mean time by at least
/// this many standard errors. Random variation rarely causes such a difference.
const MIN_STANDARD_ERRORS: f64 = 4.0;

/// Work of a rank's consumer without its waiting for other ranks.
#[derive(Clone, Copy, Debug)]
pub struct Own {
    /// Seconds per sample that the consumer's steps take, without the part named [`SYNC`].
    pub step: f64,
    /// Share of the steps' time that is not waiting for other ranks.
    share: f64,
    /// Samples per second that the rank would reach if it waited for no other rank. Computed from
    /// its waits for batches and from `step`.
    pub alone: f64,
    /// Limit for the ratio of this rank's step time to the usual step time. A ratio above the limit
    /// is rarely random variation, so the steps are slow. Infinite if too few steps were measured.
    pub chance: f64,
}

impl Own {
    /// Separates the consumer's work of one rank. Steps that were not measured count with the mean
    /// step time, as in [`Profile::images_per_second`].
    pub fn of(profile: &Profile) -> Self {
        let consumer = &profile.consumer;
        let images = profile.images.max(1) as f64;
        let all = consumer.stepped.max(profile.batches as f64 * consumer.step.mean);
        let sync = consumer.spans.iter().filter(|it| it.name == SYNC).map(|it| it.seconds);
        let own = (all - sync.sum::<f64>()).max(1e-9 * images);
        let steps = consumer.stepped / consumer.step.mean.max(1e-9);
        let error = MIN_STANDARD_ERRORS * consumer.step.cv / steps.max(1.0).sqrt();
        Self {
            step: own / images,
            share: (own / all.max(1e-9 * images)).min(1.0),
            alone: images / (consumer.waited + own),
            chance: if steps < MIN_STEPS_PER_RANK { f64::INFINITY } else { 1.0 + error },
        }
    }

    /// Consumer of the rank's model, without waiting for other ranks.
    pub fn consumer(&self, model: &Model) -> Consumer {
        let mut consumer = model.consumer.clone();
        consumer.step.mean *= self.share;
        consumer
    }
}

/// Compares the named parts of the steps of a slow rank with the same parts of the usual rank.
/// Returns the name of the part with the largest excess, or `None` if this excess is at most half
/// of the difference between the whole steps.
pub fn longest<'a>(slow: &'a Profile, usual: &Profile) -> Option<&'a str> {
    let each = |profile: &Profile, seconds: f64| seconds / profile.images.max(1) as f64;
    let more = slow.consumer.spans.iter().filter(|it| it.name != SYNC).map(|it| {
        let there = usual.consumer.spans.iter().find(|other| other.name == it.name);
        let there = there.map_or(0.0, |there| each(usual, there.seconds));
        (&*it.name, each(slow, it.seconds) - there)
    });
    let (name, more) = more.max_by(|a, b| a.1.total_cmp(&b.1))?;
    (more > 0.5 * (Own::of(slow).step - Own::of(usual).step)).then_some(name)
}
