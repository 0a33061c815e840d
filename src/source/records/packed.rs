//! Names under which `feedwater pack` stores the fields of samples in a shard.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use crate::error::{DataError, Reason};
use crate::field::numpy::Numbers;
use crate::field::{FieldKind, FieldValue, Flat};
use crate::source::file_value;

/// Name under which `feedwater pack` stores the names of fields in each shard, as JSON objects with
/// a pattern for each field. In a tar archive it is a member with one object, which other readers
/// skip. In a TFRecord file it is a feature of the first record, with one object per field.
///
/// A pattern is the complete name of a file in which the value is stored byte for byte, such as
/// `seg.png`, or it ends in `.*`, such as `caption.*`. One of the [`FORMS`] then replaces the `*`
/// in each sample. A feature of TFRecord may also be named like the pattern without `.*`.
pub const FIELDS_NAME: &str = "__feedwater_fields__";

/// Forms of stored values, by the last part of their name:
///
/// * `txt`: text
/// * `json`: JSON
/// * `npy`, `npz`: arrays of NumPy
/// * `flat.npy`: flat list of numbers, which fills any shape
/// * `entries.npy`: list of entries of one shape
/// * `bin` and the extensions of images: bytes
pub const FORMS: [&str; 18] = [
    "flat.npy",
    "entries.npy",
    "txt",
    "json",
    "npy",
    "npz",
    "bin",
    "jpg",
    "png",
    "webp",
    "pbm",
    "pgm",
    "ppm",
    "bmp",
    "gif",
    "tif",
    "jpeg",
    "tiff",
];

/// Largest size of the JSON object in bytes.
pub const MOST_BYTES: usize = 4 << 20;

/// Names of the packed fields of a file. Serialized as pairs of a field and its pattern.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "BTreeMap<String, String>", into = "BTreeMap<String, String>")]
pub struct PackedFields {
    /// Field by the name of its file, for patterns without `*`.
    files: HashMap<String, String>,
    /// Field by the text before `.*`.
    any: HashMap<String, String>,
}

/// Meaning of a name in a shard.
#[derive(Debug, PartialEq, Eq)]
pub enum PackedName<'a> {
    /// The name of a field that was not packed as a field, such as the label.
    Own,
    /// A field has this name, but is stored under another one.
    Hidden,
    /// A field that is a file with this name.
    File(&'a str),
    /// A field, and the form of its value.
    Form(&'a str, &'static str),
    /// A field with a natural value of TFRecord: its name equals the pattern without `.*`.
    Natural(&'a str),
}

impl PackedFields {
    /// Parses JSON objects, each with the patterns of some fields.
    ///
    /// # Errors
    ///
    /// A message if an object is too long or has a value that is not a text.
    pub fn parse<'a>(objects: impl Iterator<Item = &'a [u8]>) -> Result<Self, String> {
        let mut all = BTreeMap::new();
        for json in objects {
            if json.len() > MOST_BYTES {
                return Err(format!(
                    "the names of fields in {FIELDS_NAME} have {} bytes; the maximum is \
                     {MOST_BYTES} bytes",
                    json.len()
                ));
            }
            let patterns: BTreeMap<String, String> =
                serde_json::from_slice(json).map_err(|error| {
                    format!("the names of fields in {FIELDS_NAME} cannot be read: {error}")
                })?;
            all.extend(patterns);
        }
        Ok(all.into())
    }

    /// Whether no fields are packed.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty() && self.any.is_empty()
    }

    /// Returns the meaning of the name of a file (without the key of its sample) or a feature.
    pub fn find(&self, name: &str) -> PackedName<'_> {
        if let Some(field) = self.files.get(name) {
            return PackedName::File(field);
        }
        let with_form = FORMS.into_iter().find_map(|form| {
            let base = name.strip_suffix(form)?.strip_suffix('.')?;
            Some(PackedName::Form(self.any.get(base)?, form))
        });
        if let Some(found) = with_form {
            return found;
        }
        match self.any.get(name) {
            Some(field) => PackedName::Natural(field),
            None if self.fields().any(|field| field == name) => PackedName::Hidden,
            None => PackedName::Own,
        }
    }

    /// Name of the file of a field; `Some(None)` if the field is not a file. `None` if the field
    /// was not packed.
    pub fn file_name(&self, field: &str) -> Option<Option<String>> {
        if let Some((name, _)) = self.files.iter().find(|(_, it)| *it == field) {
            return Some(Some(name.clone()));
        }
        self.any.values().any(|it| it == field).then_some(None)
    }

    /// Memory in bytes.
    pub fn memory_bytes(&self) -> usize {
        let names = self.files.iter().chain(&self.any);
        let text: usize = names.map(|(name, field)| name.capacity() + field.capacity()).sum();
        let entries = self.files.capacity() + self.any.capacity();
        size_of::<Self>() + text + entries * size_of::<(String, String)>()
    }

    fn fields(&self) -> impl Iterator<Item = &String> {
        self.files.values().chain(self.any.values())
    }
}

impl From<BTreeMap<String, String>> for PackedFields {
    fn from(patterns: BTreeMap<String, String>) -> Self {
        let mut packed = Self::default();
        for (field, pattern) in patterns {
            match pattern.strip_suffix(".*") {
                Some(base) => packed.any.insert(base.into(), field),
                None => packed.files.insert(pattern, field),
            };
        }
        packed
    }
}

impl From<PackedFields> for BTreeMap<String, String> {
    fn from(PackedFields { files, any }: PackedFields) -> Self {
        let any = any.into_iter().map(|(base, field)| (field, base + ".*"));
        files.into_iter().map(|(name, field)| (field, name)).chain(any).collect()
    }
}

/// Kind of the values that are stored in this form.
pub fn form_kind(form: &str) -> FieldKind {
    match form {
        "txt" | "json" | "npy" | "npz" => file_value::kind(form),
        "flat.npy" | "entries.npy" => FieldKind::List,
        _ => FieldKind::Bytes,
    }
}

/// Passes the value that is stored in this form to `put`.
///
/// # Errors
///
/// [`Reason::Corrupt`] or [`Reason::Field`] if an array is not valid, and the errors of `put`.
pub fn each_packed(
    form: &str,
    bytes: &[u8],
    put: &mut dyn FnMut(FieldValue<'_>) -> Result<(), DataError>,
) -> Result<(), DataError> {
    match form {
        "flat.npy" => Numbers::parse(bytes)?.pass(|value| match value {
            FieldValue::Tensor(Flat::Integers(list), [_]) => put(FieldValue::Integers(list)),
            FieldValue::Tensor(Flat::Floats(list), [_]) => put(FieldValue::Floats(list)),
            FieldValue::Tensor(Flat::Doubles(list), [_]) => put(FieldValue::Doubles(list)),
            value => put(value),
        }),
        "entries.npy" => Numbers::parse(bytes)?.pass(|value| match value {
            FieldValue::Tensor(numbers, [_, shape @ ..]) => {
                put(FieldValue::Entries(numbers, shape))
            }
            _ => {
                let problem = "the array has no axis for entries; pack the source again";
                Err(DataError::new(Reason::Field, problem))
            }
        }),
        "txt" | "json" | "npy" | "npz" => put(file_value::value(form, bytes)),
        _ => put(FieldValue::Bytes(bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_by_their_patterns() {
        let json = br#"{"seg.png": "seg.png", "a/b": "a_b.*", "cls": "cls.*", "x": "x.*"}"#;
        let packed = PackedFields::parse([&json[..]].into_iter()).unwrap();
        for (name, found) in [
            ("seg.png", PackedName::File("seg.png")),
            ("a_b.txt", PackedName::Form("a/b", "txt")),
            ("a_b.flat.npy", PackedName::Form("a/b", "flat.npy")),
            ("x.entries.npy", PackedName::Form("x", "entries.npy")),
            ("x.vtt", PackedName::Own),
            ("x", PackedName::Natural("x")),
            ("a/b", PackedName::Hidden),
            ("jpg", PackedName::Own),
        ] {
            assert_eq!(packed.find(name), found, "{name}");
        }
        assert_eq!(packed.file_name("seg.png"), Some(Some("seg.png".into())));
        assert_eq!((packed.file_name("x"), packed.file_name("jpg")), (Some(None), None));
        assert_eq!(PackedFields::default().find("x.txt"), PackedName::Own);
        let stored = serde_json::to_string(&packed).unwrap();
        assert_eq!(serde_json::from_str::<PackedFields>(&stored).unwrap(), packed);
    }

    #[test]
    fn wrong_names_and_arrays_are_errors() {
        for json in [&b"[1]"[..], b"{\"a\": 1}", b"{", &vec![b' '; MOST_BYTES + 1]] {
            assert!(PackedFields::parse([json].into_iter()).unwrap_err().contains(FIELDS_NAME));
        }
        for form in ["flat.npy", "entries.npy"] {
            for bytes in [&b""[..], b"\x93NUMPY", b"text"] {
                assert!(each_packed(form, bytes, &mut |_| Ok(())).is_err(), "{form}");
            }
        }
    }
}
