//! Chooses the engine that decodes the next image; distributes images over routes by measured speed.
//!
//! * An image goes to the queue where it is expected to finish first: the queue's outstanding work at its measured speed,
//!   plus this image's own cost there.
//! * No engine idles while another has more than a second round of images queued: a slower queue that would run empty
//!   gets the image, unless its speed is negligible.
//! * The largest images (one in twenty) are rationed: no queue gets many more of them than its share of the speed.
//! * An image that takes far longer than expected keeps its queue from getting more and hardly changes the estimate of
//!   the queue's speed. Images on other queues are not delayed by it.
//! * A queue without measurements gets images at once. An idle queue gets one from time to time, so that an engine that
//!   became faster is noticed.
//! * A queue's capacity and the routes that the caller forbids are never violated.
//! * The same calls at the same times give the same choices: there is no randomness, and no clock is read.
//!
//! Completions are observed late and in bursts. So the time until a queue is free is a prediction, shortened by observed
//! completions; between two completions it decreases with the clock.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

use serde::Serialize;

use crate::plan::Route;

use cost::{Cost, Measuring, Terms, assume};

mod cost;
#[cfg(test)]
mod tests;

/// The queue of an engine, as the balancer sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RouteQueue {
    /// Route of the engine; one queue per route.
    pub route: Route,
    /// Images that the engine decodes at once, at least 1.
    pub parallel: usize,
    /// Most images that are submitted and not finished; 0 disables the queue.
    pub capacity: usize,
}

/// Size of an image's decoding work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ImageWork {
    /// Pixels of the whole image.
    pub pixels: u64,
    /// Pixels of the required window.
    pub window_pixels: u64,
    /// Bytes of the file.
    pub bytes: u64,
}

/// An image on its queue. It must be returned by `finish` or `cancel`: until then it counts as outstanding.
#[derive(Debug)]
#[must_use = "the image counts as outstanding until it is finished or cancelled"]
pub(super) struct Ticket {
    queue: usize,
    route: Route,
    id: u64,
}

impl Ticket {
    /// The route that the image goes to.
    pub fn route(&self) -> Route {
        self.route
    }
}

/// Counts of one decode route.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RouteReport {
    /// The queue's route.
    pub route: Route,
    /// Finished images.
    pub images: u64,
    /// Share of all finished images, from 0 to 1; 0 before the first.
    pub share: f64,
    /// Learnt seconds of one place per megapixel of the mean image.
    pub seconds_per_megapixel: f64,
    /// Mean seconds from the choice until completion was observed, minus the image's own expected time.
    pub queue_seconds: f64,
    /// Share of the time since the first choice in which the queue's places were occupied, from 0 to 1.
    pub busy: f64,
    /// Seconds since the first choice, summed over all places of the queue.
    pub place_seconds: f64,
}

/// Chooses routes; see the module's documentation. Called by many threads: each call takes a lock for well under a
/// microsecond.
pub(super) struct Balancer {
    state: Mutex<State>,
}

impl Balancer {
    /// Creates a balancer with these queues. Nothing is allocated later.
    pub fn new(queues: &[RouteQueue]) -> Self {
        let queues = queues.iter().map(|&queue| QueueState::new(queue)).collect();
        let state = State { queues, base: None, next_id: 0, mean: [0.0; 3], large: 0.0 };
        Self { state: Mutex::new(state) }
    }

    /// Chooses the route on which the image is expected to finish first, among those that are `allowed` and have room,
    /// and submits it there; `None` if no queue has room. `allowed` is called several times and must not call the
    /// balancer.
    pub fn choose(
        &self,
        allowed: impl Fn(Route) -> bool,
        work: ImageWork,
        now: Instant,
    ) -> Option<Ticket> {
        self.state().choose(allowed, work, now)
    }

    /// Records that the image was observed to be finished.
    pub fn finish(&self, ticket: Ticket, now: Instant) {
        let mut state = self.state();
        let now = state.seconds(now);
        state.end(&ticket, now, true);
    }

    /// Removes an unfinished image from its queue: nothing is learnt from it.
    pub fn cancel(&self, ticket: Ticket) {
        let mut state = self.state();
        let now = state.queues.iter().map(|queue| queue.changed).fold(0.0, f64::max);
        state.end(&ticket, now, false);
    }

    /// Counts of each queue, in the order of the queues.
    pub fn report(&self) -> Vec<RouteReport> {
        self.state().report()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Queues below this share of the fastest queue's speed may idle.
const NEGLIGIBLE: f64 = 0.02;
/// Choices without an image after which an idle queue is tried again.
const STALE: u32 = 512;
/// Large images that a queue may have beyond its share.
const LARGE_AHEAD: f64 = 1.5;
/// Largest ratio of a large image's finish time to the best one, to keep the shares.
const LARGE_PATIENCE: f64 = 8.0;
/// The share of images that counts as large.
const LARGE_SHARE: f64 = 0.05;
/// Weight of the newest value in running means.
const NEWEST: f64 = 0.02;

struct State {
    queues: Vec<QueueState>,
    /// The time of the first call; all other times are seconds since then.
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
    /// Expected seconds of all outstanding images.
    backlog: f64,
    /// Places that still take images: not those with an image that two rounds of later ones have overtaken.
    places: usize,
    /// Expected time at which the submitted work is finished.
    free_at: f64,
    /// Expected time of the next completion.
    next_due: f64,
    /// Running mean of how much later than expected completions are observed.
    lateness: f64,
    /// Number of outstanding images below which the queue may run empty before that is observed.
    depth: usize,
    /// Large images beyond the queue's share.
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
    /// Later images that finished before it.
    overtaken: usize,
}

/// Prediction for an image on a queue.
#[derive(Clone, Copy)]
struct Estimate {
    queue: usize,
    /// Seconds until it would be finished.
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

    /// Updates running means and a running quantile: a large step up for large images, a small one down for others.
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

    /// Occupied places.
    fn taken(&self) -> usize {
        self.outstanding.len().min(self.queue.parallel)
    }

    /// Whether a second round of images waits behind those that are being decoded.
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

    /// Images per second, for the mean image.
    fn speed(&self, mean: [f64; 3]) -> f64 {
        self.queue.parallel as f64 / self.mean_seconds(mean).max(1e-9)
    }

    fn estimate(&self, queue: usize, work: ImageWork, now: f64) -> Estimate {
        let own = self.cost.seconds(assume(self.queue.route, work));
        let late = self.late(now);
        let waiting =
            if self.outstanding.len() < self.places { 0.0 } else { (self.free_at - now).max(0.0) };
        // An image that is late by some time is likely to be late by as much again.
        Estimate { queue, finish: waiting + late + own, overdue: late > 0.0 }
    }

    /// Seconds by which the next completion is later than the usual delay of observation explains.
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
        // A single slow image must not increase the tolerated lateness much.
        let late = (now - self.next_due).clamp(0.0, 2.0 * image.expected + self.lateness);
        self.lateness += 0.1 * (late - self.lateness);
        match self.outstanding.front() {
            Some(front) => self.next_due = now + front.expected,
            // It ran empty while others had a queue: the end of its work was observed too late to refill it.
            None if others_queue => {
                let most = (4 * self.queue.parallel).min(self.queue.capacity).max(1);
                self.depth = (2 * self.depth).min(most);
            }
            None => {}
        }
    }

    /// Updates the measured times to now, and ends a span that has enough images once the burst that completed them is
    /// over.
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
