//! Parses pages, which contain the values of a column. Each page has a header (`parquet.thrift` and
//! `README.md` of parquet-format).

use std::ops::Range;

use super::codec::{Codec, unsupported};
use super::encoding::{delta, hybrid};
use super::footer::PhysicalType;
use super::thrift::{Kind, Malformed, Thrift};
use super::{FileError, Shard};
use crate::storage;

/// Number of bytes of a header that are read at first. Headers with long statistics take further
/// reads.
const HEADER_BYTES: u64 = 1 << 10;
/// Longest header, in bytes.
const MOST_HEADER_BYTES: u64 = 16 << 20;
/// Smallest average size of values, in bytes, at which reading each length separately is
/// worthwhile.
const HOP_BYTES: u64 = 1 << 12;
/// Number of the encoding RLE.
pub const RLE: i64 = 3;
/// Marks a row without a value in [`Rows`].
pub const NULL: u32 = u32::MAX;

/// Header of a page.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    pub sort: Sort,
    /// Offset of the first byte after the header.
    pub start: u64,
    /// Size in bytes: as stored in the file (`stored`), and decompressed (`size`).
    pub stored: u32,
    pub size: u32,
    /// CRC-32 (as in gzip) of the bytes as stored in the file.
    pub crc: Option<u32>,
    /// Number of values including nulls, which is the number of rows unless the column is repeated.
    /// In a dictionary, the number of entries.
    pub values: u32,
    pub encoding: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    Dictionary,
    /// Data page of version 1. Levels and values are compressed together. `levels` is the encoding
    /// of the definition levels. `runs` states whether the repetition levels are in the encoding
    /// RLE.
    Data {
        levels: i64,
        runs: bool,
    },
    /// Data page of version 2. The levels precede the values and are never compressed. `repetition`
    /// and `definition` are the sizes of the levels in bytes. `compressed` states whether the
    /// values are compressed.
    DataV2 {
        repetition: u32,
        definition: u32,
        rows: u32,
        compressed: bool,
    },
    /// Page of an unsupported type.
    Other,
}

/// Positions of the values in the decompressed bytes of a page.
#[derive(Debug, Default)]
pub struct Values {
    /// Start of each value, and the end of the last value.
    starts: Box<[u32]>,
    /// Number of bytes between consecutive values.
    gap: u32,
}

/// Index of each row's value, or [`NULL`]. `None` if row i has value i, for every i.
pub type Rows = Option<Box<[u32]>>;

/// Contents of a data page.
#[derive(Debug)]
pub struct Contents {
    pub rows: Rows,
    pub values: Held,
}

/// Location of the values of a data page.
#[derive(Debug)]
pub enum Held {
    /// The values are in the dictionary.
    Dictionary,
    /// The values are in the bytes of the page.
    Here(Values),
    /// The page contains `present` numbers, from byte `from` on.
    Numbers { from: usize, present: usize },
}

impl Head {
    /// Reads the header at offset `at` of a chunk that ends at `end`. Checks that the page lies
    /// within the chunk.
    pub fn read(shard: &Shard, at: u64, end: u64) -> Result<Self, FileError> {
        let mut most = HEADER_BYTES;
        let mut bytes = Vec::new();
        loop {
            let len = most.min(end - at);
            bytes.resize(len as usize, 0);
            shard.read(&mut bytes, at)?;
            match parse(&bytes) {
                Ok((head, len)) => return head.check(at, len as u64, end),
                Err(bad) if bad.cut && len < end - at && most < MOST_HEADER_BYTES => most *= 16,
                Err(bad) => {
                    let problem =
                        "a page's header cannot be read: the file is damaged; copy it again";
                    return Err(FileError::corrupt(at + bad.at as u64, problem));
                }
            }
        }
    }

    /// Offset after the last byte of the page.
    pub fn end(&self) -> u64 {
        self.start + u64::from(self.stored)
    }

    fn check(mut self, at: u64, len: u64, end: u64) -> Result<Self, FileError> {
        self.start = at + len;
        if self.end() > end {
            let problem = format!(
                "a page has {} bytes, but only {} more bytes of its column are left: the file is \
                 damaged; copy it again",
                self.stored,
                end - self.start.min(end)
            );
            return Err(FileError::corrupt(at, problem));
        }
        Ok(self)
    }

    /// Size in bytes of the levels that precede the compressed values and are not compressed.
    fn levels_bytes(&self) -> usize {
        match self.sort {
            Sort::DataV2 { repetition, definition, .. } => {
                repetition as usize + definition as usize
            }
            _ => 0,
        }
    }

    /// Whether the page is stored uncompressed.
    pub fn is_plain(&self, codec: Codec) -> bool {
        codec == Codec::None || matches!(self.sort, Sort::DataV2 { compressed: false, .. })
    }

    /// Memory in bytes that is needed to read the page, in addition to the decompressed page.
    pub fn room(&self, codec: Codec) -> usize {
        if self.is_plain(codec) { 0 } else { self.stored as usize }
    }

    /// Whether the values are indices into a dictionary.
    pub fn is_dictionary_encoded(&self) -> bool {
        self.sort != Sort::Dictionary && matches!(self.encoding, 2 | 8)
    }

    /// Checks that the compressed bytes can decompress to the stated size.
    pub fn check_size(&self, codec: Codec) -> Result<(), FileError> {
        if let Codec::Other(number) = codec {
            return Err(FileError::unsupported(self.start, unsupported(number)));
        }
        let plain = self.is_plain(codec) && self.size != self.stored;
        let levels = self.levels_bytes() as u64;
        if plain
            || levels > self.stored.min(self.size).into()
            || !codec.is_plausible(u64::from(self.stored) - levels, u64::from(self.size) - levels)
        {
            let problem = format!(
                "a page of {} bytes cannot decompress to {} bytes: the file is damaged; copy it \
                 again",
                self.stored, self.size
            );
            return Err(FileError::corrupt(self.start, problem));
        }
        Ok(())
    }

    /// Reads the page, verifies its checksum if it has one, and decompresses it into `body` (`size`
    /// bytes). `stored` is the buffer for the compressed bytes, which is not used if the page [is
    /// plain](Self::is_plain).
    pub fn body(
        &self,
        shard: &Shard,
        codec: Codec,
        body: &mut [u8],
        stored: &mut [u8],
    ) -> Result<(), FileError> {
        if self.is_plain(codec) {
            shard.read(body, self.start)?;
            return self.check_crc(body);
        }
        shard.read(stored, self.start)?;
        self.check_crc(stored)?;
        let levels = self.levels_bytes();
        body[..levels].copy_from_slice(&stored[..levels]);
        // The page contains only levels, so there is nothing to decompress. Some writers store the
        // compressed form of zero bytes in this case.
        if body.len() == levels {
            return Ok(());
        }
        codec.decompress(&stored[levels..], &mut body[levels..]).map_err(|problem| {
            let problem = format!("the page does not decompress ({problem}): the file is damaged");
            FileError::corrupt(self.start, problem)
        })
    }

    fn check_crc(&self, stored: &[u8]) -> Result<(), FileError> {
        match self.crc {
            Some(crc) if crc32fast::hash(stored) != crc => {
                let problem = format!(
                    "the checksum of the page, which has {} bytes, does not match",
                    stored.len()
                );
                Err(FileError::corrupt(self.start, problem))
            }
            _ => Ok(()),
        }
    }

    /// Whether values can be located by reading only their lengths. The page must be uncompressed
    /// and have no checksum. The values must be so large that skipping them saves more time than
    /// the additional reads cost.
    pub fn can_hop(&self, codec: Codec, shard: &Shard) -> bool {
        let plain = self.encoding == 0 || (self.sort == Sort::Dictionary && self.encoding == 2);
        let large = u64::from(self.size) >= HOP_BYTES * u64::from(self.values);
        let local = !storage::is_url(&shard.path);
        plain && large && local && self.crc.is_none() && self.is_plain(codec)
    }

    /// Parses a page by reading only the lengths of its values. [`can_hop`](Self::can_hop) must be
    /// true.
    pub fn hop(&self, shard: &Shard, defined: u32) -> Result<Contents, FileError> {
        let damaged = || self.damaged("it has the wrong number of levels or values");
        let size = self.size as usize;
        shard.reads(|read| {
            let mut start = vec![0; size.min(1 << 10)];
            read(&mut start, self.start)?;
            let levels = self.levels_end(&start, defined).filter(|end| *end <= size);
            let levels = levels.ok_or_else(damaged)?;
            if levels > start.len() {
                start.resize(levels, 0);
                read(&mut start, self.start)?;
            }
            let (rows, present, from) = self.levels(&start, defined)?;
            let mut lens = Vec::new();
            let mut at = from;
            for _ in 0..present {
                let mut len = [0; 4];
                if size - at < len.len() {
                    return Err(damaged());
                }
                read(&mut len, self.start + at as u64)?;
                let len = u32::from_le_bytes(len);
                at = at.saturating_add(4 + len as usize);
                if at > size {
                    return Err(damaged());
                }
                lens.push(len);
            }
            Ok(Contents { rows, values: Held::Here(Values::of(&lens, from, 4)) })
        })
    }

    /// Returns the end of the levels, where the values begin.
    fn levels_end(&self, body: &[u8], defined: u32) -> Option<usize> {
        match self.sort {
            Sort::DataV2 { .. } => Some(self.levels_bytes()),
            Sort::Data { .. } if defined > 0 => {
                Some(4 + u32::from_le_bytes(*body.first_chunk()?) as usize)
            }
            _ => Some(0),
        }
    }

    /// Decodes the levels before the values. Returns the index of each row's value (`None` if row i
    /// has value i, for every i), the number of values that are not null, and the offset of the
    /// first value.
    fn levels(&self, body: &[u8], defined: u32) -> Result<(Rows, usize, usize), FileError> {
        let damaged = || self.damaged("it has the wrong number of levels or values");
        let count = self.values as usize;
        let from = self.levels_end(body, defined).ok_or_else(damaged)?;
        let start = match self.sort {
            Sort::DataV2 { repetition, .. } => repetition as usize,
            Sort::Data { levels: RLE, .. } if defined > 0 => 4,
            Sort::Data { .. } if defined > 0 => {
                return Err(self.unsupported("the definition levels are not in the encoding RLE"));
            }
            _ => 0,
        };
        let levels = body.get(start..from).ok_or_else(damaged)?;
        if defined == 0 {
            return Ok((None, count, from));
        }
        let width = u32::BITS - defined.leading_zeros();
        let levels = hybrid(levels, width, count).ok_or_else(damaged)?;
        let present = levels.iter().filter(|level| **level == defined).count();
        Ok(((present < count).then(|| numbered(levels, defined)), present, from))
    }

    /// Parses a data page of a column with the definition level `defined` and the type `form`.
    pub fn contents(
        &self,
        body: &[u8],
        defined: u32,
        form: PhysicalType,
    ) -> Result<Contents, FileError> {
        let damaged = || self.damaged("it has the wrong number of levels or values");
        let (mut rows, present, from) = self.levels(body, defined)?;
        let rest = &body[from..];
        let values = match self.encoding {
            2 | 8 => {
                let numbers = match rest {
                    // A page that contains only nulls may have no bytes after the levels.
                    [] if present == 0 => Vec::new(),
                    [width, rest @ ..] => {
                        hybrid(rest, (*width).into(), present).ok_or_else(damaged)?
                    }
                    [] => return Err(damaged()),
                };
                rows = Some(match rows {
                    None => numbers.into(),
                    Some(mut rows) => {
                        let present = rows.iter_mut().filter(|row| **row != NULL);
                        present.zip(numbers).for_each(|(row, number)| *row = number);
                        rows
                    }
                });
                Held::Dictionary
            }
            _ if form != PhysicalType::Bytes => Held::Numbers { from, present },
            0 => Held::Here(plain(rest, from, present).ok_or_else(damaged)?),
            6 => Held::Here(lengths(rest, from, present).ok_or_else(damaged)?),
            _ => return Err(self.unsupported("unsupported encoding of values")),
        };
        Ok(Contents { rows, values })
    }

    /// Parses the entries of a dictionary page.
    pub fn entries(&self, body: &[u8]) -> Result<Values, FileError> {
        if !matches!(self.encoding, 0 | 2) {
            return Err(self.unsupported("the dictionary is not in the encoding PLAIN"));
        }
        let damaged = || self.damaged("it has the wrong number of values");
        plain(body, 0, self.values as usize).ok_or_else(damaged)
    }

    pub fn damaged(&self, what: &str) -> FileError {
        FileError::corrupt(self.start, format!("the page is damaged: {what}; copy the file again"))
    }

    pub fn unsupported(&self, what: &str) -> FileError {
        let problem = format!(
            "{what} (the encoding number is {}); write the file with the encoding PLAIN",
            self.encoding
        );
        FileError::unsupported(self.start, problem)
    }
}

impl Values {
    /// Computes the positions of values with these lengths. The first gap starts at `from`, and
    /// `gap` bytes precede each value. All positions are within a page and therefore below 2 GiB.
    fn of(lens: &[u32], from: usize, gap: u32) -> Self {
        let mut at = from as u32 + gap;
        let mut starts = Vec::with_capacity(lens.len() + 1);
        for len in lens {
            starts.push(at);
            at += len + gap;
        }
        starts.push(at);
        Self { starts: starts.into(), gap }
    }

    pub fn len(&self) -> usize {
        self.starts.len().saturating_sub(1)
    }

    /// Byte range of value `number`, or `None` if there is no such value.
    pub fn get(&self, number: u32) -> Option<Range<usize>> {
        let number = number as usize;
        let next = *self.starts.get(number + 1)?;
        Some(self.starts[number] as usize..(next - self.gap) as usize)
    }

    /// Size of the largest value, in bytes.
    pub fn largest(&self) -> u64 {
        let lens = self.starts.windows(2).map(|pair| pair[1] - pair[0] - self.gap);
        lens.max().unwrap_or(0).into()
    }
}

/// Parses PLAIN values. Each value is stored as a length of 4 bytes, followed by its bytes. `from`
/// is the offset of `bytes` in the page.
fn plain(bytes: &[u8], from: usize, count: usize) -> Option<Values> {
    // Each value needs at least four bytes, so a false `count` is rejected before memory is
    // allocated.
    if bytes.len() / 4 < count {
        return None;
    }
    let mut lens = Vec::with_capacity(count);
    let mut rest = bytes;
    for _ in 0..count {
        let (len, after) = rest.split_first_chunk()?;
        let len = u32::from_le_bytes(*len);
        rest = after.get(len as usize..)?;
        lens.push(len);
    }
    Some(Values::of(&lens, from, 4))
}

/// Parses DELTA_LENGTH_BYTE_ARRAY: the lengths of all values, then all bytes.
fn lengths(bytes: &[u8], from: usize, count: usize) -> Option<Values> {
    let (lens, taken) = delta(bytes, count)?;
    let lens: Vec<u32> = lens.into_iter().map(u32::try_from).collect::<Result<_, _>>().ok()?;
    let all: u64 = lens.iter().map(|len| u64::from(*len)).sum();
    let fits = all <= (bytes.len() - taken) as u64 && lens.len() == count;
    fits.then(|| Values::of(&lens, from + taken, 0))
}

/// Converts definition levels to the index of each row's value among the values that are not null.
fn numbered(mut levels: Vec<u32>, defined: u32) -> Box<[u32]> {
    let mut next = 0;
    for level in &mut levels {
        let there = *level == defined;
        *level = if there { next } else { NULL };
        next += u32::from(there);
    }
    levels.into()
}

/// Parses a header. Also returns its length in bytes.
fn parse(bytes: &[u8]) -> Result<(Head, usize), Malformed> {
    let mut thrift = Thrift::new(bytes);
    let (mut sort, mut size, mut stored, mut crc) = (-1, -1, -1, None);
    let (mut values, mut encoding, mut levels, mut runs) = (-1, -1, RLE, true);
    let (mut definition, mut repetition, mut rows, mut compressed) = (0, 0, 0, true);
    thrift.fields(|thrift, id, kind| {
        match (id, kind) {
            (1, Kind::Integer) => sort = thrift.integer()?,
            (2, Kind::Integer) => size = thrift.integer()?,
            (3, Kind::Integer) => stored = thrift.integer()?,
            (4, Kind::Integer) => crc = Some(thrift.integer()? as u32),
            // Fields 5, 7 and 8 are the headers of data pages of version 1, dictionary pages and
            // data pages of version 2.
            (5 | 7 | 8, Kind::Struct) => thrift.fields(|thrift, field, kind| {
                match (id, field, kind) {
                    (_, 1, Kind::Integer) => values = thrift.integer()?,
                    (5 | 7, 2, Kind::Integer) | (8, 4, Kind::Integer) => {
                        encoding = thrift.integer()?;
                    }
                    (5, 3, Kind::Integer) => levels = thrift.integer()?,
                    (5, 4, Kind::Integer) => runs = thrift.integer()? == RLE,
                    (8, 3, Kind::Integer) => rows = thrift.integer()?,
                    (8, 5, Kind::Integer) => definition = thrift.integer()?,
                    (8, 6, Kind::Integer) => repetition = thrift.integer()?,
                    (8, 7, Kind::Bool(value)) => compressed = value,
                    _ => return Ok(false),
                }
                Ok(true)
            })?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let bad = Malformed { at: 0, cut: false };
    let positive = |value: i64| -> Result<u32, Malformed> {
        u32::try_from(value).ok().filter(|value| *value <= i32::MAX as u32).ok_or(bad)
    };
    let sort = match sort {
        0 => Sort::Data { levels, runs },
        2 => Sort::Dictionary,
        3 => Sort::DataV2 {
            repetition: positive(repetition)?,
            definition: positive(definition)?,
            // Only repeated columns use this number, so a wrong one must not affect images.
            rows: u32::try_from(rows).unwrap_or(u32::MAX),
            compressed,
        },
        _ => Sort::Other,
    };
    let values = if sort == Sort::Other { 0 } else { positive(values)? };
    let (stored, size) = (positive(stored)?, positive(size)?);
    Ok((Head { sort, start: 0, stored, size, crc, values, encoding }, thrift.at()))
}
