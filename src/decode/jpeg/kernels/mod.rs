//! Inner loops of the decoder, compiled for several instruction sets. All sets produce the same
//! bytes.

#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
pub mod plain;
#[cfg(target_arch = "x86_64")]
mod sse41;
#[cfg(target_arch = "x86_64")]
mod x86;

use std::ops::{Range, RangeInclusive};

use super::bands::{Bands, Block, Mask, Plain};
use super::bits::Input;
use super::blocks::{BLOCK, Coding, OneByOne, Reader};
use crate::tensor::CHANNELS;

/// Maximum value of [`Kernels::step`].
pub const MOST_STEP: usize = 64;

/// Quantization steps of four blocks side by side, row by row.
pub type Quantization = [[u16; 32]; 8];

/// Number of chroma samples that are summed before they are converted to pixels.
const SUMMED: usize = 512;
/// Buffers for the sums of both chroma components, including neighbours at the ends.
pub type Sums = [[i16; SUMMED + 32]; 2];
/// Initial value of [`Sums`].
pub const NO_SUMS: Sums = [[0; SUMMED + 32]; 2];

/// Maximum number of leading coefficients, in zigzag order, of a sparse block. These coefficients
/// lie in the block's first four rows and columns.
const SPARSE: u8 = 10;

/// Four blocks to transform: two pairs. The blocks of a pair lie side by side in the image.
pub struct Four<'a> {
    /// Coefficients in zigzag order.
    pub blocks: [&'a [i16; BLOCK]; 4],
    /// Number of leading coefficients that may be nonzero in any of the blocks.
    pub len: u8,
    pub quantization: &'a Quantization,
}

/// Range of the dequantized coefficients in a block's first row for which all code paths of
/// libjpeg-turbo give the same result. If all other rows are zero, libjpeg-turbo multiplies these
/// coefficients by 4 in 16 bits, which overflows outside this range.
const SANE: RangeInclusive<i16> = -8192..=8191;

/// Range of dequantized coefficients for which no sum of the reducing transform overflows 16 bits.
/// The coefficients of all intact images lie within this range.
const REDUCIBLE: RangeInclusive<i16> = -2048..=2047;

/// Output memory for the samples of four blocks.
pub struct Planes<'a> {
    pub bytes: &'a mut [u8],
    /// Position of the first sample of each pair of blocks.
    pub starts: [usize; 2],
    pub pitch: usize,
}

impl Planes<'_> {
    /// Writes one row of a block.
    #[inline(always)]
    fn put_block<const SIDE: usize>(&mut self, block: usize, row: usize, samples: [u8; SIDE]) {
        let start = self.starts[block / 2] + row * self.pitch + block % 2 * SIDE;
        self.bytes[start..][..SIDE].copy_from_slice(&samples);
    }

    /// Writes one row of a pair of blocks, with 8 samples per block.
    #[inline(always)]
    fn put_pair(&mut self, pair: usize, row: usize, samples: [u8; 16]) {
        let start = self.starts[pair] + row * self.pitch;
        self.bytes[start..][..16].copy_from_slice(&samples);
    }
}

/// One row of samples to convert to pixels.
#[derive(Clone, Copy)]
pub enum Line<'a> {
    /// Luma only.
    Gray(&'a [u8]),
    /// Luma samples, and the same number of chroma samples.
    Whole(&'a [u8], [&'a [u8]; 2]),
    /// Luma samples, and half as many chroma samples. The chroma samples begin with the left
    /// neighbour of the row's first chroma sample.
    Half(&'a [u8], [&'a [u8]; 2]),
    /// Luma samples, and half as many chroma samples in each of two rows: the nearest row and the
    /// second nearest.
    Between(&'a [u8], [&'a [u8]; 2], [&'a [u8]; 2]),
    /// Luma samples, and a quarter of that number of chroma samples.
    Quarter(&'a [u8], [&'a [u8]; 2]),
    /// Luma samples, and the same number of chroma samples in each of two rows: the nearest row and
    /// the second nearest. The number is added to the weighted sum of both rows for rounding.
    Blend(&'a [u8], [&'a [u8]; 2], [&'a [u8]; 2], u16),
}

/// Instruction set that the loops use. Every value is supported by this CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernels(Set);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Set {
    Plain,
    #[cfg(target_arch = "x86_64")]
    Sse41,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "aarch64")]
    Neon,
}

/// Calls a loop that is compiled for an instruction set.
macro_rules! call {
    ($set:expr, $plain:expr, $name:ident $(::<$constant:tt>)? ($($argument:expr),*)) => {
        match $set {
            Set::Plain => $plain,
            // SAFETY: only `Kernels::here` and `Kernels::all` create a set, and only if the CPU has
            // its instructions.
            #[cfg(target_arch = "x86_64")]
            Set::Sse41 => unsafe { sse41::$name$(::<$constant>)?($($argument),*) },
            // SAFETY: only `Kernels::here` and `Kernels::all` create a set, and only if the CPU has
            // its instructions.
            #[cfg(target_arch = "x86_64")]
            Set::Avx2 => unsafe { avx2::$name$(::<$constant>)?($($argument),*) },
            // SAFETY: only `Kernels::here` and `Kernels::all` create a set, and only if the CPU has
            // its instructions.
            #[cfg(target_arch = "x86_64")]
            Set::Avx512 => unsafe { avx512::$name$(::<$constant>)?($($argument),*) },
            // SAFETY: only `Kernels::here` and `Kernels::all` create a set, and only if the CPU has
            // its instructions.
            #[cfg(target_arch = "aarch64")]
            Set::Neon => unsafe { neon::$name$(::<$constant>)?($($argument),*) },
        }
    };
}

impl Kernels {
    /// Returns the widest instruction set that this CPU has.
    pub fn here() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::is_x86_feature_detected as has;
            let avx2 =
                has!("avx2") && has!("bmi1") && has!("bmi2") && has!("lzcnt") && has!("movbe");
            let avx2 = avx2 && has!("popcnt");
            let avx512 = has!("avx512f") && has!("avx512bw") && has!("avx512vl");
            if avx2 && avx512 && has!("avx512vbmi") {
                return Self(Set::Avx512);
            }
            if avx2 {
                return Self(Set::Avx2);
            }
            if has!("sse4.1") {
                return Self(Set::Sse41);
            }
        }
        #[cfg(target_arch = "aarch64")]
        return Self(Set::Neon);
        #[cfg(not(target_arch = "aarch64"))]
        Self(Set::Plain)
    }

    /// Whether the set has vector instructions. Without vector instructions, libjpeg-turbo is
    /// faster than this decoder.
    pub fn are_fast(self) -> bool {
        self.0 != Set::Plain
    }

    /// Returns all sets that this CPU has, with their names.
    pub fn all() -> Vec<(&'static str, Self)> {
        let all = [
            ("plain", Set::Plain),
            #[cfg(target_arch = "x86_64")]
            ("sse4.1", Set::Sse41),
            #[cfg(target_arch = "x86_64")]
            ("avx2", Set::Avx2),
            #[cfg(target_arch = "x86_64")]
            ("avx-512", Set::Avx512),
            #[cfg(target_arch = "aarch64")]
            ("neon", Set::Neon),
        ];
        let has = all.iter().position(|(_, set)| *set == Self::here().0).unwrap_or(0);
        all[..=has].iter().map(|(name, set)| (*name, Self(*set))).collect()
    }

    /// Calls [`Coding::decode`] with this instruction set.
    pub fn decode(
        self,
        coding: &Coding<'_>,
        blocks: Range<usize>,
        reader: &mut Reader<'_>,
    ) -> Option<()> {
        match self.0 {
            Set::Plain => coding.decode::<OneByOne>(blocks, reader),
            #[cfg(target_arch = "aarch64")]
            Set::Neon => coding.decode::<neon::Wide>(blocks, reader),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: only `Kernels::here` and `Kernels::all` create a set, and only if the CPU has
            // its instructions.
            Set::Sse41 => unsafe { sse41::decode(coding, blocks, reader) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the CPU has the instructions of the set. `Avx512` includes those of `Avx2`.
            Set::Avx2 | Set::Avx512 => unsafe { avx2::decode(coding, blocks, reader) },
        }
    }

    /// Calls [`Coding::parse`] with this instruction set.
    pub fn parse(self, coding: &Coding<'_>, units: usize, reader: &mut Reader<'_>) -> Option<()> {
        match self.0 {
            Set::Plain => coding.parse(units, reader),
            #[cfg(target_arch = "aarch64")]
            Set::Neon => coding.parse(units, reader),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: only `Kernels::here` and `Kernels::all` create a set, and only if the CPU has
            // its instructions.
            Set::Sse41 => unsafe { sse41::parse(coding, units, reader) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the CPU has the instructions of the set. `Avx512` includes those of `Avx2`.
            Set::Avx2 | Set::Avx512 => unsafe { avx2::parse(coding, units, reader) },
        }
    }

    /// Calls [`Bands::first`] with this instruction set.
    pub fn first(
        self,
        bands: &mut Bands<'_>,
        input: &mut Input<'_>,
        masks: &mut [Mask],
        blocks: &mut [Block],
    ) -> Option<()> {
        match self.0 {
            Set::Plain => bands.first(input.parts(), masks, blocks),
            #[cfg(target_arch = "aarch64")]
            Set::Neon => bands.first(input.parts(), masks, blocks),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: only `Kernels::here` and `Kernels::all` create a set, and only if the CPU has
            // its instructions.
            Set::Sse41 => unsafe { sse41::first(bands, input, masks, blocks) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the CPU has the instructions of the set. `Avx512` includes those of `Avx2`.
            Set::Avx2 | Set::Avx512 => unsafe { avx2::first(bands, input, masks, blocks) },
        }
    }

    /// Calls [`Bands::refine`] with this instruction set.
    pub fn refine(
        self,
        bands: &mut Bands<'_>,
        input: &mut Input<'_>,
        masks: &mut [Mask],
        blocks: &mut [Block],
    ) -> Option<()> {
        match self.0 {
            Set::Plain => bands.refine::<Plain>(input.parts(), masks, blocks),
            #[cfg(target_arch = "aarch64")]
            Set::Neon => bands.refine::<Plain>(input.parts(), masks, blocks),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: only `Kernels::here` and `Kernels::all` create a set, and only if the CPU has
            // its instructions.
            Set::Sse41 => unsafe { sse41::refine(bands, input, masks, blocks) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the CPU has the instructions of the set. `Avx512` includes those of `Avx2`.
            Set::Avx2 | Set::Avx512 => unsafe { avx2::refine(bands, input, masks, blocks) },
        }
    }

    /// Dequantizes four blocks and transforms them to `side` × `side` samples (8, 4, 2 or 1).
    /// Returns false if a coefficient is so large that the code paths of libjpeg-turbo give
    /// different results. No intact image has such coefficients.
    pub fn transform(self, side: usize, four: &Four<'_>, planes: &mut Planes<'_>) -> bool {
        match (side, four.len) {
            (1, _) => plain::means(four, planes),
            (2, ..=1) => flat::<2>(four, planes),
            (4, ..=1) => flat::<4>(four, planes),
            (_, ..=1) => flat::<8>(four, planes),
            (2, _) => self.reduce::<2>(four, planes),
            (4, _) => self.reduce::<4>(four, planes),
            (_, ..=SPARSE) => {
                call!(self.0, plain::transform(four, planes), transform::<true>(four, planes))
            }
            _ => call!(self.0, plain::transform(four, planes), transform::<false>(four, planes)),
        }
    }

    fn reduce<const SIDE: usize>(self, four: &Four<'_>, planes: &mut Planes<'_>) -> bool {
        match self.0 {
            Set::Plain => plain::reduce::<SIDE>(four, planes),
            #[cfg(target_arch = "aarch64")]
            Set::Neon => plain::reduce::<SIDE>(four, planes),
            // SAFETY: only `Kernels::here` and `Kernels::all` create a set, and only if the CPU has
            // its instructions.
            #[cfg(target_arch = "x86_64")]
            Set::Sse41 => unsafe { sse41::reduce::<SIDE>(four, planes) },
            // SAFETY: the CPU has the instructions of the set. `Avx512` includes those of `Avx2`.
            #[cfg(target_arch = "x86_64")]
            Set::Avx2 | Set::Avx512 => unsafe { avx2::reduce::<SIDE>(four, planes) },
        }
    }

    /// Number of luma samples that are converted at once.
    pub fn step(self) -> usize {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Set::Avx512 => MOST_STEP,
            #[cfg(target_arch = "x86_64")]
            Set::Avx2 => 32,
            _ => 16,
        }
    }

    /// Converts a row of samples to pixels. `sums` is scratch memory. Lengths must be multiples of
    /// [`Self::step`]. A chroma row of half the width has 32 more samples than half of the luma
    /// row.
    pub fn pixels(self, line: Line<'_>, sums: &mut Sums, pixels: &mut [u8]) {
        match line {
            Line::Gray(luma) => call!(self.0, plain::gray(luma, pixels), gray(luma, pixels)),
            Line::Whole(luma, chroma) => call!(
                self.0,
                plain::whole_chroma(luma, chroma, pixels),
                whole_chroma(luma, chroma, pixels)
            ),
            Line::Half(luma, chroma) => {
                for part in parts(luma.len(), 2 * SUMMED) {
                    let beside = self.beside(&part);
                    for (sums, chroma) in sums.iter_mut().zip(chroma) {
                        let chroma = &chroma[beside.clone()];
                        call!(self.0, plain::widen(chroma, sums), widen(chroma, sums));
                    }
                    self.half_chroma::<false>(luma, part, sums, pixels);
                }
            }
            Line::Between(luma, near, far) => {
                for part in parts(luma.len(), 2 * SUMMED) {
                    let beside = self.beside(&part);
                    for (sums, (near, far)) in sums.iter_mut().zip(near.into_iter().zip(far)) {
                        let (near, far) = (&near[beside.clone()], &far[beside.clone()]);
                        call!(self.0, plain::sums(near, far, sums), sums(near, far, sums));
                    }
                    self.half_chroma::<true>(luma, part, sums, pixels);
                }
            }
            Line::Quarter(luma, chroma) => self.enlarged(luma, sums, pixels, |at, of, row| {
                plain::quadruple(&chroma[at][of.start / 4..of.end / 4], row);
            }),
            Line::Blend(luma, near, far, rounding) => {
                self.enlarged(luma, sums, pixels, |at, of, row| {
                    plain::blend(&near[at][of.clone()], &far[at][of], rounding, row);
                });
            }
        }
    }

    /// Returns the range of half-width chroma samples that are needed for this part of a luma row:
    /// those of the part, and their neighbours on both sides.
    fn beside(self, part: &Range<usize>) -> Range<usize> {
        part.start / 2..(part.end + self.step()) / 2
    }

    /// Converts a part of a row of luma, and the sums of its chroma, to pixels.
    #[inline(always)]
    fn half_chroma<const V: bool>(
        self,
        luma: &[u8],
        part: Range<usize>,
        sums: &Sums,
        pixels: &mut [u8],
    ) {
        let pixels = &mut pixels[CHANNELS * part.start..CHANNELS * part.end];
        let (luma, sums) = (&luma[part], [&sums[0][..], &sums[1][..]]);
        call!(
            self.0,
            plain::half_chroma::<V>(luma, sums, pixels),
            half_chroma::<V>(luma, sums, pixels)
        );
    }

    /// Converts a row of luma to pixels. `enlarge` upsamples a part of a row of one chroma
    /// component, and is called for each of the two components.
    fn enlarged(
        self,
        luma: &[u8],
        sums: &mut Sums,
        pixels: &mut [u8],
        enlarge: impl Fn(usize, Range<usize>, &mut [u8]),
    ) {
        for part in parts(luma.len(), SUMMED) {
            let mut chroma = [[0; SUMMED]; 2];
            for (at, row) in chroma.iter_mut().enumerate() {
                enlarge(at, part.clone(), &mut row[..part.len()]);
            }
            let chroma = chroma.each_ref().map(|row| &row[..part.len()]);
            let pixels = &mut pixels[CHANNELS * part.start..CHANNELS * part.end];
            self.pixels(Line::Whole(&luma[part], chroma), sums, pixels);
        }
    }
}

/// Splits a row of `len` samples into parts of at most `most` samples.
fn parts(len: usize, most: usize) -> impl Iterator<Item = Range<usize>> {
    (0..len).step_by(most).map(move |start| start..len.min(start + most))
}

/// Iterates over sums of chroma with their left and right neighbours.
fn neighbours<const N: usize>(
    sums: &[i16],
) -> impl Iterator<Item = ((&[i16; N], &[i16; N]), &[i16; N])> {
    let [left, here, right] = [sums, &sums[1..], &sums[2..]];
    left.as_chunks().0.iter().zip(here.as_chunks().0).zip(right.as_chunks().0)
}

fn dequantized_dc(four: &Four<'_>, block: usize) -> i16 {
    four.blocks[block][0].wrapping_mul(four.quantization[0][8 * block] as i16)
}

/// Transforms blocks that have only DC coefficients. Returns false if a coefficient lies outside
/// the range `SANE`.
fn flat<const SIDE: usize>(four: &Four<'_>, planes: &mut Planes<'_>) -> bool {
    let mut is_sane = true;
    for block in 0..4 {
        let dc = dequantized_dc(four, block);
        is_sane &= SANE.contains(&dc);
        (0..SIDE).for_each(|row| planes.put_block(block, row, [flat_sample(dc); SIDE]));
    }
    is_sane
}

/// Returns the sample value of a block that has only a DC coefficient.
fn flat_sample(dc: i16) -> u8 {
    let column = i32::from(dc) << 2;
    (((column + 16) >> 5).clamp(-128, 127) + 128) as u8
}
