//! Check for a fault that was seen on RTX 50 GPUs: a call of the JPEG engines skips some of its
//! images but reports success.
//!
//! Before each call, all bytes of every page are set to `POISON`. If a page is unchanged after the
//! call, its image was skipped. The decoder of the library inspects only 64 bytes of each page.
//! This decoder must detect the same skipped images.

use feedwater::footprint::{Footprint, Memory as Sort};
use feedwater::gpu::{Event, Stream};
use feedwater::internals::geometry::Size;
use feedwater::internals::gpu::nvjpeg::{self, Backend, BatchDecoder, BatchJob, HostIdle, Jpeg};
use feedwater::internals::gpu::{DevicePool, PinnedPool, fill, read_back};

use super::gpu::Gpu;
use super::images::{self, SORTS};
use super::{Found, message};

const IMAGE: Size = Size::new(320, 240);
const POISON: u8 = 0xA5;

/// Numbers of images per call. Each number is tested in [`ROUNDS`] calls.
const GROUPS: [usize; 4] = [2, 7, 14, 28];
const ROUNDS: usize = 12;

/// Counts skipped images in calls of several sizes.
pub fn check(gpu: &Gpu) -> Found {
    let files = (0..GROUPS[3] as u64).map(|index| images::jpeg(index, IMAGE, SORTS[2]));
    let files = files.collect::<Result<Vec<_>, _>>()?;
    let mut found = Vec::new();
    for group in GROUPS {
        let Counts { skipped, unnoticed, wrong } = count(gpu, &files[..group]).map_err(message)?;
        let all = ROUNDS * group;
        let counts = format!("{skipped} of {all} images in calls of {group} images");
        match (unnoticed, wrong) {
            (0, 0) => found.push(counts),
            _ => {
                return Err(format!(
                    "the JPEG engines skipped {counts}; the decoder's report is wrong for \
                     {unnoticed} images; the pixels of {wrong} images differ from those of the same \
                     images decoded alone"
                ));
            }
        }
    }
    Ok(format!(
        "the JPEG engines skipped these images, and the decoder reported all of them, so that \
         they can be decoded on the CPU: {}",
        found.join(", ")
    ))
}

#[derive(Default)]
struct Counts {
    /// Number of images whose page was not written.
    skipped: usize,
    /// Number of images for which the decoder's report is wrong: skipped but reported as written,
    /// or written but reported as skipped.
    unnoticed: usize,
    /// Number of images whose pixels differ from those of a call with this image alone.
    wrong: usize,
}

fn count(gpu: &Gpu, files: &[Vec<u8>]) -> feedwater::Result<Counts> {
    let (device, group, window) = (&gpu.device, files.len(), IMAGE.window());
    let page_bytes = window.pitched_bytes();
    let longest = files.iter().map(Vec::len).max().unwrap_or(0);
    let mut rows = Footprint::default();
    rows.add(Sort::Device, "pages", page_bytes as u64, group as u64, "");
    // This is more memory than nvJPEG needs, because this check does not test the use of memory.
    rows.add(Sort::Device, "nvjpeg", 256 << 20, 1, "");
    rows.add(Sort::Pinned, "nvjpeg", 32 << 20, 1, "");
    rows.add(Sort::Pinned, "files", longest as u64, group as u64, "");
    let memory = DevicePool::take(device, &rows)?;
    let pinned = PinnedPool::take(device, &rows)?;
    let stream = Stream::new(device)?;
    let source =
        nvjpeg::Memory { device: memory.clone(), pinned: pinned.clone(), row: "nvjpeg".into() };
    let jpeg = Jpeg::open(device, Backend::Hardware, &source)?;
    let mut decoder = BatchDecoder::new(&jpeg, group, IMAGE)?;
    let files = files.iter().map(|file| {
        let mut bytes = pinned.buffer("files", file.len())?;
        bytes.copy_from_slice(file);
        Ok(bytes)
    });
    let files = files.collect::<feedwater::Result<Vec<_>>>()?;
    let pages = files.iter().map(|_| memory.buffer("pages", page_bytes));
    let pages = pages.collect::<feedwater::Result<Vec<_>>>()?;
    let filled = Event::new(device)?;
    // Decodes these images in one call. Returns the bytes of each page, and whether the decoder
    // reports the page as written.
    let mut decode = |places: std::ops::Range<usize>| -> feedwater::Result<Vec<(Vec<u8>, bool)>> {
        for page in &pages[places.clone()] {
            fill(&stream, page, 0..page_bytes, POISON)?;
        }
        filled.record(&stream)?;
        let jobs = files[places.clone()].iter().zip(&pages[places.clone()]).map(|(bytes, page)| {
            let destination = HostIdle::wait(page, &filled)?;
            Ok(BatchJob { bytes, image: IMAGE, wanted: window, reduction: 1, destination })
        });
        let jobs = jobs.collect::<feedwater::Result<Vec<_>>>()?;
        decoder
            .decode(&stream, &jobs)
            .map_err(|error| feedwater::Error::Internal { problem: format!("{error:?}") })?;
        let written = decoder.written()?;
        let seen = pages[places].iter().zip(written).map(|(page, written)| {
            let mut rows = vec![0; page_bytes];
            read_back(&stream, page, 0, &mut rows)?;
            Ok((rows, written))
        });
        seen.collect()
    };
    // Compare only pixels. The bytes between rows are undefined, and the decoder writes a stamp
    // into the last row.
    let pitch = window.pitch_bytes() as usize;
    let pixels = |rows: &[u8]| -> Vec<u8> {
        let rows = rows.chunks_exact(pitch).take(IMAGE.height as usize - 1);
        rows.map(|row| &row[..3 * IMAGE.width as usize]).collect::<Vec<_>>().concat()
    };
    let poisoned = [POISON; 3 * IMAGE.width as usize];
    let is_poisoned = |pixels: &[u8]| pixels.chunks(poisoned.len()).all(|row| row == poisoned);
    let mut alone = Vec::new();
    for place in 0..group {
        let seen = decode(place..place + 1)?.pop().map(|(rows, _)| pixels(&rows));
        // The fault is known only from calls with several images. If a call with this image alone
        // skips it, there is nothing to compare with.
        alone.push(seen.filter(|it| !is_poisoned(it)));
    }
    let mut counts = Counts::default();
    for _ in 0..ROUNDS {
        for ((rows, written), alone) in decode(0..group)?.iter().zip(&alone) {
            let pixels = pixels(rows);
            let skipped = is_poisoned(&pixels);
            counts.skipped += usize::from(skipped);
            counts.unnoticed += usize::from(skipped == *written);
            counts.wrong += usize::from(!skipped && alone.as_ref().is_some_and(|it| *it != pixels));
        }
    }
    Ok(counts)
}
