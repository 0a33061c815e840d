//! Sources of samples.
//!
//! To add a source, write a file here whose type implements [`Source`] and [`Configured`], and add one line to `sources!`.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer};

use crate::error::{DataError, Result};
use crate::footprint::counted;

pub use bad_shards::BadShards;
pub(crate) use class_table::ClassNames;
pub use class_table::ClassTable;
#[cfg(feature = "coco")]
pub use coco::Category;
pub use combine::{Classed, Concat, Mixture, Repeat, Subset};
pub(crate) use combine::{PartSettings, Selection};
pub(crate) use configured::{Configured, HEAD_BYTES};
pub use detect::detect;
pub(crate) use exclusion::Exclusions;
pub use exclusion::{Exclusion, ExclusionReason};
pub(crate) use fingerprint::names_checksum;
pub use fingerprint::{Fingerprint, Shares};
pub(crate) use list_of_sources::{DISABLED, KEYS, read};
pub use memory::Memory;

pub(crate) use abilities::{Annotations, Heads, Hints, Identity, Notes, RemoteReads};
pub(crate) use combine::{CLASS_TO_INDEX, JOINED};
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
mod fingerprint;
mod label;
mod largest;
mod memory;
mod own;
mod page;
pub(crate) mod records;
pub mod settings;

/// Declares the sources that a pipeline file can name; keys and settings are derived from this list. A source may require a
/// feature of this crate.
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

            /// Keys of `[source]`, one per source.
            pub const KEYS: &[&str] =
                &[$($(#[cfg(feature = $feature)])? <$type as Configured>::KEY),+];

            /// Source features disabled in this build; each is also the key of its source.
            pub const DISABLED: &[&str] = &[$($(#[cfg(not(feature = $feature))] $feature,)?)+];

            /// Reads the settings next to the key of a source, in a pipeline file of the folder `base`. Returns `None` for an unknown
            /// key.
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

        /// Returns the source that recognises this file, with default settings. `folder`: whether the file is part of a folder.
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

/// Indexed set of encoded images, each with a label. Indices and order never change.
///
/// Four methods are required. Optional abilities are separate traits. For example, a source with bounding boxes implements
/// [`Annotations`] and returns `Some(self)` from [`annotations`](Self::annotations).
///
/// A source that wraps another one, with the same samples at the same indices, returns it from [`inner`](Self::inner) and
/// inherits all its abilities. A source whose samples have other indices than those of the sources it wraps is a [`Combined`](custom::Combined)
/// with an [`Arrangement`](custom::Arrangement).
pub trait Source: Send + Sync {
    /// Number of samples.
    fn len(&self) -> u64;

    /// Label of a sample: its class number, or -1 if it has none. `index` is below [`Self::len`].
    fn label(&self, index: u64) -> i64;

    /// Path of a sample, or another name for it in messages.
    fn location(&self, index: u64) -> String;

    /// Reads the encoded bytes of a sample into `page`, at most `limit` bytes. Many threads may call it at once. An empty sample
    /// is not an error here; the header parser reports it.
    fn read(&self, index: u64, page: &mut dyn Page, limit: u64) -> Result<(), DataError>;

    /// Wrapped source with the same samples at the same indices; `None` by default.
    ///
    /// It is the default for all methods below. If [`read`](Self::read) returns other bytes than that of the inner source,
    /// [`remote`](Self::remote) and [`heads`](Self::heads) must return the same bytes as `read`, or `None`.
    fn inner(&self) -> Option<&dyn Source> {
        None
    }

    /// Whether the source has no samples.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// One-line description for people: kind of source and number of samples.
    fn describe(&self) -> String {
        self.inner().map_or_else(|| counted(self.len(), "sample"), |it| it.describe())
    }

    /// Names of the classes in label order; empty if there are none.
    fn classes(&self) -> &[String] {
        self.inner().map_or(&[], |it| it.classes())
    }

    /// Objects in the images, if the source has annotations.
    fn annotations(&self) -> Option<&dyn Annotations> {
        self.inner()?.annotations()
    }

    /// Prefetching, if samples come over a network.
    fn remote(&self) -> Option<&dyn RemoteReads> {
        self.inner()?.remote()
    }

    /// Reads of only the first bytes of samples, if supported.
    fn heads(&self) -> Option<&dyn Heads> {
        self.inner()?.heads()
    }

    /// Facts about the samples that are known before reading them.
    fn hints(&self) -> Option<&dyn Hints> {
        self.inner()?.hints()
    }

    /// Versions and duplicates of samples.
    fn identity(&self) -> Option<&dyn Identity> {
        self.inner()?.identity()
    }

    /// Skipped items and warnings, for people.
    fn notes(&self) -> Option<&dyn Notes> {
        self.inner()?.notes()
    }
}

/// One sample of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sample {
    /// Index, from 0.
    pub index: u64,
    /// Path, URL or other name.
    pub location: String,
    /// Class number; `None` if it has none.
    pub label: Option<i64>,
}

/// Label of a sample without a class, in [`Source::label`] and [`Batch::labels`](crate::loader::Batch::labels).
pub const NO_LABEL: i64 = -1;

/// Returns the label of a sample, if it has one.
pub(crate) fn own_label(source: &dyn Source, index: u64) -> Option<i64> {
    Some(source.label(index)).filter(|&label| label != NO_LABEL)
}
