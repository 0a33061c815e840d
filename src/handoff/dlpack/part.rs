//! Parts of columns that are exported as tensors: values and offsets.

use std::ptr;
use std::sync::Arc;

use super::{CPU, CUDA, ConsumerStream, DLDataType, DLDevice, Exported, Managed};
use crate::error::{Error, Result};
use crate::loader::{Batch, Column};
use crate::tensor::ElementType;

/// Part of a column that is exported as a tensor.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Piece {
    Values,
    Offsets,
    TextOffsets,
}

impl Piece {
    /// Offsets of a column, unless these are its values.
    pub fn offsets(self, column: Column<'_>) -> Option<&[i64]> {
        match self {
            Piece::Values => None,
            Piece::Offsets => column.offsets(),
            Piece::TextOffsets => column.text_offsets(),
        }
    }
}

/// Memory, shape and element type of a column or of its offsets.
#[derive(Clone)]
pub(super) struct Part {
    pub data: *mut u8,
    device: DLDevice,
    dtype: DLDataType,
    shape: Box<[i64]>,
}

impl Part {
    /// A part of the column with this name, which may be written.
    pub fn new(batch: &mut Batch, of: (&str, Piece)) -> Result<Self> {
        let host = match of {
            (name, Piece::Values) => batch.column_bytes_mut(name).map(|it| it.as_mut_ptr()),
            (name, Piece::Offsets) => {
                batch.column_offsets_mut(name).map(|it| it.as_mut_ptr().cast())
            }
            (name, Piece::TextOffsets) => {
                batch.column_text_offsets_mut(name).map(|it| it.as_mut_ptr().cast())
            }
        };
        Self::at(batch, of, host)
    }

    /// A part of the column with this name, which may only be read.
    pub fn shared(batch: &Batch, of: (&str, Piece)) -> Result<Self> {
        let (name, piece) = of;
        let column = batch.column(name);
        let host = match piece {
            Piece::Values => column.and_then(|it| it.bytes()).map(<[u8]>::as_ptr),
            _ => column.and_then(|it| piece.offsets(it)).map(|it| it.as_ptr().cast()),
        };
        Self::at(batch, of, host.map(<*const u8>::cast_mut))
    }

    /// A part of the column with this name. `host` is its address in host memory, if it is there.
    fn at(batch: &Batch, (name, piece): (&str, Piece), host: Option<*mut u8>) -> Result<Self> {
        let Some(column) = batch.column(name) else {
            let names: Vec<_> = batch.columns().map(|column| column.name()).collect();
            let problem = format!("{name:?} is not a column of the batch, which has {names:?}");
            return Err(Error::config("column", problem));
        };
        let (shape, element, on_device) = match piece {
            Piece::Values => (column.shape(), column.element_type(), column.device_ptr()),
            _ => {
                let Some(offsets) = piece.offsets(column) else {
                    let problem = match piece {
                        Piece::TextOffsets => "does not have several texts or lists per sample",
                        _ => "has no offsets, because it is dense",
                    };
                    return Err(Error::config("column", format!("{name:?} {problem}")));
                };
                let address = match piece {
                    Piece::TextOffsets => column.device_text_offsets_ptr(),
                    _ => column.device_offsets_ptr(),
                };
                (vec![offsets.len()], ElementType::I64, address)
            }
        };
        let shape = shape.into_iter().map(|len| len as i64).collect();
        let device = match batch.stream().filter(|_| on_device.is_some()) {
            Some(stream) => {
                DLDevice { device_type: CUDA, device_id: stream.device().ordinal() as i32 }
            }
            None => DLDevice { device_type: CPU, device_id: 0 },
        };
        let data = on_device.map(|address| address as *mut u8).or(host).unwrap_or(ptr::null_mut());
        Ok(Self { data, device, dtype: element.into(), shape })
    }

    /// Creates the tensor, which owns `batch`. If the column is in device memory, `stream` waits
    /// for the batch.
    pub fn export<M: Managed>(
        self,
        batch: Arc<Batch>,
        stream: &ConsumerStream,
        read_only: bool,
    ) -> Result<Exported<M>> {
        let Self { data, device, dtype, shape } = self;
        if device.device_type == CUDA {
            stream.let_in(&batch)?;
        }
        Ok(Exported::new(data, device, dtype, shape, batch, read_only))
    }
}
