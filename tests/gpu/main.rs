//! The GPU path on a simulated machine: driver, nvJPEG, loader, exports, failures. Needs no GPU.
//!
//! The simulated streams run queued work as late, or in as random an order, as CUDA's rules allow.
//! A missing wait therefore shows as a wrong batch.

mod choose;
mod device_code;
mod device_time;
mod driver;
mod engines;
mod failures;
mod handoff;
mod loader;
mod nvjpeg;
mod tuning;
mod views;

use cudarc::driver::result;
use feedwater_tests::{common, simulated};
use simulated::Simulated;
use simulated::images::libjpeg;

/// Returns the simulated machine with libjpeg as its decoder.
fn machine() -> Option<Simulated> {
    let machine = simulated::exclusive()?;
    machine.set_decoder(Some(libjpeg));
    Some(machine)
}

/// Runs a step and checks that the thread's current context is the same as before.
fn keeps<T>(what: &str, step: impl FnOnce() -> T) -> T {
    let before = result::ctx::get_current().unwrap();
    let value = step();
    assert_eq!(result::ctx::get_current().unwrap(), before, "{what}");
    value
}
