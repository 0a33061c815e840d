//! Fields of Parquet files whose pages are written here: layouts that pyarrow does not write, and
//! damaged pages.

use super::parquet::field;
use feedwater::internals::source::Configured;
use feedwater::source::Parquet;
use feedwater::source::settings::ParquetSettings;
use tempfile::TempDir;

/// Struct in Thrift's compact protocol.
#[derive(Default)]
struct Thrift(Vec<u8>, u8);

impl Thrift {
    fn head(mut self, id: u8, kind: u8) -> Self {
        self.0.push((id - self.1) << 4 | kind);
        self.1 = id;
        self
    }

    fn integer(self, id: u8, value: i64) -> Self {
        let mut it = self.head(id, 5);
        it.varint(((value << 1) ^ (value >> 63)) as u64);
        it
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn text(self, id: u8, text: &str) -> Self {
        let mut it = self.head(id, 8);
        it.varint(text.len() as u64);
        it.0.extend(text.as_bytes());
        it
    }

    fn structure(self, id: u8, inner: Thrift) -> Self {
        let mut it = self.head(id, 12);
        it.0.extend(inner.end());
        it
    }

    /// List of structs.
    fn list(self, id: u8, structs: Vec<Thrift>) -> Self {
        let mut it = self.head(id, 9);
        it.0.push(0xfc);
        it.varint(structs.len() as u64);
        structs.into_iter().for_each(|inner| it.0.extend(inner.end()));
        it
    }

    fn end(mut self) -> Vec<u8> {
        self.0.push(0);
        self.0
    }
}

const INT32: i64 = 1;
const INT64: i64 = 2;
const DOUBLE: i64 = 5;
const BYTES: i64 = 6;
const REQUIRED: i64 = 0;
const OPTIONAL: i64 = 1;
const REPEATED: i64 = 2;
const UTF8: i64 = 0;
const LIST: i64 = 3;
const UINT64: i64 = 14;
const PLAIN: i64 = 0;
const DICTIONARY: i64 = 8;

/// Element of the schema: its name, its type and its repetition.
fn leaf(name: &str, form: i64, repetition: i64) -> Thrift {
    Thrift::default().integer(1, form).integer(3, repetition).text(4, name)
}

/// Group of `children` elements.
fn group(name: &str, repetition: i64, children: i64) -> Thrift {
    Thrift::default().integer(3, repetition).text(4, name).integer(5, children)
}

fn converted(element: Thrift, kind: i64) -> Thrift {
    element.integer(6, kind)
}

#[derive(Clone, Default)]
struct Page {
    /// Number of rows in a page of version 2.
    rows: Option<i64>,
    is_dictionary: bool,
    encoding: i64,
    count: i64,
    /// Encoded levels; empty if the leaf has none.
    repetitions: Vec<u8>,
    definitions: Vec<u8>,
    values: Vec<u8>,
}

impl Page {
    /// Page of version 1 in the encoding PLAIN.
    fn plain(repetitions: &[u8], definitions: &[u8], values: Vec<u8>) -> Self {
        let count = repetitions.len().max(definitions.len()) as i64;
        Self {
            count,
            repetitions: levels(repetitions),
            definitions: levels(definitions),
            values,
            ..Self::default()
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut body = Vec::new();
        for levels in [&self.repetitions, &self.definitions] {
            if self.rows.is_none() && !levels.is_empty() {
                body.extend((levels.len() as u32).to_le_bytes());
            }
            body.extend(levels);
        }
        body.extend(&self.values);
        let head = Thrift::default().integer(
            1,
            match (self.is_dictionary, self.rows) {
                (true, _) => 2,
                (false, None) => 0,
                (false, Some(_)) => 3,
            },
        );
        let head = head.integer(2, body.len() as i64).integer(3, body.len() as i64);
        let values = Thrift::default().integer(1, self.count);
        let head = match (self.is_dictionary, self.rows) {
            (true, _) => head.structure(7, values.integer(2, self.encoding)),
            (false, None) => {
                head.structure(5, values.integer(2, self.encoding).integer(3, 3).integer(4, 3))
            }
            (false, Some(rows)) => {
                let values = values.integer(2, 0).integer(3, rows).integer(4, self.encoding);
                let values = values.integer(5, self.definitions.len() as i64);
                head.structure(8, values.integer(6, self.repetitions.len() as i64))
            }
        };
        [head.end(), body].concat()
    }
}

/// Encodes each level as a run of one.
fn levels(levels: &[u8]) -> Vec<u8> {
    levels.iter().flat_map(|level| [2, *level]).collect()
}

fn int32(values: &[i32]) -> Vec<u8> {
    values.iter().flat_map(|it| it.to_le_bytes()).collect()
}

fn texts(texts: &[&[u8]]) -> Vec<u8> {
    texts.iter().flat_map(|it| [&(it.len() as u32).to_le_bytes(), *it].concat()).collect()
}

/// Writes a file with a column of images and further columns. Each leaf has its physical type and
/// its pages.
fn file(
    rows: i64,
    schema: Vec<Thrift>,
    roots: i64,
    leaves: &[(i64, Vec<Page>)],
) -> (TempDir, Parquet) {
    let mut bytes = b"PAR1".to_vec();
    let images = vec![&b"x"[..]; rows as usize];
    let image = Page { count: rows, values: texts(&images), ..Page::default() };
    let mut chunks = Vec::new();
    for (form, pages) in [(BYTES, vec![image])].iter().chain(leaves) {
        let start = bytes.len() as i64;
        pages.iter().for_each(|page| bytes.extend(page.bytes()));
        let size = bytes.len() as i64 - start;
        let meta = Thrift::default().integer(1, *form).integer(4, 0).integer(7, size);
        chunks.push(Thrift::default().integer(2, start).structure(3, meta.integer(9, start)));
    }
    let root = Thrift::default().text(4, "schema").integer(5, roots + 1);
    let mut elements = vec![root, leaf("image", BYTES, REQUIRED)];
    elements.extend(schema);
    let groups = Thrift::default().list(1, chunks).integer(3, rows);
    let footer = Thrift::default().integer(1, 2).list(2, elements).integer(3, rows);
    let footer = footer.list(4, vec![groups]).end();
    bytes.extend(&footer);
    bytes.extend((footer.len() as u32).to_le_bytes());
    bytes.extend(b"PAR1");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.parquet");
    std::fs::write(&path, bytes).unwrap();
    let settings = ParquetSettings { label: String::new(), ..Default::default() };
    let source = Parquet::open(&[path], &settings).unwrap();
    (folder, source)
}

/// Reads the field `f` of all rows. An error has its reason.
fn read(rows: u64, source: &Parquet) -> Vec<String> {
    let row = |row| match field(source, row, "f", 1 << 20) {
        Ok(value) => value,
        Err(error) => {
            assert!(error.problem.contains("the field \"f\""), "{}", error.problem);
            error.reason.name().into()
        }
    };
    // The second time, the pages are in the cache.
    let first: Vec<String> = (0..rows).map(row).collect();
    assert_eq!((0..rows).map(row).collect::<Vec<_>>(), first);
    first
}

/// Reads the field `f` of a file with one leaf at the root.
fn one(rows: i64, element: Thrift, form: i64, pages: Vec<Page>) -> Vec<String> {
    let (_folder, source) = file(rows, vec![element], 1, &[(form, pages)]);
    read(rows as u64, &source)
}

#[test]
fn a_row_of_a_list_may_continue_in_further_pages() {
    let pages = vec![
        Page::plain(&[0, 1], &[1, 1], int32(&[1, 2])),
        Page::plain(&[1, 1], &[1, 1], int32(&[3, 4])),
        // Levels of no bytes, after their lengths.
        Page { values: vec![0; 8], ..Page::default() },
        Page::plain(&[1, 0, 0], &[1, 0, 1], int32(&[5, 6])),
        Page::plain(&[1], &[1], int32(&[7])),
    ];
    // A repeated element without an annotation is a list.
    let found = one(3, leaf("f", INT32, REPEATED), INT32, pages.clone());
    assert_eq!(found, ["Integers([1, 2, 3, 4, 5])", "Integers([])", "Integers([6, 7])"]);
    // The same rows in the layout with two levels.
    let schema = || vec![converted(group("f", REQUIRED, 1), LIST), leaf("array", INT32, REPEATED)];
    let (_folder, source) = file(3, schema(), 1, &[(INT32, pages.clone())]);
    assert_eq!(read(3, &source), found);
    // The first row cannot continue a row.
    assert_eq!(one(2, leaf("f", INT32, REPEATED), INT32, pages[3..4].to_vec()), ["corrupt"; 2]);
    // In version 2, a page begins with a row.
    let page = Page { rows: Some(2), ..pages[3].clone() };
    let found = one(2, leaf("f", INT32, REPEATED), INT32, vec![page]);
    assert_eq!(found, ["corrupt"; 2]);
}

#[test]
fn lists_of_lists_in_the_old_layout_are_nested() {
    let schema = vec![
        converted(group("f", OPTIONAL, 1), LIST),
        converted(group("array", REPEATED, 1), LIST),
        leaf("array", INT32, REPEATED),
    ];
    let page = Page::plain(&[0, 0, 0, 2, 1, 0], &[0, 1, 3, 3, 2, 2], int32(&[1, 2]));
    let (_folder, source) = file(4, schema, 1, &[(INT32, vec![page])]);
    assert_eq!(read(4, &source), ["", "Json([])", "Json([[1,2],[]])", "Json([[]])"]);
}

#[test]
fn leaves_of_a_struct_that_contradict_each_other_are_errors() {
    let schema = || {
        vec![
            converted(group("f", OPTIONAL, 1), LIST),
            group("list", REPEATED, 1),
            group("element", OPTIONAL, 2),
            leaf("x", INT32, OPTIONAL),
            leaf("name", BYTES, OPTIONAL),
        ]
    };
    // Definition levels: 0 null, 1 empty, 2 an entry that is null, 3 a member that is null.
    let read = |definitions: &[u8], repetitions: &[u8]| {
        let x = Page::plain(&[0, 1, 1, 0, 0], &[4, 2, 3, 1, 0], int32(&[7]));
        let names = definitions.iter().filter(|it| **it == 4).count();
        let name = Page::plain(repetitions, definitions, texts(&vec![&b"n"[..]; names]));
        let leaves = [(INT32, vec![x]), (BYTES, vec![name])];
        let (_folder, source) = file(3, schema(), 1, &leaves);
        read(3, &source)
    };
    let right = "Json([{\"x\":7,\"name\":\"n\"},null,{\"x\":null,\"name\":null}])";
    // The column of names is not declared as text, but its bytes are UTF-8.
    assert_eq!(read(&[4, 2, 3, 1, 0], &[0, 1, 1, 0, 0]), [right, "Json([])", ""]);
    for (definitions, repetitions) in [
        // A null in one leaf only, an empty list in one leaf only, a list in one leaf only.
        ([4, 3, 3, 1, 0], [0, 1, 1, 0, 0]),
        ([4, 1, 3, 1, 0], [0, 1, 1, 0, 0]),
        ([2, 2, 3, 1, 0], [0, 1, 1, 0, 0]),
    ] {
        assert_eq!(read(&definitions, &repetitions), ["corrupt", "Json([])", ""]);
    }
    assert_eq!(read(&[4, 2, 3, 4, 0], &[0, 1, 1, 0, 0])[1..], ["corrupt", ""]);
    assert_eq!(read(&[4, 2, 3, 1, 1], &[0, 1, 1, 0, 0])[1..], ["Json([])", "corrupt"]);
    // Lists of different lengths.
    assert_eq!(read(&[4, 2, 3, 3, 1, 0], &[0, 1, 1, 1, 0, 0])[..2], ["corrupt", "Json([])"]);
    assert_eq!(read(&[4, 2, 1, 0], &[0, 1, 0, 0])[..2], ["corrupt", "Json([])"]);
    // A level above the highest one.
    assert_eq!(read(&[4, 2, 5, 1, 0], &[0, 1, 1, 0, 0]), ["corrupt"; 3]);
    assert_eq!(read(&[4, 2, 3, 1, 0], &[0, 1, 2, 0, 0])[0], "corrupt");
}

#[test]
fn wrong_dictionaries_and_counts_are_errors() {
    let dictionary = |count: i64, values: Vec<u8>| Page {
        is_dictionary: true,
        count,
        values,
        ..Page::default()
    };
    // Two bits for each index: 0, 1, 3.
    let indices = Page {
        encoding: DICTIONARY,
        count: 3,
        values: vec![2, 3, 0b11_01_00, 0],
        ..Page::default()
    };
    let element = || leaf("f", INT32, REQUIRED);
    let read = |pages: Vec<Page>| one(3, element(), INT32, pages);
    let four = int32(&[5, 6, 7, 8]);
    let right = read(vec![dictionary(4, four.clone()), indices.clone()]);
    assert_eq!(right, ["Integer(5)", "Integer(6)", "Integer(8)"]);
    let short = read(vec![dictionary(3, four.clone()), indices.clone()]);
    assert_eq!(short, ["Integer(5)", "Integer(6)", "corrupt"]);
    assert_eq!(read(vec![indices.clone()]), ["corrupt"; 3]);
    assert_eq!(read(vec![dictionary(5, four.clone()), indices.clone()]), ["corrupt"; 3]);
    assert_eq!(
        read(vec![dictionary(i64::from(i32::MAX), four.clone()), indices.clone()]),
        ["corrupt"; 3]
    );
    let unknown = Page { encoding: 4, ..indices.clone() };
    assert_eq!(read(vec![dictionary(4, four.clone()), unknown]), ["unsupported"; 3]);

    let page = |count, values: &[i32]| Page { count, values: int32(values), ..Page::default() };
    assert_eq!(read(vec![page(3, &[1, 2])]), ["corrupt"; 3]);
    assert_eq!(read(vec![page(2, &[1, 2])]), ["corrupt"; 3]);
    assert_eq!(read(vec![page(2, &[1, 2]), page(2, &[3, 4])]), ["corrupt"; 3]);
    assert_eq!(read(vec![page(3, &[1, 2, 3]), page(1, &[4])]), ["corrupt"; 3]);
    // Rows before a page that is damaged are right.
    let cut = Page { encoding: 77, ..page(1, &[3]) };
    let found = read(vec![page(2, &[1, 2]), cut]);
    assert_eq!(found, ["Integer(1)", "Integer(2)", "unsupported"]);
}

/// A few bytes can announce billions of levels, for which no memory may be allocated.
#[test]
fn huge_counts_are_errors() {
    // One run of 2^31 - 1 levels, each of which is zero.
    let run = vec![0xfe, 0xff, 0xff, 0xff, 0x0f, 0];
    let count = i64::from(i32::MAX);
    for rows in [None, Some(2)] {
        let page = Page {
            rows,
            count,
            repetitions: run.clone(),
            definitions: run.clone(),
            ..Page::default()
        };
        let reason = if rows.is_none() { "corrupt" } else { "oversized" };
        let found = one(2, leaf("f", INT32, REPEATED), INT32, vec![page]);
        assert!(found.iter().all(|it| it == reason || it == "oversized"), "{found:?}");
    }
    // Many values that all are the same bytes: 8 shared bytes each.
    let packed = |first: u8, count: u8| {
        let mut it = Thrift::default();
        [128, 1, 4, count, 2 * first].iter().for_each(|byte| it.0.push(*byte));
        if count > 1 {
            it.0.extend([0; 5]);
        }
        it.0
    };
    let shared = [packed(60, 100), packed(0, 100)].concat();
    let page = Page { encoding: 7, count: 100, values: shared, ..Page::default() };
    let found = one(100, converted(leaf("f", BYTES, REQUIRED), UTF8), BYTES, vec![page]);
    assert_eq!(found, ["corrupt"; 100]);
}

#[test]
fn values_without_json_are_errors() {
    let schema = |element: Thrift| vec![group("f", OPTIONAL, 1), element];
    let read = |element: Thrift, form: i64, values: Vec<u8>, count: i64| {
        let page = Page {
            definitions: levels(&vec![1; count as usize]),
            count,
            values,
            ..Page::default()
        };
        let (_folder, source) = file(count, schema(element), 1, &[(form, vec![page])]);
        read(count as u64, &source)
    };
    let floats = [1.5, f64::NAN, f64::INFINITY, -0.0, 1e300];
    let bytes = floats.iter().flat_map(|it| it.to_le_bytes()).collect();
    let found = read(leaf("a\"", DOUBLE, REQUIRED), DOUBLE, bytes, 5);
    let right = |value: &str| format!("Json({{\"a\\\"\":{value}}})");
    assert_eq!(found, [&*right("1.5"), "field", "field", &right("-0.0"), &right("1e+300")]);
    let found = read(leaf("a", BYTES, REQUIRED), BYTES, texts(&[b"\x01\n", b"\xff", b""]), 3);
    let text = "Json({\"a\":\"\\u0001\\n\"})";
    assert_eq!(found, [text, "unsupported", "Json({\"a\":\"\"})"]);
    let of_json = converted(leaf("a", BYTES, REQUIRED), 19);
    let found = read(of_json, BYTES, texts(&[b"{\"b\": [1]}", b"{", b"1 2"]), 3);
    assert_eq!(found, ["Json({\"a\":{\"b\": [1]}})", "field", "field"]);
    let text = converted(leaf("f", BYTES, REQUIRED), UTF8);
    let page = Page { count: 2, values: texts(&[b"a", b"\xc3"]), ..Page::default() };
    assert_eq!(one(2, text, BYTES, vec![page]), ["Text(\"a\")", "field"]);
    // Integers of a list have 64 bits with their sign.
    let large: Vec<u8> = [1, 1 << 63].iter().flat_map(|it: &u64| it.to_le_bytes()).collect();
    let page = Page { encoding: PLAIN, ..Page::plain(&[0, 0], &[1, 1], large) };
    let found = one(2, converted(leaf("f", INT64, REPEATED), UINT64), INT64, vec![page]);
    assert_eq!(found, ["Integers([1])", "field"]);
}

/// A map in the layout of old writers, with keys that are integers.
#[test]
fn maps_are_objects() {
    let schema = vec![
        converted(group("f", OPTIONAL, 1), 1),
        converted(group("map", REPEATED, 2), 2),
        leaf("key", INT32, REQUIRED),
        leaf("value", INT32, OPTIONAL),
    ];
    let keys = Page::plain(&[0, 1, 0, 0], &[2, 2, 1, 0], int32(&[-1, 2]));
    let values = Page::plain(&[0, 1, 0, 0], &[3, 2, 1, 0], int32(&[5]));
    let (_folder, source) = file(3, schema, 1, &[(INT32, vec![keys]), (INT32, vec![values])]);
    assert_eq!(read(3, &source), ["Json({\"-1\":5,\"2\":null})", "Json({})", ""]);
}
