//! Measurements of the processors: their use, and how long threads waited for one.

use serde::{Deserialize, Serialize};

/// Use of the machine's processors. Values are mean numbers of processors: 0.5 means one processor
/// for half of the time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ProcessorProfile {
    /// Number of processors in the affinity mask of the process. 0 if the system does not report
    /// it.
    pub allowed: u32,
    /// CPU quota of the container, as a number of processors. `None` if there is no quota.
    pub quota: Option<f64>,
    /// Number of processors that this process used. `None` if the period was too short to measure.
    pub used: Option<f64>,
    /// Number of processors that other programs used.
    pub others: Option<f64>,
    /// Number of processors that the hypervisor took from this machine.
    pub stolen: Option<f64>,
    /// Number of processors that the CPU quota withheld from this process.
    pub throttled: Option<f64>,
    /// Time that workers waited for a processor, separately for each cause. `None` if the kernel
    /// does not report it.
    pub waits: Option<Waits>,
}

/// Time that threads waited for a processor, separately for each cause. Values are seconds, summed
/// over threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Waits {
    /// Total.
    pub seconds: f64,
    /// Part of the wait in which other programs used the processors.
    pub others: f64,
    /// Part of the wait in which other threads of this process used the processors.
    pub own: f64,
    /// Part of the wait in which the container's CPU quota was exhausted.
    pub quota: f64,
    /// Part of the wait in which the hypervisor used the processors.
    pub stolen: f64,
}

impl Waits {
    /// Splits the waits for a processor into one part per cause. `threads` threads waited for `all`
    /// seconds together in a period of `seconds`. Each part is the wait that would vanish without
    /// its cause.
    ///
    /// A processor that is taken away delays one thread. So the wait for the quota is at most the
    /// processor time that the quota withheld. Likewise, the waits for the hypervisor and for other
    /// programs are at most the processor time that the hypervisor and other programs used. In the
    /// remaining time, threads of this process waited for each other. If the process has no more
    /// threads than processors, this part is at most `seconds` times `beside`, the number of
    /// processors that the rest of the process used. Time that is still left counts as waiting for
    /// other programs, because a limit or a program that the system does not report caused it.
    pub fn split(
        all: f64,
        seconds: f64,
        (threads, beside): (usize, f64),
        machine: &ProcessorProfile,
    ) -> Self {
        let mut left = all;
        let mut take = |processors: Option<f64>| {
            let taken = (processors.unwrap_or(0.0) * seconds).min(left);
            left -= taken;
            taken
        };
        let quota = take(machine.throttled);
        let stolen = take(machine.stolen);
        // Other programs may use the time that a quota withholds from this process. This time is
        // already counted for the quota, so subtract it.
        let missed = machine.used.map(|used| {
            let withheld = machine.throttled.unwrap_or(0.0) + machine.stolen.unwrap_or(0.0);
            (f64::from(machine.allowed) - used - withheld).max(0.0)
        });
        let others = take(machine.others.map(|it| it.min(missed.unwrap_or(it))));
        let alone = machine.allowed > 0 && threads <= machine.allowed as usize;
        let own = if alone { left.min(beside * seconds) } else { left };
        Self { seconds: all, others: others + left - own, own, quota, stolen }
    }

    /// Returns the part of these waits that belongs to some of the threads, which waited for
    /// `seconds` in total. The causes have the same shares as in all waits.
    pub fn part(self, seconds: f64) -> Self {
        let share = if self.seconds > 0.0 { seconds / self.seconds } else { 0.0 };
        Self {
            seconds,
            others: share * self.others,
            own: share * self.own,
            quota: share * self.quota,
            stolen: share * self.stolen,
        }
    }

    /// Seconds of waiting that other programs, the quota or the hypervisor caused.
    pub fn foreign(&self) -> f64 {
        self.others + self.quota + self.stolen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_is_divided_by_cause() {
        let machine = |allowed, others| ProcessorProfile {
            allowed,
            others: Some(others),
            ..ProcessorProfile::default()
        };
        let split = |all, threads, machine: &ProcessorProfile| {
            let it = Waits::split(all, 10.0, (threads, 0.2), machine);
            (it.others, it.own, it.quota, it.stolen)
        };
        // Two threads run on two processors beside four busy threads of other programs. Each thread
        // gets a third of a processor, so it waits only because of the other programs.
        assert_eq!(split(13.0, 2, &machine(2, 1.5)), (13.0, 0.0, 0.0, 0.0));
        // Eight threads run on two processors beside other programs, which cause 4 s of the waits.
        assert_eq!(split(64.0, 8, &machine(2, 0.4)), (4.0, 60.0, 0.0, 0.0));
        // Eight threads run on two processors without other programs, so they wait only for each
        // other.
        assert_eq!(split(60.0, 8, &machine(2, 0.0)), (0.0, 60.0, 0.0, 0.0));
        // A quota allows one of two processors, and withholds the other.
        let quota = ProcessorProfile { throttled: Some(1.0), ..machine(2, 0.0) };
        assert_eq!(split(70.0, 8, &quota), (0.0, 60.0, 10.0, 0.0));
        // A quota allows half a processor, and other programs use the time that it withholds.
        let quota = ProcessorProfile {
            throttled: Some(1.25),
            used: Some(0.5),
            quota: Some(0.5),
            ..machine(2, 1.5)
        };
        assert_eq!(split(75.0, 8, &quota), (2.5, 60.0, 12.5, 0.0));
        // Two threads on two processors waited for 5 s. Other threads of this process explain 2 s.
        // The rest counts as other programs, although none was visible.
        assert_eq!(split(5.0, 2, &machine(2, 0.0)), (3.0, 2.0, 0.0, 0.0));
        let stolen = ProcessorProfile { stolen: Some(0.2), ..machine(2, 0.5) };
        assert_eq!(split(6.0, 8, &stolen), (4.0, 0.0, 0.0, 2.0));
        let part = Waits::split(64.0, 10.0, (8, 0.0), &machine(2, 0.4)).part(32.0);
        assert_eq!((part.seconds, part.others, part.own, part.foreign()), (32.0, 2.0, 30.0, 2.0));
    }
}
