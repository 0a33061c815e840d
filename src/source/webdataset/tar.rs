//! The regular files of a tar archive: ustar, GNU and pax headers (POSIX.1-2017 "pax", GNU tar's `tar.h`), each with
//! its checksum.

use std::ops::Range;

use crate::source::records::{Window, Wrong};

/// Bytes that are read for a header: contents are passed over.
pub const AHEAD_BYTES: u64 = 4096;
const BLOCK: u64 = 512;

/// A regular file.
pub struct Member {
    /// Its header's byte.
    pub offset: u64,
    pub name: Vec<u8>,
    pub data: Range<u64>,
}

/// The members that are still to come.
#[derive(Default)]
pub struct Members {
    at: u64,
}

/// What extended headers say of the next member.
#[derive(Default)]
struct Extended {
    name: Option<Vec<u8>>,
    size: Option<u64>,
}

impl Members {
    /// The next regular file; `None` at the archive's end mark.
    pub fn next(&mut self, window: &mut Window) -> Result<Option<Member>, Wrong> {
        let mut extended = Extended::default();
        loop {
            let offset = self.at;
            let Some(header) = header(window, offset)? else { return Ok(None) };
            let kind = header[156];
            let size = match extended.size {
                Some(size) if !matches!(kind, b'x' | b'g' | b'L' | b'K') => size,
                _ => number(&header[124..136]).ok_or_else(|| {
                    Wrong::new(offset, "the header has no size: the archive is damaged")
                })?,
            };
            // Links, devices and folders have no contents, whatever their size says.
            let size = if matches!(kind, b'1'..=b'6') { 0 } else { size };
            let start = offset + BLOCK;
            let end = start.checked_add(size).filter(|&end| end <= window.file_len());
            let end = end.ok_or_else(|| window.cut(start, size))?;
            self.at = end.next_multiple_of(BLOCK);
            match kind {
                b'0' | b'7' | 0 => {
                    let name = extended.name.unwrap_or_else(|| name(&header));
                    return Ok(Some(Member { offset, name, data: start..end }));
                }
                b'L' => extended.name = Some(until_nul(small(window, start..end)?).to_vec()),
                b'x' => extended.read(small(window, start..end)?, start)?,
                b'S' => return Err(sparse(offset)),
                // What is said of all files, or of links, has nothing that is needed here.
                b'g' | b'K' => {}
                _ => extended = Extended::default(),
            }
        }
    }
}

impl Extended {
    /// Records `LENGTH KEY=VALUE\n`.
    fn read(&mut self, mut text: &[u8], offset: u64) -> Result<(), Wrong> {
        let damaged = || Wrong::new(offset, "an extended header is damaged");
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

/// A header whose checksum is right; `None` for the block of zeros that ends an archive.
fn header(window: &mut Window, offset: u64) -> Result<Option<[u8; 512]>, Wrong> {
    if offset == 0 {
        let first = window.at(0, window.file_len().min(6))?;
        if let Some(way_out) = compression(first) {
            let problem = format!(
                "the archive is compressed, and members of it have no place of their own; unpack it ({way_out})"
            );
            return Err(Wrong::new(0, problem));
        }
    }
    if offset >= window.file_len() {
        return Err(Wrong::new(offset, "the archive has no end mark: it is cut; copy it again"));
    }
    let header: [u8; 512] = *window.at(offset, BLOCK)?.first_chunk().expect("512 bytes");
    if header == [0; 512] {
        return Ok(None);
    }
    // The checksum's own field counts as blanks.
    let sum: u64 = header.iter().map(|&byte| u64::from(byte)).sum();
    let field: u64 = header[148..156].iter().map(|&byte| u64::from(byte)).sum();
    if number(&header[148..156]) != Some(sum - field + 8 * u64::from(b' ')) {
        let sort =
            if offset == 0 { "the file is no tar archive, or is damaged" } else { "it is damaged" };
        let problem = format!("the header does not match its checksum: {sort}");
        return Err(Wrong::new(offset, problem));
    }
    Ok(Some(header))
}

fn name(header: &[u8; 512]) -> Vec<u8> {
    let (name, prefix) = (until_nul(&header[..100]), until_nul(&header[345..500]));
    // GNU's own headers have other things in the prefix's place.
    if &header[257..263] == b"ustar\0" && !prefix.is_empty() {
        [prefix, b"/", name].concat()
    } else {
        name.to_vec()
    }
}

/// Octal digits between blanks and up to NUL or a blank, or binary where the first bit is set.
fn number(field: &[u8]) -> Option<u64> {
    if let [0x80, digits @ ..] = field {
        return digits.iter().try_fold(0u64, |number, &byte| {
            number.checked_mul(256).map(|number| number + u64::from(byte))
        });
    }
    let text = str::from_utf8(until_nul(field)).ok()?.trim();
    u64::from_str_radix(text, 8).ok()
}

/// The contents of an extended header, which are in memory at once.
fn small<'a>(window: &'a mut Window, data: Range<u64>) -> Result<&'a [u8], Wrong> {
    let len = data.end - data.start;
    if len > Window::BYTES {
        let problem =
            format!("an extended header of {len} bytes, at most {} are read", Window::BYTES);
        return Err(Wrong::new(data.start, problem));
    }
    window.at(data.start, len)
}

/// What unpacks a file that begins so.
fn compression(first: &[u8]) -> Option<&'static str> {
    let known: [(&[u8], &str); 5] = [
        (b"\x1f\x8b", "gunzip"),
        (b"\x28\xb5\x2f\xfd", "unzstd"),
        (b"BZh", "bunzip2"),
        (b"\xfd7zXZ", "unxz"),
        (b"\x04\x22\x4d\x18", "unlz4"),
    ];
    known.iter().find(|(magic, _)| first.starts_with(magic)).map(|(_, program)| *program)
}

fn until_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|&byte| byte == 0).next().unwrap_or(bytes)
}

fn sparse(offset: u64) -> Wrong {
    Wrong::new(offset, "a sparse file; pack the archive without --sparse")
}
