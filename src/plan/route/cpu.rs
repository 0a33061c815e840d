//! Route `cpu`: libjpeg-turbo or another format's decoder in the worker's thread, then an upload of
//! the window.

use super::{AssumedCost, DecoderMemory, RouteSpec};

pub(super) const SPEC: &RouteSpec = &RouteSpec {
    name: "cpu",
    former_name: None,
    row: "nvjpeg none",
    is_own: true,
    on_device: false,
    batches: false,
    uses_worker_cpu: true,
    reduces: true,
    accepts: |_, _| Ok(()),
    // The decoder's memory is counted as memory of the workers and of the upload buffers.
    memory: |_| DecoderMemory { device_bytes: 0, pinned_bytes: 0 },
    // libjpeg-turbo takes about 6 ns per pixel, more than half of it for entropy decoding.
    cost: AssumedCost { image: 50e-6, byte: 7e-9, pixel: 0.2e-9, window_pixel: 2.5e-9 },
};
