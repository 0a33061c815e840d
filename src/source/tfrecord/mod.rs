//! TFRecord files of `tf.train.Example`.


use serde::{Deserialize, Serialize};

use super::LeftOuts;
use super::records::{Entry, Format, Records, Window, FileError};

mod example;

/// Images in TFRecord files, each in a `tf.train.Example`.
///
/// * A path is a file, a directory (its visible files), or a pattern such as `train-*` (`*` and `?` in the last part)
///   or `train-{00..15}` (braces anywhere, as in shells).
///   The samples are in the order of the paths, of the names, and of the records.
/// * The image is the one value of a bytes list, the label the one value of an integer list, or of a float list where that is
///   a whole number; the settings name both features. What a record has besides does not matter.
/// * The files are walked on first use, and every checksum verified; the table is kept beside each file (a hidden file
///   that ends in `.feedwater1`) or in the cache's directory. An image is then one read, and is verified again.
/// * A record whose data do not match their checksum is a sample that cannot be read (label -1): the policy for samples
///   decides. A file whose lengths are damaged, that is cut, or holds something else than Examples with these features,
///   is an error with the byte.
/// * Files that are compressed (gzip and zlib, as TensorFlow writes them, or zstd) are unpacked while they are read: fast
///   in the order of the samples; in any other order a read unpacks some MiB besides.
pub type TfRecord = Records<TfRecordSettings>;

/// The features of a `tf.train.Example` that are read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TfRecordSettings {
    /// The feature that holds the encoded image. Default `image/encoded`.
    pub image: String,
    /// The feature that holds the label; empty where samples have none, which is label -1. Default
    /// `image/class/label`.
    pub label: String,
}

impl Default for TfRecordSettings {
    fn default() -> Self {
        Self { image: "image/encoded".into(), label: "image/class/label".into() }
    }
}

impl Format for TfRecordSettings {
    const KEY: &'static str = "tfrecord";
    const ENDING: &'static str = "";
    const CHECKED: bool = true;

    /// By the checksum of the first length.
    fn recognises(_: &str, head: &[u8]) -> bool {
        head.first_chunk::<12>().is_some_and(|head| checked_len(head).is_some())
    }

    /// The length of a record may begin as compressed data do, but then its checksum matches.
    fn unpacks(first: &[u8]) -> bool {
        first.first_chunk().is_none_or(|head| checked_len(head).is_none())
    }

    fn walk(
        &self,
        window: &mut Window,
        table: &mut Vec<Entry>,
        _: &mut LeftOuts,
    ) -> Result<(), FileError> {
        let mut at = 0;
        while !window.ends_at(at)? {
            let head: [u8; 12] = *window.at(at, 12)?.first_chunk().expect("12 bytes");
            let Some(len) = checked_len(&head) else {
                return Err(FileError::new(at, not_a_record(at)));
            };
            let start = at + 12;
            let end = start.checked_add(len).filter(|&end| window.file_len() - 4 >= end);
            let end = end.ok_or_else(|| window.cut(start, len.saturating_add(4)))?;
            // The whole record in one read, where it fits.
            window.at(start, len.min(Window::BYTES))?;
            let found = example::find(window, start..end, self);
            // A damaged record may say anything, so this comes before what it says is believed.
            let whole = window.crc32c(start..end)?;
            let expected = window.at(end, 4)?.first_chunk().expect("4 bytes");
            if masked(whole) != u32::from_le_bytes(*expected) {
                table.push(Entry::damaged(at));
            } else {
                let (image, label) = found?;
                // Summed again, not taken apart from the whole's: that takes longer for most records.
                let crc = window.crc32c(image.clone())?;
                table.push(Entry::new(image, label, crc)?);
            }
            at = end + 4;
        }
        Ok(())
    }
}

/// The checksum as it is stored: of data that contain checksums themselves, a plain CRC is a poor one.
fn masked(crc: u32) -> u32 {
    crc.rotate_right(15).wrapping_add(0xa282_ead8)
}

/// The length that a record begins with, where its checksum is right.
fn checked_len(head: &[u8; 12]) -> Option<u64> {
    let (len, crc) = head.split_first_chunk()?;
    (masked(crc32c::crc32c(len)).to_le_bytes() == crc).then(|| u64::from_le_bytes(*len))
}

fn not_a_record(at: u64) -> String {
    let sort = if at == 0 { "the file is no TFRecord, or is damaged" } else { "it is damaged" };
    format!("the length of the record does not match its checksum: {sort}")
}
