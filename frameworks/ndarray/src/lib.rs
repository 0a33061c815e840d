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

use feedwater::loader::{Batch, Column};
use feedwater::{Element, Error, Result};
use ndarray::{ArrayView1, ArrayView2, ArrayView4, ArrayViewD, ArrayViewMut4};

/// Returns a view of the images of a batch. Its four axes are in the order of the loader's layout.
///
/// # Errors
/// [`Error::Config`] if the batch has another element type than `T`, or is in device memory.
pub fn images<T: Element>(batch: &Batch) -> Result<ArrayView4<'_, T>> {
    let values = values(batch.images(), "output.dtype")?;
    ArrayView4::from_shape(batch.array_shape(), values).map_err(internal)
}

/// Returns a view of the images of a batch like [`images`], through which they can be changed in
/// place.
///
/// # Errors
/// The same errors as those of [`images`].
pub fn images_mut<T: Element>(batch: &mut Batch) -> Result<ArrayViewMut4<'_, T>> {
    let shape = batch.array_shape();
    values::<T>(batch.images(), "output.dtype")?;
    let values = batch.column_mut("image").unwrap_or_default();
    ArrayViewMut4::from_shape(shape, values).map_err(internal)
}

/// Returns a view of the column with this name, see [`Batch::column`]. The first axis is the number
/// of samples.
///
/// # Errors
/// [`Error::Config`] if the batch has no such column, or if the column has another element type
/// than `T` or is in device memory.
pub fn column<'batch, T: Element>(
    batch: &'batch Batch,
    name: &str,
) -> Result<ArrayViewD<'batch, T>> {
    let Some(column) = batch.column(name) else {
        let names: Vec<_> = batch.columns().map(|it| it.name()).collect();
        let problem = format!("{name:?} is not a column of the batch, which has {names:?}");
        return Err(Error::config("column", problem));
    };
    ArrayViewD::from_shape(column.shape(), values(column, "column")?).map_err(internal)
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

/// Returns the values of a column. `key` is the key of an error about the element type.
fn values<'batch, T: Element>(column: Column<'batch>, key: &str) -> Result<&'batch [T]> {
    column.as_slice().ok_or_else(|| {
        let element = column.element_type();
        if element != T::TYPE {
            let problem = format!("is {element}, but the array has elements of {}", T::TYPE);
            return Error::config(key, problem);
        }
        let problem = "the batch is in device memory, which ndarray does not support: build the loader on the CPU";
        Error::config("device", problem)
    })
}

/// Converts an error that cannot occur, because a batch has as many values as its shape requires.
fn internal(error: ndarray::ShapeError) -> Error {
    Error::Internal { problem: format!("the shape of a batch: {error}") }
}
