//! Redacts secrets in URLs, in everything that is printed, stored or logged.

use std::fmt;
use std::path::Path;

/// Text or path in which the secrets of URLs are replaced by `***`.
///
/// The user and password before the host are redacted (`http://***@host/a`). So is the value of
/// every query parameter that authorizes a request (`sig`, `X-Amz-Signature`, tokens, keys,
/// passwords). The container of `abfss://container@account…` is not a secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Redacted(String);

impl Redacted {
    /// Redacts a text.
    pub fn new(text: impl Into<String>) -> Self {
        let text = text.into();
        Self(if text.contains("://") { redact(&text) } else { text })
    }

    /// Redacts a path.
    pub fn path(path: &Path) -> Self {
        Self::new(path.to_string_lossy())
    }

    /// Returns the redacted text.
    pub fn into_string(self) -> String {
        self.0
    }
}

impl fmt::Display for Redacted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Redacted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

const MARK: &str = "***";

fn redact(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        let is_scheme = |it: char| it.is_ascii_alphanumeric() || "+-.".contains(it);
        let scheme = before[..at].rsplit(|it| !is_scheme(it)).next().unwrap_or_default();
        let ends = |it: char| it.is_whitespace() || "\"'`<>".contains(it);
        let (url, next) = after.split_at(after.find(ends).unwrap_or(after.len()));
        out.push_str(before);
        redact_one(scheme, url, &mut out);
        rest = next;
    }
    out.push_str(rest);
    out
}

/// Redacts the secrets in the part of a URL after `scheme://`.
fn redact_one(scheme: &str, url: &str, out: &mut String) {
    let host_end = url.find(['/', '?', '#']).unwrap_or(url.len());
    let authority = &url[..host_end];
    let user_end = match authority.rfind('@') {
        Some(_) if scheme.starts_with("abfs") && !authority.contains(':') => None,
        Some(at) => Some(at),
        // The text after the colon is not a port, so it is a password. The password contains a / or
        // ? that should have been written as %2F or %3F.
        None if authority.ends_with(']') => None,
        None => match authority.rsplit_once(':') {
            Some((host, port))
                if !host.ends_with(']') && !port.bytes().all(|it| it.is_ascii_digit()) =>
            {
                url.rfind('@')
            }
            _ => None,
        },
    };
    let rest = match user_end {
        Some(at) => {
            out.push_str(MARK);
            &url[at..]
        }
        None => url,
    };
    // The text may be a comma-separated list of URLs without spaces. The next URL is redacted by a
    // call of its own.
    if let Some(at) = rest.find("://") {
        let scheme_at =
            rest[..at].rfind(|it: char| !it.is_ascii_alphanumeric()).map_or(0, |at| at + 1);
        redact_query(&rest[..scheme_at], out);
        out.push_str(&rest[scheme_at..at + 3]);
        return redact_one(&rest[scheme_at..at], &rest[at + 3..], out);
    }
    redact_query(rest, out);
}

fn redact_query(url: &str, out: &mut String) {
    let Some((before, query)) = url.split_once('?') else {
        out.push_str(url);
        return;
    };
    out.push_str(before);
    let mut separator = '?';
    for parameter in query.split('&') {
        out.push(separator);
        separator = '&';
        match parameter.split_once('=') {
            Some((name, _)) if permits(name) => {
                out.push_str(name);
                out.push('=');
                out.push_str(MARK);
            }
            _ => out.push_str(parameter),
        }
    }
}

/// Whether the query parameter `name` authorizes a request or identifies a user.
pub(crate) fn permits(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["sig", "token", "credential", "secret", "passw", "auth", "key"]
        .iter()
        .any(|part| name.contains(part))
}

#[cfg(test)]
mod tests {
    use super::Redacted;

    #[test]
    fn only_the_secrets_of_urls_are_redacted() {
        for (text, expected) in [
            ("http://user:secret@host/a", "http://***@host/a"),
            ("https://secret@host", "https://***@host"),
            ("http://user:sec@ret@host:80/a@b", "http://***@host:80/a@b"),
            ("http://user:sec/ret@host/a", "http://***@host/a"),
            ("http://user:sec?ret@host/a", "http://***@host/a"),
            (
                "read http://u:secret@h/a, http://u:secret@h/b: \"s3://k:secret@b/c\"",
                "read http://***@h/a, http://***@h/b: \"s3://***@b/c\"",
            ),
            ("http://u:secret@h/a,http://u:secret@h/b", "http://***@h/a,http://***@h/b"),
            (
                "https://h/a?X-Amz-Signature=secret&X-Amz-Date=1&sig=secret",
                "https://h/a?X-Amz-Signature=***&X-Amz-Date=1&sig=***",
            ),
            ("az://c/a?sv=2024&SIG=secret&st=1#x", "az://c/a?sv=2024&SIG=***&st=1#x"),
            ("https://h/a?access_token=secret", "https://h/a?access_token=***"),
        ] {
            let shown = Redacted::new(text);
            assert_eq!(shown.to_string(), expected);
            assert!(!format!("{shown:?}").contains("secret"), "{shown:?}");
        }
        for text in [
            "",
            "no URL@here: a/b?sig=1",
            "http://host:80/a@b",
            "http://[::1]:80/a@b",
            "http://[::1]/a@b",
            "abfss://container@account.dfs.core.windows.net/a",
            "s3://bucket/a ?#%41.jpg: 404",
            "s3://bucket/a?width=3",
        ] {
            assert_eq!(Redacted::new(text).to_string(), text);
        }
    }
}
