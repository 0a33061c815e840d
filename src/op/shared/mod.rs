//! Formulas that several operators share: pure functions of parameters and pixels. A formula of one operator lies beside
//! that operator.
//!
//! Bytes are those of torchvision v2 on PIL images, or of the library that the operator's page names. A formula that
//! runs on the GPU has a twin in `kernels/`, equal bit for bit: only additions, multiplications, divisions, square roots
//! and conversions, which IEEE 754 rounds exactly. What is transcendental is computed on the host and is a parameter.
//! `tests/formulas/` compares both with the libraries and with each other.

pub use histograms::{Histograms, luma, luma_of};

pub mod histograms;
pub mod noise;
pub mod padding;
pub mod pillow_blend;
