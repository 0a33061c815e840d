//! Parses outlines of objects: polygons, and run lengths as numbers or as compressed text.

use std::fmt;

use serde::Deserialize;
use serde::de::value::SeqAccessDeserializer;
use serde::de::{Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::bounds::{List, MOST_NUMBERS, too_many};
use crate::annotation::{RunLengths, Segmentation};
use crate::geometry::Size;

/// Value of `segmentation` in an annotation.
#[derive(Default)]
pub enum Outline {
    #[default]
    None,
    Polygons(Vec<Vec<f64>>),
    Runs(Size, Counts),
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
        let (mut polygons, mut numbers) = (Vec::new(), 0);
        while let Some(List(polygon)) = seq.next_element::<List<f64>>()? {
            // A polygon without points needs memory too, so every polygon counts as one more
            // number.
            numbers += polygon.len() + 1;
            if numbers > MOST_NUMBERS {
                return Err(A::Error::custom(too_many()));
            }
            polygons.push(polygon);
        }
        Ok(Outline::Polygons(polygons))
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
