//! Decoders of compressed files. They only run forwards, and can resume at a [`Mark`].
//!
//! * gzip is RFC 1952: any number of members, whose CRC-32 and length are verified. Zeros may
//!   follow the last member. zlib is RFC 1950 with its Adler-32. Both can be resumed anywhere: a
//!   mark contains the decoder's tables and the last 32 KiB.
//! * Zstandard is RFC 8878: any number of frames; skippable frames are skipped. Decoding can be
//!   resumed at the start of a frame. A frame's checksum is verified if present. A frame that
//!   refers back more than 128 MiB (its window size) is an error, as in the program `zstd`.
//! * The memory of a decoder does not depend on the contents of a file.

use std::io::{self, Error, ErrorKind};

use crc32fast::Hasher;
use miniz_oxide::inflate::stream::{InflateState, MinReset, inflate};
use miniz_oxide::{DataFormat, MZError, MZFlush, MZStatus};

use super::Packing;
use super::zstd::Zstd;
use crate::storage::File;

/// Number of compressed bytes that are read at once.
const INPUT_BYTES: usize = 128 << 10;

/// A decoder with its positions in the compressed file and in its output.
pub struct Decoder {
    engine: Engine,
    /// Position of the next byte of output.
    at: u64,
    input: Vec<u8>,
    /// Number of bytes of `input` that were consumed.
    used: usize,
    /// Position in the compressed file of the byte after `input`.
    packed: u64,
}

/// Position at which a decoder can resume, with the necessary state.
#[derive(Clone)]
pub struct Mark {
    engine: Option<Deflate>,
    pub at: u64,
    packed: u64,
}

enum Engine {
    Deflate(Deflate),
    Zstd(Zstd),
}

#[derive(Clone)]
struct Deflate {
    inflate: Box<InflateState>,
    /// Checksum of the uncompressed bytes of the current gzip member so far, and their number
    /// modulo 2^32.
    crc: Hasher,
    len: u32,
    stage: Stage,
    packing: Packing,
}

/// Part of the stream that is decoded next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    First,
    Body,
    Trailer,
    /// After a member: another member follows, or the file ends.
    Between,
}

impl Decoder {
    /// Creates a decoder at the beginning of a file.
    pub fn new(packing: Packing) -> io::Result<Self> {
        let engine = match packing {
            Packing::Gzip | Packing::Zlib => Engine::Deflate(Deflate::new(packing)),
            Packing::Zstd => Engine::Zstd(Zstd::new((0, 0))?),
        };
        Ok(Self { engine, at: 0, input: Vec::new(), used: 0, packed: 0 })
    }

    /// Creates a decoder that resumes at a mark.
    pub fn resume(mark: &Mark) -> io::Result<Self> {
        let Mark { engine, at, packed } = mark.clone();
        let engine = match engine {
            Some(deflate) => Engine::Deflate(deflate),
            None => Engine::Zstd(Zstd::new((at, packed))?),
        };
        Ok(Self { engine, at, input: Vec::new(), used: 0, packed })
    }

    /// Position of the next byte of output.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Allocated memory in bytes.
    pub fn bytes(&self) -> usize {
        let engine = match &self.engine {
            Engine::Deflate(_) => size_of::<InflateState>(),
            Engine::Zstd(zstd) => zstd.bytes(),
        };
        engine + self.input.capacity()
    }

    /// Fills the buffer, up to the end of the file. Returns the number of bytes written.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::UnexpectedEof`] if the compressed file is truncated, [`ErrorKind::InvalidData`]
    /// if it is damaged. Both messages name the position in the compressed file.
    pub fn read(&mut self, file: &File, buffer: &mut [u8]) -> io::Result<usize> {
        let mut len = 0;
        while len < buffer.len() {
            let count = match &self.engine {
                Engine::Deflate(_) => self.deflate(file, &mut buffer[len..])?,
                Engine::Zstd(_) => self.zstd(file, &mut buffer[len..])?,
            };
            let Some(count) = count else { break };
            len += count;
            self.at += count as u64;
        }
        Ok(len)
    }

    /// Returns a mark at position `from` or later. Returns `None` if this decoder has not yet
    /// passed such a position at which decoding can resume.
    pub fn mark(&self, from: u64) -> Option<Mark> {
        match &self.engine {
            Engine::Deflate(deflate) => (self.at >= from).then(|| Mark {
                engine: Some(deflate.clone()),
                at: self.at,
                packed: self.place(),
            }),
            Engine::Zstd(zstd) => {
                let (at, packed) = zstd.frame;
                (at >= from).then_some(Mark { engine: None, at, packed })
            }
        }
    }

    /// Position of the next compressed byte.
    fn place(&self) -> u64 {
        self.packed - (self.input.len() - self.used) as u64
    }

    /// Reads more input if fewer than `count` bytes are buffered. Returns whether `count` bytes are
    /// available.
    fn fill(&mut self, file: &File, count: usize) -> io::Result<bool> {
        if self.input.len() - self.used >= count {
            return Ok(true);
        }
        self.input.drain(..self.used);
        self.used = 0;
        let held = self.input.len();
        self.input.resize(INPUT_BYTES, 0);
        let read = file.read_at(&mut self.input[held..], self.packed);
        let len = *read.as_ref().unwrap_or(&0);
        self.input.truncate(held + len);
        self.packed += len as u64;
        read.map(|_| self.input.len() >= count)
    }

    fn need(&mut self, file: &File, count: usize) -> io::Result<()> {
        if self.fill(file, count)? { Ok(()) } else { Err(self.cut()) }
    }

    fn byte(&mut self, file: &File) -> io::Result<u8> {
        self.need(file, 1)?;
        self.used += 1;
        Ok(self.input[self.used - 1])
    }

    fn cut(&self) -> Error {
        let place = self.packed;
        let problem = format!("the compressed file is truncated: it ends at byte {place}");
        Error::new(ErrorKind::UnexpectedEof, problem)
    }

    fn damaged(&self, what: &str) -> Error {
        let problem = format!("{what} at byte {} of the compressed file", self.place());
        Error::new(ErrorKind::InvalidData, problem)
    }

    /// Decodes some bytes of output, possibly none. Returns `None` at the end of the file.
    fn deflate(&mut self, file: &File, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let Engine::Deflate(deflate) = &mut self.engine else { return Ok(None) };
        let (stage, packing) = (deflate.stage, deflate.packing);
        match (stage, packing) {
            (Stage::Body, _) => {
                let input = &self.input[self.used..];
                let done = inflate(&mut deflate.inflate, input, buffer, MZFlush::None);
                self.used += done.bytes_consumed;
                let written = &buffer[..done.bytes_written];
                if packing == Packing::Gzip {
                    deflate.crc.update(written);
                    deflate.len = deflate.len.wrapping_add(written.len() as u32);
                }
                match done.status {
                    Ok(MZStatus::StreamEnd) => deflate.stage = Stage::Trailer,
                    Ok(_) | Err(MZError::Buf) => {
                        if done.bytes_consumed == 0 && written.is_empty() {
                            if self.used < self.input.len() {
                                return Err(self.damaged("deflate data without progress"));
                            }
                            self.need(file, 1)?;
                        }
                    }
                    Err(_) => {
                        let what = match packing {
                            Packing::Zlib => {
                                "damaged deflate data, or a checksum that does not match,"
                            }
                            _ => "damaged deflate data",
                        };
                        return Err(self.damaged(what));
                    }
                }
                return Ok(Some(done.bytes_written));
            }
            // The library parses the header and trailer of zlib itself.
            (Stage::First, Packing::Zlib) => self.enter(Stage::Body),
            (_, Packing::Zlib) => {
                if self.fill(file, 1)? {
                    return Err(self.damaged("something follows the end of the zlib data"));
                }
                return Ok(None);
            }
            (Stage::Trailer, _) => self.gzip_trailer(file)?,
            (Stage::Between, _) => {
                while self.fill(file, 1)? && self.input[self.used] == 0 {
                    self.used += 1;
                }
                if !self.fill(file, 1)? {
                    return Ok(None);
                }
                self.gzip_header(file)?;
            }
            (Stage::First, _) => self.gzip_header(file)?,
        }
        Ok(Some(0))
    }

    fn enter(&mut self, stage: Stage) {
        if let Engine::Deflate(deflate) = &mut self.engine {
            deflate.stage = stage;
        }
    }

    fn gzip_header(&mut self, file: &File) -> io::Result<()> {
        self.need(file, 10)?;
        let flags = match self.input[self.used..][..10] {
            [0x1f, 0x8b, 8, flags @ 0..0x20, ..] => flags,
            _ => return Err(self.damaged("no gzip header")),
        };
        self.used += 10;
        if flags & 4 != 0 {
            let len = u16::from_le_bytes([self.byte(file)?, self.byte(file)?]);
            for _ in 0..len {
                self.byte(file)?;
            }
        }
        // Skips the optional file name and comment, which each end with a zero byte.
        for flag in [8, 16] {
            while flags & flag != 0 && self.byte(file)? != 0 {}
        }
        // Skips the optional checksum of the header.
        if flags & 2 != 0 {
            self.need(file, 2)?;
            self.used += 2;
        }
        if let Engine::Deflate(deflate) = &mut self.engine {
            deflate.inflate.reset_as(MinReset);
            deflate.crc = Hasher::new();
            deflate.len = 0;
        }
        self.enter(Stage::Body);
        Ok(())
    }

    fn gzip_trailer(&mut self, file: &File) -> io::Result<()> {
        self.need(file, 8)?;
        let Engine::Deflate(deflate) = &self.engine else { return Ok(()) };
        let found = [deflate.crc.clone().finalize().to_le_bytes(), deflate.len.to_le_bytes()];
        if self.input[self.used..][..8] != *found.as_flattened() {
            return Err(self.damaged("the checksum or the length of gzip data that does not match"));
        }
        self.used += 8;
        self.enter(Stage::Between);
        Ok(())
    }

    /// Same as [`Self::deflate`], for Zstandard.
    fn zstd(&mut self, file: &File, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let Engine::Zstd(zstd) = &mut self.engine else { return Ok(None) };
        let (consumed, written, ended) = match zstd.step(&self.input[self.used..], buffer) {
            Ok(step) => step,
            Err(words) => return Err(self.damaged(&format!("zstd: {words}"))),
        };
        self.used += consumed;
        if ended {
            let packed = self.packed - (self.input.len() - self.used) as u64;
            zstd.frame = (self.at + written as u64, packed);
        }
        if consumed + written == 0 {
            if self.used < self.input.len() {
                return Err(self.damaged("zstd data without progress"));
            }
            let inside = zstd.inside;
            if !self.fill(file, 1)? {
                return if inside { Err(self.cut()) } else { Ok(None) };
            }
        }
        Ok(Some(written))
    }
}

impl Mark {
    /// Allocated memory in bytes.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + if self.engine.is_some() { size_of::<InflateState>() } else { 0 }
    }
}

impl Deflate {
    fn new(packing: Packing) -> Self {
        let format = match packing {
            Packing::Zlib => DataFormat::Zlib,
            _ => DataFormat::Raw,
        };
        let inflate = InflateState::new_boxed(format);
        Self { inflate, crc: Hasher::new(), len: 0, stage: Stage::First, packing }
    }
}
