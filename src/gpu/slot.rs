//! An output tensor on the device, as a slot of a ring.

use std::sync::{Arc, Mutex, PoisonError};

use super::pool::DeviceBuffer;
use super::{Event, Stream};
use crate::error::{Error, Result};
use crate::ring::Slot;

/// A buffer that one stream fills and another uses, in turns, with two events and no waiting on the host.
///
/// The producer's stream waits for the event `free` before it fills, and the consumer's for `ready` before it uses.
/// The consumer's stream is fixed here, so that a batch which is dropped anywhere can still say behind
/// which work of the consumer its slot is free. Other streams may be let in while the slot is in use
/// ([`lend`](Self::lend)): it is then free behind the work of all of them.
#[derive(Debug)]
pub struct TensorSlot {
    buffer: Arc<DeviceBuffer>,
    ready: Event,
    free: Event,
    producer: Arc<Stream>,
    consumer: Arc<Stream>,
    /// Streams besides the consumer's that use it now.
    lent: Mutex<Vec<Arc<Stream>>>,
}

impl TensorSlot {
    /// A slot that is free.
    pub fn new(buffer: DeviceBuffer, producer: Arc<Stream>, consumer: Arc<Stream>) -> Result<Self> {
        let ready = Event::new(buffer.device())?;
        let free = Event::new(buffer.device())?;
        let lent = Mutex::new(Vec::with_capacity(LENT));
        Ok(Self { buffer: Arc::new(buffer), ready, free, producer, consumer, lent })
    }

    /// Lets another stream use the tensor, from this call to the end of the use: what is put into it from now on
    /// waits until the tensor is filled, and the next filling waits for what is in it when the use ends. Nothing
    /// waits on the host.
    ///
    /// # Errors
    /// [`Error::Config`] for a stream of another device, [`Error::Device`] where the driver refuses.
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
        // Of the default streams of several threads one stands for all.
        if !lent.iter().any(|it| it.is(stream)) {
            lent.push(stream.clone());
        }
        Ok(())
    }

    /// The tensor's memory, which whoever fills a part of it may hold.
    pub fn buffer(&self) -> &Arc<DeviceBuffer> {
        &self.buffer
    }

    /// The stream that fills it.
    pub fn producer(&self) -> &Arc<Stream> {
        &self.producer
    }

    /// The stream that uses it.
    pub fn consumer(&self) -> &Arc<Stream> {
        &self.consumer
    }

    /// Reached when the last use is over; decoders that write outside stream order must see it on the host.
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

    /// A wait counts what was recorded before it, so the one event can stand in every stream in turn.
    fn end_use(&mut self) -> Result<()> {
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

/// Streams that a slot is lent to without taking memory for their names.
const LENT: usize = 4;
