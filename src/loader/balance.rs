//! Which engine decodes the next image: shares between routes, balanced by what is measured.
//!
//! * An image goes where it is expected to be over first: the queue's outstanding work at the speed that it has shown,
//!   and this image's own cost there.
//! * No engine idles while another has more than a second round of images queued: then a slower queue that would run
//!   out of work gets the image, unless it is so slow that it would not matter.
//! * The largest images (one in twenty) are rationed: no queue gets many more of them than its speed is worth.
//! * An image that takes far longer than expected keeps its queue from getting more, and moves what is known of the
//!   queue's speed little; images on other queues are not held up by it.
//! * A queue of which nothing is known gets images at once; one that has had none for long gets one now and then, so
//!   that an engine that has become faster is found out.
//! * A queue's capacity and the routes that the caller forbids are never violated.
//! * The same calls at the same times give the same choices: nothing here is random, and no clock is read.
//!
//! Completions are seen late and many at once. So the time that a queue is taken for is a promise of when it will be
//! free, shortened by what is seen to be over; between two completions it runs down by the clock.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

use serde::Serialize;

use crate::plan::Route;

use cost::{Cost, Measuring, Terms, assume};

mod cost;
#[cfg(test)]
mod tests;

/// An engine, as the balancer sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RouteQueue {
    /// By which it is reached; one queue for each route.
    pub route: Route,
    /// Images that it works on at once, at least 1.
    pub parallel: usize,
    /// Most images that are submitted and not finished; 0 forbids the queue.
    pub capacity: usize,
}

/// What an image asks of an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ImageWork {
    /// Of the whole image.
    pub pixels: u64,
    /// Of the window that is wanted.
    pub window_pixels: u64,
    /// Of the file.
    pub bytes: u64,
}

/// An image on its queue. It must be given back, by `finish` or `cancel`: until then it takes room.
#[derive(Debug)]
#[must_use = "the image takes room on its queue until it is finished or cancelled"]
pub(super) struct Ticket {
    queue: usize,
    route: Route,
    id: u64,
}

impl Ticket {
    /// Where the image goes.
    pub fn route(&self) -> Route {
        self.route
    }
}

/// What a queue has done.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RouteReport {
    /// The queue's route.
    pub route: Route,
    /// Images that were finished.
    pub images: u64,
    /// Of all images that were finished; 0 before the first.
    pub share: f64,
    /// Seconds that one place takes for a megapixel of the mean image, as learnt.
    pub seconds_per_megapixel: f64,
    /// Mean seconds from the choice until the image was seen to be over, less its own expected time.
    pub queue_seconds: f64,
    /// Share of the time since the first choice in which the queue's places were taken.
    pub busy: f64,
    /// That time: seconds of all places of the queue together.
    pub place_seconds: f64,
}

/// Chooses routes; see the module's text. Called by many threads: each call takes a lock for well under a microsecond.
pub(super) struct Balancer {
    state: Mutex<State>,
}

impl Balancer {
    /// A balancer of these queues. Nothing is allocated afterwards.
    pub fn new(queues: &[RouteQueue]) -> Self {
        let queues = queues.iter().map(|&queue| QueueState::new(queue)).collect();
        let state = State { queues, base: None, next_id: 0, mean: [0.0; 3], large: 0.0 };
        Self { state: Mutex::new(state) }
    }

    /// The route on which the image is expected to be over first, among those that are `allowed` and have room;
    /// none where no queue has room. The image is submitted there. `allowed` is asked several times and must not
    /// come back to the balancer.
    pub fn choose(
        &self,
        allowed: impl Fn(Route) -> bool,
        work: ImageWork,
        now: Instant,
    ) -> Option<Ticket> {
        self.state().choose(allowed, work, now)
    }

    /// The image was seen to be over.
    pub fn finish(&self, ticket: Ticket, now: Instant) {
        let mut state = self.state();
        let now = state.seconds(now);
        state.end(&ticket, now, true);
    }

    /// The image left its queue undone: nothing is learnt from it.
    pub fn cancel(&self, ticket: Ticket) {
        let mut state = self.state();
        let now = state.queues.iter().map(|queue| queue.changed).fold(0.0, f64::max);
        state.end(&ticket, now, false);
    }

    /// What each queue has done, in the order of the queues.
    pub fn report(&self) -> Vec<RouteReport> {
        self.state().report()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// A queue below this share of the fastest queue's speed may idle.
const NEGLIGIBLE: f64 = 0.02;
/// Choices without an image for an idle queue until it is tried again.
const STALE: u32 = 512;
/// Large images that a queue may have beyond its part.
const LARGE_AHEAD: f64 = 1.5;
/// A large image may be over so many times later than on the best queue for the sake of its part.
const LARGE_PATIENCE: f64 = 8.0;
/// The share of images that counts as large.
const LARGE_SHARE: f64 = 0.05;
/// Weight of the newest value in running means.
const NEWEST: f64 = 0.02;

struct State {
    queues: Vec<QueueState>,
    /// The first time that was seen: all others are seconds since.
    base: Option<Instant>,
    next_id: u64,
    /// Running means of pixels, window pixels and bytes.
    mean: [f64; 3],
    /// Running estimate of the pixels above which an image is large.
    large: f64,
}

struct QueueState {
    queue: RouteQueue,
    cost: Cost,
    outstanding: VecDeque<Outstanding>,
    /// Expected seconds of all of them.
    backlog: f64,
    /// Places that go on taking images: not those with one that two rounds of later ones have overtaken.
    places: usize,
    /// When the submitted work is expected to be over.
    free_at: f64,
    /// When the next completion is expected.
    next_due: f64,
    /// Running mean of how much later than expected completions are seen.
    lateness: f64,
    /// Outstanding images below which the queue may run out of work before that is seen.
    depth: usize,
    /// Large images beyond the queue's part.
    large_ahead: f64,
    choices_since: u32,
    measuring: Measuring,
    finished: u64,
    queue_seconds: f64,
    busy_seconds: f64,
    changed: f64,
}

#[derive(Clone, Copy)]
struct Outstanding {
    id: u64,
    terms: Terms,
    expected: f64,
    submitted: f64,
    /// Later images that were over before it.
    overtaken: usize,
}

/// What a queue would mean for an image.
#[derive(Clone, Copy)]
struct Estimate {
    queue: usize,
    /// Seconds until it would be over.
    finish: f64,
    overdue: bool,
}

impl State {
    fn seconds(&mut self, now: Instant) -> f64 {
        now.saturating_duration_since(*self.base.get_or_insert(now)).as_secs_f64()
    }

    fn choose(
        &mut self,
        allowed: impl Fn(Route) -> bool,
        work: ImageWork,
        now: Instant,
    ) -> Option<Ticket> {
        let now = self.seconds(now);
        let able = |state: &QueueState| state.has_room() && allowed(state.queue.route);
        let estimates = || {
            let queues = self.queues.iter().enumerate().filter(|(_, state)| able(state));
            queues.map(|(queue, state)| state.estimate(queue, work, now))
        };
        let best = soonest(estimates())?;
        let large = self.large > 0.0 && work.pixels as f64 > self.large;
        let speeds = |queue: usize| self.queues[queue].speed(self.mean);
        let chosen = if large {
            let patient = |it: &Estimate| {
                !it.overdue
                    && it.finish <= LARGE_PATIENCE * best.finish
                    && self.queues[it.queue].large_ahead < LARGE_AHEAD
            };
            soonest(estimates().filter(patient)).unwrap_or(best)
        } else if let Some(unknown) =
            soonest(estimates().filter(|it| self.queues[it.queue].asks_for_trial()))
        {
            unknown
        } else if self.queues[best.queue].has_queue() {
            let fastest = estimates().map(|it| speeds(it.queue)).fold(0.0, f64::max);
            let hungry = |it: &Estimate| {
                !it.overdue
                    && self.queues[it.queue].outstanding.len() < self.queues[it.queue].depth
                    && speeds(it.queue) >= NEGLIGIBLE * fastest
            };
            soonest(estimates().filter(hungry)).unwrap_or(best)
        } else {
            best
        };
        if large {
            let total: f64 = estimates().map(|it| speeds(it.queue)).sum();
            for at in 0..self.queues.len() {
                if able(&self.queues[at]) && total > 0.0 {
                    let part = self.queues[at].speed(self.mean) / total;
                    let state = &mut self.queues[at];
                    state.large_ahead = (state.large_ahead - part).max(-LARGE_AHEAD);
                }
            }
            self.queues[chosen.queue].large_ahead += 1.0;
        }
        self.note_size(work);
        Some(self.submit(chosen.queue, work, now))
    }

    fn submit(&mut self, queue: usize, work: ImageWork, now: f64) -> Ticket {
        for state in &mut self.queues {
            state.choices_since = state.choices_since.saturating_add(1);
        }
        let id = self.next_id;
        self.next_id += 1;
        let state = &mut self.queues[queue];
        state.choices_since = 0;
        state.submit(id, work, now);
        Ticket { queue, route: state.queue.route, id }
    }

    fn end(&mut self, ticket: &Ticket, now: f64, finished: bool) {
        let others_queue = self
            .queues
            .iter()
            .enumerate()
            .any(|(at, state)| at != ticket.queue && state.has_queue());
        self.queues[ticket.queue].end(ticket.id, now, finished, others_queue);
    }

    /// Running means, and a running quantile: a step up for every large image, a small one down for the others.
    fn note_size(&mut self, work: ImageWork) {
        let new = [work.pixels as f64, work.window_pixels as f64, work.bytes as f64];
        if self.large == 0.0 {
            (self.mean, self.large) = (new, new[0]);
            return;
        }
        self.mean = [0, 1, 2].map(|at| self.mean[at] + NEWEST * (new[at] - self.mean[at]));
        let step = if new[0] > self.large { 1.0 - LARGE_SHARE } else { -LARGE_SHARE };
        self.large = (self.large * (1.0 + 0.1 * step)).max(1.0);
    }

    fn report(&self) -> Vec<RouteReport> {
        let all: u64 = self.queues.iter().map(|state| state.finished).sum();
        let until = self.queues.iter().map(|state| state.changed).fold(0.0, f64::max);
        let report = |state: &QueueState| {
            let place_seconds = until * state.queue.parallel as f64;
            let busy_seconds = state.busy_seconds + (until - state.changed) * state.taken() as f64;
            RouteReport {
                route: state.queue.route,
                images: state.finished,
                share: state.finished as f64 / all.max(1) as f64,
                seconds_per_megapixel: state.mean_seconds(self.mean) * 1e6 / self.mean[0].max(1.0),
                queue_seconds: state.queue_seconds / state.finished.max(1) as f64,
                busy: if place_seconds > 0.0 { busy_seconds / place_seconds } else { 0.0 },
                place_seconds,
            }
        };
        self.queues.iter().map(report).collect()
    }
}

fn soonest(estimates: impl Iterator<Item = Estimate>) -> Option<Estimate> {
    estimates.min_by(|a, b| a.finish.total_cmp(&b.finish))
}

impl QueueState {
    fn new(queue: RouteQueue) -> Self {
        let queue = RouteQueue { parallel: queue.parallel.max(1), ..queue };
        Self {
            queue,
            cost: Cost::new(),
            outstanding: VecDeque::with_capacity(queue.capacity),
            backlog: 0.0,
            places: queue.parallel,
            free_at: 0.0,
            next_due: 0.0,
            lateness: 0.0,
            depth: queue.parallel,
            large_ahead: 0.0,
            choices_since: 0,
            measuring: Measuring::default(),
            finished: 0,
            queue_seconds: 0.0,
            busy_seconds: 0.0,
            changed: 0.0,
        }
    }

    fn has_room(&self) -> bool {
        self.outstanding.len() < self.queue.capacity
    }

    /// Places with an image.
    fn taken(&self) -> usize {
        self.outstanding.len().min(self.queue.parallel)
    }

    /// Whether a second round waits behind the images that are being decoded.
    fn has_queue(&self) -> bool {
        self.outstanding.len() >= 2 * self.queue.parallel
    }

    fn asks_for_trial(&self) -> bool {
        let taken = self.outstanding.len();
        (self.cost.spans() == 0 && taken < self.queue.parallel)
            || (taken == 0 && self.choices_since >= STALE)
    }

    fn mean_seconds(&self, [pixels, window_pixels, bytes]: [f64; 3]) -> f64 {
        let work = ImageWork {
            pixels: pixels as u64,
            window_pixels: window_pixels as u64,
            bytes: bytes as u64,
        };
        self.cost.seconds(assume(self.queue.route, work))
    }

    /// Mean images a second.
    fn speed(&self, mean: [f64; 3]) -> f64 {
        self.queue.parallel as f64 / self.mean_seconds(mean).max(1e-9)
    }

    fn estimate(&self, queue: usize, work: ImageWork, now: f64) -> Estimate {
        let own = self.cost.seconds(assume(self.queue.route, work));
        let late = self.late(now);
        let waiting =
            if self.outstanding.len() < self.places { 0.0 } else { (self.free_at - now).max(0.0) };
        // What has been late for so long may well be so for as long again.
        Estimate { queue, finish: waiting + late + own, overdue: late > 0.0 }
    }

    /// Seconds by which the next completion is later than the way in which completions are seen explains.
    fn late(&self, now: f64) -> f64 {
        if self.outstanding.is_empty() {
            return 0.0;
        }
        let round = self.outstanding.iter().take(self.queue.parallel);
        let longest = round.map(|it| it.expected).fold(0.0, f64::max);
        (now - self.next_due - longest - 3.0 * self.lateness).max(0.0)
    }

    fn submit(&mut self, id: u64, work: ImageWork, now: f64) {
        self.advance(now);
        let terms = assume(self.queue.route, work);
        let expected = self.cost.seconds(terms);
        if self.outstanding.is_empty() {
            self.next_due = now + expected;
        }
        self.free_at = self.free_at.max(now) + expected / self.places as f64;
        self.backlog += expected;
        self.outstanding.push_back(Outstanding {
            id,
            terms,
            expected,
            submitted: now,
            overtaken: 0,
        });
    }

    fn end(&mut self, id: u64, now: f64, finished: bool, others_queue: bool) {
        self.advance(now);
        let Some(at) = self.outstanding.iter().position(|it| it.id == id) else { return };
        let Some(image) = self.outstanding.remove(at) else { return };
        self.outstanding.iter_mut().take(at).for_each(|earlier| earlier.overtaken += 1);
        let round = self.outstanding.iter().take(self.queue.parallel);
        let held = round.filter(|it| it.overtaken > 2 * self.queue.parallel).count();
        self.places = (self.queue.parallel - held).max(1);
        // Sums of differences drift, so an empty queue is reset.
        self.backlog =
            if self.outstanding.is_empty() { 0.0 } else { self.backlog - image.expected };
        let most = now + self.backlog / self.places as f64;
        self.free_at = if self.free_at < now { most } else { self.free_at.min(most) };
        if !finished {
            return;
        }
        self.finished += 1;
        self.queue_seconds += (now - image.submitted - image.expected).max(0.0);
        self.measuring.complete(image.terms, now);
        // A sick image must not teach patience.
        let late = (now - self.next_due).clamp(0.0, 2.0 * image.expected + self.lateness);
        self.lateness += 0.1 * (late - self.lateness);
        match self.outstanding.front() {
            Some(front) => self.next_due = now + front.expected,
            // It ran dry while others had a queue: the end of its work was seen too late to give it more.
            None if others_queue => {
                let most = (4 * self.queue.parallel).min(self.queue.capacity).max(1);
                self.depth = (2 * self.depth).min(most);
            }
            None => {}
        }
    }

    /// Brings the measured times up to now, and ends a span that has enough images once the burst that
    /// completed them is over.
    fn advance(&mut self, now: f64) {
        if let Some(span) = self.measuring.end(self.cost.spans(), now) {
            self.cost.learn(span);
        }
        let seconds = (now - self.changed).max(0.0);
        self.changed = self.changed.max(now);
        let taken = self.taken();
        self.busy_seconds += seconds * taken as f64;
        self.measuring.add(seconds, taken, self.outstanding.len() > self.queue.parallel);
    }
}
