//! Optional abilities of sources. Each is a trait, which [`Source`] returns as a trait object.

use std::path::PathBuf;

use super::{Exclusion, Expected, Fingerprint, HostPage, Sample, Source, class_table, own_label};
use crate::annotation::{Canvas, Object};
use crate::error::{DataError, Result};
use crate::storage::Storage;

/// Objects in the images: boxes, categories, masks.
pub trait Annotations {
    /// Objects in an image, in the order of its annotations.
    fn objects(&self, index: u64) -> Vec<Object>;

    /// Image size to which the coordinates of [`objects`](Self::objects) refer. An image of another size is a sample error.
    fn canvas(&self, index: u64) -> Canvas {
        let _ = index;
        Canvas::default()
    }
}

/// Samples that come over a network, where many concurrent requests are faster.
pub trait RemoteReads {
    /// Starts to prefetch a sample; at most `limit` of its bytes are buffered. The returned closure behaves as [`Source::read`]
    /// does. Dropping it cancels the request. `None` if this sample needs no prefetch.
    fn expect(&self, index: u64, limit: u64) -> Option<Expected>;
}

/// Reads of the first bytes of a sample, to inspect the headers of many samples cheaply.
pub trait Heads {
    /// Reads up to `most` bytes from the start of a sample into `page`, and returns the length of the whole sample, which is at
    /// most `limit`.
    ///
    /// # Errors
    ///
    /// Those of [`Source::read`].
    fn read_head(
        &self,
        index: u64,
        page: &mut HostPage,
        most: usize,
        limit: u64,
    ) -> Result<u64, DataError>;
}

/// Facts about the samples that are known before reading them; the plan and the sample order use them.
pub trait Hints {
    /// Size of the largest sample in bytes: exact where that is cheap, otherwise from a fixed selection of samples. `None`, the
    /// default, if unknown: the plan then uses the largest of the samples it inspects.
    fn largest_bytes(&self) -> Option<u64> {
        None
    }

    /// Samples with the most pixels according to a table of the source: at most `most` pairs of index and approximate pixel
    /// count, largest first. Empty, the default, if there is no such table.
    ///
    /// Plans add these to the samples whose headers they read, so a wrong table does no harm.
    fn largest_samples(&self, most: usize) -> Vec<(u64, u64)> {
        let _ = most;
        Vec::new()
    }

    /// Host memory of the source itself, in bytes. Default 0.
    fn memory_bytes(&self) -> u64 {
        0
    }

    /// Boundaries of files that hold many samples in sequence: the index after the last sample of each file, in sample order; the
    /// last entry is [`Source::len`]. Empty, the default, if there are no such files. `loader.shuffle_window` requires it.
    fn file_ends(&self) -> Vec<u64> {
        Vec::new()
    }

    /// Paths or URLs of the files that hold many samples each. Row indexes of their JPEGs may be stored beside them
    /// ([`ROWS_ENDING`](crate::decode::ROWS_ENDING)). Empty, the default, if there are no such files.
    fn files(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    /// Why reading the samples out of order is slow, with a remedy; `None`, the default, if it is not.
    fn slow_shuffled(&self) -> Option<String> {
        None
    }

    /// Whether labels are known without reading samples, so that all of them can be checked when the source is opened. Default true.
    fn knows_labels(&self) -> bool {
        true
    }

    /// Storage handles through which the source reads files. A loader includes their requests in its counts and shows their
    /// warnings. Empty, the default, if the source uses no [`Storage`].
    fn storages(&self) -> Vec<Storage> {
        Vec::new()
    }
}

/// Versions, duplicates and parts of samples: whether bytes changed over time, which indices share the same bytes, and which
/// source a combination took a sample from.
pub trait Identity {
    /// Source that a combination takes a sample from, and the sample's index there. `None`, the default, if the source is no
    /// combination.
    fn part(&self, index: u64) -> Option<(&dyn Source, u64)> {
        let _ = index;
        None
    }

    /// Path of the file that is a sample, also if it is not Unicode. `None`, the default, if samples are no files of their own.
    fn path(&self, index: u64) -> Option<PathBuf> {
        let _ = index;
        None
    }

    /// Name of a sample in its file, such as a member of an archive, which is read from there. `None`, the default, if samples
    /// have no names, or reading one would take a request or decompression.
    fn name(&self, index: u64) -> Option<String> {
        let _ = index;
        None
    }

    /// Version tag that changes whenever the bytes of a sample change, obtained without reading them: length, modification
    /// time, inode and time of the last change of its file, or the tag of its object. `None`, the default, if only the bytes
    /// can tell. `feedwater pack` checks it before it resumes.
    fn version(&self, index: u64) -> Option<String> {
        let _ = index;
        None
    }

    /// Fingerprint of a combination: what it takes from which source. `None`, the default, if the source is no combination.
    fn fingerprint(&self) -> Option<Fingerprint> {
        None
    }

    /// Number shared by all indices with the same bytes, below [`Self::originals`]: caches store such bytes once. Default: the
    /// index.
    fn original(&self, index: u64) -> u64 {
        index
    }

    /// Upper bound (exclusive) of [`Self::original`]; `None`, the default, for [`Source::len`].
    fn originals(&self) -> Option<u64> {
        None
    }
}

/// Skipped items and warnings of a source, for people.
pub trait Notes {
    /// Items that the source skipped, counted by reason and kind, such as the keys of an archive that have no image. Does not
    /// count samples excluded by `filter` or `subset`. Default empty.
    fn excluded(&self) -> Vec<Exclusion> {
        Vec::new()
    }

    /// Likely mistakes in the named paths, with a remedy. Default empty.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Abilities of a source, with a default for each missing one.
impl dyn Source + '_ {
    /// Collects all that is known about a sample without reading it.
    pub fn sample(&self, index: u64) -> Sample {
        Sample { index, location: self.named_location(index), label: own_label(self, index) }
    }

    /// [`Annotations::objects`]; empty without that ability.
    pub fn objects(&self, index: u64) -> Vec<Object> {
        self.annotations().map_or(Vec::new(), |it| it.objects(index))
    }

    /// [`Annotations::canvas`]; without that ability, a canvas that fits every image.
    pub fn canvas(&self, index: u64) -> Canvas {
        self.annotations().map_or(Canvas::default(), |it| it.canvas(index))
    }

    /// Whether samples come over a network.
    pub fn is_remote(&self) -> bool {
        self.remote().is_some()
    }

    /// [`RemoteReads::expect`]; `None` without that ability.
    pub fn expect(&self, index: u64, limit: u64) -> Option<Expected> {
        self.remote()?.expect(index, limit)
    }

    /// Whether `read_head` reads less than the whole sample.
    pub fn has_heads(&self) -> bool {
        self.heads().is_some()
    }

    /// [`Heads::read_head`]; without that ability, reads the whole sample.
    ///
    /// # Errors
    ///
    /// Those of [`Source::read`].
    pub fn read_head(
        &self,
        index: u64,
        page: &mut HostPage,
        most: usize,
        limit: u64,
    ) -> Result<u64, DataError> {
        match self.heads() {
            Some(heads) => heads.read_head(index, page, most, limit),
            None => self.read(index, page, limit).map(|()| page.bytes().len() as u64),
        }
    }

    /// [`Identity::fingerprint`]; `None` without that ability.
    pub fn fingerprint(&self) -> Option<Fingerprint> {
        self.identity()?.fingerprint()
    }

    /// [`Hints::largest_bytes`]; `None` without that ability.
    pub fn largest_bytes(&self) -> Option<u64> {
        self.hints()?.largest_bytes()
    }

    /// [`Hints::largest_samples`]; empty without that ability.
    pub fn largest_samples(&self, most: usize) -> Vec<(u64, u64)> {
        self.hints().map_or(Vec::new(), |it| it.largest_samples(most))
    }

    /// [`Hints::memory_bytes`]; 0 without that ability.
    pub fn memory_bytes(&self) -> u64 {
        self.hints().map_or(0, |it| it.memory_bytes())
    }

    /// [`Hints::file_ends`]; empty without that ability.
    pub fn file_ends(&self) -> Vec<u64> {
        self.hints().map_or(Vec::new(), |it| it.file_ends())
    }

    /// [`Hints::files`]; empty without that ability.
    pub fn files(&self) -> Vec<PathBuf> {
        self.hints().map_or(Vec::new(), |it| it.files())
    }

    /// [`Hints::slow_shuffled`]; `None` without that ability.
    pub fn slow_shuffled(&self) -> Option<String> {
        self.hints()?.slow_shuffled()
    }

    /// [`Hints::knows_labels`]; true without that ability.
    pub fn knows_labels(&self) -> bool {
        self.hints().is_none_or(|it| it.knows_labels())
    }

    /// [`Hints::storages`]; empty without that ability.
    pub fn storages(&self) -> Vec<Storage> {
        self.hints().map_or(Vec::new(), |it| it.storages())
    }

    /// Source that is no combination and wraps no other source, from which a sample is, and its index there.
    pub fn part(&self, index: u64) -> (&dyn Source, u64) {
        match (self.identity().and_then(|it| it.part(index)), self.inner()) {
            (Some((part, index)), _) => part.part(index),
            (None, Some(inner)) => inner.part(index),
            (None, None) => (self, index),
        }
    }

    /// [`Source::location`] of a sample for people, followed by its [name](Identity::name) in the file if it has one.
    pub fn named_location(&self, index: u64) -> String {
        let (part, place) = self.part(index);
        let location = self.location(index);
        match part.identity().and_then(|it| it.name(place)) {
            Some(name) => format!("{location} {name}"),
            None => location,
        }
    }

    /// [`Identity::version`]; `None` without that ability.
    pub fn version(&self, index: u64) -> Option<String> {
        self.identity()?.version(index)
    }

    /// [`Identity::original`]; the index itself without that ability.
    pub fn original(&self, index: u64) -> u64 {
        self.identity().map_or(index, |it| it.original(index))
    }

    /// [`Identity::originals`], or the number of samples without that ability.
    pub fn originals(&self) -> u64 {
        self.identity().and_then(|it| it.originals()).unwrap_or_else(|| self.len())
    }

    /// [`Notes::excluded`]; empty without that ability.
    pub fn excluded(&self) -> Vec<Exclusion> {
        self.notes().map_or(Vec::new(), |it| it.excluded())
    }

    /// [`Notes::warnings`], and likely mistakes in the names of the [classes](Source::classes).
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = self.notes().map_or(Vec::new(), |it| it.warnings());
        let of_classes = class_table::warnings(self.classes());
        // A combination repeats the warnings of its parts.
        let new: Vec<String> = of_classes.into_iter().filter(|it| !warnings.contains(it)).collect();
        warnings.extend(new);
        warnings
    }
}
