//! Values of the fields of a sample as bytes, for a cache.
//!
//! A value is stored as a header, its bytes and a suffix: the name of a JSON member, or a shape.
//! All numbers are in the byte order of the machine, because the bytes stay in its memory.

use bytemuck::{Pod, Zeroable};

use crate::error::{DataError, reserve};
use crate::field::{FieldValue, Flat};

/// Fields of a sample as bytes, to which values are added.
#[derive(Default)]
pub struct Record {
    bytes: Vec<u8>,
    /// Maximum size in bytes.
    limit: u64,
    /// Whether the values have more bytes than the limit.
    is_beyond: bool,
    /// Position in `bytes` of the JSON of the last JSON member, and its length.
    json: Option<(usize, usize)>,
}

/// Buffers for numbers, which are not aligned in a cache.
#[derive(Default)]
pub struct Scratch {
    numbers: Vec<u64>,
    shape: Vec<usize>,
}

/// Position of a field among the wanted ones, kind of its value, and numbers of bytes.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Head {
    field: u32,
    kind: u32,
    bytes: u64,
    suffix: u64,
}

const HEAD_BYTES: usize = size_of::<Head>();

/// Bytes before the first value, because a cache does not store empty entries.
const BEGIN: usize = 1;

const INTEGER: u32 = 0;
const FLOAT: u32 = 1;
const TEXT: u32 = 2;
const BYTES: u32 = 3;
const NPY: u32 = 4;
const NPZ: u32 = 5;
const ARRAY: u32 = 6;
const JSON: u32 = 7;
const JSON_MEMBER: u32 = 8;
/// Kind of a member of the same JSON object as the previous member.
const SAME_JSON: u32 = 9;
/// From this kind on, values are numbers, which must be aligned.
const INTEGERS: u32 = 10;
const FLOATS: u32 = 11;
const DOUBLES: u32 = 12;
/// First of four kinds, one for each type of [`Flat`].
const TENSOR: u32 = 13;
/// First of four kinds, one for each type of [`Flat`].
const ENTRIES: u32 = 17;

impl Record {
    /// Removes all values. At most `limit` bytes will be stored.
    pub fn begin(&mut self, limit: u64) {
        self.bytes.clear();
        (self.limit, self.is_beyond, self.json) = (limit, false, None);
    }

    /// Adds the value of a field.
    pub fn add(&mut self, field: usize, value: FieldValue<'_>) -> Result<(), DataError> {
        let integer;
        let float;
        let (mut kind, mut bytes, suffix): (u32, &[u8], &[u8]) = match value {
            FieldValue::Integer(number) => {
                integer = number.to_ne_bytes();
                (INTEGER, &integer, &[])
            }
            FieldValue::Float(number) => {
                float = number.to_ne_bytes();
                (FLOAT, &float, &[])
            }
            FieldValue::Text(text) => (TEXT, text.as_bytes(), &[]),
            FieldValue::Bytes(bytes) => (BYTES, bytes, &[]),
            FieldValue::Npy(bytes) => (NPY, bytes, &[]),
            FieldValue::Npz(bytes) => (NPZ, bytes, &[]),
            FieldValue::Array(bytes) => (ARRAY, bytes, &[]),
            FieldValue::Json(json) => (JSON, json, &[]),
            FieldValue::JsonMember(json, name) => (JSON_MEMBER, json, name.as_bytes()),
            FieldValue::Integers(list) => (INTEGERS, bytemuck::must_cast_slice(list), &[]),
            FieldValue::Floats(list) => (FLOATS, bytemuck::must_cast_slice(list), &[]),
            FieldValue::Doubles(list) => (DOUBLES, bytemuck::must_cast_slice(list), &[]),
            FieldValue::Tensor(numbers, shape) => {
                let (number, bytes) = of_flat(numbers);
                (TENSOR + number, bytes, bytemuck::must_cast_slice(shape))
            }
            FieldValue::Entries(numbers, shape) => {
                let (number, bytes) = of_flat(numbers);
                (ENTRIES + number, bytes, bytemuck::must_cast_slice(shape))
            }
        };
        if let FieldValue::JsonMember(json, _) = value {
            // All fields of a row of JSON are members of the same text.
            match self.json {
                Some((at, len)) if &self.bytes[at..at + len] == json => {
                    (kind, bytes) = (SAME_JSON, &[]);
                }
                _ => self.json = Some((self.bytes.len().max(BEGIN) + HEAD_BYTES, json.len())),
            }
        }
        let head = Head {
            field: field as u32,
            kind,
            bytes: bytes.len() as u64,
            suffix: suffix.len() as u64,
        };
        let len = self.bytes.len().max(BEGIN) + HEAD_BYTES + bytes.len() + suffix.len();
        if self.is_beyond || len as u64 > self.limit {
            self.is_beyond = true;
            return Ok(());
        }
        reserve::reserve(&mut self.bytes, len)?;
        self.bytes.resize(self.bytes.len().max(BEGIN), 0);
        for part in [bytemuck::bytes_of(&head), bytes, suffix] {
            self.bytes.extend_from_slice(part);
        }
        Ok(())
    }

    /// All values that were added, or `None` if they have more bytes than the limit.
    pub fn bytes(&self) -> Option<&[u8]> {
        match self.bytes.is_empty() {
            _ if self.is_beyond => None,
            true => Some(&[0; BEGIN]),
            false => Some(&self.bytes),
        }
    }
}

/// Calls `put` with each value in the bytes of a [`Record`].
pub fn each(
    record: &[u8],
    scratch: &mut Scratch,
    put: &mut dyn FnMut(usize, FieldValue<'_>) -> Result<(), DataError>,
) -> Result<(), DataError> {
    let mut rest = &record[BEGIN.min(record.len())..];
    let mut json: &[u8] = &[];
    while let Some((head, after)) = rest.split_at_checked(HEAD_BYTES) {
        let Head { field, kind, bytes: len, suffix } = bytemuck::pod_read_unaligned(head);
        let (bytes, after) = after.split_at(len as usize);
        let (suffix, after) = after.split_at(suffix as usize);
        rest = after;
        let text = |bytes| str::from_utf8(bytes).unwrap_or_default();
        let Scratch { numbers, shape } = &mut *scratch;
        if kind >= INTEGERS {
            reserve::renew(numbers, bytes.len().div_ceil(size_of::<u64>()))?;
            bytemuck::must_cast_slice_mut(numbers)[..bytes.len()].copy_from_slice(bytes);
            reserve::renew(shape, suffix.len() / size_of::<usize>())?;
            bytemuck::must_cast_slice_mut(shape).copy_from_slice(suffix);
        }
        let aligned: &[u8] = bytemuck::must_cast_slice(numbers);
        let aligned = aligned.get(..bytes.len()).unwrap_or_default();
        let value = match kind {
            INTEGER => {
                FieldValue::Integer(i128::from_ne_bytes(bytemuck::pod_read_unaligned(bytes)))
            }
            FLOAT => FieldValue::Float(bytemuck::pod_read_unaligned(bytes)),
            TEXT => FieldValue::Text(text(bytes)),
            BYTES => FieldValue::Bytes(bytes),
            NPY => FieldValue::Npy(bytes),
            NPZ => FieldValue::Npz(bytes),
            ARRAY => FieldValue::Array(bytes),
            JSON => FieldValue::Json(bytes),
            JSON_MEMBER => {
                json = bytes;
                FieldValue::JsonMember(json, text(suffix))
            }
            SAME_JSON => FieldValue::JsonMember(json, text(suffix)),
            INTEGERS => FieldValue::Integers(bytemuck::cast_slice(aligned)),
            FLOATS => FieldValue::Floats(bytemuck::cast_slice(aligned)),
            DOUBLES => FieldValue::Doubles(bytemuck::cast_slice(aligned)),
            TENSOR..ENTRIES => FieldValue::Tensor(flat(kind - TENSOR, aligned), shape),
            _ => FieldValue::Entries(flat(kind - ENTRIES, aligned), shape),
        };
        put(field as usize, value)?;
    }
    Ok(())
}

/// Number and bytes of the elements of a tensor.
fn of_flat(numbers: Flat<'_>) -> (u32, &[u8]) {
    match numbers {
        Flat::Bytes(list) => (0, list),
        Flat::Integers(list) => (1, bytemuck::must_cast_slice(list)),
        Flat::Floats(list) => (2, bytemuck::must_cast_slice(list)),
        Flat::Doubles(list) => (3, bytemuck::must_cast_slice(list)),
    }
}

fn flat(number: u32, bytes: &[u8]) -> Flat<'_> {
    match number {
        0 => Flat::Bytes(bytes),
        1 => Flat::Integers(bytemuck::cast_slice(bytes)),
        2 => Flat::Floats(bytemuck::cast_slice(bytes)),
        _ => Flat::Doubles(bytemuck::cast_slice(bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_comes_back_from_any_position_of_a_cache() {
        let json = br#"{"a": 1, "b": [2]}"#;
        let shape = [2, 3];
        let values = [
            FieldValue::Integer(i128::MIN),
            FieldValue::Float(-0.0),
            FieldValue::Text("é"),
            FieldValue::Text(""),
            FieldValue::Bytes(&[255, 0]),
            FieldValue::Npy(b"npy"),
            FieldValue::Npz(b"npz"),
            FieldValue::Array(b"array"),
            FieldValue::Json(b"[1]"),
            FieldValue::JsonMember(json, "a"),
            FieldValue::JsonMember(json, "b"),
            FieldValue::JsonMember(b"{}", "c"),
            FieldValue::JsonMember(b"{}", ""),
            FieldValue::Integers(&[i64::MIN, 7]),
            FieldValue::Integers(&[]),
            FieldValue::Floats(&[1.5, 2.5, f32::MAX]),
            FieldValue::Doubles(&[1e300]),
            FieldValue::Tensor(Flat::Bytes(&[1, 2, 3, 4, 5, 6]), &shape),
            FieldValue::Tensor(Flat::Integers(&[1, 2, 3, 4, 5, 6]), &shape),
            FieldValue::Tensor(Flat::Floats(&[7.0]), &[]),
            FieldValue::Entries(Flat::Doubles(&[0.1, 0.2]), &[1]),
            FieldValue::Entries(Flat::Bytes(&[]), &[4]),
        ];
        let mut record = Record::default();
        record.begin(10_000);
        assert_eq!(record.bytes(), Some(&[0][..]), "a sample without fields");
        for (number, value) in values.iter().enumerate() {
            record.add(number, *value).unwrap();
        }
        let bytes = record.bytes().unwrap();
        for shift in 0..9 {
            let mut moved = vec![0; shift];
            moved.extend_from_slice(bytes);
            let (mut seen, mut scratch) = (Vec::new(), Scratch::default());
            each(&moved[shift..], &mut scratch, &mut |number, value| {
                assert_eq!(value, values[number]);
                seen.push(number);
                Ok(())
            })
            .unwrap();
            assert_eq!(seen, (0..values.len()).collect::<Vec<_>>());
        }
        // Equal JSON is stored once.
        let find = |wanted: &[u8]| bytes.windows(wanted.len()).filter(|it| *it == wanted).count();
        assert_eq!(find(json), 1);
        record.begin(bytes_limit(3));
        record.add(0, FieldValue::Text("abcd")).unwrap();
        record.add(1, FieldValue::Text("")).unwrap();
        assert_eq!(record.bytes(), None, "beyond the limit");
    }

    /// Limit for one value of `len` bytes.
    fn bytes_limit(len: usize) -> u64 {
        (BEGIN + HEAD_BYTES + len) as u64
    }
}
