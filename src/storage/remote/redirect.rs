//! Checks the targets of redirects.

use std::net::IpAddr;

use reqwest::Url;

use crate::storage::Redirects;

/// Largest number of redirects per request.
pub const MOST: usize = 10;

/// Checks whether a request may follow a redirect from `from` to `to`. `first` is the URL of the
/// original request. The error message is the reason and a remedy.
pub fn check(allowed: Redirects, first: &Url, from: &Url, to: &Url) -> Result<(), String> {
    if !matches!(to.scheme(), "http" | "https") {
        return Err(format!("leads to a URL with {}://, which is not HTTP", to.scheme()));
    }
    if !to.username().is_empty() || to.password().is_some() {
        return Err("leads to a URL with a user; if this is intended, use that URL directly".into());
    }
    if from.scheme() == "https" && to.scheme() == "http" {
        return Err(
            "leads from https to http; if this is intended, use the http URL directly".into()
        );
    }
    match allowed {
        Redirects::None => Err("is not followed, since storage.redirects is \"none\"".into()),
        Redirects::SameHost if is_same(first, to) => Ok(()),
        Redirects::SameHost => Err("leads to another host; name that URL, or set storage.redirects to \"any\"".into()),
        Redirects::Any if is_same(first, to) => Ok(()),
        Redirects::Any if is_named_within(to) => {
            Err("leads to an address of this machine or network link, which is never followed; name that URL itself".into())
        }
        Redirects::Any => Ok(()),
    }
}

/// Whether two URLs have the same host and port. An upgrade of the same host from http to https on
/// the default ports counts too.
pub fn is_same(first: &Url, to: &Url) -> bool {
    let ports = (first.port_or_known_default(), to.port_or_known_default());
    let upgrade =
        ports == (Some(80), Some(443)) && first.scheme() == "http" && to.scheme() == "https";
    first.host() == to.host() && (upgrade || ports.0 == ports.1)
}

/// Whether the host is `localhost`, or an address that only this machine or its network link has.
/// Other names are checked when they are resolved.
fn is_named_within(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let name = host.trim_end_matches('.');
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    name == "localhost" || name.ends_with(".localhost") || address.is_ok_and(is_within)
}

/// Whether an address only exists on this machine or its network link: loopback, link-local (where
/// clouds serve credentials) or unspecified.
pub fn is_within(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(it) => it.is_loopback() || it.is_link_local() || it.is_unspecified(),
        IpAddr::V6(it) => match it.to_ipv4_mapped() {
            Some(it) => is_within(it.into()),
            None => it.is_loopback() || it.is_unicast_link_local() || it.is_unspecified(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_leave_their_host_only_if_allowed_and_never_lead_to_this_machine() {
        use Redirects::{Any, None, SameHost};
        for (from, to, allowed) in [
            ("http://a/x", "http://a/y", [false, true, true]),
            ("http://a:81/x", "http://a:81/y", [false, true, true]),
            ("http://a/x", "https://a/x", [false, true, true]),
            ("http://127.0.0.1:81/x", "http://127.0.0.1:81/y", [false, true, true]),
            ("http://a:81/x", "https://a/x", [false, false, true]),
            ("http://a/x", "http://a:81/x", [false, false, true]),
            ("http://a/x", "http://b/x", [false, false, true]),
            ("https://a/x", "http://a/x", [false; 3]),
            ("http://a/x", "ftp://a/x", [false; 3]),
            ("http://a/x", "http://user:password@a/x", [false; 3]),
            ("http://127.0.0.1:81/x", "http://127.0.0.1:82/x", [false; 3]),
            ("http://a/x", "http://localhost/x", [false; 3]),
            ("http://a/x", "http://a.localhost./x", [false; 3]),
            ("http://a/x", "http://127.9.9.9/x", [false; 3]),
            ("http://a/x", "http://2130706433/x", [false; 3]),
            ("http://a/x", "http://0/x", [false; 3]),
            ("http://a/x", "http://169.254.169.254/latest/meta-data", [false; 3]),
            ("http://a/x", "http://[::1]/x", [false; 3]),
            ("http://a/x", "http://[::ffff:127.0.0.1]/x", [false; 3]),
            ("http://a/x", "http://[fe80::1]/x", [false; 3]),
        ] {
            let [from_url, to_url] = [from, to].map(|it| Url::parse(it).unwrap());
            let found =
                [None, SameHost, Any].map(|it| check(it, &from_url, &from_url, &to_url).is_ok());
            assert_eq!(found, allowed, "{from} -> {to}");
        }
    }
}
