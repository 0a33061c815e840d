//! Pages of a leaf in a row group: finds the pages of a row, and copies the row's values.

use std::sync::{Arc, OnceLock};

use super::super::cache::{Cache, Held, taken};
use super::super::column::admit;
use super::super::encoding::each;
use super::super::footer::Chunk;
use super::super::page::{Head, Sort};
use super::super::{FileError, Shard};
use super::layout::{Layout, Sections, width};
use super::row::{Budget, LeafRow};
use super::schema::{Form, Leaf};
use super::strings;
use crate::error::{DataError, Reason, reserve};
use crate::footprint::counted;

/// Values of a leaf in a row group. The headers of the pages are read on first use.
pub struct LeafChunk {
    chunk: Chunk,
    leaf: Leaf,
    /// Number of rows of the row group.
    rows: u64,
    pages: OnceLock<Pages>,
}

struct Pages {
    pages: Box<[Page]>,
    /// Why the pages after the last one cannot be read.
    damage: Option<FileError>,
    /// Number of the first page in the cache.
    key: u64,
}

/// Page of values, or dictionary page.
struct Page {
    head: Head,
    /// Row of the row group that begins first in the page. For a dictionary page, the first row of
    /// the page after it.
    first: u64,
    /// Number of rows that begin in the page.
    rows: u32,
    /// Whether the page begins with values of the row before.
    continues: bool,
    /// Number of the dictionary page that precedes the page.
    dictionary: Option<u32>,
    /// Size of the values in the encoding DELTA_BYTE_ARRAY, otherwise 0.
    text_bytes: u64,
}

/// Access to the pages of a file.
#[derive(Clone, Copy)]
pub struct Access<'a> {
    pub shard: &'a Shard,
    pub cache: &'a Cache,
}

/// Memory of pages, in bytes.
#[derive(Clone, Copy, Default)]
pub struct PageMemory {
    /// Memory of the headers.
    pub heads: u64,
    /// Memory that all pages take in the cache.
    pub cached: u64,
}

impl LeafChunk {
    pub fn new(chunk: Chunk, leaf: Leaf, rows: u64) -> Self {
        Self { chunk, leaf, rows, pages: OnceLock::new() }
    }

    /// Whether the headers of the pages were read.
    pub fn is_known(&self) -> bool {
        self.pages.get().is_some()
    }

    /// Reads the headers of all pages. Version 1 does not store the number of rows of a page of
    /// lists, and DELTA_BYTE_ARRAY does not store the size of its values, so such pages are read
    /// completely. `key` reserves keys of the cache for a number of pages, and returns the first
    /// key.
    ///
    /// # Errors
    /// [`Reason::Unreadable`] if the file cannot be read. Damaged pages are errors of the rows that
    /// need them. If the number of rows is wrong, all rows are errors.
    pub fn learn(
        &self,
        access: Access<'_>,
        key: impl FnOnce(u64) -> u64,
    ) -> Result<PageMemory, FileError> {
        let mut pages = Vec::new();
        let mut damage = match self.walk(access, &mut pages) {
            Err(error) if error.reason == Reason::Unreadable => return Err(error),
            result => result.err(),
        };
        if let Err(wrong) = self.check_counts(&pages, damage.is_some()) {
            damage = Some(wrong);
            // The rows of every page are doubtful.
            pages.clear();
        }
        let mut memory = PageMemory { heads: (pages.len() * size_of::<Page>()) as u64, cached: 0 };
        for page in &pages {
            let layout = self.layout(page)?;
            let stored = page.head.room(self.chunk.codec);
            memory.cached += (taken(layout.bytes() as usize) + taken(stored)) as u64;
        }
        let key = key(pages.len() as u64);
        // Only one thread at a time calls this method.
        let _ = self.pages.set(Pages { pages: pages.into(), damage, key });
        Ok(memory)
    }

    fn walk(&self, access: Access<'_>, pages: &mut Vec<Page>) -> Result<(), FileError> {
        let Access { shard, cache } = access;
        let Chunk { codec, start, end, .. } = self.chunk;
        let (mut at, mut row, mut dictionary) = (start, 0, None);
        // The last row of a repeated column may continue in further pages. In other columns,
        // further rows show that a header is damaged.
        while at < end {
            let head = Head::read(shard, at, end)?;
            at = head.end();
            if head.sort == Sort::Other {
                continue;
            }
            admit(&head, codec, cache)?;
            let is_dictionary = head.sort == Sort::Dictionary;
            let mut page = Page {
                head,
                first: row,
                rows: match head.sort {
                    Sort::Dictionary | Sort::Other => 0,
                    Sort::DataV2 { rows, .. } if self.leaf.repetition > 0 => rows,
                    Sort::Data { .. } | Sort::DataV2 { .. } => head.values,
                },
                continues: false,
                dictionary,
                text_bytes: 0,
            };
            if self.must_read(&head) {
                let (size, stored) = (head.size as usize, head.room(codec));
                cache.borrow(size, stored, |body, stored| {
                    head.body(shard, codec, body, stored)?;
                    page.inspect(&self.leaf, body)
                })?;
            }
            if page.continues && row == 0 || page.rows > head.values {
                return Err(head.damaged("it has the wrong number of rows"));
            }
            let bytes = self.layout(&page)?.bytes();
            let fits = bytes <= cache.limit() && cache.fits(bytes as usize, head.room(codec));
            if !fits {
                let problem = format!(
                    "a page needs {bytes} bytes after it is decoded, and {} more while it is \
                     compressed, but source.cache_bytes is {}; raise source.cache_bytes, or write \
                     smaller pages",
                    head.room(codec),
                    cache.limit()
                );
                return Err(FileError { reason: Reason::Oversized, offset: head.start, problem });
            }
            row += u64::from(page.rows);
            if is_dictionary {
                dictionary = Some(pages.len() as u32);
            }
            pages.push(page);
        }
        Ok(())
    }

    /// Checks the number of rows and values. If the chunk `is_cut`, it may have fewer.
    fn check_counts(&self, pages: &[Page], is_cut: bool) -> Result<(), FileError> {
        let rows: u64 = pages.iter().map(|page| u64::from(page.rows)).sum();
        let data = pages.iter().filter(|page| page.head.sort != Sort::Dictionary);
        let values: u64 = data.map(|page| u64::from(page.head.values)).sum();
        for (found, stated, what) in
            [(rows, Some(self.rows), "row"), (values, self.chunk.values, "value")]
        {
            let Some(stated) = stated else { continue };
            if found > stated || found < stated && !is_cut {
                let problem = format!(
                    "the pages have {}, but the metadata states {stated}: the file is damaged; \
                     copy it again",
                    counted(found, what)
                );
                return Err(FileError::corrupt(self.chunk.start, problem));
            }
        }
        Ok(())
    }

    /// Whether the header does not state everything that is stored in a [`Page`].
    fn must_read(&self, head: &Head) -> bool {
        let is_shared =
            head.encoding == 7 && matches!(self.leaf.form, Form::Bytes | Form::Fixed(_));
        let has_unknown_rows = self.leaf.repetition > 0 && matches!(head.sort, Sort::Data { .. });
        head.sort != Sort::Dictionary && (is_shared || has_unknown_rows)
    }

    fn layout(&self, page: &Page) -> Result<Layout, FileError> {
        Layout::of(&page.head, &self.leaf, page.rows, page.text_bytes)
    }

    /// Copies the levels and values of a row. [`learn`](Self::learn) must have been called.
    pub fn read(
        &self,
        access: Access<'_>,
        row: u64,
        to: &mut LeafRow,
        budget: &mut Budget,
    ) -> Result<(), DataError> {
        let lacking = || FileError::corrupt(self.chunk.start, "the row is in no page");
        let pages = self.pages.get().ok_or_else(lacking)?;
        let damage = || pages.damage.clone().unwrap_or_else(lacking);
        let after = pages.pages.partition_point(|page| page.first <= row);
        let mut number = after.checked_sub(1).ok_or_else(damage)?;
        let page = &pages.pages[number];
        let place = row - page.first;
        if place >= page.rows.into() {
            return Err(damage().into());
        }
        self.copy(access, pages, number, Some(place as u32), to, budget)?;
        // The last row of a page may continue in the pages after it.
        let mut is_last = place + 1 == u64::from(page.rows);
        while is_last {
            let rest = &pages.pages[number + 1..];
            let has_values = |it: &Page| it.head.sort != Sort::Dictionary && it.head.values > 0;
            let Some(next) = rest.iter().position(has_values) else {
                if pages.damage.is_some() && self.leaf.repetition > 0 {
                    return Err(damage().into());
                }
                break;
            };
            number += next + 1;
            if !pages.pages[number].continues {
                break;
            }
            self.copy(access, pages, number, None, to, budget)?;
            is_last = pages.pages[number].rows == 0;
        }
        Ok(())
    }

    /// Copies the values of a row of a page, or the values before the first row of the page.
    fn copy(
        &self,
        access: Access<'_>,
        pages: &Pages,
        number: usize,
        row: Option<u32>,
        to: &mut LeafRow,
        budget: &mut Budget,
    ) -> Result<(), DataError> {
        let page = &pages.pages[number];
        let layout = self.layout(page)?;
        let held = self.load(access, pages, number)?;
        let view = layout.view(held.bytes());
        let span = row.map_or_else(|| view.beginning(), |row| view.row(row));
        view.copy(span, to, budget)?;
        // A thread may not hold two pages.
        drop(held);
        if to.indices.is_empty() {
            return Ok(());
        }
        let Some(number) = page.dictionary.map(|it| it as usize) else {
            return Err(page.head.damaged("it needs a dictionary, but none precedes it").into());
        };
        let page = &pages.pages[number];
        let held = self.load(access, pages, number)?;
        let layout = self.layout(page)?;
        let view = layout.view(held.bytes());
        let LeafRow { indices, .. } = to;
        let indices = std::mem::take(indices);
        let mut size = 0;
        for &index in &indices {
            let Some(span) = view.entry(index as usize) else {
                let problem = format!("a row refers to value {index}, which it does not have");
                return Err(page.head.damaged(&problem).into());
            };
            size += view.size(&span.values);
        }
        budget.take(0, size)?;
        let (bytes, ends) = (to.bytes.len() + size, to.ends.len() + indices.len());
        reserve::reserve(&mut to.bytes, bytes)?;
        reserve::reserve(&mut to.ends, ends)?;
        for &index in &indices {
            view.append(index as usize..index as usize + 1, to)?;
        }
        to.indices = indices;
        to.indices.clear();
        Ok(())
    }

    /// Loads a decoded page into the cache.
    fn load<'a>(
        &self,
        access: Access<'a>,
        pages: &Pages,
        number: usize,
    ) -> Result<Held<'a>, FileError> {
        let Access { shard, cache } = access;
        let page = &pages.pages[number];
        let (key, codec) = (pages.key + number as u64, self.chunk.codec);
        if let Some(held) = cache.find(key) {
            return Ok(held);
        }
        let layout = self.layout(page)?;
        let (size, stored) = (layout.bytes() as usize, page.head.room(codec));
        cache.load(key, size, stored, |buffer, stored| {
            page.head.body(shard, codec, &mut buffer[..page.head.size as usize], stored)?;
            layout.decode(&page.head, page.continues, buffer)?;
            Ok(Arc::default())
        })
    }
}

impl Page {
    /// Reads from a page what its header does not state.
    fn inspect(&mut self, leaf: &Leaf, body: &[u8]) -> Result<(), FileError> {
        let head = self.head;
        let damaged = || head.damaged("it has the wrong number of levels or values");
        let sections = Sections::of(&head, leaf, body)?;
        let count = head.values as usize;
        if leaf.repetition > 0 && matches!(head.sort, Sort::Data { .. }) {
            let (mut rows, mut first) = (0, None);
            let levels = &body[sections.repetitions];
            each(levels, width(leaf.repetition), count, |level| {
                first.get_or_insert(level);
                rows += u32::from(level == 0);
            })
            .ok_or_else(damaged)?;
            self.rows = rows;
            self.continues = first.is_some_and(|level| level > 0);
        }
        if head.encoding == 7 {
            let bytes = strings::shared_bytes(&body[sections.end..], count);
            self.text_bytes = bytes.ok_or_else(damaged)?;
        }
        Ok(())
    }
}
