//! Arrays of NumPy, and images of Pillow, which are written as `.npy` files, or as PNGs if they
//! have a palette or 1 bit.

use feedwater::internals::numpy::{Item, head};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

/// Array of numbers in any layout, or image of Pillow.
pub struct Array {
    /// Start and header of the `.npy` file. `None` if the pieces are a PNG.
    head: Option<Vec<u8>>,
    axes: usize,
    /// Size of the elements, or of the PNG, in bytes.
    bytes: u64,
    /// Function that returns an iterator of the elements' bytes: little-endian, in C order, in
    /// pieces of bounded size.
    pieces: Py<PyAny>,
}

impl Array {
    /// `None` if the object is no array.
    ///
    /// # Errors
    /// A `TypeError` for elements that are no numbers, and what the object raises.
    pub fn of(value: &Bound<'_, PyAny>) -> PyResult<Option<Self>> {
        let has = |name| value.hasattr(name).unwrap_or(false);
        // Pillow copies the whole image for `__array_interface__`, so its images are found first.
        let names = ["getbands", "__array_interface__", "__array__"];
        if !names.into_iter().any(has) {
            return Ok(None);
        }
        let items = value.py().import("feedwater._items")?;
        let (dtype, shape, bytes, pieces): (Option<String>, Vec<u64>, u64, Py<PyAny>) =
            items.call_method1("stored", (value,))?.extract()?;
        let head = dtype.map(|dtype| {
            Item::parse(dtype.as_bytes())
                .map(|item| head(item, &shape))
                .ok_or_else(|| PyValueError::new_err(format!("has the type {dtype}")))
        });
        Ok(Some(Self { head: head.transpose()?, axes: shape.len(), bytes, pieces }))
    }

    /// Whether the file is a PNG.
    pub fn is_png(&self) -> bool {
        self.head.is_none()
    }

    /// Whether the array has no axes, so that it is a number.
    pub fn is_number(&self) -> bool {
        self.axes == 0
    }

    /// Size of the elements, or of the PNG, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Size of the file in bytes.
    pub fn file_bytes(&self) -> u64 {
        self.head().len() as u64 + self.bytes
    }

    fn head(&self) -> &[u8] {
        self.head.as_deref().unwrap_or_default()
    }

    /// Writes the file to `file`, which has the size [`file_bytes`](Self::file_bytes).
    pub fn write(&self, py: Python<'_>, file: &mut [u8]) -> PyResult<()> {
        let changed = || PyRuntimeError::new_err("the array changed while it was read");
        let (head, mut rest) = file.split_at_mut_checked(self.head().len()).ok_or_else(changed)?;
        head.copy_from_slice(self.head());
        for piece in self.pieces.bind(py).call0()?.try_iter()? {
            let piece: PyBackedBytes = piece?.extract()?;
            let (to, after) = rest.split_at_mut_checked(piece.len()).ok_or_else(changed)?;
            to.copy_from_slice(&piece);
            rest = after;
        }
        if rest.is_empty() { Ok(()) } else { Err(changed()) }
    }
}
