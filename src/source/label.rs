//! Parses labels from texts and floats.
//!
//! If labels are written as whole numbers, these numbers are the labels. The numbers may be
//! integers, texts or floats (`3.0`, which pandas writes for columns with missing values). They are
//! never sorted as texts, which would put 10 before 9.

use serde::{Deserialize, Serialize};
use unicode_normalization::UnicodeNormalization;

/// From this limit on, an f64 cannot represent every whole number, so the label may have been
/// rounded.
const MOST_OF_A_FLOAT: f64 = (1u64 << 53) as f64;
#[cfg_attr(not(feature = "all-sources"), allow(dead_code, reason = "only some sources need it"))]
const MOST_OF_AN_F32: f32 = (1u32 << 24) as f32;

/// Longest name of a class, in bytes.
pub const MOST_NAME_BYTES: usize = 4096;

/// Type of the labels in a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LabelSort {
    /// Detected: `integer` if all labels are whole numbers (`3`, `3.0`, `"3"`), otherwise `text`.
    #[default]
    Auto,
    /// Whole numbers.
    Integer,
    /// Names of classes, even if they look like numbers.
    Text,
}

/// Parses a text as a number. Returns `None` if the text is a name.
///
/// # Errors
///
/// The error is a predicate for a message which states why the number is not a valid label.
pub fn number(text: &str) -> Option<Result<i64, &'static str>> {
    let text = text.trim();
    // A float with only zeros after the point is parsed as an integer, because an f64 could round
    // it.
    let whole = text.split_once('.').filter(|(_, zeros)| zeros.bytes().all(|it| it == b'0'));
    if let Ok(number) = whole.map_or(text, |(whole, _)| whole).parse() {
        return Some(Ok(number));
    }
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let digits = digits.strip_prefix('.').unwrap_or(digits);
    // A number begins with a digit. "nan" and "inf" would also parse as floats, but are names here.
    let begins = digits.starts_with(|it: char| it.is_ascii_digit());
    begins.then(|| text.parse().ok()).flatten().map(of_float)
}

/// Converts a float to a label.
///
/// # Errors
///
/// The error is a predicate for a message which states why the float is not a valid label.
pub fn of_float(label: f64) -> Result<i64, &'static str> {
    match label {
        _ if label.is_nan() => Err("is not a number"),
        _ if label.abs() >= MOST_OF_A_FLOAT => Err("is out of range for a label"),
        _ if label.fract() != 0.0 => Err("has a fraction; labels are whole numbers"),
        _ => Ok(label as i64),
    }
}

/// Converts an f32 to a label.
///
/// # Errors
///
/// The error is a predicate for a message which states why the float is not a valid label.
#[cfg_attr(not(feature = "all-sources"), allow(dead_code, reason = "only some sources need it"))]
pub fn of_f32(label: f32) -> Result<i64, &'static str> {
    match label.abs() >= MOST_OF_AN_F32 {
        true => Err("is out of range for a label"),
        false => of_float(label.into()),
    }
}

/// Converts a JSON number to a label.
///
/// # Errors
///
/// The error is a predicate for a message which states why the number is not a valid label.
pub fn of_json(label: &serde_json::Number) -> Result<i64, &'static str> {
    match (label.as_i64(), label.as_f64()) {
        (Some(label), _) => Ok(label),
        (None, Some(label)) => of_float(label),
        (None, None) => Err("is out of range for a label"),
    }
}

/// Sorts class names into label order: numerically if all are numbers, otherwise by bytes.
pub fn sort_names(names: &mut [String]) {
    let key = |name: &String| number(name).and_then(Result::ok);
    match names.iter().all(|name| key(name).is_some()) {
        true => names.sort_unstable_by(|a, b| key(a).cmp(&key(b)).then_with(|| a.cmp(b))),
        false => names.sort_unstable(),
    }
}

/// Returns the name without details that readers easily overlook: blanks and quotes around the
/// name, repeated blanks, and the Unicode form. Names with the same result are probably the same
/// class.
pub fn alike(name: &str) -> String {
    let words: Vec<&str> = name.trim_matches(is_around).split_whitespace().collect();
    words.join(" ").nfc().collect()
}

/// Whether the name begins or ends with a blank or a quote.
pub fn has_odd_ends(name: &str) -> bool {
    name.starts_with(is_around) || name.ends_with(is_around)
}

fn is_around(it: char) -> bool {
    it.is_whitespace() || it.is_control() || "\"'\u{feff}\u{200b}".contains(it)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_look_the_same_are_alike() {
        for (one, two) in [
            ("cat", " cat"),
            ("cat", "cat\u{a0}"),
            ("caf\u{e9}", "cafe\u{301}"),
            ("dog", " \"dog\""),
        ] {
            assert_eq!(alike(one), alike(two), "{one:?} {two:?}");
        }
        for (one, two) in [("cat", "Cat"), ("cat", "cats"), ("0", "00"), ("a b", "ab")] {
            assert_ne!(alike(one), alike(two), "{one:?} {two:?}");
        }
    }

    #[test]
    fn whole_numbers_are_numbers_however_they_are_written() {
        for (text, expected) in [
            ("7", 7),
            (" -3 ", -3),
            ("007", 7),
            ("11.0", 11),
            ("-2.", -2),
            ("1e3", 1000),
            ("+5", 5),
            ("9223372036854775807", i64::MAX),
            ("9007199254740992.0", 1 << 53),
            ("9007199254740993.0", (1 << 53) + 1),
            ("-9223372036854775808.000", i64::MIN),
        ] {
            assert_eq!(number(text), Some(Ok(expected)), "{text}");
        }
        for text in ["", "cat", "nan", "inf", "n01440764", "3d", "1.2.3", "-", ".", "0x10", "1,0"] {
            assert_eq!(number(text), None, "{text}");
        }
        for text in [
            "1.5",
            ".5",
            "9223372036854775808",
            "1e300",
            "9007199254740993e0",
            "9007199254740992e0",
        ] {
            assert!(matches!(number(text), Some(Err(_))), "{text}");
        }
    }

    #[test]
    fn names_are_sorted_by_number_if_all_are_numbers() {
        let sorted = |names: &[&str]| {
            let mut names: Vec<String> = names.iter().map(ToString::to_string).collect();
            sort_names(&mut names);
            names
        };
        assert_eq!(sorted(&["10", "9", "-1", "9.0"]), ["-1", "9", "9.0", "10"]);
        assert_eq!(sorted(&["10", "9", "up"]), ["10", "9", "up"]);
    }
}
