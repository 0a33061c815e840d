//! The device's half of a route: the decoder that writes images into pages. The plan's half is [`Route`].

use std::sync::Arc;

use super::router::{CpuThreads, Router, Submitted};
use super::{Gathered, ObjectPool, Pixels, Waiting};
use crate::error::{Error, Result};
use crate::gpu::nvjpeg::DecodeError;
use crate::gpu::{Device, DeviceBuffer, DevicePool, Event, PinnedPool, Stopwatch, Stream, Upload};
use crate::header::Header;
use crate::loader::balance::RouteQueue;
use crate::loader::sample::pipeline::{Planned, SamplePipeline};
use crate::loader::sample::policy::ProduceError;
use crate::measure::ThreadMeter;
use crate::plan::{DevicePlan, DeviceSplit, Route, RoutePlan, SamplePlan};

/// Decoder of one route, shared by all workers of a loader.
pub(super) trait DeviceDecoder: Send + Sync {
    /// The queue for the balancer: the route, the images decoded at once, and the most that may be submitted.
    fn queue(&self) -> RouteQueue;

    /// Bytes of an image's pixels in a page, or why this decoder rejects it.
    fn accepts(&self, image: &Request<'_>, sample: &SamplePlan) -> Result<usize, &'static str>;

    /// Checks that the decoding library supports the image, whose file was verified.
    fn supports(&self, _: &Request<'_>, _: &SamplePlan) -> Result<(), &'static str> {
        Ok(())
    }

    /// Submits an image that was accepted and planned by the worker's pipeline. `submitted` is its slot on the route.
    ///
    /// # Errors
    /// [`ProduceError`] if the sample fails or the loader ends; a rejection by this decoder is a [`Submission::Refused`].
    fn submit(
        &self,
        image: &Request<'_>,
        worker: &mut WorkerParts<'_>,
        submitted: Submitted,
    ) -> Result<Submission, ProduceError>;

    /// Number of freed buffers that allocations of the decoding library waited for, because their row was full.
    fn memory_waits(&self) -> u64 {
        0
    }

    /// Known problems of the decoding library, each with a remedy, as text for people.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Decodes many images in one call; the second part of the decoder of a route that [batches](Route::batches). Owned by
/// the thread that gathers images.
pub(in crate::loader) trait GroupDecoder: Send {
    /// Most calls at a time.
    fn calls(&self) -> usize;

    /// Images that are decoded at once: larger calls should have a multiple of them.
    fn lanes(&self) -> usize;

    /// Tells that an image was refused, alone in its call, because its file is not supported.
    fn refused(&self, waiting: &Waiting);

    /// Tells that an image was decoded.
    fn decoded(&self, waiting: &Waiting);

    /// Puts decoding of these images into the stream, as a span of `clock`. At most [`calls`](Self::calls) groups are not
    /// [finished](Self::finish).
    ///
    /// # Errors
    /// They apply to the whole group: nothing of it is in the stream, and there is nothing to finish.
    fn decode(
        &mut self,
        stream: &Stream,
        group: &[Waiting],
        clock: &Stopwatch,
    ) -> Result<(), DecodeError>;

    /// Blocks until the earliest call is over that is not finished. Returns for each of its images whether the decoder wrote it.
    fn finish(&mut self) -> Result<Vec<bool>>;
}

/// An image to decode.
pub(super) struct Request<'a> {
    pub planned: &'a Planned<'a>,
    /// Whether the file is in the page, where the device may read it.
    pub in_page: bool,
    /// The split at which its sample moves to the device.
    pub split: &'a DeviceSplit,
}

impl<'a> Request<'a> {
    pub fn header(&self) -> &'a Header {
        self.planned.header()
    }

    /// The file.
    pub fn bytes(&self) -> &'a [u8] {
        self.planned.bytes()
    }

    /// Checks that the file is in the page, for decoders that read it from the device or through a library.
    pub fn must_be_in_page(&self) -> Result<(), &'static str> {
        if self.in_page { Ok(()) } else { Err("its file does not fit into a page") }
    }
}

/// The worker's parts that a decoder uses for an image.
pub(super) struct WorkerParts<'a> {
    pub stream: &'a Stream,
    pub meter: &'a ThreadMeter,
    pub router: &'a Router,
    pub uploads: &'a ObjectPool<Upload>,
    /// The pipeline that has planned the sample.
    pub pipeline: &'a mut SamplePipeline,
    /// Stopwatch for spans of the stream; `None` on a route that batches.
    pub watch: Option<&'a Stopwatch>,
    pub target: Target<'a>,
}

impl<'a> WorkerParts<'a> {
    /// The stopwatch for spans of the stream.
    ///
    /// # Errors
    /// [`Error::Internal`] if workers do not drive this route.
    pub fn watch(&self, route: Route) -> Result<&'a Stopwatch> {
        self.watch.ok_or_else(|| Error::Internal {
            problem: format!("the route {} is not in the plan", route.name()),
        })
    }
}

/// The parts of a page that a decoder needs.
pub(super) struct Target<'a> {
    /// Destination of the pixels, writable once `read` is reached.
    pub pixels: &'a DeviceBuffer,
    /// To be recorded after the pixels are written.
    pub decoded: &'a Event,
    /// Reached when the kernel has read the previous pixels.
    pub read: &'a Event,
}

/// Result of submitting an image.
pub(super) enum Submission {
    /// Its pixels are ready when the page's `decoded` is reached.
    Running(Pixels),
    /// Its page goes to the thread that gathers groups; these will be its pixels.
    Gathered(Pixels, Gathered),
    /// Rejected for this reason: it falls back to the CPU.
    Refused(&'static str),
    /// The launcher has ended, and the loader ends.
    Stopped,
}

/// Arguments for opening a decoder.
pub(super) struct Opening<'a> {
    pub device: &'a Arc<Device>,
    /// The memory pools of the footprint; the decoder uses the route's row.
    pub device_pool: &'a DevicePool,
    pub pinned_pool: &'a PinnedPool,
    pub on_device: &'a DevicePlan,
    pub route: &'a RoutePlan,
    pub cpu_threads: CpuThreads,
}

/// An open decoder.
pub(super) struct Opened {
    pub decoder: Box<dyn DeviceDecoder>,
    /// The group decoder, for a route that batches.
    pub group: Option<Box<dyn GroupDecoder>>,
}

/// The decoders of the threads that gather images, each with its route.
pub(in crate::loader) type GroupDecoders = Vec<(Route, Box<dyn GroupDecoder>)>;

/// The decoders of a loader's routes.
pub(in crate::loader) struct Decoders(pub(super) Vec<Box<dyn DeviceDecoder>>);

impl Decoders {
    /// The decoder of a route, if the plan has it.
    pub(super) fn get(&self, route: Route) -> Option<&dyn DeviceDecoder> {
        self.0.iter().find(|it| it.queue().route == route).map(|it| &**it)
    }

    /// Number of freed buffers that allocations of the decoding libraries waited for, because their row was full.
    pub fn memory_waits(&self) -> u64 {
        self.0.iter().map(|it| it.memory_waits()).sum()
    }

    /// Known problems of the decoding libraries, without duplicates: routes may share a library.
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
