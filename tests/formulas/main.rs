//! Formulas of operators: against the libraries that define them, and against their CUDA twins.

mod draws;
mod golden;
mod pictures;
mod twins;
