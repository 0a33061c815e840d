//! Decoder of a single Zstandard stream.

use std::io::{self, Error, ErrorKind};

use zstd_safe::{DCtx, InBuffer, OutBuffer};

pub struct Zstd {
    context: DCtx<'static>,
    /// Whether a frame has begun but not ended.
    pub inside: bool,
    /// Start of the last frame, as positions in the uncompressed and in the compressed data.
    pub frame: (u64, u64),
}

impl Zstd {
    pub fn new(frame: (u64, u64)) -> io::Result<Self> {
        let mut context = DCtx::try_create()
            .ok_or_else(|| Error::new(ErrorKind::OutOfMemory, "no memory for a zstd decoder"))?;
        context.init().map_err(|code| Error::other(zstd_safe::get_error_name(code)))?;
        Ok(Self { context, inside: false, frame })
    }

    /// Allocated memory in bytes.
    pub fn bytes(&self) -> usize {
        self.context.sizeof()
    }

    /// Decompresses some bytes. Returns the numbers of bytes read and written, and whether a frame
    /// has ended.
    pub fn step(
        &mut self,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<(usize, usize, bool), &'static str> {
        let (mut input, mut output) = (InBuffer::around(input), OutBuffer::around(output));
        let left = self
            .context
            .decompress_stream(&mut output, &mut input)
            .map_err(zstd_safe::get_error_name)?;
        let (consumed, written) = (input.pos(), output.pos());
        let moved = consumed + written > 0;
        let ended = left == 0 && moved;
        self.inside = !ended && (self.inside || moved);
        Ok((consumed, written, ended))
    }
}
