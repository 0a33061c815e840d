//! Measures how fast a loader reads samples from a server with a latency of 50 ms, compared with
//! the server's maximum throughput over the same number of connections.
//!
//! ```text
//! cargo bench -p feedwater-tests --bench remote                        # a server of the tests
//! tests/servers/run.sh cargo bench -p feedwater-tests --bench remote   # also an S3 emulator (moto)
//! ```
//!
//! A proxy on the loopback interface delays every request. The loader decodes and transforms every
//! sample on two threads. The images are small but contain a long comment, so the files are large
//! and decoding is cheap.
//!
//! A bare loop measures the server's maximum throughput in the same run: one thread per connection
//! writes a request, reads the answer, and repeats. The loader and the bare loop take turns. The
//! best round of each is compared, because other load on the machine can only slow them down.
//!
//! A second table compares the autotuned number of prefetched samples with the largest possible one
//! (`loader.tune = false`). The measurement starts after tuning. Each is measured with a consumer
//! that takes no time, and with one that takes 200 ms per batch.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use feedwater::loader::{DeviceChoice, Loader};
use feedwater::op::{Chain, Resize};
use feedwater::source::Directory;
use feedwater::storage::{Storage, StorageSettings};
use feedwater_tests::{common, servers};

const LATENCY: Duration = Duration::from_millis(50);
const BUCKET: &str = "bench";
const SAMPLES: u64 = 1024;
const SAMPLE_BYTES: usize = 100_000;
const CONNECTIONS: [usize; 2] = [16, 64];
const ROUNDS: usize = 3;

fn main() {
    // `cargo test --workspace --benches` does not pass `--bench` and runs nothing.
    if !std::env::args().any(|it| it == "--bench") {
        return;
    }
    let images: Vec<Vec<u8>> = (0..SAMPLES).map(image).collect();
    println!(
        "{SAMPLES} samples of {SAMPLE_BYTES} bytes, {} ms added to every request, best of {ROUNDS} rounds",
        LATENCY.as_millis()
    );
    println!(
        "{:<10}{:>12}{:>14}{:>16}{:>8}{:>10}",
        "server", "connections", "bare loop/s", "loader/s", "ratio", "MB/s"
    );
    let own = servers::Server::start();
    for (number, bytes) in images.iter().enumerate() {
        own.put(&format!("/{BUCKET}/{number:04}.jpg"), &bytes[..]);
    }
    let emulator = std::env::var("AWS_ENDPOINT_URL").ok().map(|url| {
        let address = url.strip_prefix("http://").and_then(|it| it.parse().ok());
        address.expect("AWS_ENDPOINT_URL is http://ADDRESS:PORT")
    });
    compare("own", own.address);
    ahead(own.address);
    if let Some(address) = emulator {
        put(address, &format!("/{BUCKET}"), &[]);
        for (number, bytes) in images.iter().enumerate() {
            put(address, &format!("/{BUCKET}/{number:04}.jpg"), bytes);
        }
        compare("moto", address);
    }
}

/// Returns a small JPEG with a long comment after its first marker.
fn image(number: u64) -> Vec<u8> {
    let jpeg = common::jpeg(number, 64, 48);
    let mut bytes = jpeg[..2].to_vec();
    let mut left = SAMPLE_BYTES - jpeg.len();
    while left > 4 {
        let comment = left.min(65_000) - 4;
        bytes.extend([0xff, 0xfe]);
        bytes.extend(((comment + 2) as u16).to_be_bytes());
        bytes.extend(std::iter::repeat_n(number as u8, comment));
        left -= comment + 4;
    }
    bytes.extend(&jpeg[2..]);
    bytes
}

fn compare(name: &str, server: SocketAddr) {
    for connections in CONNECTIONS {
        let proxy = proxy(server);
        endpoint(proxy);
        let (mut bare, mut loaded) = (0.0_f64, 0.0_f64);
        for _ in 0..ROUNDS {
            bare = bare.max(bare_loop(proxy, connections));
            loaded = loaded.max(loader(connections));
        }
        println!(
            "{name:<10}{connections:>12}{bare:>14.0}{loaded:>16.0}{:>8.2}{:>10.1}",
            loaded / bare,
            loaded * SAMPLE_BYTES as f64 / 1e6
        );
    }
}

/// Sets environment variables that direct `s3://` URLs to this server.
#[allow(unsafe_code)]
fn endpoint(address: SocketAddr) {
    let url = format!("http://{address}");
    // The loader does not sign its requests, because checking signatures would slow the emulator
    // down. The bare loop does not sign them either.
    let variables = [
        ("AWS_ENDPOINT_URL", url.as_str()),
        ("AWS_REGION", "us-east-1"),
        ("AWS_SKIP_SIGNATURE", "true"),
    ];
    for (name, value) in variables {
        // SAFETY: no loader is running, and the threads of the servers do not read the environment.
        unsafe { std::env::set_var(name, value) };
    }
}

/// Returns the requests per second of a bare loop: `connections` threads that request and read,
/// without decoding.
fn bare_loop(server: SocketAddr, connections: usize) -> f64 {
    let next = AtomicU64::new(0);
    let begin = Instant::now();
    thread::scope(|scope| {
        for _ in 0..connections {
            scope.spawn(|| {
                let mut stream = BufReader::new(connect(server));
                let mut body = Vec::new();
                while let number = next.fetch_add(1, Ordering::Relaxed)
                    && number < SAMPLES
                {
                    let head =
                        format!("GET /{BUCKET}/{number:04}.jpg HTTP/1.1\r\nHost: {server}\r\n\r\n");
                    stream.get_mut().write_all(head.as_bytes()).expect("the server reads");
                    let (status, closes) = answer(&mut stream, &mut body);
                    assert_eq!((status, body.len()), (200, SAMPLE_BYTES));
                    if closes {
                        stream = BufReader::new(connect(server));
                    }
                }
            });
        }
    });
    SAMPLES as f64 / begin.elapsed().as_secs_f64()
}

/// Prints the table that compares the autotuned limit of prefetching with the largest one.
fn ahead(server: SocketAddr) {
    println!(
        "{:<10}{:>12}{:>12}{:>14}{:>14}{:>8}{:>12}{:>10}",
        "server",
        "connections",
        "step, ms",
        "the most/s",
        "chosen/s",
        "ratio",
        "the most",
        "chosen"
    );
    for connections in CONNECTIONS {
        for step in [Duration::ZERO, Duration::from_millis(200)] {
            endpoint(proxy(server));
            let mut rates = [0.0_f64; 2];
            let mut windows = [0; 2];
            for _ in 0..ROUNDS - 1 {
                for (number, tune) in [false, true].into_iter().enumerate() {
                    let (rate, window) = chosen(connections, tune, step);
                    rates[number] = rates[number].max(rate);
                    windows[number] = window;
                }
            }
            println!(
                "{:<10}{connections:>12}{:>12}{:>14.0}{:>14.0}{:>8.2}{:>12}{:>10}",
                "own",
                step.as_millis(),
                rates[0],
                rates[1],
                rates[1] / rates[0],
                windows[0],
                windows[1]
            );
        }
    }
}

/// Returns the samples per second of 64 batches, and the maximum number of prefetched samples at
/// the end. The 64 batches before them are for tuning and are not measured.
fn chosen(connections: usize, tune: bool, step: Duration) -> (f64, usize) {
    let mut loader = build(connections, tune, 4);
    let mut begin = Instant::now();
    let (mut batches, mut images) = (0, 0);
    for _ in 0..4 {
        for batch in &mut loader {
            let len = batch.expect("a batch").len();
            thread::sleep(step);
            batches += 1;
            match batches {
                64 => begin = Instant::now(),
                _ => images += if batches > 64 { len } else { 0 },
            }
        }
    }
    let rate = images as f64 / begin.elapsed().as_secs_f64();
    (rate, loader.read_ahead().expect("the source is remote").window)
}

/// Returns the samples per second of an epoch. Opening the source and building the loader are not
/// measured.
fn loader(connections: usize) -> f64 {
    let mut loader = build(connections, true, 1);
    let begin = Instant::now();
    let images: usize = loader.epoch().map(|it| it.expect("a batch").len()).sum();
    assert_eq!(images as u64, SAMPLES);
    SAMPLES as f64 / begin.elapsed().as_secs_f64()
}

fn build(connections: usize, tune: bool, epochs: u32) -> Loader {
    // A new storage handle has no open connections, so every run opens its own.
    let settings = StorageSettings { connections, ..Default::default() };
    let storage = Storage::new(&settings).expect("the settings are valid");
    let source = Directory::open_with(format!("s3://{BUCKET}"), &Default::default(), &storage);
    let source = source.expect("the bucket exists");
    let loader = Loader::builder(source, Chain::new().then(Resize::to(32, 32)))
        .batch_size(32)
        .num_workers(2)
        .shuffle(true)
        .configure(|it| it.loader.tune = tune)
        .epochs(Some(epochs))
        .device(DeviceChoice::Cpu);
    // `build` reads a few images one after another before the threads start. So callers measure
    // only the time after it.
    loader.build().expect("the loader is valid")
}

/// Starts a proxy that delays every request by [`LATENCY`], and does not delay answers. Clients
/// send the next request of a connection only after the answer, so the proxy receives one whole
/// request at a time.
fn proxy(server: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let upstream = connect(server);
            client.set_nodelay(true).expect("a socket");
            let (mut from, mut to) =
                (client.try_clone().expect("a socket"), upstream.try_clone().expect("a socket"));
            thread::spawn(move || {
                let mut buffer = [0; 1 << 14];
                while let Ok(count @ 1..) = from.read(&mut buffer) {
                    thread::sleep(LATENCY);
                    if to.write_all(&buffer[..count]).is_err() {
                        break;
                    }
                }
                let _ = to.shutdown(std::net::Shutdown::Both);
            });
            let (mut from, mut to) = (upstream, client);
            thread::spawn(move || {
                let _ = std::io::copy(&mut from, &mut to);
                let _ = to.shutdown(std::net::Shutdown::Both);
            });
        }
    });
    address
}

fn connect(server: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(server).expect("the server accepts connections");
    stream.set_nodelay(true).expect("a socket");
    stream
}

/// Uploads an object that everyone may read, because the bare loop does not sign its requests.
fn put(server: SocketAddr, path: &str, body: &[u8]) {
    let mut stream = BufReader::new(connect(server));
    let len = body.len();
    let head = format!(
        "PUT {path} HTTP/1.1\r\nHost: {server}\r\nContent-Length: {len}\r\nx-amz-acl: public-read\r\n\r\n"
    );
    stream.get_mut().write_all(&[head.as_bytes(), body].concat()).expect("the server reads");
    assert_eq!(answer(&mut stream, &mut Vec::new()).0, 200, "{path}");
}

/// Reads an answer with its body. Returns the status, and whether the server closes the connection.
fn answer(stream: &mut BufReader<TcpStream>, body: &mut Vec<u8>) -> (u16, bool) {
    let mut line = String::new();
    stream.read_line(&mut line).expect("the server answers");
    let status = line.split(' ').nth(1).and_then(|it| it.parse().ok()).expect("a status");
    let (mut len, mut closes) = (0, false);
    loop {
        line.clear();
        stream.read_line(&mut line).expect("the server answers");
        let Some((name, value)) = line.trim().split_once(':') else { break };
        if name.eq_ignore_ascii_case("content-length") {
            len = value.trim().parse().expect("a length");
        }
        closes |= name.eq_ignore_ascii_case("connection") && value.trim() == "close";
    }
    body.resize(len, 0);
    stream.read_exact(body).expect("the server answers");
    (status, closes)
}
