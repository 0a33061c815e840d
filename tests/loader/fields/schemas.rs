//! Random schemas: columns of every kind in every container, with values that are missing, too
//! long, or wrong. A short model says which samples arrive, and with which values.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::npy::npy;
use super::npz_files::{Member, zip};
use super::webdataset::{open, tar};
use super::{batches, listed, shared, with_field};
use crate::common::{jpegs, tests_all_cases};
use feedwater::internals::random::{SampleKey, SampleRng};
use feedwater::loader::{Batch, Column};
use feedwater::plan::{ColumnKind, ColumnSettings, DefaultValue, OnError, Pick, TooLong};
use feedwater::{ElementType, Source};
use half::{bf16, f16};
use serde_json::{Map, Value, json};

/// Where the values of a sample are.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Container {
    /// Cells of a table: texts as they are, numbers as JSON.
    Table,
    /// Keys of JSON lines.
    Lines,
    /// One key of JSON lines, whose value contains the values of all columns.
    Nested,
    /// The file `json` of samples in an archive.
    Archive,
    /// Files of samples in an archive: `.txt`, `.json` for several texts, `.npy` and `.npz`.
    Files,
}

const CONTAINERS: [Container; 5] =
    [Container::Table, Container::Lines, Container::Nested, Container::Archive, Container::Files];

const PICKS: [Pick; 2] = [Pick::First, Pick::Random];

/// Value of a sample in a container.
#[derive(Clone, Debug)]
enum Given {
    Missing,
    /// A value of another type or shape.
    Wrong,
    /// Numbers of an array, or of the entries of a list.
    Numbers(Vec<f64>),
    Text(String),
    Texts(Vec<String>),
}

/// Value of a sample in a batch.
#[derive(Clone, Debug, PartialEq)]
enum Cell {
    Numbers(Vec<f64>),
    Text(String),
    Texts(Vec<String>),
}

/// Value in a batch, with whether it was cut and whether it is the default.
type Expected = (Cell, bool, bool);

/// Values of each sample. `None` for a sample that fails.
type Model = Vec<Option<Vec<Expected>>>;

fn chance(rng: &mut SampleRng, one_in: u64) -> bool {
    rng.below(one_in) == 0
}

fn any<T: Copy>(rng: &mut SampleRng, of: &[T]) -> T {
    of[rng.below(of.len() as u64) as usize]
}

/// Draws a column. Its field has the same name.
fn column(name: &str, rng: &mut SampleRng) -> ColumnSettings {
    use ElementType::{BF16, F16, F32, I64, U8};
    let dtype = any(rng, &[U8, I64, F16, BF16, F32]);
    let shape: &[usize] = any(rng, &[&[][..], &[], &[1], &[3], &[2, 2]]);
    let column = match rng.below(5) {
        0 => ColumnSettings::array(name, dtype, shape),
        1 => ColumnSettings::list(name, dtype, shape),
        2 => ColumnSettings::text(name),
        3 => {
            ColumnSettings { max_texts: Some(any(rng, &[1, 3, 20])), ..ColumnSettings::texts(name) }
        }
        _ => ColumnSettings { pick: Some(any(rng, &PICKS)), ..ColumnSettings::text(name) },
    };
    let is_array = column.kind == ColumnKind::Array;
    let default = match column.kind {
        ColumnKind::Array => DefaultValue::Integer(3),
        ColumnKind::List => DefaultValue::List(Vec::new()),
        ColumnKind::Texts => DefaultValue::List(vec![DefaultValue::Text("nö".into())]),
        _ => DefaultValue::Text("nö".into()),
    };
    ColumnSettings {
        // A line of a list may have 4 MiB.
        max_len: (!is_array)
            .then(|| any(rng, &[4, 9, 40, if shape.is_empty() { 100_000 } else { 200 }])),
        too_long: if !is_array && chance(rng, 2) { TooLong::Truncate } else { TooLong::Error },
        default: chance(rng, 2).then_some(default),
        ..column
    }
}

/// Draws a value. Numbers are multiples of 1/8 that every float type has.
fn given(container: Container, column: &ColumnSettings, rng: &mut SampleRng) -> Given {
    // Every cell of a table is a text.
    let has_texts = matches!(column.kind, ColumnKind::Text | ColumnKind::Texts);
    let is_any = container == Container::Table && has_texts;
    match rng.below(12) {
        0 => return Given::Missing,
        1 if !is_any => return Given::Wrong,
        _ => {}
    }
    let most = column.max_len.unwrap_or(1);
    let len = match rng.below(8) {
        0 => 0,
        1 => most,
        2 => most + 1 + rng.below(3) as usize,
        _ => rng.below(most.min(50) as u64 + 1) as usize,
    };
    if column.kind == ColumnKind::Texts || column.pick.is_some() {
        let count = rng.below(5);
        let mut rest = if column.pick.is_some() { 0 } else { len };
        let texts = (0..count).map(|number| {
            let len = if column.pick.is_some() { len } else { rng.below(rest as u64 + 1) as usize };
            rest = rest.saturating_sub(len);
            let text: String = std::iter::repeat_with(|| any(rng, &['a', 'é', '日', '"', '[']))
                .take(len)
                .collect();
            format!("{number}{text}")
        });
        return Given::Texts(texts.collect());
    }
    if column.kind == ColumnKind::Text {
        // Commas, quotes and line ends, and characters of one to four bytes.
        let characters = ['a', 'é', '日', '🙂', ',', '"', '\n', ' '];
        let text = std::iter::repeat_with(|| any(rng, &characters)).take(len).collect::<String>();
        return Given::Text(format!("x{text}"));
    }
    let entries = if column.kind == ColumnKind::Array { 1 } else { len };
    let is_float = !matches!(column.dtype, Some(ElementType::U8 | ElementType::I64));
    let mut numbers: Vec<f64> = (0..entries * column.shape.iter().product::<usize>())
        .map(|_| match column.dtype {
            Some(ElementType::U8) => rng.below(256) as f64,
            Some(ElementType::I64) => rng.below(1 << 50) as f64 - (1_u64 << 49) as f64,
            _ => rng.below(255) as f64 / 8.0 - 15.875,
        })
        .collect();
    if !is_float && entries > 0 && chance(rng, 12) {
        // A number that this integer column cannot have.
        let beyond = if column.dtype == Some(ElementType::U8) { 256.0 } else { -0.25 };
        let at = rng.below(numbers.len() as u64) as usize;
        numbers[at] = any(rng, &[0.5, beyond]);
    }
    Given::Numbers(numbers)
}

/// The value that a column has for a sample. `None` if the sample fails.
fn expected(column: &ColumnSettings, given: &Given, key: SampleKey) -> Option<Expected> {
    let entry: usize = column.shape.iter().product();
    let most = column.max_len.unwrap_or(1);
    let cuts = column.too_long == TooLong::Truncate;
    match given {
        Given::Wrong => None,
        Given::Missing => {
            column.default.as_ref()?;
            let cell = match column.kind {
                ColumnKind::Array => Cell::Numbers(vec![3.0; entry]),
                ColumnKind::List => Cell::Numbers(Vec::new()),
                ColumnKind::Texts => Cell::Texts(vec!["nö".into()]),
                // `nö` has three bytes, which every `max_len` permits.
                _ => Cell::Text("nö".into()),
            };
            Some((cell, false, true))
        }
        Given::Text(text) if text.len() <= most => Some((Cell::Text(text.clone()), false, false)),
        Given::Text(text) => {
            let end = (0..=most).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
            cuts.then(|| (Cell::Text(text[..end].into()), true, false))
        }
        Given::Texts(texts) if column.pick.is_some() => {
            let draw =
                if column.pick == Some(Pick::First) { 0 } else { key.draw_of_column(&column.name) };
            let chosen = (u128::from(draw) * texts.len() as u128) >> 64;
            match texts.get(chosen as usize) {
                Some(text) => expected(column, &Given::Text(text.clone()), key),
                None => expected(column, &Given::Missing, key),
            }
        }
        Given::Texts(texts) => {
            let fits = texts.len() <= column.max_texts.unwrap()
                && texts.iter().map(String::len).sum::<usize>() <= most;
            let (mut kept, mut room) = (Vec::new(), most);
            for text in texts.iter().take(column.max_texts.unwrap()) {
                let end = (0..=room.min(text.len())).rev().find(|&end| text.is_char_boundary(end));
                let end = end.unwrap_or(0);
                kept.extend((end > 0).then(|| text[..end].to_string()));
                if end < text.len() {
                    break;
                }
                room -= end;
            }
            (fits || cuts).then_some((Cell::Texts(kept), !fits, false))
        }
        Given::Numbers(numbers) => {
            let too_long = column.kind == ColumnKind::List && numbers.len() > most * entry;
            let kept = if too_long { &numbers[..most * entry] } else { &numbers[..] };
            let fits = |&number: &f64| match column.dtype {
                Some(ElementType::U8) => number.fract() == 0.0 && (0.0..256.0).contains(&number),
                Some(ElementType::I64) => number.fract() == 0.0,
                _ => true,
            };
            let fits = kept.iter().all(fits) && (cuts || !too_long);
            fits.then(|| (Cell::Numbers(kept.to_vec()), too_long, false))
        }
    }
}

/// Numbers as nested JSON arrays of this shape. An integer is written without a decimal point.
fn nested(numbers: &[f64], shape: &[usize]) -> Value {
    match shape {
        [] if numbers[0].fract() == 0.0 => json!(numbers[0] as i64),
        [] => json!(numbers[0]),
        [first, inner @ ..] => {
            let part = inner.iter().product::<usize>();
            let parts = (0..*first).map(|at| nested(&numbers[at * part..][..part], inner));
            Value::Array(parts.collect())
        }
    }
}

/// Shape of a value's array in its container.
fn shape_of(column: &ColumnSettings, numbers: &[f64]) -> Vec<usize> {
    let entry: usize = column.shape.iter().product();
    let list = (column.kind == ColumnKind::List).then(|| numbers.len() / entry);
    list.into_iter().chain(column.shape.iter().copied()).collect()
}

/// JSON of a value. `None` if the key is left out.
fn as_json(column: &ColumnSettings, given: &Given, rng: &mut SampleRng) -> Option<Value> {
    Some(match given {
        Given::Missing => match rng.below(3) {
            0 => return None,
            1 => Value::Null,
            _ => json!(""),
        },
        Given::Wrong if column.kind == ColumnKind::Texts || column.pick.is_some() => {
            any(rng, &["[0]", "[[\"a\"]]", "[\"a\", null]", "7"]).parse().unwrap()
        }
        Given::Wrong if column.kind == ColumnKind::Text => any(rng, &[0, 1]).into(),
        Given::Wrong => match rng.below(3) {
            0 => json!("7"),
            1 => json!({"a": 1}),
            // No shape here has seven axes.
            _ => json!([[[[[[[1]]]]]]]),
        },
        Given::Numbers(numbers) => nested(numbers, &shape_of(column, numbers)),
        Given::Text(text) => json!(text),
        Given::Texts(texts) => json!(texts),
    })
}

/// The `.npy`, `.npz`, `.txt` or `.json` file of a value. `None` if there is none.
fn as_file(column: &ColumnSettings, given: &Given, rng: &mut SampleRng) -> Option<Vec<u8>> {
    match given {
        Given::Missing => None,
        Given::Wrong if extension_of(column) == "json" => Some(b"[\"a\"".to_vec()),
        Given::Wrong if column.kind == ColumnKind::Text => Some(vec![0xff, 0xfe]),
        Given::Wrong => Some(npy("<f4", "(5, 7)", &[0; 140])),
        Given::Texts(texts) => Some(json!(texts).to_string().into_bytes()),
        Given::Text(text) => Some(text.clone().into_bytes()),
        Given::Numbers(numbers) => {
            let shape = shape_of(column, numbers);
            let shape: String = shape.iter().map(|side| format!("{side},")).collect();
            let whole = numbers.iter().all(|it| it.fract() == 0.0);
            let (descr, data): (_, Vec<u8>) = match rng.below(3) {
                0 if whole => {
                    (">i8", numbers.iter().flat_map(|&it| (it as i64).to_be_bytes()).collect())
                }
                1 => (">f8", numbers.iter().flat_map(|it| it.to_be_bytes()).collect()),
                _ => ("<f8", numbers.iter().flat_map(|it| it.to_le_bytes()).collect()),
            };
            let file = npy(descr, &format!("({shape})"), &data);
            if extension_of(column) == "npy" {
                return Some(file);
            }
            let member = if chance(rng, 2) { Member::stored } else { Member::deflated };
            Some(zip(&[member("other.npy", b"x"), member(&format!("{}.npy", column.name), &file)]))
        }
    }
}

/// Extension of the files of a column.
fn extension_of(column: &ColumnSettings) -> &'static str {
    match column.kind {
        ColumnKind::Texts => "json",
        ColumnKind::Text if column.pick.is_some() => "json",
        ColumnKind::Text => "txt",
        // Some columns are in archives of arrays.
        _ if column.default.is_some() => "npz",
        _ => "npy",
    }
}

/// Writes the samples, and opens them. Also returns the columns with their fields.
fn written(
    container: Container,
    columns: &[ColumnSettings],
    rows: &[Vec<Given>],
    rng: &mut SampleRng,
) -> (tempfile::TempDir, Arc<dyn Source>, Vec<ColumnSettings>) {
    let fielded = columns.iter().map(|column| {
        let name = &column.name;
        let extension = extension_of(column);
        let field = match container {
            Container::Table | Container::Lines => return column.clone(),
            Container::Nested => format!("meta:all[1].{name}"),
            Container::Archive => format!("json:{name}"),
            Container::Files if extension == "npz" => format!("{name}.npz:{name}"),
            Container::Files => format!("{name}.{extension}"),
        };
        with_field(&field, column.clone())
    });
    let fielded: Vec<_> = fielded.collect();
    let mut text = String::new();
    if container == Container::Table {
        let names: String = columns.iter().map(|column| format!(",{}", column.name)).collect();
        text = format!("path{names}\n");
    }
    let mut files = Vec::new();
    for (number, row) in rows.iter().enumerate() {
        let path = format!("{number}.jpg");
        let mut object = Map::new();
        for (column, given) in columns.iter().zip(row) {
            if let Some(value) = as_json(column, given, rng) {
                object.insert(column.name.clone(), value);
            }
        }
        match container {
            Container::Table => {
                text += &path;
                for (column, given) in columns.iter().zip(row) {
                    let cell = match given {
                        Given::Missing => String::new(),
                        Given::Wrong => "no number".into(),
                        Given::Text(text) => text.clone(),
                        Given::Texts(texts) => json!(texts).to_string(),
                        Given::Numbers(numbers) => {
                            nested(numbers, &shape_of(column, numbers)).to_string()
                        }
                    };
                    text += &format!(",\"{}\"", cell.replace('"', "\"\""));
                }
                text += "\n";
            }
            Container::Lines => {
                object.insert("path".into(), json!(path));
                text += &format!("{}\n", Value::Object(object));
            }
            Container::Nested => {
                let meta = json!({ "all": [7, object] });
                text += &format!("{}\n", json!({ "path": path, "meta": meta }));
            }
            Container::Archive => {
                files.push((path, jpegs(1).remove(0).0));
                files.push((format!("{number}.json"), Value::Object(object).to_string().into()));
            }
            Container::Files => {
                files.push((path, jpegs(1).remove(0).0));
                for ((column, given), field) in columns.iter().zip(row).zip(&fielded) {
                    let file = field.field.as_ref().unwrap().split(':').next().unwrap();
                    let name = format!("{number}.{file}");
                    files.extend(as_file(column, given, rng).map(|bytes| (name, bytes)));
                }
            }
        }
    }
    match container {
        Container::Archive | Container::Files => {
            let folder = tempfile::tempdir().unwrap();
            // Label files, so that the archive has labels as usual.
            files.extend((0..rows.len()).map(|number| (format!("{number}.cls"), b"1".to_vec())));
            files.sort_by_key(|(name, _)| name.split('.').next().unwrap().parse::<u64>().unwrap());
            tar(&folder.path().join("a.tar"), &files);
            let source = open(&[folder.path().join("a.tar")]);
            (folder, Arc::new(source), fielded)
        }
        _ => {
            let name = if container == Container::Table { "list.csv" } else { "list.jsonl" };
            let (folder, list) = listed(name, rows.len(), &text);
            (folder, Arc::new(list), fielded)
        }
    }
}

/// The numbers or the text of a sample in a batch.
fn cell(column: &Column<'_>, place: usize) -> Cell {
    fn numbers<T: feedwater::Element>(
        column: &Column<'_>,
        place: usize,
        number: impl Fn(&T) -> f64,
    ) -> Cell {
        Cell::Numbers(column.sample::<T>(place).unwrap().iter().map(number).collect())
    }
    if let Some(text) = column.text(place) {
        return Cell::Text(text.into());
    }
    if let Some(texts) = column.texts(place) {
        return Cell::Texts(texts.map(String::from).collect());
    }
    match column.element_type() {
        ElementType::U8 => numbers::<u8>(column, place, |&it| it.into()),
        ElementType::I64 => numbers::<i64>(column, place, |&it| it as f64),
        ElementType::F16 => numbers::<f16>(column, place, |it| it.to_f64()),
        ElementType::BF16 => numbers::<bf16>(column, place, |it| it.to_f64()),
        _ => numbers::<f32>(column, place, |&it| it.into()),
    }
}

fn check(seed: u64) {
    let rng = &mut SampleRng::new(SampleKey { seed, epoch: 0, index: 0 }, 5);
    let container = any(rng, &CONTAINERS);
    let count = 1 + rng.below(5) as usize;
    let columns: Vec<_> = (0..count).map(|number| column(&format!("c{number}"), rng)).collect();
    let rows = 1 + rng.below(14) as usize;
    let mut rows: Vec<Vec<Given>> =
        (0..rows).map(|_| columns.iter().map(|it| given(container, it, rng)).collect()).collect();
    if container != Container::Table {
        // A field that none of the first samples has is an error of the settings.
        rows[0]
            .iter_mut()
            .filter(|it| matches!(it, Given::Missing))
            .for_each(|it| *it = Given::Wrong);
    }
    let case = format!("seed {seed}: {container:?}, {columns:?}");
    let (_folder, source, fielded) = written(container, &columns, &rows, rng);
    let of_row = |(index, row): (u64, &Vec<Given>)| {
        let key = SampleKey { seed, epoch: 0, index };
        columns.iter().zip(row).map(|(it, given)| expected(it, given, key)).collect()
    };
    let model: Model = (0..).zip(&rows).map(of_row).collect();
    let (shards, shuffle) = (1 + rng.below(2.min(rows.len() as u64)), chance(rng, 2));
    let (batch_size, workers) = (1 + rng.below(6) as usize, 1 + rng.below(3) as usize);
    let (mut seen, mut errors) = (BTreeMap::new(), Vec::new());
    for shard in 0..shards {
        let loader = shared(source.clone(), fielded.clone()).batch_size(batch_size);
        let loader = loader.num_workers(workers).shuffle(shuffle).seed(seed);
        let loader = loader.on_error(OnError::Drop).shard(shard, shards);
        let loader = loader.configure(|it| it.limits.max_field_bytes = 4 << 20);
        for batch in batches(loader).unwrap_or_else(|error| panic!("{case}: {error}")) {
            compare(&batch, &columns, (&rows, &model), &case);
            errors.extend(batch.errors().iter().map(ToString::to_string));
            for index in batch.indices() {
                *seen.entry(index).or_insert(0) += 1;
            }
        }
    }
    let arrive: BTreeMap<u64, i32> =
        (0..).zip(&model).filter(|(_, it)| it.is_some()).map(|(index, _)| (index, 1)).collect();
    assert_eq!(seen, arrive, "{case}: {rows:?}, {errors:#?}");
}

/// Compares the samples of a batch with the model.
fn compare(
    batch: &Batch,
    columns: &[ColumnSettings],
    (rows, model): (&[Vec<Given>], &Model),
    case: &str,
) {
    for (place, index) in batch.indices().enumerate() {
        let Some(expected) = &model[index as usize] else {
            panic!("{case}: sample {index} arrived, {:?}", rows[index as usize]);
        };
        let record = &batch.samples()[place];
        for (number, (column, expected)) in columns.iter().zip(expected).enumerate() {
            let found = cell(&batch.column(&column.name).unwrap(), place);
            let marks = [record.truncated, record.defaulted].map(|it| it >> number & 1 == 1);
            let what = format!("{case}: sample {index}, {}", column.name);
            assert_eq!((found, marks[0], marks[1]), *expected, "{what}");
        }
    }
}

#[test]
fn random_schemas_have_the_values_of_a_model() {
    let seeds = if tests_all_cases() { 1500 } else { 60 };
    (0..seeds).for_each(check);
}
