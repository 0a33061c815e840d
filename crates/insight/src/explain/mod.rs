//! Finds the bottleneck of a run, and predicts the gain of other settings.
//!
//! * Verdicts come from a simulation ([`crate::model`]) that is fitted to the profile. The report
//!   contains the ratio of the predicted to the measured throughput.
//! * A cause is a constraint whose removal speeds up the simulation; the module `cause` has the
//!   rules.
//! * A knob is a setting to change. Its gain is the simulated speed-up of this one change.
//! * Gains are reported only if they are larger than the model's error. If that error is too large,
//!   no gain is reported.
//! * A report contains the profile and the model. A stored report can therefore be merged with
//!   others and simulated again.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::model::{Forecast, Model};
use crate::profile::{Profile, Stage, StageProfile};
use crate::text::{counted, escaped};
use crate::{Error, Result};

pub use cause::Cause;
pub use fit::{Fit, fit, forecast};
pub use knobs::Knob;
pub use own::SYNC;
pub use ranks::{RankLine, Ranks, RanksKnob, Straggling};
pub use spent::{ProcessorShares, Spent};

mod cause;
mod contention;
mod fields;
mod fit;
mod html;
mod knobs;
mod own;
mod ranks;
mod spent;
mod what_if;

/// Largest relative error of the model for which gains and causes are reported. For runs that the
/// model explains, the error is at most 7 % (`benches/bottlenecks`). For runs whose predicted gains
/// were far too large or too small, the error was above 50 %.
const TRUSTED: f64 = 0.25;
/// Smallest number of batches for which settings are recommended. In a shorter run, all batches may
/// have been ready at the beginning, so it does not show the steady state.
const MIN_BATCHES_FOR_ADVICE: u64 = 12;
/// Default number of settings that a report recommends.
const KNOBS: usize = 3;

/// User input to a report.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Options {
    /// Price of a GPU hour, in any currency.
    pub price_per_hour: Option<f64>,
    /// Largest number of settings that the report recommends. Default 3.
    pub knobs: Option<usize>,
    /// Measured throughput of threads that only read, for several numbers of threads.
    pub scaling: Option<ReadScaling>,
    /// Measured throughput with a repeated batch, and with data from memory.
    pub differential: Option<Differential>,
}

/// Throughput of threads that only read, for several numbers of threads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadScaling {
    /// Pairs of a number of threads and their throughput in samples per second. The first pair is
    /// for one thread.
    pub rates: Vec<(u32, f64)>,
}

/// Throughput of three runs that isolate the consumer, preparation and fetching, in images per
/// second (Mohan et al., "Analyzing and mitigating data stalls in DNN training", VLDB 2021).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Differential {
    /// Throughput if the loader delivers the same batch again and again. It measures the consumer
    /// alone.
    pub synthetic: f64,
    /// Throughput if the encoded data is in memory. It measures the consumer and preparation.
    pub cached: f64,
    /// Unchanged pipeline.
    pub cold: f64,
}

/// Report on a run: the bottleneck, the evidence, and the settings to change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Summary in one sentence.
    pub verdict: String,
    /// Bottleneck.
    pub cause: Cause,
    /// Measured throughput in samples per second.
    pub images_per_second: f64,
    /// Measured share of the time in which the consumer waits.
    pub consumer_waits: f64,
    /// Measurements behind the verdict, one per line.
    pub evidence: Vec<String>,
    /// Settings to change, best first.
    pub knobs: Vec<Knob>,
    /// Reason why no settings are recommended. `None` if some are.
    #[serde(default)]
    pub nothing: Option<String>,
    /// Bottleneck after the best of the recommended changes.
    pub next: Option<Cause>,
    /// Breakdown of the workers' time.
    #[serde(default)]
    pub spent: Spent,
    /// Predicted throughput divided by the measured throughput. 1 is exact.
    pub model_quality: f64,
    /// Fitted model.
    pub model: Model,
    /// Throughput and waits that the model predicts.
    pub forecast: Forecast,
    /// Cost of the time that the consumer waits, if a price was given.
    pub cost: Option<Cost>,
    /// Measured throughput of threads that only read.
    pub scaling: Option<ReadScaling>,
    /// Throughput of three runs that isolate the consumer, preparation and fetching.
    pub differential: Option<Differential>,
    /// Profile of the run.
    pub profile: Profile,
}

/// Cost of the time that the consumer waits.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cost {
    /// Price of a GPU hour.
    pub price_per_hour: f64,
    /// Seconds that an epoch of this shard takes.
    pub epoch_seconds: f64,
    /// Cost of the time that the consumer waits in one epoch, in the currency of the price.
    pub waiting_per_epoch: f64,
}

/// Finds the bottleneck of the run that a profile describes.
///
/// # Errors
///
/// Fails with [`Error`] for a profile of fewer than two batches.
pub fn explain(profile: &Profile, options: &Options) -> Result<Report> {
    if profile.batches < 2 {
        let problem = format!(
            "the profile has {} batches, but at least 2 are needed; measure for longer",
            profile.batches
        );
        return Err(Error::new("batches", problem));
    }
    let Fit { model, forecast, quality } = fit(profile, options.scaling.as_ref())?;
    let error = error(quality);
    let cause = match cause::cause(&model, profile)? {
        cause if error <= TRUSTED => cause,
        cause => untrusted(cause, profile),
    };
    let knobs = match cause {
        Cause::Consumer => Vec::new(),
        _ if error > TRUSTED || profile.batches < MIN_BATCHES_FOR_ADVICE => Vec::new(),
        _ => knobs::knobs(&model, profile, options.knobs.unwrap_or(KNOBS), error)?,
    };
    let nothing = knobs.is_empty().then(|| nothing(cause, quality, profile.batches));
    let cost = options.price_per_hour.map(|price| {
        let epoch_seconds =
            profile.data.epoch_samples as f64 / profile.images_per_second().max(1e-9);
        let waited = epoch_seconds * profile.consumer.waiting_share;
        Cost { price_per_hour: price, epoch_seconds, waiting_per_epoch: waited / 3600.0 * price }
    });
    let profile = &consistent(profile);
    let spent = Spent::of(profile);
    Ok(Report {
        verdict: verdict(profile, &model, cause, knobs.first(), nothing.as_deref()),
        cause,
        images_per_second: profile.images_per_second(),
        consumer_waits: profile.consumer.waiting_share,
        evidence: evidence(profile, &spent, options, quality),
        next: knobs.first().map(|knob| knob.then),
        knobs,
        nothing,
        spent,
        model_quality: quality,
        model,
        forecast,
        cost,
        scaling: options.scaling.clone(),
        differential: options.differential,
        profile: profile.clone(),
    })
}

impl ReadScaling {
    /// Measures the throughput of `read` with 1 thread, with `workers` threads and with twice as
    /// many. Each measurement takes a third of `seconds`. The threads call `read` with consecutive
    /// numbers. Failed reads are not counted. If the system refuses to start a thread, only the
    /// started threads are measured.
    pub fn measure(workers: u32, seconds: f64, read: impl Fn(u64) -> bool + Sync) -> Self {
        let next = AtomicU64::new(0);
        let each = Duration::from_secs_f64(seconds / 3.0);
        let rate = |threads: u32| {
            let begin = Instant::now();
            let work = || {
                let mut samples = 0u64;
                while begin.elapsed() < each {
                    samples += u64::from(read(next.fetch_add(1, Ordering::Relaxed)));
                }
                samples
            };
            let (started, samples) = thread::scope(|scope| {
                let start = |_| thread::Builder::new().spawn_scoped(scope, work).ok();
                let others: Vec<_> = (1..threads).map_while(start).collect();
                let (started, here) = (1 + others.len() as u32, work());
                let others = others.into_iter().map(|it| it.join().unwrap_or(0));
                (started, here + others.sum::<u64>())
            });
            (started, samples as f64 / begin.elapsed().as_secs_f64())
        };
        let many = workers.max(2);
        let mut rates: Vec<(u32, f64)> = [1, many, 2 * many].into_iter().map(rate).collect();
        rates.dedup_by_key(|it| it.0);
        Self { rates }
    }

    /// Time that each concurrent read adds to a read, as a fraction of the time that a read takes
    /// alone.
    pub fn slowdown(&self) -> f64 {
        let Some(&(_, alone)) = self.rates.first() else { return 0.0 };
        let most = self.rates.iter().map(|it| it.1).fold(alone, f64::max);
        // If doubling the threads gained more than half of the possible gain, the storage is not
        // saturated. Otherwise the number of reads that it serves at a time is the largest rate
        // divided by the rate of one thread.
        if let [.., (few, before), (many, after)] = self.rates.as_slice() {
            let threads = f64::from(*many) / f64::from(*few);
            if after / before > 0.5 * (1.0 + threads) {
                return 0.0;
            }
        }
        (alone / most).min(1.0)
    }
}

/// Relative error of the model's throughput. The error is 1 if the model predicts twice or half the
/// measured throughput. `quality` is the predicted divided by the measured throughput.
fn error(quality: f64) -> f64 {
    quality.max(1.0 / quality.max(1e-9)) - 1.0
}

/// Chooses the cause for a model whose error is too large to trust it. If the consumer hardly
/// waits, this is the cause that the model found. If much contention was measured, the cause is
/// contention. Otherwise the cause is unknown.
fn untrusted(by_model: Cause, profile: &Profile) -> Cause {
    if profile.consumer.waiting_share < cause::NEGLIGIBLE {
        return by_model;
    }
    cause::contender(profile)
        .filter(|_| contention::lost(profile) > TRUSTED)
        .unwrap_or(Cause::Unexplained)
}

/// Corrects profiles that older versions wrote. In such a profile, each stage whose processor share
/// was not measured has the share 1, even if the stage waited for a processor.
fn consistent(profile: &Profile) -> Profile {
    let mut profile = profile.clone();
    for stage in &mut profile.stages {
        let most = if stage.busy > 0.0 { stage.without_waiting() / stage.busy } else { 1.0 };
        stage.cpu_share = stage.cpu_share.min(most);
    }
    profile
}

/// Reason why no settings are recommended.
fn nothing(cause: Cause, quality: f64, batches: u64) -> String {
    match (cause, error(quality)) {
        (Cause::Consumer, _) => "no change needed: the loader is faster than the consumer".into(),
        _ if batches < MIN_BATCHES_FOR_ADVICE => format!(
            "no advice: {batches} batches were measured, but advice needs at least \
             {MIN_BATCHES_FOR_ADVICE}; measure for longer"
        ),
        (_, error) if error > TRUSTED => format!(
            "no gain is predicted, because the model is inaccurate: it predicts {} of the \
             measured throughput",
            percent(quality)
        ),
        (_, error) if error > knobs::WORTH => {
            format!(
                "no setting is predicted to gain more than the model's error of {}",
                percent(error)
            )
        }
        _ => format!("no setting helps: {}", cause.takes()),
    }
}

fn verdict(
    profile: &Profile,
    model: &Model,
    cause: Cause,
    best: Option<&Knob>,
    nothing: Option<&str>,
) -> String {
    let waits = percent(profile.consumer.waiting_share);
    if cause == Cause::Consumer {
        let room =
            model.capacity().into_iter().find(|(it, _)| *it != crate::model::Limit::Consumer);
        let room = room.map_or(String::new(), |(_, most)| {
            format!(
                "; the loader could deliver {:.1} times as much",
                most / profile.images_per_second().max(1e-9)
            )
        });
        return format!("the consumer waits {waits} of the time; {}{room}", cause.words());
    }
    let lost = percent(contention::lost(profile));
    let lost = match cause {
        Cause::OtherPrograms => {
            let told = &profile.processors;
            let had = told.others.map_or(String::new(), |others| {
                format!(" and use {others:.2} of {}", counted(told.allowed, "processor"))
            });
            format!(": these programs take {lost} of the workers' time{had}")
        }
        Cause::Quota => format!(": the quota takes {lost} of the workers' time"),
        Cause::Hypervisor => format!(": the hypervisor takes {lost} of the workers' time"),
        _ => String::new(),
    };
    let more = match best {
        Some(knob) => format!("{} gives about +{}", knob.setting, percent(knob.gain)),
        None => nothing.unwrap_or_default().to_string(),
    };
    format!("the consumer waits {waits} of the time; {}{lost}; {more}", cause.words())
}

fn evidence(profile: &Profile, spent: &Spent, options: &Options, quality: f64) -> Vec<String> {
    let Profile { consumer, ring, setup, seconds, .. } = profile;
    let mut lines = vec![format!(
        "consumer: {} of {} batches were ready when requested; the consumer waited {:.2} s and \
         worked {:.2} s; a step takes {:.1} ms (p99 {:.1})",
        percent(consumer.readiness),
        profile.batches,
        consumer.waited,
        consumer.stepped,
        1e3 * consumer.step.mean,
        1e3 * consumer.step.p99,
    )];
    if let Some(empty) = ring.occupancy.first() {
        lines.push(format!(
            "ring: no batch was ready in the {} for {} of the time",
            counted(ring.slots, "slot"),
            percent(*empty)
        ));
    }
    let threads = f64::from(setup.workers) * seconds.max(1e-9);
    let share = |stage: &StageProfile| {
        let of_workers = spent.stages.iter().find(|it| it.0 == stage.stage).map(|it| it.1);
        // The kernel stage runs on the launcher's thread, not on a worker.
        of_workers.unwrap_or(stage.without_waiting() / threads)
    };
    for stage in
        profile.stages.iter().filter(|it| it.stage != Stage::List && it.busy > 0.005 * threads)
    {
        let waited = 1.0 - stage.without_waiting() / stage.busy;
        let waited = match waited {
            some if some > 0.005 => format!(", {} waiting for one", percent(some)),
            _ => String::new(),
        };
        lines.push(format!(
            "{}: {} of the workers' time; mean {:.3} ms (p50 {:.3}, p99 {:.3}), of which {} on a processor{waited}",
            stage.stage.name(),
            percent(share(stage)),
            1e3 * stage.latency.mean,
            1e3 * stage.latency.p50,
            1e3 * stage.latency.p99,
            percent(stage.cpu_share),
        ));
    }
    lines.extend(spent.lines());
    lines.extend(fields::lines(profile));
    lines.push(processors(profile));
    match (&options.scaling, profile.data.read_slowdown) {
        (Some(scaling), _) => lines.push(format!("reads: {scaling}")),
        (None, None) if waits_for_reads(profile) => lines.push(
            "reads: whether they slow each other down is unknown; \
             feedwater explain --probe measures it"
                .into(),
        ),
        _ => {}
    }
    for span in &consumer.spans {
        lines.push(format!("{}: {} of the step", span.name, percent(span.share)));
    }
    lines.push(format!("model: predicts {} of the measured throughput", percent(quality)));
    lines
}

/// Formats the use of the processors as a line of text.
fn processors(profile: &Profile) -> String {
    let told = &profile.processors;
    let used = told.used.unwrap_or_else(|| {
        let used: f64 = profile.stages.iter().map(|it| it.busy * it.cpu_share).sum();
        (used + profile.consumer.stepped * profile.consumer.cpu_share) / profile.seconds.max(1e-9)
    });
    let all = if told.allowed > 0 { told.allowed } else { profile.setup.cores };
    let mut line = format!("processors: {used:.2} of {all} in use");
    let others = [
        ("by other programs", told.others),
        ("by the hypervisor", told.stolen),
        ("withheld by the quota", told.throttled),
    ];
    for (who, many) in others {
        if let Some(many) = many.filter(|many| *many >= 0.005) {
            line += &format!(", {who} {many:.2}");
        }
    }
    if let Some(quota) = told.quota {
        line += &format!("; the container's CPU quota is {quota:.2} processors");
    }
    line
}

/// Whether the workers spend much of their time on reads, and the reads mostly wait.
fn waits_for_reads(profile: &Profile) -> bool {
    let busy: f64 = profile.stages.iter().map(|it| it.busy).sum();
    profile.stage(Stage::Read).is_some_and(|it| it.busy > 0.3 * busy && it.cpu_share < 0.5)
}

fn percent(share: f64) -> String {
    match 100.0 * share {
        small if small < 9.95 => format!("{small:.1} %"),
        percent => format!("{percent:.0} %"),
    }
}

impl fmt::Display for ReadScaling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |(threads, rate): &(u32, f64)| {
            format!("{rate:.0}/s by {}", counted(*threads, "thread"))
        };
        let some = self.rates.iter().map(text);
        f.write_str(&some.collect::<Vec<_>>().join(", "))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", escaped(&self.verdict))?;
        writeln!(f, "\nevidence")?;
        for line in &self.evidence {
            writeln!(f, "  {}", escaped(line))?;
        }
        if let Some(Differential { synthetic, cached, cold }) = self.differential {
            let stall = |fast: f64, slow: f64| percent((1.0 - slow / fast.max(1e-9)).max(0.0));
            writeln!(
                f,
                "  three runs: {synthetic:.0} images/s without a loader, {cached:.0} images/s with data in memory, \
                 {cold:.0} images/s unchanged: preparing takes {} of the time, fetching {}",
                stall(synthetic, cached),
                stall(cached, cold),
            )?;
        }
        if !self.knobs.is_empty() {
            writeln!(f, "\nwhat to change")?;
        }
        for knob in &self.knobs {
            let Knob { setting, gain, images_per_second, cost, then, .. } = knob;
            let (setting, cost, gain) = (escaped(setting), escaped(cost), percent(*gain));
            writeln!(
                f,
                "  {setting:<32} +{gain}: {images_per_second:.0} images/s; {cost}; then {}",
                then.words()
            )?;
        }
        if let Some(Cost { price_per_hour, epoch_seconds, waiting_per_epoch }) = self.cost {
            writeln!(
                f,
                "\ncost: an epoch takes {epoch_seconds:.0} s; at {price_per_hour} per hour, the \
                 consumer's waiting costs {waiting_per_epoch:.4} per epoch"
            )?;
        }
        Ok(())
    }
}
