//! Tests the automatic prefetch window (the maximum number of requested samples) on a simulated
//! storage. Compares the chosen window with the best fixed one.

mod choice;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

use feedwater::internals::tune::{PrefetchDecision, PrefetchDepth, TakenBatch};

/// A simulated storage with a loader and a consumer.
#[derive(Clone)]
struct Mix {
    name: &'static str,
    /// Value of the setting `storage.connections`. The largest prefetch window is twice this value.
    connections: usize,
    workers: usize,
    batch: usize,
    slots: usize,
    /// Phases of the run: the batch at which each phase begins, and the conditions in this phase.
    /// The first phase begins at batch 0.
    phases: Vec<(usize, World)>,
    batches: usize,
}

#[derive(Clone, Copy)]
struct World {
    /// Mean of a request's time without queueing in milliseconds, and its coefficient of variation.
    request: (f64, f64),
    /// Number of requests per thousand that are late, and the time in milliseconds that these take.
    stragglers: (u64, f64),
    /// Maximum number of requests per second that the storage starts; 0 for no limit.
    limit: f64,
    /// Maximum number of requests that the storage serves at the same time; 0 for no limit.
    servers: usize,
    decode: (f64, f64),
    step: (f64, f64),
    /// Number of batches after which the consumer pauses (0 for never), and the length of the pause
    /// in milliseconds.
    pause: (usize, f64),
}

fn world() -> World {
    World {
        request: (50.0, 0.2),
        stragglers: (0, 0.0),
        limit: 0.0,
        servers: 0,
        decode: (4.0, 0.3),
        step: (1.0, 0.0),
        pause: (0, 0.0),
    }
}

fn mix(name: &'static str, world: World) -> Mix {
    let phases = vec![(0, world)];
    Mix { name, connections: 64, workers: 8, batch: 32, slots: 3, phases, batches: 250 }
}

/// Appends phases that begin at the given batches. The run ends 250 batches after the begin of the
/// last phase.
fn then(mut mix: Mix, later: &[(usize, World)]) -> Mix {
    mix.phases.extend(later);
    mix.batches = later.last().unwrap().0 + 250;
    mix
}

fn mixes() -> Vec<Mix> {
    let slow = World { step: (500.0, 0.05), ..world() };
    let limited = World { request: (20.0, 0.2), limit: 400.0, ..world() };
    vec![
        mix("50 ms, and a loader that is faster than 64 connections", world()),
        mix("a rate limit of 400 a second", limited),
        mix(
            "stragglers: one in fifty takes 600 ms",
            World { request: (30.0, 0.3), stragglers: (20, 600.0), decode: (16.0, 0.3), ..world() },
        ),
        Mix {
            connections: 128,
            ..mix(
                "a far storage, 200 ms, and a consumer of 300 samples a second",
                World { request: (200.0, 0.2), step: (107.0, 0.1), ..world() },
            )
        },
        mix("a quick server next door", World { request: (1.0, 0.5), ..world() }),
        mix("a slow consumer", slow),
        mix(
            "a slow consumer, and times that vary widely",
            World { request: (50.0, 1.5), step: (250.0, 0.3), ..world() },
        ),
        mix(
            "times that vary widely, and decoding limits",
            World { request: (30.0, 1.5), decode: (10.0, 0.5), ..world() },
        ),
        mix("four servers of 10 ms", World { request: (10.0, 0.3), servers: 4, ..world() }),
        Mix {
            connections: 256,
            batch: 128,
            ..mix(
                "room for 512, of which half are needed",
                World { request: (100.0, 0.1), decode: (3.5, 0.2), ..world() },
            )
        },
        mix(
            "a consumer that does something else after every tenth batch",
            World { step: (40.0, 0.1), pause: (10, 400.0), request: (20.0, 0.3), ..world() },
        ),
        Mix {
            connections: 3,
            workers: 2,
            ..mix("room for 6", World { decode: (2.0, 0.3), ..world() })
        },
        then(
            mix(
                "a link that becomes six times as long, and short again",
                World { request: (20.0, 0.2), step: (40.0, 0.1), ..world() },
            ),
            &[
                (250, World { request: (120.0, 0.2), step: (60.0, 0.1), ..world() }),
                (500, World { request: (20.0, 0.2), step: (40.0, 0.1), ..world() }),
            ],
        ),
        then(
            mix("a slow consumer that becomes fast", slow),
            &[(250, World { step: (30.0, 0.1), ..world() })],
        ),
        then(
            mix("a fast consumer that becomes slow", World { step: (30.0, 0.1), ..world() }),
            &[(250, slow)],
        ),
        then(
            mix("a rate limit that comes and goes", World { request: (20.0, 0.2), ..world() }),
            &[(250, limited), (500, World { request: (20.0, 0.2), ..world() })],
        ),
    ]
}

impl Mix {
    fn world(&self, batch: usize) -> &World {
        &self.phases.iter().rfind(|(from, _)| *from <= batch).unwrap().1
    }

    fn most(&self) -> usize {
        2 * self.connections
    }

    /// For each phase, returns two batches: the batch from which the prefetch window counts as
    /// settled (50 batches after the phase begins), and the batch at which the phase ends.
    fn spans(&self) -> Vec<(usize, usize)> {
        let ends = self.phases.iter().skip(1).map(|it| it.0).chain([self.batches]);
        self.phases.iter().zip(ends).map(|((from, _), end)| (from + 50, end)).collect()
    }

    /// For each phase, returns the best throughput of all fixed prefetch windows, and the smallest
    /// window that reaches 99 % of this throughput.
    fn best(&self) -> Vec<(f64, usize)> {
        let mut windows: Vec<usize> = vec![1];
        while let Some(&last) = windows.last()
            && last < self.most()
        {
            windows.push((last + 1).max(last * 6 / 5).min(self.most()));
        }
        let runs: Vec<(usize, Run)> =
            windows.into_iter().map(|it| (it, run(self, &mut Fixed(it)))).collect();
        let best = |&span: &(usize, usize)| {
            let rate = |run: &Run| run.rate(self.batch, span);
            let best = runs.iter().map(|(_, run)| rate(run)).fold(0.0, f64::max);
            let (window, _) = runs.iter().find(|(_, run)| rate(run) >= 0.99 * best).unwrap();
            (best, *window)
        };
        self.spans().iter().map(best).collect()
    }
}

/// Returns a pseudo-random number from 0 to 1 that depends only on `seed` and `number`.
fn chance(seed: u64, number: u64) -> f64 {
    let mut x = (seed << 40) ^ number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    for factor in [0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb, 0xd6e8_feb8_6659_fd93_u64] {
        x = (x ^ (x >> 29)).wrapping_mul(factor);
    }
    ((x ^ (x >> 32)) >> 11) as f64 / (1u64 << 53) as f64
}

/// Returns a lognormal time in seconds. The mean is in milliseconds, and `cv` is the coefficient of
/// variation.
fn draw((mean, cv): (f64, f64), seed: u64, number: u64) -> f64 {
    let (a, b) = (chance(seed, 2 * number), chance(seed, 2 * number + 1));
    let normal = (-2.0 * (1.0 - a).ln()).sqrt() * (std::f64::consts::TAU * b).cos();
    let variance = (1.0 + cv * cv).ln();
    1e-3 * mean * (variance.sqrt() * normal - 0.5 * variance).exp()
}

/// A strategy that chooses the prefetch window.
trait Chooser {
    fn window(&self) -> usize;
    fn handed_out(&mut self) {}
    fn read(&mut self, _request: f64, _waited: f64) {}
    fn batch(&mut self, _taken: &TakenBatch) {}
}

struct Fixed(usize);

impl Chooser for Fixed {
    fn window(&self) -> usize {
        self.0
    }
}

struct Automatic {
    chooser: PrefetchDepth,
    decisions: Vec<PrefetchDecision>,
    least_most: (usize, usize),
    most: usize,
    /// `told` is whether arrival times are known, and `alone` whether no other tuning is in
    /// progress.
    told: bool,
    alone: bool,
}

impl Automatic {
    fn new(mix: &Mix) -> Self {
        let chooser = PrefetchDepth::new(mix.most());
        let (least_most, most) = ((usize::MAX, 0), mix.most());
        Self { chooser, decisions: Vec::new(), least_most, most, told: true, alone: true }
    }

    /// Returns how often the prefetch window changed between the batches `from` and `to`.
    fn changes(&self, (from, to): (usize, usize)) -> usize {
        let decisions =
            self.decisions.iter().filter(|it| (from..to).contains(&(it.batch as usize)));
        let mut window = self.at(from - 1);
        decisions.filter(|it| std::mem::replace(&mut window, it.window) != it.window).count()
    }

    /// Returns the prefetch window after `batches` batches.
    fn at(&self, batches: usize) -> usize {
        let before = self.decisions.iter().rfind(|it| it.batch <= batches as u64);
        before.map_or(self.most, |it| it.window)
    }
}

impl Chooser for Automatic {
    fn window(&self) -> usize {
        self.chooser.window()
    }
    fn handed_out(&mut self) {
        self.chooser.handed_out();
        let (least, most) = self.least_most;
        self.least_most = (least.min(self.window()), most.max(self.window()));
    }
    fn read(&mut self, request: f64, waited: f64) {
        self.chooser.read(self.told.then_some(request), waited);
    }
    fn batch(&mut self, taken: &TakenBatch) {
        let taken = TakenBatch { alone: self.alone, ..*taken };
        self.decisions.extend(self.chooser.batch(&taken));
    }
}

/// Result of a simulation: the times at which the consumer took the batches.
struct Run {
    taken: Vec<f64>,
}

impl Run {
    fn rate(&self, batch: usize, (from, to): (usize, usize)) -> f64 {
        ((to - from - 1) * batch) as f64 / (self.taken[to - 1] - self.taken[from])
    }
}

/// Events of the simulation. Their times are integers in nanoseconds, because floats have no total
/// order.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The storage has answered the request for the sample at a position.
    Answer(usize),
    /// A worker has decoded the sample at a position.
    Decoded(usize),
    /// The consumer has ended its step and returns the batch.
    Step,
}

struct Simulation<'a> {
    mix: &'a Mix,
    now: u64,
    events: BinaryHeap<Reverse<(u64, Event)>>,
    /// `handed_out` is the number of positions that workers have received, and `asked` the next
    /// position to request.
    handed_out: usize,
    asked: usize,
    /// For each sample that is requested but not read: when it was requested, and how long its
    /// request took, if it was answered.
    requests: HashMap<usize, (u64, Option<u64>)>,
    /// `queue` has the requests that wait for a connection, and `in_flight` is the number of
    /// requests that have one.
    queue: VecDeque<usize>,
    in_flight: usize,
    /// `next_begin` is when the storage can start the next request, and `servers` when each of its
    /// servers becomes free.
    next_begin: u64,
    servers: BinaryHeap<Reverse<u64>>,
    idle: usize,
    /// Workers that wait for the sample of their position, each with the start of its wait.
    waiting: HashMap<usize, u64>,
    free_slots: usize,
    /// Number of unfinished samples of each batch, from the first unpublished batch on.
    open: VecDeque<usize>,
    published: usize,
    /// Time since which the consumer has been waiting, or `None` if it is not waiting.
    asks: Option<u64>,
    taken: Vec<f64>,
}

fn run(mix: &Mix, chooser: &mut dyn Chooser) -> Run {
    let mut simulation = Simulation {
        mix,
        now: 0,
        events: BinaryHeap::new(),
        handed_out: 0,
        asked: 0,
        requests: HashMap::new(),
        queue: VecDeque::new(),
        in_flight: 0,
        next_begin: 0,
        servers: BinaryHeap::new(),
        idle: mix.workers,
        waiting: HashMap::new(),
        free_slots: mix.slots,
        open: VecDeque::new(),
        published: 0,
        asks: Some(0),
        taken: Vec::new(),
    };
    simulation.hand_out(chooser);
    while simulation.taken.len() < mix.batches {
        let Reverse((now, event)) = simulation.events.pop().unwrap();
        simulation.now = now;
        simulation.happens(event, chooser);
    }
    Run { taken: simulation.taken }
}

impl Simulation<'_> {
    fn world(&self) -> &World {
        self.mix.world(self.taken.len())
    }

    fn after(&mut self, seconds: f64, event: Event) {
        self.events.push(Reverse((self.now + (seconds * 1e9) as u64, event)));
    }

    fn happens(&mut self, event: Event, chooser: &mut dyn Chooser) {
        match event {
            Event::Answer(place) => {
                let (asked, took) = self.requests.get_mut(&place).unwrap();
                *took = Some(self.now - *asked);
                self.in_flight -= 1;
                self.send();
                if let Some(since) = self.waiting.remove(&place) {
                    self.read(place, since, chooser);
                }
            }
            Event::Decoded(place) => {
                let batch = place / self.mix.batch;
                self.open[batch - self.published] -= 1;
                while self.open.front() == Some(&0) {
                    self.open.pop_front();
                    self.published += 1;
                }
                self.idle += 1;
                self.hand_out(chooser);
                self.take(chooser);
            }
            Event::Step => {
                self.free_slots += 1;
                self.asks = Some(self.now);
                self.hand_out(chooser);
                self.take(chooser);
            }
        }
    }

    fn hand_out(&mut self, chooser: &mut dyn Chooser) {
        while self.idle > 0 {
            let place = self.handed_out;
            if place.is_multiple_of(self.mix.batch) {
                if self.free_slots == 0 {
                    return;
                }
                self.free_slots -= 1;
                self.open.push_back(self.mix.batch);
            }
            self.idle -= 1;
            self.handed_out += 1;
            chooser.handed_out();
            while self.asked < self.handed_out + chooser.window() {
                self.requests.insert(self.asked, (self.now, None));
                self.queue.push_back(self.asked);
                self.asked += 1;
            }
            self.send();
            match self.requests[&place] {
                (_, Some(_)) => self.read(place, self.now, chooser),
                (_, None) => drop(self.waiting.insert(place, self.now)),
            }
        }
    }

    /// Starts queued requests while connections are free.
    fn send(&mut self) {
        while self.in_flight < self.mix.connections
            && let Some(place) = self.queue.pop_front()
        {
            self.in_flight += 1;
            let World { request, stragglers: (many, long), limit, servers, .. } = *self.world();
            let number = place as u64;
            let straggles = chance(3, number) < many as f64 / 1e3;
            let takes = if straggles { 1e-3 * long } else { draw(request, 1, number) };
            let mut begin = self.now;
            if limit > 0.0 {
                begin = begin.max(self.next_begin);
                self.next_begin = begin + (1e9 / limit) as u64;
            }
            if servers > 0 {
                let free = if self.servers.len() < servers { None } else { self.servers.pop() };
                begin = begin.max(free.map_or(0, |Reverse(free)| free));
                self.servers.push(Reverse(begin + (takes * 1e9) as u64));
            }
            self.after((begin - self.now) as f64 * 1e-9 + takes, Event::Answer(place));
        }
    }

    fn read(&mut self, place: usize, since: u64, chooser: &mut dyn Chooser) {
        let (_, took) = self.requests.remove(&place).unwrap();
        chooser.read(took.unwrap() as f64 * 1e-9, (self.now - since) as f64 * 1e-9);
        self.after(draw(self.world().decode, 5, place as u64), Event::Decoded(place));
    }

    fn take(&mut self, chooser: &mut dyn Chooser) {
        if let Some(since) = self.asks
            && self.published > self.taken.len()
        {
            self.asks = None;
            let World { step, pause: (every, long), .. } = *self.world();
            let seconds = |time: u64| time as f64 * 1e-9;
            let number = self.taken.len();
            self.taken.push(seconds(self.now));
            chooser.batch(&TakenBatch {
                samples: self.mix.batch as u64,
                now: seconds(self.now),
                waited: seconds(self.now - since),
                begun: (self.published - self.taken.len() + self.open.len()) as u64,
                workers: self.mix.workers,
                alone: true,
            });
            let pauses = every > 0 && number % every == every - 1;
            let pause = if pauses { 1e-3 * long } else { 0.0 };
            self.after(draw(step, 7, number as u64) + pause, Event::Step);
        }
    }
}

/// Simulates a storage (`mix`) with a loader that chooses the prefetch window automatically.
fn automatic(mix: &Mix) -> (Run, Automatic) {
    let mut automatic = Automatic::new(mix);
    let run = run(mix, &mut automatic);
    (run, automatic)
}
