//! Compares packed shards with their manifest.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::fields::{canonical, field_crc};
use super::layout::Patterns;
use super::shard::content_crc;
use super::{Manifest, Shard, ShardFormat};
use feedwater::error::{DataError, Error, Result};
use feedwater::internals::footprint::counted;
use feedwater::source::custom::HostPage;
use feedwater::source::{Source, TfRecord, WebDataset};

/// Reads every sample of a packed directory as a loader does, and compares labels, images and
/// fields with the checksums in the manifest. Writes an index file beside each shard, as loaders
/// do. Calls `progress` after each sample, and returns the number of samples.
///
/// # Errors
///
/// Fails with [`Error::Io`] if a shard is missing, incomplete or different.
pub fn verify(directory: &Path, progress: impl Fn(u64)) -> Result<u64> {
    let Some(manifest) = Manifest::read(directory)? else {
        return problem(directory, "has no manifest, so feedwater pack did not write it".into());
    };
    if !manifest.complete {
        return problem(directory, "is not completely packed; run pack again".into());
    }
    let mut done = 0;
    for shard in &manifest.shards {
        read_back(directory, manifest.made.format, shard, &manifest.made.fields, || {
            done += 1;
            progress(done);
        })?;
    }
    Ok(done)
}

/// Verifies one shard like [`verify`]. The shard need not be in the manifest yet.
///
/// # Errors
///
/// Fails with [`Error::Io`] if the shard is missing, incomplete or different.
pub fn verify_shard(directory: &Path, format: ShardFormat, shard: &Shard) -> Result<()> {
    let fields =
        Manifest::read(directory)?.map_or(Patterns::new(), |manifest| manifest.made.fields);
    read_back(directory, format, shard, &fields, || {})
}

fn read_back(
    directory: &Path,
    format: ShardFormat,
    shard: &Shard,
    fields: &Patterns,
    mut progress: impl FnMut(),
) -> Result<()> {
    let path = directory.join(&shard.name);
    let source = open(format, &path)?;
    if source.len() != shard.samples {
        let found = source.len();
        let found = counted(found, "sample");
        return problem(&path, format!("has {found}, written: {}", shard.samples));
    }
    let (mut crc, mut page, mut buffer) = (0, HostPage::default(), Vec::new());
    for index in 0..source.len() {
        let read = source.read(index, &mut page, u64::MAX);
        if let Err(error) = read {
            return problem(&path, format!("sample {index} cannot be read back: {error}"));
        }
        let unread = |error| format!("the fields of sample {index} cannot be read back: {error}");
        let of_fields = match fields_crc(&*source, index, fields, &mut buffer) {
            Ok(crc) => crc,
            Err(error) => return problem(&path, unread(error)),
        };
        crc = content_crc(crc, source.label(index), page.bytes(), of_fields);
        progress();
    }
    if crc != shard.crc {
        let changed = "has changed since it was packed; delete the directory and pack again";
        return problem(&path, changed.into());
    }
    Ok(())
}

/// Checksum of the fields of a sample. `None` if no fields are packed.
fn fields_crc(
    source: &dyn Source,
    index: u64,
    patterns: &Patterns,
    buffer: &mut Vec<u8>,
) -> Result<Option<u32>, DataError> {
    let Some(fields) = source.fields().filter(|_| !patterns.is_empty()) else { return Ok(None) };
    let names: Vec<&str> = patterns.keys().map(String::as_str).collect();
    let mut found = vec![None; names.len()];
    fields.read_fields(index, &names, buffer, u64::MAX, &mut |number, value| {
        found[number] = Some(crc32c::crc32c(&canonical(value)));
        Ok(())
    })?;
    let found = names.iter().zip(found).filter_map(|(name, crc)| Some((name, crc?)));
    Ok(Some(found.fold(0, |crc, (name, of_value)| field_crc(crc, name, of_value))))
}

fn problem<T>(path: &Path, problem: String) -> Result<T> {
    Err(Error::Io { path: path.into(), problem, source: None })
}

fn open(format: ShardFormat, path: &Path) -> Result<Arc<dyn Source>> {
    let paths: [PathBuf; 1] = [path.into()];
    Ok(match format {
        ShardFormat::WebDataset => Arc::new(WebDataset::open(&paths, &Default::default())?),
        ShardFormat::TfRecord => Arc::new(TfRecord::open(&paths, &Default::default())?),
    })
}
