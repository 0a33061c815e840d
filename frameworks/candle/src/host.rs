//! Copies batches in host memory to tensors of candle.

use candle_core::{CpuStorage, DType, Device, Error, InplaceOp1, Layout, Result, Tensor};
use feedwater::loader::Batch;

pub fn images(batch: &Batch, device: &Device) -> Result<Tensor> {
    let shape = batch.array_shape();
    match Values::of(batch)? {
        Values::U8(values) => Tensor::from_slice(values, &shape, device),
        Values::F16(values) => Tensor::from_slice(values, &shape, device),
        Values::BF16(values) => Tensor::from_slice(values, &shape, device),
        Values::F32(values) => Tensor::from_slice(values, &shape, device),
    }
}

/// The operation that copies a batch into the storage of a tensor with the same number of elements.
pub struct Copy<'a>(pub &'a Batch);

impl InplaceOp1 for Copy<'_> {
    fn name(&self) -> &'static str {
        "copy of a batch in host memory"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> Result<()> {
        let Some((begin, end)) = layout.contiguous_offsets() else {
            candle_core::bail!("a batch can only be copied into a contiguous tensor");
        };
        match (Values::of(self.0)?, storage) {
            (Values::U8(from), CpuStorage::U8(to)) => to[begin..end].copy_from_slice(from),
            (Values::F16(from), CpuStorage::F16(to)) => to[begin..end].copy_from_slice(from),
            (Values::BF16(from), CpuStorage::BF16(to)) => to[begin..end].copy_from_slice(from),
            (Values::F32(from), CpuStorage::F32(to)) => to[begin..end].copy_from_slice(from),
            _ => candle_core::bail!("the batch and the tensor have different element types"),
        }
        Ok(())
    }
}

/// The values of a batch in host memory.
enum Values<'a> {
    U8(&'a [u8]),
    F16(&'a [feedwater::half::f16]),
    BF16(&'a [feedwater::half::bf16]),
    F32(&'a [f32]),
}

impl<'a> Values<'a> {
    fn of(batch: &'a Batch) -> Result<Self> {
        let values = match crate::dtype(batch)? {
            DType::U8 => batch.as_u8().map(Self::U8),
            DType::F16 => batch.as_f16().map(Self::F16),
            DType::BF16 => batch.as_bf16().map(Self::BF16),
            DType::F32 => batch.as_f32().map(Self::F32),
            _ => None,
        };
        values.ok_or_else(|| Error::Msg("the batch is in device memory".into()))
    }
}
