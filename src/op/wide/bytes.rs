//! Look-ups and reversed rows.

use crate::tensor::CHANNELS;

use super::Instructions;

/// Replaces every byte of a row of pixels by that of its channel's table.
pub fn look_up(tables: &[[u8; 256]; CHANNELS], row: &mut [u8], instructions: Instructions) {
    #[cfg(target_arch = "x86_64")]
    if instructions.has_avx512() {
        // SAFETY: the CPU has these instructions.
        return unsafe { avx512::look_up(tables, row) };
    }
    let _ = instructions;
    let [r, g, b] = tables;
    for pixel in row.as_chunks_mut::<CHANNELS>().0 {
        let [x, y, z] = pixel.map(usize::from);
        *pixel = [r[x], g[y], b[z]];
    }
}

/// Copies a row of pixels in reverse order. Both have the same length.
pub fn reverse(from: &[u8], to: &mut [u8], instructions: Instructions) {
    debug_assert_eq!(from.len(), to.len());
    #[cfg(target_arch = "x86_64")]
    let (from, to) = if instructions.has_avx512() {
        // SAFETY: the CPU has these instructions.
        unsafe { avx512::reverse(from, to) }
    } else {
        (from, to)
    };
    let _ = instructions;
    let pixels = from.as_chunks::<CHANNELS>().0.iter().rev();
    for (to, from) in to.as_chunks_mut::<CHANNELS>().0.iter_mut().zip(pixels) {
        *to = *from;
    }
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use std::arch::x86_64::*;

    use crate::tensor::CHANNELS;

    /// Bytes of a vector.
    const LEN: usize = 64;
    /// Those of whole pixels.
    const PIXELS: usize = 63;

    /// Bytes of green and of blue in each vector of three, whose bytes are 64 pixels.
    const MASKS: [[u64; 2]; CHANNELS] = {
        let mut masks = [[0; 2]; CHANNELS];
        let mut at = 0;
        while at < CHANNELS * LEN {
            if at % CHANNELS > 0 {
                masks[at / LEN][at % CHANNELS - 1] |= 1 << (at % LEN);
            }
            at += 1;
        }
        masks
    };

    /// Places of the bytes of the last 21 pixels of a vector, in reverse order.
    const REVERSED: [u8; LEN] = {
        let mut places = [0; LEN];
        let mut at = 0;
        while at < PIXELS {
            places[at] = (LEN - CHANNELS - at / CHANNELS * CHANNELS + at % CHANNELS) as u8;
            at += 1;
        }
        places
    };

    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    pub fn look_up(tables: &[[u8; 256]; CHANNELS], row: &mut [u8]) {
        let quarters = tables.each_ref().map(|table| {
            let parts = table.as_chunks::<LEN>().0;
            [0, 1, 2, 3].map(|part| load(&parts[part]))
        });
        let same = tables[0] == tables[1] && tables[0] == tables[2];
        let (blocks, rest) = row.as_chunks_mut::<{ CHANNELS * LEN }>();
        let mut last = [0; CHANNELS * LEN];
        last[..rest.len()].copy_from_slice(rest);
        let all = blocks.iter_mut().chain((!rest.is_empty()).then_some(&mut last));
        for block in all {
            for (bytes, [green, blue]) in block.as_chunks_mut::<LEN>().0.iter_mut().zip(MASKS) {
                let index = load(bytes);
                let found = of_one(&quarters[0], index);
                let found = if same {
                    found
                } else {
                    let found = _mm512_mask_mov_epi8(found, green, of_one(&quarters[1], index));
                    _mm512_mask_mov_epi8(found, blue, of_one(&quarters[2], index))
                };
                store(bytes, found);
            }
        }
        rest.copy_from_slice(&last[..rest.len()]);
    }

    /// Bytes of a table.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    fn of_one(quarters: &[__m512i; 4], index: __m512i) -> __m512i {
        let [a, b, c, d] = *quarters;
        let low = _mm512_permutex2var_epi8(a, index, b);
        let high = _mm512_permutex2var_epi8(c, index, d);
        _mm512_mask_mov_epi8(low, _mm512_movepi8_mask(index), high)
    }

    /// Reverses 21 pixels at a time. Returns what is left.
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    pub fn reverse<'a, 'b>(mut from: &'a [u8], mut to: &'b mut [u8]) -> (&'a [u8], &'b mut [u8]) {
        let places = load(&REVERSED);
        while let (Some(bytes), Some(out)) = (from.last_chunk(), to.first_chunk_mut()) {
            // The last byte belongs to the next pixel, which is written again.
            store(out, _mm512_permutexvar_epi8(places, load(bytes)));
            from = &from[..from.len() - PIXELS];
            to = &mut std::mem::take(&mut to)[PIXELS..];
        }
        (from, to)
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn load(bytes: &[u8; LEN]) -> __m512i {
        // SAFETY: reads the 64 bytes, of any alignment.
        unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn store(bytes: &mut [u8; LEN], value: __m512i) {
        // SAFETY: writes the 64 bytes, of any alignment.
        unsafe { _mm512_storeu_si512(bytes.as_mut_ptr().cast(), value) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of all lengths around those of a vector, with every byte.
    #[test]
    fn all_instructions_give_the_same_bytes() {
        let all: Vec<u8> = (0..3 * 300u32).map(|at| (at * at / 7 + at) as u8).collect();
        let other = |channel: usize| std::array::from_fn(|byte| (byte * (7 + 2 * channel)) as u8);
        for tables in [[other(0); 3], [0, 1, 2].map(other)] {
            for pixels in 0..300 {
                let row = &all[..3 * pixels];
                let by = |instructions| {
                    let mut found = row.to_vec();
                    look_up(&tables, &mut found, instructions);
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
}
