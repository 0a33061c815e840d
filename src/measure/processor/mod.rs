//! Use of the processors: how long threads waited for a processor, and how much processor time this
//! process, other programs, a quota and the hypervisor took.
//!
//! * For each thread, the kernel counts how long it ran and how long it was runnable without
//!   running, in nanoseconds (`/proc/PID/task/TID/schedstat`,
//!   Documentation/scheduler/sched-stats.rst). These counts are read when a
//!   [`Snapshot`](super::Snapshot) is taken and at the end of a thread, but never while a sample is
//!   processed.
//! * For the machine, `/proc/stat` has the time of all programs and of the hypervisor, in
//!   hundredths of a second per processor. Only processors that this process may use are counted.
//!   The file is read at most every quarter of a second, because the kernel needs a millisecond for
//!   it on large machines.
//! * For a container, its cgroup has the CPU quota, and the time that processors were withheld
//!   because of the quota (`cgroup`).
//! * Values that the system does not report are `None`: without Linux, without `/proc`, or if the
//!   kernel was built without `CONFIG_SCHED_INFO`.
//!
//! [`Waits::split`] attributes the waits to causes. Parsers are separate functions, so tests can
//! call them with texts.

mod cgroup;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::ProcessorProfile;
use rustix::time::{ClockId, clock_gettime};

use cgroup::Cgroups;

/// Minimum interval between two reads of `/proc/stat`.
const LEAST_APART: Duration = Duration::from_millis(250);
/// Resolution of `/proc/stat`, in seconds (`USER_HZ`).
const TICK: f64 = 0.01;

/// How long a thread ran, and how long it waited for a processor, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadTime {
    /// Time that the thread ran.
    pub ran: u64,
    /// Time that the thread was runnable while other threads had the processors.
    pub waited: u64,
}

/// Clock of one thread: measures how long the thread ran, and how long it waited for a processor.
/// Any thread can read it.
#[derive(Debug, Default)]
pub struct ThreadClock(Mutex<Clock>);

#[derive(Debug, Default)]
struct Clock {
    /// The kernel's file with the thread's times, while the thread lives.
    path: Option<PathBuf>,
    /// Times of the thread when the clock was started.
    base: ThreadTime,
    last: Option<ThreadTime>,
}

/// Guard of a clocked thread. Dropping it reads the clock for the last time.
#[derive(Debug)]
pub struct Clocked<'a>(&'a ThreadClock);

/// Processor seconds since a loader was built, as sums over the processors that the process may run
/// on.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Machine {
    /// Seconds since the loader was built.
    pub seconds: f64,
    /// Number of processors that the process may run on; 0 if the system does not report it.
    pub processors: u32,
    /// Processor seconds used by all programs, including this one.
    pub busy: Option<f64>,
    /// Processor seconds used by the hypervisor for other virtual machines.
    pub stolen: Option<f64>,
    /// Processor seconds used by this process.
    pub used: f64,
    /// CPU quota, as a number of processors; `None` without a quota.
    pub quota: Option<f64>,
    /// Processor seconds withheld because of the quota, although there was work.
    pub throttled: Option<f64>,
}

impl ThreadClock {
    /// Starts the clock for the calling thread.
    pub fn start(&self) {
        let path = fs::read_link("/proc/thread-self").ok();
        let path = path.map(|it| PathBuf::from("/proc").join(it).join("schedstat"));
        let base = path.as_ref().and_then(|path| times(path)).unwrap_or_default();
        *self.lock() = Clock { path, base, last: None };
    }

    /// Starts the clock for the calling thread until the guard is dropped.
    pub fn start_guarded(&self) -> Clocked<'_> {
        self.start();
        Clocked(self)
    }

    /// Times of the thread since the start; `None` if the kernel does not report them.
    pub fn read(&self) -> Option<ThreadTime> {
        let mut clock = self.lock();
        if let Some(now) = clock.path.as_ref().and_then(|path| times(path)) {
            clock.last = Some(now.since(clock.base));
        }
        clock.last
    }

    fn lock(&self) -> MutexGuard<'_, Clock> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Clocked<'_> {
    fn drop(&mut self) {
        self.0.read();
        // After the thread has ended, the system may give its number to another thread. So its file
        // is not read again.
        self.0.lock().path = None;
    }
}

impl ThreadTime {
    /// Returns the times since `earlier`.
    pub fn since(self, earlier: Self) -> Self {
        let Self { ran, waited } = earlier;
        Self { ran: self.ran.saturating_sub(ran), waited: self.waited.saturating_sub(waited) }
    }
}

/// Reader of the machine's processor seconds, counted from the creation of this meter.
#[derive(Debug)]
pub(super) struct MachineMeter {
    begin: Instant,
    cgroups: Cgroups,
    base: Machine,
    last: Option<(Instant, Machine)>,
}

impl MachineMeter {
    pub fn new(begin: Instant) -> Self {
        let cgroups = Cgroups::of_this_process();
        let base = sums(&cgroups);
        Self { begin, cgroups, base, last: None }
    }

    /// Current processor seconds, at most a quarter of a second old.
    pub fn read(&mut self) -> Machine {
        if let Some((at, machine)) = self.last
            && at.elapsed() < LEAST_APART
        {
            return machine;
        }
        let (now, at) = (sums(&self.cgroups), Instant::now());
        let seconds = (at - self.begin).as_secs_f64();
        let machine = Machine { seconds, ..now.since(&self.base) };
        self.last = Some((at, machine));
        machine
    }
}

/// Reads all processor seconds, counted from an arbitrary origin. Does not set `seconds`.
fn sums(cgroups: &Cgroups) -> Machine {
    let allowed = fs::read_to_string("/proc/self/status").ok();
    let allowed = allowed.as_deref().and_then(allowed_processors);
    let stat = fs::read_to_string("/proc/stat").ok();
    let stat = stat.as_deref().and_then(|text| stat_of(text, allowed.as_deref()));
    let used = clock_gettime(ClockId::ProcessCPUTime);
    let limits = cgroups.read();
    Machine {
        seconds: 0.0,
        processors: stat.map_or(0, |it| it.processors),
        busy: stat.map(|it| it.busy),
        stolen: stat.map(|it| it.stolen),
        used: used.tv_sec as f64 + used.tv_nsec as f64 * 1e-9,
        quota: limits.quota,
        throttled: limits.throttled,
    }
}

impl Machine {
    /// Processor seconds since `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        let after = |now: Option<f64>, then: Option<f64>| Some(now? - then.unwrap_or(0.0));
        Self {
            seconds: self.seconds - earlier.seconds,
            busy: after(self.busy, earlier.busy),
            stolen: after(self.stolen, earlier.stolen),
            used: self.used - earlier.used,
            throttled: after(self.throttled, earlier.throttled),
            ..*self
        }
    }

    /// Summary of the processor seconds for reports. The waits of workers are added by `blame`.
    pub(super) fn profile(&self) -> ProcessorProfile {
        let Self { seconds, processors, quota, .. } = *self;
        let told = seconds >= 0.8 * LEAST_APART.as_secs_f64();
        // The counter of each processor may be wrong by one tick, so this much is subtracted.
        let sure = |it: f64| (it - TICK * f64::from(processors)).max(0.0) / seconds;
        ProcessorProfile {
            allowed: processors,
            quota,
            used: told.then_some(self.used / seconds),
            others: self.busy.filter(|_| told).map(|busy| sure(busy - self.used)),
            stolen: self.stolen.filter(|_| told).map(sure),
            throttled: self.throttled.filter(|_| told).map(|it| it.max(0.0) / seconds),
            waits: None,
        }
    }
}

fn times(path: &Path) -> Option<ThreadTime> {
    schedstat(&fs::read_to_string(path).ok()?)
}

/// Parses the text of a `schedstat` file: `ran waited turns`, with times in nanoseconds.
fn schedstat(text: &str) -> Option<ThreadTime> {
    let mut numbers = text.split_ascii_whitespace().map(str::parse::<u64>);
    let (ran, waited) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    // Without `CONFIG_SCHED_INFO`, the kernel writes 0 for all three numbers. The third number
    // counts how often the thread got a processor, so it is at least 1 for a running thread.
    (numbers.next()?.ok()? > 0).then_some(ThreadTime { ran, waited })
}

/// Parses the processors in `Cpus_allowed_list` of a `/proc/PID/status`: `0-3,8`.
fn allowed_processors(status: &str) -> Option<Vec<(u32, u32)>> {
    let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    let range = |text: &str| {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        Some((first.parse().ok()?, last.parse().ok()?))
    };
    line.trim().split(',').map(range).collect()
}

/// Processor seconds from `/proc/stat`, summed over processors.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Stat {
    processors: u32,
    busy: f64,
    stolen: f64,
}

/// Adds up the values of the allowed processors. Returns `None` if no processor is allowed.
fn stat_of(text: &str, allowed: Option<&[(u32, u32)]>) -> Option<Stat> {
    let mut stat = Stat { processors: 0, busy: 0.0, stolen: 0.0 };
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let number = words.next().and_then(|it| it.strip_prefix("cpu")?.parse::<u32>().ok());
        let Some(number) = number else { continue };
        if allowed.is_some_and(|ranges| ranges.iter().all(|it| !(it.0..=it.1).contains(&number))) {
            continue;
        }
        // Columns: user nice system idle iowait irq softirq steal. Guests are included in user.
        let ticks: Vec<u64> = words.map_while(|it| it.parse().ok()).take(8).collect();
        let [user, nice, system, _, _, irq, softirq, steal] = ticks[..] else { return None };
        stat.processors += 1;
        stat.busy += TICK * (user + nice + system + irq + softirq) as f64;
        stat.stolen += TICK * steal as f64;
    }
    (stat.processors > 0).then_some(stat)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedstat_has_times_run_and_waited() {
        let time = |ran, waited| Some(ThreadTime { ran, waited });
        assert_eq!(schedstat("12 2653171 1\n"), time(12, 2_653_171));
        assert_eq!(schedstat("0 0 0\n"), None);
        assert_eq!(schedstat("12 7"), None);
        assert_eq!(schedstat("a b c"), None);
        let later = ThreadTime { ran: 9, waited: 5 }.since(ThreadTime { ran: 4, waited: 5 });
        assert_eq!(later, ThreadTime { ran: 5, waited: 0 });
    }

    #[test]
    fn only_allowed_processors_are_counted() {
        let text = "cpu  60 6 12 90 3 1 2 9 0 0\ncpu0 10 1 2 30 1 0 1 4 0 0\ncpu1 20 2 4 30 1 1 1 5 7 0\n\
                    cpu10 30 3 6 30 1 0 0 0 0 0\nintr 5 6\n";
        let status = "Name:\ta\nCpus_allowed:\t402\nCpus_allowed_list:\t1,10-11\n";
        let allowed = allowed_processors(status).unwrap();
        assert_eq!(allowed, [(1, 1), (10, 11)]);
        let stat = stat_of(text, Some(&allowed)).unwrap();
        assert_eq!((stat.processors, stat.stolen), (2, 0.05));
        assert!((stat.busy - 0.67).abs() < 1e-9);
        assert_eq!(stat_of(text, None).unwrap().processors, 3);
        assert_eq!(stat_of("intr 5 6\n", None), None);
        assert_eq!(stat_of("cpu0 1 2 3\n", None), None);
        assert_eq!(allowed_processors("Name: a\n"), None);
    }

    #[test]
    fn the_counting_step_is_subtracted_from_coarse_sums() {
        let machine = Machine {
            seconds: 2.0,
            processors: 2,
            busy: Some(3.02),
            stolen: Some(0.01),
            used: 1.0,
            quota: Some(1.5),
            throttled: None,
        };
        let profile = machine.profile();
        assert_eq!((profile.allowed, profile.quota, profile.used), (2, Some(1.5), Some(0.5)));
        assert!((profile.others.unwrap() - 1.0).abs() < 1e-9);
        assert_eq!((profile.stolen, profile.throttled), (Some(0.0), None));
        // No time passes between two identical readings, so the used share of the processors is
        // unknown.
        let profile = machine.since(&machine).profile();
        assert_eq!((profile.used, profile.others, profile.quota), (None, None, Some(1.5)));
    }

    #[test]
    fn a_clock_keeps_the_times_of_an_ended_thread() {
        let clock = ThreadClock::default();
        assert_eq!(clock.read(), None);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _clocked = clock.start_guarded();
                std::thread::yield_now();
            });
        });
        // The clock still returns the times of the ended thread, or `None` if the kernel does not
        // report times.
        let told = fs::read_to_string("/proc/thread-self/schedstat").ok();
        assert_eq!(clock.read().is_some(), told.as_deref().and_then(schedstat).is_some());
        assert_eq!(clock.lock().path, None);
    }
}
