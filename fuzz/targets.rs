//! Fuzz targets: all code that reads bytes from untrusted files. In every test run, `tests/fuzz.rs`
//! mutates the seeds of each target for a short time. `any.rs` runs libFuzzer on a target without a
//! time limit.
//!
//! To add a target, add one line to [`TARGETS`].

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use feedwater::ElementType;
use feedwater::error::{DataError, Reason};
use feedwater::internals::config::Pipeline;
use feedwater::internals::decode::{
    Decoders, Fingerprint, JpegBy, JpegDecoder, RowIndex, RowIndexOutcome, RowIndexTask,
    ValueImage, simd,
};
use feedwater::internals::field::{CellFormat, FieldPath, TooLong};
use feedwater::internals::geometry::{Roi, Size};
use feedwater::internals::header::{Format, Header, JpegLayout};
use feedwater::internals::source::Configured;
use feedwater::plan::CellKind;
use feedwater::source::custom::HostPage;
use feedwater::source::settings::{
    BetonSettings, FileListSettings, ListFormat, LmdbSettings, NpySettings, RecordIoLabel,
    RecordIoSettings,
};
use feedwater::source::{
    Beton, Coco, FileList, Lmdb, Npy, Parquet, RecordIo, Source, TfRecord, WebDataset,
};

/// Fuzz target: its name, its seed files, and the function that processes the bytes. The returned
/// text describes the outcome. An outcome that has not occurred before shows that the input reached
/// new code.
pub struct Target(pub &'static str, pub Seeds, pub fn(&[u8]) -> String);

/// Folders below `tests/golden/`, each with the file name ending of its seeds.
pub type Seeds = &'static [(&'static str, &'static str)];

pub const TARGETS: &[Target] = &[
    Target("header", &[("decode", ".jpg"), ("decode", ".png"), ("decode", ".webp")], header),
    Target("jpeg", &[("decode", ".jpg"), ("tolerated", ".jpg"), ("refused", ".jpg")], decode),
    Target(
        "jpeg-decoders",
        &[("decode", ".jpg"), ("tolerated", ".jpg"), ("refused", ".jpg"), ("encoders", ".jpg")],
        both,
    ),
    Target("row-index", &[("decode", ".jpg"), ("encoders", ".jpg")], hostile_index),
    Target("png", &[("decode", ".png"), ("tolerated", ".png"), ("refused", ".png")], decode),
    Target("webp", &[("decode", ".webp"), ("refused", ".webp")], decode),
    Target("pnm", &[("decode", ".ppm"), ("decode", ".pgm"), ("decode", ".pbm")], decode),
    Target("mask", &[("decode", ".png"), ("decode", ".pgm"), ("tolerated", ".png")], values),
    Target("bmp", &[("decode", ".bmp")], decode),
    Target("gif", &[("decode", ".gif")], decode),
    Target("tiff", &[("decode", ".tif")], decode),
    Target("npy", &[("npy", ".npy")], |it| source::<Npy>(it, &Default::default())),
    Target("npy-field", &[("npy", ".npy")], npy_field),
    Target("beton", &[("beton", ".beton")], |it| source::<Beton>(it, &Default::default())),
    Target("beton-fields", &[("beton", ".beton")], |it| source::<Beton>(it, &image_and_label())),
    Target("tfrecord", &[("records", "-of-00002")], |it| {
        source::<TfRecord>(it, &Default::default())
    }),
    Target("tfrecord-repaired", &[("records", "-of-00002")], |it| {
        source::<TfRecord>(&tfrecord(it), &Default::default())
    }),
    Target("webdataset", &[("records", ".tar")], |it| {
        source::<WebDataset>(it, &Default::default())
    }),
    Target("webdataset-repaired", &[("records", ".tar")], |it| {
        source::<WebDataset>(&tar(it), &Default::default())
    }),
    Target("lmdb", &[("lmdb", ".mdb"), ("lmdb/image", ".mdb")], |it| {
        source::<Lmdb>(it, &Default::default())
    }),
    Target("lmdb-named", &[("lmdb", ".mdb")], |it| source::<Lmdb>(it, &named())),
    Target("recordio", &[("recordio", ".rec")], |it| source::<RecordIo>(it, &Default::default())),
    Target("recordio-first", &[("recordio", ".rec")], |it| source::<RecordIo>(it, &first())),
    Target("list", &[], |it| opened::<FileList>(it, &Default::default())),
    Target("list-csv", &[], |it| opened::<FileList>(it, &list(ListFormat::Csv))),
    Target("list-jsonl", &[], |it| opened::<FileList>(it, &list(ListFormat::Jsonl))),
    Target("parquet", &[("parquet", ".parquet")], |it| source::<Parquet>(it, &Default::default())),
    Target("coco", &[("coco", ".json")], |it| opened::<Coco>(it, &Default::default())),
    Target("config", &[], config),
];

/// Returns the seed files of a target: its seeds below `tests/golden/`, and earlier findings in
/// `fuzz/corpus/NAME/`.
pub fn seeds(target: &Target) -> Vec<PathBuf> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    let top = top.parent().expect("the packages `fuzz` and `tests` are in the repository");
    let golden =
        target.1.iter().map(|(folder, ending)| (top.join("tests/golden").join(folder), *ending));
    let found = (top.join("fuzz/corpus").join(target.0), "");
    let mut files = Vec::new();
    for (folder, ending) in golden.chain([found]) {
        // Only `fuzz/corpus/NAME/` may be missing: not every target has earlier findings.
        assert!(ending.is_empty() || folder.is_dir(), "{} is missing", folder.display());
        let entries =
            fs::read_dir(folder).into_iter().flatten().map(|entry| entry.expect("an entry").path());
        files.extend(
            entries.filter(|path| {
                path.is_file() && path.to_str().is_some_and(|it| it.ends_with(ending))
            }),
        );
    }
    files.sort();
    files
}

fn header(bytes: &[u8]) -> String {
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
fn values(bytes: &[u8]) -> String {
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

/// Decodes with and without `strict`. An image that is valid with `strict` must have the same
/// pixels without it, and must not count as damaged.
fn decode(bytes: &[u8]) -> String {
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
fn both(bytes: &[u8]) -> String {
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
fn hostile_index(bytes: &[u8]) -> String {
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

/// Opens a file with these bytes as a source and reads all its samples.
fn source<S: Configured>(bytes: &[u8], settings: &S::Settings) -> String {
    with_file(bytes, |path| {
        let source = match S::open(&[path], settings) {
            Ok(source) => source,
            Err(error) => return error.to_string(),
        };
        let source: &dyn Source = &source;
        let mut page = HostPage::default();
        let mut outcome = format!("{} samples", source.len());
        for index in 0..source.len().min(64) {
            let _ = (source.label(index), source.location(index));
            match source.read(index, &mut page, 1 << 30) {
                Ok(()) => assert!(Some(page.bytes().len() as u64) <= source.largest_bytes()),
                Err(error) => outcome = error.to_string(),
            }
        }
        outcome + &fields(source)
    })
}

/// Opens four small images with these bytes as the array of a field.
fn npy_field(bytes: &[u8]) -> String {
    let mut images = b"\x93NUMPY\x01\x00\x3c\x00".to_vec();
    images.extend(b"{'descr': '|u1', 'fortran_order': False, 'shape': (4,1,1,3)}");
    images.extend([0; 12]);
    with_file(bytes, |path| {
        let stack = path.with_file_name("x.npy");
        fs::write(&stack, &images).expect("the file is written");
        let fields = [("a".to_string(), path)].into();
        match Npy::open(&[stack], &NpySettings { fields, ..Default::default() }) {
            Ok(source) => source.len().to_string() + &self::fields(&source),
            Err(error) => error.to_string(),
        }
    })
}

/// Opens a file with these bytes as a source, and reads the fields of its samples. Does not read
/// the files that the source lists.
fn opened<S: Configured>(bytes: &[u8], settings: &S::Settings) -> String {
    with_file(bytes, |path| match S::open(&[path], settings) {
        Ok(source) => source.len().to_string() + &fields(&source),
        Err(error) => error.to_string(),
    })
}

/// Reads the fields of a source's first samples into cells of every kind, along several paths.
fn fields(source: &dyn Source) -> String {
    let Some(fields) = source.fields() else { return String::new() };
    let paths = ["a", "a:a", "a:[0]", "a:[*]", "a:[*].a", "a:a.b[1][*]"];
    let paths = paths.map(|path| path.parse::<FieldPath>().expect("a valid path").steps);
    let array = |element, dims: &[usize]| (CellKind::Array, element, dims.to_vec());
    let list = |element, dims: &[usize]| (CellKind::List, element, dims.to_vec());
    let kinds = [
        array(ElementType::F32, &[]),
        array(ElementType::F16, &[2, 2]),
        list(ElementType::I64, &[]),
        list(ElementType::U8, &[3]),
        (CellKind::Text, ElementType::U8, Vec::new()),
        (CellKind::Bytes, ElementType::U8, Vec::new()),
    ];
    let schema = fields.schema();
    // At most 16 fields, from the whole list.
    let schema = schema.iter().step_by(schema.len().div_ceil(16).max(1));
    let names: Vec<String> = schema.map(|field| field.name.clone()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut buffer = Vec::new();
    let mut outcome = String::new();
    for index in 0..source.len().min(8) {
        for (path, (kind, element, dims)) in
            paths.iter().flat_map(|it| kinds.iter().map(move |kind| (it, kind)))
        {
            let format = CellFormat {
                kind: *kind,
                element: *element,
                dims: dims.clone(),
                max_len: 5,
                too_long: TooLong::Truncate,
                path: path.clone(),
            };
            let mut cell = vec![0; format.cell_bytes()];
            let read =
                fields.read_fields(index, &names, &mut buffer, 1 << 16, &mut |number, it| {
                    assert!(number < names.len());
                    // An error of one value must not hide the others.
                    let written = format.write(it, &mut cell);
                    if let Ok(Some(written)) = written {
                        assert!(written.len <= 5);
                    }
                    Ok(())
                });
            outcome = read.map_or_else(|error| error.to_string(), |()| outcome);
        }
    }
    outcome
}

fn config(bytes: &[u8]) -> String {
    let Ok(text) = str::from_utf8(bytes) else { return "no text".into() };
    match Pipeline::from_toml(text, "") {
        Ok(pipeline) => {
            let written = match pipeline.to_toml() {
                Ok(written) => written,
                Err(error) => return error.to_string(),
            };
            let again = Pipeline::from_toml(&written, "").expect("what was written is read");
            assert_eq!(again.to_toml().expect("it was written before"), written);
            "read".into()
        }
        Err(error) => error.to_string(),
    }
}

fn named() -> LmdbSettings {
    LmdbSettings { database: "train".into(), ..Default::default() }
}

fn list(format: ListFormat) -> FileListSettings {
    FileListSettings { format, ..Default::default() }
}

fn image_and_label() -> BetonSettings {
    BetonSettings { image: Some("image".into()), label: Some("label".into()) }
}

fn first() -> RecordIoSettings {
    RecordIoSettings { label: RecordIoLabel::First }
}

/// Calls `work` with the path of a file with these bytes. Each file has a folder of its own.
/// Otherwise the library could take a file for its predecessor with the same name, length and
/// modification time. The path is removed from the returned text.
fn with_file(bytes: &[u8], work: impl FnOnce(PathBuf) -> String) -> String {
    let memory = Path::new("/dev/shm");
    let root = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    let root = root.expect("a folder for the file");
    let path = root.path().join("file");
    fs::write(&path, bytes).expect("the file is written");
    let folder = root.path().display().to_string();
    work(path).replace(&folder, "")
}

/// Corrects the checksums of a TFRecord, so the fuzzer reaches the code behind their check.
fn tfrecord(bytes: &[u8]) -> Vec<u8> {
    let masked = |bytes: &[u8]| {
        crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes()
    };
    let mut bytes = bytes.to_vec();
    let mut at = 0;
    while let Some(len) = bytes.get(at..at + 8).and_then(|it| it.first_chunk()) {
        let (len, crc) = (u64::from_le_bytes(*len) as usize, masked(&bytes[at..at + 8]));
        let Some(place) = bytes.get_mut(at + 8..at + 12) else { break };
        place.copy_from_slice(&crc);
        let Some(end) = len.checked_add(at + 12) else { break };
        let Some(crc) = bytes.get(at + 12..end).map(masked) else { break };
        let Some(place) = bytes.get_mut(end..end + 4) else { break };
        place.copy_from_slice(&crc);
        at = end + 4;
    }
    bytes
}

/// Corrects the checksum of every block of a tar archive that could be a header.
fn tar(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for block in bytes.chunks_exact_mut(512) {
        let ustar = &block[257..262] == b"ustar";
        if ustar {
            block[148..156].fill(b' ');
            let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
            block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        }
    }
    bytes
}
