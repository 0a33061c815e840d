//! Streams and events: the device's queues, and marks in them for which other streams can wait.

use std::mem;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

use cudarc::driver::{CudaStream, result, sys};

use super::{Device, driver, library};
use crate::error::{Error, Result};

/// Queue of work on the device. Work in one stream runs in order. Different streams run in any
/// order unless an [`Event`] synchronizes them.
///
/// If this crate created the stream, dropping the value first waits for the stream's work.
#[derive(Debug)]
pub struct Stream {
    raw: sys::CUstream,
    owner: Owner,
    device: Arc<Device>,
}

/// Owner of a stream. The owner destroys the stream.
#[derive(Debug)]
enum Owner {
    Us,
    /// An external owner that keeps the stream alive. The default streams have no owner, because
    /// they always exist.
    Other,
    /// cudarc owns the stream. The `Arc` keeps the stream alive.
    Cudarc(Arc<CudaStream>),
}

// SAFETY: every thread may use a stream handle (CUDA driver API, "Stream Management"). The context
// is bound before each call.
unsafe impl Send for Stream {}
// SAFETY: every thread may use a stream handle, and the driver serializes calls on one stream.
unsafe impl Sync for Stream {}

impl Stream {
    /// Creates a stream that is not synchronized with the legacy default stream.
    pub fn new(device: &Arc<Device>) -> Result<Self> {
        let _entered = device.enter()?;
        let created = result::stream::create(result::stream::StreamKind::NonBlocking);
        let raw = driver("cuStreamCreate", created)?;
        Ok(Self { raw, owner: Owner::Us, device: device.clone() })
    }

    /// Wraps a foreign stream, for example the one on which a framework consumes batches.
    ///
    /// # Safety
    /// `raw` must be a `CUstream` of this device's primary context, or null for the legacy default
    /// stream. The handle must stay valid as long as the returned value and everything created from
    /// it.
    pub unsafe fn borrowed(device: &Arc<Device>, raw: *mut std::ffi::c_void) -> Self {
        Self { raw: raw.cast(), owner: Owner::Other, device: device.clone() }
    }

    /// Wraps a stream of cudarc. The returned value keeps the cudarc stream alive.
    ///
    /// # Errors
    /// [`Error::Config`] if the stream does not belong to this device's primary context. A stream
    /// of another context cannot share memory and events with our streams.
    pub fn of_cudarc(device: &Arc<Device>, stream: &Arc<CudaStream>) -> Result<Self> {
        if stream.context().cu_ctx() != device.context {
            let problem = format!(
                "belongs to a context other than the primary context of GPU {}; create the stream \
                 with CudaContext::new({})",
                device.ordinal(),
                device.ordinal()
            );
            return Err(Error::config("stream", problem));
        }
        let (raw, owner) = (stream.cu_stream(), Owner::Cudarc(stream.clone()));
        Ok(Self { raw, owner, device: device.clone() })
    }

    /// Returns the legacy default stream, which always exists. The legacy default stream and every
    /// blocking stream wait for each other's work. This crate's streams are non-blocking.
    pub fn legacy_default(device: &Arc<Device>) -> Self {
        Self { raw: LEGACY as sys::CUstream, owner: Owner::Other, device: device.clone() }
    }

    /// Returns the default stream of the calling thread. The handle is the same in every thread,
    /// although each thread has its own stream.
    pub fn per_thread_default(device: &Arc<Device>) -> Self {
        Self { raw: PER_THREAD as sys::CUstream, owner: Owner::Other, device: device.clone() }
    }

    /// Makes all work that is enqueued in this stream from now on wait until the event's last
    /// record is reached. Does not block the host. An event that was never recorded delays nothing.
    pub fn wait(&self, event: &Event) -> Result<()> {
        let _entered = self.device.enter()?;
        let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
        // SAFETY: both handles are alive, because they are borrowed.
        driver("cuStreamWaitEvent", unsafe {
            result::stream::wait_event(self.raw, event.raw, flags)
        })
    }

    /// Blocks until the stream is empty. Returns errors of the stream's work.
    pub fn synchronize(&self) -> Result<()> {
        let _entered = self.device.enter()?;
        // SAFETY: the handle is alive.
        driver("cuStreamSynchronize", unsafe { result::stream::synchronize(self.raw) })
    }

    /// Returns the `CUstream` handle, for nvJPEG and frameworks. The handle is valid as long as
    /// this stream.
    pub fn raw(&self) -> *mut std::ffi::c_void {
        self.raw.cast()
    }

    /// Returns the device of the stream.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    pub(super) fn handle(&self) -> sys::CUstream {
        self.raw
    }

    /// Whether both handles mean the same queue.
    pub(super) fn is(&self, other: &Stream) -> bool {
        self.number() == other.number() && self.device.context == other.device.context
    }

    /// Returns the handle as a number. The legacy default stream has two handles, but one number.
    fn number(&self) -> usize {
        match self.raw as usize {
            0 => LEGACY,
            number => number,
        }
    }

    /// Whether this is [`per_thread_default`](Self::per_thread_default).
    pub(super) fn is_per_thread(&self) -> bool {
        self.raw as usize == PER_THREAD
    }
}

/// Events after the last use of an object, one event for each stream that used the object. Waiting
/// for these events does not wait for other work of the context, such as a framework's.
#[derive(Debug, Default)]
pub(super) struct LastUses(Mutex<Vec<(Queue, Event)>>);

/// Identity of a stream's queue: the stream's handle. The handle of the per-thread default stream
/// means a different queue in each thread, so its identity includes the thread.
type Queue = (usize, Option<ThreadId>);

impl LastUses {
    /// Records an event after the work that is in the stream now. If recording fails, waits for the
    /// stream instead.
    pub fn record(&self, stream: &Stream) -> Result<()> {
        let queue = (stream.number(), stream.is_per_thread().then(|| thread::current().id()));
        let mut uses = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let recorded = match uses.iter().find(|(it, _)| *it == queue) {
            Some((_, event)) => event.record(stream),
            None => Event::new(&stream.device).and_then(|event| {
                event.record(stream)?;
                uses.push((queue, event));
                Ok(())
            }),
        };
        recorded.or_else(|error| {
            stream.synchronize()?;
            Err(error)
        })
    }

    /// Blocks until all uses have ended.
    pub fn synchronize_in_drop(&self) -> Result<()> {
        let uses = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        uses.iter().try_for_each(|(_, event)| event.synchronize_in_drop())
    }
}

/// `CU_STREAM_LEGACY` of cuda.h.
const LEGACY: usize = 1;
/// `CU_STREAM_PER_THREAD` of cuda.h.
const PER_THREAD: usize = 2;

impl Drop for Stream {
    fn drop(&mut self) {
        match mem::replace(&mut self.owner, Owner::Other) {
            Owner::Other => {}
            // When cudarc destroys the stream, it binds its own context. `_entered` restores the
            // previous context afterwards.
            Owner::Cudarc(stream) => {
                let _entered = self.device.enter();
                drop(stream);
            }
            Owner::Us => {
                let Ok(_entered) = self.device.enter() else { return };
                // SAFETY: the handle is ours and is not used afterwards. The driver lets the
                // stream's work finish. An error is ignored, because the next call on the device
                // reports it again.
                let _ = unsafe { result::stream::destroy(self.raw) };
            }
        }
    }
}

/// Mark in a stream. Recording an event again moves its mark.
#[derive(Debug)]
pub struct Event {
    raw: sys::CUevent,
    device: Arc<Device>,
}

// SAFETY: every thread may use an event handle (CUDA driver API, "Event Management"). The context
// is bound before each call.
unsafe impl Send for Event {}
// SAFETY: every thread may use an event handle (CUDA driver API, "Event Management").
unsafe impl Sync for Event {}

impl Event {
    /// Creates an event that counts as reached until it is recorded. The event has no time stamp,
    /// because time stamps cost hundreds of microseconds on some devices. A host thread that waits
    /// for the event sleeps instead of spinning.
    pub fn new(device: &Arc<Device>) -> Result<Self> {
        let flags = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as u32
            | sys::CUevent_flags::CU_EVENT_BLOCKING_SYNC as u32;
        Self::with_flags(device, flags)
    }

    /// Creates an event with a time stamp, for [`elapsed_since`](Self::elapsed_since) and
    /// [`Stopwatch`](super::Stopwatch). Neither streams nor host threads should wait for this
    /// event. A host thread would spin.
    pub fn timed(device: &Arc<Device>) -> Result<Self> {
        Self::with_flags(device, sys::CUevent_flags::CU_EVENT_DEFAULT as u32)
    }

    fn with_flags(device: &Arc<Device>, flags: u32) -> Result<Self> {
        let _entered = device.enter()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the call writes one handle to `raw`. `result::event::create` is not used, because
        // it accepts only one flag.
        driver("cuEventCreate", unsafe { sys::cuEventCreate(&mut raw, flags).result() })?;
        Ok(Self { raw, device: device.clone() })
    }

    /// Enqueues the event after all work that is in the stream now.
    pub fn record(&self, stream: &Stream) -> Result<()> {
        let _entered = self.device.enter()?;
        // SAFETY: both handles are alive, because they are borrowed.
        driver("cuEventRecord", unsafe { result::event::record(self.raw, stream.raw) })
    }

    /// Records the event after all work that is now enqueued in the device's primary context, by
    /// all libraries of the process. Drivers before CUDA 12.5 lack the function `cuCtxRecordEvent`.
    /// With these drivers the host waits for the work.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) if a stream of the context is being captured. The
    /// driver then invalidates the capture (`cuCtxRecordEvent`).
    pub(super) fn record_behind_all(&self) -> Result<()> {
        type RecordBehindAll = unsafe extern "C" fn(sys::CUcontext, sys::CUevent) -> sys::CUresult;
        let libcuda = library::open(self.device.runtime(), super::LibraryName::Driver, None)?;
        // SAFETY: the function pointer type is that of cuda.h.
        let function = unsafe { libcuda.function::<RecordBehindAll>("cuCtxRecordEvent") };
        let Ok(record) = function else { return self.device.synchronize() };
        let _entered = self.device.enter()?;
        // SAFETY: both handles are alive.
        match unsafe { record(self.device.context, self.raw) }.result() {
            Err(error) if error.0 == sys::CUresult::CUDA_ERROR_NOT_SUPPORTED => {
                self.device.synchronize()
            }
            other => driver("cuCtxRecordEvent", other),
        }
    }

    /// Whether the event is reached. Does not block.
    pub fn query(&self) -> Result<bool> {
        let _entered = self.device.enter()?;
        // SAFETY: the handle is alive.
        match unsafe { result::event::query(self.raw) } {
            Err(error) if error.0 == sys::CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            other => driver("cuEventQuery", other).map(|()| true),
        }
    }

    /// Returns the device time between an earlier event and this one, or `None` if one of the two
    /// events is not reached. Does not block. CUDA returns milliseconds in single precision, in
    /// steps of about half a microsecond.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) if one of the events is not [`timed`](Self::timed)
    /// or was never recorded.
    pub fn elapsed_since(&self, earlier: &Event) -> Result<Option<Duration>> {
        let _entered = self.device.enter()?;
        let mut milliseconds = 0f32;
        let elapsed = elapsed_time(&self.device)?;
        // SAFETY: both handles are alive. The call writes one number.
        let called = unsafe { elapsed(&mut milliseconds, earlier.raw, self.raw) }.result();
        match called {
            Err(error) if error.0 == sys::CUresult::CUDA_ERROR_NOT_READY => Ok(None),
            other => {
                driver("cuEventElapsedTime", other)?;
                let seconds = f64::from(milliseconds.max(0.0)) * 1e-3;
                Ok(Duration::try_from_secs_f64(seconds).ok())
            }
        }
    }

    /// Like [`synchronize`](Self::synchronize), for destructors. A destructor may run on a thread
    /// that captures a graph, or while another thread captures one.
    pub(super) fn synchronize_in_drop(&self) -> Result<()> {
        self.device.beside_captures(|| self.synchronize())
    }

    /// Returns the `CUevent` handle, for streams of other code. The handle is valid as long as this
    /// event.
    pub fn raw(&self) -> *mut std::ffi::c_void {
        self.raw.cast()
    }

    /// Blocks until the event is reached.
    pub fn synchronize(&self) -> Result<()> {
        let _entered = self.device.enter()?;
        // SAFETY: the handle is alive.
        driver("cuEventSynchronize", unsafe { result::event::synchronize(self.raw) })
    }
}

type ElapsedTime = unsafe extern "C" fn(*mut f32, sys::CUevent, sys::CUevent) -> sys::CUresult;

/// Returns `cuEventElapsedTime`, which every driver has. cudarc declares only the successor of this
/// function from CUDA 12.8, which older drivers lack.
fn elapsed_time(device: &Device) -> Result<ElapsedTime> {
    static FOUND: OnceLock<ElapsedTime> = OnceLock::new();
    if let Some(found) = FOUND.get() {
        return Ok(*found);
    }
    let driver = library::open(device.runtime(), super::LibraryName::Driver, None)?;
    // SAFETY: the function pointer type is that of cuda.h.
    let found = unsafe { driver.function("cuEventElapsedTime") }?;
    Ok(*FOUND.get_or_init(|| found))
}

impl Drop for Event {
    fn drop(&mut self) {
        if let Ok(_entered) = self.device.enter() {
            // SAFETY: the handle is ours and is not used afterwards. The driver keeps the data that
            // waiting streams need.
            let _ = unsafe { result::event::destroy(self.raw) };
        }
    }
}
