//! nvJPEG's hardware route: many images per call of the GPU's JPEG engines.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::geometry::Size;
use crate::gpu::nvjpeg::{Backend, BatchDecoder, BatchJob, DecodeError, HostIdle, Jpeg};
use crate::gpu::{Stopwatch, Stream};
use crate::header::{JpegHeader, Sampling};
use crate::loader::balance::RouteQueue;
use crate::loader::device::decoder::{
    DeviceDecoder, GroupDecoder, Opened, Opening, Request, Submission, WorkerParts,
};
use crate::loader::device::router::Submitted;
use crate::loader::device::{Gathered, Waiting};
use crate::loader::policy::ProduceError;
use crate::plan::SamplePlan;

use super::nvjpeg_page::{open_backend, pixels};
use super::{Entry, has_backend};

/// The workers' side of the engines.
struct NvjpegHardware {
    queue: RouteQueue,
    jpeg: Arc<Jpeg>,
}

/// The engines' decoders, used in turn: one group is decoded while the next is gathered. Before an image goes to the
/// engines, the host has observed that the kernel has read the page's previous pixels.
struct Engines {
    /// Those of running calls first, in the order of their calls.
    decoders: VecDeque<BatchDecoder>,
    running: usize,
}

pub(super) const ENTRY: Entry =
    Entry { offered: |device| has_backend(device, Backend::Hardware), open };

/// Opens the engines with the plan's number of decoders.
fn open(opening: &Opening<'_>) -> Result<Opened> {
    let (planned, group) = (opening.route, opening.on_device.hardware_group);
    let jpeg = open_backend(opening, Backend::Hardware)?;
    let side = opening.on_device.image_pixels.isqrt() as u32;
    let decoders = (0..planned.decoders)
        .map(|_| BatchDecoder::new(&jpeg, group, Size::new(side, side)))
        .collect::<Result<_>>()?;
    let queue = RouteQueue {
        route: planned.route,
        parallel: group,
        capacity: group * (planned.decoders + 1),
    };
    let decoder = Box::new(NvjpegHardware { queue, jpeg });
    Ok(Opened { decoder, group: Some(Box::new(Engines { decoders, running: 0 })) })
}

impl DeviceDecoder for NvjpegHardware {
    fn queue(&self) -> RouteQueue {
        self.queue
    }

    fn accepts(&self, image: &Request<'_>, sample: &SamplePlan) -> Result<usize, &'static str> {
        let SamplePlan { reduction, stored_window, .. } = *sample;
        image.must_be_in_page()?;
        self.queue.route.takes(image.header, reduction)?;
        Ok(self.jpeg.reduced_window(image.header.size, reduction, stored_window).bytes())
    }

    fn submit(
        &self,
        image: &Request<'_>,
        worker: &mut WorkerParts<'_>,
        submitted: Submitted,
    ) -> Result<Submission, ProduceError> {
        let sample = &worker.pipeline.sample;
        let (size, wanted, reduction) = (image.header.size, sample.stored_window, sample.reduction);
        let window = self.jpeg.reduced_window(size, reduction, wanted);
        let len = image.bytes.len();
        let jpeg = image.header.jpeg.as_ref();
        let sampling = jpeg.map_or(Sampling::Other, JpegHeader::sampling);
        let gathered = Gathered { submitted, len, image: size, sampling, wanted, reduction };
        Ok(Submission::Gathered(pixels(window, sample), gathered))
    }

    fn memory_waits(&self) -> u64 {
        self.jpeg.memory_waits()
    }

    fn warnings(&self) -> Vec<String> {
        self.jpeg.library().warnings()
    }
}

impl GroupDecoder for Engines {
    fn calls(&self) -> usize {
        self.decoders.len()
    }

    fn decode(
        &mut self,
        stream: &Stream,
        group: &[Waiting],
        clock: &Stopwatch,
    ) -> Result<(), DecodeError> {
        let jobs = group.iter().map(|Waiting { page, gathered }| {
            Ok(BatchJob {
                bytes: page
                    .encoded
                    .as_deref()
                    .unwrap_or_default()
                    .get(..gathered.len)
                    .unwrap_or_default(),
                image: gathered.image,
                sampling: gathered.sampling,
                wanted: gathered.wanted,
                reduction: gathered.reduction,
                destination: HostIdle::wait(&page.pixels, &page.read)?,
            })
        });
        let jobs = jobs.collect::<Result<Vec<_>>>()?;
        let decoder = self.decoders.get_mut(self.running).ok_or_else(|| Error::Internal {
            problem: format!("{} calls of the engines run", self.running),
        })?;
        decoder.decode_measured(stream, &jobs, Some(clock.lap()?))?;
        self.running += 1;
        Ok(())
    }

    fn finish(&mut self) -> Result<Vec<bool>> {
        let running = self.running.checked_sub(1).zip(self.decoders.front_mut());
        let Some((others, decoder)) = running else { return Ok(Vec::new()) };
        let written = decoder.written()?;
        self.running = others;
        self.decoders.rotate_left(1);
        Ok(written)
    }
}
