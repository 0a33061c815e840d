//! Fields of combinations.

use super::{Arrangement, Combined};
use crate::error::DataError;
use crate::field::Field;
use crate::source::{Fields, PutField};

/// The fields that all parts have.
impl<A: Arrangement> Fields for Combined<A> {
    fn schema(&self) -> Vec<Field> {
        let mut schemas = self.parts.iter().map(|part| part.source.schema());
        let first = schemas.next().unwrap_or_default();
        schemas.fold(first, |mut all, schema| {
            all.retain(|field| schema.iter().any(|it| it.name == field.name));
            all
        })
    }

    fn is_open(&self) -> bool {
        self.parts.iter().any(|part| part.source.fields().is_some_and(|it| it.is_open()))
    }

    fn part_without(&self, name: &str) -> Option<String> {
        let mut parts = self.parts.iter().map(|part| &part.source);
        let part = parts.find(|it| it.schema().iter().all(|field| field.name != name))?;
        let inner = part.fields().and_then(|fields| fields.part_without(name));
        Some(inner.unwrap_or_else(|| part.describe()))
    }

    fn read_fields(
        &self,
        index: u64,
        wanted: &[&str],
        buffer: &mut Vec<u8>,
        limit: u64,
        put: &mut PutField<'_>,
    ) -> Result<(), DataError> {
        let (part, index) = self.part(index);
        match part.source.fields() {
            Some(fields) => fields.read_fields(index, wanted, buffer, limit, put),
            None => Ok(()),
        }
    }
}
