//! Start values for positions that are summed from pixel to pixel. Without them, each thread of a
//! kernel would repeat all additions from the first pixel on.

use crate::geometry::Size;

use super::{Positions, Warp};

/// Number of start values per axis.
const STARTS: usize = 64;

/// Number of entries (of 32 bits) of the start values of both axes.
pub const START_ENTRIES: usize = 2 * STARTS * (size_of::<f64>() / size_of::<i32>());

impl Warp {
    /// Returns the positions of 64 columns and then of 64 rows of an output of this size, spaced
    /// evenly from the first one on. `None` if positions are not summed, or if the sums of columns
    /// and rows depend on each other. Also stores the spacing, which kernels read.
    pub fn starts(&mut self, output: Size) -> Option<[f64; 2 * STARTS]> {
        if self.positions() != Positions::Summed || self.real(1) != 0.0 || self.real(3) != 0.0 {
            return None;
        }
        let mut starts = [0.0; 2 * STARTS];
        let (columns, rows) = starts.split_at_mut(STARTS);
        let distances = [output.width, output.height].map(|len| len.div_ceil(STARTS as u32).max(1));
        for ((starts, axis), distance) in [columns, rows].into_iter().zip([0, 4]).zip(distances) {
            let first = axis / 4 * 3;
            let halves = (self.real(first + 1) * 0.5, self.real(first) * 0.5);
            let (mut at, step) = (self.real(first + 2) + halves.0 + halves.1, self.real(axis));
            for start in starts {
                *start = at;
                (0..distance).for_each(|_| at += step);
            }
        }
        self.data[6] = u64::from(distances[0]) | u64::from(distances[1]) << 32;
        Some(starts)
    }

    /// Whether kernels read a table for this map, of displacements or of start values.
    pub fn has_table(&self) -> bool {
        match self.positions() {
            Positions::Displaced => true,
            Positions::Summed => self.data[6] != 0,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Interpolation;
    use super::*;

    #[test]
    fn start_values_are_positions_of_the_reference() {
        let [input, output] = [Size::new(500, 375), Size::new(301, 64)];
        let matrix = [0.7312, 0.0, -3.1, 0.0, 1.1937, 0.3];
        let mut warp = Warp::affine(input, output, matrix, Interpolation::Nearest, [0; 3]);
        assert!(!warp.has_table());
        let starts = warp.starts(output).unwrap();
        assert!(warp.has_table());
        assert_eq!([warp.integer(12), warp.integer(13)], [5, 1]);
        for (number, start) in (0..).zip(starts) {
            let position = match number {
                0..64 => warp.real_position(5 * number, 17).0,
                _ => warp.real_position(9, number - 64).1,
            };
            assert_eq!(start.to_bits(), position.to_bits(), "{number}");
        }
    }

    #[test]
    fn maps_with_other_sums_have_no_start_values() {
        let size = Size::new(90, 40);
        for matrix in [
            [1.0, 0.0, 3.0, 0.0, 1.0, 4.0],
            [0.9, 0.1, 0.0, 0.0, 1.0, 0.0],
            [1e3, 1e3, 0.0, 0.0, 1.0, 0.0],
        ] {
            let mut warp = Warp::affine(size, size, matrix, Interpolation::Nearest, [0; 3]);
            assert_eq!((warp.starts(size), warp.has_table()), (None, false), "{matrix:?}");
        }
        let mut bilinear = Warp::affine(
            size,
            size,
            [0.9, 0.0, 0.0, 0.0, 0.9, 0.0],
            Interpolation::Bilinear,
            [0; 3],
        );
        assert_eq!(bilinear.starts(size), None);
    }
}
