//! Errors of pipeline files.

use super::*;

/// Wrong texts and their messages; `[source]` precedes each text.
#[test]
fn errors_name_the_full_key_and_the_nearest_name() {
    for (text, words) in [
        ("[loader]\nbatchs = 1", "loader.batchs: unknown key, did you mean batch?"),
        ("[laoder]\nbatch = 1", "laoder: unknown key, did you mean loader?"),
        (
            "[decode]\norientaton = true",
            "decode.orientaton: unknown key, did you mean orientation?",
        ),
        ("[output]\ntype = \"f32\"", "output.type: unknown key, did you mean dtype?"),
        ("[limits]\nmax_pixel = 1", "limits.max_pixel: unknown key, did you mean max_pixels?"),
        ("[storage]\nretrys = 1", "storage.retrys: unknown key, did you mean retries?"),
        ("[storage]\ntimeout = 0", "storage.timeout: must be from 1 to 3600 seconds, is 0"),
        ("[output]\ndtype = \"f23\"", "output.dtype: unknown choice f23, did you mean f32?"),
        (
            "[loader]\nlast = \"wrap\"",
            "loader.last: unknown choice wrap, choose one of drop, pad, partial",
        ),
        (
            "[loader]\nworkers = \"many\"",
            "loader.workers: must be an integer from 1 up or \"auto\", is string \"many\"",
        ),
        (
            "[loader]\nprefetch = 2.5",
            "loader.prefetch: must be an integer from 1 up or \"auto\", is floating point `2.5`",
        ),
        (
            "[loader]\nworkers = -2",
            "loader.workers: must be an integer from 1 up or \"auto\", is integer `-2`",
        ),
        ("[loader]\nworkers = 0", "loader.workers: must be at least 1, is 0"),
        ("[loader]\nworkers = 1025", "loader.workers: must be at most 1024, is 1025"),
        (
            "[limits]\ncpu_threads = 0",
            "limits.cpu_threads: must be at least 1, is 0; leave it out for no limit",
        ),
        (
            "[limits]\ncpu_threads = \"auto\"",
            "limits.cpu_threads: must be an integer from 0 up, is string \"auto\"",
        ),
        (
            "[[chain]]\nop = \"resise\"",
            "chain[0].op: unknown operator resise, did you mean resize?",
        ),
        (
            "[[chain]]\nop = \"flip\"\n[[chain]]\nop = \"flip\"\nhorizontl = 0.5",
            "chain[1].horizontl: unknown key, did you mean horizontal?",
        ),
        (
            "[[chain]]\nop = \"flip\"\nplacment = \"cpu\"",
            "chain[0].placment: unknown key, did you mean placement?",
        ),
        (
            "[[chain]]\nop = \"flip\"\nplacement = \"gpx\"",
            "chain[0].placement: unknown choice gpx, did you mean gpu?",
        ),
        ("[[chain]]\nop = \"center_crop\"\nwidth = 3", "chain[0].height: is missing"),
        ("[loader]\nbatch = 0", "loader.batch: must be at least 1, is 0"),
        ("[loader]\nbatch = -1", "loader.batch: must be an integer from 0 up, is integer `-1`"),
        ("[loader]\nbatch = \"x\"", "loader.batch: must be an integer from 0 up, is string \"x\""),
        ("[decode]\nprescale = 1", "decode.prescale: must be a boolean, is integer `1`"),
        (
            "[loader]\nrank = 2\nworld = 2",
            "loader.rank: must be below loader.world, which is 2, is 2",
        ),
        ("[loader]\nlast = 3", "loader.last: must be one of drop, pad, partial, is integer"),
        (
            "[[chain]]\nop = \"normalize\"\nmean = [0.5, 0.5, 0.5]\nstd = [0.2, \"x\", 0.2]",
            "chain[0].std[1]: must be a number, is string \"x\"",
        ),
        ("[limits]\nmax_file_bytes = \"1 mile\"", "limits.max_file_bytes: is 1 mile"),
        (
            "[limits]\nmax_file_bytes = \"-5 GiB\"",
            "limits.max_file_bytes: must be a number of bytes, such as 65536 or \"512 MiB\", is string \"-5 GiB\"",
        ),
        (
            "[cache]\ndecoded = \"9999999 TiB\"",
            "cache.decoded: is 9999999 TiB, must be at most 9223372036854775807 bytes (less than 8388608 TiB)",
        ),
        (
            "[storage]\nread_ahead = \"2000000 TiB\"",
            "storage.read_ahead: must be at most 1152921504606846976 bytes (1048576 TiB), is 2199023255552000000",
        ),
        (
            "[[chain]]\nop = \"center_crop\"\nwidth = 5000000000\nheight = 3",
            "chain[0].width: must be an integer from 0 to 4294967295, is integer `5000000000`",
        ),
        (
            "[limits]\nmax_file_bytes = -1",
            "limits.max_file_bytes: must be a number of bytes, such as 65536 or \"512 MiB\", is integer `-1`",
        ),
        (
            "[limits]\nmax_file_bytes = true",
            "limits.max_file_bytes: must be a number of bytes, such as 65536 or \"512 MiB\", is boolean `true`",
        ),
        ("[limits]\ndevice_memory = \"1 mile\"", "limits.device_memory: is 1 mile"),
        (
            "[decode]\nroutes = [\"cpu\", \"nvjpeg-hardwre\"]",
            "decode.routes[1]: unknown choice nvjpeg-hardwre, did you mean nvjpeg-hardware?",
        ),
        (
            "[decode]\nroutes = []",
            "decode.routes: is empty; name at least one of nvjpeg-hardware, nvjpeg-gpu, nvjpeg-hybrid, cpu",
        ),
        (
            "[decode]\nroutes = [\"cpu\", \"nvjpeg-hybrid\", \"cpu\"]",
            "decode.routes[2]: cpu is listed twice; remove it here",
        ),
        (
            "[decode]\nmax_cpu_threads = 0",
            "decode.max_cpu_threads: must be at least 1, is 0; leave it out for no limit",
        ),
        ("[decode]\nhardware_group = 0", "decode.hardware_group: must be 1 to 1024, is 0"),
        ("[decode]\nhardware_group = 1025", "decode.hardware_group: must be 1 to 1024, is 1025"),
        (
            "[[chain]]\nop = \"random_crop\"\nwidth = 3\nheight = 3\npadding = [1, 2]",
            "chain[0].padding: must be one value or 4 of them, has 2",
        ),
        (
            "[[chain]]\nop = \"random_crop\"\nwidth = 3\nheight = 3\npadding = \"x\"",
            "chain[0].padding: must be one value or 4 of them, is string \"x\"",
        ),
        (
            "[[chain]]\nop = \"random_crop\"\nwidth = 3\nheight = 3\npadding = -1",
            "chain[0].padding: must be an integer from 0 to 4294967295, is integer `-1`",
        ),
        (
            "[[chain]]\nop = \"random_crop\"\nwidth = 3\nheight = 3\npadding = [0, 0, \"x\", 0]",
            "chain[0].padding[2]: must be an integer from 0 to 4294967295, is string \"x\"",
        ),
        ("chain = 3", "chain: must be a list: [[chain]], is integer"),
        ("loader = 3", "loader: must be a table, is integer `3`"),
    ] {
        // A key outside any section must precede the first one.
        let text = if text.starts_with('[') {
            format!("{SOURCE}{text}")
        } else {
            format!("{text}\n{SOURCE}")
        };
        let error = Pipeline::from_toml(&text, "").unwrap_err();
        assert!(said(&error).starts_with(words), "{text}: {}", said(&error));
        assert!(error.location().is_some(), "{text}");
    }
}

#[test]
fn an_operators_own_check_runs_at_once() {
    let text = format!(
        "{SOURCE}[[chain]]\nop = \"flip\"\n[[chain]]\nop = \"normalize\"\nmean = [0, 0, 0]\nstd = [1, 0, 1]"
    );
    let words = said(&Pipeline::from_toml(&text, "").unwrap_err());
    assert!(words.starts_with("chain[1].std[1]: must be"), "{words}");
    assert!(words.ends_with("is 0"), "{words}");
}

#[test]
fn an_operator_without_a_name_is_an_error_that_lists_the_names() {
    let text = format!("{SOURCE}[[chain]]\nwidth = 3");
    let words = said(&Pipeline::from_toml(&text, "").unwrap_err());
    assert!(words.starts_with("chain[0].op: is missing; name an operator: "), "{words}");
    for name in feedwater::op::NAMES {
        assert!(words.contains(name), "{words}");
    }
}

#[test]
fn a_file_has_exactly_one_source() {
    for (text, words) in [
        ("", "source: is missing; write directory"),
        ("[source]", "source: is empty; write directory"),
        ("[source]\ndirectory = \"a\"\nlist = \"b\"", "source: has both directory and list"),
        ("[source]\ndirectry = \"a\"", "source.directry: unknown key, did you mean directory?"),
        ("[source]\ndirectory = 3", "source.directory: must be"),
        ("[source]\nlist = \"a\"\nimages = \"x\"", "source.images: unknown key"),
        ("[source]\ntfrecord = \"a\"\nlist = \"b\"", "source: has both list and tfrecord"),
        (
            "[source]\ntfrecord = \"a\"\nimag = \"x\"",
            "source.imag: unknown key, did you mean image?",
        ),
        ("[source]\ntfrecord = [\"a\", 3]", "source.tfrecord: must be"),
        ("source = 3", "source: must be a table, is integer"),
    ] {
        let error = said(&Pipeline::from_toml(text, "").unwrap_err());
        assert!(error.starts_with(words), "{error}");
    }
}

#[test]
fn an_empty_path_is_an_error_that_names_its_key() {
    for (text, expected) in [
        ("[source]\ndirectory = \"\"\n", "source.directory"),
        ("[source]\ntfrecord = [\"a\", \"\"]\n", "source.tfrecord"),
        ("[[source.concat]]\nlist = \"\"\n", "source.concat[0].list"),
        ("[source]\nlist = \"a\"\n[storage]\ncache_directory = \"\"\n", "storage.cache_directory"),
    ] {
        let Err(Error::Config(ConfigError { key, .. })) = Pipeline::from_toml(text, "base") else {
            panic!("{text}")
        };
        assert_eq!(key, expected);
    }
    let here = Pipeline::from_toml("[source]\ndirectory = \".\"\n", "base").unwrap();
    assert_eq!(here.source.paths(), [std::path::Path::new("base/.")]);
}

/// Reading them would never end.
#[test]
fn a_pipeline_file_must_be_a_regular_file() {
    let dir = tempfile::tempdir().unwrap();
    let (pipe, socket) = (dir.path().join("pipe.toml"), dir.path().join("socket.toml"));
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    for (path, kind) in [
        ("/dev/zero".into(), "a device"),
        (pipe, "a pipe"),
        (socket, "a socket"),
        (dir.path().to_path_buf(), "a folder"),
    ] {
        let Err(Error::Io { path: found, problem, .. }) = Pipeline::from_file(&path) else {
            panic!("{}", path.display())
        };
        assert!(found == path && problem.contains(kind), "{problem}");
    }
    let large = dir.path().join("large.toml");
    fs::File::create(&large).unwrap().set_len(1 << 40).unwrap();
    assert!(matches!(Pipeline::from_file(&large), Err(Error::Io { .. })));
}

/// Every source, for every file that it reads.
#[test]
fn files_of_a_source_must_be_regular_files() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for key in feedwater::source::KEYS {
        for path in ["/dev/zero", "pipe"] {
            let text = format!("[source]\n{key} = \"{path}\"\n");
            let pipeline = Pipeline::from_toml(&text, dir.path()).unwrap();
            assert!(pipeline.source.open().is_err(), "{text}");
        }
    }
    assert!(
        feedwater::source::detect(std::path::Path::new("/dev/zero"), &Storage::default()).is_err()
    );
    assert!(feedwater::source::detect(&pipe, &Storage::default()).is_err());
}
