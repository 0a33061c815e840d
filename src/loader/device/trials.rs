//! Measures the memory of decode routes before a loader is planned for a device.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::gpu::Device;
use crate::gpu::nvjpeg::{self, Backend, Bytes, Trial};
use crate::plan::{
    DecoderMemory, DeviceFacts, DevicePlan, Limits, MeasuredMemory, Plan, RoutePlan,
};

use super::routes::backend;

/// Most memory of a trial relative to the estimate. A route that takes more is not used.
const MOST: usize = 16;

/// Bytes that are planned beyond the measured ones, and the share of the measured ones, as a divisor: images of other shapes have
/// more blocks and longer rows.
const SLACK_BYTES: usize = 256 << 10;
const SLACK_SHARE: usize = 8;

/// Decodes a trial image on each route of a plan whose memory is only estimated. Returns the facts of the device with the measured
/// memory, and without the routes that need more than the device has or the limits allow.
///
/// # Errors
/// [`Error::Device`] if the device fails.
pub(in crate::loader) fn try_routes(
    device: &Arc<Device>,
    plan: &Plan,
    limits: &Limits,
    facts: DeviceFacts,
) -> Result<DeviceFacts> {
    let (DeviceFacts::Gpu { nvjpeg: Ok(mut offered), mut measured, mut dropped }, Some(on_device)) =
        (facts.clone(), &plan.device)
    else {
        return Ok(facts);
    };
    let (free, _) = device.memory_bytes()?;
    for planned in &on_device.routes {
        let Some(backend) = backend(planned.route) else { continue };
        let most = most_bytes(planned, limits, free, 4 * on_device.image_pixels);
        match measure(device, backend, on_device, planned, most) {
            Ok(found) => measured.extend(found),
            Err(Error::Budget { needed, .. }) => {
                offered.retain(|it| *it != planned.route);
                let pixels = on_device.image_pixels;
                let [on_card, pinned] = [most.device, most.pinned].map(|it| it >> 20);
                let why = format!(
                    "nvJPEG needs more than {on_card} MiB of device memory or {pinned} MiB of page-locked memory to decode \
                     {pixels} pixels (it asked for {needed} bytes more)"
                );
                dropped.push((planned.route, why));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(DeviceFacts::Gpu { nvjpeg: Ok(offered), measured, dropped })
}

/// The most that nvJPEG may take in a trial. `pixels` are the bytes for the pixels of its image.
fn most_bytes(planned: &RoutePlan, limits: &Limits, free: u64, pixels: usize) -> Bytes {
    let bytes = |limit: Option<u64>| limit.map_or(usize::MAX, |it| it as usize);
    let device = bytes(limits.device_memory).min(free as usize).saturating_sub(pixels);
    let pinned = bytes(limits.pinned_memory).min(bytes(limits.host_memory));
    Bytes {
        device: device.min(MOST * planned.device_bytes),
        pinned: pinned.min(MOST * planned.pinned_bytes),
    }
}

/// `None` if nvJPEG rejects the trial image.
fn measure(
    device: &Arc<Device>,
    backend: Backend,
    on_device: &DevicePlan,
    planned: &RoutePlan,
    most: Bytes,
) -> Result<Option<MeasuredMemory>> {
    let first = Bytes { device: 2 * planned.device_bytes, pinned: 2 * planned.pinned_bytes };
    let measure = |group| {
        let DevicePlan { image_pixels: pixels, encoded_bytes, .. } = *on_device;
        let trial = Trial { pixels, encoded_bytes, group };
        nvjpeg::measure_memory(device, backend, trial, first, most)
    };
    let Some(one) = measure(1)? else { return Ok(None) };
    let group = on_device.hardware_group;
    let many = if planned.route.batches() && group > 1 { measure(group)? } else { None };
    let others = group.saturating_sub(1).max(1);
    let each = many.map_or(Bytes::default(), |many| Bytes {
        device: many.peak.device.saturating_sub(one.peak.device).div_ceil(others),
        pinned: many.peak.pinned.saturating_sub(one.peak.pinned).div_ceil(others),
    });
    let more = |bytes: usize| bytes + bytes / SLACK_SHARE;
    let memory = |bytes: Bytes, slack: usize| DecoderMemory {
        device_bytes: more(bytes.device) + slack,
        pinned_bytes: more(bytes.pinned) + slack,
    };
    Ok(Some(MeasuredMemory {
        route: planned.route,
        one: memory(one.peak, SLACK_BYTES),
        each: memory(each, 0),
        buffers: memory(one.buffers, 0),
    }))
}
