//! A text file that names pictures and their labels.

use std::path::{Path, PathBuf};

use super::{Configured, Expected, NoSettings, Page, Source, file, settings};
use crate::error::{Error, Fault, Result};
use crate::storage;

/// Pictures named in a text file, one a line: the path, a tab, the label.
///
/// * Paths are relative to the list's own directory, or absolute; they are UTF-8 and may contain
///   anything but tabs and line ends. Without a tab the label is what follows the last blank, if that is an integer, as Caffe
///   and DALI write their lists; a line without a label has label -1.
/// * Labels are integers. Samples are in the order of the lines. Empty lines are not samples.
/// * The list, and what it names, may be URLs.
/// * A file that is not there is a sample that cannot be read: the policy for samples decides.
pub struct FileList {
    list: PathBuf,
    base: PathBuf,
    text: String,
    /// Where each sample's path begins and ends in `text`, and its label.
    entries: Vec<(u32, u32, i64)>,
    largest_bytes: u64,
    /// Whether any of the files lies behind a URL.
    remote: bool,
}

impl FileList {
    /// Reads the list. Fails where it cannot be read, names nothing, or a label is not an integer.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let list = path.as_ref().to_path_buf();
        let bytes = storage::read(&list).map_err(|error| Error::io(&list, &error))?;
        let text = String::from_utf8(bytes).map_err(|error| {
            let place = error.utf8_error().valid_up_to();
            let problem = format!("{} is not UTF-8 at byte {place}", list.display());
            Error::config("source.list", problem)
        })?;
        if text.len() > u32::MAX as usize {
            let problem = format!("{} bytes, a list may have 4 GiB", text.len());
            return Err(Error::config("source.list", problem));
        }
        let mut entries = Vec::new();
        let mut start = 0;
        for (number, line) in text.split('\n').enumerate() {
            let begin = start;
            start += line.len() + 1;
            let line = line.strip_suffix('\r').unwrap_or(line);
            if line.trim().is_empty() {
                continue;
            }
            let (path, label) = split(line).map_err(|label| {
                let place = format!("source.list: {}, line {}", list.display(), number + 1);
                Error::config(place, format!("the label must be an integer, is {label:?}"))
            })?;
            entries.push((begin as u32, (begin + path.len()) as u32, label));
        }
        if entries.is_empty() {
            let problem = format!("{} names no files", list.display());
            return Err(Error::config("source.list", problem));
        }
        let base = list.parent().map(Path::to_path_buf).unwrap_or_default();
        let mut this = Self { list, base, text, entries, largest_bytes: 0, remote: false };
        this.remote = (0..this.len()).any(|index| storage::is_url(&this.path(index)));
        this.largest_bytes = file::largest(this.len(), |index| this.path(index));
        Ok(this)
    }

    /// The path of a sample.
    pub fn path(&self, index: u64) -> PathBuf {
        let (start, end, _) = self.entries[index as usize];
        storage::join(&self.base, Path::new(&self.text[start as usize..end as usize]))
    }
}

impl Configured for FileList {
    const KEY: &'static str = "list";
    type Settings = NoSettings;

    fn open(paths: &[PathBuf], _: &NoSettings) -> Result<Self> {
        Self::open(settings::only(Self::KEY, paths)?)
    }
}

impl Source for FileList {
    fn len(&self) -> u64 {
        self.entries.len() as u64
    }

    fn label(&self, index: u64) -> i64 {
        self.entries[index as usize].2
    }

    fn location(&self, index: u64) -> String {
        self.path(index).to_string_lossy().into_owned()
    }

    fn read(&self, index: u64, page: &mut dyn Page, limit: u64) -> Result<(), Fault> {
        file::read(&self.path(index), page, limit)
    }

    fn is_remote(&self) -> bool {
        self.remote
    }

    fn expect(&self, index: u64, limit: u64) -> Option<Expected> {
        let path = self.path(index);
        storage::is_url(&path).then(|| file::expect(path, None, limit))
    }

    fn largest_bytes(&self) -> u64 {
        self.largest_bytes
    }

    fn memory_bytes(&self) -> u64 {
        (self.text.capacity() + self.entries.capacity() * size_of::<(u32, u32, i64)>()) as u64
    }

    fn describe(&self) -> String {
        format!("{}: {} files", self.list.display(), self.entries.len())
    }
}

/// Path and label of a line; on failure the text that should have been a label.
fn split(line: &str) -> Result<(&str, i64), &str> {
    if let Some((path, label)) = line.split_once('\t') {
        return label.trim().parse().map(|label| (path, label)).map_err(|_| label);
    }
    if let Some((path, label)) = line.rsplit_once(' ')
        && let Ok(label) = label.parse()
    {
        return Ok((path.trim_end(), label));
    }
    Ok((line, -1))
}
