//! What shards of both formats contain: names of members and features, and packed fields.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use feedwater::internals::header::Format;

/// File format of shards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ShardFormat {
    /// Tar archives for WebDataset. A sample has the image `KEY.jpg` (or `.png`, `.webp`), the
    /// label `KEY.cls`, and a member for each field, such as `KEY.caption.txt`.
    #[default]
    WebDataset,
    /// TFRecord files of `tf.train.Example`, with `image/encoded`, `image/class/label`,
    /// `image/format`, `image/filename`, and a feature for each field.
    TfRecord,
}

impl ShardFormat {
    /// Name of the source (under `[source]` in a pipeline file) that reads shards of this format.
    pub const fn key(self) -> &'static str {
        match self {
            ShardFormat::WebDataset => "webdataset",
            ShardFormat::TfRecord => "tfrecord",
        }
    }

    /// File name of a shard, such as `train-000012.tar`.
    pub(super) fn file_name(self, name: &str, number: u64) -> String {
        format!("{name}-{number:06}.{}", self.ending())
    }

    /// Whether `file_name` is the name of a shard with the prefix `name`.
    pub(super) fn is_shard(self, name: &str, file_name: &str) -> bool {
        let number = file_name.strip_prefix(name).and_then(|it| it.strip_prefix('-'));
        let number = number.and_then(|it| it.strip_suffix(self.ending())?.strip_suffix('.'));
        number.is_some_and(|it| it.len() >= 6 && it.bytes().all(|it| it.is_ascii_digit()))
    }

    const fn ending(self) -> &'static str {
        match self {
            ShardFormat::WebDataset => "tar",
            ShardFormat::TfRecord => "tfrecord",
        }
    }
}

/// Features of every TFRecord example, sorted.
pub(super) const FEATURES: [&str; 4] =
    ["image/class/label", "image/encoded", "image/filename", "image/format"];

/// Patterns of the packed fields by the name of the field.
pub(super) type Patterns = BTreeMap<String, String>;

/// Fields of one sample, ready to be written to a shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SampleFields {
    pub stored: Vec<StoredField>,
    /// CRC-32C over the names and values. `None` if no fields are packed.
    pub crc: Option<u32>,
}

/// Field of one sample, ready to be written to a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StoredField {
    /// Name of the file after the key of the sample, or name of the feature.
    pub name: String,
    /// Contents of the file, or the message `tf.train.Feature`.
    pub bytes: Vec<u8>,
}

/// Extension of the label in WebDataset shards.
pub(super) const LABEL_FILE: &str = "cls";

/// File name extension of the images of a format. `bytes` are the image.
pub(super) fn extension(format: Format, bytes: &[u8]) -> Option<&'static str> {
    Some(match format {
        Format::Jpeg => "jpg",
        Format::Png => "png",
        Format::WebP => "webp",
        Format::Pnm => match bytes.get(1) {
            Some(b'1' | b'4') => "pbm",
            Some(b'2' | b'5') => "pgm",
            _ => "ppm",
        },
        Format::Pfm => "pfm",
        Format::Npy => "npy",
        Format::Bmp => "bmp",
        Format::Gif => "gif",
        Format::Tiff => "tif",
        _ => return None,
    })
}

/// Encodes a length-delimited protobuf field.
pub(super) fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2], &varint(bytes.len() as u64)[..], bytes].concat()
}

/// Encodes an integer with 7 bits per byte.
pub(super) fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}
