//! zlib's data in steps, each with no more output than asked for.
//!
//! Pillow asks zlib for a row at a time, and what it refuses depends on how far zlib went for that row: up to the next byte
//! that does not fit, and the checksum at the end where that comes first. The steps here go as far.

use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::inflate_flags::{
    TINFL_FLAG_HAS_MORE_INPUT, TINFL_FLAG_PARSE_ZLIB_HEADER,
    TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF,
};
use miniz_oxide::inflate::core::{DecompressorOxide, decompress, decompress_with_limit};

use crate::error::{DataError, reserve};

const FLAGS: u32 = TINFL_FLAG_PARSE_ZLIB_HEADER | TINFL_FLAG_HAS_MORE_INPUT;

/// How far zlib looks back.
const WINDOW_BYTES: usize = 32 << 10;
/// Least room beside it, so that the window is not moved for every short row.
const STEP_BYTES: usize = 16 << 10;

/// A stream that is unpacked.
pub(crate) struct Inflater {
    state: Box<DecompressorOxide>,
    output: Vec<u8>,
    filled: usize,
}

/// What one step did.
pub(crate) struct Step<'a> {
    /// Bytes of the input that were used.
    pub consumed: usize,
    pub output: &'a [u8],
    pub state: Stream,
}

/// How a stream goes on behind a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    /// It needs more input, or has more output.
    Open,
    /// It is over, and its checksum is right.
    Ended,
    Damaged,
}

impl Inflater {
    /// For steps of up to `most` bytes. Takes that and about 60 KiB of memory.
    pub fn new(most: usize) -> Result<Self, DataError> {
        let mut output = Vec::new();
        reserve::resize(&mut output, WINDOW_BYTES + most.max(STEP_BYTES))?;
        Ok(Self { state: Box::default(), output, filled: 0 })
    }

    /// Unpacks up to `most` bytes; fewer come where the input or the stream ends. Where nobody asks for more behind this step,
    /// which is the `last`, damage does not count that zlib would meet only then.
    pub fn step(&mut self, input: &[u8], most: usize, last: bool) -> Result<Step<'_>, DataError> {
        if self.filled + most > self.output.len() {
            // Distances reach back no further; what was never filled is not looked at.
            let kept = WINDOW_BYTES.min(self.filled);
            self.output.copy_within(self.filled - kept..self.filled, 0);
            self.filled = kept;
        }
        let before = last.then(|| self.state.clone());
        let start = self.filled;
        let output = &mut self.output[..start + most];
        // Distances before the stream's first byte are damage, which a buffer that wraps does not tell.
        let flags = FLAGS | TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF;
        let (status, consumed, written) = decompress(&mut self.state, input, output, start, flags);
        self.filled += written;
        let state = match (status, before) {
            (TINFLStatus::Done, _) => Stream::Ended,
            (TINFLStatus::NeedsMoreInput | TINFLStatus::HasMoreOutput, _) => Stream::Open,
            (TINFLStatus::Failed, Some(mut before)) if written == most => {
                damage_behind(&mut before, input, most)?
            }
            _ => Stream::Damaged,
        };
        Ok(Step { consumed, output: &self.output[start..self.filled], state })
    }
}

/// Where data are damaged behind the last byte that was asked for: open where only a distance is wrong, which zlib looks at when it
/// needs the bytes.
fn damage_behind(
    before: &mut DecompressorOxide,
    input: &[u8],
    most: usize,
) -> Result<Stream, DataError> {
    let mut window = Vec::new();
    reserve::resize(&mut window, most.next_power_of_two().max(WINDOW_BYTES))?;
    let (status, ..) = decompress_with_limit(before, input, &mut window, 0, most, FLAGS);
    Ok(if status == TINFLStatus::HasMoreOutput { Stream::Open } else { Stream::Damaged })
}
