//! What a lane counts, at invented times where it can.

use super::*;

#[test]
fn a_thread_is_absent_before_it_begins_and_after_it_is_over() {
    let lane = Lane::new("a".into(), Arc::default(), None, Instant::now());
    let at = |ms: u64| {
        let Absence { starting, finished } = lane.absence(Duration::from_millis(ms));
        (starting / 1_000_000, finished / 1_000_000)
    };
    assert_eq!(at(70), (0, 0), "it may be no thread");
    lane.began_at(Duration::from_millis(100));
    assert_eq!([at(70), at(100), at(400)], [(70, 0), (100, 0), (100, 0)]);
    lane.over_at(Duration::from_millis(300));
    assert_eq!([at(300), at(400)], [(100, 0), (100, 100)]);
    let [early, late] = [150, 400].map(|ms| lane.absence(Duration::from_millis(ms)));
    let after = late.since(early, 0.25);
    assert_eq!((after.starting, after.finished), (0, 100_000_000));
    // The first look came before the thread did.
    assert_eq!(late.since(Absence::default(), 0.05).starting, 50_000_000);
    let over = lane.on_this_thread();
    assert_eq!(lane.absence(Duration::from_secs(5)).finished, 0);
    drop(over);
    assert!(lane.absence(Duration::from_secs(5)).finished > 0);
}

#[test]
fn processor_time_is_taken_of_every_long_sample_and_of_few_short_ones() {
    let lane = Lane::new("a".into(), Arc::default(), None, Instant::now());
    lane.sample_took(Duration::from_millis(1));
    assert!((0..32).all(|_| lane.clock().is_some()));
    lane.sample_took(Duration::from_micros(20));
    assert_eq!((0..160).filter(|_| lane.clock().is_some()).count(), 10);
}

/// Samples that take so many nanoseconds by turns; gives how many were timed.
fn tiny(lane: &Lane, samples: u64, took: [u64; 2]) -> u64 {
    let mut timed = 0;
    for number in 0..samples {
        let begin = lane.sample_begins();
        lane.clock();
        timed += u64::from(lane.is_timed());
        lane.add_time(Stage::Read, Duration::from_nanos(took[number as usize % 2]), 7);
        lane.sample_ends(begin);
    }
    timed
}

#[test]
fn of_tiny_samples_few_are_timed_for_all_and_every_one_is_counted() {
    let lane = Lane::new("a".into(), Arc::default(), None, Instant::now());
    assert_eq!(tiny(&lane, FIRST, [10; 2]), FIRST);
    let before = lane.counts()[Stage::Read as usize].clone();
    let samples = 200_000;
    let timed = tiny(&lane, samples, [5_000, 15_000]);
    assert!((samples / timed).abs_diff(TIMED) <= TIMED / 8, "{timed}");
    let read = lane.counts()[Stage::Read as usize].since(&before);
    assert_eq!((read.count, read.bytes), (samples, 7 * samples));
    let mean = read.busy as f64 / samples as f64;
    assert!((mean / 10_000.0 - 1.0).abs() < 0.05, "{mean}");
    assert!(read.latency.count() <= samples + 1 && read.latency.count() > samples - 2 * TIMED);
}

#[test]
fn long_samples_are_all_timed_and_those_that_follow_one_for_a_while() {
    let lane = Lane::new("a".into(), Arc::default(), None, Instant::now());
    tiny(&lane, 20 * FIRST, [10; 2]);
    let skips = |lane: &Lane| {
        (0..3 * TIMED).any(|_| {
            lane.sample_begins();
            !lane.is_timed()
        })
    };
    assert!(skips(&lane));
    while lane.skipped.load(Relaxed) > 0 {
        lane.sample_begins();
    }
    lane.sample_took(Duration::from_millis(2));
    assert_eq!(tiny(&lane, 50, [10; 2]), 50);
    tiny(&lane, FIRST, [10; 2]);
    assert!(skips(&lane));
}

/// A thread that sleeps has time and no processor's time; one that works has both.
#[test]
fn processor_time_is_that_of_work() {
    let lane = Lane::new("a".into(), Arc::default(), None, Instant::now());
    lane.sample_took(Duration::from_secs(1));
    let mut clock = lane.clock().unwrap();
    std::thread::sleep(Duration::from_millis(20));
    lane.clocked(&[(Stage::Read, Duration::from_millis(20))], &mut clock);
    let begin = thread_time();
    while thread_time() - begin < 20_000_000 {}
    lane.clocked(&[(Stage::Decode, Duration::from_millis(20))], &mut clock);
    let counts = lane.counts();
    assert!(counts[Stage::Read as usize].cpu < 5_000_000);
    assert!(counts[Stage::Decode as usize].cpu >= 20_000_000);
    assert_eq!(counts[Stage::Decode as usize].cpu_share(), 1.0);
}
