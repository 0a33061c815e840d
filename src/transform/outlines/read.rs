//! Reads the outlines of objects from JSON, and draws them.

use std::fmt;

use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess,
    Visitor,
};

use super::{Drawing, Objects};
use crate::annotation::decompress;
use crate::annotation::polygon::{self, Filler};
use crate::error::DataError;
use crate::field::JsonTarget;
use crate::geometry::Size;

impl JsonTarget for Objects<'_> {
    fn take<'de, D: Deserializer<'de>>(&mut self, from: D, in_all: bool) -> Result<bool, D::Error> {
        match in_all {
            true => Outline(self).deserialize(from).map(|()| true),
            false => from.deserialize_any(List(self)),
        }
    }

    fn enter(&mut self) -> Result<(), DataError> {
        Ok(())
    }

    fn leave(&mut self, _: usize) -> Result<(), DataError> {
        Ok(())
    }

    fn error(&mut self) -> &mut Option<DataError> {
        &mut self.error
    }
}

/// Reads a list of outlines.
struct List<'t, 'a>(&'t mut Objects<'a>);

impl<'de> Visitor<'de> for List<'_, '_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list with the outline of each object")
    }

    fn visit_unit<E>(self) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut outlines: A) -> Result<bool, A::Error> {
        while outlines.next_element_seed(Outline(&mut *self.0))?.is_some() {}
        Ok(true)
    }
}

/// Reads the outline of an object, as COCO writes it, and writes its mask.
struct Outline<'t, 'a>(&'t mut Objects<'a>);

impl<'de> DeserializeSeed<'de> for Outline<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        self.0.drawing.mask.fill(0);
        self.0.drawing.points = 0;
        let number = self.0.objects;
        let read = from.deserialize_any(Outline(&mut *self.0));
        read.map_err(|error| D::Error::custom(format!("the outline of object {number}: {error}")))?;
        let written = self.0.finish();
        self.0.result(written)
    }
}

impl<'de> Visitor<'de> for Outline<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of polygons such as [[x, y, …], …], or size and counts")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut polygons: A) -> Result<(), A::Error> {
        let mut rows = Rows::new(self.0.drawing.size);
        while polygons.next_element_seed(Polygon(&mut *self.0, &mut rows))?.is_some() {}
        rows.check().map_err(A::Error::custom)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let (mut size, mut covered) = (None, None);
        while let Some(key) = members.next_key_seed(KeyName)? {
            match key {
                Some(Key::Size) => {
                    let sides = members.next_value::<[u32; 2]>().map_err(|_| {
                        A::Error::custom("size must be two whole numbers, [height, width]")
                    });
                    size = Some(sides?);
                }
                Some(Key::Counts) if covered.is_some() => {
                    return Err(A::Error::custom("it has the member \"counts\" twice"));
                }
                Some(Key::Counts) => {
                    covered = Some(members.next_value_seed(Counts(&mut self.0.drawing))?);
                }
                _ => _ = members.next_value::<IgnoredAny>()?,
            }
        }
        let lacks = |name| {
            A::Error::custom(format!(
                "it has no member {name:?}; run lengths need size = [height, width] and counts"
            ))
        };
        let [height, width] = size.ok_or_else(|| lacks("size"))?;
        let covered = covered.ok_or_else(|| lacks("counts"))?;
        let (found, wanted) = (Size::new(width, height), self.0.drawing.size);
        if found != wanted {
            return Err(A::Error::custom(format!(
                "its run lengths are for an image of {found} pixels, but its image has {wanted}; size \
                 must be [height, width] of the image"
            )));
        }
        // pycocotools leaves the pixels after the last run undefined.
        if covered != wanted.pixels() {
            return Err(A::Error::custom(format!(
                "the run lengths cover {covered} pixels, and the image of {wanted} has {}; their sum \
                 must be the number of pixels",
                wanted.pixels()
            )));
        }
        Ok(())
    }
}

/// Member of an object with run lengths.
enum Key {
    Size,
    Counts,
}

/// Reads the name of a member without storing it.
struct KeyName;

impl<'de> DeserializeSeed<'de> for KeyName {
    type Value = Option<Key>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Option<Key>, D::Error> {
        from.deserialize_str(self)
    }
}

impl Visitor<'_> for KeyName {
    type Value = Option<Key>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a member")
    }

    fn visit_str<E>(self, name: &str) -> Result<Option<Key>, E> {
        Ok(match name {
            "size" => Some(Key::Size),
            "counts" => Some(Key::Counts),
            _ => None,
        })
    }
}

/// Recognizes a binary mask that is written as rows of pixels. It has the form of a list of
/// polygons, and many such lists are valid polygons.
struct Rows {
    size: Size,
    /// Number of lists so far.
    count: u64,
    /// Whether the lists so far may be rows of a mask.
    are_mask: bool,
    /// First problem of the lists as polygons. The message about a mask has precedence.
    problem: Option<String>,
}

impl Rows {
    fn new(size: Size) -> Self {
        Self { size, count: 0, are_mask: true, problem: None }
    }

    fn check(self) -> Result<(), String> {
        if self.are_mask && self.count == u64::from(self.size.height) {
            return Err(format!(
                "it has a list of {} numbers for each of the {} rows of its image, all of them 0, 1 \
                 or 255, so it is a mask and not a list of polygons; write its run lengths, \
                 pycocotools.mask.encode(numpy.asfortranarray(mask, dtype=\"uint8\"))",
                self.size.width, self.size.height
            ));
        }
        self.problem.map_or(Ok(()), Err)
    }
}

/// Reads the coordinates of a polygon, and adds it to the mask.
struct Polygon<'t, 'a>(&'t mut Objects<'a>, &'t mut Rows);

impl<'de> DeserializeSeed<'de> for Polygon<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Polygon<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a polygon, which is a list of x and y in turn, as in [[x, y, …], …]")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut numbers: A) -> Result<(), A::Error> {
        let Self(Objects { drawing: Drawing { size, mask, points }, most_points, .. }, rows) = self;
        let mut filler = Filler::new(*size, mask);
        let mut len = 0_u64;
        let mut x = None;
        while let Some(number) = coordinate(&mut numbers)? {
            len += 1;
            let at = number.value();
            rows.are_mask &= [0.0, 1.0, 255.0].contains(&at);
            if let Coordinate::Boolean(_) = number {
                rows.problem.get_or_insert_with(|| NO_NUMBER.into());
            }
            let Some(x) = x.take() else {
                x = Some(at);
                continue;
            };
            let point = [x, at];
            if !polygon::is_near(&point, *size) {
                let (size, far) = (*size, polygon::far(*size));
                rows.problem.get_or_insert_with(|| {
                    format!(
                        "a polygon has the point {point:?}, far outside of its {size} image: x and \
                         y must be between -{far} and {far}"
                    )
                });
            }
            *points += 1;
            // More points are counted for the error of the object, but not drawn.
            if *points <= *most_points && rows.problem.is_none() {
                filler.push(point);
            }
        }
        if x.is_some() {
            rows.problem.get_or_insert_with(|| {
                format!("a polygon has {len} numbers; it must have pairs of x and y")
            });
        }
        rows.count += 1;
        rows.are_mask &= len == u64::from(size.width);
        filler.fill();
        Ok(())
    }
}

const NO_NUMBER: &str = "a coordinate of a polygon is not a number";

/// A coordinate, or a pixel of a mask of booleans.
enum Coordinate {
    Number(f64),
    Boolean(bool),
}

impl Coordinate {
    fn value(&self) -> f64 {
        match *self {
            Coordinate::Number(number) => number,
            Coordinate::Boolean(is_set) => f64::from(u8::from(is_set)),
        }
    }
}

impl<'de> Deserialize<'de> for Coordinate {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(CoordinateVisitor)
    }
}

struct CoordinateVisitor;

impl Visitor<'_> for CoordinateVisitor {
    type Value = Coordinate;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number")
    }

    fn visit_bool<E>(self, is_set: bool) -> Result<Coordinate, E> {
        Ok(Coordinate::Boolean(is_set))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Coordinate, E> {
        Ok(Coordinate::Number(number as f64))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Coordinate, E> {
        Ok(Coordinate::Number(number as f64))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Coordinate, E> {
        Ok(Coordinate::Number(number))
    }
}

fn coordinate<'de, A: SeqAccess<'de>>(numbers: &mut A) -> Result<Option<Coordinate>, A::Error> {
    numbers.next_element().map_err(|_| A::Error::custom(NO_NUMBER))
}

/// Reads run lengths, as numbers or in the compressed form of pycocotools. Returns the number of
/// pixels that they cover.
struct Counts<'t, 'a>(&'t mut Drawing<'a>);

impl<'de> DeserializeSeed<'de> for Counts<'_, '_> {
    type Value = u64;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<u64, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Counts<'_, '_> {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("run lengths, or the string of pycocotools")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<u64, E> {
        let (mut at, mut is_inside) = (0, false);
        let size = self.0.size;
        let read = decompress(size, text.as_bytes(), |length| {
            at = self.0.run(at, length, is_inside)?;
            is_inside = !is_inside;
            Ok(())
        });
        read.map(|()| at).map_err(E::custom)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut lengths: A) -> Result<u64, A::Error> {
        let (mut at, mut is_inside) = (0, false);
        let whole =
            |_| A::Error::custom("counts must be a list of whole numbers from 0 to 2^64 - 1");
        while let Some(length) = lengths.next_element().map_err(whole)? {
            at = self.0.run(at, length, is_inside).map_err(A::Error::custom)?;
            is_inside = !is_inside;
        }
        Ok(at)
    }
}
