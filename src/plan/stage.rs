//! Batch stage: soft targets, and operators on whole batches.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::footprint::counted;
use crate::image::PixelFormat;
use crate::op::batch::TargetCoding;
use crate::op::mask::MaskFormat;
use crate::op::{BatchOperator, Blends, Chain, View};
use crate::tensor::ElementType;

use super::{
    ColumnKind, ColumnPlan, ColumnSettings, Facts, OnError, Plan, Settings, TargetSettings,
};

/// Soft targets, and the operators that mix the samples of a batch.
#[derive(Clone, Debug)]
pub struct BatchStage {
    /// Operators, in order.
    pub operators: Vec<Arc<dyn BatchOperator>>,
    /// Number of classes. 0 if there are no soft targets, because the operators mix only images and
    /// masks.
    pub classes: u32,
    /// Values of the soft targets before batch operators blend them.
    pub coding: TargetCoding,
}

impl BatchStage {
    /// Batch stage of a chain. `None` without soft targets and batch operators.
    pub(super) fn new(chain: &Chain, settings: &Settings, facts: &Facts) -> Result<Option<Self>> {
        let operators = chain.batch_operators().to_vec();
        let mut blends = 0;
        for (number, operator) in operators.iter().enumerate() {
            let key = format!("batch_operators[{number}]");
            operator
                .check()
                .map_err(|error| Error::config(format!("{key}.{}", error.field), error.problem))?;
            blends += operator.most_blends();
            if blends > Blends::MOST {
                let problem = format!(
                    "mixes a pair of samples up to {blends} times, together with the batch \
                     operators before it; at most {} times are allowed",
                    Blends::MOST
                );
                return Err(Error::config(key, problem));
            }
        }
        if let (Some(operator), OnError::Drop) = (operators.first(), settings.loader.on_error) {
            let problem = format!(
                "is drop, but {} mixes pairs of samples, and a dropped sample would leave half a \
                 pair; set skip or substitute",
                operator.name()
            );
            return Err(Error::config("loader.on_error", problem));
        }
        check_pixels(&operators, settings.decode.pixels)?;
        check_views(&operators, chain.views())?;
        check_following(&operators, &settings.columns)?;
        let TargetSettings { classes, smoothing } = settings.targets;
        let mixes_masks = settings.columns.iter().any(|it| it.kind == ColumnKind::Mask);
        let classes = match (classes, operators.first()) {
            (Some(classes), _) => classes,
            (None, None) => return Ok(None),
            (None, Some(_)) if mixes_masks && facts.classes == 0 => 0,
            (None, Some(operator)) => {
                let name = operator.name();
                let unlabelled = match mixes_masks {
                    true => {
                        "; or remove the labels (label = \"\") to mix only images and masks".into()
                    }
                    false if facts.classes > 0 => String::new(),
                    false => format!(
                        ", and give each sample a label; for samples without labels, remove {name}, \
                         or add a column of one-hot masks, which it mixes without targets"
                    ),
                };
                let problem = format!(
                    "is missing, but {name} mixes targets; set it to the number of classes{unlabelled}"
                );
                return Err(Error::config("targets.classes", problem));
            }
        };
        if facts.classes > classes as usize {
            let problem = format!(
                "is {classes}, but the source has {}; set at least that number",
                counted(facts.classes, "class")
            );
            return Err(Error::config("targets.classes", problem));
        }
        let batch = settings.loader.batch_size;
        if let Some(operator) = operators.first()
            && !batch.is_multiple_of(2)
        {
            let problem = format!(
                "is {batch}, but {} mixes pairs of samples; set an even number, or leave batch_operators out",
                operator.name()
            );
            return Err(Error::config("loader.batch_size", problem));
        }
        Ok(Some(Self { operators, classes, coding: TargetCoding::new(classes.max(1), smoothing) }))
    }

    /// Class of a label. `None` if the label is not a class.
    pub fn class(&self, label: i64) -> Option<u32> {
        u32::try_from(label).ok().filter(|&class| class < self.classes)
    }

    /// Size in bytes of a sample's soft target.
    pub fn row_bytes(&self) -> usize {
        size_of::<f32>() * self.classes as usize
    }
}

/// A column of masks, for batch operators.
#[derive(Clone, Copy, Debug)]
pub struct MaskColumn {
    /// Number of the column in its memory.
    pub slot: usize,
    /// Format of a mask.
    pub format: MaskFormat,
}

/// Checks that no operator blends images whose numbers have no mean.
fn check_pixels(operators: &[Arc<dyn BatchOperator>], pixels: PixelFormat) -> Result<()> {
    if pixels != PixelFormat::Indices {
        return Ok(());
    }
    let Some(number) = operators.iter().position(|it| !it.only_exchanges()) else { return Ok(()) };
    let problem = format!(
        "is {}, which blends images, but decode.pixels is indices, which have no mean; use cutmix, \
         which only exchanges pixels, or remove the operator",
        operators[number].name()
    );
    Err(Error::config(format!("batch_operators[{number}].op"), problem))
}

/// Checks that no view is in batches that are mixed.
fn check_views(operators: &[Arc<dyn BatchOperator>], views: &[View]) -> Result<()> {
    let (Some(operator), Some(view)) = (operators.first(), views.first()) else { return Ok(()) };
    let problem = format!(
        "is {:?}, but {} mixes the images of two samples, and views are not mixed; remove all views \
         or the operator",
        view.name,
        operator.name()
    );
    Err(Error::config("view[0].name", problem))
}

/// Checks that batch operators can mix the columns that follow the image.
fn check_following(operators: &[Arc<dyn BatchOperator>], columns: &[ColumnSettings]) -> Result<()> {
    for (number, column) in columns.iter().enumerate().filter(|(_, it)| it.kind.follows()) {
        let is_mask = column.kind == ColumnKind::Mask;
        let is_u8 = column.dtype == Some(ElementType::U8);
        let mixes = |it: &&Arc<dyn BatchOperator>| {
            is_mask && (it.only_exchanges() || column.one_hot.is_some() && !is_u8)
        };
        let Some(operator) = operators.iter().find(|it| !mixes(it)) else { continue };
        if is_mask && column.one_hot.is_some() {
            let problem = format!(
                "is u8, but {} blends masks to fractions of classes; set dtype = \"f32\"",
                operator.name()
            );
            return Err(Error::config(format!("column[{number}].dtype"), problem));
        }
        let problem = format!(
            "is {}, but {} mixes the images of two samples, and such columns cannot be mixed; \
             remove the column or the operator{}",
            column.kind.name(),
            operator.name(),
            if is_mask { ", or use cutmix, or set one_hot to the number of classes" } else { "" },
        );
        return Err(Error::config(format!("column[{number}].kind"), problem));
    }
    Ok(())
}

impl Plan {
    /// Columns of masks that follow the images.
    pub(crate) fn masks(&self) -> Vec<MaskColumn> {
        let masks = self.mask_columns().filter(|(_, _, view)| view.is_none());
        let mask = |(column, settings, _): (&ColumnPlan, &ColumnSettings, _)| {
            let format = self.mask_format(column, settings);
            MaskColumn { slot: column.slot, format }
        };
        masks.map(mask).collect()
    }

    /// Warning if batch operators mix repeats of the same sample with each other. The two samples
    /// of a pair are neighbours in the order of the shard. In the order of the epoch, their
    /// distance is the number of shards. If this is less than the number of repeats, they can be
    /// repeats of one sample.
    pub(crate) fn repeated_pairs(&self) -> Option<String> {
        let (repeats, world) = (self.settings.loader.repeats, self.shard.world);
        let operator = self.stage.as_ref()?.operators.first()?;
        (u64::from(repeats) > world).then(|| {
            format!(
                "loader.repeats is {repeats}, which is more than the world size {world}, so {} \
                 mixes repeats of the same sample with each other; use at least {repeats} ranks, \
                 or fewer repeats",
                operator.name()
            )
        })
    }
}
