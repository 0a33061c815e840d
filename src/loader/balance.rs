//! Chooses a decode route for each image, and distributes images over routes by measured speed.
//!
//! * Each route has an engine with a queue. An image is submitted to the queue where it is expected
//!   to finish first. The expected time is the time for the queue's outstanding images at the
//!   engine's measured speed, plus the time to decode the image itself on that engine.
//! * No engine idles while many images wait for another engine. A round is the number of images
//!   that an engine decodes at the same time. If the best queue holds two rounds or more, a slower
//!   queue that would run empty gets the image instead, unless its speed is negligible.
//! * The largest images (one in twenty) are rationed, because each of them delays its queue for
//!   long: no queue gets many more of them than its share of the total speed.
//! * While an image takes far longer than expected, its queue gets few further images. The image
//!   hardly changes the estimate of the queue's speed. It does not delay images on other queues.
//! * A queue without measurements gets images at once. An idle queue gets an image from time to
//!   time, to find out whether its engine became faster.
//! * A queue never exceeds its capacity. Routes that the caller forbids are never used.
//! * Choices are deterministic: there are no random numbers, and the caller passes the time.
//!
//! The host observes completions late and in bursts. Therefore the balancer predicts the time until
//! a queue is free. Between two observed completions, the predicted time decreases with the clock.
//! Each observed completion shortens the predicted time too.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

use serde::Serialize;

use crate::plan::Route;

use cost::{Cost, Measuring, Terms, assume};

mod cost;
#[cfg(test)]
mod tests;

/// Properties of an engine's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RouteQueue {
    /// Route of the engine. Each route has one queue.
    pub route: Route,
    /// Number of images that the engine decodes at the same time, at least 1.
    pub parallel: usize,
    /// Maximum number of images that are submitted but not finished. 0 disables the queue.
    pub capacity: usize,
}

/// Amount of work to decode an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ImageWork {
    /// Pixels of the whole image.
    pub pixels: u64,
    /// Pixels of the required window.
    pub window_pixels: u64,
    /// Size of the file, in bytes.
    pub bytes: u64,
}

/// Handle of an image in the queue of its route. The image counts as outstanding until the handle
/// is passed to `finish` or `cancel`.
#[derive(Debug)]
#[must_use = "the image counts as outstanding until it is finished or cancelled"]
pub(super) struct Ticket {
    queue: usize,
    route: Route,
    id: u64,
}

impl Ticket {
    /// Route chosen for the image.
    pub fn route(&self) -> Route {
        self.route
    }
}

/// Statistics of one decode route.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RouteReport {
    /// Route whose statistics these are.
    pub route: Route,
    /// Finished images.
    pub images: u64,
    /// Share of all finished images, from 0 to 1; 0 before the first.
    pub share: f64,
    /// Learned decoding time per megapixel, for images of the mean size, in seconds.
    pub seconds_per_megapixel: f64,
    /// Mean waiting time in seconds: from the choice until the completion was observed, minus the
    /// expected decoding time.
    pub queue_seconds: f64,
    /// Utilization of the route: the share of the time since the first choice in which its places
    /// (images that it decodes at the same time) were occupied, from 0 to 1.
    pub busy: f64,
    /// Time since the first choice, in seconds, multiplied by the number of the route's places
    /// (images that it decodes at the same time).
    pub place_seconds: f64,
}

/// Chooses decode routes, see the module documentation. Many threads may call it. Each call holds a
/// lock for well under a microsecond.
pub(super) struct Balancer {
    state: Mutex<BalanceState>,
}

impl Balancer {
    /// Creates a balancer with these queues. Later calls allocate nothing.
    pub fn new(queues: &[RouteQueue]) -> Self {
        let queues = queues.iter().map(|&queue| QueueState::new(queue)).collect();
        let state = BalanceState { queues, base: None, next_id: 0, mean: [0.0; 3], large: 0.0 };
        Self { state: Mutex::new(state) }
    }

    /// Chooses the route on which the image is expected to finish first, and submits the image
    /// there. Considers only routes that are `allowed` and have capacity; `None` if there are none.
    /// `allowed` is called several times and must not call the balancer.
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

    /// Removes an unfinished image from its queue. The image does not influence any estimate.
    pub fn cancel(&self, ticket: Ticket) {
        let mut state = self.state();
        let now = state.queues.iter().map(|queue| queue.changed).fold(0.0, f64::max);
        state.end(&ticket, now, false);
    }

    /// Statistics of each queue, in the order of the queues.
    pub fn report(&self) -> Vec<RouteReport> {
        self.state().report()
    }

    fn state(&self) -> MutexGuard<'_, BalanceState> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// A queue may idle if its speed is below this share of the fastest queue's speed.
const NEGLIGIBLE: f64 = 0.02;
/// An idle queue gets a trial image after this many choices of other queues.
const STALE: u32 = 512;
/// Maximum number of large images that a queue may get beyond its share of all large images.
const LARGE_AHEAD: f64 = 1.5;
/// A large image may be given to a slower queue, so that no queue gets too many of the large
/// images. It is given to that queue only if it is expected to finish there within this multiple of
/// the time on the best queue.
const LARGE_PATIENCE: f64 = 8.0;
/// Share of images that count as large.
const LARGE_SHARE: f64 = 0.05;
/// Weight of the newest value in running means.
const NEWEST: f64 = 0.02;

struct BalanceState {
    queues: Vec<QueueState>,
    /// Time of the first call. All other times are seconds since then.
    base: Option<Instant>,
    next_id: u64,
    /// Running means of pixels, window pixels and bytes.
    mean: [f64; 3],
    /// Running estimate of the size, in pixels, above which an image counts as large.
    large: f64,
}

struct QueueState {
    queue: RouteQueue,
    cost: Cost,
    outstanding: VecDeque<Outstanding>,
    /// Sum of the expected decoding times of all outstanding images, in seconds.
    backlog: f64,
    /// Number of places (images that the engine decodes at the same time) that are not blocked. A
    /// place is blocked while more than two rounds of later images have overtaken its image.
    places: usize,
    /// Time at which all submitted work is expected to be finished.
    free_at: f64,
    /// Time of the next expected completion.
    next_due: f64,
    /// Running mean of the delay with which completions are observed, in seconds.
    lateness: f64,
    /// If fewer images than this are outstanding, the engine may run out of work before the host
    /// has observed the completion of its last image.
    depth: usize,
    /// Number of large images that the queue got beyond its share of all large images.
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
    /// Number of images that were submitted after this image and have finished before it.
    overtaken: usize,
}

/// Predicted time for an image if it is submitted to this queue.
#[derive(Clone, Copy)]
struct Estimate {
    queue: usize,
    /// Seconds until the image would be finished.
    finish: f64,
    overdue: bool,
}

impl BalanceState {
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

    /// Updates the running means and the threshold for large images. The threshold grows by a large
    /// step for each larger image, and shrinks by a small step for each other image.
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

    /// Number of images that the engine is decoding, that is, of occupied places.
    fn taken(&self) -> usize {
        self.outstanding.len().min(self.queue.parallel)
    }

    /// Whether a second round of images waits behind the images that are being decoded.
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

    /// Speed in images per second, for images of mean size.
    fn speed(&self, mean: [f64; 3]) -> f64 {
        self.queue.parallel as f64 / self.mean_seconds(mean).max(1e-9)
    }

    fn estimate(&self, queue: usize, work: ImageWork, now: f64) -> Estimate {
        let own = self.cost.seconds(assume(self.queue.route, work));
        let late = self.late(now);
        let waiting =
            if self.outstanding.len() < self.places { 0.0 } else { (self.free_at - now).max(0.0) };
        // An image that is t seconds overdue is expected to take t more seconds.
        Estimate { queue, finish: waiting + late + own, overdue: late > 0.0 }
    }

    /// Returns by how many seconds the next completion is overdue, beyond the usual delay with
    /// which completions are observed.
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
        // Rounding errors accumulate in the sum, so it is reset when the queue is empty.
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
            // This queue ran empty while another queue had images waiting, because the balancer
            // noticed too late that the last image of this queue had finished. So keep more images
            // in this queue.
            None if others_queue => {
                let most = (4 * self.queue.parallel).min(self.queue.capacity).max(1);
                self.depth = (2 * self.depth).min(most);
            }
            None => {}
        }
    }

    /// Advances the measured times to `now`. Completions are observed in bursts. A measuring span
    /// that has enough images ends only after the current burst.
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
