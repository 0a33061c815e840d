//! The part of `bench-ops` that measures kernels on a device.

use std::sync::Arc;

use feedwater::Error;
use feedwater::gpu::{self};
use feedwater::internals::footprint::counted;
use feedwater::internals::gpu::DeviceReport;
use feedwater::internals::loader::open_device;
use feedwater::loader::DeviceChoice;
use feedwater::plan::Plan;
use serde::Serialize;

use super::super::{CommandError, doctor};
use super::kernels::{KernelRow, Kernels};
use super::made::Made;
use super::table::line;

/// Measurements on a device.
#[derive(Serialize)]
pub struct Device {
    pub ordinal: usize,
    pub name: String,
    pub capability: String,
    pub kernels: Vec<KernelRow>,
}

/// Measures kernels on a device. After the first error, nothing more is measured.
pub struct OnDevice<'a> {
    /// The device and its measurements, or the reason why no device is measured.
    found: Result<Found<'a>, String>,
    /// Whether the user required a GPU. If so, an error of the GPU is an error of the command.
    required: bool,
}

struct Found<'a> {
    device: Arc<gpu::Device>,
    text: String,
    kernels: Kernels<'a>,
}

impl<'a> OnDevice<'a> {
    /// Opens the chosen device.
    pub fn open(choice: DeviceChoice, plan: &'a Plan) -> Result<Self, CommandError> {
        let required = choice.needs_gpu();
        match Found::open(choice, plan) {
            Ok(Some(found)) => Ok(Self { found: Ok(found), required }),
            Ok(None) => Ok(Self { found: Err("the device is cpu".into()), required }),
            Err(error) if required => Err(error.into()),
            Err(error) => Ok(Self { found: Err(error.to_string()), required }),
        }
    }

    /// Measures the kernels with one more sample.
    pub fn add(&mut self, made: Made) -> Result<(), CommandError> {
        if let Ok(found) = &mut self.found
            && let Err(error) = found.kernels.add(made)
        {
            if self.required {
                return Err(error.into());
            }
            self.found = Err(error.to_string());
        }
        Ok(())
    }

    /// Returns a description of the device, and its measurements. Without measurements, returns the
    /// reason instead of the description.
    pub fn measured(self) -> Result<(String, Option<Device>), CommandError> {
        let (found, required) = (self.found, self.required);
        let measured = found.and_then(|found| {
            let Found { device, text, kernels } = found;
            let kernels = kernels.rows().map_err(|error| error.to_string())?;
            let (name, capability) = (device.name().to_owned(), capability(&device));
            Ok((text, Device { ordinal: device.ordinal(), name, capability, kernels }))
        });
        match measured {
            Ok((text, device)) => Ok((text, Some(device))),
            Err(why) if required => Err(CommandError::Failed(why)),
            Err(why) => Ok((format!("not measured: {why}"), None)),
        }
    }
}

impl<'a> Found<'a> {
    fn open(choice: DeviceChoice, plan: &'a Plan) -> Result<Option<Self>, Error> {
        let Some((device, _)) = open_device(choice, &gpu::Runtime::default())? else {
            return Ok(None);
        };
        let (free_bytes, total_bytes) = device.memory_bytes()?;
        let report = DeviceReport {
            ordinal: device.ordinal(),
            name: device.name().to_owned(),
            capability: device.capability(),
            free_bytes,
            total_bytes,
        };
        let kernels = Kernels::new(&device, plan)?;
        Ok(Some(Self { text: doctor::device_text(&Ok(report)), kernels, device }))
    }
}

impl Device {
    /// Formats the measurements as lines of text, after a line break.
    pub fn table(&self) -> String {
        let mut text = String::from(
            "\nkernels   one launch per group of images of one size; pixels are already on the device; device time\n",
        );
        let heads = ["ms/image", "megapixels", "ms/megapixel", "images/launch", "as the CPU's"];
        text += &line("kernel", heads.map(String::from));
        for row in &self.kernels {
            let cells = [
                micro(row.seconds),
                format!("{:.3}", row.megapixels),
                micro(row.seconds_per_megapixel),
                format!("{:.1}", row.images as f64 / row.launches as f64),
                format!("{} of {}", row.equal, row.images),
            ];
            text += &line(&row.name, cells);
        }
        text.trim_end().to_string()
    }

    /// Describes a kernel whose pixels differ from the CPU's. Returns `None` if there is no such
    /// kernel.
    pub fn problem(&self) -> Option<String> {
        let wrong = self.kernels.iter().find(|row| row.equal != row.images)?;
        Some(format!(
            "the kernel of {} computes pixels that differ from the CPU's for {} of {}; run \
             `feedwater selftest` to check all kernels",
            wrong.name,
            wrong.images - wrong.equal,
            counted(wrong.images, "image")
        ))
    }
}

/// Formats seconds as milliseconds with five decimals, because kernels take microseconds.
fn micro(seconds: f64) -> String {
    format!("{:.5}", 1e3 * seconds)
}

fn capability(device: &gpu::Device) -> String {
    let (major, minor) = device.capability();
    format!("{major}.{minor}")
}
