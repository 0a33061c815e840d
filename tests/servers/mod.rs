//! A scripted server on the loopback interface. It serves objects by path with HTTP and S3 (`GET`
//! and `HEAD` with `Range` and `If-Match`, `ListObjectsV2`). Tests can make single requests fail.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

/// How the server fails one request.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// Answers with this status and without an object.
    Status(u16),
    /// Closes the connection without an answer.
    Close,
    /// Closes the connection after this many bytes of the body.
    Cut(usize),
    /// Sends no answer, and keeps the connection open.
    Hang,
    /// Sends the answer after this delay.
    Late(Duration),
    /// Sends the body in pieces of this many bytes, with this delay between them.
    Slow(usize, Duration),
    /// Sends a body from which this many bytes are missing. The length in the head is that of the
    /// shorter body.
    Short(usize),
    /// Answers with a head that names a different range than was requested.
    OtherRange,
    /// Flips the bits of this byte of the body.
    Flipped(usize),
    /// Sends the body in chunks, without a length in the head.
    Chunked,
    /// Sends this answer instead: a status, additional lines of the head (each ending with `\r\n`),
    /// and a body.
    Other(u16, &'static str, &'static str),
}

pub struct Server {
    pub address: SocketAddr,
    state: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    in_flight: AtomicUsize,
    most_in_flight: AtomicUsize,
}

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Arc<Vec<u8>>>,
    faults: HashMap<String, VecDeque<Fault>>,
    log: Vec<Request>,
    latency: Duration,
    gathers: Option<Gathers>,
    whole_files_only: bool,
    names_in_a_page: Option<usize>,
    /// Only requests for paths with this prefix are counted as in flight.
    counted: String,
}

/// Requests that are held until `count` of them are in flight at the same time, at the latest until
/// `until`.
struct Gathers {
    /// Number of requests that are still answered at once, before requests are held.
    free: usize,
    count: usize,
    until: Instant,
}

impl Shared {
    /// Whether held requests must still wait for more requests to arrive.
    fn has_to_gather(&self) -> bool {
        let most = self.most_in_flight.load(Ordering::SeqCst);
        let mut state = self.state.lock().unwrap();
        // As soon as enough requests are in flight, or the time is over, no more requests are held.
        // Later requests may belong to another test.
        let gathers = &mut state.gathers;
        gathers.take_if(|it| most >= it.count || Instant::now() >= it.until);
        gathers.is_some()
    }
}

/// A received request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub method: String,
    /// Path of the request without the query.
    pub path: String,
    pub range: Option<Range<usize>>,
    /// Lines of the request's head: names in lower case, and values.
    pub head: Vec<(String, String)>,
}

impl Server {
    /// Starts a server without objects.
    pub fn start() -> Self {
        Self::start_with(serve)
    }

    /// Starts a TLS server with a certificate of `tests/golden/tls`.
    pub fn start_tls(certificate: &str) -> Self {
        let tls = Arc::new(tls(certificate));
        Self::start_with(move |stream, shared| {
            let connection = rustls::ServerConnection::new(tls.clone()).unwrap();
            serve(rustls::StreamOwned::new(connection, stream), shared);
        })
    }

    fn start_with(serve: impl Fn(TcpStream, &Shared) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(Shared::default());
        let (shared, serve) = (state.clone(), Arc::new(serve));
        // The thread that accepts connections runs until the process ends.
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (shared, serve) = (shared.clone(), serve.clone());
                stream.set_nodelay(true).unwrap();
                thread::spawn(move || serve(stream, &shared));
            }
        });
        Self { address, state }
    }

    /// Returns the URL `http://127.0.0.1:…` of this path.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Adds an object. Its path must begin with `/`.
    pub fn put(&self, path: &str, bytes: impl Into<Vec<u8>>) {
        self.lock().objects.insert(path.into(), Arc::new(bytes.into()));
    }

    /// Lets the next requests for this path fail, one failure per request.
    pub fn fail(&self, path: &str, faults: impl IntoIterator<Item = Fault>) {
        self.lock().faults.entry(path.into()).or_default().extend(faults);
    }

    /// Delays every answer by this time.
    pub fn latency(&self, latency: Duration) {
        self.lock().latency = latency;
    }

    /// Answers the next `free` requests at once. Holds all later ones until `count` requests are in
    /// flight at the same time. So a test does not depend on how fast requests arrive. After a
    /// minute, all are answered.
    pub fn gather(&self, free: usize, count: usize) {
        // A cancelled request of an earlier test stays in flight until its latency is over.
        let until = Instant::now() + Duration::from_secs(60);
        while self.state.in_flight.load(Ordering::SeqCst) > 0 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        let until = Instant::now() + Duration::from_secs(60);
        self.state.most_in_flight.store(0, Ordering::SeqCst);
        self.lock().gathers = Some(Gathers { free, count, until });
    }

    /// Ignores `Range`.
    pub fn whole_files_only(&self) {
        self.lock().whole_files_only = true;
    }

    /// Sets the maximum number of names per page of a listing.
    pub fn names_in_a_page(&self, names: usize) {
        self.lock().names_in_a_page = Some(names);
    }

    /// Returns the requests for paths with this prefix since the last call of `forget`.
    pub fn log(&self, prefix: &str) -> Vec<Request> {
        self.lock().log.iter().filter(|it| it.path.starts_with(prefix)).cloned().collect()
    }

    /// Removes the requests for paths with this prefix from the log. From now on, only such
    /// requests are counted as in flight, because cancelled requests of other tests may still
    /// arrive.
    pub fn forget(&self, prefix: &str) {
        let mut state = self.lock();
        state.log.retain(|it| !it.path.starts_with(prefix));
        state.counted = prefix.into();
        drop(state);
        self.state.most_in_flight.store(0, Ordering::SeqCst);
    }

    /// Returns the maximum number of requests that waited for their answer at the same time.
    pub fn most_in_flight(&self) -> usize {
        self.state.most_in_flight.load(Ordering::SeqCst)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.state.lock().unwrap()
    }
}

fn tls(certificate: &str) -> rustls::ServerConfig {
    use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/tls");
    let at = |ending: &str| folder.join(format!("{certificate}.{ending}"));
    let chain = vec![CertificateDer::from_pem_file(at("pem")).unwrap()];
    let key = PrivateKeyDer::from_pem_file(at("key")).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = rustls::ServerConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    builder.with_no_client_auth().with_single_cert(chain, key).unwrap()
}

fn serve(stream: impl Read + Write, shared: &Shared) {
    let mut reader = BufReader::new(stream);
    while let Some((request, if_match, query)) = next_request(&mut reader) {
        let mut state = shared.state.lock().unwrap();
        let counted = usize::from(request.path.starts_with(&state.counted));
        let now = shared.in_flight.fetch_add(counted, Ordering::SeqCst) + counted;
        shared.most_in_flight.fetch_max(now, Ordering::SeqCst);
        state.log.push(request.clone());
        let fault = state.faults.get_mut(&request.path).and_then(VecDeque::pop_front);
        let latency = state.latency;
        let gathers = state.gathers.as_mut().is_some_and(|it| {
            let gathers = it.free == 0;
            it.free = it.free.saturating_sub(1);
            gathers
        });
        let answer = state.answer(&request, if_match.as_deref(), &query);
        drop(state);
        while gathers && shared.has_to_gather() {
            thread::sleep(Duration::from_millis(1));
        }
        thread::sleep(latency);
        // The request is counted as answered before the answer is sent, because the client may send
        // the next request right after it receives the answer.
        shared.in_flight.fetch_sub(counted, Ordering::SeqCst);
        if !send(reader.get_mut(), &request, answer, fault) {
            return;
        }
    }
}

type Query = BTreeMap<String, String>;

fn next_request(reader: &mut impl BufRead) -> Option<(Request, Option<String>, Query)> {
    let mut line = String::new();
    if reader.read_line(&mut line).ok()? == 0 {
        return None;
    }
    let mut words = line.split_whitespace();
    let (method, target) = (words.next()?.to_string(), words.next()?.to_string());
    let (mut range, mut if_match, mut head) = (None, None, Vec::new());
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim().split_once(':') else { break };
        head.push((name.to_ascii_lowercase(), value.trim().to_string()));
        match name.to_ascii_lowercase().as_str() {
            "range" => {
                let (start, end) = value.trim().strip_prefix("bytes=")?.split_once('-')?;
                range = Some(start.parse().ok()?..end.parse::<usize>().ok()? + 1);
            }
            "if-match" => if_match = Some(value.trim().to_string()),
            _ => {}
        }
    }
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let query = query.split('&').filter_map(|pair| pair.split_once('='));
    let query = query.map(|(key, value)| (key.to_string(), decoded(value))).collect();
    Some((Request { method, path: decoded(path), range, head }, if_match, query))
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match (byte, after) {
            (b'%', [high, low, after @ ..]) => {
                let digits = [*high, *low];
                bytes.push(u8::from_str_radix(str::from_utf8(&digits).unwrap(), 16).unwrap());
                rest = after;
            }
            _ => bytes.push(byte),
        }
    }
    String::from_utf8(bytes).unwrap()
}

struct Answer {
    status: u16,
    head: String,
    body: Arc<Vec<u8>>,
    part: Range<usize>,
}

impl Answer {
    fn text(status: u16, text: String) -> Self {
        let part = 0..text.len();
        Self { status, head: String::new(), body: Arc::new(text.into_bytes()), part }
    }
}

const DATE: &str = "Sat, 21 Nov 2026 09:00:00 GMT";

fn tag(bytes: &[u8]) -> String {
    format!("\"{:08x}\"", crc32c::crc32c(bytes))
}

impl State {
    fn answer(&self, request: &Request, if_match: Option<&str>, query: &Query) -> Answer {
        if query.get("list-type").is_some_and(|it| it == "2") {
            return self.list(request.path.trim_matches('/'), query);
        }
        let Some(body) = self.objects.get(&request.path).cloned() else {
            return Answer::text(404, "<Error><Code>NoSuchKey</Code></Error>".into());
        };
        let tag = tag(&body);
        if if_match.is_some_and(|wanted| wanted != tag) {
            return Answer::text(412, String::new());
        }
        let mut head = format!("ETag: {tag}\r\nLast-Modified: {DATE}\r\n");
        match request.range.clone().filter(|_| !self.whole_files_only) {
            None => Answer { status: 200, head, part: 0..body.len(), body },
            Some(part) if part.start >= body.len() => Answer::text(416, String::new()),
            Some(part) => {
                let part = part.start..part.end.min(body.len());
                let (first, last) = (part.start, part.end - 1);
                head += &format!("Content-Range: bytes {first}-{last}/{}\r\n", body.len());
                Answer { status: 206, head, part, body }
            }
        }
    }

    fn list(&self, bucket: &str, query: &Query) -> Answer {
        let of = |key: &str| query.get(key).cloned().unwrap_or_default();
        let (prefix, delimiter) = (of("prefix"), of("delimiter"));
        let after = of("start-after").max(of("continuation-token"));
        let root = format!("/{bucket}/");
        let keys = self.objects.iter().filter_map(|(path, bytes)| {
            let key = path.strip_prefix(&root)?;
            (key.starts_with(&prefix) && *key > *after).then_some((key, bytes))
        });
        let (mut names, mut text, mut last, mut cut) = (Vec::new(), String::new(), "", false);
        for (key, bytes) in keys {
            let below = &key[prefix.len()..];
            let folder = below.find('/').filter(|_| !delimiter.is_empty());
            let name = folder.map_or(key, |end| &key[..prefix.len() + end + 1]);
            if names.last() == Some(&name) {
                last = key;
                continue;
            }
            if self.names_in_a_page.is_some_and(|most| names.len() == most) {
                cut = true;
                break;
            }
            names.push(name);
            last = key;
            let (tag, len) = (tag(bytes), bytes.len());
            text += &match folder {
                Some(_) => format!("<CommonPrefixes><Prefix>{name}</Prefix></CommonPrefixes>"),
                None => format!(
                    "<Contents><Key>{key}</Key><Size>{len}</Size><ETag>{tag}</ETag>\
                     <LastModified>2026-11-21T09:00:00.000Z</LastModified></Contents>"
                ),
            };
        }
        if cut {
            text += &format!("<NextContinuationToken>{last}</NextContinuationToken>");
        }
        Answer::text(200, format!("<ListBucketResult>{text}</ListBucketResult>"))
    }
}

/// Sends an answer with the fault, if there is one. Returns whether the connection stays open.
fn send(stream: &mut impl Write, request: &Request, answer: Answer, fault: Option<Fault>) -> bool {
    let Answer { mut status, mut head, body, part } = answer;
    let mut body = body[part].to_vec();
    match fault {
        Some(Fault::Close) => return false,
        Some(Fault::Hang) => {
            thread::sleep(Duration::from_secs(600));
            return false;
        }
        Some(Fault::Status(code)) => {
            (status, head) = (code, String::new());
            body = b"<Error><Code>SlowDown</Code></Error>".to_vec();
        }
        Some(Fault::Other(code, lines, text)) => {
            (status, head) = (code, lines.to_string());
            body = text.as_bytes().to_vec();
        }
        Some(Fault::Late(time)) => thread::sleep(time),
        Some(Fault::Short(bytes)) => body.truncate(body.len() - bytes),
        Some(Fault::OtherRange) => head = head.replace("bytes ", "bytes 1"),
        Some(Fault::Flipped(at)) => body[at] ^= 0x10,
        _ => {}
    }
    let length = match fault {
        Some(Fault::Chunked) => "Transfer-Encoding: chunked".into(),
        _ => format!("Content-Length: {}", body.len()),
    };
    let head = format!("HTTP/1.1 {status} X\r\n{length}\r\n{head}\r\n");
    if stream.write_all(head.as_bytes()).and_then(|()| stream.flush()).is_err() {
        return false;
    }
    if request.method == "HEAD" {
        return true;
    }
    match fault {
        Some(Fault::Cut(bytes)) => {
            let _ = stream.write_all(&body[..bytes]).and_then(|()| stream.flush());
            false
        }
        Some(Fault::Slow(bytes, pause)) => body.chunks(bytes).all(|piece| {
            thread::sleep(pause);
            stream.write_all(piece).and_then(|()| stream.flush()).is_ok()
        }),
        Some(Fault::Chunked) => {
            let chunk =
                |it: &[u8]| [format!("{:x}\r\n", it.len()).as_bytes(), it, b"\r\n"].concat();
            let whole: Vec<u8> = body.chunks(3).map(chunk).chain([chunk(&[])]).flatten().collect();
            stream.write_all(&whole).and_then(|()| stream.flush()).is_ok()
        }
        _ => stream.write_all(&body).and_then(|()| stream.flush()).is_ok(),
    }
}
