use std::fmt;

/// Invalid profile, model or setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// Path of the invalid value in the JSON file, such as `stages[2].service`.
    pub key: String,
    /// Description of the problem: the value, and how to correct it.
    pub problem: String,
}

/// Result with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Creates an error for the value at `key`.
    pub fn new(key: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { key: key.into(), problem: problem.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.key.as_str() {
            "" => f.write_str(&self.problem),
            key => write!(f, "{key}: {}", self.problem),
        }
    }
}

impl std::error::Error for Error {}
