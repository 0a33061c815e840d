//! Workers: from the file to pixels on the device, or on their way there.

use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Instant;

use crate::error::{Error, Result};
use crate::geometry::{Orientation, Roi, Size};
use crate::gpu::nvjpeg::Window;
use crate::gpu::{DeviceBuffer, Event, Stopwatch, Stream, Upload};
use crate::header::{Format, Header};
use crate::loader::balance::PictureWork;
use crate::loader::cache::Caches;
use crate::loader::controls::Controls;
use crate::loader::feed::{Feed, Job};
use crate::loader::large::LargeImages;
use crate::loader::pipeline::SamplePipeline;
use crate::loader::policy::{Trouble, produce, record};
use crate::loader::reader::Filled;
use crate::loader::record::{Outcome, SampleRecord};
use crate::measure::{Stage, ThreadMeter};
use crate::plan::{DeviceSplit, Offload, Plan, Route, SamplePlan};
use crate::random::SampleKey;
use crate::ring::{Filling, Producer};
use crate::source::{HostPage, Source};

use super::encoded::Encoded;
use super::router::Submitted;
use super::{
    Cell, Clocks, DevicePage, DeviceSlot, ObjectPool, OnEngine, Payload, Pixels, Router, Waiting,
    Work,
};

/// What all threads of a loader on a device share.
#[derive(Clone)]
pub(in crate::loader) struct Parts {
    pub source: Arc<dyn Source>,
    pub plan: Arc<Plan>,
    /// What the thread that has this copy measures.
    pub meter: Arc<ThreadMeter>,
    pub caches: Arc<Caches>,
    pub controls: Arc<Controls>,
    pub large: Arc<LargeImages>,
    pub router: Arc<Router>,
    pub uploads: Arc<ObjectPool<Upload>>,
    pub clocks: Arc<Clocks>,
}

/// Fills pages until there are no places left.
pub(in crate::loader) struct PageWorker {
    parts: Parts,
    stream: Stream,
    hardware: Option<Sender<Waiting>>,
    pipeline: SamplePipeline,
    /// By route, what its spans of the stream are timed by.
    watches: Vec<(Route, Arc<Stopwatch>)>,
    /// Files that are larger than a page's part for them.
    large: HostPage,
    /// Ordinary memory that the file at hand has.
    file: u64,
    /// The routes that may take the image at hand.
    routes: Vec<Route>,
    /// The first operator that is on the device for it.
    first: usize,
    /// The image at hand goes to the hardware engine.
    engine: Option<OnEngine>,
    /// The loader ends.
    stopped: bool,
}

impl PageWorker {
    pub fn new(parts: Parts, stream: Stream, hardware: Option<Sender<Waiting>>) -> Result<Self> {
        let Parts { source, plan, meter, caches, clocks, .. } = parts.clone();
        let images = parts.large.clone();
        let planned = plan.device.iter().flat_map(|device| &device.routes);
        let watches = clocks.worker(planned.map(|planned| planned.route))?;
        Ok(Self {
            watches,
            parts,
            stream,
            hardware,
            pipeline: SamplePipeline::new(source, plan, meter, caches, images),
            large: HostPage::default(),
            file: 0,
            routes: Vec::new(),
            first: 0,
            engine: None,
            stopped: false,
        })
    }

    /// Fills pages until there are no places left, while the worker of this number may. The stream is empty afterwards.
    pub fn run(
        mut self,
        feed: &Feed<DeviceSlot>,
        pages: &Producer<DevicePage>,
        number: usize,
    ) -> Result<()> {
        self.stream.device().work_beside_captures();
        let filled = self.fill_all(feed, pages, number);
        self.parts.controls.gate.close();
        let emptied = self.stream.synchronize();
        filled.and(emptied)
    }

    fn fill_all(
        &mut self,
        feed: &Feed<DeviceSlot>,
        pages: &Producer<DevicePage>,
        number: usize,
    ) -> Result<()> {
        let (controls, meter) = (self.parts.controls.clone(), self.parts.meter.clone());
        let _clocked = meter.on_this_thread();
        while !self.stopped && controls.gate.pass(number) {
            let begin = Instant::now();
            let Some(page) = pages.acquire() else { break };
            // The hardware engine may still read the file of the image before.
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

    fn fill(&mut self, mut page: Filling<DevicePage>, job: Job<Cell>) -> Result<()> {
        let Parts { plan, source, .. } = self.parts.clone();
        let wanted =
            SampleKey { seed: plan.settings.loader.seed, epoch: job.epoch, index: job.index };
        let mut payload = Payload::Nothing;
        let mut faults = Vec::new();
        let result = produce(&plan, &*source, wanted, &mut faults, |key| {
            let record;
            (payload, record) = self.attempt(&mut page, key)?;
            Ok(record)
        });
        if self.stopped {
            return Ok(());
        }
        match &result {
            Ok(record) if record.outcome == Outcome::Substituted => payload = Payload::Zeros,
            Ok(_) => {}
            Err(_) => payload = Payload::Nothing,
        }
        let result = result.map(|record| SampleRecord { padding: job.padding, ..record });
        page.work = Some(Work { job, payload, result, faults });
        match (self.engine.take(), &self.hardware) {
            (Some(on_engine), Some(hardware)) => {
                // Where nobody listens any more, the loader ends.
                self.stopped = hardware.send(Waiting { page, on_engine }).is_err();
                Ok(())
            }
            _ => page.publish(),
        }
    }

    /// Brings a sample onto its way to the device.
    fn attempt(
        &mut self,
        page: &mut DevicePage,
        key: SampleKey,
    ) -> Result<(Payload, SampleRecord), Trouble> {
        let mut large = std::mem::take(&mut self.large);
        let made = self.read(page, key, &mut large);
        self.large = large;
        made
    }

    fn read(
        &mut self,
        page: &mut DevicePage,
        key: SampleKey,
        large: &mut HostPage,
    ) -> Result<(Payload, SampleRecord), Trouble> {
        let DevicePage { encoded, pixels, decoded, read, sample, .. } = page;
        let page = encoded.as_deref_mut().unwrap_or_default();
        let mut file = Encoded::new(page, large);
        let made = match self.pipeline.read(key, &mut file) {
            Ok((header, content)) => {
                let target = Target { pixels, decoded, read };
                let bytes = content.bytes(&file);
                self.file = file.host_bytes();
                let made = self.send(target, sample, key, &header, bytes, file.is_in_page());
                self.pipeline.give_back(content);
                made
            }
            Err(fault) => Err(fault.into()),
        };
        self.pipeline.end(&mut file);
        made
    }

    /// Brings a sample whose bytes are there onto its way to the device.
    fn send(
        &mut self,
        target: Target<'_>,
        sample: &mut SamplePlan,
        key: SampleKey,
        header: &Header,
        bytes: &[u8],
        in_page: bool,
    ) -> Result<(Payload, SampleRecord), Trouble> {
        let Parts { source, router, .. } = self.parts.clone();
        self.pipeline.admit_tables(header, self.file)?;
        self.pipeline.plan(key, header, bytes.len() as u64)?;
        let offload = self.parts.controls.offload();
        if offload == Offload::NOTHING {
            return self.finish_by_choice(key, header, bytes);
        }
        self.first = offload.first(self.parts.plan.steps.len());
        let mut why = self.find_routes(header, bytes, in_page, offload);
        if self.routes.contains(&Route::Cpu) && !self.pipeline.fits_share() {
            // Other routes need none of this memory. Room is made before a place on the route is taken, for which others wait
            // who have room.
            match self.routes.len() {
                1 => self.pipeline.admit(header, self.file)?,
                _ => self.routes.retain(|&route| route != Route::Cpu),
            }
        }
        if !self.routes.is_empty() {
            let begin = Instant::now();
            let submitted = router.submit(
                &self.routes,
                offload.decode,
                work(header, &self.pipeline.sample, bytes),
            )?;
            self.parts.meter.waited_for_room(Stage::DeviceDecode, begin.elapsed());
            let route = submitted.route();
            match self.bring(target, header, bytes, submitted)? {
                Ok(made) => {
                    std::mem::swap(sample, &mut self.pipeline.sample);
                    let record = record(&*source, key.index, sample, Outcome::of(route));
                    let tolerated = self.pipeline.tolerated().filter(|_| route == Route::Cpu);
                    return Ok((Payload::Pixels(made), SampleRecord { tolerated, ..record }));
                }
                Err(refused) => why = refused,
            }
        }
        self.finish(key, header, bytes, why)
    }

    /// Finds the routes that may take the image that was planned last; without any, tells why.
    fn find_routes(
        &mut self,
        header: &Header,
        bytes: &[u8],
        in_page: bool,
        offload: Offload,
    ) -> &'static str {
        let (plan, router) = (&self.parts.plan, &self.parts.router);
        let sample = &self.pipeline.sample;
        self.routes.clear();
        let Some(device) = &plan.device else { return "there is no device" };
        let Some(cut) = device.cut(self.first) else {
            return "there is no kernel for its operators";
        };
        let tables = size_of_val(device_tables(sample, cut.first));
        let waiting = plan.room.share.waiting_tables();
        if tables > device.table_bytes || sample.table_bytes() > waiting {
            return "its tables do not fit into a page";
        }
        let mut why = "no route is allowed";
        let routes = device.routes.iter().map(|planned| planned.route);
        for route in routes.filter(|it| offload.decode || *it == Route::Cpu) {
            let fits = |bytes: usize| match bytes <= device.pixels_bytes {
                true => Ok(()),
                false => Err("its pixels do not fit into a page"),
            };
            let takes = match route {
                Route::Cpu => fits(upload_bytes(cut, sample)),
                _ if !in_page => Err("its file does not fit into a page"),
                _ => route
                    .takes(header, sample.reduction)
                    .and_then(|()| router.window(route, header.size, sample))
                    .and_then(|window| fits(window.bytes())),
            };
            match takes {
                Ok(()) => self.routes.push(route),
                Err(reason) => why = reason,
            }
        }
        if self.routes.iter().any(|&route| route != Route::Cpu) && header.verify(bytes).is_err() {
            // Nothing that looks damaged reaches the device; the CPU's decoder is the judge.
            self.routes.retain(|&route| route == Route::Cpu);
            why = "it looks damaged";
        }
        why
    }

    /// Brings pixels into the page by a route; or tells why the route refuses the image.
    fn bring(
        &mut self,
        target: Target<'_>,
        header: &Header,
        bytes: &[u8],
        submitted: Submitted,
    ) -> Result<Result<Pixels, &'static str>, Trouble> {
        let router = self.parts.router.clone();
        let sample = &self.pipeline.sample;
        let SamplePlan { stored, orientation, .. } = *sample;
        let pixels = |it: Window| Pixels { window: it.decoded, stored, orientation, first: 0 };
        match submitted.route() {
            Route::Cpu => self.upload(target, header, bytes, submitted).map(Ok),
            Route::Hardware => {
                let window = match router.window(Route::Hardware, header.size, sample) {
                    Ok(window) => window,
                    Err(why) => return Ok(Err(why)),
                };
                self.engine = Some(OnEngine {
                    submitted,
                    len: bytes.len(),
                    picture: header.size,
                    wanted: sample.stored_window,
                    reduction: sample.reduction,
                });
                Ok(Ok(pixels(window)))
            }
            route @ (Route::Cuda | Route::Host) => {
                let Some(software) = router.software(route) else {
                    return Ok(Err("the route is not there"));
                };
                let begin = self.parts.meter.begin(Stage::DeviceDecode);
                let idle = software.decoders.take_suited(|it| it.is_idle().unwrap_or(false));
                let mut decoder = idle.ok_or_else(|| Error::Internal {
                    problem: format!("{} has fewer decoders than pictures", route.name()),
                })?;
                let watch = self.watch(route)?;
                let mut lap = watch.lap()?;
                self.stream.wait(target.read)?;
                let (stream, wanted) = (&self.stream, sample.stored_window);
                let decoded =
                    decoder.decode_measured(stream, bytes, wanted, target.pixels, Some(&mut lap));
                software.decoders.put_back(decoder);
                self.parts.meter.add(Stage::DeviceDecode, begin, bytes.len() as u64);
                match decoded {
                    Ok(window) => {
                        target.decoded.record(&self.stream)?;
                        lap.stop(&self.stream, 1)?;
                        router.track([submitted], &self.stream)?;
                        Ok(Ok(pixels(window)))
                    }
                    Err(fault) => Ok(Err(fault.refusal()?)),
                }
            }
        }
    }

    /// Decoding and the first operators on the CPU, and an upload of what they give.
    fn upload(
        &mut self,
        target: Target<'_>,
        header: &Header,
        bytes: &[u8],
        submitted: Submitted,
    ) -> Result<Pixels, Trouble> {
        let first = self.first;
        let window = upright_window(&self.pipeline.sample, first);
        let watch = self.watch(Route::Cpu)?;
        let image = self.pipeline.prefix(header, bytes, first)?;
        submitted.finish();
        let len = image.bytes_on_device();
        let begin = Instant::now();
        let Some(mut upload) = self.parts.uploads.take() else { return Err(self.stop()) };
        self.parts.meter.waited_for_room(Stage::Upload, begin.elapsed());
        let begin = self.parts.meter.begin(Stage::Upload);
        image.write_for_device(&mut upload.bytes()?[..len]);
        let mut lap = watch.lap()?;
        self.stream.wait(target.read)?;
        lap.start(&self.stream)?;
        upload.copy(&self.stream, 0..len, target.pixels, 0)?;
        target.decoded.record(&self.stream)?;
        lap.stop(&self.stream, 1)?;
        self.parts.uploads.put_back(upload);
        self.parts.meter.add(Stage::Upload, begin, len as u64);
        let stored = Size::new(window.right(), window.bottom());
        Ok(Pixels { window, stored, orientation: Orientation::UPRIGHT, first })
    }

    /// The whole sample on the CPU, since the CPU keeps up: by no more workers than `decode.max_cpu_threads`, where that is set.
    fn finish_by_choice(
        &mut self,
        key: SampleKey,
        header: &Header,
        bytes: &[u8],
    ) -> Result<(Payload, SampleRecord), Trouble> {
        let Parts { plan, router, meter, .. } = self.parts.clone();
        self.pipeline.admit(header, self.file)?;
        // It is given back without a word: a route's speed is that of decoding alone.
        let mut _room = None;
        if plan.settings.decode.max_cpu_threads.is_some() {
            let begin = Instant::now();
            _room = Some(router.submit(
                &[Route::Cpu],
                false,
                work(header, &self.pipeline.sample, bytes),
            )?);
            meter.waited_for_room(Stage::DeviceDecode, begin.elapsed());
        }
        self.finish(key, header, bytes, BY_CHOICE)
    }

    /// The whole sample on the CPU.
    fn finish(
        &mut self,
        key: SampleKey,
        header: &Header,
        bytes: &[u8],
        why: &'static str,
    ) -> Result<(Payload, SampleRecord), Trouble> {
        self.pipeline.admit(header, self.file)?;
        let Some(mut upload) = self.parts.uploads.take() else { return Err(self.stop()) };
        let out = &mut upload.bytes()?[..self.parts.plan.shape.sample_bytes()];
        match self.pipeline.finish_planned(key, header, bytes, out) {
            Ok(record) => {
                let record = SampleRecord { finished_on_cpu: Some(why), ..record };
                Ok((Payload::Finished(upload), record))
            }
            Err(fault) => {
                self.parts.uploads.put_back(upload);
                Err(fault.into())
            }
        }
    }

    /// What a route's spans are timed by; of `cpu` those are copies.
    fn watch(&self, route: Route) -> Result<Arc<Stopwatch>> {
        let watch = self.watches.iter().find(|it| it.0 == route).map(|it| it.1.clone());
        watch.ok_or_else(|| Error::Internal {
            problem: format!("the route {} is not in the plan", route.name()),
        })
    }

    /// The launcher is gone: so is this worker, and the launcher's error is what counts.
    fn stop(&mut self) -> Trouble {
        self.stopped = true;
        Error::Internal { problem: "the launcher is gone".into() }.into()
    }
}

/// Why an image was made on the CPU that others would have taken.
const BY_CHOICE: &str = "the CPU keeps up";

/// The parts of a page that a route needs.
struct Target<'a> {
    pixels: &'a DeviceBuffer,
    decoded: &'a Event,
    read: &'a Event,
}

/// What the balancer must know of an image.
fn work(header: &Header, sample: &SamplePlan, bytes: &[u8]) -> PictureWork {
    let window_pixels = sample.stored_window.size().pixels();
    // What is decoded already is only copied.
    let (pixels, bytes) = match header.format {
        Format::Pixels => (0, 0),
        _ => (header.size.pixels(), bytes.len() as u64),
    };
    PictureWork { pixels, window_pixels, bytes }
}

/// What operator number `first` reads, in the image that those before it leave.
fn upright_window(sample: &SamplePlan, first: usize) -> Roi {
    sample.steps.get(first).map_or(sample.window, |step| step.input)
}

fn upload_bytes(cut: &DeviceSplit, sample: &SamplePlan) -> usize {
    cut.window_bytes(upright_window(sample, cut.first))
}

/// The tables of the operators from number `first` on. A sample is planned backwards, so theirs come first.
pub(super) fn device_tables(sample: &SamplePlan, first: usize) -> &[i32] {
    let end = sample.steps.get(first).map_or(0, |first| first.table.end);
    &sample.table[..end]
}
