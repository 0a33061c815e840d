//! Sources that combine other sources: concatenation, weighted mixture, subset and repetition.
//!
//! A combination maps each index to a sample of one of its parts. No data are copied: samples keep
//! all their properties.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use super::fingerprint::{Fingerprint, inspected, of_part};
use super::largest::largest;
use super::{
    Annotations, Exclusion, Exclusions, Expected, Fields, Heads, Hints, HostPage, Identity, Notes,
    Page, RemoteReads, Source, counted,
};
use crate::annotation::{Canvas, Object};
use crate::error::{DataError, Error, Reason, Result};
use crate::storage::Storage;

pub use classed::Numbered;
pub use concat::InTurn;
pub use join::{JoinSettings, Joined, MissingPartner};
pub use mixture::Weighted;
pub use select::{Chosen, Repeated};
pub use settings::{FilterSettings, PartSettings, Selection};

pub(crate) use settings::{CLASS_TO_INDEX, COMBINATIONS};

mod classed;
mod concat;
mod fields;
mod join;
mod mixture;
mod select;
mod settings;

/// Number of candidates that `largest_samples` requests from a part for each sample that it
/// returns, because the combination may not contain some candidates.
const TRIED: usize = 16;

/// Parts that are concatenated in order.
pub type Concat = Combined<InTurn>;

/// Parts that are mixed by weights.
///
/// * Weights are positive finite numbers, such as shares, numbers of samples or outputs of a
///   softmax. Only their ratios matter. Each part gets a whole number of draws per period, which
///   [`describe`](Source::describe) prints: `1 of 3`. Weights of up to six decimal places are exact
///   if the period is at most 2^20. Other weights, such as 1.0 / 3.0, are exact if the period is at
///   most 10,000. Otherwise the period is 2^20 and the draws are rounded, with at least one for
///   each part.
/// * After `n` samples, the number of samples from a part with share `w` differs from `n * w` by
///   less than 1. After each full period it equals `n * w`. Draw `j` of a part lies in the range
///   `floor(j / w)` to `ceil((j + 1) / w)`. Of the ranges that have begun, the one that ends first
///   is next (Baruah, Cohen, Plaxton, Varvel, "Proportionate progress", Algorithmica 1996).
/// * All samples of a part occur once before any sample of the part occurs again. If the mixture
///   ends before a part's last pass is complete, the samples in this pass are evenly spaced over
///   the part.
/// * The default length is the shortest that includes every sample of every part. A part whose
///   samples have all been drawn repeats. An epoch is the whole mixture, so every epoch has the
///   same samples.
/// * The sample at an index is computed from the index alone. The only memory is a table of one
///   period, of at most 6 MiB.
///
/// The loader's order, shards and resume apply to the indices of the mixture as for any source.
/// With `loader.shuffle`, the number of samples from each part is exact in a whole epoch, but
/// random in a section of the epoch.
pub type Mixture = Combined<Weighted>;

/// Subset of a part: a range, or a list of indices in any order.
pub type Subset = Combined<Chosen>;

/// Part that is repeated several times.
pub type Repeat = Combined<Repeated>;

/// Source whose labels are the numbers of a [`ClassTable`](super::ClassTable).
///
/// * A class has the number of its name in the table. Therefore training and validation sets, sets
///   of different sources and saved models agree, whatever classes each of them contains.
/// * Samples and objects whose classes are not in the table are skipped and counted
///   ([`Notes::excluded`]), with a warning.
/// * If a source has no class names, its labels are kept and named by the table. If the source
///   [knows its labels](Hints::knows_labels), [`Classed::new`] returns an error for labels that are
///   not in the table.
pub type Classed = Combined<Numbered>;

/// Rule that maps an index to a sample of a part.
pub trait Arrangement: Send + Sync + 'static {
    /// Number of samples, at least 1.
    fn samples(&self) -> u64;

    /// Returns the number of a part, and the index in this part, for the sample at `index`. `index`
    /// is below [`samples`](Self::samples). Must take constant time.
    fn at(&self, index: u64) -> (usize, u64);

    /// Returns an index at which the combination contains sample `index` of a part. `None`, the
    /// default, if the combination does not contain the sample or the index is unknown.
    fn index_of(&self, part: usize, index: u64) -> Option<u64> {
        let _ = (part, index);
        None
    }

    /// Checks the label with which a sample was read. `label` is the label in the part, not in the
    /// combination. The default accepts every label.
    ///
    /// # Errors
    ///
    /// [`DataError`] if a sample with this label does not belong to the arrangement.
    fn check_label(&self, label: i64) -> Result<(), DataError> {
        let _ = label;
        Ok(())
    }

    /// Computes [`Hints::file_ends`] of the combination from the file ends of each part. Empty, the
    /// default, if the samples of a file are not consecutive.
    fn file_ends(&self, parts: &[Vec<u64>]) -> Vec<u64> {
        let _ = parts;
        Vec::new()
    }

    /// Returns the host memory of the arrangement itself, in bytes. Default 0.
    fn memory_bytes(&self) -> u64 {
        0
    }

    /// Returns the number of draws of each part per period of a mixture. Default empty.
    fn weights(&self) -> Vec<u64> {
        Vec::new()
    }

    /// Describes the combination for users, given the descriptions of the parts.
    fn describe(&self, parts: &[String]) -> String {
        format!("{} of {}", counted(self.samples(), "sample"), parts.join("; "))
    }
}

/// Source that combines parts.
///
/// * Classes: if all parts have the same list of classes, or none has classes, the list is shared
///   and labels are unchanged. Otherwise classes are merged by name, in the order of the parts, and
///   labels are renumbered. Parts with class names cannot be merged with parts without.
/// * Bytes, locations, labels and objects of a sample are the same as in its part.
/// * A sample that occurs at several indices is cached once ([`Identity::original`]), and its
///   fields too ([`Fields::field_original`]).
pub struct Combined<A> {
    parts: Vec<Part>,
    classes: Vec<String>,
    arrangement: A,
    own: OwnNotes,
}

/// Items that the combination itself skips, and its own warnings.
#[derive(Default)]
struct OwnNotes {
    excluded: Vec<Exclusion>,
    warnings: Vec<String>,
    /// Whether the combination skips objects without a class.
    classed_objects: bool,
}

struct Part {
    source: Arc<dyn Source>,
    /// Label in the combination for each label of the part; `None` if labels are unchanged.
    labels: Option<Vec<i64>>,
    /// Sum of [`Identity::originals`] of all earlier parts.
    originals_before: u64,
    /// Sum of [`Fields::field_originals`] of all earlier parts.
    field_originals_before: u64,
}

impl Part {
    /// Checks that a label of the part has a label in the combination.
    fn check_label(&self, label: i64) -> Result<(), DataError> {
        let Some(names) = self.labels.as_ref().map(Vec::len) else { return Ok(()) };
        if usize::try_from(label).is_ok_and(|number| number >= names) {
            let problem = format!(
                "the label {label} has no class name, because the source has only {names}; list a name for every label in source.classes"
            );
            return Err(DataError::new(Reason::Label, problem));
        }
        Ok(())
    }

    /// Converts a label of the part to a label of the combination.
    fn in_whole(&self, label: i64) -> i64 {
        match (&self.labels, usize::try_from(label)) {
            (None, _) | (_, Err(_)) => label,
            // A label without a class name in the part has no class in the combination either.
            (Some(labels), Ok(label)) => labels.get(label).copied().unwrap_or(-1),
        }
    }
}

impl<A: Arrangement> Combined<A> {
    /// Combines parts with a custom arrangement.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if there are no parts or no samples, or if the classes of the parts cannot
    /// be merged.
    pub fn arranged(parts: Vec<Arc<dyn Source>>, arrangement: A) -> Result<Self> {
        if parts.is_empty() || arrangement.samples() == 0 {
            return Err(Error::config("source", "has no samples"));
        }
        Self::join("source", parts, arrangement)
    }

    /// Creates a combination and merges the classes of its parts.
    fn join(key: &str, parts: Vec<Arc<dyn Source>>, arrangement: A) -> Result<Self> {
        let (classes, labels) = join_classes(key, &parts)?;
        let (mut originals, mut field_originals) = (0u64, 0u64);
        let parts = parts.into_iter().zip(labels).map(|(source, labels)| {
            let (before, fields_before) = (originals, field_originals);
            originals = before.saturating_add(source.originals());
            field_originals = fields_before.saturating_add(source.field_originals());
            let (originals_before, field_originals_before) = (before, fields_before);
            Part { source, labels, originals_before, field_originals_before }
        });
        Ok(Self { parts: parts.collect(), classes, arrangement, own: OwnNotes::default() })
    }

    fn part(&self, index: u64) -> (&Part, u64) {
        let (part, index) = self.arrangement.at(index);
        (&self.parts[part], index)
    }
}

impl<A: Arrangement> Source for Combined<A> {
    fn len(&self) -> u64 {
        self.arrangement.samples()
    }

    fn label(&self, index: u64) -> i64 {
        let (part, index) = self.part(index);
        part.in_whole(part.source.label(index))
    }

    fn location(&self, index: u64) -> String {
        let (part, index) = self.part(index);
        part.source.location(index)
    }

    fn read(&self, index: u64, page: &mut dyn Page, limit: u64) -> Result<(), DataError> {
        let (part, index) = self.part(index);
        part.source.read(index, page, limit)?;
        let label = part.source.label(index);
        part.check_label(label)?;
        self.arrangement.check_label(label)
    }

    fn describe(&self) -> String {
        let parts: Vec<_> = self.parts.iter().map(|part| part.source.describe()).collect();
        self.arrangement.describe(&parts)
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn annotations(&self) -> Option<&dyn Annotations> {
        let has = self.parts.iter().any(|part| part.source.annotations().is_some());
        has.then_some(self)
    }

    fn fields(&self) -> Option<&dyn Fields> {
        let has = self.parts.iter().any(|part| part.source.fields().is_some());
        has.then_some(self)
    }

    fn remote(&self) -> Option<&dyn RemoteReads> {
        let has = self.parts.iter().any(|part| part.source.is_remote());
        has.then_some(self)
    }

    fn heads(&self) -> Option<&dyn Heads> {
        let has = self.parts.iter().all(|part| part.source.has_heads());
        has.then_some(self)
    }

    fn hints(&self) -> Option<&dyn Hints> {
        Some(self)
    }

    fn identity(&self) -> Option<&dyn Identity> {
        Some(self)
    }

    fn notes(&self) -> Option<&dyn Notes> {
        Some(self)
    }
}

impl<A: Arrangement> Annotations for Combined<A> {
    fn objects(&self, index: u64) -> Vec<Object> {
        let (part, index) = self.part(index);
        let mut objects = part.source.objects(index);
        for object in &mut objects {
            object.category = part.in_whole(object.category);
        }
        if self.own.classed_objects {
            objects.retain(|object| object.category >= 0);
        }
        objects
    }

    fn canvas(&self, index: u64) -> Canvas {
        let (part, index) = self.part(index);
        part.source.canvas(index)
    }
}

impl<A: Arrangement> RemoteReads for Combined<A> {
    fn expect(&self, index: u64, limit: u64) -> Option<Expected> {
        let (part, index) = self.part(index);
        part.source.expect(index, limit)
    }

    fn expect_with_fields(&self, index: u64, image: bool, limit: u64) -> Option<Expected> {
        let (part, index) = self.part(index);
        part.source.expect_with_fields(index, image, limit)
    }

    fn largest_with_fields(&self) -> Option<u64> {
        self.parts.iter().filter_map(|part| part.source.largest_with_fields()).max()
    }
}

impl<A: Arrangement> Heads for Combined<A> {
    fn read_head(
        &self,
        index: u64,
        page: &mut HostPage,
        most: usize,
        limit: u64,
    ) -> Result<u64, DataError> {
        let (part, index) = self.part(index);
        part.source.read_head(index, page, most, limit)
    }
}

impl<A: Arrangement> Hints for Combined<A> {
    fn largest_bytes(&self) -> Option<u64> {
        let parts = self.parts.iter().map(|part| part.source.largest_bytes());
        parts.collect::<Option<Vec<_>>>()?.into_iter().max()
    }

    /// Returns the largest samples of the parts, without samples that the combination does not
    /// contain.
    fn largest_samples(&self, most: usize) -> Vec<(u64, u64)> {
        let parts = self.parts.iter().enumerate().flat_map(|(part, it)| {
            let of_part = it.source.largest_samples(most.saturating_mul(TRIED));
            let in_whole = of_part.into_iter().filter_map(move |(index, pixels)| {
                Some((self.arrangement.index_of(part, index)?, pixels))
            });
            in_whole.take(most)
        });
        largest(parts, most)
    }

    fn memory_bytes(&self) -> u64 {
        let names: usize = self.classes.iter().map(|name| name.capacity()).sum();
        let own = names + self.classes.capacity() * size_of::<String>();
        let parts = self.parts.iter().map(|part| {
            let labels = part.labels.as_ref().map_or(0, |it| it.capacity() * size_of::<i64>());
            part.source.memory_bytes() + labels as u64
        });
        own as u64 + self.arrangement.memory_bytes() + parts.sum::<u64>()
    }

    fn file_ends(&self) -> Vec<u64> {
        let parts: Vec<_> = self.parts.iter().map(|part| part.source.file_ends()).collect();
        self.arrangement.file_ends(&parts)
    }

    fn slow_shuffled(&self) -> Option<String> {
        self.parts.iter().find_map(|part| part.source.slow_shuffled())
    }

    fn knows_labels(&self) -> bool {
        self.parts.iter().all(|part| part.source.knows_labels())
    }

    fn files(&self) -> Vec<PathBuf> {
        self.parts.iter().flat_map(|part| part.source.files()).collect()
    }

    fn storages(&self) -> Vec<Storage> {
        self.parts.iter().flat_map(|part| part.source.storages()).collect()
    }
}

impl<A: Arrangement> Identity for Combined<A> {
    fn part(&self, index: u64) -> Option<(&dyn Source, u64)> {
        let (part, index) = self.part(index);
        Some((&*part.source, index))
    }

    fn key(&self, index: u64) -> Result<Option<String>, DataError> {
        let (part, index) = self.part(index);
        part.source.key(index)
    }

    fn version(&self, index: u64) -> Option<String> {
        let (part, index) = self.part(index);
        part.source.version(index)
    }

    fn fingerprint(&self) -> Option<Fingerprint> {
        let parts = self.parts.iter().map(|part| of_part(&*part.source));
        let at = |index| self.arrangement.at(index);
        // A combination with all samples of one source in their order has the fingerprint of this
        // source, even if labels change.
        if let [part] = &self.parts[..]
            && part.source.len() == self.len()
            && inspected(self.len()).all(|index| at(index) == (0, index))
        {
            return part.source.fingerprint();
        }
        Some(Fingerprint::of(self.len(), at, &self.arrangement.weights(), parts))
    }

    fn original(&self, index: u64) -> u64 {
        let (part, index) = self.part(index);
        part.originals_before.saturating_add(part.source.original(index))
    }

    fn originals(&self) -> Option<u64> {
        let last = self.parts.last()?;
        Some(last.originals_before.saturating_add(last.source.originals()))
    }
}

impl<A: Arrangement> Notes for Combined<A> {
    /// Returns the skipped items of all parts, even if the combination uses only some samples of a
    /// part.
    fn excluded(&self) -> Vec<Exclusion> {
        let mut all = Exclusions::default();
        self.parts.iter().for_each(|part| all.join(&part.source.excluded()));
        all.join(&self.own.excluded);
        all.into_list()
    }

    fn warnings(&self) -> Vec<String> {
        let parts = self.parts.iter().flat_map(|part| part.source.warnings());
        parts.chain(self.own.warnings.iter().cloned()).collect()
    }
}

/// New labels of each part: for each label of the part, the label in the combination. `None` if the
/// part's labels do not change.
type Renumbered = Vec<Option<Vec<i64>>>;

/// Returns the classes of the combination, and the new labels of each part.
fn join_classes(key: &str, parts: &[Arc<dyn Source>]) -> Result<(Vec<String>, Renumbered)> {
    let first = parts.first().map_or(&[][..], |part| part.classes());
    if parts.iter().all(|part| part.classes() == first) {
        return Ok((first.to_vec(), parts.iter().map(|_| None).collect()));
    }
    if let Some(nameless) = parts.iter().position(|part| part.classes().is_empty()) {
        let named = parts.iter().position(|part| !part.classes().is_empty()).unwrap_or(0);
        let problem = format!(
            "source {named} has class names but source {nameless} has none, so their labels \
             cannot be merged; combine only sources with class names, or only sources without"
        );
        return Err(Error::config(key, problem));
    }
    let mut classes: Vec<String> = Vec::new();
    let mut numbers = HashMap::new();
    let mut labels = Vec::new();
    for part in parts {
        let renumbered = part.classes().iter().map(|name| {
            *numbers.entry(name.clone()).or_insert_with(|| {
                classes.push(name.clone());
                classes.len() as i64 - 1
            })
        });
        labels.push(Some(renumbered.collect()));
    }
    Ok((classes, labels))
}
