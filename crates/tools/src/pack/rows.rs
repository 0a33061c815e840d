//! Builds the row indexes of JPEGs, and stores them in a file beside a shard.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use feedwater::error::{Error, Result};
use feedwater::internals::decode::{
    Decoders, Fingerprint, ROWS_ENDING, RowIndexOutcome, RowIndexTask, begin_row_indexes,
    is_indexable, write_row_index,
};
use feedwater::internals::file::AtomicFile;
use feedwater::internals::geometry::Roi;
use feedwater::internals::header::Header;

/// Builds row indexes. Each thread has its own indexer.
#[derive(Default)]
pub(super) struct RowIndexer {
    decoders: Decoders,
}

impl RowIndexer {
    /// Builds the row index of a JPEG. Returns `None` if the JPEG is damaged, or if feedwater's own
    /// JPEG decoder does not support it.
    pub fn make(&mut self, file: &[u8]) -> Option<Vec<u8>> {
        let header = Header::parse(file).ok().filter(is_indexable)?;
        let fingerprint = Fingerprint::of(file, Fingerprint::seed_of(file));
        self.decoders.set_row_index(RowIndexTask::Make(fingerprint));
        // Decode a window of one pixel. The decoder then parses the whole JPEG, but computes almost
        // no pixels.
        let pixel = Roi::new(0, 0, 1, 1);
        self.decoders.decode(file, &header, pixel, 1, &mut |_| {}).ok()?;
        match self.decoders.row_index() {
            RowIndexOutcome::Made(_, index) => Some(index.to_vec()),
            _ => None,
        }
    }
}

/// Path of the row index file that belongs to a shard.
pub(super) fn path(shard: &Path) -> PathBuf {
    let mut path = shard.to_owned().into_os_string();
    path.push(ROWS_ENDING);
    path.into()
}

/// Stores the row indexes of a shard in the file beside it. If `indexes` is empty, removes this
/// file.
pub(super) fn write(shard: &Path, indexes: &[Vec<u8>]) -> Result<()> {
    let path = path(shard);
    let failed = |error| Error::io(&path, &error);
    if indexes.is_empty() {
        return match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(failed(error)),
            _ => Ok(()),
        };
    }
    let mut file = AtomicFile::create(&path).map_err(failed)?;
    begin_row_indexes(&mut file).map_err(failed)?;
    indexes.iter().try_for_each(|index| write_row_index(&mut file, index)).map_err(failed)?;
    file.commit().map_err(failed)
}
