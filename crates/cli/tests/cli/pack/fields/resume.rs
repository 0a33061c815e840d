//! Tests of changed fields: a changed caption is a changed sample.

use super::*;

/// Lines of a table whose sample 2 has this caption.
fn lines(caption: &str) -> String {
    let row = |it: u64| {
        let caption = if it == 2 { caption } else { "same" };
        format!("{it}.jpg,0,{caption}\n")
    };
    format!("path,label,caption\n{}", (0..12).map(row).collect::<String>())
}

#[test]
fn a_changed_caption_is_a_changed_sample() {
    let folder = folder_of(12);
    for format in FORMATS {
        for stop in [8, 12] {
            let root = tempfile::tempdir().unwrap();
            let wanted = Settings { shard_bytes: 2000, ..settings(format) };
            let source = Failing(list(&folder, "a.csv", &lines("one")), stop);
            assert_eq!(pack(&source, root.path(), &wanted, |_| {}).is_ok(), stop == 12);
            let before = everything(root.path());
            let changed = list(&folder, "a.csv", &lines("two"));
            let error = config_error(pack(&*changed, root.path(), &wanted, |_| {}));
            assert_eq!(error.key, "destination");
            assert!(has_words(&error.problem, &["fields", "2", "2.jpg", "--overwrite"]), "{error}");
            assert_eq!(everything(root.path()), before);
            // Without a change, packing resumes.
            let same = list(&folder, "a.csv", &lines("one"));
            let manifest = pack(&*same, root.path(), &wanted, |_| {}).unwrap();
            let (fresh, expected) = packed(&*same, &wanted);
            assert_eq!((everything(root.path()), manifest), (everything(fresh.path()), expected));
            let changed = list(&folder, "a.csv", &lines("two"));
            let overwrite = Settings { overwrite: true, ..wanted.clone() };
            pack(&*changed, root.path(), &overwrite, |_| {}).unwrap();
            assert_eq!(verify(root.path(), |_| {}).unwrap(), 12);
        }
    }
}

/// A source that fails to read from sample `.1` on.
struct Failing(Arc<dyn Source>, u64);

impl Source for Failing {
    fn len(&self) -> u64 {
        self.0.len()
    }
    fn label(&self, index: u64) -> i64 {
        self.0.label(index)
    }
    fn location(&self, index: u64) -> String {
        self.0.location(index)
    }
    fn inner(&self) -> Option<&dyn Source> {
        Some(&*self.0)
    }
    fn read(&self, index: u64, page: &mut dyn Page, limit: u64) -> Result<(), DataError> {
        match index < self.1 {
            true => self.0.read(index, page, limit),
            false => Err(DataError::new(Reason::Unreadable, "unplugged")),
        }
    }
    fn fields(&self) -> Option<&dyn custom::Fields> {
        self.0.fields()
    }
}

#[test]
fn verifying_finds_every_changed_byte_of_a_field() {
    let folder = folder_of(3);
    let text = "path,label,caption\n0.jpg,0,a caption\n1.jpg,0,another one\n2.jpg,1,c\n";
    let source = list(&folder, "a.csv", text);
    for format in FORMATS {
        let (root, manifest) =
            packed(&*source, &Settings { shard_bytes: 1 << 20, ..settings(format) });
        let path = root.path().join(&manifest.shards[0].name);
        let whole = fs::read(&path).unwrap();
        let find = |text: &[u8]| whole.windows(text.len()).position(|it| it == text).unwrap();
        for place in [find(b"a caption"), find(b"another one") + 10] {
            let mut damaged = whole.clone();
            damaged[place] ^= 1;
            fs::write(&path, &damaged).unwrap();
            let words = verify(root.path(), |_| {}).unwrap_err().to_string();
            assert!(words.contains("train-000000"), "{words}");
        }
        fs::write(&path, &whole).unwrap();
        assert_eq!(verify(root.path(), |_| {}).unwrap(), 3);
    }
}

/// Packs of an older feedwater have no fields.
#[test]
fn a_pack_without_fields_resumes_only_without_fields() {
    let folder = folder_of(3);
    let source = list(&folder, "a.csv", "path,label,caption\n0.jpg,0,a\n1.jpg,0,b\n2.jpg,1,c\n");
    let none = Settings { fields: FieldChoice::None, ..settings(ShardFormat::WebDataset) };
    let (root, manifest) = packed(&*source, &none);
    assert_eq!(manifest.version, 2);
    let text = fs::read_to_string(root.path().join(".feedwater-pack.json")).unwrap();
    assert!(!text.contains("\"fields\""), "{text}");
    let all = settings(ShardFormat::WebDataset);
    let error = config_error(pack(&*source, root.path(), &all, |_| {}));
    assert!(has_words(&error.problem, &["fields", "none", "caption"]), "{error}");
    assert_eq!(pack(&*source, root.path(), &none, |_| {}).unwrap(), manifest);
    let (_, manifest) = packed(&*source, &all);
    assert_eq!(manifest.version, 3);
}
