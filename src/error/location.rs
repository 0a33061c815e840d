//! Locations in text files.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::{Redacted, escaped};

/// Location in a pipeline file. It is displayed as `pipeline.toml:14:9`, or as `line 14, column 9`
/// if the text was not read from a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    /// Path of the file as the caller wrote it; `None` if the text was not read from a file.
    pub file: Option<PathBuf>,
    /// Line number, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// Excerpt of the line, and the range of its characters that a marker underlines.
    shown: String,
    marked: Range<usize>,
}

/// Longest excerpt of a line, and the most characters that it shows before the marked range.
const SHOWN: usize = 120;
const SHOWN_BEFORE: usize = 60;

impl Location {
    /// Finds line and column of a byte range of a text. The text need not be UTF-8.
    pub fn new(file: Option<&Path>, text: &[u8], bytes: Range<usize>) -> Self {
        let begin = bytes.start.min(text.len());
        let before = &text[..begin];
        let line_begin = before.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        let count = |bytes: &[u8]| String::from_utf8_lossy(bytes).chars().count();
        let column = count(&before[line_begin..]);
        let line_end = text[begin..].iter().position(|&byte| byte == b'\n');
        let line_end = line_end.map_or(text.len(), |at| begin + at);
        let len = count(&text[begin..bytes.end.clamp(begin, line_end)]).max(1);
        let skipped = column.saturating_sub(SHOWN_BEFORE);
        // Characters that would be escaped are replaced by spaces, so the marker is aligned with
        // the text.
        let shown = String::from_utf8_lossy(&text[line_begin..line_end]);
        let secret = Redacted::new(&*shown).into_string() != shown;
        let shown = if secret { "" } else { shown.trim_end() };
        let shown = shown.chars().skip(skipped).take(SHOWN);
        let is_safe = |c: char| escaped(c.encode_utf8(&mut [0; 4])).len() == c.len_utf8();
        let shown: String = shown.map(|c| if is_safe(c) { c } else { ' ' }).collect();
        let marked = column - skipped;
        Self {
            file: file.map(Path::to_path_buf),
            line: before.iter().filter(|&&byte| byte == b'\n').count() + 1,
            column: column + 1,
            shown,
            marked: marked..marked + len.min(SHOWN - marked),
        }
    }

    /// Returns three lines in the style of compilers: the line of the file, with a marker below the
    /// range. Empty if the line contains a URL with a password or a signature.
    pub fn excerpt(&self) -> String {
        if self.shown.is_empty() {
            return String::new();
        }
        let number = self.line.to_string();
        let (blank, marker) = (" ".repeat(number.len()), "^".repeat(self.marked.len()));
        let indent = " ".repeat(self.marked.start);
        format!("{blank} |\n{number} | {}\n{blank} | {indent}{marker}", self.shown)
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, column, .. } = self;
        match file {
            Some(file) => {
                write!(f, "{}:{line}:{column}", escaped(&file.to_string_lossy()))
            }
            None => write!(f, "line {line}, column {column}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_columns_are_counted_in_characters() {
        let text = "a = 1\n\"ü\" = [2, 0]\r\nb = 3".as_bytes();
        let zero = text.iter().position(|&byte| byte == b'0').unwrap();
        let place = Location::new(Some(Path::new("p.toml")), text, zero..zero + 1);
        assert_eq!((place.line, place.column, place.to_string()), (2, 11, "p.toml:2:11".into()));
        assert_eq!(place.excerpt(), "  |\n2 | \"ü\" = [2, 0]\n  |           ^");
        let end = Location::new(None, text, text.len()..text.len());
        assert_eq!((end.line, end.column, end.to_string()), (3, 6, "line 3, column 6".into()));
        assert_eq!(Location::new(None, b"", 7..9).to_string(), "line 1, column 1");
    }

    #[test]
    fn long_lines_are_shortened_and_no_password_is_shown() {
        let text = format!("a = \"{}\"", "x".repeat(100_000));
        let place = Location::new(None, text.as_bytes(), 50_000..90_000);
        assert_eq!((place.column, place.shown.len(), place.marked.clone()), (50_001, 120, 60..120));
        let secret = Location::new(None, b"directory = \"http://me:secret@host/a\"", 0..9);
        assert_eq!(secret.excerpt(), "");
    }

    #[test]
    fn control_characters_are_not_shown() {
        let place = Location::new(None, b"a\t= \"\x1b[31m\xff\xe2\x80\xae\"", 0..1);
        assert_eq!(place.excerpt(), "  |\n1 | a = \" [31m\u{fffd} \"\n  | ^");
    }
}
