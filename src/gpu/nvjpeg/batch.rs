//! Batched decoding with the GPU's JPEG engines.

use std::sync::Arc;

use nvjpeg_sys as sys;

use super::jpeg::{Jpeg, Window};
use super::page::{Handle, check_room, image, is_within, rgb_params, set_roi};
use super::stamps::Stamps;
use super::status::{DecodeError, check};
use super::{Backend, MAX_SIDE};
use crate::error::{Error, Result};
use crate::geometry::{Roi, Size};
use crate::gpu::pool::DeviceBuffer;
use crate::gpu::{Event, Lap, Stream};

/// Decodes batches of up to a fixed number of images with [`Backend::Hardware`]. May move between
/// threads.
///
/// Each decoder has at most one call in flight. The next call blocks until the previous one is
/// done. To keep the engines busy, alternate between two decoders.
///
/// nvJPEG's state is created once, for the maximum number of images. Before each call the state is
/// initialized for the call's number of images, as in nvImageCodec and torchvision.
///
/// The images of a call should have the same chroma subsampling. nvImageCodec 0.9 avoids the
/// engines for mixed batches of 13 images or more with interpolated chroma, without stating a
/// reason.
#[derive(Debug)]
pub struct BatchDecoder {
    /// nvJPEG's state. `None` after a failure, until the next call.
    state: Option<Handle<sys::nvjpegJpegState_t>>,
    largest: Size,
    params: Vec<Handle<sys::nvjpegDecodeParams_t>>,
    stamps: Stamps,
    arguments: Arguments,
    /// Event that is reached when the last call's images are complete.
    done: Arc<Event>,
    jpeg: Arc<Jpeg>,
}

// SAFETY: nvJPEG's objects may move between threads if only one thread at a time uses them (nvJPEG
// documentation, "Thread Safety"). The arguments are pointers that are not dereferenced between
// calls.
unsafe impl Send for BatchDecoder {}

/// One image of a batch.
#[derive(Debug)]
pub struct BatchJob<'a> {
    /// Bytes of the encoded file, in page-locked pool memory. They must not change until
    /// [`BatchDecoder::done`] is reached.
    pub bytes: &'a [u8],
    /// Size of the image according to its header.
    pub image: Size,
    /// Window to decode, in pixels after the reduction.
    pub wanted: Roi,
    /// Factor by which the engine reduces both sides: 1, 2, 4 or 8. With a factor above 1, the
    /// whole reduced image is decoded (see [`Jpeg::reduced_window`]).
    pub reduction: u32,
    /// Destination of the pixels, with at least [`Window::bytes`] bytes.
    pub destination: HostIdle<'a>,
}

impl BatchJob<'_> {
    /// Returns the window that will be decoded into the destination.
    pub fn window(&self, jpeg: &Jpeg) -> Window {
        jpeg.reduced_window(self.image, self.reduction, self.wanted)
    }
}

/// Device buffer whose last reader has finished, which the host has observed.
///
/// Hopper's engines write when `nvjpegDecodeBatchedEx` is called, not when the stream reaches the
/// call (seen with nvJPEG 12.3.5 to 13.2.1 on H100, pytorch/vision PR 9606). An event for which the
/// stream waits does not delay the engines, so the host must wait. Therefore this value can only be
/// created by checking an event on the host. On every GPU, [`BatchDecoder::decode`] also writes
/// [stamps](BatchDecoder::written) (patterns that reveal skipped images) into the buffer at once,
/// without waiting for the stream.
#[derive(Debug)]
pub struct HostIdle<'a> {
    buffer: &'a DeviceBuffer,
}

impl<'a> HostIdle<'a> {
    /// Blocks until `last_use` is reached. The event must be recorded after the last work that
    /// reads or writes the buffer. An event that was never recorded means that nothing has used the
    /// buffer.
    pub fn wait(buffer: &'a DeviceBuffer, last_use: &Event) -> Result<Self> {
        last_use.synchronize()?;
        Ok(Self { buffer })
    }

    /// Like [`wait`](Self::wait), but returns `None` if the event `last_use` is not reached yet.
    pub fn query(buffer: &'a DeviceBuffer, last_use: &Event) -> Result<Option<Self>> {
        Ok(last_use.query()?.then_some(Self { buffer }))
    }

    /// Returns the buffer.
    pub fn buffer(&self) -> &'a DeviceBuffer {
        self.buffer
    }
}

impl BatchDecoder {
    /// Creates a decoder for up to `capacity` images per call. nvJPEG's buffers fit images of
    /// `largest` pixels without subsampling, or smaller images if nvJPEG's rows (its reserved
    /// parts) of the memory pools are too small. Larger images can still be decoded if the rows
    /// have enough memory for larger buffers.
    ///
    /// # Errors
    /// [`Error::Budget`] if nvJPEG's rows of the memory pools are too small even for images of one
    /// pixel. [`Error::Internal`] for a backend other than [`Backend::Hardware`], for zero images
    /// and for images without pixels.
    pub fn new(jpeg: &Arc<Jpeg>, capacity: usize, largest: Size) -> Result<Self> {
        Self::with(jpeg, capacity, largest, new_state)
    }

    /// Like [`new`](Self::new), but fails if the buffers do not fit images of `largest` pixels.
    pub(super) fn for_images_of(jpeg: &Arc<Jpeg>, capacity: usize, largest: Size) -> Result<Self> {
        Self::with(jpeg, capacity, largest, state_for)
    }

    fn with(
        jpeg: &Arc<Jpeg>,
        capacity: usize,
        largest: Size,
        new_state: fn(&Arc<Jpeg>, usize, Size) -> Result<Handle<sys::nvjpegJpegState_t>>,
    ) -> Result<Self> {
        let sides = [largest.width, largest.height];
        let problem = if jpeg.backend() != Backend::Hardware {
            Some(format!(
                "the backend {} decodes only single images, not batches",
                jpeg.backend().name()
            ))
        } else if capacity == 0 || i32::try_from(capacity).is_err() {
            Some(format!("a batch of {capacity} images"))
        } else if sides.iter().any(|side| !(1..=MAX_SIDE).contains(side)) {
            Some(format!("a batch decoder cannot be created for images of {largest} pixels"))
        } else {
            None
        };
        if let Some(problem) = problem {
            return Err(Error::Internal { problem });
        }
        let _entered = jpeg.device.enter()?;
        let params = (0..capacity).map(|_| rgb_params(jpeg)).collect::<Result<Vec<_>>>()?;
        let stamps = Stamps::new(jpeg, capacity)?;
        let arguments = Arguments {
            bytes: Vec::with_capacity(capacity),
            lengths: Vec::with_capacity(capacity),
            images: Vec::with_capacity(capacity),
            params: Vec::with_capacity(capacity),
        };
        let done = jpeg.allocators.event()?;
        let jpeg = jpeg.clone();
        let state = Some(new_state(&jpeg, capacity, largest)?);
        Ok(Self { state, largest, params, stamps, arguments, done, jpeg })
    }

    /// Returns the maximum number of images per call.
    pub fn capacity(&self) -> usize {
        self.params.len()
    }

    /// Enqueues decoding of these images. Writes RGB rows at pitch [`Window::pitch_bytes`] into the
    /// destinations, for the windows that [`BatchJob::window`] returns. This function writes stamps
    /// (byte patterns that reveal skipped images) to the destinations immediately, even if the
    /// stream is busy. Hopper's engines also write immediately. Blocks until this decoder's
    /// previous call is over.
    ///
    /// # Errors
    /// Errors apply to the whole batch. The destinations' content is then unspecified, and nothing
    /// writes to them any more.
    ///
    /// [`DecodeError::Sample`] if nvJPEG finds one of the files corrupt or unsupported,
    /// [`DecodeError::Failed`] if it fails at one image for another reason. nvJPEG does not report
    /// which image, so the caller must decode all of them by another route.
    ///
    /// [`Error::Internal`] for more images than
    /// [`capacity`](Self::capacity), bytes that are not page-locked, windows outside their images,
    /// reductions other than 1, 2, 4, 8, and destinations that are too small. In these cases nvJPEG
    /// was not called. The decoder can be used again after any error.
    pub fn decode(&mut self, stream: &Stream, jobs: &[BatchJob<'_>]) -> Result<(), DecodeError> {
        self.decode_measured(stream, jobs, None)
    }

    /// Like [`decode`](Self::decode), but also measures a time span for `jobs.len()` images. The
    /// span begins before nvJPEG is called and includes nvJPEG's work on the host. The span ends
    /// when the images are complete, even for engines that ignore the stream's order.
    ///
    /// # Errors
    /// Returns the same errors as [`decode`](Self::decode).
    pub fn decode_measured(
        &mut self,
        stream: &Stream,
        jobs: &[BatchJob<'_>],
        mut lap: Option<Lap<'_>>,
    ) -> Result<(), DecodeError> {
        if jobs.is_empty() {
            return Ok(());
        }
        self.check(jobs)?;
        let _entered = self.jpeg.device.enter()?;
        self.done.synchronize()?;
        // An error leaves the state undefined. The state is then dropped, and the next batch gets a
        // new one.
        let state = match self.state.take() {
            Some(state) => state,
            None => new_state(&self.jpeg, self.capacity(), self.largest)?,
        };
        self.set_arguments(jobs)?;
        let jpeg = self.jpeg.clone();
        let images = || jobs.iter().map(|job| (job.window(&jpeg), job.destination.buffer));
        self.stamps.write(images())?;
        lap.as_mut().map_or(Ok(()), |lap| lap.start(stream))?;
        let enqueue = || {
            self.call(&state, stream)?;
            lap.map_or(Ok(()), |lap| lap.stop(stream, jobs.len() as u64))?;
            self.stamps.read(stream, images())?;
            Ok(self.done.record(stream)?)
        };
        if let Err(error) = enqueue() {
            // The failed call may have left work in the stream, so `behind` waits for the stream.
            // On Hopper, the engines may also run before the stream reaches the call.
            return Err(self.jpeg.behind(error, stream));
        }
        self.state = Some(state);
        Ok(())
    }

    /// Event that is reached when the last call's pixels are complete and its input bytes are no
    /// longer needed. The decoder can then be called without blocking.
    pub fn done(&self) -> &Event {
        &self.done
    }

    /// Returns for each image of the last call whether its pixels were written. nvJPEG may report
    /// success for an image that it skipped. The image's destination then has no pixels. Blocks
    /// until [`done`](Self::done).
    pub fn written(&mut self) -> Result<Vec<bool>> {
        self.done.synchronize()?;
        self.stamps.written()
    }

    /// Whether [`decode`](Self::decode) would not block.
    pub fn is_idle(&self) -> Result<bool> {
        self.done.query()
    }

    fn check(&self, jobs: &[BatchJob<'_>]) -> Result<()> {
        let internal = |problem| Err(Error::Internal { problem });
        if jobs.len() > self.capacity() {
            let (given, capacity) = (jobs.len(), self.capacity());
            return internal(format!(
                "a call with {given} images was made to a decoder for at most {capacity} images"
            ));
        }
        for job in jobs {
            let BatchJob { bytes, image, wanted, reduction, .. } = job;
            if ![1, 2, 4, 8].contains(reduction) {
                return internal(format!(
                    "images cannot be downscaled by {reduction}; the JPEG engines support 1, 2, 4 \
                     and 8"
                ));
            }
            if !self.jpeg.allocators.is_pinned(bytes) {
                let len = bytes.len();
                return internal(format!(
                    "the {len} bytes of a file are not in page-locked memory"
                ));
            }
            let reduced = image.reduced(*reduction);
            if !is_within(*image, image.window()) || !is_within(reduced, *wanted) {
                return internal(format!(
                    "the window {wanted} is not inside of the image of {reduced} pixels"
                ));
            }
            check_room(job.window(&self.jpeg), job.destination.buffer)?;
        }
        Ok(())
    }

    fn set_arguments(&mut self, jobs: &[BatchJob<'_>]) -> Result<()> {
        self.arguments.clear();
        for (job, params) in jobs.iter().zip(&self.params) {
            let window = job.window(&self.jpeg);
            match window.decoded == job.image.reduced(job.reduction).window() {
                true => reset_roi(params)?,
                false => set_roi(params, window.decoded)?,
            }
            set_reduction(params, job.reduction)?;
            self.arguments.bytes.push(job.bytes.as_ptr());
            self.arguments.lengths.push(job.bytes.len());
            self.arguments.images.push(image(window, job.destination.buffer));
            self.arguments.params.push(params.raw);
        }
        Ok(())
    }

    fn call(
        &mut self,
        state: &Handle<sys::nvjpegJpegState_t>,
        stream: &Stream,
    ) -> Result<(), DecodeError> {
        let (calls, images) = (&self.jpeg.library.calls, self.arguments.images.len());
        // SAFETY: the handles are alive, and `decode_measured` has waited for the previous call
        // with the state. nvJPEG ignores the number of CPU threads.
        let status = unsafe {
            (calls.nvjpegDecodeBatchedInitialize)(
                self.jpeg.handle,
                state.raw,
                images as i32,
                1,
                sys::nvjpegOutputFormat_t::NVJPEG_OUTPUT_RGBI,
            )
        };
        self.jpeg.check_decode("nvjpegDecodeBatchedInitialize", status)?;
        let Arguments { bytes, lengths, images, params } = &mut self.arguments;
        let call = self.jpeg.allocators.call(stream);
        // SAFETY: handles are alive and used by this thread only. The arrays have an element per
        // image and are read during the call. Files lie in the page-locked pool, which outlives the
        // state. Windows fit into their destinations, which lie in the device pool.
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
        // The engines may still use the objects that are destroyed next. If waiting fails, the
        // allocators never reuse the memory.
        let _ = self.done.synchronize_in_drop();
    }
}

/// Arguments of `nvjpegDecodeBatchedEx`, as arrays. The arrays' memory is reused by the next call.
#[derive(Debug)]
struct Arguments {
    bytes: Vec<*const u8>,
    lengths: Vec<usize>,
    images: Vec<sys::nvjpegImage_t>,
    params: Vec<sys::nvjpegDecodeParams_t>,
}

impl Arguments {
    /// Removes the pointers of the previous call.
    fn clear(&mut self) {
        self.bytes.clear();
        self.lengths.clear();
        self.images.clear();
        self.params.clear();
    }
}

/// Creates a state with buffers for `images` images. nvJPEG does not document its memory per image.
/// So if nvJPEG's rows of the pools are too small for images of size `largest`, the buffers are
/// allocated for smaller images. If an image later needs more memory than is left, only that image
/// fails.
///
/// nvJPEG uses its buffer pool only after `nvjpegDecodeBatchedPreAllocate`, so each state calls
/// this function. nvImageCodec calls it even with a size of one pixel, and states a gain of "more
/// than 20 %".
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
        // SAFETY: the handle is alive. The call writes one handle.
        let status = unsafe { (calls.nvjpegJpegStateCreate)(jpeg.handle, it) };
        jpeg.check("nvjpegJpegStateCreate", status)
    })?;
    // SAFETY: the handles are alive, and no number is negative.
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

/// Resets the window to the whole image.
pub(super) fn reset_roi(params: &Handle<sys::nvjpegDecodeParams_t>) -> Result<()> {
    let calls = &params.jpeg.library.calls;
    // SAFETY: the parameters are alive. These numbers mean the whole image.
    let status = unsafe { (calls.nvjpegDecodeParamsSetROI)(params.raw, 0, 0, -1, -1) };
    check("nvjpegDecodeParamsSetROI", status)
}

pub(super) fn set_reduction(
    params: &Handle<sys::nvjpegDecodeParams_t>,
    reduction: u32,
) -> Result<()> {
    let calls = &params.jpeg.library.calls;
    // nvJPEG numbers the factors 1, 2, 4, 8 from 0 to 3.
    let factor = sys::nvjpegScaleFactor_t(reduction.trailing_zeros());
    // SAFETY: the parameters are alive. The factor is one of nvJPEG's.
    let status = unsafe { (calls.nvjpegDecodeParamsSetScaleFactor)(params.raw, factor) };
    check("nvjpegDecodeParamsSetScaleFactor", status)
}
