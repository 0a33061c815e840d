//! PNM decoder. Binary samples are copied row by row. Text samples are parsed in sequence from the
//! first.
//!
//! If the maximum value is not 255, samples are scaled to 0 to 255 as in Pillow. They are rounded
//! to the nearest value, halves to even. Values above the maximum become 255. Gray becomes three
//! equal channels.
//!
//! Gray with a maximum value above 255 is scaled to 0 to 65535 and then clipped to 255, so it is
//! nearly white. Pillow converts mode `I` to `RGB` in this way.

use memchr::memchr2;

use super::rows::{RowGroups, hand_on, most_rows};
use super::{Buffers, DecodeMemory, EncodedImage, HostDecoder, RowLayout, RowSink, size_changed};
use crate::error::{DataError, Reason, Tolerated};
use crate::header::{Format, Header, PnmCoding, PnmLayout, is_pnm_space, pnm_layout};
use crate::tensor::CHANNELS;

/// Maximum number of digits of a number in text, as in Pillow.
const MOST_DIGITS: u32 = 10;

/// PNM decoder. Accepts every PNM.
#[derive(Debug, Default)]
pub(super) struct Pnm;

impl HostDecoder for Pnm {
    fn name(&self) -> &'static str {
        "pnm"
    }

    fn accepts(&self, header: &Header) -> bool {
        header.format == Format::Pnm
    }

    fn memory(&self, header: &Header, _: &[u8], _: u64) -> DecodeMemory {
        let row = CHANNELS as u64 * u64::from(header.size.width);
        DecodeMemory { rows: row * most_rows(header.size.height), ..DecodeMemory::default() }
    }

    fn decode(
        &mut self,
        image: &EncodedImage<'_>,
        buffers: &mut Buffers,
        sink: &mut RowSink<'_>,
    ) -> Result<Option<Tolerated>, DataError> {
        decode(image, &mut buffers.rows, sink).map(|()| None)
    }
}

fn decode(
    image: &EncodedImage<'_>,
    rows: &mut Vec<u8>,
    sink: &mut RowSink<'_>,
) -> Result<(), DataError> {
    let EncodedImage { bytes, header, window, .. } = *image;
    let layout = pnm_layout(bytes)?;
    let PnmLayout { size, channels, coding, white, start } = layout;
    if size != header.size {
        return Err(size_changed(header.size, size));
    }
    let pixels = &bytes[start..];
    let samples = channels * size.width as usize;
    let (left, count) = (channels * window.x as usize, channels * window.width as usize);
    if (coding, channels, white) == (PnmCoding::Bytes, CHANNELS, 255) {
        hand_on(
            &pixels[samples * window.y as usize + left..],
            (samples, RowLayout::Rgb),
            window,
            sink,
        );
        return Ok(());
    }
    let mut groups = RowGroups::new(rows, (window, RowLayout::Rgb), sink)?;
    let scale = Scale::new(channels, white);
    let mut text = Text { rest: pixels };
    if matches!(coding, PnmCoding::Text | PnmCoding::BitText) {
        for _ in 0..samples as u64 * u64::from(window.y) {
            text.sample(coding, white)?;
        }
    }
    for y in window.y..window.bottom() {
        let row = groups.row();
        let y_from_top = y as usize;
        match coding {
            PnmCoding::Bytes => {
                let stored = &pixels[samples * y_from_top + left..][..count];
                stored.iter().enumerate().for_each(|(at, &byte)| {
                    store(row, channels, at, scale.of(byte.into()));
                });
            }
            PnmCoding::Words => {
                let stored = &pixels[2 * (samples * y_from_top + left)..][..2 * count];
                for (at, &word) in stored.as_chunks().0.iter().enumerate() {
                    store(row, channels, at, scale.of(u16::from_be_bytes(word)));
                }
            }
            PnmCoding::Bits => {
                let stored = &pixels[samples.div_ceil(8) * y_from_top..];
                for at in 0..count {
                    let black = stored[(left + at) / 8] >> (7 - (left + at) % 8) & 1;
                    store(row, channels, at, if black == 1 { 0 } else { 255 });
                }
            }
            PnmCoding::Text | PnmCoding::BitText => {
                for at in 0..samples {
                    let value = text.sample(coding, white)?;
                    if (left..left + count).contains(&at) {
                        let black = coding == PnmCoding::BitText;
                        let value = if black { 255 * (1 - value as u8) } else { scale.of(value) };
                        store(row, channels, at - left, value);
                    }
                }
            }
        }
        groups.push();
    }
    Ok(())
}

/// Stores sample number `at` of a row.
fn store(line: &mut [u8], channels: usize, at: usize, value: u8) {
    match channels {
        CHANNELS => line[at] = value,
        _ => line[CHANNELS * at..][..CHANNELS].fill(value),
    }
}

/// Conversion of samples to 0 to 255.
struct Scale {
    white: f64,
    top: f64,
    /// Look-up table for values up to 255, which are the most frequent.
    table: [u8; 256],
}

impl Scale {
    fn new(channels: usize, white: u16) -> Self {
        let top = if channels == 1 && white > 255 { 65535.0 } else { 255.0 };
        let mut scale = Self { white: white.into(), top, table: [0; 256] };
        scale.table = std::array::from_fn(|value| scale.stretched(value as u16));
        scale
    }

    fn of(&self, value: u16) -> u8 {
        self.table.get(usize::from(value)).copied().unwrap_or_else(|| self.stretched(value))
    }

    fn stretched(&self, value: u16) -> u8 {
        (f64::from(value) / self.white * self.top).round_ties_even().min(255.0) as u8
    }
}

/// Samples of a text PNM.
struct Text<'a> {
    rest: &'a [u8],
}

impl Text<'_> {
    /// Reads the next sample. As in Pillow, a comment is skipped and does not end a number.
    fn sample(&mut self, coding: PnmCoding, white: u16) -> Result<u16, DataError> {
        let (mut value, mut digits) = (0u64, 0);
        while let Some((&byte, rest)) = self.rest.split_first() {
            match byte {
                b'#' => {
                    let end = memchr2(b'\n', b'\r', rest).map_or(rest.len(), |end| end + 1);
                    self.rest = &rest[end..];
                    continue;
                }
                b'0'..=b'9' if digits < MOST_DIGITS => {
                    value = 10 * value + u64::from(byte - b'0');
                    digits += 1;
                }
                _ if is_pnm_space(byte) => {}
                _ => {
                    let problem =
                        format!("byte {byte:#04x} is not allowed among the numbers of the pixels");
                    return Err(DataError::new(Reason::Corrupt, problem));
                }
            }
            self.rest = rest;
            if digits > 0 && (coding == PnmCoding::BitText || is_pnm_space(byte)) {
                break;
            }
        }
        if digits == 0 {
            let problem = "the file ends before its last pixel";
            return Err(DataError::new(Reason::Truncated, problem));
        }
        match u16::try_from(value) {
            Ok(value) if value <= white => Ok(value),
            _ => {
                let problem = format!(
                    "a pixel has the value {value}, but the maximum value of the file is {white}"
                );
                Err(DataError::new(Reason::Corrupt, problem))
            }
        }
    }
}
