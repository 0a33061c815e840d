//! Detection of images that a call of nvJPEG skipped.
//!
//! On RTX 50 GPUs, calls for several images reported success although an image was not decoded
//! (LichtFeld Studio, PR 1924). The destination of such an image still holds the previous image,
//! which would be delivered as the sample. To detect this, a known byte pattern, the stamp, is
//! written to each destination before the call. An image was skipped if its destination still has
//! the stamp afterwards.

use std::ops::Range;

use super::jpeg::{Jpeg, Window};
use crate::error::Result;
use crate::gpu::pool::DeviceBuffer;
use crate::gpu::{Download, Stream, Upload};

/// Stamps (known byte patterns that reveal skipped images) for the calls of one decoder.
#[derive(Debug)]
pub(super) struct Stamps {
    stamp: Upload,
    found: Download,
    /// Stream in which the stamps (known byte patterns) are written and read. In the stream of the
    /// decoding calls, a stamp would wait for the previous call.
    stream: Stream,
    /// Length in bytes of the stamp (known byte pattern) of each image.
    lens: Vec<usize>,
}

/// Length in bytes of a stamp, the byte pattern that reveals skipped images. If a window's last row
/// has fewer bytes, the stamp is as long as that row.
const BYTES: usize = 64;

impl Stamps {
    /// Creates the stamps (known byte patterns) for calls of up to `capacity` images.
    pub fn new(jpeg: &Jpeg, capacity: usize) -> Result<Self> {
        let mut stamp = jpeg.allocators.pinned_buffer(BYTES)?;
        // Pixels are unlikely to have the values of the stamp. An image whose last pixels equal the
        // stamp would be treated as skipped and decoded on the CPU, which is also correct.
        for (byte, index) in stamp.iter_mut().zip(1u32..) {
            *byte = (index.wrapping_mul(0x9E37_79B9) >> 24) as u8;
        }
        Ok(Self {
            stamp: Upload::new(stamp)?,
            found: Download::new(jpeg.allocators.pinned_buffer(BYTES * capacity)?)?,
            stream: Stream::new(&jpeg.device)?,
            lens: Vec::with_capacity(capacity),
        })
    }

    /// Writes the stamps at the positions of the last pixels of these images. No other work may use
    /// the buffers at this time. Blocks until the stamps are written, because Hopper's engines
    /// write as soon as they are called.
    pub fn write<'a>(
        &mut self,
        images: impl Iterator<Item = (Window, &'a DeviceBuffer)>,
    ) -> Result<()> {
        self.lens.clear();
        for (window, buffer) in images {
            let place = place_in(&window);
            self.stamp.copy(&self.stream, 0..place.len(), buffer, place.start)?;
            self.lens.push(place.len());
        }
        self.stream.synchronize()
    }

    /// Enqueues reading of the bytes at the positions of the stamps, after the images are decoded.
    pub fn read<'a>(
        &mut self,
        stream: &Stream,
        images: impl Iterator<Item = (Window, &'a DeviceBuffer)>,
    ) -> Result<()> {
        for (index, (window, buffer)) in images.enumerate() {
            self.found.copy(stream, buffer, place_in(&window), BYTES * index)?;
        }
        Ok(())
    }

    /// Returns for each image whether its pixels were written. Blocks until [`read`](Self::read) is
    /// done.
    pub fn written(&mut self) -> Result<Vec<bool>> {
        let found = self.found.bytes()?;
        let stamp = &*self.stamp.bytes()?;
        let is_written = |(found, &len): (&[u8], &usize)| found[..len] != stamp[..len];
        Ok(found.chunks_exact(BYTES).zip(&self.lens).map(is_written).collect())
    }
}

/// Returns the byte range of the stamp: the end of the window's last row. Padding between rows is
/// never written.
fn place_in(window: &Window) -> Range<usize> {
    let [row, rows] = [3 * window.decoded.width as usize, window.decoded.height as usize];
    let end = (rows - 1) * window.pitch_bytes() + row;
    end - row.min(BYTES)..end
}
