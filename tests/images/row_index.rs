//! Decoding a window gives the same pixels with a row index as without one, whatever the index
//! contains.

use bytes::Bytes;
use feedwater::internals::decode::{
    Decoders, Fingerprint, JpegBy, JpegDecoder, JpegRefusal, RowIndex, RowIndexOutcome,
    RowIndexTask, Rows,
};
use feedwater::internals::geometry::{Roi, Size};
use feedwater::internals::header::Header;

use crate::decoders::{S420, SAMPLINGS};
use crate::jpeg::Recipe;

/// A window of an image and the reduction.
type Part = (Roi, u32);

/// Returns the pixels of a window, or `None` if decoding failed.
fn decoded(decoders: &mut Decoders, file: &[u8], (window, reduction): Part) -> Option<Vec<u8>> {
    let header = Header::parse_as(file, false).unwrap();
    let (mut pixels, mut next) = (Vec::new(), window.y);
    let sink = &mut |rows: Rows<'_>| {
        assert_eq!(rows.first, next, "each row must arrive once");
        next += rows.count;
        rows.iter().for_each(|(_, row)| pixels.extend_from_slice(row));
    };
    decoders.decode(file, &header, window, reduction, sink).ok()?;
    assert_eq!(next, window.bottom());
    Some(pixels)
}

/// Returns the row index that is created while this window is decoded.
fn made(decoders: &mut Decoders, file: &[u8], part: Part) -> Option<Vec<u8>> {
    decoders.set_row_index(RowIndexTask::Make(Fingerprint::of(file, 1)));
    decoded(decoders, file, part)?;
    match decoders.row_index() {
        RowIndexOutcome::Made(of, bytes) => {
            assert_eq!(of, Fingerprint::of(file, 1));
            Some(bytes.to_vec())
        }
        RowIndexOutcome::None => None,
        other => panic!("{other:?}"),
    }
}

/// Returns the pixels decoded with a row index, and whether the index was used. If the decoder
/// rejects the index, the image is decoded again without it.
fn with_index(
    decoders: &mut Decoders,
    index: &[u8],
    file: &[u8],
    part: Part,
) -> (Option<Vec<u8>>, bool) {
    let index = RowIndex::read(Bytes::copy_from_slice(index)).unwrap();
    assert_eq!(index.fingerprint(), Fingerprint::of(file, 1));
    decoders.set_row_index(RowIndexTask::Use(index));
    let pixels = decoded(decoders, file, part);
    let was_used = decoders.row_index() == RowIndexOutcome::Used;
    assert!(was_used || decoders.row_index() == RowIndexOutcome::Rejected && pixels.is_none());
    (pixels.or_else(|| decoded(decoders, file, part)), was_used)
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: u32) -> u32 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (((self.0 >> 32) * u64::from(end)) >> 32) as u32
    }

    fn part(&mut self, size: Size) -> Part {
        let reduction = [1, 1, 2, 4][self.below(4) as usize];
        let Size { width, height } = size.reduced(reduction);
        let [x, y] = [self.below(width), self.below(height)];
        (Roi::new(x, y, 1 + self.below(width - x), 1 + self.below(height - y)), reduction)
    }
}

/// Returns images of every chroma subsampling, without restart markers and with restart markers at
/// several distances.
fn recipes() -> Vec<Recipe> {
    let mut recipes = Vec::new();
    for sampling in SAMPLINGS {
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
    let (mut used, mut refused) = (0, 0);
    for recipe in recipes() {
        let file = recipe.make();
        let size = Size::new(recipe.width.into(), recipe.height.into());
        let whole = (size.window(), 1);
        let libjpeg = &mut Decoders::new().jpeg(JpegDecoder::Libjpeg);
        let names = Decoders::jpeg_instructions();
        let ours = &mut Decoders::new().with_jpeg_instructions(names.last().unwrap()).unwrap();
        let index = made(ours, &file, whole).unwrap();
        for at in 0..12 {
            let part = if at == 0 { whole } else { random.part(size) };
            let expected = decoded(libjpeg, &file, part);
            let again = made(ours, &file, part);
            if ours.jpeg_by() == Some(JpegBy::Refused(JpegRefusal::Reduction)) {
                refused += 1;
                continue;
            }
            assert_eq!(again.as_ref(), Some(&index), "{part:?} {recipe:?}");
            let found = with_index(ours, &index, &file, part);
            assert_eq!(found, (expected, true), "{part:?} {recipe:?}");
            assert_eq!(ours.jpeg_by(), Some(JpegBy::Feedwater));
            used += 1;
        }
    }
    assert!(refused < used / 10, "{refused} {used}");
}

#[test]
fn damaged_files_have_no_index() {
    let recipe = Recipe { restart: 7, ..Recipe::new(90, 80, S420) };
    let file = recipe.make();
    let top = (Roi::new(0, 0, 90, 10), 1);
    let ours = &mut Decoders::new().strict(false);
    for cut in [file.len() / 2, file.len() * 3 / 4, file.len() - 10] {
        assert!(decoded(ours, &file[..cut], top).is_some());
        assert_eq!(made(ours, &file[..cut], top), None, "cut at {cut}");
        let mut bad = file.clone();
        bad[cut..cut + 8].copy_from_slice(&[0xff, 0xd9, 0, 0, 0, 0xff, 0xff, 0xff]);
        assert_eq!(made(ours, &bad, top), None, "marker at {cut}");
    }
}

/// Corrects the checksum at the end of an index and returns the index.
fn with_checksum(mut content: Vec<u8>) -> Vec<u8> {
    content.truncate(content.len() - 4);
    let crc = crc32c::crc32c(&content);
    content.extend(crc.to_le_bytes());
    content
}

/// A file of an index may come from an attacker, so an index with a correct checksum may contain
/// anything. If a row is decoded completely, the decoder checks it. A start within a row cannot be
/// checked, so pixels may be wrong there. Nothing worse may happen.
#[test]
fn a_hostile_index_does_no_harm() {
    let mut random = Random(2);
    let (mut rejected, mut undetected) = (0, 0);
    for recipe in recipes() {
        let file = recipe.make();
        let size = Size::new(recipe.width.into(), recipe.height.into());
        let whole = (size.window(), 1);
        let ours = &mut Decoders::new().jpeg(JpegDecoder::Feedwater);
        let Some(index) = made(ours, &file, whole) else {
            // On this CPU, libjpeg-turbo is faster than feedwater's decoder, which is therefore not
            // used.
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
            if read.is_none_or(|it| it.fingerprint() != Fingerprint::of(&file, 1)) {
                continue;
            }
            let (pixels, was_used) = with_index(ours, &bytes, &file, whole);
            assert_eq!(pixels, expected, "{recipe:?}");
            rejected += u32::from(!was_used);
            let part = random.part(size);
            let Some(right) = decoded(ours, &file, part) else { continue };
            let (found, was_used) = with_index(ours, &bytes, &file, part);
            let found = found.expect("the image must be decoded, with or without the index");
            assert!(was_used || found == right, "{part:?} {recipe:?}");
            undetected += u32::from(found != right);
        }
    }
    assert!(rejected > 500, "{rejected}");
    assert!(
        undetected > 0,
        "no wrong pixels, although the documentation says that they are possible"
    );
}
