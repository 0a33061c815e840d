//! Decoding of one image at a time, in a host phase and a device phase.

use std::ptr;
use std::sync::Arc;

use nvjpeg_sys as sys;
use nvjpeg_sys::nvjpegStatus_t as Status;

use super::jpeg::{Jpeg, Window};
use super::status::{DecodeError, check};
use super::{Backend, MAX_SIDE};
use crate::error::{DataError, Error, Reason, Result};
use crate::geometry::{Roi, Size};
use crate::gpu::pool::DeviceBuffer;
use crate::gpu::{Event, Lap, Stream};

/// Decodes one image at a time with [`Backend::GpuHybrid`] or [`Backend::Hybrid`]. May move between
/// threads.
///
/// After any error, the next image gets a new state, because the old one may hold pixels of the
/// previous image.
#[derive(Debug)]
pub struct PageDecoder {
    // The state is declared before the buffers that it uses, because fields are dropped in this
    // order.
    state: Option<Handle<sys::nvjpegJpegState_t>>,
    bitstream: Option<Handle<sys::nvjpegJpegStream_t>>,
    buffers: Buffers,
    params: Handle<sys::nvjpegDecodeParams_t>,
    /// Event that is reached when the device no longer needs state and buffers.
    done: Arc<Event>,
    jpeg: Arc<Jpeg>,
}

// SAFETY: states, streams, buffers and parameters may move between threads if only one thread at a
// time uses them (nvJPEG documentation, "Thread Safety"). `&mut self` ensures that. The device is
// bound before each call.
unsafe impl Send for PageDecoder {}

impl PageDecoder {
    /// Creates a decoder with nvJPEG's buffers of these sizes. With size 0 a buffer begins empty.
    /// Sufficient sizes avoid growth: growing waits for the device, and grown buffers leave gaps in
    /// the rows of the pools.
    ///
    /// # Errors
    /// [`Error::Budget`] if nvJPEG's rows of the memory pools have too little free memory.
    /// [`Error::Internal`] for [`Backend::Hardware`], which decodes only batches.
    pub fn new(jpeg: &Arc<Jpeg>, device_bytes: usize, pinned_bytes: usize) -> Result<Self> {
        if jpeg.backend() == Backend::Hardware {
            let problem = "the hardware backend decodes batches: use BatchDecoder".into();
            return Err(Error::Internal { problem });
        }
        let _entered = jpeg.device.enter()?;
        let params = rgb_params(jpeg)?;
        let buffers = Buffers::new(jpeg, device_bytes, pinned_bytes)?;
        let state = Some(new_state(jpeg, &buffers)?);
        let bitstream = Some(new_bitstream(jpeg)?);
        let done = jpeg.allocators.event()?;
        Ok(Self { state, bitstream, buffers, params, done, jpeg: jpeg.clone() })
    }

    /// Parses the file, runs the host phase (with [`Backend::Hybrid`] all of entropy decoding) and
    /// enqueues the device phase. The device phase writes RGB rows at pitch [`Window::pitch_bytes`]
    /// into the destination, for the returned window. Blocks until this decoder's previous image is
    /// done, which is normally the case already.
    ///
    /// nvJPEG does not copy the file's bytes when it parses the file. With [`Backend::Hybrid`] the
    /// bytes are no longer used when this function returns. With [`Backend::GpuHybrid`],
    /// page-locked bytes must not change until [`done`](Self::done): nvJPEG's documentation does
    /// not guarantee that they are copied to the device when the call returns.
    ///
    /// # Errors
    /// [`DecodeError::Sample`] if the file is invalid or unsupported, or if `wanted` is not inside
    /// the image that nvJPEG finds. [`DecodeError::Failed`] if nvJPEG fails for a reason other than
    /// the file. [`Error::Internal`] if the destination has fewer than [`Window::bytes`] bytes.
    /// After an error, none of the image's work is left in the stream.
    pub fn decode(
        &mut self,
        stream: &Stream,
        bytes: &[u8],
        wanted: Roi,
        destination: &DeviceBuffer,
    ) -> Result<Window, DecodeError> {
        self.decode_measured(stream, bytes, wanted, destination, None)
    }

    /// Like [`decode`](Self::decode), with a measured time span that begins after the host phase.
    /// The caller ends the span.
    ///
    /// # Errors
    /// Returns the same errors as [`decode`](Self::decode).
    pub fn decode_measured(
        &mut self,
        stream: &Stream,
        bytes: &[u8],
        wanted: Roi,
        destination: &DeviceBuffer,
        lap: Option<&mut Lap<'_>>,
    ) -> Result<Window, DecodeError> {
        let _entered = self.jpeg.device.enter()?;
        self.done.synchronize()?;
        // An error leaves nvJPEG's state undefined. The state is then dropped, and the next image
        // gets a new one.
        let bitstream = match self.bitstream.take() {
            Some(bitstream) => bitstream,
            None => new_bitstream(&self.jpeg)?,
        };
        let image = self.parse(&bitstream, bytes)?;
        let window = self.choose(image, wanted, destination)?;
        let state = match self.state.take() {
            Some(state) => state,
            None => new_state(&self.jpeg, &self.buffers)?,
        };
        let decoded = self.decode_on_host(&state, &bitstream).and_then(|()| {
            lap.map_or(Ok(()), |lap| lap.start(stream))?;
            self.decode_on_device(&state, &bitstream, stream, window, destination)
        });
        if let Err(error) = decoded.and_then(|()| Ok(self.done.record(stream)?)) {
            return Err(self.jpeg.behind(error, stream));
        }
        (self.state, self.bitstream) = (Some(state), Some(bitstream));
        Ok(window)
    }

    /// Event that is reached when the pixels of the last image are complete. The decoder can then
    /// be called without blocking.
    pub fn done(&self) -> &Event {
        &self.done
    }

    /// Returns the sizes of nvJPEG's device buffer and page-locked buffer, in bytes.
    pub(super) fn buffer_bytes(&self) -> Result<(usize, usize)> {
        let calls = &self.jpeg.library.calls;
        let (mut device, mut pinned, mut address) = (0, 0, ptr::null_mut());
        let buffer = self.buffers.device.raw;
        // SAFETY: the buffer is alive. The call writes a number and an address.
        let status =
            unsafe { (calls.nvjpegBufferDeviceRetrieve)(buffer, &mut device, &mut address) };
        check("nvjpegBufferDeviceRetrieve", status)?;
        let buffer = self.buffers.pinned.raw;
        // SAFETY: the buffer is alive. The call writes a number and an address.
        let status =
            unsafe { (calls.nvjpegBufferPinnedRetrieve)(buffer, &mut pinned, &mut address) };
        check("nvjpegBufferPinnedRetrieve", status)?;
        Ok((device, pinned))
    }

    /// Whether [`decode`](Self::decode) would not block.
    pub fn is_idle(&self) -> Result<bool> {
        self.done.query()
    }

    fn parse(
        &self,
        bitstream: &Handle<sys::nvjpegJpegStream_t>,
        bytes: &[u8],
    ) -> Result<Size, DecodeError> {
        let (jpeg, calls) = (&*self.jpeg, &self.jpeg.library.calls);
        let (data, len) = (bytes.as_ptr(), bytes.len());
        // SAFETY: the handles are alive. The bytes are not copied (the flag `save_stream` is 0) and
        // are borrowed until both phases have been called.
        let status =
            unsafe { (calls.nvjpegJpegStreamParse)(jpeg.handle, data, len, 0, 0, bitstream.raw) };
        jpeg.check_decode("nvjpegJpegStreamParse", status)?;
        let mut image = Size::default();
        let Size { width, height } = &mut image;
        // SAFETY: the bitstream is alive and parsed. The call writes two numbers.
        let status =
            unsafe { (calls.nvjpegJpegStreamGetFrameDimensions)(bitstream.raw, width, height) };
        jpeg.check_decode("nvjpegJpegStreamGetFrameDimensions", status)?;
        Ok(image)
    }

    /// Checks and sets the window. Returns the window that is decoded.
    fn choose(
        &self,
        image: Size,
        wanted: Roi,
        destination: &DeviceBuffer,
    ) -> Result<Window, DecodeError> {
        if !is_within(image, wanted) {
            let problem = format!(
                "the window {wanted} is not inside of the image, which has {image} pixels \
                     according to nvJPEG"
            );
            return Err(DecodeError::Sample(DataError::new(Reason::Corrupt, problem)));
        }
        let window = self.jpeg.window(image, wanted);
        check_room(window, destination)?;
        set_roi(&self.params, window.decoded)?;
        Ok(window)
    }

    fn decode_on_host(
        &self,
        state: &Handle<sys::nvjpegJpegState_t>,
        bitstream: &Handle<sys::nvjpegJpegStream_t>,
    ) -> Result<(), DecodeError> {
        let jpeg = &*self.jpeg;
        // SAFETY: all handles are alive and used by this thread only. `decode` has waited for the
        // previous image.
        let status = unsafe {
            (jpeg.library.calls.nvjpegDecodeJpegHost)(
                jpeg.handle,
                jpeg.decoder,
                state.raw,
                self.params.raw,
                bitstream.raw,
            )
        };
        jpeg.check_decode("nvjpegDecodeJpegHost", status)
    }

    fn decode_on_device(
        &self,
        state: &Handle<sys::nvjpegJpegState_t>,
        bitstream: &Handle<sys::nvjpegJpegStream_t>,
        stream: &Stream,
        window: Window,
        destination: &DeviceBuffer,
    ) -> Result<(), DecodeError> {
        let (jpeg, calls) = (&*self.jpeg, &self.jpeg.library.calls);
        let raw_stream = stream.raw().cast::<sys::CUstream_st>();
        let _call = jpeg.allocators.call(stream);
        // SAFETY: all handles are alive. Only one image at a time uses the state, because `decode`
        // has waited for `done`.
        let status = unsafe {
            (calls.nvjpegDecodeJpegTransferToDevice)(
                jpeg.handle,
                jpeg.decoder,
                state.raw,
                bitstream.raw,
                raw_stream,
            )
        };
        jpeg.check_decode("nvjpegDecodeJpegTransferToDevice", status)?;
        let mut image = image(window, destination);
        // SAFETY: all handles are alive, and only one image at a time uses the state. The window
        // fits into the destination. The image's description is read during the call.
        let status = unsafe {
            (calls.nvjpegDecodeJpegDevice)(
                jpeg.handle,
                jpeg.decoder,
                state.raw,
                &mut image,
                raw_stream,
            )
        };
        jpeg.check_decode("nvjpegDecodeJpegDevice", status)
    }
}

impl Drop for PageDecoder {
    fn drop(&mut self) {
        // The device may still use the objects that are destroyed next. If waiting fails, the
        // allocators never reuse the memory.
        let _ = self.done.synchronize_in_drop();
    }
}

/// Whether a window is not empty and lies inside the image.
pub(super) fn is_within(image: Size, wanted: Roi) -> bool {
    !wanted.is_empty()
        && image.window().contains(wanted)
        && image.width.max(image.height) <= MAX_SIDE
}

/// Checks that the window fits into the destination.
pub(super) fn check_room(window: Window, destination: &DeviceBuffer) -> Result<()> {
    if window.bytes() <= destination.len() {
        return Ok(());
    }
    let (decoded, needed, room) = (window.decoded, window.bytes(), destination.len());
    let problem = format!(
        "the window {decoded} needs {needed} bytes, but its destination has only {room} bytes"
    );
    Err(Error::Internal { problem })
}

/// Returns nvJPEG's description of the destination: interleaved RGB rows at the window's pitch.
pub(super) fn image(window: Window, destination: &DeviceBuffer) -> sys::nvjpegImage_t {
    let mut image = sys::nvjpegImage_t { channel: [ptr::null_mut(); 4], pitch: [0; 4] };
    image.channel[0] = destination.address() as *mut u8;
    image.pitch[0] = window.pitch_bytes();
    image
}

/// Creates decoding parameters for RGB output.
pub(super) fn rgb_params(jpeg: &Arc<Jpeg>) -> Result<Handle<sys::nvjpegDecodeParams_t>> {
    let calls = &jpeg.library.calls;
    let params = Handle::new(jpeg, calls.nvjpegDecodeParamsDestroy, |it| {
        // SAFETY: the handle is alive. The call writes one handle.
        check("nvjpegDecodeParamsCreate", unsafe {
            (calls.nvjpegDecodeParamsCreate)(jpeg.handle, it)
        })
    })?;
    let rgb = sys::nvjpegOutputFormat_t::NVJPEG_OUTPUT_RGBI;
    // SAFETY: the parameters are alive.
    let status = unsafe { (calls.nvjpegDecodeParamsSetOutputFormat)(params.raw, rgb) };
    check("nvjpegDecodeParamsSetOutputFormat", status)?;
    Ok(params)
}

/// Sets the window to decode. No number in `roi` may exceed [`MAX_SIDE`].
pub(super) fn set_roi(params: &Handle<sys::nvjpegDecodeParams_t>, roi: Roi) -> Result<()> {
    let Roi { x, y, width, height } = roi;
    let calls = &params.jpeg.library.calls;
    // SAFETY: the parameters are alive, and no number is negative.
    let status = unsafe {
        (calls.nvjpegDecodeParamsSetROI)(
            params.raw,
            x as i32,
            y as i32,
            width as i32,
            height as i32,
        )
    };
    check("nvjpegDecodeParamsSetROI", status)
}

pub(super) fn new_bitstream(jpeg: &Arc<Jpeg>) -> Result<Handle<sys::nvjpegJpegStream_t>> {
    let calls = &jpeg.library.calls;
    Handle::new(jpeg, calls.nvjpegJpegStreamDestroy, |it| {
        // SAFETY: the handle is alive. The call writes one handle.
        check("nvjpegJpegStreamCreate", unsafe { (calls.nvjpegJpegStreamCreate)(jpeg.handle, it) })
    })
}

fn new_state(jpeg: &Arc<Jpeg>, buffers: &Buffers) -> Result<Handle<sys::nvjpegJpegState_t>> {
    let calls = &jpeg.library.calls;
    let state = Handle::new(jpeg, calls.nvjpegJpegStateDestroy, |it| {
        // SAFETY: the handles are alive. The call writes one handle.
        let status = unsafe { (calls.nvjpegDecoderStateCreate)(jpeg.handle, jpeg.decoder, it) };
        jpeg.check("nvjpegDecoderStateCreate", status)
    })?;
    // SAFETY: all handles are alive. The buffers outlive the state.
    let status = unsafe { (calls.nvjpegStateAttachPinnedBuffer)(state.raw, buffers.pinned.raw) };
    check("nvjpegStateAttachPinnedBuffer", status)?;
    // SAFETY: all handles are alive. The buffers outlive the state.
    let status = unsafe { (calls.nvjpegStateAttachDeviceBuffer)(state.raw, buffers.device.raw) };
    check("nvjpegStateAttachDeviceBuffer", status)?;
    Ok(state)
}

/// nvJPEG's memory for one image. The memory outlives nvJPEG's states, which are replaced after
/// errors.
#[derive(Debug)]
struct Buffers {
    pinned: Handle<sys::nvjpegBufferPinned_t>,
    device: Handle<sys::nvjpegBufferDevice_t>,
}

impl Buffers {
    fn new(jpeg: &Arc<Jpeg>, device_bytes: usize, pinned_bytes: usize) -> Result<Self> {
        let calls = &jpeg.library.calls;
        let pinned = Handle::new(jpeg, calls.nvjpegBufferPinnedDestroy, |it| {
            let allocator = jpeg.allocators.for_pinned();
            // SAFETY: the handle and the allocator are alive, and outlive the buffer.
            let status = unsafe { (calls.nvjpegBufferPinnedCreateV2)(jpeg.handle, allocator, it) };
            check("nvjpegBufferPinnedCreateV2", status)
        })?;
        let device = Handle::new(jpeg, calls.nvjpegBufferDeviceDestroy, |it| {
            let allocator = jpeg.allocators.for_device();
            // SAFETY: the handle and the allocator are alive, and outlive the buffer.
            let status = unsafe { (calls.nvjpegBufferDeviceCreateV2)(jpeg.handle, allocator, it) };
            check("nvjpegBufferDeviceCreateV2", status)
        })?;
        if pinned_bytes > 0 {
            // SAFETY: the buffer is alive. The null stream is the default stream, which has no work
            // of ours.
            let status = unsafe {
                (calls.nvjpegBufferPinnedResize)(pinned.raw, pinned_bytes, ptr::null_mut())
            };
            jpeg.check("nvjpegBufferPinnedResize", status)?;
        }
        if device_bytes > 0 {
            // SAFETY: the buffer is alive. The null stream is the default stream, which has no work
            // of ours.
            let status = unsafe {
                (calls.nvjpegBufferDeviceResize)(device.raw, device_bytes, ptr::null_mut())
            };
            jpeg.check("nvjpegBufferDeviceResize", status)?;
        }
        Ok(Self { pinned, device })
    }
}

/// nvJPEG object that is destroyed with its owner.
#[derive(Debug)]
pub(super) struct Handle<T: Copy> {
    pub raw: T,
    destroy: unsafe extern "C" fn(T) -> Status,
    pub jpeg: Arc<Jpeg>,
}

impl<T: Copy> Handle<*mut T> {
    pub fn new(
        jpeg: &Arc<Jpeg>,
        destroy: unsafe extern "C" fn(*mut T) -> Status,
        create: impl FnOnce(&mut *mut T) -> Result<()>,
    ) -> Result<Self> {
        let mut raw = ptr::null_mut();
        create(&mut raw)?;
        Ok(Self { raw, destroy, jpeg: jpeg.clone() })
    }
}

impl<T: Copy> Drop for Handle<T> {
    fn drop(&mut self) {
        if let Ok(_entered) = self.jpeg.device.enter() {
            // SAFETY: the object was created once and is destroyed once. nvJPEG's handle is alive,
            // because `jpeg` holds it.
            unsafe { (self.destroy)(self.raw) };
        }
    }
}
