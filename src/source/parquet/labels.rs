//! Reads the label column completely.

use std::collections::HashMap;

use super::cache::Cache;
use super::column::admit;
use super::encoding::{delta, hybrid};
use super::footer::{Chunk, Leaf, PhysicalType};
use super::page::{Contents, Head, Held, NULL, Sort, Values};
use super::{FileError, Shard};
use crate::footprint::counted;
use crate::source::label::{self, MOST_NAME_BYTES};

/// Largest number of distinct texts in a label column.
const MOST_TEXTS: usize = 1 << 18;
/// Largest total size of the distinct texts, in bytes.
const MOST_TEXT_BYTES: usize = 32 << 20;

/// Labels of a file.
#[derive(Default)]
pub struct Labels {
    /// Label of each row; -1 if the row has none.
    pub numbers: Vec<i64>,
    /// Distinct texts of text labels. `numbers` contains indices into this list.
    pub texts: Vec<String>,
    text_bytes: usize,
    places: HashMap<Vec<u8>, i64>,
}

impl Labels {
    /// Adds the labels of a column chunk.
    pub fn read(
        &mut self,
        shard: &Shard,
        leaf: &Leaf,
        chunk: &Chunk,
        rows: u64,
        cache: &Cache,
    ) -> Result<(), FileError> {
        let end = self.numbers.len() as u64 + rows;
        let (mut at, mut dictionary) = (chunk.start, None);
        while at < chunk.end && (self.numbers.len() as u64) < end {
            let head = Head::read(shard, at, chunk.end)?;
            at = head.end();
            if head.sort == Sort::Other {
                continue;
            }
            admit(&head, chunk.codec, cache)?;
            let left = end - self.numbers.len() as u64;
            if head.sort != Sort::Dictionary && u64::from(head.values) > left {
                return Err(head.damaged("it has more rows than its row group"));
            }
            let (size, stored) = (head.size as usize, head.room(chunk.codec));
            cache.borrow(size, stored, |body, stored| {
                head.body(shard, chunk.codec, body, stored)?;
                match head.sort {
                    Sort::Dictionary => dictionary = Some(self.entries(&head, body, leaf)?),
                    _ => self.page(&head, body, leaf, dictionary.as_deref())?,
                }
                Ok(())
            })?;
        }
        if self.numbers.len() as u64 != end {
            let problem = format!(
                "the row group has {} without a label: the file is damaged; copy it again",
                counted(end - self.numbers.len() as u64, "row")
            );
            return Err(FileError::corrupt(chunk.start, problem));
        }
        Ok(())
    }

    /// Replaces each label, which is an index of a text until then, by the element of `numbers` at
    /// this index.
    pub fn rename(&mut self, numbers: &[i64]) {
        for label in &mut self.numbers {
            *label = usize::try_from(*label).map_or(-1, |place| numbers[place]);
        }
    }

    /// Decodes the labels in a dictionary page. Returns the [`bits`] of each number, or the index
    /// of each text.
    fn entries(&mut self, head: &Head, body: &[u8], leaf: &Leaf) -> Result<Vec<i64>, FileError> {
        if leaf.form == PhysicalType::Bytes {
            let values = head.entries(body)?;
            return self.texts(head, body, &values);
        }
        if !matches!(head.encoding, 0 | 2) {
            return Err(head.unsupported("the dictionary is not in the encoding PLAIN"));
        }
        bits(body, 0, leaf.form, head.values as usize, head)
    }

    /// Adds the labels of one data page.
    fn page(
        &mut self,
        head: &Head,
        body: &[u8],
        leaf: &Leaf,
        dictionary: Option<&[i64]>,
    ) -> Result<(), FileError> {
        let Contents { rows, values } = head.contents(body, leaf.defined, leaf.form)?;
        let own;
        let values = match values {
            Held::Here(values) => {
                own = self.texts(head, body, &values)?;
                &own[..]
            }
            Held::Numbers { from, present } => {
                own = bits(&body[from..], head.encoding, leaf.form, present, head)?;
                &own
            }
            Held::Dictionary => dictionary
                .ok_or_else(|| head.damaged("it needs a dictionary, but none precedes it"))?,
        };
        let Some(rows) = rows else {
            return values.iter().try_for_each(|value| self.push(*value, leaf, head));
        };
        for &row in &rows {
            if row == NULL {
                self.numbers.push(-1);
                continue;
            }
            let value = values.get(row as usize);
            let wrong = || {
                head.damaged(&format!(
                    "a row refers to value {row} of the dictionary, which has {} values",
                    values.len()
                ))
            };
            self.push(*value.ok_or_else(wrong)?, leaf, head)?;
        }
        Ok(())
    }

    /// Adds the label of the next row. `bits` are the bits of a number, or the index of a text.
    fn push(&mut self, bits: i64, leaf: &Leaf, head: &Head) -> Result<(), FileError> {
        let label = match leaf.form {
            PhysicalType::Int32 if leaf.unsigned => Ok(i64::from(bits as u32)),
            PhysicalType::Int32 => Ok(i64::from(bits as i32)),
            PhysicalType::Int64 if leaf.unsigned && bits < 0 => {
                Err(((bits as u64).to_string(), "is not below 2^63"))
            }
            PhysicalType::Float => {
                let float = f32::from_bits(bits as u32);
                label::of_f32(float).map_err(|why| (float.to_string(), why))
            }
            PhysicalType::Double => {
                let float = f64::from_bits(bits as u64);
                label::of_float(float).map_err(|why| (float.to_string(), why))
            }
            PhysicalType::Bool
            | PhysicalType::Int64
            | PhysicalType::Bytes
            | PhysicalType::Other => Ok(bits),
        };
        let label = label.map_err(|(label, why)| {
            let problem = format!(
                "row {} has the label {label}, which {why}; set source.label to another column, \
                 or to \"\" for no labels",
                self.numbers.len()
            );
            FileError::unsupported(head.start, problem)
        })?;
        self.numbers.push(label);
        Ok(())
    }

    /// Returns the indices of the texts of a page. New texts are added to the list.
    fn texts(&mut self, head: &Head, body: &[u8], values: &Values) -> Result<Vec<i64>, FileError> {
        let texts = (0..values.len() as u32).filter_map(|number| values.get(number));
        texts
            .map(|range| {
                let bytes = &body[range];
                if let Some(&place) = self.places.get(bytes) {
                    return Ok(place);
                }
                let text = str::from_utf8(bytes).map_err(|_| {
                    let problem = "a label is neither a number nor a text; set source.label to another column \
                                   or \"\"";
                    FileError::unsupported(head.start, problem)
                })?;
                if text.len() > MOST_NAME_BYTES {
                    let problem = format!(
                        "a label has {} bytes; the maximum is {MOST_NAME_BYTES} bytes; set \
                         source.label to another column, or to \"\" for no labels",
                        text.len()
                    );
                    return Err(FileError::unsupported(head.start, problem));
                }
                self.text_bytes += text.len();
                if self.texts.len() == MOST_TEXTS || self.text_bytes > MOST_TEXT_BYTES {
                    let problem = format!(
                        "the labels have more than {MOST_TEXTS} distinct texts, or \
                         {MOST_TEXT_BYTES} bytes of texts; set source.label to another column, or \
                         to \"\" for no labels"
                    );
                    return Err(FileError::unsupported(head.start, problem));
                }
                let place = self.texts.len() as i64;
                self.texts.push(text.into());
                self.places.insert(bytes.into(), place);
                Ok(place)
            })
            .collect()
    }
}

/// Decodes the bits of `count` numbers in a page.
fn bits(
    bytes: &[u8],
    encoding: i64,
    form: PhysicalType,
    count: usize,
    head: &Head,
) -> Result<Vec<i64>, FileError> {
    let values: Vec<i64> = match (encoding, form) {
        (0, PhysicalType::Int32 | PhysicalType::Float) => {
            let values = bytes.as_chunks().0.iter();
            values.take(count).map(|bytes| i32::from_le_bytes(*bytes).into()).collect()
        }
        (0, PhysicalType::Int64 | PhysicalType::Double) => {
            let values = bytes.as_chunks().0.iter();
            values.take(count).map(|bytes| i64::from_le_bytes(*bytes)).collect()
        }
        (0, PhysicalType::Bool) => {
            let bits =
                bytes.iter().flat_map(|byte| (0..8).map(move |bit| i64::from(byte >> bit & 1)));
            bits.take(count).collect()
        }
        // Booleans are encoded as runs. Four bytes with the length of the encoded runs precede
        // them.
        (3, PhysicalType::Bool) => {
            let wrong = || head.damaged("it has the wrong number of values");
            let runs = bytes.get(4..).and_then(|runs| hybrid(runs, 1, count)).ok_or_else(wrong)?;
            runs.into_iter().map(i64::from).collect()
        }
        (5, PhysicalType::Int32 | PhysicalType::Int64) => {
            let values = delta(bytes, count);
            let wrong = || head.damaged("it has the wrong number of values");
            values.ok_or_else(wrong)?.0
        }
        _ => return Err(head.unsupported("unsupported encoding of labels")),
    };
    if values.len() != count {
        return Err(head.damaged("it has the wrong number of values"));
    }
    Ok(values)
}
