//! Batches as slices of their element type, and samples without a label.

use crate::common::{evaluation, jpegs, memory};
use crate::simulated::{Schedule, exclusive, runtime};
use bytemuck::Pod;
use feedwater::half::{bf16, f16};
use feedwater::internals::tensor::{CHANNELS, DType, Layout};
use feedwater::loader::{Batch, DeviceChoice, Loader};
use feedwater::op::{Chain, Placement, Resize};
use feedwater::plan::{LastBatch, OnError};
use feedwater::source::{Memory, Source};

/// Returns the two batches of four and three images. The last batch fills its slot only partly.
fn batches(dtype: DType, layout: Layout) -> Vec<Batch> {
    let chain = match dtype {
        DType::U8 => Chain::new().then(Resize::to(22, 20)), // without Normalize, which outputs floats
        _ => evaluation(),
    };
    let builder = Loader::builder(memory(7), chain).device(DeviceChoice::Cpu).batch_size(4);
    let mut loader = builder.last_batch(LastBatch::Partial).output(dtype, layout).build().unwrap();
    loader.epoch().map(Result::unwrap).collect()
}

/// Returns which of the four typed views (`u8`, `f16`, `bf16`, `f32`) the batch offers.
fn given(batch: &mut Batch) -> [bool; 4] {
    let read = [
        batch.as_u8().is_some(),
        batch.as_f16().is_some(),
        batch.as_bf16().is_some(),
        batch.as_f32().is_some(),
    ];
    let written = [
        batch.as_u8_mut().is_some(),
        batch.as_f16_mut().is_some(),
        batch.as_bf16_mut().is_some(),
        batch.as_f32_mut().is_some(),
    ];
    assert_eq!(read, written);
    read
}

#[test]
fn only_the_view_of_the_batchs_own_element_type_exists() {
    for (place, dtype) in DType::ALL.into_iter().enumerate() {
        for mut batch in batches(dtype, Layout::Nchw) {
            let mut expected = [false; 4];
            expected[place] = true;
            assert_eq!(given(&mut batch), expected, "{dtype}");
        }
    }
}

/// Checks shape and row-major strides of the views in both layouts, and compares the values with
/// the batch's bytes.
fn check<T: Pod + PartialEq>(dtype: DType, view: fn(&Batch) -> Option<&[T]>) {
    let all = |layout| batches(dtype, layout);
    for (planes, pixels) in all(Layout::Nchw).iter().zip(&all(Layout::Nhwc)) {
        let (a, b) = (view(planes).unwrap(), view(pixels).unwrap());
        assert_eq!(bytemuck::cast_slice::<_, u8>(a), planes.host().unwrap());
        let [samples, channels, height, width] = planes.array_shape();
        assert_eq!([samples, channels], [planes.len(), CHANNELS]);
        assert_eq!(pixels.array_shape(), [samples, height, width, channels]);
        assert_eq!([a.len(), b.len()], [samples * channels * height * width; 2]);
        assert!(a.iter().any(|value| *value != a[0]), "the image must have different values");
        let at = |shape: [usize; 4], place: [usize; 4]| {
            shape.iter().zip(place).fold(0, |sum, (extent, index)| sum * extent + index)
        };
        for n in 0..samples {
            for (c, y, x) in (0..channels)
                .flat_map(|c| (0..height).flat_map(move |y| (0..width).map(move |x| (c, y, x))))
            {
                let plane = a[at(planes.array_shape(), [n, c, y, x])];
                assert!(
                    plane == b[at(pixels.array_shape(), [n, y, x, c])],
                    "{dtype} {n} {c} {y} {x}"
                );
            }
        }
    }
}

#[test]
fn shape_and_slice_together_are_an_array_in_every_type_and_layout() {
    check::<u8>(DType::U8, Batch::as_u8);
    check::<f16>(DType::F16, Batch::as_f16);
    check::<bf16>(DType::BF16, Batch::as_bf16);
    check::<f32>(DType::F32, Batch::as_f32);
}

#[test]
fn writes_through_a_view_change_the_batch() {
    let batch = &mut batches(DType::F32, Layout::Nchw)[0];
    batch.as_f32_mut().unwrap().iter_mut().for_each(|value| *value = 2.5);
    assert!(batch.host().unwrap().chunks_exact(4).all(|it| it == 2.5f32.to_ne_bytes()));
}

#[test]
fn a_batch_on_a_device_has_no_view() {
    let Some(machine) = exclusive() else { return };
    machine.schedule(Schedule::Eager);
    let builder =
        Loader::builder(memory(4), evaluation()).device(DeviceChoice::Gpu(0)).runtime(&runtime());
    let mut loader = builder
        .configure(|it| it.decode.placement = Placement::Cpu)
        .batch_size(2)
        .output(DType::F32, Layout::Nchw)
        .build()
        .unwrap();
    let mut batch = loader.epoch().next().unwrap().unwrap();
    assert_eq!(given(&mut batch), [false; 4]);
    assert_eq!(batch.array_shape().iter().product::<usize>() * 4, batch.to_host().unwrap().len());
}

#[test]
fn a_sample_without_a_label_is_none_and_minus_one_in_the_slice() {
    let mut images = jpegs(6);
    images[1].1 = -1;
    images[2] = (b"no image".to_vec(), -1);
    images[3].1 = -5;
    let source = Memory::new(images).unwrap();
    let expected = [Some(0), None, None, Some(-5), Some(4), Some(5)];
    let samples = (0..6).map(|index| (&source as &dyn Source).sample(index).label);
    assert_eq!(samples.collect::<Vec<_>>(), expected);
    let builder = Loader::builder(source, Chain::new().then(Resize::to(8, 8))).batch_size(6);
    let builder = builder.device(DeviceChoice::Cpu).on_error(OnError::Substitute);
    let batch = builder.build().unwrap().epoch().next().unwrap().unwrap();
    let labels: Vec<_> = batch.samples().iter().map(|sample| sample.label).collect();
    assert_eq!(labels, expected);
    // The third sample was substituted, so its label is -100, which loss functions ignore.
    assert_eq!(batch.labels(), [0, -1, -100, -5, 4, 5]);
}
