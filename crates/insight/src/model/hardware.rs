//! Predicts how a measured pipeline performs on other hardware.

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

use super::{Contention, Model, On, Resource, Service, Stage};

/// Changes of the hardware and the settings. Fields that are not set stay as measured. A model, and
/// also the result of [`apply`](Self::apply), describes the loader of one GPU. The throughput of
/// all GPUs is [`gpus`](Self::gpus) times as large.
///
/// * If `cores` is not set, other programs take as many cores as in the measured run. If `cores` is
///   set, all cores belong to the loaders.
/// * The cores of a host are divided among the loaders of its GPUs. If the quotient is not a whole
///   number, it is rounded up, and each core becomes slower in proportion. So the loaders together
///   never get more processor time than exists.
/// * Resources of the measured model are not shared: each GPU has its own. Only cores, `disk` and
///   `link` are shared.
/// * The GPUs of a host share its `disk`, and all GPUs share the `link`. Each of the two becomes a
///   resource with one server, and a stage before all other stages. A sample occupies the server
///   for this time: its bytes divided by this GPU's share of the rate.
/// * With another batch size, the step time scales in proportion unless `step` is set as well.
/// * Additional workers are as fast as the measured ones. If the number of workers is reduced, the
///   last workers are removed.
/// * Not modelled: GPUs that wait for each other at the end of each step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Hardware {
    /// Number of worker threads of each loader.
    pub workers: Option<u32>,
    /// Processors of a host.
    pub cores: Option<u32>,
    /// Number of prefetched batches, which is the number of slots minus 1.
    pub prefetch: Option<u32>,
    /// Samples per batch.
    pub batch: Option<u32>,
    /// Seconds per step.
    pub step: Option<f64>,
    /// New number of servers for each named resource, per GPU.
    pub resources: Vec<(String, u32)>,
    /// Factors that multiply the service times of the named stages.
    pub stages: Vec<(String, f64)>,
    /// GPUs per host.
    pub gpus_per_host: u32,
    /// Hosts.
    pub hosts: u32,
    /// Bytes per second of a host's disk.
    pub disk: Option<f64>,
    /// Bytes per second of the link or storage that all hosts share.
    pub link: Option<f64>,
    /// Mean bytes of an encoded sample. Required if `disk` or `link` is set.
    pub sample_bytes: Option<f64>,
}

impl Default for Hardware {
    /// One GPU on one host. Everything else stays as measured.
    fn default() -> Self {
        Self {
            workers: None,
            cores: None,
            prefetch: None,
            batch: None,
            step: None,
            resources: Vec::new(),
            stages: Vec::new(),
            gpus_per_host: 1,
            hosts: 1,
            disk: None,
            link: None,
            sample_bytes: None,
        }
    }
}

impl Hardware {
    /// Number of GPUs on all hosts.
    pub fn gpus(&self) -> f64 {
        f64::from(self.gpus_per_host) * f64::from(self.hosts)
    }

    /// Returns the model of one GPU's loader on this hardware.
    ///
    /// # Errors
    ///
    /// Fails if a named resource or stage is not in the model, if `disk` or `link` is set without
    /// `sample_bytes`, and if [`Model::check`] rejects the result.
    pub fn apply(&self, measured: &Model) -> Result<Model> {
        measured.check()?;
        for (key, count) in [("hosts", self.hosts), ("gpus_per_host", self.gpus_per_host)] {
            if count == 0 || count > 1_000_000 {
                let problem = format!("must be from 1 to 1000000, is {count}");
                return Err(Error::new(key, problem));
            }
        }
        let mut model = measured.clone();
        if let Some(workers) = self.workers {
            if workers == 0 || workers > 1_000_000 {
                let problem = format!("must be from 1 to 1000000, is {workers}");
                return Err(Error::new("workers", problem));
            }
            model.workers.resize(workers as usize, 1.0);
            model.starts.clear();
        }
        if let Some(prefetch) = self.prefetch {
            model.slots = prefetch.saturating_add(1);
        }
        self.change_step(&mut model);
        for (name, servers) in &self.resources {
            let found = model.resources.iter_mut().find(|it| it.name == *name);
            let Some(resource) = found else {
                let names = measured.resources.iter().map(|it| it.name.as_str());
                return Err(unknown("resource", name, names));
            };
            resource.servers = *servers;
        }
        for (name, factor) in &self.stages {
            positive(&format!("the factor of stage {name}"), *factor)?;
            if !measured.stages.iter().any(|stage| stage.name == *name) {
                let names = measured.stages.iter().map(|it| it.name.as_str());
                return Err(unknown("stage", name, names));
            }
            for stage in model.stages.iter_mut().filter(|stage| stage.name == *name) {
                stage.service.mean *= factor;
            }
        }
        self.divide_cores(&mut model);
        let gpus_per_host = f64::from(self.gpus_per_host);
        self.add_transfer(&mut model, "link", self.link, self.gpus())?;
        self.add_transfer(&mut model, "disk", self.disk, gpus_per_host)?;
        model.check()?;
        Ok(model)
    }

    fn change_step(&self, model: &mut Model) {
        if let Some(batch) = self.batch {
            model.consumer.step.mean *= f64::from(batch) / f64::from(model.batch);
            model.batch = batch;
        }
        if let Some(step) = self.step {
            model.consumer.step.mean = step;
        }
    }

    fn divide_cores(&self, model: &mut Model) {
        let host = self.cores.unwrap_or(model.cores);
        model.cores = host.div_ceil(self.gpus_per_host);
        let slower = f64::from(model.cores) * f64::from(self.gpus_per_host) / f64::from(host);
        let cores = f64::from(model.cores);
        model.contention = model.contention.filter(|_| self.cores.is_none()).map(|it| {
            // A core of the model now stands for less than a full core, so the available processor
            // time corresponds to more cores of the model.
            let part = it.available * slower / f64::from(self.gpus_per_host);
            Contention { available: part.min(cores), ..it }
        });
        if slower == 1.0 || host == 0 {
            return;
        }
        for stage in model.stages.iter_mut().filter(|stage| stage.on == On::Cpu) {
            stage.service.mean *= slower;
        }
        let consumer = &mut model.consumer;
        let host_part = consumer.host_share * slower;
        let whole = 1.0 - consumer.host_share + host_part;
        consumer.step.mean *= whole;
        consumer.host_share = host_part / whole;
    }

    /// Adds a transfer as the first stage of every sample. `shared_by` GPUs share its rate, in
    /// bytes per second.
    fn add_transfer(
        &self,
        model: &mut Model,
        name: &str,
        rate: Option<f64>,
        shared_by: f64,
    ) -> Result<()> {
        let Some(rate) = rate else { return Ok(()) };
        positive(&format!("the rate of the {name}"), rate)?;
        let Some(bytes) = self.sample_bytes else {
            let problem = format!(
                "is missing; give the mean bytes per sample, because the rate of the {name} is set"
            );
            return Err(Error::new("sample_bytes", problem));
        };
        positive("sample_bytes", bytes)?;
        let on = On::Resource(model.resources.len());
        let service = Service::constant(bytes * shared_by / rate);
        model.resources.push(Resource { name: name.into(), servers: 1 });
        model.stages.insert(0, Stage { name: name.into(), on, service, detached: false });
        Ok(())
    }
}

fn positive(what: &str, value: f64) -> Result<()> {
    if value.is_finite() && value > 0.0 {
        return Ok(());
    }
    Err(Error::new(what, format!("must be greater than 0, is {value}")))
}

fn unknown<'a>(what: &str, name: &str, names: impl Iterator<Item = &'a str>) -> Error {
    let names: Vec<&str> = names.collect();
    let has = if names.is_empty() { "none".into() } else { names.join(", ") };
    Error::new(
        format!("{what} {name}"),
        format!("the model has no {what} of this name; the names are: {has}"),
    )
}
