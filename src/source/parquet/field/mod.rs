//! Fields of the rows: the columns besides the image.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::footer::Footer;
use super::{FileError, Parquet, Shard};
use crate::error::{DataError, Result};
use crate::field::Field;
use crate::source::{Fields, PutField};

use chunk::{Access, LeafChunk};
use columns::FieldColumn;
use row::{Budget, LeafRow};
use schema::{Leaf, Node, Shape};

mod assemble;
mod chunk;
mod columns;
mod layout;
mod row;
mod schema;
mod strings;
mod value;

/// First number of pages of fields in the cache. Images and paths have the numbers below.
const FIRST_KEY: u64 = 1 << 33;

/// Columns of all files that are fields. Everything is read on first use.
#[derive(Default)]
pub struct FieldColumns {
    files: Vec<FileFields>,
    /// Fields of the first file that was read. Files with the same fields share them.
    shared: OnceLock<Arc<[FieldColumn]>>,
    /// Number of pages that have a number in the cache.
    pages: AtomicU64,
    /// Memory of page headers and metadata, in bytes.
    memory: AtomicU64,
    /// Memory that all known pages take in the cache, in bytes.
    cached: AtomicU64,
    /// Rows that are not in use, one entry for each thread.
    spare: Mutex<Vec<Vec<LeafRow>>>,
}

/// Fields of a file.
#[derive(Default)]
struct FileFields {
    known: OnceLock<KnownFields>,
    /// Held while metadata and page headers are read, so that they are read once.
    reading: Mutex<()>,
}

struct KnownFields {
    fields: Arc<[FieldColumn]>,
    /// For each row group, the row after its last row.
    ends: Box<[u64]>,
    /// Chunks of each field: those of all its leaves in the first row group, and so on.
    chunks: Box<[OnceLock<Box<[LeafChunk]>>]>,
}

/// Row of a file.
struct Row<'a> {
    access: Access<'a>,
    known: &'a KnownFields,
    group: usize,
    /// Number of the row in its row group.
    row: u64,
}

impl FieldColumns {
    pub fn add_file(&mut self) {
        self.files.push(FileFields::default());
    }

    /// Memory of page headers and metadata, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        (self.files.capacity() * size_of::<FileFields>()) as u64
            + self.memory.load(Ordering::Relaxed)
    }

    /// Memory that all pages with known headers take in the cache, in bytes.
    pub fn cached_bytes(&self) -> u64 {
        self.cached.load(Ordering::Relaxed)
    }

    /// Returns the fields of a file. Reads the metadata again if the chunks of a wanted field are
    /// not known.
    fn known(
        &self,
        number: usize,
        shard: &Shard,
        image: &str,
        wanted: &[&str],
    ) -> Result<&KnownFields, FileError> {
        let file = &self.files[number];
        let known = || file.known.get().filter(|known| known.has_chunks(wanted));
        if let Some(known) = known() {
            return Ok(known);
        }
        let _reading = file.reading.lock().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have read the metadata in the meantime.
        if let Some(known) = known() {
            return Ok(known);
        }
        let (bytes, start) = Footer::bytes(shard)?;
        let footer = Footer::parse(&bytes, start)?;
        let known = match file.known.get() {
            Some(known) => known,
            None => {
                let fields = self.fields(&bytes, start, footer.leaf(image))?;
                let mut end = 0_u64;
                let ends = footer.groups.iter().map(|group| {
                    end = end.saturating_add(group.rows);
                    end
                });
                let ends: Box<[u64]> = ends.collect();
                let chunks: Box<[_]> = fields.iter().map(|_| OnceLock::new()).collect();
                self.count(ends.len() * size_of::<u64>() + size_of_val(&*chunks));
                file.known.get_or_init(|| KnownFields { fields, ends, chunks })
            }
        };
        for (field, chunks) in known.fields.iter().zip(&known.chunks) {
            if chunks.get().is_some() || !wanted.contains(&&*field.name) {
                continue;
            }
            let leaves = leaves(&field.node);
            let of_group = footer.groups.iter().flat_map(|group| {
                let all = field.node.leaves.clone().zip(&leaves);
                all.map(|(number, leaf)| LeafChunk::new(group.chunks[number], *leaf, group.rows))
            });
            let new: Box<[LeafChunk]> = of_group.collect();
            self.count(size_of_val(&*new));
            let _ = chunks.set(new);
        }
        Ok(known)
    }

    /// Parses the fields of a file.
    fn fields(
        &self,
        footer: &[u8],
        start: u64,
        image: Option<usize>,
    ) -> Result<Arc<[FieldColumn]>, FileError> {
        let fields = columns::fields(schema::columns(footer, start)?, image);
        let shared = self.shared.get_or_init(|| {
            self.count(fields.len() * size_of::<FieldColumn>());
            fields.clone().into()
        });
        if **shared == *fields {
            return Ok(shared.clone());
        }
        self.count(fields.len() * size_of::<FieldColumn>());
        Ok(fields.into())
    }

    fn count(&self, bytes: usize) {
        self.memory.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Reads the page headers of a chunk unless they are known.
    fn learn(&self, number: usize, chunk: &LeafChunk, access: Access<'_>) -> Result<(), FileError> {
        if chunk.is_known() {
            return Ok(());
        }
        let _reading = self.files[number].reading.lock().unwrap_or_else(PoisonError::into_inner);
        if chunk.is_known() {
            return Ok(());
        }
        let key = |count| FIRST_KEY + self.pages.fetch_add(count, Ordering::Relaxed);
        let memory = chunk.learn(access, key)?;
        self.memory.fetch_add(memory.heads, Ordering::Relaxed);
        self.cached.fetch_add(memory.cached, Ordering::Relaxed);
        Ok(())
    }
}

impl KnownFields {
    /// Whether the chunks of all wanted fields are known.
    fn has_chunks(&self, wanted: &[&str]) -> bool {
        let mut fields = self.fields.iter().zip(&self.chunks);
        fields.all(|(field, chunks)| chunks.get().is_some() || !wanted.contains(&&*field.name))
    }
}

/// All leaves of a node in their order.
fn leaves(node: &Node) -> Vec<Leaf> {
    match &node.shape {
        Shape::Leaf(leaf) => vec![*leaf],
        Shape::Struct(children) => children.iter().flat_map(leaves).collect(),
        Shape::List(_, entry) => leaves(entry),
        Shape::Map(_, pair) => pair.iter().flat_map(leaves).collect(),
    }
}

impl Parquet {
    /// Reads a field of a row.
    fn read_field(
        &self,
        file: usize,
        field: usize,
        row: &Row<'_>,
        (buffer, limit): (&mut Vec<u8>, u64),
        put: &mut dyn FnMut(crate::field::FieldValue<'_>) -> Result<(), DataError>,
    ) -> Result<(), DataError> {
        let node = &row.known.fields[field].node;
        let count = node.leaves.len();
        let chunks = row.known.chunks[field].get().map_or(&[][..], |chunks| chunks);
        let chunks = chunks.get(row.group * count..(row.group + 1) * count);
        let chunks = chunks.ok_or_else(row::contradiction)?;
        let spare = self.fields.spare.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut rows = spare.unwrap_or_default();
        rows.resize_with(rows.len().max(count), LeafRow::default);
        let mut budget = Budget::new(limit);
        let read = chunks.iter().zip(&mut rows).try_for_each(|(chunk, to)| {
            to.clear();
            self.fields.learn(file, chunk, row.access)?;
            chunk.read(row.access, row.row, to, &mut budget)
        });
        let result = read.and_then(|()| assemble::pass(node, &rows[..count], buffer, limit, put));
        // Many leaves that have been large once must not keep more memory than one large field.
        let kept: usize = rows.iter().map(LeafRow::memory_bytes).sum();
        if kept as u64 <= 2 * limit {
            self.fields.spare.lock().unwrap_or_else(PoisonError::into_inner).push(rows);
        }
        result
    }
}

impl Fields for Parquet {
    /// The fields of the first file.
    fn schema(&self) -> Vec<Field> {
        let known = self.fields.known(0, &self.shards[0], &self.image, &[]);
        known.map_or(Vec::new(), |known| known.fields.iter().map(FieldColumn::field).collect())
    }

    /// The fields of all files.
    fn complete_schema(&self) -> Result<Vec<Field>> {
        let mut all: Vec<Field> = Vec::new();
        for (number, shard) in self.shards.iter().enumerate() {
            // A file that cannot be read is an error of its samples.
            let Ok(known) = self.fields.known(number, shard, &self.image, &[]) else { continue };
            for field in known.fields.iter().map(FieldColumn::field) {
                if all.iter().all(|it| it.name != field.name) {
                    all.push(field);
                }
            }
        }
        Ok(all)
    }

    /// Whether there are several files, because [`schema`](Fields::schema) lists the fields of the
    /// first one.
    fn is_open(&self) -> bool {
        self.shards.len() > 1
    }

    fn read_fields(
        &self,
        index: u64,
        wanted: &[&str],
        buffer: &mut Vec<u8>,
        limit: u64,
        put: &mut PutField<'_>,
    ) -> Result<(), DataError> {
        let number = self.shard_number(index);
        let first = if number == 0 { 0 } else { self.ends[number - 1] };
        let shard = &self.shards[number];
        let known = self.fields.known(number, shard, &self.image, wanted)?;
        let row = index - first;
        let group = known.ends.partition_point(|end| *end <= row);
        let before = if group == 0 { 0 } else { known.ends[group - 1] };
        let access = Access { shard, cache: &self.cache };
        let row = Row { access, known, group, row: row - before };
        let cached = self.fields.cached_bytes();
        for (place, name) in wanted.iter().enumerate() {
            let mut found = (0..known.fields.len()).filter(|it| known.fields[*it].name == *name);
            let Some(field) = found.next() else { continue };
            let mut failed_put = false;
            let result = self.read_field(number, field, &row, (buffer, limit), &mut |value| {
                put(place, value).inspect_err(|_| failed_put = true)
            });
            // Errors of `put` already name the field.
            result.map_err(|error| if failed_put { error } else { named(name, error) })?;
        }
        if self.fields.cached_bytes() != cached {
            self.cache.expect(self.cached_bytes());
        }
        Ok(())
    }
}

/// Adds the name of the field to an error.
fn named(name: &str, error: DataError) -> DataError {
    let colon = if error.problem.starts_with("has ") { "" } else { ":" };
    DataError::new(error.reason, format!("the field {name:?}{colon} {}", error.problem))
}
