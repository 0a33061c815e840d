//! Names of classes in files that `feedwater pack` wrote.

use std::path::Path;

use crate::error::{Error, Redacted, Result};

/// Name under which `feedwater pack` stores the names of the classes in each shard: a member of a tar archive with a JSON list, which
/// other readers skip, or a feature of the first record of a TFRecord file.
pub const CLASSES_NAME: &str = "__feedwater_classes__";

/// Largest size of these names in a file, in bytes.
pub const MOST_CLASSES_BYTES: usize = 32 << 20;

/// Names that all files of a source share.
#[derive(Default)]
pub struct OfFiles<'a> {
    /// First file that has names.
    first: Option<&'a Path>,
    names: Vec<String>,
}

impl<'a> OfFiles<'a> {
    /// Adds the names of a file of the source `key`. A file without names says nothing about the classes.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if another file has other names.
    pub fn add(&mut self, path: &'a Path, names: Vec<String>, key: &str) -> Result<()> {
        match self.first {
            _ if names.is_empty() => {}
            None => *self = Self { first: Some(path), names },
            Some(first) if self.names != names => {
                let problem = format!(
                    "{} has other names of classes than {}; join them with concat, which numbers classes by name",
                    Redacted::path(path),
                    Redacted::path(first)
                );
                return Err(Error::config(format!("source.{key}"), problem));
            }
            Some(_) => {}
        }
        Ok(())
    }

    /// The names in the order of their numbers.
    pub fn into_names(self) -> Vec<String> {
        self.names
    }
}
