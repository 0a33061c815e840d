//! Formatting shared by the tables.

use serde::Serialize;

/// Part of the work that a step belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkPart {
    /// Loading the pixels, up to the decoded window.
    Load,
    /// Converting the pixels to a tensor.
    Encode,
    /// An alternative to other steps, not part of the sum.
    Comparison,
}

/// Formats seconds as milliseconds.
pub fn milli(seconds: f64) -> String {
    format!("{:.3}", 1e3 * seconds)
}

/// Formats a row of a table.
pub fn line<const CELLS: usize>(name: &str, cells: [String; CELLS]) -> String {
    let cells: String = cells.iter().map(|it| format!("{it:>14}")).collect();
    format!("{name:<30}{cells}\n")
}
