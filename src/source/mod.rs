//! Sources of samples.
//!
//! To add a source, add a file here whose type implements [`Source`] and [`Configured`], and one
//! line to `sources!`.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer};

use crate::error::{DataError, Reason, Result};
use crate::footprint::counted;

pub use bad_shards::BadShards;
pub(crate) use class_table::ClassNames;
pub use class_table::ClassTable;
#[cfg(feature = "coco")]
pub use coco::Category;
pub use combine::{Classed, Concat, Joined, Mixture, Repeat, Subset};
pub(crate) use combine::{PartSettings, Selection};
pub(crate) use configured::{Configured, HEAD_BYTES};
pub use detect::detect;
pub(crate) use exclusion::Exclusions;
pub use exclusion::{Exclusion, ExclusionReason};
pub(crate) use fingerprint::names_checksum;
pub use fingerprint::{Fingerprint, Shares};
pub(crate) use list::NO_LABEL_COLUMN;
pub(crate) use list_of_sources::{DISABLED, KEYS, read};
pub use memory::Memory;

pub use crate::field::{Field, FieldKind, FieldValue, Flat};

pub(crate) use abilities::{
    Annotations, Fields, Heads, Hints, Identity, Notes, PutField, RemoteReads,
};
pub(crate) use combine::{CLASS_TO_INDEX, COMBINATIONS};
pub(crate) use own::OWN;
pub(crate) use page::{Expected, HostPage, Page, Sealed, check_size};
pub(crate) use settings::SourceSettings;

mod abilities;
mod bad_shards;
pub(crate) mod class_table;
pub(crate) mod combine;
pub(crate) mod configured;
pub mod custom;
mod detect;
pub(crate) mod exclusion;
mod file;
mod file_value;
mod fingerprint;
mod label;
mod largest;
mod memory;
mod own;
mod page;
pub(crate) mod records;
pub mod settings;
mod side_files;

/// Declares the sources that a pipeline file can name. Keys and settings are derived from this
/// list. A source may require a feature of this crate.
macro_rules! sources {
    ($($module:ident :: $type:ident $(if $feature:literal)?),+ $(,)?) => {
        $(
            $(#[cfg(feature = $feature)])?
            mod $module;
            $(#[cfg(feature = $feature)])?
            pub use $module::$type;
        )+

        pub(crate) mod list_of_sources {
            use crate::source::*;

            /// Keys of all sources in `[source]`.
            pub const KEYS: &[&str] =
                &[$($(#[cfg(feature = $feature)])? <$type as Configured>::KEY),+];

            /// Cargo features of sources that this build disables. Each is also the key of its
            /// source.
            pub const DISABLED: &[&str] = &[$($(#[cfg(not(feature = $feature))] $feature,)?)+];

            /// Parses the settings of the source `key`. Relative paths are resolved against `base`,
            /// the folder of the pipeline file. Returns `None` for an unknown key.
            pub fn read<'de, D: Deserializer<'de>>(
                key: &str,
                paths: Vec<PathBuf>,
                settings: D,
                base: &Path,
            ) -> Option<Result<SourceSettings, D::Error>> {
                match key {
                    $($(#[cfg(feature = $feature)])? <$type as Configured>::KEY => Some(
                        <$type as Configured>::Settings::deserialize(settings)
                            .map(|mut settings| {
                                <$type as Configured>::relative_to(&mut settings, base);
                                SourceSettings::new::<$type>(paths, settings)
                            }),
                    ),)+
                    _ => None,
                }
            }
        }

        /// Returns the source type that recognises this file, with default settings. `folder`
        /// states whether the file was found in a folder.
        fn recognise(path: &Path, name: &str, head: &[u8], folder: bool) -> Option<SourceSettings> {
            $($(#[cfg(feature = $feature)])? if (<$type as Configured>::FOLDERS || !folder)
                && <$type as Configured>::recognises(name, head)
            {
                return Some(SourceSettings::new::<$type>(vec![path.into()], Default::default()));
            })+
            None
        }
    };
}

sources! {
    beton::Beton if "beton",
    coco::Coco if "coco",
    directory::Directory,
    list::FileList,
    lmdb::Lmdb if "lmdb",
    npy::Npy if "npy",
    parquet::Parquet if "parquet",
    recordio::RecordIo if "recordio",
    tfrecord::TfRecord if "tfrecord",
    webdataset::WebDataset,
}

/// Indexed set of encoded images with labels. Indices and order never change.
///
/// Four methods are required. Optional abilities are separate traits. For example, a source with
/// bounding boxes implements [`Annotations`] and returns `Some(self)` from
/// [`annotations`](Self::annotations).
///
/// If a source wraps another source with the same samples at the same indices, it returns that
/// source from [`inner`](Self::inner) and inherits all its abilities. If the indices differ, use a
/// [`Combined`](custom::Combined) with an [`Arrangement`](custom::Arrangement) instead.
pub trait Source: Send + Sync {
    /// Number of samples.
    fn len(&self) -> u64;

    /// Label of a sample: its class number, or -1 if the sample has no class. `index` is below
    /// [`Self::len`].
    fn label(&self, index: u64) -> i64;

    /// Path or another name of a sample, for messages.
    fn location(&self, index: u64) -> String;

    /// Reads the encoded bytes of a sample into `page`, at most `limit` bytes. Several threads may
    /// call this method at the same time. An empty sample is not an error here, because the header
    /// parser reports it.
    fn read(&self, index: u64, page: &mut dyn Page, limit: u64) -> Result<(), DataError>;

    /// Wrapped source that has the same samples at the same indices. Default `None`.
    ///
    /// The wrapped source provides the defaults of all methods below. If [`read`](Self::read)
    /// returns other bytes than the wrapped source, [`remote`](Self::remote) and
    /// [`heads`](Self::heads) must return the same bytes as `read`, or `None`.
    fn inner(&self) -> Option<&dyn Source> {
        None
    }

    /// Whether the source has no samples.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// One-line description for users: kind of source and number of samples.
    fn describe(&self) -> String {
        self.inner().map_or_else(|| counted(self.len(), "sample"), |it| it.describe())
    }

    /// Names of the classes in label order; empty if the source has none.
    fn classes(&self) -> &[String] {
        self.inner().map_or(&[], |it| it.classes())
    }

    /// Annotated objects, if the source has annotations.
    fn annotations(&self) -> Option<&dyn Annotations> {
        self.inner()?.annotations()
    }

    /// Fields of the samples besides image and label, if the source has any.
    fn fields(&self) -> Option<&dyn Fields> {
        self.inner()?.fields()
    }

    /// Prefetching, if samples are read over a network.
    fn remote(&self) -> Option<&dyn RemoteReads> {
        self.inner()?.remote()
    }

    /// Reads of the first bytes of samples, if the source supports them.
    fn heads(&self) -> Option<&dyn Heads> {
        self.inner()?.heads()
    }

    /// Facts about the samples that are known without reading them.
    fn hints(&self) -> Option<&dyn Hints> {
        self.inner()?.hints()
    }

    /// Versions and duplicates of samples, if the source knows them.
    fn identity(&self) -> Option<&dyn Identity> {
        self.inner()?.identity()
    }

    /// Skipped items and warnings for users.
    fn notes(&self) -> Option<&dyn Notes> {
        self.inner()?.notes()
    }
}

/// One sample of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sample {
    /// Index in the source, from 0.
    pub index: u64,
    /// Path, URL or other name.
    pub location: String,
    /// Class number; `None` if the sample has no class.
    pub label: Option<i64>,
}

/// Label of a sample that has no class, in [`Source::label`] and
/// [`Batch::labels`](crate::loader::Batch::labels).
pub const NO_LABEL: i64 = -1;

/// Name of the field with what another source reads as the image, in a source without images that
/// was opened for its fields: a file of a folder, a value of LMDB, the contents of a record, an
/// element of an array.
#[cfg_attr(
    not(feature = "all-sources"),
    allow(dead_code, reason = "only some sources have this field")
)]
pub(crate) const VALUE: &str = "value";

/// Error for the image of a sample of a source that was opened for its fields.
#[cfg_attr(not(feature = "all-sources"), allow(dead_code, reason = "only some sources need it"))]
pub(crate) fn without_images() -> DataError {
    let problem = "the source was opened for its fields, as the second source of a join, so its \
                   images cannot be read";
    DataError::new(Reason::Unsupported, problem)
}

/// Returns the label of a sample, if it has one.
pub(crate) fn own_label(source: &dyn Source, index: u64) -> Option<i64> {
    Some(source.label(index)).filter(|&label| label != NO_LABEL)
}
