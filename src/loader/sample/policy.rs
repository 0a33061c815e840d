//! Policy for samples that fail.

use super::fields::{Cell, FieldError, FieldReader};
use super::record::{Outcome, SampleRecord};
use crate::error::{DataError, Error, Reason, Result, SampleError};
use crate::plan::{OnError, Plan};
use crate::random::{SampleKey, replacements};
use crate::source::{NO_LABEL, Source, own_label};

/// Maximum number of replacements that are tried for a failed sample. If this many samples fail,
/// the cause is not a single sample, and the loader ends with an error. A smaller set has fewer
/// candidates.
const MOST_REPLACEMENTS: usize = 1000;

/// Reason why a sample could not be produced.
#[derive(Debug)]
pub(in crate::loader) enum ProduceError {
    /// Error of this sample. The policy `loader.on_error` decides what happens next.
    Sample(DataError),
    /// The sample is to be replaced by another one, whatever `loader.on_error` is.
    Skip(DataError),
    /// Other error, which ends the loader.
    Fatal(Error),
}

impl From<DataError> for ProduceError {
    fn from(error: DataError) -> Self {
        ProduceError::Sample(error)
    }
}

impl From<FieldError> for ProduceError {
    fn from(FieldError { error, skip }: FieldError) -> Self {
        if skip { ProduceError::Skip(error) } else { ProduceError::Sample(error) }
    }
}

impl From<Error> for ProduceError {
    fn from(error: Error) -> Self {
        ProduceError::Fatal(error)
    }
}

/// Produces a sample, or its replacement under the policy `loader.on_error`: reads its fields into
/// `cell`, and calls `attempt`, which produces the image of a key and moves the fields that follow
/// it. If the outcome has no image, the caller must write zeros.
pub(in crate::loader) fn produce<C: Cell>(
    plan: &Plan,
    (source, fields): (&dyn Source, &mut FieldReader),
    cell: &mut C,
    wanted: SampleKey,
    errors: &mut Vec<SampleError>,
    mut attempt: impl FnMut(SampleKey, &mut C, &mut FieldReader) -> Result<SampleRecord, ProduceError>,
) -> Result<SampleRecord> {
    let mut attempt = |key: SampleKey, cell: &mut C, fields: &mut FieldReader| {
        // Fields are read first, because they take less time than the image.
        let [truncated, defaulted] = fields.read(source, key, cell)?;
        let made = attempt(key, cell, fields);
        let (left_out, is_skipped) = fields.left_out();
        match made {
            Err(ProduceError::Sample(error)) if is_skipped => Err(ProduceError::Skip(error)),
            made => Ok(SampleRecord { truncated: truncated | left_out, defaulted, ..made? }),
        }
    };
    let candidates = replacements(wanted, source.len()).take(MOST_REPLACEMENTS);
    for index in std::iter::once(wanted.index).chain(candidates) {
        let key = SampleKey { index, ..wanted };
        let (reason, policy) = match attempt(key, cell, fields) {
            Ok(record) => {
                let replaces = (key.index != wanted.index).then_some(wanted.index);
                return Ok(SampleRecord { replaces, ..record });
            }
            Err(ProduceError::Fatal(error)) => return Err(error),
            Err(ProduceError::Sample(reason)) => (reason, plan.settings.loader.on_error),
            Err(ProduceError::Skip(reason)) => (reason, OnError::Skip),
        };
        let location = source.named_location(key.index);
        let error = SampleError::new(key.index, location, reason);
        match policy {
            OnError::Stop => return Err(Error::Sample(error)),
            policy @ (OnError::Substitute | OnError::Drop) => {
                errors.push(error);
                fields.fill(cell);
                let outcome = match policy {
                    OnError::Drop => Outcome::Dropped,
                    _ => Outcome::Substituted,
                };
                return Ok(SampleRecord {
                    label: own_label(source, wanted.index),
                    index: wanted.index,
                    outcome,
                    ..SampleRecord::SUBSTITUTED
                });
            }
            OnError::Skip => errors.push(error),
        }
    }
    let tried = errors.len() - 1;
    let others = match tried {
        0 => "there is no other sample that could take its place".to_string(),
        _ => format!("the {tried} samples that were tried in its place failed too"),
    };
    let policy = match plan.settings.loader.on_error {
        OnError::Skip => " (loader.on_error is skip)",
        _ => "",
    };
    let problem =
        format!("{}; no sample could replace this one{policy}: {others}", errors[0].problem);
    Err(Error::Sample(SampleError { problem, ..errors[0].clone() }))
}

/// Returns the label of a sample, if it has one. If the source has class names, checks that the
/// label has a name. If there are soft targets, checks that the label is a class. Must be called
/// after the sample was read: if the content of a source changes, the source knows which label
/// belongs to the bytes only after reading them.
pub(super) fn checked_label(
    plan: &Plan,
    source: &dyn Source,
    index: u64,
) -> Result<Option<i64>, DataError> {
    let names = source.classes().len();
    let label = source.label(index);
    let is_beyond = |number| names > 0 && number >= names;
    let problem = match &plan.stage {
        _ if usize::try_from(label).is_ok_and(is_beyond) => {
            format!(
                "the label {label} has no class name, because the source has only {names} class \
                 names; give a name for every label (source.classes)"
            )
        }
        Some(stage) if stage.classes == 0 && label != NO_LABEL => {
            let name = stage.operators.first().map_or("", |operator| operator.name());
            format!(
                "the label is {label}, but without targets.classes {name} mixes only images and \
                 masks; set targets.classes to the number of classes, or remove the label"
            )
        }
        Some(stage) if stage.classes > 0 && label < 0 => {
            format!(
                "the label is {label}, but targets.classes is {}, so each sample needs a class from 0 \
                 to {}; give each sample a label, or remove targets.classes and batch operators",
                stage.classes,
                stage.classes - 1
            )
        }
        Some(stage) if stage.classes > 0 && stage.class(label).is_none() => {
            format!(
                "the label {label} is too large: labels must be below targets.classes, which is {}",
                stage.classes
            )
        }
        _ => return Ok(Some(label).filter(|&label| label != NO_LABEL)),
    };
    Err(DataError::new(Reason::Label, problem))
}
