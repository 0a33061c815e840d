//! Tests the reports of `explain` on synthetic bottlenecks: does the verdict name the cause that
//! was planted, and does a changed setting (a knob) gain what the report predicts?
//!
//! ```text
//! cargo bench --bench bottlenecks -- [--seconds 3] [--rounds 3] [--only NAME] [--save DIR] [--verbose] [--json]
//! ```
//!
//! Each case runs a loader with its consumer and creates the report. Then the case changes the
//! first setting (knob) that the report proposes, or the setting that the case names, and runs
//! again. It compares the predicted with the measured images per second. Disks, networks and steps
//! are simulated by sleeping threads, so they are equally fast on every machine. Decoding is real
//! and needs an idle machine. `--save` writes a file with each report and the measurement after the
//! change, for `crates/cli/tests/cli/explain.rs`.

#[path = "../common/mod.rs"]
mod common;

mod cases;
mod world;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Parser;
use feedwater::explain::{Options, ReadScaling, Report, explain};
use feedwater::loader::Loader;
use feedwater::source::Source;
use feedwater::source::custom::HostPage;
use serde_json::json;

use cases::{Case, cases};
use world::Setting;

#[derive(Parser)]
struct Arguments {
    /// Seconds per measured run. The cases with uneven reads or steps need 6 seconds. A shorter run
    /// has too few slow reads or long steps.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Number of runs per case. The run with the median ratio is printed. A cause counts as
    /// identified only if every run names it.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Run only the cases whose names contain this text.
    #[arg(long)]
    only: Option<String>,
    /// Write the reports into this folder.
    #[arg(long)]
    save: Option<PathBuf>,
    /// Print the report of each run too.
    #[arg(long)]
    verbose: bool,
    /// Also print one line of JSON.
    #[arg(long)]
    json: bool,
    /// Ignored. `cargo bench` passes this flag.
    #[arg(long, hide = true)]
    bench: bool,
}

/// Maximum relative error of a predicted throughput.
const BAR: f64 = 0.1;

fn main() {
    let arguments = Arguments::parse();
    println!("{}, {} cores, {} s a run\n", common::cpu(), common::cores(), arguments.seconds);
    println!(
        "{:<24}{:<15}{:<15}{:>7}{:>8}  {:<26}{:>9}{:>9}  ratio  ratios of the rounds",
        "case", "planted", "found", "waits", "model", "knob", "predicted", "measured"
    );
    let (mut named, mut kept, mut promises, mut all) = (0, 0, 0, Vec::new());
    let chosen: Vec<Case> = cases()
        .into_iter()
        .filter(|case| arguments.only.as_ref().is_none_or(|only| case.name.contains(only)))
        .collect();
    for case in &chosen {
        // The speed of the machine varies, so a case is measured in several rounds. The results are
        // those of the round with the median ratio of predicted to measured throughput.
        let how = (arguments.seconds, arguments.verbose);
        let mut rounds: Vec<Round> =
            (0..arguments.rounds.max(1)).map(|_| Round::new(case, how)).collect();
        rounds.sort_by(|a, b| a.ratio().total_cmp(&b.ratio()));
        let ratios: Vec<f64> = rounds.iter().map(Round::ratio).collect();
        let misnamed = rounds.iter().filter(|it| it.report.cause != case.planted).count();
        let Round { report, after } = rounds.swap_remove(rounds.len() / 2);
        named += usize::from(misnamed == 0);
        print!(
            "{:<24}{:<15}{:<15}{:>6.1}%{:>8.2}  ",
            case.name,
            format!("{:?}", case.planted),
            format!("{:?}", report.cause),
            100.0 * report.consumer_waits,
            report.model_quality
        );
        match &after {
            Some(Turned { setting, promised, measured }) => {
                let ratio = promised / measured;
                promises += 1;
                kept += usize::from((ratio - 1.0).abs() <= BAR);
                let all: Vec<String> = ratios.iter().map(|it| format!("{it:.2}")).collect();
                let all = all.join(" ");
                println!("{setting:<26}{promised:>9.0}{measured:>9.0}{ratio:>7.2}  {all}");
            }
            None => println!("none"),
        }
        let turned =
            after.map(|it| json!({"setting": it.setting, "images_per_second": it.measured}));
        let line = json!({"case": case.name, "planted": case.planted, "after": turned});
        if let Some(folder) = &arguments.save {
            let mut saved = line.clone();
            saved["scaling"] = json!(report.scaling);
            saved["profile"] = serde_json::to_value(&report.profile).expect("a profile is JSON");
            let text = serde_json::to_string(&saved).expect("JSON is text");
            let name = case.name.replace(", ", "-").replace(' ', "-");
            let path = folder.join(format!("{name}.json"));
            std::fs::write(path, text + "\n").expect("the folder is writable");
        }
        all.push(line);
    }
    println!(
        "\n{named} of {} causes identified; {kept} of {promises} predictions within {:.0} %",
        chosen.len(),
        100.0 * BAR
    );
    if arguments.json {
        println!("{}", json!(all));
    }
}

/// The report of a case with its own settings, and a second measurement after one setting (knob)
/// was changed.
struct Round {
    report: Report,
    after: Option<Turned>,
}

/// A changed knob, with predicted and measured images per second.
struct Turned {
    setting: String,
    promised: f64,
    measured: f64,
}

impl Round {
    fn new(case: &Case, how: (f64, bool)) -> Self {
        let report = measure(case, &case.setting, how);
        let knob = match case.knob {
            Some(wanted) => report.knobs.iter().find(|it| it.setting.starts_with(wanted)),
            None => report.knobs.first(),
        };
        let after = knob.map(|knob| Turned {
            setting: knob.setting.clone(),
            promised: (1.0 + knob.gain) * report.images_per_second,
            measured: measure(case, &case.setting.turn(&knob.setting), how).images_per_second,
        });
        Self { report, after }
    }

    /// Predicted divided by measured throughput. 1 if no knob was changed.
    fn ratio(&self) -> f64 {
        self.after.as_ref().map_or(1.0, |it| it.promised / it.measured)
    }
}

/// Runs a case for `seconds` after a warm-up, and returns the report.
fn measure(case: &Case, setting: &Setting, (seconds, verbose): (f64, bool)) -> Report {
    let mut loader = case.world.loader(setting);
    let warm_up = if setting.caches() { 2 } else { 0 };
    let mut consumer = Consumer { loader: &mut loader, case, batch: 0 };
    for _ in 0..warm_up {
        consumer.epoch(None);
    }
    consumer.epoch(Some(Instant::now() + Duration::from_secs_f64((0.3 * seconds).min(1.0))));
    let begin = consumer.loader.measured();
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    while Instant::now() < end {
        consumer.epoch(Some(end));
    }
    let mut profile = loader.profile_since(&begin);
    // Saved profiles are small, because the timeline (which is large, and needed only for display)
    // and all but eight images are dropped.
    profile.timeline.clear();
    profile.data.images.truncate(8);
    let scaling = if setting.caches() {
        None
    } else {
        // The loader is dropped first, because its reads would slow down the reads that are
        // measured here.
        drop(loader);
        let source = case.world.source();
        let len = source.len();
        let read = |index| source.read(index % len, &mut HostPage::default(), u64::MAX).is_ok();
        Some(ReadScaling::measure(profile.setup.workers, 1.0, read))
    };
    let options = Options { knobs: Some(usize::MAX), scaling, ..Options::default() };
    let report = explain(&profile, &options).expect("the run is long enough for a report");
    if verbose {
        println!("{setting:?}, {:.1} images/s\n{report}", report.images_per_second);
    }
    report
}

struct Consumer<'a> {
    loader: &'a mut Loader,
    case: &'a Case,
    batch: u64,
}

impl Consumer<'_> {
    /// Consumes an epoch, or the part of it before the time `end`.
    fn epoch(&mut self, end: Option<Instant>) {
        let epoch = self.loader.epoch();
        let loader = epoch.loader();
        for batch in epoch {
            let batch = batch.expect("every sample is usable");
            (self.case.step)(self.batch, batch.len());
            if let Some(callback) = self.case.callback {
                let _span = loader.span("metrics");
                callback();
            }
            drop(batch);
            self.batch += 1;
            if end.is_some_and(|end| Instant::now() >= end) {
                return;
            }
        }
    }
}
