//! `jpeg_distortion`: what JPEG compression loses.

use std::ops::Range;

use bytemuck::{Pod, Zeroable};
use serde::{Deserialize, Serialize};

use crate::geometry::{Roi, Size};
use crate::image::{HostImage, Image, PixelType};
use crate::op::formula::jpeg::{self, Compressed, Quality, Samples};
use crate::op::kind::ImageFormula;
use crate::op::settings::one_or_each;
use crate::op::{BuiltIn, Draw, FieldError, Kind, Kinds, Operator, Wanted};

/// Compresses the image as a JPEG of a quality drawn for each sample, and decompresses it: torchvision's `JPEG` on PIL
/// images, bit for bit.
///
/// The JPEG is Pillow's: baseline, 4:2:0, with libjpeg-turbo's tables scaled by the quality. Only the lossy steps are
/// computed, in integers; no file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JpegDistortion {
    /// Quality, 1 to 100. One integer, or `[low, high]`, from which it is drawn uniformly, both ends included.
    #[serde(deserialize_with = "one_or_each")]
    pub quality: [u32; 2],
}

impl Operator for JpegDistortion {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn kinds(&self) -> Kinds {
        Kinds::exactly([Kind::image::<Self>()])
    }

    fn draw(&self, draw: &mut Draw<'_>) {
        let [low, high] = self.quality;
        let quality = match high - low {
            0 => low,
            range => low + draw.rng().below(u64::from(range) + 1) as u32,
        };
        let size = draw.size();
        let Size { width, height } = size;
        draw.image::<Self>(&Params { width, height, quality, unused: 0 }, size);
    }

    fn check(&self) -> Result<(), FieldError> {
        let [low, high] = self.quality;
        if 1 <= low && low <= high && high <= 100 {
            return Ok(());
        }
        let problem =
            format!("must be [low, high] with 1 <= low <= high <= 100, is [{low}, {high}]");
        Err(FieldError::new("quality", problem))
    }
}

impl BuiltIn for JpegDistortion {
    const NAME: &'static str = "jpeg_distortion";

    fn examples() -> Vec<Self> {
        [[1, 100], [30, 30], [95, 95]].map(|quality| Self { quality }).to_vec()
    }
}

/// Parameters of one sample.
#[derive(Clone, Copy, Debug, Pod, Zeroable, Serialize)]
#[repr(C)]
pub struct Params {
    width: u32,
    height: u32,
    quality: u32,
    unused: u32,
}

impl Params {
    fn size(&self) -> Size {
        Size::new(self.width, self.height)
    }
}

impl ImageFormula for JpegDistortion {
    type Params = Params;

    fn reference(params: &Params, src: &HostImage, out: &mut HostImage) {
        run(params, src, out, |window| Tiles { window, kept: None });
    }

    /// The same, with the chroma of the tile to the left kept.
    fn apply(params: &Params, src: &HostImage, out: &mut HostImage) {
        run(params, src, out, |window| Tiles { window, kept: Some((u32::MAX, EMPTY)) });
    }

    fn pixels(input: PixelType) -> Option<PixelType> {
        (input == PixelType::U8).then_some(input)
    }

    fn demand(params: &mut Params, wanted: Wanted) -> Roi {
        jpeg::demand(params.size(), wanted.output)
    }
}

/// Blue and red chroma of three by three blocks: those of a tile of 16x16 pixels, and its neighbours.
type Chroma = [[[Samples; 2]; 3]; 3];

const EMPTY: Chroma = [[[[[0; 8]; 8]; 2]; 3]; 3];

/// Chroma of the tiles of an output window, in row order.
struct Tiles {
    window: Roi,
    /// Column of the last tile, with its chroma, if that is kept.
    kept: Option<(u32, Chroma)>,
}

impl Tiles {
    /// Chroma of the tile in `column` and `row`: columns of blocks from left to right.
    fn chroma(
        &mut self,
        of: &Compressed<'_, impl Fn(u32, u32) -> jpeg::Pixel>,
        column: u32,
        row: u32,
    ) -> Chroma {
        let Roi { x, y, .. } = self.window;
        let (right, bottom) = (self.window.right(), self.window.bottom());
        // Blocks outside of these are not used, and their pixels may not be there.
        let columns = jpeg::blocks(x)..jpeg::blocks_end(right, of.size.width);
        let rows = jpeg::blocks(y)..jpeg::blocks_end(bottom, of.size.height);
        let mut chroma = EMPTY;
        let mut first = 0;
        if let Some((last, kept)) = &self.kept
            && last.wrapping_add(1) == column
            && column > columns.start
        {
            (chroma[0], chroma[1], first) = (kept[1], kept[2], 2);
        }
        for (dx, blocks) in chroma.iter_mut().enumerate().skip(first) {
            for (dy, block) in blocks.iter_mut().enumerate() {
                let place = |at: u32, by: usize, of: &Range<u32>| {
                    (at + by as u32).checked_sub(1).filter(|at| of.contains(at))
                };
                if let (Some(x), Some(y)) = (place(column, dx, &columns), place(row, dy, &rows)) {
                    *block = of.chroma(x, y);
                }
            }
        }
        if let Some(kept) = &mut self.kept {
            *kept = (column, chroma);
        }
        chroma
    }
}

fn run(params: &Params, src: &HostImage, out: &mut HostImage, tiles: impl Fn(Roi) -> Tiles) {
    let (HostImage::U8(src), HostImage::U8(out)) = (src, out) else {
        unreachable!("JPEG compresses bytes");
    };
    let quality = Quality::new(params.quality);
    let of = Compressed { size: params.size(), quality: &quality, pixel: |x, y| src.pixel(x, y) };
    let window = out.window();
    let mut tiles = tiles(window);
    for row in window.y / 16..window.bottom().div_ceil(16) {
        for column in window.x / 16..window.right().div_ceil(16) {
            let chroma = tiles.chroma(&of, column, row);
            put_tile(&of, (column, row), &chroma, out);
        }
    }
}

/// Writes the pixels of a tile that are in the output window.
fn put_tile(
    of: &Compressed<'_, impl Fn(u32, u32) -> jpeg::Pixel>,
    (column, row): (u32, u32),
    chroma: &Chroma,
    out: &mut Image<u8>,
) {
    let sample = |x: u32, y: u32| {
        // Blocks are counted from the one before the tile.
        let place = |at: u32, tile: u32| (at / 8 + 1 - tile) as usize;
        let [blue, red] = &chroma[place(x, column)][place(y, row)];
        let (x, y) = (x as usize % 8, y as usize % 8);
        [blue[y][x], red[y][x]]
    };
    for (left, top) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
        let (column, row) = (2 * column + left, 2 * row + top);
        let block = Roi::new(8 * column, 8 * row, 8, 8).intersection(out.window());
        if block.is_empty() {
            continue;
        }
        let luma = of.luma(column, row);
        for y in block.y..block.bottom() {
            for x in block.x..block.right() {
                let luma = luma[y as usize % 8][x as usize % 8];
                out.set_pixel(x, y, jpeg::pixel(of.size, (x, y), luma, sample));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quality_is_checked() {
        for quality in [[0, 5], [5, 4], [1, 101]] {
            assert_eq!(JpegDistortion { quality }.check().unwrap_err().field, "quality");
        }
        assert_eq!(JpegDistortion { quality: [1, 100] }.check(), Ok(()));
    }
}
