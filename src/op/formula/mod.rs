//! Formulas of operators as pure functions, each with its source.

pub mod affine;
pub mod perspective;
pub mod policy;
pub mod rotate;
pub mod warp;
