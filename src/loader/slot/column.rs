//! Columns of a slot in host memory, and the cells into which they are split.
//!
//! A column of lists has space for the longest list in each cell. When the cells are joined, the
//! lists are moved together, and the offsets of their begins are computed, as Arrow stores lists.

use bytes::BytesMut;

use super::no_slot;
use crate::error::{Error, Result, reserve};
use crate::footprint::Memory;
use crate::loader::sample::fields::Cell;
use crate::plan::{ColumnPlan, ColumnRole, RECORD_BYTES};

/// Alignment of a column in bytes, as DLPack requires.
const ALIGN: usize = 256;

/// Columns of a slot that are in host memory. While the slot is filled, each column is split into
/// one part per sample, so many threads can write at the same time. A column is one allocation that
/// is split and joined again without a copy and without `unsafe`.
pub struct HostColumns {
    columns: Vec<HostColumn>,
    /// One cell per sample; `None` while another thread fills the sample.
    cells: Vec<Option<HostCell>>,
    is_split: bool,
    /// Number of the labels' column.
    labels: usize,
}

/// One column.
struct HostColumn {
    /// The whole column. Empty while it is split.
    whole: BytesMut,
    sample_bytes: usize,
    /// Only in a column of lists.
    lists: Option<Lists>,
}

/// Lists of a column.
struct Lists {
    entry_bytes: usize,
    /// Number of this column among the columns of lists.
    number: usize,
    /// For each sample, the number of entries before it, and at the end the number of all entries.
    offsets: Vec<i64>,
    /// Only in a column of several texts or lists, whose entries are the texts or lists.
    texts: Option<Texts>,
}

/// Texts or lists of a column with several of them per sample.
struct Texts {
    /// Offset of the texts' lengths in the memory of a sample, in bytes.
    lens: usize,
    /// For each text or list, the number of elements before it, and at the end the number of all
    /// elements.
    offsets: Vec<i64>,
}

/// Memory of one sample.
#[derive(Default)]
pub struct HostCell {
    /// One part per column. Empty while the columns are not split.
    parts: Vec<HostPart>,
    /// Number of entries in each column of lists.
    lens: Vec<usize>,
}

/// Memory of one sample in one column.
pub type HostPart = BytesMut;

impl HostCell {
    /// Number of columns.
    pub fn columns(&self) -> usize {
        self.parts.len()
    }

    /// The part in the column with this number ([`ColumnPlan::slot`]).
    pub fn part(&mut self, column: usize) -> &mut HostPart {
        &mut self.parts[column]
    }
}

impl Cell for HostCell {
    fn part(&mut self, column: usize) -> &mut [u8] {
        &mut self.parts[column]
    }

    fn set_len(&mut self, number: usize, len: usize) {
        self.lens[number] = len;
    }
}

impl HostColumns {
    /// Allocates those of `columns` that are in host memory, for batches of at most `samples`
    /// samples. Touches every page of memory, so the system provides the memory now and not while
    /// the loader runs.
    ///
    /// # Errors
    /// [`Error::Memory`] if the allocation fails.
    pub fn new(columns: &[ColumnPlan], samples: usize) -> Result<Self> {
        let on_host = columns.iter().filter(|it| it.memory == Memory::Host);
        let mut lists = 0;
        let created = on_host.map(|it| {
            let column = HostColumn::new(it, samples, lists)?;
            lists += usize::from(column.lists.is_some());
            Ok(column)
        });
        let created: Vec<HostColumn> = created.collect::<Result<_>>()?;
        let mut cells = Vec::new();
        let refused = |_| no_slot(RECORD_BYTES.saturating_mul(samples as u64));
        reserve::reserve(&mut cells, samples).map_err(refused)?;
        for _ in 0..samples {
            let mut cell = HostCell::default();
            reserve::reserve(&mut cell.parts, created.len()).map_err(refused)?;
            reserve::reserve(&mut cell.lens, lists).map_err(refused)?;
            cell.lens.resize(lists, 0);
            cells.push(Some(cell));
        }
        Ok(Self { columns: created, cells, is_split: false, labels: labels(columns) })
    }

    /// Creates columns of a finished batch, which are not filled again. `sources` has the number of
    /// bytes, the offsets and the offsets of the texts of each column, and `copy` writes the bytes
    /// of the column with a number.
    ///
    /// # Errors
    /// [`Error::Memory`] if the allocation fails, and errors of `copy`.
    pub fn filled<'a>(
        columns: &[ColumnPlan],
        sources: impl Iterator<Item = (usize, [Option<&'a [i64]>; 2])>,
        mut copy: impl FnMut(usize, &mut [u8]) -> Result<()>,
    ) -> Result<Self> {
        let created = columns.iter().zip(sources).enumerate();
        let created = created.map(|(number, (plan, (bytes, [offsets, texts])))| {
            let mut whole = aligned(bytes)?;
            copy(number, &mut whole)?;
            let lists = offsets.map(|offsets| Lists {
                entry_bytes: plan.entry_bytes(),
                number: 0,
                offsets: offsets.to_vec(),
                texts: texts.map(|it| Texts { lens: 0, offsets: it.to_vec() }),
            });
            Ok(HostColumn { whole, sample_bytes: plan.sample_bytes(), lists })
        });
        let labels = labels(columns);
        Ok(Self {
            columns: created.collect::<Result<_>>()?,
            cells: Vec::new(),
            is_split: false,
            labels,
        })
    }

    /// For a column of lists, the number of entries before each sample, and at the end the number
    /// of all entries. `None` if the column is dense.
    pub fn offsets(&self, column: usize) -> Option<&[i64]> {
        self.columns[column].lists.as_ref().map(|lists| &lists.offsets[..])
    }

    /// The [`offsets`](Self::offsets) for writing.
    pub fn offsets_mut(&mut self, column: usize) -> Option<&mut [i64]> {
        self.columns[column].lists.as_mut().map(|lists| &mut lists.offsets[..])
    }

    /// For a column of several texts or lists, the number of elements before each text or list, and
    /// at the end the number of all elements. `None` for other columns.
    pub fn text_offsets(&self, column: usize) -> Option<&[i64]> {
        let texts = self.columns[column].lists.as_ref()?.texts.as_ref()?;
        Some(&texts.offsets)
    }

    /// The [`text_offsets`](Self::text_offsets) for writing.
    pub fn text_offsets_mut(&mut self, column: usize) -> Option<&mut [i64]> {
        let texts = self.columns[column].lists.as_mut()?.texts.as_mut()?;
        Some(&mut texts.offsets)
    }

    /// Size of the values of the first `samples` samples in a column, in bytes.
    pub fn filled_bytes(&self, column: usize, samples: usize) -> usize {
        let HostColumn { sample_bytes, lists, .. } = &self.columns[column];
        match lists {
            Some(Lists { entry_bytes, offsets, texts: Some(texts), .. }) => {
                let end = offsets.get(samples).and_then(|&text| texts.offsets.get(text as usize));
                end.map_or(0, |&elements| elements as usize * entry_bytes)
            }
            Some(Lists { entry_bytes, offsets, .. }) => {
                offsets.get(samples).map_or(0, |&entries| entries as usize * entry_bytes)
            }
            None => samples * sample_bytes,
        }
    }

    /// All bytes of a column; empty while the column is split.
    pub fn bytes(&self, column: usize) -> &[u8] {
        &self.columns[column].whole
    }

    /// All bytes of a column for writing; empty while the column is split.
    pub fn bytes_mut(&mut self, column: usize) -> &mut [u8] {
        &mut self.columns[column].whole
    }

    /// Splits the columns into cells. Does nothing if a batch was abandoned while the columns were
    /// split.
    pub fn split(&mut self) {
        if std::mem::replace(&mut self.is_split, true) {
            return;
        }
        for cell in self.cells.iter_mut().flatten() {
            for HostColumn { whole, sample_bytes, .. } in &mut self.columns {
                cell.parts.push(whole.split_to(*sample_bytes));
            }
            cell.lens.fill(0);
        }
    }

    /// Hands out the cell of a sample.
    pub fn take(&mut self, place: usize) -> HostCell {
        self.cells.get_mut(place).and_then(Option::take).unwrap_or_default()
    }

    /// Takes back the cell of a sample.
    pub fn put_back(&mut self, place: usize, cell: HostCell) {
        if let Some(place) = self.cells.get_mut(place) {
            *place = Some(cell);
        }
    }

    /// Writes the label of a sample whose cell is not handed out.
    pub fn set_label(&mut self, place: usize, label: i64) {
        if let Some(part) = self.label_part(place) {
            part.copy_from_slice(&label.to_ne_bytes());
        }
    }

    /// Returns the label of a sample whose cell is not handed out.
    pub fn label(&mut self, place: usize) -> Option<i64> {
        let bytes = <[u8; 8]>::try_from(&self.label_part(place)?[..]).ok()?;
        Some(i64::from_ne_bytes(bytes))
    }

    fn label_part(&mut self, place: usize) -> Option<&mut HostPart> {
        self.cells.get_mut(place)?.as_mut()?.parts.get_mut(self.labels)
    }

    /// Joins the cells, then closes gaps: `moves` are the new and the former place of samples, in
    /// order. `samples` is the number of samples afterwards.
    ///
    /// # Errors
    /// [`Error::Internal`] if a cell is missing.
    pub fn join(&mut self, moves: &[(usize, usize)], samples: usize) -> Result<()> {
        let missing =
            || Error::Internal { problem: "a cell of a finished batch is missing".into() };
        for cell in &mut self.cells {
            let HostCell { parts, .. } = cell.as_mut().ok_or_else(missing)?;
            if parts.len() != self.columns.len() {
                return Err(missing());
            }
            for (HostColumn { whole, .. }, part) in self.columns.iter_mut().zip(parts.drain(..)) {
                // The parts are neighbours in one allocation, so `unsplit` joins them in constant
                // time.
                if whole.is_empty() {
                    *whole = part;
                } else {
                    whole.unsplit(part);
                }
            }
        }
        self.is_split = false;
        for HostColumn { whole, sample_bytes: bytes, .. } in &mut self.columns {
            for (to, from) in moves {
                whole.copy_within(from * *bytes..(from + 1) * *bytes, to * *bytes);
            }
        }
        for (to, from) in moves {
            // A sample moves towards the front, so its new place is not needed any more.
            self.cells.swap(*to, *from);
        }
        let Self { columns, cells, .. } = self;
        for column in columns {
            column.pack(cells, samples);
        }
        Ok(())
    }
}

impl HostColumn {
    fn new(plan: &ColumnPlan, samples: usize, number: usize) -> Result<Self> {
        let whole = aligned(plan.bytes(samples))?;
        let lists = match plan.max_len {
            Some(max_len) => {
                let mut offsets = Vec::new();
                let refused = |_| no_slot(8 * samples as u64);
                reserve::reserve(&mut offsets, samples + 1).map_err(refused)?;
                let texts = plan.text_offsets(samples).map(|most| -> Result<Texts> {
                    let mut offsets = Vec::new();
                    let refused = |_| no_slot((most as u64).saturating_mul(8));
                    reserve::reserve(&mut offsets, most).map_err(refused)?;
                    Ok(Texts { lens: max_len * plan.entry_bytes(), offsets })
                });
                let texts = texts.transpose()?;
                Some(Lists { entry_bytes: plan.entry_bytes(), number, offsets, texts })
            }
            None => None,
        };
        Ok(Self { whole, sample_bytes: plan.sample_bytes(), lists })
    }

    /// Moves the lists of `samples` samples together, and computes the offsets.
    fn pack(&mut self, cells: &[Option<HostCell>], samples: usize) {
        let Some(Lists { entry_bytes, number, offsets, texts }) = &mut self.lists else { return };
        offsets.clear();
        offsets.push(0);
        if let Some(Texts { offsets, .. }) = texts {
            offsets.clear();
            offsets.push(0);
        }
        let (mut end, mut end_bytes) = (0, 0);
        for (place, cell) in cells.iter().take(samples).enumerate() {
            let len = cell.as_ref().map_or(0, |cell| cell.lens[*number]);
            let begin = place * self.sample_bytes;
            let bytes = match texts {
                Some(texts) => {
                    let sample = &self.whole[begin..][..self.sample_bytes];
                    texts.add(sample, len, end_bytes / *entry_bytes) * *entry_bytes
                }
                None => len * *entry_bytes,
            };
            self.whole.copy_within(begin..begin + bytes, end_bytes);
            end += len;
            end_bytes += bytes;
            offsets.push(end as i64);
        }
    }
}

impl Texts {
    /// Adds the offsets of the first `count` texts or lists of a sample. `before` is the number of
    /// elements of earlier samples. Returns the number of elements of the sample.
    fn add(&mut self, sample: &[u8], count: usize, before: usize) -> usize {
        let lens = sample[self.lens..].as_chunks().0.iter().take(count);
        let mut elements = 0;
        for len in lens {
            elements += u32::from_ne_bytes(*len) as usize;
            self.offsets.push((before + elements) as i64);
        }
        elements
    }
}

/// Number of the labels' column.
fn labels(columns: &[ColumnPlan]) -> usize {
    let labels = columns.iter().find(|it| it.role == ColumnRole::Label);
    labels.map_or(0, |column| column.slot)
}

/// Allocates an aligned column of `bytes` bytes and touches every page.
fn aligned(bytes: usize) -> Result<BytesMut> {
    let mut whole = BytesMut::new();
    if bytes > 0 {
        whole = reserve::buffer(bytes.saturating_add(ALIGN)).map_err(|_| no_slot(bytes as u64))?;
        let offset = whole.as_ptr().align_offset(ALIGN).min(ALIGN);
        whole.resize(bytes + offset, 1);
        drop(whole.split_to(offset));
    }
    Ok(whole)
}
