//! Class names in files that `feedwater pack` wrote.

use std::path::Path;

use crate::error::{Error, Redacted, Result};

/// Name under which `feedwater pack` stores the class names in each shard. In a tar archive it is a
/// member with a JSON list, which other readers skip. In a TFRecord file it is a feature of the
/// first record.
pub const CLASSES_NAME: &str = "__feedwater_classes__";

/// Largest size of the class names in a file, in bytes.
pub const MOST_CLASSES_BYTES: usize = 32 << 20;

/// Class names that all files of a source share.
#[derive(Default)]
pub struct OfFiles<'a> {
    /// First file that contains class names.
    first: Option<&'a Path>,
    names: Vec<String>,
}

impl<'a> OfFiles<'a> {
    /// Adds the class names of one file. `key` is the key of the source. Files without class names
    /// are ignored.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if an earlier file has other class names.
    pub fn add(&mut self, path: &'a Path, names: Vec<String>, key: &str) -> Result<()> {
        match self.first {
            _ if names.is_empty() => {}
            None => *self = Self { first: Some(path), names },
            Some(first) if self.names != names => {
                let problem = format!(
                    "{} has other class names than {}; combine these files with source.concat, \
                     which numbers classes by name",
                    Redacted::path(path),
                    Redacted::path(first)
                );
                return Err(Error::config(format!("source.{key}"), problem));
            }
            Some(_) => {}
        }
        Ok(())
    }

    /// Returns the class names in the order of their numbers.
    pub fn into_names(self) -> Vec<String> {
        self.names
    }
}
