//! Manifest of packed shards, a hidden JSON file. An interrupted pack resumes with it, and
//! verification compares the shards with it.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind, Read};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::fields::FieldPlan;
use super::writer::{SKIPPED_KEPT, Written};
use super::{Presize, Settings, Shard, ShardFormat, Skipped, origin, rows};
use feedwater::error::{Error, Result};
use feedwater::internals::file;
use feedwater::source::Source;

/// Name of the manifest file. The file is hidden because some sources read every visible file of a
/// folder.
pub(super) const NAME: &str = ".feedwater-pack.json";

/// Largest manifest that is read, in bytes. Each shard adds about 200 bytes.
const MOST_BYTES: u64 = 256 << 20;

/// Content of the manifest file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Version of the manifest format: 3 if fields are packed, otherwise 2. A manifest of version 1
    /// has no version field. Its shards have no records of their source samples.
    #[serde(default = "first_version")]
    pub version: u32,
    /// Inputs that determine the shards.
    pub made: Made,
    /// Class names in the order of their labels.
    pub classes: Vec<String>,
    /// Finished shards.
    pub shards: Vec<Shard>,
    /// Number of skipped samples.
    pub skipped: u64,
    /// The first skipped samples, at most 1000.
    pub skipped_first: Vec<Skipped>,
    /// Whether all shards of the source are written.
    pub complete: bool,
}

/// Inputs that determine the bytes of the shards.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Made {
    /// Description of the source.
    pub source: String,
    /// Number of samples in the source.
    pub samples: u64,
    /// Format of the shards.
    pub format: ShardFormat,
    /// Prefix of the shard names.
    pub name: String,
    /// Size in bytes at which a shard ends. The sample that reaches this size is the shard's last
    /// one.
    pub shard_bytes: u64,
    /// Size and quality to which larger images are reduced. `None` if images are copied.
    pub presize: Option<Presize>,
    /// Whether unusable samples are skipped.
    pub skip: bool,
    /// The packed fields, and the patterns of their names in the shards: the name of a file such as
    /// `seg.png`, or a name that ends in `.*`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub fields: BTreeMap<String, String>,
}

impl Manifest {
    /// Returns the manifest of a directory, or writes a new one. The caller must hold the lock of
    /// the directory.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::Config`] if the directory was packed from different inputs, or has
    /// shards but no manifest. Fails with [`Error::Io`] if a shard has changed.
    pub(super) fn begin(
        directory: &Path,
        source: &dyn Source,
        settings: &Settings,
        fields: &FieldPlan,
    ) -> Result<Self> {
        remove_leftovers(directory, &settings.name)?;
        let made = Made {
            source: source.describe(),
            samples: source.len(),
            format: settings.format,
            name: settings.name.clone(),
            shard_bytes: settings.shard_bytes,
            presize: settings.presize,
            skip: settings.skip,
            fields: fields.patterns(),
        };
        if let Some(found) = Self::read(directory)? {
            if !settings.overwrite {
                found.check(directory, source, (settings, fields), &made)?;
                return Ok(found);
            }
            found.remove(directory)?;
        } else if let Some(shard) = foreign(directory, settings)? {
            let problem = format!(
                "{} has a shard {shard} but no manifest, so packing cannot resume; name another \
                 directory, or delete the shards",
                directory.display()
            );
            return Err(Error::config("destination", problem));
        }
        let version = if made.fields.is_empty() { FIRST_WITH_RECORDS } else { VERSION };
        let new = Self {
            version,
            made,
            classes: source.classes().to_vec(),
            shards: Vec::new(),
            skipped: 0,
            skipped_first: Vec::new(),
            complete: false,
        };
        // Write the manifest before any shard. Otherwise an interrupted pack could leave shards
        // without a manifest.
        new.write(directory)?;
        Ok(new)
    }

    /// Reads the manifest of a directory, if it has one.
    pub fn read(directory: &Path) -> Result<Option<Self>> {
        let path = directory.join(NAME);
        let mut text = Vec::new();
        let read = file::open_unfollowed(&path);
        let text = match read.and_then(|it| it.take(MOST_BYTES).read_to_end(&mut text)) {
            Ok(_) if text.len() as u64 == MOST_BYTES => {
                let error = std::io::Error::other(format!(
                    "has {MOST_BYTES} bytes or more, which is too long for a manifest"
                ));
                return Err(Error::io(&path, &error));
            }
            Ok(_) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::io(&path, &error)),
        };
        let failed = |problem: String| Error::Io { path: path.clone(), problem, source: None };
        let damaged = |error: serde_json::Error| {
            failed(format!(
                "is damaged ({error}); delete this manifest and the shards beside it, or name \
                 another directory"
            ))
        };
        let Versioned { version } = serde_json::from_slice(&text).map_err(damaged)?;
        if version > VERSION {
            return Err(failed(format!(
                "was written by a newer feedwater (manifest version {version}; this feedwater \
                 reads up to {VERSION}); use the newer feedwater, or name another directory"
            )));
        }
        serde_json::from_slice(&text).map(Some).map_err(damaged)
    }

    /// Replaces the manifest of the directory atomically.
    pub(super) fn write(&self, directory: &Path) -> Result<()> {
        let path = directory.join(NAME);
        let text = serde_json::to_vec_pretty(self)
            .map_err(|error| Error::Internal { problem: error.to_string() })?;
        file::write(&path, text).map_err(|error| Error::io(&path, &error))
    }

    /// Source index of the first sample that is not in a listed shard.
    pub(super) fn end(&self) -> u64 {
        self.shards.last().map_or(0, |shard| shard.end)
    }

    /// Adds a finished shard and its skipped samples to the manifest, and writes the manifest.
    pub(super) fn list(&mut self, directory: &Path, written: Written) -> Result<()> {
        self.skipped += written.skipped;
        self.skipped_first.extend(written.skipped_first);
        self.skipped_first.truncate(SKIPPED_KEPT);
        self.shards.extend(written.shard);
        self.write(directory)
    }

    /// Fails unless a pack of this source with these settings can resume in this directory.
    fn check(
        &self,
        directory: &Path,
        source: &dyn Source,
        (settings, fields): (&Settings, &FieldPlan),
        made: &Made,
    ) -> Result<()> {
        let refused = |what: String| {
            let directory = directory.display();
            Err(Error::config("destination", format!("{directory} {what}; {WAY_OUT}")))
        };
        if self.made != *made {
            return refused(format!(
                "was packed from another source or with other settings ({})",
                difference(&self.made, made)
            ));
        }
        if self.version < FIRST_WITH_RECORDS {
            return refused(
                "was packed by an older feedwater, which did not record the samples of the source, so changes \
                 cannot be detected"
                    .into(),
            );
        }
        if self.classes != source.classes() {
            let names = |classes: &[String], at: usize| match classes.get(at) {
                Some(name) => format!("{name:?}"),
                None => "none".into(),
            };
            let at = self.classes.iter().zip(source.classes()).take_while(|(a, b)| a == b).count();
            let (was, is) = (names(&self.classes, at), names(source.classes(), at));
            return refused(format!(
                "was packed with other class names (class {at} was {was} and is {is} now)"
            ));
        }
        for shard in &self.shards {
            let path = directory.join(&shard.name);
            let problem = match fs::metadata(&path) {
                Ok(metadata) if metadata.len() == shard.bytes => continue,
                Ok(metadata) => {
                    format!("has {} bytes, {} were written", metadata.len(), shard.bytes)
                }
                Err(error) => error.to_string(),
            };
            return Err(Error::Io { path, problem: format!("{problem}; {WAY_OUT}"), source: None });
        }
        let mut ends: Vec<u64> = self.shards.iter().map(|shard| shard.end).collect();
        // If the samples after the last shard were all skipped, there is one more record file for
        // them.
        if self.complete && ends.last().is_none_or(|&end| end < source.len()) {
            ends.push(source.len());
        }
        match origin::difference(source, directory, (settings, fields), &ends)? {
            None => Ok(()),
            Some(changed) => {
                refused(format!("was packed from a source that has changed since: {changed}"))
            }
        }
    }

    /// Deletes all files that the manifest lists, and then the manifest itself.
    fn remove(&self, directory: &Path) -> Result<()> {
        let numbers = 0..=self.shards.len() as u64;
        let beside = numbers.map(|number| origin::path(directory, &self.made.name, number));
        let shards = self.shards.iter().map(|shard| directory.join(&shard.name));
        let rows = shards.clone().map(|shard| rows::path(&shard));
        for path in shards.chain(rows).chain(beside).chain([directory.join(NAME)]) {
            remove(&path)?;
        }
        Ok(())
    }
}

/// End of the error message if packing cannot resume in a directory. It tells users what they can
/// do.
const WAY_OUT: &str =
    "overwrite it (`--overwrite`), which packs everything again, or name another directory";

/// First version that records the samples of the source (`origin.rs`).
const FIRST_WITH_RECORDS: u32 = 2;
/// Current version of the manifest. It is the first version with fields. A manifest without fields
/// has the previous version, so that an older feedwater can read it.
const VERSION: u32 = 3;

/// Fields that the manifests of all versions have. They are read first to check the version.
#[derive(Deserialize)]
struct Versioned {
    #[serde(default = "first_version")]
    version: u32,
}

fn first_version() -> u32 {
    1
}

/// Returns the name of one shard if the directory contains shards. Called if the directory has no
/// manifest.
fn foreign(directory: &Path, settings: &Settings) -> Result<Option<String>> {
    let mut names = names(directory)?;
    names.sort();
    Ok(names.into_iter().find(|it| settings.format.is_shard(&settings.name, it)))
}

/// Deletes the temporary files that killed processes left behind.
pub(super) fn remove_leftovers(directory: &Path, name: &str) -> Result<()> {
    // Prefixes of temporary files: of shards, of the hidden files beside shards, and of the
    // manifest.
    let prefixes = [format!(".{name}-"), format!("..{name}-"), format!(".{NAME}.")];
    let is_leftover =
        |it: &String| it.ends_with(".part") && prefixes.iter().any(|prefix| it.starts_with(prefix));
    names(directory)?
        .iter()
        .filter(|it| is_leftover(it))
        .try_for_each(|name| remove(&directory.join(name)))
}

fn names(directory: &Path) -> Result<Vec<String>> {
    let failed = |error| Error::io(directory, &error);
    let entries = fs::read_dir(directory).map_err(failed)?;
    let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    names.collect::<io::Result<_>>().map_err(failed)
}

fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(Error::io(path, &error)),
        _ => Ok(()),
    }
}

/// Describes the first input that differs between two packs, with both values.
fn difference(found: &Made, wanted: &Made) -> String {
    let words = |made: &Made| {
        let Made { source, samples, format, name, shard_bytes, presize, skip, fields } = made;
        let presize = match presize {
            None => "none".into(),
            Some(Presize { shorter, quality }) => {
                format!("{shorter} pixels of the shorter side, quality {quality}")
            }
        };
        let unusable = if *skip { "on" } else { "off" };
        let fields: Vec<&str> = fields.keys().map(String::as_str).collect();
        let fields = if fields.is_empty() { "none".into() } else { fields.join(", ") };
        [
            ("fields", fields),
            ("format", format.key().into()),
            ("name", format!("{name:?}")),
            ("presize", presize),
            ("samples", samples.to_string()),
            ("shard_bytes", shard_bytes.to_string()),
            ("skip", unusable.into()),
            ("source", source.clone()),
        ]
    };
    let fields = words(found).into_iter().zip(words(wanted));
    let mut differing = fields.filter(|(found, wanted)| found != wanted);
    differing
        .next()
        .map_or(String::new(), |((key, was), (_, is))| format!("{key} was {was} and is now {is}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_words_and_no_json() {
        let made = Made {
            source: "data".into(),
            samples: 3,
            format: ShardFormat::WebDataset,
            name: "train".into(),
            shard_bytes: 256 << 20,
            presize: None,
            skip: false,
            fields: BTreeMap::new(),
        };
        let fields = BTreeMap::from([("b".into(), "b.*".into()), ("a.png".into(), "a.png".into())]);
        let presize = Some(Presize { shorter: 400, quality: 90 });
        for (changed, expected) in [
            (
                Made { presize, ..made.clone() },
                "presize was none and is now 400 pixels of the shorter side, quality 90",
            ),
            (Made { fields, ..made.clone() }, "fields was none and is now a.png, b"),
            (Made { skip: true, ..made.clone() }, "skip was off and is now on"),
            (
                Made { shard_bytes: 1 << 20, ..made.clone() },
                "shard_bytes was 268435456 and is now 1048576",
            ),
            (
                Made { format: ShardFormat::TfRecord, ..made.clone() },
                "format was webdataset and is now tfrecord",
            ),
            (made.clone(), ""),
        ] {
            assert_eq!(difference(&made, &changed), expected);
        }
    }
}
