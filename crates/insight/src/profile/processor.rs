//! Use of processors, and waiting for them.

use serde::{Deserialize, Serialize};

/// Use of processors. Values are mean numbers of processors: 0.5 is one processor for half of the
/// time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ProcessorProfile {
    /// Processors in the affinity mask of the process; 0 where the system does not report it.
    pub allowed: u32,
    /// CPU quota of the container in processors; `None` without a quota.
    pub quota: Option<f64>,
    /// Processors used by this process; `None` if the period was too short to measure.
    pub used: Option<f64>,
    /// Processors used by other programs.
    pub others: Option<f64>,
    /// Processors taken by the hypervisor.
    pub stolen: Option<f64>,
    /// Processors withheld by the quota.
    pub throttled: Option<f64>,
    /// Time that workers waited for a processor, by cause; `None` where the kernel does not report it.
    pub waits: Option<Waits>,
}

/// Time that threads waited for a processor, by cause, in seconds summed over threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Waits {
    /// Total.
    pub seconds: f64,
    /// Part in which other programs used the processors.
    pub others: f64,
    /// Part in which other threads of this process used the processors.
    pub own: f64,
    /// Part in which the container's quota was exhausted.
    pub quota: f64,
    /// Part in which the hypervisor used the processors.
    pub stolen: f64,
}

impl Waits {
    /// Splits waiting time by cause. `threads` threads waited for `all` seconds in a period of
    /// `seconds`. Each part is the wait that would vanish without its cause.
    ///
    /// A processor that is taken away delays one thread. So the wait for the quota is at most the processor time withheld, and
    /// the wait for the hypervisor and for other programs at most the processor time they used. The rest is threads of this
    /// process that wait for each other. If there are no more threads than processors, they wait for each other only up to
    /// `beside`, the processors that the rest of the process used; what is left comes from a limit or from programs that the
    /// system does not report.
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
        // Other programs use the time that a quota withholds, so subtract it only once.
        let missed = machine.used.map(|used| {
            let withheld = machine.throttled.unwrap_or(0.0) + machine.stolen.unwrap_or(0.0);
            (f64::from(machine.allowed) - used - withheld).max(0.0)
        });
        let others = take(machine.others.map(|it| it.min(missed.unwrap_or(it))));
        let alone = machine.allowed > 0 && threads <= machine.allowed as usize;
        let own = if alone { left.min(beside * seconds) } else { left };
        Self { seconds: all, others: others + left - own, own, quota, stolen }
    }

    /// Returns the part of these waits that some of the threads had, `seconds` in total.
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

    /// Seconds caused by others than this process.
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
        // Two threads on two processors, with four spinning threads of others: each gets a third.
        assert_eq!(split(13.0, 2, &machine(2, 1.5)), (13.0, 0.0, 0.0, 0.0));
        // Eight threads, with two spinning threads of others.
        assert_eq!(split(64.0, 8, &machine(2, 0.4)), (4.0, 60.0, 0.0, 0.0));
        // Eight threads alone.
        assert_eq!(split(60.0, 8, &machine(2, 0.0)), (0.0, 60.0, 0.0, 0.0));
        // A quota of one of two processors: one is withheld.
        let quota = ProcessorProfile { throttled: Some(1.0), ..machine(2, 0.0) };
        assert_eq!(split(70.0, 8, &quota), (0.0, 60.0, 10.0, 0.0));
        // A quota of one half, while other programs use what is withheld.
        let quota = ProcessorProfile {
            throttled: Some(1.25),
            used: Some(0.5),
            quota: Some(0.5),
            ..machine(2, 1.5)
        };
        assert_eq!(split(75.0, 8, &quota), (2.5, 60.0, 12.5, 0.0));
        // Two threads on two processors waited without a visible cause.
        assert_eq!(split(5.0, 2, &machine(2, 0.0)), (3.0, 2.0, 0.0, 0.0));
        let stolen = ProcessorProfile { stolen: Some(0.2), ..machine(2, 0.5) };
        assert_eq!(split(6.0, 8, &stolen), (4.0, 0.0, 0.0, 2.0));
        let part = Waits::split(64.0, 10.0, (8, 0.0), &machine(2, 0.4)).part(32.0);
        assert_eq!((part.seconds, part.others, part.own, part.foreign()), (32.0, 2.0, 30.0, 2.0));
    }
}
