//! Masks of annotated objects that follow the geometry of their image.

use std::fmt;

use serde::de::{
    DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor,
};

use crate::annotation::decompress;
use crate::annotation::polygon::{self, Filler};
use crate::error::{DataError, Reason, reserve};
use crate::field::{CellFormat, CellKind, JsonTarget, Step, TEXT_LEN_BYTES, read_json};
use crate::geometry::{Orientation, Size};
use crate::header::Header;
use crate::op::{OriginMap, OriginRows};
use crate::plan::{ColumnSettings, Plan, SamplePlan};

/// Outlines of a sample's objects, as text of JSON.
#[derive(Clone, Copy, Debug)]
pub struct Outlines<'a> {
    /// The text.
    pub json: &'a [u8],
    /// Member of the text at which the path begins. `None`: the path begins at the text's value.
    pub member: Option<&'a str>,
    /// Path to the list of outlines.
    pub path: &'a [Step],
}

impl Outlines<'_> {
    /// Whether the value exists and is not null.
    ///
    /// # Errors
    /// [`Reason::Field`] if the text is not JSON.
    pub fn exist(&self) -> Result<bool, DataError> {
        read_json(self.json, (self.member, self.path), &mut Presence(None))
    }
}

/// Moves masks of objects. The memory is reused for the next sample.
#[derive(Debug, Default)]
pub struct ObjectMasks {
    /// Pixels of the annotated image, column by column: 1 in the object, otherwise 0.
    mask: Vec<u8>,
    /// For each pixel of the result, column by column, the pixel of `mask` that it shows, or
    /// [`FILLED`].
    places: Vec<u32>,
}

/// Place of a pixel that shows no part of the image. `make` rejects images with so many pixels.
const FILLED: u32 = u32::MAX;

impl ObjectMasks {
    /// Writes the masks of all objects to `cell`: as run lengths, or as bytes of 0 and 1. Returns
    /// the number of objects.
    ///
    /// # Errors
    /// [`Reason::Field`] if an outline is invalid, or has another size than its image.
    /// [`Reason::TooLong`] if there are too many objects, runs or points.
    pub fn make(
        &mut self,
        outlines: Outlines<'_>,
        (settings, format): (&ColumnSettings, &CellFormat),
        origins: (&mut OriginMap, &mut OriginRows),
        (header, plan, sample): (&Header, &Plan, &SamplePlan),
        cell: &mut [u8],
    ) -> Result<usize, DataError> {
        let turn = if settings.turn { sample.orientation } else { Orientation::UPRIGHT };
        let size = if turn.is_upright() { sample.upright } else { header.size };
        let result = Size::new(plan.shape.width, plan.shape.height);
        if size.pixels() > u64::from(FILLED) {
            let problem = format!("has an image of {size}, which is too large for outlines");
            return Err(DataError::new(Reason::Field, problem));
        }
        reserve::resize(&mut self.mask, size.pixels() as usize)?;
        reserve::resize(&mut self.places, result.pixels() as usize)?;
        self.find_places(sample, (size, turn), result, origins);
        let Self { mask, places } = self;
        let drawing = Drawing { size, mask, points: 0 };
        let most_points = plan.settings.limits.max_outline_points;
        let (objects, counts) = (0, 0);
        let mut target = Objects {
            drawing,
            most_points,
            places,
            result,
            format,
            cell,
            objects,
            counts,
            error: None,
        };
        read_json(outlines.json, (outlines.member, outlines.path), &mut target)?;
        Ok(target.objects)
    }

    fn find_places(
        &mut self,
        sample: &SamplePlan,
        (size, turn): (Size, Orientation),
        result: Size,
        (map, found): (&mut OriginMap, &mut OriginRows),
    ) {
        let (width, rows) = (result.width as usize, result.height as usize);
        map.clear();
        sample.actions.origins(map);
        map.turn_back(turn, size);
        for y in (0..result.height).step_by(OriginRows::ROWS as usize) {
            let some = y..result.height.min(y + OriginRows::ROWS);
            found.find(map, &sample.actions.table, result.width, some);
            for (at, origin) in (y as usize * width..).zip(found.iter()) {
                let place = origin.map_or(FILLED, |(x, y)| x * size.height + y);
                self.places[at % width * rows + at / width] = place;
            }
        }
    }

    /// Frees all memory.
    pub fn release(&mut self) {
        reserve::free(&mut self.mask);
        reserve::free(&mut self.places);
    }
}

/// Mask of one object in the annotated image.
struct Drawing<'a> {
    size: Size,
    mask: &'a mut [u8],
    /// Number of points of all polygons of the object.
    points: u64,
}

impl Drawing<'_> {
    /// Fills a run of `length` pixels from `at` on. Returns its end.
    fn run(&mut self, at: u64, length: u64, is_inside: bool) -> Result<u64, String> {
        let size = self.size;
        let end = at.checked_add(length).filter(|&end| end <= size.pixels()).ok_or_else(|| {
            let pixels = size.pixels();
            format!("the runs cover more than the {pixels} pixels of an image of {size}")
        })?;
        if is_inside {
            self.mask[at as usize..end as usize].fill(1);
        }
        Ok(end)
    }
}

/// Reads outlines and writes their masks.
struct Objects<'a> {
    drawing: Drawing<'a>,
    /// Maximum number of points of an object.
    most_points: u64,
    places: &'a [u32],
    result: Size,
    format: &'a CellFormat,
    cell: &'a mut [u8],
    /// Number of objects and of run lengths that were written.
    objects: usize,
    counts: usize,
    error: Option<DataError>,
}

impl Objects<'_> {
    /// Writes the mask of the object that was drawn.
    fn finish(&mut self) -> Result<(), DataError> {
        let Self { objects: number, most_points, drawing: Drawing { points, .. }, .. } = *self;
        if points > most_points {
            return Err(too_long(format!(
                "has an object (number {number}, counted from 0) whose polygons have {points} \
                 points, and limits.max_outline_points is {most_points}; raise it, or remove \
                 points that change no pixels"
            )));
        }
        let most = match self.format.kind {
            CellKind::Lists => self.format.max_texts,
            _ => self.format.max_len,
        };
        if self.objects == most {
            let key = match self.format.kind {
                CellKind::Lists => "max_objects",
                _ => "max_len",
            };
            return Err(too_long(format!("has more than {most} objects; raise {key}")));
        }
        match self.format.kind {
            CellKind::Lists => self.write_runs()?,
            _ => self.write_pixels(),
        }
        self.objects += 1;
        Ok(())
    }

    /// Writes the run lengths of the result, column by column, beginning with the background.
    fn write_runs(&mut self) -> Result<(), DataError> {
        let before = self.counts;
        let (mut run, mut is_inside) = (0_i64, false);
        for &place in self.places {
            let pixel = self.drawing.mask.get(place as usize).is_some_and(|&it| it != 0);
            if pixel != is_inside {
                push_count(self.format, &mut self.counts, self.cell, run)?;
                (run, is_inside) = (0, pixel);
            }
            run += 1;
        }
        push_count(self.format, &mut self.counts, self.cell, run)?;
        let place = self.format.max_len * size_of::<i64>() + self.objects * TEXT_LEN_BYTES;
        let len = (self.counts - before) as u32;
        self.cell[place..][..TEXT_LEN_BYTES].copy_from_slice(&len.to_ne_bytes());
        Ok(())
    }

    /// Writes the pixels of the result, row by row.
    fn write_pixels(&mut self) {
        let (width, rows) = (self.result.width as usize, self.result.height as usize);
        let out = &mut self.cell[self.objects * width * rows..][..width * rows];
        for (at, &place) in self.places.iter().enumerate() {
            let pixel = self.drawing.mask.get(place as usize).copied().unwrap_or(0);
            out[at % rows * width + at / rows] = pixel;
        }
    }
}

fn push_count(
    format: &CellFormat,
    counts: &mut usize,
    cell: &mut [u8],
    run: i64,
) -> Result<(), DataError> {
    if *counts == format.max_len {
        let most = format.max_len;
        return Err(too_long(format!("has more than {most} run lengths; raise max_len")));
    }
    cell[*counts * size_of::<i64>()..][..size_of::<i64>()].copy_from_slice(&run.to_ne_bytes());
    *counts += 1;
    Ok(())
}

fn too_long(problem: String) -> DataError {
    DataError::new(Reason::TooLong, problem)
}

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
        from.deserialize_any(Outline(&mut *self.0))?;
        let written = self.0.finish();
        self.0.result(written)
    }
}

impl<'de> Visitor<'de> for Outline<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of polygons, or size and counts")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut polygons: A) -> Result<(), A::Error> {
        while polygons.next_element_seed(Polygon(&mut *self.0))?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let (mut size, mut covered) = (None, None);
        while let Some(key) = members.next_key_seed(Key)? {
            match key {
                Some(Key::SIZE) => size = Some(members.next_value::<[u32; 2]>()?),
                Some(Key::COUNTS) => {
                    covered = Some(members.next_value_seed(Counts(&mut self.0.drawing))?);
                }
                _ => _ = members.next_value::<IgnoredAny>()?,
            }
        }
        let [height, width] = size.ok_or_else(|| A::Error::missing_field("size"))?;
        let covered = covered.ok_or_else(|| A::Error::missing_field("counts"))?;
        let (found, wanted) = (Size::new(width, height), self.0.drawing.size);
        if found != wanted {
            return Err(A::Error::custom(format!(
                "the run lengths of an object are those of {found} pixels, and its image has {wanted}"
            )));
        }
        // pycocotools leaves the pixels after the last run undefined.
        if covered != wanted.pixels() {
            return Err(A::Error::custom(format!(
                "the run lengths of object {} (counted from 0) cover {covered} pixels, and its \
                 image of {wanted} has {}; their sum must be the number of pixels",
                self.0.objects,
                wanted.pixels()
            )));
        }
        Ok(())
    }
}

/// Compares the name of a member without storing it.
struct Key;

impl Key {
    const SIZE: bool = true;
    const COUNTS: bool = false;
}

impl<'de> DeserializeSeed<'de> for Key {
    type Value = Option<bool>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Option<bool>, D::Error> {
        from.deserialize_str(self)
    }
}

impl Visitor<'_> for Key {
    type Value = Option<bool>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a member")
    }

    fn visit_str<E>(self, name: &str) -> Result<Option<bool>, E> {
        Ok(match name {
            "size" => Some(Self::SIZE),
            "counts" => Some(Self::COUNTS),
            _ => None,
        })
    }
}

/// Reads the coordinates of a polygon, and adds it to the mask.
struct Polygon<'t, 'a>(&'t mut Objects<'a>);

impl<'de> DeserializeSeed<'de> for Polygon<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Polygon<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a polygon, which is a list of x and y in turn")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut numbers: A) -> Result<(), A::Error> {
        let Objects { drawing: Drawing { size, mask, points }, most_points, .. } = &mut *self.0;
        let mut filler = Filler::new(*size, mask);
        let mut here = 0;
        while let Some(x) = numbers.next_element::<f64>()? {
            let Some(y) = numbers.next_element::<f64>()? else {
                let len = 2 * here + 1;
                return Err(A::Error::custom(format!(
                    "a polygon has {len} numbers; it must have pairs of x and y"
                )));
            };
            if !polygon::is_near(&[x, y], *size) {
                let (size, far) = (*size, polygon::far(*size));
                return Err(A::Error::custom(format!(
                    "a polygon has the point {:?}, far outside of its {size} image: x and y must \
                     be between -{far} and {far}",
                    [x, y]
                )));
            }
            here += 1;
            *points += 1;
            // More points are counted for the error of the object, but not drawn.
            if *points <= *most_points {
                filler.push([x, y]);
            }
        }
        filler.fill();
        Ok(())
    }
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
        while let Some(length) = lengths.next_element()? {
            at = self.0.run(at, length, is_inside).map_err(A::Error::custom)?;
            is_inside = !is_inside;
        }
        Ok(at)
    }
}

/// Finds whether a value exists.
struct Presence(Option<DataError>);

impl JsonTarget for Presence {
    fn take<'de, D: Deserializer<'de>>(&mut self, from: D, in_all: bool) -> Result<bool, D::Error> {
        // Null is a missing value, but as an entry an object without an outline.
        let found = <Option<IgnoredAny> as serde::Deserialize>::deserialize(from)?;
        Ok(in_all || found.is_some())
    }

    fn enter(&mut self) -> Result<(), DataError> {
        Ok(())
    }

    fn leave(&mut self, _: usize) -> Result<(), DataError> {
        Ok(())
    }

    fn error(&mut self) -> &mut Option<DataError> {
        &mut self.0
    }
}
