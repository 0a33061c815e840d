//! Sources made of other sources: one after another, mixed by weights, a part of one, one several times.
//!
//! Each is a rule that says which sample of which part stands at an index. Nothing is copied, and what a part says of a
//! sample holds in the whole.

use std::collections::HashMap;
use std::sync::Arc;

use super::largest::largest;
use super::{
    Annotations, Expected, Heads, Hints, HostPage, Identity, LeftOut, LeftOuts, Notes, Page,
    RemoteReads, Source,
};
use crate::annotation::{Canvas, Object};
use crate::error::{DataError, Error, Result};
use crate::storage::Storage;

pub use mixture::Weighted;
pub use select::{Chosen, Repeated};
pub use settings::{FilterSettings, PartSettings, Selection};

pub(crate) use settings::JOINED;

mod mixture;
mod select;
mod settings;

/// So many times as many of the largest samples of a part are looked for as are wanted: a subset need not have the first.
const TRIED: usize = 16;

/// Parts one after another, in their order.
pub type Concat = Combined<InTurn>;

/// Parts mixed by weights.
///
/// * Weights are any positive numbers of up to six decimal places; only their ratios count. Brought to whole numbers
///   without a common divisor they may add up to 2^20 at most.
/// * After `n` samples the number of those that came from a part with the share `w` differs from `n * w` by less than
///   1, for every `n`; and after as many samples as the whole weights add up to, by nothing. Each draw of a part falls
///   into its own window from `floor(j / w)` to `ceil((j + 1) / w)`, earliest end first (Baruah, Cohen, Plaxton and
///   Varvel, "Proportionate progress", Algorithmica 1996; for one processor it is Tijdeman's chairman assignment).
/// * Every sample of a part comes once before any comes again. Where the draws end within such a pass, those of the pass
///   are spread evenly over the part.
/// * The length is as set; by default it is the shortest with which every sample of every part comes at least once, so
///   that parts with more than their share of weight repeat. An epoch is all of it, so each epoch has the same samples.
/// * What stands at an index is computed from the index alone: a table of one period (at most 6 MiB) is all the memory.
///
/// The loader's order, shards and resume go over the mixture's indices as over those of any source. With
/// `loader.shuffle` the counts of each part are exact over the epoch and as random as any shuffle's within it.
pub type Mixture = Combined<Weighted>;

/// Some samples of a part: a range, or a list of its indices in any order.
pub type Subset = Combined<Chosen>;

/// A part several times, one after another.
pub type Repeat = Combined<Repeated>;

/// Which sample of which part stands at an index.
pub trait Arrangement: Send + Sync + 'static {
    /// How many samples there are; at least 1.
    fn samples(&self) -> u64;

    /// The number of the part and the index in it of the sample at `index`, which is below the length. Takes the same
    /// short time for every index.
    fn at(&self, index: u64) -> (usize, u64);

    /// An index at which this sample of a part stands; `None`, the default, where there is none, or it is not known.
    fn index_of(&self, part: usize, index: u64) -> Option<u64> {
        let _ = (part, index);
        None
    }

    /// [`Hints::file_ends`] of the whole, from those of the parts. Empty, the default, where the samples of a file do not
    /// stand together.
    fn file_ends(&self, parts: &[Vec<u64>]) -> Vec<u64> {
        let _ = parts;
        Vec::new()
    }

    /// Host memory that the arrangement itself holds, in bytes. Default 0.
    fn memory_bytes(&self) -> u64 {
        0
    }

    /// What it is, in words, when its parts are these.
    fn describe(&self, parts: &[String]) -> String {
        format!("{} samples of {}", self.samples(), parts.join("; "))
    }
}

/// A source made of parts.
///
/// * Labels and classes: parts with equal lists of classes share them, and labels stay as they are; so do parts of which
///   none has any. Otherwise classes are joined by name: those of the first part, then those that each further part
///   adds, in its order; labels are renumbered. Parts with and parts without names of classes cannot be joined.
/// * Bytes, locations, labels and objects of a sample are those of its part.
/// * Samples that stand at several indices are cached once ([`Identity::original`]).
pub struct Combined<A> {
    parts: Vec<Part>,
    classes: Vec<String>,
    arrangement: A,
}

struct Part {
    source: Arc<dyn Source>,
    /// The label in the whole of each of the part's labels; `None` where they are the same.
    labels: Option<Vec<i64>>,
    /// Originals of the parts before it.
    originals_before: u64,
}

impl Part {
    /// The label in the whole.
    fn in_whole(&self, label: i64) -> i64 {
        match (&self.labels, usize::try_from(label)) {
            (None, _) | (_, Err(_)) => label,
            // A label without a name of a class has none in the whole either.
            (Some(labels), Ok(label)) => labels.get(label).copied().unwrap_or(-1),
        }
    }
}

impl Concat {
    /// All samples of the first part, then all of the second, and so on.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] where there are no parts, or where their classes cannot be joined.
    pub fn new(parts: Vec<Arc<dyn Source>>) -> Result<Self> {
        let mut end = 0u64;
        let mut ends = Vec::with_capacity(parts.len());
        for part in &parts {
            end = end.checked_add(part.len()).ok_or_else(|| {
                Error::config("source.concat", "the parts have 2^64 samples and more together")
            })?;
            ends.push(end);
        }
        if end == 0 {
            let problem = "has no samples; name at least one source";
            return Err(Error::config("source.concat", problem));
        }
        Combined::join("source.concat", parts, InTurn { ends })
    }
}

/// The arrangement of [`Concat`].
pub struct InTurn {
    /// For each part, the first index after it.
    ends: Vec<u64>,
}

impl Arrangement for InTurn {
    fn samples(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    fn at(&self, index: u64) -> (usize, u64) {
        let part = self.ends.partition_point(|&end| end <= index);
        let begin = if part == 0 { 0 } else { self.ends[part - 1] };
        (part, index - begin)
    }

    fn index_of(&self, part: usize, index: u64) -> Option<u64> {
        let begin = if part == 0 { 0 } else { *self.ends.get(part - 1)? };
        Some(begin + index)
    }

    fn file_ends(&self, parts: &[Vec<u64>]) -> Vec<u64> {
        if parts.iter().any(Vec::is_empty) {
            return Vec::new();
        }
        let begins = [0].into_iter().chain(self.ends.iter().copied());
        begins
            .zip(parts)
            .flat_map(|(begin, ends)| ends.iter().map(move |end| begin + end))
            .collect()
    }

    fn memory_bytes(&self) -> u64 {
        size_of_val(&*self.ends) as u64
    }

    fn describe(&self, parts: &[String]) -> String {
        format!("{} samples, one after another: {}", self.samples(), parts.join("; "))
    }
}

impl<A: Arrangement> Combined<A> {
    /// The samples of these parts that an arrangement of your own says, in its order.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] where there are no parts or no samples, or where the classes of the parts cannot be joined.
    pub fn arranged(parts: Vec<Arc<dyn Source>>, arrangement: A) -> Result<Self> {
        if parts.is_empty() || arrangement.samples() == 0 {
            return Err(Error::config("source", "has no samples"));
        }
        Self::join("source", parts, arrangement)
    }

    /// Joins the classes of the parts.
    fn join(key: &str, parts: Vec<Arc<dyn Source>>, arrangement: A) -> Result<Self> {
        let (classes, labels) = join_classes(key, &parts)?;
        let mut originals_before = 0u64;
        let parts = parts.into_iter().zip(labels).map(|(source, labels)| {
            let before = originals_before;
            originals_before = before.saturating_add(source.originals());
            Part { source, labels, originals_before: before }
        });
        Ok(Self { parts: parts.collect(), classes, arrangement })
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
        part.source.read(index, page, limit)
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

    /// Those among the largest of each part that the arrangement has.
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

    fn storages(&self) -> Vec<Storage> {
        self.parts.iter().flat_map(|part| part.source.storages()).collect()
    }
}

impl<A: Arrangement> Identity for Combined<A> {
    fn version(&self, index: u64) -> Option<String> {
        let (part, index) = self.part(index);
        part.source.version(index)
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
    /// That of the parts, whatever is taken of them.
    fn left_out(&self) -> Vec<LeftOut> {
        let mut all = LeftOuts::default();
        self.parts.iter().for_each(|part| all.join(&part.source.left_out()));
        all.into_list()
    }

    fn warnings(&self) -> Vec<String> {
        self.parts.iter().flat_map(|part| part.source.warnings()).collect()
    }
}

/// For each part the label in the whole of each of its labels; `None` where they are the same.
type Renumbered = Vec<Option<Vec<i64>>>;

/// The classes of the whole, and how the labels of each part are renumbered.
fn join_classes(key: &str, parts: &[Arc<dyn Source>]) -> Result<(Vec<String>, Renumbered)> {
    let first = parts.first().map_or(&[][..], |part| part.classes());
    if parts.iter().all(|part| part.classes() == first) {
        return Ok((first.to_vec(), parts.iter().map(|_| None).collect()));
    }
    if let Some(nameless) = parts.iter().position(|part| part.classes().is_empty()) {
        let named = parts.iter().position(|part| !part.classes().is_empty()).unwrap_or(0);
        let problem = format!(
            "source {named} has names of classes and source {nameless} has none, so their labels cannot be brought \
             together; choose sources that all have names, or none"
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
