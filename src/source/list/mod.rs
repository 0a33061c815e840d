//! Source for a file that lists images and their labels.

use std::path::{self, Path, PathBuf};

use memchr::memmem;

use super::file::{self, Files};
use super::label;
use super::side_files::SideFiles;
use super::{
    BadShards, Configured, Fields, Heads, Hints, Identity, Notes, Page, RemoteReads, Sealed,
    Source, settings, without_images,
};
use crate::error::{DataError, Error, Redacted, Result};
use crate::footprint::counted;
use crate::storage::{self, Storage};

use blocks::{BLOCK, Blocks};
use rows::Rows;
use samples::{LineError, Samples, Written};

pub(crate) use format::NO_LABEL_COLUMN;
pub use format::{FileListSettings, ListFormat};

mod blocks;
mod fields;
mod format;
mod lines;
mod rows;
mod samples;
mod table;
mod text;

/// Images that are listed in a file, in the order of the list.
///
/// The list is UTF-8. Paths are relative to the folder of the list and lie below it. Absolute
/// paths, `../` and URLs must be allowed by `storage.allow_folders` and `storage.allow_urls`. A
/// missing file is a sample error. Opening the list is an error if 16 evenly spread files are all
/// local and missing. `format` or the file extension selects the format:
///
/// * `text`: one image per line: path, tab, integer label. Paths may contain anything but tabs and
///   line ends. Without a tab, the label is the text after the last space if it is an integer, as
///   in lists of Caffe and DALI. A line without a label has label -1. Empty lines are ignored.
/// * `csv` (`.csv`) and `tsv`: a table with column names in the first line. Columns are separated
///   by commas, by tabs or by `separator`. Fields may be quoted as in RFC 4180.
/// * `jsonl` (`.jsonl`, `.ndjson`): one object per line.
/// * A `.tsv` is a table if its first line names a path column, or if `image`, `label` or
///   `separator` is set. All other files are text.
///
/// In tables and JSON lines, `image` names the column (or key) of the path. The default is the
/// first of these columns that exists: `path`, `image`, `file`, `filename`, `file_name`,
/// `filepath`, `image_path`. `label` names the column of the label. The default is `label`. Without
/// such a column samples have label -1, with a warning if there are columns besides the path.
///
/// * Labels are whole numbers or names. With names, the classes are the names in byte order, and a
///   label is the position of its name. Whole numbers may be written as `3`, `3.0` (as pandas
///   writes columns with missing values) or `"3"`. A number with a fraction is an error. A list
///   with both numbers and names is an error, unless `labels = "text"` makes all labels names.
///   Names that are all numbers are sorted numerically.
/// * A list is parsed in blocks of 1 MiB, or of a few times its longest line, so the text is never
///   completely in memory. A line (in a table: a row) of more than 4 MiB, a path of more than 8 KiB
///   and a name of more than 4 KiB are errors. A list at a URL is fetched completely, with one
///   request.
///
/// The [`Fields`](super::custom::Fields) of a sample are the columns of its row or the keys of its
/// line, and the files beside its image that `side_files` names. A side file ending in `.json` is
/// JSON. Any other side file is text if it is UTF-8, and bytes otherwise. A file that does not
/// exist is a missing value. A file that cannot be read is a sample error.
#[derive(Debug)]
pub struct FileList {
    storage: Storage,
    list: PathBuf,
    base: PathBuf,
    /// All paths, concatenated.
    paths: String,
    /// End of each sample's path in `paths`. The path begins where the previous path ends.
    ends: Vec<u64>,
    labels: Vec<i64>,
    classes: Vec<String>,
    largest_bytes: u64,
    warnings: Vec<String>,
    side_files: SideFiles,
    /// Where the fields of each sample are. `None` if the list has only a path and a label.
    rows: Option<Rows>,
    /// Whether any of the files is at a URL.
    remote: bool,
    /// Whether only the fields are read, as those of a table in a join.
    for_fields: bool,
}

/// Number of files whose existence is checked when the list is opened.
const FILES_TRIED: u64 = 16;

impl FileList {
    /// Reads the list with default settings. Returns the errors of [`with`](Self::with).
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::with(path, &FileListSettings::default())
    }

    /// Reads the list with the given settings.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the list cannot be read. [`Error::Config`] with the line if the list is
    /// invalid, or if none of its files exists.
    pub fn with(path: impl AsRef<Path>, settings: &FileListSettings) -> Result<Self> {
        Self::open_with(path, settings, &Storage::default())
    }

    /// Reads the list with the given settings, and its files through this storage handle.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`with`](Self::with).
    pub fn open_with(
        path: impl AsRef<Path>,
        settings: &FileListSettings,
        storage: &Storage,
    ) -> Result<Self> {
        let mut this = Self::by_blocks(path.as_ref(), settings, storage, BLOCK, false)?;
        this.check_files()?;
        this.warnings.extend(this.check_side_files()?);
        Ok(this)
    }

    /// Opens a list for its fields, as the second source of a [`Joined`](super::Joined): a CSV or
    /// TSV table, or JSON lines. Each row is a sample. It needs no path, and its image and its
    /// label are not read.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`with`](Self::with), except those of paths, labels and images.
    pub fn table(
        path: impl AsRef<Path>,
        settings: &FileListSettings,
        storage: &Storage,
    ) -> Result<Self> {
        let mut this = Self::by_blocks(path.as_ref(), settings, storage, BLOCK, true)?;
        this.warnings = this.check_side_files()?;
        Ok(this)
    }

    /// Reads the list in blocks of `block` bytes.
    fn by_blocks(
        list: &Path,
        settings: &FileListSettings,
        storage: &Storage,
        block: usize,
        for_fields: bool,
    ) -> Result<Self> {
        let mut blocks = Blocks::open(storage, list, block)?;
        let samples = read(&mut blocks, list, settings, for_fields);
        // Returns the error for invalid UTF-8 first, because it may have caused the other errors.
        let text = blocks.finish()?;
        let mut samples = samples?;
        samples.number();
        if samples.ends.is_empty() {
            let what = if for_fields { "has no rows" } else { "names no files" };
            let problem = format!("{} {what}", list.display());
            return Err(Error::config("source.list", problem));
        }
        let base = list.parent().map(Path::to_path_buf).unwrap_or_default();
        let Samples { mut paths, mut ends, mut labels, classes, unlabelled, mut rows, .. } =
            samples;
        let warning = |problem| format!("{}: {problem}", Redacted::path(list));
        let warnings = unlabelled.into_iter().map(warning).collect();
        let side_files = SideFiles::new(&settings.side_files, &base)?;
        paths.shrink_to_fit();
        ends.shrink_to_fit();
        labels.shrink_to_fit();
        if let Some(rows) = &mut rows {
            rows.finish(list, storage, text)?;
        }
        let (storage, list) = (storage.clone(), list.into());
        let mut this = Self {
            storage,
            list,
            base,
            paths,
            ends,
            labels,
            classes,
            largest_bytes: 0,
            warnings,
            side_files,
            rows,
            remote: false,
            for_fields,
        };
        if for_fields && this.side_files.is_empty() {
            return Ok(this);
        }
        this.check_allowed()?;
        // Most lists contain no URL. This fast search avoids checking each path of such a list.
        let urls =
            storage::is_url(&this.base) || memmem::find(this.paths.as_bytes(), b"://").is_some();
        this.remote = urls && (0..this.len()).any(|index| storage::is_url(&this.path(index)));
        if !for_fields {
            this.largest_bytes = file::largest(&this.storage, this.len(), |index| this.path(index));
        }
        Ok(this)
    }

    /// Returns the path of a sample.
    pub fn path(&self, index: u64) -> PathBuf {
        storage::join(&self.base, Path::new(self.written(index)))
    }

    /// Returns the path of a sample as written in the list.
    fn written(&self, index: u64) -> &str {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before as usize]);
        &self.paths[start as usize..self.ends[index as usize] as usize]
    }

    /// Returns an error if the list contains a path or URL that is not allowed.
    fn check_allowed(&self) -> Result<()> {
        let allowed = self.storage.settings().allowed(&self.base);
        let wrong = (0..self.len()).find_map(|index| {
            let problem = allowed.check(self.written(index)).err()?;
            Some((index + 1, problem))
        });
        wrong.map_or(Ok(()), |(number, problem)| {
            let place = format!("source.list: {}, entry {number}", self.list.display());
            Err(Error::config(place, problem))
        })
    }

    /// Returns an error if none of the local files exists. The usual cause is that paths are
    /// relative to another folder.
    fn check_files(&self) -> Result<()> {
        // A file with bytes was found, so not all files are missing.
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
            "{list} names {}, but none of the {tried} that were checked exists; the first path is \
             {:?}, which is resolved to {}",
            counted(self.len(), "file"),
            self.written(0),
            first.display()
        );
        problem += &match Path::new(self.written(0)).is_relative() {
            true => {
                let base =
                    path::absolute(self.base.join(".")).unwrap_or_else(|_| self.base.clone());
                let base = base.display();
                format!(
                    "; paths are relative to {base}, the folder of the list; correct the paths, \
                     or move the list"
                )
            }
            false => "; correct the paths, or mount their file system".into(),
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

    fn open_fields(
        paths: &[PathBuf],
        settings: &FileListSettings,
        storage: &Storage,
        bad: BadShards,
    ) -> Result<Self> {
        bad.check_unset(Self::KEY)?;
        Self::table(settings::only(Self::KEY, paths)?, settings, storage)
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
        if self.for_fields {
            return format!("{}[{index}]", Redacted::path(&self.list));
        }
        Redacted::path(&self.path(index)).into_string()
    }

    fn read(&self, index: u64, page: &mut dyn Page, limit: u64) -> Result<(), DataError> {
        if self.for_fields {
            // The paths of the images were not checked.
            return Err(without_images());
        }
        file::read_sample(self, index, page, limit)
    }

    fn describe(&self) -> String {
        let classes = match self.classes.len() {
            0 => String::new(),
            classes => format!(" in {}", counted(classes, "class")),
        };
        let files = counted(self.len(), if self.for_fields { "row" } else { "file" });
        format!("{}: {files}{classes}", Redacted::path(&self.list))
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn fields(&self) -> Option<&dyn Fields> {
        (self.rows.is_some() || !self.side_files.is_empty()).then_some(self)
    }

    fn remote(&self) -> Option<&dyn RemoteReads> {
        (self.remote && !self.for_fields).then_some(self)
    }

    fn heads(&self) -> Option<&dyn Heads> {
        (!self.remote && !self.for_fields).then_some(self)
    }

    fn hints(&self) -> Option<&dyn Hints> {
        Some(self)
    }

    fn identity(&self) -> Option<&dyn Identity> {
        Some(self)
    }

    fn notes(&self) -> Option<&dyn Notes> {
        Some(self)
    }
}

impl Notes for FileList {
    fn warnings(&self) -> Vec<String> {
        self.warnings.clone()
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
        let rows = self.rows.as_ref().map_or(0, Rows::memory_bytes);
        (self.paths.capacity() + numbers + classes) as u64 + rows
    }
}

impl Files for FileList {
    fn storage(&self) -> &Storage {
        &self.storage
    }

    fn path(&self, index: u64) -> PathBuf {
        self.path(index)
    }

    /// A row of a table may have no path.
    fn stem(&self, index: u64) -> Option<String> {
        file::stem(Path::new(self.written(index)))
    }
}

/// Detects the format of the list.
fn format_of(settings: &FileListSettings, list: &Path, blocks: &mut Blocks) -> ListFormat {
    if settings.format != ListFormat::Auto {
        return settings.format;
    }
    let ending = list.extension().and_then(|it| it.to_str()).unwrap_or_default();
    match ending.to_ascii_lowercase().as_str() {
        "csv" => ListFormat::Csv,
        "jsonl" | "ndjson" => ListFormat::Jsonl,
        "tsv" if settings.of_a_table().is_some() || table::has_header(blocks.first_line()) => {
            ListFormat::Tsv
        }
        _ => ListFormat::Text,
    }
}

/// Reads a whole list. The classes are not numbered yet.
fn read(
    blocks: &mut Blocks,
    list: &Path,
    settings: &FileListSettings,
    for_fields: bool,
) -> Result<Samples> {
    let format = format_of(settings, list, blocks);
    settings.check(list, format)?;
    if for_fields && matches!(format, ListFormat::Text | ListFormat::Auto) {
        let list = list.display();
        let problem = format!(
            "{list} is read as text, which has no fields; use a table with a header (csv, tsv) or \
             JSON lines, or set source.format"
        );
        return Err(Error::config("source.list", problem));
    }
    let mut samples = Samples::default();
    samples.for_fields = for_fields;
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
