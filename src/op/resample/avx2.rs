//! Horizontal and vertical resampling passes with AVX2.
//!
//! A coefficient is split into an upper and a lower half of at most 16 bits, which are summed
//! separately. The horizontal pass computes four output pixels at a time. A shuffle turns two
//! neighbouring RGB pixels of an output's taps into pairs of 16-bit numbers, one pair per channel.
//! A multiply-add multiplies each pair with two coefficients and adds the products. A 256-bit
//! register does this for two outputs. Coefficients are read once for four rows, because all
//! coefficients together may not fit into the L1 cache. The vertical pass runs along the row, 32
//! bytes at a time, with two rows per multiply-add.

#![allow(unsafe_code)]

use std::arch::x86_64::*;

use bytemuck::must_cast;

use crate::error::{DataError, reserve};
use crate::geometry::Roi;
use crate::tensor::CHANNELS;

use super::row_ring::{ROWS_AT_ONCE, RowRing};
use crate::op::resample::params::{Axis, HALF, PRECISION_BITS, TableBounds};

/// Number of bits in the lower half of a coefficient.
const LOW_BITS: i32 = 11;

/// Largest number of taps for which the sum of lower halves, each times 255, fits an i32.
const MOST_TAPS: usize = 4096;

/// Coefficients of a pair of taps, for two outputs (one 128-bit lane each) and their channels. The
/// first array has the upper halves of the coefficients, the second the lower halves.
type Weights = [[i16; 16]; 2];

/// Memory of the passes, besides the table of coefficients.
#[derive(Debug, Default)]
pub(super) struct Passes {
    /// Stored input rows. Each row has padding, because the passes read past the end of the row.
    lines: Vec<u8>,
    line_len: usize,
    input: Roi,
    /// Byte offset in the line at which the taps of each output begin. The number of entries is a
    /// multiple of four.
    offsets: Vec<u32>,
    /// Number of pairs of taps per output.
    pairs: usize,
    /// Coefficients: `pairs` entries for every two neighbouring outputs.
    weights: Vec<Weights>,
    /// Pairs of rows of the ring from which the current output row is computed.
    rows: Vec<RowPair>,
}

/// Two rows of the ring and their coefficients.
#[derive(Clone, Copy, Debug, Default)]
struct RowPair {
    starts: [usize; 2],
    /// Upper halves of both coefficients, then their lower halves.
    weights: [i32; 2],
}

impl Passes {
    /// Whether the coefficients of an axis can be summed in halves without overflow.
    pub fn fit(axis: Axis<'_>) -> bool {
        let narrow = |&k: &i32| i16::try_from(k >> LOW_BITS).is_ok();
        axis.taps() <= MOST_TAPS && axis.coefs.iter().all(narrow)
    }

    /// Prepares the passes for a resampling. The CPU must have AVX2.
    pub fn begin(
        passes: &mut Option<Self>,
        columns: Axis<'_>,
        rows: Axis<'_>,
        input: Roi,
    ) -> Result<(), DataError> {
        let it = passes.get_or_insert_default();
        it.input = input;
        it.pairs = columns.taps().div_ceil(2);
        let outputs = columns.len().next_multiple_of(4);
        reserve::renew(&mut it.offsets, outputs)?;
        reserve::renew(&mut it.weights, outputs / 2 * it.pairs)?;
        reserve::renew(&mut it.rows, rows.taps().div_ceil(2))?;
        it.line_len = line_len(input.width, it.pairs);
        reserve::renew(&mut it.lines, ROWS_AT_ONCE * it.line_len)?;
        it.offsets.fill(0);
        it.weights.fill(Default::default());
        for index in 0..columns.len() {
            let (first, coefs) = columns.output(index);
            it.offsets[index] = CHANNELS as u32 * (first - input.x);
            let weights = &mut it.weights[index / 2 * it.pairs..][..it.pairs];
            for (weights, taps) in weights.iter_mut().zip(coefs.chunks(2)) {
                let halves = halves([taps[0], taps.get(1).copied().unwrap_or(0)]);
                for (weights, halves) in weights.iter_mut().zip(halves) {
                    weights[8 * (index % 2)..][..8].as_chunks_mut().0.fill(halves);
                }
            }
        }
        Ok(())
    }

    pub fn scratch_bytes(&self) -> usize {
        self.lines.capacity()
            + self.offsets.capacity() * size_of::<u32>()
            + self.weights.capacity() * size_of::<Weights>()
            + self.rows.capacity() * size_of::<RowPair>()
    }

    /// Upper bounds of the buffers in bytes, in the order of `ScratchBytes`: ring (0, because the
    /// resampler holds it), lines, offsets, weights, blocks (0, because only VNNI has them), and
    /// row pairs.
    pub fn most_bytes(table: TableBounds, columns: u32, side: u32) -> [usize; 6] {
        let outputs = (columns as usize).next_multiple_of(4);
        let [taps, row_taps] = table.taps.map(|taps| taps.min(MOST_TAPS));
        // Upper bound of the number of `Weights`, for any number of outputs up to `columns`.
        // Outputs are padded to a multiple of 4, and two taps form a pair.
        let by_entries = (table.columns + 3 * taps).div_ceil(4);
        [
            0,
            ROWS_AT_ONCE * line_len(side, taps.div_ceil(2)),
            outputs * size_of::<u32>(),
            by_entries.min(outputs / 2 * taps.div_ceil(2)) * size_of::<Weights>(),
            0,
            row_taps.div_ceil(2) * size_of::<RowPair>(),
        ]
    }

    /// Stores a row for the horizontal pass at index `place` of the rows that are processed
    /// together.
    pub fn keep(&mut self, place: usize, row: &[u8]) {
        let len = CHANNELS * self.input.width as usize;
        self.lines[place * self.line_len..][..len].copy_from_slice(&row[..len]);
    }

    /// Runs the horizontal pass on the stored rows and writes the results to the `slots` of the
    /// ring.
    pub fn horizontal(&mut self, ring: &mut [u8], slots: &[usize]) {
        // SAFETY: the path was chosen because the CPU has AVX2.
        unsafe { horizontal(self, ring, slots) }
    }

    pub fn vertical(&mut self, ring: RowRing<'_>, first: u32, coefs: &[i32], out: &mut [u8]) {
        let rows = &mut self.rows[..coefs.len().div_ceil(2)];
        let last = first + coefs.len() as u32 - 1;
        for ((row, taps), y) in rows.iter_mut().zip(coefs.chunks(2)).zip((first..).step_by(2)) {
            // If the number of rows is odd, the last row is paired with itself at weight 0.
            row.starts = [ring.start(y), ring.start((y + 1).min(last))];
            let pair = [taps[0], taps.get(1).copied().unwrap_or(0)];
            row.weights = halves(pair).map(bytemuck::cast);
        }
        // SAFETY: the path was chosen because the CPU has AVX2.
        unsafe { vertical(ring.bytes(), rows, out) }
    }
}

/// Length in bytes of a stored line of `width` pixels. Its padding lets every output read `pairs`
/// pairs of taps, 16 bytes at a time.
fn line_len(width: u32, pairs: usize) -> usize {
    CHANNELS * width as usize + 2 * CHANNELS * pairs + 16
}

/// Splits two coefficients. Returns their upper halves, then their lower halves.
fn halves(coefs: [i32; 2]) -> [[i16; 2]; 2] {
    [coefs.map(|k| (k >> LOW_BITS) as i16), coefs.map(|k| (k & ((1 << LOW_BITS) - 1)) as i16)]
}

#[inline(always)]
fn load32(row: &[u8], at: usize) -> __m256i {
    must_cast(*row[at..].first_chunk::<32>().expect("a row of the ring has a multiple of 32 bytes"))
}

/// Shuffle mask that expands two pixels, starting at pixel `first` of the lane, to pairs of 16
/// bits: red of both pixels, then green, blue and zeros.
#[inline(always)]
fn pair_mask(first: i8) -> __m256i {
    let (a, b) = (3 * first, 3 * first + 3);
    let lane = [a, -1, b, -1, a + 1, -1, b + 1, -1, a + 2, -1, b + 2, -1, -1, -1, -1, -1];
    must_cast([lane, lane])
}

#[target_feature(enable = "avx2")]
fn horizontal(passes: &Passes, ring: &mut [u8], slots: &[usize]) {
    let Passes { lines, line_len, offsets, pairs, weights, .. } = passes;
    let last = offsets.iter().copied().max().unwrap_or(0) as usize;
    assert!(last + 2 * CHANNELS * pairs + 16 <= *line_len, "each offset must be inside the line");
    assert!(ROWS_AT_ONCE * line_len <= lines.len());
    let load = |row: usize, at: usize| {
        // SAFETY: row < ROWS_AT_ONCE, and at <= last + 6 * pairs: both asserts above cover 16 more
        // bytes.
        unsafe { _mm_loadu_si128(lines.as_ptr().add(row * line_len + at).cast()) }
    };
    let (mask01, mask23) = (pair_mask(0), pair_mask(2));
    let groups = offsets.as_chunks::<4>().0.iter().zip(weights.chunks_exact(2 * pairs));
    for (group, (offsets, weights)) in groups.enumerate() {
        let mut sums = [[_mm256_setzero_si256(); ROWS_AT_ONCE]; 2];
        let halves = sums.iter_mut().zip(offsets.as_chunks::<2>().0);
        for ((sums, offsets), weights) in halves.zip(weights.chunks_exact(*pairs)) {
            let [left, right] = [offsets[0] as usize, offsets[1] as usize];
            let mut high = [_mm256_setzero_si256(); ROWS_AT_ONCE];
            let mut low = [_mm256_set1_epi32(HALF); ROWS_AT_ONCE];
            let (quads, rest) = weights.as_chunks::<2>();
            for (quad, [first, second]) in quads.iter().enumerate() {
                let at = 4 * CHANNELS * quad;
                let (high01, low01): (__m256i, __m256i) =
                    (must_cast(first[0]), must_cast(first[1]));
                let (high23, low23): (__m256i, __m256i) =
                    (must_cast(second[0]), must_cast(second[1]));
                for row in 0..ROWS_AT_ONCE {
                    let pixels = _mm256_set_m128i(load(row, right + at), load(row, left + at));
                    let taps = _mm256_shuffle_epi8(pixels, mask01);
                    high[row] = _mm256_add_epi32(high[row], _mm256_madd_epi16(taps, high01));
                    low[row] = _mm256_add_epi32(low[row], _mm256_madd_epi16(taps, low01));
                    let taps = _mm256_shuffle_epi8(pixels, mask23);
                    high[row] = _mm256_add_epi32(high[row], _mm256_madd_epi16(taps, high23));
                    low[row] = _mm256_add_epi32(low[row], _mm256_madd_epi16(taps, low23));
                }
            }
            if let [last] = rest {
                let at = 4 * CHANNELS * quads.len();
                let (high01, low01): (__m256i, __m256i) = (must_cast(last[0]), must_cast(last[1]));
                for row in 0..ROWS_AT_ONCE {
                    let pixels = _mm256_set_m128i(load(row, right + at), load(row, left + at));
                    let taps = _mm256_shuffle_epi8(pixels, mask01);
                    high[row] = _mm256_add_epi32(high[row], _mm256_madd_epi16(taps, high01));
                    low[row] = _mm256_add_epi32(low[row], _mm256_madd_epi16(taps, low01));
                }
            }
            for row in 0..ROWS_AT_ONCE {
                let sum = _mm256_add_epi32(_mm256_slli_epi32(high[row], LOW_BITS), low[row]);
                sums[row] = _mm256_srai_epi32(sum, PRECISION_BITS as i32);
            }
        }
        for (row, slot) in slots.iter().enumerate().take(ROWS_AT_ONCE) {
            // The lanes hold outputs 0 and 2, and outputs 1 and 3. The outputs are brought into
            // order, and the unused fourth channel is dropped.
            let words = _mm256_packs_epi32(sums[0][row], sums[1][row]);
            let bytes = _mm256_packus_epi16(words, words);
            let even = _mm256_castsi256_si128(bytes);
            let odd = _mm256_extracti128_si256(bytes, 1);
            let drop = _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
            let rgb = _mm_shuffle_epi8(_mm_unpacklo_epi32(even, odd), drop);
            ring[slot + 12 * group..][..16].copy_from_slice(&must_cast::<_, [u8; 16]>(rgb));
        }
    }
}

#[target_feature(enable = "avx2")]
fn vertical(ring: &[u8], rows: &[RowPair], out: &mut [u8]) {
    let (chunks, rest) = out.as_chunks_mut::<32>();
    for (chunk, out) in chunks.iter_mut().enumerate() {
        *out = must_cast(vertical_chunk(ring, rows, 32 * chunk));
    }
    if !rest.is_empty() {
        let bytes: [u8; 32] = must_cast(vertical_chunk(ring, rows, 32 * chunks.len()));
        let len = rest.len();
        rest.copy_from_slice(&bytes[..len]);
    }
}

/// Computes 32 bytes of an output row, starting at byte `at`.
#[inline]
#[target_feature(enable = "avx2")]
fn vertical_chunk(ring: &[u8], rows: &[RowPair], at: usize) -> __m256i {
    let zero = _mm256_setzero_si256();
    let mut high = [zero; 4];
    let mut low = [_mm256_set1_epi32(HALF); 4];
    for row in rows {
        let above = load32(ring, row.starts[0] + at);
        let below = load32(ring, row.starts[1] + at);
        let left = _mm256_unpacklo_epi8(above, below);
        let right = _mm256_unpackhi_epi8(above, below);
        let taps = [
            _mm256_unpacklo_epi8(left, zero),
            _mm256_unpackhi_epi8(left, zero),
            _mm256_unpacklo_epi8(right, zero),
            _mm256_unpackhi_epi8(right, zero),
        ];
        let high_weights = _mm256_set1_epi32(row.weights[0]);
        let low_weights = _mm256_set1_epi32(row.weights[1]);
        for part in 0..4 {
            let product = _mm256_madd_epi16(taps[part], high_weights);
            high[part] = _mm256_add_epi32(high[part], product);
            let product = _mm256_madd_epi16(taps[part], low_weights);
            low[part] = _mm256_add_epi32(low[part], product);
        }
    }
    let mut sums = [zero; 4];
    for part in 0..4 {
        let sum = _mm256_add_epi32(_mm256_slli_epi32(high[part], LOW_BITS), low[part]);
        sums[part] = _mm256_srai_epi32(sum, PRECISION_BITS as i32);
    }
    let left = _mm256_packs_epi32(sums[0], sums[1]);
    let right = _mm256_packs_epi32(sums[2], sums[3]);
    _mm256_packus_epi16(left, right)
}
