//! What a loader chooses by itself against every fixed setting, on this machine.
//!
//! `cargo bench --bench tuning [-- --quick | --only WORD]`; `--only` takes the loops with that word in their names. For each
//! loop (images, reads, step) all fixed workers and prefetches run by turns with a loader that chooses, `ROUNDS` times; of
//! each the median counts. The bar: what is chosen reaches 95 % of the best fixed setting.

mod common;

use std::thread;
use std::time::{Duration, Instant};

use feedwater::error::DataError;
use feedwater::loader::{DeviceChoice, Loader, LoaderBuilder};
use feedwater::source::{Directory, Page, Source};
use rustix::time::{ClockId, clock_gettime};

const ROUNDS: usize = 2;
const IMAGES: u64 = 512;
const BATCH: usize = 32;
const WORKERS: [usize; 5] = [1, 2, 3, 4, 16];
const PREFETCH: [usize; 3] = [1, 2, 6];
const BAR: f64 = 0.95;

/// A loop: how long a read waits besides, and what the consumer does.
struct Case {
    name: &'static str,
    read: Duration,
    step: Step,
}

/// What the consumer does with a batch.
enum Step {
    Nothing,
    /// It waits, as one does whose work is on a device.
    Sleeps(Duration),
    /// It takes a processor.
    Works(Duration),
}

/// A directory whose files come later.
struct Late(Directory, Duration);

impl Source for Late {
    fn len(&self) -> u64 {
        self.0.len()
    }
    fn label(&self, index: u64) -> i64 {
        self.0.label(index)
    }
    fn location(&self, index: u64) -> String {
        self.0.location(index)
    }
    fn read(&self, index: u64, page: &mut dyn Page, limit: u64) -> Result<(), DataError> {
        if !self.1.is_zero() {
            thread::sleep(self.1);
        }
        self.0.read(index, page, limit)
    }
    fn inner(&self) -> Option<&dyn Source> {
        Some(&self.0)
    }
}

fn main() {
    let quick = std::env::args().any(|it| it == "--quick" || it == "--test");
    let (rounds, seconds) = if quick { (1, 0.3) } else { (ROUNDS, 1.5) };
    let millis = Duration::from_millis;
    let cases = [
        Case { name: "nothing but loading", read: Duration::ZERO, step: Step::Nothing },
        Case {
            name: "a step of 60 ms on a device",
            read: Duration::ZERO,
            step: Step::Sleeps(millis(60)),
        },
        Case {
            name: "a step of 30 ms on a device",
            read: Duration::ZERO,
            step: Step::Sleeps(millis(30)),
        },
        Case {
            name: "a step of 20 ms on a processor",
            read: Duration::ZERO,
            step: Step::Works(millis(20)),
        },
        Case { name: "reads that wait 15 ms", read: millis(15), step: Step::Sleeps(millis(30)) },
    ];
    println!("{} cores, batches of {BATCH} images of 500x375, {rounds} rounds", cores());
    println!(
        "\n| loop | best fixed setting | images/s | chosen | images/s | ratio |\n|---|---|---|---|---|---|"
    );
    let mut args = std::env::args().skip_while(|it| it != "--only");
    let only = args.nth(1).unwrap_or_default();
    let mut missed = Vec::new();
    for case in cases.iter().filter(|it| it.name.contains(&only)) {
        let ratio = run(case, rounds, seconds);
        if ratio < BAR {
            missed.push(case.name);
        }
    }
    match &missed[..] {
        [] => println!("\nThe bar of {BAR} is held by all."),
        missed => println!("\nThe bar of {BAR} is missed by: {}.", missed.join(", ")),
    }
}

/// Prints a line, and gives what is chosen by the best fixed setting.
fn run(case: &Case, rounds: usize, seconds: f64) -> f64 {
    let mut fixed: Vec<((usize, usize), Vec<f64>)> = Vec::new();
    for workers in WORKERS {
        fixed.extend(PREFETCH.map(|prefetch| ((workers, prefetch), Vec::new())));
    }
    let mut chosen = Vec::new();
    let mut choice = String::new();
    for _ in 0..rounds {
        for ((workers, prefetch), rates) in &mut fixed {
            let loader = builder(case).workers(*workers).prefetch(*prefetch).build();
            let loader = loader.expect("the settings can be");
            epochs(&loader, case, 0.2, |_| false);
            rates.push(epochs(&loader, case, seconds, |_| false));
        }
    }
    let median = |rates: &mut Vec<f64>| {
        rates.sort_by(f64::total_cmp);
        rates[rates.len() / 2]
    };
    let fixed = fixed.into_iter().map(|(setting, mut rates)| (setting, median(&mut rates)));
    let best = fixed.max_by(|a, b| a.1.total_cmp(&b.1));
    let ((workers, prefetch), _) = best.expect("there are fixed settings");
    // The best of many is partly luck: it is measured again, by turns with what is chosen.
    let mut again = Vec::new();
    for _ in 0..2 * rounds + 1 {
        let loader = builder(case).workers(workers).prefetch(prefetch).build();
        let loader = loader.expect("the settings can be");
        epochs(&loader, case, 0.2, |_| false);
        again.push(epochs(&loader, case, seconds, |_| false));
        let loader = builder(case).auto_workers().auto_prefetch().build();
        let loader = loader.expect("the settings can be");
        epochs(&loader, case, 60.0, Loader::is_settled);
        chosen.push(epochs(&loader, case, seconds, |_| false));
        choice = loader.choice().to_string();
    }
    let (best, rate) = (median(&mut again), median(&mut chosen));
    let (name, ratio) = (case.name, rate / best);
    println!(
        "| {name} | workers {workers}, prefetch {prefetch} | {best:.0} | {choice} | {rate:.0} | {ratio:.3} |"
    );
    ratio
}

fn builder(case: &Case) -> LoaderBuilder {
    let dir = common::set(IMAGES, common::SIZES[0]);
    let source = Late(Directory::open(&dir).expect("the set is there"), case.read);
    let builder = Loader::builder(source, common::training()).device(DeviceChoice::Cpu);
    builder.batch(BATCH).shuffle(true)
}

/// How long a processor has worked for this thread.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Uses batches for so long, or until it is enough; gives the images a second.
fn epochs(loader: &Loader, case: &Case, seconds: f64, enough: impl Fn(&Loader) -> bool) -> f64 {
    let (begin, mut images) = (Instant::now(), 0);
    loop {
        for batch in loader {
            images += batch.expect("the images are sound").len();
            match case.step {
                Step::Nothing => {}
                Step::Sleeps(time) => thread::sleep(time),
                Step::Works(time) => {
                    // By the processor's time: a step is no shorter for workers that take its processor.
                    let begin = processor_time();
                    while processor_time() - begin < time {}
                }
            }
            let passed = begin.elapsed().as_secs_f64();
            if passed >= seconds || enough(loader) {
                return images as f64 / passed;
            }
        }
    }
}

fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}
