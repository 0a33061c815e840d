//! Which prefetch windows are chosen, and how their measurements are taken. A prefetch window is
//! the maximum number of samples that are requested before workers need them.

use super::*;
use crate::common::some_of;

#[test]
fn the_window_is_nearly_optimal_within_fifty_batches_and_stable() {
    let mut bad = Vec::new();
    for mix in some_of(mixes(), 0) {
        let (run, automatic) = automatic(&mix);
        println!("{}:", mix.name);
        automatic.decisions.iter().for_each(|it| println!("    {it}"));
        for (span, (best, shortest)) in mix.spans().into_iter().zip(mix.best()) {
            let share = run.rate(mix.batch, span) / best;
            let window = automatic.at(span.0);
            let changes = automatic.changes(span);
            println!(
                "  {share:.3} of the best, {best:.0} samples/s, which a window of {shortest} reaches; {window} after 50 batches, then {changes} changes"
            );
            if share < 0.95 || changes > 3 {
                bad.push(format!("{}: {share:.3}, {changes} changes", mix.name));
            }
        }
        let (least, most) = automatic.least_most;
        assert_eq!(most, mix.most(), "{}: it must begin with the maximum", mix.name);
        assert!(mix.workers.min(mix.most()) <= least, "{}: {least}", mix.name);
    }
    assert!(bad.is_empty(), "{bad:#?}");
}

/// Returns the prefetch window that the loader of a simulated storage (`mix`) chooses within 50
/// batches.
fn window(mix: &Mix) -> usize {
    automatic(mix).1.at(50)
}

#[test]
fn if_the_consumer_limits_the_window_is_what_requests_need() {
    let far = |mean: f64, cv: f64| {
        let world = World { request: (mean, cv), step: (160.0, 0.1), ..world() };
        Mix { workers: 4, connections: 128, ..mix("200 samples a second", world) }
    };
    let windows = [far(1.0, 0.3), far(50.0, 0.3), far(200.0, 0.3)].map(|mix| window(&mix));
    // The consumer takes 200 samples per second. At request times of 1, 50 and 200 ms, it therefore
    // needs 0.2, 10 and 40 requests in flight.
    assert_eq!(windows[0], 4, "{windows:?}");
    assert!((10..30).contains(&windows[1]) && (40..130).contains(&windows[2]), "{windows:?}");
    // With 64 connections, half of the first 128 requests wait for a connection, and their measured
    // times include this wait. So the first chosen window may be larger than the 44 requests that
    // the consumer needs (200 samples/s * 0.22 s).
    let at_first = window(&Mix { connections: 64, ..far(220.0, 0.1) });
    assert!((44..80).contains(&at_first), "{at_first}");
    let stragglers = World { stragglers: (10, 400.0), ..*far(20.0, 0.2).world(0) };
    let plain = window(&far(20.0, 0.2));
    let longer = window(&mix("one in a hundred is late", stragglers));
    assert!(longer >= 3 * plain, "{plain} without, {longer} with requests that are very late");
}

#[test]
fn no_more_is_in_flight_than_the_storage_serves() {
    // The storage starts 400 requests per second, and each takes 20 ms. So about 8 are in flight.
    let limited = World { request: (20.0, 0.2), limit: 400.0, ..world() };
    let chosen = window(&mix("a rate limit", limited));
    assert!((8..=24).contains(&chosen), "{chosen}");
    // A rate limit may begin at any batch. Measurements from before and after that batch must not
    // be compared.
    let free = World { request: (20.0, 0.2), ..world() };
    for onset in 250..260 {
        let (_, automatic) = automatic(&then(mix("a limit", free), &[(onset, limited)]));
        let chosen = automatic.at(onset + 60);
        assert!(chosen <= 48, "from {onset} on: {:#?}", automatic.decisions);
    }
    // Remote storage with a high latency can have the same rate of requests without any rate limit.
    // It needs the maximum window, which is the number of requests in flight.
    let far = World { request: (320.0, 0.2), ..world() };
    let mix = Mix { connections: 512, ..mix("the same rate", far) };
    let most = mix.most();
    let (_, automatic) = automatic(&Mix { batches: 400, ..mix });
    assert!(2 * automatic.at(400) > most, "{:#?}", automatic.decisions);
}

#[test]
fn noisy_measurements_keep_the_maximum() {
    let lumps = World { stragglers: (20, 600.0), decode: (16.0, 0.3), ..world() };
    let mix = mix("one in fifty takes 600 ms", lumps);
    let (_, automatic) = automatic(&mix);
    let [decision] = &automatic.decisions[..] else { panic!("{:#?}", automatic.decisions) };
    assert_eq!((decision.window, decision.settled), (mix.most(), true));
    assert!(decision.batch >= 20, "the measurement must take longer: {decision}");
}

#[test]
fn a_pause_of_the_consumer_changes_nothing() {
    let steady = World { step: (80.0, 0.1), ..world() };
    let pausing = World { pause: (150, 60_000.0), ..steady };
    let decisions = |world: World| automatic(&mix("a pause", world)).1.decisions;
    let (expected, paused) = (decisions(steady), decisions(pausing));
    assert!(!expected.is_empty());
    assert_eq!(paused, expected);
}

#[test]
fn no_shorter_window_is_tried_during_other_tuning() {
    let limited = World { request: (20.0, 0.2), limit: 400.0, ..world() };
    let mix = mix("a rate limit", limited);
    let mut chooser = Automatic { alone: false, ..Automatic::new(&mix) };
    run(&mix, &mut chooser);
    assert_eq!(chooser.least_most, (mix.most(), mix.most()), "{:#?}", chooser.decisions);
}

#[test]
fn without_arrival_times_nothing_changes() {
    let mix = mix("a slow consumer", World { step: (500.0, 0.0), ..world() });
    let mut chooser = Automatic { told: false, ..Automatic::new(&mix) };
    run(&mix, &mut chooser);
    assert!(chooser.decisions.is_empty() && chooser.window() == mix.most());
}

/// Feeds `batches` batches to a chooser whose prefetch window is at most 100. Returns the chooser
/// and its decisions. The simulated consumer takes a batch of 10 samples every 0.1 s. `each`
/// returns the number of workers at a batch, and how long a worker and the consumer waited for the
/// batch in seconds. `request` is the time of a request in seconds.
fn fed(
    batches: usize,
    each: impl Fn(usize) -> (usize, f64),
    request: f64,
) -> (PrefetchDepth, Vec<PrefetchDecision>) {
    let mut chooser = PrefetchDepth::new(100);
    let mut decisions = Vec::new();
    for number in 0..batches {
        let (workers, waited) = each(number);
        for _ in 0..10 {
            chooser.handed_out();
            chooser.read(Some(request), 0.1 * waited);
        }
        let samples = 10;
        let now = 0.1 * number as f64;
        let taken = TakenBatch { samples, now, waited, begun: 2, workers, alone: true };
        decisions.extend(chooser.batch(&taken));
    }
    (chooser, decisions)
}

#[test]
fn requests_under_another_window_or_worker_count_are_not_measured() {
    let quiet = |workers: usize| move |_: usize| (workers, 0.0);
    // Before its first measurement, the chooser skips 12 batches: 9 batches while workers take the
    // 100 samples of the initial window, 2 batches that were begun by then, and 1 batch whose
    // arrival starts the measurement. Then the chooser measures 5 batches.
    let first = 9 + 2 + 1 + 5;
    assert_eq!(fed(first - 1, quiet(2), 0.02).1, []);
    let (chooser, decisions) = fed(first, quiet(2), 0.02);
    assert_eq!((decisions.len(), decisions[0].batch as usize), (1, first), "{decisions:#?}");
    // 100 samples per second with requests of 20 ms need 2 requests in flight. The window is a
    // quarter larger and rounded up, which is 3.
    assert_eq!((chooser.window(), decisions[0].settled), (3, true), "{decisions:#?}");
    // After the window changes, the chooser skips exactly the batches that were requested or begun
    // before the change. The assertions would fail if it skipped one batch more or less.
    let waits = |from: usize, to: usize| {
        let waited = move |number: usize| if (from..to).contains(&number) { 0.08 } else { 0.0 };
        fed(100, move |number| (2, waited(number)), 0.02).1.len()
    };
    assert_eq!((waits(0, 11), waits(first, first + 12)), (1, 1));
    assert!(waits(first, first + 17) > 1, "the window must grow as soon as the wait is measured");
    let changing = fed(200, |number| (1 + number / 4 % 2, 0.0), 0.02).1;
    assert_eq!(changing, [], "without a constant worker count there must be no decisions");
    let (chooser, decisions) = fed(60, |number| (if number < 50 { 2 } else { 30 }, 0.0), 0.02);
    assert_eq!(chooser.window(), 30, "one request per worker: {decisions:#?}");
    assert_eq!(fed(60, quiet(200), 0.02).0.window(), 100, "the window must grow to the maximum");
}

#[test]
fn a_window_is_stable_while_the_loop_is() {
    for mix in mixes().into_iter().filter(|mix| mix.phases.len() == 1) {
        let mix = Mix { batches: 3000, ..mix };
        let (_, automatic) = automatic(&mix);
        let (all, last) = (automatic.changes((50, 3000)), automatic.changes((1500, 3000)));
        println!("{}: {all} changes after 50 batches, {last} after 1500", mix.name);
        // The time before a restart doubles with each restart of the chooser, so there are few
        // changes.
        assert!(all <= 12 && last <= 4, "{}: {:#?}", mix.name, automatic.decisions);
    }
}

#[test]
fn a_loop_at_the_edge_does_not_oscillate() {
    // In about every other measurement, late samples cost throughput.
    let each = |number: usize| (2, if (number / 33).is_multiple_of(2) { 0.01 } else { 0.0 });
    let (_, decisions) = fed(4000, each, 0.9);
    assert!(decisions.len() <= 12, "{decisions:#?}");
    // 100 samples per second with requests of 0.9 s need a window of about 100, the maximum.
    let settled = |it: &&PrefetchDecision| it.settled;
    assert!(decisions.iter().filter(settled).all(|it| it.window == 100), "{decisions:#?}");
}
