//! Forms in which values are stored.
//!
//! | value | WebDataset | TFRecord |
//! |---|---|---|
//! | text, also as a JSON string | `txt` | bytes |
//! | other JSON | `json` | bytes, `json` |
//! | integer | `json`; `txt` beyond 64 bits | int64; bytes, `txt` beyond `i64` |
//! | float | `json`; `npy` for NaN and infinity | float if it is exact; otherwise bytes, `json` |
//! | flat list | `flat.npy` | int64, float if all are exact; otherwise bytes, `flat.npy` |
//! | list of entries | `entries.npy` | as a flat list if entries are numbers; otherwise bytes, `entries.npy` |
//! | array | `npy` | bytes, `npy` |
//! | bytes | extension of an image, or `bin` | bytes |

use feedwater::error::{DataError, Reason};
use feedwater::internals::header::Header;
use feedwater::source::{FieldValue, Flat};

use super::{json, npy};
use crate::pack::layout::{ShardFormat, extension, field, varint};

/// Value in its form.
pub struct Encoded {
    /// Last part of the name; `None` for a file, or for a feature that needs no form.
    pub form: Option<&'static str>,
    pub content: Content,
}

pub enum Content {
    Bytes(Vec<u8>),
    /// Only for features.
    Integers(Vec<i64>),
    /// Only for features.
    Floats(Vec<f32>),
}

/// Returns the bytes of a value of the field whose files are called `name`.
///
/// # Errors
///
/// [`Reason::Field`] if the value is not that of such a file.
pub fn file(name: &str, value: FieldValue<'_>) -> Result<Option<Encoded>, DataError> {
    let last = name.rsplit('.').next().unwrap_or(name).to_ascii_lowercase();
    let bytes = match (&last[..], value) {
        ("json", FieldValue::Json(bytes))
        | ("npy", FieldValue::Npy(bytes) | FieldValue::Array(bytes))
        | ("npz", FieldValue::Npz(bytes)) => bytes,
        ("json" | "npy", _) => return Err(not_a_file(name)),
        (_, FieldValue::Bytes(bytes)) => bytes,
        (_, FieldValue::Text(text)) => text.as_bytes(),
        _ => return Err(not_a_file(name)),
    };
    Ok(Some(Encoded { form: None, content: Content::Bytes(bytes.into()) }))
}

/// Returns the form of a value. `None` if it is missing.
///
/// # Errors
///
/// [`Reason::Field`] if it is a member of an invalid JSON object, or of an unknown type.
pub fn encode(format: ShardFormat, value: FieldValue<'_>) -> Result<Option<Encoded>, DataError> {
    let is_tf = format == ShardFormat::TfRecord;
    let bytes = |form, bytes: &[u8]| {
        Ok(Some(Encoded { form: Some(form), content: Content::Bytes(bytes.into()) }))
    };
    let natural = |content| Ok(Some(Encoded { form: None, content }));
    let array = |form, numbers, shape: &[usize]| {
        let file = npy::file(numbers, shape).ok_or_else(unknown)?;
        Ok(Some(Encoded { form: Some(form), content: Content::Bytes(file) }))
    };
    match value {
        FieldValue::Text(text) if is_tf => natural(Content::Bytes(text.into())),
        FieldValue::Text(text) => bytes("txt", text.as_bytes()),
        FieldValue::Bytes(file) if is_tf => natural(Content::Bytes(file.into())),
        FieldValue::Bytes(file) => {
            let image = Header::parse(file).ok().and_then(|it| extension(it.format, file));
            bytes(image.unwrap_or("bin"), file)
        }
        FieldValue::Json(text) => match serde_json::from_slice::<String>(text) {
            _ if matches!(text.trim_ascii(), b"" | b"null") => Ok(None),
            Ok(text) => encode(format, FieldValue::Text(&text)),
            Err(_) => bytes("json", text),
        },
        FieldValue::JsonMember(object, name) => match json::member(object, name)? {
            Some(text) => encode(format, FieldValue::Json(text)),
            None => Ok(None),
        },
        FieldValue::Integer(number) => match (i64::try_from(number), u64::try_from(number)) {
            (Ok(number), _) if is_tf => natural(Content::Integers(vec![number])),
            (Ok(_), _) | (_, Ok(_)) if !is_tf => bytes("json", number.to_string().as_bytes()),
            _ => bytes("txt", number.to_string().as_bytes()),
        },
        FieldValue::Float(number) => match exact(number) {
            Some(float) if is_tf => natural(Content::Floats(vec![float])),
            _ if number.is_finite() => {
                let text = serde_json::to_vec(&number).map_err(|_| unknown())?;
                bytes("json", &text)
            }
            _ => array("npy", Flat::Doubles(&[number]), &[]),
        },
        FieldValue::Integers(list) if is_tf => natural(Content::Integers(list.into())),
        FieldValue::Integers(list) => array("flat.npy", Flat::Integers(list), &[list.len()]),
        FieldValue::Floats(list) if is_tf => natural(Content::Floats(list.into())),
        FieldValue::Floats(list) => array("flat.npy", Flat::Floats(list), &[list.len()]),
        FieldValue::Doubles(list) => match all_exact(list).filter(|_| is_tf) {
            Some(floats) => natural(Content::Floats(floats)),
            None => array("flat.npy", Flat::Doubles(list), &[list.len()]),
        },
        FieldValue::Npy([]) => Ok(None),
        FieldValue::Npy(file) | FieldValue::Array(file) => bytes("npy", file),
        FieldValue::Npz([]) => Ok(None),
        FieldValue::Npz(file) => bytes("npz", file),
        FieldValue::Tensor(numbers, shape) => array("npy", numbers, shape),
        FieldValue::Entries(numbers, []) if is_tf => match numbers {
            Flat::Integers(list) => natural(Content::Integers(list.into())),
            Flat::Floats(list) => natural(Content::Floats(list.into())),
            Flat::Doubles(list) if list.iter().all(|&it| exact(it).is_some()) => {
                encode(format, FieldValue::Doubles(list))
            }
            numbers => array("entries.npy", numbers, &[len(numbers)]),
        },
        FieldValue::Entries(numbers, shape) => {
            let count = len(numbers) / shape.iter().product::<usize>().max(1);
            array("entries.npy", numbers, &[&[count], shape].concat())
        }
        _ => Err(unknown()),
    }
}

/// Returns the bytes of a value that was read from a shard. They equal those of
/// [`Content::canonical`] when it was stored.
pub fn canonical(value: FieldValue<'_>) -> Vec<u8> {
    let array = |numbers, shape: &[usize]| npy::file(numbers, shape).unwrap_or_default();
    match value {
        FieldValue::Text(text) => text.into(),
        FieldValue::Bytes(bytes)
        | FieldValue::Npy(bytes)
        | FieldValue::Array(bytes)
        | FieldValue::Npz(bytes)
        | FieldValue::Json(bytes) => bytes.into(),
        FieldValue::Integers(list) => array(Flat::Integers(list), &[list.len()]),
        FieldValue::Floats(list) => array(Flat::Floats(list), &[list.len()]),
        FieldValue::Doubles(list) => array(Flat::Doubles(list), &[list.len()]),
        FieldValue::Entries(numbers, shape) => {
            let count = len(numbers) / shape.iter().product::<usize>().max(1);
            array(numbers, &[&[count], shape].concat())
        }
        // Shards contain no other values.
        other => format!("{other:?}").into(),
    }
}

impl Content {
    /// Bytes for the checksum of the value.
    pub fn canonical(&self) -> Vec<u8> {
        match self {
            Content::Bytes(bytes) => bytes.clone(),
            Content::Integers(list) => canonical(FieldValue::Integers(list)),
            Content::Floats(list) => canonical(FieldValue::Floats(list)),
        }
    }

    /// Memory of the value when it is read, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        match self {
            Content::Bytes(bytes) => bytes.len() as u64,
            Content::Integers(list) => size_of_val(&list[..]) as u64,
            Content::Floats(list) => size_of_val(&list[..]) as u64,
        }
    }

    /// Contents of a file.
    pub fn into_file(self) -> Vec<u8> {
        match self {
            Content::Bytes(bytes) => bytes,
            numbers => numbers.canonical(),
        }
    }

    /// The message `tf.train.Feature` (tensorflow/core/example/feature.proto).
    pub fn feature(&self) -> Vec<u8> {
        match self {
            Content::Bytes(bytes) => field(1, &field(1, bytes)),
            Content::Floats(list) => {
                let packed: Vec<u8> = list.iter().flat_map(|it| it.to_le_bytes()).collect();
                field(2, &field(1, &packed))
            }
            Content::Integers(list) => {
                let packed: Vec<u8> = list.iter().flat_map(|it| varint(*it as u64)).collect();
                field(3, &field(1, &packed))
            }
        }
    }
}

/// The float of 32 bits with the same value and, for NaN, the same bits.
fn exact(number: f64) -> Option<f32> {
    let float = number as f32;
    (f64::from(float).to_bits() == number.to_bits()).then_some(float)
}

fn all_exact(list: &[f64]) -> Option<Vec<f32>> {
    list.iter().map(|&number| exact(number)).collect()
}

fn len(numbers: Flat<'_>) -> usize {
    match numbers {
        Flat::Bytes(list) => list.len(),
        Flat::Integers(list) => list.len(),
        Flat::Floats(list) => list.len(),
        Flat::Doubles(list) => list.len(),
        _ => 0,
    }
}

fn not_a_file(name: &str) -> DataError {
    let problem = format!(
        "the value is not that of a file {name:?}, as in other samples; leave the field out \
         (`--fields`)"
    );
    DataError::new(Reason::Field, problem)
}

fn unknown() -> DataError {
    let problem = "the value has a type that cannot be packed; leave the field out (`--fields`)";
    DataError::new(Reason::Field, problem)
}
