//! Parquet files, as Hugging Face writes image datasets.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use super::records::{expand, of_each};
use super::{Configured, Hints, LabelSort, Page, Sealed, Source, file};
use crate::error::{Error, DataError, Reason, Redacted, Result};
use crate::storage::{self, Storage};

use cache::Cache;
use column::Column;
use shard::{Shard, FileError};
use table::Table;

mod cache;
mod codec;
mod column;
mod encoding;
mod footer;
mod labels;
mod page;
mod shard;
mod table;
mod thrift;

/// Bytes of pages in which the largest image is looked for.
const LOOKED_AT_BYTES: u64 = 64 << 20;
/// A longer path of an image is refused.
const MOST_PATH_BYTES: u64 = 4096;

/// Images in a column of Parquet files.
///
/// * A path is a file, a directory (its visible files that end in `.parquet`), or a pattern such as `train-*.parquet`
///   (`*` and `?` in the last part). The samples are in the order of the paths, of the names, and of the rows.
/// * The image is the value of a column of bytes, which the settings name: the column itself or its field `bytes`,
///   as in Hugging Face's `image: struct<bytes, path>`. A row whose image is null is read from the file that `path`
///   names, relative to the Parquet file; one that has neither is a sample that cannot be read.
/// * The label is a whole number (an integer below 2^63, a float, or a text as which it is written), or a name. The names of the
///   classes are those of Hugging Face's `ClassLabel`, in the file's metadata; of names the different ones in byte order, which
///   are numbered so. A row without has label -1. A label that is none, and a column of numbers and names, is an error with
///   the row.
/// * On first use only metadata, headers of pages, and the labels are read. Where in a page its images are is learnt
///   when it is first read; that takes eight bytes for a row at most. From then on, an image whose page is not
///   compressed is one read of its own bytes.
/// * Pages that were decompressed or read whole are kept under `cache_bytes`, that which was used least lately goes
///   first. All memory for pages comes from there, also that of pages that are being read: a thread that finds none
///   waits. In the order of the files every page is decompressed once; in a random order of compressed files that are
///   larger than the cache nearly every image costs a page.
/// * A page's checksum is verified, where it has one, when the page is read whole. A page that does not decompress, or
///   contradicts itself, makes its samples ones that cannot be read. Metadata and headers that are damaged are an
///   error with the byte.
/// * Compressed with snappy, zstd, gzip, brotli, LZ4 (raw) or not; encoded as PLAIN, by a dictionary, or as
///   DELTA_LENGTH_BYTE_ARRAY (labels: DELTA_BINARY_PACKED); pages of version 1 and 2. Encrypted files and columns
///   with several values in a row are not read.
pub struct Parquet {
    storage: Storage,
    shards: Vec<Shard>,
    /// The first row after each file.
    ends: Vec<u64>,
    cache: Cache,
    images: Column,
    /// Of files where every row has its image, without pages.
    paths: Column,
    labels: Vec<i64>,
    classes: Vec<String>,
    largest_bytes: OnceLock<u64>,
}

/// The columns that are read, and how much memory it may take.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ParquetSettings {
    /// The column that holds the encoded image, its names from the top joined with dots; where it has a field `bytes`
    /// that field. Default `image`.
    pub image: String,
    /// The column that holds the label; empty where samples have none, which is label -1. Default `label`.
    pub label: String,
    /// What labels that are texts are: whole numbers, or names of classes. Default `auto`: numbers where all of them are.
    pub labels: LabelSort,
    /// Bytes of pages in memory at most, at least those of the largest page, compressed and not. Default 256 MiB.
    pub cache_bytes: u64,
}

impl Default for ParquetSettings {
    fn default() -> Self {
        Self { image: "image".into(), label: "label".into(), labels: LabelSort::Auto, cache_bytes: 256 << 20 }
    }
}

impl Sealed for Parquet {}

impl Configured for Parquet {
    const KEY: &'static str = "parquet";
    type Settings = ParquetSettings;
    const FOLDERS: bool = true;

    fn recognises(_: &str, head: &[u8]) -> bool {
        head.starts_with(b"PAR1")
    }

    /// Opens the files; reads their metadata, the headers of the pages, and the labels.
    fn open_with(paths: &[PathBuf], settings: &ParquetSettings, storage: &Storage) -> Result<Self> {
        let files = expand(storage, Self::KEY, paths, ".parquet")?;
        let cache = Cache::new(settings.cache_bytes);
        let mut tables = of_each(&files, |_, path| Table::read(storage, path, settings, &cache))?;
        let classes = table::name_classes(&mut tables, settings.labels)?;
        let mut source = Self {
            storage: storage.clone(),
            shards: Vec::with_capacity(files.len()),
            ends: Vec::with_capacity(files.len()),
            cache,
            images: Column::new(0),
            paths: Column::new(1),
            labels: Vec::new(),
            classes,
            largest_bytes: OnceLock::new(),
        };
        tables.into_iter().for_each(|table| source.append(table));
        source.cache.expect(source.cached_bytes());
        if source.labels.is_empty() {
            let (count, first) = (files.len(), files[0].display());
            let problem = format!("no samples in {count} files, the first is {first}");
            return Err(Error::config("source.parquet", problem));
        }
        Ok(source)
    }
}

impl Parquet {
    fn append(&mut self, table: Table) {
        let Table { shard, images, paths, labels, .. } = table;
        let (number, rows) = (self.shards.len(), self.labels.len() as u64);
        self.shards.push(shard);
        self.images.append(images, number as u32, rows);
        self.paths.append(paths, number as u32, rows);
        self.labels.extend(labels.numbers);
        self.ends.push(self.labels.len() as u64);
    }

    /// Bytes of all pages that can come into the cache.
    fn cached_bytes(&self) -> u64 {
        self.images.cached_bytes() + self.paths.cached_bytes()
    }

    fn shard_number(&self, index: u64) -> usize {
        self.ends.partition_point(|end| *end <= index)
    }

    /// The file that the row names instead of having an image.
    fn path(&self, index: u64) -> Result<PathBuf, DataError> {
        let null = || DataError::new(Reason::Empty, "the row has no image: it is null");
        let mut name = Vec::new();
        let there = self.paths.read(&self.shards, &self.cache, index, |len| {
            file::check_size(len as u64, MOST_PATH_BYTES)?;
            name.resize(len, 0);
            Ok::<_, DataError>(&mut name[..])
        })?;
        if !there || name.is_empty() {
            return Err(null());
        }
        let name = String::from_utf8_lossy(&name);
        let parquet = &self.shards[self.shard_number(index)].path;
        Ok(storage::join(parquet.parent().unwrap_or(Path::new("")), Path::new(&*name)))
    }
}

impl Source for Parquet {
    fn len(&self) -> u64 {
        self.labels.len() as u64
    }

    fn label(&self, index: u64) -> i64 {
        self.labels[index as usize]
    }

    /// The file and, in brackets, the number of the row in it.
    fn location(&self, index: u64) -> String {
        let number = self.shard_number(index);
        let first = if number == 0 { 0 } else { self.ends[number - 1] };
        format!("{}[{}]", Redacted::path(&self.shards[number].path), index - first)
    }

    fn read(&self, index: u64, page: &mut dyn Page, limit: u64) -> Result<(), DataError> {
        let there = self.images.read(&self.shards, &self.cache, index, |len| {
            file::check_size(len as u64, limit)?;
            page.space(len)
        })?;
        if there {
            return Ok(());
        }
        let path = self.path(index)?;
        file::read(&self.storage, &path, page, limit).map_err(|fault| {
            let problem = format!("{}, which the row names: {}", path.display(), fault.problem);
            fault.reworded(problem)
        })
    }

    /// The first file, and how many files and samples there are.
    fn describe(&self) -> String {
        let (first, more) = (Redacted::path(&self.shards[0].path), self.shards.len() - 1);
        match more {
            0 => format!("{first}: {} samples", self.len()),
            _ => format!("{first} and {more} more: {} samples", self.len()),
        }
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn hints(&self) -> Option<&dyn Hints> {
        Some(self)
    }
}

impl Hints for Parquet {
    /// Of pages evenly spread, and of the files that rows name.
    fn largest_bytes(&self) -> Option<u64> {
        let largest = self.largest_bytes.get_or_init(|| {
            let inside = self.images.largest(&self.shards, &self.cache, LOOKED_AT_BYTES);
            if !self.paths.is_empty() && inside == 0 {
                let path = |index| self.path(index).unwrap_or_default();
                return file::largest(&self.storage, self.len(), path);
            }
            inside
        });
        Some(*largest)
    }

    fn storages(&self) -> Vec<Storage> {
        vec![self.storage.clone()]
    }

    fn memory_bytes(&self) -> u64 {
        let files = self.shards.iter().map(|it| it.memory_bytes() as usize + size_of::<Shard>() + 8);
        let names = self.classes.iter().map(|it| it.capacity() + size_of::<String>());
        let fixed = files.chain(names).sum::<usize>() + self.labels.capacity() * 8;
        let columns = [&self.images, &self.paths];
        let learnt: u64 = columns.iter().map(|it| it.memory_bytes(self.len())).sum();
        fixed as u64 + learnt + self.cached_bytes().min(self.cache.limit())
    }

    fn file_ends(&self) -> Vec<u64> {
        self.ends.clone()
    }

    /// Pages that must be read whole, of which not all can stay in memory.
    fn slow_shuffled(&self) -> Option<String> {
        let (pages, limit) = (self.cached_bytes(), self.cache.limit());
        (pages > limit).then(|| {
            format!(
                "the images lie in {pages} bytes of pages that are read whole, and source.cache_bytes is {limit}: \
                 most images of a shuffled epoch cost a whole page; set loader.shuffle_window, or write the \
                 images anew with feedwater pack"
            )
        })
    }
}
