//! Route of feedwater's own decoder: kernels decode many images of any size per call, to planes of
//! samples.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use super::Entry;
use crate::decode::{
    DeviceFile, DeviceImage, DeviceProblem, DeviceRefusal, DeviceRoom, Fingerprint, JPEG_KERNELS,
    JpegParams, RowIndex, RowIndexTask, jpeg_kernels_text,
};
use crate::error::{DataError, Error, Result};
use crate::gpu::nvjpeg::DecodeError;
use crate::gpu::{DeviceBuffer, Download, Kernel, Staged, Stopwatch, Stream, copy_from_page};
use crate::header::JpegLayout;
use crate::loader::balance::RouteQueue;
use crate::loader::device::decoder::{
    DeviceDecoder, GroupDecoder, Opened, Opening, Request, Submission, WorkerParts,
};
use crate::loader::device::file_memory::FileMemory;
use crate::loader::device::router::Submitted;
use crate::loader::device::{Gathered, Keeps, KeptFile, KeptIndex, Pixels, Waiting};
use crate::loader::sample::cache::{Caches, DeviceFiles};
use crate::loader::sample::policy::ProduceError;
use crate::plan::{FeedwaterCall, PROBLEM_BYTES, SamplePlan, rows};

/// Reason for decoding an image on the CPU if a call has too little memory for it.
const TOO_LARGE: &str = "it does not fit into the decoder's memory";

/// Part of the decoder that workers use. It describes images to the kernels.
struct Feedwater {
    queue: RouteQueue,
    room: DeviceRoom,
}

/// Kernels, and the memory of the calls. The files of one call are uploaded while the kernels of
/// another one run.
struct Calls {
    kernels: Vec<Kernel>,
    memory: FeedwaterCall,
    /// Device memory of files, if they are cached there.
    files: Option<FileMemory>,
    /// Running calls first, in their order.
    calls: VecDeque<Call>,
    running: usize,
}

/// Memory of a call.
struct Call {
    /// Parameters, problems and tables of the images.
    tables: Staged,
    arrays: DeviceBuffer,
    problems: Download,
    /// Row indexes that the kernels have made, at multiples of the size of an image's tables.
    made: Download,
    /// For each image, the part of the device memory of files that its file takes, until it is
    /// known whether the file is kept.
    parts: Vec<Option<Range<usize>>>,
}

pub(super) const ENTRY: Entry = Entry { backend: None, open };

/// Compiles the kernels, and allocates the planned calls.
fn open(opening: &Opening<'_>) -> Result<Opened> {
    let (planned, plan) = (opening.route, opening.on_device);
    let group = planned.group;
    let memory = FeedwaterCall::new(plan.image_pixels, plan.encoded_bytes, group);
    let names = JPEG_KERNELS.iter().map(|kernel| kernel.name);
    let (text, params) = (jpeg_kernels_text(), size_of::<JpegParams>());
    let kernels = Kernel::load_all(opening.device, &text, names, params)?;
    let row = rows::decoder(planned.route);
    let call = || {
        let tables = opening.device_pool.buffer(row, memory.tables_bytes)?;
        Ok(Call {
            tables: Staged::new(opening.pinned_pool.buffer(row, memory.tables_bytes)?, tables)?,
            arrays: opening.device_pool.buffer(row, memory.arrays_bytes)?,
            problems: Download::new(opening.pinned_pool.buffer(row, memory.problems_bytes)?)?,
            made: Download::new(opening.pinned_pool.buffer(row, memory.made_bytes)?)?,
            parts: Vec::with_capacity(group),
        })
    };
    let files = plan.files.map(|files| opening.device_pool.buffer(rows::FILES, files.device_bytes));
    let files = files.transpose()?.map(FileMemory::new);
    let calls = (0..planned.decoders).map(|_| call()).collect::<Result<_>>()?;
    let capacity = group * (planned.decoders + 1);
    let queue = RouteQueue { route: planned.route, parallel: group, capacity };
    let decoder = Box::new(Feedwater { queue, room: memory.room });
    Ok(Opened {
        decoder,
        group: Some(Box::new(Calls { kernels, memory, files, calls, running: 0 })),
    })
}

impl DeviceDecoder for Feedwater {
    fn queue(&self) -> RouteQueue {
        self.queue
    }

    fn accepts(&self, image: &Request<'_>, sample: &SamplePlan) -> Result<usize, &'static str> {
        let SamplePlan { reduction, stored_window, .. } = *sample;
        image.must_be_in_page()?;
        let planes = DeviceImage::planes_of(image.header(), (stored_window, reduction));
        planes.map(|planes| planes.bytes).map_err(DeviceRefusal::reason)
    }

    fn submit(
        &self,
        image: &Request<'_>,
        worker: &mut WorkerParts<'_>,
        submitted: Submitted,
    ) -> Result<Submission, ProduceError> {
        let sample = worker.pipeline.decoded();
        let SamplePlan { stored, stored_window, orientation, reduction, .. } = *sample;
        let described = match image.planned.on_device() {
            Some(file) => {
                let jpeg = file.image(image.header(), (stored_window, reduction));
                jpeg.map(|jpeg| Described { jpeg, place: Some(file.place), keeps: None })
            }
            None => {
                let number = worker.pipeline.original(image.planned);
                describe_read(image, worker.pipeline.caches(), number, sample)?
            }
        };
        let Described { jpeg, place, keeps } = match described {
            Ok(described) => described,
            Err(refusal) => return Ok(Submission::Refused(refusal.reason())),
        };
        if !self.room.holds(&jpeg.memory()) {
            return Ok(Submission::Refused(TOO_LARGE));
        }
        let planes = Some(jpeg.planes());
        let pixels = Pixels { window: stored_window, stored, orientation, first: 0, planes };
        let gathered = Gathered {
            submitted,
            len: image.planned.len(),
            image: image.header().size,
            class: None,
            wanted: stored_window,
            reduction,
            jpeg: Some(Box::new(jpeg)),
            place,
            keeps,
        };
        Ok(Submission::Gathered(pixels, gathered))
    }
}

/// Description of an image for its call.
struct Described {
    jpeg: DeviceImage,
    /// Place of the coded data, if it is in the device memory of files.
    place: Option<u64>,
    keeps: Option<Box<Keeps>>,
}

/// Describes an image whose file is in the page, and what to keep of it.
fn describe_read(
    image: &Request<'_>,
    (caches, epoch): (&Arc<Caches>, u32),
    number: u64,
    &SamplePlan { stored_window, reduction, .. }: &SamplePlan,
) -> Result<Result<Described, DeviceRefusal>, DataError> {
    let (bytes, header) = (image.bytes(), image.header());
    let mut layout = JpegLayout::default();
    header.layout(bytes, true, &mut layout)?;
    let [scan] = layout.scans() else { return Ok(Err(DeviceRefusal::SCANS)) };
    let describe =
        |index| DeviceImage::new(bytes, header, &layout, (stored_window, reduction), index);
    let task = match &caches.row_indexes {
        Some(indexes) => indexes.task(bytes, epoch),
        None => RowIndexTask::None,
    };
    let file =
        caches.device.as_ref().filter(|files| files.has_room(number, scan.data.len() as u64)).map(
            |_| KeptFile {
                number,
                header: header.clone(),
                coded: scan.data.clone(),
                restarts: layout.restarts(scan).to_vec(),
            },
        );
    let (described, index, stores_index) = match task {
        RowIndexTask::Use(index) => match describe(Some(&index)) {
            Err(DeviceRefusal::Index) => {
                caches.row_indexes.iter().for_each(|indexes| indexes.reject(bytes));
                (describe(None), KeptIndex::None, false)
            }
            described => (described, KeptIndex::Used(index), false),
        },
        RowIndexTask::Make(file) => (describe(None), KeptIndex::Made(file), true),
        // Without an index, each epoch would decode the whole image.
        RowIndexTask::None if file.is_some() => {
            (describe(None), KeptIndex::Made(Fingerprint::of(bytes, 0)), false)
        }
        RowIndexTask::None => (describe(None), KeptIndex::None, false),
    };
    let mut jpeg = match described {
        Ok(jpeg) => jpeg,
        Err(refusal) => return Ok(Err(refusal)),
    };
    if let KeptIndex::Made(_) = index {
        jpeg.make_index();
    }
    let keeps = (stores_index || file.is_some())
        .then(|| Box::new(Keeps { caches: caches.clone(), index, stores_index, file }));
    Ok(Ok(Described { jpeg, place: None, keeps }))
}

impl GroupDecoder for Calls {
    fn calls(&self) -> usize {
        self.calls.len()
    }

    fn lanes(&self) -> usize {
        1
    }

    fn trusts_groups(&self) -> bool {
        true
    }

    fn room_bytes(&self) -> usize {
        self.memory.arrays_bytes
    }

    fn image_bytes(&self, waiting: &Waiting) -> usize {
        waiting.gathered.jpeg.as_ref().map_or(0, |jpeg| arrays_bytes(jpeg))
    }

    fn warm_up(&mut self, stream: &Stream) -> Result<()> {
        self.kernels.iter().try_for_each(|kernel| kernel.warm_up(stream))
    }

    fn refused(&self, _: &Waiting) {}

    /// Keeps the row index and the file of an image.
    fn decoded(&mut self, waiting: &Waiting, number: usize) -> Result<()> {
        let Gathered { jpeg, keeps, len, .. } = &waiting.gathered;
        // The call that was finished last is the next one to be used again.
        let (Some(jpeg), Some(keeps), Some(call)) = (jpeg, keeps, self.calls.back_mut()) else {
            return Ok(());
        };
        let Keeps { caches, index, stores_index, file } = &**keeps;
        let index = match index {
            KeptIndex::None => None,
            KeptIndex::Used(index) => Some(index.clone()),
            KeptIndex::Made(fingerprint) => {
                let made = jpeg.memory().made().len();
                let made = &call.made.bytes()?[number * self.memory.room.tables..][..made];
                // Without memory for the index, the next epoch makes it.
                let written = jpeg.row_index(made, *fingerprint).unwrap_or_default();
                if let (Some(indexes), true) = (&caches.row_indexes, *stores_index) {
                    indexes.keep(*fingerprint, &written);
                }
                RowIndex::read(written.into())
            }
        };
        let part = call.parts.get_mut(number).and_then(Option::take);
        let (Some(file), Some(files), Some(part)) = (file, &caches.device, part) else {
            return Ok(());
        };
        let page = waiting.page.encoded.as_ref().and_then(|page| page.get(0..*len));
        let index = index.filter(|_| file.restarts.is_empty());
        let coded = (file.coded.clone(), &file.restarts[..]);
        let kept = page
            .and_then(|bytes| DeviceFile::write(part.start as u64, bytes, coded, index.as_ref()));
        let taken = part.len() as u64;
        if !kept.is_some_and(|kept| files.keep(file.number, &file.header, &kept, taken)) {
            give_back(&mut self.files, waiting, Some(part));
        }
        Ok(())
    }

    fn failed(&mut self, waiting: &Waiting, number: usize) {
        let part = self.calls.back_mut().and_then(|call| call.parts.get_mut(number)?.take());
        give_back(&mut self.files, waiting, part);
    }

    fn decode(
        &mut self,
        stream: &Stream,
        group: &[Waiting],
        clock: &Stopwatch,
    ) -> Result<(), DecodeError> {
        let enqueued = self.enqueue(stream, group, clock);
        if let (Err(_), Some(call)) = (&enqueued, self.calls.get_mut(self.running)) {
            // The loader ends, because a driver call has failed.
            let parts = group.iter().zip(call.parts.drain(..));
            parts.for_each(|(waiting, part)| give_back(&mut self.files, waiting, part));
        }
        enqueued
    }

    fn finish(&mut self) -> Result<Vec<Result<(), &'static str>>> {
        let Some((others, call)) = self.running.checked_sub(1).zip(self.calls.front()) else {
            return Ok(Vec::new());
        };
        let problems = call.problems.bytes()?.as_chunks::<PROBLEM_BYTES>().0;
        let outcome = |problem: &[u8; PROBLEM_BYTES]| {
            let [a, b, c, d, ..] = *problem;
            let problem = DeviceProblem::of(u32::from_ne_bytes([a, b, c, d]));
            problem.map_or(Ok(()), |problem| Err(problem.reason()))
        };
        let outcomes = problems.iter().take(call.parts.len()).map(outcome).collect();
        self.running = others;
        self.calls.rotate_left(1);
        Ok(outcomes)
    }
}

impl Calls {
    /// Enqueues a call.
    fn enqueue(
        &mut self,
        stream: &Stream,
        group: &[Waiting],
        clock: &Stopwatch,
    ) -> Result<(), DecodeError> {
        let Self { kernels, memory, files, calls, running } = self;
        let call = calls.get_mut(*running).ok_or_else(|| Error::Internal {
            problem: format!("all {running} calls of the route feedwater are running"),
        })?;
        let mut lap = clock.lap()?;
        lap.start(stream)?;
        let mut blocks = [0; JPEG_KERNELS.len()];
        let mut arrays = 0;
        call.parts.clear();
        for (number, waiting) in group.iter().enumerate() {
            call.parts.push(files.as_mut().and_then(|files| take_part(files, waiting)));
            let jpeg =
                call.describe(stream, (memory, files.as_ref()), (number, arrays), waiting)?;
            arrays += arrays_bytes(jpeg);
            for (blocks, kernel) in blocks.iter_mut().zip(JPEG_KERNELS) {
                *blocks = kernel.blocks(jpeg).max(*blocks);
            }
        }
        let tables = memory.own_tables + group.len() * memory.room.tables;
        call.tables.upload(stream, 0..tables)?;
        for ((kernel, launch), blocks) in kernels.iter().zip(JPEG_KERNELS).zip(blocks) {
            let count = group.len() as u32;
            kernel.launch_blocks(
                stream,
                call.tables.device(),
                0,
                (count, blocks),
                launch.threads,
            )?;
        }
        let problems = memory.problems..memory.problems + group.len() * PROBLEM_BYTES;
        call.problems.copy(stream, call.tables.device(), problems, 0)?;
        for (number, waiting) in group.iter().enumerate() {
            let made = waiting.gathered.jpeg.as_ref().map_or(0..0, |it| it.memory().made());
            let own = memory.own_tables + number * memory.room.tables;
            let range = own + made.start..own + made.end;
            let to = number * memory.room.tables;
            call.made.copy(stream, call.tables.device(), range, to)?;
        }
        lap.stop(stream, group.len() as u64)?;
        *running += 1;
        Ok(())
    }
}

impl Call {
    /// Writes the parameters and tables of image number `number`, and enqueues the upload of its
    /// coded data, unless that is on the device. The arrays of the image begin at the offset
    /// `arrays`. The page is not published, and so its file stays unchanged, until the call has
    /// ended.
    fn describe<'a>(
        &mut self,
        stream: &Stream,
        (memory, files): (&FeedwaterCall, Option<&FileMemory>),
        (number, arrays): (usize, usize),
        Waiting { page, gathered }: &'a Waiting,
    ) -> Result<&'a DeviceImage> {
        let missing = |what| Error::Internal { problem: format!("a page without {what}") };
        let jpeg = gathered.jpeg.as_deref().ok_or_else(|| missing("a JPEG for the kernels"))?;
        let file = || page.encoded.as_ref().ok_or_else(|| missing("a file"));
        let of_image = jpeg.memory();
        let own = memory.own_tables + number * memory.room.tables;
        let problem = memory.problems + number * PROBLEM_BYTES;
        let (tables_at, arrays_at) = (self.tables.device().address(), self.arrays.address());
        stream.wait(&page.read)?;
        let kept = gathered.keeps.as_ref().and_then(|keeps| keeps.file.as_ref());
        let part = self.parts[number].clone().zip(kept);
        let data_at = match (files, gathered.place, part) {
            (Some(files), Some(place), _) => {
                files.buffer.address() + place + jpeg.data().start as u64
            }
            (Some(files), None, Some((part, KeptFile { coded, .. }))) => {
                copy_from_page(stream, file()?, coded.clone(), &files.buffer, part.start)?;
                files.buffer.address() + (part.start + jpeg.data().start - coded.start) as u64
            }
            _ => {
                copy_from_page(stream, file()?, jpeg.data(), &self.arrays, arrays)?;
                arrays_at + arrays as u64
            }
        };
        let at = |offset: usize| match offset {
            _ if offset == of_image.problem => tables_at + problem as u64,
            _ if offset < of_image.data => tables_at + (own + offset) as u64,
            _ if offset == of_image.data => data_at,
            _ => arrays_at + (arrays + offset - of_image.data) as u64,
        };
        let tables = self.tables.bytes()?;
        let params = jpeg.write(&mut tables[own..][..of_image.data], at, page.pixels.address());
        tables[problem..][..PROBLEM_BYTES].fill(0);
        let size = size_of::<JpegParams>();
        tables[number * size..][..size].copy_from_slice(params.bytes());
        Ok(jpeg)
    }
}

/// Size of an image's arrays in the memory of a call, in bytes.
fn arrays_bytes(jpeg: &DeviceImage) -> usize {
    jpeg.memory().arrays_bytes().next_multiple_of(256)
}

/// Takes device memory for the file of an image, if the file is to be kept.
fn take_part(files: &mut FileMemory, waiting: &Waiting) -> Option<Range<usize>> {
    let keeps = waiting.gathered.keeps.as_ref()?;
    let bytes = keeps.file.as_ref()?.coded.len();
    let part = files.take(bytes);
    if let (None, Some(cache)) = (&part, &keeps.caches.device) {
        cache.did_not_fit(bytes as u64);
    }
    part
}

/// Gives back the device memory of a file that is not kept.
fn give_back(files: &mut Option<FileMemory>, waiting: &Waiting, part: Option<Range<usize>>) {
    if let (Some(files), Some(part)) = (files, part) {
        files.give_back(part);
        let cache = waiting.gathered.keeps.as_ref().and_then(|it| it.caches.device.as_ref());
        cache.into_iter().for_each(DeviceFiles::given_back);
    }
}
