//! Joins the fields of a second source to the samples of a first one, by key.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::classed::Numbered;
use super::select::Chosen;
use super::{Combined, OwnNotes};
use crate::error::{DataError, Error, Result};
use crate::field::Field;
use crate::source::{
    Exclusion, ExclusionReason, Exclusions, Fields, Hints, Notes, Page, RemoteReads, Source,
};
use crate::storage::Storage;

use index::{Index, on_threads, parts};
use key::{Key, MOST_FIELD_BYTES, listed};

pub use settings::{JoinSettings, MissingPartner};

mod fields;
mod index;
mod json;
mod key;
mod remote;
mod settings;
#[cfg(test)]
mod tests;

/// Key of errors about a join.
const SETTING: &str = "source.join";

/// Samples of a first source, with further fields of the samples of a second source that have the
/// same keys.
///
/// * Order, number, images, labels, classes and objects are those of the first source. The images
///   of the second source are not read.
/// * A key is the value of a field, the own key of a sample
///   ([`Identity::key`](crate::source::custom::Identity::key)), or its index. Keys are compared
///   as texts, byte for byte. An integer is the text of its decimal digits, so 7 equals `"7"`, but
///   not `"07"` or `"7.0"`. A float, a boolean and a list are no keys, which is an error.
/// * Several samples of the first source may have the same key. In the second source, this is an
///   error when the source is opened. So are a sample without a key, and no common key at all.
/// * A sample without a partner has no values of the joined fields, or is left out
///   ([`MissingPartner`]).
/// * Opening reads the keys of the second source, in parallel on all processors, and stores a hash
///   and a number for each (16 bytes per sample). When the fields of a sample are read, the key of
///   its partner is read again and compared, so samples with equal hashes are not confused.
pub struct Joined {
    first: Arc<dyn Source>,
    /// Whether `first` is a selection of the samples with a partner.
    is_selected: bool,
    second: Arc<dyn Source>,
    key: Key,
    other_key: Key,
    prefix: String,
    /// Names of the fields of the first source.
    own: HashSet<String>,
    /// Fields of the second source, with their names there.
    joined: Vec<Field>,
    index: Index,
    /// Whether the fields of the second source are prefetched.
    prefetches_second: bool,
    /// Warning that files of several folders have the same key.
    warning: Option<String>,
}

impl Joined {
    /// Joins the fields of `second` to the samples of `first`.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if a source has no such key, if the sources have a field of the same name,
    /// if two samples of `second` have the same key or one has none, or if the sources have no key
    /// in common.
    pub fn new(
        first: Arc<dyn Source>,
        second: Arc<dyn Source>,
        settings: &JoinSettings,
    ) -> Result<Self> {
        Self::with_bits(first, second, settings, u64::BITS)
    }

    /// Joins two sources with hashes of fewer bits.
    fn with_bits(
        first: Arc<dyn Source>,
        second: Arc<dyn Source>,
        settings: &JoinSettings,
        bits: u32,
    ) -> Result<Self> {
        let JoinSettings { key, other_key, prefix, missing } = settings;
        let other_key = other_key.as_ref().or(key.as_ref());
        let key = Key::new(&*first, key.as_deref(), "source.join.key")?;
        let other_key = Key::new(&*second, other_key.map(String::as_str), "source.join.other_key")?;
        let own: HashSet<String> = first.schema().into_iter().map(|field| field.name).collect();
        let joined = joined_fields(&*second, &own, &other_key, prefix)?;
        let index = Index::new(&*second, &other_key, SETTING, bits)?;
        let warning = equal_stems(&*first, &key, bits)?;
        let prefix = prefix.clone();
        let in_fields = [&key, &other_key].map(|key| key.within().is_some());
        let prefetches_second = Self::prefetches_second(&*first, &*second, in_fields);
        let mut this = Self {
            first,
            is_selected: false,
            second,
            key,
            other_key,
            prefix,
            own,
            joined,
            index,
            prefetches_second,
            warning,
        };
        this.check_unique()?;
        match missing {
            MissingPartner::Keep => this.check_common()?,
            MissingPartner::Drop => this.drop_missing()?,
        }
        Ok(this)
    }

    /// Reads the key of a sample of the first source. `None` if it has none.
    fn first_key(
        &self,
        index: u64,
        buffer: &mut Vec<u8>,
        limit: u64,
    ) -> Result<Option<String>, DataError> {
        // Samples that were left out do not change the indices of the others.
        let all = self.is_selected.then(|| self.first.identity()?.part(index)).flatten();
        let (source, index) = all.unwrap_or((&*self.first, index));
        self.key.read(source, index, buffer, limit)
    }

    /// Returns the number of the sample of the second source that has this key.
    fn partner(
        &self,
        key: &str,
        buffer: &mut Vec<u8>,
        limit: u64,
    ) -> Result<Option<u64>, DataError> {
        for number in self.index.candidates(key) {
            let own = self.other_key.read(&*self.second, number, buffer, limit);
            if own.map_err(|error| self.in_second(number, error))?.as_deref() == Some(key) {
                return Ok(Some(number));
            }
        }
        Ok(None)
    }

    /// Adds the sample of the second source to an error.
    fn in_second(&self, number: u64, error: DataError) -> DataError {
        let place = self.second.named_location(number);
        let problem = format!("{} (joined from {place})", error.problem);
        error.reworded(problem)
    }

    /// Returns an error if two samples of the second source have the same key.
    fn check_unique(&self) -> Result<()> {
        let mut buffer = Vec::new();
        for group in self.index.groups() {
            let mut known: Vec<(String, u64)> = Vec::new();
            for number in group {
                let key = self.other_key.read(&*self.second, number, &mut buffer, MOST_FIELD_BYTES);
                let key = key.map_err(|error| {
                    let place = self.second.named_location(number);
                    Error::config(SETTING, format!("{place}: {}", error.problem))
                })?;
                let Some(key) = key else { continue };
                if let Some((_, before)) = known.iter().find(|(other, _)| *other == key) {
                    let place = |number| self.second.named_location(number);
                    let (one, two) = (place(*before), place(number));
                    let problem = format!(
                        "the samples {one} and {two} of the second source have the same key \
                         {key:?}; keep one of them, or name another field with other_key"
                    );
                    return Err(Error::config(SETTING, problem));
                }
                known.push((key, number));
            }
        }
        Ok(())
    }

    /// Whether a sample of the first source has a partner. An error is that of reading the keys.
    fn has_partner(&self, index: u64, buffer: &mut Vec<u8>) -> Result<bool, DataError> {
        let key = self.first_key(index, buffer, MOST_FIELD_BYTES)?;
        let Some(key) = key else { return Ok(false) };
        Ok(self.partner(&key, buffer, MOST_FIELD_BYTES)?.is_some())
    }

    /// Returns an error if no sample has a partner. A sample that cannot be read fails when it is
    /// loaded.
    fn check_common(&self) -> Result<()> {
        let parts = parts(self.first.len());
        let is_found = AtomicBool::new(false);
        on_threads(parts.len(), |part| {
            let mut buffer = Vec::new();
            for index in parts[part].clone() {
                if is_found.load(Ordering::Relaxed) {
                    return;
                }
                if self.has_partner(index, &mut buffer).is_ok_and(|it| it) {
                    is_found.store(true, Ordering::Relaxed);
                }
            }
        });
        if is_found.into_inner() { Ok(()) } else { Err(self.nothing_in_common()) }
    }

    /// Leaves out the samples without a partner. A sample that cannot be read is kept, so that it
    /// fails when it is loaded.
    fn drop_missing(&mut self) -> Result<()> {
        let parts = parts(self.first.len());
        let kept = on_threads(parts.len(), |part| {
            let (mut buffer, mut kept, mut has_any) = (Vec::new(), Vec::new(), false);
            for index in parts[part].clone() {
                let found = self.has_partner(index, &mut buffer);
                has_any |= matches!(found, Ok(true));
                if found.unwrap_or(true) {
                    kept.push(index);
                }
            }
            (kept, has_any)
        });
        if !kept.iter().any(|(_, has_any)| *has_any) {
            return Err(self.nothing_in_common());
        }
        let kept = || kept.iter().flat_map(|(kept, _)| kept.iter().copied());
        let (len, count) = (self.first.len(), kept().count() as u64);
        if count == len {
            return Ok(());
        }
        let first = (0..).zip(kept()).find(|(number, index)| number != index);
        let example = self.first.named_location(first.map_or(count, |(number, _)| number));
        let mut excluded = Exclusions::default();
        excluded.add(ExclusionReason::NoPartner, "", len - count, &example);
        let arrangement = Numbered::of(len, Chosen::listed(len, kept()));
        let mut source = Combined::join(SETTING, vec![self.first.clone()], arrangement)?;
        source.own = OwnNotes { excluded: excluded.into_list(), ..OwnNotes::default() };
        self.first = Arc::new(source);
        self.is_selected = true;
        Ok(())
    }

    /// Error for two sources without a common key.
    fn nothing_in_common(&self) -> Error {
        let mut buffer = Vec::new();
        let mut example = |source: &dyn Source, key: &Key| match key.read(
            source,
            0,
            &mut buffer,
            MOST_FIELD_BYTES,
        ) {
            Ok(Some(key)) => format!("the first key is {key:?}"),
            Ok(None) => "the first sample has no key".into(),
            Err(error) => format!("the first key cannot be read: {}", error.problem),
        };
        let first = example(&*self.first, &self.key);
        let second = example(&*self.second, &self.other_key);
        let problem = format!(
            "no sample has the key of a sample of the second source: in {}, {first}; in {}, \
             {second}; name the fields with the keys in key and other_key",
            self.first.describe(),
            self.second.describe()
        );
        Error::config(SETTING, problem)
    }
}

/// Returns the fields that the second source adds.
fn joined_fields(
    second: &dyn Source,
    own: &HashSet<String>,
    key: &Key,
    prefix: &str,
) -> Result<Vec<Field>> {
    let mut joined = second.schema();
    // A key that both sources have is the same value.
    joined.retain(|it| {
        key.field() != Some(&*it.name) || !own.contains(&format!("{prefix}{}", it.name))
    });
    let names = joined.iter().map(|field| format!("{prefix}{}", field.name));
    let twice: Vec<String> = names.filter(|name| own.contains(name)).collect();
    if !twice.is_empty() {
        let problem = format!(
            "both sources have the fields {}; set a prefix for the names of the joined fields, \
             such as prefix = \"joined.\"",
            listed(twice.iter())
        );
        return Err(Error::config("source.join.prefix", problem));
    }
    if joined.is_empty() && !second.fields().is_some_and(|it| it.is_open()) {
        let problem = format!("{} has no fields besides the key", second.describe());
        return Err(Error::config(SETTING, problem));
    }
    Ok(joined)
}

/// Returns a warning if files of several folders have the same own key.
fn equal_stems(first: &dyn Source, key: &Key, bits: u32) -> Result<Option<String>> {
    let path = |index| {
        let (source, index) = first.part(index);
        source.identity().and_then(|it| it.path(index))
    };
    // Names in archives have folders.
    if !matches!(key, Key::Own) || first.is_empty() || path(0).is_none() {
        return Ok(None);
    }
    // A sample without a key has no partner, which is no mistake of names.
    let Ok(index) = Index::new(first, key, SETTING, bits) else { return Ok(None) };
    for group in index.groups() {
        let one = group[0];
        let same = |other: &&u64| {
            let keys = (first.key(one), first.key(**other));
            matches!(keys, (Ok(key), Ok(other)) if key == other) && path(one) != path(**other)
        };
        if let Some(&other) = group.iter().find(same) {
            return Ok(Some(format!(
                "source.join: {} and {} have the same name without their folders, so they have the \
                 same joined fields; if this is wrong, name a field with unique keys in \
                 source.join.key",
                first.location(one),
                first.location(other)
            )));
        }
    }
    Ok(None)
}

impl Source for Joined {
    fn len(&self) -> u64 {
        self.first.len()
    }

    fn label(&self, index: u64) -> i64 {
        self.first.label(index)
    }

    fn location(&self, index: u64) -> String {
        self.first.location(index)
    }

    fn read(&self, index: u64, page: &mut dyn Page, limit: u64) -> Result<(), DataError> {
        self.first.read(index, page, limit)
    }

    fn inner(&self) -> Option<&dyn Source> {
        Some(&*self.first)
    }

    fn describe(&self) -> String {
        format!("{}, joined with {}", self.first.describe(), self.second.describe())
    }

    fn fields(&self) -> Option<&dyn Fields> {
        Some(self)
    }

    fn remote(&self) -> Option<&dyn RemoteReads> {
        (self.prefetches_second || self.first.is_remote()).then_some(self)
    }

    fn hints(&self) -> Option<&dyn Hints> {
        Some(self)
    }

    fn notes(&self) -> Option<&dyn Notes> {
        Some(self)
    }
}

/// Those of the first source, and the memory of all.
impl Hints for Joined {
    fn largest_bytes(&self) -> Option<u64> {
        self.first.largest_bytes()
    }

    fn largest_samples(&self, most: usize) -> Vec<(u64, u64)> {
        self.first.largest_samples(most)
    }

    fn memory_bytes(&self) -> u64 {
        let names = self.own.iter().chain(self.joined.iter().map(|field| &field.name));
        let names: usize = names.map(|name| name.capacity() + size_of::<Field>()).sum();
        let sources = self.first.memory_bytes() + self.second.memory_bytes();
        sources + self.index.memory_bytes() + names as u64
    }

    fn file_ends(&self) -> Vec<u64> {
        self.first.file_ends()
    }

    fn files(&self) -> Vec<PathBuf> {
        self.first.files()
    }

    fn slow_shuffled(&self) -> Option<String> {
        self.first.slow_shuffled()
    }

    fn knows_labels(&self) -> bool {
        self.first.knows_labels()
    }

    fn storages(&self) -> Vec<Storage> {
        [self.first.storages(), self.second.storages()].concat()
    }
}

impl Notes for Joined {
    /// The skipped items of both sources, and the samples without a partner that were left out.
    fn excluded(&self) -> Vec<Exclusion> {
        let mut all = Exclusions::default();
        [&self.first, &self.second].iter().for_each(|it| all.join(&it.excluded()));
        all.into_list()
    }

    fn warnings(&self) -> Vec<String> {
        let both = self.first.warnings().into_iter().chain(self.second.warnings());
        both.chain(self.warning.clone()).collect()
    }
}
