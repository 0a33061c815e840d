//! Simulation in virtual time: engines of given speeds, and a loader around them with images of
//! many sizes, few pages, and completions that are observed late.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::super::{Balancer, ImageWork, RouteQueue, Ticket};
use crate::plan::Route;
use crate::random::{SampleKey, SampleRng};

pub const ROUTES: [Route; 3] = [Route::NvjpegHardware, Route::NvjpegGpu, Route::NvjpegHybrid];

/// Engine of known speed: seconds per image, per byte and per pixel, in each of its places (images
/// that it decodes at the same time).
#[derive(Clone, Copy, Debug)]
pub struct Engine {
    pub places: usize,
    pub image: f64,
    pub byte: f64,
    pub pixel: f64,
    /// Number of images that one call decodes together. 1 if each image is decoded alone.
    pub group: usize,
    /// Fixed seconds per call.
    pub call: f64,
    pub capacity: usize,
    /// Time in seconds, and the factor by which all durations are multiplied from that time on.
    pub later: (f64, f64),
}

impl Engine {
    pub fn new(places: usize, image: f64, byte: f64, pixel: f64) -> Self {
        let capacity = USUAL.pages;
        Self { places, image, byte, pixel, group: 1, call: 0.0, capacity, later: (f64::MAX, 1.0) }
    }

    pub fn batched(self, group: usize, call: f64) -> Self {
        Self { group, call, ..self }
    }

    pub fn queue(&self, route: Route) -> RouteQueue {
        RouteQueue {
            route,
            parallel: if self.group > 1 { self.group } else { self.places },
            capacity: self.capacity,
        }
    }

    pub fn seconds(&self, image: &Image, now: f64) -> f64 {
        let ImageWork { pixels, bytes, .. } = image.work;
        let slower = if now >= self.later.0 { self.later.1 } else { 1.0 };
        let plain = self.image + bytes as f64 * self.byte + pixels as f64 * self.pixel;
        plain * image.trouble * slower
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Image {
    pub work: ImageWork,
    /// Factor by which the decoding time of this image exceeds that of other images of its size.
    pub trouble: f64,
}

/// Images with a heavy-tailed size: half are around 0.19 megapixels, one in twenty above 3, the
/// largest 24.
pub fn images(count: usize, seed: u64) -> Vec<Image> {
    let image = |index: usize| {
        let mut rng = SampleRng::new(SampleKey { seed, epoch: 0, index: index as u64 }, 0);
        let pixels = (130_000.0 / (1.0 - rng.uniform()).powf(1.05)).min(24e6);
        let bytes = pixels * rng.between(0.3, 0.8);
        let window = pixels * rng.between(0.1, 1.0);
        let work =
            ImageWork { pixels: pixels as u64, window_pixels: window as u64, bytes: bytes as u64 };
        Image { work, trouble: rng.between(0.8, 1.25) }
    };
    (0..count).map(image).collect()
}

/// A policy that chooses the queue of the next image.
pub trait Choice {
    fn choose(&mut self, free: &[bool], image: &Image, now: f64)
    -> Option<(usize, Option<Ticket>)>;
    fn finish(&mut self, _: Option<Ticket>, _: f64) {}
}

pub struct Balanced {
    pub balancer: Balancer,
    pub base: Instant,
    pub allowed: [bool; 3],
}

impl Balanced {
    pub fn new(engines: &[Engine]) -> Self {
        let queues: Vec<RouteQueue> =
            engines.iter().zip(ROUTES).map(|(it, route)| it.queue(route)).collect();
        Self { balancer: Balancer::new(&queues), base: Instant::now(), allowed: [true; 3] }
    }

    fn at(&self, seconds: f64) -> Instant {
        self.base + Duration::from_secs_f64(seconds)
    }
}

pub fn lane_of(route: Route) -> usize {
    ROUTES.iter().position(|&it| it == route).unwrap()
}

impl Choice for Balanced {
    fn choose(
        &mut self,
        free: &[bool],
        image: &Image,
        now: f64,
    ) -> Option<(usize, Option<Ticket>)> {
        let allowed = |route| self.allowed[lane_of(route)];
        let ticket = self.balancer.choose(allowed, image.work, self.at(now))?;
        let queue = lane_of(ticket.route());
        assert!(free[queue], "the balancer must not choose a queue that is full");
        assert!(self.allowed[queue], "the balancer must not choose a route that is not allowed");
        Some((queue, Some(ticket)))
    }

    fn finish(&mut self, ticket: Option<Ticket>, now: f64) {
        self.balancer.finish(ticket.unwrap(), self.at(now));
    }
}

/// Fixed shares: each image is given to the queue that is furthest behind its share.
struct Fixed {
    shares: Vec<f64>,
    given: Vec<f64>,
}

impl Choice for Fixed {
    fn choose(&mut self, free: &[bool], _: &Image, _: f64) -> Option<(usize, Option<Ticket>)> {
        let total: f64 = self.given.iter().sum::<f64>() + 1.0;
        let behind = |queue: usize| self.shares[queue] * total - self.given[queue];
        let queue = (0..self.shares.len()).max_by(|&a, &b| behind(a).total_cmp(&behind(b)))?;
        if !free[queue] {
            return None;
        }
        self.given[queue] += 1.0;
        Some((queue, None))
    }
}

/// Properties of the loader around the engines.
#[derive(Clone, Copy)]
pub struct Surroundings {
    /// Maximum number of images in flight.
    pub pages: usize,
    /// Seconds between reading two images.
    pub read: f64,
    /// Seconds between two observations of completions.
    pub look: f64,
}

pub const USUAL: Surroundings = Surroundings { pages: 128, read: 15e-6, look: 400e-6 };

#[derive(Default)]
pub struct Outcome {
    /// Images per second, without the last 200 images, because their rate depends on the slowest
    /// engine.
    pub rate: f64,
    /// Queue of each image.
    pub queues: Vec<usize>,
    /// Seconds from the choice until completion, for each image.
    pub latencies: Vec<f64>,
    /// Share of the time in which an engine was idle while another had more than two rounds of
    /// images waiting.
    pub idle: f64,
}

/// An image in flight.
struct Running {
    image: usize,
    begun: f64,
    ticket: Option<Ticket>,
}

/// Engine with its images, which runs in its own virtual time. The loader sees completions only
/// when it observes them.
struct Working<'a> {
    engine: Engine,
    images: &'a [Image],
    waiting: VecDeque<Running>,
    /// End time and images of each running call.
    calls: Vec<(f64, Vec<Running>)>,
    over: Vec<(f64, Running)>,
    /// Number of submitted images whose completion was not observed yet.
    taken: usize,
}

impl<'a> Working<'a> {
    fn new(engine: Engine, images: &'a [Image]) -> Self {
        let (waiting, calls, over) = (VecDeque::new(), Vec::new(), Vec::new());
        Self { engine, images, waiting, calls, over, taken: 0 }
    }

    /// Ends and begins calls in chronological order, up to now.
    fn run(&mut self, now: f64) {
        self.begin(0.0);
        loop {
            let ends = self.calls.iter().map(|call| call.0).enumerate();
            let Some((at, end)) = ends.min_by(|a, b| a.1.total_cmp(&b.1)) else { return };
            if end > now {
                return;
            }
            let (_, content) = self.calls.swap_remove(at);
            self.over.extend(content.into_iter().map(|it| (end, it)));
            self.begin(end);
        }
    }

    /// Begins as many calls as there are free places, at time `since` or later.
    fn begin(&mut self, since: f64) {
        let Engine { group, call, places, .. } = self.engine;
        let most = if group > 1 { 1 } else { places };
        while self.calls.len() < most && !self.waiting.is_empty() {
            let content: Vec<Running> =
                self.waiting.drain(..group.min(self.waiting.len())).collect();
            let begin = content.iter().fold(since, |begin, it| begin.max(it.begun));
            let works = content.iter().map(|it| self.engine.seconds(&self.images[it.image], begin));
            // The images of a group are divided among the places of the engine.
            let shared = if group > 1 { places as f64 } else { 1.0 };
            self.calls.push((begin + call + works.sum::<f64>() / shared, content));
        }
    }
}

/// Runs all images through the engines.
pub fn simulate(
    engines: &[Engine],
    images: &[Image],
    choice: &mut impl Choice,
    around: Surroundings,
) -> Outcome {
    let mut working: Vec<Working> = engines.iter().map(|&it| Working::new(it, images)).collect();
    let mut outcome = Outcome { latencies: vec![0.0; images.len()], ..Outcome::default() };
    let (mut now, mut next, mut done, mut looked, mut idle) = (0.0, 0, 0, 0.0, 0.0);
    while done < images.len() {
        working.iter_mut().for_each(|engine| engine.run(now));
        let idles = |it: &Working| it.waiting.is_empty() && it.calls.is_empty();
        let has_queue = |it: &Working| it.waiting.len() > 2 * it.engine.queue(Route::Cpu).parallel;
        if next < images.len() && working.iter().any(idles) && working.iter().any(has_queue) {
            idle += around.read;
        }
        if now >= looked + around.look {
            looked = now;
            for engine in &mut working {
                for (end, running) in engine.over.drain(..) {
                    outcome.latencies[running.image] = end - running.begun;
                    choice.finish(running.ticket, now);
                    engine.taken -= 1;
                    done += 1;
                    if done + 200 == images.len() {
                        outcome.rate = done as f64 / now;
                    }
                }
            }
        }
        let in_flight: usize = working.iter().map(|it| it.taken).sum();
        if next < images.len() && in_flight < around.pages {
            let free: Vec<bool> = working.iter().map(|it| it.taken < it.engine.capacity).collect();
            if let Some((queue, ticket)) = choice.choose(&free, &images[next], now) {
                working[queue].taken += 1;
                working[queue].waiting.push_back(Running { image: next, begun: now, ticket });
                outcome.queues.push(queue);
                next += 1;
            }
        }
        now += around.read;
    }
    outcome.idle = idle / now;
    outcome
}

/// Throughput with the best fixed shares of the engines, and these shares.
pub fn best_fixed(engines: &[Engine], images: &[Image], around: Surroundings) -> (f64, Vec<f64>) {
    let rate = |shares: &[f64]| {
        let mut fixed = Fixed { shares: shares.to_vec(), given: vec![0.0; shares.len()] };
        simulate(engines, images, &mut fixed, around).rate
    };
    let mut best = (0.0, Vec::new());
    let mut consider = |first: f64, second: f64| {
        let shares = vec![first, second, 1.0 - first - second];
        if shares.iter().all(|&share| share > -1e-9) {
            let rate = rate(&shares);
            if rate > best.0 {
                best = (rate, shares);
            }
        }
        best.1.clone()
    };
    let mut centre = Vec::new();
    for first in 0..=10 {
        for second in 0..=10 - first {
            centre = consider(f64::from(first) / 10.0, f64::from(second) / 10.0);
        }
    }
    for step in [0.05, 0.025, 0.0125] {
        let [first, second, _] = centre[..] else { unreachable!() };
        for (a, b) in [(-1.0, 0.0), (1.0, 0.0), (0.0, -1.0), (0.0, 1.0), (-1.0, 1.0), (1.0, -1.0)] {
            centre = consider(first + a * step, second + b * step);
        }
    }
    best
}

/// Five mixes of speeds, by name.
pub fn mixes() -> [(&'static str, [Engine; 3]); 5] {
    let hardware = Engine::new(7, 60e-6, 0.0, 4e-9).batched(16, 300e-6);
    let cuda = Engine::new(4, 150e-6, 1e-9, 1e-9);
    let host = Engine::new(8, 60e-6, 8e-9, 0.5e-9);
    [
        (
            "hardware fast, cuda slow",
            [hardware, Engine::new(2, 900e-6, 3e-9, 6e-9), Engine::new(4, 400e-6, 9e-9, 1e-9)],
        ),
        (
            "all alike",
            [
                Engine::new(4, 100e-6, 0.0, 4e-9),
                Engine::new(4, 100e-6, 0.0, 4e-9),
                Engine::new(4, 100e-6, 0.0, 4e-9),
            ],
        ),
        ("few CPU threads", [hardware, cuda, Engine::new(1, 60e-6, 9e-9, 2e-9)]),
        (
            "one engine with a high cost per call and large groups",
            [Engine::new(7, 10e-6, 0.0, 2e-9).batched(32, 6e-3), cuda, host],
        ),
        (
            "one engine becomes four times slower midway",
            [hardware, Engine { later: (0.25, 4.0), ..Engine::new(6, 100e-6, 1e-9, 1e-9) }, host],
        ),
    ]
}
