//! Look-up tables, single channels, and reversed rows of pixels.

use crate::tensor::CHANNELS;

#[cfg(target_arch = "x86_64")]
use super::avx512;
use super::pixels::{BLOCK, Shuffles};
use super::{Instructions, Loop};

/// One look-up table of bytes per channel.
pub struct Tables {
    bytes: [[u8; 256]; CHANNELS],
    pattern: Pattern,
}

/// Property of the tables that permits faster look-ups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pattern {
    /// All tables are `byte & and ^ xor`: they invert, posterize, or change nothing.
    Bits { and: u8, xor: u8 },
    /// All tables are equal.
    Same,
    /// No property that helps.
    Any,
}

impl Tables {
    /// Prepares one table per channel.
    pub fn new(bytes: [[u8; 256]; CHANNELS]) -> Self {
        let pattern = match bytes[0] == bytes[1] && bytes[0] == bytes[2] {
            true => Pattern::of(&bytes[0]),
            false => Pattern::Any,
        };
        Self { bytes, pattern }
    }

    /// The tables, one per channel.
    pub fn bytes(&self) -> &[[u8; 256]; CHANNELS] {
        &self.bytes
    }

    /// Replaces every byte of a row of pixels by its entry in the table of its channel.
    pub fn look_up(&self, row: &mut [u8], instructions: Instructions) {
        if let Pattern::Bits { and, xor } = self.pattern {
            return instructions.run(Bits { and, xor, row });
        }
        #[cfg(target_arch = "x86_64")]
        if instructions.has_avx512() {
            // SAFETY: `has_avx512` is true only if the CPU has the instructions that `look_up`
            // needs.
            return unsafe { avx512::look_up(&self.bytes, self.pattern == Pattern::Same, row) };
        }
        for pixel in row.as_chunks_mut::<CHANNELS>().0 {
            *pixel = self.of_pixel(*pixel);
        }
    }

    /// Like [`look_up`](Self::look_up), but reads the bytes of the row `from` and writes the
    /// entries to the row `to`. Both rows have the same length.
    pub fn look_up_to(&self, from: &[u8], to: &mut [u8], instructions: Instructions) {
        debug_assert_eq!(from.len(), to.len());
        if let Pattern::Bits { and, xor } = self.pattern {
            return instructions.run(BitsTo { and, xor, from, to });
        }
        #[cfg(target_arch = "x86_64")]
        if instructions.has_avx512() {
            // SAFETY: `has_avx512` is true only if the CPU has the instructions that `look_up_to`
            // needs.
            return unsafe {
                avx512::look_up_to(&self.bytes, self.pattern == Pattern::Same, from, to)
            };
        }
        let to = to.as_chunks_mut::<CHANNELS>().0;
        for (to, from) in to.iter_mut().zip(from.as_chunks::<CHANNELS>().0) {
            *to = self.of_pixel(*from);
        }
    }

    fn of_pixel(&self, pixel: [u8; CHANNELS]) -> [u8; CHANNELS] {
        let ([r, g, b], [x, y, z]) = (&self.bytes, pixel.map(usize::from));
        [r[x], g[y], b[z]]
    }
}

/// Copies the bytes of one channel of a row to `out`, in reverse order if `mirrored`. `out` has one
/// byte per pixel of the row.
pub fn channel(
    channel: usize,
    row: &[[u8; CHANNELS]],
    mirrored: bool,
    out: &mut [u8],
    instructions: Instructions,
) {
    debug_assert_eq!(row.len(), out.len());
    match channel {
        0 => instructions.run(Channel::<0> { row, mirrored, out }),
        1 => instructions.run(Channel::<1> { row, mirrored, out }),
        _ => instructions.run(Channel::<2> { row, mirrored, out }),
    }
}

/// Loop that copies channel `AT` of a row. `AT` is known to the compiler, which leaves out the
/// other channels.
struct Channel<'a, const AT: usize> {
    row: &'a [[u8; CHANNELS]],
    mirrored: bool,
    out: &'a mut [u8],
}

impl<const AT: usize> Loop for Channel<'_, AT> {
    #[inline(always)]
    fn run(self, shuffles: impl Shuffles) {
        let Self { row, mirrored, out } = self;
        let (blocks, rest) = row.as_chunks::<BLOCK>();
        let (ahead, last) = match mirrored {
            false => out.split_at_mut(row.len() - rest.len()),
            true => {
                let (last, ahead) = out.split_at_mut(rest.len());
                (ahead, last)
            }
        };
        let (places, _) = ahead.as_chunks_mut::<BLOCK>();
        let count = places.len();
        for (at, block) in blocks.iter().enumerate() {
            let mut plane = shuffles.apart(block)[AT];
            if mirrored {
                plane.reverse();
            }
            places[if mirrored { count - 1 - at } else { at }] = plane;
        }
        let values = rest.iter().map(|pixel| pixel[AT]);
        if mirrored {
            last.iter_mut().rev().zip(values).for_each(|(place, it)| *place = it);
        } else {
            last.iter_mut().zip(values).for_each(|(place, it)| *place = it);
        }
    }
}

impl Pattern {
    fn of(table: &[u8; 256]) -> Self {
        let (xor, and) = (table[0], table[0] ^ table[255]);
        let mut other = false;
        for (byte, found) in (0..=255).zip(table) {
            other |= *found != byte & and ^ xor;
        }
        if other { Self::Same } else { Self::Bits { and, xor } }
    }
}

/// Loop that applies [`Pattern::Bits`] to a row.
struct Bits<'a> {
    and: u8,
    xor: u8,
    row: &'a mut [u8],
}

impl Loop for Bits<'_> {
    #[inline(always)]
    fn run(self, _: impl Shuffles) {
        for byte in self.row {
            *byte = *byte & self.and ^ self.xor;
        }
    }
}

/// Loop that applies [`Pattern::Bits`] from one row to another.
struct BitsTo<'a> {
    and: u8,
    xor: u8,
    from: &'a [u8],
    to: &'a mut [u8],
}

impl Loop for BitsTo<'_> {
    #[inline(always)]
    fn run(self, _: impl Shuffles) {
        for (to, from) in self.to.iter_mut().zip(self.from) {
            *to = *from & self.and ^ self.xor;
        }
    }
}

/// Copies a row of pixels in reverse order. Both rows have the same length.
pub fn reverse(from: &[u8], to: &mut [u8], instructions: Instructions) {
    debug_assert_eq!(from.len(), to.len());
    #[cfg(target_arch = "x86_64")]
    if instructions.has_avx512() {
        // SAFETY: `has_avx512` is true only if the CPU has the instructions that `reverse` needs.
        return unsafe { avx512::reverse(from, to) };
    }
    let _ = instructions;
    reverse_each(from, to);
}

/// Does the same as [`reverse`], pixel by pixel and for channels of any type.
pub fn reverse_each<T: Copy>(from: &[T], to: &mut [T]) {
    let pixels = from.as_chunks::<CHANNELS>().0.iter().rev();
    for (to, from) in to.as_chunks_mut::<CHANNELS>().0.iter_mut().zip(pixels) {
        *to = *from;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares rows of 0 to 299 pixels, which are shorter and longer than a vector, with every
    /// byte value.
    #[test]
    fn all_instructions_give_the_same_bytes() {
        let all: Vec<u8> = (0..3 * 300u32).map(|at| (at * at / 7 + at) as u8).collect();
        let other = |channel: usize| std::array::from_fn(|byte| (byte * (7 + 2 * channel)) as u8);
        let posterized = std::array::from_fn(|byte| byte as u8 & 0xf0 ^ 0x0f);
        let same = [other(0); 3];
        let (each, bits) = ([0, 1, 2].map(other), [posterized; 3]);
        for (bytes, pattern) in [
            (same, Pattern::Same),
            (each, Pattern::Any),
            (bits, Pattern::Bits { and: 0xf0, xor: 0x0f }),
        ] {
            let tables = Tables::new(bytes);
            assert_eq!(tables.pattern, pattern);
            for pixels in 0..300 {
                let row = &all[..3 * pixels];
                let by = |instructions| {
                    let mut found = row.to_vec();
                    tables.look_up(&mut found, instructions);
                    let mut other = vec![0; row.len()];
                    tables.look_up_to(row, &mut other, instructions);
                    assert_eq!(found, other, "{pixels}");
                    let mut reversed = vec![0; row.len()];
                    reverse(row, &mut reversed, instructions);
                    (found, reversed)
                };
                let plain = by(Instructions::PLAIN);
                assert!(Instructions::all().into_iter().all(|it| by(it) == plain), "{pixels}");
                let twice = plain.1.as_chunks::<3>().0.iter().rev().flatten().copied();
                assert!(twice.eq(row.iter().copied()), "{pixels}");
            }
        }
    }

    #[test]
    fn all_instructions_give_the_channels_of_a_row() {
        let all: Vec<u8> = (0..3 * 300u32).map(|at| (at * at / 7 + at) as u8).collect();
        for pixels in 0..300 {
            let row = &all.as_chunks::<CHANNELS>().0[..pixels];
            for (at, mirrored) in (0..CHANNELS).flat_map(|at| [(at, false), (at, true)]) {
                let mut expected: Vec<u8> = row.iter().map(|pixel| pixel[at]).collect();
                if mirrored {
                    expected.reverse();
                }
                for instructions in Instructions::all() {
                    let mut found = vec![0; pixels];
                    channel(at, row, mirrored, &mut found, instructions);
                    assert_eq!(found, expected, "{pixels} {at} {mirrored} {instructions:?}");
                }
            }
        }
    }
}
