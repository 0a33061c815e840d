//! With a row index, windows have the same pixels, whatever the index says.

use bytes::Bytes;
use feedwater::decode::{
    Decoders, Fingerprint, JpegBy, JpegDecoder, RowIndex, RowIndexOutcome, RowIndexTask, Rows,
};
use feedwater::geometry::Roi;
use feedwater::header::Header;

use crate::jpeg::Recipe;

const GRAY: &[(u8, u8)] = &[(1, 1)];
const S444: &[(u8, u8)] = &[(1, 1), (1, 1), (1, 1)];
const S422: &[(u8, u8)] = &[(2, 1), (1, 1), (1, 1)];
const S420: &[(u8, u8)] = &[(2, 2), (1, 1), (1, 1)];

/// Pixels of a window; `None` if it has an error.
fn decoded(decoders: &mut Decoders, file: &[u8], window: Roi) -> Option<Vec<u8>> {
    let header = Header::parse_as(file, false).unwrap();
    let (mut pixels, mut next) = (Vec::new(), window.y);
    let sink = &mut |rows: Rows<'_>| {
        assert_eq!(rows.first, next, "each row comes once");
        next += rows.count;
        rows.iter().for_each(|(_, row)| pixels.extend_from_slice(row));
    };
    decoders.decode(file, &header, window, 1, sink).ok()?;
    assert_eq!(next, window.bottom());
    Some(pixels)
}

/// Index that is made while this window is decoded.
fn made(decoders: &mut Decoders, file: &[u8], window: Roi) -> Option<Vec<u8>> {
    decoders.set_row_index(RowIndexTask::Make(Fingerprint::of(file)));
    decoded(decoders, file, window)?;
    match decoders.row_index() {
        RowIndexOutcome::Made(of, bytes) => {
            assert_eq!(of, Fingerprint::of(file));
            Some(bytes.to_vec())
        }
        RowIndexOutcome::None => None,
        other => panic!("{other:?}"),
    }
}

/// Pixels with an index, and whether it was used. If it is rejected, the image is decoded again.
fn with_index(
    decoders: &mut Decoders,
    index: &[u8],
    file: &[u8],
    window: Roi,
) -> (Option<Vec<u8>>, bool) {
    let index = RowIndex::read(Bytes::copy_from_slice(index)).unwrap();
    assert_eq!(index.fingerprint(), Fingerprint::of(file));
    decoders.set_row_index(RowIndexTask::Use(index));
    let pixels = decoded(decoders, file, window);
    let was_used = decoders.row_index() == RowIndexOutcome::Used;
    assert!(was_used || decoders.row_index() == RowIndexOutcome::Rejected && pixels.is_none());
    (pixels.or_else(|| decoded(decoders, file, window)), was_used)
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: u32) -> u32 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (((self.0 >> 32) * u64::from(end)) >> 32) as u32
    }

    fn window(&mut self, [width, height]: [u32; 2]) -> Roi {
        let [x, y] = [self.below(width), self.below(height)];
        Roi::new(x, y, 1 + self.below(width - x), 1 + self.below(height - y))
    }
}

/// Images of every sampling, with and without restart markers in every place of a row.
fn recipes() -> Vec<Recipe> {
    let mut recipes = Vec::new();
    for sampling in [GRAY, S444, S422, S420] {
        for (at, (width, height)) in
            [(8u16, 8u16), (33, 70), (70, 33), (100, 100), (17, 200), (640, 50)]
                .into_iter()
                .enumerate()
        {
            for restart in [0, 1, 3, width.div_ceil(16), 1000] {
                let seed = at as u64 + u64::from(restart);
                recipes.push(Recipe { restart, seed, ..Recipe::new(width, height, sampling) });
            }
        }
    }
    recipes
}

#[test]
fn every_window_has_the_same_pixels_and_makes_the_same_index() {
    let mut random = Random(1);
    for recipe in recipes() {
        let file = recipe.make();
        let size = [u32::from(recipe.width), u32::from(recipe.height)];
        let whole = Roi::new(0, 0, size[0], size[1]);
        let libjpeg = &mut Decoders::new().jpeg(JpegDecoder::Libjpeg);
        let names = Decoders::jpeg_instructions();
        let ours = &mut Decoders::new().with_jpeg_instructions(names.last().unwrap()).unwrap();
        let index = made(ours, &file, whole).unwrap();
        for at in 0..12 {
            let window = if at == 0 { whole } else { random.window(size) };
            let expected = decoded(libjpeg, &file, window);
            assert_eq!(made(ours, &file, window).as_ref(), Some(&index), "{window} {recipe:?}");
            let found = with_index(ours, &index, &file, window);
            assert_eq!(found, (expected, true), "{window} {recipe:?}");
            assert_eq!(ours.jpeg_by(), Some(JpegBy::Feedwater));
        }
    }
}

#[test]
fn damaged_files_have_no_index() {
    let recipe = Recipe { restart: 7, ..Recipe::new(90, 80, S420) };
    let file = recipe.make();
    let top = Roi::new(0, 0, 90, 10);
    let ours = &mut Decoders::new().strict(false);
    for cut in [file.len() / 2, file.len() * 3 / 4, file.len() - 10] {
        assert!(decoded(ours, &file[..cut], top).is_some());
        assert_eq!(made(ours, &file[..cut], top), None, "cut at {cut}");
        let mut bad = file.clone();
        bad[cut..cut + 8].copy_from_slice(&[0xff, 0xd9, 0, 0, 0, 0xff, 0xff, 0xff]);
        assert_eq!(made(ours, &bad, top), None, "marker at {cut}");
    }
}

/// Numbers of an index, without the checksum.
fn with_checksum(mut content: Vec<u8>) -> Vec<u8> {
    content.truncate(content.len() - 4);
    let crc = crc32c::crc32c(&content);
    content.extend(crc.to_le_bytes());
    content
}

/// An index with a correct checksum may say anything. Rows that are decoded whole are checked; a start within a row
/// cannot be, so other pixels may come out there, but nothing worse.
#[test]
fn a_hostile_index_does_no_harm() {
    let mut random = Random(2);
    let (mut rejected, mut undetected) = (0, 0);
    for recipe in recipes() {
        let file = recipe.make();
        let size = [u32::from(recipe.width), u32::from(recipe.height)];
        let whole = Roi::new(0, 0, size[0], size[1]);
        let ours = &mut Decoders::new().jpeg(JpegDecoder::Feedwater);
        let Some(index) = made(ours, &file, whole) else {
            // On this CPU libjpeg-turbo is faster.
            return;
        };
        let expected = decoded(ours, &file, whole);
        for _ in 0..20 {
            let mut bytes = index.clone();
            for _ in 0..1 + random.below(3) {
                let at = 2 + random.below(bytes.len() as u32 - 6);
                bytes[at as usize] = random.below(256) as u8;
            }
            let bytes = with_checksum(bytes);
            let read = RowIndex::read(bytes.clone().into());
            if read.is_none_or(|it| it.fingerprint() != Fingerprint::of(&file)) {
                continue;
            }
            let (pixels, was_used) = with_index(ours, &bytes, &file, whole);
            assert_eq!(pixels, expected, "{recipe:?}");
            rejected += u32::from(!was_used);
            let window = random.window(size);
            let right = decoded(ours, &file, window);
            let (found, was_used) = with_index(ours, &bytes, &file, window);
            assert!(was_used || found == right, "{window} {recipe:?}");
            undetected += u32::from(found != right);
        }
    }
    assert!(rejected > 500, "{rejected}");
    assert!(undetected > 0, "the documentation says that this can happen");
}
