//! Searches messages and tables for values, so that tests do not depend on the wording.

#![allow(dead_code, reason = "each test file uses its own part")]

/// Whether a text contains all of the given words: numbers, keys, options or names.
///
/// Only whole words count: `1` is not found in `10`, `1.5` or `a1`.
pub fn has_words(text: &str, words: &[&str]) -> bool {
    words.iter().all(|word| has_word(text, word))
}

fn has_word(text: &str, word: &str) -> bool {
    let is_part = |it: char| it.is_alphanumeric() || it == '_';
    text.match_indices(word).any(|(at, _)| {
        let (before, after) = (&text[..at], &text[at + word.len()..]);
        // A dot inside a number or a file name is part of the word. A full stop at the end of a
        // sentence is not part of the word, because a space follows it.
        let before = before.strip_suffix('.').unwrap_or(before);
        let after = after.strip_prefix('.').unwrap_or(after);
        !before.ends_with(is_part) && !after.starts_with(is_part)
    })
}

/// Returns the rest of the first line that begins with this label.
#[track_caller]
pub fn row<'a>(text: &'a str, label: &str) -> &'a str {
    let rest = text.lines().find_map(|line| line.strip_prefix(label));
    rest.unwrap_or_else(|| panic!("no row {label}:\n{text}"))
}
