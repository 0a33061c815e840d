//! The compiled part of the Python package `feedwater`: pipelines from TOML, loaders, batches and
//! their tensors.
//!
//! Users call the Python code of the package. It writes settings as TOML, so that only Rust reads
//! settings, and converts batches to arrays of other libraries. The Rust code detaches from the
//! interpreter while it reads, decodes or waits.

mod arrays;
mod background;
mod batch;
mod batch_fields;
mod capsule;
mod columns;
mod encoded;
mod epoch;
mod error;
mod fields;
mod label;
mod loader;
mod objects;
mod pack;
mod pipeline;
mod running;
mod source;
mod text;
mod thread_state;

use std::ffi::OsString;

use pyo3::prelude::*;

/// Runs a command of the command line, and returns its exit code. `program` is the command that
/// starts this program again.
#[pyfunction]
fn main(py: Python<'_>, program: Vec<OsString>, arguments: Vec<OsString>) -> u8 {
    py.detach(|| feedwater_cli::main_as(program, arguments))
}

/// Sets the command of the process in which the JPEG engines are checked: the interpreter, and
/// the arguments with which it runs commands of feedwater.
#[pyfunction]
fn set_checking_program(program: Vec<OsString>) {
    feedwater::internals::gpu::nvjpeg::set_checking_program(program);
}

/// The module `feedwater._feedwater`. With `gil_used = false`, importing it does not enable the
/// global lock of free-threaded interpreters.
#[pymodule(gil_used = false)]
mod _feedwater {
    #[pymodule_export]
    use super::batch::Batch;
    #[pymodule_export]
    use super::batch_fields::BatchFields;
    #[pymodule_export]
    use super::epoch::Epoch;
    #[pymodule_export]
    use super::loader::{Loader, finish};
    #[pymodule_export]
    use super::objects::Objects;
    #[pymodule_export]
    use super::pack::{PackCoordinator, Packer};
    #[pymodule_export]
    use super::pipeline::{Pipeline, detected};
    #[pymodule_export]
    use super::{main, set_checking_program};

    /// Version of the package.
    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");
}
