//! Files of row indexes. Each index is stored after its length.

use std::io::{self, Read, Write};

use super::{RowIndex, RowIndexWriter};

/// First bytes of a file of row indexes. The last digit is the version of the format.
const MAGIC: &[u8; 16] = b"feedwater rows 2";
/// Maximum number of rows of MCUs: those of the highest JPEG with the lowest MCUs.
const MOST_ROWS: usize = 65_535_usize.div_ceil(8);

/// Extension of a file of row indexes, which is stored beside a file of images. The row indexes of
/// `train-000000.tar` are in `train-000000.tar.rows`.
pub const ROWS_ENDING: &str = ".rows";

/// Writes the beginning of a file of row indexes.
///
/// # Errors
///
/// Returns the errors of `out`.
pub fn begin_row_indexes(out: &mut impl Write) -> io::Result<()> {
    out.write_all(MAGIC)
}

/// Appends an index that a decoder has [made](super::RowIndexOutcome::Made).
///
/// # Errors
///
/// Returns the errors of `out`.
pub fn write_row_index(out: &mut impl Write, index: &[u8]) -> io::Result<()> {
    out.write_all(&(index.len() as u32).to_le_bytes())?;
    out.write_all(index)
}

/// Reads a file of row indexes and calls `each` with every valid index. Skips corrupt indexes and
/// indexes of another version. Reading ends at the first part that cannot be read. A decoder can
/// build missing indexes again.
pub fn read_row_indexes(input: &mut impl Read, mut each: impl FnMut(RowIndex)) {
    let mut magic = [0; MAGIC.len()];
    if input.read_exact(&mut magic).is_err() || magic != *MAGIC {
        return;
    }
    let mut len = [0; 4];
    while input.read_exact(&mut len).is_ok() {
        let len = u32::from_le_bytes(len) as usize;
        // A row index is never empty, so a length of 0 is invalid. It occurs in a file that
        // consists of zeros.
        if len == 0 || len > RowIndexWriter::most_bytes(MOST_ROWS) {
            return;
        }
        let mut bytes = vec![0; len];
        if input.read_exact(&mut bytes).is_err() {
            return;
        }
        if let Some(index) = RowIndex::read(bytes.into()) {
            each(index);
        }
    }
}
