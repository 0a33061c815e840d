//! Files of row indexes: one after another, each with its length before it.

use std::io::{self, Read, Write};

use super::{RowIndex, RowIndexWriter};

/// The last digit is the version.
const MAGIC: &[u8; 16] = b"feedwater rows 2";
/// Rows of the highest JPEG with the lowest units.
const MOST_ROWS: usize = 65_535_usize.div_ceil(8);

/// Ending of the name of a file of row indexes beside a file of images: those of `train-000000.tar` are in
/// `train-000000.tar.rows`.
pub const ROWS_ENDING: &str = ".rows";

/// Begins a file of row indexes.
///
/// # Errors
///
/// Those of writing.
pub fn begin_row_indexes(out: &mut impl Write) -> io::Result<()> {
    out.write_all(MAGIC)
}

/// Adds an index, as a decoder [made](super::RowIndexOutcome::Made) it.
///
/// # Errors
///
/// Those of writing.
pub fn write_row_index(out: &mut impl Write, index: &[u8]) -> io::Result<()> {
    out.write_all(&(index.len() as u32).to_le_bytes())?;
    out.write_all(index)
}

/// Reads a file of row indexes. Those that are damaged or of another version are left out, and everything behind what
/// cannot be read; they can be made again.
pub fn read_row_indexes(input: &mut impl Read, mut each: impl FnMut(RowIndex)) {
    let mut magic = [0; MAGIC.len()];
    if input.read_exact(&mut magic).is_err() || magic != *MAGIC {
        return;
    }
    let mut len = [0; 4];
    while input.read_exact(&mut len).is_ok() {
        let len = u32::from_le_bytes(len) as usize;
        // No index is empty; in a file of zeros all would be.
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
