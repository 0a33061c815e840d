//! Targets that decode images.

use std::cell::RefCell;
use std::collections::HashMap;

use bytes::Bytes;
use feedwater::PixelFormat;
use feedwater::error::{DataError, Reason};
use feedwater::internals::decode::{
    Decoders, Fingerprint, JpegBy, JpegDecoder, RowIndex, RowIndexOutcome, RowIndexTask,
    ValueImage, simd,
};
use feedwater::internals::geometry::{Roi, Size};
use feedwater::internals::header::{Format, Header, JpegLayout};

pub fn header(bytes: &[u8]) -> String {
    match Header::parse(bytes) {
        Ok(header) => {
            let mut layout = JpegLayout::default();
            let laid_out = header.layout(bytes, true, &mut layout).map_err(|error| error.problem);
            assert!(layout.capacity_bytes() <= JpegLayout::MOST_BYTES);
            let verified = header.verify(bytes).map_err(|error| error.problem);
            // `layout` additionally rejects files with too many scans.
            assert!(verified.is_ok() || laid_out == verified, "{verified:?}, {laid_out:?}");
            format!("{verified:?}")
        }
        Err(error) => error.to_string(),
    }
}

/// Decodes the numbers of a mask, if it has few pixels.
pub fn values(bytes: &[u8]) -> String {
    let mut image = ValueImage::default();
    let few = |header: &Header| match header.size.pixels() {
        ..=1_000_000 => Ok(()),
        _ => Err(DataError::new(Reason::Oversized, "has many pixels")),
    };
    match image.decode(bytes, few) {
        Ok(()) => {
            let Size { width, height } = image.size();
            let last = image.at(width - 1, height - 1);
            format!("{:?}", last.checked_ilog2())
        }
        Err(error) => error.to_string(),
    }
}

/// Decodes an image to 16 bits and to floats, if it has few pixels: all of it, and a window, which
/// must have the same pixels.
pub fn floats(bytes: &[u8]) -> String {
    let header = match Header::parse(bytes) {
        Ok(header) if header.size.pixels() <= 1_000_000 => header,
        Ok(_) => return "has many pixels".into(),
        Err(error) => return error.to_string(),
    };
    let Size { width, height } = header.size;
    let part = Roi::new(width / 3, height / 3, width.div_ceil(2), height.div_ceil(2));
    let formats = [PixelFormat::U16, PixelFormat::U16x3, PixelFormat::F32, PixelFormat::F32x3];
    let outcomes = formats.map(|format| {
        let decoded = |window: Roi| {
            let mut pixels = HashMap::new();
            let decoded =
                Decoders::new().decode_floats(bytes, &header, format, window, &mut |it| {
                    for (x, pixel) in (it.x..).zip(it.pixels) {
                        assert!(pixels.insert((x, it.y), pixel.map(f32::to_bits)).is_none());
                    }
                });
            decoded.map(|()| pixels)
        };
        match (decoded(header.size.window()), decoded(part)) {
            (Ok(whole), Ok(part)) => {
                assert_eq!(whole.len() as u64, header.size.pixels());
                assert!(part.iter().all(|(at, pixel)| whole.get(at) == Some(pixel)));
                String::from("decoded")
            }
            // The damage may be below the window.
            (Err(error), _) => error.to_string(),
            (Ok(_), Err(error)) => panic!("only the window fails: {error}"),
        }
    });
    outcomes.join(", ")
}

/// Decodes with and without `strict`. An image that is valid with `strict` must have the same
/// pixels without it, and must not count as damaged.
pub fn decode(bytes: &[u8]) -> String {
    let (strict, sound) = decode_as(bytes, true);
    let (tolerant, other) = decode_as(bytes, false);
    if !sound.is_empty() {
        assert!(sound == other, "{strict}, {tolerant}");
    }
    format!("{strict} {tolerant}")
}

/// Decodes a small image at every reduction, and a window of it. Returns the pixels of the whole
/// image if all these decodes find it valid.
fn decode_as(bytes: &[u8], strict: bool) -> (String, Vec<u8>) {
    let header = match Header::parse_as(bytes, strict) {
        Ok(header) if header.size.pixels() <= 1 << 14 => header,
        Ok(_) => return ("a large image".into(), Vec::new()),
        Err(error) => return (error.to_string(), Vec::new()),
    };
    let mut decoder = Decoders::new().strict(strict);
    let (mut outcome, mut pixels) = (String::new(), Vec::new());
    for &reduction in header.format.reductions() {
        let size = header.size.reduced(reduction);
        let inner = Roi::new(
            size.width / 3,
            size.height / 3,
            size.width.div_ceil(2),
            size.height.div_ceil(2),
        );
        for window in [size.window(), inner] {
            let mut count = 0;
            let result = decoder.decode(bytes, &header, window, reduction, &mut |rows| {
                count += rows.count;
                for (_, row) in rows.iter() {
                    assert_eq!(row.len(), 3 * window.width as usize);
                    if reduction == 1 && window == size.window() {
                        pixels.extend_from_slice(row);
                    }
                }
            });
            match result {
                Ok(()) => assert_eq!(count, window.height),
                Err(error) => outcome = error.to_string(),
            }
            if let Some(damage) = decoder.tolerated() {
                assert!(!strict, "{damage:?}");
                outcome = damage.name().into();
            }
        }
    }
    if strict && !outcome.is_empty() {
        pixels.clear();
    }
    (outcome, pixels)
}

/// Compares feedwater's JPEG decoder with libjpeg-turbo on one window: both must return the same
/// rows or the same error. The input bytes determine reduction, window, layout, instruction set and
/// strictness. As in a loader, decoders are reused with the tables of earlier images. The
/// comparison is skipped if libjpeg-turbo has no SIMD code: without it, its pixels differ for
/// coefficients that no real image has.
pub fn both(bytes: &[u8]) -> String {
    if !simd() {
        return "libjpeg-turbo without vector code".into();
    }
    let mut draw = drawn_from(bytes);
    let strict = draw(2) == 0;
    let header = match Header::parse_as(bytes, strict) {
        Ok(header) if header.format == Format::Jpeg && header.size.pixels() <= 1 << 14 => header,
        Ok(_) => return "another image".into(),
        Err(error) => return error.to_string(),
    };
    let reduction = [1, 1, 1, 2, 4, 8][draw(6) as usize];
    let size = header.size.reduced(reduction);
    let Size { width, height } = size;
    let (x, y) = (draw(width), draw(height));
    let window = match draw(4) {
        0 => size.window(),
        1 => Roi::new(x, y, width - x, height - y),
        _ => Roi::new(x, y, 1 + draw(width - x), 1 + draw(height - y)),
    };
    let all = Decoders::jpeg_instructions();
    // Favours the last instruction set, which most users' machines run.
    let number = (draw(2 * all.len() as u32) as usize).min(all.len() - 1);
    let new = || {
        let ours = Decoders::new().strict(strict).with_jpeg_instructions(all[number]);
        [ours.expect("listed"), Decoders::new().strict(strict).jpeg(JpegDecoder::Libjpeg)]
    };
    KEPT.with_borrow_mut(|kept| {
        let decoders = kept.entry((number, strict)).or_insert_with(new);
        let layouts = decoders[0].layouts(&header);
        let layout = layouts[draw(layouts.len() as u32) as usize];
        let run = |decoder: &mut Decoders| {
            let mut rows: Vec<u8> = Vec::new();
            let mut next = window.y;
            let result = decoder.decode_as(layout, bytes, &header, window, reduction, &mut |it| {
                assert!(it.first == next && it.count > 0, "{window}: row {next}");
                next += it.count;
                it.iter().for_each(|(_, row)| rows.extend_from_slice(row));
            });
            assert!(result.is_err() || next == window.bottom(), "{window}: {next} rows");
            // The rows before an error are not compared: the decoders may detect the damage at
            // different rows.
            (result.map(|()| rows).map_err(|error| error.to_string()), decoder.tolerated())
        };
        let compared = |[ours, theirs]: &mut [Decoders; 2]| {
            let (ours, theirs, by) = (run(ours), run(theirs), ours.jpeg_by());
            let same = ours == theirs;
            let told = |it: (Result<Vec<u8>, String>, _)| format!("{:?}", (it.0.err(), it.1));
            let by = by.map_or("none", JpegBy::name);
            if same {
                Ok(format!("{by}| {}", told(ours)))
            } else {
                Err([by.into(), told(ours), told(theirs)])
            }
        };
        let outcome = compared(decoders);
        // Decodes one in eight images again. The second time, tables have several symbols per
        // entry.
        let outcome = if draw(8) == 0 { outcome.and_then(|_| compared(decoders)) } else { outcome };
        outcome.unwrap_or_else(|told| {
            let is_new = compared(&mut new()).is_err();
            let name = all[number];
            panic!(
                "{window} 1/{reduction} {layout:?} {name} strict {strict}, with new decoders {is_new}: {told:?}"
            )
        })
    })
}

thread_local! {
    /// Feedwater's decoder and libjpeg-turbo, by instruction set and strictness.
    static KEPT: RefCell<HashMap<(usize, bool), [Decoders; 2]>> = RefCell::default();
}

/// Decodes with a row index that has a correct checksum but arbitrary content. With such an index a
/// whole image must still have the right pixels, unless the index is rejected. A window with the
/// correct index must have the right pixels too. With a wrong index, wrong pixels of a window are
/// the only permitted fault.
pub fn hostile_index(bytes: &[u8]) -> String {
    let header = match Header::parse(bytes) {
        Ok(header) if header.format == Format::Jpeg && header.size.pixels() <= 1 << 14 => header,
        Ok(_) => return "another image".into(),
        Err(error) => return error.to_string(),
    };
    let mut draw = drawn_from(bytes);
    let all = Decoders::jpeg_instructions();
    let name = all[draw(all.len() as u32) as usize];
    let ours = &mut Decoders::new().with_jpeg_instructions(name).expect("listed");
    let decoded = |decoder: &mut Decoders, window: Roi, reduction: u32| {
        let mut pixels = Vec::new();
        let result = decoder.decode(bytes, &header, window, reduction, &mut |rows| {
            rows.iter().for_each(|(_, row)| pixels.extend_from_slice(row));
        });
        result.map(|()| pixels).map_err(|error| error.to_string())
    };
    let reduction = [1, 1, 2, 4, 8][draw(5) as usize];
    let size = header.size.reduced(reduction);
    let whole = size.window();
    ours.set_row_index(RowIndexTask::Make(Fingerprint::of(bytes, 1)));
    let expected = decoded(ours, whole, reduction);
    let RowIndexOutcome::Made(_, made) = ours.row_index() else { return "no index".into() };
    let mut index = made.to_vec();
    let changes = draw(5);
    for _ in 0..changes {
        let at = draw(index.len() as u32) as usize;
        index[at] = draw(256) as u8;
    }
    let content = index.len() - 4;
    let checksum = crc32c::crc32c(&index[..content]);
    index[content..].copy_from_slice(&checksum.to_le_bytes());
    let Some(index) = RowIndex::read(Bytes::from(index)) else { return "not an index".into() };
    let (x, y) = (draw(size.width), draw(size.height));
    let part = Roi::new(x, y, 1 + draw(size.width - x), 1 + draw(size.height - y));
    let mut outcome = format!("{changes} changes");
    for window in [whole, part] {
        let right =
            if window == whole { expected.clone() } else { decoded(ours, window, reduction) };
        ours.set_row_index(RowIndexTask::Use(index.clone()));
        let found = decoded(ours, window, reduction);
        let told = format!("{:?} {}", ours.row_index(), found == right);
        if ours.row_index() == RowIndexOutcome::Rejected {
            assert!(found.is_err(), "{window} 1/{reduction} {name}: {told}");
            assert!(decoded(ours, window, reduction) == right, "{window} 1/{reduction} {name}");
            // Our decoder only parses units outside the window. They may contain data that it does
            // not support in full.
            let is_refused = matches!(ours.jpeg_by(), Some(JpegBy::Refused(_)));
            assert!(changes > 0 || is_refused, "{window} 1/{reduction} {name}: {told}");
        } else if window == whole || changes == 0 {
            assert!(found == right, "{window} 1/{reduction} {name}: {told}");
        } else {
            assert_eq!(found.as_ref().map(Vec::len), right.as_ref().map(Vec::len));
        }
        outcome += &format!(", {told}");
    }
    outcome
}

/// Returns a generator of random numbers below a bound. All bytes of the input seed it.
fn drawn_from(bytes: &[u8]) -> impl FnMut(u32) -> u32 {
    let mut state = 0u64;
    let mut mix = move |word: u64| {
        state = (state ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        state ^= state >> 32;
        state as u32
    };
    for word in bytes.chunks(8) {
        mix(word.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)));
    }
    move |below| mix(1) % below
}
