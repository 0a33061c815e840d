//! Look-ups, reversed rows, and channels apart and together, with AVX-512's permutations of bytes.

use std::arch::x86_64::*;

use crate::tensor::CHANNELS;

use super::pixels::{Pixels, Planes, Shuffles};

/// Bytes of a vector, and pixels of three.
const LEN: usize = 64;
/// Bytes of whole pixels in a vector.
const WHOLE: usize = 63;

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
    while at < WHOLE {
        places[at] = (LEN - CHANNELS - at / CHANNELS * CHANNELS + at % CHANNELS) as u8;
        at += 1;
    }
    places
};

/// Pixel of each byte of three vectors.
const PIXELS: [[u8; LEN]; CHANNELS] = {
    let mut pixels = [[0; LEN]; CHANNELS];
    let mut at = 0;
    while at < CHANNELS * LEN {
        pixels[at / LEN][at % LEN] = (at / CHANNELS) as u8;
        at += 1;
    }
    pixels
};

/// Pixels in the order in which their channel is read, so that elements of one, two or four bytes are in the order of the
/// row, or mirrored, after their bytes have been joined: which is done in each lane of a vector by itself.
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

/// Where the bytes of a channel are that are taken in some order.
struct Order {
    /// Place in a vector of three.
    places: [u8; LEN],
    /// Those that are in the second and in the third vector.
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

    /// The channel of 64 pixels.
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

/// Orders for elements of two and of four bytes, and mirrored.
const HALVES: [[Order; CHANNELS]; 2] =
    [Order::all(order_of_elements(2, false)), Order::all(order_of_elements(2, true))];
const WORDS: [[Order; CHANNELS]; 2] =
    [Order::all(order_of_elements(4, false)), Order::all(order_of_elements(4, true))];

/// Permutations of bytes, on a CPU that has them.
#[derive(Clone, Copy)]
pub struct Permutations(());

impl Permutations {
    /// # Safety
    /// The CPU has AVX-512F, AVX-512BW and AVX-512VBMI.
    pub unsafe fn new() -> Self {
        Self(())
    }
}

impl Shuffles for Permutations {
    #[inline(always)]
    fn apart(self, pixels: &Pixels) -> Planes {
        // SAFETY: there is a value of this type only where the CPU has these instructions.
        unsafe { apart(pixels) }
    }

    #[inline(always)]
    fn together(self, planes: &Planes) -> Pixels {
        // SAFETY: as above.
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

/// A table of bytes for each channel.
type Tables = [[u8; 256]; CHANNELS];

/// Replaces every byte of a row of pixels by that of its channel's table. All of them may be the same.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
pub fn look_up(tables: &Tables, same: bool, row: &mut [u8]) {
    let tables = Registers::new(tables, same);
    for (bytes, masks) in row.chunks_mut(LEN).zip(MASKS.into_iter().cycle()) {
        store_part(bytes, tables.found(load_part(bytes), masks));
    }
}

/// The same, to another row of the same length.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
pub fn look_up_to(tables: &Tables, same: bool, from: &[u8], to: &mut [u8]) {
    let tables = Registers::new(tables, same);
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
    fn new([r, g, b]: &Tables, same: bool) -> Self {
        Self { quarters: [quarters(r), quarters(g), quarters(b)], same }
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

/// Copies a row of pixels in reverse order, 21 at a time.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
pub fn reverse(mut from: &[u8], mut to: &mut [u8]) {
    let places = load(&REVERSED);
    while let (Some(bytes), Some(out)) = (from.last_chunk(), to.first_chunk_mut()) {
        // The last byte belongs to the next pixel, which is written again.
        store(out, _mm512_permutexvar_epi8(places, load(bytes)));
        from = &from[..from.len() - WHOLE];
        to = &mut to[WHOLE..];
    }
    let places = _mm512_sub_epi8(places, _mm512_set1_epi8((LEN - from.len()) as i8));
    store_part(to, _mm512_permutexvar_epi8(places, load_part(from)));
}

/// Elements of `N` bytes, two or four, of a channel of a row of at least 64 pixels. `bytes` are tables of the elements'
/// bytes.
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
    // The last block has pixels of the one before it too.
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

/// The vectors of a block of pixels.
#[inline]
#[target_feature(enable = "avx512f")]
fn vectors(pixels: &Pixels) -> [__m512i; CHANNELS] {
    let parts = pixels.as_flattened().as_chunks::<LEN>().0;
    [load(&parts[0]), load(&parts[1]), load(&parts[2])]
}

/// A table in registers.
#[inline]
#[target_feature(enable = "avx512f")]
fn quarters(table: &[u8; 256]) -> [__m512i; 4] {
    let parts = table.as_chunks::<LEN>().0;
    [load(&parts[0]), load(&parts[1]), load(&parts[2]), load(&parts[3])]
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
