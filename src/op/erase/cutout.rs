//! `cutout`: overwrites squares with a colour.

use bytemuck::{Pod, Zeroable};
use serde::{Deserialize, Serialize};

use crate::geometry::Size;
use crate::op::kind::{Channel, PositionFormula, RowPosition};
use crate::op::settings::{equal_values, one_or_each};
use crate::op::{BuiltIn, Cuda, Draw, FieldError, Kind, Kinds, Operator};
use crate::random::SampleRng;

/// Overwrites random squares with a colour, like DeVries and Taylor's Cutout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Cutout {
    /// Number of squares, 1 to 8. Default 1.
    pub holes: u32,
    /// Side of a square in pixels, 1 to 65,535. Default 16, the paper's value for CIFAR-10.
    pub length: u32,
    /// Red, green and blue of the squares, 0 to 255. In TOML, one number sets all three. Default
    /// black.
    #[serde(deserialize_with = "one_or_each")]
    pub fill: [u8; 3],
}

impl Default for Cutout {
    fn default() -> Self {
        Self { holes: 1, length: 16, fill: [0; 3] }
    }
}

impl Operator for Cutout {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn kinds(&self) -> Kinds {
        Kinds::exactly([Kind::position::<Self>()])
    }

    fn draw(&self, draw: &mut Draw<'_>) {
        let (size, rng) = (draw.size(), draw.rng());
        let params = Params::draw(size, self.holes as usize, self.length, self.fill, rng);
        draw.position::<Self>(&params);
    }

    fn check(&self) -> Result<(), FieldError> {
        for (field, value, most) in
            [("holes", self.holes, MAX_HOLES as u32), ("length", self.length, u16::MAX.into())]
        {
            if !(1..=most).contains(&value) {
                return Err(FieldError::new(field, format!("must be 1 to {most}, is {value}")));
            }
        }
        Ok(())
    }

    fn fills_channels(&self) -> bool {
        true
    }

    fn channels(&self, input: usize) -> Result<usize, String> {
        equal_values(Self::NAME, "fill", self.fill, input)
    }
}

impl BuiltIn for Cutout {
    const NAME: &'static str = "cutout";

    fn examples() -> Vec<Self> {
        vec![
            Self::default(),
            Self { holes: 8, length: 9, fill: [1, 100, 255] },
            Self { length: 65_535, ..Self::default() },
        ]
    }
}

impl PositionFormula for Cutout {
    type Params = Params;
    const CUDA: Option<Cuda> =
        Some(Cuda::new("Cutout", include_str!("../../../kernels/cutout.cu")));

    /// Returns the fill colour inside a square, and the unchanged pixel elsewhere.
    #[inline(always)]
    fn bytes(params: &Params, x: i32, y: i32, pixel: [u8; 3]) -> [u8; 3] {
        let inside = params.holes.iter().any(|hole| {
            let [left, top, right, bottom] = hole.map(i32::from);
            (left..right).contains(&x) && (top..bottom).contains(&y)
        });
        if inside { params.fill } else { pixel }
    }

    /// Fills the parts of the row that are inside a square.
    #[inline(always)]
    fn row<T: Channel>(params: &Params, at: RowPosition, row: &mut [[T; 3]]) {
        for hole in params.holes {
            let [left, top, right, bottom] = hole.map(i32::from);
            if left < right && (top..bottom).contains(&at.y) {
                let places = at.places(left..right, row.len());
                row[places].fill(T::pixel::<Self>(params, left, at.y, [T::default(); 3]));
            }
        }
    }
}

/// Maximum number of squares.
pub const MAX_HOLES: usize = 8;

/// Parameters of one sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable, Serialize)]
#[repr(C)]
pub struct Params {
    /// Left, top, right and bottom edge of each square. Column `right` and row `bottom` are outside
    /// the square. Unused squares are empty.
    pub holes: [[u16; 4]; MAX_HOLES],
    /// Colour of the squares.
    pub fill: [u8; 3],
    /// Always 0.
    #[serde(skip)]
    pub padding: [u8; 5],
}

impl Params {
    /// Draws `holes` squares with sides of `length` pixels like `Cutout` of DeVries and Taylor
    /// ("Improved regularization of convolutional neural networks with cutout", 2017;
    /// `util/cutout.py` of uoguelph-mlrg/Cutout). The middle of a square is drawn from all pixels,
    /// first its row and then its column. Parts outside the image are cut off. A square extends
    /// `length / 2` pixels, rounded down, in each direction from its middle. An odd length
    /// therefore gives one pixel less, as in the original code.
    pub fn draw(
        image: Size,
        holes: usize,
        length: u32,
        fill: [u8; 3],
        rng: &mut SampleRng,
    ) -> Self {
        let mut params = Self { holes: [[0; 4]; MAX_HOLES], fill, padding: [0; 5] };
        for hole in params.holes.iter_mut().take(holes) {
            let [y, x] =
                [image.height, image.width].map(|side| rng.below(u64::from(side.max(1))) as u32);
            let cut = |at: u32, side: u32| {
                let ends = [at.saturating_sub(length / 2), at.saturating_add(length / 2).min(side)];
                ends.map(|end| end.min(u32::from(u16::MAX)) as u16)
            };
            let ([left, right], [top, bottom]) = (cut(x, image.width), cut(y, image.height));
            *hole = [left, top, right, bottom];
        }
        params
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::SampleKey;

    /// Compares how often each row is erased with the expected number for a uniformly drawn middle.
    #[test]
    fn every_pixel_is_the_middle_equally_often() {
        let (size, length, samples) = (Size::new(12, 7), 4, 20_000);
        let mut rows = [0; 7];
        for index in 0..samples {
            let mut rng = SampleRng::new(SampleKey { index, ..Default::default() }, 0);
            let params = Params::draw(size, 1, length, [0; 3], &mut rng);
            let [left, top, right, bottom] = params.holes[0];
            assert!(left < right && right <= 12 && top < bottom && bottom <= 7);
            (top..bottom).for_each(|row| rows[usize::from(row)] += 1);
        }
        // A row is erased if the middle of the square is up to two rows below or one row above it.
        for (row, &count) in rows.iter().enumerate() {
            let middles = (0..7i32).filter(|&y| (y - 2..y + 2).contains(&(row as i32))).count();
            let expected = samples as f64 * middles as f64 / 7.0;
            assert!((f64::from(count) - expected).abs() < 5.0 * expected.sqrt(), "{row}: {count}");
        }
    }

    #[test]
    fn only_squares_change() {
        let mut params = Params { holes: [[0; 4]; MAX_HOLES], fill: [1, 2, 3], padding: [0; 5] };
        params.holes[0] = [2, 3, 5, 4];
        params.holes[7] = [65_000, 0, 65_500, 1];
        for (x, y, inside) in
            [(2, 3, true), (4, 3, true), (5, 3, false), (4, 4, false), (65_499, 0, true)]
        {
            assert_eq!(Cutout::bytes(&params, x, y, [9; 3]) == [1, 2, 3], inside, "{x} {y}");
        }
    }
}
