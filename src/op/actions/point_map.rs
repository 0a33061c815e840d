//! Positions of points of an image in the result of its chain.
//!
//! A [`Mapping`] describes all actions except displacements ([`elastic`](crate::op::Elastic)),
//! whose field is only known after the backward pass. So displacements divide a chain into parts. A
//! point passes the mapping of a part, then the displacements at its end, then the mapping of the
//! next part.

use crate::geometry::{BoundingBox, Mapping, Size};

use super::Actions;
use crate::op::kind::mix::Inside;
use crate::op::warp::inverse::Displaced;
use crate::op::{Action, ActionParams, Trace};

/// Parts of a sample's chain that end with displacements, and the part after them. The memory is
/// reused for the next sample.
#[derive(Clone, Debug, Default)]
pub struct Parts {
    /// Mapping of each part, and the number of the action that displaces the pixels at its end.
    displaced: Vec<(Mapping, usize)>,
    /// Mapping of the actions after the last displacements.
    last: Mapping,
}

impl Parts {
    /// Finds the parts of a chain for an image of size `input`. The displacements of a mix do not
    /// count, because the mix also contains the image that was not displaced.
    pub fn find(&mut self, actions: &[Action], input: Size) {
        self.displaced.clear();
        let (mut trace, mut mixes, mut first) = (Trace::new(input), Inside::default(), 0);
        for (number, action) in actions.iter().enumerate() {
            if mixes.pass(&action.params) || !is_displaced(&action.params) {
                continue;
            }
            Action::trace_all(&actions[first..number], &mut trace);
            self.displaced.push((trace.mapping, number));
            (trace, first) = (Trace::new(action.whole), number + 1);
        }
        if first > 0 {
            Action::trace_all(&actions[first..], &mut trace);
            self.last = trace.mapping;
        }
    }
}

fn is_displaced(params: &ActionParams) -> bool {
    matches!(params, ActionParams::Warp(warp) if warp.field.is_some())
}

/// Map from positions of the upright image to those of the result, of one sample. Coordinates are
/// edges of pixels, as in [`Mapping`].
#[derive(Clone, Copy, Debug)]
pub struct PointMap<'a> {
    displaced: &'a [(Mapping, usize)],
    last: &'a Mapping,
    actions: &'a Actions,
}

impl<'a> PointMap<'a> {
    /// Map of a sample. `whole` is the mapping of all actions, without displacements. The windows
    /// and tables of the actions were computed.
    pub fn new(actions: &'a Actions, parts: &'a Parts, whole: &'a Mapping) -> Self {
        let displaced = &parts.displaced[..];
        let last = if displaced.is_empty() { whole } else { &parts.last };
        Self { displaced, last, actions }
    }

    /// Parts that end with displacements, with their displacements.
    fn parts(&self) -> impl DoubleEndedIterator<Item = (&'a Mapping, Displaced<'a>)> {
        let actions = self.actions;
        self.displaced.iter().map(move |(mapping, number)| {
            (mapping, Displaced::new(actions.table_of(*number), mapping.size))
        })
    }

    fn mappings(&self) -> impl Iterator<Item = &'a Mapping> {
        self.displaced.iter().map(|(mapping, _)| mapping).chain([self.last])
    }

    /// Whether a part has more warps than [`Mapping::MOST_WARPS`], so that positions in the result
    /// are not known.
    pub fn is_lost(&self) -> bool {
        self.mappings().any(Mapping::is_lost)
    }

    /// Position of a point of the upright image in the result. A point that a perspective moves to
    /// or beyond infinity becomes NaN.
    pub fn point(&self, x: f64, y: f64) -> (f64, f64) {
        let (x, y) = self.parts().fold((x, y), |(x, y), (mapping, displaced)| {
            let (x, y) = mapping.point(x, y);
            displaced.target(x, y)
        });
        self.last.point(x, y)
    }

    /// Whether the result shows a part of the image at the position `(x, y)` of the result.
    pub fn shows(&self, x: f64, y: f64) -> bool {
        let position = self.parts().rev().try_fold((x, y, self.last), |(x, y, after), part| {
            let (mapping, displaced) = part;
            let (x, y) = after.back(x, y)?;
            let (x, y) = displaced.source(x, y);
            Some((x, y, mapping))
        });
        position.is_some_and(|(x, y, mapping)| mapping.back(x, y).is_some())
    }

    /// Part of a box that the result shows, in pixels of the result. `None` if the result shows no
    /// part, or if the chain drops the object ([`Mapping::drop_objects`]).
    pub fn visible_box(&self, of: &BoundingBox) -> Option<BoundingBox> {
        let seen = |mapping: &Mapping, of: &BoundingBox| {
            let seen = mapping.visible_box(of);
            (seen.area() > 0.0 && mapping.keeps(of)).then_some(seen)
        };
        let mut of = *of;
        for (mapping, displaced) in self.parts() {
            of = around(&seen(mapping, &of)?, &displaced);
        }
        seen(self.last, &of)
    }
}

/// Smallest box around a displaced box. The corners move, and points of the sides that are at most
/// two pixels apart, or 1/64 of the side if that is more.
fn around(of: &BoundingBox, displaced: &Displaced<'_>) -> BoundingBox {
    let BoundingBox { left, top, right, bottom } = *of;
    let parts = |len: f64| (len / 2.0).ceil().clamp(1.0, 64.0) as u32;
    let (columns, rows) = (parts(of.width()), parts(of.height()));
    let at = |first: f64, end: f64, number: u32, count: u32| {
        first + (end - first) * f64::from(number) / f64::from(count)
    };
    let across = (0..=columns).map(|number| at(left, right, number, columns));
    let down = (0..=rows).map(|number| at(top, bottom, number, rows));
    let outline = across
        .flat_map(|x| [(x, top), (x, bottom)])
        .chain(down.flat_map(|y| [(left, y), (right, y)]));
    let none = BoundingBox {
        left: f64::INFINITY,
        top: f64::INFINITY,
        right: f64::NEG_INFINITY,
        bottom: f64::NEG_INFINITY,
    };
    outline.fold(none, |around, (x, y)| {
        let (x, y) = displaced.target(x, y);
        BoundingBox {
            left: around.left.min(x),
            top: around.top.min(y),
            right: around.right.max(x),
            bottom: around.bottom.max(y),
        }
    })
}
