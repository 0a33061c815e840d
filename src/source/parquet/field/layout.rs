//! Decoded pages. A buffer has the decompressed page, followed by an index: the levels, the first
//! value of each row, and whatever is needed to find single values.

use std::ops::Range;

use super::super::FileError;
use super::super::encoding::{each, each_delta};
use super::super::page::{Head, RLE, Sort};
use super::row::{Budget, LeafRow};
use super::schema::{Form, Leaf};
use super::strings;
use crate::error::{DataError, reserve};

/// Sizes of the parts of a buffer, in bytes and in their order.
#[derive(Clone, Copy)]
pub struct Layout {
    coding: Coding,
    leaf: Leaf,
    /// Number of values including nulls.
    count: usize,
    body: u64,
    /// Eight bytes for each row: its first value including nulls, and its first value that is not
    /// null. A further entry marks the end. Empty if every row has one value that is not null.
    starts: u64,
    repetitions: u64,
    definitions: u64,
    /// Numbers or positions of the values that are not null, depending on `coding`.
    values: u64,
}

/// First part of the index: the offset of the values in the page, and the number of values that are
/// not null.
const FIXED_BYTES: u64 = 8;

/// How the values that are not null are stored.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Coding {
    /// In the page, each with this number of bytes.
    Plain(usize),
    /// In the page, each with one bit.
    Bits,
    /// In the page, with this number of bytes before each value. The index has their positions.
    Texts(u32),
    /// In the page: the first bytes of all values, then the second bytes, and so on.
    Split(usize),
    /// In the index, each with this number of bytes.
    Decoded(usize),
    /// In the index: the bytes of all values, after their ends.
    Shared,
    /// In the dictionary. The index has their numbers.
    Dictionary,
}

/// Values of one row, or of a part of it.
pub struct Span {
    /// Values including nulls.
    pub entries: Range<usize>,
    /// Values that are not null.
    pub values: Range<usize>,
}

impl Layout {
    /// Layout of a page with `rows` rows. `text_bytes` is the size of the values in the encoding
    /// DELTA_BYTE_ARRAY.
    pub fn of(head: &Head, leaf: &Leaf, rows: u32, text_bytes: u64) -> Result<Self, FileError> {
        let is_dictionary = head.sort == Sort::Dictionary;
        // Entries of a dictionary have no levels.
        let leaf =
            if is_dictionary { Leaf { definition: 0, repetition: 0, ..*leaf } } else { *leaf };
        let coding = Coding::of(head, leaf.form)?;
        let count = u64::from(head.values);
        let has = |is_there: bool| if is_there { count } else { 0 };
        Ok(Self {
            coding,
            leaf,
            count: head.values as usize,
            body: head.size.into(),
            starts: if leaf.has_levels() { 8 * (u64::from(rows) + 1) } else { 0 },
            repetitions: has(leaf.repetition > 0),
            definitions: has(leaf.definition > 0),
            values: match coding {
                Coding::Plain(_) | Coding::Bits | Coding::Split(_) => 0,
                Coding::Texts(_) => 4 * (count + 1),
                Coding::Decoded(width) => width as u64 * count,
                Coding::Dictionary => 4 * count,
                Coding::Shared => text_bytes.saturating_add(4 * count),
            },
        })
    }

    /// Size of the whole buffer in bytes.
    pub fn bytes(&self) -> u64 {
        let levels = self.starts + self.repetitions + self.definitions;
        self.values.saturating_add(self.body + FIXED_BYTES + levels)
    }

    /// Fills the index of a buffer that has the decompressed page. `continues` states whether the
    /// page begins with values of the row before.
    pub fn decode(&self, head: &Head, continues: bool, buffer: &mut [u8]) -> Result<(), FileError> {
        let damaged = || head.damaged("it has the wrong number of levels or values");
        let mut rest = buffer;
        let sizes = [self.body, FIXED_BYTES, self.starts, self.repetitions, self.definitions];
        let [body, fixed, starts, repetitions, definitions] =
            sizes.map(|size| rest.split_off_mut(..size as usize).unwrap_or_default());
        let values = &mut rest[..self.values as usize];
        let sections = Sections::of(head, &self.leaf, body)?;
        let is_right = fill(&body[sections.repetitions], self.leaf.repetition, repetitions)
            .and_then(|()| fill(&body[sections.definitions], self.leaf.definition, definitions));
        is_right.ok_or_else(damaged)?;
        let mut present = self.count;
        if self.leaf.has_levels() {
            let first;
            (first, present) = rows(self.count, &self.leaf, repetitions, definitions, starts)
                .ok_or_else(damaged)?;
            if (first > 0) != continues {
                return Err(damaged());
            }
        }
        // Both fit, because a page is smaller than 2 GiB.
        let numbers = [sections.end as u32, present as u32];
        fixed.copy_from_slice(numbers.map(u32::to_le_bytes).as_flattened());
        self.index(&body[sections.end..], sections.end as u32, present, values).ok_or_else(damaged)
    }

    /// Fills the part `values` of the index.
    fn index(&self, bytes: &[u8], from: u32, present: usize, values: &mut [u8]) -> Option<()> {
        let is_long_enough = |size: usize| (bytes.len() >= size).then_some(());
        match self.coding {
            Coding::Plain(width) | Coding::Split(width) => {
                is_long_enough(present.checked_mul(width)?)
            }
            Coding::Bits => is_long_enough(present.div_ceil(8)),
            Coding::Texts(4) => strings::plain(bytes, from, present, values.as_chunks_mut().0),
            Coding::Texts(_) => strings::lengths(bytes, from, present, values.as_chunks_mut().0),
            Coding::Shared => {
                let (ends, texts) = values.split_at_mut_checked(4 * self.count)?;
                let ends = ends.as_chunks_mut().0;
                strings::shared(bytes, present, ends, texts)?;
                // Values of a fixed size are found without their ends.
                let width = self.leaf.form.width();
                let is_right =
                    |value| width.is_none_or(|it| u32_at(ends, value) == it * (value + 1));
                (0..present).all(is_right).then_some(())
            }
            Coding::Decoded(1) => {
                // The length of the encoded booleans precedes them.
                let mut values = values.iter_mut();
                each(bytes.get(4..)?, 1, present, |bit| {
                    values.next().into_iter().for_each(|value| *value = bit as u8);
                })
            }
            Coding::Decoded(width) => {
                let mut values = values.chunks_exact_mut(width);
                let put = |number: i64| {
                    let bytes = number.to_le_bytes();
                    values.next().into_iter().for_each(|it| it.copy_from_slice(&bytes[..width]));
                };
                let (count, _) = each_delta(bytes, present, put)?;
                (count == present).then_some(())
            }
            Coding::Dictionary => {
                // A page that contains only nulls may have no bytes after the levels.
                let Some((width, runs)) = bytes.split_first() else {
                    return (present == 0).then_some(());
                };
                let mut values = values.as_chunks_mut().0.iter_mut();
                each(runs, (*width).into(), present, |number| {
                    values.next().into_iter().for_each(|it| *it = number.to_le_bytes());
                })
            }
        }
    }

    /// Returns the decoded page in a buffer that [`decode`](Self::decode) filled.
    pub fn view<'a>(&self, buffer: &'a [u8]) -> View<'a> {
        let mut rest = buffer;
        let sizes = [self.body, FIXED_BYTES, self.starts, self.repetitions, self.definitions];
        let [body, fixed, starts, repetitions, definitions] =
            sizes.map(|size| rest.split_off(..size as usize).unwrap_or_default());
        let number = |part: usize| u32_at(fixed.as_chunks().0, part);
        let (values, _) = rest.split_at(self.values as usize);
        View {
            coding: self.coding,
            count: self.count,
            present: number(1),
            bytes: &body[number(0).min(body.len())..],
            body,
            starts: starts.as_chunks().0,
            repetitions,
            definitions,
            values,
        }
    }
}

impl Leaf {
    pub fn has_levels(&self) -> bool {
        self.definition > 0 || self.repetition > 0
    }
}

impl Coding {
    fn of(head: &Head, form: Form) -> Result<Self, FileError> {
        let unsupported = || Err(head.unsupported("unsupported encoding or type of values"));
        let encoding = match head.sort {
            Sort::Dictionary if matches!(head.encoding, 0 | 2) => 0,
            Sort::Dictionary => return unsupported(),
            _ => head.encoding,
        };
        // The numbers are those of `Encoding` in `parquet.thrift`.
        Ok(match (encoding, form) {
            (_, Form::Unknown) => return unsupported(),
            (2 | 8, _) => Self::Dictionary,
            (0, Form::Bool) => Self::Bits,
            (RLE, Form::Bool) => Self::Decoded(1),
            (5, Form::Int32) => Self::Decoded(4),
            (5, Form::Int64) => Self::Decoded(8),
            (0, Form::Bytes) => Self::Texts(4),
            (6, Form::Bytes) => Self::Texts(0),
            (7, Form::Bytes | Form::Fixed(_)) => Self::Shared,
            (0, form) => form.width().map_or_else(unsupported, |width| Ok(Self::Plain(width)))?,
            (9, Form::Bool | Form::Bytes | Form::Int96) => return unsupported(),
            (9, form) => form.width().map_or_else(unsupported, |width| Ok(Self::Split(width)))?,
            _ => return unsupported(),
        })
    }
}

/// Positions of the levels and values in a decompressed page.
pub struct Sections {
    pub repetitions: Range<usize>,
    pub definitions: Range<usize>,
    /// End of the levels, where the values begin.
    pub end: usize,
}

impl Sections {
    pub fn of(head: &Head, leaf: &Leaf, body: &[u8]) -> Result<Self, FileError> {
        let damaged = || head.damaged("its levels are longer than the page");
        match head.sort {
            Sort::DataV2 { repetition, definition, .. } => {
                let middle = repetition as usize;
                let end = middle + definition as usize;
                if end > body.len() {
                    return Err(damaged());
                }
                Ok(Self { repetitions: 0..middle, definitions: middle..end, end })
            }
            Sort::Data { levels, runs } => {
                let is_right =
                    (leaf.repetition == 0 || runs) && (leaf.definition == 0 || levels == RLE);
                if !is_right {
                    return Err(head.unsupported("the levels are not in the encoding RLE"));
                }
                let section = |is_there: bool, start: usize| {
                    if !is_there {
                        return Some(start..start);
                    }
                    let len = body.get(start..)?.first_chunk()?;
                    let start = start + 4;
                    let end = start.checked_add(u32::from_le_bytes(*len) as usize)?;
                    (end <= body.len()).then_some(start..end)
                };
                let repetitions = section(leaf.repetition > 0, 0).ok_or_else(damaged)?;
                let definitions =
                    section(leaf.definition > 0, repetitions.end).ok_or_else(damaged)?;
                let end = definitions.end;
                Ok(Self { repetitions, definitions, end })
            }
            Sort::Dictionary | Sort::Other => {
                Ok(Self { repetitions: 0..0, definitions: 0..0, end: 0 })
            }
        }
    }
}

/// Number of bits of levels up to `most`.
pub fn width(most: u8) -> u32 {
    u8::BITS - most.leading_zeros()
}

/// Decodes levels up to `most`. Does nothing if the leaf has no such levels.
fn fill(bytes: &[u8], most: u8, levels: &mut [u8]) -> Option<()> {
    if most == 0 {
        return Some(());
    }
    let mut highest = 0;
    let count = levels.len();
    let mut levels = levels.iter_mut();
    each(bytes, width(most), count, |level| {
        highest = highest.max(level);
        levels.next().into_iter().for_each(|it| *it = level as u8);
    })?;
    (highest <= most.into()).then_some(())
}

/// Fills `starts` with the first values of each row. Returns the number of values before the first
/// row, and the number of values that are not null. `None` if the number of rows is wrong.
fn rows(
    count: usize,
    leaf: &Leaf,
    repetitions: &[u8],
    definitions: &[u8],
    starts: &mut [u8],
) -> Option<(usize, usize)> {
    let mut starts = starts.as_chunks_mut::<8>().0.iter_mut();
    let (mut first, mut present) = (None, 0);
    let pair = |entry: usize, value: u32| {
        let (entry, value) = (u64::from(entry as u32), u64::from(value));
        (value << 32 | entry).to_le_bytes()
    };
    for entry in 0..count {
        if leaf.repetition == 0 || repetitions[entry] == 0 {
            first.get_or_insert(entry);
            *starts.next()? = pair(entry, present);
        }
        present += u32::from(leaf.definition == 0 || definitions[entry] == leaf.definition);
    }
    *starts.next()? = pair(count, present);
    starts.next().is_none().then_some((first.unwrap_or(count), present as usize))
}

/// Decoded page.
pub struct View<'a> {
    coding: Coding,
    count: usize,
    present: usize,
    body: &'a [u8],
    /// The page without its levels.
    bytes: &'a [u8],
    starts: &'a [[u8; 8]],
    repetitions: &'a [u8],
    definitions: &'a [u8],
    values: &'a [u8],
}

impl View<'_> {
    /// Values of a row.
    pub fn row(&self, row: u32) -> Span {
        let row = row as usize;
        if self.starts.is_empty() {
            return Span { entries: row..row + 1, values: row..row + 1 };
        }
        let ((from, first), (to, last)) = (self.start(row), self.start(row + 1));
        Span { entries: from..to, values: first..last }
    }

    /// Values before the first row, which belong to the row before.
    pub fn beginning(&self) -> Span {
        let (to, last) = self.start(0);
        Span { entries: 0..to, values: 0..last }
    }

    /// Value of a dictionary.
    pub fn entry(&self, number: usize) -> Option<Span> {
        (number < self.count).then_some(Span { entries: 0..0, values: number..number + 1 })
    }

    fn start(&self, row: usize) -> (usize, usize) {
        let end = (self.count, self.present);
        self.starts.get(row).map_or(end, |pair| {
            let pair = u64::from_le_bytes(*pair);
            (pair as u32 as usize, (pair >> 32) as usize)
        })
    }

    /// Size of values in bytes.
    pub fn size(&self, values: &Range<usize>) -> usize {
        match self.coding {
            Coding::Plain(width) | Coding::Split(width) | Coding::Decoded(width) => {
                width * values.len()
            }
            Coding::Bits => values.len(),
            // The bytes of the values are counted when they are copied from the dictionary.
            Coding::Dictionary => 0,
            Coding::Texts(_) | Coding::Shared => {
                values.clone().map(|value| self.text(value).len()).sum()
            }
        }
    }

    /// Copies the levels and values of a row, or of a part of it.
    pub fn copy(&self, span: Span, to: &mut LeafRow, budget: &mut Budget) -> Result<(), DataError> {
        let Span { entries, values } = span;
        let size = self.size(&values);
        budget.take(entries.len(), size)?;
        let repetitions = self.repetitions.get(entries.clone()).unwrap_or_default();
        let definitions = self.definitions.get(entries.clone()).unwrap_or_default();
        to.add_levels(entries.len(), repetitions, definitions)?;
        if self.coding == Coding::Dictionary {
            let numbers = &self.values.as_chunks().0[values];
            let len = to.indices.len() + numbers.len();
            reserve::reserve(&mut to.indices, len)?;
            to.indices.extend(numbers.iter().map(|number| u32::from_le_bytes(*number)));
            return Ok(());
        }
        let len = to.bytes.len() + size;
        reserve::reserve(&mut to.bytes, len)?;
        self.append(values, to)
    }

    /// Appends values to a row that has capacity for their bytes.
    pub fn append(&self, values: Range<usize>, to: &mut LeafRow) -> Result<(), DataError> {
        match self.coding {
            Coding::Plain(width) => {
                to.bytes.extend_from_slice(&self.bytes[width * values.start..width * values.end]);
            }
            Coding::Decoded(width) => {
                to.bytes.extend_from_slice(&self.values[width * values.start..width * values.end]);
            }
            Coding::Bits => {
                to.bytes.extend(values.map(|value| self.bytes[value / 8] >> (value % 8) & 1));
            }
            Coding::Split(width) => {
                let byte = |value: usize, byte: usize| self.bytes[byte * self.present + value];
                to.bytes.extend(values.flat_map(|it| (0..width).map(move |at| byte(it, at))));
            }
            Coding::Texts(_) | Coding::Shared => {
                let len = to.ends.len() + values.len();
                if len > to.ends.capacity() {
                    reserve::reserve(&mut to.ends, len)?;
                }
                for value in values {
                    to.bytes.extend_from_slice(self.text(value));
                    to.ends.push(to.bytes.len());
                }
            }
            // Numbers of values are copied by `copy`.
            Coding::Dictionary => {}
        }
        Ok(())
    }

    /// Bytes of a value in a page of values of different lengths.
    fn text(&self, value: usize) -> &[u8] {
        if let Coding::Texts(gap) = self.coding {
            let positions = self.values.as_chunks().0;
            let end = u32_at(positions, value + 1) - gap as usize;
            return &self.body[u32_at(positions, value)..end];
        }
        let (ends, texts) = self.values.split_at(4 * self.count);
        let ends = ends.as_chunks().0;
        let start = if value == 0 { 0 } else { u32_at(ends, value - 1) };
        &texts[start..u32_at(ends, value)]
    }
}

fn u32_at(numbers: &[[u8; 4]], number: usize) -> usize {
    numbers.get(number).map_or(0, |it| u32::from_le_bytes(*it) as usize)
}
