//! Tests that tensors of libtorch share memory with batches, and occupy their slots.

use common::{assert_slot_waits, small_batch, small_batches};
use feedwater::{DType, Layout};
use tch::{Device, Kind, Tensor};

#[test]
fn a_tensor_has_the_values_of_its_batch_without_a_copy() {
    let batch = small_batch(DType::F32, Layout::Nchw);
    let (there, values) = (batch.host().unwrap().as_ptr(), batch.as_f32().unwrap().to_vec());
    let tensor = feedwater_tch::images(batch).unwrap();
    assert_eq!(tensor.data_ptr().cast_const().cast(), there);
    assert_eq!((tensor.size(), tensor.kind()), (vec![4, 3, 32, 32], Kind::Float));
    assert_eq!((tensor.device(), tensor.is_contiguous()), (Device::Cpu, true));
    assert_eq!(Vec::<f32>::try_from(tensor.flatten(0, -1)).unwrap(), values);
}

#[test]
fn every_element_type_is_taken_without_a_copy() {
    for (dtype, kind) in [
        (DType::U8, Kind::Uint8),
        (DType::F16, Kind::Half),
        (DType::BF16, Kind::BFloat16),
        (DType::F32, Kind::Float),
    ] {
        let batch = small_batch(dtype, Layout::Nhwc);
        let there = batch.host().unwrap().as_ptr();
        let tensor = feedwater_tch::images(batch).unwrap();
        assert_eq!(tensor.data_ptr().cast_const().cast(), there);
        assert_eq!((tensor.size(), tensor.kind()), (vec![4, 32, 32, 3], kind));
    }
}

#[test]
fn a_slot_waits_for_the_last_tensor_that_shares_it() {
    let loader = || small_batches(DType::F32, Layout::Nchw).unwrap();
    assert_slot_waits(loader(), |batch| feedwater_tch::images(batch).unwrap());
    // The tensor that `images` returns is dropped at once. The clone or view of it keeps its
    // storage.
    assert_slot_waits(loader(), |batch| feedwater_tch::images(batch).unwrap().shallow_clone());
    assert_slot_waits(loader(), |batch| feedwater_tch::images(batch).unwrap().get(3));
    assert_slot_waits(loader(), |batch| {
        feedwater_tch::images(batch).unwrap().permute([0, 2, 3, 1])
    });
}

#[test]
fn a_slot_waits_for_the_graph_of_a_backward_pass() {
    let loader = small_batches(DType::F32, Layout::Nchw).unwrap();
    assert_slot_waits(loader, |batch| {
        let images = feedwater_tch::images(batch).unwrap();
        let weights =
            Tensor::ones([4, 3, 32, 32], (Kind::Float, Device::Cpu)).set_requires_grad(true);
        // The gradient of the weights equals the images.
        (weights * images).sum(Kind::Float)
    });
}

#[test]
fn a_tensor_may_outlive_its_loader_and_go_to_another_thread() {
    let batch = small_batch(DType::F32, Layout::Nchw);
    let values = batch.as_f32().unwrap().to_vec();
    let tensor = feedwater_tch::images(batch).unwrap();
    let there = std::thread::spawn(move || Vec::<f32>::try_from(tensor.flatten(0, -1)).unwrap());
    assert_eq!(there.join().unwrap(), values);
}

#[test]
fn labels_are_those_of_the_batch() {
    let batch = small_batch(DType::F16, Layout::Nchw);
    let labels = feedwater_tch::labels(&batch);
    assert_eq!(Vec::<i64>::try_from(labels).unwrap(), batch.labels());
    let error = feedwater_tch::soft_targets(&batch).unwrap_err();
    assert!(error.to_string().contains("targets.classes"));
}
