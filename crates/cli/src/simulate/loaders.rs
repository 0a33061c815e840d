//! `simulate` without a report: several loaders that produce one batch at a time, their queue, and
//! the consumer.

use feedwater::internals::file;
use feedwater::internals::footprint::counted;
use feedwater_insight::model::{
    Consumer, Forecast, Limit, Model, On, Options as Run, Service, Stage, What, Who,
};
use serde_json::json;

use super::super::{CommandError, io_failure, print, print_json, print_lines};
use super::{Options, draw, percent, within};

/// Default coefficient of variation of the loading times.
///
/// With the value 0.06, 7 loaders produce 98, 275 and 296 batches in 30 s for loading times of 2 s,
/// 0.7 s and 0.35 s. The queue has one batch per loader, and batches are delivered in order. The
/// article whose simulation this command reproduces (see `tests/cli/simulate.rs`) reports 98, 275
/// and 295.
const CV: f64 = 0.06;
/// Largest number of events that are recorded for the timeline and the animation.
const EVENTS: u32 = 1_000_000;
/// Largest number of events that the animation shows. This number of events takes 6 MB of the page.
const SHOWN: usize = 100_000;

const PAGE: &str = include_str!("page.html");

/// Parameters of the simulated training loop.
struct Loop {
    loaders: u32,
    load_ms: f64,
    step_ms: f64,
    seconds: f64,
    cv: f64,
    queue: u32,
    desync: bool,
}

pub fn main(options: &Options) -> Result<(), CommandError> {
    let training_loop = Loop::new(options)?;
    let model = training_loop.model();
    let run = Run { events: EVENTS, ..Run::seconds(training_loop.seconds).seed(options.seed) };
    let mut forecast = model.run(&run).map_err(|error| training_loop.model_error(error))?;
    let halts = Halts::of(&forecast, training_loop.loaders);
    if let Some(path) = &options.html {
        file::write(path, training_loop.page(&model, &forecast, &halts))
            .map_err(|error| io_failure(path, &error))?;
    }
    if options.json {
        forecast.events.clear();
        return print_json(&json!({
            "loaders": training_loop.loaders,
            "load_ms": training_loop.load_ms,
            "step_ms": training_loop.step_ms,
            "seconds": training_loop.seconds,
            "cv": training_loop.cv,
            "queue": training_loop.queue,
            "desync": training_loop.desync,
            "seed": options.seed,
            "batches": forecast.batches,
            "batches_per_second": forecast.batches_per_second,
            "bound_batches_per_second": model.limit().map(|(_, rate)| rate),
            "consumer_waits": forecast.consumer_waits,
            "readiness": forecast.readiness,
            "halting_share": halts.share,
            "forecast": forecast,
            "model": model,
        }));
    }
    print_lines(draw::timeline(&forecast, training_loop.drawn_seconds()))?;
    print_lines(training_loop.summary(&model, &forecast, &halts))?;
    if let Some(path) = &options.html {
        print(format!("animation: {}", path.display()))?;
    }
    Ok(())
}

impl Loop {
    fn new(options: &Options) -> Result<Self, CommandError> {
        let loaders = options.loaders.unwrap_or(7);
        within("--loaders", f64::from(loaders), 1.0..=10_000.0)?;
        let queue = options.queue.unwrap_or(0);
        within("--queue", f64::from(queue), 0.0..=100_000.0)?;
        Ok(Self {
            loaders,
            queue,
            load_ms: within("--load-ms", options.load_ms.unwrap_or(2000.0), 0.0..=1e9)?,
            step_ms: within("--step-ms", options.step_ms.unwrap_or(100.0), 0.0..=1e9)?,
            seconds: within("--seconds", options.seconds.unwrap_or(30.0), 0.001..=1e9)?,
            cv: within("--cv", options.cv.unwrap_or(CV), 0.0..=Service::MAX_CV)?,
            desync: options.desync,
        })
    }

    /// Builds the model of the loop. A batch has one sample, and the only stage is a wait, because
    /// the loaders share no resources.
    fn model(&self) -> Model {
        let load = self.load_ms / 1e3;
        let start = |loader: u32| load * f64::from(loader) / f64::from(self.loaders);
        let service = Service::lognormal(load, self.cv);
        Model {
            batch: 1,
            slots: self.loaders + self.queue + 1,
            workers: vec![1.0; self.loaders as usize],
            starts: if self.desync { (0..self.loaders).map(start).collect() } else { Vec::new() },
            cores: 1,
            contention: None,
            resources: Vec::new(),
            stages: vec![Stage { name: "load".into(), on: On::Wait, service, detached: false }],
            pages: None,
            per_batch: 0.0,
            consumer: Consumer {
                step: Service::constant(self.step_ms / 1e3),
                holds: true,
                host_share: 0.0,
            },
        }
    }

    /// Converts an error of the model to one that names options of the command line.
    fn model_error(&self, error: feedwater_insight::Error) -> CommandError {
        let Self { load_ms, step_ms, seconds, .. } = self;
        CommandError::Misused(format!(
            "--load-ms {load_ms}, --step-ms {step_ms} and --seconds {seconds} cannot be simulated: {error}"
        ))
    }

    /// Number of seconds that the timeline shows: at most 24 times the loading time or the step
    /// time, whichever is longer.
    fn drawn_seconds(&self) -> f64 {
        let load = (self.load_ms / 1e3).max(self.step_ms / 1e3);
        self.seconds.min(24.0 * load)
    }

    fn summary(&self, model: &Model, forecast: &Forecast, halts: &Halts) -> String {
        let Self { loaders, load_ms, step_ms, seconds, .. } = self;
        let Forecast { batches, batches_per_second, consumer_waits, readiness, .. } = forecast;
        let bound = |wanted: Limit| {
            let bounds = model.capacity();
            let rate = bounds.iter().find(|(limit, _)| *limit == wanted).map(|(_, rate)| *rate);
            rate.map_or("any number".into(), |rate| format!("{rate:.2} a second"))
        };
        let waits = percent(*consumer_waits);
        let halting = match (consumer_waits, halts.share) {
            (waits, _) if *waits < 0.02 => "the consumer rarely waits".into(),
            (_, Some(share)) if share > 0.5 => {
                let share = percent(share);
                format!(
                    "the loop halts every {loaders} batches, because all loaders finish together: \
                     one batch in {loaders} causes {share} of the waiting"
                )
            }
            (_, Some(_)) => {
                format!(
                    "the loop does not halt at regular intervals, but the consumer waits {waits} \
                     of the time"
                )
            }
            (_, None) => format!("the consumer waits {waits} of the time"),
        };
        format!(
            "{} in {seconds} s, which is {batches_per_second:.2} a second; the consumer waits \
             {waits} of the time, and for {} of its requests a batch is ready\nbounds: {} by the \
             loaders ({loaders} / {load_ms} ms), {} by the consumer (1 / {step_ms} ms)\n{halting}",
            counted(*batches, "batch"),
            percent(*readiness),
            bound(Limit::Workers),
            bound(Limit::Consumer),
        )
    }

    /// Builds the HTML page that animates the simulated events.
    fn page(&self, model: &Model, forecast: &Forecast, halts: &Halts) -> String {
        let shown = &forecast.events[..forecast.events.len().min(SHOWN)];
        let is_cut = shown.len() < forecast.events.len();
        let end = shown.last().filter(|_| is_cut).map_or(self.seconds, |it| it.time);
        let data = json!({
            "events": shown,
            "seconds": end,
            "loaders": self.loaders,
            "load": self.load_ms / 1e3,
            "step": self.step_ms / 1e3,
            "verdict": self.summary(model, forecast, halts),
        });
        // Escape `<`, because `</script>` in the data would end the script element.
        PAGE.replacen("/*DATA*/null", &data.to_string().replace('<', "\\u003c"), 1)
    }
}

/// Rhythm of the consumer's waits. If the consumer always waits for the same loaders' batches, the
/// wait recurs with a period of `loaders` batches.
struct Halts {
    /// Largest share of the waiting time that belongs to one group of batches. A group has the
    /// batches whose numbers are equal modulo the number of loaders. A share of 1 / `loaders` means
    /// that the waits have no rhythm.
    ///
    /// `None` with one loader, too few batches or no waiting. The wait for the first batch is not
    /// counted.
    share: Option<f64>,
}

impl Halts {
    fn of(forecast: &Forecast, loaders: u32) -> Self {
        let mut sums = vec![0.0; loaders as usize];
        let (mut since, mut seen) = (None, 0);
        for event in forecast.events.iter().filter(|event| event.who == Who::Consumer) {
            match event.what {
                What::Waits if event.batch > 0 => since = Some(event.time),
                What::Begins => {
                    let waited = since.take().map_or(0.0, |since| event.time - since);
                    sums[(event.batch % loaders) as usize] += waited;
                    seen += 1;
                }
                _ => {}
            }
        }
        let all: f64 = sums.iter().sum();
        let most = sums.into_iter().fold(0.0, f64::max);
        let enough = loaders > 1 && seen >= 3 * loaders && all > 0.0;
        Self { share: enough.then(|| most / all) }
    }
}
