//! Numbers that occur twice in a report or its page must be equal.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use feedwater::explain::{Cause, Options, Report, explain};
use feedwater::internals::measure::Profile;
use feedwater::profile::{Moment, STAGES};
use serde_json::Value;
use tempfile::TempDir;

/// Returns profiles of runs with a synthetic bottleneck, with and without other programs.
fn profiles() -> Vec<(String, Profile)> {
    let folders =
        ["bottlenecks", "contention"].map(|it| crate::repository().join("tests/golden").join(it));
    let files = folders.iter().flat_map(|it| fs::read_dir(it).unwrap());
    let mut files: Vec<PathBuf> = files.map(|it| it.unwrap().path()).collect();
    files.sort();
    assert!(files.len() > 20);
    let read = |file: &PathBuf| {
        let saved: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
        let name = file.file_stem().unwrap().to_string_lossy().into_owned();
        (name, serde_json::from_value(saved["profile"].clone()).unwrap())
    };
    files.iter().map(read).collect()
}

fn report(profile: &Profile) -> Report {
    let options = Options { price_per_hour: Some(2.0), knobs: Some(9), ..Options::default() };
    explain(profile, &options).unwrap()
}

/// Formats a share like reports do.
fn percent(share: f64) -> String {
    match 100.0 * share {
        small if small < 9.95 => format!("{small:.1} %"),
        percent => format!("{percent:.0} %"),
    }
}

/// Returns the percentages in a line of text, in order.
fn percentages(line: &str) -> Vec<f64> {
    let words: Vec<&str> = line.split([' ', ',']).collect();
    let pairs = words.windows(2).filter(|pair| pair[1].starts_with('%'));
    pairs.filter_map(|pair| pair[0].trim_start_matches('+').parse().ok()).collect()
}

#[test]
fn the_figures_of_a_report_agree() {
    let mut waiting = 0;
    for (name, profile) in profiles() {
        let report = report(&profile);
        let waits = percent(report.consumer_waits);
        assert!(
            report.verdict.starts_with(&format!("the consumer waits {waits} of")),
            "{name}: {report}"
        );
        for stage in &report.profile.stages {
            let begin = format!("{}: ", stage.stage.name());
            let Some(line) = report.evidence.iter().find(|it| it.starts_with(&begin)) else {
                continue;
            };
            let shown = percentages(line);
            if let Some((_, share)) = report.spent.stages.iter().find(|it| it.0 == stage.stage) {
                assert!(
                    line.contains(&format!(": {} of the workers' time", percent(*share))),
                    "{name}: {line}"
                );
            }
            // The line has the time on a processor and the time waiting for one.
            if let [_, on, for_one] = shown[..] {
                waiting += 1;
                assert!(on + for_one <= 101.0, "{name}: {line}");
            }
        }
        let lost = report.spent.processor.map(|it| it.others + it.quota + it.stolen);
        if let Some(lost) = lost.filter(|_| report.cause.is_contention()) {
            assert!(
                report.verdict.contains(&format!("{} of the workers' time", percent(lost))),
                "{name}: {report}"
            );
        }
        for knob in &report.knobs {
            let gained = knob.images_per_second / report.images_per_second - 1.0;
            assert!((gained - knob.gain).abs() < 1e-9, "{name}: {} of {}", knob.gain, gained);
        }
    }
    assert!(waiting > 5, "{waiting}");
}

#[test]
fn the_figures_of_a_page_are_those_of_its_report() {
    if !Command::new("node").arg("--version").output().is_ok_and(|it| it.status.success()) {
        eprintln!("skipped: there is no node");
        return;
    }
    for (name, mut profile) in profiles().into_iter().step_by(5) {
        // A tenth of a worker's time is busy.
        let moment =
            |seconds: f64| Moment { seconds, busy: [0.01 * seconds; STAGES], ..Moment::default() };
        profile.timeline = [0.0, 1.0, 2.0].map(moment).to_vec();
        let report = report(&profile);
        let page = page(&report);
        let texts = &page["texts"];
        let headline = |label: &str| {
            let all = page["numbers"].as_array().unwrap();
            let found = all.iter().find(|it| it[1].as_str().unwrap().starts_with(label));
            found.unwrap_or_else(|| panic!("{label} of {name}"))[0].clone()
        };
        // Values of the headline, which equal the measured values and those with which the sliders
        // begin.
        for (label, id) in [
            ("images/s", "rate"),
            ("of the time the consumer waits", "waits"),
            ("of the batches were ready", "readiness"),
            ("per epoch of", "cost"),
        ] {
            for column in ["now", "then"] {
                assert_eq!(
                    texts[format!("{column}-{id}")],
                    headline(label),
                    "{name}: {column}-{id}"
                );
            }
        }
        let evidence: Vec<&str> =
            page["evidence"].as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect();
        assert_eq!(evidence, report.evidence, "{name}");
        let sentence = texts["spent-note"].as_str().unwrap();
        for row in page["stages"].as_array().unwrap() {
            let cell = |at: usize| row[at].as_str().unwrap();
            let stage = cell(0).replace(' ', "_");
            // The sentence above the table, and the line of evidence below it.
            let said = format!("{} {}", cell(0), cell(6));
            let listed =
                report.spent.stages.iter().any(|it| it.0.name() == stage && it.1 >= 0.0005);
            assert!(!listed || sentence.contains(&said), "{name}: {said}, {sentence}");
            if let Some(line) = evidence.iter().find(|it| it.starts_with(&format!("{stage}: "))) {
                assert!(
                    line.contains(&format!(": {} of the workers' time", cell(6))),
                    "{name}: {said}, {line}"
                );
                assert!(
                    line.contains(&format!("{} of it on a processor", cell(7))),
                    "{name}: {line}"
                );
            }
        }
        // The axis of the timeline is labelled "of N workers".
        let axis: f64 = page["axis"][0].as_str().unwrap().parse().unwrap();
        assert_eq!(axis, f64::from(profile.setup.workers), "{name}");
    }
}

/// Runs the script of a report's page with Node.js. Returns the page's texts.
fn page(report: &Report) -> Value {
    let html = report.to_html();
    let dir = TempDir::new().unwrap();
    let part = |begin: &str, name: &str| {
        let (_, rest) = html.split_once(begin).unwrap();
        let (part, _) = rest.split_once("</script>").unwrap();
        fs::write(dir.path().join(name), part).unwrap();
        dir.path().join(name)
    };
    let document = crate::repository().join("crates/cli/tests/cli/page/document.js");
    let mut node = Command::new("node");
    node.arg(document);
    node.arg(part("<script type=\"application/json\" id=\"report\">", "report.json"));
    node.arg(part("<script type=\"application/json\" id=\"causes\">", "causes.json"));
    node.arg(part("<script>", "page.js"));
    let output = node.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn no_setting_is_recommended_from_few_batches() {
    let mut advised = 0;
    for (name, mut profile) in profiles() {
        advised += usize::from(!report(&profile).knobs.is_empty());
        profile.batches = 6;
        let report = report(&profile);
        assert!(report.knobs.is_empty() && report.next.is_none(), "{name}: {report}");
        if report.cause != Cause::Consumer {
            let words = report.nothing.as_deref().unwrap();
            assert!(
                words.contains("measured: 6;") && report.verdict.ends_with(words),
                "{name}: {report}"
            );
        }
    }
    assert!(advised > 10, "{advised}");
}
