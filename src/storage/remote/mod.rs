//! Files at URLs, which are read through `object_store`.

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

/// Object on a server, in the version that was opened.
#[derive(Clone)]
pub struct File {
    client: Arc<Client>,
    object: Object,
    /// URL without user and password.
    url: Arc<str>,
    version: Version,
}

impl File {
    /// Requests the length and version of an object from its server.
    pub fn open(client: &Arc<Client>, path: &Path) -> Result<Self> {
        let (object, url) = resolve(client, path)?;
        let version = wait({
            let (client, object, call) = (client.clone(), object.clone(), Call::new(&url));
            async move { client.head(&object, &call).await }
        })?;
        Ok(Self { client: client.clone(), object, url, version })
    }

    /// Length and version of the object when it was opened. Every read returns bytes of this
    /// version, or fails.
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

    /// Starts to fetch bytes, which the object must contain.
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

/// Bytes that are being fetched. Dropping it cancels the request.
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
            // Sending only fails if the receiver was dropped.
            let _ = sender.send(result);
        });
        Ok(Self { task: task.abort_handle(), answer })
    }

    /// Blocks the thread until the bytes arrive.
    pub fn wait(self) -> Result<Bytes> {
        receive(&self.answer)
    }
}

impl Drop for Fetch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Starts to fetch a whole object with one request. If `stamp` is given, an object with another
/// version is an error. If the object has more than `most` bytes, the request fails before the body
/// arrives.
pub fn fetch(client: &Arc<Client>, path: &Path, stamp: Option<Stamp>, most: u64) -> Result<Fetch> {
    let (object, url) = resolve(client, path)?;
    Fetch::begin(client.clone(), object, url, Request { range: None, stamp, tag: None, most })
}

/// Requests the lengths of several objects concurrently.
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

/// Returns for each path whether any objects exist below it.
pub fn are_folders(client: &Arc<Client>, paths: &[&Path]) -> Vec<Result<bool>> {
    let asked: Vec<_> = paths
        .iter()
        .map(|path| {
            let (object, url) = resolve(client, path)?;
            let (client, call) = (client.clone(), Call::new(&url));
            spawn(async move {
                // Servers without listings have no folders: every object counts as a file.
                Ok(object.lister.is_some() && client.has_any(&object, &call).await?)
            })
        })
        .collect();
    asked.into_iter().map(|answer| receive(&answer?)).collect()
}

/// Returns the direct entries of a folder, in unspecified order.
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

/// Returns the relative name and the [`Stamp`] (length and version) of every object below a folder,
/// in unspecified order.
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

/// Runs a request on the runtime. `block_on` cannot be used instead: it must not be called on a
/// thread that drives futures, and a user's thread may do so.
fn spawn<T: Send + 'static>(
    work: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<mpsc::Receiver<Result<T>>> {
    let (sender, answer) = mpsc::sync_channel(1);
    runtime()?.spawn(async move {
        // Sending fails if the receiver was dropped.
        let _ = sender.send(work.await);
    });
    Ok(answer)
}
