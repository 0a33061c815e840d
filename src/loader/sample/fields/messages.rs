//! Messages about fields.

use crate::error::{DataError, Reason, nearest};
use crate::source::{Fields, Source};

/// Error of a sample's fields.
pub(in crate::loader) struct FieldError {
    pub error: DataError,
    /// Whether the sample is to be replaced by another one, whatever `loader.on_error` is.
    pub skip: bool,
}

impl From<DataError> for FieldError {
    fn from(error: DataError) -> Self {
        Self { error, skip: false }
    }
}

/// Error for a field that a sample lacks.
pub fn missing(source: &dyn Source, index: u64, field: &str, way_out: &str) -> DataError {
    let not_found = source.fields().and_then(|it| it.not_found(index, field));
    let not_found = not_found.map_or(String::new(), |what| format!(": {what}"));
    DataError::new(Reason::Field, format!("is missing{not_found}{way_out}"))
}

/// Adds the names of a field and of its column to an error. `column` is `None` if it has the name
/// of the field, or no name.
pub fn named(field: &str, column: Option<&str>, error: DataError) -> DataError {
    let column = column.map_or(String::new(), |name| format!(" (column {name:?})"));
    let is_predicate = ["is ", "has ", "cannot "].iter().any(|it| error.problem.starts_with(it));
    let text = match is_predicate {
        true => format!("the field {field:?}{column} {}", error.problem),
        false => format!("the field {field:?}{column}: {}", error.problem),
    };
    DataError::new(error.reason, text)
}

/// Message about a field that the source lacks.
pub fn lacking(source: &dyn Source, fields: Option<&dyn Fields>, name: &str) -> String {
    let schema = source.schema();
    let needs = format!("needs the field {name:?}");
    if let Some(part) = fields.and_then(|fields| fields.part_without(name)) {
        return format!(
            "{needs}, which one of the combined sources lacks: {part}; set a default to accept its \
             samples"
        );
    }
    if schema.is_empty() {
        // If the source has fields but cannot read them, its error says more.
        let read =
            fields.map(|it| it.read_fields(0, &[], &mut Vec::new(), u64::MAX, &mut |_, _| Ok(())));
        return match read {
            Some(Err(error)) => error.problem,
            _ => {
                let remedy = fields.and_then(|it| it.not_found(0, name));
                format!(
                    "{needs}, but the source has no fields besides image and label: {}{}",
                    source.describe(),
                    remedy.map_or(String::new(), |remedy| format!("; {remedy}"))
                )
            }
        };
    }
    let names: Vec<_> = schema.iter().map(|field| field.name.as_str()).collect();
    let mut problem = format!("{needs}, but the source has the fields {}", names.join(", "));
    if fields.is_some_and(Fields::is_open) {
        problem += " in its first samples; set a default if only other samples have the field";
    }
    if let Some(end) = name.find(['.', '[']).filter(|&end| names.contains(&&name[..end])) {
        let rest = name[end..].trim_start_matches('.');
        problem += &format!("; a path begins with a colon: {}:{rest}", &name[..end]);
    } else if let Some(near) = nearest(name, &names) {
        problem += &format!("; did you mean {near}?");
    }
    problem
}
