//! Thread of a route that batches. It passes many images at a time to the decoder.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Instant;

use super::decoder::GroupDecoder;
use super::page_masks::PageCell;
use super::parts::Parts;
use super::{DevicePage, Gathered, Payload, Waiting};
use crate::error::Result;
use crate::gpu::{Stopwatch, Stream};
use crate::loader::sample::fields::FieldReader;
use crate::loader::sample::pipeline::SamplePipeline;
use crate::loader::sample::policy::produce;
use crate::loader::sample::record::SampleRecord;
use crate::measure::Stage;
use crate::plan::Route;
use crate::ring::Producer;

/// Decodes waiting pages in groups. A group is gathered only when the decoder can begin a call, so
/// groups grow while the decoder is busy. Unless the decoder accepts any group, all images of a
/// group have the same chroma subsampling. Usually the subsampling of most waiting images is
/// chosen. If too many calls have passed over the oldest waiting image, the subsampling of that
/// image is chosen.
///
/// A page is published only after the decoder's call has ended and the host has checked that the
/// pixels were written. So a kernel launch never waits for the decoder.
pub(in crate::loader) struct Gatherer {
    parts: Parts,
    stream: Stream,
    decoder: Box<dyn GroupDecoder>,
    /// Maximum number of images per call. 1 after the decoder has skipped an image.
    group: usize,
    /// Groups of unfinished calls, in the order of the calls.
    running: VecDeque<Vec<Waiting>>,
    /// Images for the next calls, in order of arrival.
    next: VecDeque<Next>,
    clock: Arc<Stopwatch>,
    /// Processes on the CPU the samples that the decoder rejected.
    pipeline: SamplePipeline,
    fields: FieldReader,
}

/// An image for one of the next calls.
struct Next {
    waiting: Waiting,
    /// Number of calls with other subsamplings since the image arrived.
    passed: u32,
}

impl From<Waiting> for Next {
    fn from(waiting: Waiting) -> Self {
        Self { waiting, passed: 0 }
    }
}

/// Maximum number of calls that may pass over an image. The image's batch waits for all these
/// calls.
const MOST_PASSED: u32 = 3;

impl Gatherer {
    /// Creates a gatherer for the decoder of a route.
    pub fn new(
        parts: Parts,
        stream: Stream,
        (route, mut decoder): (Route, Box<dyn GroupDecoder>),
    ) -> Result<Self> {
        decoder.warm_up(&stream)?;
        let Parts { source, plan, meter, caches, large, clocks, .. } = parts.clone();
        let routes = plan.device.iter().flat_map(|device| &device.routes);
        let planned = routes.filter(|it| it.route == route).map(|it| it.group);
        let group = planned.max().unwrap_or(1);
        let fields = FieldReader::new(&plan, caches.clone(), meter.clone());
        let pipeline = SamplePipeline::new(source, plan, meter, caches, large);
        let clock = clocks.decode(route)?;
        let running = VecDeque::with_capacity(decoder.calls());
        let next = VecDeque::new();
        Ok(Self { parts, stream, decoder, group, running, next, clock, pipeline, fields })
    }

    /// Decodes until all workers have ended. Holds `pages` until the end, so the launcher keeps
    /// waiting for pages. The stream is empty afterwards.
    pub fn run(mut self, waiting: &Receiver<Waiting>, pages: Producer<DevicePage>) -> Result<()> {
        self.stream.device().adopt_thread();
        let mut group = Vec::with_capacity(self.group);
        let decoded = self.decode_all(waiting, &mut group);
        let emptied = self.stream.synchronize();
        // Release the pages to the workers only now. After an error, the stream may have been
        // writing to these pages until it was synchronized.
        self.running.clear();
        drop((group, self.next, pages));
        decoded.and(emptied)
    }

    fn decode_all(&mut self, waiting: &Receiver<Waiting>, group: &mut Vec<Waiting>) -> Result<()> {
        let meter = self.parts.meter.clone();
        let _clocked = meter.on_this_thread();
        loop {
            self.next.extend(waiting.try_iter().map(Next::from));
            if self.next.is_empty() {
                // If no image is waiting, wait for the oldest running decode call.
                if !self.running.is_empty() {
                    if !self.finish()? {
                        return Ok(());
                    }
                    continue;
                }
                let begin = Instant::now();
                let Ok(first) = waiting.recv() else { return Ok(()) };
                meter.waited_for_input(Stage::DeviceDecode, begin.elapsed());
                self.next.push_back(first.into());
            }
            if !self.make_room()? {
                return Ok(());
            }
            self.next.extend(waiting.try_iter().map(Next::from));
            self.gather(group);
            if !self.decode(group)? {
                return Ok(());
            }
        }
    }

    /// Fills the group with images of one chroma subsampling, in order of arrival. If more images
    /// wait than the decoder has lanes (images that it decodes at the same time), the group gets a
    /// multiple of the lanes. The group has fewer images if the memory of a call has no room for
    /// more.
    fn gather(&mut self, group: &mut Vec<Waiting>) {
        let is_any = self.decoder.trusts_groups();
        let class = |it: &Next| it.waiting.gathered.class.filter(|_| !is_any);
        let sampling = |it: &Next| class(it).map(|class| class.sampling);
        let like = |one: &Next| self.next.iter().filter(|it| sampling(it) == sampling(one)).count();
        let late = self.next.front().filter(|it| it.passed >= MOST_PASSED);
        // Search from the newest image to the oldest: `max_by_key` returns the last of equal
        // elements, which is then the oldest image.
        let chosen = late.or_else(|| self.next.iter().rev().max_by_key(|it| like(it)));
        let Some((chosen, waiting)) = chosen.map(|it| (sampling(it), like(it))) else { return };
        let (most, lanes) = (self.group.min(waiting), self.decoder.lanes());
        let most = if most > lanes { most - most % lanes } else { most };
        let (mut at, mut room, mut is_full) = (0, self.decoder.room_bytes(), false);
        while let Some(next) = self.next.get_mut(at) {
            if sampling(next) != chosen {
                next.passed += 1;
                at += 1;
                continue;
            }
            let left = room.checked_sub(self.decoder.image_bytes(&next.waiting));
            is_full = is_full || group.len() >= most || left.is_none() && !group.is_empty();
            if is_full {
                at += 1;
            } else {
                room = left.unwrap_or(0);
                group.extend(self.next.remove(at).map(|it| it.waiting));
            }
        }
    }

    /// Decodes a group. If the decoder rejects it, decodes each of its images alone, so only
    /// rejected images fall back to the CPU. Returns false if the loader ends. After an error,
    /// `group` holds the remaining images.
    fn decode(&mut self, group: &mut Vec<Waiting>) -> Result<bool> {
        if !self.make_room()? {
            return Ok(false);
        }
        let begin = self.parts.meter.begin(Stage::DeviceDecode);
        let decoded = self.decoder.decode(&self.stream, group, &self.clock);
        let bytes = group.iter().map(|it| it.gathered.len as u64).sum();
        self.parts.meter.add(Stage::DeviceDecode, begin, bytes);
        let Err(error) = decoded else {
            self.running.push_back(std::mem::take(group));
            return Ok(true);
        };
        let unsupported = error.is_unsupported();
        if error.is_budget() {
            // Calls with fewer images need less memory.
            self.group = self.group.min(group.len().div_ceil(2));
        }
        let why = error.refusal()?;
        let mut one = Vec::with_capacity(1);
        if group.len() == 1 {
            let Some(waiting) = group.pop() else { return Ok(true) };
            if unsupported {
                self.decoder.refused(&waiting);
            }
            return self.make_on_cpu(waiting, why);
        }
        group.reverse();
        while let Some(waiting) = group.pop() {
            one.push(waiting);
            let decoded = self.decode(&mut one);
            group.append(&mut one);
            if !decoded? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Waits until the decoder can begin another call. Returns false if the loader ends.
    fn make_room(&mut self) -> Result<bool> {
        while self.running.len() >= self.decoder.calls() {
            if !self.finish()? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Waits for the earliest call and publishes its pages. Returns false if the loader ends.
    fn finish(&mut self) -> Result<bool> {
        let begin = Instant::now();
        let outcomes = self.decoder.finish()?;
        self.parts.meter.waited_for_room(Stage::DeviceDecode, begin.elapsed());
        let group = self.running.pop_front().unwrap_or_default();
        let mut failed = Vec::new();
        for (number, (waiting, outcome)) in group.into_iter().zip(outcomes).enumerate() {
            if let Err(why) = outcome {
                self.decoder.failed(&waiting, number);
                failed.push((waiting, why));
                continue;
            }
            self.decoder.decoded(&waiting, number)?;
            waiting.gathered.submitted.finish();
            waiting.page.publish()?;
        }
        for (waiting, why) in failed {
            // nvJPEG was seen to skip images only in calls with several images.
            if !self.decoder.trusts_groups() {
                self.group = 1;
            }
            if !self.make_on_cpu(waiting, why)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Processes a rejected or skipped image on the CPU. If the file is corrupt, `loader.on_error`
    /// applies. Returns false if the loader ends.
    fn make_on_cpu(&mut self, waiting: Waiting, why: &'static str) -> Result<bool> {
        let Waiting { mut page, gathered } = waiting;
        let Gathered { submitted, .. } = gathered;
        drop(submitted);
        let Some(mut work) = page.work.take() else { return Ok(true) };
        let Some(mut upload) = self.parts.uploads.take() else { return Ok(false) };
        let (plan, source) = (self.parts.plan.clone(), self.parts.source.clone());
        let wanted = work.job.key(&plan);
        let out = &mut upload.bytes()?[..plan.finished_bytes()];
        // The sample is produced again from the start, so errors of earlier attempts would be
        // recorded twice.
        work.errors.clear();
        let of_source = (&*source, &mut self.fields);
        let mut masks = page.masks.take();
        let (host, errors) = (&mut work.job.cell.host, &mut work.errors);
        let cell = &mut PageCell::new(host, plan.device.as_ref(), masks.as_mut())?;
        let result = produce(&plan, of_source, cell, wanted, errors, |key, cell, fields| {
            let record = self.pipeline.make(key, (fields, cell), Some(&mut *out))?;
            Ok(SampleRecord { cpu_fallback: Some(why), ..record })
        });
        page.masks = masks;
        work.payload = match &result {
            Ok(record) if record.outcome.has_image() => Payload::Finished(upload),
            other => {
                let replaced = other.is_ok();
                self.parts.uploads.put_back(upload);
                if replaced { Payload::Zeros } else { Payload::Nothing }
            }
        };
        work.result = result.map(|record| work.job.placed(record));
        page.work = Some(work);
        page.publish()?;
        Ok(true)
    }
}
