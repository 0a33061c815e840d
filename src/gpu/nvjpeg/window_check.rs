//! The check whether the JPEG engines decode windows: parts of whole images against windows.

use std::sync::Arc;

use super::batch::{BatchDecoder, BatchJob, HostIdle};
use super::jpeg::Jpeg;
use super::windows::{BEGUN, EQUAL};
use super::{Backend, DecodeError, Library, Memory};
use crate::error::{Error, Result};
use crate::footprint::{Footprint, Memory as Sort};
use crate::geometry::{Roi, Size};
use crate::gpu::{Device, DevicePool, Event, PinnedPool, Stream, read_back};
use crate::header::Header;

/// Images of 176x144 or 144x176 pixels in all samplings that the engines decode.
const FILES: [&[u8]; 5] = [
    include_bytes!("window_check/420.jpg"),
    include_bytes!("window_check/444.jpg"),
    include_bytes!("window_check/422.jpg"),
    include_bytes!("window_check/440.jpg"),
    include_bytes!("window_check/gray.jpg"),
];

/// Windows as x, y, width, height: within blocks, at corners, wide, high, and all but a border.
const WINDOWS: [[u32; 4]; 7] = [
    [33, 17, 61, 55],
    [0, 0, 40, 24],
    [101, 99, 43, 45],
    [5, 70, 137, 3],
    [66, 1, 2, 141],
    [1, 1, 142, 142],
    [17, 23, 64, 64],
];

/// The check itself, for the checking program: it may crash. Decodes windows of images with the engines, and compares them with
/// parts of the whole images. Passes the lines that the program must print to `say`.
///
/// # Errors
/// [`Error::Unavailable`] without nvJPEG or engines, and [`Error::Device`].
pub fn check_windows(device: &Arc<Device>, mut say: impl FnMut(&str)) -> Result<()> {
    let library = Library::open(device.runtime(), Some(device.driver_version() / 1000))?;
    let whole = Engine::open(device, library, false)?;
    let windows = Engine::open(device, library, true)?;
    for (round, file) in FILES.iter().enumerate() {
        let header =
            Header::parse(file).map_err(|error| Error::Internal { problem: error.to_string() })?;
        let expected = whole.decode(file, header.size, &[header.size.window()])?;
        if round == 0 {
            say(BEGUN);
        }
        let wanted = WINDOWS.map(|[x, y, width, height]| Roi::new(x, y, width, height));
        let wanted = wanted.into_iter().filter(|it| header.size.window().contains(*it));
        let wanted = wanted.collect::<Vec<_>>();
        let found = windows.decode(file, header.size, &wanted)?;
        let equal = wanted.iter().zip(&found).all(|(window, pixels)| {
            expected.first().is_some_and(|whole| *pixels == part(whole, header.size, *window))
        });
        if !equal {
            return Ok(());
        }
    }
    say(EQUAL);
    Ok(())
}

/// Pixels of a window of an image, without padding.
fn part(whole: &[u8], size: Size, window: Roi) -> Vec<u8> {
    let rows = whole.chunks_exact(3 * size.width as usize);
    let rows = rows.skip(window.y as usize).take(window.height as usize);
    let (start, len) = (3 * window.x as usize, 3 * window.width as usize);
    rows.flat_map(|row| &row[start..start + len]).copied().collect()
}

/// The engines, with memory for the check.
struct Engine {
    jpeg: Arc<Jpeg>,
    stream: Stream,
    device: DevicePool,
    pinned: PinnedPool,
}

impl Engine {
    /// Rows of the pools.
    const NVJPEG: &str = "nvjpeg check";
    const IMAGES: &str = "images";
    const LARGEST: Size = Size::new(176, 176);

    fn open(device: &Arc<Device>, library: Library, windows: bool) -> Result<Self> {
        let mut footprint = Footprint::default();
        let image = Self::LARGEST.window().pitched_bytes() as u64;
        // Far more than expected: this check is not about memory.
        footprint.add(Sort::Device, Self::NVJPEG, 256 << 20, 1, "");
        footprint.add(Sort::Device, Self::IMAGES, image, WINDOWS.len() as u64, "");
        footprint.add(Sort::Pinned, Self::NVJPEG, 32 << 20, 1, "");
        footprint.add(Sort::Pinned, Self::IMAGES, 64 << 10, 1, "");
        let (pool, pinned) =
            (DevicePool::take(device, &footprint)?, PinnedPool::take(device, &footprint)?);
        let memory =
            Memory { device: pool.clone(), pinned: pinned.clone(), row: Self::NVJPEG.into() };
        let jpeg = Jpeg::open_with(device, library, Backend::Hardware, &memory, windows)?;
        Ok(Self { jpeg, stream: Stream::new(device)?, device: pool, pinned })
    }

    /// Decodes windows of a file in one call. Returns the pixels of each, without padding.
    fn decode(&self, file: &[u8], image: Size, windows: &[Roi]) -> Result<Vec<Vec<u8>>> {
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
        decoded.map_err(|error| match error {
            DecodeError::Fatal(error) | DecodeError::Failed(_, error) => error,
            DecodeError::Sample(error) => Error::Internal { problem: error.to_string() },
        })?;
        let rows = jobs.iter().zip(&pages).map(|(job, page)| {
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
            Ok(part(&dense, decoded.size(), inner))
        });
        rows.collect()
    }
}
