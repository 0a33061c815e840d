//! nvJPEG with entropy decoding on the GPU.

use crate::gpu::nvjpeg::Backend;

use super::{Entry, nvjpeg_page};

pub(super) const ENTRY: Entry = Entry {
    backend: Some(Backend::GpuHybrid),
    open: |opening| nvjpeg_page::open(opening, Backend::GpuHybrid),
};
