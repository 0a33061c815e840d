//! Classifies failed requests: whether to retry them, and the message for the user.

use std::error::Error as StdError;
use std::io::{Error, ErrorKind};
use std::time::Duration;

use super::http::{Refusal, ResponseError};
use crate::error::Redacted;

/// Reason why an attempt failed.
#[derive(Debug)]
pub enum AttemptError {
    /// The request may be retried.
    Again {
        problem: String,
        /// Pause that the server requested.
        after: Option<Duration>,
        /// Whether the server answered.
        answered: bool,
    },
    /// The request must not be retried.
    Never(Error),
}

impl AttemptError {
    pub fn again(problem: impl Into<String>) -> Self {
        AttemptError::Again {
            problem: Redacted::new(problem).into_string(),
            after: None,
            answered: false,
        }
    }

    pub fn never(kind: ErrorKind, problem: impl Into<String>) -> Self {
        AttemptError::Never(Error::new(kind, Redacted::new(problem).into_string()))
    }
}

/// Classifies an error of the library `object_store`. A request is not retried if the server
/// refused it (4xx except 408 and 429), or returned something that is neither an object nor a
/// listing. All other failures may be transient.
pub fn judge(error: &object_store::Error) -> AttemptError {
    use object_store::Error as E;
    let mut source = Some(error as &(dyn StdError + 'static));
    while let Some(error) = source {
        if let Some(refusal) = error.downcast_ref::<Refusal>() {
            return refused(refusal);
        }
        source = error.source();
    }
    let text = whole_text(error);
    match error {
        E::InvalidPath { source } => bad_name(source),
        E::NotFound { .. } => status(None, 404, None, &text),
        E::PermissionDenied { .. } => status(Some(""), 403, None, &text),
        E::Unauthenticated { .. } => status(Some(""), 401, None, &text),
        E::Precondition { .. } => status(None, 412, None, &text),
        E::Generic { .. } | E::NotSupported { .. } => generic(text),
        _ => AttemptError::never(ErrorKind::Unsupported, shortened(text)),
    }
}

/// Message for an object that changed after it was opened.
pub const CHANGED: &str = "changed on the server since it was opened; open the source again";

/// Classifies an answer that feedwater's own client rejected.
fn refused(Refusal { url, what }: &Refusal) -> AttemptError {
    let place = url.as_ref().map(|url| format!("{url}: ")).unwrap_or_default();
    let bucket = url.is_some();
    match what {
        ResponseError::Connection(problem) => connection(&place, problem, bucket),
        ResponseError::Status { status: code, retry_after, text } => {
            status(bucket.then_some(place.as_str()), *code, *retry_after, text)
        }
        ResponseError::Redirect { to, problem, region } => {
            let way_out = match region {
                Some(region) => format!(
                    "; the bucket is in the region {region}, so set AWS_REGION to this region"
                ),
                None if bucket => "; set AWS_REGION to the bucket's region, or set the endpoint \
                     (AWS_ENDPOINT_URL, GOOGLE_BASE_URL, AZURE_STORAGE_ENDPOINT)"
                    .into(),
                None => String::new(),
            };
            AttemptError::never(
                ErrorKind::PermissionDenied,
                format!("{place}the server redirects to {to}, which {problem}{way_out}"),
            )
        }
        ResponseError::Page => AttemptError::never(
            ErrorKind::InvalidData,
            format!(
                "{place}the server answers with an HTML page, perhaps a login page, instead of the requested data; \
                 check the URL, the proxy and the credentials"
            ),
        ),
        ResponseError::NoListing(start) => AttemptError::never(
            ErrorKind::InvalidData,
            format!(
                "{place}the server's answer to a listing request is not a listing ({start:?}); check the endpoint"
            ),
        ),
        ResponseError::LongListing => AttemptError::never(
            ErrorKind::InvalidData,
            format!(
                "{place}a page of the listing has more than 64 MiB, which is the maximum; check \
                 the endpoint"
            ),
        ),
    }
}

/// Classifies a failure without an answer. Problems with certificates are named and not retried.
fn connection(place: &str, problem: &str, bucket: bool) -> AttemptError {
    let endpoint = if bucket {
        "check the endpoint (AWS_ENDPOINT_URL, GOOGLE_BASE_URL, AZURE_STORAGE_ENDPOINT)"
    } else {
        "check the URL"
    };
    let certificate = [
        (
            "UnknownIssuer",
            "is self-signed, or signed by an authority that this machine does not trust: set storage.ca_file or \
             SSL_CERT_FILE to a file with the certificate of the authority",
        ),
        ("Expired", "has expired: renew it, or correct this machine's clock"),
        ("NotValidYet", "is not valid yet: correct this machine's clock"),
        ("NotValidForName", "is for another host name: use a host name in the certificate"),
        ("not valid for", "is for another host name: use a host name in the certificate"),
        ("expired", "has expired: renew it, or correct this machine's clock"),
        ("", "is not accepted: repair the server's certificate"),
    ];
    if problem.contains("certificate") && !problem.contains("alert") {
        let (_, words) = certificate
            .iter()
            .find(|(part, _)| problem.contains(part))
            .expect("the last entry matches every text");
        let problem = format!("{place}the server's certificate {words} ({problem})");
        return AttemptError::never(ErrorKind::PermissionDenied, problem);
    }
    if problem.contains("InvalidContentType") || problem.contains("corrupt message") {
        let problem = format!(
            "{place}the server does not use TLS at this port: write http://, or another port \
             ({problem})"
        );
        return AttemptError::never(ErrorKind::InvalidData, problem);
    }
    let way_out = match problem {
        it if it.contains("Too many open files") => "raise ulimit -n, or lower storage.connections",
        it if it.contains("handshake eof") => "check that the server uses TLS at this port",
        it if it.contains("cannot connect") => endpoint,
        _ => return AttemptError::again(format!("{place}{problem}")),
    };
    AttemptError::again(format!("{place}{problem}; {way_out}"))
}

/// Classifies an answer with this status. `bucket` names the bucket of the request, if it has one.
fn status(bucket: Option<&str>, status: u16, after: Option<Duration>, text: &str) -> AttemptError {
    let place = bucket.unwrap_or_default();
    let said = match shortened(text.to_string()) {
        text if text.is_empty() => String::new(),
        text => format!(" ({text})"),
    };
    match status {
        404 => AttemptError::never(
            ErrorKind::NotFound,
            "the server has no such object (404); check the bucket and the key",
        ),
        401 | 403 => {
            let way_out = match bucket {
                Some(_) => {
                    "check the credentials (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, GOOGLE_APPLICATION_CREDENTIALS, \
                     AZURE_STORAGE_ACCOUNT_KEY) and that they may read this; for public data set AWS_SKIP_SIGNATURE, \
                     GOOGLE_SKIP_SIGNATURE or AZURE_SKIP_SIGNATURE to true"
                }
                None => "check the credentials, which must precede the host, as user:password@host",
            };
            let problem =
                format!("{place}the server refuses the request ({status}); {way_out}{said}");
            AttemptError::never(ErrorKind::PermissionDenied, problem)
        }
        412 => AttemptError::never(ErrorKind::Other, CHANGED),
        416 => AttemptError::never(ErrorKind::UnexpectedEof, "the object ends before (416)"),
        408 | 429 | 500.. => AttemptError::Again {
            problem: format!("{place}the server answers with the status {status}"),
            after,
            answered: true,
        },
        _ => AttemptError::never(
            ErrorKind::Other,
            format!("{place}the server answers with the status {status}{said}"),
        ),
    }
}

/// Creates the error for a name in a listing that `object_store` does not accept as a path.
fn bad_name(error: &object_store::path::Error) -> AttemptError {
    use object_store::path::Error as E;
    let (name, what) = match error {
        E::EmptySegment { path } => (path.as_str(), "has // in it"),
        E::BadSegment { path, .. } => {
            (path.as_str(), "has a control character, or a part . or .. between slashes")
        }
        other => return AttemptError::never(ErrorKind::InvalidData, shortened(other.to_string())),
    };
    let name = shortened(name.escape_debug().to_string());
    let problem = format!(
        "the listing contains the name \"{name}\", which {what}; rename that object, or use a \
         folder or a list file without it"
    );
    AttemptError::never(ErrorKind::InvalidData, problem)
}

/// Classifies errors that the library reports only as text.
fn generic(text: String) -> AttemptError {
    if text.contains("169.254.169.254") || text.contains("metadata.google.internal") {
        return status(Some(""), 401, None, "the environment contains none");
    }
    // The library returns these messages if the server answers 200 (the whole object) instead of
    // 206 (the range).
    if text.contains("non-partial response") || text.contains("Range request not supported") {
        let problem = "the server does not support range requests, which are needed for files with \
             many samples; use another server, or copy the files";
        return AttemptError::never(ErrorKind::Unsupported, problem);
    }
    if text.contains("Content-Length Header missing") {
        let problem = "the server does not state the length of the object (no Content-Length); use another server, or copy the file";
        return AttemptError::never(ErrorKind::Unsupported, problem);
    }
    if text.contains("Got invalid list response") {
        let problem = format!(
            "the server's listing cannot be read ({}); check the endpoint",
            shortened(text)
        );
        return AttemptError::never(ErrorKind::InvalidData, problem);
    }
    AttemptError::again(shortened(text))
}

/// Returns the message of the library with all its causes. `Connection refused` occurs only in the
/// last cause.
fn whole_text(error: &object_store::Error) -> String {
    let mut text = error.to_string();
    let mut source = StdError::source(error);
    while let Some(error) = source {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        source = error.source();
    }
    text
}

/// Shortens the text, because servers put whole pages into their errors.
fn shortened(text: String) -> String {
    const MOST: usize = 300;
    let line = text.replace(|it: char| it.is_control(), " ");
    match line.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}
