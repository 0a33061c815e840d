//! Simulated pipelines on which the tuner is tested, and the profiles that a loader would measure
//! there.

use super::*;

/// A simulated machine with a data set and a consumer. Times are in milliseconds.
#[derive(Clone)]
pub struct Mix {
    pub name: &'static str,
    pub cores: u32,
    pub batch: u32,
    pub space: Space,
    /// `latency` is the latency of a read, and `channels` is how many reads the storage serves at
    /// the same time (0 for any number).
    pub latency: f64,
    pub channels: u32,
    /// CPU time that a read takes, in addition to its latency.
    pub copy: f64,
    pub decode: (f64, f64),
    pub operators: [f64; 3],
    /// Device time per image: of the decode engine, and of the kernel for each of the three
    /// operators.
    pub engine: f64,
    pub kernel: [f64; 3],
    /// Time of the consumer's step per batch, and its coefficient of variation.
    pub step: (f64, f64),
    pub host_share: f64,
}

pub fn base() -> Mix {
    Mix {
        name: "decoding on 8 cores, a fast consumer",
        cores: 8,
        batch: 32,
        space: space(16, 8, &ALL[..1]),
        latency: 0.0,
        channels: 0,
        copy: 0.05,
        decode: (3.0, 0.4),
        operators: [0.5, 0.05, 0.05],
        engine: 0.0,
        kernel: [0.0; 3],
        step: (1.0, 0.0),
        host_share: 0.0,
    }
}

pub fn mixes() -> Vec<Mix> {
    let gpu = Mix {
        space: space(32, 16, &ALL),
        cores: 16,
        engine: 0.25,
        kernel: [0.012, 0.004, 0.004],
        step: (20.0, 0.0),
        ..base()
    };
    let mut limited = space(16, 8, &ALL[..1]);
    limited.prefetch = Bounds { least: 1, start: 2, most: 2 };
    vec![
        base(),
        Mix { name: "a slow consumer, which two workers keep busy", step: (60.0, 0.0), ..base() },
        Mix {
            name: "a far storage: many workers wait",
            latency: 40.0,
            space: space(64, 8, &ALL[..1]),
            step: (20.0, 0.0),
            ..base()
        },
        Mix {
            name: "a disk that serves two reads at a time",
            latency: 4.0,
            channels: 2,
            decode: (1.0, 0.3),
            ..base()
        },
        Mix {
            name: "steps that vary: a longer ring evens them out",
            step: (14.0, 0.8),
            decode: (2.5, 0.4),
            ..base()
        },
        Mix {
            name: "images of all sizes, and steps to match",
            decode: (3.0, 2.0),
            step: (15.0, 0.0),
            ..base()
        },
        Mix {
            name: "two cores, of which the consumer needs one",
            cores: 2,
            space: space(4, 2, &ALL[..1]),
            step: (24.0, 0.0),
            host_share: 0.9,
            ..base()
        },
        Mix {
            name: "three threads allowed, and a ring of two",
            cores: 16,
            space: Space { workers: Bounds { least: 1, start: 3, most: 3 }, ..limited.clone() },
            ..base()
        },
        Mix { name: "a device, and cores that can do all", step: (25.0, 0.0), ..gpu.clone() },
        Mix {
            name: "a device, and too few cores to decode",
            cores: 4,
            space: space(8, 4, &ALL),
            ..gpu.clone()
        },
        Mix {
            name: "a slow device, and cores that can do more",
            engine: 1.2,
            step: (10.0, 0.0),
            ..gpu.clone()
        },
        Mix {
            name: "cores that can decode, and operators for the device",
            cores: 6,
            space: space(12, 6, &ALL),
            decode: (1.0, 0.4),
            operators: [2.0, 0.5, 0.5],
            engine: 1.5,
            step: (8.0, 0.0),
            ..gpu.clone()
        },
        Mix {
            name: "the first operator for the cores, the others for the device",
            cores: 6,
            space: space(12, 6, &ALL),
            decode: (1.0, 0.4),
            operators: [0.2, 2.5, 0.3],
            engine: 1.5,
            kernel: [0.8, 0.05, 0.05],
            step: (4.0, 0.0),
            ..gpu
        },
    ]
}

impl Mix {
    /// Builds the simulation of this machine with the settings `choice`.
    pub fn truth(&self, choice: Choice) -> Model {
        let ms = |mean: f64, cv: f64| Service::lognormal(mean / 1e3, cv);
        let mut resources = Vec::new();
        let mut stages = Vec::new();
        let mut add = |name: &str, on, service: Service, detached| {
            if service.mean > 0.0 {
                stages.push(Stage { name: name.into(), on, service, detached });
            }
        };
        let mut resource = |name: &str, servers| {
            resources.push(Resource { name: name.into(), servers });
            On::Resource(resources.len() - 1)
        };
        add("read", On::Cpu, ms(self.copy, 0.0), false);
        let on = if self.channels > 0 { resource("storage", self.channels) } else { On::Wait };
        add("read", on, ms(self.latency, 0.3), false);
        add("header", On::Cpu, ms(0.01, 0.0), false);
        let Offload { operators, decode } = choice.offload;
        let (on_cpu, on_device) = (&self.operators[..3 - operators], &self.kernel[3 - operators..]);
        if decode {
            let on = resource("device_decode", 1);
            add("device_decode", on, ms(self.engine, 0.3), true);
        } else {
            add("decode", On::Cpu, ms(self.decode.0, self.decode.1), false);
            add("transform", On::Cpu, ms(on_cpu.iter().sum(), 0.2), false);
            if self.has_device() {
                add("upload", On::Cpu, ms(UPLOAD[on_cpu.len()], 0.1), false);
            }
        }
        if operators > 0 {
            let on = resource("kernel", 1);
            add("kernel", on, ms(on_device.iter().sum(), 0.0), true);
        }
        Model {
            batch: self.batch,
            slots: choice.prefetch as u32 + 1,
            workers: vec![1.0; choice.workers],
            starts: Vec::new(),
            cores: self.cores,
            contention: None,
            resources,
            stages,
            pages: self.has_device().then_some(96),
            per_batch: 2e-5,
            consumer: Consumer {
                step: ms(self.step.0, self.step.1),
                holds: true,
                host_share: self.host_share,
            },
        }
    }

    pub fn has_device(&self) -> bool {
        self.space.offload.len() > 1
    }

    /// Whether step or decode times vary so much that a few batches are not representative.
    pub fn varies(&self) -> bool {
        self.step.1 > 0.0 || self.decode.1 > 1.0
    }

    /// Returns the long-run throughput in samples per second.
    pub fn rate(&self, choice: Choice) -> f64 {
        let options = Options::batches(200, 40);
        self.truth(choice).run(&options).unwrap().samples_per_second
    }

    /// Returns the choice with the highest throughput, and this throughput. Choices whose upper
    /// bound is below the best throughput are not simulated.
    pub fn best(&self) -> (Choice, f64) {
        let mut all = Vec::new();
        for &offload in &self.space.offload {
            for workers in self.space.workers.least..=self.space.workers.most {
                for prefetch in self.space.prefetch.least..=self.space.prefetch.most {
                    let choice = Choice { workers, prefetch, offload };
                    let most = self.truth(choice).capacity().first().unwrap().1;
                    all.push((most, choice));
                }
            }
        }
        all.sort_by(|a, b| b.0.total_cmp(&a.0));
        let mut best = (all[0].1, 0.0);
        for (most, choice) in all {
            // A simulation of this length may slightly exceed the long-run throughput, so 2 % are
            // added to the bound.
            if most * 1.02 < best.1 {
                break;
            }
            let rate = self.rate(choice);
            if rate > best.1 {
                best = (choice, rate);
            }
        }
        best
    }

    /// Returns the profile that a loader would measure during `batches` batches.
    pub fn window(&self, choice: Choice, batches: u64, seed: u32) -> Profile {
        let truth = self.truth(choice);
        let options = Options::batches(batches as u32, 2 * truth.slots + 4).seed(seed);
        let seen = truth.run(&options).unwrap();
        profile(self, choice, &truth, &seen)
    }
}

/// Builds a loader's profile from the results of a simulation.
pub fn profile(mix: &Mix, choice: Choice, truth: &Model, seen: &Forecast) -> Profile {
    let samples = f64::from(seen.batches * truth.batch);
    let mut stages: Vec<StageProfile> = Vec::new();
    for (stage, used) in truth.stages.iter().zip(&seen.stages) {
        let all = (used.serving + used.queued) * seen.seconds;
        let worked = if stage.on == On::Cpu { used.serving * seen.seconds } else { 0.0 };
        let on_device = stage.detached;
        let named = Measured::ALL.into_iter().find(|it| it.name() == stage.name).unwrap();
        if let Some(found) = stages.iter_mut().find(|it| it.stage == named) {
            found.cpu_share = (found.cpu_share * found.busy + worked) / (found.busy + all);
            found.busy += all;
            found.quantiles = stage.service.quantiles.clone();
            found.latency.cv = stage.service.cv();
            continue;
        }
        stages.push(StageProfile {
            stage: named,
            count: samples as u64,
            bytes: 100_000 * samples as u64,
            // If the image is decoded on the device, the worker only hands it over.
            busy: if on_device { 2e-6 * samples } else { all },
            cpu_share: if on_device { 1.0 } else { worked / all },
            waited_for_processor: None,
            waited_for_input: 0.0,
            waited_for_room: 0.0,
            latency: Latency { cv: stage.service.cv(), ..Latency::default() },
            quantiles: stage.service.quantiles.clone(),
            device: on_device.then(|| DeviceTime {
                spans: samples as u64,
                items: samples as u64,
                seconds: used.serving * seen.seconds,
                all_items: samples as u64,
                ..DeviceTime::default()
            }),
        });
    }
    let reads = truth.stages.iter().zip(&seen.stages).filter(|it| it.0.name == "read");
    let in_flight: f64 = reads.map(|it| it.1.serving + it.1.queued).sum();
    let threads = seen.workers.iter().enumerate().map(|(number, shares)| ThreadProfile {
        name: format!("feedwater-{number}"),
        count: (samples / seen.workers.len() as f64) as u64,
        busy: (shares.busy + shares.queued) * seen.seconds,
        waited_for_input: 0.0,
        waited_for_room: (shares.slot + shares.page) * seen.seconds,
        starting: 0.0,
        finished: 0.0,
        ran: None,
        waited_for_processor: None,
    });
    let waited = seen.consumer_waits * seen.seconds;
    Profile {
        seconds: seen.seconds,
        images: samples as u64,
        batches: u64::from(seen.batches),
        setup: Setup {
            batch: mix.batch,
            workers: choice.workers as u32,
            prefetch: choice.prefetch as u32,
            cores: mix.cores,
            pages: truth.pages,
            width: 224,
            height: 224,
            ..Setup::default()
        },
        data: Data {
            read_slowdown: (mix.channels > 0).then(|| 1.0 / f64::from(mix.channels)),
            read_others: (in_flight - 1.0).max(0.0),
            ..Data::default()
        },
        threads: threads.collect(),
        stages,
        ring: RingProfile {
            slots: truth.slots,
            delivery: truth.per_batch,
            ..RingProfile::default()
        },
        consumer: ConsumerProfile {
            waited,
            waiting_share: seen.consumer_waits,
            stepped: seen.seconds - waited,
            step: Latency {
                mean: (seen.seconds - waited) / f64::from(seen.batches),
                cv: mix.step.1,
                ..Latency::default()
            },
            step_quantiles: truth.consumer.step.quantiles.clone(),
            cpu_share: mix.host_share,
            ..ConsumerProfile::default()
        },
        ..Profile::default()
    }
}
