//! Sources that a program creates and passes to a pipeline file, which combines them.

use super::*;

const CHAIN: &str = "[[chain]]\nop = \"random_resized_crop\"\nwidth = 8\nheight = 8\n";

/// A custom source, as a program might have it, with the images of a folder.
struct Held {
    samples: Vec<(Vec<u8>, i64, String)>,
    classes: Vec<String>,
}

impl Held {
    fn of(source: &dyn Source) -> Arc<dyn Source> {
        let mut page = HostPage::default();
        let sample = |index| {
            source.read(index, &mut page, 1 << 20).unwrap();
            (page.bytes().to_vec(), source.label(index), source.location(index))
        };
        let samples = (0..source.len()).map(sample).collect();
        Arc::new(Self { samples, classes: source.classes().to_vec() })
    }
}

impl Source for Held {
    fn len(&self) -> u64 {
        self.samples.len() as u64
    }
    fn label(&self, index: u64) -> i64 {
        self.samples[index as usize].1
    }
    fn location(&self, index: u64) -> String {
        self.samples[index as usize].2.clone()
    }
    fn read(&self, index: u64, page: &mut dyn Page, limit: u64) -> Result<(), DataError> {
        page.fill(&self.samples[index as usize].0, limit)
    }
    fn classes(&self) -> &[String] {
        &self.classes
    }
}

/// Creates the folders `first` and `second`, whose images have different classes.
fn folders() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for (folder, count) in
        [("first/cat", 4), ("first/dog", 3), ("second/cow", 3), ("second/dog", 2)]
    {
        let folder = root.path().join(folder);
        fs::create_dir_all(&folder).unwrap();
        for seed in 0..count {
            let bytes = jpeg(folder.as_os_str().len() as u64 + 10 * seed, 40, 30);
            fs::write(folder.join(format!("{seed}.jpg")), bytes).unwrap();
        }
    }
    root
}

/// Combinations of sources in TOML. Tests replace `FIRST` and `SECOND` by a folder or by a source
/// of the program.
const SOURCES: [&str; 7] = [
    "{ FIRST }",
    "{ FIRST, filter = { classes = [\"dog\"] }, repeat = 2 }",
    "{ mixture = [{ FIRST, weight = 3 }, { SECOND, weight = 1 }], samples = 23 }",
    "{ concat = [{ SECOND, skip = 1 }, { FIRST, subset = [6, 0, 2] }], take = 6 }",
    "{ concat = [{ FIRST, take = 2 }, { FIRST, skip = 5 }, { FIRST }] }",
    "{ mixture = [{ concat = [{ SECOND }, { FIRST, take = 1 }], repeat = 2 }, { FIRST, weight = 2 }], skip = 3 }",
    "{ concat = [{ SECOND }, { mixture = [{ FIRST }, { concat = [{ FIRST }, { SECOND }] }] }] }",
];

fn builder(pipeline: &Pipeline) -> LoaderBuilder {
    let builder = pipeline.builder().unwrap().device(DeviceChoice::Cpu).num_workers(2);
    builder.batch_size(3).last_batch(LastBatch::Partial).shuffle(true).seed(7)
}

/// In every combination, a source of the program gives the same samples and bytes as a folder. The
/// test also mixes both kinds, uses a source several times, and resumes.
#[test]
fn a_source_of_the_program_equals_a_folder_in_every_combination() {
    let root = folders();
    let held = |folder| Held::of(&Directory::open(root.path().join(folder)).unwrap());
    let read = |source: &str, first: &str, second: &str| {
        let text = source.replace("FIRST", first).replace("SECOND", second);
        Pipeline::from_toml(&format!("source = {text}\n{CHAIN}"), root.path()).unwrap()
    };
    let (first, second) = ("directory = \"first\"", "directory = \"second\"");
    for text in SOURCES {
        let folders = read(text, first, second);
        let mut both = read(text, "own = \"1\"", "own = \"2\"").give("1", held("first")).unwrap();
        if text.contains("SECOND") {
            both = both.give("2", held("second")).unwrap();
        }
        let one = read(text, "own = \"1\"", second).give("1", held("first")).unwrap();
        let expected = folders.open().unwrap();
        let all = epoch(&mut builder(&folders).build().unwrap());
        for own in [both, one] {
            let source = own.open().unwrap();
            assert_eq!(
                (source.len(), source.classes()),
                (expected.len(), expected.classes()),
                "{text}"
            );
            for index in 0..source.len() {
                assert_eq!(source.label(index), expected.label(index), "{text}");
                assert_eq!(source.location(index), expected.location(index), "{text}");
            }
            let mut loader = builder(&own).build().unwrap();
            let begun = loader.epoch().take(1).map(|it| it.unwrap().indices().count()).sum();
            let rest = epoch(&mut builder(&own).resume(loader.state()).build().unwrap());
            assert!(rest == all[begun..], "{text}: the rest of the epoch differs");
            assert!(epoch(&mut builder(&own).build().unwrap()) == all, "{text}: the epoch differs");
        }
    }
}

#[test]
fn a_sample_of_a_combination_knows_its_part() {
    let (first, second) = (numbered("a", 0, 5), numbered("b", 100, 4));
    let text = "source = { mixture = [{ own = \"a\", skip = 2 }, { concat = [{ own = \"b\" }, { own = \"a\" }] }] }";
    let pipeline = Pipeline::from_toml(text, "").unwrap();
    let pipeline = pipeline.give("a", first.clone()).unwrap().give("b", second.clone()).unwrap();
    let source = pipeline.open().unwrap();
    let is =
        |part: &dyn Source, other: &Arc<dyn Source>| std::ptr::addr_eq(part, Arc::as_ptr(other));
    for index in 0..source.len() {
        let (part, place) = source.part(index);
        let whole = if source.label(index) < 100 { &first } else { &second };
        assert!(is(part, whole), "sample {index}");
        assert_eq!(part.label(place), source.label(index));
    }
    let again = pipeline.give("a", second.clone()).unwrap().open().unwrap();
    assert!(
        (0..again.len()).all(|index| is(again.part(index).0, &second)),
        "the second source must replace the first"
    );
    let (part, place) = first.part(3);
    assert!(is(part, &first) && place == 3);
}

#[test]
fn a_file_with_a_source_of_the_program_is_written_as_it_was_read() {
    let text = format!("source = {}\n{CHAIN}", SOURCES[5]);
    let text = text.replace("FIRST", "own = \"new \\\"ones\\\"\"").replace("SECOND", "own = \"2\"");
    let pipeline = Pipeline::from_toml(&text, "").unwrap();
    let written = pipeline.to_toml().unwrap();
    let again = Pipeline::from_toml(&written, "").unwrap();
    assert_eq!((&again.source, again.to_toml().unwrap()), (&pipeline.source, written.clone()));
    let given = pipeline.give("new \"ones\"", numbered("a", 0, 5)).unwrap();
    assert_eq!(given.to_toml().unwrap(), written, "sources of the program must not be written");
}

#[test]
fn errors_of_sources_of_the_program_name_key_and_place() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("pipeline.toml");
    let text = "[[source.mixture]]\nown = \"old\"\n[[source.mixture]]\nown = \"new\"\ntake = 2\n";
    fs::write(&path, format!("{text}{CHAIN}")).unwrap();
    let pipeline = Pipeline::from_file(&path).unwrap();
    let pipeline = pipeline.give("old", numbered("a", 0, 5)).unwrap();
    let error = config_error(pipeline.builder().map(drop));
    assert_eq!(error.key, "source.mixture[1].own");
    assert!(has_words(&error.problem, &["\"new\"", "give"]), "{error}");
    assert!(error.to_string().contains("pipeline.toml:4:1"), "{error}");
    let error = config_error(pipeline.clone().give("newer", numbered("a", 0, 5)));
    assert!(error.to_string().contains("pipeline.toml:1:"), "{error}");
    refused(Err::<(), _>(Error::Config(error)), "source", &["\"newer\"", "\"old\"", "\"new\""]);
    // A source of the program is checked like files: its class names must match those of the other
    // parts.
    let wrong = pipeline.give("new", classed(0, 3, &["a"])).unwrap().open();
    refused(wrong, "source.mixture", &["1", "0"]);

    let read = |text: &str| Pipeline::from_toml(&format!("source = {{ {text} }}\n{CHAIN}"), "");
    refused(
        read("directory = \"a\"").unwrap().give("b", numbered("a", 0, 5)),
        "source",
        &["\"b\""],
    );
    refused(read("own = \"\""), "source.own", &["empty"]);
    refused(read("own = 3"), "source.own", &["string", "3"]);
    refused(read("own = \"a\", extensions = [\"jpg\"]"), "source.extensions", &["own", "take"]);
    refused(read("own = \"a\", tak = 3"), "source.tak", &["take"]);
    refused(read("own = \"a\", directory = \"b\""), "source", &["own", "directory"]);
    refused(read("onw = \"a\""), "source.onw", &["own"]);
    refused(
        read("concat = [{ own = \"a\", weight = 1 }]"),
        "source.concat[0].weight",
        &["mixture"],
    );
    let empty =
        read("mixture = [{ own = \"a\" }]").unwrap().give("a", numbered("a", 0, 0)).unwrap();
    refused(empty.open(), "source.mixture[0]", &[]);
}
