//! Look-up tables that convert the bytes of pixels to elements of a tensor.

use bytemuck::Pod;

use crate::tensor::CHANNELS;

use super::Instructions;
#[cfg(target_arch = "x86_64")]
use super::{avx512, pixels::BLOCK};

/// Tensor elements for each byte value of each channel. An element has `N` bytes.
#[derive(Clone, Debug)]
pub struct ElementTables<E, const N: usize> {
    elements: [[E; 256]; CHANNELS],
    /// The bytes of the elements, in one table per byte, lowest byte first.
    bytes: [[[u8; 256]; N]; CHANNELS],
}

impl<E: Pod, const N: usize> ElementTables<E, N> {
    /// Creates tables with these elements.
    pub fn new(elements: [[E; 256]; CHANNELS]) -> Self {
        let mut tables = Self { elements, bytes: [[[0; 256]; N]; CHANNELS] };
        tables.set(elements);
        tables
    }

    /// Replaces all elements.
    pub fn set(&mut self, elements: [[E; 256]; CHANNELS]) {
        const { assert!(size_of::<E>() == N) };
        self.elements = elements;
        for (elements, bytes) in self.elements.iter().zip(&mut self.bytes) {
            let all = bytemuck::cast_slice::<E, u8>(elements).as_chunks::<N>().0;
            for (at, element) in all.iter().enumerate() {
                for (place, byte) in bytes.iter_mut().zip(element) {
                    place[at] = *byte;
                }
            }
        }
    }

    /// Element for a byte of a channel.
    #[inline(always)]
    pub fn of(&self, channel: usize, byte: u8) -> E {
        self.elements[channel][usize::from(byte)]
    }

    /// Writes the elements of one channel of a row to `out`, in reverse order if `mirrored`. `out`
    /// has one element per pixel of the row.
    pub fn line(
        &self,
        channel: usize,
        row: &[[u8; CHANNELS]],
        mirrored: bool,
        out: &mut [E],
        instructions: Instructions,
    ) {
        debug_assert_eq!(row.len(), out.len());
        #[cfg(target_arch = "x86_64")]
        if instructions.has_avx512() && row.len() >= BLOCK {
            let out = bytemuck::cast_slice_mut(out);
            // SAFETY: `has_avx512` is true only if the CPU has the instructions that `line` needs.
            return unsafe { avx512::line(&self.bytes[channel], channel, row, mirrored, out) };
        }
        let _ = instructions;
        let elements = row.iter().map(|pixel| self.of(channel, pixel[channel]));
        if mirrored {
            out.iter_mut().rev().zip(elements).for_each(|(place, it)| *place = it);
        } else {
            out.iter_mut().zip(elements).for_each(|(place, it)| *place = it);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares rows that are shorter and longer than a block, with every byte value.
    #[test]
    fn all_instructions_give_the_same_elements() {
        let bytes: Vec<u8> = (0..3 * 300u32).map(|at| (at * at / 7 + at) as u8).collect();
        let pixels = bytes.as_chunks::<3>().0;
        let value = |channel: usize, byte: usize| {
            (byte as u32 + 7 * channel as u32).wrapping_mul(98_765_431)
        };
        let halves = std::array::from_fn(|c| std::array::from_fn(|at| value(c, at) as u16));
        let floats = std::array::from_fn(|c| std::array::from_fn(|at| value(c, at)));
        assert_same(&ElementTables::<u16, 2>::new(halves), pixels);
        let mut tables = ElementTables::<u32, 4>::new([[7; 256]; 3]);
        tables.set(floats);
        assert_same(&tables, pixels);
    }

    fn assert_same<E: Pod + PartialEq + std::fmt::Debug, const N: usize>(
        tables: &ElementTables<E, N>,
        pixels: &[[u8; 3]],
    ) {
        for len in (0..300).step_by(7).chain(60..70) {
            let row = &pixels[300 - len..];
            for (channel, mirrored) in [(0, false), (1, true), (2, false), (0, true)] {
                let mut expected: Vec<E> =
                    row.iter().map(|pixel| tables.of(channel, pixel[channel])).collect();
                if mirrored {
                    expected.reverse();
                }
                for instructions in Instructions::all() {
                    let mut found = vec![E::zeroed(); len];
                    tables.line(channel, row, mirrored, &mut found, instructions);
                    assert_eq!(found, expected, "{len} {channel} {mirrored} {instructions:?}");
                }
            }
        }
    }
}
