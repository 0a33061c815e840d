//! nvJPEG with entropy decoding in the worker's thread.

use crate::gpu::nvjpeg::Backend;

use super::{Entry, has_backend, nvjpeg_page};

pub(super) const ENTRY: Entry = Entry {
    offered: |device| has_backend(device, Backend::Hybrid),
    open: |opening| nvjpeg_page::open(opening, Backend::Hybrid),
};
