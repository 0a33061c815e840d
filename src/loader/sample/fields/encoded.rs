//! Files of masks and of images in fields. They are kept until the geometry of the image is known.

use crate::error::{DataError, Reason, reserve};
use crate::field::numpy::{self, Numbers, npz};
use crate::field::{FieldPath, FieldValue, Flat, quoted};

use super::array_file;

/// Keeps the file of a mask, or writes its array as a binary PGM file. `file` is empty if the value
/// is missing. `field` may name an array of an `.npz` archive, which is inflated to at most `limit`
/// bytes.
///
/// # Errors
/// [`Reason::Field`] if the value is neither a file nor an array of integers from 0 to 65535 with
/// two axes. Errors of [`npz::array`] and [`Numbers::parse`].
pub fn keep_mask(
    value: FieldValue<'_>,
    field: &FieldPath,
    limit: u64,
    file: &mut Vec<u8>,
) -> Result<(), DataError> {
    file.clear();
    let value = numpy::file(value);
    check_path(value, field)?;
    match value {
        FieldValue::Bytes(bytes) => keep(bytes, file),
        FieldValue::Text("") | FieldValue::Npy([]) | FieldValue::Npz([]) => Ok(()),
        FieldValue::Text(text) if text.starts_with("P5") => keep(text.as_bytes(), file),
        FieldValue::Text(text) => Err(unfit(format!(
            "is {}, and a mask is the bytes of a PNG or PGM file; if the text is a path, set \
             side_files of the source",
            quoted(text)
        ))),
        FieldValue::Tensor(numbers, shape) => {
            let sides = sides(shape)?;
            match numbers {
                Flat::Bytes(list) => write_bytes(list, sides, file),
                Flat::Integers(list) => {
                    let mut list = list.iter();
                    write_wide(sides, file, |put| {
                        list.try_for_each(|&number| match put(number.into()) {
                            true => Ok(()),
                            false => Err(number.to_string()),
                        })
                    })
                }
                Flat::Floats(_) => Err(has_floats("<f4")),
                Flat::Doubles(_) => Err(has_floats("<f8")),
            }
        }
        FieldValue::Npy(npy) | FieldValue::Array(npy) => write_array(npy, file),
        FieldValue::Npz(archive) => {
            let mut inflated = Vec::new();
            write_array(npz::array(archive, field, limit, &mut inflated)?, file)
        }
        _ => Err(unfit(
            "is not a file; a mask is the bytes of a PNG or PGM file, or an array".into(),
        )),
    }
}

/// Keeps the file of an image, or writes its array as a `.npy` file. `file` is not changed if the
/// value is missing. `field` and `limit` are as for [`keep_mask`].
///
/// # Errors
/// [`Reason::Field`] if the value is neither a file nor an array. Errors of [`npz::array`] and
/// [`Numbers::parse`].
pub fn keep_image(
    value: FieldValue<'_>,
    field: &FieldPath,
    limit: u64,
    file: &mut Vec<u8>,
) -> Result<(), DataError> {
    let value = numpy::file(value);
    check_path(value, field)?;
    match value {
        FieldValue::Bytes(bytes) => keep(bytes, file),
        FieldValue::Npy([]) | FieldValue::Npz([]) => Ok(()),
        // A PNM file whose bytes are a text.
        FieldValue::Text(text) if text.is_empty() || text.starts_with('P') => {
            keep(text.as_bytes(), file)
        }
        FieldValue::Text(text) => Err(unfit(format!(
            "is {}, and the image of a view is the bytes of a file; if the text is a path, set \
             side_files of the source",
            quoted(text)
        ))),
        FieldValue::Npy(npy) | FieldValue::Array(npy) => keep_npy(npy, file),
        FieldValue::Npz(archive) => {
            let mut inflated = Vec::new();
            keep_npy(npz::array(archive, field, limit, &mut inflated)?, file)
        }
        FieldValue::Tensor(numbers, shape) => array_file::write(numbers, shape, limit, file),
        _ => Err(no_image()),
    }
}

/// Checks that only an archive has a path.
fn check_path(value: FieldValue<'_>, field: &FieldPath) -> Result<(), DataError> {
    if field.steps.is_empty() || matches!(value, FieldValue::Npz(_)) {
        return Ok(());
    }
    Err(unfit(format!(
        "is no .npz archive, so it has no arrays with names; set field = {:?}",
        field.name
    )))
}

fn keep(bytes: &[u8], file: &mut Vec<u8>) -> Result<(), DataError> {
    reserve::renew(file, bytes.len())?;
    file.copy_from_slice(bytes);
    Ok(())
}

fn keep_npy(npy: &[u8], file: &mut Vec<u8>) -> Result<(), DataError> {
    Numbers::parse(npy)?;
    keep(npy, file)
}

/// Writes the array of a `.npy` file as a PGM file. Its samples have one byte if the elements have.
fn write_array(npy: &[u8], file: &mut Vec<u8>) -> Result<(), DataError> {
    let array = Numbers::parse(npy)?;
    let sides = sides(&array.shape)?;
    if array.has_floats() {
        return Err(has_floats(&array.item()));
    }
    if let Some(bytes) = array.bytes() {
        return write_bytes(bytes, sides, file);
    }
    if !array.has_bytes() {
        return write_wide(sides, file, |put| array.integers(put));
    }
    head(sides, 1, file)?;
    let written = array.integers(|number| match u8::try_from(number) {
        Ok(number) => {
            file.push(number);
            true
        }
        Err(_) => false,
    });
    written.map_err(|number| no_integer(&number))
}

/// Height and width of a mask.
fn sides(shape: &[usize]) -> Result<[usize; 2], DataError> {
    shape.try_into().map_err(|_| {
        let remedy = match shape {
            [_, _, _] if shape.contains(&1) => "; remove the axis of length 1",
            [_, _, 3 | 4] | [3 | 4, _, _] => "; give the class of each pixel instead of a colour",
            _ => "",
        };
        unfit(format!(
            "is an array of shape {shape:?}, and a mask has two axes, [height, width]{remedy}"
        ))
    })
}

fn write_bytes(bytes: &[u8], sides: [usize; 2], file: &mut Vec<u8>) -> Result<(), DataError> {
    head(sides, 1, file)?;
    file.extend_from_slice(bytes);
    Ok(())
}

/// Writes samples of two bytes. `each` passes all numbers to its argument, and returns the first
/// that this refuses.
fn write_wide(
    sides: [usize; 2],
    file: &mut Vec<u8>,
    each: impl FnOnce(&mut dyn FnMut(i128) -> bool) -> Result<(), String>,
) -> Result<(), DataError> {
    head(sides, 2, file)?;
    let mut put = |number: i128| match u16::try_from(number) {
        Ok(number) => {
            file.extend_from_slice(&number.to_be_bytes());
            true
        }
        Err(_) => false,
    };
    each(&mut put).map_err(|number| no_integer(&number))
}

/// Begins a PGM file with samples of this many bytes, and allocates the memory for the samples.
fn head([height, width]: [usize; 2], bytes: usize, file: &mut Vec<u8>) -> Result<(), DataError> {
    let most = if bytes == 1 { 255 } else { 65535 };
    let head = format!("P5 {width} {height} {most}\n");
    file.clear();
    reserve::reserve(file, head.len() + bytes * width * height)?;
    file.extend_from_slice(head.as_bytes());
    Ok(())
}

fn no_integer(number: &str) -> DataError {
    unfit(format!("has the number {number}; a mask of an array has integers from 0 to 65535"))
}

fn has_floats(item: &str) -> DataError {
    unfit(format!(
        "is an array of floats ({item}); a mask of an array has integers from 0 to 65535: convert \
         it with astype, or for other numbers use an image in a field (in Python fw.image)"
    ))
}

fn no_image() -> DataError {
    unfit("is not a file; the image of a view is the bytes of a file, or an array".into())
}

fn unfit(problem: String) -> DataError {
    DataError::new(Reason::Field, problem)
}
