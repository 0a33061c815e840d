//! Text chunks of a PNG, as far as they can hold an orientation.

use std::borrow::Cow;

use miniz_oxide::inflate::decompress_to_vec_zlib_with_limit;

/// Most bytes of text that are unpacked. Pillow refuses the file beyond that.
const MAX_TEXT_BYTES: usize = 1 << 20;

/// What a text is about.
pub(super) fn keyword(data: &[u8]) -> &[u8] {
    data.split(|&byte| byte == 0).next().unwrap_or_default()
}

/// The text of a `tEXt`, `zTXt` or `iTXt` chunk; nothing where it cannot be unpacked.
pub(super) fn text<'a>(kind: &[u8; 4], data: &'a [u8]) -> Option<Cow<'a, [u8]>> {
    let rest = data.get(keyword(data).len() + 1..)?;
    match kind {
        b"tEXt" => Some(rest.into()),
        b"zTXt" => unpacked(rest).map(Cow::from),
        b"iTXt" => {
            let (&[packed, method], rest) = rest.split_first_chunk()?;
            let mut parts = rest.splitn(3, |&byte| byte == 0);
            let (_language, _translated, text) = (parts.next()?, parts.next()?, parts.next()?);
            match (packed, method) {
                (0, _) => Some(text.into()),
                (_, 0) => inflated(text).map(Cow::from),
                _ => None,
            }
        }
        _ => None,
    }
}

/// ImageMagick's `Raw profile type exif`: three lines, the last of which says how many bytes there are, then the bytes in
/// hexadecimal digits.
pub(super) fn raw_profile(text: &[u8]) -> Option<Vec<u8>> {
    let lines = text.split(|&byte| byte == b'\n').skip(3);
    let digits: Vec<u8> = lines.flatten().copied().filter(|it| !it.is_ascii_whitespace()).collect();
    let (pairs, []) = digits.as_chunks::<2>() else { return None };
    let value = |digit: u8| char::from(digit).to_digit(16).map(|value| value as u8);
    pairs.iter().map(|&[high, low]| Some(value(high)? << 4 | value(low)?)).collect()
}

/// A byte for the method, then zlib's data.
fn unpacked(data: &[u8]) -> Option<Vec<u8>> {
    match data {
        [0, packed @ ..] => inflated(packed),
        _ => None,
    }
}

fn inflated(packed: &[u8]) -> Option<Vec<u8>> {
    decompress_to_vec_zlib_with_limit(packed, MAX_TEXT_BYTES).ok()
}
