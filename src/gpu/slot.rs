//! Output tensor on the device, as a slot of a ring.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::pool::DeviceBuffer;
use super::{Event, Stream};
use crate::error::{Error, Result};
use crate::ring::Slot;

/// Buffer that one stream fills and another uses in turn, synchronized by two events.
///
/// The producer's stream waits for the event `free` before it fills, and the consumer's for `ready` before it uses.
/// The consumer's stream is fixed here, so that dropping a batch anywhere can record which work of the consumer frees
/// its slot. Other streams can be admitted while the slot is in use ([`lend`](Self::lend)); the slot is then free
/// after the work of all of them.
#[derive(Debug)]
pub struct TensorSlot {
    buffer: Arc<DeviceBuffer>,
    ready: Event,
    free: Event,
    producer: Arc<Stream>,
    consumer: Arc<Stream>,
    /// Streams besides the consumer's that currently use it.
    lent: Mutex<Vec<Arc<Stream>>>,
    /// Whether unnamed streams may use it.
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

    /// Admits another stream to the tensor until the use ends: work enqueued there from now on waits until the tensor
    /// is filled, and the next filling waits for what is in that stream when the use ends. Does not block the host.
    ///
    /// # Errors
    /// [`Error::Config`] for a stream of another device, [`Error::Device`] if the driver refuses.
    pub fn lend(&self, stream: &Arc<Stream>) -> Result<()> {
        let (ours, theirs) = (self.buffer.device().ordinal(), stream.device().ordinal());
        if ours != theirs {
            let problem = format!("is of gpu {theirs}, the batch is on gpu {ours}");
            return Err(Error::config("stream", problem));
        }
        if stream.is(&self.consumer) {
            return Ok(());
        }
        let mut lent = self.lent.lock().unwrap_or_else(PoisonError::into_inner);
        stream.wait(&self.ready)?;
        // Default streams of several threads are recorded once.
        if !lent.iter().any(|it| it.is(stream)) {
            lent.push(stream.clone());
        }
        Ok(())
    }

    /// Admits streams whose handles are unknown. Blocks the host until the tensor is filled. The next filling waits for all
    /// work that is in the device's primary context when the use ends.
    ///
    /// # Errors
    /// [`Error::Device`] if the driver fails.
    pub fn lend_to_unnamed(&self) -> Result<()> {
        self.lent_to_unnamed.store(true, Ordering::Relaxed);
        self.ready.synchronize()
    }

    /// The tensor's memory, which may be held by whoever fills a part of it.
    pub fn buffer(&self) -> &Arc<DeviceBuffer> {
        &self.buffer
    }

    /// Stream that fills it.
    pub fn producer(&self) -> &Arc<Stream> {
        &self.producer
    }

    /// Stream that uses it.
    pub fn consumer(&self) -> &Arc<Stream> {
        &self.consumer
    }

    /// Reached when the last use is over. Decoders that write outside stream order must check it on the host.
    pub fn free(&self) -> &Event {
        &self.free
    }

    /// Reached when the last filling is over.
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

    /// A wait covers what was recorded before it, so one event can serve every stream in turn.
    fn end_use(&mut self) -> Result<()> {
        if std::mem::take(self.lent_to_unnamed.get_mut()) {
            self.free.record_behind_all()?;
            self.consumer.wait(&self.free)?;
        }
        let lent = self.lent.get_mut().unwrap_or_else(PoisonError::into_inner);
        for stream in lent.drain(..) {
            if stream.is_per_thread() {
                // This may be another thread than the one that used it. The legacy default stream waits for
                // the default streams of all threads (CUDA, "Stream synchronization behavior").
                self.free.record(&Stream::legacy_default(stream.device()))?;
            } else {
                self.free.record(&stream)?;
            }
            self.consumer.wait(&self.free)?;
        }
        self.free.record(&self.consumer)
    }
}

/// Number of lent streams that need no extra allocation.
const LENT: usize = 4;
