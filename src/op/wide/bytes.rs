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
    for pixel in row.as_chunks_mut::<CHANNELS>().0 {
        *pixel = of_pixel(tables, *pixel);
    }
}

/// As [`look_up`], to another row of the same length.
pub fn look_up_to(
    tables: &[[u8; 256]; CHANNELS],
    from: &[u8],
    to: &mut [u8],
    instructions: Instructions,
) {
    debug_assert_eq!(from.len(), to.len());
    #[cfg(target_arch = "x86_64")]
    if instructions.has_avx512() {
        // SAFETY: the CPU has these instructions.
        return unsafe { avx512::look_up_to(tables, from, to) };
    }
    let _ = instructions;
    let to = to.as_chunks_mut::<CHANNELS>().0;
    for (to, from) in to.iter_mut().zip(from.as_chunks::<CHANNELS>().0) {
        *to = of_pixel(tables, *from);
    }
}

fn of_pixel([r, g, b]: &[[u8; 256]; CHANNELS], pixel: [u8; CHANNELS]) -> [u8; CHANNELS] {
    let [x, y, z] = pixel.map(usize::from);
    [r[x], g[y], b[z]]
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

    /// Bytes of 64 pixels.
    const BLOCK: usize = CHANNELS * LEN;

    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    pub fn look_up(tables: &[[u8; 256]; CHANNELS], row: &mut [u8]) {
        let tables = Tables::new(tables);
        let (blocks, rest) = row.as_chunks_mut::<BLOCK>();
        for block in blocks {
            for (bytes, masks) in block.as_chunks_mut().0.iter_mut().zip(MASKS) {
                store(bytes, tables.found(load(bytes), masks));
            }
        }
        let mut last = [0; BLOCK];
        last[..rest.len()].copy_from_slice(rest);
        tables.look_up_last(&last, rest);
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    pub fn look_up_to(tables: &[[u8; 256]; CHANNELS], from: &[u8], to: &mut [u8]) {
        let tables = Tables::new(tables);
        let (blocks, rest) = to.as_chunks_mut::<BLOCK>();
        let (sources, last_source) = from.as_chunks::<BLOCK>();
        for (block, source) in blocks.iter_mut().zip(sources) {
            let parts = block.as_chunks_mut().0.iter_mut().zip(source.as_chunks().0);
            for ((bytes, from), masks) in parts.zip(MASKS) {
                store(bytes, tables.found(load(from), masks));
            }
        }
        let mut last = [0; BLOCK];
        last[..rest.len()].copy_from_slice(&last_source[..rest.len()]);
        tables.look_up_last(&last, rest);
    }

    /// Tables in registers.
    struct Tables {
        quarters: [[__m512i; 4]; CHANNELS],
        same: bool,
    }

    impl Tables {
        #[inline]
        #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
        fn new(tables: &[[u8; 256]; CHANNELS]) -> Self {
            let quarters = tables.each_ref().map(|table| {
                let parts = table.as_chunks::<LEN>().0;
                [0, 1, 2, 3].map(|part| load(&parts[part]))
            });
            Self { quarters, same: tables[0] == tables[1] && tables[0] == tables[2] }
        }

        /// What is found for a vector of bytes, of which these are green and blue.
        #[inline]
        #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
        fn found(&self, index: __m512i, [green, blue]: [u64; 2]) -> __m512i {
            let [r, g, b] = &self.quarters;
            let found = of_one(r, index);
            if self.same {
                return found;
            }
            let found = _mm512_mask_mov_epi8(found, green, of_one(g, index));
            _mm512_mask_mov_epi8(found, blue, of_one(b, index))
        }

        /// Looks up less than a block.
        #[inline]
        #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
        fn look_up_last(&self, from: &[u8; BLOCK], to: &mut [u8]) {
            let mut found = [0; BLOCK];
            let used = to.len().div_ceil(LEN);
            let parts = found.as_chunks_mut().0.iter_mut().zip(from.as_chunks().0);
            for ((bytes, from), masks) in parts.zip(MASKS).take(used) {
                store(bytes, self.found(load(from), masks));
            }
            to.copy_from_slice(&found[..to.len()]);
        }
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
                    let mut other = vec![0; row.len()];
                    look_up_to(&tables, row, &mut other, instructions);
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
}
