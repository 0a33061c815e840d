//! Operating-system error behind an error of this crate.

use std::io;
use std::ops::Deref;
use std::sync::Arc;

use super::shown;

/// The [`io::Error`] behind an [`Error`](super::Error), a [`SampleError`](super::SampleError) or a
/// [`DataError`](super::DataError).
///
/// Callers can match its [`kind`](io::Error::kind) or its [`raw_os_error`](io::Error::raw_os_error). Kind, code and message are
/// those of the original error, except that secrets in URLs are redacted: callers print the whole chain of sources.
#[derive(Clone, Debug)]
pub struct IoCause(Arc<io::Error>);

impl IoCause {
    /// Copies an error, with secrets redacted.
    pub fn new(error: &io::Error) -> Self {
        let kept = match error.raw_os_error() {
            Some(code) => io::Error::from_raw_os_error(code),
            None => io::Error::new(error.kind(), shown(error.to_string())),
        };
        Self(Arc::new(kept))
    }
}

impl Deref for IoCause {
    type Target = io::Error;

    fn deref(&self) -> &io::Error {
        &self.0
    }
}

/// Errors are equal where callers cannot tell them apart.
impl PartialEq for IoCause {
    fn eq(&self, other: &Self) -> bool {
        self.kind() == other.kind()
            && self.raw_os_error() == other.raw_os_error()
            && self.to_string() == other.to_string()
    }
}

impl Eq for IoCause {}
