//! Tar archives in the form of WebDataset.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::records::{Entry, Format, Records, Window, FileError};
use super::{LeftOuts, WhyLeftOut, label, left_out};

use tar::Kind;

mod tar;

/// Images in tar archives, as WebDataset writes them, in any order.
///
/// * A path is an archive, a directory (its visible files that end in `.tar`, `.tar.gz` or `.tar.zst`), or a pattern such
///   as `train-*.tar` (`*` and `?` in the last part) or `train-{000..146}.tar` (braces anywhere, as in shells). The
///   samples are in the order of the paths, of the names, and of the members.
/// * Files that follow one another and whose names are equal up to the first dot of the last part are one sample; what
///   follows that dot, in lower case, is a file's extension. The settings name the image's extension and the label's.
///   Hard links are the files that they lead to, which must be before them (GNU tar makes them by itself). Keys without an
///   image, files without a dot, or with nothing before it, and symbolic links are left out and counted
///   ([`Source::left_out`](super::Notes::left_out)); what `__NAME__` leads to is not seen.
/// * The headers are read on first use and their checksums verified; the table is kept beside each archive (a hidden
///   file that ends in `.feedwater1`) or in the cache's directory. An image is then one read. Tar has no checksums of
///   contents: what was damaged before the archive was indexed is left to the image's own format.
/// * Archives that gzip or zstd compressed are unpacked while they are read, to the bytes of the archive and in bounded
///   memory. In the order of the samples each is unpacked once, and several at a time where several threads read; in any
///   other order a read unpacks some MiB besides (of a zstd file of one frame, all that comes before it): the
///   description of the source says so. On first use they are unpacked once more, and the checksums of gzip and zstd are
///   verified.
/// * An archive that is cut, damaged, compressed in another way, or whose samples have no label, is an error with the
///   byte (of a compressed one, in what it holds; where it is damaged itself, also in it).
pub type WebDataset = Records<WebDatasetSettings>;

/// The files of a sample that are read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WebDatasetSettings {
    /// Extensions of the image, with semicolons; the first of them that a sample has counts. Default
    /// `jpg;jpeg;png;webp;ppm;pgm`.
    pub image: String,
    /// Extension of the label, an integer in digits; empty where samples have none, which is label -1. Default `cls`.
    pub label: String,
    /// Where the label's file is a JSON object (`label = "json"`), the key of the integer in it. Default empty: it is no
    /// JSON.
    pub label_key: String,
}

impl Default for WebDatasetSettings {
    fn default() -> Self {
        Self { image: "jpg;jpeg;png;webp;ppm;pgm".into(), label: "cls".into(), label_key: String::new() }
    }
}

impl Format for WebDatasetSettings {
    const KEY: &'static str = "webdataset";
    const ENDING: &'static str = ".tar";
    const CHECKED: bool = false;

    /// By the checksum of the first header, or, where it is compressed, by its name.
    fn recognises(name: &str, head: &[u8]) -> bool {
        if [".tar.gz", ".tgz", ".tar.zst"].iter().any(|ending| name.ends_with(ending)) {
            return true;
        }
        head.first_chunk().is_some_and(|head| head != &[0; 512] && tar::is_header(head))
    }

    /// A member's name may begin as zlib data do, which nobody packs archives into.
    fn unpacks(first: &[u8]) -> bool {
        !first.starts_with(b"x")
    }

    fn walk(
        &self,
        window: &mut Window,
        table: &mut Vec<Entry>,
        left_out: &mut LeftOuts,
    ) -> Result<(), FileError> {
        window.read_ahead(tar::AHEAD_BYTES);
        let images: Vec<String> =
            self.image.split(';').map(|it| it.trim().to_lowercase()).collect();
        let wanted = self.label.to_lowercase();
        let mut members = tar::Members::default();
        let mut group = Group::default();
        while let Some(tar::Member { offset, name, kind }) = members.next(window)? {
            if is_meta(&name) {
                continue;
            }
            let text = || String::from_utf8_lossy(&name);
            let why = match &kind {
                Kind::File(_) => None,
                Kind::LostLink => Some(WhyLeftOut::LostLink),
                Kind::SymbolicLink => Some(WhyLeftOut::SymbolicLink),
                Kind::Special => Some(WhyLeftOut::Special),
            };
            if let Some(why) = why {
                left_out.add(why, "", 1, &text());
            }
            let (Some((key, extension)), Kind::File(data)) = (split(&name), kind) else {
                if why.is_none() {
                    left_out.add(WhyLeftOut::NoKey, &left_out::extension(&text()), 1, &text());
                }
                continue;
            };
            if key != group.key {
                std::mem::take(&mut group).finish(self, table, left_out)?;
                group = Group { key: key.to_vec(), offset, ..Group::default() };
            }
            let twice = || {
                let name = String::from_utf8_lossy(&name);
                FileError::new(offset, format!("the sample has a file {name:?} already"))
            };
            if let Some(rank) = images.iter().position(|it| *it == extension) {
                match &group.image {
                    Some((other, _)) if *other == rank => return Err(twice()),
                    Some((other, _)) if *other < rank => {}
                    _ => group.image = Some((rank, data.clone())),
                }
            }
            if !wanted.is_empty() && extension == wanted {
                let label = self.label_in(window, data)?;
                if group.label.replace(label).is_some() {
                    return Err(twice());
                }
            } else if group.image.is_none() && group.other.is_empty() {
                group.other = extension;
            }
        }
        group.finish(self, table, left_out)
    }
}

impl WebDatasetSettings {
    /// The label that a file says.
    fn label_in(&self, window: &mut Window, data: Range<u64>) -> Result<i64, FileError> {
        let len = data.end - data.start;
        if len > Window::BYTES {
            let problem = format!("a label of {len} bytes, at most {} are read", Window::BYTES);
            return Err(FileError::new(data.start, problem));
        }
        let bytes = window.at(data.start, len)?;
        let start = || String::from_utf8_lossy(&bytes[..bytes.len().min(60)]).into_owned();
        let wrong = |problem| FileError::new(data.start, problem);
        if self.label_key.is_empty() {
            return match str::from_utf8(bytes).ok().and_then(label::number) {
                Some(Ok(label)) => Ok(label),
                Some(Err(why)) => Err(wrong(format!("the label {:?} {why}", start()))),
                None => Err(wrong(format!("the label must be a whole number, is {:?}", start()))),
            };
        }
        let json: Option<serde_json::Value> = serde_json::from_slice(bytes).ok();
        let label = match json.as_ref().and_then(|json| json.get(&self.label_key)) {
            Some(Value::Number(number)) => Some(label::of_json(number)),
            Some(Value::String(text)) => label::number(text),
            _ => None,
        };
        let key = &self.label_key;
        match label {
            Some(Ok(label)) => Ok(label),
            Some(Err(why)) => Err(wrong(format!("the label under {key:?} in {:?} {why}", start()))),
            None => Err(wrong(format!("no whole number under {key:?} in the JSON text {:?}", start()))),
        }
    }
}

/// The files of one sample, as far as they were met.
#[derive(Default)]
struct Group {
    key: Vec<u8>,
    /// Of its first file.
    offset: u64,
    /// Place of the extension in the settings, and the bytes.
    image: Option<(usize, Range<u64>)>,
    label: Option<i64>,
    /// The first extension that is none of the settings'.
    other: String,
}

impl Group {
    /// Adds the sample to the table, or counts a key without an image by the first extension that it has instead.
    fn finish(
        self,
        settings: &WebDatasetSettings,
        table: &mut Vec<Entry>,
        left_out: &mut LeftOuts,
    ) -> Result<(), FileError> {
        let Some((_, image)) = self.image else {
            if !self.key.is_empty() {
                let kind = if self.other.is_empty() { &settings.label } else { &self.other };
                let name = format!("{}.{kind}", String::from_utf8_lossy(&self.key));
                left_out.add(WhyLeftOut::NoImage, kind, 1, &name);
            }
            return Ok(());
        };
        let label = match self.label {
            Some(label) => label,
            None if settings.label.is_empty() => -1,
            None => {
                let key = String::from_utf8_lossy(&self.key).into_owned();
                let problem = format!(
                    "the sample {key:?} has no file {:?}; name another extension as source.label or none (\"\")",
                    settings.label
                );
                return Err(FileError::new(self.offset, problem));
            }
        };
        table.push(Entry::new(image, label, 0)?);
        Ok(())
    }
}

/// Whether a file is about the archive and not of a sample, as `webdataset.tariterators` has it.
fn is_meta(name: &[u8]) -> bool {
    let first = name.split(|&byte| byte == b'/').next().unwrap_or(name);
    first.len() >= 4 && first.starts_with(b"__") && first.ends_with(b"__")
}

/// Key and extension, as `webdataset.tariterators` splits names.
fn split(name: &[u8]) -> Option<(&[u8], String)> {
    let base = name.iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
    let dot = base + name[base..].iter().position(|&byte| byte == b'.')?;
    let extension = String::from_utf8_lossy(&name[dot + 1..]).to_lowercase();
    (dot > base).then_some((&name[..dot], extension))
}
