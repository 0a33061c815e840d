//! Reads CSV and TSV tables with a header.

use std::cell::Cell;
use std::io::{self, Read};
use std::rc::Rc;

use csv::{ReaderBuilder, StringRecord};

use super::blocks::{Blocks, MOST_LINE_BYTES};
use super::format::PATHS;
use super::rows::Rows;
use super::{FileListSettings, LineError, Samples, Written};
use crate::footprint::counted;

/// Whether the first line of a TSV contains the name of a path column.
pub fn has_header(first: &str) -> bool {
    first.split('\t').any(|name| PATHS.contains(&name.trim().trim_matches('"')))
}

pub fn read(
    blocks: &mut Blocks,
    separator: char,
    settings: &FileListSettings,
    samples: &mut Samples,
) -> Result<(), LineError> {
    let separator = settings.separator.unwrap_or(separator);
    let row_bytes = Rc::new(Cell::new(0));
    let blocks = RowReader { blocks, row_bytes: row_bytes.clone() };
    let mut rows =
        ReaderBuilder::new().delimiter(separator as u8).has_headers(false).from_reader(blocks);
    let mut row = StringRecord::new();
    let mut next = |row: &mut StringRecord| {
        row_bytes.set(0);
        let begin = rows.position().line();
        rows.read_record(row).map_err(|error| wrong(error, begin))
    };
    if !next(&mut row)? {
        return Ok(());
    }
    let columns = Columns::find(&row, settings, samples.for_fields)?;
    if columns.label.is_none() && !samples.for_fields {
        samples.unlabelled = settings.unlabelled(row.iter().map(str::trim));
    }
    let names: Vec<String> = row.iter().map(|name| name.trim().to_string()).collect();
    let own = usize::from(columns.image.is_some()) + usize::from(columns.label.is_some());
    let has_more = samples.for_fields || names.len() > own;
    if has_more && Rows::is_narrow(names.len()) {
        samples.rows = Some(Rows::of_table(names, separator as u8));
    }
    while next(&mut row)? {
        let line = row.position().map_or(0, |position| position.line());
        // The reader fails at a row with fewer or more fields than the header, so the column
        // exists.
        let field = |column: usize| row.get(column).unwrap_or_default();
        let label = match columns.label.map(field) {
            None => Written::None,
            Some("") => return Err(LineError::new(line, "the label is empty")),
            Some(label) => Written::Text(label),
        };
        let path = columns.image.map_or("", field);
        samples.push(line, path, label, settings.labels)?;
        if let (Some(rows), Some(position)) = (&mut samples.rows, row.position()) {
            rows.push(position.byte());
        }
    }
    Ok(())
}

/// Reader of the text of a table that fails if a row is too long. Such a row usually results from
/// an unclosed quote.
struct RowReader<'a, 'b> {
    blocks: &'a mut Blocks<'b>,
    /// Number of bytes read from `blocks` for the current row. Bytes of the row that the parser had
    /// buffered before are not included.
    row_bytes: Rc<Cell<usize>>,
}

impl Read for RowReader<'_, '_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.row_bytes.get() > MOST_LINE_BYTES {
            let problem = format!(
                "a row has more than {MOST_LINE_BYTES} bytes, which is the maximum; check for \
                     an unclosed quote"
            );
            return Err(io::Error::other(problem));
        }
        let count = self.blocks.read(out)?;
        self.row_bytes.set(self.row_bytes.get() + count);
        Ok(count)
    }
}

struct Columns {
    /// Column of the path. `None` in a table of fields without such a column.
    image: Option<usize>,
    label: Option<usize>,
}

impl Columns {
    fn find(
        header: &StringRecord,
        settings: &FileListSettings,
        for_fields: bool,
    ) -> Result<Self, LineError> {
        let find = |wanted: &str| {
            let mut found = header.iter().enumerate().filter(|(_, name)| name.trim() == wanted);
            match (found.next(), found.next()) {
                (Some(_), Some(_)) => {
                    Err(LineError::new(1, format!("two columns have the name {wanted:?}")))
                }
                (column, _) => Ok(column.map(|(column, _)| column)),
            }
        };
        let has = || header.iter().map(str::trim).collect::<Vec<_>>().join(", ");
        let names = settings.images();
        let mut image = None;
        for name in &names {
            image = image.or(find(name)?);
        }
        if for_fields && (image.is_some() || !settings.needs_path()) {
            return Ok(Self { image, label: None });
        }
        let image = image.ok_or_else(|| {
            let names = names.join(", ");
            let problem = format!(
                "the header must have a column of paths with one of the names {names}, but its \
                 columns are {}; {}",
                has(),
                way_out(header)
            );
            LineError::new(1, problem)
        })?;
        let label = match settings.label() {
            None => None,
            Some((name, must)) => match find(name)? {
                None if must => {
                    let problem =
                        format!("source.label is {name:?}, but the columns are {}", has());
                    return Err(LineError::new(1, problem));
                }
                found => found,
            },
        };
        Ok(Self { image: Some(image), label })
    }
}

/// What to do about a header without a column of paths.
fn way_out(header: &StringRecord) -> String {
    let first = header.get(0).unwrap_or_default();
    match [';', '\t', '|', ','].into_iter().find(|&it| first.contains(it)) {
        Some(separator) if header.len() == 1 => {
            let separator = separator.to_string();
            format!("set separator = {separator:?} under [source] if it separates the columns")
        }
        _ => "name the column of paths with image = \"…\" under [source]".into(),
    }
}

/// Converts an error. `line` is the start of the row; it is used if the error has no position.
fn wrong(error: csv::Error, line: u64) -> LineError {
    let line = error.position().map_or(line, |position| position.line());
    match error.kind() {
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => LineError::new(
            line,
            format!("the row has {}, but the header has {expected_len}", counted(*len, "field")),
        ),
        _ => LineError::new(line, error.to_string()),
    }
}
