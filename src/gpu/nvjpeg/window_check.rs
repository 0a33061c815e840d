//! Check whether the JPEG engines decode windows correctly. It compares windows with parts of whole
//! images.

use std::sync::Arc;

use super::batch::{BatchDecoder, BatchJob, HostIdle};
use super::jpeg::Jpeg;
use super::windows::{BEGUN, DIFFERENT, EQUAL};
use super::{Backend, DecodeError, Library, Memory};
use crate::error::{Error, Result};
use crate::footprint::{Footprint, Memory as Sort};
use crate::geometry::{Roi, Size};
use crate::gpu::{Device, DevicePool, Event, PinnedPool, Stream, read_back};
use crate::header::Header;

/// Files of 176x144 or 144x176 pixels, one for each chroma subsampling that the engines support.
const FILES: [&[u8]; 5] = [
    include_bytes!("window_check/420.jpg"),
    include_bytes!("window_check/444.jpg"),
    include_bytes!("window_check/422.jpg"),
    include_bytes!("window_check/440.jpg"),
    include_bytes!("window_check/gray.jpg"),
];

/// Windows as x, y, width, height. They begin within blocks or at corners, are wide or high, leave
/// out only a border, or are the last columns or rows of one of the two image sizes. Windows that
/// exceed an image are skipped for that image.
const WINDOWS: [[u32; 4]; 9] = [
    [33, 17, 61, 55],
    [0, 0, 40, 24],
    [101, 99, 43, 45],
    [5, 70, 137, 3],
    [66, 1, 2, 141],
    [1, 1, 142, 142],
    [17, 23, 64, 64],
    [139, 0, 37, 144],
    [0, 139, 144, 37],
];

/// Decodes windows of images with the engines and compares them with parts of the whole images.
/// Runs in the checking program, which may crash. Calls `say` with each line that the program must
/// print.
///
/// # Errors
/// [`Error::Unavailable`] without nvJPEG or engines, and [`Error::Device`] if a driver call fails.
pub fn check_windows(device: &Arc<Device>, mut say: impl FnMut(&str)) -> Result<()> {
    let library = Library::open(device.runtime(), Some(device.driver_version() / 1000))?;
    let mut images = Vec::new();
    let whole = Engine::open(device, library, false)?;
    for file in FILES {
        let header =
            Header::parse(file).map_err(|error| Error::Internal { problem: error.to_string() })?;
        let size = header.size;
        // A file that the JPEG engines reject does not show whether windows work. A loader decodes
        // rejected files by other routes.
        match whole.decode(file, size, &[size.window()]) {
            Ok(pixels) => images.extend(pixels.into_iter().flatten().map(|it| (file, size, it))),
            Err(DecodeError::Fatal(error)) => return Err(error),
            Err(DecodeError::Sample(_) | DecodeError::Failed(..)) => {}
        }
    }
    drop(whole);
    let windows = Engine::open(device, library, true)?;
    say(BEGUN);
    for (file, size, whole) in &images {
        let wanted = WINDOWS.map(|[x, y, width, height]| Roi::new(x, y, width, height));
        let wanted = wanted.into_iter().filter(|it| size.window().contains(*it));
        let wanted = wanted.collect::<Vec<_>>();
        let found = match windows.decode(file, *size, &wanted) {
            Ok(found) => found,
            Err(DecodeError::Fatal(error)) => return Err(error),
            Err(DecodeError::Sample(_) | DecodeError::Failed(..)) => {
                say(DIFFERENT);
                return Ok(());
            }
        };
        // Images that a call skips are ignored here, because loaders detect skipped images
        // themselves.
        let mut both = wanted
            .iter()
            .zip(&found)
            .filter_map(|(it, found)| found.as_ref().map(|found| (it, found)));
        if !both.all(|(window, pixels)| *pixels == part(whole, *size, *window)) {
            say(DIFFERENT);
            return Ok(());
        }
    }
    if !images.is_empty() {
        say(EQUAL);
    }
    Ok(())
}

/// Returns the pixels of a window of an image, without padding.
fn part(whole: &[u8], size: Size, window: Roi) -> Vec<u8> {
    let rows = whole.chunks_exact(3 * size.width as usize);
    let rows = rows.skip(window.y as usize).take(window.height as usize);
    let (start, len) = (3 * window.x as usize, 3 * window.width as usize);
    rows.flat_map(|row| &row[start..start + len]).copied().collect()
}

/// The GPU's JPEG engines, with the memory for the check.
struct Engine {
    jpeg: Arc<Jpeg>,
    stream: Stream,
    device: DevicePool,
    pinned: PinnedPool,
}

impl Engine {
    /// Name of the part of the memory pools that is reserved for nvJPEG.
    const NVJPEG: &str = "nvjpeg check";
    const IMAGES: &str = "images";
    const LARGEST: Size = Size::new(176, 176);

    fn open(device: &Arc<Device>, library: Library, windows: bool) -> Result<Self> {
        let mut footprint = Footprint::default();
        let image = Self::LARGEST.window().pitched_bytes() as u64;
        // This row is much larger than the expected need, because the check does not measure
        // nvJPEG's memory first.
        footprint.add(Sort::Device, Self::NVJPEG, 64 << 20, 1, "");
        footprint.add(Sort::Device, Self::IMAGES, image, WINDOWS.len() as u64, "");
        footprint.add(Sort::Pinned, Self::NVJPEG, 8 << 20, 1, "");
        footprint.add(Sort::Pinned, Self::IMAGES, 64 << 10, 1, "");
        let (pool, pinned) =
            (DevicePool::take(device, &footprint)?, PinnedPool::take(device, &footprint)?);
        let memory =
            Memory { device: pool.clone(), pinned: pinned.clone(), row: Self::NVJPEG.into() };
        let jpeg = Jpeg::open_with(device, library, Backend::Hardware, &memory, windows)?;
        Ok(Self { jpeg, stream: Stream::new(device)?, device: pool, pinned })
    }

    /// Decodes windows of a file in one call. Returns the pixels of each window without padding, or
    /// `None` for a window that the call skipped.
    fn decode(
        &self,
        file: &[u8],
        image: Size,
        windows: &[Roi],
    ) -> Result<Vec<Option<Vec<u8>>>, DecodeError> {
        let mut bytes = self.pinned.buffer(Self::IMAGES, file.len())?;
        bytes.copy_from_slice(file);
        let room = Self::LARGEST.window().pitched_bytes();
        let pages = windows.iter().map(|_| self.device.buffer(Self::IMAGES, room));
        let pages = pages.collect::<Result<Vec<_>>>()?;
        let unused = Event::new(self.stream.device())?;
        let jobs = windows.iter().zip(&pages).map(|(&wanted, page)| {
            let destination = HostIdle::wait(page, &unused)?;
            Ok(BatchJob { bytes: &bytes, image, wanted, reduction: 1, destination })
        });
        let jobs = jobs.collect::<Result<Vec<_>>>()?;
        let mut decoder = BatchDecoder::new(&self.jpeg, windows.len(), Self::LARGEST)?;
        let decoded = decoder.decode(&self.stream, &jobs);
        let decoded = decoded.and_then(|()| Ok(decoder.done().synchronize()?));
        self.stream.synchronize()?;
        decoded?;
        let written = decoder.written()?;
        let rows = jobs.iter().zip(&pages).zip(written).map(|((job, page), written)| {
            if !written {
                return Ok(None);
            }
            let decoded = job.window(&self.jpeg).decoded;
            let mut rows = vec![0; decoded.pitched_bytes()];
            read_back(&self.stream, page, 0, &mut rows)?;
            let pitch = decoded.pitch_bytes() as usize;
            let dense: Vec<u8> = rows
                .chunks_exact(pitch)
                .flat_map(|row| &row[..3 * decoded.width as usize])
                .copied()
                .collect();
            let inner =
                Roi { x: job.wanted.x - decoded.x, y: job.wanted.y - decoded.y, ..job.wanted };
            Ok(Some(part(&dense, decoded.size(), inner)))
        });
        rows.collect()
    }
}
