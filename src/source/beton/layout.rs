//! Header and fields of a `.beton` file.

use crate::error::{DataError, Reason};
use crate::numpy::Item;
use crate::source::records::{FileError, Window};

/// Size of the header in bytes: version, number of fields, page size, number of samples, pointer to
/// the allocation table.
pub const HEAD_BYTES: u64 = 24;
/// Size of a field descriptor in bytes: type, name, arguments.
pub const FIELD_BYTES: u64 = 1 + NAME_BYTES as u64 + ARGUMENT_BYTES;
const NAME_BYTES: usize = 16;
const ARGUMENT_BYTES: u64 = 1024;
/// Number of axes in the arguments of an array. Unused axes are 0.
const MOST_AXES: u64 = 32;

/// Supported version of the format. ffcv 1.0.2 writes this version.
const VERSION: u16 = 2;

/// Header of a `.beton` file.
pub struct Head {
    pub fields: u16,
    /// Page size in bytes, a power of two. No sample's data cross a page boundary.
    pub page: u64,
    pub samples: u64,
    /// Offset of the allocation table in the file.
    pub allocations: u64,
    /// Offset in the file at which the pointer to the allocation table is stored.
    pub allocations_at: u64,
}

/// Field types of ffcv's `types.py`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Float,
    Int,
    Image,
    Bytes,
    Array,
    Json,
    Tensor,
}

/// Descriptor of a field. Every sample has a value for each field.
pub struct Field {
    pub kind: Kind,
    /// Name of the field. The writer truncates it to 16 bytes.
    pub name: String,
    /// Offset of the field's value in the row of a sample.
    pub start: u64,
}

impl Head {
    pub fn read(window: &mut Window) -> Result<Self, FileError> {
        let head = window.at(0, HEAD_BYTES)?;
        let version = u16::from_le_bytes(bytes(head, 0));
        let fields = u16::from_le_bytes(bytes(head, 2));
        let page = u32::from_le_bytes(bytes(head, 4)).into();
        let samples = u64::from_le_bytes(bytes(head, 8));
        let allocations_at = 16;
        let allocations = u64::from_le_bytes(bytes(head, allocations_at));
        if version != VERSION {
            let problem = format!(
                "the file has version {version} of the format, but only version {VERSION} is \
                 supported: the file is not a .beton of FFCV, or is damaged"
            );
            return Err(FileError::new(0, problem));
        }
        if !u64::is_power_of_two(page) {
            let problem = format!(
                "the page size is {page} bytes, which is not a power of two: the file is \
                     damaged"
            );
            return Err(FileError::new(4, problem));
        }
        Ok(Self { fields, page, samples, allocations, allocations_at })
    }
}

impl Kind {
    /// Name of the field's class in ffcv.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Float => "FloatField",
            Kind::Int => "IntField",
            Kind::Image => "RGBImageField",
            Kind::Bytes => "BytesField",
            Kind::Array => "NDArrayField",
            Kind::Json => "JSONField",
            Kind::Tensor => "TorchTensorField",
        }
    }

    fn of(type_id: u8) -> Option<Self> {
        use Kind::*;
        [Float, Int, Image, Bytes, Array, Json, Tensor].get(usize::from(type_id)).copied()
    }

    /// Size and alignment of the field's value in the row of a sample, in bytes. Numbers and single
    /// pointers are aligned to 8 bytes. Structures are not aligned.
    fn bytes(self) -> (u64, u64) {
        match self {
            Kind::Float | Kind::Int | Kind::Array | Kind::Tensor => (8, 8),
            Kind::Bytes | Kind::Json => (16, 1),
            Kind::Image => (13, 1),
        }
    }
}

impl Field {
    pub fn read_all(window: &mut Window, head: &Head) -> Result<Vec<Self>, FileError> {
        let mut fields = Vec::new();
        let mut end = 0u64;
        for number in 0..u64::from(head.fields) {
            let place = HEAD_BYTES + FIELD_BYTES * number;
            let field = window.at(place, FIELD_BYTES)?;
            let [type_id] = bytes(field, 0);
            let name: [u8; NAME_BYTES] = bytes(field, 1);
            let len = name.iter().position(|&byte| byte == 0).unwrap_or(NAME_BYTES);
            let name = String::from_utf8_lossy(&name[..len]).into_owned();
            let kind = Kind::of(type_id).ok_or_else(|| {
                let problem = format!(
                    "the field {name:?} has the type {type_id}, whose size is unknown; write the \
                     file with fields that FFCV defines (type 255 is a class of your own)"
                );
                FileError::new(place, problem)
            })?;
            let (len, align) = kind.bytes();
            let start = end.next_multiple_of(align);
            end = start + len;
            fields.push(Self { kind, name, start });
        }
        Ok(fields)
    }

    /// Whether this is the field that was written as `name`. The writer truncates names to 16
    /// bytes.
    pub fn is_named(&self, name: &str) -> bool {
        let kept = &name.as_bytes()[..name.len().min(NAME_BYTES)];
        self.name.as_bytes() == kept
    }
}

/// Returns the type and the number of the elements of an array, from the arguments of the field
/// with this name and number: the lengths of all axes, the length of a text, and the text, which is
/// NumPy's `dtype.descr` as JSON (ffcv's `fields/ndarray.py`).
pub fn array(window: &mut Window, name: &str, number: u64) -> Result<(Item, u64), DataError> {
    let place = HEAD_BYTES + FIELD_BYTES * (number + 1) - ARGUMENT_BYTES;
    let arguments = window.at(place, ARGUMENT_BYTES)?;
    let number_at = |start| u64::from_le_bytes(bytes(arguments, start));
    let unsupported = |what: &str| {
        let problem = format!("the field {name:?} has {what}");
        DataError::new(Reason::Unsupported, problem)
    };
    let len = number_at(8 * MOST_AXES) as usize;
    let descr = arguments[8 * (MOST_AXES as usize + 1)..].get(..len);
    let descr = descr.and_then(|descr| serde_json::from_slice::<Vec<[String; 2]>>(descr).ok());
    let item = match descr.as_deref() {
        Some([[_, item]]) => Item::parse(item.as_bytes()).filter(|item| item.is_number()),
        _ => None,
    };
    let item = item.ok_or_else(|| {
        unsupported("elements that are neither integers of up to 64 bits nor floats of 16 to 64")
    })?;
    let mut axes: Vec<u64> = (0..MOST_AXES).map(|axis| number_at(8 * axis)).collect();
    while axes.pop_if(|axis| *axis == 0).is_some() {}
    if axes.is_empty() {
        return Err(unsupported("no axis, or only an axis of length 0; write arrays with an axis"));
    }
    let count = axes.iter().try_fold(1u64, |count, &axis| count.checked_mul(axis));
    let count = count.filter(|count| count.checked_mul(item.bytes).is_some());
    Ok((item, count.ok_or_else(|| FileError::new(place, "the size of an array is out of range"))?))
}

/// Distance in bytes between the starts of consecutive rows of the sample table.
pub fn stride(fields: &[Field]) -> u64 {
    let align = fields.iter().map(|it| it.kind.bytes().1).max().unwrap_or(1);
    let end = fields.last().map_or(0, |it| it.start + it.kind.bytes().0);
    end.next_multiple_of(align)
}

/// Reads `N` bytes at offset `start`. Panics if `from` ends before these bytes do.
pub fn bytes<const N: usize>(from: &[u8], start: u64) -> [u8; N] {
    *from[start as usize..]
        .first_chunk()
        .expect("the caller has checked that the bytes are in memory")
}
