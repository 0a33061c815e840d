//! Processors: who had them, and how long threads waited for one.

use serde::{Deserialize, Serialize};

/// What processors were used for. Numbers of processors are means over the time: 0.5 is one half of the time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ProcessorProfile {
    /// Processors that the process may run on, by its affinity; 0 where the system does not tell.
    pub allowed: u32,
    /// Processors' worth that the quota of the container lets it use; `None` without a quota.
    pub quota: Option<f64>,
    /// Processors that this process used; `None` where too little time passed to tell.
    pub used: Option<f64>,
    /// Of them those that other programs used.
    pub others: Option<f64>,
    /// Of them those that the hypervisor took.
    pub stolen: Option<f64>,
    /// Of them those that were withheld for the quota.
    pub throttled: Option<f64>,
    /// How long the workers waited for a processor, and for whom; `None` where the kernel does not tell.
    pub waits: Option<Waits>,
}

/// How long threads waited for a processor, by who was in the way. Seconds, of several threads together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Waits {
    /// All of it.
    pub seconds: f64,
    /// Other programs had the processors.
    pub others: f64,
    /// Other threads of this process had them.
    pub own: f64,
    /// The quota of the container was used up.
    pub quota: f64,
    /// The hypervisor had them.
    pub stolen: f64,
}

impl Waits {
    /// Divides what `threads` threads of this process waited for a processor, `all` seconds in `seconds`, by who was in the way:
    /// what they would not have waited without it.
    ///
    /// A processor that somebody else has lets one thread wait that would run otherwise. So for the quota they waited no longer
    /// than processors were withheld, for the hypervisor and for other programs no longer than these had processors; the rest is their
    /// waiting for one another. No more threads than processors do not wait for one another, but for `beside` processors that the
    /// rest of this process used: what is left then was a limit that the system does not tell of, or programs that it hides.
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
        // What is withheld for a quota others use meanwhile: it is missed once.
        let missed = machine.used.map(|used| {
            let withheld = machine.throttled.unwrap_or(0.0) + machine.stolen.unwrap_or(0.0);
            (f64::from(machine.allowed) - used - withheld).max(0.0)
        });
        let others = take(machine.others.map(|it| it.min(missed.unwrap_or(it))));
        let alone = machine.allowed > 0 && threads <= machine.allowed as usize;
        let own = if alone { left.min(beside * seconds) } else { left };
        Self { seconds: all, others: others + left - own, own, quota, stolen }
    }

    /// A part of them: of some of the threads.
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

    /// Seconds that were not this process's own doing.
    pub fn foreign(&self) -> f64 {
        self.others + self.quota + self.stolen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_is_divided_by_who_was_in_the_way() {
        let machine = |allowed, others| ProcessorProfile {
            allowed,
            others: Some(others),
            ..ProcessorProfile::default()
        };
        let split = |all, threads, machine: &ProcessorProfile| {
            let it = Waits::split(all, 10.0, (threads, 0.2), machine);
            (it.others, it.own, it.quota, it.stolen)
        };
        // Two threads on two processors beside four that spin: each has a third.
        assert_eq!(split(13.0, 2, &machine(2, 1.5)), (13.0, 0.0, 0.0, 0.0));
        // Eight threads beside two that spin.
        assert_eq!(split(64.0, 8, &machine(2, 0.4)), (4.0, 60.0, 0.0, 0.0));
        // Eight alone.
        assert_eq!(split(60.0, 8, &machine(2, 0.0)), (0.0, 60.0, 0.0, 0.0));
        // A quota of one processor: of two, one is withheld.
        let quota = ProcessorProfile { throttled: Some(1.0), ..machine(2, 0.0) };
        assert_eq!(split(70.0, 8, &quota), (0.0, 60.0, 10.0, 0.0));
        // A quota of one half, and other programs have what is withheld.
        let quota = ProcessorProfile {
            throttled: Some(1.25),
            used: Some(0.5),
            quota: Some(0.5),
            ..machine(2, 1.5)
        };
        assert_eq!(split(75.0, 8, &quota), (2.5, 60.0, 12.5, 0.0));
        // Nobody is seen, and two threads on two processors waited all the same.
        assert_eq!(split(5.0, 2, &machine(2, 0.0)), (3.0, 2.0, 0.0, 0.0));
        let stolen = ProcessorProfile { stolen: Some(0.2), ..machine(2, 0.5) };
        assert_eq!(split(6.0, 8, &stolen), (4.0, 0.0, 0.0, 2.0));
        let part = Waits::split(64.0, 10.0, (8, 0.0), &machine(2, 0.4)).part(32.0);
        assert_eq!((part.seconds, part.others, part.own, part.foreign()), (32.0, 2.0, 30.0, 2.0));
    }
}
