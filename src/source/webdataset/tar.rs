//! Reader of tar archives with ustar, GNU and pax headers (POSIX.1-2017 "pax", GNU tar's `tar.h`).
//! Checksums of headers are verified. A file may contain several archives in sequence, as `cat
//! a.tar b.tar` writes them and `tar -i` reads them.

use std::collections::HashMap;
use std::ops::Range;

use sha2::{Digest, Sha256};

use crate::source::records::{FileError, Window, check_of};
use crate::storage::File;

/// Number of bytes that are read per header. Contents are skipped.
pub const AHEAD_BYTES: u64 = 4096;
/// Size of a header in bytes. Contents are padded to multiples of it.
pub const BLOCK: u64 = 512;
/// Number of bytes that are read at once after an end mark. GNU tar writes at most 10 KiB of zeros
/// there.
const END_BYTES: u64 = 64 << 10;
/// Largest number of zero bytes after an end mark that are not counted as skipped. Tar pads its
/// last record, usually of 10 KiB.
const MOST_ZEROS: u64 = 64 << 10;
/// Largest number of bytes without an archive after an end mark of a compressed file. The limit is
/// needed because a small file may decompress to any number of zeros.
const MOST_PADDING: u64 = 64 << 20;

/// Largest number of blocks of an extended header in which [`name_before`] searches for a name.
const LONGEST_NAME: u64 = 8;

/// One member of an archive.
pub struct Member {
    /// Offset of the member's first header, which may be an extended one.
    pub start: u64,
    /// Offset of the member's own header.
    pub offset: u64,
    pub name: Vec<u8>,
    pub kind: Kind,
    /// Number of the member's archive in the file.
    pub archive: u64,
    /// Whether the member is a hard link.
    pub is_hard_link: bool,
}

/// Kind of a member. The reader skips folders and volume labels.
pub enum Kind {
    /// Regular file with its contents, or a hard link with the contents of an earlier file.
    File(Data),
    /// Hard link without an earlier target.
    LostLink,
    SymbolicLink,
    /// Pipe or device.
    Special,
    /// Number of bytes between an end mark and the end of the file that contain no archive.
    AfterEnd(u64),
}

/// Contents of a file.
#[derive(Clone)]
pub struct Data {
    pub bytes: Range<u64>,
    /// [Check](check_of) of the header before the contents.
    pub check: u32,
}

/// Iterator over the members of all archives in a file.
#[derive(Default)]
pub struct Members {
    at: u64,
    /// Number and start of the current archive.
    archive: u64,
    start: u64,
    /// A file may contain several archives, one after another. Whether the last one has been read.
    ended: bool,
    /// Contents of the earlier files of the archive. Collected from the first hard link on, because
    /// few archives contain hard links.
    files: Option<Files>,
}

/// Contents of files by the hash of their name. Names are hashed because they may be long.
type Files = HashMap<[u8; 16], Data>;

/// Fields of extended headers that apply to the next member.
#[derive(Default)]
struct Extended {
    name: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
}

impl Members {
    /// Members after the contents of a member, which end at this offset.
    pub fn from(end: u64) -> Self {
        Self { at: end.next_multiple_of(BLOCK), ..Self::default() }
    }

    /// Offset of the next member's first header, or of the end mark.
    pub fn offset(&self) -> u64 {
        self.at
    }

    /// Whether the current archive has no more members.
    pub fn is_at_end(&self, window: &mut Window) -> Result<bool, FileError> {
        Ok(self.ended || header(window, self.at)?.is_none())
    }

    /// Returns the next member, which may be in the next archive. Returns `None` at the end of the
    /// file.
    pub fn next(&mut self, window: &mut Window) -> Result<Option<Member>, FileError> {
        let mut extended = Extended::default();
        // Offset of the first extended header.
        let mut first = None;
        loop {
            let offset = self.at;
            if self.ended {
                return Ok(None);
            }
            let Some(header) = header(window, offset)? else {
                match after_end(window, offset)? {
                    After::Archive(next) => {
                        (self.at, self.start, self.archive) = (next, next, self.archive + 1);
                        self.files = self.files.take().map(|_| Files::new());
                        (extended, first) = (Extended::default(), None);
                        continue;
                    }
                    After::Bytes(bytes) => {
                        self.ended = true;
                        let len = bytes.end - bytes.start;
                        if len == 0 {
                            return Ok(None);
                        }
                        let name = format!("byte {}", bytes.start).into_bytes();
                        let (offset, archive) = (bytes.start, self.archive);
                        return Ok(Some(Member {
                            start: offset,
                            offset,
                            name,
                            kind: Kind::AfterEnd(len),
                            archive,
                            is_hard_link: false,
                        }));
                    }
                }
            };
            let kind = header[156];
            let size = match extended.size {
                Some(size) if !matches!(kind, b'x' | b'g' | b'L' | b'K') => size,
                _ => number(&header[124..136]).ok_or_else(|| {
                    FileError::new(offset, "the header has no size: the archive is damaged")
                })?,
            };
            // Links, devices and folders have no contents, even if their size field is not 0.
            let size = if matches!(kind, b'1'..=b'6') { 0 } else { size };
            let start = offset + BLOCK;
            let end = start.checked_add(size).filter(|&end| end <= window.file_len());
            let end = end.ok_or_else(|| window.cut(start, size))?;
            self.at = end.next_multiple_of(BLOCK);
            let start_of_member = *first.get_or_insert(offset);
            let is_hard_link = kind == b'1';
            let kind = match kind {
                b'0' | b'7' | 0 => Kind::File(Data { bytes: start..end, check: check_of(&header) }),
                b'1' => {
                    let target = extended.link.take().unwrap_or_else(|| link(&header));
                    self.file(window, offset, &target)?.map_or(Kind::LostLink, Kind::File)
                }
                b'2' => Kind::SymbolicLink,
                b'3' | b'4' | b'6' => Kind::Special,
                b'L' => {
                    extended.name = Some(until_nul(small(window, start..end)?).to_vec());
                    continue;
                }
                b'K' => {
                    extended.link = Some(until_nul(small(window, start..end)?).to_vec());
                    continue;
                }
                b'x' => {
                    extended.read(small(window, start..end)?, start)?;
                    continue;
                }
                b'S' => return Err(sparse(offset)),
                // Global headers contain no field that is needed.
                b'g' => continue,
                _ => {
                    (extended, first) = (Extended::default(), None);
                    continue;
                }
            };
            let name = extended.name.unwrap_or_else(|| name(&header));
            if let (Some(files), Kind::File(data)) = (&mut self.files, &kind) {
                files.insert(hash(&name), data.clone());
            }
            let (start, archive) = (start_of_member, self.archive);
            return Ok(Some(Member { start, offset, name, kind, archive, is_hard_link }));
        }
    }

    /// Returns the contents of the file `name` that precedes the header at `before`. The first call
    /// scans the archive again up to this header.
    fn file(
        &mut self,
        window: &mut Window,
        before: u64,
        name: &[u8],
    ) -> Result<Option<Data>, FileError> {
        if self.files.is_none() {
            // The scan `again` has its own table of files. So it records the contents of files by
            // their names, and does not start another scan when it reaches a hard link.
            let (at, files) = (self.start, Some(Files::new()));
            let mut again = Members { at, files, ..Members::default() };
            while again.at < before && again.next(window)?.is_some_and(|it| it.offset < before) {}
            self.files = again.files;
        }
        Ok(self.files.as_ref().and_then(|files| files.get(&hash(name))).cloned())
    }
}

/// Hash of the normalised name. GNU tar strips `/` and `../` from members, but not always from
/// links.
fn hash(mut name: &[u8]) -> [u8; 16] {
    while let Some(rest) =
        [&b"/"[..], b"./", b"../"].iter().find_map(|prefix| name.strip_prefix(*prefix))
    {
        name = rest;
    }
    let digest: [u8; 32] = Sha256::digest(name).into();
    *digest.first_chunk().expect("16 of 32 bytes")
}

impl Extended {
    /// Parses records of the form `LENGTH KEY=VALUE\n`.
    fn read(&mut self, mut text: &[u8], offset: u64) -> Result<(), FileError> {
        let damaged = || FileError::new(offset, "an extended header is damaged");
        while !text.is_empty() {
            let blank = text.iter().position(|&byte| byte == b' ').ok_or_else(damaged)?;
            let digits = str::from_utf8(&text[..blank]).map_err(|_| damaged())?;
            let len = digits.parse().map_err(|_| damaged())?;
            let (record, rest) = text.split_at_checked(len).ok_or_else(damaged)?;
            let record = record.get(blank + 1..).and_then(|it| it.strip_suffix(b"\n"));
            let record = record.ok_or_else(damaged)?;
            let equals = record.iter().position(|&byte| byte == b'=').ok_or_else(damaged)?;
            let (key, value) = (&record[..equals], &record[equals + 1..]);
            match key {
                b"path" => self.name = Some(value.to_vec()),
                b"linkpath" => self.link = Some(value.to_vec()),
                b"size" => {
                    let size = str::from_utf8(value).ok().and_then(|it| it.parse().ok());
                    self.size = Some(size.ok_or_else(damaged)?);
                }
                _ if key.starts_with(b"GNU.sparse.") => return Err(sparse(offset)),
                _ => {}
            }
            text = rest;
        }
        Ok(())
    }
}

/// Reads and verifies a header. Returns `None` for the block of zeros that ends an archive.
fn header(window: &mut Window, offset: u64) -> Result<Option<[u8; 512]>, FileError> {
    if offset == 0 {
        let first = window.at(0, window.file_len().min(6))?;
        if let Some(way_out) = compression(first) {
            let problem = format!(
                "the compression of the archive is unsupported (gzip and zstd are supported); decompress it ({way_out})"
            );
            return Err(FileError::new(0, problem));
        }
    }
    if window.ends_at(offset)? {
        return Err(FileError::new(
            offset,
            "the archive has no end mark: it is truncated; copy it again",
        ));
    }
    let header: [u8; 512] = *window.at(offset, BLOCK)?.first_chunk().expect("512 bytes");
    if header == [0; 512] {
        return Ok(None);
    }
    if !is_header(&header) {
        let sort = if offset == 0 {
            "the file is not a tar archive, or is damaged"
        } else {
            "it is damaged"
        };
        let problem = format!("the header does not match its checksum: {sort}");
        return Err(FileError::new(offset, problem));
    }
    Ok(Some(header))
}

/// What follows the end mark of an archive: another archive, or the rest of the file.
enum After {
    /// Offset of another archive.
    Archive(u64),
    /// Bytes up to the end of the file that contain no archive; empty in most files.
    Bytes(Range<u64>),
}

/// Reads after the end mark at offset `mark`: zeros, then another archive or the end of the file.
/// Other bytes are skipped if no archive follows them. If an archive follows, they are an error,
/// because they may be a damaged archive.
fn after_end(window: &mut Window, mark: u64) -> Result<After, FileError> {
    let mut at = mark + BLOCK;
    let mut other = None;
    loop {
        let part = window.up_to(at, END_BYTES)?;
        let len = part.len() as u64;
        for (number, block) in part.chunks(BLOCK as usize).enumerate() {
            let offset = at + BLOCK * number as u64;
            if block.iter().all(|&byte| byte == 0) {
                continue;
            }
            match (block.first_chunk().is_some_and(is_header), other) {
                (true, None) => return Ok(After::Archive(offset)),
                (true, Some(other)) => {
                    let problem = format!(
                        "the bytes after the end mark at byte {mark} are not a tar header, but an archive begins at byte \
                         {offset}: the file is damaged; join the archives again"
                    );
                    return Err(FileError::new(other, problem));
                }
                (false, _) => other = other.or(Some(offset)),
            }
        }
        at += len;
        if len < END_BYTES {
            // A power failure or an unfinished copy leaves many zeros at the end of a file, so more
            // zeros than usual are counted as skipped.
            let zeros = (at - mark > MOST_ZEROS).then_some(mark + BLOCK);
            return Ok(After::Bytes(other.or(zeros).unwrap_or(at)..at));
        }
        if window.file_len() == Window::UNKNOWN && at - mark > MOST_PADDING {
            let problem = format!(
                "after the end mark, there are more than {} MiB that are not another archive; \
                 compress the archive without these bytes",
                MOST_PADDING >> 20
            );
            return Err(FileError::new(mark, problem));
        }
    }
}

/// Returns the name of the member whose contents begin at `offset`. The name is read from the
/// headers before the contents.
pub fn name_before(file: &File, offset: u64) -> Option<String> {
    let from = offset.saturating_sub((2 + LONGEST_NAME) * BLOCK);
    let mut bytes = vec![0; usize::try_from(offset - from).ok()?];
    file.read_exact_at(&mut bytes, from).ok()?;
    let (before, own) = bytes.split_last_chunk()?;
    is_header(own).then_some(())?;
    // Searches for an extended header whose contents end directly before the member's header.
    let long = before.rchunks(BLOCK as usize).skip(1).zip(1..).find_map(|(head, blocks)| {
        let head = head.first_chunk().filter(|head| is_header(head))?;
        let len = number(&head[124..136]).filter(|len| len.div_ceil(BLOCK) == blocks)?;
        let text = &before[before.len() - (blocks * BLOCK) as usize..];
        let text = &text[..len as usize];
        match head[156] {
            b'L' => Some(until_nul(text).to_vec()),
            b'x' => {
                let mut extended = Extended::default();
                extended.read(text, offset).ok()?;
                extended.name
            }
            _ => None,
        }
    });
    Some(String::from_utf8_lossy(&long.unwrap_or_else(|| name(own))).into_owned())
}

/// Whether the checksum of the header matches.
pub fn is_header(header: &[u8; 512]) -> bool {
    // The checksum is computed as if its own field contained spaces.
    let sum: u64 = header.iter().map(|&byte| u64::from(byte)).sum();
    let field: u64 = header[148..156].iter().map(|&byte| u64::from(byte)).sum();
    number(&header[148..156]) == Some(sum - field + 8 * u64::from(b' '))
}

fn name(header: &[u8; 512]) -> Vec<u8> {
    let (name, prefix) = (until_nul(&header[..100]), until_nul(&header[345..500]));
    // GNU headers use the prefix field for other data.
    if &header[257..263] == b"ustar\0" && !prefix.is_empty() {
        [prefix, b"/", name].concat()
    } else {
        name.to_vec()
    }
}

/// Returns the name of the target of a link.
fn link(header: &[u8; 512]) -> Vec<u8> {
    until_nul(&header[157..257]).to_vec()
}

/// Parses octal digits that may follow spaces and end at NUL or a space. If the first bit is set,
/// the number is binary.
fn number(field: &[u8]) -> Option<u64> {
    if let [0x80, digits @ ..] = field {
        return digits.iter().try_fold(0u64, |number, &byte| {
            number.checked_mul(256).map(|number| number + u64::from(byte))
        });
    }
    let text = str::from_utf8(until_nul(field)).ok()?.trim();
    u64::from_str_radix(text, 8).ok()
}

/// Returns the contents of an extended header, which may have at most [`Window::BYTES`] bytes.
fn small<'a>(window: &'a mut Window, data: Range<u64>) -> Result<&'a [u8], FileError> {
    let len = data.end - data.start;
    if len > Window::BYTES {
        let problem =
            format!("an extended header has {len} bytes; the maximum is {} bytes", Window::BYTES);
        return Err(FileError::new(data.start, problem));
    }
    window.at(data.start, len)
}

/// Returns the program that decompresses a file, if its compression is known but not supported.
fn compression(first: &[u8]) -> Option<&'static str> {
    let known: [(&[u8], &str); 3] =
        [(b"BZh", "bunzip2"), (b"\xfd7zXZ", "unxz"), (b"\x04\x22\x4d\x18", "unlz4")];
    known.iter().find(|(magic, _)| first.starts_with(magic)).map(|(_, program)| *program)
}

fn until_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|&byte| byte == 0).next().unwrap_or(bytes)
}

fn sparse(offset: u64) -> FileError {
    FileError::new(
        offset,
        "the archive has a sparse file, which is not supported; pack the archive without --sparse",
    )
}
