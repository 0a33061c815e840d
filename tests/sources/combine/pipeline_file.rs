//! Keys of a pipeline file that combine sources.

use super::*;

/// Creates a folder with two classes of images, and a folder with three files without classes.
fn folders() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for (folder, count) in
        [("animals/cat", 3), ("animals/dog", 2), ("more/cow", 2), ("more/dog", 1)]
    {
        fs::create_dir_all(root.path().join(folder)).unwrap();
        for number in 0..count {
            let path = root.path().join(folder).join(format!("{number}.jpg"));
            fs::write(path, jpeg(number, 40, 30)).unwrap();
        }
    }
    root
}

const CHAIN: &str = "[[chain]]\nop = \"random_resized_crop\"\nwidth = 8\nheight = 8\n";

fn opened(text: &str, root: &tempfile::TempDir) -> Result<Arc<dyn Source>, Error> {
    Pipeline::from_toml(&format!("{text}\n{CHAIN}"), root.path())?.source.open()
}

/// Returns the class and the file name of each sample, in order.
fn names(source: &dyn Source) -> Vec<String> {
    let name = |index| {
        let path = source.location(index);
        path.rsplit('/').take(2).collect::<Vec<_>>().into_iter().rev().collect::<Vec<_>>().join("/")
    };
    (0..source.len()).map(name).collect()
}

#[test]
fn a_pipeline_file_selects_samples_of_a_source() {
    let root = folders();
    for (keys, expected) in [
        ("take = 2", vec!["cat/0.jpg", "cat/1.jpg"]),
        ("skip = 4", vec!["dog/1.jpg"]),
        ("subset = [4, 0]", vec!["dog/1.jpg", "cat/0.jpg"]),
        ("filter = { labels = [1] }", vec!["dog/0.jpg", "dog/1.jpg"]),
        ("filter = { classes = [\"dog\"], location = \"*/1.jpg\" }", vec!["dog/1.jpg"]),
        ("filter = { location = \"*cat/?.jpg\" }", vec!["cat/0.jpg", "cat/1.jpg", "cat/2.jpg"]),
        // The keys are applied in a fixed order, whatever their order in the file: filter, subset,
        // skip, take, repeat.
        (
            "repeat = 2\ntake = 1\nskip = 1\nfilter = { classes = [\"cat\"] }",
            vec!["cat/1.jpg", "cat/1.jpg"],
        ),
    ] {
        let source = opened(&format!("[source]\ndirectory = \"animals\"\n{keys}"), &root).unwrap();
        assert_eq!(names(&*source), expected, "{keys}");
        assert_eq!(source.classes(), ["cat", "dog"]);
    }
}

const MIXED: &str = r#"
[source]
samples = 12
skip = 2
[[source.mixture]]
weight = 0.5
directory = "animals"
filter = { classes = ["cat"] }
[[source.mixture]]
weight = 0.25
directory = "more"
[[source.mixture]]
weight = 0.25
[[source.mixture.concat]]
directory = "more"
[[source.mixture.concat]]
directory = "animals"
take = 1
"#;

#[test]
fn a_pipeline_file_mixes_sources_and_can_be_serialized() {
    let root = folders();
    let source = opened(MIXED, &root).unwrap();
    assert_eq!(source.len(), 10);
    assert_eq!(source.classes(), ["cat", "dog", "cow"]);
    let all = names(&*source);
    for index in 0..source.len() {
        let class = &source.classes()[source.label(index) as usize];
        assert!(all[index as usize].starts_with(class.as_str()), "{all:?}");
    }
    let cats = all.iter().filter(|name| name.starts_with("cat")).count();
    assert!(
        (5..=6).contains(&cats),
        "cats must be half of the samples, and one from the third source: {all:?}"
    );

    let pipeline = Pipeline::from_toml(&format!("{MIXED}{CHAIN}"), root.path()).unwrap();
    let text = pipeline.to_toml().unwrap();
    assert!(text.contains("[[source.mixture]]\n") && text.contains("weight = 0.25"), "{text}");
    let again = Pipeline::from_toml(&text, "").unwrap();
    assert_eq!(again.source, pipeline.source);
    assert_eq!(again.to_toml().unwrap(), text);
    assert_eq!(names(&*again.source.open().unwrap()), all);
}

#[test]
fn errors_name_their_key() {
    let root = folders();
    let animals = |keys: &str| format!("[source]\ndirectory = \"animals\"\n{keys}");
    let joined = |keys: &str| format!("[source]\n{keys}");
    for (text, key, values) in [
        (joined("take = 3"), "source", &["directory"][..]),
        (animals("take = -1"), "source.take", &["0", "-1"]),
        (animals("take = 0"), "source.take", &["1", "0"]),
        (animals("tak = 3"), "source.tak", &["take"]),
        (animals("filter = { label = [1] }"), "source.filter.label", &["labels"]),
        (animals("filter = {}"), "source.filter", &["labels", "classes", "location"]),
        (
            animals("filter = { classes = [\"cat\", \"cow\"] }"),
            "source.filter.classes[1]",
            &["cow", "2"],
        ),
        (joined("mixture = 3"), "source.mixture", &["[[source.mixture]]", "integer"]),
        (joined("mixture = []"), "source.mixture", &[]),
        (
            joined("mixture = [{ directory = \"animals\", weight = 0 }]"),
            "source.mixture[0].weight",
            &["0", "finite"],
        ),
        (
            joined("mixture = [{ directory = \"animals\", weight = \"a\" }]"),
            "source.mixture[0].weight",
            &["\"a\""],
        ),
        (
            joined("concat = [{ directory = \"animals\" }, { directory = \"more\", skip = 3 }]"),
            "source.concat[1].skip",
            &["3"],
        ),
        (
            joined("concat = [{ directory = \"animals\", weight = 1 }]"),
            "source.concat[0].weight",
            &["mixture"],
        ),
        (
            joined("sample = 3\nmixture = [{ directory = \"animals\" }]"),
            "source.sample",
            &["samples"],
        ),
        (animals("concat = [{ directory = \"animals\" }]"), "source", &["directory", "concat"]),
        (
            joined("mixture = [{ concat = [{ direktory = \"animals\" }] }]"),
            "source.mixture[0].concat[0].direktory",
            &["directory"],
        ),
    ] {
        refused(opened(&text, &root), key, values);
    }
    let deep = (0..18)
        .fold("{ directory = \"a\" }".to_string(), |inner, _| format!("{{ concat = [{inner}] }}"));
    let error = config_error(opened(&format!("source = {deep}"), &root));
    assert!(error.key.starts_with("source.concat[0].concat[0]"), "{error}");
    assert!(has_words(&error.problem, &["16"]), "{error}");
}
