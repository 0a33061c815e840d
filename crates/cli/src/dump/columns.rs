//! Files with the columns of batches besides images and labels.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use feedwater::ElementType;
use feedwater::internals::file::AtomicFile;
use feedwater::loader::{Batch, Column};
use feedwater::plan::CellKind;

use crate::npy::NpyWriter;
use crate::{CommandError, io_failure};

/// Columns that are written elsewhere: images to `images.npy`, labels to `samples.json`.
const WRITTEN_ELSEWHERE: [&str; 2] = ["image", "label"];

/// Writes each column to a file in a folder: texts as a list in JSON, several texts per sample as a
/// list of lists, and other columns as an array
/// of NumPy, bf16 as f32. Lists, points, boxes and bytes have a second array with their offsets.
pub struct ColumnFiles {
    folder: PathBuf,
    columns: Vec<ColumnFile>,
}

/// Files of one column.
struct ColumnFile {
    name: String,
    values: Values,
    offsets: Vec<Array>,
}

enum Values {
    Array(Array),
    Texts { path: PathBuf, file: AtomicFile, count: usize },
}

/// Array of NumPy.
struct Array {
    path: PathBuf,
    writer: NpyWriter,
    /// Number of entries of the lists so far, if the array holds offsets.
    entries: i64,
}

impl ColumnFiles {
    /// Writes to `folder`, which is created for the first column.
    pub fn new(folder: PathBuf) -> Self {
        Self { folder, columns: Vec::new() }
    }

    /// Appends the columns of a batch.
    pub fn append(&mut self, batch: &Batch) -> Result<(), CommandError> {
        for column in batch.columns().filter(|it| !WRITTEN_ELSEWHERE.contains(&it.name())) {
            let place = self.columns.iter().position(|it| it.name == column.name());
            let place = match place {
                Some(place) => place,
                None => {
                    let created = ColumnFile::create(&self.folder, &column);
                    self.columns.push(created.map_err(|(path, error)| io_failure(&path, &error))?);
                    self.columns.len() - 1
                }
            };
            self.columns[place].append(batch, &column)?;
        }
        Ok(())
    }

    /// Completes the files and gives them their final names. Returns their paths.
    pub fn commit(self) -> Result<Vec<PathBuf>, CommandError> {
        let mut finished = Vec::new();
        for ColumnFile { values, offsets, .. } in self.columns {
            match values {
                Values::Array(array) => finished.push(array.finish()?),
                Values::Texts { path, mut file, count } => {
                    let end: &[u8] = if count == 0 { b"[]\n" } else { b"\n]\n" };
                    let ended = file.write_all(end).and_then(|()| file.flush());
                    ended.map_err(|error| io_failure(&path, &error))?;
                    finished.push((path, file));
                }
            }
            for offsets in offsets {
                finished.push(offsets.finish()?);
            }
        }
        let commit = |(path, file): (PathBuf, AtomicFile)| match file.commit() {
            Ok(()) => Ok(path),
            Err(error) => Err(io_failure(&path, &error)),
        };
        finished.into_iter().map(commit).collect()
    }
}

impl ColumnFile {
    fn create(folder: &Path, column: &Column<'_>) -> Result<Self, (PathBuf, io::Error)> {
        fs::create_dir_all(folder).map_err(|error| (folder.to_path_buf(), error))?;
        let stem = file_name(column.name());
        let array = |ending: &str| {
            let path = folder.join(format!("{stem}{ending}"));
            match NpyWriter::create(&path) {
                Ok(writer) => Ok(Array { path, writer, entries: 0 }),
                Err(error) => Err((path, error)),
            }
        };
        let is_text = matches!(column.kind(), CellKind::Text | CellKind::Texts);
        let values = match is_text {
            true => {
                let path = folder.join(format!("{stem}.json"));
                match AtomicFile::create(&path) {
                    Ok(file) => Values::Texts { path, file, count: 0 },
                    Err(error) => return Err((path, error)),
                }
            }
            false => Values::Array(array(".npy")?),
        };
        let endings: &[&str] = match column.kind() {
            _ if is_text || !column.is_ragged() => &[],
            CellKind::Lists => &[".offsets.npy", ".lists.npy"],
            _ => &[".offsets.npy"],
        };
        let offsets = endings.iter().map(|ending| array(ending)).collect::<Result<_, _>>()?;
        Ok(Self { name: column.name().into(), values, offsets })
    }

    fn append(&mut self, batch: &Batch, column: &Column<'_>) -> Result<(), CommandError> {
        match &mut self.values {
            Values::Texts { path, file, count } => {
                for place in 0..batch.len() {
                    let before: &[u8] = if *count == 0 { b"[\n" } else { b",\n" };
                    let text = match column.texts(place) {
                        Some(texts) => serde_json::to_string(&texts.collect::<Vec<_>>()),
                        None => serde_json::to_string(column.text(place).unwrap_or_default()),
                    };
                    let text = text.map_err(io::Error::from);
                    let written = file.write_all(before).and(text);
                    let written = written.and_then(|text| file.write_all(text.as_bytes()));
                    written.map_err(|error| io_failure(path, &error))?;
                    *count += 1;
                }
            }
            Values::Array(array) => {
                let (element, shape) = (column.element_type(), column.shape());
                match column.bytes() {
                    Some(bytes) => array.append(element, &shape, bytes)?,
                    None => array.append(element, &shape, &column.to_host()?)?,
                }
            }
        }
        let offsets = [column.offsets(), column.text_offsets()];
        for (array, offsets) in self.offsets.iter_mut().zip(offsets.into_iter().flatten()) {
            // The offsets of all batches together begin with one 0.
            let skipped = usize::from(array.entries > 0 || array.has_rows());
            let shifted: Vec<i64> = offsets.iter().map(|it| it + array.entries).collect();
            array.entries = shifted.last().copied().unwrap_or(array.entries);
            let kept = &shifted[skipped.min(shifted.len())..];
            array.append(ElementType::I64, &[kept.len()], bytemuck::cast_slice(kept))?;
        }
        Ok(())
    }
}

impl Array {
    fn append(
        &mut self,
        element: ElementType,
        dims: &[usize],
        data: &[u8],
    ) -> Result<(), CommandError> {
        let appended = self.writer.append(element, dims, data);
        appended.map_err(|error| io_failure(&self.path, &error))
    }

    fn has_rows(&self) -> bool {
        self.writer.rows() > 0
    }

    fn finish(self) -> Result<(PathBuf, AtomicFile), CommandError> {
        match self.writer.finish() {
            Ok(file) => Ok((self.path, file)),
            Err(error) => Err(io_failure(&self.path, &error)),
        }
    }
}

/// Name of a column in the name of a file. Bytes of UTF-8 other than ASCII letters, digits, `_`,
/// `-` and `.` become `%` and two hexadecimal digits.
pub fn file_name(column: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    let encoded = column.bytes().map(|byte| match is_plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    });
    encoded.collect()
}
