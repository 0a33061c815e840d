//! BMP decoder. Run-length coded images are unpacked first. Rows are then copied, or looked up in
//! the palette.

use super::rows::{RowGroups, first, grown, most_rows, with_alpha};
use super::{Buffers, DecodeMemory, EncodedImage, HostDecoder, RowLayout, RowSink, size_changed};
use crate::error::{DataError, Reason, Tolerated};
use crate::header::{BmpCoding, BmpLayout, Format, Header, bmp_layout};
use crate::tensor::CHANNELS;

/// BMP decoder.
#[derive(Debug, Default)]
pub(super) struct Bmp;

impl HostDecoder for Bmp {
    fn name(&self) -> &'static str {
        "bmp"
    }

    fn accepts(&self, header: &Header) -> bool {
        header.format == Format::Bmp
    }

    fn memory(&self, header: &Header, head: &[u8], _: u64) -> DecodeMemory {
        let has_runs = bmp_layout(head).is_ok_and(|it| matches!(it.coding, BmpCoding::Runs { .. }));
        let row = CHANNELS as u64 * u64::from(header.size.width);
        DecodeMemory {
            rows: row * most_rows(header.size.height),
            scratch: if has_runs { header.size.pixels() } else { 0 },
            library: 0,
        }
    }

    fn decode(
        &mut self,
        image: &EncodedImage<'_>,
        buffers: &mut Buffers,
        sink: &mut RowSink<'_>,
    ) -> Result<Option<Tolerated>, DataError> {
        match image.layout {
            RowLayout::Rgba => decode::<4>(image, buffers, sink),
            _ => decode::<CHANNELS>(image, buffers, sink),
        }
        .map(|()| None)
    }

    fn layouts(&self, _: &Header) -> &'static [RowLayout] {
        &[RowLayout::Rgb, RowLayout::Rgba]
    }
}

/// Decodes to rows with the first `N` of red, green, blue and alpha.
fn decode<const N: usize>(
    image: &EncodedImage<'_>,
    buffers: &mut Buffers,
    sink: &mut RowSink<'_>,
) -> Result<(), DataError> {
    let EncodedImage { bytes, header, window, layout: rows, .. } = *image;
    let layout = bmp_layout(bytes)?;
    let BmpLayout { size, coding, bottom_up, start, .. } = layout;
    if size != header.size {
        return Err(size_changed(header.size, size));
    }
    let [width, height] = [size.width as usize, size.height as usize];
    let row_bytes = (width * coding.bits() as usize).div_ceil(8);
    let (pixels, pitch) = match coding {
        BmpCoding::Runs { four_bits } => {
            let indices = grown(&mut buffers.scratch, width * height)?;
            unpack(bytes, start, four_bits, width, indices)?;
            (&*indices, width)
        }
        _ => (bytes.get(start..).unwrap_or_default(), row_bytes.next_multiple_of(4)),
    };
    // The last row needs no padding.
    let needed = pitch as u64 * (height as u64 - 1) + row_bytes as u64;
    if (pixels.len() as u64) < needed {
        let problem = format!(
            "an image of {size} pixels needs {needed} bytes of pixel data, but the file has only \
                 {} bytes",
            pixels.len()
        );
        return Err(DataError::new(
            Reason::Truncated,
            format!("the file ends too early: {problem}"),
        ));
    }
    let colors = colors(&layout);
    let mut groups = RowGroups::new(&mut buffers.rows, (window, rows), sink)?;
    for y in window.y as usize..window.bottom() as usize {
        let place = if bottom_up { height - 1 - y } else { y };
        let row = &pixels[pitch * place..][..row_bytes];
        let out = groups.row().as_chunks_mut::<N>().0.iter_mut();
        for (x, pixel) in (window.x as usize..).zip(out) {
            let rgb = match coding {
                BmpCoding::Indices(bits @ (1 | 4)) => {
                    let at = x * bits as usize;
                    let index = row[at / 8] << (at % 8) >> (8 - bits);
                    colors[usize::from(index)]
                }
                BmpCoding::Indices(_) | BmpCoding::Runs { .. } => colors[usize::from(row[x])],
                BmpCoding::Words { six_green } => {
                    let word = u16::from_le_bytes([row[2 * x], row[2 * x + 1]]);
                    let [red, green] = if six_green { [11, 63] } else { [10, 31] };
                    // Pillow truncates instead of rounding.
                    let scaled = |value: u16, most: u16| {
                        (u32::from(value & most) * 255 / u32::from(most)) as u8
                    };
                    [scaled(word >> red, 31), scaled(word >> 5, green), scaled(word, 31)]
                }
                BmpCoding::Bytes { bytes, rgb, .. } => rgb.map(|at| row[bytes * x + at]),
            };
            let alpha = match coding {
                BmpCoding::Bytes { bytes, alpha: Some(at), .. } => row[bytes * x + at],
                _ => u8::MAX,
            };
            *pixel = first(with_alpha(rgb, alpha));
        }
        groups.push();
    }
    Ok(())
}

/// Returns the color of each index. If the palette is a gray ramp, indices beyond the palette
/// continue the ramp. Otherwise, these indices are black.
fn colors(layout: &BmpLayout<'_>) -> [[u8; CHANNELS]; 256] {
    let gray: [_; 256] = std::array::from_fn(|index| [index as u8; CHANNELS]);
    let mut colors = gray;
    for (color, stored) in colors.iter_mut().zip(layout.palette.chunks_exact(layout.color_bytes)) {
        *color = [stored[2], stored[1], stored[0]];
    }
    let count = layout.palette.len() / layout.color_bytes;
    if colors != gray {
        colors[count..].fill([0; CHANNELS]);
    }
    colors
}

/// Unpacks run-length coded indices as Pillow does. A run of one repeated index ends at the end of
/// its row. A run of literal indices may continue in the next row. With 4 bits per index, an odd
/// number of literal indices loses the last one.
fn unpack(
    bytes: &[u8],
    start: usize,
    four_bits: bool,
    width: usize,
    out: &mut [u8],
) -> Result<(), DataError> {
    let mut at = start;
    let mut take = |len: usize| {
        let taken = bytes.get(at..at.checked_add(len)?)?;
        at += len;
        Some((taken, at))
    };
    let (mut done, mut x) = (0, 0);
    out.fill(0);
    while done < out.len() {
        let Some((&[count, value], _)) = take(2) else { break };
        match (count, value) {
            (0, 0) => {
                done = done.next_multiple_of(width);
                x = 0;
            }
            (0, 1) => break,
            (0, 2) => {
                let Some((&[right, up], _)) = take(2) else { break };
                done += usize::from(right) + usize::from(up) * width;
                x = done % width;
            }
            (0, count) => {
                let len = usize::from(count) / if four_bits { 2 } else { 1 };
                let Some((values, end)) = take(len) else { break };
                for &value in values {
                    match four_bits {
                        true => {
                            put(out, done, value >> 4);
                            put(out, done + 1, value & 15);
                            done += 2;
                        }
                        false => {
                            put(out, done, value);
                            done += 1;
                        }
                    }
                }
                x += usize::from(count);
                if end % 2 != 0 {
                    take(1);
                }
            }
            (count, value) => {
                let count = usize::from(count).min(width.saturating_sub(x));
                for index in 0..count {
                    let value = match four_bits {
                        true if index % 2 == 0 => value >> 4,
                        true => value & 15,
                        false => value,
                    };
                    put(out, done + index, value);
                }
                done += count;
                x += count;
            }
        }
    }
    if done < out.len() {
        let problem =
            format!("the run-length coded data ends after {done} of {} pixels", out.len());
        return Err(DataError::new(Reason::Truncated, problem));
    }
    Ok(())
}

fn put(out: &mut [u8], at: usize, value: u8) {
    if let Some(place) = out.get_mut(at) {
        *place = value;
    }
}
