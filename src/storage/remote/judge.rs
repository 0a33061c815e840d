//! What a failed request means: whether it is worth another try, and what is to be done about it.

use std::io::{Error, ErrorKind};

/// Why an attempt failed.
#[derive(Debug)]
pub enum Failure {
    /// It may work the next time.
    Again(String),
    /// It will fail in the same way.
    Never(Error),
}

impl Failure {
    pub fn never(kind: ErrorKind, problem: impl Into<String>) -> Self {
        Failure::Never(Error::new(kind, problem.into()))
    }
}

/// The meaning of what the library says. Requests are not sent again where the server has refused them (4xx, but 408 and
/// 429): everything else that can go wrong between here and a server may pass.
pub fn judge(error: &object_store::Error) -> Failure {
    let text = whole_text(error);
    use object_store::Error as E;
    match error {
        E::NotFound { .. } => Failure::never(
            ErrorKind::NotFound,
            "the server has no such object (404); check the bucket and the key",
        ),
        E::PermissionDenied { .. } => refused(403),
        E::Unauthenticated { .. } => refused(401),
        E::Precondition { .. } => Failure::never(ErrorKind::Other, CHANGED),
        E::Generic { .. } | E::NotSupported { .. } => generic(text),
        _ => Failure::never(ErrorKind::Unsupported, text),
    }
}

/// The words for an object that is not what it was.
pub const CHANGED: &str = "changed on the server since it was opened; open the source again";

fn refused(status: u16) -> Failure {
    let problem = format!(
        "the server refuses ({status}); check the credentials (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, \
         GOOGLE_APPLICATION_CREDENTIALS, AZURE_STORAGE_ACCOUNT_KEY) and that they may read this; for public data set \
         AWS_SKIP_SIGNATURE, GOOGLE_SKIP_SIGNATURE or AZURE_SKIP_SIGNATURE to true"
    );
    Failure::never(ErrorKind::PermissionDenied, problem)
}

/// The library keeps the status to itself, but for its text.
fn generic(text: String) -> Failure {
    if text.contains("169.254.169.254") || text.contains("metadata.google.internal") {
        return refused(401);
    }
    // What it says where 200 comes in the place of 206.
    if text.contains("non-partial response") || text.contains("Range request not supported") {
        let problem = "the server gives only whole files (it does not know range requests); record files need parts: \
             use another server, or copy the files";
        return Failure::never(ErrorKind::Unsupported, problem);
    }
    if text.contains("Received redirect without LOCATION") {
        let problem = "the bucket is in another region; name it in AWS_REGION";
        return Failure::never(ErrorKind::InvalidInput, problem);
    }
    match status(&text) {
        Some(408 | 429) | None => Failure::Again(shortened(text)),
        Some(416) => Failure::never(ErrorKind::UnexpectedEof, "the object ends before (416)"),
        Some(status) if status >= 500 => Failure::Again(format!("the server answers {status}")),
        Some(_) => Failure::never(ErrorKind::Other, shortened(text)),
    }
}

/// What the library says, and what it rests on: `Connection refused` is said by the last source alone.
fn whole_text(error: &object_store::Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        source = error.source();
    }
    text
}

fn status(text: &str) -> Option<u16> {
    let (_, rest) = text.split_once("non-2xx status code: ")?;
    rest.get(..3)?.parse().ok()
}

/// Servers put whole pages into their errors.
fn shortened(text: String) -> String {
    const MOST: usize = 300;
    let line = text.replace(['\n', '\r'], " ");
    match line.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}
