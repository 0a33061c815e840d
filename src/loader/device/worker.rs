//! Workers that read files and enqueue decoding or uploads on the device.

use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Instant;

use super::decoder::{Request, Submission, Target, WorkerParts};
use super::encoded::Encoded;
use super::page_masks::PageCell;
use super::parts::Parts;
use super::router::Submitted;
use super::{Cell, DevicePage, DeviceSlot, Gathered, Payload, Pixels, Waiting, Work};
use crate::error::{Error, Result};
use crate::gpu::{Stopwatch, Stream};
use crate::header::Format;
use crate::loader::balance::ImageWork;
use crate::loader::sample::fields::FieldReader;
use crate::loader::sample::pipeline::{Planned, Read, Reserve, SamplePipeline};
use crate::loader::sample::policy::{ProduceError, produce};
use crate::loader::sample::record::SampleRecord;
use crate::loader::slot::feed::{Feed, Job};
use crate::measure::Stage;
use crate::plan::{Offload, Place, Route, SamplePlan};
use crate::random::SampleKey;
use crate::ring::{Filling, Producer};
use crate::source::HostPage;

/// Worker thread that fills pages until there are no more jobs.
pub(in crate::loader) struct PageWorker {
    pipeline: SamplePipeline,
    fields: FieldReader,
    /// Buffer for files that do not fit into a page.
    large: HostPage,
    dispatcher: Dispatcher,
}

/// Moves samples to the device.
struct Dispatcher {
    parts: Parts,
    stream: Stream,
    /// Channels to the gatherer threads, by route.
    gatherers: Vec<(Route, Sender<Waiting>)>,
    /// Stopwatches for spans of the stream, by route.
    watches: Vec<(Route, Arc<Stopwatch>)>,
    /// Routes that accept the current image.
    routes: Vec<Route>,
    /// Set if the current image is passed to the gatherer thread of its route.
    gathered: Option<Gathered>,
    /// Whether the loader is ending, so the worker must stop.
    stopped: bool,
}

impl PageWorker {
    pub fn new(
        parts: Parts,
        stream: Stream,
        gatherers: Vec<(Route, Sender<Waiting>)>,
    ) -> Result<Self> {
        let Parts { source, plan, meter, caches, clocks, .. } = parts.clone();
        let fields = FieldReader::new(&plan, caches.clone(), meter.clone());
        let images = parts.large.clone();
        let planned = plan.device.iter().flat_map(|device| &device.routes);
        let watches = clocks.worker(planned.map(|planned| planned.route))?;
        Ok(Self {
            pipeline: SamplePipeline::new(source, plan, meter, caches, images),
            fields,
            large: HostPage::default(),
            dispatcher: Dispatcher {
                parts,
                stream,
                gatherers,
                watches,
                routes: Vec::new(),
                gathered: None,
                stopped: false,
            },
        })
    }

    /// Fills pages until there are no more jobs. Before each page, the thread waits until worker
    /// `number` is active. The stream is empty afterwards.
    pub fn run(
        mut self,
        feed: &Feed<DeviceSlot>,
        pages: &Producer<DevicePage>,
        number: usize,
    ) -> Result<()> {
        self.dispatcher.stream.device().adopt_thread();
        let filled = self.fill_all(feed, pages, number);
        self.dispatcher.parts.controls.gate.close();
        let emptied = self.dispatcher.stream.synchronize();
        filled.and(emptied)
    }

    fn fill_all(
        &mut self,
        feed: &Feed<DeviceSlot>,
        pages: &Producer<DevicePage>,
        number: usize,
    ) -> Result<()> {
        let Parts { controls, meter, .. } = self.dispatcher.parts.clone();
        let _clocked = meter.on_this_thread();
        while !self.dispatcher.stopped && controls.gate.pass(number) {
            let begin = Instant::now();
            let Some(page) = pages.acquire() else { break };
            // The previous image in this page may never have been launched. Then a decoder may
            // still be writing to the page.
            page.decoded.synchronize()?;
            meter.waited_for_room(Stage::Upload, begin.elapsed());
            let Some(job) = feed.take() else { break };
            meter.waited_for_room(Stage::HandOver, job.waited);
            meter.batch(job.batch);
            let begin = Instant::now();
            self.fill(page, job)?;
            meter.sample_took(begin.elapsed());
        }
        Ok(())
    }

    fn fill(&mut self, mut page: Filling<DevicePage>, mut job: Job<Cell>) -> Result<()> {
        let Parts { plan, source, .. } = self.dispatcher.parts.clone();
        let wanted = job.key(&plan);
        let mut payload = Payload::Nothing;
        let mut errors = Vec::new();
        let mut fields = std::mem::take(&mut self.fields);
        let of_source = (&*source, &mut fields);
        let mut masks = page.masks.take();
        let cell = &mut PageCell::new(&mut job.cell.host, plan.device.as_ref(), masks.as_mut())?;
        let result = produce(&plan, of_source, cell, wanted, &mut errors, |key, cell, fields| {
            let record;
            (payload, record) = self.attempt(&mut page, key, (fields, cell))?;
            Ok(record)
        });
        page.masks = masks;
        self.fields = fields;
        let dispatcher = &mut self.dispatcher;
        if dispatcher.stopped {
            return Ok(());
        }
        match &result {
            Ok(record) if !record.outcome.has_image() => payload = Payload::Zeros,
            Ok(_) => {}
            Err(_) => payload = Payload::Nothing,
        }
        let result = result.map(|record| job.placed(record));
        page.work = Some(Work { job, payload, result, errors });
        let Some(gathered) = dispatcher.gathered.take() else { return page.publish() };
        let route = gathered.submitted.route();
        let gatherer = dispatcher.gatherers.iter().find(|it| it.0 == route);
        let (_, gatherer) = gatherer.ok_or_else(|| Error::Internal {
            problem: format!(
                "the loader has no thread that gathers images for the route {}",
                route.name()
            ),
        })?;
        // A closed channel means that the loader ends.
        dispatcher.stopped = gatherer.send(Waiting { page, gathered }).is_err();
        Ok(())
    }

    /// Reads a sample and begins to move it to the device.
    fn attempt(
        &mut self,
        page: &mut DevicePage,
        key: SampleKey,
        fields: (&mut FieldReader, &mut PageCell<'_>),
    ) -> Result<(Payload, SampleRecord), ProduceError> {
        let Self { pipeline, large, dispatcher, .. } = self;
        let DevicePage { encoded, pixels, decoded, read, sample, outputs, .. } = page;
        let target = Target { pixels, decoded, read };
        let mut file = Encoded::new(encoded.as_deref_mut().unwrap_or_default(), large);
        let (fields, cell) = fields;
        if dispatcher.may_decode_on_device() {
            pipeline.set_from_device(true);
            let sent = pipeline.with_sample(key, &mut file, |pipeline, file, read| {
                let parts = (&mut *sample, &mut outputs[..]);
                let read = (read, file.is_in_page());
                dispatcher.send(pipeline, target, parts, read, (&mut *fields, &mut *cell))
            });
            pipeline.set_from_device(false);
            if let Some(sent) = sent? {
                return Ok(sent);
            }
        }
        let sent = pipeline.with_sample(key, &mut file, |pipeline, file, read| {
            let read = (read, file.is_in_page());
            dispatcher.send(pipeline, target, (sample, outputs), read, (fields, cell))
        });
        sent?.ok_or_else(|| {
            let problem = "a file that was read is only in device memory".into();
            Error::Internal { problem }.into()
        })
    }
}

impl Dispatcher {
    /// Whether the next sample is decoded on the device, if possible.
    fn may_decode_on_device(&self) -> bool {
        let offload = self.parts.controls.offload();
        self.parts.caches.device.is_some() && offload != Offload::NOTHING && offload.decode
    }

    /// Begins to move a sample to the device. The bytes of the sample are already in memory. `None`
    /// if the coded data is in device memory only, but no route can decode it there. Then the file
    /// must be read.
    fn send(
        &mut self,
        pipeline: &mut SamplePipeline,
        target: Target<'_>,
        (sample, outputs): (&mut SamplePlan, &mut [SamplePlan]),
        (read, in_page): (Read<'_>, bool),
        (fields, cell): (&mut FieldReader, &mut PageCell<'_>),
    ) -> Result<Option<(Payload, SampleRecord)>, ProduceError> {
        let Parts { plan, router, .. } = self.parts.clone();
        // These views are computed here, whatever happens to the rest of the sample.
        let has_views = plan.views.iter().any(|view| view.place == Place::Cpu);
        let reserve = if has_views { Reserve::All } else { Reserve::Tables };
        let planned = pipeline.plan(read, reserve)?;
        if planned.on_device().is_some() {
            // Nothing may be written to the cell before it is known whether the file must be read.
            let Some(pixels) = self.send_from_device(pipeline, &planned, target)? else {
                return Ok(None);
            };
            if let Err(error) = pipeline.follow(&planned, fields, cell) {
                self.gathered = None;
                return Err(error.into());
            }
            let record = pipeline.record(&planned, Route::Feedwater);
            pipeline.swap_plans(sample, outputs);
            return Ok(Some((Payload::Pixels(pixels), record)));
        }
        pipeline.follow(&planned, fields, cell)?;
        if has_views {
            let admitted = pipeline.admit(&planned)?;
            pipeline.make_views(&admitted, cell)?;
            pipeline.make_field_views(&planned, pipeline.sample_plan().upright, fields, cell)?;
        }
        let offload = self.parts.controls.offload();
        if offload == Offload::NOTHING {
            return self.finish_by_choice(pipeline, &planned).map(Some);
        }
        let split = match &plan.device {
            Some(device) => device
                .cut(offload.first(plan.steps.len()))
                .ok_or("there is no kernel for its operators"),
            None => Err("there is no device"),
        };
        let image = split.map(|split| Request { planned: &planned, in_page, split });
        self.routes.clear();
        let mut why = match &image {
            Ok(image) => self.find_routes(image, pipeline, offload),
            Err(why) => why,
        };
        if self.routes.iter().any(|it| !it.on_device()) {
            // Only the route `cpu` needs this memory. It is reserved before the worker takes a
            // place on the route, because other workers may wait for that place while they hold
            // memory.
            if self.routes.len() == 1 || pipeline.fits_share(&planned) {
                pipeline.admit(&planned)?;
            } else {
                self.routes.retain(|it| it.on_device());
            }
        }
        if let (Ok(image), false) = (&image, self.routes.is_empty()) {
            let begin = Instant::now();
            let submitted =
                router.submit(&self.routes, offload.decode, work(&planned, pipeline.decoded()))?;
            self.parts.meter.waited_for_room(Stage::DeviceDecode, begin.elapsed());
            let route = submitted.route();
            match self.submit(pipeline, image, target, submitted)? {
                Ok(pixels) => {
                    let record = pipeline.record(&planned, route);
                    pipeline.swap_plans(sample, outputs);
                    return Ok(Some((Payload::Pixels(pixels), record)));
                }
                Err(refused) => why = refused,
            }
        }
        self.finish(pipeline, &planned, why).map(Some)
    }

    /// Submits a planned sample whose file is in device memory. `None` if it cannot be decoded
    /// there.
    fn send_from_device(
        &mut self,
        pipeline: &mut SamplePipeline,
        planned: &Planned<'_>,
        target: Target<'_>,
    ) -> Result<Option<Pixels>, ProduceError> {
        let Parts { plan, router, controls, .. } = self.parts.clone();
        let offload = controls.offload();
        let split = offload.first(plan.steps.len());
        let Some(split) = plan.device.as_ref().and_then(|device| device.cut(split)) else {
            return Ok(None);
        };
        let image = Request { planned, in_page: true, split };
        self.routes.clear();
        self.find_routes(&image, pipeline, offload);
        if self.routes.is_empty() {
            return Ok(None);
        }
        let begin = Instant::now();
        let submitted = router.submit(&self.routes, true, work(planned, pipeline.decoded()))?;
        self.parts.meter.waited_for_room(Stage::DeviceDecode, begin.elapsed());
        Ok(self.submit(pipeline, &image, target, submitted)?.ok())
    }

    /// Collects the routes that accept the last planned image. Returns the reason of the last
    /// rejection.
    fn find_routes(
        &mut self,
        image: &Request<'_>,
        pipeline: &SamplePipeline,
        offload: Offload,
    ) -> &'static str {
        let Parts { plan, decoders, .. } = &self.parts;
        let Some(device) = &plan.device else { return "there is no device" };
        let (sample, outputs) = (pipeline.sample_plan(), pipeline.device_outputs());
        let tables = outputs.clone().map(SamplePlan::table_bytes);
        if tables.fold(sample.table_bytes(), u64::saturating_add) > plan.waiting_tables() {
            return "its tables do not fit into a page";
        }
        if let Err(why) = device.takes(image.split, sample, outputs) {
            return why;
        }
        let sample = pipeline.decoded();
        let mut why = "no route is allowed";
        let routes = device.routes.iter().map(|planned| planned.route);
        // Only one route can decode a file whose coded data is in device memory.
        let is_read = image.planned.on_device().is_none();
        let routes = routes.filter(|it| is_read || *it == Route::Feedwater);
        for route in routes.filter(|it| offload.decode || !it.on_device()) {
            let decoder = decoders.get(route).ok_or("the route is not there");
            let takes = match decoder.and_then(|it| it.accepts(image, sample)) {
                Ok(bytes) if bytes > device.pixels_bytes => {
                    Err("its pixels do not fit into a page")
                }
                other => other,
            };
            match takes {
                Ok(_) => self.routes.push(route),
                Err(reason) => why = reason,
            }
        }
        let on_device = self.routes.iter().any(|it| it.on_device());
        if on_device && is_read && image.header().verify(image.bytes()).is_err() {
            // Files that seem corrupt are decoded only on the CPU.
            self.routes.retain(|it| !it.on_device());
            why = "it looks damaged";
        }
        self.routes.retain(|it| {
            let supports = decoders.get(*it).map_or(Ok(()), |it| it.supports(image, sample));
            supports.map_err(|reason| why = reason).is_ok()
        });
        why
    }

    /// Submits an image to a route. Returns its pixels, or the reason of a rejection.
    fn submit(
        &mut self,
        pipeline: &mut SamplePipeline,
        image: &Request<'_>,
        target: Target<'_>,
        submitted: Submitted,
    ) -> Result<Result<Pixels, &'static str>, ProduceError> {
        let Parts { router, decoders, meter, uploads, .. } = &self.parts;
        let route = submitted.route();
        let Some(decoder) = decoders.get(route) else { return Ok(Err("the route is not there")) };
        let watch = self.watches.iter().find(|it| it.0 == route).map(|it| &*it.1);
        let stream = &self.stream;
        let mut worker = WorkerParts { stream, meter, router, uploads, pipeline, watch, target };
        match decoder.submit(image, &mut worker, submitted)? {
            Submission::Running(pixels) => Ok(Ok(pixels)),
            Submission::Gathered(pixels, gathered) => {
                self.gathered = Some(gathered);
                Ok(Ok(pixels))
            }
            Submission::Refused(why) => Ok(Err(why)),
            Submission::Stopped => Err(self.stop()),
        }
    }

    /// Processes the whole sample on the CPU by choice, because the CPU is fast enough. If
    /// `decode.max_cpu_threads` is set, at most that many workers do so at the same time.
    fn finish_by_choice(
        &mut self,
        pipeline: &mut SamplePipeline,
        planned: &Planned<'_>,
    ) -> Result<(Payload, SampleRecord), ProduceError> {
        let Parts { plan, router, meter, .. } = self.parts.clone();
        pipeline.admit(planned)?;
        // `_room` is dropped without `finish`, so the time of this sample does not change the
        // measured speed of the route, which covers decoding only.
        let mut _room = None;
        if plan.settings.decode.max_cpu_threads.is_some() {
            let begin = Instant::now();
            _room = Some(router.submit(&[Route::Cpu], false, work(planned, pipeline.decoded()))?);
            meter.waited_for_room(Stage::DeviceDecode, begin.elapsed());
        }
        self.finish(pipeline, planned, BY_CHOICE)
    }

    /// Processes the whole sample on the CPU.
    fn finish(
        &mut self,
        pipeline: &mut SamplePipeline,
        planned: &Planned<'_>,
        why: &'static str,
    ) -> Result<(Payload, SampleRecord), ProduceError> {
        let admitted = pipeline.admit(planned)?;
        let Some(mut upload) = self.parts.uploads.take() else { return Err(self.stop()) };
        let out = &mut upload.bytes()?[..self.parts.plan.finished_bytes()];
        match pipeline.finish(admitted, out) {
            Ok(record) => {
                let record = SampleRecord { cpu_fallback: Some(why), ..record };
                Ok((Payload::Finished(upload), record))
            }
            Err(error) => {
                self.parts.uploads.put_back(upload);
                Err(error.into())
            }
        }
    }

    /// Ends this worker because the launcher has ended. The launcher's error is reported.
    fn stop(&mut self) -> ProduceError {
        self.stopped = true;
        Error::Internal { problem: "the launcher has ended".into() }.into()
    }
}

/// Reason for processing an image on the CPU although a route would accept it.
const BY_CHOICE: &str = "the CPU keeps up";

/// Amount of work for an image, for the balancer.
fn work(planned: &Planned<'_>, sample: &SamplePlan) -> ImageWork {
    let header = planned.header();
    let window_pixels = sample.stored_window.size().pixels();
    // `Format::Pixels` is an image that is already decoded. Its pixels are only copied.
    let (pixels, bytes) = match header.format {
        Format::Pixels => (0, 0),
        _ => (header.size.pixels(), planned.len() as u64),
    };
    ImageWork { pixels, window_pixels, bytes }
}
