//! Slot of a ring whose tensor is in device memory.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::pool::DeviceBuffer;
use super::{Event, Stream};
use crate::error::{Error, Result};
use crate::ring::Slot;

/// Tensor in device memory that one stream fills and another stream then uses. Two events
/// synchronize the streams.
///
/// The producer's stream waits for the event `free` before it fills the slot. The consumer's stream
/// waits for `ready` before it uses the slot. The consumer's stream is fixed when the slot is
/// created: a batch may be dropped on any thread, and the drop must record an event after the
/// consumer's work. Other streams can be admitted while the slot is in use ([`lend`](Self::lend)).
/// The slot is then free when the work of all these streams has ended.
#[derive(Debug)]
pub struct TensorSlot {
    buffer: Arc<DeviceBuffer>,
    ready: Event,
    free: Event,
    producer: Arc<Stream>,
    consumer: Arc<Stream>,
    /// Streams, besides the consumer's, that currently use the slot.
    lent: Mutex<Vec<Arc<Stream>>>,
    /// Whether streams whose handles are unknown may use the slot.
    lent_to_unnamed: AtomicBool,
}

impl TensorSlot {
    /// Creates a free slot.
    pub fn new(buffer: DeviceBuffer, producer: Arc<Stream>, consumer: Arc<Stream>) -> Result<Self> {
        let ready = Event::new(buffer.device())?;
        let free = Event::new(buffer.device())?;
        let lent = Mutex::new(Vec::with_capacity(LENT));
        let lent_to_unnamed = AtomicBool::new(false);
        let buffer = Arc::new(buffer);
        Ok(Self { buffer, ready, free, producer, consumer, lent, lent_to_unnamed })
    }

    /// Lends the tensor to another stream until the consumer returns the slot. Work that is
    /// enqueued in that stream from now on waits until the tensor is filled. The slot is filled
    /// again only after the work has finished that is in that stream when the consumer returns the
    /// slot. Does not block the host.
    ///
    /// # Errors
    /// [`Error::Config`] for a stream of another device. [`Error::Device`] if a driver call fails.
    pub fn lend(&self, stream: &Arc<Stream>) -> Result<()> {
        let (ours, theirs) = (self.buffer.device().ordinal(), stream.device().ordinal());
        if ours != theirs {
            let problem = format!(
                "belongs to GPU {theirs}, but the batch is on GPU {ours}; use a stream of the \
                 batch's GPU"
            );
            return Err(Error::config("stream", problem));
        }
        if stream.is(&self.consumer) {
            return Ok(());
        }
        let mut lent = self.lent.lock().unwrap_or_else(PoisonError::into_inner);
        stream.wait(&self.ready)?;
        // If the stream is already in the list, no second entry is needed. The default streams of
        // several threads have one handle, and thus one entry for all of them.
        if !lent.iter().any(|it| it.is(stream)) {
            lent.push(stream.clone());
        }
        Ok(())
    }

    /// Lends the tensor to streams whose handles are unknown. Blocks the host until the tensor is
    /// filled. When the consumer returns the slot, the device's primary context may contain work of
    /// these streams. The slot is filled again only after all work has finished that is in the
    /// context at that time.
    ///
    /// # Errors
    /// [`Error::Device`] if a driver call fails.
    pub fn lend_to_unnamed(&self) -> Result<()> {
        self.lent_to_unnamed.store(true, Ordering::Relaxed);
        self.ready.synchronize()
    }

    /// Returns the tensor's memory. Code that fills a part of the memory may hold the `Arc`.
    pub fn buffer(&self) -> &Arc<DeviceBuffer> {
        &self.buffer
    }

    /// Returns the stream that fills the slot.
    pub fn producer(&self) -> &Arc<Stream> {
        &self.producer
    }

    /// Returns the stream that uses the slot.
    pub fn consumer(&self) -> &Arc<Stream> {
        &self.consumer
    }

    /// Event that is reached when the last use of the slot has ended. Decoders whose writes do not
    /// follow the order of a stream must wait for this event on the host before they write.
    pub fn free(&self) -> &Event {
        &self.free
    }

    /// Event that is reached when the tensor is filled.
    pub fn ready(&self) -> &Event {
        &self.ready
    }
}

impl Slot for TensorSlot {
    fn begin_fill(&mut self) -> Result<()> {
        self.producer.wait(&self.free)
    }

    fn end_fill(&mut self) -> Result<()> {
        self.ready.record(&self.producer)
    }

    fn begin_use(&mut self) -> Result<()> {
        self.consumer.wait(&self.ready)
    }

    /// Records the event `free` in all streams that used the slot, one stream after another. A wait
    /// for an event covers only the event's latest record. So the consumer's stream waits for each
    /// record before the next record replaces it.
    fn end_use(&mut self) -> Result<()> {
        if std::mem::take(self.lent_to_unnamed.get_mut()) {
            self.free.record_behind_all()?;
            self.consumer.wait(&self.free)?;
        }
        let lent = self.lent.get_mut().unwrap_or_else(PoisonError::into_inner);
        for stream in lent.drain(..) {
            if stream.is_per_thread() {
                // The thread that used this per-thread default stream may be another one than this
                // thread. The event is therefore recorded in the legacy default stream, which waits
                // for the default streams of all threads (CUDA, "Stream synchronization behavior").
                self.free.record(&Stream::legacy_default(stream.device()))?;
            } else {
                self.free.record(&stream)?;
            }
            self.consumer.wait(&self.free)?;
        }
        self.free.record(&self.consumer)
    }
}

/// Number of lent streams for which memory is allocated in advance.
const LENT: usize = 4;
