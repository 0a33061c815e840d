//! Fields of combinations.

use super::{Arrangement, Combined};
use crate::error::{DataError, Result};
use crate::field::{Field, FieldValue, Flat};
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

    fn some_part_has(&self, name: &str) -> bool {
        let has = |fields: &dyn Fields| fields.some_part_has(name);
        self.parts.iter().any(|part| part.source.fields().is_some_and(has))
    }

    fn not_found(&self, index: u64, name: &str) -> Option<String> {
        let (part, index) = self.part(index);
        part.source.fields()?.not_found(index, name)
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
        let Some(fields) = part.source.fields() else { return Ok(()) };
        if part.labels.is_none() || !wanted.iter().any(|name| fields.has_classes(name)) {
            return fields.read_fields(index, wanted, buffer, limit, put);
        }
        let has_classes =
            |number: usize| wanted.get(number).is_some_and(|name| fields.has_classes(name));
        fields.read_fields(index, wanted, buffer, limit, &mut |number, value| match value {
            FieldValue::Integer(label) if has_classes(number) => {
                let label = i64::try_from(label).map_or(label, |it| part.in_whole(it).into());
                put(number, FieldValue::Integer(label))
            }
            FieldValue::Integers(list) if has_classes(number) => {
                let list: Vec<i64> = list.iter().map(|&label| part.in_whole(label)).collect();
                put(number, FieldValue::Integers(&list))
            }
            FieldValue::Entries(Flat::Integers(list), shape) if has_classes(number) => {
                let list: Vec<i64> = list.iter().map(|&label| part.in_whole(label)).collect();
                put(number, FieldValue::Entries(Flat::Integers(&list), shape))
            }
            value => put(number, value),
        })
    }

    fn has_classes(&self, name: &str) -> bool {
        let has_classes = |fields: &dyn Fields| fields.has_classes(name);
        self.parts.iter().any(|part| part.source.fields().is_some_and(has_classes))
    }

    fn complete_schema(&self) -> Result<Vec<Field>> {
        let mut all: Vec<Field> = Vec::new();
        for fields in self.parts.iter().filter_map(|part| part.source.fields()) {
            for field in fields.complete_schema()? {
                if all.iter().all(|it| it.name != field.name) {
                    all.push(field);
                }
            }
        }
        Ok(all)
    }

    /// The name in all parts that have the field, if it is the same.
    fn file_name(&self, name: &str) -> Option<String> {
        let parts = self.parts.iter().filter_map(|part| part.source.fields());
        let mut names = parts.filter(|it| it.some_part_has(name)).map(|it| it.file_name(name));
        let first = names.next()?;
        names.all(|other| other == first).then_some(first)?
    }

    fn may_be_image(&self, name: &str) -> bool {
        let may_be = |fields: &dyn Fields| fields.may_be_image(name);
        self.parts.iter().any(|part| part.source.fields().is_some_and(may_be))
    }

    fn has_versions(&self) -> bool {
        self.parts.iter().all(|part| part.source.fields().is_none_or(|it| it.has_versions()))
    }

    /// Parts have numbers of their own, because each part has its own class numbers.
    fn field_original(&self, index: u64) -> u64 {
        let (part, index) = self.part(index);
        part.field_originals_before.saturating_add(part.source.field_original(index))
    }

    fn field_originals(&self) -> Option<u64> {
        let last = self.parts.last()?;
        Some(last.field_originals_before.saturating_add(last.source.field_originals()))
    }

    fn prepare(&self, wanted: &[&str]) -> Result<()> {
        self.parts
            .iter()
            .filter_map(|part| part.source.fields())
            .try_for_each(|it| it.prepare(wanted))
    }
}
