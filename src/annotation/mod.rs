//! Objects in an image (box, category, outline), and their positions after an operator chain.
//!
//! * Coordinates are pixel edges, as in COCO files: the centre of the first pixel is 0.5. A
//!   [`Canvas`] records whether coordinates refer to the stored pixels or to the upright image.
//! * [`Objects::place`] transforms objects exactly like the chain transforms pixels, also if the
//!   decoder reduces the image. Crops translate and clip, flips mirror, and resizes scale by the
//!   ratio of the sizes.
//! * Boxes are clipped to the visible part of the image. [`PlacedObject::visible`] is the visible
//!   share of a box.
//! * Objects are dropped if their box is completely invisible, if the width or height of the
//!   visible box is 0 after rounding to f32, or if `random_iou_crop` drops them.
//! * Masks are computed on demand, in pixels of the tensor.

use std::ops::Deref;

use crate::error::{DataError, Reason};
use crate::geometry::{Axis, BoundingBox, Mapping, Orientation, OwnedPointMap, Size};

pub(crate) mod polygon;
mod runs;

pub use runs::RunLengths;
pub(crate) use runs::decompress;

/// One annotated object.
#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    /// Number that identifies the object, such as its ID in the annotation file.
    pub id: i64,
    /// Class number, as in [`Sample::label`](crate::source::Sample::label).
    pub category: i64,
    /// Bounding box.
    pub bbox: BoundingBox,
    /// Covered area in pixels, as stated in the annotations.
    pub area: f64,
    /// Whether the object is a crowd whose members are not annotated separately (COCO's `iscrowd`).
    pub crowd: bool,
    /// Outline, if the object has one.
    pub segmentation: Option<Segmentation>,
}

/// Outline of an object.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Segmentation {
    /// Union of polygons, each closed from its last point to its first.
    Polygons(Vec<Vec<[f64; 2]>>),
    /// Mask as run lengths.
    Runs(RunLengths),
}

/// Image to which the coordinates of annotations refer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Canvas {
    /// Whether coordinates refer to the stored pixels or to the upright image.
    pub frame: Frame,
    /// Image size according to the annotations, if they contain one.
    pub size: Option<Size>,
}

/// Whether coordinates refer to the image before or after its EXIF orientation is applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Frame {
    /// Stored pixels, as in tools that ignore EXIF orientations (pycocotools, torchvision's
    /// `CocoDetection`).
    #[default]
    Stored,
    /// Upright image, as viewers show it.
    Upright,
}

impl Canvas {
    /// Checks that the annotations fit an image. `stored` is its stored size, `orientation` its
    /// EXIF orientation. `turned` states whether the loader rotates images upright.
    ///
    /// # Errors
    ///
    /// [`Reason::Corrupt`] if the annotations state another size than the image has, or if they
    /// refer to the upright image but the loader returns the stored one.
    pub fn check(
        &self,
        stored: Size,
        orientation: Orientation,
        turned: bool,
    ) -> Result<(), DataError> {
        let wrong = |problem: String| Err(DataError::new(Reason::Corrupt, problem));
        let upright = orientation.upright_size(stored);
        let (size, other, name) = match self.frame {
            Frame::Stored => (stored, upright, "upright"),
            Frame::Upright => (upright, stored, "stored"),
        };
        match self.size {
            Some(said) if said != size && said == other => wrong(format!(
                "the annotations give the image size {said}, which is the {name} size of this \
                 image, but source.coordinates expects {size}; set source.coordinates = \
                 \"{name}\""
            )),
            Some(said) if said != size => wrong(format!(
                "the annotations give the image size {said}, but the image has {size}, so boxes \
                 would be wrong; correct width and height of this image in the annotations"
            )),
            _ if self.frame == Frame::Upright && !turned && !orientation.is_upright() => wrong(
                "the annotations are for the upright image, but decode.orientation is false, so \
                 the image is not rotated; set decode.orientation to true"
                    .into(),
            ),
            _ => Ok(()),
        }
    }
}

/// Visible objects of one sample in its tensor, in the order of the annotations.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Objects {
    list: Vec<PlacedObject>,
    hidden: Vec<PlacedObject>,
    way: Way,
}

/// One object with coordinates in the tensor.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PlacedObject {
    /// Index among all objects of the image, from 0.
    pub index: usize,
    /// Bounding box in pixels of the tensor, clipped to the visible part.
    pub bbox: BoundingBox,
    /// Visible share of the box's area, above 0 and up to 1. 0 for a [hidden](Objects::hidden)
    /// object.
    pub visible: f64,
    /// Same as [`Object::id`].
    pub id: i64,
    /// Same as [`Object::category`].
    pub category: i64,
    /// Same as [`Object::crowd`].
    pub crowd: bool,
    /// Same as [`Object::area`]: in pixels of the image, not of the tensor.
    pub area: f64,
    outline: Option<Segmentation>,
}

/// Transform from annotation coordinates to the tensor.
#[derive(Clone, Debug, Default, PartialEq)]
struct Way {
    /// Orientation applied to the annotated image.
    turn: Orientation,
    /// Size of the annotated image.
    size: Size,
    map: OwnedPointMap,
}

/// Smallest visible share that counts as visible. Smaller shares are rounding errors of boxes that
/// only touch a crop.
const LEAST_VISIBLE: f64 = 1e-9;

impl Objects {
    /// Places objects in the output of a chain. `upright` is the size of the upright image, and
    /// `orientation` the EXIF orientation that was applied to it.
    pub fn place(
        objects: Vec<Object>,
        frame: Frame,
        (upright, orientation): (Size, Orientation),
        mapping: Mapping,
    ) -> Self {
        Self::place_by(objects, frame, (upright, orientation), mapping.into())
    }

    /// Places objects like [`place`](Self::place), in the output of a chain that may displace
    /// pixels.
    pub(crate) fn place_by(
        objects: Vec<Object>,
        frame: Frame,
        (upright, orientation): (Size, Orientation),
        owned: OwnedPointMap,
    ) -> Self {
        let way = Way::new(frame, (upright, orientation), owned);
        let map = way.map.get();
        let (mut list, mut hidden) = (Vec::new(), Vec::new());
        for (index, object) in objects.into_iter().enumerate() {
            let Object { id, category, bbox, area, crowd, segmentation: outline } = object;
            let upright = way.turn.upright_box(way.size, &bbox);
            let whole = map.bounding_box(&upright).unwrap_or(BoundingBox::NOTHING);
            let bbox = whole.intersection(&map.last.visible);
            let visible = bbox.area() / whole.area();
            // Models read boxes as f32, in which a sliver at the edge of a crop can have no extent.
            // So both forms of the box are checked: in pixels and normalised.
            let is_visible = visible > LEAST_VISIBLE
                && has_extent(&bbox)
                && has_extent(&bbox.normalised(map.last.size));
            let object = PlacedObject { index, bbox, visible, id, category, crowd, area, outline };
            match is_visible {
                true => list.push(object),
                false => hidden.push(PlacedObject {
                    bbox: BoundingBox::NOTHING,
                    visible: 0.0,
                    outline: None,
                    ..object
                }),
            }
        }
        Self { list, hidden, way }
    }

    /// Bounding boxes of objects in the upright image. `turned` is the size of this image and the
    /// orientation that was applied to it.
    pub fn upright_boxes(
        objects: &[Object],
        frame: Frame,
        turned: (Size, Orientation),
    ) -> impl Iterator<Item = BoundingBox> {
        let way = Way::new(frame, turned, OwnedPointMap::default());
        objects.iter().map(move |it| way.turn.upright_box(way.size, &it.bbox))
    }

    /// Objects of the sample that are not visible in its tensor, in the order of the annotations.
    /// Their boxes are four zeros, and they have no outline.
    pub fn hidden(&self) -> &[PlacedObject] {
        &self.hidden
    }

    /// Size of the tensor.
    pub fn size(&self) -> Size {
        self.way.map.get().last.size
    }

    /// Returns the polygons of object `number` in pixels of the tensor, or `None` if it has none.
    /// The polygons are not clipped and may extend beyond the tensor. Their points follow
    /// displacements (`elastic`), and the edges between them are straight.
    pub fn polygons(&self, number: usize) -> Option<Vec<Vec<[f64; 2]>>> {
        let Some(Segmentation::Polygons(polygons)) = &self.list[number].outline else {
            return None;
        };
        let Way { turn, size, ref map } = self.way;
        let map = map.get();
        let moved = |&[x, y]: &[f64; 2]| {
            let (x, y) = turn.upright_point(size, x, y);
            <[f64; 2]>::from(map.point(x, y))
        };
        Some(polygons.iter().map(|polygon| polygon.iter().map(moved).collect()).collect())
    }

    /// Returns the mask of object `number`, or `None` if the object has no outline. The mask has
    /// one byte per pixel of the tensor, row by row: 1 inside the object, 0 outside.
    ///
    /// Polygons are transformed and then filled by the rule of pycocotools. Without a transform,
    /// masks equal those of pycocotools. For run lengths, each pixel has the value of the image
    /// pixel that contains its centre. So have polygons under displacements (`elastic`), after they
    /// were filled in the annotated image.
    pub fn mask(&self, number: usize) -> Option<Vec<u8>> {
        let size = self.size();
        let mut mask = vec![0; size.pixels() as usize];
        match self.list[number].outline.as_ref()? {
            Segmentation::Polygons(polygons) => {
                let Some(mapping) = self.way.map.mapping() else {
                    let size = self.way.size;
                    let mut columns = vec![0; size.pixels() as usize];
                    for polygon in polygons {
                        polygon::fill(polygon, size, &mut columns);
                    }
                    let at = |x, y| x as usize * size.height as usize + y as usize;
                    self.way.fill_warped(|x, y| columns[at(x, y)] != 0, &mut mask);
                    return Some(mask);
                };
                let mut columns = vec![0; mask.len()];
                for polygon in self.polygons(number)? {
                    if polygon.as_flattened().iter().any(|position| position.is_nan()) {
                        continue;
                    }
                    polygon::fill(&polygon, size, &mut columns);
                }
                for (at, _) in (0..).zip(&columns).filter(|&(_, &is_inside)| is_inside != 0) {
                    let (x, y) = (at / size.height, at % size.height);
                    if mapping.back(f64::from(x) + 0.5, f64::from(y) + 0.5).is_some() {
                        mask[(y * size.width + x) as usize] = 1;
                    }
                }
            }
            Segmentation::Runs(runs) => self.way.fill(runs, &mut mask),
        }
        Some(mask)
    }
}

impl Deref for Objects {
    type Target = [PlacedObject];

    fn deref(&self) -> &[PlacedObject] {
        &self.list
    }
}

impl Way {
    fn new(frame: Frame, (upright, orientation): (Size, Orientation), map: OwnedPointMap) -> Self {
        match frame {
            Frame::Stored => {
                Self { turn: orientation, size: orientation.upright_size(upright), map }
            }
            Frame::Upright => Self { turn: Orientation::UPRIGHT, size: upright, map },
        }
    }

    /// Fills the mask by sampling the annotated image's mask at every pixel of the tensor.
    fn fill(&self, runs: &RunLengths, mask: &mut [u8]) {
        let mapping = self.map.mapping().filter(|it| it.is_axis_aligned());
        let Some(&Mapping { x, y, size, visible, .. }) = mapping else {
            let mut reader = runs.reader();
            return self.fill_warped(|x, y| reader.at(x, y), mask);
        };
        let upright = self.turn.upright_size(self.size);
        let line = |axis: Axis, len: u32, of: u32, first: f64, end: f64| {
            let position = |at: u32| {
                let back = axis.back(f64::from(at) + 0.5).floor();
                (sees(first, end, at) && back >= 0.0 && back < f64::from(of)).then_some(back as u32)
            };
            (0..len).map(position).collect::<Vec<_>>()
        };
        let columns = line(x, size.width, upright.width, visible.left, visible.right);
        let rows = line(y, size.height, upright.height, visible.top, visible.bottom);
        let mut reader = runs.reader();
        let mut look = |column: usize, row: usize| {
            if let (Some(x), Some(y)) = (columns[column], rows[row]) {
                let (x, y) = self.turn.stored_position(self.size, x, y);
                mask[row * size.width as usize + column] = reader.at(x, y).into();
            }
        };
        // The runs are stored column by column. If pixels are looked up in this order too, most
        // look-ups stay in the same run, which is fast.
        if self.turn.transpose {
            (0..rows.len()).for_each(|row| (0..columns.len()).for_each(|column| look(column, row)));
        } else {
            (0..columns.len()).for_each(|column| (0..rows.len()).for_each(|row| look(column, row)));
        }
    }

    /// Fills the mask like `fill`, but maps each pixel of the tensor separately. Used for chains
    /// that are not axis-aligned, such as rotations. `is_inside` states whether a pixel of the
    /// annotated image is in the object.
    fn fill_warped(&self, mut is_inside: impl FnMut(u32, u32) -> bool, mask: &mut [u8]) {
        let upright = self.turn.upright_size(self.size);
        let map = self.map.get();
        let width = map.last.size.width;
        for (number, place) in (0..).zip(mask) {
            let (x, y) = (number % width, number / width);
            let Some((x, y)) = map.back(f64::from(x) + 0.5, f64::from(y) + 0.5) else {
                continue;
            };
            // Rounding can move a position just outside the image, so it is clamped.
            let inside = |at: f64, len: u32| (at.floor().max(0.0) as u32).min(len - 1);
            let (x, y) = (inside(x, upright.width), inside(y, upright.height));
            let (x, y) = self.turn.stored_position(self.size, x, y);
            *place = is_inside(x, y).into();
        }
    }
}

/// Whether the width and the height of the box are positive after rounding to f32.
fn has_extent(bbox: &BoundingBox) -> bool {
    let [left, top, right, bottom] = bbox.xyxy();
    left < right && top < bottom
}

/// Whether the centre of pixel `at` lies between two edges.
fn sees(first: f64, end: f64, at: u32) -> bool {
    let centre = f64::from(at) + 0.5;
    first <= centre && centre < end
}
