//! Opens files that contain many samples each.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use super::classes::OfFiles;
use super::table::{Opened, Table, Unopened, table_of};
use super::{Exclusions, Format, Records, Shard, expand, of_each};
use crate::error::{Error, Result};
use crate::footprint::counted;
use crate::source::bad_shards::BadShardList;
use crate::source::exclusion::none_but;
use crate::source::{BadShards, Configured};
use crate::storage::unpacked::{Limits, Unpacker};
use crate::storage::{Storage, opening};

impl<F: Format> Records<F> {
    /// Opens files, and scans those without a stored table. A path is a file, a directory (its
    /// visible files with the format's extension), or a pattern (`*` and `?` in the last part).
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if a file cannot be read. [`Error::Config`] if there are no samples or a file
    /// is invalid.
    pub fn open(paths: &[PathBuf], format: &F) -> Result<Self> {
        Self::open_with(paths, format, &Storage::default())
    }

    /// Like [`open`](Self::open), but reads the files through this storage handle.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`open`](Self::open).
    pub fn open_with(paths: &[PathBuf], format: &F, storage: &Storage) -> Result<Self> {
        Self::open_shards(paths, format, storage, BadShards::Error)
    }

    /// Like [`open_with`](Self::open_with), with a policy for files that are damaged or cannot be
    /// opened.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`open`](Self::open).
    pub fn open_shards(
        paths: &[PathBuf],
        format: &F,
        storage: &Storage,
        bad: BadShards,
    ) -> Result<Self> {
        Self::opened(paths, format, storage, bad, false)
    }

    /// Opens the files. With `for_fields`, samples need no image and no label.
    fn opened(
        paths: &[PathBuf],
        format: &F,
        storage: &Storage,
        bad: BadShards,
        for_fields: bool,
    ) -> Result<Self> {
        if bad == BadShards::UntilDamage && !F::IN_ORDER {
            let problem = format!(
                "is \"until_damage\", but {} files are not read from beginning to end; write \
                 \"skip\"",
                F::KEY
            );
            return Err(Error::config(format!("source.{}", BadShards::KEY), problem));
        }
        let files = expand(storage, F::KEY, paths, F::ENDING)?;
        let mut shards = Vec::with_capacity(files.len());
        // For each file: how to open it for decompression, or `None` if it is not compressed.
        let mut listed = Vec::with_capacity(files.len());
        let (mut end, mut largest_bytes, mut remote) = (0, 0, false);
        let mut excluded = Exclusions::default();
        let mut classes = OfFiles::default();
        let mut bad_shards = BadShardList::default();
        let unpacker = Unpacker::new(storage.clone(), Limits::default());
        let table = |number, path: &PathBuf| {
            let opened = table_of(storage, path, number, format, &unpacker, bad, for_fields);
            opened.or_else(|unopened| match unopened {
                Unopened::File(error) => {
                    Ok(Opened { table: None, bad: Some(bad.allow(path, error)?) })
                }
                Unopened::Server(error) => Err(error),
            })
        };
        let made = opening(|| of_each(&files, table))?;
        for (path, opened) in files.iter().zip(made) {
            if let Some(bad) = &opened.bad {
                bad_shards.add(path, bad, &mut excluded);
            }
            let Some(table) = opened.table else {
                listed.push(None);
                continue;
            };
            let Table { file, packing, stamp, version, entries, names, extents, facts, largest } =
                table;
            excluded.join_file(path, &facts.excluded);
            classes.add(path, facts.classes, F::KEY)?;
            end += entries.len() as u64;
            largest_bytes = largest_bytes.max(largest);
            remote |= file.is_remote();
            let file = if F::MAPPED && packing.is_none() { storage.map(file) } else { file };
            let path = path.clone();
            let names = (!names.bytes().is_empty()).then(|| Box::new(names));
            let extents = (!extents.stored().0.is_empty()).then(|| Box::new(extents));
            let before = shards.last().map(|shard: &Shard| &shard.stored_fields);
            let stored_fields = match before {
                Some(before) if before[..] == facts.fields[..] => before.clone(),
                _ => facts.fields.into(),
            };
            let shard = Shard {
                path,
                file,
                packing,
                stamp,
                version,
                entries,
                names,
                extents,
                has_hard_links: facts.hard_links,
                stored_fields,
                packed: (!facts.packed.is_empty()).then(|| Box::new(facts.packed)),
                end,
                fields: Default::default(),
            };
            listed.push(shard.listed());
            shards.push(shard);
        }
        if shards.iter().any(|shard| shard.packing.is_some()) {
            unpacker.list(listed);
        }
        let excluded = excluded.into_list();
        if end == 0 {
            let first = files.first().map(|path| path.display().to_string()).unwrap_or_default();
            let problem = format!(
                "no sample was found in {}; the first file is {first}",
                counted(files.len(), "file")
            );
            return Err(Error::config(format!("source.{}", F::KEY), none_but(problem, &excluded)));
        }
        let warning = bad_shards.warning(bad, files.len());
        let (storage, format) = (storage.clone(), format.clone());
        let classes = classes.into_names();
        Ok(Self {
            storage,
            shards,
            largest_bytes,
            unpacker,
            remote,
            excluded,
            classes,
            spans: Arc::default(),
            listed: OnceLock::new(),
            warning,
            for_fields,
            format,
        })
    }
}

impl<F: Format> Configured for Records<F> {
    const KEY: &'static str = F::KEY;
    type Settings = F;
    const FOLDERS: bool = true;

    fn recognises(name: &str, head: &[u8]) -> bool {
        F::recognises(name, head)
    }

    fn open_with(paths: &[PathBuf], settings: &F, storage: &Storage) -> Result<Self> {
        Self::open_with(paths, settings, storage)
    }

    fn open_shards(
        paths: &[PathBuf],
        settings: &F,
        storage: &Storage,
        bad: BadShards,
    ) -> Result<Self> {
        Self::open_shards(paths, settings, storage, bad)
    }

    fn open_fields(
        paths: &[PathBuf],
        settings: &F,
        storage: &Storage,
        bad: BadShards,
    ) -> Result<Self> {
        Self::opened(paths, settings, storage, bad, true)
    }
}
