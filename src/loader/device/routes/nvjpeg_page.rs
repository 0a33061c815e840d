//! nvJPEG routes that decode single images in the worker's thread and stream, with entropy decoding
//! on the GPU or on the CPU.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::gpu::nvjpeg::{self, Backend, Jpeg, PageDecoder, Window};
use crate::loader::balance::RouteQueue;
use crate::loader::device::decoder::{
    DeviceDecoder, Opened, Opening, Request, Submission, WorkerParts,
};
use crate::loader::device::router::Submitted;
use crate::loader::device::{ObjectPool, Pixels};
use crate::loader::sample::policy::ProduceError;
use crate::measure::Stage;
use crate::plan::{Route, SamplePlan, rows};

/// One of nvJPEG's backends, with its decode states. An image occupies a decode state until the
/// device has finished the image.
struct NvjpegPage {
    route: Route,
    parallel: usize,
    states: usize,
    jpeg: Arc<Jpeg>,
    decoders: ObjectPool<PageDecoder>,
}

/// Opens a backend of nvJPEG with the plan's number of decode states.
pub(super) fn open(opening: &Opening<'_>, backend: Backend) -> Result<Opened> {
    let planned = opening.route;
    let jpeg = open_backend(opening, backend)?;
    let buffers = planned.buffers;
    let decoders = (0..planned.decoders)
        .map(|_| PageDecoder::new(&jpeg, buffers.device_bytes, buffers.pinned_bytes))
        .collect::<Result<Vec<_>>>()?;
    let parallel = match planned.route.uses_worker_cpu() {
        true => planned.decoders.min(opening.cpu_threads.beside),
        false => planned.decoders,
    };
    let decoder = NvjpegPage {
        route: planned.route,
        parallel,
        states: planned.decoders,
        jpeg,
        decoders: ObjectPool::new(decoders),
    };
    Ok(Opened { decoder: Box::new(decoder), group: None })
}

/// Opens nvJPEG with a backend and the route's memory in the pools.
pub(super) fn open_backend(opening: &Opening<'_>, backend: Backend) -> Result<Arc<Jpeg>> {
    let (device, pinned) = (opening.device_pool.clone(), opening.pinned_pool.clone());
    let row = rows::decoder(opening.route.route).into();
    Jpeg::open(opening.device, backend, &nvjpeg::Memory { device, pinned, row })
}

/// Description of the pixels that nvJPEG writes into a page.
pub(super) fn pixels(window: Window, sample: &SamplePlan) -> Pixels {
    let SamplePlan { stored, orientation, .. } = *sample;
    Pixels { window: window.decoded, stored, orientation, first: 0, planes: None }
}

impl DeviceDecoder for NvjpegPage {
    fn queue(&self) -> RouteQueue {
        RouteQueue { route: self.route, parallel: self.parallel, capacity: self.states }
    }

    fn accepts(&self, image: &Request<'_>, sample: &SamplePlan) -> Result<usize, &'static str> {
        image.must_be_in_page()?;
        self.route.takes(image.header(), sample.reduction)?;
        Ok(self.jpeg.window(image.header().size, sample.stored_window).bytes())
    }

    fn submit(
        &self,
        image: &Request<'_>,
        worker: &mut WorkerParts<'_>,
        submitted: Submitted,
    ) -> Result<Submission, ProduceError> {
        let (stream, target) = (worker.stream, &worker.target);
        let begin = worker.meter.begin(Stage::DeviceDecode);
        let idle = self.decoders.take_suited(|it| it.is_idle().unwrap_or(false));
        let mut decoder = idle.ok_or_else(|| Error::Internal {
            problem: format!("all decoders of the route {} are in use", self.route.name()),
        })?;
        let mut lap = worker.watch(self.route)?.lap()?;
        stream.wait(target.read)?;
        let sample = worker.pipeline.decoded();
        let wanted = sample.stored_window;
        let decoded =
            decoder.decode_measured(stream, image.bytes(), wanted, target.pixels, Some(&mut lap));
        self.decoders.put_back(decoder);
        worker.meter.add(Stage::DeviceDecode, begin, image.bytes().len() as u64);
        match decoded {
            Ok(window) => {
                target.decoded.record(stream)?;
                lap.stop(stream, 1)?;
                worker.router.track([submitted], stream)?;
                Ok(Submission::Running(pixels(window, sample)))
            }
            Err(error) => Ok(Submission::Refused(error.refusal()?)),
        }
    }

    fn memory_waits(&self) -> u64 {
        self.jpeg.memory_waits()
    }

    fn warnings(&self) -> Vec<String> {
        self.jpeg.library().warnings()
    }
}
