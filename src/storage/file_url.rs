//! Converts local paths to and from `file://` URLs. A pipeline file must be Unicode, so paths that
//! are not Unicode are written to it as such URLs.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{self, Path, PathBuf};

const SCHEME: &str = "file://";

/// Returns the path of a `file://` URL whose host is empty or `localhost`. Returns `None` for
/// anything else.
pub fn path(url: &Path) -> Option<PathBuf> {
    let rest = url.to_str()?.strip_prefix(SCHEME)?;
    let encoded = rest.strip_prefix("localhost").unwrap_or(rest);
    if !encoded.starts_with('/') {
        return None;
    }
    let mut bytes = Vec::with_capacity(encoded.len());
    let mut left = encoded.as_bytes();
    while let Some((&first, rest)) = left.split_first() {
        let escaped = rest.get(..2).filter(|_| first == b'%');
        let byte = escaped.and_then(|digits| {
            let digits = str::from_utf8(digits).ok().filter(|it| !it.starts_with('+'))?;
            u8::from_str_radix(digits, 16).ok()
        });
        bytes.push(byte.unwrap_or(first));
        left = if byte.is_some() { &rest[2..] } else { rest };
    }
    Some(OsString::from_vec(bytes).into())
}

/// Returns the path as a pipeline file contains it, which is a `file://` URL if the path is not
/// Unicode.
pub fn written(path: &Path) -> PathBuf {
    if path.to_str().is_some() {
        return path.into();
    }
    let whole = path::absolute(path).unwrap_or_else(|_| path.into());
    let mut url = SCHEME.to_string();
    for &byte in whole.as_os_str().as_bytes() {
        match byte {
            b'/' | b'-' | b'.' | b'_' | b'~' => url.push(byte.into()),
            _ if byte.is_ascii_alphanumeric() => url.push(byte.into()),
            _ => url += &format!("%{byte:02X}"),
        }
    }
    url.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_is_not_unicode_comes_back() {
        for bytes in [&b"/data/caf\xe9 {0..3}%41/%"[..], b"/\xff", b"/a+b/\xc3\x28"] {
            let original = PathBuf::from(OsString::from_vec(bytes.to_vec()));
            let text = written(&original);
            assert!(text.to_str().unwrap().starts_with("file:///"), "{text:?}");
            assert_eq!(path(&text), Some(original));
        }
        assert_eq!(written(Path::new("café/%41")), Path::new("café/%41"));
    }

    #[test]
    fn urls_of_files_are_decoded() {
        let decoded = |url: &str| path(Path::new(url)).map(|it| it.to_str().unwrap().to_string());
        assert_eq!(decoded("file:///a%20b/%c3%A9"), Some("/a b/é".into()));
        assert_eq!(decoded("file://localhost/a"), Some("/a".into()));
        assert_eq!(decoded("file:///100%/%zz%+1"), Some("/100%/%zz%+1".into()));
        for other in ["file://server/a", "file:a", "/a", "https://a/b"] {
            assert_eq!(decoded(other), None, "{other}");
        }
    }
}
