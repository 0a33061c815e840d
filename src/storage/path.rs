//! Paths and URLs.

use std::path::{Path, PathBuf};

use super::file_url;

/// Whether a local path exists. Returns false for a URL, without a request.
pub fn exists(path: &Path) -> bool {
    !is_url(path) && path.exists()
}

/// Resolves a path against `base`. Returns the local path of a `file://` URL. Other URLs and
/// absolute paths are returned unchanged.
pub fn join(base: &Path, path: &Path) -> PathBuf {
    match file_url::path(path) {
        Some(local) => local,
        None if is_url(path) => path.into(),
        None => base.join(path),
    }
}

/// Whether a path is a URL: it begins with a scheme (a letter, then letters, digits, `+`, `-` and
/// `.`) and `://`.
pub fn is_url(path: &Path) -> bool {
    path.to_str().and_then(|text| text.split_once("://")).is_some_and(|(scheme, _)| {
        scheme.starts_with(|it: char| it.is_ascii_alphabetic())
            && scheme.chars().all(|it| it.is_ascii_alphanumeric() || "+-.".contains(it))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_a_scheme_and_is_never_joined_to_a_base() {
        let base = Path::new("base");
        for url in ["s3://bucket/key", "https://host/a", "a+b-1.c://x"] {
            assert!(is_url(Path::new(url)), "{url}");
            assert_eq!(join(base, Path::new(url)), Path::new(url));
        }
        for path in ["a/b", "/a://b", "1a://b", "://b", "a:/b", "a b://c"] {
            assert!(!is_url(Path::new(path)), "{path}");
        }
        assert_eq!(join(base, Path::new("a")), Path::new("base/a"));
        assert_eq!(join(base, Path::new("/a")), Path::new("/a"));
        assert_eq!(Path::new("s3://bucket/a").join("b"), Path::new("s3://bucket/a/b"));
    }
}
