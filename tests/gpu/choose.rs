//! Calls `Loader::choose` on other threads while the consumer takes batches. The calls also happen
//! at the end of a measurement window, which is a period in which the tuner measures one choice.
//! Checks that nothing hangs or leaks, that the bytes of batches do not change, and that every
//! sample appears once.

use std::panic;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use crate::common::{self, jpeg, jpegs, some_of, training};
use crate::simulated::images::{assert_clean, libjpeg};
use crate::simulated::{Schedule, exclusive, runtime};
use feedwater::error::{DataError, Result};
use feedwater::internals::plan::Offload;
use feedwater::internals::tune::Choice;
use feedwater::loader::{DeviceChoice, Loader, LoaderBuilder};
use feedwater::plan::AutoCount;
use feedwater::source::custom::Page;
use feedwater::source::{Memory, Source};
use serde_json::Value;

/// Number of threads that call `choose`.
const CHOOSERS: u64 = 3;
/// Samples per epoch, in six batches.
const SAMPLES: u64 = 24;
const EPOCHS: u64 = 3;
/// Timeout of a test. It is far longer than any test that does not hang.
const LONG: Duration = Duration::from_secs(240);

/// A source with a reference-counted token. By counting the token's references, a test sees whether
/// a thread still holds the source.
struct Held {
    images: Memory,
    _held: Arc<()>,
}

impl Source for Held {
    common::wraps!(self.images);
    fn read(&self, index: u64, page: &mut dyn Page, limit: u64) -> Result<(), DataError> {
        self.images.read(index, page, limit)
    }
}

fn builder(held: &Arc<()>) -> LoaderBuilder {
    let source = Held { images: Memory::new(jpegs(SAMPLES)).unwrap(), _held: held.clone() };
    Loader::builder(source, training()).batch_size(4).shuffle(true).seed(7)
}

fn free(held: &Arc<()>) -> LoaderBuilder {
    builder(held)
        .num_workers(AutoCount::Auto)
        .prefetch(AutoCount::Auto)
        .configure(|it| it.limits.cpu_threads = Some(5))
}

/// Returns the bytes of all batches of a loader on the CPU with fixed settings.
fn expected() -> Vec<Vec<u8>> {
    let mut loader =
        builder(&Arc::new(())).device(DeviceChoice::Cpu).num_workers(2).build().unwrap();
    let mut all = Vec::new();
    for _ in 0..EPOCHS {
        all.extend(loader.epoch().map(|batch| batch.unwrap().to_host().unwrap()));
    }
    all
}

/// Returns every choice (workers, prefetch and placement) that is valid for the loader.
fn choices(loader: &Loader) -> Vec<Choice> {
    let plan = loader.plan();
    let (workers, ahead) = (plan.workers, plan.ahead_batches);
    let mut all = Vec::new();
    for &offload in &plan.offloads {
        for workers in workers.least..=workers.most {
            all.extend((ahead.least..=ahead.most).map(|prefetch| Choice {
                workers,
                prefetch,
                offload,
            }));
        }
    }
    all
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end
    }
}

/// Runs `what` on another thread. Fails if that thread does not end within [`LONG`].
fn ends(what: impl FnOnce() + Send + 'static) {
    let (sender, over) = channel();
    let thread = thread::spawn(move || {
        what();
        // Sending cannot fail, because `ends` still holds the receiver.
        sender.send(()).unwrap();
    });
    match over.recv_timeout(LONG) {
        Ok(()) => thread.join().unwrap(),
        Err(RecvTimeoutError::Timeout) => panic!("a thread hangs"),
        Err(RecvTimeoutError::Disconnected) => panic::resume_unwind(thread.join().unwrap_err()),
    }
}

/// Sets the flag on drop. The threads that call `choose` check the flag, so they stop even if the
/// consumer panics.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Consumes all epochs. In each epoch, other threads begin to call `choose` when batch `begin` is
/// requested. The consumer pauses for `rest` before it takes that batch.
fn consume(loader: &mut Loader, begin: u64, rest: Duration, seed: u64) -> Vec<Vec<u8>> {
    let valid = choices(loader);
    let asked = AtomicU64::new(0);
    (0..EPOCHS).flat_map(|_| consume_epoch(loader, &valid, &asked, (begin, rest), seed)).collect()
}

fn consume_epoch(
    loader: &mut Loader,
    valid: &[Choice],
    asked: &AtomicU64,
    (begin, rest): (u64, Duration),
    seed: u64,
) -> Vec<Vec<u8>> {
    let over = AtomicBool::new(false);
    let all_there = Barrier::new(CHOOSERS as usize + 1);
    let mut epoch = loader.epoch();
    let loader = epoch.loader();
    let choose = |mut random: Random| {
        all_there.wait();
        while asked.load(Ordering::SeqCst) < begin && !over.load(Ordering::SeqCst) {
            thread::yield_now();
        }
        (0..random.below(3000)).for_each(|_| std::hint::spin_loop());
        // Calls `choose` at least once, even if the epoch is already over.
        loop {
            loader.choose(valid[random.below(valid.len() as u64) as usize]).unwrap();
            assert!(valid.contains(&loader.choice()));
            match random.below(4) {
                0 => assert!(loader.is_settled()),
                1 => assert!(loader.measured().steps.batches <= 6 * EPOCHS),
                _ => thread::sleep(Duration::from_micros(random.below(200))),
            }
            if over.load(Ordering::SeqCst) {
                break;
            }
        }
    };
    thread::scope(|scope| {
        for chooser in 1..=CHOOSERS {
            let choose = &choose;
            let seed = (seed * EPOCHS + u64::from(epoch.number())) * 0x9e37_79b9;
            scope.spawn(move || choose(Random(seed + chooser * 0x85eb_ca6b)));
        }
        let _over = Over(&over);
        all_there.wait();
        let (mut all, mut seen) = (Vec::new(), Vec::new());
        loop {
            if asked.load(Ordering::SeqCst) + 1 == begin {
                thread::sleep(rest);
            }
            asked.fetch_add(1, Ordering::SeqCst);
            let Some(batch) = epoch.next() else { break };
            let batch = batch.unwrap();
            seen.extend(batch.indices());
            all.push(batch.to_host().unwrap());
        }
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..SAMPLES), "each sample must appear once");
        all
    })
}

/// Consumes all epochs of one loader while other threads choose, and checks bytes, statistics and
/// decisions.
fn run(on: impl Fn(LoaderBuilder) -> LoaderBuilder, (begin, rest): (u64, Duration), seed: u64) {
    let held = Arc::new(());
    let mut loader = on(free(&held)).build().unwrap();
    assert!(choices(&loader).len() > 8, "{:?}", choices(&loader));
    let batches = consume(&mut loader, begin, rest, seed);
    assert!(
        batches == expected(),
        "the bytes must not depend on the choice; begin {begin}, seed {seed}"
    );
    let stats = loader.stats();
    assert_eq!(stats.images, EPOCHS * SAMPLES);
    assert_eq!(stats.outcomes.values().sum::<u64>(), stats.images, "{:?}", stats.outcomes);

    let last = loader.decisions().last().cloned().unwrap();
    assert_eq!(
        (last.choice, last.settled),
        (loader.choice(), true),
        "the last choice must stay in effect"
    );
    // The last decision was a call of `choose`. The same call again must record the same reason.
    loader.choose(last.choice).unwrap();
    assert_eq!(loader.decisions().last().unwrap().why, last.why);
    drop(loader);
    assert_eq!(Arc::strong_count(&held), 1, "a thread still holds the source");
}

/// The threads begin to call `choose` at the second batch, with which the tuner's first measurement
/// begins.
const BEGINS: (u64, Duration) = (2, Duration::ZERO);
/// The threads begin to call `choose` at batch 8, with which a measurement of the tuner ends. A
/// measurement covers at least five batches and at least 50 ms, so the consumer pauses for 51 ms.
/// At the end of a measurement, the loader itself makes a choice.
const ENDS: (u64, Duration) = (8, Duration::from_millis(51));

#[test]
fn choosing_while_a_window_begins() {
    ends(|| {
        let on_cpu = |it: LoaderBuilder| it.device(DeviceChoice::Cpu);
        some_of(1..100, 0).for_each(|seed| run(on_cpu, BEGINS, seed));
    });
}

/// One thread ends a measurement of the tuner and reads the current choice. At the same time,
/// another thread calls `choose`, which ends the measurement too.
#[test]
fn choosing_while_a_window_ends() {
    ends(|| {
        let on_cpu = |it: LoaderBuilder| it.device(DeviceChoice::Cpu);
        some_of(1..60, 0).for_each(|seed| run(on_cpu, ENDS, seed));
    });
}

#[test]
fn choosing_what_is_on_the_device() {
    let Some(machine) = exclusive() else { return };
    machine.set_decoder(Some(libjpeg));
    machine.schedule(Schedule::Random(11));
    for seed in 1..12 {
        ends(move || {
            let on_gpu = |it: LoaderBuilder| it.device(DeviceChoice::Gpu(0)).runtime(&runtime());
            run(on_gpu, if seed % 2 == 0 { BEGINS } else { ENDS }, seed);
        });
        assert_clean(&machine, "after choosing");
    }
}

/// Whether two workers ever decode at the same time, for a loader that decodes on the CPU and runs
/// operators on the device. `most` is the setting `decode.max_cpu_threads`.
fn decode_together(most: Option<usize>) -> bool {
    let images = (0..24).map(|seed| (jpeg(seed, 640, 480), seed as i64)).collect();
    let loader =
        Loader::builder(Memory::new(images).unwrap(), training()).batch_size(4).num_workers(2);
    let loader = loader
        .device(DeviceChoice::Gpu(0))
        .runtime(&runtime())
        .configure(|it| it.decode.max_cpu_threads = most)
        .trace(1000);
    let mut loader = loader.build().unwrap();
    let offload = Offload { operators: 3, decode: false };
    loader.choose(Choice { offload, ..loader.choice() }).unwrap();
    for _ in 0..EPOCHS {
        loader.epoch().for_each(|batch| drop(batch.unwrap()));
    }
    assert!(loader.stats().outcomes["cpu"] > 0, "{:?}", loader.stats().outcomes);
    let mut text = Vec::new();
    loader.trace_json(&mut text).unwrap();
    let trace: Value = serde_json::from_slice(&text).unwrap();
    let spans = trace["traceEvents"].as_array().unwrap().iter().filter(|it| it["name"] == "decode");
    let mut spans: Vec<(f64, f64)> = spans
        .map(|it| (it["ts"].as_f64().unwrap(), it["dur"].as_f64().unwrap()))
        .map(|(since, took)| (since, since + took))
        .collect();
    assert!(spans.len() > 40, "{}", spans.len());
    spans.sort_by(|a, b| a.0.total_cmp(&b.0));
    // Timestamps are in microseconds, rounded to a nanosecond. So spans that seem to overlap by at
    // most 2 ns may follow each other.
    spans.windows(2).any(|pair| pair[1].0 + 0.002 < pair[0].1)
}

/// If the device only runs operators, all workers decode, unless `decode.max_cpu_threads` limits
/// them.
#[test]
fn all_workers_decode_where_only_operators_are_on_the_device() {
    let Some(machine) = exclusive() else { return };
    machine.set_decoder(Some(libjpeg));
    ends(|| {
        assert!(!decode_together(Some(1)));
        assert!(decode_together(None));
    });
    assert_clean(&machine, "after decoding on the CPU");
}

/// A program may call `choose` with every batch for weeks. The memory for choices must not grow.
#[test]
fn only_the_last_manual_choice_is_stored() {
    let loader = free(&Arc::new(())).device(DeviceChoice::Cpu).build().unwrap();
    let all = choices(&loader);
    for &choice in all.iter().cycle().take(1000) {
        loader.choose(choice).unwrap();
        let decisions = loader.decisions();
        assert_eq!((decisions.len(), decisions[0].choice), (1, choice));
    }
}
