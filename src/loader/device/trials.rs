//! Measures the memory of decode routes before a loader is planned for a device.

use std::sync::Arc;

use super::routes::backend;
use crate::error::{Error, Result};
use crate::footprint::{Available, bytes};
use crate::gpu::Device;
use crate::gpu::nvjpeg::{self, Backend, Bytes, Trial};
use crate::plan::{
    DecoderMemory, DeviceFacts, DevicePlan, Limits, MeasuredMemory, Plan, RoutePlan,
};

/// Maximum memory of a trial, as a multiple of the estimate. A route that needs more is not used.
const MOST_ESTIMATES: usize = 16;

/// Bytes that are planned in addition to the measured bytes.
const SLACK_BYTES: usize = 256 << 10;

/// Divisor of the measured bytes: `measured / SLACK_DIVISOR` bytes are planned in addition, because
/// images of other shapes have more blocks and longer rows.
const SLACK_DIVISOR: usize = 8;

/// Divisor of the free device memory: trials leave `free / RESERVE_DIVISOR` bytes to other
/// programs.
const RESERVE_DIVISOR: u64 = 8;

/// Decodes a trial image on each route of a plan, to measure memory that is only estimated in the
/// plan. Returns the facts of the device with the measured memory. The facts exclude routes that
/// need more memory than the device has or the limits allow.
///
/// # Errors
/// [`Error::Device`] if the device fails.
pub(in crate::loader) fn try_routes(
    device: &Arc<Device>,
    plan: &Plan,
    limits: &Limits,
    facts: DeviceFacts,
) -> Result<DeviceFacts> {
    let (DeviceFacts::Gpu { routes: Ok(mut offered), mut measured, mut dropped }, Some(on_device)) =
        (facts.clone(), &plan.device)
    else {
        return Ok(facts);
    };
    let (free, _) = device.memory_bytes()?;
    for planned in &on_device.routes {
        let Some(backend) = backend(planned.route) else { continue };
        let most = most_bytes(planned, on_device, limits, free - free / RESERVE_DIVISOR);
        match measure(device, backend, on_device, planned, most) {
            Ok(found) => measured.extend(found),
            Err(Error::Budget { .. }) => {
                offered.retain(|it| *it != planned.route);
                let pixels = on_device.image_pixels;
                let [on_card, pinned] = [most.device, most.pinned].map(|it| bytes(it as u64));
                let why = format!(
                    "to decode images of {pixels} pixels, nvJPEG needs more than {on_card} of \
                     device memory or more than {pinned} of page-locked memory. That is the \
                     maximum: what the device, the machine and the limits allow, or 16 times the \
                     estimate"
                );
                dropped.push((planned.route, why));
            }
            // The trial failed, so the estimated memory of this route is used. When the route is
            // opened, the same failure will occur again and be reported.
            Err(Error::Device { call, .. }) if call.starts_with("nvjpeg") => {}
            Err(error) => return Err(error),
        }
    }
    Ok(DeviceFacts::Gpu { routes: Ok(offered), measured, dropped })
}

/// Maximum memory that nvJPEG may take in a trial, without the trial's image and files.
fn most_bytes(planned: &RoutePlan, on_device: &DevicePlan, limits: &Limits, free: u64) -> Bytes {
    let bytes = |limit: Option<u64>| limit.map_or(usize::MAX, |it| it as usize);
    let available = Available::of_process().map(|it| it.bytes / 2);
    let device = bytes(limits.device_memory).min(free as usize);
    let pinned = [limits.pinned_memory, limits.host_memory, available].map(bytes);
    let pinned = pinned.into_iter().fold(usize::MAX, usize::min);
    // An image has three bytes per pixel. The fourth byte allows for padding at the end of rows.
    let (image, files) = (4 * on_device.image_pixels, 2 * on_device.encoded_bytes);
    Bytes {
        device: device.saturating_sub(image).min(MOST_ESTIMATES * planned.device_bytes),
        pinned: pinned.saturating_sub(files).min(MOST_ESTIMATES * planned.pinned_bytes),
    }
}

/// Measures the memory of a route. `None` if nvJPEG rejects the trial image.
fn measure(
    device: &Arc<Device>,
    backend: Backend,
    on_device: &DevicePlan,
    planned: &RoutePlan,
    most: Bytes,
) -> Result<Option<MeasuredMemory>> {
    let first = Bytes { device: planned.device_bytes, pinned: planned.pinned_bytes };
    let measure = |group| {
        let DevicePlan { image_pixels: pixels, encoded_bytes, .. } = *on_device;
        let trial = Trial { pixels, encoded_bytes, group };
        nvjpeg::measure_memory(device, backend, trial, first, most)
    };
    let Some(one) = measure(1)? else { return Ok(None) };
    let mut group = planned.group.max(1);
    // If a call with `group` images needs too much memory, a call with half as many may fit.
    let many = loop {
        match if group > 1 { measure(group) } else { Ok(Some(one)) } {
            Err(Error::Budget { .. }) => group /= 2,
            other => break other?,
        }
    };
    let Some(many) = many else { return Ok(None) };
    let others = (group - 1).max(1);
    let each = Bytes {
        device: many.peak.device.saturating_sub(one.peak.device).div_ceil(others),
        pinned: many.peak.pinned.saturating_sub(one.peak.pinned).div_ceil(others),
    };
    let more = |bytes: usize| bytes + bytes / SLACK_DIVISOR;
    let memory = |bytes: Bytes, slack: usize| DecoderMemory {
        device_bytes: more(bytes.device) + slack,
        pinned_bytes: more(bytes.pinned) + slack,
    };
    Ok(Some(MeasuredMemory {
        route: planned.route,
        group,
        lanes: one.lanes,
        one: memory(one.peak, SLACK_BYTES),
        each: memory(each, 0),
        buffers: memory(one.buffers, 0),
    }))
}
