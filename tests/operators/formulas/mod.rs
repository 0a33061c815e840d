//! Formulas of operators: against the libraries that define them, and against their CUDA twins.

mod boxes;
mod colours;
mod conversions;
mod dali;
mod device;
mod draws;
mod images;
mod layouts;
mod pictures;
mod policies;
mod samples;
mod settings;
mod sums;
mod twins;
mod warps;
