//! Look-ups and reversed rows of pixels.

use crate::tensor::CHANNELS;

use super::Instructions;

/// A table of bytes for each channel.
pub struct Tables {
    bytes: [[u8; 256]; CHANNELS],
    /// Whether all channels have the same one.
    same: bool,
}

impl Tables {
    pub fn new(bytes: [[u8; 256]; CHANNELS]) -> Self {
        Self { same: bytes[0] == bytes[1] && bytes[0] == bytes[2], bytes }
    }

    pub fn bytes(&self) -> &[[u8; 256]; CHANNELS] {
        &self.bytes
    }

    /// Replaces every byte of a row of pixels by that of its channel's table.
    pub fn look_up(&self, row: &mut [u8], instructions: Instructions) {
        #[cfg(target_arch = "x86_64")]
        if instructions.has_avx512() {
            // SAFETY: `has_avx512` says that the CPU has these instructions.
            return unsafe { avx512::look_up(self, row) };
        }
        let _ = instructions;
        for pixel in row.as_chunks_mut::<CHANNELS>().0 {
            *pixel = self.of_pixel(*pixel);
        }
    }

    /// As [`look_up`](Self::look_up), to another row of the same length.
    pub fn look_up_to(&self, from: &[u8], to: &mut [u8], instructions: Instructions) {
        debug_assert_eq!(from.len(), to.len());
        #[cfg(target_arch = "x86_64")]
        if instructions.has_avx512() {
            // SAFETY: `has_avx512` says that the CPU has these instructions.
            return unsafe { avx512::look_up_to(self, from, to) };
        }
        let _ = instructions;
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

/// Copies a row of pixels in reverse order. Both have the same length.
pub fn reverse(from: &[u8], to: &mut [u8], instructions: Instructions) {
    debug_assert_eq!(from.len(), to.len());
    #[cfg(target_arch = "x86_64")]
    let (from, to) = if instructions.has_avx512() {
        // SAFETY: `has_avx512` says that the CPU has these instructions.
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

    use super::Tables;

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
    pub fn look_up(tables: &Tables, row: &mut [u8]) {
        let tables = Registers::new(tables);
        for (bytes, masks) in row.chunks_mut(LEN).zip(MASKS.into_iter().cycle()) {
            store_part(bytes, tables.found(load_part(bytes), masks));
        }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    pub fn look_up_to(tables: &Tables, from: &[u8], to: &mut [u8]) {
        let tables = Registers::new(tables);
        let parts = to.chunks_mut(LEN).zip(from.chunks(LEN));
        for ((to, from), masks) in parts.zip(MASKS.into_iter().cycle()) {
            store_part(to, tables.found(load_part(from), masks));
        }
    }

    /// Tables in registers.
    struct Registers {
        quarters: [[__m512i; 4]; CHANNELS],
        same: bool,
    }

    impl Registers {
        #[inline]
        #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
        fn new(tables: &Tables) -> Self {
            let quarters = tables.bytes.each_ref().map(|table| {
                let parts = table.as_chunks::<LEN>().0;
                [0, 1, 2, 3].map(|part| load(&parts[part]))
            });
            Self { quarters, same: tables.same }
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

    /// Up to 64 bytes, and 0 for the others.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn load_part(bytes: &[u8]) -> __m512i {
        match bytes.first_chunk() {
            Some(bytes) => load(bytes),
            // SAFETY: reads the bytes of the slice only, of any alignment.
            None => unsafe { _mm512_maskz_loadu_epi8(first(bytes.len()), bytes.as_ptr().cast()) },
        }
    }

    /// Stores the first bytes, up to 64.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn store_part(bytes: &mut [u8], value: __m512i) {
        match bytes.first_chunk_mut() {
            Some(bytes) => store(bytes, value),
            None => {
                let mask = first(bytes.len());
                // SAFETY: writes the bytes of the slice only, of any alignment.
                unsafe { _mm512_mask_storeu_epi8(bytes.as_mut_ptr().cast(), mask, value) };
            }
        }
    }

    /// Mask of the first bytes, fewer than 64.
    fn first(len: usize) -> u64 {
        (1 << len) - 1
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
        for tables in [[other(0); 3], [0, 1, 2].map(other)].map(Tables::new) {
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
}
