//! Tests that inputs of ONNX Runtime use the memory of batches. `ORT_DYLIB_PATH` must name the
//! library.

use common::small_batch;
use feedwater::half::{bf16, f16};
use feedwater::loader::Batch;
use feedwater::{DType, Layout};
use feedwater_ort::images;

#[test]
fn an_input_has_the_memory_and_the_shape_of_its_batch() {
    for (layout, shape) in [(Layout::Nchw, [4, 3, 32, 32]), (Layout::Nhwc, [4, 32, 32, 3])] {
        let batch = small_batch(DType::F32, layout);
        let input = images::<f32>(&batch).unwrap();
        let (has, values) = input.try_extract_tensor::<f32>().unwrap();
        assert_eq!(has[..], shape);
        assert_eq!(values.as_ptr_range(), batch.as_f32().unwrap().as_ptr_range());
    }
}

#[test]
fn every_element_type_is_an_input_without_a_copy() {
    fn address<T: feedwater_ort::Element>(batch: &Batch) -> *const u8 {
        images::<T>(batch).unwrap().try_extract_tensor::<T>().unwrap().1.as_ptr().cast()
    }
    let there = |batch: &Batch| batch.host().unwrap().as_ptr();
    let bytes = small_batch(DType::U8, Layout::Nchw);
    assert_eq!(address::<u8>(&bytes), there(&bytes));
    let half = small_batch(DType::F16, Layout::Nchw);
    assert_eq!(address::<f16>(&half), there(&half));
    let brain = small_batch(DType::BF16, Layout::Nchw);
    assert_eq!(address::<bf16>(&brain), there(&brain));
}

#[test]
fn an_error_names_the_setting() {
    let error = images::<f32>(&small_batch(DType::U8, Layout::Nchw)).unwrap_err().to_string();
    assert!(
        error.contains("output.dtype") && error.contains("u8") && error.contains("f32"),
        "{error}"
    );
}
