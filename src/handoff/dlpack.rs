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
//! * The axes are in the order of the layout: (batch, channel, row, column) or (batch, row, column,
//!   channel). Strides count elements. The data begins at a multiple of 256 bytes.
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
//!   time. The legacy structure has no such mark, so exporting a shared batch in the legacy form is
//!   an error.
//!
//! A Python object implements `__dlpack__(max_version=...)` with [`export`] if the major version in
//! `max_version` is 1 or higher, and with [`export_legacy`] if `max_version` is absent. It
//! implements `__dlpack_device__` with `(type, id)` of [`DLDevice`].

#![allow(unsafe_code)]

use std::ffi::c_void;
use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::gpu::Stream;
use crate::loader::Batch;
use crate::plan::ColumnRole;
use crate::tensor::ElementType;

/// Version of the DLPack structures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct DLPackVersion {
    /// Major version. A reader that does not support this major version may only call the deleter.
    pub major: u32,
    /// Minor version. Minor versions add codes, but keep the layout.
    pub minor: u32,
}

/// Version of the exported structures.
pub const VERSION: DLPackVersion = DLPackVersion { major: 1, minor: 1 };

/// Flag of [`DLManagedTensorVersioned`]: the tensor must not be written.
pub const READ_ONLY: u64 = 1;

/// Device of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct DLDevice {
    /// [`CPU`] or [`CUDA`].
    pub device_type: i32,
    /// Number of the GPU, or 0 for the CPU.
    pub device_id: i32,
}

/// `kDLCPU`.
pub const CPU: i32 = 1;
/// `kDLCUDA`.
pub const CUDA: i32 = 2;

/// Element type of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct DLDataType {
    /// Type code: 0 is `kDLInt`, 1 is `kDLUInt`, 2 is `kDLFloat`, 4 is `kDLBfloat`.
    pub code: u8,
    /// Number of bits of an element.
    pub bits: u8,
    /// Number of elements of a vector: 1.
    pub lanes: u16,
}

impl From<ElementType> for DLDataType {
    fn from(element: ElementType) -> Self {
        let code = match element {
            ElementType::I64 => 0,
            ElementType::U8 => 1,
            ElementType::F16 | ElementType::F32 => 2,
            ElementType::BF16 => 4,
        };
        Self { code, bits: 8 * element.bytes() as u8, lanes: 1 }
    }
}

/// Address, shape and element type of a tensor. It does not own the memory.
#[derive(Debug)]
#[repr(C)]
pub struct DLTensor {
    /// First element, in host or device memory.
    pub data: *mut c_void,
    /// Device of the memory.
    pub device: DLDevice,
    /// Number of axes: 4 for images, 1 for labels, 2 for soft targets.
    pub ndim: i32,
    /// Element type.
    pub dtype: DLDataType,
    /// Extent of each axis.
    pub shape: *mut i64,
    /// Stride of each axis, in elements. Never null in exported tensors.
    pub strides: *mut i64,
    /// Number of bytes from `data` to the first element: 0.
    pub byte_offset: u64,
}

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
    export_as(batch.into(), stream, IMAGE)
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
    export_as(batch.into(), stream, name)
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
    export_as(batch, stream, ColumnRole::Target.name())
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
    export_as(batch, stream, IMAGE)
}

/// Exported tensor that no consumer has taken yet. Dropping it calls the deleter.
pub struct Exported<M: Managed> {
    managed: NonNull<M>,
}

// SAFETY: an `Exported` owns a `Holder`, whose batch may be sent and shared. The pointers in the
// structure refer to memory of that batch and of the holder.
unsafe impl<M: Managed> Send for Exported<M> {}

impl<M: Managed> Exported<M> {
    /// Returns the tensor.
    pub fn tensor(&self) -> &DLTensor {
        // SAFETY: `export_as` created the structure, which stays alive until `into_raw` or `drop`.
        unsafe { self.managed.as_ref() }.tensor()
    }

    /// Returns the whole DLPack structure.
    pub fn managed(&self) -> &M {
        // SAFETY: `export_as` created the structure, which stays alive until `into_raw` or `drop`.
        unsafe { self.managed.as_ref() }
    }

    /// Passes ownership of the structure to a consumer. The consumer calls `deleter` with this
    /// pointer once, on any thread, and does not use the structure or the data afterwards.
    #[must_use = "the batch leaks unless the deleter is called"]
    pub fn into_raw(self) -> *mut M {
        let raw = self.managed.as_ptr();
        std::mem::forget(self);
        raw
    }
}

impl<M: Managed> Drop for Exported<M> {
    fn drop(&mut self) {
        // SAFETY: `into_raw` has not passed the structure to a consumer, and nothing uses the
        // structure after this call.
        unsafe { delete(self.managed.as_ptr()) };
    }
}

impl<M: Managed> fmt::Debug for Exported<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Exported").field(self.tensor()).finish()
    }
}

/// One of the two DLPack structures: [`DLManagedTensor`] or [`DLManagedTensorVersioned`].
pub trait Managed: Sized + private::Sealed {
    /// Creates the structure for a tensor with this owner.
    fn new(tensor: DLTensor, owner: *mut c_void, read_only: bool) -> Self;
    /// The tensor.
    fn tensor(&self) -> &DLTensor;
    /// Pointer to the owner of the memory, for the deleter.
    fn owner(&self) -> *mut c_void;
}

mod private {
    pub trait Sealed {}
    impl Sealed for super::DLManagedTensor {}
    impl Sealed for super::DLManagedTensorVersioned {}
}

impl Managed for DLManagedTensor {
    fn new(dl_tensor: DLTensor, manager_ctx: *mut c_void, _: bool) -> Self {
        Self { dl_tensor, manager_ctx, deleter: Some(delete::<Self>) }
    }

    fn tensor(&self) -> &DLTensor {
        &self.dl_tensor
    }

    fn owner(&self) -> *mut c_void {
        self.manager_ctx
    }
}

impl Managed for DLManagedTensorVersioned {
    fn new(dl_tensor: DLTensor, manager_ctx: *mut c_void, read_only: bool) -> Self {
        let flags = if read_only { READ_ONLY } else { 0 };
        Self { version: VERSION, manager_ctx, deleter: Some(delete::<Self>), flags, dl_tensor }
    }

    fn tensor(&self) -> &DLTensor {
        &self.dl_tensor
    }

    fn owner(&self) -> *mut c_void {
        self.manager_ctx
    }
}

/// All data to which the pointers in an exported tensor refer, at a fixed address.
struct Holder<M> {
    /// The DLPack structure, which points to the other fields. `None` until the holder has its
    /// final address.
    managed: Option<M>,
    shape: Box<[i64]>,
    strides: Box<[i64]>,
    _batch: Arc<Batch>,
}

/// Name of the column of the images.
const IMAGE: &str = ColumnRole::Image.name();

/// Address of a column of a batch in host memory, and whether the column must not be written. Other
/// owners of a shared batch may read its memory through `Column::bytes`, so no writable pointer to
/// that memory may be exported.
fn host_data(batch: &mut Arc<Batch>, name: &str) -> (Option<*mut u8>, bool) {
    match Arc::get_mut(batch) {
        Some(batch) => (batch.column_bytes_mut(name).map(|bytes| bytes.as_mut_ptr()), false),
        None => {
            let bytes = batch.column(name).and_then(|column| column.bytes());
            (bytes.map(|bytes| bytes.as_ptr().cast_mut()), true)
        }
    }
}

fn export_as<M: Managed>(
    mut batch: Arc<Batch>,
    stream: &ConsumerStream,
    name: &str,
) -> Result<Exported<M>> {
    let Some(column) = batch.column(name) else {
        let names: Vec<_> = batch.columns().map(|column| column.name()).collect();
        let problem = format!("{name:?} is not a column of the batch, which has {names:?}");
        return Err(Error::config("column", problem));
    };
    let shape: Box<[i64]> = column.shape().into_iter().map(|len| len as i64).collect();
    let strides = (0..shape.len()).map(|axis| shape[axis + 1..].iter().product()).collect();
    let (dtype, on_device) = (column.element_type().into(), column.device_ptr());
    let device = match batch.stream().filter(|_| on_device.is_some()) {
        Some(stream) => DLDevice { device_type: CUDA, device_id: stream.device().ordinal() as i32 },
        None => DLDevice { device_type: CPU, device_id: 0 },
    };
    if on_device.is_some() {
        stream.let_in(&batch)?;
    }
    let (host, read_only) = host_data(&mut batch, name);
    let data = on_device.map(|address| address as *mut u8).or(host).unwrap_or(ptr::null_mut());
    let holder = Holder::<M> { managed: None, shape, strides, _batch: batch };
    let holder = Box::into_raw(Box::new(holder));
    // SAFETY: the holder was just created and is not shared.
    let managed = unsafe {
        let [shape, strides] = [&mut (*holder).shape, &mut (*holder).strides];
        let (ndim, shape) = (shape.len() as i32, shape.as_mut_ptr());
        let (data, strides) = (data.cast(), strides.as_mut_ptr());
        let tensor = DLTensor { data, device, ndim, dtype, shape, strides, byte_offset: 0 };
        let managed = M::new(tensor, holder.cast(), read_only);
        ptr::from_mut((*holder).managed.insert(managed))
    };
    // SAFETY: `managed` points into the holder, so it is not null.
    Ok(Exported { managed: unsafe { NonNull::new_unchecked(managed) } })
}

/// Deleter of both DLPack structures, the versioned and the legacy one.
///
/// # Safety
/// `managed` must be null, or a pointer from `export_as` that was not deleted yet.
unsafe extern "C" fn delete<M: Managed>(managed: *mut M) {
    if managed.is_null() {
        return;
    }
    // SAFETY: `export_as` set the owner to the `Holder` that contains this structure.
    let holder = unsafe { Box::from_raw((*managed).owner().cast::<Holder<M>>()) };
    drop(holder);
}

#[cfg(test)]
mod tests {
    use std::mem::{align_of, offset_of};

    use super::*;

    /// Any thread may drop a batch in an exported tensor while other threads read it.
    #[test]
    fn a_batch_may_be_sent_and_shared() {
        fn sent_and_shared<T: Send + Sync>() {}
        sent_and_shared::<Batch>();
    }

    /// Sizes and offsets that a C compiler gives dlpack.h 1.1 on a 64-bit machine.
    #[test]
    fn structures_lie_as_in_dlpack_h() {
        assert_eq!((size_of::<DLDevice>(), size_of::<DLDataType>()), (8, 4));
        assert_eq!((size_of::<DLPackVersion>(), size_of::<DLTensor>()), (8, 48));
        let tensor = [
            offset_of!(DLTensor, data),
            offset_of!(DLTensor, device),
            offset_of!(DLTensor, ndim),
            offset_of!(DLTensor, dtype),
            offset_of!(DLTensor, shape),
            offset_of!(DLTensor, strides),
            offset_of!(DLTensor, byte_offset),
        ];
        assert_eq!(tensor, [0, 8, 16, 20, 24, 32, 40]);
        let legacy = [
            offset_of!(DLManagedTensor, dl_tensor),
            offset_of!(DLManagedTensor, manager_ctx),
            offset_of!(DLManagedTensor, deleter),
            size_of::<DLManagedTensor>(),
        ];
        assert_eq!(legacy, [0, 48, 56, 64]);
        let versioned = [
            offset_of!(DLManagedTensorVersioned, version),
            offset_of!(DLManagedTensorVersioned, manager_ctx),
            offset_of!(DLManagedTensorVersioned, deleter),
            offset_of!(DLManagedTensorVersioned, flags),
            offset_of!(DLManagedTensorVersioned, dl_tensor),
            size_of::<DLManagedTensorVersioned>(),
        ];
        assert_eq!(versioned, [0, 8, 16, 24, 32, 80]);
        assert_eq!(align_of::<DLManagedTensorVersioned>(), 8);
    }
}
