//! Tests of fields that cannot be packed, and of damaged shards.

use super::*;

#[test]
fn a_field_that_is_too_long_is_an_error_of_its_sample() {
    let folder = folder_of(3);
    let long = "x".repeat(5000);
    let text = format!("path,label,caption\n0.jpg,0,a\n1.jpg,0,{long}\n2.jpg,1,c\n");
    let source = list(&folder, "a.csv", &text);
    for format in FORMATS {
        let root = tempfile::tempdir().unwrap();
        let mut wanted = settings(format);
        wanted.limits.max_field_bytes = 4096;
        let error = pack(&*source, root.path(), &wanted, |_| {}).unwrap_err();
        let Error::Sample(error) = error else { panic!("{error}") };
        assert_eq!((error.index, error.reason), (1, Reason::Oversized));
        let words = ["4096", "limits.max_field_bytes", "--fields"];
        assert!(has_words(&error.problem, &words), "{error}");
        wanted.skip = true;
        wanted.overwrite = true;
        let manifest = pack(&*source, root.path(), &wanted, |_| {}).unwrap();
        assert_eq!(manifest.skipped_first.iter().map(|it| it.index).collect::<Vec<_>>(), [1]);
        assert_eq!(verify(root.path(), |_| {}).unwrap(), 2);
        // Without the field, the sample is usable.
        wanted.fields = FieldChoice::None;
        assert_eq!(pack(&*source, root.path(), &wanted, |_| {}).unwrap().skipped, 0);
    }
}

#[test]
fn a_value_that_is_longer_in_the_shard_is_an_error_as_well() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("x.npy"), npy("|u1", "(1, 8, 8, 3)", &[7; 192])).unwrap();
    let data = [0.1f64; 512].map(f64::to_le_bytes).concat();
    fs::write(root.path().join("a.npy"), npy("<f8", "(1, 512)", &data)).unwrap();
    let fields = [("a".to_string(), PathBuf::from("a.npy"))].into();
    let settings_of = NpySettings { fields, ..Default::default() };
    let source = Npy::open(&[root.path().join("x.npy")], &settings_of).unwrap();
    let mut wanted = settings(ShardFormat::WebDataset);
    // The list has 4096 bytes, and its file has a header, too.
    wanted.limits.max_field_bytes = 4096;
    let error = pack(&source, &root.path().join("out"), &wanted, |_| {}).unwrap_err();
    let Error::Sample(error) = error else { panic!("{error}") };
    assert!(has_words(&error.problem, &["\"a\"", "4096", "limits.max_field_bytes"]), "{error}");
    wanted.limits.max_field_bytes = 5000;
    pack(&source, &root.path().join("out"), &wanted, |_| {}).unwrap();
}

#[test]
fn fields_of_compressed_archives_are_packed() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("a.tar");
    let of = |name: &str, bytes: &[u8]| (name.to_string(), bytes.to_vec());
    let jpeg = jpegs(1).remove(0).0;
    archive(&path, &[of("0.jpg", &jpeg), of("0.cls", b"0"), of("0.txt", b"a cat")]);
    assert!(Command::new("gzip").arg(&path).status().unwrap().success());
    let path = root.path().join("a.tar.gz");
    let source = WebDataset::open(&[path], &WebDatasetSettings::default()).unwrap();
    for format in FORMATS {
        let (root, _) = packed(&source, &settings(format));
        let found = open(format, root.path());
        let (mut buffer, mut text) = (Vec::new(), None);
        let fields = found.fields().unwrap();
        let read = fields.read_fields(0, &["txt"], &mut buffer, 1 << 20, &mut |_, value| {
            text = Some(format!("{value:?}"));
            Ok(())
        });
        read.unwrap();
        assert_eq!(text.as_deref(), Some("Text(\"a cat\")"), "{format:?}");
    }
}

/// Names of fields that somebody has changed are an error, not another value.
#[test]
fn damaged_names_of_fields_are_errors() {
    let folder = folder_of(2);
    let source = list(&folder, "a.csv", "path,label,caption\n0.jpg,0,a\n1.jpg,1,b\n");
    for format in FORMATS {
        let wanted = Settings { shard_bytes: 1 << 20, ..settings(format) };
        let (root, manifest) = packed(&*source, &wanted);
        let path = root.path().join(&manifest.shards[0].name);
        let whole = fs::read(&path).unwrap();
        let text = b"\"caption.*\"";
        let at = whole.windows(text.len()).position(|it| it == text).unwrap();
        let mut damaged = whole.clone();
        damaged[at] = b'1';
        if format == ShardFormat::TfRecord {
            reseal(&mut damaged);
        }
        fs::write(&path, &damaged).unwrap();
        let opened = match format {
            ShardFormat::WebDataset => WebDataset::open(&[path], &Default::default()).map(drop),
            ShardFormat::TfRecord => TfRecord::open(&[path], &Default::default()).map(drop),
        };
        let error = config_error(opened);
        let words = ["__feedwater_fields__", &manifest.shards[0].name];
        assert!(has_words(&error.to_string(), &words), "{error}");
    }
}

/// Computes the checksum of the first record again.
fn reseal(file: &mut [u8]) {
    let len = u64::from_le_bytes(*file.first_chunk().unwrap()) as usize;
    let crc = crc32c::crc32c(&file[12..12 + len]).rotate_right(15).wrapping_add(0xa282_ead8);
    file[12 + len..16 + len].copy_from_slice(&crc.to_le_bytes());
}
