//! Reads the header of a `.npy` file.

use crate::numpy::{Array, ArrayError, Start};
use crate::source::records::FileError;
use crate::storage::File;

/// Reads the header of a file of `file_len` bytes.
///
/// # Errors
/// If the header is invalid, if the elements are not in C order, or if their length does not match
/// the file.
pub fn read(file: &File, file_len: u64) -> Result<Array, FileError> {
    let unreadable = |at| move |error: std::io::Error| FileError::new(at, error.to_string());
    let wrong = |ArrayError { offset, problem }| FileError::new(offset, problem);
    let mut fixed = [0; Start::BYTES];
    let held = file.read_at(&mut fixed, 0).map_err(unreadable(0))?;
    let start = Start::read(&fixed[..held], file_len).map_err(wrong)?;
    let mut header = vec![0; start.len as usize];
    file.read_exact_at(&mut header, start.begin).map_err(unreadable(start.begin))?;
    start.array(&header).map_err(wrong)
}
