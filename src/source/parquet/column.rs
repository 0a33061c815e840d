//! Column of byte arrays: finds the pages of a row and reads single values.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use super::cache::{Cache, taken};
use super::codec::Codec;
use super::footer::{Chunk, PhysicalType};
use super::page::{Contents, Head, Held, NULL, Sort, Values};
use super::{FileError, Shard};
use crate::error::Reason;
use crate::footprint::counted;

/// Marks a page that has no dictionary.
const NO_DICTIONARY: u32 = u32::MAX;

/// One column of all files. The positions of values in a page are stored when the page is first
/// read. They take at most four bytes per row and four per value.
pub struct Column {
    /// Distinguishes the cache keys of this column from those of other columns.
    tag: u32,
    pages: Vec<Page>,
}

struct Page {
    shard: u32,
    /// Number of the dictionary page, or [`NO_DICTIONARY`].
    dictionary: u32,
    /// Index of the first row of the page. For a dictionary page, index of the first row of the
    /// page after it.
    first: u64,
    codec: Codec,
    /// Definition level of a non-null value.
    defined: u32,
    head: Head,
    /// Whether values can be located without reading the whole page.
    hops: bool,
    layout: OnceLock<Layout>,
}

/// Positions of the values in a page, which are stored after the first read of the page.
struct Layout {
    rows: Option<Box<[u32]>>,
    /// Whether the values are in a dictionary page.
    elsewhere: bool,
    /// Positions of the values in the page. `None` unless the bytes are stored uncompressed.
    values: Option<Arc<Values>>,
}

/// Location of the value of a row.
enum ValueLocation<'a> {
    Null,
    /// Value `number` of this page.
    Value {
        page: &'a Page,
        key: u32,
        number: u32,
    },
}

impl Column {
    pub fn new(tag: u32) -> Self {
        Self { tag, pages: Vec::new() }
    }

    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// Adds the pages of a column chunk by reading their headers. `rows` are the rows of the chunk.
    /// The pages get the file number 0, which [`append`](Self::append) replaces.
    pub fn walk(
        &mut self,
        shard: &Shard,
        chunk: &Chunk,
        defined: u32,
        rows: Range<u64>,
        cache: &Cache,
    ) -> Result<(), FileError> {
        let (mut at, mut row, mut dictionary) = (chunk.start, rows.start, NO_DICTIONARY);
        while at < chunk.end && row < rows.end {
            let head = Head::read(shard, at, chunk.end)?;
            if head.sort != Sort::Other {
                admit(&head, chunk.codec, cache)?;
                if head.sort == Sort::Dictionary {
                    dictionary = self.pages.len() as u32;
                }
                self.pages.push(Page {
                    shard: 0,
                    dictionary,
                    first: row,
                    codec: chunk.codec,
                    // Entries of a dictionary have no definition levels.
                    defined: if head.sort == Sort::Dictionary { 0 } else { defined },
                    head,
                    hops: head.can_hop(chunk.codec, shard),
                    layout: OnceLock::new(),
                });
                if head.sort != Sort::Dictionary {
                    row += u64::from(head.values);
                }
            }
            at = head.end();
        }
        if row != rows.end {
            let problem = format!(
                "the pages have {}, but the row group has {}: the file is damaged; copy it again",
                counted(row - rows.start, "row"),
                rows.end - rows.start
            );
            return Err(FileError::corrupt(chunk.start, problem));
        }
        Ok(())
    }

    /// Appends the pages of file `shard`. `rows` is the number of rows in all earlier files.
    pub fn append(&mut self, other: Column, shard: u32, rows: u64) {
        let before = self.pages.len() as u32;
        self.pages.extend(other.pages.into_iter().map(|mut page| {
            page.shard = shard;
            page.first += rows;
            if page.dictionary != NO_DICTIONARY {
                page.dictionary += before;
            }
            page
        }));
    }

    /// Reads the value of a row into the buffer that `space` returns. Returns `false` if the row
    /// has no value.
    pub fn read<'a, E: From<FileError>>(
        &self,
        shards: &[Shard],
        cache: &Cache,
        row: u64,
        space: impl FnOnce(usize) -> Result<&'a mut [u8], E>,
    ) -> Result<bool, E> {
        let ValueLocation::Value { page, key, number } = self.place(shards, cache, row)? else {
            return Ok(false);
        };
        if let Some(block) = cache.find(self.key(key)) {
            let value = page.value(&block.values, number)?;
            space(value.len())?.copy_from_slice(&block.bytes()[value]);
            return Ok(true);
        }
        if page.hops {
            self.learn(shards, cache, key)?;
        }
        let known = page.layout.get().and_then(|layout| layout.values.as_ref());
        if let Some(values) = known {
            let value = page.value(values, number)?;
            let space = space(value.len())?;
            shards[page.shard as usize].read(space, page.head.start + value.start as u64)?;
            return Ok(true);
        }
        let block = self.load(shards, cache, key)?;
        let value = page.value(&block.values, number)?;
        space(value.len())?.copy_from_slice(&block.bytes()[value]);
        Ok(true)
    }

    /// Size of the largest value in bytes, estimated from evenly spread pages. At most `bytes`
    /// bytes of pages are read.
    pub fn largest(&self, shards: &[Shard], cache: &Cache, bytes: u64) -> u64 {
        let all: u64 = self.pages.iter().map(|page| u64::from(page.head.size)).sum();
        let step = all.div_ceil(bytes.max(1)).max(1) as usize;
        let chosen = (0..self.pages.len()).step_by(step);
        let sizes = chosen.filter_map(|number| {
            let page = &self.pages[number];
            let key =
                if page.head.is_dictionary_encoded() { page.dictionary } else { number as u32 };
            let known = || self.pages.get(key as usize)?.layout.get()?.values.clone();
            self.learn(shards, cache, key).ok()?;
            let values = known().or_else(|| Some(self.load(shards, cache, key).ok()?.unused()));
            values.map(|values| values.largest())
        });
        sizes.max().unwrap_or(0)
    }

    /// Memory for the pages and for the positions of the values of `rows` rows, in bytes.
    pub fn memory_bytes(&self, rows: u64) -> u64 {
        let learnt = if self.pages.is_empty() { 0 } else { 8 * rows };
        (self.pages.capacity() * size_of::<Page>()) as u64 + learnt
    }

    /// Memory that all pages would take in the cache, in bytes.
    pub fn cached_bytes(&self) -> u64 {
        let taken = |page: &Page| {
            let (size, stored) = page.sizes();
            if page.hops { 0 } else { taken(size) + taken(stored) }
        };
        self.pages.iter().map(|page| taken(page) as u64).sum()
    }

    fn key(&self, number: u32) -> u64 {
        u64::from(self.tag) << 32 | u64::from(number)
    }

    fn page(&self, key: u32) -> Result<&Page, FileError> {
        self.pages.get(key as usize).ok_or_else(|| {
            FileError::corrupt(
                0,
                "a page refers to a dictionary, but no dictionary precedes it: the file is \
                 damaged; copy it again",
            )
        })
    }

    fn place(
        &self,
        shards: &[Shard],
        cache: &Cache,
        row: u64,
    ) -> Result<ValueLocation<'_>, FileError> {
        // A file has no pages in a column of paths if all its rows contain their images. In this
        // case the search finds a page of an earlier file, which does not contain the row.
        let after = self.pages.partition_point(|page| page.first <= row);
        let page = after.checked_sub(1).map(|key| (key, &self.pages[key]));
        let Some((key, page)) = page.filter(|(_, page)| row - page.first < page.head.values.into())
        else {
            return Ok(ValueLocation::Null);
        };
        self.learn(shards, cache, key as u32)?;
        let layout = page.layout.get().expect("learned above");
        let row = (row - page.first) as u32;
        let number = layout.rows.as_ref().map_or(row, |rows| rows[row as usize]);
        if number == NULL {
            return Ok(ValueLocation::Null);
        }
        if !layout.elsewhere {
            return Ok(ValueLocation::Value { page, key: key as u32, number });
        }
        Ok(ValueLocation::Value { page: self.page(page.dictionary)?, key: page.dictionary, number })
    }

    /// Reads a page and stores the positions of its values, unless they are already stored.
    fn learn(&self, shards: &[Shard], cache: &Cache, key: u32) -> Result<(), FileError> {
        let page = self.page(key)?;
        if page.layout.get().is_some() {
            return Ok(());
        }
        if page.hops {
            page.keep(page.head.hop(&shards[page.shard as usize], page.defined)?);
            return Ok(());
        }
        if !page.head.is_dictionary_encoded() {
            self.load(shards, cache, key)?.unused();
            return Ok(());
        }
        // The bytes of the page are not needed after the dictionary indices are known, so they are
        // not cached.
        let (size, stored) = page.sizes();
        cache.borrow(size, stored, |body, stored| {
            page.head.body(&shards[page.shard as usize], page.codec, body, stored)?;
            page.keep(page.head.contents(body, page.defined, PhysicalType::Bytes)?);
            Ok(())
        })
    }

    /// Loads a page that contains its own values into the cache.
    fn load<'a>(
        &self,
        shards: &[Shard],
        cache: &'a Cache,
        key: u32,
    ) -> Result<super::cache::Held<'a>, FileError> {
        let page = self.page(key)?;
        let (size, stored) = page.sizes();
        cache.load(self.key(key), size, stored, |body, stored| {
            page.head.body(&shards[page.shard as usize], page.codec, body, stored)?;
            let contents = match page.head.sort {
                Sort::Dictionary => {
                    let values = Held::Here(page.head.entries(body)?);
                    Contents { rows: None, values }
                }
                _ => page.head.contents(body, page.defined, PhysicalType::Bytes)?,
            };
            Ok(page.keep(contents))
        })
    }
}

/// Returns an error for a page with impossible sizes, or a page that is larger than the cache.
pub fn admit(head: &Head, codec: Codec, cache: &Cache) -> Result<(), FileError> {
    head.check_size(codec)?;
    let stored = head.room(codec);
    if cache.fits(head.size as usize, stored) {
        return Ok(());
    }
    let problem = format!(
        "a page needs {} bytes, and {stored} more while it is compressed, but source.cache_bytes \
         is {}; raise source.cache_bytes, or write smaller pages",
        head.size,
        cache.limit()
    );
    Err(FileError { reason: Reason::Oversized, offset: head.start, problem })
}

impl Page {
    fn value(&self, values: &Values, number: u32) -> Result<Range<usize>, FileError> {
        values.get(number).ok_or_else(|| {
            let words = format!(
                "a row refers to value {number} of the dictionary, which has {} values",
                values.len()
            );
            self.head.damaged(&words)
        })
    }

    /// Sizes in bytes of the decompressed page, and of the buffer for its compressed bytes.
    fn sizes(&self) -> (usize, usize) {
        (self.head.size as usize, self.head.room(self.codec))
    }

    /// Stores the positions of the values of a page, and returns them.
    fn keep(&self, contents: Contents) -> Arc<Values> {
        let (elsewhere, values) = match contents.values {
            Held::Here(values) => (false, values),
            Held::Dictionary | Held::Numbers { .. } => (true, Values::default()),
        };
        let values = Arc::new(values);
        let plain = self.head.is_plain(self.codec) && !elsewhere;
        let known = plain.then(|| values.clone());
        // If another thread has already stored the positions, `set` fails. The stored positions are
        // the same.
        let _ = self.layout.set(Layout { rows: contents.rows, elsewhere, values: known });
        values
    }
}
