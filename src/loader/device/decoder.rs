//! The device's half of a route: what decodes images into pages. The plan's half is [`Route`].

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::gpu::nvjpeg::DecodeError;
use crate::gpu::{Device, DeviceBuffer, DevicePool, Event, PinnedPool, Stopwatch, Stream, Upload};
use crate::header::Header;
use crate::loader::balance::RouteQueue;
use crate::loader::pipeline::SamplePipeline;
use crate::loader::policy::ProduceError;
use crate::measure::ThreadMeter;
use crate::plan::{DevicePlan, DeviceSplit, Route, RoutePlan, SamplePlan};

use super::router::{CpuThreads, Router, Submitted};
use super::{Gathered, ObjectPool, Pixels, Waiting};

/// Decodes images by one route. All workers of a loader share it.
pub(super) trait DeviceDecoder: Send + Sync {
    /// What the balancer must know: the route, how many images are worked on at once, and how many may be submitted.
    fn queue(&self) -> RouteQueue;

    /// Bytes that an image's pixels take in a page, or why it is not decoded here.
    fn accepts(&self, image: &Request<'_>, sample: &SamplePlan) -> Result<usize, &'static str>;

    /// Submits an image that was accepted and planned by the worker's pipeline. `submitted` is its place on the route.
    ///
    /// # Errors
    /// [`ProduceError`] where the sample is at fault or the loader ends; a refusal of this decoder is a [`Submission::Refused`].
    fn submit(
        &self,
        image: &Request<'_>,
        worker: &mut WorkerParts<'_>,
        submitted: Submitted,
    ) -> Result<Submission, ProduceError>;

    /// What is known to be wrong with the library that decodes, with the way out, for people.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Decodes many images in one call; the other part of the decoder of a route that [batches](Route::batches). It belongs to
/// the thread that gathers them.
pub(in crate::loader) trait GroupDecoder: Send {
    /// Waits on the host until the next call would not wait.
    fn wait(&mut self) -> Result<()>;

    /// Puts decoding of these images into the stream, as a span of `clock`. [`wait`](Self::wait) comes first.
    ///
    /// # Errors
    /// They hold for the whole group: nothing of it is in the stream.
    fn decode(
        &mut self,
        stream: &Stream,
        group: &[Waiting],
        clock: &Stopwatch,
    ) -> Result<(), DecodeError>;
}

/// An image that is to be decoded.
pub(super) struct Request<'a> {
    pub header: &'a Header,
    /// The file.
    pub bytes: &'a [u8],
    /// Whether it lies in the page, where the device may read it.
    pub in_page: bool,
    /// Where its sample goes over to the device.
    pub split: &'a DeviceSplit,
}

impl Request<'_> {
    /// For decoders that read the file from the device, or let a library do so.
    pub fn must_be_in_page(&self) -> Result<(), &'static str> {
        if self.in_page { Ok(()) } else { Err("its file does not fit into a page") }
    }
}

/// What a worker lends a decoder for an image.
pub(super) struct WorkerParts<'a> {
    pub stream: &'a Stream,
    pub meter: &'a ThreadMeter,
    pub router: &'a Router,
    pub uploads: &'a ObjectPool<Upload>,
    /// Has planned the sample.
    pub pipeline: &'a mut SamplePipeline,
    /// What spans of the stream are timed by; `None` on a route that batches.
    pub watch: Option<&'a Stopwatch>,
    pub target: Target<'a>,
}

impl<'a> WorkerParts<'a> {
    /// What spans of the stream are timed by.
    ///
    /// # Errors
    /// [`Error::Internal`] where the route is none that workers drive.
    pub fn watch(&self, route: Route) -> Result<&'a Stopwatch> {
        self.watch.ok_or_else(|| Error::Internal {
            problem: format!("the route {} is not in the plan", route.name()),
        })
    }
}

/// The parts of a page that a decoder needs.
pub(super) struct Target<'a> {
    /// Where the pixels go, once `read` is reached.
    pub pixels: &'a DeviceBuffer,
    /// To be recorded behind what writes them.
    pub decoded: &'a Event,
    /// Reached when the kernel has read those that were there before.
    pub read: &'a Event,
}

/// What became of an image that was submitted.
pub(super) enum Submission {
    /// Its pixels are there when the page's `decoded` is reached.
    Running(Pixels),
    /// Its page goes to the thread that gathers groups, and these will be its pixels.
    Gathered(Pixels, Gathered),
    /// The decoder refuses it, for this reason: it goes to the CPU.
    Refused(&'static str),
    /// The launcher is gone, and the loader ends.
    Stopped,
}

/// What a decoder is opened with.
pub(super) struct Opening<'a> {
    pub device: &'a Arc<Device>,
    /// The memory that the footprint names, of which the route's row is the decoder's.
    pub device_pool: &'a DevicePool,
    pub pinned_pool: &'a PinnedPool,
    pub on_device: &'a DevicePlan,
    pub route: &'a RoutePlan,
    pub cpu_threads: CpuThreads,
}

/// A decoder that is open.
pub(super) struct Opened {
    pub decoder: Box<dyn DeviceDecoder>,
    /// Of a route that batches.
    pub group: Option<Box<dyn GroupDecoder>>,
}

/// The decoders of the threads that gather images, each with its route.
pub(in crate::loader) type GroupDecoders = Vec<(Route, Box<dyn GroupDecoder>)>;

/// The decoders of a loader's routes.
pub(in crate::loader) struct Decoders(pub(super) Vec<Box<dyn DeviceDecoder>>);

impl Decoders {
    /// That of a route, where the plan has it.
    pub(super) fn get(&self, route: Route) -> Option<&dyn DeviceDecoder> {
        self.0.iter().find(|it| it.queue().route == route).map(|it| &**it)
    }

    /// What is known to be wrong with the libraries that decode, each line once: routes may share a library.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        for warning in self.0.iter().flat_map(|it| it.warnings()) {
            if !warnings.contains(&warning) {
                warnings.push(warning);
            }
        }
        warnings
    }
}
