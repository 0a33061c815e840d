//! What limits the loop, what to change, and what that will gain.
//!
//! * The verdict comes from one model of the pipeline ([`crate::model`]), which is made from what was measured and must do
//!   what was measured: its quality is a line of the report.
//! * A cause is what the model is freed of by a change: `cause` says how that is decided.
//! * A knob's gain is what the model does with the setting against what it does without.
//! * Nothing is promised that the model's error does not allow: a gain is named where it is larger than that error, and none
//!   where the model does not do what was measured.
//! * A report keeps the profile and the model, so that it can be read again, merged and simulated.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::model::{Forecast, Model};
use crate::profile::{Profile, Stage};
use crate::{Error, Result};

pub use cause::Cause;
pub use fit::{Fit, fit, forecast};
pub use knobs::Knob;
pub use own::SYNC;
pub use ranks::{RankLine, Ranks, RanksKnob, Straggling};
pub use spent::{ProcessorShares, Spent};

mod cause;
mod contention;
mod fit;
mod html;
mod knobs;
mod own;
mod ranks;
mod spent;

/// A model that misses what was measured by more promises nothing. Of runs that it explains it misses up to 7 % (`benches/bottlenecks`);
/// of those for which promises were wrong by factors, half as much again and more.
const TRUSTED: f64 = 0.25;
/// Knobs in a report, where nothing else is asked for.
const KNOBS: usize = 3;

/// What a user can say besides what was measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Options {
    /// The price of an hour of the GPU, in whatever currency.
    pub price_per_hour: Option<f64>,
    /// How many knobs are named at most. Default 3.
    pub knobs: Option<usize>,
    /// How reads were seen to scale.
    pub scaling: Option<ReadScaling>,
    /// How fast the loop is without a loader, and with bytes that are in memory.
    pub differential: Option<Differential>,
}

/// Samples a second that a number of threads read, and do nothing else.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadScaling {
    /// Threads, and samples a second, with one thread first.
    pub rates: Vec<(u32, f64)>,
}

/// Three runs that differ in one thing each (Mohan et al., "Analyzing and mitigating data stalls in DNN training",
/// VLDB 2021). Images a second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Differential {
    /// The same batch over and over: the consumer alone.
    pub synthetic: f64,
    /// Bytes from memory: the consumer and preparation.
    pub cached: f64,
    /// As it is.
    pub cold: f64,
}

/// What limits a run, and what to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// One sentence.
    pub verdict: String,
    /// What limits.
    pub cause: Cause,
    /// Samples a second, measured.
    pub images_per_second: f64,
    /// The share of its time in which the consumer waits, measured.
    pub consumer_waits: f64,
    /// What the verdict rests on, line by line.
    pub evidence: Vec<String>,
    /// Settings to change, the best first.
    pub knobs: Vec<Knob>,
    /// Why no setting is named; `None` where one is.
    #[serde(default)]
    pub nothing: Option<String>,
    /// What would limit after the best of them.
    pub next: Option<Cause>,
    /// What the workers' time went into.
    #[serde(default)]
    pub spent: Spent,
    /// The model's images per second by the measured ones.
    pub model_quality: f64,
    /// The model.
    pub model: Model,
    /// What the model does.
    pub forecast: Forecast,
    /// What waiting costs.
    pub cost: Option<Cost>,
    /// How reads were seen to scale.
    pub scaling: Option<ReadScaling>,
    /// Three runs that tell consumer, preparation and fetching apart.
    pub differential: Option<Differential>,
    /// What was measured.
    pub profile: Profile,
}

/// What waiting costs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cost {
    /// The price of an hour that was given.
    pub price_per_hour: f64,
    /// Seconds of an epoch of this shard.
    pub epoch_seconds: f64,
    /// What the waiting in it costs.
    pub waiting_per_epoch: f64,
}

/// Explains what was measured.
///
/// # Errors
///
/// [`Error`] where too little was measured: no batch.
pub fn explain(profile: &Profile, options: &Options) -> Result<Report> {
    if profile.batches < 2 {
        let problem = format!("{} batches were measured; at least 2 are needed", profile.batches);
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
        _ if error > TRUSTED => Vec::new(),
        _ => knobs::knobs(&model, profile, options.knobs.unwrap_or(KNOBS), error)?,
    };
    let nothing = knobs.is_empty().then(|| nothing(cause, quality));
    let cost = options.price_per_hour.map(|price| {
        let epoch_seconds =
            profile.data.epoch_samples as f64 / profile.images_per_second().max(1e-9);
        let waited = epoch_seconds * profile.consumer.waiting_share;
        Cost { price_per_hour: price, epoch_seconds, waiting_per_epoch: waited / 3600.0 * price }
    });
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
    /// Measures it: 1, then as many threads as there are workers, then twice as many, call `read` with one number after
    /// another, each for a third of these seconds. Reads that fail are not counted.
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
            let samples: u64 = thread::scope(|scope| {
                let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
                threads.into_iter().map(|it| it.join().unwrap_or(0)).sum()
            });
            (threads, samples as f64 / begin.elapsed().as_secs_f64())
        };
        let many = workers.max(2);
        Self { rates: [1, many, 2 * many].into_iter().map(rate).collect() }
    }

    /// How much longer a read takes for each other one, as a part of what it takes alone.
    pub fn slowdown(&self) -> f64 {
        let Some(&(_, alone)) = self.rates.first() else { return 0.0 };
        let most = self.rates.iter().map(|it| it.1).fold(alone, f64::max);
        // Where more threads still read much more, nothing was full yet; else as many are served at a time as one alone has
        // to be multiplied by.
        if let [.., (few, before), (many, after)] = self.rates.as_slice() {
            let threads = f64::from(*many) / f64::from(*few);
            if after / before > 0.5 * (1.0 + threads) {
                return 0.0;
            }
        }
        (alone / most).min(1.0)
    }
}

/// By how much a model of this quality misses what was measured: twice and half are 1.
fn error(quality: f64) -> f64 {
    quality.max(1.0 / quality.max(1e-9)) - 1.0
}

/// What limits where the model cannot tell: what was measured without it, or nobody knows.
fn untrusted(by_model: Cause, profile: &Profile) -> Cause {
    if profile.consumer.waiting_share < cause::NEGLIGIBLE {
        return by_model;
    }
    cause::contender(profile)
        .filter(|_| contention::lost(profile) > TRUSTED)
        .unwrap_or(Cause::Unexplained)
}

/// Why no setting is named.
fn nothing(cause: Cause, quality: f64) -> String {
    match (cause, error(quality)) {
        (Cause::Consumer, _) => "nothing in the loader: it is faster than the consumer".into(),
        (_, error) if error > TRUSTED => format!(
            "no gain is promised: the model of this run does {} of what was measured",
            percent(quality)
        ),
        (_, error) if error > knobs::WORTH => {
            format!("no setting gains more than the model's error of {}", percent(error))
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
                "; the loader could give {:.1} times as much",
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
                format!(", and {others:.2} of {} processors", told.allowed)
            });
            format!(": {lost} of the workers' time went to them{had}")
        }
        Cause::Quota => format!(": {lost} of the workers' time its processors were withheld"),
        Cause::Hypervisor => format!(": {lost} of the workers' time went to other machines"),
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
        "consumer: {} of {} batches were there when it asked; it waited {:.2} s and stepped {:.2} s, a step takes \
         {:.1} ms (p99 {:.1})",
        percent(consumer.readiness),
        profile.batches,
        consumer.waited,
        consumer.stepped,
        1e3 * consumer.step.mean,
        1e3 * consumer.step.p99,
    )];
    if let Some(empty) = ring.occupancy.first() {
        lines.push(format!(
            "ring: of {} slots none was ready for {} of the time",
            ring.slots,
            percent(*empty)
        ));
    }
    let threads = f64::from(setup.workers) * seconds.max(1e-9);
    for stage in
        profile.stages.iter().filter(|it| it.stage != Stage::List && it.busy > 0.005 * threads)
    {
        let waited = 1.0 - stage.without_waiting() / stage.busy;
        let waited = match waited {
            some if some > 0.005 => format!(", {} it waited for one", percent(some)),
            _ => String::new(),
        };
        lines.push(format!(
            "{}: {} of the workers' time, {:.3} ms (p50 {:.3}, p99 {:.3}), a processor worked {} of it{waited}",
            stage.stage.name(),
            percent(stage.without_waiting() / threads),
            1e3 * stage.latency.mean,
            1e3 * stage.latency.p50,
            1e3 * stage.latency.p99,
            percent(stage.cpu_share),
        ));
    }
    lines.extend(spent.lines());
    lines.push(processors(profile));
    match (&options.scaling, profile.data.read_slowdown) {
        (Some(scaling), _) => lines.push(format!("reads: {scaling}")),
        (None, None) if waits_for_reads(profile) => lines.push(
            "reads: whether more of them at a time would be as fast each could not be told; \
             feedwater explain --probe measures it"
                .into(),
        ),
        _ => {}
    }
    for span in &consumer.spans {
        lines.push(format!("{}: {} of the step", span.name, percent(span.share)));
    }
    lines.push(format!("model: does {} of what was measured", percent(quality)));
    lines
}

/// Who used the processors, on average.
fn processors(profile: &Profile) -> String {
    let told = &profile.processors;
    let used = told.used.unwrap_or_else(|| {
        let used: f64 = profile.stages.iter().map(|it| it.busy * it.cpu_share).sum();
        (used + profile.consumer.stepped * profile.consumer.cpu_share) / profile.seconds.max(1e-9)
    });
    let all = if told.allowed > 0 { told.allowed } else { profile.setup.cores };
    let mut line = format!("processors: {used:.2} of {all} were used");
    let others = [
        ("other programs used", told.others),
        ("the hypervisor took", told.stolen),
        ("withheld for the quota were", told.throttled),
    ];
    for (who, many) in others {
        if let Some(many) = many.filter(|many| *many >= 0.005) {
            line += &format!(", {who} {many:.2}");
        }
    }
    if let Some(quota) = told.quota {
        line += &format!("; the container's CPU quota is {quota:.2}");
    }
    line
}

/// Whether reading is most of what workers do, and mostly waiting.
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
        let some =
            self.rates.iter().map(|(threads, rate)| format!("{rate:.0}/s by {threads} threads"));
        f.write_str(&some.collect::<Vec<_>>().join(", "))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.verdict)?;
        writeln!(f, "\nevidence")?;
        for line in &self.evidence {
            writeln!(f, "  {line}")?;
        }
        if let Some(Differential { synthetic, cached, cold }) = self.differential {
            let stall = |fast: f64, slow: f64| percent((1.0 - slow / fast.max(1e-9)).max(0.0));
            writeln!(
                f,
                "  three runs: {synthetic:.0} images/s without a loader, {cached:.0} from memory, {cold:.0} as it is: \
                 preparing takes {}, fetching {}",
                stall(synthetic, cached),
                stall(cached, cold),
            )?;
        }
        if !self.knobs.is_empty() {
            writeln!(f, "\nwhat to change")?;
        }
        for knob in &self.knobs {
            let Knob { setting, gain, images_per_second, cost, then, .. } = knob;
            let gain = percent(*gain);
            writeln!(
                f,
                "  {setting:<32} +{gain}: {images_per_second:.0} images/s; {cost}; then {}",
                then.words()
            )?;
        }
        if let Some(Cost { price_per_hour, epoch_seconds, waiting_per_epoch }) = self.cost {
            writeln!(
                f,
                "\ncost: an epoch takes {epoch_seconds:.0} s; at {price_per_hour} an hour the waiting in it costs \
                 {waiting_per_epoch:.4}"
            )?;
        }
        Ok(())
    }
}
