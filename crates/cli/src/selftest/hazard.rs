//! Checks for a hazard of the JPEG engines of Hopper GPUs. The engines write their output as soon
//! as they are called. They do not wait for the earlier work in their stream.
//!
//! The first check calls nvJPEG directly and does not wait on the host. It counts how often the
//! hazard occurs on this device. The second check runs a loader, which waits on the host. Its
//! batches must not change if the consumer's work runs late.

use std::sync::Arc;

use feedwater::footprint::{Footprint, Memory as Sort};
use feedwater::gpu::{Event, Stream};
use feedwater::internals::geometry::Size;
use feedwater::internals::gpu::nvjpeg::{self, Backend, BatchDecoder, BatchJob, HostIdle, Jpeg};
use feedwater::internals::gpu::{DevicePool, PinnedPool, copy, fill, read_back};
use feedwater::internals::tensor::{DType, Layout};
use feedwater::loader::{LoaderBuilder, Outcome};
use feedwater::op::{Chain, RandomResizedCrop};
use feedwater::plan::Route;
use feedwater::source::Memory;

use super::gpu::Gpu;
use super::images::{self, SORTS};
use super::{Check, Found, epoch, message, skipped};

const IMAGE: Size = Size::new(320, 240);

/// Returns three checks: of the hazard itself, of a loader, and of images that a call skips.
pub fn checks(gpu: &Gpu) -> Vec<Check> {
    let names = ["gpu/hazard/by-hand", "gpu/hazard/loader", "gpu/hazard/skipped"];
    match gpu.offers(Route::NvjpegHardware) {
        Err(why) => names.map(|name| Check::skip(name, why.clone())).into(),
        Ok(()) => {
            let found = [by_hand_of(gpu), the_loader_waits(gpu), skipped::check(gpu)];
            names.into_iter().zip(found).map(|(name, found)| Check::new(name, found)).collect()
        }
    }
}

/// Queues much work that writes a page, and then decodes an image into the same page. In stream
/// order, the image is written last.
///
/// Without a wait on the host, counts how often the engines write too early. With a wait on the
/// host, the image must be correct.
fn by_hand_of(gpu: &Gpu) -> Found {
    const ROUNDS: u32 = 20;
    const FILLS: u8 = 200;
    let window = IMAGE.window();
    let page_bytes = window.pitched_bytes();
    let file = images::jpeg(0, IMAGE, SORTS[2])?;
    let run = || -> feedwater::Result<(u32, u32)> {
        let device = &gpu.device;
        let mut rows = Footprint::default();
        rows.add(Sort::Device, "page", page_bytes as u64, 1, "");
        // This is more memory than nvJPEG needs, because this check does not test the use of
        // memory.
        rows.add(Sort::Device, "nvjpeg", 256 << 20, 1, "");
        rows.add(Sort::Pinned, "nvjpeg", 32 << 20, 1, "");
        rows.add(Sort::Pinned, "file", file.len() as u64, 1, "");
        let memory = DevicePool::take(device, &rows)?;
        let pinned = PinnedPool::take(device, &rows)?;
        let stream = Stream::new(device)?;
        let source =
            nvjpeg::Memory { device: memory.clone(), pinned: pinned.clone(), row: "nvjpeg".into() };
        let jpeg = Jpeg::open(device, Backend::Hardware, &source)?;
        let mut decoder = BatchDecoder::new(&jpeg, 1, IMAGE)?;
        let mut bytes = pinned.buffer("file", file.len())?;
        bytes.copy_from_slice(&file);
        let page = memory.buffer("page", page_bytes)?;
        let (unused, used) = (Event::new(device)?, Event::new(device)?);
        let mut decode = |fills: u8, last_use: &Event| -> feedwater::Result<Vec<u8>> {
            decoder.done().synchronize()?;
            for value in 0..fills {
                fill(&stream, &page, 0..page_bytes, value)?;
            }
            used.record(&stream)?;
            let job = BatchJob {
                bytes: &bytes,
                image: IMAGE,
                wanted: window,
                reduction: 1,
                destination: HostIdle::wait(&page, last_use)?,
            };
            decoder
                .decode(&stream, &[job])
                .map_err(|error| feedwater::Error::Internal { problem: format!("{error:?}") })?;
            let mut rows = vec![0; page_bytes];
            read_back(&stream, &page, 0, &mut rows)?;
            // Remove the padding after each row, which has undefined values.
            let rows = rows.chunks_exact(window.pitch_bytes() as usize);
            Ok(rows.map(|row| &row[..3 * window.width as usize]).collect::<Vec<_>>().concat())
        };
        let right = decode(0, &used)?;
        let (mut ahead, mut wrong) = (0, 0);
        for _ in 0..ROUNDS {
            // Deliberate misuse: `unused` was never recorded, so waiting for it returns at once.
            ahead += u32::from(decode(FILLS, &unused)? != right);
            wrong += u32::from(decode(FILLS, &used)? != right);
        }
        Ok((ahead, wrong))
    };
    let (ahead, wrong) = run().map_err(message)?;
    let message = format!(
        "without a wait on the host, the JPEG engines write before earlier work of their stream \
         has ended, in {ahead} of {ROUNDS} rounds"
    );
    match wrong {
        0 => Ok(format!("{message}; with a wait on the host, they do so in no round")),
        _ => Err(format!(
            "{message}; with a wait on the host, they still do so in {wrong} of {ROUNDS} rounds"
        )),
    }
}

/// Runs a loader with few pages, which are reused quickly. The consumer copies the batches, but its
/// copies are queued behind much unrelated work. Each copy must equal the batch of an undisturbed
/// run.
fn the_loader_waits(gpu: &Gpu) -> Found {
    const BATCHES: usize = 24;
    const FILLS: u8 = 250;
    const SCRATCH: usize = 1 << 20;
    let files = (0..4 * BATCHES as u64).map(|index| {
        Ok::<_, String>((images::jpeg(index, Size::new(96, 80), SORTS[index as usize % 4])?, 0))
    });
    let source = Arc::new(Memory::new(files.collect::<Result<_, _>>()?).map_err(message)?);
    let make = || {
        let chain = Chain::new().then(RandomResizedCrop::to(40, 40));
        let builder = LoaderBuilder::new(source.clone(), chain)
            .shard(0, 1)
            .configure(|it| it.loader.tune = false);
        let builder =
            builder.batch_size(4).num_workers(2).prefetch(1).output(DType::U8, Layout::Nhwc);
        gpu.on_route(builder, Route::NvjpegHardware)
    };
    let limit = small_limit(make)?;
    let make = || make().configure(|it| it.limits.device_memory = Some(limit)).epochs(Some(1));
    let calm = epoch(make())?;
    let other = calm
        .records
        .iter()
        .find(|record| record.outcome != Outcome::Decoded(Route::NvjpegHardware));
    if let Some(record) = other {
        return Err(format!("image {} was decoded by {}", record.index, record.outcome.name()));
    }
    let run = || -> feedwater::Result<(usize, Vec<u8>)> {
        let consumer = Arc::new(Stream::new(&gpu.device)?);
        let batch_bytes = calm.data.len() / BATCHES;
        let mut rows = Footprint::default();
        rows.add(Sort::Device, "scratch", SCRATCH as u64, 1, "");
        rows.add(Sort::Device, "copies", batch_bytes as u64, BATCHES as u64, "");
        let memory = DevicePool::take(&gpu.device, &rows)?;
        let scratch = memory.buffer("scratch", SCRATCH)?;
        let copies = (0..BATCHES)
            .map(|_| memory.buffer("copies", batch_bytes))
            .collect::<Result<Vec<_>, _>>()?;
        let mut loader = make().stream(consumer.clone()).build()?;
        let pages = loader.plan().device.as_ref().map_or(0, |device| device.pages);
        for (batch, target) in loader.epoch().zip(&copies) {
            let batch = batch?;
            for value in 0..FILLS {
                fill(&consumer, &scratch, 0..SCRATCH, value)?;
            }
            if let Some(tensor) = batch.device_buffer() {
                copy(&consumer, tensor, target, batch_bytes)?;
            }
        }
        let mut seen = vec![0; calm.data.len()];
        for (copied, bytes) in copies.iter().zip(seen.chunks_exact_mut(batch_bytes)) {
            read_back(&consumer, copied, 0, bytes)?;
        }
        Ok((pages, seen))
    };
    let (pages, seen) = run().map_err(message)?;
    match seen.iter().zip(&calm.data).position(|(a, b)| a != b) {
        None => Ok(format!(
            "{BATCHES} batches that passed through {pages} pages have the right pixels, although \
             the consumer's stream copied them after much unrelated work"
        )),
        Some(at) => Err(format!(
            "batch {} has wrong pixels if the consumer's stream has much work to finish before \
                 it copies the batch",
            at * BATCHES / seen.len()
        )),
    }
}

/// Returns a limit of device memory that is slightly above the minimum of a loader.
fn small_limit(make: impl Fn() -> LoaderBuilder) -> Result<u64, String> {
    let fits = |limit| make().configure(|it| it.limits.device_memory = Some(limit)).plan().is_ok();
    let plan = make().plan().map_err(message)?;
    let mut limit = plan.footprint.total_bytes(Sort::Device);
    while fits(limit / 4 * 3) {
        limit = limit / 4 * 3;
    }
    Ok(limit)
}
