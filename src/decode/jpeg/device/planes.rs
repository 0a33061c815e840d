//! Planes of samples that the kernels write, and the fused kernel reads.

use super::super::frame::Shape;
use super::super::kernels::MOST_STEP;
use super::super::rows::DecodedPart;
use super::image::{ALIGN_BYTES, DeviceImage, DeviceRefusal};
use crate::geometry::{Roi, Size};
use crate::header::Header;
use crate::image::Planes;

impl DeviceImage {
    /// Planes of the part.
    pub fn planes(&self) -> Planes {
        planes(&self.shape, (self.columns, self.rows), (self.size, self.reduction))
    }

    /// Planes for a window of an image that the kernels support.
    ///
    /// # Errors
    /// As for [`check`](Self::check).
    pub fn planes_of(
        header: &Header,
        (window, reduction): (Roi, u32),
    ) -> Result<Planes, DeviceRefusal> {
        let shape = Self::shape(header, reduction)?;
        let part = DecodedPart::new(&shape, window, reduction as usize, MOST_STEP);
        let size = header.size.reduced(reduction);
        Ok(planes(&shape, (part.columns, part.rows), (size, reduction as usize)))
    }
}

/// Planes for ranges of columns and rows of MCUs. `size` is the size of the reduced image.
fn planes(
    shape: &Shape,
    (columns, rows): ([usize; 2], [usize; 2]),
    (size, reduction): (Size, usize),
) -> Planes {
    let [luma, chroma] = shape.sides(reduction);
    let [first, top] = [columns[0], rows[0]];
    let [columns, rows] = [columns, rows].map(|[from, to]| to - from);
    let [h, v] = shape.sampling;
    let wide = [columns * h * luma, columns * chroma];
    let high = [rows * v * luma, rows * chroma];
    let pitches = wide.map(|it| it.next_multiple_of(ALIGN_BYTES));
    let blue = pitches[0] * high[0];
    let red = blue + pitches[1] * high[1];
    let is_gray = shape.is_gray;
    let (x, y) = (first * h * luma, top * v * luma);
    let ratio = [h, v].map(|blocks| blocks * luma / chroma);
    Planes {
        part: Roi::new(x as u32, y as u32, wide[0] as u32, high[0] as u32),
        pitches,
        chroma: if is_gray { [0; 2] } else { [blue, red] },
        ratio,
        is_gray,
        chroma_size: [
            (size.width as usize).div_ceil(ratio[0]),
            (size.height as usize).div_ceil(ratio[1]),
        ],
        bytes: if is_gray { blue } else { red + pitches[1] * high[1] },
    }
}
