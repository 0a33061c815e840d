//! A row while it is painted.

use super::noise::Colour;

/// One row of the image while it is painted.
pub struct Row {
    pub colour: Vec<Colour>,
    /// Strength of the grain, 0 (smooth or out of focus) to 1.
    pub texture: Vec<f32>,
    /// For the layer that is being drawn.
    pub noise: Vec<f32>,
}

impl Row {
    /// Black and smooth.
    pub fn new(width: usize) -> Self {
        Self { colour: vec![[0.0; 3]; width], texture: vec![0.0; width], noise: vec![0.0; width] }
    }
}
