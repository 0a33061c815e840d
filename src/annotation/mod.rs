//! What is in an image: objects with a box, a category and an outline, and where a chain puts them.
//!
//! * Positions are edges in pixels, as in COCO's files: the first pixel's centre is 0.5. Which image they mean is the
//!   [`Canvas`]: the pixels as they are stored, or the upright image.
//! * [`Objects::place`] follows the chain exactly, whatever the decoder reduced: crops move and cut, mirrorings turn, resizes
//!   scale by the ratio of the sizes.
//! * A box is cut to what of the image can be seen. An object of whose box nothing is left does not appear; of the others
//!   it is known which part of the box is left.
//! * Masks are made when they are asked for, in pixels of the tensor.

use std::ops::Deref;

use crate::error::{DataError, Reason};
use crate::geometry::{Axis, BoundingBox, Orientation, Size, View};

mod polygon;
mod runs;

pub use runs::RunLengths;

/// One object as it was annotated.
#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    /// Its number in the annotation file, or what stands for it.
    pub id: i64,
    /// Number of its class, as [`Sample::label`](crate::source::Sample::label) would have it.
    pub category: i64,
    /// Where it is.
    pub bbox: BoundingBox,
    /// Pixels that it covers, as annotated.
    pub area: f64,
    /// A crowd of objects that were not told apart (COCO's `iscrowd`).
    pub crowd: bool,
    /// Its outline, where it has one.
    pub segmentation: Option<Segmentation>,
}

/// The outline of an object.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Segmentation {
    /// Polygons whose union it is, each closed from its last point to its first.
    Polygons(Vec<Vec<[f64; 2]>>),
    /// A mask.
    Runs(RunLengths),
}

/// Which image positions mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Canvas {
    /// Pixels as they are stored, or as they stand upright.
    pub frame: Frame,
    /// The size that the annotations say it has, where they say so.
    pub size: Option<Size>,
}

/// Whether positions were annotated before or after an image was turned by its EXIF orientation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Frame {
    /// The pixels as they are stored, which is what tools see that do not know of orientations (pycocotools, torchvision's
    /// `CocoDetection`).
    #[default]
    Stored,
    /// The upright image, which is what viewers show.
    Upright,
}

impl Canvas {
    /// Whether an image that is `stored` with this orientation can be what was annotated; `turned` says whether the loader
    /// stands it upright.
    ///
    /// # Errors
    ///
    /// [`Reason::Corrupt`] where it has another size, or where the upright image was annotated and the stored one is used.
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
                "its annotations are for {said} and it is {size}, but turned it is {other}: write \
                 source.coordinates = \"{name}\""
            )),
            Some(said) if said != size => wrong(format!(
                "its annotations are for an image of {said}, and it is {size}: boxes would be wrong; correct its \
                 width and height there"
            )),
            _ if self.frame == Frame::Upright && !turned && !orientation.is_upright() => wrong(
                "its annotations are for the upright image: set decode.orientation to true".into(),
            ),
            _ => Ok(()),
        }
    }
}

/// The objects of one sample that can be seen in its tensor, in the order of the annotations.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Objects {
    list: Vec<PlacedObject>,
    way: Way,
}

/// One object as it is in the tensor.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PlacedObject {
    /// Its place among all objects of the image, from 0.
    pub index: usize,
    /// Where it is, in pixels of the tensor, cut to what can be seen.
    pub bbox: BoundingBox,
    /// The part of the box's area that is left, over 0 to 1.
    pub visible: f64,
    /// [`Object::id`].
    pub id: i64,
    /// [`Object::category`].
    pub category: i64,
    /// [`Object::crowd`].
    pub crowd: bool,
    /// [`Object::area`]: pixels of the image, not of the tensor.
    pub area: f64,
    outline: Option<Segmentation>,
}

/// From what was annotated to the tensor.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Way {
    /// How the annotated image is turned.
    turn: Orientation,
    /// Size of the annotated image.
    size: Size,
    view: View,
}

/// Less of a box than this is nothing: what is left where a box only touches a crop's edge is rounding.
const LEAST_VISIBLE: f64 = 1e-9;

impl Objects {
    /// Where objects are in what a chain made of an image of `upright` size that was turned by `orientation`.
    pub fn place(
        objects: Vec<Object>,
        frame: Frame,
        (upright, orientation): (Size, Orientation),
        view: View,
    ) -> Self {
        let way = match frame {
            Frame::Stored => {
                Way { turn: orientation, size: orientation.upright_size(upright), view }
            }
            Frame::Upright => Way { turn: Orientation::UPRIGHT, size: upright, view },
        };
        let place = |(index, object): (usize, Object)| {
            let Object { id, category, bbox, area, crowd, segmentation } = object;
            let whole = view.bounding_box(&way.turn.upright_box(way.size, &bbox));
            let bbox = whole.intersection(&view.visible);
            let visible = bbox.area() / whole.area();
            let outline = segmentation;
            (visible > LEAST_VISIBLE).then_some(PlacedObject {
                index,
                bbox,
                visible,
                id,
                category,
                crowd,
                area,
                outline,
            })
        };
        Self { list: objects.into_iter().enumerate().filter_map(place).collect(), way }
    }

    /// Size of the tensor.
    pub fn size(&self) -> Size {
        self.way.view.size
    }

    /// The outline of object `number` of these in pixels of the tensor, where it has polygons. They are not cut: they may
    /// reach outside.
    pub fn polygons(&self, number: usize) -> Option<Vec<Vec<[f64; 2]>>> {
        let Some(Segmentation::Polygons(polygons)) = &self.list[number].outline else {
            return None;
        };
        let Way { turn, size, view } = self.way;
        let moved = |&[x, y]: &[f64; 2]| {
            let (x, y) = turn.upright_point(size, x, y);
            <[f64; 2]>::from(view.point(x, y))
        };
        Some(polygons.iter().map(|polygon| polygon.iter().map(moved).collect()).collect())
    }

    /// The mask of object `number` of these: a byte for each pixel of the tensor, row after row, 1 where the object is; `None`
    /// where it has no outline.
    ///
    /// Polygons are moved and then filled, by pycocotools' rule: those of an image that nothing moved give its mask. A mask
    /// of run lengths gives each pixel that of the image's pixel in which its centre lies.
    pub fn mask(&self, number: usize) -> Option<Vec<u8>> {
        let size = self.size();
        let mut mask = vec![0; size.pixels() as usize];
        match self.list[number].outline.as_ref()? {
            Segmentation::Polygons(_) => {
                let visible = self.way.view.visible;
                for polygon in self.polygons(number)? {
                    polygon::fill(&polygon, size, |x, y| {
                        if sees(visible.left, visible.right, x)
                            && sees(visible.top, visible.bottom, y)
                        {
                            mask[(y * size.width + x) as usize] = 1;
                        }
                    });
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
    /// Looks every pixel of the tensor up in a mask of the annotated image.
    fn fill(&self, runs: &RunLengths, mask: &mut [u8]) {
        let View { x, y, size, visible } = self.view;
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
        // Down the stored columns, since that is how the runs go.
        if self.turn.transpose {
            (0..rows.len()).for_each(|row| (0..columns.len()).for_each(|column| look(column, row)));
        } else {
            (0..columns.len()).for_each(|column| (0..rows.len()).for_each(|row| look(column, row)));
        }
    }
}

/// Whether the centre of a pixel lies between two edges.
fn sees(first: f64, end: f64, at: u32) -> bool {
    let centre = f64::from(at) + 0.5;
    first <= centre && centre < end
}
