//! Parameters of the operators that the CPU fuses with their neighbours ([`Fusion`](super::Fusion)).

pub mod normalize;
pub mod resample;
