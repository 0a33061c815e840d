//! Columns of lists as DLPack tensors: values and offsets.

use std::sync::Arc;

use crate::common::{jpegs, training};
use crate::with_fields::{Values, WithFields};
use feedwater::ElementType;
use feedwater::handoff::dlpack::{self, ConsumerStream, DLManagedTensorVersioned, READ_ONLY};
use feedwater::loader::{Batch, DeviceChoice, Loader};
use feedwater::plan::ColumnSettings;
use feedwater::source::Memory;

fn batch() -> Batch {
    let lists = (0..4).map(|at| (0..3 * at).map(|it| it as f32).collect()).collect();
    let source = WithFields {
        images: Memory::new(jpegs(4)).unwrap(),
        fields: vec![("numbers", Values::Lists(lists))],
    };
    let builder = Loader::builder(source, training()).batch_size(4).device(DeviceChoice::Cpu);
    let mut loader = builder
        .configure(|it| {
            let list = ColumnSettings::list("numbers", ElementType::F32, &[3]);
            it.columns = vec![list];
        })
        .build()
        .unwrap();
    loader.epoch().next().unwrap().unwrap()
}

#[test]
fn offsets_are_a_tensor_of_integers_on_the_memory_of_the_batch() {
    let stream = ConsumerStream::default();
    let batch = Arc::new(batch());
    let column = batch.column("numbers").unwrap();
    assert_eq!(column.offsets().unwrap(), [0, 0, 1, 3, 6]);
    let values = dlpack::export_column(batch.clone(), "numbers", &stream).unwrap();
    let offsets = dlpack::export_offsets(batch.clone(), "numbers", &stream).unwrap();
    assert_eq!(values.tensor().data.addr(), column.bytes().unwrap().as_ptr().addr());
    let tensor = offsets.tensor();
    assert_eq!(tensor.data.addr(), column.offsets().unwrap().as_ptr().addr());
    assert_eq!((tensor.ndim, tensor.dtype.code, tensor.dtype.bits), (1, 0, 64));
    assert_eq!(tensor.device.device_type, dlpack::CPU);
    assert_eq!(offsets.managed().flags, READ_ONLY);
    for name in ["image", "label"] {
        let error = dlpack::export_offsets(batch.clone(), name, &stream).unwrap_err();
        let words = format!("{name:?} has no offsets, because it is dense");
        assert!(error.to_string().contains(&words), "{error}");
    }
    let error = dlpack::export_offsets(batch.clone(), "boxes", &stream).unwrap_err();
    assert!(error.to_string().contains("\"boxes\" is not a column"), "{error}");
}

#[test]
fn a_split_column_gives_its_offsets_once() {
    let batch = batch();
    let expected = batch.column("numbers").unwrap().offsets().unwrap().to_vec();
    let mut columns = dlpack::split_columns(batch, &["image", "numbers"]).unwrap();
    assert!(columns[0].take_offsets().is_none(), "images are dense");
    let offsets = columns[1].take_offsets().unwrap();
    assert!(columns[1].take_offsets().is_none());
    assert!(offsets.is_offsets() && !columns[1].is_offsets());
    assert_eq!(offsets.name(), "numbers");
    assert_eq!(offsets.to_host().unwrap(), bytemuck::cast_slice::<i64, u8>(&expected));
    assert_ne!(offsets.address(), columns[1].address());
    let exported = offsets.export::<DLManagedTensorVersioned>(&ConsumerStream::default()).unwrap();
    // The tensor keeps the batch, also without the other columns.
    drop(columns);
    assert_eq!((exported.managed().flags, exported.tensor().ndim), (0, 1));
}

#[test]
fn a_lent_column_is_still_exported() {
    let mut columns = dlpack::split_columns(batch(), &["image", "numbers"]).unwrap();
    let stream = ConsumerStream::default();
    let offsets = columns[1].take_offsets().unwrap();
    for column in [&columns[1], &offsets] {
        let lent: Vec<_> = (0..2)
            .map(|_| column.lend().export::<DLManagedTensorVersioned>(&stream).unwrap())
            .collect();
        for tensor in &lent {
            assert_eq!(tensor.tensor().data.addr() as u64, column.address());
            assert_eq!(tensor.managed().flags, READ_ONLY);
        }
        assert!(column.lend().is_offsets() == column.is_offsets());
    }
    let lent = columns[1].lend();
    assert!(columns[1].lend().take_offsets().is_none());
    let address = columns[1].address();
    let exported = columns.remove(1).export::<DLManagedTensorVersioned>(&stream).unwrap();
    assert_eq!((exported.managed().flags, exported.tensor().data.addr() as u64), (0, address));
    // A lent column keeps the batch.
    drop((columns, exported, offsets));
    assert_eq!(lent.to_host().unwrap().len(), 6 * 3 * 4);
}
