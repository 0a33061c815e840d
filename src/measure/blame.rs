//! Where workers waited for a processor, and for whom.

use super::{Meters, Profile, Snapshot, Stage, StageProfile, ThreadTime, Waits};

/// Stages that do nothing but compute: what they take beyond a processor's time is waiting for one. Others may wait for a disk or a
/// device as well.
const COMPUTES: [Stage; 3] = [Stage::Header, Stage::Decode, Stage::Transform];
/// Of no worker: the list is of who builds the loader, the kernel of the launcher.
const OF_OTHERS: [Stage; 2] = [Stage::List, Stage::Kernel];

/// Says where the workers waited for a processor, and for whom, where the kernel tells how long they did.
///
/// A thread that is taken off its processor is so anywhere in a sample, and most often at a system call: between its stages
/// too. So of all waiting first that is told which stages that only compute took beyond their processor time, then what
/// threads took between their stages beyond theirs; what is left was within reads and other waits, by their lengths.
pub(super) fn blame(profile: &mut Profile, measured: &Snapshot) {
    let seconds = profile.seconds.max(1e-9);
    let (mut all, mut ran, mut told) = (0.0, 0.0, false);
    let (mut busy, mut waits, mut present) = (0.0, 0.0, 0.0);
    for worker in profile.workers() {
        let (Some(waited), Some(run)) = (worker.waited_for_processor, worker.ran) else {
            return;
        };
        (all, ran, told) = (all + waited, ran + run, true);
        busy += worker.busy;
        present += worker.present(seconds);
        waits += worker.waited_for_input + worker.waited_for_room;
    }
    if !told {
        return;
    }
    let unclocked = |it: &StageProfile| measured.stage(it.stage).clocked == 0;
    let off = |it: &StageProfile| match unclocked(it) {
        true => it.busy,
        false => it.busy * (1.0 - it.cpu_share),
    };
    let computes = |it: &StageProfile| COMPUTES.contains(&it.stage) && !unclocked(it);
    let stages = || profile.stages.iter().filter(|it| !OF_OTHERS.contains(&it.stage));
    let sum = |of: &dyn Fn(&StageProfile) -> f64| stages().map(of).sum::<f64>();
    let computing = sum(&|it| if computes(it) { off(it) } else { 0.0 });
    let waiting = sum(&|it| if computes(it) { 0.0 } else { off(it) }) + waits;
    let in_stages = sum(&|it| it.busy - off(it));

    let of_computing = all.min(computing);
    let between = (present - busy - waits).max(0.0);
    let of_between = (between - (ran - in_stages).max(0.0)).clamp(0.0, all - of_computing);
    let of_waiting = (all - of_computing - of_between).min(waiting);
    let share = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
    let (first, second) = (share(of_computing, computing), share(of_waiting, waiting));
    let waited: Vec<Option<f64>> = profile
        .stages
        .iter()
        .map(|it| match OF_OTHERS.contains(&it.stage) {
            true => None,
            false => Some(off(it) * if computes(it) { first } else { second }),
        })
        .collect();
    for (stage, waited) in profile.stages.iter_mut().zip(waited) {
        stage.waited_for_processor = waited;
    }
    profile.processors.waits = measured.waits_for_processor().map(|it| it.part(all));
}

impl Snapshot {
    /// How long the loader's threads waited for a processor, and for whom; `None` where the system does not tell.
    pub fn waits_for_processor(&self) -> Option<Waits> {
        // The consumer's thread is in the same queues.
        let threads: Vec<ThreadTime> =
            self.threads.iter().copied().flatten().chain(self.steps.thread).collect();
        let sum = |of: fn(&ThreadTime) -> u64| threads.iter().map(of).sum::<u64>() as f64 * 1e-9;
        let all = sum(|it| it.waited);
        let loader = all - self.steps.thread.map_or(0.0, |it| it.waited as f64 * 1e-9);
        let (seconds, machine) = (self.seconds.max(1e-9), self.machine.profile());
        let beside = machine.used.map_or(0.0, |used| used - sum(|it| it.ran) / seconds);
        let split = Waits::split(all, seconds, (threads.len(), beside.max(0.0)), &machine);
        self.threads.iter().any(Option::is_some).then(|| split.part(loader))
    }
}

impl Meters {
    /// Seconds that the loader's threads waited for a processor so far; `None` where the system does not tell.
    pub(super) fn waited_for_processor(&self) -> Option<f64> {
        let by_thread = self.by_thread().clone();
        let told: Vec<ThreadTime> =
            by_thread.iter().filter_map(|meter| meter.thread_time()).collect();
        let sum = told.iter().map(|it| it.waited).sum::<u64>() as f64 * 1e-9;
        (!told.is_empty()).then_some(sum)
    }
}
