//! Decoders of all routes. The planning part of each route is listed in `plan/route.rs`.

use std::sync::Arc;

use super::decoder::{Opened, Opening};
use crate::error::Result;
use crate::gpu::Device;
use crate::gpu::nvjpeg::{self, Backend};
use crate::plan::Route;

mod nvjpeg_page;

macro_rules! decoders {
    ($($route:ident = $file:ident),+ $(,)?) => {
        $(mod $file;)+

        const fn entry(route: Route) -> Entry {
            match route {
                $(Route::$route => $file::ENTRY),+
            }
        }
    };
}

decoders! {
    NvjpegHardware = nvjpeg_hardware,
    Feedwater = feedwater,
    NvjpegGpu = nvjpeg_gpu,
    NvjpegHybrid = nvjpeg_hybrid,
    Cpu = cpu,
}

/// How to detect and open the decoder of one route.
struct Entry {
    /// nvJPEG's backend that decodes, if any.
    backend: Option<Backend>,
    open: fn(&Opening<'_>) -> Result<Opened>,
}

/// Opens the decoder of a route with the memory that the plan provides.
pub(super) fn open(opening: &Opening<'_>) -> Result<Opened> {
    (entry(opening.route.route).open)(opening)
}

/// Checks that a device supports the decoder of a route. The inner error is the reason why the
/// device does not.
///
/// # Errors
/// [`Error::Unavailable`](crate::Error::Unavailable) if a library is not installed,
/// [`Error::Device`](crate::Error::Device) if the device is lost.
pub fn offered(device: &Arc<Device>, route: Route) -> Result<Result<(), String>> {
    match backend(route) {
        Some(backend) => has_backend(device, backend),
        None => Ok(Ok(())),
    }
}

/// The backend of nvJPEG that a route uses, if any.
pub(super) fn backend(route: Route) -> Option<Backend> {
    entry(route).backend
}

/// The routes among `allowed` whose decoders a device supports. If there are none, the other routes
/// that it supports, which a user could allow.
///
/// # Errors
/// The first error of [`offered`], if it is the reason why no allowed route is supported.
pub(in crate::loader) fn offered_routes(
    device: &Arc<Device>,
    allowed: &[Route],
) -> Result<Vec<Route>> {
    let (mut routes, mut missing) = (Vec::new(), None);
    for route in Route::all_on_device().filter(|route| allowed.contains(route)) {
        match offered(device, route) {
            Ok(Ok(())) => routes.push(route),
            Ok(Err(_)) => {}
            Err(error) => missing = missing.or(Some(error)),
        }
    }
    match missing {
        _ if !routes.is_empty() => Ok(routes),
        Some(error) => Err(error),
        None => {
            let others = Route::all_on_device().filter(|route| !allowed.contains(route));
            Ok(others.filter(|route| matches!(offered(device, *route), Ok(Ok(())))).collect())
        }
    }
}

/// Checks that nvJPEG has a backend on a device. The inner error is the reason why nvJPEG does not.
fn has_backend(device: &Arc<Device>, backend: Backend) -> Result<Result<(), String>> {
    let found = nvjpeg::known_backends(device)?.into_iter().find(|(it, _)| *it == backend);
    Ok(found.map_or(Err("nvJPEG does not support it".into()), |(_, found)| found))
}
