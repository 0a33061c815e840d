//! Compares the kernels with the CPU's own decoder, for any file. Used for fuzzing.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use feedwater::internals::decode::{
    Decoders, Fingerprint, JpegDecoder, RowIndex, RowIndexOutcome, RowIndexTask, Rows,
};
use feedwater::internals::geometry::{Roi, Size};
use feedwater::internals::header::{Format, Header};

use super::{Failure, JpegKernels, Wanted};

static KERNELS: LazyLock<JpegKernels> = LazyLock::new(JpegKernels::new);

/// Number of comparisons of an image, a window and a reduction.
pub static COMPARISONS: AtomicU64 = AtomicU64::new(0);

/// Decodes random windows of a file, with and without row indexes that may be damaged. Returns a
/// description of the outcome of the first one.
///
/// # Panics
/// Panics if the kernels accept what the CPU refuses, or if the pixels of both differ.
pub fn compare(file: &[u8]) -> String {
    let header = match Header::parse_as(file, false) {
        Ok(header) if header.format == Format::Jpeg && header.size.pixels() <= 1 << 14 => header,
        Ok(_) => return "another image".into(),
        Err(error) => return error.to_string(),
    };
    let mut draw = drawn_from(file);
    let ours = &mut Decoders::new().jpeg(JpegDecoder::Feedwater);
    let (outcome, index) = compare_window(file, &header, &mut draw, ours);
    let Some(index) = index else { return outcome };
    // The first window has shown that the file is intact.
    for number in 0..4 {
        let mut index = index.clone();
        for _ in 0..if number > 0 { 1 + draw(3) } else { 0 } {
            let at = draw(index.len() as u32) as usize;
            index[at] = draw(256) as u8;
        }
        let content = index.len() - 4;
        let checksum = crc32c::crc32c(&index[..content]);
        index[content..].copy_from_slice(&checksum.to_le_bytes());
        let Some(index) = RowIndex::read(index.into()) else { continue };
        // The kernels decode images with restart markers without their index.
        let uses_index = header.jpeg.as_ref().is_some_and(|jpeg| jpeg.restart_interval == 0);
        let task = RowIndexTask::Use(index.clone());
        let (window, reduction) = draw_window(&header, &mut draw);
        ours.set_row_index(if uses_index { task } else { RowIndexTask::None });
        let wanted = (file, window, reduction);
        let expected = decoded(ours, &header, wanted);
        same(&KERNELS.decode(wanted, Some(&index)), expected.as_ref(), "index");
    }
    outcome
}

/// Decodes a random window without a row index, and makes an index.
fn compare_window(
    file: &[u8],
    header: &Header,
    draw: &mut impl FnMut(u32) -> u32,
    ours: &mut Decoders,
) -> (String, Option<Vec<u8>>) {
    let (window, reduction) = draw_window(header, draw);
    let wanted = (file, window, reduction);
    ours.set_row_index(RowIndexTask::Make(Fingerprint::of(file, 1)));
    let expected = decoded(ours, header, wanted);
    let made = match ours.row_index() {
        RowIndexOutcome::Made(_, made) => Some(made.to_vec()),
        _ => None,
    };
    let found = KERNELS.decode(wanted, None);
    let by_libjpeg = || {
        // The CPU's own decoder leaves some files to libjpeg-turbo that the kernels decode, such as
        // those with a segment between the scan and the end of the image.
        decoded(&mut Decoders::new().jpeg(JpegDecoder::Libjpeg), header, wanted)
    };
    let expected = expected.or_else(|| found.is_ok().then(by_libjpeg).flatten());
    let outcome = same(&found, expected.as_ref(), "no index");
    if made.is_some() && found.is_ok() {
        assert!(KERNELS.index(wanted, Fingerprint::of(file, 1)) == made, "the indexes differ");
    }
    (outcome, made)
}

fn draw_window(header: &Header, draw: &mut impl FnMut(u32) -> u32) -> (Roi, u32) {
    let reduction = [1, 1, 1, 2, 4, 8][draw(6) as usize];
    let Size { width, height } = header.size.reduced(reduction);
    let (x, y) = (draw(width), draw(height));
    let part = Roi::new(x, y, 1 + draw(width - x), 1 + draw(height - y));
    (if draw(2) == 0 { Size::new(width, height).window() } else { part }, reduction)
}

fn decoded(decoder: &mut Decoders, header: &Header, wanted: Wanted<'_>) -> Option<Vec<u8>> {
    let (file, window, reduction) = wanted;
    let mut pixels = Vec::new();
    let sink = &mut |rows: Rows<'_>| {
        rows.iter().for_each(|(_, row)| pixels.extend_from_slice(row));
    };
    decoder.decode(file, header, window, reduction, sink).ok()?;
    // Rows of gray images may have one channel.
    if pixels.len() as u64 == window.size().pixels() {
        pixels = pixels.into_iter().flat_map(|level| [level; 3]).collect();
    }
    Some(pixels)
}

fn same(found: &Result<Vec<u8>, Failure>, expected: Option<&Vec<u8>>, how: &str) -> String {
    COMPARISONS.fetch_add(1, Ordering::Relaxed);
    match (found, expected) {
        (Ok(found), Some(expected)) => {
            assert!(found == expected, "{how}: the pixels differ");
            format!("equal, {how}")
        }
        (Ok(_), None) => panic!("{how}: the kernels accept what the CPU refuses"),
        (Err(why), Some(_)) => format!("left to the CPU, {how}|{why:?}"),
        (Err(why), None) => format!("refused, {how}|{why:?}"),
    }
}

/// Returns a generator of random numbers below a bound. All bytes of the input seed it.
fn drawn_from(bytes: &[u8]) -> impl FnMut(u32) -> u32 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    let mut state = hasher.finish();
    move |end| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (((state >> 32) * u64::from(end)) >> 32) as u32
    }
}
