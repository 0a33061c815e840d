//! The two phases of one picture.

use std::ptr;
use std::sync::Arc;

use nvjpeg_sys as sys;
use nvjpeg_sys::nvjpegStatus_t as Status;

use super::jpeg::{Jpeg, Window};
use super::{DecodeFault, check};
use crate::error::{Error, Fault, Reason, Result};
use crate::geometry::{Roi, Size};
use crate::gpu::pool::DeviceBuffer;
use crate::gpu::{Event, Stream};

/// Decodes one picture at a time, in two phases; may move between threads.
///
/// After a failure, whichever, the next picture starts with a new state: nvJPEG's may hold pixels of the
/// picture before.
#[derive(Debug)]
pub struct PageDecoder {
    // Dropped in this order: the state uses the buffers.
    session: Option<Session>,
    buffers: Buffers,
    params: Handle<sys::nvjpegDecodeParams_t>,
    /// Reached when the device phase no longer needs state and buffers.
    done: Event,
    window: Option<Window>,
    jpeg: Arc<Jpeg>,
}

// SAFETY: states, streams, buffers and parameters may move between threads as long as one at a time uses them
// (nvJPEG documentation, "Thread Safety"): `&mut self`. The device is bound before each call.
unsafe impl Send for PageDecoder {}

impl PageDecoder {
    /// Everything for one picture at a time, with nvJPEG's buffers of these sizes, so that they need not grow: a
    /// buffer that grows waits for the device, and rows of grown buffers have gaps. With 0 they begin empty.
    ///
    /// # Errors
    /// [`Error::Budget`] where nvJPEG's rows have not that much left.
    pub fn new(jpeg: &Arc<Jpeg>, device_bytes: usize, pinned_bytes: usize) -> Result<Self> {
        jpeg.device.bind()?;
        let calls = &jpeg.library.calls;
        let params = Handle::new(jpeg, calls.nvjpegDecodeParamsDestroy, |it| {
            // SAFETY: the handle is alive; writes one handle.
            check("nvjpegDecodeParamsCreate", unsafe {
                (calls.nvjpegDecodeParamsCreate)(jpeg.handle, it)
            })
        })?;
        let rgb = sys::nvjpegOutputFormat_t::NVJPEG_OUTPUT_RGBI;
        // SAFETY: the parameters are alive.
        let status = unsafe { (calls.nvjpegDecodeParamsSetOutputFormat)(params.raw, rgb) };
        check("nvjpegDecodeParamsSetOutputFormat", status)?;
        let buffers = Buffers::new(jpeg, device_bytes, pinned_bytes)?;
        let session = Some(Session::new(jpeg, &buffers)?);
        let done = Event::new(&jpeg.device)?;
        Ok(Self { session, buffers, params, done, window: None, jpeg: jpeg.clone() })
    }

    /// The host's phase: parses the file and decodes its entropy code. Waits until the device's phase of the
    /// picture before is over, which it normally is. The bytes are not needed afterwards (nvJPEG keeps a copy).
    ///
    /// Gives which window the device's phase will write.
    ///
    /// # Errors
    /// [`DecodeFault::Sample`] where the file is at fault, or where `wanted` is not within the picture.
    pub fn host(&mut self, bytes: &[u8], wanted: Roi) -> Result<Window, DecodeFault> {
        self.window = None;
        self.jpeg.device.bind()?;
        self.done.synchronize()?;
        let session = match self.session.take() {
            Some(session) => session,
            None => Session::new(&self.jpeg, &self.buffers)?,
        };
        // On failure `session` is dropped, and with it what nvJPEG remembers.
        let window = self.decode_on_host(&session, bytes, wanted)?;
        self.session = Some(session);
        self.window = Some(window);
        Ok(window)
    }

    /// The device's phase: puts writing the window that [`host`](Self::host) gave, as RGB bytes, into the stream. Its
    /// rows begin `pitch_bytes` apart, the first one `offset` bytes into the destination.
    ///
    /// # Errors
    /// [`Error::Internal`] without a host phase before it, or where the window does not fit in the destination.
    pub fn device(
        &mut self,
        stream: &Stream,
        destination: &DeviceBuffer,
        offset: usize,
        pitch_bytes: usize,
    ) -> Result<(), DecodeFault> {
        let (Some(window), Some(session)) = (self.window.take(), self.session.take()) else {
            let problem =
                "the device's phase needs the host's phase of the same picture before it".into();
            return Err(Error::Internal { problem }.into());
        };
        self.jpeg.device.bind()?;
        let decoded =
            self.decode_on_device(&session, stream, window, destination, offset, pitch_bytes);
        match decoded.and_then(|()| Ok(self.done.record(stream)?)) {
            Ok(()) => {
                self.session = Some(session);
                Ok(())
            }
            Err(fault) => {
                // Some of it may be in the stream: nothing is given back before that is over. Where waiting fails the
                // device is lost, and `fault` or the next call says so.
                let _ = stream.synchronize();
                drop(session);
                Err(fault)
            }
        }
    }

    /// Waits on the host until the device's phase is over.
    pub fn wait(&self) -> Result<()> {
        self.done.synchronize()
    }

    /// The window of the last host phase, until the device's phase takes it.
    pub fn window(&self) -> Option<Window> {
        self.window
    }

    fn decode_on_host(
        &self,
        session: &Session,
        bytes: &[u8],
        wanted: Roi,
    ) -> Result<Window, DecodeFault> {
        let jpeg = &*self.jpeg;
        let calls = &jpeg.library.calls;
        // SAFETY: the handles are alive; the bytes are read during the call and copied (last flag).
        let status = unsafe {
            (calls.nvjpegJpegStreamParse)(
                jpeg.handle,
                bytes.as_ptr(),
                bytes.len(),
                0,
                1,
                session.bitstream.raw,
            )
        };
        jpeg.check_decode("nvjpegJpegStreamParse", status)?;
        let mut picture = Size::default();
        // SAFETY: the bitstream is alive and parsed; writes two numbers.
        let status = unsafe {
            (calls.nvjpegJpegStreamGetFrameDimensions)(
                session.bitstream.raw,
                &mut picture.width,
                &mut picture.height,
            )
        };
        jpeg.check_decode("nvjpegJpegStreamGetFrameDimensions", status)?;
        if wanted.is_empty()
            || !picture.window().contains(wanted)
            || picture.width.max(picture.height) > MAX_SIDE
        {
            let problem =
                format!("the window {wanted} is not within the {picture} pixels that nvJPEG sees");
            return Err(DecodeFault::Sample(Fault::new(Reason::Corrupt, problem)));
        }
        let window = jpeg.window(picture, wanted);
        let Roi { x, y, width, height } = window.decoded;
        // SAFETY: the parameters are alive; the numbers are below `MAX_SIDE`.
        let status = unsafe {
            (calls.nvjpegDecodeParamsSetROI)(
                self.params.raw,
                x as i32,
                y as i32,
                width as i32,
                height as i32,
            )
        };
        check("nvjpegDecodeParamsSetROI", status)?;
        // SAFETY: all handles are alive and used by this thread only.
        let status = unsafe {
            (calls.nvjpegDecodeJpegHost)(
                jpeg.handle,
                jpeg.decoder,
                session.state.raw,
                self.params.raw,
                session.bitstream.raw,
            )
        };
        jpeg.check_decode("nvjpegDecodeJpegHost", status)?;
        Ok(window)
    }

    fn decode_on_device(
        &self,
        session: &Session,
        stream: &Stream,
        window: Window,
        destination: &DeviceBuffer,
        offset: usize,
        pitch_bytes: usize,
    ) -> Result<(), DecodeFault> {
        let jpeg = &*self.jpeg;
        let calls = &jpeg.library.calls;
        let rows = window.decoded.height as usize;
        let needed = pitch_bytes
            .checked_mul(rows.saturating_sub(1))
            .and_then(|bytes| bytes.checked_add(window.pitch_bytes()))
            .and_then(|bytes| bytes.checked_add(offset));
        if pitch_bytes < window.pitch_bytes()
            || needed.is_none_or(|needed| needed > destination.len())
        {
            let problem = format!(
                "a window of {} with {pitch_bytes} bytes per row from byte {offset} on does not fit in {} bytes",
                window.decoded,
                destination.len()
            );
            return Err(Error::Internal { problem }.into());
        }
        let raw_stream = stream.raw().cast::<sys::CUstream_st>();
        // SAFETY: all handles are alive; one device phase at a time uses the state, for `host` waited for `done`.
        let status = unsafe {
            (calls.nvjpegDecodeJpegTransferToDevice)(
                jpeg.handle,
                jpeg.decoder,
                session.state.raw,
                session.bitstream.raw,
                raw_stream,
            )
        };
        jpeg.check_decode("nvjpegDecodeJpegTransferToDevice", status)?;
        let mut image = sys::nvjpegImage_t { channel: [ptr::null_mut(); 4], pitch: [0; 4] };
        image.channel[0] = (destination.address() + offset as u64) as *mut u8;
        image.pitch[0] = pitch_bytes;
        // SAFETY: as above; the window fits in the destination; the image's description is read during the call.
        let status = unsafe {
            (calls.nvjpegDecodeJpegDevice)(
                jpeg.handle,
                jpeg.decoder,
                session.state.raw,
                &mut image,
                raw_stream,
            )
        };
        jpeg.check_decode("nvjpegDecodeJpegDevice", status)
    }
}

/// Largest number of columns or rows of a JPEG file.
const MAX_SIDE: u32 = 65535;

impl Drop for PageDecoder {
    fn drop(&mut self) {
        // The device may still use what is destroyed next; where waiting fails it is lost and does not.
        let _ = self.done.synchronize();
    }
}

/// What nvJPEG remembers of a picture; made anew after a failure.
#[derive(Debug)]
struct Session {
    state: Handle<sys::nvjpegJpegState_t>,
    bitstream: Handle<sys::nvjpegJpegStream_t>,
}

impl Session {
    fn new(jpeg: &Arc<Jpeg>, buffers: &Buffers) -> Result<Self> {
        let calls = &jpeg.library.calls;
        let state = Handle::new(jpeg, calls.nvjpegJpegStateDestroy, |it| {
            // SAFETY: the handles are alive; writes one handle.
            let status = unsafe { (calls.nvjpegDecoderStateCreate)(jpeg.handle, jpeg.decoder, it) };
            check("nvjpegDecoderStateCreate", status)
        })?;
        let bitstream = Handle::new(jpeg, calls.nvjpegJpegStreamDestroy, |it| {
            // SAFETY: as above.
            check("nvjpegJpegStreamCreate", unsafe {
                (calls.nvjpegJpegStreamCreate)(jpeg.handle, it)
            })
        })?;
        // SAFETY: all handles are alive; the buffers outlive the state.
        let status =
            unsafe { (calls.nvjpegStateAttachPinnedBuffer)(state.raw, buffers.pinned.raw) };
        check("nvjpegStateAttachPinnedBuffer", status)?;
        // SAFETY: as above.
        let status =
            unsafe { (calls.nvjpegStateAttachDeviceBuffer)(state.raw, buffers.device.raw) };
        check("nvjpegStateAttachDeviceBuffer", status)?;
        Ok(Self { state, bitstream })
    }
}

/// nvJPEG's memory for one picture: kept, whatever becomes of the state.
#[derive(Debug)]
struct Buffers {
    pinned: Handle<sys::nvjpegBufferPinned_t>,
    device: Handle<sys::nvjpegBufferDevice_t>,
}

impl Buffers {
    fn new(jpeg: &Arc<Jpeg>, device_bytes: usize, pinned_bytes: usize) -> Result<Self> {
        let calls = &jpeg.library.calls;
        let pinned = Handle::new(jpeg, calls.nvjpegBufferPinnedDestroy, |it| {
            let mut allocator = jpeg.allocators.for_pinned();
            // SAFETY: the handle is alive; the allocator is copied and what it points to outlives the buffer.
            let status =
                unsafe { (calls.nvjpegBufferPinnedCreateV2)(jpeg.handle, &mut allocator, it) };
            check("nvjpegBufferPinnedCreateV2", status)
        })?;
        let device = Handle::new(jpeg, calls.nvjpegBufferDeviceDestroy, |it| {
            let mut allocator = jpeg.allocators.for_device();
            // SAFETY: as above.
            let status =
                unsafe { (calls.nvjpegBufferDeviceCreateV2)(jpeg.handle, &mut allocator, it) };
            check("nvjpegBufferDeviceCreateV2", status)
        })?;
        if pinned_bytes > 0 {
            // SAFETY: the buffer is alive; the default stream has no work of ours.
            let status = unsafe {
                (calls.nvjpegBufferPinnedResize)(pinned.raw, pinned_bytes, ptr::null_mut())
            };
            jpeg.check("nvjpegBufferPinnedResize", status)?;
        }
        if device_bytes > 0 {
            // SAFETY: as above.
            let status = unsafe {
                (calls.nvjpegBufferDeviceResize)(device.raw, device_bytes, ptr::null_mut())
            };
            jpeg.check("nvjpegBufferDeviceResize", status)?;
        }
        Ok(Self { pinned, device })
    }
}

/// A handle of nvJPEG's that is destroyed with its owner.
#[derive(Debug)]
struct Handle<T: Copy> {
    raw: T,
    destroy: unsafe extern "C" fn(T) -> Status,
    jpeg: Arc<Jpeg>,
}

impl<T: Copy> Handle<*mut T> {
    fn new(
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
        if self.jpeg.device.bind().is_ok() {
            // SAFETY: created once, destroyed once; nvJPEG's handle is alive, for `jpeg` is.
            unsafe { (self.destroy)(self.raw) };
        }
    }
}
