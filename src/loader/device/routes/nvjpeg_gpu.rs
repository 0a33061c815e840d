//! nvJPEG with entropy decoding on the GPU.

use super::{Entry, nvjpeg_page};
use crate::gpu::nvjpeg::Backend;

pub(super) const ENTRY: Entry = Entry {
    backend: Some(Backend::GpuHybrid),
    open: |opening| nvjpeg_page::open(opening, Backend::GpuHybrid),
};
