//! Fast resampling, with the same bits as [`reference`](super::reference). The caller pushes each
//! input row when the decoder has produced it, and reads each output row when it is complete.
//!
//! The horizontal pass runs on the pushed rows. It stores its output in a ring of rows, which holds
//! the rows that the vertical pass still needs. The CPU's instruction set decides how sums are
//! computed ([`Path`]). All paths produce identical bits.

use crate::error::{DataError, reserve};
use crate::geometry::Roi;
use crate::tensor::CHANNELS;

use super::row_ring::{ROWS_AT_ONCE, RowRing};
#[cfg(target_arch = "x86_64")]
use super::vnni::Width;
use crate::op::resample::params::{Axis, HALF, PRECISION_BITS, Params};

/// Instruction set with which sums are computed, slowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Path {
    /// 32-bit multiplications, vectorized by the compiler.
    Portable,
    /// 16-bit multiply-add. A 22-bit coefficient is split into `high * 2^11 + low`.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// Dot products of four bytes, in 256-bit vectors. A coefficient is split into three digits of
    /// 8 bits.
    #[cfg(target_arch = "x86_64")]
    AvxVnni,
    /// Dot products of four bytes, in 512-bit vectors.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Path {
    /// All paths, fastest first.
    #[cfg(target_arch = "x86_64")]
    const ALL: &[Self] = &[Self::Avx512, Self::AvxVnni, Self::Avx2, Self::Portable];
    #[cfg(not(target_arch = "x86_64"))]
    const ALL: &[Self] = &[Self::Portable];

    /// Whether this CPU supports the path.
    fn is_here(self) -> bool {
        match self {
            Self::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => is_x86_feature_detected!("avx2"),
            #[cfg(target_arch = "x86_64")]
            Self::AvxVnni => {
                is_x86_feature_detected!("avx2") && is_x86_feature_detected!("avxvnni")
            }
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => {
                is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512vnni")
            }
        }
    }

    /// Whether the path can represent an axis's coefficients.
    #[cfg_attr(not(target_arch = "x86_64"), expect(unused_variables))]
    fn takes(self, axis: Axis<'_>) -> bool {
        match self {
            Self::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => super::avx2::Passes::fit(axis),
            #[cfg(target_arch = "x86_64")]
            Self::AvxVnni | Self::Avx512 => super::vnni::Passes::fit(axis),
        }
    }
}

/// Progress and memory of a resampling. The memory is reused for the next resampling.
///
/// ```text
/// resampler.begin(&params, &table, window)?;
/// for y in window.y..window.bottom() {
///     resampler.push_row(y, row);
///     while let Some(y) = resampler.next_output() {
///         resampler.output_row(y, &mut line);
///     }
/// }
/// ```
#[derive(Debug, Default)]
pub struct Resampler {
    params: Params,
    table: Vec<i32>,
    input: Roi,
    /// The next input row to push, the first input row that has not gone through the horizontal
    /// pass, and the next output row to read. The output row is counted from the start of the
    /// wanted window.
    next_input: u32,
    passed: u32,
    next_output: usize,
    /// Rows after the horizontal pass. Row `y` is in place `y % ring_rows`.
    ring: Vec<u8>,
    ring_rows: usize,
    stride: usize,
    /// Fastest path that may be used. `None` means no limit; tests set one.
    fastest: Option<Path>,
    #[cfg(target_arch = "x86_64")]
    avx2: Option<super::avx2::Passes>,
    /// The VNNI passes have their own ring.
    #[cfg(target_arch = "x86_64")]
    vnni: Option<super::vnni::Passes>,
}

impl Resampler {
    /// Starts a resampling. The rows that are pushed afterwards cover the window `input`, which
    /// must contain the window that `demand` returned.
    ///
    /// # Errors
    /// [`Reason::OutOfMemory`](crate::error::Reason::OutOfMemory) if a buffer cannot be allocated.
    /// No rows may be pushed after an error.
    pub fn begin(&mut self, params: &Params, table: &[i32], input: Roi) -> Result<(), DataError> {
        let (columns, rows) = (params.columns(table), params.rows(table));
        debug_assert!(input.x <= columns.inputs().start && columns.inputs().end <= input.right());
        self.params = *params;
        self.input = input;
        self.next_input = rows.inputs().start;
        self.passed = self.next_input;
        self.next_output = 0;
        reserve::renew(&mut self.table, table.len())?;
        self.table.copy_from_slice(table);
        let path = self.path();
        #[cfg(not(target_arch = "x86_64"))]
        debug_assert_eq!(path, Path::Portable);
        #[cfg(target_arch = "x86_64")]
        {
            if path >= Path::AvxVnni {
                (self.ring, self.avx2) = (Vec::new(), None);
                let width = if path == Path::Avx512 { Width::Bits512 } else { Width::Bits256 };
                return super::vnni::Passes::begin(&mut self.vnni, width, columns, rows, input);
            }
            self.vnni = None;
            if path == Path::Avx2 {
                super::avx2::Passes::begin(&mut self.avx2, columns, rows, input)?;
            } else {
                self.avx2 = None;
            }
        }
        self.stride = stride(columns.len());
        self.ring_rows = rows.taps() + ROWS_AT_ONCE - 1;
        reserve::renew(&mut self.ring, self.stride * self.ring_rows)
    }

    /// Fastest path that this CPU supports and that can represent the coefficients.
    fn path(&self) -> Path {
        let (columns, rows) = (self.params.columns(&self.table), self.params.rows(&self.table));
        let allowed = |path: Path| self.fastest.is_none_or(|fastest| path <= fastest);
        let able = |path: Path| path.is_here() && path.takes(columns) && path.takes(rows);
        let path = Path::ALL.iter().copied().find(|&path| allowed(path) && able(path));
        path.unwrap_or(Path::Portable)
    }

    /// Pushes row `y` of the input: RGB of the columns of the input window. Rows must be pushed in
    /// order, and rows that are not needed may be left out. Before each push, all ready output rows
    /// must have been read.
    pub fn push_row(&mut self, y: u32, row: &[u8]) {
        let rows = self.params.rows(&self.table);
        if !rows.inputs().contains(&y) {
            return;
        }
        assert!(
            y == self.next_input && self.next_output().is_none(),
            "rows must be pushed in order, after all ready output rows were read"
        );
        self.next_input += 1;
        #[cfg(target_arch = "x86_64")]
        let pending = (y - self.passed) as usize;
        #[cfg(target_arch = "x86_64")]
        let pass = pending + 1 == ROWS_AT_ONCE || self.next_input == rows.inputs().end;
        #[cfg(target_arch = "x86_64")]
        if let Some(passes) = &mut self.vnni {
            passes.keep(pending, row);
            if pass {
                passes.horizontal(self.passed);
                self.passed = self.next_input;
            }
            return;
        }
        let slot = |y: u32| self.stride * (y as usize % self.ring_rows);
        #[cfg(target_arch = "x86_64")]
        if let Some(passes) = &mut self.avx2 {
            passes.keep(pending, row);
            if pass {
                let slots: [_; ROWS_AT_ONCE] =
                    std::array::from_fn(|row| slot(self.passed + row as u32));
                passes.horizontal(&mut self.ring, &slots[..=pending]);
                self.passed = self.next_input;
            }
            return;
        }
        let out = &mut self.ring[slot(y)..][..self.stride];
        horizontal(self.params.columns(&self.table), self.input.x, row, out);
        self.passed = self.next_input;
    }

    /// Next output row, if it is ready to be read, in coordinates of the whole output.
    pub fn next_output(&self) -> Option<u32> {
        if self.next_output == self.params.height as usize {
            return None;
        }
        let (first, coefs) = self.params.rows(&self.table).output(self.next_output);
        let ready = first + coefs.len() as u32 <= self.passed;
        ready.then(|| self.params.y as u32 + self.next_output as u32)
    }

    /// Writes output row `y`, which [`next_output`](Self::next_output) returned, to `out`: RGB of
    /// the wanted columns.
    pub fn output_row(&mut self, y: u32, out: &mut [u8]) {
        assert_eq!(Some(y), self.next_output(), "the row is not ready");
        let (first, coefs) = self.params.rows(&self.table).output(self.next_output);
        self.next_output += 1;
        #[cfg(target_arch = "x86_64")]
        if let Some(passes) = &mut self.vnni {
            return passes.vertical(first, coefs, out);
        }
        let ring = RowRing::new(&self.ring, self.stride, self.ring_rows);
        if coefs == [1 << PRECISION_BITS] {
            return out.copy_from_slice(&ring.row(first)[..out.len()]);
        }
        #[cfg(target_arch = "x86_64")]
        if let Some(passes) = &mut self.avx2 {
            return passes.vertical(ring, first, coefs, out);
        }
        vertical(ring, first, coefs, out);
    }

    /// Memory that the resampler holds, in bytes.
    pub fn scratch_bytes(&self) -> usize {
        let bytes = self.table.capacity() * size_of::<i32>() + self.ring.capacity();
        #[cfg(target_arch = "x86_64")]
        let bytes = bytes
            + self.avx2.as_ref().map_or(0, |passes| passes.scratch_bytes())
            + self.vnni.as_ref().map_or(0, |passes| passes.scratch_bytes());
        bytes
    }
}

/// Stride of the ring in bytes: a whole number of vectors of 32 bytes, with padding for a store
/// past the last pixel.
pub(super) fn stride(width: usize) -> usize {
    (CHANNELS * width.next_multiple_of(4) + 4).next_multiple_of(32)
}

fn horizontal(columns: Axis<'_>, x: u32, row: &[u8], out: &mut [u8]) {
    for (index, out) in out.as_chunks_mut().0.iter_mut().take(columns.len()).enumerate() {
        let (first, coefs) = columns.output(index);
        let pixels = &row.as_chunks::<CHANNELS>().0[(first - x) as usize..];
        let mut sums = [HALF; CHANNELS];
        for (k, pixel) in coefs.iter().zip(pixels) {
            for (sum, &value) in sums.iter_mut().zip(pixel) {
                *sum += k * i32::from(value);
            }
        }
        *out = sums.map(|sum| (sum >> PRECISION_BITS).clamp(0, 255) as u8);
    }
}

fn vertical(ring: RowRing<'_>, first: u32, coefs: &[i32], out: &mut [u8]) {
    // Number of sums that stay in registers, or at least in the L1 cache.
    const RUN: usize = 256;
    for (run, out) in out.chunks_mut(RUN).enumerate() {
        let mut sums = [HALF; RUN];
        for (k, y) in coefs.iter().zip(first..) {
            for (sum, &value) in sums.iter_mut().zip(&ring.row(y)[RUN * run..]) {
                *sum += k * i32::from(value);
            }
        }
        for (out, sum) in out.iter_mut().zip(sums) {
            *out = (sum >> PRECISION_BITS).clamp(0, 255) as u8;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Filter, ScratchBytes, TableBounds, fill_table, reference};
    use super::*;
    use crate::geometry::Size;
    use crate::image::{HostImage, Image, PixelType};
    use crate::op::{Actions, Bounds, Operator, RandomResizedCrop, Resize, Trace, Wanted};

    const FILTERS: [Filter; 6] = [
        Filter::Nearest,
        Filter::Box,
        Filter::Bilinear,
        Filter::Hamming,
        Filter::Bicubic,
        Filter::Lanczos,
    ];

    fn image(size: Size) -> Image<u8> {
        let value = |at: u64| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u8;
        // The image has long runs of black and white next to noise, so that the filters overshoot.
        let data = (0..3 * size.pixels())
            .map(|at| match at / 37 % 4 {
                0 => 0,
                1 => 255,
                _ => value(at),
            })
            .collect();
        Image::from_data(size.window(), data)
    }

    fn sizes() -> Vec<(Size, Size)> {
        let mut sizes = [
            ((1, 1), (1, 1)),
            ((1, 1), (9, 5)),
            ((5, 3), (41, 37)),
            ((64, 48), (64, 48)),
            ((97, 89), (48, 31)),
            ((333, 50), (21, 20)),
            ((20_000, 3), (2, 2)),
            ((2, 20_000), (5, 1)),
        ]
        .map(|((w, h), (to_w, to_h))| (Size::new(w, h), Size::new(to_w, to_h)))
        .to_vec();
        // These sizes have every number of taps, and taps that start at every alignment modulo
        // four.
        sizes.extend(
            (1..40)
                .map(|at| (Size::new(at * 7 % 83 + 1, at * 11 % 61 + 1), at))
                .map(|(from, at)| (from, Size::new(at * 13 % 31 + 1, at * 17 % 29 + 1))),
        );
        sizes
    }

    fn resample(
        resampler: &mut Resampler,
        params: &Params,
        table: &[i32],
        src: &Image<u8>,
    ) -> Vec<u8> {
        let mut out = Image::<u8>::new(params.wanted());
        let window = src.window();
        resampler.begin(params, table, window).unwrap();
        for y in window.y..window.bottom() {
            resampler.push_row(y, src.row(y));
            while let Some(y) = resampler.next_output() {
                resampler.output_row(y, out.row_mut(y));
            }
        }
        out.data().to_vec()
    }

    /// Covers every path that this CPU supports, memory left over from earlier resamplings, rows
    /// that are not needed, and windows at any position.
    #[test]
    fn every_path_equals_the_reference() {
        let resampler = |&path: &Path| Resampler { fastest: Some(path), ..Resampler::default() };
        let (here, missing): (Vec<Path>, Vec<Path>) = Path::ALL.iter().partition(|it| it.is_here());
        println!("compared: {here:?}; not on this CPU: {missing:?}");
        let mut resamplers = here.iter().map(resampler).collect::<Vec<_>>();
        for (index, (from, to)) in sizes().into_iter().enumerate() {
            let skipped = Roi::new(0, index as u32 % 3, from.width, from.height);
            let whole = Size::new(skipped.right(), skipped.bottom());
            let src = Image::from_data(skipped, image(from).data().to_vec());
            for filter in FILTERS {
                let mut params = Params::new(skipped, to);
                let mut table = Vec::new();
                let (width, height) = (to.width.div_ceil(2), to.height.div_ceil(2));
                let output = Roi::new(to.width / 3, to.height / 4, width, height);
                let wanted =
                    Wanted { input: whole, reduction: 1, padding: Size::default(), output };
                let demanded = fill_table(&mut params, wanted, filter, &mut table);
                let mut expected = HostImage::new(PixelType::U8, output);
                reference(&params, &table, &HostImage::U8(src.clone()), &mut expected);
                let HostImage::U8(expected) = expected else { unreachable!() };
                let mut cropped = Image::<u8>::new(demanded);
                for y in demanded.y..demanded.bottom() {
                    let row = &src.row(y)[CHANNELS * demanded.x as usize..];
                    cropped.row_mut(y).copy_from_slice(&row[..CHANNELS * demanded.width as usize]);
                }
                let axes = [params.columns(&table), params.rows(&table)];
                for (resampler, path) in resamplers.iter_mut().zip(&here) {
                    let able = axes.iter().all(|&axis| path.takes(axis));
                    for src in [&src, &cropped] {
                        let out = resample(resampler, &params, &table, src);
                        assert!(!able || resampler.path() == *path);
                        let case = format!("{path:?} {filter:?} {from} to {output} of {to}");
                        assert!(out == expected.data(), "{case}");
                    }
                }
            }
        }
    }

    /// Coefficients of one resampling may be too large for the path that the resampler used before.
    #[test]
    fn coefficients_too_large_for_a_path_use_a_slower_one() {
        let size = Size::new(40, 8);
        let src = image(size);
        let mut params = Params::new(size.window(), Size::new(20, 4));
        let mut table = Vec::new();
        let output = Roi::new(0, 0, 20, 4);
        let wanted = Wanted { input: size, reduction: 1, padding: Size::default(), output };
        fill_table(&mut params, wanted, Filter::Bilinear, &mut table);
        let mut resampler = Resampler::default();
        let before = resample(&mut resampler, &params, &table, &src);
        let mut large = table.clone();
        let coefs = params.h_coefs as usize;
        (large[coefs], large[coefs + 1]) = (1 << 27, -(1 << 27));
        let flat = Image::from_data(size.window(), vec![1; 3 * 40 * 8]);
        let mut expected = HostImage::new(PixelType::U8, output);
        reference(&params, &large, &HostImage::U8(flat.clone()), &mut expected);
        let HostImage::U8(expected) = expected else { unreachable!() };
        assert!(resample(&mut resampler, &params, &large, &flat) == expected.data());
        assert_eq!(resampler.path(), Path::Portable);
        assert!(resample(&mut resampler, &params, &table, &src) == before);
    }

    /// The predicted memory (footprint) relies on these bounds on tables and scratch memory.
    #[test]
    fn tables_and_scratch_memory_stay_within_their_bounds() {
        for (size, _) in sizes() {
            let bounds = Bounds {
                pixels: size.pixels(),
                side: size.width.max(size.height),
                wanted: Some(Size::new(40, 30)),
            };
            for filter in FILTERS {
                let exact = Resize { filter, ..Resize::to(50, 31) };
                let shorter = Resize { filter, ..Resize::shorter(30) };
                let longer = Resize { filter, ..Resize::longer(40) };
                for op in [exact, shorter, longer] {
                    check_bounds(&op, size, bounds);
                }
                check_bounds(
                    &RandomResizedCrop { filter, ..RandomResizedCrop::to(40, 30) },
                    size,
                    bounds,
                );
            }
        }
    }

    fn check_bounds(op: &dyn Operator, size: Size, bounds: Bounds) {
        let wanted = bounds.wanted.expect("the test wants a window");
        let mut actions = Actions::default();
        let out = actions.draw([op], Default::default(), size, &mut Trace::new(size));
        let output = Roi::new(0, 0, out.width.min(wanted.width), out.height.min(wanted.height));
        actions.demand(output);
        let (params, table) = (*actions.first_resampling().unwrap(), actions.table_of(0));
        let most = op.coefficients(bounds);
        assert!(table.len() <= most, "{op:?} of {size}: {} over {most}", table.len());

        let mut resampler = Resampler::default();
        resampler.begin(&params, table, size.window()).unwrap();
        let held = resampler.scratch_bytes();
        let of = |wanted| op.coefficients(Bounds { wanted: Some(wanted), ..bounds });
        let taps = [of(Size::new(1, 0)), of(Size::new(0, 1))];
        let table = TableBounds { entries: most, columns: of(Size::new(wanted.width, 0)), taps };
        let most = ScratchBytes::most(table, wanted.width, bounds.side).0.iter().sum::<u64>();
        let most = most as usize;
        assert!(held <= most, "{op:?} of {size}: {held} bytes over {most}");
    }
}
