//! Compares the model of the pipeline with closed formulas and with the rules of the loader.

mod errors;
mod hardware;
#[path = "../words/mod.rs"]
mod words;

use feedwater_insight::model::{
    Consumer, Contention, Forecast, Limit, Model, On, Options, Resource, Service, Stage, What, Who,
};

/// A pipeline with one CPU stage of 10 ms, as many cores as workers, and a consumer that takes no
/// time.
fn model(batch: u32, workers: usize, prefetch: u32) -> Model {
    Model {
        batch,
        slots: prefetch + 1,
        workers: vec![1.0; workers],
        starts: Vec::new(),
        cores: workers as u32,
        contention: None,
        resources: Vec::new(),
        stages: vec![stage("decode", On::Cpu, 0.01)],
        pages: None,
        per_batch: 0.0,
        consumer: Consumer { step: Service::constant(0.0), holds: true, host_share: 0.0 },
    }
}

/// Changes a model.
type Change<'a> = &'a dyn Fn(&mut Model);
/// Function that increases one quantity of a model, such as the number of workers.
type More<'a> = &'a dyn Fn(&mut Model, u32);

fn stage(name: &str, on: On, mean: f64) -> Stage {
    Stage { name: name.into(), on, service: Service::constant(mean), detached: false }
}

fn detached(name: &str, on: On, mean: f64) -> Stage {
    Stage { detached: true, ..stage(name, on, mean) }
}

fn resource(name: &str, servers: u32) -> Resource {
    Resource { name: name.into(), servers }
}

fn run(model: &Model) -> Forecast {
    model.run(&Options::batches(400, 50)).unwrap()
}

fn rate(model: &Model) -> f64 {
    run(model).samples_per_second
}

#[track_caller]
fn close(found: f64, expected: f64, tolerance: f64) {
    assert!((found - expected).abs() <= tolerance * expected.abs(), "{found}, not {expected}");
}

#[test]
fn the_smallest_capacity_is_the_rate_without_variance() {
    let base = || {
        let mut base = model(8, 6, 3);
        base.resources = vec![resource("disk", 2), resource("engine", 1)];
        base.stages = vec![
            stage("read", On::Resource(0), 0.002),
            stage("latency", On::Wait, 0.004),
            stage("decode", On::Cpu, 0.006),
            detached("engine", On::Resource(1), 0.001),
        ];
        base.consumer.step = Service::constant(0.001);
        base
    };
    let cases: [(&str, Limit, Change); 8] = [
        ("6 / 12 ms", Limit::Workers, &|_| {}),
        ("2 cores / 6 ms", Limit::Cores, &|it| it.cores = 2),
        ("2 channels / 10 ms", Limit::Resource(0), &|it| it.stages[0].service.mean = 0.01),
        ("1 engine / 4 ms", Limit::Resource(1), &|it| it.stages[3].service.mean = 0.004),
        ("8 / 50 ms", Limit::Consumer, &|it| it.consumer.step.mean = 0.05),
        ("3 pages / 13 ms", Limit::Pages, &|it| it.pages = Some(3)),
        ("8 / (4 rounds of 12 ms and one of 13 ms)", Limit::Workers, &|it| {
            it.workers = vec![1.0; 2]
        }),
        ("6 / (8 ms + 4 * 6 ms)", Limit::Workers, &|it| it.stages[2].service.mean = 0.024),
    ];
    for (what, limit, change) in cases {
        let mut model = base();
        change(&mut model);
        let (found, capacity) = model.limit().unwrap();
        assert_eq!(found, limit, "{what}: {:?}", model.capacity());
        close(rate(&model), capacity, 0.01);
    }
    let mut cores = base();
    cores.cores = 2;
    close(cores.limit().unwrap().1, 2.0 / 0.006, 1e-12);
    assert!(cores.capacity().iter().all(|(_, rate)| *rate > 0.0));
    cores.consumer.host_share = 0.5;
    close(cores.limit().unwrap().1, 2.0 / (0.006 + 0.0005 / 8.0), 1e-12);
}

/// With a single slot, the loader fills a batch only while the consumer uses none.
#[test]
fn one_slot_alternates_filling_and_using() {
    let mut model = model(10, 4, 0);
    model.consumer.step = Service::constant(0.02);
    model.per_batch = 0.005;
    // Four workers process the 10 samples of a batch in three rounds of 10 ms.
    close(run(&model).batches_per_second, 1.0 / (0.03 + 0.005 + 0.02), 1e-9);
    // A resource that no stage uses limits nothing.
    model.resources = vec![resource("unused", 1)];
    let (limit, capacity) = model.limit().unwrap();
    assert_eq!(limit, Limit::Slots);
    // A batch has ten samples. Four workers start four of them at once. The bound assumes that one
    // of the other six starts every 2.625 ms. After the last start, that sample needs 10 ms, the
    // work per batch 5 ms, and the consumer's step 20 ms. So a batch occupies the only slot for
    // 6 * 2.625 + 35 ms.
    close(capacity, 10.0 / (6.0 / (1.0 / 0.002625) + 0.035), 1e-9);
    assert!(capacity >= rate(&model));
    // A consumer that copies the batch frees the slot at the beginning of its step.
    model.consumer.holds = false;
    close(run(&model).batches_per_second, 1.0 / 0.035, 1e-9);
}

/// A closed queueing network with two stations has a known throughput. With constant times, this
/// network is the machine repair model: each of `n` workers waits for the time `a` and then needs
/// the single server for the time `s`.
#[test]
fn constant_machine_repair_matches_its_formula() {
    for (workers, wait, server) in [(1, 0.004, 0.001), (3, 0.004, 0.001), (8, 0.004, 0.001)] {
        let mut model = model(4, workers, 50);
        model.resources = vec![resource("channel", 1)];
        model.stages =
            vec![stage("latency", On::Wait, wait), stage("transfer", On::Resource(0), server)];
        let expected = (workers as f64 / (wait + server)).min(1.0 / server);
        close(rate(&model), expected, 1e-3);
    }
}

/// With exponential times, the machine repair model is the finite-source queue M/M/1//N. The server
/// is idle with the probability 1 / (sum over k of N! / (N-k)! * (s/a)^k).
#[test]
fn exponential_machine_repair_matches_its_formula() {
    let exponential = |mean: f64| {
        let values: Vec<f64> =
            (0..4096).map(|at| -(1.0 - (f64::from(at) + 0.5) / 4096.0).ln()).collect();
        let sum: f64 = values.iter().sum();
        Service { mean, quantiles: values.iter().map(|value| value * 4096.0 / sum).collect() }
    };
    let (workers, wait, server) = (5, 0.004, 0.002);
    let mut model = model(1, workers, 5000);
    model.resources = vec![resource("channel", 1)];
    model.stages =
        vec![stage("latency", On::Wait, wait), stage("transfer", On::Resource(0), server)];
    for stage in &mut model.stages {
        stage.service = exponential(stage.service.mean);
    }
    let mut term = 1.0;
    let mut sum = 1.0;
    for k in 0..workers {
        term *= (workers - k) as f64 * server / wait;
        sum += term;
    }
    let busy = 1.0 - 1.0 / sum;
    let found = model.run(&Options::batches(100_000, 1000).seed(3)).unwrap();
    close(found.samples_per_second, busy / server, 0.01);
    close(found.resources[0], busy, 0.01);
}

/// Little's law: samples in flight = rate * time per sample.
#[test]
fn littles_law_holds() {
    let mut model = model(16, 7, 4);
    model.cores = 3;
    model.resources = vec![resource("disk", 2)];
    model.stages.insert(0, stage("read", On::Resource(0), 0.005));
    for stage in &mut model.stages {
        stage.service = Service::lognormal(stage.service.mean, 0.8);
    }
    model.consumer.step = Service::lognormal(0.05, 0.3);
    let found = run(&model);
    let under_way: f64 = found.workers.iter().map(|it| it.busy + it.queued).sum();
    close(under_way, found.samples_per_second * found.latency, 0.01);
    let in_stages: f64 = found.stages.iter().map(|it| it.serving + it.queued).sum();
    close(in_stages, under_way, 1e-9);
    close(found.stages[0].serving / 2.0, found.resources[0], 1e-9);
    close(found.stages[1].serving / 3.0, found.cores, 1e-9);
    // Little's law for one stage: samples in service = rate * mean time.
    close(found.stages[0].serving, found.samples_per_second * 0.005, 0.04);
}

#[test]
fn shares_add_up() {
    let mut model = model(4, 5, 2);
    model.cores = 2;
    model.pages = Some(6);
    model.stages.push(detached("kernel", On::Wait, 0.02));
    model.consumer.step = Service::lognormal(0.03, 0.5);
    let found = run(&model);
    for shares in &found.workers {
        close(shares.busy + shares.queued + shares.page + shares.slot, 1.0, 1e-9);
    }
    assert!(found.worker_shares().page > 0.01);
    close(found.ring.iter().sum(), 1.0, 1e-9);
    assert_eq!(found.ring.len(), 4);
    assert!(found.ring[0] >= found.consumer_waits - 1e-9);
    close(found.batches_per_second * 0.03, 1.0 - found.consumer_waits, 0.05);
    assert!((0.0..=1.0).contains(&found.readiness));
}

/// Checks the order of events: the consumer receives all batches in order.
#[test]
fn batches_are_used_in_order_and_none_is_lost() {
    let mut model = model(5, 4, 2);
    model.stages[0].service = Service::lognormal(0.01, 2.0);
    model.consumer.step = Service::lognormal(0.01, 1.0);
    let options = Options { events: u32::MAX, ..Options::seconds(10.0) };
    let found = model.run(&options).unwrap();
    let of = |who: Who, what: What| {
        let events = found.events.iter().filter(move |it| it.who == who && it.what == what);
        events.map(|it| it.batch).collect::<Vec<_>>()
    };
    let ready = of(Who::Ring, What::Ready);
    assert!(ready.len() > 100 && ready.iter().copied().eq(0..ready.len() as u32));
    let begun = of(Who::Consumer, What::Begins);
    assert!(begun.iter().copied().eq(0..begun.len() as u32));
    assert_eq!(of(Who::Consumer, What::Ends).len() as u32, found.batches);
    // Each sample must be processed once. At any time, no more batches than slots may have begun.
    let mut places = vec![0; ready.len() + 3];
    let (mut taken, mut given_back) = (0, 0);
    let mut waits = 0.0;
    let mut since = None;
    assert!(found.events.is_sorted_by_key(|it| it.time));
    for event in &found.events {
        match (event.who, event.what) {
            (Who::Worker(_), What::Begins) => {
                places[event.batch as usize] += 1;
                taken = taken.max(event.batch + 1);
                assert!(taken - given_back <= model.slots);
            }
            (Who::Consumer, What::Ends) => given_back = event.batch + 1,
            (Who::Consumer, What::Waits) => since = Some(event.time),
            (Who::Consumer, What::Begins) => {
                waits += since.take().map_or(0.0, |since| event.time - since);
            }
            _ => {}
        }
    }
    assert!(places[..ready.len()].iter().all(|&count| count == 5), "{places:?}");
    waits += since.map_or(0.0, |since| 10.0 - since);
    close(found.consumer_waits, waits / 10.0, 1e-9);
}

#[test]
fn more_of_anything_never_slows_a_constant_pipeline_down() {
    let mut base = model(6, 3, 1);
    base.cores = 2;
    base.resources = vec![resource("disk", 1)];
    base.stages.insert(0, stage("read", On::Resource(0), 0.002));
    base.stages.push(detached("copy", On::Wait, 0.003));
    base.pages = Some(4);
    base.consumer.step = Service::constant(0.02);
    base.consumer.host_share = 0.2;
    let more: [More; 5] = [
        &|it, by| it.workers.extend(vec![1.0; by as usize]),
        &|it, by| it.slots += by,
        &|it, by| it.cores += by,
        &|it, by| it.pages = it.pages.map(|pages| pages + by),
        &|it, by| it.resources[0].servers += by,
    ];
    for (number, more) in more.iter().enumerate() {
        let mut last = 0.0;
        for by in 0..8 {
            let mut model = base.clone();
            more(&mut model, by);
            let now = rate(&model);
            assert!(now >= last * 0.995, "{number}: {by} more: {now} after {last}");
            last = now;
        }
    }
}

/// A worker that takes four times as long processes a quarter of the samples. The other workers are
/// not slowed down, because the ring hides the delays.
#[test]
fn a_straggler_costs_only_its_own_samples() {
    let mut model = model(32, 4, 8);
    model.workers[3] = 4.0;
    model.cores = 100;
    close(rate(&model), 3.25 / 0.01, 0.01);
    assert_eq!(model.limit(), Some((Limit::Workers, 3.25 / 0.01)));
    // The slowness of a straggler applies neither to detached stages nor to stages on resources.
    model.stages.push(detached("kernel", On::Cpu, 0.001));
    close(rate(&model), 3.25 / 0.01, 0.01);
    model.resources = vec![resource("engine", 9)];
    model.stages = vec![stage("engine", On::Resource(0), 0.01)];
    close(rate(&model), 4.0 / 0.01, 0.01);
    // With one sample per batch and four slots, each of the other workers processes two samples and
    // then waits for the straggler.
    let mut tight = self::model(1, 4, 3);
    tight.workers[3] = 4.0;
    close(rate(&tight), 7.0 / 0.04, 0.01);
    tight.slots = 40;
    close(rate(&tight), 3.25 / 0.01, 0.01);
}

/// Random times reduce the throughput if the ring is short. A long ring hides them.
#[test]
fn variance_slows_down_a_tiny_ring() {
    let mut model = model(1, 4, 4);
    model.stages[0].service = Service::lognormal(0.01, 1.0);
    model.consumer.step = Service::constant(0.0025);
    let tiny = run(&model);
    model.slots = 200;
    let deep = model.run(&Options::batches(4000, 500)).unwrap();
    assert!(
        tiny.samples_per_second < 0.75 * deep.samples_per_second,
        "{}",
        tiny.samples_per_second
    );
    close(deep.samples_per_second, 400.0, 0.05);
    assert!(tiny.consumer_waits > 0.25 && deep.consumer_waits < 0.06);
    assert!(tiny.readiness < deep.readiness);
}

#[test]
fn pages_bound_the_samples_in_flight() {
    let mut model = model(8, 2, 20);
    model.stages.push(detached("kernel", On::Wait, 0.1));
    for (pages, expected) in [(3, 3.0 / 0.11), (10, 10.0 / 0.11), (1000, 200.0)] {
        model.pages = Some(pages);
        let found = model.run(&Options::batches(200, 50)).unwrap();
        close(found.samples_per_second, expected, 0.02);
        let under_way: f64 = found.stages.iter().map(|it| it.serving + it.queued).sum();
        assert!(under_way <= f64::from(pages) + 1e-9);
    }
    // Without pages, only the slots limit the samples in flight.
    model.pages = None;
    close(rate(&model), 200.0, 0.02);
    model.slots = 1;
    let found = run(&model);
    assert!(found.stages[1].serving <= 8.0);
    // Two workers process eight samples in 40 ms. The kernel of the last sample takes another 100
    // ms.
    close(found.batches_per_second, 1.0 / 0.14, 1e-6);
}

/// The consumer's work on a core competes with the stages. Its wait for a core does not count as
/// waiting for data.
#[test]
fn the_consumer_competes_for_cores() {
    let mut model = model(4, 4, 2);
    model.cores = 1;
    model.consumer = Consumer { step: Service::constant(0.02), holds: true, host_share: 0.5 };
    let found = run(&model);
    // Per batch, the stages take 40 ms and the step takes 10 ms of the only core.
    close(found.batches_per_second, 1.0 / 0.05, 0.01);
    close(found.cores, 1.0, 1e-3);
    model.cores = 5;
    close(run(&model).batches_per_second, 1.0 / 0.02, 0.01);
}

#[test]
fn a_fast_loader_fills_the_ring_and_a_slow_one_never() {
    let mut model = model(4, 4, 3);
    model.consumer.step = Service::constant(0.1);
    let fast = run(&model);
    assert_eq!((fast.readiness, fast.consumer_waits), (1.0, 0.0));
    // The consumer uses one of the four slots. The other three are ready most of the time: after
    // the consumer takes a batch, only two are ready until the workers have filled a third one. So
    // the workers mostly wait for a slot.
    assert!(fast.mean_ready() > 2.0 && fast.worker_shares().slot > 0.8, "{fast:?}");
    model.consumer.step = Service::constant(0.001);
    let slow = run(&model);
    assert_eq!(slow.readiness, 0.0);
    close(slow.consumer_waits, 0.9, 0.01);
}

#[test]
fn results_depend_on_the_seed() {
    let mut model = model(4, 3, 2);
    model.stages[0].service = Service::lognormal(0.01, 0.5);
    let run = |seed| model.run(&Options::batches(100, 10).seed(seed)).unwrap();
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
    close(run(1).samples_per_second, run(2).samples_per_second, 0.1);
}

/// A measurement begins after the warm-up. It ends after the given batches or seconds, whichever
/// comes first.
#[test]
fn a_run_ends_at_the_first_limit() {
    let mut model = model(1, 1, 1);
    model.stages[0].service.mean = 1.0;
    let seconds = |seconds| model.run(&Options::seconds(seconds)).unwrap();
    let batches = |it: Forecast| (it.batches, it.seconds);
    assert_eq!(batches(seconds(2.5)), (2, 2.5));
    assert_eq!(batches(seconds(3.0)), (3, 3.0));
    assert_eq!(batches(seconds(0.5)), (0, 0.5));
    let both = Options { batches: Some(2), warm_up: 3, ..Options::seconds(10.0) };
    assert_eq!(batches(model.run(&both).unwrap()), (2, 2.0));
    let both = Options { batches: Some(20), warm_up: 3, ..Options::seconds(4.5) };
    assert_eq!(batches(model.run(&both).unwrap()), (4, 4.5));
}

#[test]
fn workers_can_start_late() {
    let mut model = model(1, 2, 5);
    model.stages[0].service.mean = 1.0;
    model.starts = vec![0.0, 5.5];
    assert_eq!(model.run(&Options::seconds(5.0)).unwrap().batches, 5);
    // The first worker makes 10 batches, and the second one 4, which end at 6.5, 7.5, 8.5 and 9.5
    // s.
    assert_eq!(model.run(&Options::seconds(10.0)).unwrap().batches, 14);
}

#[test]
fn other_programs_slow_down_work_on_a_core() {
    let with = |workers: usize, contention: Option<Contention>| {
        let mut model = model(32, workers, 4);
        model.cores = 2;
        model.contention = contention;
        model
    };
    let beside = |workers, speed, available| {
        let model = with(workers, Some(Contention { speed, available }));
        // The capacity bound must agree with the simulated rate.
        close(model.limit().unwrap().1, rate(&model), 0.02);
        rate(&model)
    };
    close(rate(&with(2, None)), 200.0, 0.01);
    // Other programs leave two fifths of a core. A second thread shares them with the first.
    close(beside(1, 0.4, 0.4), 40.0, 0.01);
    close(beside(2, 0.4, 0.4), 40.0, 0.01);
    // Other programs leave 1.7 cores. The first thread gets a full core, and a second thread adds
    // seven tenths.
    close(rate(&with(1, Some(Contention { speed: 1.0, available: 1.7 }))), 100.0, 0.01);
    close(beside(2, 1.0, 1.7), 170.0, 0.01);
    // Eight threads share two cores at 80 % speed.
    close(beside(8, 0.8, 1.6), 160.0, 0.01);
    for (speed, available, key) in [
        (0.0, 1.0, "model.contention.speed"),
        (1.5, 1.0, "model.contention.speed"),
        (f64::NAN, 1.0, "model.contention.speed"),
        (1.0, 0.0, "model.contention.available"),
        (1.0, 2.5, "model.contention.available"),
    ] {
        let error = with(2, Some(Contention { speed, available })).check().unwrap_err();
        assert_eq!(error.key, key, "{error}");
    }
}
