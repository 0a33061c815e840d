//! Reads Caffe's `Datum` (`src/caffe/proto/caffe.proto`):
//!
//! ```text
//! Datum { int32 channels = 1, height = 2, width = 3; bytes data = 4; int32 label = 5;
//!         repeated float float_data = 6; bool encoded = 7 [default = false] }
//! ```
//!
//! If `encoded` is false, the data are pixels: one plane each of blue, green and red, or one gray
//! plane.

use std::io;
use std::ops::Range;

use crate::geometry::Size;
use crate::header::PnmHead;
use crate::source::records::protobuf::{Fields, Value};
use crate::source::records::{Entry, FileError, Window};
use crate::storage::File;
use crate::tensor::CHANNELS;

/// Message for bytes that are not a Datum.
pub const OTHERWISE: &str = "the value is not a Datum of Caffe; write source.values = \"image\" if values are images, \
    or skip the key (source.skip_keys)";

/// Bit that marks three colour planes in the note of a sample of raw pixels. A note is a number
/// that the table stores for each sample. It also contains the width (bits 16 to 30) and the height
/// (lower 16 bits).
const COLOUR: u32 = 1 << 31;
const MOST_SIDE: u64 = (1 << 15) - 1;

/// Size of an element of `float_data` in bytes.
pub const FLOAT_BYTES: u64 = 4;

/// Number of pixels per plane that are interleaved at a time.
const AT_ONCE: usize = 16 << 10;

/// A Datum: the sample's entry, and a set of the numbers of its fields, one bit for each.
pub struct Found {
    pub entry: Entry,
    pub numbers: u8,
}

/// Parses the Datum in a value. With `for_fields`, a Datum of floats needs no image: the entry is
/// empty then.
pub fn find(window: &mut Window, value: Range<u64>, for_fields: bool) -> Result<Found, FileError> {
    let (start, end) = (value.start, value.end);
    let (mut floats, mut numbers) = (0, 0);
    let (mut shape, mut data, mut label, mut encoded) = ([0; 3], None, 0, false);
    let mut fields = Fields::of(value, OTHERWISE);
    while let Some(field) = fields.next(window)? {
        match &field {
            (number @ 1..=5, Value::Number(_)) => numbers |= 1 << number,
            (number @ 6, Value::Bytes(bytes) | Value::Fixed(bytes)) if !bytes.is_empty() => {
                numbers |= 1 << number;
            }
            _ => {}
        }
        match field {
            (place @ 1..=3, Value::Number(number)) => shape[place as usize - 1] = number,
            (4, Value::Bytes(bytes)) => data = Some(bytes),
            // `label` is an int32, so the upper bits have no meaning.
            (5, Value::Number(number)) => label = i64::from(number as i32),
            (6, Value::Bytes(bytes) | Value::Fixed(bytes)) => {
                floats += (bytes.end - bytes.start) / FLOAT_BYTES;
            }
            (7, Value::Number(number)) => encoded = number != 0,
            _ => {}
        }
    }
    let Some(data) = data else {
        let expected = shape.iter().try_fold(1u64, |count, &side| count.checked_mul(side));
        if for_fields && floats > 0 && expected == Some(floats) {
            return Ok(Found { entry: Entry::new(end..end, label, 0)?, numbers });
        }
        let problem = "the Datum has no data: floats (float_data) are not read; write encoded images \
                       (convert_imageset --encoded)";
        return Err(FileError::new(start, problem));
    };
    let note = if encoded { 0 } else { pixels(shape, data.end - data.start, start)? };
    Ok(Found { entry: Entry::new(data, label, note)?, numbers })
}

/// Returns the note for a sample of raw pixels: a number that encodes the image size and the number
/// of planes.
fn pixels(shape: [u64; 3], bytes: u64, offset: u64) -> Result<u32, FileError> {
    let [channels, height, width] = shape;
    let sides = 1..=MOST_SIDE;
    if !matches!(channels, 1 | 3) || !sides.contains(&height) || !sides.contains(&width) {
        let problem = format!(
            "the Datum has {channels} planes of {width}x{height} pixels, but only 1 or 3 planes \
             of at most {MOST_SIDE}x{MOST_SIDE} are supported; write encoded images \
             (convert_imageset --encoded)"
        );
        return Err(FileError::new(offset, problem));
    }
    if channels * height * width != bytes {
        let problem = format!(
            "the Datum has {bytes} bytes of data, but {channels} planes of {width}x{height} \
             pixels need {}: it is damaged, or encoded without the flag `encoded`",
            channels * height * width
        );
        return Err(FileError::new(offset, problem));
    }
    let colour = if channels == 3 { COLOUR } else { 0 };
    Ok(colour | (width as u32) << 16 | height as u32)
}

/// Whether a value begins with a field of a Datum. No image begins with such bytes.
pub fn is_datum(window: &mut Window, value: Range<u64>) -> Result<bool, FileError> {
    let first = window.at(value.start, (value.end - value.start).min(1))?;
    Ok(matches!(first, [0x08 | 0x10 | 0x18 | 0x22 | 0x28 | 0x32 | 0x35 | 0x38]))
}

/// Returns the image size in the note of a sample of raw pixels. Returns `None` for an encoded
/// sample, whose note is 0.
pub fn size(note: u32) -> Option<Size> {
    (note != 0).then(|| Size::new((note & !COLOUR) >> 16, note & 0xffff))
}

/// Returns the PNM header for a sample of raw pixels, or `None` for an encoded sample.
pub fn head(note: u32) -> Option<PnmHead> {
    let kind = if note >= COLOUR { PnmHead::rgb } else { PnmHead::gray };
    size(note).map(kind)
}

/// Whether [`fill`] reads the sample in one call without conversion.
pub fn is_plain(note: u32) -> bool {
    note < COLOUR
}

/// Reads a sample of raw pixels. `note` contains the image size, and whether three planes must be
/// interleaved.
pub fn fill(note: u32, file: &File, offset: u64, space: &mut [u8]) -> io::Result<()> {
    if is_plain(note) {
        return file.read_exact_at(space, offset);
    }
    let mut planes = [0; CHANNELS * AT_ONCE];
    let plane = space.len() / CHANNELS;
    for (number, pixels) in space.chunks_mut(CHANNELS * AT_ONCE).enumerate() {
        let count = pixels.len() / CHANNELS;
        let planes = &mut planes[..pixels.len()];
        if count == plane {
            // The planes of a small image fit into the buffer and are consecutive, so one call
            // reads them.
            file.read_exact_at(planes, offset)?;
        } else {
            for (channel, part) in planes.chunks_mut(count).enumerate() {
                file.read_exact_at(part, offset + (plane * channel + AT_ONCE * number) as u64)?;
            }
        }
        let (blue, rest) = planes.split_at(count);
        let (green, red) = rest.split_at(count);
        for (((pixel, red), green), blue) in
            pixels.chunks_exact_mut(CHANNELS).zip(red).zip(green).zip(blue)
        {
            pixel.copy_from_slice(&[*red, *green, *blue]);
        }
    }
    Ok(())
}
