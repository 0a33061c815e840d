//! Tests of the thread meter, with simulated times where possible.

use super::*;

#[test]
fn a_thread_is_absent_before_it_begins_and_after_it_ends() {
    let meter = ThreadMeter::new("a".into(), Arc::default(), None, Instant::now());
    let at = |ms: u64| {
        let Absence { starting, finished } = meter.absence(Duration::from_millis(ms));
        (starting / 1_000_000, finished / 1_000_000)
    };
    assert_eq!(at(70), (0, 0), "a thread that has not begun has no absence");
    meter.began_at(Duration::from_millis(100));
    assert_eq!([at(70), at(100), at(400)], [(70, 0), (100, 0), (100, 0)]);
    meter.over_at(Duration::from_millis(300));
    assert_eq!([at(300), at(400)], [(100, 0), (100, 100)]);
    let [early, late] = [150, 400].map(|ms| meter.absence(Duration::from_millis(ms)));
    let after = late.since(early, 0.25);
    assert_eq!((after.starting, after.finished), (0, 100_000_000));
    // The first snapshot was taken before the thread began.
    assert_eq!(late.since(Absence::default(), 0.05).starting, 50_000_000);
    let over = meter.on_this_thread();
    assert_eq!(meter.absence(Duration::from_secs(5)).finished, 0);
    drop(over);
    assert!(meter.absence(Duration::from_secs(5)).finished > 0);
}

#[test]
fn cpu_time_is_read_for_every_long_sample_and_for_few_short_ones() {
    let meter = ThreadMeter::new("a".into(), Arc::default(), None, Instant::now());
    meter.sample_took(Duration::from_millis(1));
    assert!((0..32).all(|_| meter.clock().is_some()));
    meter.sample_took(Duration::from_micros(20));
    assert_eq!((0..160).filter(|_| meter.clock().is_some()).count(), 10);
}

/// Runs samples that take these two durations alternately, in nanoseconds. Returns how many were
/// timed.
fn tiny(meter: &ThreadMeter, samples: u64, took: [u64; 2]) -> u64 {
    let mut timed = 0;
    for number in 0..samples {
        let took = Duration::from_nanos(took[number as usize % 2]);
        meter.sample_begins();
        meter.clock();
        meter.add_time(Stage::Read, took, 7);
        if meter.is_timed() {
            timed += 1;
            meter.timed_sample_ends(took);
        }
    }
    timed
}

#[test]
fn few_tiny_samples_are_timed_and_all_are_counted() {
    let meter = ThreadMeter::new("a".into(), Arc::default(), None, Instant::now());
    assert_eq!(tiny(&meter, FIRST, [10; 2]), FIRST);
    let before = meter.counts()[Stage::Read as usize].clone();
    let samples = 200_000;
    let timed = tiny(&meter, samples, [5_000, 15_000]);
    assert!((samples / timed).abs_diff(TIMED) <= TIMED / 8, "{timed}");
    let read = meter.counts()[Stage::Read as usize].since(&before);
    assert_eq!((read.count, read.bytes), (samples, 7 * samples));
    let mean = read.busy as f64 / samples as f64;
    assert!((mean / 10_000.0 - 1.0).abs() < 0.05, "{mean}");
    assert!(read.latency.count() <= samples + 1 && read.latency.count() > samples - 2 * TIMED);
}

#[test]
fn all_long_samples_are_timed_and_some_after_each() {
    let meter = ThreadMeter::new("a".into(), Arc::default(), None, Instant::now());
    tiny(&meter, 20 * FIRST, [10; 2]);
    let skips = |meter: &ThreadMeter| {
        (0..3 * TIMED).any(|_| {
            meter.sample_begins();
            !meter.is_timed()
        })
    };
    assert!(skips(&meter));
    while meter.skipped.load(Relaxed) > 0 {
        meter.sample_begins();
    }
    meter.sample_took(Duration::from_millis(2));
    assert_eq!(tiny(&meter, 50, [10; 2]), 50);
    tiny(&meter, FIRST, [10; 2]);
    assert!(skips(&meter));
}

/// Sleeping counts as elapsed time but not as CPU time. Computing counts as both.
#[test]
fn cpu_time_counts_work_and_not_sleep() {
    let meter = ThreadMeter::new("a".into(), Arc::default(), None, Instant::now());
    meter.sample_took(Duration::from_secs(1));
    let mut clock = meter.clock().unwrap();
    std::thread::sleep(Duration::from_millis(20));
    meter.clocked(&[(Stage::Read, Duration::from_millis(20))], &mut clock);
    let begin = thread_time();
    while thread_time() - begin < 20_000_000 {}
    meter.clocked(&[(Stage::Decode, Duration::from_millis(20))], &mut clock);
    let counts = meter.counts();
    assert!(counts[Stage::Read as usize].cpu < 5_000_000);
    assert!(counts[Stage::Decode as usize].cpu >= 20_000_000);
    assert_eq!(counts[Stage::Decode as usize].cpu_share(), 1.0);
}
