//! HTTP connector for `object_store`. It follows only allowed redirects and limits the size of
//! answers that are not objects. It reports errors as types instead of text.

use std::fmt;
use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::pin::Pin;
use std::time::Duration;

use futures_util::StreamExt;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
};
use object_store::{ClientConfigKey, ClientOptions};
use reqwest::dns::{Name, Resolve, Resolving};
use reqwest::header::{
    AUTHORIZATION, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, HeaderMap, HeaderValue,
    LOCATION, RANGE,
};
use reqwest::{Certificate, Method, NoProxy, Proxy, StatusCode, Url, redirect::Policy};

use super::redirect;
use super::retry_after::retry_after;
use crate::error::Redacted;
use crate::storage::Redirects;

/// Largest size of a page of a listing, in bytes. A page of 5,000 names of 1,024 bytes each takes
/// less than half of this limit.
const LISTING_BYTES: usize = 64 << 20;
/// Largest number of bytes that are read from an error answer.
const ERROR_BYTES: usize = 16 << 10;

/// Purpose of a request. Requests without a purpose are for credentials; their answers are passed
/// to the library unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// An object, or its length.
    Object,
    /// A page of a listing.
    Listing,
}

/// An answer that is not acceptable, or a missing answer.
#[derive(Debug)]
pub struct Refusal {
    /// URL of the request, if it differs from the URL that the user wrote.
    pub url: Option<Redacted>,
    pub what: ResponseError,
}

/// Reason why an answer is not acceptable.
#[derive(Debug)]
pub enum ResponseError {
    /// There was no answer.
    Connection(String),
    /// The answer has an error status.
    Status {
        status: u16,
        /// Pause that the server requested.
        retry_after: Option<Duration>,
        /// Message of the server.
        text: String,
    },
    /// The answer is a redirect that is not followed.
    Redirect { to: Redacted, problem: String, region: Option<String> },
    /// The answer is an HTML page, such as a login page.
    Page,
    /// The answer to a listing request is not a listing. Contains the beginning of the answer.
    NoListing(String),
    /// A page of the listing is too long.
    LongListing,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.what)
    }
}

impl std::error::Error for Refusal {}

/// Creates clients for one server or bucket.
#[derive(Debug)]
pub struct Connector {
    /// Permitted targets of redirects. Signed requests permit none.
    pub redirects: Redirects,
    /// Whether the URLs of requests differ from the user's URLs, as for buckets.
    pub bucket: bool,
    /// `Authorization` header, if the URL contains a user.
    pub authorization: Option<HeaderValue>,
    pub connect_timeout: Duration,
    /// Certificates that are trusted in addition to the system's certificates.
    pub trusted: Vec<Certificate>,
}

#[derive(Debug)]
struct Service {
    near: reqwest::Client,
    /// Client for other hosts to which redirects lead. It connects neither to this machine nor to
    /// addresses of its network link.
    far: Option<reqwest::Client>,
    redirects: Redirects,
    bucket: bool,
    authorization: Option<HeaderValue>,
}

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let build = |far| {
            self.client(options, far).map_err(|error| object_store::Error::Generic {
                store: "HTTP client",
                source: Box::new(error),
            })
        };
        Ok(HttpClient::new(Service {
            near: build(false)?,
            far: (self.redirects == Redirects::Any && !self.bucket)
                .then(|| build(true))
                .transpose()?,
            redirects: self.redirects,
            bucket: self.bucket,
            authorization: self.authorization.clone(),
        }))
    }
}

impl Connector {
    /// Builds the client like `object_store`. Redirects and timeouts are handled in this module
    /// instead.
    fn client(&self, options: &ClientOptions, far: bool) -> reqwest::Result<reqwest::Client> {
        let value = |key| options.get_config_value(&key);
        let is = |key| value(key).is_some_and(|it| it == "true");
        let seconds =
            |text: String| Some(Duration::from_secs(text.strip_suffix('s')?.parse().ok()?));
        let timeout = value(ClientConfigKey::ConnectTimeout).and_then(seconds);
        let mut builder = reqwest::Client::builder()
            .redirect(Policy::none())
            .connect_timeout(timeout.unwrap_or(self.connect_timeout))
            .user_agent(
                value(ClientConfigKey::UserAgent)
                    .unwrap_or_else(|| concat!("feedwater/", env!("CARGO_PKG_VERSION")).into()),
            )
            .https_only(!is(ClientConfigKey::AllowHttp))
            .danger_accept_invalid_certs(is(ClientConfigKey::AllowInvalidCertificates))
            .dns_resolver(Resolver { far })
            // Compression is disabled, because the length of a compressed answer is not the length
            // of its object.
            .no_gzip()
            .no_brotli()
            .no_zstd()
            .no_deflate();
        if let Some(proxy) = value(ClientConfigKey::ProxyUrl) {
            let mut proxy = Proxy::all(proxy)?;
            if let Some(excludes) = value(ClientConfigKey::ProxyExcludes) {
                proxy = proxy.no_proxy(NoProxy::from_string(&excludes));
            }
            builder = builder.proxy(proxy);
        }
        if is(ClientConfigKey::Http1Only) {
            builder = builder.http1_only();
        }
        let proxy = value(ClientConfigKey::ProxyCaCertificate);
        let proxy = proxy.map(|it| Certificate::from_pem(it.as_bytes())).transpose()?;
        let trusted = self.trusted.iter().cloned().chain(proxy);
        match is(ClientConfigKey::NoSystemCertificates) {
            true => builder.tls_certs_only(trusted),
            false => builder.tls_certs_merge(trusted),
        }
        .build()
    }
}

impl HttpService for Service {
    // The trait was declared with the macro `async_trait`. This function has the signature and the
    // body that the macro would generate.
    fn call<'this, 'future>(
        &'this self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'future>>
    where
        'this: 'future,
        Self: 'future,
    {
        Box::pin(async move {
            match request.extensions().get::<Asked>().copied() {
                Some(asked) => self.answer(asked, request).await,
                None => self.near.call(request).await,
            }
        })
    }
}

impl Service {
    async fn answer(
        &self,
        asked: Asked,
        mut request: HttpRequest,
    ) -> Result<HttpResponse, HttpError> {
        if let Some(value) = &self.authorization {
            request.headers_mut().insert(AUTHORIZATION, value.clone());
        }
        let first = parse(&request)?;
        let mut now = first.clone();
        for _ in 0..=redirect::MOST {
            let home = redirect::is_same(&first, &now);
            let client = self.far.as_ref().filter(|_| !home).unwrap_or(&self.near);
            let response = match self.send(client, &request).await {
                Ok(response) => response,
                Err(error) => {
                    return Err(self.refusal(&now, ResponseError::Connection(words(&error))));
                }
            };
            let status = response.status();
            if status.is_success() {
                return self.checked(asked, &now, response).await;
            }
            let headers = response.headers();
            let Some(to) = headers.get(LOCATION).filter(|_| status.is_redirection()) else {
                let wrong = status_of(response).await;
                return Err(self.refusal(&now, wrong));
            };
            let to = to.to_str().ok().and_then(|to| now.join(to).ok());
            let checked = match &to {
                _ if self.bucket => Err("is not followed, since requests are signed".to_string()),
                None => Err("leads to an invalid URL".into()),
                Some(to) => redirect::check(self.redirects, &first, &now, to),
            };
            if let Err(problem) = checked {
                let region = headers.get("x-amz-bucket-region").and_then(|it| it.to_str().ok());
                let region = region.map(Into::into);
                let to = Redacted::new(to.map(String::from).unwrap_or_default());
                return Err(self.refusal(&now, ResponseError::Redirect { to, problem, region }));
            }
            now = to.expect("it was checked");
            if !redirect::is_same(&first, &now) {
                request.headers_mut().remove(AUTHORIZATION);
            }
            *request.uri_mut() = now.as_str().parse().map_err(decode)?;
        }
        let problem =
            format!("is redirect number {}, one more than feedwater follows", redirect::MOST);
        let to = Redacted::new(now.to_string());
        Err(self.refusal(&first, ResponseError::Redirect { to, problem, region: None }))
    }

    /// Sends a request. If the server does not support `HEAD`, the first byte is requested instead.
    /// The length of a chunked answer is taken from its `Content-Range`, because the library needs
    /// a length.
    async fn send(
        &self,
        client: &reqwest::Client,
        request: &HttpRequest,
    ) -> Result<HttpResponse, HttpError> {
        let mut response = client.call(request.clone()).await?;
        let is_refused = matches!(
            response.status(),
            StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED
        );
        // The signature of a request covers its method, so the method of a signed request cannot be
        // changed.
        if request.method() == Method::HEAD && is_refused && !self.bucket {
            let mut first = request.clone();
            *first.method_mut() = Method::GET;
            first.headers_mut().insert(RANGE, HeaderValue::from_static("bytes=0-0"));
            let (mut head, _) = client.call(first).await?.into_parts();
            let range = head.headers.remove(CONTENT_RANGE);
            let total = range.and_then(|it| content_range(&it)).map(|(_, total)| total);
            // For an empty object the answer is 416, which also contains the total length.
            if let Some(total) = total {
                head.status = StatusCode::OK;
                head.headers.insert(CONTENT_LENGTH, total.into());
            }
            return Ok(HttpResponse::from_parts(head, Vec::new().into()));
        }
        if response.status() == StatusCode::PARTIAL_CONTENT
            && !response.headers().contains_key(CONTENT_LENGTH)
        {
            let range = response.headers().get(CONTENT_RANGE).and_then(content_range);
            if let Some((len, _)) = range {
                response.headers_mut().insert(CONTENT_LENGTH, len.into());
            }
        }
        Ok(response)
    }

    /// Returns the answer. Returns an error if it is an HTML page, or if it is not a listing
    /// although one was requested.
    async fn checked(
        &self,
        asked: Asked,
        url: &Url,
        response: HttpResponse,
    ) -> Result<HttpResponse, HttpError> {
        match asked {
            Asked::Object => match is_page(response.headers(), url, self.bucket) {
                true => Err(self.refusal(url, ResponseError::Page)),
                false => Ok(response),
            },
            Asked::Listing => {
                let (head, body) = response.into_parts();
                let (bytes, whole) = read(body.bytes_stream(), LISTING_BYTES).await?;
                if !whole {
                    return Err(self.refusal(url, ResponseError::LongListing));
                }
                let start = String::from_utf8_lossy(&bytes[..bytes.len().min(512)]).into_owned();
                if !["<ListBucketResult", "<EnumerationResults"].iter().any(|it| start.contains(it))
                {
                    let wrong = match looks_like_a_page(&start) {
                        true => ResponseError::Page,
                        false => ResponseError::NoListing(start.chars().take(60).collect()),
                    };
                    return Err(self.refusal(url, wrong));
                }
                Ok(HttpResponse::from_parts(head, bytes.into()))
            }
        }
    }

    fn refusal(&self, url: &Url, what: ResponseError) -> HttpError {
        let url = self.bucket.then(|| {
            // The query contains parameters and credentials, so it is removed.
            let mut url = url.clone();
            url.set_query(None);
            Redacted::new(url.to_string())
        });
        HttpError::new(HttpErrorKind::Unknown, Refusal { url, what })
    }
}

/// Resolves host names. For hosts to which redirects lead, addresses of this machine or its network
/// link are an error.
#[derive(Clone, Copy, Debug)]
struct Resolver {
    far: bool,
}

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let far = self.far;
        Box::pin(async move {
            let host = name.as_str().to_string();
            let found = move || (host.as_str(), 0).to_socket_addrs().map(Vec::from_iter);
            let mut addresses: Vec<SocketAddr> = tokio::task::spawn_blocking(found).await??;
            if far && addresses.iter().any(|it| redirect::is_within(it.ip())) {
                let problem = "a redirect leads to an address of this machine or network link, which is never followed";
                return Err(io::Error::other(problem).into());
            }
            // The order is random, so requests are spread over the servers behind a name.
            let state = RandomState::new();
            addresses.sort_by_cached_key(|it| state.hash_one(it));
            Ok(Box::new(addresses.into_iter()) as Box<dyn Iterator<Item = SocketAddr> + Send>)
        })
    }
}

/// Returns the length of the part and of the whole file from `bytes 0-9/100` or `bytes */100`.
fn content_range(value: &HeaderValue) -> Option<(u64, u64)> {
    let (part, total) = value.to_str().ok()?.strip_prefix("bytes ")?.split_once('/')?;
    let total = total.trim().parse().ok()?;
    if part.trim() == "*" {
        return Some((0, total));
    }
    let (first, last) = part.split_once('-')?;
    let (first, last): (u64, u64) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
    Some((last.checked_sub(first)?.checked_add(1)?, total))
}

fn parse(request: &HttpRequest) -> Result<Url, HttpError> {
    request.uri().to_string().parse().map_err(decode)
}

fn decode(error: impl std::error::Error + Send + Sync + 'static) -> HttpError {
    HttpError::new(HttpErrorKind::Decode, error)
}

async fn status_of(response: HttpResponse) -> ResponseError {
    let status = response.status().as_u16();
    let retry_after = retry_after(response.headers());
    let read = read(response.into_body().bytes_stream(), ERROR_BYTES);
    // A server may refuse a request and then send nothing more, so the wait is limited.
    let body = tokio::time::timeout(Duration::from_secs(1), read).await;
    let body = body.ok().and_then(Result::ok).map(|(bytes, _)| bytes).unwrap_or_default();
    ResponseError::Status { status, retry_after, text: message(&String::from_utf8_lossy(&body)) }
}

/// Extracts the message from the body of an error, which is XML for S3 and Azure. Empty for HTML
/// pages.
fn message(body: &str) -> String {
    let element = |name: &str| {
        let (_, rest) = body.split_once(&format!("<{name}>"))?;
        rest.split_once("</").map(|(text, _)| text.trim().to_string())
    };
    let told: Vec<String> = ["Code", "Message"].into_iter().filter_map(element).collect();
    match told.is_empty() {
        false => told.join(": "),
        true if looks_like_a_page(body) => String::new(),
        true => body.trim().to_string(),
    }
}

/// Reads all bytes, or stops after at least `most` bytes. Also returns whether all bytes were read.
async fn read(
    mut parts: impl futures_util::Stream<Item = Result<bytes::Bytes, HttpError>> + Unpin,
    most: usize,
) -> Result<(Vec<u8>, bool), HttpError> {
    let mut whole = Vec::new();
    while let Some(part) = parts.next().await {
        whole.extend_from_slice(&part?);
        if whole.len() > most {
            return Ok((whole, false));
        }
    }
    Ok((whole, true))
}

/// Whether the answer to a request for an object is an HTML page instead. Buckets return the
/// content type that was set when the object was written, so an HTML type alone proves nothing.
/// Objects in buckets have tags, and login pages do not.
fn is_page(headers: &HeaderMap, url: &Url, bucket: bool) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|it| it.to_str().ok()).unwrap_or_default();
    let path = url.path().to_ascii_lowercase();
    let meant = [".html", ".htm", ".xhtml"].iter().any(|it| path.ends_with(it));
    let html = kind.trim_start().to_ascii_lowercase().starts_with("text/html");
    html && !meant && !(bucket && headers.contains_key(ETAG))
}

fn looks_like_a_page(body: &str) -> bool {
    let start: String = body.trim_start_matches('\u{feff}').trim_start().chars().take(64).collect();
    let start = start.to_ascii_lowercase();
    start.starts_with("<!doctype html") || start.contains("<html")
}

/// Returns the message of the library with its cause. `Connection refused` occurs only in the last
/// cause.
fn words(error: &HttpError) -> String {
    let what = match error.kind() {
        HttpErrorKind::Connect => "cannot connect",
        HttpErrorKind::Timeout => "no answer in time",
        _ => "the connection failed",
    };
    let mut last = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        last = error.to_string();
        source = error.source();
    }
    format!("{what}: {last}")
}
