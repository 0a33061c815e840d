//! Tests of traces in the format of Chrome.

use std::io::ErrorKind;
use std::time::Duration;

use super::*;

fn trace_of(loader: &Loader) -> Value {
    let mut text = Vec::new();
    loader.trace_json(&mut text).unwrap();
    serde_json::from_slice(&text).unwrap()
}

#[test]
fn a_trace_has_every_stage_of_every_sample_the_consumer_and_the_ring() {
    let loader = after_a_run(builder().trace(1000));
    // Repeat until all spans are there: the last span of a thread may end after the consumer
    // received the batch to which the span belongs.
    let mut trace = trace_of(&loader);
    for _ in 0..2000 {
        if events(&trace, "X").iter().filter(|it| it["name"] == "hand_over").count() == 80 {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
        trace = trace_of(&loader);
    }
    assert_eq!(trace["otherData"]["lost_events"], 0);
    let tracks = tracks(&trace);
    let expected =
        ["consumer", "feedwater-0", "feedwater-1", "feedwater-list", "parts of the step"];
    assert_eq!(tracks.keys().collect::<Vec<_>>(), expected);
    for stage in ["read", "header", "decode", "transform", "hand_over"] {
        let all: usize = tracks.values().map(|spans| count(spans, stage)).sum();
        assert_eq!(all, 80, "{stage}");
    }
    let samples: Vec<_> = (0..2)
        .flat_map(|it| &tracks[&format!("feedwater-{it}")])
        .filter(|it| it.2["name"] == "decode")
        .map(|it| {
            (it.2["args"]["batch"].as_u64().unwrap(), it.2["args"]["sample"].as_u64().unwrap())
        })
        .collect();
    let batches: BTreeSet<_> = samples.iter().map(|it| it.0).collect();
    let indices: BTreeSet<_> = samples.iter().map(|it| it.1).collect();
    assert_eq!((batches, indices), ((0..20).collect(), (0..40).collect()));
    assert_eq!(count(&tracks["feedwater-list"], "list"), 1);
    assert_eq!(count(&tracks["consumer"], "wait"), 20);
    assert_eq!(count(&tracks["consumer"], "step"), 20);
    assert_eq!(count(&tracks["parts of the step"], "log\"ging\\\n"), 20);
    for spans in (0..2).map(|it| &tracks[&format!("feedwater-{it}")]) {
        let busy = spans.iter().filter(|it| it.2["cat"] == "stage" && it.2["dur"] != 0.0);
        let busy: Vec<_> = busy.collect();
        // A thread is in one span at a time, so its spans must not overlap. A tolerance of 0.002 us
        // is needed, because times in the trace are rounded to nanoseconds.
        for pair in busy.windows(2) {
            assert!(pair[0].1 <= pair[1].0 + 0.002, "{pair:?}");
        }
    }
    check_ring(&trace);
    check_processor(&trace);
    check_flows(&trace, &tracks["consumer"]);
}

/// Checks that the counters of the ring never exceed its number of slots, and are zero at the end.
fn check_ring(trace: &Value) {
    for (name, most) in [("batches ready", 3), ("batches being filled", 3)] {
        let all = events(trace, "C");
        let counters: Vec<_> = all.iter().filter(|it| it["name"] == name).collect();
        let values: Vec<_> =
            counters.iter().map(|it| it["args"]["batches"].as_u64().unwrap()).collect();
        // Each batch changes a counter three times: when it is begun, finished and taken.
        assert_eq!(values.len(), 60);
        assert!(values.iter().all(|it| *it <= most) && values.contains(&1), "{name}: {values:?}");
        assert_eq!(values.last(), Some(&0));
        assert!(counters.is_sorted_by(|a, b| a["ts"].as_f64() <= b["ts"].as_f64()));
    }
}

/// Checks the counter of threads that wait for a processor. It has one value per batch, if the
/// kernel reports these waits.
fn check_processor(trace: &Value) {
    let all = events(trace, "C");
    let waiting = all.iter().filter(|it| it["name"] == "threads waiting for a processor");
    let values: Vec<_> = waiting.map(|it| it["args"]["threads"].as_f64().unwrap()).collect();
    let told = std::fs::read_to_string("/proc/thread-self/schedstat");
    let told = told.is_ok_and(|it| !it.trim_end().ends_with(" 0"));
    assert_eq!(values.len(), if told { 19 } else { 0 });
    assert!(values.iter().all(|it| *it >= 0.0), "{values:?}");
}

/// Checks that every batch has an arrow in the trace. The arrow begins in the span of the thread
/// that finished the batch, and ends in the consumer's wait for this batch.
fn check_flows(trace: &Value, consumer: &[(f64, f64, &Value)]) {
    let (starts, ends) = (events(trace, "s"), events(trace, "f"));
    assert_eq!((starts.len(), ends.len()), (20, 20));
    for (start, end) in starts.iter().zip(ends) {
        assert_eq!(start["id"], end["id"]);
        let at = |it: &Value| it["ts"].as_f64().unwrap();
        assert!(at(start) <= at(end));
        assert!(start["tid"].as_u64() > end["tid"].as_u64());
        let wait = consumer.iter().find(|it| it.2["args"]["batch"] == end["id"]).unwrap();
        assert!(wait.0 <= at(end) && at(end) <= wait.1, "{end} {wait:?}");
    }
}

#[test]
fn a_trace_holds_the_latest_spans_in_the_memory_of_its_row() {
    let loader = after_a_run(builder().trace(16));
    let trace = trace_of(&loader);
    let tracks = tracks(&trace);
    assert!(tracks.values().all(|spans| spans.len() <= 16));
    // The trace keeps only 16 of the consumer's 40 spans (waits and steps).
    assert_eq!(tracks["consumer"].len(), 16);
    let wait = tracks["consumer"].iter().rfind(|it| it.2["name"] == "wait").unwrap();
    assert_eq!(wait.2["args"]["batch"], 19);
    assert!(trace["otherData"]["lost_events"].as_u64().unwrap() >= 24);
    let row = loader.footprint().row("trace").unwrap();
    assert_eq!(row.total_bytes(), trace_bytes(16, loader.measured().by_thread.len() as u64));
    assert!(has_words(&row.note, &[&(3 + OTHER_TRACKS).to_string()]), "{}", row.note);
}

#[test]
fn a_loader_without_a_trace_reports_that_and_has_no_row() {
    let loader = builder().build().unwrap();
    let error = loader.trace_json(Vec::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("LoaderBuilder::trace"), "{error}");
    assert!(loader.footprint().row("trace").is_none());
}

/// If a loop ends early, its remaining batches are discarded and must not count as ready.
#[test]
fn discarded_batches_leave_the_ring() {
    let mut loader = builder().trace(1000).build().unwrap();
    loader.epoch().next().unwrap().unwrap();
    while loader.measured().ready < 2 {
        std::thread::yield_now();
    }
    for batch in &mut loader {
        batch.unwrap();
    }
    assert_eq!((loader.measured().ready, loader.measured().filling), (0, 0));
    let trace = trace_of(&loader);
    assert_eq!(count(&tracks(&trace)["consumer"], "wait"), 11);
    check_flows_of_those_that_came(&trace);
}

fn check_flows_of_those_that_came(trace: &Value) {
    let ids: Vec<_> = events(trace, "f").iter().map(|it| it["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), 11);
    assert_eq!(ids[0], 0);
    assert!(ids[1] >= 3, "ready batches were discarded: {ids:?}");
}
