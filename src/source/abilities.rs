//! Optional abilities of sources. Each ability is a trait. [`Source`] returns a trait object for
//! each ability that it has.

use std::path::PathBuf;

use super::{Exclusion, Expected, Fingerprint, HostPage, Sample, Source, class_table, own_label};
use crate::annotation::{Canvas, Object};
use crate::error::{DataError, Result};
use crate::field::{Field, FieldValue};
use crate::storage::Storage;

/// Annotated objects in the images: boxes, categories, masks.
pub trait Annotations {
    /// Returns the objects in an image, in the order of its annotations.
    fn objects(&self, index: u64) -> Vec<Object>;

    /// Returns the image size to which the coordinates of [`objects`](Self::objects) refer. If the
    /// stored image has another size, the sample is an error.
    fn canvas(&self, index: u64) -> Canvas {
        let _ = index;
        Canvas::default()
    }
}

/// Fields of the samples besides image and label, such as captions and scores.
pub trait Fields {
    /// Returns the fields that samples can have. A sample may lack some of them.
    fn schema(&self) -> Vec<Field>;

    /// Whether a sample may have fields that [`schema`](Self::schema) does not list, because it
    /// lists those of a few samples. Default false.
    fn is_open(&self) -> bool {
        false
    }

    /// Whether some part has this field, if this source is a combination. Otherwise whether the
    /// schema lists it, which is the default.
    fn some_part_has(&self, name: &str) -> bool {
        self.schema().iter().any(|field| field.name == name)
    }

    /// Returns what was not found if this sample lacks the value of a field, such as the path of a
    /// file, for error messages. `None`, the default, if there is nothing to add.
    fn not_found(&self, index: u64, name: &str) -> Option<String> {
        let _ = (index, name);
        None
    }

    /// Returns the description of a part that lacks this field, if this source is a combination.
    /// `None`, the default, if all parts have it, or if this source is no combination.
    fn part_without(&self, name: &str) -> Option<String> {
        let _ = name;
        None
    }

    /// Whether the integers of a field are class numbers. A combination converts them to its own
    /// class numbers, like labels. Default false.
    fn has_classes(&self, name: &str) -> bool {
        let _ = name;
        false
    }

    /// Returns the fields of all samples, also if [`schema`](Self::schema) lists those of a few
    /// samples, and those of all parts of a combination. This may read the whole source. The
    /// default is the schema.
    ///
    /// # Errors
    ///
    /// [`Error::Config`](crate::Error::Config) if the fields of the source cannot be read.
    fn complete_schema(&self) -> Result<Vec<Field>> {
        Ok(self.schema())
    }

    /// Returns the name that a copy of the field's files should have after the key of a sample,
    /// with an extension, such as `seg.png`. `None`, the default, if the values are not files.
    fn file_name(&self, name: &str) -> Option<String> {
        let _ = name;
        None
    }

    /// Whether the field may be the image of the sample itself. Default false.
    fn may_be_image(&self, name: &str) -> bool {
        let _ = name;
        false
    }

    /// Whether [`Identity::version`] of a sample changes if its fields change. Default false.
    fn has_versions(&self) -> bool {
        false
    }

    /// Returns a number below [`field_originals`](Self::field_originals) that indices with equal
    /// fields share, so that caches store these fields once. Default: the index.
    fn field_original(&self, index: u64) -> u64 {
        index
    }

    /// Returns the exclusive upper bound of `field_original`. `None`: [`Source::len`]. Default
    /// `None`.
    fn field_originals(&self) -> Option<u64> {
        None
    }

    /// Reads what all samples need for these fields, before a loader computes its memory. The
    /// default does nothing. [`read_fields`](Self::read_fields) must work without this call.
    ///
    /// # Errors
    ///
    /// Errors of reading files.
    fn prepare(&self, wanted: &[&str]) -> Result<()> {
        let _ = wanted;
        Ok(())
    }

    /// Reads fields of a sample. Calls `put` for each field that the sample has, in any order, with
    /// its position in `wanted` and its value. A name in `wanted` that is not in the schema is
    /// ignored. Several threads may call this method at the same time.
    ///
    /// `buffer` is memory for the text or the bytes of the fields, which later calls reuse. They
    /// may have at most `limit` bytes.
    ///
    /// # Errors
    /// Errors of `put`, and a [`DataError`] if the fields cannot be read.
    fn read_fields(
        &self,
        index: u64,
        wanted: &[&str],
        buffer: &mut Vec<u8>,
        limit: u64,
        put: &mut PutField<'_>,
    ) -> Result<(), DataError>;
}

/// Receives the values of fields: the position of the field, and its value.
pub type PutField<'a> = dyn FnMut(usize, FieldValue<'_>) -> Result<(), DataError> + 'a;

/// Prefetching of samples that are read over a network, where many concurrent requests are faster
/// than single ones.
pub trait RemoteReads {
    /// Starts to prefetch a sample and buffers at most `limit` bytes. The returned closure behaves
    /// like [`Source::read`]. Dropping the closure cancels the request. Returns `None` if the
    /// sample need not be prefetched.
    fn expect(&self, index: u64, limit: u64) -> Option<Expected>;

    /// Like [`expect`](Self::expect), and also prefetches what [`Fields::read_fields`] needs. While
    /// the returned closure exists, `read_fields` of this sample uses the prefetched bytes. If
    /// `image` is false, the sample itself is not prefetched, because a cache holds it. The default
    /// prefetches only the sample.
    fn expect_with_fields(&self, index: u64, image: bool, limit: u64) -> Option<Expected> {
        if image { self.expect(index, limit) } else { None }
    }

    /// Returns the size in bytes of the largest sample with its fields, as
    /// [`expect_with_fields`](Self::expect_with_fields) prefetches them. `None`, the default,
    /// stands for [`Hints::largest_bytes`].
    fn largest_with_fields(&self) -> Option<u64> {
        None
    }
}

/// Ability to read only the first bytes of samples, so that the headers of many samples can be
/// inspected cheaply.
pub trait Heads {
    /// Reads up to `most` bytes from the start of a sample into `page`. Returns the length of the
    /// whole sample, which is at most `limit`.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Source::read`].
    fn read_head(
        &self,
        index: u64,
        page: &mut HostPage,
        most: usize,
        limit: u64,
    ) -> Result<u64, DataError>;
}

/// Facts about the samples that are known without reading them. The plan and the sample order use
/// them.
pub trait Hints {
    /// Returns the size of the largest sample in bytes. If the exact size is expensive to
    /// determine, returns the size of the largest sample in a fixed selection of samples. With
    /// `None`, the default, the plan uses the largest sample that it inspects.
    fn largest_bytes(&self) -> Option<u64> {
        None
    }

    /// Returns the samples with the most pixels, for sources that store a table of image sizes. The
    /// result has at most `most` pairs of index and approximate pixel count, largest first. It is
    /// empty, the default, if the source has no table of image sizes.
    ///
    /// The plan reads the exact sizes from the headers of the returned samples, so wrong pixel
    /// counts in the table do no harm.
    fn largest_samples(&self, most: usize) -> Vec<(u64, u64)> {
        let _ = most;
        Vec::new()
    }

    /// Returns the host memory that the source itself uses, in bytes. Default 0.
    fn memory_bytes(&self) -> u64 {
        0
    }

    /// Returns the boundaries of files that hold many consecutive samples: for each file, the index
    /// after its last sample, in ascending order. The last entry is [`Source::len`]. Empty, the
    /// default, if there are no such files. `loader.shuffle_window` requires these boundaries.
    fn file_ends(&self) -> Vec<u64> {
        Vec::new()
    }

    /// Returns the paths or URLs of the files that hold many samples each. Row indexes of JPEGs may
    /// be stored beside them ([`ROWS_ENDING`](crate::decode::ROWS_ENDING)). Empty, the default, if
    /// there are no such files.
    fn files(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    /// Explains why reading the samples out of order is slow, with a remedy. `None`, the default,
    /// if it is not slow.
    fn slow_shuffled(&self) -> Option<String> {
        None
    }

    /// Whether labels are known without reading samples. If so, all labels are checked when the
    /// source is opened. Default true.
    fn knows_labels(&self) -> bool {
        true
    }

    /// Returns the storage handles through which the source reads files. A loader counts their
    /// requests and shows their warnings. Empty, the default, if the source uses no [`Storage`].
    fn storages(&self) -> Vec<Storage> {
        Vec::new()
    }
}

/// Identity of samples: whether their bytes have changed, which indices have the same bytes, and
/// which source a combination takes a sample from.
pub trait Identity {
    /// Returns the source that a combination takes a sample from, and the index of the sample in
    /// that source. `None`, the default, if this source is no combination.
    fn part(&self, index: u64) -> Option<(&dyn Source, u64)> {
        let _ = index;
        None
    }

    /// Returns the path of the file that contains only this sample, even if the path is not
    /// Unicode. `None`, the default, if samples have no files of their own.
    fn path(&self, index: u64) -> Option<PathBuf> {
        let _ = index;
        None
    }

    /// Returns the name of a sample within its file, such as the name of an archive member. The
    /// name is read from the file. `None`, the default, if samples have no names, or if reading a
    /// name would require a request or decompression.
    fn name(&self, index: u64) -> Option<String> {
        let _ = index;
        None
    }

    /// Returns the key of a sample that a program chose when it named the sample: the name of its
    /// file without folder and last extension, or the `__key__` of a WebDataset sample, which is
    /// its name with folders up to the first dot of the last part. A
    /// [`Joined`](crate::source::Joined) source compares it. `None`, the default, if samples have
    /// no names, or if the name is not UTF-8.
    ///
    /// # Errors
    ///
    /// A [`DataError`] if the key must be read from a file, and reading fails.
    fn key(&self, index: u64) -> Result<Option<String>, DataError> {
        let _ = index;
        Ok(None)
    }

    /// Returns a version tag that changes whenever the bytes of the sample change. It is obtained
    /// without reading these bytes. For a file it consists of length, modification time, inode and
    /// time of last change; for an object in a store it is the object's tag. `None`, the default,
    /// if there is no such tag. `feedwater pack` checks the tags before it resumes.
    fn version(&self, index: u64) -> Option<String> {
        let _ = index;
        None
    }

    /// Returns the fingerprint of a combination, which is a checksum of the samples that it takes
    /// from its sources, and of their order. `None`, the default, if this source is no combination.
    fn fingerprint(&self) -> Option<Fingerprint> {
        None
    }

    /// Returns a number below [`Self::originals`] that all indices with the same bytes share, so
    /// that caches store these bytes once. Default: the index.
    fn original(&self, index: u64) -> u64 {
        index
    }

    /// Returns the exclusive upper bound of [`Self::original`]. `None`, the default, stands for
    /// [`Source::len`].
    fn originals(&self) -> Option<u64> {
        None
    }
}

/// Skipped items and warnings of a source, to be shown to users.
pub trait Notes {
    /// Returns the items that the source skipped, counted by reason and kind. An example of an item
    /// is a key in an archive that has no image file. Samples that `filter` or `subset` exclude are
    /// not counted. Default empty.
    fn excluded(&self) -> Vec<Exclusion> {
        Vec::new()
    }

    /// Returns warnings about likely mistakes in the paths of the source, with remedies. Default
    /// empty.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Methods for all abilities, with a default result for missing abilities.
impl dyn Source + '_ {
    /// Returns all facts about a sample that are known without reading it.
    pub fn sample(&self, index: u64) -> Sample {
        Sample { index, location: self.named_location(index), label: own_label(self, index) }
    }

    /// Returns [`Annotations::objects`], or no objects if the source has no annotations.
    pub fn objects(&self, index: u64) -> Vec<Object> {
        self.annotations().map_or(Vec::new(), |it| it.objects(index))
    }

    /// Returns [`Annotations::canvas`], or a canvas that fits every image if the source has no
    /// annotations.
    pub fn canvas(&self, index: u64) -> Canvas {
        self.annotations().map_or(Canvas::default(), |it| it.canvas(index))
    }

    /// Same as [`Fields::schema`]; empty without this ability.
    pub fn schema(&self) -> Vec<Field> {
        self.fields().map_or(Vec::new(), |it| it.schema())
    }

    /// Whether samples are read over a network.
    pub fn is_remote(&self) -> bool {
        self.remote().is_some()
    }

    /// Same as [`RemoteReads::expect`]; `None` without this ability.
    pub fn expect(&self, index: u64, limit: u64) -> Option<Expected> {
        self.remote()?.expect(index, limit)
    }

    /// Same as [`RemoteReads::expect_with_fields`]; `None` without this ability.
    pub fn expect_with_fields(&self, index: u64, image: bool, limit: u64) -> Option<Expected> {
        self.remote()?.expect_with_fields(index, image, limit)
    }

    /// Same as [`RemoteReads::largest_with_fields`]; `None` without this ability.
    pub fn largest_with_fields(&self) -> Option<u64> {
        self.remote()?.largest_with_fields()
    }

    /// Whether `read_head` can read less than the whole sample.
    pub fn has_heads(&self) -> bool {
        self.heads().is_some()
    }

    /// Same as [`Heads::read_head`]. Without this ability, it reads the whole sample.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Source::read`].
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

    /// Same as [`Identity::fingerprint`]; `None` without this ability.
    pub fn fingerprint(&self) -> Option<Fingerprint> {
        self.identity()?.fingerprint()
    }

    /// Same as [`Hints::largest_bytes`]; `None` without this ability.
    pub fn largest_bytes(&self) -> Option<u64> {
        self.hints()?.largest_bytes()
    }

    /// Same as [`Hints::largest_samples`]; empty without this ability.
    pub fn largest_samples(&self, most: usize) -> Vec<(u64, u64)> {
        self.hints().map_or(Vec::new(), |it| it.largest_samples(most))
    }

    /// Same as [`Hints::memory_bytes`]; 0 without this ability.
    pub fn memory_bytes(&self) -> u64 {
        self.hints().map_or(0, |it| it.memory_bytes())
    }

    /// Same as [`Hints::file_ends`]; empty without this ability.
    pub fn file_ends(&self) -> Vec<u64> {
        self.hints().map_or(Vec::new(), |it| it.file_ends())
    }

    /// Same as [`Hints::files`]; empty without this ability.
    pub fn files(&self) -> Vec<PathBuf> {
        self.hints().map_or(Vec::new(), |it| it.files())
    }

    /// Same as [`Hints::slow_shuffled`]; `None` without this ability.
    pub fn slow_shuffled(&self) -> Option<String> {
        self.hints()?.slow_shuffled()
    }

    /// Same as [`Hints::knows_labels`]; true without this ability.
    pub fn knows_labels(&self) -> bool {
        self.hints().is_none_or(|it| it.knows_labels())
    }

    /// Same as [`Hints::storages`]; empty without this ability.
    pub fn storages(&self) -> Vec<Storage> {
        self.hints().map_or(Vec::new(), |it| it.storages())
    }

    /// Returns the source that a sample finally comes from, and the sample's index there. This
    /// source is no combination and wraps no other source.
    pub fn part(&self, index: u64) -> (&dyn Source, u64) {
        match (self.identity().and_then(|it| it.part(index)), self.inner()) {
            (Some((part, index)), _) => part.part(index),
            (None, Some(inner)) => inner.part(index),
            (None, None) => (self, index),
        }
    }

    /// Returns the [`Source::location`] of a sample for messages. If the sample has a
    /// [name](Identity::name) within its file, the name follows.
    pub fn named_location(&self, index: u64) -> String {
        let (part, place) = self.part(index);
        let location = self.location(index);
        match part.identity().and_then(|it| it.name(place)) {
            Some(name) => format!("{location} {name}"),
            None => location,
        }
    }

    /// Same as [`Identity::key`], also in its errors; `None` without this ability.
    pub fn key(&self, index: u64) -> Result<Option<String>, DataError> {
        self.identity().map_or(Ok(None), |it| it.key(index))
    }

    /// Same as [`Identity::version`]; `None` without this ability.
    pub fn version(&self, index: u64) -> Option<String> {
        self.identity()?.version(index)
    }

    /// Same as [`Identity::original`]; the index itself without this ability.
    pub fn original(&self, index: u64) -> u64 {
        self.identity().map_or(index, |it| it.original(index))
    }

    /// Same as [`Identity::originals`]; the number of samples without this ability.
    pub fn originals(&self) -> u64 {
        self.identity().and_then(|it| it.originals()).unwrap_or_else(|| self.len())
    }

    /// Same as [`Fields::field_original`]; the index itself without this ability.
    pub fn field_original(&self, index: u64) -> u64 {
        self.fields().map_or(index, |it| it.field_original(index))
    }

    /// Same as [`Fields::field_originals`]; the number of samples without this ability.
    pub fn field_originals(&self) -> u64 {
        self.fields().and_then(|it| it.field_originals()).unwrap_or_else(|| self.len())
    }

    /// Same as [`Notes::excluded`]; empty without this ability.
    pub fn excluded(&self) -> Vec<Exclusion> {
        self.notes().map_or(Vec::new(), |it| it.excluded())
    }

    /// Returns [`Notes::warnings`], and likely mistakes in the names of the
    /// [classes](Source::classes).
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = self.notes().map_or(Vec::new(), |it| it.warnings());
        let of_classes = class_table::warnings(self.classes());
        // Those of a combination already contain the warnings about the classes of its parts.
        let new: Vec<String> = of_classes.into_iter().filter(|it| !warnings.contains(it)).collect();
        warnings.extend(new);
        warnings
    }
}
