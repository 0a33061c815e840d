//! Batches of feedwater as tensors of tch, without a copy on the CPU and on CUDA.
//!
//! [`images`] passes the batch to libtorch by DLPack. libtorch returns the batch's memory (its
//! slot) to the loader when the last tensor that shares it is dropped, views and shallow clones
//! included. So each tensor that is kept occupies a slot.
//!
//! On CUDA, libtorch works in the legacy default stream, unless the program chooses another one.
//! [`images`] makes the legacy default stream wait until the batch is filled. The loader refills
//! the slot after the work that is in this stream when the last tensor is dropped. The host does
//! not wait. CUDA has not been tested on a real GPU.
//!
//! tch 0.26 requires libtorch 2.13. Its `torch-sys` finds libtorch by `LIBTORCH`, or, with
//! `LIBTORCH_USE_PYTORCH=1`, through the first Python in `PATH`.
//!
//! ```no_run
//! # fn run(loader: &mut feedwater::loader::Loader) -> feedwater::Result<()> {
//! for batch in loader {
//!     let batch = batch?;
//!     let labels = feedwater_tch::labels(&batch);
//!     let images = feedwater_tch::images(batch)?; // [samples, 3, height, width]
//! #   drop((images, labels));
//! }
//! # Ok(())
//! # }
//! ```

use std::borrow::Cow;

use feedwater::handoff::dlpack::{self, ConsumerStream};
use feedwater::loader::{Batch, Column};
use feedwater::{ElementType, Error, Result};
use tch::{Cuda, Device, Kind, Tensor};

mod import;

/// Converts the images of a batch to a tensor with the batch's element type, on the batch's device.
/// Its four axes are in the order of the loader's layout.
///
/// # Errors
/// [`Error::Config`] if the batch is on a GPU and libtorch has no CUDA, [`Error::Device`] if the
/// driver or libtorch fails.
pub fn images(batch: Batch) -> Result<Tensor> {
    if matches!(device(&batch), Device::Cuda(_)) && !Cuda::is_available() {
        let problem =
            "the batch is on a GPU, and this libtorch has no CUDA: build the loader on the CPU";
        return Err(Error::config("device", problem));
    }
    import::tensor(dlpack::export(batch, &ConsumerStream::Legacy)?)
}

/// Copies the labels to a tensor `[samples]` of i64 on the device of the batch. A sample without a
/// label has -1.
pub fn labels(batch: &Batch) -> Tensor {
    Tensor::from_slice(batch.labels()).to_device(device(batch))
}

/// Copies the soft targets to a tensor `[samples, classes]` of f32 on the device of the batch.
///
/// # Errors
/// [`Error::Config`] if the batch has no soft targets, [`Error::Device`] if the driver fails.
pub fn soft_targets(batch: &Batch) -> Result<Tensor> {
    if batch.classes() == 0 {
        let problem =
            "is not set, so the batch has no soft targets; set it to the number of classes";
        return Err(Error::config("targets.classes", problem));
    }
    let targets = Tensor::from_slice(&batch.soft_targets_to_host()?);
    let shape = [batch.len() as i64, batch.classes() as i64];
    Ok(targets.reshape(shape).to_device(device(batch)))
}

/// Copies the values of a column to a tensor on the device of the batch, see [`Batch::column`]. The
/// first axis is the number of samples. For a ragged column it is the number of entries of all
/// samples, and [`offsets`] tells which sample has which entries.
///
/// # Errors
/// [`Error::Config`] if the batch has no such column, [`Error::Device`] if the driver fails.
pub fn column(batch: &Batch, name: &str) -> Result<Tensor> {
    let column = found(batch, name)?;
    let kind = match column.element_type() {
        ElementType::U8 => Kind::Uint8,
        ElementType::I64 => Kind::Int64,
        ElementType::F16 => Kind::Half,
        ElementType::BF16 => Kind::BFloat16,
        ElementType::F32 => Kind::Float,
        other => {
            let problem = format!("{name:?} has elements of {other}, which tch does not have");
            return Err(Error::config("column", problem));
        }
    };
    let shape: Vec<i64> = column.shape().iter().map(|side| *side as i64).collect();
    let bytes =
        column.bytes().map_or_else(|| column.to_host().map(Cow::Owned), |it| Ok(it.into()))?;
    Ok(Tensor::from_data_size(&bytes, &shape, kind).to_device(device(batch)))
}

/// Copies the offsets of a ragged column to a tensor `[samples + 1]` of i64 on the device of the
/// batch: sample `i` has the entries from `offsets[i]` up to, but without, `offsets[i + 1]`.
///
/// # Errors
/// [`Error::Config`] if the batch has no such column, or if the column is not ragged.
pub fn offsets(batch: &Batch, name: &str) -> Result<Tensor> {
    let Some(offsets) = found(batch, name)?.offsets() else {
        let problem = format!("{name:?} is not ragged: all samples have the same number of values");
        return Err(Error::config("column", problem));
    };
    Ok(Tensor::from_slice(offsets).to_device(device(batch)))
}

fn found<'batch>(batch: &'batch Batch, name: &str) -> Result<Column<'batch>> {
    batch.column(name).ok_or_else(|| {
        let names: Vec<_> = batch.columns().map(|it| it.name()).collect();
        let problem = format!("{name:?} is not a column of the batch, which has {names:?}");
        Error::config("column", problem)
    })
}

/// Returns the device of a batch, as tch's type.
pub fn device(batch: &Batch) -> Device {
    match batch.stream() {
        Some(stream) => Device::Cuda(stream.device().ordinal()),
        None => Device::Cpu,
    }
}
