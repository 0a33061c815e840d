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

/// Columns of fields and views, and ragged ones with their offsets.
#[test]
fn every_column_becomes_a_tensor() {
    let batch = common::batch_with_columns();
    let tensor = |name| feedwater_tch::column(&batch, name).unwrap();
    let floats = |name| Vec::<f32>::try_from(tensor(name).flatten(0, -1)).unwrap();
    assert_eq!((tensor("image").size(), tensor("image").kind()), (vec![3, 3, 2, 2], Kind::Float));
    assert_eq!(tensor("small").size(), [3, 3, 1, 1]);
    assert_eq!(floats("small"), batch.column("small").unwrap().as_slice::<f32>().unwrap());
    assert_eq!(floats("score"), [0.0, 0.5, 1.0, 0.5, 2.0, 0.5]);
    assert_eq!(Vec::<i64>::try_from(tensor("tags")).unwrap(), [10, 20, 21]);
    let offsets = feedwater_tch::offsets(&batch, "tags").unwrap();
    assert_eq!(Vec::<i64>::try_from(offsets).unwrap(), [0, 0, 1, 3]);
    for (error, words) in [
        (feedwater_tch::column(&batch, "tag").unwrap_err(), "\"tags\", \"text\""),
        (feedwater_tch::offsets(&batch, "score").unwrap_err(), "is not ragged"),
    ] {
        assert!(error.to_string().contains(words), "{error}");
    }
}
