//! A pipeline, from a pipeline file or from the text of one.

use std::path::PathBuf;
use std::sync::Arc;

use feedwater::plan::{Settings, ShardFrom};
use feedwater::storage::Storage;
use feedwater::{Error, LoaderBuilder, LoaderState, OnError, Source};
use pyo3::prelude::*;

use crate::background;
use crate::error::raised;
use crate::loader::Loader;
use crate::source::{Own, Sequence};
use crate::text::json;

/// Detects the source at a path. Returns its table in a pipeline file, as JSON.
#[pyfunction]
pub fn detected(py: Python<'_>, path: PathBuf) -> PyResult<String> {
    let table = background::run(py, move || {
        feedwater::source::detect(&path, &Storage::default())?.to_table()
    })?;
    json(&table.map_err(|error| raised(py, &error))?)
}

/// Settings, chain and source of a loader.
#[pyclass(frozen)]
pub struct Pipeline {
    pipeline: feedwater::Pipeline,
    /// Whether the pipeline comes from generated text. Error messages then contain no line and
    /// column, because the user did not write the text.
    is_text: bool,
    /// Sequences of Python that the pipeline names, by name.
    own: Own,
    /// The source, if it was opened for several loaders.
    opened: Option<Opened>,
}

/// An opened source, and the Python sequences that contain its samples.
#[derive(Clone)]
struct Opened {
    source: Arc<dyn Source>,
    sequences: Vec<Arc<Sequence>>,
}

impl Pipeline {
    fn raised(&self, py: Python<'_>, error: Error) -> PyErr {
        raised(py, &if self.is_text { without_place(error) } else { error })
    }

    /// Opens the source without keeping fields of items in memory.
    pub fn source(&self, py: Python<'_>) -> PyResult<Arc<dyn Source>> {
        Ok(self.open(py, false)?.source)
    }

    fn open(&self, py: Python<'_>, keep_fields: bool) -> PyResult<Opened> {
        let sequences = self.sequences(py, keep_fields)?;
        let (pipeline, named) = (self.pipeline.clone(), sequences.clone());
        // Selecting by labels may read items. Open the source on another thread, where exceptions
        // of items cannot be mistaken for exceptions of signal handlers.
        let source = background::run(py, move || given(&pipeline, &named)?.open())?;
        let source = source.map_err(|error| self.raised(py, error))?;
        Ok(Opened { source, sequences })
    }

    fn sequences(&self, py: Python<'_>, keep_fields: bool) -> PyResult<Vec<Arc<Sequence>>> {
        let sequences = self.own.iter();
        let ends = self.pipeline.settings.loader.on_error == OnError::Stop;
        let sequences =
            sequences.map(|(name, it)| Sequence::new(py, name, it, (keep_fields, ends)));
        sequences.map(|sequence| sequence.map(Arc::new)).collect()
    }

    pub fn settings(&self) -> &Settings {
        &self.pipeline.settings
    }
}

/// Returns the pipeline together with the sequences that it names.
fn given(
    pipeline: &feedwater::Pipeline,
    sequences: &[Arc<Sequence>],
) -> feedwater::Result<feedwater::Pipeline> {
    let mut sequences = sequences.iter();
    sequences.try_fold(pipeline.clone(), |pipeline, it| pipeline.give(it.name(), it.clone()))
}

/// Returns the error without line and column, for a pipeline whose text the user did not write.
fn without_place(error: Error) -> Error {
    match error {
        Error::Config(mut config) => {
            config.at = None;
            Error::Config(config)
        }
        other => other,
    }
}

#[pymethods]
impl Pipeline {
    /// Reads a pipeline file. The file may name the Python sequences in `own`.
    #[staticmethod]
    #[pyo3(signature = (path, own=Own::new()))]
    fn from_file(py: Python<'_>, path: PathBuf, own: Own) -> PyResult<Self> {
        let read = py.detach(|| feedwater::Pipeline::from_file(path));
        let pipeline = read.map_err(|error| raised(py, &error))?;
        Ok(Self { pipeline, is_text: false, own, opened: None })
    }

    /// Reads the text of a pipeline file, whose paths are relative to `base`.
    #[staticmethod]
    #[pyo3(signature = (text, base, own=Own::new()))]
    fn from_toml(py: Python<'_>, text: &str, base: PathBuf, own: Own) -> PyResult<Self> {
        let read = py.detach(|| feedwater::Pipeline::from_toml(text, base));
        let pipeline = read.map_err(|error| raised(py, &without_place(error)))?;
        Ok(Self { pipeline, is_text: true, own, opened: None })
    }

    /// Returns the pipeline as a pipeline file with all settings.
    fn to_toml(&self, py: Python<'_>) -> PyResult<String> {
        self.pipeline.to_toml().map_err(|error| self.raised(py, error))
    }

    /// Returns the pipeline with an opened source, which several loaders can share.
    fn opened(&self, py: Python<'_>) -> PyResult<Self> {
        let opened = Some(self.open(py, true)?);
        let (pipeline, is_text) = (self.pipeline.clone(), self.is_text);
        Ok(Self { pipeline, is_text, own: Own::new(), opened })
    }

    /// Whether the settings specify the shard (`rank`, `world_size`), or where to read it
    /// (`shard`).
    #[getter]
    fn has_shard(&self) -> bool {
        let loader = &self.pipeline.settings.loader;
        let given = loader.rank.or(loader.world_size).is_some();
        given || loader.shard != ShardFrom::Environment
    }

    /// Opens the source and builds a loader, which begins with `epoch` or at `state` (JSON).
    /// `positions` selects a part of each epoch. `shard` is rank and world size, used instead of
    /// the launcher's environment variables.
    #[pyo3(signature = (epoch=0, epochs=None, state=None, positions=None, shard=None))]
    #[allow(clippy::too_many_arguments, reason = "they are keyword arguments in Python")]
    fn build(
        &self,
        py: Python<'_>,
        epoch: u32,
        epochs: Option<u32>,
        state: Option<&str>,
        positions: Option<(u64, u64)>,
        shard: Option<(u64, u64)>,
    ) -> PyResult<Loader> {
        let state: Option<LoaderState> = match state.map(serde_json::from_str).transpose() {
            Ok(state) => state,
            Err(problem) => {
                let error =
                    Error::config("state", format!("is not the state of a loader: {problem}"));
                return Err(raised(py, &error));
            }
        };
        let (opened, sequences) = match self.opened.clone() {
            Some(Opened { source, sequences }) => (Some(source), sequences),
            None => (None, self.sequences(py, true)?),
        };
        let (pipeline, named) = (self.pipeline.clone(), sequences.clone());
        let built = background::run(py, move || {
            let builder = match opened {
                Some(source) => LoaderBuilder::new(source, pipeline.chain.clone())
                    .settings(pipeline.settings.clone()),
                None => given(&pipeline, &named)?.builder()?,
            };
            let builder = match shard {
                Some((rank, world)) => builder.shard(rank, world),
                None => builder,
            };
            let positions = positions.map(|(begin, end)| begin..end);
            let builder = builder.start_epoch(epoch).epochs(epochs).positions(positions);
            // Python may keep arrays, and so the memory of their batches, for a long time. The
            // loader then allocates memory for more batches.
            let builder = builder.add_batches(true);
            match state {
                Some(state) => builder.resume(state),
                None => builder,
            }
            .build()
        })?;
        let loader = built.map_err(|error| self.raised(py, error))?;
        Ok(Loader::new(Arc::new(loader), sequences))
    }
}
