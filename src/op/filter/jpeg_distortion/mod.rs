//! `jpeg_distortion`: applies the losses of JPEG compression.

use std::ops::Range;

use bytemuck::{Pod, Zeroable};
use serde::{Deserialize, Serialize};

use crate::geometry::{Roi, Size};
use crate::image::{HostImage, Image, PixelType};
use crate::op::kind::{ImageFormula, Movement};
use crate::op::settings::one_or_each;
use crate::op::wide::Instructions;
use crate::op::{BuiltIn, Draw, FieldError, Kind, Kinds, Operator, Wanted};

use formula::{self as jpeg, Compressed, Quality, Samples};
use stripe::Compression;

pub mod formula;
mod stripe;

/// Compresses the image as a JPEG of a quality drawn for each sample, and decompresses it:
/// torchvision's `JPEG` on PIL images, bit for bit.
///
/// The JPEG is Pillow's: baseline, 4:2:0, with libjpeg-turbo's quantization tables scaled by the
/// quality. Only the lossy steps are computed, in integers. No file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JpegDistortion {
    /// Quality, 1 to 100. One integer, or a range `[low, high]` from which the quality is drawn
    /// uniformly, including both ends.
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
    const MOVEMENT: Movement = Movement::Nothing;

    fn reference(params: &Params, src: &HostImage, out: &mut HostImage) {
        let (src, out) = of_bytes(src, out);
        let quality = Quality::new(params.quality);
        let pixel = |x, y| src.pixel(x, y);
        let of = Compressed { size: params.size(), quality: &quality, pixel };
        let window = out.window();
        for row in window.y / 16..window.bottom().div_ceil(16) {
            for column in window.x / 16..window.right().div_ceil(16) {
                let chroma = chroma(&of, window, (column, row));
                put_tile(&of, (column, row), &chroma, out);
            }
        }
    }

    /// Computes the image stripe by stripe.
    fn apply(params: &Params, src: &HostImage, out: &mut HostImage) {
        compress(params, src, out, Instructions::here());
    }

    fn pixels(input: PixelType) -> Option<PixelType> {
        (input == PixelType::U8).then_some(input)
    }

    fn demand(params: &mut Params, wanted: Wanted) -> Roi {
        jpeg::demand(params.size(), wanted.output)
    }
}

fn of_bytes<'a>(src: &'a HostImage, out: &'a mut HostImage) -> (&'a Image<u8>, &'a mut Image<u8>) {
    let (HostImage::U8(src), HostImage::U8(out)) = (src, out) else {
        unreachable!("JPEG compresses bytes");
    };
    (src, out)
}

/// Fast implementation, stripe by stripe. Images of up to 4 columns use the reference
/// implementation, because their chroma is not smoothed.
fn compress(params: &Params, src: &HostImage, out: &mut HostImage, instructions: Instructions) {
    if params.width <= 4 {
        return JpegDistortion::reference(params, src, out);
    }
    let (src, out) = of_bytes(src, out);
    let quality = Quality::new(params.quality);
    instructions.run(Compression { size: params.size(), quality: &quality, src, out });
}

/// Blue and red chroma of 3x3 blocks: the block of a tile of 16x16 pixels, and its neighbours. The
/// outer index is the column, from left to right.
type Chroma = [[[Samples; 2]; 3]; 3];

/// Chroma of the tile in `column` and `row` and of its neighbours. Blocks that the pixels in
/// `window` do not need are 0.
fn chroma(
    of: &Compressed<'_, impl Fn(u32, u32) -> jpeg::Pixel>,
    window: Roi,
    (column, row): (u32, u32),
) -> Chroma {
    // Blocks outside these ranges are not needed, so the input need not contain their pixels.
    let columns = jpeg::blocks(window.x)..jpeg::blocks_end(window.right(), of.size.width);
    let rows = jpeg::blocks(window.y)..jpeg::blocks_end(window.bottom(), of.size.height);
    let place = |at: u32, by: usize, of: &Range<u32>| {
        (at + by as u32).checked_sub(1).filter(|at| of.contains(at))
    };
    std::array::from_fn(|dx| {
        std::array::from_fn(|dy| match (place(column, dx, &columns), place(row, dy, &rows)) {
            (Some(x), Some(y)) => of.chroma(x, y),
            _ => [[[0; 8]; 8]; 2],
        })
    })
}

/// Writes the pixels of a tile that are in the output window.
fn put_tile(
    of: &Compressed<'_, impl Fn(u32, u32) -> jpeg::Pixel>,
    (column, row): (u32, u32),
    chroma: &Chroma,
    out: &mut Image<u8>,
) {
    let sample = |x: u32, y: u32| {
        // Along each axis, block 0 of `chroma` is before the tile, and block 1 is the block of the
        // tile.
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

    /// Tests windows that contain edges of tiles, of stripes and of the image, and windows that do
    /// not.
    #[test]
    fn stripes_give_the_pixels_of_the_reference() {
        let sizes = [(1, 1), (4, 9), (5, 1), (6, 7), (17, 33), (100, 31), (513, 20), (1040, 18)];
        for (at, (width, height)) in sizes.into_iter().enumerate() {
            let size = Size::new(width, height);
            let mut seed = 7u32;
            let bytes = (0..3 * size.pixels()).map(|at| {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                // The image has noise beside smooth areas.
                if at / 60 % 3 == 0 { (seed >> 24) as u8 } else { (at / 9) as u8 }
            });
            let src = Image::from_data(size.window(), bytes.collect());
            for quality in [1, 47, 100] {
                let params = Params { width, height, quality, unused: 0 };
                for window in [
                    size.window(),
                    Roi::new(width / 3, height / 4, width - width / 3, height - height / 4),
                    Roi::new(width / 2, height / 2, 1, 1),
                    Roi::new(0, height / 3, width / 2 + 1, height / 3 + 1),
                ] {
                    // This input holds only the pixels that are needed for the window.
                    let mut demanded = Image::new(jpeg::demand(size, window));
                    let there = demanded.window();
                    for y in there.y..there.bottom() {
                        for x in there.x..there.right() {
                            demanded.set_pixel(x, y, src.pixel(x, y));
                        }
                    }
                    let src = HostImage::U8(demanded);
                    let mut expected = HostImage::new(PixelType::U8, window);
                    JpegDistortion::reference(&params, &src, &mut expected);
                    for instructions in Instructions::all() {
                        let mut found = HostImage::new(PixelType::U8, window);
                        compress(&params, &src, &mut found, instructions);
                        assert!(found == expected, "{at} {quality} {window} {instructions:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn quality_is_checked() {
        for quality in [[0, 5], [5, 4], [1, 101]] {
            assert_eq!(JpegDistortion { quality }.check().unwrap_err().field, "quality");
        }
        assert_eq!(JpegDistortion { quality: [1, 100] }.check(), Ok(()));
    }
}
