//! Functions that read golden data.

use serde_json::Value;
use sha2::{Digest, Sha256};

pub use crate::common::picture;
use feedwater::internals::geometry::Size;

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
