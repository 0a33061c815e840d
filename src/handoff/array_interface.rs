//! `__cuda_array_interface__`, version 3, as Numba specifies it
//! (<https://numba.readthedocs.io/en/stable/cuda/cuda_array_interface.html>).

use serde::Serialize;

use crate::error::{Error, Result};
use crate::loader::Batch;
use crate::tensor::DType;

/// The fields of a `__cuda_array_interface__`; lists become tuples in Python.
///
/// It borrows nothing and owns nothing: the batch must live as long as whoever reads it, and a reader that works on another
/// stream than the one named here must be let in with [`Batch::on`], so that the slot is not filled again too early.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CudaArrayInterface {
    /// Extent of the axes in memory order, slowest first.
    pub shape: [usize; 4],
    /// Element type: `|u1`, `<f2`, `<f4`. NumPy has no bfloat16; it is `<V2`, two bytes of no type, as in PyTorch (its pull
    /// request 143042) and in ml_dtypes. Readers that do not know this refuse it or see raw bytes; DLPack has a name
    /// for it.
    pub typestr: &'static str,
    /// Address, and whether it must not be written: it may.
    pub data: (u64, bool),
    /// None: the tensor is dense, in C order.
    pub strides: Option<[usize; 4]>,
    /// The stream in which the tensor is filled, 1 for the legacy default one. A reader on another one makes that wait
    /// for it.
    pub stream: u64,
    /// 3.
    pub version: u32,
}

impl CudaArrayInterface {
    /// The fields for a batch.
    ///
    /// # Errors
    /// [`Error::Config`] where the batch lives on the host.
    pub fn new(batch: &Batch) -> Result<Self> {
        let (Some(address), Some(stream)) = (batch.device_ptr(), batch.stream()) else {
            let problem = "the batch lives on the host, which `__cuda_array_interface__` cannot say: \
                           use DLPack, or build the loader on a GPU";
            return Err(Error::config("device", problem));
        };
        let shape = batch.shape();
        Ok(Self {
            shape: shape.dims(),
            typestr: typestr(shape.dtype),
            data: (address, false),
            strides: None,
            // 0 is forbidden there, since it may mean either default stream; the driver's null is the legacy one.
            stream: (stream.raw() as u64).max(1),
            version: 3,
        })
    }
}

fn typestr(dtype: DType) -> &'static str {
    match dtype {
        DType::U8 => "|u1",
        DType::F16 => "<f2",
        DType::BF16 => "<V2",
        DType::F32 => "<f4",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_type_says_its_bytes() {
        for dtype in DType::ALL {
            let bytes: usize = typestr(dtype)[2..].parse().unwrap();
            assert_eq!(bytes, dtype.bytes(), "{dtype}");
        }
    }
}
