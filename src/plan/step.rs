//! Operators with their resolved placement.

use std::sync::Arc;

use serde::Serialize;

use crate::image::PixelType;
use crate::op::{Kinds, Operator};

/// Place where an operator or the decoder runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    /// On the CPU.
    Cpu,
    /// On the GPU.
    Gpu,
}

impl Place {
    /// Name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Place::Cpu => "cpu",
            Place::Gpu => "gpu",
        }
    }
}

/// Operator with its resolved placement.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PlannedStep {
    /// The operator.
    pub operator: Arc<dyn Operator>,
    /// Kinds of actions that the operator draws.
    pub kinds: Kinds,
    /// Whether the operator's output depends on random numbers.
    pub is_random: bool,
    /// Where the operator runs.
    pub place: Place,
    /// Pixel type of the operator's output.
    pub pixels: PixelType,
}
