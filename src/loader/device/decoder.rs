//! Device part of a route: the decoder that writes images into pages. [`Route`] is the part for
//! planning.

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
    /// Properties of the route's queue for the balancer.
    fn queue(&self) -> RouteQueue;

    /// Checks that this decoder accepts the image. Returns the size in bytes of the image's pixels
    /// in a page, or the reason for a rejection.
    fn accepts(&self, image: &Request<'_>, sample: &SamplePlan) -> Result<usize, &'static str>;

    /// Checks that the decoding library supports the image. The file was already verified.
    fn supports(&self, _: &Request<'_>, _: &SamplePlan) -> Result<(), &'static str> {
        Ok(())
    }

    /// Submits an image that the worker's pipeline has accepted and planned. `submitted` holds the
    /// image's place on the route.
    ///
    /// # Errors
    /// [`ProduceError`] if the sample fails or the loader ends. A rejection by this decoder is
    /// [`Submission::Refused`].
    fn submit(
        &self,
        image: &Request<'_>,
        worker: &mut WorkerParts<'_>,
        submitted: Submitted,
    ) -> Result<Submission, ProduceError>;

    /// Number of freed buffers that allocations of the decoding library had to wait for, because
    /// all memory planned for the library was in use.
    fn memory_waits(&self) -> u64 {
        0
    }

    /// Known problems of the decoding library, each with a remedy, for users.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Decoder of many images in one call, on a route that [batches](Route::batches). It belongs to the
/// gatherer thread of the route.
pub(in crate::loader) trait GroupDecoder: Send {
    /// Maximum number of concurrent calls.
    fn calls(&self) -> usize;

    /// Number of images that are decoded at the same time. A call with more images than this should
    /// have a multiple of this number.
    fn lanes(&self) -> usize;

    /// Whether a call may have images of different chroma subsamplings, and whether calls of
    /// several images are as reliable as calls of one image. Otherwise the images of a call have
    /// the same subsampling, and after an image has failed, calls have one image.
    fn trusts_groups(&self) -> bool;

    /// Memory of a call for its images, in bytes. A call has at least one image.
    fn room_bytes(&self) -> usize {
        usize::MAX
    }

    /// Memory that an image needs in a call, in bytes.
    fn image_bytes(&self, _: &Waiting) -> usize {
        0
    }

    /// Prepares calls in this stream, so that the first call allocates nothing.
    ///
    /// # Errors
    /// [`Error::Device`] if the driver fails.
    fn warm_up(&mut self, _: &Stream) -> Result<()> {
        Ok(())
    }

    /// Tells the decoder that the only image of a call was rejected because its file is not
    /// supported.
    fn refused(&self, waiting: &Waiting);

    /// Tells the decoder that an image was decoded: image number `number` of the call that
    /// [`finish`](Self::finish) has finished last.
    ///
    /// # Errors
    /// [`Error::Device`] if the device is lost.
    fn decoded(&mut self, waiting: &Waiting, number: usize) -> Result<()>;

    /// Tells the decoder that an image was not decoded: image number `number` of the call that
    /// [`finish`](Self::finish) has finished last.
    fn failed(&mut self, _waiting: &Waiting, _number: usize) {}

    /// Enqueues decoding of these images in the stream, and times it with `clock`. At most
    /// [`calls`](Self::calls) calls may be in progress, that is, not yet [finished](Self::finish).
    ///
    /// # Errors
    /// An error concerns the whole group. After an error, no work was enqueued, and there is no
    /// call to finish.
    fn decode(
        &mut self,
        stream: &Stream,
        group: &[Waiting],
        clock: &Stopwatch,
    ) -> Result<(), DecodeError>;

    /// Blocks until the earliest unfinished call is over. Returns for each image of the call
    /// whether the decoder wrote its pixels, or the reason why not.
    fn finish(&mut self) -> Result<Vec<Result<(), &'static str>>>;
}

/// An image to decode.
pub(super) struct Request<'a> {
    pub planned: &'a Planned<'a>,
    /// Whether the file is in the page, so the device can read it.
    pub in_page: bool,
    /// Split of the chain at which the sample moves to the device.
    pub split: &'a DeviceSplit,
}

impl<'a> Request<'a> {
    pub fn header(&self) -> &'a Header {
        self.planned.header()
    }

    /// The encoded file.
    pub fn bytes(&self) -> &'a [u8] {
        self.planned.bytes()
    }

    /// Checks that the file is in the page. Decoders need this if they read the file from the
    /// device or through a library.
    pub fn must_be_in_page(&self) -> Result<(), &'static str> {
        if self.in_page { Ok(()) } else { Err("its file does not fit into a page") }
    }
}

/// Parts of a worker that a decoder uses for an image.
pub(super) struct WorkerParts<'a> {
    pub stream: &'a Stream,
    pub meter: &'a ThreadMeter,
    pub router: &'a Router,
    pub uploads: &'a ObjectPool<Upload>,
    /// Pipeline that planned the sample.
    pub pipeline: &'a mut SamplePipeline,
    /// Stopwatch for spans (timed work) in the stream. `None` on a route that decodes several
    /// images per call.
    pub watch: Option<&'a Stopwatch>,
    pub target: Target<'a>,
}

impl<'a> WorkerParts<'a> {
    /// Returns the stopwatch for spans of the stream.
    ///
    /// # Errors
    /// [`Error::Internal`] if the route has no stopwatch, because it decodes several images per
    /// call.
    pub fn watch(&self, route: Route) -> Result<&'a Stopwatch> {
        self.watch.ok_or_else(|| Error::Internal {
            problem: format!(
                "the route {} decodes several images per call, so it has no stopwatch of a worker",
                route.name()
            ),
        })
    }
}

/// Parts of a page that a decoder needs.
#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    /// Destination of the pixels. May be written after `read` is reached.
    pub pixels: &'a DeviceBuffer,
    /// Event to record after the pixels are written.
    pub decoded: &'a Event,
    /// Event that is reached when the kernel has read the previous pixels.
    pub read: &'a Event,
}

/// Result of submitting an image.
pub(super) enum Submission {
    /// The image is being decoded. Its pixels are ready when the page's `decoded` is reached.
    Running(Pixels),
    /// The page is passed to the gatherer thread. The first value describes the pixels that the
    /// page will contain.
    Gathered(Pixels, Gathered),
    /// The image was rejected for this reason, and falls back to the CPU.
    Refused(&'static str),
    /// The launcher has ended, so the loader ends.
    Stopped,
}

/// Arguments for opening a decoder.
pub(super) struct Opening<'a> {
    pub device: &'a Arc<Device>,
    /// Pool of the planned device memory. The decoder uses the part that is planned for its route.
    pub device_pool: &'a DevicePool,
    pub pinned_pool: &'a PinnedPool,
    pub on_device: &'a DevicePlan,
    pub route: &'a RoutePlan,
    pub cpu_threads: CpuThreads,
}

/// An open decoder.
pub(super) struct Opened {
    pub decoder: Box<dyn DeviceDecoder>,
    /// The group decoder, if the route decodes several images per call.
    pub group: Option<Box<dyn GroupDecoder>>,
}

/// Group decoders of the gatherer threads, each with its route.
pub(in crate::loader) type GroupDecoders = Vec<(Route, Box<dyn GroupDecoder>)>;

/// Decoders of a loader's routes.
pub(in crate::loader) struct Decoders(pub(super) Vec<Box<dyn DeviceDecoder>>);

impl Decoders {
    /// Returns the decoder of a route, if the plan has the route.
    pub(super) fn get(&self, route: Route) -> Option<&dyn DeviceDecoder> {
        self.0.iter().find(|it| it.queue().route == route).map(|it| &**it)
    }

    /// Number of freed buffers that allocations of the decoding libraries had to wait for, because
    /// all memory planned for the libraries was in use.
    pub fn memory_waits(&self) -> u64 {
        self.0.iter().map(|it| it.memory_waits()).sum()
    }

    /// Known problems of the decoding libraries, without duplicates, because routes may share a
    /// library.
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
