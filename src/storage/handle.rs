//! Handle through which files are opened.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::remote::{self, Client, Fetch};
use super::stats::Activity;
use super::{Backend, Entry, File, RequestEvent, Stamp, StorageSettings, StorageStats};
use super::{cache_directory, is_url, local, mapped};
use crate::file::check_private_folder;

/// Handle through which sources read files. Cloning a handle is cheap.
///
/// * A file is opened through a handle and uses the handle's settings while it is open.
/// * Clones are the same handle: they share connections, disk cache and statistics. Separate
///   handles share none of these. Therefore loaders in one process can have different settings, and
///   each counts its own requests.
/// * [`Storage::default`] creates a new handle with the default settings. A source that is opened
///   without a handle gets such a new handle.
#[derive(Clone)]
pub struct Storage(Arc<Shared>);

struct Shared {
    settings: StorageSettings,
    cache_directory: Option<PathBuf>,
    activity: Arc<Activity>,
    client: Arc<Client>,
}

impl Storage {
    /// Creates a handle with these settings. Data that can be regenerated is stored below
    /// `$FEEDWATER_CACHE`, else `$XDG_CACHE_HOME/feedwater`, else `~/.cache/feedwater`.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Config`] for an invalid value.
    pub fn new(settings: &StorageSettings) -> crate::Result<Self> {
        settings.check()?;
        Ok(Self::build(settings.clone(), cache_directory()))
    }

    /// Creates a handle with this cache directory, regardless of environment variables. The
    /// directory contains tables of files that cannot be stored beside the files. It also contains
    /// fetched data, unless [`StorageSettings::cache_directory`] is set.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`new`](Self::new).
    pub fn with_cache_directory(
        settings: &StorageSettings,
        directory: impl Into<PathBuf>,
    ) -> crate::Result<Self> {
        settings.check()?;
        Ok(Self::build(settings.clone(), Some(directory.into())))
    }

    /// Settings of this handle.
    pub fn settings(&self) -> &StorageSettings {
        &self.0.settings
    }

    /// Statistics of the requests that were sent through this handle so far.
    pub fn stats(&self) -> StorageStats {
        self.0.activity.stats()
    }

    /// Warnings so far: problems that do not end a run, such as a disk cache that cannot be
    /// written.
    pub fn warnings(&self) -> Vec<String> {
        self.0.activity.warnings()
    }

    /// Sets the function that is called for every request event of this handle. It replaces an
    /// earlier function. The threads that communicate with servers call it, so it must not block or
    /// read from URLs. Without a function nothing is printed.
    pub fn watch_requests(&self, watcher: impl Fn(&RequestEvent) + Send + Sync + 'static) {
        self.0.activity.watch.set(Arc::new(watcher));
    }

    /// Whether `other` is a clone of this handle.
    #[doc(hidden)]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Directory for tables of files that cannot be stored beside the files. `None` if no
    /// environment variable sets it.
    pub(crate) fn cache_directory(&self) -> Option<&Path> {
        self.0.cache_directory.as_deref()
    }

    /// Records a warning for the user.
    pub(crate) fn warn(&self, text: String) {
        self.0.activity.warn(text);
    }

    fn build(settings: StorageSettings, cache_directory: Option<PathBuf>) -> Self {
        let activity = Arc::<Activity>::default();
        let cache_directory = cache_directory.filter(|directory| {
            // Tables and fetched data are trusted, so another user must not be able to write them.
            let checked = check_private_folder(directory);
            checked.map_err(|error| activity.warn(error.to_string())).is_ok()
        });
        let client = Client::new(&settings, cache_directory.as_deref(), activity.clone());
        Self(Arc::new(Shared { settings, cache_directory, activity, client: Arc::new(client) }))
    }
}

/// Largest number of bytes of a file that is read completely, such as a list at a URL. The limit
/// bounds the memory, because a server may announce any length.
const MOST_WHOLE: u64 = 1 << 30;

/// Methods for opening and listing.
impl Storage {
    /// Opens a regular file. Anything else, such as a folder or a pipe, is an error immediately.
    pub fn open(&self, path: &Path) -> io::Result<File> {
        Ok(File(match is_url(path) {
            true => Backend::Remote(remote::File::open(&self.0.client, path)?),
            false => Backend::Local(local::File::open(path)?),
        }))
    }

    /// Opens a regular file for many reads. A local file borrows its descriptor from a bounded pool
    /// of the process. The descriptor may be closed between two reads and reopened, so any number
    /// of files can be open.
    pub fn open_pooled(&self, path: &Path) -> io::Result<File> {
        Ok(File(match is_url(path) {
            true => Backend::Remote(remote::File::open(&self.0.client, path)?),
            false => Backend::Local(local::File::open_pooled(path)?),
        }))
    }

    /// Maps a local file into memory. This requires [`StorageSettings::map`], a file that can be
    /// mapped, and few enough mappings. Mapping is meant for files that stay open for many reads.
    /// Reads return the same bytes and errors as without a mapping, with one exception: if the file
    /// is truncated after it was mapped, the rest of its last page reads as zeros, until the reader
    /// notices that [`File::stamp`] has changed.
    #[must_use]
    pub fn map(&self, file: File) -> File {
        File(match file.0 {
            Backend::Local(file) if self.0.settings.map => match mapped::File::new(file) {
                Ok(mapped) => Backend::Mapped(mapped),
                Err(file) => Backend::Local(file),
            },
            place => place,
        })
    }

    /// Reads a whole file of at most 1 GiB into memory.
    pub fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let too_large = |bytes: &dyn fmt::Display| {
            let problem =
                format!("has {bytes} bytes, but at most {MOST_WHOLE} bytes can be read at once");
            io::Error::new(io::ErrorKind::FileTooLarge, problem)
        };
        if is_url(path) {
            let fetched = self.fetch(path, None, MOST_WHOLE).and_then(Fetch::wait);
            return fetched.map(Vec::from).map_err(|error| match error.kind() {
                io::ErrorKind::FileTooLarge => too_large(&error),
                _ => error,
            });
        }
        let file = self.open(path)?;
        let len = file.stamp()?.len;
        if len > MOST_WHOLE {
            return Err(too_large(&len));
        }
        let mut bytes = vec![0; len as usize];
        let len = file.read_at(&mut bytes, 0)?;
        bytes.truncate(len);
        Ok(bytes)
    }

    /// Starts to fetch a whole object with one request. If `stamp` is given, an object with another
    /// version is an error. If the object has more than `most` bytes, the request fails before the
    /// body arrives, with [`io::ErrorKind::FileTooLarge`] and the number of bytes as the text.
    pub fn fetch(&self, url: &Path, stamp: Option<Stamp>, most: u64) -> io::Result<Fetch> {
        remote::fetch(&self.0.client, url, stamp, most)
    }

    /// Returns the lengths of files in bytes without opening them. URLs are requested concurrently.
    pub fn lens(&self, paths: &[PathBuf]) -> Vec<io::Result<u64>> {
        match_places(paths, local::len, |urls| remote::lens(&self.0.client, urls))
    }

    /// Lists a folder in byte order of names. Names that begin with a dot are skipped. Links are
    /// followed, and a dangling link counts as a file. Entries that are neither file nor folder are
    /// skipped.
    pub fn list(&self, folder: &Path) -> io::Result<Vec<Entry>> {
        self.list_all_kinds(folder).map(|listing| listing.0)
    }

    /// Lists a folder. Also returns the names of entries that are neither file nor folder: pipes,
    /// sockets and devices.
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

    /// Lists all objects below a folder at a URL, in byte order of names. Returns the relative name
    /// and the [`Stamp`] (length and version) of each object. Skips names in which a part begins
    /// with a dot, and empty objects that mark folders.
    pub fn list_all(&self, folder: &Path) -> io::Result<Vec<(String, Stamp)>> {
        let mut found = remote::list_all(&self.0.client, folder)?;
        found.retain(|(name, _)| !name.split('/').any(|part| part.starts_with('.')));
        found.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        let mut folders = HashSet::new();
        for (name, _) in &found {
            // Folders are added from the innermost outwards. The loop stops at the first known
            // folder, because its parents are known too.
            let mut ends = name.rmatch_indices('/').map(|(end, _)| end);
            while ends.next().is_some_and(|end| folders.insert(name[..end].to_string())) {}
        }
        found.retain(|(name, stamp)| stamp.len > 0 || !folders.contains(name));
        Ok(found)
    }

    /// Returns for each path whether it is a folder. At a URL, a folder is any prefix with objects
    /// below it. URLs are requested concurrently.
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

/// Calls `local` for each local path and `remote` for all URLs, which are requested concurrently.
/// Results are in the order of `paths`.
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
