//! Python's class of a batch: its tensors, each of which can be exported once, and the records of
//! its samples.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use feedwater::handoff::CudaArrayInterface;
use feedwater::handoff::dlpack::{self, ConsumerStream, OwnedColumn};
use feedwater::{Plan, SampleRecord, Source, TensorShape};
use pyo3::exceptions::{PyBufferError, PyKeyError};
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PyList, PyTuple};

use crate::capsule::{self, Tensor};
use crate::columns::{
    Column, ColumnPart, Content, Export, Numbers, PyColumn, TARGET, column_names, exported_columns,
    number_columns,
};
use crate::error::raised;
use crate::objects::Objects;
use crate::text::{json, location};

/// A batch. When one of its tensors is exported to another library, that library owns its memory.
#[pyclass(frozen)]
pub struct Batch {
    batch: Mutex<Content>,
    shape: TensorShape,
    /// DLPack's device type, and the number of the device.
    device: (i32, i32),
    epoch: u32,
    number: u64,
    labels: Vec<i64>,
    samples: Vec<SampleRecord>,
    source: Arc<dyn Source>,
    plan: Arc<Plan>,
    /// Index and message of each sample that failed.
    errors: Vec<(u64, String)>,
    classes: usize,
    /// Copy of the soft targets, made before they are exported.
    targets: Mutex<Option<Vec<u8>>>,
    /// Names of the columns besides images, labels and soft targets.
    column_names: Vec<String>,
    /// The columns that are exported: images, views and masks.
    exported: Vec<Export>,
    /// Other columns of numbers, which are exported on request. They are also copied.
    numbers: Vec<Numbers>,
    /// Copies of the other columns, made before a tensor is exported.
    columns: Mutex<Option<Vec<Column>>>,
}

impl Batch {
    pub fn new(batch: feedwater::Batch) -> Self {
        let device = match batch.stream() {
            Some(stream) => (dlpack::CUDA, stream.device().ordinal() as i32),
            None => (dlpack::CPU, 0),
        };
        Self {
            shape: batch.shape(),
            device,
            epoch: batch.epoch(),
            number: batch.number(),
            labels: batch.labels().to_vec(),
            samples: batch.samples().to_vec(),
            source: batch.source(),
            plan: batch.plan(),
            errors: batch.errors().iter().map(|it| (it.index, it.to_string())).collect(),
            classes: batch.classes(),
            targets: Mutex::new(None),
            column_names: column_names(&batch.plan()),
            exported: exported_columns(&batch),
            numbers: number_columns(&batch),
            columns: Mutex::new(None),
            batch: Mutex::new(Content::Whole(Box::new(batch))),
        }
    }

    /// The source of the samples.
    pub fn source(&self) -> &dyn Source {
        &*self.source
    }

    /// Indices of the samples that failed.
    pub fn failed(&self) -> impl Iterator<Item = u64> {
        self.errors.iter().map(|(index, _)| *index)
    }

    /// Whether a sample of the source failed.
    pub fn has_failed(&self, index: u64) -> bool {
        self.failed().any(|failed| failed == index)
    }

    /// Converts the annotated objects of each sample.
    fn placed(
        &self,
        py: Python<'_>,
        convert: impl Fn(feedwater::Objects) -> Objects + Sync,
    ) -> Vec<Objects> {
        let objects = |sample: &SampleRecord| sample.objects(&*self.source, &self.plan, self.epoch);
        py.detach(|| self.samples.iter().map(|it| convert(objects(it))).collect())
    }

    /// Random choices of the operators for a sample, and those of the views, as JSON.
    fn drawn(&self, sample: &SampleRecord) -> PyResult<[String; 2]> {
        let boxes = match self.plan.reads_boxes() {
            true => sample.upright_boxes(&*self.source),
            false => Vec::new(),
        };
        let SampleRecord { index, repeat, size, .. } = *sample;
        let views = json(&self.plan.drawn_views(self.epoch, index, repeat, size, &boxes))?;
        Ok([json(&self.plan.drawn(self.epoch, index, repeat, size, boxes))?, views])
    }

    /// Calls `then` with the batch. Fails if a tensor was exported. An error is converted to a
    /// Python exception after the lock is released.
    fn with<T>(
        &self,
        py: Python<'_>,
        then: impl FnOnce(&feedwater::Batch) -> feedwater::Result<T>,
    ) -> PyResult<T> {
        let made = locked(py, &self.batch).whole().map(then);
        made.ok_or_else(given_away)?.map_err(|error| raised(py, &error))
    }

    /// Takes a part of a column out of the batch, to export it. Fails if it was taken before.
    fn take_column(&self, py: Python<'_>, name: &str, part: ColumnPart) -> PyResult<OwnedColumn> {
        if name == TARGET {
            self.keep_targets(py)?;
        }
        self.with_column(py, name, part, |columns, place| columns.swap_remove(place))
    }

    /// Calls `then` with the columns that are not exported yet, and the place of a part of a column
    /// in them. Fails if this part was exported.
    fn with_column(
        &self,
        py: Python<'_>,
        name: &str,
        part: ColumnPart,
        then: impl FnOnce(&mut Vec<OwnedColumn>, usize) -> OwnedColumn,
    ) -> PyResult<OwnedColumn> {
        self.keep_columns(py)?;
        let mut content = locked(py, &self.batch);
        if let Content::Whole(_) = &*content {
            let numbers = self.numbers.iter().map(|it| &it.values);
            let columns = self.exported.iter().chain(numbers);
            let mut names: Vec<&str> = columns.map(|it| it.name.as_str()).collect();
            if self.classes > 0 && !names.contains(&TARGET) {
                names.push(TARGET);
            }
            let Content::Whole(batch) = std::mem::replace(&mut *content, Content::Columns(vec![]))
            else {
                return Err(given_away());
            };
            let columns = dlpack::split_columns(*batch, &names);
            let columns = columns.map_err(|error| raised(py, &error))?;
            let with_offsets = columns.into_iter().flat_map(|mut column| {
                let [offsets, lists] = [column.take_offsets(), column.take_text_offsets()];
                [Some(column), offsets, lists].into_iter().flatten()
            });
            *content = Content::Columns(with_offsets.collect());
        }
        let Content::Columns(columns) = &mut *content else { return Err(given_away()) };
        let is_wanted = |it: &OwnedColumn| it.name() == name && part.is(it);
        let place = columns.iter().position(is_wanted);
        place.map(|place| then(columns, place)).ok_or_else(given_away)
    }

    /// Copies the soft targets to host memory, and waits for the device. They then remain available
    /// after they are exported.
    fn keep_targets(&self, py: Python<'_>) -> PyResult<()> {
        if self.classes > 0 && locked(py, &self.targets).is_none() {
            match self.to_host(py, TARGET, usize::MAX, "values") {
                Ok(copied) => *locked(py, &self.targets) = Some(copied.as_bytes().to_vec()),
                // Another thread has copied the targets and then exported them. So the copy exists.
                Err(_) if locked(py, &self.targets).is_some() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Copies the columns, so that they remain available after the tensor is exported.
    fn keep_columns(&self, py: Python<'_>) -> PyResult<()> {
        let mut columns = locked(py, &self.columns);
        if columns.is_some() || self.column_names.is_empty() {
            return Ok(());
        }
        let batch = locked(py, &self.batch);
        // If another column was exported, the copies exist.
        let Some(batch) = batch.whole() else { return Ok(()) };
        let is_copied = |name: &&String| self.exported.iter().all(|it| it.name != **name);
        let copied = self.column_names.iter().filter(is_copied);
        let copies = copied.filter_map(|name| batch.column(name));
        *columns = Some(copies.map(Column::copied).collect::<PyResult<_>>()?);
        Ok(())
    }
}

/// Name, element type and shape of a column of numbers, and its numbers of offsets.
type NumbersEntry = (String, &'static str, Vec<usize>, (Option<usize>, Option<usize>));

#[pymethods]
impl Batch {
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.shape.dims())
    }

    #[getter]
    fn dtype(&self) -> &'static str {
        self.shape.dtype.name()
    }

    #[getter]
    fn layout(&self) -> &'static str {
        self.shape.layout.name()
    }

    /// DLPack's device type, and the number of the device.
    #[getter]
    fn device(&self) -> (i32, i32) {
        self.device
    }

    #[getter]
    fn epoch(&self) -> u32 {
        self.epoch
    }

    #[getter]
    fn number(&self) -> u64 {
        self.number
    }

    #[getter]
    fn classes(&self) -> usize {
        self.classes
    }

    /// Index of each sample in the source.
    #[getter]
    pub fn indices(&self) -> Vec<u64> {
        self.samples.iter().map(|sample| sample.index).collect()
    }

    /// Index of each sample in its original source, before sources were combined or samples
    /// selected.
    #[getter]
    fn source_indices(&self, py: Python<'_>) -> Vec<u64> {
        let place = |sample: &SampleRecord| self.source.part(sample.index).1;
        py.detach(|| self.samples.iter().map(place).collect())
    }

    /// Whether each sample is padding, which only fills the last batch.
    #[getter]
    fn padding(&self) -> Vec<bool> {
        self.samples.iter().map(|sample| sample.padding).collect()
    }

    #[getter]
    fn labels(&self) -> Vec<i64> {
        self.labels.clone()
    }

    /// The labels as 64-bit integers in native byte order.
    fn label_bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyByteArray> {
        let bytes: Vec<u8> = self.labels.iter().flat_map(|label| label.to_ne_bytes()).collect();
        PyByteArray::new(py, &bytes)
    }

    /// The soft targets as 32-bit floats in native byte order.
    fn soft_target_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyByteArray>> {
        self.keep_targets(py)?;
        Ok(PyByteArray::new(py, locked(py, &self.targets).as_deref().unwrap_or_default()))
    }

    /// Names of the columns besides images, labels and soft targets.
    #[getter]
    fn columns(&self) -> Vec<String> {
        self.column_names.clone()
    }

    /// Name, element type and shape of the columns that are exported without a copy: images, views
    /// and masks.
    #[getter]
    fn exported(&self) -> Vec<(String, &'static str, Vec<usize>)> {
        let exported = self.exported.iter();
        exported.map(|it| (it.name.clone(), it.element.name(), it.shape.clone())).collect()
    }

    /// Name, element type and shape of the other columns of numbers, and the number of offsets of
    /// the parts `offsets` and `list_offsets` if the column has them.
    #[getter]
    fn numbers(&self) -> Vec<NumbersEntry> {
        let number = |Numbers { values: it, offsets }: &Numbers| {
            let [offsets, lists] = *offsets;
            (it.name.clone(), it.element.name(), it.shape.clone(), (offsets, lists))
        };
        self.numbers.iter().map(number).collect()
    }

    /// Copies a column that is made from a field.
    fn column<'py>(&self, py: Python<'py>, name: &str) -> PyResult<PyColumn<'py>> {
        let unknown = || PyKeyError::new_err(name.to_string());
        if let Some(copies) = &*locked(py, &self.columns) {
            let found = copies.iter().find(|column| column.name == name);
            return found.map(|column| column.to_python(py)).ok_or_else(unknown);
        }
        let batch = locked(py, &self.batch);
        let Some(column) = batch.whole().ok_or_else(given_away)?.column(name) else {
            return Err(unknown());
        };
        let values = PyByteArray::new(py, column.bytes().unwrap_or_default());
        let [offsets, texts] =
            [column.offsets(), column.text_offsets()].map(|it| it.map(<[i64]>::to_vec));
        let (kind, element) = (column.kind().name(), column.element_type().name());
        Ok((kind, element, column.shape(), values, offsets, texts))
    }

    /// Lets go of the columns, so that they are not copied when the tensor is exported. Copies that
    /// exist are kept.
    fn forget_columns(&self, py: Python<'_>) {
        locked(py, &self.columns).get_or_insert_default();
    }

    /// The record of each sample, as a dictionary.
    fn samples<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let drawn = py.detach(|| self.samples.iter().map(|sample| self.drawn(sample)).collect());
        let (read, drawn): (_, Vec<PyResult<[String; 2]>>) =
            (py.import("json")?.getattr("loads")?, drawn);
        let entry = |(sample, drawn): (&SampleRecord, PyResult<[String; 2]>)| {
            let entry = sample_entry(py, sample)?;
            entry.set_item("source_index", self.source.part(sample.index).1)?;
            entry.set_item("location", location(&*self.source, sample.index))?;
            let [operators, views] = drawn?;
            entry.set_item("operators", read.call1((operators,))?)?;
            entry.set_item("views", read.call1((views,))?)?;
            PyResult::Ok(entry)
        };
        let entries: PyResult<Vec<_>> = self.samples.iter().zip(drawn).map(entry).collect();
        PyList::new(py, entries?)
    }

    /// Annotated objects of each sample. Skips objects whose visible share of the box is below
    /// `visible`, and crowds unless `crowd`.
    fn objects(&self, py: Python<'_>, visible: f64, crowd: bool) -> Vec<Objects> {
        self.placed(py, |it| Objects::new(it, visible, crowd))
    }

    /// All annotated objects of each sample, also those that its tensor does not show.
    fn all_objects(&self, py: Python<'_>) -> Vec<Objects> {
        self.placed(py, Objects::all)
    }

    /// Address of the tensor, on its device.
    #[getter]
    fn data_ptr(&self, py: Python<'_>) -> PyResult<u64> {
        let content = locked(py, &self.batch);
        if let Some(image) = content.image() {
            return Ok(image.address());
        }
        let batch = content.whole().ok_or_else(given_away)?;
        let host = || batch.host().map(|bytes| bytes.as_ptr().addr() as u64);
        Ok(batch.device_ptr().or_else(host).unwrap_or_default())
    }

    /// Number of samples that failed.
    #[getter(failed)]
    fn failed_count(&self) -> usize {
        self.errors.len()
    }

    /// Index and message of each sample that failed.
    #[getter]
    fn errors(&self) -> Vec<(u64, String)> {
        self.errors.clone()
    }

    /// Copies a part of a column that is exported, or only of its first `samples` samples, to host
    /// memory.
    #[pyo3(signature = (column, samples=usize::MAX, part="values"))]
    fn to_host<'py>(
        &self,
        py: Python<'py>,
        column: &str,
        samples: usize,
        part: &str,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let part = ColumnPart::named(part)?;
        let each = |len: usize| len / self.samples.len().max(1);
        let first = |bytes: &[u8]| {
            let end = samples.saturating_mul(each(bytes.len())).min(bytes.len());
            PyBytes::new(py, &bytes[..end])
        };
        let content = locked(py, &self.batch);
        let copied = match &*content {
            Content::Whole(batch) => {
                let column = batch.column(column).ok_or_else(given_away)?;
                if let Some(numbers) = part.offsets(column) {
                    let bytes: Vec<u8> = numbers.iter().flat_map(|it| it.to_ne_bytes()).collect();
                    return Ok(first(&bytes));
                }
                match column.bytes() {
                    Some(bytes) => return Ok(first(bytes)),
                    None => column.to_host(),
                }
            }
            Content::Columns(columns) => {
                let is_wanted = |it: &&OwnedColumn| it.name() == column && part.is(it);
                let found = columns.iter().find(is_wanted);
                found.ok_or_else(given_away)?.to_host()
            }
        };
        copied.map(|bytes| first(&bytes)).map_err(|error| raised(py, &error))
    }

    /// Exports a part of a column as a DLPack capsule for a consumer that uses it on `stream`.
    /// `unnamed`: whether it is unknown which streams the consumer will use. `lent`: whether the
    /// consumer only reads the part, which the batch then keeps.
    #[pyo3(signature = (column, stream, versioned, unnamed=false, part="values", lent=false))]
    #[allow(clippy::too_many_arguments, reason = "they are keyword arguments in Python")]
    fn dlpack<'py>(
        &self,
        py: Python<'py>,
        column: &str,
        stream: Option<i64>,
        versioned: bool,
        unnamed: bool,
        part: &str,
        lent: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let part = ColumnPart::named(part)?;
        let column = match lent {
            true => self.with_column(py, column, part, |columns, place| columns[place].lend())?,
            false => self.take_column(py, column, part)?,
        };
        let stream = match unnamed {
            true => Ok(ConsumerStream::Unnamed),
            false => capsule::stream(&column, stream),
        };
        let stream = stream.map_err(|error| raised(py, &error))?;
        // Detach from the interpreter, because the export may wait for the device.
        let exported = py.detach(|| match versioned {
            true => column.export(&stream).map(Tensor::Versioned),
            false => column.export(&stream).map(Tensor::Legacy),
        });
        capsule::new(py, exported.map_err(|error| raised(py, &error))?)
    }

    /// The fields of `__cuda_array_interface__`.
    fn cuda_array_interface<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let interface = self.with(py, CudaArrayInterface::new)?;
        let fields = PyDict::new(py);
        fields.set_item("shape", PyTuple::new(py, interface.shape)?)?;
        fields.set_item("typestr", interface.typestr)?;
        fields.set_item("data", interface.data)?;
        fields.set_item("strides", py.None())?;
        fields.set_item("stream", interface.stream)?;
        fields.set_item("version", interface.version)?;
        Ok(fields)
    }
}

/// Converts a record to a dictionary. Its keys are those of `feedwater dump`.
fn sample_entry<'py>(py: Python<'py>, sample: &SampleRecord) -> PyResult<Bound<'py, PyDict>> {
    let window = sample.trace.roi;
    let entry = PyDict::new(py);
    entry.set_item("index", sample.index)?;
    entry.set_item("label", sample.label)?;
    entry.set_item("width", sample.size.width)?;
    entry.set_item("height", sample.size.height)?;
    entry.set_item("reduction", sample.reduction)?;
    entry.set_item("roi", (window.x, window.y, window.width, window.height))?;
    entry.set_item("flipped_horizontally", sample.trace.flipped_horizontally)?;
    entry.set_item("flipped_vertically", sample.trace.flipped_vertically)?;
    entry.set_item("outcome", sample.outcome.name())?;
    entry.set_item("cpu_fallback", sample.cpu_fallback)?;
    entry.set_item("tolerated", sample.tolerated.map(|it| it.name()))?;
    entry.set_item("jpeg", sample.jpeg.map(|it| it.name()))?;
    entry.set_item("repeat", sample.repeat)?;
    entry.set_item("replaces", sample.replaces)?;
    entry.set_item("padding", sample.padding)?;
    Ok(entry)
}

/// Locks a value. While a thread waits for the lock, it is detached from the interpreter. Otherwise
/// there could be a deadlock: when the holder of the lock creates Python objects, Python may first
/// wait until all attached threads have stopped.
fn locked<'a, T>(py: Python<'_>, value: &'a Mutex<T>) -> MutexGuard<'a, T> {
    value.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner)
}

fn given_away() -> PyErr {
    PyBufferError::new_err(
        "the tensor of this batch was given away; use the array that was made from it",
    )
}
