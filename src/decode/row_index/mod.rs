//! Row index of a JPEG: where each row of minimum coded units begins in the coded data. With the
//! index, the decoder skips the data above and to the right of a window. `docs/row-index.md`
//! describes the format.

use std::hash::{BuildHasher, RandomState};

use bytes::Bytes;
use sha2::{Digest, Sha256};
use twox_hash::XxHash3_128;

use crate::error::{DataError, reserve};

pub use file::{ROWS_ENDING, begin_row_indexes, read_row_indexes, write_row_index};

mod file;

/// Version of the format.
const VERSION: u8 = 2;
/// Maximum length in bytes of a number with seven bits per byte.
const MOST_NUMBER: usize = 10;
/// Size in bytes of a file's CRC-32C, seed and hash.
const HASH_BYTES: usize = 4 + 8 + 16;
/// Maximum size in bytes of everything before the entries of a row index, plus the checksum.
const FRAME_BYTES: usize = 2 + MOST_NUMBER + HASH_BYTES + MOST_NUMBER + 4;
/// Maximum size in bytes of an entry: a position, and three differences of DC coefficients with 32
/// bits each.
const ENTRY_BYTES: usize = MOST_NUMBER + 3 * 5;
/// Limit of DC coefficients: their magnitudes must be smaller than this number.
const MOST_DC: i64 = 1 << 30;

/// Key by which the index of a file is found. Different files may have the same key, and such files
/// are easy to construct.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FileKey {
    /// Length in bytes.
    pub len: u64,
    /// CRC-32C of all bytes.
    pub crc: u32,
}

impl FileKey {
    /// Computes the key of a file.
    pub fn of(file: &[u8]) -> Self {
        Self { len: file.len() as u64, crc: crc32c::crc32c(file) }
    }
}

/// Fingerprint that identifies a file: its key, and the XXH3-128 of its bytes with a seed. A cache
/// uses a random seed. Authors of images do not know that seed, so they cannot construct two files
/// with the same fingerprint. A packed shard uses a seed that depends on the file
/// ([`seed_of`](Self::seed_of)), because packing must be reproducible.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Fingerprint {
    key: FileKey,
    seed: u64,
    hash: u128,
}

impl Fingerprint {
    /// Computes the fingerprint of a file with this seed.
    pub fn of(file: &[u8], seed: u64) -> Self {
        Self::with_key(FileKey::of(file), file, seed)
    }

    /// Computes the fingerprint of a file whose key is known.
    pub fn with_key(key: FileKey, file: &[u8], seed: u64) -> Self {
        Self { key, seed, hash: XxHash3_128::oneshot_with_seed(seed, file) }
    }

    /// Key of the file.
    pub fn key(&self) -> FileKey {
        self.key
    }

    /// Whether this is the fingerprint of `file`. The key of `file` must equal the key in this
    /// fingerprint.
    pub fn is_of(&self, file: &[u8]) -> bool {
        *self == Self::with_key(self.key, file, self.seed)
    }

    /// Returns a seed that depends only on the file: the first 8 bytes of its SHA-256. Use this
    /// seed for reproducible indexes. The seed is not secret.
    pub fn seed_of(file: &[u8]) -> u64 {
        let digest: [u8; 32] = Sha256::digest(file).into();
        digest.first_chunk().copied().map_or(0, u64::from_le_bytes)
    }

    /// Returns a random seed.
    pub fn random_seed() -> u64 {
        RandomState::new().hash_one(())
    }
}

/// What a decoder does with row indexes for the next image.
#[derive(Clone, Debug, Default)]
pub enum RowIndexTask {
    /// No row index is used or made.
    #[default]
    None,
    /// Uses this row index.
    Use(RowIndex),
    /// Makes a row index, for a file with this fingerprint.
    Make(Fingerprint),
}

/// What a decoder did with row indexes for the last image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowIndexOutcome<'a> {
    /// No row index was used or made: the image is corrupt, or was not decoded by feedwater's own
    /// JPEG decoder.
    None,
    /// A row index was used.
    Used,
    /// The row index does not match the image, and the decoder returned an error. The sink may have
    /// received wrong rows. Decode the image again without the index.
    Rejected,
    /// This row index was made, for a file with this fingerprint.
    Made(Fingerprint, &'a [u8]),
}

/// Row index of a file, with an intact checksum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowIndex {
    bytes: Bytes,
    fingerprint: Fingerprint,
    components: usize,
    count: usize,
    /// Position of the first entry.
    entries: usize,
}

/// Start of a row of minimum coded units in the coded data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RowStart {
    /// Number of bits before the row in the coded data, including stuffing.
    pub position: u64,
    /// DC coefficient of the last block of each component before the row.
    pub predictions: [i32; 3],
}

impl RowIndex {
    /// Reads an index. Returns `None` if the index is corrupt or of another version.
    pub fn read(bytes: Bytes) -> Option<Self> {
        let (content, crc) = bytes.split_last_chunk::<4>()?;
        let (&[VERSION, components @ (1 | 3)], mut rest) = content.split_first_chunk()? else {
            return None;
        };
        let len = number(&mut rest)?;
        let (file_crc, rest) = rest.split_first_chunk()?;
        let (seed, rest) = rest.split_first_chunk()?;
        let (hash, mut rest) = rest.split_first_chunk()?;
        let key = FileKey { len, crc: u32::from_le_bytes(*file_crc) };
        let (seed, hash) = (u64::from_le_bytes(*seed), u128::from_le_bytes(*hash));
        let fingerprint = Fingerprint { key, seed, hash };
        let count = usize::try_from(number(&mut rest)?).ok()?;
        let (components, entries) = (usize::from(components), content.len() - rest.len());
        let is_intact = crc32c::crc32c(content).to_le_bytes() == *crc;
        is_intact.then_some(Self { bytes, fingerprint, components, count, entries })
    }

    /// Returns the fingerprint of the file that the index belongs to.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// Returns the bytes from which the index was read.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.count.saturating_add(1)
    }

    /// Iterates over the starts of all rows except the first, in bits from the start of the coded
    /// data. Ends early at an invalid entry.
    pub(super) fn positions(&self) -> impl Iterator<Item = u64> {
        let starts = self.starts(self.rows(), self.components);
        starts.into_iter().flatten().map(|start| start.position)
    }

    /// Iterates over the starts of all rows except the first. Returns `None` if the index has a
    /// number of rows or components that differs from `rows` or `components`. The iterator ends
    /// early at an invalid entry.
    pub(super) fn starts(&self, rows: usize, components: usize) -> Option<RowStarts<'_>> {
        let entries = self.bytes.get(self.entries..self.bytes.len() - 4)?;
        let fits = self.count + 1 == rows && self.components == components;
        fits.then_some(RowStarts { entries, components, last: RowStart::default() })
    }
}

/// Iterator over the starts of rows, beginning with the second row.
#[derive(Clone, Debug)]
pub(super) struct RowStarts<'a> {
    entries: &'a [u8],
    components: usize,
    last: RowStart,
}

impl Iterator for RowStarts<'_> {
    type Item = RowStart;

    fn next(&mut self) -> Option<RowStart> {
        let Self { entries, components, last } = self;
        let ahead = number(entries)?;
        last.position = last.position.checked_add(ahead)?;
        for prediction in &mut last.predictions[..*components] {
            let coded = number(entries)?;
            let difference = (coded >> 1) as i64 ^ -((coded & 1) as i64);
            let dc = i64::from(*prediction).checked_add(difference)?;
            *prediction = (-MOST_DC..MOST_DC).contains(&dc).then_some(dc)? as i32;
        }
        Some(*last)
    }
}

/// Row index under construction.
#[derive(Debug, Default)]
pub(super) struct RowIndexWriter {
    file: Fingerprint,
    bytes: Vec<u8>,
    components: usize,
    last: RowStart,
    /// Number of rows whose starts are still missing.
    missing: usize,
}

impl RowIndexWriter {
    /// Returns the maximum memory of an index of `rows` rows, in bytes.
    pub fn most_bytes(rows: usize) -> usize {
        FRAME_BYTES + rows * ENTRY_BYTES
    }

    /// Begins the index of a file.
    pub fn begin(
        &mut self,
        file: Fingerprint,
        rows: usize,
        components: usize,
    ) -> Result<(), DataError> {
        self.file = file;
        self.bytes.clear();
        reserve::reserve(&mut self.bytes, Self::most_bytes(rows))?;
        (self.components, self.last, self.missing) = (components, RowStart::default(), rows - 1);
        self.bytes.extend([VERSION, components as u8]);
        self.put(file.key.len);
        self.bytes.extend(file.key.crc.to_le_bytes());
        self.bytes.extend(file.seed.to_le_bytes());
        self.bytes.extend(file.hash.to_le_bytes());
        self.put(self.missing as u64);
        Ok(())
    }

    /// Adds the start of the next row. The first call adds the second row.
    pub fn push(&mut self, start: RowStart) {
        self.put(start.position - self.last.position);
        for at in 0..self.components {
            let difference =
                i64::from(start.predictions[at]) - i64::from(self.last.predictions[at]);
            self.put((difference << 1 ^ difference >> 63) as u64);
        }
        (self.last, self.missing) = (start, self.missing - 1);
    }

    /// Completes an index to which all rows were added.
    pub fn end(&mut self) {
        debug_assert_eq!(self.missing, 0);
        let crc = crc32c::crc32c(&self.bytes);
        self.bytes.extend(crc.to_le_bytes());
    }

    /// Returns the fingerprint of the file and the bytes of its index.
    pub fn made(&self) -> (Fingerprint, &[u8]) {
        (self.file, &self.bytes)
    }

    /// Returns the bytes of the index.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Returns the memory held, in bytes.
    pub fn capacity_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// Writes a number with seven bits per byte, lowest bits first.
    fn put(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.bytes.push(number as u8);
    }
}

/// Reads a number with seven bits per byte.
fn number(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for at in 0..MOST_NUMBER {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f).checked_shl(7 * at as u32)?;
        if *byte < 0x80 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> (Vec<RowStart>, RowIndexWriter) {
        let starts = [[5, -3, 0], [-(1 << 29), 1 << 29, 7], [0, 0, 0]];
        let starts: Vec<_> = (0..)
            .zip(starts)
            .map(|(row, predictions)| RowStart { position: 1000 * (row + 1) + row, predictions })
            .collect();
        let mut writer = RowIndexWriter::default();
        writer.begin(Fingerprint::of(b"a file", 7), 4, 3).unwrap();
        starts.iter().for_each(|start| writer.push(*start));
        writer.end();
        (starts, writer)
    }

    #[test]
    fn what_was_written_is_read_again() {
        let (starts, writer) = example();
        assert!(writer.made().1.len() <= RowIndexWriter::most_bytes(4));
        let index = RowIndex::read(Bytes::copy_from_slice(writer.made().1)).unwrap();
        assert_eq!(index.fingerprint(), Fingerprint::of(b"a file", 7));
        assert!(index.fingerprint().is_of(b"a file") && !index.fingerprint().is_of(b"a film"));
        assert_eq!(index.starts(4, 3).unwrap().collect::<Vec<_>>(), starts);
        assert!(index.starts(5, 3).is_none() && index.starts(4, 1).is_none());
    }

    #[test]
    fn a_damaged_index_is_not_read() {
        let (_, writer) = example();
        for at in 0..writer.made().1.len() {
            assert_eq!(RowIndex::read(Bytes::copy_from_slice(&writer.made().1[..at])), None);
            for bit in 0..8 {
                let mut bytes = writer.made().1.to_vec();
                bytes[at] ^= 1 << bit;
                assert_eq!(RowIndex::read(bytes.into()), None, "byte {at}, bit {bit}");
            }
        }
    }
}
