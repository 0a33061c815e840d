//! Fields of the samples of a COCO file.

use std::io::Write;

use super::Coco;
use crate::annotation::Segmentation;
use crate::error::{DataError, Reason, Result, reserve};
use crate::field::{Field, FieldKind, FieldValue, Flat};
use crate::footprint::counted;
use crate::source::{Fields, PutField};

const KEYPOINTS: &str = "keypoints";
const CAPTIONS: &str = "captions";
const CATEGORIES: &str = "categories";

/// Fields of every image.
const OF_IMAGES: [(&str, FieldKind); 4] = [
    ("image_id", FieldKind::Number),
    ("file_name", FieldKind::Text),
    ("width", FieldKind::Number),
    ("height", FieldKind::Number),
];

/// Fields of the objects in an image.
const OF_OBJECTS: [(&str, FieldKind); 6] = [
    ("boxes", FieldKind::List),
    (CATEGORIES, FieldKind::List),
    ("category_ids", FieldKind::List),
    ("areas", FieldKind::List),
    ("iscrowd", FieldKind::List),
    ("segmentations", FieldKind::Json),
];

impl Fields for Coco {
    fn schema(&self) -> Vec<Field> {
        let has_captions = self.captions > 0 || self.extras.has_captions_file();
        let keypoints = self.has_keypoints.then_some((KEYPOINTS, FieldKind::List));
        let captions = has_captions.then_some((CAPTIONS, FieldKind::Json));
        // A file without categories has no objects, but may have captions.
        let of_objects = OF_OBJECTS.into_iter().filter(|_| !self.categories.is_empty());
        let all = OF_IMAGES.into_iter().chain(of_objects).chain(keypoints).chain(captions);
        all.map(|(name, kind)| Field { name: name.into(), kind }).collect()
    }

    fn has_classes(&self, name: &str) -> bool {
        name == CATEGORIES
    }

    fn prepare(&self, wanted: &[&str]) -> Result<()> {
        if wanted.contains(&KEYPOINTS) {
            self.keypoints()?;
        }
        if wanted.contains(&CAPTIONS) {
            self.captions()?;
        }
        Ok(())
    }

    fn read_fields(
        &self,
        index: u64,
        wanted: &[&str],
        buffer: &mut Vec<u8>,
        limit: u64,
        put: &mut PutField<'_>,
    ) -> Result<(), DataError> {
        let image = &self.images[index as usize];
        let starts = &self.starts[self.objects_of(index)];
        let fits = |name: &str, bytes: usize| within(name, bytes, limit);
        let integers = |name: &str, number: &dyn Fn(u64) -> i64| {
            fits(name, size_of_val(starts))?;
            let mut list = Vec::new();
            reserve::reserve(&mut list, starts.len())?;
            list.extend(starts.iter().map(|&start| number(start)));
            Ok::<_, DataError>(list)
        };
        let doubles = |name: &str, numbers: &dyn Fn([f64; 5], &mut Vec<f64>), each: usize| {
            fits(name, each * size_of_val(starts))?;
            let mut list = Vec::new();
            reserve::reserve(&mut list, each * starts.len())?;
            starts.iter().for_each(|&start| numbers(self.pool.shape(start), &mut list));
            Ok::<_, DataError>(list)
        };
        let label = |start| {
            let label = Self::label(&self.labels, self.pool.head(start).category);
            label.expect("missing categories were rejected")
        };
        for (number, &name) in wanted.iter().enumerate() {
            match name {
                "image_id" => put(number, FieldValue::Integer(image.id.into()))?,
                "file_name" => put(number, FieldValue::Text(self.name(index)))?,
                "width" if image.size.width > 0 => {
                    put(number, FieldValue::Integer(image.size.width.into()))?;
                }
                "height" if image.size.height > 0 => {
                    put(number, FieldValue::Integer(image.size.height.into()))?;
                }
                "boxes" => {
                    let corners = |shape: [f64; 5], list: &mut Vec<f64>| list.extend(&shape[..4]);
                    let list = doubles(name, &corners, 4)?;
                    put(number, FieldValue::Entries(Flat::Doubles(&list), &[4]))?;
                }
                "areas" => {
                    let area = |shape: [f64; 5], list: &mut Vec<f64>| list.push(shape[4]);
                    let list = doubles(name, &area, 1)?;
                    put(number, FieldValue::Entries(Flat::Doubles(&list), &[]))?;
                }
                CATEGORIES => {
                    let list = integers(name, &|start| label(start) as i64)?;
                    put(number, FieldValue::Entries(Flat::Integers(&list), &[]))?;
                }
                "category_ids" => {
                    let list = integers(name, &|start| self.categories[label(start)].id)?;
                    put(number, FieldValue::Entries(Flat::Integers(&list), &[]))?;
                }
                "iscrowd" => {
                    let list = integers(name, &|start| self.pool.head(start).crowd.into())?;
                    put(number, FieldValue::Entries(Flat::Integers(&list), &[]))?;
                }
                "segmentations" => {
                    self.write_segmentations(starts, buffer, limit)?;
                    put(number, FieldValue::Json(buffer))?;
                }
                KEYPOINTS if self.has_keypoints => {
                    if let Some((points, list)) = self.keypoints_of(index, limit)? {
                        let value = FieldValue::Entries(Flat::Doubles(&list), &[points, 3]);
                        put(number, value).map_err(|error| with_count(error, points))?;
                    } else if starts.is_empty() {
                        put(number, FieldValue::Doubles(&[]))?;
                    }
                }
                CAPTIONS if self.captions > 0 || self.extras.has_captions_file() => {
                    let captions = self.captions().map_err(unreadable)?.of(index);
                    if !captions.is_empty() {
                        fits(name, captions.len())?;
                        put(number, FieldValue::Json(captions))?;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }
}

impl Coco {
    /// Returns the keypoints of all objects in an image, with their number in one object. An object
    /// without keypoints has zeros, as COCO writes keypoints that nobody has labelled. Returns
    /// `None` if no object has keypoints.
    ///
    /// # Errors
    ///
    /// [`Reason::Corrupt`] if objects have different numbers of keypoints. [`Reason::Oversized`] if
    /// they have more than `limit` bytes. [`Reason::Unreadable`] if the file cannot be read.
    fn keypoints_of(&self, index: u64, limit: u64) -> Result<Option<(usize, Vec<f64>)>, DataError> {
        let keypoints = self.keypoints().map_err(unreadable)?;
        let starts = &keypoints.starts[self.objects_of(index)];
        let lens = || starts.iter().map(|&start| keypoints.pool.points_len(start));
        let len = lens().max().unwrap_or(0);
        if len == 0 {
            return Ok(None);
        }
        if let Some(other) = lens().find(|&other| other != 0 && other != len) {
            let problem = format!(
                "the objects of the image have different numbers of keypoints: one has {}, another \
                 has {}",
                len / 3,
                other / 3
            );
            return Err(DataError::new(Reason::Corrupt, problem));
        }
        within(KEYPOINTS, len.saturating_mul(size_of_val(starts)), limit)?;
        let mut list = Vec::new();
        reserve::reserve(&mut list, len * starts.len())?;
        for (&start, end) in starts.iter().zip(1..) {
            keypoints.pool.points(start, &mut list);
            list.resize(end * len, 0.0);
        }
        Ok(Some((len / 3, list)))
    }

    /// Writes the outlines of objects as a JSON list.
    ///
    /// # Errors
    ///
    /// [`Reason::Oversized`] if the text has more than `limit` bytes.
    fn write_segmentations(
        &self,
        starts: &[u64],
        buffer: &mut Vec<u8>,
        limit: u64,
    ) -> Result<(), DataError> {
        buffer.clear();
        let mut add = |text: &dyn std::fmt::Display| {
            // Writing to a vector does not fail.
            let _ = write!(buffer, "{text}");
            if buffer.len() as u64 > limit {
                let problem = format!(
                    "the field \"segmentations\" has more than {limit} bytes, which is \
                     limits.max_field_bytes; raise it"
                );
                return Err(DataError::new(Reason::Oversized, problem));
            }
            Ok(())
        };
        add(&"[")?;
        for (place, &start) in starts.iter().enumerate() {
            add(&separator(place))?;
            match self.pool.object(start).segmentation {
                None => add(&"null")?,
                Some(Segmentation::Polygons(polygons)) => {
                    add(&"[")?;
                    for (place, polygon) in polygons.iter().enumerate() {
                        add(&separator(place))?;
                        add(&"[")?;
                        for (place, coordinate) in polygon.iter().flatten().enumerate() {
                            add(&separator(place))?;
                            add(&Coordinate(*coordinate))?;
                        }
                        add(&"]")?;
                    }
                    add(&"]")?;
                }
                Some(Segmentation::Runs(runs)) => {
                    let size = runs.size();
                    let head = format!("{{\"size\":[{},{}],\"counts\":[", size.height, size.width);
                    add(&head)?;
                    for (place, length) in runs.lengths().enumerate() {
                        add(&separator(place))?;
                        add(&length)?;
                    }
                    add(&"]}")?;
                }
            }
        }
        add(&"]")
    }
}

/// Adds the number of keypoints of an object to the error of a column with another shape.
fn with_count(error: DataError, points: usize) -> DataError {
    if error.reason != Reason::Field {
        return error;
    }
    let points = counted(points as u64, "keypoint");
    let problem = format!("{}; each object of the image has {points}", error.problem);
    DataError::new(error.reason, problem)
}

/// Returns an error if the values of a field have more than `limit` bytes.
fn within(name: &str, bytes: usize, limit: u64) -> Result<(), DataError> {
    if bytes as u64 <= limit {
        return Ok(());
    }
    let problem = format!(
        "the field {name:?} has {bytes} bytes; limits.max_field_bytes is {limit}; raise it"
    );
    Err(DataError::new(Reason::Oversized, problem))
}

/// Number of JSON. Whole numbers have no fraction, as in COCO's files.
struct Coordinate(f64);

impl std::fmt::Display for Coordinate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0.fract() == 0.0 && self.0.abs() < 1e15 {
            true => write!(f, "{}", self.0),
            // The shortest text with the same value, with an exponent if the number is very large.
            false => write!(f, "{:?}", self.0),
        }
    }
}

fn separator(place: usize) -> &'static str {
    if place == 0 { "" } else { "," }
}

fn unreadable(error: crate::error::Error) -> DataError {
    DataError::new(Reason::Unreadable, error.to_string())
}
