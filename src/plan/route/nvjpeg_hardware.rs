//! Route `nvjpeg-hardware`: the GPU's JPEG engines, called through nvJPEG.

use crate::header::Sampling;

use super::nvjpeg::{
    DEVICE_SLACK_BYTES, PINNED_SLACK_BYTES, PLANE_BYTES, check_entropy_decoding_on_gpu,
};
use super::{AssumedCost, DecoderMemory, RouteSpec};

/// Maximum side of an image for the engines, in pixels.
const MAX_SIDE: u32 = 16_000;

pub(super) const SPEC: &RouteSpec = &RouteSpec {
    name: "nvjpeg-hardware",
    former_name: Some("hardware"),
    row: "nvjpeg hardware",
    is_own: false,
    on_device: true,
    batches: true,
    uses_worker_cpu: false,
    reduces: true,
    accepts: |header, _| {
        let jpeg = check_entropy_decoding_on_gpu(header, MAX_SIDE)?;
        match jpeg.sampling() {
            Sampling::S411 | Sampling::S410 => Err("4:1:1 or 4:1:0"),
            _ => Ok(()),
        }
    },
    // The files are copied to the device, and the engines write planes.
    memory: |sizes| {
        let files = sizes.group * sizes.encoded_bytes;
        DecoderMemory {
            device_bytes: files + sizes.group * PLANE_BYTES * sizes.pixels + DEVICE_SLACK_BYTES,
            pinned_bytes: files + PINNED_SLACK_BYTES,
        }
    },
    // An engine decodes about 300 megapixels per second.
    cost: AssumedCost { image: 100e-6, byte: 0.0, pixel: 3e-9, window_pixel: 0.5e-9 },
};
