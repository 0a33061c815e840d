//! Route `cpu`: the worker decodes and runs the first operators on the CPU, and uploads the result.

use std::time::Instant;

use super::Entry;
use crate::error::Result;
use crate::geometry::{Orientation, Roi, Size};
use crate::loader::balance::RouteQueue;
use crate::loader::device::Pixels;
use crate::loader::device::decoder::{
    DeviceDecoder, Opened, Opening, Request, Submission, WorkerParts,
};
use crate::loader::device::router::Submitted;
use crate::loader::sample::policy::ProduceError;
use crate::measure::Stage;
use crate::plan::{Route, SamplePlan};

/// The workers' own decoders, used by at most `threads` workers at a time.
struct Cpu {
    threads: usize,
}

pub(super) const ENTRY: Entry = Entry { backend: None, open };

fn open(opening: &Opening<'_>) -> Result<Opened> {
    let decoder = Box::new(Cpu { threads: opening.cpu_threads.alone });
    Ok(Opened { decoder, group: None })
}

impl DeviceDecoder for Cpu {
    fn queue(&self) -> RouteQueue {
        RouteQueue { route: Route::Cpu, parallel: self.threads, capacity: self.threads }
    }

    fn accepts(&self, image: &Request<'_>, sample: &SamplePlan) -> Result<usize, &'static str> {
        Ok(image.split.window_bytes(upright_window(sample, image.split.first)))
    }

    fn submit(
        &self,
        image: &Request<'_>,
        worker: &mut WorkerParts<'_>,
        submitted: Submitted,
    ) -> Result<Submission, ProduceError> {
        let (stream, first) = (worker.stream, image.split.first);
        let window = upright_window(worker.pipeline.decoded(), first);
        let watch = worker.watch(Route::Cpu)?;
        // `admit` does not wait here, because the worker reserved the memory before it took its
        // place on the route.
        let admitted = worker.pipeline.admit(image.planned)?;
        let pixels = worker.pipeline.prefix(admitted, first)?;
        submitted.finish();
        let len = pixels.bytes_on_device();
        let begin = Instant::now();
        let Some(mut upload) = worker.uploads.take() else { return Ok(Submission::Stopped) };
        worker.meter.waited_for_room(Stage::Upload, begin.elapsed());
        let begin = worker.meter.begin(Stage::Upload);
        pixels.write_for_device(&mut upload.bytes()?[..len]);
        let mut lap = watch.lap()?;
        stream.wait(worker.target.read)?;
        lap.start(stream)?;
        upload.copy(stream, 0..len, worker.target.pixels, 0)?;
        worker.target.decoded.record(stream)?;
        lap.stop(stream, 1)?;
        worker.uploads.put_back(upload);
        worker.meter.add(Stage::Upload, begin, len as u64);
        let stored = Size::new(window.right(), window.bottom());
        let orientation = Orientation::UPRIGHT;
        Ok(Submission::Running(Pixels { window, stored, orientation, first, planes: None }))
    }
}

/// Window that operator `first` reads, in the image that the previous operators produce.
fn upright_window(sample: &SamplePlan, first: usize) -> Roi {
    let actions = &sample.actions;
    actions.list.get(actions.end(first)).map_or(sample.window, |action| action.input)
}
