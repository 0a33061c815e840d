//! Parses outlines of objects: polygons, and run lengths as numbers or as compressed text.

use std::fmt;

use serde::Deserialize;
use serde::de::value::SeqAccessDeserializer;
use serde::de::{Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::bounds::{List, MOST_NUMBERS, too_many};
use super::loose::Loose;
use crate::annotation::{RunLengths, Segmentation};
use crate::geometry::Size;

/// Value of `segmentation` in an annotation.
#[derive(Default)]
pub enum Outline {
    #[default]
    None,
    Polygons(Vec<Vec<f64>>),
    Runs(Size, Counts),
    /// Polygons that are no lists of numbers, and why.
    Wrong(String),
}

/// Value in the place of a polygon.
enum Polygon {
    Numbers(Vec<f64>),
    Wrong(String),
}

/// Value in the place of a coordinate.
enum Coordinate {
    Number(f64),
    Wrong(Loose),
}

pub enum Counts {
    Lengths(Vec<u64>),
    Compressed(String),
}

impl Outline {
    /// Returns the outline, or `None` if the object has none.
    ///
    /// # Errors
    ///
    /// The error states why the outline is invalid.
    pub fn checked(self) -> Result<Option<Segmentation>, String> {
        match self {
            Outline::None => Ok(None),
            Outline::Wrong(problem) => Err(problem),
            Outline::Runs(size, Counts::Lengths(lengths)) => {
                RunLengths::new(size, lengths).map(|runs| Some(Segmentation::Runs(runs)))
            }
            Outline::Runs(size, Counts::Compressed(text)) => {
                let runs = RunLengths::from_compressed(size, text.as_bytes())?;
                Ok(Some(Segmentation::Runs(runs)))
            }
            Outline::Polygons(polygons) => {
                let mut kept = Vec::new();
                for numbers in polygons {
                    let (points, odd) = numbers.as_chunks();
                    if !odd.is_empty() {
                        let len = numbers.len();
                        return Err(format!(
                            "a polygon has {len} numbers; it must have pairs of x and y"
                        ));
                    }
                    if points.len() >= 3 {
                        kept.push(points.to_vec());
                    }
                }
                Ok((!kept.is_empty()).then_some(Segmentation::Polygons(kept)))
            }
        }
    }
}

impl<'de> Deserialize<'de> for Outline {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(OutlineVisitor)
    }
}

struct OutlineVisitor;

impl<'de> Visitor<'de> for OutlineVisitor {
    type Value = Outline;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of polygons, or size and counts")
    }

    fn visit_unit<E>(self) -> Result<Outline, E> {
        Ok(Outline::None)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Outline, A::Error> {
        let (mut polygons, mut numbers, mut wrong) = (Vec::new(), 0, None);
        while let Some(polygon) = seq.next_element()? {
            let polygon = match polygon {
                Polygon::Numbers(polygon) => polygon,
                Polygon::Wrong(problem) => {
                    wrong.get_or_insert(problem);
                    continue;
                }
            };
            // A polygon without points needs memory too, so every polygon counts as one more
            // number.
            numbers += polygon.len() + 1;
            if numbers > MOST_NUMBERS {
                return Err(A::Error::custom(too_many()));
            }
            polygons.push(polygon);
        }
        Ok(wrong.map_or(Outline::Polygons(polygons), Outline::Wrong))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Outline, A::Error> {
        let (mut size, mut counts) = (None, None);
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "size" => size = Some(map.next_value::<[u32; 2]>()?),
                "counts" => counts = Some(map.next_value()?),
                _ => _ = map.next_value::<IgnoredAny>()?,
            }
        }
        let [height, width] = size.ok_or_else(|| A::Error::missing_field("size"))?;
        let counts = counts.ok_or_else(|| A::Error::missing_field("counts"))?;
        Ok(Outline::Runs(Size::new(width, height), counts))
    }
}

impl<'de> Deserialize<'de> for Polygon {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(PolygonVisitor)
    }
}

struct PolygonVisitor;

impl PolygonVisitor {
    fn wrong(value: &Loose) -> Polygon {
        Polygon::Wrong(format!(
            "a polygon {}; it must be a list of x and y in turn, in a list of polygons: [[x, y, …], …]",
            value.is()
        ))
    }
}

impl<'de> Visitor<'de> for PolygonVisitor {
    type Value = Polygon;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a polygon")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Polygon, A::Error> {
        let (mut numbers, mut wrong) = (Vec::new(), None);
        while let Some(coordinate) = seq.next_element()? {
            if numbers.len() == MOST_NUMBERS {
                return Err(A::Error::custom(too_many()));
            }
            match coordinate {
                Coordinate::Number(number) => numbers.push(number),
                Coordinate::Wrong(value) => {
                    let problem = format!(
                        "coordinate {} of a polygon {}; it must be a number",
                        numbers.len(),
                        value.is()
                    );
                    wrong.get_or_insert(problem);
                }
            }
        }
        Ok(wrong.map_or(Polygon::Numbers(numbers), Polygon::Wrong))
    }

    fn visit_unit<E>(self) -> Result<Polygon, E> {
        Ok(Self::wrong(&Loose::Null))
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Polygon, E> {
        Ok(Self::wrong(&Loose::Bool(flag)))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Polygon, E> {
        Ok(Self::wrong(&Loose::Integer(number)))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Polygon, E> {
        Ok(Self::wrong(&Loose::Float(number as f64)))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Polygon, E> {
        Ok(Self::wrong(&Loose::Float(number)))
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
        f.write_str("a coordinate")
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

    fn visit_unit<E>(self) -> Result<Coordinate, E> {
        Ok(Coordinate::Wrong(Loose::Null))
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Coordinate, E> {
        Ok(Coordinate::Wrong(Loose::Bool(flag)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Coordinate, E> {
        Ok(Coordinate::Wrong(Loose::Text(text.into())))
    }
}

impl<'de> Deserialize<'de> for Counts {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(CountsVisitor)
    }
}

struct CountsVisitor;

impl<'de> Visitor<'de> for CountsVisitor {
    type Value = Counts;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("run lengths, or the string of pycocotools")
    }

    fn visit_str<E>(self, text: &str) -> Result<Counts, E> {
        Ok(Counts::Compressed(text.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Counts, A::Error> {
        let List(lengths) = List::deserialize(SeqAccessDeserializer::new(seq))?;
        Ok(Counts::Lengths(lengths))
    }
}
