//! Source for tar archives in WebDataset's format.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::records::{
    CLASSES_NAME, Entries, Entry, FIELDS_NAME, FieldPlace, FieldSink, FileError, Format,
    MOST_CLASSES_BYTES, PackedFields, PackedName, Records, StoredField, Window, changed,
    each_packed, form_kind,
};
use super::{ExclusionReason, Exclusions, Field, FieldKind, exclusion, file_value, label};
use crate::error::{DataError, Reason};
use crate::storage::File;

use tar::Kind;

mod tar;

/// Images in tar archives as written by WebDataset, readable in any order.
///
/// * A path is an archive, a directory (its visible files that end in `.tar`, `.tar.gz` or
///   `.tar.zst`), or a pattern such as `train-*.tar` (`*` and `?` in the last part) or
///   `train-{000..146}.tar` (braces anywhere, as in shells). Samples are ordered by path, then file
///   name, then position in the archive.
/// * The key of a file is its name up to the first dot of the last part. Consecutive files with the
///   same key are one sample. The text after this dot, in lower case, is the extension. The
///   settings name the extensions of image and label. A hard link is read as its target, which must
///   precede the link (GNU tar creates such links). Keys without an image, files without a dot or
///   without a key, and symbolic links are skipped and counted
///   ([`Source::excluded`](super::Notes::excluded)). Files named `__NAME__` are ignored.
/// * All files of a sample are fields, named by their extensions. An archive with hard links has no
///   fields.
/// * The class names ([`Source::classes`](super::Source::classes)) are those that `feedwater pack`
///   stored in the member `__feedwater_classes__`. Other archives have no class names.
/// * The headers are read on first use, and their checksums are verified. The resulting table is
///   stored beside each archive (hidden, ending in `.feedwater1`) or in the cache directory.
///   Afterwards each image takes one read. Tar has no checksums of contents. Damage from before the
///   first use is only detected if the image decoder finds it.
/// * A file may contain several archives in sequence, as `cat a.tar b.tar` writes them. All
///   archives are read, as with `tar -i`. Bytes after the last archive that belong to no archive
///   are counted as skipped. Such bytes between two archives are an error.
/// * Archives compressed with gzip or zstd are decompressed while they are read, in bounded memory.
///   In sample order each archive is decompressed once; several reader threads decompress several
///   archives in parallel. In any other order each read decompresses some additional MiB (in a zstd
///   file with a single frame, everything before the sample). The source's description states the
///   number of compressed files. The first scan decompresses them one additional time and verifies
///   the checksums of gzip and zstd.
/// * Opening fails if an archive is truncated, damaged, or compressed by anything but gzip and
///   zstd, or if its samples have no label. The error contains the byte offset in the decompressed
///   contents. For damaged compressed data, the error also contains the offset in the file.
pub type WebDataset = Records<WebDatasetSettings>;

/// Settings of the source `webdataset`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WebDatasetSettings {
    /// Extensions of the image, separated by semicolons. The first one that a sample has is used.
    /// `*` stands for the first file of a sample, whatever its extension. Default
    /// `jpg;jpeg;png;webp;ppm;pgm;pbm;bmp;gif;tif;tiff`.
    pub image: String,
    /// Extension of the label file, which contains an integer in digits. Empty for no labels (-1).
    /// Default `cls`.
    pub label: String,
    /// Key of the integer label if the label file is a JSON object (`label = "json"`). Empty, the
    /// default, if it is not JSON.
    pub label_key: String,
}

/// Extension in [`WebDatasetSettings::image`] that stands for the first file of a sample.
const ANY: &str = "*";

impl Default for WebDatasetSettings {
    fn default() -> Self {
        Self {
            image: "jpg;jpeg;png;webp;ppm;pgm;pbm;bmp;gif;tif;tiff".into(),
            label: "cls".into(),
            label_key: String::new(),
        }
    }
}

impl Format for WebDatasetSettings {
    const KEY: &'static str = "webdataset";
    const ENDING: &'static str = ".tar";
    const CHECKED: bool = false;
    const IN_ORDER: bool = true;
    const BEFORE: usize = tar::BLOCK as usize;

    fn name(file: &File, offset: u64) -> Option<String> {
        tar::name_before(file, offset)
    }

    /// An archive is recognised by the checksum of the first header, a compressed archive by its
    /// name.
    fn recognises(name: &str, head: &[u8]) -> bool {
        if [".tar.gz", ".tgz", ".tar.zst"].iter().any(|ending| name.ends_with(ending)) {
            return true;
        }
        head.first_chunk().is_some_and(|head| head != &[0; 512] && tar::is_header(head))
    }

    /// The name of a member may look like zlib data. Archives are never compressed with zlib, so
    /// such a file is not compressed.
    fn unpacks(first: &[u8]) -> bool {
        !first.starts_with(b"x")
    }

    /// `feedwater pack` stores the class names in the first member.
    fn classes(&self, window: &mut Window) -> Result<Vec<String>, FileError> {
        let Some(text) = meta(window, CLASSES_NAME)? else { return Ok(Vec::new()) };
        serde_json::from_slice(&text).map_err(|error| {
            FileError::new(0, format!("the names of classes cannot be read: {error}"))
        })
    }

    /// `feedwater pack` stores the names of fields in one of the first two members.
    fn packed_fields(&self, window: &mut Window) -> Result<PackedFields, FileError> {
        let text = meta(window, FIELDS_NAME)?;
        PackedFields::parse(text.as_deref().into_iter())
            .map_err(|problem| FileError::new(0, problem))
    }

    const FIELDS_ARE_FILES: bool = true;

    fn may_be_image(&self, name: &str) -> bool {
        let mut images = self.image.split(';').map(|it| it.trim().to_lowercase());
        images.any(|image| image == name || image == ANY)
    }

    const HAS_KEYS: bool = true;

    fn key_in(name: &str) -> Option<String> {
        let (key, _) = split(name.as_bytes())?;
        str::from_utf8(key).ok().map(Into::into)
    }

    fn key(&self, place: &FieldPlace<'_>) -> Result<Option<String>, DataError> {
        Ok(String::from_utf8(group(place)?.0).ok())
    }

    /// The files of a sample, named by their extensions. They follow each other, before or after
    /// the image.
    fn fields(
        &self,
        place: &FieldPlace<'_>,
        to: &mut FieldSink<'_>,
        buffer: &mut Vec<u8>,
    ) -> Result<(), DataError> {
        let (_, parts) = group(place)?;
        let field = |(name, bytes)| {
            let name: &String = name;
            let (field, form) = field_of(name, place.meaning(name))?;
            Some((field, form, name, bytes))
        };
        let found: Vec<_> =
            parts.iter().map(|(name, bytes)| (name, bytes)).filter_map(field).collect();
        for (field, form, name, bytes) in &found {
            if !to.wants(field, kind(name, *form)) {
                continue;
            }
            if found.iter().filter(|(other, ..)| other == field).count() > 1 {
                let problem = format!("the sample has several files {field:?}");
                return Err(DataError::new(Reason::Corrupt, problem));
            }
            to.read(place, field, (*bytes).clone(), buffer)?;
            match form {
                None => to.put(field, file_value::value(name, buffer))?,
                Some(form) => each_packed(form, buffer, &mut |value| to.put(field, value))?,
            }
        }
        Ok(())
    }

    fn listed(stored: &StoredField, meaning: PackedName<'_>) -> Option<Field> {
        let (field, form) = field_of(&stored.name, meaning)?;
        Some(Field { name: field.into(), kind: kind(&stored.name, form) })
    }

    fn walk(
        &self,
        window: &mut Window,
        table: &mut Entries,
        excluded: &mut Exclusions,
    ) -> Result<(), FileError> {
        window.read_ahead(tar::AHEAD_BYTES);
        // For fields, samples are those of all keys, also without an image or a label.
        let any = Self { image: ANY.into(), label: String::new(), label_key: String::new() };
        let settings = if table.is_for_fields() { &any } else { self };
        let images: Vec<String> =
            settings.image.split(';').map(|it| it.trim().to_lowercase()).collect();
        let wanted = settings.label.to_lowercase();
        let mut members = tar::Members::default();
        let mut group = Group::default();
        while let Some(member) = members.next(window)? {
            let tar::Member { start, offset, name, kind, archive, is_hard_link } = member;
            if is_hard_link {
                table.set_hard_links();
            }
            let text = || String::from_utf8_lossy(&name);
            if let Kind::AfterEnd(bytes) = kind {
                excluded.add(ExclusionReason::AfterEnd, "", bytes, &text());
                continue;
            }
            if is_meta(&name) {
                continue;
            }
            let why = match &kind {
                Kind::File(_) | Kind::AfterEnd(_) => None,
                Kind::LostLink => Some(ExclusionReason::LostLink),
                Kind::SymbolicLink => Some(ExclusionReason::SymbolicLink),
                Kind::Special => Some(ExclusionReason::Special),
            };
            if let Some(why) = why {
                excluded.add(why, "", 1, &text());
            }
            let (Some((key, extension)), Kind::File(data)) = (split(&name), kind) else {
                if why.is_none() {
                    excluded.add(
                        ExclusionReason::NoKey,
                        &exclusion::extension(&text()),
                        1,
                        &text(),
                    );
                }
                continue;
            };
            // In concatenated archives, the first key of an archive may equal the last key of the
            // previous archive. The two keys belong to different samples.
            if key != group.key || archive != group.archive {
                std::mem::take(&mut group).finish(settings, table, excluded)?;
                group = Group { key: key.to_vec(), archive, start, offset, ..Group::default() };
            }
            let twice = || {
                let name = String::from_utf8_lossy(&name);
                FileError::new(offset, format!("the sample already has a file {name:?}"))
            };
            if !extension.is_empty() && !table.has_field(&extension) {
                group.new_fields.push(extension.clone());
            }
            let is_first = group.files == 0;
            group.files += 1;
            group.end = data.bytes.end;
            let rank = images.iter().position(|it| *it == extension || (is_first && it == ANY));
            if let Some(rank) = rank {
                match &group.image {
                    Some((other, ..)) if *other == rank => return Err(twice()),
                    Some((other, ..)) if *other < rank => {}
                    _ => {
                        let name = if table.keeps_names() { name.clone() } else { Vec::new() };
                        group.image = Some((rank, data.clone(), name));
                    }
                }
            }
            if !wanted.is_empty() && extension == wanted {
                let label = self.label_in(window, data.bytes)?;
                if group.label.replace(label).is_some() {
                    return Err(twice());
                }
            } else if group.image.is_none() && group.other.is_empty() {
                group.other = extension;
            }
        }
        group.finish(settings, table, excluded)
    }
}

impl WebDatasetSettings {
    /// Parses the label in a label file.
    fn label_in(&self, window: &mut Window, data: Range<u64>) -> Result<i64, FileError> {
        let len = data.end - data.start;
        if len > Window::BYTES {
            let problem =
                format!("the label has {len} bytes; the maximum is {} bytes", Window::BYTES);
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
            Some(Err(why)) => {
                Err(wrong(format!("the label under {key:?} in the JSON text {:?} {why}", start())))
            }
            None => {
                Err(wrong(format!("no whole number under {key:?} in the JSON text {:?}", start())))
            }
        }
    }
}

/// Files of the current sample that have been read so far.
#[derive(Default)]
struct Group {
    key: Vec<u8>,
    /// Number of the sample's archive in the file.
    archive: u64,
    /// Offset of the first header of the sample's first file, and offset of the last one.
    start: u64,
    offset: u64,
    /// End of the contents of the sample's last file.
    end: u64,
    /// Image of the sample: the position of its extension in the settings, the contents, and the
    /// name if names are stored.
    image: Option<(usize, tar::Data, Vec<u8>)>,
    /// Number of files.
    files: u64,
    label: Option<i64>,
    /// First extension of the sample that is not in the settings.
    other: String,
    /// Extensions that no sample before had.
    new_fields: Vec<String>,
}

impl Group {
    /// Adds the sample to the table. A key without an image is counted as skipped under its first
    /// other extension.
    fn finish(
        self,
        settings: &WebDatasetSettings,
        table: &mut Entries,
        excluded: &mut Exclusions,
    ) -> Result<(), FileError> {
        let Some((_, image, name)) = self.image else {
            if !self.key.is_empty() {
                let kind = if self.other.is_empty() { &settings.label } else { &self.other };
                let name = format!("{}.{kind}", String::from_utf8_lossy(&self.key));
                excluded.add(ExclusionReason::NoImage, kind, 1, &name);
            }
            return Ok(());
        };
        let label = match self.label {
            Some(label) => label,
            None if settings.label.is_empty() => -1,
            None => {
                let key = String::from_utf8_lossy(&self.key).into_owned();
                let problem = format!(
                    "the sample {key:?} has no file {:?}; set source.label to another extension, \
                     or to \"\" for no labels",
                    settings.label
                );
                return Err(FileError::new(self.offset, problem));
            }
        };
        for name in self.new_fields {
            table.add_field(StoredField { name, is_list: false });
        }
        let extent = self.start..self.end;
        table.push_whole(extent, Entry::new(image.bytes, label, image.check)?, &name);
        Ok(())
    }
}

/// Whether a file describes the archive instead of a sample, as in `webdataset.tariterators`.
fn is_meta(name: &[u8]) -> bool {
    let first = name.split(|&byte| byte == b'/').next().unwrap_or(name);
    first.len() >= 4 && first.starts_with(b"__") && first.ends_with(b"__")
}

/// Returns the contents of the member `wanted` that `feedwater pack` has stored among the first two
/// members. `None` if there is none.
fn meta(window: &mut Window, wanted: &str) -> Result<Option<Vec<u8>>, FileError> {
    let mut members = tar::Members::default();
    for _ in 0..2 {
        // A damaged first header is not an error here, because `walk` reports the damage.
        let Ok(Some(tar::Member { name, kind: Kind::File(data), .. })) = members.next(window)
        else {
            return Ok(None);
        };
        if !is_meta(&name) {
            return Ok(None);
        }
        if name != wanted.as_bytes() {
            continue;
        }
        let bytes = data.bytes;
        let len = bytes.end - bytes.start;
        if len > MOST_CLASSES_BYTES as u64 {
            let problem =
                format!("{wanted} has {len} bytes; the maximum is {MOST_CLASSES_BYTES} bytes");
            return Err(FileError::new(bytes.start, problem));
        }
        let (mut text, mut at) = (Vec::new(), bytes.start);
        while at < bytes.end {
            let part = (bytes.end - at).min(Window::BYTES);
            text.extend_from_slice(window.at(at, part)?);
            at += part;
        }
        return Ok(Some(text));
    }
    Ok(None)
}

/// Key of a sample, and the extension and the contents of each of its files.
type Files = (Vec<u8>, Vec<(String, Range<u64>)>);

/// Returns the key and the files of a sample.
fn group(place: &FieldPlace<'_>) -> Result<Files, DataError> {
    let mut window = place.window(tar::AHEAD_BYTES);
    let mut members = tar::Members::from(place.begin);
    let mut sample = None;
    let (mut parts, mut is_found) = (Vec::new(), false);
    // After the last sample, the zeros at the end of the file need not be read.
    while !is_found || members.offset() < place.end && !members.is_at_end(&mut window)? {
        let Some(tar::Member { name, kind, archive, .. }) = members.next(&mut window)? else {
            break;
        };
        let (Some((key, extension)), Kind::File(data)) = (split(&name), kind) else { continue };
        if is_meta(&name) {
            continue;
        }
        let own = Some((key.to_vec(), archive));
        if own != sample {
            if is_found {
                break;
            }
            (parts, sample) = (Vec::new(), own);
        }
        is_found |= data.bytes.start == place.entry.offset;
        if !extension.is_empty() {
            parts.push((extension, data.bytes));
        }
    }
    match sample.filter(|_| is_found) {
        Some((key, _)) => Ok((key, parts)),
        None => Err(changed()),
    }
}

/// Returns the field that a file of a sample is, and the form of its value if `pack` has stored it.
fn field_of<'a>(name: &'a str, meaning: PackedName<'a>) -> Option<(&'a str, Option<&'static str>)> {
    match meaning {
        // The label, or the image, under the name of a packed field.
        PackedName::Natural(field) if field == name => None,
        PackedName::Own | PackedName::Natural(_) => Some((name, None)),
        PackedName::File(field) => Some((field, None)),
        PackedName::Form(field, form) => Some((field, Some(form))),
        PackedName::Hidden => None,
    }
}

/// Kind of the values of a field in files of this name, or in this form of `pack`.
fn kind(name: &str, form: Option<&str>) -> FieldKind {
    form.map_or_else(|| file_value::kind(name), form_kind)
}

/// Splits a name into key and extension like `webdataset.tariterators`.
fn split(name: &[u8]) -> Option<(&[u8], String)> {
    let base = name.iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
    let dot = base + name[base..].iter().position(|&byte| byte == b'.')?;
    let extension = String::from_utf8_lossy(&name[dot + 1..]).to_lowercase();
    (dot > base).then_some((&name[..dot], extension))
}
