//! Operating-system error that caused an error of this crate.

use std::io;
use std::ops::Deref;
use std::sync::Arc;

use super::shown;

/// [`io::Error`] that caused an [`Error`](super::Error), a [`SampleError`](super::SampleError) or a
/// [`DataError`](super::DataError).
///
/// Callers can match its [`kind`](io::Error::kind) or its
/// [`raw_os_error`](io::Error::raw_os_error). Kind, code and message are those of the original
/// error. Only secrets in URLs are redacted, because callers print the whole chain of sources.
#[derive(Clone, Debug)]
pub struct IoCause(Arc<io::Error>);

impl IoCause {
    /// Copies an error and redacts secrets in its message.
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

/// Two errors are equal if their kind, code and message are equal.
impl PartialEq for IoCause {
    fn eq(&self, other: &Self) -> bool {
        self.kind() == other.kind()
            && self.raw_os_error() == other.raw_os_error()
            && self.to_string() == other.to_string()
    }
}

impl Eq for IoCause {}
