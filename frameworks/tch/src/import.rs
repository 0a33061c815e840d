//! Imports a DLPack tensor as a tensor of libtorch.

#![allow(unsafe_code)]

use std::ffi::{CStr, c_char};

use feedwater::handoff::dlpack::{DLManagedTensorVersioned, Exported};
use feedwater::{Error, Result};
use tch::Tensor;
use torch_sys::C_tensor;

unsafe extern "C" {
    /// Defined in `dlpack.cpp`.
    fn feedwater_tensor_from_dlpack(
        managed: *mut DLManagedTensorVersioned,
        message: *mut c_char,
        capacity: usize,
    ) -> *mut C_tensor;
}

/// Passes an exported tensor to libtorch, and returns it as a tensor of tch.
///
/// # Errors
/// [`Error::Device`] if libtorch refuses the tensor.
pub fn tensor(exported: Exported<DLManagedTensorVersioned>) -> Result<Tensor> {
    let mut message = [0; 1024];
    let managed = exported.into_raw();
    // SAFETY: the structure is valid and not shared, and `message` has space for `capacity` bytes,
    // including the final zero.
    let tensor =
        unsafe { feedwater_tensor_from_dlpack(managed, message.as_mut_ptr(), message.len()) };
    if tensor.is_null() {
        // libtorch does not report whether it has called the deleter. Leaking a slot is better than
        // freeing it twice.
        // SAFETY: `message` is a C string, or all zeros.
        let text = unsafe { CStr::from_ptr(message.as_ptr()) }.to_string_lossy().into_owned();
        return Err(Error::Device { call: "fromDLPackVersioned", problem: text });
    }
    // SAFETY: the pointer is a new `at::Tensor`, which the returned value owns.
    Ok(unsafe { Tensor::from_ptr(tensor) })
}
