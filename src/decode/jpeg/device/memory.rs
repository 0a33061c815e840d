//! Memory of the kernels, and the parameters that describe an image to them.

use std::ops::Range;

use bytemuck::{Pod, Zeroable};

use super::super::huffman::Code;
use super::image::{ALIGN_BYTES, DeviceImage, MOST_TABLES};

/// Bytes of a chunk of coded data, and of a piece of it (`kernels/jpeg/clean.cu`).
pub(super) const CHUNK_BYTES: usize = 4096;
const PIECE_BYTES: usize = 16;
/// Bytes after the clean data.
const PADDING_BYTES: usize = 16;

/// Description of an image for the kernels, with the layout of `Jpeg` in `kernels/jpeg/image.cu`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct JpegParams {
    data: u64,
    clean: u64,
    counts: u64,
    offsets: u64,
    codes: u64,
    steps: u64,
    starts: u64,
    seeds: u64,
    states: u64,
    firsts: u64,
    row_bits: u64,
    made: u64,
    dc: u64,
    coefficients: u64,
    samples: u64,
    problem: u64,
    data_bytes: u32,
    subsequence_bits: u32,
    subsequences: i32,
    interval: i32,
    intervals: i32,
    units: [i32; 2],
    first: [i32; 2],
    count: [i32; 2],
    dc_first: i32,
    dc_rows: i32,
    sampling: [i32; 2],
    components: i32,
    tables: i32,
    dc_tables: u32,
    ac_tables: u32,
    sides: [i32; 2],
    pitches: [i32; 2],
    chroma: [i32; 2],
    unused: u32,
}

impl JpegParams {
    /// Bytes for the kernels.
    pub fn bytes(&self) -> &[u8] {
        bytemuck::bytes_of(self)
    }
}

/// Arrangement of an image's memory: offsets in bytes from the start of the image's part of a
/// buffer. The tables come first, and then the coded data. The host writes both. The problem, which
/// the host reads, is before them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceMemory {
    /// Number of the [problem](super::DeviceProblem), 4 bytes that must be 0 at the start.
    pub problem: usize,
    /// [Row index](DeviceImage::row_index) that the kernels make. Empty if they make none.
    made: usize,
    codes: usize,
    steps: usize,
    starts: usize,
    seeds: usize,
    /// Coded data.
    pub data: usize,
    clean: usize,
    counts: usize,
    offsets: usize,
    states: usize,
    firsts: usize,
    row_bits: usize,
    dc: usize,
    coefficients: usize,
    /// Size of all arrays.
    pub bytes: usize,
}

/// Memory of the kernels for the largest image, in bytes. All sizes are
/// multiples of 256.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceRoom {
    /// Tables of an image ([`DeviceMemory::tables`]).
    pub tables: usize,
    /// All other arrays.
    pub arrays: usize,
}

impl DeviceRoom {
    /// Room for images of at most `pixels` pixels, in files of at most `encoded_bytes` bytes. Very
    /// narrow images, and those with very many restart markers, need more.
    pub const fn of(pixels: usize, encoded_bytes: usize) -> Self {
        // Up to 16 columns and rows fill the last MCUs.
        let padded = pixels + 32 * pixels.isqrt() + 1024;
        // Without subsampling, a pixel has three coefficients of 2 bytes, and 3/64 DC coefficients
        // of 4 bytes.
        let coefficients = 6 * padded + padded.div_ceil(5);
        // The data, the clean data, 4 bytes for each piece and chunk, and 12 for each subsequence.
        let data = 2 * encoded_bytes + encoded_bytes.div_ceil(3);
        Self {
            tables: (4096 + pixels / 64).next_multiple_of(256),
            arrays: (coefficients + data + 2048).next_multiple_of(256),
        }
    }

    /// Checks that an image fits.
    pub fn holds(&self, memory: &DeviceMemory) -> bool {
        memory.data <= self.tables && memory.arrays_bytes() <= self.arrays
    }
}

impl DeviceMemory {
    pub(super) fn of(image: &DeviceImage) -> Self {
        let mut end = 0;
        let mut take = |bytes: usize| {
            let start = end;
            end = (start + bytes).next_multiple_of(ALIGN_BYTES);
            start
        };
        let len = image.data().len();
        let subsequences = image.subsequences();
        Self {
            problem: take(4),
            made: take(if image.makes_index() { 16 * (image.shape.units()[1] - 1) } else { 0 }),
            codes: take(MOST_TABLES * Code::BYTES),
            steps: take(size_of_val(&image.steps)),
            starts: take(4 * image.starts.len().max(image.intervals.len())),
            seeds: take(12 * image.starts.len()),
            data: take(len),
            clean: take(len + PADDING_BYTES),
            counts: take(4 * len.div_ceil(CHUNK_BYTES)),
            offsets: take(4 * (len.div_ceil(PIECE_BYTES) + 1)),
            states: take(8 * (subsequences + 1)),
            firsts: take(4 * subsequences),
            row_bits: take(if image.makes_index() { 4 * image.shape.units()[1] } else { 0 }),
            dc: take(4 * image.units_of(image.dc_rows()) * image.unit()),
            coefficients: take(128 * image.part_units() * image.unit()),
            bytes: end,
        }
    }

    /// Range of the bytes that the host writes, apart from the coded data.
    pub fn tables(&self) -> Range<usize> {
        0..self.data
    }

    /// Range of the row index that the kernels make.
    pub fn made(&self) -> Range<usize> {
        self.made..self.codes
    }

    /// Size of the coded data and all arrays that only kernels use, in bytes.
    pub fn arrays_bytes(&self) -> usize {
        self.bytes - self.data
    }

    /// Ranges of all arrays that are not empty.
    pub fn arrays(&self) -> Vec<Range<usize>> {
        let mut starts = vec![
            self.problem,
            self.made,
            self.codes,
            self.steps,
            self.starts,
            self.seeds,
            self.data,
            self.clean,
            self.counts,
            self.offsets,
            self.states,
            self.firsts,
            self.row_bits,
            self.dc,
            self.coefficients,
            self.bytes,
        ];
        starts.dedup();
        starts.windows(2).map(|pair| pair[0]..pair[1]).collect()
    }
}

impl DeviceImage {
    /// Arranges the memory that the kernels need.
    pub fn memory(&self) -> DeviceMemory {
        DeviceMemory::of(self)
    }

    /// Number of blocks of an MCU.
    pub(super) fn unit(&self) -> usize {
        self.shape.blocks().1
    }

    fn units_of(&self, rows: usize) -> usize {
        rows * self.shape.units()[0]
    }

    /// Number of MCUs of the part.
    pub(super) fn part_units(&self) -> usize {
        (self.columns[1] - self.columns[0]) * (self.rows[1] - self.rows[0])
    }

    /// Number of rows of MCUs whose DC coefficients are kept: those of the part with a row index,
    /// else all.
    fn dc_rows(&self) -> usize {
        if self.has_index() { self.rows[1] - self.rows[0] } else { self.shape.units()[1] }
    }

    pub(super) fn subsequences(&self) -> usize {
        if self.has_index() { 0 } else { (8 * self.data().len()).div_ceil(self.subsequence_bits) }
    }

    /// Writes the tables of the image to `tables`, the range [`DeviceMemory::tables`] of the
    /// memory. Returns the parameters of the kernels, which write the planes at the address
    /// `samples`. `at` returns the address of an offset of [`DeviceMemory`].
    pub fn write(&self, tables: &mut [u8], at: impl Fn(usize) -> u64, samples: u64) -> JpegParams {
        let memory = self.memory();
        tables.fill(0);
        let mut put = |at: usize, bytes: &[u8]| tables[at..][..bytes.len()].copy_from_slice(bytes);
        put(memory.codes, self.codes.as_flattened());
        put(memory.steps, bytemuck::cast_slice(self.steps.as_flattened()));
        for (row, start) in self.starts.iter().enumerate() {
            put(memory.starts + 4 * row, &(start.position as u32).to_ne_bytes());
            put(memory.seeds + 12 * row, bytemuck::cast_slice(&start.predictions));
        }
        put(memory.starts, bytemuck::cast_slice(&self.intervals));
        let has_index = self.has_index();
        let numbers = |pair: [usize; 2]| pair.map(|it| it as i32);
        let of = |kind: usize| {
            (0..self.shape.component_count())
                .map(|component| (self.places[component][kind] as u32) << (4 * component))
                .sum()
        };
        let planes = self.planes();
        JpegParams {
            data: at(memory.data),
            clean: at(memory.clean),
            counts: at(memory.counts),
            offsets: at(memory.offsets),
            codes: at(memory.codes),
            steps: at(memory.steps),
            starts: at(memory.starts),
            seeds: if has_index { at(memory.seeds) } else { 0 },
            states: at(memory.states),
            firsts: at(memory.firsts),
            row_bits: if self.makes_index() { at(memory.row_bits) } else { 0 },
            made: at(memory.made),
            dc: at(memory.dc),
            coefficients: at(memory.coefficients),
            samples,
            problem: at(memory.problem),
            data_bytes: self.data().len() as u32,
            subsequence_bits: self.subsequence_bits as u32,
            subsequences: self.subsequences() as i32,
            interval: self.restart_interval as i32,
            intervals: self.intervals.len().max(1) as i32,
            units: numbers(self.shape.units()),
            first: numbers([self.columns[0], self.rows[0]]),
            count: numbers([self.columns[1] - self.columns[0], self.rows[1] - self.rows[0]]),
            dc_first: if has_index { self.rows[0] as i32 } else { 0 },
            dc_rows: self.dc_rows() as i32,
            sampling: numbers(self.shape.sampling),
            components: self.shape.component_count() as i32,
            tables: self.codes.len() as i32,
            dc_tables: of(0),
            ac_tables: of(1),
            sides: numbers(self.shape.sides(self.reduction)),
            pitches: numbers(planes.pitches),
            chroma: numbers(planes.chroma),
            unused: 0,
        }
    }
}
