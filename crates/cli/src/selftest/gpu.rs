//! The GPU: what there is, and all checks of it.

use std::sync::Arc;

use feedwater::gpu::nvjpeg::{self, Backend};
use feedwater::gpu::{self, Device, Runtime};
use feedwater::loader::{DeviceChoice, LoaderBuilder};
use feedwater::op::Placement;
use feedwater::plan::Route;

use super::super::CommandError;
use super::{Check, Found, Group, decode, files, hazard, kernels, life, loaders, memory, words};

/// A GPU that kernels can be compiled for.
pub struct Gpu {
    /// The device.
    pub device: Arc<Device>,
    compiler: (u32, u32),
    /// The routes by which nvJPEG decodes, or why it does not.
    routes: Result<Vec<Offered>, String>,
}

/// A route, and whether this device has it, or why not.
type Offered = (Route, Result<(), String>);

impl Gpu {
    /// The first, or what is missing and why.
    pub fn find(runtime: &Runtime) -> Result<Self, (&'static str, String)> {
        let device = Device::open_with(0, runtime);
        let device = device.map_err(|error| ("gpu/device", error.to_string()))?;
        let compiler =
            gpu::compiler(&device).map_err(|error| ("gpu/compiler", error.to_string()))?;
        let routes = nvjpeg::backends(&device).map_err(|error| error.to_string());
        let routes = routes.map(|all| all.into_iter().map(|(it, found)| (route(it), found)));
        Ok(Self { device, compiler, routes: routes.map(Iterator::collect) })
    }

    /// A loader on this device.
    pub fn on(&self, builder: LoaderBuilder) -> LoaderBuilder {
        let choice = DeviceChoice::Gpu(self.device.ordinal());
        builder.device(choice).runtime(self.device.runtime())
    }

    /// A loader on this device whose images all go by one route, as far as it takes them.
    pub fn on_route(&self, builder: LoaderBuilder, route: Route) -> LoaderBuilder {
        // With the CPU's alone decoding is not on the GPU.
        let place = if route == Route::Cpu { Placement::Cpu } else { Placement::Gpu };
        self.on(builder).decode(place).routes([route])
    }

    /// The loader of the checks on the CPU, on this device with all that it can do.
    pub fn builder(&self) -> Result<LoaderBuilder, String> {
        Ok(self.on(loaders::builder()?))
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
    fn nvjpeg(&self) -> Found {
        let library =
            nvjpeg::Library::open(self.device.runtime(), Some(self.device.driver_version() / 1000));
        let library = library.map_err(words)?;
        let told = [vec![format!("nvJPEG {}", library.version())], library.warnings()];
        Ok(told.concat().join("; "))
    }

    fn name(&self) -> String {
        let (major, minor) = self.device.capability();
        format!("{} (sm_{major}{minor})", self.device.name())
    }
}

/// All checks of these groups, told one after another, where there is a GPU. What is missing is a failure where a GPU is required.
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
        tell(life::on_gpu(gpu))?;
    }
    // Last, since compiling hundreds of kernels takes minutes.
    if wanted(Group::Kernels) {
        tell(kernels::checks(gpu))?;
    }
    Ok(())
}

fn route(backend: Backend) -> Route {
    match backend {
        Backend::Hardware => Route::NvjpegHardware,
        Backend::GpuHybrid => Route::NvjpegGpu,
        Backend::Hybrid => Route::NvjpegHybrid,
    }
}
