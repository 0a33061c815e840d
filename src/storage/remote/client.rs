//! Connections to servers and buckets, and requests for their objects.

use std::collections::HashMap;
use std::env;
use std::fs;
use std::io::{Error, ErrorKind, Result};
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::http::HttpBuilder;
use object_store::list::PaginatedListStore;
use object_store::path::Path as Key;
use object_store::{ClientConfigKey, GetOptions, GetRange, ObjectMeta, ObjectStore, RetryConfig};
use reqwest::{Certificate, header::HeaderValue};
use sha2::{Digest, Sha256};
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;

use super::attempt::{self, AttemptError, judge};
use super::http::{Asked, Connector};
use super::retry::{self, Attempt, Call, in_time};
use super::url::{Location, Service, User};
use crate::error::Redacted;
use crate::storage::cache::Cache;
use crate::storage::stats::{Activity, Counters};
use crate::storage::{Stamp, StorageSettings};
use crate::threads;

/// Assumed transfer rate. The time limit for a body grows by one second per this many bytes.
const BYTES_PER_SECOND: u64 = 64 << 10;
/// Largest memory in bytes that is allocated for a body before it arrives.
const FIRST_CAPACITY: u64 = 16 << 20;
/// Idle time after which a thread for blocking calls ends. In practice it never ends.
const ALWAYS: Duration = Duration::from_secs(u32::MAX as u64);

/// Client that sends the requests of a [`Storage`](crate::storage::Storage) handle.
pub struct Client {
    pub settings: StorageSettings,
    pub cache: Option<Cache>,
    pub(super) activity: Arc<Activity>,
    pub(super) permits: Semaphore,
    stores: Mutex<HashMap<(String, Option<User>), Store>>,
}

/// A server or a bucket.
#[derive(Clone)]
struct Store {
    objects: Arc<dyn ObjectStore>,
    lister: Option<Arc<dyn PaginatedListStore>>,
}

/// An object on a server or in a bucket.
#[derive(Clone)]
pub struct Object {
    store: Arc<dyn ObjectStore>,
    /// Interface for listing the bucket. `None` if the server has no listings.
    pub lister: Option<Arc<dyn PaginatedListStore>>,
    pub key: Key,
}

/// Version of an object as reported by the server: its length, a hash that changes with its bytes,
/// and the tag that requests refer to.
#[derive(Clone, Debug)]
pub struct Version {
    pub stamp: Stamp,
    /// Tag of the object. `None` if there is no tag, or if it is a weak tag (`W/"…"`), because a
    /// conditional request cannot use a weak tag.
    pub tag: Option<String>,
}

impl Version {
    fn of(meta: &ObjectMeta) -> Self {
        let tag = meta.e_tag.clone().filter(|tag| !tag.starts_with("W/"));
        Self { stamp: stamp(meta), tag }
    }
}

/// Returns the length, and a hash of the tag. Without a tag, the hash is that of the modification
/// time. Without both, it is 0. Listings and answers give the same result: quotes around the tag
/// and fractions of seconds, in which they may differ, are ignored.
pub fn stamp(meta: &ObjectMeta) -> Stamp {
    let text = match &meta.e_tag {
        Some(tag) => tag.trim_start_matches("W/").trim_matches('"').to_string(),
        None => match meta.last_modified.timestamp() {
            0 => return Stamp { len: meta.size, version: [0; 2] },
            seconds => seconds.to_string(),
        },
    };
    let hash: [u8; 32] = Sha256::digest(text).into();
    let word = |at: usize| u64::from_le_bytes(*hash[at..].first_chunk().expect("8 of 32 bytes"));
    Stamp { len: meta.size, version: [word(0), word(8)] }
}

/// Request for the bytes of an object.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Range of bytes, which the object must contain. `None` for all bytes.
    pub range: Option<Range<u64>>,
    /// Length and version that the object must have.
    pub stamp: Option<Stamp>,
    /// Tag that the object must have.
    pub tag: Option<String>,
    /// Largest permitted size of the object in bytes, for a request without a range.
    pub most: u64,
}

/// Threads that communicate with servers. All handles of the process share them, because threads of
/// a single handle would mostly sleep.
pub fn runtime() -> Result<&'static Runtime> {
    static RUNTIME: OnceLock<(u32, std::result::Result<Runtime, String>)> = OnceLock::new();
    let (process, made) = RUNTIME.get_or_init(|| {
        let wanted = std::thread::available_parallelism().map_or(1, usize::from).min(4);
        (std::process::id(), start(wanted))
    });
    if *process != std::process::id() {
        return Err(Error::other(format!(
            "the threads for requests to servers belong to process {process} and do not exist in \
             a forked process; start a new program (exec) instead, or fork before the first URL \
             is opened"
        )));
    }
    made.as_ref().map_err(|problem| Error::other(format!("cannot start threads: {problem}")))
}

/// Starts at most `wanted` threads that drive requests, and one thread for blocking calls.
///
/// The library panics if it cannot start any thread. If it can start only some, work that needs
/// another thread never runs. A blocking call such as a name look-up would hang. Therefore one
/// thread is reserved for blocking calls.
fn start(wanted: usize) -> std::result::Result<Runtime, String> {
    let workers = threads::startable(wanted + 1).saturating_sub(1);
    if workers == 0 {
        return Err(
            "the system starts no more; allow more (ulimit -u, pids.max of the container)".into()
        );
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers)
        .max_blocking_threads(16)
        .thread_keep_alive(ALWAYS)
        .thread_name("feedwater-net")
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    drop(runtime.spawn_blocking(|| ()));
    Ok(runtime)
}

impl Client {
    /// Creates a client with these settings. Fetched data are cached below `cache_directory`,
    /// unless the settings name another folder.
    pub fn new(
        settings: &StorageSettings,
        cache_directory: Option<&Path>,
        activity: Arc<Activity>,
    ) -> Self {
        let cache = Cache::open(settings, cache_directory, activity.clone());
        let permits = Semaphore::new(settings.connections);
        Self { settings: settings.clone(), cache, activity, permits, stores: Mutex::default() }
    }

    /// Returns the object of a URL on its server or in its bucket. Does not connect.
    pub fn object(&self, location: &Location) -> Result<Object> {
        let mut stores = self.stores.lock().unwrap_or_else(PoisonError::into_inner);
        let place = (location.root.clone(), location.user.clone());
        let store = match stores.get(&place) {
            Some(store) => store.clone(),
            None => {
                let connector = self.connector(location)?;
                let store = self.store(location, connector).map_err(|error| {
                    let problem = Redacted::new(format!("{}: {error}", location.root));
                    Error::new(ErrorKind::InvalidInput, problem.into_string())
                })?;
                stores.insert(place, store.clone());
                store
            }
        };
        let Store { objects, lister } = store;
        Ok(Object { store: objects, lister, key: location.key.clone() })
    }

    fn connector(&self, location: &Location) -> Result<Connector> {
        let invalid = |problem: String| Error::new(ErrorKind::InvalidInput, problem);
        let trusted = match &self.settings.ca_file {
            None => Vec::new(),
            Some(path) => {
                let wrong = |problem: &dyn std::fmt::Display| {
                    invalid(format!("storage.ca_file: {}: {problem}", path.display()))
                };
                let bytes = fs::read(path).map_err(|error| wrong(&error))?;
                let found = Certificate::from_pem_bundle(&bytes).map_err(|error| wrong(&error))?;
                if found.is_empty() {
                    return Err(wrong(&"has no certificate; it must be PEM (BEGIN CERTIFICATE)"));
                }
                found
            }
        };
        let authorization = location.user.as_ref().map(|user| {
            let mut value = HeaderValue::from_maybe_shared(user.header()).map_err(|_| {
                invalid("the user name or password has characters that cannot be sent".into())
            })?;
            value.set_sensitive(true);
            Ok::<_, Error>(value)
        });
        let bucket = location.service != Service::Http;
        Ok(Connector {
            redirects: self.settings.redirects,
            bucket,
            authorization: authorization.transpose()?,
            connect_timeout: Duration::from_secs(self.settings.timeout),
            trusted,
        })
    }

    /// Creates the store for a server or bucket. The library's retries and time limits are
    /// disabled, because only this module knows the purpose of each request and counts requests.
    fn store(&self, location: &Location, connector: Connector) -> object_store::Result<Store> {
        /// Uses one store for both traits.
        fn both(store: impl ObjectStore + PaginatedListStore) -> Store {
            let store = Arc::new(store);
            Store { objects: store.clone(), lister: Some(store) }
        }
        let once = RetryConfig { max_retries: 0, ..RetryConfig::default() };
        let options = |endpoints: &[&str]| {
            let plain = endpoints.iter().filter_map(env::var_os).any(|url| {
                // If the endpoint begins with http://, the user permits unencrypted requests.
                url.as_encoded_bytes().starts_with(b"http://")
            });
            let options = [
                (ClientConfigKey::Timeout, "1day".to_string()),
                (ClientConfigKey::ConnectTimeout, format!("{}s", self.settings.timeout)),
            ];
            options.into_iter().chain(plain.then(|| (ClientConfigKey::AllowHttp, "true".into())))
        };
        let root = location.root.clone();
        Ok(match location.service {
            Service::S3 => {
                let mut builder = AmazonS3Builder::from_env().with_url(root).with_retry(once);
                for (key, value) in
                    options(&["AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"])
                {
                    builder = builder.with_config(AmazonS3ConfigKey::Client(key), value);
                }
                both(builder.with_http_connector(connector).build()?)
            }
            Service::Google => {
                let builder = GoogleCloudStorageBuilder::from_env();
                let mut builder = builder.with_url(root).with_retry(once);
                for (key, value) in options(&["GOOGLE_BASE_URL"]) {
                    builder = builder.with_config(GoogleConfigKey::Client(key), value);
                }
                both(builder.with_http_connector(connector).build()?)
            }
            Service::Azure => {
                let mut builder = MicrosoftAzureBuilder::from_env().with_url(root).with_retry(once);
                for (key, value) in options(&["AZURE_ENDPOINT", "AZURE_STORAGE_ENDPOINT"]) {
                    builder = builder.with_config(AzureConfigKey::Client(key), value);
                }
                both(builder.with_http_connector(connector).build()?)
            }
            Service::Http => {
                let mut builder = HttpBuilder::new().with_url(root).with_retry(once);
                for (key, value) in options(&[]) {
                    builder = builder.with_config(key, value);
                }
                let builder = builder.with_config(ClientConfigKey::AllowHttp, "true");
                let objects = Arc::new(builder.with_http_connector(connector).build()?);
                Store { objects, lister: None }
            }
        })
    }

    /// Sends a request until it succeeds or is refused, or until the limit of attempts or time in
    /// the settings is reached.
    pub async fn with_retries<T, F>(&self, call: &Call, attempt: impl FnMut() -> F) -> Result<T>
    where
        F: Future<Output = Attempt<T>>,
    {
        let Self { settings, permits, activity, .. } = self;
        retry::with_retries(settings, permits, activity, call, attempt).await
    }

    /// Requests the length and version of an object.
    pub async fn head(&self, object: &Object, call: &Call) -> Result<Version> {
        let limit = self.limit(0);
        self.with_retries(call, || async move {
            let options = asking(GetOptions { head: true, ..Default::default() });
            let answer = in_time(limit, object.store.get_opts(&object.key, options)).await?;
            Ok(Version::of(&answer.map_err(|error| judge(&error))?.meta))
        })
        .await
    }

    /// Returns the requested bytes. Reads them from the disk cache if it contains them.
    pub async fn get(
        self: Arc<Self>,
        object: Object,
        url: Arc<str>,
        request: Request,
        call: Call,
    ) -> Result<Bytes> {
        let place = match (&self.cache, &request) {
            // Only objects with a tag or a time are cached, because changes of other objects would
            // not be detected.
            (Some(cache), Request { range, stamp: Some(stamp), .. }) if stamp.version != [0; 2] => {
                Some(cache.place(&url, *stamp, range.clone()))
            }
            _ => None,
        };
        if let Some(place) = place.clone() {
            let client = self.clone();
            let cached = tokio::task::spawn_blocking(move || client.cache.as_ref()?.get(&place));
            if let Some(bytes) = cached.await.ok().flatten() {
                return Ok(bytes);
            }
        }
        let bytes = self.with_retries(&call, || self.body(&object, &request)).await?;
        if let Some(place) = place {
            let (client, kept) = (self.clone(), bytes.clone());
            let keep = move || client.cache.as_ref().map(|cache| cache.put(&place, &kept));
            // If storing fails, the data will be fetched again. The cache reports the problem.
            let _ = tokio::task::spawn_blocking(keep).await;
        }
        Ok(bytes)
    }

    /// Time limit for an attempt that transfers `bytes` bytes.
    pub(super) fn limit(&self, bytes: u64) -> Duration {
        Duration::from_secs(self.settings.timeout.saturating_add(bytes / BYTES_PER_SECOND))
    }

    /// Requests the body of an object once. Returns an error if the body does not have the
    /// requested length and version.
    async fn body(&self, object: &Object, request: &Request) -> Attempt<Bytes> {
        let Request { range, stamp: wanted, tag, most } = request;
        let options = asking(GetOptions {
            range: range.clone().map(GetRange::Bounded),
            if_match: tag.clone(),
            ..Default::default()
        });
        let answer = in_time(self.limit(0), object.store.get_opts(&object.key, options)).await?;
        let answer = answer.map_err(|error| judge(&error))?;
        if wanted.is_some_and(|wanted| wanted != stamp(&answer.meta)) {
            return Err(AttemptError::never(ErrorKind::Other, attempt::CHANGED));
        }
        let len = answer.range.end - answer.range.start;
        if range.is_none() && len > *most {
            return Err(AttemptError::never(ErrorKind::FileTooLarge, len.to_string()));
        }
        let expected = range.as_ref().map_or(len, |range| range.end - range.start);
        let body = collect(answer.into_stream(), expected);
        let bytes = in_time(self.limit(expected), body).await??;
        Counters::add(&self.activity.counters.bytes, expected);
        Ok(bytes)
    }
}

/// Collects a body of exactly `expected` bytes.
async fn collect(
    mut parts: impl Stream<Item = object_store::Result<Bytes>> + Unpin,
    expected: u64,
) -> Attempt<Bytes> {
    // Chunks are copied, because each is a slice of a connection's buffer and would keep the whole
    // buffer allocated.
    let no_memory = |_| AttemptError::Never(ErrorKind::OutOfMemory.into());
    let mut whole: Vec<u8> = Vec::new();
    whole.try_reserve_exact(expected.min(FIRST_CAPACITY) as usize).map_err(no_memory)?;
    while let Some(part) = parts.next().await {
        let part = part.map_err(|error| judge(&error))?;
        if whole.len() as u64 + part.len() as u64 > expected {
            let problem = format!("the server sent more than the {expected} requested bytes");
            return Err(AttemptError::again(problem));
        }
        whole.try_reserve(part.len()).map_err(no_memory)?;
        whole.extend_from_slice(&part);
    }
    if (whole.len() as u64) < expected {
        return Err(AttemptError::again(format!("{} of {expected} bytes came", whole.len())));
    }
    Ok(whole.into())
}

/// Marks a request as one for an object, so the HTTP connector checks the answer.
fn asking(mut options: GetOptions) -> GetOptions {
    options.extensions.insert(Asked::Object);
    options
}
