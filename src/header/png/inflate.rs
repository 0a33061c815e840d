//! Stepwise zlib decompression with limited output per step.
//!
//! Pillow requests one row at a time from zlib. For a damaged file, Pillow's result depends on how
//! far zlib reads for a row. zlib reads up to the next byte that does not fit into the row, or
//! through the checksum if the stream ends first. The steps in this module read equally far.

use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::inflate_flags::{
    TINFL_FLAG_HAS_MORE_INPUT, TINFL_FLAG_PARSE_ZLIB_HEADER,
    TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF,
};
use miniz_oxide::inflate::core::{DecompressorOxide, decompress, decompress_with_limit};

use crate::error::{DataError, reserve};

const FLAGS: u32 = TINFL_FLAG_PARSE_ZLIB_HEADER | TINFL_FLAG_HAS_MORE_INPUT;

/// Size of zlib's window, in bytes.
const WINDOW_BYTES: usize = 32 << 10;
/// Minimum space in the buffer in addition to the window, in bytes. With this space, the window is
/// not moved for every short row.
const STEP_BYTES: usize = 16 << 10;

/// zlib stream that is being unpacked.
pub(crate) struct Inflater {
    state: Box<DecompressorOxide>,
    output: Vec<u8>,
    filled: usize,
}

/// Result of one step.
pub(crate) struct Inflated<'a> {
    /// Number of input bytes consumed.
    pub consumed: usize,
    pub output: &'a [u8],
    pub state: Stream,
}

/// State of a stream after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    /// The stream needs more input, or has more output.
    Open,
    /// The stream has ended with a correct checksum.
    Ended,
    Damaged,
}

impl Inflater {
    /// Creates a stream for steps of up to `most` bytes. The stream needs `most` bytes and about 60
    /// KiB of memory.
    pub fn new(most: usize) -> Result<Self, DataError> {
        let mut output = Vec::new();
        reserve::resize(&mut output, WINDOW_BYTES + most.max(STEP_BYTES))?;
        Ok(Self { state: Box::default(), output, filled: 0 })
    }

    /// Unpacks up to `most` bytes, or fewer if the input or the stream ends. After the `last` step,
    /// damage that zlib would detect only later is ignored.
    pub fn step(
        &mut self,
        input: &[u8],
        most: usize,
        last: bool,
    ) -> Result<Inflated<'_>, DataError> {
        if self.filled + most > self.output.len() {
            // Distances reach at most 32 KiB back, so only the last 32 KiB are kept. Bytes that
            // were never filled are not read.
            let kept = WINDOW_BYTES.min(self.filled);
            self.output.copy_within(self.filled - kept..self.filled, 0);
            self.filled = kept;
        }
        let before = last.then(|| self.state.clone());
        let start = self.filled;
        let output = &mut self.output[..start + most];
        // A distance that reaches back before the stream's first byte is damage. With a wrapping
        // output buffer, the decompressor would not detect this damage.
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
        Ok(Inflated { consumed, output: &self.output[start..self.filled], state })
    }
}

/// Returns the state of a stream that is damaged after the last requested byte. If only a distance
/// is wrong, the stream is still open, because zlib checks a distance only when it needs the bytes.
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
