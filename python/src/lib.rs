//! The compiled part of the Python package `feedwater`: pipelines from TOML, loaders, batches and their tensors.
//!
//! What users see is the Python code beside it, which writes settings as TOML, so that there is one reader of settings, and
//! turns batches into arrays of other libraries. Nothing here keeps the interpreter while it reads, decodes or waits.

mod batch;
mod capsule;
mod error;
mod loader;
mod pipeline;

use pyo3::prelude::*;

/// The module `feedwater._feedwater`.
#[pymodule]
mod _feedwater {
    #[pymodule_export]
    use super::batch::Batch;
    #[pymodule_export]
    use super::loader::{Epoch, Loader};
    #[pymodule_export]
    use super::pipeline::{Pipeline, detected};

    /// Version of the package.
    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");
}
