//! Published pages whose pixels are not ready yet.

use std::time::Duration;

use crate::error::Result;

/// Published pages, in the order of their publication.
///
/// The launcher takes every published page out of the ring at once, even if its pixels are not
/// ready. So pages of a slow route do not delay pages of a fast route.
pub(super) struct Held<P> {
    pages: Vec<P>,
    pause: Duration,
}

/// Minimum and maximum sleep of the launcher between two queries, if no held page was ready. The
/// minimum is about the time of a copy, the maximum about the time to decode an image on a GPU. A
/// newly published page ends the sleep.
const PAUSES: [Duration; 2] = [Duration::from_micros(50), Duration::from_millis(1)];

impl<P> Held<P> {
    /// Creates a list with capacity for `most` pages.
    pub fn new(most: usize) -> Self {
        Self { pages: Vec::with_capacity(most), pause: PAUSES[0] }
    }

    pub fn push(&mut self, page: P) {
        self.pages.push(page);
    }

    /// Page that was published first.
    pub fn first(&self) -> Option<&P> {
        self.pages.first()
    }

    /// Time until the next query; `None` without pages.
    pub fn pause(&self) -> Option<Duration> {
        (!self.pages.is_empty()).then_some(self.pause)
    }

    /// Moves up to `most` ready pages into `ready`, in the order of their publication.
    pub fn take_ready(
        &mut self,
        most: usize,
        ready: &mut Vec<P>,
        is_ready: impl Fn(&P) -> Result<bool>,
    ) -> Result<()> {
        let mut at = 0;
        while at < self.pages.len() && ready.len() < most {
            match is_ready(&self.pages[at])? {
                true => ready.push(self.pages.remove(at)),
                false => at += 1,
            }
        }
        self.pause = match ready.is_empty() {
            true => (2 * self.pause).min(PAUSES[1]),
            false => PAUSES[0],
        };
        Ok(())
    }
}

/// Simulation of a CPU and JPEG engines, and of a launcher that takes their pages.
#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    const GROUP: usize = 8;
    const WORKERS: usize = 4;
    /// Number of pages in a plan.
    const PAGES: usize = WORKERS + GROUP + 3 * GROUP;
    /// Durations in ticks: decoding an image on the CPU, one call of the engines, and one launch.
    const CPU: u64 = 10;
    const CALL: u64 = 100;
    const KERNEL: u64 = 1;

    /// Launches pages. A page is represented by the tick at which it is ready. `launch` returns the
    /// tick from which the launched pages are free, and the number of these pages.
    trait Launch {
        fn push(&mut self, ready: u64);
        fn launch(&mut self, now: u64) -> (u64, usize);
    }

    impl Launch for Held<u64> {
        fn push(&mut self, ready: u64) {
            Held::push(self, ready);
        }

        fn launch(&mut self, now: u64) -> (u64, usize) {
            let mut ready = Vec::new();
            self.take_ready(GROUP, &mut ready, |it| Ok(*it <= now)).unwrap();
            (now + KERNEL, ready.len())
        }
    }

    /// Another launcher, for comparison. It holds one group and passes over an unready page once.
    /// The second time, its stream waits for the page.
    #[derive(Default)]
    struct InStream {
        pages: VecDeque<u64>,
        held: Vec<(u64, bool)>,
        stream: u64,
    }

    impl Launch for InStream {
        fn push(&mut self, ready: u64) {
            self.pages.push_back(ready);
        }

        fn launch(&mut self, now: u64) -> (u64, usize) {
            let room = GROUP - self.held.len();
            let new = self.pages.drain(..room.min(self.pages.len()));
            self.held.extend(new.map(|ready| (ready, false)));
            let is_there = |&(ready, passed): &(u64, bool)| passed || ready <= now;
            let none = !self.held.iter().any(is_there);
            let (chosen, held): (Vec<_>, Vec<_>) =
                std::mem::take(&mut self.held).into_iter().partition(|it| none || is_there(it));
            self.held = held.into_iter().map(|(ready, _)| (ready, true)).collect();
            if let Some(ready) = chosen.iter().map(|&(ready, _)| ready).max() {
                self.stream = self.stream.max(now).max(ready) + KERNEL;
            }
            (self.stream, chosen.len())
        }
    }

    /// Images per 1000 ticks.
    fn rate(launcher: &mut dyn Launch) -> f64 {
        let (mut free, mut used, mut launched) = (PAGES, Vec::new(), 0);
        let (mut cpu, mut calls) = ([None; WORKERS], Vec::new());
        let ticks = 100_000;
        for now in 0..ticks {
            used.retain(|&(until, count)| {
                let still = until > now;
                free += if still { 0 } else { count };
                still
            });
            for worker in &mut cpu {
                if worker.is_some_and(|done| done <= now) {
                    launcher.push(now);
                    *worker = None;
                }
                if worker.is_none() && free > 0 {
                    free -= 1;
                    *worker = Some(now + CPU);
                }
            }
            // Two calls run at a time. The second call waits for the first one.
            calls.retain(|&done| done > now);
            let count = free.min(GROUP);
            if calls.len() < 2 && count > 0 {
                free -= count;
                let done = calls.last().copied().unwrap_or(now) + CALL;
                calls.push(done);
                (0..count).for_each(|_| launcher.push(done));
            }
            let (until, count) = launcher.launch(now);
            launched += count;
            used.extend((count > 0).then_some((until, count)));
        }
        launched as f64 / ticks as f64 * 1000.0
    }

    #[test]
    fn engines_that_are_slow_do_not_delay_the_cpu() {
        let sum = 1000.0 * (WORKERS as f64 / CPU as f64 + GROUP as f64 / CALL as f64);
        let [held, in_stream] =
            [&mut Held::new(PAGES) as &mut dyn Launch, &mut InStream::default()].map(rate);
        println!(
            "images per 1000 ticks: {held:.1} of {sum:.1}; {in_stream:.1} if the stream waits"
        );
        assert!(held >= 0.9 * sum && in_stream < 0.9 * sum, "{held} {in_stream} {sum}");
    }

    #[test]
    fn pages_are_launched_in_the_order_of_their_publication() {
        let mut held = Held::new(4);
        (0..6).for_each(|page| held.push(page));
        let mut ready = Vec::new();
        held.take_ready(2, &mut ready, |page| Ok(page % 2 == 1)).unwrap();
        assert_eq!((&*ready, held.first()), (&[1, 3][..], Some(&0)));
        ready.clear();
        held.take_ready(4, &mut ready, |_| Ok(true)).unwrap();
        assert_eq!(ready, [0, 2, 4, 5]);
        assert_eq!((held.first(), held.pause()), (None, None));
    }

    #[test]
    fn queries_become_rarer_while_nothing_is_ready() {
        let mut held = Held::new(1);
        held.push(0);
        let mut pauses = Vec::new();
        for ready in [false, false, false, false, false, false, true] {
            pauses.push(held.pause().unwrap());
            held.take_ready(0, &mut Vec::new(), |_| Ok(ready)).unwrap();
        }
        assert!(pauses.is_sorted() && pauses[0] == PAUSES[0] && pauses.last() == Some(&PAUSES[1]));
    }
}
