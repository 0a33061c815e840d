//! Copies of columns in host memory on the device.

use crate::error::Result;
use crate::gpu::{DeviceBuffer, Stream, Upload};
use crate::loader::slot::column::HostColumns;
use crate::plan::ColumnPlan;

/// Copies of a slot's columns of numbers on the device, and of the offsets of their lists.
///
/// When a batch is complete, its columns are packed in host memory. They are then copied to
/// page-locked memory, and from there in the stream that fills the batch. So they are on the device
/// when the batch's event `ready` is reached.
pub(in crate::loader) struct ColumnCopies {
    upload: Upload,
    buffer: DeviceBuffer,
    parts: Vec<Part>,
}

/// Positions of a column in the buffers, in bytes.
struct Part {
    /// Number of the column in host memory.
    column: usize,
    values: usize,
    offsets: usize,
    /// Offsets of several lists of a sample.
    text_offsets: usize,
}

impl ColumnCopies {
    /// Copies of those of `columns` that have one, in slots of `samples` samples. The buffers have
    /// [`ColumnPlan::copies_bytes`] bytes.
    pub fn new(
        columns: &[ColumnPlan],
        samples: usize,
        upload: Upload,
        buffer: DeviceBuffer,
    ) -> Self {
        let (mut parts, mut end) = (Vec::new(), 0);
        for plan in columns {
            let Some([values, offsets, lists]) = plan.copy_bytes(samples) else { continue };
            let (column, text_offsets) = (plan.slot, end + values + offsets);
            parts.push(Part { column, values: end, offsets: end + values, text_offsets });
            end = text_offsets + lists;
        }
        Self { upload, buffer, parts }
    }

    /// The buffer, and the positions of the values, the offsets and the offsets of several lists of
    /// a column in it. `column` is the number of the column in host memory. `None` if it has no
    /// copy.
    pub fn of(&self, column: usize) -> Option<(&DeviceBuffer, [usize; 3])> {
        let part = self.parts.iter().find(|part| part.column == column)?;
        Some((&self.buffer, [part.values, part.offsets, part.text_offsets]))
    }

    /// Enqueues the copies of the first `samples` samples in `stream`.
    pub fn enqueue(&mut self, host: &HostColumns, samples: usize, stream: &Stream) -> Result<()> {
        let values =
            |part: &Part| &host.bytes(part.column)[..host.filled_bytes(part.column, samples)];
        let offsets =
            |part: &Part| -> &[u8] { host.offsets(part.column).map_or(&[], bytemuck::cast_slice) };
        let lists = |part: &Part| -> &[u8] {
            host.text_offsets(part.column).map_or(&[], bytemuck::cast_slice)
        };
        let pieces = || {
            self.parts.iter().flat_map(|part| {
                let values = (part.values, values(part));
                [values, (part.offsets, offsets(part)), (part.text_offsets, lists(part))]
            })
        };
        // The buffer is written before the first copy, because `bytes` waits for copies.
        let bytes = self.upload.bytes()?;
        for (at, piece) in pieces() {
            bytes[at..at + piece.len()].copy_from_slice(piece);
        }
        for (at, piece) in pieces() {
            self.upload.copy(stream, at..at + piece.len(), &self.buffer, at)?;
        }
        Ok(())
    }
}
