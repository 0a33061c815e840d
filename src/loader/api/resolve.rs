//! Resolves a builder before anything is started: finds the device and makes a plan for it.

use std::sync::Arc;
use std::thread::available_parallelism;

use super::builder::LoaderBuilder;
use super::look::Looks;
use crate::error::{Error, Result};
use crate::footprint::Available;
use crate::gpu::{self, Device, Runtime};
use crate::loader::device::{offered_routes, try_routes};
use crate::loader::sample::fields::check_fields;
use crate::plan::{DeviceChoice, DeviceFacts, DevicePick, Environment, Facts, Plan, Route};

/// Result of resolving a builder, before anything is started.
pub(in crate::loader) struct Resolved {
    pub plan: Plan,
    pub line: String,
    pub device: Option<Arc<Device>>,
}

impl LoaderBuilder {
    /// Resolves the plan and the device, and describes the device and the reason for it in a line
    /// of text.
    pub(in crate::loader) fn resolve(&self) -> Result<Resolved> {
        let found = self.find_device()?;
        let plan = self.make_plan(&found)?;
        let Found { device, line, .. } = found;
        let line = match (&device, plan.uses_gpu()) {
            (Some(_), false) => format!("cpu (every operator is placed on the cpu; found {line})"),
            _ => line,
        };
        Ok(Resolved { plan, line, device })
    }

    /// Makes the plan. If the requested GPU does not exist on this machine, makes the plan for a
    /// machine that has such a GPU.
    pub(in crate::loader) fn plan_anyway(&self) -> Result<Plan> {
        let choice = self.settings.device;
        let found = match self.find_device() {
            Err(error) if choice.needs_gpu() && !matches!(error, Error::Config(_)) => Found {
                device: None,
                facts: DeviceFacts::gpu(Ok(Route::all_on_device().collect())),
                pick: DevicePick::of(choice, 0, &Environment::of_process())?,
                line: String::new(),
            },
            found => found?,
        };
        self.make_plan(&found)
    }

    /// Makes the plan for a device. For a GPU, it first measures the memory of the decode routes.
    fn make_plan(&self, found: &Found) -> Result<Plan> {
        let mut settings = self.settings.clone();
        if let Some(storage) = self.source.storages().first() {
            settings.storage = storage.settings().clone();
        }
        check_fields(&*self.source, &settings.columns, self.chain.views())?;
        let mut facts = self.facts(found.facts.clone(), found.pick.clone());
        if let Some(device) = &found.device {
            // The memory that an image needs does not depend on limits, so it is measured without
            // limits.
            let mut unlimited = settings.clone();
            let limits = &mut unlimited.limits;
            (limits.device_memory, limits.pinned_memory, limits.host_memory) = (None, None, None);
            let estimated = Plan::new(&self.chain, &unlimited, &facts)?;
            facts.device = try_routes(device, &estimated, &settings.limits, facts.device)?;
        }
        let plan = |device: &DeviceFacts| {
            let facts = Facts { device: device.clone(), ..facts.clone() };
            Plan::new(&self.chain, &settings, &facts)
        };
        let mut device = facts.device.clone();
        loop {
            match plan(&device) {
                Err(Error::Config(error)) if error.key.starts_with("limits.") => {
                    // Drop routes only if a plan without any GPU route fits the limits.
                    let mut none = device.clone();
                    while none.drop_costliest(false, "") {}
                    match plan(&none) {
                        // Even a plan without GPU routes exceeds the limits. Return the error of
                        // that plan, because it names the smallest sufficient limit.
                        Err(Error::Config(least)) if least.key.starts_with("limits.") => {
                            return Err(Error::Config(least));
                        }
                        Err(_) => return Err(Error::Config(error)),
                        Ok(_) => {}
                    }
                    let pinned = error.key != "limits.device_memory";
                    device.drop_costliest(pinned, &format!("{} {}", error.key, error.problem));
                }
                other => return other,
            }
        }
    }

    fn facts(&self, device: DeviceFacts, pick: DevicePick) -> Facts {
        let looks = self.looks();
        let largest = self.source.largest_bytes().unwrap_or_else(|| looks.largest_bytes());
        let Looks { image, scanned, all } = looks;
        Facts {
            largest_bytes: largest,
            largest_with_fields: self.source.largest_with_fields(),
            image,
            scanned,
            scanned_all: all,
            trace_spans: self.watching.spans as u64,
            source_bytes: self.source.memory_bytes(),
            samples: self.source.len(),
            files: self.files(),
            classes: self.source.classes().len(),
            cores: available_parallelism().map_or(1, usize::from),
            environment: Environment::of_process(),
            available: Available::of_process(),
            remote: self.source.is_remote(),
            device,
            pick,
        }
    }

    pub(in crate::loader) fn looks(&self) -> Looks {
        Looks::at(&*self.source, &self.settings.limits, self.settings.decode.strict)
    }

    /// Number of files that have samples. 0 if the order does not depend on files.
    fn files(&self) -> u64 {
        if self.settings.loader.shuffle_window.is_none() {
            return 0;
        }
        let mut ends = self.source.file_ends();
        ends.dedup();
        ends.iter().filter(|&&end| end > 0).count() as u64
    }

    /// Finds the chosen device. `auto` falls back to the CPU if anything is missing, and the result
    /// has the reason.
    fn find_device(&self) -> Result<Found> {
        let choice = self.settings.device;
        let (device, pick) = match (open_device(choice, &self.runtime), choice) {
            (Ok(Some(found)), _) => found,
            (Ok(None), _) => return Ok(Found::cpu("device is cpu".into(), "device is cpu")),
            (Err(error), DeviceChoice::Auto) if !matches!(error, Error::Config(_)) => {
                let line = match &error {
                    // The full error, with the searched paths and the remedy, is too long for a
                    // line.
                    Error::Unavailable { what, .. } => {
                        format!("{what} is not available; feedwater doctor prints the reason")
                    }
                    _ => error.to_string(),
                };
                return Ok(Found::cpu(error.to_string(), &line));
            }
            (Err(error), _) => return Err(error),
        };
        let used_on = self.consumer.as_ref().map_or(device.ordinal(), |it| it.device().ordinal());
        if used_on != device.ordinal() {
            let problem = format!(
                "is {choice}, which is GPU {}, but the consumer's stream belongs to GPU \
                 {used_on}, where the batches are delivered; remove the setting device",
                device.ordinal()
            );
            return Err(Error::config("device", problem));
        }
        let allowed = &self.settings.decode.routes;
        let routes = offered_routes(&device, allowed)
            .map_err(|error| format!("{error}; the decode route feedwater does not need nvJPEG"));
        let (major, minor) = device.capability();
        let (number, name, why) = (device.ordinal(), device.name(), &pick.why);
        let line = format!("gpu {number}: {name} (sm_{major}{minor}), {why}");
        Ok(Found { device: Some(device), facts: DeviceFacts::gpu(routes), pick, line })
    }
}

/// Device that was found for a builder.
struct Found {
    pub device: Option<Arc<Device>>,
    pub facts: DeviceFacts,
    pub pick: DevicePick,
    /// One line of text about the device and the reason for it.
    pub line: String,
}

impl Found {
    fn cpu(why: String, line: &str) -> Self {
        let facts = DeviceFacts::None(why);
        Self { device: None, facts, pick: DevicePick::cpu(line), line: format!("cpu ({line})") }
    }
}

/// Opens the GPU of a choice and checks that kernels can be compiled for it. Returns the GPU, with
/// the reason for this choice. `None` for the CPU.
///
/// # Errors
///
/// [`Error::Config`] if the launcher's local rank has no GPU of its own. [`Error::Unavailable`] or
/// [`Error::Device`] if there is no usable GPU.
pub fn open_device(
    choice: DeviceChoice,
    runtime: &Runtime,
) -> Result<Option<(Arc<Device>, DevicePick)>> {
    if choice == DeviceChoice::Cpu {
        return Ok(None);
    }
    let visible = gpu::device_count(runtime)?;
    let pick = DevicePick::of(choice, visible, &Environment::of_process())?;
    let device = Device::open_with(pick.gpu.unwrap_or_default(), runtime)?;
    gpu::compiler(&device)?;
    Ok(Some((device, pick)))
}
