//! DLPack capsules, as specified for `__dlpack__` in the Python array API standard. Only this
//! module and `thread_state` use `unsafe`.

#![allow(unsafe_code)]

use std::ffi::{CStr, c_void};
use std::ptr;

use feedwater::Result;
use feedwater::handoff::dlpack::{
    ConsumerStream, DLManagedTensor, DLManagedTensorVersioned, Exported, OwnedColumn,
};
use pyo3::ffi;
use pyo3::prelude::*;

/// Names of capsules whose tensor no consumer has taken yet, with and without a version.
const VERSIONED: &CStr = c"dltensor_versioned";
const LEGACY: &CStr = c"dltensor";

/// An exported tensor.
pub enum Tensor {
    Versioned(Exported<DLManagedTensorVersioned>),
    Legacy(Exported<DLManagedTensor>),
}

/// Converts the argument `stream` of `__dlpack__` to a consumer's stream.
pub fn stream(column: &OwnedColumn, number: Option<i64>) -> Result<ConsumerStream> {
    // SAFETY: the array API standard requires the same of callers of `__dlpack__`: the handle
    // belongs to the device's primary context, and is valid as long as the tensor is used.
    unsafe { column.stream(number) }
}

/// Creates a capsule that owns the tensor until a consumer takes it.
pub fn new(py: Python<'_>, tensor: Tensor) -> PyResult<Bound<'_, PyAny>> {
    let (pointer, name, free): (*mut c_void, _, ffi::PyCapsule_Destructor) = match tensor {
        Tensor::Versioned(tensor) => (tensor.into_raw().cast(), VERSIONED, free_versioned),
        Tensor::Legacy(tensor) => (tensor.into_raw().cast(), LEGACY, free_legacy),
    };
    // SAFETY: the pointer is not null, the name is static, and the interpreter is attached. If the
    // capsule cannot be made, the tensor leaks.
    unsafe {
        let capsule = ffi::PyCapsule_New(pointer, name.as_ptr(), Some(free));
        Bound::from_owned_ptr_or_err(py, capsule)
    }
}

/// Frees the tensor of a capsule, unless a consumer has taken it. Consumers rename the capsules
/// that they take.
unsafe extern "C" fn free_versioned(capsule: *mut ffi::PyObject) {
    // SAFETY: called by the interpreter with a capsule of `new`.
    let tensor = unsafe { taken(capsule, VERSIONED) }.cast::<DLManagedTensorVersioned>();
    // SAFETY: the pointer is null or comes from `into_raw`, and nobody else has freed it.
    if let Some(tensor) = unsafe { tensor.as_ref() }
        && let Some(deleter) = tensor.deleter
    {
        // SAFETY: the tensor comes from `into_raw` and has not been freed, so its deleter may be
        // called.
        unsafe { deleter(ptr::from_ref(tensor).cast_mut()) };
    }
}

/// Frees the tensor like `free_versioned`, for DLPack before version 1.
unsafe extern "C" fn free_legacy(capsule: *mut ffi::PyObject) {
    // SAFETY: called by the interpreter with a capsule of `new`.
    let tensor = unsafe { taken(capsule, LEGACY) }.cast::<DLManagedTensor>();
    // SAFETY: the pointer is null or comes from `into_raw`, and nobody else has freed it.
    if let Some(tensor) = unsafe { tensor.as_ref() }
        && let Some(deleter) = tensor.deleter
    {
        // SAFETY: the tensor comes from `into_raw` and has not been freed, so its deleter may be
        // called.
        unsafe { deleter(ptr::from_ref(tensor).cast_mut()) };
    }
}

/// Returns the pointer of a capsule, or null if a consumer has taken the tensor.
///
/// # Safety
/// `capsule` must be a capsule, and the interpreter must be attached.
unsafe fn taken(capsule: *mut ffi::PyObject, name: &CStr) -> *mut c_void {
    // SAFETY: guaranteed by the caller.
    unsafe {
        match ffi::PyCapsule_IsValid(capsule, name.as_ptr()) {
            1 => ffi::PyCapsule_GetPointer(capsule, name.as_ptr()),
            _ => ptr::null_mut(),
        }
    }
}
