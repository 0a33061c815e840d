//! What the settings of several operators share: checks, and short forms in TOML.

use serde::{Deserialize, Deserializer};

use super::FieldError;

/// The longest side that a setting may ask for.
const LONGEST_SIDE: u32 = 32_767;

/// A number of columns or rows that a setting asks for.
pub(super) fn check_side(field: &str, pixels: u32) -> Result<(), FieldError> {
    if (1..=LONGEST_SIDE).contains(&pixels) {
        return Ok(());
    }
    let problem = format!("must be 1 to {LONGEST_SIDE} pixels, is {pixels}");
    Err(FieldError::new(field, problem))
}

/// A range `[low, high]` of positive numbers.
pub(super) fn check_range(field: &str, [low, high]: [f64; 2]) -> Result<(), FieldError> {
    if low > 0.0 && low <= high && high.is_finite() {
        return Ok(());
    }
    let problem = format!("must be [low, high] with 0 < low <= high, is [{low}, {high}]");
    Err(FieldError::new(field, problem))
}

/// One value for all of `N`, or `N` values.
pub(super) fn one_or_each<'de, D, T, const N: usize>(deserializer: D) -> Result<[T; N], D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Copy,
{
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum OneOrMany<T> {
        One(T),
        Many(Vec<T>),
    }
    match OneOrMany::deserialize(deserializer)? {
        OneOrMany::One(value) => Ok([value; N]),
        OneOrMany::Many(values) => <[T; N]>::try_from(values.as_slice()).map_err(|_| {
            let len = values.len();
            serde::de::Error::custom(format!("expected one value or {N} of them, found {len}"))
        }),
    }
}
