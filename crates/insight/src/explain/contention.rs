//! What others take of the processors, and what that leaves.

use crate::model::Contention;
use crate::profile::Profile;

/// Others that take less are not worth a word: a thread's speed, and cores.
const NEGLIGIBLE: f64 = 0.02;
/// Processors, on average, that were missed beyond what other programs had: less is the error of what is counted.
const HIDDEN: f64 = 0.1;

/// What other programs, a quota and the hypervisor left of `cores` processors; `None` where they took next to nothing, and
/// where that was not measured.
///
/// A thread was as fast as its processor time by that and its waiting for others. All of them together had what nobody else
/// used: who adds threads may get more in truth, as the system's scheduler divides by threads or by groups, and is promised nothing
/// for that.
pub(super) fn contention(profile: &Profile, cores: u32) -> Option<Contention> {
    let told = &profile.processors;
    let waits = told.waits?;
    let seconds = profile.seconds.max(1e-9);
    let ran: f64 = profile.workers().filter_map(|it| it.ran).sum();
    if ran <= 0.0 {
        return None;
    }
    let ours = (ran + profile.consumer.stepped * profile.consumer.cpu_share) / seconds;
    let beside = told.used.map_or(0.0, |used| (used - ours).max(0.0));
    let others = told.others.unwrap_or(waits.others / seconds);
    let cores = f64::from(cores);
    let mut available = cores - others - told.stolen.unwrap_or(0.0) - beside;
    if let Some(quota) = told.quota {
        available = available.min(quota - beside);
    }
    // A limit that nobody tells of: nobody knows what there would be.
    if waits.others / seconds > others + HIDDEN {
        available = available.min(ours);
    }
    // No less than there was.
    let available = available.max(ours).min(cores);
    let speed = ran / (ran + waits.foreign());
    let matters = speed < 1.0 - NEGLIGIBLE || available < (1.0 - NEGLIGIBLE) * cores;
    matters.then_some(Contention { speed, available })
}

/// The share of the workers' time that they waited for a processor which others had.
pub(super) fn lost(profile: &Profile) -> f64 {
    let threads = f64::from(profile.setup.workers) * profile.seconds;
    profile.processors.waits.map_or(0.0, |it| it.foreign() / threads.max(1e-9))
}
