//! File of samples with its table, which is read from disk or built by scanning the file.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::index;
use super::index::Facts;
use super::{DAMAGED, Entry, Exclusions, Format, Window};
use crate::error::{Error, Result};
use crate::storage::unpacked::{Packing, Unpacker};
use crate::storage::{File, Stamp, Storage};

/// Open file with its table.
pub struct Table {
    pub file: File,
    pub packing: Option<Packing>,
    pub stamp: Stamp,
    pub entries: Box<[Entry]>,
    /// Skipped items, and names of classes.
    pub facts: Facts,
    /// Size of the largest intact sample, in bytes.
    pub largest: u64,
}

impl Table {
    fn new<F: Format>(
        file: File,
        packing: Option<Packing>,
        stamp: Stamp,
        (entries, facts): index::Contents,
    ) -> Self {
        let whole = entries.iter().filter(|entry| entry.len != DAMAGED);
        let bytes = whole.map(|entry| {
            u64::from(entry.len) + F::head(entry.crc).map_or(0, |head| head.bytes().len() as u64)
        });
        let largest = bytes.max().unwrap_or(0);
        Self { file, packing, stamp, entries, facts, largest }
    }
}

/// Opens a file, and reads or builds its table.
pub fn table_of<F: Format>(
    storage: &Storage,
    path: &PathBuf,
    number: usize,
    format: &F,
    unpacker: &Arc<Unpacker>,
) -> Result<Table> {
    let io = |error: io::Error| Error::io(path, &error);
    let file = storage.open_pooled(path).map_err(io)?;
    let stamp = file.stamp().map_err(io)?;
    let settings = serde_json::to_string(format)
        .map_err(|error| Error::config(format!("source.{}", F::KEY), error.to_string()))?;
    let index = |packing: Option<Packing>| {
        let packed = packing.map_or(String::new(), |packing| format!("\n{packing:?}"));
        index::Index::new(storage, path, F::KEY, &format!("{settings}{packed}"))
    };
    let opened = |file: File, packing: Option<Packing>| match packing {
        Some(packing) => (unpacker.open(file, number, packing), Window::UNKNOWN),
        None => (file, stamp.len),
    };
    // A file with a stored table is not read at all here, wherever it is.
    for packing in [None].into_iter().chain(Packing::ALL.map(Some)) {
        let len = if packing.is_some() { Window::UNKNOWN } else { stamp.len };
        if let Some(contents) = index(packing).read(stamp, len) {
            let (file, _) = opened(file, packing);
            return Ok(Table::new::<F>(file, packing, stamp, contents));
        }
    }
    let packing = packing::<F>(&file).map_err(io)?;
    let (file, len) = opened(file, packing);
    let (mut entries, mut excluded) = (Vec::new(), Exclusions::default());
    let classes = format.classes(&mut Window::new(&file, len));
    let mut window = Window::new(&file, len);
    let walked = format.walk(&mut window, &mut entries, &mut excluded);
    let classes = walked.and(classes).map_err(|wrong| {
        let place = format!("source.{}: {}, byte {}", F::KEY, path.display(), wrong.offset);
        Error::config(place, wrong.problem)
    })?;
    if file.stamp().map_err(io)? != stamp {
        let problem = "was changed while it was indexed; wait until it is written";
        return Err(io(io::Error::other(problem)));
    }
    let facts = Facts { excluded: excluded.into_list(), classes };
    let contents = (entries.into_boxed_slice(), facts);
    index(packing).write(stamp, &contents);
    Ok(Table::new::<F>(file, packing, stamp, contents))
}

/// Compression of the file, if any and supported by the format.
fn packing<F: Format>(file: &File) -> io::Result<Option<Packing>> {
    let mut first = [0; 512];
    let len = file.read_at(&mut first, 0)?;
    Ok(Packing::of(&first[..len]).filter(|_| F::unpacks(&first[..len])))
}
