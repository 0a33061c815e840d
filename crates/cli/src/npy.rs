//! Writer for NumPy's file format, version 1.0 (NEP 1).

use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;

use feedwater::internals::file::AtomicFile;
use feedwater::internals::tensor::{DType, TensorShape};

/// Number of bytes before the data: magic, version, length, and a dictionary that is padded with
/// spaces.
///
/// `HEADER_BYTES` is a multiple of 64, as the format requires. It is large enough for the
/// dictionary of any array with four dimensions.
const HEADER_BYTES: usize = 192;

/// A .npy file of batches, concatenated along the first axis.
pub struct NpyWriter {
    file: AtomicFile,
    samples: usize,
    shape: Option<TensorShape>,
}

impl NpyWriter {
    /// Creates the file. The header stays empty until [`finish`](Self::finish).
    pub fn create(path: &Path) -> io::Result<Self> {
        let mut file = AtomicFile::create(path)?;
        file.write_all(&[b' '; HEADER_BYTES])?;
        Ok(Self { file, samples: 0, shape: None })
    }

    /// Appends a batch in native byte order. All batches must have the same shape except for the
    /// number of samples.
    pub fn append(&mut self, shape: TensorShape, data: &[u8]) -> io::Result<()> {
        match shape.dtype {
            DType::BF16 => {
                for &[low, high] in data.as_chunks().0 {
                    // The format has no bfloat16, so write f32. A bfloat16 is the upper half of the
                    // f32 with the same value.
                    let bits = u32::from(u16::from_ne_bytes([low, high])) << 16;
                    self.file.write_all(&bits.to_ne_bytes())?;
                }
            }
            _ => self.file.write_all(data)?,
        }
        self.samples += shape.batch;
        self.shape = Some(shape);
        Ok(())
    }

    /// Writes the header with the final shape. The caller then commits the returned file.
    pub fn finish(mut self) -> io::Result<AtomicFile> {
        let shape = self.shape.map(|shape| TensorShape { batch: self.samples, ..shape });
        self.file.seek(SeekFrom::Start(0))?;
        self.file.write_all(&header(shape))?;
        Ok(self.file)
    }
}

fn header(shape: Option<TensorShape>) -> Vec<u8> {
    let order = if cfg!(target_endian = "little") { '<' } else { '>' };
    let (descr, dims) = match shape {
        None => (format!("{order}f4"), [0; 4]),
        Some(shape) => {
            let descr = match shape.dtype {
                DType::U8 => "|u1".to_string(),
                DType::F16 => format!("{order}f2"),
                _ => format!("{order}f4"),
            };
            (descr, shape.dims())
        }
    };
    let [a, b, c, d] = dims;
    let dictionary =
        format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({a}, {b}, {c}, {d}), }}");
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
    use feedwater::internals::tensor::Layout;

    #[test]
    fn the_header_size_is_independent_of_the_shape() {
        let shape = TensorShape {
            batch: usize::MAX,
            width: u32::MAX,
            height: u32::MAX,
            dtype: DType::F16,
            layout: Layout::Nhwc,
        };
        let header = header(Some(shape));
        assert_eq!(header.len(), HEADER_BYTES);
        let text = String::from_utf8_lossy(&header);
        assert!(text.contains("'descr': '<f2'"), "{text}");
        assert!(text.contains("(18446744073709551615, 4294967295, 4294967295, 3)"), "{text}");
    }
}
