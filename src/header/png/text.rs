//! Text chunks of a PNG: Pillow's checks, and orientation data in them.

use std::borrow::Cow;

use miniz_oxide::inflate::decompress_to_vec_zlib_with_limit;

use super::corrupt;
use crate::error::DataError;

/// Maximum size of a text or a color profile in bytes. Pillow refuses larger texts and profiles.
pub(super) const MAX_TEXT_BYTES: usize = 1 << 20;

/// Returns the keyword of a text chunk.
pub(super) fn keyword(data: &[u8]) -> &[u8] {
    data.split(|&byte| byte == 0).next().unwrap_or_default()
}

/// How a text is stored.
pub(super) enum Packed<'a> {
    /// The chunk is too short to contain a text.
    Nothing,
    Plain(&'a [u8]),
    Zlib(&'a [u8]),
}

/// Returns the stored text of a `tEXt`, `zTXt` or `iTXt` chunk, or an error if Pillow refuses a
/// file with this chunk.
pub(super) fn packed<'a>(kind: &[u8; 4], data: &'a [u8]) -> Result<Packed<'a>, DataError> {
    let Some(rest) = data.get(keyword(data).len() + 1..) else { return Ok(Packed::Nothing) };
    Ok(match kind {
        b"tEXt" => Packed::Plain(rest),
        b"zTXt" => match rest {
            [] => Packed::Nothing,
            [0, packed @ ..] => Packed::Zlib(packed),
            [method, ..] => {
                let problem =
                    format!("a zTXt chunk has the compression method {method}; it must be 0");
                return Err(corrupt(problem));
            }
        },
        _ => international(rest).unwrap_or(Packed::Nothing),
    })
}

/// Reads the content of an iTXt chunk: two bytes for the compression, language and translated
/// keyword with a zero byte each, and the text.
fn international(rest: &[u8]) -> Option<Packed<'_>> {
    let (&[packed, method], rest) = rest.split_first_chunk()?;
    let mut parts = rest.splitn(3, |&byte| byte == 0);
    let (_language, _translated, text) = (parts.next()?, parts.next()?, parts.next()?);
    match (packed, method) {
        (0, _) => Some(Packed::Plain(text)),
        (_, 0) => Some(Packed::Zlib(text)),
        _ => None,
    }
}

/// Returns the text of a `tEXt`, `zTXt` or `iTXt` chunk, or `None` if it cannot be unpacked.
pub(super) fn text<'a>(kind: &[u8; 4], data: &'a [u8]) -> Option<Cow<'a, [u8]>> {
    match packed(kind, data).ok()? {
        Packed::Nothing => None,
        Packed::Plain(text) => Some(text.into()),
        Packed::Zlib(packed) => inflated(packed).map(Cow::from),
    }
}

/// Decodes ImageMagick's `Raw profile type exif`: three lines, the last of which contains the
/// number of bytes, and then the bytes as hexadecimal digits.
pub(super) fn raw_profile(text: &[u8]) -> Option<Vec<u8>> {
    let lines = text.split(|&byte| byte == b'\n').skip(3);
    let digits: Vec<u8> = lines.flatten().copied().filter(|it| !it.is_ascii_whitespace()).collect();
    let (pairs, []) = digits.as_chunks::<2>() else { return None };
    let value = |digit: u8| char::from(digit).to_digit(16).map(|value| value as u8);
    pairs.iter().map(|&[high, low]| Some(value(high)? << 4 | value(low)?)).collect()
}

fn inflated(packed: &[u8]) -> Option<Vec<u8>> {
    decompress_to_vec_zlib_with_limit(packed, MAX_TEXT_BYTES).ok()
}
