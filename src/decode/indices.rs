//! Decoding of palette indices and of other numbers of 8 bits that have no mean, such as classes
//! ([`PixelFormat::Indices`](crate::image::PixelFormat)).
//!
//! | file | numbers |
//! |---|---|
//! | PNG or TIFF with a palette | indices into the palette |
//! | PNG, gray, 1 bit | 0 and 1 |
//! | PNG, gray, 2 or 4 bits | samples, scaled to 0 to 255 |
//! | PNG, gray, 8 bits, and binary PGM (`P5`) of 8 bits | samples |
//! | `.npy` of integers or booleans with one channel | numbers from 0 to 255 |
//!
//! The numbers are those of a mask from the same file
//! ([`ValueImage`](super::ValueImage)). Damage that image decoders tolerate is an error here,
//! because a wrong class is not visible.

use std::cell::Cell;

use super::png::read_indices;
#[cfg(feature = "tiff")]
use super::tiff::{index, read_rows};
use super::{Decoders, RowSink, Rows, size_changed, unsupported};
use crate::error::{DataError, reserve};
use crate::geometry::Roi;
use crate::header::{Format, Header, PnmCoding, npy_layout, pnm_layout};
#[cfg(feature = "tiff")]
use crate::header::{TiffColors, tiff_layout};
use crate::tensor::CHANNELS;

impl Decoders {
    /// Decodes the indices of `window`, each as three equal channels.
    pub(super) fn decode_indices(
        &mut self,
        bytes: &[u8],
        header: &Header,
        (window, reduction): (Roi, u32),
        sink: &mut RowSink<'_>,
    ) -> Result<(), DataError> {
        super::check(header, window, reduction)?;
        (self.tolerated, self.jpeg_by) = (None, None);
        if window.is_empty() {
            return Ok(());
        }
        let (line, scratch) = (&mut self.buffers.line, &mut self.buffers.scratch);
        reserve::renew(line, CHANNELS * window.width as usize)?;
        let mut put = |y: u32, index: &dyn Fn(usize) -> u8| {
            if y < window.y {
                return;
            }
            for (x, pixel) in (window.x as usize..).zip(line.as_chunks_mut::<CHANNELS>().0) {
                *pixel = [index(x); CHANNELS];
            }
            sink(Rows { first: y, count: 1, pitch: line.len(), data: line, chroma: &[] });
        };
        let width = header.size.width as usize;
        match header.format {
            Format::Png => read_indices(bytes, header.size, window.bottom(), scratch, &mut put),
            Format::Pnm => {
                let layout = pnm_layout(bytes)?;
                if layout.size != header.size {
                    return Err(size_changed(header.size, layout.size));
                }
                if (layout.channels, layout.coding) != (1, PnmCoding::Bytes) {
                    return Err(wrong("a PNM of another kind than a binary PGM (P5) of 8 bits"));
                }
                for y in window.y..window.bottom() {
                    let row = &bytes[layout.start + width * y as usize..][..width];
                    put(y, &|x| row[x]);
                }
                Ok(())
            }
            Format::Npy => {
                let layout = npy_layout(bytes)?;
                if layout.size != header.size {
                    return Err(size_changed(header.size, layout.size));
                }
                if layout.channels != 1 || layout.item.kind == b'f' {
                    return Err(wrong("an array of floats, or of several channels"));
                }
                let item = layout.item.bytes as usize;
                let problem = Cell::new(None);
                for y in window.y..window.bottom() {
                    let row = &bytes[layout.start + item * width * y as usize..][..item * width];
                    put(y, &|x| {
                        let number = layout.item.integer(&row[item * x..][..item]);
                        u8::try_from(number).unwrap_or_else(|_| {
                            problem.set(Some(number));
                            0
                        })
                    });
                }
                match problem.get() {
                    None => Ok(()),
                    Some(number) => Err(unsupported(format!(
                        "the array has the number {number}, but indices are from 0 to 255"
                    ))),
                }
            }
            #[cfg(feature = "tiff")]
            Format::Tiff => {
                let layout = tiff_layout(bytes)?;
                if layout.colors != TiffColors::Indices {
                    return Err(wrong("a TIFF without a palette"));
                }
                let rows = window.y..window.bottom();
                read_rows(bytes, &layout, header.size, rows, scratch, &mut |y, row| {
                    put(y, &|x| index(&layout, row, x));
                })
            }
            other => Err(wrong(&format!("a {}", other.name()))),
        }
    }
}

fn wrong(found: &str) -> DataError {
    unsupported(format!(
        "the image is {found}, but indices are read from PNGs with a palette or in gray of up to 8 \
         bits, TIFFs with a palette, binary PGM of 8 bits and .npy of integers only; u8x3 reads all \
         formats"
    ))
}
