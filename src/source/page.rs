//! Buffers for the encoded bytes of samples.

use crate::error::{DataError, Reason, reserve};

pub(crate) use sealed::Sealed;

/// Restricts implementations of [`Page`] and [`Configured`](super::Configured) to this crate.
mod sealed {
    pub trait Sealed {}
}

/// Preallocated buffer for the encoded bytes of a sample. The loader owns the pages. Sources only
/// write to them.
pub trait Page: Sealed {
    /// Discards earlier bytes and returns space for `len` bytes.
    ///
    /// # Errors
    ///
    /// [`Reason::OutOfMemory`](crate::error::Reason::OutOfMemory) if the allocation fails.
    fn space(&mut self, len: usize) -> Result<&mut [u8], DataError>;
    /// Shortens the contents to the first `len` bytes.
    fn truncate(&mut self, len: usize);
}

/// Function that returns a prefetched sample. It takes the page and the limit of
/// [`Source::read`](super::Source::read), waits for the bytes and then behaves like `read`.
pub type Expected = Box<dyn FnOnce(&mut dyn Page, u64) -> Result<(), DataError> + Send>;

impl Sealed for HostPage {}

impl dyn Page + '_ {
    /// Returns space for a sample of `len` bytes. `len` must be at most `limit`.
    ///
    /// # Errors
    ///
    /// [`Reason::Oversized`](crate::error::Reason::Oversized) if `len` is above the limit.
    /// Otherwise the same errors as [`space`](Page::space).
    pub fn space_within(&mut self, len: u64, limit: u64) -> Result<&mut [u8], DataError> {
        check_size(len, limit)?;
        self.space(len as usize)
    }

    /// Copies a whole sample into the page. The sample must have at most `limit` bytes.
    ///
    /// # Errors
    ///
    /// Returns the same errors as `space_within`.
    pub fn fill(&mut self, bytes: &[u8], limit: u64) -> Result<(), DataError> {
        self.space_within(bytes.len() as u64, limit)?.copy_from_slice(bytes);
        Ok(())
    }
}

/// Page in pageable host memory. It grows to the size of its largest sample.
#[derive(Debug, Default)]
pub struct HostPage {
    data: Vec<u8>,
    len: usize,
}

impl HostPage {
    /// Creates a page that can hold `bytes` bytes without growing.
    pub fn with_capacity(bytes: usize) -> Self {
        Self { data: Vec::with_capacity(bytes), len: 0 }
    }

    /// Bytes of the sample in the page.
    pub fn bytes(&self) -> &[u8] {
        &self.data[..self.len]
    }

    /// Allocated memory, in bytes.
    pub fn capacity_bytes(&self) -> u64 {
        self.data.capacity() as u64
    }
}

impl Page for HostPage {
    fn space(&mut self, len: usize) -> Result<&mut [u8], DataError> {
        self.len = 0;
        if self.data.len() < len {
            reserve::renew(&mut self.data, len)?;
        }
        self.len = len;
        Ok(&mut self.data[..len])
    }

    fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }
}

/// Returns an error for an oversized sample, before memory is allocated for it.
pub fn check_size(bytes: u64, limit: u64) -> Result<(), DataError> {
    if bytes > limit { Err(too_large(&bytes.to_string(), limit)) } else { Ok(()) }
}

/// Creates the error for a sample that has more bytes than the limit.
pub fn too_large(bytes: &str, limit: u64) -> DataError {
    let problem = format!("the file has {bytes} bytes; limits.max_file_bytes is {limit}");
    DataError::new(Reason::Oversized, problem)
}
