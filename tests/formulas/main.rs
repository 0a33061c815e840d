//! Formulas of operators against the libraries that define them.

mod golden;
mod warps;
