use super::*;

#[test]
fn messages_contain_the_key_and_the_value() {
    let error = Error::config("chain[2].std[1]", "must be greater than 0, is 0");
    assert_eq!(error.to_string(), "chain[2].std[1]: must be greater than 0, is 0");
    let Error::Config(config) = error.clone() else { panic!("{error:?}") };
    assert_eq!((config.key.as_str(), config.to_string()), ("chain[2].std[1]", error.to_string()));
    let data_error = DataError::new(Reason::Truncated, "no end-of-image marker");
    let error = Error::Sample(SampleError::new(7, "data/7.jpg", data_error));
    let text = error.to_string();
    assert!(
        text.starts_with("data/7.jpg: truncated (sample 7): no end-of-image marker; "),
        "{text}"
    );
}

#[test]
fn a_sample_error_that_ends_a_run_suggests_the_setting_and_the_command() {
    let sample = SampleError::new(0, "a.jpg", DataError::new(Reason::Empty, "no bytes"));
    let counted = sample.to_string();
    let stops = Error::Sample(sample).to_string();
    for text in ["loader.on_error", "feedwater probe"] {
        assert!(stops.contains(text) && !counted.contains(text), "{stops}");
    }
}

#[test]
fn the_io_error_is_the_source_and_has_no_secrets() {
    use std::error::Error as _;
    let kind = |error: &dyn std::error::Error| {
        error.source().unwrap().downcast_ref::<io::Error>().unwrap().kind()
    };
    let missing = io::Error::from_raw_os_error(libc::ENOENT);
    let error = Error::io("a/b", &missing);
    assert_eq!(kind(&error), io::ErrorKind::NotFound);
    assert!(matches!(&error, Error::Io { source: Some(it), .. } if it.raw_os_error() == Some(2)));
    let denied = io::Error::new(io::ErrorKind::PermissionDenied, "http://user:word@host/a");
    let data_error = DataError::io(&denied);
    assert_eq!((data_error.reason, kind(&data_error)), (Reason::Unreadable, denied.kind()));
    let sample = SampleError::new(1, "a", data_error.clone().reworded("the row names it"));
    assert_eq!((kind(&sample), sample.problem.as_str()), (denied.kind(), "the row names it"));
    let error = Error::Sample(sample);
    assert_eq!(kind(&error), denied.kind());
    assert_eq!(error.source().unwrap().to_string(), "http://***@host/a");
    assert_eq!(data_error, DataError::io(&denied));
    assert_ne!(data_error.source, DataError::io(&missing).source);
    let data_error = DataError::io(&io::ErrorKind::OutOfMemory.into());
    assert_eq!(data_error.reason, Reason::OutOfMemory);
    assert!(Error::config("a", "b").source().is_none());
    assert!(DataError::new(Reason::Empty, "no bytes").source().is_none());
}

#[test]
fn displayed_errors_are_one_line_without_control_characters() {
    let name = "a\x1b[2J\x07\u{9b}\u{202e}\r\nfeedwater: done";
    let sample = SampleError::new(3, name, DataError::new(Reason::Corrupt, name));
    let at = Location::new(Some(std::path::Path::new(name)), b"a", 0..1);
    let config = ConfigError { at: Some(Box::new(at)), ..ConfigError::new(name, name) };
    let problem = name.to_string();
    for text in [
        config.to_string(),
        sample.to_string(),
        Error::Sample(sample).to_string(),
        DataError::new(Reason::Empty, name).to_string(),
        Error::io(name, &io::Error::other(name)).to_string(),
        Error::unavailable("it", name).to_string(),
        Error::Internal { problem }.to_string(),
    ] {
        assert!(!text.contains(|it: char| it.is_control() || it == '\u{202e}'), "{text:?}");
        assert!(text.contains("a\\u{1b}[2J\\u{7}\\u{9b}\\u{202e}\\r\\nfeedwater"), "{text}");
    }
}

#[test]
fn long_messages_are_cut_in_the_middle() {
    let name = format!("begins {} ends", "日本".repeat(1 << 20));
    let texts = [
        Error::config("source.coco", name.clone()).to_string(),
        Error::config(name.clone(), "is wrong").to_string(),
        Error::io(&name, &io::Error::other(name.clone())).to_string(),
        DataError::new(Reason::Corrupt, name.clone()).to_string(),
    ];
    for text in texts {
        assert!(text.len() < 3 * shorten::MOST_BYTES, "{} bytes", text.len());
        assert!(text.contains("begins 日") && text.contains("本 ends"), "{text}");
    }
    assert_eq!(shortened("short"), "short");
}
