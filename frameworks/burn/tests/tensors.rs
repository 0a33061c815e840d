//! Tests that tensors of burn share memory with batches, and occupy their slots.

use burn::tensor::{DType, Device, Tensor, TensorData};
use common::{assert_slot_waits, small_batch, small_batches};
use feedwater::Layout;

fn address(data: &TensorData) -> *const u8 {
    data.as_bytes().as_ptr()
}

/// `into_data` copies the values only if another tensor shares them, which is not the case in this
/// test.
#[test]
fn a_tensor_has_the_values_of_its_batch_without_a_copy() {
    let batch = small_batch(feedwater::DType::F32, Layout::Nchw);
    let (there, values) = (batch.host().unwrap().as_ptr(), batch.as_f32().unwrap().to_vec());
    let tensor = feedwater_burn::images(batch, &Device::flex()).unwrap();
    assert_eq!(tensor.dims(), [4, 3, 32, 32]);
    let data = tensor.into_data();
    assert_eq!(address(&data), there);
    assert_eq!(data.as_slice::<f32>().unwrap(), values);
}

#[test]
fn every_element_type_is_taken_without_a_copy() {
    let device = Device::flex();
    for (ours, dtype) in [
        (feedwater::DType::F32, DType::F32),
        (feedwater::DType::F16, DType::F16),
        (feedwater::DType::BF16, DType::BF16),
    ] {
        let batch = small_batch(ours, Layout::Nhwc);
        let there = batch.host().unwrap().as_ptr();
        let data = feedwater_burn::images(batch, &device).unwrap().into_data();
        assert_eq!((address(&data), data.dtype()), (there, dtype));
        assert_eq!(data.shape().as_slice(), [4, 32, 32, 3]);
    }
    let batch = small_batch(feedwater::DType::U8, Layout::Nhwc);
    let there = batch.host().unwrap().as_ptr();
    let data = feedwater_burn::pixels(batch, &device).unwrap().into_data();
    assert_eq!((address(&data), data.dtype()), (there, DType::U8));
}

#[test]
fn a_slot_waits_for_the_last_tensor_that_shares_it() {
    let device = Device::flex();
    let loader = || small_batches(feedwater::DType::F32, Layout::Nchw).unwrap();
    assert_slot_waits(loader(), |batch| feedwater_burn::images(batch, &device).unwrap());
    assert_slot_waits(loader(), |batch| {
        let tensor = feedwater_burn::images(batch, &device).unwrap();
        let clone = tensor.clone();
        drop(tensor);
        clone
    });
    // A reshaped tensor shares the memory of the original tensor.
    assert_slot_waits(loader(), |batch| {
        feedwater_burn::images(batch, &device).unwrap().reshape([4, 3 * 32 * 32])
    });
}

/// burn drops the tensors of a graph in the backward pass, so the slot is free only after it.
#[test]
fn a_slot_waits_for_the_backward_pass_that_needs_it() {
    let device = Device::flex().autodiff();
    let loader = small_batches(feedwater::DType::F32, Layout::Nchw).unwrap();
    let mut batches = loader.into_batches();
    let mut next = || batches.next().unwrap().unwrap();
    let batch = next();
    let there = batch.host().unwrap().as_ptr();
    let values = batch.as_f32().unwrap().to_vec();
    let weights = Tensor::<4>::ones([4, 3, 32, 32], &device).require_grad();
    let loss = (weights.clone() * feedwater_burn::images(batch, &device).unwrap()).sum();
    for _ in 0..12 {
        assert_ne!(next().host().unwrap().as_ptr(), there);
    }
    let gradients = loss.backward();
    // The gradient of the weights equals the images.
    let gradient = weights.grad(&gradients).unwrap().into_data();
    assert_eq!(gradient.as_slice::<f32>().unwrap(), values);
    drop(gradients);
    assert!((0..4).any(|_| next().host().unwrap().as_ptr() == there));
}

/// An operation in place must copy the values first, because other tensors read the same slot.
#[test]
fn a_change_of_one_tensor_leaves_its_clone_as_it_is() {
    let batch = small_batch(feedwater::DType::F32, Layout::Nchw);
    let values = batch.as_f32().unwrap().to_vec();
    let tensor = feedwater_burn::images(batch, &Device::flex()).unwrap();
    let clone = tensor.clone();
    let changed = tensor.add_scalar(1.0).into_data();
    assert_eq!(clone.into_data().as_slice::<f32>().unwrap(), values);
    let expected: Vec<f32> = values.iter().map(|value| value + 1.0).collect();
    assert_eq!(changed.as_slice::<f32>().unwrap(), expected);
}

#[test]
fn labels_are_those_of_the_batch() {
    let batch = small_batch(feedwater::DType::F16, Layout::Nchw);
    let labels = feedwater_burn::labels(&batch, &Device::flex()).into_data();
    assert_eq!(labels.iter::<i64>().collect::<Vec<_>>(), batch.labels());
}

#[test]
fn errors_name_the_setting() {
    let device = Device::flex();
    let float = feedwater_burn::pixels(small_batch(feedwater::DType::F32, Layout::Nchw), &device);
    assert!(float.unwrap_err().to_string().contains("output.dtype"));
    let bytes = small_batch(feedwater::DType::U8, Layout::Nchw);
    let targets = feedwater_burn::soft_targets(&bytes, &device);
    assert!(targets.unwrap_err().to_string().contains("targets.classes"));
    let bytes = feedwater_burn::images(bytes, &device);
    assert!(bytes.unwrap_err().to_string().contains("output.dtype"));
}

/// Columns of fields and views, and ragged ones with their offsets.
#[test]
fn every_column_becomes_a_tensor() {
    let (batch, device) = (common::batch_with_columns(), &Device::flex());
    let small = feedwater_burn::floats::<4>(&batch, "small", device).unwrap().into_data();
    assert_eq!(small.shape().as_slice(), [3, 3, 1, 1]);
    let expected = batch.column("small").unwrap().as_slice::<f32>().unwrap();
    assert_eq!(small.as_slice::<f32>().unwrap(), expected);
    let score = feedwater_burn::floats::<2>(&batch, "score", device).unwrap().into_data();
    assert_eq!(score.as_slice::<f32>().unwrap(), [0.0, 0.5, 1.0, 0.5, 2.0, 0.5]);
    let tags = feedwater_burn::integers::<1>(&batch, "tags", device).unwrap().into_data();
    assert_eq!(tags.as_slice::<i64>().unwrap(), [10, 20, 21]);
    let offsets = feedwater_burn::offsets(&batch, "tags", device).unwrap().into_data();
    assert_eq!(offsets.as_slice::<i64>().unwrap(), [0, 0, 1, 3]);
    for (error, words) in [
        (feedwater_burn::floats::<1>(&batch, "tag", device).unwrap_err(), "\"tags\", \"text\""),
        (feedwater_burn::floats::<1>(&batch, "tags", device).unwrap_err(), "use `integers`"),
        (feedwater_burn::integers::<1>(&batch, "score", device).unwrap_err(), "use `floats`"),
        (feedwater_burn::floats::<3>(&batch, "score", device).unwrap_err(), "2 axes, not 3"),
        (feedwater_burn::offsets(&batch, "score", device).unwrap_err(), "is not ragged"),
    ] {
        assert!(error.to_string().contains(words), "{error}");
    }
}
