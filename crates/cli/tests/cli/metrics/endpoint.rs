//! The metrics endpoint with well-behaved and malicious clients.

use super::*;

/// Sends a request to the endpoint and returns the status line and the body.
fn asked(address: SocketAddr, request: &[u8]) -> (String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(request).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    let length = head.lines().find_map(|it| it.strip_prefix("Content-Length: ")).unwrap();
    assert_eq!(length.parse(), Ok(body.len()));
    (head.lines().next().unwrap().to_string(), body.to_string())
}

#[test]
fn the_endpoint_answers_get_metrics_and_rejects_everything_else() {
    let loader = after_a_run(builder());
    let address = loader.serve_metrics(LOCAL).unwrap();
    for target in ["/metrics", "/metrics?a=b"] {
        let request = format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
        let (status, body) = asked(address, request.as_bytes());
        assert_eq!(status, "HTTP/1.1 200 OK");
        assert_eq!(value(&parsed(&body), "feedwater_images_total", ""), 80.0);
    }
    let long = format!("GET /metrics HTTP/1.1\r\nA: {}\r\n\r\n", "a".repeat(9000));
    for (request, status) in [
        ("GET / HTTP/1.1\r\n\r\n", "404 Not Found"),
        ("GET /metricsx HTTP/1.1\r\n\r\n", "404 Not Found"),
        ("POST /metrics HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", "405 Method Not Allowed"),
        ("DELETE /metrics HTTP/1.0\r\n\r\n", "405 Method Not Allowed"),
        ("GET /metrics\r\n\r\n", "400 Bad Request"),
        ("GET /metrics HTTP/2\r\n\r\n", "400 Bad Request"),
        ("\r\n\r\n", "400 Bad Request"),
        (&long, "431 Request Header Fields Too Large"),
    ] {
        assert_eq!(
            asked(address, request.as_bytes()).0,
            format!("HTTP/1.1 {status}"),
            "{request:?}"
        );
    }
    let problem = refused(&loader, LOCAL);
    assert!(problem.contains(&address.to_string()), "{problem}");
}

/// Returns the error message of an endpoint that cannot be started.
#[track_caller]
fn refused(loader: &Loader, address: SocketAddr) -> String {
    let error = loader.serve_metrics(address).unwrap_err();
    let Error::Config(error) = error else { panic!("{error}") };
    assert_eq!(error.key, "metrics", "{error}");
    error.problem
}

#[test]
fn the_endpoint_is_for_loopback_only() {
    let loader = builder().build().unwrap();
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:9090"] {
        let asked: SocketAddr = address.parse().unwrap();
        let problem = refused(&loader, asked);
        let offered = format!("127.0.0.1:{}", asked.port());
        assert!(has_words(&problem, &[address, &offered]), "{problem}");
    }
    let taken = builder().build().unwrap();
    let address = taken.serve_metrics(LOCAL).unwrap();
    let problem = refused(&loader, address);
    let in_use = std::io::Error::from_raw_os_error(libc::EADDRINUSE).to_string();
    assert!(problem.contains(&address.to_string()) && problem.contains(&in_use), "{problem}");
}

/// Some clients send slowly, send nothing, send without end, or do not read. They must not block
/// other clients or the end of the loader.
#[test]
fn hostile_clients_block_nothing() {
    let loader = after_a_run(builder());
    let address = loader.serve_metrics(LOCAL).unwrap();
    let mut hostile = Vec::new();
    for number in 0..12 {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_nonblocking(true).unwrap();
        // The server closes some of the connections at the end.
        let _ = match number % 3 {
            0 => stream.write(b"GET /met"),
            1 => stream.write(b"GET /metrics HTTP/1.1\r\n\r\nand more"),
            _ => Ok(0),
        };
        hostile.push(stream);
    }
    let flood = TcpStream::connect(address).unwrap();
    let flooding = std::thread::spawn(move || {
        let mut flood = flood;
        while flood.write_all(&[b'a'; 4096]).is_ok() {}
    });
    let (status, _) = asked(address, b"GET /metrics HTTP/1.1\r\n\r\n");
    assert_eq!(status, "HTTP/1.1 200 OK");
    let begin = Instant::now();
    drop(loader);
    assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", begin.elapsed());
    flooding.join().unwrap();
    let refused = TcpStream::connect(address).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "the thread must end with the loader");
}

/// A silent client is disconnected while the loader still exists.
#[test]
fn a_silent_client_is_disconnected() {
    let loader = builder().build().unwrap();
    let address = loader.serve_metrics(LOCAL).unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    assert_eq!(stream.read(&mut [0; 10]).unwrap(), 0);
}
