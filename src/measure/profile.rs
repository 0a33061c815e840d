//! Converts counts to the plain data of a [`Profile`].

use feedwater_insight::model::slots;

use super::{
    Absence, ConsumerProfile, Data, DeviceCounts, FieldCounts, FieldProfile, MemoryProfile,
    Profile, RingProfile, RouteProfile, Setup, Snapshot, SpanProfile, Stage, StageProfile,
    ThreadProfile, blame::blame,
};

/// Number of quantiles, at equal steps of probability, that represent a distribution.
const QUANTILES: usize = 64;

impl Snapshot {
    /// The profile of a snapshot, or of the difference of two.
    pub fn profile(&self, setup: Setup, data: Data) -> Profile {
        let measured = self;
        let steps = &measured.steps;
        let stages = Stage::ALL.into_iter().filter_map(|stage| stage_profile(measured, stage));
        let stages: Vec<_> = stages.collect();
        let seen = |stage| stages.iter().find(|it: &&StageProfile| it.stage == stage);
        let mean = |sum: u64, count: u64| if count > 0 { sum as f64 / count as f64 } else { 0.0 };
        let headers = seen(Stage::Header).map_or(0, |it| it.count);
        let data = Data {
            mean_bytes: seen(Stage::Read).map_or(0.0, |it| mean(it.bytes, it.count)),
            unread_share: match seen(Stage::Read).map_or(0, |it| it.count) {
                reads if reads < headers => 1.0 - mean(reads, headers),
                _ => 0.0,
            },
            mean_pixels: mean(measured.pixels, headers),
            mean_window_pixels: mean(measured.window_pixels, headers),
            images: measured.images.clone(),
            read_slowdown: measured.reads.slowdown(),
            read_others: mean(measured.reads.others, measured.reads.reads),
            ..data
        };
        let ring = RingProfile {
            slots: slots(setup.prefetch),
            occupancy: measured.ring.occupancy(),
            making: measured.ring.making.latency(measured.ring.made as f64 * 1e-9),
            delivery: mean(measured.ring.delivery, measured.ring.delivered) * 1e-9,
        };
        let mut profile = Profile {
            seconds: measured.seconds,
            images: steps.samples,
            batches: steps.batches,
            consumer: consumer(measured),
            routes: routes(measured),
            memory: MemoryProfile::default(),
            device: measured.readings.profile(),
            processors: measured.machine.profile(),
            threads: threads(measured),
            timeline: measured.timeline.clone(),
            fields: measured.fields.iter().map(field_profile).collect(),
            setup,
            data,
            stages,
            ring,
        };
        blame(&mut profile, measured);
        profile
    }
}

fn stage_profile(measured: &Snapshot, stage: Stage) -> Option<StageProfile> {
    let counts = measured.stage(stage);
    let waited = counts.input + counts.output;
    let device = measured.device(stage).time();
    (counts.count > 0 || waited > 0 || device.is_some()).then(|| StageProfile {
        stage,
        count: counts.count,
        bytes: counts.bytes,
        busy: counts.busy as f64 * 1e-9,
        cpu_share: counts.cpu_share(),
        waited_for_processor: None,
        waited_for_input: counts.input as f64 * 1e-9,
        waited_for_room: counts.output as f64 * 1e-9,
        latency: counts.latency.latency(counts.busy as f64 * 1e-9),
        quantiles: counts.latency.quantiles(QUANTILES),
        device,
    })
}

fn field_profile(counts: &FieldCounts) -> FieldProfile {
    let seconds = |nanoseconds: u64| nanoseconds as f64 * 1e-9;
    FieldProfile {
        column: counts.column.clone(),
        field: counts.field.clone(),
        samples: counts.samples,
        count: counts.count,
        share: counts.share(),
        bytes: counts.bytes,
        read: seconds(counts.read),
        convert: seconds(counts.convert),
        follow: seconds(counts.follow),
    }
}

fn routes(measured: &Snapshot) -> Vec<RouteProfile> {
    let share = |part: f64, all: f64| if all > 0.0 { part / all } else { 0.0 };
    let all: u64 = measured.routes.iter().map(|it| it.images).sum();
    let routes = measured.routes.iter().map(|it| RouteProfile {
        route: it.route.to_string(),
        images: it.images,
        share: share(it.images as f64, all as f64),
        busy: share(it.busy, it.places).min(1.0),
        device: measured.device_of(Stage::DeviceDecode, it.route).and_then(DeviceCounts::time),
    });
    routes.collect()
}

fn consumer(measured: &Snapshot) -> ConsumerProfile {
    let steps = &measured.steps;
    let seconds = |nanoseconds: u64| nanoseconds as f64 * 1e-9;
    let (waited, stepped) = (seconds(steps.waited), seconds(steps.stepped));
    let share = |part: f64, all: f64| if all > 0.0 { part / all } else { 0.0 };
    let spans = steps.spans.iter().map(|(name, &(count, took))| SpanProfile {
        name: name.clone(),
        count,
        seconds: seconds(took),
        share: share(seconds(took), stepped),
    });
    ConsumerProfile {
        waited,
        waiting_share: share(waited, waited + stepped),
        waited_on_device: steps.waited_on_device.time(),
        readiness: share(steps.ready as f64, steps.batches as f64),
        wait: steps.wait.latency(waited),
        step: steps.step.latency(stepped),
        step_quantiles: steps.step.quantiles(QUANTILES),
        stepped,
        cpu_share: share(steps.cpu as f64, steps.clocked as f64).min(1.0),
        waited_for_processor: steps.thread.map(|it| seconds(it.waited)),
        between_epochs: seconds(steps.between_epochs),
        spans: spans.collect(),
    }
}

fn threads(measured: &Snapshot) -> Vec<ThreadProfile> {
    let times = measured.threads.iter().copied().chain(std::iter::repeat(None));
    let absences = measured.absences.iter().copied().chain(std::iter::repeat(Absence::default()));
    let threads = measured.by_thread.iter().zip(times.zip(absences));
    let threads = threads.map(|((name, stages), (time, absence))| {
        let sum =
            |of: fn(&super::StageCounts) -> u64| stages.iter().map(of).sum::<u64>() as f64 * 1e-9;
        ThreadProfile {
            name: name.clone(),
            count: stages.iter().map(|it| it.count).max().unwrap_or(0),
            busy: sum(|it| it.busy),
            waited_for_input: sum(|it| it.input),
            waited_for_room: sum(|it| it.output),
            starting: absence.starting as f64 * 1e-9,
            finished: absence.finished as f64 * 1e-9,
            ran: time.map(|it| it.ran as f64 * 1e-9),
            waited_for_processor: time.map(|it| it.waited as f64 * 1e-9),
        }
    });
    threads.collect()
}
