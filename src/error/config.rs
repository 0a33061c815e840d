//! Errors in the configuration.

use std::fmt;

use super::{Error, Location, escaped, escaped_lines, shown};

/// Invalid setting, which the user must change.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConfigError {
    /// Key of the setting as in TOML, such as `chain[2].std[1]`. Empty if the pipeline file is not
    /// valid TOML, except for repeated keys.
    pub key: String,
    /// Message with the invalid value and a remedy.
    pub problem: String,
    /// Entries of the footprint, one per line, if a memory limit is too small. Empty for other
    /// errors.
    pub rows: String,
    /// Location of the setting in the pipeline file; `None` if it is not from a file.
    pub at: Option<Box<Location>>,
}

impl ConfigError {
    /// Creates an error from a key and a message.
    pub fn new(key: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { key: shown(key), problem: shown(problem), rows: String::new(), at: None }
    }
}

impl From<ConfigError> for Error {
    fn from(error: ConfigError) -> Self {
        Error::Config(error)
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(at) = &self.at {
            write!(f, "{at}: ")?;
        }
        match self.key.as_str() {
            "" => f.write_str(&escaped(&self.problem))?,
            key => write!(f, "{}: {}", escaped(key), escaped(&self.problem))?,
        }
        match self.rows.as_str() {
            "" => Ok(()),
            rows => write!(f, ", for\n{}", escaped_lines(rows)),
        }
    }
}

impl std::error::Error for ConfigError {}
