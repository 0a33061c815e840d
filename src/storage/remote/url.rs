//! Splits a URL into a server or bucket, and an object in it.

use std::fmt;
use std::io::{Error, ErrorKind, Result};

use bytes::Bytes;
use object_store::path::Path as Key;

use crate::error::{Redacted, permits};

/// Service that a URL belongs to.
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

/// User and password for HTTP, which are never printed.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct User {
    name: Vec<u8>,
    password: Vec<u8>,
}

/// Parsed URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    pub service: Service,
    /// URL up to the bucket or host, without user, password and trailing slash.
    pub root: String,
    /// User, if an HTTP URL contains one.
    pub user: Option<User>,
    /// Name of the object or folder in the bucket or on the server.
    pub key: Key,
}

impl Location {
    /// Parses a URL. Keys in buckets are used as written. In paths of `http` and `https`, `%20`
    /// stands for a blank, as usual in such URLs.
    pub fn parse(url: &str) -> Result<Self> {
        let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
        let service = match scheme {
            "s3" | "s3a" => Service::S3,
            "gs" => Service::Google,
            "az" | "abfs" | "abfss" => Service::Azure,
            "http" | "https" => Service::Http,
            _ => {
                return Err(wrong(format!(
                    "URLs with {scheme}:// are not supported; write s3://, gs://, az://, \
                     abfss://, http:// or https://, or a path"
                )));
            }
        };
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, host) = match host.rsplit_once('@') {
            Some((user, host)) if service == Service::Http => (Some(User::parse(user)?), host),
            Some(_) if !scheme.starts_with("abfs") || host.contains(':') => {
                return Err(wrong(format!(
                    "credentials in a URL with {scheme}:// are not supported; give them by {}",
                    service.credentials()
                )));
            }
            _ => (None, host),
        };
        if host.is_empty() {
            let shown = Redacted::new(url);
            return Err(wrong(format!("{shown} names no bucket or host after {scheme}://")));
        }
        if service == Service::Http {
            if path.contains(['?', '#']) || host.contains(['?', '#']) {
                let problem = "a URL with ? or # cannot be read; give one without a query, for a file behind a signed URL \
                               s3://, gs:// or az:// with credentials from the environment, or download it";
                return Err(wrong(problem.into()));
            }
            check_host(host)?;
        } else if let Some((_, query)) = path.split_once('?')
            && query.split('&').filter_map(|it| it.split_once('=')).any(|(name, _)| permits(name))
        {
            return Err(wrong(format!(
                "a signature or token in a URL with {scheme}:// is not supported; give it by {}",
                service.credentials()
            )));
        }
        let key = match service {
            Service::Http => Key::from_url_path(path),
            _ => Key::parse(path),
        };
        let key = key.map_err(|error| wrong(error.to_string()))?;
        Ok(Self { service, root: format!("{scheme}://{host}"), user, key })
    }

    /// URL without user and password. The disk cache uses it as the key of the object.
    pub fn url(&self) -> String {
        format!("{}/{}", self.root, self.key)
    }
}

impl Service {
    /// Environment variables, or the part of the URL, that contain credentials for reading.
    pub fn credentials(self) -> &'static str {
        match self {
            Self::S3 => "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
            Self::Google => "GOOGLE_APPLICATION_CREDENTIALS",
            Self::Azure => "AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_KEY",
            Self::Http => "the URL, as user:password@host",
        }
    }
}

impl User {
    /// Parses `user` or `user:password`. `%40` stands for `@`, and so on.
    fn parse(text: &str) -> Result<Self> {
        let (name, password) = text.split_once(':').unwrap_or((text, ""));
        if name == "***" {
            return Err(wrong(
                "*** only replaces the user and the password in messages; write the real user and \
                 password"
                    .into(),
            ));
        }
        let decoded = |text: &str| {
            decoded(text)
                .ok_or_else(|| wrong("% in a user or password must be written as %25".into()))
        };
        Ok(Self { name: decoded(name)?, password: decoded(password)? })
    }

    /// Value of the `Authorization` header (RFC 7617).
    pub fn header(&self) -> Bytes {
        let pair = [&self.name[..], b":", &self.password].concat();
        format!("Basic {}", base64(&pair)).into()
    }
}

impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Returns an error unless `host` is a host name with an optional port. If a password contains a
/// slash, the text before the slash could otherwise pass for a host.
fn check_host(host: &str) -> Result<()> {
    match host.rsplit_once(':') {
        Some((name, port))
            if !name.is_empty() && !host.ends_with(']') && port.parse::<u16>().is_err() =>
        {
            Err(wrong(
                "the port is not a number from 0 to 65535; if this is part of a password, write / \
                 as %2F, ? as %3F and @ as %40 in it"
                    .into(),
            ))
        }
        _ => Ok(()),
    }
}

fn decoded(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte == b'%' {
            let digits = str::from_utf8(after.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &after[2..];
        } else {
            bytes.push(byte);
        }
    }
    Some(bytes)
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |at: usize| u32::from(group.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for at in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * at)) as usize & 63];
            text.push(if at <= group.len() { digit.into() } else { '=' });
        }
    }
    text
}

fn wrong(problem: String) -> Error {
    Error::new(ErrorKind::InvalidInput, problem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_parsed() {
        let cases = [
            ("s3://bucket/a/b c%20.jpg", Service::S3, "s3://bucket", "a/b c%20.jpg"),
            ("s3://bucket", Service::S3, "s3://bucket", ""),
            ("gs://bucket/a/", Service::Google, "gs://bucket", "a"),
            ("az://container/x", Service::Azure, "az://container", "x"),
            ("http://[::1]:80/a/b%20c", Service::Http, "http://[::1]:80", "a/b c"),
        ];
        for (url, service, root, key) in cases {
            let Location { service: found, root: at, key: name, user } =
                Location::parse(url).unwrap();
            assert_eq!(user, None, "{url}");
            assert_eq!((found, at.as_str(), name.as_ref()), (service, root, key), "{url}");
        }
        for (url, value) in [
            ("ftp://host/a", "ftp://"),
            ("s3:///a", "s3:///a"),
            ("https://host/a?sig=1", "?"),
            ("s3://bucket/a//b", "a//b"),
            ("s3://key:secret@bucket/a", "AWS_ACCESS_KEY_ID"),
            ("abfss://a:secret@account/b", "AZURE_STORAGE_ACCOUNT_KEY"),
            ("az://container/a?sv=1&sig=secret", "AZURE_STORAGE_SAS_KEY"),
            ("http://user:sec/ret@host/a", "%2F"),
            ("http://user:sec%ret@host/a", "%25"),
            ("http://***@host/a", "***"),
            ("http://user:secret@/a", "http://***@/a"),
        ] {
            let error = Location::parse(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{url}: {error}");
            let text = error.to_string();
            assert!(text.contains(value) && !text.contains("secret"), "{url}: {text}");
        }
    }

    #[test]
    fn user_and_password_are_removed_from_the_url_and_never_shown() {
        for (url, header) in [
            ("http://user:secret@host/a", "Basic dXNlcjpzZWNyZXQ="),
            ("http://user@host/a", "Basic dXNlcjo="),
            ("http://us%65r:p%40s:s@host/a", "Basic dXNlcjpwQHM6cw=="),
        ] {
            let location = Location::parse(url).unwrap();
            assert_eq!(
                (location.root.as_str(), location.url()),
                ("http://host", "http://host/a".into())
            );
            assert_eq!(location.user.as_ref().unwrap().header(), header);
            assert!(format!("{location:?}").contains("user: Some(***)"), "{location:?}");
        }
        let container =
            Location::parse("abfss://container@account.dfs.core.windows.net/a").unwrap();
        assert_eq!(container.user, None);
    }
}
