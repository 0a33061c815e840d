//! Text of a pipeline file, and search for the locations of keys in it.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::Table;
use toml::de::{DeTable, DeValue};

use super::SECTIONS;
use super::former;
use super::node::join;
use crate::error::{ConfigError, Error, IoCause, Location, Result};
use crate::file;
use crate::storage;

/// Maximum size of a pipeline file, in bytes. Real files are far smaller, and memory for one file
/// of this size is always available.
const MOST_BYTES: u64 = 16 << 20;

/// Text of a pipeline file. Locations of keys are searched only when an error needs them.
pub struct Document {
    /// Path of the file. `None` if the text was not read from a file.
    file: Option<PathBuf>,
    /// Folder to which paths in the text are relative.
    base: PathBuf,
    text: String,
}

/// Setting in the pipeline file that names a path for which an error occurred.
struct Written {
    key: String,
    /// Path as written in the text.
    value: PathBuf,
    /// Path resolved against the base folder.
    path: PathBuf,
}

/// Omits the text, because it may contain passwords in URLs.
impl fmt::Debug for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, base, text: _ } = self;
        f.debug_struct("Document").field("file", file).field("base", base).finish_non_exhaustive()
    }
}

impl Document {
    pub fn from_file(path: &Path) -> Result<Self> {
        let bytes = file::read(path, MOST_BYTES).map_err(|error| Error::io(path, &error))?;
        let base = path.parent().unwrap_or(Path::new("")).to_path_buf();
        let text = String::from_utf8(bytes).map_err(|error| not_utf8(path, &error.into_bytes()))?;
        Ok(Self { file: Some(path.to_path_buf()), base, text })
    }

    pub fn from_text(text: &str, base: &Path) -> Self {
        Self { file: None, base: base.to_path_buf(), text: text.into() }
    }

    /// Folder to which paths in the text are relative.
    pub fn base(&self) -> &Path {
        &self.base
    }

    pub fn table(&self) -> Result<Table> {
        let parsed = DeTable::parse(&self.text).map_err(|error| self.invalid(&error))?;
        if let Some((key, problem)) = in_each(parsed.get_ref(), &mut number) {
            return Err(self.locate(Error::config(key, problem)));
        }
        self.text.parse().map_err(|error| self.invalid(&error))
    }

    /// Error for a text that is not TOML.
    fn invalid(&self, error: &toml::de::Error) -> Error {
        let bytes = error.span().unwrap_or(0..0);
        let (key, problem) = match error.message().trim() {
            "duplicate key" => repeated(&self.text, bytes.clone()),
            other => (String::new(), other.replace('\n', ", ")),
        };
        let at = Some(Box::new(self.location(bytes)));
        Error::Config(ConfigError { at, ..ConfigError::new(key, problem) })
    }

    /// Adds the position of the setting in the file to an error about a setting, and names the
    /// setting as the file does, which may be by a former name. An I/O error has
    /// no setting: if its path is the value of a setting, adds this setting and its position too.
    /// If the path does not exist, converts the error to [`Error::Config`].
    pub fn locate(&self, error: Error) -> Error {
        match error {
            Error::Config(mut error) if error.at.is_none() => {
                error.at = self.find(&error.key).map(|bytes| Box::new(self.location(bytes)));
                error.key = self.key_as_written(&error.key);
                Error::Config(error)
            }
            Error::Unavailable { what, reason, asked: Some(mut asked) } => {
                asked.at = self.find(&asked.key).map(|bytes| self.location(bytes));
                asked.key = self.key_as_written(&asked.key);
                Error::Unavailable { what, reason, asked: Some(asked) }
            }
            Error::Io { path, problem, source } => match self.written(&path) {
                None => Error::Io { path, problem, source },
                Some(written) => self.of_path(&written, path, (problem, source)),
            },
            error => error,
        }
    }

    fn location(&self, bytes: Range<usize>) -> Location {
        Location::new(self.file.as_deref(), self.text.as_bytes(), bytes)
    }

    /// Converts an I/O error of `path`. `written` is the setting that names `path` or a folder
    /// above it.
    fn of_path(
        &self,
        written: &Written,
        path: PathBuf,
        (problem, source): (String, Option<IoCause>),
    ) -> Error {
        let Written { key, value, path: named } = written;
        if storage::is_url(named) || named.exists() {
            let at =
                self.find(key).map_or(String::new(), |bytes| format!(", {}", self.location(bytes)));
            return Error::Io { path, problem: format!("{problem} ({key}{at})"), source };
        }
        let mut text =
            format!("is {value:?}, but the path {} cannot be read: {problem}", path.display());
        if value.is_relative() {
            let from = match &self.file {
                Some(_) => "the pipeline file's folder",
                None => "the folder",
            };
            let base =
                std::path::absolute(self.base.join(".")).unwrap_or_else(|_| self.base.clone());
            text += &format!("; relative paths begin at {from} {}", base.display());
            if value.exists() {
                text += ", not at the working directory, where a file with this path exists";
            }
        }
        self.locate(Error::config(key, text))
    }

    /// Setting of `[source]` whose path is `path`, a folder above it (the closest one), or a
    /// pattern for files in the folder `path`.
    fn written(&self, path: &Path) -> Option<Written> {
        let table = DeTable::parse(&self.text).ok()?;
        let source = table.get_ref().get("source")?.get_ref();
        let mut found = Vec::new();
        strings(source, "source", &mut found);
        let written =
            found.into_iter().filter(|(_, value)| !value.is_empty()).map(|(key, value)| {
                let value = PathBuf::from(value);
                Written { key, path: storage::join(&self.base, &value), value }
            });
        let near = written.filter_map(|written| {
            // A pattern, such as `a/*.tar`, names files in its parent folder. So if this folder
            // cannot be read, the error belongs to the setting with the pattern.
            let pattern = written.path.parent() == Some(path);
            let parts = written.path.components().count();
            (pattern || path.starts_with(&written.path)).then_some((!pattern, parts, written))
        });
        near.max_by_key(|(below, parts, _)| (*below, *parts)).map(|(_, _, written)| written)
    }

    /// Returns the byte range of a key with its value, or of a list element. If the key is not in
    /// the text, returns the range of the closest table around it. Returns `None` for unknown keys.
    fn find(&self, key: &str) -> Option<Range<usize>> {
        let table = DeTable::parse(&self.text).ok()?;
        match in_table(table.get_ref(), &as_written(table.get_ref(), key)) {
            None if SECTIONS.iter().any(|section| rest_after(key, section).is_some()) => Some(0..0),
            found => found,
        }
    }

    fn key_as_written(&self, key: &str) -> String {
        DeTable::parse(&self.text)
            .map_or_else(|_| key.into(), |table| as_written(table.get_ref(), key))
    }
}

/// Key of a repeated key or section header, with a message. `bytes` is the range of its last name.
fn repeated(text: &str, bytes: Range<usize>) -> (String, String) {
    /// Name of a key that replaces the repeated one, so that the text before it can be parsed.
    const PLACE: &str = "feedwater-repeated-key";
    let name = text.get(bytes.clone()).unwrap_or_default().trim_matches(['"', '\'']);
    let before = text.get(..bytes.start).unwrap_or_default();
    let found = [" = 0", " = 0 }", " = 0 }]", "]", "]]"].into_iter().find_map(|end| {
        let text = format!("{before}{PLACE}{end}");
        let table = DeTable::parse(&text).ok()?;
        let mut at_place = |key: &str, _: &DeValue<'_>| (key == PLACE).then(String::new);
        in_each(table.get_ref(), &mut at_place).map(|(key, _)| (key, end))
    });
    let (key, is_header) = match found {
        Some((key, end)) => (key.replace(PLACE, name), end.starts_with(']')),
        None => (name.into(), false),
    };
    let problem = match is_header {
        true => format!("is given twice; write its settings below one header [{key}]"),
        false => "is given twice; remove one of the two".into(),
    };
    (key, problem)
}

/// Error message for a number that is too large for a setting.
fn number(_: &str, value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::Integer(it) if i64::from_str_radix(it.as_str(), it.radix()).is_err() => {
            let (bound, most) = match it.as_str().starts_with('-') {
                true => ("at least", i64::MIN),
                false => ("at most", i64::MAX),
            };
            Some(format!("must be {bound} {most}, is {it}"))
        }
        DeValue::Float(it) if !it.as_str().contains("inf") => {
            let is_finite = it.as_str().parse().is_ok_and(f64::is_finite);
            let found = it.as_str();
            (!is_finite && !found.contains("nan")).then(|| {
                format!("must be a number from {:e} to {:e}, is {found}", f64::MIN, f64::MAX)
            })
        }
        _ => None,
    }
}

/// Searches the values below a table, in their order. `find` gets the name and the value of each
/// entry of a table, and each element of a list with an empty name. Returns the key of the first
/// value for which `find` returns a text, and this text.
fn in_each(
    table: &DeTable<'_>,
    find: &mut impl FnMut(&str, &DeValue<'_>) -> Option<String>,
) -> Option<(String, String)> {
    table.iter().find_map(|(name, value)| {
        let found = in_one(name.get_ref(), value.get_ref(), find);
        found.map(|(key, text)| (join(name.get_ref(), &key), text))
    })
}

/// Like [`in_each`] for one value. The key is relative to the value.
fn in_one(
    name: &str,
    value: &DeValue<'_>,
    find: &mut impl FnMut(&str, &DeValue<'_>) -> Option<String>,
) -> Option<(String, String)> {
    if let Some(text) = find(name, value) {
        return Some((String::new(), text));
    }
    match value {
        DeValue::Table(table) => in_each(table, find),
        DeValue::Array(items) => items.iter().enumerate().find_map(|(number, item)| {
            let found = in_one("", item.get_ref(), find);
            found.map(|(key, text)| (join(&format!("[{number}]"), &key), text))
        }),
        _ => None,
    }
}

/// Error that points at the first byte that is not UTF-8.
fn not_utf8(path: &Path, bytes: &[u8]) -> Error {
    let valid = bytes.utf8_chunks().next().map_or(0, |chunk| chunk.valid().len());
    let way_out = match bytes {
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => "it looks like UTF-16",
        _ => "a pipeline file is UTF-8",
    };
    let byte = bytes.get(valid).copied().unwrap_or_default();
    let problem = format!(
        "byte {byte:#04x} at offset {valid} is not UTF-8: {way_out}; save the file as UTF-8"
    );
    let at = Some(Box::new(Location::new(Some(path), bytes, valid..valid + 1)));
    Error::Config(ConfigError { at, ..ConfigError::new("", problem) })
}

/// Returns the rest of a key after a leading `name`, or `None` if the key does not begin with the
/// complete name.
fn rest_after<'a>(key: &'a str, name: &str) -> Option<&'a str> {
    key.strip_prefix(name).filter(|rest| rest.is_empty() || rest.starts_with(['.', '[', ':']))
}

/// Returns the key in the form in which the text contains it, which may have former names of keys.
fn as_written(table: &DeTable<'_>, key: &str) -> String {
    let (section, rest) = split(key);
    let former = |table: &DeTable<'_>, section, key| {
        former::former(section, key)
            .filter(|former| !table.contains_key(key) && table.contains_key(*former))
    };
    if let Some(former) = former(table, "", section) {
        return format!("{former}{rest}");
    }
    let keys = table.get(section).and_then(|value| value.get_ref().as_table());
    let (name, rest) = split(rest.strip_prefix('.').unwrap_or_default());
    match keys.and_then(|keys| former(keys, section, name)) {
        Some(former) => format!("{section}.{former}{rest}"),
        None => key.into(),
    }
}

/// Splits a key after its first name.
fn split(key: &str) -> (&str, &str) {
    key.split_at(key.find(['.', '[', ':']).unwrap_or(key.len()))
}

fn in_table(table: &DeTable<'_>, key: &str) -> Option<Range<usize>> {
    // A quoted key in the file may contain dots, so the longest matching key is used.
    let fitting = table.iter().filter(|(name, _)| rest_after(key, name.get_ref()).is_some());
    let (name, value) = fitting.max_by_key(|(name, _)| name.get_ref().len())?;
    let rest = &key[name.get_ref().len()..];
    let own = match value.get_ref() {
        // The range reaches from the key to the end of the value. For a table with a header, the
        // range is only the key in the header.
        DeValue::Table(_) | DeValue::Array(_) if value.span().start <= name.span().start => {
            name.span()
        }
        _ => name.span().start..value.span().end,
    };
    Some(in_value(value.get_ref(), rest).unwrap_or(own))
}

fn in_value(value: &DeValue<'_>, rest: &str) -> Option<Range<usize>> {
    match value {
        DeValue::Table(table) => in_table(table, rest.strip_prefix('.')?),
        DeValue::Array(items) => {
            let (number, rest) = rest.strip_prefix('[')?.split_once(']')?;
            let item = items.get(number.parse::<usize>().ok()?)?;
            Some(in_value(item.get_ref(), rest).unwrap_or(item.span()))
        }
        _ => None,
    }
}

/// Collects all strings below a value, with their keys.
fn strings(value: &DeValue<'_>, key: &str, found: &mut Vec<(String, String)>) {
    match value {
        DeValue::String(text) => found.push((key.into(), text.to_string())),
        DeValue::Array(items) => {
            for (number, item) in items.iter().enumerate() {
                strings(item.get_ref(), &format!("{key}[{number}]"), found);
            }
        }
        DeValue::Table(table) => {
            for (name, value) in table {
                strings(value.get_ref(), &format!("{key}.{}", name.get_ref()), found);
            }
        }
        _ => {}
    }
}
