//! Requests: as many at once as the settings say, each sent again where that may help.

use std::collections::HashMap;
use std::env;
use std::hash::{BuildHasher, RandomState};
use std::io::{Error, ErrorKind, Result};
use std::ops::Range;
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt};
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::http::HttpBuilder;
use object_store::path::Path as Key;
use object_store::{
    ClientConfigKey, GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt, RetryConfig,
};
use sha2::{Digest, Sha256};
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;

use super::judge::{self, Failure, judge};
use super::url::{Location, Service};
use crate::storage::cache::Cache;
use crate::storage::stats::Counters;
use crate::storage::{Stamp, StorageSettings};

/// A body may take so many seconds longer than an answer as it has of these.
const BYTES_PER_SECOND: u64 = 64 << 10;
/// Pauses before a request is sent again: from this, doubling, to that, and less by chance.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));
/// A body of unknown use is not given more memory than this before it has come.
const FIRST_CAPACITY: u64 = 16 << 20;

/// What sends requests. One for all files that are opened with the same settings.
pub struct Client {
    pub settings: StorageSettings,
    pub cache: Option<Cache>,
    permits: Semaphore,
    stores: Mutex<HashMap<String, Arc<dyn ObjectStore>>>,
}

/// An object on a server.
#[derive(Clone)]
pub struct Object {
    pub store: Arc<dyn ObjectStore>,
    pub key: Key,
}

/// What a server says of an object: its stamp, and the tag by which requests name its version.
#[derive(Clone, Debug)]
pub struct Version {
    pub stamp: Stamp,
    /// None where there is none, or a weak one (`W/"…"`), which matches no condition.
    pub tag: Option<String>,
}

impl Version {
    fn of(meta: &ObjectMeta) -> Self {
        let tag = meta.e_tag.clone().filter(|tag| !tag.starts_with("W/"));
        Self { stamp: stamp(meta), tag }
    }
}

/// Length, and a hash of the tag, or of the time of change where there is no tag; 0 where there is neither. A listing
/// tells the same of an object as an answer does: but for quotes around the tag, and fractions of seconds.
fn stamp(meta: &ObjectMeta) -> Stamp {
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

/// What became of sending a request once.
type Attempt<T> = std::result::Result<T, Failure>;

/// What is asked of an object.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// These bytes of it, which it must have; left out, all.
    pub range: Option<Range<u64>>,
    /// Only of the object with this stamp.
    pub stamp: Option<Stamp>,
    /// Which has this tag.
    pub tag: Option<String>,
    /// All of it only where it has no more bytes.
    pub most: u64,
}

/// The threads that talk to servers.
pub fn runtime() -> Result<&'static Runtime> {
    static RUNTIME: OnceLock<std::result::Result<Runtime, String>> = OnceLock::new();
    let made = RUNTIME.get_or_init(|| {
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(4);
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(threads)
            .max_blocking_threads(16)
            .thread_name("feedwater-net")
            .enable_all()
            .build()
            .map_err(|error| error.to_string())
    });
    made.as_ref().map_err(|problem| Error::other(format!("cannot start threads: {problem}")))
}

static CURRENT: LazyLock<RwLock<Arc<Client>>> =
    LazyLock::new(|| RwLock::new(Arc::new(Client::new(StorageSettings::default()))));

impl Client {
    fn new(settings: StorageSettings) -> Self {
        let cache = Cache::open(&settings);
        let permits = Semaphore::new(settings.connections);
        Self { settings, cache, permits, stores: Mutex::default() }
    }

    /// The one for files that are opened from now on.
    pub fn current() -> Arc<Self> {
        CURRENT.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Files that are opened from now on are read with these settings.
    pub fn configure(settings: &StorageSettings) {
        let mut current = CURRENT.write().unwrap_or_else(PoisonError::into_inner);
        if current.settings != *settings {
            *current = Arc::new(Self::new(settings.clone()));
        }
    }

    /// The server or bucket of a URL, and the object in it; connects to nothing.
    pub fn object(&self, location: &Location) -> Result<Object> {
        let mut stores = self.stores.lock().unwrap_or_else(PoisonError::into_inner);
        let store = match stores.get(&location.root) {
            Some(store) => store.clone(),
            None => {
                let store = self.store(location).map_err(|error| {
                    Error::new(ErrorKind::InvalidInput, format!("{}: {error}", location.root))
                })?;
                stores.insert(location.root.clone(), store.clone());
                store
            }
        };
        Ok(Object { store, key: location.key.clone() })
    }

    /// Retries and limits of time are ours, since only we know what is asked for, and count.
    fn store(&self, location: &Location) -> object_store::Result<Arc<dyn ObjectStore>> {
        let once = RetryConfig { max_retries: 0, ..RetryConfig::default() };
        let options = |endpoints: &[&str]| {
            let plain = endpoints.iter().filter_map(env::var_os).any(|url| {
                // Who writes it means it.
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
                Arc::new(builder.build()?)
            }
            Service::Google => {
                let builder = GoogleCloudStorageBuilder::from_env();
                let mut builder = builder.with_url(root).with_retry(once);
                for (key, value) in options(&["GOOGLE_BASE_URL"]) {
                    builder = builder.with_config(GoogleConfigKey::Client(key), value);
                }
                Arc::new(builder.build()?)
            }
            Service::Azure => {
                let mut builder = MicrosoftAzureBuilder::from_env().with_url(root).with_retry(once);
                for (key, value) in options(&["AZURE_ENDPOINT", "AZURE_STORAGE_ENDPOINT"]) {
                    builder = builder.with_config(AzureConfigKey::Client(key), value);
                }
                Arc::new(builder.build()?)
            }
            Service::Http => {
                let mut builder = HttpBuilder::new().with_url(root).with_retry(once);
                for (key, value) in options(&[]) {
                    builder = builder.with_config(key, value);
                }
                Arc::new(builder.with_config(ClientConfigKey::AllowHttp, "true").build()?)
            }
        })
    }

    /// Length and version of an object.
    pub async fn head(&self, object: &Object) -> Result<Version> {
        let limit = self.limit(0);
        self.with_retries(|| async move {
            let meta = in_time(limit, object.store.head(&object.key)).await?;
            Ok(Version::of(&meta.map_err(|error| judge(&error))?))
        })
        .await
    }

    /// The bytes that are asked for, from the disk where they lie there.
    pub async fn get(
        self: Arc<Self>,
        object: Object,
        url: Arc<str>,
        request: Request,
    ) -> Result<Bytes> {
        let place = match (&self.cache, &request) {
            // A server that tells neither tag nor time may have changed the object.
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
        let bytes = self.with_retries(|| self.body(&object, &request)).await?;
        if let Some(place) = place {
            let (client, kept) = (self.clone(), bytes.clone());
            let keep = move || client.cache.as_ref().map(|cache| cache.put(&place, &kept));
            // What cannot be kept is fetched again: the cache says what is wrong with it.
            let _ = tokio::task::spawn_blocking(keep).await;
        }
        Ok(bytes)
    }

    /// Every object below a folder, with its stamp, in no certain order. Where a page fails, the listing goes on behind
    /// what it has, as long as anything comes.
    pub async fn list(&self, folder: &Object) -> Result<Vec<(Key, Stamp)>> {
        let (limit, found) = (self.limit(0), Mutex::new(Vec::<(Key, Stamp)>::new()));
        let prefix = prefix(folder);
        let so_far = || found.lock().unwrap_or_else(PoisonError::into_inner);
        let page = || async {
            let last = so_far().last().map(|(key, _)| key.clone());
            let mut objects = match &last {
                Some(last) => folder.store.list_with_offset(prefix, last),
                None => folder.store.list(prefix),
            };
            let before = so_far().len();
            loop {
                let next = match in_time(limit, objects.next()).await {
                    Ok(None) => return Ok(true),
                    Ok(Some(meta)) => meta.map_err(|error| judge(&error)),
                    Err(late) => Err(late),
                };
                match next {
                    Ok(meta) => so_far().push((meta.location.clone(), stamp(&meta))),
                    Err(Failure::Again(_)) if so_far().len() > before => return Ok(false),
                    Err(failure) => return Err(failure),
                }
            }
        };
        while !self.with_retries(page).await? {
            Counters::add(&Counters::get().retries, 1);
        }
        Ok(found.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// The objects directly in a folder, with their stamps, and the folders in it.
    pub async fn list_one(&self, folder: &Object) -> Result<(Vec<(Key, Stamp)>, Vec<Key>)> {
        let (limit, prefix) = (self.limit(0), prefix(folder));
        self.with_retries(|| async move {
            // Pages of a thousand names come one after another in this one call.
            let listed = in_time(30 * limit, folder.store.list_with_delimiter(prefix)).await?;
            let listed = listed.map_err(|error| judge(&error))?;
            let objects =
                listed.objects.into_iter().map(|meta| (meta.location.clone(), stamp(&meta)));
            Ok((objects.collect(), listed.common_prefixes))
        })
        .await
    }

    /// Whether there is any object below a folder.
    pub async fn has_any(&self, folder: &Object) -> Result<bool> {
        let limit = self.limit(0);
        self.with_retries(|| async move {
            let mut objects = folder.store.list(Some(&folder.key));
            let first = in_time(limit, objects.next()).await?;
            Ok(first.transpose().map_err(|error| judge(&error))?.is_some())
        })
        .await
    }

    /// How long an attempt may take that gives so many bytes.
    fn limit(&self, bytes: u64) -> Duration {
        Duration::from_secs(self.settings.timeout.saturating_add(bytes / BYTES_PER_SECOND))
    }

    /// The body of one answer: of the length that was asked for, and of the version that was asked for.
    async fn body(&self, object: &Object, request: &Request) -> Attempt<Bytes> {
        let Request { range, stamp: wanted, tag, most } = request;
        let options = GetOptions {
            range: range.clone().map(GetRange::Bounded),
            if_match: tag.clone(),
            ..Default::default()
        };
        let answer = in_time(self.limit(0), object.store.get_opts(&object.key, options)).await?;
        let answer = answer.map_err(|error| judge(&error))?;
        if wanted.is_some_and(|wanted| wanted != stamp(&answer.meta)) {
            return Err(Failure::never(ErrorKind::Other, judge::CHANGED));
        }
        let len = answer.range.end - answer.range.start;
        if range.is_none() && len > *most {
            return Err(Failure::never(ErrorKind::FileTooLarge, len.to_string()));
        }
        let expected = range.as_ref().map_or(len, |range| range.end - range.start);
        in_time(self.limit(expected), collect(answer.into_stream(), expected)).await?
    }

    async fn with_retries<T, F>(&self, mut attempt: impl FnMut() -> F) -> Result<T>
    where
        F: Future<Output = Attempt<T>>,
    {
        let mut retries = 0;
        loop {
            let permit = self.permits.acquire().await;
            let permit = permit.map_err(|_| Error::other("the requests were closed"))?;
            Counters::add(&Counters::get().requests, 1);
            let problem = match attempt().await {
                Ok(result) => return Ok(result),
                Err(Failure::Never(error)) => return Err(error),
                Err(Failure::Again(problem)) => problem,
            };
            drop(permit);
            if retries == self.settings.retries {
                let problem = format!("{problem} (after {retries} retries)");
                return Err(Error::new(ErrorKind::TimedOut, problem));
            }
            tokio::time::sleep(pause(retries)).await;
            retries += 1;
            Counters::add(&Counters::get().retries, 1);
        }
    }
}

/// So many bytes, neither more nor less.
async fn collect(
    mut parts: impl Stream<Item = object_store::Result<Bytes>> + Unpin,
    expected: u64,
) -> Attempt<Bytes> {
    // Copied, since what comes is a piece of a connection's buffer, and would hold all of that.
    let mut whole = BytesMut::with_capacity(expected.min(FIRST_CAPACITY) as usize);
    while let Some(part) = parts.next().await {
        let part = part.map_err(|error| judge(&error))?;
        if whole.len() as u64 + part.len() as u64 > expected {
            let problem = format!("more than the {expected} bytes came that were asked for");
            return Err(Failure::Again(problem));
        }
        whole.extend_from_slice(&part);
    }
    if (whole.len() as u64) < expected {
        return Err(Failure::Again(format!("{} of {expected} bytes came", whole.len())));
    }
    Counters::add(&Counters::get().bytes, expected);
    Ok(whole.freeze())
}

/// A listing of everything has no prefix.
fn prefix(folder: &Object) -> Option<&Key> {
    (!folder.key.as_ref().is_empty()).then_some(&folder.key)
}

async fn in_time<T>(limit: Duration, work: impl Future<Output = T>) -> Attempt<T> {
    tokio::time::timeout(limit, work)
        .await
        .map_err(|_| Failure::Again(format!("no answer within {} seconds", limit.as_secs())))
}

/// From a half of the pause to all of it, so that many requests that failed at once do not come back at once.
fn pause(retries: u32) -> Duration {
    let (first, most) = PAUSES;
    let whole = first.saturating_mul(1 << retries.min(16)).min(most);
    let chance = RandomState::new().hash_one(retries) as f64 / u64::MAX as f64;
    whole.mul_f64(0.5 + 0.5 * chance)
}
