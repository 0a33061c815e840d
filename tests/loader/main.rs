//! The loader on the CPU: lifecycle, order, resuming, caches, tuning, and single images.

mod cache;
mod columns;
mod exported;
mod field_stats;
mod fields;
mod following;
mod gray;
mod lifecycle;
mod order;
mod preprocessor;
mod resume;
mod ring;
mod tuning;
mod views;

use common::with_fields;
use feedwater_tests::{common, simulated};
