//! `brightness`: blends the image with black.

use bytemuck::{Pod, Zeroable};

use super::blend::blend;

/// Parameters of one sample.
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct Params {
    /// 0 gives black, 1 the image, 2 twice its bytes.
    pub factor: f32,
}

/// `byte * factor`, truncated: torchvision's `adjust_brightness` on PIL images (`ImageEnhance.Brightness`).
pub fn byte(params: &Params, byte: u8) -> u8 {
    blend(0, byte, params.factor)
}
