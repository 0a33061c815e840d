//! Tests of metrics, traces and profiles.

mod text;
mod trace;

use crate::common;
use crate::words::has_words;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

use feedwater::internals::measure::{OTHER_TRACKS, Profile, Stage, trace_bytes};
use feedwater::loader::{DeviceChoice, Loader, LoaderBuilder};
use feedwater_tools::synth;
use serde_json::Value;

fn builder() -> LoaderBuilder {
    Loader::builder(common::memory(40), common::training())
        .device(DeviceChoice::Cpu)
        .batch_size(4)
        .num_workers(2)
        .prefetch(2)
        .epochs(Some(2))
}

/// Runs a loader for two epochs, with named parts of the consumer's steps. Returns the loader.
fn after_a_run(builder: LoaderBuilder) -> Loader {
    let mut loader = builder.build().unwrap();
    for _ in 0..2 {
        let mut epoch = loader.epoch();
        while let Some(batch) = epoch.next() {
            let _span = epoch.span("log\"ging\\\n");
            drop(batch.unwrap());
        }
    }
    loader
}

/// One value in Prometheus's text format: name, labels and value.
type Sample = (String, BTreeMap<String, String>, f64);

/// Parses metrics in Prometheus's text format into families. Each family has a type and samples.
/// Fails unless the text conforms to version 0.0.4 of the format, and to the rules of promtool's
/// linter.
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
            assert_eq!(name, helped, "HELP must precede TYPE");
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

/// Returns the value of the metric with this name and this value of a label.
fn value(families: &BTreeMap<String, (String, Vec<Sample>)>, name: &str, label: &str) -> f64 {
    let samples = families.values().flat_map(|it| &it.1);
    let mut found = samples.filter(|(it, labels, _)| {
        it == name
            && (label.is_empty() && labels.is_empty() || labels.values().any(|it| it == label))
    });
    found.next().unwrap_or_else(|| panic!("{name} {label}")).2
}

fn events<'a>(trace: &'a Value, phase: &str) -> Vec<&'a Value> {
    trace["traceEvents"].as_array().unwrap().iter().filter(|it| it["ph"] == phase).collect()
}

/// Returns the spans of each track of a trace, as begin, end and event. Fails if the spans of a
/// track are out of order, or overlap without being nested.
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
fn run_writes_trace_and_profile() {
    let dir = tempfile::tempdir().unwrap();
    let settings = synth::Settings { classes: 2, ..synth::Settings::uniform(12, 80, 60) };
    synth::write(&dir.path().join("data"), &settings, |_| ()).unwrap();
    let pipeline = "[source]\ndirectory = \"data\"\n[loader]\nbatch_size = 4\nnum_workers = 2\n\
                    [[chain]]\nop = \"center_crop\"\nwidth = 32\nheight = 24\n";
    fs::write(dir.path().join("pipeline.toml"), pipeline).unwrap();
    let run = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_feedwater"));
        command.args(["run", "pipeline.toml", "--device", "cpu", "--json"]).args(args);
        command.current_dir(dir.path()).output().unwrap()
    };
    let output = run(&["--trace", "trace.json", "--profile", "profile.json"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let trace = serde_json::from_slice(&fs::read(dir.path().join("trace.json")).unwrap()).unwrap();
    assert_eq!(tracks(&trace).values().map(|it| count(it, "decode")).sum::<usize>(), 12);
    let profile: Profile =
        serde_json::from_slice(&fs::read(dir.path().join("profile.json")).unwrap()).unwrap();
    assert_eq!((profile.images, profile.batches, profile.setup.workers), (12, 3, 2));

    for (args, code, words) in [
        (["--trace", "missing/trace.json"], 1, "missing/trace.json"),
        (["--profile", "missing/profile.json"], 1, "missing/profile.json"),
        (["--trace-spans", "5"], 2, "--trace <TRACE>"),
    ] {
        let output = run(&args);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {stderr}");
        assert!(has_words(&stderr, &[words]), "{args:?}: {stderr}");
    }
}
