//! Estimates how much processor time other programs, a quota and the hypervisor leave to this
//! process.

use crate::model::Contention;
use crate::profile::Profile;

/// Smallest loss of speed or cores that counts as contention.
const NEGLIGIBLE: f64 = 0.02;
/// Tolerance, as a number of processors (mean over the run). The waits of the workers tell how many
/// processors something else must have used. If the visible programs used fewer processors, and the
/// difference exceeds this tolerance, a limit is assumed that the system does not report. Smaller
/// differences are within the error of the counters.
const HIDDEN: f64 = 0.1;

/// Returns how much processor time is left to this process, of `cores` processors, after other
/// programs, a quota and the hypervisor have taken theirs. Returns `None` if they take almost
/// nothing, or if this was not measured.
///
/// The speed of a thread is the thread's processor time, divided by the sum of this time and its
/// waits for other programs, the quota and the hypervisor. All threads of the process together get
/// the processor time that nobody else used. With more threads, the process may get a larger share
/// from the scheduler. This gain is not predicted.
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
    // If the workers waited longer than the visible programs explain, a limit exists that the
    // system does not report. In this case, assume that only the processor time that was used is
    // available.
    if waits.others / seconds > others + HIDDEN {
        available = available.min(ours);
    }
    // At least the time that this process used was available.
    let available = available.max(ours).min(cores);
    let speed = ran / (ran + waits.foreign());
    let matters = speed < 1.0 - NEGLIGIBLE || available < (1.0 - NEGLIGIBLE) * cores;
    matters.then_some(Contention { speed, available })
}

/// Share of the workers' time in which they waited because other programs, the quota or the
/// hypervisor took their processor.
pub(super) fn lost(profile: &Profile) -> f64 {
    let threads = f64::from(profile.setup.workers) * profile.seconds;
    profile.processors.waits.map_or(0.0, |it| it.foreign() / threads.max(1e-9))
}
