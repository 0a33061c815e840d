//! Checks that a source has the fields of the columns and views.

use super::messages::lacking;
use crate::error::{Error, Reason, Result};
use crate::field::FieldPath;
use crate::op::View;
use crate::plan::ColumnSettings;
use crate::source::{Fields, Source};

/// Checks that the source has the fields of all columns and views, and prepares the source to read
/// them.
///
/// # Errors
/// [`Error::Config`] that lists the fields of the source. Errors of [`Fields::prepare`].
pub(in crate::loader) fn check_fields(
    source: &dyn Source,
    columns: &[ColumnSettings],
    views: &[View],
) -> Result<()> {
    let mut wanted = Vec::new();
    for (number, column) in columns.iter().enumerate() {
        let Ok(path) = column.field_path() else { continue };
        let key = if column.field.is_some() { "field" } else { "name" };
        wanted.push((format!("column[{number}].{key}"), path.name, column.default.is_some()));
    }
    for (number, view) in views.iter().enumerate() {
        let Some(field) = &view.field else { continue };
        let Ok(path) = field.parse::<FieldPath>() else { continue };
        wanted.push((format!("view[{number}].field"), path.name, false));
    }
    if wanted.is_empty() {
        return Ok(());
    }
    let schema = source.schema();
    for (key, name, has_default) in &wanted {
        let problem = match schema.iter().filter(|field| field.name == *name).count() {
            1 => continue,
            0 => match source.fields() {
                Some(fields)
                    if *has_default && (fields.is_open() || fields.some_part_has(name)) =>
                {
                    continue;
                }
                // The samples fail in the same way, and `loader.on_error` decides.
                Some(fields) if schema.is_empty() && first_fails(fields) => continue,
                fields => lacking(source, fields, name),
            },
            _ => format!("needs the field {name:?}, but the source has it more than once"),
        };
        return Err(Error::config(key, problem));
    }
    let wanted: Vec<&str> = wanted.iter().map(|(_, name, _)| name.as_str()).collect();
    source.fields().map_or(Ok(()), |fields| fields.prepare(&wanted))
}

/// Whether the first sample fails, although its source can have fields.
fn first_fails(fields: &dyn Fields) -> bool {
    let read = fields.read_fields(0, &[], &mut Vec::new(), u64::MAX, &mut |_, _| Ok(()));
    fields.is_open() && read.is_err_and(|error| error.reason != Reason::Unsupported)
}
