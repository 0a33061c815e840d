//! Assigns labels from a table of classes.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::select::Chosen;
use super::{Arrangement, Classed, Combined, OwnNotes, Part};
use crate::error::{Error, Result};
use crate::footprint::counted;
use crate::source::class_table::{ClassTable, listed};
use crate::source::{ExclusionReason, Exclusions, Source};

/// Arrangement of [`Classed`]: only samples whose classes are in the table.
pub struct Numbered {
    /// Number of samples in the wrapped source.
    len: u64,
    /// Selected samples; `None` if all samples are kept.
    kept: Option<Chosen>,
}

impl Classed {
    /// Gives the classes of a source the numbers of the table.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if the source has class names, but none of its samples or objects has a
    /// class of the table. [`Error::Config`] also if the source has no class names and a label is
    /// not in the table.
    pub fn new(source: Arc<dyn Source>, table: &ClassTable) -> Result<Self> {
        let classes = table.names().to_vec();
        let mut own = OwnNotes::default();
        let mut numbered = Numbered { len: source.len(), kept: None };
        let names = source.classes();
        let number = |name: &String| table.number(name).unwrap_or(-1);
        let numbers: Option<Vec<i64>> =
            (!names.is_empty() && names != classes).then(|| names.iter().map(number).collect());
        match &numbers {
            None if names.is_empty() => check_labels(&*source, table)?,
            None => {}
            Some(numbers) => {
                let is_unknown = |(name, number): (&String, &i64)| *number < 0 && !name.is_empty();
                if names.iter().zip(numbers).any(is_unknown) {
                    numbered.kept = leave_out(&*source, numbers, table, &mut own)?;
                }
            }
        }
        let part = Part { source, labels: numbers, originals_before: 0, field_originals_before: 0 };
        Ok(Combined { parts: vec![part], classes, arrangement: numbered, own })
    }
}

impl Numbered {
    /// Selected samples of a source with `len` samples. Classes and labels do not change.
    pub(super) fn of(len: u64, kept: Chosen) -> Self {
        Self { len, kept: Some(kept) }
    }
}

/// Returns an error if a source without class names has a label that is not in the table.
fn check_labels(source: &dyn Source, table: &ClassTable) -> Result<()> {
    if !source.knows_labels() {
        return Ok(());
    }
    let count = table.names().len();
    let is_beyond = |&index: &u64| usize::try_from(source.label(index)).is_ok_and(|it| it >= count);
    let Some(index) = (0..source.len()).find(is_beyond) else { return Ok(()) };
    let problem = format!(
        "has {}, but sample {index} ({}) has the label {}, and the source has no class names; \
         list a name for every label",
        counted(count, "name"),
        source.location(index),
        source.label(index)
    );
    Err(Error::config("source.classes", problem))
}

/// Counts the samples and objects whose classes are not in the table. Returns the kept samples, or
/// `None` if all are kept.
fn leave_out(
    source: &dyn Source,
    numbers: &[i64],
    table: &ClassTable,
    own: &mut OwnNotes,
) -> Result<Option<Chosen>> {
    let names = source.classes();
    let is_unknown = |label: i64| {
        let label = usize::try_from(label).ok().filter(|&label| label < numbers.len());
        label.filter(|&label| numbers[label] < 0)
    };
    let mut excluded = Exclusions::default();
    let (mut samples, mut objects): (BTreeMap<usize, u64>, BTreeMap<usize, u64>) =
        Default::default();
    let (mut kept, mut known) = (Vec::new(), false);
    for index in 0..source.len() {
        let mut example = None;
        let mut count = |why, class: usize| {
            let example = example.get_or_insert_with(|| source.location(index));
            excluded.add(why, &names[class], 1, example);
        };
        let label = source.label(index);
        match is_unknown(label) {
            Some(class) => {
                count(ExclusionReason::UnknownClass, class);
                *samples.entry(class).or_default() += 1;
            }
            None => {
                known |= label >= 0;
                kept.push(index);
                for object in source.objects(index) {
                    match is_unknown(object.category) {
                        Some(class) => {
                            count(ExclusionReason::UnknownCategory, class);
                            *objects.entry(class).or_default() += 1;
                        }
                        None => known = true,
                    }
                }
            }
        }
    }
    if samples.is_empty() && objects.is_empty() {
        return Ok(None);
    }
    let name = |class: usize, counted: String| match table.alike(&names[class]) {
        Some(other) => format!("{:?} ({counted}; the table has {other:?})", names[class]),
        None => format!("{:?} ({counted})", names[class]),
    };
    let of_samples = samples.iter().map(|(&class, count)| name(class, counted(*count, "sample")));
    let of_objects = objects.iter().map(|(&class, count)| name(class, counted(*count, "object")));
    let missing: Vec<String> = of_samples.chain(of_objects).collect();
    let missing = listed(missing.into_iter());
    let listed_table = listed(table.names().iter().cloned());
    if !known {
        let problem = format!(
            "has none of the classes of the source: source.classes lists {listed_table}, but {} \
             has {missing}",
            source.describe()
        );
        return Err(Error::config("source.classes", problem));
    }
    own.warnings.push(format!(
        "{} has classes that source.classes does not list, and their samples are skipped: \
         {missing}; source.classes lists {listed_table}. Correct the names, or add them to \
         source.classes",
        source.describe()
    ));
    own.excluded = excluded.into_list();
    own.classed_objects = !objects.is_empty();
    Ok((!samples.is_empty()).then(|| Chosen::listed(source.len(), kept.into_iter())))
}

impl Arrangement for Numbered {
    fn samples(&self) -> u64 {
        self.kept.as_ref().map_or(self.len, Chosen::samples)
    }

    fn at(&self, index: u64) -> (usize, u64) {
        self.kept.as_ref().map_or((0, index), |kept| kept.at(index))
    }

    fn index_of(&self, part: usize, index: u64) -> Option<u64> {
        match &self.kept {
            Some(kept) => kept.index_of(part, index),
            None => Some(index),
        }
    }

    /// Leaving out samples does not reorder the others, so the samples of a file remain
    /// consecutive.
    fn file_ends(&self, parts: &[Vec<u64>]) -> Vec<u64> {
        let Some(ends) = parts.first() else { return Vec::new() };
        let Some(kept) = &self.kept else { return ends.clone() };
        let mut at = 0;
        let end = |&end: &u64| {
            while at < kept.samples() && kept.at(at).1 < end {
                at += 1;
            }
            at
        };
        ends.iter().map(end).collect()
    }

    fn memory_bytes(&self) -> u64 {
        self.kept.as_ref().map_or(0, Chosen::memory_bytes)
    }

    fn describe(&self, parts: &[String]) -> String {
        match &self.kept {
            Some(kept) => kept.describe(parts),
            None => parts.concat(),
        }
    }
}
