//! Differences between decoded pixels and the CPU's pixels, and the bounds for them.

use super::Found;

/// Largest difference that a check allows.
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    /// Largest allowed difference of one byte, in levels.
    pub most: u8,
    /// Largest allowed mean difference, in levels.
    pub mean: f64,
}

/// Measured difference between two byte sequences.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Difference {
    most: u8,
    sum: u64,
    bytes: u64,
}

impl Difference {
    /// Compares two sequences of bytes. Bytes after the end of the shorter one are ignored.
    pub fn between(a: &[u8], b: &[u8]) -> Self {
        let bytes = a.len().min(b.len());
        let mut difference = Self { bytes: bytes as u64, ..Self::default() };
        // Most parts are equal, and comparing slices is faster than comparing bytes.
        for (a, b) in a[..bytes].chunks(64).zip(b[..bytes].chunks(64)).filter(|(a, b)| a != b) {
            for (a, b) in a.iter().zip(b) {
                difference.most = difference.most.max(a.abs_diff(*b));
                difference.sum += u64::from(a.abs_diff(*b));
            }
        }
        difference
    }

    /// Merges another difference into this one.
    pub fn add(&mut self, other: Self) {
        self.most = self.most.max(other.most);
        self.sum += other.sum;
        self.bytes += other.bytes;
    }

    /// Largest difference of one byte, in levels.
    pub fn most(&self) -> u8 {
        self.most
    }

    /// Mean difference of all bytes, in levels.
    pub fn mean(&self) -> f64 {
        self.sum as f64 / self.bytes.max(1) as f64
    }

    /// Checks the difference against a bound. Describes the success or the failure.
    pub fn within(&self, bound: Bound) -> Found {
        let (most, mean) = (self.most, self.mean());
        if most > bound.most {
            return Err(format!(
                "pixels differ from the CPU's by up to {most} levels; at most {} are allowed",
                bound.most
            ));
        }
        if mean > bound.mean {
            return Err(format!(
                "pixels differ from the CPU's by {mean:.3} levels on average; at most {} are \
                 allowed",
                bound.mean
            ));
        }
        let Bound { most: most_allowed, mean: mean_allowed } = bound;
        Ok(format!(
            "pixels differ from the CPU's by up to {most} levels ({most_allowed} allowed) and by \
             {mean:.3} on average ({mean_allowed} allowed)"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn difference_has_maximum_and_mean() {
        assert_eq!(Difference::between(&[1, 2, 3, 4], &[1, 2, 3, 4]).most(), 0);
        let mut all = Difference::between(&[10, 20, 30, 40], &[11, 20, 27, 40]);
        assert_eq!((all.most(), all.mean()), (3, 1.0));
        all.add(Difference::between(&[1; 4], &[1; 4]));
        assert_eq!((all.most(), all.mean()), (3, 0.5));
        assert!(all.within(Bound { most: 3, mean: 0.5 }).is_ok());
        assert!(all.within(Bound { most: 2, mean: 0.5 }).is_err());
        assert!(all.within(Bound { most: 3, mean: 0.4 }).is_err());
    }
}
