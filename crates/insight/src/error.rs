use std::fmt;

/// A profile, model or setting that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The name of the value: `stages[2].service`.
    pub key: String,
    /// What is wrong, with the value and the way out.
    pub problem: String,
}

/// The crate's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// A value with its problem.
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
