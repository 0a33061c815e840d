//! Route `nvjpeg-gpu`: nvJPEG's kernels for all steps, including entropy decoding.

use crate::header::FrameKind;

use super::nvjpeg::{MAX_SIDE, PINNED_SLACK_BYTES, check_entropy_decoding_on_gpu, decoded_bytes};
use super::{AssumedCost, DecoderMemory, RouteSpec};

pub(super) const SPEC: &RouteSpec = &RouteSpec {
    name: "nvjpeg-gpu",
    former_name: Some("cuda"),
    row: "nvjpeg cuda",
    is_own: false,
    on_device: true,
    batches: false,
    uses_worker_cpu: false,
    reduces: false,
    accepts: |header, _| {
        let jpeg = check_entropy_decoding_on_gpu(header, MAX_SIDE)?;
        if jpeg.frame == FrameKind::Baseline { Ok(()) } else { Err("extended sequential") }
    },
    // The file is copied to the device and its coefficients are decoded there.
    memory: |sizes| DecoderMemory {
        device_bytes: decoded_bytes(sizes.pixels) + sizes.encoded_bytes,
        pinned_bytes: sizes.encoded_bytes + PINNED_SLACK_BYTES,
    },
    cost: AssumedCost { image: 300e-6, byte: 2e-9, pixel: 2e-9, window_pixel: 0.2e-9 },
};
