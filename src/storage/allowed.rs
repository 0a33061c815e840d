//! Restricts the files that data may name: entries of a list, `file_name` of COCO, and paths in
//! Parquet files. Untrusted data could name private files of the user, or the address of a cloud's
//! metadata service.

use std::fs;
use std::path::{Component, Path, PathBuf};

use super::{StorageSettings, is_url, join};

/// Paths and URLs that the data in a folder may name.
pub(crate) struct Allowed<'a> {
    settings: &'a StorageSettings,
    base: &'a Path,
    /// Local folders that may contain the named files, as absolute paths.
    folders: Vec<PathBuf>,
}

impl Allowed<'_> {
    /// Checks a path or URL. The file must be below the folder of the data or below one of
    /// `allow_folders`, or the host of its URL must be in `allow_urls`.
    ///
    /// # Errors
    ///
    /// The error states why the file may not be read, and which setting allows it.
    pub fn check(&self, name: &str) -> Result<(), String> {
        // Fast path: most names are plain relative paths, and a list may have millions.
        let (is_absolute, has_dots) = (name.starts_with('/'), name.contains(".."));
        let has_escapes = is_url(self.base) && name.contains('%');
        if !is_absolute && !has_dots && !has_escapes && !name.contains("://") {
            return Ok(());
        }
        let path = join(self.base, Path::new(name));
        if let Some(url) = path.to_str().filter(|_| is_url(&path)) {
            if is_below_url(self.base, url) || self.settings.allows_url(url) {
                return Ok(());
            }
            let host = place(url).unwrap_or("*");
            return Err(format!(
                "names the URL {name:?}, but data may name only URLs that the settings allow; if \
                 you trust this URL, write storage.allow_urls = [{host:?}]"
            ));
        }
        let written = &path;
        let path = if is_absolute && !has_dots { path.clone() } else { plain(&path) };
        let is_below = |path: &Path| self.folders.iter().any(|folder| path.starts_with(folder));
        // After a symbolic link to another folder, `..` is the parent of that folder, which may be
        // outside the permitted folders.
        let leaves_by_link = || {
            let real = |path: &Path| fs::canonicalize(path).ok();
            let folder = written.parent().and_then(real);
            folder.is_some_and(|folder| {
                let mut allowed = self.folders.iter().filter_map(|it| real(it));
                !allowed.any(|allowed| folder.starts_with(allowed))
            })
        };
        if is_below(&path) && !(has_dots && leaves_by_link()) {
            return Ok(());
        }
        let folder = path.parent().unwrap_or(Path::new("/")).display().to_string();
        Err(format!(
            "names the file {name:?}, which is not below the folder {:?}; if you trust the data, write \
             storage.allow_folders = [{folder:?}]",
            self.base.display().to_string()
        ))
    }
}

impl StorageSettings {
    /// Returns the paths and URLs that data in the folder `base` may name.
    pub(crate) fn allowed<'a>(&'a self, base: &'a Path) -> Allowed<'a> {
        let own = Some(base).filter(|base| !is_url(base));
        let more = self.allow_folders.iter().map(PathBuf::as_path);
        Allowed { settings: self, base, folders: own.into_iter().chain(more).map(plain).collect() }
    }

    fn allows_url(&self, url: &str) -> bool {
        let place = place(url);
        let allows = |entry: &String| {
            let entry = entry.to_ascii_lowercase();
            entry == "*" || place.is_some_and(|place| place.to_ascii_lowercase() == entry)
        };
        self.allow_urls.iter().any(allows)
    }

    /// Checks that the entries of `allow_urls` are hosts.
    pub(super) fn check_allowed(&self) -> Result<(), String> {
        let is_host =
            |entry: &String| entry == "*" || place(&url_of(entry)) == Some(entry.as_str());
        match self.allow_urls.iter().find(|entry| !is_host(entry)) {
            Some(entry) => Err(format!(
                "has {entry:?}, which is not a host; write \"images.example.org\", \"localhost:8080\", \"s3://bucket\", or \"*\" for all"
            )),
            None => Ok(()),
        }
    }
}

fn url_of(entry: &str) -> String {
    if entry.contains("://") { entry.into() } else { format!("https://{entry}") }
}

/// Whether a URL is below a folder that is also a URL.
fn is_below_url(base: &Path, url: &str) -> bool {
    let Some(base) = base.to_str().filter(|_| is_url(base)) else { return false };
    let below = url.strip_prefix(base.trim_end_matches('/')).and_then(|it| it.strip_prefix('/'));
    // Servers and clients may decode escapes before they resolve dots, so `%2e%2e` counts as `..`.
    let escaped = |rest: &str| rest.to_ascii_lowercase().replace("%2e", ".").replace("%2f", "/");
    below.is_some_and(|rest| !escaped(rest).split(['/', '\\']).any(|part| part == ".."))
}

/// Returns the part of a URL that `allow_urls` can contain: host and port for `http` and `https`,
/// otherwise scheme and bucket. Returns `None` for a URL with parts that parsers interpret
/// differently, such as a user name.
fn place(url: &str) -> Option<&str> {
    let (scheme, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let plain = |it: char| it.is_ascii_alphanumeric() || "-._:[]".contains(it);
    if authority.is_empty() || !authority.chars().all(plain) {
        return None;
    }
    Some(match scheme {
        "http" | "https" => authority,
        _ => &url[..scheme.len() + 3 + authority.len()],
    })
}

/// Returns `path` as an absolute path without `.` and `..`. Links are not resolved.
fn plain(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.into());
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(urls: &[&str], folders: &[&str]) -> StorageSettings {
        StorageSettings {
            allow_urls: urls.iter().map(ToString::to_string).collect(),
            allow_folders: folders.iter().map(PathBuf::from).collect(),
            ..StorageSettings::default()
        }
    }

    #[test]
    fn data_stays_below_its_folder_unless_the_settings_allow_more() {
        let base = Path::new("/data/set");
        let usual = with(&[], &[]);
        for name in
            ["a.jpg", "x/../a.jpg", "./x/a", "/data/set/a.jpg", "/data/other/../set/a", "..a"]
        {
            assert!(usual.allowed(base).check(name).is_ok(), "{name}");
        }
        for name in ["../a.jpg", "x/../../a", "/etc/passwd", "/data/settings/a", "/data/set/../a"] {
            let problem = usual.allowed(base).check(name).unwrap_err();
            assert!(problem.contains(name) && problem.contains("allow_folders"), "{problem}");
            assert!(with(&[], &["/data", "/etc"]).allowed(base).check(name).is_ok(), "{name}");
        }
        assert_eq!(with(&[], &[]).allowed(Path::new("")).check("x/../a.jpg"), Ok(()));
    }

    #[test]
    fn urls_in_data_need_their_host() {
        let base = Path::new("/data");
        let allowed = with(&["images.example.org", "localhost:8080", "s3://bucket"], &["/"]);
        for url in [
            "https://images.example.org/a.jpg",
            "http://IMAGES.example.org/a.jpg?size=3",
            "http://localhost:8080/a",
            "s3://bucket/a",
        ] {
            assert!(allowed.allowed(base).check(url).is_ok(), "{url}");
            let problem = with(&[], &["/"]).allowed(base).check(url).unwrap_err();
            assert!(problem.contains("allow_urls") && problem.contains(url), "{problem}");
        }
        for url in [
            "http://169.254.169.254/latest/meta-data",
            "http://images.example.org:81/a",
            "http://images.example.org@evil.org/a",
            "http://images.example.org\\@evil.org/a",
            "http://images.example.org.evil.org/a",
            "http://localhost/a",
            "s3://bucket2/a",
            "gs://bucket/a",
        ] {
            assert!(allowed.allowed(base).check(url).is_err(), "{url}");
            assert!(with(&["*"], &[]).allowed(base).check(url).is_ok(), "{url}");
        }
    }

    #[test]
    fn data_behind_a_url_stays_below_its_folder() {
        let base = Path::new("https://host/set");
        let usual = with(&[], &[]);
        for name in ["a.jpg", "x/a%20b", "https://host/set/a.jpg"] {
            assert!(usual.allowed(base).check(name).is_ok(), "{name}");
        }
        for name in ["../a", "%2E%2e/a", "https://host/settings", "/etc/passwd", "s3://b/a"] {
            assert!(usual.allowed(base).check(name).is_err(), "{name}");
        }
    }

    #[test]
    fn entries_must_be_hosts() {
        for entry in ["a.org", "a.org:80", "[::1]:80", "s3://bucket", "*"] {
            assert_eq!(with(&[entry], &[]).check_allowed(), Ok(()), "{entry}");
        }
        for entry in ["", "https://a.org", "a.org/b", "s3://bucket/b", "user@a.org"] {
            assert!(with(&[entry], &[]).check_allowed().is_err(), "{entry}");
        }
    }
}
