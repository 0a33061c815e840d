//! Reader of a JPEG's markers, used by parsing and verification.

use memchr::memchr;

use crate::error::DataError;
use crate::header::{be16, corrupt, truncated};

pub(in crate::header) const DHT: u8 = 0xC4;
pub(in crate::header) const SOI: u8 = 0xD8;
pub(in crate::header) const EOI: u8 = 0xD9;
pub(in crate::header) const SOS: u8 = 0xDA;
pub(in crate::header) const DQT: u8 = 0xDB;
pub(in crate::header) const DRI: u8 = 0xDD;

/// Position in a JPEG.
#[derive(Clone, Copy, Debug)]
pub(in crate::header) struct Markers<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Markers<'a> {
    /// Starts after the start-of-image marker at the beginning of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 2 }
    }

    /// Offset of this position in the file.
    pub fn at(&self) -> usize {
        self.at
    }

    /// Remaining bytes.
    pub fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    /// Moves past the next marker and returns it. Bytes before the marker are skipped, as in
    /// libjpeg.
    pub fn find(&mut self) -> Result<u8, DataError> {
        let rest = self.rest();
        let marker =
            rest.windows(2).position(|pair| pair[0] == 0xFF && !matches!(pair[1], 0x00 | 0xFF));
        let at = marker.ok_or_else(|| truncated("its header"))?;
        self.at += at + 2;
        Ok(rest[at + 1])
    }

    /// Moves past a marker and returns it. The marker must follow directly, after any number of
    /// fill bytes.
    pub fn expect(&mut self) -> Result<u8, DataError> {
        let rest = self.rest();
        let code = rest.iter().position(|&byte| byte != 0xFF);
        match code {
            None => Err(truncated("its markers")),
            Some(0) => Err(corrupt(format!("no marker at byte {}", self.at))),
            Some(at) => {
                self.at += at + 1;
                Ok(rest[at])
            }
        }
    }

    /// Whether the segment that begins here has a length that is less than the size of the length
    /// field.
    pub fn is_short(&self) -> bool {
        matches!(be16(self.rest(), 0), Some(0 | 1))
    }

    /// Moves past the length field of a segment without content.
    pub fn skip_length(&mut self) {
        self.at += 2;
    }

    /// Moves past the segment of a marker. Returns the segment's content without the length.
    pub fn segment(&mut self, marker: u8) -> Result<&'a [u8], DataError> {
        let what = || format!("segment ff {marker:02x}");
        let rest = self.rest();
        let length = usize::from(be16(rest, 0).ok_or_else(|| truncated(&what()))?);
        if length < 2 {
            return Err(corrupt(format!(
                "{} gives its length as {length} bytes; the length must be at least 2",
                what()
            )));
        }
        let whole = rest.get(..length).ok_or_else(|| truncated(&what()))?;
        self.at += length;
        Ok(&whole[2..])
    }

    /// Moves to the marker after coded data. Returns the number of coded bytes without stuffing.
    pub fn coded_data(&mut self) -> Result<u64, DataError> {
        let begin = self.at;
        let mut stuffed = 0;
        loop {
            let rest = self.rest();
            let at = memchr(0xFF, rest).ok_or_else(|| truncated("a scan"))?;
            match rest.get(at + 1) {
                None => return Err(truncated("a scan")),
                Some(0) => {
                    stuffed += 1;
                    self.at += at + 2;
                }
                Some(_) => {
                    self.at += at;
                    return Ok((self.at - begin - stuffed) as u64);
                }
            }
        }
    }
}
