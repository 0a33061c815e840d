//! Planes of samples that the kernels write, and the fused kernel reads.

use super::image::DeviceImage;
use super::memory::ALIGN_BYTES;
use crate::geometry::Roi;
use crate::image::Planes;

impl DeviceImage {
    /// Planes of the part.
    pub fn planes(&self) -> Planes {
        let [luma, chroma] = self.shape.sides(self.reduction);
        let [columns, rows] = [self.columns, self.rows].map(|[from, to]| to - from);
        let [h, v] = self.shape.sampling;
        let wide = [columns * h * luma, columns * chroma];
        let high = [rows * v * luma, rows * chroma];
        let pitches = wide.map(|it| it.next_multiple_of(ALIGN_BYTES));
        let blue = pitches[0] * high[0];
        let red = blue + pitches[1] * high[1];
        let is_gray = self.shape.is_gray;
        let (x, y) = (self.columns[0] * h * luma, self.rows[0] * v * luma);
        let ratio = [h, v].map(|blocks| blocks * luma / chroma);
        Planes {
            part: Roi::new(x as u32, y as u32, wide[0] as u32, high[0] as u32),
            pitches,
            chroma: if is_gray { [0; 2] } else { [blue, red] },
            ratio,
            is_gray,
            chroma_size: [
                (self.size.width as usize).div_ceil(ratio[0]),
                (self.size.height as usize).div_ceil(ratio[1]),
            ],
            bytes: if is_gray { blue } else { red + pitches[1] * high[1] },
        }
    }
}
