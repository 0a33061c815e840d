//! Files of other encoders and of cameras, which `tests/golden/encoders.py` writes. feedwater's
//! JPEG decoder gives the same rows or error as libjpeg-turbo. It decodes all files itself, except
//! those listed here.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use feedwater::error::Tolerated;
use feedwater::internals::decode::{Decoders, JpegBy, JpegDecoder, JpegRefusal};
use feedwater::internals::geometry::Roi;
use feedwater::internals::header::Header;

use Expected::Refused;
use JpegRefusal::{Color, Data, Header as Unusual, Process, Sampling, Scans};

/// Files that feedwater's decoder does not decode, with the reason. It decodes all other files.
const OTHERS: &[(&str, Expected)] = &[
    ("camera-adobe-rgb", Refused(Color)),
    ("camera-dnl", Expected::Nothing),
    ("camera-dnl-and-height", Refused(Data)),
    ("camera-half-missing", Refused(Data)),
    ("camera-ids-equal", Refused(Unusual)),
    ("camera-ids-rgb-no-jfif", Refused(Color)),
    ("camera-no-eoi", Refused(Data)),
    ("camera-restart-missing", Refused(Data)),
    ("camera-sof1-steps-of-320", Refused(Data)),
    ("camera-without-dht", Refused(Unusual)),
    ("camera-without-dht-avi1", Refused(Unusual)),
    ("camera-zeros-before-eoi", Refused(Data)),
    ("ffmpeg-422-5", Refused(Sampling)),
    ("ffmpeg-444-5", Refused(Sampling)),
    ("ffmpeg-gray", Refused(Sampling)),
    ("jpeg-encoder-444-optimized-50", Refused(Scans)),
    ("libjpeg-turbo-12-bits", Refused(Process)),
    ("libjpeg-turbo-lossless", Refused(Process)),
    ("pillow-cmyk", Refused(Color)),
    ("pillow-keep-rgb", Refused(Color)),
];

/// Why feedwater's decoder does not decode a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    /// The header is refused, so no decoder is called.
    Nothing,
    Refused(JpegRefusal),
}

/// The rows or the error, the damage that was tolerated, and the decoder that decoded the image.
type Outcome = (Result<Vec<u8>, String>, Option<Tolerated>, Option<JpegBy>);

fn decoded(decoders: &mut Decoders, bytes: &[u8], header: &Header, window: Roi) -> Outcome {
    let mut pixels = Vec::new();
    let mut next = window.y;
    let result = decoders.decode(bytes, header, window, 1, &mut |rows| {
        for (y, row) in rows.iter() {
            assert_eq!(y, next);
            next += 1;
            pixels.extend_from_slice(row);
        }
    });
    let result = result.map(|()| pixels).map_err(|error| error.to_string());
    (result, decoders.tolerated(), decoders.jpeg_by())
}

/// Returns windows of an image: the whole image, its last pixel, and some random ones.
fn windows(header: &Header, seed: usize) -> Vec<Roi> {
    let (width, height) = (header.size.width, header.size.height);
    let mut state = seed as u64;
    let mut below = |end: u32| {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 33) as u32 % end
    };
    let drawn = (0..12).map(|_| {
        let (x, y) = (below(width), below(height));
        Roi::new(x, y, 1 + below(width - x), 1 + below(height - y))
    });
    let corner = Roi::new(width - 1, height - 1, 1, 1);
    [header.size.window(), corner].into_iter().chain(drawn).collect()
}

/// Compares feedwater's decoder, with every instruction set, with libjpeg-turbo. Both are strict or
/// both are tolerant. Returns the reason if feedwater's decoder did not decode the whole image.
fn compare(name: &str, bytes: &[u8], strict: bool, seed: usize) -> Option<Expected> {
    let Ok(header) = Header::parse_as(bytes, strict) else { return Some(Expected::Nothing) };
    let mut libjpeg = Decoders::new().strict(strict).jpeg(JpegDecoder::Libjpeg);
    let mut all = None;
    for (number, window) in windows(&header, seed).into_iter().enumerate() {
        let expected = decoded(&mut libjpeg, bytes, &header, window);
        for instructions in Decoders::jpeg_instructions() {
            let ours = Decoders::new().strict(strict).with_jpeg_instructions(instructions);
            let mut ours = ours.unwrap();
            // When it decodes a second time, the decoder uses tables with several symbols per
            // entry. Both runs are compared.
            for time in 0..2 {
                let found = decoded(&mut ours, bytes, &header, window);
                let same = (&found.0, found.1) == (&expected.0, expected.1);
                let faults = (found.0.as_ref().err(), expected.0.as_ref().err());
                assert!(same, "{name} {instructions} {window} {time} {strict}: {faults:?}");
                if number == 0 {
                    assert!(all.is_none_or(|all| all == found.2), "{name} {instructions}");
                    all = Some(found.2);
                }
            }
        }
    }
    match all.flatten().expect("a decoder was called") {
        JpegBy::Refused(refusal) => Some(Refused(refusal)),
        by => {
            assert_eq!(by, JpegBy::Feedwater, "{name}");
            None
        }
    }
}

#[test]
fn files_of_other_encoders_have_the_same_pixels() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/encoders");
    let mut files: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|it| it == "jpg"));
    files.sort();
    let mut others = BTreeMap::new();
    for (seed, file) in files.iter().enumerate() {
        let name = file.file_stem().unwrap().to_str().unwrap();
        let bytes = fs::read(file).unwrap();
        let [strict, tolerant] = [true, false].map(|strict| compare(name, &bytes, strict, seed));
        if strict != Some(Expected::Nothing) {
            assert_eq!(strict, tolerant, "{name}");
        }
        others.extend(tolerant.map(|by| (name.to_string(), by)));
    }
    let expected = OTHERS.iter().map(|(name, by)| (name.to_string(), *by)).collect();
    assert_eq!(others, expected);
    assert!(files.len() >= 100 && OTHERS.len() < files.len() / 3, "{} files", files.len());
}
