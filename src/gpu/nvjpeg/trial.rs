//! Memory that nvJPEG needs for an image, measured with a trial image.
//!
//! nvJPEG does not document the sizes of its buffers. So a trial opens a decoder with separate
//! memory pools and decodes an image of the planned size. The peak use of the pools is the result.

use std::sync::{Arc, Mutex, PoisonError};

use super::batch::{BatchDecoder, BatchJob, HostIdle};
use super::jpeg::{Jpeg, Window};
use super::page::PageDecoder;
use super::status::DecodeError;
use super::trial_file::trial_file;
use super::{Backend, Library, Memory};
use crate::error::{Error, Result};
use crate::footprint::{Footprint, Memory as Sort};
use crate::geometry::Size;
use crate::gpu::{Device, DevicePool, Event, PinnedBuffer, PinnedPool, Stream};

/// Image and calls with which memory is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Trial {
    /// Number of pixels of the image.
    pub pixels: usize,
    /// Size in bytes that the file should have. The file is smaller if no image of `pixels` pixels
    /// can have so many bytes.
    pub encoded_bytes: usize,
    /// Number of images per call of [`Backend::Hardware`]. The other backends decode one image per
    /// call.
    pub group: usize,
}

/// Amounts of device memory and of page-locked memory, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bytes {
    /// Device memory.
    pub device: usize,
    /// Page-locked memory.
    pub pinned: usize,
}

/// Measured memory of a decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured {
    /// Maximum number of bytes in use at one time.
    pub peak: Bytes,
    /// Part of `peak` that is in the two buffers of a [`PageDecoder`], whose sizes are set at its
    /// creation.
    pub buffers: Bytes,
    /// Number of images that are decoded at the same time. It is 1 for backends without engines.
    pub lanes: usize,
}

/// Names of the rows (reserved parts) of the trial's memory pools.
const NVJPEG: &str = "nvjpeg trial";
const IMAGE: &str = "trial image";

/// Factor by which the rows of the trial's memory pools grow after a trial that did not fit.
const GROWTH: usize = 4;

/// Maximum side of a trial image in pixels. The JPEG engines accept sides up to this limit, and the
/// other backends accept longer sides.
const MOST_SIDE: usize = 16_000;

/// Measurements of this process, by device number, path of nvJPEG, backend and trial.
static KNOWN: Mutex<Vec<(Key, Option<Measured>)>> = Mutex::new(Vec::new());
type Key = (usize, &'static str, Backend, Trial);

/// Maximum number of results that are kept in `KNOWN`.
const MOST_KNOWN: usize = 64;

/// Decodes a trial image with a backend and measures how much memory the backend's decoder needs.
/// The first trial has rows of `first` bytes in its pools. If they do not suffice, further trials
/// use larger rows, up to `most`. Returns `None` if nvJPEG rejects the image. Results are kept for
/// the life of the process, because a process may build many loaders.
///
/// # Errors
/// [`Error::Budget`] if rows of `most` bytes do not suffice, [`Error::Unavailable`] without nvJPEG
/// or engines, and [`Error::Device`] if a driver call fails.
pub fn measure_memory(
    device: &Arc<Device>,
    backend: Backend,
    trial: Trial,
    first: Bytes,
    most: Bytes,
) -> Result<Option<Measured>> {
    let library = Library::open(device.runtime(), Some(device.driver_version() / 1000))?;
    let key = (device.ordinal(), library.path(), backend, trial);
    let known = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, measured)) = known().iter().find(|(it, _)| *it == key) {
        return Ok(*measured);
    }
    let measured = measure(device, backend, trial, first, most)?;
    let mut known = known();
    if known.len() == MOST_KNOWN {
        known.remove(0);
    }
    known.push((key, measured));
    Ok(measured)
}

/// Clears this process's kept measurements.
pub(super) fn forget() {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner).clear();
}

fn measure(
    device: &Arc<Device>,
    backend: Backend,
    trial: Trial,
    first: Bytes,
    most: Bytes,
) -> Result<Option<Measured>> {
    let side = trial.pixels.isqrt().clamp(16, MOST_SIDE) as u32;
    let image = Size::new(side, side);
    // Progressive images need memory for the coefficients of the whole image. Only the backend
    // `Hybrid` decodes them.
    let kinds: &[bool] = if backend == Backend::Hybrid { &[false, true] } else { &[false] };
    let files = kinds.iter().map(|&it| trial_file(image, trial.encoded_bytes, it));
    let files = files.collect::<Vec<_>>();
    let mut rows = at_most(first, most);
    loop {
        let setup = Setup::new(device, backend, image, &files, rows);
        match setup.and_then(|mut setup| setup.measure(image, trial.group)) {
            Ok(measured) => return Ok(measured),
            Err(error @ Error::Budget { .. }) => {
                let more = Bytes { device: GROWTH * rows.device, pinned: GROWTH * rows.pinned };
                let larger = at_most(more, most);
                if larger == rows {
                    return Err(error);
                }
                rows = larger;
            }
            // These calls fail if the machine does not have enough memory for the rows.
            Err(Error::Device { call: "cuMemAlloc" | "cuMemHostAlloc", .. }) => {
                let (needed, limit) = (rows.device.max(rows.pinned) as u64, 0);
                return Err(Error::Budget { row: NVJPEG.into(), needed, limit });
            }
            Err(error) => return Err(error),
        }
    }
}

fn at_most(bytes: Bytes, most: Bytes) -> Bytes {
    Bytes { device: bytes.device.min(most.device), pinned: bytes.pinned.min(most.pinned) }
}

/// Memory pools, nvJPEG handle and encoded files of one trial.
struct Setup {
    files: Vec<PinnedBuffer>,
    jpeg: Arc<Jpeg>,
    stream: Stream,
    device: DevicePool,
    pinned: PinnedPool,
}

impl Setup {
    fn new(
        device: &Arc<Device>,
        backend: Backend,
        image: Size,
        files: &[Vec<u8>],
        rows: Bytes,
    ) -> Result<Self> {
        let mut footprint = Footprint::default();
        let mut add = |memory, row, bytes: usize, count: usize| {
            footprint.add(memory, row, bytes as u64, count as u64, "a trial");
        };
        let longest = files.iter().map(Vec::len).max().unwrap_or(0);
        add(Sort::Device, NVJPEG, rows.device, 1);
        add(Sort::Device, IMAGE, image.window().pitched_bytes(), 1);
        add(Sort::Pinned, NVJPEG, rows.pinned, 1);
        add(Sort::Pinned, IMAGE, longest, files.len());
        let pool = DevicePool::take(device, &footprint)?;
        let pinned = PinnedPool::take(device, &footprint)?;
        let memory = Memory { device: pool.clone(), pinned: pinned.clone(), row: NVJPEG.into() };
        let library = Library::open(device.runtime(), Some(device.driver_version() / 1000))?;
        // Whole images are decoded, so it does not matter whether the engines decode windows.
        let windows = backend != Backend::Hardware;
        let jpeg = Jpeg::open_with(device, library, backend, &memory, windows)?;
        let files = files.iter().map(|file| {
            let mut buffer = pinned.buffer(IMAGE, file.len())?;
            buffer.copy_from_slice(file);
            Ok(buffer)
        });
        let files = files.collect::<Result<_>>()?;
        Ok(Self { files, jpeg, stream: Stream::new(device)?, device: pool, pinned })
    }

    fn measure(&mut self, image: Size, group: usize) -> Result<Option<Measured>> {
        let decoded = match self.jpeg.backend() {
            Backend::Hardware => self.decode_group(image, group).map(|()| Bytes::default()),
            Backend::GpuHybrid | Backend::Hybrid => self.decode_images(image),
        };
        // Even after an error, the work must have ended before the pools are dropped.
        self.stream.synchronize()?;
        let buffers = match decoded {
            Ok(buffers) => buffers,
            Err(error) if error.is_budget() => {
                let limit = self.device.row_bytes(NVJPEG).map_or(0, |(_, capacity)| capacity);
                return Err(Error::Budget { row: NVJPEG.into(), needed: limit + 1, limit });
            }
            Err(DecodeError::Fatal(error)) => return Err(error),
            Err(DecodeError::Sample(_) | DecodeError::Failed(..)) => return Ok(None),
        };
        let peak = |row: Option<(u64, u64)>| row.map_or(0, |(peak, _)| peak as usize);
        let (device, pinned) = (self.device.row_bytes(NVJPEG), self.pinned.row_bytes(NVJPEG));
        let peak = Bytes { device: peak(device), pinned: peak(pinned) };
        let lanes = self.jpeg.engines().map_or(1, |it| it.lanes());
        Ok(Some(Measured { peak, buffers, lanes }))
    }

    /// Decodes the trial files one by one. Returns the sizes of the decoder's two buffers.
    fn decode_images(&self, image: Size) -> Result<Bytes, DecodeError> {
        let Window { wanted, .. } = self.jpeg.window(image, image.window());
        let destination = self.device.buffer(IMAGE, wanted.pitched_bytes())?;
        let mut decoder = PageDecoder::new(&self.jpeg, 0, 0)?;
        for file in &self.files {
            decoder.decode(&self.stream, file, wanted, &destination)?;
            decoder.done().synchronize()?;
        }
        let (device, pinned) = decoder.buffer_bytes()?;
        Ok(Bytes { device, pinned })
    }

    /// Decodes the same file `group` times in one call. All images write the same pixels to the
    /// same destination.
    fn decode_group(&self, image: Size, group: usize) -> Result<(), DecodeError> {
        let destination = self.device.buffer(IMAGE, image.window().pitched_bytes())?;
        let unused = Event::new(destination.device())?;
        let mut decoder = BatchDecoder::for_images_of(&self.jpeg, group, image)?;
        let Some(file) = self.files.first() else { return Ok(()) };
        let jobs = (0..group).map(|_| {
            Ok(BatchJob {
                bytes: file,
                image,
                wanted: image.window(),
                reduction: 1,
                destination: HostIdle::wait(&destination, &unused)?,
            })
        });
        decoder.decode(&self.stream, &jobs.collect::<Result<Vec<_>>>()?)?;
        Ok(decoder.done().synchronize()?)
    }
}
