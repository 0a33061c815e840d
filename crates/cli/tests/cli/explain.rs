//! Tests of profiles, of reports about them, and of the command `explain`.
//!
//! `benches/bottlenecks` has written the files in `tests/golden/bottlenecks/`. Each file has the
//! measurements of two runs: one with a synthetic bottleneck, and one after a setting was changed.

use crate::common;
use crate::words::has_words;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use feedwater::Error;
use feedwater::explain::{Cause, Options, Ranks, ReadScaling, Report, Spent, explain, fit};
use feedwater::internals::measure::{Profile, SpanProfile, Stage, Waits};
use feedwater::loader::{DeviceChoice, Loader};
use feedwater_tools::synth;
use serde_json::Value;
use tempfile::TempDir;

fn loader(samples: u64) -> Loader {
    Loader::builder(common::memory(samples), common::training())
        .device(DeviceChoice::Cpu)
        .batch_size(4)
        .num_workers(2)
        .build()
        .unwrap()
}

fn profile() -> Profile {
    let mut loader = loader(16);
    for _ in 0..3 {
        for batch in &mut loader {
            drop(batch.unwrap());
        }
    }
    loader.profile()
}

#[test]
fn every_sample_passes_every_stage_once() {
    let mut loader = loader(16);
    let before = loader.measured();
    for batch in &mut loader {
        drop(batch.unwrap());
    }
    let after = loader.measured();
    let profile = loader.profile_since(&before);
    assert_eq!((profile.images, profile.batches), (16, 4));
    assert_eq!(after.steps.samples, 16);
    // The workers have already prepared samples of the next epoch, which are counted too.
    for stage in [Stage::Read, Stage::Header, Stage::Decode, Stage::Transform] {
        let counted = after.stage(stage).count;
        assert!((16..=16 + 4 * 3).contains(&counted), "{stage:?} {counted}");
    }
    let read = after.stage(Stage::Read);
    let header = after.stage(Stage::Header);
    assert!(read.bytes > 0 && read.busy > 0);
    // A worker counts each sample twice: in a stage's count, and in the stage's latency. Each of
    // the two workers may just be between these two steps.
    assert!(header.latency.count().abs_diff(header.count) <= 2, "{header:?}");
    assert!(after.pixels >= 16 * 64 && after.window_pixels > 0 && !after.images.is_empty());
    let all: f64 = profile.ring.occupancy.iter().sum();
    assert!((all - 1.0).abs() < 1e-9 && profile.ring.occupancy.len() == 4);
    assert!((0.0..=1.0).contains(&profile.consumer.readiness));
    let names: Vec<_> = profile.threads.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["feedwater-list", "feedwater-0", "feedwater-1"]);
}

/// Workers measure their time on a processor and their wait for one, if the kernel reports these
/// times.
#[test]
fn workers_measure_their_wait_for_a_processor() {
    let told =
        fs::read_to_string("/proc/thread-self/schedstat").is_ok_and(|it| !it.ends_with(" 0\n"));
    let mut loader = loader(16);
    let workers = |profile: &Profile| {
        let threads = profile.threads.iter().filter(|it| it.name != "feedwater-list");
        threads.cloned().collect::<Vec<_>>()
    };
    // Repeat until both workers have processed samples. On a busy machine, one worker may process
    // all samples before the other starts.
    let profile = loop {
        loader.epoch().for_each(|batch| drop(batch.unwrap()));
        let profile = loader.profile();
        if workers(&profile).iter().all(|it| it.count > 0) {
            break profile;
        }
    };
    for thread in workers(&profile) {
        assert_eq!((thread.ran.is_some(), thread.waited_for_processor.is_some()), (told, told));
    }
    assert_eq!(profile.processors.waits.is_some(), told);
    let Some(waits) = profile.processors.waits else { return };
    let sum = waits.others + waits.own + waits.quota + waits.stolen;
    assert!((sum - waits.seconds).abs() < 1e-9, "{waits:?}");
    // The shares must add up to the whole time of the workers.
    let Spent { stages, processor, input, room, starting, finished, between } = Spent::of(&profile);
    let stages: f64 = stages.iter().map(|it| it.1).sum();
    let spent = stages + processor.unwrap().all + input + room + starting + finished + between;
    assert!((0.999..1.2).contains(&spent), "{spent}");
}

/// In a run of 0.5 s, the workers start after 0.1 s and finish 0.3 s before the end.
#[test]
fn time_before_the_start_and_after_the_end_is_not_between_stages() {
    let mut profile = profile();
    profile.seconds = 0.5;
    profile.processors.waits = None;
    profile.stages.retain(|it| [Stage::Decode, Stage::HandOver].contains(&it.stage));
    for (stage, busy) in profile.stages.iter_mut().zip([2.0 * 0.06, 0.0]) {
        (stage.busy, stage.cpu_share, stage.waited_for_processor) = (busy, 1.0, None);
    }
    for thread in profile.threads.iter_mut().filter(|it| it.name != "feedwater-list") {
        // All threads have the same number of samples. A thread with fewer samples in the same time
        // would count as a straggler.
        (thread.count, thread.busy) = (24, 0.06);
        (thread.ran, thread.waited_for_processor) = (None, None);
        (thread.waited_for_input, thread.waited_for_room) = (0.0, 0.03);
        (thread.starting, thread.finished) = (0.1, 0.3);
    }
    let near = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-9, "{found}");
    let Spent { stages, room, starting, finished, between, .. } = Spent::of(&profile);
    near(stages[0].1, 0.12);
    for (found, expected) in [(room, 0.06), (starting, 0.2), (finished, 0.6), (between, 0.02)] {
        near(found, expected);
    }
    let report = explain(&profile, &Options::default()).unwrap();
    let Spent { starting, finished, between, .. } = report.spent;
    for (found, expected, text) in
        [(starting, 0.2, ": 20 %"), (finished, 0.6, ": 60 %"), (between, 0.02, ": 2.0 %")]
    {
        near(found, expected);
        assert!(report.evidence.iter().any(|line| line.contains(text)), "{text}: {report}");
    }
    // The model includes the workers' time between stages. It does not include their time before
    // the first stage and after the last one.
    let overhead = fit(&profile, None).unwrap().model;
    let overhead = overhead.stages.iter().find(|it| it.name == "overhead").unwrap();
    let samples = profile.stage(Stage::HandOver).unwrap().count as f64;
    near(overhead.service.mean, 2.0 * 0.01 / samples);
}

/// The waits for a processor are estimates. The times before the workers start and after they
/// finish are exact, so the estimates must not reduce them.
#[test]
fn estimated_waits_do_not_shorten_exact_times() {
    let mut profile = profile();
    profile.processors.waits = Some(Waits { seconds: profile.seconds * 2.0, ..Waits::default() });
    for thread in profile.threads.iter_mut().filter(|it| it.name != "feedwater-list") {
        (thread.starting, thread.finished) = (profile.seconds * 0.125, profile.seconds * 0.25);
    }
    let Spent { starting, finished, room, input, between, .. } = Spent::of(&profile);
    let near = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-9, "{found}");
    near(starting, 0.125);
    near(finished, 0.25);
    assert_eq!((room, input, between), (0.0, 0.0, 0.0));
}

/// Workers have finished before the consumer does. The time in between must not count as their time
/// between stages.
#[test]
fn time_after_the_last_sample_is_not_between_stages() {
    let mut loader = Loader::builder(common::memory(16), common::training())
        .device(DeviceChoice::Cpu)
        .batch_size(4)
        .num_workers(2)
        .epochs(Some(1))
        .build()
        .unwrap();
    loader.into_iter().for_each(|batch| drop(batch.unwrap()));
    let over = |profile: &Profile| profile.workers().all(|it| it.finished > 0.0);
    let mut profile = loader.profile();
    while !over(&profile) {
        // The worker threads end by themselves, some time after the last sample.
        std::thread::sleep(Duration::from_millis(1));
        profile = loader.profile();
    }
    std::thread::sleep(Duration::from_millis(100));
    let later = loader.profile();
    let seconds = |profile: &Profile, share: fn(&Spent) -> f64| {
        share(&Spent::of(profile)) * 2.0 * profile.seconds
    };
    let passed = 2.0 * (later.seconds - profile.seconds);
    assert!(passed >= 0.2, "{passed}");
    let more = |share| seconds(&later, share) - seconds(&profile, share);
    let (finished, between) = (more(|it| it.finished), more(|it| it.between));
    assert!(
        (finished - passed).abs() < 1e-6 && between.abs() < 1e-6,
        "{finished} of {passed}, {between}"
    );
    assert!(later.workers().all(|it| it.starting > 0.0 && it.starting < later.seconds));
}

#[test]
fn a_consumer_can_name_parts_of_its_step_and_mark_its_start() {
    let mut loader = loader(16);
    let mut epoch = loader.epoch();
    while let Some(batch) = epoch.next() {
        let batch = batch.unwrap();
        epoch.step_begin();
        drop(epoch.span("metrics"));
        epoch.add_span("logging", Duration::from_secs(5));
        epoch.step_end();
        drop(batch);
    }
    let consumer = loader.profile().consumer;
    assert_eq!(consumer.spans.len(), 2);
    assert_eq!((consumer.spans[0].name.as_str(), consumer.spans[0].count), ("logging", 4));
    assert!((consumer.spans[0].seconds - 20.0).abs() < 1e-6);
    assert_eq!(loader.measured().steps.step.count(), 4);
}

#[test]
fn a_report_needs_batches_and_keeps_what_it_was_made_from() {
    let loader = loader(16);
    let error = loader.report().unwrap_err();
    let Error::Config(error) = error else { panic!("{error}") };
    assert!(error.key == "batches" && has_words(&error.problem, &["0", "2"]), "{error}");
    let report = explain(&profile(), &Options::default()).unwrap();
    let text = serde_json::to_string(&report).unwrap();
    let again: Report = serde_json::from_str(&text).unwrap();
    assert_eq!(explain(&again.profile, &Options::default()).unwrap().verdict, report.verdict);
    assert!(report.to_string().starts_with(&report.verdict));
    assert!(report.knobs.len() <= 3 && report.knobs.is_sorted_by(|a, b| a.gain >= b.gain));
}

#[test]
fn waiting_costs_money() {
    let mut profile = profile();
    profile.data.epoch_samples = 36_000;
    (profile.images, profile.consumer.waited, profile.consumer.stepped) = (1000, 2.0, 8.0);
    profile.consumer.waiting_share = 0.2;
    let options = Options { price_per_hour: Some(3.0), ..Options::default() };
    let cost = explain(&profile, &options).unwrap().cost.unwrap();
    // At 100 images/s, an epoch takes 360 s, which is 0.1 hours. The consumer waits for a fifth of
    // this time, at a price of 3 per hour.
    assert!((cost.epoch_seconds - 360.0).abs() < 1e-9);
    assert!((cost.waiting_per_epoch - 0.2 * 0.1 * 3.0).abs() < 1e-9);
}

#[test]
fn the_last_step_of_an_epoch_is_assumed_to_be_average() {
    let mut profile = profile();
    // The step after the last batch of an epoch is not measured. With four batches per epoch, 25 of
    // the 100 steps are not measured. They are assumed to take 25 * 0.01 s, so the run takes 0.5 +
    // 0.75 + 0.25 = 1.5 s.
    (profile.images, profile.batches) = (400, 100);
    let consumer = &mut profile.consumer;
    (consumer.waited, consumer.stepped, consumer.step.mean) = (0.5, 0.75, 0.01);
    assert!((profile.images_per_second() - 400.0 / 1.5).abs() < 1e-9);
}

#[test]
fn named_parts_of_a_step_are_per_batch_and_not_per_sample() {
    let mut profile = profile();
    let of = |profile: &Profile| explain(profile, &Options::default()).unwrap();
    (profile.data.epoch_samples, profile.batches, profile.images) = (1024, 100, 400);
    (profile.consumer.waited, profile.consumer.waiting_share) = (0.0, 0.0);
    let consumer = &mut profile.consumer;
    (consumer.step.mean, consumer.stepped, consumer.cpu_share) = (0.01, 1.0, 0.0);
    consumer.step_quantiles.clear();
    assert_eq!(of(&profile).cause, Cause::Consumer);
    let (name, count) = ("logging".into(), 100);
    profile.consumer.spans = vec![SpanProfile { name, count, seconds: 0.8, share: 0.8 }];
    let report = of(&profile);
    assert_eq!(report.cause, Cause::TinyBatches);
    // A step for 4 samples takes 10 ms. The span `logging` takes 8 ms of this, whatever the batch
    // size. The other 2 ms are 0.5 ms per sample. So a step for 128 samples takes 8 + 64 ms. A step
    // for 256 samples takes 8 + 128 ms, which increases the throughput by less than a tenth.
    let [knob] = &report.knobs[..] else { panic!("{report}") };
    assert_eq!((knob.setting.as_str(), knob.then), ("loader.batch_size = 128", Cause::Consumer));
    assert!((knob.images_per_second / (128.0 / 0.072) - 1.0).abs() < 0.01, "{report}");
    // A batch cannot have more samples than an epoch.
    profile.data.epoch_samples = 40;
    assert_eq!(of(&profile).knobs[0].setting, "loader.batch_size = 32");
}

#[test]
fn read_scaling_distinguishes_latency_from_saturated_storage() {
    let of = |rates: [f64; 3]| {
        ReadScaling { rates: [1, 4, 8].into_iter().zip(rates).collect() }.slowdown()
    };
    assert_eq!(of([100.0, 400.0, 800.0]), 0.0);
    assert_eq!(of([100.0, 100.0, 100.0]), 1.0);
    assert_eq!(of([100.0, 200.0, 200.0]), 0.5);
    // `measure` reads with one thread, with as many threads as there are workers, and with twice as
    // many.
    let scaling = ReadScaling::measure(3, 0.03, |_| true);
    let threads: Vec<u32> = scaling.rates.iter().map(|it| it.0).collect();
    assert_eq!(threads, [1, 3, 6]);
}

/// All synthetic bottlenecks must be identified, and the gains of the settings predicted with an
/// error of at most 10 %.
#[test]
fn synthetic_bottlenecks_are_identified_and_their_gains_predicted() {
    let folder = crate::repository().join("tests/golden/bottlenecks");
    let mut files: Vec<PathBuf> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 20, "{} cases", files.len());
    let name = |file: &PathBuf| file.file_stem().unwrap().to_string_lossy().into_owned();
    let wrong: Vec<(String, String)> =
        files.iter().filter_map(|file| Some((name(file), problem(file)?))).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Describes what is wrong with the report on a case. Returns `None` if the report is correct.
fn problem(file: &Path) -> Option<String> {
    let saved: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    let profile: Profile = serde_json::from_value(saved["profile"].clone()).unwrap();
    let scaling: Option<ReadScaling> = serde_json::from_value(saved["scaling"].clone()).unwrap();
    let planted: Cause = serde_json::from_value(saved["planted"].clone()).unwrap();
    let options = Options { knobs: Some(usize::MAX), scaling, ..Options::default() };
    let report = explain(&profile, &options).unwrap();
    if report.cause != planted {
        return Some(format!("{planted:?} was planted, but the report names {:?}", report.cause));
    }
    let setting = saved["after"]["setting"].as_str()?;
    let key = setting.split(" = ").next().unwrap();
    let knob = report.knobs.iter().find(|it| it.setting.starts_with(key)).unwrap();
    let promised = (1.0 + knob.gain) * report.images_per_second;
    let measured = saved["after"]["images_per_second"].as_f64().unwrap();
    let kept = knob.setting == setting && (promised / measured - 1.0).abs() <= 0.1;
    (!kept).then(|| {
        let found = &knob.setting;
        format!("{found} promised {promised:.0} images/s; {setting} gave {measured:.0}")
    })
}

#[test]
fn a_straggler_is_slower_than_chance_explains() {
    let mut profile = profile();
    let workers = |profile: &Profile| fit(profile, None).unwrap().model.workers;
    for stage in &mut profile.stages {
        (stage.latency.mean, stage.latency.cv) = (0.01, 0.1);
    }
    for thread in &mut profile.threads {
        let slow = if thread.name == "feedwater-1" { 2.0 } else { 1.0 };
        (thread.count, thread.busy) = (100, 5.0 * slow);
        (thread.ran, thread.waited_for_processor) = (None, None);
    }
    assert_eq!(workers(&profile), [1.0, 2.0]);
    for stage in &mut profile.stages {
        stage.latency.cv = 9.0;
    }
    assert_eq!(workers(&profile), [1.0, 1.0]);
}

/// A thread is not a straggler if its samples took longer only because it waited for a processor.
#[test]
fn a_thread_that_waits_for_a_processor_is_no_straggler() {
    let mut profile = profile();
    profile.seconds = 12.0;
    for stage in &mut profile.stages {
        (stage.latency.mean, stage.latency.cv) = (0.01, 0.1);
    }
    for (thread, waited) in profile.threads.iter_mut().skip(1).zip([7.0, 2.0]) {
        (thread.count, thread.busy, thread.ran) = (100, 5.0 + waited, Some(4.0));
        (thread.waited_for_processor, thread.waited_for_room) = (Some(waited), 7.0 - waited);
        (thread.starting, thread.finished) = (0.0, 0.0);
    }
    let workers = |profile: &Profile| fit(profile, None).unwrap().model.workers;
    assert_eq!(workers(&profile), [1.0, 1.0]);
    profile.threads[1].waited_for_processor = Some(2.0);
    assert_eq!(workers(&profile), [2.0, 1.0]);
}

#[test]
fn the_slow_rank_of_several_is_named_with_its_stage() {
    let base = profile();
    let rank = |rank: u64, slow: f64| {
        let mut profile = base.clone();
        profile.setup.rank = rank;
        for stage in profile.stages.iter_mut().filter(|it| it.stage == Stage::Read) {
            stage.busy = 3.0 * slow;
            stage.latency.mean = 3.0 * slow / stage.count as f64;
            stage.cpu_share = 0.01;
        }
        explain(&profile, &Options::default()).unwrap()
    };
    let reports = [rank(0, 1.0), rank(2, 4.0), rank(1, 1.0)];
    let ranks = Ranks::merge(&reports).unwrap();
    assert_eq!((ranks.slowest, ranks.ranks[0].rank), (Some(2), 2));
    assert_eq!(ranks.ranks[0].deviates, [Stage::Read]);
    assert!(has_words(&ranks.verdict, &["2", Stage::Read.name()]), "{}", ranks.verdict);
    let same = Ranks::merge(&[rank(0, 1.0), rank(1, 1.0)]).unwrap();
    assert_eq!(same.slowest, None);
    let twice = Ranks::merge(&[rank(1, 1.0), rank(1, 1.0)]).unwrap_err();
    assert!(twice.key == "reports" && has_words(&twice.problem, &["1"]), "{twice}");
    assert!(Ranks::merge(&[]).is_err());
}

fn feedwater(dir: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_feedwater"));
    command.arg("explain").args(args).current_dir(dir).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Creates a folder with a pipeline file.
fn pipeline() -> TempDir {
    let dir = TempDir::new().unwrap();
    let settings = synth::Settings::uniform(12, 64, 48);
    synth::write(&dir.path().join("data"), &settings, |_| ()).unwrap();
    let file = "[source]\ndirectory = \"data\"\n[loader]\nbatch_size = 4\nnum_workers = 2\n\
                [[chain]]\nop = \"center_crop\"\nwidth = 32\nheight = 32\n";
    fs::write(dir.path().join("pipeline.toml"), file).unwrap();
    dir
}

#[test]
fn the_command_runs_a_pipeline_saves_its_report_and_reads_it_again() {
    let dir = pipeline();
    let args = [
        "pipeline.toml",
        "--device",
        "cpu",
        "--step-ms",
        "2",
        "--seconds",
        "0.2",
        "--probe",
        "--price",
        "2",
    ];
    let out = feedwater(
        dir.path(),
        &[&args[..], &["--save", "r.json", "--html", "r.html", "--json"]].concat(),
    );
    assert!(out.status.success(), "{}", text(&out.stderr));
    let report: Report = serde_json::from_slice(&out.stdout).unwrap();
    assert!(report.differential.is_some() && report.scaling.is_some() && report.cost.is_some());
    assert!(report.profile.consumer.step.mean >= 2e-3, "{:?}", report.profile.consumer.step);
    assert!(fs::read_to_string(dir.path().join("r.html")).unwrap().contains("<!DOCTYPE html>"));
    let again = feedwater(dir.path(), &["r.json"]);
    assert!(text(&again.stdout).starts_with(&report.verdict), "{}", text(&again.stderr));
    let twice = feedwater(dir.path(), &["r.json", "r.json"]);
    assert_eq!(twice.status.code(), Some(2));
    let twice = text(&twice.stderr);
    let problem = twice.strip_prefix("feedwater: reports: ").unwrap_or_else(|| panic!("{twice}"));
    assert!(has_words(problem, &["0"]), "{twice}");
}

#[test]
fn a_command_may_be_the_consumer() {
    let dir = pipeline();
    let args = ["pipeline.toml", "--device", "cpu", "--seconds", "0.2", "--consumer-cmd"];
    let out = feedwater(dir.path(), &[&args[..], &["cat > bytes"]].concat());
    assert!(out.status.success(), "{}", text(&out.stderr));
    let batch = 4 * 3 * 32 * 32 * 4;
    let len = fs::metadata(dir.path().join("bytes")).unwrap().len();
    assert!(len > 0 && len.is_multiple_of(batch), "{len}");
    // The command's text does not contain the number 43. So if the message contains it, it comes
    // from the exit status.
    let out = feedwater(dir.path(), &[&args[..], &["exit $((40 + 3))"]].concat());
    let stderr = text(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{stderr}");
    assert!(has_words(&stderr, &["--consumer-cmd", "43"]), "{stderr}");
}

#[test]
fn invalid_arguments_are_named() {
    let dir = pipeline();
    fs::write(dir.path().join("a.json"), "{}").unwrap();
    for (args, code, words) in [
        (&["a.json"][..], 2, &["a.json"][..]),
        (&["b.json"], 1, &["b.json"]),
        (&["pipeline.toml", "a.json"], 2, &[".json"]),
        (&["pipeline.toml", "--step-ms", "-1"], 2, &["-1"]),
        (&["pipeline.toml", "--seconds", "nan"], 2, &["--seconds", "nan"]),
    ] {
        let out = feedwater(dir.path(), args);
        let stderr = text(&out.stderr);
        assert_eq!(out.status.code(), Some(code), "{args:?}: {stderr}");
        assert!(has_words(&stderr, words), "{args:?}: {stderr}");
    }
}
