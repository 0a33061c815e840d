//! Where samples come from.
//!
//! To add a source: a file here whose type implements [`Source`] and [`Configured`], and one line in `sources!`.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer};

use crate::error::{DataError, Result, reserve};

pub use crate::header::PnmHead;

pub use abilities::{Annotations, Heads, Hints, Identity, Notes, RemoteReads};
#[cfg(feature = "beton")]
pub use beton::BetonSettings;
#[cfg(feature = "coco")]
pub use coco::{Category, CocoSettings};
pub use combine::{Arrangement, Combined, Concat, Mixture, Repeat, Subset};
#[doc(hidden)]
pub use combine::{Chosen, FilterSettings, InTurn, PartSettings, Repeated, Selection, Weighted};
pub use detect::{detect, detect_with};
pub use directory::DirectorySettings;
pub(crate) use file::check_size;
pub use label::LabelSort;
pub use left_out::{LeftOut, WhyLeftOut};
#[doc(hidden)]
pub use left_out::{LeftOuts, left_out_lines};
pub use list::{FileListSettings, ListFormat};
#[cfg(feature = "lmdb")]
pub use lmdb::{LmdbSettings, LmdbValues};
pub use memory::Memory;
#[cfg(feature = "npy")]
pub use npy::NpySettings;
#[cfg(feature = "parquet")]
pub use parquet::ParquetSettings;
#[cfg(feature = "recordio")]
pub use recordio::{RecordIoLabel, RecordIoSettings};
pub use settings::SourceSettings;
#[doc(hidden)]
pub use settings::{Configured, HEAD_BYTES};
#[cfg(feature = "tfrecord")]
pub use tfrecord::TfRecordSettings;
pub use webdataset::WebDatasetSettings;

pub(crate) use combine::JOINED;
pub(crate) use sealed::Sealed;

mod abilities;
mod combine;
mod detect;
mod file;
mod label;
mod largest;
mod left_out;
mod memory;
#[doc(hidden)]
pub mod records;
mod settings;

/// The sources that a pipeline file can name: the one list from which keys and settings follow. A source may need a feature
/// of this crate.
macro_rules! sources {
    ($($module:ident :: $type:ident $(if $feature:literal)?),+ $(,)?) => {
        $(
            $(#[cfg(feature = $feature)])?
            mod $module;
            $(#[cfg(feature = $feature)])?
            pub use $module::$type;
        )+

        /// The keys of `[source]`, one for each source.
        #[doc(hidden)]
        pub const KEYS: &[&str] =
            &[$($(#[cfg(feature = $feature)])? <$type as Configured>::KEY),+];

        /// Features of sources that this build is without; each is the key of its source too.
        #[doc(hidden)]
        pub const DISABLED: &[&str] = &[$($(#[cfg(not(feature = $feature))] $feature,)?)+];

        /// Reads the settings that stand beside the key of a source in a pipeline file of this folder; `None` where there is
        /// no such key.
        #[doc(hidden)]
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

        /// The source, with the settings that it has by default, whose file this is; of a folder's file where `folder`.
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

/// A numbered set of encoded images, each with a label. Numbers and order never change.
///
/// Four methods are required. What a source can do besides is given as objects of further traits: one that has boxes implements
/// [`Annotations`] and gives `Some(self)` from [`annotations`](Self::annotations).
///
/// A source over another, with the same samples at the same indices, gives that from [`inner`](Self::inner): all abilities of the
/// inner one come through. A source over others whose samples stand at other indices is a [`Combined`] with an [`Arrangement`].
pub trait Source: Send + Sync {
    /// How many samples there are.
    fn len(&self) -> u64;

    /// The label of a sample: the number of its class, -1 where it has none. `index` is below [`Self::len`].
    fn label(&self, index: u64) -> i64;

    /// The path of a sample, or what stands for it in messages.
    fn location(&self, index: u64) -> String;

    /// Reads a sample's encoded bytes into `page`, at most `limit` of them. May be called from many threads
    /// at once. An empty sample is not a fault here: the header's parser names it.
    fn read(&self, index: u64, page: &mut dyn Page, limit: u64) -> Result<(), DataError>;

    /// The source that this one wraps, with the same samples at the same indices. Everything below is then by default that of the
    /// inner one. Where [`read`](Self::read) gives other bytes than the inner one does, [`remote`](Self::remote) and
    /// [`heads`](Self::heads) must give those too, or `None`. Default `None`.
    fn inner(&self) -> Option<&dyn Source> {
        None
    }

    /// Whether there are no samples.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// One line for people: what it is and how many samples it has.
    fn describe(&self) -> String {
        self.inner().map_or_else(|| format!("{} samples", self.len()), |it| it.describe())
    }

    /// Names of the classes, in the order of their labels; empty where there are none.
    fn classes(&self) -> &[String] {
        self.inner().map_or(&[], |it| it.classes())
    }

    /// Objects in the images, where it has any.
    fn annotations(&self) -> Option<&dyn Annotations> {
        self.inner()?.annotations()
    }

    /// Reading ahead, where samples come over a network.
    fn remote(&self) -> Option<&dyn RemoteReads> {
        self.inner()?.remote()
    }

    /// Reading the first bytes of samples alone, where it can do that.
    fn heads(&self) -> Option<&dyn Heads> {
        self.inner()?.heads()
    }

    /// What is known of the samples before they are read.
    fn hints(&self) -> Option<&dyn Hints> {
        self.inner()?.hints()
    }

    /// When samples have the same bytes.
    fn identity(&self) -> Option<&dyn Identity> {
        self.inner()?.identity()
    }

    /// What it tells people of what it met.
    fn notes(&self) -> Option<&dyn Notes> {
        self.inner()?.notes()
    }
}

/// A sample that is on its way: called with a page and the limit of [`Source::read`], it waits and does what that does.
pub type Expected = Box<dyn FnOnce(&mut dyn Page, u64) -> Result<(), DataError> + Send>;

/// One sample of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sample {
    /// Its number, from 0.
    pub index: u64,
    /// Path, or what stands for it.
    pub location: String,
    /// Number of its class; `None` where it has none.
    pub label: Option<i64>,
}

/// What [`Source::label`] and [`Batch::labels`](crate::loader::Batch::labels) say of a sample without a label.
pub const NO_LABEL: i64 = -1;

/// The label of a sample, where it has one.
pub(crate) fn own_label(source: &dyn Source, index: u64) -> Option<i64> {
    Some(source.label(index)).filter(|&label| label != NO_LABEL)
}

/// Keeps [`Page`] and [`Configured`] to the types of this crate.
mod sealed {
    pub trait Sealed {}
}

/// Where a source puts encoded bytes: memory that was taken before. The loader has such pages; sources only write to them.
pub trait Page: Sealed {
    /// Room for `len` bytes; earlier bytes are gone.
    ///
    /// # Errors
    /// [`Reason::OutOfMemory`](crate::error::Reason::OutOfMemory) where it cannot be allocated.
    fn space(&mut self, len: usize) -> Result<&mut [u8], DataError>;
    /// Keeps the first `len` bytes of the space.
    fn truncate(&mut self, len: usize);
}

impl Sealed for HostPage {}

impl dyn Page + '_ {
    /// Room for `len` bytes of a sample that may have at most `limit`.
    ///
    /// # Errors
    ///
    /// [`Reason::Oversized`](crate::error::Reason::Oversized) beyond the limit, and those of [`space`](Page::space).
    pub fn space_within(&mut self, len: u64, limit: u64) -> Result<&mut [u8], DataError> {
        check_size(len, limit)?;
        self.space(len as usize)
    }

    /// Copies a whole sample that may have at most `limit` bytes.
    ///
    /// # Errors
    ///
    /// Those of `space_within`.
    pub fn fill(&mut self, bytes: &[u8], limit: u64) -> Result<(), DataError> {
        self.space_within(bytes.len() as u64, limit)?.copy_from_slice(bytes);
        Ok(())
    }
}

/// A page in ordinary host memory: grows to the largest sample that it met, and to no more.
#[derive(Debug, Default)]
pub struct HostPage {
    data: Vec<u8>,
    len: usize,
}

impl HostPage {
    /// A page with room for `bytes` without growing.
    pub fn with_capacity(bytes: usize) -> Self {
        Self { data: Vec::with_capacity(bytes), len: 0 }
    }

    /// The bytes of the sample.
    pub fn bytes(&self) -> &[u8] {
        &self.data[..self.len]
    }

    /// Bytes of memory held.
    pub fn capacity_bytes(&self) -> u64 {
        self.data.capacity() as u64
    }
}

impl Page for HostPage {
    fn space(&mut self, len: usize) -> Result<&mut [u8], DataError> {
        self.len = 0;
        if self.data.len() < len {
            reserve::renew(&mut self.data, len)?;
        }
        self.len = len;
        Ok(&mut self.data[..len])
    }

    fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }
}
