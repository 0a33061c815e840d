//! Tools around data sets: what a source holds ([`probe`]), packing it into shards ([`pack`]), and making synthetic images
//! ([`synth`]).

pub mod pack;
pub mod probe;
pub mod synth;
