//! What a rank's consumer does by itself, apart from its waiting for other ranks.

use crate::model::{Consumer, Model};
use crate::profile::Profile;

/// A part of the consumer's steps that has this name is waiting for other ranks, and no work of its own.
pub const SYNC: &str = "sync";

/// Steps of a rank before it is judged by them.
const MIN_STEPS_PER_RANK: f64 = 8.0;
/// And by so many standard errors of their mean: steps that vary much differ from rank to rank by chance.
const MIN_STANDARD_ERRORS: f64 = 4.0;

/// The consumer's own part of a profile.
#[derive(Clone, Copy, Debug)]
pub struct Own {
    /// Seconds of its steps for a sample, without [`SYNC`].
    pub step: f64,
    /// That, by the whole steps: 1 where no part of them is waiting for others.
    share: f64,
    /// Samples a second that it would do if it waited for no other rank: by its waits for batches and its own steps.
    pub alone: f64,
    /// Its steps must be longer by so many times before more than chance says so.
    pub chance: f64,
}

impl Own {
    /// As in [`Profile::images_per_second`] a step that was not measured is as long as the others.
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

    /// The consumer of a rank's model, without its waiting for others.
    pub fn consumer(&self, model: &Model) -> Consumer {
        let mut consumer = model.consumer.clone();
        consumer.step.mean *= self.share;
        consumer
    }
}

/// The part of its steps that takes most longer than on another rank, where that is most of what they take longer.
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
