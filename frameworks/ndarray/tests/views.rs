//! Tests that views of ndarray refer to the memory of batches.

use common::small_batch;
use feedwater::half::{bf16, f16};
use feedwater::loader::Batch;
use feedwater::{DType, Layout};
use feedwater_ndarray::{column, images, images_mut, labels, soft_targets};

fn address(batch: &Batch) -> *const u8 {
    batch.host().unwrap().as_ptr()
}

#[test]
fn a_view_has_the_memory_and_the_axes_of_its_batch() {
    let nchw = small_batch(DType::F32, Layout::Nchw);
    let view = images::<f32>(&nchw).unwrap();
    assert_eq!((view.dim(), view.as_ptr().cast()), ((4, 3, 32, 32), address(&nchw)));
    assert_eq!(view[(1, 2, 3, 4)], nchw.as_f32().unwrap()[((3 + 2) * 32 + 3) * 32 + 4]);
    let nhwc = small_batch(DType::F32, Layout::Nhwc);
    let other = images::<f32>(&nhwc).unwrap();
    assert_eq!((other.dim(), other.as_ptr().cast()), ((4, 32, 32, 3), address(&nhwc)));
    assert_eq!(other[(1, 3, 4, 2)], view[(1, 2, 3, 4)]);
}

#[test]
fn every_element_type_has_a_view() {
    let bytes = small_batch(DType::U8, Layout::Nchw);
    assert_eq!(images::<u8>(&bytes).unwrap().as_ptr(), address(&bytes));
    let half = small_batch(DType::F16, Layout::Nchw);
    assert_eq!(images::<f16>(&half).unwrap().as_ptr().cast(), address(&half));
    let brain = small_batch(DType::BF16, Layout::Nchw);
    assert_eq!(images::<bf16>(&brain).unwrap().as_ptr().cast(), address(&brain));
}

#[test]
fn a_change_of_a_view_changes_the_batch() {
    let mut batch = small_batch(DType::F32, Layout::Nchw);
    images_mut::<f32>(&mut batch).unwrap()[(0, 0, 0, 1)] = 42.0;
    assert_eq!(batch.as_f32().unwrap()[1], 42.0);
}

#[test]
fn labels_are_those_of_the_batch() {
    let batch = small_batch(DType::U8, Layout::Nchw);
    assert_eq!(labels(&batch).as_ptr(), batch.labels().as_ptr());
    assert_eq!(labels(&batch).to_vec(), [0, 1, 2, 3]);
}

#[test]
fn every_column_has_a_view() {
    let batch = small_batch(DType::F32, Layout::Nchw);
    let image = column::<f32>(&batch, "image").unwrap();
    assert_eq!((image.shape(), image.as_ptr().cast()), (&[4, 3, 32, 32][..], address(&batch)));
    let label = column::<i64>(&batch, "label").unwrap();
    assert_eq!((label.shape(), label.as_ptr()), (&[4][..], batch.labels().as_ptr()));
    for (error, words) in [
        (column::<u8>(&batch, "label").unwrap_err(), ["column", "i64", "u8"]),
        (column::<f32>(&batch, "target").unwrap_err(), ["target", "image", "label"]),
    ] {
        let message = error.to_string();
        assert!(words.iter().all(|word| message.contains(word)), "{message}");
    }
}

#[test]
fn errors_name_the_setting() {
    let batch = small_batch(DType::U8, Layout::Nchw);
    let error = images::<f32>(&batch).unwrap_err().to_string();
    assert!(
        error.contains("output.dtype") && error.contains("u8") && error.contains("f32"),
        "{error}"
    );
    assert!(soft_targets(&batch).unwrap_err().to_string().contains("targets.classes"));
}
