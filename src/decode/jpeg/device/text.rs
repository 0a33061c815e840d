//! Source text of the kernels, and their launches.

use std::fmt::Write;

use super::image::DeviceImage;
use super::memory::{CHUNK_BYTES, JpegParams};

/// A kernel of the decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JpegKernel {
    /// Name of the function.
    pub name: &'static str,
    /// Number of threads per block.
    pub threads: u32,
}

impl JpegKernel {
    /// Number of blocks that an image needs. A launch needs the maximum of its images.
    pub fn blocks(self, image: &DeviceImage) -> u32 {
        let rows = image.rows[1] - image.rows[0];
        let threads = ENTROPY_THREADS as usize;
        let blocks = match self.name {
            "jpeg_begin" => {
                let zeroed = 128 * image.part_units() * image.unit();
                image.data().len().div_ceil(CHUNK_BYTES).max(zeroed.div_ceil(ZEROED_BYTES))
            }
            "jpeg_clean" => image.data().len().div_ceil(CHUNK_BYTES),
            "jpeg_rows" if image.has_index() => rows.div_ceil(GROUP_ROWS),
            "jpeg_sync" | "jpeg_write" => image.subsequences().div_ceil(threads),
            "jpeg_index" => usize::from(image.makes_index()),
            "jpeg_join" => usize::from(!image.has_index()),
            "jpeg_dc" => image.shape.component_count(),
            "jpeg_transform" => (image.part_units() * image.unit()).div_ceil(THREADS as usize),
            _ => 0,
        };
        blocks as u32
    }
}

/// Bytes of coefficients that a block of `jpeg_begin` zeroes, 16 times `ZEROED` in
/// `kernels/jpeg/clean.cu`.
const ZEROED_BYTES: usize = 64 << 10;
/// Threads per block of the kernels that do not decode symbols, `THREADS` in `kernels/jpeg/`.
const THREADS: u32 = 256;
/// Threads per block of the kernels that decode symbols.
const ENTROPY_THREADS: u32 = 64;
/// Threads per block of `jpeg_rows`, and maximum number of rows of a block, `GROUP_ROWS` in
/// `kernels/jpeg/rows.cu`. Threads that decode several rows each end at about the same time.
const ROW_THREADS: u32 = 32;
const GROUP_ROWS: usize = 64;

/// All kernels, in the order of their launches.
pub const JPEG_KERNELS: [JpegKernel; 9] = {
    const fn kernel(name: &'static str, threads: u32) -> JpegKernel {
        JpegKernel { name, threads }
    }
    [
        kernel("jpeg_begin", THREADS),
        kernel("jpeg_clean", THREADS),
        kernel("jpeg_rows", ROW_THREADS),
        kernel("jpeg_sync", ENTROPY_THREADS),
        kernel("jpeg_join", THREADS),
        kernel("jpeg_write", ENTROPY_THREADS),
        kernel("jpeg_dc", THREADS),
        kernel("jpeg_transform", THREADS),
        kernel("jpeg_index", THREADS),
    ]
};

/// Returns the source text of all kernels.
pub fn jpeg_kernels_text() -> String {
    let mut text = format!("#define JPEG_BYTES {}\n", size_of::<JpegParams>());
    for (file, content) in [
        ("image", include_str!("../../../../kernels/jpeg/image.cu")),
        ("clean", include_str!("../../../../kernels/jpeg/clean.cu")),
        ("entropy", include_str!("../../../../kernels/jpeg/entropy.cu")),
        ("walk", include_str!("../../../../kernels/jpeg/walk.cu")),
        ("rows", include_str!("../../../../kernels/jpeg/rows.cu")),
        ("sync", include_str!("../../../../kernels/jpeg/sync.cu")),
        ("join", include_str!("../../../../kernels/jpeg/join.cu")),
        ("write", include_str!("../../../../kernels/jpeg/write.cu")),
        ("dc", include_str!("../../../../kernels/jpeg/dc.cu")),
        ("transform", include_str!("../../../../kernels/jpeg/transform.cu")),
        ("index", include_str!("../../../../kernels/jpeg/index.cu")),
    ] {
        // Writing into a String cannot fail.
        let _ = writeln!(text, "#line 1 \"jpeg/{file}.cu\"\n{}", content.trim_end());
    }
    text
}
