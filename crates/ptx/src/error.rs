//! Errors of parsing and launching.

use std::fmt;

/// Reason why a PTX source or a launch is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The source is malformed, or uses an opcode, modifier or type that the interpreter does not
    /// support.
    Parse {
        /// Line in the PTX source, starting at 1.
        line: u32,
        /// Description of the error.
        message: String,
    },
    /// The module has no kernel of this name.
    NoKernel(String),
    /// A dimension of the grid or the block is 0 or too large.
    Shape(String),
    /// Two ranges of global memory overlap.
    Overlap(String),
}

impl Error {
    pub(crate) fn parse(line: u32, message: impl Into<String>) -> Self {
        Self::Parse { line, message: message.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Parse { line, message } => write!(f, "PTX line {line}: {message}"),
            Self::NoKernel(name) => write!(f, "the module has no kernel {name}"),
            Self::Shape(message) | Self::Overlap(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for Error {}

/// Result of parsing or launching.
pub type Result<T> = std::result::Result<T, Error>;
