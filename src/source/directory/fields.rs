//! Fields of the samples of a directory.

use std::os::unix::ffi::OsStrExt;

use super::Directory;
use crate::error::{DataError, Result};
use crate::field::Field;
use crate::source::file::Files;
use crate::source::side_files::{self, ImagePath};
use crate::source::{Fields, PutField, Source, VALUE, file_value};

impl Directory {
    /// Checks the templates of the side files. Returns warnings.
    pub(super) fn check_side_files(&self) -> Result<Vec<String>> {
        self.side_files.check(self.len(), &self.storage, |index| self.image_path(index))
    }

    /// Returns the path of a sample in the directory.
    fn image_path(&self, index: u64) -> ImagePath<'_> {
        let folder = self.folder(index).path.strip_prefix(&self.root);
        let folder = folder.map_or(&b""[..], |it| it.as_os_str().as_bytes());
        ImagePath { root: &self.root, folder, name: self.name(index) }
    }
}

/// The side files, or the files themselves.
impl Fields for Directory {
    fn schema(&self) -> Vec<Field> {
        let value = self.has_values.then(|| {
            let kind = file_value::kind(&String::from_utf8_lossy(self.name(0)));
            Field { name: VALUE.into(), kind }
        });
        value.into_iter().chain(self.side_files.schema()).collect()
    }

    fn file_name(&self, name: &str) -> Option<String> {
        self.side_files.file_name(name)
    }

    fn not_found(&self, index: u64, name: &str) -> Option<String> {
        self.side_files.not_found(&self.storage, self.image_path(index), name)
    }

    fn read_fields(
        &self,
        index: u64,
        wanted: &[&str],
        buffer: &mut Vec<u8>,
        limit: u64,
        put: &mut PutField<'_>,
    ) -> Result<(), DataError> {
        if self.has_values {
            for (number, _) in wanted.iter().enumerate().filter(|(_, name)| **name == VALUE) {
                let path = self.path(index);
                let stamp = Files::stamp(self, index);
                let read = side_files::read(&self.storage, (&path, stamp), buffer, limit);
                let is_there = read.map_err(|error| {
                    let problem = format!("the field {VALUE:?}: {}", error.problem);
                    error.reworded(problem)
                })?;
                if is_there {
                    let name = String::from_utf8_lossy(self.name(index));
                    put(number, file_value::value(&name, buffer))?;
                }
            }
        }
        let image = self.image_path(index);
        self.side_files.read(&self.storage, image, wanted, buffer, limit, put)
    }
}
