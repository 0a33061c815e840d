//! A pipeline file, or the text of one.

use std::path::PathBuf;
use std::sync::Arc;

use feedwater::plan::{Settings, ShardFrom};
use feedwater::storage::Storage;
use feedwater::{Error, LoaderBuilder, LoaderState, Source};
use pyo3::prelude::*;

use crate::background;
use crate::error::raised;
use crate::loader::{Loader, json};
use crate::source::{Given, Sequence};

/// The source at a path, as JSON of its table in a pipeline file.
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
    /// Whether it is from a text, whose lines and columns say nothing to users.
    is_text: bool,
    /// The source, if it was opened for several loaders.
    opened: Option<Arc<dyn Source>>,
}

impl Pipeline {
    fn raised(&self, py: Python<'_>, error: Error) -> PyErr {
        raised(py, &if self.is_text { without_place(error) } else { error })
    }

    /// Opens the source. `sequence` takes its place.
    pub fn source(&self, py: Python<'_>, sequence: Option<Given>) -> PyResult<Arc<dyn Source>> {
        match sequence {
            Some(given) => Ok(Arc::new(Sequence::new(py, given)?)),
            None => py.detach(|| self.pipeline.open()).map_err(|error| self.raised(py, error)),
        }
    }

    pub fn settings(&self) -> &Settings {
        &self.pipeline.settings
    }
}

/// The error without the line and column of a setting.
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
    /// Reads a pipeline file.
    #[staticmethod]
    fn from_file(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let read = py.detach(|| feedwater::Pipeline::from_file(path));
        let pipeline = read.map_err(|error| raised(py, &error))?;
        Ok(Self { pipeline, is_text: false, opened: None })
    }

    /// Reads the text of a pipeline file, whose paths are relative to `base`.
    #[staticmethod]
    fn from_toml(py: Python<'_>, text: &str, base: PathBuf) -> PyResult<Self> {
        let read = py.detach(|| feedwater::Pipeline::from_toml(text, base));
        let pipeline = read.map_err(|error| raised(py, &without_place(error)))?;
        Ok(Self { pipeline, is_text: true, opened: None })
    }

    /// The file with every setting written out.
    fn to_toml(&self, py: Python<'_>) -> PyResult<String> {
        self.pipeline.to_toml().map_err(|error| self.raised(py, error))
    }

    /// The pipeline with its source opened, for several loaders.
    fn opened(&self, py: Python<'_>) -> PyResult<Self> {
        let opened = Some(self.source(py, None)?);
        Ok(Self { pipeline: self.pipeline.clone(), is_text: self.is_text, opened })
    }

    /// Whether the settings say which shard a loader reads, or where that is written.
    #[getter]
    fn has_shard(&self) -> bool {
        let loader = &self.pipeline.settings.loader;
        let given = loader.rank.or(loader.world).is_some();
        given || loader.shard != ShardFrom::Environment
    }

    /// Opens the source and builds a loader that begins with an epoch, or at a state as JSON, and has all positions of its epochs
    /// or some. `sequence` takes the place of the source, and `shard`, rank and world, of the launcher's variables.
    #[pyo3(signature = (epoch=0, epochs=None, state=None, sequence=None, positions=None, shard=None))]
    #[allow(clippy::too_many_arguments, reason = "they are keyword arguments in Python")]
    fn build(
        &self,
        py: Python<'_>,
        epoch: u32,
        epochs: Option<u32>,
        state: Option<&str>,
        sequence: Option<Given>,
        positions: Option<(u64, u64)>,
        shard: Option<(u64, u64)>,
    ) -> PyResult<Loader> {
        let state: Option<LoaderState> = match state.map(serde_json::from_str).transpose() {
            Ok(state) => state,
            Err(problem) => {
                let error = Error::config("state", format!("is not one: {problem}"));
                return Err(raised(py, &error));
            }
        };
        let sequence = sequence.map(|given| Sequence::new(py, given)).transpose()?;
        let source = match sequence {
            Some(sequence) => Some(Arc::new(sequence) as Arc<dyn Source>),
            None => self.opened.clone(),
        };
        let pipeline = self.pipeline.clone();
        let built = background::run(py, move || {
            let builder = match source {
                Some(source) => LoaderBuilder::new(source, pipeline.chain.clone())
                    .settings(pipeline.settings.clone()),
                None => pipeline.builder()?,
            };
            let builder = match shard {
                Some((rank, world)) => builder.shard(rank, world),
                None => builder,
            };
            let positions = positions.map(|(begin, end)| begin..end);
            let builder = builder.start_epoch(epoch).epochs(epochs).positions(positions);
            match state {
                Some(state) => builder.resume(state),
                None => builder,
            }
            .build()
        })?;
        built.map(|loader| Loader::new(Arc::new(loader))).map_err(|error| self.raised(py, error))
    }
}
