//! A file that names images and their labels.

use std::collections::HashMap;
use std::path::{self, Path, PathBuf};

use memchr::memmem;
use serde::{Deserialize, Serialize};

use super::label::{self, LabelSort, MOST_NAME_BYTES};
use super::{
    Configured, Expected, Heads, Hints, HostPage, Identity, Page, RemoteReads, Sealed, Source, file, settings,
};
use crate::error::{Error, DataError, Redacted, Result};
use crate::storage::{self, Storage};

use blocks::{BLOCK, Blocks};

mod blocks;
mod lines;
mod table;
mod text;

/// Images named in a file, in its order.
///
/// Paths are relative to the list's own directory, or absolute, or URLs; the list is UTF-8. A file that is not there is a
/// sample that cannot be read: the policy for samples decides. Where 16 files, evenly spread over the list, are all local and
/// none of them is there, opening the list is an error. What the list may be, by `format` or by the ending of its name:
///
/// * `text`: one image a line: the path, a tab, the label, an integer. Paths may contain anything but tabs and line
///   ends. Without a tab the label is what follows the last blank, if that is an integer, as Caffe and DALI write their
///   lists; a line without a label has label -1. Empty lines are not samples.
/// * `csv` (`.csv`) and `tsv`: a table whose first line names its columns, separated by commas or tabs or by `separator`;
///   fields may be quoted as RFC 4180 says.
/// * `jsonl` (`.jsonl`, `.ndjson`): an object on each line.
/// * A `.tsv` is a table where its first line names a column of paths, or where `image`, `label` or `separator` is set; any
///   other file is text.
///
/// In a table and in JSON lines `image` names the column (or key) of the path; without it that is the first there is of
/// `path`, `image`, `file`, `filename`, `file_name`, `filepath`, `image_path`. `label` names that of the label; without it
/// that is `label`, and where there is none, samples have label -1.
///
/// * Labels are whole numbers, or names: then the classes are the names in their byte order, and a label is the place of its
///   name among them. What is written as a whole number is that number: `3`, `3.0` (as pandas writes columns with missing
///   values) or `"3"`. A number with a fraction, and a list that has both numbers and names, is an error, unless
///   `labels = "text"` says that all of them are names; names that are all numbers are in the order of the numbers.
/// * A list is read a MiB at a time, or a few of its longest line, so that its text is never whole in memory. A line (of a table,
///   a row) of more than 4 MiB, a path of more than 8 KiB and a name of more than 4 KiB are errors. A list behind a URL is
///   fetched whole, in one request.
#[derive(Debug)]
pub struct FileList {
    storage: Storage,
    list: PathBuf,
    base: PathBuf,
    /// All paths, one after another.
    paths: String,
    /// For each sample, the end of its path; it begins where the one before ends.
    ends: Vec<u64>,
    labels: Vec<i64>,
    classes: Vec<String>,
    largest_bytes: u64,
    /// Whether any of the files lies behind a URL.
    remote: bool,
}

/// What stands beside `list`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FileListSettings {
    /// What the file is. Default: by the ending of its name.
    pub format: ListFormat,
    /// The column (or key) of the path. Default: the first there is of the usual names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// The column (or key) of the label; empty where the samples shall have none. Default: `label`, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// What labels are. Default: what they look like.
    pub labels: LabelSort,
    /// The character between the columns of a table, in ASCII. Default: a comma in CSV, a tab in TSV.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub separator: Option<char>,
}

/// What a list is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum ListFormat {
    /// By the ending of its name.
    #[default]
    Auto,
    /// Lines of path and label.
    Text,
    /// A table with commas.
    Csv,
    /// A table with tabs.
    Tsv,
    /// An object on each line.
    Jsonl,
}

/// Files of a list that are looked for before it is refused.
const FILES_TRIED: u64 = 16;

/// What paths are called where nothing is said.
const PATHS: [&str; 7] =
    ["path", "image", "file", "filename", "file_name", "filepath", "image_path"];

/// What the label is called where nothing is said.
const LABEL: &str = "label";

impl FileList {
    /// Reads the list. Fails where it cannot be read, names nothing, or a label is not what it should be.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::with(path, &FileListSettings::default())
    }

    /// Reads the list with these settings.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] where it cannot be read, [`Error::Config`] with the line where it says what cannot be, and where none of
    /// its files is there.
    pub fn with(path: impl AsRef<Path>, settings: &FileListSettings) -> Result<Self> {
        Self::open_with(path, settings, &Storage::default())
    }

    /// Reads the list, and the files that it names, through this handle.
    ///
    /// # Errors
    ///
    /// Those of [`with`](Self::with).
    pub fn open_with(
        path: impl AsRef<Path>,
        settings: &FileListSettings,
        storage: &Storage,
    ) -> Result<Self> {
        let this = Self::by_blocks(path.as_ref(), settings, storage, BLOCK)?;
        this.check_files()?;
        Ok(this)
    }

    /// Reads the list by so many bytes.
    fn by_blocks(
        list: &Path,
        settings: &FileListSettings,
        storage: &Storage,
        block: usize,
    ) -> Result<Self> {
        let mut blocks = Blocks::open(storage, list, block)?;
        let samples = Samples::read(&mut blocks, list, settings);
        // A list that is not UTF-8 is said to be that first, wherever it is not.
        blocks.finish()?;
        let mut samples = samples?;
        samples.number();
        if samples.ends.is_empty() {
            let problem = format!("{} names no files", list.display());
            return Err(Error::config("source.list", problem));
        }
        let base = list.parent().map(Path::to_path_buf).unwrap_or_default();
        let Samples { mut paths, mut ends, mut labels, classes, .. } = samples;
        paths.shrink_to_fit();
        ends.shrink_to_fit();
        labels.shrink_to_fit();
        let (storage, list) = (storage.clone(), list.into());
        let mut this = Self { storage, list, base, paths, ends, labels, classes, largest_bytes: 0, remote: false };
        // Most lists have no URL, which is seen at once.
        let urls = storage::is_url(&this.base) || memmem::find(this.paths.as_bytes(), b"://").is_some();
        this.remote = urls && (0..this.len()).any(|index| storage::is_url(&this.path(index)));
        this.largest_bytes = file::largest(&this.storage, this.len(), |index| this.path(index));
        Ok(this)
    }

    /// The path of a sample.
    pub fn path(&self, index: u64) -> PathBuf {
        storage::join(&self.base, Path::new(self.written(index)))
    }

    /// The path of a sample as the list has it.
    fn written(&self, index: u64) -> &str {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before as usize]);
        &self.paths[start as usize..self.ends[index as usize] as usize]
    }

    /// Refuses a list of local files none of which is there: mostly its paths are relative to another folder.
    fn check_files(&self) -> Result<()> {
        // One that has bytes is there.
        if self.remote || self.largest_bytes > 0 {
            return Ok(());
        }
        let tried = self.len().min(FILES_TRIED);
        let spread = |it: u64| (u128::from(it) * u128::from(self.len()) / u128::from(tried)) as u64;
        if !(0..tried).all(|it| file::is_missing(&self.path(spread(it)))) {
            return Ok(());
        }
        let (list, first) = (self.list.display(), self.path(0));
        let mut problem = format!(
            "{list} names {} files, and none of the {tried} that were looked for exists: the first is {:?}, looked for as {}",
            self.len(),
            self.written(0),
            first.display()
        );
        problem += &match Path::new(self.written(0)).is_relative() {
            true => {
                let base = path::absolute(self.base.join(".")).unwrap_or_else(|_| self.base.clone());
                let base = base.display();
                format!("; paths are relative to the list's folder {base}: write them so, or as absolute paths")
            }
            false => "; correct the paths, or mount what they lie on".into(),
        };
        Err(Error::config("source.list", problem))
    }
}

impl Sealed for FileList {}

impl Configured for FileList {
    const KEY: &'static str = "list";
    type Settings = FileListSettings;

    fn recognises(name: &str, _: &[u8]) -> bool {
        const ENDINGS: [&str; 6] = [".txt", ".lst", ".csv", ".tsv", ".jsonl", ".ndjson"];
        ENDINGS.iter().any(|ending| name.ends_with(ending))
    }

    fn open_with(
        paths: &[PathBuf],
        settings: &FileListSettings,
        storage: &Storage,
    ) -> Result<Self> {
        Self::open_with(settings::only(Self::KEY, paths)?, settings, storage)
    }
}

impl Source for FileList {
    fn len(&self) -> u64 {
        self.ends.len() as u64
    }

    fn label(&self, index: u64) -> i64 {
        self.labels[index as usize]
    }

    fn location(&self, index: u64) -> String {
        Redacted::path(&self.path(index)).into_string()
    }

    fn read(&self, index: u64, page: &mut dyn Page, limit: u64) -> Result<(), DataError> {
        file::read(&self.storage, &self.path(index), page, limit)
    }

    fn describe(&self) -> String {
        let classes = match self.classes.len() {
            0 => String::new(),
            classes => format!(" in {classes} classes"),
        };
        format!("{}: {} files{classes}", Redacted::path(&self.list), self.ends.len())
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn remote(&self) -> Option<&dyn RemoteReads> {
        self.remote.then_some(self)
    }

    fn heads(&self) -> Option<&dyn Heads> {
        (!self.remote).then_some(self)
    }

    fn hints(&self) -> Option<&dyn Hints> {
        Some(self)
    }

    fn identity(&self) -> Option<&dyn Identity> {
        Some(self)
    }
}

impl RemoteReads for FileList {
    fn expect(&self, index: u64, limit: u64) -> Option<Expected> {
        let path = self.path(index);
        storage::is_url(&path).then(|| file::expect(&self.storage, path, None, limit))
    }
}

impl Heads for FileList {
    fn read_head(
        &self,
        index: u64,
        page: &mut HostPage,
        most: usize,
        limit: u64,
    ) -> Result<u64, DataError> {
        file::read_head(&self.storage, &self.path(index), page, most, limit)
    }
}

impl Hints for FileList {
    fn largest_bytes(&self) -> Option<u64> {
        Some(self.largest_bytes)
    }

    fn storages(&self) -> Vec<Storage> {
        vec![self.storage.clone()]
    }

    fn memory_bytes(&self) -> u64 {
        let numbers = (self.ends.capacity() + self.labels.capacity()) * size_of::<u64>();
        let class = |name: &String| name.capacity() + size_of::<String>();
        let classes: usize = self.classes.iter().map(class).sum();
        (self.paths.capacity() + numbers + classes) as u64
    }
}

impl Identity for FileList {
    fn version(&self, index: u64) -> Option<String> {
        file::version(&self.path(index))
    }
}

impl FileListSettings {
    /// What the file is.
    fn format_of(&self, list: &Path, blocks: &mut Blocks) -> ListFormat {
        if self.format != ListFormat::Auto {
            return self.format;
        }
        let ending = list.extension().and_then(|it| it.to_str()).unwrap_or_default();
        match ending.to_ascii_lowercase().as_str() {
            "csv" => ListFormat::Csv,
            "jsonl" | "ndjson" => ListFormat::Jsonl,
            "tsv" if self.of_a_table().is_some() || table::has_header(blocks.first_line()) => ListFormat::Tsv,
            _ => ListFormat::Text,
        }
    }

    /// The first setting there is of those that text has no use for.
    fn of_a_table(&self) -> Option<&'static str> {
        let separator = self.separator.map(|_| "separator");
        let label = self.label.as_ref().map(|_| "label");
        self.image.as_ref().map(|_| "image").or(label).or(separator)
    }

    /// Refuses settings that would do nothing, and a separator that cannot be one.
    fn check(&self, list: &Path, format: ListFormat) -> Result<()> {
        let unused = match format {
            ListFormat::Text | ListFormat::Auto => self.of_a_table(),
            ListFormat::Jsonl => self.separator.map(|_| "separator"),
            ListFormat::Csv | ListFormat::Tsv => None,
        };
        if let Some(key) = unused {
            let (list, sort) = (list.display(), if format == ListFormat::Jsonl { "JSON lines" } else { "text" });
            let problem = format!("says nothing of {list}, which is read as {sort}: leave it out, or set source.format");
            return Err(Error::config(format!("source.{key}"), problem));
        }
        match self.separator {
            Some(it) if !it.is_ascii() || "\"\r\n".contains(it) => {
                let problem = format!("must be one ASCII character, no quote and no line end, is {it:?}");
                Err(Error::config("source.separator", problem))
            }
            _ => Ok(()),
        }
    }

    /// What paths may be called.
    fn images(&self) -> Vec<&str> {
        self.image.as_ref().map_or(PATHS.to_vec(), |name| vec![name])
    }

    /// What the label is called, and whether it must be there.
    fn label(&self) -> Option<(&str, bool)> {
        match self.label.as_deref() {
            None => Some((LABEL, false)),
            Some("") => None,
            Some(name) => Some((name, true)),
        }
    }
}

/// A line that cannot be.
struct LineError {
    line: u64,
    problem: String,
}

impl LineError {
    fn new(line: u64, problem: impl Into<String>) -> Self {
        Self { line, problem: problem.into() }
    }
}

/// What was read so far.
#[derive(Default)]
struct Samples {
    paths: String,
    ends: Vec<u64>,
    /// Until they are numbered, labels that are texts are their places in `classes`.
    labels: Vec<i64>,
    classes: Vec<String>,
    known: HashMap<String, i64>,
    /// Line and text of the first integer, and of the first text.
    integer: Option<(u64, String)>,
    text: Option<(u64, String)>,
}

/// A label as it is written.
enum Written<'a> {
    /// There is none.
    None,
    Number(i64),
    Text(&'a str),
}

impl Samples {
    /// All of a list, with labels that are not numbered yet.
    fn read(blocks: &mut Blocks, list: &Path, settings: &FileListSettings) -> Result<Self> {
        let format = settings.format_of(list, blocks);
        settings.check(list, format)?;
        let mut samples = Self::default();
        match format {
            ListFormat::Jsonl => lines::read(blocks, settings, &mut samples),
            ListFormat::Csv => table::read(blocks, ',', settings, &mut samples),
            ListFormat::Tsv => table::read(blocks, '\t', settings, &mut samples),
            ListFormat::Text | ListFormat::Auto => text::read(blocks, settings, &mut samples),
        }
        .map_err(|LineError { line, problem }| {
            Error::config(format!("source.list: {}, line {line}", list.display()), problem)
        })?;
        Ok(samples)
    }

    /// Takes memory for a list that is so many times as long as what was read: an allocator that copies what grows would
    /// have a table twice. Memory that is not written to costs nothing.
    fn reserve(&mut self, whole: f64) {
        let more = |len: usize| (len as f64 * (whole - 1.0) * 1.05) as usize;
        // Where there is none, or more lines than expected, the tables grow when they must.
        let _ = self.paths.try_reserve(more(self.paths.len()));
        let _ = self.ends.try_reserve(more(self.ends.len()));
        let _ = self.labels.try_reserve(more(self.labels.len()));
    }

    fn push(&mut self, line: u64, path: &str, label: Written, sort: LabelSort) -> Result<(), LineError> {
        match path.len() {
            0 => return Err(LineError::new(line, "the path is empty")),
            len if len > file::MOST_PATH_BYTES => {
                let most = file::MOST_PATH_BYTES;
                return Err(LineError::new(line, format!("a path of {len} bytes, at most {most} are read")));
            }
            _ => {}
        }
        let label = match (label, sort) {
            (Written::None, _) => -1,
            (Written::Number(label), LabelSort::Text) => self.class(line, &label.to_string())?,
            (Written::Number(label), _) => self.number_of(line, label, label),
            (Written::Text(text), LabelSort::Text) => self.class(line, text)?,
            (Written::Text(text), LabelSort::Auto | LabelSort::Integer) => match label::number(text) {
                Some(Ok(label)) => self.number_of(line, label, text),
                Some(Err(why)) => {
                    let problem = format!(
                        "the label {text:?} {why}: make it one, or write labels = \"text\" where labels are names"
                    );
                    return Err(LineError::new(line, problem));
                }
                None => self.class(line, text)?,
            },
        };
        self.paths += path;
        self.ends.push(self.paths.len() as u64);
        self.labels.push(label);
        match (&self.integer, &self.text) {
            (_, Some((line, text))) if sort == LabelSort::Integer => {
                Err(LineError::new(*line, format!("the label must be a whole number, is {text:?}")))
            }
            (Some((integer, number)), Some((line, text))) => Err(LineError::new(
                *line,
                format!(
                    "the label is the name {text:?}, and in line {integer} it is the number {number}: \
                     make them one sort, or write labels = \"text\" where all are names"
                ),
            )),
            _ => Ok(()),
        }
    }

    fn number_of(&mut self, line: u64, label: i64, written: impl ToString) -> i64 {
        self.integer.get_or_insert_with(|| (line, written.to_string()));
        label
    }

    fn class(&mut self, line: u64, text: &str) -> Result<i64, LineError> {
        if text.len() > MOST_NAME_BYTES {
            let problem = format!("a label of {} bytes, at most {MOST_NAME_BYTES} are read", text.len());
            return Err(LineError::new(line, problem));
        }
        self.text.get_or_insert_with(|| (line, text.to_string()));
        if let Some(&class) = self.known.get(text) {
            return Ok(class);
        }
        let class = self.classes.len() as i64;
        self.known.insert(text.to_string(), class);
        self.classes.push(text.to_string());
        Ok(class)
    }

    /// Numbers the classes in the order of their names.
    fn number(&mut self) {
        label::sort_names(&mut self.classes);
        let mut labels = vec![0; self.classes.len()];
        for (label, name) in self.classes.iter().enumerate() {
            labels[self.known[name] as usize] = label as i64;
        }
        if !labels.is_empty() {
            // Integers and texts do not mix, so every label but -1 is a place in `classes`.
            self.labels.iter_mut().filter(|it| **it >= 0).for_each(|it| *it = labels[*it as usize]);
        }
    }
}
