//! Kinds of columns that are made from fields.

use serde::{Deserialize, Serialize};

use crate::field::CellKind;

/// Kind of a column that is made from a field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum ColumnKind {
    /// Numbers of a fixed shape. An empty shape is a single number.
    #[default]
    Array,
    /// Any number of entries per sample. Each entry is a number, or numbers of a fixed shape.
    List,
    /// Text in UTF-8.
    Text,
    /// Bytes.
    Bytes,
    /// Any number of texts per sample, in UTF-8.
    Texts,
    /// A number for each pixel of the image, such as its class. The field is an image file with one
    /// channel. The mask follows the crops, flips, resizes and warps of the image, with nearest
    /// interpolation.
    Mask,
    /// Any number of points, which follow the image. The last axis of an entry is x and y, or x, y
    /// and visibility.
    Points,
    /// Any number of boxes, which follow the image and are clipped to its visible part. Entries in
    /// batches are left, top, right and bottom.
    Boxes,
    /// Masks of the sample's objects as run lengths (COCO's RLE), which follow the image. The field
    /// has the outlines of the objects as COCO writes them: polygons or run lengths. A sample has a
    /// list of run lengths for each object.
    Runs,
    /// Masks of the sample's objects, which follow the image: any number of entries of the shape
    /// `[height, width]`, with 1 inside of the object and 0 outside. The field is that of `runs`.
    Instances,
}

/// Meaning of the four numbers of a box in its field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum BoxFormat {
    /// Left, top, right, bottom.
    #[default]
    Xyxy,
    /// Left, top, width, height, as in COCO.
    Xywh,
    /// x and y of the centre, width, height, in pixels.
    Cxcywh,
}

impl BoxFormat {
    /// Name in pipeline files.
    pub const fn name(self) -> &'static str {
        match self {
            BoxFormat::Xyxy => "xyxy",
            BoxFormat::Xywh => "xywh",
            BoxFormat::Cxcywh => "cxcywh",
        }
    }
}

impl ColumnKind {
    /// Structure of the values in batches.
    pub const fn cells(self) -> CellKind {
        match self {
            ColumnKind::Array | ColumnKind::Mask => CellKind::Array,
            ColumnKind::List | ColumnKind::Points | ColumnKind::Boxes | ColumnKind::Instances => {
                CellKind::List
            }
            ColumnKind::Text => CellKind::Text,
            ColumnKind::Bytes => CellKind::Bytes,
            ColumnKind::Texts => CellKind::Texts,
            ColumnKind::Runs => CellKind::Lists,
        }
    }

    /// Whether values change with the geometry of the image.
    pub const fn follows(self) -> bool {
        matches!(self, ColumnKind::Mask | ColumnKind::Points | ColumnKind::Boxes)
            || self.has_outlines()
    }

    /// Whether the field has outlines of objects.
    pub const fn has_outlines(self) -> bool {
        matches!(self, ColumnKind::Runs | ColumnKind::Instances)
    }

    /// Name in pipeline files.
    pub const fn name(self) -> &'static str {
        match self {
            ColumnKind::Array => "array",
            ColumnKind::List => "list",
            ColumnKind::Text => "text",
            ColumnKind::Bytes => "bytes",
            ColumnKind::Texts => "texts",
            ColumnKind::Mask => "mask",
            ColumnKind::Points => "points",
            ColumnKind::Boxes => "boxes",
            ColumnKind::Runs => "runs",
            ColumnKind::Instances => "instances",
        }
    }
}
