//! Reads source files and removes their comments.

use super::*;

/// Returns the Rust and CUDA files below a folder with their contents. Paths are relative to the
/// repository's root.
pub fn sources(folder: &str) -> Vec<(PathBuf, String)> {
    let top = root();
    let (mut folders, mut files) = (vec![top.join(folder)], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|it| it == "rs" || it == "cu") {
                let text = fs::read_to_string(&path).unwrap();
                files.push((path.strip_prefix(top).unwrap().to_path_buf(), text));
            }
        }
    }
    assert!(!files.is_empty(), "{folder} has no sources");
    files.sort();
    files
}

/// Removes comments and the contents of strings. Line numbers stay the same.
pub fn without_comments(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    let blank = |text: &str| text.matches('\n').collect::<String>();
    while let Some(c) = rest.chars().next() {
        let hashes =
            rest.strip_prefix('r').map_or(0, |it| it.len() - it.trim_start_matches('#').len());
        let raw_quote = rest.starts_with('r') && rest[1 + hashes..].starts_with('"');
        let len = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if raw_quote && !out.ends_with(is_word) {
            let (begin, end) = (2 + hashes, format!("\"{}", "#".repeat(hashes)));
            let len = rest[begin..].find(&end).map_or(rest.len(), |at| begin + at + end.len());
            out += &format!("r{0}\"{1}\"{0}", "#".repeat(hashes), blank(&rest[..len]));
            rest = &rest[len..];
            continue;
        } else if c == '"' {
            let mut escaped = false;
            let end = rest[1..].find(|c| {
                let end = c == '"' && !escaped;
                escaped = c == '\\' && !escaped;
                end
            });
            let len = end.map_or(rest.len(), |end| end + 2);
            out += &format!("\"{}\"", blank(&rest[..len]));
            rest = &rest[len..];
            continue;
        } else if rest.starts_with("'\"'") || rest.starts_with("'\\\"'") {
            out.push(' ');
            rest = &rest[rest[1..].find('\'').map_or(rest.len(), |end| end + 2)..];
            continue;
        } else {
            out.push(c);
            rest = &rest[c.len_utf8()..];
            continue;
        };
        out += &blank(&rest[..len]);
        rest = &rest[len..];
    }
    out
}

pub fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

pub fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c| !is_word(c)).filter(|word| !word.is_empty())
}

/// Whether the line opens an `unsafe` block or implementation, which needs a SAFETY comment.
pub fn is_block(line: &str) -> bool {
    line.contains("unsafe {") || line.contains("unsafe impl")
}

/// Whether the line or one of the 11 lines above it has a SAFETY comment, without a blank line in
/// between.
pub fn is_explained(lines: &[&str], number: usize) -> bool {
    let above = lines[..=number].iter().rev();
    above.take(12).take_while(|line| !line.trim().is_empty()).any(|line| line.contains("SAFETY:"))
}

/// Whether bindgen wrote the file.
pub fn is_generated(path: &Path) -> bool {
    path.ends_with("nvjpeg-sys/src/bindings.rs")
}
