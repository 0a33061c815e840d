//! Points and boxes that follow the geometry of their image.

use crate::error::{DataError, Reason};
use crate::geometry::{BoundingBox, Mapping, Orientation, PointMap, Size};
use crate::header::Header;
use crate::plan::{BoxFormat, ColumnSettings, SamplePlan};

/// How the geometry of an image moves points: first to the upright image, then by the chain.
pub struct Followed<'a> {
    map: PointMap<'a>,
    /// Orientation and size of the stored image, if the points were made from its pixels.
    turn: Option<(Orientation, Size)>,
    /// Whether the chain mirrors the image left to right.
    mirrored: bool,
    /// Number that is added to x and y of points before they move.
    offset: f64,
}

impl<'a> Followed<'a> {
    /// Points of a column that follow the image with this header.
    pub fn new(settings: &ColumnSettings, header: &Header, sample: &'a SamplePlan) -> Self {
        let turn = settings.turn.then_some((sample.orientation, header.size));
        let mirrored = sample.trace.flipped_horizontally;
        let offset = settings.offset();
        let map = sample.actions.point_map(&sample.trace.mapping);
        Self { map, turn, mirrored, offset }
    }

    /// Moves points in place. `numbers` are entries of the shape `dims`, whose last axis is x and
    /// y, or x, y and visibility. The visibility of a point becomes 0 if the result does not show
    /// its place. Points with the visibility 0 keep their x and y. In a mirrored image, the points
    /// of each of `pairs` change places.
    ///
    /// # Errors
    /// [`Reason::Field`] if the chain has more warps than positions can follow.
    pub fn move_points(
        &self,
        dims: &[usize],
        pairs: &[[usize; 2]],
        numbers: &mut [f32],
    ) -> Result<(), DataError> {
        let [shape @ .., axes] = dims else { return Ok(()) };
        self.check()?;
        for point in numbers.chunks_exact_mut(*axes) {
            if point.get(2) == Some(&0.0) {
                continue;
            }
            let [x, y] = [point[0], point[1]].map(|number| f64::from(number) + self.offset);
            let (x, y) = self.upright(x, y);
            let ((x, y), is_shown) = self.map.visible_point(x, y);
            (point[0], point[1]) = ((x - self.offset) as f32, (y - self.offset) as f32);
            if let Some(visibility) = point.get_mut(2)
                && !is_shown
            {
                *visibility = 0.0;
            }
        }
        let count: usize = shape.last().copied().unwrap_or(1);
        if self.mirrored {
            for entry in numbers.chunks_exact_mut(count * axes) {
                for &[a, b] in pairs {
                    (0..*axes).for_each(|axis| entry.swap(a * axes + axis, b * axes + axis));
                }
            }
        }
        Ok(())
    }

    /// Moves boxes in place, and clips them to the visible part of the result. The numbers of each
    /// box become left, top, right and bottom, or four zeros if the result does not show the box.
    ///
    /// # Errors
    /// [`Reason::Field`] if the right edge of a box is left of its left edge, or its lower edge
    /// above its upper edge, which a wrong format causes. Also if a number is NaN.
    pub fn move_boxes(&self, format: BoxFormat, numbers: &mut [f32]) -> Result<(), DataError> {
        self.check()?;
        for (number, numbers) in numbers.as_chunks_mut().0.iter_mut().enumerate() {
            let [a, b, c, d] = numbers.map(f64::from);
            let of = match format {
                BoxFormat::Xyxy => BoundingBox { left: a, top: b, right: c, bottom: d },
                BoxFormat::Xywh => BoundingBox::new(a, b, c, d),
                BoxFormat::Cxcywh => BoundingBox::new(a - 0.5 * c, b - 0.5 * d, c, d),
            };
            if !(of.left <= of.right && of.top <= of.bottom) {
                let format = format.name();
                let problem =
                    format!("box {number} is {numbers:?}, which is no box in the format {format}");
                return Err(DataError::new(Reason::Field, format!("{problem}; set format")));
            }
            let of = match self.turn {
                Some((turn, stored)) => turn.upright_box(stored, &of),
                None => of,
            };
            let seen = self.map.visible_box(&of).unwrap_or(BoundingBox::NOTHING);
            let BoundingBox { left, top, right, bottom } = seen;
            *numbers = [left, top, right, bottom].map(|edge| edge as f32);
        }
        Ok(())
    }

    fn upright(&self, x: f64, y: f64) -> (f64, f64) {
        match self.turn {
            Some((turn, stored)) => turn.upright_point(stored, x, y),
            None => (x, y),
        }
    }

    fn check(&self) -> Result<(), DataError> {
        if self.map.is_lost() {
            let problem = format!(
                "cannot follow the image, because the chain has more than {} warps (rotations, \
                 affine maps, perspectives); remove some",
                Mapping::MOST_WARPS
            );
            return Err(DataError::new(Reason::Field, problem));
        }
        Ok(())
    }
}
