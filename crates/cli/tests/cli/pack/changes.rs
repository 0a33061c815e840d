//! Tests of packing again: with a changed source, with other settings, and into a damaged
//! directory.

use super::*;

#[test]
fn a_directory_of_another_source_or_settings_is_an_error_that_names_the_difference() {
    let (root, _) = packed(&source(), &settings(ShardFormat::WebDataset));
    let same = settings(ShardFormat::WebDataset);
    assert!(
        pack(&source(), root.path(), &same, |_| {}).is_ok(),
        "a complete directory must need no work"
    );
    let larger = Settings { shard_bytes: 7000, ..same.clone() };
    let problem = refused(&source(), root.path(), &larger);
    assert!(has_words(&problem, &["shard_bytes", "6000", "7000", "--overwrite"]), "{problem}");
    let problem = refused(&Memory::new(images()[..5].to_vec()).unwrap(), root.path(), &same);
    assert!(has_words(&problem, &["samples", "11", "5"]), "{problem}");
}

/// Tries to pack into a directory that was packed from something else. Returns the error message.
#[track_caller]
fn refused(source: &dyn Source, root: &Path, settings: &Settings) -> String {
    let error = pack(source, root, settings, |_| {}).unwrap_err();
    let Error::Config(error) = error else { panic!("{error}") };
    assert_eq!(error.key, "destination", "{error}");
    error.problem
}

/// Changes only the modification time of a file.
fn touch(path: &Path) {
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(7)).unwrap();
}

type Change = (&'static str, fn(&Path), &'static [&'static str]);

#[test]
fn a_changed_source_is_an_error_that_names_the_sample_before_any_write() {
    let changes: [Change; 5] = [
        (
            "other bytes, as many",
            |root| {
                let path = root.join("class0/01.jpg");
                let mut bytes = fs::read(&path).unwrap();
                // Change one byte within the compressed data.
                let middle = bytes.len() / 2;
                bytes[middle] ^= 1;
                fs::write(&path, bytes).unwrap();
                touch(&path);
            },
            &["1", "class0/01.jpg"],
        ),
        (
            "a longer file",
            |root| {
                let path = root.join("class0/00.jpg");
                fs::write(&path, [fs::read(&path).unwrap(), vec![0]].concat()).unwrap();
            },
            &["0", "class0/00.jpg"],
        ),
        (
            "another name",
            |root| {
                fs::rename(root.join("class0/00.jpg"), root.join("class0/000.jpg")).unwrap();
            },
            &["0", "class0/00.jpg", "class0/000.jpg"],
        ),
        (
            "a file that is gone, and another one",
            |root| {
                fs::remove_file(root.join("class0/02.jpg")).unwrap();
                fs::write(root.join("class1/99.jpg"), jpeg(5, 40, 40)).unwrap();
            },
            &["2", "class0/02.jpg", "class0/03.jpg"],
        ),
        (
            "a new sample",
            |root| {
                fs::write(root.join("class1/99.jpg"), jpeg(5, 40, 40)).unwrap();
            },
            &["samples", "11", "12"],
        ),
    ];
    for (what, change, words) in changes {
        // Test an interrupted pack and a complete one.
        for stop in [8, 11] {
            let (data, root) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
            let settings = settings(ShardFormat::WebDataset);
            let source = Failing(folder(data.path()), stop);
            assert_eq!(pack(&source, root.path(), &settings, |_| {}).is_ok(), stop == 11);
            assert!(!files(root.path()).is_empty());
            let before = everything(root.path());

            change(data.path());
            let source = Directory::open(data.path()).unwrap();
            let error =
                pack(&source, root.path(), &settings, |_| panic!("{what}: packing continues"));
            let error = error.unwrap_err();
            let Error::Config(error) = error else { panic!("{what}: {error}") };
            assert_eq!(error.key, "destination", "{what}: {error}");
            for word in words.iter().chain(&["--overwrite"]) {
                assert!(has_words(&error.problem, &[word]), "{what}: {word}: {error}");
            }
            assert_eq!(everything(root.path()), before, "{what}");

            let overwrite = Settings { overwrite: true, ..settings.clone() };
            pack(&source, root.path(), &overwrite, |_| {}).unwrap();
            let (fresh, _) = packed(&source, &settings);
            assert_eq!(everything(root.path()), everything(fresh.path()), "{what}");
            verify(root.path(), |_| {}).unwrap();
        }
    }
}

#[test]
fn packing_resumes_if_files_were_only_touched_or_changed_beyond_the_packed_part() {
    let (data, root) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let settings = settings(ShardFormat::TfRecord);
    let source = Failing(folder(data.path()), 8);
    pack(&source, root.path(), &settings, |_| {}).unwrap_err();
    touch(&data.path().join("class0/00.jpg"));
    // This sample has not been packed yet, so it may change.
    let last = data.path().join("class1/10.jpg");
    fs::write(&last, jpeg(77, 50, 50)).unwrap();
    let source = Directory::open(data.path()).unwrap();
    pack(&source, root.path(), &settings, |_| {}).unwrap();
    let (fresh, _) = packed(&source, &settings);
    assert_eq!(files(root.path()), files(fresh.path()));
}

/// If a source has no versions, as for images in memory, its samples are read again and compared.
#[test]
fn a_source_without_versions_is_compared_by_its_bytes() {
    let (root, _) = packed(&source(), &settings(ShardFormat::WebDataset));
    let mut images = images();
    images[4].0.push(0);
    let other = Memory::new(images.clone()).unwrap();
    let same = settings(ShardFormat::WebDataset);
    let problem = refused(&other, root.path(), &same);
    assert!(has_words(&problem, &["memory[4]"]), "{problem}");
    images[4].0.pop();
    images[6].1 += 1;
    let other = Memory::new(images).unwrap();
    let problem = refused(&other, root.path(), &same);
    assert!(has_words(&problem, &["memory[6]", "label", "7", "8"]), "{problem}");
}

#[test]
fn manifests_of_other_versions_are_distinguished() {
    let (root, manifest) = packed(&source(), &settings(ShardFormat::WebDataset));
    let path = root.path().join(".feedwater-pack.json");
    let mut json: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let same = settings(ShardFormat::WebDataset);
    json["version"] = 3.into();
    json["unknown"] = 1.into();
    fs::write(&path, json.to_string()).unwrap();
    let error = pack(&source(), root.path(), &same, |_| {}).unwrap_err();
    assert!(matches!(&error, Error::Io { path: it, .. } if *it == path), "{error}");
    // Manifests of version 1 have neither of these fields.
    let fields = json.as_object_mut().unwrap();
    fields.remove("unknown");
    fields.remove("version");
    fs::write(&path, json.to_string()).unwrap();
    verify(root.path(), |_| {}).unwrap();
    let error = pack(&source(), root.path(), &same, |_| {}).unwrap_err();
    assert!(matches!(&error, Error::Config(it) if it.key == "destination"), "{error}");
    let overwrite = Settings { overwrite: true, ..same };
    assert_eq!(pack(&source(), root.path(), &overwrite, |_| {}).unwrap(), manifest);
}

#[test]
fn missing_or_foreign_shards_are_reported_before_any_write() {
    let settings = settings(ShardFormat::WebDataset);
    let (root, manifest) = packed(&source(), &settings);
    let shard = root.path().join(&manifest.shards[1].name);
    fs::remove_file(&shard).unwrap();
    let error = pack(&source(), root.path(), &settings, |_| {}).unwrap_err();
    assert!(matches!(&error, Error::Io { path, .. } if *path == shard), "{error}");

    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("train-000000.tar"), "someone's").unwrap();
    let overwrite = Settings { overwrite: true, ..settings.clone() };
    for settings in [settings, overwrite] {
        let error = pack(&source(), root.path(), &settings, |_| {}).unwrap_err();
        assert!(matches!(&error, Error::Config(it) if it.key == "destination"), "{error}");
    }
    assert_eq!(fs::read(root.path().join("train-000000.tar")).unwrap(), b"someone's");
}

/// A source that provides no versions of its samples.
struct Unversioned(Directory);

impl Source for Unversioned {
    fn len(&self) -> u64 {
        self.0.len()
    }
    fn label(&self, index: u64) -> i64 {
        self.0.label(index)
    }
    fn location(&self, index: u64) -> String {
        self.0.location(index)
    }
    fn read(&self, index: u64, page: &mut dyn Page, limit: u64) -> Result<(), DataError> {
        self.0.read(index, page, limit)
    }
    fn identity(&self) -> Option<&dyn Identity> {
        Some(self)
    }
}

impl Identity for Unversioned {
    fn version(&self, _: u64) -> Option<String> {
        Some("the same".into())
    }
}

/// A single bit of a file changes, but not its length and modification time. The time of the last
/// status change reveals the change. With `verify`, all bytes are compared.
#[test]
fn one_changed_bit_at_equal_length_and_time_is_noticed() {
    let (data, root) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let plain = settings(ShardFormat::WebDataset);
    let open = |data: &Path| Directory::open(data).unwrap();
    drop(folder(data.path()));
    pack(&Unversioned(open(data.path())), root.path(), &plain, |_| {}).unwrap();
    let other = tempfile::tempdir().unwrap();
    pack(&open(data.path()), other.path(), &plain, |_| {}).unwrap();
    let path = data.path().join("class0/01.jpg");
    let time = fs::metadata(&path).unwrap().modified().unwrap();
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&path, bytes).unwrap();
    fs::File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
    let problem = refused(&open(data.path()), other.path(), &plain);
    assert!(has_words(&problem, &["class0/01.jpg"]), "{problem}");
    let unversioned = Unversioned(open(data.path()));
    pack(&unversioned, root.path(), &plain, |_| {}).unwrap();
    let verify = Settings { verify: true, ..plain };
    let problem = refused(&unversioned, root.path(), &verify);
    assert!(has_words(&problem, &["class0/01.jpg", "CRC"]), "{problem}");
}

/// Changes a file, and then replaces the file's recorded version by its new version. So only a
/// comparison of the bytes (`--verify`) can notice the change.
#[test]
fn the_option_verify_compares_the_bytes_of_unchanged_versions() {
    let root = tempfile::tempdir().unwrap();
    let data = root.path().join("data");
    drop(folder(&data));
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_feedwater"));
        command.arg("pack").args(arguments).current_dir(root.path());
        let output = command.env("FEEDWATER_CACHE", root.path().join("cache")).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let version = || (&Directory::open(&data).unwrap() as &dyn Source).version(1).unwrap();
    assert_eq!(run(&["data", "out"]).0, Some(0));
    let before = version();
    let path = data.join("class0/01.jpg");
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&path, bytes).unwrap();
    let origins = root.path().join("out/.train-000000.source.jsonl");
    let text = fs::read_to_string(&origins).unwrap();
    assert_eq!(text.matches(&before).count(), 1, "{text}");
    fs::write(&origins, text.replace(&before, &version())).unwrap();
    let (code, words) = run(&["data", "out"]);
    assert_eq!(code, Some(0), "{words}");
    let (code, words) = run(&["data", "out", "--verify"]);
    assert_eq!(code, Some(2), "{words}");
    assert!(has_words(&words, &["class0/01.jpg", "CRC", "--overwrite"]), "{words}");
    let (code, words) = run(&["data", "out", "--verify", "--overwrite"]);
    assert!(code == Some(2) && words.contains("--verify"), "{words}");
}

/// Other users may be able to create links and pipes in the directory. `pack` must not follow such
/// links, or wait for such pipes.
#[test]
fn names_that_pack_keeps_are_not_followed_or_waited_for() {
    let (outside, root) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let precious = outside.path().join("precious");
    fs::write(&precious, "of the user").unwrap();
    let missing = outside.path().join("missing");
    let refused = |name: &str| {
        let packed = pack(&source(), root.path(), &settings(ShardFormat::WebDataset), |_| {});
        let path = root.path().join(name);
        assert!(matches!(&packed, Err(Error::Io { path: at, .. }) if *at == path), "{packed:?}");
        fs::remove_file(&path).unwrap();
    };
    let lock = root.path().join(".feedwater-pack.lock");
    for target in [&precious, &missing] {
        std::os::unix::fs::symlink(target, &lock).unwrap();
        refused(".feedwater-pack.lock");
    }
    fs::hard_link(&precious, &lock).unwrap();
    refused(".feedwater-pack.lock");
    assert_eq!(fs::read_to_string(&precious).unwrap(), "of the user");
    assert!(!missing.exists());
    let manifest = root.path().join(".feedwater-pack.json");
    assert!(Command::new("mkfifo").arg(&manifest).status().unwrap().success());
    refused(".feedwater-pack.json");
    // If a full disk has truncated the manifest, the error message tells what to do.
    fs::write(&manifest, "").unwrap();
    let error = pack(&source(), root.path(), &settings(ShardFormat::WebDataset), |_| {});
    assert!(error.unwrap_err().to_string().contains("delete this manifest"));
}
