//! DLPack: a batch as a tensor of another library, without a copy.
//!
//! Structures, constants and rules are those of dlpack.h, version 1.1
//! (<https://github.com/dmlc/dlpack>), and of the Python array API standard's `__dlpack__`
//! (<https://data-apis.org/array-api>). Each of the following points has a test in this file or in
//! `tests/gpu/handoff/`:
//!
//! * The exported tensor owns the batch. The tensor's deleter drops the batch. The deleter may be
//!   called on any thread, also after the loader is dropped. It does not change the CUDA context of
//!   that thread.
//! * [`Exported::into_raw`] returns the pointer for a capsule named `dltensor_versioned`, or
//!   `dltensor` for the legacy form. The capsule's owner calls the deleter once. Dropping an
//!   [`Exported`] without calling `into_raw` also calls the deleter.
//! * Images have their axes in the order of the layout: (batch, channel, row, column) or (batch,
//!   row, column, channel). Other columns have those of `Column::shape`. Strides count elements.
//!   The data begins at a multiple of 256 bytes.
//! * On the device, the consumer's stream waits for the batch. The host does not wait, except for
//!   [`ConsumerStream::Unnamed`]. The slot is filled again only after the work has ended that the
//!   consumer's stream contains when the deleter is called. So a consumer may call the deleter as
//!   soon as its last kernel is enqueued. [`ConsumerStream::from_number`] converts a stream number
//!   from Python.
//! * The consumer's stream must exist until the deleter returns, because the deleter records an
//!   event in this stream. An event in a default stream would not suffice, because default streams
//!   do not wait for non-blocking streams. [`ConsumerStream::On`] keeps a stream of cudarc alive.
//!   PyTorch's streams live as long as the process. A consumer that destroys its streams earlier
//!   (CuPy) passes -1 and orders its work itself.
//! * A shared batch ([`Arc`]) may be exported any number of times, and is marked read-only each
//!   time. [`split_columns`] makes tensors that may be written, one of each column. The legacy
//!   structure has no such mark, so exporting a shared batch in the legacy form is an error.
//!
//! A Python object implements `__dlpack__(max_version=...)` with [`export`] if the major version in
//! `max_version` is 1 or higher, and with [`export_legacy`] if `max_version` is absent. It
//! implements `__dlpack_device__` with `(type, id)` of [`DLDevice`].

#![allow(unsafe_code)]

use std::ffi::c_void;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::gpu::Stream;
use crate::loader::Batch;
use crate::plan::ColumnRole;

pub use exported::{Exported, Managed};
use part::{Part, Piece};
pub use structures::{
    CPU, CUDA, DLDataType, DLDevice, DLPackVersion, DLTensor, READ_ONLY, VERSION,
};

mod exported;
mod part;
mod structures;

/// Tensor with its owner, in the legacy form that DLPack had before version 1.
#[derive(Debug)]
#[repr(C)]
pub struct DLManagedTensor {
    /// The tensor.
    pub dl_tensor: DLTensor,
    /// Pointer to the owner of the memory. Only the deleter uses it.
    pub manager_ctx: *mut c_void,
    /// Frees the tensor and this structure.
    pub deleter: Option<unsafe extern "C" fn(*mut DLManagedTensor)>,
}

/// Tensor with its owner, in the versioned form that DLPack has since version 1.
#[derive(Debug)]
#[repr(C)]
pub struct DLManagedTensorVersioned {
    /// [`VERSION`].
    pub version: DLPackVersion,
    /// Pointer to the owner of the memory. Only the deleter uses it.
    pub manager_ctx: *mut c_void,
    /// Frees the tensor and this structure.
    pub deleter: Option<unsafe extern "C" fn(*mut DLManagedTensorVersioned)>,
    /// [`READ_ONLY`] or 0.
    pub flags: u64,
    /// The tensor.
    pub dl_tensor: DLTensor,
}

/// Stream on which the consumer will use a batch in device memory. Ignored for a batch in host
/// memory.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum ConsumerStream {
    /// The legacy default stream, which the standard assumes if no stream is given.
    #[default]
    Legacy,
    /// The default stream of the thread that exports the batch. The slot is filled again only after
    /// the work in the default streams of all threads has ended, because another thread may call
    /// the deleter.
    PerThread,
    /// This stream, which the consumer names explicitly.
    On(Arc<Stream>),
    /// No synchronization: the consumer orders its work itself. The consumer's work must run after
    /// all work that [`Batch::stream`] contains at the export, and before all work that
    /// [`Batch::stream`] receives after the deleter is called.
    Unsynchronized,
    /// The consumer's streams are unknown and not ordered with the default streams (TensorFlow).
    /// The export blocks the host until the batch is filled. The slot is filled again only after
    /// all work has ended that the GPU's primary context contains when the deleter is called.
    /// Before CUDA 12.5, the deleter blocks until that work has ended. If the deleter is called
    /// while a stream of the context is captured into a CUDA graph, the deleter ends the loader
    /// with an error, and the driver invalidates the capture.
    Unnamed,
}

impl ConsumerStream {
    /// Converts `number` of `__dlpack__(stream=number)` for this batch. `None` and 1 mean the
    /// legacy default stream, 2 the thread's default stream, -1 no synchronization, and numbers
    /// above 2 are stream handles.
    ///
    /// # Errors
    /// [`Error::Config`] for 0, which the standard forbids because it could mean either default
    /// stream, and for numbers below -1.
    ///
    /// # Safety
    /// If `number` is a handle, its stream must belong to the primary context of the batch's GPU,
    /// and must exist until the deleter has returned.
    pub unsafe fn from_number(batch: &Batch, number: Option<i64>) -> Result<Self> {
        let Some(ours) = batch.stream() else { return Ok(Self::Legacy) };
        match number {
            None | Some(1) => Ok(Self::Legacy),
            Some(2) => Ok(Self::PerThread),
            Some(-1) => Ok(Self::Unsynchronized),
            Some(handle) if handle > 2 => {
                // SAFETY: the caller guarantees that the handle is valid.
                let stream = unsafe { Stream::borrowed(ours.device(), handle as *mut c_void) };
                Ok(Self::On(Arc::new(stream)))
            }
            Some(other) => {
                let problem = format!(
                    "is {other}, which is not a stream; pass 1 for the legacy default stream, 2 \
                     for the per-thread default stream, -1 for no synchronization, or the handle \
                     of a stream"
                );
                Err(Error::config("stream", problem))
            }
        }
    }

    fn let_in(&self, batch: &Batch) -> Result<()> {
        let Some(ours) = batch.stream() else { return Ok(()) };
        match self {
            Self::Legacy => batch.wait_in(&Arc::new(Stream::legacy_default(ours.device()))),
            Self::PerThread => batch.wait_in(&Arc::new(Stream::per_thread_default(ours.device()))),
            Self::On(stream) => batch.wait_in(stream),
            Self::Unsynchronized => Ok(()),
            Self::Unnamed => batch.on_unnamed_streams(),
        }
    }
}

/// Exports the images of a batch as a DLPack tensor. The consumer may write to an unshared batch. A
/// shared batch is exported as read-only.
///
/// # Errors
/// [`Error::Config`] if the stream belongs to another GPU. [`Error::Device`] if a driver call
/// fails.
pub fn export(
    batch: impl Into<Arc<Batch>>,
    stream: &ConsumerStream,
) -> Result<Exported<DLManagedTensorVersioned>> {
    export_as(batch.into(), stream, (IMAGE, Piece::Values))
}

/// Exports the column of a batch with this name ([`Batch::column`]) as a DLPack tensor. Share the
/// batch ([`Arc`]) to export several columns. A column that is in both memories is exported from
/// device memory. The stream waits only for a column in device memory.
///
/// # Errors
/// Errors of [`export`], and [`Error::Config`] if the batch has no such column.
pub fn export_column(
    batch: impl Into<Arc<Batch>>,
    name: &str,
    stream: &ConsumerStream,
) -> Result<Exported<DLManagedTensorVersioned>> {
    export_as(batch.into(), stream, (name, Piece::Values))
}

/// Exports the [offsets](crate::loader::Column::offsets) of a ragged column as a DLPack tensor of
/// 64-bit integers, `[samples + 1]`, in the memory in which [`export_column`] exports the values.
/// The offsets of a column of several texts count texts.
///
/// # Errors
/// Errors of [`export_column`], and [`Error::Config`] if the column is dense.
pub fn export_offsets(
    batch: impl Into<Arc<Batch>>,
    name: &str,
    stream: &ConsumerStream,
) -> Result<Exported<DLManagedTensorVersioned>> {
    export_as(batch.into(), stream, (name, Piece::Offsets))
}

/// Exports the [offsets of texts or lists](crate::loader::Column::text_offsets) of a column with
/// several ones per sample as a DLPack tensor of 64-bit integers, `[texts + 1]`, in the memory in
/// which [`export_column`] exports the values.
///
/// # Errors
/// Errors of [`export_column`], and [`Error::Config`] if the column is of another kind.
pub fn export_text_offsets(
    batch: impl Into<Arc<Batch>>,
    name: &str,
    stream: &ConsumerStream,
) -> Result<Exported<DLManagedTensorVersioned>> {
    export_as(batch.into(), stream, (name, Piece::TextOffsets))
}

/// Splits a batch into columns that are exported one by one. A column with a copy in device memory
/// is exported from there. Of a ragged column, the values are exported, and the offsets by
/// [`OwnedColumn::take_offsets`] and [`OwnedColumn::take_text_offsets`]. Consumers may write the
/// columns, because no two of them have memory in common. The batch is dropped after the last
/// column and the last tensor.
///
/// # Errors
/// [`Error::Config`] if the batch has no such column, or if a name occurs twice.
pub fn split_columns(mut batch: Batch, names: &[&str]) -> Result<Vec<OwnedColumn>> {
    let mut parts = Vec::new();
    for (number, &name) in names.iter().enumerate() {
        if names[..number].contains(&name) {
            return Err(Error::config("column", format!("{name:?} is given twice; name it once")));
        }
        let part = Part::new(&mut batch, (name, Piece::Values))?;
        let column = batch.column(name);
        let has = [
            (Piece::Offsets, column.is_some_and(|it| it.offsets().is_some())),
            (Piece::TextOffsets, column.is_some_and(|it| it.text_offsets().is_some())),
        ];
        let mut others = Vec::new();
        for (piece, _) in has.into_iter().filter(|it| it.1) {
            others.push((piece, Part::new(&mut batch, (name, piece))?));
        }
        parts.push((name.to_string(), part, others));
    }
    let batch = Arc::new(batch);
    let owned = parts.into_iter().map(|(name, part, others)| {
        let batch = batch.clone();
        OwnedColumn { name, piece: Piece::Values, part, others, batch, is_lent: false }
    });
    Ok(owned.collect())
}

/// Column of a batch, from [`split_columns`].
pub struct OwnedColumn {
    name: String,
    piece: Piece,
    part: Part,
    /// Offsets of a ragged column, until they are taken.
    others: Vec<(Piece, Part)>,
    /// Shared with other columns, which have other memory, and with lent ones.
    batch: Arc<Batch>,
    /// Whether another column has the same memory.
    is_lent: bool,
}

// SAFETY: the pointer of the part refers to memory of the batch, which may be sent. Only the
// consumers of exported tensors write to this memory.
unsafe impl Send for OwnedColumn {}

impl OwnedColumn {
    /// Name of the column.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether these are the offsets of the column ([`take_offsets`](Self::take_offsets)).
    pub fn is_offsets(&self) -> bool {
        self.piece == Piece::Offsets
    }

    /// Whether these are the offsets of the texts or lists of the column
    /// ([`take_text_offsets`](Self::take_text_offsets)).
    pub fn is_text_offsets(&self) -> bool {
        self.piece == Piece::TextOffsets
    }

    /// Takes the offsets of a ragged column, which are then exported like a column of 64-bit
    /// integers, `[samples + 1]`. `None` if the column is dense, or if they were taken before.
    pub fn take_offsets(&mut self) -> Option<Self> {
        self.take(Piece::Offsets)
    }

    /// Takes the offsets of the texts or lists of a column with several ones per sample, which are
    /// then exported like a column of 64-bit integers, `[texts + 1]`. `None` if the column is of
    /// another kind, or if they were taken before.
    pub fn take_text_offsets(&mut self) -> Option<Self> {
        self.take(Piece::TextOffsets)
    }

    fn take(&mut self, piece: Piece) -> Option<Self> {
        let place = self.others.iter().position(|it| it.0 == piece)?;
        let (_, part) = self.others.swap_remove(place);
        let (name, batch) = (self.name.clone(), self.batch.clone());
        Some(Self { name, piece, part, others: Vec::new(), batch, is_lent: self.is_lent })
    }

    /// The same column without its offsets, for a consumer that only reads it, such as to copy it.
    /// It may be lent any number of times, and can still be exported. The versioned form is marked
    /// read-only. The legacy form has no such mark.
    pub fn lend(&self) -> Self {
        Self {
            name: self.name.clone(),
            piece: self.piece,
            part: self.part.clone(),
            others: Vec::new(),
            batch: self.batch.clone(),
            is_lent: true,
        }
    }

    /// Converts `number` of `__dlpack__(stream=number)`, as [`ConsumerStream::from_number`] does.
    ///
    /// # Errors
    /// Errors of [`ConsumerStream::from_number`].
    ///
    /// # Safety
    /// The rules of [`ConsumerStream::from_number`].
    pub unsafe fn stream(&self, number: Option<i64>) -> Result<ConsumerStream> {
        // SAFETY: the caller guarantees the same.
        unsafe { ConsumerStream::from_number(&self.batch, number) }
    }

    /// Address of the values in the memory in which the column is exported.
    pub fn address(&self) -> u64 {
        self.part.data.addr() as u64
    }

    /// Copies the column to host memory. Waits for the device if the column is only in device
    /// memory.
    ///
    /// # Errors
    /// [`Error::Device`] if the driver fails.
    pub fn to_host(&self) -> Result<Vec<u8>> {
        let Some(column) = self.batch.column(&self.name) else { return Ok(Vec::new()) };
        if self.piece == Piece::Values {
            return column.to_host();
        }
        let offsets = self.piece.offsets(column);
        Ok(offsets.map_or(Vec::new(), |it| bytemuck::cast_slice(it).to_vec()))
    }

    /// Exports the column as a tensor that a consumer may write, unless it is
    /// [lent](Self::lend). If it is in device memory, `stream` waits for the batch.
    ///
    /// # Errors
    /// [`Error::Config`] if the stream belongs to another GPU. [`Error::Device`] if a driver call
    /// fails.
    pub fn export<M: Managed>(self, stream: &ConsumerStream) -> Result<Exported<M>> {
        let Self { part, batch, is_lent, .. } = self;
        part.export(batch, stream, is_lent)
    }
}

/// Exports the soft targets of a batch as a DLPack tensor of f32, `[samples, classes]`. Share the
/// batch ([`Arc`]) to export both images and targets.
///
/// # Errors
/// Errors of [`export`], and [`Error::Config`] if the batch has no soft targets.
pub fn export_soft_targets(
    batch: impl Into<Arc<Batch>>,
    stream: &ConsumerStream,
) -> Result<Exported<DLManagedTensorVersioned>> {
    let batch = batch.into();
    if batch.classes() == 0 {
        let problem =
            "is not set, so the batch has no soft targets; set it to the number of classes";
        return Err(Error::config("targets.classes", problem));
    }
    export_as(batch, stream, (ColumnRole::Target.name(), Piece::Values))
}

/// Exports a batch as a DLPack tensor in the form before version 1, for consumers that support only
/// that form.
///
/// # Errors
/// Errors of [`export`], and [`Error::Config`] if the batch is shared, because this form has no
/// read-only mark.
pub fn export_legacy(
    batch: impl Into<Arc<Batch>>,
    stream: &ConsumerStream,
) -> Result<Exported<DLManagedTensor>> {
    let mut batch = batch.into();
    if Arc::get_mut(&mut batch).is_none() {
        let problem = "is shared and so read-only, which the legacy form does not support: \
                       export it versioned, or drop the other references first";
        return Err(Error::config("batch", problem));
    }
    export_as(batch, stream, (IMAGE, Piece::Values))
}

/// Name of the column of the images.
const IMAGE: &str = ColumnRole::Image.name();

fn export_as<M: Managed>(
    mut batch: Arc<Batch>,
    stream: &ConsumerStream,
    of: (&str, Piece),
) -> Result<Exported<M>> {
    let (part, read_only) = match Arc::get_mut(&mut batch) {
        Some(batch) => (Part::new(batch, of)?, false),
        // Other owners of a shared batch may read its memory through `Column::bytes`, so no
        // writable pointer to that memory may be exported.
        None => (Part::shared(&batch, of)?, true),
    };
    part.export(batch, stream, read_only)
}

#[cfg(test)]
mod tests;
