//! Error messages of pipeline files.

use super::*;
use crate::common::words::has_words;

/// Each case has a text with an error, the key of the error, and values that the message must
/// contain. `[source]` precedes the text.
#[test]
fn errors_name_the_full_key_and_the_nearest_name() {
    for (text, key, values) in [
        ("[loader]\nbatchs = 1", "loader.batchs", &["batch_size"][..]),
        ("[loader]\nworkrs = 1", "loader.workrs", &["num_workers"]),
        (
            "[loader]\nbatch = 2\nbatch_size = 2",
            "loader.batch_size",
            &["twice", "batch", "batch_size"],
        ),
        ("[loader]\nworld_size = 2\nworld = 2", "loader.world_size", &["world", "world_size"]),
        (
            "[[chain]]\nop = \"flip\"\n[[transform]]\nop = \"flip\"",
            "chain",
            &["twice", "transform", "chain"],
        ),
        ("[transform]\nop = \"flip\"", "transform", &["[[transform]]", "table"]),
        ("[[transform]]\nop = \"flap\"", "transform[0].op", &["flap", "flip"]),
        (
            "[[chain]]\nop = \"one_of\"\noperators = 3",
            "chain[0].operators",
            &["[[chain.operators]]", "integer"],
        ),
        ("[laoder]\nbatch_size = 1", "laoder", &["loader"]),
        ("[decode]\norientaton = true", "decode.orientaton", &["orientation"]),
        ("[output]\ntype = \"f32\"", "output.type", &["dtype"]),
        ("[limits]\nmax_pixel = 1", "limits.max_pixel", &["max_pixels"]),
        ("[storage]\nretrys = 1", "storage.retrys", &["retries"]),
        ("[storage]\ntimeout = 0", "storage.timeout", &["1", "3600", "0"]),
        ("[output]\ndtype = \"f23\"", "output.dtype", &["f23", "f32"]),
        (
            "[loader]\nlast_batch = \"wrap\"",
            "loader.last_batch",
            &["wrap", "drop", "pad", "partial"],
        ),
        ("[loader]\nnum_workers = \"many\"", "loader.num_workers", &["1", "\"auto\"", "\"many\""]),
        ("[loader]\nprefetch = 2.5", "loader.prefetch", &["1", "\"auto\"", "2.5"]),
        ("[loader]\nnum_workers = -2", "loader.num_workers", &["1", "\"auto\"", "-2"]),
        ("[loader]\nnum_workers = 0", "loader.num_workers", &["1", "0"]),
        ("[loader]\nnum_workers = 1025", "loader.num_workers", &["1024", "1025"]),
        ("[limits]\ncpu_threads = 0", "limits.cpu_threads", &["1", "0"]),
        ("[limits]\ncpu_threads = \"auto\"", "limits.cpu_threads", &["1", "\"auto\""]),
        ("[[chain]]\nop = \"resise\"", "chain[0].op", &["resise", "resize"]),
        (
            "[[chain]]\nop = \"flip\"\n[[chain]]\nop = \"flip\"\nhorizontl = 0.5",
            "chain[1].horizontl",
            &["horizontal"],
        ),
        ("[[chain]]\nop = \"flip\"\nplacment = \"cpu\"", "chain[0].placment", &["placement"]),
        ("[[chain]]\nop = \"flip\"\nplacement = \"gpx\"", "chain[0].placement", &["gpx", "gpu"]),
        ("[[chain]]\nop = \"center_crop\"\nwidth = 3", "chain[0].height", &[]),
        ("[loader]\nbatch_size = 0", "loader.batch_size", &["1", "0"]),
        ("[loader]\nbatch_size = -1", "loader.batch_size", &["1", "1048576", "-1"]),
        ("[loader]\nbatch_size = \"x\"", "loader.batch_size", &["1", "1048576", "\"x\""]),
        ("[loader]\nbatch = \"x\"", "loader.batch", &["1", "1048576", "\"x\""]),
        ("[loader]\nbatch = 0", "loader.batch", &["1", "0"]),
        ("[loader]\nseed = -1", "loader.seed", &["0", "9223372036854775807", "-1"]),
        ("[decode]\nprescale = 1", "decode.prescale", &["boolean", "1"]),
        ("[loader]\nrepeats = 0", "loader.repeats", &["1", "256", "0"]),
        ("[loader]\nrepeats = 257", "loader.repeats", &["1", "256", "257"]),
        ("[loader]\nrepeats = 3", "loader.repeats", &["3", "loader.shuffle", "true"]),
        ("[loader]\nrank = 2\nworld_size = 2", "loader.rank", &["loader.world_size", "2"]),
        ("[loader]\nlast_batch = 3", "loader.last_batch", &["drop", "pad", "partial", "integer"]),
        (
            "[[chain]]\nop = \"normalize\"\nmean = [0.5, 0.5, 0.5]\nstd = [0.2, \"x\", 0.2]",
            "chain[0].std[1]",
            &["\"x\""],
        ),
        (
            "[[chain]]\nop = \"normalize\"\nmean = [0.5, 0.5, 0.5, 0.9]\nstd = [0.2, 0.2, 0.2]",
            "chain[0].mean",
            &["3", "4"],
        ),
        (
            "[[chain]]\nop = \"random_resized_crop\"\nwidth = 3\nheight = 3\nscale = [0.1, 0.5, 1.0]",
            "chain[0].scale",
            &["2", "3"],
        ),
        ("[limits]\nmax_file_bytes = \"1 mile\"", "limits.max_file_bytes", &["1 mile"]),
        (
            "[limits]\nmax_file_bytes = \"-5 GiB\"",
            "limits.max_file_bytes",
            &["65536", "\"512 MiB\"", "\"-5 GiB\""],
        ),
        (
            "[cache]\ndecoded = \"9999999 TiB\"",
            "cache.decoded",
            &["9999999 TiB", "9223372036854775807", "8388608 TiB"],
        ),
        (
            "[storage]\nread_ahead = \"2000000 TiB\"",
            "storage.read_ahead",
            &["1152921504606846976", "1048576 TiB", "2199023255552000000"],
        ),
        (
            "[[chain]]\nop = \"center_crop\"\nwidth = 5000000000\nheight = 3",
            "chain[0].width",
            &["0", "4294967295", "5000000000"],
        ),
        ("[limits]\nmax_file_bytes = -1", "limits.max_file_bytes", &["\"512 MiB\"", "-1"]),
        ("[limits]\nmax_file_bytes = true", "limits.max_file_bytes", &["\"512 MiB\"", "true"]),
        ("[limits]\ndevice_memory = \"1 mile\"", "limits.device_memory", &["1 mile"]),
        (
            "[decode]\nroutes = [\"cpu\", \"nvjpeg-hardwre\"]",
            "decode.routes[1]",
            &["nvjpeg-hardwre", "nvjpeg-hardware"],
        ),
        (
            "[decode]\nroutes = []",
            "decode.routes",
            &["nvjpeg-hardware", "nvjpeg-gpu", "nvjpeg-hybrid", "cpu"],
        ),
        ("[decode]\nroutes = [\"cpu\", \"nvjpeg-hybrid\", \"cpu\"]", "decode.routes[2]", &["cpu"]),
        ("[decode]\nroutes = \"cpu\"", "decode.routes", &["a list", "\"cpu\""]),
        ("[decode]\nmax_cpu_threads = 0", "decode.max_cpu_threads", &["1", "0"]),
        ("[decode]\nhardware_group = 0", "decode.hardware_group", &["1", "1024", "0"]),
        ("[decode]\nhardware_group = 1025", "decode.hardware_group", &["1", "1024", "1025"]),
        (
            "[[chain]]\nop = \"random_crop\"\nwidth = 3\nheight = 3\npadding = [1, 2]",
            "chain[0].padding",
            &["4", "2"],
        ),
        (
            "[[chain]]\nop = \"random_crop\"\nwidth = 3\nheight = 3\npadding = \"x\"",
            "chain[0].padding",
            &["4", "\"x\""],
        ),
        (
            "[[chain]]\nop = \"random_crop\"\nwidth = 3\nheight = 3\npadding = -1",
            "chain[0].padding",
            &["0", "4294967295", "-1"],
        ),
        (
            "[[chain]]\nop = \"random_crop\"\nwidth = 3\nheight = 3\npadding = [0, 0, \"x\", 0]",
            "chain[0].padding[2]",
            &["0", "4294967295", "\"x\""],
        ),
        ("chain = 3", "chain", &["[[chain]]", "integer"]),
        ("loader = 3", "loader", &["[loader]", "integer"]),
    ] {
        // In TOML, keys outside of sections must precede the first section.
        let text = if text.starts_with('[') {
            format!("{SOURCE}{text}")
        } else {
            format!("{text}\n{SOURCE}")
        };
        let error = config_error(Pipeline::from_toml(&text, ""));
        assert_eq!(error.key, key, "{text}: {error}");
        assert!(has_words(&error.problem, values), "{text}: {error}");
        assert!(error.at.is_some(), "{text}");
    }
}

#[test]
fn an_operators_own_check_runs_at_once() {
    let text = format!(
        "{SOURCE}[[chain]]\nop = \"flip\"\n[[chain]]\nop = \"normalize\"\nmean = [0, 0, 0]\nstd = [1, 0, 1]"
    );
    let error = config_error(Pipeline::from_toml(&text, ""));
    assert_eq!(error.key, "chain[1].std[1]", "{error}");
    assert!(has_words(&error.problem, &["0"]), "{error}");
    let text = format!("{SOURCE}[[chain]]\nop = \"pointwise\"\nexpr = \"x * * 2\"");
    let error = config_error(Pipeline::from_toml(&text, ""));
    assert_eq!(error.key, "chain[0].expr", "{error}");
    assert!(has_words(&error.problem, &["\"x * * 2\"", "5", "\"*\""]), "{error}");
    assert!(error.at.is_some());
}

#[test]
fn an_operator_without_a_name_is_an_error_that_lists_the_names() {
    let text = format!("{SOURCE}[[chain]]\nwidth = 3");
    let error = config_error(Pipeline::from_toml(&text, ""));
    assert_eq!(error.key, "chain[0].op", "{error}");
    assert!(has_words(&error.problem, feedwater::internals::op::NAMES), "{error}");
}

#[test]
fn a_file_has_exactly_one_source() {
    for (text, key, values) in [
        ("", "source", &["directory"][..]),
        ("[source]", "source", &["directory"]),
        ("[source]\ndirectory = \"a\"\nlist = \"b\"", "source", &["directory", "list"]),
        ("[source]\ndirectry = \"a\"", "source.directry", &["directory"]),
        ("[source]\ndirectory = 3", "source.directory", &["3"]),
        ("[source]\nlist = \"a\"\nimages = \"x\"", "source.images", &[]),
        ("[source]\ntfrecord = \"a\"\nlist = \"b\"", "source", &["list", "tfrecord"]),
        ("[source]\ntfrecord = \"a\"\nimag = \"x\"", "source.imag", &["image"]),
        ("[source]\ntfrecord = [\"a\", 3]", "source.tfrecord", &["3"]),
        ("source = 3", "source", &["integer"]),
    ] {
        let error = config_error(Pipeline::from_toml(text, ""));
        assert_eq!(error.key, key, "{text}: {error}");
        assert!(has_words(&error.problem, values), "{text}: {error}");
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

/// A pipeline file must not be a pipe or a socket, because reading it might never end.
#[test]
fn a_pipeline_file_must_be_a_regular_file() {
    let dir = tempfile::tempdir().unwrap();
    let (pipe, socket) = (dir.path().join("pipe.toml"), dir.path().join("socket.toml"));
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    for (path, kind) in [
        ("/dev/zero".into(), "device"),
        (pipe, "pipe"),
        (socket, "socket"),
        (dir.path().to_path_buf(), "folder"),
    ] {
        let Err(Error::Io { path: found, problem, .. }) = Pipeline::from_file(&path) else {
            panic!("{}", path.display())
        };
        assert!(found == path && has_words(&problem, &[kind]), "{problem}");
    }
    let large = dir.path().join("large.toml");
    fs::File::create(&large).unwrap().set_len(1 << 40).unwrap();
    assert!(matches!(Pipeline::from_file(&large), Err(Error::Io { .. })));
}

/// Every source must check every file that it reads, because reading a pipe might never end.
#[test]
fn files_of_a_source_must_be_regular_files() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for key in feedwater::internals::source::KEYS {
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

#[test]
fn a_wrong_device_is_an_error_at_its_place() {
    for value in ["\"gpux\"", "\"cuda:\"", "\"cuda:-1\"", "0", "true"] {
        let text = format!("device = {value}\n{SOURCE}");
        let Err(Error::Config(error)) = Pipeline::from_toml(&text, "") else { panic!("{value}") };
        assert_eq!(error.key, "device");
        let at = error.at.unwrap();
        assert_eq!((at.line, at.column), (1, 1), "{value}");
    }
    // `gpu` is the former name of `cuda`. It is still accepted.
    let text = format!("device = \"gpu\"\n{SOURCE}");
    let settings = Pipeline::from_toml(&text, "").unwrap().settings;
    assert_eq!(settings.device, DeviceChoice::LocalGpu);
}

/// serde reads lists as structs, by the order of the fields.
#[test]
fn sections_and_tables_cannot_be_lists() {
    for (key, list) in [
        ("loader", "[4, 2]"),
        ("decode", "[\"cpu\"]"),
        ("output", "[\"u8\"]"),
        ("targets", "[3, 0.5]"),
        ("cache", "[1]"),
        ("limits", "[100, 50]"),
        ("storage", "[3]"),
        ("loader", "[]"),
    ] {
        let error = config_error(Pipeline::from_toml(&format!("{key} = {list}\n{SOURCE}"), ""));
        assert_eq!((error.key.as_str(), error.at.is_some()), (key, true), "{error}");
        assert!(has_words(&error.problem, &[&format!("[{key}]"), "table", "list"]), "{error}");
    }
    for key in ["loader", "decode", "source"] {
        let source = if key == "source" { "" } else { SOURCE };
        let error = config_error(Pipeline::from_toml(&format!("[[{key}]]\n{source}"), ""));
        assert_eq!(error.key, key, "{error}");
        let words = [format!("[{key}]"), format!("[[{key}]]")];
        assert!(has_words(&error.problem, &[&words[0], &words[1]]), "{error}");
    }
    for (text, key) in [
        ("source = [\"data\"]", "source"),
        ("[source]\ndirectory = \"a\"\nfilter = [[1], [\"a\"]]", "source.filter"),
        ("[[source.concat]]\nlist = \"a\"\nfilter = []", "source.concat[0].filter"),
        ("source.concat = [[\"a\"]]", "source.concat[0]"),
        ("chain = [[\"flip\", 0.5]]\n[source]\ndirectory = \"a\"", "chain[0]"),
        ("batch_operators = [[\"mixup\"]]\n[source]\nlist = \"a\"", "batch_operators[0]"),
    ] {
        let error = config_error(Pipeline::from_toml(text, ""));
        assert_eq!(error.key, key, "{text}: {error}");
        assert!(has_words(&error.problem, &["a table", "a list"]), "{text}: {error}");
    }
    let error = config_error(Pipeline::from_toml("[source.concat]\nlist = \"a\"", ""));
    assert!(has_words(&error.problem, &["[[source.concat]]"]), "{error}");
}

#[test]
fn choices_are_listed_by_their_current_names() {
    let problem = |routes: &str| {
        let text = format!("{SOURCE}[decode]\nroutes = {routes}");
        config_error(Pipeline::from_toml(&text, "")).problem
    };
    for routes in ["[\"something\"]", "[3]"] {
        let problem = problem(routes);
        assert!(has_words(&problem, &Route::ALL.map(Route::name)), "{problem}");
        let former = Route::ALL.into_iter().filter_map(Route::former_name);
        for former in former.map(|name| format!(" {name}")) {
            assert!(!format!("{problem},").contains(&format!("{former},")), "{problem}");
        }
    }
    for (found, name) in [
        ("gpu", "nvjpeg-gpu"),
        ("hardwre", "nvjpeg-hardware"),
        ("CPU", "cpu"),
        ("hsot", "nvjpeg-hybrid"),
    ] {
        let problem = problem(&format!("[\"{found}\"]"));
        assert!(problem.ends_with(&format!("did you mean {name}?")), "{problem}");
    }
}

#[test]
fn a_repeated_key_is_named() {
    for (text, key, line, column) in [
        ("[loader]\nseed = 1\nseed = 2", "loader.seed", 5, 1),
        ("[loader]\nseed = 1\n\"seed\" = 2", "loader.seed", 5, 1),
        ("loader.seed = 1\nloader.seed = 2", "source.loader.seed", 4, 8),
        ("[loader]\nseed = 1\n[limits]\n[loader]\n", "loader", 6, 2),
        ("[[chain]]\nop = \"flip\"\n[[chain]]\nop = \"flip\"\nop = \"hue\"", "chain[1].op", 7, 1),
        ("[loader]\nx = [{ seed = 1 }, { seed = 1, seed = 2 }]", "loader.x[1].seed", 4, 32),
        ("filter = { labels = [1], labels = [2] }", "source.filter.labels", 3, 26),
    ] {
        let error = config_error(Pipeline::from_toml(&format!("{SOURCE}{text}"), ""));
        assert_eq!(error.key, key, "{text}: {error}");
        assert!(has_words(&error.problem, &["twice"]), "{text}: {error}");
        let at = error.at.as_ref().unwrap();
        assert_eq!((at.line, at.column), (line, column), "{text}: {error}");
    }
}

#[test]
fn numbers_that_no_setting_accepts_are_named() {
    for (text, key, bound) in [
        ("[loader]\nseed = 9223372036854775808", "loader.seed", "9223372036854775807"),
        ("[loader]\nseed = 99999999999999999999", "loader.seed", "9223372036854775807"),
        (
            "[loader]\nignore_label = -9223372036854775809",
            "loader.ignore_label",
            "-9223372036854775808",
        ),
        ("subset = [0, 0xffffffffffffffff]", "source.subset[1]", "9223372036854775807"),
        ("[[chain]]\nop = \"flip\"\nhorizontal = 1e999", "chain[0].horizontal", "1e999"),
        (
            "[[chain]]\nop = \"hue\"\nx = 999999999999999999999999999999999999999999",
            "chain[0].x",
            "9223372036854775807",
        ),
    ] {
        let error = config_error(Pipeline::from_toml(&format!("{SOURCE}{text}"), ""));
        assert_eq!((error.key.as_str(), error.at.is_some()), (key, true), "{text}: {error}");
        assert!(has_words(&error.problem, &[bound]), "{text}: {error}");
        let found = text.rsplit([' ', ']']).find(|it| !it.is_empty()).unwrap();
        assert!(has_words(&error.problem, &[found]), "{text}: {error}");
    }
    let text = format!("{SOURCE}[loader]\nseed = 9223372036854775807");
    assert_eq!(Pipeline::from_toml(&text, "").unwrap().settings.loader.seed, i64::MAX as u64);
}

#[test]
fn a_setting_at_the_wrong_place_gets_its_section() {
    for (text, section) in [
        ("seed = 1", "write seed under [loader]"),
        ("shuffle = true", "write shuffle under [loader]"),
        ("rank = 1", "write rank under [loader]"),
        ("prefetch = 1", "write prefetch under [loader]"),
        ("workers = 1", "write num_workers under [loader]"),
        ("host_memory = 1", "write host_memory under [limits]"),
        ("dtype = \"u8\"", "write dtype under [output]"),
        ("Seed = 1", "write seed under [loader]"),
        ("directory = \"a\"", "write directory under [source]"),
        ("[loader]\ndtype = \"u8\"", "write dtype under [output]"),
        ("[loader]\nprescale = true", "write prescale under [decode]"),
        ("[loader]\nhost_memory = 1", "write host_memory under [limits]"),
        ("[loader]\ntimeout = 1", "write timeout under [storage]"),
        ("[limits]\nworkers = 1", "write num_workers under [loader]"),
        ("[loader]\nlimits = 1", "write [limits]"),
        ("[loader]\nchain = []", "write [[chain]]"),
        ("[[chain]]\nop = \"flip\"\nseed = 1", "write seed under [loader]"),
    ] {
        let text = match text.starts_with('[') {
            true => format!("{SOURCE}{text}"),
            false => format!("{text}\n{SOURCE}"),
        };
        let error = config_error(Pipeline::from_toml(&text, ""));
        assert!(error.problem.contains(section), "{text}: {error}");
    }
    let text = "[source]\ndirectory = \"a\"\nsomething_else = 1";
    let error = config_error(Pipeline::from_toml(text, ""));
    assert_eq!(error.problem.matches("class_to_index").count(), 1, "{error}");
}
