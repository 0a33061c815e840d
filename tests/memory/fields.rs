//! Memory of columns that are made from fields of a list.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use feedwater::ElementType;
use feedwater::loader::Loader;
use feedwater::op::{self, Chain, Resize, View};
use feedwater::plan::{ColumnSettings, LastBatch, OnError, Pick, TooLong};
use feedwater::source::settings::TfRecordSettings;
use feedwater::source::{FileList, TfRecord, WebDataset};

use super::{Files, crop, run, small, stored};
use crate::common::{jpeg, png, png_of_samples, progressive};

/// Texts and lists of random lengths up to the limits, in tables and in JSON lines. A few rows are
/// longer than `limits.max_field_bytes`, and their samples fail.
pub fn fields_of_any_length_stay_within_the_footprint() {
    const LIMIT: usize = 300_000;
    let files = Files::new(small(40));
    let (mut table, mut lines) = ("path,text,list\n".to_string(), String::new());
    for number in 0..40_usize {
        // Quotes are doubled in a table, and escaped in JSON.
        let len = [0, 10, 3000, 90_000, 140_000, LIMIT][number % 6];
        let text = "a\"é".repeat(len / 4);
        let list: Vec<usize> = (0..len / 8).collect();
        writeln!(table, "{number:05}.jpg,\"x{}\",\"{list:?}\"", text.replace('"', "\"\"")).unwrap();
        let text = serde_json::to_string(&text).unwrap();
        writeln!(lines, "{{\"path\": \"{number:05}.jpg\", \"text\": {text}, \"list\": {list:?}}}")
            .unwrap();
    }
    for (name, content) in [("list.csv", table), ("list.jsonl", lines)] {
        let path = files.0.path().join(name);
        fs::write(&path, content).unwrap();
        let loader = || {
            let builder = Loader::builder(FileList::open(&path).unwrap(), crop());
            let builder = builder.batch_size(8).num_workers(2).prefetch(1).on_error(OnError::Drop);
            let device = feedwater::loader::DeviceChoice::Cpu;
            builder.device(device).last_batch(LastBatch::Partial).configure(|it| {
                it.limits.max_field_bytes = LIMIT as u64;
                let most = |max_len, column| ColumnSettings {
                    max_len: Some(max_len),
                    too_long: TooLong::Truncate,
                    ..column
                };
                let single = ColumnSettings {
                    field: Some("text".into()),
                    max_texts: Some(1000),
                    ..ColumnSettings::texts("single")
                };
                it.columns = vec![
                    most(70_000, single),
                    most(50_000, ColumnSettings::text("text")),
                    most(9000, ColumnSettings::list("list", ElementType::F32, &[])),
                ];
            })
        };
        let seen = run(loader, 2);
        assert!(seen.problem.is_none(), "{:?}", seen.problem);
        assert!(seen.errors["oversized"] > 0, "{name}: {:?}", seen.errors);
        seen.check(name);
    }
}

/// WebDataset archive that a test writes.
pub struct Archive(tar::Builder<fs::File>);

impl Archive {
    pub fn create(path: &Path) -> Self {
        Self(tar::Builder::new(fs::File::create(path).unwrap()))
    }

    pub fn add(&mut self, name: String, bytes: &[u8]) {
        let mut header = tar::Header::new_ustar();
        header.set_size(bytes.len() as u64);
        self.0.append_data(&mut header, name, bytes).unwrap();
    }

    pub fn finish(mut self) {
        self.0.finish().unwrap();
    }
}

/// Masks of images of different sizes. One image is much larger than the others. Some masks have
/// another size than their image, or are damaged.
pub fn masks_of_any_size_stay_within_the_footprint() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("train.tar");
    let mut archive = Archive::create(&path);
    for number in 0..30_u32 {
        let (width, height) = match number {
            17 => (2600, 1900),
            _ => (60 + 13 * number, 420 - 11 * number),
        };
        archive.add(format!("{number:02}.jpg"), &jpeg(number.into(), width, height));
        let bits = if number % 2 == 0 { 8 } else { 16 };
        let (width, height) = if number == 5 { (4000, 4000) } else { (width, height) };
        let mut samples = vec![0; (width * height) as usize * usize::from(bits) / 8];
        // Noise in a quarter of the mask, so that files stay below the limit of a field.
        let noisy = samples.len() / 4;
        for (at, sample) in samples[..noisy.min(300_000)].iter_mut().enumerate() {
            *sample = (at as u32).wrapping_mul(0x9e37_79b9).to_be_bytes()[0];
        }
        let mut mask = png_of_samples(&samples, (width, height), bits, None);
        if number == 9 {
            mask.truncate(mask.len() / 2);
        }
        archive.add(format!("{number:02}.seg.png"), &mask);
        archive.add(format!("{number:02}.cls"), b"0");
    }
    archive.finish();
    for chain in [crop, stored] {
        let loader = || {
            let builder = Loader::builder(
                WebDataset::open(std::slice::from_ref(&path), &Default::default()).unwrap(),
                chain(),
            );
            let builder = builder.batch_size(8).num_workers(2).prefetch(1).on_error(OnError::Drop);
            let device = feedwater::loader::DeviceChoice::Cpu;
            builder.device(device).last_batch(LastBatch::Partial).configure(|it| {
                let field = Some("seg.png".into());
                let dtype = Some(ElementType::I64);
                let mask = ColumnSettings { field, dtype, ..ColumnSettings::mask("mask") };
                it.columns = vec![ColumnSettings { name: "other".into(), ..mask.clone() }, mask];
            })
        };
        let seen = run(loader, 3);
        assert!(seen.problem.is_none(), "{:?}", seen.problem);
        assert_eq!((seen.errors["field"], seen.errors["truncated"]), (3, 3), "{:?}", seen.errors);
        seen.check("masks");
    }
}

/// Outlines of objects in images of different sizes. One image is much larger than the others. Some
/// polygons have many points, and one has too many.
pub fn outlines_of_any_length_stay_within_the_footprint() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("train.tar");
    let mut archive = Archive::create(&path);
    for number in 0..30_u32 {
        let (width, height) = match number {
            17 => (2600, 1900),
            _ => (60 + 13 * number, 420 - 11 * number),
        };
        archive.add(format!("{number:02}.jpg"), &jpeg(number.into(), width, height));
        let points = match number {
            9 => 100_000,
            _ => [3, 50, 3000, 60_000][number as usize % 4],
        };
        let x = |at: u32| at * 37 % width;
        let polygon: Vec<u32> = (0..points).flat_map(|at| [x(at), at * 3 % 9]).collect();
        let runs = format!(
            "{{\"size\":[{height},{width}],\"counts\":[3,{},{}]}}",
            width * 2,
            width * (height - 2) - 3
        );
        let text = format!("[[{polygon:?}],{runs},null]").replace(' ', "");
        archive.add(format!("{number:02}.seg.json"), text.as_bytes());
        archive.add(format!("{number:02}.cls"), b"0");
    }
    archive.finish();
    for chain in [crop, stored] {
        let loader = || {
            let builder = Loader::builder(
                WebDataset::open(std::slice::from_ref(&path), &Default::default()).unwrap(),
                chain(),
            );
            let builder = builder.batch_size(8).num_workers(2).prefetch(1).on_error(OnError::Drop);
            let device = feedwater::loader::DeviceChoice::Cpu;
            builder.device(device).last_batch(LastBatch::Partial).configure(|it| {
                let field = Some("seg.json".into());
                it.columns = vec![
                    ColumnSettings { field: field.clone(), ..ColumnSettings::runs("runs") },
                    ColumnSettings { field, ..ColumnSettings::instances("masks") },
                ];
            })
        };
        let seen = run(loader, 3);
        assert!(seen.problem.is_none(), "{:?}", seen.problem);
        assert_eq!((seen.errors["too_long"], seen.errors["field"]), (3, 0), "{:?}", seen.errors);
        seen.check("outlines");
    }
}

/// Arrays of archives, stored and deflated, up to the size of `limits.max_field_bytes`: lists,
/// masks of every type of integer, and images. Larger arrays fail their samples.
pub fn arrays_of_archives_stay_within_the_footprint() {
    const LIMIT: usize = 4 << 20;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("train.tar");
    let mut archive = Archive::create(&path);
    for number in 0..24_u32 {
        // Four bytes per pixel of the largest mask, and less than the limit for the header.
        let side = [40, 700, 1000, 1020][number as usize % 4];
        archive.add(format!("{number:02}.jpg"), &jpeg(number.into(), side, side));
        let pixels = (side * side) as usize;
        let shape = format!("({side}, {side})");
        let arrays = [
            ("i1", npy("|i1", &shape, &vec![7; pixels])),
            ("b1", npy("|b1", &shape, &vec![1; pixels])),
            ("u2", npy("<u2", &shape, &vec![0; 2 * pixels])),
            ("i4", npy("<i4", &shape, &vec![0; 4 * pixels])),
            ("list", npy("|u1", &format!("({pixels},)"), &vec![9; pixels])),
            ("image", npy("|u1", &format!("({side}, {side}, 3)"), &vec![9; 3 * pixels])),
        ];
        for (name, file) in arrays {
            let file =
                if number == 9 { npy("|u1", "(5000000,)", &vec![0; 5_000_000]) } else { file };
            // Stored in every second sample.
            archive.add(format!("{number:02}.{name}.npz"), &npz(&file, number % 2 == 0));
        }
        archive.add(format!("{number:02}.cls"), b"0");
    }
    archive.finish();
    let loader = || {
        let source = WebDataset::open(std::slice::from_ref(&path), &Default::default());
        let chain = crop().view(View::new("other", stored()).field("image.npz"));
        let builder = Loader::builder(source.unwrap(), chain).on_error(OnError::Drop);
        let builder = builder.batch_size(8).num_workers(2).prefetch(1);
        let device = feedwater::loader::DeviceChoice::Cpu;
        builder.device(device).last_batch(LastBatch::Partial).configure(|it| {
            it.limits.max_field_bytes = LIMIT as u64;
            let field = |name: &str| Some(format!("{name}.npz:a"));
            let mask = |name| ColumnSettings { field: field(name), ..ColumnSettings::mask(name) };
            let list = ColumnSettings {
                field: field("list"),
                max_len: Some(5000),
                too_long: TooLong::Truncate,
                ..ColumnSettings::list("list", ElementType::I64, &[])
            };
            it.columns = vec![mask("i1"), mask("b1"), mask("u2"), mask("i4"), list];
        })
    };
    let seen = run(loader, 2);
    assert!(seen.problem.is_none(), "{:?}", seen.problem);
    let all: u64 = seen.errors.values().sum();
    assert_eq!((all, seen.errors["oversized"]), (2, 2), "{:?}", seen.errors);
    seen.check("arrays of archives");
}

/// Encodes a `.npy` file.
pub fn npy(descr: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
    let len = (header.len() as u16).to_le_bytes();
    [b"\x93NUMPY\x01\x00", &len[..], header.as_bytes(), data].concat()
}

/// Encodes a zip archive with the file `a.npy`.
pub fn npz(file: &[u8], is_stored: bool) -> Vec<u8> {
    let packed = match is_stored {
        true => file.to_vec(),
        false => miniz_oxide::deflate::compress_to_vec(file, 6),
    };
    let method = if is_stored { [0, 0] } else { [8, 0] };
    let sizes = [crc32fast::hash(file), packed.len() as u32, file.len() as u32];
    let record = [&[0, 0][..], &method, &[0; 4], &sizes.map(u32::to_le_bytes).concat()].concat();
    let head = [b"PK\x03\x04\x14\x00", &record[..], &[5, 0, 0, 0], b"a.npy", &packed].concat();
    let entry = [b"PK\x01\x02\x14\x00\x14\x00", &record[..], &[5, 0], &[0; 16], b"a.npy"].concat();
    let places = [entry.len() as u32, head.len() as u32].map(u32::to_le_bytes).concat();
    let end = [b"PK\x05\x06", &[0, 0, 0, 0, 1, 0, 1, 0][..], &places, &[0, 0]].concat();
    [head, entry, end].concat()
}

/// Pairs of images of different sizes, with several views each. One of the second images is much
/// larger than the first ones, and one has no pixels.
pub fn images_in_fields_stay_within_the_footprint() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("train.tar");
    let mut archive = Archive::create(&path);
    for number in 0..30_u32 {
        archive.add(
            format!("{number:02}.jpg"),
            &jpeg(number.into(), 60 + 13 * number, 420 - 11 * number),
        );
        let (width, height) = match number {
            17 => (1300, 900),
            _ => (420 - 11 * number, 60 + 13 * number),
        };
        let second = match number % 3 {
            0 => png(number.into(), width / 2 + 1, height / 2 + 1),
            1 => progressive(number.into(), width, height),
            _ => jpeg(number.into(), width, height),
        };
        archive
            .add(format!("{number:02}.right.jpg"), if number == 9 { b"no image" } else { &second });
        archive.add(format!("{number:02}.cls"), b"0");
    }
    archive.finish();
    for main in [Chain::new(), crop()] {
        let loader = || {
            let source = WebDataset::open(std::slice::from_ref(&path), &Default::default());
            let chain = main
                .clone()
                .view(View::new("left", stored()).count(3))
                .view(View::new("right", crop()).field("right.jpg").count(2))
                .view(View::new("plain", stored()).field("right.jpg"));
            let builder = Loader::builder(source.unwrap(), chain).on_error(OnError::Drop);
            let builder = builder.batch_size(8).num_workers(2).prefetch(1);
            let device = feedwater::loader::DeviceChoice::Cpu;
            builder.device(device).last_batch(LastBatch::Partial)
        };
        let seen = run(loader, 3);
        assert!(seen.problem.is_none(), "{:?}", seen.problem);
        assert_eq!(seen.errors.values().sum::<u64>(), 3, "{:?}", seen.errors);
        seen.check("images in fields");
    }
}

/// One sample is larger than the others, and the image in its field even more, so both need more
/// than a worker's share. With `cache.presize`, only the sample's own images are resized.
pub fn larger_images_in_fields_take_from_the_pool() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("train.tar");
    let mut archive = Archive::create(&path);
    for number in 0..41_u64 {
        let (own, field) = match number {
            40 => ((320, 240), (640, 480)),
            _ => ((64, 48), (64, 48)),
        };
        archive.add(format!("{number:02}.jpg"), &jpeg(number, own.0, own.1));
        archive.add(format!("{number:02}.cls"), b"0");
        archive.add(format!("{number:02}.f.jpg"), &jpeg(number, field.0, field.1));
    }
    archive.finish();
    let elastic = || Chain::new().then(op::Elastic::default()).then(Resize::to(32, 32));
    for presize in [None, Some(40), Some(200)] {
        let loader = || {
            let source = WebDataset::open(std::slice::from_ref(&path), &Default::default());
            let chain = elastic().view(View::new("f", elastic()).field("f.jpg"));
            let builder = Loader::builder(source.unwrap(), chain).on_error(OnError::Drop);
            let builder = builder.batch_size(4).num_workers(1).prefetch(1);
            let device = feedwater::loader::DeviceChoice::Cpu;
            builder.device(device).last_batch(LastBatch::Partial).configure(|it| {
                it.limits.large_image_memory = 8 << 20;
                it.cache.presize = presize;
                it.cache.decoded = presize.map(|_| 1 << 20);
            })
        };
        let seen = run(loader, 2);
        assert!(seen.problem.is_none(), "{:?}", seen.problem);
        assert_eq!(seen.errors.values().sum::<u64>(), 0, "{presize:?}: {:?}", seen.errors);
        seen.check("larger images in fields");
    }
}

/// The plan inspects no images in fields, which may be larger than those of the samples.
pub fn images_in_fields_that_are_always_larger_are_predicted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("train.tar");
    let mut archive = Archive::create(&path);
    for number in 0..24_u64 {
        archive.add(format!("{number:02}.jpg"), &jpeg(number, 64, 48));
        archive.add(format!("{number:02}.cls"), b"0");
        archive.add(format!("{number:02}.f.jpg"), &jpeg(number, 900, 700));
    }
    archive.finish();
    let chain = || Chain::new().then(op::Elastic::default()).then(Resize::to(32, 32));
    let loader = || {
        let source = WebDataset::open(std::slice::from_ref(&path), &Default::default());
        let chain = chain().view(View::new("f", chain()).field("f.jpg"));
        let builder = Loader::builder(source.unwrap(), chain);
        let builder = builder.batch_size(4).num_workers(2).prefetch(1);
        let device = feedwater::loader::DeviceChoice::Cpu;
        builder.device(device).configure(|it| it.limits.large_image_memory = 16 << 20)
    };
    let seen = run(loader, 2);
    assert!(seen.problem.is_none(), "{:?}", seen.problem);
    assert_eq!(seen.errors.values().sum::<u64>(), 0, "{:?}", seen.errors);
    seen.check("images in fields that are always larger");
}

/// Lists of integers need eight times their size in the file, and lists of texts six times theirs
/// as JSON. Values with more than `limits.max_field_bytes` fail.
pub fn features_of_any_length_stay_within_the_footprint() {
    const LIMIT: usize = 4 << 20;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.tfrecord");
    let images: Vec<Vec<u8>> = small(8).collect();
    let records = images.iter().enumerate().flat_map(|(number, image)| {
        let len = [100, LIMIT / 8, LIMIT / 7, LIMIT][number % 4];
        let packed = field(3, &field(1, &vec![1; len]));
        let texts = field(1, &[field(1, &vec![0; len]), field(1, b"b")].concat());
        let features = [
            feature("image/encoded", &field(1, &field(1, image))),
            feature("image/class/label", &field(3, &field(1, &[number as u8]))),
            feature("integers", &packed),
            feature("texts", &texts),
        ];
        record(&field(1, &features.concat()))
    });
    fs::write(&path, records.collect::<Vec<u8>>()).unwrap();
    let loader = || {
        let source = TfRecord::open(std::slice::from_ref(&path), &TfRecordSettings::default());
        let builder = Loader::builder(source.unwrap(), crop());
        let builder = builder.batch_size(4).num_workers(2).prefetch(1).on_error(OnError::Drop);
        let device = feedwater::loader::DeviceChoice::Cpu;
        builder.device(device).last_batch(LastBatch::Partial).configure(|it| {
            it.limits.max_field_bytes = LIMIT as u64;
            let most = |max_len, column| ColumnSettings {
                max_len: Some(max_len),
                too_long: TooLong::Truncate,
                ..column
            };
            let second = ColumnSettings {
                field: Some("texts:[1]".into()),
                ..ColumnSettings::text("second")
            };
            let integers = ColumnSettings::list("integers", ElementType::I64, &[]);
            let all = ColumnSettings::texts("texts");
            let picked = ColumnSettings {
                field: Some("texts".into()),
                pick: Some(Pick::Random),
                ..ColumnSettings::text("picked")
            };
            it.columns = vec![
                most(1000, integers),
                most(1000, second),
                most(3_000_000, all),
                most(2_000_000, picked),
            ];
        })
    };
    let seen = run(loader, 2);
    assert!(seen.problem.is_none(), "{:?}", seen.problem);
    assert_eq!(seen.errors["oversized"], 8, "{:?}", seen.errors);
    seen.check("a.tfrecord");
}

fn record(data: &[u8]) -> Vec<u8> {
    let masked = |bytes: &[u8]| {
        crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes()
    };
    let len = (data.len() as u64).to_le_bytes();
    [&len, &masked(&len)[..], data, &masked(data)].concat()
}

/// Encodes a length-delimited field of a protocol buffer.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut head = vec![number << 3 | 2];
    let mut len = bytes.len();
    while len >= 0x80 {
        head.push(len as u8 | 0x80);
        len >>= 7;
    }
    head.push(len as u8);
    [&head, bytes].concat()
}

fn feature(name: &str, value: &[u8]) -> Vec<u8> {
    field(1, &[field(1, name.as_bytes()), field(2, value)].concat())
}
