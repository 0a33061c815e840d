//! Operators. Compares pixels, random numbers and boxes with the libraries that define the
//! operators, with the reference implementation, and with the CUDA source of the kernels.

mod batch;
mod chains;
mod combinators;
mod formulas;
#[allow(dead_code, reason = "each module reads its own tables")]
mod golden;
#[allow(dead_code, reason = "tests of images write more kinds of files")]
#[path = "../images/jpeg.rs"]
mod jpeg;
mod parity;
mod testing;

use feedwater_tests::{common, simulated};
