//! The interpreter of PTX: instructions, control flow, faults and whole kernels.

mod arithmetic;
mod common;
mod control;
mod faults;
mod kernels;
mod rare;
mod warp;
