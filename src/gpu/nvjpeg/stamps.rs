//! Detection of images that a call of nvJPEG skipped.
//!
//! On RTX 50 GPUs, calls for several images reported success although an image was not decoded (LichtFeld Studio, PR 1924). The page
//! of such an image still holds the previous one, whose pixels the sample would have. To detect this, a known byte pattern, the
//! stamp, is written to each destination before the call. An image whose destination still has the stamp afterwards was skipped.

use std::ops::Range;

use super::jpeg::{Jpeg, Window};
use crate::error::Result;
use crate::gpu::pool::DeviceBuffer;
use crate::gpu::{Download, Stream, Upload};

/// The stamps of one decoder's calls.
#[derive(Debug)]
pub(super) struct Stamps {
    stamp: Upload,
    found: Download,
    /// Stamps have their own stream: in the stream of the calls they would wait for the previous call.
    stream: Stream,
    /// Number of bytes of each image's stamp.
    lens: Vec<usize>,
}

/// Bytes of a stamp, or of the last row of a narrower window.
const BYTES: usize = 64;

impl Stamps {
    /// Creates stamps for calls of up to `capacity` images.
    pub fn new(jpeg: &Jpeg, capacity: usize) -> Result<Self> {
        let mut stamp = jpeg.allocators.pinned_buffer(BYTES)?;
        // Bytes that are unlikely as pixels. An image that ends in them would be decoded on the CPU, which is correct too.
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

    /// Writes stamps where the last pixels of these images will be. Nothing else may use the buffers. Blocks until the stamps are
    /// written, because the engines of Hopper write when they are called.
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

    /// Enqueues reading the bytes at the stamps' places, after the decoding of the same images.
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

    /// Whether each image was written. Blocks until [`read`](Self::read) is done.
    pub fn written(&mut self) -> Result<Vec<bool>> {
        let found = self.found.bytes()?;
        let stamp = &*self.stamp.bytes()?;
        let is_written = |(found, &len): (&[u8], &usize)| found[..len] != stamp[..len];
        Ok(found.chunks_exact(BYTES).zip(&self.lens).map(is_written).collect())
    }
}

/// The last bytes of the window's last row. Bytes between rows stay as they are.
fn place_in(window: &Window) -> Range<usize> {
    let [row, rows] = [3 * window.decoded.width as usize, window.decoded.height as usize];
    let end = (rows - 1) * window.pitch_bytes() + row;
    end - row.min(BYTES)..end
}
