//! Tests explanations and tuning: reports on measured runs, and the settings that the tuner
//! chooses, compared with the best settings.

#[path = "../common/mod.rs"]
mod common;
mod contention;
mod html;
mod prefetch;
mod tune;
