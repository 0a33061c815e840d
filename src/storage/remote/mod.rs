//! Files behind URLs, by way of `object_store`.

use std::ffi::OsString;
use std::io::{Error, ErrorKind, Result};
use std::path::Path;
use std::sync::{Arc, mpsc};

use bytes::Bytes;
use tokio::task::AbortHandle;

use super::cancel::receive;
use super::{Entry, Stamp, arrival};

pub use client::Client;

use client::{Object, Request, Version, runtime};
use list::Listed;
use retry::Call;
use url::Location;

mod attempt;
mod client;
mod http;
mod list;
mod redirect;
mod retry;
mod retry_after;
mod url;

/// An object on a server, as it was when it was opened.
pub struct File {
    client: Arc<Client>,
    object: Object,
    /// Without user and password.
    url: Arc<str>,
    version: Version,
}

impl File {
    /// Asks the server for length and version.
    pub fn open(client: &Arc<Client>, path: &Path) -> Result<Self> {
        let (object, url) = resolve(client, path)?;
        let version = wait({
            let (client, object, call) = (client.clone(), object.clone(), Call::new(&url));
            async move { client.head(&object, &call).await }
        })?;
        Ok(Self { client: client.clone(), object, url, version })
    }

    /// That of the opening: every read is of this version or fails.
    pub fn stamp(&self) -> Stamp {
        self.version.stamp
    }

    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let len = self.version.stamp.len.saturating_sub(offset).min(buffer.len() as u64) as usize;
        if len > 0 {
            buffer[..len].copy_from_slice(&self.fetch(offset, len as u64)?.wait()?);
        }
        Ok(len)
    }

    /// Begins to fetch bytes, which the object must have.
    pub fn fetch(&self, offset: u64, len: u64) -> Result<Fetch> {
        let stamp = self.version.stamp;
        let end = offset.checked_add(len).filter(|&end| end <= stamp.len);
        let range = Some(offset..end.ok_or(ErrorKind::UnexpectedEof)?);
        let request =
            Request { range, stamp: Some(stamp), tag: self.version.tag.clone(), most: len };
        Fetch::begin(self.client.clone(), self.object.clone(), self.url.clone(), request)
    }
}

impl std::fmt::Debug for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("File").field("url", &self.url).field("version", &self.version).finish()
    }
}

/// Bytes that are being fetched. Dropping it gives the request up.
pub struct Fetch {
    task: AbortHandle,
    answer: mpsc::Receiver<Result<Bytes>>,
}

impl Fetch {
    fn begin(client: Arc<Client>, object: Object, url: Arc<str>, request: Request) -> Result<Self> {
        let (sender, answer) = mpsc::sync_channel(1);
        let (arrival, call) = (arrival::current(), Call::new(&url));
        let task = runtime()?.spawn(async move {
            let result = client.get(object, url, request, call).await;
            if let Some(arrival) = arrival {
                arrival.tell();
            }
            // The other side is gone where nobody wants it any more.
            let _ = sender.send(result);
        });
        Ok(Self { task: task.abort_handle(), answer })
    }

    /// The bytes. Blocks the thread.
    pub fn wait(self) -> Result<Bytes> {
        receive(&self.answer)
    }
}

impl Drop for Fetch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Begins to fetch a whole object, in one request; of this stamp, where it is known. One of more than `most` bytes is an
/// error before its body comes.
pub fn fetch(client: &Arc<Client>, path: &Path, stamp: Option<Stamp>, most: u64) -> Result<Fetch> {
    let (object, url) = resolve(client, path)?;
    Fetch::begin(client.clone(), object, url, Request { range: None, stamp, tag: None, most })
}

/// Asks for the lengths of many objects at once.
pub fn lens(client: &Arc<Client>, paths: &[&Path]) -> Vec<Result<u64>> {
    let asked: Vec<_> = paths
        .iter()
        .map(|path| {
            let (object, url) = resolve(client, path)?;
            let (client, call) = (client.clone(), Call::new(&url));
            spawn(async move { Ok(client.head(&object, &call).await?.stamp.len) })
        })
        .collect();
    asked.into_iter().map(|answer| receive(&answer?)).collect()
}

/// Whether there is anything below these names.
pub fn are_folders(client: &Arc<Client>, paths: &[&Path]) -> Vec<Result<bool>> {
    let asked: Vec<_> = paths
        .iter()
        .map(|path| {
            let (object, url) = resolve(client, path)?;
            let (client, call) = (client.clone(), Call::new(&url));
            spawn(async move {
                // What cannot be listed is taken for a file.
                Ok(object.lister.is_some() && client.has_any(&object, &call).await?)
            })
        })
        .collect();
    asked.into_iter().map(|answer| receive(&answer?)).collect()
}

/// What is directly in a folder, in no order.
pub fn list(client: &Arc<Client>, folder: &Path) -> Result<Vec<Entry>> {
    let (object, url) = resolve(client, folder)?;
    let (client, at, call) = (client.clone(), object.clone(), Call::new(&url));
    let Listed { objects, folders } = wait(async move { client.list(&at, false, &call).await })?;
    let names = |key: &object_store::path::Path| key.filename().map(OsString::from);
    let files = objects.iter().filter(|(key, _)| *key != object.key);
    let files = files.filter_map(|(key, _)| Some(Entry { name: names(key)?, folder: false }));
    let folders = folders.iter().filter_map(|key| Some(Entry { name: names(key)?, folder: true }));
    Ok(files.chain(folders).collect())
}

/// Everything below a folder: names from there on, and stamps, in no order.
pub fn list_all(client: &Arc<Client>, folder: &Path) -> Result<Vec<(String, Stamp)>> {
    let (object, url) = resolve(client, folder)?;
    let (client, at, call) = (client.clone(), object.clone(), Call::new(&url));
    let found = wait(async move { client.list(&at, true, &call).await })?.objects;
    let below = match object.key.as_ref() {
        "" => String::new(),
        key => format!("{key}/"),
    };
    let name = |key: object_store::path::Path| Some(key.as_ref().strip_prefix(&below)?.to_string());
    Ok(found.into_iter().filter_map(|(key, stamp)| Some((name(key)?, stamp))).collect())
}

fn resolve(client: &Client, path: &Path) -> Result<(Object, Arc<str>)> {
    let url =
        path.to_str().ok_or_else(|| Error::new(ErrorKind::InvalidInput, "a URL must be UTF-8"))?;
    let location = Location::parse(url)?;
    let object = client.object(&location)?;
    Ok((object, location.url().into()))
}

fn wait<T: Send + 'static>(work: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
    receive(&spawn(work)?)
}

/// Not `block_on`, which must not be called on a thread that itself drives futures, as a user's may.
fn spawn<T: Send + 'static>(
    work: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<mpsc::Receiver<Result<T>>> {
    let (sender, answer) = mpsc::sync_channel(1);
    runtime()?.spawn(async move {
        // Whoever asked may be gone.
        let _ = sender.send(work.await);
    });
    Ok(answer)
}
