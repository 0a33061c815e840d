//! Writes the value of a field into a cell.

use super::CellKind;
use super::format::{CellFormat, Pick, TEXT_LEN_BYTES, TooLong, Written, unfit};
use super::number::Number;
use crate::error::{DataError, Reason};
use crate::footprint::counted;

/// Writer for one cell. Numbers are appended in row-major order. Lists are entered and left, so
/// that the writer can check the shape.
pub struct Writer<'a> {
    pub format: &'a CellFormat,
    cell: &'a mut [u8],
    /// Number of bytes written.
    filled: usize,
    /// Number of lists around the next number or text.
    depth: usize,
    truncated: bool,
    choice: Choice,
    /// Texts of the value.
    texts: Texts,
}

/// Which texts of a value are written.
#[derive(Clone, Copy, PartialEq)]
enum Choice {
    /// All, of which a column of the kind `Text` takes only one that is not in a list.
    All,
    /// None: texts are counted.
    Count,
    /// The text with this number.
    Take(usize),
}

/// Texts of a value.
#[derive(Clone, Copy, Default)]
struct Texts {
    /// Number of texts.
    count: usize,
    /// Size of all texts in bytes.
    bytes: usize,
    /// Number of texts in the cell.
    kept: usize,
    /// Whether a text did not fit the cell, so that no later one is written.
    is_full: bool,
}

impl<'a> Writer<'a> {
    pub fn new(format: &'a CellFormat, cell: &'a mut [u8]) -> Self {
        let (choice, texts) = (Choice::All, Texts::default());
        Self { format, cell, filled: 0, depth: 0, truncated: false, choice, texts }
    }

    /// Whether the column takes one of several texts.
    pub fn picks(&self) -> bool {
        self.format.kind == CellKind::Text && self.format.pick.is_some()
    }

    /// Whether a list may contain texts.
    pub fn takes_lists_of_texts(&self) -> bool {
        self.format.kind == CellKind::Texts || self.choice != Choice::All
    }

    /// Counts the texts of the value, which is then written again with [`take`](Self::take).
    pub fn count_texts(&mut self) {
        self.choice = Choice::Count;
    }

    /// Chooses one of the texts that were counted. Returns false if there is none.
    pub fn take(&mut self, draw: u64) -> bool {
        let count = self.texts.count;
        let chosen = match self.format.pick {
            // The bias is below 2^-32 for fewer than 2^32 texts.
            Some(Pick::Random) => ((u128::from(draw) * count as u128) >> 64) as usize,
            _ => 0,
        };
        self.choice = Choice::Take(chosen);
        self.texts = Texts::default();
        count > 0
    }

    /// Whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.filled == 0
    }

    /// Fills an array with the value of missing numbers: NaN, or 0 in a column of integers.
    pub fn fill_missing(&mut self) {
        let element = self.format.element;
        for to in self.cell.chunks_exact_mut(element.bytes()) {
            if Number::Float(f64::NAN).write(element, to).is_err() {
                to.fill(0);
            }
        }
    }

    /// Writes a text.
    pub fn text(&mut self, text: &str) -> Result<(), DataError> {
        match self.format.kind {
            CellKind::Text => {
                let number = self.texts.count;
                self.texts.count += 1;
                match self.choice {
                    Choice::Count => return Ok(()),
                    Choice::Take(chosen) if chosen != number => return Ok(()),
                    _ => {}
                }
                self.append_bytes(text.as_bytes(), boundary(text, self.format.max_len))
            }
            CellKind::Texts => {
                self.append_text(text);
                Ok(())
            }
            CellKind::Bytes => self.append_bytes(text.as_bytes(), self.format.max_len),
            CellKind::Array | CellKind::List | CellKind::Lists => Err(self.mismatch(&quoted(text))),
        }
    }

    /// Writes bytes. A text column requires UTF-8.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), DataError> {
        match self.format.kind {
            CellKind::Bytes => self.append_bytes(bytes, self.format.max_len),
            CellKind::Text | CellKind::Texts => match std::str::from_utf8(bytes) {
                Ok(text) => self.text(text),
                Err(error) => {
                    Err(unfit(format!("the text is not UTF-8 at byte {}", error.valid_up_to())))
                }
            },
            CellKind::Array | CellKind::List | CellKind::Lists => {
                Err(self.mismatch(&counted(bytes.len() as u64, "byte")))
            }
        }
    }

    /// Appends a text to several texts, as far as it fits. [`finish`](Self::finish) reports texts
    /// that do not fit.
    fn append_text(&mut self, text: &str) {
        self.texts.count += 1;
        self.texts.bytes = self.texts.bytes.saturating_add(text.len());
        let Texts { kept, is_full, .. } = self.texts;
        if is_full || kept == self.format.max_texts {
            return;
        }
        let end = boundary(text, self.format.max_len - self.filled);
        self.texts.is_full = end < text.len();
        if end == 0 && !text.is_empty() {
            return;
        }
        self.cell[self.filled..][..end].copy_from_slice(&text.as_bytes()[..end]);
        self.filled += end;
        let place = self.format.max_len + kept * TEXT_LEN_BYTES;
        self.cell[place..][..TEXT_LEN_BYTES].copy_from_slice(&(end as u32).to_ne_bytes());
        self.texts.kept += 1;
    }

    /// Writes bytes, and at most `end` of them if they are too many.
    fn append_bytes(&mut self, bytes: &[u8], end: usize) -> Result<(), DataError> {
        let mut kept = bytes.len();
        if kept > self.format.max_len {
            self.too_long(kept, "byte", "max_len")?;
            kept = end;
        }
        self.cell[..kept].copy_from_slice(&bytes[..kept]);
        self.filled = kept;
        Ok(())
    }

    /// Writes a number, or fills an array with it.
    pub fn numbers(&mut self, number: Number) -> Result<(), DataError> {
        if self.format.kind != CellKind::Array || self.depth > 0 {
            return self.number(number);
        }
        self.depth = self.axes();
        let written = (0..self.format.entry_len()).try_for_each(|_| self.number(number));
        self.depth = 0;
        written
    }

    /// Writes a number.
    pub fn number(&mut self, number: Number) -> Result<(), DataError> {
        let takes_none =
            matches!(self.format.kind, CellKind::Text | CellKind::Texts | CellKind::Bytes);
        if takes_none || self.depth != self.axes() {
            let number = match number {
                Number::Integer(number) => number.to_string(),
                Number::Float(number) => number.to_string(),
            };
            let error = self.mismatch(&match self.depth {
                0 => format!("the number {number}"),
                _ => format!("a list with the number {number} in it"),
            });
            let is_one = self.format.kind == CellKind::Array && self.format.entry_len() == 1;
            return Err(match self.depth {
                0 if is_one => unfit(format!("{}; remove shape for one number", error.problem)),
                _ => error,
            });
        }
        let size = self.format.element.bytes();
        let Some(to) = self.cell.get_mut(self.filled..self.filled + size) else {
            // The shape is checked when the list is left.
            return Ok(());
        };
        number.write(self.format.element, to).map_err(|problem| {
            unfit(format!(
                "{problem}, so the column of {} cannot hold it; choose another dtype",
                self.format.element
            ))
        })?;
        self.filled += size;
        Ok(())
    }

    /// Writes a flat list of `len` numbers, which fills the shape of the column in row-major order.
    pub fn flat(&mut self, len: usize, number: impl Fn(usize) -> Number) -> Result<(), DataError> {
        let entry = self.format.entry_len();
        let kept = match self.format.kind {
            CellKind::Array if len == entry => len,
            CellKind::List if len.is_multiple_of(entry) => {
                if len / entry > self.format.max_len {
                    self.too_long(len / entry, "entry", "max_len")?;
                }
                len.min(self.format.max_len * entry)
            }
            _ => return Err(self.mismatch(&format!("a list of {}", counted(len as u64, "number")))),
        };
        self.depth = self.axes();
        let written = (0..kept).try_for_each(|at| self.number(number(at)));
        self.depth = 0;
        written
    }

    /// Writes `len` numbers of this shape.
    pub fn tensor(
        &mut self,
        shape: &[usize],
        len: usize,
        number: impl Fn(usize) -> Number,
    ) -> Result<(), DataError> {
        let entry = match self.format.kind {
            CellKind::List => shape.get(1..),
            _ => Some(shape),
        };
        // `numpy.array([])` does not know the shape of its entries.
        let has_no_entries = self.format.kind == CellKind::List && shape == [0];
        let fits = has_no_entries || entry == Some(&self.format.dims[..]);
        if !fits || shape.iter().product::<usize>() != len {
            let is_entry = self.format.kind == CellKind::List && shape == self.format.dims;
            let remedy = if is_entry { " (one entry; write a list of entries)" } else { "" };
            return Err(self.mismatch(&format!("an array of shape {shape:?}{remedy}")));
        }
        self.flat(len, number)
    }

    /// Writes entries of this shape, with `len` numbers together. Entries are neither joined nor
    /// divided, even if the number of numbers would fit.
    pub fn entries(
        &mut self,
        shape: &[usize],
        len: usize,
        number: impl Fn(usize) -> Number,
    ) -> Result<(), DataError> {
        let each = shape.iter().product::<usize>().max(1);
        let count = len / each;
        let is_entry = |dims: &[usize]| dims == shape || dims == [each];
        let dims = &self.format.dims[..];
        let fits = match self.format.kind {
            CellKind::List => is_entry(dims),
            CellKind::Array if count == 1 && is_entry(dims) => true,
            CellKind::Array => {
                dims.split_first().is_some_and(|(first, rest)| *first == count && is_entry(rest))
            }
            CellKind::Text | CellKind::Texts | CellKind::Bytes | CellKind::Lists => false,
        };
        if fits {
            return self.flat(len, number);
        }
        let found = match shape {
            [] => format!("a list of {}", counted(count as u64, "number")),
            _ => format!("a list of {} of shape {shape:?}", counted(count as u64, "entry")),
        };
        let problem = self.mismatch(&found).problem;
        Err(unfit(match (self.format.kind, shape) {
            (CellKind::List, []) => format!("{problem}; remove shape"),
            (CellKind::List, _) => format!("{problem}; set shape = {shape:?}"),
            (_, []) => format!("{problem}; choose the kind list, without shape"),
            (_, _) => format!("{problem}; choose the kind list with shape = {shape:?}"),
        }))
    }

    /// Begins a list.
    pub fn enter(&mut self) -> Result<(), DataError> {
        let kind = self.format.kind;
        if matches!(kind, CellKind::Text | CellKind::Bytes) && self.choice == Choice::All {
            let first = self.format.field.first_entry().to_string();
            let problem = self.mismatch("a list").problem;
            let others = match kind {
                CellKind::Text => {
                    "for all texts, choose the kind texts (in Python fw.texts); for one of them, \
                     set pick = \"first\" or \"random\"; "
                }
                _ => "",
            };
            return Err(unfit(format!(
                "{problem}; {others}for its first entry, set field = {first:?}"
            )));
        }
        if self.depth >= self.axes() {
            return Err(self.mismatch(if self.depth == 0 { "a list" } else { "a list of lists" }));
        }
        self.depth += 1;
        Ok(())
    }

    /// Ends a list of `len` entries.
    pub fn leave(&mut self, len: usize) -> Result<(), DataError> {
        self.depth -= 1;
        if self.takes_lists_of_texts() {
            return Ok(());
        }
        let is_list = self.format.kind == CellKind::List;
        if is_list && self.depth == 0 {
            return match len > self.format.max_len {
                true => self.too_long(len, "entry", "max_len"),
                false => Ok(()),
            };
        }
        let wanted = self.format.dims[self.depth - usize::from(is_list)];
        if len != wanted {
            let found = format!("a list of {}", counted(len as u64, "entry"));
            return Err(self.mismatch(&format!("{found} in place of {wanted}")));
        }
        Ok(())
    }

    /// Ends the cell.
    pub fn finish(mut self) -> Result<Written, DataError> {
        if self.format.kind == CellKind::Texts {
            let Texts { count, bytes, .. } = self.texts;
            if count > self.format.max_texts {
                self.too_long(count, "text", "max_texts")?;
            }
            if bytes > self.format.max_len {
                self.too_long(bytes, "byte", "max_len")?;
            }
        }
        let Self { format, filled, truncated, texts, .. } = self;
        let len = match format.kind {
            CellKind::Array => 1,
            CellKind::Texts => texts.kept,
            _ => filled / format.entry_bytes().max(1),
        };
        Ok(Written { len, truncated })
    }

    /// Number of lists around each number or text.
    fn axes(&self) -> usize {
        let is_list = self.format.kind == CellKind::List || self.takes_lists_of_texts();
        self.format.dims.len() + usize::from(is_list)
    }

    /// Handles a value that is too long. `key` is the setting with the maximum.
    fn too_long(&mut self, len: usize, unit: &str, key: &str) -> Result<(), DataError> {
        if self.format.too_long == TooLong::Truncate {
            self.truncated = true;
            return Ok(());
        }
        let most = if unit == "text" { self.format.max_texts } else { self.format.max_len };
        let (len, most) = (counted(len as u64, unit), counted(most as u64, unit));
        let mut problem = format!("the value has {len}, and the column's {key} is {most}");
        if self.format.too_long == TooLong::Error {
            problem += &format!("; raise {key}, or set too_long = \"truncate\" or \"skip\"");
        }
        Err(DataError::new(Reason::TooLong, problem))
    }

    /// Error for a value that does not have the column's type or shape.
    pub fn mismatch(&self, found: &str) -> DataError {
        unfit(format!("the value is {found}, but the column takes {}", self.format.wanted()))
    }
}

/// The last boundary between characters of a text that is at most `most`, in bytes.
fn boundary(text: &str, most: usize) -> usize {
    let mut ends = (0..=most.min(text.len())).rev();
    ends.find(|&end| text.is_char_boundary(end)).unwrap_or(0)
}

/// A text in quotes, cut to 40 characters.
pub fn quoted(text: &str) -> String {
    match text.char_indices().nth(40) {
        Some((end, _)) => format!("the text {:?}…", &text[..end]),
        None => format!("the text {text:?}"),
    }
}
