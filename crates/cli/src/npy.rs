//! Writer for NumPy's file format, version 1.0 (NEP 1).

use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;

use feedwater::ElementType;
use feedwater::internals::file::AtomicFile;

/// Number of bytes before the data: magic, version, length, and a dictionary that is padded with
/// spaces.
///
/// `HEADER_BYTES` is a multiple of 64, as the format requires. It is large enough for the
/// dictionary of any array with 24 dimensions.
const HEADER_BYTES: usize = 640;

/// A .npy file of batches, concatenated along the first axis.
pub struct NpyWriter {
    file: AtomicFile,
    element: ElementType,
    /// Lengths of the axes of all batches together.
    dims: Vec<usize>,
}

impl NpyWriter {
    /// Creates the file. The header stays empty until [`finish`](Self::finish).
    pub fn create(path: &Path) -> io::Result<Self> {
        let mut file = AtomicFile::create(path)?;
        file.write_all(&[b' '; HEADER_BYTES])?;
        Ok(Self { file, element: ElementType::F32, dims: vec![0] })
    }

    /// Appends a batch of the shape `dims` in native byte order. All batches must have the same
    /// element type, and the same shape except for the first axis.
    pub fn append(&mut self, element: ElementType, dims: &[usize], data: &[u8]) -> io::Result<()> {
        match element {
            ElementType::BF16 => {
                for &[low, high] in data.as_chunks().0 {
                    // The format has no bfloat16, so write f32. A bfloat16 is the upper half of the
                    // f32 with the same value.
                    let bits = u32::from(u16::from_ne_bytes([low, high])) << 16;
                    self.file.write_all(&bits.to_ne_bytes())?;
                }
            }
            _ => self.file.write_all(data)?,
        }
        let before = self.dims[0];
        self.element = element;
        self.dims = dims.to_vec();
        self.dims[0] += before;
        Ok(())
    }

    /// Length of the first axis so far.
    pub fn rows(&self) -> usize {
        self.dims[0]
    }

    /// Writes the header with the final shape. The caller then commits the returned file.
    pub fn finish(mut self) -> io::Result<AtomicFile> {
        self.file.seek(SeekFrom::Start(0))?;
        self.file.write_all(&header(self.element, &self.dims))?;
        Ok(self.file)
    }
}

fn header(element: ElementType, dims: &[usize]) -> Vec<u8> {
    let order = if cfg!(target_endian = "little") { '<' } else { '>' };
    let descr = match element {
        ElementType::U8 => "|u1".to_string(),
        ElementType::I64 => format!("{order}i8"),
        ElementType::F16 => format!("{order}f2"),
        _ => format!("{order}f4"),
    };
    // A tuple of one number ends with a comma.
    let end = if dims.len() == 1 { "," } else { "" };
    let dims = dims.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ") + end;
    let dictionary = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({dims}), }}");
    let mut header = b"\x93NUMPY\x01\x00".to_vec();
    header.extend_from_slice(&((HEADER_BYTES - 10) as u16).to_le_bytes());
    header.extend_from_slice(dictionary.as_bytes());
    header.resize(HEADER_BYTES - 1, b' ');
    header.push(b'\n');
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_size_is_independent_of_the_shape() {
        let header = header(ElementType::F16, &[usize::MAX; 24]);
        assert_eq!(header.len(), HEADER_BYTES);
        let text = String::from_utf8_lossy(&header);
        assert!(text.contains("'descr': '<f2'"), "{text}");
        assert!(text.contains("(18446744073709551615, 18446744073709551615, "), "{text}");
        assert!(text.trim_end().ends_with("18446744073709551615), }"), "{text}");
        let header = super::header(ElementType::U8, &[5]);
        assert!(String::from_utf8_lossy(&header).contains("'shape': (5,), }"));
    }
}
