//! Settings of columns that are made from fields.

use serde::{Deserialize, Serialize};

use crate::field::{CellFormat, DefaultValue, FieldPath, Pick, TooLong};
use crate::tensor::ElementType;

pub(in crate::plan) use check::RESERVED_NAMES;
pub use kind::{BoxFormat, ColumnKind};

mod check;
mod kind;

/// `[[column]]`: a column of batches besides images, labels and soft targets. Its values come from
/// a field of the source ([`Fields`](crate::source::Fields)). They are in host memory. If
/// images are on a device, columns of numbers have a copy there, and masks are only there.
///
/// A sample without a value fails, unless there is a `default`. So does a sample whose value has
/// another type or shape than the column, or is out of range.
///
/// ```
/// use feedwater::ElementType;
/// use feedwater::plan::ColumnSettings;
///
/// let columns = [
///     ColumnSettings::text("caption"),
///     ColumnSettings { field: Some("meta:score".into()), ..ColumnSettings::array("score", ElementType::F32, &[]) },
///     ColumnSettings { max_len: Some(50), ..ColumnSettings::list("boxes", ElementType::F32, &[4]) },
/// ];
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ColumnSettings {
    /// Name of the column, for [`Batch::column`](crate::loader::Batch::column).
    pub name: String,
    /// Field of the source. A path after a colon leads into a JSON value, such as `meta:score`,
    /// `meta:sizes[0].width` or `meta:boxes[*].x`, or names an array of an `.npz` file, such as
    /// `emb.npz:name`. Default: `name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// Kind of the column. Default `array`.
    #[serde(default)]
    pub kind: ColumnKind,
    /// Element type. Arrays and lists: default `f32`. Masks: `u8` (default), `i64` or `f32`, and
    /// with `one_hot` `f32` (default), `f16`, `bf16` or `u8`. Points and boxes are `f32`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dtype: Option<ElementType>,
    /// Shape of an array, or of one entry of a list. Default `[]`, a single number. For points, the
    /// last axis has 2 or 3 numbers (default `[2]`). Not for masks, which have the size of the
    /// chain's output.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shape: Vec<usize>,
    /// Maximum number of entries of a list, or of bytes of a text, or of bytes of all texts of a
    /// sample together, or of run lengths of all objects of a sample together, or of objects in a
    /// column of the kind `instances`. Memory for this many is allocated for each sample. Default:
    /// 256 entries, 4096 bytes, 16384 run lengths, 32 objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_len: Option<usize>,
    /// Maximum number of texts of a sample, in a column of the kind `texts`. Default 32.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_texts: Option<usize>,
    /// Maximum number of objects of a sample, in a column of the kind `runs`. Default 256.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_objects: Option<usize>,
    /// Handling of values that are longer than `max_len`, or have more than `max_texts` texts.
    /// Default `error`.
    #[serde(default)]
    pub too_long: TooLong,
    /// Choice of a text, if the field of a column of the kind `text` has several. An empty list is
    /// a missing value. Default: several texts are an error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pick: Option<Pick>,
    /// Value for samples without the field, or whose field is null or empty. Default: such a sample
    /// fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<DefaultValue>,
    /// Column whose geometry a mask, points, boxes or masks of objects follow: `image`, which is
    /// the default, or a view. A mask has an axis for the outputs of a view with `count`. The
    /// others cannot follow such a view.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub like: Option<String>,
    /// Number of classes of a mask, 1 to 65535. The mask then has an axis of this length, at the
    /// place of the channels in `output.layout`: 1 for the class of a pixel, and 0 for the other
    /// classes. Pixels with the number `fill` are 0 for all classes. Any other number that is not
    /// below `one_hot` fails its sample, also if the result does not show it. `mixup` blends such
    /// masks like their images. Default: a mask has one number per pixel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub one_hot: Option<u32>,
    /// Number in a mask where the result shows no part of the image. With `one_hot`, a number from
    /// `one_hot` to 65535. Default 255.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fill: Option<f64>,
    /// Whether masks, points or boxes were made from the pixels as stored in the image file. They
    /// are then turned and mirrored as the EXIF orientation of the image says. Default false: they
    /// were made from the upright image.
    #[serde(default)]
    pub turn: bool,
    /// Whether a smaller mask is scaled to the size of its image, with nearest interpolation.
    /// Neither side may be longer than that of the image. The ratio of the sides is not checked.
    /// Default false: such a sample fails.
    #[serde(default)]
    pub scale: bool,
    /// Meaning of the four numbers of a box. Default `xyxy`.
    #[serde(default)]
    pub format: BoxFormat,
    /// Pairs of points of one entry that change places if the image is flipped horizontally, such
    /// as the left and the right eye. Entries then have the shape `[points, 2]` or `[points, 3]`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flip_pairs: Vec<[usize; 2]>,
    /// Number that is added to x and y of points before they move, and subtracted afterwards.
    /// Default 0. With 0.5, points in fields and in batches are indices of pixels, as in COCO: the
    /// first pixel has the index 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<f64>,
}

/// Default of `max_len` for lists.
const LIST_LEN: usize = 256;

/// Default of `max_len` for texts and bytes.
const TEXT_LEN: usize = 4096;

/// Default of `max_len` for run lengths.
const RUNS: usize = 16384;

/// Default of `max_objects`.
const OBJECTS: usize = 256;

/// Default of `max_len` for masks of objects.
const INSTANCES: usize = 32;

/// Default of `max_texts`.
const TEXTS: usize = 32;

impl ColumnSettings {
    /// Column of numbers with the same shape in all samples.
    pub fn array(name: &str, dtype: ElementType, shape: &[usize]) -> Self {
        let shape = shape.to_vec();
        Self { name: name.into(), dtype: Some(dtype), shape, ..Self::default() }
    }

    /// Column of lists, whose entries have this shape.
    pub fn list(name: &str, dtype: ElementType, shape: &[usize]) -> Self {
        Self { kind: ColumnKind::List, ..Self::array(name, dtype, shape) }
    }

    /// Column of texts.
    pub fn text(name: &str) -> Self {
        Self { name: name.into(), kind: ColumnKind::Text, ..Self::default() }
    }

    /// Column with any number of texts per sample.
    pub fn texts(name: &str) -> Self {
        Self { name: name.into(), kind: ColumnKind::Texts, ..Self::default() }
    }

    /// Column of bytes.
    pub fn bytes(name: &str) -> Self {
        Self { name: name.into(), kind: ColumnKind::Bytes, ..Self::default() }
    }

    /// Column of masks, which follow the image. Elements are `u8`.
    pub fn mask(name: &str) -> Self {
        Self { name: name.into(), kind: ColumnKind::Mask, ..Self::default() }
    }

    /// Column of points, which follow the image. Each entry is x and y in pixels. The centre of the
    /// first pixel is at 0.5, unless `offset` is set.
    pub fn points(name: &str) -> Self {
        Self { name: name.into(), kind: ColumnKind::Points, ..Self::default() }
    }

    /// Column of boxes, which follow the image, with their format in the field.
    pub fn boxes(name: &str, format: BoxFormat) -> Self {
        Self { name: name.into(), kind: ColumnKind::Boxes, format, ..Self::default() }
    }

    /// Column of masks of objects as run lengths, which follow the image. Elements are `i64`.
    pub fn runs(name: &str) -> Self {
        Self { name: name.into(), kind: ColumnKind::Runs, ..Self::default() }
    }

    /// Column of masks of objects, which follow the image. Elements are `u8`.
    pub fn instances(name: &str) -> Self {
        Self { name: name.into(), kind: ColumnKind::Instances, ..Self::default() }
    }

    /// Number in a mask where the result shows no part of the image.
    pub(crate) fn fill(&self) -> f64 {
        self.fill.unwrap_or(255.0)
    }

    /// Number that is added to x and y of points before they move.
    pub(crate) fn offset(&self) -> f64 {
        self.offset.unwrap_or(0.0)
    }

    /// The field, with a path into its value.
    ///
    /// # Errors
    /// A message if the path is invalid.
    pub(crate) fn field_path(&self) -> Result<FieldPath, String> {
        match &self.field {
            Some(field) => field.parse(),
            // Without `field`, the name of the field is the name of the column. It is no path.
            None => Ok(FieldPath::whole(&self.name)),
        }
    }

    /// Format of the column's cells. `mask` is the shape of a mask.
    pub(crate) fn cells(&self, mask: &[usize]) -> CellFormat {
        let (element, dims, max_len) = match self.kind {
            ColumnKind::Text | ColumnKind::Texts | ColumnKind::Bytes => {
                (ElementType::U8, Vec::new(), TEXT_LEN)
            }
            ColumnKind::List | ColumnKind::Array => {
                (self.dtype.unwrap_or(ElementType::F32), self.shape.clone(), LIST_LEN)
            }
            ColumnKind::Mask => {
                let default =
                    if self.one_hot.is_some() { ElementType::F32 } else { ElementType::U8 };
                (self.dtype.unwrap_or(default), mask.to_vec(), 1)
            }
            ColumnKind::Points if self.shape.is_empty() => (ElementType::F32, vec![2], LIST_LEN),
            ColumnKind::Points => (ElementType::F32, self.shape.clone(), LIST_LEN),
            ColumnKind::Boxes => (ElementType::F32, vec![4], LIST_LEN),
            ColumnKind::Runs => (ElementType::I64, Vec::new(), RUNS),
            ColumnKind::Instances => (ElementType::U8, mask.to_vec(), INSTANCES),
        };
        CellFormat {
            kind: self.kind.cells(),
            element,
            dims,
            max_len: self.max_len.unwrap_or(max_len),
            max_texts: match self.kind {
                ColumnKind::Texts => self.max_texts.unwrap_or(TEXTS),
                ColumnKind::Runs => self.max_objects.unwrap_or(OBJECTS),
                _ => 0,
            },
            pick: self.pick,
            too_long: self.too_long,
            // Checked settings have a valid path.
            field: self.field_path().unwrap_or_else(|_| FieldPath::whole(&self.name)),
        }
    }
}
