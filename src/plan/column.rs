//! Columns: the named parts of a batch, and the memory that they need.

use super::{ColumnKind, ColumnSettings};
use crate::field::{CellKind, TEXT_LEN_BYTES};
use crate::footprint::{Footprint, Memory};
use crate::tensor::{ElementType, TensorShape};

/// Name of the footprint's row for the images of batches.
pub const OUTPUT_SLOTS: &str = "output slots";

/// Name of the footprint's rows for the copies of columns on the device.
pub const COLUMN_COPIES: &str = "column copies";

/// Alignment of every buffer in page-locked and device memory, in bytes. It must equal that of the
/// pools, which the plan does not import.
const ALIGN_BYTES: usize = 256;

/// Memory per sample of a column of lists besides the values, in bytes: an offset, and the length
/// while the slot is filled, with the allocation that holds it.
const OFFSET_BYTES: u64 = 40;

/// A named part of a batch. All columns have one entry per sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnPlan {
    /// Name, for [`Batch::column`](crate::loader::Batch::column).
    pub name: String,
    /// How the column is made.
    pub role: ColumnRole,
    /// Element type.
    pub element: ElementType,
    /// Lengths of the axes of one sample, or of one entry of a list, slowest first. Empty if a
    /// sample or an entry is a single element.
    pub dims: Vec<usize>,
    /// Maximum number of entries of one sample. `None` if the column is dense, so that all samples
    /// have the same shape.
    pub max_len: Option<usize>,
    /// Maximum number of texts or lists of one sample. 0 unless a sample has several texts or
    /// lists.
    pub max_texts: usize,
    /// Structure of the values.
    pub kind: CellKind,
    /// Memory that holds the column.
    pub memory: Memory,
    /// Number of columns before this one in the same memory.
    pub slot: usize,
    /// Whether the device has a copy of the values, and of the offsets of lists. Labels, and views
    /// and columns of numbers in host memory, have one, if batches are on a device.
    pub copied: bool,
}

/// How a column is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ColumnRole {
    /// The chain's output for each image.
    Image,
    /// The label of each sample.
    Label,
    /// The soft target of each sample.
    Target,
    /// The view with this number of [`Plan::views`](super::Plan::views).
    View(usize),
    /// A field of each sample: the entry of [`Settings::columns`](super::Settings::columns) with
    /// this number.
    Field(usize),
}

impl ColumnRole {
    /// Name of the column, if the user does not name it.
    pub const fn name(self) -> &'static str {
        match self {
            ColumnRole::Image => "image",
            ColumnRole::Label => "label",
            ColumnRole::Target => "target",
            ColumnRole::View(_) | ColumnRole::Field(_) => "",
        }
    }

    /// Name of the column's row in the footprint.
    const fn row(self) -> &'static str {
        match self {
            ColumnRole::Image => OUTPUT_SLOTS,
            ColumnRole::Label => "labels",
            ColumnRole::Target => "soft targets",
            ColumnRole::View(_) => "views",
            ColumnRole::Field(_) => "columns",
        }
    }
}

impl ColumnPlan {
    /// Plans the columns of a batch: images, labels, soft targets if there are `classes`, `views`
    /// with their element type, the shape of a sample and their memory, and the columns that are
    /// made from `fields`, each with the shape of its masks. Images, soft targets and masks are in
    /// `memory`, and the other columns are in host memory. If `memory` is on the device, labels,
    /// views and columns of numbers in host memory have a copy there.
    pub(super) fn all(
        shape: TensorShape,
        classes: Option<u32>,
        views: impl Iterator<Item = (String, ElementType, Vec<usize>, Memory)>,
        fields: impl Iterator<Item = (ColumnSettings, Vec<usize>)>,
        memory: Memory,
    ) -> Vec<ColumnPlan> {
        let mut columns = Vec::new();
        let on_device = memory == Memory::Device;
        let mut add = |role: ColumnRole, element, dims: &[usize], memory| {
            let (name, dims) = (role.name().into(), dims.to_vec());
            let (max_len, kind) = (None, CellKind::Array);
            let (slot, copied) = (0, role == ColumnRole::Label && on_device);
            columns.push(Self {
                name,
                role,
                element,
                dims,
                max_len,
                max_texts: 0,
                kind,
                memory,
                slot,
                copied,
            });
        };
        add(ColumnRole::Image, shape.dtype.into(), &shape.dims()[1..], memory);
        add(ColumnRole::Label, ElementType::I64, &[], Memory::Host);
        if let Some(classes) = classes {
            add(ColumnRole::Target, ElementType::F32, &[classes as usize], memory);
        }
        for (number, (name, element, dims, place)) in views.enumerate() {
            columns.push(Self {
                name,
                role: ColumnRole::View(number),
                element,
                dims,
                max_len: None,
                max_texts: 0,
                kind: CellKind::Array,
                memory: place,
                slot: 0,
                copied: memory == Memory::Device && place == Memory::Host,
            });
        }
        for (number, (column, mask)) in fields.enumerate() {
            let format = column.cells(&mask);
            let is_numbers =
                matches!(format.kind, CellKind::Array | CellKind::List | CellKind::Lists);
            let (memory, copied) = match column.kind {
                ColumnKind::Mask => (memory, false),
                _ => (Memory::Host, is_numbers && memory == Memory::Device),
            };
            columns.push(Self {
                name: column.name,
                role: ColumnRole::Field(number),
                element: format.element,
                max_len: format.kind.is_ragged().then_some(format.max_len),
                max_texts: format.max_texts,
                kind: format.kind,
                dims: format.dims,
                memory,
                slot: 0,
                copied,
            });
        }
        Self::number(columns)
    }

    /// Plans of the same columns in host memory.
    pub fn on_host(columns: &[Self]) -> Vec<Self> {
        let on_host = |it: &Self| Self { memory: Memory::Host, copied: false, ..it.clone() };
        Self::number(columns.iter().map(on_host).collect())
    }

    /// Numbers the columns in each kind of memory.
    fn number(mut columns: Vec<Self>) -> Vec<Self> {
        for at in 0..columns.len() {
            let memory = columns[at].memory;
            columns[at].slot = columns[..at].iter().filter(|it| it.memory == memory).count();
        }
        columns
    }

    /// Name in [`Batch::column`](crate::loader::Batch::column).
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Name of the row in the footprint.
    pub fn row(&self) -> &'static str {
        self.role.row()
    }

    /// Size of one sample of a dense column, or of one entry of a list, in bytes. This size and
    /// those below saturate at `usize::MAX`.
    pub fn entry_bytes(&self) -> usize {
        self.dims.iter().fold(self.element.bytes(), |bytes, &len| bytes.saturating_mul(len))
    }

    /// Maximum size of one sample in bytes, with the lengths of its texts.
    pub fn sample_bytes(&self) -> usize {
        let lens = self.max_texts.saturating_mul(TEXT_LEN_BYTES);
        self.entry_bytes().saturating_mul(self.max_len.unwrap_or(1)).saturating_add(lens)
    }

    /// Number of offsets of texts or lists in a batch of `samples` samples. `None` unless a sample
    /// has several texts or lists.
    pub fn text_offsets(&self, samples: usize) -> Option<usize> {
        let most = samples.saturating_mul(self.max_texts).saturating_add(1);
        matches!(self.kind, CellKind::Texts | CellKind::Lists).then_some(most)
    }

    /// Maximum size of the values in bytes, in a batch of `samples` samples.
    pub fn bytes(&self, samples: usize) -> usize {
        self.sample_bytes().saturating_mul(samples)
    }

    /// Size of the column's buffer on the device, in bytes. It is at least 1, so that a column
    /// without values, such as the images of a loader that has only views, has an address.
    pub fn buffer_bytes(&self, samples: usize) -> usize {
        self.bytes(samples).max(1)
    }

    /// Memory for the column in a slot of `samples` samples, in bytes.
    pub(super) fn slot_bytes(&self, samples: usize) -> u64 {
        let offsets = match self.max_len {
            Some(_) => (samples as u64).saturating_add(1).saturating_mul(OFFSET_BYTES),
            None => 0,
        };
        let texts = self.text_offsets(samples).unwrap_or(0);
        let offsets = offsets.saturating_add((texts as u64).saturating_mul(8));
        match self.memory {
            Memory::Host => (self.bytes(samples) as u64).saturating_add(offsets),
            Memory::Pinned | Memory::Device => aligned(self.buffer_bytes(samples)) as u64,
        }
    }

    /// Sizes of the copy on the device in bytes, in a batch of `samples` samples: the values, and
    /// the offsets of lists, and the offsets of several lists of a sample. `None` without a copy.
    pub fn copy_bytes(&self, samples: usize) -> Option<[usize; 3]> {
        let offsets = self.max_len.map_or(0, |_| samples.saturating_add(1));
        let lists = self.text_offsets(samples).unwrap_or(0);
        let [offsets, lists] = [offsets, lists].map(|it| it.saturating_mul(size_of::<i64>()));
        self.copied.then(|| [self.bytes(samples), offsets, lists].map(aligned))
    }

    /// Adds the rows of all columns to a footprint, for `slots` slots of `samples` samples. `note`
    /// returns the note of a column's row.
    pub fn add_rows(
        columns: &[Self],
        to: &mut Footprint,
        (samples, slots): (usize, usize),
        note: impl Fn(&Self) -> String,
    ) {
        for column in columns {
            let bytes = column.slot_bytes(samples);
            if bytes == 0 {
                continue;
            }
            to.add(column.memory, column.row(), bytes, slots as u64, note(column));
        }
        let bytes = Self::copies_bytes(columns, samples);
        if bytes > 0 {
            let note = "columns of numbers, columns of numbers, for the copy on the device";
            for memory in [Memory::Pinned, Memory::Device] {
                to.add(memory, COLUMN_COPIES, bytes as u64, slots as u64, note);
            }
        }
    }

    /// Size of the copies of all columns on the device in bytes, in a batch of `samples` samples.
    pub fn copies_bytes(columns: &[Self], samples: usize) -> usize {
        let sizes = columns.iter().filter_map(|column| column.copy_bytes(samples)).flatten();
        sizes.fold(0, usize::saturating_add)
    }

    /// Shape and element type of a batch of `samples` samples, such as `64x1000 f32`.
    pub(super) fn note(&self, samples: usize) -> String {
        let dims = [&[samples], &self.dims[..]].concat();
        let mut dims: Vec<_> = dims.iter().map(ToString::to_string).collect();
        if let Some(most) = self.max_len {
            dims.insert(1, format!("(0 to {most})"));
        }
        if self.max_texts > 0 {
            let (dims, most) = (dims.join("x"), self.max_texts);
            return format!("{dims} {}, 0 to {most} {}", self.element, self.kind.name());
        }
        format!("{} {}", dims.join("x"), self.element)
    }
}

/// Size of a buffer in page-locked or device memory, in bytes.
pub(super) const fn aligned(bytes: usize) -> usize {
    bytes.next_multiple_of(ALIGN_BYTES)
}

#[cfg(test)]
mod tests {
    use std::iter::empty;

    use super::*;
    use crate::tensor::{DType, Layout};

    #[test]
    fn columns_have_shapes_sizes_and_a_place_in_their_memory() {
        let layout = Layout::Nhwc;
        let shape =
            TensorShape { batch: 4, width: 5, height: 6, dtype: DType::F16, layout, channels: 3 };
        for memory in [Memory::Host, Memory::Device] {
            let columns = ColumnPlan::all(shape, None, empty(), empty(), memory);
            let [images, labels] = &columns[..] else { panic!("{columns:?}") };
            assert_eq!((images.note(4), images.bytes(4)), ("4x6x5x3 f16".into(), shape.bytes()));
            assert_eq!((labels.note(4), labels.bytes(4)), ("4 i64".into(), 32));
            assert_eq!((images.memory, labels.memory), (memory, Memory::Host));
            assert_eq!((images.slot, labels.slot), (0, usize::from(memory == Memory::Host)));
        }
    }

    #[test]
    fn sizes_saturate() {
        let shape = TensorShape {
            batch: usize::MAX,
            width: u32::MAX,
            height: u32::MAX,
            dtype: DType::F32,
            layout: Layout::Nchw,
            channels: 3,
        };
        let columns = ColumnPlan::all(shape, None, empty(), empty(), Memory::Host);
        assert_eq!(columns[0].bytes(usize::MAX), usize::MAX);
    }
}
