//! What happens when a sample cannot be used.

use crate::error::{DataError, Error, Result, SampleError};
use crate::plan::{OnError, Plan};
use crate::random::{SampleKey, replacements};
use crate::source::{Source, own_label};

use super::record::{Outcome, SampleRecord};

/// Most candidates that are tried in the place of a sample that cannot be used: all of a small set, and enough of
/// a large one to be sure that something else is wrong.
const MOST_REPLACEMENTS: usize = 1000;

/// Why a sample did not come about.
#[derive(Debug)]
pub(super) enum ProduceError {
    /// The sample's own fault: the policy decides.
    Sample(DataError),
    /// Anything else: the loader ends.
    Fatal(Error),
}

impl From<DataError> for ProduceError {
    fn from(fault: DataError) -> Self {
        ProduceError::Sample(fault)
    }
}

impl From<Error> for ProduceError {
    fn from(error: Error) -> Self {
        ProduceError::Fatal(error)
    }
}

/// Puts a sample into its place, or what the policy puts there instead. `attempt` makes the sample of a key;
/// after [`Outcome::Substituted`] the caller puts zeros there.
pub(super) fn produce(
    plan: &Plan,
    source: &dyn Source,
    wanted: SampleKey,
    faults: &mut Vec<SampleError>,
    mut attempt: impl FnMut(SampleKey) -> Result<SampleRecord, ProduceError>,
) -> Result<SampleRecord> {
    let candidates = replacements(wanted, source.len()).take(MOST_REPLACEMENTS);
    for index in std::iter::once(wanted.index).chain(candidates) {
        let key = SampleKey { index, ..wanted };
        let fault = match attempt(key) {
            Ok(record) => {
                let replaces = (key.index != wanted.index).then_some(wanted.index);
                return Ok(SampleRecord { replaces, ..record });
            }
            Err(ProduceError::Fatal(error)) => return Err(error),
            Err(ProduceError::Sample(fault)) => fault,
        };
        let location = source.location(key.index);
        let error = SampleError::new(key.index, location, fault);
        match plan.settings.loader.on_error {
            OnError::Stop => return Err(Error::Sample(error)),
            OnError::Substitute => {
                faults.push(error);
                return Ok(SampleRecord {
                    label: own_label(source, wanted.index),
                    index: wanted.index,
                    ..SampleRecord::SUBSTITUTED
                });
            }
            OnError::Skip => faults.push(error),
        }
    }
    Err(Error::Internal {
        problem: format!(
            "sample {} cannot be used, and neither can the {} samples that were tried in its place; the first \
             fault: {}",
            wanted.index,
            faults.len() - 1,
            faults[0]
        ),
    })
}

/// The record of a sample whose outcome is known.
pub(super) fn record(
    source: &dyn Source,
    index: u64,
    sample: &crate::plan::SamplePlan,
    outcome: Outcome,
) -> SampleRecord {
    SampleRecord {
        index,
        label: own_label(source, index),
        size: sample.upright,
        orientation: sample.orientation,
        trace: sample.trace,
        outcome,
        cpu_fallback: None,
        tolerated: None,
        replaces: None,
        padding: false,
    }
}
