//! Columns of a batch for Python: those that are exported without a copy, and copies of the others.

use std::collections::HashMap;

use feedwater::ElementType;
use feedwater::handoff::dlpack::OwnedColumn;
use feedwater::plan::{CellKind, ColumnKind, Plan};
use pyo3::exceptions::{PyMemoryError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyByteArray;

/// What a batch still has.
pub enum Content {
    /// The whole batch.
    Whole(Box<feedwater::Batch>),
    /// After the first export: the columns that are not exported yet.
    Columns(Vec<OwnedColumn>),
}

/// Name, element type and shape of a column that is exported.
pub struct Export {
    pub name: String,
    pub element: ElementType,
    pub shape: Vec<usize>,
}

/// A column of numbers that is exported on request.
pub struct Numbers {
    pub values: Export,
    /// Number of offsets, if the column is ragged, and of the offsets of lists, if a sample has
    /// several ones.
    pub offsets: [Option<usize>; 2],
}

/// Part of a column that is exported as a tensor of its own.
#[derive(Clone, Copy, PartialEq)]
pub enum ColumnPart {
    Values,
    Offsets,
    ListOffsets,
}

impl ColumnPart {
    /// The part with this name in Python.
    pub fn named(name: &str) -> PyResult<Self> {
        match name {
            "values" => Ok(Self::Values),
            "offsets" => Ok(Self::Offsets),
            "list_offsets" => Ok(Self::ListOffsets),
            other => Err(PyValueError::new_err(format!("{other:?} is no part of a column"))),
        }
    }

    /// Whether this is the part that was split off.
    pub fn is(self, column: &OwnedColumn) -> bool {
        let part = match (column.is_offsets(), column.is_text_offsets()) {
            (true, _) => Self::Offsets,
            (_, true) => Self::ListOffsets,
            _ => Self::Values,
        };
        self == part
    }

    /// Offsets of a column, unless the part is its values.
    pub fn offsets(self, column: feedwater::loader::Column<'_>) -> Option<&[i64]> {
        match self {
            Self::Values => None,
            Self::Offsets => column.offsets(),
            Self::ListOffsets => column.text_offsets(),
        }
    }
}

impl Export {
    fn of(column: feedwater::loader::Column<'_>) -> Self {
        let (name, shape) = (column.name().to_string(), column.shape());
        Self { name, element: column.element_type(), shape }
    }
}

/// Copy of a column.
pub struct Column {
    pub name: String,
    kind: &'static str,
    element: ElementType,
    shape: Vec<usize>,
    values: Vec<u8>,
    offsets: Option<Vec<i64>>,
    text_offsets: Option<Vec<i64>>,
}

impl Column {
    /// Copies a column, which must be in host memory.
    pub fn copied(column: feedwater::loader::Column<'_>) -> PyResult<Self> {
        let bytes = column.bytes().unwrap_or_default();
        let mut values = Vec::new();
        values.try_reserve_exact(bytes.len()).map_err(|_| {
            let text = format!(
                "the column {:?} has {} bytes, which cannot be allocated; lower batch_size or max_len",
                column.name(),
                bytes.len()
            );
            PyMemoryError::new_err(text)
        })?;
        values.extend_from_slice(bytes);
        Ok(Self {
            name: column.name().to_string(),
            kind: column.kind().name(),
            element: column.element_type(),
            shape: column.shape(),
            values,
            offsets: column.offsets().map(<[i64]>::to_vec),
            text_offsets: column.text_offsets().map(<[i64]>::to_vec),
        })
    }

    pub fn to_python<'py>(&self, py: Python<'py>) -> PyColumn<'py> {
        let values = PyByteArray::new(py, &self.values);
        let offsets = (self.offsets.clone(), self.text_offsets.clone());
        (self.kind, self.element.name(), self.shape.clone(), values, offsets.0, offsets.1)
    }
}

/// A column for Python: kind, element type, shape of the values, bytes of the values, offsets,
/// offsets of the texts in a column of several texts per sample.
pub type PyColumn<'py> = (
    &'static str,
    &'static str,
    Vec<usize>,
    Bound<'py, PyByteArray>,
    Option<Vec<i64>>,
    Option<Vec<i64>>,
);

impl Content {
    /// The batch, if no column was exported.
    pub fn whole(&self) -> Option<&feedwater::Batch> {
        match self {
            Content::Whole(batch) => Some(batch),
            Content::Columns(_) => None,
        }
    }

    /// The images, if another column was exported and they were not.
    pub fn image(&self) -> Option<&OwnedColumn> {
        match self {
            Content::Whole(_) => None,
            Content::Columns(columns) => columns.iter().find(|column| column.name() == IMAGE),
        }
    }
}

/// Name of the column of the labels.
const LABEL: &str = "label";

/// Name of the column of the soft targets.
pub const TARGET: &str = "target";

/// Name of the column of the images.
pub const IMAGE: &str = "image";

/// Names of the columns besides images, labels and soft targets.
pub fn column_names(plan: &Plan) -> Vec<String> {
    let views = plan.views.iter().map(|view| view.name.clone());
    views.chain(plan.settings.columns.iter().map(|column| column.name.clone())).collect()
}

/// Names of the same columns, and the maximum size of a sample in each, in bytes.
pub fn column_sizes(plan: &Plan) -> Vec<(String, usize)> {
    let size = |name: String| {
        let column = plan.columns.iter().find(|column| column.name() == name);
        let bytes = column.map_or(0, |column| column.sample_bytes());
        (name, bytes)
    };
    column_names(plan).into_iter().map(size).collect()
}

/// The columns of numbers that are made from fields, without masks, and the labels and soft targets
/// if the batch is on a device. Labels and soft targets in host memory are copied instead.
pub fn number_columns(batch: &feedwater::Batch) -> Vec<Numbers> {
    let plan = batch.plan();
    let on_device = batch.stream().is_some();
    let is_other = |name: &str| {
        if name == LABEL || name == TARGET {
            return on_device;
        }
        let settings = plan.settings.columns.iter().find(|it| it.name == name);
        settings.is_some_and(|it| it.kind != ColumnKind::Mask)
    };
    let is_number = |kind| matches!(kind, CellKind::Array | CellKind::List | CellKind::Lists);
    let columns = batch.columns().filter(|it| is_other(it.name()) && is_number(it.kind()));
    let numbers = columns.map(|column| Numbers {
        values: Export::of(column),
        offsets: [column.offsets(), column.text_offsets()].map(|it| it.map(<[i64]>::len)),
    });
    numbers.collect()
}

/// The columns that are exported without a copy: images, views and masks.
pub fn exported_columns(batch: &feedwater::Batch) -> Vec<Export> {
    let plan = batch.plan();
    let masks = plan.settings.columns.iter().filter(|it| it.kind == ColumnKind::Mask);
    let masks = masks.map(|column| column.name.as_str());
    let views = plan.views.iter().map(|view| view.name.as_str());
    let columns = std::iter::once(IMAGE).chain(views).chain(masks);
    columns.filter_map(|name| batch.column(name)).map(Export::of).collect()
}

/// Tensor values that are shown black and white for each channel, by the name of the column: of
/// images and views with floats. Infinite for indices.
pub fn normalization(plan: &Plan) -> HashMap<String, [[f32; 2]; 3]> {
    let views = plan.views.iter().map(|view| (view.name.as_str(), &view.plan));
    let chains = views.chain([(IMAGE, plan)]);
    let ends = |(name, plan)| Some((String::from(name), feedwater_cli::normalization(plan)?));
    chains.filter_map(ends).collect()
}
