//! Decompresses pages.

use std::io::Read;

/// Compression of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    None,
    Snappy,
    Gzip,
    Brotli,
    Zstd,
    Lz4,
    /// LZO (3), LZ4 with the deprecated framing (5), or an unknown codec.
    Other(i64),
}

impl Codec {
    pub fn of(number: i64) -> Self {
        match number {
            0 => Self::None,
            1 => Self::Snappy,
            2 => Self::Gzip,
            4 => Self::Brotli,
            6 => Self::Zstd,
            7 => Self::Lz4,
            other => Self::Other(other),
        }
    }

    /// Whether `stored` bytes can decompress to `size` bytes. Implausible sizes are rejected before
    /// memory is allocated for them.
    pub fn is_plausible(self, stored: u64, size: u64) -> bool {
        let most = match self {
            Self::None => 1,
            // Three bytes can encode a copy of 64 bytes, so one byte yields at most 22.
            Self::Snappy => 22,
            // Each further length byte of a match encodes up to 255 bytes.
            Self::Lz4 => 255,
            // Two bits can encode 258 bytes (deflate's longest match), so one byte yields 1032.
            Self::Gzip => 1032,
            // Four bytes can encode a block of 128 KiB of one byte value, so one byte yields 32
            // KiB.
            Self::Zstd | Self::Other(_) => 1 << 15,
            // A block of 16 MiB of one byte value takes at least four bytes, so one byte yields at
            // most 4 MiB.
            Self::Brotli => 1 << 22,
        };
        size <= stored.saturating_mul(most).saturating_add(64)
    }

    /// Decompresses `input` into `output`. The decompressed size must equal the length of `output`.
    pub fn decompress(self, input: &[u8], output: &mut [u8]) -> Result<(), String> {
        let wanted = output.len();
        let got = match self {
            Self::None => {
                let fits = input.len() == wanted;
                if fits {
                    output.copy_from_slice(input);
                }
                fits.then_some(wanted).ok_or_else(|| format!("{} bytes", input.len()))
            }
            Self::Snappy => {
                snap::raw::Decoder::new().decompress(input, output).map_err(|it| it.to_string())
            }
            Self::Gzip => fill(flate2::bufread::MultiGzDecoder::new(input), output),
            Self::Brotli => fill(brotli_decompressor::Decompressor::new(input, 1 << 16), output),
            Self::Zstd => zstd_safe::decompress(output, input)
                .map_err(|code| zstd_safe::get_error_name(code).to_string()),
            Self::Lz4 => {
                lz4_flex::block::decompress_into(input, output).map_err(|it| it.to_string())
            }
            Self::Other(number) => Err(unsupported(number)),
        };
        match got {
            Ok(got) if got == wanted => Ok(()),
            Ok(got) => Err(format!("the data decompresses to {got} bytes instead of {wanted}")),
            Err(problem) => Err(problem),
        }
    }
}

/// Returns the error message for an unsupported compression.
pub fn unsupported(number: i64) -> String {
    let name = match number {
        3 => "LZO",
        5 => "LZ4 in its deprecated framing",
        _ => "an unknown compression",
    };
    format!(
        "the column is compressed with {name} ({number}), which is not supported; write it with \
         snappy, zstd or no compression"
    )
}

/// Reads until the output is full. Returns an error if the input has more bytes.
fn fill(mut input: impl Read, output: &mut [u8]) -> Result<usize, String> {
    let mut len = 0;
    while len < output.len() {
        match input.read(&mut output[len..]) {
            Ok(0) => return Ok(len),
            Ok(count) => len += count,
            Err(error) => return Err(error.to_string()),
        }
    }
    match input.read(&mut [0]) {
        Ok(0) => Ok(len),
        Ok(_) => Err(format!("the data decompresses to more than the expected {len} bytes")),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// Tests the codecs whose compressors this build contains. `tests/sources/parquet.rs` tests all
    /// codecs.
    #[test]
    fn the_decompressed_size_must_match() {
        let text = b"so much depends upon a red wheel barrow ".repeat(50);
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        gzip.write_all(&text).unwrap();
        let compressed = [
            (Codec::None, text.clone()),
            (Codec::Snappy, snap::raw::Encoder::new().compress_vec(&text).unwrap()),
            (Codec::Gzip, gzip.finish().unwrap()),
            (Codec::Zstd, zstd::bulk::compress(&text, 3).unwrap()),
        ];
        for (codec, bytes) in compressed {
            assert!(codec.is_plausible(bytes.len() as u64, text.len() as u64), "{codec:?}");
            for (wrong, right) in [(0, true), (-1, false), (1, false)] {
                let mut out = vec![0; text.len().checked_add_signed(wrong).unwrap()];
                assert_eq!(codec.decompress(&bytes, &mut out).is_ok(), right, "{codec:?} {wrong}");
                assert!(!right || out == text);
            }
            for len in 0..bytes.len() {
                let mut out = vec![0; text.len()];
                // A gzip file that is cut within its checksum can still be decompressed completely.
                let cut = codec.decompress(&bytes[..len], &mut out);
                assert!(cut.is_err() || codec == Codec::Gzip && out == text, "{codec:?} {len}");
            }
        }
    }

    #[test]
    fn errors_name_the_unsupported_compression() {
        for (number, name) in [(3, "LZO"), (5, "LZ4"), (9, "9")] {
            let words = Codec::of(number).decompress(&[], &mut []).unwrap_err();
            for value in [name, &number.to_string(), "snappy", "zstd"] {
                assert!(words.contains(value), "{value}: {words}");
            }
        }
        assert!(!Codec::Snappy.is_plausible(10, 1 << 20));
        assert!(!Codec::Zstd.is_plausible(20, 1 << 30));
    }
}
