//! Whether what was packed is what was written.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::shard::content_crc;
use super::{Manifest, ShardFormat};
use feedwater::error::{Error, Result};
use feedwater::source::{HostPage, Source, TfRecord, WebDataset};

/// Reads every sample of a packed directory back as a loader would, and compares labels and images with the checksums
/// that were made when they were written; makes the index beside each shard on the way. Gives the number of samples;
/// `progress` is told after each.
///
/// # Errors
///
/// [`Error::Io`] where a shard is missing, is not complete, or differs.
pub fn verify(directory: &Path, progress: impl Fn(u64)) -> Result<u64> {
    let problem =
        |path: &Path, problem: String| Err(Error::Io { path: path.into(), problem, source: None });
    let Some(manifest) = Manifest::read(directory)? else {
        return problem(directory, "was not packed: it has no manifest".into());
    };
    if !manifest.complete {
        return problem(directory, "is not packed to its end; run pack again".into());
    }
    let mut page = HostPage::default();
    let mut done = 0;
    for shard in &manifest.shards {
        let path = directory.join(&shard.name);
        let source = open(manifest.made.format, &path)?;
        if source.len() != shard.samples {
            let found = source.len();
            return problem(&path, format!("has {found} samples, {} were written", shard.samples));
        }
        let mut crc = 0;
        for index in 0..source.len() {
            let read = source.read(index, &mut page, u64::MAX);
            if let Err(fault) = read {
                return problem(&path, format!("sample {index} cannot be read back: {fault}"));
            }
            crc = content_crc(crc, source.label(index), page.bytes());
            done += 1;
            progress(done);
        }
        if crc != shard.crc {
            return problem(
                &path,
                "is not what was written; delete the directory, pack again".into(),
            );
        }
    }
    Ok(done)
}

fn open(format: ShardFormat, path: &Path) -> Result<Arc<dyn Source>> {
    let paths: [PathBuf; 1] = [path.into()];
    Ok(match format {
        ShardFormat::WebDataset => Arc::new(WebDataset::open(&paths, &Default::default())?),
        ShardFormat::TfRecord => Arc::new(TfRecord::open(&paths, &Default::default())?),
    })
}
