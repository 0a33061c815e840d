//! Formats numbers and text for users.

use std::borrow::Cow;
use std::fmt::Display;

/// Formats a number of bytes: `73.5 MiB`.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let mut value = count as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// Formats a count with its noun, in the regular plural if needed: `1 shard`, `2 shards`, `2
/// batches`, `2 retries`.
#[doc(hidden)]
pub fn counted<N: Copy + Display + From<u8> + PartialEq>(many: N, what: &str) -> String {
    if many == N::from(1) {
        return format!("1 {what}");
    }
    match what.strip_suffix('y') {
        Some(stem) if !stem.ends_with(['a', 'e', 'o', 'u']) => format!("{many} {stem}ies"),
        _ if what.ends_with("ch") || what.ends_with('s') => format!("{many} {what}es"),
        _ => format!("{many} {what}s"),
    }
}

/// Escapes text from data, such as the name of a class or a file, so that it can be printed in one
/// line of a terminal or a log: `\n`, `\u{1b}`.
///
/// Escapes characters that control a terminal, and characters that hide or reorder others. These
/// are control characters (C0, DEL and C1), line and paragraph separators, direction marks, and
/// characters without a width. Joiners are not escaped, because scripts and emoji need them.
#[doc(hidden)]
pub fn escaped(text: &str) -> Cow<'_, str> {
    replaced(text, is_obeyed, |it| it.escape_default().to_string())
}

/// Like [`escaped`], but keeps line feeds. For text of several lines whose data is already escaped.
#[doc(hidden)]
pub fn escaped_lines(text: &str) -> Cow<'_, str> {
    replaced(text, |it| it != '\n' && is_obeyed(it), |it| it.escape_default().to_string())
}

/// Escapes in JSON text the same characters as [`escaped`], in the form `\u009b`. JSON writers
/// leave most of these characters unchanged.
#[doc(hidden)]
pub fn escaped_json(json: &str) -> Cow<'_, str> {
    let unit = |it: &u16| format!("\\u{it:04x}");
    replaced(json, is_obeyed, |it| it.encode_utf16(&mut [0; 2]).iter().map(unit).collect())
}

/// Whether the character controls a terminal, or occupies no column of its own.
fn is_obeyed(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

fn replaced(text: &str, of: impl Fn(char) -> bool, by: impl Fn(char) -> String) -> Cow<'_, str> {
    if !text.contains(&of) {
        return text.into();
    }
    let mut escaped = String::with_capacity(2 * text.len());
    for character in text.chars() {
        match of(character) {
            true => escaped.push_str(&by(character)),
            false => escaped.push(character),
        }
    }
    escaped.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thing_is_singular() {
        let shards = [0, 1, 2].map(|many| counted(many, "shard"));
        assert_eq!(shards, ["0 shards", "1 shard", "2 shards"]);
        for (what, several) in [
            ("batch", "2 batches"),
            ("class", "2 classes"),
            ("retry", "2 retries"),
            ("key", "2 keys"),
            ("other rank", "2 other ranks"),
        ] {
            assert_eq!(
                [counted(1u64, what), counted(2usize, what)],
                [format!("1 {what}"), several.into()]
            );
        }
    }

    #[test]
    fn characters_that_a_terminal_obeys_are_escaped() {
        let name = "cat\x1b[2J\x07\u{9b}31m\u{202e}gnp\r\nwarning: x\u{200b}\x7f";
        let shown = "cat\\u{1b}[2J\\u{7}\\u{9b}31m\\u{202e}gnp\\r\\nwarning: x\\u{200b}\\u{7f}";
        assert_eq!(escaped(name), shown);
        assert_eq!(escaped_lines(name), shown.replace("\\n", "\n"));
        for name in ["", "a b", "Ü ?#%41.jpg", "日本", "👩\u{200d}🔬", "a\\n"] {
            assert!(matches!(escaped(name), Cow::Borrowed(it) if it == name));
        }
    }

    #[test]
    fn escaped_json_has_the_same_value() {
        let all: String = (0..0x10000).chain(0xe0000..0xe0100).filter_map(char::from_u32).collect();
        let json = serde_json::to_string(&all).unwrap();
        let shown = escaped_json(&json);
        assert!(!shown.chars().any(is_obeyed));
        assert_eq!(serde_json::from_str::<String>(&shown).unwrap(), all);
    }
}
