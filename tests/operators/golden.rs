//! Test images, and functions that read golden data.

use serde_json::Value;
use sha2::{Digest, Sha256};

use feedwater::internals::geometry::Size;
use feedwater::internals::image::Image;

/// Returns an image of waves with noise, with the same bytes as `picture` in tests/golden/ops.py.
pub fn picture(size: Size, seed: u64) -> Image<u8> {
    let value = |at: u64| {
        let (x, y, c) = (at / 3 % u64::from(size.width), at / 3 / u64::from(size.width), at % 3);
        let mut noise = (at + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        noise ^= noise >> 29;
        noise = noise.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 56;
        let wave = (x * (5 + c) + y * (3 + 2 * c)) % 512;
        let wave = if wave < 256 { wave } else { 511 - wave };
        (if noise < 96 { noise * 2 } else { wave }) as u8
    };
    Image::from_data(size.window(), (0..3 * size.pixels()).map(value).collect())
}

/// Returns the first half of the SHA-256 of `bytes` as hexadecimal digits.
pub fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes)[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the entries of the table `table` of golden data.
pub fn rows(text: &str, table: &str) -> Vec<Value> {
    let all: Value = serde_json::from_str(text).unwrap();
    let rows = all[table].as_array().unwrap().clone();
    assert!(!rows.is_empty());
    rows
}

/// Parses the numbers in a text. The golden data has these numbers as texts, because JSON readers
/// would round them.
pub fn numbers<const N: usize>(value: &Value) -> [f64; N] {
    let numbers: Vec<f64> =
        value.as_str().unwrap().split(' ').map(|it| it.parse().unwrap()).collect();
    numbers.try_into().unwrap()
}

/// Reads a size that is stored as width and height.
pub fn size(value: &Value) -> Size {
    let [width, height] = integers(value);
    Size::new(width as u32, height as u32)
}

/// Reads a list of `N` integers.
pub fn integers<const N: usize>(value: &Value) -> [i64; N] {
    let numbers: Vec<i64> =
        value.as_array().unwrap().iter().map(|it| it.as_i64().unwrap()).collect();
    numbers.try_into().unwrap()
}
