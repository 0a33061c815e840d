//! nvJPEG with entropy decoding in the worker's thread.

use super::{Entry, nvjpeg_page};
use crate::gpu::nvjpeg::Backend;

pub(super) const ENTRY: Entry = Entry {
    backend: Some(Backend::Hybrid),
    open: |opening| nvjpeg_page::open(opening, Backend::Hybrid),
};
