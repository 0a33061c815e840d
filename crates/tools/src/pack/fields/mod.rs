//! Fields of samples: which ones are packed, under which names, and their values.
//!
//! * Each field has a pattern, which every shard contains ([`FIELDS_NAME`]): the name of its files,
//!   or a name that ends in `.*`. The source that reads the shard finds the field by its pattern.
//! * The values of files are stored byte for byte. Other values are stored in the form that fits
//!   them (`value.rs`), so that columns of the packed set equal those of the source.
//! * A field that a sample lacks is not stored for this sample. So it is missing in the shard, too.
//!
//! [`FIELDS_NAME`]: feedwater::internals::source::records::FIELDS_NAME

use serde::{Deserialize, Serialize};

use feedwater::error::{DataError, Error, Reason, Result};
use feedwater::plan::Limits;
use feedwater::source::{FieldValue, Source};

use super::Settings;
use super::layout::{LABEL_FILE, Patterns, SampleFields, ShardFormat, StoredField};

pub(super) use value::canonical;

mod json;
mod names;
mod npy;
mod value;

/// Choice of the fields that are packed besides images and labels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FieldChoice {
    /// All fields of the source.
    #[default]
    All,
    /// No fields.
    None,
    /// The fields with these names.
    Named(Vec<String>),
}

/// Fields that a pack stores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChosenFields {
    /// Names in the order of the alphabet.
    pub names: Vec<String>,
    /// Warnings for users about these fields.
    pub warnings: Vec<String>,
}

/// Returns the fields that a pack with these settings stores. For some sources, this reads the
/// names of the fields of all samples.
///
/// # Errors
///
/// Fails with [`Error::Config`] if the source lacks a named field, if its fields cannot be read, or
/// if they do not match images that are made smaller.
pub fn chosen_fields(source: &dyn Source, settings: &Settings) -> Result<ChosenFields> {
    let plan = FieldPlan::new(source, settings)?;
    let names: Vec<String> = plan.fields.iter().map(|field| field.name.clone()).collect();
    let mut warnings = Vec::new();
    let changed = plan.fields.iter().filter(|it| !it.may_be_image && it.name != LABEL_FILE);
    let changed: Vec<&str> = changed.map(|field| &field.name[..]).collect();
    if settings.presize.is_some() && !changed.is_empty() {
        warnings.push(format!(
            "these fields are stored unchanged, although --shorter makes images smaller: {}; boxes, \
             points, masks and sizes in pixels do not match the smaller images; name the other \
             fields with --fields",
            changed.join(", ")
        ));
    }
    Ok(ChosenFields { names, warnings })
}

/// The fields of a pack.
pub(super) struct FieldPlan {
    format: ShardFormat,
    /// In the order of their names.
    fields: Vec<PlannedField>,
    /// Whether the version of a sample covers its fields.
    has_versions: bool,
}

struct PlannedField {
    name: String,
    /// Pattern without `.*`.
    base: String,
    /// Whether values are files with the name `base`.
    is_file: bool,
    /// Whether the field may be the image itself, which is not stored twice.
    may_be_image: bool,
}

/// Longest name of a field in bytes.
const MOST_NAME_BYTES: usize = 1000;

/// Fields of `coco` in pixels of the original image.
const IN_PIXELS: [&str; 6] = ["areas", "boxes", "height", "keypoints", "segmentations", "width"];

impl FieldPlan {
    /// Plans the fields of a source.
    ///
    /// # Errors
    ///
    /// The errors of [`chosen_fields`].
    pub fn new(source: &dyn Source, settings: &Settings) -> Result<Self> {
        let names = chosen(source, &settings.fields)?;
        if let Some(name) = names.iter().find(|name| name.len() > MOST_NAME_BYTES) {
            let problem = format!(
                "the name of the field {:?}… has {} bytes; packed fields have names of at most \
                 {MOST_NAME_BYTES} bytes; leave it out",
                name.chars().take(40).collect::<String>(),
                name.len()
            );
            return Err(Error::config("fields", problem));
        }
        let in_pixels = |name: &&String| IN_PIXELS.contains(&name.as_str());
        if settings.presize.is_some()
            && source.annotations().is_some()
            && names.iter().any(|name| in_pixels(&name))
        {
            let list = |wanted: bool| -> String {
                let names = names.iter().filter(|name| in_pixels(name) == wanted);
                names.map(String::as_str).collect::<Vec<_>>().join(",")
            };
            let rest = list(false);
            let problem = format!(
                "{} are in pixels of the original images, and --shorter makes images smaller; leave \
                 these fields out (`--fields {}`), or pack without --shorter",
                list(true).replace(',', ", "),
                if rest.is_empty() { "none" } else { &rest }
            );
            return Err(Error::config("fields", problem));
        }
        let Some(fields) = source.fields().filter(|_| !names.is_empty()) else {
            return Ok(Self { format: settings.format, fields: Vec::new(), has_versions: true });
        };
        let wanted: Vec<&str> = names.iter().map(String::as_str).collect();
        fields.prepare(&wanted)?;
        let files: Vec<_> = names.iter().map(|name| fields.file_name(name)).collect();
        let bases = names::bases(settings.format, &names, &files);
        let planned = names.into_iter().zip(bases).map(|(name, (base, is_file))| {
            let may_be_image = fields.may_be_image(&name);
            PlannedField { name, base, is_file, may_be_image }
        });
        Ok(Self {
            format: settings.format,
            fields: planned.collect(),
            has_versions: fields.has_versions(),
        })
    }

    /// Returns the patterns that each shard contains.
    pub fn patterns(&self) -> Patterns {
        let pattern = |field: &PlannedField| match field.is_file {
            true => field.base.clone(),
            false => format!("{}.*", field.base),
        };
        self.fields.iter().map(|field| (field.name.clone(), pattern(field))).collect()
    }

    /// Whether fields are packed whose changes do not change the version of their sample.
    pub fn needs_comparison(&self) -> bool {
        !self.fields.is_empty() && !self.has_versions
    }

    /// Reads the fields of a sample. `image` is the length of the image in bytes and its CRC-32C.
    /// `buffer` is memory that later calls reuse.
    ///
    /// # Errors
    ///
    /// A [`DataError`] if a field cannot be read or stored.
    pub fn read(
        &self,
        source: &dyn Source,
        index: u64,
        image: (u64, u32),
        limits: &Limits,
        buffer: &mut Vec<u8>,
    ) -> Result<SampleFields, DataError> {
        let Some(fields) = source.fields().filter(|_| !self.fields.is_empty()) else {
            return Ok(SampleFields::default());
        };
        let mut found: Vec<Option<(StoredField, u32)>> = vec![None; self.fields.len()];
        // A field that may be the image may be as long as an image.
        let image_limit = limits.max_file_bytes.max(limits.max_field_bytes);
        for (is_image, limit) in [(false, limits.max_field_bytes), (true, image_limit)] {
            let numbers: Vec<usize> = (0..self.fields.len())
                .filter(|&number| self.fields[number].may_be_image == is_image)
                .collect();
            let wanted: Vec<&str> = numbers.iter().map(|&it| &self.fields[it].name[..]).collect();
            if wanted.is_empty() {
                continue;
            }
            let read = fields.read_fields(index, &wanted, buffer, limit, &mut |place, value| {
                let Some(&number) = numbers.get(place) else { return Ok(()) };
                let field = &self.fields[number];
                if field.may_be_image && is_same(value, image) {
                    return Ok(());
                }
                found[number] = self.store(field, value, limits.max_field_bytes)?;
                Ok(())
            });
            read.map_err(|error| match error.reason {
                Reason::Oversized => {
                    let problem = format!("{}, or leave fields out (`--fields`)", error.problem);
                    DataError::new(Reason::Oversized, problem)
                }
                _ => error,
            })?;
        }
        let mut crc = 0;
        for (field, found) in self.fields.iter().zip(&found) {
            if let Some((_, of_value)) = found {
                crc = field_crc(crc, &field.name, *of_value);
            }
        }
        let stored = found.into_iter().flatten().map(|(stored, _)| stored).collect();
        Ok(SampleFields { stored, crc: Some(crc) })
    }

    /// Converts a value to its form in the shard. Returns it with the checksum of its value.
    /// `None` if the value is missing.
    fn store(
        &self,
        field: &PlannedField,
        value: FieldValue<'_>,
        limit: u64,
    ) -> Result<Option<(StoredField, u32)>, DataError> {
        let PlannedField { name, base, is_file, .. } = field;
        let about = |error: DataError| {
            DataError::new(error.reason, format!("the field {name:?}: {}", error.problem))
        };
        let encoded = match is_file {
            true => value::file(base, value),
            false => value::encode(self.format, value),
        };
        let Some(value::Encoded { form, content }) = encoded.map_err(about)? else {
            return Ok(None);
        };
        let crc = crc32c::crc32c(&content.canonical());
        let name = match form {
            Some(form) => format!("{base}.{form}"),
            None => base.clone(),
        };
        let memory = content.memory_bytes();
        let bytes = match self.format {
            ShardFormat::WebDataset => content.into_file(),
            ShardFormat::TfRecord => content.feature(),
        };
        let len = memory.max(bytes.len() as u64);
        if len > limit {
            let problem = format!(
                "the field {:?} has {len} bytes when it is packed; limits.max_field_bytes is \
                 {limit}; raise it",
                field.name
            );
            return Err(DataError::new(Reason::Oversized, problem));
        }
        Ok(Some((StoredField { name, bytes }, crc)))
    }
}

/// Extends the checksum `before` of the fields of a sample by one field.
pub(super) fn field_crc(before: u32, name: &str, of_value: u32) -> u32 {
    let len = (name.len() as u64).to_le_bytes();
    [&len[..], name.as_bytes(), &of_value.to_le_bytes()]
        .into_iter()
        .fold(before, crc32c::crc32c_append)
}

/// Names of the chosen fields, sorted.
fn chosen(source: &dyn Source, choice: &FieldChoice) -> Result<Vec<String>> {
    let fields = source.fields();
    let complete = || fields.map_or(Ok(Vec::new()), |fields| fields.complete_schema());
    let mut names: Vec<String> = match choice {
        FieldChoice::None => Vec::new(),
        FieldChoice::All => complete()
            .map_err(|error| match error {
                Error::Config(error) => Error::config(
                    error.key,
                    format!("{}, or pack without fields (`--fields none`)", error.problem),
                ),
                error => error,
            })?
            .into_iter()
            .map(|it| it.name)
            .collect(),
        FieldChoice::Named(named) => {
            let listed = source.schema();
            let mut all: Option<Vec<String>> = None;
            for name in named {
                if listed.iter().any(|field| field.name == *name) {
                    continue;
                }
                if all.is_none() {
                    all = Some(complete()?.into_iter().map(|field| field.name).collect());
                }
                let all = all.as_deref().unwrap_or_default();
                if !all.contains(name) {
                    return Err(Error::config("fields", lacks(name, all)));
                }
            }
            named.clone()
        }
    };
    // No column can name a field without a name, such as the index that pandas writes.
    names.retain(|name| !name.is_empty());
    names.sort();
    names.dedup();
    Ok(names)
}

fn lacks(name: &str, all: &[String]) -> String {
    let shown: Vec<&str> = all.iter().take(32).map(String::as_str).collect();
    match shown.is_empty() {
        true => format!("names {name:?}, but the source has no fields"),
        false => {
            let more = if all.len() > shown.len() { ", …" } else { "" };
            format!(
                "names {name:?}, which the source lacks; its fields are {}{more}",
                shown.join(", ")
            )
        }
    }
}

/// Whether a value is the image.
fn is_same(value: FieldValue<'_>, (len, crc): (u64, u32)) -> bool {
    let bytes = match value {
        FieldValue::Bytes(bytes) | FieldValue::Npy(bytes) | FieldValue::Npz(bytes) => bytes,
        FieldValue::Text(text) => text.as_bytes(),
        _ => return false,
    };
    bytes.len() as u64 == len && crc32c::crc32c(bytes) == crc
}
