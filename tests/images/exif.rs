//! Compares orientations from valid and corrupt EXIF and XMP data with those of Pillow 12, which
//! `tests/golden/exif.py` recorded.

use std::fs;
use std::path::Path;

use feedwater::internals::geometry::Orientation;
use feedwater::internals::header::Header;

use crate::jpeg::Recipe;

fn bytes(hexadecimal: &str) -> Vec<u8> {
    let digits = hexadecimal.as_bytes().as_chunks::<2>().0;
    let digit = |digit: u8| char::from(digit).to_digit(16).unwrap() as u8;
    digits.iter().map(|&[high, low]| digit(high) << 4 | digit(low)).collect()
}

/// Returns an image file of 5x3 pixels with the metadata `parts`. The name of a part is its segment
/// or chunk type.
fn file(format: &str, parts: &[(&str, Vec<u8>)]) -> Vec<u8> {
    match format {
        "jpeg" => {
            let plain = Recipe::new(5, 3, &[(1, 1); 3]).make();
            let segments = parts.iter().flat_map(|(name, body)| {
                let marker = if *name == "app0" { 0xE0 } else { 0xE1 };
                let length = (body.len() as u16 + 2).to_be_bytes();
                [&[0xFF, marker], &length[..], body].concat()
            });
            [plain[..2].to_vec(), segments.collect(), plain[2..].to_vec()].concat()
        }
        "png" => {
            let chunk = |name: &str, data: &[u8]| {
                let length = (data.len() as u32).to_be_bytes();
                // The header parser does not check the checksums of chunks, so they are zeros.
                [&length[..], name.as_bytes(), data, &[0; 4]].concat()
            };
            let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
            file.extend(chunk("IHDR", &[0, 0, 0, 5, 0, 0, 0, 3, 8, 2, 0, 0, 0]));
            parts.iter().for_each(|(name, data)| file.extend(chunk(name, data)));
            [file, chunk("IDAT", &[]), chunk("IEND", &[])].concat()
        }
        "webp" => {
            let chunk = |name: &str, data: &[u8]| {
                let length = (data.len() as u32).to_le_bytes();
                let padding = vec![0; data.len() % 2];
                [format!("{name:4}").as_bytes(), &length, data, &padding].concat()
            };
            let mut body = b"WEBP".to_vec();
            body.extend(chunk("VP8X", &[0x0C, 0, 0, 0, 4, 0, 0, 2, 0, 0]));
            body.extend(chunk("VP8L", &[0x2F, 4, 0x80, 0, 0, 0]));
            parts.iter().for_each(|(name, data)| body.extend(chunk(name, data)));
            chunk("RIFF", &body)
        }
        other => panic!("{other}"),
    }
}

#[test]
fn orientations_are_those_of_pillow() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/exif.txt");
    let table = fs::read_to_string(path).unwrap();
    let (mut turned, mut refused, mut wrong) = (0, 0, Vec::new());
    for line in table.lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.split(' ');
        let (expected, format) = (words.next().unwrap(), words.next().unwrap());
        let parts = words.map(|part| part.split_once(':').unwrap());
        let parts: Vec<_> = parts.map(|(name, data)| (name, bytes(data))).collect();
        let found = Header::parse(&file(format, &parts)).unwrap().orientation;
        // For this file, Pillow raised an exception: it could not read the EXIF data, or could not
        // write it without the orientation.
        let Ok(value) = expected.parse() else {
            refused += 1;
            continue;
        };
        if found != Orientation::from_exif(value) {
            wrong.push(format!("{found:?}: {line}"));
        }
        turned += u32::from(value > 1);
    }
    assert!(
        wrong.is_empty(),
        "{} differ, such as {:#?}",
        wrong.len(),
        &wrong[..wrong.len().min(9)]
    );
    assert!(turned > 60 && refused > 10, "{turned} turned, {refused} refused");
}
