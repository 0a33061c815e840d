//! Tests `explain` with runs that shared the CPU with other programs or had a CPU quota.
//!
//! Each file of `tests/golden/contention/` is a measurement by `feedwater explain --save` on two
//! cores: beside programs that spin, under a control group's quota, or without either. Most files
//! also have a second measurement, under the same conditions, after one setting was changed. The
//! measurements are stored, so they do not depend on the load of the machine that runs the tests.

use std::fs;
use std::path::{Path, PathBuf};

use feedwater::explain::{Cause, Options, Report, Spent, explain};
use feedwater::internals::measure::{ProcessorProfile, Profile};
use serde_json::Value;

/// Maximum relative error of the simulated throughput of a run that shared the CPU.
const ERROR: f64 = 0.15;
/// Maximum fraction of the workers' time that belongs to no stage and no wait.
const UNEXPLAINED: f64 = 0.1;
/// Range of the predicted throughput divided by the measured throughput. The range is wide, because
/// the load of other programs varies. A prediction that is too high is worse than one that is too
/// low, so the range ends soon above 1.
const KEPT: std::ops::Range<f64> = 0.6..1.15;

struct Case {
    name: String,
    profile: Profile,
    planted: Cause,
    after: Option<(String, f64)>,
}

fn cases() -> Vec<Case> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/contention");
    let mut files: Vec<PathBuf> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let case = |path: &PathBuf| {
        let saved: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
        let setting = saved["after"]["setting"].as_str().map(str::to_string);
        Case {
            name: path.file_stem().unwrap().to_string_lossy().into_owned(),
            profile: serde_json::from_value(saved["profile"].clone()).unwrap(),
            planted: serde_json::from_value(saved["planted"].clone()).unwrap(),
            after: setting.zip(saved["after"]["images_per_second"].as_f64()),
        }
    };
    files.iter().map(case).collect()
}

fn report(profile: &Profile) -> Report {
    explain(profile, &Options { knobs: Some(usize::MAX), ..Options::default() }).unwrap()
}

#[test]
fn the_competing_load_is_named_and_the_model_fits_the_measurement() {
    let cases = cases();
    for planted in [Cause::OtherPrograms, Cause::Quota, Cause::Decoding] {
        assert!(cases.iter().any(|it| it.planted == planted), "no case of {planted:?}");
    }
    for Case { name, profile, planted, .. } in cases {
        let report = report(&profile);
        assert_eq!(report.cause, planted, "{name}: {report}");
        assert!((report.model_quality - 1.0).abs() < ERROR, "{name}: {report}");
        assert!(report.model.contention.is_some() || !planted.is_contention(), "{name}");
    }
}

#[test]
fn the_workers_time_is_explained() {
    for Case { name, profile, planted, .. } in cases() {
        let Spent { stages, processor, input, room, starting, finished, between } =
            Spent::of(&profile);
        let processor = processor.unwrap();
        let stages = stages.iter().map(|it| it.1).sum::<f64>();
        let all = stages + processor.all + input + room + starting + finished + between;
        assert!((0.999..1.02).contains(&all) && between < UNEXPLAINED, "{name}: {between}");
        let parts = processor.others + processor.own + processor.quota + processor.stolen;
        assert!((parts - processor.all).abs() < 1e-9, "{name}: {processor:?}");
        let most = match planted {
            Cause::OtherPrograms => processor.others,
            Cause::Quota => processor.quota,
            _ => continue,
        };
        assert!(
            most > 0.05 && most >= 0.85 * (processor.all - processor.own),
            "{name}: {processor:?}"
        );
    }
}

#[test]
fn gains_predicted_under_contention_hold_under_contention() {
    let mut promises = 0;
    for Case { name, profile, after, .. } in cases() {
        let report = report(&profile);
        let Some((setting, measured)) = after else { continue };
        let knob = report.knobs.iter().find(|it| it.setting == setting);
        let knob = knob.unwrap_or_else(|| panic!("{name}: {setting}\n{report}"));
        let kept = (1.0 + knob.gain) * report.images_per_second / measured;
        assert!(KEPT.contains(&kept), "{name}: {setting}: {kept}");
        promises += 1;
    }
    assert!(promises >= 2);
}

/// More workers share the same available cores. `explain` must not predict that they gain cores
/// from other programs.
#[test]
fn more_workers_do_not_help_against_other_programs() {
    for Case { name, profile, planted, .. } in cases() {
        let report = report(&profile);
        let workers = report.knobs.iter().find(|it| it.setting.starts_with("loader.num_workers"));
        let gain = workers.map_or(0.0, |it| it.gain);
        assert!(!planted.is_contention() || gain < 0.3, "{name}: {gain}");
    }
}

/// Removes the scheduler statistics from a profile. Some kernels and older versions of feedwater do
/// not record them.
fn untold(mut profile: Profile) -> Profile {
    profile.processors = ProcessorProfile::default();
    profile.consumer.waited_for_processor = None;
    profile.stages.iter_mut().for_each(|it| it.waited_for_processor = None);
    for thread in &mut profile.threads {
        (thread.ran, thread.waited_for_processor) = (None, None);
    }
    profile
}

/// The profiles are of runs that shared the CPU, but have no scheduler statistics. The simulation
/// predicts two to ten times the measured throughput, so `explain` must not predict any gain.
#[test]
fn no_gain_is_predicted_if_the_model_misses_the_measurement() {
    let mut doubtful = 0;
    for Case { name, profile, .. } in cases() {
        let report = report(&untold(profile));
        assert_eq!(report.spent.processor, None);
        // The report mentions the wait for a processor without a number.
        let mut lines = report.evidence.iter().filter(|line| line.contains("processor"));
        let is_known = |line: &String| line.contains(|it: char| it.is_ascii_digit());
        assert!(lines.any(|line| !is_known(line)), "{name}: {report}");
        let error = report.model_quality.max(1.0 / report.model_quality) - 1.0;
        assert!(report.knobs.iter().all(|it| it.gain > error), "{name}: {report}");
        assert_eq!(report.knobs.is_empty(), report.nothing.is_some(), "{name}: {report}");
        if error > 0.25 {
            assert_eq!(
                (report.cause, report.knobs.len()),
                (Cause::Unexplained, 0),
                "{name}: {report}"
            );
            assert!(report.verdict.contains(report.nothing.as_deref().unwrap()), "{report}");
            doubtful += 1;
        }
    }
    assert!(doubtful >= 2, "{doubtful}");
}
