//! Tests of snapshots and of their differences.

use super::*;

#[test]
fn stage_counts_add_up_and_since_subtracts_the_earlier_snapshot() {
    let meters = Meters::new(3);
    let meter = meters.thread("a");
    meter.add_time(Stage::Read, Duration::from_millis(2), 100);
    meter.waited_for_input(Stage::Read, Duration::from_millis(5));
    let before = meters.snapshot();
    meter.add_time(Stage::Read, Duration::from_millis(3), 50);
    meter.waited_for_room(Stage::Read, Duration::from_millis(7));
    let other = meters.thread("b");
    other.add_time(Stage::Read, Duration::from_millis(10), 1);
    let all = meters.snapshot();
    let read = all.stage(Stage::Read);
    assert_eq!((read.count, read.bytes, read.busy), (3, 151, 15_000_000));
    let after = all.since(&before);
    let read = after.stage(Stage::Read);
    assert_eq!((read.count, read.bytes, read.busy), (2, 51, 13_000_000));
    assert_eq!((read.input, read.output, read.latency.count()), (0, 7_000_000, 2));
    assert_eq!(after.by_thread[1].0, "b");
    assert!((meters.busy()[Stage::Read as usize] - 0.015).abs() < 1e-9);
    assert_eq!(meters.waits(), (0.005, 0.007));
}

#[test]
fn device_time_is_counted_by_stage_and_route_over_all_threads() {
    let meters = Meters::new(3);
    let cuda = meters.device(Stage::DeviceDecode, "cuda");
    cuda.add(1, Duration::from_micros(5));
    let before = meters.snapshot();
    meters.device(Stage::DeviceDecode, "cuda").add(2, Duration::from_micros(7));
    meters.device(Stage::DeviceDecode, "host").add(1, Duration::from_micros(11));
    meters.device(Stage::Kernel, "fused").add(1, Duration::from_micros(13));
    meters.device_waits().add(4, Duration::from_micros(17));
    let after = meters.snapshot().since(&before);
    let decode = after.device(Stage::DeviceDecode);
    assert_eq!((after.device.len(), decode.items, decode.busy), (3, 3, 18_000));
    assert_eq!((after.device[0].1, after.device[0].2.items), ("cuda", 2));
    assert_eq!(after.steps.waited_on_device.busy, 17_000);
    assert_eq!(after.since(&after).steps.waited_on_device.busy, 0);
}

#[test]
fn ring_events_of_several_threads_are_in_chronological_order() {
    let meters = Meters::watched(9, Watching { spans: 16_000, marker: None });
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let meters = &meters;
            scope.spawn(move || {
                for sequence in (0..2000).map(|it| it * 4 + thread) {
                    meters.batch_begun(sequence);
                    meters.batch_done(sequence, false);
                }
            });
        }
    });
    let mut trace = Vec::new();
    meters.write_trace(0, 1, &mut trace).unwrap();
    let trace: serde_json::Value = serde_json::from_slice(&trace).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let times = events.iter().filter(|it| it["name"] == "batches being filled");
    let times: Vec<_> = times.map(|it| it["ts"].as_f64().unwrap()).collect();
    assert_eq!(times.len(), 16_000);
    assert!(times.is_sorted());
}
