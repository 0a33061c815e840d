//! TIFFs whose directory Pillow and libtiff read in different ways or refuse, and TIFFs of floats.

use std::io::Write as _;

use feedwater::error::Reason;
use feedwater::internals::decode::Decoders;
use feedwater::internals::geometry::Size;
use feedwater::internals::header::Header;
use feedwater::op::{CenterCrop, Chain};
use feedwater::{PixelFormat, Preprocessor};

/// TIFF with one strip or tile per entry of `chunks`.
#[derive(Clone)]
struct Tiff {
    little: bool,
    /// Tag, type and values. Types are SHORT (3), LONG (4) and other types of four bytes.
    tags: Vec<(u16, u16, Vec<u32>)>,
    chunks: Vec<Vec<u8>>,
}

impl Tiff {
    /// RGB of 8 bits without compression, 5x4 pixels in strips of two rows.
    fn rgb() -> Self {
        let tags = [(256, 5), (257, 4), (259, 1), (262, 2), (277, 3), (278, 2), (284, 1)];
        let mut tags: Vec<_> = tags.map(|(tag, value)| (tag, 3, vec![value])).into();
        tags.push((258, 3, vec![8; 3]));
        let chunks = (0..2).map(|strip| (0..30).map(|at| 7 * at + strip).collect()).collect();
        Self { little: true, tags, chunks }
    }

    /// Palette indices of two bits without compression, 5x4 pixels in one strip.
    fn indices() -> Self {
        let tags = [(256, 5), (257, 4), (258, 2), (259, 1), (262, 3)];
        let mut tags: Vec<_> = tags.map(|(tag, value)| (tag, 3, vec![value])).into();
        tags.push((320, 3, (0..12).map(|at| 5000 * at).collect()));
        Self { little: false, tags, chunks: vec![[0b00_01_10_11, 0b01_00_00_00].repeat(4)] }
    }

    /// This file with another value of a tag.
    fn with(&self, tag: u16, values: &[u32]) -> Self {
        self.of_type(tag, 3, values)
    }

    fn of_type(&self, tag: u16, kind: u16, values: &[u32]) -> Self {
        let mut other = self.without(tag);
        other.tags.push((tag, kind, values.to_vec()));
        other
    }

    fn without(&self, tag: u16) -> Self {
        let mut other = self.clone();
        other.tags.retain(|it| it.0 != tag);
        other
    }

    /// This file with a second entry for a tag.
    fn twice(&self, tag: u16, value: u32) -> Self {
        let mut other = self.clone();
        other.tags.push((tag, 3, vec![value]));
        other
    }

    /// This file with compressed strips.
    fn deflated(&self) -> Self {
        let mut other = self.with(259, &[8]);
        for chunk in &mut other.chunks {
            let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), Default::default());
            encoder.write_all(chunk).unwrap();
            *chunk = encoder.finish().unwrap();
        }
        other
    }

    fn bytes(&self) -> Vec<u8> {
        let short = |it: u16| if self.little { it.to_le_bytes() } else { it.to_be_bytes() };
        let long = |it: u32| if self.little { it.to_le_bytes() } else { it.to_be_bytes() };
        let mut file = [&b"II*\0"[..], &[0; 4]].concat();
        if !self.little {
            file[..4].copy_from_slice(b"MM\0*");
        }
        let mut tags = self.tags.clone();
        let mut offsets = Vec::new();
        for chunk in &self.chunks {
            offsets.push(file.len() as u32);
            file.extend(chunk);
        }
        let lengths = self.chunks.iter().map(|chunk| chunk.len() as u32).collect();
        let is_tiled = tags.iter().any(|it| it.0 == 322);
        for (tag, values) in [(273, offsets), (279, lengths)] {
            let tag = if is_tiled { tag + if tag == 273 { 51 } else { 46 } } else { tag };
            match tags.iter().position(|it| it.0 == tag) {
                // No values stand for a missing tag.
                Some(place) if tags[place].2.is_empty() => _ = tags.remove(place),
                Some(_) => {}
                None => tags.push((tag, 4, values)),
            }
        }
        tags.sort_by_key(|it| it.0);
        let directory = file.len();
        file[4..8].copy_from_slice(&long(directory as u32));
        file.extend(short(tags.len() as u16));
        let mut at = (directory + 2 + 12 * tags.len() + 4) as u32;
        let mut lists = Vec::new();
        for (tag, kind, values) in &tags {
            file.extend([short(*tag), short(*kind)].concat());
            file.extend(long(values.len() as u32));
            let list: Vec<u8> = match kind {
                3 => values.iter().flat_map(|it| short(*it as u16)).collect(),
                _ => values.iter().flat_map(|it| long(*it)).collect(),
            };
            if list.len() <= 4 {
                file.extend([list, vec![0; 4]].concat().first_chunk::<4>().unwrap());
            } else {
                file.extend(long(at));
                at += list.len() as u32;
                lists.extend(list);
            }
        }
        file.extend([vec![0; 4], lists].concat());
        file
    }

    /// Red, green and blue of 8 bits.
    fn decode(&self) -> Result<Vec<u8>, feedwater::error::DataError> {
        let bytes = self.bytes();
        let header = Header::parse(&bytes)?;
        let (mut pixels, window) = (Vec::new(), header.size.window());
        Decoders::default().decode(&bytes, &header, window, 1, &mut |rows| {
            rows.iter().for_each(|(_, row)| pixels.extend_from_slice(row));
        })?;
        Ok(pixels)
    }
}

/// Palette indices of two bits, which are packed from the highest bits.
#[test]
fn palette_indices_of_a_tiff_are_exact() {
    let file = Tiff::indices().bytes();
    let preprocessor = Preprocessor::builder(Chain::new().then(CenterCrop::to(5, 4)))
        .output(feedwater::DType::U8, feedwater::Layout::Nhwc)
        .configure(|it| it.decode.pixels = PixelFormat::Indices);
    let tensor = preprocessor.build().unwrap();
    let tensor = tensor.run(&file).unwrap();
    assert_eq!(tensor.bytes(), [0, 1, 2, 3, 1].repeat(4));
}

#[test]
fn directories_that_can_be_read_in_two_ways_are_refused() {
    let (rgb, indices) = (Tiff::rgb(), Tiff::indices());
    assert!(rgb.decode().unwrap().iter().eq(rgb.chunks.concat().iter()));
    assert_eq!(rgb.deflated().decode().unwrap(), rgb.decode().unwrap());
    assert!(indices.decode().is_ok());
    let rgba = Tiff { chunks: vec![vec![9; 40]; 2], ..rgb.with(277, &[4]) };
    let tiled = Tiff { chunks: vec![vec![9; 16 * 16 * 3]], ..rgb.with(322, &[16]) };
    let tiled = tiled.without(278).with(323, &[16]);
    assert!(rgba.with(258, &[8; 4]).decode().is_ok() && tiled.decode().is_ok());
    for (file, words) in [
        (rgb.twice(257, 2), "tag 257 (ImageLength) twice"),
        (rgb.twice(258, 8), "tag 258 (BitsPerSample) twice"),
        (rgb.of_type(256, 9, &[5]), "tag 256 (ImageWidth) has the type 9"),
        (rgb.of_type(262, 1, &[2]), "tag 262 (PhotometricInterpretation) has the type 1"),
        (rgb.with(277, &[3, 3]), "tag 277 (SamplesPerPixel) has 2 values instead of one"),
        (rgb.with(284, &[]), "tag 284 (PlanarConfiguration) has no values"),
        (rgb.with(284, &[7]), "tag 284 (PlanarConfiguration) is 7"),
        (rgb.with(258, &[8, 8]), "tag 258 (BitsPerSample) has 2 values for 3 samples"),
        (rgb.with(258, &[8, 8, 16]), "samples that differ in tag 258 (BitsPerSample)"),
        (rgb.without(258), "3 samples of 1 bit per pixel"),
        (rgb.with(339, &[1, 1]), "tag 339 (SampleFormat) has 2 values for 3 samples"),
        (rgb.with(257, &[2]), "tag 273 (StripOffsets) has 2 values, but the image has 1 parts"),
        (rgb.with(278, &[1]), "tag 273 (StripOffsets) has 2 values, but the image has 4 parts"),
        (rgb.of_type(279, 4, &[30]), "tag 279 (StripByteCounts) has 1 values"),
        (rgb.deflated().with(279, &[]), "a compressed TIFF without tag 279 (StripByteCounts)"),
        (tiled.deflated().with(325, &[]), "a compressed TIFF without tag 325 (TileByteCounts)"),
        (rgb.with(322, &[16]).with(273, &[8, 38]), "strips and tag 322 (TileWidth)"),
        (rgba.with(258, &[8; 3]), "tag 258 (BitsPerSample) has 3 values for 4 samples"),
        (rgba.with(258, &[8; 4]).with(338, &[3]), "extra samples [3]"),
        (indices.with(258, &[1]), "tag 320 (ColorMap) has 12 values, but indices of 1 bits need 6"),
        (indices.without(258), "tag 320 (ColorMap) has 12 values, but indices of 1 bits need 6"),
        (indices.with(284, &[2]), "samples in separate planes"),
        (
            tiled.with(262, &[1]).with(277, &[1]).with(258, &[1]).with(322, &[17]),
            "TileWidth) is 17",
        ),
    ] {
        let error = file.decode().unwrap_err();
        assert!(matches!(error.reason, Reason::Corrupt | Reason::Unsupported), "{error}");
        assert!(error.problem.contains(words), "{words}: {error}");
    }
}

/// Pillow ignores the tags after a list that is not in the file.
#[test]
fn lists_outside_of_the_file_are_refused() {
    let file = Tiff::rgb().of_type(279, 4, &[30, 30]).bytes();
    let entry = file.windows(4).position(|it| it == [0x17, 1, 4, 0]).unwrap();
    let mut file = file;
    let outside = file.len() as u32 - 4;
    file[entry + 8..entry + 12].copy_from_slice(&outside.to_le_bytes());
    let header = Header::parse(&file).unwrap();
    let decoded = Decoders::default().decode(&file, &header, header.size.window(), 1, &mut |_| {});
    let error = decoded.unwrap_err();
    assert_eq!(error.reason, Reason::Truncated);
    assert!(error.problem.contains("the list of strips or tiles"), "{error}");
}

/// The first code of a strip is the clear code. Other strips are damaged, or coded by an early
/// version of LZW.
#[test]
fn lzw_data_without_a_clear_code_is_refused() {
    // The codes 256, 7, 7, 257 of nine bits.
    let codes = |first: u64| {
        let bits = [first, 7, 7, 257].iter().fold(0, |bits, code| bits << 9 | code);
        (bits << 28).to_be_bytes()[..5].to_vec()
    };
    let gray = Tiff::rgb().with(262, &[1]).with(277, &[1]).with(258, &[8]).with(259, &[5]);
    let gray = gray.with(256, &[2]).with(257, &[1]).with(278, &[1]);
    let file = |first| Tiff { chunks: vec![codes(first)], ..gray.clone() };
    assert_eq!(file(256).decode().unwrap(), [7; 6]);
    let error = file(7).decode().unwrap_err();
    assert!(error.problem.contains("without a clear code"), "{error}");
}

/// Without the tag, a sample has one bit, also in a compressed file.
#[test]
fn a_sample_has_one_bit_by_default() {
    let gray = Tiff::rgb().with(262, &[1]).without(277).without(258).without(278);
    let gray = Tiff { chunks: vec![vec![0b1010_0000, 0b0101_1000, 0, 0xFF]], ..gray };
    let expected: Vec<u8> =
        [1, 0, 1, 0, 0, 0, 1, 0, 1, 1, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1].map(|it| 255 * it).into();
    for file in [gray.clone(), gray.deflated()] {
        assert!(file.decode().unwrap().iter().step_by(3).eq(&expected));
    }
}

/// Bytes of floats as a TIFF stores them, and the same with a predictor.
fn stored(values: &[f32], (little, predictor): (bool, u32), row: usize, samples: usize) -> Vec<u8> {
    let bits = |it: &f32| it.to_bits();
    let word = |it: u32| if little { it.to_le_bytes() } else { it.to_be_bytes() };
    let mut bytes = Vec::new();
    for row in values.chunks(row) {
        let row: Vec<u32> = row.iter().map(bits).collect();
        let left = |at: usize| at.checked_sub(samples);
        match predictor {
            1 => bytes.extend(row.iter().flat_map(|it| word(*it))),
            2 => {
                bytes.extend((0..row.len()).flat_map(|at| {
                    word(row[at].wrapping_sub(left(at).map_or(0, |left| row[left])))
                }))
            }
            _ => {
                let planes =
                    (0..4).flat_map(|byte| row.iter().map(move |it| it.to_be_bytes()[byte]));
                let planes: Vec<u8> = planes.collect();
                bytes
                    .extend((0..planes.len()).map(|at| {
                        planes[at].wrapping_sub(left(at).map_or(0, |left| planes[left]))
                    }));
            }
        }
    }
    bytes
}

/// Floats in one or three channels, in strips and tiles, with the predictors of libtiff.
#[test]
fn floats_are_decoded_with_each_predictor() {
    let mut seed = 1u32;
    let mut next = move || {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f32::from_bits(seed & 0xBF7F_FFFF) // finite
    };
    for (samples, photometric, format) in [(1, 1, PixelFormat::F32), (3, 2, PixelFormat::F32x3)] {
        for predictor in 1..=3 {
            for (little, tiled) in [(true, false), (false, false), (true, true), (false, true)] {
                let (width, height) = (if tiled { 32 } else { 19 }, 16);
                let values: Vec<f32> = (0..width * height * samples).map(|_| next()).collect();
                let tags = [
                    (256, width as u32),
                    (257, height as u32),
                    (258, 32),
                    (262, photometric),
                    (277, samples as u32),
                    (317, predictor),
                    (339, 3),
                ];
                let mut tags: Vec<_> = tags.map(|(tag, value)| (tag, 3, vec![value])).into();
                let coded = |values: &[f32], columns| {
                    stored(values, (little, predictor), columns * samples, samples)
                };
                let chunks = if tiled {
                    tags.extend([(322, 3, vec![16]), (323, 3, vec![16])]);
                    let part = |tile| {
                        let rows = values.chunks(width * samples);
                        let part: Vec<f32> = rows
                            .flat_map(|row| row[16 * samples * tile..][..16 * samples].to_vec())
                            .collect();
                        coded(&part, 16)
                    };
                    vec![part(0), part(1)]
                } else {
                    tags.push((278, 3, vec![7]));
                    values.chunks(7 * width * samples).map(|it| coded(it, width)).collect()
                };
                let file = Tiff { little, tags, chunks }.deflated().bytes();
                let chain = Chain::new().then(CenterCrop::to(width as u32, height as u32));
                let preprocessor = Preprocessor::builder(chain)
                    .output(feedwater::DType::F32, feedwater::Layout::Nhwc)
                    .configure(|it| it.decode.pixels = format);
                let tensor = preprocessor.build().unwrap();
                let tensor = tensor.run(&file).unwrap();
                let made: &[f32] = bytemuck::cast_slice(tensor.bytes());
                assert!(
                    made.iter().map(|it| it.to_bits()).eq(values.iter().map(|it| it.to_bits())),
                    "{samples} samples, predictor {predictor}, little {little}, tiled {tiled}"
                );
                assert_eq!(Header::parse(&file).unwrap().size, Size::new(width as u32, 16));
            }
        }
    }
}
