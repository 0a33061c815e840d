//! Minimal HTTP server on loopback that serves only `GET /metrics`.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::threads;

/// Maximum number of open connections. A further connection replaces the one that has been waiting
/// longest for a complete request.
const CONNECTIONS: usize = 64;
/// Maximum number of connections that are accepted before the open ones are served.
const ACCEPTS: usize = 4 * CONNECTIONS;
/// Maximum size of a request, in bytes.
const MOST_BYTES: usize = 8 << 10;
/// Maximum number of system calls for one connection before the others are served.
const TURNS: u32 = 64;
/// Maximum lifetime of a connection.
const LIFE: Duration = Duration::from_secs(2);
/// Polling interval without and with open connections.
const IDLE: Duration = Duration::from_millis(50);
const BUSY: Duration = Duration::from_millis(2);

/// Server thread. It ends when this value is dropped.
pub(in crate::loader) struct Endpoint {
    address: SocketAddr,
    stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Endpoint {
    /// Starts to serve the text that `text` returns, at a loopback address.
    pub fn start(address: SocketAddr, text: impl Fn() -> String + Send + 'static) -> Result<Self> {
        if !address.ip().is_loopback() {
            let problem = format!(
                "{address} is not a loopback address, and metrics have no authentication; use \
                 127.0.0.1:{}, and a proxy for other machines",
                address.port()
            );
            return Err(Error::config("metrics", problem));
        }
        let refused = |error: io::Error| {
            Error::config(
                "metrics",
                format!("cannot be served at {address}: {error}; choose another port"),
            )
        };
        let listener = TcpListener::bind(address).map_err(refused)?;
        listener.set_nonblocking(true).map_err(refused)?;
        let address = listener.local_addr().map_err(refused)?;
        let stopped = Arc::new(AtomicBool::new(false));
        let stop = stopped.clone();
        let serve = move || serve(&listener, &stop, &text);
        let thread = std::thread::Builder::new().name("feedwater-metrics".into()).spawn(serve);
        let thread = thread
            .map_err(|error| threads::refused("feedwater-metrics", &error, "serve no metrics"))?;
        Ok(Self { address, stopped, thread: Some(thread) })
    }

    /// Address that is served.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A panic of the thread is not propagated.
            let _ = thread.join();
        }
    }
}

fn serve(listener: &TcpListener, stopped: &AtomicBool, text: &dyn Fn() -> String) {
    let mut connections = Connections::default();
    while !stopped.load(Ordering::Acquire) {
        connections.turn(listener, Instant::now(), text);
        std::thread::park_timeout(if connections.0.is_empty() { IDLE } else { BUSY });
    }
}

/// Open connections, in the order in which they were accepted.
#[derive(Default)]
struct Connections(Vec<Connection>);

impl Connections {
    /// Accepts all waiting connections, then serves each as far as possible without blocking.
    ///
    /// No client waits in the system's queue behind silent clients, because each connection is
    /// accepted and its request read at once. If there are too many, the oldest silent connection
    /// is closed.
    fn turn(&mut self, listener: &TcpListener, now: Instant, text: &dyn Fn() -> String) {
        for _ in 0..ACCEPTS {
            let Ok((stream, _)) = listener.accept() else { break };
            // A blocking socket would delay the others, so it is dropped.
            if stream.set_nonblocking(true).is_err() {
                continue;
            }
            let mut connection = Connection::new(stream, now);
            if connection.advance(now, text) {
                if self.0.len() == CONNECTIONS {
                    let silent = self.0.iter().position(Connection::is_reading);
                    self.0.remove(silent.unwrap_or(0));
                }
                self.0.push(connection);
            }
        }
        self.0.retain_mut(|it| it.advance(now, text));
    }
}

/// State of a connection.
enum State {
    Reading(Vec<u8>),
    /// The response, and the number of its bytes that are written.
    Writing(Vec<u8>, usize),
    /// Waits until the client has closed too. Otherwise the system would discard what the client
    /// has not read yet.
    Closing,
}

struct Connection {
    stream: TcpStream,
    state: State,
    ends: Instant,
}

impl Connection {
    fn new(stream: TcpStream, now: Instant) -> Self {
        Self { stream, state: State::Reading(Vec::new()), ends: now + LIFE }
    }

    /// Whether the request is incomplete.
    fn is_reading(&self) -> bool {
        matches!(self.state, State::Reading(_))
    }

    /// Continues without blocking. Returns false if the connection is finished.
    fn advance(&mut self, now: Instant, text: &dyn Fn() -> String) -> bool {
        if now >= self.ends {
            return false;
        }
        // A client that sends endlessly must not block the others.
        for _ in 0..TURNS {
            let moved = match &mut self.state {
                State::Reading(request) => {
                    let read = read(&mut self.stream, request);
                    match answer(request, text) {
                        Some(response) => {
                            self.state = State::Writing(response, 0);
                            Ok(1)
                        }
                        None => read,
                    }
                }
                State::Writing(response, at) => match self.stream.write(&response[*at..]) {
                    Ok(written) => {
                        *at += written;
                        if *at == response.len() {
                            if self.stream.shutdown(Shutdown::Write).is_err() {
                                return false;
                            }
                            self.state = State::Closing;
                        }
                        Ok(written)
                    }
                    Err(error) => Err(error),
                },
                State::Closing => self.stream.read(&mut [0; 1024]),
            };
            match moved {
                Ok(0) => return false,
                Ok(_) => {}
                Err(error) => {
                    let later = [ErrorKind::WouldBlock, ErrorKind::Interrupted];
                    return later.contains(&error.kind());
                }
            }
        }
        true
    }
}

/// Reads available bytes, up to one byte more than the maximum size of a request.
fn read(stream: &mut TcpStream, request: &mut Vec<u8>) -> io::Result<usize> {
    let mut part = [0; 1024];
    let room = (MOST_BYTES + 1 - request.len()).min(part.len());
    let read = stream.read(&mut part[..room])?;
    request.extend_from_slice(&part[..read]);
    Ok(read)
}

/// The response to a request; `None` while the request is incomplete.
fn answer(request: &[u8], text: &dyn Fn() -> String) -> Option<Vec<u8>> {
    if !request.windows(4).any(|it| it == b"\r\n\r\n") {
        let too_long = request.len() > MOST_BYTES;
        return too_long.then(|| response("431 Request Header Fields Too Large", "", "too long\n"));
    }
    let line = request.split(|&it| it == b'\r').next().unwrap_or_default();
    let words: Vec<&[u8]> = line.split(|&it| it == b' ').collect();
    let &[method, target, version] = &words[..] else {
        return Some(response("400 Bad Request", "", "not HTTP\n"));
    };
    if !version.starts_with(b"HTTP/1.") {
        return Some(response("400 Bad Request", "", "not HTTP/1\n"));
    }
    let path = target.split(|&it| it == b'?').next().unwrap_or_default();
    Some(match (path, method) {
        (b"/metrics", b"GET") => response("200 OK", "", &text()),
        (b"/metrics", _) => response("405 Method Not Allowed", "Allow: GET\r\n", "GET only\n"),
        _ => response("404 Not Found", "", "see /metrics\n"),
    })
}

fn response(status: &str, header: &str, body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status}\r\n{header}Content-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request is answered by one call of `turn`, although more silent clients than the maximum
    /// number of connections are queued before it. `now` is fixed, so the test does not depend on
    /// the clock.
    #[test]
    fn a_request_behind_many_silent_clients_is_answered_in_the_same_scan() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let connect = || TcpStream::connect(address).unwrap();
        // All wait in the listener's queue, which has 128 entries.
        let silent: Vec<TcpStream> = (0..CONNECTIONS + 16).map(|_| connect()).collect();
        let mut scraper = connect();
        scraper.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let late: Vec<TcpStream> = (0..16).map(|_| connect()).collect();

        let now = Instant::now();
        let mut connections = Connections::default();
        connections.turn(&listener, now, &|| "a 1\n".into());
        scraper.set_nonblocking(true).unwrap();
        let mut response = [0; 1024];
        let read = scraper.read(&mut response).expect("the response is ready after one scan");
        assert!(response[..read].starts_with(b"HTTP/1.1 200 OK\r\n"));

        assert_eq!(connections.0.len(), CONNECTIONS);
        // The oldest silent clients were closed, but not the one that was answered.
        let answered = connections.0.iter().filter(|it| !it.is_reading()).count();
        assert_eq!(answered, 1);
        connections.turn(&listener, now + LIFE, &String::new);
        assert_eq!(connections.0.len(), 0, "every connection ends after its time limit");
        drop((silent, late));
    }
}
