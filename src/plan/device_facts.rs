//! Facts about the GPU that a plan depends on.

use super::{MeasuredMemory, Route};

/// Facts about the GPU that a plan depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[doc(hidden)]
pub enum DeviceFacts {
    /// There is no GPU, or it must not be used. Contains the reason.
    None(String),
    /// There is a GPU.
    Gpu {
        /// Routes that the GPU supports, or why it supports no allowed one. Contains
        /// `nvjpeg-hardware` only if the GPU has JPEG engines.
        routes: Result<Vec<Route>, String>,
        /// Measured memory of routes. The memory of other routes is estimated.
        measured: Vec<MeasuredMemory>,
        /// Routes that the GPU supports but that this plan cannot use, with the reason. They are
        /// removed from `routes`.
        dropped: Vec<(Route, String)>,
    },
}

impl DeviceFacts {
    /// A GPU whose routes have not been measured.
    pub fn gpu(routes: Result<Vec<Route>, String>) -> Self {
        DeviceFacts::Gpu { routes, measured: Vec::new(), dropped: Vec::new() }
    }

    /// Drops the route with the most measured memory: page-locked memory if `pinned`, otherwise
    /// device memory. Returns false if no route was measured.
    pub fn drop_costliest(&mut self, pinned: bool, why: &str) -> bool {
        let DeviceFacts::Gpu { routes: Ok(offered), measured, dropped } = self else {
            return false;
        };
        let cost = |it: &MeasuredMemory| match pinned {
            true => it.one.pinned_bytes,
            false => it.one.device_bytes,
        };
        let Some((_, route)) = measured.iter().map(|it| (cost(it), it.route)).max() else {
            return false;
        };
        measured.retain(|it| it.route != route);
        offered.retain(|it| *it != route);
        dropped.push((route, why.into()));
        true
    }
}

impl Default for DeviceFacts {
    fn default() -> Self {
        DeviceFacts::None("no GPU was searched for".into())
    }
}
