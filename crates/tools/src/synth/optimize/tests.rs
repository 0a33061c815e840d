//! Tests that optimized files have the same pixels and are smaller, and that unsupported and
//! corrupt files are rejected.

use feedwater::internals::decode::Decoders;
use feedwater::internals::header::Header;
use feedwater::internals::random::{SampleKey, SampleRng};
use jpeg_encoder::{ColorType, Encoder, SamplingFactor};

use super::super::image;
use super::super::segments::{DHT, SOS, Table, segment};
use super::optimized;

/// Properties of a test file.
#[derive(Clone, Copy, Debug)]
struct Encoding {
    size: [u16; 2],
    color: ColorType,
    sampling: SamplingFactor,
    quality: u8,
    restart_interval: u16,
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Flat,
    Noise,
    Photograph,
}

fn file(form: &Encoding, rng: &mut SampleRng) -> Vec<u8> {
    let [width, height] = form.size.map(u32::from);
    let channels = match form.color {
        ColorType::Luma => 1,
        ColorType::Cmyk => 4,
        _ => 3,
    };
    let count = (channels * width * height) as usize;
    let pixels = match form.kind {
        Kind::Flat => vec![rng.bits() as u8; count],
        Kind::Noise => (0..count).map(|_| rng.bits() as u8).collect(),
        Kind::Photograph => image(1, 3, 2 * width, height)[..count].to_vec(),
    };
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&mut bytes, form.quality);
    encoder.set_sampling_factor(form.sampling);
    if form.restart_interval > 0 {
        encoder.set_restart_interval(form.restart_interval);
    }
    encoder.add_app_segment(5, b"kept".to_vec()).unwrap();
    encoder.encode(&pixels, form.size[0], form.size[1], form.color).unwrap();
    bytes
}

fn pixels(mut decoders: Decoders, bytes: &[u8]) -> Vec<u8> {
    let header = Header::parse(bytes).unwrap();
    let mut pixels = Vec::new();
    let sink = &mut |rows: feedwater::internals::decode::Rows<'_>| {
        rows.iter().for_each(|(_, row)| pixels.extend_from_slice(row));
    };
    decoders.decode(bytes, &header, header.size.window(), 1, sink).unwrap();
    pixels
}

fn tables(mut rest: &[u8]) -> Vec<Table> {
    let mut tables = Vec::new();
    rest = &rest[2..];
    loop {
        let found = segment(rest).unwrap();
        match found.marker {
            DHT => tables.extend(Table::parse(found.body).unwrap()),
            SOS => return tables,
            _ => {}
        }
        rest = found.rest;
    }
}

#[test]
fn pixels_stay_equal_and_files_become_smaller() {
    let mut rng = SampleRng::new(SampleKey { seed: 5, epoch: 0, index: 0 }, 0);
    let samplings = [
        SamplingFactor::F_1_1,
        SamplingFactor::F_2_1,
        SamplingFactor::F_1_2,
        SamplingFactor::F_2_2,
        SamplingFactor::F_4_1,
        SamplingFactor::F_4_2,
    ];
    for number in 0..240usize {
        let side = |rng: &mut SampleRng| match number {
            0..24 => 1,
            _ => 1 + rng.below(90) as u16,
        };
        let form = Encoding {
            size: [side(&mut rng), side(&mut rng)],
            color: match number % 8 {
                0 => ColorType::Luma,
                1 => ColorType::Cmyk,
                _ => ColorType::Rgb,
            },
            sampling: samplings[number % 6],
            quality: [1, 40, 75, 96, 100][number % 5],
            restart_interval: [0, 0, 0, 1, 7][number / 5 % 5],
            kind: [Kind::Photograph, Kind::Flat, Kind::Noise][number / 7 % 3],
        };
        let before = file(&form, &mut rng);
        let after = optimized(&before).unwrap_or_else(|error| panic!("{form:?}: {error}"));
        for decoders in [Decoders::only("libjpeg-turbo").unwrap(), Decoders::new()] {
            let name = format!("{form:?} {}", before.len());
            let by_other = pixels(Decoders::only("libjpeg-turbo").unwrap(), &before);
            assert!(pixels(decoders, &after) == by_other, "{name}");
        }
        assert!(after.len() < before.len(), "{form:?}: {} to {}", before.len(), after.len());
        let [old, new] = [&before, &after].map(|file| tables(file));
        assert!(new.iter().all(|table| !old.contains(table)), "{form:?}");
        assert!(after.windows(4).any(|it| it == b"kept"));
        // Optimizing an optimized file does not change it.
        assert!(optimized(&after).unwrap() == after, "{form:?}");
    }
}

/// Compares the file size with that of the encoder's own optimization, which supports gray files of
/// one scan. The encoder's algorithm differs from libjpeg's, but its code lengths are equally good.
#[test]
fn no_other_optimal_tables_give_a_smaller_file() {
    let gray: Vec<u8> = image(2, 5, 200, 150).iter().skip(1).step_by(3).copied().collect();
    for quality in [30, 75, 96] {
        let [standard, own] = [false, true].map(|own| {
            let mut bytes = Vec::new();
            let mut encoder = Encoder::new(&mut bytes, quality);
            encoder.set_optimized_huffman_tables(own);
            encoder.encode(&gray, 200, 150, ColorType::Luma).unwrap();
            bytes
        });
        // The encoder also writes unused chroma tables. Optimizing both files removes these, so
        // that the lengths can be compared.
        let (ours, theirs) = (optimized(&standard).unwrap(), optimized(&own).unwrap());
        assert_eq!(ours.len(), theirs.len(), "{quality}");
        assert!(ours.len() <= own.len(), "{quality}: {} and {}", ours.len(), own.len());
    }
}

/// Corrupt files are rejected or keep their pixels, and never cause a panic.
#[test]
fn corrupt_files_are_refused() {
    let mut rng = SampleRng::new(SampleKey { seed: 6, epoch: 0, index: 0 }, 0);
    let form = Encoding {
        size: [37, 29],
        color: ColorType::Rgb,
        sampling: SamplingFactor::F_2_2,
        quality: 80,
        restart_interval: 2,
        kind: Kind::Photograph,
    };
    let intact = file(&form, &mut rng);
    for len in 0..intact.len() {
        assert!(optimized(&intact[..len]).is_err(), "{len} bytes");
    }
    let mut refused = 0;
    for _ in 0..4000 {
        let mut bytes = intact.clone();
        for _ in 0..1 + rng.below(3) {
            let at = rng.below(bytes.len() as u64) as usize;
            bytes[at] = rng.bits() as u8;
        }
        refused += u32::from(optimized(&bytes).is_err());
    }
    assert!((400..4000).contains(&refused), "{refused}");
}

#[test]
fn other_processes_are_refused_by_name() {
    let mut progressive = Vec::new();
    let mut encoder = Encoder::new(&mut progressive, 80);
    encoder.set_progressive(true);
    encoder.encode(&[9; 300], 10, 10, ColorType::Rgb).unwrap();
    let mut rng = SampleRng::new(SampleKey { seed: 7, epoch: 0, index: 0 }, 0);
    let form = Encoding {
        size: [9, 9],
        color: ColorType::Luma,
        sampling: SamplingFactor::F_1_1,
        quality: 80,
        restart_interval: 0,
        kind: Kind::Noise,
    };
    let baseline = file(&form, &mut rng);
    let frame = baseline.windows(2).position(|it| it == [0xff, 0xc0]).unwrap();
    let with = |marker: u8| {
        let mut bytes = baseline.clone();
        bytes[frame + 1] = marker;
        bytes
    };
    let mut deep = baseline.clone();
    deep[frame + 4] = 12;
    for (bytes, word) in [
        (progressive, "progressive"),
        (with(0xc9), "arithmetic"),
        (with(0xc3), "lossless"),
        (deep, "12 bits"),
        (Vec::new(), "SOI"),
    ] {
        let error = optimized(&bytes).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    }
    assert!(optimized(&with(0xc1)).is_ok());
}
