//! Records the samples of the source. With the records, a resumed pack detects that the source has
//! changed.
//!
//! Beside each shard, a hidden file contains one line of JSON for each sample of the source,
//! including skipped samples. A sample counts as unchanged if its location, label and version are
//! unchanged. If the version has changed, or if the source has no version for the sample, the bytes
//! are compared. Fields are always compared, unless the version covers them. [`Settings::verify`]
//! compares the bytes of all samples.

use std::io::{BufRead, BufReader};
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use super::Settings;
use super::fields::FieldPlan;
use super::layout::SampleFields;
use feedwater::error::{DataError, Error, Result};
use feedwater::internals::file;
use feedwater::internals::threads::in_parts;
use feedwater::plan::Limits;
use feedwater::source::Source;
use feedwater::source::custom::HostPage;

/// Record of a source sample at the time of packing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Origin {
    pub location: String,
    pub label: i64,
    /// Result of [`Source::version`] just before the sample was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    content: Content,
    /// Fields as they are packed, if they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fields: Option<Content>,
}

/// Image or fields of a sample at the time of packing, or the reason why they could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Content {
    /// Number of bytes and their CRC-32C.
    Read { bytes: u64, crc: u32 },
    /// Name of the reason why the sample could not be read.
    Error(String),
}

impl Origin {
    /// Reads a sample into `page`. Returns its record, and the error if it could not be read.
    pub fn read(
        source: &dyn Source,
        index: u64,
        page: &mut HostPage,
        limit: u64,
    ) -> (Self, Result<(), DataError>) {
        // Get the version before the bytes. If the file changes in between, its next version
        // differs from the recorded one, and the change is detected.
        let version = source.version(index);
        let read = source.read(index, page, limit);
        let content = match &read {
            Ok(()) => {
                let bytes = page.bytes();
                Content::Read { bytes: bytes.len() as u64, crc: crc32c::crc32c(bytes) }
            }
            Err(error) => Content::Error(error.reason.name().into()),
        };
        let (location, label) = (source.location(index), source.label(index));
        (Self { location, label, version, content, fields: None }, read)
    }

    /// Reads the fields of the sample, and records them.
    pub fn read_fields(
        &mut self,
        source: &dyn Source,
        plan: &FieldPlan,
        index: u64,
        limits: &Limits,
        buffer: &mut Vec<u8>,
    ) -> Result<SampleFields, DataError> {
        let Content::Read { bytes, crc } = self.content else {
            return Ok(SampleFields::default());
        };
        let read = plan.read(source, index, (bytes, crc), limits, buffer);
        self.fields = match &read {
            Ok(SampleFields { stored, crc }) => crc.map(|crc| Content::Read {
                bytes: stored.iter().map(|field| field.bytes.len() as u64).sum(),
                crc,
            }),
            Err(error) => Some(Content::Error(error.reason.name().into())),
        };
        read
    }

    /// Describes how the sample has changed since it was packed. Returns `None` if it has not
    /// changed.
    fn changed(
        &self,
        source: &dyn Source,
        index: u64,
        (page, buffer): (&mut HostPage, &mut Vec<u8>),
        settings: &Settings,
        plan: &FieldPlan,
    ) -> Option<String> {
        let (location, label) = (source.location(index), source.label(index));
        if self.location != location {
            return Some(format!(
                "sample {index} was at {} and is at {location} now",
                self.location
            ));
        }
        if self.label != label {
            let was = self.label;
            return Some(format!(
                "sample {index} ({location}) had the label {was} and has the label {label} now"
            ));
        }
        let has_version = self.version.is_some() && self.version == source.version(index);
        let is_known = has_version && !settings.verify;
        if !is_known {
            let (now, _) = Self::read(source, index, page, settings.limits.max_file_bytes);
            if now.content != self.content {
                return Some(format!(
                    "the content of sample {index} ({location}) was {} and is {} now",
                    self.words(&self.content),
                    now.words(&now.content)
                ));
            }
        }
        // A field that is the image is recognised by the content of the image.
        let mut now = self.clone();
        if !is_known || plan.needs_comparison() {
            let _ = now.read_fields(source, plan, index, &settings.limits, buffer);
        }
        match (&self.fields, &now.fields) {
            (Some(was), Some(is)) if was != is => Some(format!(
                "the fields of sample {index} ({location}) were {} and are {} now",
                self.words(was),
                self.words(is)
            )),
            _ => None,
        }
    }

    fn words(&self, content: &Content) -> String {
        match (content, &self.version) {
            (Content::Error(reason), _) => reason.clone(),
            (Content::Read { bytes, crc }, None) => format!("{bytes} bytes with CRC {crc:08x}"),
            (Content::Read { bytes, crc }, Some(version)) => {
                format!("{bytes} bytes with CRC {crc:08x} ({version})")
            }
        }
    }
}

/// Path of the hidden record file that belongs to shard `number`.
pub(super) fn path(directory: &Path, name: &str, number: u64) -> PathBuf {
    directory.join(format!(".{name}-{number:06}.source.jsonl"))
}

/// Writes the record file of shard `number`.
pub(super) fn write(directory: &Path, name: &str, number: u64, origins: &[Origin]) -> Result<()> {
    let path = path(directory, name, number);
    let mut text = Vec::new();
    for origin in origins {
        serde_json::to_writer(&mut text, origin)
            .map_err(|error| Error::Internal { problem: error.to_string() })?;
        text.push(b'\n');
    }
    file::write(&path, text).map_err(|error| Error::io(&path, &error))
}

/// Finds the first sample of the source that has changed since packing, and describes the change.
/// For each record file, `ends` contains the source index of the first sample after the file's last
/// sample.
///
/// # Errors
///
/// Fails with [`Error::Io`] if a record file cannot be read.
pub(super) fn difference(
    source: &dyn Source,
    directory: &Path,
    (settings, plan): (&Settings, &FieldPlan),
    ends: &[u64],
) -> Result<Option<String>> {
    let next = AtomicU64::new(0);
    let found = Mutex::new(Ok(None::<(u64, String)>));
    let work = || {
        let (mut page, mut buffer) = (HostPage::default(), Vec::new());
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(&end) = ends.get(number as usize) else { return };
            let begin = number.checked_sub(1).map_or(0, |before| ends[before as usize]);
            let path = path(directory, &settings.name, number);
            let first = first_changed(
                source,
                &path,
                begin..end,
                (&mut page, &mut buffer),
                (settings, plan),
            );
            let mut found = found.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            match (&*found, first) {
                (_, Ok(None)) => continue,
                (Ok(None), first) => *found = first,
                (Ok(Some((before, _))), Ok(Some(first))) if first.0 < *before => {
                    *found = Ok(Some(first));
                }
                _ => {}
            }
            // Only the first change is reported, so later shards need no check. Earlier shards are
            // still checked by other threads.
            return;
        }
    };
    for part in in_parts(settings.threads.clamp(1, ends.len().max(1)), |_| work()) {
        part.unwrap_or_else(|panic| resume_unwind(panic));
    }
    let found = found.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner())?;
    Ok(found.map(|(_, difference)| difference))
}

/// Finds the first changed sample of one shard and describes the change.
fn first_changed(
    source: &dyn Source,
    path: &Path,
    samples: std::ops::Range<u64>,
    (page, buffer): (&mut HostPage, &mut Vec<u8>),
    (settings, plan): (&Settings, &FieldPlan),
) -> Result<Option<(u64, String)>> {
    let failed = |problem: String| Error::Io { path: path.into(), problem, source: None };
    let file = file::open_unfollowed(path).map_err(|error| Error::io(path, &error))?;
    let mut lines = BufReader::new(file).lines();
    for index in samples {
        let line = lines.next().ok_or_else(|| failed("ends too early".into()))?;
        let line = line.map_err(|error| Error::io(path, &error))?;
        let origin: Origin = serde_json::from_str(&line)
            .map_err(|error| failed(format!("was not written by pack: {error}")))?;
        if let Some(difference) = origin.changed(source, index, (page, buffer), settings, plan) {
            return Ok(Some((index, difference)));
        }
    }
    Ok(None)
}
