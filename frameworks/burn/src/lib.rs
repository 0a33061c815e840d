//! Batches of feedwater as tensors of burn.
//!
//! | from a batch | to | copies |
//! |---|---|---|
//! | in host memory | a tensor of the `flex` device | none: the tensor owns the batch |
//! | in host memory | a tensor of another device | the copy from host memory to that device |
//! | in device memory | any | not supported: [`Error::Config`] |
//!
//! burn's `flex` device stores values in a `Bytes`, which may refer to memory of another owner.
//! [`images`] passes the batch's slot to it. The loader refills that slot after the last tensor
//! that shares it is dropped. So each tensor that is kept occupies a slot. An operation that would
//! change the values in place copies them first.
//!
//! With autodiff, the graph of a forward pass keeps the images, and burn frees it in the backward
//! pass. So evaluate with `Module::valid` on a device without autodiff. A loop that never calls
//! `backward` would keep every slot, and then wait forever for a free one.
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
use feedwater::loader::Batch;
use feedwater::{Error, Result};

/// The images of a batch with elements of f32, f16 or bf16: four axes in the order of the loader's layout.
///
/// # Errors
/// [`Error::Config`] if the batch is in device memory or has elements of u8, for which [`pixels`]
/// exists.
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

/// The images of a batch with elements of u8, as a tensor of integers: four axes in the order of the loader's layout.
///
/// # Errors
/// [`Error::Config`] if the batch is in device memory or has another element type, for which
/// [`images`] exists.
pub fn pixels(batch: Batch, device: &Device) -> Result<Tensor<4, Int>> {
    let dtype = batch.shape().dtype;
    if dtype != feedwater::DType::U8 {
        let problem = format!("is {dtype}, but pixels are u8: use `images`");
        return Err(Error::config("output.dtype", problem));
    }
    Ok(Tensor::from_data(data(batch, DType::U8)?, (device, DType::U8)))
}

/// Copies the labels to the device's default integer type: `[samples]`, -1 for a sample without a
/// label.
pub fn labels(batch: &Batch, device: &Device) -> Tensor<1, Int> {
    let data = TensorData::new(batch.labels().to_vec(), [batch.len()]);
    Tensor::from_data(data, device)
}

/// Copies the soft targets: `[samples, classes]`, f32.
///
/// # Errors
/// [`Error::Config`] if the batch has none; [`Error::Device`] if it is in device memory and the driver fails.
pub fn soft_targets(batch: &Batch, device: &Device) -> Result<Tensor<2>> {
    if batch.classes() == 0 {
        let problem =
            "is not set, so the batch has no soft targets; set it to the number of classes";
        return Err(Error::config("targets.classes", problem));
    }
    let data = TensorData::new(batch.soft_targets_to_host()?, [batch.len(), batch.classes()]);
    Ok(Tensor::from_data(data, (device, DType::F32)))
}

/// Converts a batch to values that own the batch.
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
