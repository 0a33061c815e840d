//! Batches of feedwater as tensors of candle.
//!
//! candle's tensors own their memory: a `Vec` on the CPU, a `CudaSlice` on a GPU. So the images
//! must be copied once. Directly after the copy, the batch's memory (its slot) returns to the
//! loader.
//!
//! | from a batch | to | copies |
//! |---|---|---|
//! | in host memory | a new tensor on the CPU, by [`images`] | one copy, into new memory |
//! | in host memory | an existing tensor on the CPU, by [`copy_images`] | one copy, without an allocation |
//! | in host memory | a new tensor on a GPU, by [`images`] | one copy, from host to device memory |
//! | in device memory | a new or an existing tensor on the same GPU | one copy on the GPU, in candle's stream |
//!
//! Linux provides large new memory page by page, which can take longer than the copy itself. `cargo
//! run -p feedwater-candle --example candle-copy` measures copies into new memory and into an
//! existing tensor. A batch of u8 has a quarter of the size of a batch of f32.
//!
//! Batches in device memory need the feature `cuda`, which has not been tested on a real GPU. The
//! host does not wait. candle's stream waits until the batch is filled, and the loader refills the
//! slot after the copy.
//!
//! ```no_run
//! use candle_core::Device;
//!
//! # fn run(loader: &mut feedwater::loader::Loader) -> Result<(), Box<dyn std::error::Error>> {
//! let device = Device::Cpu;
//! for batch in loader {
//!     let batch = batch?;
//!     let labels = feedwater_candle::labels(&batch, &device)?;
//!     let images = feedwater_candle::images(batch, &device)?; // [samples, 3, height, width]
//! #   drop((images, labels));
//! }
//! # Ok(())
//! # }
//! ```

use std::borrow::Cow;

use candle_core::{DType, Device, Result, Tensor};
use feedwater::ElementType;
use feedwater::loader::{Batch, Column};

#[cfg(feature = "cuda")]
mod cuda;
mod host;

/// Copies the images of a batch to a new tensor with the batch's element type. Its four axes are in
/// the order of the loader's layout.
///
/// # Errors
/// Fails if candle fails. For a batch in device memory, also fails if `device` is not the GPU of
/// the batch, or if the feature `cuda` is not enabled.
pub fn images(batch: Batch, device: &Device) -> Result<Tensor> {
    match batch.host() {
        Some(_) => host::images(&batch, device),
        #[cfg(feature = "cuda")]
        None => cuda::images(batch, device),
        #[cfg(not(feature = "cuda"))]
        None => Err(without_cuda()),
    }
}

/// Copies the images of a batch into an existing tensor with the same shape, element type and kind
/// of device.
///
/// Everything that shares the memory of `tensor` gets the new values: clones, views, and graphs
/// whose backward pass has not run yet. So call this function after the backward pass of the
/// previous batch.
///
/// The last batch of an epoch may be smaller than `tensor`, which is an error. With
/// [`LastBatch::Drop`](feedwater::LastBatch), the loader omits such a batch.
///
/// # Errors
/// Fails if shape, element type or device differ, if `tensor` is not contiguous, or if candle
/// fails. On an error, `tensor` is unchanged.
pub fn copy_images(batch: Batch, tensor: &Tensor) -> Result<()> {
    let (shape, dtype) = (batch.array_shape(), dtype(&batch)?);
    if tensor.dims() != shape || tensor.dtype() != dtype {
        let (dims, has) = (tensor.dims(), tensor.dtype());
        candle_core::bail!(
            "a batch of {shape:?} {dtype:?} does not fit a tensor of {dims:?} {has:?}"
        );
    }
    match batch.host() {
        Some(_) => tensor.inplace_op1(&host::Copy(&batch)),
        #[cfg(feature = "cuda")]
        None => cuda::copy_images(batch, tensor),
        #[cfg(not(feature = "cuda"))]
        None => Err(without_cuda()),
    }
}

/// Copies the labels to a tensor `[samples]` of i64. A sample without a label has -1.
///
/// # Errors
/// Fails if candle cannot create the tensor.
pub fn labels(batch: &Batch, device: &Device) -> Result<Tensor> {
    Tensor::from_slice(batch.labels(), batch.len(), device)
}

/// Copies the soft targets to a tensor `[samples, classes]` of f32.
///
/// # Errors
/// Fails if the batch has no soft targets, or if the driver or candle fails.
pub fn soft_targets(batch: &Batch, device: &Device) -> Result<Tensor> {
    if batch.classes() == 0 {
        candle_core::bail!(
            "the batch has no soft targets: set `targets.classes` to the number of classes"
        );
    }
    let targets = batch.soft_targets_to_host().map_err(candle_core::Error::wrap)?;
    Tensor::from_vec(targets, (batch.len(), batch.classes()), device)
}

/// Copies the values of a column to a tensor, see [`Batch::column`]. The first axis is the number
/// of samples. For a ragged column it is the number of entries of all samples, and [`offsets`]
/// tells which sample has which entries.
///
/// # Errors
/// Fails if the batch has no such column, or if the driver or candle fails.
pub fn column(batch: &Batch, name: &str, device: &Device) -> Result<Tensor> {
    let column = found(batch, name)?;
    let dtype = match column.element_type() {
        ElementType::U8 => DType::U8,
        ElementType::I64 => DType::I64,
        ElementType::F16 => DType::F16,
        ElementType::BF16 => DType::BF16,
        ElementType::F32 => DType::F32,
        other => candle_core::bail!("candle has no element type {other}"),
    };
    let bytes = match column.bytes() {
        Some(bytes) => Cow::Borrowed(bytes),
        None => Cow::Owned(column.to_host().map_err(candle_core::Error::wrap)?),
    };
    Tensor::from_raw_buffer(&bytes, dtype, &column.shape(), device)
}

/// Copies the offsets of a ragged column to a tensor `[samples + 1]` of i64: sample `i` has the
/// entries from `offsets[i]` up to, but without, `offsets[i + 1]`.
///
/// # Errors
/// Fails if the batch has no such column, if the column is not ragged, or if candle fails.
pub fn offsets(batch: &Batch, name: &str, device: &Device) -> Result<Tensor> {
    let Some(offsets) = found(batch, name)?.offsets() else {
        candle_core::bail!("{name:?} is not ragged: all samples have the same number of values");
    };
    Tensor::from_slice(offsets, offsets.len(), device)
}

fn found<'batch>(batch: &'batch Batch, name: &str) -> Result<Column<'batch>> {
    batch.column(name).ok_or_else(|| {
        let names: Vec<_> = batch.columns().map(|it| it.name()).collect();
        let problem = format!("{name:?} is not a column of the batch, which has {names:?}");
        candle_core::Error::Msg(problem)
    })
}

/// Converts the element type of a batch to candle's type.
///
/// # Errors
/// Fails if candle has no such element type.
pub fn dtype(batch: &Batch) -> Result<DType> {
    Ok(match batch.shape().dtype {
        feedwater::DType::U8 => DType::U8,
        feedwater::DType::F16 => DType::F16,
        feedwater::DType::BF16 => DType::BF16,
        feedwater::DType::F32 => DType::F32,
        other => candle_core::bail!("candle has no element type {other}"),
    })
}

#[cfg(not(feature = "cuda"))]
fn without_cuda() -> candle_core::Error {
    candle_core::Error::Msg(
        "the batch is in device memory: enable the feature `cuda` of feedwater-candle, or build the loader on the CPU".into(),
    )
}
