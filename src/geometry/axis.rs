//! Affine transforms of columns or of rows.

/// One axis of a [`Mapping`](super::Mapping): maps `position` to `position * scale + offset`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Axis {
    /// Output pixels per input pixel. Negative if the axis is mirrored.
    pub scale: f64,
    /// Output position of the image's left or upper edge.
    pub offset: f64,
}

impl Axis {
    /// Identity transform.
    pub const IDENTITY: Self = Self { scale: 1.0, offset: 0.0 };

    /// Returns the output position of an image position.
    pub fn at(self, position: f64) -> f64 {
        position * self.scale + self.offset
    }

    /// Returns the image position of an output position.
    pub fn back(self, position: f64) -> f64 {
        (position - self.offset) / self.scale
    }

    pub(super) fn inverse(self) -> Self {
        Self { scale: 1.0 / self.scale, offset: -self.offset / self.scale }
    }

    pub(super) fn then(&mut self, scale: f64, offset: f64) {
        *self = Self { scale: self.scale * scale, offset: self.offset * scale + offset };
    }
}
