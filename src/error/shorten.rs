//! Texts of bounded length.

use std::borrow::Cow;

/// Longest text in an error, in bytes. The first and last bytes of a longer text are kept, because
/// messages begin with the item and end with the remedy.
pub(super) const MOST_BYTES: usize = 4096;
const FIRST_BYTES: usize = 1024;
const LAST_BYTES: usize = 1024;

/// Returns the text. If it is longer than 4096 bytes, its middle is cut out.
pub fn shortened(text: &str) -> Cow<'_, str> {
    if text.len() <= MOST_BYTES {
        return text.into();
    }
    let (first, rest) = (beginning(text, FIRST_BYTES), beginning(text, text.len() - LAST_BYTES));
    format!("{first} … ({} bytes in all) … {}", text.len(), &text[rest.len()..]).into()
}

/// Returns the longest prefix that consists of whole characters and has at most `most` bytes.
pub fn beginning(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|&end| text.is_char_boundary(end));
    &text[..end.unwrap_or(0)]
}
