//! Where samples come from.
//!
//! To add a source: a file here whose type implements [`Source`] and [`Configured`], and one line in `sources!`.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer};

use crate::annotation::{Canvas, Object};
use crate::error::{DataError, Result, reserve};
use crate::storage::Storage;

#[cfg(feature = "beton")]
pub use beton::BetonSettings;
#[cfg(feature = "coco")]
pub use coco::{Category, CocoSettings};
pub use combine::{
    Arrangement, Chosen, Combined, Concat, FilterSettings, InTurn, Mixture, PartSettings, Repeat,
    Repeated, Selection, Subset, Weighted,
};
pub use detect::{detect, detect_with};
pub use directory::DirectorySettings;
pub(crate) use file::check_size;
pub use label::LabelSort;
#[doc(hidden)]
pub use left_out::left_out_lines;
pub use left_out::{LeftOut, LeftOuts, WhyLeftOut};
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
pub trait Source: Send + Sync {
    /// How many samples there are.
    fn len(&self) -> u64;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The label of a sample: the number of its class, -1 where it has none. `index` is below [`Self::len`].
    fn label(&self, index: u64) -> i64;

    /// The path of a sample, or what stands for it in messages.
    fn location(&self, index: u64) -> String;

    /// Reads a sample's encoded bytes into `page`, at most `limit` of them. May be called from many threads
    /// at once. An empty sample is not a fault here: the header's parser names it.
    fn read(&self, index: u64, page: &mut dyn Page, limit: u64) -> Result<(), DataError>;

    /// What changes whenever the bytes of a sample do, without reading them: the length and the time of its file, the tag
    /// of its object. `None`, the default, where only the bytes tell. `feedwater pack` asks it before it goes on.
    fn version(&self, index: u64) -> Option<String> {
        let _ = index;
        None
    }

    /// Reads the first bytes of a sample into `page`, `most` of them or as many as there are, and gives the length of the whole
    /// sample: for looking at headers. The default reads the whole sample, of at most `limit` bytes.
    fn read_head(
        &self,
        index: u64,
        page: &mut HostPage,
        most: usize,
        limit: u64,
    ) -> Result<u64, DataError> {
        let _ = most;
        self.read(index, page, limit)?;
        Ok(page.bytes().len() as u64)
    }

    /// Whether [`read_head`](Self::read_head) reads less than the whole sample, so that many headers can be looked at.
    fn has_heads(&self) -> bool {
        false
    }

    /// Whether samples come over a network, so that it pays to ask for many at once: [`Self::expect`] then gives something.
    fn is_remote(&self) -> bool {
        false
    }

    /// Begins to read a sample that will be wanted soon, if that is what this source can do; at most `limit` bytes of it are
    /// held. What it gives does what [`Self::read`] does. Dropping it gives the request up.
    fn expect(&self, index: u64, limit: u64) -> Option<Expected> {
        let _ = (index, limit);
        None
    }

    /// Names of the classes, in the order of their labels; empty where there are none.
    fn classes(&self) -> &[String] {
        &[]
    }

    /// The objects in an image, in the order of its annotations; none where the source knows of none. A source that wraps
    /// another must hand on both this and [`canvas`](Self::canvas).
    fn objects(&self, index: u64) -> Vec<Object> {
        let _ = index;
        Vec::new()
    }

    /// Which image the positions of [`objects`](Self::objects) mean. An image of another size is a sample that cannot
    /// be used.
    fn canvas(&self, index: u64) -> Canvas {
        let _ = index;
        Canvas::default()
    }

    /// What stands at an index, as a number below [`Self::originals`]: indices with the same number have the same bytes,
    /// and caches keep them once. Where no sample stands at two indices it is the index itself.
    fn original(&self, index: u64) -> u64 {
        index
    }

    /// One more than the largest number of an original that there may be.
    fn originals(&self) -> u64 {
        self.len()
    }

    /// Bytes of the largest sample, for the footprint: exact where it is cheap, else of a fixed choice of
    /// samples.
    fn largest_bytes(&self) -> u64;

    /// The samples with the most pixels, as a table says that the source has at hand: at most `most` indices, each with its
    /// pixels, roughly, the largest first. Plans look at them besides others, and read their headers: a table that is wrong does
    /// no harm. Empty, the default, where no table says. A source that wraps others must hand it on.
    fn largest_samples(&self, most: usize) -> Vec<(u64, u64)> {
        let _ = most;
        Vec::new()
    }

    /// What the source met and left out of its samples, counted by reason and kind: the keys of an archive that have no image,
    /// say. Empty, the default, where that is nothing. Samples that `filter` or `subset` leave out are not counted. A source
    /// that wraps others must hand it on.
    fn left_out(&self) -> Vec<LeftOut> {
        Vec::new()
    }

    /// What looks like a mistake in what was named, with the way out, for people; nothing by default. A source that wraps
    /// others must hand it on.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }

    /// The handles through which its files are read; none, the default, where it reads none through a [`Storage`]. A loader
    /// counts their requests as its own and shows their warnings. A source that wraps others must hand them on.
    fn storages(&self) -> Vec<Storage> {
        Vec::new()
    }

    /// Host memory that the source itself holds.
    fn memory_bytes(&self) -> u64;

    /// One line for people: what it is and how many samples it has.
    fn describe(&self) -> String;

    /// Where files hold many samples, one after another, so that reading in sequence is cheaper: the first sample after
    /// each file, in the order of the samples; the last is [`Self::len`]. Empty, the default, where there are no such files.
    /// `loader.shuffle_window` needs it.
    fn file_ends(&self) -> Vec<u64> {
        Vec::new()
    }

    /// Why reading the samples in any order but their own is slow, with the way out; `None`, the default, where it is
    /// not.
    fn slow_shuffled(&self) -> Option<String> {
        None
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

impl dyn Source + '_ {
    /// Everything known about a sample without reading it.
    pub fn sample(&self, index: u64) -> Sample {
        Sample { index, location: self.location(index), label: own_label(self, index) }
    }
}

/// What [`Source::label`] and [`Batch::labels`](crate::loader::Batch::labels) say of a sample without a label.
pub const NO_LABEL: i64 = -1;

/// The label of a sample, where it has one.
pub(crate) fn own_label(source: &dyn Source, index: u64) -> Option<i64> {
    Some(source.label(index)).filter(|&label| label != NO_LABEL)
}

/// Where a source puts encoded bytes: memory that was taken before.
pub trait Page {
    /// Room for `len` bytes; earlier bytes are gone.
    ///
    /// # Errors
    /// [`Reason::OutOfMemory`](crate::error::Reason::OutOfMemory) where it cannot be allocated.
    fn space(&mut self, len: usize) -> Result<&mut [u8], DataError>;
    /// Keeps the first `len` bytes of the space.
    fn truncate(&mut self, len: usize);
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
