//! Fields of prefetched samples.

use std::time::Instant;

use super::Prefetcher;
use crate::error::{DataError, Result};
use crate::field::Field;
use crate::source::{Fields, PutField};
use crate::storage;

/// The fields of the source, which are read with the bytes of the requests. Waits end when the
/// loader stops.
impl Fields for Prefetcher {
    fn read_fields(
        &self,
        index: u64,
        wanted: &[&str],
        buffer: &mut Vec<u8>,
        limit: u64,
        put: &mut PutField<'_>,
    ) -> Result<(), DataError> {
        let Some(fields) = self.source.fields() else { return Ok(()) };
        let began = Instant::now();
        let only = self.state().begin_fields(index, began);
        let read = storage::cancellable(&self.given_up, || {
            fields.read_fields(index, wanted, buffer, limit, put)
        });
        if let Some(arrival) = only {
            self.was_read(&arrival, began);
        }
        read
    }

    fn schema(&self) -> Vec<Field> {
        self.source.schema()
    }

    fn is_open(&self) -> bool {
        self.source.fields().is_some_and(|it| it.is_open())
    }

    fn some_part_has(&self, name: &str) -> bool {
        self.source.fields().is_some_and(|it| it.some_part_has(name))
    }

    fn not_found(&self, index: u64, name: &str) -> Option<String> {
        self.source.fields()?.not_found(index, name)
    }

    fn part_without(&self, name: &str) -> Option<String> {
        self.source.fields()?.part_without(name)
    }

    fn has_classes(&self, name: &str) -> bool {
        self.source.fields().is_some_and(|it| it.has_classes(name))
    }

    fn prepare(&self, wanted: &[&str]) -> Result<()> {
        self.source.fields().map_or(Ok(()), |it| it.prepare(wanted))
    }
}
