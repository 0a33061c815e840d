//! Settings for reading files.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Value of `[storage]`: how files at URLs are read and cached. Only `map`, `index_files` and the
/// `allow_` keys affect local files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StorageSettings {
    /// Largest number of concurrent requests, 1 to 4096. Default 64.
    pub connections: usize,
    /// Largest number of retries of a failed request, at most 100. Default 8, which takes about 25
    /// seconds including the pauses.
    pub retries: u32,
    /// Time limit for an answer in seconds, 1 to 3600. A body gets one additional second per 64
    /// KiB. Default 10.
    pub timeout: u64,
    /// Time limit in seconds for one request with all its retries while a source is being opened, 1
    /// to 86400. If a server does not answer, opening fails after about this time. Default 60.
    pub open_timeout: u64,
    /// Permitted targets of redirects for `http://` and `https://`. Default `same-host`. Requests
    /// to buckets are signed and never follow redirects, regardless of this setting.
    pub redirects: Redirects,
    /// File of certificates (PEM) that are trusted in addition to the system's, for servers of your
    /// own. A relative path is resolved against the folder of the pipeline file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
    /// Largest number of names in a listing, at least 1. Default 50,000,000.
    pub max_listed: u64,
    /// Largest host memory for prefetched samples, in bytes. Fewer samples are prefetched if
    /// samples of the largest size would exceed this limit, or if measurements show that fewer
    /// suffice (`loader.tune`). Default 256 MiB.
    #[serde(deserialize_with = "crate::footprint::byte_size")]
    pub read_ahead: u64,
    /// Largest size of the disk cache for fetched data, in bytes. Default 0, which disables the
    /// disk cache.
    #[serde(deserialize_with = "crate::footprint::byte_size")]
    pub cache: u64,
    /// Folder of the disk cache. Several processes may share it. Default: `objects` in the cache
    /// directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_directory: Option<PathBuf>,
    /// Whether local files of the formats `lmdb`, `beton` and `npy` are memory-mapped. Reading a
    /// mapped file is faster if the file is in the page cache. The pages that were read then count
    /// as resident memory of the process, although the system may reclaim them at any time. Set
    /// `false` on machines that end jobs whose resident memory is too large. Default true.
    pub map: bool,
    /// Location of the tables of samples of local files. The tables are hidden files that end in
    /// `.feedwater1`. Default `beside`.
    pub index_files: IndexFiles,
    /// Hosts to which URLs in data may lead. Such URLs occur in entries of a list, in `file_name`
    /// of COCO, and in paths in Parquet files. Each entry is a host (with its port, unless it is
    /// the default port), a bucket as `s3://bucket`, or `*` for all. Default: none. URLs below the
    /// folder of the data are always allowed.
    pub allow_urls: Vec<String>,
    /// Folders from which data may name files, in addition to the folder of the data. Relative
    /// paths are resolved against the folder of the pipeline file. Default: none.
    pub allow_folders: Vec<PathBuf>,
}

/// Location of tables of samples. Tables of files at URLs are in the cache directory, or are not
/// stored with `none`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum IndexFiles {
    /// Beside each file. If this is not possible, in the cache directory.
    #[default]
    Beside,
    /// In the cache directory: `$FEEDWATER_CACHE`, else `$XDG_CACHE_HOME/feedwater`, else
    /// `~/.cache/feedwater`.
    Cache,
    /// Nowhere. No tables are read either, so files are scanned at every start.
    None,
}

/// Permitted targets of HTTP redirects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Redirects {
    /// No redirects. A redirect is an error.
    None,
    /// The same host and port, or the same host by https on the default ports.
    #[default]
    SameHost,
    /// Any host. User and password are not sent to other hosts. Redirects from https to http are
    /// never followed, and neither are redirects from another host to an address of this machine or
    /// its network link.
    Any,
}

impl Default for StorageSettings {
    fn default() -> Self {
        Self {
            connections: 64,
            retries: 8,
            timeout: 10,
            open_timeout: 60,
            redirects: Redirects::SameHost,
            ca_file: None,
            max_listed: 50_000_000,
            read_ahead: 256 << 20,
            cache: 0,
            cache_directory: None,
            map: true,
            index_files: IndexFiles::Beside,
            allow_urls: Vec::new(),
            allow_folders: Vec::new(),
        }
    }
}

impl StorageSettings {
    /// Checks that every setting is within its limits.
    ///
    /// # Errors
    ///
    /// Returns an error with the key of the invalid setting, and the problem with its value.
    pub fn check(&self) -> crate::Result<()> {
        let error = |key: &str, problem: String| {
            Err(crate::Error::config(format!("storage.{key}"), problem))
        };
        let Self { connections, retries, timeout, open_timeout, max_listed, .. } = *self;
        if !(1..=4096).contains(&connections) {
            return error("connections", format!("must be from 1 to 4096, is {connections}"));
        }
        if retries > 100 {
            return error("retries", format!("must be at most 100, is {retries}"));
        }
        if !(1..=3600).contains(&timeout) {
            return error("timeout", format!("must be from 1 to 3600 seconds, is {timeout}"));
        }
        if !(1..=86_400).contains(&open_timeout) {
            let problem = format!("must be from 1 to 86400 seconds, is {open_timeout}");
            return error("open_timeout", problem);
        }
        if max_listed == 0 {
            return error("max_listed", "must be at least 1, is 0".into());
        }
        self.check_allowed().or_else(|problem| error("allow_urls", problem))?;
        Ok(())
    }

    /// Returns the largest number of samples to prefetch if the largest sample has `largest_bytes`
    /// bytes. It is twice the number of concurrent requests, so a late sample does not block later
    /// ones. `read_ahead` limits it.
    pub fn samples_ahead(&self, largest_bytes: u64) -> usize {
        let room = self.read_ahead / largest_bytes.max(1);
        (2 * self.connections as u64).min(room).max(1) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_values_are_named() {
        StorageSettings::default().check().unwrap();
        let default = StorageSettings::default;
        // Each entry has invalid settings, the invalid key, and the numbers in the error message
        // (value and bounds) in ascending order.
        for (settings, key, numbers) in [
            (
                StorageSettings { connections: 0, ..default() },
                "storage.connections",
                &[0, 1, 4096][..],
            ),
            (StorageSettings { retries: 101, ..default() }, "storage.retries", &[100, 101]),
            (StorageSettings { timeout: 0, ..default() }, "storage.timeout", &[0, 1, 3600]),
            (
                StorageSettings { open_timeout: 0, ..default() },
                "storage.open_timeout",
                &[0, 1, 86_400],
            ),
            (StorageSettings { max_listed: 0, ..default() }, "storage.max_listed", &[0, 1]),
        ] {
            let error = settings.check().unwrap_err();
            let crate::Error::Config(error) = error else { panic!("{error}") };
            let digits = error.problem.split(|it: char| !it.is_ascii_digit());
            let mut found: Vec<u32> = digits.filter_map(|it| it.parse().ok()).collect();
            found.sort_unstable();
            assert_eq!((error.key.as_str(), &found[..]), (key, numbers), "{error}");
        }
    }

    #[test]
    fn samples_ahead_are_twice_the_connections_within_the_memory() {
        let settings = StorageSettings { connections: 8, read_ahead: 100, ..Default::default() };
        let ahead = [0, 1, 6, 7, 10, 99, 100, 101].map(|bytes| settings.samples_ahead(bytes));
        assert_eq!(ahead, [16, 16, 16, 14, 10, 1, 1, 1]);
    }
}
