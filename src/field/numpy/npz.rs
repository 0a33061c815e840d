//! Arrays in archives of NumPy, `.npz`: zip archives with a `.npy` file for each array.
//!
//! The format is in PKWARE's APPNOTE.TXT. `np.savez` stores its files, and `np.savez_compressed`
//! deflates them. The directory at the end of the archive decides. The header before each file must
//! agree with it. Only one file is read, and nothing is stored for the others.

use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::inflate_flags::TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF;
use miniz_oxide::inflate::core::{DecompressorOxide, decompress};

use crate::error::{DataError, Reason, reserve};
use crate::field::{FieldPath, Step};

/// Begin of the header before each file.
const FILE: &[u8; 4] = b"PK\x03\x04";
/// Begin of an entry of the directory.
const ENTRY: &[u8; 4] = b"PK\x01\x02";
/// Begin of the record at the end of the archive.
const END: &[u8; 4] = b"PK\x05\x06";
/// Begin of the record before the end of an archive with numbers of 64 bits.
const WIDE_END: &[u8; 4] = b"PK\x06\x07";

/// Sizes of the fixed parts of these records, in bytes.
const FILE_BYTES: usize = 30;
const ENTRY_BYTES: usize = 46;
const END_BYTES: usize = 22;
const WIDE_END_BYTES: usize = 20;

/// Maximum size of the comment at the end of an archive, in bytes.
const MOST_COMMENT: usize = u16::MAX as usize;

/// Value of a size or an offset that is in an extra part with numbers of 64 bits.
const IN_EXTRA: u32 = u32::MAX;
/// Identifier of this extra part.
const WIDE_EXTRA: u16 = 1;

/// Flag of encrypted files.
const ENCRYPTED: u16 = 1;
/// Flag of files whose size and checksum follow their data.
const SIZE_FOLLOWS: u16 = 1 << 3;
/// Flag of names in UTF-8.
const UTF8_NAME: u16 = 1 << 11;

const STORED: u16 = 0;
const DEFLATED: u16 = 8;

/// Maximum number of names in a message.
const MOST_NAMES: usize = 8;

/// Whether bytes begin like an archive.
pub fn is_archive(bytes: &[u8]) -> bool {
    bytes.starts_with(FILE) || bytes.starts_with(END)
}

/// Returns the `.npy` file of an array in `archive`. The path of `field` names the array. Without a
/// path, the archive must have one array. A deflated file is written to `inflated`, which gets at
/// most `limit` bytes.
///
/// # Errors
/// [`Reason::Corrupt`] if the archive is damaged or its records disagree, [`Reason::Field`] if it
/// does not have the array or uses a part of the format that NumPy does not write, and
/// [`Reason::Oversized`] if the file has more than `limit` bytes.
pub fn array<'a>(
    archive: &'a [u8],
    field: &FieldPath,
    limit: u64,
    inflated: &'a mut Vec<u8>,
) -> Result<&'a [u8], DataError> {
    let directory = Directory::parse(archive)?;
    let entry = match &field.steps[..] {
        [] => directory.only(field)?,
        [Step::Member(name)] => directory.find(name, field)?,
        _ => {
            return Err(unfit(
                "is an .npz archive, so only the name of an array may follow the colon, as in \
                 emb.npz:name"
                    .into(),
            ));
        }
    };
    let data = directory.data(&entry)?;
    let name = entry.shown();
    if u64::from(entry.len) > limit {
        let problem = format!(
            "the array {name} has {} bytes; limits.max_field_bytes is {limit}; raise it",
            entry.len
        );
        return Err(DataError::new(Reason::Oversized, problem));
    }
    let file = match entry.method {
        STORED if entry.packed == entry.len => data,
        STORED => {
            return Err(corrupt(format!(
                "the array {name} is stored with {} bytes, but has the size {}",
                entry.packed, entry.len
            )));
        }
        _ => {
            inflate(data, entry.len as usize, inflated).map_err(|error| {
                DataError::new(error.reason, format!("the array {name} {}", error.problem))
            })?;
            &inflated[..]
        }
    };
    match crc32fast::hash(file) == entry.checksum {
        true => Ok(file),
        false => Err(corrupt(format!("the array {name} has a wrong checksum"))),
    }
}

/// Directory of an archive.
struct Directory<'a> {
    archive: &'a [u8],
    /// Offset of the directory.
    begin: usize,
    entries: &'a [u8],
    count: usize,
}

/// Entry of the directory.
#[derive(Clone, Copy)]
struct Entry<'a> {
    name: &'a [u8],
    flags: u16,
    method: u16,
    checksum: u32,
    /// Size in the archive in bytes.
    packed: u32,
    /// Size of the file in bytes.
    len: u32,
    /// Offset of the header before the file.
    begin: u32,
}

impl<'a> Directory<'a> {
    /// Finds the directory, and checks each of its entries.
    fn parse(archive: &'a [u8]) -> Result<Self, DataError> {
        let end = end_of_directory(archive)?;
        let record = Record(&archive[end..]);
        if end >= WIDE_END_BYTES && archive[end - WIDE_END_BYTES..].starts_with(WIDE_END) {
            return Err(wide());
        }
        let (disk, disk_of_directory) = (record.short(4), record.short(6));
        let (here, count) = (record.short(8), record.short(10));
        let (len, begin) = (record.long(12) as usize, record.long(16) as usize);
        if disk != 0 || disk_of_directory != 0 || here != count {
            return Err(unfit("is one part of a zip archive in several parts".into()));
        }
        if begin.checked_add(len) != Some(end) {
            let problem = format!(
                "its directory has {len} bytes from byte {begin} on, but must end at byte {end}"
            );
            return Err(corrupt(problem));
        }
        let entries = &archive[begin..end];
        let directory = Self { archive, begin, entries, count: count.into() };
        let mut found = 0;
        let mut rest = entries;
        while !rest.is_empty() {
            let (entry, after) = Entry::split(rest).ok_or_else(|| {
                corrupt(format!("entry {found} of its directory is cut off or damaged"))
            })?;
            if [entry.packed, entry.len, entry.begin].contains(&IN_EXTRA) {
                return Err(wide());
            }
            found += 1;
            rest = after;
        }
        match found == directory.count {
            true => Ok(directory),
            false => Err(corrupt(format!("its directory has {found} entries in place of {count}"))),
        }
    }

    /// The entries, which were checked.
    fn entries(&self) -> impl Iterator<Item = Entry<'a>> {
        let mut rest = self.entries;
        std::iter::from_fn(move || {
            let (entry, after) = Entry::split(rest)?;
            rest = after;
            Some(entry)
        })
    }

    /// The only entry.
    fn only(&self, field: &FieldPath) -> Result<Entry<'a>, DataError> {
        let mut entries = self.entries();
        match (entries.next(), entries.next()) {
            (Some(entry), None) => Ok(entry),
            (None, _) => Err(unfit("is an .npz archive without arrays".into())),
            (Some(first), Some(_)) => {
                let name = String::from_utf8_lossy(first.array()).into_owned();
                let field = FieldPath { name: field.name.clone(), steps: vec![Step::Member(name)] };
                Err(unfit(format!(
                    "is an .npz archive with the arrays {}; name one after a colon, as in {:?}",
                    self.names(),
                    field.to_string()
                )))
            }
        }
    }

    /// The entry of the array with this name.
    fn find(&self, name: &str, field: &FieldPath) -> Result<Entry<'a>, DataError> {
        let is_named =
            |entry: &Entry<'_>| entry.name == name.as_bytes() || entry.array() == name.as_bytes();
        let mut found = self.entries().filter(is_named);
        match (found.next(), found.next()) {
            (Some(entry), None) => Ok(entry),
            (Some(_), Some(_)) => Err(corrupt(format!("it has two arrays with the name {name:?}"))),
            (None, _) => Err(unfit(format!(
                "is an .npz archive without the array {name:?} of the field {:?}; it has {}",
                field.to_string(),
                if self.count == 0 { "no arrays".into() } else { self.names() }
            ))),
        }
    }

    /// Names of the first arrays, for a message.
    fn names(&self) -> String {
        let names = self.entries().take(MOST_NAMES).map(|entry| entry.shown());
        let names = names.collect::<Vec<_>>().join(", ");
        let more = self.count.saturating_sub(MOST_NAMES);
        if more > 0 { format!("{names} and {more} more") } else { names }
    }

    /// Data of an entry in the archive.
    fn data(&self, entry: &Entry<'a>) -> Result<&'a [u8], DataError> {
        let name = entry.shown();
        if entry.flags & ENCRYPTED != 0 {
            return Err(unfit(format!("is an .npz archive whose array {name} is encrypted")));
        }
        if !matches!(entry.method, STORED | DEFLATED) {
            let problem = format!(
                "is an .npz archive whose array {name} has the compression method {}; only 0 \
                 (stored) and 8 (deflated) are supported, as np.savez and np.savez_compressed \
                 write them",
                entry.method
            );
            return Err(unfit(problem));
        }
        let disagrees =
            || corrupt(format!("the header of the array {name} disagrees with the directory"));
        let (start, end) = self.range(entry).ok_or_else(|| {
            corrupt(format!("the array {name} ends behind the begin of the directory"))
        })?;
        let header = Record(&self.archive[entry.begin as usize..start]);
        let (flags, method) = (header.short(6), header.short(8));
        let named = FILE_BYTES..FILE_BYTES + entry.name.len();
        let name_len = usize::from(header.short(26));
        if !header.0.starts_with(FILE)
            || (flags ^ entry.flags) & !UTF8_NAME != 0
            || method != entry.method
            || name_len != entry.name.len()
            || header.0[named.clone()] != *entry.name
        {
            return Err(disagrees());
        }
        if flags & SIZE_FOLLOWS == 0 {
            let sizes = [header.long(18), header.long(22)];
            let sizes = match sizes.contains(&IN_EXTRA) {
                true => wide_sizes(&header.0[named.end..]).ok_or_else(disagrees)?,
                false => sizes.map(u64::from),
            };
            if sizes != [entry.packed, entry.len].map(u64::from)
                || header.long(14) != entry.checksum
            {
                return Err(disagrees());
            }
        }
        for other in self.entries().filter(|other| other.begin != entry.begin) {
            let other_end = self.range(&other).map_or(usize::MAX, |(_, end)| end);
            if (other.begin as usize) < end && other_end > entry.begin as usize {
                let problem = format!("the arrays {name} and {} overlap", other.shown());
                return Err(corrupt(problem));
            }
        }
        let same = self.entries().filter(|other| other.begin == entry.begin).count();
        match same {
            1 => Ok(&self.archive[start..end]),
            _ => Err(corrupt(format!("the array {name} and another one are at the same place"))),
        }
    }

    /// Begin and end of an entry's data. `None` if they are not before the directory.
    fn range(&self, entry: &Entry<'_>) -> Option<(usize, usize)> {
        let before = &self.archive[..self.begin];
        let header = before.get(entry.begin as usize..)?;
        let fixed = Record(header.get(..FILE_BYTES)?);
        let start = FILE_BYTES + usize::from(fixed.short(26)) + usize::from(fixed.short(28));
        let end = start.checked_add(entry.packed as usize)?;
        let begin = entry.begin as usize;
        (end <= header.len()).then_some((begin + start, begin + end))
    }
}

impl<'a> Entry<'a> {
    /// Splits the first entry from the rest of the directory. `None` if it is damaged.
    fn split(directory: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (fixed, rest) = directory.split_at_checked(ENTRY_BYTES)?;
        let record = Record(fixed);
        if !fixed.starts_with(ENTRY) {
            return None;
        }
        let [name_len, extra_len, comment_len] =
            [28, 30, 32].map(|at| usize::from(record.short(at)));
        let (name, rest) = rest.split_at_checked(name_len)?;
        let rest = rest.get(extra_len + comment_len..)?;
        let entry = Self {
            name,
            flags: record.short(8),
            method: record.short(10),
            checksum: record.long(16),
            packed: record.long(20),
            len: record.long(24),
            begin: record.long(42),
        };
        Some((entry, rest))
    }

    /// Name of the array, as NumPy shows it.
    fn array(&self) -> &'a [u8] {
        self.name.strip_suffix(b".npy").unwrap_or(self.name)
    }

    /// Name of the array for a message, cut to 40 characters.
    fn shown(&self) -> String {
        let name = String::from_utf8_lossy(self.array());
        let cut: String = name.chars().take(40).collect();
        let end = if cut.len() < name.len() { "…" } else { "" };
        format!("{cut:?}{end}")
    }
}

/// Record with numbers in little-endian order. Its fixed part was checked.
struct Record<'a>(&'a [u8]);

impl Record<'_> {
    fn short(&self, at: usize) -> u16 {
        self.0
            .get(at..at + 2)
            .and_then(|it| it.first_chunk())
            .map_or(0, |it| u16::from_le_bytes(*it))
    }

    fn long(&self, at: usize) -> u32 {
        self.0
            .get(at..at + 4)
            .and_then(|it| it.first_chunk())
            .map_or(0, |it| u32::from_le_bytes(*it))
    }
}

/// Offset of the record at the end of the archive. The record ends with a comment, which must end
/// with the archive.
fn end_of_directory(archive: &[u8]) -> Result<usize, DataError> {
    let last = archive.len().checked_sub(END_BYTES);
    let last = last.ok_or_else(|| corrupt("it is cut off".into()))?;
    let first = last.saturating_sub(MOST_COMMENT);
    let is_end = |&at: &usize| {
        let comment = usize::from(Record(&archive[at..]).short(20));
        archive[at..].starts_with(END) && at + END_BYTES + comment == archive.len()
    };
    (first..=last).rev().find(is_end).ok_or_else(|| {
        corrupt(
            "it does not end with a directory, so it is cut off or damaged; copy it again".into(),
        )
    })
}

/// Sizes in the extra part of a header with numbers of 64 bits: in the archive, and of the file.
fn wide_sizes(mut extra: &[u8]) -> Option<[u64; 2]> {
    while let Some((head, rest)) = extra.split_first_chunk::<4>() {
        let (kind, len) = (Record(head).short(0), Record(head).short(2));
        let (part, after) = rest.split_at_checked(len.into())?;
        if kind == WIDE_EXTRA {
            let number = |at: usize| {
                part.get(at..at + 8)
                    .and_then(|it| it.first_chunk())
                    .map(|it| u64::from_le_bytes(*it))
            };
            return Some([number(8)?, number(0)?]);
        }
        extra = after;
    }
    None
}

/// Inflates `data` into `to`, which gets exactly `len` bytes.
fn inflate(data: &[u8], len: usize, to: &mut Vec<u8>) -> Result<(), DataError> {
    reserve::renew(to, len)?;
    let mut state = Box::<DecompressorOxide>::default();
    let flags = TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF;
    let (status, read, written) = decompress(&mut state, data, to, 0, flags);
    let problem = match status {
        TINFLStatus::Done if written < len => {
            format!("has {written} bytes in place of {len} when it is inflated")
        }
        TINFLStatus::Done if read < data.len() => {
            format!("ends {} bytes before its size in the archive", data.len() - read)
        }
        TINFLStatus::Done => return Ok(()),
        TINFLStatus::HasMoreOutput => format!("has more than {len} bytes when it is inflated"),
        _ => "cannot be inflated".to_string(),
    };
    Err(corrupt_array(problem))
}

fn corrupt_array(problem: String) -> DataError {
    DataError::new(
        Reason::Corrupt,
        format!("{problem}: the .npz archive is damaged; write it again with np.savez"),
    )
}

fn corrupt(problem: String) -> DataError {
    DataError::new(
        Reason::Corrupt,
        format!("the .npz archive is damaged: {problem}; write it again with np.savez"),
    )
}

fn unfit(problem: String) -> DataError {
    DataError::new(Reason::Field, problem)
}

/// Error for an archive with numbers of 64 bits, which only archives of more than 4 GiB need.
fn wide() -> DataError {
    unfit(
        "is a zip64 archive, which only archives of more than 4 GiB need; write it again with \
         np.savez"
            .into(),
    )
}
