//! The balancer against engines whose speeds are given, in virtual time: what it reaches, beside the best share
//! that could have been fixed beforehand.

use std::time::{Duration, Instant};

use crate::plan::Route;
use crate::random::{SampleKey, SampleRng};

use super::{Balancer, Lane, PictureWork, Ticket};

const ROUTES: [Route; 3] = [Route::Hardware, Route::Cuda, Route::Host];

/// An engine of known speed: so many seconds a picture, a byte and a pixel, in each of its places.
#[derive(Clone, Copy, Debug)]
struct Engine {
    places: usize,
    picture: f64,
    byte: f64,
    pixel: f64,
    /// Pictures that are taken and end together in one call, and what a call costs besides. 1 where each is alone.
    group: usize,
    call: f64,
    capacity: usize,
    /// From the given second on, all of it takes so many times as long.
    later: (f64, f64),
}

impl Engine {
    fn new(places: usize, picture: f64, byte: f64, pixel: f64) -> Self {
        let capacity = USUAL.pages;
        Self { places, picture, byte, pixel, group: 1, call: 0.0, capacity, later: (f64::MAX, 1.0) }
    }

    fn batched(self, group: usize, call: f64) -> Self {
        Self { group, call, ..self }
    }

    fn lane(&self, route: Route) -> Lane {
        Lane {
            route,
            parallel: if self.group > 1 { self.group } else { self.places },
            capacity: self.capacity,
        }
    }

    fn seconds(&self, picture: &Picture, now: f64) -> f64 {
        let PictureWork { pixels, bytes, .. } = picture.work;
        let slower = if now >= self.later.0 { self.later.1 } else { 1.0 };
        let plain = self.picture + bytes as f64 * self.byte + pixels as f64 * self.pixel;
        plain * picture.trouble * slower
    }
}

#[derive(Clone, Copy, Debug)]
struct Picture {
    work: PictureWork,
    /// How many times longer than others of its size it takes.
    trouble: f64,
}

/// Sizes with a heavy tail: half around 0.19 megapixels, one in twenty above 3, the largest 24.
fn pictures(count: usize, seed: u64) -> Vec<Picture> {
    let picture = |index: usize| {
        let mut rng = SampleRng::new(SampleKey { seed, epoch: 0, index: index as u64 }, 0);
        let pixels = (130_000.0 / (1.0 - rng.uniform()).powf(1.05)).min(24e6);
        let bytes = pixels * rng.between(0.3, 0.8);
        let window = pixels * rng.between(0.1, 1.0);
        let work = PictureWork {
            pixels: pixels as u64,
            window_pixels: window as u64,
            bytes: bytes as u64,
        };
        Picture { work, trouble: rng.between(0.8, 1.25) }
    };
    (0..count).map(picture).collect()
}

/// Who says where the next picture goes.
trait Choice {
    fn choose(
        &mut self,
        free: &[bool],
        picture: &Picture,
        now: f64,
    ) -> Option<(usize, Option<Ticket>)>;
    fn finish(&mut self, _: Option<Ticket>, _: f64) {}
}

struct Balanced {
    balancer: Balancer,
    base: Instant,
    allowed: [bool; 3],
}

impl Balanced {
    fn new(engines: &[Engine]) -> Self {
        let lanes: Vec<Lane> =
            engines.iter().zip(ROUTES).map(|(it, route)| it.lane(route)).collect();
        Self { balancer: Balancer::new(&lanes), base: Instant::now(), allowed: [true; 3] }
    }

    fn at(&self, seconds: f64) -> Instant {
        self.base + Duration::from_secs_f64(seconds)
    }
}

fn lane_of(route: Route) -> usize {
    ROUTES.iter().position(|&it| it == route).unwrap()
}

impl Choice for Balanced {
    fn choose(
        &mut self,
        free: &[bool],
        picture: &Picture,
        now: f64,
    ) -> Option<(usize, Option<Ticket>)> {
        let allowed = |route| self.allowed[lane_of(route)];
        let ticket = self.balancer.choose(allowed, picture.work, self.at(now))?;
        let lane = lane_of(ticket.route());
        assert!(free[lane], "no more than the lane's capacity");
        assert!(self.allowed[lane], "only routes that are allowed");
        Some((lane, Some(ticket)))
    }

    fn finish(&mut self, ticket: Option<Ticket>, now: f64) {
        self.balancer.finish(ticket.unwrap(), self.at(now));
    }
}

/// Shares that are fixed beforehand: each picture goes to the lane that is most behind its share.
struct Fixed {
    shares: Vec<f64>,
    given: Vec<f64>,
}

impl Choice for Fixed {
    fn choose(&mut self, free: &[bool], _: &Picture, _: f64) -> Option<(usize, Option<Ticket>)> {
        let total: f64 = self.given.iter().sum::<f64>() + 1.0;
        let behind = |lane: usize| self.shares[lane] * total - self.given[lane];
        let lane = (0..self.shares.len()).max_by(|&a, &b| behind(a).total_cmp(&behind(b)))?;
        if !free[lane] {
            return None;
        }
        self.given[lane] += 1.0;
        Some((lane, None))
    }
}

/// How the loader around the engines behaves.
#[derive(Clone, Copy)]
struct Surroundings {
    /// Pictures that may be in flight.
    pages: usize,
    /// Seconds from one picture's being read to the next one's.
    read: f64,
    /// Seconds between two looks at what is over.
    look: f64,
}

const USUAL: Surroundings = Surroundings { pages: 128, read: 15e-6, look: 400e-6 };

#[derive(Default)]
struct Outcome {
    /// Pictures a second, until all but the last 200 were over: the rest is over when its slowest is.
    rate: f64,
    /// Lane of each picture.
    lanes: Vec<usize>,
    /// Seconds from the choice until it was over, of each picture.
    latencies: Vec<f64>,
    /// Share of the time in which an engine had a free place while another had more pictures waiting than it works on at
    /// once twice over.
    idle: f64,
}

struct Running {
    picture: usize,
    begun: f64,
    ticket: Option<Ticket>,
}

/// Runs all pictures through the engines.
fn simulate(
    engines: &[Engine],
    pictures: &[Picture],
    choice: &mut impl Choice,
    around: Surroundings,
) -> Outcome {
    let lanes = engines.len();
    let mut waiting: Vec<std::collections::VecDeque<Running>> =
        (0..lanes).map(|_| Default::default()).collect();
    // End and content of each place of each engine.
    let mut places: Vec<Vec<(f64, Vec<Running>)>> = engines.iter().map(|_| Vec::new()).collect();
    let mut over: Vec<(usize, Running)> = Vec::new();
    let mut taken = vec![0usize; lanes];
    let mut outcome = Outcome { latencies: vec![0.0; pictures.len()], ..Outcome::default() };
    let (mut now, mut next, mut done, mut looked, mut idle) = (0.0, 0, 0, 0.0, 0.0);
    let mut last = 0.0f64;
    while done < pictures.len() {
        // Everything that happens inside the engines up to now, in their own time.
        for (lane, engine) in engines.iter().enumerate() {
            loop {
                let ended = places[lane].iter().position(|(end, _)| *end <= now);
                let mut since = last;
                if let Some(at) = ended {
                    let first = (0..places[lane].len())
                        .min_by(|&a, &b| places[lane][a].0.total_cmp(&places[lane][b].0))
                        .unwrap_or(at);
                    let (end, content) = places[lane].swap_remove(first);
                    since = end;
                    for running in content {
                        outcome.latencies[running.picture] = end - running.begun;
                        over.push((lane, running));
                    }
                }
                let calls = if engine.group > 1 { 1 } else { engine.places };
                while places[lane].len() < calls && !waiting[lane].is_empty() {
                    let count = engine.group.min(waiting[lane].len());
                    let content: Vec<Running> = waiting[lane].drain(..count).collect();
                    let begin = content.iter().fold(since, |begin, it| begin.max(it.begun));
                    let works =
                        content.iter().map(|it| engine.seconds(&pictures[it.picture], begin));
                    let work = if engine.group > 1 {
                        // The engine's places share the call's pictures.
                        engine.call + works.sum::<f64>() / engine.places as f64
                    } else {
                        works.sum()
                    };
                    places[lane].push((begin + work, content));
                }
                if ended.is_none() {
                    break;
                }
            }
        }
        let free_place = |lane: usize| waiting[lane].is_empty() && places[lane].is_empty();
        let queued =
            |lane: usize| waiting[lane].len() > 2 * engines[lane].lane(ROUTES[lane]).parallel;
        if next < pictures.len() && (0..lanes).any(free_place) && (0..lanes).any(queued) {
            idle += now - last;
        }
        last = now;
        if now >= looked + around.look {
            looked = now;
            for (lane, running) in over.drain(..) {
                taken[lane] -= 1;
                done += 1;
                if done + 200 == pictures.len() {
                    outcome.rate = done as f64 / now;
                }
                choice.finish(running.ticket, now);
            }
        }
        let in_flight: usize = taken.iter().sum();
        if next < pictures.len() && in_flight < around.pages {
            let free: Vec<bool> = (0..lanes).map(|it| taken[it] < engines[it].capacity).collect();
            if let Some((lane, ticket)) = choice.choose(&free, &pictures[next], now) {
                taken[lane] += 1;
                waiting[lane].push_back(Running { picture: next, begun: now, ticket });
                outcome.lanes.push(lane);
                next += 1;
            }
        }
        now += around.read;
    }
    outcome.idle = idle / now;
    outcome
}

/// The rate of the best fixed share, and the share.
fn best_fixed(engines: &[Engine], pictures: &[Picture], around: Surroundings) -> (f64, Vec<f64>) {
    let rate = |shares: &[f64]| {
        let mut fixed = Fixed { shares: shares.to_vec(), given: vec![0.0; shares.len()] };
        simulate(engines, pictures, &mut fixed, around).rate
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
fn mixes() -> [(&'static str, [Engine; 3]); 5] {
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

#[test]
fn the_reached_rate_is_near_that_of_the_best_fixed_share() {
    for (name, engines) in mixes() {
        let pictures = pictures(6000, 1);
        let (best, shares) = best_fixed(&engines, &pictures, USUAL);
        let reached = simulate(&engines, &pictures, &mut Balanced::new(&engines), USUAL);
        println!("{name}: {:.0}/s, best {best:.0}/s {shares:.3?} {}", reached.rate, reached.idle);
        assert!(reached.rate >= 0.95 * best, "{name}: {:.0}/s, best {best:.0}/s", reached.rate);
    }
}

#[test]
fn no_engine_idles_while_another_has_a_queue() {
    for (name, engines) in mixes() {
        let idle = simulate(&engines, &pictures(6000, 2), &mut Balanced::new(&engines), USUAL).idle;
        println!("{name}: idle {idle}");
        assert!(idle < 0.01, "{name}: {idle:.4} of the time");
    }
}

/// Where an engine takes pictures at all, it has neither twice its part of the largest, nor less than a third of it.
#[test]
fn the_largest_pictures_are_spread() {
    for (name, engines) in mixes() {
        let pictures = pictures(6000, 3);
        let outcome = simulate(&engines, &pictures, &mut Balanced::new(&engines), USUAL);
        let mut order: Vec<usize> = (0..pictures.len()).collect();
        order.sort_by_key(|&it| std::cmp::Reverse(pictures[it].work.pixels));
        let largest = &order[..pictures.len() / 20];
        for lane in 0..engines.len() {
            let share = |of: &[usize]| {
                of.iter().filter(|&&it| outcome.lanes[it] == lane).count() as f64 / of.len() as f64
            };
            let (all, large) = (share(&order), share(largest));
            println!("{name}: lane {lane} {all:.3} {large:.3}");
            assert!(
                large < 2.0 * all + 0.02 && large > all / 3.0 - 0.02,
                "{name}: lane {lane} has {all:.3} of all and {large:.3} of the largest"
            );
        }
    }
}

/// Pictures of one size, so that what one of them does to the others can be seen.
fn equal_pictures(count: usize) -> Vec<Picture> {
    let work = PictureWork { pixels: 187_500, window_pixels: 90_000, bytes: 105_000 };
    vec![Picture { work, trouble: 1.0 }; count]
}

#[test]
fn a_picture_a_hundred_times_slower_than_expected_does_not_hold_up_the_others() {
    let engines = [
        Engine::new(1, 100e-6, 0.0, 3e-9),
        Engine::new(2, 200e-6, 0.0, 4e-9),
        Engine::new(4, 400e-6, 0.0, 6e-9),
    ];
    let well = equal_pictures(4000);
    let usual = simulate(&engines, &well, &mut Balanced::new(&engines), USUAL);
    let slowest = usual.latencies.iter().copied().fold(0.0, f64::max);
    for lane in 0..3 {
        let at = (2000..).find(|&it| usual.lanes[it] == lane).unwrap();
        let mut sick = well.clone();
        sick[at].trouble = 100.0;
        let outcome = simulate(&engines, &sick, &mut Balanced::new(&engines), USUAL);
        assert_eq!(outcome.lanes[..at], usual.lanes[..at]);
        // Those that were behind it already must wait; no others.
        let held: Vec<usize> =
            (0..4000).filter(|&it| it != at && outcome.latencies[it] > 2.0 * slowest).collect();
        let own = engines[lane].seconds(&sick[at], 0.0);
        println!(
            "own {own}, slowest {slowest}, held {held:?} lane {lane} {} {}",
            outcome.rate, usual.rate
        );
        assert!(held.iter().all(|&it| it < at + 2 * USUAL.pages), "{held:?}");
        assert!(held.iter().all(|&it| outcome.latencies[it] < own + 2.0 * slowest), "{held:?}");
        // What is lost is at most what the engine that it holds would have done.
        assert!(outcome.rate > 0.9 * usual.rate, "{} of {}", outcome.rate, usual.rate);
    }
}

#[test]
fn capacities_and_forbidden_routes_are_never_violated() {
    let (_, engines) = mixes()[0];
    let pictures = pictures(3000, 5);
    // `Balanced` checks each choice.
    for allowed in 1u32..8 {
        let mut balanced = Balanced::new(&engines);
        balanced.allowed = [0, 1, 2].map(|lane| allowed >> lane & 1 == 1);
        let outcome = simulate(&engines, &pictures, &mut balanced, USUAL);
        for lane in 0..3 {
            assert_eq!(outcome.lanes.contains(&lane), balanced.allowed[lane], "{allowed:b}");
        }
    }
    let none = Balancer::new(&[Lane { route: Route::Cpu, parallel: 1, capacity: 0 }]);
    assert!(none.choose(|_| true, pictures[0].work, Instant::now()).is_none());
    let one = Balancer::new(&[Lane { route: Route::Cpu, parallel: 4, capacity: 1 }]);
    let now = Instant::now();
    assert!(one.choose(|_| false, pictures[0].work, now).is_none());
    let ticket = one.choose(|_| true, pictures[0].work, now).unwrap();
    assert!(one.choose(|_| true, pictures[1].work, now).is_none(), "full");
    one.cancel(ticket);
    assert!(one.choose(|_| true, pictures[1].work, now).is_some(), "room again");
}

#[test]
fn the_same_calls_give_the_same_choices() {
    let (_, engines) = mixes()[4];
    let pictures = pictures(3000, 6);
    let run = || simulate(&engines, &pictures, &mut Balanced::new(&engines), USUAL).lanes;
    assert_eq!(run(), run());
}

#[test]
fn the_speed_that_is_learnt_is_the_engines_own_although_completions_are_seen_late() {
    let engines = [
        Engine::new(4, 100e-6, 0.0, 4e-9),
        Engine::new(2, 400e-6, 0.0, 16e-9),
        Engine::new(8, 50e-6, 8e-9, 0.5e-9),
    ];
    let pictures = pictures(6000, 7);
    for look in [20e-6, 400e-6, 3e-3] {
        let mut balanced = Balanced::new(&engines);
        simulate(&engines, &pictures, &mut balanced, Surroundings { look, ..USUAL });
        let state = balanced.balancer.state();
        for (lane, engine) in engines.iter().enumerate() {
            let [pixels, _, bytes] = state.mean.map(|mean| mean as u64);
            let work = PictureWork { pixels, window_pixels: pixels / 2, bytes };
            let real = engine.seconds(&Picture { work, trouble: 1.0 }, 0.0);
            let learnt = state.lanes[lane].mean_seconds(state.mean);
            println!("{:?} mean {:?}", state.lanes[lane].cost, state.mean);
            println!("look {look}: lane {lane} {learnt:.6} real {real:.6}");
            assert!((0.6..1.7).contains(&(learnt / real)), "lane {lane}: {learnt}, really {real}");
        }
    }
}

#[test]
fn an_engine_that_becomes_faster_or_slower_is_found_out() {
    let steady = Engine::new(4, 100e-6, 0.0, 4e-9);
    for factor in [0.05, 20.0] {
        let changing = Engine { later: (0.3, factor), ..Engine::new(4, 400e-6, 0.0, 16e-9) };
        let engines = [changing, steady, steady];
        let pictures = pictures(8000, 8);
        let outcome = simulate(&engines, &pictures, &mut Balanced::new(&engines), USUAL);
        let share = |part: &[usize]| {
            part.iter().filter(|&&lane| lane == 0).count() as f64 / part.len() as f64
        };
        let (before, after) = (share(&outcome.lanes[200..800]), share(&outcome.lanes[7000..]));
        println!("{factor}: {before:.3} {after:.3}");
        if factor < 1.0 {
            assert!(before < 0.25 && after > 0.5, "{before:.3}, then {after:.3}");
        } else {
            assert!(before > 0.05 && after < 0.03, "{before:.3}, then {after:.3}");
        }
    }
}

#[test]
fn the_report_adds_up() {
    let (_, engines) = mixes()[1];
    let pictures = pictures(2000, 9);
    let mut balanced = Balanced::new(&engines);
    let outcome = simulate(&engines, &pictures, &mut balanced, USUAL);
    let report = balanced.balancer.report();
    assert_eq!(report.iter().map(|lane| lane.route).collect::<Vec<_>>(), ROUTES);
    assert_eq!(report.iter().map(|lane| lane.pictures).sum::<u64>(), 2000);
    assert!((report.iter().map(|lane| lane.share).sum::<f64>() - 1.0).abs() < 1e-9);
    for (lane, report) in report.iter().enumerate() {
        let pictures = outcome.lanes.iter().filter(|&&it| it == lane).count();
        assert_eq!(report.pictures, pictures as u64);
        assert!((0.5..=1.0).contains(&report.busy), "{report:?}");
        assert!(report.queue_seconds > 0.0 && report.queue_seconds < 0.1, "{report:?}");
    }
}
