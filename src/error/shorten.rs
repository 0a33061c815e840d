//! Texts of bounded length.

use std::borrow::Cow;

/// Longest text in an error, in bytes. A longer one keeps its first and last bytes: messages begin with the item and
/// end with the remedy.
pub(super) const MOST_BYTES: usize = 4096;
const FIRST_BYTES: usize = 1024;
const LAST_BYTES: usize = 1024;

/// Returns the text, with the middle cut if it is longer than 4096 bytes.
pub fn shortened(text: &str) -> Cow<'_, str> {
    if text.len() <= MOST_BYTES {
        return text.into();
    }
    let (first, rest) = (beginning(text, FIRST_BYTES), beginning(text, text.len() - LAST_BYTES));
    format!("{first} … ({} bytes in all) … {}", text.len(), &text[rest.len()..]).into()
}

/// Returns the longest prefix of whole characters within `most` bytes.
pub fn beginning(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|&end| text.is_char_boundary(end));
    &text[..end.unwrap_or(0)]
}
