//! Columns of batches in host memory.

use crate::common::{jpegs, training};
use feedwater::error::Result;
use feedwater::loader::{Batch, DeviceChoice, Loader, LoaderBuilder};
use feedwater::plan::{LastBatch, OnError};
use feedwater::source::Memory;
use feedwater::{DType, ElementType, Layout};

fn builder(samples: Vec<(Vec<u8>, i64)>) -> LoaderBuilder {
    let builder = Loader::builder(Memory::new(samples).unwrap(), training());
    let builder = builder.batch_size(4).device(DeviceChoice::Cpu).epochs(Some(1));
    builder.configure(|it| it.loader.last_batch = LastBatch::Partial)
}

fn batches(builder: LoaderBuilder) -> Vec<Batch> {
    let loader = builder.add_batches(true).build().unwrap();
    loader.into_batches().collect::<Result<_>>().unwrap()
}

/// Names, shapes and element types of all columns.
fn columns(batch: &Batch) -> Vec<(&str, Vec<usize>, ElementType)> {
    batch.columns().map(|it| (it.name(), it.shape(), it.element_type())).collect()
}

#[test]
fn every_batch_has_its_images_labels_and_targets_as_columns() {
    for (dtype, layout) in DType::ALL[1..].iter().flat_map(|&it| Layout::ALL.map(|to| (it, to))) {
        let builder = builder(jpegs(6)).output(dtype, layout);
        let batches = batches(builder.configure(|it| it.targets.classes = Some(7)));
        // The last batch has fewer samples than its slot has room for.
        assert_eq!(batches.iter().map(Batch::len).collect::<Vec<_>>(), [4, 2]);
        for mut batch in batches {
            let len = batch.len();
            let expected = [
                ("image", batch.array_shape().to_vec(), ElementType::from(dtype)),
                ("label", vec![len], ElementType::I64),
                ("target", vec![len, 7], ElementType::F32),
            ];
            assert_eq!(columns(&batch), expected);
            let column = |name| batch.column(name).unwrap();
            assert_eq!(batch.images().bytes(), batch.host());
            assert_eq!(column("image").to_host().unwrap(), batch.to_host().unwrap());
            assert_eq!(column("label").as_slice::<i64>().unwrap(), batch.labels());
            assert_eq!(column("target").as_slice::<f32>(), batch.soft_targets());
            assert_eq!(column("target").as_slice::<i64>(), None);
            assert_eq!(column("target").len_bytes(), len * 7 * 4);
            assert!(batch.columns().all(|it| it.device_ptr().is_none()));
            assert!(
                batch.column("targets").is_none() && batch.column_mut::<i64>("labels").is_none()
            );
            batch.column_mut("label").unwrap()[0] = -3_i64;
            assert_eq!(batch.labels()[0], -3);
            let address = batch.columns().map(|it| it.bytes().unwrap().as_ptr() as usize % 256);
            assert_eq!(address.collect::<Vec<_>>(), [0; 3]);
        }
    }
}

#[test]
fn without_soft_targets_there_is_no_column_of_them() {
    let batch = batches(builder(jpegs(4))).remove(0);
    assert_eq!(columns(&batch).iter().map(|it| it.0).collect::<Vec<_>>(), ["image", "label"]);
    assert_eq!(batch.soft_targets(), None);
}

/// When failed samples are removed, the other samples move in every column.
#[test]
fn samples_keep_their_entries_in_all_columns_when_others_are_dropped() {
    let good = jpegs(8);
    let mut samples = good.clone();
    let failing = [0, 3, 4, 7];
    for at in failing {
        samples[at].0 = b"no image".to_vec();
    }
    let with_targets = |samples, policy| {
        let builder = builder(samples).on_error(policy).batch_size(8).configure(|it| {
            it.loader.shuffle = false;
            it.targets.classes = Some(8);
        });
        batches(builder).remove(0)
    };
    let dropped = with_targets(samples, OnError::Drop);
    let whole = with_targets(good, OnError::Stop);
    let kept: Vec<usize> = (0..8).filter(|at| !failing.contains(at)).collect();
    assert_eq!((dropped.len(), dropped.columns().len()), (kept.len(), 3));
    for (column, whole) in dropped.columns().zip(whole.columns()) {
        let each = whole.len_bytes() / 8;
        let expected = kept.iter().flat_map(|at| &whole.bytes().unwrap()[at * each..][..each]);
        assert!(column.bytes().unwrap().iter().eq(expected), "{column:?}");
    }
}

/// Slots are filled again, also after an epoch was left early while a batch was being filled.
#[test]
fn columns_of_abandoned_batches_are_filled_again() {
    let builder = || {
        let builder = builder(jpegs(16)).batch_size(2).num_workers(2).epochs(Some(6));
        builder.shuffle(true).seed(5)
    };
    let expected: Vec<_> = batches(builder())
        .iter()
        .map(|batch| (batch.epoch(), batch.to_host().unwrap(), batch.labels().to_vec()))
        .collect();
    let mut loader = builder().build().unwrap();
    for epoch in 0..6 {
        let of_epoch = expected.iter().filter(|it| it.0 == epoch);
        let mut compared = 0;
        for (batch, expected) in loader.epoch().take(1 + epoch as usize).zip(of_epoch) {
            let batch = batch.unwrap();
            assert_eq!(batch.labels(), expected.2);
            assert!(batch.to_host().unwrap() == expected.1);
            compared += 1;
        }
        assert_eq!(compared, 1 + epoch);
    }
}
