//! The GPU that is tested, and loaders on it.

use std::sync::Arc;

use feedwater::gpu::{Device, Runtime};
use feedwater::internals::gpu::nvjpeg;
use feedwater::internals::loader::offered;
use feedwater::loader::{DeviceChoice, LoaderBuilder};
use feedwater::op::Placement;
use feedwater::plan::Route;

use super::{Found, loaders, message};

/// A GPU on which kernels can run, because a compiler for them was found.
pub struct Gpu {
    /// The device.
    pub device: Arc<Device>,
    /// Version of the kernel compiler.
    pub compiler: (u32, u32),
    /// Whether nvJPEG is available. The error contains the reason if it is not.
    pub nvjpeg: Result<(), String>,
}

impl Gpu {
    /// Opens the first GPU. If the GPU cannot be used, returns the name of the check that fails
    /// (`gpu/device` or `gpu/compiler`), and the reason.
    pub fn find(runtime: &Runtime) -> Result<Self, (&'static str, String)> {
        let device = Device::open_with(0, runtime);
        let device = device.map_err(|error| ("gpu/device", error.to_string()))?;
        let compiler = feedwater::internals::gpu::compiler(&device)
            .map_err(|error| ("gpu/compiler", error.to_string()))?;
        let nvjpeg = nvjpeg::known_backends(&device).map(|_| ()).map_err(message);
        Ok(Self { device, compiler, nvjpeg })
    }

    /// Sets this GPU as the device of a loader.
    pub fn on(&self, builder: LoaderBuilder) -> LoaderBuilder {
        let choice = DeviceChoice::Gpu(self.device.ordinal());
        builder.device(choice).runtime(self.device.runtime())
    }

    /// Sets up a loader on this device that decodes on one route. Images that the route does not
    /// support fall back to the CPU.
    pub fn on_route(&self, builder: LoaderBuilder, route: Route) -> LoaderBuilder {
        // A loader with only the route `cpu` must not place decoding on the GPU.
        let place = if route.on_device() { Placement::Gpu } else { Placement::Cpu };
        self.on(builder).configure(|it| {
            it.decode.placement = place;
            it.decode.routes = vec![route];
        })
    }

    /// Creates the same loader as for the CPU checks, with all steps on this device.
    pub fn builder(&self) -> Result<LoaderBuilder, String> {
        Ok(self.on(loaders::builder()?))
    }

    /// Checks whether the route can decode images on this GPU. The error contains the reason if it
    /// cannot.
    pub fn offers(&self, route: Route) -> Result<(), String> {
        offered(&self.device, route).map_err(message).flatten()
    }

    /// Returns the version of nvJPEG, and known problems of this version.
    pub fn nvjpeg_version(&self) -> Found {
        let library =
            nvjpeg::Library::open(self.device.runtime(), Some(self.device.driver_version() / 1000));
        let library = library.map_err(message)?;
        let told = [vec![format!("nvJPEG {}", library.version())], library.warnings()];
        Ok(told.concat().join("; "))
    }

    /// Name and compute capability of the GPU.
    pub fn name(&self) -> String {
        let (major, minor) = self.device.capability();
        format!("{} (sm_{major}{minor})", self.device.name())
    }
}
