//! Tests that a number that occurs twice in a report or its page is the same at both places.

use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;

use feedwater::explain::{Cause, Options, Report, explain};
use feedwater::internals::measure::Profile;
use serde_json::Value;

/// Run with a synthetic bottleneck, and its report. During some of the runs, other programs used
/// the machine too.
struct Run {
    name: String,
    profile: Profile,
    report: Report,
}

static RUNS: LazyLock<Vec<Run>> = LazyLock::new(|| {
    let folders =
        ["bottlenecks", "contention"].map(|it| crate::repository().join("tests/golden").join(it));
    let files = folders.iter().flat_map(|it| fs::read_dir(it).unwrap());
    let mut files: Vec<PathBuf> = files.map(|it| it.unwrap().path()).collect();
    files.sort();
    assert!(files.len() > 20);
    let read = |file: &PathBuf| {
        let saved: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
        let name = file.file_stem().unwrap().to_string_lossy().into_owned();
        let profile = serde_json::from_value(saved["profile"].clone()).unwrap();
        Run { name, report: report(&profile), profile }
    };
    files.iter().map(read).collect()
});

fn report(profile: &Profile) -> Report {
    let options = Options { price_per_hour: Some(2.0), knobs: Some(9), ..Options::default() };
    explain(profile, &options).unwrap()
}

/// Formats a share as a percentage, as reports do.
fn percent(share: f64) -> String {
    match 100.0 * share {
        small if small < 9.95 => format!("{small:.1} %"),
        percent => format!("{percent:.0} %"),
    }
}

/// Returns all percentages in a line of text, in their order.
fn percentages(line: &str) -> Vec<f64> {
    let words: Vec<&str> = line.split([' ', ',']).collect();
    let pairs = words.windows(2).filter(|pair| pair[1].starts_with('%'));
    pairs.filter_map(|pair| pair[0].trim_start_matches('+').parse().ok()).collect()
}

#[test]
fn the_figures_of_a_report_agree() {
    let mut waiting = 0;
    for Run { name, report, .. } in &*RUNS {
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
            // The second and the third percentage divide the time of the stage: the share on a
            // processor, and the share waiting for one.
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
fn the_table_of_changes_begins_with_the_measured_figures() {
    for Run { name, report, .. } in RUNS.iter().step_by(5) {
        let page = report.to_html();
        let (_, rows) = page.split_once("<tbody>\n<tr>").unwrap();
        let rows = rows.split_once("</tbody>").unwrap().0;
        let first = rows.split_once("</tr>").unwrap().0;
        for figure in ["as measured", "the same", &percent(report.consumer_waits)] {
            assert!(first.contains(&format!(">{figure}<")), "{name}: {figure} in {first}");
        }
        for knob in &report.knobs {
            let setting = knob.setting.replace('"', "&quot;");
            assert!(rows.contains(&format!(">{setting}<")), "{name}: {rows}");
        }
    }
}

#[test]
fn no_setting_is_recommended_from_few_batches() {
    let mut advised = 0;
    for Run { name, profile, report: of_all } in &*RUNS {
        advised += usize::from(!of_all.knobs.is_empty());
        let report = report(&Profile { batches: 6, ..profile.clone() });
        assert!(report.knobs.is_empty() && report.next.is_none(), "{name}: {report}");
        if report.cause != Cause::Consumer {
            let words = report.nothing.as_deref().unwrap();
            assert!(
                words.contains("6 batches were measured") && report.verdict.ends_with(words),
                "{name}: {report}"
            );
        }
    }
    assert!(advised > 10, "{advised}");
}
