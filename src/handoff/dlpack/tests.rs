//! Tests of the layout of the structures.

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
