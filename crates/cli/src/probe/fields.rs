//! Fields of a source: an example of each, and the column that would hold it.

use feedwater::internals::error::beginning;
use feedwater::internals::field::{FieldPath, Numbers, npz};
use feedwater::source::{FieldValue, Flat, Source};
use serde::Serialize;
use serde_json::Value;

/// A field of a source.
#[derive(Debug, Serialize)]
pub struct Shown {
    name: String,
    /// Value in the first of at most [`SAMPLES`] samples that has the field.
    example: Option<String>,
    /// Keys of a `[[column]]` that holds the field. `None` if the example does not show which
    /// column fits.
    column: Option<String>,
}

/// Maximum number of samples that are read to find examples.
const SAMPLES: u64 = 20;

/// Maximum size of a sample's fields, in bytes.
const MOST_BYTES: u64 = 1 << 20;

/// First bytes of a PNG file, which may be a mask.
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n";

/// Maximum number of bytes of an example.
const LENGTH: usize = 60;

/// Returns the fields of a source.
pub fn of(source: &dyn Source) -> Vec<Shown> {
    let mut shown: Vec<Shown> = source
        .schema()
        .into_iter()
        .map(|field| Shown { name: field.name, example: None, column: None })
        .collect();
    let Some(fields) = source.fields() else { return shown };
    for index in 0..source.len().min(SAMPLES) {
        let wanted: Vec<String> =
            shown.iter().filter(|it| it.example.is_none()).map(|it| it.name.clone()).collect();
        if wanted.is_empty() {
            break;
        }
        for name in wanted {
            // Each field is read on its own, because one that cannot be read hides the others.
            let mut found = None;
            let result =
                fields.read_fields(index, &[&name], &mut Vec::new(), MOST_BYTES, &mut |_, it| {
                    found = example(&name, it);
                    Ok(())
                });
            let field = shown.iter_mut().find(|it| it.name == name);
            if let (Ok(()), Some(field), Some((text, kind))) = (result, field, found) {
                field.example = Some(text);
                // These names are reserved.
                let name = match name.as_str() {
                    "image" | "label" | "target" => {
                        format!("name = \"source_{name}\", field = {name:?}")
                    }
                    _ => format!("name = {name:?}"),
                };
                field.column = kind.map(|kind| format!("{name}, {kind}"));
            }
        }
    }
    shown
}

/// Formats the fields for people, one line for each.
pub fn lines(shown: &[Shown]) -> Vec<String> {
    let line = |(number, it): (usize, &Shown)| {
        let head = if number == 0 { "fields   " } else { "         " };
        let example = it.example.as_deref().unwrap_or("not in the first samples");
        let column = it.column.as_ref().map_or(String::new(), |it| format!("; [[column]] {it}"));
        let name = beginning(&it.name, LENGTH).escape_debug();
        format!("{head} {name}: {example}{column}")
    };
    shown.iter().enumerate().map(line).collect()
}

/// Text of a value of the field `name`, and the keys of a column that holds such values. `None` if
/// the value is missing.
fn example(name: &str, value: FieldValue<'_>) -> Option<(String, Option<String>)> {
    let json = |text: &[u8]| serde_json::from_slice::<Value>(text).ok();
    match value {
        FieldValue::Text("") => None,
        FieldValue::Text(text) => match json(text.trim().as_bytes()) {
            Some(value) if !value.is_string() => of_json(&value),
            _ => Some((quoted(text), Some("kind = \"text\"".into()))),
        },
        FieldValue::Bytes(bytes) => {
            let kind = if bytes.starts_with(PNG) { "mask" } else { "bytes" };
            Some((format!("{} bytes", bytes.len()), Some(format!("kind = {kind:?}"))))
        }
        FieldValue::Json(text) => of_json(&json(text)?),
        FieldValue::JsonMember(object, name) => of_json(json(object)?.get(name)?),
        FieldValue::Integer(number) => Some((number.to_string(), Some("dtype = \"i64\"".into()))),
        FieldValue::Float(number) => Some((number.to_string(), Some("dtype = \"f32\"".into()))),
        FieldValue::Integers(list) => Some((shortened(&format!("{list:?}")), Some(list_of("i64")))),
        FieldValue::Floats(list) => Some((shortened(&format!("{list:?}")), Some(list_of("f32")))),
        FieldValue::Doubles(list) => Some((shortened(&format!("{list:?}")), Some(list_of("f32")))),
        FieldValue::Entries(values, shape) => {
            let (text, dtype) = match values {
                Flat::Bytes(list) => (format!("{list:?}"), "u8"),
                Flat::Integers(list) => (format!("{list:?}"), "i64"),
                Flat::Floats(list) => (format!("{list:?}"), "f32"),
                Flat::Doubles(list) => (format!("{list:?}"), "f32"),
                _ => return Some(("a list".into(), None)),
            };
            let shape =
                if shape.is_empty() { String::new() } else { format!(", shape = {shape:?}") };
            Some((shortened(&text), Some(list_of(dtype) + &shape)))
        }
        FieldValue::Npy([]) | FieldValue::Npz([]) => None,
        FieldValue::Npy(file) | FieldValue::Array(file) => Some(of_array(file)),
        FieldValue::Npz(archive) => {
            let (field, mut inflated) = (FieldPath::whole(name), Vec::new());
            let array = npz::array(archive, &field, MOST_BYTES, &mut inflated);
            Some(array.map_or_else(|error| (shortened(&error.problem), None), of_array))
        }
        FieldValue::Tensor(_, shape) => Some((format!("an array of shape {shape:?}"), None)),
        _ => Some(("a value".into(), None)),
    }
}

fn of_array(file: &[u8]) -> (String, Option<String>) {
    match Numbers::parse(file) {
        Ok(array) => {
            let (item, shape) = (array.item(), &array.shape);
            let dtype = if item.contains('f') { "f32" } else { "i64" };
            let column = format!("dtype = {dtype:?}, shape = {shape:?}");
            (format!("an array of {item} with the shape {shape:?}"), Some(column))
        }
        Err(error) => (shortened(&error.problem), None),
    }
}

fn of_json(value: &Value) -> Option<(String, Option<String>)> {
    let number = |value: &Value| if value.is_f64() { "f32" } else { "i64" };
    let column = match value {
        Value::Null => return None,
        Value::String(text) => return Some((quoted(text), Some("kind = \"text\"".into()))),
        Value::Bool(_) => Some("dtype = \"u8\"".into()),
        Value::Number(_) => Some(format!("dtype = \"{}\"", number(value))),
        Value::Array(values) if values.iter().all(Value::is_number) => {
            let is_float = values.iter().any(Value::is_f64);
            Some(list_of(if is_float { "f32" } else { "i64" }))
        }
        Value::Array(values) if values.iter().all(Value::is_string) => {
            Some("kind = \"texts\"".into())
        }
        Value::Array(_) => None,
        Value::Object(members) => {
            let first = members.keys().next().map_or("NAME", String::as_str);
            let text = shortened(&value.to_string());
            return Some((format!("{text} (choose a member, such as :{first})"), None));
        }
    };
    Some((shortened(&value.to_string()), column))
}

fn list_of(dtype: &str) -> String {
    format!("kind = \"list\", dtype = \"{dtype}\"")
}

fn quoted(text: &str) -> String {
    format!("{:?}", beginning(text, LENGTH))
}

fn shortened(text: &str) -> String {
    beginning(text, LENGTH).to_string()
}
