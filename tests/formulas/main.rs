//! Formulas of operators against the libraries that define them.

mod boxes;
mod device;
mod golden;
mod layouts;
mod policies;
mod samples;
mod warps;
