//! Masks of annotated objects that follow the geometry of their image.

use serde::de::{Deserializer, IgnoredAny};

use crate::error::{DataError, Reason, reserve};
use crate::field::{
    CellFormat, CellKind, JsonTarget, Step, TEXT_LEN_BYTES, TooLong, Written, read_json,
};
use crate::footprint::counted;
use crate::geometry::{Orientation, Size};
use crate::header::Header;
use crate::op::{OriginMap, OriginRows};
use crate::plan::{ColumnSettings, Plan, SamplePlan};

mod read;

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
    /// the number of objects. With [`TooLong::Truncate`], objects for which the cell has no memory
    /// are left out.
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
    ) -> Result<Written, DataError> {
        let turn = if settings.turn { sample.orientation } else { Orientation::UPRIGHT };
        let size = if turn.is_upright() { sample.upright } else { header.size };
        let result = Size::new(plan.shape.width, plan.shape.height);
        if size.pixels() > u64::from(FILLED) {
            let problem = format!(
                "cannot be drawn for an image of {size}: outlines need images of at most {FILLED} \
                 pixels; use smaller images, or remove the column"
            );
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
            truncated: false,
            error: None,
        };
        read_json(outlines.json, (outlines.member, outlines.path), &mut target)?;
        Ok(Written { len: target.objects, truncated: target.truncated })
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
    /// Whether objects are left out.
    truncated: bool,
    error: Option<DataError>,
}

impl Objects<'_> {
    /// Writes the mask of the object that was drawn.
    fn finish(&mut self) -> Result<(), DataError> {
        let Self { objects: number, most_points, drawing: Drawing { points, .. }, .. } = *self;
        if self.truncated {
            return Ok(());
        }
        if points > most_points {
            return Err(too_long(format!(
                "has object {number}, counted from 0, whose polygons have {points} points; \
                 limits.max_outline_points is {most_points}; raise it, or remove points that \
                 change no pixels"
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
            let most = counted(most as u64, "object");
            return self.leave_out(format!("has more than {most}; raise {key}"));
        }
        let before = self.counts;
        let is_written = match self.format.kind {
            CellKind::Lists => self.write_runs(),
            _ => self.write_pixels(),
        };
        if !is_written {
            self.counts = before;
            let most = counted(self.format.max_len as u64, "run length");
            return self.leave_out(format!("has more than {most}; raise max_len"));
        }
        self.objects += 1;
        Ok(())
    }

    /// Leaves this and all later objects out, or returns an error.
    fn leave_out(&mut self, mut problem: String) -> Result<(), DataError> {
        match self.format.too_long {
            TooLong::Truncate => {
                self.truncated = true;
                return Ok(());
            }
            TooLong::Error => problem += ", or set too_long = \"truncate\" or \"skip\"",
            TooLong::Skip => {}
        }
        Err(too_long(problem))
    }

    /// Writes the run lengths of the result, column by column, beginning with the background.
    /// Returns false if the cell has no memory for all of them.
    fn write_runs(&mut self) -> bool {
        let before = self.counts;
        let (mut run, mut is_inside) = (0_i64, false);
        for &place in self.places {
            let pixel = self.drawing.mask.get(place as usize).is_some_and(|&it| it != 0);
            if pixel != is_inside {
                if !push_count(self.format, &mut self.counts, self.cell, run) {
                    return false;
                }
                (run, is_inside) = (0, pixel);
            }
            run += 1;
        }
        if !push_count(self.format, &mut self.counts, self.cell, run) {
            return false;
        }
        let place = self.format.max_len * size_of::<i64>() + self.objects * TEXT_LEN_BYTES;
        let len = (self.counts - before) as u32;
        self.cell[place..][..TEXT_LEN_BYTES].copy_from_slice(&len.to_ne_bytes());
        true
    }

    /// Writes the pixels of the result, row by row. Returns true.
    fn write_pixels(&mut self) -> bool {
        let (width, rows) = (self.result.width as usize, self.result.height as usize);
        let out = &mut self.cell[self.objects * width * rows..][..width * rows];
        for (at, &place) in self.places.iter().enumerate() {
            let pixel = self.drawing.mask.get(place as usize).copied().unwrap_or(0);
            out[at % rows * width + at / rows] = pixel;
        }
        true
    }
}

fn push_count(format: &CellFormat, counts: &mut usize, cell: &mut [u8], run: i64) -> bool {
    if *counts == format.max_len {
        return false;
    }
    cell[*counts * size_of::<i64>()..][..size_of::<i64>()].copy_from_slice(&run.to_ne_bytes());
    *counts += 1;
    true
}

fn too_long(problem: String) -> DataError {
    DataError::new(Reason::TooLong, problem)
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
