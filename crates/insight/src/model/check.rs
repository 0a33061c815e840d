//! Rejects models that cannot be simulated.

use crate::text::counted;
use crate::{Error, Result};

use super::{Contention, Model, On, Service};

/// Largest accepted count. A larger count is certainly a mistake.
const MAX_COUNT: u32 = 1_000_000;
/// Largest accepted time in seconds (thirty years), and largest accepted factor. Larger values are
/// certainly mistakes.
const MAX_TIME: f64 = 1e9;
/// Largest number of quantiles of one service time.
const MAX_QUANTILES: usize = 4096;
const MAX_STAGES: usize = 1000;

impl Model {
    /// Checks that the model can be simulated.
    ///
    /// # Errors
    ///
    /// Fails with the JSON path of the invalid field and a description of the problem.
    pub fn check(&self) -> Result<()> {
        count("model.batch", self.batch)?;
        count("model.slots", self.slots)?;
        count("model.cores", self.cores)?;
        if let Some(Contention { speed, available }) = self.contention {
            up_to("model.contention.speed", speed, 1.0)?;
            up_to("model.contention.available", available, f64::from(self.cores))?;
        }
        if let Some(pages) = self.pages {
            count("model.pages", pages)?;
        }
        let workers = u32::try_from(self.workers.len()).unwrap_or(u32::MAX);
        count("model.workers", workers)?;
        for (at, &slowness) in self.workers.iter().enumerate() {
            let key = || format!("model.workers[{at}]");
            time(key, slowness)?;
            if slowness == 0.0 {
                return Err(Error::new(key(), "must be greater than 0; 1 means as measured"));
            }
        }
        if !self.starts.is_empty() && self.starts.len() != self.workers.len() {
            let (starts, workers) = (self.starts.len(), self.workers.len());
            let problem = format!(
                "has {}, but the model has {}; give one entry per worker, or no entry",
                counted(starts, "entry"),
                counted(workers, "worker")
            );
            return Err(Error::new("model.starts", problem));
        }
        for (at, &start) in self.starts.iter().enumerate() {
            time(|| format!("model.starts[{at}]"), start)?;
        }
        for (at, resource) in self.resources.iter().enumerate() {
            count(&format!("model.resources[{at}].servers"), resource.servers)?;
        }
        self.check_stages()?;
        time(|| "model.per_batch".into(), self.per_batch)?;
        service("model.consumer.step", &self.consumer.step)?;
        let share = self.consumer.host_share;
        if !(0.0..=1.0).contains(&share) {
            let problem = format!("must be from 0 to 1, is {share}");
            return Err(Error::new("model.consumer.host_share", problem));
        }
        let stages: f64 = self.stages.iter().map(|stage| stage.service.mean).sum();
        if stages + self.per_batch + self.consumer.step.mean <= 0.0 {
            let problem = "no stage and no step takes any time: set the mean of one of them";
            return Err(Error::new("model", problem));
        }
        Ok(())
    }

    fn check_stages(&self) -> Result<()> {
        let len = self.stages.len();
        if len == 0 || len > MAX_STAGES {
            let problem = format!("has {len} entries, but must have 1 to {MAX_STAGES}");
            return Err(Error::new("model.stages", problem));
        }
        for (at, stage) in self.stages.iter().enumerate() {
            let key = format!("model.stages[{at}]");
            service(&format!("{key}.service"), &stage.service)?;
            if let On::Resource(index) = stage.on
                && index >= self.resources.len()
            {
                let len = self.resources.len();
                let problem = format!(
                    "names resource {index}, which does not exist: model.resources has {len} \
                     entries"
                );
                return Err(Error::new(format!("{key}.on"), problem));
            }
            if at == 0 && stage.detached {
                let problem =
                    "the first stage cannot be detached: a worker must do at least one stage";
                return Err(Error::new(format!("{key}.detached"), problem));
            }
            if at > 0 && !stage.detached && self.stages[at - 1].detached {
                let problem = "must be true, because the stage before is detached";
                return Err(Error::new(format!("{key}.detached"), problem));
            }
        }
        Ok(())
    }
}

fn count(key: &str, value: u32) -> Result<()> {
    if value == 0 || value > MAX_COUNT {
        return Err(Error::new(key, format!("must be from 1 to {MAX_COUNT}, is {value}")));
    }
    Ok(())
}

fn up_to(key: &str, value: f64, most: f64) -> Result<()> {
    if !(value > 0.0 && value <= most) {
        return Err(Error::new(key, format!("must be above 0 and up to {most}, is {value}")));
    }
    Ok(())
}

fn time(key: impl Fn() -> String, value: f64) -> Result<()> {
    if !(0.0..=MAX_TIME).contains(&value) {
        return Err(Error::new(key(), format!("must be from 0 to {MAX_TIME:e}, is {value}")));
    }
    Ok(())
}

fn service(key: &str, service: &Service) -> Result<()> {
    time(|| format!("{key}.mean"), service.mean)?;
    let quantiles = &service.quantiles;
    if quantiles.len() > MAX_QUANTILES {
        let problem =
            format!("has {} values; at most {MAX_QUANTILES} are allowed", quantiles.len());
        return Err(Error::new(format!("{key}.quantiles"), problem));
    }
    for (at, &value) in quantiles.iter().enumerate() {
        time(|| format!("{key}.quantiles[{at}]"), value)?;
    }
    let mean = quantiles.iter().sum::<f64>() / quantiles.len().max(1) as f64;
    if !quantiles.is_empty() && !(0.99..=1.01).contains(&mean) {
        let problem = format!(
            "have the mean {mean}, but quantiles are multiples of the stage's mean time, so their \
             mean must be 1"
        );
        return Err(Error::new(format!("{key}.quantiles"), problem));
    }
    Ok(())
}
