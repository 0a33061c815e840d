//! Reads the pages of an LMDB environment. The structures are those of `mdb.c` (`MDB_page`,
//! `MDB_node`, `MDB_meta`, `MDB_db`, `MDB_ovpage`) in LMDB 0.9 (data version 1) and LMDB 1.0 (data
//! version 3):
//!
//! ```text
//! page    number 8 | 1.0: transaction 8 | pad 2 | flags 2 | lower 2, upper 2 (overflow: pages 4) | pointers 2 each
//! node    leaf: data size 4, flags 2; branch: child's number 6 | key size 2 | key | leaf: data (1.0: aligned to 2)
//! meta    magic 4 | version 4 | address 8 | map size 8 | free database 48 | main database 48 | last page 8 | transaction 8
//! database    pad 4 (free: page size) | flags 2 | depth 2 | pages 24 | entries 8 | root 8
//! ```
//!
//! Numbers have the byte order and width of the machine that wrote the file. Only 64-bit
//! little-endian machines are supported.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::ops::Range;

use crate::footprint::counted;
use crate::source::records::{FileError, Window};

const MAGIC: [u8; 4] = 0xbeef_c0de_u32.to_le_bytes();
/// Largest depth of a tree that the library supports (`CURSOR_STACK`).
const MOST_LEVELS: usize = 32;
const NO_PAGE: u64 = u64::MAX;
const METAS: u64 = 2;

const BRANCH: u16 = 0x01;
const LEAF: u16 = 0x02;
const OVERFLOW: u16 = 0x04;
const META: u16 = 0x08;
/// Mask of the page flags that contain the type of a page.
const SORT: u16 = 0x6f;

const BIG_DATA: u16 = 0x01;
const SUB_DATA: u16 = 0x02;
const DUPLICATES: u16 = 0x04;

const REVERSE_KEY: u16 = 0x02;
const DUPSORT: u16 = 0x04;
const INTEGER_KEY: u16 = 0x08;
const ENCRYPTED: u16 = 0x2000;

/// Properties in which data versions 1 (LMDB 0.9) and 3 (LMDB 1.0) differ.
#[derive(Clone, Copy)]
struct Layout {
    version: u32,
    /// Size of the page header in bytes. The pointers to the nodes follow the header.
    header: usize,
    /// Offset in the page from which the pointers to nodes, and the header fields `lower` and
    /// `upper`, are counted.
    base: usize,
    /// Whether data version 3 is used: the data of a node begin at even offsets, and a node whose
    /// value is on an overflow page contains more numbers than the number of this page.
    aligned: bool,
}

const LAYOUTS: [Layout; 2] = [
    Layout { version: 1, header: 16, base: 0, aligned: false },
    Layout { version: 3, header: 24, base: 24, aligned: true },
];

/// B+ tree of keys and values.
#[derive(Clone, Copy)]
pub struct Database {
    flags: u16,
    entries: u64,
    root: u64,
}

/// A key with its value.
pub struct Node<'a> {
    /// Offset of the node in the file.
    pub offset: u64,
    pub key: &'a [u8],
    pub value: Value,
}

pub enum Value {
    /// Byte range of the value in the file.
    Bytes(Range<u64>),
    /// Root of a named database.
    Database(Database),
}

/// State of a file according to the newer of its two meta pages, and the pages that have been
/// visited so far.
pub struct Environment {
    layout: Layout,
    page_bytes: u64,
    /// Total number of pages, used or free.
    pages: u64,
    main: Database,
    tree_pages: HashSet<u64>,
    overflow: Vec<Run>,
}

/// Consecutive pages that hold one value.
struct Run {
    pages: Range<u64>,
    /// Offset of the node that refers to these pages.
    node: u64,
}

impl Environment {
    /// Reads both meta pages. Both must be valid, as in `mdb_env_read_header`.
    pub fn open(window: &mut Window) -> Result<Self, FileError> {
        let layout = layout(window)?;
        let first = meta(window, layout, 0, 0)?;
        let page_bytes = first.page_bytes;
        let second = meta(window, layout, 1, page_bytes)?;
        if second.page_bytes != page_bytes {
            let problem = format!(
                "the second meta page has the page size {}, but the first has {page_bytes}: the \
                 file is damaged",
                second.page_bytes
            );
            return Err(FileError::new(page_bytes, problem));
        }
        let newest = if second.transaction > first.transaction { second } else { first };
        let pages = newest.last_page.saturating_add(1).min(window.file_len() / page_bytes);
        let main = newest.main;
        window.read_ahead(page_bytes.max(4096));
        Ok(Self {
            layout,
            page_bytes,
            pages,
            main,
            tree_pages: HashSet::new(),
            overflow: Vec::new(),
        })
    }

    /// Returns the unnamed database.
    pub fn main(&self) -> Database {
        self.main
    }

    /// Calls `found` with every key and value of a database, in the order of keys.
    pub fn each(
        &mut self,
        window: &mut Window,
        database: Database,
        found: &mut dyn FnMut(&mut Window, Node) -> Result<(), FileError>,
    ) -> Result<(), FileError> {
        let root = database.root;
        if database.flags & DUPSORT != 0 {
            let problem = "the database has several values per key (DUPSORT), which are too short for images; \
                           set source.database to another one, or write it without dupsort";
            return Err(FileError::new(0, problem));
        }
        if root == NO_PAGE && database.entries == 0 {
            return Ok(());
        }
        let mut walk =
            Walk { environment: self, window, database, entries: 0, last: Vec::new(), found };
        walk.page(root, 0, 1)?;
        let entries = walk.entries;
        if entries != database.entries {
            let problem = format!(
                "by its header, the database has {}, but its pages contain {entries}: the file is \
                 damaged",
                counted(database.entries, "entry")
            );
            return Err(FileError::new(root * self.page_bytes, problem));
        }
        self.check_overlaps()
    }

    /// Reads the key and the byte range of the value of the node at this offset.
    pub fn node(
        &self,
        window: &mut Window,
        offset: u64,
    ) -> Result<(Vec<u8>, Range<u64>), FileError> {
        let at = offset / self.page_bytes * self.page_bytes;
        let bytes = window.at(at, self.page_bytes)?.to_vec();
        let page = Page { offset: at, layout: self.layout, bytes: &bytes };
        let is_leaf = page.sort(at / self.page_bytes)? == LEAF;
        for node in page.nodes()?.filter(|_| is_leaf) {
            let node = node?;
            if at + node.start as u64 == offset
                && let (Value::Bytes(value), _) = self.value(window, &page, &node)?
            {
                return Ok((bytes[node.start + 8..node.end].to_vec(), value));
            }
        }
        Err(FileError::new(offset, "expected a key here: the file was changed"))
    }

    /// Returns the value of a node of a leaf, and the pages that hold the value if they hold
    /// nothing else.
    fn value(
        &self,
        window: &mut Window,
        page: &Page,
        node: &Range<usize>,
    ) -> Result<(Value, Option<Run>), FileError> {
        let offset = page.offset + node.start as u64;
        let wrong = |problem: String| Err(FileError::new(offset, problem));
        let Environment { layout, page_bytes, pages, .. } = *self;
        let start = if layout.aligned { node.end.next_multiple_of(2) } else { node.end };
        let (size, flags) = (u32(page.bytes, node.start), u16(page.bytes, node.start + 4));
        let here = |len: usize| page.bytes.get(start..).and_then(|data| data.get(..len));
        if flags & DUPLICATES != 0 {
            wrong(
                "a key has several values, but the database has one value per key: the file is \
                 damaged"
                    .into(),
            )
        } else if flags & SUB_DATA != 0 {
            let Some(record) = here(48) else { return wrong(leaves("a database")) };
            Ok((Value::Database(Database::read(record)), None))
        } else if flags & BIG_DATA != 0 {
            let Some(number) = here(8) else { return wrong(leaves("a page's number")) };
            let first = u64(number, 0);
            let bytes = layout.header as u64 + u64::from(size);
            let end = first.saturating_add(bytes.div_ceil(page_bytes));
            if first < METAS || end > pages {
                return wrong(beyond("a value's page", first, pages));
            }
            let at = first * page_bytes;
            let head = window.at(at, layout.header as u64)?;
            if (Page { offset: at, layout, bytes: head }).sort(first)? != OVERFLOW {
                let problem =
                    "expected the start of a value, found another page: the file is damaged";
                return Err(FileError::new(at, problem));
            }
            let run = Run { pages: first..end, node: offset };
            Ok((Value::Bytes(at + layout.header as u64..at + bytes), Some(run)))
        } else {
            if here(size as usize).is_none() {
                return wrong(leaves("a value"));
            }
            let start = page.offset + start as u64;
            Ok((Value::Bytes(start..start + u64::from(size)), None))
        }
    }

    /// Returns an error if two values, or a value and a page of keys, overlap.
    fn check_overlaps(&mut self) -> Result<(), FileError> {
        self.overflow.sort_unstable_by_key(|run| run.pages.start);
        let twice = |page: u64, node| {
            FileError::new(
                node,
                format!(
                    "page {page} belongs to this value, and also to another value or to the keys: the \
                     file is damaged"
                ),
            )
        };
        for pair in self.overflow.windows(2) {
            if pair[0].pages.end > pair[1].pages.start {
                return Err(twice(pair[1].pages.start, pair[1].node));
            }
        }
        for &page in &self.tree_pages {
            let after = self.overflow.partition_point(|run| run.pages.start <= page);
            match after.checked_sub(1).map(|before| &self.overflow[before]) {
                Some(run) if run.pages.contains(&page) => return Err(twice(page, run.node)),
                _ => {}
            }
        }
        Ok(())
    }
}

struct Walk<'a, 'w> {
    environment: &'a mut Environment,
    window: &'a mut Window<'w>,
    database: Database,
    entries: u64,
    /// Key of the previous node. Keys must be in ascending order.
    last: Vec<u8>,
    found: &'a mut dyn FnMut(&mut Window, Node) -> Result<(), FileError>,
}

impl Walk<'_, '_> {
    /// Visits a page and all pages below it. `from` is the offset in the file of the node that
    /// refers to the page.
    fn page(&mut self, number: u64, from: u64, level: usize) -> Result<(), FileError> {
        let Environment { layout, page_bytes, pages, .. } = *self.environment;
        if !(METAS..pages).contains(&number) {
            return Err(FileError::new(from, beyond("a page", number, pages)));
        }
        let offset = number * page_bytes;
        if level > MOST_LEVELS {
            let problem =
                format!("the tree has more than {MOST_LEVELS} levels: the file is damaged");
            return Err(FileError::new(offset, problem));
        }
        if !self.environment.tree_pages.insert(number) {
            return Err(FileError::new(
                from,
                format!("two nodes refer to page {number}: the file is damaged"),
            ));
        }
        let bytes = self.window.at(offset, page_bytes)?.to_vec();
        let page = Page { offset, layout, bytes: &bytes };
        match page.sort(number)? {
            LEAF => {
                for node in page.nodes()? {
                    self.leaf(&page, node?)?;
                }
            }
            BRANCH => {
                for node in page.nodes()? {
                    let node = node?;
                    // In a branch, the first six bytes of a node are the number of the child page.
                    // In a leaf, they are the size of the data and the flags.
                    let child = u64::from(u32(page.bytes, node.start))
                        | u64::from(u16(page.bytes, node.start + 4)) << 32;
                    self.page(child, offset + node.start as u64, level + 1)?;
                }
            }
            sort => {
                let problem = format!(
                    "expected a page of keys, found a page with the flags {sort:#x}: the file is \
                     damaged"
                );
                return Err(FileError::new(offset, problem));
            }
        }
        Ok(())
    }

    fn leaf(&mut self, page: &Page, node: Range<usize>) -> Result<(), FileError> {
        let offset = page.offset + node.start as u64;
        let wrong = |problem: String| Err(FileError::new(offset, problem));
        let key = &page.bytes[node.start + 8..node.end];
        if self.entries > 0 && self.database.compare(&self.last, key) != Ordering::Less {
            return wrong(
                "the key does not sort after the previous key: the file is damaged".into(),
            );
        }
        self.last.clear();
        self.last.extend_from_slice(key);
        self.entries += 1;
        let (value, run) = self.environment.value(self.window, page, &node)?;
        self.environment.overflow.extend(run);
        (self.found)(self.window, Node { offset, key, value })
    }
}

impl Database {
    fn read(record: &[u8]) -> Self {
        Self { flags: u16(record, 4), entries: u64(record, 32), root: u64(record, 40) }
    }

    /// Compares two keys. Reversed keys and integer keys are compared from the last byte on.
    fn compare(self, a: &[u8], b: &[u8]) -> Ordering {
        if self.flags & (REVERSE_KEY | INTEGER_KEY) != 0 {
            a.iter().rev().cmp(b.iter().rev())
        } else {
            a.cmp(b)
        }
    }
}

/// A page of the file. `bytes` contains the whole page, or at least its header.
struct Page<'a> {
    offset: u64,
    layout: Layout,
    bytes: &'a [u8],
}

impl Page<'_> {
    /// Checks the page number and returns the type of the page.
    fn sort(&self, number: u64) -> Result<u16, FileError> {
        let own = u64(self.bytes, 0);
        if own != number {
            let problem = format!("expected page {number}, found page {own}: the file is damaged");
            return Err(FileError::new(self.offset, problem));
        }
        Ok(u16(self.bytes, self.layout.header - 6) & SORT)
    }

    /// Returns the byte range of the header and key of every node. The data of a node follow its
    /// range.
    fn nodes(&self) -> Result<impl Iterator<Item = Result<Range<usize>, FileError>>, FileError> {
        let Layout { header, base, .. } = self.layout;
        let end = base + usize::from(u16(self.bytes, header - 4));
        if end < header || end > self.bytes.len() {
            return Err(FileError::new(self.offset, leaves("the list of keys")));
        }
        let pointers = self.bytes[header..end].chunks_exact(2);
        Ok(pointers.map(move |pointer| {
            let start = base + usize::from(u16(pointer, 0));
            let wrong = || FileError::new(self.offset + start as u64, leaves("a key"));
            if start < end || start + 8 > self.bytes.len() {
                return Err(wrong());
            }
            let end = start + 8 + usize::from(u16(self.bytes, start + 6));
            if end > self.bytes.len() { Err(wrong()) } else { Ok(start..end) }
        }))
    }
}

struct MetaPage {
    page_bytes: u64,
    main: Database,
    last_page: u64,
    transaction: u64,
}

/// Detects the layout of the file. The file must be from a 64-bit little-endian machine.
fn layout(window: &mut Window) -> Result<Layout, FileError> {
    let head = window.at(0, window.file_len().min(32))?;
    let at = |place: usize| head.get(place..place + 4);
    let version = |place: usize| at(place + 4).map(|bytes| u32(bytes, 0));
    for layout in LAYOUTS {
        if at(layout.header) == Some(&MAGIC) && version(layout.header) == Some(layout.version) {
            return Ok(layout);
        }
    }
    let swapped: Vec<u8> = MAGIC.into_iter().rev().collect();
    let other = [8, 12, 16, 24].into_iter().find(|&place| at(place) == Some(&MAGIC));
    let foreign = [8, 12, 16, 24].into_iter().any(|place| at(place) == Some(&swapped));
    let problem = match other {
        _ if at(0) == Some(&MAGIC) => {
            "the file is the lock of an environment; use the data.mdb next to it".into()
        }
        _ if foreign => {
            "the environment is from a big-endian machine; write it on a little-endian one".into()
        }
        Some(12) => "the environment is from a 32-bit program; write it with a 64-bit one".into(),
        Some(place) => format!(
            "the file has version {} of the format, but only 1 (LMDB 0.9) and 3 (LMDB 1.0) are \
             supported; copy it with mdb_dump and mdb_load of one of these",
            version(place).unwrap_or(0)
        ),
        None => "the file is not an LMDB environment, or is damaged".into(),
    };
    Err(FileError::new(0, problem))
}

fn meta(
    window: &mut Window,
    layout: Layout,
    number: u64,
    page_bytes: u64,
) -> Result<MetaPage, FileError> {
    const BYTES: usize = 136;
    let offset = number * page_bytes;
    let bytes = window.at(offset, (layout.header + BYTES) as u64)?;
    let page = Page { offset, layout, bytes };
    let sort = page.sort(number)?;
    let meta = &bytes[layout.header..];
    if sort != META || meta[..4] != MAGIC || u32(meta, 4) != layout.version {
        return Err(FileError::new(offset, "expected a meta page: the file is damaged"));
    }
    let (flags, page_bytes) = (u16(meta, 28), u32(meta, 24));
    if flags & ENCRYPTED != 0 {
        return Err(FileError::new(
            offset,
            "the environment is encrypted; copy it into one that is not",
        ));
    }
    if !page_bytes.is_power_of_two() || !(256..=1 << 16).contains(&page_bytes) {
        let problem = format!(
            "the page size is {page_bytes} bytes, which LMDB does not allow: the file is damaged"
        );
        return Err(FileError::new(offset, problem));
    }
    let main = Database::read(&meta[72..120]);
    let (last_page, transaction) = (u64(meta, 120), u64(meta, 128));
    Ok(MetaPage { page_bytes: page_bytes.into(), main, last_page, transaction })
}

fn beyond(what: &str, number: u64, pages: u64) -> String {
    format!(
        "{what} has number {number}, but the file has only {pages} pages: it is truncated or \
         damaged; copy it again"
    )
}

fn leaves(what: &str) -> String {
    format!("{what} exceeds its page: the file is damaged")
}

/// Reads a little-endian number at offset `at`, which must be within `bytes`.
fn u16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16(bytes, at)) | u32::from(u16(bytes, at + 2)) << 16
}

fn u64(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32(bytes, at)) | u64::from(u32(bytes, at + 4)) << 32
}
