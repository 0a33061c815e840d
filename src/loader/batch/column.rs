//! Columns of a batch.

use super::{Batch, BatchMemory};
use crate::error::Result;
use crate::footprint::Memory;
use crate::gpu::{self, DeviceBuffer};
use crate::loader::slot::column::HostColumns;
use crate::plan::{CellKind, ColumnPlan, ColumnRole};
use crate::tensor::{Element, ElementType};

/// Named part of a batch, such as its images or its labels, in host or device memory.
///
/// A column is dense or ragged. The values of a dense column are an array of shape `[samples, …]`,
/// row-major without padding. In a ragged column, a sample has a list of entries: the values are
/// the entries of all samples, one after another, of shape `[entries, …]`.
/// [`offsets`](Self::offsets) states where the entries of each sample begin, as Arrow stores lists.
/// Texts and bytes are lists of bytes. In a column of several texts per sample, the values are the
/// bytes of all texts, and the offsets count texts, whose bytes begin at the
/// [`text_offsets`](Self::text_offsets). In a column of several lists per sample, the values are
/// the numbers of all lists, and the offsets count lists.
#[derive(Clone, Copy)]
pub struct Column<'batch> {
    batch: &'batch Batch,
    plan: &'batch ColumnPlan,
}

impl Batch {
    /// All columns: `image`, `label`, `target` if
    /// [`targets.classes`](crate::plan::TargetSettings::classes) is set, the views, and the columns
    /// of [`Settings::columns`](crate::plan::Settings::columns).
    pub fn columns(&self) -> impl ExactSizeIterator<Item = Column<'_>> {
        self.columns.iter().map(|plan| Column { batch: self, plan })
    }

    /// The column with this name. `None` if there is none.
    pub fn column(&self, name: &str) -> Option<Column<'_>> {
        self.columns().find(|column| column.name() == name)
    }

    /// The images: the chain's outputs, in the shape of [`shape`](Self::shape).
    pub fn images(&self) -> Column<'_> {
        self.column_at(0)
    }

    /// Elements of a column for writing, row-major. `None` if there is no such column, or if it is
    /// in device memory or has another element type.
    pub fn column_mut<T: Element>(&mut self, name: &str) -> Option<&mut [T]> {
        let element = self.column(name)?.element_type();
        self.column_bytes_mut(name).filter(|_| element == T::TYPE).map(bytemuck::cast_slice_mut)
    }

    /// All bytes of a column for writing. `None` if there is no such column or if it is in device
    /// memory.
    pub(crate) fn column_bytes_mut(&mut self, name: &str) -> Option<&mut [u8]> {
        let bytes = self.column(name)?.len_bytes();
        let plan = self.columns.iter().find(|plan| plan.name() == name)?;
        match &mut self.slot {
            BatchMemory::Host(slot) => Some(&mut slot.columns_mut().bytes_mut(plan.slot)[..bytes]),
            BatchMemory::Device(slot) if plan.memory == Memory::Host => {
                Some(&mut slot.host_mut().bytes_mut(plan.slot)[..bytes])
            }
            BatchMemory::Device(_) => None,
        }
    }

    /// Offsets of a ragged column in host memory, for writing. `None` if there is no such column,
    /// or if it is dense.
    pub(crate) fn column_offsets_mut(&mut self, name: &str) -> Option<&mut [i64]> {
        let plan =
            self.columns.iter().find(|plan| plan.name() == name && plan.max_len.is_some())?;
        match &mut self.slot {
            BatchMemory::Host(slot) => slot.columns_mut().offsets_mut(plan.slot),
            BatchMemory::Device(slot) => slot.host_mut().offsets_mut(plan.slot),
        }
    }

    /// Offsets of the texts or lists of a column with several ones per sample, for writing. `None`
    /// if there is no such column, or if it is of another kind.
    pub(crate) fn column_text_offsets_mut(&mut self, name: &str) -> Option<&mut [i64]> {
        let plan = self.columns.iter().find(|plan| plan.name() == name && plan.max_texts > 0)?;
        match &mut self.slot {
            BatchMemory::Host(slot) => slot.columns_mut().text_offsets_mut(plan.slot),
            BatchMemory::Device(slot) => slot.host_mut().text_offsets_mut(plan.slot),
        }
    }

    /// The column with this number, in the order of [`columns`](Self::columns).
    pub(super) fn column_at(&self, number: usize) -> Column<'_> {
        Column { batch: self, plan: &self.columns[number] }
    }

    /// The column with this role, if there is one.
    pub(super) fn column_of(&self, role: ColumnRole) -> Option<Column<'_>> {
        let plan = self.columns.iter().find(|plan| plan.role == role)?;
        Some(Column { batch: self, plan })
    }
}

impl<'batch> Column<'batch> {
    /// The batch.
    pub(crate) fn batch(&self) -> &'batch Batch {
        self.batch
    }

    /// Name of the column, for [`Batch::column`].
    pub fn name(&self) -> &'batch str {
        self.plan.name()
    }

    /// Element type.
    pub fn element_type(&self) -> ElementType {
        self.plan.element
    }

    /// Lengths of the axes of the values, slowest first. The first axis is the number of samples,
    /// or the number of entries of all samples if the column is ragged. The entries of texts are
    /// bytes.
    pub fn shape(&self) -> Vec<usize> {
        [&[self.len_entries()], &self.plan.dims[..]].concat()
    }

    /// Size of the values in bytes.
    pub fn len_bytes(&self) -> usize {
        self.plan.entry_bytes() * self.len_entries()
    }

    /// Whether samples have lists of different lengths.
    pub fn is_ragged(&self) -> bool {
        self.plan.max_len.is_some()
    }

    /// Begins of the samples' entries in the values, and at the end the number of all entries:
    /// sample `i` has the entries `offsets[i]..offsets[i + 1]`. `None` if the column is dense.
    pub fn offsets(&self) -> Option<&'batch [i64]> {
        // The slot of a column in device memory numbers the columns of that memory.
        self.is_ragged().then(|| self.host_columns().offsets(self.plan.slot)).flatten()
    }

    /// In a column of several texts or lists per sample, the begins of the texts or lists in the
    /// values, in elements, and at the end the number of all elements. The
    /// [`offsets`](Self::offsets) count texts or lists. `None` for other columns.
    pub fn text_offsets(&self) -> Option<&'batch [i64]> {
        let is_texts = matches!(self.kind(), CellKind::Texts | CellKind::Lists);
        is_texts.then(|| self.host_columns().text_offsets(self.plan.slot)).flatten()
    }

    /// Elements of one sample, row-major. `None` if the column is in device memory, has another
    /// element type, or if there is no such sample.
    pub fn sample<T: Element>(&self, place: usize) -> Option<&'batch [T]> {
        let values = self.as_slice()?;
        let entry = self.plan.entry_bytes() / self.plan.element.bytes();
        let entries = match self.offsets() {
            Some(offsets) => {
                *offsets.get(place)? as usize..*offsets.get(place.checked_add(1)?)? as usize
            }
            None => place..place.checked_add(1)?,
        };
        let entries = match self.text_offsets() {
            Some(texts) => *texts.get(entries.start)? as usize..*texts.get(entries.end)? as usize,
            None => entries,
        };
        values.get(entries.start * entry..entries.end.checked_mul(entry)?)
    }

    /// Text of one sample. `None` if the column is not a column of texts, or if there is no such
    /// sample.
    pub fn text(&self, place: usize) -> Option<&'batch str> {
        let bytes = if self.kind() == CellKind::Text { self.sample(place) } else { None };
        bytes.and_then(|it| str::from_utf8(it).ok())
    }

    /// Texts of one sample, in a column of several texts per sample. `None` if the column is of
    /// another kind, or if there is no such sample.
    pub fn texts(
        &self,
        place: usize,
    ) -> Option<impl ExactSizeIterator<Item = &'batch str> + use<'batch>> {
        let (offsets, texts) = (self.offsets()?, self.text_offsets()?);
        let values = self.as_slice::<u8>()?;
        let texts = texts
            .get(*offsets.get(place)? as usize..=*offsets.get(place.checked_add(1)?)? as usize)?;
        // Workers write only whole characters.
        Some(texts.windows(2).map(move |it| {
            values
                .get(it[0] as usize..it[1] as usize)
                .map_or("", |it| str::from_utf8(it).unwrap_or(""))
        }))
    }

    /// Lists of one sample, in a column of several lists per sample, such as the run lengths of
    /// each object. `None` if the column is of another kind or element type, or if there is no such
    /// sample.
    pub fn lists<T: Element>(
        &self,
        place: usize,
    ) -> Option<impl ExactSizeIterator<Item = &'batch [T]> + use<'batch, T>> {
        let (offsets, lists) = (self.offsets()?, self.text_offsets()?);
        let values = self.as_slice::<T>().filter(|_| self.kind() == CellKind::Lists)?;
        let lists = lists
            .get(*offsets.get(place)? as usize..=*offsets.get(place.checked_add(1)?)? as usize)?;
        Some(lists.windows(2).map(|it| values.get(it[0] as usize..it[1] as usize).unwrap_or(&[])))
    }

    /// Structure of the values. Texts and bytes are lists of `u8`.
    pub fn kind(&self) -> CellKind {
        self.plan.kind
    }

    /// Number of entries of all samples.
    fn len_entries(&self) -> usize {
        let len = |offsets: &[i64], place| offsets.get(place).map_or(0, |&len| len as usize);
        match (self.offsets(), self.text_offsets()) {
            (Some(offsets), Some(texts)) => len(texts, len(offsets, self.batch.len())),
            (Some(offsets), None) => len(offsets, self.batch.len()),
            (None, _) => self.batch.len(),
        }
    }

    /// Bytes of the column in native byte order. `None` if the column is in device memory.
    pub fn bytes(&self) -> Option<&'batch [u8]> {
        let on_host = self.plan.memory == Memory::Host;
        on_host.then(|| &self.host_columns().bytes(self.plan.slot)[..self.len_bytes()])
    }

    fn host_columns(&self) -> &'batch HostColumns {
        match &self.batch.slot {
            BatchMemory::Host(slot) => slot.columns(),
            BatchMemory::Device(slot) => slot.host(),
        }
    }

    /// Elements of the column, row-major. `None` if the column is in device memory or has another
    /// element type.
    pub fn as_slice<T: Element>(&self) -> Option<&'batch [T]> {
        let same = self.element_type() == T::TYPE;
        // The cast cannot fail: a column is aligned to 256 bytes and has whole elements.
        self.bytes().filter(|_| same).map(bytemuck::cast_slice)
    }

    /// Address of the values in device memory. `None` if they are only in host memory. If batches
    /// are on a device, labels and columns of numbers that are made from fields are in both
    /// memories, and masks are only on the device. The rules of [`Batch::device_ptr`] apply to all
    /// columns of the batch.
    pub fn device_ptr(&self) -> Option<u64> {
        match self.copy() {
            Some((buffer, [values, ..])) => Some(buffer.address() + values as u64),
            None => self.buffer().map(DeviceBuffer::address),
        }
    }

    /// Address of the [`offsets`](Self::offsets) in device memory. `None` if the column is dense,
    /// or only in host memory.
    pub fn device_offsets_ptr(&self) -> Option<u64> {
        let (buffer, [_, offsets, _]) = self.copy().filter(|_| self.is_ragged())?;
        Some(buffer.address() + offsets as u64)
    }

    /// Address of the [`text_offsets`](Self::text_offsets) in device memory. `None` if the column
    /// does not have several lists per sample, or is only in host memory.
    pub fn device_text_offsets_ptr(&self) -> Option<u64> {
        let is_lists = self.kind() == CellKind::Lists;
        let (buffer, [.., lists]) = self.copy().filter(|_| is_lists)?;
        Some(buffer.address() + lists as u64)
    }

    /// Copies the column to host memory. Waits for the device if the column is in device memory.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) if the driver fails.
    pub fn to_host(&self) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.len_bytes()];
        self.copy_to(&mut bytes)?;
        Ok(bytes)
    }

    /// Copies the column to `to`, which has [`len_bytes`](Self::len_bytes) bytes.
    pub(super) fn copy_to(&self, to: &mut [u8]) -> Result<()> {
        if let Some(bytes) = self.bytes() {
            to.copy_from_slice(bytes);
        } else if let (Some(stream), Some(buffer)) = (self.batch.stream(), self.buffer()) {
            gpu::read_back(stream, buffer, 0, to)?;
        }
        Ok(())
    }

    fn buffer(&self) -> Option<&'batch DeviceBuffer> {
        match &self.batch.slot {
            BatchMemory::Device(slot) if self.plan.memory == Memory::Device => {
                Some(&slot.columns[self.plan.slot].buffer)
            }
            _ => None,
        }
    }

    /// The copy of a column in host memory: the buffer, and the positions of the values, the
    /// offsets and the offsets of several lists of a sample.
    fn copy(&self) -> Option<(&'batch DeviceBuffer, [usize; 3])> {
        match &self.batch.slot {
            BatchMemory::Device(slot) if self.plan.copied => slot.copies()?.of(self.plan.slot),
            _ => None,
        }
    }
}

impl std::fmt::Debug for Column<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:?} {}", self.name(), self.shape(), self.element_type())
    }
}
