//! Writes the sets of `scale.rs`, which have millions of tiny images, in several formats.

use std::fs::{self, File};
use std::io::{BufWriter, Result, Write};
use std::path::Path;
use std::thread;

pub const FORMATS: [&str; 5] = ["tfrecord", "recordio", "webdataset", "list", "directory"];

/// A gray image of one pixel as PNM.
pub const IMAGE: &[u8] = b"P5\n1 1\n255\n\x80";

const FILES: u64 = 8;
const CLASSES: u64 = 1000;
/// Numbers of distinct files. A list has lines for `LISTED` files. The names in a folder are hard
/// links to `LINKED` files. ext4 allows 65,000 links per file.
const LISTED: u64 = 1000;
const LINKED: u64 = 200;

/// Creates the set if it is missing. Returns the text for `[source]` in a pipeline file.
pub fn make(format: &str, folder: &Path, samples: u64) -> String {
    assert_eq!(samples % (FILES * CLASSES), 0, "a multiple of {FILES} * {CLASSES}");
    let complete = folder.with_extension("complete");
    if !complete.exists() {
        eprintln!("making {}", folder.display());
        let _ = fs::remove_dir_all(folder);
        write(format, folder, samples).expect("the set is writable");
        File::create(complete).expect("the set is writable");
    }
    let path = if format == "list" { folder.join("list.txt") } else { folder.into() };
    format!("{format} = {:?}", path.display().to_string())
}

fn write(format: &str, folder: &Path, samples: u64) -> Result<()> {
    fs::create_dir_all(folder)?;
    let per = samples / FILES;
    match format {
        "tfrecord" => files(folder, "", per, tfrecord),
        "recordio" => files(folder, ".rec", per, recordio),
        "webdataset" => webdataset(folder, per),
        "list" => list(folder, samples),
        "directory" => directory(folder, samples),
        _ => panic!("no format is called {format:?}, there are {}", FORMATS.join(", ")),
    }
}

/// Writes [`FILES`] files of `per` samples, each in its own thread. `record` appends a sample with
/// a given label to the bytes of a file.
fn files(folder: &Path, ending: &str, per: u64, record: fn(&mut Vec<u8>, u64)) -> Result<()> {
    thread::scope(|scope| {
        let writer = |number| {
            let mut file = create(&folder.join(name(number, ending)))?;
            let mut bytes = Vec::new();
            for sample in number * per..(number + 1) * per {
                bytes.clear();
                record(&mut bytes, sample % CLASSES);
                file.write_all(&bytes)?;
            }
            file.flush()
        };
        let writers: Vec<_> =
            (0..FILES).map(|number| scope.spawn(move || writer(number))).collect();
        writers.into_iter().try_for_each(|it| it.join().expect("a writer does not panic"))
    })
}

fn name(number: u64, ending: &str) -> String {
    format!("train-{number:05}-of-{FILES:05}{ending}")
}

fn create(path: &Path) -> Result<BufWriter<File>> {
    Ok(BufWriter::with_capacity(1 << 20, File::create(path)?))
}

/// Appends a TFRecord: its length, the checksum of the length, a `tf.train.Example` with image and
/// label, and the checksum of the example.
fn tfrecord(out: &mut Vec<u8>, label: u64) {
    let mut integer = vec![(label & 0x7f) as u8 | 0x80, (label >> 7) as u8];
    integer = field(3, &field(1, &integer));
    let image = field(1, &field(1, IMAGE));
    let feature =
        |name: &str, value: &[u8]| field(1, &[field(1, name.as_bytes()), field(2, value)].concat());
    let features =
        [feature("image/encoded", &image), feature("image/class/label", &integer)].concat();
    let example = field(1, &features);
    let masked = |bytes: &[u8]| {
        crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes()
    };
    let len = (example.len() as u64).to_le_bytes();
    for part in [&len[..], &masked(&len), &example, &masked(&example)] {
        out.extend_from_slice(part);
    }
}

/// Encodes a field of a protocol buffer. Its value must have fewer than 128 bytes.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2, bytes.len() as u8], bytes].concat()
}

/// Appends a RecordIO record that is not divided into parts: magic number, length, MXNet's header
/// (flag, label, two numbers), and the image, padded to a multiple of four bytes.
fn recordio(out: &mut Vec<u8>, label: u64) {
    let len = 24 + IMAGE.len() as u32;
    out.extend_from_slice(&0xced7_230a_u32.to_le_bytes());
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(&0u32.to_le_bytes());
    out.extend_from_slice(&(label as f32).to_le_bytes());
    out.extend_from_slice(&[0; 16]);
    out.extend_from_slice(IMAGE);
    out.resize(out.len().next_multiple_of(4), 0);
}

/// Writes one tar archive of `per` samples, and hard links to it under the names of the other
/// archives of the set.
fn webdataset(folder: &Path, per: u64) -> Result<()> {
    let first = folder.join(name(0, ".tar"));
    let mut archive = tar::Builder::new(create(&first)?);
    let mut add = |name: String, bytes: &[u8]| {
        let mut header = tar::Header::new_ustar();
        header.set_path(name)?;
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        archive.append(&header, bytes)
    };
    for number in 0..per {
        add(format!("{number:08}.cls"), (number % CLASSES).to_string().as_bytes())?;
        add(format!("{number:08}.pgm"), IMAGE)?;
    }
    archive.into_inner()?.flush()?;
    (1..FILES).try_for_each(|number| fs::hard_link(&first, folder.join(name(number, ".tar"))))
}

fn list(folder: &Path, samples: u64) -> Result<()> {
    for number in 0..LISTED {
        fs::write(folder.join(format!("{number:010}.pgm")), IMAGE)?;
    }
    let mut list = create(&folder.join("list.txt"))?;
    for number in 0..samples {
        writeln!(list, "{:010}.pgm\t{}", number % LISTED, number % CLASSES)?;
    }
    list.flush()
}

fn directory(folder: &Path, samples: u64) -> Result<()> {
    let hidden = |number: u64| folder.join(format!(".{number:03}"));
    for number in 0..LINKED {
        fs::write(hidden(number), IMAGE)?;
    }
    let per = samples / CLASSES;
    for class in 0..CLASSES {
        let class_folder = folder.join(format!("{class:04}"));
        fs::create_dir(&class_folder)?;
        for number in class * per..(class + 1) * per {
            fs::hard_link(hidden(number % LINKED), class_folder.join(format!("{number:08}.pgm")))?;
        }
    }
    Ok(())
}
