//! Reads the fields of a sample from its row of a table, or from its line of JSON.

use std::collections::HashSet;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use csv_core::{Reader as Parser, ReaderBuilder};

use super::blocks::{MARK, Text};
use crate::error::{DataError, Error, Reason, Redacted, Result, reserve};
use crate::field::{Field, FieldKind, FieldValue};
use crate::source::custom::PutField;
use crate::storage::{File, Stamp, Storage};

/// Position of each sample's row in the list.
#[derive(Debug)]
pub(super) struct Rows {
    /// Names of the columns of a table, or the keys in JSON lines.
    names: Vec<String>,
    /// The names, while the list is read.
    known: HashSet<String>,
    /// Separator of the columns of a table. `None` for JSON lines.
    separator: Option<u8>,
    /// Parsers that are not in use. Creating a parser takes longer than parsing a row.
    parsers: Mutex<Vec<Parser>>,
    /// Offset of each sample's row in the text without its byte-order mark, and at the end the
    /// length of this text, in bytes.
    begins: Vec<u64>,
    /// Size of the byte-order mark, in bytes.
    mark: u64,
    text: RowText,
}

/// Text of the list.
#[derive(Debug)]
enum RowText {
    /// The list was not read completely yet.
    Unknown,
    /// A local file, with its version when it was read.
    File(File, Stamp),
    /// Text of a list at a URL.
    Fetched(Vec<u8>),
}

/// Maximum number of columns of a table with fields.
const MOST_COLUMNS: usize = 4096;

/// Maximum number of keys of JSON lines that are listed as fields.
const MOST_KEYS: usize = 1000;

impl Rows {
    /// Rows of a table with these columns.
    pub fn of_table(names: Vec<String>, separator: u8) -> Self {
        let (separator, parsers) = (Some(separator), Mutex::new(Vec::new()));
        let known = HashSet::new();
        Self {
            names,
            known,
            separator,
            parsers,
            begins: Vec::new(),
            mark: 0,
            text: RowText::Unknown,
        }
    }

    /// Lines of JSON.
    pub fn of_json() -> Self {
        Self { separator: None, ..Self::of_table(Vec::new(), b',') }
    }

    /// Adds the row of the next sample, which begins at this byte of the text.
    pub fn push(&mut self, begin: u64) {
        self.begins.push(begin);
    }

    /// Adds the keys of a line of JSON.
    pub fn add_keys<'a>(&mut self, keys: impl Iterator<Item = &'a String>) {
        for key in keys {
            if self.names.len() < MOST_KEYS && !self.known.contains(key) {
                self.known.insert(key.clone());
                self.names.push(key.clone());
            }
        }
    }

    /// Whether a table with `columns` columns has fields. Parsing a row needs memory for each
    /// column.
    pub fn is_narrow(columns: usize) -> bool {
        columns <= MOST_COLUMNS
    }

    /// Number of columns or keys.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Opens the list for reading rows.
    pub fn finish(&mut self, list: &Path, storage: &Storage, text: Text) -> Result<()> {
        self.known = HashSet::new();
        self.mark = text.bytes.start;
        self.begins.push(text.bytes.end - text.bytes.start);
        self.begins.shrink_to_fit();
        self.text = match text.fetched {
            Some(text) => RowText::Fetched(text),
            None => {
                let wrong = |error| Error::io(list, &error);
                let file = storage.open_pooled(list).map_err(wrong)?;
                let stamp = file.stamp().map_err(wrong)?;
                if text.stamp != Some(stamp) {
                    let problem = format!("{} was changed while it was read", list.display());
                    return Err(Error::config("source.list", problem));
                }
                RowText::File(file, stamp)
            }
        };
        Ok(())
    }

    /// Memory in bytes.
    pub fn memory_bytes(&self) -> u64 {
        let names: usize = self.names.iter().map(|it| it.capacity() + size_of::<String>()).sum();
        let text = match &self.text {
            RowText::Fetched(text) => text.capacity(),
            RowText::Unknown | RowText::File(..) => 0,
        };
        (names + self.begins.capacity() * size_of::<u64>() + text) as u64
    }

    /// Whether there may be more fields than [`schema`](Self::schema) lists.
    pub fn is_open(&self) -> bool {
        self.separator.is_none() && self.names.len() >= MOST_KEYS
    }

    /// The columns of a table, or the keys of JSON lines.
    pub fn schema(&self) -> impl Iterator<Item = Field> {
        let kind = if self.separator.is_some() { FieldKind::Text } else { FieldKind::Json };
        self.names.iter().map(move |name| Field { name: name.clone(), kind })
    }

    /// Reads the wanted fields of a sample. `list` is the path of the list, for messages.
    pub fn read_fields(
        &self,
        list: &Path,
        index: u64,
        wanted: &[&str],
        buffer: &mut Vec<u8>,
        limit: u64,
        put: &mut PutField<'_>,
    ) -> Result<(), DataError> {
        self.read(index, buffer, limit).map_err(|error| {
            let list = Redacted::path(list);
            DataError::new(error.reason, format!("its row in {list} {}", error.problem))
        })?;
        match self.separator {
            Some(separator) => self.put(buffer, separator, wanted, put),
            None => {
                let values = wanted.iter().enumerate();
                let line = buffer.trim_ascii();
                // Blank lines may follow the sample's line.
                let line = line.split(|&byte| byte == b'\n').next().unwrap_or_default();
                let mut values =
                    values.map(|(number, name)| (number, FieldValue::JsonMember(line, name)));
                values.try_for_each(|(number, value)| put(number, value))
            }
        }
    }

    /// Reads the row of a sample into `buffer`.
    fn read(&self, index: u64, buffer: &mut Vec<u8>, limit: u64) -> Result<(), DataError> {
        let wrong = |problem: String| DataError::new(Reason::Unreadable, problem);
        let index = index as usize;
        let (begin, end) = (self.begins[index], self.begins[index + 1]);
        let len = end - begin;
        if len > limit {
            let problem = format!("has {len} bytes; limits.max_field_bytes is {limit}; raise it");
            return Err(DataError::new(Reason::Oversized, problem));
        }
        let begin = begin + self.mark;
        reserve::renew(buffer, len as usize)?;
        match &self.text {
            RowText::Unknown => return Err(wrong("was not read".into())),
            RowText::Fetched(text) => {
                buffer.copy_from_slice(&text[begin as usize..(begin + len) as usize]);
            }
            RowText::File(file, stamp) => {
                let failed = |error: std::io::Error| wrong(format!("cannot be read: {error}"));
                let count = file.read_at(buffer, begin).map_err(failed)?;
                if count < buffer.len() || file.stamp().map_err(failed)? != *stamp {
                    return Err(wrong("was changed after it was opened".into()));
                }
            }
        }
        Ok(())
    }

    /// Passes the wanted fields of a row to `put`.
    fn put(
        &self,
        row: &[u8],
        separator: u8,
        wanted: &[&str],
        put: &mut PutField<'_>,
    ) -> Result<(), DataError> {
        let free = self.parsers.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let create = || ReaderBuilder::new().delimiter(separator).build();
        let mut parser = free.unwrap_or_else(create);
        parser.reset();
        let (mut text, mut ends) = (Vec::new(), Vec::new());
        reserve::resize(&mut text, row.len())?;
        reserve::resize(&mut ends, self.names.len() + 1)?;
        if row.starts_with(MARK) {
            // The parser drops a byte-order mark at the beginning of its input. Here the mark
            // belongs to the row, so a blank line, which the parser skips, precedes it.
            parser.read_record(b"\n", &mut text, &mut ends);
        }
        // The second call tells the parser that the input has ended.
        let (_, used, len, mut fields) = parser.read_record(row, &mut text, &mut ends);
        if fields <= self.names.len() {
            fields += parser.read_record(&row[used..], &mut text[len..], &mut ends[fields..]).3;
        }
        self.parsers.lock().unwrap_or_else(PoisonError::into_inner).push(parser);
        let value = |column: usize| {
            let begin = if column == 0 { 0 } else { ends[column - 1] };
            let bytes = text.get(begin..ends[column]).filter(|_| column < fields)?;
            str::from_utf8(bytes).ok()
        };
        for (number, name) in wanted.iter().enumerate() {
            let column = self.names.iter().position(|it| it == name);
            if let Some(value) = column.and_then(value) {
                put(number, FieldValue::Text(value))?;
            }
        }
        Ok(())
    }
}
