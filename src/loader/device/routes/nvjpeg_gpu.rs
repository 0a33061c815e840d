//! nvJPEG with entropy decoding on the GPU.

use crate::gpu::nvjpeg::Backend;

use super::{Entry, has_backend, nvjpeg_page};

pub(super) const ENTRY: Entry = Entry {
    offered: |device| has_backend(device, Backend::GpuHybrid),
    open: |opening| nvjpeg_page::open(opening, Backend::GpuHybrid),
};
