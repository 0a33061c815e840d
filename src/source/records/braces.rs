//! Expands braces in paths as shells do, and as the Python package `braceexpand` does, which
//! WebDataset uses.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Largest number of paths from one path with braces.
pub const MOST: usize = 1_000_000;

/// Deepest nesting of braces.
const DEEPEST: usize = 16;

/// Expands the braces in a path. The paths are in order; the last brace varies fastest.
///
/// * `{a,b}` expands to its parts, `{000..146}` to the numbers and `{a..e}` to the letters of the
///   range. Ranges may descend. `{0..146..2}` has a step of 2. If an end has leading zeros, all
///   numbers have them.
/// * Braces may be nested, and a path may have several braces. Braces without a list or range
///   (`{x}`) are left unchanged.
///
/// # Errors
///
/// Returns a message if a brace is not closed or not opened, or if there are more than [`MOST`]
/// paths.
pub fn braces(path: &Path) -> Result<Vec<PathBuf>, String> {
    let texts = expand(path.as_os_str().as_bytes(), 0)?;
    Ok(texts.into_iter().map(|text| PathBuf::from(OsString::from_vec(text))).collect())
}

fn expand(mut text: &[u8], depth: usize) -> Result<Vec<Vec<u8>>, String> {
    if depth > DEEPEST {
        return Err(format!(
            "the braces are nested more than {DEEPEST} levels deep, which is the maximum"
        ));
    }
    let mut found = vec![Vec::new()];
    while let Some(at) = text.iter().position(|byte| b"{}".contains(byte)) {
        let (before, rest) = text.split_at(at);
        let (parts, after) = parts(rest)?;
        let choices = match parts[..] {
            [part] => match range(part)? {
                Some(range) => range,
                None => expand(part, depth + 1)?
                    .into_iter()
                    .map(|inner| [b"{", &inner[..], b"}"].concat())
                    .collect(),
            },
            _ => {
                let mut choices = Vec::new();
                for part in parts {
                    choices.extend(expand(part, depth + 1)?);
                    bounded(choices.len())?;
                }
                choices
            }
        };
        bounded(found.len().saturating_mul(choices.len()))?;
        let with = |start: &Vec<u8>| {
            let start = [start, before].concat();
            choices.iter().map(|choice| [&start[..], choice].concat()).collect::<Vec<_>>()
        };
        found = found.iter().flat_map(with).collect();
        text = after;
    }
    found.iter_mut().for_each(|start| start.extend_from_slice(text));
    Ok(found)
}

/// Splits the brace at the start of `text` at its commas. Returns its parts, and the text after the
/// brace.
fn parts(text: &[u8]) -> Result<(Vec<&[u8]>, &[u8]), String> {
    let (mut depth, mut start, mut parts) = (0, 1, Vec::new());
    for (at, byte) in text.iter().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' if depth == 0 => return Err("a brace } has no { before it".into()),
            b'}' => depth -= 1,
            b',' if depth == 1 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
        if depth == 0 {
            parts.push(&text[start..at]);
            return Ok((parts, &text[at + 1..]));
        }
    }
    Err("a brace { has no } after it".into())
}

/// Returns the numbers or letters of `FIRST..LAST` or `FIRST..LAST..STEP`, or `None` if the text is
/// not a range.
fn range(text: &[u8]) -> Result<Option<Vec<Vec<u8>>>, String> {
    let Ok(text) = str::from_utf8(text) else { return Ok(None) };
    let mut ends = text.split("..");
    let (Some(first), Some(last), step, None) =
        (ends.next(), ends.next(), ends.next(), ends.next())
    else {
        return Ok(None);
    };
    let step = match step.map(str::parse::<i64>) {
        None => 1,
        Some(Ok(step)) => step.unsigned_abs().max(1),
        Some(Err(_)) => return Ok(None),
    };
    if let (Ok(from), Ok(to)) = (first.parse::<i64>(), last.parse::<i64>()) {
        let padded = |end: &str| {
            let digits = end.trim_start_matches('-');
            digits.len() > 1 && digits.starts_with('0')
        };
        let width = if padded(first) || padded(last) { first.len().max(last.len()) } else { 0 };
        let numbers = steps(from, to, step)?;
        let write = |number| format!("{number:0width$}").into_bytes();
        return Ok(Some(numbers.map(write).collect()));
    }
    let letter = |end: &str| match end.as_bytes() {
        [byte] if byte.is_ascii_alphabetic() => Some(i64::from(*byte)),
        _ => None,
    };
    let (Some(from), Some(to)) = (letter(first), letter(last)) else { return Ok(None) };
    let letters = steps(from, to, step)?.map(|letter| letter as u8);
    // ASCII has punctuation between Z and a, which is skipped.
    Ok(Some(letters.filter(u8::is_ascii_alphabetic).map(|letter| vec![letter]).collect()))
}

fn steps(from: i64, to: i64, step: u64) -> Result<impl Iterator<Item = i64>, String> {
    let last = from.abs_diff(to) / step;
    bounded(usize::try_from(last).unwrap_or(usize::MAX).saturating_add(1))?;
    // `number * step` is at most the distance from `from` to `to`, so these operations never
    // saturate.
    let at = move |number: u64| match from <= to {
        true => from.saturating_add_unsigned(number * step),
        false => from.saturating_sub_unsigned(number * step),
    };
    Ok((0..=last).map(at))
}

fn bounded(count: usize) -> Result<(), String> {
    match count {
        0..=MOST => Ok(()),
        _ => Err(format!("the braces expand to more than {MOST} files, which is the maximum")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(text: &str) -> Vec<String> {
        let paths = braces(Path::new(text)).unwrap();
        paths.into_iter().map(|path| path.into_os_string().into_string().unwrap()).collect()
    }

    /// The expected results were produced by `braceexpand` 0.1.7.
    #[test]
    fn lists_and_ranges_match_braceexpand() {
        for (text, expected) in [
            ("a", "a"),
            ("", ""),
            ("a{b,c}d", "abd acd"),
            ("{,x}y", "y xy"),
            ("{8..11}", "8 9 10 11"),
            ("{08..11}", "08 09 10 11"),
            ("{8..011}", "008 009 010 011"),
            ("{3..1}", "3 2 1"),
            ("{-1..1}", "-1 0 1"),
            ("{-01..1}", "-01 000 001"),
            ("{0..10..4}", "0 4 8"),
            ("{10..0..4}", "10 6 2"),
            ("{1..2..0}", "1 2"),
            ("{a..c}", "a b c"),
            ("{c..a..2}", "c a"),
            ("{Y..b}", "Y Z a b"),
            ("{a,b}{0..1}", "a0 a1 b0 b1"),
            ("x{a,b{1..2},c}", "xa xb1 xb2 xc"),
            ("{{a,b},{c,d}}", "a b c d"),
            ("{x}", "{x}"),
            ("{}", "{}"),
            ("{a{b,c}}", "{ab} {ac}"),
            ("{1..b}", "{1..b}"),
            ("{1..2..3..4}", "{1..2..3..4}"),
            ("{aa..b}", "{aa..b}"),
            (
                "s3://bucket/{train,val}-{000..001}.tar",
                "s3://bucket/train-000.tar s3://bucket/train-001.tar s3://bucket/val-000.tar s3://bucket/val-001.tar",
            ),
        ] {
            assert_eq!(expanded(text), expected.split(' ').collect::<Vec<_>>(), "{text}");
        }
    }

    #[test]
    fn open_braces_and_too_many_files_are_errors() {
        let error = |text: &str| braces(Path::new(text)).unwrap_err();
        let deep = format!("{}a{}", "{".repeat(20), "}".repeat(20));
        let (most, deepest) = (MOST.to_string(), DEEPEST.to_string());
        for (text, value) in [
            ("a{b", "{"),
            ("a}b", "}"),
            ("{0..1000000}", &most),
            ("{1..1001}{1..1000}", &most),
            ("{{1..999999},{1..2}}", &most),
            ("{-9223372036854775808..9223372036854775807}", &most),
            (&deep, &deepest),
        ] {
            assert!(error(text).contains(value), "{text}: {}", error(text));
        }
        assert_eq!(error("a{b"), error("a{b,{c}"));
        assert_eq!(error("a}b"), error("{a,b}}"));
        assert_ne!(error("a{b"), error("a}b"));
        let ends = "{-9223372036854775808..9223372036854775807..9223372036854775807}";
        assert_eq!(expanded(ends), ["-9223372036854775808", "-1", "9223372036854775806"]);
        assert_eq!(expanded("{1..1000}{1..1000}").len(), MOST);
    }
}
