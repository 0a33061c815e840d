//! What was packed so far: by this a run goes on where the one before ended, and a reader can check the whole.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{Presize, Settings, Shard, ShardFormat, Skipped};
use crate::error::{Error, Result};
use crate::source::Source;

/// Hidden, since some formats take every visible file of a folder for theirs.
pub(super) const NAME: &str = ".feedwater-pack.json";

/// The file's content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// What the shards depend on.
    pub made: Made,
    /// Names of the classes, in the order of their labels.
    pub classes: Vec<String>,
    /// The shards that are there.
    pub shards: Vec<Shard>,
    /// Samples that were left out.
    pub skipped: u64,
    /// The first of those.
    pub skipped_first: Vec<Skipped>,
    /// Whether nothing is missing.
    pub complete: bool,
}

/// Everything that the bytes of the shards depend on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Made {
    /// The source's own words.
    pub source: String,
    /// Samples of the source.
    pub samples: u64,
    /// The shards' format.
    pub format: ShardFormat,
    /// What their names begin with.
    pub name: String,
    /// Bytes after which a shard ends.
    pub shard_bytes: u64,
    /// Whether pictures were made smaller.
    pub presize: Option<Presize>,
    /// Whether samples that cannot be used were left out.
    pub skip: bool,
}

impl Manifest {
    /// That of this directory, or a new one where there is none yet.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] where the directory was made from something else or otherwise, or has shards but no manifest.
    pub fn begin(directory: &Path, source: &dyn Source, settings: &Settings) -> Result<Self> {
        let made = Made {
            source: source.describe(),
            samples: source.len(),
            format: settings.format,
            name: settings.name.clone(),
            shard_bytes: settings.shard_bytes,
            presize: settings.presize,
            skip: settings.skip,
        };
        let Some(found) = Self::read(directory)? else {
            let classes = source.classes().to_vec();
            let (shards, skipped_first) = (Vec::new(), Vec::new());
            return Ok(Self { made, classes, shards, skipped: 0, skipped_first, complete: false });
        };
        if found.made != made {
            let problem = format!(
                "{} was packed from another source or with other settings ({}); name another directory, or delete it",
                directory.display(),
                difference(&found.made, &made),
            );
            return Err(Error::config("destination", problem));
        }
        Ok(found)
    }

    /// That of a directory, if there is one.
    pub fn read(directory: &Path) -> Result<Option<Self>> {
        let path = directory.join(NAME);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::io(&path, &error)),
        };
        let read = serde_json::from_slice(&text);
        read.map(Some).map_err(|error| Error::Io { path, problem: error.to_string() })
    }

    /// Puts it into the directory, all of it or nothing.
    pub fn write(&self, directory: &Path) -> Result<()> {
        let (path, temporary) = (directory.join(NAME), directory.join(format!("{NAME}.part")));
        let text = serde_json::to_vec_pretty(self)
            .map_err(|error| Error::Internal { problem: error.to_string() })?;
        let written = File::create(&temporary).and_then(|mut file| {
            file.write_all(&text)?;
            file.sync_all()?;
            fs::rename(&temporary, &path)
        });
        written.map_err(|error| Error::io(&path, &error))
    }
}

/// The first field that differs, with both values.
fn difference(found: &Made, wanted: &Made) -> String {
    let fields = |made: &Made| match serde_json::to_value(made) {
        Ok(serde_json::Value::Object(fields)) => fields,
        _ => Default::default(),
    };
    let (found, wanted) = (fields(found), fields(wanted));
    let differing = found.iter().find(|(key, value)| wanted.get(*key) != Some(value));
    differing.map_or(String::new(), |(key, value)| {
        format!("{key} was {value}, is {}", wanted.get(key).unwrap_or(&serde_json::Value::Null))
    })
}
