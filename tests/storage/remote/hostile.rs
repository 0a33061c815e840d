//! Servers that are malicious or broken: wrong answers, stalls and redirects.

use std::sync::{Arc, Mutex};

use feedwater::internals::config::Pipeline;
use feedwater::storage::{Redirects, RequestEvent};

use super::*;

/// Returns an answer that redirects to `to`.
fn redirect(status: u16, to: &str) -> Fault {
    Fault::Other(status, format!("Location: {to}\r\n").leak(), "")
}

fn list_error(storage: &Storage, url: &str) -> std::io::Error {
    storage.list_all(Path::new(url)).unwrap_err()
}

fn read_error(storage: &Storage, url: &str) -> std::io::Error {
    storage.read(Path::new(url)).unwrap_err()
}

#[test]
fn redirects_never_take_a_signed_request_to_another_host() {
    let (server, _guard) = buckets();
    let thief = Server::start();
    thief.put("/moved/file", [1]);
    for status in [301, 302, 303, 307, 308] {
        let moved = redirect(status, &thief.url("/moved/file"));
        server.fail("/moved/file", [moved; 3]);
        server.fail("/moved", [moved]);
        for error in [
            USUAL.open(Path::new("s3://moved/file")).unwrap_err(),
            read_error(&USUAL, "s3://moved/file"),
            read_error(&USUAL, "gs://moved/file"),
            list_error(&USUAL, "s3://moved"),
        ] {
            assert_error(&error, ErrorKind::PermissionDenied, &[&thief.url("/moved/file")]);
        }
    }
    assert_eq!(thief.log(""), [], "the other host received a request");
    let sent = server.log("/moved/file");
    assert!(
        sent.iter().any(|it| it.head.contains(&("x-amz-security-token".into(), "session".into())))
    );
    // If a bucket is in another region, Amazon's answer names the region.
    let head = "Location: https://elsewhere.example/\r\nx-amz-bucket-region: eu-north-1\r\n";
    server.fail("/moved/file", [Fault::Other(301, head, "")]);
    let error = read_error(&USUAL, "s3://moved/file");
    assert_error(&error, ErrorKind::PermissionDenied, &["AWS_REGION", "eu-north-1"]);
}

#[test]
fn a_redirect_of_http_stays_at_its_host() {
    let (server, _guard) = buckets();
    let set = |redirects| storage(&StorageSettings { redirects, ..settings() });
    let other = Server::start();
    other.put("/new", [2; 9]);
    server.put("/new", [1; 9]);
    let (same_host, old) = (set(Redirects::SameHost), server.url("/old"));
    // The first redirect answers the request for the length, and the second one the request for the
    // bytes.
    server.fail("/old", [redirect(302, "/new"), redirect(308, &server.url("/new"))]);
    assert_eq!(part(&same_host, &old, 3, 2).unwrap(), [1, 1]);
    assert_eq!(server.log("/new").last().unwrap().range, Some(3..5));
    server.fail("/old", [redirect(302, &other.url("/new"))]);
    let refused = ErrorKind::PermissionDenied;
    let error = read_error(&same_host, &old);
    assert_error(&error, refused, &["storage.redirects", &other.url("/new")]);
    server.fail("/old", [redirect(302, "/old"); 12]);
    let error = read_error(&same_host, &old);
    assert_error(&error, refused, &[&old]);
    // The message must contain the maximum number of redirects.
    assert!(has_number(&error.to_string(), 10), "{error}");
    assert_eq!(server.log("/old").len(), 2 + 1 + 11);
    assert_eq!(other.log(""), []);

    let old = server.url("/old-any").replace("http://", "http://user:secret@");
    server.fail("/old-any", [redirect(302, &other.url("/new"))]);
    let error = read_error(&set(Redirects::Any), &old);
    assert_error(&error, refused, &[&other.url("/new")]);
    // The URL contains a password, so no setting permits this redirect. The message must not
    // suggest one.
    assert!(!error.to_string().contains("storage.redirects"), "{error}");
    assert_eq!(other.log(""), []);

    server.fail("/old-none", [redirect(302, "/new")]);
    let error = read_error(&set(Redirects::None), &server.url("/old-none"));
    assert_error(&error, refused, &["storage.redirects", &server.url("/new")]);
}

#[test]
fn a_user_in_a_url_is_sent_and_never_shown() {
    let (server, _guard) = buckets();
    let with_user = |path: &str| server.url(path).replace("http://", "http://user:se%63ret@");
    server.put("/user/list.txt", "0.jpg\t7\nmissing.jpg\t8\n");
    server.put("/user/0.jpg", [5; 9]);
    let source = list(with_user("/user/list.txt"), &USUAL).unwrap();
    assert_eq!(read(&source, 0).unwrap(), [5; 9]);
    let log = server.log("/user/");
    let basic = ("authorization".to_string(), "Basic dXNlcjpzZWNyZXQ=".to_string());
    assert!(!log.is_empty() && log.iter().all(|it| it.head.contains(&basic)), "{log:?}");
    server.fail("/user/0.jpg", [Fault::Status(401)]);
    let refused = USUAL.read(Path::new(&with_user("/user/0.jpg"))).unwrap_err();
    let toml = format!(
        "[source]\nlist = \"{}\"\n[[chain]]\nop = \"normalize\"\nmean = [0.5, 0.5, 0.5]\nstd = [0.5, 0.5, 0.5]\n",
        with_user("/user/no.txt")
    );
    let pipeline = Pipeline::from_toml(&toml, "").unwrap();
    let failed = pipeline.source.open_with(&USUAL).err().unwrap();
    let file = USUAL.open(Path::new(&with_user("/user/0.jpg"))).unwrap();
    for shown in [
        source.describe(),
        source.location(0),
        source.location(1),
        format!("{:?}", read(&source, 1)),
        format!("{refused} {refused:?}"),
        format!("{failed} {failed:?}"),
        format!("{pipeline:?}"),
        format!("{file:?}"),
    ] {
        assert!(!shown.contains("secret") && !shown.contains("se%63ret"), "{shown}");
    }
    assert!(pipeline.to_toml().unwrap().contains("se%63ret"), "the file must contain the same URL");
    assert!(source.location(0).contains("http://***@"));
    for url in [
        "s3://key:secret@bucket/a",
        "https://host/a?X-Amz-Signature=secret",
        "az://c/a?sv=1&sig=secret",
    ] {
        let error = list(url, &USUAL).err().unwrap();
        let shown = format!("{error} {error:?}");
        assert!(!shown.contains("secret"), "{shown}");
    }
}

/// Returns a page of a listing with these names and the token of the next page.
fn page(names: &[&str], token: Option<&str>) -> Fault {
    let names = names.iter().map(|name| {
        format!(
            "<Contents><Key>{name}</Key><Size>1</Size><ETag>\"1\"</ETag>\
             <LastModified>2026-11-21T09:00:00.000Z</LastModified></Contents>"
        )
    });
    let token = token.map(|it| format!("<NextContinuationToken>{it}</NextContinuationToken>"));
    let text = names.chain(token).collect::<String>();
    Fault::Other(
        200,
        "",
        format!("<?xml version=\"1.0\"?><ListBucketResult>{text}</ListBucketResult>").leak(),
    )
}

#[test]
fn an_endless_listing_or_one_with_invalid_paths_is_an_error() {
    let (server, _guard) = buckets();
    let html = "<!DOCTYPE html><html><body>Log in</body></html>";
    let cases: [(&str, Vec<Fault>, usize, &str); 9] = [
        ("same-token", vec![page(&["a"], Some("1")), page(&["b"], Some("1"))], 2, "token"),
        ("same-names", vec![page(&["a"], Some("1")), page(&["a"], Some("2"))], 2, "names"),
        ("parent", vec![page(&["a", "b/../c"], None)], 1, "b/../c"),
        ("newline", vec![page(&["a&#10;b"], None)], 1, "a\\nb"),
        ("empty-part", vec![page(&["a//b"], None)], 1, "a//b"),
        ("login", vec![Fault::Other(200, "Content-Type: text/html\r\n", html)], 1, "HTML"),
        ("words", vec![Fault::Other(200, "", "hello")], 1, "hello"),
        ("nothing", vec![Fault::Other(200, "", "")], 1, "listing"),
        ("cut", vec![Fault::Other(200, "", "<ListBucketResult><Contents>")], 1, "listing"),
    ];
    for (bucket, faults, requests, word) in cases {
        let path = format!("/hostile-{bucket}");
        server.fail(&path, faults);
        let error = list_error(&USUAL, &format!("s3://hostile-{bucket}"));
        assert_error(&error, ErrorKind::InvalidData, &[word]);
        assert_eq!(server.log(&path).len(), requests, "{bucket}");
    }
}

#[test]
fn a_listing_is_bounded() {
    let (server, _guard) = buckets();
    let storage = storage(&StorageSettings { max_listed: 25, ..settings() });
    let put = |number: usize| server.put(&format!("/bounded/{number:02}"), [1]);
    (0..25).for_each(put);
    assert_eq!(storage.list_all(Path::new("s3://bounded")).unwrap().len(), 25);
    (25..60).for_each(put);
    server.forget("/bounded");
    for error in
        [list_error(&storage, "s3://bounded"), storage.list(Path::new("s3://bounded")).unwrap_err()]
    {
        assert_error(&error, ErrorKind::InvalidData, &["storage.max_listed", "25"]);
    }
    assert_eq!(server.log("/bounded").len(), 2 * 3, "there must be ten names per page");
}

#[test]
fn a_login_page_is_not_an_object() {
    let (server, _guard) = buckets();
    let page =
        Fault::Other(200, "Content-Type: text/html; charset=utf-8\r\n", "<html>Log in</html>");
    for url in [server.url("/login/0.jpg"), "s3://login/0.jpg".into()] {
        server.fail("/login/0.jpg", [page; 2]);
        let before = server.log("/login/").len();
        for error in [USUAL.open(Path::new(&url)).unwrap_err(), read_error(&USUAL, &url)] {
            assert_error(&error, ErrorKind::InvalidData, &["HTML"]);
        }
        assert_eq!(server.log("/login/").len(), before + 2, "{url}");
    }
    // If the URL itself names an HTML page, the page is returned.
    server.fail("/login/list.html", [page]);
    assert!(USUAL.read(Path::new(&server.url("/login/list.html"))).is_ok());
}

#[test]
fn a_servers_retry_after_is_respected() {
    let (server, _guard) = buckets();
    let date =
        "Date: Sat, 21 Nov 2026 09:00:00 GMT\r\nRetry-After: Sat, 21 Nov 2026 09:00:01 GMT\r\n";
    for (number, (status, head)) in
        [(429, "Retry-After: 1\r\n"), (503, "Retry-After: 1\r\n"), (429, date)]
            .into_iter()
            .enumerate()
    {
        let path = format!("/alone/{number}");
        server.put(&path, [1]);
        server.fail(&path, [Fault::Other(status, head, "")]);
        let begun = Instant::now();
        assert_eq!(USUAL.read(Path::new(&server.url(&path))).unwrap(), [1]);
        assert!(begun.elapsed() >= Duration::from_secs(1), "{head}: {:?}", begun.elapsed());
        assert_eq!(server.log(&path).len(), 2);
    }
    server.put("/alone/hours", [1]);
    server.fail("/alone/hours", [Fault::Other(429, "Retry-After: 7200\r\n", "")]);
    let error = read_error(&USUAL, &server.url("/alone/hours"));
    assert_error(&error, ErrorKind::TimedOut, &["429", "7200"]);
    assert_eq!(server.log("/alone/hours").len(), 1);
}

#[test]
fn a_silent_server_fails_an_opening_soon_and_is_reported_at_once() {
    let stalled = StorageSettings { retries: 100, timeout: 1, open_timeout: 2, ..settings() };
    let (server, _guard) = buckets();
    let storage = storage(&stalled);
    let events = Arc::new(Mutex::new(Vec::new()));
    let sink = events.clone();
    storage.watch_requests(move |event| sink.lock().unwrap().push(event.clone()));
    let paths: Vec<PathBuf> = (0..40)
        .map(|number| {
            let path = format!("/stalled/{number:02}.tfrecord");
            server.fail(&path, [Fault::Hang; 101]);
            server.url(&path).into()
        })
        .collect();
    let begun = Instant::now();
    let error = TfRecord::open_with(&paths, &TfRecordSettings::default(), &storage)
        .err()
        .unwrap()
        .to_string();
    // Without a common limit for all files, each of the 40 files would take 101 attempts of one
    // second.
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    assert!(error.contains("storage.open_timeout") && error.contains("/stalled/"), "{error}");
    // Opening a list searches for its largest file. This search skips missing files, but reports a
    // server that does not answer.
    let text = (0..40).map(|number| format!("{number:02}.jpg\t0\n")).collect::<String>();
    server.put("/stalled/list.txt", text);
    (0..40)
        .for_each(|number| server.fail(&format!("/stalled/{number:02}.jpg"), [Fault::Hang; 101]));
    let opened = list(server.url("/stalled/list.txt"), &storage).and_then(|source| {
        Loader::builder(source, common::training()).batch_size(5).device(DeviceChoice::Cpu).build()
    });
    let problem = opened.err().map(|error| error.to_string());
    assert!(problem.as_ref().is_some_and(|it| it.contains("storage.open_timeout")), "{problem:?}");
    assert!(begun.elapsed() < Duration::from_secs(90), "{:?}", begun.elapsed());
    let log = server.log("/stalled/");
    assert!(log.len() < 500, "{} requests", log.len());
    let events = events.lock().unwrap();
    let first = events.iter().find_map(|it| match it {
        RequestEvent::Failed { url, attempt, attempts, problem, .. } => {
            Some((url.to_string(), *attempt, *attempts, problem.clone()))
        }
        _ => None,
    });
    let (url, attempt, attempts, problem) = first.unwrap();
    // The message must contain the number of seconds without an answer.
    assert!(url.contains("/stalled/") && has_number(&problem, 1), "{url}: {problem}");
    assert_eq!((attempt, attempts), (1, 101));
}

/// The file has the beginning of a file of row indexes, and then 8 MiB of invalid entries.
#[test]
fn a_file_of_row_indexes_is_fetched_as_far_as_the_cache_has_space() {
    let (server, _guard) = buckets();
    server.put("/rows/train-000000.tar", golden("train-000000.tar"));
    let mut rows = Vec::new();
    feedwater::internals::decode::begin_row_indexes(&mut rows).unwrap();
    // Entries with an invalid version.
    let wrong = [200u32.to_le_bytes().to_vec(), vec![9; 200]].concat();
    rows.extend(wrong.repeat((8 << 20) / wrong.len()));
    server.put("/rows/train-000000.tar.rows", rows);
    let url: PathBuf = server.url("/rows/train-000000.tar").into();
    let settings = WebDatasetSettings::default();
    let source = WebDataset::open_with(std::slice::from_ref(&url), &settings, &USUAL).unwrap();
    let limit = 2 << 20;
    let builder =
        Loader::builder(source, common::training()).batch_size(1).device(DeviceChoice::Cpu);
    let mut loader = builder.configure(|it| it.cache.row_index = Some(limit)).build().unwrap();
    assert!(loader.epoch().all(|batch| batch.is_ok()));
    let log = server.log("/rows/train-000000.tar.rows");
    let ranges = log.iter().filter(|it| it.method == "GET").map(|it| it.range.clone());
    let fetched: usize = ranges.map(|range| range.expect("a part").len()).sum();
    assert!(fetched > 0 && fetched <= limit as usize, "{fetched} bytes in {log:?}");
}
