//! The GPU: what there is, and loaders on it.

use std::sync::Arc;

use feedwater::gpu::nvjpeg::{self, Backend};
use feedwater::gpu::{self, Device};
use feedwater::loader::{DeviceChoice, LoaderBuilder};
use feedwater::op::Placement;
use feedwater::plan::Route;

use super::{Found, loaders, words};

/// A GPU that kernels can be compiled for.
pub struct Gpu {
    /// The device.
    pub device: Arc<Device>,
    /// The version of its compiler.
    pub compiler: (u32, u32),
    /// The routes by which nvJPEG decodes, or why it does not.
    pub routes: Result<Vec<Offered>, String>,
}

/// A route, and whether this device has it, or why not.
pub type Offered = (Route, Result<(), String>);

impl Gpu {
    /// The first, or what is missing and why.
    pub fn find() -> Result<Self, (&'static str, String)> {
        let device = Device::open(0).map_err(|error| ("gpu/device", error.to_string()))?;
        let compiler =
            gpu::compiler(&device).map_err(|error| ("gpu/compiler", error.to_string()))?;
        let routes = nvjpeg::backends(&device).map_err(|error| error.to_string());
        let routes = routes.map(|all| all.into_iter().map(|(it, found)| (route(it), found)));
        Ok(Self { device, compiler, routes: routes.map(Iterator::collect) })
    }

    /// Whether images can be decoded by a route, or why not.
    pub fn offers(&self, route: Route) -> Result<(), String> {
        match &self.routes {
            _ if route == Route::Cpu => Ok(()),
            Err(why) => Err(why.clone()),
            Ok(routes) => match routes.iter().find(|(it, _)| *it == route) {
                Some((_, found)) => found.clone(),
                None => Err("nvJPEG does not have it".into()),
            },
        }
    }

    /// Its version, and what is known to be wrong with it.
    pub fn nvjpeg(&self) -> Found {
        let library = nvjpeg::Library::open(Some(self.device.driver_version() / 1000));
        let library = library.map_err(words)?;
        let told = [vec![format!("nvJPEG {}", library.version())], library.warnings()];
        Ok(told.concat().join("; "))
    }

    /// Its name and generation.
    pub fn name(&self) -> String {
        let (major, minor) = self.device.capability();
        format!("{} (sm_{major}{minor})", self.device.name())
    }
}

/// The loader of the checks on the CPU, on the GPU with all that it can do.
pub fn builder() -> Result<LoaderBuilder, String> {
    Ok(loaders::builder()?.device(DeviceChoice::Gpu(0)))
}

/// A loader whose images all go by one route, as far as it takes them.
pub fn on_route(builder: LoaderBuilder, route: Route) -> LoaderBuilder {
    // With the CPU's alone decoding is not on the GPU.
    let place = if route == Route::Cpu { Placement::Cpu } else { Placement::Gpu };
    builder.device(DeviceChoice::Gpu(0)).decode(place).routes([route])
}

fn route(backend: Backend) -> Route {
    match backend {
        Backend::Hardware => Route::Hardware,
        Backend::Cuda => Route::Cuda,
        Backend::Host => Route::Host,
    }
}
