//! Writes shards atomically.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use feedwater::error::{Error, Result};
use feedwater::internals::file::AtomicFile;
use feedwater::internals::source::records::{CLASSES_NAME, FIELDS_NAME};

use super::layout::{FEATURES, LABEL_FILE, Patterns, SampleFields, ShardFormat, field, varint};

/// Sample to write into a shard.
pub(super) struct Item<'a> {
    /// Key of the sample, unique in the data set and without dots.
    pub key: &'a str,
    /// Path or other location of the sample in its source.
    pub location: &'a str,
    /// File name extension of the image format in lower case, such as `jpg` or `png`.
    pub extension: &'a str,
    pub label: i64,
    pub bytes: &'a [u8],
    pub fields: &'a SampleFields,
}

/// Facts about the whole source that the first sample of a shard contains.
#[derive(Clone, Copy)]
pub(super) struct Facts<'a> {
    /// Class names in the order of their labels.
    pub classes: &'a [String],
    /// Patterns of the packed fields.
    pub fields: &'a Patterns,
}

/// Finished shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shard {
    /// File name.
    pub name: String,
    /// Number of samples.
    pub samples: u64,
    /// File size in bytes.
    pub bytes: u64,
    /// CRC-32C over the labels, images and fields of all samples, in order.
    pub crc: u32,
    /// Source index of the first sample after the shard.
    pub end: u64,
}

/// Shard that is being written, under a hidden temporary name.
pub(super) struct ShardWriter<'a> {
    format: ShardFormat,
    path: PathBuf,
    out: Counted<AtomicFile>,
    samples: u64,
    crc: u32,
    /// Facts about the source. `None` after they were written with the first sample.
    facts: Option<Facts<'a>>,
    /// Number of bytes that these facts take in the file.
    facts_bytes: u64,
}

impl<'a> ShardWriter<'a> {
    pub fn create(
        directory: &Path,
        format: ShardFormat,
        file_name: &str,
        facts: Facts<'a>,
    ) -> Result<Self> {
        let path = directory.join(file_name);
        let file = AtomicFile::create(&path).map_err(|error| Error::io(&path, &error))?;
        let out = Counted { out: file, bytes: 0 };
        Ok(Self { format, path, out, samples: 0, crc: 0, facts: Some(facts), facts_bytes: 0 })
    }

    pub fn append(&mut self, item: &Item) -> Result<()> {
        let before = self.out.bytes;
        let written = match self.facts.take() {
            Some(facts) => write_first_item(self.format, &mut self.out, item, facts),
            None => write_item(self.format, &mut self.out, item),
        };
        written.map_err(|error| Error::io(&self.path, &error))?;
        if self.samples == 0 {
            self.facts_bytes = self.out.bytes - before - item_bytes(self.format, item);
        }
        self.samples += 1;
        self.crc = content_crc(self.crc, item.label, item.bytes, item.fields.crc);
        Ok(())
    }

    /// Path of the shard after it is finished.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Number of bytes of the samples written so far. The facts about the source do not count. So a
    /// shard ends at the same sample with and without class names.
    pub fn bytes(&self) -> u64 {
        self.out.bytes - self.facts_bytes
    }

    /// Finishes the file, syncs it to disk, and gives it its final name.
    pub fn finish(self, end: u64) -> Result<Shard> {
        let end_mark: &[u8] = match self.format {
            ShardFormat::WebDataset => &[0; 1024],
            ShardFormat::TfRecord => &[],
        };
        let Self { path, mut out, samples, crc, .. } = self;
        let ended = out.write_all(end_mark).and_then(|()| out.out.commit());
        ended.map_err(|error| Error::io(&path, &error))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Shard { name, samples, bytes: out.bytes, crc, end })
    }
}

/// Extends the checksum `before`, which covers all earlier samples, by one sample. `fields` is the
/// checksum of its fields, if fields are packed.
pub(super) fn content_crc(before: u32, label: i64, bytes: &[u8], fields: Option<u32>) -> u32 {
    let crc = crc32c::crc32c_append(crc32c::crc32c_append(before, &label.to_le_bytes()), bytes);
    fields.map_or(crc, |fields| crc32c::crc32c_append(crc, &fields.to_le_bytes()))
}

/// Bytes that a sample adds to a shard.
pub(super) fn item_bytes(format: ShardFormat, item: &Item) -> u64 {
    let mut out = Counted { out: io::sink(), bytes: 0 };
    match write_item(format, &mut out, item) {
        Ok(()) => out.bytes,
        // Ignore the error here. It occurs again when the shard is written, and is reported then.
        Err(_) => 0,
    }
}

fn write_item(format: ShardFormat, out: &mut impl Write, item: &Item) -> io::Result<()> {
    match format {
        ShardFormat::WebDataset => tar_members(out, item),
        ShardFormat::TfRecord => tf_record(out, &example(item, None)),
    }
}

/// Writes the first sample of a shard together with the facts about the source. They are in a place
/// that readers without support for them skip.
fn write_first_item(
    format: ShardFormat,
    out: &mut impl Write,
    item: &Item,
    facts: Facts<'_>,
) -> io::Result<()> {
    match format {
        ShardFormat::WebDataset => {
            // Readers of WebDataset ignore a member whose name has no dot, such as these.
            if !facts.classes.is_empty() {
                tar_member(out, CLASSES_NAME, &serde_json::to_vec(facts.classes)?)?;
            }
            if !facts.fields.is_empty() {
                tar_member(out, FIELDS_NAME, &serde_json::to_vec(facts.fields)?)?;
            }
            tar_members(out, item)
        }
        ShardFormat::TfRecord => tf_record(out, &example(item, Some(facts))),
    }
}

fn tar_members(out: &mut impl Write, item: &Item) -> io::Result<()> {
    let label = item.label.to_string();
    let own = [(item.extension, item.bytes), (LABEL_FILE, label.as_bytes())];
    let fields = item.fields.stored.iter().map(|field| (&field.name[..], &field.bytes[..]));
    for (extension, bytes) in own.into_iter().chain(fields) {
        tar_member(out, &format!("{}.{extension}", item.key), bytes)?;
    }
    Ok(())
}

fn tar_member(out: &mut impl Write, name: &str, bytes: &[u8]) -> io::Result<()> {
    let mut header = tar::Header::new_ustar();
    header.set_path(name)?;
    header.set_size(bytes.len() as u64);
    header.set_mode(0o644);
    header.set_cksum();
    out.write_all(header.as_bytes())?;
    out.write_all(bytes)?;
    let padding = bytes.len().next_multiple_of(512) - bytes.len();
    out.write_all(&[0; 512][..padding])
}

/// Writes a record in the format of `tf.io.TFRecordWriter`: length, masked checksum of the length,
/// data, masked checksum of the data.
fn tf_record(out: &mut impl Write, data: &[u8]) -> io::Result<()> {
    let len = (data.len() as u64).to_le_bytes();
    let masked = |bytes: &[u8]| {
        let crc = crc32c::crc32c(bytes);
        crc.rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes()
    };
    out.write_all(&len)?;
    out.write_all(&masked(&len))?;
    out.write_all(data)?;
    out.write_all(&masked(data))
}

/// Encodes a `tf.train.Example` (tensorflow/core/example/example.proto). The features are sorted by
/// name. The facts about the source, if any, are features, too.
fn example(item: &Item, facts: Option<Facts<'_>>) -> Vec<u8> {
    let bytes_list = |value: &[u8]| field(1, &field(1, value));
    let label = field(3, &field(1, &varint(item.label as u64)));
    let own = [
        label,
        bytes_list(item.bytes),
        bytes_list(item.location.as_bytes()),
        bytes_list(item.extension.as_bytes()),
    ];
    let mut features: Vec<(&str, Vec<u8>)> = FEATURES.into_iter().zip(own).collect();
    let stored = item.fields.stored.iter();
    features.extend(stored.map(|field| (&field.name[..], field.bytes.clone())));
    if let Some(Facts { classes, fields }) = facts {
        if !classes.is_empty() {
            let names: Vec<u8> = classes.iter().flat_map(|it| field(1, it.as_bytes())).collect();
            features.push((CLASSES_NAME, field(1, &names)));
        }
        if !fields.is_empty() {
            let pattern = |(name, pattern): (&String, &String)| {
                field(1, serde_json::json!({ name: pattern }).to_string().as_bytes())
            };
            let patterns: Vec<u8> = fields.iter().flat_map(pattern).collect();
            features.push((FIELDS_NAME, field(1, &patterns)));
        }
    }
    features.sort_by(|a, b| a.0.cmp(b.0));
    let entries: Vec<Vec<u8>> = features
        .into_iter()
        .map(|(name, feature)| field(1, &[field(1, name.as_bytes()), field(2, &feature)].concat()))
        .collect();
    field(1, &entries.concat())
}

/// Writer that counts the bytes written.
struct Counted<W> {
    out: W,
    bytes: u64,
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.out.write(bytes)?;
        self.bytes += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
