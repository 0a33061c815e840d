//! Decoding on the CPU. Pixels equal Pillow's, and the pixels of each window equal the same part of
//! the whole image.

#[allow(dead_code, reason = "not every test needs every recipe")]
mod pillow;

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::jpeg::{Recipe, Scans};
use feedwater::error::{DataError, Reason, Tolerated};
use feedwater::internals::decode::{
    Buffers, DecodeMemory, Decoders, EncodedImage, HostDecoder, MOST_ROWS, RowLayout, RowSink, Rows,
};
use feedwater::internals::geometry::{Orientation, Roi, Size};
use feedwater::internals::header::{Format, Header};
use sha2::{Digest, Sha256};

/// Sampling factors of the components: common chroma subsamplings, and some rare ones.
const SAMPLINGS: [&[(u8, u8)]; 18] = [
    &[(1, 1)],
    &[(2, 2)],
    &[(1, 1), (1, 1), (1, 1)],
    &[(2, 1), (1, 1), (1, 1)],
    &[(2, 2), (1, 1), (1, 1)],
    &[(1, 2), (1, 1), (1, 1)],
    &[(4, 1), (1, 1), (1, 1)],
    &[(4, 2), (1, 1), (1, 1)],
    &[(1, 4), (1, 1), (1, 1)],
    &[(2, 4), (1, 1), (1, 1)],
    &[(2, 2), (2, 1), (1, 2)],
    &[(2, 2), (1, 2), (2, 1)],
    &[(4, 1), (2, 1), (1, 1)],
    &[(3, 1), (1, 1), (1, 1)],
    &[(1, 1), (2, 2), (1, 1)],
    &[(2, 1), (2, 1), (2, 1)],
    &[(1, 1), (1, 1), (1, 1), (1, 1)],
    &[(2, 2), (1, 1), (1, 1), (2, 2)],
];

fn decode(
    decoder: &mut Decoders,
    bytes: &[u8],
    window: Roi,
    reduction: u32,
) -> Result<Vec<u8>, DataError> {
    decode_as(decoder, bytes, true, window, reduction)
}

fn decode_as(
    decoder: &mut Decoders,
    bytes: &[u8],
    strict: bool,
    window: Roi,
    reduction: u32,
) -> Result<Vec<u8>, DataError> {
    let header = Header::parse_as(bytes, strict)?;
    let mut pixels = Vec::new();
    let mut expected_row = window.y;
    decoder.decode(bytes, &header, window, reduction, &mut |rows| {
        let last = rows.first + rows.count - 1;
        assert_eq!(
            rows.first / MOST_ROWS,
            last / MOST_ROWS,
            "groups must end at the end of an MCU row"
        );
        for (y, row) in rows.iter() {
            assert_eq!(y, expected_row, "rows must arrive in order");
            assert_eq!(row.len(), 3 * window.width as usize);
            expected_row += 1;
            pixels.extend_from_slice(row);
        }
    })?;
    assert_eq!(expected_row, window.bottom(), "every row must arrive");
    Ok(pixels)
}

fn part(whole: &[u8], width: u32, window: Roi) -> Vec<u8> {
    let stride = 3 * width as usize;
    let rows = whole.chunks_exact(stride).skip(window.y as usize).take(window.height as usize);
    rows.flat_map(|row| &row[3 * window.x as usize..][..3 * window.width as usize])
        .copied()
        .collect()
}

/// Returns windows that start at every column and at every row, each with several sizes, up to both
/// ends of the image.
fn windows(size: Size) -> Vec<Roi> {
    let mut windows = Vec::new();
    for x in 0..size.width {
        for (step, width) in [1, 2, 5, 19, size.width - x].into_iter().enumerate() {
            let width = width.min(size.width - x);
            let y = (x * 7 + step as u32 * 11) % size.height;
            windows.push(Roi::new(x, y, width, (1 + x % 9).min(size.height - y)));
        }
    }
    for y in 0..size.height {
        for (step, height) in [1, 3, size.height - y].into_iter().enumerate() {
            let height = height.min(size.height - y);
            let x = (y * 5 + step as u32 * 13) % size.width;
            windows.push(Roi::new(x, y, (1 + y % 23).min(size.width - x), height));
        }
    }
    windows
}

fn assert_windows_are_parts(recipe: &Recipe) {
    let bytes = recipe.make();
    let stored = Size::new(recipe.width.into(), recipe.height.into());
    let mut decoder = Decoders::new();
    for reduction in [1, 2, 4, 8] {
        let size = stored.reduced(reduction);
        let whole = decode(&mut decoder, &bytes, size.window(), reduction)
            .unwrap_or_else(|error| panic!("{recipe:?}: {error}"));
        for window in windows(size) {
            let found = decode(&mut decoder, &bytes, window, reduction).unwrap();
            let same = found == part(&whole, size.width, window);
            assert!(same, "window {window} of {size} at 1/{reduction} of {recipe:?}");
        }
    }
}

/// Returns the files written by `tests/golden/decode.py`, each with Pillow's RGB bytes.
fn golden() -> Vec<(PathBuf, Vec<u8>, Vec<u8>)> {
    images("decode")
}

/// Returns the files of a folder of `tests/golden`, each with Pillow's RGB bytes.
fn images(folder: &str) -> Vec<(PathBuf, Vec<u8>, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(folder);
    let mut files: Vec<PathBuf> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension != "rgb"));
    files.sort();
    let read = |path: PathBuf| {
        let pixels = fs::read(path.with_extension("rgb")).unwrap();
        let bytes = fs::read(&path).unwrap();
        (path, bytes, pixels)
    };
    files.into_iter().map(read).collect()
}

#[test]
fn a_window_equals_the_same_part_of_a_whole_decode() {
    for sampling in SAMPLINGS {
        assert_windows_are_parts(&Recipe::new(83, 75, sampling));
    }
}

#[test]
fn a_window_of_a_multi_scan_file_equals_the_same_part() {
    for sampling in SAMPLINGS {
        for scans in [Scans::Separate, Scans::Progressive] {
            assert_windows_are_parts(&Recipe { scans, ..Recipe::new(67, 51, sampling) });
        }
    }
}

#[test]
fn a_window_of_a_file_with_restart_markers_equals_the_same_part() {
    for sampling in SAMPLINGS {
        for restart in [1, 4, 7] {
            assert_windows_are_parts(&Recipe { restart, ..Recipe::new(61, 49, sampling) });
        }
    }
}

/// libjpeg keeps the coefficients of the whole image for a file with several scans, but only a few
/// rows for other files.
#[test]
fn memory_for_coefficients_is_counted_for_several_scans() {
    let memory = |scans, sampling: &[(u8, u8)]| {
        let bytes = Recipe { scans, ..Recipe::new(64, 48, sampling) }.make();
        let header = Header::parse(&bytes).unwrap();
        let decoders = Decoders::only("libjpeg-turbo").unwrap();
        decoders.memory(&header, &bytes, bytes.len() as u64).total()
    };
    let full: &[(u8, u8)] = &[(1, 1), (1, 1), (1, 1)];
    let half: &[(u8, u8)] = &[(2, 2), (1, 1), (1, 1)];
    for scans in [Scans::Separate, Scans::Progressive] {
        let more = |sampling| memory(scans, sampling) - memory(Scans::Interleaved, sampling);
        assert_eq!(more(full), 2 * 3 * 64 * 48, "{scans:?}");
        assert_eq!(more(half), 2 * 64 * 48 * 3 / 2, "{scans:?}");
    }
    let one: &[(u8, u8)] = &[(1, 1)];
    assert_eq!(memory(Scans::Separate, one), memory(Scans::Interleaved, one));
}

#[test]
fn a_window_of_a_smoothed_progressive_file_equals_the_same_part() {
    for sampling in &SAMPLINGS[..8] {
        assert_windows_are_parts(&Recipe { scans: Scans::OnlyDc, ..Recipe::new(67, 75, sampling) });
    }
}

#[test]
fn a_window_of_a_tiny_image_equals_the_same_part() {
    for sampling in SAMPLINGS {
        for (width, height) in
            [(1, 1), (2, 3), (3, 2), (5, 40), (40, 5), (16, 16), (17, 33), (33, 17)]
        {
            for scans in [Scans::Interleaved, Scans::Progressive] {
                assert_windows_are_parts(&Recipe { scans, ..Recipe::new(width, height, sampling) });
            }
        }
    }
}

#[test]
fn colours_are_read_in_the_files_coding() {
    let mut decoder = Decoders::new();
    let mut whole = |recipe: &Recipe| {
        let size = Size::new(recipe.width.into(), recipe.height.into());
        decode(&mut decoder, &recipe.make(), size.window(), 1).unwrap()
    };
    let plain = Recipe::new(24, 16, &[(1, 1); 3]);
    let by_adobe = whole(&Recipe { adobe: Some(0), ..plain.clone() });
    let by_names = whole(&Recipe { ids: *b"RGBx", ..plain.clone() });
    assert_eq!(by_adobe, by_names);
    assert_ne!(by_adobe, whole(&plain));
    assert_eq!(whole(&Recipe { adobe: Some(1), ..plain.clone() }), whole(&plain));
    // The first component of the RGB file has the same coefficients as the grey file, so the red
    // values equal the grey ones.
    let gray = whole(&Recipe::new(24, 16, &[(1, 1)]));
    assert!(gray.chunks_exact(3).all(|pixel| pixel[0] == pixel[1] && pixel[1] == pixel[2]));
    let reds: Vec<u8> = by_adobe.chunks_exact(3).map(|pixel| pixel[0]).collect();
    assert_eq!(gray.chunks_exact(3).map(|pixel| pixel[0]).collect::<Vec<u8>>(), reds);
}

#[test]
fn a_reduction_rounds_sides_up() {
    assert_eq!(Size::new(17, 16).reduced(8), Size::new(3, 2));
    assert_eq!(Size::new(1, 9).reduced(2), Size::new(1, 5));
    assert_eq!(Format::Jpeg.reductions(), [1, 2, 4, 8]);
    for format in [Format::Png, Format::WebP, Format::Pnm, Format::Bmp, Format::Gif, Format::Tiff] {
        assert_eq!(format.reductions(), [1]);
    }
}

#[test]
fn invalid_requests_are_errors() {
    let bytes = Recipe::new(40, 30, &[(2, 2), (1, 1), (1, 1)]).make();
    let mut decoder = Decoders::new();
    for (window, reduction) in [
        (Roi::new(0, 0, 41, 30), 1),
        (Roi::new(1, 0, 40, 30), 1),
        (Roi::new(0, 0, 21, 15), 2),
        (Roi::new(u32::MAX, 0, 2, 2), 1),
        (Roi::new(0, 0, 1, 1), 3),
        (Roi::new(0, 0, 1, 1), 0),
    ] {
        let header = Header::parse(&bytes).unwrap();
        let refused = decoder.decode(&bytes, &header, window, reduction, &mut |_| ());
        assert_eq!(refused.unwrap_err().reason, Reason::Unsupported, "{window} 1/{reduction}");
    }
    assert!(decode(&mut decoder, &bytes, Roi::new(5, 5, 0, 0), 1).unwrap().is_empty());
}

#[test]
fn decoding_with_the_wrong_header_is_an_error() {
    let small = Recipe::new(40, 30, &[(1, 1)]).make();
    let large = Recipe::new(80, 60, &[(1, 1)]).make();
    let header = Header::parse(&large).unwrap();
    let error =
        Decoders::new().decode(&small, &header, Roi::new(0, 0, 8, 8), 1, &mut |_| ()).unwrap_err();
    assert_eq!(error.reason, Reason::Corrupt);
}

#[test]
fn a_window_of_any_format_equals_the_same_part() {
    let mut decoder = Decoders::new();
    for (path, bytes, expected) in golden() {
        let size = Header::parse(&bytes).unwrap().size;
        for window in windows(size).into_iter().step_by(5) {
            let found = decode(&mut decoder, &bytes, window, 1).unwrap();
            assert!(found == part(&expected, size.width, window), "{window} of {}", path.display());
        }
    }
}

#[test]
fn buffers_do_not_grow_after_the_largest_image() {
    let mut decoder = Decoders::new();
    let files = golden();
    let run = |decoder: &mut Decoders| {
        for (_, bytes, _) in &files {
            let size = Header::parse(bytes).unwrap().size;
            decode(decoder, bytes, size.window(), 1).unwrap();
        }
    };
    run(&mut decoder);
    let held = decoder.capacity_bytes();
    run(&mut decoder);
    assert_eq!(decoder.capacity_bytes(), held);
}

/// A test can select one of the decoders that accept an image. If the selected decoder does not
/// accept an image, decoding is an error.
#[test]
fn a_decoder_can_be_forced() {
    let jpeg = Recipe::new(40, 30, &[(2, 2), (1, 1), (1, 1)]).make();
    let window = Size::new(40, 30).window();
    let mut forced = Decoders::only("libjpeg-turbo").unwrap();
    let expected = decode(&mut Decoders::new(), &jpeg, window, 1).unwrap();
    assert!(decode(&mut forced, &jpeg, window, 1).unwrap() == expected);
    forced.release();
    let memory = |decoders: &Decoders, bytes: &[u8]| {
        decoders.memory(&Header::parse(bytes).unwrap(), bytes, bytes.len() as u64)
    };
    // feedwater's decoder may leave an image to libjpeg-turbo, so memory for both is needed.
    let ours = memory(&Decoders::new(), &jpeg);
    assert!(memory(&forced, &jpeg).library < ours.library && ours.scratch > 0);
    let png = golden().into_iter().find(|it| it.0.extension().is_some_and(|it| it == "png"));
    let (_, png, _) = png.unwrap();
    let error = decode(&mut forced, &png, Roi::new(0, 0, 1, 1), 1).unwrap_err();
    assert_eq!(error.reason, Reason::Unsupported);
    assert!(error.problem.contains("libjpeg-turbo"), "{error}");
    assert_eq!(memory(&forced, &png).total(), 0);
    assert!(forced.layouts(&Header::parse(&png).unwrap()).is_empty());
    assert!(Decoders::only("libjpeg").is_none());
}

#[test]
fn a_grey_jpeg_can_be_decoded_to_grey_rows() {
    let gray = Recipe::new(45, 37, &[(1, 1)]).make();
    let header = Header::parse(&gray).unwrap();
    let mut decoders = Decoders::new();
    assert_eq!(decoders.layouts(&header), [RowLayout::Rgb, RowLayout::Gray]);
    for (window, reduction) in
        [(header.size.window(), 1), (Roi::new(7, 5, 20, 30), 1), (Roi::new(3, 2, 9, 4), 4)]
    {
        let rgb = decode(&mut decoders, &gray, window, reduction).unwrap();
        let mut found = Vec::<u8>::new();
        let sink = &mut |rows: Rows<'_>| rows.iter().for_each(|(_, row)| found.extend(row));
        decoders.decode_as(RowLayout::Gray, &gray, &header, window, reduction, sink).unwrap();
        assert_eq!(found, rgb.iter().copied().step_by(3).collect::<Vec<u8>>());
    }
    let color = Recipe::new(45, 37, &[(1, 1); 3]).make();
    let header = Header::parse(&color).unwrap();
    let window = header.size.window();
    for layout in [RowLayout::Gray, RowLayout::YCbCr] {
        let decoded = decoders.decode_as(layout, &color, &header, window, 1, &mut |_| ());
        assert_eq!(decoded.unwrap_err().reason, Reason::Unsupported);
    }
}

/// A decoder that outputs planes instead of interleaved pixels, as custom decoders may.
#[derive(Debug)]
struct Planar;

impl HostDecoder for Planar {
    fn name(&self) -> &'static str {
        "planar"
    }

    fn accepts(&self, header: &Header) -> bool {
        header.format == Format::Jpeg
    }

    fn memory(&self, _: &Header, _: &[u8], _: u64) -> DecodeMemory {
        DecodeMemory::default()
    }

    fn layouts(&self, _: &Header) -> &'static [RowLayout] {
        &[RowLayout::Rgb, RowLayout::YCbCr]
    }

    fn decode(
        &mut self,
        image: &EncodedImage<'_>,
        _: &mut Buffers,
        sink: &mut RowSink<'_>,
    ) -> Result<Option<Tolerated>, DataError> {
        assert_eq!(image.layout, RowLayout::YCbCr);
        let half = |data| Rows { first: 0, count: 8, pitch: 4, data, chroma: &[] };
        let chroma = [half(&[1; 32][..]), half(&[2; 32][..])];
        sink(Rows { first: 0, count: 16, pitch: 8, data: &[0; 128], chroma: &chroma });
        Ok(None)
    }
}

#[test]
fn a_decoder_may_output_planes() {
    let bytes = Recipe::new(8, 16, &[(2, 2), (1, 1), (1, 1)]).make();
    let header = &Header::parse(&bytes).unwrap();
    let image = EncodedImage {
        bytes: &bytes,
        header,
        window: header.size.window(),
        reduction: 1,
        strict: true,
        layout: RowLayout::YCbCr,
        may_fall_back: true,
    };
    let mut seen = Vec::new();
    let sink = &mut |rows: Rows<'_>| {
        seen.push(rows.iter().count());
        seen.extend(rows.chroma.iter().map(|plane| plane.iter().count()));
    };
    Planar.decode(&image, &mut Buffers::default(), sink).unwrap();
    assert_eq!(seen, [16, 8, 8]);
}
