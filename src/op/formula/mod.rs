//! Formulas that several operators or executors share: pure functions of parameters and pixels.
//!
//! Bytes are those of torchvision v2 on PIL images, or of the library that the operator's page names. A formula that
//! runs on the GPU has a twin in `kernels/`, equal bit for bit: only additions, multiplications, divisions, square roots
//! and conversions, which IEEE 754 rounds exactly. What is transcendental is computed on the host and is a parameter.
//! `tests/formulas/` compares both with the libraries and with each other.

pub mod affine;
pub mod blend;
pub mod box_blur;
pub mod elastic;
pub mod expression;
pub mod iou_crop;
pub mod jpeg;
pub mod keep_ratio;
pub mod letterbox;
pub mod noise;
pub mod pad;
pub mod perspective;
pub mod policy;
pub mod random_sizes;
pub mod rotate;
pub mod statistics;
pub mod thumbnail;
pub mod warp;

pub use statistics::{Histograms, luma, luma_of};
