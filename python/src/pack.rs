//! Packing on several machines, for `feedwater.ray.pack`.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use feedwater::{Error, Source};
use feedwater_tools::pack::{
    self, ChosenFields, Coordinator, FieldChoice, Piece, Presize, Settings, ShardFormat,
    ShardRange, Written,
};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use serde::Deserialize;

use crate::error::raised;
use crate::pipeline::Pipeline;
use crate::text::json;

/// Settings of a pack. Limits come from the pipeline.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PackSettings {
    format: ShardFormat,
    name: String,
    shard_bytes: u64,
    presize: Option<Presize>,
    overwrite: bool,
    skip: bool,
    threads: usize,
    row_index: bool,
    fields: FieldChoice,
}

/// Source and directory of a pack, on one of the machines that pack.
#[pyclass(frozen)]
pub struct Packer {
    source: Arc<dyn Source>,
    directory: PathBuf,
    settings: Settings,
}

#[pymethods]
impl Packer {
    /// Opens the source. `settings` are JSON.
    #[new]
    fn new(
        py: Python<'_>,
        pipeline: &Pipeline,
        directory: PathBuf,
        settings: &str,
    ) -> PyResult<Self> {
        let PackSettings {
            format,
            name,
            shard_bytes,
            presize,
            overwrite,
            skip,
            threads,
            row_index,
            fields,
        } = parsed(py, "settings", settings)?;
        let (limits, strict) =
            (pipeline.settings().limits.clone(), pipeline.settings().decode.strict);
        let settings = Settings {
            format,
            name,
            shard_bytes,
            presize,
            overwrite,
            verify: false,
            skip,
            threads,
            limits,
            strict,
            row_index,
            fields,
        };
        settings.check().map_err(|error| raised(py, &error))?;
        Ok(Self { source: pipeline.source(py)?, directory, settings })
    }

    /// Returns the names of the fields that are packed, and warnings about them.
    fn fields(&self, py: Python<'_>) -> PyResult<(Vec<String>, Vec<String>)> {
        let chosen = py.detach(|| pack::chosen_fields(&*self.source, &self.settings));
        let ChosenFields { names, warnings } = chosen.map_err(|error| raised(py, &error))?;
        Ok((names, warnings))
    }

    /// Returns a packer of the same source that packs the fields with these names.
    fn with_fields(&self, names: Vec<String>) -> Self {
        let settings = Settings { fields: FieldChoice::Named(names), ..self.settings.clone() };
        Self { source: self.source.clone(), directory: self.directory.clone(), settings }
    }

    /// Locks the directory, and begins or resumes the pack.
    fn coordinate(&self, py: Python<'_>) -> PyResult<PackCoordinator> {
        let begun =
            py.detach(|| Coordinator::begin(&*self.source, &self.directory, &self.settings));
        let coordinator = begun.map_err(|error| raised(py, &error))?;
        Ok(PackCoordinator(Mutex::new(Some(coordinator))))
    }

    /// Encodes the samples `begin..end`. Returns the number of bytes that each sample adds to a
    /// shard, and the encoded piece.
    fn encode<'py>(
        &self,
        py: Python<'py>,
        begin: u64,
        end: u64,
    ) -> PyResult<(Vec<u64>, Bound<'py, PyBytes>)> {
        let made = py.detach(|| {
            let piece = pack::encode(&*self.source, &self.settings, begin..end)?;
            let sizes = piece.sizes(&self.settings, self.source.len());
            Ok((sizes, piece.to_bytes()?))
        });
        let (sizes, bytes) = made.map_err(|error: Error| raised(py, &error))?;
        Ok((sizes, PyBytes::new(py, &bytes)))
    }

    /// Writes a shard of these pieces, reads it back if `verify`, and returns what was written, as
    /// JSON.
    fn write(
        &self,
        py: Python<'_>,
        shard: &str,
        pieces: Vec<pyo3::pybacked::PyBackedBytes>,
        verify: bool,
    ) -> PyResult<String> {
        let shard: ShardRange = parsed(py, "shard", shard)?;
        let written = py.detach(|| {
            let pieces = pieces.iter().map(|bytes| Piece::from_bytes(bytes));
            let written = pack::write_shard(&self.directory, &self.settings, &shard, pieces)?;
            if let Some(shard) = written.shard.as_ref().filter(|_| verify) {
                pack::verify_shard(&self.directory, self.settings.format, shard)?;
            }
            Ok(written)
        });
        json(&written.map_err(|error: Error| raised(py, &error))?)
    }
}

/// Coordinator of a pack: its progress and the lock of the directory. Only one process has it,
/// until the pack is finished.
#[pyclass(frozen)]
pub struct PackCoordinator(Mutex<Option<Coordinator>>);

impl PackCoordinator {
    fn with<T>(
        &self,
        py: Python<'_>,
        then: impl FnOnce(&mut Coordinator) -> feedwater::Result<T> + Send,
    ) -> PyResult<T>
    where
        T: Send,
    {
        let result = py.detach(|| {
            let mut coordinator = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            coordinator.as_mut().map_or(Err(Error::Stopped), then)
        });
        result.map_err(|error| raised(py, &error))
    }

    /// Takes the coordinator, after calls of other threads have ended. The thread must be detached
    /// from the interpreter, because those calls may need the interpreter.
    fn taken(&self) -> Option<Coordinator> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

#[pymethods]
impl PackCoordinator {
    /// Number of samples in the source.
    #[getter]
    fn samples(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, |coordinator| Ok(coordinator.samples()))
    }

    /// Index of the first sample whose encoded size is not known yet.
    #[getter]
    fn next(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, |coordinator| Ok(coordinator.next()))
    }

    /// Adds the sizes of the next samples. Returns the shards whose last sample is now known, as
    /// JSON.
    fn sized(&self, py: Python<'_>, sizes: Vec<u64>) -> PyResult<String> {
        json(&self.with(py, |coordinator| Ok(coordinator.sized(&sizes)))?)
    }

    /// Records that the next shard was written.
    fn written(&self, py: Python<'_>, written: &str) -> PyResult<()> {
        let written: Written = parsed(py, "written", written)?;
        self.with(py, |coordinator| coordinator.written(written))
    }

    /// Ends the pack, and returns the manifest as JSON.
    fn finish(&self, py: Python<'_>) -> PyResult<String> {
        let manifest = py.detach(|| self.taken().ok_or(Error::Stopped)?.finish());
        json(&manifest.map_err(|error| raised(py, &error))?)
    }

    /// Releases the lock of the directory.
    fn close(&self, py: Python<'_>) {
        py.detach(|| drop(self.taken()));
    }
}

fn parsed<T: serde::de::DeserializeOwned>(py: Python<'_>, key: &str, text: &str) -> PyResult<T> {
    serde_json::from_str(text)
        .map_err(|problem| raised(py, &Error::config(key, problem.to_string())))
}
