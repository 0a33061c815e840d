//! A measured pipeline on other hardware, on paper.

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

use super::{Contention, Model, On, Resource, Service, Stage};

/// What is different; what is not given stays as it was measured. A model is the loader of one GPU, and so is what
/// [`apply`](Self::apply) makes; all GPUs together do [`gpus`](Self::gpus) times as much.
///
/// * What other programs took of the cores they take here too, but where other cores are given: those are the loaders' alone.
/// * A host's cores are divided among its GPUs' loaders. Where that leaves no whole number, the next greater number of
///   cores, each slower in proportion; so a loader never gets more processor time than there is.
/// * Resources are each GPU's own, measured ones too; what is shared is a core, the disk or the link.
/// * `disk` is shared by the GPUs of a host and `link` by all GPUs. Each becomes a resource with one server that
///   every sample holds for its bytes divided by this GPU's part of the rate, before everything else.
/// * A batch of another size takes the step a time that is in proportion to it, unless `step` is given as well.
/// * Workers that are added are as fast as measured ones; the last ones are taken away.
/// * Not in it: that GPUs wait for each other at the end of a step, and for the slowest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Hardware {
    /// Workers of each loader.
    pub workers: Option<u32>,
    /// Processors of a host.
    pub cores: Option<u32>,
    /// Batches ahead: slots - 1.
    pub prefetch: Option<u32>,
    /// Samples per batch.
    pub batch: Option<u32>,
    /// Seconds of a step.
    pub step: Option<f64>,
    /// Servers of resources, for each GPU, by name.
    pub resources: Vec<(String, u32)>,
    /// Stages whose times are multiplied by a factor, by name.
    pub stages: Vec<(String, f64)>,
    /// GPUs in each host.
    pub gpus_per_host: u32,
    /// Hosts.
    pub hosts: u32,
    /// Bytes per second of a host's disk.
    pub disk: Option<f64>,
    /// Bytes per second of the link or storage that all hosts share.
    pub link: Option<f64>,
    /// Mean bytes of an encoded sample; needed by `disk` and `link`.
    pub sample_bytes: Option<f64>,
}

impl Default for Hardware {
    /// One GPU, nothing different.
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
    /// All GPUs.
    pub fn gpus(&self) -> f64 {
        f64::from(self.gpus_per_host) * f64::from(self.hosts)
    }

    /// The loader of one GPU on this hardware.
    ///
    /// # Errors
    ///
    /// A resource or stage that the model does not have, a rate without the bytes of a sample, and what
    /// [`Model::check`] finds in the result.
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
            // In cores that are slower in proportion.
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

    /// A rate that `shared_by` GPUs share, as the first thing that a sample needs.
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
            let problem =
                format!("the rate of the {name} says nothing without the bytes of a sample");
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
    Error::new(format!("{what} {name}"), format!("the model has no such {what}; it has {has}"))
}
