//! A source that is a sequence in Python.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use feedwater::Source;
use feedwater::error::{DataError, Error, Reason, Result};
use feedwater::internals::footprint::Available;
use feedwater::internals::storage::is_opening;
use feedwater::source::custom::{Fields, Hints, Page, PutField};
use feedwater::source::{Field, FieldKind, NO_LABEL};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};

use crate::encoded::{Encoded, read_file};
use crate::error::{data_error, raised};
use crate::fields::Value;
use crate::label::label_of;
use crate::thread_state;

/// Marks an item whose label is unknown, because the item has not been read yet.
const UNKNOWN: i64 = i64::MIN;

/// Number for the next sequence that is created in this process.
static SEQUENCES: AtomicU64 = AtomicU64::new(1);

thread_local! {
    /// The item that this thread read last: number of the sequence, index and label.
    static LAST_READ: Cell<(u64, u64, i64)> = const { Cell::new((0, 0, NO_LABEL)) };
    /// The items that this thread read for their fields and not yet for their images, at most one
    /// of a sequence: number of the sequence, index and item.
    static AHEAD: RefCell<Vec<(u64, u64, Item)>> = const { RefCell::new(Vec::new()) };
    /// Numbers of the sequences whose `__getitem__` this thread is running.
    static ASKED: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// A sequence whose items are encoded bytes or paths, tuples of bytes or a path, a label and
/// fields, or dictionaries with the key `image`, the key `label` if there are labels, and fields.
pub struct Sequence {
    /// Number that identifies the sequence in this process.
    number: u64,
    /// Name of the sequence in the pipeline.
    name: String,
    items: Py<PyAny>,
    /// Given labels, or else the last known labels of the items.
    labels: Vec<AtomicI64>,
    labels_are_given: bool,
    classes: Vec<String>,
    /// Fields of samples that were read but are not in a batch yet. `None` if they are not kept.
    fields: Mutex<Option<HashMap<u64, Py<PyAny>>>>,
    /// Whether some item that was read has fields.
    has_fields: AtomicBool,
    /// Exceptions that items raised. `None` if exceptions are not needed, because they do not end
    /// the loader.
    exceptions: Option<Mutex<HashMap<u64, PyErr>>>,
}

/// An item of a sequence.
struct Item {
    encoded: Encoded,
    label: i64,
    /// Python's `None` if the item has no fields.
    fields: Py<PyAny>,
}

/// Arguments of a sequence: its items, labels that replace the items' own labels, and class names.
pub type Given = (Py<PyAny>, Option<Vec<i64>>, Vec<String>);

/// Sequences by their names in the pipeline.
pub type Own = BTreeMap<String, Given>;

impl Sequence {
    /// Creates a source. `keeps_fields`: as for [`keep_fields`](Self::keep_fields).
    /// `keeps_exceptions`: whether errors need [`exception`](Self::exception).
    pub fn new(
        py: Python<'_>,
        name: &str,
        given: &Given,
        (keeps_fields, keeps_exceptions): (bool, bool),
    ) -> PyResult<Self> {
        let (items, labels, classes) = given;
        let len = items.bind(py).len()?;
        let refused =
            |key: &str, problem| raised(py, &Error::config(format!("{name}.{key}"), problem));
        if len == 0 {
            return Err(refused("items", "is empty; a source needs at least one sample".into()));
        }
        check_memory(len, name).map_err(|error| raised(py, &error))?;
        let labels_are_given = labels.is_some();
        let labels = match labels {
            Some(labels) if labels.len() != len => {
                let problem = format!(
                    "has {} labels for {len} items; give one label for each item",
                    labels.len()
                );
                return Err(refused("labels", problem));
            }
            Some(labels) => labels.iter().map(|&label| AtomicI64::new(label)).collect(),
            None => (0..len).map(|_| AtomicI64::new(UNKNOWN)).collect(),
        };
        Ok(Self {
            number: SEQUENCES.fetch_add(1, Ordering::Relaxed),
            name: name.into(),
            items: items.clone_ref(py),
            labels,
            labels_are_given,
            classes: classes.clone(),
            fields: Mutex::new(keeps_fields.then(HashMap::new)),
            has_fields: AtomicBool::new(false),
            exceptions: keeps_exceptions.then(Mutex::default),
        })
    }

    /// Whether this thread is running `__getitem__` of this sequence. The thread must then not wait
    /// for a loader of the sequence.
    pub fn is_asked_here(&self) -> bool {
        ASKED.with_borrow(|asked| asked.contains(&self.number))
    }

    /// Takes the exception that an item raised when it was last read.
    pub fn exception(&self, index: u64) -> Option<PyErr> {
        let mut kept = self.exceptions.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner);
        kept.remove(&index)
    }

    /// Name of the sequence in the pipeline.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sets whether the fields of items that are read stay in memory until a batch takes them.
    pub fn keep_fields(&self, keep: bool) {
        let mut kept = self.kept();
        let former = match keep == kept.is_some() {
            true => None,
            false => std::mem::replace(&mut *kept, keep.then(HashMap::new)),
        };
        // Drop the fields without the lock, because their destructors may run Python code.
        drop((kept, former));
    }

    /// Returns the fields of an item that was read, and unless `stay` is true, removes them from
    /// memory. Returns Python's `None` if no item has had fields. Returns no value if the fields
    /// are not in memory.
    pub fn fields(&self, py: Python<'_>, index: u64, stay: bool) -> Option<Py<PyAny>> {
        if !self.has_fields.load(Ordering::Relaxed) {
            return Some(py.None());
        }
        let mut kept = self.kept();
        match stay {
            true => kept.as_ref()?.get(&index).map(|fields| fields.clone_ref(py)),
            false => kept.as_mut()?.remove(&index),
        }
    }

    /// Reads an item again and returns its fields.
    pub fn fields_again(&self, py: Python<'_>, index: u64) -> PyResult<Py<PyAny>> {
        Ok(self.item(py, index)?.fields)
    }

    /// Drops the fields of all items. Fields that are needed later are read again.
    pub fn forget_all(&self) {
        // Drop the fields without the lock, because their destructors may run Python code.
        let _fields = self.kept().as_mut().map(std::mem::take);
    }

    /// Drops the fields of an item whose sample failed.
    pub fn forget(&self, index: u64) {
        // Drop the fields without the lock, because their destructors may run Python code.
        let _fields = self.kept().as_mut().and_then(|kept| kept.remove(&index));
    }

    /// Calls `__getitem__` of the sequence.
    fn item(&self, py: Python<'_>, index: u64) -> PyResult<Item> {
        ASKED.with_borrow_mut(|asked| asked.push(self.number));
        let item = self.items.bind(py).get_item(index);
        ASKED.with_borrow_mut(Vec::pop);
        let item = item?;
        if let Ok(item) = item.cast::<PyDict>() {
            return self.item_of(item, index);
        }
        let (item, label, fields) = match item.cast::<PyTuple>() {
            Ok(tuple) if matches!(tuple.len(), 2 | 3) => {
                // If labels are given, they replace the items' own labels, which are then not
                // checked.
                let label = match self.labels_are_given {
                    true => self.labels[index as usize].load(Ordering::Relaxed),
                    false => label_of(&tuple.get_item(1)?)?,
                };
                let fields = match tuple.len() {
                    2 => py.None(),
                    _ => tuple.get_item(2)?.unbind(),
                };
                (tuple.get_item(0)?, label, fields)
            }
            _ => (item, NO_LABEL, py.None()),
        };
        let encoded = Encoded::of(&item).unwrap_or_else(|| {
            let kind = match item.cast::<PyTuple>() {
                Ok(tuple) => format!("tuple of {} values", tuple.len()),
                Err(_) => item.get_type().to_string(),
            };
            Encoded::wrong(format!(
                "an item is a {kind}; it must be bytes, a path or an array, a tuple of one of these, a \
                 label, and optional fields, or a dictionary with the key \"image\""
            ))
        });
        Ok(Item { encoded, label, fields })
    }

    /// An item that is a dictionary. Its other keys are its fields.
    fn item_of(&self, item: &Bound<'_, PyDict>, index: u64) -> PyResult<Item> {
        let fields = item.copy()?;
        let encoded = match item.get_item("image")? {
            Some(image) => {
                fields.del_item("image")?;
                Encoded::of(&image).unwrap_or_else(|| Encoded::wrong_image(&image))
            }
            None => Encoded::wrong("an item is a dictionary without the key \"image\"".into()),
        };
        let mut label = match self.labels_are_given {
            true => self.labels[index as usize].load(Ordering::Relaxed),
            false => NO_LABEL,
        };
        if let Some(own) = fields.get_item("label")? {
            if !self.labels_are_given {
                label = label_of(&own)?;
            }
            fields.del_item("label")?;
        }
        Ok(Item { encoded, label, fields: fields.into_any().unbind() })
    }

    /// Reads an item, unless this thread has read it for its fields. Returns whether it has.
    fn item_once(&self, py: Python<'_>, index: u64) -> PyResult<(Item, bool)> {
        let is_own = |it: &mut (u64, u64, Item)| it.0 == self.number;
        match AHEAD.with_borrow_mut(|ahead| ahead.extract_if(.., is_own).next()) {
            Some((_, read, item)) if read == index && !is_opening() => Ok((item, true)),
            _ => Ok((self.item(py, index)?, false)),
        }
    }

    /// Keeps an item until its image is read. A sample of joined sources has items of several
    /// sequences, of which the last 4 are kept.
    fn keep(&self, index: u64, item: Item) {
        // The former item is dropped outside, because its destructor may read items.
        let _former = AHEAD.with_borrow_mut(|ahead| {
            let place = ahead.iter().position(|(number, ..)| *number == self.number);
            let place = place.or((ahead.len() >= 4).then_some(0));
            ahead.push((self.number, index, item));
            place.map(|place| ahead.remove(place))
        });
    }

    /// Error for an exception that an item raised.
    fn unreadable(&self, py: Python<'_>, index: u64, error: PyErr) -> DataError {
        let unreadable = data_error(py, Reason::Unreadable, &error);
        if let (Some(exceptions), false) = (&self.exceptions, is_opening()) {
            let mut kept = exceptions.lock().unwrap_or_else(PoisonError::into_inner);
            let former = kept.insert(index, error);
            drop((kept, former));
        }
        unreadable
    }

    /// Reads an item for a batch. Its label replaces an earlier label of the same item.
    /// Also returns whether the item was read for its fields before.
    fn taken(&self, py: Python<'_>, index: u64) -> PyResult<(Item, bool)> {
        let (item, was_ahead) = self.item_once(py, index)?;
        if !self.labels_are_given {
            self.labels[index as usize].store(item.label, Ordering::Relaxed);
            LAST_READ.set((self.number, index, item.label));
        }
        if !item.fields.is_none(py) {
            self.has_fields.store(true, Ordering::Relaxed);
        }
        if self.has_fields.load(Ordering::Relaxed) && !is_opening() {
            let fields = item.fields.clone_ref(py);
            // Drop earlier fields without the lock, because destructors may run Python code.
            let _former = self.kept().as_mut().and_then(|kept| kept.insert(index, fields));
        }
        Ok((item, was_ahead))
    }

    fn kept(&self) -> MutexGuard<'_, Option<HashMap<u64, Py<PyAny>>>> {
        self.fields.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Source for Sequence {
    fn len(&self) -> u64 {
        self.labels.len() as u64
    }

    /// Returns the label of a sample. If this thread read the sample last, returns the label of
    /// that read, because another thread may meanwhile have read the same item for another epoch,
    /// with another label. Otherwise returns the last known label.
    fn label(&self, index: u64) -> i64 {
        let known = &self.labels[index as usize];
        if !self.labels_are_given
            && let (number, read, label) = LAST_READ.get()
            && (number, read) == (self.number, index)
        {
            return label;
        }
        match known.load(Ordering::Relaxed) {
            UNKNOWN => {
                // Ignore an error here. It is reported when the sample is read.
                let item = Python::attach(|py| self.item(py, index).ok().map(|item| item.label));
                let Some(label) = item else { return NO_LABEL };
                let former =
                    known.compare_exchange(UNKNOWN, label, Ordering::Relaxed, Ordering::Relaxed);
                former.map_or_else(|newer| newer, |_| label)
            }
            label => label,
        }
    }

    /// Returns the name of the sequence and the index, and also the path if the sequence is a list
    /// of paths.
    fn location(&self, index: u64) -> String {
        let name = format!("{}[{index}]", self.name);
        match Python::attach(|py| path_in_list(self.items.bind(py), index)) {
            Some(path) => format!("{name} ({})", path.display()),
            None => name,
        }
    }

    fn read(&self, index: u64, page: &mut dyn Page, limit: u64) -> Result<(), DataError> {
        thread_state::keep();
        let taken = Python::attach(|py| {
            self.taken(py, index).map_err(|error| self.unreadable(py, index, error))
        });
        let (item, was_ahead) = taken?;
        let read = match &item.encoded {
            Encoded::Bytes(bytes) => page.fill(bytes, limit),
            Encoded::File(path) => read_file(path, page, limit),
            Encoded::Wrong(error) => {
                Python::attach(|py| Err(self.unreadable(py, index, error.clone_ref(py))))
            }
            Encoded::Array(array) => {
                page.space_within(array.file_bytes(), limit).and_then(|file| {
                    Python::attach(|py| {
                        array.write(py, file).map_err(|error| self.unreadable(py, index, error))
                    })
                })
            }
        };
        if was_ahead && read.as_ref().is_err_and(|error| error.reason == Reason::Oversized) {
            // The loader may read the sample again with a larger limit. The image must then belong
            // to the fields that were read.
            self.keep(index, item);
        } else if matches!(item.encoded, Encoded::Array(_)) {
            // Without the interpreter, the memory of the array would be freed later.
            Python::attach(|_| drop(item));
        }
        read
    }

    fn describe(&self) -> String {
        format!("{}, a sequence in Python: {} samples", self.name, self.labels.len())
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn hints(&self) -> Option<&dyn Hints> {
        Some(self)
    }

    fn fields(&self) -> Option<&dyn Fields> {
        Some(self)
    }
}

impl Fields for Sequence {
    /// The fields of the first item that can be read.
    fn schema(&self) -> Vec<Field> {
        Python::attach(|py| {
            // An item that cannot be read must not hide the fields of the others.
            let first = (0..self.len().min(8)).find_map(|index| self.item(py, index).ok());
            let Some(Item { fields, .. }) = first else { return Vec::new() };
            let Ok(fields) = fields.cast_bound::<PyDict>(py) else { return Vec::new() };
            let fields = fields.iter().filter_map(|(name, value)| {
                let kind = Value::of(&value).map_or(FieldKind::Bytes, |value| value.kind());
                Some(Field { name: name.extract().ok()?, kind })
            });
            fields.collect()
        })
    }

    fn is_open(&self) -> bool {
        true
    }

    /// Says where fields are, if the item has none.
    fn not_found(&self, index: u64, _: &str) -> Option<String> {
        Python::attach(|py| {
            let fields = self.item(py, index).ok()?.fields;
            let has_fields = fields.cast_bound::<PyDict>(py).is_ok_and(|it| !it.is_empty());
            let advice = "columns need fields: give fw.samples items that are dictionaries, such \
                          as {\"image\": ..., \"caption\": ...}, or read the Parquet files of a data \
                          set with fw.parquet";
            (!has_fields).then(|| advice.into())
        })
    }

    /// Keeps the item until its image is read.
    fn read_fields(
        &self,
        index: u64,
        wanted: &[&str],
        buffer: &mut Vec<u8>,
        limit: u64,
        put: &mut PutField<'_>,
    ) -> Result<(), DataError> {
        thread_state::keep();
        Python::attach(|py| {
            let item = self.item(py, index).map_err(|error| self.unreadable(py, index, error))?;
            let fields = item.fields.clone_ref(py);
            self.keep(index, item);
            let Ok(fields) = fields.cast_bound::<PyDict>(py) else { return Ok(()) };
            for (number, name) in wanted.iter().enumerate() {
                let value = fields.get_item(name).and_then(|value| match value {
                    Some(value) => Value::of(&value),
                    None => Ok(Value::Missing),
                });
                let unfit = |error: PyErr| {
                    let error = data_error(py, Reason::Field, &error);
                    let problem = format!("the field {name:?}: {}", error.problem);
                    error.reworded(problem)
                };
                let value = value.map_err(unfit)?;
                value.put(py, (name, limit), buffer, unfit, &mut |value| put(number, value))?;
            }
            Ok(())
        })
    }
}

impl Hints for Sequence {
    fn knows_labels(&self) -> bool {
        self.labels_are_given
    }
}

/// Finds the sequence that a sample belongs to. Returns the sequence's number and the sample's
/// index in it.
pub fn sequence_of(
    sequences: &[Arc<Sequence>],
    source: &dyn Source,
    index: u64,
) -> Option<(usize, u64)> {
    let (part, place) = source.part(index);
    let is_it = |it: &Arc<Sequence>| std::ptr::addr_eq(Arc::as_ptr(it), part);
    sequences.iter().position(is_it).map(|number| (number, place))
}

/// Checks that the labels of all items fit into memory.
fn check_memory(len: usize, name: &str) -> Result<()> {
    let needed = (len as u64).saturating_mul(size_of::<AtomicI64>() as u64);
    match Available::of_process() {
        Some(Available { bytes: available, limit }) if needed > available => {
            let problem = format!(
                "{name}.items has {len} items, whose labels need {} of memory, but only {} are \
                 available ({limit})",
                feedwater::internals::footprint::bytes(needed),
                feedwater::internals::footprint::bytes(available)
            );
            Err(Error::Memory { needed, available: Some(available), problem })
        }
        _ => Ok(()),
    }
}

/// Returns the path of an item of a list or tuple. Reading such an item runs no code of the user.
/// The item is a string, or a tuple that begins with a string.
fn path_in_list(items: &Bound<'_, PyAny>, index: u64) -> Option<PathBuf> {
    if !items.is_exact_instance_of::<PyList>() && !items.is_exact_instance_of::<PyTuple>() {
        return None;
    }
    let item = items.get_item(index).ok()?;
    let item = match item.cast_exact::<PyTuple>() {
        Ok(pair) => pair.get_item(0).ok()?,
        Err(_) => item,
    };
    item.is_exact_instance_of::<PyString>().then(|| item.extract().ok())?
}
