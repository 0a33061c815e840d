//! How files are read.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// `[storage]`: how files behind URLs are read, and how much of them is kept. For files on local disks only `map` says
/// something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StorageSettings {
    /// Requests in flight, at least 1. Default 64.
    pub connections: usize,
    /// How often a request that failed is sent again. Default 8: with the pauses between them about 25 seconds.
    pub retries: u32,
    /// Seconds for an answer, at least 1; a body has a second more for each 64 KiB. Default 10.
    pub timeout: u64,
    /// Seconds for one request with all its repetitions while a source is opened, at least 1: a server that answers nothing ends
    /// the opening after about this time. Default 60.
    pub open_timeout: u64,
    /// Where answers to requests by `http://` and `https://` may lead to. Default `same-host`. Requests to buckets are
    /// signed, and are not sent elsewhere, whatever is set here.
    pub redirects: Redirects,
    /// A file of certificates (PEM) that are trusted besides the system's: for a server of one's own. Relative to the pipeline file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
    /// Most names in a listing, at least 1. Default 50,000,000.
    pub max_listed: u64,
    /// Most host memory for samples that were fetched ahead, in bytes; fewer are fetched ahead where the largest sample
    /// would exceed it, and where fewer are as good by what is measured (`loader.tune`). Default 256 MiB.
    #[serde(deserialize_with = "crate::footprint::byte_size")]
    pub read_ahead: u64,
    /// Most bytes on disk for what was fetched; 0, the default, keeps nothing.
    #[serde(deserialize_with = "crate::footprint::byte_size")]
    pub cache: u64,
    /// The folder for it, which several processes may share; left out, `objects` in the cache's directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_directory: Option<PathBuf>,
    /// Whether files of the formats `lmdb`, `beton` and `npy` on local disks are mapped, which is faster where they are in memory.
    /// Pages of them that were read then count as resident memory of the process, although the system may take them back
    /// at any time; `false` is for machines where jobs are ended by that figure. Default true.
    pub map: bool,
}

/// Where an answer by HTTP may lead to instead of having the bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Redirects {
    /// Nowhere: a redirect is an error.
    None,
    /// The same host and port, or the same host by https on the usual ports.
    #[default]
    SameHost,
    /// Any host, without user and password; never from https to http, and never from another host to an address of this
    /// machine or its network link.
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
        }
    }
}

impl StorageSettings {
    /// Whether the values can be.
    ///
    /// # Errors
    ///
    /// The key and what is wrong with its value.
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
        Ok(())
    }

    /// The most samples that are fetched ahead where the largest has so many bytes: twice as many as there are requests in flight,
    /// so that one that is late does not hold up those behind it, and within `read_ahead`.
    pub fn samples_ahead(&self, largest_bytes: u64) -> usize {
        let room = self.read_ahead / largest_bytes.max(1);
        (2 * self.connections as u64).min(room).max(1) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_values_are_named() {
        StorageSettings::default().check().unwrap();
        let default = StorageSettings::default;
        for (settings, text) in [
            (
                StorageSettings { connections: 0, ..default() },
                "storage.connections: must be from 1 to 4096, is 0",
            ),
            (
                StorageSettings { retries: 101, ..default() },
                "storage.retries: must be at most 100, is 101",
            ),
            (
                StorageSettings { timeout: 0, ..default() },
                "storage.timeout: must be from 1 to 3600 seconds, is 0",
            ),
            (
                StorageSettings { open_timeout: 0, ..default() },
                "storage.open_timeout: must be from 1 to 86400 seconds, is 0",
            ),
            (
                StorageSettings { max_listed: 0, ..default() },
                "storage.max_listed: must be at least 1, is 0",
            ),
        ] {
            assert_eq!(settings.check().unwrap_err().to_string(), text);
        }
    }

    #[test]
    fn samples_ahead_are_twice_the_connections_within_the_memory() {
        let settings = StorageSettings { connections: 8, read_ahead: 100, ..Default::default() };
        let ahead = [0, 1, 6, 7, 10, 99, 100, 101].map(|bytes| settings.samples_ahead(bytes));
        assert_eq!(ahead, [16, 16, 16, 14, 10, 1, 1, 1]);
    }
}
