//! What the tables have in common.

use serde::Serialize;

/// What a step is to the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Bringing the pixels: what ends with the decoded window.
    Load,
    /// Making a tensor of them.
    Encode,
    /// Another way to do what other steps do: not in the sum.
    Comparison,
}

/// Seconds as milliseconds.
pub fn milli(seconds: f64) -> String {
    format!("{:.3}", 1e3 * seconds)
}

/// A row of a table.
pub fn line<const CELLS: usize>(name: &str, cells: [String; CELLS]) -> String {
    let cells: String = cells.iter().map(|it| format!("{it:>14}")).collect();
    format!("{name:<30}{cells}\n")
}
