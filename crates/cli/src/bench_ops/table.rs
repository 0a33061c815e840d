//! Formatting functions for the tables of `bench-ops`.

use serde::Serialize;

/// Part of a loader's work to which a step belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkPart {
    /// Loading the pixels: all steps up to the decoded window.
    Load,
    /// Computing the tensor from the pixels.
    Encode,
    /// A step that replaces other steps. It is shown for comparison and not part of the sum.
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
