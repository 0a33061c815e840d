//! All checks on the GPU.

use std::sync::Arc;

use feedwater::gpu::nvjpeg::{self, Backend};
use feedwater::gpu::{self, Device};
use feedwater::loader::{DeviceChoice, LoaderBuilder};
use feedwater::op::Placement;
use feedwater::plan::Route;

use super::super::CommandError;
use super::{Check, Found, Group, decode, files, hazard, kernels, life, loaders, memory, message};

/// A GPU that kernels can be compiled for.
pub struct Gpu {
    /// The device.
    pub device: Arc<Device>,
    compiler: (u32, u32),
    /// Decode routes that nvJPEG offers, or why it is unavailable.
    routes: Result<Vec<Offered>, String>,
}

/// A decode route, and why the device does not offer it if it does not.
type Offered = (Route, Result<(), String>);

impl Gpu {
    /// Opens the first GPU, or returns what is missing and why.
    pub fn find() -> Result<Self, (&'static str, String)> {
        let device = Device::open(0).map_err(|error| ("gpu/device", error.to_string()))?;
        let compiler =
            gpu::compiler(&device).map_err(|error| ("gpu/compiler", error.to_string()))?;
        let routes = nvjpeg::backends(&device).map_err(|error| error.to_string());
        let routes = routes.map(|all| all.into_iter().map(|(it, found)| (route(it), found)));
        Ok(Self { device, compiler, routes: routes.map(Iterator::collect) })
    }

    /// Whether the route can decode images, or why not.
    pub fn offers(&self, route: Route) -> Result<(), String> {
        match &self.routes {
            _ if route == Route::Cpu => Ok(()),
            Err(why) => Err(why.clone()),
            Ok(routes) => match routes.iter().find(|(it, _)| *it == route) {
                Some((_, found)) => found.clone(),
                None => Err("nvJPEG does not offer this route".into()),
            },
        }
    }

    /// Returns nvJPEG's version and its known problems.
    fn nvjpeg(&self) -> Found {
        let library = nvjpeg::Library::open(Some(self.device.driver_version() / 1000));
        let library = library.map_err(message)?;
        let told = [vec![format!("nvJPEG {}", library.version())], library.warnings()];
        Ok(told.concat().join("; "))
    }

    fn name(&self) -> String {
        let (major, minor) = self.device.capability();
        format!("{} (sm_{major}{minor})", self.device.name())
    }
}

/// Runs the checks of these groups one after another if there is a GPU. If it is required but missing, a check fails.
pub fn checks(
    found: &Result<Gpu, (&'static str, String)>,
    required: bool,
    wanted: impl Fn(Group) -> bool,
    mut tell: impl FnMut(Vec<Check>) -> Result<(), CommandError>,
) -> Result<(), CommandError> {
    let absent = |name: &str, why: &str| match required {
        true => Check::new(name, Err(why.into())),
        false => Check::skip(name, why),
    };
    let gpu = match found {
        Ok(gpu) => gpu,
        Err((name, why)) => return tell(vec![absent(name, why)]),
    };
    let (major, minor) = gpu.compiler;
    tell(vec![
        Check::new("gpu/device", Ok(gpu.name())),
        Check::new("gpu/compiler", Ok(format!("NVRTC {major}.{minor}"))),
        match &gpu.routes {
            Ok(_) => Check::new("gpu/nvjpeg", gpu.nvjpeg()),
            Err(why) => absent("gpu/nvjpeg", why),
        },
    ])?;
    if wanted(Group::Decode) {
        for checks in decode::checks(gpu) {
            tell(checks)?;
        }
    }
    if wanted(Group::Hazard) {
        tell(hazard::checks(gpu))?;
    }
    if wanted(Group::Files) {
        for checks in files::on_gpu(gpu) {
            tell(checks)?;
        }
    }
    if wanted(Group::Memory) {
        tell(memory::on_gpu(gpu))?;
    }
    if wanted(Group::Life) {
        tell(life::on_gpu())?;
    }
    // Last, because compiling hundreds of kernels takes minutes.
    if wanted(Group::Kernels) {
        tell(kernels::checks(gpu))?;
    }
    Ok(())
}

/// Creates the loader of the CPU checks with everything on the GPU.
pub fn builder() -> Result<LoaderBuilder, String> {
    Ok(loaders::builder()?.device(DeviceChoice::Gpu(0)))
}

/// Sets up a loader that decodes on one route; images that the route does not support fall back.
pub fn on_route(builder: LoaderBuilder, route: Route) -> LoaderBuilder {
    // With the route `cpu` alone, decoding is not placed on the GPU.
    let place = if route == Route::Cpu { Placement::Cpu } else { Placement::Gpu };
    builder.device(DeviceChoice::Gpu(0)).decode(place).routes([route])
}

fn route(backend: Backend) -> Route {
    match backend {
        Backend::Hardware => Route::NvjpegHardware,
        Backend::GpuHybrid => Route::NvjpegGpu,
        Backend::Hybrid => Route::NvjpegHybrid,
    }
}
