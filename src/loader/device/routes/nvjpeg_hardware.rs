//! Route of the GPU's JPEG engines: nvJPEG decodes many images per call.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Entry;
use super::nvjpeg_page::{open_backend, pixels};
use crate::error::{Error, Result};
use crate::geometry::{Roi, Size};
use crate::gpu::nvjpeg::{Backend, BatchDecoder, BatchJob, DecodeError, HostIdle, Jpeg, Support};
use crate::gpu::{Stopwatch, Stream};
use crate::loader::balance::RouteQueue;
use crate::loader::device::decoder::{
    DeviceDecoder, GroupDecoder, Opened, Opening, Request, Submission, WorkerParts,
};
use crate::loader::device::router::Submitted;
use crate::loader::device::{Gathered, HeaderClass, Waiting};
use crate::loader::sample::policy::ProduceError;
use crate::plan::SamplePlan;

/// Reason for decoding an image on the CPU if the engines do not support its kind of file.
const UNSUPPORTED: &str = "nvJPEG's engines do not support it";

/// Reason for processing an image on the CPU although its call reported no error.
const SKIPPED: &str = "nvJPEG skipped it and reported success";

/// For each class of headers: whether the engines decode files of the class. nvJPEG is queried for
/// the first file of a class. If calls then reject several files of the class, without decoding one
/// in between, the engines get no more files of the class.
struct Classes {
    known: Mutex<HashMap<HeaderClass, Known>>,
    support: Mutex<Support>,
}

#[derive(Clone, Copy)]
struct Known {
    decodes: bool,
    /// Number of files of the class that calls rejected since a file of the class was last decoded.
    refused: u32,
}

/// Number of rejected files after which the engines get no more files of a class. It is more than
/// one, because a single file may be corrupt in a way that only nvJPEG detects.
const MOST_REFUSED: u32 = 3;

impl Classes {
    fn new(jpeg: &Arc<Jpeg>) -> Result<Self> {
        Ok(Self { known: Mutex::default(), support: Mutex::new(Support::new(jpeg)?) })
    }

    fn decodes(&self, class: HeaderClass, file: &[u8], window: Option<Roi>) -> bool {
        let known = || self.known().get(&class).map(|it| it.decodes);
        if let Some(decodes) = known() {
            return decodes;
        }
        let mut support = self.support.lock().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have queried nvJPEG about this class of files in the meantime.
        if let Some(decodes) = known() {
            return decodes;
        }
        match support.decodes(file, class.reduction, window) {
            Ok(Some(decodes)) => {
                self.known().insert(class, Known { decodes, refused: 0 });
                decodes
            }
            // nvJPEG gave no answer, so the engines try to decode this file. nvJPEG is queried
            // again for the next file of the class.
            Ok(None) | Err(_) => true,
        }
    }

    fn refuse(&self, class: HeaderClass) {
        let mut known = self.known();
        let of_class = known.entry(class).or_insert(Known { decodes: true, refused: 0 });
        of_class.refused += 1;
        of_class.decodes &= of_class.refused < MOST_REFUSED;
    }

    fn decoded(&self, class: HeaderClass) {
        if let Some(of_class) = self.known().get_mut(&class) {
            of_class.refused = 0;
        }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<HeaderClass, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Part of the decoder that workers use.
struct NvjpegHardware {
    queue: RouteQueue,
    jpeg: Arc<Jpeg>,
    classes: Arc<Classes>,
}

/// Decoders of the engines, used in turn: one group is decoded while the next one is gathered. An
/// image is passed to the engines only after the host has observed that the kernel has read the
/// page's previous pixels.
struct Engines {
    /// Decoders with running calls first, in the order of their calls.
    decoders: VecDeque<BatchDecoder>,
    running: usize,
    lanes: usize,
    classes: Arc<Classes>,
}

pub(super) const ENTRY: Entry = Entry { backend: Some(Backend::Hardware), open };

/// Opens the engines with the plan's number of decoders.
fn open(opening: &Opening<'_>) -> Result<Opened> {
    let (planned, group) = (opening.route, opening.route.group);
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
    let lanes = jpeg.engines().map_or(1, |it| it.lanes());
    let classes = Arc::new(Classes::new(&jpeg)?);
    let engines = Engines { decoders, running: 0, lanes, classes: classes.clone() };
    let decoder = Box::new(NvjpegHardware { queue, jpeg, classes });
    Ok(Opened { decoder, group: Some(Box::new(engines)) })
}

impl DeviceDecoder for NvjpegHardware {
    fn queue(&self) -> RouteQueue {
        self.queue
    }

    fn accepts(&self, image: &Request<'_>, sample: &SamplePlan) -> Result<usize, &'static str> {
        let SamplePlan { reduction, stored_window, .. } = *sample;
        image.must_be_in_page()?;
        self.queue.route.takes(image.header(), reduction)?;
        Ok(self.jpeg.reduced_window(image.header().size, reduction, stored_window).bytes())
    }

    fn supports(&self, image: &Request<'_>, sample: &SamplePlan) -> Result<(), &'static str> {
        let SamplePlan { reduction, stored_window, .. } = *sample;
        let size = image.header().size;
        let window = self.jpeg.reduced_window(size, reduction, stored_window);
        let part = (window.decoded != size.reduced(reduction).window()).then_some(window.decoded);
        match HeaderClass::of(image.header(), reduction, part.is_some()) {
            Some(class) if !self.classes.decodes(class, image.bytes(), part) => Err(UNSUPPORTED),
            _ => Ok(()),
        }
    }

    fn submit(
        &self,
        image: &Request<'_>,
        worker: &mut WorkerParts<'_>,
        submitted: Submitted,
    ) -> Result<Submission, ProduceError> {
        let sample = worker.pipeline.decoded();
        let (size, wanted, reduction) =
            (image.header().size, sample.stored_window, sample.reduction);
        let window = self.jpeg.reduced_window(size, reduction, wanted);
        let len = image.bytes().len();
        let part = window.decoded != size.reduced(reduction).window();
        let class = HeaderClass::of(image.header(), reduction, part);
        let gathered = Gathered {
            submitted,
            len,
            image: size,
            class,
            wanted,
            reduction,
            jpeg: None,
            place: None,
            keeps: None,
        };
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

    fn lanes(&self) -> usize {
        self.lanes
    }

    fn trusts_groups(&self) -> bool {
        false
    }

    fn refused(&self, waiting: &Waiting) {
        if let Some(class) = waiting.gathered.class {
            self.classes.refuse(class);
        }
    }

    fn decoded(&mut self, waiting: &Waiting, _: usize) -> Result<()> {
        if let Some(class) = waiting.gathered.class {
            self.classes.decoded(class);
        }
        Ok(())
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
                wanted: gathered.wanted,
                reduction: gathered.reduction,
                destination: HostIdle::wait(&page.pixels, &page.read)?,
            })
        });
        let jobs = jobs.collect::<Result<Vec<_>>>()?;
        let decoder = self.decoders.get_mut(self.running).ok_or_else(|| Error::Internal {
            problem: format!("all {} decoders of the JPEG engines are in use", self.running),
        })?;
        decoder.decode_measured(stream, &jobs, Some(clock.lap()?))?;
        self.running += 1;
        Ok(())
    }

    fn finish(&mut self) -> Result<Vec<Result<(), &'static str>>> {
        let running = self.running.checked_sub(1).zip(self.decoders.front_mut());
        let Some((others, decoder)) = running else { return Ok(Vec::new()) };
        let written = decoder.written()?;
        self.running = others;
        self.decoders.rotate_left(1);
        Ok(written.into_iter().map(|it| if it { Ok(()) } else { Err(SKIPPED) }).collect())
    }
}
