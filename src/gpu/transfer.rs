//! Bytes between host and device, in stream order, without races on the host's side.

use std::ops::Range;

use cudarc::driver::result;

use super::pool::{DeviceBuffer, PinnedBuffer};
use super::{Event, Stream, driver};
use crate::error::{Error, Result};

/// A page-locked buffer with its twin on the device: the host writes one, a stream copies it to the other.
///
/// The host gets at the bytes only when the last copy of them has been made: [`bytes`](Self::bytes) waits for
/// it. The device's side is ordered by streams: whoever reads it in another stream than the copy's waits for
/// an event that was recorded after the copy, and the next upload waits for whoever still reads.
#[derive(Debug)]
pub struct Staged {
    host: PinnedBuffer,
    device: DeviceBuffer,
    copied: Event,
}

impl Staged {
    /// A pair of buffers of the same length.
    pub fn new(host: PinnedBuffer, device: DeviceBuffer) -> Result<Self> {
        if host.len() != device.len() {
            let problem = format!(
                "staging needs twins, these have {} and {} bytes",
                host.len(),
                device.len()
            );
            return Err(Error::Internal { problem });
        }
        let copied = Event::new(device.device())?;
        Ok(Self { host, device, copied })
    }

    /// The host's bytes, for writing; waits on the host until the last upload has read them.
    pub fn bytes(&mut self) -> Result<&mut [u8]> {
        self.copied.synchronize()?;
        Ok(&mut self.host)
    }

    /// Puts a copy of these bytes, host to device, into the stream.
    pub fn upload(&mut self, stream: &Stream, range: Range<usize>) -> Result<()> {
        let host =
            self.host.get(range.clone()).ok_or_else(|| out_of_bounds(&range, self.device.len()))?;
        if host.is_empty() {
            return Ok(());
        }
        stream.device().bind()?;
        let destination = self.device.address() + range.start as u64;
        // SAFETY: the range is within both buffers; `bytes` and `drop` wait for `copied` before the host's side
        // is written or given back.
        let copy = unsafe { result::memcpy_htod_async(destination, host, stream.handle()) };
        driver("cuMemcpyHtoDAsync", copy)?;
        if let Err(error) = self.copied.record(stream) {
            // Without the mark nobody could tell when the copy is over.
            stream.synchronize()?;
            return Err(error);
        }
        Ok(())
    }

    /// The device's side.
    pub fn device(&self) -> &DeviceBuffer {
        &self.device
    }

    /// Number of bytes of each side.
    pub fn len(&self) -> usize {
        self.device.len()
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.device.is_empty()
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        // The host's side goes back to its pool: not before the copy has read it. Where waiting fails, the
        // device is lost and copies nothing any more.
        let _ = self.copied.synchronize();
    }
}

/// Copies bytes from the device, behind everything that is in the stream now, and waits for them.
pub fn read_back(
    stream: &Stream,
    source: &DeviceBuffer,
    offset: usize,
    bytes: &mut [u8],
) -> Result<()> {
    let range = offset..offset.saturating_add(bytes.len());
    if range.end > source.len() {
        return Err(out_of_bounds(&range, source.len()));
    }
    if bytes.is_empty() {
        return Ok(());
    }
    stream.device().bind()?;
    // SAFETY: the range is within the source, and the destination is borrowed until the stream is empty.
    let copy = unsafe {
        result::memcpy_dtoh_async(bytes, source.address() + offset as u64, stream.handle())
    };
    let copied = driver("cuMemcpyDtoHAsync", copy);
    stream.synchronize()?;
    copied
}

/// Puts writing one value to every byte of a range into the stream.
pub fn fill(stream: &Stream, target: &DeviceBuffer, range: Range<usize>, value: u8) -> Result<()> {
    if range.start > range.end || range.end > target.len() {
        return Err(out_of_bounds(&range, target.len()));
    }
    if range.is_empty() {
        return Ok(());
    }
    stream.device().bind()?;
    let start = target.address() + range.start as u64;
    // SAFETY: the range is within the target, which is device memory.
    let filled = unsafe { result::memset_d8_async(start, value, range.len(), stream.handle()) };
    driver("cuMemsetD8Async", filled)
}

fn out_of_bounds(range: &Range<usize>, len: usize) -> Error {
    let problem = format!("bytes {} to {} of a buffer of {len} bytes", range.start, range.end);
    Error::Internal { problem }
}
