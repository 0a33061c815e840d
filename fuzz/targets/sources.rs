//! Targets that open files as sources, and read their samples and fields.

use std::fs;
use std::path::{Path, PathBuf};

use feedwater::ElementType;
use feedwater::internals::field::{
    CellFormat, FieldPath, Numbers, Pick, SampleContext, TooLong, npz,
};
use feedwater::internals::source::Configured;
use feedwater::plan::CellKind;
use feedwater::source::custom::HostPage;
use feedwater::source::settings::NpySettings;
use feedwater::source::{BadShards, Npy, Source};
use feedwater::storage::Storage;

/// Opens a file with these bytes as a source and reads all its samples.
pub fn source<S: Configured>(bytes: &[u8], settings: &S::Settings) -> String {
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
pub fn npy_field(bytes: &[u8]) -> String {
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

/// Reads the arrays of an archive with these bytes: the only one, and two by name.
pub fn npz_arrays(bytes: &[u8]) -> String {
    let mut inflated = Vec::new();
    let outcomes = ["f", "f:a", "f:b"].map(|path| {
        let field = path.parse::<FieldPath>().expect("a valid path");
        let found = npz::array(bytes, &field, 1 << 16, &mut inflated);
        let outcome = match found.map(Numbers::parse) {
            Ok(Ok(array)) => format!("{:?}", array.shape),
            Ok(Err(error)) | Err(error) => error.problem,
        };
        assert!(inflated.len() <= 1 << 16);
        outcome
    });
    outcomes.concat()
}

/// Opens a file with these bytes as a source, and reads the fields of its samples. Does not read
/// the files that the source lists.
pub fn opened<S: Configured>(bytes: &[u8], settings: &S::Settings) -> String {
    with_file(bytes, |path| match S::open(&[path], settings) {
        Ok(source) => source.len().to_string() + &fields(&source),
        Err(error) => error.to_string(),
    })
}

/// Opens a file with these bytes as the second source of a join, which needs no images, and reads
/// the fields of its samples.
pub fn joined<S: Configured>(bytes: &[u8]) -> String {
    let (settings, storage) = (S::Settings::default(), Storage::default());
    with_file(bytes, |path| match S::open_fields(&[path], &settings, &storage, BadShards::Error) {
        Ok(source) => source.len().to_string() + &fields(&source),
        Err(error) => error.to_string(),
    })
}

/// Reads the fields of a source's first samples into cells of every kind, along several paths.
fn fields(source: &dyn Source) -> String {
    let Some(fields) = source.fields() else { return String::new() };
    let paths = ["a", "a:a", "a:[0]", "a:[*]", "a:[*].a", "a:a.b[1][*]"];
    let paths = paths.map(|path| path.parse::<FieldPath>().expect("a valid path"));
    let array = |element, dims: &[usize]| (CellKind::Array, element, dims.to_vec());
    let list = |element, dims: &[usize]| (CellKind::List, element, dims.to_vec());
    let kinds = [
        array(ElementType::F32, &[]),
        array(ElementType::F16, &[2, 2]),
        list(ElementType::I64, &[]),
        list(ElementType::U8, &[3]),
        (CellKind::Text, ElementType::U8, Vec::new()),
        (CellKind::Bytes, ElementType::U8, Vec::new()),
        (CellKind::Texts, ElementType::U8, Vec::new()),
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
                max_texts: if *kind == CellKind::Texts { 3 } else { 0 },
                pick: (*kind == CellKind::Text && index % 2 == 1).then_some(Pick::Random),
                too_long: TooLong::Truncate,
                field: path.clone(),
            };
            let mut cell = vec![0; format.cell_bytes()];
            let read =
                fields.read_fields(index, &names, &mut buffer, 1 << 16, &mut |number, it| {
                    assert!(number < names.len());
                    // An error of one value must not hide the others.
                    let context = SampleContext { draw: index << 60, limit: 1 << 16 };
                    let written = format.write(it, &mut cell, context);
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
pub fn tfrecord(bytes: &[u8]) -> Vec<u8> {
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
pub fn tar(bytes: &[u8]) -> Vec<u8> {
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
