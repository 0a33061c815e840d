//! Fields of the samples of a list: its columns or keys, and side files.

use super::FileList;
use super::rows::Rows;
use crate::error::{DataError, Result};
use crate::field::Field;
use crate::source::side_files::ImagePath;
use crate::source::{Fields, PutField, Source};

impl FileList {
    /// Checks the templates of the side files. Returns warnings.
    ///
    /// # Errors
    ///
    /// [`Error::Config`](crate::Error::Config) with the key of the side file.
    pub(super) fn check_side_files(&self) -> Result<Vec<String>> {
        if let Some(rows) = self.rows.as_ref().filter(|_| !self.side_files.is_empty()) {
            self.side_files.check_names(&rows.schema().collect::<Vec<_>>())?;
        }
        self.side_files.check(self.len(), &self.storage, |index| self.image_path(index))
    }

    fn image_path(&self, index: u64) -> ImagePath<'_> {
        ImagePath::new(&self.base, self.written(index).as_bytes())
    }
}

impl Fields for FileList {
    fn is_open(&self) -> bool {
        self.rows.as_ref().is_some_and(Rows::is_open)
    }

    fn schema(&self) -> Vec<Field> {
        let columns = self.rows.iter().flat_map(Rows::schema);
        columns.chain(self.side_files.schema()).collect()
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
        if self.side_files.is_empty() {
            let Some(rows) = &self.rows else { return Ok(()) };
            return rows.read_fields(&self.list, index, wanted, buffer, limit, put);
        }
        let of_rows = |(_, name): &(usize, &&str)| !self.side_files.contains(name);
        let columns: Vec<usize> =
            wanted.iter().enumerate().filter(of_rows).map(|(number, _)| number).collect();
        if let Some(rows) = self.rows.as_ref().filter(|_| !columns.is_empty()) {
            let names: Vec<&str> = columns.iter().map(|&number| wanted[number]).collect();
            rows.read_fields(&self.list, index, &names, buffer, limit, &mut |number, value| {
                put(columns[number], value)
            })?;
        }
        self.side_files.read(&self.storage, self.image_path(index), wanted, buffer, limit, put)
    }
}
