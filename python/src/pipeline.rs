//! A pipeline file, or the text of one.

use std::path::PathBuf;
use std::sync::Arc;

use feedwater::LoaderState;
use feedwater::storage::Storage;
use pyo3::prelude::*;

use crate::error::raised;
use crate::loader::{Loader, json};

/// The source at a path, as JSON of its table in a pipeline file.
#[pyfunction]
pub fn detected(py: Python<'_>, path: PathBuf) -> PyResult<String> {
    let table = py.detach(|| feedwater::source::detect(&path, &Storage::default())?.to_table());
    json(&table.map_err(|error| raised(py, &error))?)
}

/// Settings, chain and source of a loader.
#[pyclass(frozen)]
pub struct Pipeline(feedwater::Pipeline);

#[pymethods]
impl Pipeline {
    /// Reads a pipeline file.
    #[staticmethod]
    fn from_file(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let read = py.detach(|| feedwater::Pipeline::from_file(path));
        read.map(Self).map_err(|error| raised(py, &error))
    }

    /// Reads the text of a pipeline file, whose paths are relative to `base`.
    #[staticmethod]
    fn from_toml(py: Python<'_>, text: &str, base: PathBuf) -> PyResult<Self> {
        let read = py.detach(|| feedwater::Pipeline::from_toml(text, base));
        read.map(Self).map_err(|error| raised(py, &error))
    }

    /// The file with every setting written out.
    fn to_toml(&self, py: Python<'_>) -> PyResult<String> {
        self.0.to_toml().map_err(|error| raised(py, &error))
    }

    /// Opens the source and builds a loader that begins with an epoch, or at a state as JSON.
    #[pyo3(signature = (epoch=0, epochs=None, state=None))]
    fn build(
        &self,
        py: Python<'_>,
        epoch: u32,
        epochs: Option<u32>,
        state: Option<&str>,
    ) -> PyResult<Loader> {
        let state: Option<LoaderState> = match state.map(serde_json::from_str).transpose() {
            Ok(state) => state,
            Err(problem) => {
                let error = feedwater::Error::config("state", format!("is not one: {problem}"));
                return Err(raised(py, &error));
            }
        };
        let built = py.detach(|| {
            let builder = self.0.builder()?.start_epoch(epoch).epochs(epochs);
            let builder = match state {
                Some(state) => builder.resume(state),
                None => builder,
            };
            builder.build()
        });
        built.map(|loader| Loader::new(Arc::new(loader))).map_err(|error| raised(py, &error))
    }
}
