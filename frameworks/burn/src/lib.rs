//! Batches of feedwater as tensors of burn.
//!
//! | from a batch | to | copies |
//! |---|---|---|
//! | in host memory | a tensor of the `flex` device | no copy: the tensor owns the batch |
//! | in host memory | a tensor of another device | one copy, from host memory to this device |
//! | in device memory | any tensor | not supported: [`Error::Config`] |
//!
//! burn's `flex` device stores the values of a tensor in a `Bytes`, which may refer to memory that
//! another owner has allocated. [`images`] creates a `Bytes` that refers to the batch's slot, its
//! memory in the loader. The loader refills the slot after the last tensor that shares it is
//! dropped. So each tensor that is kept occupies a slot. An operation that would change the values
//! in place copies them first.
//!
//! With autodiff, the graph of a forward pass keeps the images. burn frees the graph in the
//! backward pass. So evaluate with `Module::valid` on a device without autodiff. A loop that never
//! calls `backward` would occupy every slot, and then wait forever for a free slot.
//!
//! ```no_run
//! use burn::tensor::Device;
//!
//! # fn run(loader: &mut feedwater::loader::Loader) -> feedwater::Result<()> {
//! let device = Device::default();
//! for batch in loader {
//!     let batch = batch?;
//!     let labels = feedwater_burn::labels(&batch, &device);
//!     let images = feedwater_burn::images(batch, &device)?; // [samples, 3, height, width]
//! #   drop((images, labels));
//! }
//! # Ok(())
//! # }
//! ```

use burn::tensor::{AllocationProperty, Bytes, DType, Device, Int, Tensor, TensorData};
use feedwater::loader::{Batch, Column};
use feedwater::{ElementType, Error, Result};

/// Converts the images of a batch of f32, f16 or bf16 to a float tensor. Its four axes are in the
/// order of the loader's layout.
///
/// # Errors
/// [`Error::Config`] if the batch is in device memory, or has elements of u8, which [`pixels`]
/// converts.
pub fn images(batch: Batch, device: &Device) -> Result<Tensor<4>> {
    let dtype = match batch.shape().dtype {
        feedwater::DType::F32 => DType::F32,
        feedwater::DType::F16 => DType::F16,
        feedwater::DType::BF16 => DType::BF16,
        other => {
            let problem = format!(
                "is {other}, which burn has no float tensor for: use f32, f16 or bf16, or `pixels` for u8"
            );
            return Err(Error::config("output.dtype", problem));
        }
    };
    Ok(Tensor::from_data(data(batch, dtype)?, (device, dtype)))
}

/// Converts the images of a batch of u8 to a tensor of integers. Its four axes are in the order of
/// the loader's layout.
///
/// # Errors
/// [`Error::Config`] if the batch is in device memory, or has another element type, which
/// [`images`] converts.
pub fn pixels(batch: Batch, device: &Device) -> Result<Tensor<4, Int>> {
    let dtype = batch.shape().dtype;
    if dtype != feedwater::DType::U8 {
        let problem = format!("is {dtype}, but pixels are u8: use `images`");
        return Err(Error::config("output.dtype", problem));
    }
    Ok(Tensor::from_data(data(batch, DType::U8)?, (device, DType::U8)))
}

/// Copies the labels to a tensor `[samples]` of the device's default integer type. A sample without
/// a label has -1.
pub fn labels(batch: &Batch, device: &Device) -> Tensor<1, Int> {
    let data = TensorData::new(batch.labels().to_vec(), [batch.len()]);
    Tensor::from_data(data, device)
}

/// Copies the soft targets to a tensor `[samples, classes]` of f32.
///
/// # Errors
/// [`Error::Config`] if the batch has no soft targets, [`Error::Device`] if the batch is in device
/// memory and the driver fails.
pub fn soft_targets(batch: &Batch, device: &Device) -> Result<Tensor<2>> {
    if batch.classes() == 0 {
        let problem =
            "is not set, so the batch has no soft targets; set it to the number of classes";
        return Err(Error::config("targets.classes", problem));
    }
    let data = TensorData::new(batch.soft_targets_to_host()?, [batch.len(), batch.classes()]);
    Ok(Tensor::from_data(data, (device, DType::F32)))
}

/// Copies the values of a column of floats to a tensor with `D` axes, see [`Batch::column`]. The
/// first axis is the number of samples. For a ragged column it is the number of entries of all
/// samples, and [`offsets`] tells which sample has which entries.
///
/// # Errors
/// [`Error::Config`] if the batch has no such column, or if the column has integers, which
/// [`integers`] converts, or another number of axes. [`Error::Device`] if the driver fails.
pub fn floats<const D: usize>(batch: &Batch, name: &str, device: &Device) -> Result<Tensor<D>> {
    let column = found(batch, name)?;
    let dtype = match column.element_type() {
        ElementType::F32 => DType::F32,
        ElementType::F16 => DType::F16,
        ElementType::BF16 => DType::BF16,
        other => {
            let problem = format!("{name:?} has elements of {other}: use `integers`");
            return Err(Error::config("column", problem));
        }
    };
    Ok(Tensor::from_data(column_data::<D>(column, dtype)?, (device, dtype)))
}

/// Copies the values of a column of integers to a tensor with `D` axes, as [`floats`] does.
///
/// # Errors
/// [`Error::Config`] if the batch has no such column, or if the column has floats, which [`floats`]
/// converts, or another number of axes. [`Error::Device`] if the driver fails.
pub fn integers<const D: usize>(
    batch: &Batch,
    name: &str,
    device: &Device,
) -> Result<Tensor<D, Int>> {
    let column = found(batch, name)?;
    let dtype = match column.element_type() {
        ElementType::I64 => DType::I64,
        ElementType::U8 => DType::U8,
        other => {
            let problem = format!("{name:?} has elements of {other}: use `floats`");
            return Err(Error::config("column", problem));
        }
    };
    Ok(Tensor::from_data(column_data::<D>(column, dtype)?, (device, dtype)))
}

/// Copies the offsets of a ragged column to a tensor `[samples + 1]`: sample `i` has the entries
/// from `offsets[i]` up to, but without, `offsets[i + 1]`.
///
/// # Errors
/// [`Error::Config`] if the batch has no such column, or if the column is not ragged.
pub fn offsets(batch: &Batch, name: &str, device: &Device) -> Result<Tensor<1, Int>> {
    let Some(offsets) = found(batch, name)?.offsets() else {
        let problem = format!("{name:?} is not ragged: all samples have the same number of values");
        return Err(Error::config("column", problem));
    };
    let data = TensorData::new(offsets.to_vec(), [offsets.len()]);
    Ok(Tensor::from_data(data, (device, DType::I64)))
}

fn found<'batch>(batch: &'batch Batch, name: &str) -> Result<Column<'batch>> {
    batch.column(name).ok_or_else(|| {
        let names: Vec<_> = batch.columns().map(|it| it.name()).collect();
        let problem = format!("{name:?} is not a column of the batch, which has {names:?}");
        Error::config("column", problem)
    })
}

/// Copies the values of a column to tensor data with `D` axes.
fn column_data<const D: usize>(column: Column<'_>, dtype: DType) -> Result<TensorData> {
    let shape = column.shape();
    if shape.len() != D {
        let problem = format!(
            "{:?} has the shape {shape:?}, which has {} axes, not {D}",
            column.name(),
            shape.len()
        );
        return Err(Error::config("column", problem));
    }
    let bytes = column.bytes().map_or_else(|| column.to_host(), |it| Ok(it.to_vec()))?;
    Ok(TensorData::from_bytes_vec(bytes, shape, dtype))
}

/// Converts a batch to tensor data that owns the batch, without copying the values.
fn data(batch: Batch, dtype: DType) -> Result<TensorData> {
    if batch.host().is_none() {
        let problem = "the batch is in device memory, which burn cannot take over: build the loader on the CPU";
        return Err(Error::config("device", problem));
    }
    let shape = batch.array_shape();
    let bytes = bytes::Bytes::from_owner(HostBatch(batch));
    let bytes = Bytes::from_shared(bytes, AllocationProperty::Other);
    Ok(TensorData::from_bytes(bytes, shape, dtype))
}

/// A batch in host memory.
struct HostBatch(Batch);

impl AsRef<[u8]> for HostBatch {
    fn as_ref(&self) -> &[u8] {
        self.0.host().unwrap_or_default()
    }
}
