//! The HTML report. `tests/browser/` checks its pages in a browser.

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, fs, thread};

use crate::common;
use crate::common::pages::{HOSTILE, assert_loads_nothing, assert_no_markup, element};
use feedwater::explain::{Differential, Options, Report, explain};
use feedwater::internals::measure::{Moment, Profile, SpanProfile, ThreadProfile};
use feedwater::loader::{DeviceChoice, Loader};
use feedwater::op::{self, Chain};
use feedwater::source::Memory;

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/explain/profile.json")
}

/// Writes `tests/golden/explain/profile.json`, the measured run that the tests of this file use.
/// Command: `cargo test -p feedwater-tests --test insight -- --ignored write_the_profile`.
#[test]
#[ignore = "writes tests/golden/explain/profile.json"]
fn write_the_profile() {
    let images = (0..48).map(|seed| (common::jpeg(seed, 400 + 9 * seed as u32, 300), 0));
    let chain = Chain::new()
        .then(op::RandomResizedCrop::to(224, 224))
        .then(op::Flip { horizontal: 0.5, ..Default::default() })
        .then(op::Normalize::IMAGENET);
    let mut loader = Loader::builder(Memory::new(images.collect()).unwrap(), chain)
        .device(DeviceChoice::Cpu)
        .batch_size(8)
        .num_workers(2)
        .prefetch(3)
        .shuffle(true)
        .build()
        .unwrap();
    for _ in 0..20 {
        let mut epoch = loader.epoch();
        while let Some(batch) = epoch.next() {
            let batch = batch.unwrap();
            thread::sleep(Duration::from_millis(5));
            if batch.number() == 0 {
                let _span = epoch.span("logging");
                thread::sleep(Duration::from_millis(4));
            }
            drop(batch);
        }
    }
    let json = serde_json::to_string(&loader.profile()).unwrap();
    fs::write(golden(), json + "\n").unwrap();
}

fn options() -> Options {
    let differential = Differential { synthetic: 870.0, cached: 610.0, cold: 590.0 };
    Options { price_per_hour: Some(3.5), differential: Some(differential), ..Options::default() }
}

fn profile() -> Profile {
    serde_json::from_str(&fs::read_to_string(golden()).unwrap()).unwrap()
}

/// Returns a report on a loop whose loader is slow.
fn measured() -> Report {
    explain(&profile(), &options()).unwrap()
}

/// Returns a report on a loop with a device, many threads, a full timeline and hostile texts. The
/// consumer's step takes no time.
fn hostile() -> Report {
    let mut profile = profile();
    // Times are multiples of a microsecond, as in real measurements. The timeline has 512 intervals
    // of 7 s, about an hour.
    let length = 7_031_251;
    let seconds = |microseconds: u64| microseconds as f64 / 1e6;
    profile.timeline = (0..512)
        .map(|at: u64| Moment {
            seconds: seconds(at * length),
            batches: at,
            ready: at as usize % 3,
            waited: seconds(at * length / 3 * (1 + at / 64 % 2)),
            // Stage 0 lists the source. It ends in the first interval, so its busy time stays the
            // same.
            busy: std::array::from_fn(|stage| match stage {
                0 => 0.004_321,
                _ => seconds(at * length / (3 + stage as u64)),
            }),
        })
        .collect();
    let thread = profile.threads[0].clone();
    profile.threads.extend(
        (2..64)
            .map(|number| ThreadProfile { name: format!("feedwater-{number}"), ..thread.clone() }),
    );
    profile.setup.workers = 64;
    profile.setup.pages = Some(96);
    profile.setup.device_bytes = 3 << 30;
    profile.setup.device = HOSTILE.into();
    profile.data.source = HOSTILE.into();
    profile.consumer.step.mean = 0.0;
    profile.consumer.spans =
        vec![SpanProfile { name: HOSTILE.into(), count: 1, seconds: 1.0, share: 0.5 }];
    let mut report = explain(&profile, &options()).unwrap();
    report.profile.threads[0].name = HOSTILE.into();
    report.verdict.push_str(HOSTILE);
    // The numbers of this profile contradict each other, so there are no predictions.
    assert!(report.knobs.is_empty());
    report.nothing.as_mut().unwrap().push_str(HOSTILE);
    let other = measured();
    // Adds the predictions of another report, scaled to this report's throughput.
    let scale = report.images_per_second / report.forecast.samples_per_second;
    report.knobs = other.knobs;
    for knob in &mut report.knobs {
        knob.setting.push_str(HOSTILE);
        knob.images_per_second = scale * other.forecast.samples_per_second * (1.0 + knob.gain);
    }
    report
}

/// Returns a report on a loop that its consumer limits, measured for two batches only.
fn idle() -> Report {
    let mut profile = profile();
    let step = 0.5;
    let seconds = step * profile.batches as f64;
    profile.seconds = seconds;
    (profile.consumer.stepped, profile.consumer.step.mean) = (seconds, step);
    (profile.consumer.waited, profile.consumer.waiting_share) = (0.0, 0.0);
    profile.timeline.truncate(1);
    explain(&profile, &Options::default()).unwrap()
}

fn json(page: &str) -> &str {
    element(page, "<script type=\"application/json\" id=\"report\">", "</script>")
}

#[test]
fn the_page_loads_nothing() {
    let page = measured().to_html();
    assert_loads_nothing(&page);
}

#[test]
fn text_of_a_report_never_becomes_markup() {
    let page = hostile().to_html();
    assert_no_markup(&page);
    let verdict = element(&page, "<h1 id=\"verdict\">", "</h1>");
    assert_eq!(element(&page, "<title>", "</title>"), format!("feedwater: {verdict}"));
    // `{{report}}` in a text equals a placeholder of the page. It must stay unchanged.
    assert!(verdict.contains("&amp;amp;{{report}}"));
}

#[test]
fn the_page_contains_the_report() {
    for report in [measured(), hostile(), idle()] {
        let page = report.to_html();
        let held: serde_json::Value = serde_json::from_str(json(&page)).unwrap();
        let text = serde_json::to_string(&report).unwrap();
        assert_eq!(held, serde_json::from_str::<serde_json::Value>(&text).unwrap());
        let held: Report = serde_json::from_str(json(&page)).unwrap();
        assert_eq!((held.verdict, held.cause), (report.verdict, report.cause));
        assert_eq!(held.profile.timeline.len(), report.profile.timeline.len());
    }
}

#[test]
fn without_scripts_the_page_shows_the_report_as_text() {
    let report = measured();
    let page = report.to_html();
    let text = element(&page, "<noscript><pre>", "</pre></noscript>");
    let text = text.replace("&quot;", "\"");
    assert!(text.starts_with(&report.verdict) && text.contains("\nevidence\n"), "{text}");
}

#[test]
fn a_page_with_a_full_timeline_is_small() {
    let length = hostile().to_html().len();
    assert!(length < 220_000, "{length} bytes");
}

/// Writes the pages that `tests/browser/` checks.
#[test]
#[ignore = "tests/browser/run.sh runs it, with FEEDWATER_PAGES"]
fn write_pages_for_the_browser() {
    let folder =
        PathBuf::from(env::var_os("FEEDWATER_PAGES").expect("FEEDWATER_PAGES names a folder"));
    for (name, report) in [("measured", measured()), ("hostile", hostile()), ("idle", idle())] {
        fs::write(folder.join(format!("{name}.html")), report.to_html()).unwrap();
    }
}
