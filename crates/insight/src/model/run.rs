//! The simulation.

mod observe;
mod parts;

use std::collections::{BinaryHeap, VecDeque};

use crate::{Error, Result};

use super::forecast::{Event, Forecast, Options, What, Who};
use super::{Model, On, Stage};

use parts::{Kind, Level, Planned, Pool, Worker, WorkerState};

impl Model {
    /// Largest number of stage visits in one simulation: each sample visits each stage once. A
    /// simulation of this length takes seconds. [`run`](Self::run) rejects longer ones.
    pub const MAX_VISITS: u32 = 10_000_000;

    /// Simulates the pipeline, starting with an empty ring.
    ///
    /// # Errors
    ///
    /// Fails if [`check`](Self::check) rejects the model, if the options set no end, and if the
    /// simulation exceeds [`MAX_VISITS`](Self::MAX_VISITS).
    pub fn run(&self, options: &Options) -> Result<Forecast> {
        self.check()?;
        let some = options.batches.is_some_and(|it| it > 0);
        let seconds = options.seconds.is_some_and(|it| it.is_finite() && it > 0.0);
        if (options.batches.is_some() && !some) || (options.seconds.is_some() && !seconds) {
            return Err(Error::new("options", "batches and seconds must be greater than 0"));
        }
        if !some && !seconds {
            return Err(Error::new("options", "neither batches nor seconds end the run: give one"));
        }
        Simulation::new(self, *options).run()
    }
}

/// Stands for the consumer in the queue of the cores. All other numbers in the queue are samples.
const CONSUMER: u32 = u32::MAX;
/// Worker number of a sample that is in its detached stages and has no worker.
const NOBODY: u32 = u32::MAX;

/// Sample that is being processed.
#[derive(Clone, Copy)]
struct Sample {
    worker: u32,
    number: u32,
    batch: u32,
    stage: usize,
    began: f64,
}

struct Simulation<'a> {
    model: &'a Model,
    options: Options,
    now: f64,
    planned: BinaryHeap<Planned>,
    order: u32,
    visits: u32,
    /// Servers that stages occupy: first the cores, then the resources of the model.
    pools: Vec<Pool>,
    samples: Vec<Sample>,
    unused: Vec<u32>,
    workers: Vec<Worker>,
    idle: VecDeque<u32>,
    /// Workers that wait for a page, in order.
    for_page: VecDeque<u32>,
    /// Workers that wait for a slot, in order. The first of them takes the first sample of a batch.
    for_slot: VecDeque<u32>,
    free_pages: u32,
    free_slots: u32,
    /// Number of samples of the current batch that are already assigned to workers.
    place: u32,
    next_number: u32,
    next_batch: u32,
    /// For each batch that is not ready, the number of its unfinished samples plus 1. 0 if the
    /// batch is complete but waits for earlier batches.
    open: VecDeque<u32>,
    first_open: u32,
    /// Number of the batch that the consumer uses or waits for.
    current: u32,
    waiting: bool,
    /// Seconds of the consumer's step after the part that occupies a core.
    rest: f64,
    steps: u32,
    // Measurements.
    counting: bool,
    begin: f64,
    arrivals: u32,
    found: u32,
    finished: u32,
    latencies: f64,
    waits: Level,
    ready: u32,
    ready_since: f64,
    ring: Vec<f64>,
    serving: Vec<Level>,
    queued: Vec<Level>,
    events: Vec<Event>,
}

impl<'a> Simulation<'a> {
    fn new(model: &'a Model, options: Options) -> Self {
        let servers = model.resources.iter().map(|it| it.servers);
        let pool = |servers| Pool { servers, busy: Level::default(), queue: VecDeque::new() };
        let worker = Worker { state: WorkerState::Slot, since: 0.0, sums: [0.0; 4] };
        Self {
            model,
            options,
            now: 0.0,
            planned: BinaryHeap::new(),
            order: 0,
            visits: 0,
            pools: std::iter::once(model.cores).chain(servers).map(pool).collect(),
            samples: Vec::new(),
            unused: Vec::new(),
            workers: vec![worker; model.workers.len()],
            idle: VecDeque::new(),
            for_page: VecDeque::new(),
            for_slot: VecDeque::new(),
            free_pages: model.pages.unwrap_or(0),
            free_slots: model.slots,
            place: 0,
            next_number: 0,
            next_batch: 0,
            open: VecDeque::new(),
            first_open: 0,
            current: 0,
            waiting: false,
            rest: 0.0,
            steps: 0,
            counting: options.warm_up == 0,
            begin: 0.0,
            arrivals: 0,
            found: 0,
            finished: 0,
            latencies: 0.0,
            waits: Level::default(),
            ready: 0,
            ready_since: 0.0,
            ring: vec![0.0; model.slots as usize + 1],
            serving: vec![Level::default(); model.stages.len()],
            queued: vec![Level::default(); model.stages.len()],
            events: Vec::new(),
        }
    }

    fn run(mut self) -> Result<Forecast> {
        self.arrive();
        for worker in 0..self.workers.len() {
            let start = self.model.starts.get(worker).copied().unwrap_or(0.0);
            self.plan(start, Kind::Start, worker as u32);
        }
        while let Some(Planned { time, kind, id, .. }) = self.planned.pop() {
            if let Some(seconds) = self.options.seconds
                && self.counting
                && time > self.begin + seconds
            {
                self.now = self.begin + seconds;
                break;
            }
            self.now = time;
            let over = match kind {
                Kind::Start => self.start(id),
                Kind::Stage => self.end_stage(id),
                Kind::Batch => self.end_batch(id),
                Kind::Host => self.end_host_part(),
                Kind::Step => self.end_step(),
            };
            if over {
                break;
            }
            while let Some(worker) = self.idle.pop_front() {
                self.ask_for_page(worker);
            }
            if self.visits > Model::MAX_VISITS {
                return Err(Error::new(
                    "options",
                    format!(
                        "the run has more than {} stage visits (samples times stages): simulate \
                         fewer seconds or batches, or smaller batches",
                        Model::MAX_VISITS
                    ),
                ));
            }
        }
        Ok(self.observed())
    }

    fn plan(&mut self, delay: f64, kind: Kind, id: u32) {
        let time = self.now + delay;
        self.planned.push(Planned { time, order: self.order, kind, id });
        self.order = self.order.wrapping_add(1);
    }

    fn log(&mut self, who: Who, what: What, batch: u32) {
        if self.events.len() < self.options.events as usize {
            self.events.push(Event { time: self.now, who, what, batch });
        }
    }

    fn turn(&mut self, worker: u32, state: WorkerState) {
        let now = self.now;
        let worker = &mut self.workers[worker as usize];
        worker.sums[worker.state as usize] += now - worker.since;
        worker.since = now;
        worker.state = state;
    }

    fn start(&mut self, worker: u32) -> bool {
        self.idle.push_back(worker);
        false
    }

    /// Takes a page for the worker's next sample if the model has pages. If none is free, the
    /// worker waits.
    fn ask_for_page(&mut self, worker: u32) {
        if self.model.pages.is_some() {
            if self.free_pages == 0 {
                self.turn(worker, WorkerState::Page);
                self.log(Who::Worker(worker), What::Waits, self.next_batch);
                self.for_page.push_back(worker);
                return;
            }
            self.free_pages -= 1;
        }
        self.ask_for_place(worker);
    }

    fn ask_for_place(&mut self, worker: u32) {
        if self.place == 0 && self.free_slots == 0 {
            self.turn(worker, WorkerState::Slot);
            self.log(Who::Worker(worker), What::Waits, self.next_batch);
            self.for_slot.push_back(worker);
        } else {
            self.hand_out(worker);
        }
    }

    /// Assigns the next sample to a worker.
    fn hand_out(&mut self, worker: u32) {
        if self.place == 0 {
            self.free_slots -= 1;
            self.open.push_back(self.model.batch + 1);
        }
        let batch = self.next_batch;
        let sample = Sample { worker, number: self.next_number, batch, stage: 0, began: self.now };
        self.next_number = self.next_number.wrapping_add(1);
        self.place += 1;
        if self.place == self.model.batch {
            self.place = 0;
            self.next_batch += 1;
        }
        let id = match self.unused.pop() {
            Some(id) => id,
            None => {
                self.samples.push(sample);
                self.samples.len() as u32 - 1
            }
        };
        self.samples[id as usize] = sample;
        self.log(Who::Worker(worker), What::Begins, batch);
        self.turn(worker, WorkerState::Busy);
        self.enter_stage(id);
    }

    fn enter_stage(&mut self, id: u32) {
        self.visits += 1;
        let (stage, worker) = (self.samples[id as usize].stage, self.samples[id as usize].worker);
        let pool = match self.model.stages[stage].on {
            On::Wait => return self.serve(id),
            On::Cpu => 0,
            On::Resource(at) => at + 1,
        };
        if self.occupy(pool, id) {
            self.serve(id);
        } else {
            self.queued[stage].up(self.now);
            if worker != NOBODY {
                self.turn(worker, WorkerState::Queued);
            }
        }
    }

    /// Occupies a server of a pool for a sample. If none is free, the sample queues, and the result
    /// is `false`.
    fn occupy(&mut self, pool: usize, id: u32) -> bool {
        let pool = &mut self.pools[pool];
        if pool.busy.count < pool.servers {
            pool.busy.up(self.now);
            return true;
        }
        pool.queue.push_back(id);
        false
    }

    /// Passes a server to the sample that has waited longest. If no sample waits, the server
    /// becomes free.
    fn vacate(&mut self, pool: usize) {
        match self.pools[pool].queue.pop_front() {
            None => self.pools[pool].busy.down(self.now),
            Some(CONSUMER) => self.begin_host_part(),
            Some(id) => {
                let Sample { stage, worker, .. } = self.samples[id as usize];
                self.queued[stage].down(self.now);
                if worker != NOBODY {
                    self.turn(worker, WorkerState::Busy);
                }
                self.serve(id);
            }
        }
    }

    fn serve(&mut self, id: u32) {
        let Sample { stage, worker, number, .. } = self.samples[id as usize];
        let Stage { on, service, .. } = &self.model.stages[stage];
        let mut time = service.draw(self.options.seed, number, stage as u32);
        if worker != NOBODY && !matches!(on, On::Resource(_)) {
            time *= self.model.workers[worker as usize];
        }
        if let (On::Cpu, Some(contention)) = (on, self.model.contention) {
            time *= contention.slowdown(self.pools[0].busy.count);
        }
        self.serving[stage].up(self.now);
        self.plan(time, Kind::Stage, id);
    }

    fn end_stage(&mut self, id: u32) -> bool {
        let Sample { stage, worker, batch, began, .. } = self.samples[id as usize];
        self.serving[stage].down(self.now);
        match self.model.stages[stage].on {
            On::Wait => {}
            On::Cpu => self.vacate(0),
            On::Resource(at) => self.vacate(at + 1),
        }
        if let Some(next) = self.model.stages.get(stage + 1) {
            self.samples[id as usize].stage = stage + 1;
            if next.detached && worker != NOBODY {
                self.samples[id as usize].worker = NOBODY;
                self.let_go(worker, batch);
            }
            self.enter_stage(id);
            return false;
        }
        self.latencies += self.now - began;
        self.finished += 1;
        let open = &mut self.open[(batch - self.first_open) as usize];
        *open -= 1;
        if *open > 1 {
            self.free_sample(id);
        } else {
            self.plan(self.model.per_batch, Kind::Batch, id);
        }
        false
    }

    /// Ends the worker's current sample, so that the worker takes its next one.
    fn let_go(&mut self, worker: u32, batch: u32) {
        self.log(Who::Worker(worker), What::Ends, batch);
        self.idle.push_back(worker);
    }

    /// Ends a sample: frees its page and its worker.
    fn free_sample(&mut self, id: u32) {
        let Sample { worker, batch, .. } = self.samples[id as usize];
        self.unused.push(id);
        if self.model.pages.is_some() {
            match self.for_page.pop_front() {
                None => self.free_pages += 1,
                Some(next) => self.ask_for_place(next),
            }
        }
        if worker != NOBODY {
            self.let_go(worker, batch);
        }
    }

    /// Finishes a batch. Batches become ready in order, so the batch may have to wait for earlier
    /// batches.
    fn end_batch(&mut self, id: u32) -> bool {
        let batch = self.samples[id as usize].batch;
        self.open[(batch - self.first_open) as usize] = 0;
        self.free_sample(id);
        while self.open.front() == Some(&0) {
            self.open.pop_front();
            self.log(Who::Ring, What::Ready, self.first_open);
            self.first_open += 1;
            self.set_ready(self.ready + 1);
            if self.waiting {
                self.waiting = false;
                self.waits.down(self.now);
                self.take();
            }
        }
        false
    }

    fn set_ready(&mut self, ready: u32) {
        self.ring[self.ready as usize] += self.now - self.ready_since;
        self.ready_since = self.now;
        self.ready = ready;
    }

    /// Lets the consumer ask for its next batch.
    fn arrive(&mut self) {
        self.arrivals += 1;
        if self.ready > 0 {
            self.found += 1;
            self.take();
        } else {
            self.waiting = true;
            self.waits.up(self.now);
            self.log(Who::Consumer, What::Waits, self.current);
        }
    }

    fn take(&mut self) {
        self.set_ready(self.ready - 1);
        self.log(Who::Consumer, What::Begins, self.current);
        let consumer = &self.model.consumer;
        let step = consumer.step.draw(self.options.seed, self.current, CONSUMER);
        let host = step * consumer.host_share;
        self.rest = step - host;
        if !consumer.holds {
            self.free_slot();
        }
        if host > 0.0 {
            if self.occupy(0, CONSUMER) {
                self.begin_host_part();
            }
        } else {
            self.plan(self.rest, Kind::Step, 0);
        }
    }

    fn begin_host_part(&mut self) {
        let consumer = &self.model.consumer;
        let step = consumer.step.draw(self.options.seed, self.current, CONSUMER);
        self.plan(step * consumer.host_share, Kind::Host, 0);
    }

    fn end_host_part(&mut self) -> bool {
        self.vacate(0);
        self.plan(self.rest, Kind::Step, 0);
        false
    }

    fn end_step(&mut self) -> bool {
        self.log(Who::Consumer, What::Ends, self.current);
        self.current += 1;
        self.steps += 1;
        if !self.counting && self.steps == self.options.warm_up {
            self.forget();
            self.steps = 0;
        } else if self.counting && self.options.batches == Some(self.steps) {
            return true;
        }
        if self.model.consumer.holds {
            self.free_slot();
        }
        self.arrive();
        false
    }

    fn free_slot(&mut self) {
        self.free_slots += 1;
        while self.place > 0 || self.free_slots > 0 {
            let Some(worker) = self.for_slot.pop_front() else { break };
            self.hand_out(worker);
        }
    }
}
