//! Compares the formulas of operators with the libraries that define them, and with their CUDA
//! versions (twins).

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
