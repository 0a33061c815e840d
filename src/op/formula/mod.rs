//! Formulas of operators as pure functions, each with its source.

pub mod affine;
pub mod elastic;
pub mod iou_crop;
pub mod letterbox;
pub mod pad;
pub mod perspective;
pub mod policy;
pub mod random_sizes;
pub mod rotate;
pub mod thumbnail;
pub mod warp;
