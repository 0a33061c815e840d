//! Route of feedwater's own decoder: kernels decode many images of any size per call, to planes of
//! samples.

use std::collections::VecDeque;

use super::Entry;
use crate::decode::{
    DeviceImage, DeviceProblem, DeviceRefusal, DeviceRoom, JPEG_KERNELS, JpegParams, RowIndexTask,
    jpeg_kernels_text,
};
use crate::error::{Error, Result};
use crate::gpu::nvjpeg::DecodeError;
use crate::gpu::{DeviceBuffer, Download, Kernel, Staged, Stopwatch, Stream, copy_from_page};
use crate::header::JpegLayout;
use crate::loader::balance::RouteQueue;
use crate::loader::device::decoder::{
    DeviceDecoder, GroupDecoder, Opened, Opening, Request, Submission, WorkerParts,
};
use crate::loader::device::router::Submitted;
use crate::loader::device::{Gathered, Pixels, Waiting};
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
    /// Number of images.
    count: usize,
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
            count: 0,
        })
    };
    let calls = (0..planned.decoders).map(|_| call()).collect::<Result<_>>()?;
    let capacity = group * (planned.decoders + 1);
    let queue = RouteQueue { route: planned.route, parallel: group, capacity };
    let decoder = Box::new(Feedwater { queue, room: memory.room });
    Ok(Opened { decoder, group: Some(Box::new(Calls { kernels, memory, calls, running: 0 })) })
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
        let (bytes, header) = (image.bytes(), image.header());
        let mut layout = JpegLayout::default();
        header.layout(bytes, true, &mut layout)?;
        let (caches, epoch) = worker.pipeline.caches();
        let task = match &caches.row_indexes {
            Some(indexes) => indexes.task(bytes, epoch),
            None => RowIndexTask::None,
        };
        let describe =
            |index| DeviceImage::new(bytes, header, &layout, (stored_window, reduction), index);
        let mut makes_index = None;
        let described = match task {
            RowIndexTask::None => describe(None),
            RowIndexTask::Make(file) => {
                makes_index = Some((caches.clone(), file));
                describe(None)
            }
            RowIndexTask::Use(index) => match describe(Some(&index)) {
                Err(DeviceRefusal::Index) => {
                    caches.row_indexes.iter().for_each(|indexes| indexes.reject(bytes));
                    describe(None)
                }
                described => described,
            },
        };
        let mut jpeg = match described {
            Ok(jpeg) => jpeg,
            Err(refusal) => return Ok(Submission::Refused(refusal.reason())),
        };
        if makes_index.is_some() {
            jpeg.make_index();
        }
        if !self.room.holds(&jpeg.memory()) {
            return Ok(Submission::Refused(TOO_LARGE));
        }
        let planes = Some(jpeg.planes());
        let pixels = Pixels { window: stored_window, stored, orientation, first: 0, planes };
        let gathered = Gathered {
            submitted,
            len: bytes.len(),
            image: header.size,
            class: None,
            wanted: stored_window,
            reduction,
            jpeg: Some(Box::new(jpeg)),
            makes_index,
        };
        Ok(Submission::Gathered(pixels, gathered))
    }
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

    /// Keeps the row index of an image.
    fn decoded(&self, waiting: &Waiting, number: usize) -> Result<()> {
        let Gathered { jpeg, makes_index, .. } = &waiting.gathered;
        // The call that was finished last is the next one to be used again.
        let (Some(jpeg), Some((caches, file)), Some(call)) = (jpeg, makes_index, self.calls.back())
        else {
            return Ok(());
        };
        let len = jpeg.memory().made().len();
        let made = &call.made.bytes()?[number * self.memory.room.tables..][..len];
        // Without memory for the index, the next epoch makes it.
        if let (Some(indexes), Ok(index)) = (&caches.row_indexes, jpeg.row_index(made, *file)) {
            indexes.keep(*file, &index);
        }
        Ok(())
    }

    fn decode(
        &mut self,
        stream: &Stream,
        group: &[Waiting],
        clock: &Stopwatch,
    ) -> Result<(), DecodeError> {
        let Self { kernels, memory, calls, running } = self;
        let call = calls.get_mut(*running).ok_or_else(|| Error::Internal {
            problem: format!("all {running} calls of the route feedwater are running"),
        })?;
        let mut lap = clock.lap()?;
        lap.start(stream)?;
        let mut blocks = [0; JPEG_KERNELS.len()];
        let mut arrays = 0;
        for (number, waiting) in group.iter().enumerate() {
            let jpeg = call.describe(stream, memory, (number, arrays), waiting)?;
            arrays += arrays_bytes(jpeg);
            for (blocks, kernel) in blocks.iter_mut().zip(JPEG_KERNELS) {
                *blocks = kernel.blocks(jpeg).max(*blocks);
            }
        }
        call.count = group.len();
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

    fn finish(&mut self) -> Result<Vec<Result<(), &'static str>>> {
        let running = self.running.checked_sub(1).zip(self.calls.front());
        let Some((others, call)) = running else { return Ok(Vec::new()) };
        let problems = call.problems.bytes()?.as_chunks::<PROBLEM_BYTES>().0;
        let outcome = |problem: &[u8; PROBLEM_BYTES]| {
            let [a, b, c, d, ..] = *problem;
            let problem = DeviceProblem::of(u32::from_ne_bytes([a, b, c, d]));
            problem.map_or(Ok(()), |problem| Err(problem.reason()))
        };
        let outcomes = problems.iter().take(call.count).map(outcome).collect();
        self.running = others;
        self.calls.rotate_left(1);
        Ok(outcomes)
    }
}

impl Call {
    /// Writes the parameters and tables of image number `number`, and enqueues the upload of its
    /// coded data. The arrays of the image begin at the offset `arrays`. The page is not published, and so its file stays unchanged, until the call has
    /// ended.
    fn describe<'a>(
        &mut self,
        stream: &Stream,
        memory: &FeedwaterCall,
        (number, arrays): (usize, usize),
        Waiting { page, gathered }: &'a Waiting,
    ) -> Result<&'a DeviceImage> {
        let missing = |what| Error::Internal { problem: format!("a page without {what}") };
        let jpeg = gathered.jpeg.as_deref().ok_or_else(|| missing("a JPEG for the kernels"))?;
        let file = page.encoded.as_ref().ok_or_else(|| missing("a file"))?;
        let of_image = jpeg.memory();
        let own = memory.own_tables + number * memory.room.tables;
        let problem = memory.problems + number * PROBLEM_BYTES;
        let (tables_at, arrays_at) = (self.tables.device().address(), self.arrays.address());
        let at = |offset: usize| match offset {
            _ if offset == of_image.problem => tables_at + problem as u64,
            _ if offset < of_image.data => tables_at + (own + offset) as u64,
            _ => arrays_at + (arrays + offset - of_image.data) as u64,
        };
        let tables = self.tables.bytes()?;
        let params = jpeg.write(&mut tables[own..][..of_image.data], at, page.pixels.address());
        tables[problem..][..PROBLEM_BYTES].fill(0);
        let size = size_of::<JpegParams>();
        tables[number * size..][..size].copy_from_slice(params.bytes());
        stream.wait(&page.read)?;
        copy_from_page(stream, file, jpeg.data(), &self.arrays, arrays)?;
        Ok(jpeg)
    }
}

/// Size of an image's arrays in the memory of a call, in bytes.
fn arrays_bytes(jpeg: &DeviceImage) -> usize {
    jpeg.memory().arrays_bytes().next_multiple_of(256)
}
