//! Expands configured paths to files.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::braces::braces;
use crate::decode::ROWS_ENDING;
use crate::error::{Error, Result};
use crate::storage::{self, Storage};

/// Expands each path to files, in order.
///
/// A path is a file, a directory (its visible files whose names match `ending`, optionally followed
/// by `.gz` or `.zst`), or a pattern in its last part. In a pattern, `*` matches any text and `?`
/// any byte. Files of directories and patterns are in byte order of their names, without row
/// indexes of JPEGs. Braces are expanded first if the path does not exist.
pub fn expand(
    storage: &Storage,
    key: &str,
    paths: &[PathBuf],
    ending: &str,
) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let paths = &without_braces(key, paths)?;
    for (path, is_folder) in paths.iter().zip(storage.are_folders(paths)) {
        let before = files.len();
        if is_folder.map_err(|error| Error::io(path, &error))? {
            list(storage, path, |name| ends_with(name, ending.as_bytes()), &mut files)?;
        } else if let Some(pattern) = pattern(path) {
            let parent = path.parent().filter(|it| !it.as_os_str().is_empty());
            let parent = parent.unwrap_or(Path::new("."));
            list(storage, parent, |name| matches(pattern, name), &mut files)?;
        } else {
            files.push(path.clone());
        }
        if files.len() == before {
            let problem = format!("no files match {}", path.display());
            return Err(Error::config(format!("source.{key}"), problem));
        }
    }
    if files.is_empty() {
        return Err(Error::config(format!("source.{key}"), "is empty; name at least one file"));
    }
    Ok(files)
}

fn without_braces(key: &str, paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for path in paths {
        let marked = path.as_os_str().as_bytes().iter().any(|byte| b"{}".contains(byte));
        if marked && !storage::exists(path) {
            all.extend(braces(path).map_err(|problem| {
                let problem = format!("{}: {problem}", path.display());
                Error::config(format!("source.{key}"), problem)
            })?);
        } else {
            all.push(path.clone());
        }
    }
    Ok(all)
}

/// Returns the last part of a path that does not exist, if it is a pattern.
fn pattern(path: &Path) -> Option<&[u8]> {
    let name = path.file_name()?.as_bytes();
    (!storage::exists(path) && name.iter().any(|byte| b"*?".contains(byte))).then_some(name)
}

fn list(
    storage: &Storage,
    folder: &Path,
    wanted: impl Fn(&[u8]) -> bool,
    files: &mut Vec<PathBuf>,
) -> Result<()> {
    let entries = storage.list(folder).map_err(|error| Error::io(folder, &error))?;
    // Row indexes are stored beside shards, so they are skipped.
    let is_shard = |name: &[u8]| wanted(name) && !name.ends_with(ROWS_ENDING.as_bytes());
    let wanted = entries.iter().filter(|it| !it.folder && is_shard(it.name.as_bytes()));
    files.extend(wanted.map(|entry| folder.join(&entry.name)));
    Ok(())
}

fn ends_with(name: &[u8], ending: &[u8]) -> bool {
    let packed = [&b".gz"[..], b".zst"].into_iter().find_map(|it| name.strip_suffix(it));
    name.ends_with(ending) || packed.is_some_and(|name| name.ends_with(ending))
}

/// Whether a name matches a pattern of `*` (any text) and `?` (any byte). On a mismatch, the text
/// of the last `*` is extended by one byte.
pub fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n, mut star) = (0, 0, None);
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(&byte) if byte == b'?' || byte == name[n] => {
                p += 1;
                n += 1;
            }
            _ => {
                let Some((at, taken)) = star else { return false };
                star = Some((at, taken + 1));
                p = at + 1;
                n = taken + 1;
            }
        }
    }
    pattern[p..].iter().all(|&byte| byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn a_star_is_any_text_and_a_question_mark_any_byte() {
        for (pattern, name, expected) in [
            ("*", "", true),
            ("a*", "abc", true),
            ("*c", "abcc", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("train-*-of-?", "train-00-of-2", true),
            ("train-*-of-?", "train-00-of-12", false),
            ("abc", "abcd", false),
        ] {
            assert_eq!(matches(pattern.as_bytes(), name.as_bytes()), expected, "{pattern} {name}");
        }
    }
}
