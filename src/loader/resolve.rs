//! Resolves a builder before anything is started: finds the device and makes the plan for it.

use std::sync::Arc;
use std::thread::available_parallelism;

use crate::error::{Error, Result};
use crate::footprint::Available;
use crate::gpu::{self, Device, Runtime};
use crate::plan::{DeviceFacts, Environment, Facts, Plan};

use super::builder::{DeviceChoice, LoaderBuilder};
use super::device::offered_routes;
use super::look::Looks;

/// Result of resolving a builder, before anything is started.
pub(super) struct Resolved {
    pub plan: Plan,
    pub line: String,
    pub device: Option<Arc<Device>>,
}

impl LoaderBuilder {
    /// Resolves the plan, one line on where it runs and why, and the device.
    pub(super) fn resolve(&self) -> Result<Resolved> {
        let (device, facts, line) = self.find_device()?;
        let plan = self.make_plan(facts)?;
        let line = match (&device, plan.uses_gpu()) {
            (Some(_), false) => format!("cpu (every operator is placed on the cpu; found {line})"),
            _ => line,
        };
        Ok(Resolved { plan, line, device })
    }

    pub(super) fn make_plan(&self, device: DeviceFacts) -> Result<Plan> {
        let mut settings = self.settings.clone();
        if let Some(storage) = self.source.storages().first() {
            settings.storage = storage.settings().clone();
        }
        Plan::new(&self.chain, &settings, &self.facts(device))
    }

    fn facts(&self, device: DeviceFacts) -> Facts {
        let looks = self.looks();
        let largest = self.source.largest_bytes().unwrap_or_else(|| looks.largest_bytes());
        let Looks { image, looked, all } = looks;
        Facts {
            largest_bytes: largest,
            image,
            looked,
            looked_at_all: all,
            trace_spans: self.watching.spans as u64,
            source_bytes: self.source.memory_bytes(),
            samples: self.source.len(),
            files: self.files(),
            cores: available_parallelism().map_or(1, usize::from),
            environment: Environment::of_process(),
            available: Available::of_process(),
            remote: self.source.is_remote(),
            device,
        }
    }

    pub(super) fn looks(&self) -> Looks {
        Looks::at(&*self.source, &self.settings.limits, self.settings.decode.strict)
    }

    /// Number of files that have samples, if the order depends on it, else 0.
    fn files(&self) -> u64 {
        if self.settings.loader.shuffle_window.is_none() {
            return 0;
        }
        let mut ends = self.source.file_ends();
        ends.dedup();
        ends.iter().filter(|&&end| end > 0).count() as u64
    }

    /// Finds the chosen device. `auto` falls back to the CPU if anything is missing, and returns the reason.
    pub(super) fn find_device(&self) -> Result<(Option<Arc<Device>>, DeviceFacts, String)> {
        let none =
            |why: String, line: String| Ok((None, DeviceFacts::None(why), format!("cpu ({line})")));
        let found = match self.device {
            DeviceChoice::Cpu => return none("device is cpu".into(), "device is cpu".into()),
            DeviceChoice::Auto => open_device(0, &self.runtime),
            DeviceChoice::Gpu(ordinal) => open_device(ordinal, &self.runtime),
        };
        let device = match (found, self.device) {
            (Ok(device), _) => device,
            (Err(error), DeviceChoice::Auto) => {
                let line = match &error {
                    // The full error, with the searched paths and the remedy, is too long for a line.
                    Error::Unavailable { what, .. } => {
                        format!("{what} is not available, see feedwater doctor")
                    }
                    _ => error.to_string(),
                };
                return none(error.to_string(), line);
            }
            (Err(error), _) => return Err(error),
        };
        let nvjpeg = offered_routes(&device).map_err(|error| error.to_string());
        let (major, minor) = device.capability();
        let line = format!("gpu {}: {} (sm_{major}{minor})", device.ordinal(), device.name());
        Ok((Some(device), DeviceFacts::Gpu { nvjpeg }, line))
    }
}

/// Opens a device for which kernels can be compiled.
fn open_device(ordinal: usize, runtime: &Runtime) -> Result<Arc<Device>> {
    let device = Device::open_with(ordinal, runtime)?;
    gpu::compiler(&device)?;
    Ok(device)
}
