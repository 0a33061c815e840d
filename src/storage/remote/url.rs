//! What a URL names: a server or bucket, and an object in it.

use std::io::{Error, ErrorKind, Result};

use object_store::path::Path as Key;

/// The service that answers for a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Service {
    /// `s3://bucket/key`, `s3a://bucket/key`.
    S3,
    /// `gs://bucket/key`.
    Google,
    /// `az://container/key`, `abfs://…`, `abfss://container@account.dfs.core.windows.net/key`.
    Azure,
    /// `http://host/path`, `https://host/path`.
    Http,
}

/// A URL, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    pub service: Service,
    /// The URL up to the bucket or the host, without a slash behind it.
    pub root: String,
    /// The object, or the folder, in it.
    pub key: Key,
}

impl Location {
    /// Takes a URL apart. Keys of buckets are taken as they are written; in a path of `http` and `https` `%20` stands for
    /// a blank, as it does in every such URL.
    pub fn parse(url: &str) -> Result<Self> {
        let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
        let service = match scheme {
            "s3" | "s3a" => Service::S3,
            "gs" => Service::Google,
            "az" | "abfs" | "abfss" => Service::Azure,
            "http" | "https" => Service::Http,
            _ => {
                return Err(wrong(format!(
                    "{scheme}:// is not read; write s3://, gs://, az://, abfss://, http:// or https://, or a path"
                )));
            }
        };
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        if host.is_empty() {
            return Err(wrong(format!("{url} names no bucket or host after {scheme}://")));
        }
        if service == Service::Http && path.contains(['?', '#']) {
            return Err(wrong("a URL with ? or # cannot be read; give one without a query".into()));
        }
        let key = match service {
            Service::Http => Key::from_url_path(path),
            _ => Key::parse(path),
        };
        let key = key.map_err(|error| wrong(error.to_string()))?;
        Ok(Self { service, root: format!("{scheme}://{host}"), key })
    }
}

fn wrong(problem: String) -> Error {
    Error::new(ErrorKind::InvalidInput, problem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart() {
        let cases = [
            ("s3://bucket/a/b c%20.jpg", Service::S3, "s3://bucket", "a/b c%20.jpg"),
            ("s3://bucket", Service::S3, "s3://bucket", ""),
            ("gs://bucket/a/", Service::Google, "gs://bucket", "a"),
            ("az://container/x", Service::Azure, "az://container", "x"),
            ("http://[::1]:80/a/b%20c", Service::Http, "http://[::1]:80", "a/b c"),
        ];
        for (url, service, root, key) in cases {
            let Location { service: found, root: at, key: name } = Location::parse(url).unwrap();
            assert_eq!((found, at.as_str(), name.as_ref()), (service, root, key), "{url}");
        }
        for (url, word) in [
            ("ftp://host/a", "ftp:// is not read"),
            ("s3:///a", "names no bucket"),
            ("https://host/a?sig=1", "without a query"),
            ("s3://bucket/a//b", "empty"),
        ] {
            let text = Location::parse(url).unwrap_err().to_string();
            assert!(text.contains(word), "{url}: {text}");
        }
    }
}
