//! Tests that Arrow's record batches share memory with feedwater's batches, and occupy their slots.

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float16Type, Float32Type, Int64Type, UInt8Type};
use arrow_schema::extension::FixedShapeTensor;
use common::{assert_slot_waits, small_batch, small_batches};
use feedwater::loader::{DeviceChoice, Loader};
use feedwater::op::{Chain, Resize};
use feedwater::plan::ColumnSettings;
use feedwater::source::{FileList, Memory};
use feedwater::{DType, ElementType, Layout, Settings};
use feedwater_arrow::record_batch;

/// Returns all values of the column `image`, and the address of the first value.
fn images<T: arrow_array::ArrowPrimitiveType>(records: &RecordBatch) -> (&[T::Native], *const u8) {
    let values = records["image"].as_fixed_size_list().values().as_primitive::<T>().values();
    (values, values.as_ptr().cast())
}

#[test]
fn columns_have_the_values_of_the_batch_without_a_copy() {
    let batch = small_batch(DType::F32, Layout::Nchw);
    let (there, labels) = (batch.host().unwrap().as_ptr(), batch.labels().as_ptr());
    let values = batch.as_f32().unwrap().to_vec();
    let records = record_batch(batch).unwrap();
    assert_eq!(records.num_rows(), 4);
    assert_eq!(images::<Float32Type>(&records), (&values[..], there));
    let column = records["label"].as_primitive::<Int64Type>().values();
    assert_eq!((column.as_ptr(), &column[..]), (labels, &[0, 1, 2, 3][..]));
}

#[test]
fn the_field_says_shape_and_axes() {
    for (layout, shape, names) in
        [(Layout::Nchw, [3, 32, 32], ["C", "H", "W"]), (Layout::Nhwc, [32, 32, 3], ["H", "W", "C"])]
    {
        let records = record_batch(small_batch(DType::U8, layout)).unwrap();
        let field = records.schema_ref().field(0).clone();
        assert_eq!(field.name(), "image");
        let tensor = field.try_extension_type::<FixedShapeTensor>().unwrap();
        assert_eq!(tensor.shape(), shape);
        assert_eq!(tensor.dimension_names().unwrap(), names);
    }
}

#[test]
fn every_element_type_that_arrow_has_is_taken_without_a_copy() {
    let bytes = small_batch(DType::U8, Layout::Nchw);
    let there = bytes.host().unwrap().as_ptr();
    assert_eq!(images::<UInt8Type>(&record_batch(bytes).unwrap()).1, there);
    let half = small_batch(DType::F16, Layout::Nchw);
    let there = half.host().unwrap().as_ptr();
    assert_eq!(images::<Float16Type>(&record_batch(half).unwrap()).1, there);
    let error = record_batch(small_batch(DType::BF16, Layout::Nchw)).unwrap_err().to_string();
    assert!(error.contains("output.dtype") && error.contains("bf16"), "{error}");
}

#[test]
fn a_slot_waits_for_the_last_array_that_shares_it() {
    let loader = || small_batches(DType::F32, Layout::Nchw).unwrap();
    assert_slot_waits(loader(), |batch| record_batch(batch).unwrap());
    assert_slot_waits(loader(), |batch| record_batch(batch).unwrap().slice(3, 1));
    // Labels are stored in the batch too, so an array of labels also occupies the slot.
    assert_slot_waits(loader(), |batch| record_batch(batch).unwrap()["label"].clone());
}

#[test]
fn soft_targets_are_a_column() {
    let image = b"P6 1 1 255\n\x01\x02\x03".to_vec();
    let source = Memory::new(vec![(image.clone(), 2), (image, 0)]).unwrap();
    let mut settings = Settings::default();
    settings.targets.classes = Some(3);
    let builder = Loader::builder(source, Chain::new().then(Resize::to(1, 1))).settings(settings);
    let mut loader = builder.batch_size(2).device(DeviceChoice::Cpu).build().unwrap();
    let batch = loader.epoch().next().unwrap().unwrap();
    let there = batch.soft_targets().unwrap().as_ptr();
    let records = record_batch(batch).unwrap();
    let targets = records["target"].as_fixed_size_list();
    let values = targets.values().as_primitive::<Float32Type>().values();
    assert_eq!((targets.value_length(), values.as_ptr()), (3, there));
    assert_eq!(values[..], [0.0, 0.0, 1.0, 1.0, 0.0, 0.0]);
}

/// Columns that are made from fields become Arrow's lists, texts and bytes.
#[test]
fn columns_of_fields_become_lists_and_texts() {
    let folder = tempfile::tempdir().unwrap();
    let mut lines = "path,text,raw,number,box,boxes,texts\n".to_string();
    for number in 0..3 {
        let image = b"P6 2 1 255\n\x01\x02\x03\x04\x05\x06";
        std::fs::write(folder.path().join(format!("{number}.ppm")), image).unwrap();
        let texts = vec![format!("\"\"{number}é\"\""); number].join(", ");
        let boxes: Vec<[usize; 2]> = (0..number).map(|it| [it, number]).collect();
        lines += &format!(
            "{number}.ppm,\"é{number}\",b{number},{number},\"[{number}, 5]\",\"{boxes:?}\",\"[{texts}]\"\n"
        );
    }
    let list = folder.path().join("list.csv");
    std::fs::write(&list, lines).unwrap();
    let chain = Chain::new().then(Resize::to(2, 2));
    let builder = Loader::builder(FileList::open(list).unwrap(), chain).batch_size(3);
    let builder = builder.device(DeviceChoice::Cpu).epochs(Some(1)).configure(|settings| {
        settings.columns = vec![
            ColumnSettings::text("text"),
            ColumnSettings::bytes("raw"),
            ColumnSettings::array("number", ElementType::I64, &[]),
            ColumnSettings::array("box", ElementType::F32, &[2]),
            ColumnSettings::list("boxes", ElementType::F32, &[2]),
            ColumnSettings::texts("texts"),
        ];
    });
    let batch = builder.build().unwrap().epoch().next().unwrap().unwrap();
    let first = batch.column("texts").unwrap().bytes().unwrap().as_ptr();
    let address = batch.column("text").unwrap().bytes().unwrap().as_ptr();
    let records = record_batch(batch).unwrap();
    assert_eq!((records.num_rows(), records.num_columns()), (3, 8));
    let texts = records["text"].as_string::<i64>();
    assert_eq!(texts.iter().flatten().collect::<Vec<_>>(), ["é0", "é1", "é2"]);
    assert_eq!(texts.value_data().as_ptr(), address);
    let raw = records["raw"].as_binary::<i64>();
    assert_eq!(raw.iter().flatten().collect::<Vec<_>>(), [b"b0", b"b1", b"b2"]);
    assert_eq!(records["number"].as_primitive::<Int64Type>().values(), &[0, 1, 2]);
    let flat = |it: &dyn arrow_array::Array| {
        it.as_fixed_size_list().values().as_primitive::<Float32Type>().values().to_vec()
    };
    assert_eq!(flat(&records["box"]), [0.0, 5.0, 1.0, 5.0, 2.0, 5.0]);
    let boxes = records["boxes"].as_list::<i64>();
    assert_eq!((boxes.value_length(0), boxes.value_length(2)), (0, 2));
    assert_eq!(flat(&boxes.value(2)), [0.0, 2.0, 1.0, 2.0]);
    let lists = records["texts"].as_list::<i64>();
    let of_sample = |sample: usize| {
        let texts = lists.value(sample);
        texts.as_string::<i64>().iter().flatten().map(String::from).collect::<Vec<_>>()
    };
    assert_eq!([0, 1, 2].map(|sample| of_sample(sample).len()), [0, 1, 2]);
    assert_eq!(of_sample(2), ["2é", "2é"]);
    assert_eq!(lists.values().as_string::<i64>().value_data().as_ptr(), first);
}
