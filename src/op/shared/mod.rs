//! Formulas that several operators share: pure functions of parameters and pixels. A formula of a
//! single operator is in the file or folder of that operator.
//!
//! The bytes equal those of torchvision v2 on PIL images, or of the library that the operator's
//! page names. A formula that runs on the GPU has a twin in `kernels/` with the same bits. Both use
//! only additions, multiplications, divisions, square roots and conversions, which IEEE 754 rounds
//! exactly. Transcendental functions are computed on the host and passed as parameters.
//! `tests/operators/formulas/` compares the formulas and their twins with the libraries and with
//! each other.

pub use histograms::{Histograms, luma, luma_of};

pub mod histograms;
pub mod noise;
pub mod padding;
pub mod pillow_blend;
