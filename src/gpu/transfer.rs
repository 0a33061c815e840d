//! Copies between host and device in the order of streams. The types prevent data races on the
//! host.

use std::ops::Range;

use cudarc::driver::result;

use super::pool::{DeviceBuffer, PinnedBuffer};
use super::{Event, Stream, driver};
use crate::error::{Error, Result};

/// Page-locked buffer that the host writes and that streams copy to the device.
///
/// [`bytes`](Self::bytes) waits for the last copy, so the host can access the bytes only after that
/// copy has ended.
#[derive(Debug)]
pub struct Upload {
    host: PinnedBuffer,
    copied: Event,
}

impl Upload {
    /// Creates an upload buffer with no copy in progress.
    pub fn new(host: PinnedBuffer) -> Result<Self> {
        let copied = Event::new(host.device())?;
        Ok(Self { host, copied })
    }

    /// Returns the host's bytes for writing. Blocks until the last copy has read the old bytes.
    pub fn bytes(&mut self) -> Result<&mut [u8]> {
        self.copied.synchronize()?;
        Ok(&mut self.host)
    }

    /// Enqueues a copy of the bytes `range` to byte `offset` of the destination.
    pub fn copy(
        &mut self,
        stream: &Stream,
        range: Range<usize>,
        destination: &DeviceBuffer,
        offset: usize,
    ) -> Result<()> {
        let host =
            self.host.get(range.clone()).ok_or_else(|| out_of_bounds(&range, self.host.len()))?;
        let target = offset..offset.saturating_add(host.len());
        if target.end > destination.len() {
            return Err(out_of_bounds(&target, destination.len()));
        }
        if host.is_empty() {
            return Ok(());
        }
        let _entered = stream.device().enter()?;
        let address = destination.address() + offset as u64;
        // SAFETY: the range is within the host buffer and the target within the destination.
        // `bytes` and `drop` wait for `copied` before the host buffer is written or freed.
        let copy = unsafe { result::memcpy_htod_async(address, host, stream.handle()) };
        driver("cuMemcpyHtoDAsync", copy)?;
        mark(&self.copied, stream)
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.host.len()
    }

    /// Whether the buffer is empty.
    pub fn is_empty(&self) -> bool {
        self.host.is_empty()
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        // The host buffer must not return to its pool before the copy has read it. If waiting
        // fails, the device is lost and no longer copies.
        let _ = self.copied.synchronize_in_drop();
    }
}

/// Page-locked buffer into which a stream copies from the device.
///
/// [`bytes`](Self::bytes) waits for the last copy, so the host can read the bytes only after that
/// copy has ended.
#[derive(Debug)]
pub struct Download {
    host: PinnedBuffer,
    copied: Event,
}

impl Download {
    /// Creates a download buffer with no copy in progress.
    pub fn new(host: PinnedBuffer) -> Result<Self> {
        let copied = Event::new(host.device())?;
        Ok(Self { host, copied })
    }

    /// Enqueues a copy of the bytes `range` of the source to byte `offset` of the host buffer.
    /// Between two calls of [`bytes`](Self::bytes), all copies must use one stream.
    pub fn copy(
        &mut self,
        stream: &Stream,
        source: &DeviceBuffer,
        range: Range<usize>,
        offset: usize,
    ) -> Result<()> {
        let len = source.len();
        if range.start > range.end || range.end > len {
            return Err(out_of_bounds(&range, len));
        }
        let target = offset..offset.saturating_add(range.len());
        let len = self.host.len();
        let Some(host) = self.host.get_mut(target.clone()) else {
            return Err(out_of_bounds(&target, len));
        };
        if host.is_empty() {
            return Ok(());
        }
        let _entered = stream.device().enter()?;
        let address = source.address() + range.start as u64;
        // SAFETY: the range is within the source and the target within the host buffer. `bytes` and
        // `drop` wait for `copied` before the host buffer is read or freed.
        let copy = unsafe { result::memcpy_dtoh_async(host, address, stream.handle()) };
        driver("cuMemcpyDtoHAsync", copy)?;
        mark(&self.copied, stream)
    }

    /// Returns the host's bytes. Blocks until the last copy has written these bytes.
    pub fn bytes(&self) -> Result<&[u8]> {
        self.copied.synchronize()?;
        Ok(&self.host)
    }
}

impl Drop for Download {
    fn drop(&mut self) {
        // As for `Upload`, the copy must end before the host buffer returns to its pool.
        let _ = self.copied.synchronize_in_drop();
    }
}

/// Page-locked buffer together with a device buffer of the same length. The host writes the
/// page-locked buffer, and a stream copies it to the device buffer.
///
/// Streams must order their accesses to the device buffer: a reader in another stream waits for an
/// event recorded after the copy, and the next upload waits for all readers.
#[derive(Debug)]
pub struct Staged {
    host: Upload,
    device: DeviceBuffer,
}

impl Staged {
    /// Creates a staged buffer from a host buffer and a device buffer of the same length.
    pub fn new(host: PinnedBuffer, device: DeviceBuffer) -> Result<Self> {
        if host.len() != device.len() {
            let problem = format!(
                "the host buffer and the device buffer of a staged copy must have equal sizes, \
                 but have {} and {} bytes",
                host.len(),
                device.len()
            );
            return Err(Error::Internal { problem });
        }
        Ok(Self { host: Upload::new(host)?, device })
    }

    /// Returns the host's bytes for writing. Blocks until the last upload has read the old bytes.
    pub fn bytes(&mut self) -> Result<&mut [u8]> {
        self.host.bytes()
    }

    /// Enqueues a copy of the bytes `range` from host to device.
    pub fn upload(&mut self, stream: &Stream, range: Range<usize>) -> Result<()> {
        let offset = range.start;
        self.host.copy(stream, range, &self.device, offset)
    }

    /// Event that is reached when the last upload has ended. Other streams must wait for this event
    /// before they read the device buffer.
    pub fn uploaded(&self) -> &Event {
        &self.host.copied
    }

    /// Returns the device buffer after the last upload has ended. Frees the page-locked buffer.
    pub fn into_device(mut self) -> Result<DeviceBuffer> {
        self.host.bytes()?;
        Ok(self.device)
    }

    /// Device buffer.
    pub fn device(&self) -> &DeviceBuffer {
        &self.device
    }

    /// Number of bytes of each buffer.
    pub fn len(&self) -> usize {
        self.device.len()
    }

    /// Whether both buffers are empty.
    pub fn is_empty(&self) -> bool {
        self.device.is_empty()
    }
}

/// Enqueues a copy of the bytes `range` of a page to byte `offset` of a device buffer. Until the
/// copy has ended, the caller must neither write nor free the page.
pub(crate) fn copy_from_page(
    stream: &Stream,
    page: &PinnedBuffer,
    range: Range<usize>,
    destination: &DeviceBuffer,
    offset: usize,
) -> Result<()> {
    let host = page.get(range.clone()).ok_or_else(|| out_of_bounds(&range, page.len()))?;
    let target = offset..offset.saturating_add(host.len());
    if target.end > destination.len() {
        return Err(out_of_bounds(&target, destination.len()));
    }
    if host.is_empty() {
        return Ok(());
    }
    let _entered = stream.device().enter()?;
    let address = destination.address() + offset as u64;
    // SAFETY: the range is within the page and the target within the destination. The caller keeps
    // the page unchanged until the copy has ended.
    let copy = unsafe { result::memcpy_htod_async(address, host, stream.handle()) };
    driver("cuMemcpyHtoDAsync", copy)
}

/// Copies bytes from the device to the host, after all work that is in the stream now. Blocks until
/// the bytes are copied.
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
    let _entered = stream.device().enter()?;
    // SAFETY: the range is within the source, and the destination is borrowed until the stream is
    // empty.
    let copy = unsafe {
        result::memcpy_dtoh_async(bytes, source.address() + offset as u64, stream.handle())
    };
    let copied = driver("cuMemcpyDtoHAsync", copy);
    stream.synchronize()?;
    copied
}

/// Enqueues work that sets every byte of a range to one value.
pub fn fill(stream: &Stream, target: &DeviceBuffer, range: Range<usize>, value: u8) -> Result<()> {
    if range.start > range.end || range.end > target.len() {
        return Err(out_of_bounds(&range, target.len()));
    }
    if range.is_empty() {
        return Ok(());
    }
    let _entered = stream.device().enter()?;
    let start = target.address() + range.start as u64;
    // SAFETY: the range is within the target, which is device memory.
    let filled = unsafe { result::memset_d8_async(start, value, range.len(), stream.handle()) };
    driver("cuMemsetD8Async", filled)
}

/// Enqueues a copy of the first `bytes` bytes of one buffer to the beginning of another.
pub fn copy(
    stream: &Stream,
    source: &DeviceBuffer,
    target: &DeviceBuffer,
    bytes: usize,
) -> Result<()> {
    let len = source.len().min(target.len());
    if bytes > len {
        return Err(out_of_bounds(&(0..bytes), len));
    }
    if bytes == 0 {
        return Ok(());
    }
    let _entered = stream.device().enter()?;
    // SAFETY: both buffers are device memory of at least `bytes` bytes.
    let copied = unsafe {
        result::memcpy_dtod_async(target.address(), source.address(), bytes, stream.handle())
    };
    driver("cuMemcpyDtoDAsync", copied)
}

/// Enqueues a copy of piece `from` of a buffer to piece `to` of the same buffer. Each piece has
/// `bytes` bytes. Pieces are numbered from 0.
pub fn copy_within(
    stream: &Stream,
    buffer: &DeviceBuffer,
    [from, to]: [usize; 2],
    bytes: usize,
) -> Result<()> {
    let end = (from.max(to) + 1) * bytes;
    if end > buffer.len() {
        return Err(out_of_bounds(&(end - bytes..end), buffer.len()));
    }
    if bytes == 0 || from == to {
        return Ok(());
    }
    let _entered = stream.device().enter()?;
    let at = |piece: usize| buffer.address() + (piece * bytes) as u64;
    // SAFETY: both pieces are within the buffer, and different pieces do not overlap.
    let copied = unsafe { result::memcpy_dtod_async(at(to), at(from), bytes, stream.handle()) };
    driver("cuMemcpyDtoDAsync", copied)
}

/// Records the event `copied` after a copy.
fn mark(copied: &Event, stream: &Stream) -> Result<()> {
    if let Err(error) = copied.record(stream) {
        // Without the event, the end of the copy could not be detected later, so wait for it here.
        stream.synchronize()?;
        return Err(error);
    }
    Ok(())
}

fn out_of_bounds(range: &Range<usize>, len: usize) -> Error {
    let problem = format!(
        "bytes {} to {} are not inside of the buffer, which has {len} bytes",
        range.start, range.end
    );
    Error::Internal { problem }
}
