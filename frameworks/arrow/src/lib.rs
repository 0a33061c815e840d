//! Batches of feedwater in host memory as record batches of Apache Arrow, without a copy.
//!
//! Images, labels and soft targets are not copied: Arrow's buffers share the memory of the batch,
//! which is a slot of the loader. The loader refills the slot after the last array that shares it
//! is dropped, slices included. So each array that is kept occupies a slot.
//!
//! | column | type | |
//! |---|---|---|
//! | `image` | `arrow.fixed_shape_tensor` of UInt8, Float16 or Float32 | `[3, height, width]` or `[height, width, 3]`, as the loader's layout |
//! | `label` | Int64 | -1 for a sample without a label |
//! | `target` | fixed-size list of Float32 | one value per class; only if the batch has soft targets |
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
use arrow_array::{Array, ArrayRef, FixedSizeListArray, PrimitiveArray, RecordBatch};
use arrow_buffer::{Buffer, ScalarBuffer, ToByteSlice};
use arrow_schema::extension::FixedShapeTensor;
use arrow_schema::{ArrowError, DataType, Field, Schema};
use feedwater::loader::Batch;
use feedwater::{DType, Error, Layout, Result};

/// Converts a batch to a record batch with the columns `image`, `label` and, if the batch has soft
/// targets, `target`.
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
    let (image, images) = images(&batch)?;
    let labels: ArrayRef = Arc::new(array::<Int64Type>(&batch, Part::Labels));
    let mut fields = vec![image, Field::new("label", DataType::Int64, false)];
    let mut columns = vec![images, labels];
    if batch.classes() > 0 {
        let values = array::<Float32Type>(&batch, Part::Targets);
        let targets = list(values, batch.classes())?;
        fields.push(Field::new("target", targets.data_type().clone(), false));
        columns.push(Arc::new(targets));
    }
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).map_err(internal)
}

/// Returns the column `image`, and its field with the name and metadata of the extension type
/// `arrow.fixed_shape_tensor`.
fn images(batch: &Arc<Batch>) -> Result<(Field, ArrayRef)> {
    let shape = &batch.array_shape()[1..];
    let len = shape.iter().product();
    let images = match batch.shape().dtype {
        DType::U8 => list(array::<UInt8Type>(batch, Part::Images), len),
        DType::F16 => list(array::<Float16Type>(batch, Part::Images), len),
        DType::F32 => list(array::<Float32Type>(batch, Part::Images), len),
        other => {
            let problem = format!("is {other}, which Arrow does not have: use u8, f16 or f32");
            return Err(Error::config("output.dtype", problem));
        }
    }?;
    let names = match batch.shape().layout {
        Layout::Nchw => ["C", "H", "W"],
        Layout::Nhwc => ["H", "W", "C"],
    };
    let names = Some(names.map(String::from).into());
    // The axes are in the order of memory, which is Arrow's default. The order is set anyway,
    // because arrow-schema 60.1 would otherwise write metadata that it cannot read.
    let order = Some(vec![0, 1, 2]);
    let tensor = FixedShapeTensor::try_new(images.value_type(), shape.to_vec(), names, order);
    let mut field = Field::new("image", images.data_type().clone(), false);
    field.try_with_extension_type(tensor.map_err(internal)?).map_err(internal)?;
    Ok((field, Arc::new(images)))
}

/// Divides the values into lists of `len` values.
fn list<T: ArrowPrimitiveType>(
    values: PrimitiveArray<T>,
    len: usize,
) -> Result<FixedSizeListArray> {
    let Ok(len) = i32::try_from(len) else {
        let problem =
            format!("an image has {len} values, and Arrow's lists have at most {}", i32::MAX);
        return Err(Error::config("output", problem));
    };
    let field = Arc::new(Field::new("item", T::DATA_TYPE, false));
    FixedSizeListArray::try_new(field, len, Arc::new(values), None).map_err(internal)
}

/// Returns a part of a batch as an array that shares the batch.
fn array<T: ArrowPrimitiveType>(batch: &Arc<Batch>, part: Part) -> PrimitiveArray<T> {
    let bytes = bytes::Bytes::from_owner(Shared { batch: Arc::clone(batch), part });
    PrimitiveArray::new(ScalarBuffer::from(Buffer::from(bytes)), None)
}

/// A part of a batch in host memory, as bytes.
struct Shared {
    batch: Arc<Batch>,
    part: Part,
}

enum Part {
    Images,
    Labels,
    Targets,
}

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        match self.part {
            Part::Images => self.batch.host().unwrap_or_default(),
            Part::Labels => self.batch.labels().to_byte_slice(),
            Part::Targets => self.batch.soft_targets().unwrap_or_default().to_byte_slice(),
        }
    }
}

/// Converts an error that cannot occur, because shapes and lengths of a batch always agree.
fn internal(error: ArrowError) -> Error {
    Error::Internal { problem: format!("Arrow refused a batch: {error}") }
}
