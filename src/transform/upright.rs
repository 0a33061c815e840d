//! Rotation and mirroring of decoded rows, applied when they are stored.

use crate::decode::{FloatPart, RowLayout, Rows};
use crate::geometry::{Orientation, Size};
use crate::image::Image;
use crate::tensor::CHANNELS;

/// Rotation and mirroring of a decoder's rows.
#[derive(Clone, Copy)]
pub struct Upright {
    pub orientation: Orientation,
    /// Size of the whole image before rotation, after the decoder has reduced it.
    pub stored: Size,
    /// Column of the rows' first pixel.
    pub first_column: u32,
}

impl Upright {
    /// Stores rows at their position in the upright image.
    pub fn store(&self, rows: Rows<'_>, image: &mut Image<u8>) {
        for (y, row) in rows.iter() {
            if self.orientation.is_upright() {
                image.row_mut(y).copy_from_slice(row);
                continue;
            }
            for (x, pixel) in (self.first_column..).zip(row.as_chunks::<3>().0) {
                let (x, y) = self.orientation.upright_position(self.stored, x, y);
                image.set_pixel(x, y, *pixel);
            }
        }
    }

    /// Stores the colours and the alpha channel of rows at their position in the upright images.
    /// Alpha becomes three equal channels. Rows in RGB are opaque.
    pub fn store_with_alpha(
        &self,
        layout: RowLayout,
        rows: Rows<'_>,
        colours: &mut Image<u8>,
        alpha: &mut Image<u8>,
    ) {
        for (y, row) in rows.iter() {
            for (x, pixel) in (self.first_column..).zip(row.chunks_exact(layout.channels())) {
                let (x, y) = self.orientation.upright_position(self.stored, x, y);
                colours.set_pixel(x, y, [pixel[0], pixel[1], pixel[2]]);
                alpha.set_pixel(x, y, [pixel.get(CHANNELS).copied().unwrap_or(u8::MAX); CHANNELS]);
            }
        }
    }

    /// Stores a part of a row of floats at its position in the upright image.
    pub fn store_floats(&self, part: FloatPart<'_>, image: &mut Image<f32>) {
        for (x, pixel) in (part.x..).zip(part.pixels) {
            let (x, y) = self.orientation.upright_position(self.stored, x, part.y);
            image.set_pixel(x, y, *pixel);
        }
    }

    /// Stores the alpha channel of a part of a row of floats at its position in the upright image,
    /// as three equal channels.
    pub fn store_alpha_of_floats(&self, part: FloatPart<'_>, image: &mut Image<f32>) {
        for (x, alpha) in (part.x..).zip(part.alpha) {
            let (x, y) = self.orientation.upright_position(self.stored, x, part.y);
            image.set_pixel(x, y, [*alpha; CHANNELS]);
        }
    }
}
