//! Single requests, and how they fail.

use super::*;

#[test]
fn a_file_of_any_service_is_read_in_parts_and_whole() {
    let (server, _guard) = buckets();
    let bytes = some_bytes(100_000);
    server.put("/any/a b/file.bin", &bytes[..]);
    let urls = [
        server.url("/any/a%20b/file.bin"),
        "s3://any/a b/file.bin".into(),
        "gs://any/a b/file.bin".into(),
        "az://any/a b/file.bin".into(),
    ];
    for url in urls {
        let file = USUAL.open(Path::new(&url)).unwrap();
        assert_eq!(file.stamp().unwrap().len, 100_000, "{url}");
        let mut buffer = vec![0; 500];
        file.read_exact_at(&mut buffer, 70_000).unwrap();
        assert_eq!(buffer, bytes[70_000..70_500]);
        assert_eq!(file.read_at(&mut buffer, 99_900).unwrap(), 100);
        assert_eq!(buffer[..100], bytes[99_900..]);
        assert_eq!(file.read_at(&mut buffer, 1 << 40).unwrap(), 0);
        let kind = file.read_exact_at(&mut buffer, 99_900).unwrap_err().kind();
        assert_eq!(kind, std::io::ErrorKind::UnexpectedEof);
        assert_eq!(USUAL.read(Path::new(&url)).unwrap(), bytes);
    }
}

#[test]
fn an_empty_file_is_read_without_a_request_for_its_bytes() {
    let (server, _guard) = buckets();
    server.put("/empty/file", []);
    let url = server.url("/empty/file");
    assert!(part(&USUAL, &url, 0, 0).unwrap().is_empty());
    assert_eq!(server.log("/empty/").len(), 1);
    assert!(USUAL.read(Path::new(&url)).unwrap().is_empty());
}

#[test]
fn a_request_with_a_transient_failure_is_retried() {
    let (server, _guard) = buckets();
    let bytes = some_bytes(50_000);
    let faults = [
        Fault::Status(500),
        Fault::Status(503),
        Fault::Status(429),
        Fault::Close,
        Fault::Cut(0),
        Fault::Cut(4_000),
        Fault::Short(1),
        Fault::OtherRange,
    ];
    for (number, fault) in faults.into_iter().enumerate() {
        let path = format!("/again/{number}");
        server.put(&path, &bytes[..]);
        let url = server.url(&path);
        let file = USUAL.open(Path::new(&url)).unwrap();
        server.fail(&path, [fault]);
        let mut buffer = vec![0; 40_000];
        file.read_exact_at(&mut buffer, 10_000).unwrap();
        assert_eq!(buffer, bytes[10_000..], "{fault:?}");
        assert_eq!(
            server.log(&path).len(),
            3,
            "{fault:?}: one request for the length and two for the bytes"
        );
    }
    // An answer that is only slow must not be retried.
    for fault in
        [Fault::Late(Duration::from_millis(300)), Fault::Slow(10_000, Duration::from_millis(20))]
    {
        server.put("/again/slow", &bytes[..]);
        let url = server.url("/again/slow");
        let before = server.log("/again/slow").len();
        server.fail("/again/slow", [fault]);
        assert_eq!(USUAL.read(Path::new(&url)).unwrap(), bytes);
        assert_eq!(server.log("/again/slow").len(), before + 1, "{fault:?}");
    }
}

#[test]
fn a_request_is_retried_after_the_timeout() {
    let (server, _guard) = buckets();
    let impatient = storage(&StorageSettings { timeout: 1, ..settings() });
    let bytes = some_bytes(50_000);
    // A request may take one second (`timeout`), plus one second per 64 KiB. Both servers take
    // longer.
    let slow = Fault::Slow(1_000, Duration::from_millis(100));
    for (path, fault) in [("/late/silent", Fault::Hang), ("/late/slow", slow)] {
        server.put(path, &bytes[..]);
        let file = impatient.open(Path::new(&server.url(path))).unwrap();
        let before = server.log(path).len();
        server.fail(path, [fault]);
        let mut buffer = vec![0; 40_000];
        file.read_exact_at(&mut buffer, 10_000).unwrap();
        assert_eq!(buffer, bytes[10_000..], "{fault:?}");
        assert!(server.log(path).len() >= before + 2, "{fault:?}");
    }
}

#[test]
fn a_request_fails_after_the_last_retry() {
    let (server, _guard) = buckets();
    server.put("/down/file", [1]);
    server.fail("/down/file", [Fault::Status(503); 4]);
    let error = USUAL.read(Path::new(&server.url("/down/file"))).unwrap_err();
    assert_error(&error, ErrorKind::TimedOut, &["503", "storage.retries"]);
    // The message must contain the number of attempts.
    assert!(has_number(&error.to_string(), 4), "{error}");
    assert_eq!(server.log("/down/").len(), 4);
    assert_eq!(USUAL.read(Path::new(&server.url("/down/file"))).unwrap(), [1]);
}

#[test]
fn a_refused_connection_is_an_error_after_the_last_retry() {
    let _buckets = buckets();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let error = USUAL.open(Path::new(&format!("http://{address}/file"))).unwrap_err();
    assert_error(&error, ErrorKind::TimedOut, &["storage.retries"]);
    let text = error.to_string();
    assert!(has_number(&text, 4) && text.to_lowercase().contains("connect"), "{text}");
}

#[test]
fn a_rejected_request_is_an_immediate_error_with_advice() {
    let (server, _guard) = buckets();
    for (status, kind) in [
        (400, ErrorKind::Other),
        (401, ErrorKind::PermissionDenied),
        (403, ErrorKind::PermissionDenied),
        (404, ErrorKind::NotFound),
    ] {
        for root in [server.url("/refused"), "s3://refused".into()] {
            server.put("/refused/file", some_bytes(100));
            let file = USUAL.open(Path::new(&format!("{root}/file"))).unwrap();
            let before = server.log("/refused/").len();
            server.fail("/refused/file", [Fault::Status(status)]);
            let error = file.read_exact_at(&mut [0; 10], 5).unwrap_err();
            assert_error(&error, kind, &[&status.to_string()]);
            let way_out =
                if root.starts_with("s3") { "AWS_ACCESS_KEY_ID" } else { "user:password@" };
            let advised = error.to_string().contains(way_out);
            assert_eq!(advised, [401, 403].contains(&status), "{error}");
            assert_eq!(server.log("/refused/").len(), before + 1, "{status}");
        }
    }
}

#[test]
fn a_changed_file_is_an_error_and_never_mixed() {
    let (server, _guard) = buckets();
    let path = "/changed/file";
    for url in [server.url(path), "s3://changed/file".into()] {
        server.put(path, some_bytes(1000));
        let file = USUAL.open(Path::new(&url)).unwrap();
        server.put(path, vec![7; 1000]);
        let error = file.read_exact_at(&mut [0; 10], 5).unwrap_err();
        assert_error(&error, ErrorKind::Other, &["changed"]);
        assert_eq!(part(&USUAL, &url, 5, 2).unwrap(), [7, 7]);
    }
}

#[test]
fn a_server_without_ranges_serves_whole_files_only() {
    let _buckets = buckets();
    let server = Server::start();
    server.whole_files_only();
    server.put("/file", some_bytes(1000));
    let url = server.url("/file");
    assert_eq!(USUAL.read(Path::new(&url)).unwrap(), some_bytes(1000));
    let error = part(&USUAL, &url, 5, 10).unwrap_err();
    assert_error(&error, ErrorKind::Unsupported, &["range"]);
    assert_eq!(server.log("/file").len(), 3);
}

#[test]
fn unknown_urls_are_errors_with_advice() {
    let _buckets = buckets();
    let cases: [(&str, &[&str]); 3] = [
        ("ftp://host/file", &["ftp://", "s3://", "gs://", "az://", "abfss://", "https://"]),
        ("http://host/file?token=1", &["?", "#"]),
        ("s3:///file", &["s3:///file"]),
    ];
    for (url, values) in cases {
        let error = USUAL.open(Path::new(url)).unwrap_err();
        assert_error(&error, ErrorKind::InvalidInput, values);
    }
    let error = USUAL.list(Path::new("http://host/folder")).unwrap_err();
    assert_error(&error, ErrorKind::Unsupported, &["http://"]);
}
