//! Assembles the value of a field from the values of its leaves. Nested values become JSON.

use serde::de::IgnoredAny;

use super::row::{LeafRow, contradiction, oversized};
use super::schema::{Entries, Leaf, LeafKind, Node, Shape};
use super::value::{Number, decimal, number, text, unknown};
use crate::error::{DataError, Reason, reserve};
use crate::field::FieldValue;

/// Passes the value of a field to `put`, unless it is null. `rows` are the rows of its leaves.
pub fn pass(
    node: &Node,
    rows: &[LeafRow],
    buffer: &mut Vec<u8>,
    limit: u64,
    put: &mut dyn FnMut(FieldValue<'_>) -> Result<(), DataError>,
) -> Result<(), DataError> {
    buffer.clear();
    let row = rows.first().ok_or_else(contradiction)?;
    match &node.shape {
        Shape::Leaf(leaf) => match single(node, leaf, row)? {
            Some(bytes) => scalar(leaf, bytes, put),
            None => Ok(()),
        },
        Shape::List(entries, entry) if entry.is_number() => {
            let Shape::Leaf(leaf) = &entry.shape else { return Err(contradiction()) };
            let is_empty = match row.definitions[..] {
                [] => return Err(contradiction()),
                [level] if level < node.defined => return Ok(()),
                [level] => level < entries.definition,
                _ => false,
            };
            if is_empty {
                flat(leaf, 0, row, limit, put)
            } else {
                list(*entries, leaf, row, limit, put)
            }
        }
        _ => {
            let mut writer = Writer {
                rows,
                first: node.leaves.start,
                at: vec![Position::default(); rows.len()],
                out: buffer,
                limit,
            };
            let is_null = writer.next(node.leaves.start)?.1 < node.defined;
            writer.write(node, 0, 0)?;
            let mut ends = writer.at.iter().zip(rows);
            if ends.any(|(at, row)| at.entry != row.entries) {
                return Err(contradiction());
            }
            if is_null { Ok(()) } else { put(FieldValue::Json(buffer)) }
        }
    }
}

/// Value of a leaf that has one value in each row. `None` if it is null.
fn single<'a>(node: &Node, leaf: &Leaf, row: &'a LeafRow) -> Result<Option<&'a [u8]>, DataError> {
    let level = if leaf.definition == 0 {
        0
    } else {
        *row.definitions.first().ok_or_else(contradiction)?
    };
    if row.entries != 1 {
        return Err(contradiction());
    }
    if level < node.defined {
        return Ok(None);
    }
    row.value(leaf, 0).map(Some).ok_or_else(contradiction)
}

fn scalar(
    leaf: &Leaf,
    bytes: &[u8],
    put: &mut dyn FnMut(FieldValue<'_>) -> Result<(), DataError>,
) -> Result<(), DataError> {
    match leaf.kind {
        LeafKind::Text => put(FieldValue::Text(text(bytes)?)),
        LeafKind::Json => put(FieldValue::Json(bytes)),
        LeafKind::Bytes => put(FieldValue::Bytes(bytes)),
        LeafKind::Decimal(scale) => put(FieldValue::Text(&decimal(leaf.form, scale, bytes)?)),
        _ => put(match number(leaf, bytes).ok_or_else(unknown)? {
            Number::Integer(number) => FieldValue::Integer(number),
            Number::Short(number) => FieldValue::Float(number.into()),
            Number::Double(number) => FieldValue::Float(number),
        }),
    }
}

/// Passes a list of numbers that is not empty.
fn list(
    entries: Entries,
    leaf: &Leaf,
    row: &LeafRow,
    limit: u64,
    put: &mut dyn FnMut(FieldValue<'_>) -> Result<(), DataError>,
) -> Result<(), DataError> {
    if let Some(entry) = row.definitions.iter().position(|level| *level < leaf.definition) {
        if row.definitions[entry] < entries.definition {
            return Err(contradiction());
        }
        let problem = format!("entry {entry} of the list is null; write a number for it");
        return Err(DataError::new(Reason::Field, problem));
    }
    flat(leaf, row.entries, row, limit, put)
}

/// Passes the first `len` values of a row, which are numbers, as a flat list.
fn flat(
    leaf: &Leaf,
    len: usize,
    row: &LeafRow,
    limit: u64,
    put: &mut dyn FnMut(FieldValue<'_>) -> Result<(), DataError>,
) -> Result<(), DataError> {
    let is_float = matches!(leaf.kind, LeafKind::Float | LeafKind::Half);
    let is_short = is_float && leaf.form.width() != Some(8);
    let size = if is_short { 4 } else { 8 };
    if len as u64 * size > limit {
        return Err(oversized(limit));
    }
    let (mut integers, mut shorts, mut doubles) = (Vec::new(), Vec::new(), Vec::new());
    match (is_float, is_short) {
        (false, _) => reserve::reserve(&mut integers, len)?,
        (true, true) => reserve::reserve(&mut shorts, len)?,
        (true, false) => reserve::reserve(&mut doubles, len)?,
    }
    for entry in 0..len {
        let bytes = row.value(leaf, entry).ok_or_else(contradiction)?;
        match number(leaf, bytes).ok_or_else(unknown)? {
            Number::Short(number) => shorts.push(number),
            Number::Double(number) => doubles.push(number),
            Number::Integer(number) => integers.push(i64::try_from(number).map_err(|_| {
                let problem = format!("entry {entry} of the list is {number}, which has more than 64 bits with its sign");
                DataError::new(Reason::Field, problem)
            })?),
        }
    }
    match (is_float, is_short) {
        (false, _) => put(FieldValue::Integers(&integers)),
        (true, true) => put(FieldValue::Floats(&shorts)),
        (true, false) => put(FieldValue::Doubles(&doubles)),
    }
}

/// Next value of a leaf.
#[derive(Clone, Copy, Default)]
struct Position {
    /// Number among all values including nulls.
    entry: usize,
    /// Number among the values that are not null.
    value: usize,
}

/// Writes JSON.
struct Writer<'a> {
    rows: &'a [LeafRow],
    /// Number of the first leaf.
    first: usize,
    /// Position in each leaf.
    at: Vec<Position>,
    out: &'a mut Vec<u8>,
    /// Maximum size of the text in bytes.
    limit: u64,
}

impl Writer<'_> {
    /// Writes the next value of a node. Its first entry must have the repetition level
    /// `repetition`, and at least the definition level `definition` of the node above.
    fn write(&mut self, node: &Node, repetition: u8, definition: u8) -> Result<(), DataError> {
        let level = self.next(node.leaves.start)?.1;
        if level < definition {
            return Err(contradiction());
        }
        if level < node.defined {
            self.skip(node, repetition, level)?;
            return self.append(b"null");
        }
        match &node.shape {
            Shape::Leaf(leaf) => {
                let number = node.leaves.start;
                let value = self.take(number, repetition)?;
                let bytes = self.rows[number - self.first].value(leaf, value);
                self.value(leaf, bytes.ok_or_else(contradiction)?)
            }
            Shape::Struct(children) => {
                self.append(b"{")?;
                for (number, child) in children.iter().enumerate() {
                    if number > 0 {
                        self.append(b",")?;
                    }
                    self.string(&child.name)?;
                    self.append(b":")?;
                    self.write(child, repetition, node.defined)?;
                }
                self.append(b"}")
            }
            Shape::List(entries, entry) => {
                self.entries(node, *entries, repetition, b"[]", |this, repetition| {
                    this.write(entry, repetition, entries.definition)
                })
            }
            Shape::Map(entries, pair) => {
                self.entries(node, *entries, repetition, b"{}", |this, repetition| {
                    this.key(&pair[0], repetition, entries.definition)?;
                    this.append(b":")?;
                    this.write(&pair[1], repetition, entries.definition)
                })
            }
        }
    }

    /// Writes the entries of a list or of a map between two brackets.
    fn entries(
        &mut self,
        node: &Node,
        entries: Entries,
        mut repetition: u8,
        brackets: &[u8; 2],
        mut write: impl FnMut(&mut Self, u8) -> Result<(), DataError>,
    ) -> Result<(), DataError> {
        let level = self.next(node.leaves.start)?.1;
        self.append(&brackets[..1])?;
        if level < entries.definition {
            self.skip(node, repetition, level)?;
            return self.append(&brackets[1..]);
        }
        loop {
            write(self, repetition)?;
            let next = self.peek(node.leaves.start);
            if next.is_none_or(|(level, _)| level != entries.repetition) {
                return self.append(&brackets[1..]);
            }
            repetition = entries.repetition;
            self.append(b",")?;
        }
    }

    /// Writes the key of a map as a string.
    fn key(&mut self, node: &Node, repetition: u8, definition: u8) -> Result<(), DataError> {
        let (start, wrong) = (self.out.len(), |what: &str| {
            let problem = format!("a key of the map is {what}; write texts or integers as keys");
            DataError::new(Reason::Unsupported, problem)
        });
        let kind = match &node.shape {
            Shape::Leaf(leaf) => leaf.kind,
            _ => return Err(wrong("nested")),
        };
        let is_text = matches!(kind, LeafKind::Text | LeafKind::Bytes);
        if !is_text && !matches!(kind, LeafKind::Signed | LeafKind::Unsigned | LeafKind::Bool) {
            return Err(wrong("neither a text nor an integer"));
        }
        if !is_text {
            self.append(b"\"")?;
        }
        self.write(node, repetition, definition)?;
        if self.out[start..].ends_with(b"null") {
            return Err(wrong("null"));
        }
        if is_text { Ok(()) } else { self.append(b"\"") }
    }

    /// Writes a value that is not null.
    fn value(&mut self, leaf: &Leaf, bytes: &[u8]) -> Result<(), DataError> {
        match leaf.kind {
            LeafKind::Text => self.string(text(bytes)?),
            LeafKind::Json => {
                if let Err(error) = serde_json::from_slice::<IgnoredAny>(bytes) {
                    let problem = format!("a value in it is not JSON: {error}");
                    return Err(DataError::new(Reason::Field, problem));
                }
                self.append(bytes)
            }
            LeafKind::Bytes => match str::from_utf8(bytes) {
                Ok(text) => self.string(text),
                Err(_) => {
                    let problem = "a value in it has bytes that are not UTF-8, which JSON cannot \
                                   have; write the bytes to a column of their own";
                    Err(DataError::new(Reason::Unsupported, problem))
                }
            },
            LeafKind::Decimal(scale) => self.append(decimal(leaf.form, scale, bytes)?.as_bytes()),
            LeafKind::Bool => self.append(if bytes == [0] { b"false" } else { b"true" }),
            _ => match number(leaf, bytes).ok_or_else(unknown)? {
                Number::Integer(number) => self.append(number.to_string().as_bytes()),
                Number::Short(number) => self.float(number.is_finite(), number),
                Number::Double(number) => self.float(number.is_finite(), number),
            },
        }
    }

    /// Writes a float with the fewest digits that represent it.
    fn float(
        &mut self,
        is_finite: bool,
        number: impl serde::Serialize + std::fmt::Display,
    ) -> Result<(), DataError> {
        if !is_finite {
            let problem = format!("a value in it is {number}, which JSON cannot have");
            return Err(DataError::new(Reason::Field, problem));
        }
        // The longest float has 24 bytes.
        let mut digits = [0; 32];
        let mut rest = &mut digits[..];
        let written = serde_json::to_writer(&mut rest, &number);
        let len = 32 - rest.len();
        written.map_err(|_| unknown())?;
        self.append(&digits[..len])
    }

    fn string(&mut self, text: &str) -> Result<(), DataError> {
        let len = |byte: u8| match byte {
            0..0x20 => 6,
            b'"' | b'\\' => 2,
            _ => 1,
        };
        let most: usize = 2 + text.bytes().map(len).sum::<usize>();
        self.reserve(most)?;
        serde_json::to_writer(&mut self.out, text).map_err(|_| unknown())
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), DataError> {
        self.reserve(bytes.len())?;
        self.out.extend_from_slice(bytes);
        Ok(())
    }

    /// Allocates memory for `more` bytes of text.
    fn reserve(&mut self, more: usize) -> Result<(), DataError> {
        let len = self.out.len() + more;
        if len as u64 > self.limit {
            return Err(oversized(self.limit));
        }
        if len > self.out.capacity() {
            let doubled = (2 * self.out.capacity()).min(self.limit as usize);
            reserve::reserve(self.out, len.max(doubled))?;
        }
        Ok(())
    }

    /// Repetition and definition level of the next value of a leaf.
    fn peek(&self, leaf: usize) -> Option<(u8, u8)> {
        let row = &self.rows[leaf - self.first];
        let entry = self.at[leaf - self.first].entry;
        let level = |levels: &[u8]| levels.get(entry).copied().unwrap_or(0);
        (entry < row.entries).then(|| (level(&row.repetitions), level(&row.definitions)))
    }

    fn next(&self, leaf: usize) -> Result<(u8, u8), DataError> {
        self.peek(leaf).ok_or_else(contradiction)
    }

    /// Passes a value that is not null. Returns its number.
    fn take(&mut self, leaf: usize, repetition: u8) -> Result<usize, DataError> {
        if self.next(leaf)?.0 != repetition {
            return Err(contradiction());
        }
        let at = &mut self.at[leaf - self.first];
        at.entry += 1;
        at.value += 1;
        Ok(at.value - 1)
    }

    /// Passes the entries of a null or an empty list in all leaves of a node.
    fn skip(&mut self, node: &Node, repetition: u8, definition: u8) -> Result<(), DataError> {
        for leaf in node.leaves.clone() {
            if self.next(leaf)? != (repetition, definition) {
                return Err(contradiction());
            }
            self.at[leaf - self.first].entry += 1;
        }
        Ok(())
    }
}
