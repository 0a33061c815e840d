//! Attributes the time that workers waited for a processor: to stages, and to whoever used the
//! processors.

use super::{Meters, Profile, Snapshot, Stage, StageProfile, ThreadTime, Waits};

/// Stages that only compute. The part of their elapsed time that is not CPU time was spent waiting
/// for a processor. Other stages may also wait for a disk or a device.
const COMPUTES: [Stage; 3] = [Stage::Header, Stage::Decode, Stage::Transform];
/// Stages that do not run in workers: `List` runs in the builder's thread, `Kernel` in the
/// launcher.
const OF_OTHERS: [Stage; 2] = [Stage::List, Stage::Kernel];

/// Attributes the workers' processor waits to stages and causes, if the kernel reports the waits.
///
/// A thread can lose its processor anywhere in a sample, also between stages, and most often at a
/// system call. So the total wait for a processor is attributed in this order:
///
/// 1. Each stage that only computes gets the part of its elapsed time that is not CPU time.
/// 2. The time between stages gets the part of its elapsed time that is not CPU time.
/// 3. Reads and other waits get the rest, in proportion to their lengths.
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
        // If the CPU time of a stage was never read, its CPU share is not measured. It is at most
        // the share of the stage's time in which the stage did not wait for a processor.
        if measured.stage(stage.stage).clocked == 0 && waited.is_some() {
            stage.cpu_share = share(stage.without_waiting(), stage.busy).min(stage.cpu_share);
        }
    }
    // The kernel may report more waiting than the workers' measured times allow. Only the
    // attributed part is reported, so the shares do not exceed 100 %.
    let attributed = of_computing + of_between + of_waiting;
    profile.processors.waits = measured.waits_for_processor().map(|it| it.part(attributed));
}

impl Snapshot {
    /// Time that the loader's threads waited for a processor, by cause; `None` if the system does
    /// not report it.
    pub fn waits_for_processor(&self) -> Option<Waits> {
        // The waiting time that is split by cause includes that of the consumer's thread, because
        // that thread waits in the same run queues as the loader's threads. Only the loader's part
        // of the split is returned.
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
    /// Seconds that the loader's threads have waited for a processor so far; `None` if the system
    /// does not report it.
    pub(super) fn waited_for_processor(&self) -> Option<f64> {
        let by_thread = self.by_thread().clone();
        let told: Vec<ThreadTime> =
            by_thread.iter().filter_map(|meter| meter.thread_time()).collect();
        let sum = told.iter().map(|it| it.waited).sum::<u64>() as f64 * 1e-9;
        (!told.is_empty()).then_some(sum)
    }
}
