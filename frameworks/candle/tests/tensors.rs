//! Tests that tensors of candle have the values of batches, and that the slots return to the
//! loader.

use candle_core::{CpuStorage, Device, Storage, Tensor};
use common::{small_batch, small_batches};
use feedwater::{DType, Layout};
use feedwater_candle::{copy_images, images};

fn values(tensor: &Tensor) -> Vec<f32> {
    tensor.to_dtype(candle_core::DType::F32).unwrap().flatten_all().unwrap().to_vec1().unwrap()
}

/// Returns the address of the tensor's first element.
fn address(tensor: &Tensor) -> *const f32 {
    let (storage, layout) = tensor.storage_and_layout();
    match &*storage {
        Storage::Cpu(CpuStorage::F32(values)) => values[layout.start_offset()..].as_ptr(),
        _ => panic!("a tensor of f32 on the CPU"),
    }
}

#[test]
fn a_tensor_has_the_values_of_its_batch() {
    for layout in [Layout::Nchw, Layout::Nhwc] {
        let batch = small_batch(DType::F32, layout);
        let (shape, expected) = (batch.array_shape(), batch.as_f32().unwrap().to_vec());
        let tensor = images(batch, &Device::Cpu).unwrap();
        assert_eq!((tensor.dims(), values(&tensor)), (&shape[..], expected));
    }
}

#[test]
fn every_element_type_keeps_its_values() {
    let expected: [Vec<f32>; 4] = [
        small_batch(DType::U8, Layout::Nchw).as_u8().unwrap().iter().map(|&it| it.into()).collect(),
        small_batch(DType::F16, Layout::Nchw)
            .as_f16()
            .unwrap()
            .iter()
            .map(|it| it.to_f32())
            .collect(),
        small_batch(DType::BF16, Layout::Nchw)
            .as_bf16()
            .unwrap()
            .iter()
            .map(|it| it.to_f32())
            .collect(),
        small_batch(DType::F32, Layout::Nchw).as_f32().unwrap().to_vec(),
    ];
    for (dtype, expected) in
        [DType::U8, DType::F16, DType::BF16, DType::F32].into_iter().zip(expected)
    {
        let filled = images(small_batch(dtype, Layout::Nchw), &Device::Cpu).unwrap();
        assert_eq!(
            filled.dtype(),
            feedwater_candle::dtype(&small_batch(dtype, Layout::Nchw)).unwrap()
        );
        assert_eq!(values(&filled), expected);
        let existing = filled.zeros_like().unwrap();
        copy_images(small_batch(dtype, Layout::Nchw), &existing).unwrap();
        assert_eq!(values(&existing), expected);
    }
}

/// The loader has memory for two batches (two slots). If tensors kept slots, it could not load a
/// third batch.
#[test]
fn a_slot_is_free_at_once() {
    let loader = small_batches(DType::F32, Layout::Nchw).unwrap();
    let mut batches = loader.into_batches().map(Result::unwrap);
    let tensors: Vec<_> =
        batches.by_ref().take(6).map(|batch| images(batch, &Device::Cpu).unwrap()).collect();
    // The seventh batch is the first one of the next epoch, in the same order.
    let again = batches.next().unwrap();
    assert_eq!(values(&tensors[0]), again.as_f32().unwrap());
    assert_ne!(values(&tensors[0]), values(&tensors[1]));
}

#[test]
fn an_existing_tensor_keeps_its_memory_and_gets_the_next_batch() {
    let loader = small_batches(DType::F32, Layout::Nchw).unwrap();
    let mut batches = loader.into_batches();
    let mut next = || batches.next().unwrap().unwrap();
    let tensor = images(next(), &Device::Cpu).unwrap();
    let there = address(&tensor);
    for _ in 0..3 {
        let batch = next();
        let expected = batch.as_f32().unwrap().to_vec();
        copy_images(batch, &tensor).unwrap();
        assert_eq!((address(&tensor), values(&tensor)), (there, expected));
    }
}

/// Copies a batch into the second half of a larger tensor. The first half must not change.
#[test]
fn a_batch_is_copied_into_a_part_of_a_tensor() {
    let two = Tensor::zeros((8, 3, 32, 32), candle_core::DType::F32, &Device::Cpu).unwrap();
    let batch = small_batch(DType::F32, Layout::Nchw);
    let expected = batch.as_f32().unwrap().to_vec();
    copy_images(batch, &two.narrow(0, 4, 4).unwrap()).unwrap();
    let (first, second) = (two.narrow(0, 0, 4).unwrap(), two.narrow(0, 4, 4).unwrap());
    assert!(values(&first).iter().all(|&value| value == 0.0));
    assert_eq!(values(&second), expected);
}

#[test]
fn what_does_not_fit_is_refused() {
    let make = |shape: [usize; 4], dtype| Tensor::zeros(&shape, dtype, &Device::Cpu).unwrap();
    let float = candle_core::DType::F32;
    let smaller = copy_images(small_batch(DType::F32, Layout::Nchw), &make([3, 3, 32, 32], float));
    assert!(
        smaller.unwrap_err().to_string().contains("does not fit a tensor of [3, 3, 32, 32] F32")
    );
    let bytes = copy_images(small_batch(DType::U8, Layout::Nchw), &make([4, 3, 32, 32], float));
    assert!(bytes.unwrap_err().to_string().contains("a batch of [4, 3, 32, 32] U8"));
    let turned = make([4, 3, 32, 32], float).transpose(2, 3).unwrap();
    let turned = copy_images(small_batch(DType::F32, Layout::Nchw), &turned);
    assert!(turned.unwrap_err().to_string().contains("contiguous"));
}

#[test]
fn labels_are_those_of_the_batch() {
    let batch = small_batch(DType::F16, Layout::Nchw);
    let labels = feedwater_candle::labels(&batch, &Device::Cpu).unwrap();
    assert_eq!(labels.to_vec1::<i64>().unwrap(), batch.labels());
    let error = feedwater_candle::soft_targets(&batch, &Device::Cpu).unwrap_err();
    assert!(error.to_string().contains("targets.classes"));
}

/// Columns of fields and views, and ragged ones with their offsets.
#[test]
fn every_column_becomes_a_tensor() {
    let batch = common::batch_with_columns();
    let tensor = |name| feedwater_candle::column(&batch, name, &Device::Cpu).unwrap();
    assert_eq!(tensor("image").dims(), [3, 3, 2, 2]);
    assert_eq!(tensor("small").dims(), [3, 3, 1, 1]);
    assert_eq!(values(&tensor("small")), batch.column("small").unwrap().as_slice::<f32>().unwrap());
    assert_eq!(tensor("score").to_vec2::<f32>().unwrap(), [[0.0, 0.5], [1.0, 0.5], [2.0, 0.5]]);
    assert_eq!(tensor("label").to_vec1::<i64>().unwrap(), batch.labels());
    assert_eq!(tensor("tags").to_vec1::<i64>().unwrap(), [10, 20, 21]);
    let offsets = feedwater_candle::offsets(&batch, "tags", &Device::Cpu).unwrap();
    assert_eq!(offsets.to_vec1::<i64>().unwrap(), [0, 0, 1, 3]);
    for (error, words) in [
        (feedwater_candle::column(&batch, "tag", &Device::Cpu).unwrap_err(), "\"tags\", \"text\""),
        (feedwater_candle::offsets(&batch, "score", &Device::Cpu).unwrap_err(), "is not ragged"),
    ] {
        assert!(error.to_string().contains(words), "{error}");
    }
}
