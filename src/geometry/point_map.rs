//! Positions of points of an image in the result of its chain.
//!
//! A [`Mapping`] describes all actions except displacements (of the operator `elastic`). So
//! displacements divide a chain into parts. A point passes the mapping of a part, then the
//! displacements at its end, then the mapping of the next part.

use std::ops::Range;
use std::sync::Arc;

use super::displaced::Displaced;
use super::{BoundingBox, Mapping};

/// Part of a chain that ends with displacements.
#[derive(Clone, Debug, PartialEq)]
pub struct DisplacedPart {
    /// Mapping of the actions before the displacements.
    pub mapping: Mapping,
    /// Range of the displacements in the table of the map.
    pub table: Range<usize>,
    /// Largest displacements: [`Displaced::reach`].
    pub reach: [f64; 2],
}

/// Map from positions of the upright image to those of the result, of one sample. Coordinates are
/// edges of pixels, as in [`Mapping`].
#[derive(Clone, Copy, Debug)]
pub struct PointMap<'a> {
    /// Parts that end with displacements.
    pub parts: &'a [DisplacedPart],
    /// Mapping of the actions after the last displacements.
    pub last: &'a Mapping,
    /// Displacements of all parts.
    pub table: &'a [i32],
}

impl<'a> PointMap<'a> {
    /// Parts that end with displacements, with their displacements.
    fn parts(&self) -> impl DoubleEndedIterator<Item = (&'a DisplacedPart, Displaced<'a>)> {
        let table = self.table;
        self.parts
            .iter()
            .map(move |part| (part, Displaced::new(&table[part.table.clone()], part.mapping.size)))
    }

    /// Whether a part has more warps than [`Mapping::MOST_WARPS`], so that positions in the result
    /// are not known.
    pub fn is_lost(&self) -> bool {
        self.last.is_lost() || self.parts.iter().any(|part| part.mapping.is_lost())
    }

    /// Position of a point of the upright image in the result. A point that a perspective moves to
    /// or beyond infinity becomes NaN.
    pub fn point(&self, x: f64, y: f64) -> (f64, f64) {
        let (x, y) = self.parts().fold((x, y), |(x, y), (part, displaced)| {
            let (x, y) = part.mapping.point(x, y);
            displaced.target(x, y)
        });
        self.last.point(x, y)
    }

    /// Position of a point as in [`point`](Self::point), and whether the result shows the point
    /// there. It does not if the position is outside of the visible part, or if displacements show
    /// a place there that is [too far](Displaced::shows) from the point.
    pub fn visible_point(&self, x: f64, y: f64) -> ((f64, f64), bool) {
        let mut is_shown = true;
        let (x, y) = self.parts().fold((x, y), |(x, y), (part, displaced)| {
            let wanted = part.mapping.point(x, y);
            let at = displaced.target(wanted.0, wanted.1);
            is_shown &= displaced.shows(at, wanted);
            at
        });
        let at = self.last.point(x, y);
        (at, is_shown && self.back(at.0, at.1).is_some())
    }

    /// Maps a position in the result back to the upright image. Returns `None` if the result shows
    /// no part of the image at this position.
    pub fn back(&self, x: f64, y: f64) -> Option<(f64, f64)> {
        let (x, y) = self.last.back(x, y)?;
        self.parts().rev().try_fold((x, y), |(x, y), (part, displaced)| {
            let (x, y) = displaced.source(x, y);
            part.mapping.back(x, y)
        })
    }

    /// Transforms a box of the upright image, including the part that is invisible in the result.
    /// Parts that are invisible before a warp or before displacements are removed. Displacements
    /// move a box to the [box around its positions](Displaced::bounding_box). `None` if
    /// displacements show no part of the box, or if the chain drops the object
    /// ([`Mapping::drop_objects`]).
    pub fn bounding_box(&self, of: &BoundingBox) -> Option<BoundingBox> {
        let mut of = *of;
        for (part, displaced) in self.parts() {
            let seen = part.mapping.visible_box(&of);
            if !(seen.area() > 0.0 && part.mapping.keeps(&of)) {
                return None;
            }
            of = displaced.bounding_box(&seen, part.reach)?;
        }
        self.last.keeps(&of).then(|| self.last.bounding_box(&of))
    }

    /// Part of a box that the result shows, in pixels of the result. `None` if the result shows no
    /// part, or if the chain drops the object.
    pub fn visible_box(&self, of: &BoundingBox) -> Option<BoundingBox> {
        let seen = self.bounding_box(of)?.intersection(&self.last.visible);
        (seen.area() > 0.0).then_some(seen)
    }

    /// The map with memory of its own.
    pub fn to_owned(self) -> OwnedPointMap {
        let Self { parts, last, table } = self;
        // Without displacements, tables are those of other operators.
        let table = if parts.is_empty() { &[] } else { table };
        OwnedPointMap { parts: parts.into(), last: *last, table: table.into() }
    }
}

/// [`PointMap`] with memory of its own.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OwnedPointMap {
    parts: Arc<[DisplacedPart]>,
    last: Mapping,
    table: Arc<[i32]>,
}

impl OwnedPointMap {
    /// The map.
    pub fn get(&self) -> PointMap<'_> {
        PointMap { parts: &self.parts, last: &self.last, table: &self.table }
    }

    /// The mapping of the whole chain, if it has no displacements.
    pub fn mapping(&self) -> Option<&Mapping> {
        self.parts.is_empty().then_some(&self.last)
    }
}

impl From<Mapping> for OwnedPointMap {
    fn from(last: Mapping) -> Self {
        Self { last, ..Self::default() }
    }
}
