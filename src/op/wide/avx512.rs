//! AVX-512 code that permutes bytes: look-up tables, reversed rows, and separating and interleaving
//! the channels of pixels.

use std::arch::x86_64::*;

use crate::tensor::CHANNELS;

use super::pixels::{Pixels, Planes, Shuffles};

/// Number of bytes in a vector, and of pixels in three vectors.
const LEN: usize = 64;
/// Number of bytes of the 21 whole pixels in a vector.
const WHOLE: usize = 63;

/// Masks of the green and of the blue bytes in each of three vectors, whose 192 bytes are 64
/// pixels.
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

/// Permutation that reverses the last 21 pixels of a vector.
const REVERSED: [u8; LEN] = {
    let mut places = [0; LEN];
    let mut at = 0;
    while at < WHOLE {
        places[at] = (LEN - CHANNELS - at / CHANNELS * CHANNELS + at % CHANNELS) as u8;
        at += 1;
    }
    places
};

/// Number of the pixel to which each byte of three vectors belongs.
const PIXELS: [[u8; LEN]; CHANNELS] = {
    let mut pixels = [[0; LEN]; CHANNELS];
    let mut at = 0;
    while at < CHANNELS * LEN {
        pixels[at / LEN][at % LEN] = (at / CHANNELS) as u8;
        at += 1;
    }
    pixels
};

/// Order in which the bytes of a channel are taken from 64 pixels, for elements of one, two or four
/// bytes. The bytes of elements are later interleaved within each lane of 16 bytes. With this
/// order, the elements are then in the order of the row, or mirrored.
const fn order_of_elements(bytes: usize, mirrored: bool) -> [usize; LEN] {
    let mut order = [0; LEN];
    let mut at = 0;
    while at < LEN {
        let (lane, in_lane, elements) = (at / 16, at % 16, 16 / bytes);
        let pixel = 4 * elements * (in_lane / elements) + elements * lane + in_lane % elements;
        order[at] = if mirrored { LEN - 1 - pixel } else { pixel };
        at += 1;
    }
    order
}

/// Permutation that takes the bytes of one channel from three vectors, in a given order.
struct Order {
    /// Place of each byte in its vector.
    places: [u8; LEN],
    /// Masks of the bytes that are in the second and in the third vector.
    second: u64,
    third: u64,
}

impl Order {
    const fn new(channel: usize, order: [usize; LEN]) -> Self {
        let mut it = Self { places: [0; LEN], second: 0, third: 0 };
        let mut at = 0;
        while at < LEN {
            let byte = CHANNELS * order[at] + channel;
            it.places[at] = (byte % LEN) as u8;
            match byte / LEN {
                1 => it.second |= 1 << at,
                2 => it.third |= 1 << at,
                _ => {}
            }
            at += 1;
        }
        it
    }

    const fn all(order: [usize; LEN]) -> [Self; CHANNELS] {
        [Self::new(0, order), Self::new(1, order), Self::new(2, order)]
    }

    /// Returns the channel of 64 pixels.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    fn of(&self, [a, b, c]: [__m512i; CHANNELS]) -> __m512i {
        let places = load(&self.places);
        let plane = _mm512_permutexvar_epi8(places, a);
        let plane = _mm512_mask_permutexvar_epi8(plane, self.second, places, b);
        _mm512_mask_permutexvar_epi8(plane, self.third, places, c)
    }
}

const IN_ORDER: [Order; CHANNELS] = Order::all(order_of_elements(1, false));

/// Orders for elements of two bytes (`HALVES`) and of four bytes (`WORDS`): first in the order of
/// the row, then mirrored.
const HALVES: [[Order; CHANNELS]; 2] =
    [Order::all(order_of_elements(2, false)), Order::all(order_of_elements(2, true))];
const WORDS: [[Order; CHANNELS]; 2] =
    [Order::all(order_of_elements(4, false)), Order::all(order_of_elements(4, true))];

/// Proof that the CPU has the permutations of bytes of AVX-512.
#[derive(Clone, Copy)]
pub struct Permutations(());

impl Permutations {
    /// # Safety
    /// The CPU must have AVX-512F, AVX-512BW and AVX-512VBMI.
    pub unsafe fn new() -> Self {
        Self(())
    }
}

impl Shuffles for Permutations {
    #[inline(always)]
    fn apart(self, pixels: &Pixels) -> Planes {
        // SAFETY: a `Permutations` exists only if the CPU has the instructions that `apart` needs.
        unsafe { apart(pixels) }
    }

    #[inline(always)]
    fn together(self, planes: &Planes) -> Pixels {
        // SAFETY: a `Permutations` exists only if the CPU has the instructions that `together`
        // needs.
        unsafe { together(planes) }
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn apart(pixels: &Pixels) -> Planes {
    let mut planes = [[0; LEN]; CHANNELS];
    let vectors = vectors(pixels);
    for channel in 0..CHANNELS {
        store(&mut planes[channel], IN_ORDER[channel].of(vectors));
    }
    planes
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn together(planes: &Planes) -> Pixels {
    let mut pixels = [[0; CHANNELS]; LEN];
    let parts = pixels.as_flattened_mut().as_chunks_mut::<LEN>().0;
    let [r, g, b] = [load(&planes[0]), load(&planes[1]), load(&planes[2])];
    for vector in 0..CHANNELS {
        let (places, [green, blue]) = (load(&PIXELS[vector]), MASKS[vector]);
        let bytes = _mm512_permutexvar_epi8(places, r);
        let bytes = _mm512_mask_permutexvar_epi8(bytes, green, places, g);
        store(&mut parts[vector], _mm512_mask_permutexvar_epi8(bytes, blue, places, b));
    }
    pixels
}

/// One table of bytes per channel.
type Tables = [[u8; 256]; CHANNELS];

/// Replaces every byte of a row of pixels by its entry in the table of its channel. If `same`, all
/// tables are equal.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
pub fn look_up(tables: &Tables, same: bool, row: &mut [u8]) {
    let tables = Registers::new(tables, same);
    for (bytes, masks) in row.chunks_mut(LEN).zip(MASKS.into_iter().cycle()) {
        store_part(bytes, tables.found(load_part(bytes), masks));
    }
}

/// Like [`look_up`], but reads the bytes of the row `from` and writes the entries to the row `to`.
/// Both rows have the same length.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
pub fn look_up_to(tables: &Tables, same: bool, from: &[u8], to: &mut [u8]) {
    let tables = Registers::new(tables, same);
    let parts = to.chunks_mut(LEN).zip(from.chunks(LEN));
    for ((to, from), masks) in parts.zip(MASKS.into_iter().cycle()) {
        store_part(to, tables.found(load_part(from), masks));
    }
}

/// Tables of all channels, in registers.
struct Registers {
    quarters: [[__m512i; 4]; CHANNELS],
    same: bool,
}

impl Registers {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    fn new([r, g, b]: &Tables, same: bool) -> Self {
        Self { quarters: [quarters(r), quarters(g), quarters(b)], same }
    }

    /// Looks up a vector of bytes. `green` and `blue` are masks of the green and of the blue bytes.
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

/// Looks up a vector of bytes in one table.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn of_one(quarters: &[__m512i; 4], index: __m512i) -> __m512i {
    let [a, b, c, d] = *quarters;
    let low = _mm512_permutex2var_epi8(a, index, b);
    let high = _mm512_permutex2var_epi8(c, index, d);
    _mm512_mask_mov_epi8(low, _mm512_movepi8_mask(index), high)
}

/// Copies a row of pixels in reverse order, 21 pixels at a time.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
pub fn reverse(mut from: &[u8], mut to: &mut [u8]) {
    let places = load(&REVERSED);
    while let (Some(bytes), Some(out)) = (from.last_chunk(), to.first_chunk_mut()) {
        // The next pixels overwrite the 64th byte, which belongs to no whole pixel.
        store(out, _mm512_permutexvar_epi8(places, load(bytes)));
        from = &from[..from.len() - WHOLE];
        to = &mut to[WHOLE..];
    }
    let places = _mm512_sub_epi8(places, _mm512_set1_epi8((LEN - from.len()) as i8));
    store_part(to, _mm512_permutexvar_epi8(places, load_part(from)));
}

/// Writes the elements of one channel of a row of at least 64 pixels. An element has `N` bytes, two
/// or four. `bytes` has a table for each byte of an element.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
pub fn line<const N: usize>(
    bytes: &[[u8; 256]; N],
    channel: usize,
    row: &[[u8; CHANNELS]],
    mirrored: bool,
    out: &mut [u8],
) {
    let orders = if N == 2 { &HALVES } else { &WORDS };
    let order = &orders[usize::from(mirrored)][channel];
    let mut tables = [[_mm512_setzero_si512(); 4]; N];
    for (table, bytes) in tables.iter_mut().zip(bytes) {
        *table = quarters(bytes);
    }
    let last = row.len() - LEN;
    // The last block overlaps with the block before it.
    for first in (0..last).step_by(LEN).chain([last]) {
        let Some(block) = row[first..].first_chunk::<LEN>() else {
            unreachable!("the row has a whole block of pixels from this place on")
        };
        let index = order.of(vectors(block));
        let to = if mirrored { last - first } else { first };
        let (out, _) = out[N * to..].as_chunks_mut::<LEN>();
        let mut found = [_mm512_setzero_si512(); N];
        for (found, table) in found.iter_mut().zip(&tables) {
            *found = of_one(table, index);
        }
        let low = _mm512_unpacklo_epi8(found[0], found[1]);
        let high = _mm512_unpackhi_epi8(found[0], found[1]);
        if N == 2 {
            store(&mut out[0], low);
            store(&mut out[1], high);
        } else {
            let (upper_low, upper_high) = (
                _mm512_unpacklo_epi8(found[N - 2], found[N - 1]),
                _mm512_unpackhi_epi8(found[N - 2], found[N - 1]),
            );
            store(&mut out[0], _mm512_unpacklo_epi16(low, upper_low));
            store(&mut out[1], _mm512_unpackhi_epi16(low, upper_low));
            store(&mut out[2], _mm512_unpacklo_epi16(high, upper_high));
            store(&mut out[3], _mm512_unpackhi_epi16(high, upper_high));
        }
    }
}

/// Loads a block of 64 pixels into three vectors.
#[inline]
#[target_feature(enable = "avx512f")]
fn vectors(pixels: &Pixels) -> [__m512i; CHANNELS] {
    let parts = pixels.as_flattened().as_chunks::<LEN>().0;
    [load(&parts[0]), load(&parts[1]), load(&parts[2])]
}

/// Loads a table into four registers.
#[inline]
#[target_feature(enable = "avx512f")]
fn quarters(table: &[u8; 256]) -> [__m512i; 4] {
    let parts = table.as_chunks::<LEN>().0;
    [load(&parts[0]), load(&parts[1]), load(&parts[2]), load(&parts[3])]
}

/// Loads up to 64 bytes. The other bytes of the vector are 0.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn load_part(bytes: &[u8]) -> __m512i {
    match bytes.first_chunk() {
        Some(bytes) => load(bytes),
        // SAFETY: reads only the bytes of the slice, at any alignment.
        None => unsafe { _mm512_maskz_loadu_epi8(first(bytes.len()), bytes.as_ptr().cast()) },
    }
}

/// Stores the first bytes of a vector: as many as the slice has, up to 64.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn store_part(bytes: &mut [u8], value: __m512i) {
    match bytes.first_chunk_mut() {
        Some(bytes) => store(bytes, value),
        None => {
            let mask = first(bytes.len());
            // SAFETY: writes only the bytes of the slice, at any alignment.
            unsafe { _mm512_mask_storeu_epi8(bytes.as_mut_ptr().cast(), mask, value) };
        }
    }
}

/// Mask of the first `len` bytes, fewer than 64.
fn first(len: usize) -> u64 {
    (1 << len) - 1
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load(bytes: &[u8; LEN]) -> __m512i {
    // SAFETY: reads the 64 bytes of the array, at any alignment.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn store(bytes: &mut [u8; LEN], value: __m512i) {
    // SAFETY: writes the 64 bytes of the array, at any alignment.
    unsafe { _mm512_storeu_si512(bytes.as_mut_ptr().cast(), value) };
}
