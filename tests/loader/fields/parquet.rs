//! Columns from Parquet files that pyarrow wrote (tests/golden/parquet.py).

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::{F32, I64, batches, builder, sample_error, with_field};
use feedwater::ElementType;
use feedwater::error::{DataError, Reason};
use feedwater::internals::source::Configured;
use feedwater::plan::{ColumnSettings, DefaultValue};
use feedwater::source::custom::Hints;
use feedwater::source::settings::ParquetSettings;
use feedwater::source::{Concat, FieldKind, FieldValue, Parquet, Source};

const ROWS: u64 = 24;

fn golden(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/parquet");
    folder.join(format!("{name}.parquet"))
}

pub fn open(path: PathBuf) -> Parquet {
    Parquet::open(&[path], &ParquetSettings::default()).unwrap()
}

/// Formats a value of a field, with the text of JSON.
fn shown(value: FieldValue<'_>) -> String {
    match value {
        FieldValue::Json(text) => format!("Json({})", str::from_utf8(text).unwrap()),
        value => format!("{value:?}"),
    }
}

/// Reads a field of a row. The text is empty if the value is missing.
pub fn field(source: &dyn Source, row: u64, name: &str, limit: u64) -> Result<String, DataError> {
    let mut found = String::new();
    let mut put = |place, value: FieldValue<'_>| {
        assert_eq!(place, 1);
        found = shown(value);
        Ok(())
    };
    let fields = source.fields().unwrap();
    fields.read_fields(row, &["not a field", name], &mut Vec::new(), limit, &mut put)?;
    Ok(found)
}

/// Value that `fields` in tests/golden/parquet.py has for a row.
fn expected(name: &str, row: u64, file: &str) -> String {
    let some =
        |step: u64, value: String| if row % step == step - 1 { String::new() } else { value };
    let up_to = |count: u64| (0..count).collect::<Vec<u64>>();
    let json = |value: Value| format!("Json({value})");
    match name {
        "label" => format!("Integer({})", row % 3),
        "flag" => some(7, format!("Integer({})", u8::from(row.is_multiple_of(3)))),
        "i8" => format!("Integer({})", -(row as i64)),
        "u64" => some(6, format!("Integer({})", u64::MAX - row)),
        "half" => format!("Float({:?})", row as f64 / 4.0),
        "f32" => some(3, format!("Float({:?})", f64::from(row as f32 / 10.0))),
        "f64" => format!("Float({:?})", row as f64 / 10.0),
        "text" => some(4, format!("Text({:?})", format!("é {}", row % 5))),
        "raw" => {
            let bytes = [vec![255; row as usize % 3], vec![b'a']].concat();
            format!("Bytes({bytes:?})")
        }
        "fixed" => format!("Bytes({:?})", format!("{row:03}").as_bytes()),
        "decimal" => {
            let sign = if row < 5 { "-" } else { "" };
            some(8, format!("Text(\"{sign}0.{:02}\")", (row as i64 - 5).abs()))
        }
        // 2001-02-03 04:05:06.000789, in nanoseconds for the old type and in microseconds
        // otherwise.
        "time" => {
            let time = 981_173_106_000_789 + 86_400_000_000 * row;
            format!("Integer({})", if file == "fields-v1" { 1000 * time } else { time })
        }
        "numbers" => {
            let list: Vec<u64> = up_to(row % 4).iter().map(|it| it * row).collect();
            some(5, format!("Integers({list:?})"))
        }
        "floats" => {
            let list: Vec<f32> = up_to(row % 3).iter().map(|it| *it as f32 / 10.0).collect();
            format!("Floats({list:?})")
        }
        "holes" => "Integers([1, 2])".into(),
        "tags" => json(up_to(row % 3).iter().map(|it| format!("t{it}")).collect()),
        "grid" => some(6, json(up_to(row % 4).iter().map(|it| json!(up_to(*it))).collect())),
        "objects" if row % 5 == 4 => String::new(),
        "objects" => {
            let object = |it: &u64| {
                if *it == 1 && row.is_multiple_of(3) {
                    return "null".to_string();
                }
                let x = (row as f64) + (*it as f64) / 2.0;
                let x = if (row + it) % 4 == 3 { json!(null) } else { json!(x) };
                let name = if *it == 2 { json!(null) } else { json!(format!("n{}", row * it % 3)) };
                format!("{{\"x\":{x},\"name\":{name}}}")
            };
            let objects: Vec<_> = up_to(row % 4).iter().map(object).collect();
            format!("Json([{}])", objects.join(","))
        }
        "map" => {
            json(up_to(row % 3).iter().map(|it| (format!("k{it}"), json!(row + it))).collect())
        }
        "mask" if row.is_multiple_of(4) => String::new(),
        "mask" => some(5, format!("Bytes({:?})", [&[255, 0], row.to_string().as_bytes()].concat())),
        "mask.path" => some(5, format!("Text(\"{row}.png\")")),
        "none" => String::new(),
        "json" => format!("Json({{\"a\": {row}}})"),
        _ => panic!("{name}"),
    }
}

/// Returns the names of all fields of a file, and checks their kinds.
fn names(source: &dyn Source) -> Vec<String> {
    let schema = source.schema();
    let kinds = |wanted: FieldKind| {
        let names = schema.iter().filter(|field| field.kind == wanted);
        names.map(|field| field.name.clone()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(kinds(FieldKind::Number), "label flag i8 u64 half f32 f64 time none");
    assert_eq!(kinds(FieldKind::List), "numbers floats holes");
    assert_eq!(kinds(FieldKind::Text), "text decimal mask.path");
    assert_eq!(kinds(FieldKind::Bytes), "raw fixed mask");
    assert_eq!(kinds(FieldKind::Json), "tags grid objects map json");
    schema.into_iter().map(|field| field.name).collect()
}

#[test]
fn fields_of_all_types_have_the_values_that_pyarrow_wrote() {
    for file in ["fields-v1", "fields-v2"] {
        // The first limit holds few pages, so pages are decoded again.
        for cache_bytes in [40_000, 256 << 20] {
            let settings = ParquetSettings { cache_bytes, ..Default::default() };
            let source = Parquet::open(&[golden(file)], &settings).unwrap();
            let source: &dyn Source = &source;
            for name in names(source) {
                for row in (0..ROWS).map(|it| it * 7 % ROWS).chain(0..ROWS) {
                    let found = field(source, row, &name, 1 << 20);
                    if (&*name, row) == ("holes", 3) {
                        let error = found.unwrap_err();
                        assert_eq!(error.reason, Reason::Field);
                        let problem = "the field \"holes\": entry 1 of the list is null";
                        assert!(error.problem.starts_with(problem), "{}", error.problem);
                        continue;
                    }
                    assert_eq!(found.unwrap(), expected(&name, row, file), "{file} {name} {row}");
                }
            }
        }
    }
}

#[test]
fn columns_have_the_values_of_shuffled_samples() {
    let columns = vec![
        ColumnSettings {
            default: Some(DefaultValue::Text("-".into())),
            ..ColumnSettings::text("text")
        },
        with_field("label", ColumnSettings::array("class", I64, &[])),
        ColumnSettings {
            default: Some(DefaultValue::List(Vec::new())),
            ..ColumnSettings::list("numbers", I64, &[])
        },
        with_field("json:a", ColumnSettings::array("a", F32, &[])),
        with_field(
            "map:k1",
            ColumnSettings {
                default: Some(DefaultValue::Integer(-1)),
                ..ColumnSettings::array("k1", I64, &[])
            },
        ),
        with_field("fixed", ColumnSettings::text("fixed")),
        ColumnSettings::array("decimal", F32, &[]),
    ];
    let columns: Vec<_> = columns
        .into_iter()
        .map(|it| match &*it.name {
            "decimal" => ColumnSettings { default: Some(DefaultValue::Float(9.0)), ..it },
            _ => it,
        })
        .collect();
    for workers in [1, 3] {
        let both = [golden("fields-v1"), golden("fields-v2")];
        let source = Parquet::open(&both, &ParquetSettings::default()).unwrap();
        let builder = builder(source, columns.clone()).shuffle(true).num_workers(workers);
        let batches = batches(builder).unwrap();
        assert_eq!(batches.iter().map(|it| it.len() as u64).sum::<u64>(), 2 * ROWS);
        for batch in &batches {
            let column = |name| batch.column(name).unwrap();
            for (place, index) in batch.indices().enumerate() {
                let row = index % ROWS;
                let text = if row % 4 == 3 { "-".into() } else { format!("é {}", row % 5) };
                assert_eq!(column("text").text(place), Some(&*text));
                assert_eq!(column("class").sample(place), Some(&[batch.labels()[place]][..]));
                let count = if row % 5 == 4 { 0 } else { row % 4 };
                let numbers: Vec<i64> = (0..count).map(|it| (it * row) as i64).collect();
                assert_eq!(column("numbers").sample(place), Some(&numbers[..]));
                assert_eq!(column("a").sample(place), Some(&[row as f32][..]));
                let k1 = if row % 3 == 2 { row as i64 + 1 } else { -1 };
                assert_eq!(column("k1").sample(place), Some(&[k1][..]));
                assert_eq!(column("fixed").text(place), Some(&*format!("{row:03}")));
                let decimal = if row % 8 == 7 { 9.0 } else { (row as f32 - 5.0) / 100.0 };
                assert_eq!(column("decimal").sample(place), Some(&[decimal][..]));
            }
        }
    }
}

#[test]
fn members_of_the_struct_of_the_image_are_fields() {
    let source = open(golden("train-00000-of-00002"));
    let names: Vec<_> = (&source as &dyn Source).schema().into_iter().map(|it| it.name).collect();
    assert_eq!(names, ["image.path", "label"]);
    assert_eq!(field(&source, 7, "image.path", 100).unwrap(), "Text(\"7.jpg\")");
    assert_eq!(field(&source, 7, "label", 100).unwrap(), "Integer(1)");
    let settings = ParquetSettings { image: "mask".into(), ..Default::default() };
    let mask = Parquet::open(&[golden("fields-v1")], &settings).unwrap();
    let names: Vec<_> = (&mask as &dyn Source).schema().into_iter().map(|it| it.name).collect();
    assert!(names.contains(&"mask.path".into()) && !names.contains(&"mask".into()), "{names:?}");
    assert!(field(&mask, 1, "image", 1000).unwrap().starts_with("Bytes("));
}

#[test]
fn a_file_without_a_column_lacks_the_values() {
    let files = [golden("fields-v1"), golden("snappy")];
    let open = || Parquet::open(&files, &ParquetSettings::default()).unwrap();
    assert_eq!(field(&open(), ROWS - 1, "i8", 100).unwrap(), "Integer(-23)");
    assert_eq!(field(&open(), ROWS, "i8", 100).unwrap(), "");
    let column = || ColumnSettings::array("i8", I64, &[]);
    let (index, reason, problem) = sample_error(builder(open(), vec![column()]));
    assert_eq!((index, reason), (ROWS, Reason::Field));
    assert!(problem.contains("the field \"i8\" is missing"), "{problem}");
    let with_default = ColumnSettings { default: Some(DefaultValue::Integer(9)), ..column() };
    let batches = batches(builder(open(), vec![with_default])).unwrap();
    let last = batches.last().unwrap().column("i8").unwrap();
    assert_eq!(last.as_slice::<i64>().unwrap(), [9; 4]);
    let parts: Vec<std::sync::Arc<dyn Source>> =
        files.iter().map(|it| std::sync::Arc::new(self::open(it.clone())) as _).collect();
    let both = Concat::new(parts).unwrap();
    let names: Vec<_> = (&both as &dyn Source).schema().into_iter().map(|it| it.name).collect();
    assert_eq!(names, ["label"]);
}

#[test]
fn values_that_do_not_fit_are_errors_of_the_sample() {
    let first = |column: ColumnSettings| {
        let (index, reason, problem) =
            sample_error(builder(open(golden("fields-v1")), vec![column.clone()]));
        assert!(problem.contains(&format!("the field {:?}", column.name)), "{problem}");
        (index, reason, problem)
    };
    let (index, reason, problem) = first(ColumnSettings::array("u64", I64, &[]));
    assert_eq!((index, reason), (0, Reason::Field));
    assert!(problem.contains("18446744073709551615"), "{problem}");
    let (index, _, problem) = first(ColumnSettings::array("half", ElementType::U8, &[]));
    assert_eq!(index, 1);
    assert!(problem.contains("0.25 is not a whole number"), "{problem}");
    let (index, _, problem) = first(ColumnSettings::text("raw"));
    assert_eq!(index, 1);
    assert!(problem.contains("not UTF-8 at byte 0"), "{problem}");
    let (_, _, problem) = first(ColumnSettings::array("floats", F32, &[3]));
    assert!(problem.contains("a list of 0 numbers"), "{problem}");
    let (_, reason, _) = first(ColumnSettings::array("none", F32, &[]));
    assert_eq!(reason, Reason::Field);

    let source = open(golden("fields-v1"));
    for (name, row, least) in
        [("text", 1, 4), ("numbers", 7, 24), ("objects", 7, 68), ("raw", 2, 3), ("json", 3, 8)]
    {
        let whole = expected(name, row, "fields-v1");
        assert_eq!(field(&source, row, name, least).unwrap(), whole, "{name}");
        let error = field(&source, row, name, least - 1).unwrap_err();
        assert_eq!(error.reason, Reason::Oversized, "{name}");
        let words = format!("the field {name:?} has more than {} bytes", least - 1);
        assert!(error.problem.starts_with(&words), "{}", error.problem);
        assert!(error.problem.contains("limits.max_field_bytes"), "{}", error.problem);
    }
}

#[test]
fn pages_of_fields_are_read_on_first_use_and_counted() {
    let source = open(golden("fields-v1"));
    let names = names(&source);
    let before = source.memory_bytes();
    let pixels = |source: &Parquet| {
        let mut page = feedwater::source::custom::HostPage::default();
        source.read(3, &mut page, 1 << 20).unwrap();
        page.bytes().to_vec()
    };
    let image = pixels(&source);
    assert_eq!(source.memory_bytes(), before, "an image needs no pages of fields");
    field(&source, 3, "text", 100).unwrap();
    let text = source.memory_bytes();
    assert!(text > before + 4096, "{before} {text}");
    field(&source, 0, "text", 100).unwrap();
    assert_eq!(source.memory_bytes(), text, "pages of a row group are counted once");
    field(&source, 20, "text", 100).unwrap();
    assert!(source.memory_bytes() > text, "another row group has other pages");
    for name in names {
        _ = field(&source, 3, &name, 1000);
    }
    assert_eq!(pixels(&source), image);
}

/// A flipped bit in a page is an error or changes nothing, because pages have checksums. Their
/// headers have none, so a flipped bit can select another encoding that fits by chance.
#[test]
fn a_flipped_bit_is_an_error_or_changes_nothing() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("flipped.parquet");
    for file in ["fields-v1", "fields-v2"] {
        let bytes = fs::read(golden(file)).unwrap();
        let tail = bytes.len() - 8;
        let size = u32::from_le_bytes(bytes[tail..tail + 4].try_into().unwrap()) as usize;
        let names = names(&open(golden(file)));
        let mut wrong = Vec::new();
        // All bits take minutes.
        for at in (0..bytes.len()).step_by(11) {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << (at % 8);
            fs::write(&path, flipped).unwrap();
            let settings = ParquetSettings::default();
            let Ok(source) = Parquet::open(std::slice::from_ref(&path), &settings) else {
                continue;
            };
            for row in [0, 15, 17].into_iter().filter(|row| *row < source.len()) {
                for name in &names {
                    let Ok(found) = field(&source, row, name, 1000) else { continue };
                    let is_metadata = at >= tail - size;
                    if !is_metadata && found != expected(name, row, file) {
                        wrong.push((at, name, row, found));
                    }
                }
            }
        }
        assert!(wrong.len() <= 1, "{file}: {wrong:?}");
    }
}

#[test]
fn a_file_that_changed_is_an_error_of_its_samples() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("a.parquet");
    fs::copy(golden("fields-v1"), &path).unwrap();
    let source = open(path.clone());
    assert_eq!(field(&source, 2, "i8", 100).unwrap(), "Integer(-2)");
    let longer = [&fs::read(golden("fields-v1")).unwrap()[..], b"x"].concat();
    fs::write(&path, longer).unwrap();
    let error = field(&source, 2, "f64", 100).unwrap_err();
    assert_eq!(error.reason, Reason::Unreadable);
    assert!(error.problem.contains("was changed after it was opened"), "{}", error.problem);
}
