//! Route `nvjpeg-hybrid`: nvJPEG with entropy decoding in the worker's thread.

use super::nvjpeg::{COEFFICIENT_BYTES, MAX_SIDE, PINNED_SLACK_BYTES, check, decoded_bytes};
use super::{AssumedCost, DecoderMemory, RouteSpec};

pub(super) const SPEC: &RouteSpec = &RouteSpec {
    name: "nvjpeg-hybrid",
    former_name: Some("host"),
    row: "nvjpeg host",
    is_own: false,
    on_device: true,
    batches: false,
    uses_worker_cpu: true,
    reduces: false,
    accepts: |header, _| check(header, MAX_SIDE).map(|_| ()),
    // Coefficients are decoded into page-locked memory and copied to the device.
    memory: |sizes| DecoderMemory {
        device_bytes: decoded_bytes(sizes.pixels),
        pinned_bytes: COEFFICIENT_BYTES * sizes.pixels + PINNED_SLACK_BYTES,
    },
    // The CPU part of nvJPEG is assumed to be as fast as libjpeg-turbo's entropy decoding.
    cost: AssumedCost { image: 100e-6, byte: 7e-9, pixel: 0.2e-9, window_pixel: 0.2e-9 },
};
