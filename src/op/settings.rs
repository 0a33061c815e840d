//! Helpers for the settings of operators: checks, and short forms in TOML.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Error, IntoDeserializer, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::random::SampleRng;

use super::FieldError;

/// Maximum side length in a setting, in pixels.
const LONGEST_SIDE: u32 = 32_767;

/// Checks the length of a side, in pixels.
pub(super) fn check_side(field: &str, pixels: u32) -> Result<(), FieldError> {
    if (1..=LONGEST_SIDE).contains(&pixels) {
        return Ok(());
    }
    let problem = format!("must be 1 to {LONGEST_SIDE} pixels, is {pixels}");
    Err(FieldError::new(field, problem))
}

/// Returns `input`, the number of channels. An error if it is not 3 and the setting's values for
/// red, green and blue differ.
pub(super) fn equal_values<T: PartialEq + fmt::Debug>(
    name: &str,
    setting: &str,
    values: [T; 3],
    input: usize,
) -> Result<usize, String> {
    let [red, green, blue] = &values;
    if input == 3 || red == green && green == blue {
        return Ok(input);
    }
    let (channels, way_out) = match input {
        1 => ("only one channel", "three equal ones"),
        _ => ("four channels", "four of them"),
    };
    Err(format!(
        "{setting} of {name} is {values:?}, but its input has {channels}; write one number, or \
         {way_out}"
    ))
}

/// Returns `input`, the number of channels. An error if it is 1, for operators that change colours.
pub(super) fn needs_colours(name: &str, input: usize) -> Result<usize, String> {
    match input {
        1 => Err(format!(
            "{name} changes colours, but its input has only one channel; remove {name}, or put it \
             before grayscale"
        )),
        _ => Ok(input),
    }
}

/// Checks a range `[low, high]` of positive numbers.
pub(super) fn check_range(field: &str, [low, high]: [f64; 2]) -> Result<(), FieldError> {
    if low > 0.0 && low <= high && high.is_finite() {
        return Ok(());
    }
    let problem = format!("must be [low, high] with 0 < low <= high, is [{low}, {high}]");
    Err(FieldError::new(field, problem))
}

/// Draws a number from a range. Draws nothing if both ends are equal.
pub(super) fn drawn([low, high]: [f64; 2], rng: &mut SampleRng) -> f64 {
    if low == high { low } else { rng.between(low, high) }
}

/// Draws a number from a range, computed in f32 as `low + rand * (high - low)`.
pub(super) fn drawn_f32([low, high]: [f64; 2], rng: &mut SampleRng) -> f32 {
    rng.uniform() as f32 * (high - low) as f32 + low as f32
}

/// Checks that a number is in `low..=high`.
pub(super) fn check_number(field: &str, value: f64, low: f64, high: f64) -> Result<(), FieldError> {
    if (low..=high).contains(&value) {
        return Ok(());
    }
    Err(FieldError::new(field, format!("must be a number from {low} to {high}, is {value}")))
}

/// Checks that a whole number is in `low..=high`.
pub(super) fn check_count(field: &str, value: u32, low: u32, high: u32) -> Result<(), FieldError> {
    if (low..=high).contains(&value) {
        return Ok(());
    }
    Err(FieldError::new(field, format!("must be from {low} to {high}, is {value}")))
}

/// Checks that a range `[first, last]` has `low <= first <= last <= high`.
pub(super) fn check_pair(
    field: &str,
    pair: [f64; 2],
    low: f64,
    high: f64,
) -> Result<(), FieldError> {
    let [first, last] = pair;
    if low <= first && first <= last && last <= high {
        return Ok(());
    }
    let problem =
        format!("must be [low, high] with {low} <= low <= high <= {high}, is [{first}, {last}]");
    Err(FieldError::new(field, problem))
}

/// Reads a range `[low, high]`, or one number `n`, which stands for `[-n, n]`.
pub(super) fn around_zero<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<[f64; 2], D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "a number, or a list of two")]
    enum Range {
        Number(f64),
        Pair([f64; 2]),
    }
    Ok(match Range::deserialize(deserializer)? {
        Range::Number(number) => [-number, number],
        Range::Pair(pair) => pair,
    })
}

/// Reads a range or one number like [`around_zero`], for a setting that may be left out.
pub(super) fn around_zero_or_none<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<[f64; 2]>, D::Error> {
    around_zero(deserializer).map(Some)
}

/// Reads one value, which stands for all `N` values, or a list of `N` values. If `N` is above 2, a
/// list of one value also stands for all `N`.
pub(super) fn one_or_each<'de, D, T, const N: usize>(deserializer: D) -> Result<[T; N], D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Copy + Default,
{
    deserializer.deserialize_any(OneOrEach(PhantomData))
}

/// Reads one value or `N` values like [`one_or_each`], for a setting that may be left out.
pub(super) fn one_or_each_or_none<'de, D, T, const N: usize>(
    deserializer: D,
) -> Result<Option<[T; N]>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Copy + Default,
{
    one_or_each(deserializer).map(Some)
}

/// Visitor that reads one value or `N` values. The type `T` reads each value, so error messages are
/// the same as for other settings.
struct OneOrEach<T, const N: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de> + Copy + Default, const N: usize> OneOrEach<T, N> {
    fn one<E: Error>(value: impl IntoDeserializer<'de, E>) -> Result<[T; N], E> {
        T::deserialize(value.into_deserializer()).map(|value| [value; N])
    }
}

impl<'de, T: Deserialize<'de> + Copy + Default, const N: usize> Visitor<'de> for OneOrEach<T, N> {
    type Value = [T; N];

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "one value, or {N} values")
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<[T; N], E> {
        Self::one(value)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<[T; N], E> {
        Self::one(value)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<[T; N], E> {
        Self::one(value)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<[T; N], A::Error> {
        let mut values = [T::default(); N];
        let mut count = 0;
        while let Some(value) = items.next_element()? {
            if let Some(place) = values.get_mut(count) {
                *place = value;
            }
            count += 1;
        }
        // With `N` = 2 the setting is a range, and a list of one value probably lacks an end.
        if count == 1 && N > 2 {
            return Ok([values[0]; N]);
        }
        match count == N {
            true => Ok(values),
            false => Err(A::Error::invalid_length(count, &self)),
        }
    }
}
