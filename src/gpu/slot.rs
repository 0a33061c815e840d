//! An output tensor on the device, as a slot of a ring.

use std::sync::Arc;

use super::pool::DeviceBuffer;
use super::{Event, Stream};
use crate::error::Result;
use crate::ring::Slot;

/// A buffer that one stream fills and another uses, in turns, with two events and no waiting on the host.
///
/// The producer's stream waits for the event `free` before it fills, and the consumer's for `ready` before it uses.
/// The consumer's stream is fixed here, so that a batch which is dropped anywhere can still say behind
/// which work of the consumer its slot is free.
#[derive(Debug)]
pub struct TensorSlot {
    buffer: Arc<DeviceBuffer>,
    ready: Event,
    free: Event,
    producer: Arc<Stream>,
    consumer: Arc<Stream>,
}

impl TensorSlot {
    /// A slot that is free.
    pub fn new(buffer: DeviceBuffer, producer: Arc<Stream>, consumer: Arc<Stream>) -> Result<Self> {
        let ready = Event::new(buffer.device())?;
        let free = Event::new(buffer.device())?;
        Ok(Self { buffer: Arc::new(buffer), ready, free, producer, consumer })
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

    fn end_use(&mut self) -> Result<()> {
        self.free.record(&self.consumer)
    }
}
