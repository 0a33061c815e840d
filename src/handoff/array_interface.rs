//! `__cuda_array_interface__`, version 3, as Numba specifies it
//! (<https://numba.readthedocs.io/en/stable/cuda/cuda_array_interface.html>).

use serde::Serialize;

use crate::error::{Error, Result};
use crate::loader::{Batch, Column};
use crate::tensor::ElementType;

/// Fields of a `__cuda_array_interface__`. Lists become tuples in Python.
///
/// The fields neither borrow nor own the batch, so the caller must keep the batch alive while the
/// reader uses the memory. For a reader that works on another stream than [`stream`](Self::stream),
/// call [`Batch::wait_in`] with the reader's stream first. Without that call, the loader may fill
/// the slot again while the reader still uses it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CudaArrayInterface {
    /// Extent of the axes in memory order, slowest first.
    pub shape: Vec<usize>,
    /// Element type: `|u1`, `<i8`, `<f2` or `<f4`. NumPy has no bfloat16, so bfloat16 is `<V2` (two
    /// untyped bytes), as in PyTorch (its pull request 143042) and in ml_dtypes. Readers that do
    /// not support `<V2` fail or get raw bytes. DLPack has a type for bfloat16.
    pub typestr: &'static str,
    /// Address of the first element, and a read-only flag, which is always false.
    pub data: (u64, bool),
    /// Always `None`: the tensor is dense, in C order.
    pub strides: Option<Vec<usize>>,
    /// Handle of the stream in which the tensor is filled, where 1 is the legacy default stream. A
    /// reader that uses another stream must make that stream wait for this one.
    pub stream: u64,
    /// Version of the interface: 3.
    pub version: u32,
}

impl CudaArrayInterface {
    /// Creates the fields for the images of a batch.
    ///
    /// # Errors
    /// [`Error::Config`] if the batch is in host memory.
    pub fn new(batch: &Batch) -> Result<Self> {
        Self::of_column(batch.images())
    }

    /// Creates the fields for a column of a batch.
    ///
    /// # Errors
    /// [`Error::Config`] if the column is in host memory.
    pub fn of_column(column: Column<'_>) -> Result<Self> {
        let (Some(address), Some(stream)) = (column.device_ptr(), column.batch().stream()) else {
            let problem = format!(
                "the column {:?} is in host memory, which `__cuda_array_interface__` does not \
                 support: use DLPack, or build the loader on a GPU",
                column.name()
            );
            return Err(Error::config("device", problem));
        };
        Ok(Self {
            shape: column.shape(),
            typestr: typestr(column.element_type()),
            data: (address, false),
            strides: None,
            // The driver's null handle is the legacy default stream. The interface writes this
            // stream as 1, and forbids 0, because 0 could mean either of the driver's two default
            // streams.
            stream: (stream.raw() as u64).max(1),
            version: 3,
        })
    }
}

fn typestr(element: ElementType) -> &'static str {
    match element {
        ElementType::U8 => "|u1",
        ElementType::I64 => "<i8",
        ElementType::F16 => "<f2",
        ElementType::BF16 => "<V2",
        ElementType::F32 => "<f4",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::DType;

    #[test]
    fn every_typestr_has_the_element_size() {
        let all = DType::ALL.map(ElementType::from).into_iter().chain([ElementType::I64]);
        for element in all {
            let bytes: usize = typestr(element)[2..].parse().unwrap();
            assert_eq!(bytes, element.bytes(), "{element}");
        }
    }
}
