//! Exported tensors and their deleter.

#![allow(unsafe_code)]

use std::ffi::c_void;
use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use super::{
    DLDataType, DLDevice, DLManagedTensor, DLManagedTensorVersioned, DLTensor, READ_ONLY, VERSION,
};
use crate::loader::Batch;

/// Exported tensor that no consumer has taken yet. Dropping it calls the deleter.
pub struct Exported<M: Managed> {
    managed: NonNull<M>,
}

// SAFETY: an `Exported` owns a `Holder`, whose batch may be sent and shared. The pointers in the
// structure refer to memory of that batch and of the holder.
unsafe impl<M: Managed> Send for Exported<M> {}

impl<M: Managed> Exported<M> {
    /// Creates a tensor, which owns `batch`. `data` is an address on `device`.
    pub(super) fn new(
        data: *mut u8,
        device: DLDevice,
        dtype: DLDataType,
        shape: Box<[i64]>,
        batch: Arc<Batch>,
        read_only: bool,
    ) -> Self {
        let strides = (0..shape.len()).map(|axis| shape[axis + 1..].iter().product()).collect();
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
        Self { managed: unsafe { NonNull::new_unchecked(managed) } }
    }

    /// Returns the tensor.
    pub fn tensor(&self) -> &DLTensor {
        // SAFETY: `Exported::new` created the structure, which stays alive until `into_raw` or
        // `drop`.
        unsafe { self.managed.as_ref() }.tensor()
    }

    /// Returns the whole DLPack structure.
    pub fn managed(&self) -> &M {
        // SAFETY: `Exported::new` created the structure, which stays alive until `into_raw` or
        // `drop`.
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

/// Deleter of both DLPack structures, the versioned and the legacy one.
///
/// # Safety
/// `managed` must be null, or a pointer from `Exported::new` that was not deleted yet.
unsafe extern "C" fn delete<M: Managed>(managed: *mut M) {
    if managed.is_null() {
        return;
    }
    // SAFETY: `Exported::new` set the owner to the `Holder` that contains this structure.
    let holder = unsafe { Box::from_raw((*managed).owner().cast::<Holder<M>>()) };
    drop(holder);
}
