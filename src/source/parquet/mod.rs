//! Source for Parquet files, such as Hugging Face's image datasets.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use super::bad_shards::BadShardList;
use super::exclusion::none_but;
use super::records::{expand, of_each};
use super::settings::LabelSort;
use super::{
    BadShards, Configured, Exclusion, Exclusions, Fields, Hints, Notes, Page, Sealed, Source, file,
};
use crate::error::{DataError, Error, Reason, Redacted, Result};
use crate::footprint::counted;
use crate::storage::{self, Storage};

use cache::Cache;
use column::Column;
use field::FieldColumns;
use shard::{FileError, Shard};
use table::Table;

mod cache;
mod codec;
mod column;
mod encoding;
mod field;
mod footer;
mod labels;
mod page;
mod shard;
mod table;
mod thrift;

/// Largest total size of the pages that are searched for the largest image, in bytes.
const LOOKED_AT_BYTES: u64 = 64 << 20;
/// Longest path of an image, in bytes.
const MOST_PATH_BYTES: u64 = 4096;

/// Images in a column of Parquet files.
///
/// * A path is a file, a directory (its visible files that end in `.parquet`), or a pattern such as
///   `train-*.parquet` (`*` and `?` in the last part). Samples are ordered by path, then file name,
///   then row.
/// * The image is the value of a binary column. The setting names the column or its field `bytes`,
///   as in Hugging Face's `image: struct<bytes, path>`. If the value is null, the image is read
///   from the file that the field `path` names, relative to the Parquet file. A row without both is
///   a sample error.
/// * The label is a whole number (an integer below 2^63, a float, a boolean, or a text) or a name.
///   The metadata of the file may name the classes with Hugging Face's `ClassLabel`. With text
///   names, the classes are the distinct names in byte order. A null label is -1. An invalid label
///   is an error with the row. A column that contains both numbers and names is an error too.
/// * On first use, only metadata, page headers and labels are read. The first read of a page stores
///   the positions of its images, in at most eight bytes per row. Afterwards an image in an
///   uncompressed page takes one read of its own bytes.
/// * Pages that are decompressed or read completely are cached within `cache_bytes`, with LRU
///   eviction. The limit includes pages that are being read: a thread waits until memory is
///   available. In file order every page is decompressed once. In random order, if the decompressed
///   pages do not all fit into the cache, nearly every image requires decompressing a whole page.
/// * If a page has a checksum, it is verified when the page is read completely. If a page cannot be
///   decompressed or is inconsistent, its samples are errors. Damaged metadata and headers are
///   errors with the byte offset.
/// * Supported compressions: none, snappy, zstd, gzip, brotli, LZ4 (raw). Supported encodings:
///   PLAIN, dictionary, DELTA_LENGTH_BYTE_ARRAY (labels: DELTA_BINARY_PACKED), in pages of versions
///   1 and 2. Encrypted files, and repeated columns of images or labels are not supported.
/// * All columns besides the image are fields, also repeated ones, with all encodings of pages of
///   versions 1 and 2 except BIT_PACKED levels. Lists of numbers are flat lists. Structs, maps and
///   other lists are JSON. Booleans, dates, times and timestamps are integers in their stored unit
///   (`INT96`: nanoseconds since 1970), decimals are exact texts. Nulls are missing values. The
///   metadata of a file is read again when its fields are first read. Then the page headers of the
///   wanted fields are read, per row group. Lists in pages of version 1 are also decoded once then,
///   because these headers do not contain their number of rows.
pub struct Parquet {
    storage: Storage,
    shards: Vec<Shard>,
    /// For each file, the index after its last row.
    ends: Vec<u64>,
    cache: Cache,
    images: Column,
    /// Column of paths, for rows without the bytes of an image. A file in which every row has an
    /// image adds no pages to this column.
    paths: Column,
    labels: Vec<i64>,
    classes: Vec<String>,
    largest_bytes: OnceLock<u64>,
    /// Column of the images, as in the settings.
    image: String,
    fields: FieldColumns,
    excluded: Vec<Exclusion>,
    /// Warning about bad shards.
    warning: Option<String>,
}

/// Settings of the source `parquet`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ParquetSettings {
    /// Column of the encoded image, or a group with a field `bytes`. Names from the root are joined
    /// by dots. Default `image`.
    pub image: String,
    /// Column of the label; empty for no labels (-1). Default `label`.
    pub label: String,
    /// Type of text labels: whole numbers or class names. The default `auto` selects numbers if all
    /// texts are numbers.
    pub labels: LabelSort,
    /// Memory limit for pages, in bytes. It must be at least the size of the largest page,
    /// compressed plus decompressed. Default 256 MiB.
    pub cache_bytes: u64,
}

impl Default for ParquetSettings {
    fn default() -> Self {
        Self {
            image: "image".into(),
            label: "label".into(),
            labels: LabelSort::Auto,
            cache_bytes: 256 << 20,
        }
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

    /// Opens the files and reads their metadata, page headers and labels.
    fn open_with(paths: &[PathBuf], settings: &ParquetSettings, storage: &Storage) -> Result<Self> {
        Self::open_shards(paths, settings, storage, BadShards::Error)
    }

    /// Opens the files like `open_with`. With [`BadShards::Skip`], skips files that are damaged or
    /// cannot be opened.
    fn open_shards(
        paths: &[PathBuf],
        settings: &ParquetSettings,
        storage: &Storage,
        bad: BadShards,
    ) -> Result<Self> {
        Self::opened(paths, settings, storage, bad, false)
    }

    /// Opens the files without a column of images or labels.
    fn open_fields(
        paths: &[PathBuf],
        settings: &ParquetSettings,
        storage: &Storage,
        bad: BadShards,
    ) -> Result<Self> {
        let settings = ParquetSettings { label: String::new(), ..settings.clone() };
        Self::opened(paths, &settings, storage, bad, true)
    }
}

impl Parquet {
    /// Opens the files. With `for_fields`, they need no column of images.
    fn opened(
        paths: &[PathBuf],
        settings: &ParquetSettings,
        storage: &Storage,
        bad: BadShards,
        for_fields: bool,
    ) -> Result<Self> {
        if bad == BadShards::UntilDamage {
            let problem = "is \"until_damage\", but the table of a Parquet file is at its end; write \"skip\"";
            return Err(Error::config(format!("source.{}", BadShards::KEY), problem));
        }
        let files = expand(storage, Self::KEY, paths, ".parquet")?;
        let cache = Cache::new(settings.cache_bytes);
        let read = of_each(&files, |_, path| {
            Ok(match Table::read(storage, path, settings, &cache, for_fields) {
                Ok(table) => Ok(table),
                Err(error) => Err(bad.allow(path, error)?),
            })
        })?;
        let (mut excluded, mut bad_shards) = (Exclusions::default(), BadShardList::default());
        let mut tables = Vec::with_capacity(read.len());
        for (path, read) in files.iter().zip(read) {
            match read {
                Ok(table) => tables.push(table),
                Err(bad) => bad_shards.add(path, &bad, &mut excluded),
            }
        }
        let excluded = excluded.into_list();
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
            image: settings.image.clone(),
            fields: FieldColumns::default(),
            warning: bad_shards.warning(bad, files.len()),
            excluded,
        };
        tables.into_iter().for_each(|table| source.append(table));
        source.cache.expect(source.cached_bytes());
        if source.labels.is_empty() {
            let (count, first) = (counted(files.len(), "file"), files[0].display());
            let problem = format!("no sample was found in {count}; the first file is {first}");
            return Err(Error::config("source.parquet", none_but(problem, &source.excluded)));
        }
        Ok(source)
    }

    fn append(&mut self, table: Table) {
        let Table { shard, images, paths, labels, .. } = table;
        let (number, rows) = (self.shards.len(), self.labels.len() as u64);
        self.shards.push(shard);
        self.fields.add_file();
        self.images.append(images, number as u32, rows);
        self.paths.append(paths, number as u32, rows);
        self.labels.extend(labels.numbers);
        self.ends.push(self.labels.len() as u64);
    }

    /// Memory that all pages would take in the cache, in bytes. Pages of fields count after their
    /// headers were read.
    fn cached_bytes(&self) -> u64 {
        self.images.cached_bytes() + self.paths.cached_bytes() + self.fields.cached_bytes()
    }

    fn shard_number(&self, index: u64) -> usize {
        self.ends.partition_point(|end| *end <= index)
    }

    /// Path of the image of a row that has no encoded image but names a file.
    fn path(&self, index: u64) -> Result<PathBuf, DataError> {
        let null = || DataError::new(Reason::Empty, "the image is null");
        let mut name = Vec::new();
        let there = self.paths.read(&self.shards, &self.cache, index, |len| {
            super::check_size(len as u64, MOST_PATH_BYTES)?;
            name.resize(len, 0);
            Ok::<_, DataError>(&mut name[..])
        })?;
        if !there || name.is_empty() {
            return Err(null());
        }
        let name = String::from_utf8_lossy(&name);
        let parquet = &self.shards[self.shard_number(index)].path;
        let base = parquet.parent().unwrap_or(Path::new(""));
        let allowed = self.storage.settings().allowed(base).check(&name);
        allowed
            .map_err(|problem| DataError::new(Reason::Unreadable, format!("the row {problem}")))?;
        Ok(storage::join(base, Path::new(&*name)))
    }
}

impl Source for Parquet {
    fn len(&self) -> u64 {
        self.labels.len() as u64
    }

    fn label(&self, index: u64) -> i64 {
        self.labels[index as usize]
    }

    /// Path of the file, followed by the index of the row within the file in brackets.
    fn location(&self, index: u64) -> String {
        let number = self.shard_number(index);
        let first = if number == 0 { 0 } else { self.ends[number - 1] };
        format!("{}[{}]", Redacted::path(&self.shards[number].path), index - first)
    }

    fn read(&self, index: u64, page: &mut dyn Page, limit: u64) -> Result<(), DataError> {
        let there = self.images.read(&self.shards, &self.cache, index, |len| {
            super::check_size(len as u64, limit)?;
            page.space(len)
        })?;
        if there {
            return Ok(());
        }
        let path = self.path(index)?;
        file::read(&self.storage, &path, page, limit).map_err(|error| {
            let problem = format!("{} (named in the row): {}", path.display(), error.problem);
            error.reworded(problem)
        })
    }

    /// Path of the first file, number of further files, and number of samples.
    fn describe(&self) -> String {
        let (first, more) = (Redacted::path(&self.shards[0].path), self.shards.len() - 1);
        let samples = counted(self.len(), "sample");
        match more {
            0 => format!("{first}: {samples}"),
            _ => format!("{first} and {more} more: {samples}"),
        }
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn fields(&self) -> Option<&dyn Fields> {
        Some(self)
    }

    fn hints(&self) -> Option<&dyn Hints> {
        Some(self)
    }

    fn notes(&self) -> Option<&dyn Notes> {
        Some(self)
    }
}

impl Notes for Parquet {
    /// Files that were skipped.
    fn excluded(&self) -> Vec<Exclusion> {
        self.excluded.clone()
    }

    fn warnings(&self) -> Vec<String> {
        self.warning.iter().cloned().collect()
    }
}

impl Hints for Parquet {
    /// The size is estimated from evenly spread pages, and from the files that rows name.
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
        let files =
            self.shards.iter().map(|it| it.memory_bytes() as usize + size_of::<Shard>() + 8);
        let names = self.classes.iter().map(|it| it.capacity() + size_of::<String>());
        let fixed = files.chain(names).sum::<usize>() + self.labels.capacity() * 8;
        let columns = [&self.images, &self.paths];
        let learnt: u64 = columns.iter().map(|it| it.memory_bytes(self.len())).sum();
        let fields = self.fields.memory_bytes();
        fixed as u64 + learnt + fields + self.cached_bytes().min(self.cache.limit())
    }

    fn file_ends(&self) -> Vec<u64> {
        self.ends.clone()
    }

    /// Warns if the pages that must be read completely do not all fit into the cache.
    fn slow_shuffled(&self) -> Option<String> {
        let pages = self.images.cached_bytes() + self.paths.cached_bytes();
        let limit = self.cache.limit();
        (pages > limit).then(|| {
            format!(
                "the images are in pages of {pages} bytes in total, and a page must be read \
                 whole, but source.cache_bytes is {limit}, so for most images of a shuffled \
                 epoch a whole page is read; set loader.shuffle_window, or rewrite the images with \
                 feedwater pack"
            )
        })
    }
}
