//! PNG decoding with the `png` crate. Samples are interpreted as in Pillow.
//!
//! | stored | result |
//! |---|---|
//! | gray of 1, 2, 4 bits | spread over 0 to 255 |
//! | gray of 16 bits | clipped to 255, so nearly white, as Pillow converts `I;16` to `RGB` |
//! | gray with alpha, RGB, RGBA of 16 bits | only the high byte of each sample is used |
//! | index into the palette | its color; without a palette: the error `Corrupt`, or black if not strict |
//! | alpha channel and tRNS chunk (transparency) | dropped, or alpha as in Pillow's `convert("RGBA")` |

use std::io::{self, BufRead, ErrorKind, Read, Seek, SeekFrom};

use png::{DecodeOptions, Decoder, DecodingError, Limits, Reader};

use super::rows::{RowGroups, grown, most_rows};
use super::{
    Buffers, DecodeMemory, EncodedImage, HostDecoder, LIBRARY_BYTES, RowLayout, RowSink,
    size_changed,
};
use crate::error::{DataError, Reason, Tolerated, reserve};
use crate::geometry::{Roi, Size};
use crate::header::{Format, Header, PngEnd, PngLayout, png_layout};
use crate::tensor::CHANNELS;

mod damaged;
mod samples;
mod values;

use damaged::Shape;
use samples::Samples;
pub(super) use samples::packed_sample;
pub(super) use values::{PngSamples, read_indices, read_png, read_values};

/// Memory that the `png` crate may allocate for chunks besides the rows, in bytes.
const SLACK_BYTES: usize = 1 << 16;

/// Number of rows, and number of bytes, after which the `png` crate moves the unpacked data to the
/// start of its buffer.
const SHIFT: (u64, u64) = (4, 128 << 10);
/// Amount of unpacked data that the `png` crate keeps for references (32 KiB), with a margin, in
/// bytes.
const LOOK_BACK_BYTES: u64 = 56 << 10;

/// Chunk that is appended to end the stream that the `png` crate reads.
const IEND: &[u8] = b"\0\0\0\0IEND\xaeB`\x82";

/// Decoder that uses the `png` crate, and a copy of Pillow's loop for damaged images. Accepts every
/// PNG.
#[derive(Debug, Default)]
pub(super) struct Png;

impl HostDecoder for Png {
    fn name(&self) -> &'static str {
        "png"
    }

    fn accepts(&self, header: &Header) -> bool {
        header.format == Format::Png
    }

    fn memory(&self, header: &Header, head: &[u8], _: u64) -> DecodeMemory {
        let (width, height) = (u64::from(header.size.width), u64::from(header.size.height));
        // In the chunk IHDR, bit depth, color type and interlacing follow width and height.
        let at = |place: usize| head.get(place).copied().map(u64::from);
        let bits = at(24).filter(|it| matches!(it, 1 | 2 | 4 | 8 | 16)).unwrap_or(16);
        let samples = match at(25) {
            Some(0 | 3) => 1,
            Some(4) => 2,
            Some(2) => 3,
            _ => 4,
        };
        let interlaced = at(28) != Some(0);
        let stored = (width * bits * samples).div_ceil(8);
        let row = stored + 1;
        let (rows, bytes) = SHIFT;
        let all = row.saturating_mul(height.saturating_add(if interlaced { 8 } else { 0 }));
        let unpacked = (rows * row).max(bytes) + 2 * row + LOOK_BACK_BYTES;
        // The crate's buffer doubles when it grows, and the old copy exists until it has been
        // copied. Together they take up to three times the needed size.
        let unpacked = 3 * unpacked.min(all.saturating_add(LOOK_BACK_BYTES));
        DecodeMemory {
            scratch: if interlaced { stored.saturating_mul(height) } else { 0 },
            rows: CHANNELS as u64 * width * most_rows(header.size.height),
            library: LIBRARY_BYTES + unpacked + 3 * row + 32 * width + SLACK_BYTES as u64,
        }
    }

    fn decode(
        &mut self,
        image: &EncodedImage<'_>,
        buffers: &mut Buffers,
        sink: &mut RowSink<'_>,
    ) -> Result<Option<Tolerated>, DataError> {
        // The crate aborts the process if an allocation fails, so the memory is checked first.
        let _crate = reserve::promise(crate_bytes(image.header.size.width) as u64)?;
        decode(image, buffers, sink)
    }

    fn layouts(&self, _: &Header) -> &'static [RowLayout] {
        &[RowLayout::Rgb, RowLayout::Rgba]
    }
}

/// Returns the maximum memory that the `png` crate allocates for an image with `width` columns, in
/// bytes. A pixel takes at most 8 bytes.
fn crate_bytes(width: u32) -> usize {
    4 * 8 * width as usize + SLACK_BYTES
}

/// Passes only IHDR and IDAT to the `png` crate, because other chunks cannot change the pixels and
/// must not cause errors. If the crate refuses an image and the decode is not strict, the image is
/// read again in the way that Pillow reads it.
fn decode(
    image: &EncodedImage<'_>,
    Buffers { scratch, rows, clipped, .. }: &mut Buffers,
    sink: &mut RowSink<'_>,
) -> Result<Option<Tolerated>, DataError> {
    let EncodedImage {
        bytes, header: &Header { size, .. }, window, strict, layout: of_rows, ..
    } = *image;
    let layout = png_layout(bytes)?;
    let mut options = DecodeOptions::default();
    // Pillow checks zlib's checksum but not those of the chunks. If `strict` is set, the crate
    // checks both.
    options.set_ignore_adler32(false);
    options.set_ignore_crc(!strict);
    let mut decoder = Decoder::new_with_options(Chunks::new(&layout), options);
    decoder.set_limits(Limits { bytes: crate_bytes(size.width) });
    let mut reader = decoder.read_info().map_err(error)?;
    let found = Size::new(reader.info().width, reader.info().height);
    if found != size {
        return Err(size_changed(size, found));
    }
    let shape = Shape::new(reader.info());
    let samples = Samples::new(reader.info(), &layout, of_rows, strict)?;
    let groups = RowGroups::new(rows, (window, of_rows), sink)?;
    // If the last row is decoded, as always in an interlaced image, the data after the rows is
    // checked too.
    let whole = shape.interlaced || window.bottom() == size.height;
    let mut rows = Rows { samples, window, groups };
    let intact = strict || layout.checksums_hold();
    let sound = rows.sound(&mut reader, scratch, whole);
    drop(reader);
    let mut damaged = false;
    let mut tolerated = None;
    match sound {
        // The crate ignores some damage that zlib detects. So its success is only trusted if all
        // checksums are right, or if only a part of the image is decoded.
        Ok(()) if intact || !whole => {}
        Err(error) if strict || !matches!(error.reason, Reason::Corrupt | Reason::Truncated) => {
            return Err(error);
        }
        sound => {
            damaged = true;
            // If the second reading fails too, the crate's error is returned, because it is more
            // precise.
            let all = rows
                .damaged(&layout, shape, scratch)
                .map_err(|error| sound.err().unwrap_or(error))?;
            tolerated = (!all).then_some(Tolerated::PngRows);
        }
    }
    *clipped |= rows.samples.clipped;
    if rows.samples.beyond_palette {
        tolerated = tolerated.or(Some(Tolerated::PngPalette));
    }
    if whole {
        tolerated = tolerated.or(ending(&layout, strict)?);
    }
    if !strict && tolerated.is_none() && (damaged || !intact) {
        tolerated = Some(Tolerated::PngChecksum);
    }
    Ok(tolerated)
}

/// Passes the window's rows to the sink.
struct Rows<'a> {
    samples: Samples<'a>,
    window: Roi,
    groups: RowGroups<'a>,
}

impl Rows<'_> {
    /// Reads an intact image. If `whole` is set, also checks the data after its rows.
    fn sound(
        &mut self,
        reader: &mut Reader<Chunks<'_>>,
        scratch: &mut Vec<u8>,
        whole: bool,
    ) -> Result<(), DataError> {
        if reader.info().interlaced {
            let len =
                reader.output_buffer_size().ok_or_else(|| error(DecodingError::LimitsExceeded))?;
            let scratch = grown(scratch, len)?;
            // The crate adds the bits of pixels smaller than a byte to the bits of the buffer.
            scratch.fill(0);
            let stride = reader.next_frame(scratch).map_err(error)?.line_size;
            self.give_all(scratch, stride)?;
        } else {
            for y in 0..self.window.bottom() {
                let stored = reader.next_row().map_err(error)?;
                let stored = stored.ok_or_else(|| {
                    DataError::new(Reason::Truncated, "the PNG ends before its last row")
                })?;
                if y >= self.window.y {
                    self.give(stored.data())?;
                }
            }
        }
        if whole { reader.finish().map_err(error) } else { Ok(()) }
    }

    /// Reads the rest of an image as Pillow does, starting after the rows that the sink has already
    /// received. Returns whether all rows were present.
    fn damaged(
        &mut self,
        layout: &PngLayout<'_>,
        shape: Shape,
        scratch: &mut Vec<u8>,
    ) -> Result<bool, DataError> {
        if shape.interlaced {
            let all = damaged::interlaced(layout, shape, scratch)?;
            self.give_all(scratch, shape.stride())?;
            return Ok(all);
        }
        let (from, to) = (self.groups.next(), self.window.bottom());
        let all = damaged::in_order(layout, shape, from..to, &mut |row| self.give(row))?;
        // In Pillow, missing pixels are zero.
        let missing = self.groups.next()..to;
        if !missing.is_empty() {
            for _ in missing {
                self.samples.fill_missing(self.groups.row())?;
                self.groups.push();
            }
        }
        Ok(all)
    }

    /// Converts the next row and adds it to the current group of rows. `stored` has the samples of
    /// all columns.
    fn give(&mut self, stored: &[u8]) -> Result<(), DataError> {
        self.samples.convert_row(stored, self.window, self.groups.row())?;
        self.groups.push();
        Ok(())
    }

    fn give_all(&mut self, image: &[u8], stride: usize) -> Result<(), DataError> {
        for y in self.groups.next()..self.window.bottom() {
            self.give(&image[stride * y as usize..][..stride])?;
        }
        Ok(())
    }
}

/// Checks the chunks after the pixels.
fn ending(layout: &PngLayout<'_>, strict: bool) -> Result<Option<Tolerated>, DataError> {
    let problem = match &layout.end {
        PngEnd::Whole => return Ok(None),
        PngEnd::Malformed(error) => return Err(error.clone()),
        PngEnd::Missing if !strict => return Ok(Some(Tolerated::PngEnd)),
        PngEnd::Missing => "the PNG has no IEND chunk",
        PngEnd::Cut => "the PNG ends inside a chunk after its pixels",
    };
    Err(DataError::new(Reason::Truncated, problem))
}

/// Parts of the stream that the `png` crate reads, in order.
struct Chunks<'a> {
    parts: [&'a [u8]; 3],
}

impl<'a> Chunks<'a> {
    fn new(layout: &PngLayout<'a>) -> Self {
        let end = if layout.pixels_whole { IEND } else { &[] };
        Self { parts: [layout.head, layout.pixels, end] }
    }
}

impl BufRead for Chunks<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        let part = self.parts.iter().find(|part| !part.is_empty());
        Ok(part.copied().unwrap_or_default())
    }

    fn consume(&mut self, count: usize) {
        if let Some(part) = self.parts.iter_mut().find(|part| !part.is_empty()) {
            *part = &part[count..];
        }
    }
}

impl Read for Chunks<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.fill_buf()?.read(buffer)?;
        self.consume(count);
        Ok(count)
    }
}

/// The `png` crate requires this trait, but does not use it here.
impl Seek for Chunks<'_> {
    fn seek(&mut self, _: SeekFrom) -> io::Result<u64> {
        Err(ErrorKind::Unsupported.into())
    }
}

fn error(error: DecodingError) -> DataError {
    let reason = match &error {
        DecodingError::IoError(error) if error.kind() == ErrorKind::UnexpectedEof => {
            Reason::Truncated
        }
        DecodingError::LimitsExceeded => Reason::Oversized,
        _ => Reason::Corrupt,
    };
    DataError::new(reason, format!("the PNG cannot be decoded: {error}"))
}
