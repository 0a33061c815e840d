//! Planes of samples that the kernels write, and the fused kernel reads.

use super::image::DeviceImage;
use super::memory::ALIGN_BYTES;
use crate::geometry::Roi;

/// Planes of samples: luma, then both chroma components.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planes {
    /// Part of the reduced image, in luma samples.
    pub part: Roi,
    /// Bytes per row of luma and of chroma.
    pub pitches: [usize; 2],
    /// Offsets of both chroma planes.
    pub chroma: [usize; 2],
    /// Luma samples per chroma sample, horizontally and vertically.
    pub ratio: [usize; 2],
    /// Whether there is only luma.
    pub is_gray: bool,
    /// Number of chroma samples of the whole image, horizontally and vertically.
    pub chroma_size: [usize; 2],
    /// Size of all planes.
    pub bytes: usize,
}

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
