//! One row of the image while layers are painted on it.

use super::noise::Colour;

/// One row of the image while layers are painted on it.
pub struct Row {
    pub colour: Vec<Colour>,
    /// Strength of the grain at each pixel, 0 (smooth or out of focus) to 1.
    pub texture: Vec<f32>,
    /// Working buffer of the layer that is being drawn.
    pub noise: Vec<f32>,
}

impl Row {
    /// Creates a black row without grain.
    pub fn new(width: usize) -> Self {
        Self { colour: vec![[0.0; 3]; width], texture: vec![0.0; width], noise: vec![0.0; width] }
    }
}
