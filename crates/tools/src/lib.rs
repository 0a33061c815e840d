//! Tools for data sets: inspect a source ([`probe`]), pack it into shards ([`pack`]), and generate
//! synthetic images ([`synth`]).

pub mod pack;
pub mod probe;
pub mod synth;
