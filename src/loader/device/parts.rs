//! Shared state of a loader's device threads.

use std::sync::Arc;

use super::decoder::Decoders;
use super::{Clocks, ObjectPool, Router};
use crate::gpu::Upload;
use crate::loader::controls::Controls;
use crate::loader::sample::cache::Caches;
use crate::loader::sample::large::LargeImages;
use crate::measure::ThreadMeter;
use crate::plan::Plan;
use crate::source::Source;

/// Shared state of a loader's device threads, and the meter of one thread.
#[derive(Clone)]
pub(in crate::loader) struct Parts {
    pub source: Arc<dyn Source>,
    pub plan: Arc<Plan>,
    /// Meter of the thread that has this copy of the parts.
    pub meter: Arc<ThreadMeter>,
    pub caches: Arc<Caches>,
    pub controls: Arc<Controls>,
    pub large: Arc<LargeImages>,
    pub router: Arc<Router>,
    pub decoders: Arc<Decoders>,
    pub uploads: Arc<ObjectPool<Upload>>,
    pub clocks: Arc<Clocks>,
}
