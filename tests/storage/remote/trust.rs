//! TLS certificates. A server with a certificate of a private authority is trusted only if a
//! setting names the authority.

use std::io::Write;

use super::*;

fn with_authority() -> StorageSettings {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/tls/authority.pem");
    StorageSettings { ca_file: Some(file), ..settings() }
}

fn https(server: &Server) -> String {
    server.url("/file").replace("http://", "https://")
}

#[test]
fn a_certificate_of_a_configured_authority_is_trusted() {
    let storage = storage(&with_authority());
    let server = Server::start_tls("good");
    server.put("/file", some_bytes(100_000));
    let url = https(&server);
    assert_eq!(part(&storage, &url, 70_000, 500).unwrap(), some_bytes(100_000)[70_000..70_500]);
    assert_eq!(storage.read(Path::new(&url)).unwrap(), some_bytes(100_000));
    // The certificate is also valid for the name `localhost`.
    let url = url.replace("127.0.0.1", "localhost");
    assert_eq!(storage.read(Path::new(&url)).unwrap(), some_bytes(100_000));
}

#[test]
fn an_invalid_certificate_is_an_immediate_error_with_the_reason() {
    // The message must contain the setting that helps, or the reason in the words of the TLS
    // library.
    for (trusted, certificate, terms) in [
        (settings(), "good", &["storage.ca_file"][..]),
        (with_authority(), "other", &["NotValidForName", "not valid for"]),
        (with_authority(), "past", &["Expired", "expired"]),
    ] {
        let storage = storage(&trusted);
        let server = Server::start_tls(certificate);
        server.put("/file", [1]);
        let error = storage.read(Path::new(&https(&server))).unwrap_err();
        assert_error(&error, ErrorKind::PermissionDenied, &[]);
        let text = error.to_string();
        assert!(terms.iter().any(|term| text.contains(term)), "{certificate}: {text}");
        assert_eq!(storage.stats().requests, 1, "{certificate} must be tried only once");
        assert_eq!(server.log(""), []);
    }
}

#[test]
fn a_server_without_tls_and_a_file_without_certificates_are_errors() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}/file", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n").unwrap();
    });
    let error = USUAL.read(Path::new(&url)).unwrap_err();
    assert_error(&error, ErrorKind::InvalidData, &["TLS"]);
    let root = tempfile::tempdir().unwrap();
    let empty = root.path().join("empty.pem");
    fs::write(&empty, "nothing").unwrap();
    for file in [empty, root.path().join("missing.pem")] {
        let storage = storage(&StorageSettings { ca_file: Some(file), ..settings() });
        let error = storage.read(Path::new(&BUCKETS.url("/trust"))).unwrap_err().to_string();
        assert!(error.contains("storage.ca_file"), "{error}");
    }
}
