//! Many images in one call: the GPU's JPEG engines.

use std::sync::Arc;

use nvjpeg_sys as sys;

use super::jpeg::{Jpeg, Window};
use super::page::{Handle, check_room, image, is_within, rgb_params, set_roi};
use super::status::{DecodeError, check};
use super::{Backend, MAX_SIDE};
use crate::error::{Error, Result};
use crate::geometry::{Roi, Size};
use crate::gpu::pool::DeviceBuffer;
use crate::gpu::{Event, Lap, Stream};

/// Decodes up to a fixed number of images per call with [`Backend::Hardware`]; may move between threads.
///
/// One call is in flight per decoder: the next one waits on the host for it. Whoever wants the engines to find work
/// without a gap takes turns with two decoders.
///
/// Images of different chroma subsampling may be mixed in a call. nvImageCodec 0.9 keeps such batches of 13 images
/// or more away from the engines when chroma is interpolated, without saying why; so the caller groups by subsampling
/// where it can, and measures.
#[derive(Debug)]
pub struct BatchDecoder {
    /// None after a failure, until the next call.
    state: Option<Handle<sys::nvjpegJpegState_t>>,
    /// For how many images the state is initialised.
    initialized: usize,
    largest: Size,
    params: Vec<Handle<sys::nvjpegDecodeParams_t>>,
    arguments: Arguments,
    /// Reached when the last call's images are there.
    done: Event,
    jpeg: Arc<Jpeg>,
}

// SAFETY: as for `PageDecoder`; the arguments are pointers that nobody follows between the calls.
unsafe impl Send for BatchDecoder {}

/// One image of a batch.
#[derive(Debug)]
pub struct BatchJob<'a> {
    /// The file, in memory of the page-locked pool; stays as it is until [`BatchDecoder::done`].
    pub bytes: &'a [u8],
    /// The image's size, as its header has it.
    pub image: Size,
    /// The pixels that are wanted; after the reduction, if there is one.
    pub wanted: Roi,
    /// Both sides are divided by this, inside the engine: 1, 2, 4 or 8. Above 1 the whole reduced image is decoded,
    /// see [`Jpeg::reduced_window`].
    pub reduction: u32,
    /// Where the pixels go: room for [`Window::bytes`].
    pub destination: HostIdle<'a>,
}

impl BatchJob<'_> {
    /// What will be decoded, and lie in the destination.
    pub fn window(&self, jpeg: &Jpeg) -> Window {
        jpeg.reduced_window(self.image, self.reduction, self.wanted)
    }
}

/// A device buffer whose last reader the host has seen finish.
///
/// The engines of Hopper write when `nvjpegDecodeBatchedEx` is called, not when the stream gets there (seen with nvJPEG
/// 12.3.5 to 13.2.1 on H100, pytorch/vision PR 9606): an event that the stream waits for does not hold them up. Only the
/// host can, so only the host's look at an event makes one of these.
#[derive(Debug)]
pub struct HostIdle<'a> {
    buffer: &'a DeviceBuffer,
}

impl<'a> HostIdle<'a> {
    /// Waits on the host until `last_use` is reached: recorded behind the last work that reads or writes the buffer.
    /// An event that was never recorded stands for a buffer that nobody has used.
    pub fn wait(buffer: &'a DeviceBuffer, last_use: &Event) -> Result<Self> {
        last_use.synchronize()?;
        Ok(Self { buffer })
    }

    /// As [`wait`](Self::wait), but `None` where the event is not reached yet.
    pub fn query(buffer: &'a DeviceBuffer, last_use: &Event) -> Result<Option<Self>> {
        Ok(last_use.query()?.then_some(Self { buffer }))
    }

    /// The buffer.
    pub fn buffer(&self) -> &'a DeviceBuffer {
        self.buffer
    }
}

impl BatchDecoder {
    /// A decoder for up to `capacity` images per call, with nvJPEG's buffers for images of `largest` pixels each,
    /// without subsampling, or of as many as nvJPEG's rows have room for. Larger ones may make the buffers grow, as far as
    /// the rows have room.
    ///
    /// # Errors
    /// [`Error::Budget`] where the rows have no room for images of one pixel, [`Error::Internal`] for another backend than
    /// [`Backend::Hardware`], for no images and for images without pixels.
    pub fn new(jpeg: &Arc<Jpeg>, capacity: usize, largest: Size) -> Result<Self> {
        let sides = [largest.width, largest.height];
        let problem = if jpeg.backend() != Backend::Hardware {
            Some(format!("the {} backend decodes single images", jpeg.backend().name()))
        } else if capacity == 0 || i32::try_from(capacity).is_err() {
            Some(format!("a batch of {capacity} images"))
        } else if sides.iter().any(|side| !(1..=MAX_SIDE).contains(side)) {
            Some(format!("a batch of images of {largest}"))
        } else {
            None
        };
        if let Some(problem) = problem {
            return Err(Error::Internal { problem });
        }
        jpeg.device.bind()?;
        let params = (0..capacity).map(|_| rgb_params(jpeg)).collect::<Result<Vec<_>>>()?;
        let arguments = Arguments {
            bytes: Vec::with_capacity(capacity),
            lengths: Vec::with_capacity(capacity),
            images: Vec::with_capacity(capacity),
            params: params.iter().map(|params| params.raw).collect(),
        };
        let done = Event::new(&jpeg.device)?;
        let jpeg = jpeg.clone();
        let mut decoder =
            Self { state: None, initialized: 0, largest, params, arguments, done, jpeg };
        decoder.state = Some(decoder.ready(capacity)?);
        Ok(decoder)
    }

    /// Most images of a call.
    pub fn capacity(&self) -> usize {
        self.params.len()
    }

    /// Puts decoding of these images into the stream: RGB rows without padding into the destinations, of the windows
    /// that [`BatchJob::window`] tells. On Hopper they are written from now on, wherever the stream is. Waits on the host
    /// until this decoder's call before is over; a number of images that is not that of the call before costs
    /// initialising nvJPEG's state again.
    ///
    /// # Errors
    /// They hold for the whole batch: what is in the destinations is unspecified, and nothing writes there any more.
    /// [`DecodeError::Sample`] and [`DecodeError::Failed`] where nvJPEG does not take one of the files; it does not tell
    /// which, so each of them goes another way. [`Error::Internal`] for more images than [`capacity`](Self::capacity), bytes that are not
    /// page-locked, windows that are not within their images, other reductions than 1, 2, 4, 8, and destinations that
    /// are too small; nothing has been called then. The decoder can be used again after any failure.
    pub fn decode(&mut self, stream: &Stream, jobs: &[BatchJob<'_>]) -> Result<(), DecodeError> {
        self.decode_measured(stream, jobs, None)
    }

    /// The same, where a span of the stream begins before nvJPEG is called. What nvJPEG does on the host is within, and so
    /// are engines that do not keep to the stream's order, for [`done`](Self::done) is reached behind them. Its end is the
    /// caller's to set.
    ///
    /// # Errors
    /// Those of [`decode`](Self::decode).
    pub fn decode_measured(
        &mut self,
        stream: &Stream,
        jobs: &[BatchJob<'_>],
        lap: Option<&mut Lap<'_>>,
    ) -> Result<(), DecodeError> {
        if jobs.is_empty() {
            return Ok(());
        }
        self.check(jobs)?;
        self.jpeg.device.bind()?;
        self.done.synchronize()?;
        // What a failure leaves half-done is dropped with it: the next batch finds nothing of this one.
        let state = self.ready(jobs.len())?;
        self.set_arguments(jobs)?;
        lap.map_or(Ok(()), |lap| lap.start(stream))?;
        let called = self.call(&state, stream);
        if let Err(fault) = called.and_then(|()| Ok(self.done.record(stream)?)) {
            // Some of it may be under way, in the stream or, on Hopper, ahead of it.
            return Err(fault.behind(stream));
        }
        self.state = Some(state);
        Ok(())
    }

    /// Reached when the pixels of the last call's images are there, their bytes are no longer needed, and the decoder
    /// may be used without waiting.
    pub fn done(&self) -> &Event {
        &self.done
    }

    /// Whether [`decode`](Self::decode) would not wait.
    pub fn is_idle(&self) -> Result<bool> {
        self.done.query()
    }

    fn check(&self, jobs: &[BatchJob<'_>]) -> Result<()> {
        let internal = |problem| Err(Error::Internal { problem });
        if jobs.len() > self.capacity() {
            let (given, capacity) = (jobs.len(), self.capacity());
            return internal(format!("{given} images for a decoder of up to {capacity}"));
        }
        for job in jobs {
            let BatchJob { bytes, image, wanted, reduction, .. } = job;
            if ![1, 2, 4, 8].contains(reduction) {
                return internal(format!(
                    "a reduction by {reduction}; the engines have 1, 2, 4, 8"
                ));
            }
            if !self.jpeg.allocators.is_pinned(bytes) {
                let len = bytes.len();
                return internal(format!("{len} bytes of a file are not page-locked"));
            }
            let reduced = image.reduced(*reduction);
            if !is_within(*image, image.window()) || !is_within(reduced, *wanted) {
                return internal(format!("the window {wanted} is not within {reduced} pixels"));
            }
            check_room(job.window(&self.jpeg), job.destination.buffer)?;
        }
        Ok(())
    }

    /// The state, initialised for so many images. Nothing of this decoder is running.
    fn ready(&mut self, images: usize) -> Result<Handle<sys::nvjpegJpegState_t>> {
        let state = match self.state.take() {
            Some(state) => state,
            None => {
                self.initialized = 0;
                new_state(&self.jpeg, self.capacity(), self.largest)?
            }
        };
        if self.initialized != images {
            self.initialized = 0;
            let jpeg = &self.jpeg;
            let rgb = sys::nvjpegOutputFormat_t::NVJPEG_OUTPUT_RGBI;
            // SAFETY: the handles are alive, and nothing runs with the state. The number of CPU threads is ignored.
            let status = unsafe {
                (jpeg.library.calls.nvjpegDecodeBatchedInitialize)(
                    jpeg.handle,
                    state.raw,
                    images as i32,
                    1,
                    rgb,
                )
            };
            jpeg.check("nvjpegDecodeBatchedInitialize", status)?;
            self.initialized = images;
        }
        Ok(state)
    }

    fn set_arguments(&mut self, jobs: &[BatchJob<'_>]) -> Result<()> {
        self.arguments.clear();
        for (job, params) in jobs.iter().zip(&self.params) {
            let window = job.window(&self.jpeg);
            match job.reduction {
                1 => set_roi(params, window.decoded)?,
                _ => reset_roi(params)?,
            }
            set_reduction(params, job.reduction)?;
            self.arguments.bytes.push(job.bytes.as_ptr());
            self.arguments.lengths.push(job.bytes.len());
            self.arguments.images.push(image(window, job.destination.buffer));
        }
        Ok(())
    }

    fn call(
        &mut self,
        state: &Handle<sys::nvjpegJpegState_t>,
        stream: &Stream,
    ) -> Result<(), DecodeError> {
        let Arguments { bytes, lengths, images, params } = &mut self.arguments;
        let call = self.jpeg.allocators.call(stream);
        // SAFETY: all handles are alive and used by this thread only; the four arrays have an element for each image
        // that the state is initialised for, and are read during the call. The files lie in the pool of page-locked
        // memory, which outlives the state; the windows fit in the destinations, which are of the pool on the device.
        let status = unsafe {
            (self.jpeg.library.calls.nvjpegDecodeBatchedEx)(
                self.jpeg.handle,
                state.raw,
                bytes.as_ptr(),
                lengths.as_ptr(),
                images.as_mut_ptr(),
                params.as_mut_ptr(),
                stream.raw().cast::<sys::CUstream_st>(),
            )
        };
        drop(call);
        self.arguments.clear();
        self.jpeg.check_decode("nvjpegDecodeBatchedEx", status)
    }
}

impl Drop for BatchDecoder {
    fn drop(&mut self) {
        // The engines may still use what is destroyed next; where waiting fails the device is lost.
        let _ = self.done.synchronize();
    }
}

/// The arrays of a call; their memory is kept.
#[derive(Debug)]
struct Arguments {
    bytes: Vec<*const u8>,
    lengths: Vec<usize>,
    images: Vec<sys::nvjpegImage_t>,
    /// All of the decoder's: a call looks at as many as there are images.
    params: Vec<sys::nvjpegDecodeParams_t>,
}

impl Arguments {
    /// Leaves no pointers of the call before.
    fn clear(&mut self) {
        self.bytes.clear();
        self.lengths.clear();
        self.images.clear();
    }
}

/// A state with buffers for so many images, or for smaller ones where the rows have no room for these: how much nvJPEG
/// takes for an image is its own affair. One that then has no room when its turn comes fails alone. nvJPEG's pool of
/// buffers is in use only after `PreAllocate` (nvImageCodec calls it even for single pixels, for "more than 20 %").
fn new_state(
    jpeg: &Arc<Jpeg>,
    images: usize,
    largest: Size,
) -> Result<Handle<sys::nvjpegJpegState_t>> {
    let mut largest = largest;
    loop {
        match state_for(jpeg, images, largest) {
            Err(Error::Budget { .. }) if largest.pixels() > 1 => {
                largest = Size::new(largest.width.div_ceil(2), largest.height.div_ceil(2));
            }
            other => return other,
        }
    }
}

fn state_for(
    jpeg: &Arc<Jpeg>,
    images: usize,
    largest: Size,
) -> Result<Handle<sys::nvjpegJpegState_t>> {
    let calls = &jpeg.library.calls;
    let state = Handle::new(jpeg, calls.nvjpegJpegStateDestroy, |it| {
        // SAFETY: the handle is alive; writes one handle.
        let status = unsafe { (calls.nvjpegJpegStateCreate)(jpeg.handle, it) };
        jpeg.check("nvjpegJpegStateCreate", status)
    })?;
    // SAFETY: the handles are alive; none of the numbers is negative.
    let status = unsafe {
        (calls.nvjpegDecodeBatchedPreAllocate)(
            jpeg.handle,
            state.raw,
            images as i32,
            largest.width as i32,
            largest.height as i32,
            sys::nvjpegChromaSubsampling_t::NVJPEG_CSS_444,
            sys::nvjpegOutputFormat_t::NVJPEG_OUTPUT_RGBI,
        )
    };
    jpeg.check("nvjpegDecodeBatchedPreAllocate", status)?;
    Ok(state)
}

/// The whole image.
fn reset_roi(params: &Handle<sys::nvjpegDecodeParams_t>) -> Result<()> {
    let calls = &params.jpeg.library.calls;
    // SAFETY: the parameters are alive; these numbers mean that there is no window.
    let status = unsafe { (calls.nvjpegDecodeParamsSetROI)(params.raw, 0, 0, -1, -1) };
    check("nvjpegDecodeParamsSetROI", status)
}

fn set_reduction(params: &Handle<sys::nvjpegDecodeParams_t>, reduction: u32) -> Result<()> {
    let calls = &params.jpeg.library.calls;
    // 1, 2, 4, 8 are numbered 0 to 3.
    let factor = sys::nvjpegScaleFactor_t(reduction.trailing_zeros());
    // SAFETY: the parameters are alive; the factor is one of nvJPEG's.
    let status = unsafe { (calls.nvjpegDecodeParamsSetScaleFactor)(params.raw, factor) };
    check("nvjpegDecodeParamsSetScaleFactor", status)
}
