//! What a loader exports of itself: metrics and their endpoint, the trace, the profile.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use feedwater::Error;
use feedwater::loader::{DeviceChoice, Loader, LoaderBuilder};
use feedwater::measure::{OTHER_TRACKS, Profile, Stage, trace_bytes};
use feedwater::synth;
use serde_json::Value;

const LOCAL: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

fn builder() -> LoaderBuilder {
    Loader::builder(common::memory(40), common::training())
        .device(DeviceChoice::Cpu)
        .batch(4)
        .workers(2)
        .prefetch(2)
        .epochs(Some(2))
}

/// A loader that has run its two epochs, with parts of steps that have names.
fn after_a_run(builder: LoaderBuilder) -> Loader {
    let loader = builder.build().unwrap();
    for _ in 0..2 {
        for batch in &loader {
            let _span = loader.span("log\"ging\\\n");
            drop(batch.unwrap());
        }
    }
    loader
}

// --- The text -------------------------------------------------------------------------------------------------------------

/// A sample of the text format: name, labels, value.
type Sample = (String, BTreeMap<String, String>, f64);

/// The families of a text, each with its type and samples. Fails where the text is not what version 0.0.4 of the format
/// allows, or what promtool's linter would not have.
fn parsed(text: &str) -> BTreeMap<String, (String, Vec<Sample>)> {
    assert!(text.ends_with('\n'));
    let mut families: BTreeMap<String, (String, Vec<Sample>)> = BTreeMap::new();
    let (mut current, mut helped) = (String::new(), String::new());
    let mut seen = BTreeSet::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap();
            assert!(!help.is_empty() && !families.contains_key(name), "{line}");
            helped = name.to_string();
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert_eq!(name, helped, "HELP stands before TYPE");
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert_eq!(name.ends_with("_total"), kind == "counter", "{line}");
            assert!(name.starts_with("feedwater_"), "{line}");
            assert!(name.bytes().all(|it| it.is_ascii_lowercase() || it == b'_'), "{line}");
            current = name.to_string();
            families.insert(current.clone(), (kind.to_string(), Vec::new()));
        } else {
            let sample = sample(line);
            assert!(seen.insert((sample.0.clone(), sample.1.clone())), "twice: {line}");
            let family = families.get_mut(&current).unwrap();
            let suffix =
                sample.0.strip_prefix(&current).unwrap_or_else(|| panic!("{line} in {current}"));
            let suffixes: &[&str] =
                if family.0 == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
            assert!(suffixes.contains(&suffix), "{line}");
            family.1.push(sample);
        }
    }
    for (name, (kind, samples)) in &families {
        assert!(!samples.is_empty(), "{name} has no samples");
        if kind == "histogram" {
            check_histogram(name, samples);
        }
    }
    families
}

fn sample(line: &str) -> Sample {
    let end = line.find(|it: char| !(it.is_ascii_alphanumeric() || it == '_')).unwrap();
    let (name, mut rest) = line.split_at(end);
    let mut labels = BTreeMap::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        loop {
            let (label, after) = rest.split_once("=\"").unwrap();
            assert!(label.bytes().all(|it| it.is_ascii_lowercase()) && !label.is_empty(), "{line}");
            let (mut value, mut chars) = (String::new(), after.char_indices());
            let end = loop {
                match chars.next().unwrap() {
                    (at, '"') => break at,
                    (_, '\\') => value.push(match chars.next().unwrap().1 {
                        'n' => '\n',
                        it @ ('\\' | '"') => it,
                        it => panic!("\\{it} in {line}"),
                    }),
                    (_, it) => value.push(it),
                }
            };
            assert!(labels.insert(label.to_string(), value).is_none(), "{line}");
            rest = &after[end + 1..];
            match rest.strip_prefix(',') {
                Some(more) => rest = more,
                None => break,
            }
        }
        rest = rest.strip_prefix('}').unwrap();
    }
    let value = rest.strip_prefix(' ').unwrap();
    assert!(!value.contains(' '), "{line}");
    (name.to_string(), labels, value.parse().unwrap())
}

fn check_histogram(name: &str, samples: &[Sample]) {
    let mut series: BTreeMap<_, Vec<(f64, f64)>> = BTreeMap::new();
    let mut counts = BTreeMap::new();
    for (part, labels, value) in samples {
        let mut labels = labels.clone();
        match labels.remove("le") {
            Some(bound) => {
                let bound = if bound == "+Inf" { f64::INFINITY } else { bound.parse().unwrap() };
                assert!(part.ends_with("_bucket"));
                series.entry(labels).or_default().push((bound, *value));
            }
            None if part.ends_with("_count") => assert!(counts.insert(labels, *value).is_none()),
            None => assert!(part.ends_with("_sum") && *value >= 0.0),
        }
    }
    assert_eq!(series.len(), counts.len(), "{name}");
    for (labels, buckets) in series {
        assert!(buckets.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1), "{name}: {buckets:?}");
        assert_eq!(buckets.last(), Some(&(f64::INFINITY, counts[&labels])), "{name}");
    }
}

/// The value of a sample with this name and label value.
fn value(families: &BTreeMap<String, (String, Vec<Sample>)>, name: &str, label: &str) -> f64 {
    let samples = families.values().flat_map(|it| &it.1);
    let mut found = samples.filter(|(it, labels, _)| {
        it == name
            && (label.is_empty() && labels.is_empty() || labels.values().any(|it| it == label))
    });
    found.next().unwrap_or_else(|| panic!("{name} {label}")).2
}

#[test]
fn metrics_are_well_formed_and_say_what_was_done() {
    let loader = after_a_run(builder().cache_encoded(Some(1 << 20)));
    let families = parsed(&loader.metrics());
    for (name, label, expected) in [
        ("feedwater_images_total", "", 80.0),
        ("feedwater_batches_total", "", 20.0),
        ("feedwater_batches_made_total", "", 20.0),
        ("feedwater_stage_items_total", "decode", 80.0),
        ("feedwater_stage_latency_seconds_count", "decode", 80.0),
        ("feedwater_consumer_wait_seconds_count", "", 20.0),
        // No step between the epochs.
        ("feedwater_consumer_step_seconds_count", "", 18.0),
        ("feedwater_outcomes_total", "cpu", 80.0),
        ("feedwater_outcomes_total", "skipped", 0.0),
        ("feedwater_cache_hits_total", "encoded", 40.0),
        ("feedwater_cache_misses_total", "encoded", 40.0),
        ("feedwater_ring_slots", "", 3.0),
        ("feedwater_ring_ready_batches", "", 0.0),
        ("feedwater_ring_filling_batches", "", 0.0),
    ] {
        assert_eq!(value(&families, name, label), expected, "{name} {label}");
    }
    let profile = loader.profile();
    let busy = value(&families, "feedwater_stage_seconds_total", "decode");
    assert!((busy / profile.stage(Stage::Decode).unwrap().busy - 1.0).abs() < 1e-9);
    assert_eq!(value(&families, "feedwater_readiness_ratio", ""), profile.consumer.readiness);
    assert!(value(&families, "feedwater_memory_peak_bytes", "host") > 1e6);
    assert!(value(&families, "feedwater_memory_predicted_bytes", "host") > 1e6);
    assert!(value(&families, "feedwater_consumer_part_seconds_total", "log\"ging\\\n") > 0.0);
}

#[test]
fn metrics_of_a_loader_that_has_done_nothing_are_well_formed() {
    parsed(&builder().build().unwrap().metrics());
}

#[test]
#[should_panic(expected = "in feedwater_a")]
fn the_parser_refuses_samples_of_another_family() {
    parsed("# HELP feedwater_a b\n# TYPE feedwater_a gauge\nother 1\n");
}

// --- The endpoint ---------------------------------------------------------------------------------------------------------

/// What the endpoint answers to these bytes: status line and body.
fn asked(address: SocketAddr, request: &[u8]) -> (String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(request).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    let length = head.lines().find_map(|it| it.strip_prefix("Content-Length: ")).unwrap();
    assert_eq!(length.parse(), Ok(body.len()));
    (head.lines().next().unwrap().to_string(), body.to_string())
}

#[test]
fn the_endpoint_answers_get_metrics_and_refuses_the_rest() {
    let loader = after_a_run(builder());
    let address = loader.serve_metrics(LOCAL).unwrap();
    for target in ["/metrics", "/metrics?a=b"] {
        let request = format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
        let (status, body) = asked(address, request.as_bytes());
        assert_eq!(status, "HTTP/1.1 200 OK");
        assert_eq!(value(&parsed(&body), "feedwater_images_total", ""), 80.0);
    }
    let long = format!("GET /metrics HTTP/1.1\r\nA: {}\r\n\r\n", "a".repeat(9000));
    for (request, status) in [
        ("GET / HTTP/1.1\r\n\r\n", "404 Not Found"),
        ("GET /metricsx HTTP/1.1\r\n\r\n", "404 Not Found"),
        ("POST /metrics HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", "405 Method Not Allowed"),
        ("DELETE /metrics HTTP/1.0\r\n\r\n", "405 Method Not Allowed"),
        ("GET /metrics\r\n\r\n", "400 Bad Request"),
        ("GET /metrics HTTP/2\r\n\r\n", "400 Bad Request"),
        ("\r\n\r\n", "400 Bad Request"),
        (&long, "431 Request Header Fields Too Large"),
    ] {
        assert_eq!(
            asked(address, request.as_bytes()).0,
            format!("HTTP/1.1 {status}"),
            "{request:?}"
        );
    }
    let error = loader.serve_metrics(LOCAL).unwrap_err().to_string();
    assert!(error.contains(&format!("metrics: are served at {address} already")), "{error}");
}

#[test]
fn the_endpoint_is_for_loopback_only() {
    let loader = builder().build().unwrap();
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:9090"] {
        let error = loader.serve_metrics(address.parse().unwrap()).unwrap_err();
        assert!(
            matches!(error, Error::Config { .. }) && error.to_string().contains("127.0.0.1:"),
            "{error}"
        );
    }
    let taken = builder().build().unwrap();
    let address = taken.serve_metrics(LOCAL).unwrap();
    let error = loader.serve_metrics(address).unwrap_err().to_string();
    assert!(error.contains("take another port"), "{error}");
}

/// Clients that send slowly, nothing, without end, or read nothing: others are answered meanwhile, and the loader ends.
#[test]
fn hostile_clients_hold_up_nobody() {
    let loader = after_a_run(builder());
    let address = loader.serve_metrics(LOCAL).unwrap();
    let mut hostile = Vec::new();
    for number in 0..12 {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_nonblocking(true).unwrap();
        // Some have closed on us at the end, which is as well.
        let _ = match number % 3 {
            0 => stream.write(b"GET /met"),
            1 => stream.write(b"GET /metrics HTTP/1.1\r\n\r\nand more"),
            _ => Ok(0),
        };
        hostile.push(stream);
    }
    let flood = TcpStream::connect(address).unwrap();
    let flooding = std::thread::spawn(move || {
        let mut flood = flood;
        while flood.write_all(&[b'a'; 4096]).is_ok() {}
    });
    let (status, _) = asked(address, b"GET /metrics HTTP/1.1\r\n\r\n");
    assert_eq!(status, "HTTP/1.1 200 OK");
    let begin = Instant::now();
    drop(loader);
    assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", begin.elapsed());
    flooding.join().unwrap();
    let refused = TcpStream::connect(address).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "the thread ends with the loader");
}

/// A client that says nothing is given up, even while the loader lives.
#[test]
fn a_silent_client_is_given_up() {
    let loader = builder().build().unwrap();
    let address = loader.serve_metrics(LOCAL).unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    assert_eq!(stream.read(&mut [0; 10]).unwrap(), 0);
}

// --- The trace ------------------------------------------------------------------------------------------------------------

fn trace_of(loader: &Loader) -> Value {
    let mut text = Vec::new();
    loader.trace_json(&mut text).unwrap();
    serde_json::from_slice(&text).unwrap()
}

fn events<'a>(trace: &'a Value, phase: &str) -> Vec<&'a Value> {
    trace["traceEvents"].as_array().unwrap().iter().filter(|it| it["ph"] == phase).collect()
}

/// Name of each track, and its spans: begin, end, event. Fails where they are not in order, or overlap but by nesting.
fn tracks(trace: &Value) -> BTreeMap<String, Vec<(f64, f64, &Value)>> {
    let mut names = BTreeMap::new();
    for event in events(trace, "M").iter().filter(|it| it["name"] == "thread_name") {
        let name = event["args"]["name"].as_str().unwrap().to_string();
        assert!(names.insert(event["tid"].as_u64().unwrap(), name).is_none());
    }
    let mut tracks: BTreeMap<_, Vec<_>> =
        names.values().map(|it| (it.clone(), Vec::new())).collect();
    for event in events(trace, "X") {
        let (begin, took) = (event["ts"].as_f64().unwrap(), event["dur"].as_f64().unwrap());
        assert!(begin >= 0.0 && took >= 0.0, "{event}");
        let name = &names[&event["tid"].as_u64().unwrap()];
        tracks.get_mut(name).unwrap().push((begin, begin + took, event));
    }
    const SLACK: f64 = 1e-6;
    for (name, spans) in &tracks {
        assert!(spans.is_sorted_by(|a, b| a.0 <= b.0), "{name}");
        let mut around: Vec<f64> = Vec::new();
        for (begin, end, event) in spans {
            while around.last().is_some_and(|it| *it <= begin + SLACK) {
                around.pop();
            }
            assert!(around.last().is_none_or(|it| *end <= it + SLACK), "{name}: {event}");
            around.push(*end);
        }
    }
    tracks
}

fn count(spans: &[(f64, f64, &Value)], name: &str) -> usize {
    spans.iter().filter(|it| it.2["name"] == name).count()
}

#[test]
fn a_trace_has_every_stage_of_every_sample_the_consumer_and_the_ring() {
    let loader = after_a_run(builder().trace(1000));
    // The last span of a thread ends after the consumer has its batch.
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
    assert_eq!(count(&tracks["consumer"], "step"), 18);
    assert_eq!(count(&tracks["parts of the step"], "log\"ging\\\n"), 20);
    for spans in (0..2).map(|it| &tracks[&format!("feedwater-{it}")]) {
        let busy = spans.iter().filter(|it| it.2["cat"] == "stage" && it.2["dur"] != 0.0);
        let busy: Vec<_> = busy.collect();
        // A thread does one thing at a time; spans are written to a nanosecond.
        for pair in busy.windows(2) {
            assert!(pair[0].1 <= pair[1].0 + 0.002, "{pair:?}");
        }
    }
    check_ring(&trace);
    check_flows(&trace, &tracks["consumer"]);
}

/// Counters never exceed the ring, and end at nothing.
fn check_ring(trace: &Value) {
    for (name, most) in [("batches ready", 3), ("batches being filled", 3)] {
        let all = events(trace, "C");
        let counters: Vec<_> = all.iter().filter(|it| it["name"] == name).collect();
        let values: Vec<_> =
            counters.iter().map(|it| it["args"]["batches"].as_u64().unwrap()).collect();
        // Begun, done, taken.
        assert_eq!(values.len(), 60);
        assert!(values.iter().all(|it| *it <= most) && values.contains(&1), "{name}: {values:?}");
        assert_eq!(values.last(), Some(&0));
        assert!(counters.is_sorted_by(|a, b| a["ts"].as_f64() <= b["ts"].as_f64()));
    }
}

/// Every batch has an arrow from a thread's span into the wait that it ended.
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
fn a_trace_keeps_the_latest_spans_in_the_memory_that_its_row_says() {
    let loader = after_a_run(builder().trace(16));
    let trace = trace_of(&loader);
    let tracks = tracks(&trace);
    assert!(tracks.values().all(|spans| spans.len() <= 16));
    // Of 38 waits and steps.
    assert_eq!(tracks["consumer"].len(), 16);
    assert_eq!(tracks["consumer"].last().unwrap().2["args"]["batch"], 19);
    assert!(trace["otherData"]["lost_events"].as_u64().unwrap() >= 22);
    let row = loader.footprint().row("trace").unwrap();
    assert_eq!(row.total_bytes(), trace_bytes(16, loader.measured().lanes.len() as u64));
    assert!(row.note.contains(&format!("each of {} tracks", 3 + OTHER_TRACKS)), "{}", row.note);
}

#[test]
fn a_loader_without_a_trace_says_so_and_has_no_row() {
    let loader = builder().build().unwrap();
    let error = loader.trace_json(Vec::new()).unwrap_err();
    assert!(error.to_string().contains("LoaderBuilder::trace"), "{error}");
    assert!(loader.footprint().row("trace").is_none());
}

/// A loop that is left early: what was ready and is given up counts as ready no more.
#[test]
fn batches_that_are_given_up_leave_the_ring() {
    let loader = builder().trace(1000).build().unwrap();
    (&loader).into_iter().next().unwrap().unwrap();
    while loader.measured().ready < 2 {
        std::thread::yield_now();
    }
    for batch in &loader {
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
    assert!(ids[1] >= 3, "those that were ready were given up: {ids:?}");
}

// --- The command ----------------------------------------------------------------------------------------------------------

#[test]
fn run_writes_trace_and_profile_and_serves_metrics() {
    let dir = tempfile::tempdir().unwrap();
    let settings =
        synth::Settings { images: 12, width: 80, height: 60, classes: 2, ..Default::default() };
    synth::write(&dir.path().join("data"), &settings, |_| ()).unwrap();
    let pipeline = "[source]\ndirectory = \"data\"\n[loader]\nbatch = 4\nworkers = 2\n\
                    [[chain]]\nop = \"center_crop\"\nwidth = 32\nheight = 24\n";
    fs::write(dir.path().join("pipeline.toml"), pipeline).unwrap();
    let run = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_feedwater"));
        command.args(["run", "pipeline.toml", "--device", "cpu", "--json"]).args(args);
        command.current_dir(dir.path()).output().unwrap()
    };
    let output =
        run(&["--trace", "trace.json", "--profile", "profile.json", "--metrics", "127.0.0.1:0"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert!(stderr.starts_with("metrics: http://127.0.0.1:"), "{stderr}");
    let trace = serde_json::from_slice(&fs::read(dir.path().join("trace.json")).unwrap()).unwrap();
    assert_eq!(tracks(&trace).values().map(|it| count(it, "decode")).sum::<usize>(), 12);
    let profile: Profile =
        serde_json::from_slice(&fs::read(dir.path().join("profile.json")).unwrap()).unwrap();
    assert_eq!((profile.images, profile.batches, profile.setup.workers), (12, 3, 2));

    for (args, code, words) in [
        (["--metrics", "0.0.0.0:0"], 2, "loopback"),
        (["--trace", "missing/trace.json"], 1, "missing/trace.json"),
        (["--profile", "missing/profile.json"], 1, "missing/profile.json"),
        (["--trace-spans", "5"], 2, "--trace"),
    ] {
        let output = run(&args);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {stderr}");
        assert!(stderr.contains(words), "{args:?}: {stderr}");
    }
}
