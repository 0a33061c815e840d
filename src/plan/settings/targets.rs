//! Settings of soft targets.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// `[targets]`: soft targets, an f32 for each class of each sample.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TargetSettings {
    /// Number of classes, 1 to 16777216. Each batch then has a one-hot target per sample
    /// ([`Batch::soft_targets`](crate::loader::Batch::soft_targets)), and a label outside of
    /// `0..classes` is an error of its sample. Required by batch operators, except if there are
    /// columns of masks and no sample has a label. Default: no soft targets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub classes: Option<u32>,
    /// Label smoothing, 0 to 1: every class gets `smoothing / classes`, and the sample's class gets
    /// `1 - smoothing` more. Needs `classes`. Default 0.
    pub smoothing: f64,
}

/// Maximum number of classes. An f32 represents every integer up to this number.
const MOST_CLASSES: u32 = 1 << 24;

impl TargetSettings {
    pub(super) fn check(&self) -> Result<()> {
        let Self { classes, smoothing } = *self;
        if let Some(classes) = classes
            && !(1..=MOST_CLASSES).contains(&classes)
        {
            let problem = format!("must be 1 to {MOST_CLASSES}, is {classes}");
            return Err(Error::config("targets.classes", problem));
        }
        if !(0.0..=1.0).contains(&smoothing) {
            let problem = format!("must be a number from 0 to 1, is {smoothing}");
            return Err(Error::config("targets.smoothing", problem));
        }
        if smoothing > 0.0 && classes.is_none() {
            let problem = format!(
                "is {smoothing}, but without targets.classes there are no soft targets to smooth; \
                 set targets.classes"
            );
            return Err(Error::config("targets.smoothing", problem));
        }
        Ok(())
    }
}
