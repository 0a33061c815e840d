//! Batches of feedwater in host memory as views of ndarray, without a copy.
//!
//! ndarray's own arrays store their values in a `Vec`. So without a copy, the images can only be a
//! view that borrows the batch. The loader refills the batch's memory after the batch is dropped.
//! To keep the images longer, copy them with `images(&batch)?.to_owned()`.
//!
//! ```no_run
//! # fn run(loader: &mut feedwater::loader::Loader) -> feedwater::Result<()> {
//! for batch in loader {
//!     let batch = batch?;
//!     let images = feedwater_ndarray::images::<f32>(&batch)?; // [samples, 3, height, width]
//!     println!("{:?} {:?} {}", images.dim(), images.mean(), feedwater_ndarray::labels(&batch));
//! }
//! # Ok(())
//! # }
//! ```

use feedwater::half::{bf16, f16};
use feedwater::loader::Batch;
use feedwater::{Error, Result};
use ndarray::{ArrayView1, ArrayView2, ArrayView4, ArrayViewMut4};

/// Returns a view of the images of a batch. Its four axes are in the order of the loader's layout.
///
/// # Errors
/// [`Error::Config`] if the batch has another element type than `T`, or is in device memory.
pub fn images<T: Element>(batch: &Batch) -> Result<ArrayView4<'_, T>> {
    let values = T::values(batch).ok_or_else(|| unfit::<T>(batch))?;
    ArrayView4::from_shape(batch.array_shape(), values).map_err(internal)
}

/// Returns a view of the images of a batch like [`images`], through which they can be changed in
/// place.
///
/// # Errors
/// The same errors as those of [`images`].
pub fn images_mut<T: Element>(batch: &mut Batch) -> Result<ArrayViewMut4<'_, T>> {
    let (shape, unfit) = (batch.array_shape(), unfit::<T>(batch));
    let values = T::values_mut(batch).ok_or(unfit)?;
    ArrayViewMut4::from_shape(shape, values).map_err(internal)
}

/// Returns a view `[samples]` of the labels. A sample without a label has -1.
pub fn labels(batch: &Batch) -> ArrayView1<'_, i64> {
    ArrayView1::from(batch.labels())
}

/// Returns a view `[samples, classes]` of the soft targets.
///
/// # Errors
/// [`Error::Config`] if the batch has no soft targets, or is in device memory.
pub fn soft_targets(batch: &Batch) -> Result<ArrayView2<'_, f32>> {
    let Some(values) = batch.soft_targets() else {
        let problem = "the batch has no soft targets in host memory: set `targets.classes`, and build the loader on the CPU";
        return Err(Error::config("targets.classes", problem));
    };
    ArrayView2::from_shape((batch.len(), batch.classes()), values).map_err(internal)
}

/// Element type of a batch: u8, f16, bf16 or f32.
pub trait Element: Sized + 'static {
    /// The value of `output.dtype` for this element type.
    const DTYPE: feedwater::DType;
    /// Returns the values of a batch, or `None` if it has another element type or is in device
    /// memory.
    fn values(batch: &Batch) -> Option<&[Self]>;
    /// Returns the values of a batch like [`values`](Self::values), for changes in place.
    fn values_mut(batch: &mut Batch) -> Option<&mut [Self]>;
}

macro_rules! element {
    ($type:ty, $dtype:ident, $values:ident, $values_mut:ident) => {
        impl Element for $type {
            const DTYPE: feedwater::DType = feedwater::DType::$dtype;

            fn values(batch: &Batch) -> Option<&[Self]> {
                batch.$values()
            }

            fn values_mut(batch: &mut Batch) -> Option<&mut [Self]> {
                batch.$values_mut()
            }
        }
    };
}

element!(u8, U8, as_u8, as_u8_mut);
element!(f16, F16, as_f16, as_f16_mut);
element!(bf16, BF16, as_bf16, as_bf16_mut);
element!(f32, F32, as_f32, as_f32_mut);

/// Returns the error for a batch without values of this type in host memory.
fn unfit<T: Element>(batch: &Batch) -> Error {
    let dtype = batch.shape().dtype;
    if dtype != T::DTYPE {
        return Error::config(
            "output.dtype",
            format!("is {dtype}, but the array has elements of {}", T::DTYPE),
        );
    }
    Error::config(
        "device",
        "the batch is in device memory, which ndarray does not support: build the loader on the CPU",
    )
}

/// Converts an error that cannot occur, because a batch has as many values as its shape requires.
fn internal(error: ndarray::ShapeError) -> Error {
    Error::Internal { problem: format!("the shape of a batch: {error}") }
}
