//! The handle through which files are opened.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::remote::{self, Client, Fetch};
use super::stats::Activity;
use super::{Entry, File, Place, RequestEvent, Stamp, StorageSettings, StorageStats};
use super::{cache_directory, is_url, local, mapped};

/// How files are read: a handle that is given to the sources that open files, and is cheap to clone.
///
/// * Files are opened through a handle, and are read with its settings as long as they are open.
/// * Clones are the same handle: they share connections, the cache on disk, and what is counted. Two handles share none of
///   these, so loaders of one process can have different settings, and each counts its own requests.
/// * [`Storage::default`] is a new handle with the default settings. It is what a source is opened with that is given none.
#[derive(Clone)]
pub struct Storage(Arc<Shared>);

struct Shared {
    settings: StorageSettings,
    cache_directory: Option<PathBuf>,
    activity: Arc<Activity>,
    client: Arc<Client>,
}

impl Storage {
    /// A handle with these settings. What can be made again is kept below `$FEEDWATER_CACHE`, else
    /// `$XDG_CACHE_HOME/feedwater`, else `~/.cache/feedwater`.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Config`] where a value cannot be.
    pub fn new(settings: &StorageSettings) -> crate::Result<Self> {
        settings.check()?;
        Ok(Self::build(settings.clone(), cache_directory()))
    }

    /// The same, but what can be made again is kept below this directory, whatever the environment says: tables of files that
    /// cannot lie beside them, and, unless [`StorageSettings::cache_directory`] names its folder, what was fetched.
    ///
    /// # Errors
    ///
    /// Those of [`new`](Self::new).
    pub fn with_cache_directory(
        settings: &StorageSettings,
        directory: impl Into<PathBuf>,
    ) -> crate::Result<Self> {
        settings.check()?;
        Ok(Self::build(settings.clone(), Some(directory.into())))
    }

    /// The settings.
    pub fn settings(&self) -> &StorageSettings {
        &self.0.settings
    }

    /// What was asked of servers through this handle so far.
    pub fn stats(&self) -> StorageStats {
        self.0.activity.stats()
    }

    /// What went wrong so far without ending anything: a disk cache that cannot be written.
    pub fn warnings(&self) -> Vec<String> {
        self.0.activity.warnings()
    }

    /// Calls this function, in the place of one that was given before, for every event of a request through this handle. It
    /// is called by the threads that talk to servers, so it must not wait, and must not read from URLs. Without one nothing
    /// is printed.
    pub fn watch_requests(&self, watcher: impl Fn(&RequestEvent) + Send + Sync + 'static) {
        self.0.activity.watch.set(Arc::new(watcher));
    }

    /// Whether both are the same handle.
    #[doc(hidden)]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Where tables of files are kept that cannot be kept beside them; `None` where no variable of the environment says it.
    pub(crate) fn cache_directory(&self) -> Option<&Path> {
        self.0.cache_directory.as_deref()
    }

    fn build(settings: StorageSettings, cache_directory: Option<PathBuf>) -> Self {
        let activity = Arc::<Activity>::default();
        let client = Client::new(&settings, cache_directory.as_deref(), activity.clone());
        Self(Arc::new(Shared { settings, cache_directory, activity, client: Arc::new(client) }))
    }
}

/// Opening and listing.
#[doc(hidden)]
impl Storage {
    /// Opens a regular file. Anything else, a folder or a pipe, is an error at once.
    pub fn open(&self, path: &Path) -> io::Result<File> {
        Ok(File(match is_url(path) {
            true => Place::Remote(remote::File::open(&self.0.client, path)?),
            false => Place::Local(local::File::open(path)?),
        }))
    }

    /// Opens a regular file that is held open for many reads. A local one borrows its descriptor from a bounded pool of the
    /// process: it may be closed between two reads, and is then opened again, so that any number of files can be held.
    pub fn open_pooled(&self, path: &Path) -> io::Result<File> {
        Ok(File(match is_url(path) {
            true => Place::Remote(remote::File::open(&self.0.client, path)?),
            false => Place::Local(local::File::open_pooled(path)?),
        }))
    }

    /// The same file, mapped where it is a local one that can be, [`StorageSettings::map`] is set and there are few enough mappings:
    /// for files that are held open for many reads. Reads give the same bytes and the same errors. A file that is cut
    /// meanwhile is no exception, but for the rest of the page in which it ends, which is zeros until the stamp is asked.
    #[must_use]
    pub fn map(&self, file: File) -> File {
        File(match file.0 {
            Place::Local(file) if self.0.settings.map => match mapped::File::new(file) {
                Ok(mapped) => Place::Mapped(mapped),
                Err(file) => Place::Local(file),
            },
            place => place,
        })
    }

    /// A whole file, of which there is memory enough.
    pub fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        if is_url(path) {
            return Ok(self.fetch(path, None, u64::MAX)?.wait()?.into());
        }
        let file = self.open(path)?;
        let mut bytes = vec![0; file.stamp()?.len as usize];
        let len = file.read_at(&mut bytes, 0)?;
        bytes.truncate(len);
        Ok(bytes)
    }

    /// Begins to fetch a whole object in one request, of this stamp where it is known. One of more than `most` bytes is
    /// an error of the kind [`io::ErrorKind::FileTooLarge`] before its body comes, whose text is the number of bytes.
    pub fn fetch(&self, url: &Path, stamp: Option<Stamp>, most: u64) -> io::Result<Fetch> {
        remote::fetch(&self.0.client, url, stamp, most)
    }

    /// The lengths of files, without opening them. Those behind URLs are asked for all at once.
    pub fn lens(&self, paths: &[PathBuf]) -> Vec<io::Result<u64>> {
        match_places(paths, local::len, |urls| remote::lens(&self.0.client, urls))
    }

    /// The entries of a folder in the byte order of their names. Names that begin with a dot are not seen. Links are
    /// followed; one that leads nowhere is a file, and what is neither file nor folder is not seen.
    pub fn list(&self, folder: &Path) -> io::Result<Vec<Entry>> {
        self.list_all_kinds(folder).map(|listing| listing.0)
    }

    /// The same, and the names of what is neither file nor folder: pipes, sockets and devices.
    pub fn list_all_kinds(&self, folder: &Path) -> io::Result<(Vec<Entry>, Vec<OsString>)> {
        let (mut entries, mut special) = match is_url(folder) {
            true => (remote::list(&self.0.client, folder)?, Vec::new()),
            false => local::list(folder)?,
        };
        entries.retain(|entry| !entry.name.as_encoded_bytes().starts_with(b"."));
        entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        special.sort_unstable();
        Ok((entries, special))
    }

    /// Every object below a folder behind a URL: its name from there on, and its stamp, in the byte order of names. Names
    /// with a part that begins with a dot are not seen, nor are empty objects that stand for folders.
    pub fn list_all(&self, folder: &Path) -> io::Result<Vec<(String, Stamp)>> {
        let mut found = remote::list_all(&self.0.client, folder)?;
        found.retain(|(name, _)| !name.split('/').any(|part| part.starts_with('.')));
        found.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        let mut folders = HashSet::new();
        for (name, _) in &found {
            // From the innermost on; those around one that is known are known too.
            let mut ends = name.rmatch_indices('/').map(|(end, _)| end);
            while ends.next().is_some_and(|end| folders.insert(name[..end].to_string())) {}
        }
        found.retain(|(name, stamp)| stamp.len > 0 || !folders.contains(name));
        Ok(found)
    }

    /// Whether there are folders of these names. Behind URLs that is all below which there is something; all are asked for
    /// at once.
    pub fn are_folders(&self, paths: &[PathBuf]) -> Vec<io::Result<bool>> {
        let remote = |urls: &[&Path]| remote::are_folders(&self.0.client, urls);
        match_places(paths, |path| Ok(path.is_dir()), remote)
    }
}

impl Default for Storage {
    fn default() -> Self {
        Self::build(StorageSettings::default(), cache_directory())
    }
}

impl fmt::Debug for Storage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Storage").field(&self.0.settings).finish()
    }
}

/// Answers for local paths one by one and for URLs all at once, in the order of the paths.
fn match_places<T>(
    paths: &[PathBuf],
    local: impl Fn(&Path) -> io::Result<T>,
    remote: impl Fn(&[&Path]) -> Vec<io::Result<T>>,
) -> Vec<io::Result<T>> {
    let urls: Vec<&Path> = paths.iter().map(PathBuf::as_path).filter(|path| is_url(path)).collect();
    let mut answers = if urls.is_empty() { Vec::new() } else { remote(&urls) }.into_iter();
    let missing = || Err(io::Error::other("no answer came"));
    paths
        .iter()
        .map(|path| match is_url(path) {
            true => answers.next().unwrap_or_else(missing),
            false => local(path),
        })
        .collect()
}
