//! Batches of feedwater in host memory as record batches of Apache Arrow, without a copy.
//!
//! The values of columns are not copied: Arrow's buffers share the memory of the batch, which is a
//! slot of the loader. Only the offsets of lists are copied. The loader refills the slot after the
//! last array that shares it is dropped, slices included. So each array that is kept occupies a
//! slot.
//!
//! | column | type | |
//! |---|---|---|
//! | `image` | `arrow.fixed_shape_tensor` of UInt8, Float16 or Float32 | `[3, height, width]` or `[height, width, 3]`, as the loader's layout |
//! | `label` | Int64 | -1 for a sample without a label |
//! | `target` | fixed-size list of Float32 | one value per class; only if the batch has soft targets |
//! | columns of fields | the element type, FixedSizeList, LargeList, LargeUtf8, LargeBinary, or LargeList of LargeUtf8 for several texts | only if the loader has [`columns`](feedwater::Settings::columns) |
//!
//! ```no_run
//! # fn run(loader: &mut feedwater::loader::Loader) -> feedwater::Result<()> {
//! for batch in loader {
//!     let records = feedwater_arrow::record_batch(batch?)?;
//!     println!("{} rows of {}", records.num_rows(), records.schema());
//! }
//! # Ok(())
//! # }
//! ```

use std::sync::Arc;

use arrow_array::types::{ArrowPrimitiveType, Float16Type, Float32Type, Int64Type, UInt8Type};
use arrow_array::{
    Array, ArrayRef, FixedSizeListArray, LargeBinaryArray, LargeListArray, LargeStringArray,
    PrimitiveArray, RecordBatch,
};
use arrow_buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::extension::FixedShapeTensor;
use arrow_schema::{ArrowError, DataType, Field, Schema};
use feedwater::loader::{Batch, Column};
use feedwater::plan::CellKind;
use feedwater::{ElementType, Error, Layout, Result};

/// Converts a batch to a record batch with all columns of the batch: `image`, `label`, `target` if
/// the batch has soft targets, and the columns of fields.
///
/// # Errors
/// [`Error::Config`] in three cases: the batch is in device memory, its element type is bf16, which
/// Arrow does not have, or an image has more than 2^31 - 1 values.
pub fn record_batch(batch: Batch) -> Result<RecordBatch> {
    if batch.host().is_none() {
        let problem = "the batch is in device memory, which Arrow's buffers are not: build the loader on the CPU";
        return Err(Error::config("device", problem));
    }
    let batch = Arc::new(batch);
    let converted = batch.columns().map(|it| column(&batch, it)).collect::<Result<Vec<_>>>()?;
    let (fields, columns): (Vec<_>, _) = converted.into_iter().unzip();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).map_err(internal)
}

/// Converts a column, and creates its field.
fn column(batch: &Arc<Batch>, column: Column<'_>) -> Result<(Field, ArrayRef)> {
    let name = column.name();
    let values: ArrayRef = match column.element_type() {
        ElementType::U8 => array::<UInt8Type>(batch, name),
        ElementType::I64 => array::<Int64Type>(batch, name),
        ElementType::F16 => array::<Float16Type>(batch, name),
        ElementType::F32 => array::<Float32Type>(batch, name),
        other => {
            let problem = format!("is {other}, which Arrow does not have: use u8, f16 or f32");
            return Err(Error::config("output.dtype", problem));
        }
    };
    let shape = &column.shape()[1..];
    if let Some(offsets) = column.offsets() {
        let lists = lists(column, values, offsets, shape)?;
        return Ok((Field::new(name, lists.data_type().clone(), false), lists));
    }
    if shape.is_empty() {
        return Ok((Field::new(name, values.data_type().clone(), false), values));
    }
    let element = values.data_type().clone();
    let lists = list(values, shape.iter().product())?;
    let mut field = Field::new(name, lists.data_type().clone(), false);
    if name == "image" {
        let tensor = image_type(batch.shape().layout, element, shape)?;
        field.try_with_extension_type(tensor).map_err(internal)?;
    }
    Ok((field, Arc::new(lists)))
}

/// Divides the values of a ragged column into the lists, texts or bytes of its samples.
fn lists(
    column: Column<'_>,
    values: ArrayRef,
    offsets: &[i64],
    shape: &[usize],
) -> Result<ArrayRef> {
    let offsets = OffsetBuffer::new(offsets.to_vec().into());
    let bytes = || values.to_data().buffers()[0].clone();
    Ok(match column.kind() {
        CellKind::Text => {
            Arc::new(LargeStringArray::try_new(offsets, bytes(), None).map_err(internal)?)
        }
        CellKind::Bytes => {
            Arc::new(LargeBinaryArray::try_new(offsets, bytes(), None).map_err(internal)?)
        }
        CellKind::Texts => {
            let ends = column.text_offsets().unwrap_or(&[0]).to_vec();
            let texts = LargeStringArray::try_new(OffsetBuffer::new(ends.into()), bytes(), None);
            let texts = texts.map_err(internal)?;
            let field = Arc::new(Field::new("item", texts.data_type().clone(), false));
            let lists = LargeListArray::try_new(field, offsets, Arc::new(texts), None);
            Arc::new(lists.map_err(internal)?)
        }
        CellKind::Lists => {
            let ends = OffsetBuffer::new(column.text_offsets().unwrap_or(&[0]).to_vec().into());
            let field = Arc::new(Field::new("item", values.data_type().clone(), false));
            let inner = LargeListArray::try_new(field, ends, values, None).map_err(internal)?;
            let field = Arc::new(Field::new("item", inner.data_type().clone(), false));
            Arc::new(
                LargeListArray::try_new(field, offsets, Arc::new(inner), None).map_err(internal)?,
            )
        }
        _ => {
            let entries = match shape.is_empty() {
                true => values,
                false => Arc::new(list(values, shape.iter().product())?) as ArrayRef,
            };
            let field = Arc::new(Field::new("item", entries.data_type().clone(), false));
            Arc::new(LargeListArray::try_new(field, offsets, entries, None).map_err(internal)?)
        }
    })
}

/// Returns the extension type `arrow.fixed_shape_tensor` of images.
fn image_type(layout: Layout, element: DataType, shape: &[usize]) -> Result<FixedShapeTensor> {
    let names = match layout {
        Layout::Nchw => ["C", "H", "W"],
        Layout::Nhwc => ["H", "W", "C"],
    };
    let names = Some(names.map(String::from).into());
    // The axes are in the order of memory, which is Arrow's default. The order is set anyway,
    // because arrow-schema 60.1 would otherwise write metadata that it cannot read.
    let order = Some(vec![0, 1, 2]);
    FixedShapeTensor::try_new(element, shape.to_vec(), names, order).map_err(internal)
}

/// Divides the values into lists of `len` values.
fn list(values: ArrayRef, len: usize) -> Result<FixedSizeListArray> {
    let Ok(len) = i32::try_from(len) else {
        let problem =
            format!("an image has {len} values, and Arrow's lists have at most {}", i32::MAX);
        return Err(Error::config("output", problem));
    };
    let field = Arc::new(Field::new("item", values.data_type().clone(), false));
    FixedSizeListArray::try_new(field, len, values, None).map_err(internal)
}

/// Returns the values of a column as an array that shares the batch.
fn array<T: ArrowPrimitiveType>(batch: &Arc<Batch>, column: &str) -> ArrayRef {
    let shared = Shared { batch: Arc::clone(batch), column: column.to_string() };
    let buffer = Buffer::from(bytes::Bytes::from_owner(shared));
    Arc::new(PrimitiveArray::<T>::new(ScalarBuffer::from(buffer), None))
}

/// A column of a batch in host memory, as bytes.
struct Shared {
    batch: Arc<Batch>,
    column: String,
}

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        self.batch.column(&self.column).and_then(|column| column.bytes()).unwrap_or_default()
    }
}

/// Converts an error that cannot occur, because shapes and lengths of a batch always agree.
fn internal(error: ArrowError) -> Error {
    Error::Internal { problem: format!("Arrow refused a batch: {error}") }
}
