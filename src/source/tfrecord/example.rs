//! Parser of `tf.train.Example` protocol buffers (tensorflow/core/example/{example,feature}.proto):
//!
//! ```text
//! Example { Features features = 1 }      Features { map<string, Feature> feature = 1 }
//! Feature { oneof { BytesList bytes_list = 1; FloatList float_list = 2; Int64List int64_list = 3 } }
//! BytesList { repeated bytes value = 1 }      Int64List { repeated int64 value = 1 [packed] }
//! ```
//!
//! Fields that are not listed above are skipped. If a feature occurs several times, the last
//! occurrence is used. Values are not copied.

use std::ops::Range;

use super::TfRecordSettings;
use crate::source::NO_LABEL;
use crate::source::label::{self, MOST_NAME_BYTES};
use crate::source::records::protobuf::{Fields, Value};
use crate::source::records::{
    CLASSES_NAME, Entries, FIELDS_NAME, FileError, MOST_CLASSES_BYTES, StoredField, Window,
};

/// Numbers of the lists in `Feature`.
pub const BYTES_LIST: u64 = 1;
pub const FLOAT_LIST: u64 = 2;
pub const INT64_LIST: u64 = 3;

const FLOAT_BYTES: u64 = 4;

/// Maximum length of a field's name in bytes. Features with longer names are no fields.
const MOST_FIELD_NAME_BYTES: u64 = 4096;

/// Image and label of a record.
pub struct Found {
    /// Byte range of the image in the file.
    pub image: Range<u64>,
    pub label: i64,
    /// Features that no record before had.
    pub new_fields: Vec<StoredField>,
}

/// Finds the image and the label of a record. For fields, a record needs no image: the range is
/// empty then, and there is no label.
pub fn find(
    window: &mut Window,
    record: Range<u64>,
    settings: &TfRecordSettings,
    table: &Entries,
) -> Result<Found, FileError> {
    let mut new_fields = Vec::new();
    let TfRecordSettings { image, label: label_name } = settings;
    let (mut encoded, mut class) = (None, None);
    let mut names = Vec::new();
    each_feature(window, record.clone(), |window, name, feature| {
        if let Some(text) = field_name(window, &name)?
            && !feature.is_empty()
            && !table.has_field(text)
        {
            let name = text.to_string();
            let is_list = is_list(window, &feature)?;
            new_fields.push(StoredField { name, is_list });
        }
        if equal(window, &name, image)? {
            encoded = Some(feature);
        } else if !label_name.is_empty() && equal(window, &name, label_name)? {
            class = Some(feature);
        } else if names.len() < 32 {
            names.push(name);
        }
        Ok(())
    })?;
    let missing = |window: &mut Window,
                   key: &str,
                   setting: &str,
                   more: &str|
     -> Result<Found, FileError> {
        let mut shown = Vec::new();
        for name in &names {
            let bytes = window.at(name.start, (name.end - name.start).min(100))?;
            shown.push(String::from_utf8_lossy(bytes).into_owned());
        }
        shown.sort_unstable();
        let problem = format!(
            "the record has no feature {key:?}; set source.{setting} to another feature{more}: {}",
            shown.join(", ")
        );
        Err(FileError::new(record.start, problem))
    };
    if table.is_for_fields() {
        let image = encoded.and_then(|encoded| one_bytes(window, encoded, image).ok());
        let image = image.unwrap_or(record.start..record.start);
        return Ok(Found { image, label: NO_LABEL, new_fields });
    }
    let Some(encoded) = encoded else {
        return missing(window, image, "image", "");
    };
    let encoded = one_bytes(window, encoded, image)?;
    let class = match class {
        Some(class) => one_number(window, class, label_name)?,
        None if label_name.is_empty() => NO_LABEL,
        None => return missing(window, label_name, "label", " or none (\"\")"),
    };
    Ok(Found { image: encoded, label: class, new_fields })
}

/// Returns the name of a feature if it may be a field.
pub fn field_name<'a>(
    window: &'a mut Window,
    name: &Range<u64>,
) -> Result<Option<&'a str>, FileError> {
    let len = name.end - name.start;
    if len > MOST_FIELD_NAME_BYTES {
        return Ok(None);
    }
    let name = str::from_utf8(window.at(name.start, len)?).ok();
    Ok(name.filter(|name| ![CLASSES_NAME, FIELDS_NAME].contains(name)))
}

/// Whether a feature that is not empty is a list of numbers.
pub fn is_list(window: &mut Window, feature: &Range<u64>) -> Result<bool, FileError> {
    let [tag] = *window.at(feature.start, 1)?.first_chunk().expect("one byte");
    Ok(matches!(u64::from(tag >> 3), FLOAT_LIST | INT64_LIST))
}

/// Returns the texts in the bytes list of a feature. The list is empty if the record does not have
/// the feature.
pub fn texts(
    window: &mut Window,
    record: Range<u64>,
    wanted: &str,
) -> Result<Vec<String>, FileError> {
    let mut values = None;
    each_feature(window, record, |window, name, feature| {
        if equal(window, &name, wanted)? {
            values = Some(feature);
        }
        Ok(())
    })?;
    let (mut texts, mut bytes) = (Vec::new(), 0);
    let Some(values) = values else { return Ok(texts) };
    each_value(window, values, BYTES_LIST, |window, value| {
        let Value::Bytes(text) = value else { return Ok(()) };
        let len = text.end - text.start;
        bytes += len as usize + size_of::<String>();
        if len as usize > MOST_NAME_BYTES || bytes > MOST_CLASSES_BYTES {
            let problem = format!(
                "the class names have more than {MOST_CLASSES_BYTES} bytes in total, or one of \
                 them has more than {MOST_NAME_BYTES} bytes"
            );
            return Err(FileError::new(text.start, problem));
        }
        texts.push(String::from_utf8_lossy(window.at(text.start, len)?).into_owned());
        Ok(())
    })?;
    Ok(texts)
}

/// Calls `found` with the name and value of every feature.
pub fn each_feature(
    window: &mut Window,
    record: Range<u64>,
    mut found: impl FnMut(&mut Window, Range<u64>, Range<u64>) -> Result<(), FileError>,
) -> Result<(), FileError> {
    let mut example = fields(record);
    while let Some(field) = example.next(window)? {
        let (1, Value::Bytes(features)) = field else { continue };
        let mut features = fields(features);
        while let Some(field) = features.next(window)? {
            let (1, Value::Bytes(entry)) = field else { continue };
            // Protocol buffers omit empty fields, so name and value are empty at first.
            let (mut name, mut value) = (entry.start..entry.start, entry.start..entry.start);
            let mut entry = fields(entry);
            while let Some(field) = entry.next(window)? {
                match field {
                    (1, Value::Bytes(bytes)) => name = bytes,
                    (2, Value::Bytes(bytes)) => value = bytes,
                    _ => {}
                }
            }
            found(window, name, value)?;
        }
    }
    Ok(())
}

fn equal(window: &mut Window, name: &Range<u64>, wanted: &str) -> Result<bool, FileError> {
    let len = name.end - name.start;
    Ok(len == wanted.len() as u64 && window.at(name.start, len)? == wanted.as_bytes())
}

/// Returns the only value of a bytes list.
fn one_bytes(
    window: &mut Window,
    feature: Range<u64>,
    name: &str,
) -> Result<Range<u64>, FileError> {
    let start = feature.start;
    let (mut last, mut count) = (0..0, 0u64);
    each_value(window, feature, BYTES_LIST, |_, value| {
        if let Value::Bytes(bytes) = value {
            last = bytes;
            count += 1;
        }
        Ok(())
    })?;
    match count {
        1 => Ok(last),
        _ => Err(FileError::new(start, not_one(name, count, "bytes list"))),
    }
}

/// Returns the only value of an integer list, or of a float list if the value is a whole number.
fn one_number(window: &mut Window, feature: Range<u64>, name: &str) -> Result<i64, FileError> {
    let start = feature.start;
    let (mut last, mut count) = (0, 0u64);
    each_value(window, feature.clone(), INT64_LIST, |window, value| {
        match value {
            Value::Number(value) => {
                last = value;
                count += 1;
            }
            Value::Bytes(packed) => {
                let mut packed = fields(packed);
                while !packed.is_empty() {
                    last = packed.number(window)?;
                    count += 1;
                }
            }
            Value::Fixed(_) => {}
        }
        Ok(())
    })?;
    let (mut float, mut floats) = (start, 0u64);
    each_value(window, feature, FLOAT_LIST, |_, value| {
        if let Value::Bytes(bytes) | Value::Fixed(bytes) = value
            && bytes.end - bytes.start >= FLOAT_BYTES
        {
            floats += (bytes.end - bytes.start) / FLOAT_BYTES;
            float = bytes.start;
        }
        Ok(())
    })?;
    match (count, floats) {
        (1, 0) => Ok(last as i64),
        (0, 1) => {
            let bytes = window.at(float, FLOAT_BYTES)?.first_chunk().expect("4 bytes");
            let label = f32::from_le_bytes(*bytes);
            label::of_f32(label).map_err(|why| {
                FileError::new(start, format!("the label {label} in the feature {name:?} {why}"))
            })
        }
        _ => Err(FileError::new(start, not_one(name, count + floats, "int64 or float list"))),
    }
}

/// Calls `found` with every value in list number `list` of a feature.
fn each_value(
    window: &mut Window,
    feature: Range<u64>,
    list: u64,
    mut found: impl FnMut(&mut Window, Value) -> Result<(), FileError>,
) -> Result<(), FileError> {
    let mut feature = fields(feature);
    while let Some((number, value)) = feature.next(window)? {
        let Value::Bytes(values) = value else { continue };
        if number != list {
            continue;
        }
        let mut values = fields(values);
        while let Some((number, value)) = values.next(window)? {
            if number == 1 {
                found(window, value)?;
            }
        }
    }
    Ok(())
}

fn not_one(name: &str, count: u64, list: &str) -> String {
    format!("the feature {name:?} has {count} values in its {list}; it must have one")
}

fn fields(message: Range<u64>) -> Fields<'static> {
    Fields::of(message, "the record is not a tf.train.Example")
}
