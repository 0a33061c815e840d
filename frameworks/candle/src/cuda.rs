//! Copies batches in device memory to tensors of candle on a GPU.

use candle_core::cuda_backend::cudarc::driver::CudaStream;
use candle_core::cuda_backend::{CudaDType, CudaDevice, WrapErr};
use candle_core::op::BackpropOp;
use candle_core::{
    CpuStorage, CudaStorage, DType, Device, Error, InplaceOp1, Layout, Result, Storage, Tensor,
};
use feedwater::gpu::DeviceElement;
use feedwater::half::{bf16, f16};
use feedwater::handoff::CudaTensor;
use feedwater::loader::Batch;

pub fn images(batch: Batch, device: &Device) -> Result<Tensor> {
    let Device::Cuda(device) = device else {
        candle_core::bail!(
            "the batch is in device memory, and the tensor would not be: name its GPU as the device"
        );
    };
    match crate::dtype(&batch)? {
        DType::U8 => copy::<u8>(batch, device),
        DType::F16 => copy::<f16>(batch, device),
        DType::BF16 => copy::<bf16>(batch, device),
        DType::F32 => copy::<f32>(batch, device),
        other => candle_core::bail!("batches have no element type {other:?}"),
    }
}

pub fn copy_images(batch: Batch, tensor: &Tensor) -> Result<()> {
    let Device::Cuda(device) = tensor.device() else {
        candle_core::bail!("the batch is in device memory, and the tensor is not");
    };
    let stream = device.cuda_stream();
    match crate::dtype(&batch)? {
        DType::U8 => tensor.inplace_op1(&Copy::<u8>::new(batch, &stream)?),
        DType::F16 => tensor.inplace_op1(&Copy::<f16>::new(batch, &stream)?),
        DType::BF16 => tensor.inplace_op1(&Copy::<bf16>::new(batch, &stream)?),
        DType::F32 => tensor.inplace_op1(&Copy::<f32>::new(batch, &stream)?),
        other => candle_core::bail!("batches have no element type {other:?}"),
    }
}

fn copy<T: DeviceElement + CudaDType>(batch: Batch, device: &CudaDevice) -> Result<Tensor> {
    let (shape, stream) = (batch.array_shape(), device.cuda_stream());
    let tensor = CudaTensor::<T>::new(batch, &stream).map_err(Error::wrap)?;
    let slice = stream.clone_dtod(&tensor.view()).w()?;
    let storage = Storage::Cuda(CudaStorage::wrap_cuda_slice(slice, device.clone()));
    Ok(Tensor::from_storage(storage, &shape, BackpropOp::none(), false))
}

/// The operation that copies a batch into the storage of a tensor with the same number of elements,
/// in candle's stream.
struct Copy<T: DeviceElement>(CudaTensor<T>);

impl<T: DeviceElement> Copy<T> {
    fn new(batch: Batch, stream: &std::sync::Arc<CudaStream>) -> Result<Self> {
        Ok(Self(CudaTensor::new(batch, stream).map_err(Error::wrap)?))
    }
}

impl<T: DeviceElement + CudaDType> InplaceOp1 for Copy<T> {
    fn name(&self) -> &'static str {
        "copy of a batch in device memory"
    }

    fn cpu_fwd(&self, _: &mut CpuStorage, _: &Layout) -> Result<()> {
        candle_core::bail!("the batch is in device memory, and the tensor is not")
    }

    fn cuda_fwd(&self, storage: &mut CudaStorage, layout: &Layout) -> Result<()> {
        let Some((begin, end)) = layout.contiguous_offsets() else {
            candle_core::bail!("a batch can only be copied into a contiguous tensor");
        };
        let device = storage.device.clone();
        let mut to = storage.as_cuda_slice_mut::<T>()?.slice_mut(begin..end);
        device.memcpy_dtod(&self.0.view(), &mut to)
    }
}
